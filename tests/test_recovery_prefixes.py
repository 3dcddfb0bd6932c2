"""Every prefix of a tar.gz that holds a zip is recovered, and what comes out never shrinks as the prefix grows."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import tarfile
import zipfile

import pytest

import pparse
from pparse.errors import FormatError
from pparse.limits import Limits
from pparse.recovery.recover import recover
from tests import sweep

NAMES = {"notes.txt", "inner.zip/stored.bin", "inner.zip/deflated.txt", "tail.bin"}


def originals() -> dict[str, bytes]:
    generator = random.Random(5)
    text = b" ".join(b"%d" % generator.randrange(10**4) for _ in range(300))
    return {
        "notes.txt": text[:700],
        "inner.zip/stored.bin": generator.randbytes(300),
        "inner.zip/deflated.txt": text[300:1200],
        "tail.bin": generator.randbytes(200),
    }


def sample() -> bytes:
    files = originals()
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr(zipfile.ZipInfo("stored.bin"), files["inner.zip/stored.bin"])
        info = zipfile.ZipInfo("deflated.txt")
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, files["inner.zip/deflated.txt"])
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in (
            ("notes.txt", files["notes.txt"]),
            ("inner.zip", inner.getvalue()),
            ("tail.bin", files["tail.bin"]),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), 6, mtime=0)


def recovered(content: bytes, folder) -> tuple[dict[str, bytes], dict[str, dict]]:
    try:
        with pparse.open(content, format=None) as document:
            recover(document, folder)
    except FormatError:
        return {}, {}
    report = json.loads((folder / "RECOVERY.json").read_text())
    entries = {entry["path"]: entry for entry in report["files"] if entry["path"] is not None}
    files = {path: (folder / path).read_bytes() for path in entries}
    return files, entries


def test_every_prefix_of_an_archive_gives_back_what_is_whole_in_it(tmp_path):
    whole, truth = sample(), originals()
    best = dict.fromkeys(truth, 0)
    for length in sweep.some(range(0, len(whole) + 1, 3), 3, ends=8):
        files, entries = recovered(whole[:length], tmp_path / str(length))
        for path, content in files.items():
            name = path.removeprefix("<bytes>.content/")
            if name not in truth:
                continue
            assert truth[name].startswith(content), (length, name)
            if entries[path]["status"] == "complete":
                assert content == truth[name], (length, name)
            assert len(content) >= best[name], (length, name)
            best[name] = len(content)
    assert set(best) == NAMES
    files, entries = recovered(whole, tmp_path / "whole")
    assert files == truth
    assert {entry["status"] for entry in entries.values()} == {"complete"}


def test_two_runs_are_equal(tmp_path):
    content = bytearray(sample())
    content[len(content) // 2] ^= 0x55
    content = bytes(content[:-40])
    first, second = (recovered(content, tmp_path / name) for name in ("one", "two"))
    assert first == second
    assert (tmp_path / "one" / "RECOVERY.json").read_bytes() == (tmp_path / "two" / "RECOVERY.json").read_bytes()


@pytest.mark.parametrize("name", ["a/../../b", "/etc/passwd", "C:\\x", "..\\..\\b"])
def test_nothing_is_written_outside(tmp_path, name):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
        archive.addfile(link)
        through = tarfile.TarInfo("link/file")
        through.size = 3
        archive.addfile(through, io.BytesIO(b"def"))
    inside = tmp_path / "inside"
    files, _ = recovered(out.getvalue(), inside)
    assert sorted(files.values()) == [b"abc", b"def"]
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert not any(path.is_symlink() for path in inside.rglob("*"))


def test_the_ratio_of_a_stream_is_limited_and_can_be_lifted(tmp_path, monkeypatch):
    free = 64 << 20 if sweep.full else 8 << 20
    monkeypatch.setattr("pparse.recovery.target.FREE_EXPANSION", free)
    bomb = bz2.compress(bytes(free + (16 << 20)))  # 100 bytes: no honest file is like that
    with pparse.open(bomb, format="bz2") as document:
        outcome = recover(document, tmp_path / "stopped", max_output=1 << 30)
    assert not outcome.is_whole
    (met,) = outcome.limits.values()
    assert (met.files, met.option.partition("=")[0]) == (1, "--limit expansion_ratio")
    (file,) = json.loads((tmp_path / "stopped" / "RECOVERY.json").read_text())["files"]
    assert (file["status"], file["bytes"], file["gaps"]) == ("truncated", free, [[free, None]])
    assert "lift it with limits=Limits(expansion_ratio=" in file["reason"]
    limits = Limits(expansion_ratio=10_000_000)
    with pparse.open(bomb, format="bz2", limits=limits) as document:
        assert recover(document, tmp_path / "whole", max_output=1 << 30).summary.bytes == free + (16 << 20)
