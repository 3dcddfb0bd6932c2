"""FlatBuffers and their kin against the libraries that write or run them; each is skipped where it is not installed."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import pparse
from tests.flatbuffers_files import tflite
from tests.rows import rows

DATA = Path(__file__).resolve().parent.parent / "data" / "flatbuffers"


def written() -> bytes:
    """Return a model of two layers whose operators LiteRT can run."""
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal(shape).astype("<f4") for shape in ((7, 5), (7,), (3, 7), (3,))]
    shapes = [("x", "f4", (1, 5), None), ("h", "f4", (1, 7), None), ("y", "f4", (1, 3), None)]
    shapes += [(f"w{number}", "f4", one.shape, one.tobytes()) for number, one in enumerate(weights)]
    return tflite(shapes, [(0, [0, 3, 4], [1]), (0, [1, 5, 6], [2])], codes=[9], inputs=[0], outputs=[2])


@rows("name", ["int8.tflite", "dynamic.tflite", "written"])
def test_tensors_and_operators_are_those_of_the_interpreter(name):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    content = written() if name == "written" else (DATA / name).read_bytes()
    plain = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = litert.Interpreter(model_content=content, experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    details = {one["name"]: one for one in interpreter.get_tensor_details()}
    by_number = {one["index"]: one["name"] for one in details.values()}
    with pparse.view(content) as model:
        assert len(model) >= 4
        for key, tensor in model.items():
            wanted = interpreter.get_tensor(details[key]["index"])
            assert (tensor.shape, tensor.numpy().tobytes()) == (wanted.shape, wanted.tobytes())
        graph = model.graph
        found = [(row[2], list(row[3]), list(row[6])) for row in graph.rows()]
        told = interpreter._get_ops_details()
        assert [row[0] for row in found] == [one["op_name"] for one in told]
        for (_, inputs, outputs), one in zip(found, told, strict=True):
            assert [by_number[number] for number in one["inputs"] if number >= 0] == [text for text in inputs if text]
            assert [by_number[number] for number in one["outputs"]] == outputs
        assert [details[key]["shape_signature"].tolist() for key in graph.inputs] == [
            [-1 if size is None else size for size in graph.value(key).shape] for key in graph.inputs
        ]


@rows("name", ["int8.tflite", "dynamic.tflite", "written"])
def test_fields_are_those_of_the_generated_schema(name):
    """The library reads FlatBuffers by classes that flatc made of the schema."""
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    content = written() if name == "written" else (DATA / name).read_bytes()
    with pparse.open(content) as document:
        count = compare(document.root.to_python(), schema.ModelT.InitFromPackedBuf(content), schema)
    assert count > 50


def compare(found, wanted, schema):
    """Compare what is there with what the library has; return how many values those are."""
    if isinstance(found, dict):
        wanted = {key.lower(): one for key, one in vars(wanted).items()}
        return sum(compare(one, wanted[key.replace("_", "").lower()], schema) for key, one in found.items())
    if isinstance(found, list):
        assert len(found) == len(wanted)
        return sum(compare(one, other, schema) for one, other in zip(found, wanted, strict=True))
    if isinstance(wanted, np.ndarray):
        found, wanted = bytes(found), wanted.tobytes()
    elif isinstance(wanted, bytes) and isinstance(found, str):
        wanted = wanted.decode()
    elif isinstance(found, str) and isinstance(wanted, int):  # of an enum
        assert any(getattr(one, found, None) == wanted for one in vars(schema).values())
        return 1
    assert found == wanted
    return 1


def value(rng: random.Random, depth: int) -> object:
    kinds = [
        lambda: rng.randrange(-(1 << rng.randrange(1, 63)), 1 << rng.randrange(1, 63)),
        lambda: rng.choice([0.5, -1.25, 1.5e30, 3.0]),
        lambda: rng.choice([True, False]),
        lambda: "ä text " * rng.randrange(60),
        lambda: rng.randbytes(rng.randrange(1, 300)),
        lambda: [value(rng, depth - 1) for _ in range(rng.randrange(1, 9))],
        lambda: {f"key {rng.randrange(99)}": value(rng, depth - 1) for _ in range(rng.randrange(1, 9))},
    ]
    return rng.choice(kinds if depth else kinds[:5])()


def test_flexbuffers_are_read_as_the_library_reads_them():
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    rng = random.Random(11)
    for _ in range(300):
        content = bytes(flexbuffers.Dumps({"root": value(rng, 4), "more": list(range(rng.randrange(1, 40)))}))
        with pparse.open(content, format="flexbuffers") as document:
            found = document.root.to_python()
            assert found == flexbuffers.Loads(content)
            assert not list(document.check())
            wanted = [one.AsInt for one in flexbuffers.GetRoot(content).AsMap["more"].AsVector]
            assert [document.node(f"more[{number}]").value for number in range(len(wanted))] == wanted


def test_trees_of_catboost_are_those_that_it_saves_as_json(tmp_path):
    catboost = pytest.importorskip("catboost")
    import json

    rng = np.random.default_rng(2)
    given = rng.standard_normal((200, 5))
    model = catboost.CatBoostRegressor(iterations=20, depth=4, verbose=False, allow_writing_files=False)
    model.fit(given, given @ [1, 2, 0, -1, 3])
    model.save_model(tmp_path / "m.cbm")
    model.save_model(tmp_path / "m.json", format="json")
    told = json.loads((tmp_path / "m.json").read_text())
    with pparse.view(tmp_path / "m.cbm") as found:
        leaves = [leaf for tree in told["oblivious_trees"] for leaf in tree["leaf_values"]]
        assert found["LeafValues"].numpy().tolist() == leaves
        assert not list(found.check())


def test_onnxruntime_runs_what_is_read_of_its_own_format(tmp_path):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(4)
    weights = {"w": rng.standard_normal((5, 7)).astype("f4"), "b": rng.standard_normal(7).astype("f4")}
    make = onnx.helper
    nodes = [
        make.make_node("MatMul", ["x", "w"], ["h"], "first"),
        make.make_node("Add", ["h", "b"], ["s"], "second"),
        make.make_node("Relu", ["s"], ["y"], "third"),
    ]
    ends = [make.make_tensor_value_info(name, 1, [1, size]) for name, size in (("x", 5), ("y", 7))]
    stored = [onnx.numpy_helper.from_array(one, name) for name, one in weights.items()]
    graph = make.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(tmp_path / "m.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    with pparse.view(tmp_path / "m.ort") as found:
        assert {name: one.numpy().tobytes() for name, one in found.items()} == {
            name: one.tobytes() for name, one in weights.items()
        }
        assert [row[1:3] for row in found.graph.rows()] == [(node.name, node.op_type) for node in nodes]
        assert not list(found.check())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_of_executorch_has_the_tensors_of_its_module(tmp_path):
    torch, exir = pytest.importorskip("torch"), pytest.importorskip("executorch.exir")
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3)).eval()
    program = exir.to_edge(torch.export.export(module, (torch.ones(1, 5),))).to_executorch()
    path = tmp_path / "m.pte"
    path.write_bytes(program.buffer)
    with pparse.view(path) as found:
        stored = {one.numpy().tobytes() for one in found.values()}
        assert {one.detach().numpy().tobytes() for one in module.state_dict().values()} <= stored
        assert not list(found.check())
        plan = program.executorch_program.execution_plan[0]
        names = [f"{one.name}.{one.overload}" if one.overload else one.name for one in plan.operators]
        calls = [one.instr_args for one in plan.chains[0].instructions]
        wanted = [names[one.op_index] for one in calls if hasattr(one, "op_index")]
        assert [row[2] for row in found.graph.rows()][: len(wanted)] == wanted


def test_mnn_computes_with_the_weights_that_are_read():
    mnn = pytest.importorskip("MNN")
    path = str(DATA / "small.mnn")
    interpreter = mnn.Interpreter(path)
    session = interpreter.createSession()
    given = np.random.default_rng(7).standard_normal((1, 2, 8, 8)).astype("f4")
    how = mnn.Halide_Type_Float, given, mnn.Tensor_DimensionType_Caffe
    interpreter.getSessionInput(session).copyFrom(mnn.Tensor(given.shape, *how))
    interpreter.runSession(session)
    found = np.array(interpreter.getSessionOutputAll(session)["y"].getData()).reshape(-1)
    with pparse.view(path) as model:
        weight, bias = model["c.weight"].numpy(), model["c.bias"].numpy()
        windows = np.lib.stride_tricks.sliding_window_view(given, weight.shape[2:], axis=(2, 3))
        hidden = np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None], 0).reshape(-1)
        last, bias = (model[f"y__matmul_converted.{name}"].numpy() for name in ("weight", "bias"))
        np.testing.assert_allclose(found, last.reshape(len(bias), -1) @ hidden + bias, atol=1e-4)
        constants = {name: one for name, one in mnn.expr.load_as_dict(path).items() if one.op_type == "Const"}
        assert {name: model[name].numpy().reshape(-1).tolist() for name in constants} == {
            name: np.array(one.read()).reshape(-1).tolist() for name, one in constants.items()
        }
