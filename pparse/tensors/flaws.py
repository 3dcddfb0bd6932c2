"""Where the bytes are that are lost or in doubt: in tensors, or in what leads to them."""

from __future__ import annotations

from bisect import bisect_right

from pparse.data.range_status import joined
from pparse.errors import EndOfDataError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pparse.data.base import Data


def flawed_only_in(data: Data, start: int, end: int, places: Iterable[tuple[int, int]]) -> bool:
    """Return whether all bytes in ``[start, end)`` that are lost or in doubt lie in one of ``places``, ``(start, end)``
    each: then nothing else can be missing."""
    if data.loose_gap(start) is not None or isinstance(data.error, EndOfDataError):
        return False
    known = joined(places)
    gaps = ((gap.offset, gap.end or end) for gap in data.gaps if gap.offset < end and (gap.end or end) > start)
    for low, high in joined((*data.suspect_ranges_in(start, end), *gaps)):
        at = bisect_right(known, (low, end)) - 1
        if at < 0 or known[at][1] < high:
            return False
    return True
