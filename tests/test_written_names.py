"""Whatever its tensors are called, a file that is written opens in the library of its format, or nothing is written.

All writers are asked for all names: `get -o`, `convert`, and `recover` of a checkpoint and of a safetensors file.
"""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file

import pparse
from pparse.errors import LimitError
from pparse.recovery import salvage_tensors
from pparse.recovery.recover import recover
from tests.pytorch_files import checkpoint
from tests.rows import rows

HALF = "a\ud800w"
GOOD = {"w": np.arange(3, dtype="f4"), "": np.arange(2, dtype="f4"), "ä/b.npy": np.arange(4, dtype="f4")}
# Names that some format cannot hold, with the words that say so; of those beside it, another is to be told apart.
UTF8, LONG = "UTF-8 cannot hold its name", "the name is longer than a zip file can hold"
RESERVED = "no tensor can be called __metadata__ in a safetensors file"
REFUSED = {
    "safetensors": {"__metadata__": RESERVED, HALF: UTF8},
    "npz": {HALF: UTF8, "x" * 65532: LONG, "a\0b": "end a name at its NUL character", "w.npy": "would both be 'w.npy'"},
}
NAMES = ["__metadata__", HALF, "x" * 65531, "x" * 65532, "a\0b", "w.npy", "plain"]
LIMITED = ("conversion.forms", "recovery.salvage_tensors")


def arrays(name: str) -> dict[str, np.ndarray]:
    """Return arrays of which one has a name that a format may not hold, and two lie behind it."""
    return {"w": GOOD["w"], name: np.arange(5, dtype="f4"), "": GOOD[""], "ä/b.npy": GOOD["ä/b.npy"]}


def pt(tensors: dict[str, np.ndarray]) -> bytes:
    shapes = {name: ("float32", list(array.shape)) for name, array in tensors.items()}
    return checkpoint(shapes, {name: array.tobytes() for name, array in tensors.items()}).content


def safetensors(tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at := at + array.nbytes]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in tensors.values())


def loaded(path) -> dict[str, np.ndarray]:
    """Return what the library of a format, or numpy, finds in a file."""
    if path.suffix == ".safetensors":
        return load_file(path)
    with np.load(path) as found:
        assert len(set(found.files)) == len(found.files)
        return {name: found[name] for name in found.files}


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


@rows("form", ["safetensors", "npz"])
@rows("writer", ["get", "convert"])
@rows("name", NAMES, ids=lambda name: ascii(name[:12]) + str(len(name)))
def test_a_file_opens_with_just_its_tensors_or_is_not_written(run, tmp_path, writer, form, name):
    folder = tmp_path / f"{form}-{writer}-{NAMES.index(name)}"
    folder.mkdir()
    source, output = folder / "x.pt", folder / f"y.{form}"
    source.write_bytes(pt(arrays(name)))
    words = ("get", source, "-p", "*") if writer == "get" else ("convert", source)
    ran = run(*words, "-o", output)
    why = REFUSED[form].get(name)
    if why is None:
        assert (ran.code, ran.err) == (0, "")
        assert_same(loaded(output), arrays(name))
    else:
        assert ran.code == 2
        assert why in ran.err
        assert "nothing was written" in ran.err
        assert len(ran.err) < 500
        assert [path.name for path in folder.iterdir()] == ["x.pt"]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]) + str(len(name)))
def test_recover_writes_beside_the_file_what_cannot_be_named_in_it(run, tmp_path, name):
    wanted = arrays(name)
    (tmp_path / "x.pt").write_bytes(pt(wanted)[:-1])
    ran = run("recover", tmp_path / "x.pt", "-o", tmp_path / "out")
    assert (ran.code, ran.err) == (4, "")
    why = REFUSED["safetensors"].get(name)
    odd = wanted.pop(name) if why is not None else None
    assert_same(loaded(tmp_path / "out/x.safetensors"), wanted)
    lost = json.loads((tmp_path / "out/x.safetensors.rest.json").read_text())["lost"]
    assert [why in entry["reason"] for entry in lost] == [True] * (odd is not None)
    for entry in lost:
        np.testing.assert_array_equal(np.load(tmp_path / "out" / entry["path"]), odd)


def test_recover_of_a_safetensors_file_leaves_out_names_and_metadata_that_its_library_refuses(run, tmp_path):
    wanted = {HALF: np.arange(5, dtype="f4"), **GOOD}
    (tmp_path / "x.safetensors").write_bytes(safetensors(wanted, {"good": "yes", "bad": HALF, HALF: "key"})[:-1])
    ran = run("recover", tmp_path / "x.safetensors", "-o", tmp_path / "out")
    assert (ran.code, ran.err) == (4, "")
    assert_same(loaded(tmp_path / "out/x.safetensors"), {"w": GOOD["w"], "": GOOD[""]})
    lost = json.loads((tmp_path / "out/x.safetensors.rest.json").read_text())["lost"]
    assert [(entry["status"], entry["there"]) for entry in lost] == [("damaged", 0), ("truncated", 15)]
    assert (tmp_path / "out/x.safetensors.partial/").is_dir()


def test_get_leaves_out_metadata_that_utf8_cannot_hold(run, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(safetensors(GOOD, {"good": "yes", "bad": HALF}))
    ran = run("get", tmp_path / "x.safetensors", "-p", "*", "-o", tmp_path / "y.safetensors")
    assert ran.code == 0
    assert_same(loaded(tmp_path / "y.safetensors"), GOOD)
    with pparse.view(tmp_path / "y.safetensors") as viewer:
        assert viewer.metadata == {"good": "yes"}


# -- headers that are longer than readers accept -----------------------------------------------------------------------

MANY = {f"layer.{number}": np.full(2, number, "f4") for number in range(20)}


@pytest.fixture
def most(monkeypatch):
    """Return a limit of the header's length that eleven of `MANY` keep to."""
    for module in LIMITED:
        monkeypatch.setattr(f"pparse.{module}.REFERENCE_HEADER_LIMIT", 800)
    return 800


def header_length(path) -> int:
    return int.from_bytes(path.read_bytes()[:8], "little")


@pytest.mark.parametrize("words", [("get", "-p", "*"), ("convert",)], ids=["get", "convert"])
def test_a_header_that_readers_refuse_is_not_written(run, tmp_path, most, words):
    (tmp_path / "x.pt").write_bytes(pt(MANY))
    ran = run(words[0], tmp_path / "x.pt", *words[1:], "-o", tmp_path / "y.safetensors")
    assert ran.code == 2
    assert f"bytes, more than the {most} that readers accept" in ran.err
    assert "--max-shard-size" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_recover_writes_as_many_tensors_as_the_header_may_name_and_the_rest_beside(run, tmp_path, most, suffix):
    content = pt(MANY)[:-1] if suffix == "pt" else safetensors(MANY, {"format": "pt"})[:-1]
    (tmp_path / f"x.{suffix}").write_bytes(content)
    ran = run("recover", tmp_path / f"x.{suffix}", "-o", tmp_path / "out")
    assert (ran.code, ran.err) == (4, "")
    found = loaded(tmp_path / "out/x.safetensors")
    assert_same(found, {name: MANY[name] for name in list(MANY)[: len(found)]})
    assert most - 80 < header_length(tmp_path / "out/x.safetensors") <= most
    lost = json.loads((tmp_path / "out/x.safetensors.rest.json").read_text())["lost"]
    assert [entry["name"] for entry in lost] == list(MANY)[len(found) :]
    for entry in lost[: 19 - len(found)]:
        assert "header would be longer" in entry["reason"]
        path = tmp_path / "out" / entry["path"]
        assert np.load(path).tobytes() == MANY[entry["name"]].tobytes()


def test_recover_says_that_the_budget_was_exceeded_and_not_that_tensors_cannot_be_read(run, tmp_path, monkeypatch):
    def starved(tensor):
        raise LimitError("a block needs 2 MiB, more than is left", option="--budget 66MiB")
        yield b""

    monkeypatch.setattr(salvage_tensors, "bytes_of", starved)
    (tmp_path / "x.pt").write_bytes(pt(MANY)[:-1])
    ran = run("recover", tmp_path / "x.pt", "-o", tmp_path / "out")
    assert ran.code == 4
    assert "nothing was saved, for want of room within the limit" in ran.out
    assert "lift it with --budget 66MiB" in ran.out
    with pparse.open(tmp_path / "x.pt") as document:
        outcome = recover(document, tmp_path / "again")
    assert list(outcome.limits) == ["--budget"]
