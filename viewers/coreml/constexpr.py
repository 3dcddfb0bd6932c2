"""Constants that an ML program computes of others before it runs: what its ``constexpr_`` operations mean.

The stored elements of one are those of one input: ``W.quantized_data`` stands for ``W``. An operation may take what
another one makes: the values of a sparse tensor, of which a last one makes a dense tensor, or a table that is quantised
itself (coremltools converters/mil/mil/ops/defs/iOS16/constexpr_ops.py, iOS18/compression.py).
"""

from __future__ import annotations

from functools import cached_property
from math import prod

from pparse.errors import MalformedError
from pparse.tensors.scales import Grid, ScaledTensor
from pparse.viewers.coreml.codes import Codes, MaskedTensor, ShiftedTensor, SpreadTensor, StretchedTensor, TableTensor
from pparse.viewers.coreml.tensors import codes_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.limits import Charge
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.coreml.places import Constexpr, CoremlPlaces
    from pparse.viewers.tensor_proto.maker import ProtoTensor

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
    """What the elements stand for that ``constexpr_`` operations of a model have."""

    def __init__(self, places: CoremlPlaces) -> None:
        self.places = places

    @cached_property
    def known(self) -> tuple[dict[str, Constexpr], dict[str, tuple[Constexpr, str]], Charge]:
        """The operations by the names of what they make, and of what they take, with the key of that; without masks."""
        makers: dict[str, Constexpr] = {}
        takers: dict[str, tuple[Constexpr, str]] = {}
        charge = self.places.maker.extraction.session.budget.charge(0, "the constants of a program")
        for number, one in enumerate(self.places.constexprs(), 1):
            if _kind(one) not in _ELEMENTS:
                continue
            makers |= {one.prefix + name: one for name in one.operation.outputs}
            mask = _MASKS.get(_kind(one))
            takers |= {one.prefix + name: (one, key) for key, name in one.operation.inputs if name and key != mask}
            if not number & 0xFF:
                charge.resize(_COST * number)
        charge.resize(_COST * len(makers))
        return makers, takers, charge

    def of(self, tensor: Tensor, key: str, one: Constexpr) -> Codes | None:
        """Return what a tensor stands for, the input or attribute ``key`` of ``one``; None if it has no elements."""
        if not _is_element(one, key):
            return None
        last = one
        for _ in range(_MOST):
            taker = self._taker(last)
            if taker is None or not _is_element(*taker):
                break
            last = taker[0]
        found = Codes(last.prefix + last.operation.label, tensor, ())
        found.told["operation"] = last.operation.type
        try:
            made = self.made(last, found)
        except MalformedError as error:
            found.problem = error.reason
        else:
            found.meant = made
        return found

    def codes_with(self, key: str, one: Constexpr) -> str | None:
        """Return the name of the codes that another tensor of an operation belongs to; None if it is none such."""
        for _ in range(_MOST):
            if not _is_element(one, key):
                break
            taker = self._taker(one)
            if taker is None:
                return None
            one, key = taker
        for _ in range(_MOST):
            key = _ELEMENTS.get(_kind(one), "")
            if any(label == key for label, _ in one.operation.values):
                return str(one.prefix + one.operation.name_of(key))
            maker = self.known[0].get(one.prefix + dict(one.operation.inputs).get(key, ""))
            if maker is None:
                break
            one = maker
        return None

    def _taker(self, one: Constexpr) -> tuple[Constexpr, str] | None:
        """Return the operation that takes what ``one`` makes, and as what."""
        takers = self.known[1]
        return next((takers[name] for made in one.operation.outputs if (name := one.prefix + made) in takers), None)

    def made(self, one: Constexpr, codes: Codes) -> Any:
        """Return what an operation makes; of a sparse tensor, the dense one. Raises `MalformedError`."""
        codes.operations += 1
        if codes.operations > _MOST_OPERATIONS:
            raise MalformedError(f"it is computed by more than {_MOST_OPERATIONS} operations")
        kind, name = _kind(one), codes.name
        given = _Given(self, one, codes)
        values = given.tensor(_ELEMENTS[kind])
        old = given.find("shape")
        if kind == "cast":
            return ScaledTensor(name, values, [])
        if kind in _MASKS:
            if kind == "sparse_to_dense" and given.maker(_ELEMENTS[kind]) is not None and values.ndim != 1:
                return values  # what made it has put its values where they belong
            mask = given.tensor(_MASKS[kind])
            values = SpreadTensor(name, values, mask if old is None else _unpacked(given, mask, 1, old))
            mask = values.sources[1]
            if kind == "sparse_to_dense":
                return values
        if kind.startswith("lut"):
            values, stretched = _looked_up(given, name, values, old)
            mask = (
                StretchedTensor(mask, *stretched)
                if kind in _MASKS and stretched[1] > 1
                else mask
                if kind in _MASKS
                else None
            )
        else:
            values = _shifted(given, name, values, kind)
        return MaskedTensor(name, values, mask) if kind in _MASKS else values


class _Given:
    """The inputs and attributes of one operation."""

    def __init__(self, meanings: Meanings, one: Constexpr, codes: Codes) -> None:
        self._meanings, self._one, self._codes = meanings, one, codes
        self.places = meanings.places
        self._stored = dict(one.operation.values)
        self._names = {key: name for key, name in one.operation.inputs if name}

    def maker(self, key: str) -> Constexpr | None:
        """Return the operation that makes an input; None if it is stored."""
        return self._meanings.known[0].get(self._one.prefix + self._names[key]) if key in self._names else None

    def find(self, key: str) -> Tensor | None:
        """Return the tensor of an input or attribute; None if there is none."""
        maker = self.maker(key)
        if maker is not None:
            made: Tensor = self._meanings.made(maker, self._codes)
            return made
        if key not in self._stored:
            return None
        name = self._one.prefix + self._one.operation.name_of(key)
        if name == self._codes.codes.name:
            return self._codes.codes
        found = self.places.maker.tensor(name, self._stored[key])
        self._codes.parts += (found,)
        self._codes.told.setdefault(key, found)
        return found

    def tensor(self, key: str) -> Any:
        """Return the tensor of an input or attribute that must be there. Raises `MalformedError`."""
        found = self.find(key)
        if found is None or found.dtype is None or not found.is_shape_known:
            raise MalformedError(
                f"its operation has no {key}" if found is None else f"its {key} is of {found.type_name}"
            )
        return found

    def number(self, key: str) -> int | None:
        """Return the one number of a tensor; None if there is none."""
        found = self.find(key)
        return None if found is None else int(_numbers(found, 1)[0])


def _kind(one: Constexpr) -> str:
    return str(one.operation.type.removeprefix("constexpr_"))


def _is_element(one: Constexpr, key: str) -> bool:
    return key == _ELEMENTS.get(_kind(one))


def _numbers(tensor: Tensor, most: int) -> list[int]:
    """Return the whole numbers in a small tensor. Raises `MalformedError`."""
    if (
        not tensor.is_complete
        or not 0 < tensor.size <= most
        or tensor.dtype is None
        or tensor.dtype.kind not in ("int", "uint")
    ):
        raise MalformedError(f"{tensor.name} is {tensor.type_name} of {tensor.shape_text}, {tensor.status}")
    found: list[int] = tensor.numpy().reshape(-1).tolist()
    return found


def _unpacked(given: _Given, packed: Any, bits: int, shape: Tensor) -> ProtoTensor:
    """Return codes of ``bits`` bits, which share the bytes of ``packed`` from the lowest on, in that shape."""
    sizes = tuple(_numbers(shape, _MOST_LENGTHS))
    spans = packed.spans
    if min(sizes) < 0 or len(spans) != 1 or spans[0].data is None or packed.dtype != "uint8":
        raise MalformedError(f"{packed.name}, {packed.type_name} of {packed.shape_text}, has no codes for {sizes}")
    if packed.size != -(-prod(sizes) * bits // 8):
        raise MalformedError(
            f"{packed.name} has {packed.size:,} bytes; {prod(sizes):,} codes of {bits} bits need others"
        )
    where = spans[0].data.range(spans[0].offset, spans[0].offset + packed.size)
    return codes_in(given.places.maker, packed, sizes, where, bits, "little")


def _steps(codes: Tensor, numbers: Tensor, count: int) -> list[int]:
    """Return for how many codes along each axis one of the first ``count`` dimensions of ``numbers`` holds."""
    sides = list(zip(codes.shape, numbers.shape[:count], strict=False))
    if len(sides) != codes.ndim or any(not few or many % few for many, few in sides):
        raise MalformedError(f"{numbers.name} is of {numbers.shape_text} for codes of {codes.shape_text}")
    return [max(1, many // few) for many, few in sides]


def _shifted(given: _Given, name: str, codes: Any, kind: str) -> ShiftedTensor:
    """Return the elements of an operation with scales."""
    scale = given.tensor("scale")
    old = kind == "affine_dequantize"
    zero = given.find("zero_point" if old else "offset")
    if scale.dtype.kind != "float" or (zero is not None and (zero.dtype is None or zero.dtype.kind == "bool")):
        raise MalformedError(f"{scale.name} is of {scale.type_name}")
    grids = []
    axis = given.number("axis") if old else None
    for part in (scale,) if zero is None else (scale, zero):
        if not old:
            grids.append(Grid(part, range(codes.ndim), _steps(codes, part, codes.ndim + (part.ndim != codes.ndim))))
        elif part.ndim == 0:
            grids.append(Grid(part))
        elif axis is not None and -codes.ndim <= axis < codes.ndim and part.shape == (codes.shape[axis],):
            grids.append(Grid(part, (axis % codes.ndim,), (1,)))
        else:
            raise MalformedError(f"{part.name} is of {part.shape_text} for dimension {axis} of {codes.shape_text}")
    return ShiftedTensor(name, codes, grids[0], grids[1] if len(grids) > 1 else None, wide=old)


def _looked_up(given: _Given, name: str, codes: Any, old: Tensor | None) -> tuple[TableTensor, tuple[int, int]]:
    """Return the elements of an operation with tables, and along which axis there are how many for a code."""
    table = given.tensor("lut")
    if old is not None:
        bits = max(1, table.size.bit_length() - 1)
        return TableTensor(name, _unpacked(given, codes, bits, old), table), (0, 1)
    steps = _steps(codes, table, table.ndim - 2)
    width = table.shape[-1]
    axis = (given.number("vector_axis") or 0) if width != 1 else 0
    if not (width and -codes.ndim <= axis < codes.ndim):
        raise MalformedError(f"{table.name} is of {table.shape_text} for dimension {axis} of {codes.shape_text}")
    axis %= codes.ndim
    if width > 1:
        codes = StretchedTensor(codes, axis, width)
        steps[axis] *= width
    return TableTensor(name, codes, table, steps, axis), (axis, width)
