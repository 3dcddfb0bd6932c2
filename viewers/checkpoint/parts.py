"""Tensors in parts (partitioned variables): where each part belongs, and the bytes of the whole.

A part is a box of the tensor: start and length in each dimension. Reading goes through the rows of the box that is
read: neighbouring bytes of one part are read together.
"""

from __future__ import annotations

from math import prod

from pparse.data.base import Data
from pparse.data.identity import derived
from pparse.errors import EndOfDataError, MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pparse.data.reader import Range


class Part:
    """One part: its box, and its bytes."""

    __slots__ = ("content", "lengths", "starts")

    def __init__(self, starts: tuple[int, ...], lengths: tuple[int, ...], content: Range) -> None:
        self.starts = starts
        self.lengths = lengths
        self.content = content


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


def covers(shape: Sequence[int], boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    """Return whether boxes that fit into a shape cover it, and do not overlap, as far as their sizes tell."""
    return sum(prod(lengths) for _, lengths in boxes) == prod(shape) and not _overlap(boxes)


def _overlap(boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    """Return whether two boxes share an element, going along the first dimension."""
    ordered = sorted((starts, lengths) for starts, lengths in boxes if prod(lengths))
    open_boxes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for starts, lengths in ordered:
        open_boxes = [box for box in open_boxes if not starts or box[0][0] + box[1][0] > starts[0]]
        for other, sizes in open_boxes:
            if all(a < b + n and b < a + m for a, m, b, n in zip(starts, lengths, other, sizes, strict=True)):
                return True
        open_boxes.append((starts, lengths))
    return False


class PartsData(Data):
    """The bytes of a tensor of ``shape`` with elements of ``itemsize`` bytes, made of ``parts``, which cover it."""

    def __init__(self, name: str, shape: tuple[int, ...], itemsize: int, parts: list[Part]) -> None:
        super().__init__(name, prod(shape) * itemsize)
        self._shape = shape
        self._itemsize = itemsize
        self._parts = parts

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """Those of its parts."""
        boxes = tuple((part.starts, part.lengths) for part in self._parts)
        return derived("parts", [part.content for part in self._parts], self._shape, self._itemsize, boxes)

    @property
    def flawed(self) -> bool:
        """Whether anything is known to be wrong with the sources; never reads."""
        return any(part.content.data.flawed for part in self._parts)

    def why_suspect(self, start: int, end: int) -> str | None:
        """Return why a part may be wrong: then all of the tensor is."""
        for part in self._parts:
            reason = part.content.data.why_suspect(part.content.start, part.content.end)
            if reason is not None:
                return reason
        return None

    @property
    def has_proofs(self) -> bool:
        """Whether checksums confirmed any bytes of the sources; never reads."""
        return any(part.content.data.has_proofs for part in self._parts)

    def is_proved(self, start: int, end: int) -> bool:
        """Return whether checksums confirmed every part."""
        return all(part.content.data.is_proved(part.content.start, part.content.end or 0) for part in self._parts)

    def check_unchanged(self) -> None:
        """Check the sources."""
        for part in self._parts:
            part.content.data.check_unchanged()

    def _pread(self, offset: int, length: int) -> bytes:
        found = bytearray(length)
        self._preadinto(offset, memoryview(found))
        return bytes(found)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        end = offset + len(view)
        for part in self._parts:
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
