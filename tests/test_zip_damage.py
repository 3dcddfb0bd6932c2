"""Zip archives that are cut, damaged, hostile, or without a directory."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import TYPE_CHECKING

import pytest

import pparse
from pparse.data.base import BytesData
from pparse.data.spliced import MissingData, SplicedData
from pparse.findings import Severity, Status
from pparse.parsers.zip.parser import ZipParser
from pparse.testing.fakes import GappyData, UnknownSizeData
from tests import sweep
from tests.rows import rows
from tests.zip_samples import Archive, Made, noise, torch_like

if TYPE_CHECKING:
    from pparse.containers.archive import ArchiveMember
    from pparse.document.extraction import Extraction


def opened(source: object, **more: object) -> Extraction:
    return pparse.open(source, parsers=[ZipParser], format="zip", **more)  # type: ignore[arg-type]


class Got:
    """What came of one member: ``known`` are its bytes with None... zeros where unknown."""

    def __init__(self, parser: ZipParser, member: ArchiveMember) -> None:
        self.member = member
        self.name = member.name
        out = bytearray()
        self.unknown: list[tuple[int, int]] = []

        def keep(offset: int, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
            assert offset == len(out)
            out.extend(chunk)
            self.unknown += unknown

        self.verdict = parser.verify(member, keep)
        self.content = bytes(out)
        self.status = self.verdict.status

    def is_beginning_of(self, member: Made) -> bool:
        """Say whether all known bytes are right; what is cut in its descriptor may have the beginning of that."""
        content = bytearray(member.content + member.trailer())
        for first, count in self.unknown:
            content[first : first + count] = bytes(count)
        return content.startswith(self.content)


def read(source: object, **more: object) -> list[Got]:
    with opened(source, **more) as extraction:
        parser = extraction.parse().parser
        assert isinstance(parser, ZipParser)
        return [Got(parser, member) for member in parser.files() if member.kind != "gap"]


def names(source: object) -> list[str]:
    return [got.name for got in read(source)]


def assert_honest(found: list[Got], archive: Archive) -> None:
    """What claims to be whole is what it should be."""
    contents = {member.content for member in archive.members}
    for got in found:
        if got.verdict.verified:
            assert got.status is Status.COMPLETE
            assert got.content in contents, got.name


def assert_whole(found: list[Got], members: list[Made] | tuple[Made, ...]) -> None:
    assert [got.name for got in found] == [member.name for member in members]
    for got, member in zip(found, members, strict=True):
        assert got.status is Status.COMPLETE, (got.name, got.verdict)
        assert got.content == member.content, got.name
        assert got.verdict.verified or member.descriptor, got.name


def three(**more: object) -> Archive:
    return Archive(
        Made("a.txt", noise(60, 2).hex().encode() * 2, method=8, **more),  # type: ignore[arg-type]
        Made("b.bin", noise(500), **more),  # type: ignore[arg-type]
        Made("c.txt", noise(60, 3).hex().encode() * 2, method=8, **more),  # type: ignore[arg-type]
    )


INNER = Archive(Made("inner/one", noise(300, 5)), Made("inner/two", b"text " * 50, method=8))


class TestNoDirectory:
    @pytest.mark.parametrize("method", [0, 8])
    @pytest.mark.parametrize("descriptor", [0, 12, 16, 20, 24])
    def test_members_of_unknown_size_are_found_by_their_descriptors(self, descriptor: int, method: int) -> None:
        members = [
            Made("one", noise(700, 1), method=method, descriptor=descriptor),
            Made("empty", b"", method=method, descriptor=descriptor),
            Made("two", b"PK\7\x08" * 50 + b"PK\3\4" * 50 + noise(90), method=method, descriptor=descriptor),
            Made("three", b"x", method=method, descriptor=descriptor),
        ]
        archive = Archive(*members)
        for source in (archive.whole, archive.body, archive.body + archive.directory[:70]):
            assert_whole(read(source), members)
        if method or descriptor not in (12, 20):  # without a signature only what follows tells
            assert_whole(read(archive.body + b"junk" * 9), members)
        assert all(got.verdict.verified for got in read(archive.body)), "each has a checksum"

    def test_bytes_before_the_archive_cost_no_member(self) -> None:
        archive = Archive(*three().members, prefix=b"#!/bin/sh\n" * 500, shift=5000)
        assert_whole(read(archive.body), archive.members)

    def test_nothing_at_all_is_an_empty_archive_that_is_cut(self) -> None:
        with opened(b"") as extraction:
            assert [(finding.code, finding.offset) for finding in extraction.check()] == [("empty", 0)]
            assert extraction.status is Status.TRUNCATED

    def test_half_a_directory_is_used(self) -> None:
        """A link is known as one from the directory only."""
        archive = Archive(Made("link", b"target", mode=0o120777), Made("file", b"content"))
        cut = archive.body + archive.directory[:-10]
        assert [got.member.kind for got in read(cut)] == ["symlink", "file"]
        assert [got.member.kind for got in read(archive.body)] == ["file", "file"]

    def test_what_is_there_of_a_directory_that_is_cut_is_no_member(self) -> None:
        archive = three()
        start, tail = len(archive.body), b"PK\6\6" + struct.pack("<Q", 44) + bytes(44)
        whole = archive.body + archive.directory + tail
        marks = [at for at in range(start, len(whole)) if whole[at : at + 2] == b"PK"]
        for cut in range(start + 3, len(whole) + 1):
            if cut - max(at for at in marks if at <= cut) not in (1, 2):  # these may begin a local header
                with opened(whole[:cut]) as extraction:
                    assert {finding.code for finding in extraction.check()} == {"truncated"}, cut
                    assert "gap" not in [member.kind for member in extraction.parse().parser.files()], cut

    def test_what_is_no_record_of_a_directory_is_still_told(self) -> None:
        archive = three()
        for junk in (b"PK\1\2" + b"\xff" * 50, b"PK\1\2" + bytes(90), b"PK\6\6" + bytes(60)):
            with opened(archive.body + junk) as extraction:
                assert "gap" in {finding.code for finding in extraction.check()}, junk

    def test_damage_in_the_directory(self) -> None:
        archive = three()
        at = len(archive.body) + len(archive.members[0].central()) + 1
        broken = bytearray(archive.whole)
        broken[at : at + 3] = b"???"
        found = read(bytes(broken))
        assert_whole(found, archive.members)
        with opened(bytes(broken)) as extraction:
            assert extraction.status is Status.DAMAGED

    @pytest.mark.parametrize("count", [4, 30, 33])
    def test_a_member_without_a_header_is_where_the_directory_says_if_one_other_is(self, count: int) -> None:
        archive = Archive(Made("one", b"1" * 700), Made("two", b"2" * 700, method=8))
        at = archive.members[1].at
        source = archive.body[:at] + bytes(count) + archive.body[at + count :] + archive.directory
        assert_whole(read(source), archive.members)

    def test_the_signature_of_a_directory_is_a_record_of_it(self) -> None:
        archive = three()
        signature = b"PK\5\5" + struct.pack("<H", 100) + b"s" * 100
        with opened(archive.body + signature + archive.directory) as extraction:
            assert [finding.code for finding in extraction.check()] == ["truncated"]
            names = [member.name for member in extraction.result.parser.files()]
        assert names == [member.name for member in archive.members]

    def test_duplicates_are_kept(self) -> None:
        archive = Archive(Made("same", b"one"), Made("same", b"two"), Made("same", b"three", method=8))
        for source in (archive.whole, archive.body):
            assert [got.content for got in read(source)] == [b"one", b"two", b"three"]
            with opened(source) as extraction:
                parser = extraction.parse().parser
                assert [row.name for row in parser.members()] == ["same", "same#2", "same#3"]
                node = parser.find_member("same#2")
                assert node is not None
                assert node.load() == b"two"

    def test_encrypted_and_streamed(self) -> None:
        """Nobody can decode it; the distance in the descriptor tells where it ends."""
        archive = Archive(Made("secret", noise(400), flags=1, descriptor=16), Made("plain", b"plain"))
        found = read(archive.body)
        assert [(got.name, got.status) for got in found] == [
            ("secret", Status.UNSUPPORTED),
            ("plain", Status.COMPLETE),
        ]

    def test_garbage_between_members(self) -> None:
        archive = three()
        cut = archive.members[1].at
        source = archive.body[:cut] + b"PK\3\4garbage" * 30 + archive.body[cut:]
        assert_whole(read(source), archive.members)
        with opened(source) as extraction:
            gaps = [kid for kid in extraction.root.children() if kid.kind == "gap"]
            assert [(gap.start, gap.end) for gap in gaps] == [(cut, cut + 330)]

    def test_members_of_archives_in_a_row_are_all_found(self) -> None:
        one, two = three(), Archive(Made("z", b"last"))
        assert names(one.whole + two.whole) == ["a.txt", "b.bin", "c.txt", "z"]


class TestNested:
    def test_directory_of_a_nested_archive_is_not_ours(self) -> None:
        for descriptor in (0, 16, 12):
            archive = Archive(
                Made("first", noise(100)),
                Made("nested.zip", INNER.whole, descriptor=descriptor),
                Made("last", b"last"),
            )
            for source in (archive.whole, archive.body):
                assert_whole(read(source), archive.members)

    def test_nested_archive_comes_first(self) -> None:
        archive = Archive(Made("nested.zip", INNER.whole), Made("last", b"last"))
        assert names(archive.body) == ["nested.zip", "last"]

    @pytest.mark.parametrize("descriptor", [0, 16])
    def test_cut_in_a_nested_archive(self, descriptor: int) -> None:
        archive = Archive(Made("first", noise(100)), Made("nested.zip", INNER.whole, descriptor=descriptor))
        for size in range(archive.members[1].start, archive.members[1].end):
            found = read(archive.body[:size])
            assert [got.name for got in found] == ["first", "nested.zip"], size
            assert found[1].status is Status.TRUNCATED
            assert found[1].content == INNER.whole[: size - archive.members[1].start]

    @pytest.mark.parametrize("prefix", [b"", b"junk in front" * 9])
    def test_a_stored_archive_whose_descriptor_is_lost_ends_before_the_next_member(self, prefix: bytes) -> None:
        inner = Archive(Made("one", b"1" * 90, descriptor=16), Made("two", b"2" * 90, descriptor=16))
        outer = Archive(
            Made("inner.zip", inner.whole, descriptor=16), Made("next", b"n" * 70, descriptor=16), prefix=prefix
        )
        end = outer.members[0].end
        source = outer.body[:end] + bytes(16) + outer.body[end + 16 :]
        found = read(source)
        assert [got.name for got in found] == ["inner.zip", "next"]
        assert found[0].content.startswith(inner.whole)
        assert_whole(found[1:], outer.members[1:])

    def test_broken_first_header_before_a_nested_archive(self) -> None:
        archive = Archive(Made("first", noise(100)), Made("nested.zip", INNER.whole), Made("last", b"last"))
        broken = b"\0" * 4 + archive.body[4:]
        assert names(broken) == ["nested.zip", "last"]
        whole = b"\0" * 4 + archive.whole[4:]
        assert names(whole) == ["first", "nested.zip", "last"]


class TestPrefixes:
    @pytest.mark.parametrize("descriptor", [0, 12, 16, 20, 24])
    def test_every_prefix_gives_the_members_that_end_in_it(self, descriptor: int) -> None:
        archive = three(descriptor=descriptor)
        for size in sweep.some(range(len(archive.whole)), 3, ends=24):
            found = read(archive.whole[:size])
            assert_honest(found, archive)
            there = [member for member in archive.members if member.end + descriptor <= size]
            assert_whole(found[: len(there)], there)
            assert len(found) <= len(there) + 1
            if len(found) > len(there):
                member = archive.members[len(there)]
                assert found[-1].name == member.name
                assert found[-1].is_beginning_of(member)

    def test_every_prefix_of_a_torch_file_gives_the_members_that_end_in_it(self) -> None:
        archive = torch_like((900, 64, 700))
        for size in sweep.some(range(0, len(archive.whole), 3), 3, ends=8):
            found = read(archive.whole[:size])
            assert_honest(found, archive)
            there = [member for member in archive.members if member.end + 16 <= size]
            assert_whole(found[: len(there)], there)
            for got, member in zip(found[len(there) :], archive.members[len(there) :], strict=False):
                assert got.is_beginning_of(member)
                assert got.name == member.name

    def test_stream_of_unknown_size(self) -> None:
        archive = three(descriptor=16)
        assert_whole(read(UnknownSizeData(archive.whole)), archive.members)
        assert_whole(read(UnknownSizeData(archive.body)), archive.members)


def _denied(archive: Archive, at: int) -> Made | None:
    """Return the member in whose directory entry the byte at ``at`` is one of the CRC or of the name."""
    pos = len(archive.body)
    for member in archive.members:
        if pos + 16 <= at < pos + 20 or pos + 46 <= at < pos + 46 + len(member.name):
            return member
        pos += len(member.central())
    return None


class TestChanges:
    @pytest.mark.parametrize("descriptor", [0, 16])
    @pytest.mark.parametrize("whole", [True, False])
    def test_a_changed_byte_costs_one_member_at_most(self, descriptor: int, whole: bool) -> None:
        """One changed byte costs one member at most; one in the directory's CRC or name costs the trust in it."""
        archive = three(descriptor=descriptor)
        source = archive.whole if whole else archive.body
        for at in sweep.some(range(len(source)), 2, ends=24):
            for value in sweep.values((source[at] ^ 0xFF, source[at] ^ 1), at, 1):
                changed = bytearray(source)
                changed[at] = value
                found = read(bytes(changed))
                assert_honest(found, archive)
                good = {got.content for got in found if got.status is Status.COMPLETE}
                denied = _denied(archive, at) if whole else None
                if denied is not None:
                    of_it = [(got.content, got.status) for got in found if got.content == denied.content]
                    assert of_it == [(denied.content, Status.DAMAGED)], (at, value)
                    good.add(denied.content)
                hurt = next((member for member in archive.members if member.at <= at < member.end + descriptor), None)
                for member in archive.members:
                    assert member is hurt or member.content in good, (at, value, member.name)

    def test_damage_is_found(self) -> None:
        archive = three()
        member = archive.members[1]
        changed = bytearray(archive.whole)
        changed[member.start + 7] ^= 4
        found = read(bytes(changed))
        assert [got.status for got in found] == [Status.COMPLETE, Status.DAMAGED, Status.COMPLETE]
        assert found[1].verdict.code == "checksum"
        with opened(bytes(changed)) as extraction:
            errors = [finding for finding in extraction.check() if finding.severity is Severity.ERROR]
            assert [finding.path for finding in errors] == ["b.bin"]

    def test_broken_header_is_found_by_the_directory(self) -> None:
        for descriptor in (0, 12, 16):
            archive = three(descriptor=descriptor)
            for member in archive.members:
                changed = bytearray(archive.whole)
                changed[member.at : member.at + 4] = b"\0\0\0\0"
                found = read(bytes(changed))
                assert_whole(found, archive.members)
                changed = changed[: -len(archive.end)]
                assert_whole(read(bytes(changed)), archive.members)
                changed[member.at : member.at + 35] = bytes(35)  # all of the header
                assert_whole(read(bytes(changed)), archive.members)

    def test_a_lost_descriptor_damages_its_member_only(self) -> None:
        archive = torch_like((900, 64, 700))
        member = archive.members[2]
        source = archive.body[: member.end] + b"?" * 16 + archive.body[member.end + 16 :]
        found = read(source)
        assert [got.name for got in found] == [each.name for each in archive.members]
        assert found[2].status is Status.DAMAGED
        assert [got.status for number, got in enumerate(found) if number != 2] == [Status.COMPLETE] * 5

    def test_missing_bytes_without_a_gap(self) -> None:
        """Bytes were cut out of a member: the others are found, and its own tail is not taken for another."""
        archive = three()
        for number, member in enumerate(archive.members):
            source = archive.whole[: member.start + 20] + archive.whole[member.start + 31 :]
            found = read(source)
            assert [got.name for got in found] == ["a.txt", "b.bin", "c.txt"]
            for other, got in enumerate(found):
                assert (got.status is Status.COMPLETE) == (other != number), (number, other, got.verdict)

    def test_sizes_that_lie_are_corrected_and_told(self) -> None:
        for method in (0, 8):
            for lie in (10, 5000, 0xFFFFFFF0):
                archive = Archive(
                    Made("a", b"a" * 70), Made("b", noise(1000), method=method, local_packed=lie), Made("c", b"c" * 70)
                )
                found = read(archive.whole)
                assert_whole(found, archive.members)
                with opened(archive.whole) as extraction:
                    codes = [finding.code for finding in extraction.check()]
                    assert codes == ["contradiction"]
                assert_whole(read(archive.body), archive.members)

    def test_a_crc_that_only_the_descriptor_has_contradicts_nothing(self) -> None:
        archive = Archive(Made("a", b"a" * 70, descriptor=16, local_packed=70), Made("b", b"b" * 70))
        for source in (archive.whole, archive.body + archive.directory):
            found = read(source)
            assert_whole(found, archive.members)
            assert [got.member.finding for got in found] == [None, None]

    def test_a_listed_size_that_cannot_be_is_unknown(self) -> None:
        archive = Archive(Made("a", b"a" * 700, method=8), Made("b", b"b" * 70))
        source = bytearray(archive.whole)
        for at in (22, len(archive.body) + 24):  # one of the two alone contradicts the other
            struct.pack_into("<I", source, at, 1 << 30)
        one, two = (got.member for got in read(bytes(source)))
        assert (one.size, one.finding.code if one.finding else "") == (None, "contradiction")
        assert (two.size, two.finding) == (70, None)

    @rows("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_an_entry_that_is_wrong_about_a_member_loses_nothing_of_it(self, method: int) -> None:
        """Its local header fits the file, and has the same name and CRC: the content agrees with that.

        But of deflate, bzip2 is a method, too, that may have these sizes.
        """
        archive = Archive(Made("a", b"a" * 70), Made("b", b"some text " * 70, method=method), Made("c", b"c" * 70))
        entry = archive.directory.index(b"PK\1\2", 4) + len(archive.body)
        flips = [(8, 1), *((at, 1 << bit) for at in (10, 20, 21, 23, 24, 25, 27) for bit in range(8))]
        for at, bit in flips if method == zipfile.ZIP_STORED else [flip for flip in flips if flip != (10, 4)]:
            source = bytearray(archive.whole)
            source[entry + at] ^= bit
            with opened(bytes(source)) as extraction:
                content = [bytes(node.load()) for node in extraction.root.children()]
                assert content == [member.content for member in archive.members], (at, bit)
                assert [finding.severity for finding in extraction.check()][:1] == ["error"], (at, bit)

    @rows("field", [28, 30, 32])
    def test_an_entry_that_swallows_others_hides_none(self, field: int) -> None:
        """The length of its name, extra field or comment is wrong, and leads to an entry behind the next ones."""
        archive = Archive(*(Made(name, name.encode() * 70) for name in "abcd"))
        places = [at for at in range(len(archive.directory)) if archive.directory.startswith(b"PK\1\2", at)]
        source = bytearray(archive.whole)
        struct.pack_into("<H", source, len(archive.body) + field, places[2] - places[1] + (field == 28))
        with opened(bytes(source)) as extraction:
            files = (node for node in extraction.root.children() if node.note.kind == "file")
            assert [bytes(node.load()) for node in files] == [member.content for member in archive.members]
            assert "error" in [finding.severity for finding in extraction.check()]

    def test_a_size_that_cannot_be_is_not_filled_up(self) -> None:
        """No stream of so few bytes holds 4 GiB, and nothing is made up to fill them."""
        archive = three()
        changed = bytearray(archive.body)
        changed[22:26] = b"\xff\xff\xff\xf0"
        found = read(bytes(changed))
        assert [got.content for got in found] == [member.content for member in archive.members]
        assert found[0].member.size is None
        assert found[0].verdict.verified

    def test_a_wrong_size_in_the_directory_costs_no_other_member(self) -> None:
        archive = three()
        at = len(archive.body) + len(archive.members[0].central()) + 20
        changed = bytearray(archive.whole)
        changed[at : at + 4] = struct.pack("<I", 123)
        found = read(bytes(changed))
        assert [got.name for got in found] == ["a.txt", "b.bin", "c.txt"]
        assert [got.status for got in found if got.name != "b.bin"] == [Status.COMPLETE] * 2

    @pytest.mark.parametrize("method", [0, 8])
    @pytest.mark.parametrize("said", [20, 4_000])
    def test_of_two_sizes_the_one_that_does_not_fit_the_file_is_named_with_its_record(self, method, said) -> None:
        archive = Archive(Made("a", b"a" * 70), Made("b", noise(1000), method=method), Made("c", b"c" * 70))
        listed = len(archive.body) + len(archive.members[0].central()) + 20
        for place, wrong in ((listed, "directory"), (archive.members[1].at + 18, "local header")):
            source = bytearray(archive.body + archive.directory)  # without an end record, both are looked at
            struct.pack_into("<I", source, place, said)
            found = read(bytes(source))
            assert_whole(found, archive.members)
            findings = [got.member.finding for got in found]
            assert (findings[0], findings[2]) == (None, None)
            assert findings[1] is not None
            assert (findings[1].code, findings[1].severity) == ("contradiction", Severity.WARNING)
            assert f"the {wrong} has sizes" in findings[1].reason

    @pytest.mark.parametrize("field", [14, 22])
    def test_a_local_header_that_leaves_out_size_or_checksum_contradicts_nothing(self, field) -> None:
        archive = Archive(Made("a", b"a" * 70), Made("b", noise(1000), method=8), Made("c", b"c" * 70))
        source = bytearray(archive.body + archive.directory)
        place = archive.members[1].at + field
        source[place : place + 4] = bytes(4)
        found = read(bytes(source))
        assert [got.content for got in found] == [member.content for member in archive.members]
        assert [got.member.finding for got in found] == [None, None, None]

    def test_the_name_in_the_directory_counts_and_the_other_is_a_finding(self) -> None:
        archive = Archive(Made("seen", b"one", local_name="other"), Made("b", b"two"))
        found = read(archive.whole)
        assert [got.name for got in found] == ["seen", "b"]
        with opened(archive.whole) as extraction:
            assert [(finding.code, finding.path) for finding in extraction.check()] == [("name", "seen")]

    def test_of_two_names_that_differ_in_a_byte_either_may_be_wrong(self) -> None:
        """No writer means both; `zipfile` and numpy refuse the member. Nobody vouches for its bytes."""
        found = read(Archive(Made("ssale.npy", b"one", local_name="scale.npy"), Made("b", b"two")).whole)
        assert [(got.name, got.content, got.status) for got in found] == [
            ("ssale.npy", b"one", Status.DAMAGED),
            ("b", b"two", Status.COMPLETE),
        ]
        assert found[0].verdict.verified is None
        spelt = read(Archive(Made("a/b", b"one", local_name="a\\b")).whole)
        assert [got.status for got in spelt] == [Status.COMPLETE]


def stored_block(content: bytes) -> bytes:
    """A deflate stream that holds ``content`` as it is: changed bytes of it decode all the same."""
    return b"\1" + struct.pack("<HH", len(content), len(content) ^ 0xFFFF) + content


def kinds_and_ends(source: bytes) -> list[tuple[str, int]]:
    """Return ``(kind, end of the bytes)`` of all that is found."""
    with opened(source) as extraction:
        return [(kid.note.kind, kid.note.end) for kid in extraction.root.children()]


class TestWhatIsSaidOfMembers:
    ARCHIVE = Archive(Made("a", b"a" * 70), Made("a long name", noise(1000), method=8), Made("c", b"c" * 70))

    def said(self, source: object) -> list[tuple[str, str, str, int, str]]:
        """Return name, kind, status, end of each member, and the code of what is wrong with it."""
        with opened(source) as extraction:
            parser = extraction.parse().parser
            assert isinstance(parser, ZipParser)
            return [
                (
                    member.name,
                    member.kind,
                    str(member.status),
                    member.end,
                    member.finding.code if member.finding else "",
                )
                for member in parser.files()
            ]

    def test_an_archive_that_ends_in_a_local_header_is_cut_there(self) -> None:
        body, last = self.ARCHIVE.body, self.ARCHIVE.members[2]
        for count in (1, 4, 29, 30):
            assert self.said(body[: last.at + count])[2:] == [("", "gap", "truncated", last.at + count, "truncated")]
        assert self.said(body[: last.start]) == [
            *self.said(self.ARCHIVE.whole[: last.at])[:2],
            ("c", "file", "truncated", last.start, "truncated"),
        ]

    def test_bytes_between_members_are_a_gap_that_is_damaged(self) -> None:
        body, last = self.ARCHIVE.body, self.ARCHIVE.members[2]
        found = self.said(body[: last.at] + b"?" * 200 + body[last.at :])
        assert found[2] == ("", "gap", "damaged", last.at + 200, "gap")
        assert [status for _, kind, status, _, _ in found if kind == "file"] == ["complete"] * 3

    def test_a_member_with_a_gap_is_damaged_and_its_neighbours_are_not(self) -> None:
        member = self.ARCHIVE.members[1]
        for source in (self.ARCHIVE.whole, self.ARCHIVE.body):
            for at in (member.start, member.end - 1):
                found = self.said(GappyData(source, [(at, 1)]))
                assert [code for *_, code in found] == ["", "gap", ""], at
                assert [status for _, _, status, _, _ in found] == ["complete", "damaged", "complete"], at

    def test_a_member_whose_name_is_known_in_part_is_damaged(self) -> None:
        found = self.said(GappyData(self.ARCHIVE.body, [(self.ARCHIVE.members[1].at + 32, 3)]))
        assert found[1][:3] == ("a ???g name", "file", "damaged")
        assert [code for *_, code in found] == ["", "name", ""]

    @pytest.mark.parametrize("more", [0, 1])
    def test_a_deflated_byte_holds_1100_at_most(self, more: int) -> None:
        member = self.ARCHIVE.members[1]
        size = 1_100 * (len(member.packed) + 64) + more
        source = bytearray(self.ARCHIVE.whole)
        listed = len(self.ARCHIVE.body) + len(self.ARCHIVE.members[0].central())
        for at in (member.at + 22, listed + 24):
            struct.pack_into("<I", source, at, size)
        for content in (source, source[: len(self.ARCHIVE.body)]):
            with opened(bytes(content)) as extraction:
                parser = extraction.parse().parser
                assert isinstance(parser, ZipParser)
                found = list(parser.files())[1]
            assert found.size == (None if more else size)
            assert (found.finding is not None) is bool(more)
            assert found.status is Status.COMPLETE


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("descriptor", [12, 16, 20, 24])
class TestContradictingDescriptors:
    """The stream tells its own end; its descriptor, which follows, does not say that. There is no directory."""

    def archive(self, descriptor: int, last: bool) -> tuple[bytearray, Made, int]:
        """Return an archive's members, the one at hand, and where its descriptor's CRC stands."""
        content = b"some content of this"
        member = Made("m", content, method=8, descriptor=descriptor, packed=stored_block(content))
        archive = Archive(Made("a", b"first"), member, *([] if last else [Made("z", b"last")]))
        return bytearray(archive.body), member, member.end + (4 if descriptor in (16, 24) else 0)

    def judged(self, source: bytearray, member: Made, last: bool) -> Got:
        """Return what came of the member; it ends where it does, and the next one begins behind its descriptor."""
        found = read(bytes(source))
        assert [got.name for got in found] == (["a", "m"] if last else ["a", "m", "z"])
        assert all(got.verdict.verified for got in found if got.name != "m")
        assert ("file", member.end) in kinds_and_ends(bytes(source))
        assert all(kind == "file" for kind, _ in kinds_and_ends(bytes(source)))
        return found[1]

    def test_another_crc_damages_the_member(self, descriptor: int, last: bool) -> None:
        source, member, at = self.archive(descriptor, last)
        source[at] ^= 1
        got = self.judged(source, member, last)
        assert (got.status, got.verdict.code, got.content) == (Status.DAMAGED, "checksum", member.content)

    def test_the_crc_of_other_bytes_damages_the_member(self, descriptor: int, last: bool) -> None:
        source, member, _ = self.archive(descriptor, last)
        source[member.start + 8] ^= 0x10
        assert self.judged(source, member, last).verdict.code == "checksum"

    @pytest.mark.parametrize("field", [0, 1])
    def test_one_size_that_agrees_vouches_for_the_crc(self, field: int, descriptor: int, last: bool) -> None:
        source, member, at = self.archive(descriptor, last)
        source[at + 4 + field * (4 if descriptor < 20 else 8)] ^= 1
        assert self.judged(source, member, last).verdict.verified is True

    def test_where_nothing_agrees_the_crc_says_nothing(self, descriptor: int, last: bool) -> None:
        source, member, at = self.archive(descriptor, last)
        for place in (0, 4, 8 if descriptor < 20 else 12):
            source[at + place] ^= 1
        got = self.judged(source, member, last)
        assert (got.status, got.verdict.verified) == (Status.COMPLETE, None)

    def test_the_crc_counts_where_the_local_header_knew_the_size(self, descriptor: int, last: bool) -> None:
        content = b"some content of this"
        member = Made("m", content, descriptor=descriptor, local_packed=len(content))
        archive = Archive(Made("a", b"first"), member, *([] if last else [Made("z", b"last")]))
        assert self.judged(bytearray(archive.body), member, last).verdict.verified is True
        source = bytearray(archive.body)
        source[member.start + 3] ^= 0x10
        assert self.judged(source, member, last).verdict.code == "checksum"


class TestTheLongestDescriptor:
    """What the data end in may be the beginning of a descriptor, up to the longest: 24 bytes with a signature."""

    def source(self, method: int, descriptor: bytes) -> tuple[bytes, int]:
        content = b"some content of this"
        packed = stored_block(content) if method else content
        member = Made("m", content, method=method, descriptor=24, packed=packed, local_packed=len(packed))
        if method:
            member.local_packed = None
        archive = Archive(Made("a", b"first"), member)
        return archive.body[: member.end] + descriptor, member.end

    @pytest.mark.parametrize("method", [0, 8])
    @pytest.mark.parametrize("count", [1, 11, 12, 15, 16, 20, 23, 24])
    def test_a_descriptor_that_is_cut_is_nothing_else(self, method: int, count: int) -> None:
        true = Made("m", b"some content of this", descriptor=24).trailer()
        for whole in (true, b"PK\7\x08" + b"\xee" * 20):
            source, end = self.source(method, whole[:count])
            assert kinds_and_ends(source)[1:] == [("file", end)], whole

    def test_one_byte_more_is_something_else(self) -> None:
        source, end = self.source(8, b"PK\7\x08" + b"\xee" * 21)
        assert kinds_and_ends(source)[1:] == [("file", end), ("gap", end + 25)]
        source, end = self.source(0, b"PK\7\x08" + b"\xee" * 21)
        assert read(source)[1].status is Status.TRUNCATED  # its descriptor was not found

    def test_as_many_bytes_without_a_signature_are_something_else(self) -> None:
        source, end = self.source(8, b"\xee" * 23)
        assert kinds_and_ends(source)[1:] == [("file", end)]
        source, end = self.source(8, b"\xee" * 24)
        assert kinds_and_ends(source)[1:] == [("file", end), ("gap", end + 24)]
        source, end = self.source(0, b"\xee" * 24)
        assert read(source)[1].status is Status.TRUNCATED


class TestGaps:
    def test_an_exact_gap_damages_the_member_it_is_in(self) -> None:
        for descriptor in (0, 16):
            archive = three(descriptor=descriptor)
            member = archive.members[1]
            for source in (archive.whole, archive.body):
                found = read(GappyData(source, [(member.start + 100, 50)]))
                assert [got.name for got in found] == ["a.txt", "b.bin", "c.txt"]
                assert [got.status for got in found] == [Status.COMPLETE, Status.DAMAGED, Status.COMPLETE]
                assert found[1].unknown == [(100, 50)]
                content = member.content
                assert found[1].content == content[:100] + bytes(50) + content[150:]

    def test_gap_over_a_header(self) -> None:
        archive = three()
        member = archive.members[1]
        found = read(GappyData(archive.whole, [(member.at + 6, 10)]))
        assert_whole(found, archive.members)
        found = read(GappyData(archive.body, [(member.at + 31, 2)]))
        assert [got.name for got in found] == ["a.txt", "b??in", "c.txt"]
        assert found[1].content == member.content
        found = read(GappyData(archive.body + archive.directory, [(member.at + 31, 2)]))
        assert_whole(found, archive.members)

    def test_gap_at_the_end(self) -> None:
        archive = three()
        member = archive.members[1]
        found = read(GappyData(archive.whole, [(member.start + 10, None)]))
        assert [(got.name, got.status) for got in found] == [("a.txt", Status.COMPLETE), ("b.bin", Status.TRUNCATED)]
        assert found[1].content == member.content[:10]

    def inexact(self, source: bytes, at: int, lost: int, estimate: int) -> SplicedData:
        """Lose ``lost`` bytes at ``at``; the gap is said to be of ``estimate`` bytes, but nobody is sure."""
        return _Inexact(source[:at], source[at + lost :], estimate)

    @pytest.mark.parametrize("estimate", [1, 40, 300])
    @pytest.mark.parametrize("descriptor", [0, 16, 12])
    def test_inexact_gap_in_stored_bytes(self, descriptor: int, estimate: int) -> None:
        archive = three(descriptor=descriptor)
        member = archive.members[1]
        found = read(self.inexact(archive.whole, member.start + 100, 40, estimate))
        assert [got.name for got in found] == ["a.txt", "b.bin", "c.txt"]
        assert [got.status for got in found] == [Status.COMPLETE, Status.DAMAGED, Status.COMPLETE]
        assert found[1].unknown == [(100, 40)]
        content = member.content
        assert found[1].content == content[:100] + bytes(40) + content[140:]

    def test_inexact_gap_without_a_directory(self) -> None:
        archive = three(descriptor=16)
        member = archive.members[1]
        found = read(self.inexact(archive.body, member.start + 100, 40, 30))
        assert [got.status for got in found] == [Status.COMPLETE, Status.DAMAGED, Status.COMPLETE]
        assert found[1].unknown == [(100, 40)]

    def test_more_than_twice_an_inexact_gap_and_64_kib_is_not_taken_for_what_is_missing(self) -> None:
        """Without a directory nobody says that what is behind the gap is of the same member."""
        content = noise(70_000)
        archive = Archive(Made("a", b"one"), Made("b", content), Made("c", b"three"))
        most = 64 * 1024 + 2 * 30
        for lost in (most, most + 1):
            found = read(self.inexact(archive.body, archive.members[1].start + 100, lost, 30))
            assert [got.name for got in found] == ["a", "b", "c"]
            assert [got.status for got in found] == [Status.COMPLETE, Status.DAMAGED, Status.COMPLETE]
            if lost == most:
                assert found[1].unknown == [(100, lost)]
                assert found[1].content == content[:100] + bytes(lost) + content[100 + lost :]
            else:
                assert found[1].content == content[:100]

    def test_inexact_gap_over_several_members(self) -> None:
        members = [Made(f"m{number}", noise(200, number)) for number in range(6)]
        archive = Archive(*members)
        first, last = members[1], members[3]
        found = read(self.inexact(archive.whole, first.start + 50, last.start + 60 - first.start - 50, 100))
        assert [got.name for got in found] == ["m0", "m1", "m4", "m5"]
        assert found[1].content == first.content[:50], "what is behind the gap is of another member"
        assert [got.status for got in found] == [Status.COMPLETE, Status.DAMAGED, Status.COMPLETE, Status.COMPLETE]


class _Inexact(SplicedData):
    """Two pieces with a gap between them of which nobody knows how long it is."""

    def __init__(self, head: bytes, tail: bytes, estimate: int) -> None:
        from pparse.data.base import Gap

        one, two = BytesData(head), BytesData(tail)
        super().__init__(
            [one.range(0, len(head)), MissingData(estimate).range(0, estimate), two.range(0, len(tail))], "<inexact>"
        )
        self.gaps = (Gap(len(head), estimate, exact=False),)


class TestBytesThatAreGone:
    """Bytes are removed inside of a member: the next one is where the directory's order says, not where it says."""

    @pytest.mark.parametrize("count", [1, 2, 100])
    def test_of_a_stored_block_of_deflate(self, count) -> None:
        """A stored block has its length in front: it swallows as much of the next member as is missing."""
        stored = noise(20_000)
        packed = struct.pack("<BHH", 1, len(stored), len(stored) ^ 0xFFFF) + stored
        archive = Archive(
            Made("first", b"1"), Made("hit", stored, method=8, packed=packed), Made("next", b"whole" * 99)
        )
        at = archive.whole.index(stored) + 10_000
        found = {got.name: got for got in read(archive.whole[:at] + archive.whole[at + count :])}
        assert found["next"].content == b"whole" * 99
        assert found["next"].verdict.verified
        assert found["hit"].status is Status.DAMAGED

    @pytest.mark.parametrize("count", [1, 38, 100])
    @pytest.mark.parametrize("shift", [0, 300])
    def test_of_the_first_member_behind_other_bytes(self, count, shift) -> None:
        """What the directory and all later headers agree on is not where the first one stands."""
        first, last = noise(700), b"whole" * 99
        archive = Archive(Made("first", first), Made("last", last, method=8), prefix=noise(300, 2), shift=shift)
        at = archive.members[0].start + 50
        found = read(archive.whole[:at] + archive.whole[at + count :])
        assert [(got.name, got.member.start) for got in found] == [
            ("first", archive.members[0].start),
            ("last", archive.members[1].start - count),
        ]
        assert found[0].status is Status.DAMAGED
        assert found[0].content == first[:50] + first[50 + count :]
        assert found[1].content == last
        assert found[1].verdict.verified

    @pytest.mark.parametrize("method", [0, 8])
    @pytest.mark.parametrize("count", [1, 2, 100])
    def test_of_an_archive_that_is_stored_in_it(self, count, method) -> None:
        """The inner archive holds members of the same names, which are not taken for those of the outer one."""
        texts = {name: f"{name} ".encode() * 400 for name in ("read.me", "table", "last")}
        inner = Archive(*(Made(name, text, method=method) for name, text in texts.items())).whole
        members = [Made("read.me", texts["read.me"]), Made("in.zip", inner)]
        whole = Archive(*members, Made("table", texts["table"]), Made("last", texts["last"])).whole
        at = whole.index(inner) + len(inner) - 160
        found = {got.name: got for got in read(whole[:at] + whole[at + count :])}
        assert {name: found[name].content for name in texts} == texts
        assert found["in.zip"].status is Status.DAMAGED
        assert len(found["in.zip"].content) == len(inner) - count


@pytest.mark.parametrize("offset", [5, 1_000_000, 0xFFFFFF00])
def test_a_wrong_offset_in_the_end_record_costs_no_member_whose_header_is_lost(offset) -> None:
    """The directory is believed from where its entries agree with the headers that are left."""
    archive = three()
    lost = archive.members[1]
    end = archive.end[:16] + struct.pack("<I", offset) + archive.end[20:]
    body = archive.body[: lost.at] + noise(30, 7) + archive.body[lost.at + 30 :]
    assert_whole(read(body + archive.directory + end), archive.members)


def test_the_directory_of_an_archive_inside_says_nothing_of_the_members_around_it() -> None:
    """A byte comes in before the inner archive, so that the outer directory does not fit any more."""
    text = b"some text of both archives " * 200
    inner = Archive(Made("read.me", text, method=8), Made("more", noise(3_000))).whole
    archive = Archive(Made("read.me", text), Made("in.zip", inner), Made("more", noise(3_000)))
    at = archive.whole.index(inner) - 36
    found = read(archive.whole[:at] + b"x" + archive.whole[at:])
    assert [got.name for got in found] == ["read.me", "in.zip", "more"]
    assert found[0].content == text
    assert found[0].verdict.verified


class TestBombs:
    def test_entries_of_one_local_header_inflate_it_once(self) -> None:
        """Many entries of one local header: its bytes are inflated once."""
        kernel = Made("kernel", bytes(100_000), method=8)
        archive = Archive(kernel)
        copies = 50
        directory = archive.directory * copies
        end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, copies, copies, len(directory), len(archive.body), 0)
        found = read(archive.body + directory + end)
        assert [got.status for got in found] == [Status.COMPLETE] + [Status.DAMAGED] * (copies - 1)
        assert sum(len(got.content) for got in found) == 100_000
        assert names(archive.body) == ["kernel"]

    def test_members_that_quote_each_other_inflate_the_kernel_once(self) -> None:
        """Each member's stream quotes the next local headers in a stored block, and ends with the same kernel."""
        parts = [Made("last", bytes(50_000), method=8)]
        for number in range(6):
            quoted = b"".join(part.local() + part.packed for part in parts[:1])
            content = quoted[: len(parts[0].local())] + parts[0].content
            packed = struct.pack("<BHH", 0, len(parts[0].local()), len(parts[0].local()) ^ 0xFFFF) + quoted
            parts.insert(0, Made(f"m{number}", content, method=8, packed=packed))
        body = parts[0].local() + parts[0].packed
        at = 0
        for part in parts:
            part.at = at
            at += len(part.local()) + 5
        directory = b"".join(part.central() for part in parts)
        end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, len(parts), len(parts), len(directory), len(body), 0)
        for source in (body + directory + end, body):
            found = read(source)
            assert found[0].content == parts[0].content
            assert found[0].verdict.verified
            assert [(got.content, got.status) for got in found[1:]] == [(b"", Status.DAMAGED)] * (len(found) - 1)
            assert len(found) == (len(parts) if source is not body else 1)

    @pytest.mark.parametrize(
        ("header", "each"),
        [
            (Made("x", b"", descriptor=16).local(), 6 * 31),  # all of them are looked through some times
            (Made("y", noise(10), local_packed=1 << 30, crc=5).local(), 4_500),  # a block is read for each
        ],
        ids=["streamed", "lying"],
    )
    def test_headers_that_claim_all_that_follows_take_so_many_bytes_each(self, header: bytes, each: int) -> None:
        took = []
        for count in (1_500, 3_000):
            stats = pparse.data.base.IoStats()
            with opened(BytesData(header * count, stats=stats)) as extraction:
                parser = extraction.parse().parser
                list(parser.files())
            took.append(stats.bytes)
            assert stats.bytes < each * count + (64 << 10)
        assert took[1] < 2.2 * took[0]


@pytest.mark.parametrize("descriptor", [0, 16, 24])
def test_the_samples_are_archives_that_zipfile_finds_sound(descriptor: int) -> None:
    for archive in (three(descriptor=descriptor), torch_like((900, 64, 700))):
        with zipfile.ZipFile(io.BytesIO(archive.whole)) as found:
            assert found.testzip() is None
            assert [info.filename for info in found.infolist()] == [member.name for member in archive.members]
            assert [found.read(info) for info in found.infolist()] == [member.content for member in archive.members]


def test_an_archive_that_went_through_a_text_mode_transfer_is_named(run, tmp_path) -> None:
    """Each line feed became two bytes: one finding says so, but not for lost bytes or such a text."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(5):
            info = zipfile.ZipInfo(f"{number}.bin", (2026, 1, 1, 0, 0, 0))  # no line feed among its bytes
            archive.writestr(info, noise(5000, number), zipfile.ZIP_DEFLATED)
    text = io.BytesIO()
    with zipfile.ZipFile(text, "w") as archive:
        archive.writestr("a.txt", b"a line\r\n" * 50)
    raw = made.getvalue()
    assert raw.count(b"\n") > 20
    for damaged, times in ((raw.replace(b"\n", b"\r\n"), 1), (raw[:9000] + raw[9100:], 0), (text.getvalue()[:-30], 0)):
        (tmp_path / "a.zip").write_bytes(damaged)
        ran = run("check", tmp_path / "a.zip")
        assert (ran.code, (ran.out + ran.err).count(": text-mode @")) == (4, times)
