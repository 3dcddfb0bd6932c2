"""Where arrays stand between the opcodes of a pickle, and which opcodes belong to them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from pparse.data.trailing_bytes import LAST_BEFORE_BREAK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final, Protocol

    from pparse.data.base import Data
    from pparse.tree.host import Session

    class Knower(Protocol):
        """Knows where opcodes go on behind such an array."""

        def named(self, pos: int) -> int:
            """Take note of the global that ends at ``pos``; return where opcodes go on."""

        def behind(self, pos: int) -> int | None:
            """Return where opcodes go on behind the BUILD that ends at ``pos``; None: that is not known."""


# What is known of an array, as bits: it is a pickle; its padding is wrong; it is not aligned from the file's begin on.
_PICKLED, _DOUBTFUL, _SHIFTED = 1, 2, 4
# Bytes that the place of an array takes, and its object in a set; for so many at once.
_PLACE: Final = 128
_STEP: Final = 1024


class RawArray:
    """The place of an array between opcodes."""

    __slots__ = ("begin", "data", "doubt", "end", "is_pickle")

    def __init__(self, data: Data, begin: int, end: int, doubt: tuple[str, str] | None, *, is_pickle: bool) -> None:
        self.data = data
        """What holds the bytes."""
        self.begin = begin
        """Where they begin."""
        self.end = end
        """Where they end, or would."""
        self.doubt = doubt
        """Code and words why the place may be wrong; None: nothing suggests that."""
        self.is_pickle = is_pickle
        """Whether it has objects: a pickle stands there."""


class Arrays:
    """The places of the arrays in one pickle."""

    def __init__(self, session: Session, data: Data, known_end: int) -> None:
        self._session = session
        self._charge = session.budget.charge(0, "the places of arrays")
        self._data = data
        self._known_end = known_end
        self._owners = array("q")
        self._behind = array("q")
        self._begins = array("q")
        self._ends = array("q")
        self._facts = bytearray()
        self._totals = array("q", [0])  # of the bytes of arrays, before each
        self._owned: frozenset[int] | None = None
        self._aligned: set[int] = set()  # the remainders that places leave, two at most
        self._aligned_count = 0
        self.is_last_sure = True
        """Whether opcodes that can be read follow the last one, to an end with nothing behind it."""

    def __len__(self) -> int:
        return len(self._behind)

    def add(self, owner: int, behind: int, begin: int, end: int, *, pickled: bool = False, doubtful: bool) -> None:
        """Note an array: of the object that begins at ``owner``, and whose BUILD ends at ``behind``."""
        self._session.limits.check("entries", len(self) + 1, "the number of arrays", offset=behind)
        if not len(self) % _STEP:
            self._charge.resize(_PLACE * (len(self) + _STEP))
        self._owners.append(owner)
        self._behind.append(behind)
        self._begins.append(begin)
        self._ends.append(end)
        self._facts.append(_PICKLED * pickled | _DOUBTFUL * doubtful)
        self._totals.append(self._totals[-1] + (0 if pickled else end - behind))

    def note_alignment(self, remainder: int) -> None:
        """Note what remains when the place of the array added last is divided by the alignment."""
        if remainder:
            self._facts[-1] |= _SHIFTED
        if len(self._aligned) < 2:
            self._aligned.add(remainder)
        self._aligned_count += 1

    def named(self, pos: int) -> int:
        """Return where opcodes go on behind a global: there."""
        return pos

    def behind(self, pos: int) -> int | None:
        """Return where opcodes go on behind the BUILD that ends at ``pos``."""
        number = self.number_behind(pos)
        return pos if number is None else self._ends[number]

    def number_behind(self, pos: int) -> int | None:
        """Return the number of the array whose BUILD ends at ``pos``; None: there is none."""
        number = bisect_left(self._behind, pos)
        return number if number < len(self) and self._behind[number] == pos else None

    def number_of(self, start: int, end: int) -> int | None:
        """Return the number of the array that the value ``[start, end)`` is; None: it is none.

        Opcodes that make no value, as those of frames, may stand between its end and ``end``.
        """
        number = bisect_right(self._behind, end) - 1
        is_there = number >= 0 and self._owners[number] == start and min(self._ends[number], self._known_end) <= end
        return number if is_there else None

    def owns(self, start: int) -> bool:
        """Whether the object that begins at ``start`` has an array."""
        if self._owned is None or len(self._owned) < len(self):
            self._owned = frozenset(self._owners)
        return start in self._owned

    def end_of_maker(self, number: int) -> int:
        """Return where the opcodes end that describe an array."""
        return self._behind[number]

    def bytes_in(self, start: int, end: int) -> int:
        """Return how many bytes of arrays stand in ``[start, end)``, besides those of objects."""
        first, last = bisect_left(self._behind, start), bisect_right(self._ends, end)
        found = self._totals[last] - self._totals[first] if last > first else 0
        if first <= last < len(self) and self._behind[last] < end and not self._facts[last] & _PICKLED:
            found += end - self._behind[last]  # it is cut
        return found

    def stretches(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches of opcodes in ``[start, end)``."""
        found = []
        number = bisect_left(self._behind, start)
        while number < len(self) and self._behind[number] < end:
            found.append((start, self._behind[number]))
            start = self._ends[number]
            number += 1
        if start < end:
            found.append((start, end))
        return found

    def array(self, number: int) -> RawArray:
        """Return the place of an array."""
        begin, end = self._begins[number], self._ends[number]
        return RawArray(self._data, begin, end, self._doubt(number), is_pickle=self.is_pickle(number))

    def is_pickle(self, number: int) -> bool:
        """Whether an array is a pickle of objects."""
        return bool(self._facts[number] & _PICKLED)

    def _doubt(self, number: int) -> tuple[str, str] | None:
        facts = self._facts[number]
        if facts & _DOUBTFUL:
            return "bad-padding", "the padding before its bytes is not as joblib writes it"
        if facts & _SHIFTED and (len(self._aligned) > 1 or self._aligned_count < 2):
            return "bad-padding", "its bytes are not aligned as those of joblib are"
        if not self.is_last_sure and number == len(self) - 1:
            return "shifted", LAST_BEFORE_BREAK
        return None

    def pickles(self) -> Iterator[int]:
        """Yield where the pickles of arrays of objects begin."""
        for number, facts in enumerate(self._facts):
            if facts & _PICKLED:
                yield self._begins[number]

    def pickle_around(self, pos: int) -> int | None:
        """Return where the pickle of an array of objects begins that ``pos`` is in; None: it is in none."""
        number = bisect_right(self._begins, pos) - 1
        inside = number >= 0 and self.is_pickle(number) and pos < self._ends[number]
        return self._begins[number] if inside else None

    @property
    def last_end(self) -> int:
        """Where the last one ends, or would; 0: there is none."""
        return self._ends[-1] if self._ends else 0

    def next_from(self, pos: int) -> int | None:
        """Return where the opcodes end from ``pos`` on, before the next array; None: there is none."""
        number = bisect_left(self._behind, pos)
        return self._behind[number] if number < len(self) else None
