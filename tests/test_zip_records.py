from __future__ import annotations

import calendar
import struct
import zlib

import pytest

from pparse.containers.archive import ArchiveMember
from pparse.data.base import BytesData
from pparse.parsers.zip import records, scan
from pparse.parsers.zip.members import ZipNote, agrees
from pparse.testing import GappyData
from tests.zip_samples import Archive, Made, noise


def field(number: int, value: bytes) -> bytes:
    return struct.pack("<HH", number, len(value)) + value


class TestHeaders:
    def test_a_local_header_is_read_with_its_extra_fields(self) -> None:
        made = Made("name.txt", b"content" * 9, method=8, extra=field(0x5455, b"\1\0\0\0\0"))
        block = b"??" + made.local() + made.packed
        header = records.read_local(block[2:])
        assert header is not None
        assert (header.raw_name, header.method, header.crc) == (b"name.txt", 8, zlib.crc32(made.content))
        assert (header.compressed_size, header.size, header.length) == (
            len(made.packed),
            63,
            len(made.local()),
        )
        assert records.local_length(block[2:]) == len(made.local())
        assert records.read_local(block[1:]) is None
        broken = b"PK\3\5" + made.local()[4:]
        assert records.read_local(broken) is None
        assert records.read_local(broken, broken=True) is not None

    def test_cut_records_are_none(self) -> None:
        made = Made("name.txt", b"content", extra=field(1, b"x" * 8))
        archive = Archive(made)
        for size in range(len(made.local())):
            assert records.read_local(made.local()[:size]) is None
        for size in range(len(archive.directory)):
            assert records.read_central(archive.directory[:size]) is None
        for size in range(records.END_SIZE):
            assert records.read_end(archive.end[:size]) is None

    def test_a_central_entry_is_read_with_its_place_and_kind(self) -> None:
        made = Made("dir/link", b"target", mode=0o120777)
        made.at = 1234
        entry = records.read_central(made.central())
        assert entry is not None
        assert (entry.raw_name, entry.offset, entry.compressed_size, entry.size, entry.creator) == (
            b"dir/link",
            1234,
            6,
            6,
            3,
        )
        assert records.declared_kind("dir/link", entry.creator, entry.external) == "symlink"
        assert records.mode_of(entry.creator, entry.external) == 0o777
        assert entry.length == len(made.central()) == records.central_length(made.central())

    def test_an_end_record_is_read_with_its_comment(self) -> None:
        archive = Archive(Made("a", b"1"), Made("b", b"2"), comment=b"hello")
        record = records.read_end(archive.end)
        assert record is not None
        assert (record.entries, record.size, record.offset) == (2, len(archive.directory), len(archive.body))
        assert (record.comment, record.length, record.disks_differ, record.needs_64) == (5, 27, False, False)

    def test_zip64_records_are_read_with_their_wide_values(self) -> None:
        block = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 70_000, 70_000, 1 << 33, 1 << 34)
        record = records.read_end64(block)
        assert record is not None
        assert (record.entries, record.size, record.offset, record.length) == (70_000, 1 << 33, 1 << 34, 56)
        assert records.read_end64(block[:-1]) is None
        locator = struct.pack("<4sIQI", b"PK\6\7", 0, 1 << 35, 1)
        assert records.read_locator(locator) == 1 << 35
        assert records.read_locator(locator[:-1]) is None
        assert records.read_locator(b"PK\6\6" + locator[4:]) is None

    def test_masked_bytes_make_fields_unknown(self) -> None:
        header = records.read_local(Made("name.txt", b"content").local())
        assert header is not None
        assert header.mask([(14, 1), (33, 2)])
        assert (header.crc, header.compressed_size, header.raw_name, header.whole) == (None, 7, b"nam??txt", False)
        assert not header.mask([(27, 1)]), "without its lengths it is nothing"
        assert not header.mask([(8, 1)]), "nor without its method"

    @pytest.mark.parametrize(
        ("changes", "sane"),
        [
            ({}, True),
            ({"method": 99}, True),
            ({"method": 33}, False),
            ({"flags": 0x0400}, False),
            ({"name": "a\x01b"}, False),
            ({"name": ""}, False),
        ],
    )
    def test_a_header_with_impossible_fields_is_not_sane(self, changes: dict[str, object], sane: bool) -> None:
        made = Made(**{"name": "name", "content": b"", "packed": b"", **changes})  # type: ignore[arg-type]
        header = records.read_local(made.local())
        assert header is not None
        assert header.is_sane() is sane


class TestZip64Field:
    def test_only_what_is_full(self) -> None:
        full = records.FULL
        extra = field(9, b"x") + field(1, struct.pack("<QQQI", 1 << 40, 1 << 41, 1 << 42, 7))
        assert records.with_zip64(extra, full, full, full, 0xFFFF) == (1 << 40, 1 << 41, 1 << 42, 7)
        assert records.with_zip64(extra, 5, full, full, 0) == (5, 1 << 40, 1 << 41, 0)
        assert records.with_zip64(extra, 5, 6, full, 0) == (5, 6, 1 << 40, 0)
        assert records.with_zip64(extra, 5, 6, 7, 0) == (5, 6, 7, 0)

    def test_field_that_is_short_or_missing(self) -> None:
        full = records.FULL
        assert records.with_zip64(b"", full, full) == (full, full)
        assert records.with_zip64(field(1, struct.pack("<Q", 9)), full, full) == (9, full)

    def test_malformed_fields_end_them(self) -> None:
        extra = field(7, b"one") + struct.pack("<HH", 8, 50) + b"too short"
        assert list(records.extra_fields(extra)) == [(7, b"one")]
        assert records.extra_field(extra, 8) is None


class TestNames:
    def test_names_are_decoded_as_utf_8_or_in_code_page_437(self) -> None:
        assert records.decode_name("ü".encode(), records.UTF8) == ("ü", False)
        assert records.decode_name(b"\x81", 0) == ("ü", True)
        assert records.decode_name(b"\x81\xff", records.UTF8) == ("ü\xa0", True)

    def test_a_unicode_path_counts_if_its_checksum_fits_the_name(self) -> None:
        raw = b"?.txt"
        good = field(0x7075, b"\1" + struct.pack("<I", zlib.crc32(raw)) + "日.txt".encode())
        stale = field(0x7075, b"\1" + struct.pack("<I", 1) + "日.txt".encode())
        assert records.decode_name(raw, 0, good) == ("日.txt", False)
        assert records.decode_name(raw, 0, stale) == ("?.txt", False)

    def test_the_kind_is_told_from_mode_and_system(self) -> None:
        kinds = {0o120777: "symlink", 0o100644: "file", 0o010644: "fifo", 0o020644: "device", 0o060644: "device"}
        for mode, kind in kinds.items():
            assert records.declared_kind("x", 3, mode << 16) == kind
            assert records.declared_kind("x", 19, mode << 16) == kind
            assert records.declared_kind("x", 0, mode << 16) == "file"
        assert records.declared_kind("x/", 0, 0) == "folder"
        assert records.declared_kind("x", 3, 0o040755 << 16) == "file"

    def test_the_kind_of_encryption_is_described(self) -> None:
        aes = field(0x9901, struct.pack("<H2sBH", 2, b"AE", 3, 8))
        assert records.describe_encryption(99, aes) == "encrypted (AES-256, AE-2, deflate inside)"
        assert records.describe_encryption(8, b"") == "encrypted"
        assert records.method_name(8, 1) == "encrypted"
        assert records.method_name(9, 0) == "deflate64"
        assert records.method_name(77, 0) == "method 77"


class TestTimes:
    @pytest.mark.parametrize("day", [(1980, 1, 1), (1999, 12, 31), (2000, 2, 29), (2024, 3, 1), (2107, 12, 31)])
    def test_dos_times_are_taken_as_utc(self, day: tuple[int, int, int]) -> None:
        date = day[0] - 1980 << 9 | day[1] << 5 | day[2]
        expected = calendar.timegm((*day, 23, 58, 4))
        assert records.dos_time(date, 23 << 11 | 58 << 5 | 2) == expected

    def test_fields_that_are_no_date_give_none(self) -> None:
        assert records.dos_time(0, 0) is None
        assert records.dos_time(44 << 9 | 13 << 5 | 1, 0) is None
        date = 44 << 9 | 12 << 5 | 1
        assert records.dos_time(date, 23 << 11 | 59 << 5 | 29) is not None
        for time in (24 << 11, 60 << 5, 30):
            assert records.dos_time(date, time) is None
        assert records.dos_time(date - 1, 0) is None

    def test_extra_fields_go_first(self) -> None:
        date = 44 << 9 | 1 << 5 | 1
        stamp = field(0x5455, b"\1" + struct.pack("<i", 1_700_000_000))
        ticks = (1_700_000_001 + 11_644_473_600) * 10_000_000 + 5_000_000
        ntfs = field(0x000A, bytes(4) + struct.pack("<HHQQQ", 1, 24, ticks, 0, 0))
        old = field(0x5855, struct.pack("<ii", 1, 1_700_000_002))
        assert records.modified(date, 0, stamp + ntfs) == 1_700_000_000
        assert records.modified(date, 0, ntfs + stamp) == 1_700_000_000
        assert records.modified(date, 0, ntfs) == 1_700_000_001.5
        assert records.modified(date, 0, old) == 1_700_000_002
        assert records.modified(date, 0, b"") == records.dos_time(date, 0)
        assert records.modified(date, 0, field(0x5455, b"\2" + bytes(4))) == records.dos_time(date, 0)


def test_descriptors_of_all_four_lengths_are_matched() -> None:
    for length in (12, 16, 20, 24):
        made = Made("x", b"content", descriptor=length)
        block = made.trailer() + b"PK\1\2" + bytes(30)
        assert records.match_descriptor(block, made.crc, 7, 7) == length
        assert records.match_descriptor(block, None, 7, None) == length
        assert records.match_descriptor(block, made.crc ^ 1, 7, 7) == 0
        assert records.match_descriptor(block, made.crc, 8, 7) == 0
        assert records.match_descriptor(made.trailer(), made.crc, 7, 7) == length
        assert records.match_descriptor(made.trailer()[:-1], made.crc, 7, 7) == 0


@pytest.mark.parametrize(("length", "signed"), [(12, False), (16, True), (20, False), (24, True)])
@pytest.mark.parametrize("size", [0, 100])
def test_a_descriptor_before_a_record_counts_if_its_distance_is_right(length: int, signed: bool, size: int) -> None:
    made = Made("x", noise(size), descriptor=length)
    start, stop = 50, 50 + size
    content = bytes(start) + made.content + made.trailer() + b"PK\1\2" + bytes(30)
    data, at = BytesData(content), stop + length
    found = (stop, made.crc, size, size)
    assert records.descriptor_before(data, at, start) == found
    for other in (start - 3, start + 1, at, at + 1):
        assert records.descriptor_before(data, at, other) is None
    assert records.descriptor_before(BytesData(content[: at - 1]), at, start) is None
    # Where bytes are missing in front of it, only a signature says that it is one.
    assert records.descriptor_before(data, at, start - 3, least=size) == (found if signed else None)
    assert records.descriptor_before(data, at, start - 3, least=size + 1) is None
    assert records.descriptor_before(data, at, start, least=size) == (found if signed else None)


@pytest.mark.parametrize("length", [12, 16, 20, 24])
def test_a_descriptor_of_which_a_byte_is_unknown_says_nothing(length: int) -> None:
    made = Made("x", noise(100), descriptor=length)
    content = made.content + made.trailer() + b"PK\1\2" + bytes(30)
    for at in range(length):
        data = GappyData(content, [(100 + at, 1)])
        assert records.descriptor_before(data, 100 + length, 0) is None
        data = GappyData(content, [(100 + length, 1)])
        assert records.descriptor_before(data, 100 + length, 0) == (100, made.crc, 100, 100)


def test_a_size_that_no_member_has_is_not_taken_from_a_descriptor_behind_lost_bytes() -> None:
    for size, taken in ((1 << 48, False), ((1 << 48) - 1, True)):
        data = BytesData(b"PK\7\x08" + struct.pack("<IQQ", 1, size, 5))
        assert (records.descriptor_before(data, 24, 0, least=0) is not None) is taken


@pytest.mark.parametrize(
    ("streamed", "crc", "packed", "size", "said"),
    [
        (False, 5, 40, 70, [(40, 70, 5)]),
        (False, 0, 40, 0, [(40, 0, 0)]),
        (False, 0, 0, 0, [(0, 0, 0)]),
        (True, 5, 40, 70, [(40, 70, 5)]),
        (True, 0, 40, 70, [(40, 70, None)]),
        (True, 5, 40, 0, [(40, None, 5)]),
        (True, 5, 0, 70, []),
        (True, 0, 0, 0, []),
    ],
)
def test_only_in_front_of_a_descriptor_zeros_say_nothing(streamed, crc, packed, size, said) -> None:
    raw = bytearray(Made("a", b"content", flags=8 * streamed).local())
    struct.pack_into("<III", raw, 14, crc, packed, size)
    header = records.read_local(bytes(raw))
    assert header is not None
    found = scan.claims_of(header, None)
    assert [(claim.compressed_size, claim.size, claim.crc) for claim in found] == said
    assert not any(claim.listed for claim in found)
    for value in (crc, crc + 1):
        entry = records.read_central(Made("a", b"x" * size, packed=b"y" * packed, crc=value).central())
        both = scan.claims_of(header, entry)
        assert (both[0].listed, both[0].compressed_size, both[0].size, both[0].crc) == (True, packed, size, value)
        # A header that says the same is no second claim.
        same = said == [(packed, size, value)]
        assert [claim.listed for claim in both[1:]] == [False] * (len(said) - same)


@pytest.mark.parametrize("length", [12, 16, 20, 24])
def test_the_checksum_of_a_descriptor_is_that_in_front_of_these_sizes(length: int) -> None:
    made = Made("x", b"content" * 50, method=8, descriptor=length)
    block, packed, size = made.trailer() + b"PK\1\2" + bytes(30), len(made.packed), len(made.content)
    assert records.descriptor_crc(block, packed, size) == made.crc
    assert records.descriptor_crc(block, packed, None) == made.crc
    assert records.descriptor_crc(made.trailer(), packed, size) == made.crc
    for other in ((packed, size + 1), (packed + 1, size), (size, size), (packed + 1, None)):
        assert records.descriptor_crc(block, *other) is None
    assert records.descriptor_crc(made.trailer()[:-1], packed, size) is None


class TestAgreement:
    """Of a local header with what the directory says: CRC 5, 40 bytes of 70."""

    MEANT = (5, 40, 70)

    def agrees(self, flags, said, meant=MEANT, *, method=8, listed=0, behind=b"never looked at") -> bool:
        note = ZipNote(listed, 8, "file", listed=True)
        crc, packed, size = meant
        checksum = None if crc is None else ("crc32", crc)
        member = ArchiveMember("x", b"x", "file", 0, 0, 0, size, compressed_size=packed, checksum=checksum, extra=note)
        header = records.LocalHeader((20, flags, method, 0, 0, *said), b"x", b"")
        return agrees(member, header, lambda: behind)

    def test_all_three_numbers_must_be_the_same(self) -> None:
        assert self.agrees(0, (5, 40, 70)) is True
        for said in ((6, 40, 70), (5, 41, 70), (5, 40, 71), (0, 40, 70), (5, 0, 70), (5, 40, 0), (0, 0, 0)):
            assert self.agrees(0, said) is False
        assert self.agrees(0, (6, 40, 70), (None, 40, 70)) is True
        assert self.agrees(0, (6, 41, 70), (None, 40, 70)) is False

    def test_method_and_flags_that_matter_must_be_the_same(self) -> None:
        assert self.agrees(0x0806, (5, 40, 70)) is True  # how a name is written, how well it is compressed
        assert self.agrees(0, (5, 40, 70), method=0) is False
        for flag in (records.ENCRYPTED, records.STREAMED, records.MASKED):
            assert self.agrees(flag, (5, 40, 70)) is False
            assert self.agrees(0, (5, 40, 70), listed=flag) is False

    @pytest.mark.parametrize("length", [12, 16, 20, 24])
    def test_in_front_of_a_descriptor_numbers_are_zeros_or_right(self, length) -> None:
        def behind(*values: int) -> bytes:
            layout = "<III" if length in (12, 16) else "<IQQ"
            return (b"PK\7\x08" if length in (16, 24) else b"") + struct.pack(layout, *values) + b"PK\1\2"

        for said in ((0, 0, 0), (5, 40, 70), (0, 40, 70), (5, 0, 0)):
            assert self.agrees(8, said, listed=8, behind=behind(5, 40, 70)) is True
            for wrong in ((6, 40, 70), (5, 41, 70), (5, 40, 71)):
                assert self.agrees(8, said, listed=8, behind=behind(*wrong)) is False
        for said in ((6, 0, 0), (0, 41, 0), (0, 0, 71)):
            assert self.agrees(8, said, listed=8, behind=behind(5, 40, 70)) is False
        assert self.agrees(8, (6, 0, 0), (None, 40, 70), listed=8, behind=behind(7, 40, 70)) is True


def test_a_member_is_cut_if_fewer_bytes_are_there_than_it_has() -> None:
    def judged(compressed_size: int | None) -> scan.MemberExtent:
        return scan.note_cut(scan.MemberExtent(100, 160, scan.Claim(60, 70, 5, listed=True)), compressed_size)

    assert (judged(60).code, judged(60).cut, judged(59).code, judged(60).size) == ("", False, "", 70)
    for size, there in ((61, "after 60 of 61 bytes"), (None, "after 60 bytes")):
        extent = judged(size)
        assert (extent.code, extent.cut, extent.reason) == ("truncated", True, f"the archive ends inside it, {there}")
        assert (extent.start, extent.end, extent.compressed_size) == (100, 160, size or 60)


@pytest.mark.parametrize("changes", [{4: 64}, {8: 77}, {7: 0x80}], ids=["version", "method", "reserved flag"])
def test_one_field_that_no_archive_has_is_enough_to_see_that_bytes_are_no_local_header(changes: dict[int, int]) -> None:
    head = bytearray(Made("a", b"content").local()[:30])
    assert records.may_be_local(bytes(head))
    for at, value in changes.items():
        head[at] = value
    assert not records.may_be_local(bytes(head))
