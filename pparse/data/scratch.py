"""Scratch files: unlinked temporary files for what does not fit into memory, under a common cap.

They exist only if the caller names a folder for them (``scratch=``, ``--scratch DIR``): a reader does not fill a disk
unasked. A pipe, which can be read in no other way, goes to the system's folder for temporary files. The files have no
name (on Windows they are deleted when closed), so nothing is ever left behind.
"""

from __future__ import annotations

import os

from pparse.errors import ClosedError, LimitError, refused, system_error
from pparse.limits import format_size
from pparse.locking import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from typing import Final

    from pparse.data.base import Buffer

_MAX_SYSTEM_CALL: Final = 1 << 30


class Scratch:
    """Makes spools in ``folder``. Thread-safe.

    Without ``folder``, `spool` raises the `LimitError` that names ``--scratch``.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, limit: int) -> None:
        self.folder = None if folder is None else os.fspath(folder)
        """Where the files are made; None: nowhere."""
        self.limit = limit
        """The most bytes that all spools hold together."""
        self.used = 0
        """Bytes that the spools hold now."""
        self._lock = Lock()

    def spool(self) -> Spool:
        """Return a new, empty `Spool`. Raises `LimitError` without a folder, `SourceError` if it is not usable."""
        if self.folder is None:
            raise no_scratch("this")
        from tempfile import TemporaryFile

        doing = "cannot make a scratch file"
        with refused(doing, self.folder), TemporaryFile(buffering=0, dir=self.folder, prefix="pparse-") as file:
            return Spool(self, os.dup(file.fileno()))

    def _take(self, count: int) -> None:
        with self._lock:
            if count > self.limit - self.used:
                wanted = self.used + count
                size, cap = format_size(wanted), self.limit
                reason = f"the scratch files would take {size}, above the limit scratch_bytes={cap}"
                option = f"--limit scratch_bytes={max(wanted, 2 * cap)}"
                raise LimitError(reason, option=option, wanted=wanted, got=cap)
            self.used += count

    def _give_back(self, count: int) -> None:
        with self._lock:
            self.used -= count


def no_scratch(what: str) -> LimitError:
    """Return the error for ``what`` if it needs a scratch file and there is no folder for one."""
    return LimitError(f"{what} needs a scratch file", option="--scratch DIR")


class Spool:
    """A temporary file that is appended to and read at any offset. Thread-safe."""

    def __init__(self, scratch: Scratch, descriptor: int) -> None:
        self._scratch = scratch
        self._descriptor = descriptor
        self._lock = Lock()
        self.size = 0
        """Bytes written."""
        self._held = 0
        self.closed = False
        """Whether `close` was called."""

    def append(self, data: Buffer) -> None:
        """Append ``data``. Raises `LimitError` above the cap, `SourceError` if the disk is full."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        with self._lock:
            self._take(len(view))
            with refused("cannot write a scratch file", self._scratch.folder):
                os.lseek(self._descriptor, self.size, os.SEEK_SET)
                while view:
                    done = os.write(self._descriptor, view[:_MAX_SYSTEM_CALL])
                    self.size += done
                    view = view[done:]

    def pread(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer only at the end."""
        if offset < 0 or length < 0:
            raise ValueError(f"negative offset or length: {offset}, {length}")
        pieces: list[bytes] = []
        with self._lock:  # reader and writer share one position
            self._check()
            length = max(0, min(length, self.size - offset))
            with refused("cannot read a scratch file", self._scratch.folder):
                if length:
                    os.lseek(self._descriptor, offset, os.SEEK_SET)
                while length and (chunk := os.read(self._descriptor, min(length, _MAX_SYSTEM_CALL))):
                    pieces.append(chunk)
                    length -= len(chunk)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def memory(self, size: int) -> mmap.mmap:
        """Return the file, which must be empty, as ``size`` bytes of writable memory, all zeros."""
        import mmap

        with self._lock:
            self._take(size)
            try:
                os.ftruncate(self._descriptor, size)
                self.size = size
                return mmap.mmap(self._descriptor, size)
            except (OSError, ValueError, OverflowError) as error:
                raise system_error(error, "cannot map a scratch file", self._scratch.folder) from error

    def _take(self, count: int) -> None:
        self._check()
        self._scratch._take(count)
        self._held += count

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the scratch file is closed")

    def close(self) -> None:
        """Delete the file; closing twice is harmless."""
        with self._lock:
            if not self.closed:
                self.closed = True
                os.close(self._descriptor)
                self._scratch._give_back(self._held)

    def __del__(self) -> None:
        self.close()
