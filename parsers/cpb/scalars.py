"""Scalars in chunks of a ``.cpb``: how the value of a scalar field is encoded as the bytes of a chunk.

========================  ==============================================================
kind of field             bytes of the chunk
========================  ==============================================================
integers of any kind      decimal text: ``-12``
float, double             decimal text as Python and C++ write it: ``0.1``, ``1e-05``, ``inf``, ``-inf``, ``nan``
bool                      ``true`` or ``false``
enum                      the name of the value
string                    the text itself, UTF-8
bytes                     the bytes themselves
========================  ==============================================================

TensorFlow's Merger (tensorflow/tools/proto_splitter/cc/util.cc) accepts more, and misreads it: ``12xyz`` as 12,
``0x1f`` as 0, ``1`` as false, ``-1`` as the largest unsigned number; binary numbers, and numbers out of range, abort
its process. Here everything that is not in the table is an error.
"""

from __future__ import annotations

import math
import struct

from pparse.errors import MalformedError
from pparse.lazy import lazy_pattern
from pparse.protobuf import schema
from pparse.protobuf.schema import INTEGER_RANGES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, Protocol

    class ScalarField(Protocol):
        """The interface needed of a field, such as ``FieldType`` of `pparse.protobuf.schema`."""

        @property
        def type(self) -> int:
            """A FieldDescriptorProto.Type."""

        @property
        def type_name(self) -> str:
            """The type's name, for errors."""

        @property
        def enum(self) -> Any:
            """The enum type of the field, if it has one: ``numbers`` has those of its values by name."""

    Scalar = int | float | bool | str | bytes
    Key = int | bool | str


_KEY_NUMBER: Final = lazy_pattern(r"-?[0-9]{1,20}")
_KEY_WORDS: Final = {"true": True, "false": False}
_INTEGER: Final = lazy_pattern(rb"-?[0-9]{1,40}+")
_REAL: Final = lazy_pattern(rb"-?(?:([0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]{1,6}+)?+|inf|nan)")
# A double in full (``%f`` of the least one) has some 1,080 characters.
_MAX_REAL: Final = 2_000
_SHOWN: Final = 40


def decode_scalar(text: bytes, field: ScalarField) -> Scalar:
    """Decode ``text``, the bytes of a chunk, as a value of ``field``; an enum value becomes its number.

    Raise `MalformedError` for bytes that are not a value of the field's type: nothing is guessed or truncated to fit.
    """
    kind = field.type
    if kind == schema.TYPE_BYTES:
        return bytes(text)
    if kind == schema.TYPE_STRING:
        try:
            return str(text, "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedError(f"not UTF-8 for a string field: {error.reason} at byte {error.start}") from error
    text = bytes(text[: _MAX_REAL + 1])
    if kind in INTEGER_RANGES:
        return _integer(text, kind, field.type_name)
    if kind in (schema.TYPE_DOUBLE, schema.TYPE_FLOAT):
        return _real(text, kind, field.type_name)
    if kind == schema.TYPE_BOOL:
        if text not in (b"true", b"false"):
            raise _not_a("bool", text, "true or false")
        return text == b"true"
    if kind == schema.TYPE_ENUM and field.enum is not None:
        number: int | None = field.enum.numbers.get(text.decode("ascii", "replace"))
        if number is None:
            raise _not_a(field.type_name, text, "the name of one of its values")
        return number
    raise MalformedError(f"a field of type {field.type_name} is not a scalar: a chunk cannot be its value")


def _integer(text: bytes, kind: int, name: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise _not_a(name, text, "decimal text")
    value = int(text)
    values = INTEGER_RANGES[kind]
    if value not in values:
        wanted = f"{values.start}..{values.stop - 1}"
        raise MalformedError(f"out of the range of {name}", wanted=wanted, got=value)
    return value


def _real(text: bytes, kind: int, name: str) -> float:
    match = _REAL.fullmatch(text) if len(text) <= _MAX_REAL else None
    if match is None:
        raise _not_a(name, text, "decimal text")
    value = float(text)
    digits: bytes | None = match[1]
    if digits is None:  # inf, nan
        return value
    if kind == schema.TYPE_FLOAT and math.isfinite(value):
        value = _to_float32(value, text)
    if math.isinf(value) or (not value and digits.strip(b"0.")):
        raise MalformedError(f"out of the range of {name}", got=_shown(text.decode("ascii")))
    return value


def _to_float32(value: float, text: bytes) -> float:
    """Return the float32 nearest to the number in ``text``, whose nearest double is ``value``."""
    from decimal import Decimal

    exact, near = Decimal(text.decode("ascii")), Decimal(value)
    if exact != near:
        # Rounding twice can go wrong if the first result is halfway between two float32. Of the two doubles around the
        # number, the odd one is never halfway, and on the right side of the half.
        other = math.nextafter(value, math.inf if exact > near else -math.inf)
        if not struct.pack("<d", value)[0] & 1:
            value = other
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf
    return rounded


def key_as(given: Key, kind: int) -> Key | None:
    """Return a key (or an index, a uint64) in the tag of a chunked field as one of type ``kind``; None if it is none.

    As in TensorFlow's Merger, the form in the tag does not matter: a number and its text are the same key.
    """
    if kind == schema.TYPE_STRING:
        return given if isinstance(given, str) else None if isinstance(given, bool) else str(given)
    if kind == schema.TYPE_BOOL:
        return _KEY_WORDS.get(given) if isinstance(given, str) else bool(given)
    if isinstance(given, str) and _KEY_NUMBER.fullmatch(given):
        given = int(given)
    fits = isinstance(given, int) and not isinstance(given, bool) and given in INTEGER_RANGES.get(kind, ())
    return given if fits else None


def _not_a(name: str, text: bytes, wanted: str) -> MalformedError:
    return MalformedError(f"not a value of type {name}", wanted=wanted, got=_shown(repr(text[: _SHOWN + 1])[1:]))


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
