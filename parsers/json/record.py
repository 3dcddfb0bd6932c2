"""What is known about containers of damaged JSON text: their children, and where numbers of elements are uncertain."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from pparse.findings import UNSURE_NUMBER, Finding
from pparse.limits import count_words
from pparse.tree.index import IndexNote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from typing import Final

# The reason for a container that is sound itself, but holds something damaged.
BELOW: Final = "something inside it is damaged"


class Mended(IndexNote):
    """The children of a damaged container."""

    __slots__ = ("bad", "end", "ends", "finding", "starts")

    def __init__(self, starts: array[int], ends: array[int], bad: dict[int, str], end: int, finding: Finding) -> None:
        self.starts = starts
        """Where each child begins."""
        self.ends = ends
        """Where each child ends."""
        self.bad = bad
        """The damaged children: number to reason."""
        self.end = end
        """Where the container ends."""
        self.finding = finding
        """The first thing that was wrong."""

    def end_of_run(self, first: int, size: int) -> int:
        """Return before which child those from ``first`` on end that are not damaged, and ``size`` bytes at most."""
        stop = bisect_right(self.ends, self.starts[first] + size, first)
        return next((at for at in range(first, stop) if at in self.bad), stop)

    @property
    def memory(self) -> int:
        """Approximate number of bytes held."""
        return 16 * len(self.starts) + 100 * len(self.bad)


class Unsure:
    """A stretch of an array in which the numbers of elements are uncertain, since elements may be lost before it."""

    __slots__ = ("array", "end", "lost", "size", "start")

    def __init__(self, array: int, lost: int, start: int, end: int) -> None:
        self.array = array
        """Where the array begins."""
        self.lost = lost
        """Where elements may be lost."""
        self.size = max(1, start - lost)
        """How many bytes are lost there."""
        self.start = start
        """Where the stretch begins."""
        self.end = end
        """Where the stretch ends."""

    @property
    def reason(self) -> str:
        """Why the number of a value in the stretch is uncertain."""
        lost = f"{count_words(self.size, 'byte')} at {self.lost}"
        return f"elements may be lost before it, in {lost}: its number is uncertain"

    def finding(self, source: str) -> Finding:
        """Return the finding for the array."""
        reason = f"elements of a list may be lost here: the numbers of elements up to byte {self.end} are uncertain"
        return Finding(UNSURE_NUMBER, reason, source=source, offset=self.lost, length=self.size)


def outermost(stretches: list[Unsure], lasts: list[int]) -> list[Unsure]:
    """Return the stretches in order, without those inside of another one and those that hold nothing.

    ``lasts``, in order: where the last children of all damaged containers begin.
    """
    found: list[Unsure] = []
    for stretch in sorted(stretches, key=lambda one: (one.start, -one.end)):
        place = bisect_left(lasts, stretch.start)
        if place < len(lasts) and lasts[place] < stretch.end and (not found or stretch.end > found[-1].end):
            found.append(stretch)
    return found
