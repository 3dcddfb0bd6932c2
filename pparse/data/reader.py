"""`Cursor` and `Range`: userspace file descriptors over a `Data`.

Any number of readers share one source. Each has its own position, counted from its own start; `Reader.offset` is the
position in the Data.
"""

from __future__ import annotations

import os
import weakref
from collections import deque

from pparse.errors import EndOfDataError, EndOfRangeError, GapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Self

    from pparse.data.base import Buffer, Data

# Small reads are served from a block, small after a jump and growing while reading goes on.
_FIRST_BLOCK: Final = 4 << 10
_LAST_BLOCK: Final = 64 << 10
_PAGE: Final = 4 << 10
_LEAST: Final = 64  # worth a read of their own: a read of two pages makes Linux read eight
# The most readers of the process that keep a block: 2,000 cursors would hold 125 MiB.
_BLOCKS: Final = 64
_with_blocks: deque[tuple[weakref.ref[Reader], int]] = deque()  # with the offset of each block


def up_to_page(offset: int, size: int) -> int:
    """Return how much to read at ``offset``, where reading jumps to: about ``size`` bytes, up to the end of a page.

    Of a file that is not in the caches, a page less is read from the disk so.
    """
    if size < _PAGE:
        return size
    rest = size - (offset + size) % _PAGE
    return rest if rest >= _LEAST else rest + _PAGE


def byte_view(buffer: Buffer) -> memoryview:
    """Return a flat view of the bytes of a contiguous buffer."""
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")  # cast refuses shapes with a zero


class Reader:
    """A position in a stretch ``[start, end)`` of a Data; ``end`` is None while the size of the data is unknown."""

    __slots__ = ("__weakref__", "_block", "_block_at", "_next_block", "_pos", "data", "start")

    def __init__(self, data: Data, start: int) -> None:
        self.data = data
        """The source."""
        self.start = start
        """Where the stretch begins, as an offset of the Data."""
        self._pos = start
        self._block = b""
        self._block_at = start
        self._next_block = _FIRST_BLOCK

    @property
    def end(self) -> int | None:
        """Where the stretch ends, as an offset of the Data; None while unknown."""
        return self.data.size

    @property
    def offset(self) -> int:
        """The position as an offset of the Data."""
        return self._pos

    @property
    def size(self) -> int | None:
        """Length of the stretch in bytes; None while unknown."""
        return None if self.end is None else max(0, self.end - self.start)

    @property
    def remaining(self) -> int | None:
        """Bytes between the position and the end; None while unknown."""
        return None if self.end is None else max(0, self.end - self._pos)

    def tell(self) -> int:
        """Return the position, counted from the reader's start."""
        return self._pos - self.start

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move as ``io`` files do; a position past the end is allowed and reads as empty. Return the new position."""
        if whence == os.SEEK_SET:
            target = self.start + offset
        elif whence == os.SEEK_CUR:
            target = self._pos + offset
        elif whence == os.SEEK_END and self.end is not None:
            target = self.end + offset
        elif whence == os.SEEK_END:
            raise EndOfDataError("the size of this data is not known yet", source=self.data.name)
        else:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
        if target < self.start:
            raise ValueError(f"seek before the start: {offset}")
        self._pos = target
        return target - self.start

    def skip(self, count: int) -> int:
        """Move ``count`` bytes forward without reading them. Return the new position."""
        return self.seek(count, os.SEEK_CUR)

    def peek(self, count: int) -> bytes:
        """Return up to ``count`` bytes without moving."""
        if count < 0:
            raise ValueError(f"negative count: {count}")
        remaining = self.remaining
        if remaining is not None:
            count = min(count, remaining)
            if not count:  # do not read on: a gap may begin here
                return b""
        at, block = self._pos - self._block_at, self._block  # another reader may drop the block at any time
        if at >= 0 and at + count <= len(block):
            return block[at : at + count]
        if count >= _LAST_BLOCK:
            return self.data.pread(self._pos, count)
        sequential = 0 <= at <= len(block) and block
        self._next_block = min(self._next_block * 4, _LAST_BLOCK) if sequential else _FIRST_BLOCK
        size = max(self._next_block, count)
        block = self.data.pread(self._pos, size if remaining is None else min(size, remaining))
        self._block, self._block_at = block, self._pos
        _with_blocks.append((weakref.ref(self), self._pos))
        if len(_with_blocks) > _BLOCKS:
            self._drop_oldest_block()
        return block[:count]

    @staticmethod
    def _drop_oldest_block() -> None:
        """Drop the block of the reader that filled one longest ago, unless it has filled another since."""
        try:
            oldest, begin = _with_blocks.popleft()
        except IndexError:  # another thread did
            return
        reader = oldest()
        if reader is not None and reader._block_at == begin:
            reader._block = b""

    def read(self, count: int = -1) -> bytes:
        """Return up to ``count`` bytes (negative: all that is left) and move past them. Empty at the end.

        Fewer bytes come only at the end or before a gap; a read that starts in a gap raises `GapError`.
        """
        if count < 0:
            if self.remaining is None:
                return self._read_to_unknown_end()
            count = self.remaining
        chunk = self.peek(count)
        self._pos += len(chunk)
        return chunk

    def _read_to_unknown_end(self) -> bytes:
        pieces: list[bytes] = []
        try:
            while chunk := self.read(_LAST_BLOCK):
                pieces.append(chunk)
        except GapError:
            if not pieces:
                raise
        return b"".join(pieces)

    def read_exact(self, count: int) -> bytes:
        """Return exactly ``count`` bytes and move past them; the position stays if it fails.

        Raises `EndOfDataError` if the source ends earlier, `EndOfRangeError` if only this range does, and `GapError` if
        a gap begins earlier.
        """
        chunk = self.peek(count)
        if len(chunk) < count:
            raise self._end_error(count, len(chunk))
        self._pos += count
        return chunk

    def _end_error(self, wanted: int, got: int) -> EndOfDataError | EndOfRangeError:
        self.data.pread(self._pos + got, 1)  # raises if a gap, not the end, cut the read
        return EndOfDataError("the data ends here", offset=self._pos, wanted=wanted, got=got, source=self.data.name)

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fill ``buffer`` and return the number of bytes written. Short only where `read` is."""
        view = byte_view(buffer)
        remaining = self.remaining
        if remaining is not None:
            view = view[: min(len(view), remaining)]
        got = self.data.preadinto(self._pos, view)
        self._pos += got
        return got

    def dup(self) -> Self:
        """Return another reader of the same stretch at the same position; the two then move independently."""
        from copy import copy

        return copy(self)

    def range(self, start: int, end: int) -> Range:
        """Return a `Range` of ``[start, end)``, counted from this reader's start and clipped to it."""
        if start < 0 or end < start:
            raise ValueError(f"not a range: [{start}, {end})")
        first, last = self.start + start, self.start + end
        if self.end is not None:
            last = min(last, self.end)
            first = min(first, last)
        return Range(self.data, first, last)

    def __repr__(self) -> str:
        end = "?" if self.end is None else self.end
        return f"<{type(self).__name__} of {self.data.name!r} [{self.start}, {end}) at {self.tell()}>"


class Cursor(Reader):
    """A reader of a whole Data."""

    __slots__ = ()

    def __init__(self, data: Data, offset: int = 0) -> None:
        if offset < 0:
            raise ValueError(f"negative offset: {offset}")
        super().__init__(data, 0)
        self._pos = offset


class Range(Reader):
    """A reader of the stretch ``[start, end)`` of a Data. Ranges of one stretch are equal, whatever their positions."""

    __slots__ = ("_end",)

    def __init__(self, data: Data, start: int, end: int) -> None:
        if start < 0 or end < start:
            raise ValueError(f"not a range: [{start}, {end})")
        super().__init__(data, start)
        self._end = end

    @property
    def end(self) -> int:
        """Where the range ends, as an offset of the Data. If the data ends earlier, reads are short."""
        return self._end

    def __len__(self) -> int:
        return self._end - self.start

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Range):
            return NotImplemented
        return self.data is other.data and self.start == other.start and self._end == other._end

    def __hash__(self) -> int:
        return hash((id(self.data), self.start, self._end))

    def _end_error(self, wanted: int, got: int) -> EndOfDataError | EndOfRangeError:
        if self._pos + got >= self._end:
            return EndOfRangeError(
                "the range ends here", offset=self._pos, wanted=wanted, got=got, source=self.data.name
            )
        return super()._end_error(wanted, got)
