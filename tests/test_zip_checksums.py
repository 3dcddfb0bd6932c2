"""Sizes of zero before good bytes, and checksums that contradict each other."""

from __future__ import annotations

import json

import pytest

import pparse
from pparse.errors import MalformedError
from pparse.findings import Status
from pparse.parsers.zip.parser import ZipParser
from tests.rows import rows
from tests.test_zip_damage import read
from tests.zip_samples import Archive, Made, noise

REST = (Made("a.txt", b"a" * 700, method=8), Made("b.bin", noise(2000)))


def without_sizes(archive: Archive, *names: str) -> tuple[bytes, bytes]:
    """Return the archive, and it without its directory, with zeros for the sizes of some members, here and there."""
    out, entry = bytearray(archive.whole), len(archive.body)
    for member in archive.members:
        if member.name in names:
            out[member.at + 18 : member.at + 26] = bytes(8)
            out[entry + 20 : entry + 28] = bytes(8)
        entry += len(member.central())
    return bytes(out), bytes(out[: len(archive.body)])


@pytest.mark.parametrize("method", [0, 8])
@pytest.mark.parametrize("last", [True, False])
def test_bytes_are_found_of_a_member_whose_sizes_are_zero_everywhere(method, last) -> None:
    odd = Made("odd", b"data " * 300, method=method)
    archive = Archive(*REST, odd) if last else Archive(odd, *REST)
    for source in without_sizes(archive, "odd"):
        found = {got.name: got for got in read(source)}
        assert {name: got.content for name, got in found.items()} == {
            member.name: member.content for member in archive.members
        }
        assert {got.verdict.verified for got in found.values()} == {True}


def test_an_empty_member_with_a_false_checksum_does_not_cost_the_directory_its_trust() -> None:
    archive = Archive(Made("empty", b"", crc=5), *REST)
    with pparse.open(archive.whole) as document:
        parser = document.parse().parser
        assert isinstance(parser, ZipParser)
        assert parser.directory is not None
        assert [parser.verify(member).status for member in parser.files()] == [
            Status.DAMAGED,
            Status.COMPLETE,
            Status.COMPLETE,
        ]


# -- checksums -------------------------------------------------------------------------------------------------------


def contradicting(where: str, method: int, descriptor: int) -> bytes:
    """Return an archive with another CRC in the directory, the local header (or descriptor), or both."""
    archive = Archive(Made("odd", b"data " * 300, method=method, descriptor=descriptor), *REST)
    out, member = bytearray(archive.whole), archive.members[0]
    at = member.at + 14 if not descriptor else member.end + (4 if descriptor in (16, 24) else 0)
    if where != "directory":
        out[at] ^= 1
    if where != "local":
        out[len(archive.body) + 16] ^= 1
    return bytes(out)


CASES = [(method, descriptor) for method in (0, 8) for descriptor in (0, 12, 16, 24)]


@pytest.mark.parametrize(("method", "descriptor"), CASES)
@pytest.mark.parametrize("where", ["directory", "both"])
def test_a_content_that_the_directory_contradicts_is_damaged_in_every_way(
    run, tmp_path, where, method, descriptor
) -> None:
    path = tmp_path / "odd.zip"
    path.write_bytes(contradicting(where, method, descriptor))
    with pparse.open(path) as document:
        parser = document.parse().parser
        members = list(parser.files())  # type: ignore[attr-defined]
        for _ in range(2):  # what was seen once is not forgotten
            verdict = parser.verify(members[0])  # type: ignore[attr-defined]
            assert (verdict.status, verdict.verified) == (Status.DAMAGED, False)
        with pytest.raises(MalformedError):
            document.get("odd")
    assert run("check", path).code == 4
    assert run("get", path, "odd", "--raw").code == 4
    assert run("extract", path, "-o", tmp_path / "x").code == 4
    assert run("recover", path, "-o", tmp_path / "r").code == 4
    files = json.loads((tmp_path / "r" / "RECOVERY.json").read_text())["files"]
    assert [(file["status"], file["verified"]) for file in files] == [
        ("damaged", False),
        ("complete", True),
        ("complete", True),
    ]
    assert (tmp_path / "r" / "odd").read_bytes() == b"data " * 300


@pytest.mark.parametrize(("method", "descriptor"), CASES)
def test_a_content_that_only_its_local_header_contradicts_is_not_verified(run, tmp_path, method, descriptor) -> None:
    path = tmp_path / "odd.zip"
    path.write_bytes(contradicting("local", method, descriptor))
    found = run("check", path, "--json").json["findings"]
    assert "checksum" in [finding["code"] for finding in found if finding["path"] == "odd"]
    assert run("recover", path, "-o", tmp_path / "r").code == 0 == run("check", path).code
    assert run("recover", path, "-o", tmp_path / "s", "--strict").code == 4
    files = json.loads((tmp_path / "r" / "RECOVERY.json").read_text())["files"]
    assert [file["verified"] for file in files] == [None, True, True]


@rows(("method", "descriptor"), CASES)
@rows("where", ["directory", "local", "both"])
def test_a_scan_verifies_no_content_of_which_two_checksums_are_said(where, method, descriptor) -> None:
    source = bytearray(contradicting(where, method, descriptor))
    at = len(source) - 22 - 51 - 51 + 28  # a name's length in the directory: it is not believed any more
    source[at] ^= 0x40
    with pparse.open(bytes(source)) as document:
        parser = document.parse().parser
        assert isinstance(parser, ZipParser)
        assert parser.directory is None
        verdicts = {member.name: parser.verify(member) for member in parser.files()}
        assert verdicts["odd"].verified is not True
        assert verdicts["a.txt"].verified is True


@pytest.mark.parametrize("directory", [True, False])
def test_what_was_checked_and_is_damaged_is_listed_as_damaged(directory) -> None:
    archive = Archive(*REST, Made("odd", b"data " * 300))
    source = bytearray(archive.whole if directory else archive.body)
    source[archive.members[2].start + 5] ^= 1
    with pparse.open(bytes(source)) as document:
        list(document.check())
        rows = {row.name: row.status for row in document.parse().parser.members()}
        assert rows == {"a.txt": Status.COMPLETE, "b.bin": Status.COMPLETE, "odd": Status.DAMAGED}
        assert document.node("odd").status is Status.DAMAGED


@pytest.mark.parametrize("junk", [b"junk" * 40, bytes(9), noise(3000)], ids=["text", "zeros", "noise"])
def test_bytes_behind_the_deflate_stream_of_a_member_harm_nothing_where_its_checksum_agrees(junk) -> None:
    content = b"some text " * 500
    packed = Made("a", content, method=8).packed + junk
    archive = Archive(Made("a", content, method=8, packed=packed), REST[1])
    found = {got.name: got for got in read(archive.whole)}
    assert {name: (got.content, got.verdict.status, got.verdict.verified) for name, got in found.items()} == {
        "a": (content, Status.COMPLETE, True),
        "b.bin": (REST[1].content, Status.COMPLETE, True),
    }


def test_bytes_behind_a_deflate_stream_count_where_the_checksum_does_not_agree() -> None:
    content = b"some text " * 500
    packed = Made("a", content, method=8).packed + b"junk" * 40
    archive = Archive(Made("a", content, method=8, packed=packed, crc=5), REST[1])
    found = {got.name: got for got in read(archive.whole)}
    assert found["a"].verdict.status is Status.DAMAGED
