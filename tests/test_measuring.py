"""Identities, statistics and differences of models: compared with numpy, hashlib and each other."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
from collections import OrderedDict
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save

import pparse
import pparse.tensors.scales
from pparse.data.base import BytesData
from pparse.errors import UnsupportedError
from pparse.limits import MemoryBudget
from pparse.measuring.content import BLOCK, content_blocks
from pparse.measuring.difference import _distance, diff
from pparse.measuring.finding import Duplicates, Group, unused
from pparse.measuring.hashing import PIECE, content_hash, hash
from pparse.measuring.statistics import stats
from pparse.tensors.dtype import in_bytes
from pparse.tensors.span import Span
from pparse.tensors.tensor import Tensor
from tests.rows import rows

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "docs" / "samples"
GOOD, CUT = SAMPLES / "tiny-gpt.safetensors", SAMPLES / "tiny-gpt.cut.safetensors"


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def tensor_of(dtype: pparse.DType, raw: bytes, count: int) -> Tensor:
    return Tensor("w", dtype, (count,), (Span(BytesData(raw), 0, len(raw), "here"),))


# -- identities --------------------------------------------------------------------------------------------------------


def by_hand(array: np.ndarray) -> str:
    """Return the identity of an array, as docs/compare.md defines it."""
    content = array.tobytes()
    pieces = b"".join(sha256(content[at : at + PIECE]).digest() for at in range(0, len(content), PIECE))
    shape = ",".join(map(str, array.shape))
    return sha256(f"pparse tensor 1\n{array.dtype.name} {shape}\n".encode() + pieces).hexdigest()


def test_identities_are_what_the_page_says() -> None:
    arrays = {
        "b.é": np.arange(PIECE // 4 + 3, dtype=np.float32),
        "a": np.array([[1, 2], [3, 4]], np.int16),
        "none": np.zeros((0, 3), np.float64),
        "one": np.array(7, np.uint8),
    }
    found = hash(save(arrays), algorithm="sha256")
    contents = {name: by_hand(array) for name, array in arrays.items()}
    assert {one.name: one.content for one in found.tensors} == contents
    lines = [f"{json.dumps(name)} {content}\n" for name, content in contents.items()]
    digests = sorted(sha256(line.encode()).digest() for line in lines)
    assert found.model == sha256(b"pparse model 1\n" + b"".join(digests)).hexdigest()
    lines = [f"{json.dumps(name)} {a.dtype.name} {','.join(map(str, a.shape))}\n" for name, a in arrays.items()]
    digests = sorted(sha256(line.encode()).digest() for line in lines)
    assert found.structure == sha256(b"pparse structure 1\n" + b"".join(digests)).hexdigest()
    without = hash(save(arrays), algorithm="sha256", content=False)
    assert (without.structure, without.model) == (found.structure, None)


def test_a_model_is_the_same_in_every_format(tmp_path) -> None:
    arrays = {"w": np.arange(64, dtype=np.float32).reshape(2, 32), "h": np.arange(3, dtype=np.float16)}
    path = tmp_path / "a.safetensors"
    path.write_bytes(save(arrays))
    for name in ("b.npz", "c.gguf"):
        pparse.convert(path, tmp_path / name)
    (tmp_path / "shards").mkdir()
    pparse.convert(path, tmp_path / "shards" / "model.safetensors", max_shard_size=300)
    made = [path, tmp_path / "b.npz", tmp_path / "c.gguf", tmp_path / "shards"]
    assert len({hash(one).model for one in made}) == 1
    arrays["w"][1, 3] += 1
    assert hash(save(arrays)).model != hash(path).model
    assert hash(save(arrays)).structure == hash(path).structure


def test_identities_of_other_elements() -> None:
    """Big-endian arrays and those in another order of axes are the same; packed ones have no bits left over."""
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    same = [array, array.astype(">i4"), np.asfortranarray(array)]
    assert {hash(npy(one), algorithm="sha256").tensors[0].content for one in same} == {by_hand(array)}
    header = b'{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}}'
    packed = len(header).to_bytes(8, "little") + header + b"\x21\x43\x65"
    pieces = sha256(b"\x21\x43\x65").digest()
    wanted = sha256(b"pparse tensor 1\nfloat4_e2m1fn 3,2\n" + pieces).hexdigest()
    assert hash(packed, algorithm="sha256").tensors[0].content == wanted
    big = np.array([["a" * 300_000 + "b", "c"]] * 2)  # an element larger than a block
    fields = np.zeros((300, 400), [("x", "<f4"), ("y", "<i2", (4,))])
    fields["x"] = np.arange(400)
    for first, second in (
        (big, big.astype(big.dtype.newbyteorder(">"))),
        (big, np.asfortranarray(big)),
        (fields, np.asfortranarray(fields)),
        (np.tile(["abc", "defgh"], 99_999), np.tile(["abc", "defgh"], 99_999).astype(">U5")),
    ):
        assert hash(npy(first)).model == hash(npy(second)).model
        assert diff(npy(first), npy(second)).is_identical
    codes = np.arange(2 * BLOCK - 1, dtype=np.uint8) & 15
    packed_codes = np.append(codes, np.uint8(15)).reshape(-1, 2)
    packed_codes = packed_codes[:, 0] | packed_codes[:, 1] << 4
    in_nibbles = tensor_of(pparse.DType.of("int4"), packed_codes.tobytes(), len(codes))
    wanted = packed_codes.tobytes()[:-1] + bytes([packed_codes[-1] & 15])
    assert b"".join(map(bytes, content_blocks(in_nibbles))) == wanted
    assert content_hash(tensor_of(in_bytes("int4"), codes.tobytes(), len(codes))) == content_hash(in_nibbles)
    assert hash(ROOT / "tests" / "data" / "numpy" / "version3.npy").structure  # its fields have names beyond ASCII
    for bits, name in ((6, "float6_e3m2fn"), (2, "uint2"), (4, "int4")):
        dtype = pparse.DType.of(name)
        codes = np.arange(77, dtype=np.uint8) & ((1 << bits) - 1)
        assert dtype.unpack(dtype.pack(codes), 77).tolist() == codes.tolist()
    texts = hash(SAMPLES / "saved-model", algorithm="sha256").tensors
    told = next(one for one in texts if one.name == "words")
    with pparse.view(SAMPLES / "saved-model") as model:
        words = list(model["words"].numpy())
    content = b"".join(len(word).to_bytes(8, "little") + word for word in words)
    assert (
        told.content == sha256(f"pparse tensor 1\ntext {len(words)}\n".encode() + sha256(content).digest()).hexdigest()
    )


def test_what_is_not_whole_has_no_identity() -> None:
    found, whole = hash(CUT), hash(GOOD)
    assert found.model is None
    assert found.structure == whole.structure
    lost = [one for one in found.tensors if one.content is None]
    assert lost
    assert all(one.reason and one.status.value != "complete" for one in lost)
    both = {one.name: one.content for one in whole.tensors}
    assert all(one.content == both[one.name] for one in found.tensors if one.content is not None)


def test_the_structure_of_a_cut_checkpoint_is_known_if_its_pickle_is_there() -> None:
    whole = (SAMPLES / "tiny-gpt.pt").read_bytes()
    found = hash((SAMPLES / "tiny-gpt.cut.pt").read_bytes())
    assert (found.structure, found.model) == (hash(whole).structure, None)
    assert hash(whole[:600]).structure is None


def test_hash_command(run, tmp_path) -> None:
    one, two, listed = tmp_path / "one two.safetensors", tmp_path / "b.safetensors", tmp_path / "list"
    one.write_bytes(GOOD.read_bytes())
    two.write_bytes(GOOD.read_bytes())
    found = run("hash", "-t", one)
    assert found.code == 0
    assert len(found.lines) == 23
    listed.write_text(found.out)
    assert run("hash", "--check", listed).lines == [f"{one}: 23 of 23 lines agree"]
    assert run("hash", "--check", listed, two, SAMPLES / "sharded").code == 0
    damaged = bytearray(two.read_bytes())
    damaged[-1] ^= 1
    two.write_bytes(damaged)
    found = run("hash", "--check", listed, two)
    assert found.code == 1
    assert found.lines[-1] == f"{two}: 21 of 23 lines agree"
    assert run("hash", "--check", listed, CUT).code == 4
    found = run("hash", "--check", listed, SAMPLES / "tiny-gpt.pt", "--json")
    assert found.code == 1
    assert found.json["agree"] == 0
    listed.write_text("no line of ours\n")
    assert "line 1" in run("hash", "--check", listed).err
    found = run("hash", GOOD, "nothing*")
    assert (found.code, found.out) == (2, "")
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(GOOD.read_bytes())
    (folder / "other.pt").write_bytes((SAMPLES / "tiny-gpt.pt").read_bytes())
    assert "also here: other.pt" in run("hash", folder).err
    found = run("hash", CUT, GOOD, "-q")
    assert (found.code, found.out) == (4, "")
    names = ("w ", " w", "a\nb", "a\\x0ab", "\\x5c", "t\tb", "", "\u2028x", "\u3000")
    odd = tmp_path / "a\\x41.safetensors"
    odd.write_bytes(save({name: np.arange(3) + number for number, name in enumerate(names)}))
    listed.write_text(run("hash", "-t", odd).out, encoding="utf-8")
    assert run("hash", "--check", listed).lines == [f"{odd}: 11 of 11 lines agree"]
    listed.write_text(run("hash", "-t", GOOD, "h.0.*").out)
    assert run("hash", "--check", listed, GOOD, "h.0.*").code == 0
    assert run("hash", "--check", listed, GOOD).code == 1
    listed.write_text(run("hash", "-t", GOOD).out)
    assert run("hash", "--check", listed, GOOD, "h.0.*").lines == [f"{GOOD}: 6 of 6 lines agree"]
    assert run("hash", "--check", listed, GOOD, "--shape", "*,64").lines == [f"{GOOD}: 3 of 3 lines agree"]
    listed.write_text(listed.read_text().replace("h.0.ln_1", "h.0.gone"))
    found = run("hash", "--check", listed, GOOD, "h.0.*")
    assert found.lines[0] == f"{GOOD}::h.0.ln_1.weight: not in the list"
    assert found.lines[1:] == [f"{GOOD}::h.0.gone.weight: not in the file", f"{GOOD}: 5 of 6 lines agree"]
    line = listed.read_text().splitlines()[0]
    listed.write_text("".join(f"{line}{number}\n" for number in range(3000)))
    assert "--budget" in run("hash", "--check", listed, GOOD, "--budget", "1MiB").err
    listed.write_text(run("hash", GOOD, odd).out)
    odd.unlink()
    assert "no name matches" not in run("hash", "--check", listed).err
    listed.write_text(run("hash", GOOD).out + run("hash", "--algorithm", "sha256", "-s", GOOD).out)
    assert "another algorithm" in run("hash", "--check", listed).err
    assert [line.split()[1] for line in run("hash", "-s", CUT).lines] == ["structure"]


# -- statistics --------------------------------------------------------------------------------------------------------


def arrays_to_measure() -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(4)
    found = [("empty", np.zeros(0, "f4")), ("scalar", np.array(3.5)), ("bool", rng.integers(0, 2, 999).astype(bool))]
    for kind in ("f2", "f4", "f8"):
        array = (rng.standard_normal(70_000) * 10.0 ** rng.integers(-4, 4, 70_000)).astype(kind)
        odd = array.copy()
        for step, value in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(kind).smallest_subnormal * 3)):
            odd[step :: 7 + step] = value
        found += [(kind, array), (f"{kind} odd", odd), (f"{kind} NaN", np.full(5, np.nan, kind))]
        found += [(f"{kind} far from zero", (rng.standard_normal(9_000) * 1e-2 + 1e4).astype(kind))]
    for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
        info = np.iinfo(kind)
        array = rng.integers(info.min, info.max, 40_000, kind, endpoint=True) >> rng.integers(
            0, info.bits, 40_000, kind
        )
        array[:3] = info.min, info.max, 0
        found.append((kind, array))
    found += [("c8", (rng.standard_normal(99) + 2j).astype("c8")), ("c16", rng.standard_normal(99) + 1j)]
    return [*found, (">f4", rng.standard_normal(99).astype(">f4")), ("order", np.asfortranarray(rng.random((30, 40))))]


@rows("name, array", arrays_to_measure())
def test_statistics_are_those_of_numpy(name: str, array: np.ndarray) -> None:
    found = stats(npy(array)).tensors[0].statistics
    assert found is not None
    flat = array.reshape(-1)
    flat = flat.view(f"f{flat.itemsize // 2}") if flat.dtype.kind == "c" else flat
    is_float = flat.dtype.kind == "f"
    nan, infinite = (int(test(flat).sum()) if is_float else 0 for test in (np.isnan, np.isinf))
    assert (found.count, found.nan, found.infinite) == (len(flat), nan, infinite)
    assert found.zeros == np.count_nonzero(flat == 0)
    if flat.dtype.itemsize < 4:
        assert found.distinct == len(np.unique(flat.astype(np.float64)))
    finite = flat[np.isfinite(flat)] if is_float else flat
    assert sum(count for _, _, count in found.histogram) + found.zeros == len(finite)
    if not len(finite):
        assert (found.min, found.mean, found.std) == (None, None, None)
        return
    assert (found.min, found.max) == (finite.min(), finite.max())
    exact = finite.astype(np.longdouble)
    assert found.norm == pytest.approx(float(np.sqrt((exact * exact).sum())), rel=1e-12)
    assert found.mean == pytest.approx(float(exact.mean()), rel=1e-12, abs=1e-12 * float(np.abs(exact).max()))
    assert found.std == pytest.approx(float(exact.std()), rel=1e-9)
    for low, high, count in found.histogram:
        inside = (exact >= low) & (exact < high) if low >= 0 else (exact > low) & (exact <= high)
        inside = (exact > low) & (exact < high) & (exact != 0) if low < 0 < high else inside
        assert np.count_nonzero(inside) == count, (low, high)


def test_statistics_of_parts_add_up() -> None:
    rng = np.random.default_rng(5)
    parts = [rng.standard_normal(size) * 3 + number for number, size in enumerate((10, 70_001, 0, 333))]
    parts[1][7] = np.nan
    found = stats(save({f"t{number}": part for number, part in enumerate(parts)}))
    one = stats(npy(np.concatenate(parts))).tensors[0].statistics
    assert one is not None
    assert one.std == pytest.approx(found.whole.std, rel=1e-12)
    assert one.mean == pytest.approx(found.whole.mean, rel=1e-12)
    assert (one.count, one.nan, one.min, one.histogram) == (
        *(found.whole.count, found.whole.nan, found.whole.min, found.whole.histogram),
    )


def test_statistics_of_small_and_quantised_types() -> None:
    array = np.arange(-20, 20).astype(ml_dtypes.bfloat16)
    found = stats(save({"a": array})).tensors[0].statistics
    assert found is not None
    assert (found.min, found.max, found.zeros, found.distinct) == (-20.0, 19.0, 1, 40)
    path = ROOT / "tests" / "data" / "gguf" / "types.gguf"
    with pparse.view(path) as model:
        for one in stats(model).tensors:
            if one.statistics is None:
                continue
            values = model[one.name].numpy().astype(np.float64)
            finite = values[np.isfinite(values)]
            assert one.statistics.nan == np.isnan(values).sum(), one.name
            assert one.statistics.norm == pytest.approx(np.sqrt((finite**2).sum()), rel=1e-6), one.name
    packed = 0
    with pparse.view(ROOT / "tests" / "data" / "onnx" / "types-packed.onnx") as model:
        for one in stats(model).tensors:
            tensor = model[one.name]
            if tensor.dtype is not None and tensor.dtype.packed and tensor.size:
                values, told = tensor.numpy().astype(np.float64), one.statistics
                assert (told.min, told.max, told.zeros) == (values.min(), values.max(), (values == 0).sum()), one.name
                assert told.mean == pytest.approx(values.mean()), one.name
                packed += 1
    assert packed


def test_codes_count_as_what_they_stand_for() -> None:
    codes = np.arange(-128, 128).astype(ml_dtypes.float8_e4m3fn).reshape(2, 128)
    content = save({"w.weight": codes, "w.weight_scale": np.array([[2.0]], "f4")})
    with pparse.view(content) as model:
        values = pparse.tensors.scales.dequantized(model, "w.weight").numpy()
        (found,) = stats(model).tensors
        assert found.statistics is not None
        assert found.statistics.max == values.max() == 2 * codes.astype("f4").max()
        assert {one.name for one in stats(model, dequantize=False).tensors} == {"w.weight", "w.weight_scale"}


def test_statistics_as_a_table(monkeypatch) -> None:
    class Frames:
        DataFrame = staticmethod(list)

    found = stats(GOOD)
    monkeypatch.setitem(sys.modules, "pandas", Frames)
    assert [row["name"] for row in found.to_frame()][:2] == [one.name for one in found.tensors[:2]]
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(pparse.UnsupportedError, match="pandas"):
        found.to_frame()
    assert "ln_1" in found._repr_html_()
    assert "identical" in diff(GOOD, GOOD)._repr_html_()


def test_samples_are_estimates() -> None:
    array = np.random.default_rng(6).standard_normal(1 << 18).astype(np.float32)
    with pparse.view(save({"w": array, "small": array[:10].copy()})) as model:
        found = {one.name: one for one in stats(model, sample="64KiB").tensors}
        assert model.extraction.session.stats.bytes < 200_000
    assert found["w"].is_estimate
    assert not found["small"].is_estimate
    told = found["w"].statistics
    assert told is not None
    assert told.count == 1 << 14
    assert told.std == pytest.approx(1, abs=0.05)
    for most in (1, 40, 100, 5_000):
        (one,) = stats(npy(array[:9_999]), sample=most).tensors
        assert one.statistics is not None
        assert one.statistics.count * 4 <= max(32, most)


def test_stats_command(run, tmp_path) -> None:
    path = tmp_path / "a.safetensors"
    arrays = {"x.1": np.array([1, 2, np.nan, 0], "f4"), "x.2": np.zeros(3, "f4"), "huge": np.array([1e200, -1e200])}
    path.write_bytes(save(arrays))
    found = run("stats", path, "x.*", "--histogram")
    assert found.code == 0
    assert "1 NaN" in found.out
    assert "all zero" in found.out
    assert found.lines[-1] == "not finite: 1 NaN, 0 infinite, in 1 tensor"
    assert "2 to 4" in found.out
    told = run("stats", "--json", path).json
    assert {one["name"]: one["statistics"]["std"] for one in told["tensors"]}["huge"] is None  # it is infinite
    assert told["whole"]["count"] == 9
    assert "std inf, norm inf" in run("stats", path).out
    found = run("stats", CUT)
    assert found.code == 4
    assert "bytes are there; " in found.out
    assert run("stats", path, "nothing").code == 2
    assert run("stats", ROOT / "CHANGELOG.md").code in (2, 3)


def test_a_picture_has_a_bar_for_each_range_and_escapes_names(run, tmp_path) -> None:
    rng = np.random.default_rng(8)
    odd = '<script>&"\x07\u202e' + "x" * 300
    arrays = {
        odd: np.append(rng.standard_normal(500), [np.nan, 1e30, 0, 1e-30]).astype("f4"),
        "none": np.zeros(0, "f4"),
    }
    arrays |= {f"t{number:03}": rng.standard_normal(50).astype("f2") for number in range(120)}
    path, picture = tmp_path / "a&b.safetensors", tmp_path / "a.svg"
    path.write_bytes(save(arrays))
    found = run("stats", path, GOOD, CUT, "--svg", picture)
    assert found.code == 4
    text = picture.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert "script" not in {element.tag.rpartition("}")[2] for element in root.iter()}
    assert "\u202e" not in text
    rows = [element for element in root.iter() if element.tag.endswith("}g")]
    assert len(rows) == 101
    assert "and 54 other tensors" in text
    titles = ["".join(row[0].itertext()) for row in rows]
    at = next(number for number, title in enumerate(titles) if title.startswith("<script>&"))
    assert "504 values" in titles[at]
    bars = {path.get("class"): path.get("d").count("M") for path in rows[at] if path.tag.endswith("path")}
    assert bars["beyond"] == bars["zero"] == 1
    assert bars["plus"] >= 5
    assert len(text) < 400_000
    for one in (
        stats(save({})),
        stats(npy(np.arange(5))),
        stats(npy(np.zeros(5))),
        stats(npy(np.array([2.0**1000, 1]))),
    ):
        assert ElementTree.fromstring(one.to_svg("<x>")).tag.endswith("svg")
    assert run("stats", GOOD, "--svg", tmp_path / "new" / "folder.svg").code == 0
    assert run("stats", GOOD, "--svg", path / "no folder.svg").code == 2


# -- differences -------------------------------------------------------------------------------------------------------


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {f"h.{n}.{name}": rng.standard_normal((8, 6)).astype("f4") for n in range(12) for name in ("q", "k", "up")}


def verdicts(found: pparse.ModelDifference) -> dict[str, str]:
    return {one.name: one.verdict for one in found.tensors}


def test_everything_that_differs_is_told() -> None:
    old, new = arrays(), arrays()
    new["h.1.q"][2, 3] += 0.5
    new["h.2.q"] = new["h.2.q"].astype("f2")
    new["h.3.q"] = new["h.3.q"].reshape(6, 8)
    new["h.4.other"] = new.pop("h.4.q")
    new["h.5.q"][0, 0] = np.nan
    new["h.6.q"] = (new["h.6.q"] * 2).astype("f8")
    new["came"] = np.ones(3, "f4")
    del new["h.7.q"]
    new["h.8.q"] = new["h.8.q"].astype("f8")
    found = diff(save(old, {"who": "a"}), save(new, {"who": "b", "x": "y"}))
    assert verdicts(found) == {
        "h.1.q": "values",
        "h.2.q": "equal after a cast",
        "h.3.q": "shape",
        "h.4.q": "renamed",
        "h.5.q": "values",
        "h.6.q": "type",
        "h.7.q": "removed",
        "came": "added",
        "h.8.q": "equal after a cast",
    }
    assert found.equal == len(old) - 8
    assert [(one.name, one.old, one.new) for one in found.metadata] == [("who", "a", "b"), ("x", None, "y")]
    told = {one.name: one.distance for one in found.tensors}
    a, b = old["h.1.q"].astype("f8").ravel(), new["h.1.q"].astype("f8").ravel()
    first = told["h.1.q"]
    assert first is not None
    assert (first.count, first.changed, first.not_finite) == (48, 1, 0)
    assert first.largest == pytest.approx(0.5, rel=1e-6)
    assert first.mean == pytest.approx(float(np.abs(a - b).mean()))
    assert first.cosine == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)))
    assert told["h.5.q"] is not None
    assert (told["h.5.q"].changed, told["h.5.q"].not_finite, told["h.5.q"].largest) == (1, 1, 0.0)
    assert told["h.8.q"] is not None
    assert told["h.8.q"].changed == 0
    assert json.loads(json.dumps(found.to_dict()))["identical"] is False


@rows(
    "old, new, verdict, changed, largest",
    [
        (np.array([0.0, np.nan]), np.array([-0.0, -np.nan]), None, 0, 0),
        (np.array([1.0, np.inf]), np.array([1.0, -np.inf]), "values", 1, 0),
        (np.array([np.inf, 2.0]), np.array([np.inf, 3.0]), "values", 1, 1),
        (np.array([1 << 60, 5]), np.array([(1 << 60) + 1, 5]), "values", 1, 1),
        (np.array([-(1 << 63)]), np.array([(1 << 63) - 1]), "values", 1, 2.0**64),
        (np.array([(1 << 64) - 1], "u8"), np.array([-1], "i8"), "type", 1, 2.0**64),
        (np.array([3, 4], "i8"), np.array([3, 4], "u1"), "equal after a cast", 0, 0),
        (np.array([1 + 2j]), np.array([1 - 2j]), "values", 1, 4),
        (np.array([True, False]), np.array([True, True]), "values", 1, 1),
        (np.array([1.0], "f4"), np.array([1.0 + 1e-8], "f8"), "equal after a cast", 1, 1e-8),
        (np.array([1e308]), np.array([-1e308]), "values", 1, np.inf),
        *(
            [  # where there is a type that has 64 bits for a number
                (np.array([(1 << 53) + 1]), np.array([2.0**53]), "type", 1, 1),
                (np.array([1, 2], np.longdouble) + np.longdouble(2) ** -60, np.array([1.0, 2.0]), "type", 2, 2**-60),
            ]
            if np.finfo(np.longdouble).nmant >= 63
            else []
        ),
    ],
)
def test_rules_of_values(old: np.ndarray, new: np.ndarray, verdict: str | None, changed: int, largest: float) -> None:
    found = diff(npy(old), npy(new)).tensors
    assert [one.verdict for one in found] == ([] if verdict is None else [verdict])
    for one in found:
        assert one.distance is not None
        assert one.distance.changed == changed
        assert one.distance.largest == pytest.approx(largest, rel=1e-6)
        json.dumps(one.to_dict(), allow_nan=False)


def test_both_parts_of_short_complex_numbers_count() -> None:
    for name, half in (("complex32", np.float16), ("bcomplex32", ml_dtypes.bfloat16)):
        old, new = (np.array(values).astype(half).tobytes() for values in ([1, 2, 3, 4], [1, 2, 3, -4]))
        found = _distance(*(tensor_of(pparse.DType.of(name), raw, 2) for raw in (old, new)), 0, 0)
        assert (found.changed, found.largest) == (1, 8)


def test_names_behind_a_prefix_are_paired() -> None:
    old, new = arrays(), {f"model.{name}": array for name, array in arrays().items()}
    new["model.h.1.q"][0, 0] = 9
    new["optimizer.step"] = np.ones(1, "f4")
    for first, second in ((old, new), (new, old)):
        found = diff(save(first), save(second))
        told = [one.verdict for one in found.tensors]
        assert (told.count("renamed"), told.count("values"), len(told)) == (35, 1, 37)
    for state in ("adam.exp_avg", "adam.exp_avg_sq"):  # more of them than of the model, and before it
        new |= {f"{state}.{name}": array * 0 for name, array in old.items()}
    assert next(one.new_name for one in diff(save(old), save(new)).tensors if one.verdict == "values") == "model.h.1.q"


def test_pairs_are_found_in_linear_time() -> None:
    """Of very many tensors without a partner, each is hashed once, and compared with none."""
    count = 5_000
    old, new = ({f"{kind}.{n}": np.array([n], "i4") for n in range(count)} for kind in "ab")
    new["b.0"] = np.array([-1], "i4")
    steps = 0

    def count_calls(frame: object, event: str, arg: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count_calls)
    try:
        found = verdicts(diff(save(old), save(new)))
    finally:
        sys.setprofile(None)
    assert (len(found), found["a.0"], found["b.0"], found["a.9"]) == (count + 1, "removed", "added", "renamed")
    assert steps < 500 * count


def test_long_lists_of_metadata_are_compared() -> None:
    def content(kind: int, values: list[bytes]) -> bytes:
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 4) + b"list"
        return head + struct.pack("<IIQ", 9, kind, len(values)) + b"".join(values)

    texts = [struct.pack("<Q", 4) + b"%04d" % number for number in range(500)]
    numbers = [struct.pack("<f", number) for number in range(500)]
    for kind, values, shown in ((8, texts, "'0003'"), (6, numbers, "3.0")):
        assert diff(content(kind, values), content(kind, values)).is_identical
        changed = [*values[:400], values[3], *values[401:]]
        (found,) = diff(content(kind, values), content(kind, changed)).metadata
        assert found.new == f"500 elements, number 400: {shown}"


def test_tolerance() -> None:
    old, new = arrays(), arrays()
    new["h.1.q"] += np.float32(1e-4)
    new["h.2.q"][0, 0] = np.nan
    assert verdicts(diff(save(old), save(new), tolerance=1e-3)) == {"h.2.q": "values"}
    for wrong in (-1, np.nan, np.inf):
        with pytest.raises(pparse.OptionError, match="tolerance must be"):
            diff(save(old), save(new), tolerance=wrong)
    assert verdicts(diff(save(old), save(new), tolerance=1e-5)).keys() == {"h.1.q", "h.2.q"}
    assert not diff(save(old), save({**old, "h.3.q": old["h.3.q"] * np.float32(1.001)}), relative=0.01).tensors


def test_a_cut_file_is_compared_as_far_as_it_goes(tmp_path) -> None:
    raw = bytearray(GOOD.read_bytes())
    found = diff(bytes(raw), CUT.read_bytes())
    assert {one.verdict for one in found.tensors} == {"not whole"}
    assert any("what is there of both agrees" in one.reason for one in found.tensors)
    raw[len(CUT.read_bytes()) - 5] ^= 1
    found = diff(bytes(raw), CUT.read_bytes())
    assert any("what is there of both differs" in one.reason for one in found.tensors)
    for path in (SAMPLES / "sharded").iterdir():
        if "00002" not in path.name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    found = diff(tmp_path, GOOD)
    assert found.are_whole == (False, True)
    assert {one.verdict for one in found.tensors} == {"not whole"}
    assert all("the first file it is missing" in one.reason for one in found.tensors)
    found = diff(CUT, CUT)
    assert all("the first" in one.reason and "the second" in one.reason for one in found.tensors)


def test_what_must_be_equal_is_not_read(tmp_path) -> None:
    path, holes = tmp_path / "a.safetensors", tmp_path / "h.safetensors"
    path.write_bytes(save({"w": np.ones(1 << 20, "f4")}))
    header = b'{"w":{"dtype":"F32","shape":[1048576],"data_offsets":[0,4194304]}}'.ljust(4088)
    for name in (holes, tmp_path / "i.safetensors"):
        with name.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(4096 + (4 << 20))
    (tmp_path / "b.safetensors").hardlink_to(path)
    pairs = [(path, tmp_path / "b.safetensors")]
    with pparse.view(holes) as model:
        if model["w"].unwritten_nbytes:  # the file system has holes
            pairs.append((holes, tmp_path / "i.safetensors"))
    for one, two in pairs:
        with pparse.view(one) as old, pparse.view(two) as new:
            found = diff(old, new)
            assert (found.tensors, found.metadata, found.equal) == ([], [], 1)
            assert found.is_identical == (one is path)  # what was never written is not whole
            assert old.extraction.session.stats.bytes + new.extraction.session.stats.bytes < 100_000
    if len(pairs) < 2:
        return
    values = np.zeros(1 << 20, "f4")
    values[500_000:500_100] = 2
    whole = tmp_path / "whole.safetensors"
    whole.write_bytes(save({"w": values + np.float32(0)}))
    for name in (holes, tmp_path / "i.safetensors"):
        with name.open("r+b") as file:
            file.seek(4096 + 4 * 500_000)
            file.write(values[500_000:500_100].tobytes())
    with holes.open("r+b") as file:
        file.seek(4096 + 4 * 500_050)
        file.write(np.float32(3).tobytes())
    with pparse.view(holes) as old, pparse.view(tmp_path / "i.safetensors") as new:
        found = diff(old, new).tensors[0].to_dict()
        assert old.extraction.session.stats.bytes < 100_000
    read = diff(holes, whole).tensors[0].to_dict()
    assert (found["distance"], found["verdict"]) == (read["distance"], "values")
    assert found["distance"]["changed"] == 1


def test_texts_and_types_that_are_no_numbers_are_compared() -> None:
    times = np.array(["2020-01-01", "2021-01-01"], "M8[D]")
    assert diff(npy(times), npy(times)).is_identical
    assert verdicts(diff(npy(times), npy(times[::-1].copy()))).popitem()[1] == "values"
    (found,) = stats(npy(np.ones(3, np.longdouble))).tensors
    assert found.statistics is not None or np.longdouble().itemsize > 8
    assert diff(SAMPLES / "saved-model", SAMPLES / "saved-model").is_identical


def test_diff_command(run, tmp_path) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in "abc"]
    old, new = arrays(), arrays()
    new["h.11.q"][0, 0] += 1
    for path, made in zip(paths, (old, new, {name: array + 1 for name, array in old.items()}), strict=True):
        path.write_bytes(save(made))
    found = run("diff", paths[0], paths[0])
    assert (found.code, found.out.split(":")[0]) == (0, "identical")
    found = run("diff", paths[0], paths[1])
    assert found.code == 1
    assert found.lines[1].split()[:2] == ["h.11.q", "values"]
    assert found.lines[-1] == "different: 1 with other values; 35 of 36 tensors equal"
    found = run("diff", paths[0], paths[2])
    assert [line.split()[0] for line in found.lines[:13]] == ["LAYER", *(f"h.{number}" for number in range(12))]
    assert len(run("diff", "--long", paths[0], paths[2]).lines) == 38
    assert run("diff", "--tolerance", "2", paths[0], paths[2]).code == 0
    assert run("diff", "--tolerance", "2", paths[0], paths[2]).out.startswith("equal within the tolerance: 36 tensors")
    assert run("diff", GOOD, CUT).code == 4
    said = tmp_path / "said.safetensors"
    said.write_bytes(save(old, {"who": "me"}))
    found = [run("diff", paths[0], said, *more) for more in ([], ["--no-metadata"], ["h.1.*"])]
    assert [one.code for one in found] == [1, 0, 0]
    assert "'me'" in found[0].out
    assert run("diff", "-q", paths[0], paths[1]).out == ""
    assert run("diff", "--tolerance", "nan", paths[0], paths[2]).code == 2
    for path, made in zip(paths, (old, {name: array + 1 for name, array in old.items()}), strict=False):
        path.write_bytes(save({name.replace("h.", f"h.{'1' * 5_000}"): array for name, array in made.items()}))
    assert run("diff", paths[0], paths[1]).code == 1
    for path, made in zip(paths, (old, new), strict=False):
        path.write_bytes(save(made))
    assert run("diff", paths[0], paths[1], "h.1.*").code == 0
    assert run("diff", paths[0], paths[1], "nothing").code == 2
    lines = [json.loads(line) for line in run("diff", "--jsonl", paths[0], paths[1]).lines]
    assert (lines[0]["name"], lines[1]["identical"]) == ("h.11.q", False)


# -- finding -----------------------------------------------------------------------------------------------------------


def test_find_command(run, tmp_path) -> None:
    path, copy, other = (tmp_path / f"{name}.safetensors" for name in "abc")
    made = {
        "nan": np.array([1, np.nan], "f4"),
        "zero": np.zeros((2, 3), "f4"),
        "big": np.ones((64, 64), "f2"),
        "half": np.array([0, 1], "f2"),
        "none": np.zeros(0, "f4"),
    }
    path.write_bytes(save(made))
    copy.write_bytes(save({"x": made["big"], "y": made["big"], "z": made["zero"].reshape(3, 2)}))
    other.write_bytes(save({"only": made["big"]}))

    def names(*words: object) -> list[str]:
        found = run("find", path, *words, "-q")
        assert found.code == (0 if found.lines else 1)
        return sorted(found.lines)

    assert names() == sorted(made)
    assert names("--nan") == ["nan"]
    assert names("--zero") == ["zero"]
    assert names("--dtype", "half") == names("--dtype", "F16") == ["big", "half"]
    assert names("--shape", "64,*") == ["big"]
    assert names("--min-size", "1KiB") == ["big"]
    assert names("--max-size", "7", "n*") == ["none"]
    assert names("--status", "damaged") == []
    assert names("--same-as", f"{other}::only") == ["big"]
    assert run("find", path, "--same-as", "nonsense").code == 2
    assert run("find", path, "--dtype", "flt").code == 2
    assert run("find", path, "nothing*").code == 2
    assert run("find", CUT, "--status", "missing", "--json").json["count"] == 9
    told = run("find", "--unused", path, "--json").json
    (file,) = told["unused"]
    assert told["unused_bytes"] == file["unused"] == sum(stretch["length"] for stretch in file["stretches"])
    assert file["size"] - file["unused"] == sum(array.nbytes for array in made.values())
    found = run("find", "--duplicates", path, copy, other, "--json").json
    (group,) = found["groups"]
    assert group["wasted"] == found["wasted"] == 3 * 64 * 64 * 2
    assert [(Path(one["file"]).stem, one["name"]) for one in group["tensors"]] == [
        *(("a", "big"), ("b", "x"), ("b", "y"), ("c", "only")),
    ]
    assert run("find", "--duplicates", path).code == 1
    assert [run("find", CUT, how).code for how in ("--nan", "--duplicates", "--unused")] == [4, 4, 4]
    assert run("find", "--duplicates", path, "-").code == 2
    packed = tmp_path / "packed.npz"  # each member begins at its own offset 0
    np.savez_compressed(packed, a=np.arange(9), b=np.arange(9) + 1, c=np.arange(9))
    assert run("find", "--duplicates", packed, "--json").json["groups"] == [
        {
            "dtype": "int64",
            "shape": "9",
            "wasted": 72,
            "tensors": [{"file": str(packed), "name": name} for name in "ac"],
        }
    ]
    assert run("find", "--duplicates", path, tmp_path / "no file").code == 2


def test_tensors_that_share_their_bytes_waste_none() -> None:
    header = (
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}'
    )
    content = len(header).to_bytes(8, "little") + header + bytes(16) + b"left over"
    with pparse.view(content) as model:
        ((_, size, stretches),) = unused(model)
    assert size == len(content)
    assert stretches == [(0, 8 + len(header)), (len(content) - 9, len(content))]
    found = Duplicates(MemoryBudget())
    with pparse.view(content[: -len(b"left over")]) as model:
        tensor = model["a"]
        for name in ("one", "two"):
            tensor.name = name
            found.add("f", tensor)
    square = tensor_of(pparse.DType.of("float32"), np.arange(4, dtype="f4").tobytes(), 4)
    square.shape = (2, 2)
    turned = Tensor("t", square.dtype, (2, 2), square.spans, strides=(4, 8))
    by_name = {"w": square, "t": turned}
    both = Duplicates(MemoryBudget())
    for tensor in by_name.values():
        both.add("f", tensor)
    assert not list(both.groups(lambda _: nullcontext(SimpleNamespace(find=by_name.get))))
    assert [len(kind) for kind in found._kinds.values()] == [2]
    assert Group("float32", "2", next(iter(found._kinds.values()))).wasted == 0


def test_damaged_and_unknown_types_have_a_verdict() -> None:
    header = b'{"a":{"dtype":"Q9","shape":[2],"data_offsets":[0,2]}}'
    odd = len(header).to_bytes(8, "little") + header + b"ab"
    assert [one.content for one in hash(odd).tensors] == [None]
    assert [one.statistics for one in stats(odd).tensors] == [None]
    with pytest.raises(pparse.FormatError):
        hash(BytesData(b"no model"))


def test_what_lost_its_tensors_is_not_said_to_hold_none(tmp_path, run) -> None:
    whole, cut, none = (tmp_path / name for name in ("whole.pkl", "cut.pkl", "none.pkl"))
    whole.write_bytes(pickle.dumps({"long": "text", "array": np.arange(9)}))
    cut.write_bytes(whole.read_bytes()[:30])
    none.write_bytes(pickle.dumps({"long": "text"}))
    for path, code, words in ((cut, 4, "it is truncated"), (none, 2, "holds no tensors")):
        for command in (
            ("stats", path),
            ("hash", path),
            ("diff", path, whole),
            ("convert", path, "-o", tmp_path / "x.npz"),
        ):
            ran = run(*command)
            assert (ran.code, words in ran.err, path.name in ran.err) == (code, True, True), command
    with pytest.raises(UnsupportedError, match="names no tensor"):
        pparse.view(cut)


def test_what_is_measured_can_be_seen_in_a_terminal() -> None:
    told, found = stats(GOOD), hash(GOOD)
    assert repr(told) == f"<ModelStatistics tensors=[{len(told.tensors)}]>"
    assert repr(told.whole).startswith(f"<Statistics count={told.whole.count}, nan=0, infinite=0, zeros=")
    assert repr(found).endswith(f", structure='{found.structure}', model='{found.model}'>")
    assert repr(diff(GOOD, GOOD)) == f"<ModelDifference tensors=[0], equal={len(told.tensors)}, metadata=[0]>"
    (use,) = pparse.scan(pickle.dumps(OrderedDict))
    assert repr(use) == "<CodeUse collections.OrderedDict: weights-only>"
