"""Remembers what was found out of a file's chunks, for everything that reads the file.

A chunk's bytes can be read in many ways: record by record, decoded or not, with hashes checked or without. The result
of comparing the hash is the same. So all readers of one document share one `Verdicts`: a chunk whose hash was found
wrong by any of them is wrong for the others, and for bytes that were returned before (`ChunkData.why_suspect`).

Damage is met many times, too: by each reader of a file, and at every block by a reader that goes backwards. The headers
between two offsets are the same each time. `Sightings` remember them, so that no part is searched or hashed twice.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from pparse.data.range_status import Ledger, Stretches
from pparse.errors import OptionError
from pparse.locking import Lock
from pparse.riegeli.errors import HashMismatchError, InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Final

    # Searches ``[at, until)``: returns how far it got, and the places, ascending; None for the places at a gap.
    Look = Callable[[int, int], tuple[int, list[int] | None]]

VERIFY: Final = ("headers", "touched", "all")
"""Which hashes of data are compared before their records are returned: none, those of small chunks, all."""


def verify_of(options: Mapping[str, object]) -> str:
    """Return the option ``verify`` of a document, one of `VERIFY`. Raises `OptionError`."""
    verify = str(options.get("verify", "touched"))
    if verify not in VERIFY:
        raise OptionError(f"the option verify must be one of {', '.join(VERIFY)}, not {verify!r}")
    return verify


# With "touched", the hash of a chunk of at most this many bytes is checked when one of its records is looked up.
TOUCHED: Final = 4 << 20
# Places and ranges that are remembered; beyond that, everything is forgotten and searched again.
_PLACES: Final = 1 << 16
_STRETCHES: Final = 1 << 12
# Grids on which headers are remembered.
_GRIDS: Final = 8
_FIRST_WINDOW: Final = 4 << 10
_WINDOW: Final = 1 << 20


class Verdicts:
    """Which chunks have a right hash and which have not, by offset. Wrong ones are never forgotten."""

    def __init__(self) -> None:
        self._ledger = Ledger()  # a chunk counts as the one byte at its offset
        self.listeners: list[Callable[[int], object]] = []
        """Functions that are called with the offset of each chunk found wrong."""
        self.sightings = Sightings()
        """Headers that searches of the file have found."""

    @property
    def version(self) -> int:
        """Number of chunks found wrong. It changes with each."""
        return len(self._ledger)

    def error(self, begin: int) -> InvalidArgumentError | None:
        """Return the known error in the data of the chunk at ``begin``; None if there is none."""
        reason = self._ledger.why_wrong(begin, begin + 1) if self._ledger else None
        return None if reason is None else HashMismatchError(reason, offset=begin)

    def is_sound(self, begin: int) -> bool:
        """Say whether the hash of the chunk's data was compared, and agreed."""
        return self._ledger.proved.covers(begin, begin + 1)

    def note_sound(self, begin: int) -> None:
        """Record that the hash of the chunk at ``begin`` agrees."""
        self._ledger.vouch(begin, begin + 1)

    def condemn(self, begin: int, error: InvalidArgumentError) -> None:
        """Record that the hash of the chunk at ``begin`` does not match its data."""
        if self.error(begin) is None:
            self._ledger.condemn(begin, begin + 1, error.reason)
            for listener in self.listeners:
                listener(begin)


class SightedPlaces:
    """Places where something was found in a file, and the ranges that were searched for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._searched = Stretches()  # here: ranges that were searched
        self._places = array("Q")  # in what was searched, ascending

    def find(self, start: int, stop: int, look: Look) -> Iterator[int]:
        """Yield all places in ``[start, stop)``, ascending; ``look`` is called for ranges not searched before."""
        at, window = start, _FIRST_WINDOW
        while at < stop:
            until = min(stop, at + _WINDOW)
            with self._lock:
                unknown, until = next(iter(self._searched.without(at, until)), (until, until))
                known = self._places[bisect_left(self._places, at) : bisect_left(self._places, unknown)]
            if unknown > at:
                yield from known
                at = unknown
                continue
            after, found = look(at, min(until, at + window))
            if after <= at:
                return
            if found is not None:
                self._note(at, after, found)
                yield from found
            at, window = after, min(window * 4, _WINDOW)

    def _note(self, start: int, stop: int, found: list[int]) -> None:
        with self._lock:
            if len(self._places) + len(found) > _PLACES or len(self._searched) >= _STRETCHES:
                self._forget()
            places = self._places
            places[bisect_left(places, start) : bisect_left(places, stop)] = array("Q", found)
            self._searched.add(start, stop)


class Sightings:
    """What searches of one file have found. Readers of the same bytes may share one."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget everything: the file has grown."""
        self.blocks = SightedPlaces()
        """Sound block headers, at any offset."""
        self._chunks: dict[int, SightedPlaces] = {}
        self._agrees: dict[tuple[int, int], bool] = {}

    def chunks(self, shift: int) -> SightedPlaces:
        """Return the places of sound chunk headers on the grid with ``shift``."""
        if shift not in self._chunks and len(self._chunks) >= _GRIDS:
            self._chunks.clear()
        return self._chunks.setdefault(shift, SightedPlaces())

    def agrees(self, begin: int, shift: int) -> bool | None:
        """Return whether the hash of the data of the chunk at ``begin`` agrees; None if it was not compared yet."""
        return self._agrees.get((begin, shift))

    def note_data(self, begin: int, shift: int, agrees: bool) -> None:
        """Note that the hash of a chunk's data agrees, or does not."""
        if len(self._agrees) >= _PLACES:
            self._agrees.clear()
        self._agrees[begin, shift] = agrees
