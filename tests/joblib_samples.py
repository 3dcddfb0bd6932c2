"""The files of joblib in ``data/joblib``, what joblib reads in them, and ways to make such files by hand.

They are written by ``interop/make_joblib_samples.py``. ``expected.json`` has for each file the type, shape and sha256
(C order, little-endian) of each array by its name, in order.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from pathlib import Path

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FOLDER = Path(__file__).resolve().parent / "data" / "joblib"
EXPECTED: dict[str, dict[str, list[Any]]] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
ALIGNMENT = 16


def row(array: np.ndarray) -> list[Any]:
    """Return what is compared of an array."""
    plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return [array.dtype.newbyteorder("<").str, list(array.shape), hashlib.sha256(plain.tobytes()).hexdigest()]


def rows(viewer: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return that of each array of a viewer."""
    return {name: row(np.asarray(tensor.numpy()).reshape(tensor.shape)) for name, tensor in viewer.items()}


def told(name: str) -> dict[str, list[Any]]:
    """Return what `rows` should be for the file of that name."""
    return EXPECTED[name]


def described(state: dict[str, Any], module: str = "joblib.numpy_pickle") -> bytes:
    """Return the opcodes that make a ``NumpyArrayWrapper`` with that state, to its BUILD."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 2)
    pickler.fast = True  # nothing is memoized
    pickler.dump(state)
    return b"c" + module.encode() + b"\nNumpyArrayWrapper\n)\x81" + out.getvalue()[2:-1] + b"b"


def state(array: np.ndarray, **changed: Any) -> dict[str, Any]:
    """Return the state of joblib's description of an array; ``changed`` is otherwise."""
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    found = {"subclass": None, "shape": array.shape, "order": order, "dtype": array.dtype, "allow_mmap": True}
    return {**found, "numpy_array_alignment_bytes": ALIGNMENT, **changed}


def padded(at: int, content: bytes, padding: int | None = None) -> bytes:
    """Return ``content`` with the padding that aligns it where it is put at ``at``."""
    padding = ALIGNMENT - (at + 1) % ALIGNMENT if padding is None else padding
    return bytes([padding]) + b"\xff" * padding + content


def one_array(padding: int | None = None, content: bytes | None = None, **changed: Any) -> bytes:
    """Return a file with a list of one array of ten numbers, and a text behind it."""
    array = np.arange(10, dtype="<i4")
    head = b"\x80\x02](" + described(state(array, **changed))
    return head + padded(len(head), array.tobytes() if content is None else content, padding) + b"X\1\0\0\0ze."
