"""Making the index of a gzip file (`pparse.compressed.gzip_index`), and checking one.

The file is decoded once from front to end. Where the next point is due, the start of a block is looked for in the
compressed bytes that come next; a copy of the decoder goes there to learn how much comes out before it, and what. A
decoder that begins at the point must then give the same as the copy that goes on.
"""

from __future__ import annotations

import struct
import zlib
from collections import namedtuple

from pparse.codecs.base import CHECKPOINT
from pparse.codecs.deflate_entry import WINDOW, DeflateEntry
from pparse.codecs.gzip_header import MAX_HEADER, parse_header
from pparse.codecs.library import fault_of
from pparse.compressed.gzip_index import COMPLETE, FOOTER, MAGIC, POINT, SPACING, checksum_of
from pparse.compressed.inflated import InflatedData
from pparse.data.index_files import fingerprint
from pparse.errors import TRAILER_FAULTS, CancelledError, EndOfDataError, Fault, GapError, MalformedError, PparseError
from pparse.kernels.deflate_blocks import LOOKAHEAD, find_blocks
from pparse.limits import KIB, MIB, Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO, Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.compressed.gzip_index import GzipIndex
    from pparse.data.reader import Range

    # called with (bytes done, bytes in all, what is being done)
    Progress = Callable[[int, int | None, str], None]

# Points nearer to each other than this would be a large index for nothing.
LEAST_SPACING: Final = 64 * KIB

_BLOCK: Final = 256 * KIB  # read of the source at once
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
        self._file = file
        self._source = source
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
        if self._summed > end:  # a bit further than it should
            self._sum, self._summed = 0, self.row(-1)[0] >> 3
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
        self._limits = limits
        self._progress = progress
        self._cancel = cancel
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
        self.stream = stream
        self.out = out
        self.window = window
        self.at = at

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
    cancel: Callable[[], bool] | None = None,
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
                    if cancel is not None and cancel():
                        raise CancelledError("cancelled by the caller")
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
