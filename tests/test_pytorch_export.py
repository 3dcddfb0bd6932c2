"""Programs of torch.export: what describes tensors, views of storages, graphs, and what is left of damaged archives."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

import pparse
from pparse.data.base import BytesData
from pparse.errors import PathError
from tests.pytorch_files import (
    _Members,
    as_tensor,
    checkpoint,
    config_of,
    exported,
    exported_before,
    meta,
    numbered,
    program,
)
from tests.rows import rows

CONFIG = "data/weights/model_weights_config.json"
TWO = numbered(2, 64)
FLOATS = np.arange(24, dtype="<f4")


def archive(members: dict[str, bytes], order: bytes = b"little") -> bytes:
    made = _Members("m")
    for name, content in {**members, "archive_format": b"pt2", "archive_version": b"0", "byteorder": order}.items():
        made.add(name, content)
    return made.close()


def one(about: dict, content: bytes = FLOATS.tobytes(), order: bytes = b"little") -> bytes:
    """Return an archive with one weight, ``w``."""
    return archive({"data/weights/weight_0": content, CONFIG: config_of({"w": ("weight_0", about)})}, order)


def test_an_archive_has_tensors_signature_facts_and_graph(run, tmp_path):
    path = tmp_path / "two.pt2"
    path.write_bytes(exported(*TWO).content)
    first, second = TWO[0]
    with pparse.view(path) as model:
        assert model.format == "pt2"
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == dict(TWO[1])
        assert model.metadata == {
            "torch_version": "2.13.0",
            "schema_version": "8.20",
            "opset_version": {"aten": 10},
            "range_constraints": {"s0": "0 to 64"},
        }
        graph = model.graph
        nodes = [(node.name, node.op, node.inputs, node.outputs) for node in graph.nodes.values()]
        op = "torch.ops.aten.add.Tensor"
        assert nodes == [("add_0", op, ["x", first], ["add_0"]), ("add_1", op, ["add_0", second], ["add_1"])]
        assert list(graph.nodes["add_1"].attr) == ["self", "other", "alpha"]
        assert graph.nodes["add_1"].attr["alpha"].find("as_int").load() == 2
        assert str(graph.source.value("x", None)) == "x float32[s0,4]"
        assert graph.source.value(first, None).shape == tuple(TWO[0][first][1])
        assert not list(graph.check())
    assert "constants   2" in run("graph", path).lines
    assert [line for line in run("info", path).lines if line.startswith("  ")] == [
        "  input     x  float32  ?×4",
        "  output    add_1  float32  ?×4",
    ]
    assert run("check", path).code == 0
    assert run("convert", path, "-o", tmp_path / "two.safetensors").code == 0
    with pparse.view(tmp_path / "two.safetensors") as model:
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == dict(TWO[1])


def test_listing_reads_what_describes_tensors_and_nothing_else():
    content = exported(*numbered(9, 1 << 20)).content
    with pparse.view(BytesData(content, "m.pt2")) as model:
        assert len(list(model.tensors())) == 9
        assert model.extraction.session.stats.bytes < 400_000


VIEWS = {
    "plain": (meta("float32", [4, 6]), FLOATS.reshape(4, 6)),
    "rows": (meta("float32", [2, 6], offset=6), FLOATS.reshape(4, 6)[1:3]),
    "columns": (meta("float32", [4, 3], [6, 2]), FLOATS.reshape(4, 6)[:, ::2]),
    "turned": (meta("float32", [6, 4], [1, 6]), FLOATS.reshape(4, 6).T),
    "repeated": (meta("float32", [3, 2], [0, 1], 5), np.stack([FLOATS[5:7]] * 3)),
    "scalar": (meta("float32", [], offset=23), FLOATS[23]),
    "none": (meta("float32", [0, 3]), FLOATS[:0].reshape(0, 3)),
    "other type": (meta("int64", [12]), FLOATS.view("<i8")),
}


def test_views_share_a_storage_and_their_bytes_may_be_swapped():
    described = {name: ("weight_0", about) for name, (about, _) in VIEWS.items()}
    content = archive({"data/weights/weight_0": FLOATS.tobytes(), CONFIG: config_of(described)})
    with pparse.view(content) as model:
        assert list(model) == list(VIEWS)
        for name, (_, wanted) in VIEWS.items():
            assert np.array_equal(model[name].numpy(), wanted), name
        assert [tensor.status for tensor in model.values()] == ["complete"] * len(VIEWS)
    with pparse.view(one(meta("float32", [24]), FLOATS.astype(">f4").tobytes(), b"big")) as model:
        assert np.array_equal(model["w"].numpy(), FLOATS)
    described = {"bytes": ("weight_0", meta("uint8", [96])), "floats": ("weight_0", meta("float32", [24]))}
    content = archive({"data/weights/weight_0": bytes(96), CONFIG: config_of(described)}, b"big")
    with pparse.view(content) as model:  # nobody knows in what steps it was swapped
        assert [tensor.status for tensor in model.values()] == ["complete", "unsupported"]


HUGE = 1 << 62
WRONG = [
    (meta("float32", [25]), "damaged", "short-storage"),
    (meta("float32", [24], offset=1), "damaged", "short-storage"),
    (meta("float32", [HUGE, HUGE]), "damaged", "short-storage"),
    (meta("float32", [2, 2], [HUGE, 1]), "damaged", "short-storage"),
    (meta("float32", [24]) | {"dtype": 99}, "unsupported", "bad-tensor"),
    (meta("float32", [24]) | {"dtype": [7]}, "unsupported", "bad-tensor"),
    (meta("float32", [24]) | {"layout": 1}, "unsupported", "bad-tensor"),
    (meta("float32", [-24]), "unsupported", "bad-tensor"),
    (meta("float32", ["s0"]), "unsupported", "bad-tensor"),
    (meta("float32", [24], [1, 1]), "damaged", "bad-tensor"),
    (meta("float32", [24], offset=-1), "damaged", "bad-tensor"),
    (meta("float32", [24]) | {"sizes": 3}, "damaged", "bad-tensor"),
    (meta("float32", [24]) | {"storage_offset": 3}, "damaged", "bad-tensor"),
    ("text", "damaged", "bad-tensor"),
    ({"dtype": 7, "more": "x" * 70_000}, "damaged", "bad-tensor"),
]


@rows("about, status, code", WRONG)
def test_a_description_that_does_not_fit_is_told(about, status, code):
    with pparse.view(one(about)) as model:
        (tensor,) = model.tensors()
        assert (tensor.name, tensor.status, tensor.finding.code) == ("w", status, code)
        assert model.extent().status == status


def test_a_tensor_without_values_is_no_damage():
    with pparse.view(one(meta("float32", [24]), b"")) as model:
        assert (model["w"].status, model["w"].finding.code, model["w"].shape) == ("unsupported", "meta", (24,))
    with pparse.view(archive({CONFIG: config_of({"w": ("weight_0", meta("float32", [24]))})})) as model:
        assert (model["w"].status, model["w"].finding.code) == ("missing", "missing-storage")


def test_members_of_torch_save_are_opened(run, tmp_path):
    """A weight that is pickled, a custom object, example inputs; and the layouts before, with dicts of tensors."""
    inner = checkpoint({"x": ("float32", [24])}, {"x": FLOATS.tobytes()}, "archive").content
    told = json.loads(
        config_of({"odd": ("weight_0", meta("float32", [24])), "object": ("custom_obj_0", meta("bool", []))})
    )
    for entry in told["config"].values():
        entry["use_pickle"] = True
    told["config"]["object"]["tensor_meta"] = None
    members = {"data/weights/weight_0": inner, CONFIG: json.dumps(told).encode(), "data/sample_inputs/model.pt": inner}
    with pparse.view(archive(members)) as model:
        assert list(model) == ["odd.x", "example_inputs.x"]
        assert [model.is_bookkeeping(tensor) for tensor in model.values()] == [False, True]
        assert all(np.array_equal(tensor.numpy(), FLOATS) for tensor in model.values())
        assert model.metadata == {"object": "<custom object in data/weights/custom_obj_0>"}
        assert model.extent().status == "complete"
        assert {use.name for use in model.parser.globals()} >= {"torch._utils._rebuild_tensor_v2"}
    saved = checkpoint(*TWO, "archive").content
    before = exported_before({"state_dict": saved, "example_inputs": inner}, TWO[0])
    between = {
        "data/weights/model.pt": saved,
        "models/model.json": program(TWO[0]),
        "data/sample_inputs/model.pt": inner,
    }
    for content in (before, archive(between)):
        with pparse.view(content) as model:
            assert model.format == "pt2"
            assert list(model) == [*TWO[0], "example_inputs.x"]
            assert {name: model[name].numpy().tobytes() for name in TWO[0]} == dict(TWO[1])
            assert len(model.graph.nodes) == 2
        damaged = bytearray(content)
        damaged[content.index(TWO[1][next(iter(TWO[1]))]) + 5] ^= 1
        with pparse.view(bytes(damaged)) as model:
            model.resolve_all()
            assert [tensor.status for tensor in model.tensors()] == ["damaged", "complete", "complete"]


def test_names_of_another_model_begin_with_its_name_and_compiled_code_is_told(run, tmp_path):
    members = {}
    for number, name in enumerate(("encoder", "model")):
        members[f"data/weights/weight_{number}"] = FLOATS.tobytes()
        about = {"w": (f"weight_{number}", meta("float32", [24]))}
        members[f"data/weights/{name}_weights_config.json"] = config_of(about)
        members[f"models/{name}.json"] = program({"w": ("float32", [24])})
    members["data/aotinductor/model/code.so"] = b"\x7fELF"
    path = tmp_path / "both.pt2"
    path.write_bytes(archive(members))
    with pparse.view(path) as model:
        assert list(model) == ["encoder/w", "w"]
        assert list(model.signatures) == ["encoder", "model"]
        for number, name in enumerate(model.signatures):
            graph = model.graph_of(number)
            assert list(graph.signatures) == [name]
            assert graph.called_by(name).graph.signatures == graph.signatures
        for number, name in enumerate(model):
            assert list(model.graph_of(number).source.constants()) == [name]
        with pytest.raises(PathError, match="2 programs"):
            model.graph_of(2)
    assert "compiled    1 member of AOTInductor in data/aotinductor/: not read" in run("info", path).lines
    path.write_bytes(archive({"data/aotinductor/model/code.so": b"\x7fELF"}))
    assert run("check", path).code == 0
    with pparse.view(path) as model:
        assert (list(model), model.graph) == ([], None)


def branch(name: str, inner: list[dict]) -> dict:
    nodes = [{"target": "torch.ops.aten.sin.default", "inputs": [], "outputs": [as_tensor("y")], "name": "y"}, *inner]
    graph = {"inputs": [as_tensor("x")], "outputs": [as_tensor("y")], "nodes": nodes, "tensor_values": {}}
    return {"name": "", "arg": {"as_graph": {"name": name, "graph": graph}}}


def cond(label: str, *branches: dict) -> dict:
    inputs = [*branches, {"name": "", "arg": {"as_tensors": [{"name": "x"}, {"name": "n"}]}}]
    return {"target": "torch.ops.higher_order.cond", "inputs": inputs, "outputs": [as_tensor(label)], "name": label}


def test_branches_are_graphs_at_any_depth_and_broken_nodes_are_told():
    told = json.loads(program({}))
    deep = cond("c1", branch("true_graph_0", []))
    node = cond("c0", branch("true_graph_0", [deep]), branch("false_graph_0", []))
    many = {
        "target": "m",
        "inputs": [{"name": "ts", "arg": {"as_optional_tensors": [as_tensor("x"), {"as_none": True}]}}],
    }
    many["inputs"].append({"name": "n", "arg": {"as_sym_ints": [{"as_int": 3}, {"as_name": "sym"}]}})
    many |= {"outputs": [{"as_tensors": [{"name": "a"}, {"name": "b"}]}], "name": None}
    graph = told["graph_module"]["graph"]
    graph["nodes"] = [node, many, 3, {"inputs": 4}, {"target": "t", "inputs": [5, {}], "outputs": None}]
    graph["outputs"] = [as_tensor("b"), {"as_int": 3}]
    graph["sym_int_values"] = {"sym": {"as_expr": {"expr_str": "s0"}}}
    with pparse.view(archive({CONFIG: config_of({}), "models/model.json": json.dumps(told).encode()})) as model:
        graph = model.graph
        assert [row[1:4] for row in graph.source.rows()] == [
            ("c0", "torch.ops.higher_order.cond", ["x", "n"]),
            ("a", "m", ["x", "sym"]),
            ("unreadable;2", "unreadable", ()),
            ("unreadable;3", "unreadable", ()),
            ("t;4", "t", []),
        ]
        assert list(graph.source.results()) == ["b"]
        assert str(graph.source.value("sym", None)) == "sym int64[]"
        bodies = graph.bodies
        assert sorted(bodies) == ["c0.false_graph_0", "c0.true_graph_0", "c0.true_graph_0/c1.true_graph_0"]
        assert [len(bodies[name].nodes) for name in sorted(bodies)] == [1, 2, 1]


def test_a_cut_archive_gives_storages_without_names(run, tmp_path):
    made = exported(*TWO)
    first, second = made.places.values()
    config = made.content.index(b'{"config": {"')
    inside = made.content.index(b'"path_name": "weight_1"')
    lost = ["data/weights/weight_0", "data/weights/weight_1"]
    path = tmp_path / "cut.pt2"
    for end, names, whole in (
        (second[1] + 40, lost, []),
        (second[1] - 40, lost, []),
        (inside, [*TWO[0], lost[1]], [next(iter(TWO[0]))]),
        (len(made.content) - 30, [*TWO[0]], [*TWO[0]]),
    ):
        path.write_bytes(made.content[:end])
        with pparse.view(path) as model:
            assert list(model) == names
            assert [name for name, tensor in model.items() if tensor.is_complete] == whole
        if names is lost:
            assert (run("graph", path).code, run("graph", path, "--max-nodes", "9").code) == (4, 4)
            assert model.extent().status == ("damaged" if len(whole) < 2 else "truncated")
        assert run("check", path).code == 4
    path.write_bytes(made.content[: config - 80])
    with pparse.view(path) as model:
        tensor = model["data/weights/weight_0"]
        assert (tensor.status, tensor.finding.code, tensor.shape) == ("damaged", "unnamed", (first[1] - first[0],))
    run("recover", path, "-o", tmp_path / "out")
    with pparse.view(tmp_path / "out" / "cut.doubtful.safetensors") as model:
        assert [tensor.numpy().tobytes() for tensor in model.values()] == list(TWO[1].values())


def test_damage_to_what_describes_tensors_is_damage_to_them():
    content = exported(*TWO).content
    at = content.index(b'"sizes": [{"as_int": ') + len(b'"sizes": [{"as_int": ')
    entry = content.rindex(f"model/{CONFIG}".encode()) + 20
    for place in (at, entry):
        damaged = bytearray(content)
        damaged[place] ^= 1
        with pparse.view(bytes(damaged)) as model:
            assert [tensor.status for tensor in model.tensors() if tensor.is_claimed_whole] == []
            assert model.extent().status == "damaged"


def test_it_is_recognised_by_its_members(tmp_path):
    content = exported(*TWO).content
    for name in ("m.pt2", "m.pt", "m.bin", "m.zip"):
        with pparse.open(BytesData(content, name)) as document:
            assert document.format == "pt2"
    for place in (9, 27):  # in the first header: the directory tells
        damaged = bytearray(content)
        damaged[place] ^= 1
        with pparse.open(bytes(damaged)) as document:
            assert document.format == "pt2"
    other = struct.pack("<4s5H3I2H", b"PK\3\4", 0, 0, 0, 0, 0, 0, 0, 0, 5, 0) + b"a/b/c"
    with pparse.open(other + content[:40]) as document:
        assert document.format == "zip"


@rows(
    "text, grade",
    [
        ("Symbol('s77', positive=True, integer=True)", "harmless"),
        ("Add(Integer(-1), Mul(Integer(2), Symbol('s0')))", "harmless"),
        ("((s0 - 1)//2) + 1.5e3", "harmless"),
        ("Piecewise(ExprCondPair(Integer(1), LessThan(Symbol('u0'), OpaqueUnaryFn_sqrt(s1))))", "harmless"),
        ("Unheard(s0)", "unknown"),
        ("S('s0')", "unknown"),
        ("__import__('os').system('id')", "dangerous"),
        ("open ('x', 65)", "dangerous"),
        ("sympify('x')", "dangerous"),
        ("(exit)(0)", "dangerous"),
        ("Symbol('a')('b')", "dangerous"),
        ("s0.__class__", "dangerous"),
        ("f'{exit()}'", "dangerous"),
        ("Symbol('exit()')", "dangerous"),
        ("[1]", "dangerous"),
        ("\uff45val(s0)", "dangerous"),  # Python takes other letters for these
        (5, "unknown"),
    ],
)
def test_what_torch_evaluates_is_told_and_graded(run, tmp_path, text, grade):
    """torch.export.load gives these texts to sympy, which runs them as code; in a large program as in a small one."""
    told = json.loads(program(TWO[0]))
    sizes = told["graph_module"]["graph"]["tensor_values"]["add_1"]["sizes"]
    sizes[0]["as_expr"]["expr_str"] = text
    for more in (0, 2_000):
        told["range_constraints"] |= {f"s{number}": {"min_val": 0, "max_val": 64} for number in range(more)}
        escaped = json.dumps(told).replace('"expr_str"', '"expr\\u005fstr"').encode()
        (path := tmp_path / "m.pt2").write_bytes(archive({"models/model.json": escaped}))
        found = {use.name: use.grade.value for use in pparse.scan(path)}
        assert found == {"sympy.sympify": grade}
        assert run("scan", path).code == (5 if grade == "dangerous" else 0)
        assert ("sympy.sympify" in run("check", path).out) == (grade != "harmless")


@rows(
    "told, grade",
    [
        (b'{"sizes": [{"as_int": 2}, {"as_expr": {"expr_str": "Symbol(\'s0\')"}}]}', "harmless"),
        (b'{"sizes": [{"as_expr": {"expr_str": "exit()"}}]}', "dangerous"),
        (b'{"sizes": ', "dangerous"),
        (None, "dangerous"),
    ],
)
def test_a_tensor_without_values_is_harmless_if_its_sizes_are(told, grade):
    """torch._export.serde.serialize._reconstruct_fake_tensor evaluates those, too."""
    import pickle

    for protocol in (2, 4):
        made = pickle.dumps((told, True), protocol)[2:-1]
        pickled = b"\x80\x04" + b"ctorch._export.serde.serialize\n_reconstruct_fake_tensor\n" + made + b"R."
        found = {use.name: use.grade.value for use in pparse.scan(pickled)}
        assert found["torch._export.serde.serialize._reconstruct_fake_tensor"] == grade
        other = pickled.replace(b"_reconstruct_fake_tensor", b"other")
        assert "dangerous" in {use.grade.value for use in pparse.scan(other)}
