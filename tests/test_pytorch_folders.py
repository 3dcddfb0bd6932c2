"""Folders with a PyTorch model: opened as those with a safetensors model are."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

import pparse
from pparse.errors import FormatError, PathError
from tests.pytorch_files import checkpoint, legacy_checkpoint, numbered
from tests.pytorch_zoo import FOLDER

SHARDED = FOLDER / "sharded"
SAFETENSORS = Path(__file__).parent.parent / "docs" / "samples" / "sharded"
INDEX = "pytorch_model.bin.index.json"
SECOND = "pytorch_model-00002-of-00003.bin"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(SHARDED, tmp_path / "set"))


def contents(model):
    return {name: tensor.numpy().tobytes() for name, tensor in model.items()}


@pytest.fixture(scope="module")
def wanted():
    with pparse.view(SHARDED / INDEX) as model:
        return contents(model)


def test_a_folder_with_an_index_is_its_model(folder, wanted, run):
    with pparse.view(folder) as model:
        assert model.format == "pytorch-folder"
        assert contents(model) == wanted
        assert model.metadata == {"total_size": 144}
        assert list(model.check(strict=True)) == []
    assert sorted(run("ls", folder, "-q").lines) == sorted(wanted)
    assert run("info", folder, "-q").out == "pytorch-folder complete, unverified\n"
    assert run("check", folder).code == 0
    assert run("get", folder, "a.weight", "--json").code == 0
    assert run("recover", folder, "-o", folder.parent / "out").code == 0
    assert {path.name for path in (folder.parent / "out").iterdir()} >= {path.name for path in folder.iterdir()}


def test_a_folder_with_an_index_in_an_archive_is_its_model(folder, wanted, tmp_path):
    with zipfile.ZipFile(tmp_path / "it.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"m/{path.name}")
    with pparse.view(f"{tmp_path / 'it.zip'}::m/") as model:
        assert contents(model) == wanted


def test_shards_without_an_index_are_one_model_and_a_number_may_be_missing(folder, wanted):
    (folder / INDEX).unlink()
    with pparse.view(folder) as model:
        assert contents(model) == wanted
    (folder / SECOND).unlink()
    with pparse.view(folder) as model:
        assert [one.path for one in model.check() if one.severity.value == "error"] == [SECOND]
        assert (model.status.value, model.extent().resume_file) == ("truncated", str(folder / SECOND))


@pytest.mark.parametrize("make", [checkpoint, legacy_checkpoint])
@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "last.ckpt"])
def test_a_folder_with_one_checkpoint_is_its_model(make, name, tmp_path):
    tensors, content = numbered(3, 256)
    (tmp_path / name).write_bytes(make(tensors, content).content)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "vocabulary.bin").write_bytes(b"no checkpoint" * 9)
    with pparse.view(tmp_path) as model:
        assert contents(model) == content


def test_a_folder_with_several_checkpoints_lists_them(tmp_path):
    made = checkpoint(*numbered(1, 64)).content
    for name in ("a.pt", "optimizer.pt"):
        (tmp_path / name).write_bytes(made)
    with pytest.raises(PathError, match=r"several models.*a\.pt, optimizer\.pt"):
        pparse.view(tmp_path)


def test_a_folder_of_files_that_are_no_checkpoints_has_no_model(tmp_path):
    for name in ("a.bin", "b.pt", "c-00001-of-00002.bin"):
        (tmp_path / name).write_bytes(bytes(range(200)))
    (tmp_path / "d.bin").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FormatError, match="folder"):
        pparse.view(tmp_path)


def test_a_folder_with_a_model_of_each_kind_lists_both_unless_the_format_is_named(folder, wanted, run):
    for path in SAFETENSORS.iterdir():
        shutil.copy(path, folder)
    with pytest.raises(PathError, match=r"several models.*model\.safetensors\.index\.json, pytorch_model\.bin\.ind"):
        pparse.view(folder)
    assert run("check", folder).code == 2
    assert run("ls", "-q", folder).lines == ["model.safetensors.index.json", "pytorch_model.bin.index.json"]
    with pparse.view(folder, format="pytorch-folder") as model:
        assert contents(model) == wanted
    with pparse.view(folder, format="safetensors-folder") as model, pparse.view(SAFETENSORS) as other:
        assert contents(model) == contents(other)


def test_checkpoints_of_a_training_beside_a_safetensors_model_do_not_hide_it(tmp_path):
    for path in SAFETENSORS.iterdir():
        shutil.copy(path, tmp_path)
    made = checkpoint(*numbered(1, 64)).content
    for name in ("optimizer.pt", "training_args.bin"):
        (tmp_path / name).write_bytes(made)
    with pparse.view(tmp_path) as model:
        assert model.format == "safetensors-folder"
