"""Reading a tensor from a place in its middle: blocks from an element on, bytes from an offset on, strided blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.data.base import BytesData
from pparse.errors import TruncatedTensorError
from pparse.findings import Status
from pparse.tensors.dtype import DTYPES
from pparse.tensors.selection import boxes
from pparse.tensors.span import Span
from pparse.tensors.tensor import Tensor
from tests import sweep
from tests.rows import rows
from tests.test_tensor import make, random_bytes

SHAPES = [(), (1,), (24,), (3, 8), (2, 3, 8), (2, 1, 12), (0, 3), (4, 0)]


@settings(max_examples=sweep.examples(300))
@given(st.lists(st.integers(1, 5), max_size=4), st.data())
def test_boxes_make_up_any_stretch(shape, data):
    array = np.arange(int(np.prod(shape))).reshape(shape)
    first = data.draw(st.integers(0, array.size))
    stop = data.draw(st.integers(first, array.size))
    found = list(boxes(first, stop, shape))
    parts = [array[tuple(box)].reshape(-1) for box in found]
    assert np.concatenate([*parts, np.zeros(0, int)]).tolist() == list(range(first, stop))
    assert len(found) <= max(1, 2 * len(shape))


@rows("name", ["float32", "uint8", "complex128", "float4_e2m1fn", "float6_e2m3fn"])
def test_blocks_from_an_element_on(name):
    dtype = DTYPES[name]
    for shape in SHAPES:
        count = int(np.prod(shape))
        tensor = make(name, shape, random_bytes(dtype.stored_nbytes(count)))
        whole = tensor.numpy(raw=True).reshape(-1)
        for start in range(0, count + 1, 8):
            found = list(tensor.blocks(8 * dtype.itemsize, raw=True, start=start))
            assert np.concatenate([*found, whole[:0]]).tolist() == whole[start:].tolist()
    with pytest.raises(ValueError, match="cannot begin at element -8"):
        next(tensor.blocks(start=-8))


def test_blocks_of_packed_elements_begin_at_whole_bytes():
    with pytest.raises(ValueError, match="multiples of 8"):
        next(make("int4", (24,), bytes(12)).blocks(start=4))


@rows("strides", [(4, 12, 48), (48, 4, 16), (0, 4, 0), (96, 32, 8)])
def test_strided_blocks_hold_the_same_elements_and_need_no_whole_tensor(strides):
    data = random_bytes(1000)
    span = Span(BytesData(data), 0, 1000, "x")
    tensor = Tensor("t", DTYPES["int32"], (4, 3, 2), (span,), strides=strides)
    whole = tensor.numpy().reshape(-1)
    assert not tensor.is_stored_as_array
    for limit in (4, 20, 28, 96, 1000):
        for start in (0, 1, 5, 23, 24):
            found = list(tensor.blocks(limit, start=start))
            assert all(block.nbytes <= limit for block in found)
            assert np.concatenate([*found, whole[:0]]).tolist() == whole[start:].tolist()


def test_bytes_from_an_offset_on():
    stored = random_bytes(100)
    for how in ("bytes", "spliced", "spans"):
        tensor = make("uint8", (100,), stored, how=how)
        for offset in (0, 1, 50, 99, 100, 1000):
            for size in (0, 1, 49, 200):
                buffer = bytearray(b"x" * size)
                got = tensor.readinto_from(offset, buffer)
                assert got == len(stored[offset : offset + size])
                assert buffer == stored[offset : offset + size] + b"x" * (size - got)


def test_bytes_of_a_truncated_tensor_are_not_served_from_any_offset():
    tensor = make("uint8", (100,), random_bytes(60), there=60, status=Status.TRUNCATED)
    with pytest.raises(TruncatedTensorError):
        tensor.readinto_from(0, bytearray(10))


@rows(
    ("facts", "straight"),
    [
        ({}, True),
        ({"byteorder": "big"}, False),
        ({"strides": (12, 4)}, True),
        ({"strides": (4, 8)}, False),
        ({"encoding": "lz77"}, False),
        ({"encoding": "typed"}, True),
    ],
)
def test_which_tensors_are_stored_as_their_arrays(facts, straight):
    span = Span(BytesData(bytes(24)), 0, 24, "x")
    assert Tensor("t", DTYPES["float32"], (2, 3), (span,), **facts).is_stored_as_array == straight
    assert Tensor("t", DTYPES["uint8"], (24,), (span,), byteorder="big").is_stored_as_array
    assert not Tensor("t", DTYPES["float32"], (2, 4), (span,)).is_stored_as_array
    assert not Tensor("t", None, (), (span,)).is_stored_as_array
