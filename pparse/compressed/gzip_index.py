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
believed; `check_index` decodes everything to tell.

One is made while the file is decoded once from front to end. Where the next point is due, the start of a block is
looked for in the compressed bytes that come next; a copy of the decoder goes there to learn how much comes out before
it, and what. A decoder that begins at the point must then give the same as the copy that goes on.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections import namedtuple
from contextlib import suppress
from functools import partial

from pparse.codecs.base import CHECKPOINT
from pparse.codecs.deflate_entry import WINDOW, DeflateEntry
from pparse.codecs.gzip_header import MAX_HEADER, parse_header
from pparse.codecs.library import Core, LibraryDecompressor, fault_of
from pparse.compressed.inflated import InflatedData
from pparse.data.base import blocks
from pparse.data.index_files import fingerprint
from pparse.errors import (
    TRAILER_FAULTS,
    CancelledError,
    EndOfDataError,
    Fault,
    GapError,
    LimitError,
    MalformedError,
    PparseError,
    UnsupportedError,
)
from pparse.kernels.deflate_blocks import LOOKAHEAD, find_blocks
from pparse.limits import KIB, MIB, Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO, Final

    from pparse.codecs.base import Reread
    from pparse.data.base import Data, Range
    from pparse.limits import Charge, MemoryBudget

    # called with (bytes done, bytes in all, what is being done)
    Progress = Callable[[int, int | None, str], None]

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
            with suppress(zlib.error):
                window = stream.decompress(packed, WINDOW + 1)
        if not window or not stream.eof or len(window) > WINDOW:
            raise MalformedError("the index is damaged: a window is wrong", source=self.name, offset=place)
        return window

    def compare(self, source: Range, number: int) -> bool:
        """Say whether ``source`` is what was indexed, from point ``number`` to the next. Raises `GapError`."""
        if not self._checked[number]:
            point = self.point(number)
            self._checked[number] = checksum_of(source, point.start, point.end) == point.checksum
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
    for block in blocks(source.data.read_exact, source.start + start, source.start + end, _BLOCK):
        value = zlib.crc32(block, value)
    return value


# -- decoding from a point --------------------------------------------------------------------------------------------


class _GzipEntry(Core):
    """Raw deflate entered in the middle, and the trailer of the gzip member behind it, which goes unchecked."""

    __slots__ = ("_tail",)

    copies = True

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


# -- Making an index, and checking one ---------------------------------------------------------------------------------

# Points nearer to each other than this would be a large index for nothing.
LEAST_SPACING: Final = 64 * KIB

_INPUT: Final = 32 * KIB
_ROOM: Final = 256 * KIB
# Compressed bytes that are searched for a block at once, and how often in a row, before some are left out.
_SEARCHED: Final = 64 * KIB
_IN_A_ROW: Final = 4
_LEFT_OUT: Final = 16 * MIB
# Output that a decoder entering at a point must have in common with the one that comes there.
_PROOF: Final = 32 * KIB
# Damage may have gone unnoticed for a while: so many bytes of the source before it are not indexed.
_SUSPECTED: Final = 1 * MIB
_POINTS_CHARGED: Final = 1_000


class IndexReport(namedtuple("IndexReport", "points members size end source file_size error path")):
    """What became of a file that was indexed.

    ``points``; ``members``, the last perhaps in part; ``size``: bytes of output indexed; ``end``: bytes of the source
    that gave them; ``source``: all of them; ``file_size``: bytes of the index. ``error``: why not all of the source
    could be indexed, or None; of damage, its offset is at most 32 KiB before it. ``path``: of the index, if a file of
    its own was written.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"<IndexReport{where}: {self.points:,} points, {self.size:,} bytes of content>"


class _PointTable:
    """The points as they are found, and their windows, which go to the file at once."""

    def __init__(self, file: BinaryIO, source: Range, budget: MemoryBudget) -> None:
        self._file, self._source = file, source
        self._rows = bytearray()
        self._charge: Charge = budget.charge(0, "the points of an index")
        self._place = file.write(MAGIC)
        self._sum = 0  # of the source since the last point
        self._summed = 0  # as far as here

    def __len__(self) -> int:
        return len(self._rows) // POINT.size

    def row(self, number: int) -> tuple[int, ...]:
        return POINT.unpack_from(self._rows, (number % len(self)) * POINT.size)

    def add(self, bit: int, out: int, window: bytes) -> None:
        """Add a point; the one before ends there."""
        if self._rows:
            self.end_last((bit + 7) >> 3)
        if len(self) % _POINTS_CHARGED == 0:
            self._charge.resize((len(self) + _POINTS_CHARGED) * POINT.size)
        packed = zlib.compress(window, 1) if window else b""
        self._file.write(packed)
        self._rows += POINT.pack(bit, out, self._place, len(packed), zlib.crc32(packed), 0)
        self._place += len(packed)
        self._sum, self._summed = 0, bit >> 3

    def saw(self, at: int, data: bytes) -> None:
        """Add bytes of the source that were read anyway to the sum."""
        skip = self._summed - at
        if 0 <= skip < len(data):
            self._sum = zlib.crc32(memoryview(data)[skip:], self._sum)
            self._summed = at + len(data)

    def end_last(self, end: int) -> None:
        """Set the sum of the source from the last point to ``end``."""
        value = checksum_of(self._source, self._summed, end, self._sum)
        struct.pack_into("<I", self._rows, len(self._rows) - 4, value)

    def cut(self, out: int, end: int) -> None:
        """Drop the points from ``out`` on, but not the first; the source ends at ``end`` now."""
        while len(self) > 1 and self.row(-1)[1] >= out:
            self._place = self.row(-1)[2]
            del self._rows[-POINT.size :]
        self._file.seek(self._place)
        self._file.truncate()
        self._sum, self._summed = 0, self.row(-1)[0] >> 3
        self.end_last(end)

    def finish(self, report: IndexReport, last_member: int, spacing: int) -> int:
        """Write table and footer. Return the size of the file."""
        footer = FOOTER.pack(
            self._place,
            len(self),
            report.source,
            self._source.data.modified_ns,
            fingerprint(self._source),
            report.end,
            report.size,
            report.members,
            last_member,
            spacing,
            0 if report.error is not None else COMPLETE,
            zlib.crc32(self._rows),
            0,
        )[:-4]
        self._file.write(self._rows)
        self._file.write(footer + struct.pack("<I", zlib.crc32(footer)))
        return self._place + len(self._rows) + FOOTER.size


class _Ended(Exception):
    """The stream ends here, properly (None) or not."""

    def __init__(self, error: PparseError | None) -> None:
        super().__init__()
        self.error = error


class _IndexBuilder:
    """One pass over a source."""

    def __init__(
        self,
        source: Range,
        file: BinaryIO,
        spacing: int,
        budget: MemoryBudget,
        limits: Limits,
        progress: Progress | None,
        cancel: Callable[[], bool] | None,
    ) -> None:
        self._source = source
        self._size = source.end - source.start
        self._spacing = spacing
        self._room = min(_ROOM, spacing // 2)  # so that what is due is noticed in time
        self._limits, self._progress, self._cancel = limits, progress, cancel
        self._table = _PointTable(file, source, budget)
        self._block = b""
        self._block_at = 0
        self._out = 0
        self._window = b""  # the latest output of the member
        self._last = 0  # output before the last point
        self._member_at = 0
        self._member_out = 0
        self._members = 0
        self._search_at = 0  # not before that byte of the source
        self._misses = 0

    def run(self) -> IndexReport:
        self._table.add(0, 0, b"")
        at = last_member = 0
        error: PparseError | None = None
        try:
            while True:
                at = self._next_member(at)
                at = self._decode_member(at)
                last_member = self._member_out
        except _Ended as ended:
            error = ended.error
        end, size, members = self._conclude(error, at)
        self._source.data.check_unchanged()
        report = IndexReport(len(self._table), members, size, end, self._size, 0, error, "")
        return report._replace(file_size=self._table.finish(report, min(last_member, size), self._spacing))

    def _conclude(self, error: PparseError | None, at: int) -> tuple[int, int, int]:
        """Return what is sound: bytes of the source, of the output, members."""
        table = self._table
        if error is None or error.fault is Fault.TRAILING:
            table.cut(self._out, at)
            return at, self._out, self._members
        if isinstance(error, EndOfDataError):
            table.cut(self._out, self._size)
            return self._size, self._out, self._members + (self._out > self._member_out)
        # What came out before damage may be wrong already. Members before this one have been checked.
        end, out, members = self._member_at, self._member_out, self._members
        if error.fault not in TRAILER_FAULTS:
            number = len(table) - 1
            while number and (error.offset or 0) - (table.row(number)[0] >> 3) < _SUSPECTED:
                number -= 1
            if number and table.row(number)[1] > out:
                end, out, members = (table.row(number)[0] + 7) >> 3, table.row(number)[1], members + 1
        table.cut(out, end)
        return end, out, members

    # -- members -----------------------------------------------------------------------------------------------------

    def _peek(self, at: int, count: int) -> bytes:
        """Return up to ``count`` bytes of the source, fewer at its end or that of a block. Raises `_Ended`."""
        # No `Window`: nothing is read twice, and each block is progress, and can be the last.
        if not self._block_at <= at < self._block_at + len(self._block):
            if self._cancel is not None and self._cancel():
                raise CancelledError("cancelled by the caller")
            if self._progress is not None:
                self._progress(at, self._size, "indexing")
            self._block = self._read(at, _BLOCK)
            self._block_at = at
        return self._block[at - self._block_at : at - self._block_at + count]

    def _read(self, at: int, count: int) -> bytes:
        try:
            return self._source.data.pread(self._source.start + at, max(0, min(count, self._size - at)))
        except GapError as gap:
            raise _Ended(gap) from gap

    def _next_member(self, at: int) -> int:
        """Return where the member begins that is at ``at`` or, but for zeros, behind it. Raises `_Ended`."""
        begin = at
        while self._members and (head := self._peek(begin, _BLOCK)):
            rest = len(head.lstrip(b"\0"))
            begin += len(head) - rest
            if rest:
                break
        head = self._read(begin, MAX_HEADER if self._peek(begin, 4)[3:] > b"\0" else 10)
        if not head and self._members:
            raise _Ended(None)
        if not b"\x1f\x8b".startswith(head[:2]) and self._members:
            raise _Ended(MalformedError("bytes follow the gzip stream", offset=begin, fault=Fault.TRAILING))
        self._member_at, self._member_out = begin, self._out
        self._window = b""
        self._search_at, self._misses = 0, 0
        header = parse_header(head)
        if header is not None and header.block_size is not None:  # BGZF: the next member is near
            self._search_at = begin + header.block_size
        if self._out - self._last >= self._spacing:
            self._table.add(8 * begin, self._out, b"")
            self._last = self._out
        return begin

    def _decode_member(self, at: int) -> int:
        """Decode the member at ``at``. Return where it ends. Raises `_Ended`."""
        stream = zlib.decompressobj(31)
        while not stream.eof:
            data = self._peek(at, _INPUT)
            if not data:
                raise _Ended(EndOfDataError("the gzip stream is cut short", offset=at))
            try:
                self._take(stream, data, at + len(data))
            except zlib.error as error:
                reason = f"the gzip stream is damaged ({error})"
                raise _Ended(MalformedError(reason, offset=at, fault=fault_of(str(error)))) from error
            self._table.saw(at, data[: len(data) - len(stream.unused_data)])
            at += len(data)
        self._members += 1
        return at - len(stream.unused_data)

    def _take(self, stream: Any, data: bytes, end: int) -> None:
        """Decode ``data``, which ends at ``end`` of the source."""
        while True:
            out = stream.decompress(data, self._room)
            self._out += len(out)
            self._limits.check("inflated_bytes", self._out, f"what {self._source.data.name} holds")
            self._window = out[-WINDOW:] if len(out) >= WINDOW else (self._window + out)[-WINDOW:]
            data = stream.unconsumed_tail
            due = self._out - self._last >= self._spacing and end - len(data) >= self._search_at
            if due and not stream.eof:
                self._search(stream, end - len(data))
            if stream.eof or (not data and len(out) < self._room):
                return

    # -- points ------------------------------------------------------------------------------------------------------

    def _search(self, stream: Any, at: int) -> None:
        """Look for the start of a block soon behind byte ``at``, up to which ``stream`` was fed."""
        before = min(at, 8)
        buffer = self._read(at - before, before + _SEARCHED + LOOKAHEAD)
        last = 8 * (before + _SEARCHED)
        way = _Way(stream.copy(), self._out, self._window, before)
        try:
            for block in find_blocks(buffer, 8 * before, last):
                if not way.go(buffer, (block.bit >> 3) + 1):
                    break
                if _proves(way, buffer, block.bit):
                    bit = 8 * (at - before) + block.bit
                    self._table.add(bit, way.out, way.window)
                    self._last, self._misses = way.out, 0
                    return
        except zlib.error:
            pass  # damage ahead, which will be met
        self._misses += 1
        # Some writers make one block of all: nothing is lost then by searching less and less.
        skip = min(_SEARCHED << max(0, self._misses - _IN_A_ROW), _LEFT_OUT)
        self._search_at = at + max(skip, _SEARCHED)


class _Way:
    """A copy of the decoder, on its way through a buffer: where it stands, and what came out last."""

    __slots__ = ("at", "out", "stream", "window")

    def __init__(self, stream: Any, out: int, window: bytes, at: int) -> None:
        self.stream, self.out, self.window, self.at = stream, out, window, at

    def go(self, buffer: bytes, end: int) -> bool:
        """Take the bytes before ``end``. Return whether the stream goes on there. Raises zlib.error."""
        data = buffer[self.at : end]
        self.at = max(self.at, end)
        while True:
            out = self.stream.decompress(data, _ROOM)
            self.out += len(out)
            self.window = (self.window + out)[-WINDOW:]
            data = self.stream.unconsumed_tail
            if self.stream.eof or (not data and len(out) < _ROOM):
                return not self.stream.eof


def _proves(way: _Way, buffer: bytes, bit: int) -> bool:
    """Say whether a decoder that enters at ``bit`` gives what comes out there in fact. Raises zlib.error."""
    entry = DeflateEntry(bit & 7, way.window, 0)
    try:
        found = entry.feed(buffer[bit >> 3 :], _PROOF)
    except zlib.error:
        return False
    expected = way.stream.copy().decompress(buffer[way.at :], _PROOF)
    return bool(found) and found == expected


def build_index(
    source: Range,
    file: BinaryIO,
    *,
    spacing: int = SPACING,
    budget: MemoryBudget,
    limits: Limits | None = None,
    progress: Progress | None = None,
    cancel: Callable[[], bool] | None = None,
) -> IndexReport:
    """Decode ``source``, a gzip file, and write its index to ``file``, which must be seekable.

    A point is made about every ``spacing`` bytes of output (64 KiB at least; ValueError for less), as soon as the
    stream allows it. Of a file that is damaged or cut short what is sound is indexed, and the report says why no more;
    output whose checksum is wrong, and what was decoded shortly before damage, is not. Raises `LimitError` for output
    above ``inflated_bytes``, `CancelledError` if ``cancel`` says so, `DataChangedError`.
    """
    if spacing < LEAST_SPACING:
        raise ValueError(f"points cannot be nearer than {LEAST_SPACING} bytes, not {spacing}")
    with budget.charge(3 * CHECKPOINT + 3 * _BLOCK, "indexing a gzip file"):
        return _IndexBuilder(source, file, spacing, budget, limits or Limits(), progress, cancel).run()


def check_index(
    index: GzipIndex,
    source: Range,
    *,
    budget: MemoryBudget,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> None:
    """Decode ``source`` from front to end and by way of every point of ``index``, and compare.

    Raises `MalformedError` (or another error of reading) for the first difference.
    """
    whole = InflatedData(source, "gzip", budget=budget, limits=limits, concatenated=True, name=source.data.name)
    with whole:
        for number in range(index.points):
            point = index.point(number)
            if progress is not None:
                progress(point.start, index.source_size, "comparing")
            with index.open(source, number, budget=budget, limits=limits) as part:
                at = point.out
                while at < point.next_out:
                    count = min(_BLOCK, point.next_out - at)
                    if part.read_exact(at - point.out, count) != whole.read_exact(at, count):
                        raise MalformedError(
                            f"what is read through the index at {at:,} differs from the file", source=index.name
                        )
                    at += count
        if index.complete:
            whole.verify()
            if whole.error is not None:
                raise whole.error
            if whole.size != index.size:
                raise MalformedError("the index has another size", source=index.name, wanted=whole.size, got=index.size)
