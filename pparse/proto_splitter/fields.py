"""Field tags: the path from a message to one of its parts, as a Python list and as ``FieldIndex`` messages.

A list such as ``["graph_def", "node", 3, "attr", "value"]`` names fields by name or number. A map field is followed by
the key, another repeated field by the index; both may be left out at the end. Lists are resolved with descriptors only:
the data need not be there.
"""

from __future__ import annotations

from pparse.errors import PathError
from pparse.protobuf.schema import TYPE_BOOL, TYPE_STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    FieldStep = int | str | bool
    Fields = Sequence[FieldStep]

FIELD: Final = "field"
INDEX: Final = "index"
MAP_KEY: Final = "map_key"

# The member of FieldIndex.MapKey, by the type of the key (FieldDescriptorProto.Type).
KEY_KINDS: Final = {9: "s", 8: "boolean", 13: "ui32", 4: "ui64", 5: "i32", 3: "i64"}
_LABEL_REPEATED: Final = 3


class FieldNotFoundError(PathError, KeyError):
    """A field tag names a field that the message type does not have, or a map key of a type that tags cannot hold."""


# -- descriptors ---------------------------------------------------------------------------------------------------


def is_repeated(field: Any) -> bool:
    """Say whether a FieldDescriptor is of a repeated field (maps are)."""
    repeated = getattr(field, "is_repeated", None)  # in protobuf since 6.31; `label` is gone since 7
    return bool(field.label == _LABEL_REPEATED if repeated is None else repeated)


def is_required(field: Any) -> bool:
    """Say whether a FieldDescriptor is of a required field (proto2)."""
    required = getattr(field, "is_required", None)
    return bool(field.label == 2 if required is None else required)


def is_map(field: Any) -> bool:
    """Say whether a FieldDescriptor is of a map."""
    entry = field.message_type
    return entry is not None and bool(entry.has_options and entry.GetOptions().map_entry)


def map_key(field: Any) -> Any:
    """Return the FieldDescriptor of the keys of a map."""
    return field.message_type.fields_by_number[1]


def map_value(field: Any) -> Any:
    """Return the FieldDescriptor of the values of a map."""
    return field.message_type.fields_by_number[2]


def has_required(descriptor: Any) -> bool:
    """Say whether a message type has required fields of its own."""
    return any(is_required(field) for field in descriptor.fields)


# -- tags ----------------------------------------------------------------------------------------------------------


def walk(descriptor: Any, fields: Fields) -> Iterator[tuple[str, FieldStep, Any]]:
    """Yield the steps of ``fields``: ``(FIELD, number, descriptor)``, then maybe ``(INDEX | MAP_KEY, value, same)``.

    Raise `FieldNotFoundError` for an unknown field or a key of a type that no tag can hold, ValueError for fields below
    a scalar or a negative index, TypeError for items of a wrong type.
    """
    message: Any = descriptor
    field: Any = None
    at = 0
    while at < len(fields):
        if message is None:
            below = list(fields[at:])
            raise ValueError(f"Unable to find fields {below} in proto: {field.full_name} is a scalar")
        field = _find(message, fields[at])
        yield FIELD, field.number, field
        at += 1
        mapped = is_map(field)
        if at < len(fields) and is_repeated(field):
            yield (MAP_KEY, _key(field, fields[at]), field) if mapped else (INDEX, _index(field, fields[at]), field)
            at += 1
        message = map_value(field).message_type if mapped else field.message_type


def get_field_tag(proto: Any, fields: Fields) -> list[Any]:
    """Return ``fields`` as ``FieldIndex`` messages, starting at the message (or message class) ``proto``.

    Raise as `walk`.
    """
    from pparse.protos import message_class

    kind = message_class("tensorflow.proto_splitter.FieldIndex")
    tag = []
    for what, value, field in walk(proto.DESCRIPTOR, fields):
        if what == MAP_KEY:
            tag.append(kind(map_key={KEY_KINDS[map_key(field).type]: value}))
        else:
            tag.append(kind(**{what: value}))
    return tag


def get_field(proto: Any, fields: Fields) -> tuple[Any, Any]:
    """Return the value at ``fields`` and its FieldDescriptor: ``(proto, None)`` if ``fields`` is empty.

    The value is None if a map key or an index does not exist. Raise as `walk`.
    """
    value, found = proto, None
    for what, step, field in walk(proto.DESCRIPTOR, fields):
        found = field
        if value is None:
            continue
        if what == FIELD:
            value = getattr(value, field.name)
        elif what == MAP_KEY:
            value = value[step] if step in value else None  # noqa: SIM401 -- .get() of some maps makes entries
        else:
            value = value[step] if step < len(value) else None  # type: ignore[operator]
    return value, found


def field_path(proto: Any, fields: Fields) -> str:
    """Return ``fields`` as readable text: ``node[3].attr["value"].tensor``; empty for an empty list."""
    text = ""
    for what, step, field in walk(proto.DESCRIPTOR, fields):
        if what == FIELD:
            text += f".{field.name}" if text else field.name
        elif isinstance(step, str):
            text += '["' + step.replace("\\", "\\\\").replace('"', '\\"') + '"]'
        else:
            text += f"[{str(step).lower()}]"
    return text


def _find(message: Any, name: FieldStep) -> Any:
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise TypeError(f"give a field as its name or number, not by {name!r}")
    if isinstance(name, int):
        field = message.fields_by_number.get(name)
        if field is None:
            raise FieldNotFoundError(f"Unable to find field number {name} in {message.full_name}")
        return field
    field = message.fields_by_name.get(name)
    if field is None:
        import difflib

        near = difflib.get_close_matches(name, list(message.fields_by_name), 3)
        raise FieldNotFoundError(f"Unable to find field {name!r} in {message.full_name}", suggestions=tuple(near))
    return field


def _key(field: Any, key: FieldStep) -> FieldStep:
    kind = map_key(field).type
    if kind not in KEY_KINDS:
        raise FieldNotFoundError(f"the keys of {field.full_name} are of a type that no field tag can hold")
    wanted = str if kind == TYPE_STRING else bool if kind == TYPE_BOOL else int
    if not isinstance(key, wanted) or (wanted is int and isinstance(key, bool)):
        raise TypeError(f"a key of {field.full_name} is {wanted.__name__}, not {key!r}")
    return key


def _index(field: Any, index: FieldStep) -> int:
    if isinstance(index, bool) or not isinstance(index, int):
        raise TypeError(f"an index of {field.full_name} is an int, not {index!r}")
    if index < 0:
        raise ValueError(f"an index of {field.full_name} cannot be negative: {index}")
    return index


# -- text ----------------------------------------------------------------------------------------------------------


def format_bytes(count: float) -> str:
    """Return a size as TensorFlow's splitter writes it: ``52.18KiB``; at most two decimals, units of 1024 up to GiB."""
    power = min(max(int(count).bit_length() - 1, 0) // 10, 3)
    return f"{count / 1024**power:.2f}".rstrip("0").rstrip(".") + ("B", "KiB", "MiB", "GiB")[power]
