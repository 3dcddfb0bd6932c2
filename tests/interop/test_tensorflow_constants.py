"""Constants as TensorFlow reads them: every type, shape and way to write elements, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse.findings import Status
from tests.interop.tensorflow.build import UnavailableError, tensorflow_python
from tests.interop.tensorflow.referee import QUIET

MAKER = Path(__file__).with_name("make_tensorflow_constants.py")
# Numbers that TensorFlow has as types of their own, and everybody else as plain integers.
QUANTIZED = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32"}


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("constants")
    try:
        python = tensorflow_python()
    except UnavailableError as error:
        pytest.skip(str(error))
    command = [python, "-P", str(MAKER), str(folder)]
    ran = subprocess.run(command, env={**os.environ, **QUIET}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    return folder


def test_every_constant_is_what_tensorflow_reads(folder):
    facts = json.loads((folder / "facts.json").read_text())
    values = np.load(folder / "values.npz")
    assert len(facts) > 250
    compared = 0
    with pparse.view(folder / "graph.pb") as viewer:
        assert set(viewer) == set(facts)
        for tensor in viewer.tensors():
            if facts[tensor.name] is None:
                assert tensor.status is Status.DAMAGED, tensor.name
                continue
            dtype, shape = facts[tensor.name]
            array = tensor.numpy()
            assert (array.dtype.name, list(array.shape)) == (QUANTIZED.get(dtype, dtype), shape), tensor.name
            assert array.tobytes() == values[tensor.name].tobytes(), tensor.name
            if f"{tensor.name}|py" in values.files:
                # Python clears the upper bits of what takes less than a byte.
                mine, theirs = (
                    np.frombuffer(raw, array.dtype) for raw in (array.tobytes(), values[f"{tensor.name}|py"])
                )
                same = mine.astype(complex) == theirs.astype(complex)
                assert (same | (mine != mine)).all(), tensor.name
            if tensor.ndim == 2 and tensor.size:
                assert tensor[1:, ::2].tobytes() == array[1:, ::2].tobytes()
            assert b"".join(part.tobytes() for part in tensor.blocks(64)) == array.tobytes()
            compared += 1
    assert compared > 200
