"""What codes of Core ML stand for: tensors that are computed as they are read.

Neural networks: coremltools models/neural_network/quantization_utils.py. Programs: the ``constexpr_`` operations,
converters/mil/mil/ops/defs/iOS16/constexpr_ops.py, iOS18/compression.py, and coremltools/optimize/_utils.py, whose
arithmetic this is, bit by bit: what comes out as float16 there has these values here, as float32.
"""

from __future__ import annotations

from math import prod

from pparse.data.spliced import DerivedData
from pparse.errors import MalformedError
from pparse.tensors.scales import ComputedTensor, Grid, Quantisation, ScaledTensor
from pparse.tensors.selection import boxes, normalise, ranges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.data.base import Data, Range
    from pparse.tensors.tensor import Tensor

    Kept = Sequence[tuple[Grid, NDArray[Any] | None]]

# Elements that are gone through at a time.
_STEP: Final = 1 << 20


class Codes(Quantisation):
    """How codes are meant: as the elements of another tensor, ``meant``."""

    __slots__ = ("meant", "operations")

    def __init__(self, name: str, codes: Tensor, parts: Sequence[Tensor]) -> None:
        super().__init__(name, codes, parts)
        self.meant: ComputedTensor | None = None
        """What they stand for; None if that is not clear, which `problem` tells."""
        self.operations = 0
        """How many operations of a program compute that."""

    def tensor(self) -> ComputedTensor:
        """Return the tensor of float32 that the codes stand for; `MalformedError` if that is not clear."""
        if self.meant is None:
            raise MalformedError(self.problem or "it is not known what they stand for", path=self.codes.name)
        return self.meant


# -- codes that share bytes --------------------------------------------------------------------------------------------


class CodesData(DerivedData):
    """``count`` codes of ``bits`` bits each, which ``packed`` has one behind the other, as a byte each.

    ``order``: ``"big"`` if the first one begins at the highest bit of a byte, ``"little"`` if at the lowest.
    """

    copies = False

    def __init__(self, packed: Range, count: int, bits: int, order: str, name: str) -> None:
        super().__init__(name, count)
        self.sources = (packed.data,)
        self._packed, self._bits, self._order = packed, bits, order

    def pieces(self, start: int, end: int) -> list[tuple[Data, int, int]]:
        """Return where the codes stand."""
        begin = self._packed.start
        first, last = begin + start * self._bits // 8, begin - (-end * self._bits // 8)
        return [(self._packed.data, first, last)] if first < last else []

    def _how(self) -> tuple[object, ...]:
        return self._packed.start, self._bits, self._order, self.size

    def _pread(self, offset: int, length: int) -> bytes:
        import numpy as np

        skip = offset * self._bits % 8
        raw = b"".join(data.read_exact(start, end - start) for data, start, end in self.pieces(offset, offset + length))
        order: Any = self._order
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder=order)[skip : skip + length * self._bits]
        places = range(self._bits)
        weights = np.array([1 << place for place in (reversed(places) if order == "big" else places)], np.uint8)
        codes: NDArray[Any] = bits.reshape(-1, self._bits) @ weights
        return codes.astype(np.uint8).tobytes()


# -- a number for each code --------------------------------------------------------------------------------------------


def kind_of_numbers(tensor: Tensor) -> Any:
    """Return the numpy type in which numbers of a tensor are: of a computed one, that of the operation behind it."""
    import numpy as np

    found = getattr(tensor, "numbers", None)
    if found is None:
        dtype = tensor.dtype
        whole = {"int": np.int8, "uint": np.uint8}  # those below 8 bits, too
        kind = "" if dtype is None else dtype.kind
        found = whole[kind] if kind in whole else np.dtype("f4") if dtype is None else dtype.numpy
    return np.dtype(found)


class LinearTensor(ScaledTensor):
    """What codes of a network mean: multiplied by ``scales`` before ``zero``, the bias, is added, in float64."""

    __slots__ = ()

    def _product(self, codes: NDArray[Any], box: Sequence[range], kept: Kept) -> NDArray[Any]:
        import numpy as np

        with np.errstate(all="ignore"):  # a scale may be infinite, or no number
            found = codes.astype(np.float64)
            for number, (grid, numbers) in enumerate(kept):
                factor = grid.over(box, numbers).astype(np.float64)
                found = found * factor if not number else found + factor
            return np.asarray(found.astype(np.float32))


class ShiftedTensor(ScaledTensor):
    """What codes of a program mean: less ``zero``, multiplied by the scale, in its type; ``wide``: in float32."""

    __slots__ = ("_wide",)

    def __init__(self, name: str, codes: Tensor, scale: Grid, zero: Grid | None, *, wide: bool) -> None:
        super().__init__(name, codes, [scale], zero)
        self._wide = wide

    @property
    def numbers(self) -> Any:
        """The type of the results."""
        import numpy as np

        kinds = [kind_of_numbers(grid.numbers) for grid in (self._grids()[:1] if self._wide else self._grids())]
        return np.result_type(*kinds)

    def _product(self, codes: NDArray[Any], box: Sequence[range], kept: Kept) -> NDArray[Any]:
        import numpy as np

        with np.errstate(all="ignore"):  # a scale may be infinite, or no number
            scale, *zero = [grid.over(box, numbers).astype(kind_of_numbers(grid.numbers)) for grid, numbers in kept]
            found = codes.astype(np.float32 if self._wide else scale.dtype)
            for number in zero:
                found = found - (number.astype(np.float32) if self._wide else number)
            found = found * (scale.astype(np.float32) if self._wide else scale)
            return np.asarray(found.astype(self.numbers).astype(np.float32))


class TableTensor(ScaledTensor):
    """What codes mean that are numbers of entries of tables, the only one of ``scales``.

    ``steps``: for how many codes along each axis a table holds, if there are several; the tensor has dimensions before
    that of the entries, then. An entry may be a vector, the last dimension, along ``axis``: then there are as many
    codes for it as it has elements.
    """

    __slots__ = ("_axis", "_steps")

    def __init__(self, name: str, codes: Tensor, table: Tensor, steps: Sequence[int] = (), axis: int = 0) -> None:
        super().__init__(name, codes, [Grid(table)])
        self._steps, self._axis = tuple(steps), axis

    @property
    def numbers(self) -> Any:
        """The type of the results."""
        return kind_of_numbers(self.scales[0].numbers)

    def _product(self, codes: NDArray[Any], box: Sequence[range], kept: Kept) -> NDArray[Any]:
        import numpy as np

        grid, found = kept[0]
        tables = grid.numbers
        width = tables.shape[-1] if self._steps else 1
        mesh = np.ix_(*(np.arange(side.start, side.stop, side.step) for side in box))
        groups = [at // step for at, step in zip(mesh, self._steps, strict=False)]
        lows = [int(group.min(initial=0)) if group.size else 0 for group in groups]
        window = tuple(slice(low, int(group.max(initial=0)) + 1) for low, group in zip(lows, groups, strict=True))
        part = np.asarray(tables[(*window, ...)] if found is None else found[window])
        entries = part.shape[len(groups)]
        if codes.size and int(codes.max()) >= entries:
            raise MalformedError(f"a code is none of the {entries} entries of its table", path=self.codes.name)
        places = (*(group - low for group, low in zip(groups, lows, strict=True)), codes.astype(np.int64))
        return np.asarray(part[(*places, mesh[self._axis] % width) if self._steps else places].astype(np.float32))


# -- elements that are not stored one by one ---------------------------------------------------------------------------


class _BoxTensor(ComputedTensor):
    """A tensor computed of others by boxes of its elements."""

    __slots__ = ()

    @property
    def numbers(self) -> Any:
        """The type of the results."""
        return kind_of_numbers(self.sources[0])

    def _box(self, box: Sequence[range]) -> NDArray[Any]:
        """Return the elements of a box, a range for each axis."""
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects, as `Tensor` does."""
        items = normalise(index, self.shape)
        box = ranges(items, self.shape)
        array = self._box(box)
        array = array.reshape([len(part) for part, item in zip(box, items, strict=True) if isinstance(item, slice)])
        return array[()] if not array.shape else array

    def _decoded(self, start: int, step: int) -> Iterator[NDArray[Any]]:
        for first in range(start, self.size, step):
            for items in boxes(first, min(first + step, self.size), self.shape):
                yield self._box(ranges(items, self.shape)).reshape(-1)

    def _whole_count(self, dtype: Any) -> int:
        return self.size if self.is_complete else 0

    def _refuse_if_short(self, dtype: Any) -> None:
        self._refuse_if_not_whole()


class StretchedTensor(_BoxTensor):
    """The elements of another tensor, each ``count`` times along ``axis``."""

    __slots__ = ("_axis", "_count")

    def __init__(self, of: Tensor, axis: int, count: int) -> None:
        shape = tuple(size * (count if at == axis else 1) for at, size in enumerate(of.shape))
        super().__init__(of.name, shape, (of,))
        self._axis, self._count = axis, count

    def _box(self, box: Sequence[range]) -> NDArray[Any]:
        import numpy as np

        side = box[self._axis]
        at = np.arange(side.start, side.stop, side.step) // self._count
        low, high = (int(at.min()), int(at.max())) if at.size else (0, -1)
        window = [slice(low, high + 1) if axis == self._axis else _slice(part) for axis, part in enumerate(box)]
        return np.asarray(np.asarray(self.sources[0][tuple(window)]).astype(np.float32).take(at - low, self._axis))


class SpreadTensor(_BoxTensor):
    """``values``, one for each element of ``mask`` that is not 0, in the order of these; 0 for all others."""

    __slots__ = ()

    def __init__(self, name: str, values: Tensor, mask: Tensor) -> None:
        super().__init__(name, mask.shape, (values, mask))

    def _decoded(self, start: int, step: int) -> Iterator[NDArray[Any]]:
        import numpy as np

        values, mask = self.sources
        before = sum(int(np.count_nonzero(part)) for part in _stretches(mask, 0, start, _STEP))
        left, held = _stretches(values, min(before, values.size), values.size, step), np.zeros(0, np.float32)
        for part in _stretches(mask, start, self.size, step):
            chosen = part.astype(np.uint8) != 0
            count = int(np.count_nonzero(chosen))
            while len(held) < count and (more := next(left, None)) is not None:
                held = np.concatenate([held, more.astype(np.float32)])
            before += count
            if len(held) < count:
                raise MalformedError(f"its mask has more elements than the {values.size:,} values", path=values.name)
            start += len(chosen)
            if start == self.size and before != values.size:
                reason = f"it has {values.size:,} values for {before:,} elements of its mask"
                raise MalformedError(reason, path=values.name)
            found = np.zeros(len(chosen), np.float32)
            found[chosen], held = held[:count], held[count:]
            yield found

    def _box(self, box: Sequence[range]) -> NDArray[Any]:
        import numpy as np

        strides = [prod(self.shape[axis + 1 :]) for axis in range(self.ndim)]
        if not all(map(len, box)):
            return np.zeros([len(part) for part in box], np.float32)
        low, high = (sum(n * end(part) for n, part in zip(strides, box, strict=True)) for end in (min, max))
        self._owner.extraction.session.limits.check("scalar_bytes", 4 * (high + 1 - low), "a part of the tensor")
        flat, at = np.zeros(high + 1 - low, np.float32), 0
        for part in self._decoded(low, min(_STEP, len(flat))):
            part = part[: len(flat) - at]
            flat[at : at + len(part)] = part
            at += len(part)
            if at == len(flat):
                break
        mesh = np.ix_(*(np.array(part) for part in box))
        return np.asarray(flat[sum(stride * at for stride, at in zip(strides, mesh, strict=True)) - low])


class MaskedTensor(ScaledTensor):
    """The elements of another tensor where ``mask`` is not 0; 0 elsewhere."""

    __slots__ = ()

    def __init__(self, name: str, of: ComputedTensor, mask: Tensor) -> None:
        super().__init__(name, of, [Grid(mask, range(mask.ndim), (1,) * mask.ndim)])

    @property
    def numbers(self) -> Any:
        """The type of the results."""
        return kind_of_numbers(self.codes)

    def _product(self, codes: NDArray[Any], box: Sequence[range], kept: Kept) -> NDArray[Any]:
        import numpy as np

        grid, numbers = kept[0]
        return np.where(grid.over(box, numbers).astype(np.uint8) != 0, codes.astype(np.float32), np.float32(0))


def _slice(side: range) -> slice:
    return slice(side.start, side.stop if side.stop >= 0 else None, side.step)


def _stretches(tensor: Tensor, start: int, stop: int, step: int) -> Iterator[NDArray[Any]]:
    """Yield elements ``[start, stop)``, at most ``step`` at a time."""
    first = start - start % 8  # where those below 8 bits may begin
    skip = start - first
    left = stop - start
    size = max(8, step // 8 * 8) * (1 if tensor.dtype is None else tensor.dtype.itemsize)
    blocks = tensor.blocks(size, start=first) if left > 0 else iter(())
    for block in blocks:
        part = block[skip : skip + left]
        skip = max(0, skip - len(block))
        left -= len(part)
        yield from (part[at : at + step] for at in range(0, len(part), step))
        if not left:
            return
