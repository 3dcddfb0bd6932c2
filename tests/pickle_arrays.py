"""Pickles of numpy arrays, written without numpy: the same whatever version of it is there; and what numpy reads."""

from __future__ import annotations

import io
import pickle
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Place = tuple[int, int]


def _text(text: str) -> bytes:
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _tuple(numbers: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(b"J" + struct.pack("<i", number) for number in numbers) + b"t"


def _dtype(word: str) -> bytes:
    order = word[0].encode()
    state = b"(K\3X\1\0\0\0" + order + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    return b"cnumpy\ndtype\n(" + _text(word[1:]) + b"\x89\x88tR" + state


def array_pickle(
    arrays: Mapping[str, tuple[str, tuple[int, ...]]], contents: Mapping[str, bytes], *, dill: bool = False
) -> tuple[bytes, dict[str, Place], dict[str, Place]]:
    """Return a pickle of a dict of arrays, where the bytes of each lie, and the opcodes behind them that finish it.

    Every second one is written as protocol 5 does, by ``_frombuffer``, the others by ``_reconstruct`` and a state; with
    ``dill``, these by a call of its own (dill/_dill.py, ``save_numpy_array``), and the others not at all.
    """
    out = bytearray(b"\x80\x05}(")
    places, tails = {}, {}
    for number, (name, (word, shape)) in enumerate(arrays.items()):
        content = contents[name]
        out += _text(name)
        if dill:
            out += b"cdill._dill\n_create_array\n(cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1bt"
            out += b"(K\1" + _tuple(shape) + _dtype(word) + b"\x89B" + struct.pack("<I", len(content))
            tail = b"ttR" if number % 2 else b"t}tR"  # attributes come last, if there are some
        elif number % 2:
            out += b"cnumpy.core.numeric\n_frombuffer\n(\x96" + struct.pack("<Q", len(content))
            tail = _dtype(word) + _tuple(shape) + _text("C") + b"tR"
        else:
            out += b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR"
            out += b"(K\1" + _tuple(shape) + _dtype(word) + b"\x89B" + struct.pack("<I", len(content))
            tail = b"tb"
        places[name] = (len(out), len(out) + len(content))
        out += content + tail
        tails[name] = (places[name][1], len(out))
    return bytes(out) + b"u.", places, tails


class OtherObjectError(Exception):
    """An object that is no array of numpy: the pickle may be sound, but not be read here."""


class _Arrays(pickle._Unpickler):  # type: ignore[name-defined,misc] -- the other one takes memory for a damaged memo
    """Reads arrays of numpy, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        import numpy as np

        known = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("numpy.core.multiarray", "_reconstruct"): _function("multiarray", "_reconstruct"),
            ("numpy.core.numeric", "_frombuffer"): _function("numeric", "_frombuffer"),
            ("dill._dill", "_create_array"): _made_by_dill,
        }
        if (module, name) not in known:
            raise OtherObjectError(f"{module}.{name} is no array")
        return known[module, name]

    def get_extension(self, code: int) -> Any:
        if code <= 0:
            return super().get_extension(code)  # which refuses it
        raise OtherObjectError(f"extension {code} is no array")


def _made_by_dill(make: Any, args: Any, state: Any, attributes: Any = None) -> Any:
    """Do what dill's ``_create_array`` does."""
    array = make(*args)
    array.__setstate__(state)
    return array


def _function(module: str, name: str) -> Any:
    import importlib

    import numpy as np

    room = "numpy._core" if int(np.__version__.partition(".")[0]) > 1 else "numpy.core"
    return getattr(importlib.import_module(f"{room}.{module}"), name)


def arrays_in(content: bytes) -> dict[str, bytes]:
    """Return the arrays of a dict, as pickle and numpy read them. Raises what they raise."""
    import numpy as np

    value = _Arrays(io.BytesIO(content)).load()
    if not isinstance(value, dict):
        raise OtherObjectError("no dict")
    return {name: one.tobytes() for name, one in value.items() if isinstance(one, np.ndarray)}
