"""The command line: ``pparse graph``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pparse.protos import message_class
from tests.test_tensorflow_graph import SMALL, graph_def, model

GraphDef = message_class("tensorflow.GraphDef")
DATA = Path(__file__).resolve().parent / "data" / "tf"
JSON_KEYS = {
    "schema",
    "file",
    "format",
    "function",
    "body",
    "hidden_count",
    "constant_count",
    "bodies",
    "input_values",
    "output_values",
    "node_count",
    "edge_count",
    "control_edge_count",
    "operations",
    "inputs",
    "outputs",
    "functions",
    "results",
    "signatures",
    "nodes",
    "edges",
    "status",
    "findings",
}


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "graph.pb"
    path.write_bytes(graph_def(**SMALL).SerializeToString())
    return path


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "saved_model.pb"
    message = model()
    message.saved_model_schema_version = 1
    message.meta_graphs[0].MergeFrom(message.meta_graphs[1])
    path.write_bytes(message.SerializeToString())
    return path


def fields(ran):
    return [line.split(maxsplit=1) for line in ran.lines]


def test_graph_sums_up_nodes_edges_and_operations(run, small):
    ran = run("graph", small)
    assert (ran.code, ran.err) == (0, "")
    assert fields(ran) == [
        ["file", str(small)],
        ["format", "graph-def: TensorFlow GraphDef (frozen graph)"],
        ["nodes", "7"],
        ["edges", "7 (2 of control)"],
        ["operations", "Const 2, Add 1, MatMul 1, NoOp 1, Placeholder 1, Split 1"],
        ["inputs", "x"],
        ["outputs", "z, alone"],
        ["status", "complete, unverified"],
    ]
    assert run("graph", small, "-q").lines == list(SMALL)


def test_with_outputs_only_what_they_need_is_shown(run, small):
    ran = run("graph", small, "--outputs", "y:0,init")
    assert fields(ran)[2:7] == [
        ["nodes", "4 of 7"],
        ["edges", "3 (1 of control)"],
        ["operations", "Const 1, MatMul 1, NoOp 1, Placeholder 1"],
        ["inputs", "x"],
        ["outputs", "y:0, init"],
    ]
    assert run("graph", small, "--outputs", "y", "-q").lines == ["x", "w", "y"]
    assert run("graph", small, "--inputs").out == "x\n"
    assert run("graph", small, "--inputs", "--outputs", "init").out == ""
    ran = run("graph", small, "--outputs", "yy")
    assert (ran.code, ran.out) == (2, "")
    assert "no node with this name" in ran.err


def test_a_model(run, saved):
    ran = run("graph", saved)
    assert ran.code == 0
    assert ["signature", "serving_default: x=x:0 → y=z:0"] in fields(ran)
    assert ["functions", "f, g"] in fields(ran)
    assert run("graph", saved, "--meta-graph", 1).lines[2:] == ran.lines[2:]
    ran = run("graph", saved, "--meta-graph", 2)
    assert (ran.code, ran.out) == (2, "")
    ran = run("graph", saved, "--function", "f")
    assert fields(ran)[2:] == [
        ["function", "f"],
        ["nodes", "3"],
        ["edges", "4 (1 of control)"],
        ["operations", "Neg 1, NoOp 1, Pair 1"],
        ["inputs", "a, b"],
        ["results", "out=pair:both:1"],
        ["status", "complete, unverified"],
    ]
    assert run("graph", saved, "--function", "f", "--outputs", "neg", "--inputs").lines == ["a"]
    assert run("graph", saved, "--function", "h").code == 2


def test_json_has_all_nodes_and_edges_under_the_declared_keys(run, small, saved):
    found = run("graph", small, "--json").json
    assert set(found) == JSON_KEYS
    assert (found["schema"], found["file"], found["format"], found["function"]) == (1, str(small), "graph-def", None)
    assert (found["node_count"], found["edge_count"], found["control_edge_count"]) == (7, 7, 2)
    assert (found["inputs"], found["outputs"], found["status"], found["findings"]) == (
        ["x"],
        ["z", "alone"],
        "complete",
        [],
    )
    assert [node["name"] for node in found["nodes"]] == list(SMALL)
    assert found["edges"][-1] == {
        "source": "init",
        "output": None,
        "target": "z",
        "input": None,
        "control": True,
    }
    part = run("graph", small, "--json", "--outputs", "y").json
    assert set(part) == JSON_KEYS
    assert (part["node_count"], part["outputs"], len(part["nodes"]), len(part["edges"])) == (3, ["y"], 3, 2)
    nothing = run("graph", small, "--json", "--outputs", "").json
    assert (nothing["nodes"], nothing["edges"], nothing["operations"]) == ([], [], {})
    whole = run("graph", saved, "--json").json
    assert whole["functions"] == ["f", "g"]
    assert whole["signatures"]["serving_default"]["outputs"] == {"y": "z:0"}
    assert run("graph", saved, "--json", "--function", "f").json["results"] == {"out": "pair:both:1"}


# -- what saves and restores -----------------------------------------------------------------------------------------

WITH_SAVER = {
    "x": "Placeholder",
    "w": "VariableV2",
    "w/read": "Identity w",
    "y": "MatMul x w/read",
    "idle": "VarHandleOp",
    "save/filename/input": "Const",
    "save/filename": "PlaceholderWithDefault save/filename/input",
    "save/shapes": "Const",
    "save/SaveV2": "SaveV2 save/filename save/shapes w idle",
    "save/control": "Identity save/filename ^save/SaveV2",
    "save/RestoreV2": "RestoreV2 save/filename",
    "save/Assign": "Assign w save/RestoreV2",
    "save/restore_all": "NoOp ^save/Assign",
    "reader": "Placeholder",
    "call": "StatefulPartitionedCall reader w",
    "after": "Identity call",
}
SHOWN = ["x", "w", "w/read", "y", "idle"]


def with_saver():
    message = message_class("tensorflow.MetaGraphDef")()
    message.graph_def.CopyFrom(graph_def(**WITH_SAVER))
    message.saver_def.filename_tensor_name = "reader:0"
    message.saver_def.restore_op_name = "after"
    for name in ("__inference__traced_save_5", "__inference__traced_restore_7", "__inference_call_1"):
        message.graph_def.library.function.add().signature.name = name
    return message


@pytest.fixture
def saving(tmp_path):
    path = tmp_path / "model.meta"
    path.write_bytes(with_saver().SerializeToString())
    return path


def test_what_saves_and_restores_is_hidden_and_counted(run, saving):
    ran = run("graph", saving)
    assert fields(ran)[2:10] == [
        ["nodes", "5"],
        ["hidden", "11 nodes that only save and restore variables (--all shows them)"],
        ["edges", "3"],
        ["operations", "Identity 1, MatMul 1, Placeholder 1, VarHandleOp 1, VariableV2 1"],
        ["inputs", "x"],
        ["outputs", "y"],
        ["functions", "__inference_call_1"],
        ["status", "complete, unverified"],
    ]
    assert run("graph", saving, "-q").lines == SHOWN
    assert run("graph", saving, "--inputs").lines == ["x"]
    assert len(run("graph", saving, "--jsonl").jsonl) == 5 + 3
    assert len(run("graph", saving, "--dot").lines) == 3 + 5 + 3
    found = run("graph", saving, "--json").json
    assert (found["node_count"], found["hidden_count"], found["edge_count"]) == (5, 11, 3)
    assert (found["inputs"], found["outputs"], found["functions"]) == (["x"], ["y"], ["__inference_call_1"])


def test_all_shows_what_saves_and_restores(run, saving):
    assert run("graph", saving, "-q", "--all").lines == list(WITH_SAVER)
    assert ["nodes", "16"] in fields(run("graph", saving, "--all"))
    found = run("graph", saving, "--json", "--all").json
    assert (found["node_count"], found["hidden_count"]) == (16, 0)
    assert found["outputs"] == ["y", "save/control", "save/restore_all", "after"]
    assert len(found["functions"]) == 3
    assert len(run("graph", saving, "--dot", "--all").lines) == 3 + 16 + found["edge_count"]


def test_a_part_that_is_asked_for_or_written_is_whole(run, saving, tmp_path):
    part = ["w", "save/filename/input", "save/filename", "save/RestoreV2", "save/Assign"]
    assert run("graph", saving, "-q", "--outputs", "save/Assign").lines == part
    target = tmp_path / "whole.pb"
    assert run("graph", saving, "-o", target).code == 0
    assert [node.name for node in GraphDef.FromString(target.read_bytes()).node] == list(WITH_SAVER)


# -- types -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def typed(tmp_path):
    message = model()
    meta = message.meta_graphs[0]
    meta.MergeFrom(message.meta_graphs[1])
    image = meta.graph_def.node[0].attr
    image["dtype"].type = 1
    for size in (-1, 224, 3):
        image["shape"].shape.dim.add(size=size)
    info = meta.signature_def["serving_default"].outputs["y"]
    info.dtype = 7
    info.tensor_shape.unknown_rank = True
    function = meta.graph_def.library.function[0]
    function.signature.input_arg[0].type = 3
    function.arg_attr[0].attr["_output_shapes"].list.shape.add().dim.add(size=2)
    path = tmp_path / "saved_model.pb"
    path.write_bytes(message.SerializeToString())
    return path


def test_inputs_and_outputs_of_a_cut_model_are_not_known_rather_than_none(run, tmp_path):
    cut = tmp_path / "cut.onnx"
    cut.write_bytes((Path(__file__).parent.parent / "docs/samples/tiny.onnx").read_bytes()[:600])
    for command in ("graph", "info"):
        said = fields(run(command, cut))
        assert ["inputs", "not known: the file is cut before them"] in said
        assert ["outputs", "not known: the file is cut before them"] in said
    found = run("graph", cut, "--json").json
    assert [found[key] for key in ("inputs", "outputs", "input_values", "output_values")] == [None] * 4
    found = run("info", cut, "--json").json["graph"]
    assert (found["inputs"], found["outputs"]) == (None, None)
    body = run("graph", cut, "--json", "--body", "/If.then_branch").json
    assert (body["inputs"], body["outputs"]) == ([], ["louder"])


def test_inputs_and_outputs_are_shown_with_types_and_shapes(run, typed):
    ran = run("graph", typed)
    assert ["inputs", "x float32[?,224,3]"] in fields(ran)
    assert ["outputs", "z string[…], alone"] in fields(ran)
    assert ["inputs", "a int32[2], b"] in fields(run("graph", typed, "--body", "f"))
    found = run("graph", typed, "--json").json
    assert found["input_values"] == [{"name": "x", "dtype": "float32", "shape": [None, 224, 3]}]
    assert found["output_values"] == [
        {"name": "z", "dtype": "string", "shape": None},
        {"name": "alone", "dtype": None, "shape": None},
    ]
    found = run("graph", typed, "--json", "--body", "f").json
    assert (found["function"], found["body"]) == ("f", "f")


def test_info_tells_nodes_inputs_and_outputs_of_a_graph(run, typed, monkeypatch):
    """Those of the signatures, which somebody chose; without any, those of the graph."""
    facts = run("info", typed, "--json").json["graph"]
    assert (facts["node_count"], facts["inputs"][0]["shape"], len(facts["outputs"])) == (7, [None, 224, 3], 2)
    lines = fields(run("info", typed))
    assert ["graph", "7 nodes"] in lines
    assert {"signature", "input", "output"} <= {line[0] for line in lines if line}
    assert not any(line[0] == "inputs" for line in lines)
    message = message_class("tensorflow.SavedModel").FromString(typed.read_bytes())
    for graph in message.meta_graphs:
        graph.ClearField("signature_def")
    typed.write_bytes(message.SerializeToString())
    lines = fields(run("info", typed))
    assert ["inputs", "x float32[?,224,3]"] in lines
    assert any(line[:1] == ["outputs"] for line in lines)
    monkeypatch.setattr("pparse.cli.graph._NODES", 6)
    assert not any(line[0] == "inputs" for line in fields(run("info", typed)))
    told = {"node_count": 7, "inputs": None, "outputs": None, "findings": []}
    assert run("info", typed, "--json").json["graph"] == told


def test_json_lines_are_nodes_then_edges(run, small):
    found = run("graph", small, "--jsonl").jsonl
    assert [row["name"] for row in found[:7]] == list(SMALL)
    assert len(found) == 14
    assert found[7] == {"source": "x", "output": 0, "target": "y", "input": 0, "control": False}


def test_dot_is_written_to_standard_output_or_a_file(run, small, tmp_path):
    ran = run("graph", small, "--dot")
    assert ran.code == 0
    assert ran.lines[0] == 'digraph "graph" {'
    target = tmp_path / "out.dot"
    assert run("graph", small, "--dot", "-o", target).out == ""
    assert target.read_text() == ran.out
    assert run("graph", small, "--dot", "--json").code == 2


def test_the_extension_of_the_output_says_what_is_written(run, small, tmp_path):
    for ending, first in (("svg", "<?xml"), ("dot", "digraph"), ("json", "{"), ("jsonl", "{")):
        out = tmp_path / f"graph.{ending}"
        assert run("graph", small, "-o", out).code == 0
        assert out.read_text().startswith(first)


def test_a_part_as_a_file(run, small, tmp_path):
    target = tmp_path / "part.pb"
    ran = run("graph", small, "--outputs", "y", "-o", target)
    assert (ran.code, ran.out) == (0, f"{target}: 3 of 7 nodes, {target.stat().st_size} bytes\n")
    assert [node.name for node in GraphDef.FromString(target.read_bytes()).node] == ["x", "w", "y"]
    assert run("graph", target).code == 0
    assert run("graph", small, "-o", tmp_path / "new" / "folder.pb").code == 0
    ran = run("graph", small, "-o", target / "folder.pb")
    assert ran.code == 2
    assert "cannot write" in ran.err


def test_a_part_of_a_chunked_graph_has_its_weights_again(run, tmp_path):
    """Weights that are chunks of their own are put back where they belong."""
    target = tmp_path / "part.pb"
    path = DATA / "const_chunked" / "saved_model.cpb"
    assert run("graph", path, "--outputs", "sum", "-o", target, "-q").out == ""
    nodes = {node.name: node for node in GraphDef.FromString(target.read_bytes()).node}
    whole = json.loads((DATA / "const_chunked" / "expected.json").read_text())
    assert "sum" in nodes
    sizes = {len(node.attr["value"].tensor.tensor_content) for node in nodes.values()}
    assert sizes & {chunk["size"] for chunk in whole["chunks"] if chunk["type"] == "BYTES"}


def test_what_is_wrong(run, small, saved, tmp_path):
    bad = tmp_path / "bad.pb"
    bad.write_bytes(graph_def(a="A gone", b="B c", c="C b").SerializeToString())
    ran = run("graph", bad)
    assert ran.code == 4
    assert ["status", "damaged"] in fields(ran)
    assert any("missing-input" in line for line in ran.lines)
    assert any("cycle" in line for line in ran.lines)
    found = run("graph", bad, "--json")
    assert found.code == 4
    assert found.json["status"] == "damaged"
    assert [row["code"] for row in found.json["findings"]] == ["missing-input", "cycle"]
    assert "no tensor, but a node of the graph (A), which is node[0] in" in run("get", bad, "a").err
    bad.write_bytes(graph_def(**{f"n{number}": "A gone" for number in range(12)}).SerializeToString())
    assert (
        run("graph", bad).lines[-1] == "… and 2 more; 'pparse graph --json' shows all"
    )  # 'pparse check' finds nothing
    cut = tmp_path / "cut.pb"
    cut.write_bytes(small.read_bytes()[:-3])
    for option in ((), ("--dot",), ("--json",), ("-q",)):
        ran = run("graph", cut, *option)
        assert ran.code == 4
        assert "z" in ran.out
    assert any(
        line.endswith("the string ends early") and "truncated node[6].op" in line for line in run("graph", cut).lines
    )
    assert run("graph", cut, "--json").json["status"] == "truncated"
    target = tmp_path / "part.pb"
    assert run("graph", cut, "-o", target).code == 4
    assert not target.exists()
    assert run("graph", saved, "--function", "g").code == 4


def test_more_nodes_than_the_limit_are_refused_with_the_option_that_lifts_it(run, small):
    ran = run("graph", small, "--max-nodes", 6)
    assert (ran.code, ran.out) == (2, "")
    assert "--max-nodes 7" in ran.err
    assert run("graph", small, "--max-nodes", 7).code == 0
    assert run("graph", small, "--max-nodes", "x").code == 2
    assert run("graph", small, "--max-nodes", 6, "--dot").code == 0


def test_a_file_without_a_graph_is_refused(run, model_file):
    ran = run("graph", model_file)
    assert (ran.code, ran.out) == (2, "")
    assert "json has no graph" in ran.err


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "it.json"
    path.write_text('{"a": 1}')
    return path


def test_control_characters_in_names_do_not_reach_the_terminal(run, tmp_path):
    path = tmp_path / "graph.pb"
    path.write_bytes(graph_def(**{"a\x1b[31m\n": "A", "b": "B a\x1b[31m\n"}).SerializeToString())
    for option in ((), ("--dot",), ("-q",), ("--json",)):
        assert "\x1b" not in run("graph", path, *option).out


def test_graph_help_has_examples(run):
    ran = run("graph", "--help")
    assert ran.code == 0
    assert "examples:" in ran.out


def test_no_heavy_imports(small):
    """A summary of a small graph needs neither numpy nor protobuf."""
    code = (
        "import sys; from pparse.cli import main; main(['graph', sys.argv[1]]); "
        "print(sorted({'numpy', 'google.protobuf', 'typing', 'dataclasses'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(small)], capture_output=True, text=True, env=dict(os.environ))
    assert ran.stdout.splitlines()[-1] == "[]"
