"""Damage of JSON text, as its parser asks for it: which containers are damaged, and what their children are."""

from __future__ import annotations

import codecs
import weakref
from array import array
from bisect import bisect_right
from itertools import islice
from operator import attrgetter

from pparse.errors import GapError, LimitError, MalformedError, UnsupportedError
from pparse.findings import KEPT_PATH, UNSURE_NUMBER, Finding, Status, clipped
from pparse.kernels.json_fold import depth_at_most
from pparse.parsers.json.text import WHITESPACE, describe_child
from pparse.paths import KeyStep, OrdinalStep, join_step
from pparse.tree.entry import LIST, UNLOADED_VALUE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final, TypeVar

    from pparse.parsers.json.parser import JsonParser
    from pparse.parsers.json.record import Mended, Unsure
    from pparse.tree.context import NodeContext
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.visit import Visit

    Told = TypeVar("Told", Entry, Visit)


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
        name = ordinal if node.shape == LIST else key
        step = OrdinalStep(ordinal) if name is None else KeyStep(name)
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


# Up to this length, whether a text is sound is known before its first child is shown. Not a limit that can be set: the
# statuses of a tree must not depend on how it is read.
LOOK_FIRST: Final = 256 << 10


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


class Damage:
    """What is known of damage in the text that one parser reads; `pparse.parsers.json.mend` finds it."""

    def __init__(self, parser: JsonParser) -> None:
        self._parser = parser
        self._result = parser.result
        self._is_large = False
        self._mended: dict[int, Mended] | None = None
        self.flaw: Finding | None = None
        """The first fault of a text whose commas and brackets are right."""
        self.unsure: list[Unsure] = []
        """Where the numbers of elements are uncertain, in order."""
        self.line = PathLine()
        """Names nodes for findings."""

    def mended(self) -> dict[int, Mended]:
        """Return what is known about the damaged containers, by their start; empty for a sound text."""
        if self._mended is None:
            from pparse.parsers.json.mend import JsonMender

            parser, found = self._parser, {}
            first = {"object": 0x7B, "array": 0x5B}.get(self._result.root.kind)
            if first is not None:
                mender = JsonMender(self._result, first, parser.member, parser.is_all_there, parser.headless)
                found, self.flaw, self.unsure = mender.run(), mender.flaw, mender.unsure
            self._mended = found
            for stretch in self.unsure:
                self._result.findings.add(stretch.finding(self._result.extraction.name))
        return self._mended

    @property
    def is_known(self) -> bool:
        """Whether the text was looked at as a whole, be it sound or not."""
        return self._mended is not None

    @property
    def is_mended(self) -> bool:
        """Whether containers were found to be damaged, and have children that are told by other means."""
        return bool(self._mended)

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index a damaged container from what is known about it; return False for any other."""
        if self._mended is None and not self._is_large and self._is_suspect():
            self.mended()
        return bool(self._mended) and self.take(node, index)

    def _is_suspect(self) -> bool:
        """Return whether the document is small and does not parse; larger ones are examined once a fault is met."""
        root, extraction, decoder = self._result.root, self._result.extraction, self._parser.decoder
        size = extraction.find_end() - root.start
        if size > LOOK_FIRST:
            self._is_large = self._parser.headless is None  # asked once, not for every container
            return not self._is_large
        if size > extraction.session.limits.leaf_bytes:
            return True  # it must not be decoded whole; the pieces will show whether it is sound
        repeated = decoder.duplicates
        try:
            text = extraction.data.pread(root.start, size).rstrip(WHITESPACE)
        except GapError:
            return True
        shallow = depth_at_most(text, extraction.session.limits.leaf_depth)
        sound = shallow and decoder.skim(text) is not UNLOADED_VALUE
        decoder.duplicates, decoder.pairs = repeated, []
        if sound and self._mended is None:
            self._mended = {}
        return not sound

    def parses(self, text: bytes) -> bool:
        """Decode the whole document, and remember whether it is sound."""
        try:
            self._parser.decoder.decode_shallow(text, self._result.root.start)
        except (MalformedError, LimitError, UnsupportedError):
            return False
        if self._mended is None:
            self._mended = {}
        return True

    def take(self, node: Node, index: ChildIndex) -> bool:
        """Give ``index`` the children of a damaged container; return False for any other."""
        record = self.mended().get(node.start)
        if record is None:
            return False
        if index.count:  # commas and brackets showed other children, by which nodes may have been named
            self.line = PathLine()
        index.offsets, index.stride, index.entries, index.group, index.table = array("q"), 1, None, None, None
        index.keep(record, len(record.starts))
        index.end = record.end - 1
        index.finish()  # stop a parse in progress, which would add children by commas and brackets
        kids = node._kids or {}
        for at, ref in list(kids.items()):
            kid = ref()
            if kid is not None and not (at < index.count and record.starts[at] <= kid.start < record.ends[at]):
                del kids[at]
        self._result.close_node(node, Status.DAMAGED, record.finding, end=record.end)
        return True

    def remake(self, ctx: NodeContext) -> bool:
        """Index the children again if the text is damaged; return False if it is not, or only cut."""
        if not self.take(ctx.node, ctx.index):
            return False
        if ctx.wanted_occurrence or ctx.answer is not None:
            entries = enumerate(self._parser.entries(ctx.node, ctx.index, 0, ctx.index.count))
            same = (at for at, entry in entries if entry.key == ctx.wanted_key)
            ctx.answer = next(islice(same, max(0, ctx.wanted_occurrence - 1), None), None)
        return True

    def entries(self, node: Node, record: Mended, first: int, count: int) -> list[Entry]:
        """Describe children of a damaged container."""
        found = []
        for at, entry in enumerate(self.describe(node, record, first, count), first):
            if entry.finding is not None:
                entry.finding.path = self.line.below(node, at, entry.key)
            found.append(entry)
        return found

    def describe(self, node: Node, record: Mended, first: int, count: int) -> Iterator[Entry]:
        """Yield what `entries` returns, without the paths of findings."""
        is_map, source, parser = node.kind == "object", self._result.extraction.name, self._parser
        for at in range(first, min(first + count, len(record.starts))):
            start, end = record.starts[at], record.ends[at]
            wrong = record.bad.get(at)
            finding = Finding("malformed", wrong or "", source=source, offset=start, length=end - start)
            try:
                entry = describe_child(parser.child_text(start, end, is_map), is_map, parser.decoder, source)
            except GapError:
                entry = None
            if entry is None:
                entry = Entry(None, "invalid", start, end, status=Status.DAMAGED, finding=finding)
            elif wrong is not None and entry.status is Status.COMPLETE:
                entry.value, entry.status, entry.finding = UNLOADED_VALUE, Status.DAMAGED, finding
            yield entry

    def finding_about(self, start: int) -> Finding | None:
        """Return the finding for the value at ``start``: that its number, or those of its elements, are uncertain."""
        place = bisect_right(self.unsure, start, key=attrgetter("start"))
        source = self._result.extraction.name
        if place and start < self.unsure[place - 1].end:
            return Finding(UNSURE_NUMBER, self.unsure[place - 1].reason, source=source, offset=start)
        if place < len(self.unsure) and self.unsure[place].array == start:
            return self.unsure[place].finding(source)
        return None

    def doubted(self, item: Told) -> Told:
        """Return an entry or a visit, with the finding that its number is uncertain, unless it has another one."""
        if self.unsure and item.status is Status.COMPLETE:
            finding = self.finding_about(item.start)
            if finding is not None:
                item.status, item.finding = Status.DAMAGED, finding
        return item
