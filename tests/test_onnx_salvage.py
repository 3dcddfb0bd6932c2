"""What is saved of an ONNX model: its graph as a model of its own, whose weights are in the safetensors beside it."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from array import array
from pathlib import Path

import pytest

import pparse
from pparse.recovery.recover import recover
from tests import onnx_files as wire
from tests.onnx_models import FLOAT, INT64, MODEL, initializer, model, node, typed
from tests.rows import rows

SIZE = 400


def layers(count: int = 3):
    """Return a model of some layers: each has a weight and a bias, and each weight is used by a node."""
    found = model()
    graph = found.graph
    found.metadata_props.add(key="who", value="tests")
    typed(graph.input, "x", "batch", SIZE)
    typed(graph.output, "y", "batch", SIZE)
    last = "x"
    for number in range(count):
        initializer(graph, f"w{number}", [number + value / 7 for value in range(SIZE)])
        graph.initializer.add(name=f"s{number}", data_type=INT64, dims=[2], int64_data=[-1, number])
        node(graph, "Add", [last, f"w{number}"], [f"a{number}"], f"add{number}")
        last = "y" if number == count - 1 else f"r{number}"
        node(graph, "Reshape", [f"a{number}", f"s{number}"], [last], f"reshape{number}")
    return found


def tensors(content: bytes | str) -> dict:
    with pparse.view(content) as viewer:
        return {tensor.name: tensor.numpy().tobytes() for tensor in viewer.tensors()}


def spoil(found, name: str) -> bytes:
    """Return the model with a dimension of an initializer that contradicts its bytes."""
    next(tensor for tensor in found.graph.initializer if tensor.name == name).dims[0] += 4
    return found.SerializeToString()


def saved(tmp_path, content: bytes, name: str = "m.onnx", beside: dict[str, bytes] | None = None):
    """Recover a file; return the model that was written (None: none was), and the report by path or stored name."""
    (tmp_path / "in").mkdir(parents=True)
    (tmp_path / "in" / name).write_bytes(content)
    for file, data in (beside or {}).items():
        (tmp_path / "in" / file).write_bytes(data)
    with pparse.open(tmp_path / "in" / name) as document:
        recover(document, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "RECOVERY.json").read_text())
    told = {entry["path"] or entry["raw_name"]: entry for entry in report["files"]}
    paths = list((tmp_path / "out").rglob("*.onnx"))
    return (MODEL.FromString(paths[0].read_bytes()) if paths else None), told, paths[0] if paths else None


def external(found, names: list[str] | None = None) -> tuple[bytes, bytes]:
    """Return a model whose initializers lie in ``m.data``, and that file."""
    data = b""
    for tensor in found.graph.initializer:
        if names is None or tensor.name in names:
            raw = tensor.raw_data or array("q", tensor.int64_data).tobytes()
            tensor.ClearField("raw_data")
            tensor.ClearField("int64_data")
            tensor.data_location = 1
            for key, value in (("location", "m.data"), ("offset", len(data)), ("length", len(raw))):
                tensor.external_data.add(key=key, value=str(value))
            data += raw
    return found.SerializeToString(), data


def test_what_is_whole_is_a_model_and_the_rest_is_fed(tmp_path):
    sound = layers()
    wanted = tensors(sound.SerializeToString())
    got, told, path = saved(tmp_path, spoil(layers(), "w1"))
    assert told["m.onnx"]["status"] == "damaged"
    assert "5 whole initializers" in told["m.onnx"]["reason"]
    assert told["m.onnx"]["reason"].endswith("since they are lost: w1")
    assert [info.name for info in got.graph.input] == ["x", "w1"]
    assert got.graph.input[1].type.tensor_type.elem_type == FLOAT
    dims = got.graph.input[1].type.tensor_type.shape.dim
    assert len(dims) == 1
    assert dims[0].WhichOneof("value") is None  # the stated one is the contradiction
    del wanted["w1"]
    assert tensors(path) == wanted
    for kept in ("node", "output", "name"):
        assert getattr(got.graph, kept) == getattr(sound.graph, kept)
    assert (got.opset_import, got.metadata_props, got.producer_name) == (
        sound.opset_import,
        sound.metadata_props,
        "tests",
    )


def test_weights_are_in_the_safetensors_once_and_small_ones_stay(tmp_path):
    got, _, path = saved(tmp_path, spoil(layers(), "w1"))
    placed = {tensor.name: {pair.key: pair.value for pair in tensor.external_data} for tensor in got.graph.initializer}
    assert [name for name in placed if placed[name]] == ["w0", "w2"]
    raw = (path.parent / "m.safetensors").read_bytes()
    for name in ("w0", "w2"):
        assert placed[name]["location"] == "m.safetensors"
        begin, length = int(placed[name]["offset"]), int(placed[name]["length"])
        assert raw[begin : begin + length] == tensors(layers().SerializeToString())[name]
    assert path.stat().st_size < 1500


def test_a_stated_type_of_a_value_is_that_of_the_input(tmp_path):
    content = layers()
    typed(content.graph.value_info, "w1", SIZE)
    got, _, _ = saved(tmp_path, spoil(content, "w1"))
    assert got.graph.input[1] == content.graph.value_info[0]


def test_in_models_of_version_3_a_lost_initializer_is_an_input_already(tmp_path):
    content = layers()
    content.ir_version = 3
    for tensor in content.graph.initializer:
        typed(content.graph.input, tensor.name, *tensor.dims, dtype=tensor.data_type)
    got, told, _ = saved(tmp_path, spoil(content, "w1"))
    assert got.graph.input == content.graph.input
    assert told["m.onnx"]["reason"].endswith("lost: w1")


def test_types_that_safetensors_lacks_stay_in_the_model(tmp_path):
    content = layers()
    add = content.graph.initializer.add
    add(name="text", data_type=wire.STRING, dims=[2], string_data=[b"a", b"\xff"])
    add(name="nibbles", data_type=wire.UINT4, dims=[3], int32_data=[0x21, 0x03])
    add(name="sixes", data_type=27, dims=[4], int32_data=[1, 2, 3, 4])
    add(name="empty", data_type=FLOAT, dims=[0, 5])
    got, told, path = saved(tmp_path, spoil(content, "w1"))
    kept = {tensor.name: tensor for tensor in got.graph.initializer}
    for tensor in content.graph.initializer[-4:]:
        assert kept[tensor.name] == tensor
    assert not [name for name in told if "partial/" in name and "w1" not in name]
    with pparse.view(path.parent / "m.safetensors") as viewer:
        assert viewer.extent().status is pparse.Status.COMPLETE
        assert "sixes" not in viewer


def test_the_file_beside_a_model_is_cut(tmp_path):
    content, data = external(layers())
    got, told, path = saved(tmp_path, content, beside={"m.data": data[: 2 * SIZE * 4]})
    assert [info.name for info in got.graph.input] == ["x", "w1", "s1", "w2", "s2"]
    assert [dim.dim_value for info in got.graph.input[1:] for dim in info.type.tensor_type.shape.dim] == [
        SIZE,
        2,
        SIZE,
        2,
    ]
    whole = tensors(layers().SerializeToString())
    assert tensors(path) == {name: whole[name] for name in ("w0", "s0")}
    assert "in m.safetensors" in told["m.onnx"]["reason"]


def test_the_file_beside_a_model_is_not_there(tmp_path):
    content, _ = external(layers())
    got, told, path = saved(tmp_path, content)
    assert [info.name for info in got.graph.input] == ["x", "w0", "s0", "w1", "s1", "w2", "s2"]
    assert not got.graph.initializer
    assert "m.safetensors" not in told["m.onnx"]["reason"]
    assert not (path.parent / "m.safetensors").exists()


def test_nibbles_in_a_file_beside_a_model_come_into_the_model(tmp_path):
    content = layers()
    content.graph.initializer.add(name="nibbles", data_type=wire.UINT4, dims=[3001], raw_data=bytes(range(256)) * 6)
    content.graph.initializer[-1].raw_data = content.graph.initializer[-1].raw_data[:1501]
    stored = content.graph.initializer[-1].raw_data
    made, data = external(content)
    cut = MODEL.FromString(made)
    cut.graph.initializer[0].external_data[1].value = str(len(data) - 5)
    got, _, _ = saved(tmp_path, cut.SerializeToString(), beside={"m.data": data})
    found = next(tensor for tensor in got.graph.initializer if tensor.name == "nibbles")
    assert (found.raw_data, found.data_location, len(found.external_data)) == (stored, 0, 0)


def test_a_model_that_is_cut_has_no_graph_to_be_saved(tmp_path):
    content = layers().SerializeToString()
    got, told, _ = saved(tmp_path, content[: len(content) - 2 * SIZE])
    assert got is None
    assert told["m.onnx"]["status"] == "missing"
    assert "no model can be written" in told["m.onnx"]["reason"]
    assert "truncated" in told["m.onnx"]["reason"]


def lost_name(content):
    content.graph.initializer[2].name = ""
    return "uses 'w1', which is lost, and so is its type"


def wrong_type(content):
    content.graph.initializer[4].data_type = 9
    return "its type bool may be wrong"


def unknown_type(content):
    content.graph.initializer[4].data_type = 99
    return "its type is type 99"


def same_name(content):
    content.graph.initializer[0].name = "w1"
    return "'w1' is also something else"


def broken_constant(content):
    typed_value = content.graph.node.add(op_type="Constant", output=["c"], name="c").attribute.add(name="value", type=4)
    typed_value.t.data_type = FLOAT
    typed_value.t.dims.append(3)
    typed_value.t.raw_data = b"1234"
    return "'c', which is in a node, is damaged"


def constant_elsewhere(content):
    value = content.graph.node.add(op_type="Constant", output=["c"], name="c").attribute.add(name="value", type=4).t
    value.data_type, value.data_location = FLOAT, 1
    value.dims.append(1)
    value.external_data.add(key="location", value="m.data")
    value.external_data.add(key="length", value="4")
    return "'c', which is in a node, refers to another file"


def no_outputs(content):
    del content.graph.output[:]
    return "no nodes or no outputs"


def no_operators(content):
    del content.opset_import[:]
    return "the operator sets of the model are lost"


@rows(
    "harm",
    [
        lost_name,
        wrong_type,
        unknown_type,
        same_name,
        broken_constant,
        constant_elsewhere,
        no_outputs,
        no_operators,
    ],
)
def test_no_model_where_the_graph_did_not_survive(tmp_path, harm):
    content = layers()
    why = harm(content)
    place = tmp_path / harm.__name__
    got, told, _ = saved(place, spoil(content, content.graph.initializer[2].name), beside={"m.data": b"1234"})
    assert got is None
    assert why in told["m.onnx"]["reason"]
    assert (place / "out" / "m.safetensors").exists()


def test_a_node_whose_text_is_damaged(tmp_path):
    content = bytearray(spoil(layers(), "w1"))
    content[content.index(b"reshape0")] = 0xFF
    got, told, _ = saved(tmp_path, bytes(content))
    assert got is None
    assert "a part of the graph is damaged" in told["m.onnx"]["reason"]


def test_nothing_of_a_member_in_doubt_becomes_a_model(tmp_path):
    """Its checksum contradicts all of it: nodes may be wrong as well as weights."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("sub/m.onnx", layers().SerializeToString())
    raw = bytearray(out.getvalue())
    raw[raw.index(b"reshape2") + 400] ^= 1
    got, told, _ = saved(tmp_path, bytes(raw), "a.zip")
    assert got is None
    assert "may be wrong" in told["sub/m.onnx"]["reason"]


def test_a_model_in_an_archive_lies_beside_its_weights(tmp_path):
    content, data = external(layers())
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, body in (("sub/m.onnx", content), ("sub/m.data", data[:-5])):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    got, _, path = saved(tmp_path, out.getvalue(), "a.tar.gz")
    assert path == tmp_path / "out" / "sub" / "m.onnx"
    assert [info.name for info in got.graph.input] == ["x", "s2"]
    whole = tensors(layers().SerializeToString())
    del whole["s2"]
    assert tensors(path) == whole


def test_a_file_beside_a_model_in_an_archive_is_in_doubt(tmp_path):
    content, data = external(layers())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("sub/m.onnx", content)
        archive.writestr("sub/m.data", data)
    raw = bytearray(out.getvalue())
    raw[raw.index(data) + 9] ^= 1
    (tmp_path / "a.zip").write_bytes(raw)
    with pparse.view(f"{tmp_path / 'a.zip'}::sub/m.onnx") as viewer, pytest.raises(pparse.TensorError, match="CRC"):
        viewer["w1"].numpy()
    with pparse.view(f"{tmp_path / 'a.zip'}::sub/m.onnx") as viewer:
        assert [finding.code for finding in viewer.check()] == ["checksum"]
        assert {tensor.status for tensor in viewer.tensors()} == {pparse.Status.DAMAGED}
    got, told, path = saved(tmp_path, bytes(raw), "b.zip")
    assert not got.graph.initializer
    assert len(got.graph.input) == 7
    assert path == tmp_path / "out" / "sub" / "m.onnx"
    assert told["sub/m.data"]["status"] == "damaged"


def test_a_whole_model_in_an_archive_is_found_whole_by_a_walk(tmp_path):
    content, data = external(layers())
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("sub/m.onnx", content)
        archive.writestr("sub/m.data", data)
    with pparse.open(tmp_path / "a.zip") as document:
        assert recover(document, tmp_path / "out").is_whole
    assert (tmp_path / "out" / "sub" / "m.onnx").read_bytes() == content


def test_a_saved_model_is_sound_and_is_recovered_as_it_is(tmp_path):
    _, _, path = saved(tmp_path, spoil(layers(), "w1"))
    with pparse.view(path) as viewer:
        assert not list(viewer.check())
        assert viewer.extent().status is pparse.Status.COMPLETE
        assert not list(viewer.graph.check())
    with pparse.open(path) as document:
        recover(document, tmp_path / "again")
    assert (tmp_path / "again" / "m.onnx").read_bytes() == path.read_bytes()


def test_both_files_are_told_of_by_the_command(tmp_path, capsys):
    from pparse.cli import main

    path = tmp_path / "m.onnx"
    path.write_bytes(spoil(layers(), "w1"))
    assert main(["recover", str(path), "-o", str(tmp_path / "out")]) == 4
    said = capsys.readouterr().out
    assert "m.onnx" in said
    assert "since they are lost: w1" in said


@pytest.mark.parametrize("budget", ["2MiB"])
def test_a_model_of_many_initializers_within_a_small_budget(tmp_path, budget):
    content = model()
    typed(content.graph.output, "y")
    for number in range(1500):
        initializer(content.graph, f"w{number}", [1.0] * 2, 2 + 4 * (number % 2))
    node(content.graph, "Sum", [f"w{number}" for number in range(1500)], ["y"])
    path = tmp_path / "m.onnx"
    path.write_bytes(content.SerializeToString())
    with pparse.open(path, budget=budget) as document:
        recover(document, tmp_path / "out")
    got = MODEL.FromString((tmp_path / "out" / "m.onnx").read_bytes())
    assert (len(got.graph.initializer), len(got.graph.input)) == (750, 750)


def test_recover_of_a_whole_model_copies_the_files_beside_it(run, tmp_path):
    model = Path("tests/data/onnx/external.onnx")
    ran = run("recover", model, "-o", tmp_path / "out")
    assert ran.code == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"RECOVERY.json", "external.onnx", "external.bin"}
    for name in ("external.onnx", "external.bin"):
        assert (tmp_path / "out" / name).read_bytes() == (model.parent / name).read_bytes()
