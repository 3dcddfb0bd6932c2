"""Where a damaged bzip2 stream can be entered again: at every block.

A block begins with 48 bits that are the same for all, at any bit; the end of a stream has another such mark. A block
decodes alone, behind the header of a stream and shifted to a border of bytes, and the CRC in its head says whether what
comes out is right. That CRC is CRC-32 taken from the other end of each byte, so zlib's serves for it.

False marks are of no harm: what begins at one does not decode to the CRC that follows it. A mark inside of a block does
not end it, for a block is decoded on over the marks until its CRC matches. What is tried in vain is counted, and has a
limit that grows with the source.

Nothing says how much a block holds, so where a piece belongs is known only if it follows directly on what came out.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from functools import partial

from pparse.codecs.base import decompressor
from pparse.compressed.kept import reread
from pparse.compressed.resync import as_it_is, nowhere, places_of
from pparse.compressed.resync.blocks import BlockWalk, Effort, FoundBlock, Look, Opener, spliced
from pparse.data.base import Data
from pparse.errors import MalformedError
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.codecs.base import Decompressor
    from pparse.compressed.env import DecodeEnv
    from pparse.compressed.resync import Failure, Piece
    from pparse.data.base import Range

_MARKS: Final = (0x314159265359, 0x177245385090)  # of a block, of the end of a stream
_MARK_BITS: Final = 48
# From one block to the next is this far at least, whatever it holds.
_LEAST: Final = 172
# A block holds at most 900,000 codes of 20 bits, behind its tables; and they stand for so many bytes.
_LONGEST: Final = 2_400_000
_LARGEST: Final = 48_000_000
# What decoding takes with blocks of 900 kB.
_MEMORY: Final = 4 * MIB
# Bytes that must follow a block.
_MORE: Final = 2
_ROOM: Final = 128 * KIB
_FEED: Final = 64 * KIB
_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def pieces(source: Range, failure: Failure, env: DecodeEnv, *, codec: str, size: int | None = None) -> Iterator[Piece]:
    """Yield the runs of sound blocks behind ``failure``; sets ``failure.suspect_from``.

    ``failure.out`` may count bytes of the block that failed: a block whose CRC does not match comes out all the same,
    before that is known. What came out before ``suspect_from`` is confirmed by its CRCs.
    """
    return _Bz2Walk(source, failure, env, _Bz2Opener(source, failure, env)).pieces()


judge_cut, probable_damage = as_it_is, nowhere


class _Bz2Opener(Opener):
    """Opens blocks, which begin and end at bits."""

    def __init__(self, source: Range, failure: Failure, env: DecodeEnv) -> None:
        super().__init__(source, env, "bz2")
        self._end = Look(source).end
        # The level in the head of the stream may be damaged, and the highest one serves for all.
        level = source.data.read_known(failure.start, 4)[0][3:]
        self._level = b"9" if env.budget.fits(_MEMORY) or not b"1" <= level <= b"9" else level

    def stream(self, start: int, end: int, size: int | None, tag: int) -> Range:
        """Return the bits ``[start, end)`` of the source behind the head of a stream."""
        body = _Shifted(self._data, self._end, start, end)
        return spliced(self._data.name, b"BZh" + self._level, body.range(0, body.length))


class _BitBlock:
    """A block that was tried: it begins at bit ``bit``; ``size`` bytes came out, 0 if it is not sound.

    A sound one ends at bit ``high``, or, if that is not known to the bit, between ``low`` and ``high``. A decoder of
    the other fails at byte ``failed``, after ``out`` bytes.
    """

    __slots__ = ("bit", "failed", "high", "low", "out", "size")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.size = self.low = self.high = self.failed = self.out = 0


class _Bz2Walk(BlockWalk):
    """One pass over the source, from before the failure to the end."""

    joins = proved = small = True

    def _behind(self) -> Iterator[FoundBlock]:
        failure = self._failure
        # The failed block begins no further back. One whose head is damaged fails there.
        self._search_from = max(self._look.start, failure.start, failure.at - _LONGEST)
        self._marks = _Marks(self._look, self._search_from)
        self._effort = Effort(self._search_from)
        border = 8 * failure.at - 7  # blocks that begin here cannot have been decoded
        broken = began = False
        last: _BitBlock | None = None
        for block in self._blocks():
            if not block.size:
                if not broken and (block.bit >= border or abs(block.failed - failure.at) <= 8):
                    broken = True
                    self._note_suspect(block)
                continue
            found = FoundBlock(block.bit, block.high, block.size)
            found.at = max(block.bit // 8, 0 if last is None else -(-last.high // 8))
            found.reach = -(-block.high // 8)
            found.proved = True
            # The first block of a stream of which nothing came out; or the one that follows the last.
            found.follows = block.bit == 8 * failure.start + 32 or (last is not None and block.bit - last.low < _LEAST)
            last = block
            if not broken and block.bit < border:
                continue
            if found.follows and not began and not broken:
                found.position = failure.out
            began = True
            yield found

    def _note_suspect(self, block: _BitBlock) -> None:
        """``block`` is the one that failed: what came out of it is in doubt."""
        came = min(block.out, self._failure.out)
        if came and not self._failure.by_source:
            self._failure.suspect_from = self._failure.out - came

    # -- blocks --------------------------------------------------------------------------------------------------

    def _blocks(self) -> Iterator[_BitBlock]:
        """Yield what was tried: sound blocks, none in another one, and what did not turn out to be one."""
        bit = 8 * self._search_from
        while (mark := self._marks.after(bit, 8 * self._look.end)) is not None:
            self._env.poll()
            bit = (mark >> 1) + 1
            if mark & 1 or not self._effort.allows(mark >> 4):
                continue
            block = self._try(mark >> 1)
            if block.size:
                bit = block.low
            self._marks.forget(bit)
            yield block

    def _try(self, bit: int) -> _BitBlock:
        block = _BitBlock(bit)
        whole = self._open.stream(bit, 8 * self._look.end, None, 0)
        again = partial(reread, whole.data, whole.start, whole.end)
        stream = decompressor("bz2", budget=self._env.budget, reread=again)
        taker = _Taker(stream, self._crc_at(bit))
        try:
            self._feed(block, whole.data, taker)
        except MalformedError as error:  # what follows it is no block; the CRC says whether it is one itself
            block.failed = bit // 8 + max(0, (error.offset or 0) - 4)
            if taker.matches:
                block.size = taker.size
                block.high = min(bit + 8 * ((error.offset or 0) - 4), 8 * self._look.end)
                block.low = block.high - 56
        finally:
            stream.close()
        block.out = taker.size
        if not block.size:
            self._effort.spent += taker.fed + taker.size // 8
        return block

    def _feed(self, block: _BitBlock, whole: Data, taker: _Taker) -> None:
        """Decode from mark to mark until the CRC is right. Raises `MalformedError` where it goes no further."""
        bit = block.bit
        longest = bit + 8 * _LONGEST
        mark = bit
        while True:
            found = self._marks.after(mark + 1, longest)
            mark = min(longest, 8 * self._look.end) if found is None else found >> 1
            end = 4 + -(-(mark - bit) // 8) + _MORE
            while taker.fed < end:
                self._env.poll()
                data = whole.known(taker.fed, min(_FEED, end - taker.fed))
                block.failed = bit // 8 + max(0, taker.fed - 4)
                if not data or not taker.take(data):
                    return
            block.failed = mark // 8
            if taker.matches:
                block.size, block.low, block.high = taker.size, mark, mark
            if block.size or found is None:
                return

    def _crc_at(self, bit: int) -> int:
        head = self._look.get((bit + _MARK_BITS) // 8, 5)
        return int.from_bytes(head.ljust(5, b"\0")) >> (8 - (bit + _MARK_BITS) % 8) & 0xFFFFFFFF


class _Taker:
    """Feeds a decoder, and keeps size and CRC of what comes out."""

    __slots__ = ("_crc", "_stream", "_wanted", "fed", "size")

    def __init__(self, stream: Decompressor, wanted: int) -> None:
        self._stream = stream
        self._wanted = int(f"{wanted:032b}"[::-1], 2)
        self._crc = 0
        self.fed = 0
        self.size = 0

    def take(self, data: bytes) -> bool:
        """Decode ``data``; return whether there can be more of the block. Raises `MalformedError`."""
        self.fed += len(data)
        while self.size <= _LARGEST:
            out = self._stream.decompress(data, _ROOM)
            data = b""
            self._crc = zlib.crc32(out.translate(_REVERSED), self._crc)
            self.size += len(out)
            if not out and (self._stream.needs_input or self._stream.eof):
                return not self._stream.eof
        return False

    @property
    def matches(self) -> bool:
        """Whether what came out is what the head of the block says."""
        return self.size > 0 and self._crc == self._wanted


class _Shifted(Data):
    """The bits ``[bit, end)`` of a source, from a border of bytes on, and the two bytes that follow.

    Python's decoder keeps back what it has of a block until it gets more input. Zeros follow the end of the source.
    """

    def __init__(self, data: Data, data_end: int, bit: int, end: int) -> None:
        self.length = max(0, -(-(end - bit) // 8)) + _MORE
        super().__init__(data.name, self.length)
        self._data = data
        self._end = data_end
        self._bit = bit

    def _pread(self, offset: int, length: int) -> bytes:
        at, shift = divmod(self._bit + 8 * offset, 8)
        count = min(length + 1, self._end - at)
        raw = self._data.pread(at, count) if count > 0 else b""
        if len(raw) == count:
            raw = raw.ljust(length + 1, b"\0")  # the end
        bits = int.from_bytes(raw) >> (8 - shift) & (1 << 8 * (len(raw) - 1)) - 1
        return bits.to_bytes(len(raw) - 1)


class _Marks:
    """Where marks stand, in bits of the source, times two; plus one for the end of a stream."""

    def __init__(self, look: Look, at: int) -> None:
        self._windows = look.windows(at, 6)
        self._found = array("q")
        self._known = at  # marks that begin before this byte are found
        self._over = False

    def after(self, bit: int, last: int) -> int | None:
        """Return the first mark in ``[bit, last]``."""
        while True:
            place = bisect_left(self._found, 2 * bit)
            if place < len(self._found):
                return self._found[place] if self._found[place] >> 1 <= last else None
            if self._over or 8 * self._known > last:
                return None
            self._search()

    def forget(self, bit: int) -> None:
        """Keep no marks before ``bit``."""
        place = bisect_left(self._found, 2 * bit)
        if 2 * place >= len(self._found):
            del self._found[:place]

    def _search(self) -> None:
        try:
            base, block = next(self._windows)
        except StopIteration:
            self._over = True
            return
        latest = self._found[-1] if self._found else -1
        fresh = {mark for mark in _marks_in(base, block) if mark > latest}
        self._found.extend(sorted(fresh))
        self._known = max(self._known, base + len(block) - 6)


def _needles() -> list[tuple[bytes, int, int]]:
    """Return, for each mark and shift: the bytes that are whole, the shift, the mark."""
    found = []
    for mark in _MARKS:
        for shift in range(8):
            spread = (mark << (8 - shift)).to_bytes(7)
            found.append((spread[1:6] if shift else spread[:6], shift, mark))
    return found


_NEEDLES: Final = _needles()


def _marks_in(base: int, block: bytes) -> Iterator[int]:
    for needle, shift, mark in _NEEDLES:
        before = 1 if shift else 0
        for at in places_of(needle, block):
            first = at - before
            bits = int.from_bytes(block[max(first, 0) : first + 7].ljust(7, b"\0")) >> (8 - shift)
            enough = first + (7 if shift else 6) <= len(block)
            if first >= 0 and enough and bits & (1 << _MARK_BITS) - 1 == mark:
                yield 2 * (8 * (base + first) + shift) + (mark == _MARKS[1])
