"""Conversion of PyTorch checkpoints: storages are read once, and what a checksum contradicts is never written."""

from __future__ import annotations

import json
import os
import random
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse import Status
from pparse.conversion import converting as convert_module
from pparse.conversion.converting import ConversionFolder
from pparse.data.base import IoStats
from pparse.errors import NotWholeError
from pparse.kernels.crc32c import joined_crc
from tests import sweep
from tests.pytorch_files import checkpoint
from tests.pytorch_zoo import FOLDER
from tests.test_convert_resume import stopped

COUNT, ROWS = 7, 8_000
SIZE = 4 * ROWS


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Let small samples take many pieces, all but the last ones written in the thread."""
    monkeypatch.setattr(convert_module, "PIECE", 512)
    monkeypatch.setattr(convert_module, "_WORTH_A_THREAD", 100)


@pytest.fixture
def made():
    generator = np.random.default_rng(5)
    names = [f"t{number}" for number in range(COUNT)]
    return checkpoint(
        {name: ("float32", [ROWS]) for name in names},
        {name: generator.normal(size=ROWS).astype(np.float32).tobytes() for name in names},
    )


@pytest.fixture
def source(tmp_path, made):
    path = tmp_path / "in" / "m.pt"
    path.parent.mkdir()
    path.write_bytes(made.content)
    return path


def hurt(path: Path, *places: int) -> None:
    content = bytearray(path.read_bytes())
    for place in places:
        content[place] ^= 0x10
    path.write_bytes(content)


def arrays(path: Path) -> dict[str, bytes]:
    if path.suffix == ".npz":
        with np.load(path) as found:
            return {name: found[name].tobytes() for name in found}
    with pparse.view(path) as viewer:
        return {name: tensor.numpy().tobytes() for name, tensor in viewer.items()}


@pytest.mark.parametrize("target", ["m.safetensors", "m.npz"])
def test_each_storage_is_read_once(tmp_path, source, target):
    stats = IoStats(log=True)
    with pparse.view(source, stats=stats) as viewer:
        pparse.convert(viewer, tmp_path / target)
    assert stats.bytes < COUNT * SIZE * 1.5
    assert arrays(tmp_path / target) == arrays(source)
    if target.endswith("npz"):
        assert zipfile.ZipFile(tmp_path / target).testzip() is None


def sharded(folder: Path, made) -> Path:
    """Write two shards and an index; return its path."""
    shards = {}
    for number, letter in enumerate("ab"):
        name = f"pytorch_model-{number + 1:05d}-of-00002.bin"
        part = checkpoint(
            {f"{letter}{at}": ("float32", [ROWS]) for at in range(COUNT)},
            {f"{letter}{at}": made.content[place[0] : place[1]] for at, place in enumerate(made.places.values())},
        )
        (folder / name).write_bytes(part.content)
        shards |= dict.fromkeys(part.places, name)
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 2 * COUNT * SIZE}, "weight_map": shards}))
    return index


def test_each_shard_is_read_once(tmp_path, made):
    index = sharded(tmp_path, made)
    stats = IoStats(log=True)
    with pparse.view(index, stats=stats) as viewer:
        pparse.convert(viewer, tmp_path / "m.safetensors")
    assert stats.bytes < 2 * COUNT * SIZE * 1.5
    assert arrays(tmp_path / "m.safetensors") == arrays(index)


def test_damage_in_a_shard(tmp_path, made):
    index = sharded(tmp_path, made)
    hurt(tmp_path / "pytorch_model-00002-of-00002.bin", made.places["t3"][0] + 7)
    with pytest.raises(NotWholeError) as caught:
        pparse.convert(index, tmp_path / "m.safetensors")
    assert [name for name, _, _ in caught.value.lost] == ["b3"]
    assert "beside its tensors" not in str(caught.value)
    assert not (tmp_path / "m.safetensors").exists()
    report = pparse.convert(index, tmp_path / "m.safetensors", skip_damaged=True)
    assert [(entry.name, entry.status) for entry in report.left_out] == [("b3", Status.DAMAGED)]
    assert set(arrays(tmp_path / "m.safetensors")) == {f"{letter}{at}" for letter in "ab" for at in range(COUNT)} - {
        "b3"
    }


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("m.safetensors", {}),
        ("m.safetensors", {"dtype": "float64"}),
        ("m.safetensors", {"max_shard_size": SIZE * 2}),
        ("m.npz", {}),
        ("m.npz", {"dtype": "float64"}),
    ],
)
def test_what_a_checksum_contradicts_is_never_written(tmp_path, source, made, target, options):
    whole = arrays(source)
    hurt(source, made.places["t1"][0], made.places["t5"][1] - 1)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(NotWholeError) as caught:
        pparse.convert(source, out / target, **options)
    assert [(name, status) for name, status, _ in caught.value.lost] == [("t1", "damaged"), ("t5", "damaged")]
    assert all("CRC" in reason for _, _, reason in caught.value.lost)
    assert os.listdir(out) == []
    report = pparse.convert(source, out / target, skip_damaged=True, **options)
    assert [(entry.name, entry.status) for entry in report.left_out] == [
        ("t1", Status.DAMAGED),
        ("t5", Status.DAMAGED),
    ]
    assert (report.notes, report.document_reason) == ([], None)  # all names and headers are right
    found: dict[str, bytes] = {}
    for file in report.files:
        if not file.path.endswith(".json"):
            found |= arrays(Path(file.path))
    kept = {name: content for name, content in whole.items() if name not in ("t1", "t5")}
    if options.get("dtype"):
        kept = {name: np.frombuffer(content, np.float32).astype(np.float64).tobytes() for name, content in kept.items()}
    assert found == kept


@pytest.mark.parametrize(
    "name", sweep.part(["module.pt", "training.pt", "views.pt", "slice.pt", "shared.pt", "conj_neg.pt"])
)
def test_flips_anywhere_are_found_as_by_reading_all_first(tmp_path, name):
    """A dry run compares all checksums first; copying must leave out just the same tensors."""
    path = FOLDER / name
    content = path.read_bytes()
    chosen = random.Random(f"{name} {sweep.offset}")
    with pparse.view(path) as viewer:
        spans = [tensor.spans[0] for tensor in viewer.tensors() if tensor.nbytes]
    spoilt = 0
    for number in range(25 if sweep.full else 12):
        changed = bytearray(content)
        span = chosen.choice(spans)
        place = span.offset + chosen.randrange(span.length) if number % 2 else chosen.randrange(len(content))
        changed[place] ^= number and 1 << chosen.randrange(8)
        source = tmp_path / "m.pt"
        source.write_bytes(changed)
        told = []
        for dry_run in (True, False):
            try:
                report = pparse.convert(
                    source,
                    tmp_path / "m.safetensors",
                    skip_damaged=True,
                    skip_unsupported=True,
                    dry_run=dry_run,
                    force=True,
                )
            except pparse.PparseError as error:
                told.append([type(error)])
                spoilt += isinstance(error, NotWholeError)
            else:
                told.append([(entry.name, entry.status, entry.reason) for entry in report.left_out])
                told[-1].append(report.document_reason)
                spoilt += any(entry.status is Status.DAMAGED for entry in report.left_out)
        assert told[0] == told[1], number
    assert spoilt


def test_damage_before_the_place_where_a_run_was_stopped(tmp_path, source, made):
    hurt(source, made.places["t0"][0])
    stopped(tmp_path / "m.safetensors", SIZE // 2, source=source)
    assert os.path.exists(tmp_path / ".m.safetensors.pparse-convert")
    with pytest.raises(NotWholeError, match="t0"):
        pparse.convert(source, tmp_path / "m.safetensors")
    assert os.listdir(tmp_path) == ["in"]


def test_a_run_that_left_out_what_is_damaged_goes_on(tmp_path, source, made):
    hurt(source, made.places["t0"][0])
    stopped(tmp_path / "m.safetensors", SIZE * 3, source=source, skip_damaged=True)
    report = pparse.convert(source, tmp_path / "m.safetensors", skip_damaged=True)
    assert (report.resumed_bytes > SIZE * 2, report.notes) == (True, [])
    assert [entry.name for entry in report.left_out] == ["t0"]
    pparse.convert(source, tmp_path / "right.safetensors", skip_damaged=True)
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "right.safetensors").read_bytes()


def test_a_stopped_run_goes_on_with_the_checksums(tmp_path, source):
    stopped(tmp_path / "m.safetensors", SIZE * 2 + SIZE // 2, source=source)
    stats = IoStats(log=True)
    with pparse.view(source, stats=stats) as viewer:
        report = pparse.convert(viewer, tmp_path / "m.safetensors")
    assert report.resumed_bytes > SIZE * 2
    assert stats.bytes < SIZE * COUNT, "what was copied is not read again"
    assert arrays(tmp_path / "m.safetensors") == arrays(source)


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_a_piece_is_not_overwritten_before_it_is_on_its_way(tmp_path, model, monkeypatch, dtype):
    """A slow disk: each piece is written long after the next one was asked for."""
    write = ConversionFolder._write

    def slowly(self, *args):
        time.sleep(0.002)
        return write(self, *args)

    monkeypatch.setattr(ConversionFolder, "_write", slowly)
    generator = np.random.default_rng(1)
    tensors = {}
    for number, pieces in enumerate((1, 3, 2, 0, 5, 1, 0, 1, 4)):  # odd numbers: buffers go on by turns across tensors
        word = "F32" if not pieces else "U8"
        tensors[f"t{number}"] = (word, (512 * pieces,), generator.bytes(512 * pieces))
    source = model(tensors)
    pparse.convert(source, tmp_path / "m.safetensors", dtype=dtype)
    assert arrays(tmp_path / "m.safetensors") == {name: row[2] for name, row in tensors.items()}


def test_the_checksum_of_two_stretches():
    for first, second in ((b"", b""), (b"a", b""), (b"", b"b"), (b"head", os.urandom(100_000)), (os.urandom(99), b"x")):
        assert joined_crc(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)
