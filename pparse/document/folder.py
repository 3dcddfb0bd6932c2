"""Folders: the files beside a file, or in a folder that is a document of its own.

What needs other files (a sharded model, a SavedModel) gets them from a `Folder`, whatever that is made of: a folder of
the system here, a folder in an archive in `pparse.containers.member_folder`. Nothing outside of it is reached.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from pparse.data.local import inside, open_file
from pparse.errors import PathError, SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Folder(ABC):
    """Files by name; those of folders below it by a path with ``/``."""

    path: str
    """What messages call the folder."""

    @abstractmethod
    def names(self) -> list[str] | None:
        """Return the names of the files in it, sorted, without those of folders below; None if that is not known."""

    @abstractmethod
    def open(self, name: str, beside: Any) -> Any:
        """Return the file ``name`` as an extraction, for the one ``beside`` which it belongs to.

        Raises `PathError` if the name leads out of the folder, `SourceError` if there is no such file.
        """

    def path_of(self, name: str) -> str:
        """Return the path of a file in it, as the caller who named the folder would write it."""
        return name if self.path in ("", ".") else inside(self.path, name)

    @abstractmethod
    def sizes(self, name: str) -> list[int]:
        """Return the sizes in bytes of the files in the folder ``name`` below; an empty list if there is none."""


class LocalFolder(Folder):
    """A folder of the system. Symbolic links in it are followed, since download caches consist of them."""

    def __init__(self, path: str) -> None:
        self.path = path

    def names(self) -> list[str] | None:
        """Return the names of the files in it. Raises `SourceError`."""
        try:
            with os.scandir(self.path or ".") as listing:
                return sorted(item.name for item in listing if item.is_file())
        except OSError as error:
            reason = f"cannot list: {error.strerror or error}"
            raise SourceError(reason, errno=error.errno, source=self.path) from error

    def open(self, name: str, beside: Any) -> Any:
        """Open the file ``name``."""
        session = beside.session
        data = open_file(inside(self.path, *confine(name)), session.pool, session.stats)
        session.adopt(data)
        return beside.file(name, data)

    def sizes(self, name: str) -> list[int]:
        """Return the sizes of the files in the folder ``name``."""
        try:
            with os.scandir(inside(self.path, *confine(name))) as listing:
                return [item.stat().st_size for item in listing if item.is_file()]
        except OSError:
            return []


def confine(name: str) -> list[str]:
    """Return the parts of a relative file name that stays in its folder. Raises `PathError` for any other name."""
    parts = name.split("/")
    if (
        not name
        or "\0" in name
        or "\\" in name
        or name.startswith("/")
        or any(part in ("", ".", "..") for part in parts)
        or (len(name) > 1 and name[1] == ":")
    ):
        raise PathError("the file name is not valid, or leads out of its folder", path=name)
    return parts
