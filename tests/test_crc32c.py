"""CRC-32C: published values, pure Python and C must all agree."""

from __future__ import annotations

import random
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.kernels.crc32c import crc32c, crc32c_python, masked
from tests import sweep, tfrecord_files
from tests.rows import rows

try:
    from pparse.kernels import _crc32c as native
except ImportError:
    native = None

NEEDS_NATIVE = pytest.mark.skipif(native is None, reason="the extension was not built")
ENGINES = [
    pytest.param("python", id="python"),
    *(pytest.param(name, marks=NEEDS_NATIVE) for name in ("crc32c", "by_tables")),
]

# RFC 3720, appendix B.4; the last is the check value of the catalogue of CRCs.
PUBLISHED = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


@pytest.fixture(name="checksum", params=ENGINES)
def _checksum(request):
    return crc32c_python if request.param == "python" else getattr(native, request.param)


@rows("data", list(PUBLISHED))
def test_published_values(data, checksum):
    assert checksum(data) == PUBLISHED[data]


# Around the sizes at which the ways to do it change.
SIZES = [
    *range(1, 20),
    255,
    256,
    257,
    1023,
    1024,
    3071,
    3072,
    3073,
    6150,
    65_535,
    65_536,
    262_143,
    262_144,
    262_145,
    524_291,
]


@rows("size", SIZES)
def test_every_size_as_bit_by_bit(size, checksum):
    data = random.Random(size).randbytes(size)
    assert checksum(data) == tfrecord_files.crc32c(data)


@given(st.binary(max_size=700), st.integers(0, 700), st.integers(0, 2**32 - 1))
@settings(max_examples=sweep.examples(200))
def test_it_goes_on_from_what_came_before(data, at, before):
    for engine in (crc32c, crc32c_python) if native is None else (crc32c, crc32c_python, native.by_tables):
        assert engine(data[at:], engine(data[:at], before)) == engine(data, before) == crc32c_python(data, before)


def test_any_buffer_will_do(checksum):
    data = bytes(range(200)) * 3
    assert {checksum(kind(data)) for kind in (bytes, bytearray, memoryview)} == {checksum(data)}
    with pytest.raises(TypeError):
        checksum("text")


def test_the_mask_is_that_of_tensorflow():
    # The first length of a file whose first record has five bytes, as TensorFlow writes it.
    assert masked(crc32c(bytes.fromhex("0500000000000000"))) == 0x3E04B2EA
    assert masked(crc32c(b"hello")) == 0x191C1FBB
    assert masked(0) == 0xA282EAD8


def test_threads_share_nothing():
    data = [random.Random(number).randbytes(300_000) for number in range(4)]
    found = [0] * 4

    def work(number: int) -> None:
        for _ in range(5):
            found[number] = crc32c(data[number])

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [crc32c_python(one) for one in data]


WHICH = "from pparse.kernels import crc32c as c; print(c.NATIVE, c.crc32c is c.crc32c_python, c.crc32c(b'123456789'))"


def run(script: str, **environment: str) -> str:
    import os

    return subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_without_the_extension_python_does_it():
    assert run(WHICH, PPARSE_PURE_PYTHON="1") == "False True 3808858755"
    assert run("import sys; sys.modules['pparse.kernels._crc32c'] = None\n" + WHICH) == "False True 3808858755"


@NEEDS_NATIVE
def test_the_extension_is_used_where_it_was_built():
    assert run(WHICH, PPARSE_PURE_PYTHON="0") == "True False 3808858755"


def test_short_texts_import_no_numpy():
    script = (
        "import sys; from pparse.kernels.crc32c import crc32c_python as c; c(b'x' * 200); print('numpy' in sys.modules)"
    )
    assert run(script) == "False"
