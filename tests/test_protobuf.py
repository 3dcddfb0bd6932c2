"""Protobuf messages as trees, with google.protobuf as the referee."""

from __future__ import annotations

import os
import random
import struct

import pytest
from google.protobuf.message import DecodeError
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import pparse
from pparse import PparseError, Status
from pparse.data.base import IoStats
from pparse.data.files import FileData
from pparse.errors import EndOfDataError, EngineError, LimitError, MalformedError, OptionError, PathError
from pparse.findings import Severity
from pparse.protos import descriptor_set, message_class
from pparse.riegeli import RecordWriter
from pparse.riegeli.metadata import RecordsMetadata, set_record_type
from pparse.testing.contract import tree_of
from pparse.tree.entry import UNLOADED_VALUE
from tests import sweep
from tests.protobuf_referee import (
    FDP,
    UNKNOWN,
    Chooser,
    World,
    all_nodes,
    descriptor_pb2,
    entry_type,
    fill,
    is_map,
    plain,
    plain_of,
    random_schema,
    read_field,
    tagged,
    twisted,
    varint,
    wire_fields,
)
from tests.rows import rows

SEEDS = st.integers(0, 1 << 40)
# Of a seed there is no smaller example.
UNSHRUNK = {"phases": (Phase.explicit, Phase.reuse, Phase.generate)}
SYNTAXES = st.sampled_from(["proto2", "proto3"])


def chosen(data) -> Chooser:
    return Chooser(lambda least, most: data.draw(st.integers(least, most)))


def small_world() -> World:
    """A schema to be specific about: ``m.M`` (proto2) and ``n.N`` (proto3)."""
    two = descriptor_pb2.FileDescriptorProto(name="m.proto", package="m", syntax="proto2")
    enum = two.enum_type.add(name="E")
    enum.value.add(name="A", number=1)
    enum.value.add(name="B", number=2)
    message = two.message_type.add(name="M")

    def add(target, name, number, kind, label=FDP.LABEL_OPTIONAL, **more):
        return target.field.add(name=name, number=number, type=kind, label=label, **more)

    add(message, "i", 1, FDP.TYPE_INT32)
    add(message, "is", 2, FDP.TYPE_INT32, FDP.LABEL_REPEATED)
    add(message, "ps", 3, FDP.TYPE_INT32, FDP.LABEL_REPEATED).options.packed = True
    add(message, "s", 4, FDP.TYPE_STRING)
    add(message, "m", 5, FDP.TYPE_MESSAGE, type_name=".m.M")
    add(message, "ms", 6, FDP.TYPE_MESSAGE, FDP.LABEL_REPEATED, type_name=".m.M")
    add(message, "xs", 7, FDP.TYPE_FIXED32, FDP.LABEL_REPEATED).options.packed = True
    message.nested_type.add().CopyFrom(entry_type("MpEntry", FDP.TYPE_INT32, FDP(type=FDP.TYPE_FIXED32)))
    add(message, "mp", 8, FDP.TYPE_MESSAGE, FDP.LABEL_REPEATED, type_name=".m.M.MpEntry")
    add(message, "b", 9, FDP.TYPE_BYTES)
    add(message, "e", 11, FDP.TYPE_ENUM, type_name=".m.E")
    add(message, "es", 12, FDP.TYPE_ENUM, FDP.LABEL_REPEATED, type_name=".m.E")
    message.nested_type.add().CopyFrom(
        entry_type("MmEntry", FDP.TYPE_STRING, FDP(type=FDP.TYPE_MESSAGE, type_name=".m.M"))
    )
    add(message, "mm", 13, FDP.TYPE_MESSAGE, FDP.LABEL_REPEATED, type_name=".m.M.MmEntry")
    message.oneof_decl.add(name="one")
    add(message, "om", 14, FDP.TYPE_MESSAGE, type_name=".m.M", oneof_index=0)
    add(message, "oi", 15, FDP.TYPE_INT32, oneof_index=0)
    add(message, "ds", 16, FDP.TYPE_DOUBLE, FDP.LABEL_REPEATED)
    add(message, "fs", 17, FDP.TYPE_FLOAT, FDP.LABEL_REPEATED).options.packed = True
    add(message, "ss", 18, FDP.TYPE_STRING, FDP.LABEL_REPEATED)
    add(message, "zs", 19, FDP.TYPE_SINT64, FDP.LABEL_REPEATED).options.packed = True
    three = descriptor_pb2.FileDescriptorProto(name="n.proto", package="n", syntax="proto3")
    enum = three.enum_type.add(name="E")
    enum.value.add(name="NULL", number=0)
    message = three.message_type.add(name="N")
    add(message, "i", 1, FDP.TYPE_INT32)
    add(message, "s", 2, FDP.TYPE_STRING)
    add(message, "e", 3, FDP.TYPE_ENUM, type_name=".n.E")
    add(message, "es", 4, FDP.TYPE_ENUM, FDP.LABEL_REPEATED, type_name=".n.E")
    add(message, "ss", 5, FDP.TYPE_STRING, FDP.LABEL_REPEATED)
    return World(two, three)


WORLD = small_world()
M = WORLD.cls("m.M")
N = WORLD.cls("n.N")


def opened(raw, message: str = "m.M", **more):
    return WORLD.open(raw, message, **more)


def findings(doc) -> list[str]:
    """Return what is wrong; that no field is known, which random messages may come to, is only a warning."""
    found = doc.check()
    return [f"{item.path} @{item.offset}: {item.code}" for item in found if item.severity is Severity.ERROR]


# -- anything, against google ----------------------------------------------------------------------------------------


def serialized(choose: Chooser, syntax: str, *, odd: bool) -> tuple[World, bytes]:
    world = random_schema(choose, syntax)
    cls = world.cls("p.M0")
    raw = b""
    for _ in range(choose.number(1, 3) if odd else 1):
        message = cls()
        fill(choose, message)
        raw += message.SerializeToString()
    if odd:
        raw = twisted(choose, cls.DESCRIPTOR, raw, shuffle=choose.chance(2), noise=choose.chance(2))
    return world, raw


@settings(max_examples=25)
@given(data=st.data(), syntax=SYNTAXES)
def test_what_google_wrote(data, syntax):
    world, raw = serialized(chosen(data), syntax, odd=False)
    agrees(world, raw)


@settings(max_examples=sweep.examples(150), **UNSHRUNK)
@given(seed=SEEDS, syntax=SYNTAXES)
def test_the_same_in_other_words(seed, syntax):
    """Several serializations one after the other, fields in any order, packed or not, unknown ones in between."""
    world, raw = serialized(Chooser.seeded(seed), syntax, odd=True)
    agrees(world, raw)


def agrees(world: World, raw: bytes) -> None:
    wanted = plain(world.cls("p.M0").FromString(raw))
    for block_size in (0, 1, 7):
        with world.open(raw, "p.M0", block_size=block_size) as doc:
            assert plain_of(doc.root) == wanted
            assert findings(doc) == []


@settings(max_examples=sweep.examples(60), **UNSHRUNK)
@given(seed=SEEDS, syntax=SYNTAXES)
def test_to_python_and_blocks(seed, syntax):
    """`Node.to_python` says what the nodes say, whatever the size of blocks; and nothing is lost by unloading."""
    world, raw = serialized(Chooser.seeded(seed), syntax, odd=True)
    trees = []
    for block_size in (0, 1, 7):
        with world.open(raw, "p.M0", block_size=block_size) as doc:
            trees.append(tree_of(doc))
            if not block_size:
                value = doc.root.to_python()
                assert repr(value) == repr(by_hand(doc.root))
                doc.root.unload()
                assert tree_of(doc) == trees[0]
                for node in all_nodes(doc.root):
                    node.unload()
                assert tree_of(doc) == trees[0]
                assert repr(doc.root.to_python()) == repr(value)
    assert trees[0] == trees[1] == trees[2]


def by_hand(node):
    if node.shape == "scalar":
        return node.load()
    if node.shape == "list":
        return [by_hand(kid) for kid in node.children()]
    found = {}
    for kid in node.children():
        name = kid.key
        number = 1
        while name in found:
            number += 1
            name = f"{kid.key}#{number}"
        found[name] = by_hand(kid)
    return found


@settings(max_examples=sweep.examples(60), **UNSHRUNK)
@given(seed=SEEDS, syntax=SYNTAXES)
def test_paths_lead_back(seed, syntax):
    world, raw = serialized(Chooser.seeded(seed), syntax, odd=True)
    with world.open(raw, "p.M0") as doc:
        nodes = all_nodes(doc.root)
        paths = [node.path for node in nodes]
        assert len(set(paths)) == len(paths)
        for node, path in zip(nodes, paths, strict=True):
            assert doc.node(path) is node
    with world.open(raw, "p.M0") as doc:  # and in a tree where nothing was looked at
        for path, node in random.Random(seed).sample(list(zip(paths, nodes, strict=True)), min(20, len(paths))):
            found = doc.node(path)
            assert (found.kind, found.start, found.path) == (node.kind, node.start, path)


@settings(max_examples=sweep.examples(60), **UNSHRUNK)
@given(seed=SEEDS, syntax=SYNTAXES)
def test_fields_in_any_order(seed, syntax):
    """Each field is asked for alone, by name or by number; some are unloaded in between."""
    choose = Chooser.seeded(seed)
    world, raw = serialized(choose, syntax, odd=True)
    message = world.cls("p.M0").FromString(raw)
    wanted = plain(message)
    fields = [field for field, _ in message.ListFields() if not field.is_extension]
    unknown = {number for number, *_ in wanted.get(UNKNOWN, ())}  # such a number means the unknown field
    with world.open(raw, "p.M0", retain=choose.of([0, 1 << 20])) as doc:
        for _ in range(3):
            for field in choose.shuffled(fields):
                key = choose.of([field.name, field.name if field.number in unknown else field.number])
                node = doc.root[key]
                assert node.key == field.name
                assert plain_of(node) == wanted[field.name]
                if field.is_repeated and not is_map(field):
                    assert len(node) == len(wanted[field.name])
                    at = choose.number(0, len(node) - 1)
                    assert plain_of(node[at]) == wanted[field.name][at]
                    assert plain_of(node[-1]) == wanted[field.name][-1]
                elif is_map(field):
                    kind, item = choose.of(list(wanted[field.name]))
                    assert plain_of(node[kind(item)]) == wanted[field.name][kind, item]
                if choose.chance(2):
                    node.unload()
                if choose.chance(3):
                    doc.root.unload()


# -- merging ---------------------------------------------------------------------------------------------------------


@rows(
    "raw",
    [
        # The last of a scalar; a message in parts; a message in parts below a message in parts.
        tagged(1, 0, b"\x01") + tagged(1, 0, b"\x02"),
        tagged(5, 2, tagged(1, 0, b"\x01")) + tagged(5, 2, tagged(4, 2, b"x")) + tagged(5, 2, b""),
        tagged(5, 2, tagged(5, 2, tagged(1, 0, b"\x01"))) + tagged(5, 2, tagged(5, 2, tagged(2, 0, b"\x02"))),
        # Members of a oneof: the last clears what was before, also of itself.
        tagged(14, 2, tagged(1, 0, b"\x01")) + tagged(14, 2, tagged(2, 0, b"\x02")),
        tagged(14, 2, tagged(1, 0, b"\x01")) + tagged(15, 0, b"\x07"),
        tagged(15, 0, b"\x07") + tagged(14, 2, b""),
        tagged(14, 2, tagged(1, 0, b"\x01")) + tagged(15, 0, b"\x07") + tagged(14, 2, tagged(2, 0, b"\x02")),
        (tagged(14, 2, tagged(1, 0, b"\x01")) + tagged(15, 0, b"\x07")) * 2 + tagged(14, 2, tagged(2, 0, b"\x02")) * 2,
        tagged(5, 2, tagged(14, 2, tagged(1, 0, b"\x01"))) + tagged(5, 2, tagged(15, 0, b"\x03")),
        tagged(5, 2, tagged(14, 2, tagged(1, 0, b"\x01")))
        + tagged(5, 2, tagged(15, 0, b"\x03"))
        + tagged(5, 2, tagged(14, 2, tagged(2, 0, b"\x02"))),
        # Maps: the last of a key, without a key or a value, with both twice, with the value first, in parts.
        tagged(8, 2, tagged(1, 0, b"\x01") + tagged(2, 5, b"abcd")) * 2,
        tagged(8, 2, b"") + tagged(8, 2, tagged(2, 5, b"abcd")),
        tagged(8, 2, tagged(1, 0, b"\x01")),
        tagged(8, 2, tagged(2, 5, b"abcd") + tagged(1, 0, b"\x01") + tagged(2, 5, b"abce") + tagged(1, 0, b"\x02")),
        tagged(13, 2, tagged(1, 2, b"k") + tagged(2, 2, tagged(1, 0, b"\x01")) + tagged(2, 2, tagged(2, 0, b"\x02"))),
        tagged(13, 2, tagged(1, 2, b"k") + tagged(2, 2, tagged(1, 0, b"\x01")))
        + tagged(13, 2, tagged(1, 2, b"k") + tagged(2, 2, tagged(2, 0, b"\x02"))),
        tagged(13, 2, tagged(1, 2, b"k")),
        # Lists: packed and not, in turns; empty blobs.
        tagged(3, 2, b"\x01\x02")
        + tagged(3, 0, b"\x03")
        + tagged(3, 2, b"")
        + tagged(3, 2, b"\x04")
        + tagged(3, 0, b"\x05"),
        tagged(2, 0, b"\x01") + tagged(2, 2, b"\x02\x03") + tagged(2, 0, b"\x04"),
        tagged(7, 2, b"abcdefgh") + tagged(7, 5, b"ijkl") + tagged(7, 2, b"mnop"),
        tagged(3, 2, b""),
        # Wire types that are not the schema's stay unknown.
        tagged(1, 2, b"\xff") + tagged(1, 5, b"abcd") + tagged(1, 0, b"\x03") + tagged(1, 2, b"\xfe"),
        tagged(6, 0, b"\x03") + tagged(4, 0, b"\x03") + tagged(3, 5, b"abcd") + tagged(8, 0, b"\x01"),
        tagged(99, 3, tagged(1, 0, b"\x01")) + tagged(99, 3, b"") + tagged(99, 0, b"\x05"),
    ],
)
def test_what_occurs_twice_is_merged_as_protobuf_does(raw):
    wanted = plain(M.FromString(raw))
    for block_size in (0, 1, 7):
        with opened(raw, block_size=block_size) as doc:
            assert plain_of(doc.root) == wanted
            assert findings(doc) == []
            for node in all_nodes(doc.root):
                assert doc.node(node.path) is node


def test_unknown_numbers_of_enums_are_fields_or_values_by_syntax():
    """An unknown number of a proto2 enum is an unknown field, of a proto3 enum a value ("Enum Behavior")."""
    raw = tagged(3, 0, b"\x07") + tagged(4, 2, b"\x00\x07")
    with opened(raw, "n.N") as doc:
        assert plain_of(doc.root) == plain(N.FromString(raw)) == {"e": 7, "es": ["NULL", 7]}
    with opened(tagged(11, 0, b"\x02") + tagged(12, 2, b"\x02\x01")) as doc:
        assert plain_of(doc.root) == {"e": "B", "es": ["B", "A"]}


def test_text_and_bytes():
    with opened(tagged(4, 2, b"\xc3\xa9") + tagged(9, 2, b"\xff")) as doc:
        assert doc.get("s") == "é"
        assert doc.get("b") == b"\xff"
        assert doc.node("s").kind == "string"
    with opened(tagged(1, 0, b"\x01") + tagged(2, 2, b"a\xff"), "n.N") as doc:  # google refuses it
        assert doc.get("i") == 1
        assert doc.node("s").status is Status.DAMAGED
        with pytest.raises(MalformedError, match="UTF-8"):
            doc.get("s")
        assert doc.node("s").open().read() == b"a\xff"
        assert findings(doc) == ["s @4: malformed"]
    long = b"a" * 300 + b"\xff"
    with opened(tagged(2, 2, long), "n.N") as doc, pytest.raises(MalformedError, match="UTF-8"):
        doc.get("s")


def test_kinds_and_views():
    message = M(i=1, e=2, s="x")
    message.mp[5] = 7
    message.ms.add(i=3)
    message.ps.extend([1, 2])
    with opened(message.SerializeToString()) as doc:
        kinds = {kid.key: kid.kind for kid in doc.root.children()}
        assert kinds == {
            "i": "int32",
            "e": "enum<m.E>",
            "s": "string",
            "mp": "map<int32, fixed32>",
            "ms": "m.M[]",
            "ps": "int32[]",
        }
        assert doc.root.kind == "m.M"
        assert doc.root["e"].value == "B"
        assert doc.root.to_python() == {"i": 1, "e": "B", "s": "x", "mp": {5: 7}, "ms": [{"i": 3}], "ps": [1, 2]}
        node = doc.node("ms[0].i")
        assert node.range.read() == b"\x03"
        with pytest.raises(PathError, match="zz"):
            doc.node("zz")
        with pytest.raises(PathError):
            doc.node("ps[2]")
        assert doc.root.find("m") is None


def test_descriptor_and_message_are_options_and_wrong_ones_are_named(tmp_path):
    path = tmp_path / "set.binpb"
    path.write_bytes(WORLD.descriptor)
    raw = M(i=7).SerializeToString()
    with pparse.open(raw, format="protobuf", options={"descriptor": str(path), "message": "m.M"}) as doc:
        assert doc.get("i") == 7
    with pytest.raises(OptionError, match=r"m\.M, n\.N"):
        pparse.open(raw, format="protobuf", options={"descriptor": str(path)})
    with pytest.raises(PathError, match=r"m\.X"):
        pparse.open(raw, format="protobuf", options={"descriptor": str(path), "message": "m.X"})
    with pparse.open(raw, format="protobuf", options={"message": "tensorflow.VersionDef"}) as doc:
        assert doc.get("producer") == 7
    for wrong in ("1=text,x=bytes", "1", "1=float", "=text"):
        with pytest.raises(OptionError):
            pparse.open(raw, format="protobuf", options={"types": wrong})


def test_a_riegeli_file_is_a_descriptor_by_its_metadata(tmp_path):
    """They have the type of its records, and what that refers to."""
    path, node, metadata = str(tmp_path / "r.riegeli"), message_class("tensorflow.NodeDef"), RecordsMetadata()
    raw, options = node(name="n").SerializeToString(), {"descriptor": path}
    RecordWriter(path, metadata=metadata).close()
    with pytest.raises(OptionError, match="have no descriptors"):
        pparse.open(raw, format="protobuf", options=options)
    set_record_type(metadata, node)
    RecordWriter(path, metadata=metadata).close()
    with pparse.open(raw, format="protobuf", options=options) as doc:
        assert (doc.root.kind, doc.get("name")) == ("tensorflow.NodeDef", "n")


# -- without a schema ------------------------------------------------------------------------------------------------


def test_numbers_instead_of_names():
    raw = (
        tagged(1, 0, varint(300))
        + tagged(2, 5, struct.pack("<I", 7))
        + tagged(3, 1, struct.pack("<Q", 1 << 60))
        + tagged(4, 2, b"a text that can be read")
        + tagged(5, 2, b"\xff\xfe\x00\x01" * 8)
        + tagged(6, 2, M(i=1, s="some words").SerializeToString())
        + tagged(7, 3, tagged(1, 0, b"\x05"))
        + tagged(8, 0, b"\x01")
        + tagged(8, 0, b"\x02")
    )
    with pparse.open(raw, format="protobuf") as doc:
        assert doc.root.to_python() == {
            1: 300,
            2: 7,
            3: 1 << 60,
            4: "a text that can be read",
            5: b"\xff\xfe\x00\x01" * 8,
            6: {1: 1, 4: "some words"},
            7: {1: 5},
            8: [1, 2],
        }
        for node in all_nodes(doc.root):
            assert doc.node(node.path) is node
    types = {"types": "4=bytes, 5=text,6=message,6.4=bytes,8=text"}
    with pparse.open(raw, format="protobuf", options=types) as doc:
        assert doc.get("[4]") == b"a text that can be read"
        assert doc.get("[6][4]") == b"some words"
        assert doc.node("[5]").open().read() == b"\xff\xfe\x00\x01" * 8


@settings(max_examples=sweep.examples(60), **UNSHRUNK)
@given(seed=SEEDS, syntax=SYNTAXES)
def test_no_schema_still_finds_every_byte(seed, syntax):
    """Every field of the root is there, in order, with its bytes."""
    _, raw = serialized(Chooser.seeded(seed), syntax, odd=True)
    wanted: dict[int, list[bytes]] = {}
    for number, _, payload in wire_fields(raw):
        wanted.setdefault(number, []).append(payload)
    with pparse.open(raw, format="protobuf") as doc:
        found = {}
        for kid in doc.root.children():
            items = list(kid.children()) if kid.kind == "field[]" else [kid]
            found[kid.key] = [b"".join(part.dup().read() for part in item.parts) for item in items]
        assert found == wanted
        assert findings(doc) == []


# -- large -----------------------------------------------------------------------------------------------------------


# From here on only every 64th offset is kept.
DENSE = 100_000 if sweep.full else 10_000


def thinned(monkeypatch):
    monkeypatch.setattr("pparse.tree.index.DENSE_LIMIT", DENSE)
    monkeypatch.setattr("pparse.parsers.protobuf.index.DENSE", DENSE)


@pytest.mark.parametrize("count", [DENSE, DENSE + 1, DENSE + 60_000])
def test_many_elements_among_other_fields(count, monkeypatch):
    thinned(monkeypatch)
    chooser = random.Random(count)
    pieces, texts, numbers = [], [], []
    for number in range(count):
        text = str(chooser.randrange(1000))
        texts.append(text)
        pieces.append(b"\x92\x01" + varint(len(text)) + text.encode())
        if chooser.random() < 0.02:
            numbers.append(number)
            pieces.append(tagged(1, 0, varint(number)) + tagged(2, 0, varint(number)) + tagged(99, 2, bytes(200)))
        elif chooser.random() < 0.01:
            pieces.append(tagged(18, 0, b"\x01"))  # a wrong wire type
    raw = b"".join(pieces)
    with opened(raw) as doc:
        node = doc.root["ss"]
        assert len(node) == count
        for at in [0, 1, 63, 64, 65, count - 1, *(chooser.randrange(count) for _ in range(50))]:
            assert node[at].load() == texts[at]
        assert [entry.value for _, entry in doc.result.entries_from(node, count - 200)] == texts[-200:]
        assert doc.root["i"].load() == numbers[-1]
        assert doc.root["is"].to_python() == numbers
        assert doc.session.budget.peak <= doc.session.budget.limit
        if count > DENSE:  # kept thinly
            assert doc.root.index.memory < 2 * count


def test_all_of_many_elements(monkeypatch):
    thinned(monkeypatch)
    count = DENSE + 200
    raw = b"".join(
        tagged(2, 0, varint(number)) + (b"" if number % 7 else tagged(1, 0, b"\x03")) for number in range(count)
    )
    with opened(raw) as doc:
        node = doc.root["is"]
        assert [entry.value for _, entry in doc.result.entries_from(node, 0)] == list(range(count))
        assert node.index_to(None).note.array().tolist() == list(range(count))


def test_packed_varints_in_long_and_many_blobs():
    chooser = random.Random("packed")
    message = M()
    message.zs.extend(chooser.randrange(-(1 << chooser.randrange(1, 63)), 1 << 30) for _ in range(30_000))
    more = M(zs=[-1, 5, 1 << 62])
    last = M(zs=[chooser.randrange(1000) for _ in range(5000)])
    raw = message.SerializeToString() + more.SerializeToString() + tagged(19, 0, b"\x05") + last.SerializeToString()
    wanted = list(M.FromString(raw).zs)
    assert message.ByteSize() > 128 << 10
    for block_size in (0, 7):
        with opened(raw, block_size=block_size) as doc:
            node = doc.root["zs"]
            assert len(node) == len(wanted)
            for at in [0, 1, 1023, 1024, 1025, 29_999, 30_000, 30_002, 30_003, 30_004, -1]:
                assert node[at].load() == wanted[at]
            for _ in range(100):
                at = chooser.randrange(len(wanted))
                assert node[at].load() == wanted[at]
            if not block_size:
                assert [entry.value for _, entry in doc.result.entries_from(node, 0)] == wanted
                assert node.index_to(None).note.array().tolist() == wanted


def test_a_million_packed_floats():
    import numpy as np

    values = np.random.default_rng(1).standard_normal(1_000_000).astype(np.float32)
    raw = tagged(17, 2, values.tobytes()) + tagged(17, 5, struct.pack("<f", 2.5)) + tagged(1, 0, b"\x05")
    with opened(raw) as doc:
        node = doc.root["fs"]
        assert len(node) == 1_000_001
        assert doc.root.index.memory < 10_000
        found = node.index_to(None).note.array()
        assert found.dtype == np.float32
        assert (found[:-1] == values).all()
        assert found[-1] == 2.5
        assert node[654_321].load() == values[654_321]
        assert node[1_000_000].load() == 2.5
    with opened(tagged(18, 2, b"x")) as doc, pytest.raises(TypeError, match="numbers"):
        doc.root["ss"].index_to(None).note.array()


def test_numbers_as_arrays():
    message = M(ps=[1, -2, 3], xs=[1, (1 << 32) - 1], ds=[0.5, -1.0], es=[1, 2])
    with opened(message.SerializeToString() * 2) as doc:
        for name, wanted in {
            "ps": [1, -2, 3] * 2,
            "xs": [1, (1 << 32) - 1] * 2,
            "ds": [0.5, -1.0] * 2,
            "es": [1, 2, 1, 2],
        }.items():
            assert doc.root[name].index_to(None).note.array().tolist() == wanted
    with opened(tagged(3, 2, b"")) as doc:
        assert doc.root["ps"].to_python() == []
        assert doc.root["ps"].index_to(None).note.array().tolist() == []


def test_more_than_two_gibibytes(tmp_path):
    """Of a large field nothing is read but its header."""
    path = tmp_path / "large.pb"
    size = 2_684_354_560
    with open(path, "wb") as file:
        file.write(tagged(1, 0, b"\x05") + b"\x4a" + varint(size))
        start = file.tell()
        file.seek(start + size - 3)
        file.write(b"end" + tagged(4, 2, b"behind") + tagged(2, 0, b"\x01") * 3)
    stats = IoStats()
    with FileData(path, stats=stats) as data, opened(data) as doc:
        assert doc.get("s") == "behind"
        assert doc.get("is[2]") == 1
        assert doc.get("i") == 5
        node = doc.node("b")
        assert (node.start, node.end) == (start, start + size)
        assert node.value is UNLOADED_VALUE
        with pytest.raises(LimitError, match="scalar_bytes"):
            node.load()
        view = node.open()
        view.seek(size - 3)
        assert view.read() == b"end"
        assert findings(doc) == []
        assert stats.bytes < 200_000
    os.truncate(path, start + size // 2)
    with opened(path) as doc:
        assert doc.get("i") == 5
        node = doc.node("b")
        assert node.status is doc.status is Status.TRUNCATED
        with pytest.raises(EndOfDataError) as caught:
            node.load()
        assert (caught.value.wanted, caught.value.got) == (size, size // 2)


def test_deep_messages_have_nodes_down_to_the_limit():
    """Scanned without recursion; nodes only as deep as the limit says."""
    raw = b""
    for _ in range(400):
        raw = tagged(5, 2, raw + tagged(1, 0, b"\x01"))
    with opened(raw) as doc:
        assert doc.get("m" + ".m" * 299 + ".i") == 1
        assert findings(doc) == []
    with opened(raw, limits=pparse.Limits(depth=50)) as doc:
        assert doc.get("m" + ".m" * 30 + ".i") == 1
        with pytest.raises(LimitError, match="depth"):
            doc.get("m" + ".m" * 60 + ".i")
        list(doc.check())


def test_a_message_in_too_many_parts():
    raw = tagged(1, 0, b"\x07") + tagged(5, 2, tagged(1, 0, b"\x01")) * 70_000
    with opened(raw) as doc:
        assert doc.get("i") == 7
        assert doc.root["m"].status is not Status.COMPLETE
        list(doc.check())
    with opened(tagged(5, 2, tagged(2, 0, b"\x01")) * 3_000) as doc:
        assert len(doc.root["m"]["is"]) == 3_000


# -- cut and damaged -------------------------------------------------------------------------------------------------


def sample_raw() -> bytes:
    message = M(i=300, s="text", b=b"\xff" * 3, e=2)
    getattr(message, "is").extend([1, 200, 3])
    message.ps.extend([1, 200, -3])
    message.xs.extend([5, 6])
    message.mp[1] = 2
    message.mp[300] = 3
    message.mm["k"].i = 5
    message.mm["long"].ps.append(7)
    message.m.m.i = 400
    message.ms.add(i=1)
    message.ms.add(s="x")
    message.om.i = 9
    return message.SerializeToString() + tagged(99, 3, tagged(1, 0, b"\x05"))


def test_every_prefix_gives_the_fields_that_end_in_it():
    """All that ends before the cut is there and right; what is cut says so; the offset is that of the cut."""
    raw = sample_raw()
    with opened(raw) as doc:
        assert doc.status is Status.COMPLETE
    for size in range(len(raw)):
        pos = whole = 0
        cut = None
        while pos < size:
            number, _, _, pos = read_field(raw, pos)
            if pos > size:
                cut = M.DESCRIPTOR.fields_by_number.get(number)
                break
            whole = pos
        wanted = plain(M.FromString(raw[:whole]))
        with opened(raw[:size]) as doc:
            assert doc.status is (Status.COMPLETE if whole == size else Status.TRUNCATED), size
            for name, value in wanted.items():
                node = doc.root.find(name) if name != UNKNOWN else None
                if node is None or (cut is not None and cut.name == name and not cut.is_repeated):
                    continue
                if cut is None or cut.name != name:
                    assert plain_of(node) == value, (size, name)
                    assert node.status is Status.COMPLETE
                elif is_map(cut):
                    kids = {(type(kid.key), kid.key): kid for kid in node.children()}
                    assert {key: plain_of(kids[key]) for key in value} == value
                else:
                    assert [plain_of(kid) for kid in list(node.children())[: len(value)]] == value
            said = list(doc.check())
            assert bool(said) == (whole < size)
            assert all(finding.code == "truncated" for finding in said), (size, said)
            if said:
                assert said[0].offset == size


@pytest.mark.parametrize(
    ("whole", "rest", "field", "value"),
    [
        (tagged(2, 2, b"good"), b"\x92", "s", "good"),  # of \x92\x01, and not of \x92\x00
        (tagged(1, 0, b"\x07"), b"\x88", "i", 7),
        (tagged(1, 0, b"\x07"), b"\x8c", "i", 7),
        (tagged(1, 0, b"\x07"), b"\x80", "i", 7),
        (tagged(5, 2, b"a"), b"\xaa", "ss", ["a"]),
    ],
)
def test_a_tag_that_is_cut_is_no_field(whole, rest, field, value):
    for block_size in (0, 1):
        with opened(whole + rest, "n.N", block_size=block_size) as doc:
            assert doc.root[field].to_python() == value
            assert len(list(doc.root.children())) == 1
            assert doc.status is Status.TRUNCATED
            assert [finding.code for finding in doc.check()] == ["truncated"]


def test_prefixes_of_nodes_below():
    """Below the root, too, what is whole is there: the number of right leaves grows with the prefix."""
    raw = M(m=M.FromString(sample_raw())).SerializeToString()
    with opened(raw) as doc:
        whole = {leaf.path: leaf for leaf in tree_of(doc) if leaf.value is not None}
    most = 0
    for size in range(len(raw)):
        with opened(raw[:size]) as doc:
            leaves = [leaf for leaf in tree_of(doc) if leaf.value is not None and leaf.status is Status.COMPLETE]
        for leaf in leaves:
            assert leaf.path in whole
            assert leaf.value == whole[leaf.path].value
            assert leaf.end <= size
        assert len(leaves) >= most - 1, size
        most = max(most, len(leaves))
        there = {leaf.path for leaf in leaves}
        assert not [path for path, leaf in whole.items() if leaf.end < size and path not in there], size


def test_every_byte_changed():
    """What google takes we take, and mean the same; what google refuses has a finding; never another error."""
    raw = sample_raw()
    for at in sweep.some(range(len(raw)), 1.3, ends=8):
        for value in {*sweep.values((0, 1, 0x7F, 0x80, 0xFF, raw[at] ^ 0x04, raw[at] ^ 0x10), at)} - {raw[at]}:
            changed = raw[:at] + bytes([value]) + raw[at + 1 :]
            try:
                wanted = plain(M.FromString(changed))
            except (
                DecodeError,
                UnicodeDecodeError,
            ):  # a key of a map in proto2 may be no UTF-8, and then cannot be had
                wanted = None
            with opened(changed) as doc:
                tree_of(doc)
                said = findings(doc)
                if wanted is None:
                    assert said, changed.hex()
                elif not said:  # bytes that are no UTF-8, which google hands out as bytes
                    assert plain_of(doc.root) == wanted or "99" in str(wanted) or closed(wanted), changed.hex()
            with pparse.open(changed, format="protobuf") as doc:
                tree_of(doc)
                list(doc.check())


def test_fields_longer_than_a_block_are_found_sound():
    raw = M(s="aé" * 100_000, ps=[-1] * 30_000, i=5).SerializeToString()
    with opened(raw) as doc:
        assert findings(doc) == []
        assert doc.status is Status.COMPLETE


def closed(wanted: dict) -> bool:
    """Whether google put an enum's number among the unknown fields."""
    return any(number in (11, 12) and wire == 0 for number, wire, _ in wanted.get(UNKNOWN, ()))


@pytest.mark.parametrize(
    ("raw", "field", "whole", "status"),
    [
        (tagged(2, 0, b"\x01") + tagged(2, 0, b"\x02") + b"\x10" + b"\xff" * 11, "is", [1, 2], Status.DAMAGED),
        (tagged(3, 2, b"\x01" + b"\xff" * 10 + b"\x01\x02"), "ps", [1], Status.DAMAGED),
        (tagged(3, 2, b"\x01\x02\x80"), "ps", [1, 2], Status.DAMAGED),
        (tagged(7, 2, b"\x01\0\0\0\x02\0"), "xs", [1], Status.DAMAGED),
        (tagged(7, 2, b"\x01\0\0\0\x02\0") + tagged(7, 5, b"\x03\0\0\0"), "xs", [1], Status.DAMAGED),
        (tagged(18, 2, b"a") + b"\x92\x01\x05b", "ss", ["a"], Status.TRUNCATED),
        (tagged(3, 2, b"\x01\x02") + b"\x1a\x05\x03\x04", "ps", [1, 2, 3, 4], Status.TRUNCATED),
        (b"\x3a\x0c\x01\0\0\0\x02\0", "xs", [1], Status.TRUNCATED),
    ],
)
def test_lists_that_are_not_whole(raw, field, whole, status):
    """The elements before the damage are there, and the list, or an element of it, says what is wrong."""
    with opened(raw) as doc:
        node = doc.root[field]
        assert node.shape == "list"
        kids = list(node.children())
        good = [kid.load() for kid in kids if kid.status is Status.COMPLETE]
        assert good[: len(whole)] == whole
        assert node.status is status or any(kid.status is status for kid in kids)
        assert findings(doc)


def test_maps_that_are_not_whole():
    good = tagged(8, 2, tagged(1, 0, b"\x01") + tagged(2, 5, b"\x05\0\0\0"))
    pair = tagged(8, 2, tagged(1, 0, b"\x02") + tagged(2, 5, b"\x06\0\0\0"))
    for size in range(1, len(pair)):
        with opened(good + pair[:size]) as doc:
            node = doc.root["mp"]
            assert node[1].load() == 5
            for kid in list(node.children())[1:]:
                assert kid.status is Status.TRUNCATED, size
                with pytest.raises(EndOfDataError):
                    kid.load()
            assert findings(doc)
            assert doc.status is Status.TRUNCATED
    for bad in (tagged(8, 2, b"\x07"), tagged(8, 2, b"\x08\x02\x15\x01"), tagged(8, 2, b"\x08" + b"\xff" * 11)):
        with opened(good + bad + tagged(1, 0, b"\x09")) as doc:
            assert doc.root["mp"][1].load() == 5
            assert doc.get("i") == 9
            assert len(findings(doc)) == 1


@pytest.mark.parametrize("pair", [b"\x12\x05a", b"\x1d\x01", b"\x0d\x01", b"\x08\x02\x1a\x09"])
def test_pairs_with_a_field_that_ends_beyond(pair):
    """Google refuses such a message; the pair is no good."""
    raw = tagged(8, 2, pair) + tagged(1, 0, b"\x09") + tagged(9, 2, bytes(20))
    with pytest.raises(DecodeError):
        M.FromString(raw)
    with opened(raw) as doc:
        (kid,) = doc.root["mp"].children()
        assert kid.status is Status.DAMAGED
        assert doc.get("i") == 9


def test_damage_in_one_part_spares_the_others():
    raw = tagged(5, 2, tagged(1, 0, b"\x05") + b"\x07") + tagged(5, 2, tagged(4, 2, b"ok")) + tagged(1, 0, b"\x01")
    with opened(raw) as doc:
        assert doc.get("m.i") == 5
        assert doc.get("m.s") == "ok"
        assert doc.node("m").status is Status.DAMAGED
        assert doc.get("i") == 1
        assert findings(doc) == ["m @4: malformed"]
        with pytest.raises(MalformedError):
            doc.root.to_python()


def test_a_length_beyond_the_message():
    raw = tagged(5, 2, tagged(1, 0, b"\x05") + b"\x22\x09ab") + tagged(1, 0, b"\x01") + bytes([0x4A, 3]) + b"xyz"
    with opened(raw) as doc:
        assert doc.get("m.i") == 5
        assert doc.node("m.s").status is Status.DAMAGED
        assert doc.node("m").status is Status.DAMAGED
        assert doc.get("b") == b"xyz"


@settings(max_examples=40, **UNSHRUNK)
@given(seed=SEEDS, syntax=SYNTAXES)
@example(seed=7_616_535_068, syntax="proto2")  # a length of more bytes than the library takes
def test_damage_gives_the_same_tree_or_error_whatever_the_block_size(seed, syntax):
    """Cut, and a few bytes changed: a tree or one of our errors, the same whatever the size of blocks."""
    choose = Chooser.seeded(seed)
    world, raw = serialized(choose, syntax, odd=True)
    changed = bytearray(raw[: choose.number(0, len(raw))] if choose.chance(2) else raw)
    for _ in range(choose.number(1, 3) if changed else 0):
        changed[choose.number(0, len(changed) - 1)] = choose.of([0, 1, 0x7F, 0x80, 0xFF, choose.number(0, 255)])
    raw = bytes(changed)
    try:
        world.cls("p.M0").FromString(raw)
    except DecodeError as error:
        wrong = "UTF-8" not in str(error)  # of text that a later value replaces we say nothing
    else:
        wrong = False
    trees = []
    for block_size in (0, 1, 7):
        with world.open(raw, "p.M0", block_size=block_size) as doc:
            trees.append(tree_of(doc))
            said = findings(doc)
            for node in all_nodes(doc.root):
                assert doc.node(node.path) is node
    assert trees[0] == trees[1] == trees[2]
    assert said or not wrong, raw.hex()


def test_any_error_is_ours():
    """What cannot be loaded says so with an offset, at once and again."""
    raw = tagged(1, 0, b"\x05") + tagged(5, 2, tagged(4, 2, b"abc"))[:-1]
    with opened(raw) as doc:
        for _ in range(2):
            with pytest.raises(EndOfDataError) as caught:
                doc.get("m.s")
            assert caught.value.offset == 6
            assert (caught.value.wanted, caught.value.got) == (3, 2)
            with pytest.raises(PparseError):
                doc.root.to_python()
            doc.root.unload()
    assert not issubclass(EngineError, MalformedError)


# -- real ones -------------------------------------------------------------------------------------------------------


def test_our_own_descriptors():
    """A FileDescriptorSet is a message like others, with every feature of proto2."""
    raw = descriptor_set()
    options = {"message": "google.protobuf.FileDescriptorSet"}
    with pparse.open(raw, format="protobuf", options=options) as doc:
        assert plain_of(doc.root) == plain(message_class("google.protobuf.FileDescriptorSet").FromString(raw))
        node = doc.node("file[0].message_type[0].name")
        assert doc.node(node.path) is node


# -- large fields ------------------------------------------------------------------------------------------------------


def told(content: bytes, **how: object) -> tuple[object, ...]:
    """Return the tree of a message, and what was found wrong with it."""
    with pparse.open(content, format="protobuf", **how) as document:  # type: ignore[arg-type]
        tree = tree_of(document)
        return tree, document.root.status, [str(finding) for finding in document.findings]


@pytest.mark.parametrize("number", range(40))
def test_a_message_of_large_fields_is_read_as_in_small_blocks_whatever_its_heads_are(number) -> None:
    rng = random.Random(number)
    fields = [
        (
            tagged(rng.choice((1, 2, 3, 200)), 2, bytes(rng.choice((5_000, 9_000, 70_000)))),
            rng.choice((b"", b"\x20\x07" * 3)),
        )
        for _ in range(6)
    ]
    message = bytearray()
    heads = []
    for field, behind in fields:
        heads.append(len(message))
        message += field + behind
    if number:  # 0: a sound one
        at = rng.choice(heads[1:]) + rng.randrange(4)
        message[at] ^= 1 << rng.randrange(8)
    if number % 3 == 2:
        del message[rng.randrange(heads[2], len(message)) :]
    assert told(bytes(message)) == told(bytes(message), block_size=64)


def test_the_heads_of_large_fields_are_read_once(tmp_path) -> None:
    path = tmp_path / "large.binpb"
    path.write_bytes(b"".join(tagged(1, 2, bytes(100_000 + number)) for number in range(100)))
    stats = IoStats()
    with pparse.open(path, format="protobuf", stats=stats) as document:
        nodes = list(document.root[1].children())
        assert [node.end - node.start for node in nodes] == list(range(100_000, 100_100))
        assert stats.reads < 2 * 100 + 20  # the head, and what is in it: without a schema, it may be a message
