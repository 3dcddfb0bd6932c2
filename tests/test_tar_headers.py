from __future__ import annotations

import random
import tarfile
from array import array

import pytest

from pparse.parsers.tar.headers import (
    BLOCK,
    USUAL,
    Attributes,
    checksum_agrees,
    dialect_of,
    read_header,
    read_name,
    read_number,
    read_records,
    sum_of,
    text_of,
)
from pparse.parsers.tar.source import judge_header, size_that_fits, solve
from pparse.parsers.tar.sparse import MapText, SparseMap, extend_old_map, old_map
from tests.rows import rows

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT}


def header(name="dir/file.bin", size=1234, format="gnu", **more):
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode, info.uname = size, 1_700_000_000, 0o640, "somebody"
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(FORMATS[format])


@rows(
    ("field", "number"),
    [
        (b"0000644\0", 0o644),
        (b"000644 \0", 0o644),
        (b"   644 \0", 0o644),
        (b"644\0\0\0\0\0", 0o644),
        (b"\0" * 8, 0),
        (b" " * 8, 0),
        (b"00000000", 0),
        (b"77777777", 0o77777777),
        (b"644\0junk", 0o644),
        (b"    644 ", 0o644),
        (b"0000684\0", None),
        (b"-000644\0", None),
        (b"0_00644\0", None),
        (b"+000644\0", None),
        (b"644 644\0", None),
        (b"\x80\0\0\0\0\0\x01\0", 256),
        (b"\xff" * 8, -1),
        (b"\xff" * 6 + b"\xf1\xf0", -3_600),
        (b"abcdefgh", None),
        (b"\x80" + b"\0" * 10 + b"\x07", 7),
        (b"\xff" + b"\0" * 11, -(1 << 88)),
    ],
)
def test_numbers_are_octal_base_256_or_none(field, number):
    assert read_number(field) == number


def test_numbers_are_those_of_tarfile():
    for value in (0, 1, 0o7777777, 0o77777777777, 1 << 33, 1 << 60, -1, -(1 << 40)):
        for digits in (8, 12):
            try:
                field = tarfile.itn(value, digits, tarfile.GNU_FORMAT)
            except ValueError:
                continue
            assert read_number(field) == value == tarfile.nti(field)


def test_checksums_of_both_signs_agree():
    for seed in range(50):
        raw = random.Random(seed).randbytes(BLOCK)
        unsigned, signed = tarfile.calc_chksums(raw)
        assert sum_of(raw) == unsigned
        for total in (unsigned, signed):
            if total >= 0:
                assert checksum_agrees(raw[:148] + b"%06o\0 " % total + raw[156:])
        assert not checksum_agrees(raw[:148] + b"%06o\0 " % (unsigned + 1) + raw[156:])
    assert sum_of(b"\xff" * BLOCK) == 504 * 255 + 256
    assert not checksum_agrees(bytes(BLOCK))


@pytest.mark.parametrize("format", FORMATS)
def test_every_field_of_a_header_is_read_in_each_format(format):
    raw = header(format=format, type=tarfile.SYMTYPE, linkname="a/b", size=0)
    found = read_header(raw)
    assert (found.raw_name, found.raw_link, found.letter) == (b"dir/file.bin", b"a/b", b"2")
    assert (found.mode, found.size, found.mtime, found.dialect) == (0o640, 0, 1_700_000_000, format)
    assert found.sound
    assert found.problem is None
    assert USUAL.match(header(format=format), 100)


def test_a_prefix_is_part_of_the_name_in_ustar_only():
    long = "p" * 120 + "/" + "n" * 90
    assert read_header(header(long, format="ustar")).raw_name == long.encode()
    # What GNU tar has in place of the prefix is no name.
    raw = bytearray(header("name"))
    raw[345:357] = b"14000000000\0"
    assert read_header(reseal(raw)).raw_name == b"name"
    # star ends its prefix earlier.
    raw = bytearray(header("name", format="ustar"))
    raw[345:350] = b"front"
    raw[476:488] = b"14000000000\0"
    raw[508:512] = b"tar\0"
    assert (dialect_of(bytes(raw)), read_header(reseal(raw)).raw_name) == ("star", b"front/name")


def reseal(raw):
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def test_negative_sizes_are_no_header():
    raw = bytearray(header())
    raw[124:136] = b"\xff" * 12
    assert read_header(reseal(raw)) is None
    assert judge_header(reseal(raw)).size is None


def test_a_size_of_which_digits_are_left():
    assert size_that_fits(b"????" + b"0002322\0", 1536) == 1234
    assert size_that_fits(b"???????????\0", 1536) is None
    assert size_that_fits(b"0000000??22\0", 1536) is None  # 1042, 1106, ... 1490
    assert size_that_fits(b"00000001???\0", 1536) is None
    assert size_that_fits(b"00000002322\0", 1024) is None
    assert size_that_fits(b"????0002322\0", 1537) is None
    assert size_that_fits(b"?0000000000\0", 0) == 0


def test_names_that_are_no_text_keep_their_bytes():
    assert text_of("ä/日本".encode()) == "ä/日本"
    assert text_of(b"a\xff\xe4b") == "a\udcff\udce4b"


@pytest.mark.parametrize("format", FORMATS)
def test_one_damaged_byte_leaves_a_header(format):
    raw = header(format=format)
    for at in range(BLOCK):
        for value in (0x00, 0x20, 0x37, 0x41, 0xFF):
            changed = raw[:at] + bytes([value]) + raw[at + 1 :]
            found = judge_header(changed)
            assert found is not None, at
            if changed != raw:
                assert found.problem is not None or found.sound
            if at not in range(100) and at != 156 and at not in range(345, 500):
                assert found.raw_name == b"dir/file.bin"
    mended = judge_header(raw[:126] + b"\xee" + raw[127:])
    assert (mended.size, mended.sound) == (1234, True)
    assert "restored from the checksum" in mended.problem
    blank = judge_header(raw[:126] + b"\0" + raw[127:])
    assert (blank.size, blank.sound) == (1234, True)


def test_nothing_else_is_a_header():
    made = random.Random(7)
    for _ in range(3_000):
        raw = made.randbytes(BLOCK)
        assert judge_header(raw) is None
        assert judge_header(raw, [(0, 100)]) is None
    text = b"".join(b"%d, 0x%x, ustar 0000644\n" % (number, number) for number in range(200))
    assert all(judge_header(text[at : at + BLOCK]) is None for at in range(len(text) - BLOCK))
    assert judge_header(bytes(BLOCK)) is None
    assert judge_header(bytes(BLOCK), [(0, 400)]) is None


def test_the_checksum_proves_unknown_bytes():
    raw = header()
    zeros = raw[:20] + bytes(60) + raw[80:]
    assert zeros == raw
    assert judge_header(raw, [(20, 60)]).sound  # their sum is 0
    assert judge_header(raw[:5] + b"\0" + raw[6:], [(5, 1)]).raw_name == b"dir/file.bin"
    assert solve(raw[:5] + bytes(2) + raw[7:], [5, 6]) == (raw[:5] + bytes(2) + raw[7:], [5, 6])
    two = judge_header(raw[:5] + bytes(2) + raw[7:], [(5, 2)])
    assert (two.raw_name, two.sound, two.size) == (b"dir/f??e.bin", False, 1234)
    digits = judge_header(raw[:130] + bytes(3) + raw[133:], [(130, 3)])
    assert (digits.size, digits.raw_name) == (None, b"dir/file.bin")
    # More is missing from the sum than the unknown bytes can make up for: this is no header.
    other = bytearray(raw)
    other[0:4] = bytes(4)
    other[300:420] = bytes(120)
    other[148:156] = b"077777\0 "
    assert judge_header(bytes(other), [(0, 4)]) is None


def test_a_magic_that_is_lost_is_forgiven_where_a_header_is_due():
    raw = header()
    lost = raw[:257] + bytes(20) + raw[277:]
    assert judge_header(lost, [(257, 20)]).raw_name == b"dir/file.bin"
    assert judge_header(lost, [(257, 20)], aligned=False) is None
    assert judge_header(raw[:257] + b"USTAR" + raw[262:]).dialect == "v7"
    assert judge_header(raw[:257] + b"USTAR" + raw[262:], aligned=False) is None


def test_a_header_whose_checksum_is_wrong_is_believed_by_its_magic_and_its_numbers():
    renamed = b"Dir/file.bin" + header()[12:]
    assert not judge_header(renamed, aligned=False).sound
    for at in (100, 108, 116, 124, 136):
        assert judge_header(renamed[:at] + b"?!" + renamed[at + 2 :], aligned=False) is None


# -- extended headers ------------------------------------------------------------------------------------------------


def record(key, value):
    length = len(key) + len(value) + 3
    while len(str(length)) + len(key) + len(value) + 3 != length:
        length = len(str(length)) + len(key) + len(value) + 3
    return b"%d %s=%s\n" % (length, key, value)


def test_extended_records_are_read_up_to_the_padding():
    parts = [(b"path", b"a\nb=c"), (b"mtime", b"1.5"), (b"comment", b""), (b"size", b"12")]
    data = b"".join(record(*part) for part in parts)
    assert read_records(data) == (parts, None)
    assert read_records(data + bytes(100)) == (parts, None)
    assert read_records(b"") == ([], None)


def test_a_broken_record_costs_itself():
    first, second, third = record(b"mtime", b"7"), record(b"path", b"x" * 40), record(b"size", b"9")
    for wreck in (b"99", b"xx", b"\0\xff", b"1 ", b" 1"):
        found, problem = read_records(first + wreck + second[2:] + third)
        assert (b"size", b"9") in found or wreck == b"\0\xff"
        assert problem or wreck == b"\0\xff"
        assert found[0] == (b"mtime", b"7")
    found, problem = read_records(first + b"99" + second[2:] + third)
    assert found == [(b"mtime", b"7"), (b"path", b"x" * 40), (b"size", b"9")]
    found, problem = read_records(first + second[:-5])
    assert found == [(b"mtime", b"7")]
    assert problem
    assert read_records(b"5 xy\n" + third) == ([(b"size", b"9")], "a pax record has no key")


def test_many_broken_records_cost_no_time():
    data = b"".join(b"99999 a=%d\n" % number for number in range(60_000))
    found, problem = read_records(data)
    assert found == []
    assert problem


def test_later_attributes_take_the_place_of_earlier_ones():
    found = Attributes()
    found.apply([(b"path", b"first"), (b"size", b"5"), (b"mtime", b"-1.25"), (b"unknown", b"\xff")])
    found.apply([(b"path", b"second"), (b"linkpath", b"to")])
    assert (found.path, found.link, found.size, found.mtime, found.problem) == (b"second", b"to", 5, -1.25, None)
    bad = (b"size", b"-1"), (b"size", b"9" * 5_000), (b"mtime", b"nan"), (b"path", b"a\0b"), (b"path", b"")
    for key, value in bad:
        found = Attributes()
        found.apply([(key, value)])
        assert (found.path, found.size, found.mtime) == (None, None, None)
        assert found.problem


def test_maps_of_old_sparse_headers_are_read_with_those_that_follow():
    raw = bytearray(BLOCK)
    for number in range(4):
        raw[386 + 24 * number : 410 + 24 * number] = b"%011o\0%011o\0" % (1000 * number, 10)
    raw[482] = 1
    raw[483:495] = b"%011o\0" % 100_000
    map, more = old_map(bytes(raw))
    assert (list(map.pairs), map.real_size, more) == ([0, 10, 1000, 10, 2000, 10, 3000, 10], 100_000, True)
    block = b"".join(b"%011o\0%011o\0" % (10_000 + number, 1) for number in range(21)) + b"\0" * 8
    assert extend_old_map(map, block) is False
    assert (len(map.pairs), map.stored) == (2 * 25, 61)
    assert extend_old_map(map, block[:504] + b"\1" + bytes(7)) is True
    assert extend_old_map(map, b"\xff" * BLOCK) is True
    assert map.problem


def test_maps_written_as_text_are_read_block_by_block():
    text = MapText()
    lines = b"3\n0\n512\n4096\n10\n9999\n0\n"
    assert text.feed(lines.ljust(BLOCK, b"\0")) is False
    map = text.map(9_999)
    assert (list(map.pairs), map.skip, map.problem) == ([0, 512, 4096, 10, 9999, 0], BLOCK, None)
    long = b"%d\n" % 200 + b"".join(b"%d\n%d\n" % (number * 1000, 7) for number in range(200))
    text = MapText()
    assert all(text.feed(long[at : at + BLOCK]) for at in range(0, len(long) - BLOCK, BLOCK))
    assert text.feed(long[len(long) // BLOCK * BLOCK :].ljust(BLOCK, b"\0")) is False
    assert len(text.pairs) == 400
    for bad in (b"x\n", b"-1\n", b"9" * 30, b"99999999\n", b"\n"):
        text = MapText()
        assert text.feed(bad.ljust(BLOCK, b"0")) is False
        assert text.problem
    assert MapText().feed(b"0\n".ljust(BLOCK, b"\0")) is False


def test_maps_are_cut_where_they_contradict_themselves():
    for pairs, left, word in (
        ([0, 10, 5, 10], 2, "ascending"),
        ([0, 10, 90, 11], 2, "beyond"),
        ([0, 10, 20, 50], 2, "more bytes than are stored"),
        ([0, 10, 20], 2, "middle"),
        ([0, 10, 10, 5, 100, 0], 6, None),
        ([1 << 62, 1 << 62], 0, "beyond"),
    ):
        map = SparseMap(array("q", pairs), 100)
        map.check(30)
        assert len(map.pairs) == left
        assert word is None if map.problem is None else word in map.problem


def test_a_long_name_ends_at_its_first_zero():
    assert read_name(b"n" * 300 + b"\0" * 212) == b"n" * 300
    assert read_name(b"\0") == b""
