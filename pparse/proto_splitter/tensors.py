"""The bytes of a tensor's values, from the typed lists of a TensorProto (tensorflow/core/framework/tensor.proto)."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

# By DataType: the field that has the values, the numpy type they are given as, and the one they are stored as. Lists
# of halves are bit patterns; complex numbers are pairs. Text, resources, variants and packed types are not here: their
# bytes have no form that every reader understands.
_STORED: Final = {
    1: ("float_val", "<f4", "<f4"),
    2: ("double_val", "<f8", "<f8"),
    3: ("int_val", "<i4", "<i4"),
    4: ("int_val", "<i4", "u1"),
    5: ("int_val", "<i4", "<i2"),
    6: ("int_val", "<i4", "i1"),
    8: ("scomplex_val", "<f4", "<f4"),
    9: ("int64_val", "<i8", "<i8"),
    10: ("bool_val", "u1", "u1"),
    11: ("int_val", "<i4", "i1"),
    12: ("int_val", "<i4", "u1"),
    13: ("int_val", "<i4", "<i4"),
    14: ("half_val", "<i4", "<u2"),
    15: ("int_val", "<i4", "<i2"),
    16: ("int_val", "<i4", "<u2"),
    17: ("int_val", "<i4", "<u2"),
    18: ("dcomplex_val", "<f8", "<f8"),
    19: ("half_val", "<i4", "<u2"),
    22: ("uint32_val", "<u4", "<u4"),
    23: ("uint64_val", "<u8", "<u8"),
    24: ("float8_val", "u1", "u1"),
    25: ("float8_val", "u1", "u1"),
    29: ("int_val", "<i4", "i1"),
    30: ("int_val", "<i4", "u1"),
}
_PAIRS: Final = (8, 18)
_KEPT: Final = ("dtype", "tensor_shape", "version_number")


def value_fields(tensor: Any) -> list[str]:
    """Return the names of the fields that hold values."""
    return [field.name for field, _ in tensor.ListFields() if field.name not in _KEPT]


def raw_content(tensor: Any, max_bytes: int) -> bytes | None:
    """Return the bytes of a TensorProto's values, in memory order, little-endian; None if the type has no such bytes.

    A list shorter than the tensor repeats its last value, so the result may exceed the bytes given, up to
    ``max_bytes``.
    """
    if tensor.tensor_content:
        return bytes(tensor.tensor_content)
    stored = _STORED.get(tensor.dtype)
    dims = [dim.size for dim in tensor.tensor_shape.dim]
    if stored is None or tensor.tensor_shape.unknown_rank or min(dims, default=0) < 0:
        return None
    name, given, wanted = stored
    values = getattr(tensor, name, b"")
    width = 2 if tensor.dtype in _PAIRS else 1
    count = math.prod(dims) * width
    if not values or len(values) > count or len(values) % width:
        return None
    import numpy as np

    kind = np.dtype(wanted)
    if count * kind.itemsize > max_bytes:
        return None
    if isinstance(values, bytes):
        listed = np.frombuffer(values, given)
    else:
        listed = np.fromiter(values, given, len(values))
    out = np.empty(count, kind)
    out[: len(listed)] = listed.astype(kind)
    if len(listed) < count:
        out[len(listed) :].reshape(-1, width)[:] = out[len(listed) - width : len(listed)]
    return out.tobytes()
