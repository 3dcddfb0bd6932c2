"""Zeros where nothing was ever written: by a crashed disk write, or a download into a preallocated file.

Two signs: holes of the file (`unwritten`), and zeros: long runs that fill whole pages (`zero_runs`), or those at the
end of a file (`zeros_at_end`) where its format wants something else.
"""

from __future__ import annotations

from pparse.errors import GapError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Final

    from pparse.data.base import Data

PAGE: Final = 4 * KIB  # data is lost in whole pages
LEAST: Final = 64 * KIB
_STEP: Final = 1024 * KIB
_BESIDE: Final = 16  # fewer zeros before a hole probably belong to the content
_BLOCK: Final = 64 * KIB  # the largest block of a file system: up to so many zeros may belong to the hole
_PAGE_OF_ZEROS: Final = bytes(PAGE)


def zero_runs(data: Data, start: int, end: int, poll: Callable[[], object]) -> Iterator[tuple[int, int]]:
    """Yield ``(offset, length)`` of runs of zeros that fill whole pages of ``data[start:end]``, from 64 KiB on.

    Pages begin at multiples of 4 KiB of the data. Reads everything once, behind gaps too; calls ``poll`` often.
    """
    at = -(-start // PAGE) * PAGE
    begin: int | None = None
    while at + PAGE <= end:
        poll()
        gap = data.next_gap(at) if data.gaps else None
        if gap is not None and gap.offset < at + PAGE:  # lost bytes are not zeros
            if begin is not None and at - begin >= LEAST:
                yield begin, at - begin
            begin = None
            if gap.end is None:
                return
            at = -(-max(gap.end, at + 1) // PAGE) * PAGE
            continue
        try:
            block = data.pread(at, min(_STEP, (end - at) // PAGE * PAGE))
        except GapError:
            continue  # the gap was found just now
        block = block[: len(block) // PAGE * PAGE]
        if not block:
            break
        for place in range(0, len(block), PAGE):
            zeros = block[place] == 0 and block.startswith(_PAGE_OF_ZEROS, place)
            if zeros and begin is None:
                begin = at + place
            elif not zeros and begin is not None:
                if at + place - begin >= LEAST:
                    yield begin, at + place - begin
                begin = None
        at += len(block)
    if begin is not None and at - begin >= LEAST:
        yield begin, at - begin


def runs_from(runs: Iterable[tuple[int, int]], start: int) -> Iterator[tuple[int, int]]:
    """Yield what `zero_runs` finds from ``start`` on, of the ``runs`` that it found before."""
    first = -(-start // PAGE) * PAGE
    for at, length in runs:
        begin, end = max(at, first), at + length
        if end - begin >= LEAST:
            yield begin, end - begin


def unwritten(data: Data, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ``(start, end)`` stretches in ``data[start:end]`` that were never written.

    These are the holes of the file and the zeros next to them, up to 64 KiB: file systems allocate whole blocks, so
    the blocks before and after a hole may be partly written. Holes with only zeros between them count as one. If all
    of ``[start, end)`` lies beside the hole, fewer than 16 zeros are not counted.
    """
    begin = reached = -1
    for first, last in data.holes(max(0, start - _BLOCK), end + _BLOCK):
        low = max(start, first)
        low = zeros_at_end(data, max(start, low - _BLOCK), low)
        high = min(end, _zeros_behind(data, last, end))
        beside = first >= end or last <= start  # the whole range lies beside the hole
        if high - low < (_BESIDE if beside else 1):
            continue
        if begin >= 0 and low > reached:
            yield begin, reached
            begin = -1
        begin, reached = (low if begin < 0 else begin), high
    if begin >= 0:
        yield begin, reached


def _zeros_behind(data: Data, at: int, most: int) -> int:
    """Return where the zeros from ``at`` on end; look ahead to ``most``, 64 KiB at most."""
    most = min(most, at + _BLOCK)
    while at < most:
        found = data.read_known(at, min(PAGE, most - at))[0]
        kept = len(found.lstrip(b"\0"))
        at += len(found) - kept
        if kept or not found:
            break
    return at


def first_unwritten(data: Data, start: int, end: int) -> int | None:
    """Return where to resume a download that left holes: where the first one begins; None if there is none."""
    return next((low for low, _ in unwritten(data, start, end)), None)


def zeros_at_end(data: Data, start: int, end: int, poll: Callable[[], object] = lambda: None) -> int:
    """Return where the zeros begin that ``data[start:end]`` ends with; ``end`` if it ends with another byte.

    Reads backwards, from the last page; what are holes is asked once that is zeros, and they are not read. Stops at
    gaps, whose bytes are lost and not zeros.
    """
    holes: list[tuple[int, int]] | None = None
    step = PAGE
    while end > start:
        poll()
        if holes and holes[-1][0] < end <= holes[-1][1]:
            end = max(start, holes.pop()[0])
            continue
        begin = max(start, (end - 1) // step * step, holes[-1][1] if holes else start)
        found, unknown = data.read_known(begin, end - begin)
        if len(found) < end - begin:
            return end
        lost = min(end, sum(unknown[-1])) if unknown else begin
        kept = max(lost, begin + len(found.rstrip(b"\0")))
        if kept > begin:
            return kept
        if holes is None:
            holes = list(data.holes(start, begin))
        end, step = begin, _STEP
    return end
