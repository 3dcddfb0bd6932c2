"""The names of the parts of a file that was split, and which of them lie in a folder."""

from __future__ import annotations

import re
from itertools import islice
from shlex import quote

from pparse.data.local import name_of
from pparse.errors import CancelledError, ClosedError, PparseError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Final, TypeVar

    from pparse.document.folder import Folder

    T = TypeVar("T")

# What ends a question, whatever is asked; and what keeps a folder, or a file in it, from saying anything.
STOPPED: Final = (CancelledError, ClosedError)
UNREADABLE: Final = (PparseError, OSError, ValueError)
# How many names of a folder are looked at, and numbers of parts.
_MOST_NAMES: Final = 20_000
_MOST_PARTS: Final = 1_000
# How many parts that follow each other may be missing before others.
_MOST_ABSENT: Final = 20
# How many names a message has.
_MOST_SHOWN: Final = 6
# The names of parts: those of split(1), of 7-Zip and of download managers; of Info-ZIP (``zip -s``).
_PART: Final = re.compile(
    r"(?P<whole>.+?)(?P<mark>[._-]part[._-]?|[._-])(?P<number>[0-9]{1,5}|[a-z]{2,3})", re.IGNORECASE
)
_ZIP_PART: Final = re.compile(r"(?P<whole>.+)\.z(?:\d\d+|ip)", re.IGNORECASE)


def which_part(path: str, folder: Folder | None) -> str | None:
    """Return what to say of a file in ``folder`` that nothing recognises if its name is that of a later part."""
    name = name_of(path)
    names = names_in(folder)
    for first in first_names(name):
        if first in names and first != name:
            return f"its name is that of a part of a file; the first part, {first}, lies beside it: join them in order"
    return None


def names_in(folder: Folder | None) -> frozenset[str]:
    """Return the names of the files in a folder, as far as they can be listed."""
    return frozenset() if folder is None else frozenset(_listed(lambda: folder.names() or ()))


def folders_with(folder: Folder, endings: tuple[str, ...]) -> list[str]:
    """Return the path of a file with such an ending in each folder below ``folder`` that holds one."""
    found: dict[str, str] = {}
    for item in _listed(folder.tree):
        below, slash, name = item.path.partition("/")
        if slash and name.lower().endswith(endings):
            found.setdefault(below, item.path)
    return list(found.values())


def _listed(give: Callable[[], Iterable[T]]) -> list[T]:
    """Return the first of what a folder gives; nothing if it cannot be listed."""
    try:
        return list(islice(give(), _MOST_NAMES))
    except STOPPED:
        raise
    except UNREADABLE:
        return []


def how_to_join(parts: Sequence[str], names: Collection[str]) -> str:
    """Return what to do to join ``parts``, in order, in a folder that holds ``names``."""
    zipped, part = _ZIP_PART.fullmatch(parts[0]), _PART.fullmatch(parts[0])
    if any(not name.isascii() or name.startswith("-") or not name.isprintable() for name in parts):
        return "join them in order"
    if zipped is not None:
        return f"join them (zip -s 0 {quote(zipped['whole'])}.zip --out whole.zip)"
    whole = part["whole"] if part is not None and part["whole"] not in names else "whole"
    shown = " ".join(map(quote, parts[:_MOST_SHOWN])) + (" …" if len(parts) > _MOST_SHOWN else "")
    return f"join them (cat {shown} > {quote(whole)})" if whole not in names else "join them in order"


def first_names(name: str) -> Iterator[str]:
    """Yield what the first part may be called if ``name`` is that of a part."""
    zipped = _ZIP_PART.fullmatch(name)
    if zipped is not None:
        yield f"{zipped['whole']}.z01"
    part = _PART.fullmatch(name)
    if part is not None:
        head, number = part["whole"] + part["mark"], part["number"]
        if number.isdecimal():
            yield from (f"{head}{first:0{len(number)}}" for first in (0, 1))
        else:
            yield head + "a" * len(number)


def following_names(name: str) -> Iterator[str]:
    """Yield what the parts behind the first one are called."""
    zipped = _ZIP_PART.fullmatch(name)
    if zipped is not None:
        yield from (f"{zipped['whole']}.z{number:02}" for number in range(2, _MOST_PARTS))
        return
    part = _PART.fullmatch(name)
    if part is None:
        return
    head, number = part["whole"] + part["mark"], part["number"]
    if number.isdecimal():
        yield from (f"{head}{later:0{len(number)}}" for later in range(int(number) + 1, _MOST_PARTS))
    else:
        for later in range(1, _MOST_PARTS):
            letters = ""
            for _ in number:
                later, digit = divmod(later, 26)
                letters = chr(ord("a") + digit) + letters
            yield head + letters


def absent_part(parts: Sequence[str]) -> str | None:
    """Return the first part that is not among ``parts``, though one behind it is; None if there is none."""
    last = next((name for name in reversed(parts) if not name.lower().endswith(".zip")), "")
    if last != parts[0]:
        for name in following_names(parts[0]):
            if name not in parts:
                return name
            if name == last:
                break
    return None


def parts_in(names: Collection[str], name: str) -> list[str]:
    """Return the parts of a file, in order, if ``name`` is that of the first one and others are among ``names``."""
    if name not in first_names(name):
        return []
    found, absent = [name], 0
    for following in following_names(name):
        absent = 0 if following in names else absent + 1
        if not absent:
            found.append(following)
        elif absent == _MOST_ABSENT:
            break
    zipped = _ZIP_PART.fullmatch(name)
    if zipped is not None and f"{zipped['whole']}.zip" in names:
        found.append(f"{zipped['whole']}.zip")
    return found if len(found) > 1 else []
