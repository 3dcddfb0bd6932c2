"""Zeros that a disk, or a download into a file of full size, leaves of what was never written.

Two signs of it: holes of the file (`unwritten`), and long runs of zeros in whole pages (`zero_runs`).
"""

from __future__ import annotations

from pparse.errors import GapError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.data.base import Data

PAGE: Final = 4 * KIB  # what is lost is lost in pages
LEAST: Final = 64 * KIB
_STEP: Final = 1024 * KIB
_BESIDE: Final = 16  # fewer zeros at the end of something right before a hole are more likely its own
_BLOCK: Final = 64 * KIB  # file systems have no larger blocks: so many zeros beside a hole may be its own
_PAGE_OF_ZEROS: Final = bytes(PAGE)


def zero_runs(data: Data, start: int, end: int, poll: Callable[[], object]) -> Iterator[tuple[int, int]]:
    """Yield ``(offset, length)`` of the runs of whole pages of zeros in ``data[start:end]``, from 64 KiB on.

    Pages begin at multiples of 4 KiB of the data. Reads everything once, behind gaps too; ``poll`` is called often.
    """
    at = -(-start // PAGE) * PAGE
    begin: int | None = None
    while at + PAGE <= end:
        poll()
        gap = data.next_gap(at) if data.gaps else None
        if gap is not None and gap.offset < at + PAGE:  # lost, and no zeros
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
            continue  # it was found just now
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


def unwritten(data: Data, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ``(start, end)`` stretches in ``data[start:end]`` that were never written.

    These are the holes of the file, and the zeros beside each, up to 64 KiB: a file system keeps whole blocks, so the
    last block before a hole, and the first behind it, may be written in part. Holes that only zeros part are one. Where
    all of ``[start, end)`` is beside a hole, fewer than 16 zeros are not counted.
    """
    begin = reached = -1
    for first, last in data.holes(max(0, start - _BLOCK), end + _BLOCK):
        low = _zeros_before(data, max(start, first), start)
        high = min(end, _zeros_behind(data, last, end))
        beside = first >= end or last <= start  # all of what is asked for is beside the hole
        if high - low < (_BESIDE if beside else 1):
            continue
        if begin >= 0 and low > reached:
            yield begin, reached
            begin = -1
        begin, reached = (low if begin < 0 else begin), high
    if begin >= 0:
        yield begin, reached


def _zeros_before(data: Data, at: int, least: int) -> int:
    """Return where the zeros before ``at`` begin."""
    least = max(least, at - _BLOCK)
    while at > least:
        begin = max(least, at - PAGE)
        kept = len(data.read_known(begin, at - begin)[0].rstrip(b"\0"))
        at = begin + kept
        if kept:
            break
    return at


def _zeros_behind(data: Data, at: int, most: int) -> int:
    """Return where the zeros behind ``at`` end."""
    most = min(most, at + _BLOCK)
    while at < most:
        found = data.read_known(at, min(PAGE, most - at))[0]
        kept = len(found.lstrip(b"\0"))
        at += len(found) - kept
        if kept or not found:
            break
    return at


def first_unwritten(data: Data, start: int, end: int) -> int | None:
    """Return where a download that left holes is to go on: where the first of them begins; None if there is none."""
    return next((low for low, _ in unwritten(data, start, end)), None)
