"""The header of a gzip member, field by field."""

from __future__ import annotations

import gzip
import io
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pparse.codecs.gzip_header import FCOMMENT, FEXTRA, FHCRC, FNAME, FTEXT, MAX_HEADER, SYSTEMS, parse_header
from tests.rows import rows

FIXED = b"\x1f\x8b\x08"


def header(flags=0, *, extra=b"", name=b"", comment=b"", mtime=0, level=0, system=255, crc=None) -> bytes:
    head = FIXED + struct.pack("<BIBB", flags, mtime, level, system)
    if flags & FEXTRA:
        head += struct.pack("<H", len(extra)) + extra
    if flags & FNAME:
        head += name + b"\0"
    if flags & FCOMMENT:
        head += comment + b"\0"
    if flags & FHCRC:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF if crc is None else crc)
    return head


def test_the_least_there_is():
    found = parse_header(FIXED + bytes(7))
    assert found.length == 10
    assert found.sound
    assert (found.flags, found.mtime, found.level, found.system) == (0, 0, 0, 0)
    assert (found.name, found.comment, found.extra, found.header_crc, found.block_size) == (None,) * 5
    assert SYSTEMS[0] == "FAT"
    assert SYSTEMS[3] == "Unix"


@rows("flags", range(32))
def test_every_set_of_fields(flags):
    head = header(flags, extra=b"AB\2\0xy", name=b"a.txt", comment=b"why", mtime=77, level=4, system=3)
    found = parse_header(head + b"\x03\x00")
    assert found.length == len(head)
    assert found.sound
    assert (found.mtime, found.level, found.system, found.flags) == (77, 4, 3, flags)
    assert found.extra == (b"AB\2\0xy" if flags & FEXTRA else None)
    assert found.name == (b"a.txt" if flags & FNAME else None)
    assert found.comment == (b"why" if flags & FCOMMENT else None)
    assert found.header_crc == (zlib.crc32(head[:-2]) & 0xFFFF if flags & FHCRC else None)


@rows("flags", range(32))
def test_no_prefix_is_a_header(flags):
    head = header(flags, extra=b"AB\2\0xy", name=b"a.txt", comment=b"why")
    for cut in range(len(head)):
        assert parse_header(head[:cut]) is None
        assert parse_header(head[:cut], tolerant=True) is None


def test_as_the_standard_library_writes_it():
    out = io.BytesIO()
    with gzip.GzipFile("some name.txt", "wb", 9, out, 1_234_567_890) as writer:
        writer.write(b"x")
    found = parse_header(out.getvalue())
    assert (found.name, found.mtime, found.level) == (b"some name.txt", 1_234_567_890, 2)
    assert zlib.decompress(out.getvalue()[found.length : -8], -15) == b"x"


@pytest.mark.parametrize("bit", [5, 6, 7])
def test_a_header_with_a_reserved_flag_is_none(bit):
    for tolerant in (False, True):
        assert parse_header(FIXED + bytes([1 << bit]) + bytes(20), tolerant=tolerant) is None


@pytest.mark.parametrize(("at", "wrong"), [(0, 1), (1, 1), (2, 1)])
def test_damaged_magic_bytes(at, wrong):
    head = bytearray(header(FNAME, name=b"n"))
    head[at] ^= 0xFF
    assert parse_header(bytes(head)) is None
    found = parse_header(bytes(head), tolerant=True)
    assert found.name == b"n"
    assert not found.sound


def test_all_magic_bytes_damaged_is_no_header():
    assert parse_header(b"abc" + bytes(20), tolerant=True) is None
    assert parse_header(b"ab\x08" + bytes(20), tolerant=True) is not None


def test_a_checksum_of_the_header():
    assert parse_header(header(FHCRC | FNAME, name=b"n")).sound
    found = parse_header(header(FHCRC | FNAME, name=b"n", crc=0x1234))
    assert found.length == 14
    assert found.header_crc == 0x1234
    assert not found.sound


def test_fields_that_are_there_and_empty_are_empty():
    found = parse_header(header(FEXTRA | FNAME | FCOMMENT))
    assert (found.extra, found.name, found.comment, found.length) == (b"", b"", b"", 14)


def test_the_longest_extra_field():
    head = header(FEXTRA, extra=b"x" * 65535)
    assert parse_header(head).length == 65547 < MAX_HEADER
    assert parse_header(head[:-1]) is None


def bgzf(*fields: tuple[bytes, bytes]) -> bytes:
    return header(FEXTRA, extra=b"".join(name + struct.pack("<H", len(data)) + data for name, data in fields))


def test_blocks_of_bgzf():
    assert parse_header(bgzf((b"BC", b"\x1b\0"))).block_size == 28
    assert parse_header(bgzf((b"BC", b"\xff\xff"))).block_size == 65536
    assert parse_header(bgzf((b"AB", b"12345"), (b"BC", b"\x05\1"), (b"XX", b""))).block_size == 0x106
    for fields in ([(b"BC", b"\x1b")], [(b"BC", b"\x1b\0\0")], [(b"CB", b"\x1b\0")], []):
        assert parse_header(bgzf(*fields)).block_size is None
    assert parse_header(header(FEXTRA, extra=b"BC\2\0\x1b")).block_size is None  # cut
    assert parse_header(header(FEXTRA, extra=b"AB\xff\xffBC\2\0\x1b\0")).block_size is None  # beyond the field


def test_text_flag_has_no_field():
    assert parse_header(header(FTEXT)).length == 10


@given(st.binary(max_size=60), st.booleans())
def test_of_any_bytes_no_header_is_longer_than_they_are(tail, tolerant):
    found = parse_header(FIXED + tail, tolerant=tolerant)
    if found is not None:
        assert 10 <= found.length <= len(tail) + 3
