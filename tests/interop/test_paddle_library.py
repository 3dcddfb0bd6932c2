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
            found = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
            return found, [one.type if old else one.name() for one in operators]
    finally:
        paddle.disable_static()


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
    compare(stem, ".json", loaded(stem, old=False)[0])
    stem = tmp_path / "old"
    with paddle.pir_utils.OldIrGuard():
        paddle.jit.save(net, str(stem), input_spec=given)
        wanted, operators = loaded(stem, old=True)
    compare(stem, ".pdmodel", wanted)
    with pparse.view(f"{stem}.pdmodel") as model:
        assert [row[2] for row in model.graph.rows()] == operators
        assert not list(model.graph.check())
