"""What is saved of checkpoints that are cut or damaged: values as torch has them, and all that no tensor holds."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile

import numpy as np
import pytest

import pparse
from pparse.recovery.recover import recover
from pparse.recovery.salvage_tensors import model_name
from tests.pytorch_files import checkpoint, legacy_checkpoint, numbered
from tests.pytorch_zoo import SAMPLES, expected

TENSORS, CONTENTS = numbered(4, 256, seed=3)
MADE = checkpoint(TENSORS, CONTENTS)


def saved(content: bytes, folder, name: str = "x.pt") -> tuple[dict, dict[str, dict]]:
    """Recover a file; return its list of what is lost, and the entries of the report by path."""
    path = folder / name
    path.write_bytes(content)
    with pparse.open(path) as document:
        recover(document, folder / "out")
    report = json.loads((folder / "out" / "RECOVERY.json").read_text())
    rest = folder / "out" / "x.safetensors.rest.json"
    lost = json.loads(rest.read_text()) if rest.exists() else {}
    return lost, {entry["path"]: entry for entry in report["files"] if entry["path"] is not None}


def arrays(path) -> dict[str, np.ndarray]:
    with pparse.view(path) as viewer:
        return {tensor.name: tensor.numpy() for tensor in viewer.tensors()}


@pytest.mark.parametrize(
    "name", ["views.pt", "conj_neg.pt", "big_endian.pt", "sparse.pt", "dtypes.pt", "tied.pt", "legacy/views.pt"]
)
def test_what_a_file_one_byte_short_holds_is_saved_as_torch_has_it(name, tmp_path):
    whole = SAMPLES[name].read_bytes()
    lost, _ = saved(whole[:-1], tmp_path)
    found = arrays(tmp_path / "out" / "x.safetensors")
    with pparse.view(SAMPLES[name]) as viewer:
        originals = {tensor.name: tensor.numpy() for tensor in viewer.tensors() if tensor.is_complete}
    left_out = {entry["name"]: entry for entry in lost["lost"]}
    assert found.keys() | left_out.keys() >= originals.keys()
    assert found.keys() & left_out.keys() == set()
    for tensor, array in found.items():
        assert array.dtype == originals[tensor].dtype, tensor
        assert array.shape == originals[tensor].shape, tensor
        assert array.tobytes() == originals[tensor].tobytes(), tensor
    for tensor, entry in left_out.items():
        if entry["status"] == "complete":  # safetensors has no such type: an array of numpy has
            assert originals[tensor].tobytes() == np.load(tmp_path / "out" / entry["path"]).tobytes()
            assert "safetensors has no type" in entry["reason"]


def test_types_that_safetensors_lacks_are_told(tmp_path):
    lost, files = saved(SAMPLES["conj_neg.pt"].read_bytes()[:-1], tmp_path)
    entry = next(entry for entry in lost["lost"] if entry["name"] == "conj128")
    assert (entry["dtype"], entry["status"]) == ("complex128", "complete")
    assert entry["path"] == "x.safetensors.partial/conj128.npy"
    assert files[entry["path"]]["status"] == "complete"


def test_what_is_cut_is_saved_as_its_first_bytes(tmp_path):
    begin, end = MADE.places["layers.2.weight"]
    lost, files = saved(MADE.content[: begin + 100], tmp_path)
    assert set(arrays(tmp_path / "out" / "x.safetensors")) == {"layers.0.weight", "layers.1.weight"}
    cut, missing = lost["lost"]
    assert (cut["name"], cut["status"], cut["there"], cut["length"]) == (
        "layers.2.weight",
        "truncated",
        100,
        end - begin,
    )
    assert (missing["name"], missing["status"], missing["path"]) == ("layers.3.weight", "missing", None)
    assert (tmp_path / "out" / cut["path"]).read_bytes() == CONTENTS["layers.2.weight"][:100]
    assert files[cut["path"]]["gaps"] == [[100, end - begin - 100]]
    assert files["x.safetensors"]["status"] == "truncated"


def test_a_changed_byte_is_told_by_the_checksum_and_set_apart(tmp_path):
    changed = bytearray(MADE.content)
    changed[MADE.places["layers.1.weight"][0] + 7] ^= 4
    lost, files = saved(bytes(changed), tmp_path)
    assert set(arrays(tmp_path / "out" / "x.safetensors")) == set(TENSORS) - {"layers.1.weight"}
    doubtful = arrays(tmp_path / "out" / "x.doubtful.safetensors")
    assert set(doubtful) == {"layers.1.weight"}
    assert len(doubtful["layers.1.weight"].tobytes()) == 256
    assert [entry["path"] for entry in lost["lost"]] == ["x.doubtful.safetensors"]
    assert files["x.doubtful.safetensors"]["status"] == "damaged"


def test_if_the_names_may_be_wrong_so_may_all_tensors_be(tmp_path):
    changed = bytearray(MADE.content)
    at = changed.index(b"layers.3.weight") + 7
    changed[at] = ord("9")
    saved(bytes(changed), tmp_path)
    assert not (tmp_path / "out" / "x.safetensors").exists()
    assert set(arrays(tmp_path / "out" / "x.doubtful.safetensors")) == {
        *(f"layers.{number}.weight" for number in (0, 1, 2, 9))
    }


def test_what_was_saved_besides_tensors_is_listed(tmp_path):
    lost, _ = saved(SAMPLES["training.pt"].read_bytes()[:-1], tmp_path)
    metadata = expected("training.pt")["metadata"]
    plain = {key: value for key, value in metadata.items() if isinstance(value, str | int)}
    assert len(plain) > 10
    assert lost["metadata"]["best"] == "inf"  # JSON has no such number
    assert {key: lost["metadata"].get(key) for key in plain} == plain


def test_storages_whose_names_are_lost_are_saved_as_they_are(tmp_path):
    whole = SAMPLES["script/net.pt"].read_bytes()
    with zipfile.ZipFile(SAMPLES["script/net.pt"]) as archive:
        at = archive.getinfo("net/data.pkl").header_offset
        storages = {str(number): archive.read(f"net/data/{number}") for number in range(14)}
    saved(whole[:at], tmp_path)
    found = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    for number, content in storages.items():
        assert content in (found.get(number), found.get(f"storage-{number}.bin")), number


def test_other_members_are_kept(tmp_path):
    whole = SAMPLES["script/extra_files.pt"].read_bytes()
    with zipfile.ZipFile(SAMPLES["script/extra_files.pt"]) as archive:
        texts = {name: archive.read(name) for name in archive.namelist() if "/code/" in name or "/extra/" in name}
    assert texts
    saved(whole[:-1], tmp_path)
    for name, content in texts.items():
        inner = name.partition("/")[2]
        assert (tmp_path / "out" / "x.safetensors.partial" / inner).read_bytes() == content


def test_a_whole_checkpoint_is_written_as_it_is(tmp_path):
    _, files = saved(MADE.content, tmp_path)
    assert list(files) == ["x.pt"]
    assert files["x.pt"]["status"] == "complete"
    assert (tmp_path / "out" / "x.pt").read_bytes() == MADE.content


@pytest.mark.parametrize("make", [checkpoint, legacy_checkpoint])
def test_a_checkpoint_in_a_cut_tar_in_a_zip_is_saved_as_one(make, tmp_path):
    content = make(*numbered(20, 4096, seed=4)).content
    inner, outer = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as archive:
        info = tarfile.TarInfo("run/x.pt")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    packed = gzip.compress(inner.getvalue(), 1, mtime=0)
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("backup.tar.gz", packed[: len(packed) * 6 // 10])
    saved(outer.getvalue(), tmp_path, "all.zip")
    found = arrays(tmp_path / "out" / "backup.tar.gz" / "run" / "x.safetensors")
    originals = numbered(20, 4096, seed=4)[1]
    assert 10 <= len(found) < 20
    assert all(array.tobytes() == originals[name] for name, array in found.items())


def test_two_runs_give_the_same_files(tmp_path):
    content = SAMPLES["training.pt"].read_bytes()
    made = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        saved(content[: len(content) * 8 // 10], folder)
        made.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a/x.pt", "a/x.safetensors"),
        ("x.PTH", "x.safetensors"),
        ("x.pth.tar", "x.safetensors"),
        ("a/.pt", "a/pt.safetensors"),
        ("weights.zip", "weights.zip.safetensors"),
    ],
)
def test_names_of_saved_models(name, wanted):
    assert model_name(name) == wanted
