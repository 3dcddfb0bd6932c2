"""Checkpoints as TensorFlow writes them today, of both versions, against what it reads from them."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

import pparse

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1

TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16")
# What a file of version 1 cannot hold.
NEWER = ("u4", "u8")


def variables(types: tuple[str, ...]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    found = {f"all/{code.strip('?') or 'bool'}": (random.normal(size=(3, 5)) * 50).astype(code) for code in types}
    found["text"] = np.array([[b"x", b""], [b"\xff\0", b"long" * 900]], object)
    found["scalar"] = np.float32(2.5)
    found["empty"] = np.zeros((0, 4), "f4")
    return found


def save(prefix: str, version: int, **how: object) -> dict[str, np.ndarray]:
    """Save by name, with two variables in parts; return what TensorFlow reads back."""
    with tf1.Graph().as_default(), tf1.Session() as session:
        for name, value in variables(TYPES if version == 2 else tuple(t for t in TYPES if t not in NEWER)).items():
            dtype = tf.string if value.dtype == object else None
            tf1.get_variable(name, initializer=tf.constant(value, dtype), use_resource=False)
        rows = tf1.get_variable("rows", shape=(10, 4), partitioner=tf1.fixed_size_partitioner(3))
        columns = tf1.get_variable("columns", shape=(4, 9), partitioner=tf1.fixed_size_partitioner(2, axis=1))
        session.run(tf1.global_variables_initializer())
        saver = tf1.train.Saver(write_version=version, **how)
        path = saver.save(session, prefix)
        values = {one.op.name: session.run(one) for one in tf1.global_variables() if "part_" not in one.name}
        values |= {part.name: session.run(tf.convert_to_tensor(part)) for part in (rows, columns)}
        return path, values


def compare(model, wanted: dict[str, np.ndarray]) -> None:
    assert set(model) == set(wanted)
    for name, value in wanted.items():
        got = model[name].numpy()
        if model[name].is_text:
            assert np.asarray(got, object).ravel().tolist() == np.asarray(value, object).ravel().tolist()
        else:
            assert (got.dtype, got.shape, got.tobytes()) == (value.dtype, value.shape, value.tobytes()), name


@pytest.mark.parametrize("how", [{}, {"sharded": True}])
def test_every_type_of_version_2(tmp_path, how):
    _, wanted = save(str(tmp_path / "m.ckpt"), 2, **how)
    for path in (tmp_path, tmp_path / "checkpoint", tmp_path / "m.ckpt"):
        with pparse.view(path) as model:
            compare(model, wanted)
            assert not [finding for finding in model.check() if finding.severity.value != "note"]


@pytest.mark.parametrize("how", [{}, {"sharded": True}])
def test_every_type_of_version_1(tmp_path, how):
    _, wanted = save(str(tmp_path / "m.ckpt"), 1, **how)
    file = next(path for path in tmp_path.glob("m.ckpt*") if path.suffix != ".meta")
    for path in (file, tmp_path / "checkpoint"):
        with pparse.view(path) as model:
            compare(model, wanted)
            assert not list(model.check())


def test_an_object_based_checkpoint_has_the_names_and_the_slots_of_the_program(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="d1")])
    model.compile("adam", "mse")
    model.fit(np.zeros((8, 8), "f4"), np.ones((8, 4), "f4"), verbose=0)
    prefix = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
    reader = tf.train.load_checkpoint(prefix)
    with pparse.view(tmp_path) as found:
        assert {tensor.key or tensor.name for tensor in found.values()} == set(reader.get_variable_to_shape_map())
        for weight in model.weights:
            assert found[weight.path].numpy().tobytes() == weight.numpy().tobytes()
        for variable in model.optimizer.variables:
            name = variable.path.replace("/", "_").replace("adam_", "adam/", 1)
            tensor = found.find(variable.path) or found[name]
            assert tensor.numpy().tobytes() == np.asarray(variable).tobytes()
