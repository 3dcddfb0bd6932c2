"""Paths of sources: all that is asked of the file system about what is read, beside reading it.

Whoever has a `Data` asks that (`Data.path`, `Data.same_source`, `Data.identity`), and files beside it come from a
`pparse.document.folder.Folder`. Paths of what is written are the business of those who write.
"""

from __future__ import annotations

import os

from pparse.data.files import FileData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.data.base import Data, IoStats
    from pparse.data.files import DescriptorPool


def open_file(path: str | os.PathLike[str], pool: DescriptorPool | None = None, stats: IoStats | None = None) -> Data:
    """Return the file at ``path``; ``pool`` bounds how many are open. Raises `SourceError`, `DataChangedError`."""
    return FileData(path, pool, stats)


# -- what is there -----------------------------------------------------------------------------------------------------


def is_there(path: str) -> bool:
    """Return whether anything has this name, even a link that leads nowhere."""
    return os.path.lexists(path)


def exists(path: str) -> bool:
    """Return whether something can be opened by this name."""
    return os.path.exists(path)


def is_file(path: str) -> bool:
    """Return whether this is a regular file, or a link to one."""
    return os.path.isfile(path)


def is_folder(path: str) -> bool:
    """Return whether this is a folder, or a link to one."""
    return os.path.isdir(path)


def same_file(one: str, other: str) -> bool:
    """Return whether both names lead to one file, which exists."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # one of them does not exist
        return False


def real_path(path: str) -> str:
    """Return where ``path`` leads to in the end, links resolved."""
    return os.path.realpath(path)


def linked_name(path: str) -> str | None:
    """Return the name of the file that ``path``, a symbolic link, leads to; None if it is no link."""
    return os.path.basename(os.path.realpath(path)) if os.path.islink(path) else None


def names_in(folder: str) -> Iterator[str]:
    """Yield the names of everything in a folder; nothing if it cannot be listed."""
    try:
        with os.scandir(folder or ".") as listing:
            for entry in listing:
                yield entry.name
    except (OSError, ValueError):
        return


# -- names -------------------------------------------------------------------------------------------------------------


def inside(folder: str, *names: str) -> str:
    """Return the path of something in ``folder``; the last of ``names`` that is absolute counts alone."""
    return os.path.join(folder, *names)


def split(path: str) -> tuple[str, str]:
    """Return the folder that ``path`` lies in, and its name there."""
    return os.path.split(path)


def folder_of(path: str) -> str:
    """Return the folder that ``path`` lies in; empty for the current one."""
    return os.path.dirname(path)


def name_of(path: str) -> str:
    """Return the last name of ``path``."""
    return os.path.basename(path)


def numbered_parts(path: str) -> list[str | None] | None:
    """Return the files of one split into ``.001``, ``.002`` …, None for each missing one.

    None if ``path`` is not the first of several parts.
    """
    base, _, number = path.rpartition(".")
    if not base or len(number) < 3 or not number.isdecimal() or int(number) != 1:
        return None
    folder, name = split(base)
    found = {
        int(other[len(name) + 1 :]): other
        for other in names_in(folder)
        if other.startswith(f"{name}.")
        and len(other) == len(name) + 1 + len(number)
        and other[len(name) + 1 :].isdecimal()
    }
    if len(found) < 2:
        return None
    parts = [found.get(place) for place in range(1, max(found) + 1)]
    return [None if part is None else inside(folder, part) for part in parts]
