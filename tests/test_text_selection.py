"""Slices of tensors of strings: the same as numpy's, holding only what is selected."""

from __future__ import annotations

import numpy as np
import pytest

import pparse
from pparse.errors import LimitError
from pparse.tensors.selection import normalise, pick
from tests.onnx_models import model

LIMITS = pparse.Limits()
INDEXES = (..., 0, -1, np.s_[1:], np.s_[::-1], np.s_[::2], np.s_[..., 1:3], np.s_[1, ::-2], np.s_[:, 1])


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (2, 3, 4), (0,), (2, 0, 3)])
@pytest.mark.parametrize(
    "index",
    [..., np.s_[0], np.s_[-1], np.s_[1:], np.s_[::-1], np.s_[::2], np.s_[..., 1:3], np.s_[1, ::-2], np.s_[:, 1]],
)
def test_a_slice_is_that_of_numpy(shape, index):
    texts = [b"%d" % number for number in range(int(np.prod(shape)))]
    array = np.empty(len(texts), object)
    array[:] = texts
    array = array.reshape(shape)
    try:
        wanted = array[index]
    except IndexError:
        with pytest.raises(IndexError):
            normalise(index, shape)
        return
    got = pick(iter(texts), normalise(index, shape), shape, LIMITS)
    if isinstance(wanted, bytes):
        assert got == wanted
    else:
        assert np.asarray(got, object).tolist() == wanted.tolist()
        assert np.shape(got) == wanted.shape


def test_reading_ends_with_the_last_that_is_selected():
    def texts():
        yield from (b"a", b"b", b"c")
        raise AssertionError("read on")

    assert pick(texts(), normalise(slice(1, 3), (9,)), (9,), LIMITS).tolist() == [b"b", b"c"]


def test_a_slice_of_very_many_strings_is_refused():
    with pytest.raises(LimitError):
        pick(iter(()), normalise(..., (1 << 40,)), (1 << 40,), LIMITS)


def test_strings_of_a_model():
    found = model()
    found.graph.initializer.add(name="s", data_type=8, dims=[2, 3], string_data=[b"a", b"b", b"c", b"d", b"e", b"f"])
    with pparse.view(found.SerializeToString(), format="onnx") as view:
        assert view["s"][1, ::-2].tolist() == [b"f", b"d"]
        assert view["s"][0, 1] == b"b"
