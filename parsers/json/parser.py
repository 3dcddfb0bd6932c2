"""JSON documents, strictly (RFC 8259), of any size.

States of a container (``{`` or ``[`` at the node's start)::

    state            reads                                   goes to
    expect_children  text up to the end of the block;        itself, until the closing bracket: DONE
                     a child is visible once the comma
                     or bracket behind it is seen

A child is the text between two commas at depth 1, and the first bracket that closes at depth 1 ends the container,
whichever it is (`pparse.kernels.json_fold.scan`): the wrong one is damage (`JsonParser._close`). A comma right before
it is damage, too, and makes no child. Any depth is scanned flat. Grammar is checked where text is decoded: a child that
is not JSON is a DAMAGED node of kind ``invalid`` (or of its own kind, if it is a container closed by the wrong
bracket), and its neighbours stay whole.

If quotes, brackets or commas are damaged, `pparse.parsers.json.mend` finds the members that can still be identified,
once per document; containers with a fault in them are DAMAGED and get their children from there. For a text of up to
256 KiB this is known before the first child is shown; for a longer one, once a fault is met.

A cut container is TRUNCATED and has every child before the cut. The child at the cut is included if its key is whole:
COMPLETE if its end is there, TRUNCATED if not (a number at the cut may continue).
"""

from __future__ import annotations

import json
import sys
from array import array
from itertools import islice, pairwise

from pparse.data.base import Access
from pparse.data.range_status import cut_status
from pparse.data.trailing_bytes import trailing_severity
from pparse.errors import DataError, EndOfDataError, GapError, LimitError, MalformedError, OptionError, UnsupportedError
from pparse.findings import UNSURE_NUMBER, Finding, Severity, Status
from pparse.kernels import json_fold
from pparse.kernels.json_fold import Carry
from pparse.parsers.json.damage import Damage, is_odd
from pparse.parsers.json.record import BELOW, Mended
from pparse.parsers.json.text import (
    BLANK,
    BOM,
    BORN_LOADED,
    CLOSER,
    DECODE_BATCH,
    KEY,
    KINDS,
    NOT_FINITE,
    NUMBER_START,
    STRING,
    WHITESPACE,
    ChildText,
    StrictDecoder,
    decode_key,
    describe_child,
    fault_code,
    key_hash,
)
from pparse.paths import KeyStep
from pparse.tree.context import DONE, NodeContext
from pparse.tree.engine import GROUP, largest_block
from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.parser import Confidence, Parser, signatures
from pparse.tree.visit import Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar, Final

    from pparse.paths import OrdinalStep
    from pparse.tree.context import State
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result


# Children with longer text are described from its two ends.
_WHOLE_CHILD: Final = 4 << 10
_HEAD: Final = 512
GROUP_READ: Final = 256 << 10


# numpy takes 16 MB and 80 ms to import: worth it from this size on, or if it is imported already.
_NUMPY_FROM: Final = 4 << 20
_GROUP_TEXT: Final = 4 << 20
# From this size on, the text of a value is made without the value.
_REWRITTEN_FROM: Final = 1 << 20


class IndexScan:
    """State of an index scan from block to block: ``pending`` is where the last, unfinished child begins."""

    __slots__ = ("carry", "kernel", "pending")

    def __init__(self, kernel: Callable[[bytes, int, Carry, int, array[int]], int], first: int) -> None:
        self.kernel, self.carry, self.pending = kernel, Carry(), first


_DIGITS: Final = tuple(b"%d" % digit for digit in range(10))


class JsonParser(Parser):
    """A JSON document."""

    name = "json"
    description = "JSON document"
    extensions: ClassVar[tuple[str, ...]] = (".json",)
    empty_is_nothing = True
    signatures = signatures(b"{", b"[", b" ", b"\t", b"\n", b"\r", b'"', BOM, b"-", b"t", b"f", b"n", *_DIGITS)
    is_generic = True
    media_type = "application/json"
    references: ClassVar[tuple[str, ...]] = ("RFC 8259",)
    limitations: ClassVar[tuple[str, ...]] = (
        "one document per file: what follows the first value is reported, not parsed",
        "UTF-8 only (RFC 8259 §8.1)",
        "numbers beyond float64, or of more than 4,300 digits, are UNSUPPORTED",
    )
    options = {"kernel": "how to scan: auto (default), numpy or stdlib"}
    shapes: ClassVar[dict[str, str]] = {"object": MAP, "array": LIST}
    separators: ClassVar[dict[str, int]] = {}
    """How many bytes stand between the children of containers, where that is not one, by their kind."""
    notes_findings = True

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.decoder = StrictDecoder(result.extraction.session.limits)
        self.decoder.is_lenient = True
        # Pattern of the members of the first level with their keys, if a format has one: finds them behind damage.
        self.member: re.Pattern[bytes] | None = None
        self.is_all_there = False  # the text has its full length: if it ends early, it was damaged
        self.headless: Finding | None = None  # set if the text lacks its first bracket
        self.damage = Damage(self)
        self._kernel = str(result.extraction.session.options.get("kernel", "auto"))
        if self._kernel not in ("auto", "numpy", "stdlib"):
            raise OptionError(f"option kernel must be auto, numpy or stdlib, not {self._kernel!r}")

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY for text that begins as an object or array does, POSSIBLE for a lone scalar."""
        head = excerpt.head(4096)
        text = head.removeprefix(BOM).lstrip(WHITESPACE)
        if not text:
            return Confidence.NO
        if text[0] in b"{[":
            follower = text[1:].lstrip(WHITESPACE)[:1]
            plausible = b'"}' if text[0] == 0x7B else b'"{[]-0123456789tfnNI'
            return Confidence.LIKELY if not follower or follower in plausible else Confidence.NO
        if len(head) == 4096:
            # JSON strings have no line breaks; much other text that begins with a quote has.
            return Confidence.POSSIBLE if text[0] == 0x22 and b"\n" not in text else Confidence.NO
        try:
            json.loads(text)
        except ValueError:
            return Confidence.NO
        return Confidence.POSSIBLE

    # -- the root ----------------------------------------------------------------------------------------------------

    def first_text(self) -> Entry | tuple[int, bytes]:
        """Return where the first value begins, after whitespace and a byte order mark, and how; or what is there
        instead of JSON text."""
        extraction = self.result.extraction
        start = pos = extraction.start
        data, size = extraction.data, extraction.find_end()
        block = data.pread(pos, min(4096, max(0, size - pos)))
        if block.startswith(BOM):
            reason = "a byte order mark, which JSON text must not have (RFC 8259 §8.1)"
            self.note("byte-order-mark", reason, pos, 3, severity=Severity.WARNING)
            pos += 3
            block = block[3:]
        elif self.member is None and (
            block[:2] in (b"\xff\xfe", b"\xfe\xff")
            or (any(block[:4]) and b"\0\0" in (block[0:3:2], block[1:4:2]))  # ASCII in two or four bytes a character
        ):
            finding = self.note("malformed", "the text is UTF-16 or UTF-32; JSON is UTF-8 (RFC 8259 §8.1)", pos, 2)
            return Entry(None, "invalid", start, size, status=Status.DAMAGED, finding=finding)
        elif BOM.startswith(block):
            block = b""  # a cut mark
        step = 4096
        while block and not (text := block.lstrip(WHITESPACE)):
            pos += len(block)
            step = min(step * 4, GROUP_READ)
            block = data.pread(pos, min(step, max(0, size - pos)))
        if not block:
            finding = self.note("truncated", "the document is empty", size)
            return Entry(None, "unknown", size, size, status=Status.TRUNCATED, finding=finding)
        return pos + len(block) - len(text), text

    def root_entry(self) -> Entry:
        """Find where the value of the document begins, and what it is."""
        first = self.first_text()
        if isinstance(first, Entry):
            return first
        (pos, text), size = first, self.result.extraction.find_end()
        kind = KINDS.get(text[0])
        if self.member is not None and kind != "object":
            return self._damaged_object(pos, text)
        if kind is None:
            finding = self.note("malformed", "expected a value", pos)
            return Entry(None, "invalid", pos, size, status=Status.DAMAGED, finding=finding)
        if kind in CLOSER:
            return Entry(None, kind, pos, None, status=None)
        return self._root_scalar(kind, pos, size)

    def _root_scalar(self, kind: str, pos: int, end: int) -> Entry:
        end = self.without_blanks(pos, end)
        if end - pos > DECODE_BATCH:
            if kind == "string":
                return Entry(None, kind, pos, end, status=None)
            excess = self.note("malformed", f"more data than a {kind} can have", pos, end - pos)
            return Entry(None, "invalid", pos, end, status=Status.DAMAGED, finding=excess)
        text = self.result.extraction.data.read_exact(pos, end - pos)
        status, value = Status.COMPLETE, UNLOADED_VALUE
        finding: Finding | None = None
        try:
            value = self.decoder.decode(text, pos)
            if self.decoder.odd_numbers:
                self.note("not-finite", NOT_FINITE, pos, end - pos, severity=Severity.WARNING)
        except (LimitError, UnsupportedError) as error:
            status, finding = Status.UNSUPPORTED, self.note(fault_code(error), error.reason, pos, end - pos)
        except DataError as error:
            if kind == "string":
                cut = STRING.match(text) is None
            elif kind == "number":
                cut = NUMBER_START.fullmatch(text) is not None
            else:
                cut = kind.encode().startswith(text)
            status = cut_status(damaged=not cut)
            finding = self.note(status.code, error.reason, error.offset or pos)
        return Entry(None, kind, pos, end, value, status, finding)

    def _damaged_object(self, pos: int, text: bytes) -> Entry:
        """Return the root for a format whose text must be an object, and whose opening brace is damaged."""
        assert self.member is not None  # noqa: S101 -- the caller looked
        if self.member.search(text) is None:
            kind = KINDS.get(text[0], "invalid")
            if kind in CLOSER:
                return Entry(None, kind, pos, None, status=None)
            return Entry(None, kind, pos, self.result.extraction.find_end(), status=Status.DAMAGED)
        self.headless = self.note("malformed", "expected '{'", pos, 1)
        return Entry(None, "object", pos - text.startswith(b'"'), None, status=None)

    # -- states ------------------------------------------------------------------------------------------------------

    def begin(self, ctx: NodeContext) -> tuple[int, State, int]:
        """Begin after the opening bracket."""
        first = ctx.node.start + 1
        ctx.scratch = IndexScan(self._choose_kernel(ctx.node), first)
        return first, self.expect_children, 1

    def expect_children(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Index every child that ends in the block."""
        scan: IndexScan = ctx.scratch
        index = ctx.index
        if not self.damage.is_known and is_odd(block) and self.damage.mended() and self.damage.remake(ctx):
            return ctx.pos, DONE, 0
        found = array("q")
        closed = scan.kernel(block, ctx.pos - base, scan.carry, base, found)
        if found:
            starts = array("q", [scan.pending])
            starts.extend(found[:-1])
            first = index.count
            self.result.extraction.session.limits.check("entries", first + len(starts), "the number of children")
            index.add_many(starts)
            scan.pending = found[-1]
            self.look_at(ctx, block, base, starts)
            if ctx.wanted_occurrence:
                self._look_for_key(ctx, block, base, starts, first)
        if closed < 0:
            return base + len(block), self.expect_children, 1
        self._close(ctx, block[closed], base + closed)
        return base + closed + 1, DONE, 0

    def look_at(self, ctx: NodeContext, block: bytes, base: int, starts: array[int]) -> None:
        """Look at children that were just indexed, and begin at ``starts``; for formats that judge them at once."""

    def _close(self, ctx: NodeContext, bracket: int, offset: int) -> None:
        """Index the last child, and check the bracket that closes the container at ``offset``."""
        scan: IndexScan = ctx.scratch
        index, node = ctx.index, ctx.node
        index.end = offset
        start, scan.pending = scan.pending, offset + 1
        if self.skip_blank(start, offset) < offset:
            index.add(start)
            if ctx.wanted_occurrence:
                raw = self.result.extraction.data.pread(start, min(offset - start, GROUP_READ))
                self._look_for_key(ctx, raw, start, array("q", [start]), index.count - 1)
        elif index.count:
            index.end = start - 1  # the last child ends at the comma
            self.note_damage(node, MalformedError("a comma before the closing bracket", offset=start - 1))
        if bracket != CLOSER[node.kind]:
            self.note_damage(node, MalformedError(f"the {node.kind} is closed by {chr(bracket)!r}", offset=offset))

    def _look_for_key(self, ctx: NodeContext, block: bytes, base: int, starts: array[int], first: int) -> None:
        for ordinal, start in enumerate(starts, first):
            match = KEY.match(block, start - base) if start >= base else None
            key: Key
            if match is None:  # the key spans two blocks, or is missing
                key = self.result.lone_entry(ctx.node, ordinal).key
            else:
                try:
                    key = decode_key(match[1], start, self.decoder)
                except DataError:
                    key = None  # its entry tells why
            self._count_hit(ctx, ordinal, key)

    @staticmethod
    def _count_hit(ctx: NodeContext, ordinal: int, key: Key) -> None:
        """Note the child that is looked for, if this is it."""
        if key == ctx.wanted_key:
            ctx.wanted_occurrence -= 1
            if not ctx.wanted_occurrence:
                ctx.answer = ordinal

    def finish(self, ctx: NodeContext) -> None:
        """Close the node; only whitespace may follow, up to its end or that of the document."""
        node = ctx.node
        if node.known_status is Status.DAMAGED and self.damage.remake(ctx):
            return
        if node.end is not None:
            if ctx.pos < node.end:
                if self.damage.remake(ctx):
                    return
                self.note_damage(node, MalformedError("more data after the value", offset=ctx.pos))
        elif node.parent is None:
            self._check_trailing(ctx.pos)
            if self.damage.flaw is not None and node.known_status is None:
                self.result.close_node(node, Status.DAMAGED, self.damage.flaw, told=True)  # each fault has its own node
        super().finish(ctx)

    def cut(self, ctx: NodeContext) -> None:
        """Close the node with what comes before the cut."""
        if self.damage.remake(ctx):
            return
        self._keep_last(ctx, self.result.extraction.find_end(ctx.node))
        super().cut(ctx)

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, State, int] | None:
        """Treat a gap as damage; the node ends at a gap of unknown length."""
        if error.offset is not None and not self.damage.remake(ctx):
            self._keep_last(ctx, error.offset)
            self.result.close_node(ctx.node, Status.DAMAGED, None, end=error.offset)
        return None

    def _keep_last(self, ctx: NodeContext, end: int) -> None:
        """Index the child in which the text ends, at ``end``, if at least its key is whole."""
        scan: IndexScan = ctx.scratch
        index = ctx.index
        index.end = end
        index.note = scan.carry.depth > 1 or bool(scan.carry.in_string)
        is_map = ctx.node.kind == "object"
        entry = None
        if scan.pending < end:  # otherwise a gap begins there, and the child cannot be read
            text = self.child_text(scan.pending, end, is_map)
            text.closed, text.open_inside = False, index.note
            entry = describe_child(text, is_map, self.decoder, self.result.extraction.name)
        if entry is not None:
            index.add(scan.pending)
            if ctx.wanted_occurrence:
                self._count_hit(ctx, index.count - 1, entry.key)
        else:
            index.note = None
            index.end = max(ctx.node.start + 1, scan.pending - 1)  # the last whole child ends at the comma

    def _check_trailing(self, pos: int) -> None:
        end, severity = self.result.extraction.find_end(), trailing_severity("document")
        try:
            pos = self.skip_blank(pos, end)
            if pos < end:
                more = " (JSON lines?)" if self.result.extraction.data.pread(pos, 1) in (b"{", b"[") else ""
                reason = f"more data after the document{more}"
                self.note("trailing-data", reason, pos, end - pos, severity=severity)
        except GapError as gap:
            self.note("trailing-data", "a gap after the document", gap.offset or pos, severity=severity)

    def _choose_kernel(self, node: Node) -> Callable[[bytes, int, Carry, int, array[int]], int]:
        size, wanted = self.result.extraction.find_end(node) - node.start, self._kernel
        is_worth_it = size > 64 and (size > _NUMPY_FROM or "numpy" in sys.modules)
        if wanted == "stdlib" or (wanted == "auto" and not is_worth_it):
            return json_fold.scan
        from pparse.kernels import json_numpy

        self.block_factor = 24
        return json_numpy.scan

    # -- children ----------------------------------------------------------------------------------------------------

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Describe children from their text."""
        found = self._entries(node, index, first, count)
        return [self.damage.doubted(entry) for entry in found] if self.damage.unsure else found

    def _entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        if isinstance(index.note, Mended):
            return self.damage.entries(node, index.note, first, count)
        entries: list[Entry] = []
        for ordinal, (entry, wrong) in enumerate(self._describe(node, index, first, count), first):
            if wrong is not None:
                if self.damage.take(node, index):
                    return self.damage.entries(node, index.note, first, max(0, min(ordinal + 1, index.count) - first))
                hidden = self.result.findings.omitted or wrong is not entry.finding  # the value itself is sound
                path = "" if hidden else self.damage.line.below(node, ordinal, entry.key)
                self.note(wrong.code, wrong.reason, wrong.offset or entry.start, None, path=path)
            entries.append(entry)
        return entries

    def _describe(
        self, node: Node, index: ChildIndex, first: int, count: int
    ) -> Iterator[tuple[Entry, Finding | None]]:
        """Yield the entries of some children by commas and brackets, and what is wrong with each, without a path."""
        bounds = self._bounds(node, index, first, count)
        if index.stride == 1:
            # Fewer at a time if they are large: keys of a megabyte each would add up.
            while count > 1 and bounds[count] - bounds[0] > _GROUP_TEXT:
                count -= 1
            del bounds[count + 1 :]
        is_map, separator = node.kind == "object", self.separators.get(node.kind, 1)
        block, base = b"", bounds[0]
        if bounds[-1] - bounds[0] <= GROUP_READ and not self.result.extraction.data.gaps:
            block = self.result.extraction.data.pread(base, bounds[-1] - separator - base)
        for number in range(count):
            start, end = bounds[number], bounds[number + 1] - separator
            if block:
                text = ChildText(block[start - base : end - base], start, end)
            else:
                text = self.child_text(start, end, is_map)
            if index.note is not None and first + number == index.count - 1:
                text.closed, text.open_inside = False, index.note
            entry = self.describe(node, text)
            wrong = entry.finding if entry.status is Status.DAMAGED else None
            if text.zeros and wrong is None:
                wrong = Finding("malformed", "zeros follow the value", offset=text.stop)
            yield entry, wrong

    def describe(self, node: Node, text: ChildText) -> Entry:
        """Return the entry of the child of ``node`` that has this text."""
        entry = describe_child(text, node.kind == "object", self.decoder, self.result.extraction.name)
        assert entry is not None  # noqa: S101 -- None only for a cut child, which cut() did not index
        return entry

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index a damaged container from what is known about it; return False for any other."""
        return self.damage.fill(node, index)

    def path_of(self, node: Node) -> str:
        """Return the path of ``node`` for a finding."""
        return self.damage.line.path(node)

    def step_to(self, parent: Node, ordinal: int, key: Key) -> KeyStep | OrdinalStep:
        """Return the path step to a child, without asking for entries: their findings would ask for paths again."""
        if parent.kind != "object" or not isinstance(key, str) or ordinal >= GROUP:
            return super().step_to(parent, ordinal, key)  # by the hashes of keys, if by anything
        with self.lock:
            index = parent.index_to(ordinal + 1)
            group = index.group
            if group is not None and not group[0] and len(group[1]) >= ordinal:
                return KeyStep(key, 1 + sum(entry.key == key for entry in group[1][:ordinal]))
            return KeyStep(key, 1 + sum(found == key for found in self._keys(parent, index, 0, ordinal)))

    def _keys(self, node: Node, index: ChildIndex, first: int, stop: int) -> Iterator[Key]:
        """Yield the keys of the children from ``first`` to before ``stop``, without the paths of findings."""
        found: Iterator[Entry]
        while first < stop:
            self.result.extraction.data.check_unchanged()
            count = min(GROUP, stop - first)
            if isinstance(index.note, Mended):
                found = self.damage.describe(node, index.note, first, count)
            else:
                found = (entry for entry, _ in self._describe(node, index, first, count))
            for entry in found:
                yield entry.key
                first += 1

    def _bounds(self, node: Node, index: ChildIndex, first: int, count: int) -> array[int]:
        """Return where ``count`` children begin from child ``first`` on, and one past the end of the last."""
        last = first + count
        more = int(last < index.count)  # the next child tells where they end
        if index.stride == 1:
            bounds = index.offsets[first : last + more]
        else:
            ordinal, offset = index.checkpoint(first)
            after = ordinal // index.stride + 1
            size = index.offsets[after] - offset if after < len(index.offsets) else 8 << 10
            bounds = self._rescan(node, offset, last + more - ordinal, size)
            del bounds[: first - ordinal]
        if more:
            return bounds
        if index.complete:
            bounds.append(index.end + 1)
        else:
            scan: IndexScan = index.context.scratch
            bounds.append(scan.pending)
        return bounds

    def _rescan(self, node: Node, offset: int, count: int, size: int) -> array[int]:
        """Return where ``count`` children begin, the first at ``offset``, in about ``size`` bytes."""
        data, end = self.result.extraction.data, self.result.extraction.find_end(node)
        kernel, carry = self._choose_kernel(node), Carry()
        found = array("q", [offset])
        budget = self.result.extraction.session.budget
        largest = largest_block(budget, self.block_factor)
        pos, step = offset, min(size, largest)
        with budget.charge(largest * self.block_factor, "a scan block"):
            while len(found) < count and pos < end:
                block = data.pread(pos, min(step, end - pos))
                if not block or kernel(block, 0, carry, pos, found) >= 0:
                    break
                pos += len(block)
                step = min(step * 4, largest)
        del found[count:]
        return found

    # -- pieces ------------------------------------------------------------------------------------------------------

    def child_text(self, start: int, end: int, is_map: bool) -> ChildText:
        """Read the text of a child, or only the ends that `ChildText` needs if it is long."""
        data = self.result.extraction.data
        if end - start <= _WHOLE_CHILD:
            return ChildText(data.pread(start, end - start), start, end)
        size = _HEAD
        raw = data.pread(start, size)
        name_limit = self.result.extraction.session.limits.name_bytes
        # A gap ends what can be read.
        while is_map and KEY.match(raw) is None and size <= len(raw) < min(name_limit, end - start):
            size = min(8 * size, name_limit, end - start)
            raw = data.pread(start, size)
        skipped = 0
        match = KEY.match(raw) if is_map else BLANK.match(raw)
        if match is not None and len(raw) - match.end() < BORN_LOADED:
            value_at = self.skip_blank(start + match.end(), end)
            skipped = value_at - start - match.end()
            raw = raw[: match.end()] + data.pread(value_at, min(_HEAD, end - value_at))
        tail_at, tail, step = end, b"", 64
        while not tail.strip(WHITESPACE + b"\0") and tail_at > start:
            stop, tail_at = tail_at, max(start, tail_at - step)
            tail = data.pread(tail_at, stop - tail_at)
            step = min(step * 8, GROUP_READ)
        return ChildText(raw, start, end, tail, tail_at, skipped)

    def without_blanks(self, start: int, end: int) -> int:
        """Return where the text before ``end`` ends without trailing whitespace."""
        data = self.result.extraction.data
        while end > start:
            at = max(start, end - DECODE_BATCH)
            kept = data.pread(at, end - at).rstrip(WHITESPACE)
            if kept:
                return at + len(kept)
            end = at
        return end

    def skip_blank(self, start: int, end: int) -> int:
        """Return the offset of the first byte in ``[start, end)`` that is not whitespace; ``end`` if there is none."""
        data = self.result.extraction.data
        step = 256
        while start < end:
            block = data.pread(start, min(step, end - start))
            rest = block.lstrip(WHITESPACE)
            if rest or not block:
                return start + len(block) - len(rest)
            start += len(block)
            step = GROUP_READ
        return end

    # -- values ------------------------------------------------------------------------------------------------------

    def load_scalar(self, node: Node) -> Any:
        """Decode a scalar that was too long to be decoded with its parent."""
        limits, end = self.result.extraction.session.limits, self.result.extraction.find_end(node)
        text = b""
        try:
            limits.check("scalar_bytes", end - node.start, f"the {node.kind}", offset=node.start)
            if node.kind == "number":
                limits.check("number_bytes", end - node.start, "the number", offset=node.start)
            text = self.result.extraction.data.read_exact(node.start, end - node.start)
            return self.decoder.decode(text, node.start)
        except LimitError as error:
            self.result.note_limit(node, error)
            raise
        except MalformedError as error:
            if node.known_status is None and STRING.match(text) is None:  # the document is one long string
                finding = self.note("truncated", error.reason, end, None)
                self.result.close_node(node, Status.TRUNCATED, finding)
                raise EndOfDataError(error.reason, offset=node.start, source=finding.source) from error
            self.note_damage(node, error)
            raise

    def resolve(self, node: Node) -> None:
        """Check a long string piece by piece, without holding it, to find out its status."""
        size = self.result.extraction.find_end(node) - node.start
        if node.kind == "string" and size > DECODE_BATCH and not node.loaded:
            from pparse.parsers.json.walk import judge_string

            judge_string(self, node)
        else:
            node.load()

    @property
    def repeated_keys(self) -> int:
        """How many keys were met again in one object so far."""
        return self.decoder.duplicates

    def to_python(self, node: Node) -> Any:
        """Decode small, shallow text at once; go node by node otherwise."""
        limits = self.result.extraction.session.limits
        if node.end is not None and node.kind in CLOSER and node.known_status is Status.COMPLETE:
            size = node.end - node.start
            if size <= limits.leaf_bytes:
                text = self.result.extraction.data.read_exact(node.start, size)
                if json_fold.depth_at_most(text, limits.leaf_depth):
                    return self.decoder.decode(text, node.start)
        if node.kind in CLOSER:
            from pparse.parsers.json.walk import assemble

            return assemble(self, node)
        return super().to_python(node)

    def json_text(self, node: Node, indent: int | None, *, ensure_ascii: bool) -> Iterator[str] | None:
        """Return what yields the text of a large object or array, a piece at a time."""
        end = self.result.extraction.find_end(node)
        if node.kind not in CLOSER or end - node.start < _REWRITTEN_FROM:
            return None
        from pparse.parsers.json.walk import rewritten

        return rewritten(self, node, indent, ensure_ascii)

    def key_hashes(self, node: Node, first: int = 0, stop: int | None = None) -> Iterator[int]:
        """Yield the hashes of the keys, read from the text."""
        index = node.index_to(stop)
        stop = index.count if stop is None else min(stop, index.count)
        if isinstance(index.note, Mended):
            yield from map(hash, self._keys(node, index, first, stop))
            return
        data, decoder = self.result.extraction.data, self.decoder
        while first < stop:
            bounds = self._bounds(node, index, first, min(4096, stop - first))
            block, base, last = b"", bounds[0], bounds[-1] - 1
            for start, behind in pairwise(bounds):
                end = behind - 1
                if end - start > GROUP_READ:  # only its key is needed
                    yield key_hash(self.child_text(start, end, True).raw, decoder)
                    continue
                if end > base + len(block):
                    block, base = data.pread(start, min(GROUP_READ, last - start)), start
                yield key_hash(block[start - base : end - base], decoder)
            first += len(bounds) - 1

    def is_sound_inside(self, node: Node) -> bool | None:
        """Read the text of a container that is whole in damaged text, by brackets and commas, without nodes."""
        room = self._levels_for_text(node)
        whole = node.known_status is Status.COMPLETE or node.unsure_number
        if not self.damage.is_mended or node.end is None or not whole:
            return super().is_sound_inside(node)
        from pparse.parsers.json.walk import sound_end

        return room > 0 and sound_end(self, node, room) == node.end

    def _levels_for_text(self, node: Node) -> int:
        """Return how many levels below ``node`` can be read as text, so that no node in it would be too deep."""
        limits = self.result.extraction.session.limits
        return limits.depth - limits.leaf_depth - node.depth

    def children_in_doubt(self, node: Node) -> Iterator[Node]:
        """Yield the children of a damaged container, without those that are whole and of which many are read at once.

        Raises what `Node.index_to` does.
        """
        index = node.index_to(1)
        record = index.note
        if not isinstance(record, Mended) or self._levels_for_text(node) < 1:
            yield from node.children()
            return
        first, is_map = 0, node.kind == "object"
        while first < index.count:
            stop = record.end_of_run(first, DECODE_BATCH)
            if not self._are_sound(record, first, stop, is_map):
                yield from map(node.child, range(first, max(first + 1, stop)))
            first = max(first + 1, stop)

    def _are_sound(self, record: Mended, first: int, stop: int, is_map: bool) -> bool:
        """Return whether all is right in the children of a damaged container from ``first`` to before ``stop``."""
        if stop <= first:
            return False
        data, begin = self.result.extraction.data, record.starts[first]
        try:
            text = data.read_exact(begin, record.ends[stop - 1] - begin)
        except DataError:
            return False
        kids = (text[record.starts[at] - begin : record.ends[at] - begin] for at in range(first, stop))
        found = self.decoder.skim_members(b",".join(kids), is_map)
        return found is not None and len(found) == stop - first

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Read sound text once, and index nothing; any other as `walk` does."""
        root, extraction = self.result.root, self.result.extraction
        is_new = root.kind in CLOSER and root.known_status is None and root.index is None and self.headless is None
        if is_new and extraction.data.access is Access.FREE and not extraction.data.gaps:
            from pparse.parsers.json.walk import sound_end

            end = sound_end(self, root, extraction.session.limits.depth, flawless=True)
            if end is not None:
                self.result.close_node(root, Status.COMPLETE, None, end=end)
                yield Visit.of(root, 0)
                return
        yield from super().check(strict=strict)

    def walk(self, node: Node, *, detail: bool = True) -> Iterator[Visit]:
        """Read the document once, and check every byte of its grammar; if it is damaged, only what is whole at once."""
        if node.shape != SCALAR:
            node.index_to(None)
        if not self.damage.is_mended:
            yield from self._walk_text(node, detail)
            return
        for visit in super().walk(node, detail=detail):
            finding = visit.finding
            # Nodes below have findings of their own; uncertain numbers were reported once for all.
            if finding is not None and finding.reason != BELOW and finding.code != UNSURE_NUMBER:
                self.result.findings.add(finding)
            yield visit

    def _walk_text(self, node: Node, detail: bool) -> Iterator[Visit]:
        """Read the text; after a fault, report that the numbers of what follows are uncertain."""
        from pparse.parsers.json.walk import walk_document

        findings, damage, looked_at = self.result.findings, self.damage, 0
        for visit in walk_document(self, node, detail=detail):
            while not damage.is_known and looked_at < len(findings) - findings.omitted:
                if findings[looked_at].code == "malformed":
                    damage.mended()
                looked_at += 1
            yield damage.doubted(visit)
        if not damage.is_known and any(finding.code == "malformed" for finding in findings):
            damage.mended()

    # -- the members of a wide object, many decoded at a time and without nodes ----------------------------------------

    def each_member(self, node: Node, first: int = 0) -> Iterator[tuple[int, str | None, Any, Entry | None]]:
        """Yield ``(ordinal, key, value, entry)`` of each child of an object from ``first`` on, decoding many at a time.

        If the child is whole, ``value`` is plain Python and ``entry`` None; otherwise ``value`` is `UNLOADED_VALUE` and
        ``entry`` tells what is wrong. This is the fast way to list a wide object.
        """
        whole = self._decode_whole(node) if not first and node.index is None else None
        if whole is not None:
            for ordinal, (key, value) in enumerate(whole):
                yield ordinal, key, value, None
            return
        data, most = self.result.extraction.data, self.result.extraction.session.limits.leaf_bytes
        skip = first
        while first < (index := node.index_to(None)).count:
            if isinstance(index.note, Mended):
                yield from self._one_by_one(node, max(first, skip), index.count)
                return
            first, begin, count, end = _batch(index, first)
            data.check_unchanged()
            pairs: list[tuple[str, Any]] = []
            is_wrong = False
            if end - begin <= most and not (index.note is not None and first + count == index.count):
                try:
                    self.decoder.decode_shallow(b"{%s}" % data.pread(begin, end - begin), begin - 1)
                    pairs = self.decoder.pairs
                    is_wrong = len(pairs) != count
                except (LimitError, UnsupportedError):
                    pass  # one is refused
                except MalformedError:
                    is_wrong = True
                if is_wrong and self.damage.take(node, index):
                    continue
            if is_wrong or not pairs:
                yield from self._one_by_one(node, max(first, skip), first + count)
            else:
                yield from ((ordinal, *pair, None) for ordinal, pair in enumerate(pairs, first) if ordinal >= skip)
            first += count

    def _decode_whole(self, node: Node) -> list[tuple[str, Any]] | None:
        """Return the members of a small, faultless object without an index; None for any other."""
        extraction = self.result.extraction
        size = extraction.find_end(node) - node.start
        if size > extraction.session.limits.leaf_bytes or node.kind != "object":
            return None
        self.result.check_open()
        text = extraction.data.pread(node.start, size).rstrip(WHITESPACE)
        try:
            if node.parent is None and not self.damage.parses(text):
                return None
            if node.parent is not None:
                self.decoder.decode_shallow(text, node.start)
        except DataError:
            return None
        if node.end is None:
            self.result.close_node(node, node.known_status or Status.COMPLETE, None, end=node.start + len(text))
        return self.decoder.pairs

    def _one_by_one(self, node: Node, first: int, last: int) -> Iterator[tuple[int, str | None, Any, Entry | None]]:
        for ordinal, entry in islice(self.result.entries_from(node, first), max(0, last - first)):
            key, value = entry.key if isinstance(entry.key, str) else None, entry.value
            wrong = None if entry.status is Status.COMPLETE else entry
            if wrong is None and value is UNLOADED_VALUE:
                try:
                    value = node.child(ordinal).to_python()
                except (EndOfDataError, MalformedError, LimitError, UnsupportedError) as error:
                    refused = isinstance(error, LimitError | UnsupportedError)
                    status, code = (Status.UNSUPPORTED, "limit") if refused else (Status.DAMAGED, "malformed")
                    finding = Finding(code, error.reason, offset=error.offset, option=error.option)
                    # A copy: the index may hold the entry.
                    wrong = Entry(entry.key, entry.kind, entry.start, entry.end, value, status, finding, at=entry.at)
            yield ordinal, key, UNLOADED_VALUE if wrong is not None else value, wrong


def _batch(index: ChildIndex, first: int) -> tuple[int, int, int, int]:
    """Return ``(first, offset, count, end)`` of children to decode together, with ``first`` among them."""
    stride, offsets = index.stride, index.offsets
    slot = first // stride
    first = slot * stride
    begin = offsets[slot]
    stop = slot + 1
    while stop < len(offsets) and offsets[stop] - begin <= DECODE_BATCH:
        stop += 1
    if stop >= len(offsets):
        return first, begin, index.count - first, index.end
    return first, begin, (stop - slot) * stride, offsets[stop] - 1
