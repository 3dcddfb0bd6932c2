"""`Visit` and `Member`: what walks and listings tell about nodes, without making a node; `Trail`: their paths."""

from __future__ import annotations

from pparse.findings import HasStatus, Status
from pparse.paths import join_step
from pparse.tree.entry import SCALAR, UNLOADED_VALUE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from pparse.findings import Finding
    from pparse.paths import Step
    from pparse.tree.entry import Key
    from pparse.tree.node import Node


class Member(HasStatus):
    """One row of a listing."""

    __slots__ = ("_reason", "kind", "name", "note", "size", "start", "status")

    def __init__(
        self, name: str, kind: str, start: int, size: int, status: Status, note: Any = None, reason: str | None = None
    ) -> None:
        self.name = name
        """Name, as the listing shows it."""
        self.kind = kind
        """The format's own word for the kind of value."""
        self.start = start
        """Offset of its first byte."""
        self.size = size
        """Size in bytes."""
        self.status = status
        """State of the member."""
        self.note = note
        """More that the format knows: a `pparse.containers.archive.ArchiveMember` in an archive."""
        self._reason = reason

    @property
    def reason(self) -> str:
        """Why the status is not complete, in words; empty if it is."""
        if self.status is Status.COMPLETE:  # asked for every row of a list
            return ""
        if self._reason is None and self.note is not None and self.note.finding is not None:
            return str(self.note.finding.reason)
        return self._reason or ""


class Trail:
    """Builds the paths of places below ``start``, whose path is ``text``.

    Keeps one text, the path asked for last, and where in it the path of each level ends. A neighbour's path so costs
    one step, not one per level, and a deep tree takes the memory of one path. ``above`` returns the place around
    another (places know their ``depth``), ``step`` the step that leads to it. Does not depend on how far a walk is.
    """

    __slots__ = ("_above", "_ends", "_first", "_line", "_lock", "_step", "_text")

    def __init__(
        self,
        start: Any,
        text: str,
        above: Callable[[Any], Any],
        step: Callable[[Any], Step | None],
        lock: AbstractContextManager[object],
    ) -> None:
        self._above = above
        self._step = step
        self._lock = lock
        self._first = start.depth
        self._line = [start]
        self._text = text
        self._ends = [len(text)]

    @classmethod
    def of(cls, start: Node) -> Trail:
        """Return a trail for the nodes below ``start``."""
        return Trail(start, start.path, _parent_of, _step_to, start.result.lock)

    def path(self, place: Any) -> str:
        """Return the path of a place."""
        with self._lock:
            line, ends = self._line, self._ends
            missing = []
            at = place
            while at is not None:
                number = at.depth - self._first
                if number < len(line) and line[number] is at:
                    del line[number + 1 :], ends[number + 1 :]
                    break
                missing.append(at)
                at = self._above(at)
            while missing:
                at = missing.pop()
                self._text = join_step(self._text[: ends[-1]], self._step(at))
                line.append(at)
                ends.append(len(self._text))
            return self._text[: ends[-1]]


def _parent_of(node: Node) -> Node | None:
    return node.parent


def _step_to(node: Node) -> Step | None:
    return None if node.parent is None else node.result.parser.step_to(node.parent, node.ordinal, node.key)


class Visit(HasStatus):
    """What a walk tells about one node."""

    __slots__ = ("_path", "depth", "end", "finding", "key", "kind", "ordinal", "shape", "start", "status", "value")

    def __init__(
        self,
        depth: int,
        key: Key,
        ordinal: int,
        kind: str,
        shape: str,
        start: int,
        end: int | None,
        path: str | Callable[[], str] = "",
        value: object = UNLOADED_VALUE,
        status: Status | None = Status.COMPLETE,
        finding: Finding | None = None,
    ) -> None:
        self.depth = depth
        """Levels below the start of the walk."""
        self.key = key
        """Its key; None in a list."""
        self.ordinal = ordinal
        """Number among its siblings, from 0."""
        self.kind = kind
        """The format's own word for the kind of value."""
        self.shape = shape
        """``"map"``, ``"list"`` or ``"scalar"``."""
        self.start = start
        """Offset of the first byte."""
        self.end = end
        """Offset after the last byte; None if a single pass has not reached it yet."""
        self._path = path
        self.value = value
        """The value of a scalar, if it is in memory."""
        self.status = status
        """State of the node; None: not known yet."""
        self.finding = finding
        """What is wrong with it, if anything."""

    @property
    def path(self) -> str:
        """Path of the node from the root; read it during the visit."""
        return self._path if isinstance(self._path, str) else self._path()

    @classmethod
    def of(cls, node: Node, depth: int, trail: Trail | None = None) -> Visit:
        """Return the visit of a node; a walk passes its ``trail``."""
        shape = node.shape
        return cls(
            depth,
            node.key,
            node.ordinal,
            node.kind,
            shape,
            node.start,
            node.end,
            lambda: trail.path(node) if trail is not None else node.path,
            node._content if shape == SCALAR else UNLOADED_VALUE,
            node.known_status,
            node._extra[0] if node._extra is not None else None,
        )
