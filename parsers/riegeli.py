"""Riegeli/records files: chunks, and the records in them. array_record files are Riegeli files, too.

How a chunk is found, in order or by a position, `pparse.riegeli.chunks` tells.

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

from collections import Counter
from itertools import islice

from pparse.data.range_status import cut_status
from pparse.data.zero_runs import unwritten
from pparse.errors import DataError, LimitError, MalformedError, PathError, PparseError, UnsupportedError, spoken
from pparse.findings import Finding, Severity, Status
from pparse.kernels.riegeli import block_headers, chunk_headers
from pparse.limits import are, count_words
from pparse.paths import KeyStep, OrdinalStep, format_path
from pparse.riegeli.chunks import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    CHUNK_HEADER_SIZE,
    FILE_SIGNATURE,
    MAX_POSITION,
    METADATA,
    NOTHING_LOST,
    Chunk,
    ChunkData,
    ChunkError,
    ChunkReader,
    block_is_sound,
    check_empty,
    header_size,
    parse_header,
)
from pparse.riegeli.errors import HashMismatchError, InvalidArgumentError, UnimplementedError
from pparse.riegeli.metadata import fields
from pparse.riegeli.records import RecordPosition, check_room, open_records
from pparse.riegeli.salvage import resume
from pparse.riegeli.source import Source
from pparse.riegeli.verdicts import TOUCHED, Verdicts, verify_of
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.parser import Confidence, Listing, Parser, Signature
from pparse.tree.visit import Member, Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.data.base import Range
    from pparse.riegeli.records import ChunkRecords
    from pparse.riegeli.salvage import SalvageOutcome
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

# Fields of the metadata.
_NAMES: Final = {1: "file_comment", 2: "record_type_name", 4: "record_writer_options", 5: "num_records"}
_DESCRIPTORS: Final = 3
# More than any real file has; each needs an entry in memory.
_MAX_FIELDS: Final = 1 << 16
RECORDS: Final = ("simple", "transposed")  # kinds of chunks that hold records
# The most blocks of a file without its beginning that are read before giving up.
_BLOCKS_TRIED: Final = 64


class RiegeliParser(Parser, Listing):
    """A Riegeli/records file.

    A chunk header is believed when its hash agrees; a damaged chunk that proves whole all the same is no gap. A hash
    covers a whole chunk: once it is found wrong, in whatever way, the chunk's node and all its records are DAMAGED,
    those listed later, and existing ones.
    """

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
    checked_word = "chunk"

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        extraction = result.extraction
        self.verify = verify_of(extraction.session.options)
        self._start = extraction.start
        self._source = Source(extraction.data.range(extraction.start, extraction.find_end()))
        self._chunks = ChunkReader(self._source)
        self._opened: tuple[int, ChunkRecords] | None = None
        self._shown: Chunk | None = None  # the chunk added last
        self._resolved = -1  # the last chunk whose hash was compared because the file around it is suspect
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

    def expect_chunk(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Add the next chunk."""
        begin = ctx.pos - self._start
        raw = block[ctx.pos - base : ctx.pos - base + 64]
        if ctx.is_at_end:
            if not begin and ctx.collected is None:
                reason = "the file is empty: Riegeli without records, or a download that never began"
                self.result.findings.add(self.finding_at("empty", reason, "", ctx.pos, severity=Severity.WARNING))
            return ctx.pos, DONE, 0
        layout = self._chunks.layout_at(begin)
        try:
            need = header_size(begin, layout)
            chunk = parse_header(raw[:need], begin, layout)
        except ChunkError as error:
            return self._go_on(ctx, error)
        if chunk is None:
            # The file ends inside a header, perhaps because bytes of the previous chunk were lost.
            back = self._go_back(ctx, begin, *self._behind_the_last(begin)) if ctx.at_end else None
            return back or (ctx.pos, self.expect_chunk, need)
        return self._show(ctx, chunk)

    def _show(self, ctx: NodeContext, chunk: Chunk, problem: Finding | None = None) -> tuple[int, Any, int]:
        """Add a chunk; go to its end, or stop if the file ends inside it."""
        size = self._source.size()
        self._shown = chunk
        end = self._start + chunk.end
        key: str | int = "metadata" if chunk.begin == 64 and chunk.header.chunk_type == METADATA else chunk.begin
        status = Status.COMPLETE
        if chunk.end > size:
            problem = self._cut_finding(chunk, size, format_path([KeyStep(key)]))
            status = Status.TRUNCATED if chunk.data_end > size else Status.COMPLETE
            if ctx.collected is None:
                self.result.close_node(ctx.node, Status.TRUNCATED, problem)
        ctx.emit(Entry(key, chunk.header.type_name, self._start + chunk.begin, end, status=status, finding=problem))
        return (end, self.expect_chunk, 0) if chunk.end <= size else (self._start + size, DONE, 0)

    def _cut_finding(self, chunk: Chunk, size: int, path: str) -> Finding:
        if chunk.data_end <= size:
            lost = "only padding is missing, no record"
        else:
            lost = f"{count_words(chunk.end - size, 'byte')} of it {are(chunk.end - size)} missing"
        reason, wanted = f"the file ends inside the chunk at {chunk.begin}: {lost}", chunk.end - chunk.begin
        return self.finding_at("truncated", reason, path, self._start + size, wanted=wanted, got=size - chunk.begin)

    def _go_on(self, ctx: NodeContext, error: ChunkError) -> tuple[int, Any, int]:
        """Skip damage, which becomes a gap; a damaged chunk that proves whole nevertheless is added."""
        begin, size = error.begin, self._source.size()
        outcome, damage = self._behind_the_last(begin)
        back = self._go_back(ctx, begin, outcome, damage)
        if back is not None:
            return back
        if outcome is None or outcome.healed is not None or outcome.pos <= begin:
            outcome = resume(self._chunks, error)
        if outcome.healed is not None and not self._decodes(outcome.healed):
            outcome = resume(self._chunks, error, heal=False)
        healed = outcome.healed
        offset = self._start + (error.error.offset if error.error.offset is not None else begin)
        end = max(begin + 1, min(outcome.pos, size))
        reason = error.error.reason + (NOTHING_LOST if healed is not None else "") + self._unwritten(begin, end)
        length = end - begin if healed is None else None
        problem = self.finding_at("malformed", reason, f"[{begin}]", offset, length=length)
        if ctx.collected is None:
            self.result.close_node(ctx.node, Status.DAMAGED, problem)
        if outcome.layout is not None:
            self._chunks.add_grid(begin if healed is not None else outcome.pos, outcome.layout)
        if healed is not None:
            return self._show(ctx, healed, problem)
        ctx.emit(Entry(begin, "gap", self._start + begin, self._start + end, status=Status.DAMAGED, finding=problem))
        return self._start + end, self.expect_chunk, 0

    def _behind_the_last(self, begin: int) -> tuple[SalvageOutcome | None, ChunkError | None]:
        """Return what is wrong with the chunk added last, if it ends at ``begin``, and where to continue after it.

        If no chunk begins at its end, it may be shorter, or longer, than its header says.
        """
        before = self._shown
        damage = self._chunks.damage_of(before) if before is not None and before.end == begin else None
        return (None, None) if damage is None else (resume(self._chunks, damage), damage)

    def _go_back(
        self, ctx: NodeContext, end: int, outcome: SalvageOutcome | None, damage: ChunkError | None
    ) -> tuple[int, Any, int] | None:
        """Continue inside the bytes that the last chunk claims, up to ``end``, if some of its own were lost."""
        if outcome is None or damage is None or not damage.begin < outcome.pos < end:
            return None
        self._shown = None
        if outcome.layout is not None:
            self._chunks.add_grid(outcome.pos, outcome.layout)
        if ctx.collected is None:
            begin, reason = damage.begin, damage.error.reason
            length = outcome.pos - begin
            problem = self.finding_at("malformed", reason, f"[{begin}]", self._start + begin, length=length)
            self.result.close_node(ctx.node, Status.DAMAGED, problem)
        ctx.jump_back()
        return self._start + outcome.pos, self.expect_chunk, 0

    def _decodes(self, chunk: Chunk) -> bool:
        """Say whether a chunk decodes as its header says, which may be wrong."""
        try:
            records = self._open(chunk)
            return records is None or (records.error is None and records.count == chunk.header.num_records)
        except (DataError, EOFError):
            return False

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, Any, int] | None:
        """Continue after a gap in the data."""
        if ctx.node.parent is not None:
            return None
        begin = ctx.pos - self._start
        beyond = error.offset if error.offset is not None else ctx.pos
        resume_at = self._source.gap_end(beyond - self._start)
        if resume_at is None or begin >= self._source.size():  # a gap up to the end: nothing follows
            return None
        return self._go_on(ctx, ChunkError(InvalidArgumentError(error.reason, offset=begin), begin, resume_at))

    def cut(self, ctx: NodeContext) -> None:
        """Handle a file that ends inside a chunk's header."""
        begin, size = ctx.pos - self._start, self._source.size()
        reason, end = f"the file ends inside the header of the chunk at {begin}", self._start + size
        finding = self.finding_at("truncated", reason, ctx.node.path, end, wanted=ctx.need, got=size - begin)
        self.result.close_node(ctx.node, Status.TRUNCATED, finding, end=end)

    # -- one chunk ---------------------------------------------------------------------------------------------------

    def chunk(self, node: Node) -> Chunk:
        """Return the chunk of ``node``, a child of the root."""
        begin = node.start - self._start
        found = self._chunks.read_header(begin, self._chunks.layout_at(begin))
        if found is None:
            raise MalformedError("no chunk begins here", offset=node.start, source=self.result.extraction.name)
        return found[0]

    def records(self, node: Node) -> ChunkRecords:
        """Return the records of the chunk of ``node``. Raise `MalformedError`, `LimitError`."""
        if self._opened is not None and self._opened[0] == node.start:
            return self._opened[1]
        chunk = self.chunk(node)
        records = self._open(chunk)
        if records is None:
            raise MalformedError(f"a chunk of {chunk.header.type_name} holds no records", offset=node.start)
        self._opened = (node.start, records)
        return records

    def _open(self, chunk: Chunk) -> ChunkRecords | None:
        return open_records(self._source, chunk, self.result.extraction.session.env, self.verdicts)

    def expect_records(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Add the records of a chunk."""
        node = ctx.node
        end = node.end if node.end is not None else ctx.pos
        try:
            records = self.records(node)
        except UnimplementedError as error:
            self._close(node, Status.UNSUPPORTED, "unsupported", error)
        except InvalidArgumentError as error:
            self._condemn(node, "malformed", error)  # else it is truncated, which is reported already
        except EOFError:
            pass  # nothing of a truncated transposed chunk can be decoded
        else:
            for ordinal in range(records.count):
                ctx.emit(Entry(None, "record", node.start, end, at=node.start + ordinal))
            if records.error is not None:
                self._condemn(node, "malformed", records.error)
        return end, DONE, 0

    def _close(self, node: Node, status: Status, code: str, error: PparseError) -> None:
        finding = self.finding_at(code, error.reason, node.path, node.start, wanted=error.wanted, got=error.got)
        self.result.close_node(node, status, finding)

    def _condemn(self, node: Node, code: str, error: PparseError) -> None:
        """Make a node DAMAGED that was taken for whole."""
        if _is_whole(node):
            self._close(node, Status.DAMAGED, code, error)

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return children of the root (read again), of a chunk (by their sizes), or of the metadata."""
        if node.parent is None:
            found = super().entries(node, index, first, count)
            return [self._judged(entry) for entry in found] if self.verdicts.version else found
        if node.kind in ("metadata", "descriptors"):
            return _metadata_entries(node, self._metadata(node))[first : first + count]
        self._resolve_suspect(node)
        records = self.records(node)
        # Also by its known bytes: stored data after a gap can be read, compressed data cannot.
        cut = not _is_whole(node) or (not node.is_complete and not records.stored)
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
                if _is_whole(node):  # a gap inside the chunk, not its end
                    status, code = Status.DAMAGED, "malformed"
                beyond = "the record extends beyond its truncated chunk"
                finding = Finding(code, beyond, offset=node.start, wanted=len(part), got=got)
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
        if self.verify != "headers" and _is_whole(chunk_node) and records.total <= TOUCHED:
            records.conclude(whole=self.verdicts.is_sound(chunk_node.start - self._start))
        return record

    def open_scalar(self, node: Node) -> Range:
        """Return a reader of a record; if its chunk's hash is wrong, the record becomes DAMAGED."""
        if node.kind == "record" and node.parent is not None and _is_whole(node):
            try:
                self._check_touched(node.parent, node.path)
            except MalformedError as error:
                self._condemn(node, "malformed", error)  # if not because of a hash: a stream that ends early, a gap
        return super().open_scalar(node)

    def _check_touched(self, chunk_node: Node, path: str) -> None:
        """Compare the hash of a chunk before bytes of it are returned, as the option ``verify`` says.

        Raise `MalformedError` if it differs. If the chunk has a gap, or the file ends in it, nothing is compared: its
        known bytes are read, unverified.
        """
        if not _is_whole(chunk_node) or self.verify == "headers":
            return
        chunk = self.chunk(chunk_node)
        if (self.verify != "all" and chunk.header.data_size > TOUCHED) or self.verdicts.is_sound(chunk.begin):
            return
        problem = self._hash_problem(chunk)
        if isinstance(problem, HashMismatchError):
            reason, source = problem.reason + _anyway(), self.result.extraction.name
            raise MalformedError(reason, offset=problem.offset, path=path, source=source)

    def _metadata(self, node: Node) -> bytes:
        """Return the serialized metadata. Raise `InvalidArgumentError` if they are invalid."""
        from pparse.riegeli.transposed import decode_transposed

        holder = node.parent if node.kind == "descriptors" and node.parent is not None else node
        chunk = self.chunk(holder)
        packed = ChunkData(self._source, chunk)
        check_room(chunk, packed, self.result.extraction.session.budget)
        if _is_whole(holder) and self.verify != "headers":
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
            for entry in _metadata_entries(node, self._metadata(node)):
                ctx.emit(entry)
        except (InvalidArgumentError, UnimplementedError) as error:
            self._condemn(node, "malformed", error)
        except EOFError:
            pass  # the chunk is truncated, which is reported already
        return end, DONE, 0

    # -- hashes --------------------------------------------------------------------------------------------------------

    def _judged(self, entry: Entry) -> Entry:
        """Return the entry of a chunk; DAMAGED if its hash was found wrong."""
        problem = self.verdicts.error(entry.start - self._start) if entry.kind != "gap" else None
        if problem is not None and entry.status is Status.COMPLETE:
            path = format_path([KeyStep(entry.key)])
            entry.status, entry.finding = Status.DAMAGED, self.finding_at("hash", problem.reason, path, entry.start)
        return entry

    def _tell_living(self, begin: int) -> None:
        """Update the node and the records of a chunk that was found wrong, those about to be made included."""
        root = self.result._root
        problem = self.verdicts.error(begin)
        if root is None or problem is None:
            return
        if root.index is not None and root.index.group is not None:
            for entry in root.index.group[1]:
                self._judged(entry)
        for node in root.living():
            if node.start - self._start == begin and node.kind != "gap":
                if _is_whole(node):
                    finding = self.finding_at("hash", problem.reason, node.path, node.start)
                    self.result.close_node(node, Status.DAMAGED, finding)
                self._tell_below(node, self.record_finding(node))

    def _tell_below(self, node: Node, finding: Finding | None) -> None:
        """Make a node, and all below it that was taken for whole, DAMAGED with ``finding``."""
        stack = [node]
        while stack:
            kid = stack.pop()
            stack += kid.living()
            if kid.index is not None and kid.index.group is not None:
                for entry in kid.index.group[1]:
                    if entry.status is None or entry.status is Status.COMPLETE:
                        entry.status, entry.finding, entry.value = Status.DAMAGED, finding, UNLOADED_VALUE
            if kid.known_status is None or _is_whole(kid):
                self.result.close_node(kid, Status.DAMAGED, finding, told=True)
                if kid.shape == SCALAR:
                    kid.unload()

    def record_finding(self, chunk: Node) -> Finding | None:
        """Return the finding on a record of a damaged chunk: that of the chunk, and how to read the record anyway."""
        found = chunk.finding
        if found is None or found.code != "hash":
            return found
        return self.finding_at("hash", found.reason + _anyway(), "", found.offset)

    def _resolve_suspect(self, node: Node) -> None:
        """Compare the hash of a chunk if the file around it is suspect: the hash is stronger evidence."""
        data = self.result.extraction.data
        if not data.flawed or self.verify == "headers" or not _is_whole(node) or node.end is None:
            return
        if node.start != self._resolved and data.why_suspect(node.start, node.end) is not None:
            self._resolved = node.start
            self._hash_problem(self.chunk(node))

    def _hash_problem(self, chunk: Chunk) -> PparseError | None:
        known = self.verdicts.error(chunk.begin)
        if known is not None:
            return known
        try:
            if self._chunks.verify(chunk, blocks=False):
                self.verdicts.note_sound(chunk.begin)
        except ChunkError as error:
            if self._moves(chunk, error):
                return None
            if isinstance(error.error, HashMismatchError):
                error.error.reason += self._unwritten(chunk.begin, chunk.end)
                self.verdicts.condemn(chunk.begin, error.error)
            return error.error
        return None

    def _moves(self, chunk: Chunk, error: ChunkError) -> bool:
        """Say whether a chunk is sound on another grid, since bytes were lost or inserted before it. Sets that grid."""
        outcome = resume(self._chunks, error)
        if outcome.healed is None or outcome.layout is None:
            return False
        self._chunks.add_grid(chunk.begin, outcome.layout)
        self._opened = None
        reason = "the block headers from here on are misplaced: bytes were lost or inserted"
        offset = self._start + chunk.begin
        self.result.findings.add(self.finding_at("malformed", reason, f"[{chunk.begin}]", offset))
        return True

    def _unwritten(self, begin: int, end: int) -> str:
        """Describe the bytes of ``[begin, end)`` that were never written, as in a preallocated download."""
        data, start = self._source.locate(begin)
        hole = next(unwritten(data, start, start + end - begin), None)
        if hole is None:
            return ""
        return f"; the bytes from {hole[0]} to {hole[1]} were never written (a file hole)"

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

    def _inspect(self, node: Node) -> None:
        """Check a whole chunk: its hash, and whether its records can be decoded."""
        self.result.extraction.session.check_cancelled()
        chunk = self.chunk(node)
        if _is_whole(node) and (problem := self._hash_problem(chunk)) is not None:
            self._condemn(node, "hash", problem)  # if not because of a hash: a gap
            return
        if _is_whole(node):
            chunk = self.chunk(node)  # it may be on another grid now
            self._check_blocks(node, chunk)
            try:
                check_empty(chunk)
            except ChunkError as error:
                unknown = isinstance(error.error, UnimplementedError)
                self._close(node, Status.UNSUPPORTED if unknown else Status.DAMAGED, "malformed", error.error)
                return
        if node.kind not in (*RECORDS, "metadata"):
            return
        try:
            node.index_to(None)
            if node.kind in RECORDS and _is_whole(node):
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
            reason, offset = error.error.reason + NOTHING_LOST, self._start + (error.error.offset or chunk.begin)
            self.result.findings.add(self.finding_at("malformed", reason, node.path, offset, length=BLOCK_HEADER_SIZE))

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
        if not seen and not _is_whole(node):
            yield self._row(f"chunk {begin}", node, node.known_status or Status.DAMAGED)

    def find_member(self, name: str) -> Node | None:
        """Return the record at the position ``name`` (``64/3``), or the chunk or gap that `members` names so.

        Raise `PathError` if nothing is at that position, `MalformedError` or `EndOfDataError` if it is lost.
        """
        kind, _, number = name.rpartition(" ")
        if kind in ("gap", "chunk", "") and number.isdecimal() and len(number) < 20:
            found = self.result.root.find(int(number))
            if found is not None:
                return found
            name = f"{number}/0"
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
        if finding is not None and finding.code == "truncated" and isinstance(finding.wanted, int):
            return finding.wanted - int(finding.got or 0)
        return None

    def metadata(self) -> dict[str, object]:
        """Return the fields of the file's metadata, with the names of descriptor files."""
        node = self.result.root.find("metadata")
        if node is None or node.kind != "metadata":
            return {}
        found = {
            str(field.key): list(field.keys()) if field.kind == "descriptors" else field.load()
            for field in node.children()
        }
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in found.items()}

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`: chunks, records, their bytes, and the metadata."""
        kinds: Counter[str] = Counter()
        records = decoded = 0
        for kid in self.result.root.children():
            kinds[kid.kind] += 1
            if kid.kind in RECORDS and kid.is_complete:
                header = self.chunk(kid).header
                records += header.num_records
                decoded += header.decoded_data_size
        yield "chunks", ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) or "none"
        yield "records", f"{records:,}, {decoded:,} bytes decoded (by the headers of whole chunks)"
        for name, value in self.metadata().items():
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield "metadata", f"{name} = {text[:200]}{'…' if len(text) > 200 else ''}"


def _is_whole(node: Node) -> bool:
    """Say whether a node is whole as its chunk's headers tell it, and no hash or decoder has said otherwise."""
    return node.known_status is Status.COMPLETE


def _has_headers(reader: Range) -> bool:
    """Say whether a file without its beginning has sound headers: of a chunk or block near its start, or of a block on
    the grid further in."""
    head = reader.peek(BLOCK_SIZE + len(FILE_SIGNATURE))
    if next(block_headers(head), None) is not None or next(chunk_headers(head, MAX_POSITION), None) is not None:
        return True
    data, start = reader.data, reader.start
    for number in range(2, _BLOCKS_TRIED if len(head) > BLOCK_SIZE else 0):
        if block_is_sound(data.known(start + number * BLOCK_SIZE, BLOCK_HEADER_SIZE)):
            return True
    return False


def _anyway() -> str:
    """Return a clause on how to read a record of a damaged chunk."""
    return f"; read it anyway with {spoken('-O verify=headers')}"


def _metadata_entries(node: Node, serialized: bytes) -> list[Entry]:
    """Return the children of the metadata node, or of its descriptors. Raise `InvalidArgumentError`."""
    start, end = node.start, node.end
    found = list(islice(fields(serialized), _MAX_FIELDS + 1))
    if len(found) > _MAX_FIELDS:
        raise InvalidArgumentError("the metadata have too many fields", got=_MAX_FIELDS)
    if node.kind == "descriptors":
        files = [value for number, value in found if number == _DESCRIPTORS and isinstance(value, bytes)]
        return [
            Entry(_file_name(value, ordinal), "descriptor", start, end, value) for ordinal, value in enumerate(files)
        ]
    entries: dict[str, Entry] = {}
    for number, value in found:
        name = _NAMES.get(number)
        if number == _DESCRIPTORS:
            entries["file_descriptor"] = Entry("file_descriptor", "descriptors", start, end)
        elif number == 5 and isinstance(value, int):
            entries["num_records"] = Entry("num_records", "int64", start, end, value - (value >> 63 << 64))
        elif name is not None and isinstance(value, bytes):
            entries[name] = Entry(name, "string", start, end, value.decode("utf-8", "replace"))
        else:
            entries[str(number)] = Entry(str(number), "extension", start, end, value)
    return list(entries.values())


def _file_name(descriptor: bytes, ordinal: int) -> str:
    """Return the name in a FileDescriptorProto (field 1)."""
    for number, value in fields(descriptor):
        if number == 1 and isinstance(value, bytes):
            return value.decode("utf-8", "replace")
    return f"#{ordinal}"
