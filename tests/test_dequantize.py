"""Codes and their scales: multiplied where that is asked for, never parted."""

from __future__ import annotations

import json
import struct

import ml_dtypes
import numpy as np
import pytest

import pparse
from pparse.errors import MalformedError, NotWholeError, OptionError
from pparse.tensors import dequantized
from pparse.tensors.scales import quantisation_of
from tests.pytorch_zoo import FOLDER, expected
from tests.rows import rows

E4M3, E5M2, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16
WORDS = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "bfloat16": "BF16", "float32": "F32", "uint8": "U8"}
WORDS |= {"float64": "F64", "int64": "I64", "int8": "I8"}


def save(path, arrays, config=None):
    """Write a safetensors file, and beside it a configuration with that size of blocks."""
    header, at = {}, 0
    for name, array in arrays.items():
        place = [at, at + array.nbytes]
        header[name] = {"dtype": WORDS[array.dtype.name], "shape": list(array.shape), "data_offsets": place}
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in arrays.values()))
    if config is not None:
        told = {"quantization_config": {"weight_block_size": config}}
        (path.parent / "config.json").write_text(json.dumps(told), encoding="utf-8")
    return path


def loaded(path):
    """Return all tensors of a file as arrays."""
    with pparse.view(path) as model:
        return {name: tensor.numpy() for name, tensor in model.items()}


CODES = np.minimum(np.arange(32), 16).reshape(4, 8).astype(np.float32)
ROWS = np.float32([1, 2, 4, 8])


@rows(
    ("ending", "scale", "wanted"),
    [
        ("_scale", np.float32(0.5), CODES / 2),
        ("_scale", np.float32([[0.5]]), CODES / 2),
        ("_scale", ROWS, CODES * ROWS[:, None]),
        ("_scale_inv", ROWS[:, None], CODES * ROWS[:, None]),
        ("_scale_inv", np.float32([[1, 2], [3, 4]]), CODES * np.kron([[1, 2], [3, 4]], np.ones((2, 4), np.float32))),
        ("_scale", np.float32([[1, 2, 4, 8]] * 4).astype(BF16), CODES * np.float32([1, 1, 2, 2, 4, 4, 8, 8])),
    ],
    ids=["all", "all-2d", "row", "row-2d", "block", "group"],
)
@rows("dtype", [E4M3, E5M2])
def test_codes_are_multiplied_by_the_scale_that_holds_for_them(tmp_path, ending, scale, wanted, dtype):
    codes = CODES.astype(dtype)
    wanted = codes.astype(np.float32) * np.divide(wanted, CODES, out=np.ones_like(CODES), where=CODES > 0)
    other = np.ones(3, np.float32)
    source = save(tmp_path / "m.safetensors", {"l.weight": codes, f"l.weight{ending}": np.asarray(scale), "b": other})
    output = tmp_path / f"o{len(list(tmp_path.iterdir()))}.safetensors"
    report = pparse.convert(source, output, dequantize=True)
    assert report.notes == ["1 tensor was multiplied by the scales, which are not written"]
    found = loaded(output)
    assert {name: array.dtype.name for name, array in found.items()} == {"b": "float32", "l.weight": "float32"}
    assert np.array_equal(found["l.weight"], wanted)
    with pparse.view(source) as model:
        tensor = dequantized(model, "l.weight")
        assert np.array_equal(np.concatenate(list(tensor.blocks(20))), wanted.reshape(-1))
        assert np.array_equal(np.concatenate(list(tensor.blocks(20, start=8))), wanted.reshape(-1)[8:])
        assert np.array_equal(tensor[1:, ::-2], wanted[1:, ::-2])
        assert np.array_equal(tensor[..., 4], wanted[:, 4])
        assert tensor[2, 3] == wanted[2, 3]
        assert dequantized(model, "b").numpy().tobytes() == other.tobytes()


def test_without_it_both_are_kept_bit_by_bit(tmp_path):
    arrays = {"w": CODES.astype(E4M3), "w_scale_inv": np.float32([[0.1, 0.2], [0.3, 0.4]])}
    source = save(tmp_path / "m.safetensors", arrays)
    assert pparse.convert(source, tmp_path / "o.safetensors").notes == []
    found = loaded(tmp_path / "o.safetensors")
    assert {name: array.tobytes() for name, array in found.items()} == {n: a.tobytes() for n, a in arrays.items()}


def test_codes_are_not_cast_without_their_scales_nor_scales_at_all(tmp_path):
    scale = np.float32([[0.1, 0.2], [0.3, 0.4]])
    source = save(tmp_path / "m.safetensors", {"b": scale, "w": CODES.astype(E4M3), "w_scale_inv": scale})
    with pytest.raises(OptionError, match=r"w is to be multiplied by w_scale_inv.*dequantize=True"):
        pparse.convert(source, tmp_path / "o.safetensors", dtype="bfloat16")
    assert not (tmp_path / "o.safetensors").exists()
    pparse.convert(source, tmp_path / "o.safetensors", dtype="bfloat16", exclude=["w"])
    found = loaded(tmp_path / "o.safetensors")
    assert (found["b"].dtype, found["w_scale_inv"].tobytes()) == (BF16, scale.tobytes())
    pparse.convert(source, tmp_path / "p.safetensors", dtype="bfloat16", dequantize=True)
    product = (CODES * np.kron(scale, np.ones((2, 4), np.float32))).astype(BF16)
    assert loaded(tmp_path / "p.safetensors")["w"].tobytes() == product.tobytes()


def test_the_size_of_blocks_is_that_of_the_configuration(tmp_path):
    """Two rows of scales for 3 rows of codes: blocks of 2 rows, of which the last is cut."""
    codes, scale = np.ones((3, 4)).astype(E4M3), np.float32([[1, 2], [4, 8]])
    source = save(tmp_path / "m.safetensors", {"w": codes, "w_scale_inv": scale}, [2, 2])
    pparse.convert(source, tmp_path / "o.safetensors", dequantize=True)
    wanted = np.float32([[1, 1, 2, 2], [1, 1, 2, 2], [4, 4, 8, 8]])
    assert np.array_equal(loaded(tmp_path / "o.safetensors")["w"], wanted)
    (tmp_path / "config.json").unlink()  # square blocks of 2, as the columns are divided
    pparse.convert(source, tmp_path / "p.safetensors", dequantize=True)
    assert np.array_equal(loaded(tmp_path / "p.safetensors")["w"], wanted)


@pytest.mark.parametrize(
    ("scale", "config"),
    [
        (np.ones((3, 5), np.float32), None),  # no size of blocks fits
        (np.ones((2, 4), np.float32), None),  # 3 × 4, or 4 × 4 of which the last rows are cut
        (np.ones((2, 2), np.float32), [128, 128]),  # not that of the configuration
        (np.ones(6, np.float32), None),  # of columns, or of nothing
        (np.ones((4, 1), np.int64), None),
    ],
)
def test_what_is_not_said_is_not_guessed(tmp_path, run, scale, config):
    shape = (6, 16) if scale.shape == (2, 4) else (4, 8)
    arrays = {"b": np.ones(2, np.float32), "w": np.ones(shape).astype(E4M3), "w_scale_inv": scale}
    source = save(tmp_path / "m.safetensors", arrays, config)
    ran = run("convert", source, "-o", tmp_path / "o.safetensors", "--dequantize")
    assert (ran.code, "w: damaged: its scale w_scale_inv" in ran.err) == (4, True)
    assert not (tmp_path / "o.safetensors").exists()
    ran = run("convert", source, "-o", tmp_path / "o.safetensors", "--dequantize", "--skip-damaged")
    assert (ran.code, list(loaded(tmp_path / "o.safetensors"))) == (4, ["b"])
    ran = run("get", source, "w", "--dequantize")
    assert (ran.code, ran.out) == (4, "")
    with pparse.view(source) as model, pytest.raises(MalformedError, match="its scale w_scale_inv"):
        dequantized(model, "w")


def test_a_lost_scale_is_no_scale(tmp_path):
    source = save(tmp_path / "m.safetensors", {"w": CODES.astype(E4M3), "w_scale_inv": ROWS})
    source.write_bytes(source.read_bytes()[:-4])
    with pytest.raises(NotWholeError) as caught:
        pparse.convert(source, tmp_path / "o.safetensors", dequantize=True)
    assert [name for name, _, _ in caught.value.lost] == ["w"]
    with pparse.view(source) as model:
        assert dequantized(model, "w").status is pparse.Status.TRUNCATED


def test_get_tells_the_scale_and_applies_it(tmp_path, run):
    arrays = {"l.weight": CODES.astype(E4M3), "l.weight_scale": np.float32([0.5]), "b": np.ones(2, np.float32)}
    source = save(tmp_path / "m.safetensors", arrays)
    ran = run("get", source, "l.weight[1]")
    assert (ran.code, "[8 9 10 11 12 13 14 15]" in ran.out) == (0, True)
    assert ran.err == "pparse: note: l.weight holds codes (scale 0.5): --dequantize gives the numbers\n"
    told = json.loads(run("get", source, "l.weight[1]", "--json").out)
    assert (told["quantization"], told["data"]) == ({"scale": 0.5}, [8, 9, 10, 11, 12, 13, 14, 15])
    told = json.loads(run("get", source, "l.weight[1]", "--json", "--dequantize").out)
    assert (told["data"], told["dtype"], "quantization" in told) == ([4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5], "float32", False)
    ran = run("get", source, "l.weight", "--dtype", "float32")
    assert (ran.code, "without l.weight_scale: --dequantize" in ran.err) == (2, True)
    assert run("get", source, "l.weight", "--dtype", "float8_e4m3fn").code == 0
    assert run("get", source, "l.weight", "--dequantize", "--raw").code == 2
    ran = run("get", source, "b", "--dequantize")
    assert (ran.code, ran.err) == (0, "pparse: note: b is given as it is: no scales belong to it\n")
    assert run("get", source, "l.weight", "--dequantize", "-o", tmp_path / "w.npy").code == 0
    assert np.array_equal(np.load(tmp_path / "w.npy"), CODES / 2)


def test_get_of_many_applies_scales_and_leaves_them_out(tmp_path, run):
    arrays = {"l.weight": CODES.astype(E4M3), "l.weight_scale": np.float32([0.5]), "l.bias": np.ones(2, np.float32)}
    source = save(tmp_path / "m.safetensors", arrays)
    assert run("get", source, "-p", "l.*", "-o", tmp_path / "w.npz", "--dequantize", "--dtype", "float16").code == 0
    with np.load(tmp_path / "w.npz") as found:
        assert sorted(found) == ["l.bias", "l.weight"]
        assert found["l.weight"].tobytes() == (CODES / 2).astype(np.float16).tobytes()
    ran = run("get", source, "-p", "l.*", "-o", tmp_path / "x.npz", "--dtype", "float16")
    assert (ran.code, (tmp_path / "x.npz").exists()) == (2, False)
    assert run("get", source, "-p", "*_scale", "-p", "*bias", "-o", tmp_path / "y.npz", "--dtype", "float16").code == 0
    with np.load(tmp_path / "y.npz") as found:
        assert (found["l.bias"].dtype, found["l.weight_scale"].dtype) == (np.float16, np.float32)


def test_nothing_to_dequantise_is_told(tmp_path):
    source = save(tmp_path / "m.safetensors", {"b": np.ones(2, np.float32)})
    report = pparse.convert(source, tmp_path / "o.npz", dequantize=True)
    assert report.notes == ["there was nothing to dequantise: no scales belong to any of the tensors"]


def test_scales_too_many_to_be_kept_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("pparse.tensors.scales._KEPT", 1)
    codes, scale = CODES.astype(E4M3), np.float32([[1, 2], [3, 4]])
    source = save(tmp_path / "m.safetensors", {"w": codes, "w_scale": scale})
    with pparse.view(source) as model:
        found = quantisation_of(model, model["w"])
        wanted = CODES * np.kron(scale, np.ones((2, 4), np.float32))
        assert np.array_equal(np.concatenate(list(found.tensor().blocks(28))), wanted.reshape(-1))


QUANTIZED = FOLDER / "quantized.pt"


def told(name):
    """Return the rows of quantized tensors of that file, as torch read them."""
    return [row for row in expected(name)["tensors"] if "quantized" in row]


def product(codes, facts):
    """Return what torch's codes stand for."""
    scale, zero = np.asarray(facts["scale"]), np.asarray(facts["zero_point"])
    if "axis" in facts:
        shape = [-1 if axis == facts["axis"] else 1 for axis in range(codes.ndim)]
        return ((codes.astype(np.float32) - zero.astype(np.float32).reshape(shape)) * scale.reshape(shape)).astype("f4")
    return (codes.astype(np.int32) - np.int32(zero)).astype(np.float32) * np.float32(scale)


@pytest.mark.parametrize("name", ["quantized.pt", "legacy/quantized.pt"])
def test_codes_of_pytorch_are_multiplied_and_kept_with_what_they_mean(tmp_path, name):
    rows = {row["name"]: row for row in told(name)}
    assert len(rows) == 7
    no_uint4 = {"exclude": ["channel_quint4x2"]}
    with pparse.view(FOLDER / name) as model:
        assert not [finding for finding in model.findings if finding.code == "unnamed-storage"]
        wanted = {key: product(model[key].numpy(), row["quantized"]) for key, row in rows.items()}
        for key, values in wanted.items():
            found = dequantized(model, key)
            assert (found.numpy().tobytes(), found.dtype.name) == (values.tobytes(), "float32"), key
            assert np.array_equal(found[1:, ::2], values[1:, ::2]), key
        pparse.convert(model, tmp_path / "codes.safetensors", **no_uint4, dtype="bfloat16")
        pparse.convert(model, tmp_path / "numbers.safetensors", dequantize=True)
    assert {key: array.tobytes() for key, array in loaded(tmp_path / "numbers.safetensors").items()} == {
        key: values.tobytes() for key, values in wanted.items()
    }
    with pparse.view(tmp_path / "codes.safetensors") as model:  # all that is needed went along
        assert model["channel_qint8.scale"].numpy().tolist() == [0.1, 0.25]
        del wanted["channel_quint4x2"]
        for key, values in wanted.items():
            assert dequantized(model, key).numpy().tobytes() == values.tobytes(), key


def test_the_scale_of_pytorch_is_told(run):
    data = json.loads(run("get", QUANTIZED, "tensor_qint8", "--json").out)
    assert data["quantization"] == {"scale": 0.125, "zero_point": -3}
    data = json.loads(run("get", QUANTIZED, "channel_qint8", "--json").out)
    wanted = {"scale": "channel_qint8.scale", "zero_point": "channel_qint8.zero_point", "axis": 0}
    assert data["quantization"] == wanted
    assert run("get", QUANTIZED, "tensor_qint8", "--dtype", "float32").code == 2
    codes = json.loads(run("get", QUANTIZED, "tensor_qint8[0]", "--json").out)["data"]
    data = json.loads(run("get", QUANTIZED, "tensor_qint8[0]", "--json", "--dequantize").out)
    assert data["data"] == [(code + 3) / 8 for code in codes]


def test_parts_tell_the_size_and_layout_of_the_whole(run):
    wholes = {facts["name"]: facts for facts in expected("sparse.pt")["composites"]}
    seen = set()
    with pparse.view(FOLDER / "sparse.pt") as model:
        names = list(model)
    for name in names:
        whole = json.loads(run("get", FOLDER / "sparse.pt", name, "--json").out)["part_of"]
        facts = wholes[whole["name"]]
        assert (whole["layout"], whole["size"]) == (facts["kind"], facts["shape"]), name
        seen.add(whole["name"])
    assert seen == set(wholes)
    data = json.loads(run("get", FOLDER / "nested.pt", "matrices.values", "--json").out)
    assert data["part_of"] == {"name": "matrices", "layout": "nested", "size": [[2, 3], [1, 3], [0, 3]]}
    assert "part_of" not in json.loads(run("get", QUANTIZED, "tensor_qint8.scale", "--json").out)


@pytest.mark.parametrize("target", ["o.safetensors", "o.npz"])
def test_the_size_of_sparse_and_nested_tensors_is_converted(tmp_path, target):
    pparse.convert(FOLDER / "sparse.pt", tmp_path / target)
    with pparse.view(tmp_path / target) as model:
        for facts in expected("sparse.pt")["composites"]:
            assert model[f"{facts['name']}.size"].numpy().tolist() == facts["shape"]
    pparse.convert(FOLDER / "nested.pt", tmp_path / target, force=True)
    with pparse.view(tmp_path / target) as model:
        assert model["matrices.sizes"].numpy().tolist() == [[2, 3], [1, 3], [0, 3]]
        assert model["matrices.offsets"].numpy().tolist() == [0, 6, 9]


FOUR_BITS = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def nibbles(shape):
    """Return bytes of two codes each, and the numbers of these codes, the one in the lower bits first."""
    packed = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    codes = np.stack((packed & 15, packed >> 4), -1)
    return packed, FOUR_BITS[codes].reshape(*shape[:-1], -1)


def test_nvfp4_is_multiplied_by_both_scales(tmp_path):
    packed, numbers = nibbles((3, 16))
    scale, whole = np.float32([[1, 0.5], [2, 448], [0.25, 0]]).astype(E4M3), np.float32(0.3)
    arrays = {"l.weight": packed, "l.weight_scale": scale, "l.weight_scale_2": np.asarray(whole)}
    arrays["l.input_scale"] = np.asarray(np.float32(7))
    source = save(tmp_path / "m.safetensors", arrays)
    pparse.convert(source, tmp_path / "o.safetensors", dequantize=True)
    found = loaded(tmp_path / "o.safetensors")
    wanted = numbers * np.repeat(scale.astype(np.float32) * whole, 16, -1)
    assert set(found) == {"l.weight", "l.input_scale"}
    assert found["l.weight"].tobytes() == wanted.tobytes()
    pparse.convert(source, tmp_path / "p.safetensors", dtype="bfloat16")  # codes are no floats, and scales not cast
    kept = loaded(tmp_path / "p.safetensors")
    assert all(kept[name].tobytes() == arrays[name].tobytes() for name in arrays)
    with pparse.view(source) as model:
        assert np.array_equal(dequantized(model, "l.weight")[1:, 5:20:3], wanted[1:, 5:20:3])


@pytest.mark.parametrize("point", ["_", "."])
def test_mxfp4_is_multiplied_and_turned_as_transformers_does(tmp_path, point, monkeypatch):
    monkeypatch.setattr("pparse.tensors.scales._WINDOW", 200)
    packed, numbers = nibbles((2, 5, 3, 16))
    scale = np.random.default_rng(1).integers(100, 140, (2, 5, 3), dtype=np.uint8)
    scale[0, 0, 0] = 0
    arrays = {f"e.up{point}blocks": packed, f"e.up{point}scales": scale}
    source = save(tmp_path / "m.safetensors", arrays)
    pparse.convert(source, tmp_path / "o.safetensors", dequantize=True)
    wanted = np.ldexp(numbers, scale.astype(np.int32)[..., None] - 127).reshape(2, 5, 96)
    wanted = wanted.swapaxes(1, 2).copy() if point == "_" else wanted
    found = loaded(tmp_path / "o.safetensors")
    assert (list(found), found["e.up"].shape) == (["e.up"], wanted.shape)
    assert found["e.up"].tobytes() == wanted.tobytes()
    with pparse.view(source) as model:
        tensor = dequantized(model, f"e.up{point}blocks")
        assert tensor.numpy().tobytes() == wanted.tobytes()
        for start in (0, 8, 80, 104, 480, 952):
            assert np.array_equal(np.concatenate(list(tensor.blocks(64, start=start))), wanted.reshape(-1)[start:])
        for index in ((1, slice(3, 90, 7), slice(None)), (0, 2), (1, 2, 3), (slice(None), 4, 1), np.s_[:, ::-9, 2:]):
            assert np.array_equal(tensor[index], wanted[index]), index


def test_scales_of_other_shapes_are_not_those_of_four_bits(tmp_path, run):
    packed, _ = nibbles((3, 16))
    scale = np.ones((3, 1), np.float32).astype(E4M3)
    arrays = {"w": packed, "w_scale": scale, "w_scale_2": np.ones(1, np.float32)}
    source = save(tmp_path / "m.safetensors", arrays)
    ran = run("convert", source, "-o", tmp_path / "o.safetensors", "--dequantize")
    assert (ran.code, "w: damaged: its scale w_scale" in ran.err) == (4, True)
    packed, _ = nibbles((3, 2, 16))
    source = save(tmp_path / "m.safetensors", {"w_blocks": packed, "w_scales": np.ones((3, 1), np.uint8)})
    ran = run("convert", source, "-o", tmp_path / "o.safetensors", "--dequantize")
    assert (ran.code, "w_blocks: damaged: its scale w_scales, of 3×1" in ran.err) == (4, True)
