"""The zoo of numpy's files (``tests/interop/make_numpy_zoo.py``): what numpy read of them when they were made."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse.findings import Status

FOLDER = Path(__file__).parent / "data" / "numpy"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


def elements(array: np.ndarray) -> bytes:
    """Return the elements in the order of this machine, of structures field by field."""
    if array.dtype.names is not None:
        return b"".join(elements(array[name]) for name in array.dtype.names)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).tobytes()


@pytest.mark.parametrize("file", EXPECTED)
def test_what_numpy_read_is_read(file):
    with pparse.view(FOLDER / file) as model:
        assert list(model) == list(EXPECTED[file])
        for name, wanted in EXPECTED[file].items():
            tensor = model[name]
            array = tensor.numpy()
            assert (tensor.status, list(array.shape)) == (Status.COMPLETE, wanted["shape"]), name
            descr = np.lib.format.dtype_to_descr(array.dtype if array.dtype.names else np.dtype(tensor.stored_dtype))
            assert repr(descr) == wanted["descr"], name
            assert hashlib.sha256(elements(array)).hexdigest() == wanted["sha256"], name
        assert not list(model.check())
