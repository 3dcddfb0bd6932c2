"""Samples: a checkpoint of flax, which is MessagePack; and a file of before there were texts and bytes."""

from __future__ import annotations

import random
from math import prod
from struct import pack
from typing import Any

from tests.msgpack_samples import encode
from tests.truth.known import Sample, Value, mixed, sample

SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "uint8": 1, "float64": 8, "bool": 1}


def nested(first: int, count: int, width: int) -> dict[str, Any]:
    """Return types and shapes of some layers of a model, as flax nests them."""
    layers = {
        f"Dense_{number}": {
            "kernel": ("float32", [width, width]),
            "bias": ("float16", [width]),
            "mask": ("bool", [width, 3]),
            "mlp": {"kernel": ("bfloat16", [width, 4 * width]), "ids": ("int64", [width])},
            "scale": ("float64", []),
        }
        for number in range(first, first + count)
    }
    return {"params": {"wte": ("float32", [64, 48]), **layers}, "wpe": ("uint8", [100, 17]), "step": 7}


def written(tree: dict[str, Any], rng: random.Random) -> tuple[bytes, dict[str, Value]]:
    """Return a file of this tree, and its values by name."""
    out, values = bytearray(), {}
    stack: list[tuple[str, Any]] = [("", tree)]
    while stack:
        name, part = stack.pop()
        out += encode(name.rpartition(".")[2]) if name else b""
        if isinstance(part, dict):
            out += b"\xde" + pack(">H", len(part))
            stack += [(f"{name}.{key}" if name else key, kid) for key, kid in reversed(part.items())]
            continue
        if not isinstance(part, tuple):
            out += encode(part)
            continue
        dtype, shape = part
        content = mixed(rng, prod(shape) * SIZES[dtype], len(values))
        if dtype == "bool":
            content = bytes(byte & 1 for byte in content)
        head = b"\x93" + encode(shape) + encode(dtype) + b"\xc6" + pack(">I", len(content))
        before = len(out)
        out += b"\xc9" + pack(">Ib", len(head) + len(content), 1) + head
        values[name] = Value(content, (len(out), len(out) + len(content)), ((before, len(out)),))
        out += content
    return bytes(out), values


@sample
def make_flax() -> Sample:
    content, values = written(nested(0, 4, 40), random.Random(51))
    landmarks = (8, *(place for value in values.values() for place in value.place))
    return Sample("flax", "flax_model.msgpack", content, "tensors", values, "stream", landmarks)


@sample
def make_msgpack_old() -> Sample:
    """A map of before 2013: what came to be texts are bytes of any kind, and those of 32 to 255 take 16 bits."""
    rng = random.Random(53)
    contents = [mixed(rng, rng.choice((20, 60, 200, 3_000, 70_000)), number) for number in range(24)]
    out, values = bytearray(b"\xde" + pack(">H", len(contents))), {}
    for number, content in enumerate(contents):
        before, size = len(out), len(content)
        out += encode(f"block {number}")
        out += (
            bytes((0xA0 | size,))
            if size < 32
            else b"\xda" + pack(">H", size)
            if size < 1 << 16
            else b"\xdb" + pack(">I", size)
        )
        values[f"block {number}"] = Value(content, (len(out), len(out) + size), ((0, 3), (before, len(out))))
        out += content
    landmarks = (3, *dict.fromkeys(place for value in values.values() for place in value.place))
    return Sample("msgpack-old", "old.msgpack", bytes(out), "keys", values, "stream", landmarks)
