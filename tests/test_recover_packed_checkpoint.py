"""`pparse recover` of archives that hold checkpoints: index and data files are judged together."""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tests.checkpoint_files import write

SHARDS = Path("tests/data/checkpoint")
DATA = "m.data-00000-of-00001"
AS_FOUND = f"{DATA}.partial/as-found.bin"


def pack(folder: Path, names: list[str], wrapper: str) -> Path:
    """Pack files of ``folder`` in this order."""
    packed = folder / f"packed.{wrapper}"
    if wrapper == "zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.write(folder / name, name)
    else:
        with tarfile.open(packed, "w:gz" if wrapper == "tar.gz" else "w") as tar:
            for name in names:
                tar.add(folder / name, name)
    return packed


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def report(out: Path) -> dict[str, dict]:
    return {file["path"]: file for file in json.loads((out / "RECOVERY.json").read_text())["files"]}


@pytest.mark.parametrize("data_first", [True, False])
@pytest.mark.parametrize("wrapper", ["zip", "tar", "tar.gz"])
def test_a_value_that_was_wrong_when_it_was_packed_is_set_apart(run, tmp_path, wrapper, data_first):
    write(tmp_path, 20)
    flip(tmp_path / DATA, 100)
    packed = pack(tmp_path, [DATA, "m.index"] if data_first else ["m.index", DATA], wrapper)
    out = tmp_path / "out"
    ran = run("recover", packed, "-o", out)
    assert ran.code == 4
    assert ran.out.count("hash layer0003/w") == 1
    found = report(out)
    assert found.pop("m.index")["status"] == "complete"  # nothing is wrong with that
    assert set(found) == {AS_FOUND, "m.safetensors", "m.doubtful.safetensors", "m.safetensors.rest.json"}
    assert {file["status"] for file in found.values()} == {"damaged"}
    assert (out / AS_FOUND).read_bytes() == (tmp_path / DATA).read_bytes()
    assert found[AS_FOUND]["doubtful"] == [[96, 32]]
    assert "1 of the 20 tensors" in found[AS_FOUND]["reason"]
    saved = safetensors.numpy.load_file(out / "m.safetensors")
    assert sorted(saved) == [f"layer{number:04}/w" for number in range(20) if number != 3]
    assert all((values == int(name[5:9])).all() for name, values in saved.items())


@pytest.mark.parametrize("wrapper", ["zip", "tar", "tar.gz"])
def test_a_whole_checkpoint_is_written_as_it_is(run, tmp_path, wrapper):
    write(tmp_path, 20)
    packed = pack(tmp_path, [DATA, "m.index"], wrapper)
    out = tmp_path / "out"
    ran = run("recover", packed, "-o", out)
    assert (ran.code, "not-read" in ran.out) == (0, False)
    for name in (DATA, "m.index"):
        assert (out / name).read_bytes() == (tmp_path / name).read_bytes()
        assert report(out)[name]["status"] == "complete"
    assert report(out)[DATA]["verified"] is True  # by the checksums of the tensors, also in a tar that has none


def test_only_the_data_file_with_the_damage_is_damaged(run, tmp_path):
    for path in SHARDS.glob("shards.*"):
        shutil.copy(path, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 4
    flip(tmp_path / names[1], 0)
    out = tmp_path / "out"
    assert run("recover", pack(tmp_path, names, "tar"), "-o", out).code == 4
    found = report(out)
    assert found[names[0]]["status"] == found[names[2]]["status"] == "complete"
    assert found[f"{names[1]}.partial/as-found.bin"]["status"] == "damaged"


def test_each_of_many_checkpoints_is_judged_by_its_own_index(run, tmp_path):
    names = []
    for number in range(8):  # more than are kept at once, with all data files before the first index
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        write(folder, 4)
        if number % 2:
            flip(folder / DATA, 32 * (number % 4))
        names.append(f"run{number}")
    order = [f"{name}/{DATA}" for name in names] + [f"{name}/m.index" for name in names]
    out = tmp_path / "out"
    assert run("recover", pack(tmp_path, order, "zip"), "-o", out).code == 4
    found = report(out)
    for number, name in enumerate(names):
        if number % 2:
            assert found[f"{name}/{AS_FOUND}"]["doubtful"] == [[32 * (number % 4), 32]]
            assert len(safetensors.numpy.load_file(out / name / "m.safetensors")) == 3
            # Also if another viewer was the first to compare the checksum.
            assert found[f"{name}/m.safetensors"]["reason"] == "3 of 4 tensors are whole; its checksum is wrong"
        else:
            assert found[f"{name}/{DATA}"]["status"] == found[f"{name}/m.index"]["status"] == "complete"


def test_in_an_archive_in_an_archive(run, tmp_path):
    write(tmp_path, 5)
    flip(tmp_path / DATA, 0)
    pack(tmp_path, [DATA, "m.index"], "tar.gz")
    out = tmp_path / "out"
    assert run("recover", pack(tmp_path, ["packed.tar.gz"], "zip"), "-o", out).code == 4
    saved = safetensors.numpy.load_file(next(out.rglob("m.safetensors")))
    assert [int(values[0]) for _, values in sorted(saved.items())] == [1, 2, 3, 4]


def test_without_one_of_the_two_the_other_is_kept_as_it_is(run, tmp_path):
    write(tmp_path, 5)
    for name, reason in ((DATA, "without the index"), ("m.index", f"{DATA} is not there")):
        out = tmp_path / f"out-{name}"
        ran = run("recover", pack(tmp_path, [name], "tar"), "-o", out)
        assert ran.code == 4
        assert reason in ran.out
        assert report(out)[name]["status"] == "complete"
        assert (out / name).read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_of_a_cut_archive_every_whole_tensor_is_saved(run, tmp_path, kept):
    write(tmp_path, 200)
    packed = pack(tmp_path, ["m.index", DATA], "tar")
    size = (tmp_path / DATA).stat().st_size
    with tarfile.open(packed) as tar:
        begin = tar.getmember(DATA).offset_data
    packed.write_bytes(packed.read_bytes()[: begin + int(size * kept)])
    out = tmp_path / "out"
    assert run("recover", packed, "-o", out).code == 4
    saved = safetensors.numpy.load_file(out / "m.safetensors")
    assert len(saved) == int(size * kept) // 32
    assert all(np.array_equal(values, [int(name[5:9])] * 8) for name, values in saved.items())
    assert report(out)[AS_FOUND]["status"] == "truncated"


@pytest.mark.parametrize("wrapper", ["zip", "tar", "tar.gz"])
def test_a_damaged_index_is_kept_as_found(run, tmp_path, wrapper):
    write(tmp_path, 200, per_block=20)
    flip(tmp_path / "m.index", 700)
    out = tmp_path / "out"
    assert run("recover", pack(tmp_path, [DATA, "m.index"], wrapper), "-o", out).code == 4
    found = report(out)
    assert 150 < len(safetensors.numpy.load_file(out / "m.safetensors")) < 200
    assert found["m.index.partial/as-found.bin"]["status"] == "damaged"
    assert (out / "m.index.partial/as-found.bin").read_bytes() == (tmp_path / "m.index").read_bytes()
    assert found[DATA]["status"] == "complete"
    # Of its tensors, some are not known; a tar has no checksum of its own.
    assert found[DATA]["verified"] is (None if wrapper == "tar" else True)
