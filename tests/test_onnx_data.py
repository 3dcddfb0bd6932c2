"""TensorProtos, sequences, optional values and maps of ONNX as files: what they are told by, names and values."""

from __future__ import annotations

from typing import Any

import numpy as np

import pparse
from pparse import Status
from pparse.protos import message_class
from tests.onnx_models import branching
from tests.rows import rows

TENSOR, SEQUENCE, MAP, OPTIONAL = (
    message_class(f"onnx.{name}Proto") for name in ("Tensor", "Sequence", "Map", "Optional")
)
GRAPH, SAVED_MODEL = message_class("tensorflow.GraphDef"), message_class("tensorflow.SavedModel")


def tensor(*numbers: float, name: str = "") -> Any:
    """Return float32 numbers as a TensorProto."""
    return TENSOR(dims=[len(numbers)], data_type=1, raw_data=np.array(numbers, "<f4").tobytes(), name=name)


PAIR = SEQUENCE(elem_type=1, tensor_values=[tensor(1, 2), tensor(3)])
MAPPED = MAP(name="m", key_type=8, string_keys=[b"a", b"\xff"], values=PAIR)
SPARSE: Any = message_class("onnx.SparseTensorProto")(values=tensor(5), dims=[9])
SPARSE.indices.CopyFrom(TENSOR(dims=[1], data_type=7, int64_data=[4]))


@rows(
    "message, wanted",
    [
        (tensor(1, 2), {"input_0": [1, 2]}),
        (tensor(1, 2, name="x"), {"x": [1, 2]}),
        (TENSOR(data_type=7, int64_data=[-3]), {"input_0": -3}),
        (TENSOR(dims=[2], data_type=8, string_data=[b"a", b"bc"]), {"input_0": [b"a", b"bc"]}),
        (TENSOR(dims=[0, 3], data_type=1, raw_data=b""), {"input_0": []}),
        (TENSOR(dims=[3], data_type=22, int32_data=[0x21, 0x03]), {"input_0": [1, 2, 3]}),
        (PAIR, {"input_0[0]": [1, 2], "input_0[1]": [3]}),
        (SEQUENCE(name="s", elem_type=3, sequence_values=[PAIR]), {"s[0][0]": [1, 2], "s[0][1]": [3]}),
        (SEQUENCE(elem_type=2, sparse_tensor_values=[SPARSE]), {"input_0[0].values": [5], "input_0[0].indices": [4]}),
        (OPTIONAL(name="o", elem_type=1, tensor_value=tensor(7)), {"o[0]": [7]}),
        (MAPPED, {"m[a]": [1, 2], "m[\\xff]": [3]}),
        (MAP(key_type=7, keys=[5, -5], values=PAIR), {"input_0[5]": [1, 2], "input_0[-5]": [3]}),
        (SEQUENCE(elem_type=4, map_values=[MAPPED]), {"input_0[0][a]": [1, 2], "input_0[0][\\xff]": [3]}),
    ],
)
def test_the_tensors_of_a_value_have_names_and_values(tmp_path, message, wanted):
    path = tmp_path / "input_0.pb"
    path.write_bytes(message.SerializeToString())
    with pparse.view(path) as value:
        assert value.format == "onnx-data"
        assert {key: list(t.strings()) if t.is_text else t.numpy().tolist() for key, t in value.items()} == wanted
        assert [value[key].status for key in wanted] == [Status.COMPLETE] * len(wanted)
        assert not list(value.check())
        assert value.default_name == (next(iter(wanted)) if isinstance(message, TENSOR) else None)


@rows("behind", [MAP(keys=[5, 6]), MAP(key_type=7), MAP(key_type=7, keys=[5, 6])])
def test_keys_of_another_type_than_a_map_says_put_its_names_in_doubt(behind):
    content = MAPPED.SerializeToString() + behind.SerializeToString()
    with pparse.view(content, format="onnx-data", options={"message": "onnx.MapProto"}) as value:
        assert list(value) == ["m[a]", "m[\\xff]"]
        assert {tensor.status for tensor in value.values()} == {Status.DAMAGED}


@rows("bit", [0x10, 0x02])  # the tag of a name, and one that makes fields of what is in the tensor: another kind, too
def test_values_behind_one_with_a_damaged_tag_may_have_names_of_others(bit):
    values = [tensor(*[1] * 5000), TENSOR(dims=[3], data_type=7, int64_data=[8, 9, 10]), tensor(3)]
    made = MAP(name="m", key_type=8, string_keys=[b"a", b"b", b"c"], values=SEQUENCE(elem_type=1, tensor_values=values))
    content = bytearray(made.SerializeToString())
    content[content.index(values[1].SerializeToString()) - 2] ^= bit
    with pparse.view(bytes(content), format="onnx-data", options={"message": "onnx.MapProto"}) as value:
        found = {name: each.status for name, each in value.items()}
        assert found == {"m[a]": Status.COMPLETE, "m[b]": Status.DAMAGED}
        assert value["m[a]"].numpy().tolist() == [1] * 5000


def test_a_tensor_by_itself_is_got_without_a_name(tmp_path, run):
    path = tmp_path / "input_0.pb"
    path.write_bytes(tensor(1, 2).SerializeToString())
    assert run("get", path).lines == ["input_0  float32  2  8 B  complete, unverified", "[1. 2.]"]


@rows(
    "name, content, format",
    [
        ("m.pb", branching().SerializeToString(), "onnx"),
        ("m.pb", GRAPH(node=[{"name": "x", "op": "NoOp"}]).SerializeToString(), "graph-def"),
        ("m.pb", SAVED_MODEL(saved_model_schema_version=1, meta_graphs=[{}]).SerializeToString(), "saved-model"),
        ("m.pb", tensor(1, 2).SerializeToString()[:-1] + b"", "onnx-data"),  # it is cut
        ("m.binpb", TENSOR(dims=[3], data_type=1, raw_data=bytes(16)).SerializeToString(), "protobuf"),  # not its bytes
        ("m.pb", TENSOR(dims=[2], data_type=99, raw_data=bytes(8)).SerializeToString(), "protobuf"),
        ("m.pb", SEQUENCE(elem_type=2, tensor_values=[tensor(1)]).SerializeToString(), "protobuf"),
        ("m.dat", tensor(1, 2).SerializeToString(), "onnx-data"),
        ("m.pb", TENSOR(data_type=7, int64_data=[-3]).SerializeToString(), "onnx-data"),
    ],
)
def test_no_other_message_is_taken_for_one(tmp_path, name, content, format):
    (tmp_path / name).write_bytes(content)
    with pparse.open(tmp_path / name) as document:
        assert document.format == format


def test_of_a_cut_sequence_what_is_before_the_cut_is_whole(tmp_path):
    content = PAIR.SerializeToString()
    with pparse.view(content[:-2], format="onnx-data") as value:
        found = [(name, str(value[name].status)) for name in value]
        assert found == [("value[0]", "complete"), ("value[1]", "truncated")]
        assert value["value[0]"].numpy().tolist() == [1, 2]
        assert value.extent().status is Status.TRUNCATED
