"""Writes ``tests/data/joblib``: files of joblib, and what joblib reads in them.

``python -m tests.interop.make_joblib_samples [FOLDER]``. Made with joblib 1.6.0, scikit-learn 1.9.1, lz4, numpy 2.4 and
Python 3.11. With an older joblib in its place (1.1.0, 0.9.4) only ``joblib-VERSION.joblib`` is written, and
a compressed one; of 0.9.4 without the files beside them.

``expected.json`` has for each file the name, type, shape and sha256 (C order, little-endian) of each array, in order.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path

import joblib
import numpy as np

from tests.joblib_samples import FOLDER, row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: The module that scikit-learn had its own joblib in, until 0.22.
VENDORED = "sklearn.externals.joblib.numpy_pickle"
CODECS = {"z": "zlib", "gz": "gzip", "bz2": "bz2", "xz": "xz", "lzma": "lzma", "lz4": "lz4"}


class Pipe(io.BytesIO):
    """A file that does not know its place: joblib writes no padding."""

    def tell(self) -> int:
        raise io.UnsupportedOperation


def value() -> dict[str, Any]:
    """Return arrays of all kinds."""
    return {
        "matrix": np.arange(12, dtype="f4").reshape(3, 4),
        "fortran": np.asfortranarray(np.arange(24, dtype="i8").reshape(2, 3, 4)),
        "big": np.arange(5, dtype=">i2"),
        "scalar": np.array(2.5),
        "none": np.empty((0, 3)),
        "objects": np.array([1, "a", np.arange(3, dtype="u1")], dtype=object),
        "list": [1, "x", np.array([True, False]), (np.arange(3, dtype="c8"),)],
        "texts": np.array(["ab", "c"]),
        "bytes": np.array([b"abc", b"d"]),
        "days": np.array(["2020-01-01", "2024-02-29"], dtype="M8[D]"),
        "records": np.zeros(2, [("a", "<i4"), ("b", "<f8")]),
        "number": np.float64(0.5),
        "last": np.arange(7, dtype="f2"),
    }


def model() -> Any:
    """Return estimators of scikit-learn."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    data = np.arange(24, dtype="f8").reshape(8, 3) % 7
    wanted = np.array([0, 1] * 4)
    pipeline = Pipeline([("scale", StandardScaler()), ("fit", LogisticRegression())]).fit(data, wanted)
    kinds = np.array([["a", "x"], ["b", "y"]], dtype=object)
    tree = DecisionTreeClassifier(max_depth=1, random_state=0).fit(data, wanted)
    return {"pipeline": pipeline, "kinds": OneHotEncoder().fit(kinds), "tree": tree}


def arrays(found: Any, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and arrays in dicts, lists, attributes and arrays of objects."""
    if isinstance(found, np.ndarray) and not found.dtype.hasobject:
        yield name, found
        return
    if isinstance(found, np.ndarray):
        found = found.reshape(-1).tolist()
    parts = found if isinstance(found, dict) else getattr(found, "__dict__", {})
    parts = dict(enumerate(found)) if isinstance(found, list | tuple) else parts
    for key, part in parts.items():
        yield from arrays(part, f"{name}.{key}" if name else str(key))


def write(folder: Path) -> dict[str, Any]:
    """Write the files; return the values that are in them."""
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Any] = {}
    for protocol in (0, 2, 4, 5):
        name = f"arrays{protocol}.joblib"
        joblib.dump(value(), folder / name, protocol=protocol)
        made[name] = value()
    for extension, codec in CODECS.items():
        name = f"arrays.joblib.{extension}"
        joblib.dump(value(), folder / name, compress=(codec, 3))
        made[name] = value()
    pipe = Pipe()
    joblib.dump(value(), pipe)
    (folder / "unaligned.joblib").write_bytes(pipe.getvalue())
    made["unaligned.joblib"] = value()
    two = io.BytesIO()
    joblib.dump({"a": np.arange(3)}, two)
    joblib.dump({"b": np.arange(4.0)}, two)
    (folder / "two.joblib").write_bytes(two.getvalue())
    made["two.joblib"] = [{"a": np.arange(3)}, {"b": np.arange(4.0)}]
    with tempfile.NamedTemporaryFile() as file:
        mapped = np.memmap(file.name, dtype="i4", mode="w+", shape=(2, 5))
        mapped[:] = np.arange(10).reshape(2, 5)
        joblib.dump([mapped], folder / "mapped.joblib")
        made["mapped.joblib"] = [np.array(mapped)]
    joblib.dump(model(), folder / "model.joblib")
    made["model.joblib"] = joblib.load(folder / "model.joblib")
    wrapper = joblib.numpy_pickle.NumpyArrayWrapper
    wrapper.__module__, sys.modules[VENDORED] = VENDORED, joblib.numpy_pickle
    for protocol in (2, 4):
        joblib.dump(value(), folder / f"vendored{protocol}.joblib", protocol=protocol)
        made[f"vendored{protocol}.joblib"] = value()
    wrapper.__module__ = joblib.numpy_pickle.__name__
    return made


def main(folder: Path) -> None:
    """Write files and ``expected.json``."""
    if tuple(map(int, joblib.__version__.split(".")[:2])) < (1, 2):
        joblib.dump(value(), str(folder / f"joblib-{joblib.__version__}.joblib"))
        joblib.dump(value(), str(folder / f"joblib-{joblib.__version__}-compressed.joblib"), compress=3)
        return
    told = {name: {key: row(array) for key, array in arrays(found)} for name, found in write(folder).items()}
    told["joblib-1.1.0.joblib"] = told["arrays4.joblib"]
    text = json.dumps(told, indent=1)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
