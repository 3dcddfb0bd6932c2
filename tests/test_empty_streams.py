"""A compressed stream of no bytes is a complete file of no bytes, everywhere."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zlib

import cramjam
import pytest

import pparse
from pparse.findings import Status
from tests import zstd
from tests.zip_samples import Archive, Made

EMPTY = {
    "e.gz": gzip.compress(b"", mtime=0),
    "three.gz": gzip.compress(b"", mtime=0) * 3,
    "padded.gz": gzip.compress(b"", mtime=0) + bytes(512),
    "bgzf.gz": bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000"),
    "e.bz2": bz2.compress(b""),
    "two.bz2": bz2.compress(b"") * 2,
    "e.xz": lzma.compress(b""),
    "two.xz": lzma.compress(b"") + bytes(8) + lzma.compress(b""),
    "padded.xz": lzma.compress(b"") + bytes(4),
    "e.lzma": lzma.compress(b"", format=lzma.FORMAT_ALONE),
    "e.zst": zstd.compress(b""),
    "skipped.zst": b"\x50\x2a\x4d\x18\4\0\0\0abcd",
    "e.lz4": bytes(cramjam.lz4.compress(b"")),
    "e.zz": zlib.compress(b""),
    "e.br": b"\x3b",
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("command", ["recover", "extract"])
def test_an_empty_stream_is_written_as_an_empty_file(run, tmp_path, name, command) -> None:
    path, out = tmp_path / name, tmp_path / "out"
    path.write_bytes(EMPTY[name])
    ran = run(command, path, "-o", out, "--json")
    assert ran.code == 0
    assert [(file["path"], file["status"], file["bytes"]) for file in ran.json["files"]] == [
        (name.rpartition(".")[0], "complete", 0)
    ]
    assert (out / name.rpartition(".")[0]).read_bytes() == b""


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_stream_is_complete_in_all_that_reads_it(run, tmp_path, name) -> None:
    path = tmp_path / name
    path.write_bytes(EMPTY[name])
    for command in ("ls", "info", "check"):
        assert run(command, path).code == 0, command
    listed = run("ls", path, "--json").json["members"]
    assert [(row["size"], row["status"]) for row in listed] == [(0, "complete")]
    with pparse.open(path) as document:
        assert document.get("content") == b""
        assert document.status is Status.COMPLETE


def test_empty_streams_in_archives_become_empty_files(run, tmp_path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in EMPTY.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    zipped = Archive(*(Made(name, content, method=8) for name, content in EMPTY.items())).whole
    for name, source in (("in.tar", out.getvalue()), ("in.zip", zipped)):
        (tmp_path / name).write_bytes(source)
        folder = tmp_path / f"{name}.out"
        assert run("recover", tmp_path / name, "-o", folder).code == 0
        files = json.loads((folder / "RECOVERY.json").read_text())["files"]
        assert {(file["status"], file["bytes"]) for file in files} == {("complete", 0)}
        assert len(files) == len(EMPTY)


def test_an_empty_member_costs_its_neighbours_in_a_gzip_nothing(run, tmp_path) -> None:
    path = tmp_path / "mixed.gz"
    path.write_bytes(gzip.compress(b"") + gzip.compress(b"hello ") + gzip.compress(b"") + gzip.compress(b"world"))
    assert run("recover", path, "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "mixed").read_bytes() == b"hello world"


def test_a_stream_that_is_cut_before_its_first_byte_is_no_empty_file(run, tmp_path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b"hello")[:11])
    assert run("recover", path, "-o", tmp_path / "out").code == 4
    assert not (tmp_path / "out" / "cut").exists()
