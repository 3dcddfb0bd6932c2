"""FarmHash Fingerprint64: TensorFlow's own values, pure Python and C must all agree."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from array import array
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.kernels import farmhash
from pparse.kernels.farmhash import Fingerprint64, absorb_python, cat64, fingerprint64_python
from tests import sweep
from tests.rows import rows

try:
    from pparse.kernels import _farmhash as native
except ImportError:
    native = None

VECTORS = json.loads((Path(__file__).parent / "data" / "tf" / "farmhash_vectors.json").read_text())
NEEDS_NATIVE = pytest.mark.skipif(native is None, reason="the extension was not built")
BOTH = [pytest.param("python", id="python"), pytest.param("native", id="native", marks=NEEDS_NATIVE)]


def pattern(size: int) -> bytes:
    return bytes((i * i * 31 + i * 7 + (i >> 8) * 13 + 3) % 256 for i in range(size))


@pytest.fixture(params=BOTH)
def hash64(request):
    return fingerprint64_python if request.param == "python" else native.fingerprint64


@pytest.fixture(params=BOTH)
def hasher(request, monkeypatch):
    """The streaming form, with either engine."""
    monkeypatch.setattr(farmhash, "absorb", absorb_python if request.param == "python" else native.absorb)
    return Fingerprint64


# -- the number --------------------------------------------------------------------------------------------------------


def test_there_are_vectors_of_every_kind() -> None:
    sizes = set(map(int, VECTORS))
    assert set(range(301)) <= sizes
    assert max(sizes) > 1 << 18  # from here the native one lets go of the GIL


@rows("size", [int(size) for size in VECTORS])
def test_values_of_tensorflow(size: int, hash64) -> None:
    assert f"{hash64(pattern(size)):016x}" == VECTORS[str(size)]


@given(st.binary(max_size=600))
@settings(max_examples=sweep.examples(200))
@NEEDS_NATIVE
def test_the_twin_in_c_gives_the_same_fingerprint(data: bytes) -> None:
    assert native.fingerprint64(data) == fingerprint64_python(data)


@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x80])
@NEEDS_NATIVE
def test_both_twins_agree_on_bytes_that_are_all_alike(fill: int) -> None:
    # Nothing is masked between rounds but what must be: sums and products are as large as they can be.
    for size in (1, 4, 8, 16, 17, 32, 33, 64, 65, 128, 4096 + 7, 70_000):
        data = bytes([fill]) * size
        assert native.fingerprint64(data) == fingerprint64_python(data), size


def test_joining_two_is_not_symmetric() -> None:
    # From a fingerprint of TensorFlow: an empty object graph, joined with no chunks.
    assert cat64(fingerprint64_python(b""), 0) == 17454850744699451884
    assert cat64(1, 2) != cat64(2, 1)
    assert all(0 <= cat64(one, other) < 1 << 64 for one in (0, 2**64 - 1) for other in (0, 2**64 - 1))


# -- piece by piece ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 7, 63, 64, 65, 100, 128, 129])
def test_hashing_in_pieces_of_any_size_gives_the_known_fingerprint(step: int, hasher) -> None:
    data = pattern(1000)
    hashing = hasher()
    for at in range(0, len(data), step):
        assert hashing.update(data[at : at + step]) is hashing
    assert hashing.size == 1000
    assert f"{hashing.digest():016x}" == VECTORS["1000"]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
@settings(max_examples=sweep.examples(200))
def test_hashing_in_any_pieces_gives_the_fingerprint_of_the_whole(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    hashing = Fingerprint64()
    for begin, end in pairwise(places):
        hashing.update(data[begin:end]).update(b"")
    assert hashing.digest() == fingerprint64_python(data)


def test_digest_at_every_length_and_no_disturbance(hasher) -> None:
    data = pattern(300)
    hashing = hasher()
    for size in range(300):
        assert f"{hashing.digest():016x}" == VECTORS[str(size)]
        hashing.update(data[size : size + 1])


def test_copies_go_their_own_ways(hasher) -> None:
    data = pattern(200)
    first = hasher().update(data[:100])
    second = first.copy()
    first.update(b"other")
    assert second.update(data[100:]).digest() == int(VECTORS["200"], 16)
    assert first.digest() == fingerprint64_python(data[:100] + b"other")
    assert (first.size, second.size) == (105, 200)


# -- buffers -----------------------------------------------------------------------------------------------------------

RAW = bytes(range(240))
BUFFERS = {
    "bytearray": bytearray(RAW),
    "memoryview": memoryview(b"x" + RAW + b"x")[1:-1],
    "doubles": array("d", RAW),
    "rows": memoryview(RAW).cast("B", (12, 20)),
    "numpy": np.frombuffer(RAW, np.uint16).reshape(2, 3, 20),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_are_hashed_as_bytes(kind: str, hash64, hasher) -> None:
    assert hash64(BUFFERS[kind]) == fingerprint64_python(RAW)
    assert hasher().update(b"12345").update(BUFFERS[kind]).digest() == fingerprint64_python(b"12345" + RAW)


@pytest.mark.parametrize("empty", [b"", bytearray(), array("I"), np.zeros((3, 0), np.int32)], ids=str)
def test_the_fingerprint_of_nothing_is_the_known_one(empty, hash64, hasher) -> None:
    assert hash64(empty) == hasher().update(empty).digest() == int(VECTORS["0"], 16)


def test_what_is_no_flat_buffer_is_refused(hash64, hasher) -> None:
    for bad in (memoryview(RAW)[::2], np.frombuffer(RAW, "u1")[::-1]):
        with pytest.raises(BufferError, match="C-contiguous"):
            hash64(bad)
        with pytest.raises(BufferError, match="C-contiguous"):
            hasher().update(bad)
    for worse in ("text", 5, None):
        with pytest.raises(TypeError):
            hash64(worse)
        with pytest.raises(TypeError):
            hasher().update(worse)


@NEEDS_NATIVE
def test_native_absorb_checks_its_arguments() -> None:
    for state, data in ((bytes(55), bytes(64)), (bytes(57), bytes(64)), (bytes(56), bytes(63))):
        with pytest.raises(ValueError, match=r"56 bytes|64 bytes"):
            native.absorb(state, data)
    with pytest.raises(TypeError):
        native.absorb(bytes(56))
    state, data = random.Random(1).randbytes(56), random.Random(2).randbytes(640)
    assert native.absorb(state, data) == absorb_python(state, data)
    assert native.absorb(state, b"") == state


def test_buffers_are_let_go(hash64, hasher) -> None:
    data = bytearray(RAW)
    hash64(data)
    hasher().update(data)
    del data[5:]  # refused while somebody holds a view


@NEEDS_NATIVE
def test_hashing_in_several_threads() -> None:
    blocks = [random.Random(seed).randbytes(400_000) for seed in range(4)]
    expected = [native.fingerprint64(block) for block in blocks]
    found: list[list[int]] = []
    work = lambda: found.append([native.fingerprint64(block) for block in blocks])  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


# -- which one ---------------------------------------------------------------------------------------------------------

WHICH = "from pparse.kernels import farmhash as f; print(f.NATIVE, f.fingerprint64.__module__, f.absorb.__module__)"
PURE = "False pparse.kernels.farmhash pparse.kernels.farmhash"


def run(code: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "PPARSE_PURE_PYTHON"}
    return subprocess.check_output([sys.executable, "-c", code], env=inherited | environment, text=True).strip()


def test_pure_python_can_be_forced_and_is_the_fallback() -> None:
    assert run(WHICH, PPARSE_PURE_PYTHON="1") == PURE
    assert run("import sys; sys.modules['pparse.kernels._farmhash'] = None\n" + WHICH) == PURE


@NEEDS_NATIVE
def test_the_native_one_is_taken_when_there() -> None:
    assert run(WHICH).split()[0] == "True"
    assert "_farmhash" in run("from pparse.kernels import farmhash as f; print(f.fingerprint64.__self__.__name__)")
