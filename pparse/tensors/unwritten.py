"""Tensors in holes of a file: bytes that were never written, as of a download into a preallocated file."""

from __future__ import annotations

from bisect import bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.data.base import Data


def unwritten_in(holes: list[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """Return ``(offset of the first, number)`` of the bytes in ``[start, end)`` that lie in ``holes`` (in order)."""
    if len(holes) == 1 and holes[0][0] <= start and end <= holes[0][1]:
        return start, end - start  # only the beginning of the file was written
    at = max(0, bisect_right(holes, (start, 1 << 63)) - 1)
    first = length = 0
    while at < len(holes) and holes[at][0] < end:
        low, high = max(holes[at][0], start), min(holes[at][1], end)
        if low < high:
            first = first or low
            length += high - low
        at += 1
    return first, length


def last_written(data: Data, start: int, hole: int) -> int:
    """Return where the last nonzero byte before a hole ends, looking back at most 1 MiB, and not before ``start``."""
    at, first = hole, max(start, hole - (1 << 20))
    while at > first:
        begin = max(first, at - 4096)
        kept = data.pread(begin, at - begin).rstrip(b"\0")
        if kept:
            return begin + len(kept)
        at = begin
    return at
