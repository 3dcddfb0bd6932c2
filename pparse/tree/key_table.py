"""Finding children by key: sorted 64-bit hashes with ordinals, 12 bytes a child.

A `KeyTable` is made on the second lookup in a map of more than 64 children. It consists of separately sorted slices,
so building it takes little more memory than the result, and it can cover the first children only and grow with the
index. If it does not fit into the budget there is no table, and children are found by reading.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import groupby, islice
from operator import itemgetter

from pparse.errors import LimitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final, TypeVar

    from pparse.budget import MemoryBudget

    T = TypeVar("T")

# Children per slice, and bytes per child while a slice is built; in a table each child takes 12 bytes.
SLICE: Final = 1 << 18
MAKING: Final = 40
EACH: Final = 12
# From this many numbers on, numpy sorts; it is not imported for fewer.
_MANY: Final = 50_000
# How many hashes come into a set before they are sorted, where numpy is in use; bytes of each in the set.
_LATEST: Final = 4096
_IN_SET: Final = 80


def key_hash(key: object) -> int:
    """Return the hash by which keys of children are compared, 64 bits.

    Python's own of an integer is the number, but for two things that files hold: -1 has that of -2, and numbers that
    differ by 2**61 - 1 share one. Of texts it is salted, so that nobody can make keys that share one.
    """
    return hash(str(key)) if type(key) is int else hash(key)


class KeyTable:
    """Ordinals of children by the hash of their key: 12 bytes a child."""

    __slots__ = ("_slices", "covered")

    def __init__(self, hashes: Iterable[int] = ()) -> None:
        self._slices: list[tuple[array[int], array[int]]] = []  # ascending hashes, ordinals; in the order of ordinals
        self.covered = 0
        """How many children it covers, from the first on."""
        self.extend(hashes)

    def extend(self, hashes: Iterable[int]) -> None:
        """Cover the next children, given the hashes of their keys."""
        rest = iter(hashes)
        while chunk := array("q", islice(rest, SLICE)):
            first, self.covered = self.covered, self.covered + len(chunk)
            self._slices.append(_sorted(chunk, array("I", range(first, self.covered))))
            self._merge()

    def _merge(self) -> None:
        """Keep few slices: merge one with the next if it is at most twice as large."""
        slices = self._slices
        while len(slices) > 1:
            (one, ordinals), (other, behind) = slices[-2:]
            if len(one) > 2 * len(other) or len(one) + len(other) > SLICE:
                return
            slices[-2:] = [_sorted(one + other, ordinals + behind)]

    def _equal(self, key: object) -> Iterator[tuple[array[int], int, int]]:
        """Yield, for each slice that has the hash of ``key``, its ordinals, and the first and end of those."""
        wanted = key_hash(key)
        for hashes, ordinals in self._slices:
            low = bisect_left(hashes, wanted)
            if low < len(hashes) and hashes[low] == wanted:
                yield ordinals, low, bisect_right(hashes, wanted, low)

    def candidates(self, key: object) -> Iterator[int]:
        """Yield, in file order, the ordinals of keys with the hash of ``key``, nearly always equal to it."""
        for ordinals, low, high in self._equal(key):
            yield from map(ordinals.__getitem__, range(low, high))

    def nth(self, key: object, occurrence: int) -> int | None:
        """Return the ordinal of the n-th key with the hash of ``key``; None if there are fewer."""
        wanted = key_hash(key)
        for hashes, ordinals in self._slices:  # not by `_equal`: every look-up comes here
            low = bisect_left(hashes, wanted)
            if low < len(hashes) and hashes[low] == wanted:
                high = bisect_right(hashes, wanted, low)
                if low + occurrence <= high:
                    return ordinals[low + occurrence - 1]
                occurrence -= high - low
        return None

    def before(self, key: object, ordinal: int) -> int:
        """Return how many keys with the hash of ``key`` come before ``ordinal``."""
        return sum(bisect_left(ordinals, ordinal, low, high) - low for ordinals, low, high in self._equal(key))

    def repeated(self) -> Iterator[list[int]]:
        """Yield groups of ordinals whose keys share a hash and so may be equal."""
        for _, equal in groupby(self._in_order(), itemgetter(0)):
            group = [ordinal for _, ordinal in equal]
            if len(group) > 1:
                yield group

    def _in_order(self) -> Iterator[tuple[int, int]]:
        pairs = [zip(*one, strict=True) for one in self._slices]
        if len(pairs) == 1:
            return pairs[0]
        from heapq import merge

        return merge(*pairs)

    @property
    def memory(self) -> int:
        """Bytes held."""
        return EACH * self.covered


class SeenKeys:
    """Which keys came so far, by their hashes: 8 bytes a key above 50,000, some 80 below.

    The latest hashes are in a set. When that is full, they go to the end of an array, in ascending order, as one more
    slice of it; numpy searches the slices.
    """

    __slots__ = ("_begins", "_budget", "_charge", "_hashes", "_latest")

    def __init__(self, budget: MemoryBudget) -> None:
        self._latest: set[int] = set()
        self._hashes = array("q")
        self._begins: list[int] = []  # where slices begin; a later one is less than half as long
        self._budget = budget
        self._charge = budget.charge(0, "the names that came so far")

    def are_new(self, hashes: Sequence[int]) -> bool:
        """Return whether ``hashes`` are all different, and none of them came before; if so, they have come now.

        False as well if the budget has no room for them.
        """
        more = set(hashes)
        if len(more) < len(hashes) or not self._latest.isdisjoint(more) or (self._begins and self._have_any(more)):
            return False
        held = 9 * len(self._hashes) + _IN_SET * (len(self._latest) + len(more))  # an array grows by an eighth
        if held > self._charge.amount and not self._find_room(held + (_IN_SET << 10)):
            return False
        self._latest |= more
        if len(self._latest) > (_LATEST if "numpy" in sys.modules else _MANY):
            self._make_slice()
        return True

    def _find_room(self, amount: int) -> bool:
        """Charge ``amount`` if that leaves a quarter of the budget for the blocks in which keys are read."""
        if not self._budget.fits(amount - self._charge.amount + self._budget.limit // 4):
            return False
        try:
            self._charge.resize(amount)
        except LimitError:  # another thread was faster
            return False
        return True

    def release(self) -> None:
        """Give the memory back."""
        self._latest, self._hashes, self._begins = set(), array("q"), []
        self._charge.release()

    def _have_any(self, hashes: set[int]) -> bool:
        import numpy as np

        wanted = np.fromiter(hashes, np.int64, len(hashes))
        wanted.sort()
        held, end = np.frombuffer(self._hashes, np.int64), len(self._hashes)
        for begin in reversed(self._begins):
            places = held[begin:end].searchsorted(wanted)
            places += begin
            places[places == end] = begin
            if (held[places] == wanted).any():
                return True
            end = begin
        return False

    def _make_slice(self) -> None:
        import numpy as np

        begins = self._begins
        begins.append(len(self._hashes))
        self._hashes.extend(self._latest)
        self._latest = set()
        while len(begins) > 1 and begins[-1] - begins[-2] <= 2 * (len(self._hashes) - begins[-1]):
            begins.pop()
        np.frombuffer(self._hashes, np.int64)[begins[-1] :].sort()


def repeated_hashes(hashes: Iterable[int], part: int, parts: int) -> array[int]:
    """Return the repeated numbers that leave remainder ``part`` when divided by ``parts``, in ascending order.

    Takes 16 bytes for each number of that part: 8 to hold it, 8 to sort it.
    """
    mine = array("q", hashes if parts == 1 else (number for number in hashes if number % parts == part))
    if len(mine) > _MANY:
        import numpy as np

        numbers = np.frombuffer(mine, np.int64)
        numbers.sort()  # in place
        return array("q", sorted(set(numbers[1:][numbers[1:] == numbers[:-1]].tolist())))
    seen: set[int] = set()
    return array("q", sorted({number for number in mine if number in seen or seen.add(number)}))  # type: ignore[func-returns-value]


def ranked(numbers: array[int]) -> tuple[array[int], array[int]]:
    """Return ``numbers`` (64 bits) in ascending order, and their former positions; the sort is stable."""
    return _sorted(numbers, array("I", range(len(numbers))))


def _sorted(numbers: array[int], beside: array[int]) -> tuple[array[int], array[int]]:
    """Return both arrays in the order of ``numbers``; the sort is stable."""
    if len(numbers) > _MANY:
        import numpy as np

        order = np.argsort(np.frombuffer(numbers, np.int64), kind="stable")
        return (
            array("q", np.frombuffer(numbers, np.int64)[order].tobytes()),
            array("I", np.frombuffer(beside, np.uint32)[order].tobytes()),
        )
    ranks = sorted(range(len(numbers)), key=numbers.__getitem__)
    return array("q", map(numbers.__getitem__, ranks)), array("I", map(beside.__getitem__, ranks))


# -- Names of things of which several have one key: the second of two keys ``a`` is called ``a#2`` ---------------------

# If there are keys ``a#2``, that one counts as one more of them, behind the last: it is ``a#2#2`` if there is one. So
# no name is given twice, none has to be remembered, and a name tells what it means without a list of all.

# No list is so long that a number in it has more.
_DIGITS: Final = 18


def name_of_repeated(key: str, number: int, nth: Callable[[str, int], object | None]) -> str:
    """Return the name of the ``number``-th of equal keys; ``nth`` finds the n-th with a key, None: there are fewer."""
    name = key if number == 1 else f"{key}#{number}"
    while number > 1 and nth(name, 1) is not None:
        number = 2
        while nth(name, number) is not None:
            number += 1
        name = f"{name}#{number}"
    return name


def name_in(table: Any, node: Any) -> str:
    """Return the name of ``node``, a child of the node ``table``: its key, unless one before it has the same."""
    return name_of_repeated(str(node.key), table.result.occurrence(table, node.ordinal, node.key), table.find)


def meant_by_name(name: str, nth: Callable[[str, int], T | None]) -> T | None:
    """Return what `name_of_repeated` calls ``name``; None if there is no such thing."""
    found = nth(name, 1)
    while found is None:
        base, _, digits = name.rpartition("#")
        if not digits.isascii() or not digits.isdecimal() or digits[0] == "0" or digits == "1" or len(digits) > _DIGITS:
            return None
        number = int(digits)
        found = nth(base, number)
        if found is None and nth(base, number - 1) is None:
            return None
        name = base  # one more than there are keys ``base``: it is not one of them, but was to be called so
    return found
