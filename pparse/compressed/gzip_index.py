"""The index of a gzip file: places in it where decoding can begin, so that a read in its middle costs a few MiB.

The format, version 1 (all numbers little-endian, unsigned but for the time)::

    magic      15 bytes "pparse gz index", 1 byte version
    windows    one after the other: up to 32 KiB of output before a point, as a zlib stream
    table      36 bytes a point: u64 the bit of the source where it stands (8 * byte + bit, lowest bit first), u64
               output before it, u64 where its window is in this file, u32 bytes of that (0: a member begins at the
               point, and nothing before it is needed), u32 CRC-32 of those bytes, u32 CRC-32 of the bytes of the
               source from this point to the next (those that hold the bits of both included)
    footer     u64 where the table is, u64 points, u64 size of the source, i64 its modification time (ns, 0: unknown),
               16 bytes its `fingerprint`, u64 bytes of the source that are indexed, u64 output they give, u64 members,
               u64 output before the last member, u64 spacing asked for, u32 flags (1: the stream ends there), u32
               CRC-32 of the table, u32 CRC-32 of the footer up to here

What an index says is believed only if every sum is right and source and index fit; before a point is used, the source
from there to the next point is compared by its CRC-32. So a source that was changed gives no wrong bytes: what does
not fit is decoded from the start, as if there were no index. An index with right sums that was forged would be
believed; `pparse.compressed.gzip_index_builder.check_index` decodes everything to tell.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections import namedtuple
from functools import partial

from pparse.codecs.base import CHECKPOINT
from pparse.codecs.deflate_entry import WINDOW, DeflateEntry
from pparse.codecs.library import Core, LibraryDecompressor
from pparse.compressed.inflated import InflatedData
from pparse.data.index_files import fingerprint
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, UnsupportedError
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.budget import MemoryBudget
    from pparse.codecs.base import Reread
    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.limits import Limits

SPACING: Final = 4 * MIB
NAME: Final = b"pparse gz index"
VERSION: Final = 1
MAGIC: Final = NAME + bytes((VERSION,))
POINT: Final = struct.Struct("<QQQIII")
FOOTER: Final = struct.Struct("<QQQq16sQQQQQIII")
COMPLETE: Final = 1

# zlib makes a window of 32 KiB longer than this under no circumstances.
_LONGEST: Final = WINDOW + 1 * KIB
_TRAILER: Final = 8
_BLOCK: Final = 256 * KIB
# How many stretches are kept open, and how much nearer one must be than what was decoded from the start.
_OPEN: Final = 4
_NEARER: Final = 256 * KIB


class IndexPoint(namedtuple("IndexPoint", "bit out window checksum next_out end")):
    """Where decoding can begin: bit ``bit`` of the source, after ``out`` bytes of output.

    ``next_out`` and ``end`` say what is decoded from here: output before that offset, of source bytes before that one.
    ``window``: place, length and CRC-32 of the window in the index file; length 0 where a member begins.
    """

    __slots__ = ()

    @property
    def start(self) -> int:
        """The byte of the source that holds the first bit."""
        return int(self.bit >> 3)


class GzipIndex:
    """An index file that was read and found sound; see the head of the file.

    ``points``: how many; ``size``: bytes of output that are indexed; ``end``: bytes of the source that gave them;
    ``complete``: whether the stream ends there, as it should; ``members``; ``spacing``; ``source_size``,
    ``source_mtime`` (ns or 0), ``file_size``: bytes of the index file. ``problem``: why it is not used any more.

    The table is kept in memory, and charged; windows are read when they are needed. Raises `MalformedError` for what
    is no index, or a damaged one; `UnsupportedError` for a version that is not known; `LimitError`.
    """

    def __init__(self, data: Data, budget: MemoryBudget) -> None:
        size = data.size or 0
        if size - len(MAGIC) - FOOTER.size < POINT.size or data.read_exact(0, len(NAME)) != NAME:
            raise MalformedError("not an index of a gzip file", source=data.name)
        version = data.read_exact(len(NAME), 1)[0]
        if version != VERSION:
            raise UnsupportedError(f"{data.name}: an index of version {version}, known is version {VERSION}")
        self.data = data
        self.name = data.name
        self.file_size = size
        self.problem: str | None = None
        place, self.points = self._read_footer(data, size)
        count = self.points * POINT.size
        self._charge = budget.charge(count + self.points, f"the index of {self.points} points")
        self._table = data.read_exact(place, count)
        self._checked = bytearray(self.points)  # which stretches of the source were compared
        if zlib.crc32(self._table) != self._table_sum or not self._is_sound(place):
            raise MalformedError("the index is damaged: its table contradicts itself", source=data.name, offset=place)

    def _read_footer(self, data: Data, size: int) -> tuple[int, int]:
        at = size - FOOTER.size
        footer = data.read_exact(at, FOOTER.size)
        (
            place,
            points,
            self.source_size,
            self.source_mtime,
            self._fingerprint,
            self.end,
            self.size,
            self.members,
            self.last_member,
            self.spacing,
            flags,
            self._table_sum,
            footer_sum,
        ) = FOOTER.unpack(footer)
        self.complete = bool(flags & COMPLETE)
        room = at - place
        sound = (
            zlib.crc32(footer[:-4]) == footer_sum
            and len(MAGIC) <= place <= at
            and points == room // POINT.size
            and room % POINT.size == 0
            and points > 0
            and self.end <= self.source_size < 1 << 60
            and self.last_member <= self.size
        )
        if not sound:
            raise MalformedError("the index is damaged, or cut short", source=data.name, offset=at)
        return place, points

    def _is_sound(self, windows_end: int) -> bool:
        """Say whether points ascend, and windows lie one after the other."""
        at = len(MAGIC)
        before = (-1, -1)
        for bit, out, place, length, _, _ in POINT.iter_unpack(self._table):
            if bit <= before[0] or out < before[1] or length > _LONGEST or (length and place != at):
                return False
            if not length and bit & 7:
                return False
            at += length
            before = (bit, out)
        first = POINT.unpack_from(self._table)
        return bool(at == windows_end and first[:2] == (0, 0) and before[0] <= 8 * self.end and before[1] <= self.size)

    def matches(self, source: Range) -> bool:
        """Say whether this is an index of ``source``: by its size, samples of its bytes, and what its trailer says."""
        start, end = source.start, source.end
        if end - start != self.source_size or fingerprint(source) != self._fingerprint:
            return False
        if not self.complete or self.end < _TRAILER:
            return True
        trailer = source.data.pread(start + self.end - 4, 4)
        last: int = (self.size - self.last_member) & 0xFFFFFFFF
        return int.from_bytes(trailer, "little") == last

    def point(self, number: int) -> IndexPoint:
        """Return a point by its number."""
        bit, out, *window, checksum = POINT.unpack_from(self._table, number * POINT.size)
        next_out, end = self.size, self.end
        if number + 1 < self.points:
            next_bit, next_out = POINT.unpack_from(self._table, (number + 1) * POINT.size)[:2]
            end = (next_bit + 7) >> 3
        return IndexPoint(bit, out, window, checksum, next_out, end)

    def find(self, offset: int) -> int:
        """Return the number of the last point at or before ``offset`` of the output."""

        def out(number: int) -> int:
            return int(POINT.unpack_from(self._table, number * POINT.size)[1])

        return max(0, bisect_right(range(self.points), offset, key=out) - 1)

    def window(self, point: IndexPoint) -> bytes:
        """Return the output before ``point``; none where a member begins. Raises `MalformedError` for damage."""
        place, length, checksum = point.window
        if not length:
            return b""
        packed = self.data.read_exact(place, length)
        stream = zlib.decompressobj()
        window = b""
        if zlib.crc32(packed) == checksum:
            try:
                window = stream.decompress(packed, WINDOW + 1)
            except zlib.error:
                window = b""
        if not window or not stream.eof or len(window) > WINDOW:
            raise MalformedError("the index is damaged: a window is wrong", source=self.name, offset=place)
        return window

    def compare(self, source: Range, number: int) -> bool:
        """Say whether ``source`` is what was indexed, from point ``number`` to the next. Raises `GapError`."""
        if self._checked[number]:
            return True
        point = self.point(number)
        value = checksum_of(source, point.start, point.end)
        if value == point.checksum:
            self._checked[number] = 1
        return bool(self._checked[number])

    def open(self, source: Range, number: int, *, budget: MemoryBudget, limits: Limits | None = None) -> InflatedData:
        """Return what ``source`` holds from point ``number`` on, counted from there.

        Raises `MalformedError` if index and source do not fit there.
        """
        if not self.compare(source, number):
            raise MalformedError("the file was changed since it was indexed", source=source.data.name)
        point = self.point(number)
        window = self.window(point)
        return InflatedData(
            source.data.range(source.start + point.start, source.end),
            "gzip",
            budget=budget,
            limits=limits,
            concatenated=True,
            name=source.data.name,
            entered=partial(GzipEntryStream, point.bit & 7, window) if window else None,
        )

    def close(self) -> None:
        """Give back the memory, and close the index file."""
        self.data.close()
        self._charge.release()
        self._table = b""
        self.points = self.size = 0


def checksum_of(source: Range, start: int, end: int, value: int = 0) -> int:
    """Return the CRC-32 of bytes ``[start, end)`` of ``source``, after others whose CRC-32 is ``value``."""
    while start < end:
        block = source.data.read_exact(source.start + start, min(_BLOCK, end - start))
        value = zlib.crc32(block, value)
        start += len(block)
    return value


# -- decoding from a point --------------------------------------------------------------------------------------------


class _GzipEntry(Core):
    """Raw deflate entered in the middle, and the trailer of the gzip member behind it, which goes unchecked."""

    __slots__ = ("_tail",)

    def __init__(self, inner: DeflateEntry) -> None:
        super().__init__(inner)
        self._tail: bytes | None = None  # what follows the deflate stream, once that is at its end

    def feed(self, data: bytes, limit: int) -> bytes:
        inner: DeflateEntry = self._stream
        out = b"" if self._tail is not None else inner.feed(data, limit)
        if self._tail is not None:
            self._tail += data
        elif inner.eof:
            self._tail = inner.unused
        self.hungry = inner.hungry if self._tail is None else not self.eof
        return out

    @property
    def eof(self) -> bool:
        return self._tail is not None and len(self._tail) >= _TRAILER

    @property
    def unused(self) -> bytes:
        return (self._tail or b"")[_TRAILER:]

    def copy(self) -> Core:
        twin = _GzipEntry(self._stream.copy())
        twin._tail, twin.hungry = self._tail, self.hungry
        return twin


class GzipEntryStream(LibraryDecompressor):
    """The decompressor of a gzip member from bit ``phase`` of the first byte it is given to the member's end.

    ``window`` is the output before; the member's checksum cannot be checked.
    """

    errors = (zlib.error,)

    def __init__(self, phase: int, window: bytes, budget: MemoryBudget | None, size: int | None, reread: Reread | None):
        super().__init__("gzip", budget, size, reread)
        self._entry = phase, window, 0

    def _look(self, head: bytes) -> tuple[int, bytes] | None:
        return 2 * CHECKPOINT + WINDOW, b""

    def _make(self) -> Core:
        return _GzipEntry(DeflateEntry(*self._entry))


class IndexedData(InflatedData):
    """`InflatedData` of a gzip file that has an index: what is far from what was decoded is read by way of that.

    What `InflatedData` knows of the whole (``error``, ``gaps``, ``finished``, ``produced``, checksums) it learns by
    decoding from the start, index or not. An index that turns out not to fit is not used any more: ``index.problem``.
    """

    def __init__(self, source: Range, codec: str, *, index: GzipIndex, **options: Any) -> None:
        super().__init__(source, codec, **options)
        self.index = index
        self._open: dict[int, InflatedData] = {}  # in order of last use

    def _chunk(self, offset: int, length: int) -> bytes:
        self._check_open()
        return self._by_index(offset, length) or super()._chunk(offset, length)

    def _by_index(self, offset: int, length: int) -> bytes:
        """Return bytes at ``offset``, if the index is of use there."""
        index = self.index
        limits = self._env.limits
        if offset >= min(index.size, limits.inflated_bytes) or index.problem is not None:
            return b""
        number = index.find(offset)
        point = index.point(number)
        if self._distance(offset) <= offset - point.out + _NEARER:
            return b""
        most = min(length, point.next_out - offset, limits.inflated_bytes - offset, MIB)
        try:
            found = self._open.pop(number, None)
            if found is None:
                while len(self._open) >= _OPEN:
                    self._open.pop(next(iter(self._open)))  # dropped, not closed: its charges go with it
                found = index.open(self._source, number, budget=self._env.budget, limits=limits)
            self._open[number] = found
            chunk = found.pread(offset - point.out, most)
        except LimitError:  # one decoder, then
            self._open = {}
            return b""
        except (GapError, EndOfDataError, MalformedError) as error:
            chunk, index.problem = b"", error.reason
        if not chunk:
            index.problem = index.problem or "it leads beyond the end of the stream"
            self._open = {}
        return chunk

    def _distance(self, offset: int) -> int:
        """Return how much would be decoded without the index before the byte at ``offset`` comes out."""
        if self._kept.read(offset, 1):
            return 0
        run = self._run
        near = self._checkpoints.nearest(offset).out
        return offset - (max(near, run.out) if run.decoder is not None and run.out <= offset else near)

    def close(self) -> None:
        """Give back memory, and close the index; the source belongs to whoever opened it."""
        super().close()
        for found in self._open.values():
            found.close()
        self._open = {}
        self.index.close()
