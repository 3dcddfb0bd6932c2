"""The status of a tensor: TRUNCATED, MISSING, DAMAGED … by what its format claims, and by the bytes it is read from.

The claim is made where the tensor's entry is read (for safetensors `pparse.parsers.safetensors.parser`): sizes and
offsets are compared with each other, and here with the end of the file. What is known about a range of bytes, from
streams and checksums around it, is decided in `pparse.data.range_status`. Here both become one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from math import prod

from pparse.data.range_status import RangeStatus, cut_status
from pparse.data.stretches import Stretches
from pparse.errors import EndOfDataError
from pparse.findings import Status
from pparse.limits import are, count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Final

    from pparse.budget import MemoryBudget
    from pparse.data.base import Data
    from pparse.tensors.tensor import Span


def status_by_place(begin: int, end: int, there: int) -> Status:
    """Return the status of a tensor whose bytes are ``[begin, end)`` where ``there`` bytes exist.

    COMPLETE if all of them exist, TRUNCATED if only the first ones do, MISSING if none does.
    """
    if end <= there or begin == end:
        return Status.COMPLETE
    return cut_status(begin < there)


def tensor_status(claimed: Status, known: Callable[[], RangeStatus | None]) -> Status:
    """Return the status of a tensor; ``known`` tells what is known against its bytes, and may have to decode them."""
    if claimed is Status.DAMAGED or claimed is Status.UNSUPPORTED:
        return claimed
    found = known()
    if found is None or (claimed is not Status.COMPLETE and found.status is not Status.DAMAGED):
        return claimed
    return found.status


def status_of_spans(spans: tuple[Span, ...]) -> RangeStatus | None:
    """Return the worst of what is known against the bytes of ``spans``; None if there is nothing."""
    worst: RangeStatus | None = None
    for span in spans:
        if span.is_open and span.data is not None and span.data.flawed:
            found = span.data.range_status(span.offset, span.offset + span.length)
            if found.status is not Status.COMPLETE and (worst is None or worst.status is not Status.DAMAGED):
                worst = found if worst is None or found.status is Status.DAMAGED else worst
    return worst


def status_behind_gaps(spans: tuple[Span, ...], start: int) -> RangeStatus | None:
    """Return that a tensor may stand elsewhere, if an unknown number of bytes is lost before it; None if not.

    Its offset counts from ``start``, where its file begins in the data.
    """
    for span in spans:
        if span.is_open and span.data is not None:
            gap = span.data.loose_gap(start)
            if gap is not None and gap < span.offset:
                reason = f"an unknown number of bytes is lost at {gap:,}, before it: it may not stand here"
                return RangeStatus(Status.DAMAGED, None, reason, span.length)
    return None


def is_beyond_arrays(shape: tuple[int, ...]) -> bool:
    """Say whether an array without elements has a shape that no array can have: the other lengths are too large.

    numpy counts bytes as if lengths of 0 were 1; the limit leaves room for elements of 16 bytes.
    """
    return 0 in shape and prod(length for length in shape if length) >= 1 << 59


COMPLETE_WORDS: Final = {True: "complete, verified", False: "complete, contradicted", None: "complete, unverified"}


def status_words(status: Status, verified: bool | None) -> str:
    """Return a status in words."""
    if status is not Status.COMPLETE:
        return str(status)
    return COMPLETE_WORDS[verified]


def there_words(there: int, wanted: int) -> str:
    """Return how many bytes of a tensor are there, in words."""
    return f"{f'{there:,}' if there else 'none'} of its {count_words(wanted, 'byte')} {are(there)} there"


# -- Where the bytes are that are lost or in doubt: in tensors, or in what leads to them -------------------------------


def flawed_only_in(data: Data, start: int, end: int, places: Iterable[tuple[int, int]]) -> bool:
    """Return whether all bytes in ``[start, end)`` that are lost or in doubt lie in one of ``places``, ``(start, end)``
    each: then nothing else can be missing."""
    if data.loose_gap(start) is not None or isinstance(data.error, EndOfDataError):
        return False
    known = Stretches(places)
    gaps = ((gap.offset, gap.end or end) for gap in data.gaps if gap.offset < end and (gap.end or end) > start)
    return all(known.covers(low, high) for low, high in (*data.suspect_ranges_in(start, end), *gaps))


# -- Tensors in holes of a file: bytes that were never written, as of a download into a preallocated file --------------


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


# -- `Remark`: what stands in a model's metadata for a value that is too long to be shown there, or cannot be read -----


class Remark(str):
    """A text about a value, not the value: it is shown, and never written as if the source said it."""

    __slots__ = ()


# -- Where the tensors of a file lie in its data, and which of them contradict each other, as two that share bytes do --

# Some formats require them one after the other, without gaps, from the start of the data to the end of the file.

# Kinds of conflicts between tensors.
SHARED: Final = 1
NAMESAKE: Final = 2
CONFLICTS: Final = {SHARED: "it shares bytes with another tensor", NAMESAKE: "its name occurs more than once"}

_MAX_BREAKS: Final = 1000
_NUMPY_FROM: Final = 50_000
_AT_ONCE: Final = 4096
_COST: Final = 24  # bytes for each tensor out of order, sorting included


class Places:
    """The ranges of the tensors, counted from the start of the data. Tensors that come in order take no memory."""

    def __init__(self, budget: MemoryBudget, *, keep: bool = False) -> None:
        self.again = False
        """Whether only places with ``keep`` can tell, as an empty tensor came out of order."""
        self.is_in_order = not keep
        """Whether each tensor so far began where the one before ended: only the end is remembered."""
        self.known = True
        """Whether the place of every tensor is known."""
        self.end = 0
        """Where the tensors end."""
        self.breaks: list[tuple[int, int]] = []
        """After `close`, in order: where one tensor ended, and the next began elsewhere; of two that share bytes, where
        these end and begin."""
        self.overlaps = False
        """Whether tensors share bytes."""
        self._begins, self._ends = array("Q"), array("Q")
        self._charge = budget.charge(0, "the places of tensors")

    def add(self, begin: int, end: int) -> None:
        """Add the range of a tensor."""
        if begin == self.end and self.is_in_order:
            self.end = end
            return
        if begin == end and begin < self.end:
            self.again = True
            return
        self.is_in_order = False
        self._begins.append(begin)
        self._ends.append(end)
        if not len(self._begins) & 0xFFF:
            self._charge.resize(_COST * len(self._begins))

    def close(self) -> None:
        """Find the breaks, and drop the ranges."""
        begins, ends = self._begins, self._ends
        for at in in_order(begins, ends):
            begin = begins[at]
            if begin != self.end:
                self.overlaps = self.overlaps or (begin < self.end and begin < ends[at])
                if len(self.breaks) < _MAX_BREAKS:
                    shared = begin < min(self.end, ends[at])
                    self.breaks.append((min(self.end, ends[at]) if shared else self.end, begin))
            self.end = max(self.end, ends[at])
        self._begins, self._ends = array("Q"), array("Q")
        self._charge.release()


def in_order(begins: array[int], ends: array[int]) -> Iterable[int]:
    """Return the numbers of ranges, ordered by begin, then end."""
    order: Any = range(len(begins))
    if all(begins[at] >= ends[at - 1] for at in range(1, len(begins))):
        return order  # type: ignore[no-any-return]
    if len(begins) > _NUMPY_FROM:
        import numpy as np

        found = np.lexsort((np.frombuffer(ends, np.uint64), np.frombuffer(begins, np.uint64)))
        return (at for first in range(0, len(found), _AT_ONCE) for at in found[first : first + _AT_ONCE].tolist())
    return sorted(order, key=lambda at: (begins[at], ends[at]))


def sharers(budget: MemoryBudget, ranges: Iterable[tuple[int, int, int]]) -> list[int]:
    """Return the numbers of the tensors that share bytes with another, given ``(number, begin, end)`` of each."""
    numbers, begins, ends = array("q"), array("Q"), array("Q")
    with budget.charge(0, "the places of tensors") as charge:
        for number, begin, stop in ranges:
            numbers.append(number)
            begins.append(begin)
            ends.append(stop)
            if not len(numbers) & 0xFFF:
                charge.resize(2 * _COST * len(numbers))
        found: list[int] = []
        last, end = -1, 0  # the range with the largest end so far
        for at in in_order(begins, ends):
            if begins[at] >= ends[at]:
                continue
            if begins[at] < end:
                found.extend((numbers[last], numbers[at]))
            if ends[at] > end:
                last, end = at, ends[at]
        return found


def mark(flags: bytearray, ordinals: Iterable[int], what: int) -> None:
    """Set the flags of ``ordinals`` to ``what``."""
    for ordinal in ordinals:
        if ordinal >= len(flags):
            flags.extend(bytes(ordinal + 1 - len(flags)))
        flags[ordinal] = what
