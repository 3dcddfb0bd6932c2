"""Protocol buffer message types, read lazily from compiled descriptors, without a protobuf library.

A `Schema` is made from a serialized FileDescriptorSet (field numbers: protobuf's ``descriptor.proto``). Making it only
finds where in the bytes the types of each file are. A message is scanned on its first use, and its fields when they are
needed. Types refer to each other by name, so recursive types work.

proto2, proto3 and editions differ in a few *features* of a field or enum. The edition gives the defaults; options of
the file, then of the field or enum, override them. An edition later than those known here gets the defaults of the last
known one.

Bytes that are not descriptors raise a `MalformedError` with the offset in the descriptor set, at the latest when the
type is used. Nothing here recurses, and time and memory are linear in the bytes read. If several types have one name,
the first counts.

Descriptors are messages themselves, with few kinds of fields. `walk` yields the fields of one message; `FileParts` and
`MessageParts` keep the places of what one declares, and read no further. Tags are as on the wire: the field's number
times 8, plus the wire type.
"""

from __future__ import annotations

import re
import struct
from itertools import islice

from pparse.errors import MalformedError, PathError
from pparse.kernels.varint import MAX_BYTES_32, encode_varint, read_varint
from pparse.kernels.wire import END_GROUP, FIXED32, FIXED64, LEN, START_GROUP
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final, TypeAlias

    Default: TypeAlias = int | float | bool | str | bytes | None
    Span: TypeAlias = tuple[int, int]
    Features: TypeAlias = tuple[int, ...]

# The types of fields, numbered as in FieldDescriptorProto.Type.
TYPE_DOUBLE, TYPE_FLOAT, TYPE_INT64, TYPE_UINT64, TYPE_INT32, TYPE_FIXED64, TYPE_FIXED32, TYPE_BOOL = range(1, 9)
TYPE_STRING, TYPE_GROUP, TYPE_MESSAGE, TYPE_BYTES, TYPE_UINT32, TYPE_ENUM = range(9, 15)
TYPE_SFIXED32, TYPE_SFIXED64, TYPE_SINT32, TYPE_SINT64 = range(15, 19)

_NAMES: Final = (
    "double float int64 uint64 int32 fixed64 fixed32 bool string group message bytes uint32 enum "
    "sfixed32 sfixed64 sint32 sint64"
)
TYPE_NAMES: Final = ("", *_NAMES.split())
"""Names of the types of fields, by their number."""

WIRE_TYPES: Final = (-1, 1, 5, 0, 0, 0, 1, 5, 0, 2, 3, 2, 2, 0, 0, 5, 1, 0, 0)
"""Wire types of the types of fields, by their number."""

# Tags in FieldDescriptorProto.
_NAME, _EXTENDEE, _NUMBER, _LABEL, _TYPE, _TYPE_NAME = 0x0A, 0x12, 0x18, 0x20, 0x28, 0x32
_DEFAULT_VALUE, _OPTIONS, _ONEOF_INDEX, _JSON_NAME, _PROTO3_OPTIONAL = 0x3A, 0x42, 0x48, 0x52, 0x88
_UNPACKABLE: Final = (TYPE_STRING, TYPE_BYTES, TYPE_MESSAGE, TYPE_GROUP)
_OPTIONAL, _REPEATED = 1, 3
_MAX_NUMBER: Final = (1 << 29) - 1

_LONGEST_NUMBER: Final = 1000
_FLOATS: Final = frozenset("0123456789+-.eE")
_ESCAPE: Final = rb"(?s)\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.?))"
_ESCAPES: Final = {
    bytes((letter,)): bytes((meant,)) for letter, meant in zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True)
}
INTEGER_RANGES: Final = (
    dict.fromkeys((TYPE_INT32, TYPE_SINT32, TYPE_SFIXED32), range(-1 << 31, 1 << 31))
    | dict.fromkeys((TYPE_UINT32, TYPE_FIXED32), range(1 << 32))
    | dict.fromkeys((TYPE_INT64, TYPE_SINT64, TYPE_SFIXED64), range(-1 << 63, 1 << 63))
    | dict.fromkeys((TYPE_UINT64, TYPE_FIXED64), range(1 << 64))
)
"""The values that integers of a type can have."""

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
_FILE_FEATURES: Final = 50 << 3 | LEN
_FIELD_FEATURES: Final = 21 << 3 | LEN
_SYNTAXES: Final = {b"": _PROTO2, b"proto2": _PROTO2, b"proto3": _PROTO3, b"editions": _EDITIONS}


class Schema:
    """The types of a FileDescriptorSet."""

    __slots__ = ("_data", "_extensions", "_files", "_lock", "_names", "_types")

    def __init__(self, descriptor_set: bytes) -> None:
        self._lock = RLock()  # one schema may serve many documents and threads
        self._data = bytes(descriptor_set)
        self._files: list[FileParts] = []
        # By package and name: where the message (or enum) is, and in which file.
        self._names: dict[str, dict[str, tuple[bool, Span, FileParts]]] = {}
        self._types: dict[str, MessageType | EnumType] = {}
        self._extensions: dict[str, list[tuple[str, Span, FileParts]]] | None = None
        for key, start, end in walk(self._data, 0, len(self._data)):
            if key == 0x0A:  # file
                self._add(FileParts(self._data, start, end))

    @classmethod
    def from_descriptors(cls, descriptors: Iterable[bytes]) -> Schema:
        """Return the schema of serialized FileDescriptorProtos, in any order."""
        return cls(b"".join(b"\x0a" + encode_varint(len(one)) + one for one in descriptors))

    def _add(self, file: FileParts) -> None:
        self._files.append(file)
        names = self._names.setdefault(file.package, {})
        for is_enum, spans in ((False, file.messages), (True, file.enums)):
            for span in spans:
                names.setdefault(declared_name(self._data, *span), (is_enum, span, file))

    def message(self, full_name: str) -> MessageType:
        """Return the message type with that name, e.g. ``tensorflow.NodeDef``. Raises `PathError` if there is none."""
        found = self.find(full_name)
        if not isinstance(found, MessageType):
            raise self._missing("message", found, full_name)
        return found

    def enum(self, full_name: str) -> EnumType:
        """Return the enum type with that name. Raises `PathError` if there is none."""
        found = self.find(full_name)
        if not isinstance(found, EnumType):
            raise self._missing("enum", found, full_name)
        return found

    def find(self, full_name: str) -> MessageType | EnumType | None:
        """Return the message or enum type with that name; None if there is none."""
        found = self._types.get(full_name)
        if found is not None:
            return found
        nested: list[str] = []
        outer = full_name
        while len(nested) <= MAX_NESTING:
            known = self._types.get(outer)
            if known is not None:
                return self._descend(known, nested)
            package, _, name = outer.rpartition(".")
            place = self._names.get(package, {}).get(name)
            if place is not None:
                return self._descend(self._made(outer, *place), nested)
            if not package:
                return None
            nested.append(name)
            outer = package
        return None

    def _descend(self, found: MessageType | EnumType, nested: list[str]) -> MessageType | EnumType | None:
        """Return the type inside ``found`` at the end of ``nested`` names, innermost first."""
        for name in reversed(nested):
            if not isinstance(found, MessageType) or (place := found._body().nested.get(name)) is None:
                return None
            full_name = f"{found.full_name}.{name}"
            found = self._types.get(full_name) or self._made(full_name, *place, found._file)
        return found

    def _made(self, full_name: str, is_enum: bool, span: Span, file: FileParts) -> MessageType | EnumType:
        made = (EnumType if is_enum else MessageType)(self, full_name, span, file)
        return self._types.setdefault(full_name, made)

    def message_names(self) -> Iterator[str]:
        """Yield the full names of all messages in file order, outer ones first, without entries of maps."""
        for full_name, body, _ in self._bodies():
            if not body.map_entry:
                yield full_name

    def _bodies(self) -> Iterator[tuple[str, MessageParts, FileParts]]:
        for file in self._files:
            waiting = [(file.package, span, 0) for span in reversed(file.messages)]
            while waiting:
                outer, span, depth = waiting.pop()
                if depth > MAX_NESTING:
                    raise MalformedError("messages are nested too deep", offset=span[0], wanted=MAX_NESTING)
                name = declared_name(self._data, *span)
                full_name = f"{outer}.{name}" if outer else name
                body = MessageParts(self._data, *span)
                yield full_name, body, file
                inner = [place for is_enum, place in reversed(body.nested.values()) if not is_enum]
                waiting += [(full_name, place, depth + 1) for place in inner]

    def _missing(self, what: str, found: object, full_name: str) -> PathError:
        if found is not None:
            return PathError(f"is not {'a message' if what == 'message' else 'an enum'}", path=full_name)
        import difflib

        wanted = full_name.rpartition(".")[2].lower()[:200]
        names: dict[str, str] = {}
        try:
            for name in islice(self.message_names(), 2000) if what == "message" else self._enum_names():
                names.setdefault(name.rpartition(".")[2].lower()[:200], name)
        except MalformedError:
            pass  # suggest only what can be read
        close = tuple(names[name] for name in difflib.get_close_matches(wanted, names, 3))
        return PathError(f"there is no {what} with this name", path=full_name, suggestions=close)

    def _enum_names(self) -> Iterator[str]:
        for package, names in self._names.items():
            for name, (is_enum, _, _) in names.items():
                if is_enum:
                    yield f"{package}.{name}" if package else name

    def _extensions_of(self, full_name: str) -> list[tuple[str, Span, FileParts]]:
        """Return the extensions of that message, as (scope of the declaration, place, file)."""
        if self._extensions is None:
            found: dict[str, list[tuple[str, Span, FileParts]]] = {}
            places = [(file.package, span, file) for file in self._files for span in file.extensions]
            for scope, body, file in self._bodies():
                places += [(scope, span, file) for span in body.extensions]
            for scope, span, file in places:
                reference = type_reference(self._data, *last_field(self._data, span, _EXTENDEE))
                found.setdefault(self._resolved(scope, reference), []).append((scope, span, file))
            self._extensions = found
        return self._extensions.get(full_name, [])

    def _resolved(self, scope: str, reference: str) -> str:
        """Return the full name of the type that a reference inside ``scope`` means; compilers write a leading dot.

        Otherwise the innermost scope that declares the first part of the name counts.
        """
        if reference.startswith("."):
            return reference[1:]
        first = reference.partition(".")[0]
        self.find(scope)  # also finds the outer ones
        for _ in range(2 * MAX_NESTING):
            around = self._types.get(scope)
            inside = around._body().nested if isinstance(around, MessageType) else self._names.get(scope, {})
            full_name = f"{scope}.{first}"
            if not scope or first in inside or full_name in self._names:
                break
            scope = scope.rpartition(".")[0]
        return f"{scope}.{reference}" if scope else reference


class MessageType:
    """A message type."""

    __slots__ = ("_by_name", "_fields", "_file", "_parts", "_span", "full_name", "name", "schema")

    def __init__(self, schema: Schema, full_name: str, span: Span, file: FileParts) -> None:
        self.schema = schema
        """The schema it belongs to."""
        self.full_name = full_name
        """Its name with the package."""
        self.name = full_name.rpartition(".")[2]
        """The last part of its name."""
        self._span = span
        self._file = file
        self._parts: MessageParts | None = None
        self._fields: dict[int, FieldType] | None = None
        self._by_name: dict[str, FieldType] | None = None

    def __repr__(self) -> str:
        return f"<MessageType {self.full_name}>"

    def _body(self) -> MessageParts:
        if self._parts is None:
            self._parts = MessageParts(self.schema._data, *self._span)
        return self._parts

    @property
    def is_map_entry(self) -> bool:
        """Whether the compiler generated it for the entries of a map."""
        return self._body().map_entry

    @property
    def fields(self) -> dict[int, FieldType]:
        """The fields by number, in order of declaration, followed by the known extensions."""
        if self._fields is None:
            self._read()
        return self._fields or {}

    @property
    def by_name(self) -> dict[str, FieldType]:
        """The fields by name; extensions by full name, in brackets."""
        if self._by_name is None:
            self._read()
        return self._by_name or {}

    def _read(self) -> None:
        with self.schema._lock:
            if self._by_name is not None:  # another thread was quicker, and its fields are in use
                return
            body = self._body()
            fields: dict[int, FieldType] = {}
            by_name: dict[str, FieldType] = {}
            own = [(self.full_name, span, self._file) for span in body.fields]
            extensions = self.schema._extensions_of(self.full_name) if body.extendable else []
            for at, (scope, span, file) in enumerate(own + extensions):
                field = FieldType(self.schema, scope, span, file, body if at < len(own) else None)
                if field.number in fields or field.name in by_name:
                    raise MalformedError(f"{self.full_name}: a field number or name occurs twice", offset=span[0])
                fields[field.number] = by_name[field.name] = field
            self._fields, self._by_name = fields, by_name


class FieldType:
    """A field of a message.

    ``type`` is `TYPE_DOUBLE` to `TYPE_SINT64`; ``type_name`` is ``int32``, or the full name of the message or enum.
    """

    __slots__ = (
        "_default",
        "_is_map",
        "_offset",
        "_schema",
        "_target",
        "_text",
        "has_presence",
        "json_name",
        "name",
        "number",
        "oneof",
        "packed",
        "repeated",
        "type",
        "type_name",
        "wire_type",
    )

    def __init__(self, schema: Schema, scope: str, span: Span, file: FileParts, body: MessageParts | None) -> None:
        data = schema._data
        raw = {key: (start, end) for key, start, end in walk(data, *span)}
        self._schema = schema
        self._offset = span[0]
        self._target: MessageType | EnumType | None = None
        self._is_map: bool | None = None
        self._default: Default = None
        self._text = data[slice(*raw[_DEFAULT_VALUE])] if _DEFAULT_VALUE in raw else None
        self.name = identifier(data, *raw.get(_NAME, (0, 0)), span[0])
        """Its name; for extensions the full name, in brackets."""
        start, end = raw.get(_JSON_NAME, (0, 0))
        self.json_name = (
            text_of(data[start:end], start, "a JSON name") if _JSON_NAME in raw else json_name_of(self.name)
        )
        """Its name in JSON."""
        if body is None:
            self.name = f"[{scope}.{self.name}]" if scope else f"[{self.name}]"
        self.number = raw.get(_NUMBER, (0, 0))[0]
        """Its number."""
        if not 0 < self.number <= _MAX_NUMBER:
            raise MalformedError(f"field {self.name!r} cannot have that number", offset=span[0], got=self.number)
        self.repeated = raw.get(_LABEL, (_OPTIONAL, 0))[0] == _REPEATED
        """Whether it is a list."""
        features = file.features
        explicit = 0
        if _OPTIONS in raw:
            features, explicit = field_options(data, *raw[_OPTIONS], features)
        self._set_type(raw, scope, features[3] == DELIMITED and not (body and body.map_entry))
        self.wire_type = WIRE_TYPES[self.type]
        """Wire type of one element. A packed list has 2, and a reader must accept both forms."""
        encoding = explicit or features[2]
        self.packed = self.repeated and encoding == PACKED and self.type not in _UNPACKABLE
        """Whether its elements are packed."""
        self.oneof = self._oneof(raw, body)
        """Name of its oneof; None also for those that the compiler generates for ``optional``."""
        of_its_own = _ONEOF_INDEX in raw or body is None or self.type in (TYPE_MESSAGE, TYPE_GROUP)
        self.has_presence = not self.repeated and (of_its_own or features[0] != IMPLICIT)
        """Whether "set to the default" and "not set" differ."""

    def _oneof(self, raw: dict[int, Span], body: MessageParts | None) -> str | None:
        if _ONEOF_INDEX not in raw or raw.get(_PROTO3_OPTIONAL, (0, 0))[0]:
            return None
        index = raw[_ONEOF_INDEX][0]
        if body is None or index >= len(body.oneofs):
            raise MalformedError(f"field {self.name!r} is in an unknown oneof", offset=self._offset, got=index)
        return declared_name(self._schema._data, *body.oneofs[index])

    def _set_type(self, raw: dict[int, Span], scope: str, delimited: bool) -> None:
        """Set ``type`` and ``type_name``; with a name but no type, look the name up."""
        self.type = raw.get(_TYPE, (0, 0))[0]
        reference = ""
        if _TYPE_NAME in raw:
            reference = self._schema._resolved(scope, type_reference(self._schema._data, *raw[_TYPE_NAME]))
        if not self.type and reference:
            self.type = TYPE_ENUM if isinstance(self._schema.find(reference), EnumType) else TYPE_MESSAGE
        if not 0 < self.type < len(TYPE_NAMES):
            raise MalformedError(f"field {self.name!r} has an unknown type", offset=self._offset, got=self.type)
        refers = self.type in (TYPE_MESSAGE, TYPE_GROUP, TYPE_ENUM)
        if refers and not reference:
            raise MalformedError(f"field {self.name!r} has no type", offset=self._offset)
        self.type_name = reference if refers else TYPE_NAMES[self.type]
        # Entries of maps are never delimited.
        if self.type == TYPE_MESSAGE and delimited and not self.is_map:
            self.type = TYPE_GROUP

    def __repr__(self) -> str:
        return f"<FieldType {self.number} {self.name}: {'repeated ' * self.repeated}{self.type_name}>"

    def _refers_to(self) -> MessageType | EnumType:
        found = self._target
        if found is None:
            found = self._schema.find(self.type_name)
            if isinstance(found, EnumType) != (self.type == TYPE_ENUM) or found is None:
                what = "enum" if self.type == TYPE_ENUM else "message"
                raise MalformedError(f"the descriptors have no {what} {self.type_name!r}", offset=self._offset)
            self._target = found
        return found

    @property
    def message(self) -> MessageType | None:
        """The type of a message or group; None for other fields. Raises `MalformedError` if the schema lacks it."""
        if self.type not in (TYPE_MESSAGE, TYPE_GROUP):
            return None
        found = self._refers_to()
        return found if isinstance(found, MessageType) else None

    @property
    def enum(self) -> EnumType | None:
        """The type of an enum; None for other fields. Raises `MalformedError` if the schema lacks it."""
        if self.type != TYPE_ENUM:
            return None
        found = self._refers_to()
        return found if isinstance(found, EnumType) else None

    @property
    def is_map(self) -> bool:
        """Whether this is a map: a repeated message of key and value."""
        if self._is_map is None:
            found = self.message if self.repeated and self.type == TYPE_MESSAGE else None
            self._is_map = found is not None and found.is_map_entry
        return self._is_map

    @property
    def map_key(self) -> FieldType | None:
        """The keys of a map; None for other fields."""
        return self._of_entry(1)

    @property
    def map_value(self) -> FieldType | None:
        """The values of a map; None for other fields."""
        return self._of_entry(2)

    def _of_entry(self, number: int) -> FieldType | None:
        if not self.is_map or self.message is None:
            return None
        found = self.message.fields.get(number)
        if found is None or found.repeated:
            raise MalformedError(f"{self.type_name} is not a valid map entry", offset=self._offset)
        return found

    @property
    def default(self) -> Default:
        """The value of the field (or of one element) if it is not set; None for messages.

        For an enum, the number of its default, normally the first value. Floats are rounded to 32 bits if the type is.
        """
        if self._default is None and self.type not in (TYPE_MESSAGE, TYPE_GROUP):
            self._default = self._made_default()
            if self._default is None:
                raise MalformedError(f"field {self.name!r} has a bad default value", offset=self._offset)
        return self._default

    def _made_default(self) -> Default:
        """Return the default that the descriptor states, or that of the type; None if it is no value of the type."""
        if self.type == TYPE_BYTES:
            return _unescaped(self._text or b"")
        text = text_of(self._text or b"", 0, "a default value")
        if self.type == TYPE_ENUM:
            numbers = self.enum.numbers if self.enum else {}
            return numbers.get(text) if self._text is not None else next(iter(numbers.values()))
        return text if self.type == TYPE_STRING else _number(self.type, text)


class EnumType:
    """An enum type."""

    __slots__ = ("closed", "full_name", "name", "names", "numbers", "schema")

    def __init__(self, schema: Schema, full_name: str, span: Span, file: FileParts) -> None:
        self.schema = schema
        """The schema it belongs to."""
        self.full_name = full_name
        """Its name with the package."""
        self.name = full_name.rpartition(".")[2]
        """The last part of its name."""
        self.names: dict[int, str] = {}
        """Names by number (the first, if there are several), in order of declaration."""
        self.numbers: dict[str, int] = {}
        """Numbers by name, in order of declaration."""
        features = file.features
        data = schema._data
        for key, start, end in walk(data, *span):
            if key == 0x12:  # value
                name = declared_name(data, start, end)
                number = signed(last_field(data, (start, end), 0x10)[0])
                self.names.setdefault(number, name)
                if self.numbers.setdefault(name, number) != number:
                    raise MalformedError(f"{full_name} has two values {name!r}", offset=start)
            elif key == 0x1A:  # options
                features = nested_features(data, start, end, 0x3A, features)
        if not self.numbers:
            raise MalformedError(f"{full_name} has no values", offset=span[0])
        self.closed = features[1] == CLOSED
        """Whether other numbers are unknown fields instead of values (proto2)."""

    def __repr__(self) -> str:
        return f"<EnumType {self.full_name}>"


def _number(kind: int, text: str) -> int | float | bool | None:
    """Return the value of a default of that type (``""``: zero); None if the text is not such a value."""
    if len(text) > _LONGEST_NUMBER or not text.isascii():
        return None
    if kind == TYPE_BOOL:
        return {"": False, "false": False, "true": True}.get(text)
    if kind in INTEGER_RANGES:
        if not text:
            return 0
        if not text.removeprefix("-").isdecimal():
            return None
        value = int(text)
        return value if value in INTEGER_RANGES[kind] else None
    if text not in ("inf", "-inf", "nan") and not _FLOATS.issuperset(text):
        return None
    try:
        number = float(text or 0)
    except ValueError:
        return None
    if kind == TYPE_DOUBLE:
        return number
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return float("-inf" if number < 0 else "inf")


def _unescaped(text: bytes) -> bytes | None:
    """Return the bytes for C escapes; None if one is invalid."""
    bad = False

    def plain(found: re.Match[bytes]) -> bytes:
        nonlocal bad
        octal, hexadecimal, letter = found.groups()
        if letter is not None:
            bad = bad or letter not in _ESCAPES
            return _ESCAPES.get(letter, b"")
        value = int(octal, 8) if octal else int(hexadecimal, 16)
        bad = bad or value > 0xFF
        return bytes((value & 0xFF,))

    plain_text = re.sub(_ESCAPE, plain, text)
    return None if bad else plain_text


# -- places in descriptors ---------------------------------------------------------------------------------------------


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
        # message_type, enum_type, extension, options
        places = {0x22: self.messages, 0x2A: self.enums, 0x3A: self.extensions, 0x42: options}
        for key, begin, stop in walk(data, start, end):
            if key in places:
                places[key].append((begin, stop))
            elif key == 0x12 and begin != stop:  # package
                self.package = qualified_name(data, begin, stop)
            elif key == 0x62:  # syntax
                syntax = data[begin : min(stop, begin + 9)]
        if syntax not in _SYNTAXES:
            raise MalformedError("a file with an unknown syntax", offset=start, got=syntax.decode("latin-1"))
        self.features: Features = _SYNTAXES[syntax]
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
        places = {0x12: self.fields, 0x32: self.extensions, 0x42: self.oneofs}  # field, extension, oneof_decl
        for key, begin, stop in walk(data, start, end):
            if key in places:
                places[key].append((begin, stop))
            elif key in (0x1A, 0x22):  # nested_type, enum_type
                self.nested.setdefault(declared_name(data, begin, stop), (key == 0x22, (begin, stop)))
            elif key == 0x2A:  # extension_range
                self.extendable = True
            elif key == 0x3A:  # options
                self.map_entry = bool(last_field(data, (begin, stop), 0x38)[0])


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
        if wire <= LEN and wire != FIXED64:
            if pos < end and data[pos] < 0x80:
                value = data[pos]
                pos += 1
            else:
                value, pos = read_varint(data, pos, end, what="a varint of a descriptor")
            if wire == LEN:
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
    if wire == START_GROUP:
        groups.append(key >> 3)
        if len(groups) > MAX_NESTING:
            raise MalformedError("groups are nested too deep", offset=pos, wanted=MAX_NESTING)
    elif wire == END_GROUP:
        if not groups or groups.pop() != key >> 3:
            raise MalformedError("a group ends in a descriptor that was never opened", offset=pos)
    elif wire in (FIXED64, FIXED32):
        size = 8 if wire == FIXED64 else 4
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


def text_of(raw: bytes, offset: int, what: str) -> str:
    """Return the UTF-8 text that stands at ``offset``; ``what`` is the subject of the error."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"{what} of a descriptor is not UTF-8", offset=offset) from error


def json_name_of(name: str) -> str:
    """Return a field's default name in JSON: camel case."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def signed(value: int, bits: int = 32) -> int:
    """Return the int32 (or int64) that a varint encodes."""
    value &= (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


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
    return tuple(changed)


def field_options(data: bytes, start: int, end: int, features: Features) -> tuple[Features, int]:
    """Return the features of a field, and the encoding that its option ``packed`` requests (0: none)."""
    explicit = 0
    for key, begin, stop in walk(data, start, end):
        if key == 0x10:  # packed
            explicit = PACKED if begin else EXPANDED
        elif key == _FIELD_FEATURES:
            features = _changed(data, begin, stop, features)
    return features, explicit
