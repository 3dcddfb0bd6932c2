"""RECOVERY.json: streamed, the same each time, there when it is whole."""

from __future__ import annotations

import json
import os
import tracemalloc

import pytest

from pparse.errors import SourceError
from pparse.findings import Finding, FindingList, Severity, Status
from pparse.recovery.folder_writer import WORK_NAME
from pparse.recovery.report import RecoveredFile, RecoveryReport, Summary
from pparse.recovery.target import REPORT_NAME, Target

KEYS = [
    "path",
    "status",
    "verified",
    "bytes",
    "sha256",
    "source",
    "offset",
    "mtime",
    "raw_name",
    "reason",
    "doubtful",
    "gaps",
]


def fill(folder):
    with Target(folder) as target, RecoveryReport(target) as report:
        with target.create("../a.txt", mtime=1_700_000_000.0) as file:
            file.write(b"text")
        report.add(RecoveredFile.written(file, Status.COMPLETE, verified=True, source="in.tar", offset=512))
        with target.create("b", mtime=0.25) as file:
            file.skip(100)
        gaps = iter([(10, 20), (50, None)])
        report.add(RecoveredFile.written(file, Status.DAMAGED, source="in.tar", reason="a hole", gaps=gaps))
        report.add(RecoveredFile(None, Status.UNSUPPORTED, raw_name="c\udcff", reason="encrypted", mtime=float("nan")))
        assert not (folder / REPORT_NAME).exists()
        found = FindingList(1)
        found.add(Finding("gap", "lost", source=os.path.join(os.sep, "home", "me", "in.tar"), offset=5, length=7))
        found.add(Finding("other", "more", severity=Severity.WARNING))
        report.finish(found)
    return report


def test_the_report_has_the_keys_of_schema_one(tmp_path):
    report = fill(tmp_path / "out")
    text = (tmp_path / "out" / REPORT_NAME).read_bytes()
    document = json.loads(text)
    assert sorted(os.listdir(tmp_path / "out")) == [REPORT_NAME, "a.txt", "b"]
    assert list(document) == ["schema", "files", "fill", "findings", "omitted_findings", "summary"]
    assert (document["schema"], document["fill"], document["omitted_findings"]) == (1, "zeros", 1)
    assert all(list(file) == KEYS for file in document["files"])
    first, second, third = document["files"]
    assert first == {
        "path": "a.txt",
        "status": "complete",
        "verified": True,
        "bytes": 4,
        "sha256": "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1",
        "source": "in.tar",
        "offset": 512,
        "mtime": 1_700_000_000,
        "raw_name": "../a.txt",
        "reason": None,
        "doubtful": [],
        "gaps": [],
    }
    assert (second["gaps"], second["mtime"], second["raw_name"]) == ([[10, 20], [50, None]], 0.25, None)
    assert (second["status"], second["verified"], second["reason"]) == ("damaged", None, "a hole")
    assert (third["path"], third["raw_name"], third["mtime"], third["bytes"]) == (None, "c\\udcff", None, 0)
    assert document["findings"][0]["source"] == "in.tar"
    assert (
        document["summary"]
        == report.summary.to_dict()
        == {
            "files": 3,
            "complete": 1,
            "truncated": 0,
            "missing": 0,
            "damaged": 1,
            "unsupported": 1,
            "verified": 1,
            "not_written": 1,
            "bytes": 104,
            "gaps": 2,
            "gap_bytes": 20,
            "doubtful": 0,
        }
    )
    assert len(text.splitlines()) == 3 + 1 + 3  # a file, and a finding, a line


def test_it_is_the_same_each_time_wherever_it_is_written(tmp_path):
    fill(tmp_path / "one")
    fill(tmp_path / "elsewhere" / "two")
    one = (tmp_path / "one" / REPORT_NAME).read_bytes()
    assert one == (tmp_path / "elsewhere" / "two" / REPORT_NAME).read_bytes()
    assert one.isascii()
    assert os.fsencode(tmp_path) not in one


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("in.tar", "in.tar"),
        ("/home/me/in.tar", "in.tar"),
        ("C:\\Users\\me\\in.zip", "in.zip"),
        ("\\\\server\\share\\in.zip", "in.zip"),
        ("/home/me/a.zip::b/c.tar::/d", "a.zip::b/c.tar::/d"),
        ("folder/in.tar", "folder/in.tar"),
        ("", ""),
    ],
)
def test_where_the_source_is_on_this_machine_is_not_told(source, told):
    assert RecoveredFile("a", Status.COMPLETE, source=source).to_dict()["source"] == told


def test_an_empty_report_is_a_document(tmp_path):
    with Target(tmp_path) as target, RecoveryReport(target):
        pass
    document = json.loads((tmp_path / REPORT_NAME).read_text())
    assert (document["files"], document["findings"], document["fill"]) == ([], [], "zeros")
    assert json.loads((tmp_path / REPORT_NAME).read_text())["summary"]["files"] == 0


def test_hostile_text_is_a_document_and_a_line(tmp_path):
    nasty = '"\\\x00\x1b[2J\u202e\udcff\ud800\u2028é\n'
    file = RecoveredFile("a", Status.DAMAGED, reason=nasty, raw_name=nasty, source=nasty)
    with Target(tmp_path) as target, RecoveryReport(target) as report:
        report.add(file)
        report.finish([Finding("code", nasty, path=nasty)])
    document = json.loads((tmp_path / REPORT_NAME).read_text())
    assert document["files"][0]["reason"].startswith('"\\\x00\x1b[2J\u202e\\udcff\\ud800\u2028é')
    document["files"][0]["reason"].encode()
    assert str(file).isprintable()


def test_nothing_is_left_when_it_is_discarded(tmp_path):
    with Target(tmp_path) as target:
        report = RecoveryReport(target)
        with pytest.raises(TypeError), report:
            report.add(RecoveredFile("a", Status.COMPLETE, gaps=[7]))
        report.discard()
        assert [path.name for path in tmp_path.rglob("*")] == [WORK_NAME, "journal"]  # they go with the target
        with RecoveryReport(target) as report:
            pass
        report.discard()
        assert sorted(entry.name for entry in tmp_path.iterdir()) == [WORK_NAME, REPORT_NAME]
        assert (target.bytes, target.entries) == (0, 0)
    assert [entry.name for entry in tmp_path.iterdir()] == [REPORT_NAME]


def test_a_link_under_its_name_is_replaced_and_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    with Target(tmp_path / "out") as target, RecoveryReport(target) as report:
        (tmp_path / "out" / REPORT_NAME).symlink_to(victim)
        report.finish()
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "out" / REPORT_NAME).is_symlink()
    assert json.loads((tmp_path / "out" / REPORT_NAME).read_text())["schema"] == 1


def test_a_folder_in_its_place_is_an_error_of_ours(tmp_path):
    with Target(tmp_path) as target, pytest.raises(SourceError, match="cannot write"), RecoveryReport(target):
        (tmp_path / REPORT_NAME).mkdir()


def test_many_files_and_gaps_need_no_memory(tmp_path):
    with Target(tmp_path) as target:
        tracemalloc.start()
        try:
            with RecoveryReport(target) as report:
                for at in range(2_500):
                    report.add(RecoveredFile(f"folder/{at:0100}", Status.COMPLETE, bytes=at))
                report.add(RecoveredFile("gaps", Status.DAMAGED, gaps=((at, 1) for at in range(40_000))))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    text = (tmp_path / REPORT_NAME).read_text()
    assert len(text) > 900_000
    assert peak < 350_000
    document = json.loads(text)
    assert len(document["files"]) == 2_501
    assert document["files"][-1]["gaps"][-1] == [39_999, 1]
    assert document["summary"]["gap_bytes"] == 40_000


def test_lines_for_people():
    summary = Summary()
    assert (str(summary), summary.is_complete) == ("0 files, 0 B", True)
    complete = RecoveredFile("a/b.txt", Status.COMPLETE, verified=True, bytes=2048)
    assert str(complete) == "complete    verified   2.0 KiB  a/b.txt"
    damaged = RecoveredFile("c", Status.DAMAGED, bytes=5, reason="a gap\x1b")
    assert str(damaged) == "damaged                    5 B  c: a gap\\x1b"
    lost = RecoveredFile(None, Status.UNSUPPORTED, raw_name="x\n", reason="encrypted")
    assert str(lost) == "unsupported                0 B  x\\n: encrypted"
    summary.add(complete)
    assert str(summary) == "1 file, 2.0 KiB: 1 complete (1 verified)"
    summary.add(damaged)
    summary.add(lost)
    summary.add_gap(3)
    assert str(summary) == "3 files, 2.0 KiB: 1 complete (1 verified), 1 damaged, 1 unsupported; 1 gap"
    assert (summary.files, summary.is_complete) == (3, False)
