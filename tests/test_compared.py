"""What a check compared is said beside "ok", and what recovery wrote is called confirmed only if a checksum did so."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import random
import tarfile
import zipfile

import pytest

import pparse
from pparse.cli import main
from pparse.errors import FormatError
from pparse.findings import Status
from pparse.riegeli import RecordWriter
from tests.conftest import safetensors

HEADER = {f"h.{n}": {"dtype": "U8", "shape": [500], "data_offsets": [n * 500, n * 500 + 500]} for n in range(4)}
MODEL = safetensors(HEADER, random.Random(1).randbytes(2000))
TEXT = b"read me\n" * 900
NOISE = random.Random(3).randbytes(30_000)


def tar(*members: tuple[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def zipped(*members: tuple[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def riegeli() -> bytes:
    made = io.BytesIO()
    with RecordWriter(made, options="uncompressed", owns_dest=False) as writer:
        for number in range(50):
            writer.write_record(b"record %d" % number)
    return made.getvalue()


PAIR = (("a.txt", TEXT), ("b.bin", NOISE))
GZIP = "the checksum of the gzip stream agrees"
WORDS = {
    "m.safetensors": (lambda: MODEL, "4 tensors; no checksum covers them"),
    "m.safetensors.gz": (lambda: gzip.compress(MODEL), f"4 tensors; a checksum agrees for each; {GZIP}"),
    "d.json": (lambda: b'{"a": [1, 2]}', "no checksum covers it"),
    "d.json.xz": (lambda: lzma.compress(b'{"a": [1, 2]}'), "the checksum of the xz stream agrees"),
    "a.tar": (lambda: tar(*PAIR), "2 files; no checksum covers their data"),
    "one.tar": (lambda: tar(PAIR[0]), "1 file; no checksum covers it"),
    "none.tar": (tar, "0 files"),
    "a.tar.bz2": (lambda: bz2.compress(tar(*PAIR)), "2 files; the checksum of the bz2 stream agrees"),
    "a.zip": (lambda: zipped(*PAIR), "2 files; a checksum agrees for each"),
    "a.zip.gz": (lambda: gzip.compress(zipped(*PAIR)), f"2 files; a checksum agrees for each; {GZIP}"),
    "r.riegeli": (riegeli, "2 chunks; a checksum agrees for each"),
}


@pytest.mark.parametrize("name", WORDS)
def test_check_says_what_was_compared(run, tmp_path, name):
    make, words = WORDS[name]
    path = tmp_path / name
    path.write_bytes(make())
    ran = run("check", path)
    count = words[: words.index(";")] if words.startswith(("1 file", "2 files")) else ""
    were = f"{'was' if count == '1 file' else 'were'} read, and not looked into: 'pparse check -R' does"
    note = f"note    {path}: not-entered: its {count} {were}\n" if count else ""
    assert (ran.code, ran.out) == (0, f"{note}{path}: ok: {words}{' (1 note)' if count else ''}\n")
    assert run("check", "-R", path).out == f"{path}: ok: {words}\n"


def test_what_was_compared_is_said_beside_warnings_and_rules(run, tmp_path):
    path = tmp_path / "a.tar"
    content = tar(*PAIR).rstrip(bytes(1))
    path.write_bytes(content + bytes(-len(content) % 512 + 512))  # one of the two blocks that mark the end
    ran = run("check", path)
    assert ran.out.endswith(f"{path}: ok: 2 files; no checksum covers their data (1 warning, 1 note)\n")
    (tmp_path / "m.safetensors").write_bytes(MODEL)
    ran = run("check", "--strict", tmp_path / "m.safetensors")
    assert ran.out.endswith("ok, by the rules of safetensors: 4 tensors; no checksum covers them\n")


def test_a_digest_that_agrees_covers_what_no_checksum_does(run, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(MODEL)
    ran = run("check", f"--sha256={hashlib.sha256(MODEL).hexdigest()}", path)
    assert ran.out.endswith(f"{path}: ok: 4 tensors; the SHA-256 agrees (1 note)\n")


def test_nothing_is_said_to_be_compared_of_what_is_not_whole(run, tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(zipped(*PAIR)[:-1])
    assert "checksum agrees" not in run("check", path).out


def test_a_member_of_a_model_in_a_zip_is_confirmed_by_the_zip(run, tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(zipped(("m.safetensors", MODEL)))
    assert "ok: 4 tensors; a checksum agrees for each\n" in run("check", f"{path}::m.safetensors").out


# -- recovery --------------------------------------------------------------------------------------------------------

CONFIRMED = {
    "m.safetensors": "no checksum covers it",
    "m.safetensors.gz": "a checksum agrees for it",
    "d.json": "no checksum covers it",
    "a.tar": "no checksum covers them",
    "a.tar.bz2": "a checksum agrees for all 2",
    "a.zip": "a checksum agrees for all 2",
    "r.riegeli": "a checksum agrees for it",
}


@pytest.mark.parametrize("name", CONFIRMED)
def test_recover_counts_what_any_checksum_confirmed(run, tmp_path, name):
    path, out = tmp_path / name, tmp_path / "out"
    path.write_bytes(WORDS[name][0]())
    ran = run("recover", path, "-o", out)
    assert f"nothing is missing; {CONFIRMED[name]}: use" in ran.out
    rows = json.loads((out / "RECOVERY.json").read_text())["files"]
    assert {row["verified"] for row in rows} == {None if "no checksum" in CONFIRMED[name] else True}


def test_the_summary_counts_as_verified_only_what_is_complete(run, tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(zipped(("cut.json", b'{"a": [1,'), ("a.txt", TEXT)))
    assert "2 files, 7.0 KiB: 1 complete (1 verified), 1 truncated" in run("recover", path, "-o", tmp_path / "o").out


def test_files_that_are_all_complete_are_not_spoken_of_as_if_some_were_not(run, tmp_path):
    content = bytearray(zipped(*PAIR))
    content[26:30] = b"\xff\xff\xff\xff"  # lengths in the first local header
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    ran = run("recover", path, "-o", tmp_path / "o")
    assert ran.code == 4
    assert "of those that are not complete" not in ran.out
    assert "each file is complete, but what contained them is not; a checksum agrees for all 2" in ran.out


# -- places ----------------------------------------------------------------------------------------------------------


def rows_of(folder):
    return {row["path"]: row for row in json.loads((folder / "RECOVERY.json").read_text())["files"]}


@pytest.mark.parametrize("change", ["remove", "insert"])
def test_a_damaged_member_of_which_nothing_tells_the_place_is_doubtful_all_of_it(run, tmp_path, change):
    content = tar(("a.txt", TEXT), ("b.bin", NOISE + bytes(range(1, 33))), ("c.txt", TEXT))
    at = content.index(NOISE) + 10_000
    path = tmp_path / "a.tar"
    path.write_bytes(content[:at] + (content[at + 7 :] if change == "remove" else b"\xa5" * 9 + content[at:]))
    assert run("recover", path, "-o", tmp_path / "o").code == 4
    for name, row in rows_of(tmp_path / "o").items():
        if row["status"] == "damaged" and not name.startswith("nameless/"):
            assert row["doubtful"] == [[0, row["bytes"]]], name
    assert rows_of(tmp_path / "o")["b.bin"]["status"] == "damaged"


@pytest.mark.parametrize("wrap", [tar, zipped, None])
def test_a_damaged_document_without_a_place_is_doubtful_all_of_it(run, tmp_path, wrap):
    broken = b'{"a": 1, "b": tru, "c": [1, 2, 3], "d": "text"}'
    path = tmp_path / ("d.json" if wrap is None else "a.archive")
    path.write_bytes(broken if wrap is None else wrap(("d.json", broken)))
    run("recover", path, "-o", tmp_path / "o")
    row = rows_of(tmp_path / "o")["d.json"]
    assert row["status"] == "damaged"
    assert row["doubtful"] or row["gaps"]


# -- one verdict -----------------------------------------------------------------------------------------------------


def test_what_follows_the_end_of_a_tar_is_a_warning_for_all(run, tmp_path):
    content = bytearray(tar(*PAIR))
    content[-200:-184] = b"\xa5" * 16
    path = tmp_path / "a.tar"
    path.write_bytes(content)
    codes = {words: run(*words, path).code for words in (("ls",), ("info",), ("check",), ("check", "-R"))}
    assert set(codes.values()) == {0}
    assert run("recover", path, "-o", tmp_path / "o").code == 0
    (name,) = (name for name in rows_of(tmp_path / "o") if name.startswith("nameless/"))
    row = rows_of(tmp_path / "o")[name]
    assert (row["status"], row["doubtful"]) == ("complete", [])
    assert "follow the end of the archive" in row["reason"]
    assert run("check", "--strict", path).code == run("recover", "--strict", path, "-o", tmp_path / "p").code == 4


def test_recover_comes_to_the_code_of_check_with_recursion(run, tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(zipped(("cut.safetensors", MODEL[:-700]), ("a.txt", TEXT)))
    assert run("check", path).code == 0  # its checksums agree, and that is all of a zip
    assert run("check", "-R", path).code == run("recover", path, "-o", tmp_path / "o").code == 4


# -- names -----------------------------------------------------------------------------------------------------------


def test_brotli_that_looks_like_json_is_brotli(run, tmp_path):
    brotli = pytest.importorskip("brotli")
    path = tmp_path / "x.bin.br"
    for size in (65_572, 67_900, 68_482, 68_676, 69_937, 71_780, 74_302, 82_741):
        packed = brotli.compress(b"read me a little\n" * (size // 17), quality=5)
        assert packed[:1] == b"["
        assert packed[1:2] in b' ]{"0123456789-'
        path.write_bytes(packed)
        with pparse.open(path) as document:
            assert (document.format, document.status) == ("brotli", Status.COMPLETE), size
        assert run("check", path).code == 0
    path.write_bytes(b'{"a": "no stream at all, just a name that lies"}')
    with pparse.open(path) as document, pytest.raises(FormatError, match="named like brotli, but is json text"):
        document.root  # noqa: B018


def test_a_hole_says_where_to_resume_whatever_the_format(run, tmp_path):
    big = json.dumps({"a": list(range(20_000)), "b": "text"}).encode()
    random_zip = zipped(("a.bin", random.Random(9).randbytes(100_000)), ("b.txt", TEXT))
    for name, content in (("d.json", big), ("a.zip", random_zip), ("r.gz", gzip.compress(random_zip))):
        path = tmp_path / name
        cut = 60_000
        while not content[cut - 1]:
            cut -= 1
        with path.open("wb") as file:
            file.write(content[:cut])
            file.truncate(len(content))
        if path.stat().st_blocks * 512 >= len(content):
            pytest.skip("this file system has no holes")
        for command in ("ls", "info", "check"):
            assert f"resume the download at byte {cut}" in run(command, path).out, (name, command)
        assert run("info", "--json", path).json["resume_at"] == cut


def test_the_checksum_of_a_stream_does_not_prove_where_a_member_ends(tmp_path):
    """The header of a tar in a sound gzip lies about a size: every byte is proved, and the member is damaged."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("first.bin", "lies.bin", "last.bin"):
            member = tarfile.TarInfo(name)
            member.size = 900 if name == "lies.bin" else 6000
            archive.addfile(member, io.BytesIO(bytes(range(1, 251)) * 24))
    content = bytearray(out.getvalue())
    at = content.index(b"lies.bin")
    content[at + 124 : at + 136] = b"%011o\0" % 3000
    content[at + 148 : at + 156] = b" " * 8
    content[at + 148 : at + 156] = b"%06o\0 " % sum(content[at : at + 512])
    path = tmp_path / "it.tar.gz"
    path.write_bytes(gzip.compress(bytes(content)))
    assert main(["recover", "-q", str(path), "-o", str(tmp_path / "o")]) == 4
    rows = {row["path"]: row for row in json.loads((tmp_path / "o/RECOVERY.json").read_text())["files"]}
    assert rows["lies.bin"]["status"] == "damaged"
    assert rows["lies.bin"]["verified"] is None
    assert [rows[name]["verified"] for name in ("first.bin", "last.bin")] == [True, True]
