"""Write the checkpoints of this folder: ``python make.py`` (package tensorflow), and ``expected.json`` beside them.

``expected.json`` has, per checkpoint and key, what ``tf.train.load_checkpoint`` returns: dtype, shape and the bytes of
the array as hex, or a list of strings as hex.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
FOLDER = FOLDER if FOLDER.is_dir() else FOLDER.parent
tf1 = tf.compat.v1


def save(prefix: str, names: list[str], tensors: list, slices: list[str] | None = None) -> None:
    """Save tensors by name, as parts of larger ones where ``slices`` says so."""
    tf.raw_ops.SaveV2(
        prefix=str(FOLDER / prefix),
        tensor_names=names,
        shape_and_slices=slices or [""] * len(names),
        tensors=tensors,
    )


def make_object() -> None:
    """The object-based checkpoint of a module."""
    module = tf.Module()
    module.w = tf.Variable(np.arange(20, dtype="f4").reshape(4, 5))
    module.layers = [tf.Variable(tf.ones((2, 2), tf.bfloat16)), tf.Variable([True, False])]
    module.words = tf.Variable([b"ab", b"cde"])
    module.step = tf.Variable(3, dtype=tf.int64)
    tf.train.Checkpoint(model=module).write(str(FOLDER / "object"))


def make_dtypes() -> None:
    """Every dtype that can be saved; empty tensors and scalars."""
    names = [
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e5m2",
        "qint8",
        "quint8",
        "qint32",
        "qint16",
        "quint16",
        "int4",
        "uint4",
    ]
    kept, tensors = [], []
    for name in names:
        dtype = getattr(tf, name, None) or getattr(tf.dtypes.experimental, name)
        values = np.array([0, 1, 2, 3, 1, 0]).reshape(2, 3)
        try:
            made = (
                tf.quantization.quantize(values.astype("f4"), 0, 3, dtype).output
                if name[0] == "q" or name[:2] == "qu"
                else tf.cast(tf.constant(values), dtype)
            )
            save("try", [name], [made])
        except (tf.errors.OpError, TypeError, ValueError) as error:
            print(name, "is not saved:", str(error).splitlines()[0][:80])
            continue
        kept.append(name)
        tensors.append(made)
    for path in FOLDER.glob("try.*"):
        path.unlink()
    save(
        "dtypes",
        [*kept, "scalar", "empty", "strings", "no strings", "long string", "empty string"],
        [
            *tensors,
            tf.constant(-7, tf.int32),
            tf.zeros((0, 3)),
            tf.constant([[b"a", b"", b"\0\xff"], ["ä", b"b" * 200, b"c"]]),
            tf.constant([], tf.string, shape=(0,)),
            tf.constant(b"x" * 300),
            tf.constant(b""),
        ],
    )


def make_parts() -> None:
    """Partitioned tensors: by rows, by both dimensions; names with zeros and 255 are escaped in their keys."""
    rows = np.arange(40, dtype="f4").reshape(10, 4)
    both = np.arange(42, dtype="i8").reshape(6, 7)
    save(
        "parts",
        ["rows"] * 3 + ["both"] * 4 + ["whole"],
        [rows[:4], rows[4:7], rows[7:], both[:2, :3], both[:2, 3:], both[2:, :3], both[2:, 3:], rows],
        ["10 4 0,4:-", "10 4 4,3:-", "10 4 7,3:-"]
        + ["6 7 0,2:0,3", "6 7 0,2:3,4", "6 7 2,4:0,3", "6 7 2,4:3,4"]
        + [""],
    )


def make_shards() -> None:
    """Three data files, merged as the sharded saver does."""
    prefixes = []
    for number in range(3):
        prefixes.append(str(FOLDER / f"part-{number}"))
        values = [tf.fill((number + 1, 2), float(number)), tf.constant([number] * 3, tf.int16)]
        save(f"part-{number}", [f"layer{number}/kernel", f"layer{number}/bias"], values)
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=prefixes, destination_prefix=str(FOLDER / "shards"), delete_old_dirs=False
    )


def make_version1() -> dict:
    """Every dtype that a file of version 1 can have, and tensors in parts; return what TensorFlow restores."""
    path = str(FOLDER / "version1.ckpt")
    values = np.array([0, 1, 2, 3, 1, 0]).reshape(2, 3)
    names, slices, tensors = [], [], []
    kinds = (
        "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128 bfloat16"
    )
    for name in [*kinds.split(), "qint8", "quint8", "qint32", "qint16", "quint16"]:
        dtype = getattr(tf, name)
        try:
            quantised = name[0] == "q"
            made = (
                tf.quantization.quantize(values.astype("f4"), 0, 3, dtype).output
                if quantised
                else tf.cast(tf.constant(values), dtype)
            )
            tf.raw_ops.SaveSlices(filename=path, tensor_names=[name], shapes_and_slices=[""], data=[made])
            tf.raw_ops.Restore(file_pattern=path, tensor_name=name, dt=dtype)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            print(name, "is not saved in version 1:", str(error).splitlines()[0][:80])
            continue
        names.append(name), slices.append(""), tensors.append(made)
    rows = np.arange(40, dtype="f4").reshape(10, 4)
    both = np.arange(-20, 22, dtype="i8").reshape(6, 7)
    words = np.array([[b"a", b"", b"\0\xff"], [b"b" * 200, b"c", b"d"]], object)
    for name, value, part in (
        ("scalar", np.int32(-7), ""),
        ("negative", np.array([-1, 1, -(1 << 62)], "i8"), ""),
        ("strings", words, ""),
        ("rows", rows[:4], "10 4 0,4:-"),
        ("rows", rows[4:], "10 4 4,6:-"),
        ("both", both[:2, :3], "6 7 0,2:0,3"),
        ("both", both[:2, 3:], "6 7 0,2:3,4"),
        ("both", both[2:, :3], "6 7 2,4:0,3"),
        ("both", both[2:, 3:], "6 7 2,4:3,4"),
        ("words in parts", words[:, :1], "2 3 -:0,1"),
        ("words in parts", words[:, 1:], "2 3 -:1,2"),
    ):
        names.append(name), slices.append(part), tensors.append(tf.constant(value))
    tf.raw_ops.SaveSlices(filename=path, tensor_names=names, shapes_and_slices=slices, data=tensors)
    types = {name: tensor.dtype for name, tensor in zip(names, tensors, strict=True)}
    found = {}
    for name, dtype in types.items():
        value = tf.raw_ops.Restore(file_pattern=path, tensor_name=name, dt=dtype).numpy()
        value = np.asarray(value, object) if dtype == tf.string else value
        content = [text.hex() for text in value.ravel().tolist()] if dtype == tf.string else value.tobytes().hex()
        found[name] = [dtype.name, list(value.shape), content]
    return found


def expected(prefix: str) -> dict:
    """Return what TensorFlow reads."""
    reader = tf.train.load_checkpoint(str(FOLDER / prefix))
    found = {}
    for key in sorted(reader.get_variable_to_shape_map()):
        value = np.asarray(reader.get_tensor(key))
        if reader.get_variable_to_dtype_map()[key] == tf.string:
            content = (
                [bytes(text).hex() for text in np.ravel(reader.get_tensor(key)).tolist()]
                if value.ndim
                else [reader.get_tensor(key).hex()]
            )
        else:
            content = value.tobytes().hex()
        found[key] = [reader.get_variable_to_dtype_map()[key].name, list(value.shape), content]
    return found


def main() -> None:
    """Write all."""
    for make in (make_object, make_dtypes, make_parts, make_shards):
        make()
    values = {prefix: expected(prefix) for prefix in ("object", "dtypes", "parts", "shards")}
    (FOLDER / "version1.json").write_text(json.dumps(make_version1(), indent=1) + "\n")
    (FOLDER / "expected.json").write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
