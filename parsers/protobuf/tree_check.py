"""Checks a tree: sound messages by their bytes, the others node by node."""

from __future__ import annotations

from pparse.data.reader import Range
from pparse.errors import LimitError
from pparse.findings import Finding, Status
from pparse.parsers.protobuf.check import Checker
from pparse.parsers.protobuf.index import ChunkRange
from pparse.tree.entry import SCALAR
from pparse.tree.visit import Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.data.base import Data
    from pparse.parsers.protobuf.index import Origin
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.tree.node import Node


class _Level:
    """One level of a check: the nodes still to check, and their ``owner``, the message or list that has them.

    ``unsound``: the owner's bytes are not sound. ``explained``: an error was found below it. ``known``: bytes that were
    scanned, up to the field at fault: data, start, and its offset.
    """

    __slots__ = ("explained", "known", "nodes", "owner", "unsound")

    def __init__(
        self, nodes: Iterator[Node], owner: Node | None, *, unsound: bool, known: tuple[Data, int, int] | None
    ) -> None:
        self.nodes = nodes
        self.owner = owner
        self.unsound = unsound
        self.known = known
        self.explained = False


class TreeCheck:
    """Checks the tree of a parser: sound messages by their bytes, the others node by node."""

    def __init__(self, parser: ProtobufParser) -> None:
        self._parser = parser
        self._result = parser.result
        self._checker = Checker(parser.result.extraction.session.check_cancelled)
        self._kept = parser.result.extraction.session.kept_block

    def run(self) -> Iterator[Visit]:
        """Yield a visit of each node that was checked; findings are added to its node."""
        levels = [_Level(iter((self._result.root,)), None, unsound=False, known=None)]
        while levels:
            level = levels[-1]
            try:
                node = next(level.nodes, None)
            except LimitError as error:  # the children cannot be read within the limits
                level.explained = True
                node = None
                if level.owner is not None:
                    self._note(level.owner, error)
            if node is None:
                levels.pop()
                yield from self._close(level, levels)
                continue
            below = self._look(node, level)
            visit = Visit.of(node, node.depth)
            if visit.status not in (None, Status.COMPLETE):
                level.explained = True
            if below is not None:
                levels.append(below)
                below.explained = visit.status not in (None, Status.COMPLETE)
            yield visit

    def _note(self, node: Node, error: LimitError) -> None:
        """Add a finding that a limit prevented the check; the node stays readable."""
        self._result.findings.add(
            Finding(
                "limit",
                error.reason,
                path=node.path,
                source=self._result.extraction.name,
                offset=node.start,
                wanted=error.wanted,
                got=error.got,
            )
        )

    def _close(self, level: _Level, above: list[_Level]) -> Iterator[Visit]:
        owner = level.owner
        if level.unsound and not level.explained and owner is not None:
            # Everything that the tree shows is whole: the damage is in bytes that it skips.
            self._parser.damage(owner, "its bytes are damaged, but no field that is shown is")
            yield Visit.of(owner, owner.depth)
        if above and (level.explained or level.unsound):
            above[-1].explained = True

    def _look(self, node: Node, level: _Level) -> _Level | None:
        """Check one node; return the level of its children if they must be checked."""
        try:
            if node.shape == SCALAR:
                if node.known_status is None:
                    self._parser.judge(node)
                return None
            try:
                sound = self._is_sound(node, level)
            except LimitError as error:  # a limit on its bytes: the rest stays readable
                self._note(node, error)
                sound = None
            if sound:
                return None
            node.index_to(1)
        except LimitError as error:
            self._result.note_limit(node, error)
            return None
        return _Level(iter(node.children()), node, unsound=sound is False, known=level.known)

    def _is_sound(self, node: Node, level: _Level) -> bool | None:
        """Say whether a message needs no closer check: all its bytes exist and agree with the schema.

        None if the bytes alone do not decide. Bytes scanned on a level above are not scanned again.
        """
        origin: Origin = node.note
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
