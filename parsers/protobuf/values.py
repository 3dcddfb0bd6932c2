"""Decodes and encodes scalars of protobuf messages, with or without a schema."""

from __future__ import annotations

import struct

from pparse.errors import MalformedError
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import FIXED32, FIXED64, LEN, START_GROUP, VARINT, read_value
from pparse.protobuf import schema
from pparse.protobuf.schema import TYPE_STRING, signed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.protobuf.schema import FieldType

_MESSAGES: Final = (schema.TYPE_MESSAGE, schema.TYPE_GROUP)
_FIXED: Final = {
    schema.TYPE_DOUBLE: struct.Struct("<d"),
    schema.TYPE_FLOAT: struct.Struct("<f"),
    schema.TYPE_FIXED32: struct.Struct("<I"),
    schema.TYPE_FIXED64: struct.Struct("<Q"),
    schema.TYPE_SFIXED32: struct.Struct("<i"),
    schema.TYPE_SFIXED64: struct.Struct("<q"),
}

# Kinds of fields without a schema, by wire type.
WIRE_KINDS: Final = {VARINT: "varint", FIXED64: "fixed64", LEN: "len", START_GROUP: "group", FIXED32: "fixed32"}


# The values of varints, by type.
_VARINTS: Final[dict[int, Callable[[int], int | bool]]] = {
    schema.TYPE_INT32: signed,
    schema.TYPE_INT64: lambda value: signed(value, 64),
    schema.TYPE_UINT32: lambda value: value & 0xFFFFFFFF,
    schema.TYPE_UINT64: lambda value: value,
    schema.TYPE_BOOL: lambda value: value != 0,
    schema.TYPE_ENUM: signed,
    schema.TYPE_SINT32: lambda value: (value & 0xFFFFFFFF) >> 1 ^ -(value & 1),
    schema.TYPE_SINT64: lambda value: value >> 1 ^ -(value & 1),
}


def is_message(field: FieldType) -> bool:
    """Say whether values of the field are messages (or groups)."""
    return field.type in _MESSAGES


def fixed_size(field: FieldType) -> int | None:
    """Return the size in bytes of a value of the field if it is fixed; else None."""
    layout = _FIXED.get(field.type)
    return layout.size if layout is not None else None


def number_of(field: FieldType, raw: int) -> Any:
    """Return the value of a varint; for an enum its name, if it has one."""
    return named(field, _VARINTS[field.type](raw))


def named(field: FieldType, value: Any) -> Any:
    """Return a value of the field; for the number of an enum's value its name, if it has one."""
    return field.enum.names.get(value, value) if field.enum is not None else value


def decode(field: FieldType | None, wire: int, payload: bytes) -> Any:
    """Return the value of a scalar from its payload (varint, fixed bytes, or content of a length-delimited field).

    Without a schema, numbers are unsigned. The value of an enum is its name. Raise `MalformedError` for text that is
    not UTF-8.
    """
    if wire == VARINT:
        raw, _ = read_value(payload, 0)
        return raw if field is None else number_of(field, raw)
    if wire == LEN:
        return decode_text(payload) if field is not None and field.type == TYPE_STRING else payload
    if field is None:
        return int.from_bytes(payload, "little")
    return _FIXED[field.type].unpack(payload)[0]


def encode(field: FieldType, value: Any) -> bytes:
    """Return the bytes of a scalar as `decode` reads it, with a length if it needs one. An enum may be a name."""
    if field.type in _FIXED:
        return _FIXED[field.type].pack(value)
    if field.wire_type == LEN:
        payload: bytes = value.encode() if isinstance(value, str) else value
        return encode_varint(len(payload)) + payload
    if isinstance(value, str) and field.enum is not None:
        value = field.enum.numbers[value]
    if field.type in (schema.TYPE_SINT32, schema.TYPE_SINT64):
        return encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)
    return encode_varint(int(value) & 0xFFFFFFFFFFFFFFFF)


def decode_text(payload: bytes) -> str:
    """Decode text. Raise `MalformedError` with the offset if it is not UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"the text is not valid UTF-8: {error.reason}", offset=error.start) from error


def scalar_kind(field: FieldType) -> str:
    """Return the kind of a scalar of the field: ``string``, ``enum<tensorflow.DataType>``."""
    return f"enum<{field.type_name}>" if field.type == schema.TYPE_ENUM else field.type_name


def kind_of(field: FieldType) -> str:
    """Return the kind of a node of the field: ``string``, ``tensorflow.NodeDef[]``, ``map<string, int32>``."""
    key, value = field.map_key, field.map_value
    if key is not None and value is not None:
        return f"map<{key.type_name}, {value.type_name}>"
    if field.repeated:
        return f"{field.type_name}[]"
    return field.type_name if is_message(field) else scalar_kind(field)
