"""What commands answer where there is nothing to answer with: empty files, names that nothing has, no index."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import random
import re
import sys
import tarfile
import zipfile

import numpy as np
import pytest

import pparse
from tests import dcp_files, zero_files
from tests.conftest import safetensors
from tests.rows import rows


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "it.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("readme.txt", b"text")
        made.writestr("d/last.txt", b"more")
    return path


@pytest.mark.parametrize("command", ["ls", "check", "recover"])
@pytest.mark.parametrize("name", ["it", "it.zip", "it.cpb", "it.npz"])
@pytest.mark.parametrize("content", [b"", bytes(100), bytes(3 << 20)], ids=["empty", "zeros", "many zeros"])
def test_a_file_of_nothing_is_damaged_whatever_its_name_says(run, tmp_path, content, name, command) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    ran = run(command, path, *(("-o", tmp_path / "o") if command == "recover" else ()))
    assert ran.code == 4
    # Zeros that are called .cpb are one that was not written: it is known what should be there.
    said = "its beginning is lost" if name == "it.cpb" and content else "zeros" if content else "the file is empty"
    assert said in ran.err + ran.out
    assert "-f" not in ran.err


@pytest.mark.parametrize("name", ["it.gguf", "it.npy", "it.joblib", "it.pkl", "it.msgpack"])
@pytest.mark.parametrize("command", ["ls", "info", "check"])
def test_an_empty_file_is_said_to_be_empty_in_one_line(run, tmp_path, name, command) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    ran = run(command, path)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err == f"pparse: {path}: the file is empty\n"
    with pytest.raises(pparse.NothingThereError):
        pparse.view(path)


@pytest.mark.parametrize("shape", [(50, 4), (1, 4)])
def test_a_byte_that_is_missing_is_one(run, tmp_path, shape) -> None:
    whole = io.BytesIO()
    np.save(whole, np.zeros(shape))
    path = tmp_path / "a.npy"
    path.write_bytes(whole.getvalue()[:-1])
    size = len(whole.getvalue())
    assert f"{size - 1:,} of {size:,} bytes are there, 1 byte is missing" in run("ls", path).out
    assert "the file ends early\n" in run("check", path).out
    assert "wanted 1, got 0" not in run("check", path).out
    ran = run("get", path, "a")
    assert ("49 of its 50 rows are whole" if shape[0] == 50 else "0 of its 1 row are whole") in ran.err
    assert "--partial prefix" in ran.err
    assert "--partial prefix" not in run("get", path, "a[-1:, 3:]").err
    rows = run("get", path, "a", "--partial", "prefix", "--json")
    assert json.loads(rows.out)["shape"] == [shape[0] - 1, 4]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("name", ["a.npy", "a.pkl"])
def test_a_compressed_model_that_is_cut_tells_where_to_resume(run, tmp_path, pack, name) -> None:
    values = np.arange(9000.0)
    whole = io.BytesIO()
    np.save(whole, values)
    content = whole.getvalue() if name == "a.npy" else pickle.dumps({"a": values})
    packed = pack(content)
    path = tmp_path / name
    path.write_bytes(packed[:-1])
    ran = run("check", path)
    assert ran.code == 4
    assert ran.lines[-2].startswith(f"resume the download at byte {len(packed) - 1} of ")
    if pack is not bz2.compress:  # its last block is the content
        assert f"truncated: the compressed data end early, after {len(content):,} bytes of content" in ran.out
    if pack is gzip.compress:
        path.write_bytes(packed[: len(packed) // 2])
        assert re.search(r"truncated: [\d,]+ of (at least )?[\d,]+ decoded bytes are there", run("ls", path).out)


def test_binary_data_on_a_terminal_names_the_tensor_instead(run, tmp_path, monkeypatch) -> None:
    whole = io.BytesIO()
    np.save(whole, np.zeros(9))
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("a.npy", whole.getvalue())
        made.writestr("b.bin", bytes(range(256)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for arguments in ((f"{path}::a.npy",), (path, "a.npy")):
        ran = run("get", *arguments)
        assert ran.code == 2
        assert ran.err.endswith(f"or name a tensor of it: pparse get {path}::a.npy a\n")
    assert run("get", path, "b.bin").err.endswith("use -o FILE or a pipe\n")


def test_zeros_before_something_unknown_are_no_file_of_nothing(run, tmp_path) -> None:
    path = tmp_path / "it"
    path.write_bytes(bytes(4 << 20) + b"\x93no format of ours\xff" * 9)
    assert run("ls", path).code == 3


@pytest.mark.parametrize("more", [(), ("--json",), ("--jsonl",), ("-q",)])
def test_ls_ends_with_2_if_nothing_matches(run, archive, model, more) -> None:
    ran = run("ls", archive, "zzz*", *more)
    assert ran.code == 2
    assert ran.err == "pparse: no name matches 'zzz*'\n"
    assert run("ls", model({"a": ("U8", [1], b"1")}), "zzz*", *more).code == 2


def test_the_summary_of_ls_counts_all_members_whatever_matches(run, archive) -> None:
    ran = run("ls", archive, "d/*")
    assert ran.code == 0
    assert "1 of 2 members match" in ran.lines
    assert ran.lines[-1].startswith("zip, 2 files")


@pytest.mark.parametrize("name", ["nosuch.txt", "d/nosuch.txt"])
def test_get_names_a_member_that_is_not_there_as_it_was_typed(run, archive, name) -> None:
    ran = run("get", archive, name)
    assert ran.code == 2
    assert ran.err.startswith(f"pparse: {name}: no member and no node has this name")


def test_get_says_that_an_archive_is_cut_that_may_have_had_the_member(run, tmp_path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name in ("a.bin", "d/last.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5_000
            made.addfile(info, io.BytesIO(bytes(range(250)) * 20))
    path = tmp_path / "it.tar.gz"
    path.write_bytes(gzip.compress(file.getvalue(), 0, mtime=0)[:4_000])
    ran = run("get", path, "d/last.txt")
    assert ran.code == 4
    assert "d/last.txt: no member of this name in the archive, which is truncated" in ran.err


def test_info_reads_to_the_checksum_of_a_stream_around(run, tmp_path) -> None:
    noise = random.Random(1).randbytes
    texts = b"".join(b"\xa1%d\xdb" % number + (15_000).to_bytes(4, "big") + noise(15_000) for number in range(9))
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, content in (("m.msgpack", b"\x89" + texts), ("behind", noise(400_000))):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    damaged = bytearray(gzip.compress(file.getvalue(), mtime=0))
    damaged[-6] ^= 1
    (tmp_path / "it.tar.gz").write_bytes(damaged)
    ran = run("info", tmp_path / "it.tar.gz::m.msgpack")
    assert ran.code == 4
    assert "its map is damaged" in ran.out + ran.err


def test_index_says_whether_one_was_written(run, tmp_path) -> None:
    packed = gzip.compress(b"".join(b"%d " % number for number in range(40_000)), mtime=0)
    path = tmp_path / "cut.gz"
    path.write_bytes(packed[:50_000])
    assert run("index", path).err.endswith("; the index of the part before that was written\n")
    assert (tmp_path / "cut.gz.pindex").exists()
    damaged = bytearray(packed)
    damaged[-6] ^= 1
    path = tmp_path / "damaged.gz"
    path.write_bytes(damaged)
    ran = run("index", path)
    assert ran.code == 4
    assert ran.err.endswith("; no index was written\n")
    assert not (tmp_path / "damaged.gz.pindex").exists()


# -- members that are no files ----------------------------------------------------------------------------------------

COMMANDS = (("info",), ("ls",), ("check",), ("tree",), ("get",), ("recover", "-o", "out"))


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The same folder, files and a link in archives of three kinds, and one that is cut in its second file."""
    monkeypatch.chdir(tmp_path)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, kind in (("folder", tarfile.DIRTYPE), ("folder/link", tarfile.SYMTYPE), ("folder/empty", b"0")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a.txt" if kind == tarfile.SYMTYPE else ""
            made.addfile(info)
        for name in ("folder/a.txt", "folder/b.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5_000
            made.addfile(info, io.BytesIO(b"text\n" * 1_000))
        made.addfile(tarfile.TarInfo("conf.json"))
    (tmp_path / "x.tar").write_bytes(file.getvalue())
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(file.getvalue(), mtime=0))
    (tmp_path / "cut.tar.gz").write_bytes(gzip.compress(file.getvalue(), 0, mtime=0)[:10_000])
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as made:
        made.writestr("folder/", b"")
        made.writestr("folder/a.txt", b"text")
        made.write(tmp_path / "x.tar.gz", "folder/x.tar.gz")


@rows("command", COMMANDS)
@rows("archive", ["x.tar", "x.tar.gz", "x.zip", "x.zip::folder/x.tar.gz"])
@rows("name", ["folder", "folder/"])
def test_a_folder_of_an_archive_is_no_empty_file(run, folders, archive, name, command):
    ran = run(command[0], f"{archive}::{name}", *command[1:])
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"pparse: {name}: it is a folder in the archive; pparse ls {archive} 'folder/*' lists it\n"
    assert run("ls", archive, "folder/*", "-q").lines


@pytest.mark.parametrize("command", COMMANDS)
def test_a_link_of_an_archive_is_no_empty_file(run, folders, command):
    ran = run(command[0], "x.tar.gz::folder/link", *command[1:])
    assert (ran.code, ran.out) == (2, "")
    assert "folder/link: it is a symlink to 'a.txt' in the archive" in ran.err


def test_an_empty_file_of_an_archive_is_one(run, folders):
    assert "the file is empty" in run("info", "x.tar::folder/empty").err
    assert run("get", "x.tar::folder/empty").code == 0


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["conf.json", "conf.json::header", "a::b"])
def test_a_member_that_may_lie_behind_the_cut_is_answered_with_that(run, folders, command, name):
    ran = run(command[0], f"cut.tar.gz::{name}", *command[1:])
    assert (ran.code, ran.out) == (4, "")
    first = name.partition("::")[0]
    assert f"{first}: no member of this name in the archive, which is truncated" in ran.err
    whole = run(command[0], "x.tar.gz::nope", *command[1:])
    assert (whole.code, "holds no such member" in whole.err) == (2, True)


# -- one of something --------------------------------------------------------------------------------------------------


def test_one_of_something_is_not_told_in_the_plural(run, tmp_path, model):
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as made:
        made.writestr("a", b"text")
    assert "directory   1 entry at 35" in run("info", tmp_path / "one.zip").lines
    path = model({"a": ("F32", [], bytes(4))})
    assert "1 parameter (float32 1)" in run("ls", path).out
    assert "parameters  1 (float32 1)" in run("info", path).lines
    assert "(1 of 1 name)" in run("ls", model({"abc": ("U8", [], b"1")}), "b").err


def test_one_shard_that_a_cut_index_does_not_name_is_beside_it(run, tmp_path, model):
    folder = tmp_path / "m"
    folder.mkdir()
    for number in (1, 2):
        model({f"t{number}": ("U8", [1], b"1")}, f"m/model-0000{number}-of-00002.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text('{"metadata": {}, "weight_map": {"t1": "model-00001-of-00002.safetensors", "t2')
    ran = run("ls", index)
    assert ran.code == 4
    assert "1 shard that it does not name (model-00002-of-00002.safetensors) is beside it, and is shown too" in ran.out


@pytest.mark.parametrize("name", ["", "epoch", "h"])
@pytest.mark.parametrize("source", ["tiny-gpt.pt", "backup.tar.gz", "run.npz"])
def test_what_is_saved_in_a_member_is_no_member(run, samples, tmp_path, source, name):
    for command in ("ls", "info", "tree", "check", "get", "recover", "extract", "convert"):
        more = ("-o", tmp_path / "out.npz") if command in ("recover", "extract", "convert") else ()
        ran = run(command, f"{samples}/{source}::{name}", *more)
        assert (ran.code, ran.out) == (2, "")
        assert ("no such member" if name else "no name follows") in ran.err


@rows(
    "file, path, told",
    [
        ("tiny-gpt.safetensors", "metadata.license", "Apache-2.0"),
        ("tiny.gguf", "metadata.general.name", "tiny"),
        ("tiny.gguf", "metadata.tokenizer.ggml.tokens[1]", "<1>"),
        ("tiny.onnx", "metadata.producer_name", '"make_onnx"'),
        ("tiny.onnx", "metadata.opset_imports.ai.onnx", "17"),
        ("tiny-gpt.pt", "metadata.config.layers", "2"),
        ("tiny-gpt.pt", "config.layers", "2"),  # by its own path, as before
        ("tiny-flax.msgpack", "metadata.opt_state.2.0", "0.5"),
        ("sharded", "metadata.total_size", "21952"),
        ("saved-model", "metadata.fingerprint.uuid", '"4576675042945475937775381243335746406"'),
        ("saved-model", "meta_graphs[0].tensorflow_version", '"2.21.0"'),
        ("training", "metadata.optimizer_slots", '{"m": 6, "v": 6}'),
        ("records.riegeli", "metadata.file_comment", "readings of a day"),
    ],
)
def test_metadata_have_one_path_in_every_format(run, samples, file, path, told):
    ran = run("get", f"{samples}/{file}", path)
    assert (ran.code, ran.out.strip()) == (0, told)


def test_all_metadata_are_one_document(run, samples):
    found = json.loads(run("get", f"{samples}/tiny.onnx", "metadata").out)
    assert found["opset_imports"] == {"ai.onnx": 17}
    ran = run("get", f"{samples}/tiny.onnx", "metadata.nothing")
    assert (ran.code, ran.out) == (2, "")


def _shards(folder) -> str:
    """Write a sharded model of two files; return the name of the second."""
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    where = {}
    for name in names:
        values = np.arange(1000, dtype="f4").tobytes()
        told = {f"t{names.index(name)}{at}": (4000 * at, 4000 * (at + 1)) for at in range(3)}
        header = {one: {"dtype": "F32", "shape": [10, 100], "data_offsets": places} for one, places in told.items()}
        (folder / name).write_bytes(safetensors(header, 3 * values))
        where |= dict.fromkeys(told, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return names[1]


def _chunks(folder) -> str:
    for name, content in dcp_files.sample()[0].files.items():
        (folder / name).write_bytes(content)
    return dcp_files.shard_name(1)


def _ranks(stage):
    return lambda folder: (zero_files.write(folder, stage), zero_files.name_of(1))[1]


LAYOUTS = {"shards": _shards, "distcp": _chunks, "zero 2": _ranks(2), "zero 3": _ranks(3)}


@rows("layout", LAYOUTS)
@rows("fault", ["cut", "gone"])
def test_a_tensor_has_one_status_and_one_reason_whoever_is_asked(run, tmp_path_factory, layout, fault) -> None:
    root = tmp_path_factory.mktemp("one")
    for name in ("whole", "it"):
        (root / name).mkdir()
        lost = LAYOUTS[layout](root / name)
    folder, path = root / "it", root / "it" / lost
    content = path.read_bytes()
    path.unlink()
    if fault == "cut":
        path.write_bytes(content[: len(content) // 2])
    with pparse.view(folder) as model:
        listed = {one.name: (str(one.status), one.finding.reason) for one in model.tensors() if not one.is_complete}
        assert {name: (str(model[name].status), model[name].finding.reason) for name in listed} == listed
    assert listed
    assert {status for status, _ in listed.values()} <= {"truncated", "missing"}
    out = root / "out"
    ran = {
        "ls": run("ls", folder),
        "stats": run("stats", folder),
        "hash": run("hash", "-t", folder),
        "diff": run("diff", root / "whole", folder),
        "convert": run("convert", folder, "-o", root / "it.npz"),
        "recover": run("recover", folder, "-o", out),
    }
    assert all(one.code == 4 for one in ran.values())
    assert "beside its tensors" not in ran["convert"].err or layout == "distcp"  # which has objects beside them
    saved = {one["raw_name"]: one for one in json.loads((out / "RECOVERY.json").read_text())["files"]}
    assert "none" not in saved  # which has no bytes, and lacks none
    for number, (name, (status, reason)) in enumerate(listed.items()):
        for command, said in ran.items():
            if command != "recover":
                line = next((one for one in (said.out + said.err).splitlines() if name in one and reason in one), "")
                assert f"{status}: {reason}" in line or (command == "hash" and number > 2), (command, name)
        got = run("get", folder, name, "--json")
        assert (got.code, reason in got.err) == (4, True), name
        entry = saved.get(name)
        if entry is None:  # of an index, its file says it
            assert layout == "shards"
        else:
            assert entry["status"] == status
            assert reason in entry["reason"] or "bytes are there" in reason, name
    if layout != "shards":  # an index does not say of what type and shape they are
        assert "are not all known" not in ran["hash"].err


def test_what_diff_lacks_is_named(run) -> None:
    assert "required: NEW;" in run("diff", "a").err


def test_recover_counts_the_checksums_of_chunks_as_check_does(run, tmp_path) -> None:
    _chunks(tmp_path)
    assert "6 tensors; a checksum agrees for each\n" in run("check", tmp_path).out
    assert "a checksum agrees for each of 6 parts of them" in run("recover", tmp_path, "-o", tmp_path / "o").out
