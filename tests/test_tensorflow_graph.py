"""Graphs: who consumes whom, what outputs need, what is wrong, and parts of a graph as files of their own."""

from __future__ import annotations

import json
import random
import re

import pytest

import pparse
from pparse import proto_splitter
from pparse.errors import EndOfDataError, LimitError, PathError, PparseError, UnsupportedError
from pparse.graphs import index as graph_index
from pparse.graphs.graph import Edge, Graph
from pparse.graphs.text import quoted
from pparse.proto_splitter import GraphDefSplitter
from pparse.protos import message_class
from pparse.viewers.tensorflow.graph import tensorflow_graph
from tests import sweep

GraphDef = message_class("tensorflow.GraphDef")
SavedModel = message_class("tensorflow.SavedModel")
OPTIONS = {"message": "tensorflow.GraphDef"}


def graph_def(**nodes: str):
    """Return a graph: names with "Op input input"."""
    graph = GraphDef()
    for name, text in nodes.items():
        op, *inputs = text.split()
        graph.node.add(name=name, op=op, input=inputs)
    return graph


def opened(message, kind="tensorflow.GraphDef", **options):
    return pparse.open(message.SerializeToString(), format="protobuf", options={"message": kind}, **options)


def graph_of(message, kind="tensorflow.GraphDef", **options) -> Graph:
    return tensorflow_graph(opened(message, kind), **options)


SMALL = {
    "x": "Placeholder",
    "w": "Const",
    "y": "MatMul x w:0",
    "init": "NoOp ^w",
    "split": "Split y",
    "z": "Add split:1 y ^init",
    "alone": "Const",
}


def test_what_is_in_it():
    graph = graph_of(graph_def(**SMALL))
    assert list(graph.nodes) == list(SMALL)
    assert len(graph.nodes) == 7
    assert list(graph.inputs) == ["x"]
    assert list(graph.outputs) == ["z", "alone"]
    assert len(graph.outputs) == 2
    assert next(iter(graph.operations.items())) == ("Const", 2)
    assert sum(graph.operations.values()) == 7
    assert list(graph.edges) == [
        Edge("x", 0, "y", 0, False),
        Edge("w", 0, "y", 1, False),
        Edge("w", None, "init", None, True),
        Edge("y", 0, "split", 0, False),
        Edge("split", 1, "z", 0, False),
        Edge("y", 0, "z", 1, False),
        Edge("init", None, "z", None, True),
    ]
    assert graph.index.edge_count == 7
    assert graph.index.control_count == 2
    assert len(graph.check()) == 0
    assert graph.signatures == {}
    assert list(graph.functions) == []


def test_nodes_by_name():
    graph = graph_of(graph_def(**SMALL))
    assert graph.nodes["z"].inputs == ["split:1", "y", "^init"]
    assert graph.nodes["z"].op == "Add"
    assert graph.nodes["z"].node.path == "node[5]"
    assert "z" in graph.nodes
    assert "z:0" not in graph.nodes
    assert [node.name for node in graph.nodes.values() if node.op == "Const"] == ["w", "alone"]
    with pytest.raises(KeyError, match="alone"):
        graph.nodes["alon"]


def test_nodes_are_read_with_inputs_devices_and_attributes():
    message = GraphDef()
    node = message.node.add(name="a", op="Add", input=["x", "^y"], device="d")
    node.attr["T"].type = 1
    message.node.add()
    nodes = graph_of(message).nodes
    first, second = nodes.values()
    assert (first.name, first.op, first.inputs, first.where, first.outputs) == ("a", "Add", ["x", "^y"], "d", None)
    assert first.attr["T"].load()["type"] == "DT_FLOAT"
    assert (first.ordinal, first.node.path) == (0, "node[0]")
    assert (second.name, second.op, second.inputs, second.where, second.attr) == ("", "", [], "", {})
    assert nodes.at(1).node.path == "node[1]"
    with pytest.raises(IndexError):
        nodes.at(2)


# -- subgraphs -------------------------------------------------------------------------------------------------------


def needed(graph, outputs):
    """Return what these outputs need, in the order of the graph."""
    by_name = {node.name: node for node in graph.node}
    kept, waiting = set(), list(outputs)
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        kept.add(name)
        node = by_name[name]
        waiting += [text[1:] if text.startswith("^") else text.partition(":")[0] for text in node.input]
        waiting += [text.decode().removeprefix("loc:@") for text in node.attr["_class"].list.s]
    return [node.name for node in graph.node if node.name in kept]


def random_graph(chooser: random.Random, count: int):
    graph = GraphDef()
    for number in range(count):
        node = graph.node.add(name=f"n{number}", op=chooser.choice(("A", "B", "Placeholder")))
        for _ in range(chooser.choice((0, 1, 1, 2))):
            node.input.append(chooser.choice(("n%d", "n%d:1", "^n%d")) % chooser.randrange(count))
        if chooser.random() < 0.1:
            node.attr["_class"].list.s.append(b"loc:@n%d" % chooser.randrange(count))
        node.attr["value"].tensor.tensor_content = bytes(chooser.choice((0, 10, 3_000)))
    graph.library.function.add().signature.name = "f"
    graph.versions.producer = 1987
    return graph


@pytest.mark.parametrize("many", [0, 1 << 30])
@pytest.mark.parametrize("seed", range(5))
def test_a_subgraph_holds_what_its_outputs_need_with_and_without_numpy(monkeypatch, many, seed):
    """The same by numpy and without it."""
    monkeypatch.setattr(graph_index, "_MANY_EDGES", many)
    monkeypatch.setattr(graph_index, "_STEP", 7)
    chooser = random.Random(seed)
    message = random_graph(chooser, 120)
    graph = graph_of(message)
    consumed = {edge.source for edge in graph.edges}
    assert list(graph.outputs) == [node.name for node in message.node if node.name not in consumed]
    for _ in range(5):
        outputs = [f"n{chooser.randrange(120)}" for _ in range(chooser.randrange(1, 4))]
        part = graph.subgraph(outputs)
        wanted = needed(message, outputs)
        assert list(part) == wanted == [node.name for node in part.nodes]
        assert len(part) == len(wanted)
        assert [edge for edge in graph.edges if edge.target in wanted] == list(part.edges)
        assert all(name in part for name in wanted)
        assert (f"n{119}" in part) == ("n119" in wanted)


def test_names_of_outputs():
    graph = graph_of(graph_def(**SMALL))
    assert list(graph.subgraph("y:0")) == ["x", "w", "y"]
    assert list(graph.subgraph(["^init", "x"])) == ["x", "w", "init"]
    assert list(graph.subgraph([])) == []
    with pytest.raises(PathError, match="split"):
        graph.subgraph(["spli"])


def extracted(message, outputs):
    wanted = set(needed(message, outputs))
    part = GraphDef(node=[node for node in message.node if node.name in wanted])
    part.library.CopyFrom(message.library)
    part.versions.CopyFrom(message.versions)
    return part


@pytest.mark.parametrize("size", [None, 900, 4_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_part_as_a_file(tmp_path, size, seed):
    """From a plain file, and from a .cpb of which chunks hold nodes and parts of nodes."""
    message = random_graph(random.Random(seed), 60)
    message.debug_info.files.append("left out")
    expected = extracted(message, ["n7", "n40"])
    path = str(tmp_path / "graph.pb")
    if size is None:
        (tmp_path / "graph.pb").write_bytes(message.SerializeToString())
    else:
        before = proto_splitter.max_size()
        proto_splitter.set_max_size(size)
        try:
            path = GraphDefSplitter(GraphDef.FromString(message.SerializeToString())).write(str(tmp_path / "graph"))
        finally:
            proto_splitter.set_max_size(before)
    with pparse.open(path, options=OPTIONS, format=None if size else "protobuf") as document:
        graph = tensorflow_graph(document)
        written = graph.subgraph(["n7", "n40"]).save(str(tmp_path / "part.pb"))
        raw = (tmp_path / "part.pb").read_bytes()
        assert len(raw) == written
        assert GraphDef.FromString(raw) == expected
        pieces: list[bytes] = []
        graph.write(pieces.append)
        message.ClearField("debug_info")
        assert GraphDef.FromString(b"".join(pieces)) == message


def test_a_part_of_a_damaged_graph(tmp_path):
    raw = graph_def(**SMALL).SerializeToString()
    with pparse.open(raw[:-3], format="protobuf", options=OPTIONS) as document:
        graph = tensorflow_graph(document)
        with pytest.raises(EndOfDataError):
            graph.save(str(tmp_path / "part.pb"))
        assert list(tmp_path.iterdir()) == []
        assert graph.subgraph(["y"]).write(lambda raw: None)


# -- what is wrong ---------------------------------------------------------------------------------------------------


def codes(graph):
    return [(finding.code, finding.path) for finding in graph.check()]


def test_inputs_that_no_node_gives_are_findings():
    graph = graph_of(graph_def(a="A gone b:1 ^lost", b="B", c="C gone:2"))
    assert codes(graph) == [("missing-input", "node[0]"), ("missing-input", "node[0]"), ("missing-input", "node[2]")]
    assert "'^lost'" in graph.findings[1].reason
    assert list(graph.subgraph(["a"])) == ["a", "b"]
    assert next(iter(graph.edges)) == Edge("gone", 0, "a", 0, False)


@pytest.mark.parametrize("many", [0, 1 << 30])
def test_names_that_occur_twice(monkeypatch, many):
    """The first answers to the name, ``#2`` is the second; edges mean the last, as TensorFlow takes them."""
    monkeypatch.setattr(graph_index, "_MANY_EDGES", many)
    message = graph_def(a="A", b="B", c="C n")
    for text in ("a", "b"):
        message.node.add(name="n", op="N", input=[text])
    graph = graph_of(message)
    assert codes(graph) == [("duplicate-name", "node[4]")]
    assert graph.nodes["n"].inputs == ["a"]
    assert graph.nodes["n#2"].inputs == ["b"]
    assert "n#3" not in graph.nodes
    assert list(graph.subgraph(["c"])) == ["b", "c", "n"]


def test_cycles_are_findings_that_name_their_nodes():
    graph = graph_of(graph_def(start="A", a="A start c", b="B a", c="C ^b:0 b", own="D own", after="E c"))
    found = graph.check()
    assert [finding.code for finding in found] == ["missing-input", "cycle", "cycle"]
    assert set(re.findall(r"'(\w+)'", found[1].reason)) == {"a", "b", "c"}
    assert "'own'" in found[2].reason
    assert list(graph.subgraph(["after"])) == ["start", "a", "b", "c", "after"]


def test_a_loop_is_no_fault():
    graph = graph_of(graph_def(enter="Enter", merge="Merge enter next", body="Add merge", next="NextIteration body"))
    assert codes(graph) == []
    assert len(graph.subgraph(["body"])) == 4


def test_a_long_chain_backwards():
    """No recursion: a chain of 30,000, each before what it consumes, and a cycle at its end."""
    message = GraphDef()
    for number in range(30_000):
        message.node.add(name=f"n{number}", op="A", input=[f"n{number + 1}"])
    message.node.add(name="n30000", op="A", input=["n29999"])
    graph = graph_of(message)
    assert len(graph.check()) == 1
    assert len(graph.subgraph(["n0"])) == 30_001


def test_a_subgraph_beyond_the_limit_is_refused_with_the_option():
    message = graph_def(**SMALL)
    graph = graph_of(message, max_nodes=6)
    assert len(list(graph.edges)) == 7  # streams whatever the number
    with pytest.raises(LimitError, match="max_nodes=7") as caught:
        graph.subgraph(["y"])
    assert (caught.value.wanted, caught.value.got) == (7, 6)


def test_memory_is_charged():
    message = GraphDef()
    for number in range(20_000):
        message.node.add(name=f"n{number}", op="A", input=[f"n{number // 2}"])
    with opened(message) as document:
        graph = tensorflow_graph(document)
        len(graph.nodes)
        before = document.session.budget.used
        assert len(graph.findings) == 0
        assert 20_000 * 20 < document.session.budget.used - before < 20_000 * 50
        part = graph.subgraph(["n19999"])
        assert list(part)[-1] == "n19999"
        del graph, part
        assert document.session.budget.used <= before


# -- functions and saved models --------------------------------------------------------------------------------------


def model():
    message = SavedModel()
    message.meta_graphs.add()
    meta = message.meta_graphs.add()
    meta.graph_def.CopyFrom(graph_def(**SMALL))
    for name in ("f", "g"):
        function = meta.graph_def.library.function.add()
        function.signature.name = name
        function.signature.input_arg.add(name="a")
        function.signature.input_arg.add(name="b")
        function.node_def.add(name="neg", op="Neg", input=["a"])
        function.node_def.add(name="pair", op="Pair", input=["neg:y:0", "b", "^neg"])
        function.node_def.add(name="idle", op="NoOp")
        function.ret["out"] = "pair:both:1"
        function.control_ret["done"] = "idle" if name == "f" else "nobody"
    signature = meta.signature_def["serving_default"]
    signature.inputs["x"].name = "x:0"
    signature.outputs["y"].name = "z:0"
    signature.method_name = "predict"
    return message


def test_a_saved_model():
    document = opened(model(), "tensorflow.SavedModel")
    assert len(tensorflow_graph(document).nodes) == 0
    with pytest.raises(PathError, match="2 meta graphs"):
        tensorflow_graph(document, meta_graph=2)
    graph = tensorflow_graph(document, meta_graph=1)
    assert graph.signatures["serving_default"].to_dict() == {
        "inputs": {"x": "x:0"},
        "outputs": {"y": "z:0"},
        "method_name": "predict",
    }
    assert list(graph.subgraph(graph.signatures["serving_default"].outputs.values()))[-1] == "z"
    assert graph.nodes["z"].node.path == "meta_graphs[1].graph_def.node[5]"
    assert len(tensorflow_graph(document.parse(), meta_graph=1).nodes) == 7
    assert len(tensorflow_graph(document.root["meta_graphs"][1]).nodes) == 7
    with pytest.raises(UnsupportedError, match="NodeDef"):
        tensorflow_graph(graph.nodes["z"].node)


def test_functions_have_arguments_results_and_graphs_of_their_own():
    graph = graph_of(model(), "tensorflow.SavedModel", meta_graph=1)
    assert list(graph.functions) == ["f", "g"]
    assert [function.name for function in graph.functions.values()] == ["f", "g"]
    function = graph.functions["f"]
    assert function.arguments == ["a", "b"]
    assert function.results == {"out": "pair:both:1"}
    assert function.control_results == {"done": "idle"}
    assert list(function.nodes) == ["neg", "pair", "idle"]
    assert list(function.inputs) == ["a", "b"]
    assert list(function.outputs) == ["pair", "idle"]
    assert list(function.edges) == [
        Edge("a", None, "neg", 0, False),
        Edge("neg", "y:0", "pair", 0, False),
        Edge("b", None, "pair", 1, False),
        Edge("neg", None, "pair", None, True),
    ]
    assert list(function.subgraph(["out"])) == ["a", "b", "neg", "pair"]
    assert list(function.subgraph(["neg"])) == ["a", "neg"]
    assert "a" not in function.nodes
    assert len(function.check()) == 0
    with pytest.raises(UnsupportedError):
        function.write(lambda raw: None)
    with pytest.raises(PathError):
        function.subgraph(["nothing"])
    assert [finding.reason for finding in graph.functions["g"].check()] == [
        "the result 'done' is 'nobody', which does not exist"
    ]
    with pytest.raises(KeyError):
        graph.functions["h"]


# -- text ------------------------------------------------------------------------------------------------------------


def test_dot_has_a_line_for_every_node_and_edge():
    graph = graph_of(graph_def(**SMALL))
    lines = list(graph.to_dot())
    assert lines[0] == 'digraph "graph" {\n'
    assert lines[-1] == "}\n"
    assert '  "y" [label="y\\nMatMul"];\n' in lines
    assert '  "split" -> "z" [taillabel="1"];\n' in lines
    assert '  "y" -> "z" [headlabel="1"];\n' in lines
    assert '  "init" -> "z" [style=dashed];\n' in lines
    part = list(graph.subgraph(["y"]).to_dot("part"))
    assert part[0] == 'digraph "part" {\n'
    assert len(part) == 3 + 3 + 2
    function = graph_of(model(), "tensorflow.SavedModel", meta_graph=1).functions["f"]
    assert '  "a" [shape=ellipse];\n' in list(function.to_dot())


def test_dot_of_hostile_names():
    assert quoted('a"b\\') == '"a\\"b\\\\"'
    assert quoted('"];x\n\u202e') == '"\\"];x\\\\x0a\\\\x202e"'


def test_json_has_every_node_and_edge():
    graph = graph_of(graph_def(**SMALL))
    found = json.loads("".join(graph.to_json()))
    assert [node["name"] for node in found["nodes"]] == list(SMALL)
    assert found["nodes"][2] == {"name": "y", "op": "MatMul", "inputs": ["x", "w:0"], "device": ""}
    assert len(found["edges"]) == 7
    assert found["edges"][4] == {"source": "split", "output": 1, "target": "z", "input": 0, "control": False}
    lines = [json.loads(line) for line in graph.to_json_lines()]
    assert lines == [*found["nodes"], *found["edges"]]
    odd = graph_def(**{'q"\n\u2028': "A", "b": 'B q"\n\u2028:1 ^b'})
    assert json.loads("".join(graph_of(odd).to_json()))["edges"][0]["target"] == "b"
    assert json.loads("".join(graph.subgraph([]).to_json())) == {"nodes": [], "edges": []}


def test_any_change_of_a_byte():
    """A graph or one of our errors, whatever the bytes."""
    raw = graph_def(**SMALL).SerializeToString()
    for at in sweep.some(range(len(raw)), 3, ends=8):
        for change in sweep.values((0x01, 0x80, 0xFF), at):
            bad = raw[:at] + bytes([raw[at] ^ change]) + raw[at + 1 :]
            with pparse.open(bad, format="protobuf", options=OPTIONS) as document:
                graph = tensorflow_graph(document)
                try:
                    names = list(graph.nodes)
                    graph.check()
                    assert set(graph.subgraph(names[-1:])) <= set(names)
                    assert len(list(graph.edges)) == graph.index.edge_count
                    assert len(list(graph.to_dot())) == 3 + len(names) + graph.index.edge_count
                except PparseError:
                    pass
