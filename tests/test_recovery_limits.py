"""A limit costs the file that meets it, not the run: what fits is written, and the way to the rest is named."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import random
import tarfile
import zipfile

import numpy as np
import pytest

import pparse
from pparse.errors import LimitError
from pparse.limits import GIB, KIB, MIB, Limits
from pparse.recovery.recover import extract, recover
from tests import sweep
from tests.conftest import safetensors
from tests.test_recovery_resume import tar_of, zip_of

NOISE = random.Random(9).randbytes(3 * MIB)


def entries(folder) -> dict[str, dict]:
    files = json.loads((folder / "RECOVERY.json").read_text())["files"]
    return {entry["path"] or entry["raw_name"]: entry for entry in files}


def saved(content: bytes, folder, *, limits: Limits | None = None, format: str | None = None, **options):
    with pparse.open(content, limits=limits, format=format) as document:
        return recover(document, folder, **options), document


def sparse(size: int, text: bytes = b"end") -> bytes:
    """A tar with a sparse file (old GNU form): ``size`` bytes, of which only the last are there."""
    info = tarfile.TarInfo("sparse")
    info.size = len(text)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[386:398] = b"\x80" + (size - len(text)).to_bytes(11, "big")
    header[398:410] = b"%011o\0" % len(text)
    header[483:495] = b"\x80" + size.to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + text.ljust(512, b"\0")


@pytest.mark.parametrize("pack", [tar_of, zip_of], ids=["tar", "zip"])
def test_what_fits_behind_a_member_that_is_too_large_is_written(tmp_path, pack):
    content = pack(("a", b"1" * 100), ("huge", NOISE), ("b", b"2" * 100))
    outcome, document = saved(content, tmp_path / "out", max_output=MIB)
    found = entries(tmp_path / "out")
    assert {name: entry["status"] for name, entry in found.items()} == {
        "a": "complete",
        "huge": "unsupported",
        "b": "complete",
    }
    assert (found["huge"]["path"], found["huge"]["bytes"]) == (None, 0)
    assert 'lift it with max_output="4MiB"' in found["huge"]["reason"]
    assert sorted(os.listdir(tmp_path / "out")) == ["RECOVERY.json", "a", "b"]
    assert not outcome.is_whole
    assert [(met.files, met.option) for met in outcome.limits.values()] == [(1, "--max-output 4MiB")]
    assert [finding.code for finding in document.findings] == ["limit"]
    outcome, _ = saved(content, tmp_path / "lifted", max_output=4 * MIB)
    assert outcome.is_whole
    assert not outcome.limits


def test_members_that_do_not_fit_are_not_decoded(tmp_path):
    content = zip_of(*((f"huge{at}", NOISE) for at in range(6)), ("small", b"x"))
    (tmp_path / "in.zip").write_bytes(content)
    with pparse.open(tmp_path / "in.zip") as document:
        outcome = extract(document, tmp_path / "out", max_output=MIB)
        assert document.session.stats.bytes < MIB
    assert outcome.summary.files == 7
    (met,) = outcome.limits.values()
    assert met.files == 6
    assert (tmp_path / "out" / "small").read_bytes() == b"x"


def test_a_size_that_lies_costs_nothing(tmp_path):
    """What could be in so few bytes decides, not what a header claims."""
    content = bytearray(zip_of(("a", b"true"), ("b", b"too")))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = content.find(signature)
        content[at + offset : at + offset + 4] = (3 * GIB).to_bytes(4, "little")
    saved(bytes(content), tmp_path / "out")
    assert (tmp_path / "out" / "a").read_bytes() == b"true"
    assert entries(tmp_path / "out")["b"]["status"] == "complete"


def test_a_bomb_costs_itself(tmp_path, monkeypatch):
    free = 64 * MIB if sweep.full else 8 * MIB
    monkeypatch.setattr("pparse.recovery.target.FREE_EXPANSION", free)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("bomb", bytes(free + 2 * MIB))
        archive.writestr("after", b"still there")
    outcome, _ = saved(out.getvalue(), tmp_path / "out", max_output=GIB)
    bomb = entries(tmp_path / "out")["bomb"]
    assert (bomb["status"], bomb["bytes"], bomb["gaps"]) == ("truncated", free, [[free, None]])
    assert (tmp_path / "out" / "after").read_bytes() == b"still there"
    assert list(outcome.limits) == ["--limit expansion_ratio"]
    outcome, _ = saved(out.getvalue(), tmp_path / "lifted", max_output=GIB, limits=Limits(expansion_ratio=10_000_000))
    assert outcome.summary.is_complete
    assert not outcome.limits


def test_a_model_that_does_not_fit_costs_itself(tmp_path):
    header = {
        "t": {"dtype": "U8", "shape": [3 * MIB], "data_offsets": [0, 3 * MIB]},
        "u": {"dtype": "U8", "shape": [10], "data_offsets": [3 * MIB, 3 * MIB + 10]},
    }
    content = tar_of(("a", b"1"), ("m.safetensors", safetensors(header, NOISE)), ("b", b"2"))
    outcome, _ = saved(content, tmp_path / "out", max_output=MIB)
    found = entries(tmp_path / "out")
    assert found["m.safetensors"]["status"] == "unsupported"
    assert (tmp_path / "out" / "b").read_bytes() == b"2"
    assert [met.option for met in outcome.limits.values()] == ["--max-output 4MiB"]


def test_a_document_that_does_not_fit_is_cut(tmp_path):
    outcome, _ = saved(gzip.compress(NOISE), tmp_path / "out", max_output=MIB, format="gzip")
    (file,) = entries(tmp_path / "out").values()
    assert (file["status"], file["gaps"]) == ("truncated", [[file["bytes"], None]])
    assert 0 < file["bytes"] <= MIB
    assert list(outcome.limits) == ["--max-output"]


def test_holes_are_no_output(tmp_path):
    """A valid sparse tar of some hundred bytes is written, however much of it is holes."""
    size = sweep.scaled(2 * GIB, 8)
    outcome, _ = saved(sparse(size) + tar_of(("b", b"2")), tmp_path / "out", max_output=KIB)
    assert outcome.is_whole
    assert not outcome.limits
    found = os.stat(tmp_path / "out" / "sparse")
    assert found.st_size == size
    if hasattr(found, "st_blocks"):
        assert found.st_blocks * 512 < MIB
    with open(tmp_path / "out" / "sparse", "rb") as file:
        file.seek(-3, os.SEEK_END)
        assert file.read() == b"end"


def test_holes_have_a_limit_of_their_own(tmp_path):
    """2^60 bytes of zeros would be hashed for years."""
    content = sparse(1 << 60) + tar_of(("b", b"2"))
    outcome, _ = saved(content, tmp_path / "out")
    found = entries(tmp_path / "out")
    assert (found["sparse"]["status"], found["sparse"]["path"]) == ("unsupported", None)
    assert "Limits(hole_bytes=" in found["sparse"]["reason"]
    assert (tmp_path / "out" / "b").read_bytes() == b"2"
    assert [met.option for met in outcome.limits.values()] == [f"--limit hole_bytes={(1 << 60) - 3}"]
    content = sparse(MIB * 3) * 3
    limits = Limits(hole_bytes=7 * MIB)
    outcome, _ = saved(content, tmp_path / "three", limits=limits)
    assert outcome.summary.counts[pparse.Status.COMPLETE] == 2
    assert outcome.summary.counts[pparse.Status.UNSUPPORTED] == 1


def test_zeros_that_a_stream_gives_are_output(tmp_path):
    """A hole on the disk, but work all the same: a bomb of zeros is one."""
    outcome, _ = saved(zip_of(("zeros", bytes(8 * MIB)), ("b", b"2")), tmp_path / "out", max_output=MIB)
    assert entries(tmp_path / "out")["zeros"]["status"] == "unsupported"
    assert outcome.summary.bytes == 1


def test_the_number_of_files_ends_the_run(tmp_path):
    content = tar_of(*((f"f{at}", b"x") for at in range(5)))
    with pytest.raises(LimitError, match=r"Limits\(extracted_entries="):
        saved(content, tmp_path / "out", limits=Limits(extracted_entries=3))
    report = json.loads((tmp_path / "out" / "RECOVERY.json").read_text())
    assert [entry["path"] for entry in report["files"]] == ["f0", "f1", "f2", None]
    assert report["findings"][-1]["code"] == "stopped"
    assert sorted(os.listdir(tmp_path / "out")) == ["RECOVERY.json", "f0", "f1", "f2"]


def test_too_many_containers_are_written_as_they_are(tmp_path):
    inner = zip_of(("x", b"1"))
    content = tar_of(("a.zip", inner), ("b.zip", inner), ("c", b"2"))
    outcome, document = saved(content, tmp_path / "out", limits=Limits(containers=2))
    assert (tmp_path / "out" / "a.zip" / "x").read_bytes() == b"1"
    assert (tmp_path / "out" / "b.zip").read_bytes() == inner
    assert (tmp_path / "out" / "c").read_bytes() == b"2"
    assert "Limits(containers=8" in str(document.findings[-1])
    assert not outcome.is_whole


def test_what_must_be_decoded_in_vain_has_an_end(tmp_path):
    members = [(f"m{at}", bytes(3 * MIB)) for at in range(8)]
    packed = bz2.compress(tar_of(*members, ("small", b"x")))
    with pytest.raises(LimitError, match="max_output="):
        saved(packed, tmp_path / "out", max_output=2 * MIB)
    found = entries(tmp_path / "out")
    assert len(found) == 3  # 9 MiB are more than 4 times what may be written
    assert {entry["status"] for entry in found.values()} == {"unsupported"}


def test_the_command_says_which_limit_it_was_and_exits_with_4(tmp_path, run):
    (tmp_path / "in.tar").write_bytes(tar_of(("a", b"1"), ("huge", NOISE), ("b", b"2")))
    for command in ("recover", "extract"):
        ran = run(command, tmp_path / "in.tar", "-o", tmp_path / command, "--max-output", "1MiB")
        assert (ran.code, ran.err) == (4, "")
        assert "1 file met a limit, and is cut or left out here; lift it with --max-output 4MiB" in ran.lines
        assert (tmp_path / command / "b").read_bytes() == b"2"
        ran = run(command, tmp_path / "in.tar", "-o", tmp_path / f"{command}2", "--max-output", "1MiB", "--json")
        assert (ran.code, ran.json["limits"]) == (4, [{"option": "--max-output 4MiB", "files": 1}])
        assert run(command, tmp_path / "in.tar", "-o", tmp_path / f"{command}3", "--max-output", "4MiB").code == 0


def test_the_command_that_is_interrupted_says_how_to_go_on(tmp_path, run, monkeypatch, capsys):
    from pparse.cli.recover import FileTable

    (tmp_path / "in.tar").write_bytes(tar_of(("a", b"1"), ("b", b"2"), ("c", b"3")))

    def stop(self, file):
        if file.path == "b":
            raise KeyboardInterrupt

    for command in ("recover", "extract"):
        with monkeypatch.context() as patch:
            patch.setattr(FileTable, "add", stop)
            ran = run(command, tmp_path / "in.tar", "-o", tmp_path / command)
        assert ran.code == 130
        assert "interrupted; the same command continues from here" in ran.err
        ran = run(command, tmp_path / "in.tar", "-o", tmp_path / command)
        assert (ran.code, ran.err) == (0, "")
        assert "1 member was there already: this continued a run that was stopped" in ran.lines
        assert sorted(path.name for path in (tmp_path / command).iterdir() if path.name in "abc") == ["a", "b", "c"]


def test_extract_goes_on_only_with_the_same_members(tmp_path, run, monkeypatch):
    from pparse.cli.recover import FileTable

    (tmp_path / "in.tar").write_bytes(tar_of(("a", b"1"), ("b", b"2"), ("c", b"3")))

    def stop(self, file):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FileTable, "add", stop)
        assert run("extract", tmp_path / "in.tar", "a", "b", "-o", tmp_path / "out").code == 130
    ran = run("extract", tmp_path / "in.tar", "a", "-o", tmp_path / "out")
    assert ran.code == 2
    assert "unfinished" in ran.err
    assert run("extract", tmp_path / "in.tar", "a", "b", "-o", tmp_path / "out").code == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["a", "b"]


@pytest.mark.parametrize("kind", ["folder", "shards", "index"])
def test_all_that_belongs_to_a_model_counts_as_its_input(tmp_path, run, kind, monkeypatch):
    monkeypatch.setattr("pparse.recovery.target._SPARE", MIB)
    (tmp_path / "model").mkdir()
    names = ["model.safetensors"] if kind == "folder" else [f"model-0000{at}-of-00002.safetensors" for at in (1, 2)]
    for number, name in enumerate(names):
        header = {f"t{number}": {"dtype": "U8", "shape": [len(NOISE)], "data_offsets": [0, len(NOISE)]}}
        (tmp_path / "model" / name).write_bytes(safetensors(header, NOISE))
    source = tmp_path / "model"
    if kind != "folder":
        index = source / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": {f"t{at}": names[at] for at in (0, 1)}}))
        source = index if kind == "index" else source
    assert run("recover", source, "-o", tmp_path / "out").code == 0
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def test_a_file_that_is_whole_is_not_cut_by_a_limit_but_refused(tmp_path, run):
    path = tmp_path / "noise.npy"
    np.save(path, np.frombuffer(NOISE, np.uint8))
    ran = run("recover", path, "-o", tmp_path / "out", "--max-output", "1MiB")
    assert ran.code == 4
    assert "--max-output" in ran.out
    assert sorted(os.listdir(tmp_path / "out")) == ["RECOVERY.json"]
