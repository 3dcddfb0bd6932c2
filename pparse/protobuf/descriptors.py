"""The places of things in compiled protocol buffer descriptors; the basis of `pparse.protobuf.schema`.

Descriptors are messages themselves (field numbers: protobuf's ``descriptor.proto``), with few kinds of fields. `walk`
yields the fields of one message; `FileParts` and `MessageParts` keep the places of what one declares, and read no
further. Tags are as on the wire: the field's number times 8, plus the wire type. Nothing here recurses. All errors are
`MalformedError`, with offsets in the bytes.
"""

from __future__ import annotations

from pparse.errors import MalformedError
from pparse.kernels.varint import MAX_BYTES_32, read_varint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final, TypeAlias

    Span: TypeAlias = tuple[int, int]
    Features: TypeAlias = tuple[int, int, int, int]

WIRE_FIXED64: Final = 1
WIRE_LEN: Final = 2
WIRE_GROUP: Final = 3
WIRE_END_GROUP: Final = 4
WIRE_FIXED32: Final = 5

MAX_NESTING: Final = 100
"""How deep messages may be declared in messages (in protobuf's own compiler: 32)."""
MAX_NAME: Final = 4096
"""The most bytes of a name in a descriptor."""

# Features: presence, kind of enums, encoding of repeated fields, encoding of messages; their numbers in FeatureSet.
_FEATURES: Final = {0x08: 0, 0x10: 1, 0x18: 2, 0x28: 3}
EXPLICIT, IMPLICIT = 1, 2
OPEN, CLOSED = 1, 2
PACKED, EXPANDED = 1, 2
PREFIXED, DELIMITED = 1, 2
_PROTO2: Final = (EXPLICIT, CLOSED, EXPANDED, PREFIXED)
_PROTO3: Final = (IMPLICIT, OPEN, PACKED, PREFIXED)
_EDITIONS: Final = (EXPLICIT, OPEN, PACKED, PREFIXED)
_FILE_FEATURES: Final = 50 << 3 | WIRE_LEN
_FIELD_FEATURES: Final = 21 << 3 | WIRE_LEN
_SYNTAXES: Final = {b"": _PROTO2, b"proto2": _PROTO2, b"proto3": _PROTO3, b"editions": _EDITIONS}


class FileParts:
    """What one file declares (a FileDescriptorProto), and where."""

    __slots__ = ("enums", "extensions", "features", "messages", "package")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.package = ""
        """Name of its package."""
        self.messages: list[Span] = []
        """Places of its messages."""
        self.enums: list[Span] = []
        """Places of its enums."""
        self.extensions: list[Span] = []
        """Places of its extensions."""
        syntax = b""
        options: list[Span] = []
        for key, begin, stop in walk(data, start, end):
            if key == 0x22:  # message_type
                self.messages.append((begin, stop))
            elif key == 0x2A:  # enum_type
                self.enums.append((begin, stop))
            elif key == 0x3A:  # extension
                self.extensions.append((begin, stop))
            elif key == 0x12 and begin != stop:  # package
                self.package = qualified_name(data, begin, stop)
            elif key == 0x42:  # options
                options.append((begin, stop))
            elif key == 0x62:  # syntax
                syntax = data[begin : min(stop, begin + 9)]
        if syntax not in _SYNTAXES:
            raise MalformedError("a file with an unknown syntax", offset=start, got=syntax.decode("latin-1"))
        self.features = _SYNTAXES[syntax]
        """Its features: the defaults of its syntax or edition, with its options."""
        for begin, stop in options:
            self.features = nested_features(data, begin, stop, _FILE_FEATURES, self.features)


class MessageParts:
    """What one message declares (a DescriptorProto), and where."""

    __slots__ = ("extendable", "extensions", "fields", "map_entry", "nested", "oneofs")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.fields: list[Span] = []
        """Places of its fields."""
        self.nested: dict[str, tuple[bool, Span]] = {}
        """Nested types by name: whether it is a message, and its place."""
        self.extensions: list[Span] = []
        """Places of extensions declared in it."""
        self.oneofs: list[Span] = []
        """Places of its oneofs."""
        self.extendable = False
        """Whether it may have extensions."""
        self.map_entry = False
        """Whether it is an entry of a map."""
        for key, begin, stop in walk(data, start, end):
            if key == 0x12:  # field
                self.fields.append((begin, stop))
            elif key in (0x1A, 0x22):  # nested_type, enum_type
                self.nested.setdefault(declared_name(data, begin, stop), (key == 0x22, (begin, stop)))
            elif key == 0x2A:  # extension_range
                self.extendable = True
            elif key == 0x32:  # extension
                self.extensions.append((begin, stop))
            elif key == 0x3A:  # options
                self.map_entry = bool(last_field(data, (begin, stop), 0x38)[0])
            elif key == 0x42:  # oneof_decl
                self.oneofs.append((begin, stop))


def walk(data: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of the message at ``data[pos:end]``: tag, and begin and end of the bytes, or value and 0.

    Skips fields with other wire types than these two, and everything inside groups.
    """
    groups: list[int] = []
    while pos < end:
        key = data[pos]
        if key < 0x80:
            pos += 1
        else:
            key, pos = read_varint(data, pos, end, MAX_BYTES_32, "a tag of a descriptor")
        wire = key & 7
        if key < 8:
            raise MalformedError("a descriptor has a field 0", offset=pos)
        if wire <= WIRE_LEN and wire != WIRE_FIXED64:
            if pos < end and data[pos] < 0x80:
                value = data[pos]
                pos += 1
            else:
                value, pos = read_varint(data, pos, end, what="a varint of a descriptor")
            if wire == WIRE_LEN:
                if value > end - pos:
                    raise MalformedError("a descriptor is cut short", offset=pos, wanted=value, got=end - pos)
                pos += value
                if not groups:
                    yield key, pos - value, pos
            elif not groups:
                yield key, value, 0
        else:
            pos = _skipped(key, pos, end, groups)
    if groups:
        raise MalformedError("a group in a descriptor has no end", offset=end)


def _skipped(key: int, pos: int, end: int, groups: list[int]) -> int:
    """Return the position after a field that descriptors do not have; ``groups`` are the open groups."""
    wire = key & 7
    if wire == WIRE_GROUP:
        groups.append(key >> 3)
        if len(groups) > MAX_NESTING:
            raise MalformedError("groups are nested too deep", offset=pos, wanted=MAX_NESTING)
    elif wire == WIRE_END_GROUP:
        if not groups or groups.pop() != key >> 3:
            raise MalformedError("a group ends in a descriptor that was never opened", offset=pos)
    elif wire in (WIRE_FIXED64, WIRE_FIXED32):
        size = 8 if wire == WIRE_FIXED64 else 4
        if size > end - pos:
            raise MalformedError("a descriptor is cut short", offset=pos, wanted=size, got=end - pos)
        return pos + size
    else:
        raise MalformedError("a descriptor has a field of an unknown wire type", offset=pos, got=wire)
    return pos


def last_field(data: bytes, span: Span, wanted: int) -> Span:
    """Return the value of the last field with that tag; zeros if there is none."""
    found = (0, 0)
    for key, start, end in walk(data, *span):
        if key == wanted:
            found = (start, end)
    return found


def declared_name(data: bytes, start: int, end: int) -> str:
    """Return the name (field 1) of what is declared at ``data[start:end]``."""
    # Nearly always the first field, with a size of one byte.
    if end - start > 2 and data[start] == 0x0A and (size := data[start + 1]) < 0x80 and size <= end - start - 2:
        return identifier(data, start + 2, start + 2 + size)
    return identifier(data, *last_field(data, (start, end), 0x0A), start)


def identifier(data: bytes, start: int, end: int, offset: int | None = None) -> str:
    """Return the name at ``data[start:end]``: ASCII letters, digits and underscores."""
    name = data[start:end] if end - start <= MAX_NAME else b""
    if not (name.isascii() and (text := name.decode()).isidentifier()):
        raise MalformedError("a descriptor has no name, or an invalid one", offset=offset or start)
    return text


def qualified_name(data: bytes, start: int, end: int) -> str:
    """Return the name at ``data[start:end]``: identifiers with dots between."""
    name = data[start:end] if end - start <= MAX_NAME else b""
    if not (name.isascii() and all(map(str.isidentifier, (text := name.decode()).split(".")))):
        raise MalformedError("a descriptor has no name, or an invalid one", offset=start)
    return text


def type_reference(data: bytes, start: int, end: int) -> str:
    """Return the name of a type at ``data[start:end]``; with a leading dot if it is the full name."""
    if start != end and data[start] == 0x2E:
        return "." + qualified_name(data, start + 1, end)
    return qualified_name(data, start, end)


def text_of(data: bytes, start: int, end: int, what: str) -> str:
    """Return the UTF-8 text at ``data[start:end]``; ``what`` is the subject of the error."""
    try:
        return data[start:end].decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"{what} of a descriptor is not UTF-8", offset=start) from error


def json_name_of(name: str) -> str:
    """Return a field's default name in JSON: camel case."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def signed(value: int) -> int:
    """Return the int32 that a varint encodes."""
    value &= 0xFFFFFFFF
    return value - (value >> 31 << 32)


def nested_features(data: bytes, start: int, end: int, tag: int, features: Features) -> Features:
    """Return ``features`` with the changes in the options at ``data[start:end]``, whose features have that tag."""
    for key, begin, stop in walk(data, start, end):
        if key == tag:
            features = _changed(data, begin, stop, features)
    return features


def _changed(data: bytes, start: int, end: int, features: Features) -> Features:
    changed = list(features)
    for key, value, _ in walk(data, start, end):
        if key in _FEATURES and value:
            changed[_FEATURES[key]] = value
    presence, enum, encoding, message = changed
    return presence, enum, encoding, message


def field_options(data: bytes, start: int, end: int, features: Features) -> tuple[Features, int]:
    """Return the features of a field, and the encoding that its option ``packed`` requests (0: none)."""
    explicit = 0
    for key, begin, stop in walk(data, start, end):
        if key == 0x10:  # packed
            explicit = PACKED if begin else EXPANDED
        elif key == _FIELD_FEATURES:
            features = _changed(data, begin, stop, features)
    return features, explicit
