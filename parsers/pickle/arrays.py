"""numpy arrays, as pickles describe them (numpy/core/src/multiarray/methods.c, ``array_setstate``; numpy/dtypes)."""

from __future__ import annotations

from math import prod

from pparse.parsers.pickle.dtypes import described_type
from pparse.parsers.pickle.joblib import WATCHED, wrapper_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.between import RawArray
    from pparse.parsers.pickle.values import Call

_MODULES: Final = ("numpy.core.", "numpy._core.")
_RECONSTRUCT: Final = frozenset(f"{module}multiarray._reconstruct" for module in _MODULES)
_FROM_BUFFER: Final = frozenset(f"{module}numeric._frombuffer" for module in _MODULES)
SCALARS: Final = frozenset(f"{module}multiarray.scalar" for module in _MODULES)
_MASKED: Final = "numpy.ma.core._mareconstruct"
# Where the bytes of a masked array stand in its state, and those of its mask (numpy/ma/core.py, ``__getstate__``).
MASKED_CONTENT: Final = 4
MASKED_MASK: Final = 5


class Array:
    """A numpy array, as its pickle describes it."""

    __slots__ = ("big_endian", "content", "doubt", "dtype", "fortran", "objects", "place", "reason", "shape", "what")

    def __init__(self, shape: tuple[int, ...], what: str) -> None:
        self.shape = shape
        """Length of each dimension."""
        self.what = what
        """numpy's word for the type of the elements, such as ``f4``."""
        self.dtype: str | None = None
        """The same as `pparse.tensors.DType.of` takes it; None: it cannot be read."""
        self.reason = ""
        """Why elements of this type cannot be read."""
        self.big_endian = False
        """Whether the elements are stored with the highest byte first."""
        self.fortran = False
        """Whether the first dimension runs fastest."""
        self.content: bytes | None = None
        """The bytes; None: there are none, see ``place`` and ``objects``."""
        self.place: tuple[Data, int, int] | None = None
        """Where the bytes of a large array are: the data, begin and end."""
        self.doubt: tuple[str, str] | None = None
        """Code and words why the place may be wrong; None: nothing suggests that."""
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


class MaskedArray:
    """A masked array of numpy: its elements, which of them are masked, and what stands for those."""

    __slots__ = ("elements", "fill", "mask")

    def __init__(self, elements: Array, mask: Array, fill: Any) -> None:
        self.elements = elements
        """All elements, masked ones too."""
        self.mask = mask
        """True for those that are masked; of a structure, for each of its fields."""
        self.fill = fill
        """The value that stands for masked ones, an array without dimensions; None: the default of its type."""


def masked_of(call: Call) -> MaskedArray | None:
    """Return the masked array that ``call`` would make; None if it would make none, or one that is not described."""
    state = call.state
    if call.name != _MASKED or not isinstance(state, tuple) or len(state) != 7:
        return None
    _, shape, dtype, fortran, content, masked, fill = state
    elements = _array(shape, dtype, bool(fortran), content)
    mask = _array(shape, dtype, bool(fortran), masked, mask=True)
    return None if elements is None or mask is None else MaskedArray(elements, mask, fill)


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


def _array(shape: Any, dtype: Any, fortran: bool, content: Any, *, mask: bool = False) -> Array | None:
    if type(shape) is int:
        shape = (shape,)
    if not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
        return None
    known = described_type(dtype, mask=mask)
    if known is None:
        return None
    found = Array(shape, known.what)
    found.dtype, found.big_endian, found.reason = known.dtype, known.big_endian, known.reason
    found.fortran = fortran and len(shape) > 1
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
