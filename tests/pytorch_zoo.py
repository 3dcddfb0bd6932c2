"""The zoo of PyTorch files and pickles in ``data/pytorch``, and what the real libraries read in them.

Written by ``interop/make_pytorch_zoo.py`` with torch 2.13.0, numpy 2.4 and Python 3.11. For each file,
``expected.json`` has:

- ``tensors``: a row for each, in the order of the file: ``name``, ``dtype`` (of numpy or ml_dtypes), ``shape``,
  ``sha256`` of its numbers in C order and little-endian (None without data; sub-byte types one number per byte),
  ``kind`` (strided, meta, storage, numpy, quantized, nested, sparse_coo …), ``storage`` (its key, where it has one),
  ``offset`` and ``stride`` in elements; ``quantized`` with scale and zero point. ``or_sha256``: of other numbers, which
  are right as well;
- ``or_tensors``: other rows, where a file may be read in two ways;
- ``composites``: sparse and nested tensors, whose parts are tensors: ``x.indices``, ``x.values``. What else belongs to
  them, and to quantized ones, such as ``x.size`` and ``x.scale``, has the rows of `parts`;
- ``constants``: tensors of the code of TorchScript, which a reader may list or not;
- ``metadata``: everything else by dotted names; what JSON cannot tell is a dict with one of the keys "bytes",
  "complex", "set", "numpy", "torch", "global", "object", "empty", "long".

Files that torch refuses have its ``reason`` instead, and ``tensors`` if all that was put into them is there.

How names are made is in ``interop/pytorch_zoo/truth.py``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

FOLDER = Path(__file__).resolve().parent / "data" / "pytorch"
_EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
#: Files that their library reads, by name.
SAMPLES = {name: FOLDER / name for name in _EXPECTED["files"]}
#: Files that torch refuses, and its reason.
REFUSED = {FOLDER / name: told["reason"] for name, told in _EXPECTED["refused"].items()}
#: The names of those whose tensors are all there nevertheless.
REFUSED_AND_WHOLE = [name for name, told in _EXPECTED["refused"].items() if "tensors" in told]
#: The names of those that hold tensors.
WITH_TENSORS = [name for name, told in _EXPECTED["files"].items() if told["tensors"] or told.get("constants")]


def expected(name: str) -> dict[str, Any]:
    """Return what the library reads in the file of that name; of one that it refuses, what was put into it."""
    found: dict[str, Any] = _EXPECTED["files"].get(name) or _EXPECTED["refused"][name]
    return found


def check(viewer: Mapping[str, Any], name: str) -> None:
    """Compare the tensors of a viewer with those of the file, bit by bit; say all that differs."""
    told = expected(name)
    names = list(viewer)
    tables = [told["tensors"], told.get("or_tensors", told["tensors"])]
    table = max(tables, key=lambda one: {row["name"] for row in one} == set(names))
    rows = {row["name"]: row for row in (*table, *parts(told))}
    optional = {row["name"]: row for row in told.get("constants", ())}
    problems = [f"{twice!r} is listed twice" for twice in {one for one in names if names.count(one) > 1}]
    problems += [f"{lost!r} is not listed" for lost in rows if lost not in names]
    for found in names:
        row = rows.get(found) or optional.get(found)
        if row is None:
            problems.append(f"{found!r} is listed, and not in the file")
            continue
        problem = difference(viewer[found], row)
        if problem:
            problems.append(f"{found!r}: {problem}")
    assert not problems, f"{name}: {len(problems)} differences from what {told['referee']} reads\n" + "\n".join(
        problems[:20]
    )


def parts(told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield rows for what belongs to quantized, sparse and nested tensors, and is not in ``tensors``."""
    for row in told["tensors"]:
        facts = row.get("quantized")
        if facts is not None:
            form = "<f4" if facts["scheme"].endswith("float_qparams") else "<f8"
            yield _part(row["name"], "scale", form, facts["scale"])
            yield _part(row["name"], "zero_point", "<f4" if form == "<f4" else "<i8", facts["zero_point"])
            if "axis" in facts:
                yield _part(row["name"], "axis", "<i8", facts["axis"])
    for facts in told.get("composites", ()):
        if facts["kind"].startswith("sparse"):
            yield _part(facts["name"], "size", "<i8", facts["shape"])
        elif facts["kind"] == "nested":
            for part in ("sizes", "strides", "offsets"):
                yield _part(facts["name"], part, "<i8", facts[part])


def _part(of: str, name: str, form: str, numbers: Any) -> dict[str, Any]:
    array = np.array(numbers, form)
    told = {"dtype": array.dtype.name, "shape": list(array.shape), "kind": "part"}
    sha256 = hashlib.sha256(array.tobytes()).hexdigest()
    return {"name": f"{of}.{name}" if of else name, **told, "sha256": sha256, "storage": None}


def difference(tensor: Any, row: Mapping[str, Any]) -> str:
    """Return what a tensor has otherwise than its row says; nothing if all is as it should be."""
    if tensor.dtype.name != row["dtype"] and str(tensor.dtype) != row["dtype"]:
        return f"its type is {tensor.dtype.name}, not {row['dtype']}"
    if tuple(tensor.shape) != tuple(row["shape"]):
        return f"its shape is {tuple(tensor.shape)}, not {tuple(row['shape'])}"
    if row["sha256"] is None:
        return ""
    array = np.asarray(tensor.numpy())
    if array.shape != tuple(row["shape"]):
        return f"its array has the shape {array.shape}, not {tuple(row['shape'])}"
    found = hashlib.sha256(array.tobytes()).hexdigest()
    if found in (row["sha256"], row.get("or_sha256")):
        return ""
    return f"{row['dtype']} {tuple(row['shape'])}, {row['kind']}: other numbers: {array.reshape(-1)[:4]} …"
