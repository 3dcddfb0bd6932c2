"""What lies beside a file that is not whole: its other parts, the file that was meant, signs of a running download.

Only names are looked at, and the sizes and first bytes of a few files: what is said is where to look, never a verdict.
"""

from __future__ import annotations

import re

from pparse.data.base import Distance
from pparse.data.files import name_of
from pparse.document.folder import STOPPED, UNREADABLE, absent_part, how_to_join, names_in, parts_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from pparse.document.extraction import Extraction
    from pparse.document.opening import Resume

# How many files are asked for their size.
_MOST_SIZES: Final = 16
# A folder names an index, and that its files.
_LEVELS: Final = 3
# How many first bytes of two files are compared.
_BEGIN: Final = 64 << 10
# Files in which a program keeps how far a download is, and the endings of what is not finished.
_CONTROL: Final = (".aria2", ".dl-meta", ".st", ".axel")
_UNFINISHED: Final = (".part", ".partial", ".crdownload", ".download", ".incomplete", ".!qB", ".tmp")
# What copies of a file are called.
_COPY: Final = re.compile(r"^copy of |\(\d{1,4}\)| - copy|[ _-]copy|(?:\.part|\.partial|\.tmp|\.bak|\.old|\.orig)$")


def advise(outer: Extraction, files: Sequence[Resume], expected: int | None) -> None:
    """Note at each of ``files``, which are to be resumed or fetched, what lies beside it and is better, or as good.

    ``outer`` is the outermost file, or a folder; ``expected`` the size that the file should have, if that is known.
    """
    names = _names_beside(outer)
    for file in files[:_MOST_SIZES] if names else ():
        name = name_of(file.file)
        if outer.folder is None or outer.folder.path_of(name).removeprefix("./") != file.file.removeprefix("./"):
            continue
        control = _control(name, names)
        parts = () if control is not None else _parts(outer, name, names)
        if control is not None:
            how = " (aria2c -c)" if control.endswith(".aria2") else ""
            file.note = f"the program that wrote {control} has not finished: run it again{how}"
            file.helps = False
        elif parts:
            absent = absent_part(parts)
            file.note = f"{name} is the first of {len(parts)} parts that lie beside it: {how_to_join(parts, names)}"
            if absent is not None:
                file.note = f"{name} is one of the parts beside it, and {absent} is missing: get it, and join them"
            file.helps = False
        else:
            file.note = _other(outer, name, names, file.at, file.size or expected)


def unfinished(outer: Extraction) -> str | None:
    """Return the file in which a program keeps how far the download of an outermost file is; None if there is none."""
    return None if outer.is_folder else _control(name_of(outer.name), _names_beside(outer))


def files_of(document: Extraction) -> set[str]:
    """Return the names of the files that were opened because they belong to a document."""
    used: set[str] = set()
    level = [document]
    for _ in range(_LEVELS):
        below = [kid for one in level for kid in one.children.items()]
        used.update(name for name, _ in below)
        level = [kid for _, kid in below]
    return used


def _names_beside(outer: Extraction) -> frozenset[str]:
    """Return the names of the files in the folder of a file, or in a folder; none if that is far away."""
    is_far = outer.folder is not None and outer.folder.distance is Distance.FAR
    return frozenset() if is_far else names_in(outer.folder)


def _control(name: str, names: frozenset[str]) -> str | None:
    return next((name + ending for ending in _CONTROL if name + ending in names), None)


def _parts(outer: Extraction, name: str, names: frozenset[str]) -> list[str]:
    """Return the parts of a file, in order, if ``name`` is that of the first one and others lie beside it.

    What begins as this one does is another file of its kind: of the next step of a training, say.
    """
    found = parts_in(names, name)
    begin = _looked_at(outer, found[1], 4)[1] if found else b""
    return found if found and begin != outer.data.pread(outer.start, 4) else []


def _looked_at(outer: Extraction, name: str, count: int) -> tuple[int, bytes]:
    """Return the size and the first bytes of a file beside another; nothing if it cannot be read.

    What is wrong with a file that nobody asked for is not told.
    """
    try:
        file = outer.sibling(name, any_content=True)
        return file.find_end(), file.data.pread(0, count)
    except STOPPED:
        raise
    except UNREADABLE:
        return 0, b""


def _other(outer: Extraction, name: str, names: frozenset[str], at: int, expected: int | None) -> str:
    """Return what to say of a file beside another one that may be the one that was meant; empty if there is none."""
    for ending in _UNFINISHED:
        if name + ending in names:
            return f"{name + ending} beside it may be the download of it that is not finished"
    plain, ending = _plain(name), name.rpartition(".")[2]
    alike = sorted(other for other in names if other != name and _plain(other) == plain)
    others = [*alike, *sorted(one for one in names if one.endswith(f".{ending}") and one not in (name, *alike))]
    count = min(at, _BEGIN)
    begin = outer.data.pread(outer.start, count) if count and expected else b""
    for other in others[:_MOST_SIZES] if expected else ():
        if _looked_at(outer, other, count) == (expected, begin):
            has = f"{other!r} beside it has the {expected:,} bytes that this should have"
            return f"{has}, and begins as it does" if at else f"or rename it, if that is it: {has}"
    return f"or rename {alike[0]!r}, if that is it" if alike and not at else ""


def _plain(name: str) -> str:
    """Return a name without what makes it that of a copy."""
    stem, dot, ending = name.lower().rpartition(".")
    return _COPY.sub("", stem).strip() + dot + ending if dot else _COPY.sub("", name.lower()).strip()
