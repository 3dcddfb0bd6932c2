"""Where a deflate stream that decodes to its end, and is contradicted there, was probably damaged.

A decoder can pass damage without noticing: what is wrong decodes to other bytes, perhaps to more or fewer of them, and
only a size or a checksum contradicts at the end. Two things tell the place: what is known against the bytes of the
source, and runs of one byte, which compressed data do not have, but sectors that were never written or erased do.
`HiddenData` hides such stretches, so that decoding ends there and begins again behind.
"""

from __future__ import annotations

import re
import zlib

from pparse.data import Data, GapTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

    from pparse.reader import Range

# A run of one byte that is no chance in compressed data: 2^-104 at any place.
_RUN: Final = re.compile(rb"(.)\1{13,}", re.DOTALL)
_BLOCK: Final = 256 << 10
# A stream of few different bytes has such runs by itself: there, each stands for at least so many times its length.
_MOST_RATIO: Final = 100
_MOST: Final = 4_096
# A stretch that is known to be in doubt says where the damage is only if it is a small part of the stream.
_SMALL_PART: Final = 4


def suspects(source: Range, first: int) -> list[tuple[int, int]]:
    """Return stretches ``(start, end)`` of the source, in order and apart, that are probably damaged.

    ``first``: where the compressed data begin. At most 4,096.
    """
    found = [*_doubtful(source, first), *_runs(source, first)]
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found)[:_MOST]:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _doubtful(source: Range, first: int) -> Iterator[tuple[int, int]]:
    most = (source.end - source.start) // _SMALL_PART
    for doubt in source.data.doubts:
        start, end = max(doubt.start, first), min(doubt.end, source.end)
        if 0 < end - start <= most:
            yield start, end


def _runs(source: Range, first: int) -> Iterator[tuple[int, int]]:
    """Yield runs of one byte; those at the very end are padding, perhaps, and no damage inside."""
    at, held = first, None
    while at < source.end:
        block = source.data.read_known(at, min(_BLOCK, source.end - at))[0]
        if not block:
            break
        for match in _RUN.finditer(block):
            start, end = at + match.start(), at + match.end()
            if held is not None and held[1] == start:
                held = (held[0], end)
                continue
            if held is not None:
                yield held
            held = (start, end)
        at += len(block)
    if held is not None and held[1] < source.end:
        yield held


def without_sparse(source: Range, first: int, found: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return those of ``found`` that do not stand for long runs of output themselves, as such data compress to."""
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    kept: list[tuple[int, int]] = []
    at = first
    for start, end in found:
        out = 0
        for low, high in ((at, start), (start, end)):
            out = 0
            while low < high and not decoder.eof:
                block = source.data.read_known(low, min(_BLOCK, high - low))[0]
                if not block:
                    return kept
                low += len(block)
                try:
                    while block:
                        out += len(decoder.decompress(block, _BLOCK))
                        block = decoder.unconsumed_tail
                except zlib.error:
                    return [*kept, *((a, b) for a, b in found if a >= start)]
        if out <= _MOST_RATIO * (end - start):
            kept.append((start, end))
        at = end
    return kept


class HiddenData(Data):
    """Data of which some stretches are hidden: they are gaps, and the rest is as it is."""

    def __init__(self, data: Data, hidden: Sequence[tuple[int, int]]) -> None:
        super().__init__(data.name, data.size, data.stats)
        self._data = data
        self._hidden = list(hidden)
        self.access = data.access
        gaps = [*((gap.offset, gap.length) for gap in data.gaps), *((start, end - start) for start, end in hidden)]
        self.gaps = GapTable()
        reached = 0
        for offset, length in sorted(gaps, key=lambda gap: gap[0]):
            start = max(offset, reached)
            if length is None:
                self.gaps.add(start, None)
                break
            if offset + length > start:
                self.gaps.add(start, offset + length - start)
                reached = offset + length

    @property
    def revision(self) -> int:  # type: ignore[override]
        """That of the data."""
        return self._data.revision

    def pread(self, offset: int, length: int) -> bytes:
        """Read what is not hidden; the reads are counted once, by the data itself."""
        length = self._clip(offset, length)
        return self._data.pread(offset, length) if length else b""

    def _pread(self, offset: int, length: int) -> bytes:
        return self._data.pread(offset, length)

    def doubtful(self, start: int, end: int) -> str | None:
        """Ask the data, of what is not hidden."""
        for low, high in (*self._hidden, (end, end)):
            reason = self._data.doubtful(start, min(low, end))
            if reason is not None:
                return reason
            start = max(start, high)
        return None

    def check_unchanged(self) -> None:
        """Check the source."""
        self._data.check_unchanged()
