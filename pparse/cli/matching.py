"""Patterns of names, and what to say if nothing matches them."""

from __future__ import annotations

import re

from pparse.errors import PathError
from pparse.result import LONG_NAME, near_misses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

# Names that are kept to say which of them was meant.
_KEPT: Final = 5_000


class Matcher:
    """Says which names match one of ``patterns``: globs, or regular expressions that are found anywhere.

    Without patterns all do. While nothing was matched, names are remembered that look like what was asked for.
    """

    def __init__(self, patterns: Sequence[str], *, regex: bool = False) -> None:
        self.patterns = patterns
        self.regex = regex
        self.count = 0  # names that matched
        self._asked = 0
        self._names: list[str] = []
        self._inside: dict[str, int] = {}  # parts of names, spelled as there, that were given as a whole name
        self._tests = [_expression(pattern) if regex else _glob(pattern) for pattern in patterns]

    def __call__(self, name: str) -> bool:
        """Return whether ``name`` is to be shown."""
        if not self._tests:
            return True
        self._asked += 1
        found = any(test(name) for test in self._tests)
        self.count += found
        if not self.count:
            self._remember(name)
        return found

    @property
    def is_wrong(self) -> bool:
        """Whether names were looked at, and none matched: then the pattern is taken to be wrong."""
        return bool(self._tests) and not self.count

    def complaint(self) -> str:
        """Return what to tell if nothing matched: with patterns or names that are near."""
        what = " or ".join(map(repr, self.patterns))
        if self._inside:
            part, count = next(iter(self._inside.items()))
            return f"no name matches {what}; did you mean {_quoted(f'*{part}*')} ({count:,} of {self._asked:,} names)?"
        near = near_misses(self.patterns[0].strip("*?"), self._names)
        if near:
            return f"no name matches {what}; did you mean {' or '.join(map(_quoted, near))}?"
        if self.regex or any(set(pattern) & set("*?[") for pattern in self.patterns):
            return f"no name matches {what}"
        hint = f"; names look like {_quoted(self._names[0])}" if self._names else ""
        return f"no name matches {what}, and there is no such file{hint}"

    def _remember(self, name: str) -> None:
        if len(self._names) < _KEPT and len(name) <= LONG_NAME:
            self._names.append(name)
        if self.regex:
            return
        for pattern in self.patterns:
            wanted = pattern.strip("*?").lower()
            at = name.lower().find(wanted) if wanted else -1
            if at >= 0:
                part = name[at : at + len(wanted)]
                self._inside[part] = self._inside.get(part, 0) + 1


def _quoted(text: str) -> str:
    return f"'{text}'"


def _expression(pattern: str) -> Callable[[str], bool]:
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise PathError(f"not a regular expression: {error}", path=pattern) from error
    return lambda name: search(name) is not None


def _glob(pattern: str) -> Callable[[str], bool]:
    from fnmatch import translate

    match = re.compile(translate(pattern)).match
    # An exact name may hold brackets and stars itself.
    below = pattern.rstrip("/") + "/"  # a folder of an archive stands for all in it
    return lambda name: name == pattern or match(name) is not None or name.startswith((below, f"./{below}"))
