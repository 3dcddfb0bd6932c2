"""Make ``fingerprints/`` and ``farmhash_vectors.json`` beside this file: SavedModels, and what TensorFlow says of them.

Run it with a Python that has TensorFlow (2.21 made what is here), from the root of the checkout::

    PYTHONPATH=. python tests/data/tf/make_fingerprints.py
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from tensorflow.core.protobuf import fingerprint_pb2, saved_model_pb2
from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

from pparse.riegeli import RecordWriter

HERE = Path(__file__).resolve().parent
OUT = HERE / "fingerprints"
FLOATS = tf.TensorSpec([None, 4], tf.float32)
HASHES = (
    "saved_model_checksum",
    "graph_def_program_hash",
    "signature_def_hash",
    "saved_object_graph_hash",
    "checkpoint_hash",
)


# -- models ------------------------------------------------------------------------------------------------------------


class Empty(tf.Module):
    pass


class Dense(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.ones([4, 3]), name="w")
        self.b = tf.Variable(tf.zeros([3]))

    @tf.function(input_signature=[FLOATS])
    def serve(self, x):
        return {"y": tf.nn.relu(x @ self.w + self.b)}

    @tf.function(input_signature=[FLOATS, tf.TensorSpec([], tf.int32)])
    def other(self, x, n):
        return {"z": tf.reduce_sum(x) * tf.cast(n, tf.float32), "n": n + 1}


class Flow(tf.Module):
    def __init__(self):
        self.count = tf.Variable(0, dtype=tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def loop(self, n):
        i = tf.constant(0)
        total = tf.constant(0)
        while i < n:
            if i % 2 == 0:
                total += self.square(i)
            else:
                total -= 1
            i += 1
        self.count.assign_add(1)
        return total

    @tf.function
    def square(self, x):
        return x * x


class Strings(tf.Module):
    def __init__(self):
        words = tf.lookup.KeyValueTensorInitializer(["a", "b", "hello"], [1, 2, 3], value_dtype=tf.int64)
        self.table = tf.lookup.StaticHashTable(words, -1)
        self.kept = tf.constant(["x", "yy"])
        self.parts = [tf.Variable(1.0), {"k": tf.Variable("text")}]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def look(self, words):
        return {"r": self.table.lookup(tf.strings.join([words, "!"])), "k": tf.strings.join([self.kept, "z"])}


class Gradient(tf.Module):
    def __init__(self):
        self.v = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def slope(self, x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(x * self.v**2)
        return tape.gradient(y, self.v)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def mapped(self, x):
        branches = [lambda: 1, lambda: 2]
        return tf.map_fn(lambda one: one * 2, x), tf.switch_case(tf.cast(x[0], tf.int32), branches)


class Constants(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([], tf.float64)])
    def scaled(self, x):
        large = tf.reshape(tf.constant([float(i) for i in range(200)], tf.float64), [10, 20])
        return x * large, tf.constant([True, False]), tf.constant(list(range(-5, 20)))


def save_with_sessions(folder: str) -> None:
    """Save as TensorFlow 1 did: two meta graphs, constants of strings and a call of a function in the graph itself."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        y = tf.function(lambda v: v * 2)(tf.matmul(x, v1.get_variable("w", [2, 2])))
        tf.constant("text")
        tf.constant(["many", "strings"])
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(folder)
        info = v1.saved_model.utils.build_tensor_info
        signature = v1.saved_model.build_signature_def({"x": info(x)}, {"y": info(y)}, "tensorflow/serving/predict")
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.add_meta_graph(["serve", "gpu"], {"a": signature})
        builder.save()


def save_models(folder: Path) -> None:
    def save(name, module, **more):
        tf.saved_model.save(module, str(folder / name), **more)

    dense, flow, strings, gradient = Dense(), Flow(), Strings(), Gradient()
    save("empty", Empty())
    save("dense", dense, signatures={"serving_default": dense.serve, "other": dense.other, "Zed": dense.serve})
    save("flow", flow, signatures=flow.loop)
    save("strings", strings, signatures={"look": strings.look})
    save("gradient", gradient, signatures=gradient.slope)
    save("constants", Constants())
    save_with_sessions(str(folder / "sessions"))


# -- in chunks ---------------------------------------------------------------------------------------------------------

GRAPH = (2, "#0", 2)


def chunk_metadata():
    """Return a new ChunkMetadata: TensorFlow's Python has no class for it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    descriptors = (HERE.parent.parent.parent / "protos" / "descriptors.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    found = pool.FindMessageTypeByName("tensorflow.proto_splitter.ChunkMetadata")
    return message_factory.GetMessageClass(found)()


def chunked(folder: Path, root, entries) -> None:
    """Write a ``.cpb``; an entry is a tag, a chunk or None, and more entries below it."""
    metadata = chunk_metadata()
    metadata.version.splitter_version = 1
    metadata.message.chunk_index = 0
    folder.mkdir()
    with RecordWriter(str(folder / "saved_model.cpb"), options="uncompressed") as writer:

        def put(record: bytes) -> int:
            writer.write_record(record)
            metadata.chunks.add(type=1, size=len(record), offset=writer.last_pos.numeric)
            return len(metadata.chunks) - 1

        def fill(tree, entries) -> None:
            for tag, chunk, below in entries:
                field = tree.chunked_fields.add()
                for step in tag:
                    index = field.field_tag.add()
                    if isinstance(step, int):
                        index.field = step
                    elif step.startswith("#"):
                        index.index = int(step[1:])
                    else:
                        index.map_key.s = step
                if chunk is not None:
                    field.message.chunk_index = put(chunk)
                fill(field.message, below)

        put(root.SerializeToString())
        fill(metadata.message, entries)
        writer.write_record(metadata.SerializeToString())


def chunk_models(folder: Path) -> None:
    model = saved_model_pb2.SavedModel.FromString((folder / "dense" / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    slices = [type(graph)(node=graph.node[at : at + 4]) for at in range(4, len(graph.node), 4)]
    function = graph.library.function[0].SerializeToString()
    objects = type(model.meta_graphs[0].object_graph_def)(nodes=model.meta_graphs[0].object_graph_def.nodes[:3])
    del graph.node[4:]
    graph.library.function[0].Clear()
    flat = [
        ((), saved_model_pb2.SavedModel(saved_model_schema_version=1).SerializeToString(), []),
        *((GRAPH, one.SerializeToString(), []) for one in slices),
        ((*GRAPH, 2, 1, "#0"), function, []),
        ((*GRAPH, 1, "#1", 5, "value", 8, 4), bytes(range(100)), []),
        ((2, "#0", 7), objects.SerializeToString(), []),
        ((2, "#0", 5, "other"), b"", []),
        ((1,), b"17", []),
    ]
    nested = [
        (GRAPH, slices[0].SerializeToString(), [((), b"", []), ((2,), graph.library.SerializeToString(), [])]),
        (GRAPH, None, [((), b"", []), ((1, "#0"), b"below", [((), b"deeper", [])])]),
        ((2, "#0", 5, "Zed"), None, [((), b"one", []), ((3,), b"two", [])]),
        ((), b"", [((), b"not merged", [])]),
    ]
    # An entry without tag and chunk: what hangs below the entries of its tree counts, they themselves do not.
    bare = [
        (
            (),
            None,
            [
                ((*GRAPH, 1, "#0"), b"one", [((*GRAPH, 1, "#1"), b"deep", [])]),
                ((), b"two", []),
                ((2, "#0", 7, 1, "#0"), b"three", []),
            ],
        ),
        ((*GRAPH, 1, "#2"), b"", []),
    ]
    chunked(folder / "bare", model, bare)
    chunked(folder / "chunked", model, flat)
    chunked(folder / "nested", model, nested)


# -- what TensorFlow says ----------------------------------------------------------------------------------------------


def values(folder: Path) -> dict[str, object]:
    made = fingerprint_pb2.FingerprintDef.FromString(fingerprinting.CreateFingerprintDef(str(folder)))
    return {name: str(getattr(made, name)) for name in HASHES} | {"producer": made.version.producer}


def pattern(size: int) -> bytes:
    return bytes((i * i * 31 + i * 7 + (i >> 8) * 13 + 3) % 256 for i in range(size))


def vectors() -> dict[str, str]:
    sizes = [*range(301), 1000, 4095, 4096, 4097, 65536, 300_001]
    found = tf.fingerprint(tf.constant([[pattern(size)] for size in sizes]), method="farmhash64").numpy()
    return {
        str(size): f"{int.from_bytes(one.tobytes(), 'little'):016x}" for size, one in zip(sizes, found, strict=True)
    }


def main() -> None:
    expected = {}
    shutil.rmtree(OUT, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_models(folder)
        chunk_models(folder)
        for model in sorted(folder.iterdir()):
            expected[model.name] = values(model)
            (OUT / model.name / "variables").mkdir(parents=True)
            for kept in ("saved_model.pb", "saved_model.cpb", "variables/variables.index"):
                if (model / kept).exists():
                    shutil.copy(model / kept, OUT / model.name / kept)
            if not any((OUT / model.name / "variables").iterdir()):
                (OUT / model.name / "variables").rmdir()
            if model.name == "dense":
                shutil.copy(model / "fingerprint.pb", OUT / model.name)
    for model in ("const_chunked", "nodes_split_cc"):
        expected[f"../{model}"] = values(HERE / model)
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    (HERE / "farmhash_vectors.json").write_text(json.dumps(vectors(), indent=0) + "\n")


if __name__ == "__main__":
    sys.exit(main())
