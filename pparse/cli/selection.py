"""Which tensors and names a command takes: patterns and conditions; and suggestions if nothing matches."""

from __future__ import annotations

import re
from itertools import islice

from pparse.cli.common import BUG, DAMAGED, DIFFERENT, OK, USAGE, worst
from pparse.errors import OptionError, PathError
from pparse.lazy import lazy_pattern
from pparse.limits import count_words
from pparse.paths import glob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# How many names are kept for suggestions.
_KEPT: Final = 5_000
# The most patterns without a match that are reported one by one.
_COMPLAINTS: Final = 10


class Selection:
    """Tells which names match one of ``patterns`` or ``words``, and which tensors also meet all conditions.

    Patterns are globs, or regular expressions that match anywhere. ``words`` come from places of the command line where
    a file may stand, so each may be meant as a file. Without any pattern all names match. Until every pattern has
    matched, similar names are collected for suggestions.

    Conditions are the ``options`` that `Arguments.add_filters` declares. Raises `OptionError` for a type that is none.
    """

    def __init__(
        self, patterns: Sequence[str] = (), words: Sequence[str] = (), options: Any = None, *, regex: bool = False
    ) -> None:
        from pparse.tree.result import LONG_NAME

        self._longest = LONG_NAME
        self._unmet = [_Pattern(text, regex=regex) for text in dict.fromkeys(patterns)]
        self._unmet += [_Pattern(text, regex=regex, word=True) for text in dict.fromkeys(words)]
        self._met: list[_Pattern] = []
        self._asked = 0
        self._names: dict[int, list[str]] = {}
        self._kept = 0
        self._conditions = _conditions(options)
        self._taken = 0
        self.was_ended = False
        """Whether not all names were asked for: nothing can be said of patterns without a match."""

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
        for one in dict.fromkeys((name, *others[-1:])) if self._unmet else ():
            if self._kept < _KEPT and len(one) <= self._longest:
                self._names.setdefault(rank, []).append(one)
                self._kept += 1
        return found

    @property
    def takes_all(self) -> bool:
        """Whether there is neither a pattern nor a condition."""
        return not self._unmet and not self._met and self._conditions is None

    @property
    def takes_all_names(self) -> bool:
        """Whether there is no pattern."""
        return not self._unmet and not self._met

    def takes_name(self, viewer: Viewer, tensor: Tensor) -> bool:
        """Return whether a pattern matches the name of a tensor, or another one that it is found by."""
        if self.takes_all_names:
            return True
        others = viewer.other_names(tensor) if viewer.has_keys else ()
        return self(tensor.name, others, viewer.rank(tensor) if self._unmet else 0)

    def admits(self, viewer: Viewer, tensor: Tensor) -> bool:
        """Return whether a tensor meets the conditions."""
        found = self._conditions is None or self._conditions.hold(viewer, tensor)
        self._taken += found
        return found

    def takes(self, viewer: Viewer, tensor: Tensor) -> bool:
        """Return whether a tensor is one of those that are asked for, by its name and the conditions."""
        return self.takes_name(viewer, tensor) and self.admits(viewer, tensor)

    def takes_other(self, name: str, size: int | None, status: str) -> bool:
        """Return whether to show something that is no tensor: it has neither type nor shape."""
        found = self(name) and (self._conditions is None or self._conditions.hold_of(size, status))
        self._taken += found
        return found

    def code(self, code: int, out: Output, nothing: int = DIFFERENT) -> int:
        """Return the exit code of a command that got ``code``, after telling of patterns that match nothing (2).

        It is ``nothing`` if names match, and nothing meets the conditions.
        """
        if code == BUG:
            return code
        if self.complain(out):
            return USAGE
        unfit = self.unfit() if code in (OK, DAMAGED) else []
        for complaint in unfit:
            out.error(complaint)
        return worst({code, nothing}) if unfit else code

    def unfit(self) -> list[str]:
        """Return a message if nothing met the conditions."""
        return [] if self._conditions is None or self._taken else [f"nothing fits: {self._conditions}"]

    def complaints(self) -> Iterator[str]:
        """Yield a message for each pattern without a match, with similar patterns, names or files."""
        if self.was_ended:
            return
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


# What may be asked of a tensor besides its name: options, and words for them.
_CONDITIONS: Final = {
    "dtypes": "type",
    "shapes": "shape",
    "min_size": "at least",
    "max_size": "at most",
    "statuses": "status",
    "variables": "variables",
}
# What a pattern for a length has.
_OF_LENGTH: Final = frozenset("0123456789*?")
# How many types are named if none of them was asked for.
_MOST_TYPES: Final = 8


def has_conditions(options: Any) -> bool:
    """Return whether options ask for more than names."""
    return _conditions(options) is not None


def _conditions(options: Any) -> _Conditions | None:
    asked = {name: getattr(options, name, None) for name in _CONDITIONS}
    asked = {name: value for name, value in asked.items() if value not in (None, []) and value is not False}
    return _Conditions(asked) if asked else None


class _Conditions:
    """What is asked of a tensor besides its name: all of it must hold, of several types, shapes or statuses one."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._dtypes = [_type_of(name) for name in asked.get("dtypes", ())]
        self._shapes = [_lengths(text) for text in asked.get("shapes", ())]
        self._least, self._most = asked.get("min_size", 0), asked.get("max_size")
        self._statuses = frozenset(asked.get("statuses", ()))
        self._variables = asked.get("variables", False)
        self._types: dict[str, bool] = {}  # whether they are asked for
        self._asked = asked

    def hold(self, viewer: Viewer, tensor: Tensor) -> bool:
        """Return whether a tensor meets all of them."""
        return (
            (not self._dtypes or self._is_of_type(tensor))
            and (not self._shapes or any(_fits(tensor, lengths) for lengths in self._shapes))
            and (not self._least or tensor.listed_nbytes >= self._least)
            and (self._most is None or tensor.listed_nbytes <= self._most)
            and (not self._statuses or tensor.status.value in self._statuses)
            and (not self._variables or viewer.rank(tensor) == 0)
        )

    def hold_of(self, size: int | None, status: str) -> bool:
        """Return whether something meets them that is no tensor."""
        return (
            not (self._dtypes or self._shapes or self._variables)
            and (not self._least or (size is not None and size >= self._least))
            and (self._most is None or (size is not None and size <= self._most))
            and (not self._statuses or status in self._statuses)
        )

    def _is_of_type(self, tensor: Tensor) -> bool:
        from pparse.measuring.content import type_word

        if len(self._types) > _KEPT:
            self._types.clear()
        for word in (words := (type_word(tensor), tensor.stored_dtype)):
            if word not in self._types:
                self._types[word] = any(test(word) for test in self._dtypes)
        return any(self._types[word] for word in words)

    def __str__(self) -> str:
        told = []
        for name, value in self._asked.items():
            values = value if isinstance(value, list) else [value]
            told += [_CONDITIONS[name]] if value is True else [f"{_CONDITIONS[name]} {' or '.join(map(str, values))}"]
        there = sorted(filter(None, self._types))[:_MOST_TYPES]
        return ", ".join(told) + (f"; types here: {', '.join(there)}" if there else "")


def _type_of(name: str) -> Callable[[str], bool]:
    """Return what says whether a word for a type is meant by ``name``: a glob, or any word for that type."""
    from fnmatch import fnmatchcase

    from pparse.measuring.content import TEXT
    from pparse.tensors.dtype import DType

    if set(name) & set("*?["):
        return lambda word: fnmatchcase(word, name)
    try:
        meant = TEXT if name == TEXT else DType.named(name).name
    except ValueError as error:
        if name.upper() != name:  # it is no word of a format's own
            raise OptionError(str(error)) from error
        meant = name
    return lambda word: word in (name, meant)


def _lengths(text: str) -> list[str]:
    """Return a pattern for each length of a shape, as lists, JSON or Python write it. Raises `OptionError`."""
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("[]", "()"):
        inner = inner[1:-1].strip().removesuffix(",")
    lengths = [part.strip() for part in re.split("[,x×]", inner)] if inner not in ("", "scalar") else []
    if not all(part and set(part) <= _OF_LENGTH for part in lengths):
        raise OptionError(f"{text!r} is no shape: lengths have commas between them, and * is any (768,*; scalar: none)")
    return lengths


def _fits(tensor: Tensor, lengths: list[str]) -> bool:
    from fnmatch import fnmatchcase

    shape = [str(length) for length in tensor.shape] if tensor.is_shape_known else ["?"]
    return len(shape) == len(lengths) and all(map(fnmatchcase, shape, lengths))


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
            return f"{what}; did you mean '*{part}*' ({count:,} of {count_words(asked, 'name')})?"
        from pparse.tree.result import near_misses

        near = [*files, *next(filter(None, (near_misses(self.text.strip("*?"), names) for names in groups)), ())]
        if self._is_path and (files or not near):
            what += ", and there is no such file"
        if near:
            quoted = [f"'{name}'" for name in near]
            return f"{what}; did you mean {' or '.join(quoted)}?"
        return f"{what}; names look like '{groups[0][0]}'" if groups and self._is_plain else what


# Text that looks like a file: it has a folder or an extension.
_FILE: Final = lazy_pattern(r"/|\.[A-Za-z0-9_]{1,12}$")


def _near_files(path: str) -> list[str]:
    """Return up to three existing files with a path similar to ``path``, which may name something inside one."""
    from difflib import SequenceMatcher

    from pparse.data import files

    outer, mark, inner = path.partition("::")
    folder, name = files.split(outer)

    def nearness(one: str, other: str) -> float:
        return SequenceMatcher(None, one.lower(), other.lower()).ratio()

    stem = name.partition(".")[0]
    there = islice(files.names_in(folder), _KEPT)
    # A common extension does not make them similar.
    near = [(-nearness(name, other), other) for other in there if nearness(stem, other.partition(".")[0]) >= 0.6]
    best = sorted(pair for pair in near if pair[0] <= -0.6)
    return [files.inside(folder, other) + mark + inner for _, other in best[:3]]


def _expression(pattern: str) -> Callable[[str], bool]:
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise PathError(f"not a regular expression: {error}", path=pattern) from error
    return lambda name: search(name) is not None
