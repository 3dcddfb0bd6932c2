"""What walks and listings say of nodes, without a node for each: `Visit` and `Member`; and `Trail`, their paths."""

from __future__ import annotations

from pparse.findings import Status
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


class Member:
    """One row of a listing: ``name``, ``kind``, where it begins, its ``size`` in bytes, and what became of it.

    ``note`` is what the format knows besides (the `pparse.containers.archive.ArchiveMember` of an archive).
    """

    __slots__ = ("kind", "name", "note", "size", "start", "status")

    def __init__(self, name: str, kind: str, start: int, size: int, status: Status, note: Any = None) -> None:
        self.name = name
        self.kind = kind
        self.start = start
        self.size = size
        self.status = status
        self.note = note


class Trail:
    """The paths of what lies below ``start``, which has the path ``text``.

    Of the line that was asked for last there is one text, and where in it the path of each place ends. So the path of
    what is next to it costs one step, not one for each level, and the memory of a deep tree is that of one path.
    ``above`` leads from a place (which knows its ``depth``) to the one around it, ``step`` says how it is called there.
    A walk may be ahead of who asks: nothing here depends on where it is.
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
        """Return the paths of the nodes below ``start``."""
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


class Visit:
    """What a walk says of one node: ``depth`` below the start, ``key`` or ``ordinal``, ``kind``, bytes and value.

    ``end`` is None where a single pass has not come to it yet; ``path`` names the node from the root.
    """

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
        self.key = key
        self.ordinal = ordinal
        self.kind = kind
        self.shape = shape
        self.start = start
        self.end = end
        self._path = path
        self.value = value
        self.status = status
        self.finding = finding

    @property
    def path(self) -> str:
        """Path of the node from the root; ask during the visit."""
        return self._path if isinstance(self._path, str) else self._path()

    @classmethod
    def of(cls, node: Node, depth: int, trail: Trail | None = None) -> Visit:
        """Make a visit from a node; of a walk, with the ``trail`` of it."""
        return cls(
            depth,
            node.key,
            node.ordinal,
            node.kind,
            node.shape,
            node.start,
            node.end,
            lambda: trail.path(node) if trail is not None else node.path,
            node.value if node.shape == SCALAR else UNLOADED_VALUE,
            node.known_status,
            node.finding,
        )
