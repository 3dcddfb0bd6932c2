"""What has bytes is a file, whatever its mode or its type says; nothing is dropped without a word."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from shutil import which
from typing import TYPE_CHECKING

import pytest

import pparse
from tests.zip_samples import Archive, Made

if TYPE_CHECKING:
    from pathlib import Path

DATA = b"bytes of a member\n" * 400
# mode in a zip, type in a tar
KINDS = {"fifo": (0o010644, b"6"), "character": (0o020644, b"3"), "block": (0o060644, b"4")}


def tar_of(*members: tuple[str, bytes, bytes]) -> bytes:
    """Return a tar of ``(name, type, content)``."""
    out = b""
    for name, letter, content in members:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        head = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
        head[156:157] = letter
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
        out += bytes(head) + content + bytes(-len(content) % 512)
    return out + bytes(1024)


def saved(run, source: bytes, tmp_path: Path, command: str = "recover") -> tuple[int, dict[str, bytes], dict]:
    """Return the exit code, the files that were written, and the report."""
    path = tmp_path / "archive.bin"
    path.write_bytes(source)
    ran = run(command, path, "-o", tmp_path / command, "--json")
    files = {
        file.relative_to(tmp_path / command).as_posix(): file.read_bytes()
        for file in (tmp_path / command).rglob("*")
        if file.is_file() and file.name != "RECOVERY.json"
    }
    return ran.code, files, json.loads(ran.out)


def codes(report: dict) -> list[tuple[str, str, str]]:
    return [(finding["code"], finding["severity"], finding["path"]) for finding in report["findings"]]


@pytest.mark.parametrize("command", ["recover", "extract"])
@pytest.mark.parametrize("kind", [*KINDS, "socket"])
@pytest.mark.parametrize("method", [0, 8])
def test_a_zip_member_with_bytes_is_a_file_whatever_its_mode_says(run, tmp_path, kind, method, command) -> None:
    mode = KINDS[kind][0] if kind in KINDS else 0o140644
    archive = Archive(Made("odd", DATA, mode=mode, method=method), Made("empty", b"", mode=mode))
    code, files, report = saved(run, archive.whole, tmp_path, command)
    assert code == 0
    assert files["odd"] == DATA
    assert ("kind", "note", "odd") in codes(report)
    assert ("kind", "note", "empty") not in codes(report)


@pytest.mark.parametrize("kind", KINDS)
def test_a_zip_lists_a_member_with_bytes_as_a_file_and_one_without_as_its_mode_says(kind) -> None:
    archive = Archive(Made("odd", DATA, mode=KINDS[kind][0]), Made("empty", b"", mode=KINDS[kind][0]))
    with pparse.open(archive.whole) as document:
        kinds = [row.kind for row in document.parse().parser.members()]
        assert kinds[0] == "file"
        assert kinds[1] in ("fifo", "device")
        assert document.get("odd") == DATA


@pytest.mark.skipif(which("zip") is None, reason="needs Info-ZIP's zip")
def test_what_info_zip_was_piped_is_recovered(run, tmp_path) -> None:
    path = tmp_path / "piped.zip"
    content = "".join(f"{number}\n" for number in range(1, 20_001)).encode()
    subprocess.run(["zip", "-q", path, "-"], input=content, check=True)
    code, files, _ = saved(run, path.read_bytes(), tmp_path)
    assert (code, files) == (0, {"-": content})


@pytest.mark.parametrize("command", ["recover", "extract"])
def test_a_zip_folder_with_bytes_is_a_file_beside_what_is_in_the_folder(run, tmp_path, command) -> None:
    archive = Archive(Made("d/", DATA, mode=0o040755), Made("d/inner", b"inner"), Made("e/", b"", mode=0o040755))
    code, files, report = saved(run, archive.whole, tmp_path, command)
    assert code == 0
    assert sorted(files.values()) == sorted([DATA, b"inner"])
    assert ("kind", "note", "d/") in codes(report)
    code, files, _ = saved(run, archive.body, _new(tmp_path), command)
    assert sorted(files.values()) == sorted([DATA, b"inner"])


def _new(tmp_path: Path) -> Path:
    folder = tmp_path / "body"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("command", ["recover", "extract"])
@pytest.mark.parametrize("content", [b"x" * 4097, b"a\0b"])
def test_a_zip_symlink_whose_content_is_no_target_is_written_as_a_file(run, tmp_path, content, command) -> None:
    code, files, _ = saved(run, Archive(Made("link", content, mode=0o120777)).whole, tmp_path, command)
    assert (code, files) == (0, {"link": content})


def test_a_zip_symlink_is_not_written_and_its_target_is_in_the_report(run, tmp_path) -> None:
    archive = Archive(Made("file", b"one"), Made("link", b"../to/there", mode=0o120777))
    code, files, _ = saved(run, archive.whole, tmp_path)
    assert (code, files) == (0, {"file": b"one"})
    report = json.loads((tmp_path / "recover" / "RECOVERY.json").read_text())
    reasons = [finding["reason"] for finding in report["findings"] if finding["code"] != "misnamed"]
    assert reasons == ["a symlink to ../to/there, which is never written"]


def test_a_zip_symlink_whose_bytes_are_damaged_is_written_and_told_of(run, tmp_path) -> None:
    archive = Archive(Made("link", b"target", mode=0o120777, crc=7))
    code, files, report = saved(run, archive.whole, tmp_path)
    assert (code, files) == (4, {"link": b"target"})
    assert [file["status"] for file in report["files"]] == ["damaged"]


@pytest.mark.parametrize("command", ["recover", "extract"])
@pytest.mark.parametrize("letter", [b"6", b"3", b"4", b"2", b"1", b"5", b"Q", b"~"])
def test_a_tar_member_with_bytes_is_a_file_whatever_its_type_says(run, tmp_path, letter, command) -> None:
    source = tar_of(("a", b"0", b"first"), ("odd", letter, DATA), ("b", b"0", b"last"))
    code, files, report = saved(run, source, tmp_path, command)
    assert (code, files) == (0, {"a": b"first", "odd": DATA, "b": b"last"})
    assert (("kind", "note", "odd") in codes(report)) == (letter not in b"Q~")


def test_a_tar_member_whose_type_has_no_bytes_and_whose_size_says_some_has_none() -> None:
    source = bytearray(tar_of(("a", b"0", b"first"), ("link", b"2", b""), ("b", b"0", b"last")))
    source[1024 + 124 : 1024 + 135] = b"%011o" % 700
    source[1024 + 148 : 1024 + 156] = b" " * 8
    source[1024 + 148 : 1024 + 156] = b"%06o\0 " % sum(source[1024:1536])
    with pparse.open(bytes(source)) as document:
        assert [(member.name, member.kind) for member in document.parse().parser.files()] == [
            ("a", "file"),
            ("link", "symlink"),
            ("b", "file"),
        ]


@pytest.mark.parametrize("command", ["recover", "extract", "check"])
@pytest.mark.parametrize("mode", [0o100644, 0o010644, 0o120777])
def test_an_encrypted_member_never_ends_with_success(run, tmp_path, mode, command) -> None:
    path = tmp_path / "secret.zip"
    path.write_bytes(Archive(Made("open", b"one"), Made("secret", DATA, flags=1, mode=mode)).whole)
    more = () if command == "check" else ("-o", tmp_path / "out")
    assert run(command, path, *more).code == 4


@pytest.mark.parametrize("command", ["recover", "extract", "check"])
def test_a_folder_whose_bytes_are_missing_is_told_of(run, tmp_path, command) -> None:
    path = tmp_path / "folder.zip"
    path.write_bytes(Archive(Made("d/", b"lost", packed=b"", mode=0o040755), Made("a", b"one")).whole)
    more = () if command == "check" else ("-o", tmp_path / "out")
    assert run(command, path, *more).code == 4


def test_an_archive_without_members_is_whole(run, tmp_path) -> None:
    out = io.BytesIO()
    tarfile.open(fileobj=out, mode="w").close()
    for number, (name, source) in enumerate((("empty", Archive().whole), ("empty.tar", out.getvalue()))):
        path = tmp_path / name
        path.write_bytes(source)
        for words in (("ls", path), ("info", path), ("check", path), ("extract", path, "-o", tmp_path / f"x{number}")):
            assert run(*words).code == 0, words
        ran = run("recover", path, "-o", tmp_path / f"r{number}")
        assert ran.code == 0
        assert "there are no files in it" in ran.out


def test_a_hard_link_is_written_as_its_target_and_told_of_without_one(run, tmp_path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        for name, target in (("a", ""), ("b", "a"), ("c", "lost")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = (b"1", target, 0) if target else (b"0", "", len(DATA))
            made.addfile(info, io.BytesIO(DATA))
    code, files, report = saved(run, stream.getvalue(), tmp_path)
    assert (code, files) == (0, {"a": DATA, "b": DATA})
    assert report["findings"][-1]["reason"] == "a hardlink to lost, which is never written"
