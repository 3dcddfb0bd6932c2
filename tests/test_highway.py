"""HighwayHash-64: published vectors, a plain form of the description, pure Python and C must all agree."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import tracemalloc
from array import array
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.kernels import highway
from pparse.kernels.highway import PythonHighway64, hash64_python
from tests import sweep
from tests.rows import rows

try:
    from pparse.kernels import _highway as native
except ImportError:
    native = None

VECTORS = json.loads((Path(__file__).parent / "data" / "riegeli" / "hash_vectors.json").read_text())["vectors"]
NEEDS_NATIVE = pytest.mark.skipif(native is None, reason="the extension was not built")
BOTH = [pytest.param("python", id="python"), pytest.param("native", id="native", marks=NEEDS_NATIVE)]


@pytest.fixture(params=BOTH)
def hash64(request):
    return hash64_python if request.param == "python" else native.hash64


@pytest.fixture(params=BOTH)
def hasher(request):
    return PythonHighway64 if request.param == "python" else native.Highway64


# -- the description, written out byte by byte and lane by lane --------------------------------------------------------

WORD = (1 << 64) - 1
HALF = (1 << 32) - 1
KEY = [int.from_bytes(b"Riegeli/records\n"[at : at + 8], "little") for at in (0, 8, 0, 8)]
MUL0 = [0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3]
MUL1 = [0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377]


def as_lanes(packet: bytes) -> list[int]:
    return [int.from_bytes(packet[at : at + 8], "little") for at in range(0, 32, 8)]


def rotated(word: int) -> int:
    return word >> 32 | (word & HALF) << 32


def zipped(lanes: list[int]) -> list[int]:
    flat = b"".join(lane.to_bytes(8, "little") for lane in lanes)
    order = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
    return as_lanes(bytes(flat[pair + source] for pair in (0, 16) for source in order))


class Readable:
    def __init__(self) -> None:
        self.mul0, self.mul1 = MUL0[:], MUL1[:]
        self.v0 = [a ^ b for a, b in zip(MUL0, KEY, strict=True)]
        self.v1 = [a ^ rotated(b) for a, b in zip(MUL1, KEY, strict=True)]

    def packet(self, lanes: list[int]) -> None:
        for i in range(4):
            self.v1[i] = (self.v1[i] + self.mul0[i] + lanes[i]) & WORD
            self.mul0[i] ^= (self.v1[i] & HALF) * (self.v0[i] >> 32)
            self.v0[i] = (self.v0[i] + self.mul1[i]) & WORD
            self.mul1[i] ^= (self.v0[i] & HALF) * (self.v1[i] >> 32)
        self.v0 = [(a + b) & WORD for a, b in zip(self.v0, zipped(self.v1), strict=True)]
        self.v1 = [(a + b) & WORD for a, b in zip(self.v1, zipped(self.v0), strict=True)]

    def rest(self, rest: bytes) -> None:
        n = len(rest)
        self.v0 = [(lane + (n << 32) + n) & WORD for lane in self.v0]
        for i, lane in enumerate(self.v1):
            low, high = lane & HALF, lane >> 32
            low, high = ((half << n | half >> (32 - n)) & HALF for half in (low, high))
            self.v1[i] = high << 32 | low
        packet = bytearray(32)
        packet[: n & ~3] = rest[: n & ~3]
        left = rest[n & ~3 :]
        if n >= 16:
            packet[28:32] = rest[n - 4 :]
        elif left:
            packet[16] = left[0]
            packet[17] = left[len(left) >> 1]
            packet[18] = left[len(left) - 1]
        self.packet(as_lanes(packet))

    def end(self) -> int:
        for _ in range(4):
            self.packet([rotated(self.v0[i]) for i in (2, 3, 0, 1)])
        return (self.v0[0] + self.v1[0] + self.mul0[0] + self.mul1[0]) & WORD


def readable(data: bytes) -> int:
    state = Readable()
    whole = len(data) // 32 * 32
    for at in range(0, whole, 32):
        state.packet(as_lanes(data[at : at + 32]))
    if whole < len(data):
        state.rest(data[whole:])
    return state.end()


# -- the number --------------------------------------------------------------------------------------------------------


@rows("size", [int(size) for size in VECTORS if int(size) <= 100_000])
def test_vectors_of_the_reference(size: int, hash64) -> None:
    data = bytes((7 * i + 3) % 256 for i in range(size))
    assert hash64(data) == int(VECTORS[str(size)], 16)
    assert readable(data) == int(VECTORS[str(size)], 16)


def test_a_long_vector(hash64) -> None:
    size = max(map(int, VECTORS))
    assert size >= 1 << 20
    period = bytes((7 * i + 3) % 256 for i in range(256))
    data = (period * (size // 256 + 1))[:size]
    assert hash64(data) == int(VECTORS[str(size)], 16)


def test_hashes_in_the_signature_of_every_file(hash64) -> None:
    # The first 64 bytes: block header, then the header of the signature chunk; its data are empty.
    start = bytes.fromhex(
        "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a90000000000000000e19f13c0e9b1c372"
        "73000000000000000000000000000000"
    )
    assert hash64(start[8:24]) == int.from_bytes(start[:8], "little")
    assert hash64(start[32:64]) == int.from_bytes(start[24:32], "little")
    assert hash64(b"") == int.from_bytes(start[40:48], "little")


@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x80, 0x01])
def test_bytes_that_are_all_alike_hash_as_the_readable_version_does(fill: int, hash64) -> None:
    # Carries between lanes, and products as large as they can be.
    for size in (1, 3, 4, 15, 16, 31, 32, 33, 63, 223, 224, 225, 256, 4096 + 7):
        data = bytes([fill]) * size
        assert hash64(data) == readable(data), size


@given(st.binary(max_size=600))
@settings(max_examples=sweep.examples(150))
def test_all_forms_agree(data: bytes) -> None:
    expected = readable(data)
    assert hash64_python(data) == expected
    if native is not None:
        assert native.hash64(data) == expected


@NEEDS_NATIVE
def test_both_agree_on_long_inputs() -> None:
    data = random.Random(7).randbytes(300_000)
    for size in (65_535, 65_536, 65_537, 299_999):  # around the size from which the native one lets go of the GIL
        assert native.hash64(data[:size]) == hash64_python(data[:size])


def test_python_form_of_lanes_survives_long_runs() -> None:
    # Sums are never reduced: the room between lanes must do.
    data = b"\xff" * (1 << 18)
    expected = readable(data)
    hashing = PythonHighway64()
    for at in range(0, len(data), 1000):
        hashing.update(data[at : at + 1000])
    assert hash64_python(data) == hashing.digest() == expected


# -- piece by piece ----------------------------------------------------------------------------------------------------


@rows("step", [1, 2, 7, 31, 32, 33, 64, 100, 224, 225])
def test_hashing_in_pieces_of_any_size_gives_the_hash_of_the_whole(step: int, hasher) -> None:
    data = random.Random(step).randbytes(1000)
    hashing = hasher()
    for at in range(0, len(data), step):
        assert hashing.update(data[at : at + step]) is None
    assert hashing.digest() == readable(data)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
@settings(max_examples=sweep.examples(100))
def test_both_twins_hash_any_pieces_as_the_whole(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    expected = hash64_python(data)
    for kind in (PythonHighway64, *([native.Highway64] if native else [])):
        hashing = kind()
        hashing.update(b"")
        for begin, end in pairwise(places):
            hashing.update(data[begin:end])
            hashing.update(b"")
        assert hashing.digest() == expected


def test_digest_does_not_disturb(hasher) -> None:
    data = random.Random(1).randbytes(100)
    hashing = hasher()
    for at, byte in enumerate(data):
        assert hashing.digest() == hashing.digest() == hash64_python(data[:at])
        hashing.update(bytes([byte]))
    assert hashing.digest() == hash64_python(data)


def test_copies_go_their_own_ways(hasher) -> None:
    first = hasher()
    first.update(b"a" * 40)
    second = first.copy()
    assert type(second) is type(first)
    first.update(b"b" * 30)
    second.update(b"c")
    assert first.digest() == hash64_python(b"a" * 40 + b"b" * 30)
    assert second.digest() == hash64_python(b"a" * 40 + b"c")


def test_a_new_one_takes_nothing(hasher) -> None:
    with pytest.raises(TypeError):
        hasher(b"data")


# -- buffers -----------------------------------------------------------------------------------------------------------

RAW = bytes(range(240))
BUFFERS = {
    "bytes": RAW,
    "bytearray": bytearray(RAW),
    "memoryview": memoryview(b"x" + RAW + b"x")[1:-1],
    "subclass of bytes": type("Bytes", (bytes,), {})(RAW),
    "32-bit items": memoryview(array("I", RAW)),
    "doubles": array("d", RAW),
    "rows": memoryview(RAW).cast("B", (12, 20)),
    "numpy": np.frombuffer(RAW, np.uint16).reshape(2, 3, 20),
    "foreign byte order": np.frombuffer(RAW, ">u4"),
    "records": np.frombuffer(RAW, [("a", "u1"), ("b", "<u4")]),
}
EMPTY = [b"", bytearray(), memoryview(b""), array("I"), np.zeros((3, 0), np.int32)]


@rows("kind", BUFFERS)
def test_buffers_are_hashed_as_bytes(kind: str, hash64, hasher) -> None:
    assert hash64(BUFFERS[kind]) == readable(RAW)
    hashing = hasher()
    hashing.update(b"12345")
    hashing.update(BUFFERS[kind])
    assert hashing.digest() == readable(b"12345" + RAW)


@rows("empty", EMPTY, ids=lambda empty: type(empty).__name__)
def test_the_hash_of_nothing_is_the_known_one_and_changes_none(empty, hash64, hasher) -> None:
    assert hash64(empty) == int(VECTORS["0"], 16)
    hashing = hasher()
    assert hashing.digest() == int(VECTORS["0"], 16)
    hashing.update(b"123")
    hashing.update(empty)
    assert hashing.digest() == readable(b"123")


@rows(
    "data",
    [
        memoryview(RAW)[::2],
        memoryview(RAW)[::-1],
        np.frombuffer(RAW, "u1")[::3],
        np.asfortranarray(np.frombuffer(RAW, "u1").reshape(12, 20)),
    ],
)
def test_buffers_with_holes_are_refused(data, hash64, hasher) -> None:
    with pytest.raises(BufferError, match="C-contiguous"):
        hash64(data)
    hashing = hasher()
    hashing.update(b"123")
    with pytest.raises(BufferError, match="C-contiguous"):
        hashing.update(data)
    assert hashing.digest() == readable(b"123")


@rows("data", ["text", 5, None, [1, 2]])
def test_what_is_no_buffer_is_refused(data, hash64, hasher) -> None:
    with pytest.raises(TypeError):
        hash64(data)
    with pytest.raises(TypeError):
        hasher().update(data)


def test_buffers_are_let_go(hash64, hasher) -> None:
    data = bytearray(RAW)
    hash64(data)
    hashing = hasher()
    hashing.update(data)
    del data[5:]  # refused while somebody holds a view
    assert hashing.digest() == readable(RAW)
    view = memoryview(bytearray(RAW))[::2]
    with pytest.raises(BufferError):
        hash64(view)
    view.release()


def test_large_inputs_are_not_copied() -> None:
    data = bytearray(1 << 16)
    tracemalloc.start()
    try:
        hash64_python(data)
        hash64_python(memoryview(data)[1:])
        PythonHighway64().update(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 10


# -- threads -----------------------------------------------------------------------------------------------------------


def in_threads(work, count: int = 4) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)


def test_one_object_in_several_threads(hasher) -> None:
    # All pieces are alike, so that their order does not matter; large ones let go of the GIL in the native one.
    small, large, rounds = b"z" * 45, b"z" * (997 if hasher is PythonHighway64 else 600_005), 20
    shared, alone, copies = hasher(), hasher(), []

    def work() -> None:
        for _ in range(rounds):
            shared.update(small)
            shared.digest()
            shared.update(large)
            copies.append(shared.copy())

    in_threads(work)
    for _ in range(4 * rounds):
        alone.update(small)
        alone.update(large)
    assert shared.digest() == alone.digest()
    assert len(copies) == 4 * rounds


def test_hashing_in_several_threads(hash64) -> None:
    blocks = [random.Random(seed).randbytes(70_000 if native else 3_000) for seed in range(4)]
    expected = [highway.hash64(block) for block in blocks]
    found = []
    in_threads(lambda: found.append([hash64(block) for block in blocks]))
    assert found == [expected] * 4


# -- which one ---------------------------------------------------------------------------------------------------------

WHICH = "from pparse.kernels import highway as h; print(h.NATIVE, h.hash64.__module__, h.Highway64.__module__)"


def run(code: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "PPARSE_PURE_PYTHON"}
    return subprocess.check_output([sys.executable, "-c", code], env=inherited | environment, text=True).strip()


def test_pure_python_can_be_forced() -> None:
    assert run(WHICH, PPARSE_PURE_PYTHON="1") == "False pparse.kernels.highway pparse.kernels.highway"


def test_pure_python_is_the_fallback() -> None:
    absent = "import sys; sys.modules['pparse.kernels._highway'] = None\n"
    assert run(absent + WHICH) == "False pparse.kernels.highway pparse.kernels.highway"


@NEEDS_NATIVE
@pytest.mark.parametrize("environment", [{}, {"PPARSE_PURE_PYTHON": "0"}, {"PPARSE_PURE_PYTHON": ""}], ids=str)
def test_the_native_one_is_taken_when_there(environment: dict) -> None:
    assert run(WHICH, **environment) == "True pparse.kernels._highway pparse.kernels._highway"


def test_import_is_light() -> None:
    code = "import sys, pparse.kernels; before = set(sys.modules); import pparse.kernels.highway\n"
    code += "print(sorted(set(sys.modules) - before - {'pparse.kernels.highway', 'pparse.kernels._highway'}))"
    assert run(code) == "[]"
