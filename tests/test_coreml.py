"""Core ML: names, shapes and values are those of coremltools; packages, and what is not whole of them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pparse
from pparse.protos import message_class
from pparse.tensors.scales import dequantized, quantisation_of
from tests.coreml_files import network, program, write_package
from tests.rows import rows

DATA = Path(__file__).resolve().parent / "data" / "coreml"
VALUES = np.load(DATA / "values.npz")


@rows("name", ["net", "half", "byte", "three", "program"])
def test_values_are_those_of_coremltools(name):
    """Bit by bit; codes as what they stand for. Strings are not among the values."""
    wanted = {key.removeprefix(f"{name}/"): VALUES[key] for key in VALUES.files if key.startswith(f"{name}/")}
    with pparse.view(DATA / (f"{name}.mlpackage" if name == "program" else f"{name}.mlmodel")) as model:
        for key, value in wanted.items():
            found = model[key] if name == "program" else dequantized(model, key)
            assert found.status.value == "complete"
            array = found.numpy()
            if name == "program":
                assert array.shape == value.shape
                array = array.astype(value.dtype)
            assert array.dtype == value.dtype
            assert array.tobytes() == value.tobytes(), key
        assert set(model) == set(wanted)


@rows("name", ["packed16", "packed18"])
def test_computed_constants_are_those_of_coremltools(name, run, tmp_path):
    """Bit by bit: whole, in blocks, in parts; a conversion writes them under their own names, and nothing else."""
    wanted = {key.removeprefix(f"{name}/"): VALUES[key] for key in VALUES.files if key.startswith(f"{name}/")}
    wanted = {key: value.astype(np.float32) for key, value in wanted.items() if key not in ("table", "kept_values")}
    package = DATA / f"{name}.mlpackage"
    with pparse.view(package) as model:
        told = [quantisation_of(model, tensor) for tensor in model.tensors()]
        found = {one.name: one.tensor() for one in told if one is not None}
        assert found["table_of_codes" if name == "packed18" else "table8"].scales
        for key, value in wanted.items():
            tensor = found.pop(key)
            assert tensor.status.value == "complete"
            assert (tensor.shape, tensor.numpy().tobytes()) == (value.shape, value.tobytes()), key
            blocks = list(tensor.blocks(64))
            assert np.concatenate(blocks).tobytes() == value.tobytes(), key
            assert max(map(len, blocks)) <= 16
            assert np.array_equal(tensor[1::2], value[1::2]), key
            assert tensor[(-1,) * value.ndim] == value[(-1,) * value.ndim], key
        assert set(found) <= {"table"}
    assert run("convert", package, "--dequantize", "-o", tmp_path / f"{name}.safetensors").code == 0
    with pparse.view(tmp_path / f"{name}.safetensors") as model:
        assert set(model) == set(wanted)
    said = run("get", package, "vectors0.indices" if name == "packed18" else "table4.indices", "--json").out
    assert '"operation": "constexpr_lut_to_dense"' in said


def computed(type: str, inputs: dict[str, Any]) -> bytes:
    """Return a program of one operation that computes a constant: values as `program` has them, or names."""
    content, _ = program({key: value for key, value in inputs.items() if not isinstance(value, str)})
    found = message_class("CoreML.Specification.Model").FromString(content)
    block = found.mlProgram.functions["main"].block_specializations["CoreML5"]
    operation = block.operations.add(type=f"constexpr_{type}")
    operation.outputs.add(name="W")
    for const in list(block.operations)[:-1]:
        operation.inputs[const.outputs[0].name].arguments.add().value.CopyFrom(const.attributes["val"])
    for key, name in inputs.items():
        if isinstance(name, str):
            operation.inputs[key].arguments.add().name = name
    del block.operations[:-1]
    return found.SerializeToString()


CODES = (21, (4,), "ints", [1, 2, 3, 4])


@rows(
    "type, inputs, name, problem",
    [
        ("blockwise_shift_scale", {"data": CODES}, "data", "has no scale"),
        (
            "blockwise_shift_scale",
            {"data": CODES, "scale": (11, (3,), "floats", [1.0] * 3)},
            "data",
            "3 for codes of 4",
        ),
        ("blockwise_shift_scale", {"data": CODES, "scale": CODES}, "data", "scale is of int8"),
        (
            "affine_dequantize",
            {"quantized_data": CODES, "scale": (11, (4,), "floats", [1.0] * 4)},
            "quantized_data",
            "None",
        ),
        (
            "lut_to_dense",
            {"indices": CODES, "lut": (11, (3, 2, 1), "floats", [1.0] * 6)},
            "indices",
            "3×2×1 for codes of 4",
        ),
        ("lut_to_dense", {"indices": CODES, "lut": "W"}, "indices", "more than 32 operations"),
        ("sparse_to_dense", {"nonzero_data": CODES}, "nonzero_data", "has no mask"),
    ],
)
def test_operations_that_contradict_themselves(type, inputs, name, problem):
    with pparse.view(computed(type, inputs), format="coreml") as model:
        assert problem in quantisation_of(model, model[f"W.{name}"]).problem
        with pytest.raises(pparse.MalformedError, match=problem):
            dequantized(model, f"W.{name}")


def test_values_that_are_not_those_of_their_mask_or_table():
    mask = (1, (6,), "bools", [True, False, True, False, True, False])
    with pparse.view(computed("sparse_to_dense", {"nonzero_data": CODES, "mask": mask}), format="coreml") as model:
        found = dequantized(model, "W.nonzero_data")
        with pytest.raises(pparse.MalformedError, match="4 values for 3 elements"):
            found.numpy()
        assert model["W.nonzero_data"].numpy().tolist() == [1, 2, 3, 4]
    table = (11, (1, 2, 1), "floats", [0.5, 1.5])
    with pparse.view(computed("lut_to_dense", {"indices": CODES, "lut": table}), format="coreml") as model:
        found = dequantized(model, "W.indices")
        assert found[0] == 1.5
        with pytest.raises(pparse.MalformedError, match="none of the 2 entries"):
            found.numpy()


def test_shapes_are_those_that_the_layer_tells():
    with pparse.view(DATA / "net.mlmodel") as model:
        shapes = {name: model[name].shape for name in ("conv.weights", "deconv.weights", "emb.weights", "const.data")}
        assert shapes == {
            "conv.weights": (6, 3, 3, 3),
            "deconv.weights": (6, 2, 3, 3),
            "emb.weights": (4, 10),
            "const.data": (1, 2, 3),
        }
        assert model["lstm.weightParams[1].inputGateRecursionMatrix"].shape == (3, 3)
        assert model["prelu.PReLU.alpha"].shape == (4,)
    found = network({})
    layer = found.neuralNetwork.layers.add(name="mul").batchedMatmul
    layer.weightMatrixFirstDimension, layer.weightMatrixSecondDimension = 3, 2
    layer.weights.floatValue[:] = range(6)
    with pparse.view(found.SerializeToString(), format="coreml") as model:
        assert model["mul.weights"].shape == (2, 3)  # coremltools writes the matrix turned around
    with pparse.view(DATA / "three.mlmodel") as model:
        codes = model["conv.weights"]
        assert (codes.dtype, codes.stored_dtype, codes.shape) == ("uint8", "uint3", (6, 3, 3, 3))
        assert quantisation_of(model, codes).told["table"].shape == (8,)


def test_types_below_a_byte_lie_as_milblob_has_them():
    with pparse.view(DATA / "program.mlpackage") as model:
        assert (model["codes.data"].type_name, model["table.indices"].dtype, model["table.indices"].shape) == (
            "int4",
            "uint8",
            (64, 64),
        )
        assert int(model["table.indices"].numpy().max()) == 7
        assert model["table.indices"][3, 5:9].tolist() == model["table.indices"].numpy()[3, 5:9].tolist()


def test_texts_of_a_program_do_not_keep_it_from_being_converted(run, tmp_path):
    content, weights = program({"mode": (2, (), "strings", ["valid"]), "w": (11, (2,), struct.pack("<2f", 1, 2))})
    folder = write_package(tmp_path / "m.mlpackage", content, weights)
    assert run("convert", folder, "-o", tmp_path / "m.safetensors").code == 0
    with pparse.view(tmp_path / "m.safetensors") as model:
        assert list(model) == ["w"]
    assert run("get", folder, "mode").out.splitlines()[-1] == "valid"


def test_values_in_blocks_and_in_lists_of_inputs():
    content, _ = program({"a": (23, (2,), "ints", [1, 2])})
    found = message_class("CoreML.Specification.Model").FromString(content)
    block = found.mlProgram.functions["main"].block_specializations["CoreML5"]
    const = block.operations[0]
    cond = block.operations.add(type="cond")
    cond.outputs.add(name="c")
    cond.blocks.add().operations.add().CopyFrom(const)
    cond.blocks[0].operations[0].outputs[0].name = "inner"
    concat = block.operations.add(type="concat")
    concat.outputs.add(name="d")
    for _ in range(2):
        concat.inputs["values"].arguments.add().value.CopyFrom(const.attributes["val"])
    concat.inputs["axis"].arguments.add().value.CopyFrom(const.attributes["val"])
    concat.inputs["axis"].arguments[0].value.type.listType.SetInParent()  # no tensor
    concat.inputs["axis"].arguments[0].value.immediateValue.list.SetInParent()
    found.mlProgram.functions["other"].CopyFrom(found.mlProgram.functions["main"])
    names = ["a", "inner", "d.values[0]", "d.values[1]"]
    with pparse.view(found.SerializeToString(), format="coreml") as model:
        assert sorted(model) == sorted(names + [f"other/{name}" for name in names])
        assert model["inner"].numpy().tolist() == model["other/d.values[1]"].numpy().tolist() == [1, 2]


def test_a_package_is_one_model_and_recovered_whole(run, tmp_path):
    said = run("info", DATA / "program.mlpackage").out
    assert "Data/com.apple.CoreML/model.mlmodel" in said
    assert "opsets = CoreML8" in said
    assert run("recover", DATA / "program.mlpackage", "-o", tmp_path / "out").code == 0
    there = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert there == ["Manifest.json", "RECOVERY.json", "model.mlmodel", "weight.bin"]


def weights_of(folder: Path) -> Path:
    return folder / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"


def test_a_package_without_its_manifest_or_model(tmp_path):
    folder = write_package(tmp_path / "m.mlpackage", *program({"w": (11, (2,), struct.pack("<2f", 1, 2))}))
    (folder / "Manifest.json").write_text("{", encoding="utf-8")
    with pparse.view(folder) as model:
        assert (model.format, model["w"].numpy().tolist()) == ("coreml-package", [1, 2])
    (folder / "Manifest.json").write_text(
        '{"itemInfoEntries": {"A": {"path": "../../../etc/passwd"}}, "rootModelIdentifier": "A"}', encoding="utf-8"
    )
    with pytest.raises(pparse.PparseError, match=r"leads out|outside|\.\."):
        pparse.view(folder)


@rows(
    "damage, wanted",
    [
        (lambda raw: raw[:300], ["complete", "truncated", "missing"]),
        (lambda raw: raw[:140] + b"xyz" + raw[140:], ["damaged", "damaged", "damaged"]),
        (lambda raw: raw[:200] + raw[203:], ["damaged", "damaged", "damaged"]),
        (lambda raw: raw[:64] + b"\0" + raw[65:], ["damaged", "complete", "complete"]),
    ],
)
def test_what_is_wrong_with_the_weights(tmp_path_factory, damage, wanted):
    """Bytes that came in or went show behind them: no header of a blob is where it should be."""
    blobs = {name: (11, (20,), struct.pack("<20f", *range(20))) for name in "abc"}
    folder = tmp_path_factory.mktemp("package") / "m.mlpackage"
    content, weights = program({**blobs, "a": (11, (2,), struct.pack("<2f", 1, 2))})
    write_package(folder, content, damage(weights))
    with pparse.view(folder) as model:
        assert [str(model[name].status) for name in "abc"] == wanted, [model[name].finding for name in "abc"]


def test_weights_without_a_model():
    blobs = {"a": (11, (2,), struct.pack("<2f", 1, 2)), "b": (25, (4,), b"\x21\xf8"), "c": (31, (70,), bytes(70))}
    _, content = program(blobs)
    with pparse.view(content) as model:
        assert model.format == "coreml-weights"
        assert {tensor.name: (tensor.type_name, tensor.shape) for tensor in model.tensors()} == {
            "blob_0": ("float32", (2,)),
            "blob_1": ("int4", (4,)),
            "blob_2": ("uint8", (70,)),
        }
        assert model["blob_1"].numpy().tolist() == [1, 2, -8, -1]
    for changed, wanted in (
        (content[:140] + b"xyz" + content[140:], ["damaged"]),
        (content[:-10], ["complete", "complete", "truncated"]),
        (content[:200], ["complete"]),
        (content + bytes(70), ["complete", "complete", "damaged"]),
    ):
        with pparse.view(changed) as model:
            assert [str(tensor.status) for tensor in model.tensors()] == wanted
            assert str(model.extent().document_status) != "complete"


def test_weights_may_have_blobs_that_the_program_does_not_name(tmp_path):
    _, weights = program({name: (11, (2,), struct.pack("<2f", 1, 2)) for name in "ab"})
    alone, _ = program({"a": (11, (2,), struct.pack("<2f", 1, 2))})
    folder = write_package(tmp_path / "m.mlpackage", alone, weights)
    with pparse.view(folder) as model:
        assert model["a"].status.value == "complete"
        assert not list(model.check())
    shutil.rmtree(weights_of(folder).parent)
    with pparse.view(folder) as model:
        assert (model["a"].status.value, model.extent().missing_files) == ("missing", 1)


@rows(
    "fields, status, reason",
    [
        ({"floatValue": [1.0] * 3}, "damaged", "lists 3 values; type and shape need 4"),
        ({"rawValue": b"\0", "bits": (9, [])}, "unsupported", "codes have 9 bits"),
        ({"rawValue": b"\0", "bits": (4, [1.0])}, "damaged", "rawValue has 1 bytes; type and shape need 2"),
        ({"float16Value": b"\0" * 7}, "damaged", "float16Value has 7 bytes"),
    ],
)
def test_weights_that_contradict_themselves(fields, status, reason):
    content = network({"l": {"shape": (2, 2), **fields}}).SerializeToString()
    with pparse.view(content, format="coreml") as model:
        assert (model["l.weights"].status.value, reason in model["l.weights"].finding.reason) == (status, True)


def test_models_in_pipelines_and_networks_in_layers():
    inner = network({"fc": {"shape": (1, 1), "floatValue": [7.0]}})
    outer = network({})
    outer.ClearField("neuralNetwork")
    outer.pipeline.models.add().CopyFrom(inner)
    outer.pipeline.models.add().CopyFrom(inner)
    outer.pipeline.names.append("first")
    loop = outer.pipeline.models[1].neuralNetwork.layers.add(name="loop").loop
    loop.bodyNetwork.layers.add().CopyFrom(inner.neuralNetwork.layers[0])
    with pparse.view(outer.SerializeToString(), format="coreml") as model:
        assert list(model) == ["first/fc.weights", "models[1]/fc.weights", "models[1]/loop.bodyNetwork/fc.weights"]
    for _ in range(200):
        around = network({})
        around.pipeline.models.add().CopyFrom(outer)
        outer = around
    with pparse.view(outer.SerializeToString(), format="coreml", limits=pparse.Limits(depth=50)) as model:
        assert len(list(model)) == 0
        assert any(finding.code == "limit" for finding in model.findings)


@rows(
    "at, change, status, code",
    [
        (None, 0, "truncated", "truncated"),  # cut behind the description: no kind of model follows
        (b"\xa2\x1f", 8, "unsupported", "unsupported"),  # the tag of the network, of a field that no model has
        (b"\xe2\x08", 8, "complete", "unknown-fields"),  # that of an innerProduct: its layer is of no kind
        (b"\x08\x02\x10\x02", 1, "damaged", "malformed"),  # a field of it takes the ones behind it for its value
    ],
)
def test_no_weights_are_lost_in_silence(at, change, status, code):
    """Fields that the schema does not have, and messages that are none, may have had weights: a finding says so."""
    raw = bytearray(network({"l": {"shape": (2, 2), "floatValue": [1.0] * 4}}).SerializeToString())
    if at is None:
        del raw[raw.index(b"\xa2\x1f") :]
    else:
        raw[raw.index(at) + (at[0] >= 0x80)] ^= change
    with pparse.view(bytes(raw), format="coreml") as model:
        assert list(model) == []
        assert str(model.extent().document_status) == status
        assert code in {finding.code for finding in model.findings}
        assert code in {finding.code for finding in model.check()} | {finding.code for finding in model.findings}


def test_codes_that_are_cut_before_their_width_are_missing():
    """What the codes are is told behind them: they are not held against a width that nobody knows."""
    content = network({"l": {"shape": (2, 2), "rawValue": b"\x12\x34", "bits": (4, [1.0])}}).SerializeToString()
    for end in range(content.index(b"\x12\x34") + 2, len(content)):
        with pparse.view(content[:end], format="coreml") as model:
            found = model["l.weights"]
            assert found.status.value in ("missing", "truncated", "complete"), end
            assert str(model.extent().document_status) == "truncated"


def test_a_tensor_whose_type_says_list_is_damaged():
    content, _ = program({"a": (23, (2,), "ints", [1, 2]), "b": (23, (2,), "ints", [1, 2])})
    found = message_class("CoreML.Specification.Model").FromString(content)
    operations = found.mlProgram.functions["main"].block_specializations["CoreML5"].operations
    operations[0].attributes["val"].type.listType.SetInParent()
    for padding in (0, 20_000):  # read in one go, or field by field
        operations[0].type = "const"
        operations[0].attributes["name"].docString = "x" * padding
        with pparse.view(found.SerializeToString(), format="coreml") as model:
            assert {name: str(model[name].status) for name in model} == {"a": "damaged", "b": "complete"}
