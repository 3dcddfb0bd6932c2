"""`AtomicFile`: a file that appears under its name only once it is complete."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from contextlib import suppress

from pparse.data.files import same_file
from pparse.errors import OptionError, PparseError, SourceError, spoken, system_error
from pparse.limits import MIB, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO, Self


class AtomicFile:
    """Write to a file beside ``path``, and rename it at the end; nothing is left behind if writing fails.

    What killed processes left behind for the same ``path`` is removed; a file that a process is still writing is
    locked, and stays. A symbolic link is replaced, and what it leads to stays as it is. ``make_folders``: those of
    ``path`` that are missing are made. ``like``: it gets the permissions, the attributes and, if the system lets us,
    the owner of that file.
    """

    def __init__(self, path: str, *, make_folders: bool = False, like: str | None = None) -> None:
        self.path = path
        self._like = like
        self._temporary = ""
        try:
            if make_folders and (folder := os.path.dirname(path)):
                os.makedirs(folder, exist_ok=True)
            sweep(path)
            descriptor, self._temporary = make_locked(path)
        except (OSError, ValueError) as error:  # of the system; a NUL in the name
            raise system_error(error, "cannot write", path) from error
        self.stream: BinaryIO = os.fdopen(descriptor, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, PparseError):
            with suppress(OSError):
                self.stream.close()
            self._remove()
            raise system_error(error, "cannot write", self.path) from error
        lock = -1
        try:
            if kind is None and os.name != "nt":
                lock = os.dup(self.stream.fileno())  # no other process shall take it for a leftover meanwhile
            self.stream.close()
            if kind is None:
                self._permit()
                os.replace(self._temporary, self.path)
                self._temporary = ""
        except OSError as failed:
            raise system_error(failed, "cannot write", self.path) from failed
        finally:
            self._remove()
            if lock >= 0:
                os.close(lock)

    def _permit(self) -> None:
        if self._like is not None:
            from shutil import copystat

            known = os.stat(self._like)
            with suppress(OSError, AttributeError):  # only root gives files away; Windows has no owners like these
                os.chown(self._temporary, known.st_uid, known.st_gid)
            copystat(self._like, self._temporary)
            os.utime(self._temporary)
            return
        # mkstemp makes private files; set the permissions that open() would.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(self._temporary, 0o666 & ~mask)

    def _remove(self) -> None:
        if self._temporary:
            os.unlink(self._temporary)
            self._temporary = ""


def sync_folder(path: str) -> None:
    """Wait until the names in the folder of ``path`` are on the disk, where the system can tell."""
    if os.name != "nt":
        descriptor = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            with suppress(OSError):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def refuse_full(path: str, wanted: int) -> None:
    """Raise `SourceError` if ``wanted`` bytes, which will surely be written to ``path``, are more than are free there.

    ``path`` need not exist. Below a mebibyte nobody is asked, and no answer counts as room.
    """
    if wanted < MIB:
        return
    from shutil import disk_usage

    place = os.path.abspath(path)
    while not os.path.exists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    try:
        total, _, free = disk_usage(place)
    except (OSError, ValueError):
        return
    if wanted > free and total:  # some file systems of a network tell neither
        raise SourceError(
            f"{format_size(wanted)} are to be written, and {format_size(free)} are free there ({wanted:,} and {free:,} "
            "bytes): make room, or name a place on another disk",
            errno=errno.ENOSPC,
            source=path,
        )


def refuse_existing(paths: Iterable[str], source: str | None = None, *, force: bool) -> None:
    """Raise `OptionError` for outputs that are the ``source`` or no file; unless ``force``, for any that exists."""
    for path in filter(os.path.lexists, paths):
        if source is not None and same_file(path, source):
            raise OptionError(f"the output {path} is the file being read; name another one")
        if os.path.isdir(path):
            raise OptionError(f"the output {path} is a folder; name a file in it")
        if os.path.exists(path) and not os.path.isfile(path):
            raise OptionError(f"the output {path} is not a file")
        if not force:
            raise OptionError(f"{path} exists already; name another output, or replace it with {spoken('--force')}")


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file until it is closed. False: another process holds the lock; None: the system cannot lock."""
    try:
        if os.name == "nt":
            import msvcrt

            os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # far behind the content, which stays readable
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
            os.lseek(descriptor, 0, os.SEEK_SET)
            return True
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK) else None
    except ImportError:
        return None
    return True


def make_locked(path: str, *, folder: bool = False) -> tuple[int, str]:
    """Make a file, or a folder, beside ``path`` that `sweep` of other processes leaves alone while it is open.

    Return its descriptor (-1 for a folder on Windows, which opens none) and its path.
    """
    place, prefix = os.path.dirname(path) or ".", _prefix(path)
    while True:
        if folder:
            temporary = tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=place)
            descriptor = os.open(temporary, os.O_RDONLY) if os.name != "nt" else -1
        else:
            descriptor, temporary = tempfile.mkstemp(prefix=prefix, suffix=".partial", dir=place)
        # Before it is locked, another process may take it for a leftover.
        if descriptor < 0 or (try_lock(descriptor) is not False and os.path.lexists(temporary)):
            return descriptor, temporary
        os.close(descriptor)
        with suppress(OSError):
            (os.rmdir if folder else os.unlink)(temporary)


def sweep(path: str) -> None:
    """Remove the files and folders of `make_locked` for ``path`` that no process has open."""
    for left in leftovers(path):
        with suppress(OSError):
            _remove_if_left(left)


def leftovers(path: str, ending: str = "") -> list[str]:
    """Return the paths of the files and folders of `make_locked` for ``path``, and those with an ``ending`` more."""
    place = os.path.dirname(path)
    ours = re.compile(re.escape(_prefix(path)) + r"[a-z0-9_]{8}\.partial" + re.escape(ending)).fullmatch
    try:
        return [os.path.join(place, name) for name in filter(ours, os.listdir(place or "."))]
    except OSError:
        return []


def _prefix(path: str) -> str:
    from hashlib import blake2b

    name = os.path.basename(path)
    # File names have a length limit: a hash stands for the whole name, which there may be no room for.
    return f"{name[:40]}.{blake2b(os.fsencode(name), digest_size=6).hexdigest()}."


def _remove_if_left(path: str) -> None:
    folder = os.path.isdir(path)
    flags = os.O_RDONLY if folder else os.O_RDWR
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags)
    try:
        is_left = try_lock(descriptor)
        if is_left and folder:
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        elif is_left and os.name != "nt":
            os.unlink(path)
    finally:
        os.close(descriptor)
    if is_left and os.name == "nt":  # Windows does not remove open files
        os.unlink(path)
