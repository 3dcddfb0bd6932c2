"""``pparse convert``: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pparse.protos import message_class
from tests.rows import rows
from tests.test_convert import bytes_of

SAMPLE = "docs/samples/tiny-gpt.safetensors"
CUT = "docs/samples/tiny-gpt.cut.safetensors"


@pytest.fixture
def graph(tmp_path):
    """A GraphDef with a constant of numbers, and one of texts."""
    graph = message_class("tensorflow.GraphDef")()
    for name, dtype in (("numbers", 1), ("texts", 7)):
        node = graph.node.add(name=name, op="Const")
        tensor = node.attr["value"].tensor
        tensor.dtype = node.attr["dtype"].type = dtype
        tensor.tensor_shape.dim.add(size=2)
        if dtype == 1:
            tensor.float_val.extend([1.5, -2])
        else:
            tensor.string_val.extend([b"one", b"two"])
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.SerializeToString())
    return path


def test_a_good_file(run, samples, tmp_path):
    ran = run("convert", SAMPLE, "-o", tmp_path / "m.safetensors")
    assert (ran.code, ran.out, ran.err) == (0, f"{tmp_path}/m.safetensors: 21 tensors, 23.1 KiB\n", "")
    again = run("convert", SAMPLE, "-o", tmp_path / "m.safetensors")
    assert (again.code, "replace it with --force" in again.err, again.out) == (2, True, "")
    assert run("convert", SAMPLE, "-o", tmp_path / "m.safetensors", "--force").code == 0


def test_texts_are_refused_or_left_out(run, graph, tmp_path):
    ran = run("convert", graph, "-o", tmp_path / "m.safetensors")
    assert ran.code == 2
    assert "texts: its elements are texts, not numbers" in ran.err
    assert "--skip-unsupported" in ran.err
    assert not (tmp_path / "m.safetensors").exists()
    ran = run("convert", graph, "-o", tmp_path / "m.safetensors", "--skip-unsupported")
    assert ran.code == 0
    assert ran.err == "pparse: left out: texts: unsupported: its elements are texts, not numbers\n"
    assert bytes_of(tmp_path / "m.safetensors") == {"numbers": ("F32", [2], np.array([1.5, -2], np.float32).tobytes())}
    alone = run("convert", graph, "-o", tmp_path / "t.npz", "--include", "texts", "--skip-unsupported")
    assert (alone.code, "can hold none of the tensors" in alone.err) == (2, True)


def test_a_cut_file_is_refused_with_its_tensors_in_json_too(run, samples, tmp_path):
    ran = run("convert", CUT, "-o", tmp_path / "m.npz", "--json")
    assert ran.code == ran.json["code"] == 4
    assert len(ran.json["left_out"]) == 10
    assert os.listdir(tmp_path) == []
    ran = run("convert", CUT, "-o", tmp_path / "m.npz", "--json", "--skip-damaged")
    assert (ran.code, ran.json["tensors"], len(ran.json["left_out"])) == (4, 11, 10)


def test_many_lost_tensors_are_not_all_named(run, model, tmp_path):
    source = model({f"t{number:03}": ("U8", (10,), bytes(10)) for number in range(300)}, cut=1000)
    ran = run("convert", source, "-o", tmp_path / "m.npz")
    assert ran.code == 4
    assert "100 tensors are not whole (t200, t201, t202 and 97 more)" in ran.err
    assert "… and 80 tensors more; --json lists all" in ran.err
    assert len(ran.err.splitlines()) == 23
    ran = run("convert", source, "-o", tmp_path / "m.npz", "--skip-damaged")
    assert "left out: 80 tensors more; --json lists all" in ran.err


def test_patterns_without_a_match_stop_it(run, samples, tmp_path):
    for word in ("--include", "--exclude"):
        ran = run("convert", SAMPLE, "-o", tmp_path / "m.npz", word, "wte.wieght", "--include", "wte.*")
        assert (ran.code, "did you mean 'wte.weight'" in ran.err) == (2, True)
    assert os.listdir(tmp_path) == []


def test_names_dtype_and_shards(run, samples, tmp_path):
    ran = run(
        *("convert", SAMPLE, "-o", tmp_path / "m.safetensors", "--max-shard-size", "8KB", "--dtype", "float32"),
        *("--rename", "h.*=layers.*", "--rename", "wte.=embed.", "--exclude", "*.mask", "--json"),
    )
    assert ran.code == 0
    names = {name for file in ran.json["files"][:-1] for name in bytes_of(file["path"])}
    assert {name.split(".")[0] for name in names} == {"layers", "embed", "ln_f", "wpe"}
    assert ran.json["files"][-1]["path"].endswith("m.safetensors.index.json")
    assert all(row[0] == "F32" for file in ran.json["files"][:-1] for row in bytes_of(file["path"]).values())


@rows(
    ("words", "told"),
    [
        (["-o", "m.bin"], "does not say what to write"),
        (["-o", "m.npz", "--rename", "a"], "expected OLD=NEW"),
        (["-o", "m.npz", "--dtype", "int8"], "can be cast to"),
        (["-o", "m.npz", "--max-shard-size", "1GB"], "only safetensors files come in sets"),
        (["-o", "m.npz", "--dedupe"], "--dedupe"),
        (["-o", "m.safetensors", "--rename", "h.*=x*", "--rename", "w*=x*", "--rename", "x=y*"], "star"),
        (["-o", "docs/samples/tiny-gpt.safetensors", "--force"], "is a file of the source"),
        (["-o", "docs", "--to", "npz"], "is a folder"),
    ],
)
def test_usage(run, samples, words, told):
    ran = run("convert", SAMPLE, *words)
    assert (ran.code, told in ran.err, ran.out) == (2, True, ""), ran.err
    assert not list(Path().glob("*.pparse-convert"))
    assert not list(Path().glob(".*.pparse-convert"))


def test_what_is_no_model(run, samples, tmp_path):
    assert run("convert", "docs/samples/records.riegeli", "-o", tmp_path / "m.npz").code == 2
    assert run("convert", "README.md", "-o", tmp_path / "m.npz").code == 3
    assert run("convert", tmp_path / "none", "-o", tmp_path / "m.npz").code == 2
    empty = tmp_path / "empty.safetensors"
    empty.write_bytes(b"")
    assert run("convert", empty, "-o", tmp_path / "m.npz").code == 4


def test_names_cannot_write_on_the_terminal(run, model, tmp_path):
    name = "a\x1b[31m\u202eb"
    source = model({name: ("U8", (4,), b"1234"), "b": ("U8", (4,), b"1234")}, cut=6)
    ran = run("convert", source, "-o", tmp_path / "m.npz", "--skip-damaged")
    assert "\x1b" not in ran.err + ran.out
    assert "\u202e" not in ran.err + ran.out
    assert json.dumps(name)[1:-1].replace("\\u001b", "\\x1b") in ran.err


def test_unfinished_work_of_another_kind_is_told_of(run, samples, tmp_path, monkeypatch):
    from pparse.conversion.converting import ConversionFolder

    def interrupt(self, paths, *, force):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ConversionFolder, "publish", interrupt)
        ran = run("convert", SAMPLE, "-o", tmp_path / "m.npz")
    assert (ran.code, ran.err) == (130, "pparse: interrupted; the same command continues from here\n")
    ran = run("convert", SAMPLE, "-o", tmp_path / "m.npz", "--dtype", "float64")
    assert ran.code == 0
    assert "with other options or of another source, was given up" in ran.out
    with monkeypatch.context() as patch:
        patch.setattr(ConversionFolder, "publish", interrupt)
        run("convert", SAMPLE, "-o", tmp_path / "n.npz")
    ran = run("convert", SAMPLE, "-o", tmp_path / "n.npz")
    assert "21.4 KiB were there already: this continued a run that was stopped" in ran.out


def test_a_rule_that_changes_no_name_is_told(run, samples, tmp_path):
    rules = ["--rename", "h.=layers.", "--rename", "nothing.=x.", "--rename", "h.0.=y."]
    ran = run("convert", SAMPLE, "-o", tmp_path / "m.safetensors", *rules)
    assert ran.code == 0
    assert [line.partition(" changed no name")[0] for line in ran.err.splitlines()] == [
        "pparse: warning: --rename nothing.=x.",
        "pparse: warning: --rename h.0.=y.",  # the first that fits counts
    ]
    ran = run("convert", SAMPLE, "-o", tmp_path / "n.safetensors", *rules, "--json")
    assert json.loads(ran.out)["unused_renames"] == ["nothing.=x.", "h.0.=y."]


def test_an_npz_says_which_values_it_has_no_place_for(run, samples, tmp_path):
    ran = run("convert", "docs/samples/tiny-gpt.pt", "-o", tmp_path / "m.npz")
    assert ran.code == 0
    assert "4 other values of the source are not in it (config.heads, config.layers, epoch, lr)" in ran.out
    assert "'pparse get FILE NAME'" in ran.out
    assert run("get", "docs/samples/tiny-gpt.pt", "epoch").code == 0, "as the note says"
    with np.load(tmp_path / "m.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.hasobject is False for name in arrays)
    ran = run("convert", "docs/samples/tiny-gpt.pt", "-o", tmp_path / "m.safetensors")
    assert "not in it" not in ran.out


def test_a_cut_source_is_told_with_what_to_do(run, samples, tmp_path):
    ran = run("convert", "docs/samples/tiny-gpt.cut.pt", "-o", tmp_path / "m.safetensors", "--skip-damaged")
    assert ran.code == 4
    told = ran.err.splitlines()[-2]
    assert "what the source holds beside its tensors (names, headers, other values) is truncated" in told
    assert all(command in told for command in ("'pparse info'", "'pparse tree'", "'pparse get'"))
