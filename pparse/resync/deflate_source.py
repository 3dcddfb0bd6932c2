"""What is looked for in the source of a damaged deflate stream: its end, and where blocks and members may begin."""

from __future__ import annotations

import heapq

from pparse.errors import GapError
from pparse.limits import KIB, MIB
from pparse.resync.deflate_chain import FEED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.data import Data
    from pparse.reader import Range

# Searched at once, and looked at behind that: a stored block with the header that follows it.
_SEARCH: Final = 256 * KIB
_AHEAD: Final = 72 * KIB
MAGIC: Final = b"\x1f\x8b\x08"


def candidates(data: Data, bit: int, end: int, *, members: bool) -> Iterator[tuple[int, bool]]:
    """Yield bits from ``bit`` to byte ``end`` where a block may begin, or (True), with ``members``, a gzip member."""
    from pparse.kernels.deflate_blocks import find_blocks

    at = bit // 8
    while at < end:
        buffer, unknown = data.read_known(at, min(_SEARCH + _AHEAD, end - at))
        if not buffer:
            return
        last = min(_SEARCH, len(buffer))
        blocks = ((block.bit, False) for block in find_blocks(buffer, max(0, bit - 8 * at), 8 * last))
        for found, is_member in heapq.merge(blocks, _headers(buffer, max(0, bit // 8 - at), last if members else 0)):
            first = found // 8
            if not any(start <= at + first < start + count for start, count in unknown):
                yield 8 * at + found, is_member
        at += last


def _headers(buffer: bytes, first: int, last: int) -> Iterator[tuple[int, bool]]:
    """Yield the bits of ``buffer`` where the header of a gzip member may begin."""
    place = buffer.find(MAGIC, first)
    while 0 <= place < last:
        if len(buffer) - place > 10 and not buffer[place + 3] & 0xE0:
            yield 8 * place, True
        place = buffer.find(MAGIC, place + 1)


def zeros_at_end(source: Range, start: int, end: int) -> int:
    """Return where the zeros begin with which the source ends."""
    while end > start:
        count = min(FEED, end - start)
        block = source.data.read_known(end - count, count)[0]
        rest = len(block.rstrip(b"\0"))
        if rest:
            return end - count + rest
        end -= count
    return start


def real_end(source: Range) -> int:
    """Return where the source ends in fact: one that is decoded on the way need not know that yet."""
    data = source.data
    finish = getattr(data, "finish", None)
    if data.size is None and finish is not None:
        finish()
    if data.size is not None:
        return min(source.end, data.size)
    endless = [gap.offset for gap in data.gaps if gap.length is None]
    return min(source.end, *endless) if endless else _end_by_reading(data, source.start, source.end)


def _end_by_reading(data: Data, at: int, end: int) -> int:
    while at < end:
        gap = data.next_gap(at)
        if gap is not None and gap.offset <= at and gap.end is not None:
            at = gap.end
            continue
        try:
            chunk = data.pread(at, min(MIB, end - at))
        except GapError:
            return at
        if not chunk:
            return at
        at += len(chunk)
    return end
