"""Compressed streams as documents: what they hold, what they say of it, and what is inside is opened by itself."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import random
import struct
import tarfile
import zipfile
import zlib

import pytest

import pparse
from pparse.codecs.table import CODECS as CODEC_TABLE
from pparse.errors import EndOfDataError, FormatError, LimitError, MalformedError, PathError, PparseError
from pparse.findings import Status
from pparse.limits import Limits
from pparse.testing.fakes import GappyData, UnknownSizeData
from tests import sweep, zstd
from tests.conftest import safetensors
from tests.deflate_samples import content, deflate
from tests.rows import rows
from tests.truth.wrappers import lz4_blocks


def fault(reason):
    return pytest.mark.xfail(strict=True, reason=reason)


def lz4(data: bytes) -> bytes:
    return bytes(pytest.importorskip("cramjam").lz4.compress(data))


def brotli(data: bytes) -> bytes:
    return pytest.importorskip("brotli").compress(data, quality=5)


WRITERS = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "zstd": lambda data: zstd.compress(data, checksum=True),
    "lz4": lz4,
    "zlib": zlib.compress,
    "deflate": deflate,
    "brotli": brotli,
}
SUFFIXES = {
    "gzip": ".gz",
    "bz2": ".bz2",
    "xz": ".xz",
    "lzma": ".lzma",
    "zstd": ".zst",
    "lz4": ".lz4",
    "zlib": ".zz",
    "deflate": ".deflate",
    "brotli": ".br",
}
SHORT_TAR = {"gzip": ".tgz", "bz2": ".tbz2", "xz": ".txz", "lzma": ".tlz", "zstd": ".tzst", "lz4": ".tlz4"}
CODECS = list(WRITERS)
CHECKED = ["gzip", "bz2", "xz", "zstd", "lz4", "zlib"]
JOINED = ["gzip", "bz2", "xz", "zstd", "lz4"]  # several streams one after the other are one
SMALL = content("text", 900) + content("noise", 150) + bytes(100)
UNKNOWN = bytes(range(256)) * 10  # no parser recognises it


def tar(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def opened(stream, codec: str, **more):
    return pparse.open(stream, format=codec, **more)


def codes(document) -> list[str]:
    return [finding.code for finding in document.check()]


def content_of(document):
    return document.parse().parser.content


# -- what is whole ---------------------------------------------------------------------------------------------------


@rows("codec, size", sweep.part(itertools.product(CODECS, [0, 1, 100, 70_000, 600_000])))
def test_the_content_of_every_codec_is_whole_and_without_findings(codec, size):
    truth = content("mixed" if size > 100 else "text", size)
    with opened(WRITERS[codec](truth), codec) as document:
        assert document.format == codec
        assert document.get("content") == truth
        assert document.status is Status.COMPLETE
        assert codes(document) == []
        assert len(document.root["gaps"]) == 0
        data = content_of(document)
        assert (data.size, tuple(data.gaps), tuple(data.suspect_ranges), data.error, data.problems) == (
            size,
            (),
            (),
            None,
            [],
        )


@pytest.mark.parametrize("codec", CODECS)
def test_the_content_is_read_anywhere(codec):
    truth = content("mixed", 600_000)
    with opened(WRITERS[codec](truth), codec) as document:
        reader = document.node("content").open()
        for at in (0, 599_990, 100_000, 300_000, 5):
            reader.seek(at)
            assert reader.read(100) == truth[at : at + 100]


@pytest.mark.parametrize("codec", JOINED)
def test_streams_in_a_row_are_one(codec):
    parts = [content("text", 30_000), b"", content("noise", 10_000), b"x"]
    with opened(b"".join(map(WRITERS[codec], parts)), codec) as document:
        assert document.get("content") == b"".join(parts)
        assert codes(document) == []


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_behind_the_end_is_said_and_hides_nothing(codec):
    with opened(WRITERS[codec](SMALL) + b"\x07garbage of some length, twenty bytes or more", codec) as document:
        data = content_of(document)
        assert data.read_known(0, 1 << 20) == (SMALL, [])
        assert codes(document)
        assert abs(data.problems[0].at - len(WRITERS[codec](SMALL))) <= 8 or codec in ("lzma", "brotli")
        # Where a checksum says so, the content is whole all the same.
        assert (document.status is Status.COMPLETE) == (codec in CHECKED)


@pytest.mark.parametrize("codec", ["gzip", "xz"])
@pytest.mark.parametrize("count", [4, 512, 100_000])
def test_zeros_behind_the_end_are_padding(codec, count):
    with opened(WRITERS[codec](SMALL) + bytes(count), codec) as document:
        assert document.get("content") == SMALL
        assert codes(document) == []
        assert document.status is Status.COMPLETE


@pytest.mark.parametrize("codec", CODECS)
def test_nothing_at_all(codec):
    with opened(b"", codec) as document:
        with pytest.raises(PparseError):
            document.get("content")
        assert document.status is Status.TRUNCATED
        assert codes(document) == ["truncated"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_source_whose_size_is_not_known(codec):
    stream = WRITERS[codec](SMALL)
    with opened(UnknownSizeData(stream), codec) as document:
        assert document.get("content") == SMALL
        assert codes(document) == []


# -- every prefix ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_every_prefix_of_a_stream_gives_a_prefix_of_the_content(codec):
    stream = WRITERS[codec](SMALL)
    least = 0
    for cut in sweep.some(range(len(stream)), 3, ends=24):
        with opened(stream[:cut], codec) as document:
            data = content_of(document)
            got, unknown = data.read_known(0, 1 << 20)
            assert unknown == []
            assert got == SMALL[: len(got)], cut
            assert len(got) >= least  # more of the file is more of the content
            least = len(got)
            assert isinstance(data.error, EndOfDataError), cut
            assert data.gaps[-1].length is None
            # An lz4 frame that is cut behind four zeros, and four other bytes, may have lost bytes before its end; not
            # if it ends where a block does.
            ended = codec == "lz4" and cut > 15 and stream[cut - 8 : cut - 4] == bytes(4) != stream[cut - 4 : cut]
            ended = ended and cut not in {end for end, _ in lz4_blocks(stream)}
            assert document.status is (Status.DAMAGED if ended else Status.TRUNCATED)
            with pytest.raises(MalformedError if ended else EndOfDataError):
                document.get("content")
            assert codes(document) == (["truncated", "doubt"] if ended else ["truncated"]), cut


# -- every byte changed ----------------------------------------------------------------------------------------------


# Where a fault is known, it shows at few places near the end.
FAULTY = ("xz", "lz4", "zlib")
FAULTY_END = 40
RUN_OVER = fault("an end mark that is damaged: what is read for a further block is presented as right")


@pytest.mark.parametrize("codec", CHECKED)
def test_every_byte_changed(codec):
    stream = WRITERS[codec](SMALL)
    end = len(stream) - FAULTY_END * (codec in FAULTY)
    no_changed_byte_passes(stream, codec, sweep.some(range(end), 16, ends=16))


@pytest.mark.parametrize("codec", ["xz", *(pytest.param(codec, marks=RUN_OVER) for codec in ("lz4", "zlib"))])
def test_every_byte_of_an_end_changed(codec):
    stream = WRITERS[codec](SMALL)
    # All places are looked at, or the fault would seem to be mended.
    no_changed_byte_passes(stream, codec, range(len(stream) - FAULTY_END, len(stream)))


def no_changed_byte_passes(stream, codec, places):
    for at in places:
        with opened(stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :], codec) as document:
            try:
                loaded = document.get("content")
            except PparseError:
                loaded = None
            assert loaded in (None, SMALL), at
            data = content_of(document)
            got, unknown = data.read_known(0, 1 << 20)
            known = bytearray(b"\1" * len(got))
            for start, count in unknown:
                known[start : start + count] = bytes(count)
            for suspect in data.suspect_ranges:
                known[suspect.start : suspect.end] = bytes(len(known[suspect.start : suspect.end]))
            unsure = [gap.offset for gap in data.gaps if not gap.exact]
            sure = min([len(got), *unsure])
            if got[:sure] != SMALL[:sure]:
                for place in range(sure):
                    assert not known[place] or got[place : place + 1] == SMALL[place : place + 1], (at, place)
            if loaded is None:
                assert codes(document), at
                assert document.status in (Status.DAMAGED, Status.TRUNCATED, Status.UNSUPPORTED)


@pytest.mark.parametrize("codec", ["deflate", "lzma", "brotli"])
def test_every_byte_changed_without_a_checksum(codec):
    """Nothing says what is right; but it ends, with an error of ours or none."""
    stream = WRITERS[codec](SMALL)
    for at in sweep.some(range(len(stream)), 3, ends=24):
        with opened(stream[:at] + bytes([stream[at] ^ 0x10]) + stream[at + 1 :], codec) as document:
            try:
                document.get("content")
            except LimitError:
                assert codec == "lzma"  # a window of gigabytes
            except PparseError:
                assert document.status is not Status.COMPLETE
            else:
                assert document.status is Status.COMPLETE


@pytest.mark.parametrize("codec", ["lzma", "brotli"])
def test_what_precedes_a_failure_is_in_doubt(codec):
    stream = WRITERS[codec](SMALL)
    failed = 0
    for at in range(20, len(stream), 7):
        with opened(stream[:at] + bytes([stream[at] ^ 0xFF]) + stream[at + 1 :], codec) as document:
            data = content_of(document)
            data.verify()
            got = data.read_known(0, 1 << 20)[0]
            if isinstance(data.error, MalformedError) and len(got) < len(SMALL) and got != SMALL[: len(got)]:
                failed += 1
                assert data.why_suspect(0, len(got)) is not None
    assert failed > 10


@fault("a false end of a raw deflate stream: what precedes it is not in doubt")
def test_a_false_end_of_raw_deflate():
    stream = deflate(SMALL)
    found = 0
    for at in range(len(stream)):
        with opened(stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :], "deflate") as document:
            data = content_of(document)
            data.verify()
            if data.error is not None and data.error.reason.startswith("bytes follow"):
                found += 1
                got = data.read_known(0, 1 << 20)[0]
                assert got == SMALL[: len(got)] or data.why_suspect(0, len(got)) is not None
    assert found


# -- gaps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_gap_in_the_source(codec):
    truth = content("noise", 3_000) if codec in ("lzma", "brotli") else content("mixed", 400_000)
    stream = WRITERS[codec](truth)
    at = len(stream) // 2
    with opened(GappyData(stream, [(at, 100)]), codec) as document:
        data = content_of(document)
        got, unknown = data.read_known(0, 1 << 20)
        first = min([len(got), *[start for start, _ in unknown]])
        assert got[:first] == truth[:first]
        assert document.status is Status.DAMAGED
        assert codes(document)
        assert len(document.root["gaps"]) >= 1
        gap = document.root["gaps"].child(0)
        assert gap.start <= at + 100
        assert gap.status is Status.DAMAGED
        assert isinstance(gap.load(), str)


def test_the_gaps_are_a_list_of_what_is_passed_over():
    truth = content("mixed", 200_000)
    stream = gzip.compress(truth, 6)
    cut = stream[:40_000] + b"\xaa" * 600 + stream[40_600:]
    with opened(cut, "gzip") as document:
        gaps = list(document.root["gaps"].children())
        problems = content_of(document).problems
        assert [(gap.start, gap.load()) for gap in gaps] == [(problem.at, problem.reason) for problem in problems]
        assert all(gap.kind == "gap" for gap in gaps)
        assert gaps
        assert codes(document)


# -- gzip: the tree --------------------------------------------------------------------------------------------------


def full_header(data: bytes, flags: int = 0x1F) -> bytes:
    """A member with all that a header may have."""
    head = b"\x1f\x8b\x08" + bytes([flags]) + struct.pack("<I", 1_600_000_000) + b"\x02\x03"
    if flags & 4:
        head += struct.pack("<H", 8) + b"AB\4\0wxyz"
    if flags & 8:
        head += "n\u00e4me.txt".encode("latin-1") + b"\0"
    if flags & 16:
        head += b"a comment\0"
    if flags & 2:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    return head + deflate(data) + struct.pack("<II", zlib.crc32(data), len(data))


@rows("flags", range(32))
def test_headers_with_any_fields(flags):
    with opened(full_header(SMALL, flags) + full_header(b"more", flags), "gzip") as document:
        assert document.get("content") == SMALL + b"more"
        assert codes(document) == []
        members = document.root["members"]
        assert len(members) == 2
        for member, size in zip(members.children(), (len(SMALL), 4), strict=True):
            fields = {field.key: field.load() for field in member.children()}
            assert fields["mtime"] == 1_600_000_000
            assert fields["system"] == "Unix"
            assert fields["level"] == "best"
            assert fields["size"] == size
            assert fields.get("name") == ("n\u00e4me.txt" if flags & 8 else None)
            assert fields.get("comment") == ("a comment" if flags & 16 else None)
            assert fields.get("extra") == (b"AB\4\0wxyz" if flags & 4 else None)
            assert ("header_crc" in fields) == bool(flags & 2)
            assert fields.get("text") == (True if flags & 1 else None)
            assert member.status is Status.COMPLETE


def test_where_members_are():
    one, other = gzip.compress(SMALL), gzip.compress(b"other" * 99)
    with opened(one + bytes(100) + other, "gzip") as document:
        first, second = document.root["members"].children()
        assert (first.start, second.start, second.end) == (0, len(one) + 100, len(one) + 100 + len(other))
        assert first.end in (len(one), len(one) + 100)


def test_members_of_a_bgzf_file_are_shown_with_their_block_sizes():
    part = SMALL
    raw = deflate(part)
    block = b"\x1f\x8b\x08\4\0\0\0\0\0\xff\6\0BC\2\0" + struct.pack("<H", len(raw) + 25) + raw
    block += struct.pack("<II", zlib.crc32(part), len(part))
    with opened(block * 3, "gzip") as document:
        assert document.get("content") == part * 3
        member = document.root["members"].child(1)
        assert member["bgzf_block_size"].load() == len(block) == member.end - member.start


# -- what is inside --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_the_document_inside_is_opened(codec, tmp_path):
    path = tmp_path / f"x.json{SUFFIXES[codec]}"
    path.write_bytes(WRITERS[codec](json.dumps({"a": [1, 2, {"b": "c"}]}).encode()))
    with pparse.open(path) as document:
        assert document.format == "json"
        assert document.get("a[2].b") == "c"
        assert document.root.to_python() == {"a": [1, 2, {"b": "c"}]}
        assert codes(document) == []
        assert document.status is Status.COMPLETE


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec not in ("deflate", "brotli")])
def test_the_document_inside_is_opened_whatever_the_name(codec):
    with pparse.open(WRITERS[codec](b'{"a": [1, 2, 3], "b": "a text that is not too short to be tried"}')) as document:
        assert document.format == "json"
        assert document.get("a[1]") == 2


@pytest.mark.parametrize("suffix", [".tar" + suffix for suffix in SUFFIXES.values()] + list(SHORT_TAR.values()))
def test_a_tar_inside(suffix, tmp_path):
    codec = next(codec for codec in CODECS if suffix == SHORT_TAR.get(codec) or suffix == ".tar" + SUFFIXES[codec])
    path = tmp_path / f"a{suffix}"
    path.write_bytes(WRITERS[codec](tar(x=b"hello", y=content("text", 5000))))
    with pparse.open(path) as document:
        assert document.format == "tar"
        assert [node.key for node in document.parse().root.children()] == ["x", "y"]
        assert codes(document) == []
    with pparse.open(f"{path}::y") as inner:
        assert inner.data.pread(inner.start, 1 << 20)[:10] == content("text", 5000)[:10]


def test_streams_within_streams():
    data = json.dumps({"key": ["value"] * 30}).encode()
    for codec in ("xz", "bz2", "gzip"):
        data = WRITERS[codec](data)
    with pparse.open(data) as document:
        assert document.format == "json"
        assert document.get("key[29]") == "value"
        assert codes(document) == []


def test_gzip_within_gzip_is_a_source_of_unknown_size():
    truth = content("mixed", 300_000)
    with opened(gzip.compress(gzip.compress(truth)), "gzip") as outer:
        inner = outer.parse().parser.inner().parse("gzip")
        assert inner.parser.content.read_known(0, 1 << 20) == (truth, [])
        assert inner.parser.content.size == len(truth)


def test_damage_of_an_outer_stream_is_passed_on():
    truth = content("mixed", 300_000)
    nested = gzip.compress(gzip.compress(truth, 9), 6)
    cut = nested[:100_000] + bytes(3000) + nested[103_000:]
    with opened(cut, "gzip") as outer:
        inner = outer.parse().parser.inner().parse("gzip").parser.content
        inner.verify()
        got, _ = inner.read_known(0, 1 << 20)
        assert got[:60_000] == truth[:60_000]
        assert inner.gaps or inner.why_suspect(0, 1) is not None
        assert codes(outer)


@pytest.mark.parametrize("codec", CODECS)
def test_a_content_that_nobody_recognises_is_the_stream_itself(codec, tmp_path):
    path = tmp_path / f"blob{SUFFIXES[codec]}"
    path.write_bytes(WRITERS[codec](UNKNOWN))
    with pparse.open(path) as document:
        assert document.format == codec
        assert document.get("content") == UNKNOWN
        assert document.status is Status.COMPLETE
        assert codes(document) == []


def test_a_named_format_is_not_passed_through(tmp_path):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"[1]"))
    with pparse.open(path, format="gzip") as document:
        assert document.format == "gzip"
        assert document.get("content") == b"[1]"


def test_the_content_by_its_name(tmp_path):
    path = tmp_path / "report.txt.gz"
    path.write_bytes(gzip.compress(UNKNOWN))
    for name in ("report.txt", "content"):
        with pparse.open(f"{path}::{name}", format=None) as inner:
            assert inner.data.pread(0, 1 << 20) == UNKNOWN
    with pytest.raises(PathError), pparse.open(f"{path}::other") as inner:
        inner.data.pread(0, 1)


def test_a_model_in_a_stream(tmp_path):
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(5000, dtype="<f4")
    header = {"w": {"dtype": "F32", "shape": [50, 100], "data_offsets": [0, 20_000]}}
    path = tmp_path / "model.safetensors.gz"
    path.write_bytes(gzip.compress(safetensors(header, array.tobytes())))
    with pparse.view(path) as model:
        assert list(model) == ["w"]
        assert (model["w"].numpy() == array.reshape(50, 100)).all()


def test_a_model_in_a_stream_that_is_cut(tmp_path):
    numpy = pytest.importorskip("numpy")
    array = numpy.random.default_rng(1).random(5000, dtype="<f4")
    header = {
        "a": {"dtype": "F32", "shape": [2500], "data_offsets": [0, 10_000]},
        "b": {"dtype": "F32", "shape": [2500], "data_offsets": [10_000, 20_000]},
    }
    path = tmp_path / "model.safetensors.gz"
    path.write_bytes(gzip.compress(safetensors(header, array.tobytes()))[:-5000])
    with pparse.view(path) as model:
        assert (model["a"].numpy() == array[:2500]).all()
        with pytest.raises(PparseError):
            model["b"].numpy()
        assert list(model.check())


def test_a_cut_document_says_that_the_stream_is_cut(tmp_path):
    text = json.dumps(list(range(30_000))).encode()
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(text)[:-3000])
    with pparse.open(path) as document:
        assert document.format == "json"
        assert document.get("[100]") == 100
        assert "truncated" in codes(document)
        assert document.status is not Status.COMPLETE


def test_a_checksum_that_contradicts_shows_in_the_document_inside(tmp_path):
    stream = bytearray(gzip.compress(json.dumps(list(range(3000))).encode()))
    stream[-6] ^= 1
    path = tmp_path / "x.json.gz"
    path.write_bytes(bytes(stream))
    with pparse.open(path) as document:
        assert document.get("[100]") == 100
        assert codes(document)


# -- detection -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec not in ("deflate", "brotli")])
def test_streams_are_recognised_by_what_they_hold(codec):
    with pparse.open(WRITERS[codec](UNKNOWN)) as document:
        assert document.format == codec


@pytest.mark.parametrize("at", range(3))
def test_gzip_is_recognised_with_damaged_magic_bytes(at, tmp_path):
    stream = bytearray(gzip.compress(UNKNOWN))
    stream[at] ^= 0xFF
    path = tmp_path / "some.gz"
    path.write_bytes(bytes(stream))
    with pparse.open(path) as document:
        assert document.format == "gzip"
        assert content_of(document).read_known(0, 1 << 20) == (UNKNOWN, [])


def test_what_is_no_stream_is_not_taken_for_one():
    for data in (b"\x1f\x8a" + bytes(range(99, 200)), b"BZ" + bytes(range(99, 200)), b"\x78\x01" + b"\xff" * 99):
        with pparse.open(data) as document, pytest.raises(FormatError):
            document.parse()


# -- limits, closing, memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_of_what_comes_out(codec):
    stream = WRITERS[codec](bytes(3_000_000))
    with opened(stream, codec, limits=Limits(inflated_bytes=1_000_000)) as document:
        with pytest.raises(LimitError, match="inflated_bytes"):
            document.get("content")
        with pytest.raises(LimitError, match="inflated_bytes"):
            content_of(document).verify()


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_content_is_not_loaded_at_once(codec):
    with opened(WRITERS[codec](bytes(3_000_000)), codec, limits=Limits(scalar_bytes=1_000_000)) as document:
        with pytest.raises(LimitError, match="scalar_bytes"):
            document.get("content")
        assert document.node("content").open().read(5) == bytes(5)


def test_closing_the_document_closes_the_content():
    document = opened(gzip.compress(SMALL), "gzip")
    data = content_of(document)
    data.pread(0, 10)
    document.close()
    with pytest.raises(PparseError):
        data.pread(0, 10)
    document.close()


# -- the command line ------------------------------------------------------------------------------------------------


def test_the_command_line_goes_through(run, tmp_path):
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(b'{"a": [1, 2, 3]}'))
    done = run("get", path, "a[1]")
    assert (done.code, done.out.strip()) == (0, "2")
    assert run("check", path).code == 0
    assert run("tree", path).code == 0


def test_the_tree_of_gzip_on_the_command_line(run, tmp_path):
    path = tmp_path / "x.bin.gz"
    path.write_bytes(full_header(UNKNOWN) + full_header(UNKNOWN))
    done = run("tree", path, "-f", "gzip", "-d", "all")
    assert done.code == 0
    for word in ("content", "members", "gaps", "a comment", "n\u00e4me.txt"):
        assert word in done.out


def test_a_damaged_stream_on_the_command_line(run, tmp_path):
    path = tmp_path / "x.bin.gz"
    stream = gzip.compress(UNKNOWN * 20)
    path.write_bytes(stream[: len(stream) // 2])
    assert run("check", path).code not in (0, 2)
    done = run("check", path, "--json")
    assert "truncated" in done.out


def test_recover_unpacks_streams_by_every_extension_that_the_codecs_name(run, tmp_path):
    """`ls -R` enters whatever is an archive; `recover` goes by the names, and must know the same."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("inside.txt"), io.BytesIO())
    names = []
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as outer:
        for codec in CODEC_TABLE.values():
            for extension in codec.extensions:
                names.append(f"x{len(names)}{extension if extension in codec.tar_extensions else '.tar' + extension}")
                outer.writestr(names[-1], WRITERS[codec.name](plain.getvalue()))
    assert run("recover", tmp_path / "all.zip", "-o", tmp_path / "out").code == 0
    assert sorted(path.parent.name for path in (tmp_path / "out").rglob("inside.txt")) == sorted(names)


def test_a_stream_of_stored_blocks_that_is_cut_is_cut_and_nothing_else():
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for number in range(300):
            member = tarfile.TarInfo(f"m{number}.bin")
            member.size = 200
            archive.addfile(member, io.BytesIO(random.Random(number).randbytes(200)))
    stream = gzip.compress(made.getvalue(), 0)
    for cut in sweep.some(range(66_000, 300_000, 1_111), 4, ends=1):
        with pparse.open(stream[:cut]) as document:
            whole = [member for member in document.parse().listing.members() if str(member.status) == "complete"]
            assert len(whole) >= cut // 1_024 - 3
            assert document.status is Status.TRUNCATED
