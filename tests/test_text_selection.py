"""Slices of tensors of strings: the same as numpy's, holding only what is selected."""

from __future__ import annotations

import io

import numpy as np
import pytest

import pparse
from pparse.cli import main
from pparse.errors import LimitError, UnsupportedError
from pparse.tensors.npy import write_npy
from pparse.tensors.selection import normalise, pick
from tests.onnx_models import model
from tests.rows import rows

LIMITS = pparse.Limits()
INDEXES = (..., 0, -1, np.s_[1:], np.s_[::-1], np.s_[::2], np.s_[..., 1:3], np.s_[1, ::-2], np.s_[:, 1])


@rows("shape", [(), (1,), (7,), (3, 4), (2, 3, 4), (0,), (2, 0, 3)])
@rows(
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


# -- the bytes of texts ------------------------------------------------------------------------------------------------


@pytest.fixture
def written(capfdbinary):
    """Run ``pparse``; return the exit code and the bytes on standard output."""

    def call(*words):
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        return code, capfdbinary.readouterr().out

    return call


def onnx(folder):
    found = model()
    found.graph.initializer.add(name="words", data_type=8, dims=[2], string_data=[b"ab", b"cde"])
    path = folder / "m.onnx"
    path.write_bytes(found.SerializeToString())
    return path


TEXTS = [
    (onnx, "words"),
    ("docs/samples/saved-model", "words"),
    ("docs/samples/saved-model", "@__inference__traced_save_216/SaveV2/tensor_names"),
    ("tests/data/checkpoint/dtypes.index", "strings"),
    ("tests/data/checkpoint/version1.ckpt", "strings"),
    ("tests/data/checkpoint/version1.ckpt", "words in parts"),
]


@pytest.mark.parametrize(("path", "name"), TEXTS)
def test_the_bytes_of_texts_are_those_of_the_file(written, tmp_path, path, name):
    path = path if isinstance(path, str) else path(tmp_path)
    with pparse.view(path) as view:
        tensor = view[name]
        texts = list(tensor.strings())
        stored = b"".join(tensor.raw_blocks())
        last = ", ".join(str(length - 1) for length in tensor.shape)
        into = bytearray(len(stored))
        assert tensor.readinto(into) == len(stored)
        assert into == stored
    assert len(texts) > 1
    assert texts[-1] in stored
    out = tmp_path / "out.bin"
    assert written("get", path, f"{name}[{last}]", "--raw") == (0, texts[-1])
    assert written("get", path, f"{name}[{last}]", "--raw", "-o", out) == (0, b"")
    assert out.read_bytes() == texts[-1]
    out.unlink()
    for more in ((), ("--partial", "prefix"), ("--partial", "fill")):
        assert written("get", path, name, "--raw", *more) == (0, stored)
    for part in ("[0:2]", "[0:1]", "[...]", "[::-1]"):
        assert written("get", path, name + part, "--raw") == (2, b"")
        assert written("get", path, name + part, "--raw", "-o", out) == (2, b"")
    for part in ("", f"[{last}]", "[0:2]"):
        for more in (("--npy",), ("-o", tmp_path / "out.npz"), ("-o", tmp_path / "out.csv")):
            assert written("get", path, name + part, *more) == (2, b"")
    assert not set(tmp_path.iterdir()) - {tmp_path / "m.onnx"}


def test_one_text_without_dimensions_is_given_with_dots(written):
    path = "tests/data/checkpoint/dtypes.index"
    with pparse.view(path) as view:
        text = next(view["long string"].strings())
    assert written("get", path, "long string[...]", "--raw") == (0, text)


@pytest.mark.parametrize(("path", "name"), TEXTS)
def test_what_is_for_numbers_says_how_to_read_texts(tmp_path, path, name):
    with pparse.view(path if isinstance(path, str) else path(tmp_path)) as view:
        tensor = view[name]
        stream = io.BytesIO()
        for use in (
            lambda: list(tensor.blocks()),
            lambda: list(tensor.array_blocks()),
            lambda: tensor.numpy(raw=True),
            lambda: np.from_dlpack(tensor),
            lambda: tensor.itemsize,
            lambda: write_npy(tensor, stream),
        ):
            with pytest.raises(UnsupportedError, match=r"its elements are texts.*strings\(\)"):
                use()
        assert not stream.getvalue()
