"""TorchScript against torch: modules, parameters, buffers, and the operators of the graph, for seven models."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import pparse
from tests.rows import rows

if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
    import torch
else:
    torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore")  # torch says that there will be no TorchScript one day


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) * self.scale


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.blocks = nn.ModuleList([nn.Conv2d(2, 2, 1) for _ in range(2)])

    def forward(self, x, n: int = 2):
        y = self.norm(self.conv(x))
        for i in range(n):
            y = y + i if bool(y.sum() > 0) else y - 1
        while bool(y.max() > 10.0):
            y = y / 2
        for block in self.blocks:
            y = block(y)
        a, b = self.pair(y)
        assert a.size(0) > 0, "empty"
        return {"a": a, "b": b}

    def pair(self, y):
        return y, torch.cat([y, y], 1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 4, 2), nn.Linear(4, 1)

    def forward(self, x):
        out, (hidden, _) = self.lstm(x)
        return self.head(out), hidden


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.n1, self.n2, self.relu = nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(x + self.n2(self.c2(self.relu(self.n1(self.c1(x))))))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.layers = nn.Conv2d(3, 4, 7, 2, 3), nn.Sequential(Block(), Block())
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 10)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.layers(self.stem(x))), 1))


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def silero(path):
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or spec.origin is None:
        pytest.skip("silero-vad is not installed")
    return Path(spec.origin).parent / "data/silero_vad.jit"


def saved(make, path):
    torch.manual_seed(0)
    make().save(str(path))
    return path


IMAGE = (1, 3, 16, 16)
MODELS = {
    "scripted": lambda path: saved(lambda: torch.jit.script(Perceptron()), path),
    "control flow": lambda path: saved(lambda: torch.jit.script(Flow()), path),
    "LSTM": lambda path: saved(lambda: torch.jit.script(Recurrent()), path),
    "transformer": lambda path: saved(lambda: torch.jit.script(encoder()), path),
    "traced": lambda path: saved(lambda: torch.jit.trace(Residual().eval(), torch.zeros(IMAGE)), path),
    "frozen": lambda path: saved(
        lambda: torch.jit.freeze(torch.jit.trace(Residual().eval(), torch.zeros(IMAGE))), path
    ),
    "silero": silero,
}
# Attributes are no nodes here, nor are lists of literals; several results are not made one tuple.
APART = ("prim::Constant", "prim::GetAttr", "prim::ListConstruct", "prim::TupleConstruct")


def operations_of(path):
    """Return how often the code has each operation, all calls resolved: torch itself folds branches away when it does
    that."""
    unit = torch._C.CompilationUnit()
    loaded = torch._C.import_ir_module(unit, str(path), torch.device("cpu"), {}, False)
    model = torch.jit._recursive.wrap_cpp_module(loaded)
    found = Counter()
    waiting = [(model.graph, [model])]
    while waiting:
        graph, given = waiting.pop()
        known = dict(zip((one.debugName() for one in graph.inputs()), given, strict=False))
        blocks = [graph]
        while blocks:
            for node in blocks.pop(0).nodes():
                blocks += list(node.blocks())
                inputs = [known.get(one.debugName()) for one in node.inputs()]
                if node.kind() == "prim::GetAttr" and inputs[0] is not None:
                    value = getattr(inputs[0], node.s("name"))
                    if isinstance(value, nn.Module):
                        known[node.output().debugName()] = value
                elif node.kind() == "prim::CallMethod" and inputs[0] is not None:
                    waiting.append((inputs[0]._c._get_method(node.s("name")).graph, inputs))
                elif node.kind() == "prim::CallFunction":
                    waiting.append((unit.find_function(node.inputsAt(0).type().annotation_str).graph, inputs[1:]))
                else:
                    found[node.kind()] += 1
    return {kind: count for kind, count in found.items() if kind not in APART}


def told(graph):
    """Return how often the graph has each operation, its bodies too."""
    bodies = [body for body in graph.bodies.values() if body.kind == "body"]
    assert not any(one.check() for one in (graph, *bodies))
    found = sum((Counter(one.operations) for one in (graph, *bodies)), Counter())
    return {kind: count for kind, count in found.items() if kind not in APART}


@pytest.fixture(scope="module")
def path_of(tmp_path_factory):
    """A function that returns the file of a model."""
    folder = tmp_path_factory.mktemp("scripts")
    return cache(lambda kind: MODELS[kind](folder / f"{kind}.pt"))


@rows("kind", MODELS)
def test_modules_are_those_of_torch(kind, path_of):
    path = path_of(kind)
    model = torch.jit.load(str(path))
    with pparse.view(path) as viewer:
        modules = {module["name"]: module for module in viewer.outline()["modules"]}
        assert set(modules) == {name for name, _ in model.named_modules(remove_duplicate=False)}
        for name, module in model.named_modules(remove_duplicate=False):
            assert modules[name]["class"].rpartition(".")[2] == module.original_name
            assert set(modules[name]["parameters"]) == {key for key, _ in module.named_parameters(recurse=False)}
            assert set(modules[name]["buffers"]) == {key for key, _ in module.named_buffers(recurse=False)}
        assert "inferred" not in str(modules)


@rows("kind", MODELS)
def test_operations_are_those_of_torch(kind, path_of):
    path = path_of(kind)
    with pparse.view(path) as viewer:
        graph = viewer.graph
        assert told(graph) == operations_of(path)
        model = torch.jit.load(str(path))
        names = [one.debugName() for one in model.graph.inputs()][1:]
        assert [name.rpartition(".")[0] or name for name in graph.inputs] == [
            name.rpartition(".")[0] or name for name in names
        ]
        tensors = set(viewer)
        assert set(graph.constants()) <= tensors


def test_of_a_traced_model_the_graph_is_that_which_torch_inlines(path_of):
    for kind in ("traced", "frozen"):
        path = path_of(kind)
        whole = torch.jit.load(str(path)).inlined_graph
        kinds = [node.kind() for node in whole.nodes() if node.kind() not in APART]
        with pparse.view(path) as viewer:
            assert [row[2] for row in viewer.graph.rows()] == kinds


def test_every_parameter_is_an_input_of_what_uses_it(path_of):
    path = path_of("traced")
    model = torch.jit.load(str(path))
    with pparse.view(path) as viewer:
        graph = viewer.graph
        used = {name for row in graph.rows() for name in row[3]} & set(viewer)
        assert used == {name for name in model.state_dict() if not name.endswith("num_batches_tracked")}
        for row in graph.rows():
            assert {name.rpartition(".")[0] for name in row[3] if name in used} <= {row[4]}
