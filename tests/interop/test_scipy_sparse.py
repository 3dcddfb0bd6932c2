"""Sparse matrices that SciPy saved, of every format."""

from __future__ import annotations

import importlib
import os

import numpy as np
import pytest

import pparse


def library(name):
    """Import what we are compared with; without it skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


sparse = library("scipy.sparse")


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "dia"])
def test_the_arrays_of_a_matrix_are_shown_and_what_they_are(tmp_path, form, compressed):
    path = tmp_path / "matrix.npz"
    matrix = sparse.random(12, 7, density=0.3, format=form, rng=np.random.default_rng(2))
    sparse.save_npz(path, matrix, compressed=compressed)
    with pparse.view(path) as model, np.load(path) as arrays:
        assert model.metadata == {"matrix": "scipy.sparse", "format": form, "shape": [12, 7]}
        assert list(model) == arrays.files
        assert all(np.array_equal(model[name].numpy(), arrays[name]) for name in arrays.files)
