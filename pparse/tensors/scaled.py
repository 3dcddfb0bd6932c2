"""Tensors that are computed as they are read: `ScaledTensor`, codes multiplied by scales, and `TurnedTensor`."""

from __future__ import annotations

from math import prod

from pparse.errors import SourceError
from pparse.findings import Status
from pparse.limits import parse_size
from pparse.tensors.dtype import DTYPES
from pparse.tensors.filling import new_floats
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.findings import Finding
    from pparse.tensors.dtype import DType

# Bytes of a matrix that are turned at a time.
_WINDOW: Final = 16 << 20
# Numbers of a grid that are kept while all elements are gone through; of a larger one, parts are read.
_KEPT: Final = 64 << 10


class Grid:
    """Numbers that each hold for a block of a tensor's elements.

    ``axes``: which axis of the tensor each of their dimensions follows; none, for one number that holds for all.
    ``steps``: for how many elements along that axis one of them holds.
    """

    __slots__ = ("axes", "numbers", "steps")

    def __init__(self, numbers: Tensor, axes: Sequence[int] = (), steps: Sequence[int] = ()) -> None:
        self.numbers = numbers
        """The tensor of the numbers."""
        self.axes = tuple(axes)
        self.steps = tuple(steps)

    def read(self) -> NDArray[Any] | None:
        """Return all the numbers; None if they are too many to be kept."""
        return self.numbers.numpy() if self.numbers.size <= _KEPT else None

    def over(self, box: Sequence[range], kept: NDArray[Any] | None) -> NDArray[Any]:
        """Return the numbers for the elements of ``box``, a range for each axis, as an array to broadcast with them.

        ``kept`` is what `read` returned.
        """
        import numpy as np

        if not self.axes:
            whole = self.numbers.numpy() if kept is None else kept
            return whole.reshape(())
        window: list[slice] = []
        places: list[NDArray[Any]] = []
        shape = [1] * len(box)
        for axis, step in zip(self.axes, self.steps, strict=True):
            at = np.arange(box[axis].start, box[axis].stop, box[axis].step) // step
            low, high = (int(at.min()), int(at.max())) if at.size else (0, -1)
            window.append(slice(low, high + 1))
            places.append(np.zeros(1, np.int64) if low == high else at - low)  # one for all: numpy repeats it
            shape[axis] = len(places[-1])
        part = self.numbers[tuple(window)] if kept is None else kept[tuple(window)]
        found: NDArray[Any] = np.asarray(part)[np.ix_(*places)].reshape(shape)
        return found


class ComputedTensor(Tensor):
    """A tensor of float32 whose elements are computed of those of its `sources`, the first of which has its bytes.

    Its status is that of the first of them that is not complete. `raw_blocks` and `readinto` return what is stored.
    """

    __slots__ = ("_made_of",)

    def __init__(self, name: str, shape: tuple[int, ...], sources: Sequence[Tensor]) -> None:
        codes = sources[0]
        known: Any = {
            "status": codes.claimed_status,
            "verified": codes._verified,
            "finding": codes._finding,
            "owner": codes._owner,
        }
        super().__init__(name, DTYPES["float32"], shape, lambda: codes.spans, stored_dtype=codes.stored_dtype, **known)
        self._made_of = tuple(sources)
        self.unwritten_nbytes = sum(tensor.unwritten_nbytes for tensor in sources)

    def _decoded(self, start: int, step: int) -> Iterator[NDArray[Any]]:
        """Yield the elements from ``start`` on, at most ``step`` at a time."""
        raise NotImplementedError

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The tensors that are read: the codes, and the numbers that say what they mean."""
        return self._made_of

    def _worst(self) -> Tensor:
        return next((tensor for tensor in self.sources if tensor.status is not Status.COMPLETE), self.sources[0])

    @property
    def status(self) -> Status:
        """Status as far as is known, of codes and scales."""
        return self._worst().status

    @status.setter
    def status(self, status: Status) -> None:
        self._status = status

    @property
    def finding(self) -> Finding | None:
        """What is wrong with the codes or a scale, if anything."""
        return self._worst().finding

    @finding.setter
    def finding(self, finding: Finding | None) -> None:
        self._finding = finding

    @property
    def is_stored_as_array(self) -> bool:
        """False: the bytes as stored are codes."""
        return False

    @property
    def strides(self) -> tuple[int, ...]:
        """Zeros: no element is in the file."""
        return (0,) * self.ndim

    def blocks(self, max_bytes: int | str = "4MiB", *, raw: bool = False, start: int = 0) -> Iterator[NDArray[Any]]:
        """Yield the elements as `Tensor.blocks` does; ``raw=True``: the bits of the float32."""
        limit = parse_size(max_bytes)
        codes = self.sources[0]
        group = 8 if codes._known_dtype().packed else 1
        step = limit // 4 // group * group
        if not step:
            raise ValueError(f"a block of {limit} bytes cannot hold {group} element(s) of {self.dtype}")
        self._confirm()
        if self.status is not Status.TRUNCATED or codes.status is Status.COMPLETE:
            self._refuse_if_not_whole()
        for part in self._decoded(start, step):
            yield part.view("u4") if raw else part

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        raise SourceError(f"{self.name!r} is computed, and has no handle; its codes and scales have")

    def _confirm(self) -> None:
        for tensor in self.sources:
            tensor._confirm()

    def _is_contiguous(self) -> bool:
        return True

    def _mapped(self, dtype: DType, raw: bool) -> NDArray[Any]:
        raise ValueError(f"{self.name!r} needs a copy: its elements must be computed")

    def _read_codes(self, first: int, count: int) -> NDArray[Any]:
        """Return the bits of ``count`` elements in C order."""
        found = new_floats(count, self.name)
        at = 0
        for part in self._decoded(first, 1 << 20):
            part = part[: count - at]
            found[at : at + len(part)] = part
            at += len(part)
            if at == count:
                break
        return found.view("u4")


class ScaledTensor(ComputedTensor):
    """The elements of ``codes`` less ``zero``, multiplied by the product of ``scales``.

    What is read are parts of the codes, and of the scales for them.
    """

    __slots__ = ("codes", "scales", "zero")

    def __init__(self, name: str, codes: Tensor, scales: Sequence[Grid], zero: Grid | None = None) -> None:
        self.codes = codes
        """The elements as they are stored."""
        self.scales = tuple(scales)
        """By what they are multiplied."""
        self.zero = zero
        """What is subtracted from them before."""
        super().__init__(name, codes.shape, (codes, *(grid.numbers for grid in self._grids())))

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects, as `Tensor` does; reads the codes of these elements, and their scales."""
        import numpy as np

        from pparse.tensors.selection import normalise

        self._code_type()
        items = normalise(index, self.shape)
        box = self._box(items)
        codes = np.asarray(self.codes[tuple(items)]).reshape([len(part) for part in box])
        kept = [(grid, grid.read()) for grid in self._grids()]
        array = self._product(codes, box, kept)
        array = array.reshape([len(part) for part, item in zip(box, items, strict=True) if isinstance(item, slice)])
        return array[()] if not array.shape else array

    # -- how ---------------------------------------------------------------------------------------------------------

    def _code_type(self) -> DType:
        return self.codes._known_dtype()

    def _box(self, items: Sequence[int | slice]) -> list[range]:
        return [
            range(item, item + 1) if isinstance(item, int) else range(*item.indices(length))
            for item, length in zip(items, self.shape, strict=True)
        ]

    def _grids(self) -> tuple[Grid, ...]:
        return self.scales if self.zero is None else (*self.scales, self.zero)

    def _whole_count(self, dtype: DType) -> int:
        return self.codes._whole_count(self._code_type())

    def _refuse_if_short(self, dtype: DType) -> None:
        self.codes._refuse_if_short(self._code_type())

    def _decoded(self, start: int, step: int) -> Iterator[NDArray[Any]]:
        """Yield the elements from ``start`` on, ``step`` at a time."""
        import numpy as np

        from pparse.tensors.selection import boxes

        kept = [(grid, grid.read()) for grid in self._grids()]
        first = start
        for codes in self.codes.blocks(step * self._code_type().itemsize, start=start):
            found, at = np.empty(len(codes), np.float32), 0
            for items in boxes(first, first + len(codes), self.shape):
                box = self._box(items)
                shape = [len(part) for part in box]
                count = int(np.prod(shape, dtype=np.int64))
                found[at : at + count] = self._product(codes[at : at + count].reshape(shape), box, kept).reshape(-1)
                at += count
            first += len(codes)
            yield found

    def _product(
        self, codes: NDArray[Any], box: Sequence[range], kept: Sequence[tuple[Grid, NDArray[Any] | None]]
    ) -> NDArray[Any]:
        """Return what ``codes``, those of ``box``, stand for."""
        import numpy as np

        with np.errstate(all="ignore"):  # a scale may be infinite, or no number
            factors: list[Any] = [grid.over(box, numbers) for grid, numbers in kept[: len(self.scales)]]
            if self.zero is None:
                return np.asarray(codes.astype(np.float32) * prod(factor.astype(np.float32) for factor in factors))
            # As torch computes it (aten/src/ATen/native/quantized): with one scale for all, a difference of whole
            # numbers of 32 bits is multiplied by a float32; else one of float32 by what the scales are.
            zero = self.zero.over(box, kept[-1][1])
            if not self.zero.axes:
                codes = (codes.astype(np.int64) - zero).astype(np.int32).astype(np.float32)
                return np.asarray(codes * factors[0].astype(np.float32))
            codes = codes.astype(np.float32) - zero.astype(np.float32)
            return np.asarray((codes * factors[0]).astype(np.float32))


class TurnedTensor(ComputedTensor):
    """The elements of another such tensor, with the last two dimensions changed for each other.

    As many of its rows are made at a time as a part of the memory budget holds, of the columns of the other.
    """

    __slots__ = ("_of",)

    def __init__(self, of: ScaledTensor) -> None:
        super().__init__(of.name, (*of.shape[:-2], of.shape[-1], of.shape[-2]), of.sources)
        self._of = of

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects, as `Tensor` does."""
        from pparse.tensors.selection import normalise

        *outer, row, column = normalise(index, self.shape)
        found = self._of[(*outer, column, row)]
        both = isinstance(row, slice) and isinstance(column, slice)
        return found.swapaxes(-1, -2).copy() if both else found

    def _whole_count(self, dtype: DType) -> int:
        return self.size if self.status is Status.COMPLETE else 0

    def _refuse_if_short(self, dtype: DType) -> None:
        self._of._refuse_if_short(dtype)

    def _decoded(self, start: int, step: int) -> Iterator[NDArray[Any]]:
        from contextlib import nullcontext

        rows, width = self.shape[-2:]
        budget = None if self._owner is None else self._owner.extraction.session.budget
        room = _WINDOW if budget is None else min(_WINDOW, budget.limit // 16)
        count = max(1, room // (4 * width)) if width else 1
        at = start
        while at < self.size:
            slab, first = divmod(at, rows * width)
            row = first // width
            place: list[int] = []
            for length in reversed(self.shape[:-2]):
                slab, number = divmod(slab, length)
                place.insert(0, number)
            stop = min(row + count, rows)
            # Codes below 8 bits are unpacked from the first row that is touched to the last, a byte for each.
            held = rows * width * 2 + (stop - row) * width * 16
            with nullcontext() if budget is None else budget.charge(held, "a matrix that is turned"):
                window = self._of[(*place, slice(None), slice(row, stop))].swapaxes(-1, -2).reshape(-1)
                window = window[first - row * width :]
                for begin in range(0, len(window), step):
                    yield window[begin : begin + step]
            at += len(window)
