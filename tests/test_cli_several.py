"""Several files at once, and patterns that match nothing."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def two(model):
    """A whole model and one that is cut."""
    good = model({"a.q_proj": ("U8", [2], b"\1\2"), "a.bias": ("U8", [1], b"\3")}, "good.safetensors")
    cut = model({"b.q_proj": ("U8", [2], b"\1\2"), "b.bias": ("U8", [4], b"\3\4\5\6")}, "cut.safetensors", cut=2)
    return good, cut


@pytest.mark.parametrize("command", ["ls", "info", "tree", "check"])
def test_a_second_file_is_read_and_not_taken_for_a_pattern(run, two, command):
    ran = run(command, *two)
    assert ran.code == 4
    assert ran.err == ""
    assert all(str(path) in ran.out for path in two)
    assert run(command, two[0], two[0]).code == 0


def test_a_pattern_holds_for_all_files(run, two):
    ran = run("ls", *two, "-p", "*.bias", "-q")
    assert ran.lines == ["a.bias", "b.bias"]
    assert run("ls", *two, "*.bias", "-q").lines == ["a.bias", "b.bias"]
    assert run("ls", "-p", "*.bias", "-p", "a.q*", two[0], "-q").lines == ["a.bias", "a.q_proj"]
    only_one = run("ls", *two, "a.*", "-q")
    assert (only_one.code, only_one.lines) == (4, ["a.bias", "a.q_proj"])


def test_a_pattern_that_nothing_matches_is_answered_with_what_was_meant(run, two):
    ran = run("ls", two[0], "q_proj")
    assert ran.code == 2
    assert "no name matches 'q_proj'; did you mean '*q_proj*' (1 of 2 names)?" in ran.err
    assert "did you mean 'a.bias'" in run("ls", two[0], "a.bais").err
    both = run("ls", *two, "Q_PROJ")
    assert (both.code, "did you mean '*q_proj*' (2 of 4 names)?" in both.err) == (2, True)
    lost = run("ls", two[0], "other.safetensors")
    assert lost.code == 2
    assert "no name matches 'other.safetensors', and there is no such file" in lost.err
    for form in ("--json", "--jsonl"):
        assert run("ls", two[0], "q_proj", form).code == 2


@pytest.mark.parametrize("command", ["ls", "info", "check", "tree"])
def test_a_file_that_cannot_be_read_does_not_keep_the_others_from_being_looked_at(run, two, command, tmp_path):
    other = tmp_path / "noise.bin"
    other.write_bytes(bytes(range(128, 256)))
    ran = run(command, other, two[0])
    assert ran.code == 3
    assert "no parser recognises it" in ran.err
    assert ran.err.startswith(f"pparse: {other}: ")
    assert str(two[0]) in ran.out


@pytest.mark.parametrize("command", ["ls", "info", "check", "tree"])
def test_several_files_are_one_json_document(run, two, command, tmp_path):
    lost = tmp_path / "lost.safetensors"
    ran = run(command, "--json", two[0], two[1]) if command in ("ls", "tree") else None
    if ran is None:
        ran = run(command, "--json", *two, lost)
        assert ran.code == 2
    found = json.loads(ran.out)
    assert found["schema"] == 1
    assert [row["file"] for row in found["files"]][:2] == [str(path) for path in two]
    if len(found["files"]) > 2:
        assert found["files"][2]["error"].startswith("cannot open")


def test_rows_of_several_files_say_which_file_they_are_of(run, two):
    rows = run("ls", "--jsonl", *two).jsonl
    assert [(row["file"], row["name"]) for row in rows] == [
        (str(two[0]), "a.bias"),
        (str(two[0]), "a.q_proj"),
        (str(two[1]), "b.bias"),
        (str(two[1]), "b.q_proj"),
    ]
    assert "file" not in run("ls", "--jsonl", two[0]).jsonl[0]


def test_check_of_several_files_ends_with_their_number(run, two):
    assert run("check", *two).lines[-1] == "2 files: 1 ok, 1 not"
    assert run("check", two[0]).lines[-1].startswith(str(two[0]))
    refused = run("check", "--sha256=" + 64 * "0", *two)
    assert refused.code == 2
    assert "one digest cannot match several files" in refused.err


def test_info_quiet_names_each_file(run, two):
    assert run("info", "-q", *two).lines == [
        f"{two[0]}: safetensors complete, unverified",
        f"{two[1]}: safetensors truncated",
    ]
    assert run("info", "-q", two[0]).lines == ["safetensors complete, unverified"]


def test_a_tree_begins_at_one_node(run, two):
    ran = run("tree", *two, "header_size")
    assert (ran.code, ran.out.count("header_size: uint64")) == (0, 2)
    ran = run("tree", two[0], "header_size", "metadata")
    assert ran.code == 2
    assert "a tree begins at one node" in ran.err


def test_what_lies_in_a_file_is_a_file(run, samples):
    ran = run("ls", f"{samples}/tiny-gpt.safetensors", f"{samples}/backup.tar.gz::backup/models.zip", "-q")
    assert "tiny-gpt.safetensors" in ran.lines
    assert ran.code == 0


# -- patterns that match nothing, beside others that do ---------------------------------------------------------------


@pytest.fixture
def folder(two, model, tmp_path, monkeypatch):
    (tmp_path / "cut").mkdir()
    model({"c.emb": ("U8", [1], b"\1")}, "cut/m.safetensors")
    model({"c.emb": ("U8", [1], b"\1"), "c.bias": ("U8", [1], b"\1")}, "m.safetensors")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("cut/m.safetensor", "cut/m.safetensors"),
        ("god.safetensors", "good.safetensors"),
        ("god.safetensors::header", "good.safetensors::header"),
    ],
)
def test_a_mistyped_file_is_named_though_another_pattern_matches(run, folder, word, meant):
    ran = run("ls", "m.safetensors", word, "*emb*", "-q")
    assert (ran.code, ran.lines) == (2, ["c.emb"])
    assert ran.err == f"pparse: no name matches {word!r}, and there is no such file; did you mean '{meant}'?\n"


def test_every_pattern_that_matches_nothing_is_named_and_the_rows_of_others_are_shown(run, folder):
    ran = run("ls", "m.safetensors", "-p", "c.e*", "-p", "c.bais", "-p", "nope", "-p", "zz*", "-q")
    assert (ran.code, ran.lines) == (2, ["c.emb"])
    assert ran.err.splitlines() == [
        "pparse: no name matches 'c.bais'; did you mean 'c.bias'?",
        "pparse: no name matches 'nope'; names look like 'c.emb'",
        "pparse: no name matches 'zz*'",
    ]
    many = run("ls", "m.safetensors", *(f"x{number}" for number in range(13)))
    assert (many.code, len(many.err.splitlines())) == (2, 11)
    assert many.err.endswith("pparse: no name matches 3 other patterns\n")


def test_a_pattern_that_only_a_later_file_matches_is_met(run, folder):
    ran = run("ls", "good.safetensors", "m.safetensors", "-p", "c.*", "-p", "a.*", "-q")
    assert (ran.code, ran.err, len(ran.lines)) == (0, "", 4)


@pytest.mark.parametrize("pattern", ["nope", "nope.bin", "x/nope"])
def test_a_pattern_given_with_p_is_never_taken_for_a_file(run, folder, pattern):
    ran = run("ls", "m.safetensors", "-p", pattern)
    assert ran.code == 2
    assert "file" not in ran.err


def test_get_names_every_pattern_that_matches_nothing_and_writes_the_others(run, folder, tmp_path):
    ran = run("get", "m.safetensors", "-p", "*bias", "-p", "c.enb", "-o", "x.npz")
    assert (ran.code, ran.err) == (2, "pparse: no name matches 'c.enb'; did you mean 'c.emb'?\n")
    assert (tmp_path / "x.npz").exists()
    ran = run("get", "m.safetensors", "-p", "c.enb", "-p", "nope", "-o", "y.npz")
    assert (ran.code, len(ran.err.splitlines())) == (2, 2)
    assert not (tmp_path / "y.npz").exists()
