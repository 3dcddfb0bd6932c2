"""Remembers the headers found in a damaged file, so that no part of it is searched or hashed twice.

Damage is met many times: by each reader of a file, and at every block by a reader that goes backwards. The headers
between two offsets are the same each time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from pparse.locking import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    # Searches ``[at, until)``: returns how far it got, and the places, ascending; None for the places at a gap.
    Look = Callable[[int, int], tuple[int, list[int] | None]]

# Places and ranges that are remembered; beyond that, everything is forgotten and searched again.
_PLACES: Final = 1 << 16
_STRETCHES: Final = 1 << 12
# Grids on which headers are remembered.
_GRIDS: Final = 8
_FIRST_WINDOW: Final = 4 << 10
_WINDOW: Final = 1 << 20


class Places:
    """Places where something was found in a file, and the ranges that were searched for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._begins = array("Q")  # of the ranges, ascending and disjoint
        self._ends = array("Q")
        self._places = array("Q")  # in those ranges, ascending

    def find(self, start: int, stop: int, look: Look) -> Iterator[int]:
        """Yield all places in ``[start, stop)``, ascending; ``look`` is called for ranges not searched before."""
        at, window = start, _FIRST_WINDOW
        while at < stop:
            known, until = self._known(at, stop)
            if known is not None:
                yield from known
                at = until
                continue
            after, found = look(at, min(until, at + window))
            if after <= at:
                return
            if found is not None:
                self._note(at, after, found)
                yield from found
            at, window = after, min(window * 4, _WINDOW)

    def _known(self, at: int, stop: int) -> tuple[array[int] | None, int]:
        """Return the known places from ``at`` on and where knowledge ends; or None, and where knowledge begins."""
        with self._lock:
            nth = bisect_right(self._begins, at)
            if not nth or self._ends[nth - 1] <= at:
                return None, min(stop, self._begins[nth]) if nth < len(self._begins) else stop
            until = min(stop, self._ends[nth - 1])
            places = self._places
            return places[bisect_left(places, at) : bisect_left(places, until)], until

    def _note(self, start: int, stop: int, found: list[int]) -> None:
        with self._lock:
            if len(self._places) + len(found) > _PLACES or len(self._begins) >= _STRETCHES:
                self._begins, self._ends, self._places = array("Q"), array("Q"), array("Q")
            begins, ends, places = self._begins, self._ends, self._places
            first, last = bisect_left(ends, start), bisect_right(begins, stop)  # ranges that it touches are merged
            low, high = bisect_left(places, start), bisect_left(places, stop)
            places[low:high] = array("Q", found)
            if first < last:
                start, stop = min(start, begins[first]), max(stop, ends[last - 1])
            begins[first:last] = array("Q", [start])
            ends[first:last] = array("Q", [stop])


class Sightings:
    """What searches of one file have found. Readers of the same bytes may share one."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget everything: the file has grown."""
        self.blocks = Places()
        """Sound block headers, at any offset."""
        self._chunks: dict[int, Places] = {}
        self._agrees: dict[tuple[int, int], bool] = {}

    def chunks(self, shift: int) -> Places:
        """Return the places of sound chunk headers on the grid with ``shift``."""
        if shift not in self._chunks and len(self._chunks) >= _GRIDS:
            self._chunks.clear()
        return self._chunks.setdefault(shift, Places())

    def agrees(self, begin: int, shift: int) -> bool | None:
        """Return whether the hash of the data of the chunk at ``begin`` agrees; None if it was not compared yet."""
        return self._agrees.get((begin, shift))

    def note_data(self, begin: int, shift: int, agrees: bool) -> None:
        """Note that the hash of a chunk's data agrees, or does not."""
        if len(self._agrees) >= _PLACES:
            self._agrees.clear()
        self._agrees[begin, shift] = agrees
