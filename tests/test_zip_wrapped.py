"""Zips of sizes and offsets modulo 2^32, as macOS writes them above 4 GiB, without zip64; here modulo less."""

from __future__ import annotations

import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

import pparse
from pparse.data.base import BytesData
from pparse.data.spliced import SplicedData, ZeroData
from pparse.findings import Status
from pparse.parsers.zip import members, records
from tests.rows import rows
from tests.test_split_sets import tar_of
from tests.zip_samples import deflated, noise

WRAP = 1 << 16
FULL = 1 << 32


def finder(contents: dict[str, bytes], packed: dict[str, bytes] | None = None, wrap: int = WRAP) -> tuple[bytes, int]:
    """The bytes of such an archive, and how many of them precede the directory."""
    body, entries = b"", b""
    for name, content in contents.items():
        stream = (packed or {}).get(name) or deflated(content)
        at, crc, raw = len(body), zlib.crc32(content), name.encode()
        body += struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 8, 8, 0, 0x5621, 0, 0, 0, len(raw), 0) + raw + stream
        body += struct.pack("<IIII", 0x08074B50, crc, len(stream) % wrap, len(content) % wrap)
        sizes = len(stream) % wrap, len(content) % wrap, len(raw)
        fields = 0x02014B50, 0x315, 20, 8, 8, 0, 0x5621, crc, *sizes, 0, 0, 0, 0, 0o100644 << 16, at % wrap
        entries += struct.pack("<IHHHHHHIIIHHHHHII", *fields) + raw
    count, at = len(contents), len(body) % wrap
    return body + entries + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count, count, len(entries), at, 0), len(body)


CONTENTS = {
    "1-Small.txt": b"one " * 20,
    "2-Zeros.bin": bytes(5 * WRAP + 1),  # stored in fewer bytes than WRAP
    "3-Small.txt": b"three " * 20,
    "4-Noise.bin": noise(2 * WRAP + 99),  # stored in more
    "5-Small.txt": b"five " * 20,
    "6-Noise.bin": noise(WRAP // 2),
    "7-Noise.bin": noise(3 * WRAP),
    "8-Small.txt": b"eight " * 20,
}


@pytest.fixture
def wrapped(monkeypatch):
    monkeypatch.setattr(records, "WRAP", WRAP)
    monkeypatch.setattr(members, "LARGE", 0)


def statuses(document: pparse.Extraction) -> set[Status]:
    return {visit.status for visit in document.parse().parser.check() if visit.depth}


@pytest.mark.usefixtures("wrapped")
def test_members_are_found_and_their_true_sizes_known_once_they_were_read():
    archive, _ = finder(CONTENTS)
    with pparse.open(archive) as document:
        parser = document.parse().parser
        listed = {member.name: member for member in parser.members()}
        assert list(listed) == list(CONTENTS)
        assert {member.status for member in listed.values()} == {Status.COMPLETE}
        assert [found.code for found in document.result.findings] == ["modulo"]  # until then
        with ThreadPoolExecutor(4) as pool:
            assert dict(zip(CONTENTS, pool.map(document.get, CONTENTS), strict=True)) == CONTENTS
    with pparse.open(tar_of(**{"a.zip": archive})) as outer:
        document = outer.parse().parser.enter("a.zip")
        parser = document.parse().parser
        assert statuses(document) == {Status.COMPLETE}
        assert {row.name: row.size for row in parser.members()} == {k: len(v) for k, v in CONTENTS.items()}
        assert not list(document.result.findings)
        assert parser.checksums()[:2] == (len(CONTENTS), len(CONTENTS))


@pytest.mark.usefixtures("wrapped")
def test_only_what_is_compressed_more_than_its_size_says_is_decoded_for_its_size():
    with pparse.open(finder(CONTENTS)[0]) as document:
        parser = document.parse().parser
        sizes = {member.name: parser.enter(member.name).size for member in parser.files()}
        assert sizes == {**{name: len(content) for name, content in CONTENTS.items()}, "2-Zeros.bin": None}
        parser.enter("2-Zeros.bin").find_end()
        assert parser.enter("2-Zeros.bin").data.size == len(CONTENTS["2-Zeros.bin"])


@rows(
    "change, bad",
    [
        (lambda whole, body: whole[:-30], set()),  # the end of the directory is cut: its record is lost
        (lambda whole, body: whole[: body - 20], {"8-Small.txt"}),
        (lambda whole, body: _flipped(whole, 112), {"2-Zeros.bin"}),  # the head of its only block
        (lambda whole, body: _flipped(whole, body // 2), {"7-Noise.bin"}),
        (lambda whole, body: _flipped(whole, whole.index(b"5-Small.txt") - 30), set()),  # its signature
        (lambda whole, body: _flipped(whole, whole.rindex(b"2-Zeros.bin") - 22), set()),  # its size, in the directory
    ],
)
@pytest.mark.usefixtures("wrapped")
def test_damage_is_seen_where_it_is(change, bad):
    whole, body = finder(CONTENTS)
    with pparse.open(change(whole, body)) as document:
        parser = document.parse().parser
        verdicts = {member.name: parser.verify(member).verified for member in parser.files() if member.kind == "file"}
        assert {name for name in CONTENTS if verdicts.get(name) is not True} == bad
        codes = {member.finding.code for member in parser.files() if member.finding is not None}
        assert "contradiction" not in codes


def _flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 8]) + content[at + 1 :]


def test_a_member_of_5_gib_stands_before_others():
    """Nothing of it is read; its bytes are those of no file."""
    big, small = 5 << 30, {"small.txt": b"small " * 20}
    head = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 8, 8, 0, 0x5621, 0, 0, 0, 3, 0) + b"big"
    tail, body = finder({**small, "last.txt": b"last"}, wrap=FULL)
    before = len(head) + big + 16
    entries = bytearray(tail[body:-22])
    for at in (0, entries.index(b"PK\1\2", 1)):
        offset = struct.unpack_from("<I", entries, at + 42)[0]
        struct.pack_into("<I", entries, at + 42, (offset + before) % FULL)
    fields = 0x02014B50, 0x315, 20, 8, 8, 0, 0x5621, 7, big % FULL, 9, 3, 0, 0, 0, 0, 0o100644 << 16, 0
    entries = struct.pack("<IHHHHHHIIIHHHHHII", *fields) + b"big" + entries
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 3, 3, len(entries), (before + body) % FULL, 0)
    descriptor = struct.pack("<IIII", 0x08074B50, 7, big % FULL, 9)
    parts = [BytesData(head), ZeroData(big), BytesData(descriptor + tail[:body] + entries + end)]
    with pparse.open(SplicedData([part.range(0, part.size) for part in parts], "big.zip")) as document:
        parser = document.parse().parser
        assert next((member.name, member.compressed_size) for member in parser.files()) == ("big", big)
        assert document.get("small.txt") == small["small.txt"]
        assert document.get("last.txt") == b"last"
        assert [found.code for found in document.result.findings] == []
