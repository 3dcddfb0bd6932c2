"""What ``ls``, ``info`` and ``check`` say of a folder: its models one by one, or which of them was taken for it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile

import pytest

import pparse
from pparse.document.inventory import Inventory
from pparse.parsers.pytorch.zero import STATES
from tests import zero_files
from tests.folder_trees import GPT, SAMPLES, TREES, fill
from tests.rows import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    return fill(tmp_path / "zoo", TREES["zoo"])


def test_a_folder_of_several_models_is_listed_one_a_row(zoo, run):
    ran = run("ls", zoo)
    assert ran.code == 3  # of the worst
    table = {line.split()[0]: line.split(maxsplit=4)[1:] for line in ran.lines[1:]}
    assert table["a.safetensors"] == ["safetensors", "21", "23.1", "KiB  complete, unverified"]
    assert table["b.pt"][:2] == ["pytorch", "23"]
    assert "truncated: its directory" in table["b.pt"][3]
    assert table["e.tar.gz"][0] == "gzip"
    assert table["f.jsonl"] == ["json-lines", "-", "18", "B  not looked into"]
    assert table["g.h5"][0::3] == ["hdf5", "B  not read yet (see 'pparse formats hdf5')"]
    assert "not readable: a Git LFS pointer" in table["h.safetensors"][3]
    assert "not readable: no parser recognises this text" in " ".join(table["words.npz"])
    assert table["many/"] == ["folder", "-", "36.2", "KiB  not looked into: 2 model files in it"]
    assert table["saved/"][:2] == ["saved-model", "31"]
    assert table["sharded/model.safetensors.index.json"][:2] == ["safetensors", "21"]
    assert ran.lines[-3] == "13 items, 107 tensors, 244 KiB: 1 not whole, 2 not readable, 5 not looked into"
    assert "2 other files: README.md, notes/a.txt" in ran.lines


def test_all_folders_below_are_gone_through(zoo, run):
    wanted = [
        *("a.safetensors", "b.pt", "c.gguf", "d.onnx", "e.tar.gz", "f.jsonl", "g.h5", "h.safetensors", "words.npz"),
        *("many/one.gguf", "many/two.gguf", "saved/", "sharded/model.safetensors.index.json"),
        *("steps/ckpt-1.index", "steps/ckpt-2.index"),
    ]
    assert run("ls", "-R", "-q", zoo).lines == wanted
    for name in wanted:  # as printed, so accepted
        assert run("info", "-q", zoo / name).code == run("check", "-q", zoo / name).code
    told = json.loads(run("ls", "-R", "--json", zoo).out)
    assert [row["name"] for row in told["models"]] == wanted
    assert {row["status"] for row in told["models"]} == {"complete", "truncated", "unreadable", None}
    assert (told["other_files"], told["others"]) == (3, ["README.md", "notes/a.txt", "steps/checkpoint"])
    assert run("ls", "-R", "-q", zoo, "*.gguf").lines == ["c.gguf", "many/one.gguf", "many/two.gguf"]


def test_each_model_of_a_folder_is_checked_and_described(zoo, run):
    ran = run("check", "-R", zoo)
    assert (ran.code, ran.lines[-1]) == (3, "14 files: 11 ok, 3 not")
    assert f"{zoo}/saved/: ok: 31 tensors; a checksum agrees for each" in ran.lines
    (zoo / "h.safetensors").unlink()
    (zoo / "words.npz").unlink()
    assert run("check", "-R", zoo).code == 4  # the worst of all
    (zoo / "b.pt").unlink()
    assert run("check", "-R", zoo).code == 0
    assert f"{zoo}/steps/ckpt-2.index: tf-checkpoint complete, unverified" in run("info", "-R", "-q", zoo).lines


def test_a_folder_says_what_it_holds(zoo, run):
    lines = run("info", zoo).lines
    assert "            2 × not readable" in lines
    assert "unreadable  1 file: a Git LFS pointer, not the file itself: run 'git lfs pull' to fetch it" in lines
    told = json.loads(run("info", "--json", zoo).out)
    assert (told["format"], len(told["models"])) == ("folder", 13)


def test_a_folder_in_an_archive_is_listed_alike(zoo, run, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in sorted(zoo.rglob("*")):
            archive.write(path, path.relative_to(tmp_path))
    for how in ((), ("-R",)):
        inside, outside = (run("ls", *how, place) for place in (tmp_path / "a.zip::zoo", zoo))
        assert inside.code == outside.code
        assert inside.lines[:-2] == outside.lines[:-2]
    assert run("check", "-R", tmp_path / "a.zip::zoo").lines[-1] == "14 files: 11 ok, 3 not"


def test_a_repository_opens_as_its_model_and_names_the_others(tmp_path, run):
    folder = fill(tmp_path / "hf", TREES["hf"])
    ran = run("ls", folder)
    rest = f"also here: pytorch_model.bin, onnx/model.onnx (not looked at; 'pparse ls -R {folder}' lists all models)"
    assert ran.lines[-3:] == ["taken: model.safetensors", rest, "beside it: config.json, tokenizer.json"]
    assert ran.lines[:-3] == run("ls", folder / "model.safetensors").lines
    assert "config      GPT2LMHeadModel, gpt2, float16" in run("info", folder).lines
    shown = ["model.safetensors", "pytorch_model.bin", "onnx/model.onnx"]
    assert run("ls", "-R", "-q", folder).lines == shown


def test_pipelines_and_served_versions_are_listed(tmp_path, run):
    pipeline = fill(tmp_path / "pipeline", TREES["pipeline"])
    found = ["unet/diffusion_pytorch_model.safetensors", "vae/diffusion_pytorch_model.safetensors"]
    assert run("ls", "-q", pipeline).lines == found
    assert "model_index StableDiffusionPipeline, 0.30.0" in run("info", pipeline).lines
    served = fill(tmp_path / "served", TREES["served"])
    assert run("ls", "-q", served).lines == ["1/", "2/"]


def test_a_download_cache_stands_for_its_snapshot(tmp_path, run):
    cache = fill(tmp_path / "hub" / "models--x--y", {"blobs/b": GPT, "refs/main": COMMIT})
    snapshot = cache / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/b")
    with pparse.view(cache) as model:
        assert len(model) == 21
    path = f"models--x--y/snapshots/{COMMIT}/model.safetensors"
    assert run("ls", "-q", tmp_path / "hub").lines == run("ls", "-Rq", tmp_path / "hub").lines == [path]
    ran = run("check", "-R", cache)
    assert (ran.code, f"{tmp_path / 'hub' / path}: ok: 21 tensors" in ran.out) == (0, True)


def test_a_folder_of_deepspeed_stands_for_the_step_that_its_latest_names(tmp_path, run):
    steps = [tmp_path / "run" / f"global_step{number}" for number in (6, 7)]
    for step, stage in zip(steps, (3, 2), strict=True):
        step.mkdir(parents=True)
        zero_files.write(step, stage)
    latest = steps[0].parent / "latest"
    for step in steps:
        latest.write_text(step.name)
        for command in (("check",), ("ls",), ("info",), ("convert", "-o", tmp_path / f"{step.name}.npz")):
            assert run(command[0], steps[0].parent, *command[1:]).code == 0, command
        with pparse.view(steps[0].parent) as model:
            assert (len(model), model.extraction.topmost.path) == (10, str(step))
    files = [f"{step.name}/{name}" for step, name in zip(steps, STATES[::-1], strict=True)]
    assert run("ls", "-Rq", steps[0].parent).lines == files
    assert f"{steps[1] / STATES[0]}: ok: 10 tensors" in run("check", "-R", steps[0].parent).out
    for text in ("../x", "global_step8", "/", ""):  # it names none
        latest.write_text(text)
        assert run("check", steps[0].parent).code == 3
    latest.write_text(steps[1].name)
    (latest.parent / "model.safetensors").write_bytes(GPT.read_bytes())
    with pparse.view(latest.parent) as model:
        assert len(model) == 21


def test_shards_without_an_index_are_one_item_and_not_beside_themselves(tmp_path, run):
    shards = {path.name: path for path in (SAMPLES / "sharded").glob("*.safetensors")}
    folder = fill(tmp_path / "f" / "set", {**shards, "tiny.gguf": SAMPLES / "tiny.gguf"})
    rest = f"also here: tiny.gguf (not looked at; 'pparse ls -R {folder}' lists all models)"
    assert run("ls", folder).lines[-2:] == ["taken: model-00001-of-00003.safetensors and 2 files of it", rest]
    told = run("ls", "-n", "1", folder).lines[-2:]  # the other shards were not opened
    assert told == ["taken: model-00001-of-00003.safetensors and 2 files of it", rest]
    assert run("ls", "-Rq", folder.parent).lines == ["set/", "set/tiny.gguf"]
    (folder / "tiny.gguf").unlink()
    assert run("ls", "-q", folder.parent).lines == ["set/"]


def test_a_file_in_parts_is_one_item(zoo, run, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    content = (zoo / "a.safetensors").read_bytes()
    for number, at in enumerate(range(0, len(content), 9_000)):
        (parts / f"m.safetensors.{number:03}").write_bytes(content[at : at + 9_000])
        (parts / f"m.gguf.{number}").write_bytes((zoo / "c.gguf").read_bytes())  # whole files, whatever their names
    packed = (zoo / "e.tar.gz").read_bytes()
    for letter in ("a", "b", "d"):  # c is missing
        (parts / f"x.tgz.part-a{letter}").write_bytes(packed[:20_000] if letter == "a" else packed[-20_000:])
    ran = run("ls", parts)
    assert [" ".join(line.split()) for line in ran.lines[1:3]] == [
        "m.safetensors.000 safetensors 21 23.1 KiB complete, unverified (3 parts)",
        "x.tgz.part-aa gzip - 78.1 KiB truncated: part .part-ac is missing; the first one has 20,000 bytes (3 parts)",
    ]
    assert "3 other files: m.gguf.0, m.gguf.1, m.gguf.2" in ran.lines
    assert "2 files: 1 ok, 1 not" in run("check", "-R", parts).lines


def test_what_was_not_looked_into_or_not_fetched_is_not_called_complete(tmp_path, run):
    folder = fill(tmp_path / "f", {"a.jsonl": '{"a": ', "x/a.gguf": b"GGUF", "x/b.gguf": b"GGUF"})
    assert "2 items, 14 B: 2 not looked into" in run("ls", folder).lines
    cache = fill(tmp_path / "hub" / "models--x--half", {"blobs/ab.incomplete": b"\x10" * 9, "refs/main": COMMIT})
    for command in (("ls",), ("ls", "-R"), ("check", "-R")):
        ran = run(*command, cache.parent)
        assert (ran.code, "its download is not finished" in ran.out + ran.err) in ((4, True), (3, False)), command
    assert run("ls", cache.parent).code == 4


@rows(("name", "content"), [("empty", {}), ("text", {"a.txt": "text"}), ("below", {"x/a.json": "{}"})])
def test_a_folder_without_models_is_told_as_before(name, content, tmp_path, run):
    folder = fill(tmp_path / name, content)
    for command in (("ls",), ("ls", "-R"), ("info",)):
        ran = run(*command, folder)
        assert (ran.code, ran.out) == (3, "")
        assert "no model recognised in this folder" in ran.err


def test_links_and_what_cannot_be_listed_do_no_harm(tmp_path, monkeypatch):
    folder = fill(tmp_path / "f", {"a.gguf": SAMPLES / "tiny.gguf", "b/c.gguf": SAMPLES / "tiny.gguf"})
    (folder / "b" / "loop").symlink_to(folder)
    (folder / "gone.gguf").symlink_to(tmp_path / "nowhere")
    scandir = os.scandir

    def refuse(path):
        if str(path).rstrip("/").endswith("/b"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    with pparse.open(str(folder)) as document:
        found = [(item.path, item.error and item.error.reason) for item in Inventory(document, deep=True)]
    gone = "gone.gguf", "cannot be opened: a link that leads nowhere"
    assert found == [("a.gguf", None), gone, ("b/c.gguf", None)]
    monkeypatch.setattr(os, "scandir", refuse)
    with pparse.open(str(folder)) as document:
        found = [(item.path, item.error and item.error.reason) for item in Inventory(document, deep=True)]
    assert found == [("a.gguf", None), gone, ("b/", "cannot list: Permission denied")]


def test_a_folder_of_several_models_says_how_all_are_checked(tmp_path, run):
    pipe = fill(tmp_path / "pipe", TREES["pipeline"])
    ran = run("check", pipe)
    assert ran.code == 3
    assert "config.json" not in ran.err
    assert f"'pparse check -R {pipe}' checks each" in ran.err
    (pipe / "unet").rename(tmp_path / "apart")
    for name in ("a.npy", "b.npy"):
        (pipe / name).write_bytes(b"")
    assert f"'pparse check -R {pipe}' checks each" in run("check", pipe).err
    several = fill(tmp_path / "several", {"a.safetensors": "", "b.safetensors": GPT, "c.pt": b"", "d.onnx": b"x"})
    said = f"the folder holds several models: 'pparse check -R {several}' checks each"
    assert said in run("check", several).err
    assert (
        f"e.g. {several}/b.safetensors. There are: b.safetensors, d.onnx, a.safetensors, c.pt"
        in run("check", several).err
    )


@rows(
    ("name", "content", "code", "reason"),
    [
        ("pytorch_model.bin", b"\xb2\xac\x4b" * 999, 3, "no parser recognises it"),
        ("p.pkl", b"\x03\x04" * 99, 4, "there is no opcode 0x03"),
    ],
)
def test_what_is_named_like_a_model_and_is_none_is_told(name, content, code, reason, tmp_path, run):
    files = {"a.safetensors": GPT, name: content, "scores.bin": b"\xb2\xac", "model.xml": "x", "model.bin": b"\xb2"}
    folder = fill(tmp_path / f"f_{code}", files)
    for command in ("ls", "check"):
        ran = run(command, "-R", folder)
        assert (ran.code, reason in ran.out + ran.err) == (code, True)
    assert run("ls", "-Rq", folder).lines == ["a.safetensors", name]
    fill(folder, {"b.safetensors": GPT})  # now it is no longer taken for one model
    assert (run("info", folder).code, run("ls", folder).code) == (code, code)
    (folder / "b.safetensors").unlink()
    assert f"unreadable: {name}: {reason}" in run("ls", folder).out
    assert f"other-files: a model by its name, and not readable: {reason}" in run("check", folder).out


def test_only_what_was_read_of_a_folder_is_called_taken(tmp_path, run):
    folder = fill(tmp_path / "f", {"pytorch_model.bin": b"\xb2\xac" * 99, "x.bin": SAMPLES / "tiny-gpt.pt"})
    assert run("ls", folder).lines[-2] == "taken: x.bin"
    assert run("ls", folder).lines[-1].startswith("unreadable: pytorch_model.bin: no parser recognises it")


def test_check_ends_with_what_is_not_ok_and_what_was_not_checked(tmp_path, run):
    cut = '{"model": {"vocab": {"a": 1, "b"'
    folder = fill(
        tmp_path / "f", {"m.safetensors": GPT, "tokenizer.json": cut, "z.h5": b"\x89HDF\r\n\x1a\n", "a.txt": ""}
    )
    ran = run("check", "-R", folder)
    assert ran.code == 4
    assert ran.lines[-3:] == [
        f"not ok: {folder}/tokenizer.json: the object ends early",
        f"not checked: 2 files: {folder}/z.h5 (hdf5, not read yet), {folder}/a.txt",
        "2 files: 1 ok, 1 not",
    ]
    assert run("check", "-R", "-q", folder).lines == []
    (folder / "tokenizer.json").write_text("[]")
    fill(folder, {"m.safetensors.sha256": hashlib.sha256(GPT.read_bytes()).hexdigest()})
    assert (run("check", "-R", folder).code, run("check", "-R", "--sha256", folder).code) == (0, 0)
    (folder / "tokenizer.json").unlink()
    assert "not checked: 3 files" in run("check", "-R", folder).lines[-1]


def test_a_part_of_a_pipeline_without_weights_is_missing(tmp_path, run):
    named = {
        "_class_name": "StableDiffusionPipeline",
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "image_encoder": [None, None],
        "safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"],
        "../up": ["diffusers", "X"],
    }
    files = {"model_index.json": json.dumps(named), "vae/config.json": "{}", "tokenizer/vocab.json": "{}"}
    folder = fill(tmp_path / "pipe", {**files, "unet/diffusion_pytorch_model.safetensors": GPT})
    lost = ["vae", "text_encoder", "../up"]
    words = "named by model_index.json, no weights"
    for command in ("ls", "info", "check"):
        ran = run(command, "-R", folder)
        assert ran.code == 4
        assert [name for name in named if f"{name}/" in ran.out + ran.err and name not in ("unet", "tokenizer")] == lost
    assert f"not ok: {folder}/vae/: {words}" in run("check", "-R", folder).lines
    assert [line.split(maxsplit=4)[4] for line in run("ls", folder).lines if line.startswith("vae/")] == [
        f"missing: {words}"
    ]
    for name in ("vae/x.safetensors", "text_encoder/pytorch_model.fp16.bin"):
        shutil.copy(GPT, fill(folder, {name: ""}) / name)
    del named["../up"]
    (folder / "model_index.json").write_text(json.dumps(named))
    assert run("ls", "-Rq", folder).code == 0
