"""ONNX's own JSON form: what ``onnx.save`` writes is read, and ``onnx.load`` reads what `pparse get` writes."""

from __future__ import annotations

import numpy as np
import pytest

import pparse
from tests.interop.test_safetensors_library import library

onnx = library("onnx")


@pytest.fixture
def model():
    rng = np.random.default_rng(11)
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal((64, 50)).astype("f4"), "w0"),
        onnx.numpy_helper.from_array(rng.integers(-9, 9, (3, 4)), "w1"),
        onnx.helper.make_tensor("listed", onnx.TensorProto.FLOAT, [4], [1, 0.1, float("nan"), float("-inf")]),
        onnx.helper.make_tensor("texts", onnx.TensorProto.STRING, [2], [b"a", b"\xff"]),
        onnx.numpy_helper.from_array(rng.standard_normal((40, 40)).astype("f2"), "half"),
    ]
    node = onnx.helper.make_node("Gemm", ["x", "w0"], ["y"], alpha=0.1, axes=[1, 2], mode="é")
    shown = [onnx.helper.make_tensor_value_info(name, 1, ["N", 64]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", shown[:1], shown[1:], weights)
    return onnx.helper.make_model(graph, producer_name="tests", opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_what_onnx_writes_is_the_model(model, tmp_path):
    onnx.save(model, tmp_path / "m.onnx")
    onnx.save(model, tmp_path / "m.onnx.json", format="json")
    with pparse.view(tmp_path / "m.onnx") as one, pparse.view(tmp_path / "m.onnx.json") as other:
        names = [tensor.name for tensor in one.tensors()]
        assert names == [tensor.name for tensor in other.tensors()]
        for name in names:
            np.testing.assert_array_equal(one[name].numpy(), other[name].numpy())
        assert not list(other.check())


def test_what_is_written_onnx_reads(model, tmp_path, run):
    onnx.save(model, tmp_path / "m.onnx")
    assert run("get", tmp_path / "m.onnx", "--json", "--bare", "-o", tmp_path / "n.json").code == 0
    assert onnx.load(tmp_path / "n.json", format="json").SerializeToString() == model.SerializeToString()
