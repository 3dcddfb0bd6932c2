"""The committed ONNX models: what onnx read in them when they were made, without onnx."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse import Status

FOLDER = Path("tests/data/onnx")
EXPECTED = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def digest(array, bits):
    """Return the sha256 of an array's bytes; of elements below 8 bits, of their low bits."""
    content = np.ascontiguousarray(array)
    if bits < 8:
        content = content.view(np.uint8) & ((1 << bits) - 1)
    return hashlib.sha256(content.tobytes()).hexdigest()


def test_every_model_has_its_expectations():
    assert {path.stem for path in FOLDER.glob("*.onnx")} == set(EXPECTED)
    assert len(EXPECTED) == 14
    assert sum(map(len, EXPECTED.values())) > 350


@pytest.mark.parametrize("name", list(EXPECTED))
def test_a_model_has_the_tensors_that_onnx_reads(name):
    with pparse.view(FOLDER / f"{name}.onnx") as model:
        assert sorted(model) == sorted(EXPECTED[name])
        for key, (stored, dtype, shape, elements) in EXPECTED[name].items():
            tensor = model[key]
            assert (tensor.status, tensor.finding) == (Status.COMPLETE, None), key
            assert (tensor.stored_dtype, list(tensor.shape)) == (stored, shape), key
            if dtype is None:
                assert [text.hex() for text in tensor.strings()] == elements, key
                continue
            assert tensor.dtype.name == dtype, key
            array = tensor.numpy()
            assert list(array.shape) == shape, key
            assert digest(array, tensor.dtype.bits) == elements, key
        assert model.extent().status is Status.COMPLETE
        assert not [finding for finding in model.check() if finding.severity.value == "error"]


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "order-of-fields"])
def test_a_model_whose_fields_are_in_order_is_recognised_by_its_bytes(name):
    with pparse.view((FOLDER / f"{name}.onnx").read_bytes()) as model:
        assert sorted(model) == sorted(EXPECTED[name])


def test_data_of_another_file_is_missing_without_it(tmp_path):
    (tmp_path / "external.onnx").write_bytes((FOLDER / "external.onnx").read_bytes())
    with pparse.view(tmp_path / "external.onnx") as model:
        assert {tensor.status for tensor in model.values() if tensor.size} == {Status.MISSING}
        assert all(tensor.finding is not None for tensor in model.values() if tensor.size)
        assert model.extent().status is not Status.COMPLETE


def test_a_copy_of_the_other_file_that_is_cut_keeps_what_it_has(tmp_path):
    whole = (FOLDER / "external.bin").read_bytes()
    size = len(whole) // 2
    (tmp_path / "external.onnx").write_bytes((FOLDER / "external.onnx").read_bytes())
    (tmp_path / "external.bin").write_bytes(whole[:size])
    seen = set()
    with pparse.view(FOLDER / "external.onnx") as sound, pparse.view(tmp_path / "external.onnx") as model:
        for name, tensor in sound.items():
            if not tensor.size:
                continue
            (span,) = tensor.spans
            wanted = Status.COMPLETE if span.offset + span.length <= size else Status.TRUNCATED
            wanted = Status.MISSING if span.offset >= size else wanted
            if name != "rest":  # without a length, it begins beyond the end
                assert model[name].status is wanted, name
            seen.add(wanted)
            if wanted is Status.COMPLETE:
                assert model[name].numpy().tobytes() == tensor.numpy().tobytes()
    assert len(seen) >= 2
