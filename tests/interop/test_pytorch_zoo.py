"""The committed zoo of PyTorch files against the real torch: what it reads in them, and what it writes today."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import inputs_pytorch
from tests.pytorch_files import REPACKED, checkpoint, repacked
from tests.pytorch_zoo import FOLDER, REFUSED, SAMPLES, expected
from tests.rows import rows

ROOT = Path(__file__).resolve().parents[2]


def library(name):
    """Import what we are compared with; without it skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


torch = library("torch")
INDEX = "sharded/pytorch_model.bin.index.json"


@pytest.fixture(name="zoo", scope="module")
def _zoo():
    """The maker of the zoo, and the classes that its files name."""
    from tests.interop import make_pytorch_zoo
    from tests.interop.pytorch_zoo import foreign

    with foreign.importable():
        yield make_pytorch_zoo


def told(entry):
    """Return what a referee says of a file, as JSON has it; without what we add."""
    rows = [{key: value for key, value in row.items() if key != "or_sha256"} for row in entry["tensors"]]
    return json.loads(json.dumps({**entry, "tensors": rows}))


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != INDEX])
def test_torch_reads_what_is_expected(zoo, name):
    entry = told(expected(name))
    found = told(zoo.read(SAMPLES[name], entry["referee"]))
    assert found == {key: entry[key] for key in found}


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.name)
def test_torch_refuses(zoo, path):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of whatever type
        zoo.read(path, "pickle" if path.suffix == ".pkl" else "torch")
    assert zoo.reason(caught.value).split(":")[0] == REFUSED[path].split(":")[0]


def test_the_index_names_the_tensors_of_its_shards():
    index = json.loads(SAMPLES[INDEX].read_text())
    shards = sorted(set(index["weight_map"].values()))
    rows = [row for shard in shards for row in expected(f"sharded/{shard}")["tensors"]]
    assert rows == expected(INDEX)["tensors"]
    assert [row["name"] for row in rows] == list(index["weight_map"])


def relabelled(entry):
    """Return an entry with its storages numbered: in legacy files their keys are addresses."""
    numbers: dict[str, int] = {}
    entry = json.loads(json.dumps(entry))
    for row in entry["tensors"]:
        if row.get("storage") is not None:
            row["storage"] = numbers.setdefault(row["storage"], len(numbers))
    return entry


def test_torch_writes_the_same_today(tmp_path):
    command = [sys.executable, "-m", "tests.interop.make_pytorch_zoo", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    now = json.loads((tmp_path / "expected.json").read_text())
    assert list(now["files"]) == list(SAMPLES)
    for name, entry in now["files"].items():
        assert relabelled(entry) == relabelled(expected(name)), name
    assert {FOLDER / name for name in now["refused"]} == set(REFUSED)


@pytest.mark.parametrize("dense", [False, True])
def test_torch_reads_the_checkpoints_of_the_benchmarks(tmp_path, monkeypatch, dense):
    from torch.utils.serialization import config

    path = inputs_pytorch.checkpoint(tmp_path / "model.pt", 12, 12 * 9 * 1024, dense)
    # Torch computes where each storage begins, as its own writer would have put it, and compares.
    monkeypatch.setenv("TORCH_SERIALIZATION_DEBUG", "1")
    whole = torch.load(path)
    with config.patch({"load.calculate_storage_offsets": True}):
        mapped = torch.load(path, mmap=True)
    assert list(whole) == [f"model.layers.{number}.weight" for number in range(12)]
    for name, tensor in whole.items():
        assert (tensor.shape, tensor.dtype) == ((9, 256), torch.float32)
        assert bool(tensor.view(torch.int32).any()) is dense
        assert torch.equal(tensor.view(torch.int32), mapped[name].view(torch.int32))


@rows("how", REPACKED)
def test_torch_refuses_what_check_strict_says_that_it_does(how, tmp_path):
    path = tmp_path / "it.pt"
    path.write_bytes(repacked(checkpoint({"a": ("float32", [4])}, {"a": bytes(16)}), how))
    try:
        torch.load(path, weights_only=True)
        refused = False
    except Exception:  # of many kinds
        refused = True
    assert refused is bool(REPACKED[how][1])
