"""Long runs of zeros in data: what a disk, or a download into a file of full size, leaves of what was never written."""

from __future__ import annotations

from pparse.errors import GapError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.data import Data

PAGE: Final = 4 * KIB  # what is lost is lost in pages
LEAST: Final = 64 * KIB
_STEP: Final = 1024 * KIB
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
