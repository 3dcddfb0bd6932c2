"""The ways to write a new head before a payload, and the journal that lets each be finished if it was cut off.

In order of what they cost: *in place*, where the new head has the size of the old one; *insert*, where the file system
puts blocks before the payload (Linux, ``FALLOC_FL_INSERT_RANGE``: ext4, XFS); *copy*, a file beside it that takes its
name once it is on the disk.

The first two change the file itself. Before that, ``FILE.pparse-edit`` is on the disk, with the new head and checksums;
it is removed once the file is on the disk, too. All steps can be repeated, so who finds it goes on::

    journal        file                                                       then
    cut, wrong     as before                                                  the journal is removed
    whole          as before; blocks inserted; the head in part, or whole     all steps are taken, again if need be

The payload must be where one of these states has it, by its size and by a hash of its first and last bytes; else the
journal is of another file, or the file system was stopped while it moved blocks, and nothing is touched.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from contextlib import contextmanager, suppress
from hashlib import blake2b, sha256

from pparse.data.files import EDIT_JOURNAL, NOT_COPIED, what_is_meant
from pparse.errors import DataChangedError, SourceError, UnsupportedError, refused, system_error, told
from pparse.limits import MIB
from pparse.writers.files import AtomicFile, refuse_full, sweep, sync_folder, try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.editing.plan import Head

_MAGIC: Final = b"pparse-edit 1\n\0\0"
_DIGEST: Final = 32
_NUMBERS: Final = ("before", "after", "insert", "begin", "stays")
_MOST: Final = 1 << 30
_SAMPLE: Final = 4096
_PIECE: Final = 1 * MIB
_SHARED: Final = 256 * MIB  # so much is copied by a call of the system, between two reports of progress
_INSERT: Final = 0x20  # linux/falloc.h
_BINARY: Final = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def locked(path: str, *, write: bool) -> Iterator[int]:
    """Open a file and lock it against other edits. Raises `SourceError`, also if another process has it locked."""
    try:
        with refused("cannot open", path):
            descriptor = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | _BINARY)
    except SourceError as error:
        if error.errno == errno.ENOENT:
            error.reason += what_is_meant(path)
        raise
    try:
        if write and try_lock(descriptor) is False:
            raise SourceError("another process has locked it", errno=errno.EAGAIN, source=path)
        with refused("cannot open", path):
            if not os.path.samestat(os.fstat(descriptor), os.stat(path)):
                raise DataChangedError("another file has taken its name", source=path)
        yield descriptor
    finally:
        os.close(descriptor)


# -- in place, and by inserted blocks ----------------------------------------------------------------------------------


class Rewrite:
    """A new head, and how it gets into the file."""

    def __init__(self, path: str, descriptor: int, head: bytes | bytearray, known: dict[str, Any]) -> None:
        self.path, self.descriptor = path, descriptor
        self.head = head
        """The new head."""
        self.known = known
        """Sizes before and after, blocks to insert, where the payload begins now, how much of it stays, its hash."""

    def carry_out(self) -> None:
        """Take all steps, those that were taken before again where they can be."""
        known = self.known
        if known["insert"] and os.fstat(self.descriptor).st_size == known["before"]:
            insert_range(self.descriptor, known["insert"])
        _write(self.descriptor, 0, self.head)
        if os.fstat(self.descriptor).st_size != known["after"]:
            os.ftruncate(self.descriptor, known["after"])
        os.fsync(self.descriptor)

    def sample(self) -> str:
        """Return the hash of the first and the last bytes of the payload that stay, wherever they are now."""
        known = self.known
        moved = bool(known["insert"]) and os.fstat(self.descriptor).st_size == known["after"]
        begin, length = known["begin"] + known["insert"] * moved, known["stays"]
        size = min(_SAMPLE, length)
        parts = _read(self.descriptor, begin, size), _read(self.descriptor, begin + length - size, size)
        return blake2b(b"".join(parts), digest_size=16).hexdigest()

    def is_of_this_file(self) -> bool:
        """Return whether the file is as a step leaves it."""
        known, size = self.known, os.fstat(self.descriptor).st_size
        low, high = sorted((known["before"], known["after"]))
        sizes = size in (low, high) if known["insert"] else low <= size <= high
        return sizes and self.sample() == known["sample"]

    def note(self) -> None:
        """Write the journal, and wait until it is on the disk."""
        text = json.dumps(self.known).encode()
        before = _MAGIC + len(text).to_bytes(8, "little") + text
        digest = sha256(before)
        digest.update(self.head)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
        descriptor = os.open(self.path + EDIT_JOURNAL, flags, 0o600)
        try:
            at = 0
            for part in (before, self.head, digest.digest()):
                _write(descriptor, at, part)
                at += len(part)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self.path)

    def forget(self) -> None:
        """Remove the journal."""
        os.unlink(self.path + EDIT_JOURNAL)
        sync_folder(self.path)


def write_head(path: str, descriptor: int, head: Head, size: int) -> int:
    """Write the new head with ``size`` bytes into the file itself; return the bytes written."""
    before = os.fstat(descriptor).st_size
    insert = size - head.old_size if head.payload else 0
    known = {"before": before, "after": size + head.payload, "insert": insert, "begin": head.old_size}
    known["stays"] = min(head.payload, before - head.old_size)
    job = Rewrite(path, descriptor, head.written(size), known)
    with refused("cannot write", path):
        job.known["sample"] = job.sample()
        try:
            job.note()
        except OSError:
            with suppress(OSError):
                job.forget()
            raise
        try:
            job.carry_out()
        except OSError as error:
            if insert and os.fstat(descriptor).st_size == before:  # nothing was done
                job.forget()
                raise UnsupportedError("the file system inserts no blocks into this file", source=path) from error
            doing = f"cannot write; once that is possible, {_advice(path)} finishes it"
            raise system_error(error, doing, path) from error
        job.forget()
    return len(job.head)


def finish(path: str, descriptor: int) -> str | None:
    """Finish an edit that was cut off, or undo it; return which, ``finished`` or ``undone``; None if there was none.

    Raises `SourceError` if the journal is that of another file.
    """
    sweep(path)
    job = _noted(path, descriptor)
    if job is None:
        return None
    with refused("cannot finish the edit", path):
        if not job.head:
            job.forget()
            return "undone"
        if not job.is_of_this_file():
            raise SourceError(
                f"{path}{EDIT_JOURNAL} is of an edit that was cut off, and not of this file as it is: it was replaced "
                "or changed since, or the system stopped while it moved blocks. If the file is sound, remove that",
                source=path,
            )
        try:
            job.carry_out()
        except OSError:
            if not job.known["insert"] or os.fstat(descriptor).st_size != job.known["before"]:
                raise
            job.forget()
            return "undone"
        job.forget()
    return "finished"


def _noted(path: str, descriptor: int) -> Rewrite | None:
    """Return what the journal tells; a job without a head if it is not whole, None if there is none."""
    try:
        other = os.open(path + EDIT_JOURNAL, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | _BINARY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"cannot open: {error.strerror}", errno=error.errno, source=path + EDIT_JOURNAL) from error
    try:
        with refused("cannot read", path + EDIT_JOURNAL):
            size = os.fstat(other).st_size
            raw = _read(other, 0, size) if size <= _MOST else b""
    finally:
        os.close(other)
    head, at = b"", len(_MAGIC) + 8
    known: dict[str, Any] = {}
    if raw.startswith(_MAGIC) and sha256(raw[:-_DIGEST]).digest() == raw[-_DIGEST:]:
        length = int.from_bytes(raw[at - 8 : at], "little")
        with suppress(ValueError, LookupError, TypeError, RecursionError):  # somebody else wrote it
            known = json.loads(raw[at : at + length])
            if all(type(known[name]) is int and known[name] >= 0 for name in _NUMBERS):
                head = raw[at + length : -_DIGEST]
    return Rewrite(path, descriptor, head, known)


def refuse_unfinished(path: str) -> None:
    """Raise `SourceError` if an edit of the file was cut off: who may not write cannot finish it."""
    if os.path.lexists(path + EDIT_JOURNAL):
        raise SourceError(f"an edit of it was cut off: {_advice(path)} finishes it first", source=path)


def _advice(path: str) -> str:
    return told(f"'pparse edit {path}'", f"pparse.edit({path!r})")


def insert_range(descriptor: int, length: int) -> None:
    """Let the file system put ``length`` bytes, whole blocks, before all others. Raises `OSError` if it does not."""
    if sys.platform != "linux":
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "fallocate64", None) or library.fallocate
    call.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64
    if call(descriptor, _INSERT, 0, length):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def can_insert(path: str, length: int) -> bool:
    """Return whether the file system of ``path`` inserts blocks: it is tried with a file that has no name."""
    try:
        descriptor = os.open(os.path.dirname(path) or ".", os.O_TMPFILE | os.O_RDWR, 0o600)
    except (OSError, AttributeError):
        return False
    try:
        os.ftruncate(descriptor, length)
        insert_range(descriptor, length)
    except (OSError, AttributeError):
        return False
    finally:
        os.close(descriptor)
    return True


# -- by a copy ---------------------------------------------------------------------------------------------------------


def write_copy(
    descriptor: int,
    out: str,
    head: Head,
    size: int,
    *,
    like: str | None = None,
    ask: Callable[[], object] = bool,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> int:
    """Write the new head, and behind it what stays of the payload, to ``out``; return the bytes written.

    Holes stay holes, and what the file system can share is shared. ``like``: see `AtomicFile`. ``ask`` is called on the
    way, and ends the work if it raises.
    """
    blocks = getattr(os.fstat(descriptor), "st_blocks", None)
    moved = sum(length for _, _, length in head.moves)
    refuse_full(out, size + (moved if blocks is None else min(moved, blocks * 512)))
    written = done = 0
    with AtomicFile(out, like=like, make_folders=True) as file:
        target = file.stream.fileno()
        raw = head.written(size)
        _write(target, 0, raw)
        for begin, to, length in head.moves:
            for start, end in _filled(descriptor, head.old_size + begin, head.old_size + begin + length):
                at = start - head.old_size - begin
                for count in _copied(descriptor, start, target, at + size + to, end - start):
                    written, at = written + count, at + count
                    ask()
                    if progress is not None:
                        progress(done + at, moved, "copied")
            done += length
        os.ftruncate(target, size + head.payload)
        os.fsync(target)
    with refused("cannot write", out):
        sync_folder(out)
    return written + len(raw)


def filled(descriptor: int, head: Head) -> int:
    """Return how many bytes of the payload a copy writes: what stays, without holes."""
    places = ((head.old_size + begin, head.old_size + begin + length) for begin, _, length in head.moves)
    return sum(end - start for place in places for start, end in _filled(descriptor, *place))


def _filled(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a file that are no holes, as far as the system tells."""
    if not hasattr(os, "SEEK_DATA"):
        yield start, end
        return
    while start < end:
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                return
            yield start, end
            return
        if start < end:
            stop = min(end, os.lseek(descriptor, start, os.SEEK_HOLE))
            yield start, stop
            start = stop


def _copied(source: int, start: int, target: int, to: int, length: int) -> Iterator[int]:
    """Copy bytes, and yield how many after each step."""
    shared = hasattr(os, "copy_file_range")
    while length:
        count = 0
        if shared:
            try:
                count = os.copy_file_range(source, target, min(length, _SHARED), start, to)
            except OSError as error:
                if error.errno not in NOT_COPIED:
                    raise
            shared = bool(count)
        if not count:
            piece = _read(source, start, min(length, _PIECE))
            _write(target, to, piece)
            count = len(piece)
        yield count
        start, to, length = start + count, to + count, length - count


def _read(descriptor: int, at: int, length: int) -> bytes:
    """Read exactly so many bytes."""
    os.lseek(descriptor, at, os.SEEK_SET)
    parts = []
    while length:
        part = os.read(descriptor, length)
        if not part:
            raise OSError(errno.EIO, "the file ends early")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _write(descriptor: int, at: int, content: bytes | bytearray) -> None:
    os.lseek(descriptor, at, os.SEEK_SET)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view[:_SHARED]) :]
