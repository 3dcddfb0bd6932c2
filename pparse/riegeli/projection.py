"""Field projection: which fields of the records to read, so that the rest need not be decompressed.

A projection is a set of paths of field numbers. ``[]`` is everything; ``[6, 2]`` is field 2 in the messages of field 6;
``[6, 0]`` keeps field 6 but without its value (`EXISTENCE_ONLY`). A field on the way to a deeper path that is no
message is kept whole. Only transposed chunks are filtered, and non-proto records never are: expect more than was asked
for.
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
    """The fields to keep: ``root`` maps each field number of a record to what is kept inside of it, in the same form.

    There None stands for everything, ``{}`` for nothing: of such a field tag and zero value remain. What ``root`` does
    not name is dropped. Raises `BoundsError` for a number that is no field number, `InvalidArgumentError` for a path
    with a 0 that is not its last.
    """

    __slots__ = ("root",)

    def __init__(self, paths: Iterable[Iterable[int]] = ((),)) -> None:
        self.root: Inside = {}
        for path in paths:
            self._add(tuple(path))

    def _add(self, path: tuple[int, ...]) -> None:
        for number in path:
            if not EXISTENCE_ONLY <= index(number) <= _MAX_FIELD:
                raise BoundsError(f"not a field number in a projection: {number!r}")
        existence = path[-1:] == (EXISTENCE_ONLY,)
        fields = path[:-1] if existence else path
        if EXISTENCE_ONLY in fields:
            raise InvalidArgumentError(f"a field projection goes on after EXISTENCE_ONLY: {list(path)}")
        if not path:
            self.root = None
        inside = self.root
        for depth, number in enumerate(fields, 1):
            if inside is None:
                return  # all of an outer field is kept
            if depth == len(path):
                inside[number] = None
            else:
                inside = inside.setdefault(number, {})
