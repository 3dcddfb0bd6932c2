"""What is known of names of classes, functions and operators: how dangerous it is to load a file that has them.

The names, their grades and the reasons are data: ``globals.txt``.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from operator import attrgetter

from pparse.data import files
from pparse.tree.code_use import Grade

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_BY_ARGUMENTS: Final = "by-arguments"
_LEADING: Final = "leading"
_LONGEST_NAME: Final = 1_000


class Known(namedtuple("Known", "grade reason role")):
    """What is known of a name: a grade (None: its arguments decide), why, and what is done with its arguments."""

    __slots__ = ()

    @property
    def order(self) -> int:
        """Below 0 if the arguments decide; then 0 for the worst grade."""
        return -1 if self.grade is None else int(self.grade.order)


class _KnownNames:
    """The names that are known."""

    def __init__(self) -> None:
        self.leading: set[str] = set()
        """Names that lead to whatever they name, also as attributes of other modules (``torch.serialization.os``)."""
        self._exact: dict[str, Known] = {}
        self._below: dict[str, Known] = {}
        self._classes: dict[str, Known] = {}
        known, word = _UNKNOWN, ""
        for line in files.read_beside(__spec__, "globals.txt").decode("ascii").splitlines():
            if line.startswith("="):
                head, _, reason = line[1:].strip().partition(": ")
                word, _, role = head.partition(" ")
                known = Known(None if word in (_BY_ARGUMENTS, _LEADING) else Grade(word), reason, role)
            elif not line.startswith("#"):
                for name in line.split():
                    if word == _LEADING:
                        self.leading.add(name)
                    else:
                        self._add(name, known)

    def _add(self, name: str, known: Known) -> None:
        if name.endswith(".[A]"):
            self._classes[name.removesuffix(".[A]").removesuffix(".*")] = known
        elif name.endswith(".*"):
            self._below[name.removesuffix(".*")] = known
        else:
            self._exact[name] = known

    def has(self, name: str) -> bool:
        """Return whether the name itself is known, and not just others like it."""
        return name in self._exact

    def find(self, name: str) -> Known | None:
        """Return what is known of a name; None: nothing."""
        found = self._exact.get(name)
        if found is not None:
            return found
        around, _, last = name.rpartition(".")
        is_class = last[:1].isupper()
        while around:
            if is_class and around in self._classes:
                return self._classes[around]
            if around in self._below:
                return self._below[around]
            around = around.rpartition(".")[0]
        return None


_UNKNOWN: Final = Known(Grade.UNKNOWN, "nothing is known of it", "")


@lru_cache(maxsize=1)
def _table() -> _KnownNames:
    return _KnownNames()


@lru_cache(maxsize=1024)
def graded(name: str, words: str | None = None) -> Known:
    """Return what is known of a name with its module.

    ``words``: the part of it that is not the module's, if that is known: attributes in it may lead elsewhere.
    """
    if len(name) > _LONGEST_NAME or "…" in name:  # it may have been cut
        return Known(Grade.DANGEROUS, "a name of so many letters is nobody's", "")
    known = [found for found in map(_table().find, (name, _renamed(name))) if found is not None]
    if any(found.grade is Grade.WEIGHTS_ONLY for found in known):
        return known[0]
    parts = (words if words is not None else name.rpartition(".")[2]).split(".")
    if len(parts) > 1 or not (known and _table().has(name)):
        for number, part in enumerate(parts):
            if is_leading(part):
                reason = f"leads to {'.'.join(parts[number:])} through other names"
                return Known(Grade.DANGEROUS, reason, "")
    if name.startswith("?.") or name.endswith(".?"):
        return Known(Grade.DANGEROUS, "the name is put together by other calls", "")
    return min(known, key=attrgetter("order")) if known else _UNKNOWN


def _renamed(name: str) -> str:
    """Return what Python 3 looks up for a name of Python 2 (`_compat_pickle`)."""
    from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

    module, _, last = name.rpartition(".")
    module, last = NAME_MAPPING.get((module, last), (module, last))
    return f"{IMPORT_MAPPING.get(module, module)}.{last}"


def is_quiet(name: str, words: str | None = None) -> bool:
    """Whether a name does no harm, whatever it is called with. ``words``: see `graded`."""
    return graded(name, words).grade in (Grade.HARMLESS, Grade.WEIGHTS_ONLY)


def is_leading(word: str) -> bool:
    """Whether an attribute of that name leads to whatever it names."""
    leading = _table().leading
    return word in leading or word.lstrip("_") in leading
