"""`recover` and documents: what their own format says of them counts, and `check` comes to the same."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import pparse
import pparse.proto_splitter
from pparse.cli import main
from pparse.protos import message_class
from tests.conftest import safetensors as made
from tests.zip_samples import Archive, Made

SIZE = 1 << 14
VALUES = {"a": random.Random(1).randbytes(SIZE), "b": random.Random(2).randbytes(SIZE)}
HEADER = {
    name: {"dtype": "U8", "shape": [SIZE], "data_offsets": [number * SIZE, (number + 1) * SIZE]}
    for number, name in enumerate(VALUES)
}
MODEL = made(HEADER, b"".join(VALUES.values()))


def tarred(**files: bytes) -> bytes:
    """Return a tar of these files; ``__`` stands for a dot."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "."))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def recovered(run: Any, source: Path, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Recover a file; return the exit code, and the rows of the report by path."""
    out = source.parent / "out"
    code = run("recover", source, "-o", out, *words).code
    return code, {row["path"]: row for row in json.loads((out / "RECOVERY.json").read_text())["files"]}


def flipped(content: bytes, at: int) -> bytes:
    """Return ``content`` with one byte changed."""
    return content[:at] + bytes((content[at] ^ 0xFF,)) + content[at + 1 :]


# -- streams in archives --


def test_a_sound_stream_with_a_model_is_copied_out_of_an_archive_as_it_is(run, tmp_path) -> None:
    packed = gzip.compress(MODEL, mtime=0)
    source = tmp_path / "it.tar"
    source.write_bytes(tarred(m__safetensors__gz=packed))
    code, rows = recovered(run, source)
    assert (code, [row["status"] for row in rows.values()]) == (0, ["complete"])
    assert (tmp_path / "out" / "m.safetensors.gz").read_bytes() == packed


@pytest.mark.parametrize("damage", ["cut", "trailer", "middle"])
def test_what_is_saved_of_a_damaged_stream_has_the_name_of_its_content(run, tmp_path, damage) -> None:
    packed = gzip.compress(MODEL, mtime=0)
    if damage == "cut":
        packed = packed[: len(packed) // 2]
    else:
        packed = flipped(packed, len(packed) - 6 if damage == "trailer" else len(packed) * 3 // 4)
    source = tmp_path / "it.tar"
    source.write_bytes(tarred(m__safetensors__gz=packed))
    code, rows = recovered(run, source)
    assert code == 4 == run("check", "-R", source).code
    # A checksum that contradicts puts all of it in doubt; what is cut is as good as it goes.
    name = "m.safetensors" if damage == "cut" else "m.doubtful.safetensors"
    assert f"m.safetensors.gz/{name}" in rows
    assert all(row["status"] != "complete" for row in rows.values())
    safetensors = pytest.importorskip("safetensors")
    safetensors.deserialize((tmp_path / "out" / "m.safetensors.gz" / name).read_bytes())


def test_a_model_that_is_cut_where_its_format_may_end_keeps_its_name(run, tmp_path) -> None:
    graph = message_class("tensorflow.GraphDef")()
    for number in range(9):
        graph.node.add(name=f"node{number}", op="NoOp")
    whole = graph.SerializeToString()
    records = (Path(__file__).parents[1] / "docs" / "samples" / "digits.tfrecord").read_bytes()
    border = 16 + int.from_bytes(records[:8], "little")
    for name, content, cut in (("g.pb", whole, 5 * len(whole) // 9), ("d.tfrecord", records, border)):
        source = tmp_path / "it.zip"
        packed = Archive(Made(name, content)).whole
        source.write_bytes(packed[: packed.index(content) + cut])
        code, rows = recovered(run, source)
        assert (code, list(rows)) == (4, [name])
        assert (rows[name]["status"], rows[name]["gaps"]) == ("truncated", [[cut, len(content) - cut]])
        assert (tmp_path / "out" / name).read_bytes() == content[:cut]
        shutil.rmtree(tmp_path / "out")
    assert len(message_class("tensorflow.GraphDef").FromString(whole[: 5 * len(whole) // 9]).node) == 5


def test_a_model_that_is_cut_in_a_sound_stream_is_salvaged(run, tmp_path) -> None:
    source = tmp_path / "it.tar"
    source.write_bytes(tarred(m__safetensors__gz=gzip.compress(MODEL[:-100])))
    code, rows = recovered(run, source)
    assert code == 4
    assert rows["m.safetensors.gz/m.safetensors"]["status"] == "truncated"


# -- checksums of what is around --


@pytest.mark.parametrize("method", [0, 8])
def test_files_of_a_tar_are_in_doubt_if_the_checksum_of_the_tar_contradicts(run, tmp_path, method) -> None:
    inner = tarred(a__bin=bytes(range(256)) * 8, b__bin=bytes(5000))
    source = tmp_path / "it.zip"
    source.write_bytes(Archive(Made("in.tar", inner, method=method, crc=1)).whole)
    code, rows = recovered(run, source)
    assert code == 4 == run("check", "-R", source).code
    assert {path: row["status"] for path, row in rows.items()} == {
        "in.tar/a.bin": "damaged",
        "in.tar/b.bin": "damaged",
    }


# -- documents that are no containers --


@pytest.mark.parametrize("around", ["nothing", "zip"])
def test_bytes_of_a_document_that_are_damaged_are_in_doubt_and_no_others(run, tmp_path, around) -> None:
    text = b'[{"id": 1}, {"id": 2\0\0 {"id": 3}, {"id": 4}]'
    source = tmp_path / ("a.json" if around == "nothing" else "it.zip")
    source.write_bytes(text if around == "nothing" else Archive(Made("a.json", text), Made("b.txt", b"hello")).whole)
    code, rows = recovered(run, source)
    assert code == 4
    doubtful = {at for start, length in rows["a.json"]["doubtful"] for at in range(start, start + length)}
    assert set(range(text.index(b"\0"), text.rindex(b"\0") + 1)) <= doubtful
    assert doubtful <= set(range(text.index(b"}"), text.rindex(b"{")))  # the first and the last element are not


@pytest.mark.parametrize("content", [b'{"a": [1, 2], "b": \x98}', b'{"a": [1, 2', b'{"a": 01}'])
@pytest.mark.parametrize("where", ["plain", "tar"])
def test_recover_and_check_agree_on_a_document_that_its_own_parser_refuses(run, tmp_path, content, where) -> None:
    source = tmp_path / ("it.json" if where == "plain" else "it.tar")
    source.write_bytes(content if where == "plain" else tarred(it__json=content))
    code, rows = recovered(run, source)
    assert code == 4 == run("check", "-R", source).code
    assert rows["it.json"]["status"] != "complete"
    assert rows["it.json"]["reason"]
    assert (tmp_path / "out" / "it.json").read_bytes() == content


def test_a_document_that_is_sound_is_complete_by_both(run, tmp_path) -> None:
    source = tmp_path / "it.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("it.json", '{"a": [1, 2]}')
    code, rows = recovered(run, source)
    assert (code, rows["it.json"]["status"], rows["it.json"]["verified"]) == (0, "complete", True)
    assert run("check", "-R", source).code == 0


# -- warnings --


def test_warnings_are_no_damage_but_with_strict(run, tmp_path) -> None:
    source = tmp_path / "it.gz"
    source.write_bytes(gzip.compress(b"hello") + b"trailing bytes")
    for command in ("ls", "info", "check"):
        assert run(command, source).code == 0, command
        assert run(command, "--strict", source).code == 4, command
    assert run("extract", source, "-o", tmp_path / "extracted").code == 0
    assert run("extract", "--strict", source, "-o", tmp_path / "again").code == 4
    code, rows = recovered(run, source)
    assert (code, rows["it"]["status"]) == (0, "complete")
    assert run("recover", "--strict", source, "-o", tmp_path / "strict").code == 4


# -- models that their library refuses --


def test_bytes_behind_the_last_tensor_are_cut_off_so_that_the_library_loads_the_file(run, tmp_path) -> None:
    safetensors = pytest.importorskip("safetensors")
    source = tmp_path / "it.safetensors"
    padding = -len(MODEL) % 512
    assert padding
    for count, name, why in (
        (padding, "it.safetensors", f"{padding:,} bytes, left out"),
        (padding + 1, "it.doubtful.safetensors", "may be wrong"),  # no block ends there: they may have been pushed out
    ):
        source.write_bytes(MODEL + bytes(count))
        code, rows = recovered(run, source)
        assert (code, rows[name]["status"]) == (4, "damaged")
        assert why in rows[name]["reason"]
        saved = dict(safetensors.deserialize((tmp_path / "out" / name).read_bytes()))
        assert {tensor: bytes(what["data"]) for tensor, what in saved.items()} == VALUES
        shutil.rmtree(tmp_path / "out")


def test_a_file_with_a_gap_between_tensors_is_written_so_that_the_library_loads_it(run, tmp_path) -> None:
    safetensors = pytest.importorskip("safetensors")
    text = b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}'
    source = tmp_path / "it.safetensors"
    source.write_bytes(len(text).to_bytes(8, "little") + text + b"12x34")
    code, rows = recovered(run, source)
    assert code == 4 == run("check", source).code  # the library refuses it
    assert rows["it.safetensors"]["status"] == "damaged"
    found = dict(safetensors.deserialize((tmp_path / "out" / "it.safetensors").read_bytes()))
    assert {name: bytes(tensor["data"]) for name, tensor in found.items()} == {"a": b"12", "b": b"34"}


# -- models in shards --


def sharded(folder: Path) -> dict[str, bytes]:
    """Write a model of three shards, of two tensors each, with an index; return its tensors."""
    values = {f"t{number}": random.Random(number).randbytes(3000 + number) for number in range(6)}
    mapped = {}
    for shard in range(3):
        name = f"model-{shard + 1:05}-of-00003.safetensors"
        header, data = {}, b""
        for tensor in (f"t{2 * shard}", f"t{2 * shard + 1}"):
            content = values[tensor]
            header[tensor] = {"dtype": "U8", "shape": [len(content)], "data_offsets": [len(data), len(data + content)]}
            data += content
            mapped[tensor] = name
        (folder / name).write_bytes(made(header, data))
    index = {"metadata": {"total_size": sum(map(len, values.values()))}, "weight_map": mapped}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return values


def loaded(folder: Path) -> dict[str, bytes]:
    """Load a model in shards as its libraries do, by the index."""
    safetensors = pytest.importorskip("safetensors")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found = {}
    for shard in dict.fromkeys(index["weight_map"].values()):
        tensors = dict(safetensors.deserialize((folder / shard).read_bytes()))
        for name, mapped in index["weight_map"].items():
            if mapped == shard:
                found[name] = bytes(tensors[name]["data"])
    assert index["metadata"]["total_size"] == sum(map(len, found.values()))
    return found


@pytest.mark.parametrize("what", ["folder", "index"])
def test_of_a_set_with_a_shard_missing_and_one_cut_a_set_that_loads_is_saved(run, tmp_path, what) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    values = sharded(folder)
    (folder / "model-00001-of-00003.safetensors").unlink()
    cut = folder / "model-00003-of-00003.safetensors"
    cut.write_bytes(cut.read_bytes()[:-10])
    source = folder if what == "folder" else folder / "model.safetensors.index.json"
    out = tmp_path / "out"
    assert run("recover", source, "-o", out).code == 4
    assert loaded(out) == {name: values[name] for name in ("t2", "t3", "t4")}
    report = json.loads((out / "RECOVERY.json").read_text())["files"]
    rows = {row["path"] or row["raw_name"]: row["status"] for row in report}
    assert rows["model-00001-of-00003.safetensors"] == "missing"
    assert rows["model-00002-of-00003.safetensors"] == "complete"
    assert rows["model-00003-of-00003.safetensors"] == "truncated"
    rest = json.loads((out / "model.safetensors.index.json.rest.json").read_text())["lost"]
    assert [entry["name"] for entry in rest] == ["t0", "t1", "t5"]
    assert (out / "model-00003-of-00003.safetensors.rest.json").exists()


@pytest.mark.parametrize("what", ["folder", "index"])
def test_a_set_that_is_whole_is_copied_as_it_is(run, tmp_path, what) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    sharded(folder)
    out = tmp_path / "out"
    assert run("recover", folder if what == "folder" else folder / "model.safetensors.index.json", "-o", out).code == 0
    for path in folder.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()
    assert len(list(out.iterdir())) == 5


def test_shards_without_an_index_are_saved_one_by_one(run, tmp_path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    sharded(folder)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00002-of-00003.safetensors").unlink()
    out = tmp_path / "out"
    assert run("recover", folder, "-o", out).code == 4
    names = {path.name for path in out.iterdir()}
    assert names == {"RECOVERY.json", *(path.name for path in folder.iterdir())}


def test_a_sound_archive_with_an_index_and_its_shards_is_sound(run, tmp_path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    sharded(folder)
    source = tmp_path / "it.tar"
    with tarfile.open(source, "w") as archive:
        archive.add(folder, "in")
    ran = run("check", "-R", "--json", source)
    assert (ran.code, [row["severity"] for row in ran.json["findings"]]) == (0, ["note"])
    code, rows = recovered(run, source)
    assert (code, {row["status"] for row in rows.values()}) == (0, {"complete"})


# -- advice ------------------------------------------------------------------------------------------------------------


def test_a_folder_without_a_model_is_not_told_to_name_a_format(run, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    assert "this folder; it holds no files" in run("ls", folder).err
    (folder / "notes.txt").write_text("some words\n")
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 3
    assert "-f" not in ran.err
    assert "run it on each other file separately" in ran.err
    assert "name a file to look into it" in run("ls", folder).err


def test_what_no_parser_recognises_gets_a_next_step_that_can_help(run, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("some words of text\n")
    assert "'pparse formats'" in run("ls", path).err
    assert "name the format with -f" in run("recover", path, "-o", tmp_path / "out").err
    # Whoever named one is not told to name one.
    assert "name the format with -f" not in run("recover", "-f", "zip", path, "-o", tmp_path / "out").err


@pytest.mark.parametrize("where", ["folder", "tar"])
@pytest.mark.parametrize("name", ["saved_model.cpb", "saved_model.pb"])
def test_of_a_saved_model_folder_the_model_is_written_whole(where, name, tmp_path):
    samples = Path(__file__).parent.parent / "docs" / "samples" / "chunked-model"
    model = tmp_path / "sm"
    model.mkdir()
    content = (samples / "saved_model.cpb").read_bytes()
    if name.endswith(".pb"):
        pparse.proto_splitter.merge_to_file(samples / "saved_model.cpb", model / name)
        content = (model / name).read_bytes()
    else:
        (model / name).write_bytes(content)
    source = str(model)
    if where == "tar":
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            archive.add(model, "sm")
        source = f"{tmp_path}/a.tar::sm"
    assert main(["recover", source, "-o", str(tmp_path / "out"), "-q"]) == 0
    assert (tmp_path / "out" / name).read_bytes() == content


def test_of_a_cut_saved_model_folder_nothing_is_called_whole(tmp_path):
    samples = Path(__file__).parent.parent / "docs" / "samples" / "chunked-model"
    model = tmp_path / "sm"
    model.mkdir()
    content = (samples / "saved_model.cpb").read_bytes()
    (model / "saved_model.cpb").write_bytes(content[: len(content) // 2])
    assert main(["recover", str(model), "-o", str(tmp_path / "out"), "-q"]) == 4
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.name != "RECOVERY.json") > 1_000


@pytest.mark.parametrize("name", ["blobs/sha256/0123456789abcdef", "x-1.0-py3-none-any.whl"])
def test_a_cut_archive_in_an_archive_is_entered_whatever_its_name_is(run, tmp_path, name) -> None:
    rng = random.Random(4)
    files = {"data/a": rng.randbytes(3000), "data/b": rng.randbytes(3000)}
    inner = io.BytesIO()
    if name.endswith(".whl"):
        with zipfile.ZipFile(inner, "w") as archive:
            for member, content in files.items():
                archive.writestr(member, content)
        packed = inner.getvalue()
    else:
        packed = gzip.compress(tarred(**files), mtime=0)
    source = tmp_path / "image.tar"
    source.write_bytes(tarred(**{name.replace(".", "__"): packed[: len(packed) * 2 // 3]}))
    code, rows = recovered(run, source)
    assert (code, run("check", "-R", source).code) == (4, 4)
    assert {path: row["status"] for path, row in rows.items()} == {
        f"{name}/data/a": "complete",
        f"{name}/data/b": "truncated",
    }
    assert (tmp_path / "out" / name / "data" / "a").read_bytes() == files["data/a"]

    source.write_bytes(tarred(**{name.replace(".", "__"): packed}))
    shutil.rmtree(tmp_path / "out")
    code, rows = recovered(run, source)
    assert (code, {path: row["status"] for path, row in rows.items()}) == (0, {name: "complete"})
