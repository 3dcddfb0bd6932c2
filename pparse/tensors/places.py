"""Where the tensors of a file lie in its data, and which of them contradict each other, as two that share bytes do.

Some formats require them one after the other, without gaps, from the start of the data to the end of the file.
"""

from __future__ import annotations

from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Final

    from pparse.budget import MemoryBudget

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
