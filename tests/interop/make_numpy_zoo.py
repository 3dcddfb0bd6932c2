"""Writes the zoo of numpy's files, and what numpy reads of them.

``python -m tests.interop.make_numpy_zoo [FOLDER]``. Made with numpy 2.4, SciPy 1.17 and Python 3.11; FOLDER is
``tests/data/numpy`` by default. ``expected.json`` has for each array its shape, its type as numpy writes it, and the
SHA-256 of its elements in C order, of structures field by field.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import scipy.sparse

from tests.zip_samples import Sink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "data" / "numpy"


def arrays() -> dict[str, Any]:
    """Return arrays with something of everything."""
    rng = np.random.default_rng(7)
    aligned = np.zeros(3, np.dtype([("flag", "?"), ("value", "<f8"), ("code", "S3")], align=True))
    aligned["value"], aligned["code"] = [0.5, 1, 2], [b"a", b"bc", b"def"]
    return {
        "model/weight": rng.standard_normal((8, 6)).astype("f4"),
        "model/bias": np.arange(6, dtype=">i8"),
        "fortran": np.asfortranarray(rng.standard_normal((3, 4, 2))),
        "aligned": aligned,
        "nested": np.array([((1, [2, 3]), "é")], [("a", [("x", ">i2"), ("y", "<f2", (2,))]), ("b", "<U2")]),
        "words": np.array([["zero", ""], ["日本", "ab"]]),
        "days": np.array(["2026-01-02", "NaT"], "M8[D]"),
        "waits": np.array([1, 2], ">m8[25us]"),
        "halves": np.ones(4, ml_dtypes.bfloat16),
        "complex": np.array(1 + 2j),
        "none": np.zeros((0, 5), "u2"),
    }


def old_files(folder: Path) -> None:
    """Write files as old versions of numpy and other programs did."""

    def write(name: str, text: str, content: bytes, multiple: int = 16) -> None:
        raw = text.encode("latin-1")
        raw += b" " * (-(10 + len(raw) + 1) % multiple) + b"\n"
        (folder / name).write_bytes(b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + content)

    six = np.arange(6, dtype="<i4").tobytes()
    write("python2.npy", "{'descr': '<i4', 'fortran_order': False, 'shape': (2L, 3L), }", six)
    write("keys.npy", "{'shape': (2,3), 'fortran_order': True, 'descr': '<i4'}", six, 1)


def main(folder: Path) -> None:
    """Write everything."""
    folder.mkdir(parents=True, exist_ok=True)
    made = arrays()
    np.savez(folder / "stored.npz", **made)
    np.savez_compressed(folder / "deflated.npz", **made)
    out = Sink()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[call-overload]
        for name, array in made.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)
    (folder / "piped.npz").write_bytes(bytes(out.written))
    matrix = scipy.sparse.random_array((9, 5), density=0.3, format="csr", rng=np.random.default_rng(3))
    scipy.sparse.save_npz(folder / "sparse.npz", matrix)
    with (folder / "version3.npy").open("wb") as file:
        np.lib.format.write_array(file, np.zeros(2, [("größe", "<f4")]), (3, 0))
    old_files(folder)
    expected: dict[str, Any] = {}
    for path in sorted(folder.glob("*.np[yz]")):
        found = np.load(path)
        named = {path.stem: found} if path.suffix == ".npy" else {name: found[name] for name in found.files}
        expected[path.name] = {
            name: {
                "shape": list(array.shape),
                "descr": repr(np.lib.format.dtype_to_descr(array.dtype)),
                "sha256": hashlib.sha256(_elements(array)).hexdigest(),
            }
            for name, array in named.items()
        }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def _elements(array: np.ndarray[Any, Any]) -> bytes:
    """Return the elements, field by field, in the order of this machine: bytes between fields are numpy's business."""
    if array.dtype.names is not None:
        return b"".join(_elements(array[name]) for name in array.dtype.names)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).tobytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
