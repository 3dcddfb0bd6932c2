"""What `pparse recover` says in the end: long lists are folded, and nothing saved is said as that."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pparse
from pparse.recovery.recover import recover


def test_missing_tensors_are_folded_and_shown_with_v(run, model, tmp_path):
    path = model({f"t{number}": ("U8", [4], b"\1\2\3\4") for number in range(20)}, cut=50)
    short = run("recover", path, "-o", tmp_path / "a")
    assert sum(line.startswith("missing") for line in short.lines) == 4
    assert any("… and 9 more" in line and "-v shows all" in line for line in short.lines)
    full = run("recover", path, "-o", tmp_path / "b", "-v")
    assert sum(line.startswith("missing") for line in full.lines) == 12
    assert short.code == full.code == 4


def test_if_nothing_was_saved_it_says_so(run, model, tmp_path):
    path = model({"a": ("U8", [4], b"\1\2\3\4")})
    os.truncate(path, 9)
    ran = run("recover", path, "-o", tmp_path / "out")
    assert ran.code == 4
    assert "nothing was saved" in ran.out
    assert "use the files" not in ran.out


def test_progress_inside_an_inner_archive_has_a_share(tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for number in range(3):
            archive.writestr(f"{number}.bin", os.urandom(2_000))
    path = tmp_path / "a.tar"
    with tarfile.open(path, mode="w") as archive:
        for name in ("a.zip", "b.zip"):
            member = tarfile.TarInfo(name)
            member.size = len(inner.getvalue())
            archive.addfile(member, io.BytesIO(inner.getvalue()))
    told = []
    with pparse.open(path, progress=lambda done, total, what: told.append((done, total, what))) as document:
        recover(document, str(tmp_path / "out"))
    members = [(done, total) for done, total, what in told if what.endswith(".bin")]
    assert len(members) == 6
    assert {total for _, total in members} == {path.stat().st_size}
    assert members == sorted(members)
    assert members[-1][0] > members[0][0]


def test_what_to_resume_is_told_by_recover_too(run, tmp_path):
    content = (Path(__file__).parent.parent / "docs/samples/tiny-gpt.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(content[:14_000])
    ran = run("recover", tmp_path / "m.safetensors", "-o", tmp_path / "out")
    assert ran.code == 4
    assert ran.lines[-1] == f"resume the download at byte 14000 of {tmp_path / 'm.safetensors'} (curl -C - does so)"


def test_a_copy_of_what_was_found_is_nothing_that_was_saved(run, tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"\x10\0\0\0")
    ran = run("recover", tmp_path / "m.safetensors", "-o", tmp_path / "out")
    assert any("nothing was saved" in line for line in ran.lines)
    assert not any("use the files" in line for line in ran.lines)
