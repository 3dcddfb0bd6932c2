"""Values of protobuf fields in JSON, as the tree's values: what protobuf's own library reads, and nothing else.

========================  ==========================================================================
kind of field             JSON
========================  ==========================================================================
integers of any kind      a number without a fraction, or a text of one
float, double             a number, a text of one, ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
bool                      ``true``, ``false``; as the key of a map a text
enum                      the name of the value, or its number
string                    a text
bytes                     base64, of either alphabet, with or without padding
========================  ==========================================================================

Source: https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

import binascii
import struct

from pparse.errors import MalformedError
from pparse.kernels.varint import encode_varint
from pparse.lazy import lazy_pattern
from pparse.protobuf.schema import (
    INTEGER_BITS,
    TYPE_BOOL,
    TYPE_BYTES,
    TYPE_DOUBLE,
    TYPE_ENUM,
    TYPE_FLOAT,
    TYPE_INT32,
    TYPE_INT64,
    TYPE_STRING,
    TYPE_UINT32,
    TYPE_UINT64,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.protobuf.schema import FieldType

_INTEGER: Final = lazy_pattern(r"-?[0-9]{1,20}")
_NUMBER: Final = lazy_pattern(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LONGEST: Final = 1000
_WORDS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_FLOAT: Final = struct.Struct("<f")
_PLAIN: Final = bytes.maketrans(b"-_", b"+/")
_SHOWN: Final = 40
_LAYOUTS: Final = {TYPE_FLOAT: "f", TYPE_DOUBLE: "d"}
_VARINTS: Final = (TYPE_INT32, TYPE_INT64, TYPE_UINT32, TYPE_UINT64)
_DIGITS: Final = frozenset("-0123456789")
_MASK: Final = (1 << 64) - 1


def value_of(field: FieldType, value: Any) -> Any:
    """Return the value of the field that ``value``, a scalar of a JSON text, stands for. Raise `MalformedError`."""
    type = field.type
    if type == TYPE_STRING and isinstance(value, str):
        return value
    if type == TYPE_BYTES and isinstance(value, str):
        return decode_base64(value)
    if type == TYPE_BOOL and isinstance(value, bool):
        return value
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        if type in (TYPE_FLOAT, TYPE_DOUBLE):
            return _float(field, value)
        if type == TYPE_ENUM:
            return _enum(field, value)
        if type in INTEGER_BITS:
            return _integer(type, field.type_name, value)
    raise _not(value, field.type_name)


def packed_at_once(field: FieldType, values: list[Any]) -> bytes | None:
    """Return many numbers in wire format, without tags; None if each must be looked at, for one may be no such number.

    Takes numbers for float and double, and numbers or texts, all of one sort, for integers of varints without a zigzag.
    """
    types = set(map(type, values))
    layout = _LAYOUTS.get(field.type)
    if layout is not None and types <= {int, float}:
        try:
            return struct.pack(f"<{len(values)}{layout}", *values)
        except (OverflowError, struct.error):
            return None  # one of them is out of range
    if field.type not in _VARINTS or len(types) != 1 or not types <= {int, str}:
        return None
    if str in types:
        text = "".join(values)
        if not _DIGITS.issuperset(text) or len(text) > 20 * len(values):
            return None
        try:
            values = list(map(int, values))
        except ValueError:
            return None
    signed, bits = INTEGER_BITS[field.type]
    low, high = (-1 << bits - 1, 1 << bits - 1) if signed else (0, 1 << bits)
    if min(values) < low or max(values) >= high:
        return None
    return b"".join([encode_varint(value & _MASK) for value in values])


def key_of(field: FieldType, text: str) -> Any:
    """Return the key of a map that ``text`` stands for. Raise `MalformedError`."""
    if field.type == TYPE_BOOL and text in ("true", "false"):
        return text == "true"
    return value_of(field, text)


def decode_base64(text: str) -> bytes:
    """Return the bytes of a base64 text of either alphabet, with or without padding. Raise `MalformedError`."""
    try:
        plain = text.encode("ascii").translate(_PLAIN)
        for blank in (b"\n", b"\r", b"\t"):
            plain = plain.replace(blank, b"")
        plain = plain[:-2] + plain[-2:].rstrip(b"=")
        return binascii.a2b_base64(plain + b"=" * (-len(plain) % 4), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise MalformedError("the text is not base64") from error


def _not(value: object, name: str) -> MalformedError:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return MalformedError(f"{text[:_SHOWN]} is no {name}")


def _integer(type: int, name: str, value: float | str) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is not None:
            value = int(value)
        elif len(value) <= _LONGEST and _NUMBER.fullmatch(value) is not None:
            value = float(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    signed, bits = INTEGER_BITS[type]
    low, high = (-1 << bits - 1, 1 << bits - 1) if signed else (0, 1 << bits)
    if not isinstance(value, int) or not low <= value < high:
        raise _not(value, name)
    return value


def _float(field: FieldType, value: float | str) -> float:
    if isinstance(value, str):
        if value in _WORDS:
            return _WORDS[value]
        if len(value) > _LONGEST or _NUMBER.fullmatch(value) is None:
            raise _not(value, field.type_name)
    try:
        number = float(value)
        if number in (float("inf"), float("-inf")):
            raise OverflowError
        if field.type == TYPE_FLOAT:
            _FLOAT.pack(number)
    except OverflowError as error:
        raise MalformedError(f"the number is out of the range of {field.type_name}") from error
    return number


def _enum(field: FieldType, value: float | str) -> int:
    numbers = field.enum.numbers if field.enum is not None else {}
    if isinstance(value, str) and value in numbers:
        return numbers[value]
    return _integer(TYPE_INT32, field.type_name, value)
