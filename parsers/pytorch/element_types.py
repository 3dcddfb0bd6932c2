"""Element types of PyTorch, by the names that checkpoints have for them."""

from __future__ import annotations

from pparse.parsers.pickle.values import Call, Global

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

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
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
    "QUInt4x2Storage": "uint4",
    "QUInt2x4Storage": "uint2",
    "UntypedStorage": "uint8",
    "_UntypedStorage": "uint8",
}
_QUANTIZED: Final = {"QInt8Storage": "qint8", "QUInt8Storage": "quint8", "QInt32Storage": "qint32"}
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
    name = _OF_STORAGE.get(kind.name)
    return None if name is None else (name, _QUANTIZED.get(kind.name, name))


def torch_type(dtype: Any) -> tuple[str, str] | None:
    """Return the numpy (or ml_dtypes) name of a ``torch.dtype``, and torch's word for it; None if it is none."""
    if not isinstance(dtype, Global) or dtype.module != "torch":
        return None
    return _OF_TORCH.get(dtype.name, dtype.name), dtype.name


def layout_name(value: Any) -> str:
    """Return the name of a ``torch.layout``, such as ``sparse_coo``; "" if it is none."""
    if isinstance(value, Call) and value.name == "torch.serialization._get_layout" and value.args:
        return str(value.args[0]).removeprefix("torch.")
    return ""
