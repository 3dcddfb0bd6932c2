"""Field projection: the fields of records to read. The other fields need not be decompressed.

A projection is a set of paths of field numbers. ``[]`` is everything; ``[6, 2]`` is field 2 in the messages of field 6;
``[6, 0]`` keeps field 6 without its value (`EXISTENCE_ONLY`). If a longer path leads through a field that is not a
message, the whole field is kept. Only transposed chunks are filtered, and records that are not protocol buffers never
are, so a reader may get more fields than it asked for.
"""

from __future__ import annotations

from operator import index

from pparse.riegeli.errors import BoundsError, InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final, TypeAlias

    # What is kept inside a field, or a record: None for everything, else the fields kept and what inside of each.
    # Nothing at all ({}) is what EXISTENCE_ONLY leaves of a field.
    Inside: TypeAlias = "dict[int, Inside] | None"

EXISTENCE_ONLY: Final = 0
"""At the end of a path: whether the field is there, without its value."""

_MAX_FIELD: Final = (1 << 29) - 1


class FieldProjection:
    """The fields to keep.

    Raise `BoundsError` for an invalid field number, `InvalidArgumentError` for a path with a 0 that is not its last
    number.
    """

    __slots__ = ("root",)

    def __init__(self, paths: Iterable[Iterable[int]] = ((),)) -> None:
        self.root: Inside = {}
        """What to keep of each field of a record, by field number; in the same form for the fields inside of it.

        None stands for everything, ``{}`` for nothing but the tag and a zero value. Fields not named are dropped.
        """
        for path in paths:
            self._add(tuple(path))

    def _add(self, path: tuple[int, ...]) -> None:
        for number in path:
            if not EXISTENCE_ONLY <= index(number) <= _MAX_FIELD:
                raise BoundsError(f"not a field number in a projection: {number!r}")
        existence = path[-1:] == (EXISTENCE_ONLY,)
        fields = path[:-1] if existence else path
        if EXISTENCE_ONLY in fields:
            raise InvalidArgumentError(f"a field projection continues after EXISTENCE_ONLY: {list(path)}")
        if not path:
            self.root = None
        inside = self.root
        for depth, number in enumerate(fields, 1):
            if inside is None:
                return  # an outer field is kept as a whole
            if depth == len(path):
                inside[number] = None
            else:
                inside = inside.setdefault(number, {})
