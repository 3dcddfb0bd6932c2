"""Files of the system: a pool of open descriptors, a check that a file did not change, and the names of split files.

A document keeps a few files open at a time (`DescriptorPool`), and all documents of the process together at most half
of what the system allows. The least recently used file is closed, and reopened when it is read again.

Without ``os.pread`` (Windows) a lock guards seek and read.
"""

from __future__ import annotations

import _weakref as weakref
import errno
import os
import re
import stat
import time
from itertools import islice, product

from pparse.data.base import Data
from pparse.errors import ClosedError, DataChangedError, SourceError, refused, system_error
from pparse.lazy import ByValue, Declared, lazy_pattern
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any, BinaryIO, Final

    from pparse.data.base import IoStats

# Asked of one system call at most: Linux never returns more than 2 GiB - 4 KiB, macOS refuses more than INT_MAX.
MAX_SYSTEM_READ: Final = 1 << 30
# The most buffers that one call fills (Linux: IOV_MAX is 1024).
MAX_VIEWS: Final = 1_000
_HAS_PREAD = hasattr(os, "pread")
# Bytes at both ends of a hole that are looked at.
_EDGE: Final = 4096
# EIO: who reads and writes by himself is told which of both failed.
_NO_WAY: Final = ["EOPNOTSUPP", "ENOSYS", "EINVAL", "EXDEV", "EFBIG", "EPERM", "ETXTBSY", "EIO"]
NOT_COPIED: Final = frozenset(getattr(errno, name) for name in _NO_WAY)
"""What the system says where it does not copy from file to file by itself."""
_HAS_PREADV = hasattr(os, "preadv")
_AT_ONCE: Final = MAX_SYSTEM_READ if _HAS_PREADV else 0


class FileIdentity(ByValue, by=("device", "inode", "size", "mtime_ns")):
    """Device, inode, size and modification time (ns): the same four mean the same, unchanged file.

    The modification time can be put back; ``ctime_ns``, when the system last recorded a change, shows that. Renaming,
    linking, ``chmod`` and ``chown`` change it as well: ``attributes`` is the hash of mode, owner and link count.
    """

    __slots__ = ("attributes", "ctime_ns", "device", "inode", "mtime_ns", "size")

    def __init__(
        self, device: int, inode: int, size: int, mtime_ns: int, ctime_ns: int = 0, attributes: int = 0
    ) -> None:
        self.device = device
        self.inode = inode
        self.size = size
        self.mtime_ns = mtime_ns
        self.ctime_ns = ctime_ns
        self.attributes = attributes

    def may_have_been_written(self, now: FileIdentity, path: str) -> bool:
        """Return whether only ``ctime_ns`` differs and nothing else explains it: the modification time was put back."""
        if self.ctime_ns == now.ctime_ns or self != now or self.attributes != now.attributes:
            return False
        try:
            info = os.stat(path)
        except OSError:
            return False  # it has another name now
        return (info.st_dev, info.st_ino) == (self.device, self.inode)

    def refuse_another(self, now: FileIdentity, path: str, *, same_host: bool) -> None:
        """Raise `DataChangedError` if ``now``, of the file at ``path``, is not this one, which was pickled.

        On another machine device, inode and ``ctime_ns`` differ, and are not compared.
        """
        if not self.is_same(now, same_host=same_host):
            what = self.difference(now)
            if self == now:
                what = "it was written to or renamed, or its attributes changed (so what was written cannot be told)"
            reason = f"the file is not the one that was pickled: {what}"
            raise DataChangedError(reason, source=path, wanted=self.size, got=now.size)

    def is_same(self, other: FileIdentity, *, same_host: bool) -> bool:
        """Return whether this surely is the same, unchanged file: not even its attributes changed."""
        if same_host:
            return self == other and self.ctime_ns == other.ctime_ns
        return (self.size, self.mtime_ns) == (other.size, other.mtime_ns)

    def __reduce__(self) -> tuple[type[FileIdentity], tuple[int, ...]]:
        return FileIdentity, (*self._by(self), self.ctime_ns, self.attributes)

    def is_shown_by(self, descriptor: int) -> bool:
        """Return whether an open file surely is the same, and unchanged, at the cost of one system call."""
        try:
            now = os.fstat(descriptor)
        except OSError:
            return False
        return (
            now.st_mtime_ns == self.mtime_ns
            and now.st_ctime_ns == self.ctime_ns
            and now.st_size == self.size
            and now.st_ino == self.inode
            and now.st_dev == self.device
        )

    def difference(self, now: FileIdentity) -> str:
        """Describe the difference in words."""
        if (self.device, self.inode) != (now.device, now.inode):
            return "another file has taken its name"
        if self.size != now.size:
            return f"it had {self.size} bytes and now has {now.size}"
        if self.mtime_ns == now.mtime_ns:
            return "it was written to, and its modification time was put back"
        return "it was written to"


_UNKNOWN: Final = FileIdentity(0, 0, 0, 0)


# The most names of a folder that are compared with one that is not there.
_MOST_NAMES: Final = 10_000


def what_is_meant(path: str) -> str:
    """Return what may have been meant by a path that leads nowhere, as a clause: a file inside an archive, or a name
    like it."""
    from difflib import get_close_matches

    above, rest = os.path.split(path)
    try:
        while above and not os.path.exists(above):
            above, name = os.path.split(above)
            rest = f"{name}/{rest}" if name else rest
        if os.path.isfile(above):
            return f"; {above} is a file: what is in it is named behind '::', {above}::{rest}"
        if "/" in rest:
            return ""
        with os.scandir(above or ".") as found:
            near = get_close_matches(rest, (entry.name for entry in islice(found, _MOST_NAMES)), 2, 0.75)
    except (OSError, ValueError):
        return ""
    return f"; did you mean {' or '.join(repr(os.path.join(above, name)) for name in near)}?" if near else ""


def inherited_pipe(path: str) -> BinaryIO | None:
    """Return the pipe that a shell put in place of a file (``<(command)``, ``/dev/stdin``), to read; else None.

    Opening any other pipe could wait forever for somebody to write.
    """
    if not path.startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/")):
        return None
    with refused("cannot open", path):
        return open(path, "rb") if stat.S_ISFIFO(os.stat(path).st_mode) else None


def open_descriptor(path: str) -> tuple[int, FileIdentity]:
    """Open ``path`` for reading; return the descriptor and the file's identity.

    Raises `SourceError` for anything that cannot be read at any offset: a folder, pipe, socket or character device.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    # Without O_NONBLOCK, opening a pipe would wait forever for a writer.
    flags |= getattr(os, "O_NONBLOCK", 0)
    try:
        with refused("cannot open", path):
            descriptor = os.open(path, flags)
    except SourceError as error:
        if is_folder(path):  # Windows opens none, and other systems none that is not to be read
            raise _no_file(path) from error
        raise
    except ValueError as error:  # a NUL in the name
        raise SourceError(f"cannot open: {error}", errno=errno.EINVAL, source=path) from error
    try:
        return descriptor, identity_of(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise


def _no_file(path: str) -> SourceError:
    return SourceError("is a folder, not a file", errno=errno.EISDIR, source=path)


def identity_of(descriptor: int, path: str) -> FileIdentity:
    """Return what identifies an open file. Raises `SourceError` if it cannot be read at any offset."""
    with refused("cannot read", path):
        info = os.fstat(descriptor)
    kind, size = info.st_mode, info.st_size
    if stat.S_ISBLK(kind):
        size = os.lseek(descriptor, 0, os.SEEK_END)
    elif stat.S_ISDIR(kind):
        raise _no_file(path)
    elif not stat.S_ISREG(kind):
        word = "a pipe" if stat.S_ISFIFO(kind) else "a socket" if stat.S_ISSOCK(kind) else "a device"
        raise SourceError(
            f"is {word}, which cannot be read at any offset; save it to a file first", errno=errno.ESPIPE, source=path
        )
    # On Windows st_ctime is the creation time, which never changes.
    attributes = hash((info.st_mode, info.st_nlink, info.st_uid, info.st_gid))
    return FileIdentity(info.st_dev, info.st_ino, size, info.st_mtime_ns, info.st_ctime_ns, attributes)


class PooledFile:
    """One file of a `DescriptorPool`, which may close its descriptor; the next use reopens it.

    ``with file as descriptor`` keeps it open meanwhile.
    """

    def __init__(self, pool: DescriptorPool, path: str) -> None:
        self._pool = pool
        self.path = path
        """Path as given."""
        self._descriptor = -1
        self._users = 0
        self._closed = False
        self.identity = _UNKNOWN  # until the first open
        """What identified the file when it was first opened."""

    def __enter__(self) -> int:
        with self._pool.lock:
            if self._closed:
                raise ClosedError("the file is closed", source=self.path)
            if self._descriptor < 0:
                self._pool.make_room()
                descriptor, identity = self._pool.open(self.path)
                try:
                    self._compare(identity)
                except DataChangedError:
                    os.close(descriptor)
                    raise
                self._descriptor = descriptor
                if self.identity is _UNKNOWN:
                    self.identity = identity
            if _LATEST[0] != id(self):  # else it is the last one of all, so of its pool, too
                self._pool.touch(self)
            self._users += 1
            return self._descriptor

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self._pool.lock:
            self._users -= 1
            if self._closed and not self._users:
                self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._pool.forget(self)

    def pread(self, offset: int, length: int) -> bytes:
        """Read with one system call; may be short."""
        with self as descriptor:
            try:
                if _HAS_PREAD:
                    return os.pread(descriptor, length, offset)
                with self._pool.lock:  # pragma: no cover (Windows)
                    os.lseek(descriptor, offset, os.SEEK_SET)
                    return os.read(descriptor, length)
            except (OSError, OverflowError) as error:
                raise self._refused(error, offset) from error

    def preadv(self, offset: int, views: list[memoryview]) -> int:
        """Read into ``views``, one after the other (at most 1,000), with one system call; may be short."""
        if not _HAS_PREADV:
            chunk = self.pread(offset, min(len(views[0]), 1 << 22))
            views[0][: len(chunk)] = chunk
            return len(chunk)
        with self as descriptor:
            try:
                return os.preadv(descriptor, views, offset)
            except (OSError, OverflowError) as error:
                raise self._refused(error, offset) from error

    def _refused(self, error: OSError | OverflowError, offset: int) -> SourceError:
        """Return what to raise where the system refuses to read."""
        if isinstance(error, OverflowError):
            return SourceError("no file reaches this offset", source=self.path, offset=offset)
        return system_error(error, f"cannot read at offset {offset}", self.path)

    def check_unchanged(self) -> None:
        """Compare the open file (``fstat``) with what it was at first. Raises `DataChangedError`."""
        with self as descriptor:
            if not self.identity.is_shown_by(descriptor):
                self._compare(identity_of(descriptor, self.path))

    def _compare(self, now: FileIdentity) -> None:
        before = self.identity
        if before is _UNKNOWN or (before == now and before.ctime_ns == now.ctime_ns):
            return
        if before != now or before.may_have_been_written(now, self.path):
            reason = f"the file changed while it was open: {before.difference(now)}"
            raise DataChangedError(reason, source=self.path, wanted=before.size, got=now.size)
        self.identity = now  # renamed, linked, given away

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield file holes in ``[start, end)``; nothing if the system cannot tell."""
        if not hasattr(os, "SEEK_HOLE"):
            return
        while start < end:
            with self as descriptor:
                try:
                    hole = os.lseek(descriptor, start, os.SEEK_HOLE)
                    if hole >= end:
                        return
                    try:
                        data = os.lseek(descriptor, hole, os.SEEK_DATA)
                    except OSError as error:
                        if error.errno != errno.ENXIO:
                            raise
                        data = end  # a hole to the end of the file
                    stop = min(data, end)
                    # What the system says may be older than what was written just now: a hole reads as zeros.
                    edges = (
                        os.pread(descriptor, min(_EDGE, stop - hole), at) for at in (hole, max(hole, stop - _EDGE))
                    )
                    is_hole = not any(edge.strip(b"\0") for edge in edges)
                except OSError:
                    return  # the file system does not report holes
            if is_hole:
                yield hole, stop
            start = data

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return a read-only map of the bytes; None if they cannot be mapped."""
        import mmap

        if not length:
            return memoryview(b"")
        aligned = offset - offset % mmap.ALLOCATIONGRANULARITY
        with self as descriptor:
            try:
                whole = mmap.mmap(descriptor, offset - aligned + length, access=mmap.ACCESS_READ, offset=aligned)
            except (OSError, ValueError):
                return None
        return memoryview(whole)[offset - aligned :]

    def __del__(self) -> None:
        if self._descriptor >= 0:  # never closed: the descriptor must not leak
            os.close(self._descriptor)
            self._pool.forget(self)

    def close(self) -> None:
        """Close for good, once reads in other threads have ended."""
        with self._pool.lock:
            self._closed = True
            if not self._users:
                self._close_descriptor()


# One lock for all pools: a pool without room may close the files of another.
_LOCK: Final = RLock()
_OPEN: Final[dict[int, weakref.ref[PooledFile]]] = {}  # the open files of all pools, in order of last use
_LATEST: Final = [0]  # the key of the one that was used last, 0 if it is not open


def process_limit() -> int:
    """Return the most descriptors that all documents of the process keep open: half of what the system allows."""
    try:
        import resource
    except ImportError:  # pragma: no cover (Windows)
        return 256
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if allowed == resource.RLIM_INFINITY else max(8, min(4096, allowed // 2))


class DescriptorPool:
    """Keeps at most ``limit`` descriptors open; closes the least recently used idle one first."""

    def __init__(self, limit: int = 64) -> None:
        self.limit = limit
        """The most descriptors open at a time."""
        self.asked = 0
        """How many files were asked for, also in vain."""
        self.lock = _LOCK
        """Guards this pool and all others."""
        self.expected: dict[str, tuple[FileIdentity, bool]] = {}
        """What files must be when they are first opened, and whether that was found out on this machine."""
        self._open: dict[int, weakref.ref[PooledFile]] = {}  # in order of last use

    @property
    def open_count(self) -> int:
        """How many descriptors are open."""
        return len(self._open)

    def register(self, path: str) -> PooledFile:
        """Open ``path`` and return it. Raises `SourceError`, and `DataChangedError` if it is not what is expected."""
        self.asked += 1
        file = PooledFile(self, path)
        with file:
            pass
        if (expected := self.expected.get(path)) is not None:
            expected[0].refuse_another(file.identity, path, same_host=expected[1])
        return file

    def touch(self, file: PooledFile) -> None:
        """Record that ``file`` was used just now."""
        key = id(file)
        self._open.pop(key, None)
        _OPEN.pop(key, None)
        self._open[key] = _OPEN[key] = weakref.ref(file)
        _LATEST[0] = key

    def forget(self, file: PooledFile) -> None:
        """Record that ``file`` has no open descriptor."""
        self._open.pop(id(file), None)
        _OPEN.pop(id(file), None)
        _LATEST[0] = 0

    def open(self, path: str) -> tuple[int, FileIdentity]:
        """Open ``path``; if the system has no descriptor left, close idle ones of ours and try again."""
        try:
            return open_descriptor(path)
        except SourceError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not _OPEN:
                raise
            _close_idle(_OPEN, len(_OPEN) // 2 + 1)
            return open_descriptor(path)

    def make_room(self) -> None:
        """Close idle descriptors until one more may be opened."""
        _close_idle(self._open, self.limit)
        if len(_OPEN) >= 8:  # only then can the system's limit matter
            _close_idle(_OPEN, process_limit())


def _forget_descriptors() -> None:
    """Let a forked process open descriptors of its own when it reads; a thread that is not there holds no lock."""
    _LOCK._at_fork_reinit()  # type: ignore[attr-defined]
    _LATEST[0] = 0
    for ref in list(_OPEN.values()):
        file = ref()
        if file is not None:
            file._users = 0
            file._close_descriptor()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_descriptors)


def _close_idle(files: dict[int, weakref.ref[PooledFile]], below: int) -> None:
    """Close idle files, the least recently used first, until fewer than ``below`` are open."""
    for key in list(files):
        if len(files) < below:
            return
        ref = files.get(key)  # a collected file removes itself from the table
        file = ref() if ref is not None else None
        if file is not None and not file._users:
            file._close_descriptor()


class FileData(Data):
    """A regular file or block device, read with ``pread`` through a pool that keeps few descriptors open.

    Device, inode, size and modification time identify the file. If one of them changes, or the file is written to and
    its time put back, reading raises `DataChangedError`.
    """

    is_file = True
    is_plain = True

    def __init__(self, path: str | os.PathLike[str], pool: DescriptorPool | None = None, stats: IoStats | None = None):
        self.path: str = os.fspath(path)
        """Path as given."""
        self._file = (pool or DescriptorPool()).register(self.path)
        self.identity: FileIdentity = self._file.identity
        """What identified the file when it was opened."""
        self.modified_ns, self.changed_ns = self.identity.mtime_ns, self.identity.ctime_ns
        super().__init__(self.path, self.identity.size, stats)

    def _pread(self, offset: int, length: int) -> bytes:
        pieces: list[bytes] = []
        while length:
            chunk = self._file.pread(offset, min(length, MAX_SYSTEM_READ))
            if not chunk:
                self._explain_short_read(offset)
            if len(chunk) == length and not pieces:
                return chunk
            pieces.append(chunk)
            offset += len(chunk)
            length -= len(chunk)
        return b"".join(pieces)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        done = 0
        while done < len(view):
            got = self._file.preadv(offset + done, [view[done : done + MAX_SYSTEM_READ]])
            if not got:
                self._explain_short_read(offset + done)
            done += got
        return done

    def read_unchanged(self, offset: int, buffer: Any) -> bool:
        """Fill ``buffer`` by one system call, and ask by another if the file is unchanged."""
        length = buffer.nbytes
        if self.closed or not self.is_plain or not 0 < length <= min(_AT_ONCE, (self.size or 0) - offset):
            return False
        with self._file as descriptor:
            try:
                got = os.preadv(descriptor, (buffer,), offset)
            except OSError:
                return False
            if got < length or not self._file.identity.is_shown_by(descriptor):
                return False
        self.place = offset + length
        self.stats.count(self.name, offset, length)
        return True

    def copy_to(self, offset: int, length: int, descriptor: int, at: int) -> int:
        """Let the system copy bytes, or share their blocks (``copy_file_range``)."""
        if not hasattr(os, "copy_file_range") or self.closed or not self.is_plain or self.gaps:
            return 0
        with self._file as source:
            try:
                count = os.copy_file_range(source, descriptor, self._clip(offset, length), offset, at)
            except OSError as error:
                if error.errno in NOT_COPIED:
                    return 0
                raise
        self.place = offset + count
        self.stats.count(self.name, offset, count)
        return count

    def preadv(self, offset: int, views: list[memoryview]) -> int:
        """Fill several buffers with few system calls."""
        total = sum(map(len, views))
        if self.gaps or self._clip(offset, total) < total:
            return super().preadv(offset, views)
        done = number = 0
        while number < len(views):
            some = views[number : number + MAX_VIEWS]
            wanted = sum(map(len, some))
            got = self._file.preadv(offset + done, some) if wanted <= MAX_SYSTEM_READ else 0
            if got < wanted:  # short, or more than the system reads at once: one by one
                return done + super().preadv(offset + done, views[number:])
            done += got
            number += len(some)
            self.place = offset + done
            self.stats.count(self.name, offset + done - got, got)
        return done

    def _explain_short_read(self, offset: int) -> None:
        # Lengths are clipped to the size seen at open, so a short read means that the file changed.
        self.check_unchanged()
        raise SourceError("the system served fewer bytes than the file has", source=self.name, offset=offset)

    @property
    def stamp(self) -> list[int]:
        """Size, modification time and inode."""
        return [self.identity.size, self.identity.mtime_ns, self.identity.inode]

    def same_source(self, path: str) -> bool:
        """Return whether ``path`` is another name of this file, or the same one."""
        return same_file(path, self.path)

    def grown(self) -> FileData | None:
        """Open the file again if it is larger now, and still the same one. Raises `SourceError`."""
        try:
            if os.stat(self.path).st_size <= (self.size or 0):
                return None
        except OSError:
            return None
        now = FileData(self.path)
        was, new = self.identity, now.identity
        if (was.device, was.inode) != (new.device, new.inode):  # another file has the name now
            now.close()
            return None
        return now

    def check_unchanged(self) -> None:
        """Raise `DataChangedError` if the file differs from what was opened, `ClosedError` if it is closed."""
        super().check_unchanged()
        self._file.check_unchanged()

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the file holes in ``[start, end)``, as the file system reports them (SEEK_HOLE)."""
        if self.size is not None:
            yield from self._file.holes(start, min(end, self.size))

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return a read-only memory map of the bytes (its pages are the caller's, not the budget's)."""
        if self._clip(offset, length) < length:
            return None
        return self._file.mapped(offset, length)

    def close(self) -> None:
        """Close the descriptor."""
        super().close()
        self._file.close()


# -- Paths of sources: all that is asked of the file system about what is read, beside reading it ----------------------

# Whoever has a `Data` asks that (`Data.path`, `Data.same_source`, `Data.identity`), and files beside it come from a
# `pparse.document.folder.Folder`. Paths of what is written are the business of those who write.


def open_file(path: str | os.PathLike[str], pool: DescriptorPool | None = None, stats: IoStats | None = None) -> Data:
    """Return the file at ``path``; ``pool`` bounds how many are open. Raises `SourceError`, `DataChangedError`."""
    return FileData(path, pool, stats)


EDIT_JOURNAL: Final = ".pparse-edit"
"""What follows the name of a file in that of the journal of an edit; as long as that is there, the edit goes on."""


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


def written_at(path: str) -> int:
    """Return when a file was written last, or the newest one in a folder, in nanoseconds. Raises `SourceError`."""
    with refused("cannot read", path):
        if not os.path.isdir(path):
            return os.stat(path).st_mtime_ns
        with os.scandir(path) as entries:
            return max((entry.stat().st_mtime_ns for entry in entries), default=0)


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


# Nanoseconds after which the time of a folder surely shows a further change.
_SETTLED: Final = 2_000_000_000


def folder_stamp(path: str) -> tuple[int, ...] | None:
    """Return what is another one once a name in a folder came or went; None if one may have, just now, without a trace.

    What links lead to may change all the same.
    """
    try:
        told = os.stat(path)
    except (OSError, ValueError):
        return None
    is_settled = time.time_ns() - told.st_mtime_ns > _SETTLED
    return (told.st_dev, told.st_ino, told.st_mtime_ns) if is_settled else None


def names_in(folder: str) -> Iterator[str]:
    """Yield the names of everything in a folder; nothing if it cannot be listed."""
    try:
        with os.scandir(folder or ".") as listing:
            for entry in listing:
                yield entry.name
    except (OSError, ValueError):
        return


# -- names -------------------------------------------------------------------------------------------------------------


def read_beside(module: ModuleSpec, *names: str) -> bytes:
    """Return a file that lies beside a module of ours, also if both are in a zip.

    ``importlib.resources`` does that, too, and takes longer to import than such a file to read.
    """
    loader: Any = module.loader
    raw: bytes = loader.get_data(os.path.join(os.path.dirname(module.origin or ""), *names))
    return raw


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


# -- The names of the parts of a file that was split ------------------------------------------------------------------

# The most numbers of parts.
_MOST_PARTS: Final = 20_000
# How many parts that follow each other may be missing before others.
MOST_ABSENT: Final = 20
# How many names a message has.
_MOST_SHOWN: Final = 6
# Those that are read as one by this name alone; others are compared first (`pparse.document.opening`).
_NUMBERED: Final = lazy_pattern(r".+\.0{2,}1")
# The names of parts: those of split(1), of 7-Zip and of download managers; of Info-ZIP (``zip -s``).
_PART: Final = lazy_pattern(
    r"(?P<whole>.+?)(?P<mark>[._-]part[._-]?|[._-])(?P<number>[0-9]{1,5}|[a-z]{2,3})", re.IGNORECASE
)
_ZIP_PART: Final = lazy_pattern(r"(?P<whole>.+)\.(?P<z>z)(?:\d\d+|ip)", re.IGNORECASE)


# How the first part's name ends, and that of a zip's last one.
_FIRST_ENDINGS: Final = ("0", "1", "aa", ".zip")


def how_to_join(parts: Sequence[str], names: Collection[str]) -> str:
    """Return what to do to join ``parts``, in order, in a folder that holds ``names``."""
    from shlex import quote

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
        yield from (f"{zipped['whole']}.{z}01" for z in sorted("zZ", key=lambda z: z == zipped["z"]))
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
        yield from (f"{zipped['whole']}.{zipped['z']}{number:02}" for number in range(2, _MOST_PARTS))
        return
    part = _PART.fullmatch(name)
    if part is None:
        return
    head, number = part["whole"] + part["mark"], part["number"]
    if number.isdecimal():
        yield from (f"{head}{later:0{len(number)}}" for later in range(int(number) + 1, _MOST_PARTS))
    else:
        letters = map("".join, product("abcdefghijklmnopqrstuvwxyz", repeat=len(number)))
        yield from (head + later for later in islice(letters, 1, _MOST_PARTS))


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
        elif absent == MOST_ABSENT:
            break
    zipped = _ZIP_PART.fullmatch(name)
    if zipped is not None:
        found += [last for last in _last_names(zipped) if last in names][:1]
    return found if len(found) > 1 else []


def _last_names(zipped: re.Match[str]) -> list[str]:
    """Return what the last part of a split zip may be called, the likelier name first."""
    ends = ("zip", "ZIP") if zipped["z"] == "z" else ("ZIP", "zip")
    return [f"{zipped['whole']}.{end}" for end in ends]


def whole_name(name: str) -> str:
    """Return what the file was called if ``name`` is that of a part, else ``name``."""
    zipped, part = _ZIP_PART.fullmatch(name), _PART.fullmatch(name)
    return _last_names(zipped)[0] if zipped is not None else part["whole"] if part is not None else name


class SplitSet(Declared):
    """The parts of a file that was split, found by their names."""

    whole: str
    """The path of the file that was split."""
    parts: list[str]
    """Those of its parts, in order …"""
    there: list[bool]
    """… and whether each of them exists."""
    next_name: str
    """What one more part would be called; empty if none can follow."""
    sure: bool
    """Whether the names leave no doubt; else the files may be of one kind, each a whole one."""
    marked: bool
    """Whether the names say that they are those of parts."""


def split_set(path: str) -> SplitSet | None:
    """Return the parts of a split file if ``path`` is the first of several, or the last of a zip's (``.zip``)."""
    folder, name = split(path)
    if not path.lower().endswith(_FIRST_ENDINGS):
        return None
    zipped, part = _ZIP_PART.fullmatch(name), _PART.fullmatch(name)
    first = name
    if zipped is not None:
        firsts = [
            one for one in reversed([*first_names(name)]) if any(is_there(inside(folder, one[:-1] + no)) for no in "12")
        ]
        if not firsts or not (name in firsts or name.lower().endswith(".zip")):
            return None
        first = firsts[0]
        lasts = _last_names(zipped)
        whole = next((one for one in lasts if is_there(inside(folder, one))), lasts[0])
    elif part is None or name not in first_names(name):
        return None
    else:
        whole = part["whole"]
    begin = whole if zipped is None else zipped["whole"] + "."
    names = frozenset(one for one in names_in(folder) if one.startswith(begin) and is_file(inside(folder, one)))
    found = parts_in(names, first)
    if not found or (zipped is None and (name not in names or next(first_names(name)) in names - {name})):
        return None  # it is not there, or the one before it is the first
    last = next(one for one in reversed(found) if one != whole)
    later, parts = following_names(first), [first]
    while parts[-1] != last:
        parts.append(next(later))
    if zipped is not None:
        parts.append(whole)
    sure = zipped is not None or _NUMBERED.fullmatch(name) is not None
    return SplitSet(
        inside(folder, whole),
        [inside(folder, one) for one in parts],
        [one in names for one in parts],
        "" if zipped is not None else inside(folder, next(later, "")),
        sure=sure,
        marked=sure or (part is not None and "part" in part["mark"].lower()),
    )
