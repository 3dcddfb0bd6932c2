"""What keeps the start of a command short: names of packages and regular expressions that wait until they are used, and
classes of fields without `dataclasses`.

`Declared`: objects that hold what their class declares. `ByValue`: those that are equal if what they hold is.
"""

from __future__ import annotations

from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping
    from typing import Any, AnyStr, ClassVar, dataclass_transform
else:  # `typing` and `dataclasses` take milliseconds to import

    def dataclass_transform() -> object:
        """Return what changes nothing: only type checkers ask for it."""
        return lambda cls: cls


def module_called(name: str) -> Any:
    """Return the module with a dotted name; to import `importlib` for that takes a third of a millisecond."""
    return __import__(name, fromlist=("__name__",))


def lazy_names(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``package`` that imports a name on its first use, from the module in ``where``."""

    def find(name: str) -> Any:
        module = where.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import sys

        value = getattr(module_called(f"{package}.{module}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find


class _LazyPattern:
    """Compiles its expression when a method is first asked for, and has the methods as attributes from then on."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        import re

        compiled: re.Pattern[Any] = re.compile(self._pattern, self._flags)
        self.match, self.fullmatch, self.search = compiled.match, compiled.fullmatch, compiled.search
        self.finditer, self.findall = compiled.finditer, compiled.findall
        self.sub, self.split = compiled.sub, compiled.split
        return getattr(compiled, name)


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a compiled regular expression, in effect: it is compiled when it is first used.

    Compiling costs 0.1 to 1 ms, and most commands use few of the expressions that their modules define.
    """
    return _LazyPattern(pattern, flags)  # type: ignore[return-value]


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
        if len(values) > len(fields) or (named and not named.keys() <= fields.keys()):
            raise TypeError(f"{type(self).__name__} takes {', '.join(fields)}")

    def __repr__(self) -> str:
        held = self.__dict__
        own = [name for name in type(self).__annotations__ if name[0] != "_"]
        told = [f"{name}={word}" for name in own if (word := _shown(held.get(name)))]
        return f"<{type(self).__name__} {', '.join(told)}>"


def _shown(value: object) -> str:
    """Return a plain value, or how many a list holds; nothing of any other, which may be large, or lead back."""
    if isinstance(value, list):
        return f"[{len(value):,}]"
    plain = repr(value) if value != "" and isinstance(value, str | int | float) else ""
    return plain if len(plain) < 100 else plain[:100] + "…"


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
