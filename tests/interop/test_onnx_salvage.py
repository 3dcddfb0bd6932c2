"""What is saved of damaged ONNX models, against onnx and onnxruntime: they load it, and it computes the same bits."""

from __future__ import annotations

import importlib
import os

import numpy as np
import pytest

import pparse
from pparse.recovery.recover import recover
from tests.rows import rows


def library(name):
    """Import what we are compared with; without it skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


onnx = library("onnx")
runtime = library("onnxruntime")
WIDTH = 32


def perceptron():
    """Return a model of four layers, with a shape that its last node needs."""
    rng = np.random.default_rng(7)
    helper, nodes, stored, last = onnx.helper, [], [], "x"
    for number in range(4):
        for name, shape in ((f"w{number}", (WIDTH, WIDTH)), (f"b{number}", (WIDTH,))):
            array = rng.standard_normal(shape).astype(np.float32)
            stored.append(onnx.numpy_helper.from_array(array, name))
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Add", [f"m{number}", f"b{number}"], [f"a{number}"]))
        last = f"a{number}"
    stored.append(onnx.numpy_helper.from_array(np.array([-1, WIDTH]), "shape"))
    nodes.append(helper.make_node("Reshape", [last, "shape"], ["y"]))
    ends = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [size, WIDTH])]
        for name, size in (("x", "n"), ("y", "m"))
    ]
    graph = helper.make_graph(nodes, "g", *ends, initializer=stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(path, feeds):
    session = runtime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])
    return session.run(None, {info.name: feeds[info.name] for info in session.get_inputs()})[0].tobytes()


def flipped(content, name, at, bit):
    """Return a model with a bit changed, ``at`` bytes into an initializer."""
    stored = next(tensor for tensor in onnx.load_from_string(content).graph.initializer if tensor.name == name)
    out = bytearray(content)
    out[content.index(stored.SerializeToString()) + at] ^= 1 << bit
    return bytes(out)


def is_as_good(tmp_path, lost):
    """Recover ``m.onnx``; with ``lost`` fed, what is saved gives the same bits as the sound model, and loads whole."""
    model = perceptron()
    feeds = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    feeds["x"] = np.random.default_rng(8).standard_normal((3, WIDTH)).astype(np.float32)
    onnx.save(model, tmp_path / "sound.onnx")
    with pparse.open(tmp_path / "m.onnx") as document:
        recover(document, tmp_path / "out")
    saved = tmp_path / "out" / "m.onnx"
    onnx.checker.check_model(os.fspath(saved), full_check=True)
    assert run(saved, feeds) == run(tmp_path / "sound.onnx", feeds)
    loaded = onnx.load(saved).graph
    assert [info.name for info in loaded.input] == ["x", *lost]
    assert {tensor.name for tensor in loaded.initializer} == feeds.keys() - {"x", *lost}
    for tensor in loaded.initializer:
        assert onnx.numpy_helper.to_array(tensor).tobytes() == feeds[tensor.name].tobytes()


@rows("name, at, bit", [("w1", 1, 2), ("w2", 3, 2), ("b3", 1, 3)])
def test_a_flip_in_one_initializer(tmp_path, name, at, bit):
    """In its shape: nothing in an ONNX model tells of a flip in its elements."""
    place = tmp_path / name
    place.mkdir()
    (place / "m.onnx").write_bytes(flipped(perceptron().SerializeToString(), name, at, bit))
    is_as_good(place, [name])


def test_the_file_with_external_data_is_cut(tmp_path):
    onnx.save(perceptron(), tmp_path / "m.onnx", save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    os.truncate(tmp_path / "m.onnx.data", 9_000)
    is_as_good(tmp_path, ["w2", "b2", "w3", "b3", "shape"])


def test_the_file_with_external_data_is_lost(tmp_path):
    onnx.save(
        perceptron(), tmp_path / "m.onnx", save_as_external_data=True, location="m.onnx.data", size_threshold=1024
    )
    os.unlink(tmp_path / "m.onnx.data")
    is_as_good(tmp_path, ["w0", "w1", "w2", "w3"])


def test_every_type_in_the_file_that_is_saved(tmp_path):
    kinds = [number for name, number in onnx.TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]
    stored = []
    for number in kinds:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(number)
        array = np.random.default_rng(number).integers(0, 2, (40, 64)).astype(dtype)
        stored.append(onnx.numpy_helper.from_array(array, f"raw{number}"))
        stored.append(onnx.helper.make_tensor(f"listed{number}", number, array.shape, array.ravel().tolist()))
    stored.append(onnx.helper.make_tensor("text", onnx.TensorProto.STRING, (2,), [b"a", b"\xff"]))
    stored.append(onnx.numpy_helper.from_array(np.zeros(4, np.float32), "bad"))
    node = onnx.helper.make_node("Identity", ["bad"], ["y"])
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [output], initializer=stored))
    (tmp_path / "m.onnx").write_bytes(flipped(model.SerializeToString(), "bad", 1, 1))
    with pparse.open(tmp_path / "m.onnx") as document:
        recover(document, tmp_path / "out")
    loaded = {tensor.name: tensor for tensor in onnx.load(tmp_path / "out" / "m.onnx").graph.initializer}
    assert len(loaded) == len(stored) - 1
    for tensor in stored[:-1]:
        got = loaded[tensor.name]
        assert got.data_type == tensor.data_type
        if tensor.name == "text":
            assert got.string_data == tensor.string_data
        else:
            want = onnx.numpy_helper.to_array(tensor)
            assert onnx.numpy_helper.to_array(got).tobytes() == want.tobytes(), tensor.name
    safe_open = library("safetensors").safe_open
    with safe_open(tmp_path / "out" / "m.safetensors", "np") as file:
        assert "raw1" in file.keys()  # noqa: SIM118 -- no mapping
