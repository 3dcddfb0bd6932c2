"""Writes below a folder, one name at a time, without ever following a link inside of it.

If the system can open a name relative to an open folder (all but Windows), nothing is looked up by path, and files that
others move or plant meanwhile cannot redirect the writes. On Windows each name is checked before it is used, links and
junctions are refused, and a file is compared with its name after it was opened. Someone who can write to the folder at
the same moment can win that race, as with any program there.

All methods raise OSError: FileExistsError if a name is taken, NotADirectoryError if `enter` finds no folder, or a link.

A file gets its final name by a hard link, which fails if the name is taken; then the old name is removed. On Windows it
is renamed, which fails there, too. On file systems without hard links an empty file is created first, only if the name
is free, and replaced by the rename.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_OWN: Final = (
    os.O_RDWR
    | os.O_CREAT
    | os.O_APPEND
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)
ANCHORED: Final = (
    {os.open, os.mkdir, os.stat, os.unlink, os.rename} <= os.supports_dir_fd
    and os.utime in os.supports_fd
    and hasattr(os, "O_NOFOLLOW")
    and hasattr(os, "O_DIRECTORY")
)
# Errors of systems and file systems that make no hard links, or no more for one file.
_NO_LINKS: Final = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK)
_LINKS: Final = hasattr(os, "link") and os.link in os.supports_dir_fd and os.link in os.supports_follow_symlinks


class AnchoredPlaces:
    """Places as descriptors of open folders. Every place must be closed with `leave`."""

    def root(self, folder: str) -> int:
        """Open the root folder for all writing; the only one that may be reached by a link."""
        return os.open(folder, _FOLDER)

    def again(self, place: int) -> int:
        """Return a second reference to a place."""
        return os.dup(place)

    def leave(self, place: int) -> None:
        """Close a place."""
        os.close(place)

    def is_empty(self, place: int, but: str = "") -> bool:
        """Say whether the folder is empty, except for ``but``."""
        if os.scandir not in os.supports_fd:
            return all(name == but for name in os.listdir(place))
        with os.scandir(place) as found:
            return all(entry.name == but for entry in found)

    def names(self, place: int) -> list[str]:
        """Return the names in the folder."""
        return os.listdir(place)

    def look(self, place: int, name: str) -> os.stat_result | None:
        """Return the status of ``name``, without following a link; None if it does not exist."""
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=place, follow_symlinks=False)
        return None

    def enter(self, place: int, name: str) -> int:
        """Open the folder ``name``."""
        try:
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=place)
        except OSError as error:
            # A link gives ENOTDIR, ELOOP or EMLINK, depending on the system.
            if self._is_folder(place, name):
                raise
            raise NotADirectoryError(error.errno, "is not a folder", name) from error

    def make_folder(self, place: int, name: str) -> None:
        """Create the folder ``name``."""
        os.mkdir(name, 0o777, dir_fd=place)

    def create(self, place: int, name: str) -> int:
        """Create the file ``name`` and open it for writing."""
        return os.open(name, _FLAGS, 0o666, dir_fd=place)

    def remove(self, place: int, name: str, descriptor: int) -> None:
        """Remove ``name`` if it still is the file of ``descriptor``; close the descriptor."""
        try:
            same = _same(os.stat(name, dir_fd=place, follow_symlinks=False), os.fstat(descriptor))
        finally:
            os.close(descriptor)
        if same:
            os.unlink(name, dir_fd=place)

    def own(self, place: int, name: str) -> int:
        """Open our own file ``name`` for reading and writing; create it if it is missing."""
        return _regular(os.open(name, _OWN, 0o600, dir_fd=place), name)

    def unlink(self, place: int, name: str) -> None:
        """Remove the file or link ``name``."""
        os.unlink(name, dir_fd=place)

    def remove_folder(self, place: int, name: str) -> None:
        """Remove the folder ``name``, which must be empty."""
        os.rmdir(name, dir_fd=place)

    def rename(self, source: int, old: str, place: int, new: str) -> None:
        """Rename the file ``old`` of ``source`` to ``new``, replacing a file or link of that name."""
        os.rename(old, new, src_dir_fd=source, dst_dir_fd=place)

    def move(self, source: int, old: str, place: int, new: str, claiming: Callable[[], object]) -> None:
        """Rename the file ``old`` of ``source`` to ``new``, if that name is free.

        ``claiming`` is called before an empty file takes the name, on file systems without hard links.
        """
        try:
            if not _LINKS:
                raise OSError(errno.ENOSYS, "no hard links")
            os.link(old, new, src_dir_fd=source, dst_dir_fd=place, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _claim(self, place, new, claiming)
            self.rename(source, old, place, new)
        else:
            os.unlink(old, dir_fd=source)

    def finish(self, place: int, name: str, descriptor: int, changed: int | None) -> os.stat_result:
        """Close the file, set its modification time (nanoseconds) unless that is None, and return its status."""
        try:
            if changed is not None:
                with suppress(OSError, OverflowError):  # a time that the file system cannot store
                    os.utime(descriptor, ns=(changed, changed))
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    @staticmethod
    def _is_folder(place: int, name: str) -> bool:
        return stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)


class PathPlaces:
    """Places as absolute paths of folders. Each part below the root was checked on the way."""

    def root(self, folder: str) -> str:
        """Return the root folder for all writing; the only one that may be reached by a link."""
        path = os.path.realpath(folder)
        if os.name != "nt" or path.startswith("\\\\?\\"):
            return path
        # This form has no limit of 260 characters, and no special names such as CON.
        return "\\\\?\\UNC" + path[1:] if path.startswith("\\\\") else "\\\\?\\" + path

    def again(self, place: str) -> str:
        """Return a second reference to a place."""
        return place

    def leave(self, place: str) -> None:
        """Do nothing: a path needs no closing."""

    def is_empty(self, place: str, but: str = "") -> bool:
        """Say whether the folder is empty, except for ``but``."""
        with os.scandir(place) as found:
            return all(entry.name == but for entry in found)

    def names(self, place: str) -> list[str]:
        """Return the names in the folder."""
        return os.listdir(place)

    def look(self, place: str, name: str) -> os.stat_result | None:
        """Return the status of ``name``, without following a link; None if it does not exist."""
        with suppress(FileNotFoundError):
            return os.lstat(os.path.join(place, name))
        return None

    def enter(self, place: str, name: str) -> str:
        """Return the folder ``name``."""
        path = os.path.join(place, name)
        if not _is_real_folder(os.lstat(path)):
            raise NotADirectoryError(0, "is not a folder", name)
        return path

    def make_folder(self, place: str, name: str) -> None:
        """Create the folder ``name``."""
        self._check(place)
        os.mkdir(os.path.join(place, name))

    def create(self, place: str, name: str) -> int:
        """Create the file ``name`` and open it for writing."""
        self._check(place)
        path = os.path.join(place, name)
        if os.path.lexists(path):  # even a broken link, through which Windows would create a file
            raise FileExistsError(0, "is there", name)
        descriptor = os.open(path, _FLAGS | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0), 0o666)
        try:
            self._check(place)
            if not _same(os.lstat(path), os.fstat(descriptor)):
                raise NotADirectoryError(0, "was replaced while it was created", name)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def remove(self, place: str, name: str, descriptor: int) -> None:
        """Remove ``name`` if it still is the file of ``descriptor``; close the descriptor."""
        path = os.path.join(place, name)
        try:
            self._check(place)
            same = _same(os.lstat(path), os.fstat(descriptor))
        finally:
            os.close(descriptor)  # Windows does not remove open files
        if same:
            os.unlink(path)

    def own(self, place: str, name: str) -> int:
        """Open our own file ``name`` for reading and writing; create it if it is missing."""
        self._check(place)
        path = os.path.join(place, name)
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "is not a file of this program", name)
        return _regular(os.open(path, _OWN, 0o600), name)

    def unlink(self, place: str, name: str) -> None:
        """Remove the file or link ``name``."""
        self._check(place)
        os.unlink(os.path.join(place, name))

    def remove_folder(self, place: str, name: str) -> None:
        """Remove the folder ``name``, which must be empty."""
        self._check(place)
        os.rmdir(os.path.join(place, name))

    def rename(self, source: str, old: str, place: str, new: str) -> None:
        """Rename the file ``old`` of ``source`` to ``new``, replacing a file or link of that name."""
        self._check(place)
        os.replace(os.path.join(source, old), os.path.join(place, new))

    def move(self, source: str, old: str, place: str, new: str, claiming: Callable[[], object]) -> None:
        """Rename the file ``old`` of ``source`` to ``new``, if that name is free.

        ``claiming`` is called before an empty file takes the name, on file systems without hard links.
        """
        self._check(place)
        origin, path = os.path.join(source, old), os.path.join(place, new)
        if os.name == "nt":
            os.rename(origin, path)  # which replaces nothing there
            return
        try:
            os.link(origin, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _claim(self, place, new, claiming)
            os.replace(origin, path)
        else:
            os.unlink(origin)

    def finish(self, place: str, name: str, descriptor: int, changed: int | None) -> os.stat_result:
        """Close the file, set its modification time (nanoseconds) unless that is None, and return its status."""
        try:
            written = os.fstat(descriptor)
        finally:
            os.close(descriptor)  # on Windows closing may set the time
        path = os.path.join(place, name)
        found = os.lstat(path)
        if changed is not None and _same(found, written):
            with suppress(OSError, OverflowError):
                os.utime(path, ns=(changed, changed))
                found = os.lstat(path)
        return found

    @staticmethod
    def _check(place: str) -> None:
        if not _is_real_folder(os.lstat(place)):
            raise NotADirectoryError(0, "is not a folder", os.path.basename(place))


Places = AnchoredPlaces | PathPlaces


def places() -> Places:
    """Return the safest implementation for this system."""
    return AnchoredPlaces() if ANCHORED else PathPlaces()


def _claim(places: Places, place: Any, name: str, claiming: Callable[[], object]) -> None:
    """Create ``name`` as an empty file if the name is free; call ``claiming`` first."""
    if places.look(place, name) is not None:
        raise FileExistsError(errno.EEXIST, "is there", name)
    claiming()
    os.close(places.create(place, name))


def _regular(descriptor: int, name: str) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "is not a file of this program", name)
    return descriptor


def _is_real_folder(found: os.stat_result) -> bool:
    # A junction is a folder to lstat, and leads elsewhere like a link.
    is_junction = getattr(found, "st_file_attributes", 0) & stat.FILE_ATTRIBUTE_REPARSE_POINT
    return stat.S_ISDIR(found.st_mode) and not is_junction


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
