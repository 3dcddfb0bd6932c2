"""Which tensors of a model are codes, and which ones hold the scales that say what the codes mean.

A model says so by names, whatever its format:

=======================  ================================  =========================================================
codes                    scales                            written by
=======================  ================================  =========================================================
``X``, float8            ``X_scale_inv`` or ``X_scale``    DeepSeek, transformers, vLLM: one, one for each row, or
                                                           one for each block
``X``, uint8             ``X_scale``, ``X_scale_2``        NVFP4 of ModelOpt: two elements a byte, a scale for 16
``X_blocks``, uint8      ``X_scales``, uint8               MXFP4 of transformers: two elements a byte, a scale for
                                                           32; matrices of experts are turned, as it does it
``X.blocks``, uint8      ``X.scales``, uint8               the same of OpenAI, and not turned
``X``, whole numbers     ``X.scale``, ``X.zero_point``,    quantised tensors of PyTorch, as its viewer names their
                         ``X.axis``                        parts, and as a conversion writes them
=======================  ================================  =========================================================
"""

from __future__ import annotations

from math import prod

from pparse.display.text import shape_words
from pparse.errors import MalformedError, PparseError, SourceError
from pparse.limits import parse_size
from pparse.tensors.dtype import DTYPES, new_floats
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.findings import Finding, Status
    from pparse.tensors.dtype import DType
    from pparse.tensors.viewer import Viewer

# -- Tensors that are computed as they are read: `ScaledTensor`, codes multiplied by scales, and `TurnedTensor` --------

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
    """A tensor, of float32 by itself, whose elements are computed of those of its `sources`, the first of which has its
    bytes.

    Its status is that of the first of them that is not complete. `raw_blocks` and `readinto` return what is stored.
    """

    __slots__ = ("_made_of",)

    def __init__(self, name: str, shape: tuple[int, ...], sources: Sequence[Tensor]) -> None:
        codes = sources[0]
        super().__init__(name, DTYPES["float32"], shape, lambda _: codes.spans, **codes._claims())
        self._made_of = tuple(sources)
        self.unwritten_nbytes = sum(tensor.unwritten_nbytes for tensor in sources)

    def _box(self, items: Sequence[Any], box: Sequence[range]) -> NDArray[Any]:
        """Return the elements of a box, which ``items`` select: a range for each axis."""
        raise NotImplementedError

    def _decoded(self, start: int, step: int) -> Iterator[NDArray[Any]]:
        """Yield the elements from ``start`` on, at most ``step`` at a time."""
        from pparse.tensors.selection import boxes, ranges

        for first in range(start, self.size, step):
            for items in boxes(first, min(first + step, self.size), self.shape):
                yield self._box(items, ranges(items, self.shape)).reshape(-1)

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects, as `Tensor` does; reads what these elements are computed of."""
        from pparse.tensors.selection import normalise, ranges

        self.sources[0]._known_dtype()
        items = normalise(index, self.shape)
        box = ranges(items, self.shape)
        array = self._box(items, box)
        array = array.reshape([len(part) for part, item in zip(box, items, strict=True) if isinstance(item, slice)])
        return array[()] if not array.shape else array

    def _whole_count(self, dtype: DType) -> int:
        return self.size if self.is_complete else 0

    def _refuse_if_short(self, dtype: DType) -> None:
        self._refuse_if_not_whole()

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The tensors that are read: the codes, and the numbers that say what they mean."""
        return self._made_of

    def _worst(self) -> Tensor:
        return next((tensor for tensor in self.sources if not tensor.is_complete), self.sources[0])

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
        self.resolve()
        (self._refuse_if_not_whole if codes.is_complete else self._refuse_unless_cut)()
        for part in self._decoded(start, step):
            yield part.view(f"u{part.dtype.itemsize}") if raw else part

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        raise SourceError(f"{self.name!r} is computed, and has no handle; its codes and scales have")

    def resolve(self) -> None:
        """Compare the checksums that cover the codes and the scales, if that costs little."""
        for tensor in self.sources:
            tensor.resolve()

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

    def _box(self, items: Sequence[Any], box: Sequence[range]) -> NDArray[Any]:
        import numpy as np

        codes = np.asarray(self.codes[tuple(items)]).reshape([len(part) for part in box])
        return self._product(codes, box, [(grid, grid.read()) for grid in self._grids()])

    # -- how ---------------------------------------------------------------------------------------------------------

    def _code_type(self) -> DType:
        return self.codes._known_dtype()

    def _grids(self) -> tuple[Grid, ...]:
        return self.scales if self.zero is None else (*self.scales, self.zero)

    def _whole_count(self, dtype: DType) -> int:
        return self.codes._whole_count(self._code_type())

    def _refuse_if_short(self, dtype: DType) -> None:
        self.codes._refuse_if_short(self._code_type())

    def _decoded(self, start: int, step: int) -> Iterator[NDArray[Any]]:
        """Yield the elements from ``start`` on, ``step`` at a time."""
        import numpy as np

        from pparse.tensors.selection import boxes, ranges

        kept = [(grid, grid.read()) for grid in self._grids()]
        first = start
        for codes in self.codes.blocks(step * self._code_type().itemsize, start=start):
            found, at = np.empty(len(codes), np.float32), 0
            for items in boxes(first, first + len(codes), self.shape):
                box = ranges(items, self.shape)
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


_FLOAT8: Final = frozenset(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"))
_SCALES_OF_FLOAT8: Final = ("_scale_inv", "_scale")
_INTEGERS: Final = frozenset(("int8", "uint8", "int32", "uint4", "uint2"))
# What is added to the name of codes, or for MXFP4 put at its end, to name what belongs to them.
_ADDED: Final = ("_scale_inv", "_scale_2", "_scale", ".scale", ".zero_point", ".axis")
_INPUTS: Final = ".input_scale"
_WEIGHT: Final = ".weight"
_BLOCKS: Final = {"_blocks": "_scales", ".blocks": ".scales"}
_NVFP4_GROUP: Final = 16
_MXFP4_GROUP: Final = 32
_MXFP4_BYTES: Final = 16
# The file that says of how many elements a block is, and the most bytes of it that are read.
_CONFIG: Final = "config.json"
_LARGEST_CONFIG: Final = 1 << 20
_PATH_TO_BLOCK: Final = "quantization_config.weight_block_size"


class Quantisation:
    """How one tensor of codes is meant."""

    __slots__ = ("codes", "is_turned", "meant", "name", "parts", "problem", "scales", "told", "zero")

    def __init__(self, name: str, codes: Tensor, parts: Sequence[Tensor]) -> None:
        self.name = name
        """Name of what the codes stand for."""
        self.codes = codes
        """The codes."""
        self.parts = tuple(parts)
        """The tensors that belong to the codes: scales, zero points, the axis."""
        self.scales: list[Grid] = []
        """The scales, by blocks."""
        self.zero: Grid | None = None
        """The code of zero, where that is not 0."""
        self.meant: ComputedTensor | None = None
        """What the codes stand for, where the format has an arithmetic of its own; else `scales` and `zero` say it."""
        self.is_turned = False
        """Whether the last two dimensions are to be changed for each other."""
        self.problem: str | None = None
        """Why it is not clear what the codes mean; None: it is."""
        self.told: dict[str, Any] = {}
        """The same as plain data."""

    def tensor(self) -> ComputedTensor:
        """Return the tensor of float32 that the codes stand for; `MalformedError` if that is not clear."""
        if self.problem is not None:
            raise MalformedError(self.problem, path=self.codes.name)
        if self.meant is not None:
            return self.meant
        made = ScaledTensor(self.name, self.codes, self.scales, self.zero)
        return TurnedTensor(made) if self.is_turned else made

    @property
    def factor(self) -> str:
        """The name of what the codes are multiplied by, the first of several; of what they stand for, if by nothing."""
        return self.parts[0].name if self.parts else self.name

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON: single numbers as such, others as the name of their tensor."""
        found = dict(self.told)
        for key, part in list(found.items()):
            if isinstance(part, Tensor):
                found[key] = _one(part) if part.size == 1 and part.is_complete else part.name
        if self.problem is not None:
            found["problem"] = self.problem
        return found

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.to_dict().items() if key != "problem")


def quantisation_of(viewer: Viewer, tensor: Tensor) -> Quantisation | None:
    """Return how ``tensor`` is meant if the model has scales for it; None if its elements are the numbers."""
    told: Quantisation | None = viewer.quantisation(tensor)
    if told is not None:
        return told
    word = None if tensor.dtype is None else tensor.dtype.name
    if word in _FLOAT8:
        return _float8(viewer, tensor)
    found = None
    if word == "uint8":
        found = _mxfp4(viewer, tensor) or _nvfp4(viewer, tensor)
    return found or (_affine(viewer, tensor) if word in _INTEGERS else None)


def dequantized(viewer: Viewer, name: str) -> Tensor:
    """Return what the tensor ``name`` stands for: codes are multiplied by the scales that the model has for them.

    A tensor of float32, computed as it is read (`pparse.tensors.scales.ComputedTensor`); of any other tensor, itself.
    Raises `MalformedError` if it is not clear which scale holds for which code, and what ``viewer[name]`` raises.
    """
    return meant(viewer, viewer[name])


def meant(viewer: Viewer, tensor: Tensor, *, dequantize: bool = True) -> Tensor:
    """Return what a tensor of the model stands for, as `dequantized` does; without ``dequantize``, itself."""
    found = quantisation_of(viewer, tensor) if dequantize else None
    return tensor if found is None else found.tensor()


def codes_of(viewer: Viewer, tensor: Tensor) -> Quantisation | None:
    """Return how the codes are meant that ``tensor``, a scale or the like, belongs to; None if it belongs to none."""
    told = viewer.codes_with(tensor)
    if told is not None:
        return _with_part(viewer, told.name, tensor)
    for added in _ADDED:
        if tensor.name.endswith(added):
            found = _with_part(viewer, tensor.name.removesuffix(added), tensor)
        elif f".{tensor.name}" == added:  # of a tensor that is all there is, whose name is empty
            found = _with_part(viewer, "", tensor)
        else:
            continue
        if found is not None:
            return found
    for codes, scales in _BLOCKS.items():
        if tensor.name.endswith(scales):
            return _with_part(viewer, tensor.name.removesuffix(scales) + codes, tensor)
    return None


def is_scale(viewer: Viewer, tensor: Tensor) -> bool:
    """Return whether ``tensor`` is a scale or the like: one of codes, or of what they are multiplied with (inputs)."""
    if codes_of(viewer, tensor) is not None:
        return True
    weight = viewer.find(tensor.name.removesuffix(_INPUTS) + _WEIGHT) if tensor.name.endswith(_INPUTS) else None
    return weight is not None and quantisation_of(viewer, weight) is not None


def _with_part(viewer: Viewer, name: str, part: Tensor) -> Quantisation | None:
    codes = viewer.find(name)
    found = None if codes is None else quantisation_of(viewer, codes)
    return found if found is not None and any(other.name == part.name for other in found.parts) else None


def _one(numbers: Tensor) -> float | int:
    """Return the one number of a tensor."""
    value: float | int = numbers.numpy().reshape(-1)[0].item()
    return value


# -- float8 ------------------------------------------------------------------------------------------------------------


def _float8(viewer: Viewer, codes: Tensor) -> Quantisation | None:
    scale = next((part for end in _SCALES_OF_FLOAT8 if (part := viewer.find(codes.name + end)) is not None), None)
    if scale is None:
        return None
    found = Quantisation(codes.name, codes, (scale,))
    found.told["scale"] = scale
    if scale.dtype is None or scale.dtype.kind != "float":
        found.problem = f"its scale {scale.name} is of {scale.type_name}, no type of scales"
        return found
    steps = _steps(viewer, codes.shape, scale.shape)
    if isinstance(steps, str):
        found.problem = f"its scale {scale.name} {steps}"
        return found
    if scale.size == 1:
        found.scales.append(Grid(scale))
    else:
        found.scales.append(Grid(scale, range(len(steps)), steps))
        found.told["block"] = [*steps, *codes.shape[len(steps) :]]
    return found


def _steps(viewer: Viewer, shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[int, ...] | str:
    """Return for how many elements along each dimension one of the scales holds; why that is not clear, in words."""
    if all(length == 1 for length in scales):
        return shape[: len(scales)]
    if len(scales) < len(shape) and scales == shape[: len(scales)]:
        return (1,) * len(scales)
    said = f"of {shape_words(scales)} for codes of {shape_words(shape)}"
    if len(scales) != len(shape):
        return f"is {said}: for which of them each holds is not known"
    for block in _block_sizes(viewer):
        told = _told_steps(block, shape, scales)
        return told or f"is {said}: these are not blocks of {shape_words(block)}, as {_CONFIG} says ({_PATH_TO_BLOCK})"
    fitting = _fitting(shape, scales)
    if len(fitting) == 1:
        return fitting.pop()
    why = "several sizes of blocks fit" if fitting else "no size of blocks fits"
    return f"is {said}: {why}, and no {_CONFIG} beside the file says one ({_PATH_TO_BLOCK})"


def _fitting(shape: tuple[int, ...], scales: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Return all sizes of blocks that divide a shape up: the last square ones may be cut, others are not."""
    exact = [
        length if count == 1 else length // count if count and not length % count else 0
        for length, count in zip(shape, scales, strict=True)
    ]
    found = {tuple(exact)} if all(exact) else set()
    for length, count, step in zip(shape, scales, exact, strict=True):
        if step > 1 and 1 < count < length and len(shape) > 1:
            steps = _told_steps((step, step), shape, scales)
            if steps is not None:
                found.add(steps)
    return found


def _told_steps(block: tuple[int, ...], shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the steps of blocks of that size along the last dimensions; None if the scales are not so many.

    Where there is one scale for each element or one for all, it says so itself.
    """
    steps = (1,) * (len(shape) - len(block)) + block[-len(shape) :]
    found = []
    for length, count, step in zip(shape, scales, steps, strict=True):
        if count == -(-length // step):
            found.append(min(step, length) or 1)
        elif count in (1, length):
            found.append(length if count == 1 else 1)
        else:
            return None
    return tuple(found)


def _block_sizes(viewer: Viewer) -> Iterator[tuple[int, ...]]:
    """Yield the size of blocks that the model's configuration names, if it names one."""
    from json import loads

    try:
        data = viewer.extraction.outermost.sibling(_CONFIG, any_content=True).data
        size = data.size
        if size is None or size > _LARGEST_CONFIG:
            return
        told: Any = loads(data.pread(0, size))
    except (PparseError, ValueError, RecursionError):
        return
    for key in _PATH_TO_BLOCK.split("."):
        told = told.get(key) if isinstance(told, dict) else None
    if isinstance(told, list) and told and all(type(number) is int and number > 0 for number in told):
        yield tuple(told)


# -- elements of four bits ---------------------------------------------------------------------------------------------


def _nvfp4(viewer: Viewer, packed: Tensor) -> Quantisation | None:
    scale, whole = viewer.find(f"{packed.name}_scale"), viewer.find(f"{packed.name}_scale_2")
    if scale is None or whole is None:
        return None
    shape = (*packed.shape[:-1], 2 * packed.shape[-1]) if packed.shape else ()
    found = Quantisation(packed.name, _retyped(packed, "float4_e2m1fn", shape), (scale, whole))
    steps = (*(1 for _ in shape[1:]), _NVFP4_GROUP)
    found.told |= {"scale": scale, "scale_2": whole, "block": [*steps]}
    if not packed.is_stored_as_array or not shape or shape[-1] % _NVFP4_GROUP:
        found.problem = f"elements of four bits in {shape_words(packed.shape)} bytes are no groups of {_NVFP4_GROUP}"
    elif scale.dtype != "float8_e4m3fn" or scale.shape != (*shape[:-1], shape[-1] // _NVFP4_GROUP):
        found.problem = f"its scale {scale.name}, {scale.type_name} of {scale.shape_text}, is not one for each group"
    elif whole.size != 1 or whole.dtype is None or whole.dtype.kind != "float":
        found.problem = f"its scale {whole.name}, {whole.type_name} of {whole.shape_text}, is not one number"
    else:
        found.scales += [Grid(scale, range(len(shape)), steps), Grid(whole)]
    return found


def _mxfp4(viewer: Viewer, packed: Tensor) -> Quantisation | None:
    end = next((end for end in _BLOCKS if packed.name.endswith(end)), None)
    if end is None or len(packed.shape) < 2 or packed.shape[-1] != _MXFP4_BYTES:
        return None
    name = packed.name.removesuffix(end)
    scale = viewer.find(name + _BLOCKS[end])
    if scale is None or scale.dtype != "uint8":
        return None
    shape = (*packed.shape[:-2], packed.shape[-2] * _MXFP4_GROUP)
    found = Quantisation(name, _retyped(packed, "float4_e2m1fn", shape), (scale,))
    steps = (*(1 for _ in shape[1:]), _MXFP4_GROUP)
    found.told |= {"scale": scale, "block": [*steps]}
    if not (packed.is_stored_as_array and scale.is_stored_as_array) or scale.shape != packed.shape[:-1]:
        found.problem = f"its scale {scale.name}, of {scale.shape_text}, is not one for each block"
    else:
        found.scales.append(Grid(_retyped(scale, "float8_e8m0fnu", scale.shape), range(len(shape)), steps))
        # Experts of gpt-oss: transformers multiplies by rows of the whole, the packed ones are its columns.
        found.is_turned = end == "_blocks" and len(shape) == 3
    return found


def _retyped(tensor: Tensor, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Return the bytes of a tensor as elements of another type."""
    made = Tensor(tensor.name, DTYPES[dtype], shape, lambda _: tensor.spans, **tensor._claims())
    made.unwritten_nbytes = tensor.unwritten_nbytes
    return made


# -- whole numbers -----------------------------------------------------------------------------------------------------


def _affine(viewer: Viewer, codes: Tensor) -> Quantisation | None:
    prefix = f"{codes.name}." if codes.name else ""
    scale, zero = viewer.find(f"{prefix}scale"), viewer.find(f"{prefix}zero_point")
    if scale is None or zero is None:
        return None
    axis = viewer.find(f"{prefix}axis")
    found = Quantisation(codes.name, codes, (scale, zero, *(() if axis is None else (axis,))))
    found.told |= {"scale": scale, "zero_point": zero}
    kinds = [None if part.dtype is None else part.dtype.kind for part in (scale, zero)]
    if kinds[0] != "float" or kinds[1] not in (("int",) if axis is None else ("int", "float")):
        found.problem = f"its scale {scale.name} is of {scale.type_name}, its zero point of {zero.type_name}"
        return found
    if axis is None and scale.size == 1 and zero.size == 1:
        found.scales, found.zero = [Grid(scale)], Grid(zero)
        return found
    said = f"its scale {scale.name} is of {scale.shape_text}, its zero point {zero.name} of {zero.shape_text}"
    if axis is None or axis.size != 1 or not axis.is_complete or axis.dtype is None or axis.dtype.kind != "int":
        found.problem = f"{said}, and no {prefix}axis says for which dimension"
        return found
    number = int(_one(axis))
    found.told["axis"] = number
    if not (0 <= number < codes.ndim and scale.shape == zero.shape == (codes.shape[number],)):
        found.problem = f"{said}, for dimension {number} of codes of {codes.shape_text}"
        return found
    found.scales, found.zero = [Grid(scale, (number,), (1,))], Grid(zero, (number,), (1,))
    return found


# -- Of which tensor another one is a part: sparse and nested tensors of PyTorch are listed as their parts -------------

# Parts that only some layouts have, and these layouts: with elements, and with blocks, as values.
_LAYOUTS: Final = {
    "indices": ("sparse_coo", "sparse_coo"),
    "crow_indices": ("sparse_csr", "sparse_bsr"),
    "ccol_indices": ("sparse_csc", "sparse_bsc"),
}
_PARTS: Final = frozenset((*_LAYOUTS, "col_indices", "row_indices", "values", "size"))
_NESTED: Final = ("values", "sizes", "strides", "offsets")
# Numbers that are told one by one.
_MOST: Final = 1000


def whole_of(viewer: Viewer, tensor: Tensor) -> dict[str, Any] | None:
    """Return name, layout and size of what ``tensor`` is a part of, as plain data; None if it is no part.

    Sizes that are too many, or not whole, are the name of their tensor.
    """
    name, dot, part = tensor.name.rpartition(".")
    prefix = name + dot
    if part in _PARTS and (size := viewer.find(f"{prefix}size")) is not None:
        layout = _layout(viewer, prefix, size)
        return None if layout is None else {"name": name, "layout": layout, "size": _numbers(size)}
    if part in _NESTED and all(viewer.find(prefix + other) is not None for other in _NESTED):
        return {"name": name, "layout": "nested", "size": _numbers(viewer[f"{prefix}sizes"])}
    return None


def _layout(viewer: Viewer, prefix: str, size: Tensor) -> str | None:
    values = viewer.find(f"{prefix}values")
    for part, layouts in _LAYOUTS.items():
        if values is not None and size.ndim == 1 and viewer.find(prefix + part) is not None:
            # Values are counted along one dimension in place of two; blocks have two more.
            return layouts[values.ndim > size.size]
    return None


def _numbers(sizes: Tensor) -> Any:
    return sizes.numpy().tolist() if sizes.is_complete and sizes.size <= _MOST else sizes.name
