"""Graphs of ONNX models: rows, captured values, bodies, types, parts."""

from __future__ import annotations

import pytest

import pparse
from pparse.errors import MalformedError, PathError, UnsupportedError
from tests.onnx_models import MODEL, branching, initializer, model, node, typed


def viewer(message):
    return pparse.view(message.SerializeToString(), format="onnx")


def written(graph, tmp_path):
    path = tmp_path / "part.onnx"
    graph.save(str(path))
    return MODEL.FromString(path.read_bytes())


def test_a_graph_has_the_nodes_before_one_whose_head_is_cut():
    """Wherever the data end, what can be read of the graph is given, and nothing is an error."""
    content = branching().SerializeToString()
    counts = []
    for end in range(content.index(b"if_1"), content.index(b"neg") + 3):
        with pparse.view(content[:end], format="onnx") as model:
            counts.append(sum(1 for _ in model.graph.rows()))
    assert counts == sorted(counts)
    assert counts[-1] >= 2


def test_a_node_without_a_name_is_called_after_its_first_output():
    rows = list(viewer(branching()).graph.rows())
    assert [row[1] for row in rows] == ["if_1", "z", "neg"]
    assert [row[2] for row in rows] == ["If", "Relu", "Neg"]
    assert rows[1][3] == ["y"]
    assert rows[1][6] == ["z"]


def test_what_bodies_use_at_any_depth_is_needed_by_the_node():
    rows = list(viewer(branching()).graph.rows())
    assert rows[0][5] == ["outer", "x"]  # not "inner", "count" or "state", which bodies define


def test_inputs_outputs_and_their_types():
    graph = viewer(branching()).graph
    assert list(graph.inputs) == ["cond", "x"]
    assert list(graph.outputs) == ["z"]
    assert str(graph.value("x")) == "x float32[batch,2]"
    assert str(graph.value("cond")) == "cond bool[]"
    assert str(graph.value("y")) == "y float32[batch,2]"
    assert str(graph.value("outer")) == "outer float32[2]"
    assert graph.value("nothing") is None


def test_types_of_sequences_and_maps_are_told_in_words():
    found = model()
    sequence = found.graph.input.add(name="s").type.sequence_type.elem_type
    sequence.map_type.key_type = 7
    sequence.map_type.value_type.tensor_type.elem_type = 1
    value = viewer(found).graph.value("s")
    assert (value.dtype, value.shape) == ("sequence of map from int64 to float32", None)


def test_edges_go_from_nodes_and_from_values():
    edges = list(viewer(branching()).graph.edges)
    assert ("if_1", 0, "z", 0, False) in edges
    assert ("cond", None, "if_1", 0, False) in edges


def test_what_bodies_capture_are_edges_without_an_input():
    found = branching()
    found.graph.node[0].attribute[0].g.node[0].input[1] = "made"
    node(found.graph, "Neg", ["x"], ["made"], "first")
    graph = viewer(found).graph
    assert ("first", 0, "if_1", None, False) in list(graph.edges)
    assert ("outer", None, "if_1", None, False) in list(graph.edges)
    assert graph.index.edge_count == len(list(graph.edges))
    assert '  "node first" -> "node if_1" [style=dotted];\n' in list(graph.to_dot())


def test_an_omitted_input_is_no_edge_and_no_fault():
    body = viewer(branching()).graph.bodies["if_1.else_branch"]
    assert [edge[:4] for edge in body.edges if edge.target == "loop"] == [
        ("c", 0, "loop", 0),
        ("x", None, "loop", 2),
        ("outer", None, "loop", None),
    ]
    assert not list(body.check())


def test_bodies_have_paths_and_see_the_values_around_them():
    bodies = viewer(branching()).graph.bodies
    assert set(bodies) == {"if_1.then_branch", "if_1.else_branch", "if_1.else_branch/loop.body"}
    inner = bodies["if_1.else_branch/loop.body"]
    assert [row[1] for row in inner.rows()] == ["mul", "keep"]
    assert not list(inner.check())
    assert inner.outer.outer.name == ""


def test_a_value_that_nothing_makes_is_a_finding():
    found = branching()
    node(found.graph, "Add", ["z", "gone"], ["w"], "late")
    findings = list(viewer(found).graph.check())
    assert [finding.code for finding in findings] == ["missing-input"]
    assert "'gone'" in findings[0].reason


def test_a_part_has_what_its_outputs_need(tmp_path):
    part = written(viewer(branching()).graph.subgraph(["z"]), tmp_path)
    assert [item.op_type for item in part.graph.node] == ["If", "Relu"]
    assert [item.name for item in part.graph.initializer] == ["outer"]
    assert [item.name for item in part.graph.input] == ["cond", "x"]
    assert [item.name for item in part.graph.output] == ["z"]
    assert part.opset_import[0].version == 17
    assert part.ir_version == 8


def test_an_output_in_the_middle_gets_the_type_that_the_model_states(tmp_path):
    part = written(viewer(branching()).graph.subgraph(["if_1"]), tmp_path)
    assert [item.name for item in part.graph.output] == ["y"]
    assert part.graph.output[0].type.tensor_type.elem_type == 1
    assert not part.graph.value_info  # the one there is, is the output


def test_a_graph_is_written_as_it_was(tmp_path):
    whole = branching()
    whole.training_info.add().algorithm.name = "left out"
    assert written(viewer(whole).graph, tmp_path).graph == whole.graph


def test_initializers_that_are_inputs_are_not_asked_for(tmp_path):
    found = model()
    found.ir_version = 3
    for name in ("x", "w", "v"):
        typed(found.graph.input, name, 2)
    initializer(found.graph, "w", [1.0, 2.0])
    initializer(found.graph, "v", [1.0, 2.0])
    node(found.graph, "Add", ["x", "w"], ["y"])
    node(found.graph, "Add", ["x", "v"], ["z"])
    typed(found.graph.output, "y", 2)
    graph = viewer(found).graph
    assert list(graph.inputs) == ["x"]
    part = written(graph.subgraph(["y"]), tmp_path)
    assert [item.name for item in part.graph.input] == ["x", "w"]
    assert [item.name for item in part.graph.initializer] == ["w"]


def test_functions_are_bodies_of_their_own(tmp_path):
    found = branching()
    function = found.functions.add(name="Twice", domain="custom", input=["a"], output=["b"])
    node(function, "Add", ["a", "a"], ["b"])
    twin = found.functions.add(name="Twice", domain="custom", overload="other", input=["a"], output=["b"])
    node(twin, "Mul", ["a", "a"], ["b"])
    graph = viewer(found).graph
    assert list(graph.functions) == ["custom.Twice", "custom.Twice:other"]
    assert [row[2] for row in graph.functions["custom.Twice:other"].rows()] == ["Mul"]
    assert list(graph.functions["custom.Twice"].inputs) == ["a"]
    with pytest.raises(UnsupportedError, match="cannot be written"):
        graph.functions["custom.Twice"].save(str(tmp_path / "no.onnx"))
    assert len(written(graph.subgraph(["z"]), tmp_path).functions) == 2


def test_a_damaged_node_is_not_copied(tmp_path):
    raw = bytearray(branching().SerializeToString())
    raw[raw.index(b"\x04Relu")] = 0xFF  # the length of its operation
    graph = pparse.view(bytes(raw), format="onnx").graph
    with pytest.raises((MalformedError, PathError)):
        graph.save(str(tmp_path / "no.onnx"))
    assert not (tmp_path / "no.onnx").exists()


def test_large_nodes_are_read_field_by_field():
    found = model()
    big = node(found.graph, "Constant", [], ["c"], "big")
    big.attribute.add(name="value", type=4).t.CopyFrom(
        initializer(model().graph, "", [0.5] * 10_000),
    )
    node(found.graph, "Neg", ["c"], ["d"])
    view = viewer(found)
    assert [row[1:4] for row in view.graph.rows()] == [("big", "Constant", []), ("d", "Neg", ["c"])]
    assert view["c"].numpy()[9_999] == 0.5


def test_a_file_that_a_model_names_is_told_apart(tmp_path):
    found = model()
    tensor = found.graph.initializer.add(name="w", data_type=1, dims=[2], data_location=1)
    tensor.external_data.add(key="location", value="weights.bin")
    (tmp_path / "m.onnx").write_bytes(found.SerializeToString())
    (tmp_path / "weights.bin").write_bytes(b"\xfc\x01\x02\x03\xff\xfe\x80\x81")
    with pytest.raises(pparse.FormatError, match=r"m\.onnx beside it names it"):
        pparse.open(tmp_path / "weights.bin").parse()
