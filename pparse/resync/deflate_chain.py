"""Decoding from one place of a deflate stream: how far it goes, and whether another decoder was in step with it."""

from __future__ import annotations

import zlib
from array import array

from pparse.data import Data, GapTable
from pparse.errors import GapError
from pparse.limits import KIB
from pparse.standing import Doubt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.codecs.deflate_entry import DeflateEntry
    from pparse.errors import PparseError
    from pparse.inflated import InflatedData
    from pparse.resync.pieces import Piece

# Output compared to see whether two decoders are in step, input for it, and known bytes needed for an answer.
_COMPARED: Final = 4 * KIB
_COMPARED_INPUT: Final = 8 * KIB
_PROOF: Final = 32
_STEP: Final = 64
FEED: Final = 64 * KIB


class Chain:
    """Decoding that begins at bit ``bit`` of the source, ``unknown`` bytes before it being lost; ``out`` bytes precede.

    ``noted`` takes the doubt about its last bytes.
    """

    __slots__ = ("bit", "noted", "out", "unknown")

    def __init__(self, bit: int, unknown: int, out: int, noted: Callable[[int], object]) -> None:
        self.bit = bit
        self.unknown = unknown
        self.out = out
        self.noted = noted

    def decoder(self) -> DeflateEntry:
        """Return a decoder that stands at its beginning."""
        from pparse.codecs.deflate_entry import DeflateEntry

        return DeflateEntry(self.bit % 8, unknown=self.unknown)


class Trial:
    """How far a chain of blocks can be decoded: ``length`` bytes, to byte ``end`` of the source."""

    __slots__ = ("by_gap", "crc", "cut", "edges", "end", "ended", "error", "length")

    def __init__(self) -> None:
        self.length = 0
        self.end = 0
        self.ended = False  # with a final block
        self.cut = False  # the source ends
        self.by_gap = False
        self.error: PparseError | None = None
        self.edges = array("q")  # where each stretch begins and ends that depends on lost bytes
        self.crc = 0  # CRC-32 of what came out, if all of it is known


class EnteredData(Data):
    """What a stream that was entered in the middle holds: ``length`` bytes, those that depend on lost ones as gaps.

    ``edges`` says where each gap begins and ends.
    """

    def __init__(self, inner: InflatedData, length: int, edges: array[int]) -> None:
        super().__init__(inner.name, length)
        self._inner = inner
        self.access = inner.access
        self.gaps = GapTable()
        for place in range(0, len(edges), 2):
            self.gaps.add(edges[place], edges[place + 1] - edges[place])

    def _pread(self, offset: int, length: int) -> bytes:
        return self._inner.pread(offset, length)

    def read_known(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Read at once; the decoder gives zeros for what is not known."""
        if self.size is not None:
            length = max(0, min(length, self.size - offset))
        chunk = self._inner.pread(offset, length) if length else b""
        unknown = []
        end = offset + len(chunk)
        gap = self.next_gap(offset)
        while gap is not None and gap.offset < end:
            start, stop = max(gap.offset, offset), min(gap.end or end, end)
            unknown.append((start, stop - start))
            gap = self.next_gap(stop) if stop < end else None
        return chunk, unknown

    def close(self) -> None:
        """Give back memory."""
        super().close()
        self._inner.close()


class Pace:
    """A decoder that goes the way of a chain once more, and says at which blocks it was in step."""

    __slots__ = ("_at", "_core", "_data", "_end", "out")

    def __init__(self, chain: Chain, data: Data, end: int, begin: int) -> None:
        self._core = chain.decoder()
        self._data = data
        self._end = end
        self._at = chain.bit // 8
        self.out = 0
        self._go(begin)

    def _go(self, to: int) -> None:
        """Take the source as far as byte ``to``."""
        core = self._core
        try:
            while self._at < to and not core.eof:
                data = self._data.pread(self._at, min(FEED, to - self._at))
                if not data:
                    return
                self._at += len(data)
                out = core.feed(data, 4 * FEED)
                self.out += len(out)
                while not core.hungry and not core.eof:
                    self.out += len(core.feed(b"", 4 * FEED))
                core.take_unknown()
        except (zlib.error, GapError):
            self._at = self._end + 1  # it does not come any further

    def compare(self, bit: int) -> bool | None:
        """Say whether the chain passed the block at ``bit`` in step; None if that cannot be told."""
        from pparse.codecs.deflate_entry import DeflateEntry

        if bit // 8 + 1 < self._at:
            return None
        self._go(bit // 8 + 1)
        if self._at > self._end or self._core.eof:
            return None
        data = self._data.pread(self._at, min(_COMPARED_INPUT, max(0, self._end - self._at)))
        mine = _outcome(self._core.copy(), data)
        first = self._data.pread(bit // 8, 1)
        theirs = _outcome(DeflateEntry(bit % 8), first + data)
        common = min(len(mine[0]), len(theirs[0]))
        if common < _PROOF:
            return None
        known = bytearray(b"\1" * common)
        for stretches in (mine[1], theirs[1]):
            for offset, count in stretches:
                if offset < common:
                    count = min(count, common - offset)
                    known[offset : offset + count] = bytes(count)
        pairs = [a == b for a, b, sure in zip(mine[0], theirs[0], known, strict=False) if sure]
        return None if len(pairs) < _PROOF else all(pairs)


def _outcome(core: Any, data: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the first bytes that ``core`` makes of ``data``, and what is unknown of them."""
    base = core.total_out
    out = b""
    try:
        for at in range(0, len(data), _STEP):  # what comes out in front of damage counts
            out += core.feed(data[at : at + _STEP], _COMPARED)
            if len(out) >= _COMPARED:
                break
    except zlib.error:
        pass
    return out, [(offset - base, count) for offset, count in core.take_unknown() if offset >= base]


def noter(piece: Piece) -> Callable[[int], None]:
    """Return what notes that a piece is in doubt from some byte on."""

    def note(start: int) -> None:
        size = piece.data.size or 0
        if not piece.data.doubts or piece.data.doubts[0].start:
            piece.data.doubts = (Doubt(start, size, "decoded from damaged data shortly before that showed"),)

    return note
