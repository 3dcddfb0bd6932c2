"""Files of a `pparse.recovery.target.Target` while they are written, and the limits that end that.

A file is written in the hidden folder of its target (`pparse.recovery.folder_writer`) and gets its name when it is
complete. So every named file is complete, whenever the process is killed.
"""

from __future__ import annotations

import errno
import math
import os
import zlib
from contextlib import suppress
from hashlib import sha256
from itertools import islice

from pparse.containers.content import Verdict
from pparse.errors import ClosedError, LimitError, SourceError, refused, system_error
from pparse.findings import Status
from pparse.limits import MIB, Limits, format_size
from pparse.recovery.journal import was_stopped
from pparse.recovery.names import changed
from pparse.writers.files import refuse_full

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.containers.archive import ArchiveMember
    from pparse.data.base import Buffer, Data
    from pparse.recovery.target import Target

FREE_EXPANSION: Final = 64 * MIB  # allowed for any stream: a few bytes of bz2 or zstd are a megabyte of zeros
# Runs of zeros from this length on become holes in the file.
HOLE: Final = 64 << 10
# So many holes of a source are left out of what it takes on the disk.
_MOST_HOLES: Final = 10_000
_ZEROS: Final = bytes(256 << 10)
_MAX_SYSTEM_CALL: Final = 1 << 30
_MAX_SECONDS: Final = 1 << 33  # the year 2242: nanoseconds fit in 64 bits


class Expansion:
    """Counts the output of one compressed stream of ``compressed_size`` bytes, and stops decompression bombs.

    ``ratio``: how many bytes one may become; deflate reaches 1,032.
    """

    __slots__ = ("_compressed_size", "_limit", "_ratio", "bytes")

    def __init__(self, compressed_size: int, ratio: int = Limits.DEFAULTS["expansion_ratio"]) -> None:
        self._compressed_size = max(compressed_size, 1)
        self._ratio = ratio
        self._limit = max(self._compressed_size * ratio, FREE_EXPANSION)
        self.bytes = 0
        """Output so far."""

    def add(self, count: int) -> None:
        """Count ``count`` more bytes of output. Raise `LimitError` if they exceed the ratio."""
        if count > self._limit - self.bytes:
            wanted = self.bytes + count
            ratio = -(-wanted // self._compressed_size)
            raise LimitError(
                f"{format_size(self._compressed_size)} of a compressed stream decompress to more than {self._ratio} "
                "times as much",
                option=f"--limit expansion_ratio={max(ratio, 2 * self._ratio)}",
                wanted=wanted,
                got=self._limit,
            )
        self.bytes += count


class _Open:
    """A file that is being written: ``name`` in the place ``work``, until it gets its final name."""

    def __init__(self, target: Target, work: Any, name: str, descriptor: int, path: str) -> None:
        self._target = target
        self._places: Any = target.places
        self._work: Any = work
        self._name = name
        self._descriptor = descriptor
        self.path = path
        self.closed = False

    def _write_all(self, data: Buffer, wrote: Callable[[memoryview], None]) -> None:
        """Write ``data``; call ``wrote`` with each piece handed to the system."""
        if self.closed:
            raise ClosedError("the file is closed", source=self.path)
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        with refused("cannot write", self.path):
            while view:
                done = os.write(self._descriptor, view[:_MAX_SYSTEM_CALL])
                wrote(view[:done])
                view = view[done:]

    def _remove(self) -> None:
        self.closed = True
        try:
            self._places.remove(self._work, self._name, self._descriptor)
        except OSError as error:
            if error.errno != errno.ENOENT:  # somebody else was faster
                raise system_error(error, "cannot write", self.path) from error
        finally:
            self._work = None

    def _drop(self) -> None:
        """Remove a file that could not get its name, after its descriptor was closed."""
        with suppress(OSError):
            self._places.unlink(self._work, self._name)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            if not self.closed:
                self._remove()


class TargetFile(_Open):
    """A new file: write at its end, leave holes, close it or discard it.

    As a context manager it is closed at the end, and discarded after an exception; close it yourself to keep what was
    written until then. A file that is dropped without either is discarded.
    """

    def __init__(
        self,
        target: Target,
        work: tuple[Any, str, int],
        place: Any,
        parts: tuple[str, ...],
        path: str,
        stored: tuple[str, bytes | None],
        mtime: float | None,
        expansion: Expansion | None,
    ) -> None:
        super().__init__(target, *work, path)
        self._place: Any = place
        self._expansion = expansion
        self._sha256 = sha256()
        self._stored = stored
        self.skipped = 0
        """Bytes that were left out with `skip`."""
        self.parts = parts
        self.crc32 = 0
        """CRC-32 of the content, holes as zeros."""
        self.bytes = 0
        """Size of the content in bytes, holes included."""
        self.hole_bytes = 0
        """Bytes of the content that are holes."""
        self.mtime = mtime
        self.raw_name: str | None = None
        """The stored name, readable; None if it does not differ from the path."""
        self.named(path)

    def named(self, path: str) -> None:
        """Set the path that the file has, or will have."""
        self.path = path
        self.raw_name = _stored_name(*self._stored) if changed(self._stored[0], path.split("/")) else None

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the content so far, in hexadecimal, holes as zeros."""
        return self._sha256.hexdigest()

    @property
    def output(self) -> int:
        """Bytes that count as output: all but the holes left with `skip`."""
        return self.bytes - self.skipped

    def write(self, data: Buffer) -> None:
        """Write ``data``. Raise `LimitError` (nothing is written then), `SourceError` if the disk is full."""
        count = memoryview(data).nbytes
        if self._expansion is not None:
            self._expansion.add(count)
        self._target.take(count)
        before = self.bytes
        try:
            self._write_all(data, self._hash)
        finally:
            self._target.bytes -= count - (self.bytes - before)

    def write_zeros(self, count: int) -> None:
        """Write ``count`` zeros as a hole, which takes no space on the disk; otherwise like `write`."""
        if self._expansion is not None:
            self._expansion.add(count)
        self._target.take(count)
        try:
            self._leave_hole(count)
        except BaseException:
            self._target.bytes -= count
            raise

    def skip(self, count: int) -> None:
        """Leave a hole of ``count`` zeros that were not decoded: it is not output, and has its own limit.

        Raise as `write`.
        """
        if count < 0:
            raise ValueError(f"a hole cannot be negative: {count}")
        self._target.take_hole(count)
        try:
            self._leave_hole(count)
        except BaseException:
            self._target.hole_bytes -= count
            raise
        self.skipped += count

    def _leave_hole(self, count: int) -> None:
        if self.closed:
            raise ClosedError("the file is closed", source=self.path)
        try:
            os.lseek(self._descriptor, count, os.SEEK_CUR)
        except (OSError, OverflowError) as error:
            raise system_error(error, "cannot write", self.path) from error
        self.hole_bytes += count
        zeros = memoryview(_ZEROS)
        while count:
            piece = zeros[:count]
            self._hash(piece)
            count -= len(piece)

    def _hash(self, piece: memoryview) -> None:
        self._sha256.update(piece)
        self.crc32 = zlib.crc32(piece, self.crc32)
        self.bytes += len(piece)

    def close(self) -> None:
        """Finish the file, at its last hole if it ends with one, and give it its name; may be called again.

        Raise `SourceError` if the disk refuses. A time that the file system cannot store is left out.
        """
        if self.closed:
            return
        if self._target.closed:
            self.discard()
            raise ClosedError("the target is closed", source=self.path)
        try:
            if self.hole_bytes:
                os.ftruncate(self._descriptor, self.bytes)
        except OSError as error:
            self.discard()
            raise system_error(error, "cannot write", self.path) from error
        self.closed = True
        try:
            with refused("cannot write", self.path):
                found = self._places.finish(self._work, self._name, self._descriptor, _nanoseconds(self.mtime))
                self._target.publish(self, self._work, self._name, self._place, found)
        except BaseException:
            self._drop()
            self._target.forget(self)
            raise
        finally:
            self._work = self._place = None

    def discard(self) -> None:
        """Remove the file, unless it was closed; release its name and its bytes."""
        if self.closed:
            return
        try:
            self._remove()
        finally:
            self._place = None
            self._target.forget(self)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self.discard()

    def __enter__(self) -> TargetFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class AtomicReport(_Open):
    """Our own file at the root of a target. `commit` gives it its name, `discard` removes it if unfinished."""

    def write(self, data: Buffer) -> None:
        """Write ``data``. Raise `SourceError`."""
        self._write_all(data, lambda piece: None)

    def commit(self) -> None:
        """Give the file its name, replacing what has that name, even a link.

        May be called again, and after `discard`. After an error (`SourceError`) nothing is left of the file.
        """
        if self.closed:
            return
        self.closed = True
        with refused("cannot write", self.path):
            try:
                self._places.finish(self._work, self._name, self._descriptor, None)
                self._target.publish_own(self._work, self._name, self.path)
            except BaseException:
                self._drop()
                raise
            finally:
                self._work = None

    def discard(self) -> None:
        """Remove the file, unless it was committed."""
        if not self.closed:
            self._remove()


class LimitMet:
    """A limit that cut files or left them out."""

    def __init__(self) -> None:
        self.files = 0
        """Number of files concerned."""
        self.option = ""
        """The option that would have been enough for all of them."""
        self._wanted = -1

    def add(self, error: LimitError) -> None:
        """Count another file that met the limit."""
        self.files += 1
        wanted = error.wanted if isinstance(error.wanted, int) else 0
        if wanted > self._wanted:
            self._wanted, self.option = wanted, error.option


class FileSink:
    """Writes content as it arrives. The file is created with its first byte, or at the end of empty content."""

    def __init__(self, target: Target, name: str, mtime: float | None, compressed_size: int | None) -> None:
        self._target = target
        self._name = name
        self._mtime = mtime
        self._compressed_size = compressed_size
        self._lost = 0
        self.error: LimitError | None = None
        """The limit that was met; None if none was."""
        self.interrupted = False
        """Whether an exception ended the writing."""
        self.file: TargetFile | None = None
        """The file; None if nothing was written."""

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
        """Write ``chunk``, in which the ranges ``unknown`` are lost."""
        try:
            self._write(chunk, unknown)
        except LimitError as error:
            self.error = error
            raise

    def restart(self) -> None:
        """Begin the file again: the end of the stream showed that the bytes so far were wrong."""
        if self.file is not None:
            self.file.discard()
            self.file = None
        self._lost = 0

    def conclude(self, verdict: Verdict) -> None:
        """Create the file for complete content without a byte."""
        if self.file is None and self.error is None and verdict.status is Status.COMPLETE:
            self.open().close()

    def skip(self, count: int) -> None:
        """Leave a hole of ``count`` bytes in the file."""
        try:
            self.open().skip(count)
        except LimitError as error:
            self.error = error
            raise

    def refuses(self, member: ArchiveMember) -> bool:
        """Say whether ``member`` exceeds what may still be written, by its size and the limit of expansion.

        Raise `SourceError` if it surely takes more than the disk has room for.
        """
        compressed_size, size = member.compressed_size or 0, member.size or 0
        if self._compressed_size is not None:
            if member.status is Status.COMPLETE:  # what is stored may be zeros, which take no room
                refuse_full(self._target.folder, min(compressed_size, size))
            compressed_size = max(compressed_size * self._target.max_expansion, FREE_EXPANSION)
        return self.refuses_bytes(min(compressed_size, size))

    def refused(self, data: Data, start: int, end: int) -> Verdict | None:
        """Return an empty verdict if ``[start, end)`` is more than may be written: a limit does not cut files."""
        holes = sum(stop - begin for begin, stop in islice(data.holes(start, end), _MOST_HOLES))
        return Verdict() if self.refuses_bytes(max(0, end - start - holes)) else None

    def refuses_bytes(self, count: int) -> bool:
        """Say whether ``count`` bytes are more than may still be written."""
        try:
            self._target.take(count)
        except LimitError as error:
            self.error = error
            return True
        self._target.bytes -= count
        return False

    def reading(self, read: Callable[[], Verdict]) -> Verdict:
        """Return the verdict of ``read``, which ends early if a limit is met."""
        try:
            return read()
        except LimitError as error:
            self.error = error
            return Verdict()

    def _write(self, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
        if self.file is None and sum(count for _, count in unknown) == len(chunk):
            self._lost += len(chunk)  # nothing worth a file so far
            return
        file = self.open()
        if len(chunk) >= HOLE and not chunk.strip(b"\0"):
            file.write_zeros(len(chunk))
        else:
            file.write(chunk)

    def open(self) -> TargetFile:
        """Return the file; create it if necessary."""
        if self.file is None:
            self.file = self._target.create(self._name, None, self._mtime, compressed_size=self._compressed_size)
            self.file.skip(self._lost)
        return self.file

    def __enter__(self) -> FileSink:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.interrupted = error is not None
        if self.file is None:
            return
        if isinstance(error, SourceError) or was_stopped(error):  # perhaps a full disk: leave room for the report
            self.file.discard()
        elif self.error is not None and not self.file.bytes:
            self.file.discard()
            self.file = None
        else:
            self.file.close()


def _stored_name(name: str, raw: bytes | None) -> str:
    """Return a stored name in readable form, cut to the length of any path."""
    text = name if raw is None else raw[:8192].decode("utf-8", "backslashreplace")
    return text if len(text) <= 4096 else text[:4096] + "…"


def _nanoseconds(seconds: float | None) -> int | None:
    """Return a time in nanoseconds within the range of systems; None if it is not a valid time."""
    if seconds is None or not math.isfinite(seconds):
        return None
    least = 0 if os.name == "nt" else -_MAX_SECONDS
    return int(max(least, min(seconds, _MAX_SECONDS)) * 1_000_000_000)
