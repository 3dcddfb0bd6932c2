"""What codes of Core ML stand for: tensors that are computed as they are read.

Weights of neural networks have scales and biases, or a table (coremltools models/neural_network/
quantization_utils.py). In programs, ``constexpr_`` operations compute constants of others before it runs: the stored
elements of one are those of one input, so ``W.quantized_data`` stands for ``W``. One may take what another one makes:
the values of a sparse tensor, of which a last one makes a dense tensor, or a table that is quantised itself
(converters/mil/mil/ops/defs/iOS16/constexpr_ops.py, iOS18/compression.py, and coremltools/optimize/_utils.py, whose
arithmetic this is, bit by bit: what comes out as float16 there has these values here, as float32).
"""

from __future__ import annotations

from functools import cached_property
from math import prod

from pparse.errors import MalformedError
from pparse.tensors.dtype import DTYPES
from pparse.tensors.scales import ComputedTensor, Grid, Quantisation, ScaledTensor
from pparse.viewers.coreml.tensors import codes_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.limits import Charge
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.coreml.places import CoremlPlace, CoremlPlaces, Operation
    from pparse.viewers.tensor_proto.maker import ProtoTensor

    Kept = Sequence[tuple[Grid, NDArray[Any] | None]]

# Elements that are gone through at a time.
_STEP: Final = 1 << 20
# The input that has the elements, by the type of the operation; of those of sparse tensors, the one with the mask, too.
_ELEMENTS: Final = {
    "affine_dequantize": "quantized_data",
    "blockwise_shift_scale": "data",
    "cast": "source_val",
    "lut_to_dense": "indices",
    "lut_to_sparse": "indices_nonzero_data",
    "sparse_blockwise_shift_scale": "nonzero_data",
    "sparse_to_dense": "nonzero_data",
}
_MASKS: Final = {
    "lut_to_sparse": "indices_mask",
    "sparse_blockwise_shift_scale": "data_mask",
    "sparse_to_dense": "mask",
}
# Operations that take what others make, one behind the other, and all that compute one tensor.
_MOST: Final = 8
_MOST_OPERATIONS: Final = 32
# Memory of an operation, and of a name.
_COST: Final = 1500
_MOST_LENGTHS: Final = 16


class Meanings:
    """What codes of a model stand for: its `quantisation` and `codes_with`."""

    def __init__(self, places: CoremlPlaces) -> None:
        self.places = places

    @cached_property
    def known(self) -> tuple[dict[str, Operation], dict[str, tuple[Operation, str]], Charge]:
        """The operations by the names of what they make, and of what they take, with the key of that; without masks."""
        makers: dict[str, Operation] = {}
        takers: dict[str, tuple[Operation, str]] = {}
        charge = self.places.maker.extraction.session.budget.charge(0, "the constants of a program")
        for number, one in enumerate(self.places.constexprs(), 1):
            if _kind(one) not in _ELEMENTS:
                continue
            makers |= {one.prefix + name: one for name in one.outputs}
            mask = _MASKS.get(_kind(one))
            takers |= {one.prefix + name: (one, key) for key, name in one.inputs if name and key != mask}
            if not number & 0xFF:
                charge.resize(_COST * number)
        charge.resize(_COST * len(makers))
        return makers, takers, charge

    def of(self, tensor: Tensor, place: CoremlPlace) -> Quantisation | None:
        """Return what a tensor stands for, the input or attribute of an operation; None if it has no elements."""
        if place.made_by is None:
            return None if place.kind is None else self._of_weights(tensor, place)
        chain = [one for one, key in self._takers(place) if _is_element(one, key)]
        if not chain:
            return None
        last = chain[-1]
        found = Quantisation(last.prefix + last.label, tensor, ())
        found.told["operation"] = last.type
        try:
            found.meant = _Computation(self, found).made(last)
        except MalformedError as error:
            found.problem = error.reason
        return found

    def codes_with(self, place: CoremlPlace) -> str | None:
        """Return the name of the codes that another tensor of an operation belongs to; None if it is none such."""
        if place.made_by is None:
            return None
        *_, (one, key) = self._takers(place)
        for _ in () if _is_element(one, key) else range(_MOST):
            key = _ELEMENTS.get(_kind(one), "")
            if any(label == key for label, _ in one.values):
                return str(one.name_of(key))
            maker = self.known[0].get(one.prefix + dict(one.inputs).get(key, ""))
            if maker is None:
                break
            one = maker
        return None

    def _takers(self, place: CoremlPlace) -> Iterator[tuple[Operation, str]]:
        """Yield the operation of a place, then what takes what it makes of elements, and so on; each with the key."""
        found: Any = (place.made_by, place.name.rpartition(".")[2])
        takers = self.known[1]
        for _ in range(_MOST):
            if found is None:
                return
            yield found
            one = found[0]
            names = [one.prefix + made for made in one.outputs if _is_element(*found)]
            found = next((takers[name] for name in names if name in takers), None)

    # -- neural networks -----------------------------------------------------------------------------------------------

    def _of_weights(self, tensor: Tensor, place: CoremlPlace) -> Quantisation | None:
        """Return what the codes of a layer mean; several scales are for one of its dimensions."""
        parts = self.places.weight_maker(place).scales(tensor, place.value)
        if not parts:
            return None
        found = Quantisation(tensor.name, tensor, tuple(parts.values()))
        found.told |= parts
        if "table" in parts:
            found.meant = TableTensor(tensor.name, tensor, parts["table"])
            return found
        grids, axis = [], place.axis
        for part in found.parts:
            if part.size == 1:
                grids.append(Grid(part))
            elif axis < tensor.ndim and part.size == tensor.shape[axis]:
                grids.append(Grid(part, (axis,), (1,)))
                found.told["axis"] = axis
            else:
                reason = f"it has {part.size} numbers in {part.name} for dimension {axis} of {tensor.shape_text}"
                found.problem = reason
                return found
        found.meant = LinearTensor(tensor.name, tensor, grids[:1], grids[1] if len(grids) > 1 else None)
        return found


class _Computation:
    """What one tensor of codes stands for, by the operations that compute it."""

    def __init__(self, meanings: Meanings, found: Quantisation) -> None:
        self._maker, self._makers, self._found = meanings.places.maker, meanings.known[0], found
        self._left = _MOST_OPERATIONS

    # -- inputs and attributes -----------------------------------------------------------------------------------------

    def _maker_of(self, one: Operation, key: str) -> Operation | None:
        """Return the operation that makes an input; None if it is stored."""
        name = dict(one.inputs).get(key)
        return self._makers.get(one.prefix + name) if name else None

    def _find(self, one: Operation, key: str) -> Any:
        """Return the tensor of an input or attribute; None if there is none."""
        maker, stored, found = self._maker_of(one, key), dict(one.values), self._found
        if maker is not None:
            return self.made(maker)
        if key not in stored:
            return None
        name = one.name_of(key)
        if name == found.codes.name:
            return found.codes
        made = self._maker.tensor(name, stored[key])
        found.parts += (made,)
        found.told.setdefault(key, made)
        return made

    def _tensor(self, one: Operation, key: str) -> Any:
        """Return the tensor of an input or attribute that must be there. Raises `MalformedError`."""
        found = self._find(one, key)
        if found is None:
            raise MalformedError(f"its operation has no {key}")
        if found.dtype is None or not found.is_shape_known:
            raise MalformedError(f"its {key} is of {found.type_name}")
        return found

    def _number(self, one: Operation, key: str) -> int | None:
        """Return the one number of a tensor; None if there is none."""
        found = self._find(one, key)
        return None if found is None else _numbers(found, 1)[0]

    # -- what is computed ----------------------------------------------------------------------------------------------

    def made(self, one: Operation) -> Any:
        """Return what an operation makes; of a sparse tensor, the dense one. Raises `MalformedError`."""
        self._left -= 1
        if self._left < 0:
            raise MalformedError(f"it is computed by more than {_MOST_OPERATIONS} operations")
        kind, name, mask = _kind(one), self._found.name, None
        values = self._tensor(one, _ELEMENTS[kind])
        if kind == "cast":
            return ScaledTensor(name, values, [])
        shape = self._find(one, "shape")  # in programs of before, codes share bytes, and this is theirs
        if kind in _MASKS:
            if kind == "sparse_to_dense" and self._maker_of(one, _ELEMENTS[kind]) is not None and values.ndim != 1:
                return values  # what made it has put its values where they belong
            mask = self._tensor(one, _MASKS[kind])
            mask = mask if shape is None else self._unpacked(mask, 1, shape)
            values = SpreadTensor(name, values, mask)
            if kind == "sparse_to_dense":
                return values
        if kind.startswith("lut"):
            values, mask = self._looked_up(one, values, mask, shape)
        else:
            values = self._shifted(one, values, wide=kind == "affine_dequantize")
        return values if mask is None else MaskedTensor(name, values, mask)

    def _unpacked(self, packed: Any, bits: int, shape: Tensor) -> ProtoTensor:
        """Return codes of ``bits`` bits, which share the bytes of ``packed`` from the lowest on, in that shape."""
        sizes = tuple(_numbers(shape, _MOST_LENGTHS))
        spans = packed.spans
        if min(sizes) < 0 or len(spans) != 1 or spans[0].data is None or packed.dtype != "uint8":
            raise MalformedError(f"{packed.name}, {packed.type_name} of {packed.shape_text}, has no codes for {sizes}")
        if packed.size != -(-prod(sizes) * bits // 8):
            raise MalformedError(
                f"{packed.name} has {packed.size:,} bytes; {prod(sizes):,} codes of {bits} bits need others"
            )
        return codes_in(self._maker, packed, sizes, bits, "little")

    def _shifted(self, one: Operation, codes: Any, *, wide: bool) -> ShiftedTensor:
        """Return the elements of an operation with scales; ``wide``: one of before, with an axis."""
        scale, zero = self._tensor(one, "scale"), self._find(one, "zero_point" if wide else "offset")
        if scale.dtype.kind != "float" or (zero is not None and (zero.dtype is None or zero.dtype.kind == "bool")):
            raise MalformedError(f"{scale.name} is of {scale.type_name}")
        grids = []
        axis = self._number(one, "axis") if wide else None
        for part in (scale,) if zero is None else (scale, zero):
            if not wide:
                grids.append(Grid(part, range(codes.ndim), _steps(codes, part, codes.ndim + (part.ndim != codes.ndim))))
            elif part.ndim == 0:
                grids.append(Grid(part))
            elif axis is not None and -codes.ndim <= axis < codes.ndim and part.shape == (codes.shape[axis],):
                grids.append(Grid(part, (axis % codes.ndim,), (1,)))
            else:
                raise MalformedError(f"{part.name} is of {part.shape_text} for dimension {axis} of {codes.shape_text}")
        return ShiftedTensor(self._found.name, codes, grids[0], grids[1] if len(grids) > 1 else None, wide=wide)

    def _looked_up(self, one: Operation, codes: Any, mask: Any, shape: Tensor | None) -> tuple[Any, Any]:
        """Return the elements of an operation with tables, and the mask of these: a code may be for several."""
        table, name = self._tensor(one, "lut"), self._found.name
        if shape is not None:
            bits = max(1, table.size.bit_length() - 1)
            return TableTensor(name, self._unpacked(codes, bits, shape), table), mask
        steps = _steps(codes, table, table.ndim - 2)
        width = table.shape[-1]
        axis = (self._number(one, "vector_axis") or 0) if width != 1 else 0
        if not (width and -codes.ndim <= axis < codes.ndim):
            raise MalformedError(f"{table.name} is of {table.shape_text} for dimension {axis} of {codes.shape_text}")
        axis %= codes.ndim
        if width > 1:
            codes = StretchedTensor(codes, axis, width)
            mask = None if mask is None else StretchedTensor(mask, axis, width)
            steps[axis] *= width
        return TableTensor(name, codes, table, steps, axis), mask


def _kind(one: Operation) -> str:
    return str(one.type.removeprefix("constexpr_"))


def _is_element(one: Operation, key: str) -> bool:
    return key == _ELEMENTS.get(_kind(one))


def _numbers(tensor: Tensor, most: int) -> list[int]:
    """Return the whole numbers in a small tensor. Raises `MalformedError`."""
    kind = None if tensor.dtype is None else tensor.dtype.kind
    if not tensor.is_complete or not 0 < tensor.size <= most or kind not in ("int", "uint"):
        raise MalformedError(f"{tensor.name} is {tensor.type_name} of {tensor.shape_text}, {tensor.status}")
    found: list[int] = tensor.numpy().reshape(-1).tolist()
    return found


def _steps(codes: Tensor, numbers: Tensor, count: int) -> list[int]:
    """Return for how many codes along each axis one of the first ``count`` dimensions of ``numbers`` holds."""
    sides = list(zip(codes.shape, numbers.shape[:count], strict=False))
    if len(sides) != codes.ndim or any(not few or many % few for many, few in sides):
        raise MalformedError(f"{numbers.name} is of {numbers.shape_text} for codes of {codes.shape_text}")
    return [max(1, many // few) for many, few in sides]


# -- a number for each code --------------------------------------------------------------------------------------------


def kind_of_numbers(tensor: Tensor) -> Any:
    """Return the numpy type in which numbers of a tensor are: of a computed one, that of the operation behind it."""
    import numpy as np

    found = getattr(tensor, "numbers", None)
    if found is None:
        whole = {"int": np.int8, "uint": np.uint8}  # those below 8 bits, too
        dtype = tensor.dtype or DTYPES["float32"]
        found = whole.get(dtype.kind, dtype.numpy)
    return np.dtype(found)


class _Kept:
    """What has the numbers of what it is made of, in their type."""

    __slots__ = ()
    sources: tuple[Tensor, ...]

    @property
    def numbers(self) -> Any:
        """The type of the results."""
        return kind_of_numbers(self.sources[0])


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


class StretchedTensor(_Kept, ComputedTensor):
    """The elements of another tensor, each ``count`` times along ``axis``."""

    __slots__ = ("_axis", "_count")

    def __init__(self, of: Tensor, axis: int, count: int) -> None:
        shape = tuple(size * (count if at == axis else 1) for at, size in enumerate(of.shape))
        super().__init__(of.name, shape, (of,))
        self._axis, self._count = axis, count

    def _box(self, items: Sequence[Any], box: Sequence[range]) -> NDArray[Any]:
        import numpy as np

        side = box[self._axis]
        at = np.arange(side.start, side.stop, side.step) // self._count
        low, high = (int(at.min()), int(at.max())) if at.size else (0, -1)
        window = [slice(low, high + 1) if axis == self._axis else _slice(part) for axis, part in enumerate(box)]
        return np.asarray(np.asarray(self.sources[0][tuple(window)]).astype(np.float32).take(at - low, self._axis))


class SpreadTensor(_Kept, ComputedTensor):
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

    def _box(self, items: Sequence[Any], box: Sequence[range]) -> NDArray[Any]:
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


class MaskedTensor(_Kept, ScaledTensor):
    """The elements of another tensor where ``mask`` is not 0; 0 elsewhere."""

    __slots__ = ()

    def __init__(self, name: str, of: ComputedTensor, mask: Tensor) -> None:
        super().__init__(name, of, [Grid(mask, range(mask.ndim), (1,) * mask.ndim)])

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
