"""Streams that contradict themselves only at their end, or end elsewhere than they should: who says what of them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import tarfile
import zipfile
import zlib

import numpy as np
import pytest

import pparse
from pparse.compressed.resumed import ResumedData
from pparse.data.base import BytesData
from pparse.findings import Status
from pparse.limits import MemoryBudget
from tests import sweep
from tests.conftest import safetensors
from tests.zip_samples import STAMP

WORDS = bytes(random.Random(5).choices(b"abcdefgh 0123456789", k=60_000))


BIG = bytes(random.Random(6).choices(b"abcdefgh 0123456789", k=600_000))  # more than is decoded at once


def model() -> bytes:
    """Twenty tensors that compress."""
    rng = random.Random(3)
    header, data = {}, b""
    for number in range(20):
        content = bytes(rng.choices(range(16), k=4096))
        header[f"t{number}"] = {"dtype": "U8", "shape": [4096], "data_offsets": [len(data), len(data) + 4096]}
        data += content
    return safetensors(header, data)


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, STAMP)
            info.compress_type = method
            archive.writestr(info, content)
    return file.getvalue()


def tarred(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def flipped_unnoticed(packed: bytes, first: int) -> bytes:
    """Return a gzip file with one bit flipped that only its checksum tells."""
    for at in range(first, len(packed) - 100):
        damaged = bytearray(packed)
        damaged[at] ^= 1
        stream = zlib.decompressobj(-15)
        try:
            out = stream.decompress(bytes(damaged[10:-8]))
        except zlib.error:
            continue
        if stream.eof and len(out) == int.from_bytes(packed[-4:], "little"):
            return bytes(damaged)
    raise AssertionError("no such bit")


def spliced(packed: bytes, at: int, count: int) -> bytes:
    """Return ``packed`` without ``count`` bytes at ``at``, or with as many more."""
    return packed[:at] + packed[at + count :] if count > 0 else packed[:at] + bytes([0xAA]) * -count + packed[at:]


CONTENT = model()
ORIGINAL = pparse.view(CONTENT)


def assert_right(view: pparse.Viewer) -> None:
    """See that whatever is called complete is what it was; what cannot be read says so."""
    try:
        tensors = list(view.tensors())
    except pparse.PparseError:
        return
    for tensor in tensors:
        called = tensor.status
        try:
            values = tensor.numpy()
        except pparse.PparseError:
            assert tensor.status is not Status.COMPLETE
            continue
        assert called is not Status.COMPLETE or np.array_equal(values, ORIGINAL[tensor.name].numpy()), tensor.name


@pytest.mark.parametrize("count", [1, 2, 7, 512, -1, -7, -512])
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_bytes_lost_from_or_put_into_a_packed_member_leave_nothing_wrong_that_is_called_complete(
    run, tmp_path, method, count
) -> None:
    whole = zipped({"readme.txt": WORDS[:500], "m.safetensors": CONTENT, "end.txt": WORDS[:300]}, method)
    first = whole.index(b"m.safetensors") + 13
    for at in sweep.some(range(first + 300, whole.index(b"end.txt") - 700, 3_001), 14):
        path = tmp_path / f"{at}.zip"
        path.write_bytes(spliced(whole, at, count))
        with pparse.open(path) as document, document.result.parser.enter("m.safetensors").view() as view:
            assert_right(view)
        folder = tmp_path / f"{at}"
        assert run("recover", path, "-o", folder, "-q").code == 4
        if (folder / "m.safetensors").exists():
            assert_right(pparse.view(folder / "m.safetensors"))


@pytest.mark.parametrize("count", [1, -7])
def test_a_member_that_lost_bytes_is_not_trusted_in_an_archive_that_is_cut_behind_it(run, tmp_path, count) -> None:
    whole = zipped({"m.safetensors": CONTENT, "end.txt": WORDS})
    damaged = spliced(whole, 20_000, count)
    path = tmp_path / "cut.zip"
    path.write_bytes(damaged[: damaged.index(b"end.txt") + 2_000])
    assert run("recover", path, "-o", tmp_path / "o", "-q").code == 4
    if (tmp_path / "o" / "m.safetensors").exists():
        assert_right(pparse.view(tmp_path / "o" / "m.safetensors"))


def resumed(packed: bytes, codec: str, **more: object) -> ResumedData:
    data = BytesData(packed, "it")
    return ResumedData(data.range(0, len(packed)), codec, budget=MemoryBudget(), **more)  # type: ignore[arg-type]


def raw(content: bytes) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    return stream.compress(content) + stream.flush()


def test_a_bounded_stream_that_goes_on_beyond_its_end_is_in_doubt() -> None:
    data = resumed(raw(WORDS)[:-40], "deflate", bounded=True)
    data.verify()
    assert data.why_suspect(0, 1_000) == "the stream does not end where it should"
    cut = resumed(raw(WORDS)[:-40], "deflate")
    cut.verify()
    assert cut.why_suspect(0, 1_000) is None


def test_a_bounded_stream_that_ends_before_its_end_is_in_doubt_unless_its_checksum_agrees() -> None:
    data = resumed(raw(WORDS) + b"more of it", "deflate", bounded=True)
    data.verify()
    assert data.why_suspect(0, len(WORDS)) == "the stream does not end where it should"
    proved = resumed(raw(WORDS) + b"more of it", "deflate", bounded=True, checksum=("crc32", zlib.crc32(WORDS)))
    proved.verify()
    assert proved.why_suspect(0, len(WORDS)) is None
    assert proved.is_proved(0, len(WORDS))


def test_blocks_with_checksums_of_their_own_are_not_in_doubt_where_their_stream_is_short() -> None:
    packed = bz2.compress(WORDS * 20, 1)
    data = resumed(packed[:-12], "bz2", bounded=True)
    data.verify()
    assert data.why_suspect(0, 90_000) is None
    packed = lzma.compress(WORDS, check=lzma.CHECK_NONE)
    data = resumed(packed[:-60], "xz", bounded=True)
    data.verify()
    assert data.why_suspect(0, 1_000) is not None


def test_a_stream_that_ends_in_too_few_zeros_for_a_page_is_in_doubt_before_them() -> None:
    packed = gzip.compress(WORDS, mtime=0)
    data = resumed(packed[:-30] + bytes(30), "gzip")
    data.verify()
    assert data.why_suspect(0, data.gaps[-1].offset) is not None


@pytest.fixture
def late(tmp_path):
    """A tar.gz of which one bit is flipped that nothing but its checksum tells, at the end."""
    members = {"d/a.txt": BIG[:200_000], "d/b.txt": BIG[200_000:300_000], "d/c.txt": BIG[300_000:]}
    path = tmp_path / "late.tar.gz"
    path.write_bytes(flipped_unnoticed(gzip.compress(tarred(members), mtime=0), 2_000))
    return path


def test_ls_says_in_its_rows_what_its_findings_say(run, late) -> None:
    ran = run("ls", late)
    assert ran.code == 4
    words = "damaged: the checksum of the stream contradicts what was decoded"
    assert [line.split("  ")[-1] for line in ran.lines[1:4]] == [words] * 3
    assert {row["status"] for row in run("ls", late, "--jsonl").jsonl} == {"damaged"}


def test_ls_says_so_of_archives_in_archives(run, late, tmp_path) -> None:
    outer = tmp_path / "outer.tar"
    outer.write_bytes(tarred({"in.tar.gz": late.read_bytes()}))
    rows = {row["name"]: row["status"] for row in run("ls", "-R", outer, "--jsonl").jsonl}
    assert [rows[f"in.tar.gz::d/{name}.txt"] for name in "abc"] == ["damaged"] * 3


def test_extract_takes_back_what_it_called_complete_before_the_end_contradicted_it(run, late, tmp_path) -> None:
    ran = run("extract", late, "-o", tmp_path / "o", "-v")
    assert ran.code == 4
    assert "complete" not in ran.out
    found = run("extract", late, "-o", tmp_path / "o2", "--json").json
    assert [(file["status"], len(file["doubtful"])) for file in found["files"]] == [("damaged", 1)] * 3
    assert sorted(path.name for path in (tmp_path / "o2").rglob("*.*")) == ["a.txt", "b.txt", "c.txt"]


def test_extract_of_a_whole_archive_decodes_it_once(run, tmp_path) -> None:
    path = tmp_path / "good.tar.gz"
    path.write_bytes(gzip.compress(tarred({"a.txt": WORDS, "b.txt": WORDS[:5_000]}), mtime=0))
    ran = run("extract", path, "-o", tmp_path / "o", "--trace-io")
    assert ran.code == 0
    read = int(ran.err.split("read ")[-1].split(" bytes")[0])
    assert read < 2 * (path.stat().st_size + len(WORDS) + 30_000)
    # So does check of a model: what it looks for in the data, it looks for on the way to their end.
    size = 12 << 20
    header = {"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    content = random.Random(1).randbytes(size - (1 << 17)) + bytes(1 << 17)
    model_path = tmp_path / "m.safetensors.gz"
    model_path.write_bytes(gzip.compress(safetensors(header, content), 1, mtime=0))
    ran = run("check", model_path, "--trace-io")
    assert (ran.code, ran.out.count("zeros @")) == (0, 1)
    assert int(ran.err.split("read ")[-1].split(" bytes")[0]) < 3 * model_path.stat().st_size  # content counts, too
    # The checksum at its end covers all members, also those that were written before it was read.
    path.write_bytes(gzip.compress(tarred(dict.fromkeys("abcde", BIG)), mtime=0))
    found = run("extract", path, "-o", tmp_path / "o2", "--json").json
    assert [file["verified"] for file in found["files"]] == [True] * found["summary"]["verified"] == [True] * 5
    (tmp_path / "good.tar").write_bytes(tarred(dict.fromkeys("abcde", BIG)))
    assert run("extract", tmp_path / "good.tar", "-o", tmp_path / "o3", "--json").json["summary"]["verified"] == 0


def test_extract_writes_the_bytes_that_are_right_when_the_stream_is_decoded_anew(run, tmp_path) -> None:
    packed = bytearray(gzip.compress(tarred({"a.txt": BIG[:300_000], "b.txt": BIG[300_000:]}), mtime=0))
    packed[30_000:30_200] = bytes(200)
    path = tmp_path / "zeros.tar.gz"
    path.write_bytes(packed)
    run("extract", path, "-o", tmp_path / "extracted", "-q")
    run("recover", path, "-o", tmp_path / "recovered", "-q")
    for name in ("a.txt", "b.txt"):
        assert (tmp_path / "extracted" / name).read_bytes() == (tmp_path / "recovered" / name).read_bytes()


def test_get_of_a_member_looks_at_the_end_of_the_stream_if_that_is_near(run, late, tmp_path) -> None:
    ran = run("get", late, "d/b.txt", "-o", tmp_path / "b.txt")
    assert ran.code == 4
    assert ran.err == (
        "pparse: d/b.txt: damaged: the checksum of the stream contradicts what was decoded; it was written, and may be "
        f"wrong\npparse: wrote {tmp_path / 'b.txt'}, 97.7 KiB\n"
    )


def test_get_of_a_stream_that_is_decoded_anew_gives_no_byte_of_the_first_try(run, tmp_path) -> None:
    packed = bytearray(gzip.compress(BIG, mtime=0))
    packed[150_000:150_200] = bytes(200)
    path = tmp_path / "it.gz"
    path.write_bytes(packed)
    assert run("get", path, "-o", tmp_path / "out").code == 4
    out = (tmp_path / "out").read_bytes()
    assert out == BIG[: len(out)]


def test_findings_on_what_a_compressed_file_holds_name_that_file(run, late) -> None:
    ran = run("check", late)
    assert ran.code == 4
    sources = [line.split()[1].rstrip(":") for line in ran.lines if line.startswith("error")]
    assert set(sources) == {str(late)}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_checksum_of_a_member_speaks_for_all_that_is_in_it(run, tmp_path, method) -> None:
    inner = tarred({"a.txt": WORDS[:900], "b.txt": WORDS[900:3_000]})
    whole = zipped({"in.tar": inner, "other.txt": WORDS[:100]}, method)
    path = tmp_path / "late.zip.gz"
    packed = bytearray(gzip.compress(whole, mtime=0))
    packed[-8] ^= 1  # the stream contradicts itself, and the members of the zip do not
    path.write_bytes(packed)
    rows = {row["name"]: row["status"] for row in run("ls", "-R", path, "--jsonl").jsonl}
    assert rows == dict.fromkeys(("in.tar", "other.txt", "in.tar::a.txt", "in.tar::b.txt"), "complete")
    assert run("get", f"{path}::in.tar", "a.txt", "-o", tmp_path / "a.txt").code == 0
    files = run("recover", path, "-o", tmp_path / "sound", "--json").json["files"]
    assert [(file["status"], file["verified"]) for file in files] == [("complete", True)] * 3
    at = whole.index(inner[:600]) + 600 if method == zipfile.ZIP_STORED else 200
    (tmp_path / "it.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    files = run("recover", tmp_path / "it.zip", "-o", tmp_path / "hit", "--json").json["files"]
    assert {file["path"]: file["status"] for file in files if file["path"].startswith("in.tar/")} == {
        "in.tar/a.txt": "damaged",
        "in.tar/b.txt": "damaged",
    }


def test_bytes_that_came_into_a_stored_member_do_not_hide_the_members_behind_it(run, tmp_path) -> None:
    inner = zipped({"x.txt": WORDS[:3_000], "empty": b""}, zipfile.ZIP_STORED)
    whole = zipped({"in.zip": inner, "b.txt": WORDS[:700], "empty": b""}, zipfile.ZIP_STORED)
    path = tmp_path / "it.zip"
    path.write_bytes(spliced(whole, 1_000, -512))
    rows = {row["name"]: row["status"] for row in run("ls", path, "--jsonl").jsonl}
    assert rows == {"in.zip": "damaged", "b.txt": "complete", "empty": "complete"}
    run("recover", path, "-o", tmp_path / "o", "-q")
    report = json.loads((tmp_path / "o" / "RECOVERY.json").read_text())
    assert {file["path"]: file["status"] for file in report["files"]}["b.txt"] == "complete"


def test_members_behind_damage_come_out_though_the_checksum_of_the_first_contradicts() -> None:
    """Three members: the CRC of the first is wrong, the second is damaged inside; the third is whole."""
    rng = random.Random(1)
    texts = [b"".join(b"line %d %d\n" % (i, rng.randrange(10**6)) for i in range(6_000)) for _ in range(3)]
    first, second, third = (bytearray(gzip.compress(text, 6)) for text in texts)
    first[-6] ^= 0x55
    for seed in sweep.part(range(12)):
        noise = random.Random(seed)
        hit = bytearray(second)
        at = noise.randrange(200, len(hit) - 200)
        hit[at : at + 40] = noise.randbytes(40)
        raw = bytes(first + hit + third)
        source = BytesData(raw)
        data = ResumedData(source.range(0, len(raw)), "gzip", budget=MemoryBudget(64 << 20), concatenated=True)
        data.verify()
        known, _ = data.read_known(0, 2 * sum(map(len, texts)))
        assert texts[2][-20_000:] in known, f"noise {seed} at {at}"
        data.close()
