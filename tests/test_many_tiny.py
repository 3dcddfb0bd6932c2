"""Very many tiny things: each costs the same, however many there are, and what is dear to go back to is kept."""

from __future__ import annotations

import io
import zipfile

import pytest

import pparse
from pparse.cli import main
from pparse.parsers.tar.parser import TarParser
from pparse.parsers.zip.scan import Scanner
from tests import hostile_files, sweep

SIZES = (500, 1_500)
SLOW = {"zeros_in_zip", "bombs"}  # a hundred members in each
# Records with lengths of up to 192 KiB of their own: as much is read for each, as far as the file goes.
FORGED_LENGTHS = {"fake_centrals", "fake_ends_noted"}
READ_BY_MEMBERS = sorted(set(hostile_files.FILES) - SLOW)


def wrapped(content: bytes, method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("in.zip", content)
    return out.getvalue()


def work_of(name: str, count: int) -> tuple[int, int]:
    """Return how many reads, and how many bytes, a check of the file took."""
    make, extension = hostile_files.FILES[name]
    kind = {"gz": "gzip", "zip.gz": None}.get(extension, extension)
    if kind == "zst":
        kind = "zstd"
    with pparse.open(make(count), format=kind) as document:
        for _ in document.check():
            pass
        stats = document.session.stats
        return stats.reads, stats.bytes


@pytest.mark.parametrize("name", sweep.part(READ_BY_MEMBERS, 0.3))
def test_thrice_as_many_things_take_thrice_as_many_reads_and_bytes(name):
    few, many = (work_of(name, count) for count in SIZES)
    assert many[0] <= 3.4 * few[0] + 300
    if name not in FORGED_LENGTHS:
        assert many[1] <= 3.4 * few[1] + (2 << 20)


def test_members_of_a_tar_in_one_block_are_made_visible_together(monkeypatch):
    runs = []
    state = TarParser.expect_member
    monkeypatch.setattr(TarParser, "expect_member", lambda self, *args: runs.append(args[0].pos) or state(self, *args))
    with pparse.open(hostile_files.tar_members(1_000)) as document:
        assert sum(1 for _ in document.parse().entries_from(document.root, 0)) == 1_000
    assert len(runs) <= 400


def test_a_record_that_is_none_is_looked_at_a_few_times(monkeypatch):
    looked = []
    real = Scanner.header_at
    monkeypatch.setattr(Scanner, "header_at", lambda self, pos: looked.append(pos) or real(self, pos))
    with pparse.open(hostile_files.without_directory(2_000), format="zip") as document:
        assert len(document.root) == 2_000
    assert len(looked) <= 10 * 2_000


@pytest.mark.parametrize("method", sweep.part([zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]))
def test_the_directory_of_a_zip_in_a_stream_is_kept_and_its_members_are_read_in_one_go(method, tmp_path, capsys):
    inner = hostile_files.zip_of([(b"%d" % number, bytes(2_000)) for number in range(3_000)])
    path = tmp_path / "outer.zip"
    path.write_bytes(wrapped(inner, method))
    assert main(["check", "-R", str(path), "--budget", "16MiB"]) == 0
    assert "ok: 1 file" in capsys.readouterr().out
