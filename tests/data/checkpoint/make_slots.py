"""Write ``slots/`` and ``../keras2/`` with TensorFlow and tf_keras: ``python make_slots.py`` (package tf_keras).

``slots.json`` and ``keras2.json`` have, by the name of each variable: its key, dtype, shape, and the bytes of the array
as hex, as ``tf.train.load_checkpoint`` returns them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

HERE = Path(__file__).resolve().parent


def trained(layers: list, optimizer: object) -> keras.Sequential:
    """Return a model whose optimizer has slots."""
    model = keras.Sequential([keras.layers.Input((8,)), *layers])
    model.compile(optimizer, "mse")
    random = np.random.default_rng(1)
    shape = (8, model.output_shape[-1])
    model.fit(random.normal(size=(8, 8)).astype("f4"), random.normal(size=shape).astype("f4"), verbose=0)
    return model


def expect(prefix: Path, target: Path) -> None:
    """Write what TensorFlow reads."""
    reader = tf.train.load_checkpoint(str(prefix))
    graph = TrackableObjectGraph.FromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    found = {}
    for node in graph.nodes:
        for attribute in node.attributes:
            value = reader.get_tensor(attribute.checkpoint_key)
            known = [attribute.checkpoint_key, str(value.dtype), list(value.shape), value.tobytes().hex()]
            found[attribute.full_name] = known
    target.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    """Write both."""
    if "expect" not in sys.argv:
        dense = keras.layers.Dense
        layers = [dense(4, activation="relu"), keras.layers.BatchNormalization(), dense(2, name="out")]
        model = trained(layers, keras.optimizers.legacy.Adam())
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        manager = tf.train.CheckpointManager(checkpoint, str(HERE / "slots"), max_to_keep=3)
        manager.save()
        manager.save()
        trained([dense(4)], "adam").save(str(HERE.parent / "keras2"), save_format="tf")
    expect(HERE / "slots" / "ckpt-2", HERE / "slots.json")
    expect(HERE.parent / "keras2" / "variables" / "variables", HERE / "keras2.json")


if __name__ == "__main__":
    main()
