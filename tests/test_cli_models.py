"""What the commands answer of models in their own formats: without a name, by a fact's name, under wrong names."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import pparse
from tests.gguf_files import F32, Writer
from tests.pytorch_zoo import SAMPLES


@pytest.fixture
def tokens(tmp_path):
    """A GGUF file with an array that is too long for metadata."""
    pairs = [("general.name", "m"), ("tokenizer.ggml.tokens", [f"<tok{number}>" for number in range(200)])]
    content = Writer().file(pairs, [("w", (4,), F32, 0)], np.arange(8, dtype="f4").tobytes())
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    return path


def test_values_that_metadata_only_remark_on_are_not_converted(run, tokens, tmp_path):
    ran = run("convert", tokens, "-o", tmp_path / "x.safetensors")
    assert (ran.code, "tokenizer.ggml.tokens (200 elements)" in ran.out) == (0, True)
    with pparse.view(tmp_path / "x.safetensors") as model:
        assert dict(model.metadata) == {"general.name": "m"}


def test_a_fact_is_given_by_its_name_and_its_elements_by_number(run, tokens):
    assert run("get", tokens, "tokenizer.ggml.tokens[5]").out == "<tok5>\n"
    assert run("get", tokens, "tokenizer.ggml.tokens[-1]").out == "<tok199>\n"
    assert json.loads(run("get", tokens, "tokenizer.ggml.tokens").out)[:2] == ["<tok0>", "<tok1>"]
    assert run("get", tokens, "general.name").out == "m\n"


def test_without_a_name_a_model_of_many_tensors_is_not_printed(run, tokens, tmp_path):
    np.savez(tmp_path / "n.npz", x=np.zeros(3), y=np.ones(2))
    for path, name in ((tokens, "'w'"), (tmp_path / "n.npz", "'x', 'y'")):
        ran = run("get", path)
        assert (ran.code, ran.out) == (2, "")
        assert name in ran.err


def test_the_only_tensor_of_a_file_needs_no_name_for_a_slice(run, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12).reshape(3, 4))
    assert "[4 5]" in run("get", tmp_path / "a.npy", "[1, :2]").out
    assert run("get", tmp_path / "a.npy", "[3]").code == 2


def test_texts_are_not_cast(run, tmp_path):
    np.savez(tmp_path / "n.npz", x=np.arange(3.0), names=np.array(["a", "b"]))
    for words in (("-p", "*", "-o", tmp_path / "o.safetensors"), ("names", "-o", tmp_path / "o.npy")):
        ran = run("get", tmp_path / "n.npz", *words, "--dtype", "float32")
        assert (ran.code, "no type of numbers" in ran.err) == (2, True)
    ran = run("get", tmp_path / "n.npz", "-p", "*", "-o", tmp_path / "o.safetensors")
    assert "write .npy or .npz" in ran.err


def test_a_checkpoint_named_like_arrays_is_a_checkpoint(run, tmp_path):
    path = tmp_path / "w.npz"
    path.write_bytes(SAMPLES["views.pt"].read_bytes())
    with pparse.view(path) as model, pparse.view(SAMPLES["views.pt"]) as original:
        assert model.format == "pytorch"
        assert list(model) == list(original)


class Estimator:
    """An object with arrays, as scikit-learn has them."""

    def __init__(self) -> None:
        self.steps = [("scale", np.arange(4.0)), ("fit", np.arange(5.0))]
        self.coefficients = np.arange(6.0)


@pytest.mark.parametrize("protocol", range(6))
def test_a_cut_pickle_of_an_object_lists_the_arrays_before_the_cut(protocol):
    whole = pickle.dumps(Estimator(), protocol)
    with pparse.view(whole) as model:
        originals = {name: tensor.numpy() for name, tensor in model.items()}
    assert list(originals) == ["steps.0.1", "steps.1.1", "coefficients"]
    with pparse.view(whole[:-3]) as model:
        found = {name: tensor.numpy() for name, tensor in model.items() if tensor.is_complete}
    assert found.keys() == originals.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, originals[name])
