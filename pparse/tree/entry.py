"""What a parser says of a child before there is a node for it: `Entry`; shapes, and `UNLOADED_VALUE`."""

from __future__ import annotations

import enum

from pparse.findings import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.data.reader import Range
    from pparse.findings import Finding

    Key = str | bytes | int | bool | None


class Unloaded(enum.Enum):
    """Type of `UNLOADED_VALUE`. It is neither true nor false, has no length, and cannot be iterated."""

    UNLOADED_VALUE = "UNLOADED_VALUE"

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

    __str__ = __repr__


UNLOADED_VALUE: Final = Unloaded.UNLOADED_VALUE
"""The value of a node that is not in memory."""

SCALAR: Final = "scalar"
"""The shape of a node without children."""
LIST: Final = "list"
"""The shape of a container whose children have no keys."""
MAP: Final = "map"
"""The shape of a container whose children have keys."""


class Entry:
    """What a parser says of one child before there is a node for it.

    ``key`` (None in a list), ``kind`` (the format's own word), the bytes ``[start, end)`` (``end`` None while
    unknown), ``value`` when it was decoded on the way, ``status`` (None: not known before it is loaded), ``finding``
    when something is wrong, and ``parts`` for a value spread over several stretches. ``at`` is where the child's
    record begins, key or header included; it defaults to ``start``. ``note`` is whatever the parser wants to know of
    the node later.
    """

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
        self.kind = kind
        self.start = start
        self.end = end
        self.value = value
        self.status = status
        self.finding = finding
        self.parts = parts
        self.at = start if at is None else at
        self.note = note

    def __repr__(self) -> str:
        return f"Entry({self.key!r}, {self.kind!r}, {self.start}, {self.end}, {self.value!r}, {self.status})"
