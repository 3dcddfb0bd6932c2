"""The viewer of TensorFlow's protos: names, meta graphs, functions, signatures; whole, in chunks, damaged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse.cli import main
from pparse.findings import Status
from pparse.protos import message_class
from pparse.riegeli.writer import RecordWriter

DATA = Path(__file__).parent / "data" / "tf"
SAVED_MODEL = message_class("tensorflow.SavedModel")
GRAPH = message_class("tensorflow.GraphDef")
TENSOR = message_class("tensorflow.TensorProto")
METADATA = message_class("tensorflow.proto_splitter.ChunkMetadata")


def fill(graph, prefix: str, first: int) -> None:
    """Add a graph with a constant, tensors in other attributes, and a function with a constant of the same name."""
    node = graph.node.add(name=f"{prefix}c", op="Const")
    node.attr["value"].tensor.CopyFrom(one(first))
    node.attr["note"].tensor.CopyFrom(one(first + 1))
    node = graph.node.add(name=f"{prefix}B", op="Other", input=["c"])
    node.attr["list"].list.tensor.extend([one(first + 2), one(first + 3)])
    node.attr["value"].tensor.CopyFrom(one(first + 4))
    node.attr["text"].s = b"B\x42\x12\x05Const"
    function = graph.library.function.add()
    function.signature.name = "fn"
    node = function.node_def.add(name="c", op="Const")
    node.attr["value"].tensor.CopyFrom(one(first + 5))


def one(value: int):
    made = TENSOR(dtype=3, int_val=[value])
    made.tensor_shape.SetInParent()
    return made


def model() -> bytes:
    saved = SAVED_MODEL(saved_model_schema_version=1)
    for number in range(2):
        graph = saved.meta_graphs.add()
        graph.meta_info_def.tags.append(("serve", "train")[number])
        graph.meta_info_def.tensorflow_version = "2.21.0"
        graph.meta_info_def.stripped_op_list.op.add(name="Const")
        graph.graph_def.versions.producer = 1987
        fill(graph.graph_def, "", 10 * number)
        signature = graph.signature_def["serving_default"]
        signature.method_name = "tensorflow/serving/predict"
        info = signature.inputs["x"]
        info.name, info.dtype = "x:0", 1
        info.tensor_shape.dim.add(size=-1)
        info.tensor_shape.dim.add(size=3)
        signature.outputs["y"].name = "y:0"
        signature.outputs["y"].dtype = 7
        signature.outputs["y"].tensor_shape.unknown_rank = True
        graph.collection_def["names"].node_list.value.extend(["a", "b"])
        variable = message_class("tensorflow.VariableDef")(variable_name="w:0", trainable=True)
        graph.collection_def["variables"].bytes_list.value.append(variable.SerializeToString())
        graph.collection_def["blobs"].bytes_list.value.append(b"\xff\xfe")
        graph.collection_def["steps"].int64_list.value.extend([3, -4])
        asset = graph.asset_file_def.add(filename="vocab.txt")
        asset.tensor_info.name = "file:0"
    return saved.SerializeToString()


NAMES = ["c", "c.note", "B.list[0]", "B.list[1]", "B.value", "@fn/c"]


@pytest.fixture(name="viewer")
def _viewer():
    with pparse.view(model(), format="saved-model") as viewer:
        yield viewer


def test_names_of_constants(viewer):
    found = {tensor.name: int(tensor.numpy()) for tensor in viewer.tensors()}
    assert set(found) == {*NAMES, *(f"{name}#2" for name in NAMES)}
    assert [found["c"], found["c.note"]] == [0, 1]
    assert found["B.list[1]"] == 3
    assert found["B.value"] == 4
    assert found["@fn/c"] == 5
    assert found["@fn/c#2"] == 15
    for name, value in found.items():
        assert int(viewer[name].numpy()) == value
        assert viewer[name].name == name
    assert "c#3" not in viewer
    assert "nothing" not in viewer
    assert len(viewer) == 12


def test_a_name_that_looks_like_a_number_of_another():
    graph = GRAPH()
    for name, value in (("c", 1), ("c#2", 2), ("c", 3)):
        graph.node.add(name=name, op="Const").attr["value"].tensor.CopyFrom(one(value))
    viewer = pparse.view(graph.SerializeToString(), format="graph-def")
    found = {tensor.name: int(tensor.numpy()) for tensor in viewer.tensors()}
    assert found == {"c": 1, "c#2": 2, "c#2#2": 3}
    assert {name: int(viewer[name].numpy()) for name in found} == found


def test_many_names_are_numbered_without_holding_them(monkeypatch):
    import pparse.viewers.tensor_proto.viewer as module

    monkeypatch.setattr(module, "_MOST_SEEN", 3)
    viewer = pparse.view(model(), format="saved-model")
    assert {tensor.name for tensor in viewer.tensors()} == {*NAMES, *(f"{name}#2" for name in NAMES)}


def test_metadata_signatures_collections_and_assets(viewer):
    metadata = viewer.metadata
    assert metadata["saved_model_schema_version"] == 1
    assert [graph["tags"] for graph in metadata["meta_graphs"]] == [["serve"], ["train"]]
    assert metadata["meta_graphs"][0]["stripped_ops"] == ["Const"]
    assert metadata["meta_graphs"][0]["producer"] == 1987
    assert metadata["meta_graphs"][1]["functions"] == 1
    assert list(viewer.signatures) == ["serving_default", "serving_default#2"]
    signature = viewer.signatures["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    assert signature.inputs["x"].to_dict() == {
        "tensor": "x:0",
        "dtype": "float32",
        "stored_dtype": "DT_FLOAT",
        "shape": [-1, 3],
    }
    assert signature.outputs["y"].shape is None
    assert signature.outputs["y"].stored_dtype == "DT_STRING"
    assert viewer.collections["names"] == ["a", "b"]
    assert viewer.collections["variables"] == [{"variable_name": "w:0", "trainable": True}]
    assert viewer.collections["blobs"] == [b"\xff\xfe"]
    assert viewer.collections["steps#2"] == [3, -4]
    assert [(asset.filename, asset.tensor) for asset in viewer.assets] == [("vocab.txt", "file:0")] * 2


@pytest.mark.parametrize("name", ["const_chunked", "nodes_split_cc"])
def test_chunked_models_have_the_values_that_tensorflow_has(name, tmp_path):
    expected = np.load(DATA / name / "constants.npz")
    plain = tmp_path / "saved_model.pb"
    plain.write_bytes(gzip.decompress((DATA / name / "expected.pb.gz").read_bytes()))
    whole = pparse.view(plain)
    for source in (DATA / name / "saved_model.cpb", DATA / name, plain):
        viewer = pparse.view(source)
        assert list(viewer) == list(whole)
        for key in set(expected.files) & set(viewer):
            array = viewer[key].numpy()
            assert (array.dtype, array.shape) == (expected[key].dtype, expected[key].shape)
            assert array.tobytes() == expected[key].tobytes()
        assert viewer.status is Status.COMPLETE
        assert not list(viewer.check())


def test_spans_of_a_chunk_are_those_of_the_file():
    path = DATA / "const_chunked" / "saved_model.cpb"
    raw = path.read_bytes()
    for tensor in pparse.view(path).tensors():
        stored = b"".join(raw[span.offset : span.offset + span.length] for span in tensor.spans)
        assert stored == tensor.numpy().tobytes()


def test_a_compressed_chunk(tmp_path):
    path = tmp_path / "graph.cpb"
    array = np.arange(5_000, dtype="<f4")
    write_chunked(path, "zstd", array)
    viewer = pparse.view(path)
    assert np.array_equal(viewer["big"].numpy(), array)
    assert viewer["big"][40:44].tolist() == [40, 41, 42, 43]


def write_chunked(path: Path, options: str, array: np.ndarray, *, metadata: bool = True) -> None:
    """Write a graph with one constant, whose content is a chunk of its own (and a Riegeli chunk of its own)."""
    graph = GRAPH()
    graph.node.add(name="small", op="Const").attr["value"].tensor.CopyFrom(one(5))
    tensor = graph.node.add(name="big", op="Const").attr["value"].tensor
    tensor.dtype = 1
    tensor.tensor_shape.dim.add(size=len(array))
    made = METADATA()
    made.version.splitter_version = 1
    made.message.chunk_index = 0
    field = made.message.chunked_fields.add()
    field.message.chunk_index = 1
    field.field_tag.add().field = 1
    field.field_tag.add().index = 1
    field.field_tag.add().field = 5
    field.field_tag.add().map_key.s = "value"
    field.field_tag.add().field = 8
    field.field_tag.add().field = 4
    with RecordWriter(path, options=f"{options},chunk_size:1") as writer:
        for record, kind in ((graph.SerializeToString(), 1), (array.tobytes(), 2)):
            writer.write_record(record)
            made.chunks.add(type=kind, size=len(record), offset=writer.last_pos.numeric)
        if metadata:
            writer.write_record(made.SerializeToString())


def test_chunks_without_their_metadata_are_not_zeros(tmp_path):
    path = tmp_path / "graph.cpb"
    write_chunked(path, "uncompressed", np.arange(5_000, dtype="<f4"))
    path.write_bytes(path.read_bytes()[:-20])
    viewer = pparse.view(path)
    assert int(viewer["small"].numpy()) == 5
    assert viewer["big"].status is Status.MISSING
    assert "without the metadata" in viewer["big"].finding.reason
    assert viewer.status is Status.TRUNCATED
    assert viewer.extent().resume_at == path.stat().st_size


def test_a_damaged_chunk_damages_its_tensor_only(tmp_path):
    path = tmp_path / "graph.cpb"
    write_chunked(path, "uncompressed", np.arange(5_000, dtype="<f4"))
    raw = bytearray(path.read_bytes())
    raw[10_000] ^= 1
    path.write_bytes(raw)
    viewer = pparse.view(path)
    assert int(viewer["small"].numpy()) == 5
    assert viewer["big"].status is Status.DAMAGED
    assert (viewer["big"].shape, viewer["big"].dtype.name) == ((5_000,), "float32")
    assert viewer.status is Status.DAMAGED
    assert any(finding.path == "big" for finding in viewer.check())
    trusting = pparse.view(path, options={"verify": "headers"})
    assert trusting["big"].status is Status.COMPLETE


def test_a_constant_without_a_value():
    graph = GRAPH()
    graph.node.add(name="a", op="Const").attr["dtype"].type = 1
    viewer = pparse.view(graph.SerializeToString(), format="graph-def")
    assert viewer["a"].status is Status.DAMAGED
    assert "no value" in viewer["a"].finding.reason


def test_a_cut_file_says_where(tmp_path):
    raw = gzip.decompress((DATA / "const_chunked" / "expected.pb.gz").read_bytes())
    path = tmp_path / "saved_model.pb"
    path.write_bytes(raw[:40_000])
    extent = pparse.view(path).extent()
    assert (extent.actual, extent.expected, extent.resume_at) == (40_000, len(raw), 40_000)
    assert extent.first_hit == "ints"
    assert (extent.whole, extent.truncated) == (2, 1)
    assert extent.status is Status.TRUNCATED


def test_constants_are_found_without_reading_them(tmp_path):
    graph = GRAPH()
    for number in range(4):
        tensor = graph.node.add(name=f"t{number}", op="Const").attr["value"].tensor
        tensor.dtype = 1
        tensor.tensor_shape.dim.add(size=1 << 18)
        tensor.tensor_content = bytes(1 << 20)
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.SerializeToString())
    viewer = pparse.view(path)
    assert [tensor.stored_nbytes for tensor in viewer.tensors()] == [1 << 20] * 4
    viewer["t3"][5]
    assert viewer.extraction.session.stats.bytes < 400_000


def test_ls_info_and_get_show_tensors_of_functions_too(tmp_path, capsys):
    path = tmp_path / "saved_model.pb"
    path.write_bytes(model())
    assert main(["ls", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "@fn/c#2" in shown
    assert "12 tensors" in shown
    assert main(["info", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "meta_graphs[0].tags = serve" in shown
    assert "message     tensorflow.SavedModel" in shown
    assert main(["info", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["meta_graphs"][1]["tags"] == ["train"]
    assert main(["check", str(path)]) == 0
    out = tmp_path / "c.npy"
    assert main(["get", str(path), "B.list[1]", "-o", str(out)]) == 0
    assert np.load(out) == 3
    capsys.readouterr()
    assert main(["ls", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tensors"]
    assert [row["name"] for row in rows if row["name"].startswith("B")][:2] == ["B.list[0]", "B.list[0]#2"]


def test_a_field_of_the_message_comes_before_a_constant_of_its_name_and_before_all_others(
    tmp_path, capsys, monkeypatch
):
    graph = GRAPH()
    graph.versions.producer = 1987
    fill(graph, "", 0)
    graph.node.add(name="versions", op="Const").attr["value"].tensor.CopyFrom(one(7))
    path, out = tmp_path / "graph.pb", tmp_path / "versions.npz"
    path.write_bytes(graph.SerializeToString())
    assert main(["get", str(path), "-p", "versions", "-o", str(out)]) == 0
    assert np.load(out)["versions"] == 7
    capsys.readouterr()
    monkeypatch.setattr("pparse.viewers.tensorflow.constants.Constants.find", None)  # no look at the constants
    assert main(["get", str(path), "versions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == {"producer": 1987}


def test_the_last_of_two_attributes_of_one_name_counts():
    def pair(value: int) -> bytes:
        tensor = one(value).SerializeToString()
        attr = b"\x42" + bytes([len(tensor)]) + tensor
        entry = b"\x0a\x05value\x12" + bytes([len(attr)]) + attr
        return b"\x2a" + bytes([len(entry)]) + entry

    node = b"\x0a\x01c\x12\x05Const" + pair(3) + pair(4)
    raw = b"\x0a" + bytes([len(node)]) + node
    assert GRAPH.FromString(raw).node[0].attr["value"].tensor.int_val == [4]
    viewer = pparse.view(raw, format="graph-def")
    assert [(name, int(viewer[name].numpy())) for name in viewer] == [("c", 4)]


@pytest.mark.parametrize(("name", "code"), [("variables.index", "malformed"), ("other", "missing")])
def test_variables_that_cannot_be_read_are_told(tmp_path, name, code):
    """Weights are in a checkpoint beside the message: a list of constants must not pass for all there is."""
    source = Path(__file__).parent / "data" / "tf" / "const_chunked" / "saved_model.cpb"
    (tmp_path / "saved_model.cpb").write_bytes(source.read_bytes())
    with pparse.open(tmp_path) as doc:
        assert list(doc.check()) == []
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables" / name).write_bytes(b"x" * 10)
    with pparse.open(tmp_path) as doc:
        assert {(finding.code, finding.severity.value) for finding in doc.check()} == {(code, "error")}
        assert dict(doc.parse().parser.details())["variables"].startswith("1 file, 10 bytes")
    with pparse.view(tmp_path) as model:
        assert model.extent().status is (Status.DAMAGED if code == "malformed" else Status.TRUNCATED)


def test_the_library_of_a_graph_is_not_read_again_for_each_function(monkeypatch):
    from pparse.kernels.wire import scan
    from pparse.parsers.protobuf import parser as protobuf

    scanned = 0

    def counting(block, pos, stop, *more):
        nonlocal scanned
        scanned += stop - pos
        return scan(block, pos, stop, *more)

    monkeypatch.setattr(protobuf, "scan", counting)

    def work(count: int) -> int:
        nonlocal scanned
        scanned = 0
        graph = GRAPH()
        for number in range(count):
            function = graph.library.function.add()
            function.signature.name = f"f{number}"
            node = function.node_def.add(name="c", op="Const")
            node.attr["value"].tensor.CopyFrom(one(number))
        content = graph.SerializeToString()
        with pparse.open(content, format="graph-def") as document:
            assert list(document.view()) == [f"@f{number}/c" for number in range(count)]
        return scanned // count

    assert work(400) <= 2 * work(100)
