from __future__ import annotations

import numpy as np

from pparse.parsers.numpy.npy import NpyParser
from pparse.parsers.numpy.npz import NpzParser
from tests.numpy_files import npy, npz
from tests.sparse_contract import SparseContract


class TestNpy(SparseContract):
    parser = NpyParser
    samples = {
        "plain": npy(np.arange(6, dtype="<i4").reshape(2, 3)),
        "version 2": npy(np.asfortranarray(np.arange(6.0).reshape(2, 3)), version=(2, 0)),
        "structure": npy(np.zeros(2, [("ü", "<f4", (2,)), ("b", ">i2")]), version=(3, 0)),
        "objects": npy(np.array([1, "two", None, {"three": [4]}], object)),
        "empty": npy(np.zeros((0, 3))),
        "scalar": npy(np.float16(1.5)),
    }

    def large(self) -> bytes:
        return npy(np.zeros(9 << 20, "u1"))

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """An array without elements ends with its header."""
        return False


class TestNpz(SparseContract):
    parser = NpzParser
    samples = {
        "stored": npz(weight=np.arange(6, dtype="<i4").reshape(2, 3), bias=np.ones(3, ">f2")),
        "deflated": npz(compressed=True, weight=np.arange(6, dtype="<i4"), objects=np.array([None, "x"], object)),
    }
    changes = (0x00, 0x01, 0x50, 0x7F, 0xFF)

    def large(self) -> bytes:
        return npz(**{f"a{number}": np.zeros(1 << 20, "u1") for number in range(9)})
