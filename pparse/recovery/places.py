"""How a folder is written below, one name at a time, so that no link inside of it is ever followed.

Where the system can open a name relative to an open folder (all but Windows), nothing is looked up by path, and what
others move or plant meanwhile cannot lead elsewhere. On Windows each name is looked at before it is used, links and
junctions are refused, and a file is compared with its name after it was opened; who can write to the folder at the same
moment can win that race, as with any program there.

All raise OSError: FileExistsError where a name is taken, NotADirectoryError where `enter` finds no folder or a link.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)
ANCHORED: Final = (
    {os.open, os.mkdir, os.stat, os.unlink, os.rename} <= os.supports_dir_fd
    and os.utime in os.supports_fd
    and hasattr(os, "O_NOFOLLOW")
    and hasattr(os, "O_DIRECTORY")
)


class AnchoredPlaces:
    """A place is the descriptor of an open folder; who gets one gives it back with `leave`."""

    def root(self, folder: str) -> int:
        """Open the folder that everything is written below; the only one that may be named by a link."""
        return os.open(folder, _FOLDER)

    def again(self, place: int) -> int:
        """Return the same place once more."""
        return os.dup(place)

    def leave(self, place: int) -> None:
        """Close a place."""
        os.close(place)

    def is_empty(self, place: int) -> bool:
        """Say whether nothing is in there."""
        if os.scandir not in os.supports_fd:
            return not os.listdir(place)
        with os.scandir(place) as found:
            return next(found, None) is None

    def enter(self, place: int, name: str) -> int:
        """Open the folder ``name``."""
        try:
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=place)
        except OSError as error:
            # A link gives ENOTDIR, ELOOP or EMLINK, as the system likes.
            if self._is_folder(place, name):
                raise
            raise NotADirectoryError(error.errno, "is no folder", name) from error

    def make_folder(self, place: int, name: str) -> None:
        """Make the folder ``name``."""
        os.mkdir(name, 0o777, dir_fd=place)

    def create(self, place: int, name: str) -> int:
        """Make the file ``name``, open for writing."""
        return os.open(name, _FLAGS, 0o666, dir_fd=place)

    def remove(self, place: int, name: str, descriptor: int) -> None:
        """Unlink ``name`` if it still is the file of ``descriptor``; close that."""
        try:
            same = _same(os.stat(name, dir_fd=place, follow_symlinks=False), os.fstat(descriptor))
        finally:
            os.close(descriptor)
        if same:
            os.unlink(name, dir_fd=place)

    def rename(self, place: int, old: str, new: str) -> None:
        """Give the file ``old`` the name ``new``; a file or link of that name is replaced."""
        os.rename(old, new, src_dir_fd=place, dst_dir_fd=place)

    def finish(self, place: int, name: str, descriptor: int, changed: int | None) -> None:
        """Close the file, and set when it was changed last, in nanoseconds, unless that is None."""
        if changed is not None:
            with suppress(OSError, OverflowError):  # a time that the file system cannot keep
                os.utime(descriptor, ns=(changed, changed))
        os.close(descriptor)

    @staticmethod
    def _is_folder(place: int, name: str) -> bool:
        return stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)


class PathPlaces:
    """A place is the absolute path of a folder, each part of which below the root was looked at on the way."""

    def root(self, folder: str) -> str:
        """Return the folder that everything is written below; the only one that may be named by a link."""
        path = os.path.realpath(folder)
        if os.name != "nt" or path.startswith("\\\\?\\"):
            return path
        # This form has no limit of 260 characters, and no meaning for names such as CON.
        return "\\\\?\\UNC" + path[1:] if path.startswith("\\\\") else "\\\\?\\" + path

    def again(self, place: str) -> str:
        """Return the same place once more."""
        return place

    def leave(self, place: str) -> None:
        """Nothing is open."""

    def is_empty(self, place: str) -> bool:
        """Say whether nothing is in there."""
        with os.scandir(place) as found:
            return next(found, None) is None

    def enter(self, place: str, name: str) -> str:
        """Return the folder ``name``."""
        path = os.path.join(place, name)
        if not _is_real_folder(os.lstat(path)):
            raise NotADirectoryError(0, "is no folder", name)
        return path

    def make_folder(self, place: str, name: str) -> None:
        """Make the folder ``name``."""
        self._check(place)
        os.mkdir(os.path.join(place, name))

    def create(self, place: str, name: str) -> int:
        """Make the file ``name``, open for writing."""
        self._check(place)
        path = os.path.join(place, name)
        if os.path.lexists(path):  # even a link to nothing, through which Windows would create a file
            raise FileExistsError(0, "is there", name)
        descriptor = os.open(path, _FLAGS | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0), 0o666)
        try:
            self._check(place)
            if not _same(os.lstat(path), os.fstat(descriptor)):
                raise NotADirectoryError(0, "was replaced while it was made", name)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def remove(self, place: str, name: str, descriptor: int) -> None:
        """Unlink ``name`` if it still is the file of ``descriptor``; close that."""
        path = os.path.join(place, name)
        try:
            self._check(place)
            same = _same(os.lstat(path), os.fstat(descriptor))
        finally:
            os.close(descriptor)  # Windows does not remove what is open
        if same:
            os.unlink(path)

    def rename(self, place: str, old: str, new: str) -> None:
        """Give the file ``old`` the name ``new``; a file or link of that name is replaced."""
        self._check(place)
        os.replace(os.path.join(place, old), os.path.join(place, new))

    def finish(self, place: str, name: str, descriptor: int, changed: int | None) -> None:
        """Close the file, and set when it was changed last, in nanoseconds, unless that is None."""
        written = os.fstat(descriptor)
        os.close(descriptor)  # on Windows closing may set the time
        path = os.path.join(place, name)
        if changed is not None:
            with suppress(OSError, OverflowError):
                if _same(os.lstat(path), written):
                    os.utime(path, ns=(changed, changed))

    @staticmethod
    def _check(place: str) -> None:
        if not _is_real_folder(os.lstat(place)):
            raise NotADirectoryError(0, "is no folder", os.path.basename(place))


Places = AnchoredPlaces | PathPlaces


def places() -> Places:
    """Return the safest way that this system has."""
    return AnchoredPlaces() if ANCHORED else PathPlaces()


def _is_real_folder(found: os.stat_result) -> bool:
    # A junction is a folder to lstat, and leads elsewhere like a link.
    is_junction = getattr(found, "st_file_attributes", 0) & stat.FILE_ATTRIBUTE_REPARSE_POINT
    return stat.S_ISDIR(found.st_mode) and not is_junction


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
