"""Writes the files of ``tests/data/msgpack`` with the real libraries: ``python tests/interop/make_msgpack_zoo.py``.

With flax 0.12.8, jax 0.10.2 and msgpack 1.2.4; ``expected.json`` has what they read again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import flax.serialization
import jax.numpy as jnp
import ml_dtypes
import msgpack
import numpy as np

FOLDER = Path(__file__).resolve().parent.parent / "data/msgpack"


def train_state() -> object:
    """Return what a training run saves: parameters, the optimizer's state, a step."""
    rng = np.random.default_rng(1)
    params = {
        f"Dense_{number}": {
            "kernel": rng.standard_normal((4, 3)).astype(np.float32),
            "bias": jnp.asarray(rng.standard_normal(3), jnp.bfloat16),
        }
        for number in range(2)
    }
    zeros = {
        name: {key: np.zeros(part.shape, np.float32) for key, part in layer.items()} for name, layer in params.items()
    }
    state = {"step": 3, "params": params, "opt_state": ({"count": np.int32(3), "mu": zeros}, None, [0.5, 1 + 2j])}
    return flax.serialization.to_state_dict(state)


def types() -> dict[str, object]:
    """Return an array of every type that flax can restore."""
    names = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
    names += ["float16", "float32", "float64", "complex64", "complex128"]
    found: dict[str, object] = {name: np.arange(6).reshape(2, 3).astype(name) for name in names}
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"):
        found[name] = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
    return {
        "types": found,
        "shapes": {"scalar": np.array(2.5), "empty": np.zeros((0, 4)), "deep": np.ones((1, 2, 1, 2, 1))},
    }


def chunked() -> dict[str, object]:
    """Return a tree with an array of several chunks, once ``MAX_CHUNK_SIZE`` is small."""
    return {"before": np.float32(0.25), "embedding": np.arange(60, dtype=np.int16).reshape(3, 20), "after": "text"}


def leaves(tree: object, name: str = "") -> dict[str, object]:
    """Return what is known of arrays by name: type, shape and the hash of the bytes."""
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        found: dict[str, object] = {}
        for key, part in items:
            found |= leaves(part, f"{name}.{key}" if name else str(key))
        return found
    if isinstance(tree, np.ndarray):
        return {name: [tree.dtype.name, list(tree.shape), hashlib.sha256(tree.tobytes()).hexdigest()]}
    return {}


def main() -> None:
    """Write the files."""
    expected = {}
    for name, tree in (("train_state", train_state()), ("types", types()), ("chunked", chunked())):
        if name == "chunked":
            flax.serialization.MAX_CHUNK_SIZE = 32
        content = flax.serialization.msgpack_serialize(tree)
        (FOLDER / f"{name}.msgpack").write_bytes(content)
        expected[f"{name}.msgpack"] = leaves(flax.serialization.msgpack_restore(content))
    plain = {
        "name": "plain",
        "when": msgpack.Timestamp(1_700_000_000, 123_456_789),
        "extension": msgpack.ExtType(9, b"abc"),
    }
    (FOLDER / "plain.msgpack").write_bytes(msgpack.packb(plain))
    expected["plain.msgpack"] = {}
    (FOLDER / "stream.mpk").write_bytes(b"".join(msgpack.packb(part) for part in ({"first": 1}, [2], "three")))
    expected["stream.mpk"] = {}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
