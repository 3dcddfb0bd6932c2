"""numpy arrays, as pickles describe them (numpy/core/src/multiarray/methods.c, ``array_setstate``; numpy/dtypes)."""

from __future__ import annotations

from math import prod

from pparse.parsers.pickle.joblib import WATCHED, order_of, wrapper_name
from pparse.parsers.pickle.values import Call, Global

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.between import RawArray

_MODULES: Final = ("numpy.core.", "numpy._core.")
_RECONSTRUCT: Final = frozenset(f"{module}multiarray._reconstruct" for module in _MODULES)
_FROM_BUFFER: Final = frozenset(f"{module}numeric._frombuffer" for module in _MODULES)
SCALARS: Final = frozenset(f"{module}multiarray.scalar" for module in _MODULES)
_SCALAR_TYPES: Final = {"M8": "datetime64", "m8": "timedelta64"}


class Array:
    """A numpy array, as its pickle describes it."""

    __slots__ = ("big_endian", "content", "doubt", "dtype", "fortran", "objects", "place", "shape", "what")

    def __init__(self, shape: tuple[int, ...], what: str) -> None:
        self.shape = shape
        """Length of each dimension."""
        self.what = what
        """numpy's word for the type of the elements, such as ``f4``."""
        self.dtype: str | None = None
        """The same as a type string of numpy, in the order of this machine; None: structures and the like."""
        self.big_endian = False
        """Whether the elements are stored with the highest byte first."""
        self.fortran = False
        """Whether the first dimension runs fastest."""
        self.content: bytes | None = None
        """The bytes; None: there are none, see ``place`` and ``objects``."""
        self.place: tuple[Data, int, int] | None = None
        """Where the bytes of a large array are: the data, begin and end."""
        self.doubt = ""
        """Why the place may be wrong; empty: nothing suggests that."""
        self.objects: list[Any] | None = None
        """The elements, if they are Python objects."""


def array_of(call: Call) -> Array | None:
    """Return the array that ``call`` would make; None if it would make none, or one that is not described."""
    name = call.name
    if name in _RECONSTRUCT:
        state = call.state
        if isinstance(state, tuple) and len(state) == 5:
            return _array(state[1], state[2], bool(state[3]), state[4])
        if isinstance(state, tuple) and len(state) == 4:
            return _array(state[0], state[1], bool(state[2]), state[3])
    elif name in _FROM_BUFFER and isinstance(call.args, tuple) and len(call.args) == 4:
        content, dtype, shape, order = call.args
        return _array(shape, dtype, order in ("F", "f"), content) if call.state is None else None
    elif call.array is not None and not call.array.is_pickle and wrapper_name(call) == WATCHED.decode():
        return _array_of_joblib(call.array, call.state)
    return None


def _array_of_joblib(place: RawArray, state: Any) -> Array | None:
    """Return an array whose bytes stand between the opcodes."""
    if not isinstance(state, dict):
        return None
    found = _array(state.get("shape"), state.get("dtype"), state.get("order") == "F", b"")
    if found is not None:
        found.content, found.doubt = None, place.doubt
        found.place = place.data, place.begin, place.end
    return found


def scalar_of(call: Call) -> Array | None:
    """Return a numpy scalar as an array without dimensions; None if ``call`` would make none."""
    if call.name in SCALARS and isinstance(call.args, tuple) and len(call.args) == 2:
        return _array((), call.args[0], False, call.args[1])
    return None


def _array(shape: Any, dtype: Any, fortran: bool, content: Any) -> Array | None:
    if type(shape) is int:
        shape = (shape,)
    if not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
        return None
    known = _dtype(dtype)
    if known is None:
        return None
    found = Array(shape, known[0])
    found.dtype, found.big_endian, found.fortran = known[1], known[2], fortran and len(shape) > 1
    if isinstance(content, list):
        found.objects = content if len(content) == prod(shape) else None
        return found if found.objects is not None else None
    if isinstance(content, str):  # protocols 0 to 2, and Python 2: a character for each byte
        try:
            content = content.encode("latin-1")
        except UnicodeEncodeError:
            return None
    if not isinstance(content, bytes | bytearray):
        return None
    found.content = bytes(content)
    return found


def _dtype(value: Any) -> tuple[str, str | None, bool] | None:
    """Return numpy's word for a type, its type string, and whether it is big-endian; None: it is no type."""
    if not isinstance(value, Call) or value.name != "numpy.dtype" or not isinstance(value.args, tuple):
        return None
    word = value.args[0] if value.args else None
    if isinstance(word, bytes):
        word = word.decode("latin-1")
    if isinstance(word, Global) and word.module == "ml_dtypes":
        return word.name, word.name, False
    if not isinstance(word, str) or len(word) > 40:
        return None
    state = value.state
    order = order_of(state)
    if order is None:
        return None
    if isinstance(state, tuple) and len(state) > 4 and (state[2] is not None or state[3] is not None):
        return word, None, False  # parts of its own: an array, or a structure
    if order == "=" and word[:1] in ("<", ">"):  # without a state
        order, word = word[0], word[1:]
    text: str | None = word
    if word[:2] in _SCALAR_TYPES:
        text = _time(word, state[-1] if isinstance(state, tuple) else None)
    elif word[:1] in "VO":
        text = None
    return word, text, order == ">"


def _time(word: str, facts: Any) -> str | None:
    """Return the type string of times, whose unit stands in the last part of the state: ``({}, (unit, n, 1, 1))``."""
    unit = facts[1] if isinstance(facts, tuple) and len(facts) == 2 else None
    if not isinstance(unit, tuple) or len(unit) < 2 or type(unit[1]) is not int:
        return None
    name = unit[0].decode("latin-1") if isinstance(unit[0], bytes) else unit[0]
    if not isinstance(name, str) or not name.isalpha():
        return None
    return f"{word}[{unit[1] if unit[1] != 1 else ''}{name}]"
