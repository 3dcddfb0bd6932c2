"""Sizes of messages by parts.

``ByteSize()`` (upb) encodes the whole message into a buffer to count its bytes. Above 2 GiB it fails or overflows. So
it is called for small pieces only, and the rest is computed from the wire format
(protobuf.dev/programming-guides/encoding). Nothing here recurses, however deep the message is.
"""

from __future__ import annotations

from pparse.proto_splitter.fields import is_map, is_repeated, map_key, map_value
from pparse.protobuf.schema import TYPE_BYTES, TYPE_GROUP, TYPE_STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any, Final

_FIXED: Final = {1: 8, 2: 4, 6: 8, 7: 4, 8: 1, 15: 4, 16: 8}
_ZIGZAG: Final = (17, 18)

# Elements of a longer list are measured by ByteSize(): the buffer holds one element, and it is 10 times as fast.
FEW: Final = 1_000


def varint_size(value: int) -> int:
    """Return the size of ``value`` >= 0 as a varint, in bytes."""
    return (value.bit_length() + 6) // 7 or 1


def tag_size(number: int) -> int:
    """Return the size of a field's tag, in bytes."""
    return varint_size(number << 3)


def framed(tag: int, size: int) -> int:
    """Return the size of a length-delimited field: its tag of ``tag`` bytes, the length, and ``size`` bytes."""
    return tag + varint_size(size) + size


def scalar_size(kind: int, value: Any) -> int:
    """Return the size of one value of a FieldDescriptorProto.Type, with its length but without its tag."""
    width = _FIXED.get(kind)
    if width is not None:
        return width
    if kind == TYPE_STRING:
        size = len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        return varint_size(size) + size
    if kind == TYPE_BYTES:
        return varint_size(len(value)) + len(value)
    if kind in _ZIGZAG:
        return varint_size(value << 1 if value >= 0 else (-value << 1) - 1)
    return varint_size(value) if value >= 0 else 10


def message_frame(field: Any, size: int) -> int:
    """Return the size of a message (or group) of ``size`` bytes as the value of ``field``."""
    return _closed(size, _end_of(field))


def message_size(message: Any) -> int:
    """Return the serialized size of ``message`` in bytes, however large it is."""
    frames = [_opened(message)]
    ends: list[_End] = []
    while True:
        size, pending = frames[-1]
        if pending:
            child, end = pending.pop()
            frames.append(_opened(child))
            ends.append(end)
            continue
        frames.pop()
        if not frames:
            return int(size)
        frames[-1][0] += _closed(size, ends.pop())


def field_size(field: Any, value: Any) -> int:
    """Return the bytes that ``value`` of ``field`` (as of ``ListFields()``) adds to its message."""
    if is_map(field):
        return sum(entry_sizes(field, value, list(value)))
    if not is_repeated(field):
        if field.message_type is not None:
            return message_frame(field, message_size(value))
        return tag_size(field.number) + scalar_size(field.type, value)
    return list_size(field, element_sizes(field, value))


def size_without(message: Any, names: Collection[str]) -> int:
    """Return the serialized size of ``message`` without these fields, in bytes."""
    fields = (field_size(*item) for item in message.ListFields() if item[0].name not in names)
    return unknown_size(message) + sum(fields)


def list_size(field: Any, sizes: Sequence[int]) -> int:
    """Return the size of a repeated field whose elements add ``sizes``."""
    total = sum(sizes)
    return framed(tag_size(field.number), total) if sizes and field.message_type is None and field.is_packed else total


def element_sizes(field: Any, values: Any) -> Sequence[int]:
    """Return how many bytes each element of a repeated field (not a map) adds; for packed ones, without the field's
    frame.
    """
    if field.message_type is not None:
        end = _end_of(field)
        return [_closed(size, end) for size in message_sizes(values)]
    tag, kind = tag_size(field.number), field.type
    width = _FIXED.get(kind)
    if field.is_packed:
        if width is not None:
            return bytes((width,)) * len(values)
        return bytes(scalar_size(kind, value) for value in values)
    return [tag + scalar_size(kind, value) for value in values]


def message_sizes(values: Iterable[Any], by_parts: Callable[[Any], bool] | None = None) -> list[int]:
    """Return the serialized size of each message of a list.

    In a long list, elements for which ``by_parts`` is true are measured without encoding them.
    """
    values = list(values)
    if len(values) <= FEW:
        return [message_size(value) for value in values]
    if by_parts is None:
        return [_encoded_size(value) for value in values]
    return [message_size(value) if by_parts(value) else _encoded_size(value) for value in values]


def entry_sizes(field: Any, mapping: Any, keys: Sequence[Any]) -> list[int]:
    """Return how many bytes each entry of a map adds to the message, in the order of ``keys``."""
    tag, key_kind, value_field = tag_size(field.number), map_key(field).type, map_value(field)
    if value_field.message_type is None:
        kind = value_field.type
        return [framed(tag, 2 + scalar_size(key_kind, key) + scalar_size(kind, mapping[key])) for key in keys]
    sizes = message_sizes(mapping[key] for key in keys)
    return [_closed(size, (tag, 1 + scalar_size(key_kind, key))) for key, size in zip(keys, sizes, strict=True)]


def unknown_size(message: Any) -> int:
    """Return the size of the unknown fields of ``message`` itself."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    size, todo = 0, [UnknownFieldSet(message)]
    while todo:
        for field in todo.pop():
            size += tag_size(field.field_number)
            if field.wire_type == 0:
                size += varint_size(field.data)
            elif field.wire_type == 2:
                size += varint_size(len(field.data)) + len(field.data)
            elif field.wire_type == 3:
                size += tag_size(field.field_number)
                todo.append(field.data)
            else:
                size += 8 if field.wire_type == 1 else 4
    return size


# -- one message at a time -----------------------------------------------------------------------------------------

if TYPE_CHECKING:
    # How a message becomes part of its parent: the size of its tag (negative: a group), and the size of the key before
    # it in a map entry (-1: no entry).
    _End = tuple[int, int]


def _end_of(field: Any) -> _End:
    tag = tag_size(field.number)
    return -tag if field.type == TYPE_GROUP else tag, -1


def _closed(size: int, end: _End) -> int:
    tag, key = end
    if tag < 0:
        return size - 2 * tag
    if key >= 0:
        size = key + framed(1, size)
    return framed(tag, size)


def _opened(message: Any) -> list[Any]:
    """Return ``[size, pending]``: the size known at once, and the inner messages, each with its end."""
    size, pending = unknown_size(message), []
    for field, value in message.ListFields():
        end, mapped = _end_of(field), is_map(field)
        if field.message_type is None or (mapped and map_value(field).message_type is None):
            size += field_size(field, value)
        elif mapped:
            kind = map_key(field).type
            pending += [(value[key], (end[0], 1 + scalar_size(kind, key))) for key in value]
        elif not is_repeated(field):
            pending.append((value, end))
        elif len(value) <= FEW:
            pending += [(child, end) for child in value]
        else:
            size += sum(_closed(inner, end) for inner in map(_encoded_size, value))
    return [size, pending]


def _encoded_size(message: Any) -> int:
    from google.protobuf.message import EncodeError

    try:
        return int(message.ByteSize())
    except EncodeError:  # above 2 GiB, or too deep
        return message_size(message)
