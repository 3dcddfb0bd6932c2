"""The enum TensorProto.DataType: what elements are, and how a field lists them (onnx/onnx-ml.proto)."""

from __future__ import annotations

from collections import namedtuple

from pparse.tensors.dtype import DTYPES, DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

STRING: Final = 8
# The fields of a TensorProto that list elements.
FLOAT_DATA, INT32_DATA, STRING_DATA, INT64_DATA, DOUBLE_DATA, UINT64_DATA = 4, 5, 6, 7, 10, 11


class ElementType(namedtuple("ElementType", "name dtype field code words listed")):
    """One type: its array type, and the field that lists its elements if they are not in ``raw_data``.

    ``dtype``: the type of elements; None: strings. Below 8 bits they are packed, the first in the low bits. ``code``:
    the numpy type of one listed number; a byte of it has several elements if these have 2 or 4 bits. ``words``: listed
    numbers per element, two for complex ones. ``listed``: the type of elements that are listed: those of 6 bits take a
    number each.
    """

    __slots__ = ()


def _of(name: str, dtype: str, field: int, code: str, words: int = 1, listed: DType | None = None) -> ElementType:
    return ElementType(name, DTYPES[dtype], field, code, words, listed or DTYPES[dtype])


def _six(name: str, dtype: str) -> ElementType:
    return _of(name, dtype, INT32_DATA, "u1", listed=DType(dtype, 8, DTYPES[dtype].kind))


ELEMENT_TYPES: Final[dict[int, ElementType]] = {
    1: _of("FLOAT", "float32", FLOAT_DATA, "<f4"),
    2: _of("UINT8", "uint8", INT32_DATA, "u1"),
    3: _of("INT8", "int8", INT32_DATA, "i1"),
    4: _of("UINT16", "uint16", INT32_DATA, "<u2"),
    5: _of("INT16", "int16", INT32_DATA, "<i2"),
    6: _of("INT32", "int32", INT32_DATA, "<i4"),
    7: _of("INT64", "int64", INT64_DATA, "<i8"),
    STRING: ElementType("STRING", None, STRING_DATA, "", 1, None),
    9: _of("BOOL", "bool", INT32_DATA, "u1"),
    10: _of("FLOAT16", "float16", INT32_DATA, "<u2"),
    11: _of("DOUBLE", "float64", DOUBLE_DATA, "<f8"),
    12: _of("UINT32", "uint32", UINT64_DATA, "<u4"),
    13: _of("UINT64", "uint64", UINT64_DATA, "<u8"),
    14: _of("COMPLEX64", "complex64", FLOAT_DATA, "<f4", 2),
    15: _of("COMPLEX128", "complex128", DOUBLE_DATA, "<f8", 2),
    16: _of("BFLOAT16", "bfloat16", INT32_DATA, "<u2"),
    17: _of("FLOAT8E4M3FN", "float8_e4m3fn", INT32_DATA, "u1"),
    18: _of("FLOAT8E4M3FNUZ", "float8_e4m3fnuz", INT32_DATA, "u1"),
    19: _of("FLOAT8E5M2", "float8_e5m2", INT32_DATA, "u1"),
    20: _of("FLOAT8E5M2FNUZ", "float8_e5m2fnuz", INT32_DATA, "u1"),
    21: _of("UINT4", "uint4", INT32_DATA, "u1"),
    22: _of("INT4", "int4", INT32_DATA, "u1"),
    23: _of("FLOAT4E2M1", "float4_e2m1fn", INT32_DATA, "u1"),
    24: _of("FLOAT8E8M0", "float8_e8m0fnu", INT32_DATA, "u1"),
    25: _of("UINT2", "uint2", INT32_DATA, "u1"),
    26: _of("INT2", "int2", INT32_DATA, "u1"),
    27: _six("FLOAT6E2M3", "float6_e2m3fn"),
    28: _six("FLOAT6E3M2", "float6_e3m2fn"),
}


def type_name(number: int) -> str:
    """Return the name of a type as numpy or ml_dtypes has it: ``float32``; ``string``; ``type 99`` if it is unknown."""
    known = ELEMENT_TYPES.get(number)
    if known is None:
        return f"type {number}" if number else "undefined"
    return known.dtype.name if known.dtype is not None else "string"
