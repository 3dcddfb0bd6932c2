"""The bytes of a reader: a path, bytes, a `Data`, a `Reader`, or any binary file object.

Exceptions of a file object are passed on unchanged.
"""

from __future__ import annotations

import contextlib
import io
import os

from pparse.data.base import BytesData, Data, Reader
from pparse.data.file_object import of_stream
from pparse.data.files import open_file
from pparse.errors import GapError, SourceError
from pparse.locking import Lock
from pparse.riegeli.chunks import BLOCK_HEADER_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO, Final, Self

    Sourcelike = str | os.PathLike[str] | bytes | bytearray | memoryview | Data | Reader | BinaryIO


# How many bytes before the latest one stay in memory, for a file object that is only read forwards.
MAX_HELD: Final = 32 << 20


# The most that one call reads from a file object, if it goes through a buffer.
_PIECE: Final = 1 << 16
# Methods to read a file object with, best first: into a buffer, or by count.
_INTO: Final = ("readinto1", "readinto")
_METHODS: Final = (*_INTO, "read1", "read")


class Closable:
    """A reader or writer, closed at the end of a ``with`` block."""

    def close(self) -> None:
        """Release what is held. Raise what stopped it before."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(Exception):  # the exception being raised says more
                self.close()


def is_seekable(stream: Any) -> bool:
    """Return whether a file object is seekable; True if it has no such method."""
    ask = getattr(stream, "seekable", None)
    return ask is None or bool(ask())


class FileObject:
    """Reads a file object with the first of the methods in `_INTO` that it has.

    If a class overrides some of them, only those count: methods inherited from its base class may bypass it.
    """

    def __init__(self, stream: Any) -> None:
        name = next((name for kind in type(stream).__mro__ for name in _METHODS if name in vars(kind)), None)
        if name is None:  # the instance may have them, though its class has not
            name = next((name for name in _METHODS if hasattr(stream, name)), "read")
        self._method: Callable[[Any], Any] = getattr(stream, name)
        self._into = name in _INTO
        self._room = memoryview(b"")

    def fill(self, view: memoryview) -> int:
        """Read into ``view`` and return the number of bytes; 0 at the current end."""
        if self._into:
            got: int = self._method(view) or 0
            return got
        chunk = self._method(len(view)) or b""
        if isinstance(chunk, str):
            raise TypeError("the file object returns text; open it in binary mode")
        view[: len(chunk)] = chunk
        return len(chunk)

    def some(self, length: int) -> memoryview:
        """Return up to ``length`` bytes from one call, valid until the next one; empty at the end."""
        if len(self._room) < min(length, _PIECE):
            self._room = memoryview(bytearray(min(length, _PIECE)))
        return self._room[: self.fill(self._room[:length])]


class SeekableData(Data):
    """A seekable file object, read with seek and read under a lock. Closing the data leaves it open."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._file = FileObject(stream)
        self._lock = Lock()
        super().__init__(str(getattr(stream, "name", "<stream>")), end_of(stream))

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """What the file object tells of its content: see `pparse.data.file_object.of_stream`."""
        return of_stream(self._stream, self.size)

    def _pread(self, offset: int, length: int) -> bytes:
        found = io.BytesIO()
        left = length
        with self._lock:
            self._stream.seek(offset)
            while left and (got := len(piece := self._file.some(left))):
                found.write(piece)
                left -= got
        self._check(offset, length, length - left)
        return found.getvalue()

    def _preadinto(self, offset: int, view: memoryview) -> int:
        done = 0
        with self._lock:
            self._stream.seek(offset)
            while done < len(view) and (got := self._file.fill(view[done:])):
                done += got
        self._check(offset, len(view), done)
        return done

    def _check(self, offset: int, wanted: int, got: int) -> None:
        if got < wanted:
            raise SourceError("the file object returns fewer bytes than it had", source=self.name, offset=offset)


def end_of(stream: Any) -> int:
    """Return the size of a seekable file object."""
    size: int | None = stream.seek(0, os.SEEK_END)
    if size is None:  # some file objects return nothing
        size = stream.tell()
    return size


class ForwardData(Data):
    """A file object that is only read forwards. Up to 32 MiB stay in memory until `forget` releases them.

    It has no `identity`: what a pipe held is gone, and nobody could compare it.
    """

    def __init__(self, stream: Any, position: int) -> None:
        super().__init__(str(getattr(stream, "name", "<stream>")), None)
        self._file = FileObject(stream)
        self._lock = Lock()
        self._held = bytearray()
        self._held_at = position

    def _pread(self, offset: int, length: int) -> bytes:
        with self._lock:
            start = offset - self._held_at
            if start < 0:
                raise SourceError("the file object cannot seek backwards", source=self.name, offset=offset)
            while len(self._held) < start + length:
                chunk = self._file.some(start + length - len(self._held))
                if not len(chunk):
                    break  # the end for now: the file may grow
                self._held += chunk
                surplus = min(start, len(self._held) - MAX_HELD)
                if surplus > 0:  # far back: rarely asked for again, and an error then
                    del self._held[:surplus]
                    self._held_at += surplus
                    start -= surplus
            return bytes(self._held[start : start + length])

    def forget(self, offset: int) -> None:
        """Release the memory of the bytes before ``offset``."""
        with self._lock:
            if offset > self._held_at:
                drop = min(offset - self._held_at, len(self._held))
                del self._held[:drop]
                self._held_at += drop

    @property
    def position(self) -> int:
        """Offset up to which the stream was read."""
        return self._held_at + len(self._held)


class Source:
    """Bytes by offset. The end may move on while somebody writes.

    A file object that reports that it is not seekable begins at 0. With ``assumed_pos`` it is not asked, and is only
    read forwards.
    """

    def __init__(self, src: Sourcelike, *, owns: bool = True, assumed_pos: int | None = None) -> None:
        self.src = src
        """The source as it was given."""
        self.begin = assumed_pos or 0
        """Offset at which reading starts."""
        self.random_access = True
        """Whether the size is known, and seeking back is possible."""
        self._owns = owns
        self._start = 0  # offset in `data` of the source's first byte
        self._end: int | None = None  # where a Range ends
        self._data: Data | None = None
        if isinstance(src, str | os.PathLike):
            self._data = open_file(src)
            self._owns = True
        elif isinstance(src, bytes | bytearray | memoryview):
            self._data = BytesData(src)
        elif isinstance(src, Data):
            self._data = src
        elif isinstance(src, Reader):
            self._data = src.data
            self._start = src.start
            self._end = src.end
            self.begin = src.tell()
        elif assumed_pos is None and is_seekable(src):
            self.begin = src.tell()
        else:
            self._data = ForwardData(src, self.begin)
            self.random_access = False
        if self._data is not None and self._data.size is None and not isinstance(src, Data | Reader):
            self.random_access = False

    @property
    def data(self) -> Data:
        """The bytes. A seekable file object is first touched when this is asked for."""
        if self._data is None:
            self._data = SeekableData(self.src)
        return self._data

    def pread(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer at the end, or before a gap."""
        if self._end is not None:
            length = max(0, min(length, self._end - self._start - offset))
        return self.data.known(self._start + offset, length) if length else b""

    def preadinto(self, offset: int, view: memoryview) -> int:
        """Fill ``view`` from ``offset``; return how many bytes were written. Stops early where `pread` does."""
        if self._end is not None:
            view = view[: max(0, self._end - self._start - offset)]
        try:
            return self.data.preadinto(self._start + offset, view) if len(view) else 0
        except GapError:
            return 0

    def preadv(self, offset: int, views: list[memoryview]) -> int:
        """Fill ``views``, one after the other, from ``offset``; return how many bytes were written, as `preadinto`.

        They must not reach beyond the end of a source that is a part of its data.
        """
        try:
            return self.data.preadv(self._start + offset, views)
        except GapError:
            return 0

    def gap_end(self, offset: int) -> int | None:
        """Return where the gap that holds ``offset`` ends.

        Return None if there is no gap, if its length is not known, or if the bytes are cut off. Bytes between two gaps
        count as part of the gap if a block header would not fit there.
        """
        at = self._start + offset
        gap = self.data.next_gap(at)
        if gap is None or gap.offset > at or self.data.is_cut_at(at):
            return None
        end = None
        while gap is not None and gap.length is not None and (end is None or gap.offset - end < BLOCK_HEADER_SIZE):
            end = gap.offset + gap.length
            gap = self.data.next_gap(end)
        return None if end is None else end - self._start

    def locate(self, offset: int) -> tuple[Data, int]:
        """Return the data, and the offset in it that corresponds to ``offset``."""
        return self.data, self._start + offset

    def size(self) -> int:
        """Return the current size. Raise `SourceError` if it is not known."""
        known = self.known_size()
        if known is None:
            raise SourceError("the size of the source is not known", source=self.data.name)
        return known

    def known_size(self) -> int | None:
        """Return the current size; None if it is not known."""
        size = self.data.size
        if self._end is None and not self._start:
            return size
        return min((end - self._start for end in (size, self._end) if end is not None), default=None)

    @property
    def end(self) -> int:
        """End of the source, as far as it was read."""
        size = self.known_size()
        return size if size is not None else self.data.position if isinstance(self.data, ForwardData) else self.begin

    def reaches(self, offset: int) -> bool:
        """Say whether the source extends to ``offset``. A source that is only read forwards is read up to there."""
        size = self.known_size()
        if size is not None:
            return offset <= size
        return offset <= self.end or len(self.pread(offset - 1, 1)) == 1

    def grow(self) -> bool:
        """Check whether the file has grown since it was opened; return True if so."""
        before = self.data.size
        if before is None or isinstance(self.src, bytes | bytearray | memoryview | Data | Reader):
            return False
        if isinstance(self.src, str | os.PathLike):
            now = self.data.grown()
            if now is None:
                return False
            self.data.close()
        else:
            if end_of(self.src) <= before:
                return False
            now = SeekableData(self.src)
        self._data = now
        return True

    def forget(self, offset: int) -> None:
        """Declare that nothing before ``offset`` is needed any more."""
        if isinstance(self.data, ForwardData):
            self.data.forget(offset)

    def close(self, position: int) -> None:
        """Release the source; a file object that is not owned is left at ``position``."""
        if isinstance(self.src, Data | Reader):
            return
        if not isinstance(self.src, str | os.PathLike | bytes | bytearray | memoryview):
            if self._owns:
                self.src.close()
            elif self.random_access and self._data is not None:
                self.src.seek(position)
        if self._data is not None:
            self._data.close()
