"""`Declared`: objects that hold what their class declares. `ByValue`: those that are equal if what they hold is."""

from __future__ import annotations

from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, dataclass_transform
else:  # `typing` and `dataclasses` take milliseconds to import

    def dataclass_transform() -> object:
        """Return what changes nothing: only type checkers ask for it."""
        return lambda cls: cls


@dataclass_transform()
class Declared:
    """Holds what its class declares: each annotated attribute is an argument of the constructor, in that order.

    Raises TypeError for others.

    ::

        class Place(Declared):
            offset: int
            length: int | None = None
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = type(self).__annotations__
        self.__dict__.update(zip(fields, values, strict=False), **named)
        if len(values) > len(fields) or not self.__dict__.keys() <= fields.keys():
            raise TypeError(f"{type(self).__name__} takes {', '.join(fields)}")


class ByValue:
    """Equal to others of its class if all attributes that the class names with ``by`` are; hashed and shown by them.

    ::

        class Gap(ByValue, by=("offset", "length")): ...
    """

    __slots__ = ()

    _by_class: ClassVar[type]
    _by: ClassVar[attrgetter[Any]]

    def __init_subclass__(cls, by: tuple[str, ...] = ()) -> None:
        if by:  # else what is derived is equal as its base is
            cls._by_class, cls._by = cls, attrgetter(*by)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self._by_class) and bool(self._by(self) == self._by(other))

    def __hash__(self) -> int:
        return hash(self._by(self))

    def __repr__(self) -> str:
        held = self._by(self)
        return f"{self._by_class.__name__}({', '.join(map(repr, held if type(held) is tuple else (held,)))})"
