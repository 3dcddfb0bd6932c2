"""Run by a Python that has TensorFlow: writes a graph of constants, and the values that TensorFlow gives them.

``graph.pb``; ``values.npz``: the bytes of each constant as tf.io.parse_tensor (C++) reads it, as ``name``, and as
tf.make_ndarray (Python) does, as ``name|py``; ``facts.json``: dtype and shape of each, or None where C++ refuses it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

folder = Path(sys.argv[1])
graph = tf.compat.v1.GraphDef()
facts, values = {}, {}
random = np.random.default_rng(7)
SHAPES = ((), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 2), (2, 1, 2, 3, 1), (0, 3))
FIELDS = {
    1: "float_val",
    2: "double_val",
    8: "scomplex_val",
    9: "int64_val",
    10: "bool_val",
    14: "half_val",
    18: "dcomplex_val",
    19: "half_val",
    22: "uint32_val",
    23: "uint64_val",
}
RANGES = {
    29: (-8, 8),
    30: (0, 16),
    31: (-2, 2),
    32: (0, 4),
    6: (-128, 128),
    11: (-128, 128),
    5: (-30_000, 30_000),
    15: (-30_000, 30_000),
    14: (0, 65_536),
    19: (0, 65_536),
}


def add(name, proto):
    node = graph.node.add(name=name, op="Const")
    node.attr["value"].tensor.CopyFrom(proto)
    try:
        found = tf.io.parse_tensor(proto.SerializeToString(), proto.dtype).numpy()
    except Exception:
        facts[name] = None
        return
    facts[name] = [found.dtype.name, list(found.shape)]
    values[name] = np.frombuffer(found.tobytes(), "u1")
    try:
        values[f"{name}|py"] = np.frombuffer(tf.make_ndarray(proto).tobytes(), "u1")
    except Exception:  # too many values, or a type that it does not know
        pass


def listed(number, count):
    field = FIELDS.get(number, "float8_val" if 24 <= number <= 28 or number == 33 else "int_val")
    low, high = RANGES.get(number, (0, 120))
    drawn = random.integers(low, high, count * (2 if "complex" in field else 1))
    if field == "float8_val":
        return {field: drawn.astype("u1").tobytes()}
    return {field: [bool(n % 2) if field == "bool_val" else n for n in drawn.tolist()]}


for number in (*range(1, 7), *range(8, 20), *range(22, 34)):
    for shape in SHAPES:
        dtype = tf.dtypes.as_dtype(number)
        low, high = RANGES.get(number, (0, 120))
        drawn = random.integers(0 if number in (14, 19) else low, min(high, 120), shape)
        label = f"d{number}_{len(shape)}{'e' if 0 in shape else ''}"
        try:
            array = np.asarray(drawn).astype(dtype.as_numpy_dtype)
            add(f"{label}_made", tf.make_tensor_proto(array, dtype=dtype, shape=shape))
        except (TypeError, ValueError):  # a type that make_tensor_proto does not write
            pass
    for count in (0, 1, 3, 6, 8):
        made = tf.make_tensor_proto(0.0)
        made.Clear()
        made = type(made)(dtype=number, **listed(number, count))
        made.tensor_shape.dim.add(size=2)
        made.tensor_shape.dim.add(size=3)
        add(f"d{number}_listed{count}", made)
    made = type(made)(dtype=number, tensor_content=b"\1" * 5)
    made.tensor_shape.dim.add(size=7)
    add(f"d{number}_short", made)
(folder / "graph.pb").write_bytes(graph.SerializeToString())
(folder / "facts.json").write_text(json.dumps(facts))
np.savez(folder / "values.npz", **values)
