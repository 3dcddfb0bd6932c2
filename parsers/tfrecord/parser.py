"""TFRecord files: records of any bytes, most often serialized Examples of TensorFlow.

`pparse.parsers.tfrecord.frames` tells the layout of a record, and where its checksums lie. There is no magic number.
With TFRecordOptions the whole file is a gzip or zlib stream, which is read as any other.

States::

    state          needs  reads                                         goes to
    expect_record  0..12  the heads of the records in the block; their  expect_record behind the data of the last;
                          data are jumped over                          DONE at the end of the file, or of a cut record
    expect_fields, expect_end: those of a message, see `pparse.parsers.protobuf.parser`

The root is a list. A record is a message if the type is known, else a scalar: by the options ``message`` and
``descriptor``, or by the first records. A record tells nothing of its type; it is taken for an Example, or a
SequenceExample, if all its fields are those of one, and it has a feature. What is damaged is a ``gap``, which takes one
number.

Rules: the checksum of a length is always compared, that of data as the option ``verify`` says, and by `check`. Behind a
head that is damaged, `pparse.parsers.tfrecord.frames` finds the next record. If the bytes up to there prove to be one
record, only its head is damaged: it is whole. If the data of the record before are wrong, bytes of it may be lost: then
records are looked for inside of it, too.
"""

from __future__ import annotations

from array import array

from pparse.data.base import BytesData
from pparse.data.range_status import cut_status
from pparse.data.window import Window
from pparse.errors import DataError, GapError, spoken
from pparse.findings import ENDS_EARLY, Finding, Severity, Status
from pparse.kernels.crc32c import crc32c, masked
from pparse.kernels.tfrecord_scan import FRAME_SIZE, HEAD_SIZE, chain, head_at
from pparse.limits import KIB, MIB, are, count_words
from pparse.parsers.protobuf.check import Checker, fits, fitting_tags
from pparse.parsers.protobuf.index import MessageIndex, Origin
from pparse.parsers.protobuf.parser import ProtobufParser
from pparse.parsers.tfrecord.frames import AHEAD, Frames
from pparse.riegeli.verdicts import TOUCHED, verify_of
from pparse.tree.context import DONE, NodeContext
from pparse.tree.engine import GROUP
from pparse.tree.entry import LIST, SCALAR, Entry
from pparse.tree.parser import Confidence, Parser
from pparse.tree.visit import Member, Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar, Final

    from pparse.data.base import Range
    from pparse.errors import MalformedError
    from pparse.protobuf.schema import MessageType
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result


# Where a record is looked for in a file that does not begin with one.
_PROBED: Final = 64 * KIB
# No message ends beyond this, whatever a length says.
_FARTHEST: Final = 1 << 62
MISMATCH: Final = "the checksum of the record's data is wrong"


class _Sizes:
    """Number, sum, and extremes of the sizes of the records indexed so far."""

    __slots__ = ("count", "largest", "smallest", "total")

    def __init__(self) -> None:
        self.count = self.total = self.largest = 0
        self.smallest = 1 << 64

    def add(self, lengths: array[int]) -> None:
        """Add the sizes of more records."""
        if lengths:
            smallest, largest = min(lengths), max(lengths)
            self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)
            self.count += len(lengths)
            self.total += sum(lengths)


class TfrecordParser(ProtobufParser):
    """A TFRecord file."""

    name = "tfrecord"
    description = "TFRecord file (tf.train.Example and others)"
    extensions: ClassVar[tuple[str, ...]] = (".tfrecord", ".tfrecords")
    is_data_set = True
    is_generic = False
    media_type = "application/x-tfrecord"
    references: ClassVar[tuple[str, ...]] = (
        "tensorflow/core/lib/io/record_writer.h",
        "tensorflow/core/example/example.proto",
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "a file that is cut between two records looks whole",
        "records of other types than Example and SequenceExample are bytes, unless -O message=NAME tells the type",
        "data above 4 MiB are returned without comparing their checksum, unless -O verify=all; check compares all",
        "records inside of a record are taken for records of the file if the head of the outer one is damaged",
    )
    options: ClassVar[dict[str, str]] = {
        "descriptor": ProtobufParser.options["descriptor"],
        "message": "the full name of the records' message type; none: bytes. By default the first records tell",
        "verify": "which checksums of data are compared before anything in a record is returned: headers (none), "
        "touched (records up to 4 MiB; the default), all",
    }
    child_state: ClassVar[dict[str, str]] = {"tfrecord": "expect_record"}
    member_word = checked_word = "record"

    def __init__(self, result: Result) -> None:
        session = result.extraction.session
        self.verify = verify_of(session.options)
        super().__init__(result)
        extraction = result.extraction
        self.frames = Frames(extraction.data, extraction.find_end, session.check_cancelled)
        self._is_guessed = session.options.get("message") is None and self.root_type is None
        self._missing: int | None = None  # bytes that a cut file lacks at least

    def _find_root_type(self) -> MessageType | None:
        if self.result.extraction.session.options.get("message") == "none":
            return None
        return super()._find_root_type()

    @property
    def record_type(self) -> MessageType | None:
        """The message type of the records; None if they are bytes. The first call may read the first records."""
        if self._is_guessed:
            self.root_type = example_type(self.frames, self.result.extraction.start)
            self._is_guessed = False
        return self.root_type

    # -- recognising -------------------------------------------------------------------------------------------------

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by the checksum of the first length."""
        return Confidence.NO if head_at(excerpt.head(HEAD_SIZE), 0) is None else Confidence.CERTAIN

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """POSSIBLE by a record further in: a compressed file may hold it as it is, and its stream is told by less."""
        return Confidence.POSSIBLE if _first_record(reader.peek(_PROBED)) is not None else Confidence.NO

    @classmethod
    def match_further(cls, reader: Range, *, thorough: bool) -> Confidence:
        """The same whatever the name is."""
        if head_at(reader.peek(HEAD_SIZE), 0) is not None:
            return Confidence.CERTAIN
        found = _first_record(reader.peek(_PROBED)) if thorough else None
        return Confidence.NO if found is None else Confidence.LIKELY

    @classmethod
    def search(cls, reader: Range, poll: Callable[[], object]) -> int | None:
        """Return the offset of the first record, anywhere."""
        end = reader.start + (reader.size or 0)
        found = Frames(reader.data, lambda: end, poll).find(reader.start, end)
        return found - reader.start if found < end else None

    # -- the root: records -------------------------------------------------------------------------------------------

    root_entry = Parser.root_entry

    def shape(self, kind: str) -> str:
        """Return the shape of nodes of ``kind``."""
        return LIST if kind == self.name else SCALAR if kind in ("record", "gap") else super().shape(kind)

    def rereads(self, kind: str) -> bool:
        """Say whether children of a ``kind`` are read again by their state."""
        return kind == self.name

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries of records, or those below."""
        found = Parser.entries if node.parent is None else ProtobufParser.entries
        return found(self, node, index, first, count)

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index what needs no state: elements and keys in messages."""
        return node.parent is not None and super().fill(node, index)

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin the file, or a message: for a record, its checksum is compared first."""
        node = ctx.node
        if node.parent is None:
            return node.start, self.expect_record, 0
        if node.parent.parent is None and not self._is_sound(node):
            ctx.scratch = MessageIndex(())
            return self._nothing(ctx)
        return super().begin(ctx)

    def expect_record(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Add the next record, and those whose heads are in the same block: one at a time is slow."""
        if base + len(block) - ctx.pos < HEAD_SIZE:
            if not ctx.is_at_end:
                return ctx.pos, self.expect_record, HEAD_SIZE
            if not ctx.emitted and ctx.collected is None and ctx.pos == ctx.node.start:
                reason = "the file is empty: TFRecord without records, or a download that never began"
                self.note("empty", reason, ctx.pos, severity=Severity.WARNING)
            return ctx.pos, DONE, 0
        if ctx.collected is None and ctx.fresh is None:  # they only have to be counted
            at = self._add_many(ctx, block, base)
            if at > ctx.pos:
                return at, self.expect_record, 0
        last, most = base + len(block) - HEAD_SIZE, ctx.emitted + GROUP
        while True:
            at = ctx.pos
            length = head_at(block, at - base)
            if length is None:
                return self._behind_damage(ctx, "the checksum of a record's length is wrong")
            got = ctx.there(FRAME_SIZE + length) - HEAD_SIZE
            entry = self._entry(at, length)
            if got < length + 4:
                return self._end_inside(ctx, entry, length, got)
            self._emit(ctx, entry)
            ctx.pos, ctx.scratch = at + FRAME_SIZE + length, at
            if ctx.pos > last or ctx.emitted == most or ctx.satisfied:
                return ctx.pos, self.expect_record, 0

    def _add_many(self, ctx: NodeContext, block: bytes, base: int) -> int:
        """Index the records whose heads are in the block; return where the next one begins."""
        index, left = ctx.index, ctx.remaining
        most = ctx.pos - base + left if left is not None else len(block)
        starts, lengths, pos = chain(block, ctx.pos - base, most)
        if not starts or index.count + len(starts) > ctx.entries_limit:
            return ctx.pos  # one by one, up to the limit
        index.add_many(array("q", [base + start for start in starts]))
        ctx.emitted += len(starts)
        self._sizes(index).add(lengths)
        ctx.scratch = base + starts[-1]
        return base + pos

    def _end_inside(self, ctx: NodeContext, entry: Entry, length: int, got: int) -> tuple[int, Any, int]:
        """Add a record of whose data and checksum there are ``got`` bytes: it is cut, or bytes of it are lost."""
        inside = self.frames.inside_last(ctx.pos)
        if inside is not None:
            entry.status, entry.finding = Status.DAMAGED, self._close_lost(ctx, ctx.emitted, ctx.pos, inside)
            self._emit(ctx, entry)
            return inside, self.expect_record, 0
        lacks = length + 4 - got
        reason = f"the file ends inside of a record: {count_words(lacks, 'byte')} {are(lacks)} missing"
        finding = self.finding_at("truncated", reason, f"[{ctx.emitted}]", entry.start, wanted=length + 4, got=got)
        if got < length:  # else its data are there, and nothing to compare them with
            entry.status, entry.finding = cut_status(got), finding
        self._emit(ctx, entry)
        if ctx.collected is None:
            self._missing = lacks
            self.result.close_node(ctx.node, Status.TRUNCATED, finding, end=entry.start + got)
        return entry.start + got, DONE, 0

    def _emit(self, ctx: NodeContext, entry: Entry) -> None:
        ctx.emit(entry)
        if ctx.collected is None and entry.kind != "gap" and entry.end is not None:
            self._sizes(ctx.index).add(array("Q", (entry.end - entry.start,)))

    @staticmethod
    def _sizes(index: ChildIndex) -> _Sizes:
        if index.note is None:
            index.note = _Sizes()
        found: _Sizes = index.note
        return found

    def _entry(self, at: int, length: int) -> Entry:
        """Describe the record at ``at``, whose data are there."""
        data, type = self.frames.data, self.record_type
        start = at + HEAD_SIZE
        end = start + length
        note, finding, kind = None, None, "record"
        status: Status | None = Status.COMPLETE
        if type is not None:
            note = Origin(None, type, pieces=(data.range(start, min(end, _FARTHEST)),))
            kind, status = type.full_name, None
        if self._is_wrong(start):
            status, finding = Status.DAMAGED, self._wrong_finding(start)
        elif data.flawed and (reason := self._doubt(start, end)) is not None:
            status, finding = Status.DAMAGED, Finding("doubt", reason, offset=start)
        return Entry(None, kind, start, end, status=status, finding=finding, at=at, note=note)

    def _doubt(self, start: int, end: int) -> str | None:
        """Return why the data of a record may be wrong, though its checksum was not found wrong; None if nothing is."""
        data = self.frames.data
        gap = data.next_gap(start)
        if gap is not None and gap.offset < end:
            return "some of its bytes are lost"
        reason = data.why_suspect(start, end)
        if reason is None or self.verify == "headers" or end - start > TOUCHED:
            return reason
        agrees = self._compare(start, end)  # which is stronger evidence
        return None if agrees else MISMATCH if agrees is False else reason

    # -- damage ------------------------------------------------------------------------------------------------------

    def _behind_damage(self, ctx: NodeContext, reason: str) -> tuple[int, Any, int]:
        """Continue behind a damaged head: inside of the record before, if that is wrong, or behind a gap."""
        at, before = ctx.pos, ctx.scratch
        ctx.scratch = None
        inside = self.frames.inside(before, at) if before is not None else None
        if inside is not None:
            self._note_wrong(before + HEAD_SIZE, inside)  # what follows is judged by itself
            self._close_lost(ctx, ctx.emitted - 1, before, inside)
            ctx.jump_back()
            return inside, self.expect_record, 0
        return self._skip(ctx, reason)

    def _close_lost(self, ctx: NodeContext, ordinal: int, before: int, inside: int) -> Finding:
        return self._close_damaged(ctx, ordinal, before, inside - before, *self.frames.why_lost(before, inside))

    def _skip(self, ctx: NodeContext, reason: str) -> tuple[int, Any, int]:
        """Add what lies before the next record: a gap, or a record of which only the head is damaged."""
        at = ctx.pos
        end, is_record = self.frames.behind(at)
        if is_record:
            entry = self._entry(at, end - at - FRAME_SIZE)
            reason += "; its data are whole, by their own checksum"
            finding = self._close_damaged(ctx, ctx.emitted, at, None, reason)
            entry.finding = entry.finding or finding
        else:
            reason += f": {count_words(end - at, 'byte')} are lost"
            finding = self._close_damaged(ctx, ctx.emitted, at, end - at, reason)
            entry = Entry(None, "gap", at, end, status=Status.DAMAGED, finding=finding)
        self._emit(ctx, entry)
        return end, self.expect_record, 0

    def _close_damaged(
        self, ctx: NodeContext, ordinal: int, at: int, length: int | None, reason: str, code: str = "malformed"
    ) -> Finding:
        finding = self.finding_at(code, reason, f"[{ordinal}]", at, length=length)
        if ctx.collected is None:
            self.result.close_node(ctx.node, Status.DAMAGED, finding)
        return finding

    def cut(self, ctx: NodeContext) -> tuple[int, Any, int] | None:
        """Close the root as the file ends inside of a head; or a message."""
        if ctx.node.parent is not None:
            return super().cut(ctx)
        end = self.result.extraction.find_end()
        reason, got = "the file ends inside the head of a record", max(0, end - ctx.pos)
        finding = self.finding_at("truncated", reason, ctx.node.path, end, wanted=HEAD_SIZE, got=got)
        self._missing = HEAD_SIZE - (end - ctx.pos)
        self.result.close_node(ctx.node, Status.TRUNCATED, finding, end=end)
        return None

    def finish(self, ctx: NodeContext) -> None:
        """Close the root, or a message."""
        return Parser.finish(self, ctx) if ctx.node.parent is None else super().finish(ctx)

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, Any, int] | None:
        """Continue behind a gap in the data, or damage in a message."""
        if ctx.node.parent is not None:
            return super().resync(ctx, error)
        ctx.scratch = None
        if ctx.pos >= self.frames.end():
            return None
        return self._skip(ctx, error.reason)

    # -- checksums of data -------------------------------------------------------------------------------------------

    def _is_wrong(self, start: int) -> bool:
        ledger = self.frames.data.ledger
        return ledger is not None and ledger.is_wrong_at(start)

    def _note_wrong(self, start: int, end: int) -> None:
        """Remember that the checksum of the data at ``start`` is wrong, and tell whoever has described the record."""
        self.frames.data.condemn(start, end, MISMATCH)
        root = self.result.root
        group = root.index.group if root.index is not None else None
        for entry in group[1] if group is not None else ():
            if entry.start == start and entry.status in (None, Status.COMPLETE):
                entry.status, entry.finding = Status.DAMAGED, self._wrong_finding(start)
        for node in root.living():
            if node.start == start:
                self._close_wrong(node)

    def _close_wrong(self, record: Node) -> None:
        if record.known_status in (None, Status.COMPLETE):
            self.result.close_node(record, Status.DAMAGED, self._wrong_finding(record.start, record.path))

    def _wrong_finding(self, start: int, path: str = "") -> Finding:
        reason = f"{MISMATCH}; read it anyway with {spoken('-O verify=headers')}"
        return self.finding_at("checksum", reason, path, start)

    def _compare(self, start: int, end: int, content: bytes = b"") -> bool | None:
        """Compare the checksum of data, and remember what that tells; None if not all of them are there."""
        agrees = self.frames.agrees(start, end, content)
        if agrees:
            # Each by its own checksum: a wrong record that reaches into this one contradicts neither.
            self.frames.data.vouch(start - HEAD_SIZE, start)
            self.frames.data.vouch(start, end + 4)
        elif agrees is False:
            self._note_wrong(start, end)
        return agrees

    def _is_sound(self, record: Node, content: bytes = b"") -> bool:
        """Say whether a record can be returned: its checksum is not wrong, as far as the option ``verify`` asks."""
        if self.verify == "headers" or record.end is None:
            return True
        if not self._is_wrong(record.start):
            if record.known_status not in (None, Status.COMPLETE):
                return True  # what there is of it
            if record.end - record.start > TOUCHED and self.verify != "all":
                return True
            if self._compare(record.start, record.end, content) is not False:
                return True
        self._close_wrong(record)  # nobody else may hold it
        return False

    def records(self) -> Iterator[tuple[int, int, bytes | None, Entry | None]]:
        """Yield number and offset of all records, and the data of each whose checksum agrees; of others the entry.

        Records that are large, or near to what is wrong, are others, too: `sound_data` has those that are sound.
        """
        data, root = self.frames.data, self.result.root
        ordinal, at, size = 0, root.start, KIB
        while True:
            found = self._sound_run(at, size)
            if found:  # the tree's records follow: both read the file once
                with self.result.lock:
                    root.index_to(ordinal + len(found))
                for start, content in found:
                    yield ordinal, start, content, None
                    ordinal += 1
                at, size = found[-1][0] + len(found[-1][1]) + 4, min(2 * size, AHEAD)
                continue
            with self.result.lock:
                group = self.result.entries_at(root, ordinal)
            if not group:
                return
            for entry in group:
                yield ordinal, entry.start, None, entry
                ordinal += 1
                at, size = (data.size or 0) if entry.end is None else entry.end + 4 * (entry.kind != "gap"), KIB

    def _sound_run(self, at: int, size: int) -> list[tuple[int, bytes]]:
        """Return offset and data of the sound records that follow each other from ``at`` on, in up to ``size`` bytes.

        None near to what is known to be lost or wrong: that is judged record by record.
        """
        data, end = self.frames.data, self.result.extraction.end
        try:
            block = data.known(at, size if end is None else min(size, max(0, end - at)))
        except DataError:  # which is met again, and told
            return []
        if data.flawed:
            gap = data.next_gap(at) if data.gaps else None
            if data.why_suspect(at, at + len(block)) or (gap is not None and gap.offset < at + len(block)):
                return []
        found: list[tuple[int, bytes]] = []
        starts, lengths, _ = chain(block, 0, len(block))
        for start, length in zip(starts, lengths, strict=True):
            start += HEAD_SIZE
            content = block[start : start + length]
            if masked(crc32c(content)) != int.from_bytes(block[start + length : start + length + 4], "little"):
                break
            found.append((at + start, content))
        if found:
            data.vouch(at, found[-1][0] + len(found[-1][1]) + 4)
        return found

    def sound_data(self, ordinal: int, entry: Entry) -> bytes | None:
        """Return the data of a record whose checksum agrees, and note one that does not; None if it is not whole.

        Raises `LimitError` if it is too long, `DataError`.
        """
        if entry.kind == "gap" or entry.end is None or entry.status not in (None, Status.COMPLETE):
            return None
        length = entry.end - entry.start
        self.result.extraction.session.limits.check("scalar_bytes", length, "the record")
        content = self.frames.data.read_exact(entry.start, length)
        if self._compare(entry.start, entry.end, content) is False:
            self.result.findings.add(self._wrong_finding(entry.start, f"[{ordinal}]"))
            return None
        return content

    def load_scalar(self, node: Node) -> Any:
        """Return a record, after comparing its checksum as the option ``verify`` says; or a value in one."""
        if node.parent is None or node.parent.parent is not None:
            return super().load_scalar(node)
        length = (node.end or node.start) - node.start
        self.result.extraction.session.limits.check("scalar_bytes", length, "the record", path=node.path)
        content = node.extraction.data.read_exact(node.start, length)
        if not self._is_sound(node, content):
            node._refuse_if_not_whole()
        return content

    def open_scalar(self, node: Node) -> Range:
        """Return a reader of a node's bytes; if its checksum is wrong, a record becomes DAMAGED."""
        if node.parent is not None and node.parent.parent is None and node.kind != "gap":
            self._is_sound(node)
        return super().open_scalar(node)

    # -- everything --------------------------------------------------------------------------------------------------

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Compare the checksums of all records; of messages whose type was named, also every field."""
        root = self.result.root
        yield Visit.of(root, 0)
        compared = self._compared = [0, 0]
        options = self.result.extraction.session.options
        named = "message" in options or "descriptor" in options
        checker = Checker(self.result.extraction.session.check_cancelled)
        self.frames.ahead = Window(self.frames.data, self.frames.end(), ahead=AHEAD)
        try:
            for ordinal, start, content, entry in self.records():
                agrees: bool | None = True
                if entry is not None and entry.kind == "gap":
                    agrees = None
                elif entry is not None:
                    ends = entry.end is None or entry.status in ENDS_EARLY
                    agrees = None if ends else self._compare(start, entry.end or start)
                compared[0] += entry is None or entry.kind != "gap"
                compared[1] += agrees is True
                if agrees is False or (entry is not None and entry.finding is not None):
                    yield Visit.of(root.child(ordinal), 1)
                elif agrees and named and self.root_type is not None:
                    end = start + len(content or b"") if entry is None else entry.end or start
                    yield from self._check_message(root, ordinal, self.frames.data.range(start, end), checker)
        finally:
            self.frames.ahead = None

    def _check_message(self, root: Node, ordinal: int, part: Range, checker: Checker) -> Iterator[Visit]:
        if self.root_type is None or checker.sound(part, self.root_type):
            return
        node = root.child(ordinal)
        known = len(self.result.findings)
        yield from self.walk(node)
        if len(self.result.findings) == known:  # what is wrong is nowhere in the tree
            self.damage(node, f"its bytes are no {self.root_type.full_name}, though their checksum agrees")
            yield Visit.of(node, 1)

    # -- what the commands show --------------------------------------------------------------------------------------

    def missing(self) -> int | None:
        """Return how many bytes of a record, or of its head, are missing at the end of a cut file."""
        return self._missing

    def members(self) -> Iterator[Member]:
        """Yield the records and gaps, by number."""
        for ordinal, entry in self.result.entries_from(self.result.root, 0):
            kind, size = "gap" if entry.kind == "gap" else "record", (entry.end or entry.start) - entry.start
            why = entry.finding.reason if entry.finding else None
            yield Member(f"[{ordinal}]", kind, entry.start, size, entry.status or Status.COMPLETE, reason=why)

    def find_member(self, name: str) -> Node | None:
        """Return a record by its number, ``[3]``. Raises `MalformedError` for a field of one that is damaged."""
        number, _, field = name.removeprefix("[").partition("]")
        if not name.startswith("[") or not number.isdecimal() or len(number) > 19:
            return None
        root, ordinal = self.result.root, int(number)
        if ordinal >= root.index_to(ordinal + 1).count:
            return None
        record = root.child(ordinal)
        if not field:
            return record
        record._refuse_if_not_whole()
        return None

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`: the records, their sizes, and what the first one has."""
        root = self.result.root
        index = root.index_to(None)
        sizes = self._sizes(index)
        gaps = index.count - sizes.count
        yield "records", f"{sizes.count:,}" + (f", and {count_words(gaps, 'gap')}" if gaps else "")
        if sizes.count:
            yield "data", f"{sizes.total:,} bytes; a record has {sizes.smallest:,} to {sizes.largest:,}"
        if (type := self.record_type) is not None:
            yield "message", type.full_name
            if index.count:
                yield from features_of_first(root)
        elif holds_events(self.frames, self.result.extraction.start):
            yield "message", "tensorflow.Event: a TensorBoard event file; records are bytes"
        else:
            yield "message", "none known: records are bytes"


def _first_record(block: bytes) -> int | None:
    """Return where in a block a record stands whose data, or whose follower's length, have the right checksum, too."""
    found = Frames(BytesData(block), lambda: len(block), lambda: None).find(0, len(block))
    return found if found < len(block) else None


# -- what the records are: messages of a type that the first ones tell, events, or any bytes ---------------------------

_TYPES: Final = ("tensorflow.Example", "tensorflow.SequenceExample")
# How many records must fit, and how many are looked at: damaged ones tell nothing.
_WANTED: Final = 4
_LOOKED_AT: Final = 16
# Of a larger record, the beginning must do.
_WHOLE: Final = MIB
_BEGINNING: Final = 64 * KIB
# The features, the first of them, its name and its value.
_FITTING: Final = 4


def example_type(frames: Frames, start: int) -> MessageType | None:
    """Return the type of the records from ``start`` on; None if they are something else."""
    from pparse.protos import schema

    samples = list(_samples(frames, start))
    # The beginning of a record tells less than a whole one; where the file is cut, that may be next to nothing.
    samples = [(raw, whole) for raw, whole in samples if whole] or samples
    for name in _TYPES:
        type = schema().message(name)
        if all(_may_be(raw, type, whole) for raw, whole in samples) and any(
            fitting_tags(raw, type) >= _FITTING for raw, _ in samples
        ):
            return type
    return None


def holds_events(frames: Frames, start: int) -> bool:
    """Say whether the file is one of TensorBoard: its first record has a time, and the version of the event format."""
    return is_event(next(_samples(frames, start), (b"", True))[0])


def is_event(first: bytes) -> bool:
    """Say whether the first record of a file begins with a time, and the version of the event format."""
    return first[:1] == b"\x09" and first[9:10] == b"\x1a" and first.startswith(b"brain.Event:", 11)


def _samples(frames: Frames, at: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the data of the first records, and whether that is all of each."""
    found, end = 0, frames.end()
    for _ in range(_LOOKED_AT):
        if found == _WANTED or end - at < HEAD_SIZE:
            return
        length = frames.length(at)
        if length is None:
            at, _ = frames.behind(at)
            continue
        begin, following = at + HEAD_SIZE, at + FRAME_SIZE + length
        if following > end or length > _WHOLE:
            try:
                yield frames.data.pread(begin, min(length, _BEGINNING)), False
            except GapError:
                pass
            found += 1
        elif frames.agrees(begin, following - 4):
            yield frames.data.pread(begin, length), True
            found += 1
        at = following


def _may_be(raw: bytes, type: MessageType, whole: bool) -> bool:
    """Say whether a record, or its beginning, can be a message of ``type``; an empty one can be any."""
    if not whole:
        return fitting_tags(raw, type) >= _FITTING
    part = BytesData(raw).range(0, len(raw))
    return not raw or (fits(raw, type, complete=True) and Checker(lambda: None).sound(part, type))


def features_of_first(root: Node) -> Iterator[tuple[str, str]]:
    """Yield the names and kinds of the features in the first record that is whole."""
    for record, _ in zip(root.children(), range(16), strict=False):
        if record.kind == "gap" or not record.is_complete:
            continue
        if not record.kind.startswith("tensorflow."):
            yield "fields", ", ".join(str(key) for key, _ in zip(record.keys(), range(40), strict=False)) or "none"
            return
        for label, outer, inner in (
            ("features", "features", "feature"),
            ("context", "context", "feature"),
            ("lists", "feature_lists", "feature_list"),
        ):
            holder = record.find(outer)
            found = holder.find(inner) if holder is not None else None
            if found is not None:
                names = [f"{kid.key!s} ({_kind_of(kid)})" for kid, _ in zip(found.children(), range(40), strict=False)]
                more = f" … {len(found) - 40:,} more" if len(found) > 40 else ""
                yield label, f"{', '.join(names)}{more} (of record {record.ordinal})"
        return


def _kind_of(feature: Node) -> str:
    """Return the kind of values a feature has: bytes, float, int64."""
    kinds = [str(key).removesuffix("_list") for key in feature]
    if kinds == ["feature"]:  # a list of features: the first one tells
        first = feature["feature"]
        return f"{_kind_of(first.child(0))}, {len(first):,} steps" if len(first) else "no steps"
    return ", ".join(kinds) or "empty"
