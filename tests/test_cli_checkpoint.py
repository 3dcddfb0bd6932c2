"""The commands on checkpoints and SavedModel folders: names and keys, suggestions, what they say of values."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import pparse

TRAINING = "docs/samples/training"
MODEL = "docs/samples/saved-model"
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
NAME = "batch_normalization/moving_mean"
KEY = "model/layer_with_weights-1/moving_mean"
DATA_2 = "ckpt-2.data-00000-of-00001"


@pytest.fixture
def training(tmp_path) -> Path:
    return Path(shutil.copytree(TRAINING, tmp_path / "training"))


# -- names and keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [KEY, KEY + VALUE, "model/*-1/moving_mean", "*-1/moving_mean" + VALUE, NAME])
def test_patterns_match_names_and_keys(run, tmp_path, pattern):
    assert run("ls", TRAINING, pattern, "-q").out == f"{NAME}\n"
    assert json.loads(run("ls", TRAINING, "-p", pattern, "--jsonl").out)["name"] == NAME
    for command in (("get", TRAINING, "-p", pattern, "-o"), ("convert", TRAINING, "--include", pattern, "-o")):
        target = tmp_path / f"{command[0]}.npz"
        assert run(*command, target).code == 0
        assert list(pparse.view(target)) == [NAME]
    pparse.convert(TRAINING, tmp_path / "x.npz", include=[pattern])
    assert list(pparse.view(tmp_path / "x.npz")) == [NAME]
    for made in ("command", "call"):
        target = tmp_path / f"{made}.npz"
        if made == "call":
            pparse.convert(TRAINING, target, exclude=[pattern])
        else:
            assert run("convert", TRAINING, "--exclude", pattern, "-o", target).code == 0
        assert NAME not in list(pparse.view(target))
        assert len(pparse.view(target)) == len(pparse.view(TRAINING)) - 2  # without the object graph


def test_a_regular_expression_matches_keys(run):
    assert run("ls", TRAINING, "-p", "^model/.*-1/moving_mean$", "--regex", "-q").out == f"{NAME}\n"


def test_a_key_in_a_saved_model_matches(run):
    with pparse.view(MODEL) as model:
        tensor = next(tensor for tensor in model.tensors() if tensor.key is not None)
    assert run("ls", MODEL, tensor.key, "-q").out == f"{tensor.name}\n"


def test_a_damaged_tensor_that_a_key_excludes_is_no_reason_to_refuse(run, training, tmp_path):
    with pparse.view(training) as model:
        span = model[NAME].spans[0]
    path = training / DATA_2
    content = bytearray(path.read_bytes())
    content[span.offset] ^= 1
    path.write_bytes(content)
    assert run("convert", training, "--exclude", KEY, "-o", tmp_path / "x.npz").code == 0
    assert run("convert", training, "--include", KEY, "-o", tmp_path / "y.npz").code == 4


def test_similar_keys_are_suggested(run):
    for command in (("ls", TRAINING, KEY[:-1] + "m"), ("get", TRAINING, KEY[:-1] + "m")):
        ran = run(*command)
        assert (ran.code, f"'{KEY}'" in ran.err) == (2, True)


# -- suggestions -------------------------------------------------------------------------------------------------------


def test_names_of_variables_are_suggested_before_what_says_how_they_are_saved(run):
    assert "names look like 'dense/bias'" in run("ls", MODEL, "nope").err
    assert run("get", MODEL, "dense/kernelz").err.endswith("; did you mean 'dense/kernel'?\n")
    assert "tensor_names" in run("get", MODEL, "@__inference__traced_save_216/SaveV2/tensor_name").err
    for command in ("ls", "get"):
        assert "'_CHECKPOINTABLE_OBJECT_GRAPH'" in run(command, TRAINING, "_CHECKPOINTABLE_OBJECT_GRAF").err


def test_why_names_are_not_known_is_told(run, training):
    with pparse.view(training) as model:
        start = model["_CHECKPOINTABLE_OBJECT_GRAPH"].spans[0].offset
        name = "out/bias"
    path = training / DATA_2
    path.write_bytes(path.read_bytes()[: start + 9])
    ran = run("get", training, name)
    assert (ran.code, "no tensor and no node has this name (tensors are called by their keys, as" in ran.err) == (
        2,
        True,
    )
    with pparse.view(training) as model, pytest.raises(KeyError, match="called by their keys"):
        model[name]
    assert "called by" not in run("get", TRAINING, "nope").err


def test_a_saved_model_opened_without_its_folder_tells_where_variables_are(run, tmp_path):
    ran = run("get", f"{MODEL}/saved_model.pb", "dense/kernel")
    assert ran.code == 2
    assert f"(the variables are in files beside {MODEL}/saved_model.pb: open the folder, {MODEL})" in ran.err
    alone = shutil.copy(f"{MODEL}/saved_model.pb", tmp_path)
    assert "variables" not in run("get", alone, "dense/kernel").err
    assert "beside" not in run("get", MODEL, "nope").err


# -- nodes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [NAME, KEY, KEY + VALUE])
@pytest.mark.parametrize("depth", ["1", "all"])
def test_tree_begins_at_the_entry_of_a_tensor(run, word, depth):
    ran = run("tree", TRAINING, word, "-d", depth)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{KEY}{VALUE}: tensorflow.BundleEntryProto {{…}}")
    assert "\n  offset: int64 " in ran.out


def test_tree_begins_at_a_variable_of_a_folder_and_at_tensors_of_other_formats(run):
    assert run("tree", MODEL, "dense/kernel").out.startswith("dense/kernel/.ATTRIBUTES/VARIABLE_VALUE: ")
    for path, name in (("tiny-gpt.safetensors", "h.0.attn.c_attn.weight"), ("tiny.gguf", None)):
        if name is None:
            with pparse.view(f"docs/samples/{path}") as model:
                name = next(iter(model))
        assert run("tree", f"docs/samples/{path}", name).out.startswith(f"{name}: tensor")


def test_a_tensor_without_a_node_is_told_from_one_that_is_not_there(run):
    constant = "@__inference__traced_save_216/Const"
    assert "has no node of its own" in run("tree", MODEL, constant).err
    assert run("tree", TRAINING, "nope").err == "pparse: the root has no 'nope'\n"


def test_a_key_with_dots_is_found_as_it_is_printed(run, tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a.b": {"c": 1}, "a": {"d": 2}}')
    assert run("tree", path, "a.b").out.startswith("a.b: object {…}")
    assert run("get", path, "a.b").out == '{\n  "c": 1\n}\n'
    assert run("get", path, "a.d").out == "2\n"
    for word in ("a.b.c", "a.x"):
        assert run("get", path, word).err.startswith("pparse: a has no '")
    assert json.loads(run("tree", path, path, "nope", "--json").out)["files"][0]["error"] == "the root has no 'nope'"


# -- what is said of values --------------------------------------------------------------------------------------------


def damaged(folder: Path, name: str) -> None:
    """Flip a bit of the first byte of a variable."""
    with pparse.view(folder) as model:
        offset = model[name].spans[0].offset
    path = folder / DATA_2
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("part", ["", "[0]"])
def test_get_tells_what_the_comparison_found(run, training, part):
    word = "out/bias" + part
    assert run("get", training, word).out.startswith("out/bias  float32  2  8 B  complete, verified\n")
    told = json.loads(run("get", training, word, "--json").out)
    assert (told["status"], told["verified"]) == ("complete", True)
    damaged(training, "out/bias")
    ran = run("get", training, word)
    assert (ran.code, ran.out) == (4, "out/bias  float32  2  8 B  damaged\nits checksum is wrong\n")
    assert "its checksum is wrong; 'pparse recover' sets it apart, with its bytes as they are" in ran.err
    assert run("get", training, word, "--json").out == ""


def test_recover_sets_apart_what_get_refuses(run, training, tmp_path):
    damaged(training, "out/bias")
    assert run("recover", training, "-o", tmp_path / "out").code == 4
    (path,) = (tmp_path / "out").rglob("*.doubtful.safetensors")
    assert list(pparse.view(path)) == ["out/bias"]


def test_a_header_is_no_reason_to_read_a_large_tensor(run, training, monkeypatch):
    monkeypatch.setattr("pparse.viewers.checkpoint.viewer._CONFIRMED", 7)
    assert run("get", training, "out/bias[0]").out.startswith("out/bias  float32  2  8 B  complete, unverified\n")


def test_get_gives_texts_the_types_that_ls_gives(run):
    (listed,) = (json.loads(line) for line in run("ls", MODEL, "words", "--jsonl").out.splitlines())
    told = json.loads(run("get", MODEL, "words", "--json").out)
    assert (told["dtype"], told["stored_dtype"]) == (listed["dtype"], listed["stored_dtype"]) == (None, "DT_STRING")


def test_groups_are_verified_if_all_in_them_are(run, training):
    status = {row.split()[0]: row.rpartition("  ")[2] for row in run("ls", training, "--group").out.splitlines()}
    assert status["_CHECKPOINTABLE_OBJECT_GRAPH"] == "complete, verified"
    assert status["Adam/beta_{1..2}"] == "complete, unverified"


def test_the_size_of_listed_values_is_that_of_the_array(run):
    rows = [json.loads(line) for line in run("ls", MODEL, "--jsonl").out.splitlines()]
    shown = run("ls", MODEL, "--bytes").out.splitlines()
    sizes = {row["name"]: row["nbytes"] for row in rows}
    listed = {line.split()[0]: int(line.split()[3]) for line in shown[1 : len(rows) + 1]}
    assert listed == sizes
    scalars = [row for row in rows if row["dtype"] == "int32" and not row["shape"]]
    assert any(row["spans"][0]["length"] != 4 for row in scalars)
    assert {listed[row["name"]] for row in scalars} == {4}
    assert f" {sum(sizes.values())}, " in shown[len(rows) + 1]


# -- files that are not there ------------------------------------------------------------------------------------------


def test_checkpoints_that_are_there_are_named(run, training):
    told = "; there are the checkpoints "
    for name in ("ckpt-9", "ckpt-9.index"):
        ran = run("ls", training / name)
        assert (ran.code, ran.err.endswith(f"{told}{training}/ckpt-2, {training}/ckpt-1\n")) == (2, True)
    assert f"{told}{training}/ckpt-1, {training}/ckpt-2\n" in run("ls", training / "model").err
    assert told not in run("ls", training / "notes.txt").err
    assert told not in run("ls", training.parent / "ckpt-9").err
