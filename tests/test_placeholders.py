"""Files that only stand for those that another one names: they are never taken for data, nor is a download of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pparse
from pparse.errors import PparseError, SourceError
from pparse.findings import Status
from tests.onnx_files import external, model_of, tensor

PLACEHOLDERS = {
    "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 24576\n",
    "page": b"\n<!DOCTYPE html><html><body>Please log in</body></html>" * 30,
}
WORDS = {"git-lfs": "git lfs pull", "page": "web page"}
SAMPLES = Path(__file__).parent.parent / "docs" / "samples"


def put(folder: Path, case: str, content: bytes) -> Path:
    """Write a model of which one file is ``content``; return what to open."""
    if case == "onnx":
        folder.mkdir()
        weights = tensor("w", [16, 2], 1, external(location="m.data", offset=0, length=128))
        (folder / "m.onnx").write_bytes(model_of(weights))
        (folder / "m.data").write_bytes(content)
        return folder / "m.onnx"
    if case == "shard":
        shutil.copytree(SAMPLES / "sharded", folder)
        (folder / "model-00002-of-00003.safetensors").write_bytes(content)
        return folder / "model.safetensors.index.json"
    shutil.copytree(SAMPLES / "saved-model", folder)
    hit = {"checkpoint": "variables/variables.data-00000-of-00001", "saved-model": "saved_model.pb"}[case]
    (folder / hit).write_bytes(content)
    return folder if case == "saved-model" else folder / "variables" / "variables.index"


@pytest.mark.parametrize("kind", PLACEHOLDERS)
@pytest.mark.parametrize("case", ["onnx", "shard", "checkpoint"])
@pytest.mark.parametrize("inside", [False, True], ids=["folder", "zip"])
def test_what_is_beside_a_model_is_missing_and_nothing_to_resume(run, tmp_path, case, kind, inside) -> None:
    source = put(tmp_path / "m", case, PLACEHOLDERS[kind])
    if inside:
        shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path, "m")
        source = f"{tmp_path / 'all.zip'}::{source.relative_to(tmp_path)}"
    with pparse.open(source) as document:
        viewer = document.view()
        lost = [each for each in viewer.tensors() if each.status is not Status.COMPLETE]
        assert lost
        for each in lost:
            assert each.status is Status.MISSING
            with pytest.raises(PparseError):
                each.numpy()
        assert all(each.at == 0 for each in viewer.extent().resume)  # it is to be fetched
    checked = run("check", source)
    assert checked.code == 4
    assert WORDS[kind] in checked.out
    assert "resume the download" not in checked.out


@pytest.mark.parametrize("kind", PLACEHOLDERS)
def test_a_folder_is_no_model_if_its_message_is_a_placeholder(run, tmp_path, kind) -> None:
    ran = run("ls", put(tmp_path / "m", "saved-model", PLACEHOLDERS[kind]))
    assert ran.code == 2
    assert WORDS[kind] in ran.err


def test_an_asset_may_be_a_page(tmp_path) -> None:
    shutil.copytree(SAMPLES / "saved-model", tmp_path / "m")
    (tmp_path / "m" / "assets" / "vocab.txt").write_bytes(PLACEHOLDERS["page"])
    with pparse.open(tmp_path / "m") as document:
        assert not [each for each in document.check() if each.code == "asset"]
        with pytest.raises(SourceError, match="web page"):
            document.sibling("assets/vocab.txt")
