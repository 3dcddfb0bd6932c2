"""Reads protocol buffer messages of any size lazily, with or without a schema.

States::

    state          needs  reads                                            goes to
    expect_fields  1..20  tags and lengths of the fields of one part of    expect_fields; the next part at the end of
                          a message; payloads are jumped over              this one; DONE behind the last part
    expect_end     0      nothing: the message has no bytes of its own     DONE

A message node is made of parts (see `pparse.parsers.protobuf.index`). Its children are its fields, which are added when
all parts are scanned, since the last value wins. A repeated field is a list, a map field a map; their children are
found with the scan of the message. A field that the schema does not have, or whose wire type is not that of the schema,
is kept under its number.

Rules: a sub-message that occurs several times is merged; of a scalar the last value wins, of a oneof the last member.
Reading continues after damage if the schema proves where fields continue (`pparse.parsers.protobuf.resumption`);
otherwise the rest of that part is lost. Without a schema, the content of length-delimited fields is guessed
(`pparse.kernels.wire_guess`); the option ``types`` gives it.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice, product

from pparse.data.base import Range, up_to_page
from pparse.data.range_status import cut_status
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, OptionError, PathError, spoken
from pparse.findings import Severity, Status
from pparse.kernels.wire import PADDING, SLACK, scan
from pparse.lazy import lazy_pattern
from pparse.parsers.protobuf.check import Checker, fits, fitting_tags, goes_on_fitting
from pparse.parsers.protobuf.entries import ValueEntries
from pparse.parsers.protobuf.index import (
    NEAR,
    ChunkRange,
    Lost,
    MessageIndex,
    Origin,
    OverlayEntry,
    OverlayField,
    PartScan,
)
from pparse.parsers.protobuf.lists import ListIndex
from pparse.parsers.protobuf.resumption import find_resumption
from pparse.parsers.protobuf.values import WIRE_KINDS, decode, decode_text, is_message, named
from pparse.paths import KeyStep
from pparse.protobuf.schema import TYPE_NAMES, Schema
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import LIST, MAP, SCALAR, Entry
from pparse.tree.parser import Confidence, Listing, Parser
from pparse.tree.visit import Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, ClassVar, Final

    from pparse.data.base import Data
    from pparse.findings import Finding
    from pparse.limits import Limits
    from pparse.parsers.protobuf.index import Piece, WireWindow
    from pparse.protobuf.schema import MessageType
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

# What is read of a large field to go on behind it, and how many fields before it is asked whether to stop.
_FIELD_HEAD: Final = 4 << 10
_HOPS: Final = 1_000
# Bytes at the beginning that are looked at if no type is known.
_GUESSED: Final = 4 << 10
HEAD: Final = 16 << 10
"""Bytes at the beginning that are looked at if the type is known."""
# After so many tags of the type at the beginning, the type is certain, and anything else is damage.
_FITTING: Final = 6
# So many are needed after a damaged beginning: a node of a graph has them with its first attributes.
_FITTING_BEHIND: Final = 12
_SCALAR_KINDS: Final = frozenset({*TYPE_NAMES, "varint", "text"}) - {"", "group", "message", "enum"}
_WIRES: Final = {name: wire for wire, name in WIRE_KINDS.items()}
# An item of the option ``types``.
_TYPE: Final = lazy_pattern(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)\s*=\s*(message|text|bytes)\s*")
_STRAY: Final = "stray-field"
# The longest list whose elements are searched for such a field.
_LOOKED_INTO: Final = 64
# The most names of types that an error lists.
_SHOWN: Final = 20
# RecordsMetadata: record_type_name, file_descriptor (google/riegeli: records_metadata.proto).
_TYPE_NAME, _FILE_DESCRIPTOR = 2, 3


class ProtobufParser(Parser, Listing):
    """A serialized protocol buffer message."""

    name = "protobuf"
    description = "protocol buffer message"
    extensions: ClassVar[tuple[str, ...]] = (".pb", ".binpb", ".protobin", ".binaryproto")
    is_generic = True
    media_type = "application/protobuf"
    references: ClassVar[tuple[str, ...]] = ("https://protobuf.dev/programming-guides/encoding/",)
    limitations: ClassVar[tuple[str, ...]] = (
        "there is no magic number; without a schema numbers are unsigned, and length-delimited fields are guessed",
        "unnamed values of closed enums (proto2) are shown as numbers, and do not become unknown fields",
        "maps above some 140,000 keys need a larger --budget",
    )
    options: ClassVar[dict[str, str]] = {
        "descriptor": "a FileDescriptorSet (protoc --include_imports --descriptor_set_out=FILE) with the type, "
        "or a Riegeli file whose metadata have the type of its records",
        "message": "the full name of the message type, e.g. tensorflow.GraphDef",
        "types": "types of fields without a schema, by path of field numbers: 1.2=message,3=text,4=bytes",
    }

    # Whether all that write the format write fields in the order of their numbers, elements of a list together.
    in_order: ClassVar[bool] = False
    # The full name of the type, for formats that are one message.
    message_name: ClassVar[str | None] = None

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.make = ValueEntries(result.extraction, _parse_types(result.extraction.session.options.get("types")))
        self.root_type: MessageType | None = self._find_root_type()

    # -- which schema ------------------------------------------------------------------------------------------------

    def _find_root_type(self) -> MessageType | None:
        session = self.result.extraction.session
        return find_type(session.options, self.message_name, session.limits)

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """POSSIBLE if the data begin like the fields of a message; there is no magic number."""
        from pparse.kernels.wire_guess import guess

        head = excerpt.head(_GUESSED)
        if not head:
            return Confidence.NO
        kind, confidence = guess(head, excerpt.size is not None and len(head) >= excerpt.size)
        if kind != "message":
            return Confidence.NO
        return Confidence.LIKELY if confidence >= 0.9 else Confidence.POSSIBLE

    # -- nodes -------------------------------------------------------------------------------------------------------

    def root_entry(self) -> Entry:
        """Describe the root: one message."""
        extraction = self.result.extraction
        pieces = self.root_pieces()
        kind = self.root_type.full_name if self.root_type is not None else "message"
        note = Origin(None, self.root_type, pieces=pieces)
        return Entry(None, kind, extraction.start, extraction.end, status=None, note=note)

    def root_pieces(self) -> Sequence[Piece]:
        """Return the pieces of the root message."""
        extraction = self.result.extraction
        return (extraction.data.range(extraction.start, max(extraction.start, extraction.find_end())),)

    def shape(self, kind: str) -> str:
        """Return the shape of nodes of ``kind``; kinds of lists end in ``[]``, messages have names with capitals."""
        if kind.endswith("[]"):
            return LIST
        return SCALAR if kind in _SCALAR_KINDS or kind.startswith("enum<") else MAP

    def step_to(self, parent: Node, ordinal: int, key: Key) -> Any:
        """Return the path step; names and map keys occur once."""
        return KeyStep(key) if isinstance(key, str) else super().step_to(parent, ordinal, key)

    def key_meant(self, node: Node, key: Key) -> Key:
        """Accept the number of a field as its name."""
        origin: Origin = node.note
        if origin.type is not None and isinstance(key, int) and not isinstance(key, bool):
            field = origin.type.fields.get(key)
            note = node.index_to(None).note
            # A field with the wrong wire type is kept under its number, perhaps beside the field with the name.
            if field is not None and key not in note.misfits:
                return field.name
        return key

    # -- messages ----------------------------------------------------------------------------------------------------

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin with the first part of a message."""
        origin: Origin = ctx.node.note
        ctx.scratch = MessageIndex(origin.pieces)
        return self._next_part(ctx) or self._nothing(ctx)

    def _nothing(self, ctx: NodeContext) -> tuple[int, Any, int]:
        ctx.end = ctx.pos
        return ctx.pos, self.expect_end, 0

    def _next_part(self, ctx: NodeContext) -> tuple[int, Any, int] | None:
        """Enter the next part that has bytes; None after the last."""
        index: MessageIndex = ctx.scratch
        origin: Origin = ctx.node.note
        while index.queue:
            piece = index.queue.pop()
            if isinstance(piece, Lost):
                if isinstance(piece.error, LimitError):
                    raise piece.error
                self.damage(ctx.node, piece.reason, fault=piece.fault)
            elif isinstance(piece, ChunkRange) and (wrong := piece.why_not(message=True)) is not None:
                self.damage(ctx.node, wrong)
            elif isinstance(piece, OverlayEntry):
                index.parts.append(piece)
            elif piece.end > piece.start:
                index.parts.append(PartScan(piece, origin.type))
                return ctx.enter(piece), self.expect_fields, 1
        return None

    def expect_end(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Finish a message without bytes."""
        self._show(ctx)
        pieces = ctx.node.note.pieces if ctx.node.parent is None else ()
        if any(isinstance(piece, Range) and piece.data.is_file for piece in pieces):
            reason = "the file is empty: a message without fields, or a download that never began"
            self.note("empty", reason, ctx.pos, severity=Severity.WARNING)
        return ctx.pos, DONE, 0

    def expect_fields(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Record where the fields of a part begin."""
        part: PartScan = ctx.scratch.parts[-1]
        end = part.part.end
        size = len(block)
        final = ctx.at_end or base + size >= end
        pos = ctx.pos - base
        stop = size if final else size - SLACK + 1
        if pos < stop:
            pos = self._scan(part, block + PADDING if final else block, base, pos, stop, final=final)
            if ctx.index.count == 0:
                ctx.index.note = ctx.scratch
                ctx.index.account()
        after = base + pos
        if pos > size + NEAR and not final and not part.groups:
            after = self._hop(ctx, part, after)
        if after >= end:
            if base == part.part.start and final:
                ctx.scratch.kept = (part.part, block)
            if after > end or part.groups:
                if not self._resume(ctx):
                    self._note_cut(ctx, part, after)
            elif _is_loose(part.part):
                self._resume(ctx)
            return self._go_on(ctx) or (ctx.pos, DONE, 0)
        need = min(SLACK, end - after) if after < base + size and not final else 1
        return after, self.expect_fields, need

    def _hop(self, ctx: NodeContext, part: PartScan, after: int) -> int:
        """Go from one large field to the next, reading their heads; return where to go on.

        Saves a step of the engine for each, a third of the time. Whatever is not plain is left to `expect_fields`.
        """
        data = ctx.data
        for _ in range(0 if self.result.extraction.session.block_size else _HOPS):
            size = up_to_page(after, _FIELD_HEAD)
            if part.part.end - after <= size:
                break
            block = data.known(after, size)
            if len(block) < size:
                break
            try:
                pos, last = scan(block, 0, size - SLACK + 1, part.found, part.groups, after)
            except MalformedError:
                part.forget()
                break
            part.complete(after)
            if pos <= size + NEAR or part.groups:
                after += pos
                break
            if not last:
                part.keep_head(after, block)
            after += pos
        return after

    def _scan(self, part: PartScan, block: bytes, base: int, pos: int, stop: int, *, final: bool) -> int:
        try:
            pos, last = scan(block, pos, stop, part.found, part.groups, base)
        except MalformedError as error:
            # A tag that continues in the padding is not damaged: the bytes end inside it.
            if not (final and error.offset is not None and _all_continue(block[error.offset - base : stop])):
                raise
            pos, last = stop + 1, error.offset - base
        finally:
            part.complete(base)
        if final and pos > stop and _all_continue(block[last:stop]):
            part.drop(base + last)  # the tag was read into the padding, so it is a different one
        return pos

    def cut(self, ctx: NodeContext) -> tuple[int, Any, int] | None:
        """Handle data that end inside a part: keep its complete fields, and continue with the next part."""
        part: PartScan = ctx.scratch.parts[-1]
        rest = ctx.data.known(ctx.pos, SLACK)
        after = ctx.pos
        if rest:
            try:
                after = ctx.pos + self._scan(part, rest + PADDING, ctx.pos, 0, len(rest), final=True)
            except MalformedError as error:
                self.note_damage(ctx.node, error)
        self._note_cut(ctx, part, max(after, part.part.end + 1))
        return self._go_on(ctx)

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, Any, int] | None:
        """Continue after the damage, or with the next part."""
        self._resume(ctx)
        return self._go_on(ctx)

    def _resume(self, ctx: NodeContext) -> bool:
        """Read a damaged but complete part as the two parts around the lost bytes; False if that fails."""
        index: MessageIndex = ctx.scratch
        scan: PartScan = index.parts[-1]  # type: ignore[assignment]
        part, extraction = scan.part, self.result.extraction
        if part.data is not extraction.data or isinstance(part, ChunkRange):
            return False
        if part.end > self.make.data_end(part):
            return False
        content = index.kept[1] if index.kept is not None and index.kept[0] is part else None
        check_cancelled = extraction.session.check_cancelled
        lost = find_resumption(part.data, part.start, part.end, scan.type, check_cancelled, content)
        if lost is None:
            return False
        index.parts.pop()
        if scan.type is None or not lost.number:
            index.queue.append(part.data.range(part.start, lost.begin))
            reason = "what follows a gap of unknown length may lie elsewhere"
            self.damage(ctx.node, reason, lost.begin, length=lost.end - lost.begin)
            return True
        field = scan.type.fields[lost.number]
        index.queue.append(part.data.range(lost.end, part.end))
        if field.repeated and not field.is_map:
            index.queue.append(lost)
        index.queue.append(part.data.range(part.start, lost.begin))
        reason = (
            f"{lost.end - lost.begin:,} bytes are damaged: one or more fields are lost, and later elements of "
            f"{field.name} may have other numbers"
        )
        self.damage(ctx.node, reason, lost.begin, length=lost.end - lost.begin)
        return True

    def _go_on(self, ctx: NodeContext) -> tuple[int, Any, int] | None:
        """Enter the next part; after the last, add the fields and return None."""
        if self.in_order:
            self._leave_strays(ctx)
        step = self._next_part(ctx)
        if step is None:
            self._show(ctx)
        return step

    def _leave_strays(self, ctx: NodeContext) -> None:
        """Read a part again up to where elements of a list stand behind all that writers put behind that list.

        They are what damage made of another field, or of the bytes in it: fewer of them look like an element than stand
        before.
        """
        index: MessageIndex = ctx.scratch
        scan = index.parts[-1] if index.parts else None
        if (
            not isinstance(scan, PartScan)
            or scan.type is None
            or all(scan.part is not one for one in ctx.node.note.pieces)
        ):
            return
        known = {number: scan.slots[number] for number in scan.type.fields if number in scan.slots}
        for number, run in known.items():
            behind = max((slot.last for other, slot in known.items() if other > number), default=-1)
            field, before = scan.type.fields[number], bisect_left(run.offsets, behind) * run.stride
            if not (field.repeated and is_message(field)) or not before or run.last < behind:
                continue
            window = scan.window()
            if run.count >= 2 * before and sum(islice(_likenesses(scan, number, before, window), before)) == before:
                continue
            at = window.field(behind).next
            while at < run.last and scan.key_of((found := window.field(at)).tag) != number:
                at = found.next
            part = scan.part
            index.parts.pop()
            index.queue.append(part.data.range(part.start, at))
            reason = f"{field.name} stand behind what writers put behind them: damage made them of other bytes"
            self.damage(ctx.node, reason, at, length=part.end - at)
            return

    def _note_cut(self, ctx: NodeContext, part: PartScan, after: int) -> None:
        """Add a finding on a part that ends inside a field: it is truncated, or a length in it is wrong."""
        end = part.part.end
        there = self.make.data_end(part.part)
        truncated = end >= there
        reason = "the message ends inside a field" if truncated else "a field extends beyond its message"
        node = ctx.node
        first, _ = self.make.place(part.part.data, min(end, there), min(end, there))
        status = cut_status(damaged=not truncated)
        wanted, got = after - part.part.start if after > end else None, min(end, there) - part.part.start
        finding = self.make.finding(status.code, reason, first, path=node.path, wanted=wanted, got=got)
        self.result.close_node(node, status, finding)

    def finish(self, ctx: NodeContext) -> None:
        """After all parts were scanned: the message is COMPLETE unless an error was found."""
        node = ctx.node
        self.result.close_node(node, node.known_status or Status.COMPLETE, None, end=node.start)

    # -- fields ------------------------------------------------------------------------------------------------------

    def _show(self, ctx: NodeContext) -> None:
        """Add the fields as children."""
        index: MessageIndex = ctx.scratch
        origin: Origin = ctx.node.note
        ctx.index.note = index
        known = origin.type is None
        found = index.contributions(origin.type)
        strays = self._strays(ctx, index)
        for key, contributions in found.items():
            if contributions:
                known = known or (key >= 0 and origin.type is not None and key in origin.type.fields)
                entry = self.make.field(ctx.node, index, key, contributions)
                if key in strays and entry.status in (None, Status.COMPLETE):
                    entry.status, entry.finding = Status.DAMAGED, strays[key]
                ctx.emit(entry)
        index.kept = None
        if found and not known and ctx.node.parent is None and origin.type is not None:
            reason = f"{origin.type.full_name} has none of the fields of the message; check its type"
            self.note("unknown-fields", reason, ctx.node.start, severity=Severity.WARNING)

    def _strays(self, ctx: NodeContext, index: MessageIndex) -> dict[int, Finding]:
        """Look for fields among the elements of a list: an element with a damaged tag looks like that, or one that
        damage made of other bytes.

        Warn of one that the type does not have. If all writers of the format write fields `in_order`, return what is
        wrong with a list by its number: those behind any other field may have other numbers.
        """
        wrong: dict[int, Finding] = {}
        for part in index.parts:
            if not isinstance(part, PartScan) or part.type is None:
                continue
            fields = part.type.fields
            strays = [(key, slot.offsets[0]) for key, slot in part.slots.items() if self.in_order or key not in fields]
            known = [fields[key] for key in fields if key in part.slots] if strays else []
            lists = [field for field in known if field.repeated and is_message(field)]
            for field, (key, at) in product(lists, strays):
                run = part.slots[field.number]
                if not run.offsets[0] < at < run.last or key == field.number:
                    continue
                offset, _ = self.make.place(part.part.data, at, at)
                name = f"field {key}" if key >= 0 else f"field {~key >> 3} of wire type {~key & 7}"
                why = "stands apart from them" if key in fields else f"is none of {part.type.full_name}"
                reason = f"{name} is among the elements of {field.name}, but {why}"
                severity = Severity.ERROR if self.in_order else Severity.WARNING
                reason += ": probably an element with a damaged tag, so that those behind it have other numbers"
                self.note(_STRAY, reason, offset, severity=severity, path=ctx.node.path)
                if self.in_order:
                    wrong.setdefault(field.number, self.make.finding(_STRAY, reason, offset, path=ctx.node.path))
        return wrong

    # -- lists and maps ----------------------------------------------------------------------------------------------

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the elements of a list or the keys of a map."""
        origin: Origin = node.note
        if not origin.contributions:
            return False
        if node.shape == MAP:
            from pparse.parsers.protobuf.lists import map_entries

            for entry in map_entries(self.make, origin):
                index.add_entry(entry)
            index.account()
        else:
            found = ListIndex(self.make, origin)
            index.keep(found, found.count)
            for reason, offset, cut in found.problems[:1]:
                self.damage(node, reason, offset, cut=cut)
        if node.known_status is None:
            self.result.close_node(node, Status.COMPLETE, None)
        return True

    def damage(self, node: Node, reason: str, offset: int | None = None, *, cut: bool = False, **more: Any) -> None:
        """Mark ``node`` DAMAGED, or truncated (``cut``), for ``reason``; ``more`` as in `pparse.findings.Finding`."""
        at, status = node.start if offset is None else offset, cut_status(damaged=not cut)
        self.result.close_node(node, status, self.make.finding(status.code, reason, at, path=node.path, **more))

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries of fields, elements or keys."""
        if isinstance(index.note, ListIndex):
            found = index.note.entries(first, count)
            stray = self.stray_in(node)
            for entry in found:
                if stray is not None and entry.start > (stray.offset or 0) and entry.status in (None, Status.COMPLETE):
                    entry.status, entry.finding = Status.DAMAGED, stray
            return found
        return (index.entries or [])[first : first + count]

    def stray_in(self, node: Node) -> Finding | None:
        """Return the finding on a field among the elements of a list; None if there is none.

        Those behind it may have other numbers.
        """
        found = node.finding if node.known_status is Status.DAMAGED else None
        return found if found is not None and found.code == _STRAY else None

    def load_scalar(self, node: Node) -> Any:
        """Return a scalar's value."""
        origin: Origin = node.note
        field = origin.field
        length = sum(len(part) for part in node.parts)
        self.result.extraction.session.limits.check("scalar_bytes", length, "the value", path=node.path)
        payload = b"".join(part.data.read_exact(part.start, len(part)) for part in node.parts)
        if origin.text and field is not None:
            from pparse.parsers.cpb.scalars import decode_scalar

            return named(field, decode_scalar(payload, field))
        if field is not None:
            return decode(field, field.wire_type, payload)
        if node.kind in _WIRES:
            return decode(None, _WIRES[node.kind], payload)
        return decode_text(payload) if node.kind == "text" else payload

    def json_form(self, node: Node) -> Any:
        """Return a node with a schema in the JSON form of protocol buffers."""
        from pparse.parsers.protobuf.json_form import json_form

        return json_form(node)

    # -- everything --------------------------------------------------------------------------------------------------

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Check everything: sound messages in one pass over their bytes, the others node by node."""
        return TreeCheck(self).run()

    def resolve(self, node: Node) -> None:
        """Determine the status of a node; for text, whether it is valid for its field."""
        if node.shape != SCALAR:
            super().resolve(node)
            return
        try:
            node.load()
        except LimitError as error:
            self.result.note_limit(node, error)
        except (MalformedError, EndOfDataError) as error:
            self.damage(node, error.reason, error.offset)

    # -- what the commands show --------------------------------------------------------------------------------------

    def missing(self) -> int | None:
        """Return how many bytes of a truncated message are missing at least: those of its last field."""
        finding = self.result.root.finding
        if finding is None or finding.code != "truncated":
            return None
        wanted, got = finding.wanted, finding.got
        return wanted - got if isinstance(wanted, int) and isinstance(got, int) and wanted > got else None

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`."""
        root = self.result.root
        yield "message", self.root_type.full_name if self.root_type is not None else "of unknown type"
        names = [str(entry.key) for _, entry in zip(range(40), root.index_to(None).entries or [], strict=False)]
        yield "fields", ", ".join(names) or "none"


class MessageParser(ProtobufParser):
    """Base of the parsers of files that are one message of the type ``message_name``.

    There is no magic number: all fields at the beginning must be fields of the type, down to three levels. The states
    are those of a message.
    """

    name = ""
    is_generic = False
    named_is_enough = False
    refines: ClassVar[tuple[str, ...]] = ("protobuf",)
    options: ClassVar[dict[str, str]] = {}
    others: ClassVar[tuple[str, ...]] = ()
    """How files of other formats are named whose messages have messages of this type in them."""

    @classmethod
    def shows(cls, head: bytes, type: MessageType) -> bool:
        """Return whether a beginning whose fields fit shows that it is of this type, and not of a similar one."""
        return True

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY if all fields at the beginning belong to the type; with the usual name (or, if any will do, one of the
        extensions), if some of them do: it may be damaged there."""
        from pparse.protos import schema

        head = excerpt.head(HEAD)
        size = excerpt.size
        whole = size is not None and size <= len(head)
        type = schema().message(cls.message_name or "")
        named = excerpt.ends_with(cls.usual_names or cls.extensions)
        if whole and len(head) <= SLACK:  # too short for more than to see that its fields are of the type
            fitting = fits(head, type, complete=True) or (named and fitting_tags(head, type) > 0)
        else:
            fitting = bool(head) and (fits(head, type, complete=False) or (whole and fits(head, type, complete=True)))
        if fitting and (named or cls.shows(head, type)):
            return Confidence.LIKELY
        if not named:
            return Confidence.NO
        if fitting_tags(head, type) >= _FITTING:
            return Confidence.LIKELY
        # A message in another must not be taken for a file that lost its beginning.
        other = excerpt.ends_with(cls.others)
        goes_on = not other and goes_on_fitting(head, type, _FITTING_BEHIND, complete=whole)
        return Confidence.LIKELY if goes_on else Confidence.NO


# -- checks ------------------------------------------------------------------------------------------------------------


class _CheckLevel:
    """One level of a check: the nodes still to check, and their ``owner``, the message or list that has them.

    ``sound``: whether the owner's bytes are; None: they alone do not decide. ``explained``: an error was found below
    it. ``known``: bytes that were scanned, up to the field at fault: data, start, and its offset.
    """

    __slots__ = ("explained", "known", "nodes", "owner", "sound")

    def __init__(
        self, nodes: Iterator[Node], owner: Node | None, sound: bool | None, known: tuple[Data, int, int] | None
    ) -> None:
        self.nodes = nodes
        self.owner = owner
        self.sound = sound
        self.known = known
        self.explained = False


class TreeCheck:
    """Checks the tree of a parser: sound messages by their bytes, the others node by node."""

    def __init__(self, parser: ProtobufParser) -> None:
        self._parser = parser
        self._result = parser.result
        session = parser.result.extraction.session
        self._checker = Checker(session.check_cancelled, session.budget)
        self._kept = session.kept_block
        self._lists: dict[str, bool] = {}

    def run(self) -> Iterator[Visit]:
        """Yield a visit of each node that was checked; findings are added to its node."""
        levels = [_CheckLevel(iter((self._result.root,)), None, None, None)]
        while levels:
            level = levels[-1]
            try:
                node = next(level.nodes, None)
            except LimitError as error:  # the children cannot be read within the limits
                level.explained, node = True, None
                if level.owner is not None:
                    self._note(level.owner, error)
            if node is None:
                levels.pop()
                yield from self._close(level, levels)
                continue
            below = self._look(node, level)
            visit = Visit.of(node, node.depth)
            explained = visit.status not in (None, Status.COMPLETE)
            level.explained = level.explained or explained
            if below is not None:
                levels.append(below)
                below.explained = explained
            yield visit

    def _note(self, node: Node, error: LimitError) -> None:
        """Add a finding that a limit prevented the check; the node stays readable."""
        self._parser.note("limit", error.reason, node.start, path=node.path, wanted=error.wanted, got=error.got)

    def _close(self, level: _CheckLevel, above: list[_CheckLevel]) -> Iterator[Visit]:
        owner = level.owner
        if level.sound is False and not level.explained and owner is not None:
            # Everything that the tree shows is whole: the damage is in bytes that it skips.
            self._parser.damage(owner, "its bytes are damaged, but no field that is shown is")
            yield Visit.of(owner, owner.depth)
        if above and (level.explained or level.sound is False):
            above[-1].explained = True

    def _look(self, node: Node, level: _CheckLevel) -> _CheckLevel | None:
        """Check one node; return the level of its children if they must be checked."""
        try:
            if node.shape == SCALAR:
                if node.known_status is None and not level.sound:
                    self._parser.resolve(node)
                return None
            try:
                sound = level.sound or self._is_sound(node, level)
            except LimitError as error:  # a limit on its bytes: the rest stays readable
                self._note(node, error)
                sound = None
            if sound and not self._has_order(node):
                return None
            node.index_to(1)
        except LimitError as error:
            self._result.note_limit(node, error)
            return None
        return _CheckLevel(iter(node.children()), node, sound, level.known)

    def _has_order(self, node: Node) -> bool:
        """Say whether sound bytes do not decide: fields may stand among the elements of a list in it, or below it.

        What is in the elements of a long list is left to who reads them: it moves no other element.
        """
        origin: Origin = node.note
        if not self._parser.in_order or (node.shape == LIST and len(node) > _LOOKED_INTO):
            return False
        type = origin.type if origin.type is not None else origin.field.message if origin.field is not None else None
        return type is not None and self._has_lists(type)

    def _has_lists(self, type: MessageType) -> bool:
        """Say whether a message has lists of messages, or one in it that is no element has."""
        found = self._lists.get(type.full_name)
        if found is None:
            self._lists[type.full_name] = False  # for types that have themselves
            messages = [field for field in type.fields.values() if is_message(field) and not field.is_map]
            found = self._lists[type.full_name] = any(
                field.repeated or (field.message is not None and self._has_lists(field.message)) for field in messages
            )
        return found

    def _is_sound(self, node: Node, level: _CheckLevel) -> bool | None:
        """Say whether a message needs no closer check: all its bytes exist and agree with the schema.

        None if the bytes alone do not decide. Bytes scanned on a level above are not scanned again.
        """
        origin: Origin = node.note
        if origin.field is None and origin.type is None:
            return True if self._is_small(node) else None
        if origin.type is None or origin.contributions or node.known_status not in (None, Status.COMPLETE):
            return None
        ranges = [piece for piece in origin.pieces if isinstance(piece, Range)]
        for part in ranges:
            if part.end > self._parser.make.data_end(part):
                return False
            known = level.known
            if known is not None and known[0] is part.data and known[1] <= part.start:
                if part.end <= known[2]:
                    continue
                if part.start <= known[2]:
                    return False  # it contains the field at fault
            if not self._checker.sound(part, origin.type):
                level.known = (part.data, part.start, self._checker.stopped)
                read = self._checker.last_read
                if read is not None and read[:3] == (part.data, part.data.revision, part.start):
                    self._kept.keep(part.data, *read[2:])  # now it is read by the engine
                return False
            if isinstance(part, ChunkRange) and part.type > 1:
                return False
        # With overlay entries, the bytes are not everything.
        return True if ranges and len(ranges) == len(origin.pieces) else None

    def _is_small(self, node: Node) -> bool:
        """Say whether a message or group of unknown type, or each element of such a list, is whole and small.

        Then nothing in it can be wrong, and nobody has to guess what it is: it is a message only if it is one to its
        last byte, and so are those in it (`pparse.kernels.wire_guess.guess`, which looks at so many fields); of a group
        all tags were read to find its end.
        """
        from pparse.kernels.wire_guess import MAX_FIELDS

        extraction = self._result.extraction
        limits = extraction.session.limits
        # A level of nodes takes two bytes, a child one.
        most = min(MAX_FIELDS, 2 * (limits.depth - node.depth - 2), limits.entries)
        if most < 0 or node.parent is None or extraction.data.flawed or self._parser.make.types:
            return False
        origin: Origin = node.note
        if not origin.contributions:
            alone = origin.pieces[0] if len(origin.pieces) == 1 else None
            return type(alone) is Range and node.known_status is None and len(alone) <= most
        try:
            for contribution in origin.contributions:
                if isinstance(contribution, OverlayField) or contribution[1].count > limits.entries:
                    return False
                scan, slot = contribution
                end = min(scan.part.end, self._parser.make.data_end(scan.part))
                for number, field in enumerate(scan.fields(origin.key, 0, scan.window(self._kept), slot)):
                    if not number & 0xFFF:
                        extraction.session.check_cancelled()
                    length = field.end - field.start
                    if field.end > end or length > most:
                        return False
        except (MalformedError, EndOfDataError, GapError):
            return False
        return True


# -- the schema --------------------------------------------------------------------------------------------------------


def find_type(options: Mapping[str, object], default: str | None, limits: Limits) -> MessageType | None:
    """Return the message type that the options ``message`` and ``descriptor`` name; None if they name none.

    ``default`` is the type of a format that is a single message. ``descriptor`` is a `Schema`, the bytes of a
    FileDescriptorSet, its path, or the path of a Riegeli file whose metadata have descriptors (and name the type).
    Raise `OptionError` if the type is not found.
    """
    name = options.get("message", default)
    source = options.get("descriptor")
    if source is None:
        if name is None:
            return None
        from pparse.protos import schema as builtin_schema

        try:
            return builtin_schema().message(str(name))
        except PathError as error:
            raise OptionError(
                f"{name}: {error.reason}; give the descriptors of your own types with "
                f"{spoken('-O descriptor=FILE')} (protoc --include_imports --descriptor_set_out=FILE)"
            ) from error
    schema, found = _schema_in(source, limits)
    name = name or found
    if name is None:
        names = sorted(schema.message_names())
        if len(names) != 1:
            shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
            raise OptionError(f"name the message type with {spoken('-O message=NAME')}; types: {shown or 'none'}")
        name = names[0]
    return schema.message(str(name))


def _schema_in(source: object, limits: Limits) -> tuple[Schema, str | None]:
    """Return the schema in ``source``, and the type that it names, if any."""
    if isinstance(source, Schema):
        return source, None
    if isinstance(source, bytes):
        return Schema(source), None
    from pparse.data.files import open_file
    from pparse.riegeli.chunks import FILE_SIGNATURE

    with open_file(str(source)) as data:
        try:
            if data.pread(0, len(FILE_SIGNATURE)) == FILE_SIGNATURE:
                return _from_riegeli(str(source))
            limits.check("header_bytes", data.size or 0, "the descriptor set")
            return Schema(data.read_exact(0, data.size or 0)), None
        except MalformedError as error:
            raise OptionError(f"{source} is not a FileDescriptorSet: {error.reason}") from error


def _from_riegeli(path: str) -> tuple[Schema, str | None]:
    from pparse.riegeli import RecordReader
    from pparse.riegeli.metadata import fields

    with RecordReader(path) as reader:
        metadata = reader.read_serialized_metadata() or b""
    found = [(number, value) for number, value in fields(metadata) if isinstance(value, bytes)]
    files = [value for number, value in found if number == _FILE_DESCRIPTOR]
    if not files:
        raise OptionError(f"the metadata of {path} have no descriptors of its records")
    names = [value.decode("utf-8", "replace") for number, value in found if number == _TYPE_NAME]
    return Schema.from_descriptors(files), names[-1] if names else None


# -- bytes and options -------------------------------------------------------------------------------------------------


def _is_loose(part: Range) -> bool:
    """Return whether a gap of unknown length begins in a part."""
    loose = part.data.loose_gap(part.start) if part.data.gaps else None
    return loose is not None and loose < part.end


def _likenesses(scan: PartScan, number: int, first: int, window: WireWindow) -> Iterator[int]:
    """Yield 1 for each element of a list, from number ``first`` on, that looks like one by its first bytes."""
    type: Any = scan.type
    try:
        for field in scan.fields(number, first, window):
            head = window.read(field.start, min(field.end, field.start + HEAD, scan.part.end))
            if fits(head, type.fields[number].message, complete=len(head) == field.end - field.start):
                yield 1
    except (MalformedError, EndOfDataError, GapError):
        return  # the last one: its entry tells


def _all_continue(head: bytes) -> bool:
    """Say whether these bytes are the beginning of a varint that continues after them."""
    return bool(head) and min(head) >= 0x80


def _parse_types(text: object) -> dict[tuple[int, ...], str]:
    """Parse the option ``types``: kinds by path of field numbers. Raise `OptionError` if it is invalid."""
    found: dict[tuple[int, ...], str] = {}
    if text is None:
        return found
    for item in str(text).split(","):
        meant = _TYPE.fullmatch(item)
        if meant is None:
            raise OptionError(f"the option types takes items like 1.2=message, 3=text, 4=bytes, not {item!r}")
        found[tuple(map(int, meant[1].split(".")))] = meant[2]
    return found
