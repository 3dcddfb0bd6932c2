"""Patterns of names, and suggestions if nothing matches them."""

from __future__ import annotations

import re
from itertools import islice

from pparse.data import files
from pparse.errors import PathError
from pparse.lazy import lazy_pattern
from pparse.limits import count_words
from pparse.paths import glob
from pparse.tree.result import LONG_NAME, near_misses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Final

    from pparse.cli.output import Output
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# How many names are kept for suggestions.
_KEPT: Final = 5_000
# The most patterns without a match that are reported one by one.
_COMPLAINTS: Final = 10


class Matcher:
    """Tells which names match one of ``patterns`` or ``words``: globs, or regular expressions that match anywhere.

    ``words`` come from places of the command line where a file may stand, so each may be meant as a file. Without any
    pattern all names match. Until every pattern has matched, similar names are collected for suggestions.
    """

    def __init__(self, patterns: Sequence[str], words: Sequence[str] = (), *, regex: bool = False) -> None:
        self._unmet = [_Pattern(text, regex=regex) for text in dict.fromkeys(patterns)]
        self._unmet += [_Pattern(text, regex=regex, word=True) for text in dict.fromkeys(words)]
        self._met: list[_Pattern] = []
        self._asked = 0
        self._names: dict[int, list[str]] = {}
        self._kept = 0

    def __call__(self, name: str, others: Sequence[str] = (), rank: int = 0) -> bool:
        """Return whether to show what is called ``name``, and found by ``others``, the shortest last.

        Names of a low ``rank`` are suggested first.
        """
        if not self._unmet:
            return not self._met or any(pattern.fits(name, others) for pattern in self._met)
        self._asked += 1
        hits = [pattern for pattern in self._unmet if pattern.fits(name, others)]
        found = bool(hits) or any(pattern.fits(name, others) for pattern in self._met)
        if hits:
            self._met += hits
            self._unmet = [pattern for pattern in self._unmet if pattern not in hits]
        for pattern in self._unmet:
            pattern.look_inside(name, *others[-1:])
        if self._unmet:
            self._keep(rank, *dict.fromkeys((name, *others[-1:])))
        return found

    @property
    def takes_all(self) -> bool:
        """Whether there is no pattern."""
        return not self._unmet and not self._met

    def takes(self, viewer: Viewer, tensor: Tensor) -> bool:
        """Return whether to show a tensor: a pattern matches its name, or another one that it is found by."""
        if self.takes_all:
            return True
        others = viewer.other_names(tensor) if viewer.has_keys else ()
        return self(tensor.name, others, viewer.rank(tensor) if self._unmet else 0)

    def _keep(self, rank: int, *names: str) -> None:
        """Keep names for suggestions."""
        for name in names:
            if self._kept < _KEPT and len(name) <= LONG_NAME:
                self._names.setdefault(rank, []).append(name)
                self._kept += 1

    def complaints(self) -> Iterator[str]:
        """Yield a message for each pattern without a match, with similar patterns, names or files."""
        groups = [self._names[rank] for rank in sorted(self._names)]
        for pattern in self._unmet[:_COMPLAINTS]:
            yield pattern.complaint(groups, self._asked)
        if len(self._unmet) > _COMPLAINTS:
            yield f"no name matches {count_words(len(self._unmet) - _COMPLAINTS, 'other pattern')}"

    def complain(self, out: Output) -> bool:
        """Write the `complaints`; return whether there is any."""
        found = list(self.complaints())
        for complaint in found:
            out.error(complaint)
        return bool(found)


class _Pattern:
    """A pattern, and similar names that were seen. ``word``: it may have been meant as a file."""

    def __init__(self, text: str, *, regex: bool, word: bool = False) -> None:
        self.text = text
        self.test = _expression(text) if regex else glob(text)
        self._is_plain = not set(text) & set("*?[](){}|^$+\\" if regex else "*?[{")
        self._is_path = word and self._is_plain and _FILE.search(text.partition("::")[0]) is not None
        self._wanted = "" if regex else text.strip("*?").lower()
        self._inside: dict[str, int] = {}  # parts of names, as spelled there, that equal the pattern

    def fits(self, name: str, others: Sequence[str]) -> bool:
        """Return whether the pattern matches ``name``, or one of ``others``."""
        return self.test(name) or any(map(self.test, others))

    def look_inside(self, *names: str) -> None:
        """Record where the first of the names of one thing that contains the pattern has it."""
        for name in names:
            at = name.lower().find(self._wanted) if self._wanted else -1
            if at >= 0:
                part = name[at : at + len(self._wanted)]
                self._inside[part] = self._inside.get(part, 0) + 1
                return

    def complaint(self, groups: list[list[str]], asked: int) -> str:
        """Return the message if nothing matched among ``asked`` names.

        ``groups`` are the first of these, from those that most likely were meant to the least likely.
        """
        what = f"no name matches {self.text!r}"
        files = _near_files(self.text) if self._is_path else []
        if self._inside and not files:
            part, count = next(iter(self._inside.items()))
            return f"{what}; did you mean {_quoted(f'*{part}*')} ({count:,} of {count_words(asked, 'name')})?"
        near = [*files, *next(filter(None, (near_misses(self.text.strip("*?"), names) for names in groups)), ())]
        if self._is_path and (files or not near):
            what += ", and there is no such file"
        if near:
            return f"{what}; did you mean {' or '.join(map(_quoted, near))}?"
        return f"{what}; names look like {_quoted(groups[0][0])}" if groups and self._is_plain else what


# Text that looks like a file: it has a folder or an extension.
_FILE: Final = lazy_pattern(r"/|\.[A-Za-z0-9_]{1,12}$")


def _near_files(path: str) -> list[str]:
    """Return up to three existing files with a path similar to ``path``, which may name something inside one."""
    outer, mark, inner = path.partition("::")
    folder, name = files.split(outer)
    there = list(islice(files.names_in(folder), _KEPT))
    from difflib import SequenceMatcher

    def nearness(one: str, other: str) -> float:
        return SequenceMatcher(None, one.lower(), other.lower()).ratio()

    stem = name.partition(".")[0]
    # A common extension does not make them similar.
    near = [(nearness(name, other), other) for other in there if nearness(stem, other.partition(".")[0]) >= 0.6]
    best = sorted(((ratio, other) for ratio, other in near if ratio >= 0.6), key=lambda pair: (-pair[0], pair[1]))
    return [files.inside(folder, other) + mark + inner for _, other in best[:3]]


def _quoted(text: str) -> str:
    return f"'{text}'"


def _expression(pattern: str) -> Callable[[str], bool]:
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise PathError(f"not a regular expression: {error}", path=pattern) from error
    return lambda name: search(name) is not None
