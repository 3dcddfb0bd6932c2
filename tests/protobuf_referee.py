"""google.protobuf as the referee: random schemas, random messages, odd serializations of them, and comparisons.

`plain` (of a google message) and `plain_of` (of a node) turn both sides into the same Python: dicts by field name (an
extension's in brackets), enums as names, maps as dicts. Unknown fields go to the key `UNKNOWN`: what the wire says of
them, by field number.
"""

from __future__ import annotations

import random
import struct

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields

import pparse

UNKNOWN = "unknown fields"
FDP = descriptor_pb2.FieldDescriptorProto
SCALARS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18]
KEYS = [3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18]
FIXED = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
BITS = {
    3: (1, 64),
    4: (0, 64),
    5: (1, 32),
    6: (0, 64),
    7: (0, 32),
    13: (0, 32),
    15: (1, 32),
    16: (1, 64),
    17: (1, 32),
    18: (1, 64),
}
NUMBERS = [1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 100, 2047, 2048, 30_000, (1 << 29) - 1]


def repeated(field) -> bool:
    return field.is_repeated


# -- the wire, read naively ------------------------------------------------------------------------------------------


def varint(value: int, length: int = 1) -> bytes:
    """``value`` as a varint of at least ``length`` bytes."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < length:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def read_varint(raw: bytes, pos: int, most: int = 10) -> tuple[int, int]:
    value = 0
    for at in range(most):
        byte = raw[pos + at]
        value |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return value, pos + at + 1
    raise ValueError("a varint too long")


def tagged(number: int, wire: int, payload: bytes) -> bytes:
    """One field; ``payload`` of wire type 2 without its length, of a group without its end."""
    head = varint(number << 3 | wire)
    if wire == 2:
        return head + varint(len(payload)) + payload
    return head + payload + (varint(number << 3 | 4) if wire == 3 else b"")


def wire_fields(raw: bytes) -> list[tuple[int, int, bytes]]:
    """Number, wire type and payload of each field."""
    found, pos = [], 0
    while pos < len(raw):
        number, wire, payload, pos = read_field(raw, pos)
        found.append((number, wire, payload))
    return found


def read_field(raw: bytes, pos: int) -> tuple[int, int, bytes, int]:
    tag, pos = read_varint(raw, pos)
    number, wire, start = tag >> 3, tag & 7, pos
    if wire == 0:
        _, pos = read_varint(raw, pos)
    elif wire in (1, 5):
        pos += 8 if wire == 1 else 4
    elif wire == 2:
        length, start = read_varint(raw, pos)
        pos = start + length
    elif wire == 3:
        while True:
            end = pos
            inner, after = read_varint(raw, pos)
            if inner & 7 == 4:
                return number, wire, raw[start:end], after
            pos = read_field(raw, pos)[3]
    if wire > 5 or wire == 4 or pos > len(raw):
        raise ValueError("no field")
    return number, wire, raw[start:pos], pos


# -- schemas ---------------------------------------------------------------------------------------------------------


class Chooser:
    """Random choices, for which hypothesis or `random.Random` may stand."""

    def __init__(self, number) -> None:
        self.number = number  # of (least, most), both included

    @classmethod
    def seeded(cls, seed: object) -> Chooser:
        return cls(random.Random(repr(seed)).randint)

    def of(self, items):
        return items[self.number(0, len(items) - 1)]

    def chance(self, one_in: int) -> bool:
        return self.number(1, one_in) == one_in

    def raw(self, most: int) -> bytes:
        return bytes(self.number(0, 255) for _ in range(self.number(0, most)))

    def shuffled(self, items):
        items = list(items)
        for at in range(len(items) - 1, 0, -1):
            other = self.number(0, at)
            items[at], items[other] = items[other], items[at]
        return items


class World:
    """A schema for both sides: ``cls(name)`` for google, ``descriptor`` (a FileDescriptorSet) for us."""

    def __init__(self, *files) -> None:
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            pool.Add(file)
        self.pool = pool
        self.descriptor = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()

    def cls(self, name: str):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(name))

    def open(self, source, message: str, **more):
        options = {"descriptor": self.descriptor, "message": message, **more.pop("options", {})}
        return pparse.open(source, format="protobuf", options=options, **more)


def entry_type(name: str, key: int, value: FDP) -> descriptor_pb2.DescriptorProto:
    entry = descriptor_pb2.DescriptorProto(name=name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=key, label=FDP.LABEL_OPTIONAL)
    held = entry.field.add()
    held.CopyFrom(value)
    held.name, held.number, held.label = "value", 2, FDP.LABEL_OPTIONAL
    return entry


def random_schema(choose: Chooser, syntax: str) -> World:
    """Two or three messages ``p.M0`` … which refer to each other, an enum; in proto2 groups and an extension."""
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="p", syntax=syntax)
    if syntax == "proto3":
        values = [("ZERO", 0), ("ONE", 1), ("MINUS", -1), ("BIG", (1 << 31) - 1)]
    else:
        values = [("FIVE", 5), ("ONE", 1), ("MINUS", -(1 << 31)), ("ZERO", 0)]
    enum = file.enum_type.add(name="E")
    for name, number in [*values, ("UNO", 1)]:
        enum.value.add(name=name, number=number)
    enum.options.allow_alias = True
    count = choose.number(1, 3)
    names = [f"M{number}" for number in range(count)]
    for name in names:
        _random_message(choose, file.message_type.add(name=name), names, syntax)
    if syntax == "proto2":
        file.message_type[0].extension_range.add(start=5000, end=5010)
        file.extension.add(name="ext", number=5001, extendee=".p.M0", type=FDP.TYPE_STRING, label=FDP.LABEL_OPTIONAL)
        file.extension.add(
            name="exts",
            number=5002,
            extendee=".p.M0",
            type=FDP.TYPE_MESSAGE,
            type_name=".p.M0",
            label=FDP.LABEL_REPEATED,
        )
    return World(file)


def _random_message(choose: Chooser, message, names: list[str], syntax: str) -> None:
    numbers = choose.shuffled(NUMBERS)
    for _ in range(choose.number(1, 7)):
        _random_field(choose, message, names, syntax, numbers.pop())
    if choose.chance(2):
        message.oneof_decl.add(name="which")
        for _ in range(choose.number(1, 4)):
            field = message.field.add(number=numbers.pop(), label=FDP.LABEL_OPTIONAL, oneof_index=0)
            field.name = f"o{field.number}"
            _random_type(choose, field, names)
    for field in message.field if syntax == "proto3" else ():
        plain = field.label == FDP.LABEL_OPTIONAL and not field.HasField("oneof_index")
        if plain and field.type != FDP.TYPE_MESSAGE and choose.chance(3):
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _random_type(choose: Chooser, field, names: list[str]) -> None:
    field.type = choose.of([*SCALARS, FDP.TYPE_ENUM, FDP.TYPE_MESSAGE, FDP.TYPE_MESSAGE, FDP.TYPE_MESSAGE])
    if field.type == FDP.TYPE_MESSAGE:
        field.type_name = ".p." + choose.of(names)
    elif field.type == FDP.TYPE_ENUM:
        field.type_name = ".p.E"


def _random_field(choose: Chooser, message, names: list[str], syntax: str, number: int) -> None:
    field = message.field.add(name=f"f{number}", number=number, label=FDP.LABEL_OPTIONAL)
    form = choose.of(["singular", "repeated", "repeated", "map"] + ["group"] * (syntax == "proto2"))
    if form == "group":
        nested = message.nested_type.add(name=f"G{number}")
        inner = nested.field.add(name="x", number=1, label=FDP.LABEL_OPTIONAL)
        _random_type(choose, inner, names)
        nested.field.add(name="ys", number=2, type=FDP.TYPE_SINT32, label=FDP.LABEL_REPEATED)
        field.name, field.type = f"g{number}", FDP.TYPE_GROUP
        field.type_name = f".p.{message.name}.{nested.name}"
        field.label = choose.of([FDP.LABEL_OPTIONAL, FDP.LABEL_REPEATED])
        return
    _random_type(choose, field, names)
    if form == "repeated":
        field.label = FDP.LABEL_REPEATED
        if field.type not in (FDP.TYPE_STRING, FDP.TYPE_BYTES, FDP.TYPE_MESSAGE) and choose.chance(2):
            field.options.packed = choose.chance(2)
    elif form == "map":
        if field.type == FDP.TYPE_ENUM and syntax == "proto2":
            field.type = FDP.TYPE_STRING
            field.ClearField("type_name")
        entry = entry_type(f"F{number}Entry", choose.of(KEYS), field)
        message.nested_type.add().CopyFrom(entry)
        field.type, field.label = FDP.TYPE_MESSAGE, FDP.LABEL_REPEATED
        field.type_name = f".p.{message.name}.{entry.name}"


# -- messages --------------------------------------------------------------------------------------------------------


def random_scalar(choose: Chooser, kind: int, enum=None):
    if kind in (1, 2):
        value = choose.of([0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), -2.25e-30, 3.0e38])
        return struct.unpack("<f", struct.pack("<f", value))[0] if kind == 2 else value
    if kind == 8:
        return bool(choose.number(0, 1))
    if kind == 9:
        return choose.of(["", "a", "Aé\0", "日本語", "\U0001f600" * 3, "x" * 127, "y" * 300])
    if kind == 12:
        return choose.of([b"", b"\xff", b"\x08\x01", bytes(128), b"z" * 257, choose.raw(4)])
    if kind == 14:
        return choose.of([value.number for value in enum.values])
    signed, bits = BITS[kind]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return choose.of([0, 1, low, high, min(high, 127), min(high, 128), choose.number(low, high)])


def fill(choose: Chooser, message, depth: int = 3) -> None:
    """Set some fields of ``message``."""
    # The pool tells extensions in the order of a hash table, which is another one each time.
    extensions = message.DESCRIPTOR.file.pool.FindAllExtensions(message.DESCRIPTOR)
    fields = [*message.DESCRIPTOR.fields, *sorted(extensions, key=lambda field: field.number)]
    for field in fields:
        if choose.chance(3):
            continue
        if field.is_extension:
            if not repeated(field):
                message.Extensions[field] = "ext"
            elif depth:
                fill(choose, message.Extensions[field].add(), depth - 2 if depth > 1 else 0)
            continue
        items = getattr(message, field.name)
        if is_map(field):
            _fill_map(choose, field, items, depth)
        elif field.message_type is not None:
            if repeated(field):
                for _ in range(choose.number(0, 3) if depth else 0):
                    fill(choose, items.add(), depth - 1)
            elif depth:
                items.SetInParent()
                fill(choose, items, depth - 1)
        elif repeated(field):
            count = choose.of([0, 1, 2, 3, 5])
            items.extend(random_scalar(choose, field.type, field.enum_type) for _ in range(count))
        else:
            setattr(message, field.name, random_scalar(choose, field.type, field.enum_type))


def _fill_map(choose: Chooser, field, items, depth: int) -> None:
    key, value = field.message_type.fields
    for _ in range(choose.number(0, 3)):
        at = random_scalar(choose, key.type)
        if value.message_type is not None:
            items[at].SetInParent()
            if depth:
                fill(choose, items[at], depth - 1)
        else:
            items[at] = random_scalar(choose, value.type, value.enum_type)


def is_map(field) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


# -- odd serializations ----------------------------------------------------------------------------------------------


def twisted(choose: Chooser, descriptor, raw: bytes, *, shuffle: bool = True, noise: bool = True) -> bytes:
    """The same fields in other words: shuffled, packed or not, split blobs, long varints, unknown fields in between."""
    pieces: list[bytes] = []
    for number, wire, payload in wire_fields(raw):
        field = descriptor.fields_by_number.get(number)
        pieces += _twisted_field(choose, field, number, wire, payload, shuffle, noise)
    while noise and choose.chance(3):
        pieces.append(unknown_field(choose, descriptor))
    return b"".join(choose.shuffled(pieces) if shuffle else pieces)


def _twisted_field(choose, field, number, wire, payload, shuffle, noise) -> list[bytes]:
    if field is None:
        return [tagged(number, wire, payload)]
    if field.message_type is not None and not is_map(field):
        inner = twisted(choose, field.message_type, payload, shuffle=shuffle, noise=noise)
        fields = wire_fields(inner)
        if not repeated(field) and len(fields) > 1 and choose.chance(3):  # in two parts, which are merged
            cut = choose.number(0, len(fields))
            halves = (fields[:cut], fields[cut:])
            return [tagged(number, wire, b"".join(tagged(*item) for item in half)) for half in halves]
        return [tagged(number, wire, inner)]
    if is_map(field):
        # upb takes a pair with an unknown field in it for unknown as a whole; others drop the unknown field.
        pairs = wire_fields(payload)
        inner = [
            b"".join(_twisted_field(choose, field.message_type.fields_by_number[item[0]], *item, shuffle, noise))
            for item in pairs
        ]
        return [tagged(number, wire, b"".join(choose.shuffled(inner) if shuffle else inner))]
    if not repeated(field) or field.type in (9, 12):
        return [tagged(number, wire, payload)]
    size = struct.calcsize(FIXED[field.type]) if field.type in FIXED else 0
    single = {8: 1, 4: 5}.get(size, 0)
    values: list[bytes] = []
    if wire == 2:
        pos = 0
        while pos < len(payload):
            end = pos + size if size else read_varint(payload, pos)[1]
            values.append(payload[pos:end])
            pos = end
    else:
        values.append(payload)
    if not size and choose.chance(3):
        values = [varint(read_varint(value, 0)[0], choose.number(1, 10)) for value in values]
    out: list[bytes] = []
    while values:
        take = choose.number(1, len(values))
        if choose.chance(2):
            out.append(tagged(number, 2, b"".join(values[:take])))
        else:
            out += [tagged(number, single, value) for value in values[:take]]
        values = values[take:]
    if choose.chance(4):
        out.append(tagged(number, 2, b""))
    return out


def unknown_field(choose: Chooser, descriptor) -> bytes:
    """A field that the schema does not have, or has with another wire type."""
    number = choose.of([9, 10, 999, 4000, *(field.number for field in descriptor.fields)])
    field = descriptor.fields_by_number.get(number)
    wires = [0, 1, 2, 3, 5]
    if field is not None:
        wires = [wire for wire in wires if not accepted(field, wire)]
    wire = choose.of(wires)
    payloads = {0: varint(300), 1: bytes(8), 2: b"\xff\x01", 3: tagged(3, 0, b"\x05") + tagged(9, 3, b""), 5: b"abcd"}
    return tagged(number, wire, payloads[wire])


def accepted(field, wire: int) -> bool:
    own = 3 if field.type == 10 else 2 if field.type in (9, 11, 12) else 0
    if field.type in FIXED:
        own = {8: 1, 4: 5}[struct.calcsize(FIXED[field.type])]
    return wire == own or (wire == 2 and repeated(field) and own in (0, 1, 5))


# -- both sides as the same Python -----------------------------------------------------------------------------------


def text(value) -> object:
    """Floats by their bits: NaN differs from itself, and -0.0 does not from 0.0."""
    return repr(value) if isinstance(value, float) else value


def enum_name(enum, number: int):
    return next((value.name for value in enum.values if value.number == number), number)


def plain(message) -> dict:
    """A google message as Python."""
    found: dict[str, object] = {}
    for field, value in message.ListFields():
        name = f"[{field.full_name}]" if field.is_extension else field.name
        if is_map(field):
            held = field.message_type.fields_by_name["value"]
            found[name] = {(type(key), key): _plain(held, value[key]) for key in value}
        elif repeated(field):
            found[name] = [_plain(field, item) for item in value]
        else:
            found[name] = _plain(field, value)
    unknown = unknown_fields.UnknownFieldSet(message)
    if len(unknown):
        found[UNKNOWN] = sorted(_unknown(item) for item in unknown)
    return found


def _plain(field, value):
    if field.message_type is not None:
        return plain(value)
    return enum_name(field.enum_type, value) if field.enum_type is not None else text(value)


def _unknown(item) -> tuple[int, int, str]:
    if item.wire_type == 3:
        return item.field_number, 3, repr(sorted(_unknown(below) for below in item.data))
    return item.field_number, item.wire_type, repr(item.data)


def _unknown_raw(number: int, wire: int, payload: bytes) -> tuple[int, int, str]:
    if wire == 3:
        return number, 3, repr(sorted(_unknown_raw(*item) for item in wire_fields(payload)))
    if wire == 0:
        return number, 0, repr(read_varint(payload, 0)[0] & ((1 << 64) - 1))
    return number, wire, repr(payload if wire == 2 else int.from_bytes(payload, "little"))


WIRES = {"varint": 0, "fixed64": 1, "group": 3, "fixed32": 5}


def plain_of(node) -> object:
    """A node as Python; what google does not call present (zeros without presence, empty lists) is left out."""
    if node.shape == "scalar":
        return text(node.load())
    note = node.note
    if node.shape == "list":
        return [plain_of(kid) for kid in node.children()]
    if node.kind.startswith("map<"):
        return {(type(kid.key), kid.key): plain_of(kid) for kid in node.children()}
    found: dict[str, object] = {}
    unknown: list[tuple[int, int, str]] = []
    for kid in node.children():
        if isinstance(kid.key, int):
            kids = list(kid.children()) if kid.kind == "field[]" else [kid]
            for item in kids:
                payload = b"".join(part.dup().read() for part in item.parts)
                unknown.append(_unknown_raw(kid.key, WIRES.get(item.kind, 2), payload))
            continue
        assert kid.key not in found, kid.key
        value = plain_of(kid)
        field = note.type.by_name[kid.key]
        if (kid.shape != "scalar" and (field.repeated or field.is_map) and not value) or (
            kid.shape == "scalar" and not field.has_presence and value in _zero(field)
        ):
            continue
        found[kid.key] = value
    if unknown:
        found[UNKNOWN] = sorted(unknown)
    return found


def _zero(field) -> tuple[object, ...]:
    if field.enum is not None:
        return (field.enum.names.get(0, 0),)
    return (text(field.default),)


def all_nodes(root) -> list:
    """All nodes, depth first; held, so that they live."""
    found, stack = [], [root]
    while stack:
        node = stack.pop()
        found.append(node)
        if node.shape != "scalar":
            stack.extend(reversed(list(node.children())))
    return found
