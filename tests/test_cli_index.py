"""``pparse index``: what it writes and says, what it refuses, exit codes; and that other commands use the index."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import random
import tarfile
from pathlib import Path

import pytest

import pparse
from pparse.compressed.gzip_index import NAME
from pparse.data.base import IoStats


def text(size: int) -> bytes:
    rng = random.Random(1)
    words = [bytes(rng.choices(b"abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(2000)]
    return b" ".join(rng.choices(words, k=size // 4))[:size]


DATA = text(1_000_000)
PACKED = gzip.compress(DATA, mtime=0)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """``data.gz``, in the folder that we stand in; no cache of anybody's is looked at."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.gz").write_bytes(PACKED)
    return tmp_path


def names(folder="."):
    return sorted(os.listdir(folder))


def test_an_index_is_written_and_used(run):
    ran = run("index", "data.gz", "--spacing", "64KiB")
    assert (ran.code, ran.err) == (0, "")
    size = os.path.getsize("data.gz.pindex")
    (line,) = ran.lines
    points = int(line.split()[1])
    assert 8 <= points <= 15
    told = f"{points} points, {size / 1024:.0f} KiB, {size / 10_000:.2f}% of the 1,000,000 bytes in 1 member"
    assert line == f"data.gz.pindex: {told}"
    assert names() == ["data.gz", "data.gz.pindex"]
    ran = run("info", "-f", "gzip", "data.gz")
    assert ran.code == 0
    assert f"index       data.gz.pindex: {points} points, {size / 1024:.0f} KiB" in ran.lines
    ran = run("index", "data.gz", "--check")
    assert (ran.code, ran.out, ran.err) == (0, f"data.gz.pindex: {points} points, all correct\n", "")
    assert run("check", "data.gz").code == 0


def test_index_json_tells_file_output_and_points(run):
    found = run("index", "data.gz", "--json").json
    assert found == {
        "schema": 1,
        "file": "data.gz",
        "output": "data.gz.pindex",
        "points": 1,
        "spacing": 4 << 20,
        "members": 1,
        "content_size": len(DATA),
        "indexed_bytes": len(PACKED),
        "size": len(PACKED),
        "index_size": os.path.getsize("data.gz.pindex"),
        "complete": True,
        "reason": None,
        "offset": None,
    }
    found = run("index", "data.gz", "--check", "--json").json
    assert found == {
        "schema": 1,
        "file": "data.gz",
        "index": "data.gz.pindex",
        "points": 1,
        "content_size": len(DATA),
        "index_size": os.path.getsize("data.gz.pindex"),
        "complete": True,
        "sound": True,
    }


def test_an_index_is_found_where_it_was_put(run, place):
    assert run("index", "data.gz", "-o", "other").code == 0
    assert "index  " not in run("info", "-f", "gzip", "data.gz").out
    assert "index       other: 1 point, " in run("info", "-f", "gzip", "data.gz", "-O", "index=other").out
    assert run("index", "data.gz", "-o", "other", "--check").code == 0
    ran = run("index", "data.gz", "--cache")
    assert ran.code == 0
    (name,) = names("cache/pparse/gzip-index")
    assert ran.out.startswith(str(place / "cache" / "pparse" / "gzip-index" / name) + ": 1 point, ")
    assert f"{name}: 1 point" in run("info", "-f", "gzip", "data.gz").out
    os.rename("data.gz", "moved.gz")
    assert f"{name}: 1 point" in run("info", "-f", "gzip", "moved.gz").out
    assert run("index", "moved.gz", "--check").out.endswith(f"{name}: 1 point, all correct\n")
    assert "index  " not in run("info", "-f", "gzip", "moved.gz", "-O", "index=none").out


def test_what_is_there_already(run):
    with open("data.gz.pindex", "wb") as file:
        file.write(b"something of value")
    ran = run("index", "data.gz")
    assert (ran.code, ran.out) == (2, "")
    assert "data.gz.pindex exists and is not an index; name another output, or replace it with --force" in ran.err
    assert run("index", "data.gz", "--force").code == 0
    assert run("index", "data.gz").code == 0  # an index is made anew
    os.mkdir("folder")
    assert "folder is a folder" in run("index", "data.gz", "-o", "folder").err
    ran = run("index", "data.gz", "-o", "./data.gz", "--force")
    assert ran.code == 2
    assert "the output ./data.gz is the file being read" in ran.err
    with open("data.gz", "rb") as file:
        assert file.read() == PACKED


def test_cut_and_damaged_files(run):
    with open("cut.gz", "wb") as file:
        file.write(PACKED[:200_000])
    ran = run("index", "cut.gz", "--spacing", "64KiB")
    assert ran.code == 4
    assert "bytes in 1 member" in ran.out
    assert ran.err == (
        "pparse: cut.gz: @0x30d40: the gzip stream is cut short; the index of the part before that was written\n"
    )
    assert run("index", "cut.gz", "--check").code == 0
    found = run("index", "cut.gz", "--json")
    assert found.code == 4
    with open("damaged.gz", "wb") as file:
        file.write(PACKED + PACKED[:-8] + bytes(8))
    ran = run("index", "damaged.gz")
    assert ran.code == 4
    assert "the 1,000,000 bytes in 1 member" in ran.out
    assert f"the {len(PACKED):,} bytes from {len(PACKED):,} on are not indexed" in ran.err
    with open("nothing.gz", "wb") as file:
        file.write(PACKED[:-8] + bytes(8))
    ran = run("index", "nothing.gz")
    assert (ran.code, ran.out) == (4, "")
    assert "nothing.gz: @0x" in ran.err
    assert not [name for name in names() if name.startswith("nothing.gz.")]


def test_files_that_are_refused(run):
    with open("plain", "wb") as file:
        file.write(b"plain text")
    ran = run("index", "plain")
    assert (ran.code, ran.err) == (3, "pparse: plain: not a file of gzip or JSON Lines; only such files are indexed\n")
    assert run("index", "-").code == 2
    assert run("index", "outer.tar::data.gz").code == 2
    assert run("index", "missing.gz").code == 2
    assert run("index", "data.gz", "-f", "xz").code == 3
    assert run("index", "data.gz", "-O", "index=none").code == 2
    ran = run("index", "data.gz", "--spacing", "1KiB")
    assert ran.code == 2
    assert "must be at least 64KiB" in ran.err
    assert run("index", "data.gz", "-o", "x", "--cache").code == 2
    ran = run("index", "data.gz", "--limit", "inflated_bytes=1000")
    assert ran.code == 2
    assert "--limit inflated_bytes=" in ran.err
    assert run("index", "data.gz", "-o", "data.gz/below").code == 2
    assert names() == ["data.gz", "plain"]


def test_checking_an_index_that_does_not_fit(run):
    ran = run("index", "data.gz", "--check")
    assert ran.code == 2
    assert "it has no index" in ran.err
    assert run("index", "data.gz").code == 0
    with open("data.gz", "ab") as file:
        file.write(PACKED)
    ran = run("index", "data.gz", "--check")
    assert (ran.code, ran.out) == (4, "")
    assert "data.gz.pindex: the index was made for another file, or for earlier content of this one" in ran.err
    ran = run("info", "-f", "gzip", "data.gz")
    assert ran.code == 0
    assert any(line.startswith("warning data.gz.pindex: ") for line in ran.lines)
    with open("data.gz.pindex", "r+b") as file:
        assert file.read(len(NAME)) == NAME
        file.write(b"\x09")
    assert "version 9" in run("index", "data.gz", "--check").err


def test_reads_are_traced(run):
    ran = run("index", "data.gz", "--trace-io")
    assert ran.code == 0
    assert "read data.gz [0x0, " in ran.err


def bytes_read(ran):
    """Return what ``--trace-io`` says of all reads together."""
    return int(ran.err.splitlines()[-1].split()[1].replace(",", ""))


def test_an_archive_is_listed_by_its_index_and_checked_in_one_pass(run):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for number in range(4):
            entry = tarfile.TarInfo(f"{number}.txt")
            entry.size = len(DATA)
            archive.addfile(entry, io.BytesIO(DATA))
    size = Path("data.tar.gz").write_bytes(gzip.compress(made.getvalue(), mtime=0))
    alone = run("ls", "data.tar.gz", "--trace-io")
    checked = run("check", "data.tar.gz", "--trace-io")
    assert run("index", "data.tar.gz", "--spacing", "64KiB").code == 0
    listed = run("ls", "data.tar.gz", "--trace-io")
    assert (listed.code, listed.out) == (0, alone.out)
    assert bytes_read(alone) >= size
    assert bytes_read(listed) < size / 2
    checked_again = run("check", "data.tar.gz", "--trace-io")
    assert (checked_again.code, checked_again.out) == (0, checked.out)
    assert bytes_read(checked_again) <= 1.1 * bytes_read(checked)
    # One byte where none of the samples of the index is: what it leads to is compared before it is used.
    content = bytearray(Path("data.tar.gz").read_bytes())
    times = os.stat("data.tar.gz")
    content[size // 2 + 100] ^= 1
    Path("data.tar.gz").write_bytes(content)
    os.utime("data.tar.gz", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert run("ls", "data.tar.gz").code == 4


# -- rows --------------------------------------------------------------------------------------------------------------

LINES = b"".join(b'{"n": %d, "s": "%s"}\n' % (number, b"x" * (number % 40)) for number in range(40_000))


def read_at(number, **options):
    """Return ``n`` of a row of ``rows.jsonl``, how much was read for it, and the codes of what was found."""
    stats = IoStats()
    with pparse.open("rows.jsonl", stats=stats, **options) as document:
        value = document.node(f"[{number}].n").load()
        return value, stats.bytes, [finding.code for finding in document.findings]


def test_a_far_row_is_read_by_an_index_of_rows(place, run):
    Path("rows.jsonl").write_bytes(LINES)
    assert read_at(39_999)[1] > len(LINES)
    ran = run("index", "rows.jsonl")
    told = "625 points, 5.0 KiB, of 40,000 rows"
    assert (ran.code, ran.out, ran.err) == (0, f"rows.jsonl.pindex: {told}\n", "")
    for number in (0, 63, 64, 39_935, 39_936, 39_999, -1):
        value, read, codes = read_at(number)
        assert (value, codes) == (number % 40_000, [])
        assert read < 200_000
    assert read_at(39_999, options={"index": "none"})[1] > len(LINES)
    assert run("index", "rows.jsonl", "--check", "--json").json == {
        "schema": 1,
        "file": "rows.jsonl",
        "index": "rows.jsonl.pindex",
        "points": 625,
        "rows": 40_000,
        "content_size": len(LINES),
        "index_size": os.path.getsize("rows.jsonl.pindex"),
        "complete": True,
        "sound": True,
    }
    with pparse.open("rows.jsonl") as document:
        assert sum(1 for _ in document.root.children()) == 40_000
        assert list(document.check()) == []
    assert run("index", "rows.jsonl", "--cache").code == 0
    os.unlink("rows.jsonl.pindex")
    assert read_at(39_999)[1] < 300_000


def test_an_index_of_rows_that_does_not_fit_is_not_used(place, run):
    path = Path("rows.jsonl")
    path.write_bytes(LINES)
    assert run("index", "rows.jsonl").code == 0
    sound = Path("rows.jsonl.pindex").read_bytes()
    then = path.stat().st_mtime_ns
    for index in (sound[:-8], sound[:100], b"", sound[:15] + b"\3" + sound[16:], sound + sound[-8:], PACKED):
        Path("rows.jsonl.pindex").write_bytes(index)
        assert read_at(39_999)[::2] == (39_999, ["index"])
    for at in (3, 20, 30, 40, 50, 60, 70, 76, 80, 1000):
        Path("rows.jsonl.pindex").write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        assert read_at(39_999)[::2] == (39_999, ["index"])
    Path("rows.jsonl.pindex").write_bytes(sound)
    os.utime(path, ns=(then, then + 1_000))  # it may have been written to
    assert read_at(39_999)[::2] == (39_999, ["index"])
    assert run("index", "rows.jsonl", "--check").code == 4
    path.write_bytes(b" " + LINES[:-1])
    os.utime(path, ns=(then, then))
    assert read_at(39_999)[::2] == (39_999, ["index"])
    assert run("index", "rows.jsonl").code == 0
    then = path.stat().st_mtime_ns
    with path.open("r+b") as file:  # in place, where no sample is taken
        file.seek(100_000)
        at = 100_000 + file.read(200).index(b"\n")
        file.seek(at)
        file.write(b" ")
    os.utime(path, ns=(then, then))
    assert read_at(39_998)[::2] == (39_999, ["index", "malformed", "unsure-number"])
    assert "'pparse index' does it anew" in run("ls", "rows.jsonl").out


def test_what_has_no_rows_of_its_own_gets_no_index_of_rows(place, run):
    Path("rows.jsonl.bz2").write_bytes(bz2.compress(LINES))
    ran = run("index", "rows.jsonl.bz2")
    assert (ran.code, names()) == (3, ["data.gz", "rows.jsonl.bz2"])
    assert "only such files are indexed" in ran.err
    Path("rows.jsonl").write_bytes(LINES)
    assert run("index", "rows.jsonl", "--spacing", "1MiB").code == 2
    Path("rows.jsonl.pindex").write_bytes(b"mine")
    assert run("index", "rows.jsonl").code == 2
    assert Path("rows.jsonl.pindex").read_bytes() == b"mine"


# -- killed half-way ---------------------------------------------------------------------------------------------------

LONG = "a" * 44  # what of a name there is room for is the same for two of these


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed")
def test_what_a_killed_index_left_is_swept_by_the_next_of_the_same_file(place, run):
    import shutil

    shutil.copy("data.gz", f"{LONG}1.gz")
    shutil.copy("data.gz", f"{LONG}2.gz")
    (place / "data.gz.pindex.abcdefgh.partial").write_bytes(b"somebody else's")
    for name in ("data.gz", f"{LONG}1.gz", f"{LONG}2.gz"):
        assert killed_while_indexing(name) == 99
    assert len(names()) == 7
    assert run("index", f"{LONG}1.gz").code == 0
    assert len([name for name in names() if name.endswith(".partial")]) == 3
    assert run("index", "data.gz").code == 0
    assert run("index", f"{LONG}2.gz").code == 0
    assert [name for name in names() if name.endswith(".partial")] == ["data.gz.pindex.abcdefgh.partial"]


def killed_while_indexing(name: str) -> int:
    from pparse.cli import main
    from pparse.writers import indexing as gzip_indexing

    child = os.fork()
    if child == 0:
        try:
            gzip_indexing.build_index = lambda *args, **known: os._exit(99)
            main(["index", name])
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_two_that_index_a_file_at_the_same_time_do_not_sweep_each_other(place, run, monkeypatch):
    from pparse.writers import indexing as gzip_indexing

    real, ran = gzip_indexing.build_index, []

    def build(*args, **known):
        if not ran:
            ran.append(None)
            ran[0] = run("index", "data.gz").code
            assert len([name for name in names() if name.endswith(".partial")]) == 1
        return real(*args, **known)

    monkeypatch.setattr(gzip_indexing, "build_index", build)
    assert run("index", "data.gz").code == 0
    assert ran == [0]
    assert names() == ["data.gz", "data.gz.pindex"]


def test_a_file_that_is_swept_before_it_is_locked_is_made_again(place, run, monkeypatch):
    from pparse.writers import files

    real, lost = files.try_lock, []

    def late(descriptor):
        if not lost:
            lost.extend(name for name in names() if name.endswith(".partial"))
            os.unlink(lost[0])
        return real(descriptor)

    monkeypatch.setattr(files, "try_lock", late)
    assert run("index", "data.gz").code == 0
    assert lost
    assert names() == ["data.gz", "data.gz.pindex"]
