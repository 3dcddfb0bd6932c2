"""What is kept besides what has a charge of its own: groups of entries, small indexes, blocks of readers, members."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap
import tracemalloc
import zipfile

import pytest

import pparse
from pparse.containers.archive import ENTERED
from pparse.limits import MIB
from pparse.tree.index import GROUPS

PRELUDE = """
import sys
import pytest

import pparse
from tests import sweep

def peak():
    with open("/proc/self/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmHWM"))) >> 10
"""


def in_a_fresh_process(script, *arguments):
    text = PRELUDE + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", text, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_only_the_latest_containers_keep_entries():
    text = json.dumps([{f"k{key}": key for key in range(64)} for _ in range(300)]).encode()
    with pparse.open(text) as doc:
        held = list(doc.root.children())
        for node in held:
            assert [node[f"k{key}"].value for key in (0, 63)] == [0, 63]
        assert sum(node.index is not None and node.index.group is not None for node in held) <= GROUPS
        assert held[0]["k5"].value == 5


def test_small_indexes_are_charged_and_go_when_room_is_needed():
    text = json.dumps([{f"k{key}": key for key in range(40)} for _ in range(4_000)]).encode()
    with pparse.open(text, budget="2MiB") as doc:
        held = []
        for node in doc.root.children():
            assert len(node) == 40
            held.append(node)
        assert doc.session.budget.peak > MIB // 2
        assert any(node.index is None for node in held), "none was let go"
        assert all(len(node) == 40 for node in held)
        assert held[17]["k3"].value == 3
        assert doc.session.indexes.held <= 2 * MIB


def test_what_nobody_holds_is_not_charged_for_ever():
    text = json.dumps([{"a": [1, 2]} for _ in range(15_000)]).encode()
    with pparse.open(text, budget="2MiB") as doc:
        for node in doc.root.children():
            len(node)
        assert doc.session.budget.used < MIB


def test_containers_held_fit_into_the_budget(tmp_path):
    path = tmp_path / "held.json"
    path.write_text(json.dumps([{f"k{key}": key for key in range(64)} for _ in range(2_000)]))
    script = """
        before = peak()
        with pparse.open(sys.argv[1], budget="4MiB") as doc:
            held = [node for node in doc.root.children()]
            for node in held:
                list(node.keys())
            print(peak() - before, doc.session.budget.peak >> 20)
    """
    used, charged = in_a_fresh_process(script, path)
    # The nodes themselves are the caller's: 2,000 of them with their places take 3 MiB.
    assert used <= 4 + 8 + 3
    assert charged >= 2


def test_members_that_were_entered_are_let_go(tmp_path):
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(3 * ENTERED):
            archive.writestr(f"m{number}.json", f'{{"a":{number}}}')
    with pparse.open(path) as doc:
        parser = doc.parse().parser
        first = parser.enter("m0.json")
        for number in range(3 * ENTERED):
            assert parser.enter(f"m{number}.json").root["a"].value == number
        assert len(doc.children) <= ENTERED
        assert parser.enter("m0.json") is first  # somebody holds it
        assert parser.enter("m1.json").root["a"].value == 1


def test_a_member_with_findings_is_kept():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("bad.json", '{"a":1,"b":')
        for number in range(ENTERED + 20):
            archive.writestr(f"m{number}.json", '{"a":1}')
    with pparse.open(buffer.getvalue()) as doc:
        parser = doc.parse().parser
        assert list(parser.enter("bad.json").check())
        for number in range(ENTERED + 20):
            parser.enter(f"m{number}.json").root["a"].load()
        assert doc.children["bad.json"].findings


def test_cursors_share_a_few_blocks():
    data = pparse.open(json.dumps(list(range(60_000))).encode()).data
    text = data.pread(0, 1 << 20)
    cursors = [pparse.Cursor(data) for _ in range(500)]
    tracemalloc.start()
    try:
        for _ in range(40):
            for cursor in cursors:
                at = cursor.tell()
                assert cursor.read(2_000) == text[at : at + 2_000]
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    assert sum(bool(cursor._block) for cursor in cursors) <= 64


def test_a_long_string_is_there_twice_at_most(tmp_path):
    path = tmp_path / "long.json"
    text = "abcd fgh" * (2 << 20)
    path.write_text(json.dumps({"s": text}, ensure_ascii=False), encoding="utf-8")
    with pparse.open(path) as doc:
        node = doc.root["s"]
        tracemalloc.start()
        try:
            assert node.load() == text
            assert tracemalloc.get_traced_memory()[1] < path.stat().st_size + len(text) + MIB
        finally:
            tracemalloc.stop()
    shown = tmp_path / "shown.txt"
    script = """
        import contextlib
        from pparse.cli import main
        before = peak()
        assert main(["get", sys.argv[1], "s", "-o", sys.argv[2]]) == 0
        print(peak() - before)
    """
    (used,) = in_a_fresh_process(script, path, shown)
    assert used <= (path.stat().st_size + len(text)) / MIB + 24
    assert shown.read_text(encoding="utf-8") == text + "\n"


def test_long_strings_are_as_strict_as_short_ones():
    filler = b"x" * 70_000
    for inside in (b"\x01", b"\n", b"\xff", b"\\q", b"\\ud800"):
        doc = pparse.open(b'{"s":"' + filler + inside + filler + b'"}', format="json")
        with doc, pytest.raises(pparse.PparseError):
            doc.root["s"].load()
    with pparse.open(b'{"s":"' + filler + b'\\n\\u00e9"}') as doc:
        assert doc.root["s"].load() == filler.decode() + "\né"
