"""``pparse get FILE '[5:10].text'``: several elements of a list."""

from __future__ import annotations

import json

import pytest

import pparse
from pparse.paths import split_rows
from tests.rows import rows

ROWS = [
    {"n": number, "text": f"é\n{number}", "v": [{"c": number}, {"c": [number]}, {}], "n.[:]": None}
    for number in range(5000)
]


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS), encoding="utf-8")
    return path


@rows(
    ("text", "parts"),
    [
        ("[5:10]", ("", slice(5, 10), "")),
        ("a[ * ].b[:]", ("a", slice(None), ".b[:]")),
        ('["[:]"][-3::2][0]', ('["[:]"]', slice(-3, None, 2), "[0]")),
        ('[b"[*]\\""]', None),
        ("a[0][1, 2:3]", None),
        ("[", None),
        ("[::", None),
    ],
)
def test_a_path_is_split_at_its_first_slice(text, parts):
    assert split_rows(text) == parts


@rows(
    ("path", "wanted"),
    [
        ("[5:10]", ROWS[5:10]),
        ("[*].text", [row["text"] for row in ROWS]),
        ("[-3:]", ROWS[-3:]),
        ("[:-4998].n", [0, 1]),
        ("[10:4000:1500].v[1].c", [[10], [1510], [3010]]),
        ("[4998:].v[*].c", [[4998, [4998], None], [4999, [4999], None]]),
        ('[4999:]["n.[:]"]', [None]),
        ("[4999:].v[-1]", [{}]),
        ("[9:3]", []),
        ("[6000:]", []),
    ],
)
def test_elements_are_lines_or_one_list(run, listed, tmp_path, path, wanted):
    ran = run("get", listed, path)
    assert (ran.code, ran.err) == (0, "")
    assert [json.loads(line) for line in ran.out.splitlines()] == wanted
    assert run("get", listed, path, "--json").json["value"] == wanted
    assert run("get", listed, path, "-o", tmp_path / "out.json", "--bare").code == 0
    assert json.loads((tmp_path / "out.json").read_bytes()) == wanted
    (tmp_path / "out.json").unlink()


def test_what_an_element_lacks_is_null_and_told(run, listed):
    ran = run("get", listed, "[:4].v[0].x")
    assert (ran.code, ran.out) == (0, "null\n" * 4)
    assert "null for 4 of 4 elements" in ran.err


def test_elements_before_one_that_is_not_whole_are_given(run, listed, tmp_path):
    lines = listed.read_bytes().splitlines(keepends=True)
    listed.write_bytes(b"".join([*lines[:300], b'{"n": 1]}\n', *lines[300:]])[:-9])
    ran = run("get", listed, "[290:320].n", "-o", tmp_path / "out.jsonl")
    assert (ran.code, (tmp_path / "out.jsonl").exists()) == (4, False)
    ran = run("get", listed, "[290:320].n")
    assert (ran.code, len(ran.out.splitlines()), "[300]" in ran.err) == (4, 10, True)
    ran = run("get", listed, "[4990:5000].n")
    assert (ran.code, len(ran.out.splitlines()), "its number is uncertain" in ran.err) == (4, 10, True)
    ran = run("get", listed, "[4999:]")
    assert (ran.code, len(ran.out.splitlines()), "ends early" in ran.err) == (4, 1, True)
    with pparse.open(listed) as document:
        assert list(document.root.values(2, 5)) == ROWS[2:5]
        assert [value["n"] for value in document.root.values(4999, 5000)] == [4998]


def test_lists_of_other_formats_and_forms_that_lists_do_not_have(run, listed, samples):
    found = run("get", f"{samples}/chunked-model", "meta_graphs[0].graph_def.node[:2].name").out.splitlines()
    assert len(found) == 2
    for more in (("--raw",), ("--npy",), ("--dtype", "float32"), ("-o", "x.csv")):
        assert run("get", listed, "[1:2]", *more).code == 2
