"""`Entry`: how a parser describes a child before it has a node; the shapes; and `UNLOADED_VALUE`."""

from __future__ import annotations

from pparse.findings import HasStatus, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.findings import Finding

    Key = str | bytes | int | bool | None


class Unloaded:
    """Type of `UNLOADED_VALUE`. It is neither true nor false, has no length, and cannot be iterated."""

    __slots__ = ()

    def _refuse(self) -> Any:
        raise TypeError("the value is not loaded; call node.load()")

    def __bool__(self) -> bool:
        return bool(self._refuse())

    def __len__(self) -> int:
        return int(self._refuse())

    def __iter__(self) -> Iterator[object]:
        return iter(self._refuse())

    def __repr__(self) -> str:
        return "UNLOADED_VALUE"

    def __reduce__(self) -> str:
        return "UNLOADED_VALUE"  # there is but one, in each process, and of each copy


UNLOADED_VALUE: Final = Unloaded()

# A node is a container of one of two shapes, or a scalar.
SCALAR: Final = "scalar"
LIST: Final = "list"
MAP: Final = "map"


class Entry(HasStatus):
    """How a parser describes one child before it has a node."""

    __slots__ = ("at", "end", "finding", "key", "kind", "note", "parts", "start", "status", "value")

    def __init__(
        self,
        key: Key,
        kind: str,
        start: int,
        end: int | None,
        value: object = UNLOADED_VALUE,
        status: Status | None = Status.COMPLETE,
        finding: Finding | None = None,
        parts: tuple[Range, ...] | None = None,
        at: int | None = None,
        note: Any = None,
    ) -> None:
        self.key = key
        """Key of the child; None in a list."""
        self.kind = kind
        """The format's own word for the kind of value."""
        self.start = start
        """Offset of the first byte."""
        self.end = end
        """Offset after the last byte; None while unknown."""
        self.value = value
        """The value, if it was decoded on the way; else `UNLOADED_VALUE`."""
        self.status = status
        """State of the child; None: known only once it is loaded."""
        self.finding = finding
        """What is wrong with it, if anything."""
        self.parts = parts
        """All stretches of a value that is spread over several; else None."""
        self.at = start if at is None else at
        """Where the child's record begins, key or header included; by default ``start``."""
        self.note = note
        """Anything the parser will need to know about the node later."""

    def __repr__(self) -> str:
        return f"Entry({self.key!r}, {self.kind!r}, {self.start}, {self.end}, {self.value!r}, {self.status})"
