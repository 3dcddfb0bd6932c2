"""Stretches of tensors that do not look like the rest: found where they are, and not where weights are as usual."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save

import pparse
from pparse.measuring import statistics
from pparse.measuring.statistics import stats
from pparse.workers.pool import ProcessPool
from tests.rows import rows

TYPES = (np.dtype(ml_dtypes.bfloat16), np.dtype("f2"), np.dtype("f4"), np.dtype("f8"))
TEXT = b"The first version. It reads what others write, as far as it is there, and says what it could not read.\n" * 50


def weights(shape: tuple[int, ...], dtype: np.dtype, seed: int = 1) -> np.ndarray:
    return (np.random.default_rng(seed).standard_t(8, shape) * 0.02).astype(dtype)


def spoilt(array: np.ndarray, at: int, content: bytes) -> np.ndarray:
    array = array.copy()
    array.reshape(-1).view(np.uint8)[at : at + len(content)] = np.frombuffer(content, np.uint8)
    return array


def suspect_in(array: np.ndarray) -> list[tuple[str, int, int]]:
    """Return what is suspect, with the bytes of the array."""
    size = array.dtype.itemsize
    return [(one.looks, one.start * size, one.stop * size) for one in stats(save({"w": array})).tensors[0].suspect]


@rows("dtype, looks", [(dtype, looks) for dtype in TYPES for looks in ("noise", "text", "zeros")])
def test_stretches_are_found(dtype: np.dtype, looks: str) -> None:
    """Of 64 bytes and more, at any byte; not one of many tries is missed, and nothing else is told."""
    rng = np.random.default_rng(7)
    least = 16 * dtype.itemsize if dtype.itemsize > 4 else 64
    for size, length in ((1 << 14, least), (1 << 15, 256), (1 << 17, least), (1 << 17, 4096)):
        array = weights((50, size // 50), dtype)
        for _ in range(4):
            at = int(rng.integers(0, array.nbytes - length))
            row = array.shape[1] * dtype.itemsize
            if looks == "zeros" and 0 in (at % row, (at + length) % row):
                continue
            shift = int(rng.integers(0, len(TEXT) - length))
            content = {"noise": rng.bytes(length), "text": TEXT[shift : shift + length], "zeros": bytes(length)}[looks]
            ((what, start, stop),) = suspect_in(spoilt(array, at, content))
            assert (what == looks) or length == least
            assert at - 64 <= start < at + length
            assert at < stop <= at + length + 64


def genuine() -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    plain = rng.standard_normal((512, 320))
    found = {"normal": plain, "uniform": rng.uniform(-1, 1, (512, 320)), "heavy": rng.standard_t(1.5, (512, 320))}
    found["pruned"] = plain * (rng.random(plain.shape) < 0.1)
    found["rows of zeros"] = plain * (rng.random((512, 1)) < 0.98)
    found["blocks of zeros"] = plain * np.kron(rng.random((16, 10)) < 0.95, np.ones((32, 32)))
    found["outliers"] = plain * np.where(rng.random(320) < 0.01, 1e4, 1)
    found["rows at scales"] = plain * 10.0 ** rng.integers(-4, 3, (512, 1))
    found["squares"] = np.exp(rng.normal(-20, 10, (512, 320)))
    found["codes"] = np.round(plain * 3)
    found["positions"] = np.arange(512 * 320).reshape(512, 320)
    found["mask"] = np.triu(np.full((300, 300), -1e9), 1)
    angles = np.arange(512)[:, None] * 10_000.0 ** (-np.arange(160) / 160)
    found["angles"] = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    found["padded"] = np.pad(plain, ((0, 16), (0, 20)))
    found["decayed"] = plain * np.where(rng.random((512, 1)) < 0.05, 1e-39, 1)
    found["bias"] = np.concatenate([plain[0], np.zeros(320), plain[1]])
    found["zeros"], found["ones"], found["small"] = np.zeros((9, 99)), np.ones((9, 99)), plain[:3, :5]
    with np.errstate(over="ignore"):
        told = [(name, array.astype(dtype)) for name, array in found.items() for dtype in TYPES]
    noise = [("noise", np.frombuffer(rng.bytes(1 << 17), dtype).reshape(64, -1)) for dtype in TYPES]
    return [*told, *noise, ("int8", rng.integers(-9, 9, 9_999, "i1")), ("text", np.frombuffer(TEXT, "u1"))]


@rows("name, array", genuine())
def test_weights_are_not_suspect(name: str, array: np.ndarray) -> None:
    assert not suspect_in(array), array.dtype


def test_stretches_across_parts_and_blocks(tmp_path, monkeypatch) -> None:
    """One that lies across the end of a block is one; it is the same by many workers; files and offsets are told."""
    monkeypatch.setattr(statistics, "PART", 1 << 20)
    array = weights((700, 1000), np.dtype("f4"))
    content = np.random.default_rng(2).bytes(1_500_000)
    path = tmp_path / "w.safetensors"
    path.write_bytes(save({"a": weights((4, 4), np.dtype("f4")), "w": spoilt(array, 900_004, content[:600_000])}))
    found = stats(path)
    (one,) = found.tensors[1].suspect
    assert one.looks == "noise"
    assert abs(one.start * 4 - 900_004) <= 64
    assert abs(one.stop * 4 - 1_500_004) <= 64
    assert one.file == str(path)
    assert one.offset is not None
    assert path.read_bytes()[one.offset + 64 : one.offset + 99] in content
    with ProcessPool(1) as pool:
        assert stats(path, executor=pool).to_dict() == found.to_dict()
    assert not suspect_in(spoilt(array, 900_004, content))  # more than half: this is what the tensor is like
    assert not stats(path, sample="64KiB").tensors[1].suspect


def test_suspect_stretches_on_the_command_line(run, tmp_path) -> None:
    path, notes = tmp_path / "w.safetensors", tmp_path / "notes"
    array = spoilt(weights((80, 100), np.dtype("f4")), 10_000, TEXT[:500])
    for at in (20_404, 23_404, 26_404):
        array = spoilt(array, at, bytes(100))
    path.write_bytes(save({"w": array, "good": weights((80, 100), np.dtype("f4"))}))
    found = run("stats", path)
    assert found.code == 0
    assert found.out.count("suspect: text at offset ") == 1
    assert "; and 2 more" in found.out
    assert found.lines[-1] == "suspect: 1 tensor with stretches that do not look like the rest"
    for _ in range(2):
        assert run("stats", path, "--resume", notes).out == found.out
    told = {one["name"]: one["suspect"] for one in run("stats", path, "--json").json["tensors"]}
    assert [one["looks"] for one in told["w"]] == ["text", "zeros", "zeros", "zeros"]
    assert told["good"] == []
    assert run("find", path, "--suspect", "-q").lines == ["w"]
    assert run("find", path, "--suspect", "good").code == 1
    with pparse.view(path) as model:
        assert model["w"].is_complete


def test_tensors_of_many_stretches_keep_few() -> None:
    array = weights((500, 400), np.dtype("f4"))
    for at in range(1_000, 700_000, 4_000):
        array = spoilt(array, at + 4, np.random.default_rng(at).bytes(200))
    found = suspect_in(array)
    assert len(found) == 64
    assert {what for what, _, _ in found} == {"noise"}
    assert found[0][1] == pytest.approx(1_004, abs=64)
