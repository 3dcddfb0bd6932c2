"""Signatures and functions of SavedModels, as ``saved_model_cli show --all`` tells them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pparse
from pparse.protos import message_class
from pparse.viewers.tensorflow.meta import words_of
from tests import sweep
from tests.rows import rows

MODEL = Path("docs/samples/saved-model")
X = "TensorSpec(shape={}, dtype=tf.float32, name='x')"
# What saved_model_cli of TensorFlow 2.21 prints of the sample: arguments, and named ones with the values they have.
CALL = [
    ({"x": X.format("(None, 4)"), "training": "False"}, {"names": "('a', 'b')", "scale": "1.5"}),
    ({"x": X.format("(2, 4)"), "training": "True"}, {"names": "['x', 3, None]", "scale": "1.5"}),
    ({"x": X.format("(4, 4)"), "training": "False"}, {"names": "('a', 'b')", "scale": "2"}),
]
SERVE = {"x": X.format("(None, 4)"), "w": "TensorSpec(shape=(None,), dtype=tf.string, name='w')"}


def test_functions_are_callable_with_what_the_program_gave_them():
    with pparse.view(MODEL) as model:
        functions = model.functions
        assert list(functions) == ["call", "serve"]
        assert [(way.arguments, way.keywords) for way in functions["call"]] == CALL
        (serve,) = functions["serve"]
        assert (serve.arguments, serve.keywords) == (SERVE, {})
        assert serve.result == (
            "{'ids': TensorSpec(shape=(None,), dtype=tf.int64, name='ids'), "
            "'y': TensorSpec(shape=(None, 3), dtype=tf.float32, name='y')}"
        )


def test_the_interface_has_every_signature_with_the_names_of_tensors():
    with pparse.view(MODEL / "saved_model.pb") as model:
        (graph,) = model.interface()
    assert graph["tags"] == ["serve"]
    assert list(graph["signatures"]) == ["__saved_model_init_op", "serving_default"]
    serving = graph["signatures"]["serving_default"]
    assert serving["method_name"] == "tensorflow/serving/predict"
    assert {
        name: (info["tensor"], info["stored_dtype"], info["shape"]) for name, info in serving["inputs"].items()
    } == {
        "w": ("serving_default_w:0", "DT_STRING", [-1]),
        "x": ("serving_default_x:0", "DT_FLOAT", [-1, 4]),
    }
    assert {name: (info["tensor"], info["shape"]) for name, info in serving["outputs"].items()} == {
        "ids": ("StatefulPartitionedCall:0", [-1]),
        "y": ("StatefulPartitionedCall:1", [-1, 3]),
    }


def test_info_shows_them(run):
    ran = run("info", MODEL)
    assert ran.code == 0
    for line in (
        "signature   serving_default  tensorflow/serving/predict",
        "  input     w  DT_STRING ?  serving_default_w:0",
        "  output    y  float32 ?×3  StatefulPartitionedCall:1",
        "function    call",
    ):
        assert line in ran.out.splitlines(), line
    found = json.loads(run("info", "--json", MODEL).out)["interface"]
    assert [len(found[0][key]) for key in ("signatures", "functions")] == [2, 2]


@rows(
    ("value", "expected"),
    [
        ({}, "None"),
        ({"none_value": {}}, "None"),
        ({"int64_value": -3}, "-3"),
        ({"string_value": "a'b"}, '"a\'b"'),
        ({"tuple_value": {"values": [{"bool_value": True}]}}, "(True,)"),
        ({"tuple_value": {}}, "()"),
        ({"list_value": {"values": [{"float64_value": 1.5}, {"none_value": {}}]}}, "[1.5, None]"),
        ({"dict_value": {"fields": {"k": {"tuple_value": {}}}}}, "{'k': ()}"),
        (
            {"named_tuple_value": {"name": "Pair", "values": [{"key": "a", "value": {"int64_value": 1}}]}},
            "Pair(a=1)",
        ),
        ({"tensor_dtype_value": "DT_BFLOAT16"}, "tf.bfloat16"),
        ({"tensor_shape_value": {"dim": [{"size": -1}, {"size": 2}]}}, "TensorShape([None, 2])"),
        ({"tensor_shape_value": {"dim": [{"size": 7}]}}, "TensorShape([7])"),
        ({"tensor_shape_value": {"unknown_rank": True}}, "TensorShape(<unknown>)"),
        (
            {"tensor_spec_value": {"shape": {"unknown_rank": True}, "dtype": "DT_HALF"}},
            "TensorSpec(shape=<unknown>, dtype=tf.float16, name=None)",
        ),
        (
            {
                "type_spec_value": {
                    "type_spec_class": "RAGGED_TENSOR_SPEC",
                    "type_spec_class_name": "RaggedTensorSpec",
                    "type_state": {"tuple_value": {"values": [{"tensor_dtype_value": "DT_FLOAT"}, {"int64_value": 1}]}},
                }
            },
            "RaggedTensorSpec(tf.float32, 1)",
        ),
        ({"type_spec_value": {"type_spec_class": "SPARSE_TENSOR_SPEC"}}, "SparseTensorSpec()"),
        ({"tensor_value": {"dtype": "DT_INT8"}}, "<array of tf.int8>"),
        ("rubbish", "rubbish"),
        ({"list_value": 7}, "[]"),
        ({"tuple_value": {"values": 7}}, "()"),
    ],
)
def test_a_structured_value_reads_as_a_program_writes_it(value, expected):
    assert words_of(value) == expected


def test_a_value_of_a_million_parts_and_one_that_is_deep_are_shown_in_part():
    value: dict = {"int64_value": 1}
    for _ in range(100_000):
        value = {"list_value": {"values": [value]}}
    assert words_of(value).endswith("…")
    assert len(words_of({"list_value": {"values": [{"int64_value": 7}] * 1_000_000}})) < 2_100


def test_a_cut_or_damaged_message_is_no_reason_to_fail(tmp_path):
    content = (MODEL / "saved_model.pb").read_bytes()
    path = tmp_path / "saved_model.pb"
    rng = random.Random(5)
    cases = [content[:cut] for cut in sweep.some(range(0, len(content), 397), 4)]
    for _ in range(sweep.scaled(120, 8)):
        changed = bytearray(content)
        changed[rng.randrange(len(content) // 2, len(content))] ^= 1 << rng.randrange(8)
        cases.append(bytes(changed))
    for case in cases:
        path.write_bytes(case)
        try:
            with pparse.view(path, format="saved-model") as model:
                list(model.interface_lines())
                json.dumps(model.interface())
        except pparse.PparseError:
            pass


def test_objects_that_name_each_other_or_nothing_end(tmp_path):
    saved = message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    graph = saved.meta_graphs.add().object_graph_def
    root = graph.nodes.add()
    root.children.add(node_id=0, local_name="me")
    root.children.add(node_id=1, local_name="f")
    root.children.add(node_id=99, local_name="nobody")
    root.children.add(node_id=-1, local_name="negative")
    child = graph.nodes.add()
    child.children.add(node_id=0, local_name="back")
    child.function.concrete_functions.append("missing")
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pparse.view(tmp_path) as model:
        (way,) = model.functions["f"]
        assert (way.arguments, way.keywords, way.result) == ({}, {}, None)
        assert list(model.functions) == ["f"]


def test_each_output_of_a_node_has_a_type_of_its_own():
    with pparse.view(MODEL) as model:
        found = {name: str(model.graph.value(f"StatefulPartitionedCall{name}")) for name in ("", ":0", ":1", ":2")}
    assert found == {
        "": "StatefulPartitionedCall int64[?]",
        ":0": "StatefulPartitionedCall:0 int64[?]",
        ":1": "StatefulPartitionedCall:1 float32[?,3]",
        ":2": "None",
    }


def test_a_small_message_of_another_type_is_no_saved_model(tmp_path):
    """A TensorProto of ONNX: its first field could be the version of a SavedModel, the others could not."""
    path = tmp_path / "input_0.pb"
    path.write_bytes(b"\x08\x01\x10\x01B\x01xJ\x04\0\0\0\0")
    with pparse.open(path) as document:
        assert (document.format, document.status) == ("onnx-data", pparse.Status.COMPLETE)
