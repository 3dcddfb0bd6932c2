"""The enum DataType of TensorFlow: what elements are, and which field of a TensorProto lists them."""

from __future__ import annotations

from pparse.tensors.dtype import DTYPES, in_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.tensors.dtype import DType

REFERENCE: Final = 100  # added to the number of a type, for a reference to one
TEXT_TYPES: Final = (7, 7 + REFERENCE)
# Fields of a TensorProto, and of the messages of its shape.
STRING_FIELD: Final = 8
_FLOAT8: Final = 18


# Per number of the enum DataType: the type, the field that lists its elements, the numpy type of one listed number in
# the array, and the number of these per element.
ELEMENT_TYPES: Final[dict[int, tuple[DType, int, str, int]]] = {
    1: (DTYPES["float32"], 5, "<f4", 1),
    2: (DTYPES["float64"], 6, "<f8", 1),
    3: (DTYPES["int32"], 7, "<i4", 1),
    4: (DTYPES["uint8"], 7, "u1", 1),
    5: (DTYPES["int16"], 7, "<i2", 1),
    6: (DTYPES["int8"], 7, "i1", 1),
    8: (DTYPES["complex64"], 9, "<f4", 2),
    9: (DTYPES["int64"], 10, "<i8", 1),
    10: (DTYPES["bool"], 11, "u1", 1),
    11: (DTYPES["int8"], 7, "i1", 1),
    12: (DTYPES["uint8"], 7, "u1", 1),
    13: (DTYPES["int32"], 7, "<i4", 1),
    14: (DTYPES["bfloat16"], 13, "<u2", 1),
    15: (DTYPES["int16"], 7, "<i2", 1),
    16: (DTYPES["uint16"], 7, "<u2", 1),
    17: (DTYPES["uint16"], 7, "<u2", 1),
    18: (DTYPES["complex128"], 12, "<f8", 2),
    19: (DTYPES["float16"], 13, "<u2", 1),
    22: (DTYPES["uint32"], 16, "<u4", 1),
    23: (DTYPES["uint64"], 17, "<u8", 1),
    24: (DTYPES["float8_e5m2"], _FLOAT8, "u1", 1),
    25: (DTYPES["float8_e4m3fn"], _FLOAT8, "u1", 1),
    26: (DTYPES["float8_e4m3fnuz"], _FLOAT8, "u1", 1),
    27: (DTYPES["float8_e4m3b11fnuz"], _FLOAT8, "u1", 1),
    28: (DTYPES["float8_e5m2fnuz"], _FLOAT8, "u1", 1),
    29: (in_bytes("int4"), 7, "i1", 1),
    30: (in_bytes("uint4"), 7, "u1", 1),
    31: (in_bytes("int2"), 7, "i1", 1),
    32: (in_bytes("uint2"), 7, "u1", 1),
    33: (in_bytes("float4_e2m1fn"), _FLOAT8, "u1", 1),
}


def element_type(number: int) -> tuple[DType, int, str, int] | None:
    """Return what `ELEMENT_TYPES` has on a number ; a reference type counts as the type it refers to; None: nothing."""
    return ELEMENT_TYPES.get(number - REFERENCE if number > REFERENCE else number)


def dtype_of(number: int) -> DType | None:
    """Return the element type of a number of the enum DataType; None for texts, and for what has no numbers."""
    found = element_type(number)
    return found[0] if found is not None else None
