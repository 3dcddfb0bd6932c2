"""What was found out about stretches of bytes: which are wrong, with the reason, and which a checksum confirmed.

The one store of such evidence. Precedence, too, is decided here: of two checksums that disagree, that of fewer bytes
counts. A damaged file may have been compressed, and a part of a damaged stream may be whole.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from pparse.data.stretches import Stretches
from pparse.locking import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

# Reasons that are kept in full; those of further stretches are told in general words.
_REASONS: Final = 1_000
_OTHER: Final = "a checksum contradicts it"


class Ledger:
    """Evidence about the bytes of one source. Takes 28 bytes for a wrong stretch, 16 for a proved one. Thread-safe."""

    __slots__ = ("_ends", "_lock", "_numbers", "_reach", "_reasons", "_starts", "_words", "proved")

    def __init__(self) -> None:
        self.proved = Stretches()
        """What a checksum confirmed, and none of fewer bytes contradicts."""
        self._lock = Lock()
        # The wrong stretches, ordered by start; they may overlap.
        self._starts = array("q")
        self._ends = array("q")
        self._reach = array("q")  # the furthest end of this one and all before it
        self._reasons = array("H")  # their places in ``_words``
        self._words = [_OTHER]
        self._numbers = {_OTHER: 0}

    def __len__(self) -> int:
        """Return how many stretches are wrong."""
        return len(self._starts)

    def condemn(self, start: int, end: int, reason: str) -> None:
        """Record that ``[start, end)`` is wrong, and why; the first reason stays."""
        if self.proved.covers(start, end):
            self.proved.remove(start, end)
        with self._lock:
            starts, ends, reach = self._starts, self._ends, self._reach
            place = bisect_right(starts, start)
            if place and starts[place - 1] == start and ends[place - 1] == end:
                return
            if reason not in self._numbers and len(self._words) <= _REASONS:
                self._numbers[reason] = len(self._words)
                self._words.append(reason)
            starts.insert(place, start)
            ends.insert(place, end)
            self._reasons.insert(place, self._numbers.get(reason, 0))
            reach.insert(place, max(end, reach[place - 1]) if place else end)
            for later in range(place + 1, len(reach)):
                if reach[later] >= end:
                    break
                reach[later] = end

    def vouch(self, start: int, end: int) -> None:
        """Record that a checksum confirmed ``[start, end)``."""
        self.proved.add(start, end)
        with self._lock:
            first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
            inside = [
                one for one in zip(self._starts[first:last], self._ends[first:last], strict=True) if one[1] <= end
            ]
        for low, high in inside:
            if (low, high) != (start, end):
                self.proved.remove(low, high)

    def why_wrong(self, start: int, end: int) -> str | None:
        """Return why bytes of ``[start, end)`` are wrong; None if nothing says so."""
        with self._lock:
            place = bisect_left(self._starts, end)
            while place and self._reach[place - 1] > start:
                place -= 1
                if self._ends[place] > start:
                    return self._words[self._reasons[place]]
            return None

    def is_wrong_at(self, start: int) -> bool:
        """Return whether a stretch that begins at ``start`` is wrong."""
        with self._lock:
            place = bisect_left(self._starts, start)
            return place < len(self._starts) and self._starts[place] == start

    def wrong(self) -> Iterator[tuple[int, int]]:
        """Return the wrong stretches ``(start, end)``, ordered by start."""
        with self._lock:
            return iter(list(zip(self._starts, self._ends, strict=True)))
