"""Zip archives of which local headers are lost, and the directory is all there."""

from __future__ import annotations

import io
import random
import zipfile

import pytest

import pparse
from pparse import Status
from tests.zip_samples import STAMP

CONTENTS = [bytes(random.Random(number).choices(b"abcdefgh", k=900)) for number in range(7)]


def archive(method: int, extra: bytes) -> tuple[bytes, list[int]]:
    """Return an archive of seven members, every other one with an extra field, and where their headers begin."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for number, content in enumerate(CONTENTS):
            info = zipfile.ZipInfo(f"f{number}.bin", STAMP)
            info.compress_type = method
            info.extra = extra if number % 2 else b""
            made.writestr(info, content)
        places = [info.header_offset for info in made.infolist()]
    return file.getvalue(), places


def listed(run, path) -> dict[str, str]:
    return {row["name"]: row["status"] for row in run("ls", path, "--jsonl").jsonl}


@pytest.mark.parametrize("extra", [b"", b"\x99\x99\x04\x00abcd"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("lost", [(0,), (0, 1, 2, 3, 4), (2, 3), (5, 6), (0, 1, 2, 3, 4, 5, 6)])
def test_members_whose_headers_are_lost_are_read_where_the_directory_says(run, tmp_path, lost, method, extra) -> None:
    content, places = archive(method, extra)
    damaged = bytearray(content)
    for number in lost:
        size = 30 + 6 + (len(extra) if number % 2 else 0)
        damaged[places[number] : places[number] + size] = bytes(size)
    path = tmp_path / "it.zip"
    path.write_bytes(damaged)
    assert listed(run, path) == {f"f{number}.bin": "complete" for number in range(7)}
    assert run("check", path).code == 4
    assert run("recover", path, "-o", tmp_path / "o", "-q").code == 4
    for number, whole in enumerate(CONTENTS):
        assert (tmp_path / "o" / f"f{number}.bin").read_bytes() == whole


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_that_lost_header_and_content_are_named_as_damaged(run, tmp_path, method) -> None:
    content, places = archive(method, b"")
    end = places[2] + 50
    path = tmp_path / "it.zip"
    path.write_bytes(bytes(end) + content[end:])
    expected = {f"f{number}.bin": "damaged" if number < 3 else "complete" for number in range(7)}
    assert listed(run, path) == expected
    ran = run("ls", path)
    assert ran.code == 4
    assert "precede" not in ran.out
    assert "local header is damaged" in ran.out


def test_zeros_before_the_first_member_that_is_left_are_no_prefix(run, tmp_path) -> None:
    content, places = archive(zipfile.ZIP_STORED, b"")
    cut = content[: content.index(b"PK\1\2")]
    path = tmp_path / "it.zip"
    path.write_bytes(bytes(places[2]) + cut[places[2] :])
    ran = run("ls", path)
    assert "precede" not in ran.out
    assert ran.code == 4


@pytest.mark.parametrize("length", [0, 3, 7, 800, 0xFFFF])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_length_in_a_local_header_harms_neither_its_member_nor_the_next(method, length) -> None:
    content, places = archive(method, b"")
    damaged = bytearray(content)
    damaged[places[2] + 26 : places[2] + 28] = length.to_bytes(2, "little")
    with pparse.open(bytes(damaged)) as document:
        members = list(document.root.children())
        assert [bytes(member.load()) for member in members] == CONTENTS
        assert [member.status for member in members] == [Status.COMPLETE] * 7
        assert "local-header" in {finding.code for finding in document.findings if finding.path == "f2.bin"}
