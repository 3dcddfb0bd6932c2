"""Whole zip archives, with the standard library as the referee."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest

import pparse
from pparse.data.base import BytesData, IoStats, Range
from pparse.errors import LimitError, MalformedError, OptionError, PathError, UnsupportedError
from pparse.findings import Severity, Status
from pparse.parsers.zip.parser import ZipParser
from pparse.tree.parser import Confidence
from tests import zstd
from tests.recognising import confidence
from tests.rows import rows
from tests.zip_samples import Archive, Made, Sink, add, noise, torch_like

if TYPE_CHECKING:
    from pathlib import Path

    from pparse.document.extraction import Extraction

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def opened(source: object, **more: object) -> Extraction:
    return pparse.open(source, parsers=[ZipParser], format="zip", **more)  # type: ignore[arg-type]


def parser_of(extraction: Extraction) -> ZipParser:
    parser = extraction.parse().parser
    assert isinstance(parser, ZipParser)
    return parser


def read_all(extraction: Extraction) -> bytes:
    reader = extraction.reader
    assert isinstance(reader, Range)
    return reader.read()


def written(method: int, *, streamed: bool = False) -> bytes:
    out = Sink() if streamed else io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:  # type: ignore[arg-type]
        add(archive, "folder/", b"")
        add(archive, "folder/text.txt", b"some text, again and again. " * 200, method)
        add(archive, "noise", noise(20_000), method)
        add(archive, "empty", b"", method)
        add(archive, "\u00fcml\u00e4ut/\u65e5\u672c", b"unicode", method)
    return bytes(out.written) if isinstance(out, Sink) else out.getvalue()


class TestAgainstZipfile:
    @pytest.mark.parametrize("streamed", [False, True])
    @pytest.mark.parametrize("method", METHODS)
    def test_members_of_all_methods_are_as_zipfile_has_them(self, method: int, streamed: bool) -> None:
        source = written(method, streamed=streamed)
        with zipfile.ZipFile(io.BytesIO(source)) as referee, opened(source) as extraction:
            parser = parser_of(extraction)
            infos = referee.infolist()
            members = list(parser.files())
            rows = list(parser.members())
            assert extraction.status is Status.COMPLETE
            assert [member.name for member in members] == [info.filename for info in infos]
            assert [(row.size, row.start) for row in rows] == [(info.file_size, info.header_offset) for info in infos]
            for member, row, info in zip(members, rows, infos, strict=True):
                assert (member.size, member.compressed_size) == (info.file_size, info.compress_size)
                assert member.checksum == ("crc32", info.CRC)
                assert (member.kind == "folder") == info.is_dir()
                assert member.mtime == 1_714_979_290.0
                assert (row.kind, row.note.name, row.note.at) == (member.kind, member.name, member.at)
                verdict = parser.verify(member)
                assert (verdict.status, verdict.verified) == (Status.COMPLETE, True), member.name
                assert read_all(parser.open_member(member)) == referee.read(info)

    @pytest.mark.parametrize("method", METHODS)
    def test_without_a_directory(self, method: int) -> None:
        for streamed in (False, True):
            source = written(method, streamed=streamed)
            with zipfile.ZipFile(io.BytesIO(source)) as referee:
                infos, contents = referee.infolist(), [referee.read(info) for info in referee.infolist()]
            with opened(source[: source.find(b"PK\1\2")]) as extraction:
                parser = parser_of(extraction)
                members = list(parser.files())
                assert [member.name for member in members] == [info.filename for info in infos]
                for member, info, content in zip(members, infos, contents, strict=True):
                    assert (member.at, member.size) == (info.header_offset, info.file_size)
                    assert parser.verify(member).verified
                    assert read_all(parser.open_member(member)) == content
                assert extraction.status is Status.TRUNCATED

    def test_a_member_with_zip64_fields_is_read(self) -> None:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            with archive.open(zipfile.ZipInfo("big"), "w", force_zip64=True) as file:
                file.write(b"not so big")
            add(archive, "small", b"small")
        for source in (out.getvalue(), out.getvalue()[: out.getvalue().find(b"PK\1\2")]):
            with opened(source) as extraction:
                assert [node.load() for node in extraction.root.children()] == [b"not so big", b"small"]

    def test_values_of_64_bits_in_the_directory_are_followed(self) -> None:
        """Values of 64 bits in the directory and its end, where those of 32 are all ones."""
        archive = Archive(Made("a", b"first"), Made("b", b"second"))
        directory = b""
        for member in archive.members:
            entry = bytearray(member.central())
            entry[20:28] = entry[42:46] * 0 + b"\xff" * 8
            entry[42:46] = b"\xff" * 4
            wide = struct.pack("<HHQQQ", 1, 24, len(member.content), len(member.packed), member.at)
            entry[30:32] = struct.pack("<H", len(wide))
            directory += bytes(entry) + wide
        at = len(archive.body)
        end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 2, 2, len(directory), at)
        locator = struct.pack("<4sIQI", b"PK\6\7", 0, at + len(directory), 1)
        end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
        source = archive.body + directory + end64 + locator + end
        for prefix in (b"", b"prefix" * 50):
            with opened(prefix + source) as extraction:
                parser = parser_of(extraction)
                assert parser.directory is not None
                assert [(row.name, row.size) for row in parser.members()] == [("a", 5), ("b", 6)]
                assert [node.load() for node in extraction.root.children()] == [b"first", b"second"]

    def test_a_comment_full_of_signatures_hides_no_member(self) -> None:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            add(archive, "a", b"content")
            archive.comment = b"PK\5\6 in a comment " * 9
        with opened(out.getvalue()) as extraction:
            assert extraction.get('["a"]') == b"content"
            assert not list(extraction.check())
        with opened(out.getvalue()[:-5]) as extraction:
            assert extraction.get('["a"]') == b"content"
            assert [finding.code for finding in extraction.check()] == ["truncated"]

    def test_more_members_than_two_bytes_count_are_listed_within_the_budget(self) -> None:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for number in range(66_000):
                archive.writestr(zipfile.ZipInfo(f"folder/file-{number}"), b"")
        with opened(out.getvalue(), budget="8MiB") as extraction:
            parser = parser_of(extraction)
            assert [row.name for row in parser.members()] == [f"folder/file-{number}" for number in range(66_000)]
            assert extraction.root.child(65_537).key == "folder/file-65537"
            assert extraction.root["folder/file-65999"].load() == b""
            assert sum(1 for _ in parser.files()) == 66_000

    @pytest.mark.skipif(shutil.which("zip") is None, reason="there is no zip program")
    def test_of_info_zip(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "text").write_bytes(b"text " * 1000)
        (tmp_path / "raw").write_bytes(noise(3000))
        (tmp_path / "link").symlink_to("folder/text")
        subprocess.run(["zip", "-qry", "out.zip", "folder", "raw", "link"], cwd=tmp_path, check=True)
        piped = subprocess.run(["zip", "-qr", "-", "folder", "raw"], cwd=tmp_path, check=True, capture_output=True)
        whole = (tmp_path / "out.zip").read_bytes()
        with opened(whole) as extraction:
            parser = parser_of(extraction)
            members = {member.name: member for member in parser.files()}
            assert {name: member.kind for name, member in members.items()} == {
                "folder/": "folder",
                "folder/text": "file",
                "raw": "file",
                "link": "symlink",
            }
            assert members["raw"].mtime == int((tmp_path / "raw").stat().st_mtime)
            assert members["raw"].mode == (tmp_path / "raw").stat().st_mode & 0o7777
            assert extraction.get('["link"]') == b"folder/text"
            assert [finding for finding in extraction.check() if finding.severity is Severity.ERROR] == []
        for source in (whole[: whole.find(b"PK\1\2")], piped.stdout, piped.stdout[: piped.stdout.find(b"PK\1\2")]):
            with opened(source) as extraction:
                assert extraction.get('["folder/text"]') == b"text " * 1000
                assert extraction.get('["raw"]') == noise(3000)


class TestMembers:
    def test_enter_and_find(self) -> None:
        archive = Archive(Made("a/b.txt", b"one"), Made("a/b.txt", b"two", method=8), Made("c/", b""))
        with opened(archive.whole) as extraction:
            parser = parser_of(extraction)
            assert read_all(parser.enter("a/b.txt")) == b"one"
            assert read_all(parser.enter("a/b.txt#2")) == b"two"
            with pytest.raises(PathError):
                parser.enter("a/b.tx")

    def test_stored_members_are_ranges_of_the_file(self) -> None:
        archive = torch_like()
        with opened(archive.whole) as extraction:
            parser = parser_of(extraction)
            for member, made in zip(parser.files(), archive.members, strict=True):
                data, start, end = parser.content(member)
                assert data is extraction.data
                assert (start, end) == (made.start, made.end)
                assert not start % 64

    def test_duplicates_beyond_a_block(self) -> None:
        members = [Made(f"{'n' * 200}{number}", b"") for number in range(3000)]
        archive = Archive(*members, Made(members[5].name, b"again"), Made("z", b""), Made(members[5].name, b"thrice"))
        with opened(archive.whole) as extraction:
            names = [row.name for row in parser_of(extraction).members()]
        assert names[3000:] == [members[5].name + "#2", "z", members[5].name + "#3"]
        assert names[:3000] == [member.name for member in members]

    def test_encrypted_members_are_listed(self) -> None:
        aes = struct.pack("<HHH2sBH", 0x9901, 7, 2, b"AE", 3, 8)
        archive = Archive(Made("zipcrypto", noise(50), flags=1), Made("aes", noise(50), flags=1, method=99, extra=aes))
        for source in (archive.whole, archive.body):
            with opened(source) as extraction:
                parser = parser_of(extraction)
                members = list(parser.files())
                assert [(member.method, member.status) for member in members] == [
                    ("encrypted", Status.UNSUPPORTED),
                    ("encrypted", Status.UNSUPPORTED),
                ]
                assert [row.status for row in parser.members()] == [Status.UNSUPPORTED] * 2
                with pytest.raises(UnsupportedError):
                    parser.content(members[0])
                with pytest.raises(UnsupportedError):
                    extraction.get('["aes"]')
                assert parser.verify(members[1]).status is Status.UNSUPPORTED

    def test_unknown_methods_are_listed(self) -> None:
        archive = Archive(Made("a", b"", packed=noise(50), method=9), Made("b", b"fine"))
        with opened(archive.whole) as extraction:
            members = list(parser_of(extraction).files())
            assert [(member.method, member.status) for member in members] == [
                ("deflate64", Status.UNSUPPORTED),
                ("stored", Status.COMPLETE),
            ]
            assert members[0].finding is not None
            assert "deflate64, is not supported; 7-Zip reads it" in members[0].finding.reason

    @pytest.mark.parametrize("number", [20, 93])
    def test_members_compressed_with_zstd_are_read(self, number: int) -> None:
        content = b"zstd " * 1000
        archive = Archive(Made("a", content, packed=zstd.compress(content), method=number), Made("b", b"next"))
        assert_contents(archive, [content, b"next"])

    def test_members_compressed_with_xz_are_read(self) -> None:
        import lzma

        content = b"xz " * 500
        archive = Archive(Made("a", content, packed=lzma.compress(content), method=95), Made("b", b"next"))
        assert_contents(archive, [content, b"next"])

    def test_lzma_without_an_end_mark(self) -> None:
        """Without flag 1 the size says where the stream ends."""
        import lzma

        content = b"lzma " * 500
        filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 20, "lc": 3, "lp": 0, "pb": 2}]
        raw = lzma.compress(content, lzma.FORMAT_RAW, filters=filters)
        packed = b"\x09\x14\5\0" + b"\x5d" + struct.pack("<I", 1 << 20) + raw
        archive = Archive(Made("a", content, packed=packed, method=14, flags=2), Made("b", b"next"))
        assert_contents(archive, [content, b"next"])
        archive = Archive(Made("a", content, packed=packed, method=14, flags=0), Made("b", b"next"))
        with opened(archive.whole) as extraction:
            member = next(parser_of(extraction).files())
            assert parser_of(extraction).verify(member).verified

    def test_bad_lzma_properties(self) -> None:
        archive = Archive(Made("a", b"x", packed=b"\x09\x14\4\0" + bytes(20), method=14))
        with opened(archive.whole) as extraction, pytest.raises(MalformedError):
            extraction.get('["a"]')

    def test_a_member_above_the_limit_of_scalars_is_not_loaded(self) -> None:
        archive = Archive(Made("a", bytes(5000), method=8))
        with opened(archive.whole, limits=pparse.Limits(scalar_bytes=4000)) as extraction, pytest.raises(LimitError):
            extraction.get('["a"]')


def assert_contents(archive: Archive, contents: list[bytes]) -> None:
    for source in (archive.whole, archive.body):
        with opened(source) as extraction:
            assert [node.load() for node in extraction.root.children()] == contents


class TestDirectory:
    def test_prefix_and_tail(self) -> None:
        members = (Made("a", b"one"), Made("b", b"two", method=8))
        prefix, tail = b"#!/bin/sh\n" * 300, noise(70_000)
        for shift in (0, len(prefix)):
            archive = Archive(*members, prefix=prefix, shift=shift)
            with opened(archive.whole + tail) as extraction:
                parser = parser_of(extraction)
                assert parser.directory is not None
                assert parser.directory.shift == shift
                assert [node.load() for node in extraction.root.children()] == [b"one", b"two"]
                codes = [(finding.code, finding.severity) for finding in extraction.check()]
                assert codes == [("prefix", Severity.NOTE), ("trailing", Severity.WARNING)]

    def test_an_archive_of_no_members_is_complete(self) -> None:
        for prefix in (b"", b"#!/bin/sh\n"):
            with opened(Archive(prefix=prefix, shift=len(prefix)).whole) as extraction:
                assert extraction.status is Status.COMPLETE
                assert len(extraction.root) == 0

    def test_a_directory_in_another_order_names_the_same_members(self) -> None:
        archive = Archive(*(Made(f"m{number}", noise(50, number)) for number in range(8)))
        entries = [member.central() for member in archive.members]
        order = [3, 1, 7, 0, 2, 6, 5, 4]
        source = archive.body + b"".join(entries[number] for number in order) + archive.end
        with opened(source) as extraction:
            assert parser_of(extraction).directory is not None
            assert list(extraction.root.keys()) == [f"m{number}" for number in order]
            assert [node.load() for node in extraction.root.children()] == [noise(50, number) for number in order]

    def test_listing_reads_the_end_only(self) -> None:
        archive = Archive(*(Made(f"m{number}", noise(100_000, number)) for number in range(20)))
        stats = IoStats()
        with opened(BytesData(archive.whole, stats=stats)) as extraction:
            rows = list(parser_of(extraction).members())
            assert len(rows) == 20
        assert stats.bytes < 20_000

    def test_opening_one_reads_no_other(self) -> None:
        archive = Archive(*(Made(f"m{number}", noise(100_000, number)) for number in range(20)))
        stats = IoStats()
        with opened(BytesData(archive.whole, stats=stats)) as extraction:
            assert extraction.get('["m7"]') == noise(100_000, 7)
        assert stats.bytes < 130_000

    def test_a_wrong_count_in_the_end_record_is_a_finding(self) -> None:
        archive = Archive(Made("a", b"one"), Made("b", b"two"))
        end = bytearray(archive.end)
        end[8:12] = struct.pack("<HH", 9, 9)
        with opened(archive.body + archive.directory + bytes(end)) as extraction:
            assert list(extraction.root.keys()) == ["a", "b"]
            assert [finding.code for finding in extraction.check()] == ["count"]


class TestMatch:
    def match(self, source: bytes) -> Confidence:
        return confidence(ZipParser, BytesData(source).range(0, len(source)))

    def test_certain(self) -> None:
        assert self.match(Archive(Made("a", b"one")).whole) is Confidence.CERTAIN
        assert self.match(Archive(Made("a", b"one")).body) is Confidence.CERTAIN
        assert self.match(Archive().whole) is Confidence.CERTAIN

    def test_likely(self) -> None:
        archive = Archive(Made("a", b"one"), Made("b", b"two"), prefix=b"#!/bin/sh\n", shift=10)
        assert self.match(archive.whole) is Confidence.LIKELY
        archive = Archive(Made("a", b"one"), Made("b", b"two"))
        assert self.match(b"PK\3\5" + archive.body[4:]) is Confidence.LIKELY
        assert self.match(b"\0\0\0\0" + archive.body[4:]) is Confidence.LIKELY
        assert self.match(b"\0\0\0\0" + archive.whole[4:]) is Confidence.LIKELY
        assert self.match(archive.body[:20]) is Confidence.LIKELY

    def test_no(self) -> None:
        for source in (b"", b"PK", b"PK\3\4" + bytes([255] * 200), b"hello world " * 50, bytes(1000), noise(70_000)):
            assert self.match(source) is Confidence.NO, source[:20]


@rows(
    "raw, option, name, guessed",
    [
        ("モデル".encode("cp932"), None, "âéâfâï", True),  # these could be letters with accents
        ("ソフト表".encode("cp932"), None, "ソフト表", True),  # with a backslash in it, code page 437 makes no name
        ("新しい\\表".encode("cp932"), None, "新しい\\表", True),
        ("新しい資料表ｶ".encode("cp932"), None, "新しい資料表ｶ", True),
        ("ﾊﾝｶｸ表示".encode("cp932"), None, "ﾊﾝｶｸ表示".encode("cp932").decode("cp437"), True),  # mostly half-width
        ("Éléphant Köln".encode("cp437"), None, "Éléphant Köln", True),  # kanji, too, but not in a row
        ("新增資料夾".encode("big5"), None, "╖s╝W╕Ω«╞º¿", True),
        ("елена".encode("cp1251"), None, "σδσφα", True),  # rare kanji
        ("モデル".encode("cp932"), "cp932", "モデル", False),
        ("ソ表".encode("cp932"), "cp932", "ソ表", False),  # their second bytes are those of a backslash
        ("联通".encode("gbk"), None, "┴¬═¿", True),
        ("联通".encode("gbk"), "gbk", "联通", False),
        ("модель".encode("cp1251"), "cp1251", "модель", False),
        ("ü".encode(), None, "ü", False),
        (b"\x81\xff", "euc-kr", "ü\xa0", True),  # not in that encoding
    ],
)
def test_names_are_read_in_the_encoding_that_is_given(raw, option, name, guessed):
    place = b"n" * len(raw)
    made = Archive(Made(place.decode(), b"content", method=8), Made("plain", b"x"))
    options = {"encoding": option} if option else {}
    for source in (made.whole, made.body):  # by the directory, and without one
        with opened(source.replace(place, raw), options=options) as extraction:
            parser = parser_of(extraction)
            assert [member.name for member in parser.members()] == [name, "plain"]
            assert extraction.get(name) == b"content"
            told = [found for found in extraction.result.findings if found.code == "encoding"]
            assert [found.severity for found in told] == [Severity.NOTE] * guessed


def test_one_name_that_is_not_japanese_has_all_read_as_the_format_says():
    names = "新しい表".encode("cp932"), "Köln été".encode("cp437")
    made = Archive(*(Made(letter * 8, b"") for letter in "nm")).whole
    made = made.replace(b"n" * 8, names[0]).replace(b"m" * 8, names[1])
    with opened(made) as extraction:
        assert [member.name for member in parser_of(extraction).members()] == ["ÉVé╡éóò\\", "Köln été"]


def test_names_that_are_guessed_are_told_before_they_are_written(run, tmp_path):
    raw = "ソフト表.txt".encode("cp932")
    path = tmp_path / "a.zip"
    path.write_bytes(Archive(Made("n" * len(raw), b"x")).whole.replace(b"n" * len(raw), raw))
    for command in ("extract", "recover"):
        lines = run(command, path, "-o", tmp_path / command).out.splitlines()
        assert ["cp932 (Japanese)" in line for line in lines] == [True] + [False] * (len(lines) - 1)
        assert (tmp_path / command / "ソフト表.txt").read_bytes() == b"x"


def test_an_encoding_of_names_must_exist_and_hold_ascii():
    for option in ("klingon", "utf-16", "hex", "cp932\0"):
        with pytest.raises(OptionError, match="no encoding"):
            opened(Archive(Made("a", b"x")).whole, options={"encoding": option})
