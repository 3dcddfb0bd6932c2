"""Which archives are recognised though their beginning is odd, and what is none though a signature stands in it."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile

import pytest

import pparse
from pparse.data.base import BytesData
from pparse.errors import FormatError
from pparse.parsers.tar.parser import TarParser
from pparse.parsers.zip.parser import ZipParser
from pparse.parsers.zip.trust import match_tail
from pparse.tree.parser import Confidence
from tests.conftest import safetensors
from tests.recognising import confidence
from tests.zip_samples import Archive, Made, noise

REST = (Made("a.txt", b"a" * 700, method=8), Made("b.bin", noise(2000)), Made("c.txt", b"c" * 500, method=8))
CONTENTS = {member.name: member.content for member in REST}


def patched(archive: Archive, local: int, central: int, value: int) -> bytes:
    """Return the archive with a number of 16 bits of its first member changed, in its header and the directory."""
    out = bytearray(archive.whole)
    struct.pack_into("<H", out, local, value)
    struct.pack_into("<H", out, len(archive.body) + central, value)
    return bytes(out)


FIRST = Archive(Made("first", b"first " * 100), *REST)
ODD = {
    "an empty name": Archive(Made("", b"first " * 100), *REST).whole,
    "a control character in the name": Archive(Made("x\x1by", b"first " * 100, method=8), *REST).whole,
    "NUL in the name": Archive(Made("x\0y", b"first " * 100), *REST).whole,
    "an unknown method": patched(FIRST, 8, 10, 77),
    "unknown flags": patched(FIRST, 6, 8, 0x8000),
    "a later version": patched(FIRST, 4, 6, 200),
    "a broken signature": bytes(4) + FIRST.whole[4:],
    "a broken header": noise(30) + FIRST.whole[30:],
    "a name that is gone": noise(35) + FIRST.whole[35:],
}


def listed(source: bytes) -> dict[str, pparse.Status]:
    with pparse.open(source) as document:
        assert document.format == "zip"
        return {row.name: row.status for row in document.parse().parser.members()}


@pytest.mark.parametrize("odd", ODD)
def test_a_zip_is_recognised_whatever_its_first_member_is_like(run, tmp_path, odd) -> None:
    rows = listed(ODD[odd])
    assert len(rows) == 4
    assert rows.keys() > CONTENTS.keys()
    path, out = tmp_path / "odd.bin", tmp_path / "out"
    path.write_bytes(ODD[odd])
    run("recover", path, "-o", out)
    files = json.loads((out / "RECOVERY.json").read_text())["files"]
    assert {file["path"] for file in files} > CONTENTS.keys()
    if odd == "an unknown method":
        assert (files[0]["path"], files[0]["status"]) == (None, "unsupported")
    else:
        assert files[0]["bytes"] == 600
        assert (out / files[0]["path"]).read_bytes() == b"first " * 100
    for name, content in CONTENTS.items():
        assert (out / name).read_bytes() == content


@pytest.mark.parametrize("name", ["", "x\x1by", "x\0y"])
def test_a_zip_without_a_directory_whose_first_name_is_odd_is_recognised(name) -> None:
    archive = Archive(Made(name, b"first " * 100), *REST)
    assert listed(archive.body).keys() == {name, *CONTENTS}


def test_a_zip_of_one_member_whose_header_is_broken_is_recovered(run, tmp_path) -> None:
    path = tmp_path / "one.zip"
    path.write_bytes(noise(20) + Archive(Made("only", b"only " * 100)).whole[20:])
    assert run("recover", path, "-o", tmp_path / "out").code == 4
    assert (tmp_path / "out" / "only").read_bytes() == b"only " * 100


PREFIXES = {
    "script": b"#!/bin/sh\nexit\n" * 20,
    "program": b"\x7fELF" + noise(3_000_000),
    "exe": b"MZ" + noise(400_000),
    "nothing known": noise(100_000, 5),
    "text": b"Hello world, this is text\n" * 4000,
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("absolute", [True, False])
def test_a_zip_behind_anything_is_recognised_by_its_end(run, tmp_path, prefix, absolute) -> None:
    before = PREFIXES[prefix]
    source = Archive(*REST, prefix=before, shift=0 if absolute else len(before)).whole
    assert listed(source).keys() == CONTENTS.keys()
    path = tmp_path / "setup"
    path.write_bytes(source)
    assert run("recover", path, "-o", tmp_path / "out").code == 0
    assert {name: (tmp_path / "out" / name).read_bytes() for name in CONTENTS} == CONTENTS


@pytest.mark.parametrize("absolute", [True, False])
def test_an_empty_zip_behind_a_script_is_recognised_wherever_it_stands(absolute) -> None:
    script = PREFIXES["script"]
    content = Archive(prefix=script, shift=0 if absolute else len(script)).whole
    for before in (b"", noise(1000)):
        data = BytesData(before + content)
        assert confidence(ZipParser, data.range(len(before), len(before) + len(content))) is Confidence.LIKELY


def test_zeros_behind_a_zip_are_no_fault_of_it(run, tmp_path) -> None:
    path = tmp_path / "padded.bin"
    for prefix in (b"", noise(1000)):
        path.write_bytes(Archive(*REST, prefix=prefix).whole + bytes(6000))
        found = run("check", path, "--json").json["findings"]
        assert {finding["severity"] for finding in found} == {"note"}
        assert run("recover", path, "-o", tmp_path / f"out{len(prefix)}").code == 0


class CountingData(BytesData):
    """Counts the bytes that are read."""

    read = 0

    def pread(self, offset: int, length: int) -> bytes:
        found = super().pread(offset, length)
        self.read += len(found)
        return found


@pytest.mark.parametrize("prefix", PREFIXES)
def test_recognising_reads_no_more_than_the_head_and_the_tail(prefix) -> None:
    many = [Made(f"{number:05}", b"x") for number in range(3000)]
    for source in (Archive(*many, prefix=PREFIXES[prefix]).whole, PREFIXES[prefix] * 2):
        for parser in (ZipParser, TarParser):
            data = CountingData(source)
            reader = data.range(0, len(source))
            confidence(parser, reader)
            assert data.read < 300_000, parser
            data.read = 0
            parser.match_further(reader, thorough=True)
            assert data.read < 150_000, parser
            data.read = 0
            parser.match_further(reader, thorough=False)
            assert data.read < 10_000, parser


@pytest.mark.parametrize("behind", [0, 300])
def test_an_end_record_counts_from_the_first_of_the_bytes_that_are_looked_at(behind) -> None:
    source = b"text" * 100 + Archive(*REST, prefix=noise(1000)).whole + bytes(behind)
    data, tail = BytesData(source), len(source) - source.rindex(b"PK\5\6")
    for at_end in (False, True):
        assert match_tail(data, 0, len(source), tail, at_end=at_end) is Confidence.LIKELY
        assert match_tail(data, 0, len(source), tail - 1, at_end=at_end) is Confidence.NO
    assert match_tail(BytesData(source + b"x"), 0, len(source) + 1, tail + 1, at_end=True) is Confidence.NO
    assert match_tail(BytesData(source + b"x"), 0, len(source) + 1, tail + 1) is Confidence.LIKELY
    # Of an archive whose beginning is lost, the directory is there, and begins before its place.
    lost = source[source.index(b"PK\1\2") - 700 :]
    assert match_tail(BytesData(lost), 0, len(lost), tail) is Confidence.POSSIBLE


NAMED = Archive(*(Made(name, noise(90)) for name in ("a", "longer/name.bin", "of another length.txt")))
LARGE_DIRECTORY = Archive(*(Made(f"{'x' * (number % 9)}{number}", b"") for number in range(300)))
LIKELY, POSSIBLE, NO = Confidence.LIKELY, Confidence.POSSIBLE, Confidence.NO
# What precedes the end record of `NAMED`, and by how much numbers of 16 or 32 bits in that are wrong, by their place.
ENDS = {
    "whole": (NAMED.body + NAMED.directory, {}, LIKELY),
    "after other bytes": (bytes(1000) + NAMED.body + NAMED.directory, {}, LIKELY),
    "without its beginning": (NAMED.body[50:] + NAMED.directory, {}, POSSIBLE),
    "the directory alone": (NAMED.directory, {}, POSSIBLE),
    "a wrong size": (NAMED.body + NAMED.directory, {12: 1}, LIKELY),  # the offset leads to the directory
    "a wrong offset": (NAMED.body + NAMED.directory, {16: -1}, LIKELY),
    "wrong size and offset": (NAMED.body + NAMED.directory, {12: 1, 16: 1}, NO),
    "a wrong size after other bytes": (bytes(1000) + NAMED.body + NAMED.directory, {12: 1}, NO),
    "another disk": (NAMED.body + NAMED.directory, {4: 1}, NO),
    "another number of entries on this disk": (NAMED.body + NAMED.directory, {8: 1}, NO),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_sure_an_end_record_makes(name) -> None:
    before, changes, sure = ENDS[name]
    end = bytearray(NAMED.end)
    for at, more in changes.items():
        width = "<I" if at >= 12 else "<H"
        struct.pack_into(width, end, at, struct.unpack_from(width, end, at)[0] + more)
    for front in (0, 70):  # what precedes the range is not looked at
        source = noise(front) + before + end
        assert match_tail(BytesData(source), front, len(source), 1000) is sure


def test_of_several_end_records_the_best_counts() -> None:
    cut = NAMED.whole[50:]
    assert match_tail(BytesData(cut), 0, len(cut), 1000) is POSSIBLE
    for source in (NAMED.whole + cut, cut + NAMED.whole):
        assert match_tail(BytesData(source), 0, len(source), len(source)) is LIKELY
    for false, sure in ((7, LIKELY), (8, NO)):
        source = Archive(*NAMED.members, comment=b"PK\5\6" * false).whole
        assert match_tail(BytesData(source), 0, len(source), 1000) is sure


@pytest.mark.parametrize("archive", [NAMED, LARGE_DIRECTORY, Archive(Made("x" * 6_000, b""))])
def test_an_end_record_before_a_directory_counts_if_entries_follow_each_other(archive) -> None:
    data = BytesData(archive.whole)
    assert match_tail(data, 0, data.size, 1000) is LIKELY
    if len(archive.members) > 1:
        second = len(archive.body) + len(archive.members[0].central())
        broken = BytesData(archive.whole[:second] + bytes(46) + archive.whole[second + 46 :])
        assert match_tail(broken, 0, broken.size, 1000) is NO
    begin = len(archive.body)
    broken = BytesData(archive.whole[:begin] + b"pk" + archive.whole[begin + 2 :])
    assert match_tail(broken, 0, broken.size, 1000) is NO


NOT_ZIP = {
    "text": b"some text PK\3\4 and more text\n" * 100,
    "text with a header": b"some text\n" * 100 + REST[0].local() + b"more\n" * 100,
    "a program with a header": b"\x7fELF" + bytes(300) + REST[0].local() + b"code" * 10_000,
    "a program with a signature": b"\x7fELF" + bytes(300) + b"PK\1\2PK\3\4PK\5\6" + bytes(40_000),
    "noise": noise(100_000, 7),
}


@pytest.mark.parametrize("source", NOT_ZIP)
def test_a_signature_alone_makes_no_zip(source) -> None:
    with pparse.open(NOT_ZIP[source]) as document, pytest.raises(FormatError):
        document.parse()


def test_a_model_or_records_that_end_in_a_zip_are_what_they_were(tmp_path) -> None:
    whole = Archive(*REST).whole
    model = safetensors({"t": {"dtype": "U8", "shape": [len(whole)], "data_offsets": [0, len(whole)]}}, whole)
    with pparse.open(model) as document:
        assert document.format == "safetensors"
    from pparse import riegeli

    with riegeli.RecordWriter(tmp_path / "records", options="uncompressed") as writer:
        writer.write_record(whole)
    with pparse.open(tmp_path / "records") as document:
        assert document.format == "riegeli"


# -- tar -------------------------------------------------------------------------------------------------------------


def tar_of_three() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in CONTENTS.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


TAR = tar_of_three()
BROKEN = {
    "name": noise(100) + TAR[100:],
    "name and checksum": noise(100) + TAR[100:148] + noise(8) + TAR[156:],
    "everything": noise(512) + TAR[512:],
    "everything but the size": noise(124) + TAR[124:136] + noise(376) + TAR[512:],
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("packed", [True, False])
def test_a_tar_whose_first_header_is_broken_is_recognised(broken, packed) -> None:
    source = gzip.compress(BROKEN[broken]) if packed else BROKEN[broken]
    with pparse.open(source) as document:
        assert document.format == "tar"
        found = [member.name for member in document.parse().parser.files()]
        assert found[-2:] == ["b.bin", "c.txt"]
        assert document.get('["b.bin"]') == CONTENTS["b.bin"]


def test_a_large_first_member_leads_to_the_second_header_of_a_tar() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, size in (("large", 300_000), ("small", 10)):
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    source = noise(124) + out.getvalue()[124:136] + noise(376) + out.getvalue()[512:]
    data = BytesData(source)
    assert TarParser.match_further(data.range(0, len(source)), thorough=True) is Confidence.LIKELY


# -- recover, after everything else ----------------------------------------------------------------------------------

HIDDEN = {
    "a tar on its grid": noise(102_400) + TAR,
    "a tar anywhere": noise(100_001) + TAR,
    "a zip without a directory": noise(100_001) + Archive(*REST).body,
}


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_nobody_recognises_is_searched_for_containers(run, tmp_path, hidden) -> None:
    path = tmp_path / "image.bin"
    path.write_bytes(HIDDEN[hidden])
    assert run("ls", path).code == 3
    ran = run("recover", path, "-o", tmp_path / "out")
    assert ran.code == 4
    assert {name: (tmp_path / "out" / name).read_bytes() for name in CONTENTS} == CONTENTS
    report = json.loads((tmp_path / "out" / "RECOVERY.json").read_text())
    assert "searched" in [finding["code"] for finding in report["findings"]]
    assert [file["bytes"] for file in report["files"] if file["path"].startswith("nameless/")] == [
        len(HIDDEN[hidden]) - len(TAR if "tar" in hidden else Archive(*REST).body)
    ]


@pytest.mark.parametrize("length", [100, 8000, 65535])
def test_many_false_signatures_are_searched_in_linear_work(length) -> None:
    header = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 0, 8, 0, 0, 0, 0, 0, length, 0)
    entry = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 0, 8, 0, 0, 0, 0, 0, length, 0, 0, 0, 0, 0, 0)
    for record in (header, entry):
        work = []
        for count in (1000, 2000):
            data = CountingData(record * count + bytes(9000))
            assert ZipParser.search(data.range(0, data.size), lambda: None) is None
            work.append(data.read)
        assert work[1] < 2.2 * work[0]
        assert work[1] < 10_000 * 2000


def test_a_tar_of_zips_whose_first_header_is_broken_is_a_tar(run, tmp_path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("one.zip", "two.zip"):
            info = tarfile.TarInfo(name)
            info.size = len(Archive(*REST).whole)
            archive.addfile(info, io.BytesIO(Archive(*REST).whole))
    path = tmp_path / "zips"
    path.write_bytes(noise(512) + out.getvalue()[512:])
    run("recover", path, "-o", tmp_path / "out")
    assert (tmp_path / "out" / "two.zip" / "b.bin").read_bytes() == CONTENTS["b.bin"]


def test_what_begins_as_a_gzip_is_tried_as_one(run, tmp_path) -> None:
    path = tmp_path / "broken"
    content = noise(400_000) + b"text " * 100_000
    source = bytearray(gzip.compress(content))
    source[2:10] = noise(8, 3)
    path.write_bytes(source)
    assert run("recover", path, "-o", tmp_path / "out").code == 4


def test_what_holds_nothing_is_given_up(run, tmp_path) -> None:
    for source in (noise(100_000, 7), b"only text\n" * 1000, b"ustar " * 1000, b"PK\3\4" * 1000):
        path = tmp_path / "nothing"
        path.write_bytes(source)
        assert run("recover", path, "-o", tmp_path / "out").code == 3
        assert not (tmp_path / "out").exists()


def test_members_that_nobody_recognises_are_not_decoded_for_it() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("unknown.bin", noise(500_000))
        archive.writestr("stored.bin", noise(500_000), zipfile.ZIP_STORED)
    with pparse.open(out.getvalue()) as document:
        before = document.session.stats.bytes
        for name in ("unknown.bin", "stored.bin"):
            inner = document.parse().parser.enter(name)  # type: ignore[attr-defined]
            with pytest.raises(FormatError):
                inner.parse()
        assert document.session.stats.bytes - before < 340_000  # ends and beginnings of 64 KiB


@pytest.mark.parametrize("content", [b"", b"x", b"PK\7\x08", b"PK\5\6" + bytes(17)])
def test_what_is_shorter_than_an_end_record_is_no_zip(content: bytes) -> None:
    assert confidence(ZipParser, BytesData(content).open()) is Confidence.NO
