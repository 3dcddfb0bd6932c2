"""Damaged JSON text: what is known about damaged containers, and how their children are described."""

from __future__ import annotations

import codecs
import weakref
from array import array
from bisect import bisect_left, bisect_right
from operator import attrgetter

from pparse.errors import GapError, LimitError, MalformedError, UnsupportedError
from pparse.findings import KEPT_PATH, UNSURE_NUMBER, Finding, Severity, Status, clipped
from pparse.limits import count_words
from pparse.parsers.json.text import (
    BLANK,
    BORN_LOADED,
    CLOSER,
    KEY,
    KINDS,
    WHITESPACE,
    ChildText,
    StrictDecoder,
    describe_child,
)
from pparse.paths import KeyStep, OrdinalStep, join_step
from pparse.tree.entry import Entry
from pparse.tree.index import IndexNote
from pparse.tree.parser import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator
    from typing import Final

    from pparse.tree.context import NodeContext
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.result import Result

# -- Names nodes and their children for findings, without reading again what is above them -----------------------------

# Paths are kept without their middle if they are longer than a finding keeps them. What is left is too long, too, so
# that a path below is clipped as the whole one would be.
_END: Final = KEPT_PATH // 2 + 1


class PathLine:
    """The nodes on the way from the root to the one named last, held weakly, and their paths.

    In damaged text every level may have a finding: named from the root, each would cost as many steps as it is deep.
    """

    __slots__ = ("_nodes", "_paths")

    def __init__(self) -> None:
        self._nodes: list[weakref.ref[Node]] = []  # from the first level below the root on
        self._paths: list[str] = []

    def below(self, node: Node, ordinal: int, key: Key) -> str:
        """Return the clipped path of a child of ``node``, without its number among children with the same key."""
        step: KeyStep | OrdinalStep
        if node.kind == "array":
            step = KeyStep(ordinal)
        else:
            step = KeyStep(key) if isinstance(key, str) else OrdinalStep(ordinal)
        return clipped(join_step(self.path(node), step))

    def path(self, node: Node) -> str:
        """Return the path of ``node``; of a very long one, as much as a finding keeps."""
        missing: list[tuple[Node, Node]] = []
        path = ""
        while node.parent is not None:
            level = node.depth - 1
            if level < len(self._nodes) and self._nodes[level]() is node:
                path = self._paths[level]
                break
            missing.append((node.parent, node))
            node = node.parent
        if not missing:
            return path
        nodes, paths = self._nodes, self._paths = self._nodes[: node.depth], self._paths[: node.depth]
        for parent, kid in reversed(missing):
            path = join_step(path, kid.result.parser.step_to(parent, kid.ordinal, kid.key))
            if len(path) > 2 * _END:
                path = path[:_END] + path[-_END:]
            nodes.append(weakref.ref(kid))
            paths.append(path)
        self._nodes, self._paths = nodes, paths  # a step may have read a node again, and named that
        return path


# Children with longer text are described from its two ends.
WHOLE_CHILD: Final = 4 << 10
HEAD: Final = 512
DECODE_BATCH: Final = 64 << 10
# The reason for a container that is sound itself, but holds something damaged.
BELOW: Final = "something inside it is damaged"
GROUP_READ: Final = 256 << 10
# Up to this length, whether a text is sound is known before its first child is shown. Not a limit that can be set: the
# statuses of a tree must not depend on how it is read.
LOOK_FIRST: Final = 256 << 10


class Mended(IndexNote):
    """The children of a damaged container."""

    __slots__ = ("bad", "end", "ends", "finding", "starts")

    def __init__(self, starts: array[int], ends: array[int], bad: dict[int, str], end: int, finding: Finding) -> None:
        self.starts = starts
        """Where each child begins."""
        self.ends = ends
        """Where each child ends."""
        self.bad = bad
        """The damaged children: number to reason."""
        self.end = end
        """Where the container ends."""
        self.finding = finding
        """The first thing that was wrong."""

    @property
    def memory(self) -> int:
        """Approximate number of bytes held."""
        return 16 * len(self.starts) + 100 * len(self.bad)


def is_odd(block: bytes) -> bool:
    """Return whether a piece of text is clearly not text, for text that is shown before it is read in full.

    Overwritten bytes nearly always are.
    """
    if b"\0" in block:
        return True
    if block.isascii():
        return False
    begin = 0
    while begin < min(3, len(block)) and block[begin] & 0xC0 == 0x80:  # the rest of a character of the previous piece
        begin += 1
    try:
        codecs.utf_8_decode(memoryview(block)[begin:], "strict", False)
    except UnicodeDecodeError:
        return True
    return False


class Unsure:
    """A stretch of an array in which the numbers of elements are uncertain, since elements may be lost before it."""

    __slots__ = ("array", "end", "lost", "size", "start")

    def __init__(self, array: int, lost: int, start: int, end: int) -> None:
        self.array = array
        """Where the array begins."""
        self.lost = lost
        """Where elements may be lost."""
        self.size = max(1, start - lost)
        """How many bytes are lost there."""
        self.start = start
        """Where the stretch begins."""
        self.end = end
        """Where the stretch ends."""

    @property
    def reason(self) -> str:
        """Why the number of a value in the stretch is uncertain."""
        lost = f"{count_words(self.size, 'byte')} at {self.lost}"
        return f"elements may be lost before it, in {lost}: its number is uncertain"

    def finding(self, source: str) -> Finding:
        """Return the finding for the array."""
        reason = f"elements of a list may be lost here: the numbers of elements up to byte {self.end} are uncertain"
        return Finding(UNSURE_NUMBER, reason, source=source, offset=self.lost, length=self.size)


_start_of: Final = attrgetter("start")


def outermost(stretches: list[Unsure], lasts: list[int]) -> list[Unsure]:
    """Return the stretches in order, without those inside of another one and those that hold nothing.

    ``lasts``, in order: where the last children of all damaged containers begin.
    """
    found: list[Unsure] = []
    for stretch in sorted(stretches, key=lambda one: (one.start, -one.end)):
        place = bisect_left(lasts, stretch.start)
        if place < len(lasts) and lasts[place] < stretch.end and (not found or stretch.end > found[-1].end):
            found.append(stretch)
    return found


class DamagedText(Parser):
    """The part of a parser for JSON text that handles damage; see `pparse.parsers.json.mend`."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.decoder = StrictDecoder(result.extraction.session.limits)
        # Pattern of the members of the first level with their keys, if a format has one: finds them behind damage.
        self.member: re.Pattern[bytes] | None = None
        self._is_large = False
        self.is_all_there = False  # the text has its full length: if it ends early, it was damaged
        self._mended: dict[int, Mended] | None = None
        self.flaw: Finding | None = None  # the first fault of a text whose commas and brackets are right
        self.unsure: list[Unsure] = []  # in order
        self.headless: Finding | None = None  # set if the text lacks its first bracket
        self._line = PathLine()

    # -- damage ------------------------------------------------------------------------------------------------------

    def mended(self) -> dict[int, Mended]:
        """Return what is known about the damaged containers, by their start; empty for a sound text."""
        if self._mended is None:
            from pparse.parsers.json.mend import Mender

            root = self.result.root
            first = {"object": 0x7B, "array": 0x5B}.get(root.kind)
            mender = Mender(self, root.start, first, self.member) if first is not None else None
            self._mended = mender.run() if mender is not None else {}
            self.flaw = mender.flaw if mender is not None else None
            self.unsure = mender.unsure if mender is not None else []
            for stretch in self.unsure:
                self.result.findings.add(stretch.finding(self.result.extraction.name))
        return self._mended

    @property
    def is_mended(self) -> bool:
        """Whether containers were found to be damaged, and have children that are told by other means."""
        return bool(self._mended)

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index a damaged container from what is known about it; return False for any other."""
        if self._mended is None and not self._is_large and self._is_suspect():
            self.mended()
        return bool(self._mended) and self._take_mended(node, index)

    def _is_suspect(self) -> bool:
        """Return whether the document is small and does not parse; larger ones are examined once a fault is met."""
        root, extraction = self.result.root, self.result.extraction
        size = extraction.known_end() - root.start
        if size > LOOK_FIRST:
            self._is_large = self.headless is None  # asked once, not for every container
            return not self._is_large
        if size > extraction.session.limits.leaf_bytes:
            return True  # it must not be decoded whole; the pieces will show whether it is sound
        repeated = self.decoder.duplicates
        try:
            return not self._parses(extraction.data.pread(root.start, size).rstrip(WHITESPACE))
        except GapError:
            return True
        finally:
            self.decoder.duplicates = repeated
            self.decoder.pairs = []

    def _parses(self, text: bytes) -> bool:
        """Decode the whole document, and remember whether it is sound."""
        try:
            self.decoder.decode_shallow(text, self.result.root.start)
        except (MalformedError, LimitError, UnsupportedError):
            return False
        if self._mended is None:
            self._mended = {}
        return True

    def _take_mended(self, node: Node, index: ChildIndex) -> bool:
        """Give ``index`` the children of a damaged container; return False for any other."""
        record = self.mended().get(node.start)
        if record is None:
            return False
        if index.count:  # commas and brackets showed other children, by which nodes may have been named
            self._line = PathLine()
        index.offsets, index.stride, index.entries, index.group, index.table = array("q"), 1, None, None, None
        index.keep(record, len(record.starts))
        index.end = record.end - 1
        index.finish()  # stop a parse in progress, which would add children by commas and brackets
        stale = [
            at
            for at, ref in (node._kids or {}).items()
            if (kid := ref()) is not None
            and not (at < index.count and record.starts[at] <= kid.start < record.ends[at])
        ]
        for at in stale:
            del node._kids[at]  # type: ignore[union-attr]
        self.result.close_node(node, Status.DAMAGED, record.finding, end=record.end)
        return True

    def _remake(self, ctx: NodeContext) -> bool:
        """Index the children again if the text is damaged; return False if it is not, or only cut."""
        assert ctx.index is not None  # noqa: S101 -- see expect_children
        if not self._take_mended(ctx.node, ctx.index):
            return False
        if ctx.wanted_occurrence or ctx.answer is not None:
            left, ctx.answer = max(1, ctx.wanted_occurrence), None
            ordinals = self.entries(ctx.node, ctx.index, 0, ctx.index.count)
            same = [at for at, entry in enumerate(ordinals) if entry.key == ctx.wanted_key]
            ctx.answer = same[left - 1] if len(same) >= left else None
        return True

    def _mended_entries(self, node: Node, record: Mended, first: int, count: int) -> list[Entry]:
        found = []
        for at, entry in enumerate(self._describe_mended(node, record, first, count), first):
            if entry.finding is not None:
                entry.finding.path = self._line.below(node, at, entry.key)
            found.append(entry)
        return found

    def _describe_mended(self, node: Node, record: Mended, first: int, count: int) -> Iterator[Entry]:
        """Yield entries without the paths of their findings."""
        is_map, source = node.kind == "object", self.result.extraction.name
        for at in range(first, min(first + count, len(record.starts))):
            start, end = record.starts[at], record.ends[at]
            wrong = record.bad.get(at)
            finding = Finding("malformed", wrong or "", source=source, offset=start, length=end - start)
            try:
                entry = describe_child(self._child_text(start, end, is_map), is_map, self.decoder, source)
            except GapError:
                entry = None
            if entry is None:
                entry = Entry(None, "invalid", start, end, status=Status.DAMAGED, finding=finding, at=start)
            elif wrong is not None and entry.status is Status.COMPLETE:
                entry = Entry(
                    entry.key, entry.kind, entry.start, entry.end, status=Status.DAMAGED, finding=finding, at=start
                )
            yield entry

    def path_of(self, node: Node) -> str:
        """Return the path of ``node`` for a finding."""
        return self._line.path(node)

    def finding_about(self, start: int) -> Finding | None:
        """Return the finding for the value at ``start``: that its number, or those of its elements, are uncertain."""
        place = bisect_right(self.unsure, start, key=_start_of)
        source = self.result.extraction.name
        if place and start < self.unsure[place - 1].end:
            return Finding(UNSURE_NUMBER, self.unsure[place - 1].reason, source=source, offset=start)
        if place < len(self.unsure) and self.unsure[place].array == start:
            return self.unsure[place].finding(source)
        return None

    def unnumbered(self, entry: Entry) -> Entry:
        """Return an entry with the finding that its number is uncertain, unless it has another one."""
        finding = self.finding_about(entry.start) if entry.status is Status.COMPLETE else None
        if finding is None:
            return entry
        return Entry(entry.key, entry.kind, entry.start, entry.end, entry.value, Status.DAMAGED, finding, at=entry.at)

    def _note(
        self,
        code: str,
        reason: str,
        offset: int,
        length: int | None,
        severity: Severity = Severity.ERROR,
        path: str = "",
    ) -> Finding:
        finding = Finding(
            code, reason, severity=severity, source=self.result.extraction.name, offset=offset, length=length, path=path
        )
        self.result.findings.add(finding)
        return finding

    def _child_text(self, start: int, end: int, is_map: bool) -> ChildText:
        """Read the text of a child, or only the ends that `ChildText` needs if it is long."""
        data = self.result.extraction.data
        if end - start <= WHOLE_CHILD:
            return ChildText(data.pread(start, end - start), start, end)
        size = HEAD
        raw = data.pread(start, size)
        name_limit = self.result.extraction.session.limits.name_bytes
        # A gap ends what can be read.
        while is_map and KEY.match(raw) is None and size <= len(raw) < min(name_limit, end - start):
            size = min(8 * size, name_limit, end - start)
            raw = data.pread(start, size)
        skipped = 0
        match = KEY.match(raw) if is_map else BLANK.match(raw)
        if match is not None and len(raw) - match.end() < BORN_LOADED:
            value_at = self._skip_blank(start + match.end(), end)
            skipped = value_at - start - match.end()
            raw = raw[: match.end()] + data.pread(value_at, min(HEAD, end - value_at))
        tail_at, tail, step = end, b"", 64
        while not tail.strip(WHITESPACE + b"\0") and tail_at > start:
            stop, tail_at = tail_at, max(start, tail_at - step)
            tail = data.pread(tail_at, stop - tail_at)
            step = min(step * 8, GROUP_READ)
        return ChildText(raw, start, end, tail, tail_at, skipped)

    def _without_blanks(self, start: int, end: int) -> int:
        """Return where the text before ``end`` ends without trailing whitespace."""
        data = self.result.extraction.data
        while end > start:
            at = max(start, end - DECODE_BATCH)
            kept = data.pread(at, end - at).rstrip(WHITESPACE)
            if kept:
                return at + len(kept)
            end = at
        return end

    def _skip_blank(self, start: int, end: int) -> int:
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

    def _damaged_object(self, pos: int, text: bytes) -> Entry:
        """Return the root for a format whose text must be an object, and whose opening brace is damaged."""
        assert self.member is not None  # noqa: S101 -- the caller looked
        if self.member.search(text) is None:
            kind = KINDS.get(text[0], "invalid")
            if kind in CLOSER:
                return Entry(None, kind, pos, None, status=None)
            return Entry(None, kind, pos, self.result.extraction.known_end(), status=Status.DAMAGED)
        self.headless = self._note("malformed", "expected '{'", pos, 1)
        return Entry(None, "object", pos - text.startswith(b'"'), None, status=None)
