"""Compressed files of several members: one whose first bytes are damaged is missing, and not bytes behind the end."""

from __future__ import annotations

import bz2
import gzip
import lzma

import cramjam
import pytest

import pparse
from pparse.data.base import BytesData
from pparse.findings import Severity, Status
from tests.rows import rows
from tests.zstd import compress

TEXT = b"".join(b"%d,%d\n" % (number, number * number) for number in range(9000))
WRITERS = {
    "gzip": lambda content: gzip.compress(content, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": compress,
    "lz4": lambda content: bytes(cramjam.lz4.compress(content)),
}
# Sixteen bytes of no format, and zeros, which pad a tape.
JUNK = b"-- end of log --"
PADDED = ("gzip", "xz")


def asked(content: bytes, codec: str = "gzip") -> tuple[Status, list[tuple[str, Severity, int | None]]]:
    """Return the status of a file, and code, severity and offset of what its check finds."""
    with pparse.open(BytesData(content)) as document:
        found = [(each.code, each.severity, each.offset) for each in document.check()]
        return document.parse(codec).root.status, found


@rows("codec", WRITERS)
@rows("count", [2, 3])
@rows("at", range(3))
def test_a_member_whose_first_bytes_are_damaged_is_told_of(codec: str, count: int, at: int) -> None:
    parts = [WRITERS[codec](TEXT[number::count]) for number in range(count)]
    content = bytearray(b"".join(parts))
    content[len(parts[0]) + at] ^= 4
    status, found = asked(bytes(content), codec)
    assert status is Status.DAMAGED
    code, severity, offset = found[0]
    assert (code, severity) == ("malformed", Severity.ERROR)
    assert len(parts[0]) <= (offset or 0) <= len(parts[0]) + 4


@pytest.mark.parametrize("codec", WRITERS)
def test_bytes_between_members_are_no_end_and_bytes_behind_them_are(codec: str) -> None:
    one, two = WRITERS[codec](TEXT), WRITERS[codec](TEXT[::-1])
    status, found = asked(one + JUNK + two, codec)
    assert (status, found[0]) == (Status.DAMAGED, ("malformed", Severity.ERROR, len(one)))
    status, found = asked(one + two + JUNK, codec)
    assert (status, found) == (Status.COMPLETE, [("trailing", Severity.WARNING, len(one) + len(two))])
    if codec in PADDED:
        assert asked(one + bytes(16) + two + bytes(16), codec) == (Status.COMPLETE, [])


def bgzf(content: bytes) -> bytes:
    """Return one block of BGZF, by the SAM specification, section 4.1."""
    packed = gzip.compress(content, mtime=0)[10:]
    size = 18 + len(packed) - 1
    return bytes.fromhex("1f8b08040000000000ff0600424302 00") + size.to_bytes(2, "little") + packed


def test_a_bgzf_file_without_its_end_block_is_odd() -> None:
    content, end = bgzf(TEXT[:50_000]) + bgzf(TEXT[50_000:]), bgzf(b"")
    assert asked(content + end) == (Status.COMPLETE, [])
    assert asked(content) == (Status.COMPLETE, [("no-end-block", Severity.WARNING, len(content))])
    assert asked(gzip.compress(TEXT)) == (Status.COMPLETE, [])
