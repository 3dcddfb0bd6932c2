"""What waits until it is used: names of packages, and regular expressions. It keeps the start of a command short."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping
    from typing import Any, AnyStr


def lazy_names(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``package`` that imports a name on its first use, from the module in ``where``."""

    def find(name: str) -> Any:
        module = where.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib
        import sys

        value = getattr(importlib.import_module(f"{package}.{module}"), name)
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
