"""Where a reader's bytes come from: a path, bytes, a `Data` or `Reader` of ours, or any binary file object.

Whatever a file object raises goes to the caller unchanged.
"""

from __future__ import annotations

import io
import os
import threading

from pparse.data.base import BytesData, Data, FileData
from pparse.data.reader import Reader
from pparse.errors import GapError, SourceError
from pparse.riegeli.layout import BLOCK_HEADER_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO, Final

    Sourcelike = str | os.PathLike[str] | bytes | bytearray | memoryview | Data | Reader | BinaryIO


# What of a file object that is read forwards only stays in memory behind the latest byte.
MAX_HELD: Final = 32 << 20


# What is read from a file object with one call, where it goes through a buffer.
_PIECE: Final = 1 << 16
# By which method a file object is read: into a buffer, or by number.
_INTO: Final = ("readinto1", "readinto")
_METHODS: Final = (*_INTO, "read1", "read")


def is_seekable(stream: Any) -> bool:
    """Ask a file object whether it can be sought; one that cannot be asked is believed to be."""
    ask = getattr(stream, "seekable", None)
    return ask is None or bool(ask())


class FileObject:
    """Reads a file object by whichever of its methods there is, `_INTO` first.

    Where a class overrides some of them, those count: what the class below has may not know of it.
    """

    def __init__(self, stream: Any) -> None:
        name = next((name for kind in type(stream).__mro__ for name in _METHODS if name in vars(kind)), None)
        if name is None:  # it may have them without its class
            name = next((name for name in _METHODS if hasattr(stream, name)), "read")
        self._method: Callable[[Any], Any] = getattr(stream, name)
        self._into = name in _INTO
        self._room = memoryview(b"")

    def fill(self, view: memoryview) -> int:
        """Read up to as much as ``view`` holds into it; 0 at the end, for now at least."""
        if self._into:
            got: int = self._method(view) or 0
            return got
        chunk = self._method(len(view)) or b""
        if isinstance(chunk, str):
            raise TypeError("the file object gives text; open it in binary mode")
        view[: len(chunk)] = chunk
        return len(chunk)

    def some(self, length: int) -> memoryview:
        """Return up to ``length`` bytes, as one call gives them, good until the next; none at the end."""
        if len(self._room) < min(length, _PIECE):
            self._room = memoryview(bytearray(min(length, _PIECE)))
        return self._room[: self.fill(self._room[:length])]


class SeekableData(Data):
    """A file object that can be sought: locked seek and read. It is not closed with the data."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._file = FileObject(stream)
        self._lock = threading.Lock()
        super().__init__(str(getattr(stream, "name", "<stream>")), end_of(stream))

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
            raise SourceError("the file object serves fewer bytes than it had", source=self.name, offset=offset)


def end_of(stream: Any) -> int:
    """Return the size of a file object that can be sought."""
    size: int | None = stream.seek(0, os.SEEK_END)
    if size is None:  # as some have it
        size = stream.tell()
    return size


class ForwardData(Data):
    """A file object that is read forwards only; what `forget` was not told of stays in memory, up to 32 MiB."""

    def __init__(self, stream: Any, position: int) -> None:
        super().__init__(str(getattr(stream, "name", "<stream>")), None)
        self._file = FileObject(stream)
        self._lock = threading.Lock()
        self._held = bytearray()
        self._held_at = position

    def _pread(self, offset: int, length: int) -> bytes:
        with self._lock:
            return self._read_on(offset, length)

    def _read_on(self, offset: int, length: int) -> bytes:
        start = offset - self._held_at
        if start < 0:
            raise SourceError("the file object cannot be sought backwards", source=self.name, offset=offset)
        while len(self._held) < start + length:
            chunk = self._file.some(start + length - len(self._held))
            if not len(chunk):
                break  # the end for now: a file that grows may have more later
            self._held += chunk
            surplus = min(start, len(self._held) - MAX_HELD)
            if surplus > 0:  # far behind: it will not be asked for again, or else is lost
                del self._held[:surplus]
                self._held_at += surplus
                start -= surplus
        return bytes(self._held[start : start + length])

    def forget(self, offset: int) -> None:
        """Give back the memory of what stands before ``offset``."""
        with self._lock:
            if offset > self._held_at:
                drop = min(offset - self._held_at, len(self._held))
                del self._held[:drop]
                self._held_at += drop

    @property
    def position(self) -> int:
        """How far the stream was read."""
        return self._held_at + len(self._held)


class Source:
    """Bytes by offset, with an end that may move on while somebody writes.

    ``begin`` is where reading starts; ``random_access`` says whether there is a size, and a way back. A file object
    that says that it is not seekable begins at 0; with ``assumed_pos`` it is not asked, and is read forwards only.
    """

    def __init__(self, src: Sourcelike, *, owns: bool = True, assumed_pos: int | None = None) -> None:
        self.src = src
        self.begin = assumed_pos or 0
        self.random_access = True
        self._owns = owns
        self._start = 0  # where the source's first byte stands in `data`
        self._end: int | None = None  # where a Range says it ends
        self._data: Data | None = None
        if isinstance(src, str | os.PathLike):
            self._data = FileData(src)
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
        """The bytes; those of a file object that can be sought are first touched when they are asked for."""
        if self._data is None:
            self._data = SeekableData(self.src)
        return self._data

    def pread(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer at the end, or where a gap of the data begins."""
        if self._end is not None:
            length = max(0, min(length, self._end - self._start - offset))
        try:
            return self.data.pread(self._start + offset, length) if length else b""
        except GapError:
            return b""

    def preadinto(self, offset: int, view: memoryview) -> int:
        """Fill ``view`` from ``offset``; return how many bytes were written. Short as `pread` is."""
        if self._end is not None:
            view = view[: max(0, self._end - self._start - offset)]
        try:
            return self.data.preadinto(self._start + offset, view) if len(view) else 0
        except GapError:
            return 0

    def preadv(self, offset: int, views: list[memoryview]) -> int:
        """Fill ``views``, one after the other, from ``offset``; return how many bytes were written, as `preadinto`."""
        total = sum(map(len, views))
        if self._end is not None and total > self._end - self._start - offset:
            done = 0
            for view in views:
                got = self.preadinto(offset + done, view)
                done += got
                if got < len(view):
                    break
            return done
        try:
            return self.data.preadv(self._start + offset, views)
        except GapError:
            return 0

    def gap_end(self, offset: int) -> int | None:
        """Return where the gap that holds ``offset`` ends; None if there is no gap, or its length is not known, or
        it is but what was cut off.

        What is known between it and the next one belongs to it if no header has room there.
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
        """Return the data, and where in it ``offset`` of this source is."""
        return self.data, self._start + offset

    def size(self) -> int:
        """Return the size known now. Raises `SourceError` for a source that cannot tell."""
        known = self.known_size()
        if known is None:
            raise SourceError("the size of the source is not known", source=self.data.name)
        return known

    def known_size(self) -> int | None:
        """Return the size known now, or None."""
        size = self.data.size
        if self._end is None and not self._start:
            return size
        if size is not None:
            size -= self._start
        end = None if self._end is None else self._end - self._start
        return end if size is None else size if end is None else min(size, end)

    @property
    def end(self) -> int:
        """Where the source ends, as far as it was read."""
        size = self.known_size()
        return size if size is not None else self.data.position if isinstance(self.data, ForwardData) else self.begin

    def reaches(self, offset: int) -> bool:
        """Say whether the source goes on to ``offset``, at least; of one that is read forwards, read up to there."""
        size = self.known_size()
        if size is not None:
            return offset <= size
        return offset <= self.end or len(self.pread(offset - 1, 1)) == 1

    def grow(self) -> bool:
        """Look whether a file has grown since it was opened; say whether it has."""
        before = self.data.size
        if before is None or isinstance(self.src, bytes | bytearray | memoryview | Data | Reader):
            return False
        if isinstance(self.src, str | os.PathLike):
            try:
                if os.stat(self.src).st_size <= before:
                    return False
            except OSError:
                return False
            now: Data = FileData(self.src)
            old = self.data
            if isinstance(old, FileData) and isinstance(now, FileData) and not old.identity.same_file(now.identity):
                now.close()
                return False  # another file has taken its name
            old.close()
        else:
            if end_of(self.src) <= before:
                return False
            now = SeekableData(self.src)
        self._data = now
        return True

    def forget(self, offset: int) -> None:
        """Say that nothing before ``offset`` is needed any more."""
        if isinstance(self.data, ForwardData):
            self.data.forget(offset)

    def close(self, position: int) -> None:
        """Release the source; a file object that is not owned is left standing at ``position``."""
        if isinstance(self.src, Data | Reader):
            return
        if not isinstance(self.src, str | os.PathLike | bytes | bytearray | memoryview):
            if self._owns:
                self.src.close()
            elif self.random_access and self._data is not None:
                self.src.seek(position)
        if self._data is not None:
            self._data.close()
