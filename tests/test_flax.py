"""Arrays in MessagePack: those of flax, chunked ones, and those of msgpack-numpy."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from struct import pack

import numpy as np
import pytest

import pparse
from pparse import DamagedTensorError, Status, TruncatedTensorError, UnsupportedError
from pparse.data.base import BytesData
from pparse.tensors.status import Remark
from tests.msgpack_samples import FLAX, NUMPY, Raw, array, encode, ext, pairs
from tests.rows import rows


def test_arrays_have_names_types_shapes_and_values() -> None:
    with pparse.view(FLAX) as model:
        assert model.format == "flax"
        assert model.status is Status.COMPLETE
        shown = {name: (str(tensor.dtype), tensor.shape) for name, tensor in model.items()}
        assert shown == {
            "params.Dense_0.kernel": ("float32", (2, 3)),
            "params.Dense_0.bias": ("bfloat16", (3,)),
            "empty": ("int64", (0, 4)),
            "big": ("int16", (2, 4)),
        }
        assert dict(model.metadata) == {"scalar": 0.5, "complex": "(1-2j)", "step": 7}
        assert model["params/Dense_0/bias"].name == "params.Dense_0.bias"
        big = model["big"]
        assert len(big.spans) == 2
        assert big.numpy().tobytes() == bytes(8) + bytes(range(8))
        assert big[1, 1:3].tolist() == [0x0302, 0x0504]
        assert model.extraction.get("params.Dense_0.kernel.dtype") == "float32"


def test_equal_names_are_numbered_and_keys_of_any_type_named() -> None:
    one = array("uint8", [1], b"\1")
    content = encode(
        pairs(("w", one), ("w", one), ("a.b", one), ("a", {"b": one}), (b"k", one), (3, [one]), (1.5, one))
    )
    with pparse.view(content) as model:
        assert list(model) == ["w", "w#2", "a.b", "a.b#2", "k", "3.0", "#6"]
        for name in model:
            assert model[name].name == name
            assert model[name].numpy().tolist() == [1]
        assert "nothing" not in model


def test_each_cut_tells_which_tensors_are_whole() -> None:
    with pparse.view(FLAX) as model:
        ends = {name: (tensor.spans[-1].offset + tensor.spans[-1].length) for name, tensor in model.items()}
        contents = {name: tensor.numpy().tobytes() for name, tensor in model.items()}
    for size in range(60, len(FLAX)):
        with pparse.view(FLAX[:size], format="flax") as model:
            found = {name: tensor.status for name, tensor in model.items()}
            for name, end in ends.items():
                if end <= size:
                    assert found[name] is Status.COMPLETE
                    assert model[name].numpy().tobytes() == contents[name]
                else:
                    assert found.get(name) is not Status.COMPLETE, (name, size)
            extent = model.extent()
            assert extent.status is Status.TRUNCATED
            assert extent.at_least
            assert extent.resume_at == size
    start = FLAX.index(bytes(24))
    with pparse.view(FLAX[: start + 13]) as model:
        assert model["params.Dense_0.kernel"].numpy(partial="prefix").shape == (1, 3)
        with pytest.raises(TruncatedTensorError):
            model["params.Dense_0.kernel"].numpy()


@rows(
    ("made", "status"),
    [
        (array("float32", [2], bytes(7)), Status.DAMAGED),
        (array("float32", [-2], bytes(8)), Status.DAMAGED),
        (array("float32", [1 << 62, 1 << 62], bytes(8)), Status.DAMAGED),
        (ext(1, encode([[2], "float32", bytes(8)]) + b"\0"), Status.DAMAGED),
        (ext(1, encode([[2], "float32"])), Status.DAMAGED),
        (ext(1, encode([["2"], "float32", bytes(8)])), Status.DAMAGED),
        (ext(1, encode([2, "float32", bytes(8)])), Status.DAMAGED),
        (ext(1, encode([[2], 5, bytes(8)])), Status.DAMAGED),
        (ext(1, encode([[2], "float32", "12345678"])), Status.DAMAGED),
        (ext(1, b"\x93\xc1"), Status.DAMAGED),
        (ext(1, b""), Status.DAMAGED),
        (ext(1, b"\x93" + b"\x91" * 2000), Status.DAMAGED),
        (array("float32", [1] * 65, bytes(4)), Status.UNSUPPORTED),
        (array("float32", [0, 1 << 63], b""), Status.UNSUPPORTED),
        (array("float32", [1 << 62, 4, 0], b""), Status.UNSUPPORTED),
        (array("complex128", [1 << 59, 0], b""), Status.UNSUPPORTED),
        (array("int4", [2], bytes(2)), Status.UNSUPPORTED),
        (array("str64", [2], bytes(16)), Status.UNSUPPORTED),
        (array("object", [1], bytes(8)), Status.UNSUPPORTED),
    ],
)
def test_a_wrong_array_has_a_status_and_its_neighbours_are_read(made: Raw, status: Status) -> None:
    good = array("uint8", [2], b"\1\2")
    with pparse.view(encode({"before": good, "wrong": made, "after": good})) as model:
        assert model["wrong"].status is status
        assert model["wrong"].finding is not None
        with pytest.raises((DamagedTensorError, UnsupportedError)):
            model["wrong"].numpy()
        assert model["before"].numpy().tolist() == model["after"].numpy().tolist() == [1, 2]
        list(model.check())


def test_chunks_that_are_cut_or_wrong_are_not_whole() -> None:
    def chunked(shape: dict, chunks: dict) -> dict:
        return {"__msgpack_chunked_array__": True, "shape": shape, "chunks": chunks}

    part = array("int16", [4], bytes(8))
    whole = encode({"x": 1, "big": chunked({"0": 12}, {"0": part, "1": part, "2": part})})
    with pparse.view(whole) as model:
        assert model["big"].numpy().shape == (12,)
    for size in range(whole.index(part) + 40, len(whole)):
        with pparse.view(whole[:size]) as model:
            big = model["big"]
            assert big.status is Status.TRUNCATED, size
            assert 8 <= big.available_nbytes < 24
            assert big.shape == (12,)
    for wrong in (
        chunked({"0": 12}, {"0": part, "2": part, "1": array("int8", [8], bytes(8))}),
        chunked({"0": 12}, {"0": part, "1": part}),
        chunked({"0": -1}, {"0": part}),
        chunked({"0": 4}, {"0": part, "1": 5}),
    ):
        with pparse.view(encode({"a": part, "big": wrong})) as model:
            assert model["big"].status is Status.DAMAGED
            assert model["a"].status is Status.COMPLETE


def test_a_chunked_array_is_what_flax_makes_of_it() -> None:
    mark, part = "__msgpack_chunked_array__", array("int16", [4], bytes(8))
    grid, lone, longer = (array("int16", shape, bytes(size)) for shape, size in (([2, 2], 8), ([], 2), ([5], 8)))
    for good in (
        {mark: True, "shape": {"0": 8}, "chunks": {"0": part, "1": part}, "more": 1},
        {"more": 1, mark: False, "chunks": {"1": part, "0": part}, "shape": {"1": 4, "0": 2}},
        {mark: True, "shape": {"0": 8}, "chunks": {"0": grid, "1": grid}},
    ):
        with pparse.view(encode({"a": part, "big": good})) as model:
            assert list(model) == ["a", "big"]
            assert model["big"].status is Status.COMPLETE
            assert model["big"].numpy().size == 8
    for wrong in (
        {mark: True, "shape": {"0": 8}, "chunks": {"0": longer, "1": array("int16", [3], bytes(8))}},
        {mark: True, "shape": {"0": 4}, "chunks": {"0": part, "2": part}},
        {mark: True, "shape": {"0": 4, "2": 1}, "chunks": {"0": part}},
        {mark: True, "shape": {"0": 8}, "chunks": {"0": part, "1": grid}},
        {mark: True, "shape": {}, "chunks": {"0": lone}},
        {mark: True, "shape": {"0": 0}, "chunks": {}},
        {mark: True, "shape": {"0": 4}},
        {mark: True, "chunks": {"0": array("int16", [1], bytes(2))}},
    ):
        with pparse.view(encode({"a": part, "big": wrong})) as model:
            assert list(model) == ["a", "big"]
            assert model["big"].status is Status.DAMAGED, wrong
            with pytest.raises(DamagedTensorError):
                model["big"].numpy()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (array("float32", [2], bytes(8), 3), "unsupported: its shape is not that of a single value"),
        (array("float32", [1 << 62, 4, 0], b"", 3), "unsupported: its shape is not that of a single value"),
        (array("float32", [2], bytes(4), 3), "unsupported: its shape is not that of a single value"),
        (array("V3", [], bytes(3), 3), "unsupported: elements of type V3 are not read"),
        (ext(3, b"\x93\xc1"), "damaged: "),
        (ext(2, encode(["1", "x"])), "damaged: its parts are no numbers"),
        (ext(2, encode([None, [1]])), "damaged: its parts are no numbers"),
        (ext(2, encode([1])), "damaged: "),
    ],
)
def test_a_value_that_is_none_is_remarked_on(run, tmp_path: Path, value: Raw, shown: str) -> None:
    path = tmp_path / "it.msgpack"
    path.write_bytes(encode({"a": value, "w": array("uint8", [2], b"\1\2")}))
    with pparse.view(path) as model:
        assert isinstance(model.metadata["a"], Remark)
        assert model.metadata["a"].startswith(shown)
    made = tmp_path / "it.safetensors"
    assert run("info", path).code in (0, 4)
    assert run("convert", path, "-o", made, "--skip-damaged").code in (0, 4)
    assert b"single value" not in made.read_bytes()  # a remark is not what the file says


@pytest.mark.parametrize("dtype", ["uint8", "float64", "complex128"])
def test_an_array_without_elements_is_read_if_numpy_can_have_one(dtype: str) -> None:
    shape = (0, (1 << 59) - 1)
    with pparse.view(encode({"a": array(dtype, list(shape), b"")})) as model:
        assert model["a"].status is Status.COMPLETE
        assert model["a"].numpy().shape == shape


def test_maps_of_msgpack_numpy_are_arrays() -> None:
    with pparse.view(NUMPY) as model:
        assert model.format == "msgpack"
        assert {name: (str(tensor.dtype), tensor.shape) for name, tensor in model.items()} == {
            "w": ("float32", (2, 3)),
            "old": ("int16", (2,)),
        }
        assert model["old"].numpy().tolist() == [1, 2]
        assert dict(model.metadata) == {"step": 3}
    with pytest.raises(UnsupportedError):
        pparse.view(encode({"identifier": {"type": 1, "shape": 2, "data": 3, "kind": 4}}))
    wrong = {b"nd": True, b"type": [["a", "<f4"]], b"kind": b"V", b"shape": [1], b"data": bytes(4)}
    with pparse.view(encode({"records": wrong})) as model:
        assert model["records"].status is Status.UNSUPPORTED


def test_a_listing_reads_heads_only() -> None:
    size = 1 << 16
    inner = b"\x93" + encode([size]) + encode("uint8") + b"\xc6" + pack(">I", size)
    one = b"\xc9" + pack(">I", len(inner) + size) + b"\x01" + inner + bytes(size)
    layers = {f"layer_{number}": {"kernel": Raw(one), "bias": Raw(one)} for number in range(100)}
    data = BytesData(encode({"params": layers}))
    with pparse.view(data) as model:
        assert len(model) == 200
        assert model.status is Status.COMPLETE
        assert data.stats.bytes < 3 << 20
        before = data.stats.bytes
        assert model["params.layer_99.bias"].numpy().nbytes == size
        assert data.stats.bytes - before < before


def test_a_lone_array_and_one_in_a_list_are_listed() -> None:
    with pparse.view(encode(array("float32", [1], np.float32(2).tobytes()))) as model:
        assert {name: tensor.numpy().tolist() for name, tensor in model.items()} == {"0": [2.0]}
    with pparse.view(encode([1, array("float32", [1], bytes(4))])) as model:
        assert list(model) == ["1"]
        assert dict(model.metadata) == {"0": 1}


ZOO = Path(__file__).parent / "data/msgpack"
EXPECTED = json.loads((ZOO / "expected.json").read_bytes())


def test_every_file_of_the_zoo_is_listed() -> None:
    assert {path.name for path in ZOO.iterdir()} == {*EXPECTED, "expected.json"}


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_the_real_libraries_have_the_values_that_those_read(name: str) -> None:
    with pparse.open(ZOO / name) as document:
        assert document.status is Status.COMPLETE
        assert not list(document.check())
        if not EXPECTED[name]:
            assert document.format == "msgpack"
            assert len(document.root.to_python()) in (2, 3)
            return
        assert document.format == "flax"
        found = {
            key: [tensor.dtype.name, list(tensor.shape), hashlib.sha256(tensor.numpy().tobytes()).hexdigest()]
            for key, tensor in document.view().items()
        }
        assert found == EXPECTED[name]


def test_a_flax_checkpoint_is_found_by_its_content_whatever_its_name() -> None:
    content = (ZOO / "train_state.msgpack").read_bytes()
    for name in ("checkpoint_3", "model.bin", "model.safetensors", "model.msgpack"):
        with pparse.open(BytesData(content, name=name)) as document:
            assert document.format == "flax", name


def test_a_tree_is_what_was_saved_with_tensors_as_leaves() -> None:
    one = array("uint8", [1], b"\1")
    tree = {
        "params": {"w": one, "parts": [1, one, "x", b"raw"]},
        "step": 7,
        "rate": array("float32", [], pack("<f", 0.5), 3),
    }
    content = encode(pairs(*tree.items(), ("step", 8), (None, 1.5)))
    with pparse.view(content) as model:
        made = model.tree()
        assert list(made) == ["params", "step", "rate", "step#2", None]
        assert made["params"]["w"].numpy().tolist() == [1]
        assert made["params"]["parts"][1].name == "params.parts.1"
        assert [made["params"]["parts"][number] for number in (0, 2, 3)] == [1, "x", b"raw"]
        assert (made["step"], made["rate"], made["step#2"], made[None]) == (7, 0.5, 8, 1.5)
    with pparse.view(content[:-3]) as model, pytest.raises(pparse.EndOfDataError):
        model.tree()


def test_what_follows_a_cut_member_is_not_its_own(tmp_path: Path) -> None:
    cut = FLAX[: FLAX.index(b"\xa5int16") + 2]
    with tarfile.open(tmp_path / "it.tar", "w") as archive:
        for name, content in (("cut.msgpack", cut), ("next", b"\xff" * 2000)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    with pparse.view(f"{tmp_path}/it.tar::cut.msgpack") as model:
        assert {name: tensor.status for name, tensor in model.items()} == {
            "params.Dense_0.kernel": Status.COMPLETE,
            "params.Dense_0.bias": Status.COMPLETE,
            "empty": Status.COMPLETE,
            "big": Status.TRUNCATED,
        }


def test_a_length_that_leaves_an_array_is_told_the_same_each_time() -> None:
    shape = FLAX.index(b"\x93\x91\x03\xa8bfloat16") + 2
    content = FLAX[:shape] + b"\xc9" + FLAX[shape + 1 :]
    with pparse.open(content, format="flax") as document:
        node = document.node("params.Dense_0.bias.shape")
        first = list(node.children())
        node.unload()
        assert list(node.children()) == first
        assert node.status is Status.DAMAGED


def grown() -> bytes:
    """Return a file with three arrays of 600 bytes, large enough that each is read by itself."""
    content = bytes(range(100, 160)) * 10
    parts = {"first": content, "b": content[::-1], "c": content, "third": content}
    layer = {name: array("uint8", [600], raw) for name, raw in parts.items()}
    return encode(pairs(("layer", {**layer, "more": bytes(5000)}), ("z", array("uint8", [600], content))))


def statuses(content: bytes) -> tuple[dict[str, Status], dict[str, Status]]:
    """Return the status of each array of a file, as it is listed, and as it is asked for alone."""
    with pparse.view(content, format="flax") as model:
        listed = {tensor.name: tensor.status for tensor in model.tensors()}
    alone = {}
    for name in listed:
        with pparse.view(content, format="flax") as model:
            alone[name] = model[name].status
    return listed, alone


@pytest.mark.parametrize("change", [-100, -1, 1, 100])
def test_the_last_array_before_a_break_is_in_doubt(change: int) -> None:
    content = grown()
    with pparse.view(content) as model:
        assert all(tensor.status is Status.COMPLETE for tensor in model.values())
        span = model["layer.b"].spans[0]
        at = span.offset + 300
    changed = content[:at] + (content[at - change :] if change < 0 else bytes(change) + content[at:])
    listed, alone = statuses(changed)
    assert (listed["layer.first"], listed["layer.b"]) == (Status.COMPLETE, Status.DAMAGED)
    assert alone == listed
    with pparse.view(content) as right, pparse.view(changed, format="flax") as model:
        for name, status in listed.items():
            assert status is not Status.COMPLETE or (model[name].numpy() == right[name].numpy()).all(), name
    with pparse.view(changed, format="flax") as model:
        finding = model["layer.b"].finding
        assert finding is not None
        assert (finding.path, finding.offset) == ("layer.b", span.offset)


def test_bytes_behind_the_file_put_its_last_array_in_doubt() -> None:
    content = grown()
    listed, alone = statuses(content + b"more")
    assert [name for name, status in listed.items() if status is Status.DAMAGED] == ["z"]
    assert alone == listed
    padded = content + bytes(-len(content) % 512)
    assert set(statuses(padded)[0].values()) == {Status.COMPLETE}  # to a block of a disk


def test_numbers_that_look_like_the_mark_of_an_array_cost_nothing(monkeypatch):
    from pparse.parsers.msgpack import flax

    looked: list[int] = []
    monkeypatch.setattr(flax, "_is_array", lambda raw, at: looked.append(at))
    assert not flax._has_array(b"\xdc\x01\x00" + b"\xcb\x3f\xf0\x01\x93\x00\x00\x00\x00" * 256)
    assert not looked
