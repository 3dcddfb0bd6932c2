"""A folder with one model file opens as that model, whatever its format; one with several asks."""

from __future__ import annotations

import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse.document.registry import BUILTINS, Registry, model_extensions
from pparse.errors import FormatError, PathError
from tests.rows import rows

GGUF = Path("tests/data/gguf")
PARTS = [GGUF / "split" / f"model-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
VALUES = np.arange(6.0).reshape(2, 3)


def write(path: Path) -> None:
    if path.suffix == ".npy":
        np.save(path, VALUES)
    elif path.suffix == ".npz":
        np.savez(path, a=VALUES)
    elif path.suffix == ".gguf":
        shutil.copy(GGUF / "layers.gguf", path)
    elif path.suffix == ".msgpack":
        shutil.copy("docs/samples/tiny-flax.msgpack", path)
    elif path.suffix == ".joblib":
        shutil.copy("tests/data/joblib/two.joblib", path)
    else:
        path.write_bytes(b"words, not a model")


def folder_with(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        write(folder / name)
    return folder


@rows(
    ("name", "format"),
    [("a.npy", "npy"), ("a.npz", "npz"), ("a.gguf", "gguf"), ("a.msgpack", "flax"), ("a.joblib", "pickle")],
)
def test_the_one_model_of_a_folder_is_opened(name, format, tmp_path, run):
    folder = folder_with(tmp_path / format, name, "README.md", "config.json", "notes.txt")
    with pparse.view(folder) as model, pparse.view(folder / name) as alone:
        assert model.format == format
        assert list(model) == list(alone)
        for tensor in model.values():
            assert tensor.numpy().tobytes() == alone[tensor.name].numpy().tobytes()
            assert pickle.loads(pickle.dumps(tensor)).numpy().tobytes() == tensor.numpy().tobytes()
    beside = [f"taken: {name}", "beside it: README.md, config.json, notes.txt"]
    assert run("ls", folder).lines == [*run("ls", folder / name).lines, *beside]
    assert run("ls", f"{folder}::{name}").lines == run("ls", folder / name).lines
    out = tmp_path / f"{format}-out"
    assert run("recover", folder, "-o", out).code == 0
    assert (out / name).read_bytes() == (folder / name).read_bytes()


def test_the_files_of_a_split_model_are_one_model(tmp_path, run):
    folder = tmp_path / "f"
    folder.mkdir()
    for part in PARTS:
        shutil.copy(part, folder)
    with pparse.view(folder) as model:
        assert (len(model), model.is_set) == (20, True)
        copied = pickle.loads(pickle.dumps(model["blk.19.weight"]))
        assert copied.numpy().tobytes() == model["blk.19.weight"].numpy().tobytes()
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert "the model is in 3 files, which are saved one by one; name one: " in ran.err
    write(folder / "other.gguf")
    with pytest.raises(PathError, match=r"There are: model-00001-of-00003\.gguf, other\.gguf"):
        pparse.view(folder)


def test_several_models_are_listed_and_asked_for(tmp_path, run):
    folder = folder_with(tmp_path / "f", "b-2.npy", "b-1.npy", "a.npz", "notes.txt")
    assert run("ls", "-q", folder).lines == ["a.npz", "b-1.npy", "b-2.npy"]
    ran = run("check", folder)
    assert ran.code == 2
    assert "the folder holds several models" in ran.err
    assert "There are: a.npz, b-1.npy, b-2.npy" in ran.err


def test_files_that_are_named_like_models_do_not_count(tmp_path):
    folder = folder_with(tmp_path / "f", "a.npy")
    for name in ("empty.gguf", "words.npz", "list.pkl"):
        (folder / name).write_bytes({"list.pkl": pickle.dumps([1, 2])}.get(name, b""))
    (folder / "gone.gguf").symlink_to(tmp_path / "nowhere")
    with pparse.view(folder) as model:
        assert model.format == "npy"
    (folder / "a.npy").unlink()
    with pytest.raises(FormatError, match="no model recognised in this folder; name one of its files: empty"):
        pparse.view(folder)


def test_above_64_files_the_name_is_enough(tmp_path):
    folder = folder_with(tmp_path / "f", "z.npy")
    for number in range(64):
        (folder / f"{number}.npz").write_bytes(b"")
    with pparse.view(folder) as model:
        assert model.format == "npy"
    (folder / "y.npy").write_bytes(b"")
    with pytest.raises(PathError, match=r"There are: y\.npy, z\.npy"):
        pparse.view(folder)


def test_a_folder_of_safetensors_files_is_read_as_such(tmp_path):
    folder = tmp_path / "f"
    shutil.copytree("docs/samples/sharded", folder)
    write(folder / "a.npy")
    with pparse.view(folder) as model:
        assert model.format == "safetensors-folder"


def test_a_folder_in_an_archive_opens_as_its_model(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(GGUF / "layers.gguf", "one/m.gguf")
        for part in PARTS:
            archive.write(part, f"split/{part.name}")
    for name in ("one", "split"):
        with pparse.view(f"{tmp_path}/a.zip::{name}") as model:
            assert len(model) == 20
            copied = pickle.loads(pickle.dumps(model["blk.3.weight"]))
            assert copied.numpy().tobytes() == model["blk.3.weight"].numpy().tobytes()


def test_plug_ins_declare_models_as_built_in_formats_do(tmp_path):
    class ToyParser(pparse.Parser):
        name = "toy"
        extensions = (".toy",)
        signatures = (pparse.Signature(b"TOY!"),)

        def begin(self, ctx):
            return ctx.pos, pparse.DONE, 0

    class ToyViewer(pparse.Viewer):
        metadata = {}

        def tensors(self):
            return iter(())

        def find(self, name):
            return None

    folder = folder_with(tmp_path / "f", "notes.txt")
    (folder / "a.toy").write_bytes(b"TOY!")
    registry = Registry(plugins=False)
    registry.add(ToyParser, ToyViewer)
    with pparse.view(folder, registry=registry) as model:
        assert isinstance(model, ToyViewer)


def test_models_and_sets_of_data_are_told_by_what_parsers_declare():
    found = model_extensions()
    assert {".safetensors", ".gguf", ".npy", ".riegeli", ".array_record", ".tfrecord", ".tfrecords"} <= set(found)
    assert {".json", ".zip", ".pkl", ".bin", ".tar"}.isdisjoint(found)
    assert {known.name for known in BUILTINS if known.is_data_set} == {"riegeli", "tfrecord"}


def test_check_names_the_files_of_a_folder_that_it_did_not_look_at(tmp_path, run):
    folder = folder_with(tmp_path / "it", "other.npz", "notes.txt")
    shutil.copy("docs/samples/tiny-gpt.safetensors", folder / "m.safetensors")
    ran = run("check", folder)
    assert (ran.code, "1 other model file in this folder, not looked at: other.npz" in ran.out) == (0, True), ran.out
    (folder / "other.npz").unlink()
    zipfile.ZipFile(folder / "packed.zip", "w").close()
    (folder / "onnx").mkdir()
    shutil.copy("docs/samples/tiny.onnx", folder / "onnx")
    shutil.copy("docs/samples/tiny-gpt.pt", folder / "pytorch_model.bin")
    beside = "packed.zip, pytorch_model.bin, onnx/tiny.onnx"
    assert f"3 other model files in this folder, not looked at: {beside}" in run("check", folder).out
    assert f"also here: {beside} (not looked at" in run("ls", folder).out
    shutil.rmtree(folder / "onnx")
    for name in ("packed.zip", "pytorch_model.bin"):
        (folder / name).unlink()
    assert "not looked at" not in run("check", folder).out
