"""PaddlePaddle against itself: every parameter, bit by bit, and the operators, of models that it saves now.

It is not among the required libraries: where it is not installed, nothing is compared.
"""

from __future__ import annotations

import numpy as np
import pytest

import pparse

paddle = pytest.importorskip("paddle")


class Net(paddle.nn.Layer):
    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.embedding = paddle.nn.Embedding(20, 6)
        self.register_buffer("ids", paddle.arange(5, dtype="int64"))
        # It writes its running mean again; it is not there for half precision.
        self.norm = paddle.nn.BatchNorm1D(6, data_format="NLC") if dtype == "float32" else paddle.nn.Identity()
        self.linear = paddle.nn.Linear(6, 2)
        self.embedding.to(dtype=dtype)
        self.linear.to(dtype=dtype)

    def forward(self, x):
        return paddle.nn.functional.softmax(self.linear(self.norm(self.embedding(x + self.ids))))


class Control(Net):
    def forward(self, x):
        made, number = super().forward(x), paddle.zeros([1], "int64")
        while number < x.sum():
            made, number = made + self.linear.bias, number + 1
        if made.sum() > 0:
            made = paddle.concat([made, made * 2], axis=-1)
        else:
            made = paddle.concat([made, made - 1], axis=-1)
        return tuple(paddle.split(made, 2, axis=-1))


def loaded(stem, *, old):
    """Return the parameters and the operators as paddle loads them."""
    paddle.enable_static()
    executor, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.Scope()
    try:
        with paddle.static.scope_guard(scope):
            program = paddle.static.load_inference_model(str(stem), executor)[0]
            operators = program.global_block().ops
            if old:
                names = [one.name for one in program.list_vars() if one.persistable]
                names = [name for name in names if name not in ("feed", "fetch")]
            else:
                stored = [one for one in operators if one.name() == "builtin.parameter"]
                names = [one.attrs()["parameter_name"] for one in stored]
                operators = list(edges_of(program.global_block()))
            found = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
            return found, [one.type for one in operators] if old else operators
    finally:
        paddle.disable_static()


def edges_of(block, *, around=()):
    """Yield each operator, and for each value that it reads which one, and which of its results, makes it."""
    places = list(around)
    for at, operator in enumerate(block.ops):
        made = operator.results()
        yield (
            operator.name(),
            [next((place for one, place in places if one.is_same(read)), None) for read in operator.operands_source()],
            len(made),
        )
        places += [(one, (at, number)) for number, one in enumerate(made)]


def edges_in(graph):
    """Yield the same of a graph of ours."""
    places = {}
    for at, (_, _, op, inputs, _, _, outputs) in enumerate(graph.rows()):
        yield op, [places.get(name) for name in inputs], len(outputs)
        places |= {name: (at, number) for number, name in enumerate(outputs)}


def compare(stem, suffix, wanted):
    for path in (f"{stem}{suffix}", f"{stem}.pdiparams"):
        with pparse.view(path) as model:
            found = {name: tensor.numpy() for name, tensor in model.items()}
            assert not list(model.check())
        assert found.keys() == wanted.keys()
        assert all(found[name].shape == one.shape for name, one in wanted.items())
        assert all(found[name].tobytes() == one.tobytes() for name, one in wanted.items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parameters_and_operators_are_those_that_paddle_loads(tmp_path, dtype):
    net, given = Net(dtype), [paddle.static.InputSpec([None, 5], "int64", "x")]
    net.eval()
    stem = tmp_path / "new"
    paddle.jit.save(net, str(stem), input_spec=given)
    wanted, operators = loaded(stem, old=False)
    compare(stem, ".json", wanted)
    with pparse.view(f"{stem}.json") as model:
        assert list(edges_in(model.graph)) == operators
        assert not list(model.graph.check())
    stem = tmp_path / "old"
    with paddle.pir_utils.OldIrGuard():
        paddle.jit.save(net, str(stem), input_spec=given)
        wanted, operators = loaded(stem, old=True)
    compare(stem, ".pdmodel", wanted)
    with pparse.view(f"{stem}.pdmodel") as model:
        assert [row[2] for row in model.graph.rows()] == operators
        assert not list(model.graph.check())


def test_blocks_in_operators_are_those_that_paddle_loads(tmp_path):
    net = Control("float32")
    net.eval()
    given = [paddle.static.InputSpec([None, 5], "int64", "x")]
    stem = tmp_path / "control"
    paddle.jit.save(paddle.jit.to_static(net, full_graph=True, input_spec=given), str(stem))
    wanted, operators = loaded(stem, old=False)
    compare(stem, ".json", wanted)
    with pparse.view(f"{stem}.json") as model:
        graph = model.graph
        assert list(edges_in(graph)) == operators
        blocks = []
        paddle.enable_static()
        try:
            program = paddle.static.load_inference_model(str(stem), paddle.static.Executor(paddle.CPUPlace()))[0]
            for operator in program.global_block().ops:
                blocks += [[one.name() for one in block.ops] for block in operator.blocks()]
        finally:
            paddle.disable_static()
        assert [[row[2] for row in body.rows()] for body in graph.bodies.values()] == blocks
        assert len(blocks) == 3
        assert not list(graph.check())


def test_a_file_for_each_parameter_is_as_paddle_writes_it(tmp_path):
    net = Net("float32")
    net.eval()
    stem = tmp_path / "old"
    with paddle.pir_utils.OldIrGuard():
        paddle.jit.save(net, str(stem), input_spec=[paddle.static.InputSpec([None, 5], "int64", "x")])
        wanted, _ = loaded(stem, old=True)
        paddle.enable_static()
        try:
            executor = paddle.static.Executor(paddle.CPUPlace())
            program = paddle.static.load_inference_model(str(stem), executor)[0]
            paddle.distributed.io.save_persistables(executor, str(tmp_path / "apart"), program)
        finally:
            paddle.disable_static()
    stem.with_suffix(".pdmodel").rename(tmp_path / "apart" / "__model__")
    with pparse.view(tmp_path / "apart") as model:
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == {
            name: one.tobytes() for name, one in wanted.items()
        }
        assert not list(model.check())
