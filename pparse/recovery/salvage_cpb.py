"""Chunked protos (``.cpb``): writes the readable chunks, metadata that fit them, and the message that they merge to.

A lost chunk leaves a hole in the message. If the chunk is one message, an empty message takes its place, so that its
neighbours keep their indices; if it is one value, the value is left out. (A tensor without values would be read as
zeros, so its type is removed, too, and no reader accepts it.) Elements below a message with a lost chunk may have
another index now; what is addressed by such an index is left out rather than put in the wrong place.
"""

from __future__ import annotations

from pparse.data.base import BytesData
from pparse.data.range_status import cut_status
from pparse.errors import DataError, EndOfDataError, LimitError, MalformedError, spoken
from pparse.findings import Status
from pparse.limits import count_words
from pparse.parsers.cpb.metadata import ChunkMetadata
from pparse.parsers.cpb.overlay import ChunkOpener
from pparse.parsers.cpb.parser import CpbParser
from pparse.parsers.protobuf.index import ChunkRange, Lost
from pparse.parsers.protobuf.write import measure, operations, write
from pparse.proto_splitter.stream_merge import check_uses
from pparse.recovery.salvage import NOTHING, SAVED, UNHARMED, Rest
from pparse.recovery.salvage_protobuf import NO_TYPE, TENSOR
from pparse.recovery.salvage_records import RecordCopy, described
from pparse.tree.result import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.parsers.protobuf.index import Piece
    from pparse.protobuf.schema import FieldType, MessageType
    from pparse.recovery.salvage import Job
    from pparse.recovery.target import TargetFile
    from pparse.riegeli.lookup import RecordLookup

    Step = tuple[str, Any]
    Path = tuple[Step, ...]
    Record = tuple[int, bytes]  # its position and its content

_MESSAGE: Final = 1  # ChunkInfo.Type
_BYTES: Final = 2
_COST: Final = 16  # bytes of memory per byte of a parsed message, about
_NESTING: Final = 100
_INDEX: Final = "index"
# Suffix for chunks that cannot be merged: a Riegeli file, which no library takes for a model.
CHUNKS: Final = "{}.partial/chunks.riegeli"
METADATA: Final = "{}.partial/chunk-metadata.binpb"


class _ReadChunks:
    """The chunks that were read: ``places`` maps the number of each to its position in the new file."""

    def __init__(self, job: Job, parser: CpbParser, metadata: Any) -> None:
        self._by_position: dict[int, list[int]] = {}
        self._infos = metadata.chunks
        self.last: int = getattr(parser, "metadata_position", -1)
        """Position of the metadata, which are replaced."""
        self._solid = job.solid - job.start  # after it, positions have changed
        self.places: dict[int, int] = {}
        moved = parser.chunks.metadata.moved if parser.chunks is not None else None
        for number, info in enumerate(metadata.chunks):
            position = info.offset if moved is None else moved.get(info.offset)
            if position is not None:
                self._by_position.setdefault(position, []).append(number)

    def written(self, position: int, size: int, now: int) -> None:
        """Record a chunk that was written."""
        if position < self._solid:
            for number in self._by_position.get(position, ()):
                if self._infos[number].size == size:
                    self.places[number] = now

    @property
    def lost(self) -> list[int]:
        """The numbers of the chunks that were not read."""
        return [number for number in range(len(self._infos)) if number not in self.places]


class _ChunkFiles(ChunkOpener):
    """The chunks of a damaged file. A lost chunk is an empty message or, in ``blank``, a tensor without a type."""

    def __init__(self, metadata: ChunkMetadata, lookup: RecordLookup, parser: CpbParser, pruned: _Pruned) -> None:
        super().__init__(metadata, lookup, parser.result.extraction.session.budget)
        self._lost = set(pruned.lost)
        self._blank = pruned.blank

    def open(self, index: int) -> ChunkRange:
        """Return the bytes of a chunk."""
        if index in self._lost:
            content = NO_TYPE if index in self._blank else b""
            return ChunkRange(BytesData(content), 0, len(content), index, 0)
        return super().open(index)

    def piece(self, index: int) -> Piece:
        """Return the bytes of a chunk, or the reason why they are lost."""
        return self.open(index) if index in self._lost else super().piece(index)


def salvage_cpb(job: Job) -> str:
    """Write the readable chunks as a ``.cpb``, and the message they merge to; see `pparse.recovery.salvage`.

    Chunks that cannot be merged are written as a Riegeli file with the suffix `CHUNKS` instead.
    """
    parser: CpbParser = job.extraction.parse().parser  # type: ignore[assignment]
    charge = job.session.budget.charge(0, "the metadata of chunks")
    try:
        metadata = _metadata(parser, charge)
        if metadata is not None:
            return _save_message(job, parser, metadata)
        why = parser.problem.reason if parser.problem is not None else "they are damaged"
        old = _old_metadata(parser)
        said = "cannot be used" if old is not None else "are lost"
        return _save_chunks(job, f"the chunk metadata, which say what belongs where, {said}: {why}", old=old)
    finally:
        charge.release()


def is_whole(parser: CpbParser) -> bool:
    """Say whether the metadata are sound and every chunk that they name can be read."""
    if parser.chunks is None or parser.damaged_end is not None or parser.verify_metadata() is not None:
        return False
    metadata = parser.chunks.metadata
    every = ChunkOpener(metadata, parser._new_lookup("all"), parser.chunks.budget)
    return not any(isinstance(every.piece(index), Lost) for index in range(metadata.chunk_count))


def _metadata(parser: CpbParser, charge: Any) -> Any:
    """Return the metadata of the chunks as a message; None if they are lost or not sound."""
    if parser.chunks is None or parser.verify_metadata() is not None:
        return None
    from google.protobuf.message import DecodeError

    from pparse.protos import message_class

    try:
        parser._new_lookup("all").record(parser.metadata_position)
    except (MalformedError, EndOfDataError):  # in a chunk so large that it was read without its hash
        return None
    record = parser.chunks.metadata.record
    charge.resize(_COST * len(record))
    try:
        return message_class("tensorflow.proto_splitter.ChunkMetadata").FromString(
            record.data.read_exact(record.start, len(record)) if len(record) else b""
        )
    except (DecodeError, MalformedError, EndOfDataError):
        return None


def _old_metadata(parser: CpbParser) -> Record | None:
    """Return position and bytes of the last record if it is chunk metadata that cannot be used."""
    position = parser.last_found
    try:
        record = parser.lookup.record(position) if position is not None else None
        if position is None or record is None:
            return None
        metadata = ChunkMetadata(record, parser.result.extraction.session.budget, any_version=True)
        metadata.verify()
        return (position, record.data.read_exact(record.start, len(record))) if metadata.chunk_count else None
    except (DataError, EOFError):
        return None


def _save_chunks(
    job: Job, problem: str, pruned: _Pruned | None = None, known: _ReadChunks | None = None, old: Record | None = None
) -> str:
    """Write the readable chunks as a Riegeli file; ``problem`` says why they cannot be merged.

    With ``known``, that is so although all of them are whole. ``old`` are metadata that do not fit the chunks, and
    their position: a reader that uses them would get wrong names.
    """
    known = pruned.known if pruned is not None else known
    skipped = old[0] if old is not None else known.last if known is not None else None
    with (
        job.target.create(CHUNKS.format(job.name)) as file,
        Rest(job, job.name.removesuffix(".cpb"), {"format": "cpb"}) as rest,
    ):
        copy = RecordCopy(job, file, rest, skipped=skipped)
        copy.run()
        copy.damaged = copy.damaged or (known is not None and pruned is None)
        if pruned is not None:
            pruned.tell(rest)
        copy.finish()
        if not copy.records or (copy.is_whole and known is None and old is None):
            return job.give_up(file, rest, is_unharmed=copy.records > 0)
    whole = "" if pruned is None else f"{pruned.whole} are whole; "
    _report(copy, f"{job.name}.partial", f"{whole}{described(copy)}; no .cpb and no .pb: {problem}")
    if old is not None:
        with job.target.create(METADATA.format(job.name)) as kept:
            kept.write(old[1])
        job.report(kept, Status.DAMAGED, "the chunk metadata as they are, which do not fit the chunks that are left")
    return SAVED


def _save_message(job: Job, parser: CpbParser, metadata: Any) -> str:
    """Write the chunks as a ``.cpb``, and the message; if they cannot be merged, do as `_save_chunks`."""
    stem = job.name.removesuffix(".cpb")
    merged: TargetFile | None = None
    limit: LimitError | None = None
    with job.target.create(job.name) as file, Rest(job, stem, {"format": "cpb"}) as rest:
        copy, pruned = _copy(job, parser, metadata, file, rest)
        if pruned is not None and pruned.problem is None:
            try:
                merged = _merge(job, pruned, f"{stem}.pb")
            except LimitError as error:  # it can still be merged with more memory
                limit = error
            except DataError as error:
                pruned.problem = error.reason
        if pruned is None or pruned.problem is not None:
            job.give_up(file, rest)
    if pruned is None:
        wrong = parser.misplaced() if copy.records else None
        if wrong is not None:  # if a merger accepts it, the result has holes read as zeros
            return _save_chunks(
                job, f"the places of chunks are wrong: {wrong}", known=_ReadChunks(job, parser, metadata)
            )
        return UNHARMED if copy.records else NOTHING
    if pruned.problem is not None:
        return _save_chunks(job, pruned.problem, pruned)
    why = "" if limit is None else f"; no .pb: {limit.reason}"
    _report(copy, f"{file.path}.partial", f"{pruned.whole} are whole; {described(copy)}{why}", pruned, merged)
    if limit is not None:
        raise limit
    return SAVED


def _copy(
    job: Job, parser: CpbParser, metadata: Any, file: TargetFile, rest: Rest
) -> tuple[RecordCopy, _Pruned | None]:
    """Copy the chunks; return the copy, and the pruned metadata unless there are no chunks, or nothing is wrong."""
    known = _ReadChunks(job, parser, metadata)
    copy = RecordCopy(job, file, rest, skipped=known.last, written=known.written)
    copy.run()
    unknown = [info for info in metadata.chunks if info.type not in (0, _MESSAGE, _BYTES)]
    if not copy.records or (copy.is_whole and not known.lost and not unknown):
        return copy, None
    copy.damaged = copy.damaged or bool(unknown)
    for info in unknown:  # the type of a chunk without one follows from its field
        info.type = 0
    pruned = _Pruned(metadata, known, parser.root_type)
    pruned.tell(rest)
    if pruned.problem is None:
        if pruned.lost:
            empty = copy.write(b"")
            blank = copy.write(NO_TYPE) if pruned.blank else empty
            for number in pruned.lost:
                info = metadata.chunks[number]
                info.size, info.offset = (len(NO_TYPE), blank) if number in pruned.blank else (0, empty)
        for number, place in known.places.items():
            metadata.chunks[number].offset = place
        copy.write(metadata.SerializeToString(deterministic=True))
        copy.finish()
    return copy, pruned


class _Pruned:
    """The metadata without the fields whose places are unknown because of lost chunks.

    ``metadata`` is changed in place; ``original`` are its bytes with the positions of the old file. ``fields`` are the
    paths of the lost chunks, ``left_out`` those of readable chunks without a known place. ``problem`` says why nothing
    can be merged, if so. ``blank`` are lost chunks replaced by tensors without a type.
    """

    def __init__(self, metadata: Any, known: _ReadChunks, type: MessageType | None) -> None:
        self.metadata = metadata
        self.known = known
        self.lost = lost = known.lost
        self.count = len(metadata.chunks)
        self.fields: dict[int, list[str]] = {}
        self.left_out: list[str] = []
        self.problem: str | None = None
        self.blank: set[int] = set()
        self._plain: set[int] = set()  # lost chunks that are more than the content of tensors
        self._type = type
        self._lost = set(lost)
        self._shaken: set[Path] = set()
        root = metadata.message
        if root.HasField("chunk_index") and root.chunk_index in self._lost:
            self.problem = "the chunk that all others belong to is lost"
        else:
            self._collect(root)
        if self.problem is None:
            self._prune(root)
        self.original: bytes = metadata.SerializeToString(deterministic=True)
        self._places = [(info.offset, info.size) for info in (metadata.chunks[number] for number in lost)]

    @property
    def whole(self) -> str:
        """How many of the chunks could be read, in words."""
        return f"{self.count - len(self.lost):,} of {count_words(self.count, 'chunk')}"

    def tell(self, rest: Rest) -> None:
        """List the lost chunks and the left-out fields in ``rest``."""
        for number, (offset, size) in zip(self.lost, self._places, strict=True):
            fields = sorted(self.fields.get(number, ()))
            rest.add({"chunk": number, "position": offset, "size": size, "fields": fields})
        for path in self.left_out:
            rest.add({"field": path, "reason": "its place is not known, since elements before it may be lost"})

    def _collect(self, root: Any) -> None:
        """Collect the messages that lost a chunk."""
        stack: list[tuple[Any, Path]] = [(root, ())]
        while stack and self.problem is None:
            node, path = stack.pop()
            for field in node.chunked_fields:
                here = path + _steps(field)
                below = field.message
                if len(here) > 2 * _NESTING:
                    self.problem = "chunked fields are nested too deep"
                lost = self._is_lost(below)
                if lost and self._is_value(below) and here and here[-1][0] == _INDEX:
                    self.problem = "a value of a list is lost, and the values after it would take its place"
                if lost and not self._is_content(here):
                    self._plain.add(below.chunk_index)
                if lost and self.metadata.chunks[below.chunk_index].type != _BYTES:
                    self._shaken.add(here)
                if below.chunked_fields:
                    stack.append((below, here))

    def _prune(self, root: Any) -> None:
        """Remove the lost values, and what is addressed by an index below a message with a lost chunk."""
        stack: list[tuple[Any, Path]] = [(root, ())]
        while stack:
            node, path = stack.pop()
            for number in range(len(node.chunked_fields) - 1, -1, -1):
                field = node.chunked_fields[number]
                here = path + _steps(field)
                gone, uncertain = self._is_lost(field.message), self._is_uncertain(here)
                if gone:
                    self.fields.setdefault(field.message.chunk_index, []).append(_text(here, self._type))
                elif uncertain:
                    self.left_out.append(_text(here, self._type))
                if gone and not uncertain and field.message.chunk_index not in self._plain:
                    self._blank_out(field)
                elif (gone and self._is_value(field.message)) or uncertain:
                    del node.chunked_fields[number]
                elif field.message.chunked_fields:
                    stack.append((field.message, here))
        self.left_out.sort()

    def _is_content(self, path: Path) -> bool:
        """Say whether a path leads to the content of a tensor."""
        kind, _, owner, field = [("", None, None, None), *_named(path, self._type)][-1]
        if kind != "field" or owner is None or field is None:
            return False
        return owner.full_name == TENSOR and field.name == "tensor_content"

    def _blank_out(self, field: Any) -> None:
        """Change a chunked field for the content of a tensor to one for the tensor that removes its type."""
        number = field.message.chunk_index
        del field.field_tag[-1]
        self.metadata.chunks[number].type = _MESSAGE
        self.blank.add(number)

    def _is_lost(self, message: Any) -> bool:
        has = message.HasField("chunk_index") or not message.chunked_fields
        return has and message.chunk_index in self._lost

    def _is_value(self, message: Any) -> bool:
        """Say whether a chunk is, or may be, a value rather than a message."""
        kind: int = self.metadata.chunks[message.chunk_index].type
        return kind in (0, _BYTES)

    def _is_uncertain(self, path: Path) -> bool:
        return any(
            path[:length] in self._shaken and any(kind == _INDEX for kind, _ in path[length:])
            for length in range(len(path))
        )


def _steps(field: Any) -> Path:
    """Return the steps of a field's tag."""
    found: list[Step] = []
    for item in field.field_tag:
        kind = item.WhichOneof("kind") or ""
        if kind == "map_key":
            word = item.map_key.WhichOneof("type")
            found.append((kind, getattr(item.map_key, word) if word else None))
        else:
            found.append((kind, getattr(item, kind) if kind else None))
    return tuple(found)


def _named(path: Path, type: MessageType | None) -> Iterator[tuple[str, Any, MessageType | None, FieldType | None]]:
    """Yield each step of a path: its kind and value, the message type it is in and the field, if they are known."""
    field = None
    for kind, value in path:
        if kind == "field":
            if field is not None:
                type = field.message
            field = type.fields.get(value) if type is not None else None
        yield kind, value, type, field
        if kind == "map_key" and field is not None:
            field = field.map_value


def _text(path: Path, type: MessageType | None) -> str:
    """Return a path as text, with names where the type has them."""
    words: list[str] = []
    for kind, value, _, field in _named(path, type):
        if kind == "field":
            words.append(f"{'.' if words else ''}{field.name if field is not None else value}")
        else:
            words.append(f"[{value}]" if kind == _INDEX else f'["{value}"]')
    return "".join(words)


# -- the message -------------------------------------------------------------------------------------------------------


def _report(
    copy: RecordCopy, folder: str, reason: str, pruned: _Pruned | None = None, merged: TargetFile | None = None
) -> None:
    """Report the file of chunks, the rest of the last chunk (in ``folder``), the message, and what is lost."""
    job = copy.job
    status = cut_status(damaged=copy.damaged or job.has_gaps)

    def save() -> None:
        if merged is not None and pruned is not None:
            said = f"merged from {pruned.whole}"
            if pruned.left_out:
                said += f"; {count_words(len(pruned.left_out), 'field')} left out, whose place is not known"
            job.report(merged, status if pruned.lost else Status.COMPLETE, said)
        copy.save_tail(folder)

    job.conclude(copy.file, status, reason, copy.rest, save)


def _merge(job: Job, pruned: _Pruned, name: str) -> TargetFile:
    """Write the message that the chunks merge to. If they cannot be merged, write nothing and raise `PparseError`."""
    session = job.session
    fresh = Result(job.extraction, CpbParser)
    parser: CpbParser = fresh.parser  # type: ignore[assignment]
    record = BytesData(pruned.original, job.extraction.name).range(0, len(pruned.original))
    metadata = ChunkMetadata(record, session.budget, any_version=True)
    metadata.moved = parser.chunks.metadata.moved if parser.chunks is not None else None
    parser.chunks = _ChunkFiles(metadata, parser._new_lookup("all"), parser, pruned)
    if parser.root_type is None:
        raise MalformedError(f"the message type is not known; give it with {spoken('-O message=NAME')}")
    check_uses(parser)
    root = fresh.root
    sizes = measure(operations(root))
    with job.target.create(name) as file:

        def out(block: bytes) -> None:
            file.write(block)
            job.advance(len(block), sizes[0])

        if write(operations(root), sizes, out) != sizes[0]:
            raise MalformedError("the source changed during the merge", wanted=sizes[0], got=file.bytes)
    return file
