"""Zeros in a tar archive: padding of its end, or what a download into a file of full size never wrote."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import tarfile

import pytest

import pparse
from pparse.findings import Severity, Status

FIRST, LAST = b"read me\n" * 500, random.Random(5).randbytes(200_000)
RECORD = 10_240


def tar(*members: tuple[str, bytes], blocks: int = 20) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        end = archive.offset
    content = made.getvalue()[:end] + bytes(1024)
    return content + bytes(-len(content) % (512 * blocks))


WHOLE = tar(("a.txt", FIRST), ("b.bin", LAST), ("c.txt", FIRST))
AT = WHOLE.index(LAST)


@pytest.fixture
def written(tmp_path):
    """Return what writes a file of which only some stretches are written: the others are holes."""

    def write(size: int, *stretches: tuple[int, bytes], name: str = "it.tar"):
        path = tmp_path / name
        with path.open("wb") as file:
            for at, content in stretches:
                file.seek(at)
                file.write(content)
            file.truncate(size)
        with path.open("rb") as file:
            if os.lseek(file.fileno(), 0, os.SEEK_HOLE) >= size:
                pytest.skip("this file system has no holes")
        return path

    return write


def report(folder):
    return {row["path"]: row for row in json.loads((folder / "RECOVERY.json").read_text())["files"]}


# -- never written ---------------------------------------------------------------------------------------------------


def test_a_half_written_preallocated_tar_is_not_whole_by_any_way(run, written, tmp_path):
    cut = AT + 100_000
    path = written(len(WHOLE), (0, WHOLE[:cut]))
    for words in (("ls",), ("info",), ("check",), ("check", "-R")):
        ran = run(*words, path)
        assert ran.code == 4, words
        assert f"resume the download at byte {cut}" in ran.out, words
    listed = {row["name"]: row["status"] for row in run("ls", "--json", path).json["members"]}
    assert listed == {"a.txt": "complete", "b.bin": "truncated"}
    assert run("check", "--json", path).json["resume_at"] == cut
    extracted = run("extract", "--json", path, "-o", tmp_path / "x")
    assert extracted.code == 4
    assert [row["status"] for row in extracted.json["files"]] == ["complete", "truncated"]
    assert run("recover", path, "-o", tmp_path / "o").code == 4
    row = report(tmp_path / "o")["b.bin"]
    assert (row["status"], row["doubtful"]) == ("truncated", [[100_000, len(LAST) - 100_000]])
    assert (tmp_path / "o" / "b.bin").read_bytes()[:100_000] == LAST[:100_000]


def test_a_hole_inside_of_a_member_damages_it_and_the_others_are_whole(run, written, tmp_path):
    low, high = -(-AT // 4096) * 4096 + 4096, -(-AT // 4096) * 4096 + 40_960
    path = written(len(WHOLE), (0, WHOLE[:low]), (high, WHOLE[high:]))
    found = {node.key: node.status for node in pparse.open(path).root.children()}
    assert found == {"a.txt": Status.COMPLETE, "b.bin": Status.DAMAGED, "c.txt": Status.COMPLETE}
    (finding,) = pparse.open(path).check()
    assert (finding.code, finding.offset, finding.length) == ("unwritten", low, high - low)
    run("recover", path, "-o", tmp_path / "o")
    row = report(tmp_path / "o")["b.bin"]
    assert (row["status"], row["doubtful"]) == ("damaged", [[low - AT, high - low]])


def test_members_that_a_hole_swallowed_are_missed(run, written):
    boundary = AT - 512
    path = written(len(WHOLE), (0, WHOLE[:boundary]))
    with pparse.open(path) as archive:
        findings = list(archive.check())
        assert [(one.code, one.severity, one.offset) for one in findings] == [("unwritten", Severity.ERROR, boundary)]
        assert archive.status is Status.TRUNCATED
    middle = tar(("a.txt", FIRST), ("b.bin", b"x" * 60_000)) + WHOLE
    start = middle.index(WHOLE[:512], 1)
    low = next(at for at in range(0, start, 512) if middle[at : at + 5] == b"b.bin")
    path = written(len(middle), (0, middle[:low]), (start, middle[start:]), name="two.tar")
    with pparse.open(path) as archive:
        assert [one.code for one in archive.check()] == ["unwritten"]
        assert archive.status is Status.DAMAGED


def test_a_file_of_nothing_but_zeros_is_no_empty_archive(run, written, tmp_path):
    (tmp_path / "dense.tar").write_bytes(bytes(1 << 20))
    for path in (written(1 << 20), tmp_path / "dense.tar"):
        assert run("ls", path).code == run("check", path).code == 4
        assert run("recover", path, "-o", tmp_path / f"{path.name}.o").code == 4
    for blocks in (2, 20, 128):
        path = tmp_path / f"{blocks}.tar"
        path.write_bytes(bytes(512 * blocks))
        assert run("check", path).code == 0


def test_a_member_with_a_hole_in_an_archive_that_is_a_member_is_found(run, written):
    outer = tar(("in.tar", WHOLE), ("z.txt", FIRST))
    cut = outer.index(LAST) + 50_000
    path = written(len(outer), (0, outer[:cut]))
    found = run("check", "-R", "--json", path).json
    assert found["status"] == "truncated"
    assert {(one["source"].rpartition("/")[2], one["path"]) for one in found["findings"]} >= {("in.tar", "b.bin")}


# -- zeros that were written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 2, 4, 8, 16, 20, 32, 64, 128, 512, 2048])
def test_padding_of_any_usual_record_is_no_finding(run, tmp_path, blocks):
    path = tmp_path / "it.tar"
    path.write_bytes(tar(("a.txt", FIRST), ("b.bin", LAST), blocks=blocks))
    assert list(pparse.open(path).check()) == []


@pytest.mark.parametrize("blocks", [1, 2, 16, 20, 64, 128, 2048])
@pytest.mark.parametrize("program", ["tar", "bsdtar"])
def test_archives_of_other_programs_have_no_findings(tmp_path, program, blocks):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / "a").write_bytes(LAST)
    (tmp_path / "b").write_bytes(FIRST)
    path = tmp_path / "it.tar"
    subprocess.run([program, "-b", str(blocks), "-cf", path, "-C", tmp_path, "a", "b"], check=True)
    content = path.read_bytes()
    assert list(pparse.open(content).check()) == []
    if blocks <= 20:  # one behind the other
        assert list(pparse.open(content + content).check()) == []


def test_zeros_far_beyond_the_end_of_an_archive_are_a_warning_with_numbers(run, tmp_path):
    end = WHOLE.rindex(FIRST) + 4096
    path = tmp_path / "it.tar"
    path.write_bytes(WHOLE + bytes(3 * RECORD + 512))
    (finding,) = pparse.open(path).check()
    size = len(WHOLE) + 3 * RECORD + 512 - end
    assert (finding.code, finding.severity, finding.offset, finding.length) == ("zeros", Severity.WARNING, end, size)
    assert f"{size:,} bytes of zeros" in finding.reason
    assert [run(command, path).code for command in ("ls", "info", "check")] == [0, 0, 0]
    ran = run("recover", path, "-o", tmp_path / "o")
    assert ran.code == 0
    assert "nothing is missing" not in ran.out
    assert run("check", "--strict", path).code == 4


def test_zeros_between_members_where_no_archive_ends_are_a_warning(tmp_path):
    one, other = tar(("a.txt", FIRST)), tar(("b.txt", FIRST))
    content = one.rstrip(bytes(1))
    content += bytes(-len(content) % 512) + bytes(2560)  # no whole record
    (finding,) = pparse.open(content + other).check()
    assert (finding.code, finding.severity, finding.length) == ("zeros", Severity.WARNING, 2560)
    assert list(pparse.open(one + other).check()) == []


def test_a_last_member_that_runs_into_zeros_up_to_the_end_is_a_warning(run, tmp_path):
    content = WHOLE[: AT + 50_000] + bytes(len(LAST) - 50_000 + 2048)
    path = tmp_path / "it.tar"
    path.write_bytes(content)
    told = [(one.path, one.code, one.severity, one.offset) for one in pparse.open(path).check()]
    assert ("b.bin", "zeros", Severity.WARNING, AT + 50_000) in told
    assert run("check", path).code == run("recover", path, "-o", tmp_path / "o").code == 0
    # The same zeros, and something behind them.
    path.write_bytes(tar(("b.bin", LAST[:5000] + bytes(100_000)), ("c.txt", FIRST)))
    assert list(pparse.open(path).check()) == []
    # A few zeros at the end of the last member are nobody's business.
    path.write_bytes(tar(("b.bin", LAST + bytes(3000))))
    assert list(pparse.open(path).check()) == []


def test_listing_does_not_read_large_members_for_zeros(tmp_path):
    path = tmp_path / "it.tar"
    path.write_bytes(tar(("b.bin", LAST[:5000] + bytes(4 << 20))))
    with pparse.open(path) as archive:
        list(archive.result.parser.members())
        assert archive.session.stats.bytes < 200 << 10


def test_a_few_zeros_of_a_members_own_before_a_hole_are_not_suspected(written):
    content = tar(("a.bin", LAST[:30_000] + bytes(3)), ("b.bin", LAST))
    end = content.index(LAST[:30_000]) + 30_003
    path = written(len(content), (0, content[:end]))
    with pparse.open(path) as archive:
        assert [(one.code, one.path) for one in archive.check()] == [("unwritten", "")]
        assert [str(node.status) for node in archive.root.children()] == ["complete"]
    # A member that ends in the block that was written in part, and lacks its end.
    path = written(len(content), (0, content[: end - 100]))
    with pparse.open(path) as archive:
        assert [(one.code, one.path) for one in archive.check()] == [("unwritten", ""), ("unwritten", "a.bin")][::-1]
