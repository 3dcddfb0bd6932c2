"""Strided arrays out of streams: the same elements in C order, in few passes."""

from __future__ import annotations

import io
import zipfile
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.data.base import IoStats
from pparse.errors import LimitError
from pparse.limits import MemoryBudget
from pparse.tensors.selection import recut, windows
from tests import sweep
from tests.numpy_files import archive, npy
from tests.rows import rows

RNG = np.random.default_rng(5)


class Stream:
    """Elements in an order of their own, and where they were read."""

    def __init__(self, array, order):
        self.stored = np.ascontiguousarray(array.transpose(order))
        back = self.stored.transpose(np.argsort(order))
        assert np.array_equal(back, array)
        self.strides = back.strides
        self.bytes = self.stored.tobytes()
        self.places = []

    def read_into(self, offset, view):
        assert offset + len(view) <= len(self.bytes)
        view[:] = self.bytes[offset : offset + len(view)]
        self.places.append(offset)

    @property
    def passes(self):
        return 1 + sum(after < before for before, after in pairwise(self.places))


@settings(max_examples=sweep.examples(200))
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_windows_hold_the_elements_in_c_order(shape, data):
    array = RNG.integers(0, 1 << 31, shape, np.int32)
    stream = Stream(array, data.draw(st.permutations(range(len(shape)))))
    start = data.draw(st.integers(0, array.size))
    least = data.draw(st.integers(1, array.size + 1))
    budget = data.draw(st.sampled_from([None, MemoryBudget()]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pparse.tensors.selection.PIECE", 8)
        patch.setattr("pparse.tensors.selection._SHARE", 1 << 24)
        parts = windows(start, least, shape, stream.strides, array.dtype, stream.read_into, budget)
        found = list(recut(parts, least))
    assert all(len(block) == least for block in found[:-1])
    assert np.concatenate([*found, array.reshape(-1)[:0]]).tolist() == array.reshape(-1)[start:].tolist()
    assert budget is None or not budget.used


@rows("shape", [(512, 1024), (2, 512, 512), (1, 512, 1024), (3, 180_000), (524_288, 1)])
def test_the_number_of_passes_grows_with_what_does_not_fit(shape):
    array = RNG.integers(0, 255, shape, np.uint8)
    stream = Stream(array, tuple(reversed(range(array.ndim))))
    budget = MemoryBudget("1MiB")
    parts = list(windows(0, 1, shape, stream.strides, array.dtype, stream.read_into, budget))
    assert np.concatenate(parts).tobytes() == array.tobytes()
    assert stream.passes <= 2 * ceil(array.nbytes / (256 << 10))
    assert 512 << 10 <= budget.peak < 1 << 20


def test_a_decoder_that_needs_more_gets_it():
    array = RNG.integers(0, 255, (600, 700), np.uint8)
    stream, budget = Stream(array, (1, 0)), MemoryBudget("1MiB")

    def read_into(offset, view):
        with budget.charge(900 << 10, "the decoder"):
            stream.read_into(offset, view)

    parts = list(windows(0, 1, array.shape, stream.strides, array.dtype, read_into, budget))
    assert np.concatenate(parts).tobytes() == array.tobytes()

    def refuse(offset, view):
        raise LimitError("no more", option="--limit inflated_bytes=5")

    with pytest.raises(LimitError, match="no more"):
        next(windows(0, 1, array.shape, stream.strides, array.dtype, refuse, budget))
    assert not budget.used


@rows("form", sweep.sample(["npz", "npy.gz"], 1))
def test_an_array_in_fortran_order_is_converted_in_few_passes(tmp_path, form):
    array = np.asfortranarray(RNG.integers(0, 4, (700, 1100)).astype("f4"))
    content = npy(array)
    if form == "npz":
        content = archive([("x.npy", content)], zipfile.ZIP_DEFLATED)
    else:
        import gzip

        content = gzip.compress(content)
    path, target, stats = tmp_path / f"x.{form}", tmp_path / f"{form}.npz", IoStats()
    path.write_bytes(content)
    pparse.convert(path, target, budget="2MiB", stats=stats)
    with np.load(io.BytesIO(target.read_bytes())) as made:
        assert np.array_equal(made["x"], array)
    assert stats.bytes < 18 * (array.nbytes + len(content))  # read and decoded bytes both count
