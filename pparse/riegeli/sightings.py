"""Where headers stand in a damaged file: what a search has seen is neither read nor hashed again.

Damage is met many times: by each reader of a file, and by one that goes backwards at every block. What there is to be
found between the same places is the same each time.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    # Looks in ``[at, until)``: returns up to where it could, and the places, ascending; None for them at a gap.
    Look = Callable[[int, int], tuple[int, list[int] | None]]

# Places and stretches that are remembered; beyond that everything is forgotten, and found again.
_PLACES: Final = 1 << 16
_STRETCHES: Final = 1 << 12
# Grids on which headers are remembered.
_GRIDS: Final = 8
_FIRST_WINDOW: Final = 4 << 10
_WINDOW: Final = 1 << 20


class Places:
    """Places where something stands in a file, and the stretches in which it was looked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begins = array("Q")  # of the stretches, ascending and apart from each other
        self._ends = array("Q")
        self._places = array("Q")  # in those stretches, ascending

    def find(self, start: int, stop: int, look: Look) -> Iterator[int]:
        """Yield all places in ``[start, stop)``, ascending; ``look`` is asked where nobody looked before."""
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
        """Return the places from ``at`` on and up to where they are known; None, and up to where they are not."""
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
            first, last = bisect_left(ends, start), bisect_right(begins, stop)  # those that it touches become one
            low, high = bisect_left(places, start), bisect_left(places, stop)
            places[low:high] = array("Q", found)
            if first < last:
                start, stop = min(start, begins[first]), max(stop, ends[last - 1])
            begins[first:last] = array("Q", [start])
            ends[first:last] = array("Q", [stop])


class Sightings:
    """What searches of one file have seen: ``blocks``, sound block headers at any offset, and what is asked for below.

    Readers of the same bytes may share one.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget everything: the file has grown."""
        self.blocks = Places()
        self._chunks: dict[int, Places] = {}
        self._agrees: dict[tuple[int, int], bool] = {}

    def chunks(self, shift: int) -> Places:
        """Return where sound chunk headers stand, on the grid that is moved by ``shift``."""
        if shift not in self._chunks and len(self._chunks) >= _GRIDS:
            self._chunks.clear()
        return self._chunks.setdefault(shift, Places())

    def agrees(self, begin: int, shift: int) -> bool | None:
        """Say whether the hash of the data of the chunk at ``begin`` was found to agree; None if nobody looked."""
        return self._agrees.get((begin, shift))

    def note_data(self, begin: int, shift: int, agrees: bool) -> None:
        """Note that the hash of a chunk's data agrees, or does not."""
        if len(self._agrees) >= _PLACES:
            self._agrees.clear()
        self._agrees[begin, shift] = agrees
