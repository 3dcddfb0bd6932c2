"""What walks and listings say of nodes, without a node for each: `Visit` and `Member`."""

from __future__ import annotations

from pparse.findings import Status
from pparse.node import SCALAR, UNLOADED_VALUE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pparse.findings import Finding
    from pparse.node import Key, Node


class Member:
    """One row of a listing: ``name``, ``kind``, where it begins, its ``size`` in bytes, and what became of it.

    ``note`` is what the format knows besides (the `pparse.archive.ArchiveMember` of an archive).
    """

    __slots__ = ("kind", "name", "note", "size", "start", "status")

    def __init__(self, name: str, kind: str, start: int, size: int, status: Status, note: Any = None) -> None:
        self.name = name
        self.kind = kind
        self.start = start
        self.size = size
        self.status = status
        self.note = note


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
    def of(cls, node: Node, depth: int) -> Visit:
        """Make a visit from a node."""
        return cls(
            depth,
            node.key,
            node.ordinal,
            node.kind,
            node.shape,
            node.start,
            node.end,
            lambda: node.path,
            node.value if node.shape == SCALAR else UNLOADED_VALUE,
            node.known_status,
            node.finding,
        )
