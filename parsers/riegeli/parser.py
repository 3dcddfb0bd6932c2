"""Riegeli/records files: chunks, and the records in them. array_record files are Riegeli files, too.

States::

    state           needs  reads                                           goes to
    expect_chunk    0..64  the header of a chunk (40 bytes, or 64 with a   expect_chunk at the chunk's end; DONE at
                           block header in it); the chunk becomes a child  the end of the data, or of a cut chunk
    expect_records  0      nothing of its own: the sizes of the records    DONE
                           are decoded from the chunk's data
    expect_fields   0      nothing of its own: the metadata are decoded    DONE

The root is a map: a chunk's key is its offset, so ``[64][3]`` is the record at position 64/3; the metadata chunk after
the signature has the key ``metadata``. A chunk is a list of records. A record is a scalar: a range of the file if it is
not compressed, else of the decompressed values.

Rules: a chunk header is accepted if its hash agrees. Damage becomes a ``gap``, from the chunk that failed to where
`pparse.riegeli.salvage` continues. A truncated last chunk keeps the records that exist, TRUNCATED if they end early.
Hashes of data are checked as the option ``verify`` says, and all of them by `check`.
"""

from __future__ import annotations

from pparse.data.range_status import cut_status
from pparse.errors import (
    GapError,
    LimitError,
    MalformedError,
    OptionError,
    PathError,
    PparseError,
    UnsupportedError,
)
from pparse.findings import Finding, Status
from pparse.kernels.riegeli_scan import block_headers, chunk_headers
from pparse.limits import count_words
from pparse.parsers.riegeli.chunks import ChunkParser
from pparse.parsers.riegeli.metadata import metadata_entries
from pparse.paths import KeyStep, OrdinalStep
from pparse.riegeli.chunks import Chunk, ChunkError, ChunkReader
from pparse.riegeli.cursor import check_empty
from pparse.riegeli.errors import InvalidArgumentError, UnimplementedError
from pparse.riegeli.layout import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    CHUNK_HEADER_SIZE,
    FILE_SIGNATURE,
    MAX_POSITION,
    METADATA,
    SIMPLE,
    TRANSPOSED,
    block_is_sound,
)
from pparse.riegeli.positions import RecordPosition
from pparse.riegeli.records import open_records
from pparse.riegeli.salvage import read_header
from pparse.riegeli.source import Source
from pparse.riegeli.verdicts import Verdicts
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import LIST, MAP, Entry
from pparse.tree.listing import Listing
from pparse.tree.parser import Confidence, Signature
from pparse.tree.visit import Member, Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.data.reader import Range
    from pparse.riegeli.records import ChunkRecords
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

RECORDS: Final = ("simple", "transposed")  # kinds of chunks that hold records
VERIFY: Final = ("headers", "touched", "all")
# The most blocks of a file without its beginning that are read before giving up.
_BLOCKS_TRIED: Final = 64
# With verify=touched, chunks of at most this many bytes are read completely when a record of them is loaded.
TOUCHED: Final = 4 << 20


class RiegeliParser(ChunkParser, Listing):
    """A Riegeli/records file."""

    name = "riegeli"
    description = "Riegeli records (array_record files too)"
    extensions = (".riegeli", ".array_record", ".arrayrecord")
    is_data_set = True
    signatures = (Signature(FILE_SIGNATURE[:8]),)
    is_generic = True
    media_type = "application/x-riegeli"
    references = ("google/riegeli: doc/riegeli_records_file_format.md", "google/array_record")
    limitations = (
        "a transposed chunk is decoded as a whole, within the budget",
        "records of a chunk above 4 MiB are returned without checking the chunk's hash, unless -O verify=all",
    )
    options: ClassVar[dict[str, str]] = {
        "verify": "which hashes of data are checked before a record is returned: headers (none), touched (chunks "
        "up to 4 MiB; the default), all"
    }
    shapes: ClassVar[dict[str, str]] = {
        "riegeli": MAP,
        "simple": LIST,
        "transposed": LIST,
        "metadata": MAP,
        "descriptors": MAP,
    }
    child_state = "expect_chunk"
    member_word = "record"

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        extraction = result.extraction
        verify = extraction.session.options.get("verify", "touched")
        if verify not in VERIFY:
            raise OptionError(f"the option verify must be one of {', '.join(VERIFY)}, not {verify!r}")
        self.verify = str(verify)
        self._compared = [0, 0]  # chunks read by the last check, and those whose hashes agree
        self._start = extraction.start
        self._source = Source(extraction.data.range(extraction.start, extraction.known_end()))
        self._chunks = ChunkReader(self._source)
        self._opened: tuple[int, ChunkRecords] | None = None
        self.verdicts = Verdicts()  # what is known of the chunks' hashes
        self.verdicts.listeners.append(self._tell_living)

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by the file signature, LIKELY by a sound block header or a damaged signature."""
        head = excerpt.head(len(FILE_SIGNATURE))
        if head == FILE_SIGNATURE:
            return Confidence.CERTAIN
        cut = len(head) >= 8 and FILE_SIGNATURE.startswith(head)
        if cut or block_is_sound(head) or head[24:] == FILE_SIGNATURE[24:]:
            return Confidence.LIKELY
        return Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """LIKELY by sound headers further in."""
        return Confidence.LIKELY if _has_headers(reader) else Confidence.NO

    # -- the root: chunks --------------------------------------------------------------------------------------------

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin the file, a chunk, or the metadata."""
        node = ctx.node
        if node.parent is None:
            return node.start, self.expect_chunk, 0
        fields = node.kind in ("metadata", "descriptors")
        return node.start, self.expect_fields if fields else self.expect_records, 0

    def step_to(self, parent: Node, ordinal: int, key: Key) -> KeyStep | OrdinalStep:
        """Return the path step; chunks are identified by their offsets."""
        return KeyStep(key) if isinstance(key, str | int) else super().step_to(parent, ordinal, key)

    # -- one chunk ---------------------------------------------------------------------------------------------------

    def chunk(self, node: Node) -> Chunk:
        """Return the chunk of ``node``, a child of the root."""
        begin = node.start - self._start
        layout = self._chunks.layout_at(begin)
        found = read_header(self._chunks, begin, layout)
        if found is None:
            raise MalformedError("no chunk begins here", offset=node.start, source=self.result.extraction.name)
        return Chunk(begin, found[0], layout)

    def records(self, node: Node) -> ChunkRecords:
        """Return the records of the chunk of ``node``. Raise `MalformedError`, `LimitError`."""
        if self._opened is not None and self._opened[0] == node.start:
            return self._opened[1]
        session = self.result.extraction.session
        chunk = self.chunk(node)
        records = open_records(
            self._source,
            chunk,
            budget=session.budget,
            limits=session.limits,
            scratch=session.spools,
            verdicts=self.verdicts,
        )
        if records is None:
            raise MalformedError(f"a chunk of {chunk.header.type_name} holds no records", offset=node.start)
        self._opened = (node.start, records)
        return records

    def expect_records(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Add the records of a chunk."""
        node = ctx.node
        end = node.end if node.end is not None else ctx.pos
        try:
            records = self.records(node)
        except UnimplementedError as error:
            self._close(node, Status.UNSUPPORTED, "unsupported", error)
            return end, DONE, 0
        except InvalidArgumentError as error:
            if node.known_status is Status.COMPLETE:  # else it is truncated, which is reported already
                self._close(node, Status.DAMAGED, "malformed", error)
            return end, DONE, 0
        except EOFError:
            return end, DONE, 0  # nothing of a truncated transposed chunk can be decoded
        for ordinal in range(records.count):
            ctx.emit(Entry(None, "record", node.start, end, at=node.start + ordinal))
        if records.error is not None and node.known_status is Status.COMPLETE:
            self._close(node, Status.DAMAGED, "malformed", records.error)
        return end, DONE, 0

    def _close(self, node: Node, status: Status, code: str, error: PparseError) -> None:
        finding = Finding(
            code,
            error.reason,
            path=node.path,
            source=self.result.extraction.name,
            offset=node.start,
            wanted=error.wanted,
            got=error.got,
        )
        self.result.close_node(node, status, finding)

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return children of the root (read again), of a chunk (by their sizes), or of the metadata."""
        if node.parent is None:
            found = super().entries(node, index, first, count)
            return [self._judged(entry) for entry in found] if self.verdicts.version else found
        if node.kind in ("metadata", "descriptors"):
            return metadata_entries(node, self._metadata(node))[first : first + count]
        self._resolve_suspect(node)
        records = self.records(node)
        # Also by its known bytes: stored data after a gap can be read, compressed data cannot.
        cut = node.known_status is not Status.COMPLETE or (node.status is not Status.COMPLETE and not records.stored)
        return [self._record_entry(node, records, ordinal, cut) for ordinal in range(first, first + count)]

    def _record_entry(self, node: Node, records: ChunkRecords, ordinal: int, cut: bool) -> Entry:
        part = records.range(ordinal)
        status, finding = Status.COMPLETE, None
        if cut and node.known_status is Status.DAMAGED:
            status, finding = Status.DAMAGED, self.record_finding(node)
        elif cut:
            there = records.extent()
            if part.end > there:
                got = max(0, there - part.start)
                status, code = cut_status(got), "truncated"
                if node.known_status is Status.COMPLETE:  # a gap inside the chunk, not its end
                    status, code = Status.DAMAGED, "malformed"
                finding = Finding(
                    code,
                    "the record extends beyond its truncated chunk",
                    offset=node.start,
                    wanted=len(part),
                    got=got,
                )
        # If nothing is compressed, the record's own place in the file; else that of its chunk.
        start, end = node.start, node.end
        if records.stored and len(part) and status is Status.COMPLETE:
            chunk = self.chunk(node)
            start = self._start + chunk.layout.offset(chunk.begin, CHUNK_HEADER_SIZE + part.start)
            end = self._start + chunk.layout.offset(chunk.begin, CHUNK_HEADER_SIZE + part.end - 1) + 1
        data = self.result.extraction.data
        if status is Status.COMPLETE and data.flawed:
            reason = part.data.why_suspect(part.start, part.end)
            gap = data.next_gap(start) if records.stored and len(part) else None
            loose = data.loose_gap(node.start)
            if gap is not None and end is not None and gap.offset < end:
                reason = "some of its bytes are lost"
            elif reason is None and loose is not None and loose < start:
                reason = f"an unknown number of bytes of its chunk is lost at {loose:,}: it may not stand here"
            if reason is not None:
                status, finding = Status.DAMAGED, Finding("doubt", reason, offset=node.start)
        return Entry(None, "record", start, end, status=status, finding=finding, parts=(part,), at=start)

    def load_scalar(self, node: Node) -> Any:
        """Return a record, after checking its chunk's hash as the option ``verify`` says; or the value of a field."""
        if node.kind != "record" or node.parent is None:
            return super().load_scalar(node)
        self.result.extraction.session.limits.check("scalar_bytes", len(node.parts[0]), "the record", path=node.path)
        chunk_node = node.parent
        self._check_touched(chunk_node, node.path)
        records = self.records(chunk_node)
        record = records.read(node.ordinal)
        if self.verify != "headers" and chunk_node.known_status is Status.COMPLETE and records.total <= TOUCHED:
            records.conclude(whole=self.verdicts.is_sound(chunk_node.start - self._start))
        return record

    def open_scalar(self, node: Node) -> Range:
        """Return a reader of a record; if its chunk's hash is wrong, the record becomes DAMAGED."""
        if node.kind == "record" and node.parent is not None and node.known_status is Status.COMPLETE:
            try:
                self._check_touched(node.parent, node.path)
            except MalformedError as error:
                if node.known_status is Status.COMPLETE:  # not because of a hash: a stream that ends early, a gap
                    self._close(node, Status.DAMAGED, "malformed", error)
        return super().open_scalar(node)

    def _check_touched(self, chunk_node: Node, path: str) -> None:
        """Compare the hash of a chunk before bytes of it are returned, as the option ``verify`` says."""
        if chunk_node.known_status is Status.COMPLETE and self.verify != "headers":
            chunk = self.chunk(chunk_node)
            if self.verify == "all" or chunk.header.data_size <= TOUCHED:
                self.check_hash(chunk, path)

    def _metadata(self, node: Node) -> bytes:
        """Return the serialized metadata. Raise `InvalidArgumentError` if they are invalid."""
        from pparse.riegeli.chunks import ChunkData
        from pparse.riegeli.records import check_room
        from pparse.riegeli.transposed import decode_transposed

        holder = node.parent if node.kind == "descriptors" and node.parent is not None else node
        chunk = self.chunk(holder)
        packed = ChunkData(self._source, chunk)
        check_room(chunk, packed, self.result.extraction.session.budget)
        if holder.known_status is Status.COMPLETE and self.verify != "headers":
            problem = self._hash_problem(chunk)
            if problem is not None:
                raise InvalidArgumentError(problem.reason, offset=problem.offset)
        data = packed.read_exact(0, chunk.header.data_size)
        return decode_transposed(data, 1, chunk.header.decoded_data_size)[0]

    def expect_fields(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Add the fields of the metadata, or its descriptors."""
        node = ctx.node
        end = node.end if node.end is not None else ctx.pos
        try:
            for entry in metadata_entries(node, self._metadata(node)):
                ctx.emit(entry)
        except (InvalidArgumentError, UnimplementedError) as error:
            if node.known_status is Status.COMPLETE:
                self._close(node, Status.DAMAGED, "malformed", error)
        except EOFError:
            pass  # the chunk is truncated, which is reported already
        return end, DONE, 0

    # -- everything --------------------------------------------------------------------------------------------------

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Compare the hash of every chunk, and decode every record."""
        root = self.result.root
        yield Visit.of(root, 0)
        compared = self._compared = [0, 0]
        for kid in root.children():
            if kid.kind != "gap":
                self._inspect(kid)
                compared[0] += 1
                compared[1] += self.verdicts.is_sound(kid.start - self._start)
            yield Visit.of(kid, 1)

    def checksums(self) -> tuple[int, int, str]:
        """Return the number of chunks, for how many all hashes agree, and the word for them."""
        return self._compared[0], self._compared[1], "chunk"

    def _inspect(self, node: Node) -> None:
        """Check a whole chunk: its hash, and whether its records can be decoded."""
        self.result.extraction.session.check_cancelled()
        chunk = self.chunk(node)
        if node.known_status is Status.COMPLETE and (problem := self._hash_problem(chunk)) is not None:
            if node.known_status is Status.COMPLETE:  # not because of a hash: a gap
                self._close(node, Status.DAMAGED, "hash", problem)
            return
        if node.known_status is Status.COMPLETE:
            chunk = self.chunk(node)  # it may be on another grid now
            self._check_blocks(node, chunk)
            try:
                check_empty(chunk)
            except ChunkError as error:
                unknown = isinstance(error.error, UnimplementedError)
                self._close(node, Status.UNSUPPORTED if unknown else Status.DAMAGED, "malformed", error.error)
                return
        if chunk.header.chunk_type == METADATA and node.kind == "metadata":
            try:
                node.index_to(None)
            except LimitError as error:
                self.result.note_limit(node, error)
        if chunk.header.chunk_type not in (SIMPLE, TRANSPOSED):
            return
        try:
            node.index_to(None)
            if node.known_status is Status.COMPLETE:
                self.records(node).conclude(whole=True)
        except LimitError as error:
            self.result.note_limit(node, error)
        except UnsupportedError as error:
            self._close(node, Status.UNSUPPORTED, "unsupported", error)
        except (MalformedError, EOFError) as error:
            self._close(node, Status.DAMAGED, "malformed", error)  # type: ignore[arg-type]

    def _check_blocks(self, node: Node, chunk: Chunk) -> None:
        """Check the block headers inside a chunk whose data are sound: a damaged one stops strict readers."""
        try:
            self._chunks.verify(chunk, data=False)
        except ChunkError as error:
            self.result.findings.add(
                Finding(
                    "malformed",
                    f"{error.error.reason}; the chunk's data are sound, and no record is lost",
                    path=node.path,
                    source=self.result.extraction.name,
                    offset=self._start + (error.error.offset or chunk.begin),
                    length=BLOCK_HEADER_SIZE,
                )
            )

    def members(self) -> Iterator[Member]:
        """Yield the metadata, the records (named by position), and the gaps."""
        for kid in self.result.root.children():
            if kid.kind in RECORDS:
                yield from self._records_of(kid)
            elif kid.kind == "gap":
                begin = kid.start - self._start
                yield self._row(f"gap {begin}", kid, Status.DAMAGED)
            elif kid.key == "metadata":
                yield self._row("metadata", kid, kid.status)

    @staticmethod
    def _row(name: str, kid: Node, status: Status) -> Member:
        reason = None if kid.finding is None else kid.finding.reason
        return Member(name, kid.kind, kid.start, (kid.end or kid.start) - kid.start, status, reason=reason)

    def _records_of(self, node: Node) -> Iterator[Member]:
        begin, seen = node.start - self._start, 0
        reason = None if node.finding is None else node.finding.reason
        try:
            for ordinal, entry in self.result.entries_from(node, 0):
                seen += 1
                size = entry.parts[0].end - entry.parts[0].start if entry.parts else 0
                status = entry.status or Status.COMPLETE
                why = entry.finding.reason if entry.finding is not None else reason
                yield Member(f"{begin}/{ordinal}", "record", node.start, size, status, reason=why)
        except LimitError as error:
            self.result.note_limit(node, error)
        if not seen and node.known_status is not Status.COMPLETE:
            yield self._row(f"chunk {begin}", node, node.known_status or Status.DAMAGED)

    def find_member(self, name: str) -> Node | None:
        """Return the record at the position ``name`` (``64/3``), or the chunk or gap that `members` names so.

        Raise `PathError` if nothing is at that position, `MalformedError` or `EndOfDataError` if it is lost.
        """
        kind, _, number = name.rpartition(" ")
        if kind in ("gap", "chunk", "") and number.isdecimal() and len(number) < 20:
            name = number if self.result.root.find(int(number)) is None else ""
            if not name:
                return self.result.root.find(int(number))
            name += "/0"
        try:
            pos = RecordPosition.from_str(name)
        except ValueError:
            return None
        chunk = self.result.root.find(pos.chunk_begin)
        if chunk is None:
            begins = [kid.start - self._start for kid in self.result.root.children() if kid.kind in RECORDS]
            near = sorted(sorted(begins, key=lambda begin: abs(begin - pos.chunk_begin))[:2])
            raise PathError(
                f"no chunk begins at {pos.chunk_begin}", path=name, suggestions=tuple(f"{begin}/0" for begin in near)
            )
        count = chunk.index_to(None).count if chunk.shape == LIST else 0
        if pos.record_index < count:
            return chunk.child(pos.record_index)
        chunk._refuse_if_not_whole()
        raise PathError(f"the chunk at {pos.chunk_begin} ({chunk.kind}) has {count_words(count, 'record')}", path=name)

    def missing(self) -> int | None:
        """Return how many bytes are missing of the last chunk, or of its header if that is truncated."""
        finding = self.result.root.finding
        if finding is None or finding.code != "truncated" or not isinstance(finding.wanted, int):
            return None
        return finding.wanted - int(finding.got or 0)

    def metadata(self) -> dict[str, object]:
        """Return the fields of the file's metadata, with the names of descriptor files."""
        node = self.result.root.find("metadata")
        if node is None or node.kind != "metadata":
            return {}
        return {
            str(field.key): list(field.keys()) if field.kind == "descriptors" else _plain(field.load())
            for field in node.children()
        }

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`: chunks, records, their bytes, and the metadata."""
        kinds: dict[str, int] = {}
        records = decoded = 0
        for kid in self.result.root.children():
            kinds[kid.kind] = kinds.get(kid.kind, 0) + 1
            if kid.kind in RECORDS and kid.status is Status.COMPLETE:
                header = self.chunk(kid).header
                records += header.num_records
                decoded += header.decoded_data_size
        yield "chunks", ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) or "none"
        yield "records", f"{records:,}, {decoded:,} bytes decoded (by the headers of whole chunks)"
        for name, value in self.metadata().items():
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield "metadata", f"{name} = {text[:200]}{'…' if len(text) > 200 else ''}"


def _has_headers(reader: Range) -> bool:
    """Say whether a file without its beginning has sound headers: of a chunk or block near its start, or of a block on
    the grid further in."""
    head = reader.peek(BLOCK_SIZE + len(FILE_SIGNATURE))
    if next(block_headers(head), None) is not None or next(chunk_headers(head, MAX_POSITION), None) is not None:
        return True
    data, start = reader.data, reader.start
    for number in range(2, _BLOCKS_TRIED if len(head) > BLOCK_SIZE else 0):
        try:
            if block_is_sound(data.pread(start + number * BLOCK_SIZE, BLOCK_HEADER_SIZE)):
                return True
        except GapError:
            continue
    return False


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value
