"""SavedModels as TensorFlow and Keras write them today: variables, signatures and functions against TensorFlow's own
loader, and what ``saved_model_cli`` is made of."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

import pparse

tf = pytest.importorskip("tensorflow")

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel  # noqa: E402
from tensorflow.python.saved_model import load, load_options, save  # noqa: E402

tf1 = tf.compat.v1


class Module(tf.Module):
    """Functions with all kinds of arguments, variables of several types, a table with an asset."""

    def __init__(self, folder) -> None:
        super().__init__(name="my")
        self.dense = tf.Module(name="dense")
        self.dense.kernel = tf.Variable(np.arange(12, dtype="f4").reshape(4, 3), name="dense/kernel")
        self.dense.bias = tf.Variable(np.zeros(3, "f2"), name="dense/bias")
        self.words = tf.Variable([b"ab", b"\xff", b""], name="words")
        self.step = tf.Variable(3, dtype=tf.int64, trainable=False, name="step")
        self.twins = [tf.Variable([1.0], name="twin"), tf.Variable([2.0], name="twin")]
        (folder / "vocab.txt").write_text("a\nb\n")
        lookup = tf.lookup
        self.table = lookup.StaticHashTable(
            lookup.TextFileInitializer(
                str(folder / "vocab.txt"),
                tf.string,
                lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                lookup.TextFileIndex.LINE_NUMBER,
            ),
            -1,
        )

    @tf.function
    def serve(self, x, w):
        return {"y": x @ self.dense.kernel, "ids": self.table.lookup(w)}

    @tf.function
    def call(self, x, training=False, *, scale=1.5, names=("a", "b"), nested=None):
        x = x["in"][0] if isinstance(x, dict) else x
        y = x @ self.dense.kernel * scale
        return (y, {"t": y + 1}) if training else (y, {"t": y - 1})

    @tf.function
    def ragged(self, r):
        return tf.reduce_sum(r)


def save_module(folder) -> None:
    module = Module(folder)
    spec = tf.TensorSpec([None, 4], tf.float32)
    serve = module.serve.get_concrete_function(
        tf.TensorSpec([None, 4], tf.float32, name="x"), tf.TensorSpec([None], tf.string, name="w")
    )
    module.call.get_concrete_function(spec)
    module.call.get_concrete_function(tf.TensorSpec([2, 4], tf.float32), training=True, names=["x", 3, None])
    module.call.get_concrete_function({"in": [spec, tf.TensorSpec(None, tf.int8)]}, nested={"k": (1, 2.5), "e": ()})
    module.ragged.get_concrete_function(tf.RaggedTensorSpec([None, None], tf.float32))
    tf.saved_model.save(module, str(folder / "model"), signatures={"serving_default": serve, "other": serve})


def save_keras(folder) -> None:
    import keras

    layers = [keras.Input((8,)), keras.layers.Dense(4, name="d1"), keras.layers.BatchNormalization()]
    keras.Sequential(layers).export(str(folder / "model"), verbose=False)


def save_tf1(folder) -> None:
    with tf1.Graph().as_default(), tf1.Session() as session:
        parts = tf1.fixed_size_partitioner(3)
        weight = tf1.get_variable("part", shape=(10, 4), partitioner=parts, use_resource=False)
        tf1.get_variable("text", initializer=np.array([b"x", b"yy"], object), dtype=tf.string)
        x = tf1.placeholder(tf.float32, (None, 10), name="x")
        y = tf.matmul(x, tf.convert_to_tensor(weight), name="y")
        session.run(tf1.global_variables_initializer())
        signature = tf1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder = tf1.saved_model.Builder(str(folder / "model"))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map={"serving_default": signature})
        builder.add_meta_graph(["serve", "gpu"], signature_def_map={"serving_default": signature, "more": signature})
        builder.save()


MAKERS = {"module": save_module, "keras": save_keras, "tf1": save_tf1}


@pytest.fixture(scope="module", params=MAKERS)
def folder(request, tmp_path_factory):
    found = tmp_path_factory.mktemp(request.param)
    MAKERS[request.param](found)
    return found / "model"


def test_every_variable_is_what_tensorflow_reads(folder):
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    with pparse.view(folder) as model:
        keys = {tensor.key or tensor.name: tensor for tensor in model.variables.values()}
        assert set(keys) == set(reader.get_variable_to_shape_map())
        for key, tensor in keys.items():
            wanted = reader.get_tensor(key)
            assert model[tensor.name].key == tensor.key
            got = tensor.numpy()
            if tensor.is_text:
                assert np.asarray(got, object).ravel().tolist() == np.asarray(wanted, object).ravel().tolist()
            else:
                assert (got.shape, got.tobytes()) == (wanted.shape, wanted.tobytes()), key
        assert not list(model.check())


def test_variables_have_the_names_of_the_program(folder):
    names = {"module": "dense/kernel", "keras": "sequential/d1/kernel", "tf1": "part"}
    name = next(name for kind, name in names.items() if kind in str(folder))
    with pparse.view(folder) as model:
        assert name.rpartition("/")[2] in {one.rpartition("/")[2] for one in model}
        if "module" in str(folder):
            assert model["dense/kernel"].numpy().tolist() == np.arange(12).reshape(4, 3).tolist()
            assert {model["twins/0"].numpy()[0], model["twins/1"].numpy()[0]} == {1.0, 2.0}


def test_signatures_are_those_of_the_message(folder):
    message = SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    with pparse.view(folder) as model:
        interface = model.interface()
    assert [found["tags"] for found in interface] == [list(graph.meta_info_def.tags) for graph in message.meta_graphs]
    types = tf.dtypes.DType
    for found, graph in zip(interface, message.meta_graphs, strict=True):
        assert set(found["signatures"]) == set(graph.signature_def)
        for name, wanted in graph.signature_def.items():
            signature = found["signatures"][name]
            assert signature["method_name"] == wanted.method_name
            for side in ("inputs", "outputs"):
                assert set(signature[side]) == set(getattr(wanted, side))
                for key, info in getattr(wanted, side).items():
                    shape = None if info.tensor_shape.unknown_rank else [dim.size for dim in info.tensor_shape.dim]
                    told = signature[side][key]
                    assert (told["tensor"], told["shape"]) == (info.name, shape)
                    assert told["dtype"] in (None, types(info.dtype).name if info.dtype else None)


def loaded_functions(folder) -> dict[str, list]:
    """Return what ``saved_model_cli show`` lists: the functions among the children of the loaded object."""
    with tf1.Graph().as_default():
        options = load_options.LoadOptions(experimental_skip_checkpoint=True)
        loaded = load.load(str(folder), options=options)
        children = save._AugmentedGraphView(loaded).list_children(loaded)
        found = {}
        for name, child in children:
            if hasattr(child, "_list_all_concrete_functions_for_serialization"):
                ways = child._list_all_concrete_functions_for_serialization()
                found[name] = [way.structured_input_signature for way in ways]
        return found


def said(value: object) -> str:
    """Return the text of an argument; dicts, whose order the file does not keep, by their keys."""
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {said(value[key])}" for key in sorted(value)) + "}"
    if type(value) is list:
        return f"[{', '.join(map(said, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(said, value))}{',' * (len(value) == 1)})"
    return repr(value)


def test_functions_are_callable_with_what_tensorflow_says(folder):
    if "tf1" in str(folder):
        with pparse.view(folder) as model:
            assert model.functions == {}
        return
    wanted = {
        name: sorted(
            ([said(value) for value in arguments], {key: said(value) for key, value in sorted(keywords.items())})
            for arguments, keywords in ways
        )
        for name, ways in loaded_functions(folder).items()
    }
    with pparse.view(folder) as model:
        found = {
            name: sorted((list(way.arguments.values()), dict(sorted(way.keywords.items()))) for way in ways)
            for name, ways in model.functions.items()
        }
    assert {name: ways for name, ways in found.items() if ways} == {name: ways for name, ways in wanted.items() if ways}


def test_convert_holds_every_number(folder, tmp_path):
    from safetensors.numpy import load_file

    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    with pparse.view(folder) as model:
        numbers = {tensor.name: tensor.key or tensor.name for tensor in model.variables.values() if not tensor.is_text}
        pparse.convert(model, tmp_path / "m.safetensors", skip_unsupported=True)
    saved = load_file(tmp_path / "m.safetensors")
    for name, key in numbers.items():
        assert saved[name].tobytes() == reader.get_tensor(key).tobytes()
