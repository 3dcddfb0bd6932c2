"""``pparse get FILE '[5:10].text'``: several elements of a list."""

from __future__ import annotations

import json
import zlib

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


def test_what_some_elements_lack_is_null_and_told(run, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"m": {"n": 1}}\n' * 2 + b'{"m": {"name": "x"}}\n' + b"{}\n")
    ran = run("get", path, "[*].m.name")
    assert (ran.code, ran.out) == (0, 'null\nnull\n"x"\nnull\n')
    assert "null for 3 of 4 elements, without 'm.name'" in ran.err
    assert json.loads(run("get", path, "[*].m.name", "--json").out)["value"] == [None, None, "x", None]


@rows(
    ("path", "told"),
    [
        ("[:4].txet", "no element has 'txet'; did you mean 'text'?"),
        ("[:4].v[0].x", "no element has 'v[0].x'"),
        ("[*].v[9]", "no element has 'v[9]'\n"),
    ],
)
def test_nothing_is_written_if_no_element_has_what_is_wanted(run, listed, tmp_path, path, told):
    for more in ((), ("--json",), ("-o", tmp_path / "out.jsonl")):
        ran = run("get", listed, path, *more)
        assert (ran.code, ran.out, told in ran.err) == (2, "", True)
    assert not (tmp_path / "out.jsonl").exists()


def test_an_element_that_cannot_be_read_is_null_in_its_place(run, listed, tmp_path):
    lines = listed.read_bytes().splitlines(keepends=True)
    bad = b'{"n": \n'
    listed.write_bytes(b"".join([bad, *lines[:299], bad * 3, b'{"n": 1]}\n', *lines[299:]])[:-9])
    ran = run("get", listed, "[290:320].n", "-o", tmp_path / "out.jsonl")
    assert (ran.code, "null for 4 of 30 elements that cannot be read: [300], [301], [302] and 1 more\n" in ran.err) == (
        4,
        True,
    )
    wanted = [*range(289, 299), *[None] * 4, *range(299, 315)]
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == wanted
    assert "[300] @0x" in ran.err
    ran = run("get", listed, "[:320:100].n", "--json")
    assert (ran.code, json.loads(ran.out)["value"], ": [0], [300]\n" in ran.err) == (4, [None, 99, 199, None], True)
    ran = run("get", listed, "[300:302]")
    assert (ran.code, ran.out) == (4, "null\n" * 2)
    ran = run("get", listed, "[4990:5000].n")
    assert (ran.code, len(ran.out.splitlines()), "its number is uncertain" in ran.err) == (4, 10, True)
    for path, count in (("[5003:]", 2), ("[6000:6010]", 0), ("[*].n", 5005)):
        ran = run("get", listed, path)
        assert (ran.code, len(ran.out.splitlines()), "ends early" in ran.err) == (4, count, True), path
    with pparse.open(listed) as document:
        assert list(document.root.values(2, 5)) == ROWS[1:4]
        assert [value["n"] for value in document.root.values(5003, 5004)] == [4998]


def test_an_element_behind_a_cut_may_have_been_there(run, tmp_path, listed):
    path, packed = tmp_path / "cut.jsonl", zlib.compressobj(wbits=31)
    for content, asked, missing in (
        (b'{"a": 1}\n{"a": [1, 2', "[7].a", 7),
        (b'{"a" 1}\n{"a": [1, 2', "[2]", 2),
        (b'[{"a": [1, 2', "[0][0].a[5]", 5),
        (packed.compress(b"[1]\n[2]\n") + packed.flush(zlib.Z_FULL_FLUSH), "[2]", 2),
    ):
        path.write_bytes(content)
        ran = run("get", path, asked)
        assert (ran.code, f"no child {missing}: it is truncated there" in ran.err) == (4, True), asked
    ran = run("get", listed, "[5000]")
    assert (ran.code, "truncated" in ran.err) == (2, False)


def test_lists_of_other_formats_and_forms_that_lists_do_not_have(run, listed, samples):
    found = run("get", f"{samples}/chunked-model", "meta_graphs[0].graph_def.node[:2].name").out.splitlines()
    assert len(found) == 2
    for more in (("--raw",), ("--npy",), ("--dtype", "float32"), ("-o", "x.csv")):
        assert run("get", listed, "[1:2]", *more).code == 2
