"""Plain pickles: numpy arrays, python values, tensors without torch.save, and what joblib writes.

`pickle.load` is their referee. Files with old names of numpy, and those of joblib, are written by hand.
"""

from __future__ import annotations

import collections
import pickle
import struct
import sys

import numpy as np

from tests.interop.pytorch_zoo.objects import arrays, deep
from tests.interop.pytorch_zoo.old import Python2Pickler, dumped
from tests.interop.pytorch_zoo.sample import add, ramp, written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALIGNMENT = 16


def pickled(name: str, make: Any, note: str = "", protocol: int = 4) -> None:
    """Add a file of pickle.dump."""

    def write(path: Any) -> None:
        path.write_bytes(pickle.dumps(make(), protocol))

    add(f"pickle/{name}", write, note, referee="pickle")


def plain() -> dict[str, object]:
    return {
        "none": None,
        "flags": [True, False],
        "integers": [0, 1, 255, 256, 65535, 65536, -1, -129, 2**31 - 1, 2**31, -(2**31), 2**63, -(2**200), 2**2100],
        "floats": [0.0, -0.0, 0.1, 1e300, float("inf"), 5e-324],
        "text": ["", "é", "日本", "\U0001f600", "a\nb\\n'\"", "\x00", "\udc80", "x" * 300],
        "bytes": [b"", b"\x00\xff\n", b"y" * 300],
        "bytearray": bytearray(b"ab\xff"),
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "sets": [{1, 2}, frozenset([3])],
        "empty": [[], {}, set()],
        "complex": 1 - 2j,
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        5: {"nested": {(1, 2): "tuple key", None: "none key"}},
        "class": dict,
        "function": len,
    }


def numpy_only() -> dict[str, object]:
    return {name: value for name, value in arrays().items() if name != "tensor"}


for number in range(6):
    pickled(f"plain{number}.pkl", plain, protocol=number)
    pickled(f"numpy{number}.pkl", numpy_only, "arrays and scalars of numpy 2", protocol=number)
    pickled(f"array{number}.pkl", lambda: np.arange(12, dtype="f8").reshape(3, 4), "one array", protocol=number)


def old_names(raw: bytes) -> bytes:
    """Return a pickle of numpy 2 with the module names of numpy 1; frames are given their new lengths."""
    out = raw.replace(b"cnumpy._core.", b"cnumpy.core.")
    new, old = b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray"
    count = out.count(new)
    out = out.replace(new, old)
    if out[2:3] == b"\x95":
        assert out.count(b"\x95") == 1 or len(out) < 65_000
        (length,) = struct.unpack_from("<Q", out, 3)
        out = out[:3] + struct.pack("<Q", length - count) + out[11:]
    return out


for number in (2, 4):
    add(
        f"pickle/numpy1_{number}.pkl",
        lambda path, number=number: path.write_bytes(old_names(pickle.dumps(numpy_only(), number))),
        "module names of numpy 1, put in by hand",
        referee="pickle",
    )

pickled(
    "text_arrays.pkl",
    lambda: {
        "unicode": np.array(["a", "é", "日本語"]),
        "bytes": np.array([b"ab", b"c"]),
        "big_endian": np.array(["xy", "z"], dtype=">U3"),
    },
    "arrays of text",
)
pickled(
    "dates.pkl",
    lambda: {
        "date": np.array(["2024-01-02"], "M8[D]"),
        "delta": np.array([5, 7], "m8[ns]"),
    },
    "arrays of times",
)
pickled(
    "objects.pkl",
    lambda: {"mixed": np.array([1, "a", None, [2.5]], dtype=object), "ragged": np.array([np.arange(2), 3], object)},
    "arrays of objects",
)
pickled("deep.pkl", deep, "50 levels")
pickled("shared.pkl", lambda: [[row := [1, 2], row], {"again": row}], "one list at three places")


def slotted() -> Any:
    models = sys.modules["zoo_models"]
    value = models.Slotted()
    value.weight, value.count = np.arange(3, dtype="f4"), 2
    return {"slotted": value, "config": models.Config(bias=np.ones(2), name="x")}


def ring() -> Any:
    value: dict[str, Any] = {"a": np.arange(3)}
    value["self"] = value
    value["list"] = [value, (value, 1)]
    return value


pickled("cycle.pkl", ring, "a dict inside itself")
pickled("many.pkl", lambda: {f"k{number}": f"v{number}" for number in range(1200)}, "memo numbers beyond a byte")
pickled("many2.pkl", lambda: {f"k{number}": [number] for number in range(1200)}, "the same", protocol=2)
pickled("frames.pkl", lambda: ["x" * 20_000, "y" * 20_000, b"z" * 5_000], "several frames")
pickled("large.pkl", lambda: {"a": np.arange(6000, dtype="u1")}, "an array beside the frames", protocol=5)
pickled("slots.pkl", slotted, "an object with slots, and one with attributes")
pickled("tensor.pkl", lambda: {"w": ramp(2, 3), "n": 1}, "a tensor: a legacy file of torch, as bytes in the pickle")
pickled("storage.pkl", lambda: ramp(3).untyped_storage(), "a storage, likewise")


@written("pickle/python2.pkl", "texts as byte strings, as Python 2 wrote them; written by hand", referee="pickle")
def _python2(path):
    path.write_bytes(dumped({"name": "value", "list": [1, 2.5, None, True], "long": 2**70}, Python2Pickler))


@written("pickle/python2_text.pkl", "protocol 0, with the quoted strings of Python 2; written by hand", "pickle")
def _python2_text(path):
    path.write_bytes(
        b"(dp0\nS'it\\'s\\n'\np1\nI01\nsS\"two\"\np2\nL12345678901234567890L\nsVpl\\u00e9\nF1.5\nsg1\ng2\ns."
    )


@written("pickle/odd_memo.pkl", "memo numbers that are neither dense nor in order; written by hand", referee="pickle")
def _odd_memo(path):
    path.write_bytes(
        b"\x80\x02]r\x40\x42\x0f\x00(X\x01\x00\x00\x00aq\x07h\x07j\x40\x42\x0f\x00X\x01\x00\x00\x00bq\x07h\x07e."
    )


@written("pickle/odd_opcodes.pkl", "POP, DUP, POP_MARK, and items put singly; written by hand", referee="pickle")
def _odd_opcodes(path):
    path.write_bytes(b"\x80\x04}(K\x01K\x021N0X\x01\x00\x00\x00a]K\x05aK\x06asX\x01\x00\x00\x00bK\x072\x86s.")


# -- joblib ----------------------------------------------------------------------------------------------------------


class JoblibPickler(pickle._Pickler):  # type: ignore[name-defined,misc]
    """Writes arrays as joblib does: an object that describes one, and its bytes between two opcodes."""

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.file = file

    def save(self, value: Any, save_persistent_id: bool = True) -> Any:
        if type(value) is not np.ndarray:
            return super().save(value, save_persistent_id)
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        wrapper = sys.modules["joblib.numpy_pickle"].NumpyArrayWrapper(np.ndarray, value.shape, order, value.dtype)
        super().save(wrapper, save_persistent_id)
        if self.proto >= 4:
            self.framer.commit_frame(force=True)
        if value.dtype.hasobject:
            pickle.dump(value, self.file, protocol=2)
        else:
            room = ALIGNMENT - (self.file.tell() + 1) % ALIGNMENT
            self.file.write(bytes([room]) + b"\xff" * room + value.tobytes(order))
        return None


class JoblibUnpickler(pickle._Unpickler):  # type: ignore[name-defined,misc]
    """Reads what `JoblibPickler` wrote, as joblib does."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.file = file

    dispatch = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

    def load_build(self) -> None:
        super().load_build()
        wrapper = self.stack[-1]
        if type(wrapper).__name__ != "NumpyArrayWrapper":
            return
        self._unframer.current_frame = None
        if wrapper.dtype.hasobject:
            self.stack[-1] = pickle.load(self.file)
            return
        self.file.read(self.file.read(1)[0])
        count = int(np.prod(wrapper.shape, dtype=np.int64))
        flat = np.frombuffer(self.file.read(count * wrapper.dtype.itemsize), wrapper.dtype)
        self.stack[-1] = flat.reshape(wrapper.shape, order=wrapper.order)

    dispatch[pickle.BUILD[0]] = load_build


def joblib_value() -> dict[str, Any]:
    return {
        "matrix": np.arange(12, dtype="f4").reshape(3, 4),
        "fortran": np.asfortranarray(np.arange(6, dtype="i8").reshape(2, 3)),
        "scalar": np.array(2.5),
        "none": np.empty((0, 2)),
        "objects": np.array([1, "a"], dtype=object),
        "after": [1, "x", np.arange(3, dtype="u1")],
        "number": np.float64(0.5),
    }


def joblib_file(protocol: int) -> Any:
    def write(path: Any) -> None:
        with path.open("wb") as file:
            JoblibPickler(file, protocol).dump(joblib_value())

    return write


for number in (3, 4, 5):
    add(
        f"pickle/model{number}.joblib",
        joblib_file(number),
        "bytes of arrays between the opcodes, as joblib 1.x writes them; written by hand",
        referee="joblib",
    )
