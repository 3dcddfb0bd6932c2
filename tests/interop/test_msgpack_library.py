"""What we read of MessagePack is what the package msgpack reads, and of checkpoints what flax does, bit by bit."""

from __future__ import annotations

import importlib
import os

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pparse
from pparse import Status
from pparse.parsers.msgpack.parser import Timestamp
from tests import sweep


def library(name):
    """Import what we are compared with; without it skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


msgpack = library("msgpack")

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(width=32)
    | st.floats(-(2.0**100), 2.0**100)
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20))
    | st.builds(msgpack.Timestamp, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 10**9 - 1))
    | st.builds(msgpack.Timestamp, st.integers(0, (1 << 34) - 1), st.integers(0, 10**9 - 1))
    | st.builds(msgpack.Timestamp, st.integers(0, (1 << 32) - 1))
)
NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(width=32, allow_nan=False)
KEYS = st.text(max_size=40) | st.binary(max_size=9) | st.none() | NUMBERS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(KEYS, inner, max_size=20),
    max_leaves=60,
)


def plain(value):
    """Return what the library made, as our nodes have it."""
    if isinstance(value, msgpack.ExtType):
        return value.data
    if isinstance(value, msgpack.Timestamp):
        return Timestamp(value.seconds, value.nanoseconds)
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list) else value


@settings(max_examples=sweep.examples(80))
@given(VALUES, st.booleans(), st.sampled_from([0, 1, 7, 100]))
def test_every_value_is_that_of_msgpack(value, single, block_size):
    content = msgpack.packb(value, use_single_float=single)
    wanted = plain(msgpack.unpackb(content, strict_map_key=False))
    with pparse.open(content, format="msgpack", options={"documents": "many"}, block_size=block_size) as document:
        assert repr(document.root.to_python()) == repr([wanted])
        assert not list(document.check())
        assert document.root.status is Status.COMPLETE


@settings(max_examples=sweep.examples(60))
@given(st.lists(VALUES, min_size=1, max_size=5))
def test_a_stream_is_what_an_unpacker_yields(values):
    content = b"".join(map(msgpack.packb, values))
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(content)
    with pparse.open(content, format="msgpack", options={"documents": "many"}) as document:
        assert repr(document.root.to_python()) == repr([plain(value) for value in unpacker])


def unpacked(content, *, raw=False):
    """Return the values of the library; None if it refuses any, or there is nothing."""
    unpacker = msgpack.Unpacker(strict_map_key=False, raw=raw, ext_hook=lambda number, payload: payload)
    unpacker.feed(content)
    values = []
    try:
        while True:
            at = unpacker.tell()
            values.append(plain(unpacker.unpack()))
    except msgpack.OutOfData:
        return values if content and at == len(content) else None
    except ValueError:  # the library calls more than that wrong: timestamps, texts, keys
        return None


@settings(max_examples=sweep.examples(150))
@given(st.binary(max_size=60), st.sampled_from([0, 1, 5]))
@example(b"\xae" + bytes(9) + b"\x80\x80\x80\x80\xf5", 0)
def test_any_bytes_that_msgpack_reads_are_whole_and_others_are_not(content, block_size):
    try:
        values = unpacked(content)
    except TypeError:  # a key that is a container: we number it
        return
    good = values is not None
    with pparse.open(content, format="msgpack", options={"documents": "many"}, block_size=block_size) as document:
        found = list(document.check())
        errors = [finding for finding in found if finding.severity.value == "error"]
        if not good and any(finding.code == "old-raw" for finding in found):  # every str is bytes, and some no text
            good, values = unpacked(content, raw=True) is not None, None
        assert good == (not errors and document.root.status is Status.COMPLETE)
        if values is not None:
            found = [kid.load() if kid.shape == "scalar" else kid.to_python() for kid in document.root.children()]
            assert repr(found) == repr(values)


# -- flax --------------------------------------------------------------------------------------------------------------

TYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64", "complex64"]
TYPES += ["complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


def trees(rng, depth=0):
    """Return a random tree of arrays, as flax saves it."""
    if depth > 2 or (depth and rng.random() < 0.4):
        dtype = np.dtype(getattr(ml_dtypes, name, name)) if (name := rng.choice(TYPES)) else None
        shape = tuple(rng.integers(0, 5, rng.integers(0, 4)))
        return np.frombuffer(rng.bytes(int(np.prod(shape, dtype=int)) * dtype.itemsize), dtype).reshape(shape)
    kids = [trees(rng, depth + 1) for _ in range(rng.integers(1, 5))]
    return {f"key_{number}": kid for number, kid in enumerate(kids)} if depth % 2 == 0 else kids


def compare(model, tree, name=""):
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return sum(compare(model, part, f"{name}.{key}" if name else str(key)) for key, part in items)
    if isinstance(tree, np.ndarray):
        array = model[name].numpy()
        assert array.dtype == tree.dtype
        assert array.shape == tree.shape
        assert array.tobytes() == tree.tobytes()
        return 1
    assert model.metadata[name] == (str(tree) if isinstance(tree, complex) else tree), name
    return 0


@pytest.mark.parametrize("seed", range(12))
def test_every_array_is_that_of_flax(seed, monkeypatch):
    serialization = library("flax.serialization")
    if seed % 2:
        monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 40)
    rng = np.random.default_rng(seed)
    tree = {"params": trees(rng), "step": seed, "rate": np.float32(0.5), "none": None, "z": 1 - 2j, "name": "x"}
    content = serialization.msgpack_serialize(tree)
    restored = serialization.msgpack_restore(content)
    with pparse.view(content, format="flax") as model:
        assert compare(model, restored) == len(model)
        assert not list(model.check())


def test_a_train_state_is_listed_as_it_was_saved():
    serialization = library("flax.serialization")
    jax = library("jax")
    state = {"params": {"w": jax.numpy.ones((2, 2), "bfloat16")}, "opt": ({"mu": jax.numpy.zeros(3)}, ()), "step": 4}
    content = serialization.to_bytes(state)
    with pparse.view(content) as model:
        assert model.format == "flax"
        assert set(model) == {"params.w", "opt.0.mu"}
        assert dict(model.metadata) == {"step": 4}
        assert compare(model, serialization.msgpack_restore(content)) == 2
