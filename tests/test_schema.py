"""Schemas read from compiled descriptors: compared with protobuf's own reading, and with bytes that lie."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pparse import protos
from pparse.errors import MalformedError, PathError
from pparse.protobuf import schema
from pparse.protobuf.schema import MAX_NAME, MAX_NESTING, Schema, walk
from tests.rows import rows

FOLDER = Path(__file__).parent / "data" / "schema"
# The compiled sources of that folder.
COMPILED = FOLDER / "compiled.binpb"


def message(*parts: bytes) -> bytes:
    return b"".join(parts)


def field(number: int, value: bytes | str | int) -> bytes:
    """Return one field of a message, the number below 16: a varint, or bytes of less than 2 MiB."""
    if isinstance(value, int):
        out, value = bytearray([number << 3]), value % (1 << 64)
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes(out) + bytes([value])
    data = value.encode() if isinstance(value, str) else value
    size = len(data)
    prefix = bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    return bytes([number << 3 | 2]) + prefix + data


def declared(name: str, number: int, kind: int, *more: bytes, repeated: bool = False) -> bytes:
    """Return the field of a message that declares a field."""
    return field(2, message(field(1, name), field(3, number), field(4, 3 if repeated else 1), field(5, kind), *more))


def of_messages(*messages: bytes, syntax: str = "proto3") -> Schema:
    file = message(field(1, "a.proto"), field(2, "p"), *(field(4, one) for one in messages), field(12, syntax))
    return Schema(field(1, file))


def of_fields(*fields: bytes, syntax: str = "proto3") -> dict[str, schema.FieldType]:
    return of_messages(message(field(1, "M"), *fields), syntax=syntax).message("p.M").by_name


def protobuf_pool(serialized: bytes):
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(serialized).file
    for file in files:
        pool.Add(file)
    return pool, [file.name for file in files]


def messages_of(pool, files: list[str]) -> list:
    found = []
    for name in files:
        waiting = list(reversed(pool.FindFileByName(name).message_types_by_name.values()))
        while waiting:
            found.append(waiting.pop())
            waiting += reversed(found[-1].nested_types)
    return found


def same(ours: object, theirs: object) -> bool:
    if isinstance(theirs, float) and math.isnan(theirs):
        return isinstance(ours, float) and math.isnan(ours)
    return type(ours) is type(theirs) and ours == theirs


def compare_enum(ours: schema.EnumType, theirs) -> None:
    assert ours.full_name == theirs.full_name
    assert ours.name == theirs.name
    assert list(ours.numbers.items()) == [(value.name, value.number) for value in theirs.values]
    assert ours.names == {value.number: value.name for value in reversed(theirs.values)}
    assert ours.closed == theirs.is_closed


def optional_fields(theirs) -> set[str]:
    """Return the names of the fields for which the compiler made a oneof each."""
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.DescriptorProto()
    theirs.CopyToProto(proto)
    return {found.name for found in proto.field if found.proto3_optional}


def compare_field(ours: schema.FieldType, theirs) -> None:
    where = theirs.full_name
    assert ours.name == (f"[{theirs.full_name}]" if theirs.is_extension else theirs.name)
    assert ours.number == theirs.number
    assert ours.type == theirs.type, where
    assert ours.repeated == (theirs.is_repeated if hasattr(theirs, "is_repeated") else theirs.label == 3), where
    assert ours.has_presence == theirs.has_presence, where
    assert ours.json_name == theirs.json_name, where
    if hasattr(theirs, "is_packed"):  # newer protobuf
        assert ours.packed == theirs.is_packed, where
    oneof = theirs.containing_oneof
    if oneof is not None and theirs.name in optional_fields(theirs.containing_type):
        oneof = None
    assert ours.oneof == (oneof.name if oneof is not None else None), where
    if theirs.message_type is not None:
        assert ours.message is not None
        assert ours.message.full_name == ours.type_name == theirs.message_type.full_name
        assert ours.is_map == theirs.message_type.GetOptions().map_entry, where
        assert ours.default is None
    else:
        assert ours.message is None
        if not ours.repeated:
            assert same(ours.default, theirs.default_value), (where, ours.default, theirs.default_value)
    if theirs.enum_type is not None:
        assert ours.type_name == theirs.enum_type.full_name
        assert ours.enum is not None
        compare_enum(ours.enum, theirs.enum_type)
    if ours.is_map:
        compare_field(ours.map_key, theirs.message_type.fields_by_name["key"])
        compare_field(ours.map_value, theirs.message_type.fields_by_name["value"])
    else:
        assert ours.map_key is None
        assert ours.map_value is None


def compare(ours: Schema, pool, files: list[str]) -> int:
    """Compare all messages; return how many fields there were."""
    count = 0
    theirs = messages_of(pool, files)
    assert list(ours.message_names()) == [one.full_name for one in theirs if not one.GetOptions().map_entry]
    for one in theirs:
        kind = ours.message(one.full_name)
        assert (kind.full_name, kind.name) == (one.full_name, one.name)
        assert kind.is_map_entry == one.GetOptions().map_entry
        extensions = [extension for extension in pool.FindAllExtensions(one) if extension.file.name in files]
        expected = {found.number: found for found in [*one.fields, *extensions]}
        assert set(kind.fields) == set(expected)
        assert list(kind.fields)[: len(one.fields)] == [found.number for found in one.fields]
        assert list(kind.by_name.values()) == list(kind.fields.values())
        for number, found in kind.fields.items():
            assert kind.by_name[found.name] is found
            compare_field(found, expected[number])
            count += 1
        for nested in one.enum_types:
            compare_enum(ours.enum(nested.full_name), nested)
    return count


def touch(found: Schema) -> None:
    """Ask for everything there is."""
    for name in found.message_names():
        kind = found.message(name)
        for one in kind.fields.values():
            _ = one.default, one.message, one.enum, one.is_map, one.map_key, one.map_value, one.oneof, repr(one)


def test_the_built_in_types_are_as_protobuf_reads_them():
    pool, files = protobuf_pool(protos.descriptor_set())
    assert compare(protos.schema(), pool, files) > 500
    for name in files:
        for enum in pool.FindFileByName(name).enum_types_by_name.values():
            compare_enum(protos.schema().enum(enum.full_name), enum)


def test_descriptors_of_descriptors():
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.DESCRIPTOR
    pool, files = protobuf_pool(
        descriptor_pb2.FileDescriptorSet.FromString(field(1, file.serialized_pb)).SerializeToString()
    )
    assert compare(Schema.from_descriptors([file.serialized_pb]), pool, files) > 100


def test_all_syntaxes_are_as_protobuf_reads_them():
    pool, files = protobuf_pool(COMPILED.read_bytes())
    assert compare(Schema(COMPILED.read_bytes()), pool, files) > 70


def test_sources_are_those_that_were_compiled():
    """Compile again; skipped without a compiler, except where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") != "1":
        pytest.importorskip("grpc_tools")
    from google.protobuf import descriptor_pb2

    sources = sorted(path.name for path in FOLDER.glob("*.proto"))
    found = descriptor_pb2.FileDescriptorSet.FromString(COMPILED.read_bytes())
    assert sorted(file.name for file in found.file) == sources
    again = FOLDER.parent / "schema.again.binpb"
    try:
        # In a process of its own: protoc in one with TensorFlow, whose descriptors are compiled in, ends it.
        words = [f"-I{FOLDER}", f"--descriptor_set_out={again}", *sources]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
        assert descriptor_pb2.FileDescriptorSet.FromString(again.read_bytes()) == found
    finally:
        again.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a_float", 0.10000000149011612),
        ("a_string", 'a"b\\n é\n'),
        ("some_bytes", b"\0\xff\a\b\f\n\r\t\v\\'\"?x41A4"),
        ("a_color", -3),
        ("first_color", 5),
        ("no_default", False),
        ("no_bytes", b""),
        ("large", math.inf),
    ],
)
def test_defaults_are_those_that_protobuf_has(name, expected):
    found = Schema(COMPILED.read_bytes()).message("old.types.Scalars").by_name[name]
    assert same(found.default, expected)


def test_every_type_has_its_wire_type():
    found = Schema(COMPILED.read_bytes())
    wire = {one.type_name: one.wire_type for one in found.message("old.types.Scalars").fields.values()}
    assert wire == {
        "double": 1,
        "fixed64": 1,
        "sfixed64": 1,
        "float": 5,
        "fixed32": 5,
        "sfixed32": 5,
        "string": 2,
        "bytes": 2,
        "int64": 0,
        "uint64": 0,
        "int32": 0,
        "uint32": 0,
        "sint32": 0,
        "sint64": 0,
        "bool": 0,
        "old.types.Color": 0,
    }
    assert found.message("old.types.Lists").by_name["pair"].wire_type == 3
    assert found.message("old.types.Lists").by_name["by_word"].wire_type == 2


def test_types_are_made_once():
    found = Schema(COMPILED.read_bytes())
    node = found.message("fresh.Node")
    assert node.by_name["children"].message is node
    assert node.by_name["deep"].map_value.message.by_name["back"].message is node
    assert found.enum("fresh.State") is node.by_name["state"].enum
    assert found.message("fresh.Node.Deep.Deeper") is node.by_name["message"].message


def test_names_that_lead_nowhere():
    found = Schema(COMPILED.read_bytes())
    with pytest.raises(PathError) as error:
        found.message("fresh.Nod")
    assert error.value.suggestions == ("fresh.Node",)
    assert error.value.path == "fresh.Nod"
    with pytest.raises(PathError, match="is not a message"):
        found.message("fresh.State")
    with pytest.raises(PathError, match="is not an enum"):
        found.enum("fresh.Node")
    with pytest.raises(PathError, match=r"fresh\.State"):
        found.enum("Stat")
    for name in ("", ".", "fresh", "fresh.", ".fresh.Node", "fresh.State.KNOWN", "fresh.Node.Deep.Deep", "a" * 10**6):
        assert found.find(name) is None
        with pytest.raises(PathError):
            found.message(name)
    assert found.find("." * 10**6) is None


def test_a_broken_message_does_not_keep_others_from_being_read():
    broken = message(field(1, "Broken"), b"\x12\x7f")
    found = of_messages(broken, message(field(1, "Whole"), declared("a", 1, 5)))
    assert found.message("p.Whole").by_name["a"].number == 1
    with pytest.raises(MalformedError):
        _ = found.message("p.Broken").fields
    with pytest.raises(PathError):
        found.message("p.Whol")


def test_descriptors_in_any_order():
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet.FromString(COMPILED.read_bytes()).file
    found = Schema.from_descriptors(file.SerializeToString() for file in reversed(files))
    assert found.message("fresh.Node").by_name["choice"].message.full_name == "old.types.Choice"
    assert set(found.message_names()) == set(Schema(COMPILED.read_bytes()).message_names())


def test_the_first_of_one_name_counts():
    found = of_messages(message(field(1, "M"), declared("a", 1, 5)), message(field(1, "M"), declared("b", 1, 5)))
    assert list(found.message("p.M").by_name) == ["a"]


def test_types_that_are_not_there():
    found = of_fields(declared("a", 1, 11, field(6, ".other.Type")), declared("b", 2, 5))
    assert found["a"].type_name == "other.Type"
    assert found["b"].default == 0
    with pytest.raises(MalformedError, match=r"no message 'other\.Type'"):
        _ = found["a"].message
    wrong = of_fields(declared("a", 1, 14, field(6, ".p.M")))
    with pytest.raises(MalformedError, match="no enum"):
        _ = wrong["a"].default


def test_references_inside_of_scopes_and_without_types():
    """As descriptors may have that no compiler made."""
    inner = message(field(1, "Inner"), field(2, message(field(1, "up"), field(3, 1), field(6, "Outer"))))
    kinds = field(4, message(field(1, "Kind"), field(2, message(field(1, "A"), field(2, 3)))))
    outer = message(
        field(1, "Outer"),
        field(3, inner),
        kinds,
        field(2, message(field(1, "near"), field(3, 1), field(6, "Inner"))),
        field(2, message(field(1, "kind"), field(3, 2), field(6, "Kind"))),
        field(2, message(field(1, "far"), field(3, 3), field(6, "Far.Away"))),
    )
    found = of_messages(outer)
    fields = found.message("p.Outer").by_name
    assert fields["near"].message is found.message("p.Outer.Inner")
    assert fields["kind"].type == schema.TYPE_ENUM
    assert fields["kind"].default == 3
    assert fields["far"].type_name == "Far.Away"
    assert found.message("p.Outer.Inner").by_name["up"].message is found.message("p.Outer")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("M", "a.b.M"),
        ("N.M", "a.b.N.M"),
        ("b.M", "a.b.M"),
        ("a.M", "a.M"),
        ("M.M", "a.b.M.M"),
        (".M", "M"),
        ("O", "a.O"),
    ],
)
def test_references_through_packages(reference, expected):
    """Of nested scopes the innermost counts that knows the first part of the name; ``M.M`` does not exist."""
    one = field(4, message(field(1, "N"), field(3, field(1, "M")), declared("f", 1, 11, field(6, reference))))
    other = field(4, field(1, "M"))
    found = Schema.from_descriptors(
        [field(2, "a.b") + one + other, field(2, "a") + other + field(4, field(1, "O")), other],
    )
    declared_in = found.message("a.b.N").by_name["f"]
    if reference in ("M", "M.M"):  # N has an M, too
        expected = expected.replace("a.b.", "a.b.N.")
    assert declared_in.type_name == expected


@rows(
    "bad",
    [
        declared("a", 0, 5),
        declared("a", 1 << 29, 5),
        declared("a", 1, 0),
        declared("a", 1, 19),
        declared("a", 1, 11),
        declared("a b", 1, 5),
        declared("", 1, 5),
        declared("é", 1, 5),
        declared("a", 1, 11, field(6, "..b")),
        declared("a", 1, 11, field(6, "")),
        declared("a", 1, 5, field(9, 0)),
        declared("a", 1, 5, field(10, b"\xff")),
        declared("a", 1, 5) + declared("a", 2, 5),
        declared("a", 1, 5) + declared("b", 1, 5),
        declared("a" * (MAX_NAME + 1), 1, 5),
        b"\x12\x02\x08",
        b"\x12\x01\x00",
        b"\x13",
        b"\x14",
        b"\x16",
        b"\x13" * (MAX_NESTING + 1),
        b"\x11\0\0\0",
        b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_descriptors_of_fields_that_cannot_be_are_malformed(bad):
    with pytest.raises(MalformedError):
        _ = of_fields(bad)


def test_what_descriptors_do_not_have_is_passed_over():
    """Groups, in groups, and fields of other wire types than they should have."""
    unknown = b"\x13\x1b\x08\x01\x1c\x12\x01x\x14" + b"\x11" + bytes(8) + b"\x15" + bytes(4) + b"\x10\x01"
    assert list(of_fields(unknown, declared("a", 1, 5), unknown)) == ["a"]


@rows(
    ("kind", "text"),
    [
        (5, "2147483648"),
        (5, "-2147483649"),
        (13, "-1"),
        (13, "4294967296"),
        (3, "9223372036854775808"),
        (4, "18446744073709551616"),
        (5, "1.0"),
        (5, "0x1"),
        (5, "1_0"),
        (5, " 1"),
        (5, "-"),
        (5, "\u0661"),
        (5, "9" * 5000),
        (8, "True"),
        (8, "1"),
        (1, "."),
        (1, "1_0"),
        (1, "infinity"),
        (1, "1e"),
        (1, "1" * 2000),
        (2, "x"),
        (12, "\\8"),
        (12, "\\"),
        (12, "\\x"),
        (12, "\\777"),
        (9, b"\xff"),
        (5, b"\xff"),
    ],
)
def test_defaults_that_do_not_fit_their_type_are_malformed(kind, text):
    found = of_fields(declared("a", 1, kind, field(7, text)), syntax="proto2")["a"]
    with pytest.raises(MalformedError):
        _ = found.default


def test_floats_beyond_32_bits():
    found = of_fields(declared("a", 1, 2, field(7, "-1e39")), declared("b", 2, 2, field(7, "1e39")), syntax="proto2")
    assert (found["a"].default, found["b"].default) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    "file",
    [
        field(12, "proto4"),
        field(2, "a..b"),
        field(2, "a b"),
        field(4, b""),
        field(4, field(1, "a.b")),
        field(5, b""),
        b"\x22\x05a",
    ],
)
def test_descriptors_of_files_that_cannot_be_are_malformed(file):
    with pytest.raises(MalformedError):
        Schema(field(1, file))


def test_enums_without_values_or_names_are_malformed():
    for values in (b"", field(2, field(2, 1)), field(2, field(1, "A")) + field(2, field(1, "A") + field(2, 1))):
        found = Schema(field(1, field(5, field(1, "E") + values)))
        with pytest.raises(MalformedError):
            found.enum("E")


def test_an_entry_without_a_value_makes_no_map():
    """An entry without a value."""
    entry = message(field(1, "Entry"), declared("key", 1, 5), field(7, b"\x38\x01"))
    listed = declared("m", 1, 11, field(6, ".p.M.Entry"), repeated=True)
    found = of_messages(message(field(1, "M"), field(3, entry), listed))
    assert found.message("p.M").by_name["m"].map_key.type_name == "int32"
    with pytest.raises(MalformedError):
        _ = found.message("p.M").by_name["m"].map_value


def nested(depth: int) -> bytes:
    inner = field(1, "N")
    for _ in range(depth):
        inner = message(field(1, "N"), field(3, inner))
    return inner


def test_depth_is_bounded():
    deep = of_messages(nested(MAX_NESTING))
    assert len(list(deep.message_names())) == MAX_NESTING + 1
    name = "p" + ".N" * (MAX_NESTING + 1)
    assert deep.message(name).full_name == name
    deeper = of_messages(nested(5 * MAX_NESTING))
    with pytest.raises(MalformedError, match="nested too deep"):
        list(deeper.message_names())
    assert deeper.find("p" + ".N" * (5 * MAX_NESTING)) is None


def small_set() -> bytes:
    """Return a set that has something of everything, in few bytes."""
    entry = message(
        field(1, "E"), declared("key", 1, 9), declared("value", 2, 14, field(6, ".p.K")), field(7, b"\x38\x01")
    )
    one = message(
        field(1, "M"),
        field(3, entry),
        declared("m", 1, 11, field(6, ".p.M.E"), repeated=True),
        declared("d", 2, 1, field(7, "1.5")),
        declared("b", 3, 12, field(7, "\\001")),
        declared("o", 4, 5, field(9, 0)),
        declared("l", 5, 5, field(8, b"\x10\x01"), repeated=True),
        field(8, field(1, "x")),
        field(5, b"\x08\x64\x10\x66"),
        field(6, field(1, "e") + field(2, ".p.M") + field(3, 100) + field(4, 1) + field(5, 10) + field(6, "M")),
    )
    enum = message(field(1, "K"), field(2, field(1, "A") + field(2, -1)), field(3, b"\x3a\x02\x10\x02"))
    return field(1, message(field(1, "a"), field(2, "p"), field(4, one), field(5, enum), field(12, "proto2")))


def test_every_prefix_and_every_bit():
    """Whatever a byte becomes: an answer, or the one error."""
    whole = small_set()
    touch(Schema(whole))
    assert Schema(whole).message("p.M").by_name["m"].map_value.default == -1
    assert list(Schema(b"").message_names()) == []
    [file] = (whole[start:end] for _, start, end in walk(whole, 0, len(whole)))
    cuts = 0
    for size in range(len(file)):
        try:
            touch(Schema(field(1, file[:size])))
        except MalformedError:
            cuts += 1
    assert len(file) // 2 < cuts < len(file)
    for size in range(1, len(whole)):
        with pytest.raises(MalformedError):
            Schema(whole[:size])
    offsets = []
    for at in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            try:
                touch(Schema(bytes(changed)))
            except MalformedError as error:
                offsets.append(error.offset)
    assert len(offsets) > len(whole)
    assert all(0 <= offset <= len(whole) for offset in offsets)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_any_bytes_inside_of_a_set(junk, at):
    whole = small_set()
    with contextlib.suppress(MalformedError):
        touch(Schema(whole[:at] + junk + whole[at + len(junk) :]))
    with contextlib.suppress(MalformedError):
        touch(of_messages(message(field(1, "M"), junk)))


def test_protobuf_is_not_imported():
    script = """
        import sys
        from pparse import protos
        for name in protos.schema().message_names():
            for field in protos.schema().message(name).fields.values():
                field.default, field.message
        print([name for name in sys.modules if name.startswith(("google", "importlib.resources", "tempfile"))])
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
