"""numpy arrays, as pickles describe them (numpy/core/src/multiarray/methods.c, ``array_setstate``; numpy/dtypes)."""

from __future__ import annotations

from math import prod

from pparse.display.text import shorten
from pparse.errors import UnsupportedError
from pparse.limits import count_words
from pparse.parsers.pickle.joblib import WATCHED, order_of, wrapper_name
from pparse.parsers.pickle.values import Call, Global, as_latin1, as_text
from pparse.tensors.dtype import DType, are_characters
from pparse.tensors.npy import described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.joblib import RawArray

# -- numpy's element types, as pickles describe them (numpy/core/src/multiarray/descriptor.c, ``arraydescr_reduce``)

# A type is a call of ``numpy.dtype`` with its word, such as ``f4``, and a state::
#
#     (version, byte order, subarray, names, fields, size, alignment, flags[, metadata])
#
# ``subarray`` is ``(type, shape)``. ``names`` are those of a structure's fields; ``fields`` has for each of them
# ``(type, offset)`` or ``(type, offset, title)``, and the same under its title. The metadata of times is
# ``({}, (unit, count, 1, 1))``.
#
# A structure is described as in .npy files, where what lies between its fields is a field without a name.

_TIMES: Final = ("M8", "m8")
_LONGEST: Final = 40
# Shared types could make a structure that has more fields than the pickle has bytes.
_MOST_FIELDS: Final = 10_000
_MOST_SIZE: Final = (1 << 31) - 1
_MOST_DIMENSIONS: Final = 64
_BOOL: Final = "|b1"
# Named by numpy's class of records, which adds access to fields as attributes.
_RECORD: Final = "record"


class Described:
    """What a pickle says of an element type."""

    __slots__ = ("big_endian", "dtype", "reason", "what")

    def __init__(self, what: str, dtype: str | None, *, big_endian: bool = False, reason: str = "") -> None:
        self.what = what
        """numpy's word for it."""
        self.dtype = dtype
        """The same as `pparse.tensors.DType.of` takes it, in the order of this machine; None: it cannot be read."""
        self.big_endian = big_endian
        """Whether elements are stored with the highest byte first; of a structure, its fields say that."""
        self.reason = reason
        """Why it cannot be read; empty if it can."""


class _NotReadError(Exception):
    """A structure that cannot be described, and why."""


def described_type(value: Any, *, mask: bool = False) -> Described | None:
    """Return what the type ``value`` is; None: it is no type. ``mask``: of the mask of a masked array of that type."""
    if not _is_type(value):
        return None
    word, state = _word(value), value.state
    if isinstance(word, Global):
        if word.module == "ml_dtypes":
            return Described("bool", "bool") if mask else Described(word.name, word.name)
        if word != Global("numpy", _RECORD):
            return None
        word = _RECORD
    order = order_of(state)
    if not isinstance(word, str) or len(word) > _LONGEST or order is None:
        return None
    try:
        if _names(value) is not None:
            form = repr(_structure(value, mask))
            return Described(form, form)
        if _part(state, 2) is not None:
            return Described(word, None, reason="its elements are arrays themselves")
        return Described("bool", "bool") if mask else _simple(word, order, state)
    except _NotReadError as error:
        return Described(word, None, reason=f"in its structure, {error}")


def _is_type(value: Any) -> bool:
    return isinstance(value, Call) and value.name == "numpy.dtype" and isinstance(value.args, tuple)


def _word(call: Call) -> Any:
    return as_text(call.args[0]) if call.args else None


def _part(state: Any, number: int) -> Any:
    """Return a part of a type's state; None if it has none."""
    return state[number] if isinstance(state, tuple) and 4 < len(state) > number else None


def _simple(word: str, order: str, state: Any) -> Described:
    """Return a type without fields."""
    if order == "=" and word[:1] in ("<", ">"):  # without a state
        order, word = word[0], word[1:]
    big = order == ">"
    if word[:2] in _TIMES:
        unit = _unit(state[-1] if isinstance(state, tuple) else None)
        if unit is None:
            return Described(word, None, big_endian=big, reason="it does not say its unit of time")
        return Described(word, word + unit, big_endian=big)
    if word[:1] == "O":
        return Described(word, None, reason="its elements are Python objects")
    return Described(word, word, big_endian=big)


def _unit(facts: Any) -> str | None:
    """Return the unit of times, in brackets, of the last part of the state; None if that is not there."""
    unit = facts[1] if isinstance(facts, tuple) and len(facts) == 2 else None
    if not isinstance(unit, tuple) or len(unit) < 2 or type(unit[1]) is not int:
        return None
    name = as_text(unit[0])
    if not isinstance(name, str) or not name.isalpha():
        return None
    return f"[{unit[1] if unit[1] != 1 else ''}{name}]"


# -- structures ------------------------------------------------------------------------------------------------------


def _names(call: Call) -> tuple[Any, ...] | None:
    """Return the names of the fields of a structure; None: it is none."""
    names = _part(call.state, 3)
    return names if isinstance(names, tuple) else None


class _Fields:
    """The fields of a structure that were gone through so far."""

    __slots__ = ("_call", "_mask", "_place", "end", "form", "size", "todo")

    def __init__(self, call: Call, mask: bool) -> None:
        self._call, self._mask = call, mask
        self.form: list[tuple[Any, ...]] = []
        """The structure, as .npy files describe it."""
        self.end = 0
        """Where the last field ends."""
        size = _part(call.state, 5)
        if type(size) is not int or not 0 <= size <= _MOST_SIZE:
            raise _NotReadError("the size is none")
        self.size: int = size
        """Bytes of an element."""
        word = _word(call)
        if isinstance(word, str) and word != f"V{size}":
            raise _NotReadError(f"the word {word!r} and the size {size} contradict each other")
        self.todo = list(reversed(_names(call) or ()))
        """Names of the fields that come next, the first last."""
        self._place: tuple[Any, int, tuple[int, ...]] = None, 0, ()  # label, offset and shape of the field at hand

    def next(self) -> Any:
        """Go on to the next field, and return its type."""
        name, fields = self.todo.pop(), _part(self._call.state, 4)
        found = fields.get(name) if isinstance(fields, dict) else None
        if not isinstance(found, tuple) or not 2 <= len(found) <= 3 or type(found[1]) is not int:
            raise _NotReadError(f"the field {name!r} is not described")
        kind, offset, title = *found[:2], found[2] if len(found) == 3 else None
        shape: tuple[int, ...] = ()
        if _is_type(kind) and _part(kind.state, 2) is not None:
            kind, shape = _base_of(kind)
        if not _is_type(kind) or order_of(kind.state) is None:
            raise _NotReadError(f"the field {name!r} has no type")
        words = [as_text(word) for word in ((name,) if title is None else (title, name))]
        if not all(isinstance(word, str) for word in words):
            raise _NotReadError("a name is no text")
        self._place = words[0] if len(words) == 1 else tuple(words), offset, shape
        return kind

    def add(self, form: Any, size: int) -> None:
        """Add the field at hand, with what lies between it and the one before."""
        label, offset, shape = self._place
        if offset < self.end:
            raise _NotReadError("fields overlap, or are not in the order of their bytes")
        size *= prod(shape)
        if size > self.size - offset:
            raise _NotReadError(f"fields are larger than its {count_words(self.size, 'byte')}")
        self.fill(offset)
        self.form.append((label, form, shape) if shape else (label, form))
        self.end = offset + size

    def fill(self, end: int) -> None:
        """Add what lies between the last field and ``end``."""
        if end > self.end and not self._mask:  # masks have no padding
            self.form.append(("", f"|V{end - self.end}"))


def _structure(call: Call, mask: bool) -> list[tuple[Any, ...]]:
    """Return a structure as .npy files describe it. Raises `_NotReadError`."""
    stack = [_Fields(call, mask)]
    count = 0
    while True:
        top = stack[-1]
        if top.todo:
            count += 1
            if count > _MOST_FIELDS:
                raise _NotReadError(f"there are more than {_MOST_FIELDS:,} fields")
            kind = top.next()
            if _names(kind) is not None:
                stack.append(_Fields(kind, mask))
            else:
                form, size = _field(kind)
                top.add(_BOOL if mask else form, size)
            continue
        top.fill(top.size)
        stack.pop()
        if not stack:
            return top.form
        stack[-1].add(top.form, top.size)


def _base_of(kind: Call) -> tuple[Any, tuple[int, ...]]:
    """Return the type and the shape of a field that is an array."""
    lengths: list[int] = []
    for _ in range(_LONGEST):
        inner = _part(kind.state, 2)
        if inner is None:
            return kind, tuple(lengths)
        if not isinstance(inner, tuple) or len(inner) != 2:
            break
        shape = inner[1] if isinstance(inner[1], tuple) else (inner[1],)
        if not all(type(length) is int and 0 <= length <= _MOST_SIZE for length in shape):
            break
        lengths += shape
        kind = inner[0]
        if not _is_type(kind) or len(lengths) > _LONGEST:
            break
    raise _NotReadError("a field is an array of no known form")


def _field(kind: Call) -> tuple[str, int]:
    """Return the text of the type of a field without fields, and its bytes."""
    word, order = _word(kind), order_of(kind.state)
    if isinstance(word, Global) and word.module == "ml_dtypes":
        raise _NotReadError(f"a field has the type {shorten(word.name)}, which numpy's structures have no name for")
    if not isinstance(word, str) or len(word) > _LONGEST or order is None:
        raise _NotReadError("the type of a field is not known")
    simple = _simple(word, order, kind.state)
    if simple.dtype is None:
        raise _NotReadError(f"a field cannot be read: {simple.reason}")
    if simple.dtype in ("S0", "U0", "V0"):
        return f"|{simple.dtype}" if word[0] != "U" else "<U0", 0
    text = (">" if simple.big_endian else "<") + simple.dtype
    try:
        known, _ = described(text)
    except ValueError as error:
        raise _NotReadError(f"of the type {shorten(word)!r} of a field, {error}") from error
    single = known.itemsize == 1 or word[0] in "SV"
    return ("|" if single else text[0]) + text[1:], known.itemsize


_MODULES: Final = ("numpy.core.", "numpy._core.")
_RECONSTRUCT: Final = frozenset(f"{module}multiarray._reconstruct" for module in _MODULES)
_FROM_BUFFER: Final = frozenset(f"{module}numeric._frombuffer" for module in _MODULES)
SCALARS: Final = frozenset(f"{module}multiarray.scalar" for module in _MODULES)
# dill calls ``_create_array(_reconstruct, args, state[, attributes])`` (dill/_dill.py; ``dill.dill`` before 0.2.6).
OF_DILL: Final = frozenset(("dill._dill._create_array", "dill.dill._create_array"))
_MASKED: Final = "numpy.ma.core._mareconstruct"
# Where the bytes of a masked array stand in its state, and those of its mask (numpy/ma/core.py, ``__getstate__``).
MASKED_CONTENT: Final = 4
MASKED_MASK: Final = 5


class Array:
    """A numpy array, as its pickle describes it."""

    __slots__ = ("content", "doubt", "fortran", "objects", "place", "shape", "type")

    def __init__(
        self, shape: tuple[int, ...], type: Described, content: bytes | None = None, *, fortran: bool = False
    ) -> None:
        self.shape = shape
        """Length of each dimension."""
        self.type = type
        """What the elements are."""
        self.fortran = fortran
        """Whether the first dimension runs fastest."""
        self.content = content
        """The bytes; None: there are none, see ``place`` and ``objects``."""
        self.place: tuple[Data, int, int] | None = None
        """Where the bytes of a large array are: the data, begin and end."""
        self.doubt: tuple[str, str] | None = None
        """Code and words why the place may be wrong; None: nothing suggests that."""
        self.objects: list[Any] | None = None
        """The elements, if they are Python objects."""


def array_of(call: Call) -> Array | None:
    """Return the array that ``call`` would make; None if it would make none, or one that is not described."""
    name, state = call.name, call.state
    if name in OF_DILL and isinstance(call.args, tuple) and len(call.args) in (3, 4):
        name, state = str(call.args[0]), call.args[2]
    if name in _RECONSTRUCT:
        if isinstance(state, tuple) and len(state) in (4, 5):  # without a version, or with one
            shape, dtype, fortran, content = state[-4:]
            return _array(shape, dtype, bool(fortran), content)
    elif name in _FROM_BUFFER and isinstance(call.args, tuple) and len(call.args) == 4:
        content, dtype, shape, order = call.args
        return _array(shape, dtype, order in ("F", "f"), content) if call.state is None else None
    elif call.array is not None and not call.array.is_pickle and wrapper_name(call) == WATCHED.decode():
        return _array_of_joblib(call.array, call.state)
    return None


def why_refused(call: Call) -> str | None:
    """Return why numpy refuses to make the array that ``call`` describes: its state is none; None if it does not.

    What a subclass of its arrays takes for a state is not known (numpy/_core/src/multiarray/methods.c, array_setstate).
    """
    name, args, state = call.name, call.args, call.state
    if name in OF_DILL and isinstance(args, tuple) and len(args) in (3, 4):
        name, args, state = str(args[0]), args[1], args[2]
    if name not in _RECONSTRUCT or not isinstance(args, tuple) or not args or str(args[0]) != "numpy.ndarray":
        return None
    count = len(state) if isinstance(state, tuple) else 0
    if count not in (0, 4, 5):
        return f"its state has {count:,} parts: that of an array has 4 or 5"
    is_made = not count or _lengths(state[-4]) is not None
    return None if is_made else "its shape is no tuple of at most 64 lengths from 0 to 2^63 - 1"


def _lengths(shape: Any) -> tuple[int, ...] | None:
    """Return a shape, or the only length of one; None if numpy has no arrays of it (numpy/_core/include/numpy/
    ndarraytypes.h, ``NPY_MAXDIMS``; a length is an ``npy_intp``)."""
    lengths = (shape,) if type(shape) is int else shape
    if not isinstance(lengths, tuple) or len(lengths) > _MOST_DIMENSIONS:
        return None
    return lengths if all(type(length) is int and 0 <= length < 1 << 63 for length in lengths) else None


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


def number_of(scalar: Array) -> Any:
    """Return a numpy scalar as a number of Python, or as text."""
    import numpy as np

    try:
        dtype = DType.of(scalar.type.dtype or "").numpy
        if dtype.fields is None:  # of a structure, each field has an order
            dtype = dtype.newbyteorder(">" if scalar.type.big_endian else "<")
        array = np.frombuffer(scalar.content or b"", dtype, 1)
    except (ValueError, UnsupportedError):
        return f"<{scalar.type.what}>"
    if not are_characters(array):
        return f"<{scalar.type.what}>"
    value = array[0].item()
    return value if isinstance(value, str | int | float) else str(value)


def _array(shape: Any, dtype: Any, fortran: bool, content: Any, *, mask: bool = False) -> Array | None:
    lengths, known = _lengths(shape), described_type(dtype, mask=mask)
    if lengths is None or known is None:
        return None
    found = Array(lengths, known, fortran=fortran and len(lengths) > 1)
    if isinstance(content, list):
        found.objects = content
        return found if len(content) == prod(lengths) else None
    if isinstance(content, str):  # protocols 0 to 2, and Python 2: a character for each byte
        content = as_latin1(content)
    if not isinstance(content, bytes | bytearray):
        return None
    found.content = bytes(content)
    return found
