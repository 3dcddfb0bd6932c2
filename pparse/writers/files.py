"""`AtomicFile`: a file that appears under its name only once it is complete."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from contextlib import suppress

from pparse.errors import PparseError, SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Self


class AtomicFile:
    """Write to a file beside ``path``, and rename it at the end; nothing is left behind if writing fails.

    ``sweep``: also remove files for the same ``path`` that killed processes left behind. A file that a process is still
    writing is locked, and stays.
    """

    def __init__(self, path: str, *, sweep: bool = False) -> None:
        # A symbolic link stays; its target is replaced.
        self.path = os.path.realpath(path) if os.path.islink(path) else path
        self._temporary = ""
        try:
            descriptor, self._temporary = _make_locked(self.path) if sweep else _make(self.path)
        except OSError as error:
            raise SourceError(f"cannot write: {error.strerror or error}", errno=error.errno, source=path) from error
        except ValueError as error:  # a NUL byte
            raise SourceError(f"cannot write: {error}", source=repr(path)) from error
        self.stream: BinaryIO = os.fdopen(descriptor, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, PparseError):
            with suppress(OSError):
                self.stream.close()
            self._remove()
            raise SourceError(
                f"cannot write: {error.strerror or error}", errno=error.errno, source=self.path
            ) from error
        try:
            self.stream.close()
            if kind is None:
                # mkstemp makes private files; set the permissions that open() would.
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._temporary, 0o666 & ~mask)
                os.replace(self._temporary, self.path)
                self._temporary = ""
        except OSError as failed:
            raise SourceError(
                f"cannot write: {failed.strerror or failed}", errno=failed.errno, source=self.path
            ) from failed
        finally:
            self._remove()

    def _remove(self) -> None:
        if self._temporary:
            os.unlink(self._temporary)
            self._temporary = ""


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


def _make(path: str, mark: str = "") -> tuple[int, str]:
    prefix = f"{os.path.basename(path)[:40]}.{mark}"  # file names have a length limit
    return tempfile.mkstemp(prefix=prefix, suffix=".partial", dir=os.path.dirname(path) or ".")


def _make_locked(path: str) -> tuple[int, str]:
    """Make a file that `_sweep` of other processes leaves alone; sweep first."""
    from hashlib import blake2b

    # Made from the whole name, which the new file's name may have no room for.
    mark = blake2b(os.fsencode(os.path.basename(path)), digest_size=6).hexdigest() + "."
    _sweep(path, mark)
    while True:
        descriptor, temporary = _make(path, mark)
        # Before it is locked, another process may take the file for a leftover.
        if try_lock(descriptor) is not False and os.path.lexists(temporary):
            return descriptor, temporary
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(temporary)


def _sweep(path: str, mark: str) -> None:
    """Remove the files of `_make_locked` that no process has open."""
    folder = os.path.dirname(path) or "."
    ours = re.compile(re.escape(f"{os.path.basename(path)[:40]}.{mark}") + r"[a-z0-9_]{8}\.partial").fullmatch
    with suppress(OSError):
        for name in filter(ours, os.listdir(folder)):
            with suppress(OSError):
                _remove_if_left(os.path.join(folder, name))


def _remove_if_left(path: str) -> None:
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags)
    try:
        is_left = try_lock(descriptor)
        if is_left and os.name != "nt":
            os.unlink(path)
    finally:
        os.close(descriptor)
    if is_left and os.name == "nt":  # Windows does not remove open files
        os.unlink(path)
