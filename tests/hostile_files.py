"""Files of very many tiny things, made in no time: what must cost each of them the same, however many there are."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import tarfile
import zlib
from random import Random

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
_DATE = 0x5A21  # a day that there is


def zip_of(
    members: list[tuple[bytes, bytes]], *, deflated: bool = False, directory: bool = True, streamed: bool = False
) -> bytes:
    """Return a zip of (name, content): with zip64 records if there are more than 65,535."""
    out, entries, at = [], [], 0
    packed_as: dict[bytes, bytes] = {}
    for name, content in members:
        packed = content
        if deflated:
            if content not in packed_as:
                packed_as[content] = zlib.compress(content, 9, wbits=-15)
            packed = packed_as[content]
        crc, method, flags = zlib.crc32(content), 8 if deflated else 0, 8 if streamed else 0
        sizes = (0, 0, 0) if streamed else (crc, len(packed), len(content))
        record = LOCAL.pack(b"PK\3\4", 20, flags, method, 0, _DATE, *sizes, len(name), 0) + name + packed
        if streamed:
            record += struct.pack("<4s3I", b"PK\7\10", crc, len(packed), len(content))
        out.append(record)
        entries.append(
            CENTRAL.pack(
                b"PK\1\2", 20, 20, flags, method, 0, _DATE, crc, len(packed), len(content), len(name), 0, 0, 0, 0, 0, at
            )
            + name
        )
        at += len(record)
    body = b"".join(out)
    if not directory:
        return body
    listed = b"".join(entries)
    count, size, where = len(entries), len(listed), len(body)
    end = b""
    if count > 0xFFFF:
        end = END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, where)
        end += LOCATOR.pack(b"PK\6\7", 0, where + size, 1)
    few = min(count, 0xFFFF)
    return body + listed + end + END.pack(b"PK\5\6", 0, 0, few, few, size, where, 0)


def one_name(count: int) -> bytes:
    """Return a zip of ``count`` empty members of one name."""
    return zip_of([(b"a", b"")] * count)


def empty_members(count: int) -> bytes:
    """Return a zip of ``count`` empty members, each of its own name."""
    return zip_of([(b"%d" % number, b"") for number in range(count)])


def without_directory(count: int) -> bytes:
    """Return the members of a zip, and no directory."""
    return zip_of([(b"a", b"")] * count, directory=False)


def streamed_members(count: int) -> bytes:
    """Return a zip without a directory of members whose sizes stand behind them."""
    return zip_of([(b"a", b"x")] * count, deflated=True, directory=False, streamed=True)


def small_members(count: int) -> bytes:
    """Return a zip of small deflated members."""
    return zip_of([(b"%d" % number, b"0" * 100) for number in range(count)], deflated=True)


def zips_in_zip(count: int) -> bytes:
    """Return a zip whose members are zips, each of one member."""
    inner = zip_of([(b"a", b"text")])
    return zip_of([(b"%d.zip" % number, inner) for number in range(count)], deflated=True)


def _bombs(count: int) -> bytes:
    inner = zip_of([(b"a%d" % number, b"") for number in range(200)])
    return zip_of([(b"%d.zip" % number, inner) for number in range(count)], deflated=True)


def zeros_in_zip(count: int) -> bytes:
    """Return a zip of members of a kind of archive, that hold many bytes for little: tars of empty members."""
    inner = tar_members(100)
    return zip_of([(b"%d.tar" % number, inner) for number in range(count)], deflated=True)


def gz_in_zip(count: int) -> bytes:
    """Return a zip whose members are gzip streams."""
    inner = gzip.compress(b'{"a": 1}', mtime=0)
    return zip_of([(b"%d.json.gz" % number, inner) for number in range(count)])


def zip_in_gz(count: int) -> bytes:
    """Return a deflated zip of empty members, within a gzip stream."""
    return gzip.compress(one_name(count), mtime=0)


def overlapping(count: int) -> bytes:
    """Return a zip whose ``count`` directory entries all name the same bytes."""
    name, content = b"a", b"x" * 1000
    packed = zlib.compress(content, 9, wbits=-15)
    crc = zlib.crc32(content)
    body = LOCAL.pack(b"PK\3\4", 20, 0, 8, 0, _DATE, crc, len(packed), len(content), 1, 0) + name + packed
    entry = CENTRAL.pack(b"PK\1\2", 20, 20, 0, 8, 0, _DATE, crc, len(packed), len(content), 1, 0, 0, 0, 0, 0, 0) + name
    few = min(count, 0xFFFF)
    end = b""
    if count > 0xFFFF:
        end = END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, count * len(entry), len(body))
        end += LOCATOR.pack(b"PK\6\7", 0, len(body) + count * len(entry), 1)
    return (
        body + entry * count + end + END.pack(b"PK\5\6", 0, 0, few, few, count * len(entry) & 0xFFFFFFFF, len(body), 0)
    )


def fake_headers(count: int, kind: bytes = b"PK\3\4", room: int = 28, head: bytes = b"") -> bytes:
    """Return ``count`` signatures, each before random bytes."""
    noise = Random(7)
    return head + b"".join(kind + noise.randbytes(room) for _ in range(count))


def sane_headers(count: int) -> bytes:
    """Return local headers whose members overlap all that follow."""
    name = b"a"
    size = count * (LOCAL.size + 1)
    return b"".join(
        LOCAL.pack(b"PK\3\4", 20, 0, 0, 0, _DATE, 1, size - at, size - at, 1, 0) + name
        for at in range(LOCAL.size + 1, size + 1, LOCAL.size + 1)
    )


def sane_deflated(count: int) -> bytes:
    """Return local headers of deflated members that have no size, none of which can be decoded."""
    return (LOCAL.pack(b"PK\3\4", 20, 8, 8, 0, _DATE, 0, 0, 0, 1, 0) + b"a") * count


def sane_stored(count: int) -> bytes:
    """Return local headers of stored members that have no size, and no descriptor."""
    return (LOCAL.pack(b"PK\3\4", 20, 8, 0, 0, _DATE, 0, 0, 0, 1, 0) + b"a") * count


def fake_entries(count: int) -> bytes:
    """Return directory entries that lead nowhere, behind one member."""
    entry = CENTRAL.pack(b"PK\1\2", 20, 20, 0, 0, 0, _DATE, 1, 5, 5, 1, 0, 0, 0, 0, 0, 0x7FFFFFF) + b"a"
    return zip_of([(b"a", b"x")], directory=False) + entry * count


def fake_ends(count: int) -> bytes:
    """Return end records, each of a directory that is not there."""
    end = END.pack(b"PK\5\6", 0, 0, 1, 1, 47, 0, 0)
    return zip_of([(b"a", b"x")], directory=False) + end * count


def fake_ends_noted(count: int) -> bytes:
    """Return end records, each with a comment that reaches to the end of the file or as far as it can."""
    parts = [END.pack(b"PK\5\6", 0, 0, 1, 1, 47, 0, min(0xFFFF, END.size * (count - 1 - n))) for n in range(count)]
    return zip_of([(b"a", b"x")], directory=False) + b"".join(parts)


def fake_ends64(count: int) -> bytes:
    """Return zip64 end records with locators."""
    one = END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, 47, 0) + LOCATOR.pack(b"PK\6\7", 0, 0, 1)
    return zip_of([(b"a", b"x")], directory=False) + one * count


def tar_members(count: int, name: str = "a") -> bytes:
    """Return a tar of ``count`` empty members."""
    member = tarfile.TarInfo(name)
    return member.tobuf(tarfile.USTAR_FORMAT) * count + bytes(1024)


def tar_folders(count: int) -> bytes:
    """Return a tar of ``count`` folders."""
    member = tarfile.TarInfo("a")
    member.type = tarfile.DIRTYPE
    return member.tobuf(tarfile.USTAR_FORMAT) * count + bytes(1024)


def tar_links(count: int) -> bytes:
    """Return a tar of ``count`` hard links, each to the one before."""
    out = [tarfile.TarInfo("0").tobuf(tarfile.USTAR_FORMAT)]
    for number in range(1, count):
        member = tarfile.TarInfo(str(number))
        member.type, member.linkname = tarfile.LNKTYPE, str(number - 1)
        out.append(member.tobuf(tarfile.USTAR_FORMAT))
    return b"".join(out) + bytes(1024)


def tar_broken(count: int) -> bytes:
    """Return a tar of which every second header is broken."""
    good = tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT)
    bad = bytearray(good)
    bad[150] ^= 1
    return (good + bytes(bad)) * (count // 2) + bytes(1024)


def tar_zero_blocks(count: int) -> bytes:
    """Return a tar with a block of zeros behind every member."""
    return (tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT) + bytes(512)) * count + bytes(1024)


def tars_joined(count: int) -> bytes:
    """Return ``count`` tars of one empty member, one behind the other."""
    return (tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT) + bytes(1024)) * count


def tar_claims(count: int) -> bytes:
    """Return headers each of which claims a member up to the end."""
    out = []
    for number in range(count):
        member = tarfile.TarInfo("a")
        member.size = (count - number - 1) * 512
        out.append(member.tobuf(tarfile.USTAR_FORMAT))
    return b"".join(out)


def tar_pax(count: int) -> bytes:
    """Return a tar of ``count`` members with a pax header each."""
    member = tarfile.TarInfo("ä")
    return member.tobuf(tarfile.PAX_FORMAT) * count + bytes(1024)


def gzip_members(count: int, content: bytes = b"") -> bytes:
    """Return gzip members, one behind the other."""
    return gzip.compress(content, mtime=0) * count


def bz2_streams(count: int) -> bytes:
    """Return empty bzip2 streams, one behind the other."""
    return bz2.compress(b"") * count


def xz_streams(count: int) -> bytes:
    """Return empty xz streams, one behind the other."""
    return lzma.compress(b"") * count


def zstd_frames(count: int) -> bytes:
    """Return empty Zstandard frames, one behind the other."""
    return bytes.fromhex("28b52ffd2000010000") * count


def zstd_skippable(count: int) -> bytes:
    """Return skippable frames of no bytes, which both Zstandard and LZ4 have, before one frame."""
    return bytes.fromhex("28b52ffd2000010000") + struct.pack("<II", 0x184D2A50, 0) * count


def lz4_frames(count: int) -> bytes:
    """Return empty LZ4 frames, one behind the other."""
    return bytes.fromhex("04224d1860408200000000") * count


def damaged_members(count: int) -> bytes:
    """Return gzip members of which every second one has a wrong checksum."""
    good = gzip.compress(b"x", mtime=0)
    bad = good[:-8] + b"\1\2\3\4" + good[-4:]
    return (good + bad) * (count // 2)


def broken_members(count: int) -> bytes:
    """Return gzip members of which every second one has bytes that are no deflate."""
    good = gzip.compress(b"some words", mtime=0)
    return (good + good[:10] + b"\7" * 8) * (count // 2)


FILES = {
    "one_name": (one_name, "zip"),
    "empty_members": (empty_members, "zip"),
    "without_directory": (without_directory, "zip"),
    "streamed_members": (streamed_members, "zip"),
    "small_members": (small_members, "zip"),
    "zips_in_zip": (zips_in_zip, "zip"),
    "bombs": (_bombs, "zip"),
    "zeros_in_zip": (zeros_in_zip, "zip"),
    "gz_in_zip": (gz_in_zip, "zip"),
    "zip_in_gz": (zip_in_gz, "zip.gz"),
    "overlapping": (overlapping, "zip"),
    "fake_locals": (fake_headers, "zip"),
    "fake_locals_behind": (lambda n: fake_headers(n, head=zip_of([(b"a", b"x")], directory=False)), "zip"),
    "fake_centrals": (lambda n: fake_headers(n, b"PK\1\2", 44, zip_of([(b"a", b"x")], directory=False)), "zip"),
    "fake_ends_noise": (lambda n: fake_headers(n, b"PK\5\6", 18, zip_of([(b"a", b"x")], directory=False)), "zip"),
    "sane_headers": (sane_headers, "zip"),
    "sane_deflated": (sane_deflated, "zip"),
    "sane_stored": (sane_stored, "zip"),
    "fake_entries": (fake_entries, "zip"),
    "fake_ends": (fake_ends, "zip"),
    "fake_ends_noted": (fake_ends_noted, "zip"),
    "fake_ends64": (fake_ends64, "zip"),
    "tar_members": (tar_members, "tar"),
    "tar_folders": (tar_folders, "tar"),
    "tar_links": (tar_links, "tar"),
    "tar_broken": (tar_broken, "tar"),
    "tar_zero_blocks": (tar_zero_blocks, "tar"),
    "tars_joined": (tars_joined, "tar"),
    "tar_claims": (tar_claims, "tar"),
    "tar_pax": (tar_pax, "tar"),
    "gzip_members": (gzip_members, "gz"),
    "bz2_streams": (bz2_streams, "bz2"),
    "xz_streams": (xz_streams, "xz"),
    "zstd_frames": (zstd_frames, "zst"),
    "zstd_skippable": (zstd_skippable, "zst"),
    "lz4_frames": (lz4_frames, "lz4"),
    "damaged_members": (damaged_members, "gz"),
    "broken_members": (broken_members, "gz"),
}
