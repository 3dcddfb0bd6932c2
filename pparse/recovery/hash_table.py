"""A set of 64-bit hashes, 8 bytes each: the names that are taken, even if there are millions."""

from __future__ import annotations

from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.budget import MemoryBudget

_FREE: Final = 0
_REMOVED: Final = 1  # a search continues after it
_FIRST_SLOTS: Final = 1 << 10


class HashTable:
    """Integers below 2^64, in an array that is at most two thirds full (open addressing, linear probing).

    Its memory is charged to ``budget``. 0 and 1 are not distinguished from 2 and 3, which is harmless for hashes.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._charge = budget.charge(8 * _FIRST_SLOTS, "the table of names")
        self._slots = _empty(_FIRST_SLOTS)
        self._used = 0  # slots that are not free, the removed ones included

    def __contains__(self, key: int) -> bool:
        return self._slots[self._find(self._slots, key)] != _FREE

    def add(self, key: int) -> None:
        """Add ``key``. Raise `LimitError` if the table must grow beyond the memory budget."""
        if 3 * self._used >= 2 * len(self._slots):
            self._grow()
        at = self._find(self._slots, key)
        if self._slots[at] == _FREE:
            self._slots[at] = _legal(key)
            self._used += 1

    def discard(self, key: int) -> None:
        """Remove ``key``, if it is there."""
        at = self._find(self._slots, key)
        if self._slots[at] != _FREE:
            self._slots[at] = _REMOVED

    def close(self) -> None:
        """Release the memory."""
        self._slots = _empty(1)
        self._charge.release()

    @staticmethod
    def _find(slots: array[int], key: int) -> int:
        """Return the slot of ``key``, or the free one at which the search for it ended."""
        key = _legal(key)
        mask = len(slots) - 1
        at = key & mask
        while slots[at] not in (_FREE, key):
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        size = 2 * len(self._slots)
        self._charge.resize(8 * (size + len(self._slots)))
        grown = _empty(size)
        self._used = 0
        for key in self._slots:
            if key > _REMOVED:
                grown[self._find(grown, key)] = key
                self._used += 1
        self._slots = grown
        self._charge.resize(8 * size)


def _legal(key: int) -> int:
    return key if key > _REMOVED else key + 2


def _empty(slots: int) -> array[int]:
    return array("Q", bytes(8 * slots))
