"""NodeDefs streamed: the same as protobuf's own parser says, whatever the bytes look like."""

from __future__ import annotations

import random

import pytest

import pparse
from pparse import proto_splitter
from pparse.errors import ClosedError, LimitError
from pparse.kernels.varint import encode_varint
from pparse.limits import Limits
from pparse.proto_splitter import GraphDefSplitter
from pparse.protos import message_class
from pparse.riegeli import RecordWriter
from pparse.viewers.tensor_proto.viewer import wires
from pparse.viewers.tensorflow import graph as tensorflow_graph
from pparse.viewers.tensorflow.graph import MainGraph
from tests.rows import rows

GraphDef = message_class("tensorflow.GraphDef")
NodeDef = message_class("tensorflow.NodeDef")
FunctionDef = message_class("tensorflow.FunctionDef")
MESSAGE = {"message": "tensorflow.GraphDef"}


def opened(raw, message="tensorflow.GraphDef", **options):
    return pparse.open(raw, format="protobuf", options={"message": message}, **options)


def defs_of(document):
    return MainGraph(document.root, document.root.extraction)


def rows_of(raw, message="tensorflow.GraphDef", **options):
    with opened(raw, message, **options) as document:
        return list(defs_of(document).rows())


def expected(nodes):
    found = []
    for ordinal, node in enumerate(nodes):
        beside = node.attr["_class"].list.s if "_class" in node.attr else ()
        beside = tuple(text.decode().removeprefix("loc:@") for text in beside)
        found.append((ordinal, node.name, node.op, list(node.input), node.device, beside, None))
    return found


def random_graph(chooser: random.Random, count: int):
    graph = GraphDef()
    for number in range(count):
        node = graph.node.add()
        if chooser.random() < 0.95:
            node.name = f"scope/{'é' * chooser.randrange(3)}n{number}" + "x" * chooser.choice((0, 0, 3, 120, 140))
            node.op = chooser.choice(("MatMul", "Const", "Identity"))
        for _ in range(chooser.choice((0, 1, 2, 2, 40))):
            node.input.append(chooser.choice(("", "^")) + f"n{chooser.randrange(count)}" + chooser.choice(("", ":1")))
        if chooser.random() < 0.3:
            node.device = "/device:CPU:0"
        if chooser.random() < 0.3:
            node.attr["_class"].list.s.extend(
                b"loc:@n%d" % chooser.randrange(count) for _ in range(chooser.randrange(4))
            )
        if chooser.random() < 0.7:
            node.attr["value"].tensor.tensor_content = bytes(chooser.choice((0, 5, 100, 200, 5_000, 40_000)))
        if chooser.random() < 0.2:
            node.experimental_debug_info.original_node_names.append("before")
    return graph


@pytest.mark.parametrize("blocks", [(64, 64), (200, 3_000), (4 << 10, 256 << 10)])
@pytest.mark.parametrize("seed", range(4))
def test_as_protobuf_reads_it(monkeypatch, blocks, seed):
    monkeypatch.setattr(tensorflow_graph, "_FIRST_BLOCK", blocks[0])
    monkeypatch.setattr(tensorflow_graph, "_LAST_BLOCK", blocks[1])
    graph = random_graph(random.Random(seed), 60)
    graph.library.function.add().signature.name = "f"
    # Parts of a list with other fields between them.
    raw = graph.SerializeToString() + GraphDef(version=3).SerializeToString() + graph.SerializeToString()
    assert rows_of(raw) == expected(GraphDef.FromString(raw).node)


def test_more_than_are_indexed_one_by_one():
    """Above 100,000 elements only every 64th is known."""
    node = NodeDef(name="n", op="NoOp", input=["^m"]).SerializeToString()
    raw = (b"\x0a" + encode_varint(len(node)) + node) * 100_100
    with opened(raw) as document:
        defs = defs_of(document)
        assert sum(1 for row in defs.rows() if row[1:5] == ("n", "NoOp", ["^m"], "")) == 100_100 == len(defs)
        assert defs.row(100_077) == (100_077, "n", "NoOp", ["^m"], "", (), None)
        assert sum(len(found) for _, found in wires(defs.elements)) == len(raw)


def field(number: int, payload: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(payload)) + payload


BESIDE = field(2, field(1, field(2, b"loc:@a") + field(2, b"b")))
ODD = {
    "empty": b"",
    "twice": field(1, b"a") + field(2, b"A") + field(1, b"b") + field(3, b"x") + field(4, b"d") + field(3, b"y"),
    "after attributes": field(5, field(1, b"k")) + field(3, b"x") + field(1, b"late"),
    "unknown fields": field(1, b"a") + b"\xf8\x01\x05" + field(30, b"z") + field(2, b"A"),
    "a tag of two bytes": b"\x8a\x00\x01a" + field(2, b"A"),
    "value before key": field(5, BESIDE + field(1, b"_class")) + field(1, b"a"),
    "class": field(5, field(1, b"_class") + BESIDE),
    "class in two parts": field(5, field(1, b"_class") + BESIDE + field(2, field(1, field(2, b"c")))),
    "class of two lists": field(5, field(1, b"_class") + field(2, field(1, field(2, b"a")) + field(1, field(2, b"b")))),
    "class with other things": field(5, field(1, b"_class") + field(2, field(1, b"\x18\x01" + field(2, b"a")))),
    "class without a value": field(5, field(1, b"_class")),
    "class with an empty list": field(5, field(1, b"_class") + field(2, field(1, b""))),
    "class twice": field(5, field(1, b"_class") + BESIDE) + field(5, field(1, b"_class") + field(2, b"")),
    "an empty attribute": field(5, b"") + field(1, b"a"),
    "a name of another wire type": b"\x08\x05" + field(1, b"a"),
    "long": field(1, b"n" * 300) + field(3, b"i" * 20_000) + field(2, b"A"),
}


@rows("name", ODD)
def test_odd_serializations_are_read_as_protobuf_reads_them(name):
    """What no serializer writes, but every parser reads."""
    raw = b"".join(field(1, found) for found in (ODD["twice"], ODD[name], ODD["class"]))
    assert rows_of(raw) == expected(GraphDef.FromString(raw).node)


@pytest.mark.parametrize("size", [600, 2_000, 20_000])
@pytest.mark.parametrize("seed", range(3))
def test_chunks_of_a_cpb(tmp_path, seed, size):
    """Elements that are chunks, to which chunks add, and those between."""
    graph = random_graph(random.Random(seed), 50)
    wanted = GraphDef.FromString(graph.SerializeToString())
    before = proto_splitter.max_size()
    proto_splitter.set_max_size(size)
    try:
        path = GraphDefSplitter(graph).write(str(tmp_path / "graph"))
    finally:
        proto_splitter.set_max_size(before)
    assert path.endswith(".cpb")
    with pparse.open(path, options=MESSAGE) as document:
        defs = defs_of(document)
        found = list(defs.rows())
        assert found == expected(wanted.node)
        assert [defs.row(number) for number in range(len(defs))] == found
        assert [ordinal for ordinal, _ in wires(defs.elements)] == list(range(len(found)))
        assert {kid.key for kid in defs.node(len(defs) - 1)["attr"].children()} == set(wanted.node[-1].attr)


def chunked(path, *chunks, base: bytes) -> str:
    """Write a .cpb: a base, and chunks ``(steps, content)`` for paths below it."""
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")()
    metadata.version.splitter_version = 1
    metadata.message.chunk_index = 0
    with RecordWriter(str(path)) as writer:
        for index, (steps, content) in enumerate([((), base), *chunks]):
            info = metadata.chunks.add(type=1 if not index else 2, size=len(content))
            info.offset = writer.pos.numeric
            writer.write_record(content)
            if index:
                part = metadata.message.chunked_fields.add()
                part.message.chunk_index = index
                for number, key in steps:
                    part.field_tag.add(field=number)
                    if isinstance(key, int):
                        part.field_tag.add(index=key)
                    elif key is not None:
                        part.field_tag.add().map_key.s = key
        writer.write_record(metadata.SerializeToString())
    return str(path)


def test_chunks_that_hold_names(tmp_path):
    """A chunk for a name or an input counts, as one for an attribute that says with what a node is colocated."""
    graph = GraphDef()
    for number in range(4):
        graph.node.add(name=f"n{number}", op="A", input=["x"])
    path = chunked(
        tmp_path / "graph.cpb",
        (((1, 1), (2, None)), b"Other"),
        (((1, 2), (3, 0)), b"^y"),
        (((1, 3), (5, "_class"), (1, None), (2, 0)), b"loc:@other"),
        base=graph.SerializeToString(),
    )
    with pparse.open(path, options=MESSAGE) as document:
        defs = defs_of(document)
        rows = list(defs.rows())
        assert rows == [
            (0, "n0", "A", ["x"], "", (), None),
            (1, "n1", "Other", ["x"], "", (), None),
            (2, "n2", "A", ["^y"], "", (), None),
            (3, "n3", "A", ["x"], "", ("other",), None),
        ]
        assert [defs.row(number) for number in range(4)] == rows


def test_a_body_of_a_function():
    function = FunctionDef()
    function.signature.name = "f"
    for number in range(3):
        function.node_def.add(name=f"n{number}", op="Neg", input=["x", f"n{number - 1}:y:0"])
    function.ret["r"] = "n2:y:0"
    rows = rows_of(function.SerializeToString(), "tensorflow.FunctionDef")
    assert rows == expected(function.node_def)


def test_a_graph_without_nodes_has_no_rows():
    assert rows_of(GraphDef(version=1).SerializeToString()) == []
    assert len(MainGraph(None, None)) == 0
    with pytest.raises(IndexError):
        MainGraph(None, None).node(0)


def test_large_constants_are_not_read():
    graph = GraphDef()
    for number in range(20):
        graph.node.add(name=f"c{number}", op="Const").attr["value"].tensor.tensor_content = bytes(1 << 20)
    with opened(graph.SerializeToString()) as document:
        defs = defs_of(document)
        assert len(defs) == 20
        before = document.session.stats.bytes
        assert [row[1] for row in defs.rows()] == [f"c{number}" for number in range(20)]
        assert document.session.stats.bytes - before < 20 * 20_000


def test_damage_of_one_element():
    good = field(1, NodeDef(name="good", op="A", input=["x"]).SerializeToString())
    bad_text = field(1, field(1, b"\xff\xfe") + field(2, b"Op") + field(3, b"\xff") + field(3, b"y"))
    beyond = field(1, field(2, b"Cut") + b"\x0a\x7f")
    with opened(good + bad_text + beyond + good) as document:
        rows = list(defs_of(document).rows())
        assert rows[0][1:4] == rows[3][1:4] == ("good", "A", ["x"])
        assert rows[1][1:4] == ("", "Op", ["", "y"])
        assert rows[2][2] == "Cut"
        assert {finding.path for finding in document.findings} >= {"node[1].name", "node[1].input[0]", "node[2]"}


def test_a_cut_graph_gives_the_nodes_that_end_in_it():
    graph = random_graph(random.Random(9), 6)
    graph.node[3].attr["value"].tensor.tensor_content = b"c" * 700
    raw = graph.SerializeToString()
    rows = expected(graph.node)
    ends = [sum(len(field(1, node.SerializeToString())) for node in graph.node[: number + 1]) for number in range(6)]
    for cut in [*range(1, len(raw), 7), *ends]:
        with opened(raw[:cut]) as document:
            found = list(defs_of(document).rows())
            whole = sum(end <= cut for end in ends)
            assert found[:whole] == rows[:whole]
            assert whole <= len(found) <= whole + 1


def test_names_and_inputs_beyond_the_limits_are_refused_by_name():
    raw = field(1, field(1, b"n" * 5_000) + field(5, bytes(300_000)))
    with pytest.raises(LimitError, match="name_bytes=5000"):
        rows_of(raw, limits=Limits(name_bytes=1_000))
    many = field(1, field(3, b"x") * 2_000_000)
    with pytest.raises(LimitError, match="inputs of one node"):
        rows_of(many, budget="8MiB")
    with opened(raw) as document:
        defs = defs_of(document)
        len(defs)
    with pytest.raises(ClosedError):
        list(defs.rows())
