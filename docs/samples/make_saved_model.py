"""Write the SavedModel ``saved-model``: ``python make_saved_model.py`` (package tensorflow)."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

HERE = Path(__file__).resolve().parent / "saved-model"


class Module(tf.Module):
    """A layer, strings, a counter, a table with an asset; two functions with several ways to call them."""

    def __init__(self, vocabulary: Path) -> None:
        super().__init__(name="my")
        self.dense = tf.Module(name="dense")
        self.dense.kernel = tf.Variable(np.arange(12, dtype="f4").reshape(4, 3), name="dense/kernel")
        self.dense.bias = tf.Variable(np.zeros(3, "f4"), name="dense/bias")
        self.words = tf.Variable([b"ab", b"cde"], name="words")
        self.step = tf.Variable(3, dtype=tf.int64, trainable=False, name="step")
        vocabulary.write_text("a\nb\n")
        of = tf.lookup.TextFileIndex
        lines = tf.lookup.TextFileInitializer(str(vocabulary), tf.string, of.WHOLE_LINE, tf.int64, of.LINE_NUMBER)
        self.table = tf.lookup.StaticHashTable(lines, -1)

    @tf.function
    def serve(self, x, w):
        rows = tf.constant(np.arange(30, dtype="f4").reshape(10, 3))
        return {"y": x @ self.dense.kernel + self.dense.bias + rows[0], "ids": self.table.lookup(w)}

    @tf.function
    def call(self, x, training=False, *, scale=1.5, names=("a", "b")):
        y = x @ self.dense.kernel * scale
        return (y, {"t": y + 1}) if training else (y, {"t": y - 1})


def main() -> None:
    os.chdir(HERE)  # the path of the file gets into the model
    module = Module(Path("vocab.txt"))
    spec = tf.TensorSpec([None, 4], tf.float32)
    words = tf.TensorSpec([None], tf.string, name="w")
    serve = module.serve.get_concrete_function(tf.TensorSpec([None, 4], tf.float32, name="x"), words)
    module.call.get_concrete_function(spec)
    module.call.get_concrete_function(tf.TensorSpec([2, 4], tf.float32), training=True, names=["x", 3, None])
    module.call.get_concrete_function(tf.TensorSpec([4, 4], tf.float32), scale=2)
    tf.saved_model.save(module, str(HERE), signatures={"serving_default": serve})
    (HERE / "vocab.txt").unlink()


if __name__ == "__main__":
    main()
