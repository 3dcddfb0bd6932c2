"""Tensors in parts (partitioned variables): where each part belongs, and the bytes of the whole.

A part is a box of the tensor: start and length in each dimension. Reading goes through the rows of the box that is
read: neighbouring bytes of one part are read together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from math import prod
from os import urandom

from pparse.data.spliced import DerivedData
from pparse.errors import EndOfDataError, LimitError, MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Final

    from pparse.budget import MemoryBudget
    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.viewers.checkpoint.entry import BundleEntry

_PRIME: Final = (1 << 127) - 1
# Memory of a part of a tensor while it is put together, and more for each of its dimensions.
_PART_BYTES: Final = 1_500
_DIM_BYTES: Final = 400


class Part:
    """One part: its box, and its bytes."""

    __slots__ = ("content", "lengths", "starts", "there")

    def __init__(
        self, starts: tuple[int, ...], lengths: tuple[int, ...], content: Range, there: int | None = None
    ) -> None:
        self.starts = starts
        self.lengths = lengths
        self.content = content
        self.there = (content.end or 0) - content.start if there is None else there
        """How many of its bytes exist."""


def refusal(entry: BundleEntry, budget: MemoryBudget) -> str | None:
    """Return why a tensor is not put together, as its parts would take more memory than there is; None if it is.

    They are not charged afterwards: they belong to the tensor, which is its owner's.
    """
    try:
        budget.charge(
            entry.part_count * (_PART_BYTES + _DIM_BYTES * len(entry.shape)), "the list of its parts"
        ).release()
    except LimitError as error:
        return error.reason
    return None


def box_of(shape: Sequence[int], extents: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return starts and lengths of a part in a tensor of that shape. Raises `MalformedError` if it does not fit."""
    if len(extents) != len(shape):
        raise MalformedError(f"a part of the tensor has {len(extents)} dimensions, the tensor {len(shape)}")
    starts, lengths = [], []
    for size, (start, length) in zip(shape, extents, strict=True):
        length = size - start if length < 0 else length
        if start < 0 or length < 0 or start > size - length:
            raise MalformedError(f"a part of the tensor reaches from {start} to {start + length} of {size}")
        starts.append(start)
        lengths.append(length)
    return tuple(starts), tuple(lengths)


def covers(shape: Sequence[int], boxes: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    """Return whether boxes that fit into a shape cover it, and no two of them overlap.

    Told in one pass, of any number of boxes and dimensions. Each place in each dimension gets a random number modulo a
    prime; a box counts as the product, over the dimensions, of the number of its end minus that of its start. As
    polynomials in these numbers, boxes add up to the whole just if they have each element once. Others do so by chance,
    with a probability of 2**-120, which no file can raise: the numbers are other ones each time.
    """
    numbers: list[dict[int, int]] = [{} for _ in shape]

    def product_of(starts: Sequence[int], lengths: Sequence[int]) -> int:
        found = 1
        for known, start, length in zip(numbers, starts, lengths, strict=True):
            found = found * (_number_of(known, start + length) - _number_of(known, start)) % _PRIME
        return found

    whole = product_of([0] * len(shape), shape)
    return sum(product_of(starts, lengths) for starts, lengths in boxes) % _PRIME == whole


def _number_of(known: dict[int, int], place: int) -> int:
    """Return the random number of a place in one dimension."""
    found = known.get(place)
    if found is None:
        found = known[place] = int.from_bytes(urandom(16)) % _PRIME
    return found


def rows_before_cut(shape: Sequence[int], parts: Sequence[Part]) -> int:
    """Return how many bytes of the tensor exist, from the first on, if parts are cut or missing.

    0 unless each part has whole rows: then what is there of one is not what begins the array.
    """
    if any(part.lengths[1:] != tuple(shape[1:]) for part in parts):
        return 0
    there = row = 0
    for part in sorted(parts, key=lambda part: part.starts[:1]):
        if part.starts[:1] != (row,):
            break  # one before it is not there
        there += part.there
        row += part.lengths[0]
        if part.there < (part.content.end or 0) - part.content.start:
            break
    return there


class PartsData(DerivedData):
    """The bytes of a tensor of ``shape`` with elements of ``itemsize`` bytes, made of ``parts``, which cover it."""

    copies = False

    def __init__(
        self, name: str, shape: tuple[int, ...], itemsize: int, parts: list[Part], there: int | None = None
    ) -> None:
        """``there``: how many bytes exist, from the first on (see `rows_before_cut`); None: all."""
        super().__init__(name, prod(shape) * itemsize if there is None else there)
        self._shape = shape
        self._itemsize = itemsize
        # In the order in which they begin in the tensor; of each and those before, the furthest end.
        self._parts = sorted(parts, key=self._begin)
        self._begins = [self._begin(part) for part in self._parts]
        self._ends = list(accumulate(map(self._end, self._parts), max))
        self.sources = list({id(part.content.data): part.content.data for part in parts}.values())

    def _offset(self, places: Iterable[int]) -> int:
        """Return the offset of an element."""
        found = 0
        for size, place in zip(self._shape, places, strict=True):
            found = found * size + place
        return found * self._itemsize

    def _begin(self, part: Part) -> int:
        return self._offset(part.starts)

    def _end(self, part: Part) -> int:
        last = (start + length - 1 for start, length in zip(part.starts, part.lengths, strict=True))
        return self._offset(last) + self._itemsize

    def pieces(self, start: int, end: int) -> Iterator[tuple[Data, int, int]]:
        """Yield all parts: if one may be wrong, all of the tensor may."""
        for part in self._parts:
            if len(part.content):
                yield part.content.data, part.content.start, part.content.start + len(part.content)

    def _how(self) -> tuple[object, ...]:
        return self._shape, self._itemsize, tuple((part.starts, part.lengths) for part in self._parts)

    def _pread(self, offset: int, length: int) -> bytes:
        found = bytearray(length)
        self._preadinto(offset, memoryview(found))
        return bytes(found)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        end = offset + len(view)
        for part in self._parts[bisect_right(self._ends, offset) : bisect_left(self._begins, end)]:
            for at, start, length in self._runs(part, offset, end):
                skip, stop = max(0, offset - at), min(length, end - at)
                if skip >= stop:
                    continue
                content = part.content
                got = content.data.preadinto(
                    content.start + start + skip, view[at + skip - offset : at + stop - offset]
                )
                if got < stop - skip:
                    raise EndOfDataError("a part of the tensor ends early", wanted=stop - skip, got=got)
        return len(view)

    def _runs(self, part: Part, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """Yield each run of a part in ``[low, high)``: where it begins in the tensor and in the part, and its bytes."""
        shape, lengths = self._shape, part.lengths
        inner = len(shape)
        while inner and lengths[inner - 1] == shape[inner - 1]:
            inner -= 1
        rank = max(0, inner - 1)  # the dimensions before are gone through one by one
        run = prod(lengths[rank:]) * self._itemsize
        strides = [prod(shape[dim + 1 :]) * self._itemsize for dim in range(len(shape))]
        base = sum(start * stride for start, stride in zip(part.starts, strides, strict=True))
        if not run:
            return
        count = prod(lengths[:rank])
        first = 0
        if rank and low > base:  # rows before are not looked at: those of the first dimension are in order
            first = min(count, max(0, (low - base) // strides[0] - 1) * prod(lengths[1:rank]))
        for number in range(first, count):
            at, rest = base, number
            for dim in range(rank - 1, -1, -1):
                rest, place = divmod(rest, lengths[dim])
                at += place * strides[dim]
            if at >= high:
                return
            if at + run > low:
                yield at, number * run, run
