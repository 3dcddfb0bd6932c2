"""Chunked protos (``.cpb``): a message cut into the records of a Riegeli file, merged field by field on demand.

The states are those of a message (`pparse.parsers.protobuf.parser`). The difference is the origin of messages: the last
record, the ``ChunkMetadata``, says which chunks belong to which path, and they are laid over the message as overlay
entries (`pparse.parsers.cpb.overlay`). Opening reads only the last record; a field costs the parts of its message.

If the metadata are lost, or the file is truncated before them, the root is the list of all records found, each with the
type that its shape suggests.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter

from pparse.data.base import Range
from pparse.data.range_status import cut_status
from pparse.errors import PASSING, DataError, EndOfDataError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Status
from pparse.parsers.cpb.metadata import TYPE_NAMES, ChunkMetadata, RecordPositions, check_belongs, chunks_moved
from pparse.parsers.cpb.overlay import ChunkOpener, Scope, misplaced
from pparse.parsers.protobuf.check import fits
from pparse.parsers.protobuf.index import Lost, Origin, OverlayField
from pparse.parsers.protobuf.parser import ProtobufParser
from pparse.protos import schema as builtin_schema
from pparse.riegeli.chunks import FILE_SIGNATURE
from pparse.riegeli.lookup import RecordLookup
from pparse.riegeli.verdicts import Verdicts, verify_of
from pparse.tree.entry import SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.parser import Confidence, Signature, bare_name, confidence_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, ClassVar, Final

    from pparse.parsers.protobuf.index import Piece
    from pparse.protobuf.schema import MessageType
    from pparse.riegeli.chunks import Chunk
    from pparse.riegeli.records import SkippedRegion
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

CHUNKS: Final = "chunk[]"
# Names of plain Riegeli files, whatever their last record is.
RECORDS: Final = ".riegeli"
# Possible types of a `.cpb`, tried in this order if none is given.
_TRIED: Final = ("tensorflow.SavedModel", "tensorflow.GraphDef")
# Possible types of a single chunk.
_CHUNK_TYPES: Final = (
    "tensorflow.SavedModel",
    "tensorflow.GraphDef",
    "tensorflow.NodeDef",
    "tensorflow.FunctionDef",
    "tensorflow.FunctionDefLibrary",
    "tensorflow.TensorProto",
)
# Zeros at the beginning that mean that it is lost.
_BLANK: Final = 64
_SHAPE_BYTES: Final = 64 << 10
# A range with this end extends to the unknown end of a stream.
_ENDLESS: Final = 1 << 62
# In a stream of any name that is no larger, the end is searched for the metadata of a `.cpb`.
_SMALL_STREAM: Final = 256 << 10
# The most ranges that a check reports.
_SKIPPED: Final = 10_000
# How many findings on chunks are kept for reuse.
_DOUBTS: Final = 1_000
# The most chunks compared with the metadata of a damaged file before these are accepted.
_PROVED: Final = 100_000
# Metadata of at most this many bytes are checked as a whole on opening (some milliseconds).
_PROVED_AT_ONCE: Final = 64 << 10


class CpbParser(ProtobufParser):
    """A protocol buffer message in chunks, as TensorFlow's proto_splitter writes them."""

    name = "cpb"
    description = "protocol buffer message in chunks (TensorFlow proto_splitter)"
    extensions: ClassVar[tuple[str, ...]] = (".cpb",)
    signatures: ClassVar[tuple[Signature, ...]] = (Signature(FILE_SIGNATURE[:8]),)
    viewer = "pparse.viewers.tensorflow.viewer:TensorflowViewer"
    is_generic = False
    named_is_enough = False
    media_type = "application/x-chunked-protobuf"
    refines: ClassVar[tuple[str, ...]] = ("riegeli", "protobuf")
    root_at = "back"
    checked_word = "chunk"
    references: ClassVar[tuple[str, ...]] = (
        "https://www.tensorflow.org/guide/chunked_proto (tensorflow/tools/proto_splitter)",
        "google/riegeli: doc/riegeli_records_file_format.md",
    )
    limitations = (
        "the file does not name its message type: a SavedModel or GraphDef is recognised, else use -O message=NAME",
    )
    options: ClassVar[dict[str, str]] = {
        **ProtobufParser.options,
        "verify": "which hashes of data are checked: headers (none), touched (chunks up to 4 MiB; the default), all",
        "versions": "any: also read files that require a newer merger",
    }

    def __init__(self, result: Result) -> None:
        self.result = result
        self.verdicts = Verdicts()
        self._suspect_ranges: dict[str, Finding] = {}
        self._known: dict[int, Chunk] = {}  # chunks of a file in which bytes moved
        self.last_found: int | None = None  # position of its last record
        self.lookup = self._new_lookup(verify_of(result.extraction.session.options))
        self._unchecked = self.lookup
        self.chunks: ChunkOpener | None = None
        self.problem: PparseError | None = None
        self.damaged_end: PparseError | None = None
        self._unsound: MalformedError | None = None
        self._proved = False
        self._misplaced: str | None = None  # "" if nothing is misplaced
        self._read_metadata()
        super().__init__(result)
        self.make.witness = self.chunks.metadata.record if self.chunks is not None else None
        self.verdicts.listeners.append(self._tell_living)

    def _new_lookup(self, verify: str) -> RecordLookup:
        env = self.result.extraction.session.env
        lookup = RecordLookup(self.source(), env, verify=verify, verdicts=self.verdicts)
        lookup.known = self._known
        return lookup

    def source(self) -> Range:
        """Return the bytes of the Riegeli file."""
        extraction = self.result.extraction
        return extraction.data.range(extraction.start, max(extraction.start, extraction.find_end()))

    def _read_metadata(self) -> None:
        try:
            metadata = self._metadata_at(self.lookup.last())
            if len(metadata.record) <= _PROVED_AT_ONCE:
                self._check_belongs(metadata)
        except (PparseError, EOFError) as error:
            if isinstance(error, (*PASSING, LimitError, UnsupportedError)):
                raise
            problem = error if isinstance(error, PparseError) else MalformedError(str(error))
            # The chunks are listed anyway, and marked if a hash is wrong.
            self._unchecked = self._new_lookup("headers")
            found = self._metadata_before_damage()
            if found is None and not isinstance(error, EndOfDataError):  # a truncated file has lost them
                found = self._metadata_of_moved()
            if found is None:
                self.problem = problem
                return
            metadata, self.damaged_end = found, problem
        self.chunks = ChunkOpener(metadata, self.lookup, self.result.extraction.session.budget)
        if len(metadata.record) <= _PROVED_AT_ONCE:
            self.verify_metadata()

    def verify_metadata(self) -> MalformedError | None:
        """Check the metadata down to their leaves, once; return what is wrong with them."""
        if self.chunks is not None and not self._proved:
            try:
                self.chunks.metadata.verify(self.result.extraction.session.check_cancelled)
                if self.chunks.metadata.moved is None:
                    self._check_belongs(self.chunks.metadata)
            except MalformedError as error:
                self._unsound = error
            self._proved = True
        return self._unsound

    def misplaced(self) -> str | None:
        """Return what is wrong with the places of chunks in the metadata; None if each has a place."""
        if self._misplaced is None and self.chunks is not None:
            self._misplaced = misplaced(self.result.root, self.result.extraction.session.check_cancelled) or ""
        return self._misplaced or None

    def _metadata_at(self, position: int | None) -> ChunkMetadata:
        session = self.result.extraction.session
        if position is None:
            raise MalformedError("there are no records")
        self.metadata_position = position
        record = self.lookup.record(position)
        most = session.limits.header_bytes
        if len(record) > most and not record.data.available(record.start, most + 1):
            raise MalformedError("the last record is shorter than its chunk says", wanted=len(record))
        session.limits.check("header_bytes", len(record), "the chunk metadata", offset=record.start)
        return ChunkMetadata(record, session.budget, any_version=session.options.get("versions") == "any")

    def _metadata_before_damage(self) -> ChunkMetadata | None:
        """Return the metadata of a file that is damaged, or has bytes after them; None if they are not confirmed.

        The last record that can be found is accepted as the metadata only if every chunk matches it.
        """
        try:
            metadata = self._metadata_at(self.lookup.last_found())
            if not metadata.chunk_count or (metadata.root.chunk_index is None and not metadata.root.count):
                return None
            for info, _ in zip(metadata.chunks(), range(_PROVED), strict=False):
                if info.position >= self.metadata_position or len(self._unchecked.record(info.position)) != info.size:
                    return None
        except (DataError, EOFError):
            return None
        return metadata

    def _check_belongs(self, metadata: ChunkMetadata) -> None:
        check_belongs(
            lambda: (info.position for info in metadata.chunks()), self.metadata_position, self._count_records
        )

    def _count_records(self) -> int:
        """Return the number of records before the metadata."""
        every = self._new_lookup("headers").positions(lambda _region: None)
        return sum(position < self.metadata_position for position in every)

    def _metadata_of_moved(self) -> ChunkMetadata | None:
        """Return the metadata of a file with lost or moved chunks, if it is proved which ones are left."""
        lost: list[tuple[int, int]] = []
        try:
            records = self._unchecked.learn(lambda region: lost.append((region.begin, region.end)), _PROVED)
            if not records:
                return None
            self.last_found, _ = records.pop()
            metadata = self._metadata_at(self.last_found)
            before = [stretch for stretch in lost if stretch[0] < self.metadata_position]
            metadata.moved = chunks_moved(metadata.chunks(), records, before)
        except (DataError, EOFError):
            return None
        return metadata if metadata.moved is not None else None

    def _note_damage_of_metadata(self) -> None:
        if self._unsound is not None and self.chunks is not None:
            at = self._unsound.offset or 0
            offset, _ = self.make.place(self.chunks.metadata.record.data, at, at)
            self.note("malformed", f"{self._unsound.reason}; the readable part of them is used", offset)
        if self.damaged_end is not None:
            reason = (
                f"the file is damaged, or has foreign bytes at its end: {self.damaged_end.reason}; "
                "the chunk metadata could still be read"
            )
            self.note("malformed", reason, self.damaged_end.offset)

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN for a Riegeli file named ``.cpb``."""
        is_riegeli = excerpt.head(len(FILE_SIGNATURE)) == FILE_SIGNATURE
        return Confidence.CERTAIN if is_riegeli and excerpt.ends_with(cls.extensions) else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """CERTAIN for a Riegeli file whose last record is chunk metadata; LIKELY for a damaged one named ``.cpb``."""
        if excerpt.ends_with(RECORDS):
            return Confidence.NO
        if excerpt.head(len(FILE_SIGNATURE)) == FILE_SIGNATURE:
            return Confidence.CERTAIN if _ends_with_metadata(reader) else Confidence.NO
        if not excerpt.ends_with(cls.extensions):
            return Confidence.NO
        from pparse.parsers.riegeli import RiegeliParser

        # In a file whose beginning is damaged, the rest looks like Riegeli, and the name decides. If it begins with
        # zeros, its beginning was lost or never written: no file of any kind has that name and begins like that.
        if confidence_of(RiegeliParser, excerpt, reader):
            return Confidence.LIKELY
        return Confidence.EXTENSION if excerpt.head(_BLANK) == bytes(_BLANK) else Confidence.NO

    # -- the root ----------------------------------------------------------------------------------------------------

    def _find_root_type(self) -> MessageType | None:
        found = super()._find_root_type()
        if found is not None or self.chunks is None or "descriptor" in self.result.extraction.session.options:
            return found
        names: tuple[str, ...] = _TRIED
        if bare_name(self.result.extraction.name).endswith("saved_model.cpb"):
            names = _TRIED[:1]
        root = self.chunks.metadata.root
        first = self.chunks.piece(root.chunk_index) if root.chunk_index is not None else None
        if isinstance(first, Range):
            return self.type_by_shape(first, names)
        return builtin_schema().message(names[0]) if len(names) == 1 else None

    def type_by_shape(self, part: Range, names: Sequence[str]) -> MessageType | None:
        """Return the first of these types that the fields of a message match; None if none does."""
        head = part.data.pread(part.start, min(len(part), _SHAPE_BYTES))
        for name in names:
            type = builtin_schema().message(name)
            if fits(head, type, complete=len(head) == len(part)):
                return type
        return None

    def root_entry(self) -> Entry:
        """Describe the root: the merged message; or the list of chunks, if the metadata are lost."""
        entry = super().root_entry()
        self._note_damage_of_metadata()
        if self.chunks is None:
            entry.kind = CHUNKS
            entry.note = Origin(None)
        return self._judged(entry)

    def root_pieces(self) -> Sequence[Piece]:
        """Return the pieces of the root, according to the metadata."""
        return Scope(self.chunks, self.chunks.metadata.root).pieces() if self.chunks is not None else ()

    # -- chunks without metadata -------------------------------------------------------------------------------------

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the chunks, if the metadata are lost."""
        if node.parent is not None or node.kind != CHUNKS:
            return super().fill(node, index)
        lost: list[SkippedRegion] = []
        positions = array("q", self._unchecked.positions(lost.append))
        index.keep(RecordPositions(positions), len(positions))
        problem = self.problem or MalformedError("they are missing")
        cut = isinstance(problem, EndOfDataError)
        reason = f"cannot read the chunk metadata (the last record): {problem.reason}"
        if positions:
            places = "place of 1 chunk is" if len(positions) == 1 else f"places of {len(positions):,} chunks are"
            reason = f"{reason}; the {places} unknown"
        status, offset = cut_status(damaged=not cut), self.source().end if cut else problem.offset
        self.result.close_node(node, status, self.make.finding(status.code, reason, offset))
        return True

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries of chunks, or of the merged message."""
        if isinstance(index.note, RecordPositions):
            found = [self._chunk_entry(position) for position in index.note.positions[first : first + count]]
        else:
            found = super().entries(node, index, first, count)
        return found if not self.verdicts.version else [self._judged(entry) for entry in found]

    # -- what a failed hash covers -----------------------------------------------------------------------------------

    def _judged(self, entry: Entry) -> Entry:
        """Return an entry; DAMAGED, and not loadable, if it is made of a chunk with a wrong hash."""
        if entry.status is None or entry.status is Status.COMPLETE or entry.status is Status.TRUNCATED:
            reason = self.make.why_suspect(_made_of(entry.parts, entry.note))
            if reason is not None:
                entry.status, entry.finding = Status.DAMAGED, self._suspect_finding(reason, entry.start)
                entry.value = UNLOADED_VALUE
        return entry

    def _suspect_finding(self, reason: str, offset: int) -> Finding:
        """Return the finding on a chunk, shared by everything made of it."""
        found = self._suspect_ranges.get(reason)
        if found is None:
            if len(self._suspect_ranges) >= _DOUBTS:
                self._suspect_ranges.clear()
            found = self.make.finding("hash", reason, offset)
            self._suspect_ranges[reason] = found
        return found

    def _tell_living(self, _begin: int) -> None:
        """Update existing nodes made of a chunk that was found wrong."""
        stack = [self.result._root] if self.result._root is not None else []
        while stack:
            node = stack.pop()
            stack += node.living()
            if node.index is not None and node.index.group is not None:
                for entry in node.index.group[1]:  # nodes may be about to be made of them
                    self._judged(entry)
            if node.known_status is Status.DAMAGED or node.known_status is Status.UNSUPPORTED:
                continue
            reason = self.make.why_suspect(_made_of(node._extra[1] if node._extra is not None else None, node.note))
            if reason is not None:
                self.result.close_node(node, Status.DAMAGED, self._suspect_finding(reason, node.start))
                if node.shape == SCALAR:
                    node.unload()

    def _chunk_entry(self, position: int) -> Entry:
        """Return the entry of one chunk; DAMAGED if the hash of its data, or the data, are wrong."""
        status, finding = None, None
        try:
            record = self._unchecked.record(position)
            kind = self.type_by_shape(record, _CHUNK_TYPES)
        except DataError as error:
            return self.make.bad(None, error, position)
        problem = self._problem_of(self.lookup, position)
        if problem is not None and not self._unchecked.is_cut(position):  # a truncated chunk has no hash to compare
            status, finding = Status.DAMAGED, self.make.finding("hash", problem.reason, problem.offset)
        there = self._unchecked.there(position)
        if there < len(record):
            status = Status.TRUNCATED
            finding = self.make.finding(
                "truncated", "the chunk ends early", self.source().end, wanted=len(record), got=there
            )
        if kind is not None:
            return self.make.merged(None, Origin(None, kind, pieces=(record,)), status, finding)
        start, end = self.make.place(record.data, record.start, record.end)
        return Entry(
            None, "bytes", start, end, UNLOADED_VALUE, status or Status.COMPLETE, finding, (record,), note=Origin(None)
        )

    def missing(self) -> int | None:
        """Return how many bytes are missing at least, if the Riegeli file is truncated inside a chunk."""
        if isinstance(self.problem, EndOfDataError):
            return self.lookup.missing() or None
        return super().missing()

    # -- what the commands show --------------------------------------------------------------------------------------

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the versions and chunks."""
        if self.chunks is None:
            yield "metadata", "lost"
            yield "chunks", f"{len(self.result.root):,} found"
            return
        metadata = self.chunks.metadata
        yield from super().details()
        count = metadata.chunk_count
        by_type: Counter[str] = Counter()
        total = 0
        for info in metadata.chunks():
            by_type[TYPE_NAMES.get(info.type, str(info.type))] += 1
            total += info.size
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in by_type.items())
        yield "chunks", f"{count:,} ({kinds}), {total:,} bytes" if count else "none"
        yield "chunked fields", f"{metadata.root.count:,}"
        yield "versions", f"splitter {metadata.splitter_version}, needs merger {metadata.join_version} or later"

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Compare every hash, check every block header, compare each chunk with the metadata; then parse everything.

        So a check finds what a recovery finds.
        """
        self.verify_metadata()
        self._note_damage_of_metadata()
        every = self._new_lookup("all")
        skipped: list[SkippedRegion] = []
        every.survey(lambda region: skipped.append(region) if len(skipped) < _SKIPPED else None, self._note_limit)
        told = array("Q", sorted(self._check_chunks(every)))
        source = self.source()
        for region in skipped:
            at = bisect_left(told, region.begin)
            if at < len(told) and told[at] < region.end:
                continue  # reported by the chunk in it
            length = region.end - region.begin
            self.note("malformed", region.message, source.start + region.begin, length=length)
        yield from super().check(strict=strict)

    def _note_limit(self, error: LimitError) -> None:
        offset = self.source().start + error.offset if error.offset is not None else None
        self.note("limit", error.reason, offset, wanted=error.wanted)

    def _check_chunks(self, lookup: RecordLookup) -> Iterator[int]:
        """Open every chunk with its hash checked; yield the positions of those that are wrong and report it."""
        check_cancelled = self.result.extraction.session.check_cancelled
        compared = self._compared = [0, 0]
        if self.chunks is None:
            found = self.result.root.index_to(None).note
            for position in found.positions if isinstance(found, RecordPositions) else ():
                check_cancelled()
                wrong = self._problem_of(lookup, position) is not None
                compared[:] = compared[0] + 1, compared[1] + (not wrong)
                if wrong:
                    yield position
            return
        metadata = self.chunks.metadata
        every = ChunkOpener(metadata, lookup, self.chunks.budget)
        problem = self._problem_of(lookup, self.metadata_position)
        if problem is not None:
            self.note("hash", f"the chunk metadata may be wrong: {problem.reason}", self.result.root.start)
            yield self.metadata_position
        for index, info in enumerate(metadata.chunks()):
            check_cancelled()
            piece = every.piece(index)
            compared[:] = compared[0] + 1, compared[1] + (not isinstance(piece, Lost))
            if isinstance(piece, Lost):
                code = "limit" if isinstance(piece.error, LimitError) else "malformed"
                self.note(code, piece.reason, self.result.root.start)
                yield info.position

    @staticmethod
    def _problem_of(lookup: RecordLookup, position: int) -> PparseError | None:
        try:
            lookup.record(position)
        except DataError as error:
            return error
        return None


def _made_of(parts: tuple[Range, ...] | None, note: Any) -> Iterator[Range]:
    """Yield the ranges of chunks that a node is made of."""
    yield from parts or ()
    if isinstance(note, Origin):
        for piece in note.pieces:
            if isinstance(piece, Range):
                yield piece
        for item in note.contributions:
            if not isinstance(item, OverlayField):
                yield item[0].part


def _ends_with_metadata(reader: Range) -> bool:
    from pparse.compressed.env import DecodeEnv
    from pparse.limits import MemoryBudget

    if reader.data.size is None:  # a small stream is decoded to its end
        reader.data.available(reader.start + _SMALL_STREAM, 1)
    end, size = reader.end, reader.data.size
    if end is None or (size is None and end >= _ENDLESS):
        return False
    end = end if size is None else min(end, size)
    budget = MemoryBudget("16MiB")
    lookup = RecordLookup(reader.data.range(reader.start, end), DecodeEnv(budget), verify="headers")
    try:
        position = lookup.last()
        if position is None:
            return False
        metadata = ChunkMetadata(lookup.record(position), budget, any_version=True)
    except (DataError, EOFError):
        return False
    return metadata.chunk_count > 0
