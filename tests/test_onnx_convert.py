"""ONNX models converted: names, bits and metadata; what a target cannot hold is refused by name."""

from __future__ import annotations

import pytest

import pparse
from tests import onnx_files as wire
from tests.rows import rows
from tests.test_onnx_salvage import external, layers, tensors


@rows("target", ["safetensors", "npz", "gguf"])
@pytest.mark.parametrize("is_external", [False, True])
def test_the_same_tensors_come_out(tmp_path, is_external, target):
    wanted = tensors(layers().SerializeToString())
    content, data = external(layers()) if is_external else (layers().SerializeToString(), b"")
    (tmp_path / "m.onnx").write_bytes(content)
    (tmp_path / "m.data").write_bytes(data)
    pparse.convert(tmp_path / "m.onnx", tmp_path / f"x.{target}", force=True)
    assert tensors(tmp_path / f"x.{target}") == wanted
    with pparse.view(tmp_path / f"x.{target}") as viewer:
        if target != "npz":
            assert viewer.metadata["metadata_props.who"] == "tests"
            assert viewer.metadata["producer_name"] == "tests"


@rows(
    "number, content, why",
    [(wire.UINT4, {"int32_data": [1]}, "uint4"), (wire.STRING, {"string_data": [b"a"]}, "texts")],
)
def test_what_safetensors_cannot_hold_is_named_and_can_be_left_out(tmp_path, number, content, why):
    model = layers()
    model.graph.initializer.add(name="odd", data_type=number, dims=[1], **content)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(pparse.PparseError, match=f"odd: .*{why}.*skip_unsupported=True"):
        pparse.convert(tmp_path / "m.onnx", tmp_path / "x.safetensors", force=True)
    pparse.convert(tmp_path / "m.onnx", tmp_path / "x.safetensors", force=True, exclude=["odd"])
    assert tensors(tmp_path / "x.safetensors") == tensors(layers().SerializeToString())


def test_six_bits_in_a_byte_each_are_refused(tmp_path):
    """A safetensors file has four of them in three bytes, and its library would refuse the file."""
    model = layers()
    model.graph.initializer.add(name="odd", data_type=27, dims=[4], int32_data=[1, 2, 3, 4])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(pparse.PparseError, match="odd: safetensors has no type for float6_e2m3fn in whole bytes"):
        pparse.convert(tmp_path / "m.onnx", tmp_path / "x.safetensors")


def test_only_what_the_other_file_lacks_is_said_to_be_missing(tmp_path):
    content, data = external(layers())
    (tmp_path / "m.onnx").write_bytes(content)
    (tmp_path / "m.data").write_bytes(data[:-8])
    with pytest.raises(pparse.PparseError) as caught:
        pparse.convert(tmp_path / "m.onnx", tmp_path / "x.safetensors")
    assert "s2" in str(caught.value)
    assert "beside its tensors" not in str(caught.value)
    pparse.convert(tmp_path / "m.onnx", tmp_path / "x.safetensors", skip_damaged=True)
    assert set(tensors(tmp_path / "x.safetensors")) == {"w0", "s0", "w1", "s1", "w2"}
