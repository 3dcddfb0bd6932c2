"""Files of a `pparse.recovery.target.Target` while they are written, and the limit of one compressed stream's output.

A file is written in the hidden folder of its target (`pparse.recovery.workspace`) and gets its name when it is
complete. So every named file is complete, whenever the process is killed.
"""

from __future__ import annotations

import errno
import math
import os
import zlib
from contextlib import suppress
from hashlib import sha256

from pparse.errors import ClosedError, LimitError, SourceError
from pparse.limits import MIB, format_size
from pparse.recovery.names import changed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.data.base import Buffer
    from pparse.recovery.target import Target

MAX_EXPANSION: Final = 1_100  # deflate reaches 1,032
FREE_EXPANSION: Final = 64 * MIB  # allowed for any stream: a few bytes of bz2 or zstd are a megabyte of zeros
_ZEROS: Final = bytes(256 << 10)
_MAX_SYSTEM_CALL: Final = 1 << 30
_MAX_SECONDS: Final = 1 << 33  # the year 2242: nanoseconds fit in 64 bits


class Expansion:
    """Counts the output of one compressed stream of ``compressed_size`` bytes, and stops decompression bombs."""

    __slots__ = ("_compressed_size", "_limit", "_ratio", "bytes")

    def __init__(self, compressed_size: int, ratio: int = MAX_EXPANSION) -> None:
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

    __slots__ = ("_descriptor", "_name", "_places", "_target", "_work", "closed", "path")

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
        try:
            while view:
                done = os.write(self._descriptor, view[:_MAX_SYSTEM_CALL])
                wrote(view[:done])
                view = view[done:]
        except OSError as error:
            raise cannot_write(error, self.path) from error

    def _remove(self) -> None:
        self.closed = True
        try:
            self._places.remove(self._work, self._name, self._descriptor)
        except OSError as error:
            if error.errno != errno.ENOENT:  # somebody else was faster
                raise cannot_write(error, self.path) from error
        finally:
            self._places.leave(self._work)

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

    __slots__ = (
        "_expansion",
        "_place",
        "_sha256",
        "_skipped",
        "_stored",
        "bytes",
        "crc32",
        "hole_bytes",
        "mtime",
        "parts",
        "raw_name",
    )

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
        self._skipped = 0
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
        return self.bytes - self._skipped

    @property
    def skipped(self) -> int:
        """Bytes that were left out with `skip`."""
        return self._skipped

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
        if self.closed:
            raise ClosedError("the file is closed", source=self.path)
        self._target.take_hole(count)
        try:
            self._leave_hole(count)
        except BaseException:
            self._target.hole_bytes -= count
            raise
        self._skipped += count

    def _leave_hole(self, count: int) -> None:
        if self.closed:
            raise ClosedError("the file is closed", source=self.path)
        try:
            os.lseek(self._descriptor, count, os.SEEK_CUR)
        except (OSError, OverflowError) as error:
            raise cannot_write(error, self.path) from error
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
            raise cannot_write(error, self.path) from error
        self.closed = True
        try:
            found = self._places.finish(self._work, self._name, self._descriptor, _nanoseconds(self.mtime))
            self._target.publish(self, self._work, self._name, self._place, found)
        except BaseException as error:
            self._drop()
            self._forget()
            if isinstance(error, OSError) and not isinstance(error, SourceError):
                raise cannot_write(error, self.path) from error
            raise
        finally:
            self._places.leave(self._work)
            self._places.leave(self._place)

    def discard(self) -> None:
        """Remove the file, unless it was closed; release its name and its bytes."""
        if self.closed:
            return
        try:
            self._remove()
        finally:
            self._places.leave(self._place)
            self._forget()

    def _forget(self) -> None:
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

    def __repr__(self) -> str:
        return f"<TargetFile {self.path!r}: {self.bytes} bytes>"


class AtomicReport(_Open):
    """Our own file at the root of a target. `commit` gives it its name, `discard` removes it if unfinished."""

    __slots__ = ()

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
        try:
            try:
                self._places.finish(self._work, self._name, self._descriptor, None)
                self._target.publish_own(self._work, self._name, self.path)
            except BaseException:
                self._drop()
                raise
            finally:
                self._places.leave(self._work)
        except OSError as error:
            if isinstance(error, SourceError):
                raise
            raise cannot_write(error, self.path) from error

    def discard(self) -> None:
        """Remove the file, unless it was committed."""
        if not self.closed:
            self._remove()


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


def cannot_write(error: Exception, path: str) -> SourceError:
    """Return an error that says why ``path`` cannot be written."""
    reason = getattr(error, "strerror", None) or error
    return SourceError(f"cannot write: {reason}", errno=getattr(error, "errno", None), source=path)
