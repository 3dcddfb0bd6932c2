"""Writes below a folder, one name at a time, without ever following a link inside of it.

If the system can open a name relative to an open folder (all but Windows), nothing is looked up by path, and files that
others move or plant meanwhile cannot redirect the writes. On Windows each name is checked before it is used, links and
junctions are refused, and a file is compared with its name after it was opened. Someone who can write to the folder at
the same moment can win that race, as with any program there.

All methods raise OSError: FileExistsError if a name is taken, NotADirectoryError if `enter` finds no folder, or a link.

A file gets its final name by a hard link, which fails if the name is taken; then the old name is removed. On Windows it
is renamed, which fails there, too. On file systems without hard links an empty file is created first, only if the name
is free, and replaced by the rename.

Until a file is complete it is in a hidden folder at the root: `Workspace`.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from pparse.errors import OptionError
from pparse.lazy import lazy_pattern
from pparse.writers.files import try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

_COMMON: Final = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _COMMON
_OWN: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0) | _COMMON
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

WORK_NAME: Final = ".pparse-unfinished"
JOURNAL_NAME: Final = "journal"
_PARTIAL: Final = lazy_pattern(r"[0-9a-f]{16}\.partial")


class _FolderPlaces:
    """What is done in folders, each of which is a place: an open folder, or a path."""

    def _at(self, place: Any, name: str) -> tuple[str, int | None]:
        """Return how the system finds ``name``: a path, and the open folder that it counts from, if there is one."""
        raise NotImplementedError

    def _into(self, place: Any, name: str) -> tuple[str, int | None]:
        """Do what `_at` does, to write there."""
        return self._at(place, name)

    def is_empty(self, place: Any, but: str = "") -> bool:
        """Say whether the folder is empty, except for ``but``."""
        with os.scandir(self.listed(place)) as found:
            return all(entry.name == but for entry in found)

    def listed(self, place: Any) -> Any:
        """Return by what the system lists the folder."""
        return place

    def look(self, place: Any, name: str) -> os.stat_result | None:
        """Return the status of ``name``, without following a link; None if it does not exist."""
        path, anchor = self._at(place, name)
        with suppress(FileNotFoundError):
            return os.stat(path, dir_fd=anchor, follow_symlinks=False)
        return None

    def make_folder(self, place: Any, name: str) -> None:
        """Create the folder ``name``."""
        path, anchor = self._into(place, name)
        os.mkdir(path, 0o777, dir_fd=anchor)

    def create(self, place: Any, name: str) -> int:
        """Create the file ``name`` and open it for writing."""
        path, anchor = self._into(place, name)
        return os.open(path, _FLAGS, 0o666, dir_fd=anchor)

    def own(self, place: Any, name: str) -> int:
        """Open our own file ``name`` for reading and writing; create it if it is missing."""
        path, anchor = self._into(place, name)
        descriptor = os.open(path, _OWN, 0o600, dir_fd=anchor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileExistsError(errno.EEXIST, "is not a file of this program", name)
        return descriptor

    def remove(self, place: Any, name: str, descriptor: int) -> None:
        """Remove ``name`` if it still is the file of ``descriptor``; close the descriptor."""
        try:
            path, anchor = self._into(place, name)
            same = _same(os.stat(path, dir_fd=anchor, follow_symlinks=False), os.fstat(descriptor))
        finally:
            os.close(descriptor)  # Windows does not remove open files
        if same:
            os.unlink(path, dir_fd=anchor)

    def unlink(self, place: Any, name: str) -> None:
        """Remove the file or link ``name``."""
        path, anchor = self._into(place, name)
        os.unlink(path, dir_fd=anchor)

    def remove_folder(self, place: Any, name: str) -> None:
        """Remove the folder ``name``, which must be empty."""
        path, anchor = self._into(place, name)
        os.rmdir(path, dir_fd=anchor)

    def rename(self, source: Any, old: str, place: Any, new: str) -> None:
        """Rename the file ``old`` of ``source`` to ``new``, replacing a file or link of that name."""
        path, anchor = self._into(place, new)
        origin, start = self._at(source, old)
        os.replace(origin, path, src_dir_fd=start, dst_dir_fd=anchor)

    def move(self, source: Any, old: str, place: Any, new: str, claiming: Callable[[], object]) -> None:
        """Rename the file ``old`` of ``source`` to ``new``, if that name is free.

        ``claiming`` is called before an empty file takes the name, on file systems without hard links.
        """
        path, anchor = self._into(place, new)
        origin, start = self._at(source, old)
        try:
            if anchor is None:
                os.link(origin, path)
            elif _LINKS:
                os.link(origin, path, src_dir_fd=start, dst_dir_fd=anchor, follow_symlinks=False)
            else:
                raise OSError(errno.ENOSYS, "no hard links")
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if self.look(place, new) is not None:
                raise FileExistsError(errno.EEXIST, "is there", new) from error
            claiming()
            os.close(self.create(place, new))
            self.rename(source, old, place, new)
        else:
            os.unlink(origin, dir_fd=start)


class _OpenFolder:
    """An open folder, which is closed when nobody holds it any more."""

    __slots__ = ("descriptor",)

    def __init__(self, path: str, flags: int, anchor: int | None = None) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, flags, dir_fd=anchor)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class AnchoredPlaces(_FolderPlaces):
    """Places as open folders."""

    def root(self, folder: str) -> _OpenFolder:
        """Open the root folder for all writing; the only one that may be reached by a link."""
        return _OpenFolder(folder, _FOLDER)

    def listed(self, place: _OpenFolder) -> int:
        """Return by what the system lists the folder."""
        return place.descriptor

    def _at(self, place: _OpenFolder, name: str) -> tuple[str, int | None]:
        return name, place.descriptor

    def enter(self, place: _OpenFolder, name: str) -> _OpenFolder:
        """Open the folder ``name``."""
        try:
            return _OpenFolder(name, _FOLDER | os.O_NOFOLLOW, place.descriptor)
        except OSError as error:
            # A link gives ENOTDIR, ELOOP or EMLINK, depending on the system.
            if stat.S_ISDIR(os.stat(name, dir_fd=place.descriptor, follow_symlinks=False).st_mode):
                raise
            raise NotADirectoryError(error.errno, "is not a folder", name) from error

    def finish(self, place: _OpenFolder, name: str, descriptor: int, changed: int | None) -> os.stat_result:
        """Close the file, set its modification time (nanoseconds) unless that is None, and return its status."""
        try:
            if changed is not None:
                with suppress(OSError, OverflowError):  # a time that the file system cannot store
                    os.utime(descriptor, ns=(changed, changed))
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)


class PathPlaces(_FolderPlaces):
    """Places as absolute paths of folders. Each part below the root was checked on the way."""

    def root(self, folder: str) -> str:
        """Return the root folder for all writing; the only one that may be reached by a link."""
        path = os.path.realpath(folder)
        if os.name != "nt" or path.startswith("\\\\?\\"):
            return path
        # This form has no limit of 260 characters, and no special names such as CON.
        return "\\\\?\\UNC" + path[1:] if path.startswith("\\\\") else "\\\\?\\" + path

    def _at(self, place: str, name: str) -> tuple[str, int | None]:
        return os.path.join(place, name), None

    def _into(self, place: str, name: str) -> tuple[str, int | None]:
        """Do what `_at` does, to write there: the place must still be a folder."""
        if not _is_real_folder(os.lstat(place)):
            raise NotADirectoryError(0, "is not a folder", os.path.basename(place))
        return self._at(place, name)

    def enter(self, place: str, name: str) -> str:
        """Return the folder ``name``."""
        path = os.path.join(place, name)
        if not _is_real_folder(os.lstat(path)):
            raise NotADirectoryError(0, "is not a folder", name)
        return path

    def create(self, place: str, name: str) -> int:
        """Create the file ``name`` and open it for writing."""
        path, _ = self._into(place, name)
        if os.path.lexists(path):  # even a broken link, through which Windows would create a file
            raise FileExistsError(0, "is there", name)
        descriptor = super().create(place, name)
        try:
            self._into(place, name)
            if not _same(os.lstat(path), os.fstat(descriptor)):
                raise NotADirectoryError(0, "was replaced while it was created", name)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def own(self, place: str, name: str) -> int:
        """Open our own file ``name`` for reading and writing; create it if it is missing."""
        found = self.look(place, name)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise FileExistsError(errno.EEXIST, "is not a file of this program", name)
        return super().own(place, name)

    def move(self, source: str, old: str, place: str, new: str, claiming: Callable[[], object]) -> None:
        """Rename the file ``old`` of ``source`` to ``new``, if that name is free."""
        if os.name == "nt":
            os.rename(os.path.join(source, old), self._into(place, new)[0])  # which replaces nothing there
        else:
            super().move(source, old, place, new, claiming)

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


Places = AnchoredPlaces | PathPlaces


def places() -> Places:
    """Return the safest implementation for this system."""
    return AnchoredPlaces() if ANCHORED else PathPlaces()


def _is_real_folder(found: os.stat_result) -> bool:
    # A junction is a folder to lstat, and leads elsewhere like a link.
    is_junction = getattr(found, "st_file_attributes", 0) & stat.FILE_ATTRIBUTE_REPARSE_POINT
    return stat.S_ISDIR(found.st_mode) and not is_junction


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


class Workspace:
    """The hidden folder `WORK_NAME` of ``root``, created on demand.

    Everything in it is unfinished: files called ``<16 hexadecimal digits>.partial``, and the journal
    (`pparse.writers.journal`). It is removed when everything is done, unless somebody else put something into it.
    """

    def __init__(self, places: Places, root: Any) -> None:
        self._places: Any = places
        self._root: Any = root
        self._place: Any = None

    @property
    def is_there(self) -> bool:
        """Say whether something has its name, such as the folder of an earlier run."""
        return self._places.look(self._root, WORK_NAME) is not None

    def open(self) -> Any:
        """Return the place of the folder; create it if it is missing. `close` releases it."""
        if self._place is None:
            with suppress(FileExistsError):
                self._places.make_folder(self._root, WORK_NAME)
            try:
                self._place = self._places.enter(self._root, WORK_NAME)
            except NotADirectoryError as error:
                raise OSError(errno.EEXIST, f"{WORK_NAME} exists and is not a folder") from error
        return self._place

    def create(self) -> tuple[Any, str, int]:
        """Create a new file; return its own place, its name, and its descriptor."""
        while True:
            place, name = self.open(), f"{os.urandom(8).hex()}.partial"
            try:
                return place, name, self._places.create(place, name)
            except FileExistsError:
                continue
            except FileNotFoundError:
                # Another target of this folder finished, and removed the empty folder.
                if self.is_there:
                    raise
                self._place = None

    def sweep(self) -> None:
        """Remove the unfinished files of a run that was killed. Nothing else in the folder is touched."""
        place = self.open()
        for name in os.listdir(self._places.listed(place)):
            if _PARTIAL.fullmatch(name):
                self._places.unlink(place, name)

    def journal(self, *, make: bool) -> int | None:
        """Open and lock the journal; None if there is none and ``make`` is false.

        Raise `OptionError` if another process has locked it.
        """
        while True:
            if not make and (not self.is_there or self._places.look(self.open(), JOURNAL_NAME) is None):
                return None
            descriptor: int = self._places.own(self.open(), JOURNAL_NAME)
            try:
                if try_lock(descriptor) is False:  # None: the system has no locks
                    raise OptionError("another process is writing to this folder now")
                found = self._places.look(self.open(), JOURNAL_NAME)
            except BaseException:
                os.close(descriptor)
                raise
            if found is not None and found.st_ino == os.fstat(descriptor).st_ino:
                return descriptor
            os.close(descriptor)  # its run has just ended

    def remove_journal(self, descriptor: int) -> None:
        """Remove the journal and close it."""
        try:
            if os.name != "nt":  # Windows does not remove open files
                self._places.unlink(self.open(), JOURNAL_NAME)
        finally:
            os.close(descriptor)
        if os.name == "nt":
            self._places.unlink(self.open(), JOURNAL_NAME)

    def close(self) -> None:
        """Release the folder; remove it if it is empty."""
        if self._place is not None:
            with suppress(OSError):
                self._places.remove_folder(self._root, WORK_NAME)
        self._root = self._place = None
