"""What a checkpoint of PyTorch holds: storages, and tensors as its calls would rebuild them. Nothing is called.

The functions are those of ``torch/_utils.py``, ``torch/_tensor.py`` and ``torch/nn/parameter.py``.
"""

from __future__ import annotations

import struct
from itertools import zip_longest

from pparse.parsers.pickle.arrays import Array, Described
from pparse.parsers.pickle.values import Call, Global, Persistent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

# -- Element types of PyTorch, by the names that checkpoints have for them ---------------------------------------------

# torch/storage.py: the classes of typed storages; quantized types are stored as their codes.
_OF_STORAGE: Final = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "QUInt4x2Storage": "uint4",
    "QUInt2x4Storage": "uint2",
    "UntypedStorage": "uint8",
    "_UntypedStorage": "uint8",
}
# torch/_prims_common and c10/core/ScalarType.h: names of types, where they are not those of numpy.
_OF_TORCH: Final = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "qint8": "int8",
    "quint8": "uint8",
    "qint32": "int32",
    "float4_e2m1fn_x2": "float4_e2m1fn",
    "bits8": "uint8",
    "bits1x8": "uint8",
    "bits2x4": "uint8",
    "bits4x2": "uint8",
    "bits16": "uint16",
}


def storage_type(kind: Any) -> tuple[str, str] | None:
    """Return the type of the elements of a storage by its class, and torch's word for it; None: unknown."""
    if not isinstance(kind, Global) or kind.module.partition(".")[0] not in ("torch", "storage"):
        return None
    word = _OF_STORAGE.get(kind.name)
    return None if word is None else (_OF_TORCH.get(word, word), word)


def torch_type(dtype: Any) -> tuple[str, str] | None:
    """Return the numpy (or ml_dtypes) name of a ``torch.dtype``, and torch's word for it; None if it is none."""
    if not isinstance(dtype, Global) or dtype.module != "torch":
        return None
    return _OF_TORCH.get(dtype.name, dtype.name), dtype.name


def layout_name(value: Any) -> str:
    """Return the name of a ``torch.layout``, such as ``sparse_coo``; "" if it is none."""
    args = value.args if isinstance(value, Call) and value.name == "torch.serialization._get_layout" else ()
    return str(args[0]).removeprefix("torch.") if isinstance(args, tuple) and args else ""


_UTILS: Final = "torch._utils."
_FROM_TYPE: Final = "torch._tensor._rebuild_from_type_v2"
# Wrappers in wrappers, at most: a parameter of a subclass of a tensor …
_MOST_WRAPPED: Final = 16
# Names of the index tensors of the compressed sparse layouts (torch/_utils.py, _rebuild_sparse_tensor).
_COMPRESSED: Final = {
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsc": ("ccol_indices", "row_indices"),
}

_NESTED: Final = ("values", "sizes", "strides", "offsets")
# Names of the parts that say what the codes of a quantized tensor mean, and types of their numbers by scheme.
_QUANTIZER: Final = ("scale", "zero_point")
_BY_CHANNEL: Final = {"torch.per_channel_affine": "dq", "torch.per_channel_affine_float_qparams": "ff"}
# Sizes, strides, offsets and numbers of elements are ``int64_t`` (c10/util/ArrayRef.h, ``IntArrayRef``): a pickle can
# have numbers of megabytes.
_BEYOND: Final = 1 << 63
# numpy's names of the types of `struct`.
_FORMS: Final = {"d": "<f8", "f": "<f4", "q": "<i8"}


class StorageId:
    """A storage, as a persistent id names it: ``("storage", class, key, location, number of elements)``."""

    __slots__ = ("count", "dtype", "held", "key", "torch_dtype", "view")

    def __init__(self, key: str, dtype: str, torch_dtype: str, count: int, view: Any = None) -> None:
        self.key = key
        """Its name in the checkpoint."""
        self.dtype = dtype
        """Type of its elements; ``uint8`` for untyped storages, whose ``count`` is in bytes."""
        self.torch_dtype = torch_dtype
        """torch's word for it."""
        self.count = count
        """Number of elements."""
        self.view = view
        """Of old files: ``(key of the part, offset, size)`` in elements; None."""
        self.held: Any = None
        """The storage itself, a `pparse.parsers.pytorch.storages.Stored`, if the file has it elsewhere than by key."""

    def as_tensor(self) -> StoredTensor:
        """Return all of its elements as a tensor."""
        return StoredTensor(self, self.dtype, self.torch_dtype, 0, (self.count,), (1,))


class StoredTensor:
    """A tensor, as its checkpoint describes it."""

    __slots__ = ("conj", "dtype", "neg", "offset", "shape", "storage", "stride", "told_by", "torch_dtype")

    def __init__(
        self, storage: StorageId | None, dtype: str, torch_dtype: str, offset: int, shape: Numbers, stride: Numbers
    ) -> None:
        self.storage = storage
        """Where its elements are; None for meta tensors, which have none."""
        self.dtype = dtype
        """numpy's (or ml_dtypes') name of the type."""
        self.torch_dtype = torch_dtype
        """torch's name of the type."""
        self.offset = offset
        """Number of the first element in the storage."""
        self.shape = shape
        """Length of each dimension."""
        self.stride = stride
        """Distance between neighbours along each dimension, in elements."""
        self.conj = False
        """Whether the values are the conjugates of the stored ones."""
        self.neg = False
        """Whether they are the negatives."""
        self.told_by: Sequence[str] = ()
        """What describes it, by the names of members, if the file has several such."""


class Odd(Exception):
    """A call has the name of one that makes a tensor, but not its arguments."""

    code = "bad-tensor"
    """The code of the finding."""


class Refused(Odd):
    """An array that numpy itself refuses to make: what describes it is damaged."""

    code = "bad-array"


class Broken(Refused):
    """What describes a tensor is cut, or no description."""

    code = "bad-tensor"


class Beside(Odd):
    """An array is in a file of its own, which is not read."""

    code = "external"


FROM_BYTES: Final = "torch.storage._load_from_bytes"
Numbers = tuple[int, ...]
Parts = list[tuple[str, "StoredTensor | Array"]]


def storage_id(value: Any) -> StorageId | None:
    """Return what a persistent id says of a storage; None if it is not one of a storage."""
    if isinstance(value, StorageId):
        return value
    parts = value.id if isinstance(value, Persistent) else None
    if not isinstance(parts, tuple) or len(parts) < 5 or parts[0] != "storage":
        return None
    _, kind, key, _, count = parts[:5]
    known = storage_type(kind)
    if known is None or not _is_number(count) or not (type(key) is str or _is_number(key)):
        return None
    view = parts[5] if len(parts) > 5 else None
    if view is not None:
        if not isinstance(view, tuple) or len(view) != 3 or not all(map(_is_number, view[1:])):
            return None
        count = view[2]
    return StorageId(str(key), *known, count, view)


def tensors_of(value: Any) -> Parts | None:
    """Return the tensors that ``value`` stands for, with what is added to its name.

    Sparse, nested and quantized ones have several; what the pickle itself has of them, such as a size, are arrays.

    None if it is no tensor. Raises `Odd` if it should be one, but is not described as one.
    """
    for _ in range(_MOST_WRAPPED):
        if type(value) is not Call:
            found = storage_id(value) if isinstance(value, Persistent | StorageId) else None
            return None if found is None else [("", found.as_tensor())]
        name, args = value.name, value.args
        if name in _WRAPPERS and isinstance(args, tuple) and args:
            value = args[0]
        elif not isinstance(args, tuple) and (name == _FROM_TYPE or (name in _REBUILDERS and value.state is None)):
            raise Odd(f"{name} has no arguments")
        elif name == _FROM_TYPE:
            if len(args) < 3 or not isinstance(args[0], Global):
                raise Odd(f"{name} is not given a function and arguments")
            value = Call(args[0], args[2], start=value.start)
        elif name in _REBUILDERS:
            if value.state is not None:
                raise Odd("it is changed by a state of its own")
            return _REBUILDERS[name](args)
        elif name.startswith("torch.") and name.endswith("Tensor") and value.state is not None:
            raise Odd(f"it is made as {name} and a state, which is not read")
        else:
            return None
    raise Odd("a tensor is wrapped too often")


_WRAPPERS: Final = frozenset(
    (
        *("torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer", "torch.nn.Parameter"),
        *("torch.autograd.variable.Variable", "torch.autograd.Variable", _UTILS + "_rebuild_parameter"),
        *(_UTILS + "_rebuild_parameter_with_state", _UTILS + "_rebuild_xla_tensor"),
        _UTILS + "_rebuild_device_tensor_from_cpu_tensor",
    )
)


def with_storage(value: Any, open_bytes: Callable[[bytes], StorageId | None]) -> Any:
    """Return ``value`` with the storages that it has as bytes, checkpoints of their own (``torch.storage.__reduce__``),
    opened: its own, and those of the tensors it is made of; ``value`` itself if it has none."""
    if not isinstance(value, Call) or value.name not in _OF_PARTS or not isinstance(value.args, tuple):
        is_by_id = type(value) is Call and type(value.args) is tuple and type((*value.args, None)[0]) is Persistent
        return value if is_by_id else _with_own_storage(value, open_bytes)  # nearly all are in the file by their id
    opened = [
        tuple(_with_own_storage(part, open_bytes) for part in arg)
        if isinstance(arg, tuple)
        else _with_own_storage(arg, open_bytes)
        for arg in value.args
    ]
    return Call(value.callable, tuple(opened), value.kwargs, value.start) if value.state is None else value


def _with_own_storage(value: Any, open_bytes: Callable[[bytes], StorageId | None]) -> Any:
    chain: list[Call] = []
    inner = value
    while isinstance(inner, Call) and len(chain) < _MOST_WRAPPED and isinstance(inner.args, tuple) and inner.args:
        if inner.name == FROM_BYTES:
            content = inner.args[0]
            made: Any = open_bytes(bytes(content)) if isinstance(content, bytes | bytearray) else None
            if made is None:
                return value
            for call in reversed(chain):
                made = Call(call.callable, (made, *call.args[1:]), call.kwargs, call.start)
            return made
        chain.append(inner)
        inner = inner.args[0]
    return value


def numpy_inside(value: Any) -> tuple[Any, str] | None:
    """Return the numpy array that a tensor was saved as, and the type that it is to have; None if it was not."""
    for call in _wrapped(value):
        if call.name == _UTILS + "_rebuild_device_tensor_from_numpy" and len(call.args) > 1:
            known = torch_type(call.args[1])
            return None if known is None else (call.args[0], known[0])
    return None


def wrapped_state(value: Any) -> Any:
    """Return the attributes that a tensor was saved with, if it has any of its own; else None."""
    if type(value) is Call and value.name in _REBUILDERS:  # nearly all: nothing is around them
        return None
    for call in _wrapped(value):
        if call.name in (_FROM_TYPE, _UTILS + "_rebuild_parameter_with_state"):
            return call.args[3] if len(call.args) > 3 else None
    return None


def _wrapped(value: Any) -> Iterator[Call]:
    """Yield the calls with arguments that wrap each other, from the outermost one to the first that is no wrapper."""
    for _ in range(_MOST_WRAPPED):
        if not isinstance(value, Call) or not isinstance(value.args, tuple) or not value.args:
            return
        yield value
        if value.name not in _WRAPPERS:
            return
        value = value.args[0]


def numbers(value: Any) -> Numbers:
    """Return a size or a stride: a tuple or list of numbers, or a ``torch.Size`` of one. Raises `Odd`."""
    if isinstance(value, Call) and value.name == "torch.Size" and isinstance(value.args, tuple) and value.args:
        value = value.args[0]
    if type(value) is not tuple and not isinstance(value, tuple | list):
        raise Odd("a size or stride is not a tuple of numbers")
    for number in value:  # all() would make a generator, in four times the time
        if type(number) is not int or not 0 <= number < _BEYOND:
            raise Odd("a size or stride is not a tuple of numbers, each from 0 to 2^63 - 1")
    return tuple(value)


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < _BEYOND


def _strided(args: tuple[Any, ...], least: int = 4) -> tuple[StorageId, int, Numbers, Numbers]:
    """Return what the first four of ``args`` say, of which there must be at ``least`` so many. Raises `Odd`."""
    if len(args) < least:
        raise Odd("a tensor has too few arguments")
    storage, offset, size, stride = args[:4]
    found = storage_id(storage)
    if found is None:
        raise Odd("its storage is not a known one")
    shape, steps = numbers(size), numbers(stride)
    if not _is_number(offset) or len(shape) != len(steps):
        raise Odd("its offset, size and stride do not fit")
    return found, offset, shape, steps


def _tensor(args: tuple[Any, ...]) -> Parts:
    """``_rebuild_tensor(storage, offset, size, stride)``, ``_v2(…, requires_grad, hooks[, metadata])``."""
    storage, offset, shape, stride = _strided(args)
    made = StoredTensor(storage, storage.dtype, storage.torch_dtype, offset, shape, stride)
    return _with_bits(made, args[6:7])


def _tensor_v3(args: tuple[Any, ...]) -> Parts:
    """``_rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype[, metadata])``."""
    storage, offset, shape, stride = _strided(args, 7)
    known = torch_type(args[6])
    if known is None:
        raise Odd("its type is not a torch.dtype")
    if known[1] == "float4_e2m1fn_x2":  # two elements in each of torch's
        if not shape or stride[-1] != 1:
            raise Odd("its elements, of four bits, do not follow each other")
        shape, offset = (*shape[:-1], 2 * shape[-1]), 2 * offset
        stride = (*(2 * step for step in stride[:-1]), 1)
    return _with_bits(StoredTensor(storage, *known, offset, shape, stride), args[7:8])


def _with_bits(made: StoredTensor, metadata: tuple[Any, ...]) -> Parts:
    """Return a tensor that is the conjugate or the negative of what is stored if its metadata, if any, say so."""
    if metadata and isinstance(metadata[0], dict):
        made.conj, made.neg = bool(metadata[0].get("conj")), bool(metadata[0].get("neg"))
        if (made.neg and made.dtype.startswith(("int", "uint", "bool"))) or (made.conj and "complex" not in made.dtype):
            raise Odd(f"it is to be negated or conjugated, and of type {made.dtype}")
    return [("", made)]


def _quantized(args: tuple[Any, ...]) -> Parts:
    """``_rebuild_qtensor(storage, offset, size, stride, quantizer, requires_grad, hooks)``: its codes, and their scale,
    zero point, and the axis for which there are several.

    The quantizer is ``(scheme, scale, zero point)``, or with tensors of them ``(scheme, scales, zero points, axis)``.
    """
    storage, offset, shape, stride = _strided(args)
    made = StoredTensor(storage, storage.dtype, storage.torch_dtype, offset, shape, stride)
    told: Any = args[4] if len(args) > 4 else None
    scheme = str(told[0]) if isinstance(told, tuple) and len(told) > 2 else ""
    if scheme == "torch.per_tensor_affine" and type(told[2]) is int and isinstance(told[1], int | float):
        return [("", made), (".scale", _held((), "d", [told[1]])), (".zero_point", _held((), "q", [told[2]]))]
    if scheme not in _BY_CHANNEL or len(told) != 4 or type(told[3]) is not int:
        raise Odd("its scale and zero point are not described as known")
    if isinstance(told[1], list) and isinstance(told[2], list):  # as torch before 1.7 wrote them
        named = zip(_QUANTIZER, _BY_CHANNEL[scheme], told[1:3], strict=True)
        parts: Parts = [(f".{name}", _held((len(numbers),), form, numbers)) for name, form, numbers in named]
    else:
        parts = _parts(_QUANTIZER, told[1:3])
    if not 0 <= told[3] < len(made.shape) or any(part.shape != (made.shape[told[3]],) for _, part in parts):
        raise Odd(f"its scales are not one for each index along dimension {told[3]}")
    return [("", made), *parts, (".axis", _held((), "q", [told[3]]))]


def _held(shape: tuple[int, ...], form: str, numbers: Any) -> Array:
    """Return numbers that the pickle has outside of tensors as an array; ``form`` as `struct` has it. Raises `Odd`."""
    try:
        content = struct.pack(f"<{len(numbers)}{form}", *numbers)
    except (TypeError, OverflowError, struct.error) as error:
        raise Odd("what should be numbers are none") from error
    return Array(shape, Described(_FORMS[form], _FORMS[form]), content)


def _meta(args: tuple[Any, ...]) -> Parts:
    """``_rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad)``: no elements at all."""
    known = torch_type(args[0]) if len(args) > 2 else None
    if known is None:
        raise Odd("a meta tensor has no type")
    return [("", StoredTensor(None, *known, 0, numbers(args[1]), numbers(args[2])))]


def _sparse(args: tuple[Any, ...]) -> Parts:
    """``_rebuild_sparse_tensor(layout, data)``: its index tensors, values, and the size of the whole."""
    layout = layout_name(args[0]) if len(args) == 2 else ""
    data = args[1] if len(args) == 2 else ()
    names = ("indices",) if layout == "sparse_coo" else _COMPRESSED.get(layout)
    if names is None or not isinstance(data, tuple) or len(data) < len(names) + 2:
        raise Odd("a sparse tensor has an unknown layout")
    size = numbers(data[len(names) + 1])
    return [*_parts((*names, "values"), data), (".size", _held((len(size),), "q", size))]


def _nested(args: tuple[Any, ...]) -> Parts:
    """``_rebuild_nested_tensor(buffer, sizes, strides, offsets)``: its buffer, and the place of each tensor in it."""
    return _parts(_NESTED, args)


def _parts(names: tuple[str, ...], data: tuple[Any, ...]) -> Parts:
    found: Parts = []
    for name, part in zip_longest(names, data[: len(names)]):
        inner = tensors_of(part) or []
        if len(inner) != 1 or inner[0][0]:
            raise Odd(f"its {name} are not a tensor")
        found.append((f".{name}", inner[0][1]))
    return found


# Those whose arguments are, or hold, tensors, or storages that are not the first thing inside.
_OF_PARTS: Final = frozenset(
    _UTILS + name for name in ("_rebuild_qtensor", "_rebuild_sparse_tensor", "_rebuild_nested_tensor")
)
_REBUILDERS: Final[dict[str, Callable[[tuple[Any, ...]], Parts]]] = {
    _UTILS + "_rebuild_tensor": _tensor,
    _UTILS + "_rebuild_tensor_v2": _tensor,
    _UTILS + "_rebuild_tensor_v3": _tensor_v3,
    _UTILS + "_rebuild_qtensor": _quantized,
    _UTILS + "_rebuild_meta_tensor_no_storage": _meta,
    _UTILS + "_rebuild_sparse_tensor": _sparse,
    _UTILS + "_rebuild_nested_tensor": _nested,
}
