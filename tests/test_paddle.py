"""PaddlePaddle: programs, their graphs, and the parameters beside them, as paddle wrote them and damaged."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

import pparse
from tests.paddle_files import BFLOAT, FLOAT, INT64, json_program, program, record
from tests.rows import rows

# Written by paddle 3.3.1. mlp: static.save_inference_model of two layers with a batch norm between them, as an old
# program, without its parameters. loop: a layer in static.nn.while_loop, as an old program. emb: jit.save of
# Linear(Embedding(x + arange(5))), as version 3 saves by itself. control: the same with a loop and a branch,
# without its parameters.
DATA = Path(__file__).resolve().parent / "data" / "paddle"
MODEL = DATA / "mlp.pdmodel"


def test_info_names_what_a_user_asks_for(run):
    said = run("info", MODEL).out
    for words in (
        "version     3003001",
        "20, of which 10 persistable",
        "operators   9",
        "mul 2",
        "inputs      x",
        "softmax_0.tmp_0",
    ):
        assert words in said


def test_fields_are_those_that_paddle_wrote(run):
    found = json.loads(run("get", MODEL, "blocks[0].vars[0]").out)
    tensor = {"data_type": "FP32", "dims": [8]}
    kind = {"type": "DENSE_TENSOR", "dense_tensor": {"tensor": tensor}}
    assert found == {"name": "batch_norm_0.b_0", "type": kind, "persistable": True}
    with pparse.open(MODEL) as document:
        assert document.format == "paddle"
        assert {finding.code for finding in document.check()} == {"missing"}  # its parameters


def test_a_program_that_is_cut_counts_what_is_there(run, tmp_path):
    path = tmp_path / "inference.pdmodel"
    path.write_bytes(program().SerializeToString()[:200])
    said = run("info", path)
    assert (said.code, "feed 1" in said.out, "fetch" in said.out) == (4, True, False)


def test_what_damage_makes_of_the_fields_behind_the_blocks_is_no_block(tmp_path):
    """The length of the last field is less than it was: what is left of it looks like another block, by its tag."""
    made = program()
    made.ClearField("version")
    made.op_version_map.pair.add(op_name="mul").op_version.version = 1
    last = made.op_version_map.SerializeToString()
    raw = made.SerializeToString()
    path = tmp_path / "inference.pdmodel"
    path.write_bytes(raw[: -len(last) - 1] + b"\x02" + last)
    with pparse.open(path) as document:
        assert len(document.node("blocks").to_python()) == 1
        assert (str(document.node("blocks").status), str(document.root.status)) == ("complete", "damaged")


# -- parameters --------------------------------------------------------------------------------------------------------

VALUES = {
    "fc_0.w_0": (FLOAT, (4, 4), struct.pack("<16f", *range(16))),
    "fc_1.w_0": (FLOAT, (4, 4), struct.pack("<16f", *range(16, 32))),
    "fc_2.w_0": (FLOAT, (4, 4), struct.pack("<16f", *range(32, 48))),
}
PARAMS = b"".join(record(*value) for value in VALUES.values())
EACH = len(PARAMS) // 3


def saved(folder: Path, params: bytes | None = PARAMS, layers: int = 3) -> Path:
    """Write a program, and a file of parameters unless there is none; return the path of the latter."""
    folder.joinpath("m.pdmodel").write_bytes(program(layers).SerializeToString())
    path = folder / "m.pdiparams"
    if params is not None:
        path.write_bytes(params)
    return path


def whole(path: Path) -> dict[str, bytes]:
    """Return the bytes of the parameters that are said to be complete."""
    with pparse.view(path) as model:
        return {name: tensor.numpy().tobytes() for name, tensor in model.items() if tensor.is_complete}


@rows("name", ["loop.pdmodel", "loop.pdiparams"])
def test_parameters_have_the_names_of_the_program(name):
    with pparse.view(DATA / name) as model:
        assert {name: (str(one.dtype), one.shape) for name, one in model.items()} == {
            "fc_0.b_0": ("float32", (4,)),
            "fc_0.w_0": ("float32", (4, 4)),
        }
        assert model["fc_0.w_0"].spans[0].offset == 66  # behind 40 bytes of another record and a head of 26
        assert not list(model.check())
        assert model.status is pparse.Status.COMPLETE


@rows("name", ["emb.json", "emb.pdiparams"])
def test_parameters_have_the_names_of_a_program_in_json_form(name):
    with pparse.view(DATA / name) as model:
        assert list(model) == ["eager_tmp_0", "embedding_0.w_0", "linear_0.b_0", "linear_0.w_0"]
        assert model["eager_tmp_0"].numpy().tolist() == [0, 1, 2, 3, 4]
        assert model["linear_0.w_0"].shape == (6, 2)
        assert not list(model.check())


def test_names_of_old_files(tmp_path):
    path = saved(tmp_path)
    path.rename(tmp_path / "__params__")
    (tmp_path / "m.pdmodel").rename(tmp_path / "__model__")
    assert list(whole(tmp_path / "__params__")) == list(whole(tmp_path / "__model__")) == list(VALUES)


def test_without_a_program_parameters_are_numbered(run, tmp_path):
    path = tmp_path / "m.pdiparams"
    path.write_bytes(PARAMS)
    assert list(whole(path)) == ["param_0", "param_1", "param_2"]
    said = run("check", path)
    assert (said.code, "unnamed: parameters are numbered: no program lies beside" in said.out) == (0, True)
    assert "no program lies beside the file" in run("info", path).out


@rows(
    "params,why",
    [
        (
            record(FLOAT, (4, 3), bytes(48)) + PARAMS[EACH:],
            "has fc_0.w_0 as float32 4×4, where the file has float32 4×3",
        ),
        (record(FLOAT, (16,), bytes(64)) * 3, "has fc_0.w_0 as float32 4×4, where the file has float32 16"),
        (record(BFLOAT, (4, 4), bytes(32)) * 3, "where the file has bfloat16 4×4"),
        (PARAMS + PARAMS[:EACH], "names 3 parameters, and 4 records are here"),
    ],
)
def test_another_models_parameters_get_no_names(tmp_path, params, why):
    path = saved(tmp_path, params)
    assert not set(whole(path)) & set(VALUES)
    assert not whole(tmp_path / "m.pdmodel")
    with pparse.view(tmp_path / "m.pdmodel") as model:
        assert {str(tensor.status) for tensor in model.values()} == {"damaged"}
        assert why in model["fc_0.w_0"].finding.reason
    with pparse.view(path) as model:
        assert [why in finding.reason for finding in model.check() if finding.code == "unnamed"] == [True]


def test_a_program_without_its_file_lists_what_is_missing(run, tmp_path):
    saved(tmp_path, None)
    said = run("ls", tmp_path / "m.pdmodel")
    assert (said.code, "missing: its bytes are in m.pdiparams, which is not there" in said.out) == (4, True)
    (tmp_path / "m.pdiparams").write_bytes(b"hello, this is text and no file of parameters at all")
    with pparse.view(tmp_path / "m.pdmodel") as model:
        assert {str(tensor.status) for tensor in model.values()} == {"damaged"}
    (tmp_path / "m.pdiparams").write_bytes(b"")
    with pparse.view(tmp_path / "m.pdmodel") as model:
        assert {str(tensor.status) for tensor in model.values()} == {"missing"}


@rows("name", ["m.pdmodel", "m.pdiparams"])
def test_of_a_file_that_is_cut_all_before_is_there(tmp_path, name):
    path = saved(tmp_path)
    for size in range(1, len(PARAMS)):
        path.write_bytes(PARAMS[:size])
        with pparse.view(tmp_path / name) as model:
            assert list(model) == list(VALUES), size
            assert sum(tensor.is_complete for tensor in model.values()) == size // EACH
            assert model.status is pparse.Status.TRUNCATED
            assert (model.extent().missing_bytes or 0) >= len(PARAMS) - size or name == "m.pdmodel"
        for key, content in whole(tmp_path / name).items():
            assert content == VALUES[key][2]


@rows("name", ["m.pdmodel", "m.pdiparams"])
def test_a_changed_byte_in_a_head_damages_one_parameter(tmp_path, name):
    path = saved(tmp_path)
    for at in range(len(PARAMS)):
        if at % EACH >= EACH - 64:
            continue
        for value in (1, 0x80, 0xFF):
            path.write_bytes(PARAMS[:at] + bytes((PARAMS[at] ^ value,)) + PARAMS[at + 1 :])
            hit = list(VALUES)[at // EACH]
            found = whole(tmp_path / name)
            assert found == {key: value[2] for key, value in VALUES.items() if key != hit}, (at, value)


@rows("size", [-60, -7, 1, 7, EACH, 200])
def test_where_bytes_came_in_or_went_nothing_gets_a_wrong_name(tmp_path, size):
    path = saved(tmp_path)
    for at in range(0, len(PARAMS) - 60, 3):
        middle = b"\xa5" * size if size > 0 else b""
        path.write_bytes(PARAMS[:at] + middle + PARAMS[at - min(size, 0) :])
        for name in ("m.pdmodel", "m.pdiparams"):
            found = {key: content for key, content in whole(tmp_path / name).items() if key in VALUES}
            assert all(content == VALUES[key][2] for key, content in found.items()), at
            with pparse.view(tmp_path / name) as model:
                assert model.status is not pparse.Status.COMPLETE


def test_behind_damage_without_a_program_nothing_has_a_number(tmp_path):
    path = tmp_path / "m.pdiparams"
    path.write_bytes(PARAMS[: EACH + 3] + b"\1" + PARAMS[EACH + 4 :])
    with pparse.view(path) as model:
        found = {name: str(tensor.status) for name, tensor in model.items()}
    assert found == {"param_0": "damaged", "param_1": "damaged", f"param_at_{2 * EACH}": "complete"}


def test_a_damaged_program_names_nothing_unless_all_fits(tmp_path):
    path = saved(tmp_path)
    program_path = tmp_path / "m.pdmodel"
    content = program_path.read_bytes()
    for size in range(0, len(content), 7):
        program_path.write_bytes(content[:size])
        found = whole(path)
        assert list(found) in (list(VALUES), ["param_0", "param_1", "param_2"])
        assert list(found.values()) == [value[2] for value in VALUES.values()]


@rows("name,are_named", [("fc_0.w_1", True), ("fc_1.v", True), ("zc_0.w_0", False), ("fc_1.w_9", False)])
def test_a_changed_name_that_may_change_the_order_names_nothing(tmp_path, name, are_named):
    path = saved(tmp_path)
    made = program(3)
    variable = next(one for one in made.blocks[0].vars if one.name == "fc_0.w_0")
    variable.name = name  # operators still use that
    (tmp_path / "m.pdmodel").write_bytes(made.SerializeToString())
    assert list(whole(path)) == ([name, *list(VALUES)[1:]] if are_named else ["param_0", "param_1", "param_2"])


def test_types_of_elements_and_levels(tmp_path):
    path = tmp_path / "m.pdiparams"
    path.write_bytes(
        record(INT64, (2,), struct.pack("<2q", -1, 1 << 40), levels=(16, 8)) + record(BFLOAT, (), b"\x80?")
    )
    with pparse.view(path) as model:
        assert model["param_0"].numpy().tolist() == [-1, 1 << 40]
        assert (str(model["param_1"].dtype), model["param_1"].shape, float(model["param_1"].numpy())) == (
            "bfloat16",
            (),
            1,
        )


@rows(
    "content",
    [
        bytes(4096),
        bytes(16) + b"\4\0\0\0\x08\5\x10\4" + b"text" * 9,  # nothing stands behind it
        bytes(16) + struct.pack("<i", 12) + b"\x08\5\x10" + b"\xff" * 8 + b"\x7f",  # more than any array has
    ],
)
def test_other_files_are_not_taken_for_parameters(content):
    with pparse.open(content) as document, pytest.raises(pparse.FormatError):
        document.parse()


def test_a_hostile_size_is_not_believed(tmp_path):
    path = tmp_path / "m.pdiparams"
    path.write_bytes(PARAMS + record(FLOAT, (1 << 30, 1 << 20), b""))
    with pparse.view(path) as model:
        assert [str(tensor.status) for tensor in model.values()] == ["complete"] * 3 + ["missing"]


def test_only_heads_are_read(tmp_path):
    path = tmp_path / "m.pdiparams"
    path.write_bytes(record(FLOAT, (1 << 20,), bytes(4 << 20)) * 3)
    with pparse.view(path) as model:
        assert len(model) == 3
        assert model.extraction.session.stats.bytes < 100_000


def test_a_folder_lists_each_model_once(run, tmp_path):
    saved(tmp_path)
    for name in ("emb.json", "emb.pdiparams"):
        shutil.copy(DATA / name, tmp_path)
    assert [row["name"] for row in json.loads(run("ls", "--json", tmp_path).out)["models"]] == [
        "m.pdmodel",
        "emb.pdiparams",
    ]


# -- a file for each parameter -----------------------------------------------------------------------------------------


def apart(folder: Path) -> Path:
    """Write a program and a file for each of its parameters; return the path of the program."""
    folder.joinpath("__model__").write_bytes(program(3).SerializeToString())
    for name, value in VALUES.items():
        folder.joinpath(name).write_bytes(record(*value))
    return folder / "__model__"


def test_parameters_in_a_file_for_each(run, tmp_path):
    path = apart(tmp_path)
    for opened in (path, tmp_path):
        assert whole(opened) == {name: value[2] for name, value in VALUES.items()}
    assert whole(tmp_path / "fc_1.w_0") == {"fc_1.w_0": VALUES["fc_1.w_0"][2]}
    assert run("check", path).code == 0
    (tmp_path / "other").write_bytes(record(*VALUES["fc_1.w_0"]))
    assert list(whole(tmp_path / "other")) == ["param_0"]
    (tmp_path / "__params__").write_bytes(PARAMS[:EACH])  # one with all counts, if there is one
    assert list(whole(path)) == ["fc_0.w_0"]


def test_of_files_for_each_those_that_lack_are_told(run, tmp_path):
    path = apart(tmp_path)
    (tmp_path / "fc_0.w_0").unlink()
    (tmp_path / "fc_2.w_0").write_bytes(record(FLOAT, (4, 3), bytes(48)))
    said = run("ls", path)
    assert (said.code, "missing: its bytes are in fc_0.w_0, which is not there" in said.out) == (4, True)
    assert "fc_2.w_0, beside the program, has float32 4×3, where the program has float32 4×4" in said.out
    content = record(*VALUES["fc_2.w_0"])
    for size in range(len(content)):
        (tmp_path / "fc_2.w_0").write_bytes(content[:size])
        with pparse.view(path) as model:
            found = {name: str(tensor.status) for name, tensor in model.items()}
            assert found == {"fc_0.w_0": "missing", "fc_1.w_0": "complete", "fc_2.w_0": found["fc_2.w_0"]}
            assert found["fc_2.w_0"] == ("truncated" if size > len(content) - 64 else "missing")
            assert model.extent().resume[-1].size == len(content)
    for at in range(len(content) - 64):
        for value in (1, 0x80, 0xFF):
            (tmp_path / "fc_2.w_0").write_bytes(content[:at] + bytes((content[at] ^ value,)) + content[at + 1 :])
            assert list(whole(path)) == ["fc_1.w_0"], (at, value)
    (tmp_path / "fc_2.w_0").write_bytes(content + b"more")
    assert list(whole(path)) == ["fc_1.w_0"]
    inner = tmp_path / "inner"  # a name that leads out of the folder is not followed
    inner.mkdir()
    made = program(3)
    next(one for one in made.blocks[0].vars if one.name == "fc_2.w_0").name = "../fc_1.w_0"
    (inner / "__model__").write_bytes(made.SerializeToString())
    (inner / "fc_0.w_0").write_bytes(record(*VALUES["fc_0.w_0"]))
    with pparse.view(inner / "__model__") as model:
        assert {name: str(tensor.status) for name, tensor in model.items()} == {
            "../fc_1.w_0": "damaged",
            "fc_0.w_0": "complete",
            "fc_1.w_0": "missing",
        }


# -- graphs ------------------------------------------------------------------------------------------------------------


def test_a_graph_has_operators_values_and_parameters(run):
    with pparse.view(DATA / "loop.pdmodel") as model:
        graph = model.graph
        ops = [row[2] for row in graph.rows()]
        assert ops == ["feed", "fill_constant", "fill_constant", "less_than", "while", "reduce_mean", "fetch"]
        assert not list(graph.check())
        loop, mean, fetch = (graph.source.row(number) for number in (4, 5, 6))
        # What the loop makes of x is what is read behind it.
        assert (loop[6][1], mean[3], fetch[3]) == ("x;2", ["x;2"], ["mean_0.tmp_0"])
        assert {"fc_0.b_0", "fc_0.w_0"} <= set(loop[3])
        assert list(graph.source.constants()) == ["fc_0.b_0", "fc_0.w_0"]
        assert str(graph.value("fc_0.w_0")) == "fc_0.w_0 float32[4,4]"
        attributes = graph.source.attributes(4)
        assert (attributes["sub_block"].load(), attributes["Condition"].to_python()) == (1, ["less_than_0.tmp_0"])
    said = run("graph", DATA / "loop.pdmodel").out
    assert "inputs      x float32[2,4]" in said
    assert "outputs     mean_0.tmp_0 float32[]" in said
    body = run("graph", "--body", "block 1", "--jsonl", DATA / "loop.pdmodel").out
    assert '{"name": "fc_0.tmp_0", "op": "mul", "inputs": ["x", "fc_0.w_0"]' in body


def test_a_cut_program_has_the_graph_before_the_cut(tmp_path):
    content = (DATA / "loop.pdmodel").read_bytes()
    counts = set()
    for size in range(100, len(content), 97):
        (tmp_path / "m.pdmodel").write_bytes(content[:size])
        with pparse.view(tmp_path / "m.pdmodel") as model:
            try:
                found = [row[2] for row in model.graph.rows()]
            except pparse.PathError:  # no block
                continue
            assert model.graph.source.is_whole is False or len(found) == 7
            assert (
                not [one for one in model.graph.check() if one.code == "missing-input"] or model.graph.source.is_whole
            )
            counts.add(len(found))
    assert {0, 7} <= counts


def test_a_program_in_json_form_is_told_by_its_first_key(run):
    text = json.dumps(json_program({"w": ("bf16", (2,))}))
    for content, format in ((text, "paddle-json"), (text.replace('"pir"', '"pie"'), "json")):
        with pparse.open(content.encode()) as document:
            assert document.format == format


CONTROL = DATA / "control.json"


def graph_rows(path: Path | bytes) -> list[tuple]:
    """Return operators, inputs, what bodies capture, and outputs."""
    with pparse.view(path) as model:
        return [(row[2], list(row[3]), list(row[5]), list(row[6])) for row in model.graph.rows()]


def test_a_graph_in_json_form_has_blocks_in_operators(run):
    found = graph_rows(CONTROL)
    assert found[4] == ("builtin.parameter", [], [], ["batch_norm1d_0.w_1"])
    assert found[8:10] == [("pd_op.data", [], [], ["x"]), ("pd_op.add", ["x", "eager_tmp_0"], [], ["%10"])]
    # The loop reads x and a bias that nothing gives it; the branches, what the loop made.
    assert ("pd_op.while", ["%23", "%20", "%19"], ["linear_0.b_0", "x"], ["%24", "%25"]) in found
    assert ("pd_op.if", ["%35"], ["%25"], ["%36"]) in found
    with pparse.view(CONTROL) as model:
        graph = model.graph
        assert not list(graph.check())
        assert dict(graph.results) == {"fetch_name_0": "%51", "fetch_name_1": "%50"}
        assert list(graph.bodies) == ["%24.regions[0]", "%36.regions[0]", "%36.regions[1]"]
        loop = graph.bodies["%24.regions[0]"]
        assert (loop.arguments, list(loop.results)) == (["%-1", "%-2"], ["%31", "%28", "%26"])
        assert [str(loop.value(name)) for name in ("%-2", "%31")] == ["%-2 float32[?,5,2]", "%31 bool[1]"]
        assert [str(graph.value(name)) for name in ("x", "linear_0.w_0", "%48")] == [
            "x int64[?,5]",
            "linear_0.w_0 float32[6,2]",
            "%48 vec[…]",
        ]
        assert graph.source.attributes(13)["struct_name"].load() == "/Linear/"
    assert "inputs      x int64[?,5]" in run("graph", CONTROL).out
    assert "kinds       builtin.parameter 8, pd_op.full 3" in run("info", CONTROL).out


def test_a_cut_or_changed_program_in_json_form_has_the_graph_before():
    content, wanted = CONTROL.read_bytes(), graph_rows(CONTROL)
    counts = set()
    for size in range(200, len(content), 331):
        found = graph_rows(content[:size])
        last = found.pop() if found else wanted[0]
        assert found == wanted[: len(found)], size
        assert last[0] in (wanted[len(found)][0], "unreadable")
        assert all(kept[: len(one)] == one for one, kept in zip(last[1:], wanted[len(found)][1:], strict=True))
        counts.add(len(found))
    assert {0, 29} <= counts
    for size in range(300, len(content), 997):
        with pparse.view(content[:size] + b"}" + content[size + 1 :]) as model:
            found = [(row[2], list(row[3]), list(row[5]), list(row[6])) for row in model.graph.rows()]
            assert found == wanted or model.status is not pparse.Status.COMPLETE or list(model.graph.check()), size


def test_a_hostile_program_in_json_form_is_read_in_bounds():
    made = json_program({"%5": ("f32", (2,)), "w": ("f32", (2,))})
    block = made["program"]["regions"][0]["blocks"][0]
    deep: dict = {"#": "1.if", "I": [{"%": 0}, {"%": True}, 7, {"%": 1}], "O": [{"%": 50}]}
    for _ in range(60):
        inner = {"#": "b", "args": [], "ops": [deep]}
        deep = {"#": "1.if", "I": [{"%": 5}], "O": "none", "regions": [{"blocks": [inner]}, "no", {"blocks": 3}]}
    block["ops"].append(deep)
    with pparse.view(json.dumps(made).encode()) as model:
        rows = [row[1:] for row in model.graph.rows()]
        assert [row[0] for row in rows] == ["%1", "w", "x", "pd_op.if;3"]
        assert len(model.graph.bodies) == 33  # no deeper
        assert list(model.graph.check())  # nothing makes %5


@rows("listed", [5, True, 1.5, {}, "x", [5]])
def test_operators_whose_attributes_are_no_list_have_none(listed):
    made = json.loads((DATA / "emb.json").read_bytes())
    made["program"]["regions"][0]["blocks"][0]["ops"][1]["A"] = listed
    with pparse.view(json.dumps(made, separators=(",", ":")).encode()) as model:
        assert [row[1] for row in model.graph.rows()][:3] == ["eager_tmp_0", "%2", "linear_0.w_0"]


def test_a_program_is_told_by_its_first_block():
    with pparse.open(program().SerializeToString()) as document:
        assert document.format == "paddle"
    other = program()
    other.blocks[0].idx = 1
    with pparse.open(other.SerializeToString()) as document, pytest.raises(pparse.FormatError):
        document.parse()
