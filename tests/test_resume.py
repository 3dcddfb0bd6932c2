"""What people are told to resume: the outermost file, if that is what was cut; of a set, every file."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

import pparse
from pparse.document.opening import Resume, outside
from pparse.errors import SourceError
from tests import onnx_files
from tests.truth.samples import load

SAMPLES = Path(__file__).resolve().parent.parent / "docs" / "samples"
MODEL = (SAMPLES / "tiny-gpt.safetensors").read_bytes()
NAME = "model.safetensors"


def in_zip(content: bytes, method: int = zipfile.ZIP_STORED, name: str = NAME) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr(name, content)
    return made.getvalue()


def in_tar(content: bytes, name: str = NAME) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


CUT = {  # the file as it was cut, and the path inside it
    "zip": (in_zip(MODEL)[:14_000], f"::{NAME}"),
    "deflated zip": (in_zip(MODEL, zipfile.ZIP_DEFLATED)[:6_000], f"::{NAME}"),
    "tar": (in_tar(MODEL)[:14_000], f"::{NAME}"),
    "tar.gz": (gzip.compress(in_tar(MODEL))[:6_000], f"::{NAME}"),
    "gz": (gzip.compress(MODEL)[:6_000], ""),
    "gz in a tar": (in_tar(gzip.compress(MODEL), f"{NAME}.gz")[:6_000], f"::{NAME}.gz"),
    "zip in a tar": (in_tar(in_zip(MODEL), "a.zip")[:14_000], f"::a.zip::{NAME}"),
}


@pytest.mark.parametrize("kind", CUT)
def test_of_a_cut_archive_the_archive_is_resumed_not_the_model_in_it(run, tmp_path, kind):
    content, inside = CUT[kind]
    path = tmp_path / "packed.bin"
    path.write_bytes(content)
    name = f"{path}{inside}"
    for command in ("info", "check", "ls"):
        ran = run(command, name)
        assert ran.code == 4
        assert f"resume the download at byte {len(content)} of {path} (curl -C - does so)" in ran.lines, ran.out
        extent = run(command, name, "--json").json["extent"]
        assert (extent["resume_at"], extent["resume_file"]) == (len(content), str(path))
        assert extent["resume"] == [{"file": str(path), "at": len(content)}]


WHOLE_AROUND = {
    "zip": (in_zip(MODEL[:14_000]), f"::{NAME}"),
    "deflated zip": (in_zip(MODEL[:14_000], zipfile.ZIP_DEFLATED), f"::{NAME}"),
    "tar.gz": (gzip.compress(in_tar(MODEL[:14_000])), f"::{NAME}"),
    "cut gz in a tar": (in_tar(gzip.compress(MODEL)[:6_000], f"{NAME}.gz"), f"::{NAME}.gz"),
}


@pytest.mark.parametrize("kind", WHOLE_AROUND)
def test_what_was_cut_before_it_was_packed_is_no_download_to_resume(run, tmp_path, kind):
    content, inside = WHOLE_AROUND[kind]
    path = tmp_path / "packed.bin"
    path.write_bytes(content)
    for command in ("info", "check", "ls"):
        ran = run(command, f"{path}{inside}")
        assert ran.code == 4
        assert "resume the download at" not in ran.out
        assert f"no download to resume: {path} around it is not truncated;" in ran.out
        extent = run(command, f"{path}{inside}", "--json").json["extent"]
        assert (extent["resume_at"], extent["resume_file"], extent["resume"]) == (None, None, [])


def test_of_a_cut_document_without_tensors_the_archive_around_it_is_resumed(run, tmp_path):
    text = b'{"rows": [' + b"123456789, " * 2_000 + b"0]}"
    path = tmp_path / "packed.tar"
    path.write_bytes(in_tar(text, "rows.json")[:9_000])
    for command in ("info", "check", "ls"):
        assert f"resume the download at byte 9000 of {path}" in run(command, f"{path}::rows.json").out
    assert run("info", "--json", f"{path}::rows.json").json["resume"] == [{"file": str(path), "at": 9000}]
    path.write_bytes(in_tar(text[:9_000], "rows.json"))
    for command in ("info", "check", "ls"):
        assert "resume the download at" not in run(command, f"{path}::rows.json").out
    assert run("info", "--json", f"{path}::rows.json").json["resume"] == []


def test_every_shard_to_resume_or_to_fetch_is_named(run, tmp_path):
    folder = tmp_path / "set"
    shutil.copytree(SAMPLES / "sharded", folder)
    first, second, third = (str(folder / f"model-0000{number}-of-00003.safetensors") for number in (1, 2, 3))
    os.truncate(first, 3_000)
    os.unlink(second)
    os.truncate(third, 100)
    for source in (folder, folder / "model.safetensors.index.json"):
        for command in ("info", "check", "ls"):
            ran = run(command, source)
            at = ran.lines.index("2 files to resume, 1 file to fetch:")
            assert ran.lines[at + 1 : at + 4] == [
                f"  {first}  resume at byte 3000 (curl -C - does so)",
                f"  {second}  fetch it",
                f"  {third}  resume at byte 100 (curl -C - does so)",
            ]
        extent = run("info", source, "--json").json["extent"]
        assert [(row["file"], row["at"]) for row in extent["resume"]] == [(first, 3000), (second, 0), (third, 100)]


def test_a_cut_index_and_its_shards_are_all_named(run, tmp_path):
    folder = tmp_path / "set"
    shutil.copytree(SAMPLES / "sharded", folder)
    index = folder / "model.safetensors.index.json"
    os.truncate(index, 600)
    os.truncate(folder / "model-00001-of-00003.safetensors", 3_000)
    ran = run("info", index)
    assert "2 files to resume:" in ran.lines
    assert any("index.json" in line and "resume at byte 600" in line for line in ran.lines)


def test_a_cut_tensor_in_a_zip_has_no_bytes_of_what_follows_it_there(tmp_path):
    path = tmp_path / "packed.zip"
    path.write_bytes(in_zip(MODEL[:14_208]))
    with pparse.view(f"{path}::{NAME}") as packed, pparse.view(MODEL[:14_208]) as plain:
        name = "h.1.mlp.c_proj.weight"
        assert packed[name].available_nbytes == plain[name].available_nbytes == 1_984
        assert packed[name].numpy(partial="prefix").shape == (62, 16)
        assert (packed[name].numpy(partial="prefix") == plain[name].numpy(partial="prefix")).all()
        with pytest.raises(pparse.TruncatedTensorError):
            packed[name][62:]


@pytest.mark.parametrize("inner", ["a.json", "a.riegeli", "a.cpb"])
@pytest.mark.parametrize("wrapper", ["gz", "zip", "tar.gz"])
def test_what_was_cut_with_the_stream_around_it_is_truncated_and_resumed_there(wrapper, inner, tmp_path):
    sample = {"a.json": "json", "a.riegeli": "riegeli-plain", "a.cpb": "cpb-plain"}[inner]
    content = load(sample).content
    packed = {
        "gz": lambda: gzip.compress(content),
        "zip": lambda: in_zip(content, zipfile.ZIP_DEFLATED, inner),
        "tar.gz": lambda: gzip.compress(in_tar(content, inner)),
    }[wrapper]()
    path = tmp_path / f"{inner}.{wrapper}"
    path.write_bytes(packed[: len(packed) * 6 // 10])
    inside = "" if wrapper == "gz" else f"::{inner}"
    with pparse.open(f"{path}{inside}") as document:
        list(document.check())
        assert document.root.status is pparse.Status.TRUNCATED
        (told,) = outside(document)
        assert (told.file, told.at) == (str(path), len(packed) * 6 // 10)


def in_parts(folder: Path, content: bytes, size: int) -> list[Path]:
    """Write a file in numbered parts of ``size`` bytes."""
    parts = [folder / f"m.zip.{number + 1:03}" for number in range(-(-len(content) // size))]
    for number, part in enumerate(parts):
        part.write_bytes(content[number * size : (number + 1) * size])
    return parts


@pytest.mark.parametrize("inside", ["", f"::{NAME}"])
def test_of_a_file_in_numbered_parts_those_that_lack_bytes_are_named(run, tmp_path, inside):
    content = in_zip(MODEL)

    def told(name: str) -> list[tuple[str, int]]:
        found = run("info", f"{tmp_path / 'm.zip.001'}{inside}", "--json").json
        found = found if found.get("resume") is not None else found["extent"]
        return [(os.path.basename(row["file"]), row["at"]) for row in found["resume"]]

    for change, expected in (
        (lambda parts: os.truncate(parts[-1], 1_000), [("m.zip.005", 1_000)]),
        (lambda parts: parts[-1].unlink(), [("m.zip.005", 0)]),
        (lambda parts: parts[2].unlink(), [("m.zip.003", 0)]),
        (lambda parts: os.truncate(parts[1], 2_000), [("m.zip.002", 2_000)]),
        (lambda parts: (os.truncate(parts[1], 2_000), parts[3].unlink()), [("m.zip.002", 2_000), ("m.zip.004", 0)]),
        (lambda parts: None, []),
    ):
        change(in_parts(tmp_path, content, 5_000))
        assert told(inside) == expected


def test_what_follows_a_part_that_was_cut_stays_where_it_is(run, tmp_path):
    content = in_zip(MODEL)
    os.truncate(in_parts(tmp_path, content, 5_000)[1], 2_000)
    whole, cut = pparse.view(f"{SAMPLES / 'tiny-gpt.safetensors'}"), pparse.view(f"{tmp_path / 'm.zip.001'}::{NAME}")
    right = 0
    for tensor in cut.tensors():
        if tensor.is_complete:
            assert tensor.numpy().tobytes() == whole[tensor.name].numpy().tobytes()
            right += 1
    assert len(whole) > right > len(whole) // 2
    assert "part .002 has 2,000 of 5,000 bytes" in run("check", tmp_path / "m.zip.001").out


CUT_AT = 16_000
THIRDS = [MODEL[at : at + 8_000] for at in range(0, len(MODEL), 8_000)]
# What lies in the folder, the file that is asked about (the first), and what is said; what is never said behind "!".
BESIDE = {
    "numbers of no known format": (
        {f"m.weights.{n}": part for n, part in enumerate(THIRDS)},
        "the first of 3 parts that lie beside it: join",
    ),
    "parts of several sizes": (
        {f"my m.safetensors.{n + 1}": THIRDS[n] + b"?" * (n == 1) for n in range(3)},
        "(cat 'my m.safetensors.1' 'my m.safetensors.2' 'my m.safetensors.3' > 'my m.safetensors')",
    ),
    "one of them is missing": (
        {"m.weights.0": THIRDS[0], "m.weights.2": THIRDS[2]},
        "and m.weights.1 is missing: get it",
    ),
    "a part is missing": (
        {"m.safetensors.partaa": THIRDS[0], "m.safetensors.partac": THIRDS[2]},
        "fetch IN/m.safetensors.partab",
    ),
    "a later part": ({"m.bin.partab": b"\xfe" * 64, "m.bin.partaa": b"x"}, "the first part, m.bin.partaa, lies beside"),
    "steps of a training": ({"step.1": MODEL[:CUT_AT], "step.2": MODEL}, "resume the download at byte 16000"),
    "zip -s": ({"m.z01": in_zip(MODEL)[:9_000], "m.z02": in_zip(MODEL)[9_000:18_000]}, "fetch IN/m.zip"),
    "the last part of zip -s": ({"m.zip": b"?" * 99 + in_zip(MODEL)}, "a zip split into 4 parts"),
    "aria2": ({NAME: MODEL[:CUT_AT], f"{NAME}.aria2": b""}, "model.safetensors.aria2 has not finished"),
    "another program": ({NAME: MODEL[:CUT_AT], f"{NAME}.dl-meta": b""}, "model.safetensors.dl-meta has not finished"),
    "a browser": ({NAME: MODEL[:CUT_AT], f"{NAME}.crdownload": b""}, "model.safetensors.crdownload beside it may be"),
    "the whole one": (
        {NAME: MODEL[:CUT_AT], "a.safetensors": bytes(len(MODEL)), "b.safetensors": MODEL, "c.safetensors": MODEL[:-1]},
        "'b.safetensors' beside it has the 23,680 bytes that this should have, and begins as it does",
    ),
    "nothing": ({NAME: MODEL[:CUT_AT], "other.safetensors": MODEL[:-1]}, "(curl -C - does so)\n"),
    "a shard under another name": (
        {
            "model.safetensors.index.json": b'{"weight_map": {"a": "model-1-of-2.safetensors"}}',
            "model-1-of-2 (1).safetensors": MODEL,
        },
        "fetch IN/model-1-of-2.safetensors; or rename 'model-1-of-2 (1).safetensors', if that is it",
    ),
    "external data under another name": (
        {
            "m.onnx": onnx_files.model_of(
                onnx_files.tensor("w", [64], 2, onnx_files.external(location="weights.data", length=64))
            ),
            "renamed.data": bytes(64),
            "x.data": b"?",
        },
        "fetch IN/weights.data; or rename it, if that is it: 'renamed.data' beside it has the 64 bytes",
    ),
    "versions to serve": (
        {"": b"", "1/saved_model.pb": b"", "2/saved_model.pb": b""},
        "saved",
    ),
    "a pipeline": (
        {"": b"", "model_index.json": b"{}", "unet/x.safetensors": MODEL},
        "safetensors",
    ),
}


def test_what_lies_beside_is_named_and_a_download_is_resumed_only_where_that_helps(run, tmp_path):
    for number, (case, (files, words)) in enumerate(BESIDE.items()):
        folder = tmp_path / f"in{number}"
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if name:
                (folder / name).write_bytes(content)
        if case == "the last part of zip -s":
            whole = bytearray(files["m.zip"])
            whole[-18:-16] = (3).to_bytes(2, "little")  # the number of this part, from 0
            (folder / "m.zip").write_bytes(whole)
        asked = folder / next(iter(files))
        told = [run(command, asked) for command in ("ls", "info", "check")]
        for ran in told:
            assert words.replace("IN", os.fspath(folder)) in ran.out + ran.err, (case, ran.out, ran.err)
            if "parts" in words or "has not finished" in words:
                assert "resume the download at" not in ran.out, case
        if case == "aria2":
            (folder / NAME).write_bytes(MODEL)  # as one that made room for all of it
            whole = run("check", asked)
            assert (whole.code, "unfinished" in whole.out, run("check", "--strict", asked).code) == (0, True, 4)
            (folder / NAME).write_bytes(MODEL[:CUT_AT])
            assert run("info", asked, "--json").json["extent"]["resume_at"] is None


class Hostile(pparse.Folder):
    """A folder whose files, but for the one that is asked about, cannot be opened; or that cannot be listed."""

    def __init__(self, error: Exception, *, listed: bool) -> None:
        self.error, self.listed = error, listed

    def list(self) -> list[str]:
        if not self.listed:
            raise self.error
        return ["x.partaa", "x.partab", "m.safetensors", "m (1).safetensors", "n.safetensors"]

    def open(self, name: str) -> bytes:
        raise self.error


def test_a_file_beside_that_cannot_be_read_changes_nothing(tmp_path):
    for error in (OSError(13, "Permission denied"), SourceError("gone"), ValueError("no")):
        for listed in (True, False):
            for name in ("x.partaa", "m.safetensors"):
                path = tmp_path / name
                path.write_bytes(MODEL[:CUT_AT])
                with pparse.view(path, folder=Hostile(error, listed=listed)) as model:
                    assert str(model.extent().status) == "truncated"
                    assert model.extent().resume_at == CUT_AT


def test_what_a_class_declares_is_what_its_constructor_takes() -> None:
    resume = Resume("a", 1, hole=True)
    assert (resume.file, resume.at, resume.hole, resume.size, resume.helps) == ("a", 1, True, None, True)
    for wrong in (lambda: Resume("a", 1, holes=True), lambda: Resume("a", 1, True, 2, "", True, "more")):
        with pytest.raises(TypeError, match="Resume takes file, at, hole, size, note, helps"):
            wrong()
