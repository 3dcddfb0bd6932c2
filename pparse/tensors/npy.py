"""numpy's .npy format, streamed (NEP 1: magic, version, header length, header, data in C order); its type names."""

from __future__ import annotations

import struct

from pparse.lazy import lazy_pattern
from pparse.tensors.dtype import DTYPES, DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Final

    import numpy as np


MAGIC: Final = b"\x93NUMPY"
OPTIONS: Final = {"dtype": "type of elements that a file calls V1 or V2: float8_e4m3fn, int4, bfloat16 …"}
"""The options of files with arrays."""


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a C-ordered array of ``shape``; the data begins at a multiple of 64 bytes (NEP 1)."""
    said = f"{{'descr': {_descr(dtype)!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    try:
        text, major = said.encode("latin-1"), 1
    except UnicodeEncodeError:  # names of fields
        text, major = said.encode(), 3
    if len(text) >= 65_000:
        major = max(major, 2)
    size = "<H" if major == 1 else "<I"
    head = 8 + struct.calcsize(size)
    text += b" " * (-(head + len(text) + 1) % 64) + b"\n"
    return MAGIC + bytes((major, 0)) + struct.pack(size, len(text)) + text


def _descr(dtype: np.dtype[Any]) -> Any:
    """Return numpy's description of a type; of one that numpy lacks, that of bytes of its width."""
    import numpy as np

    if dtype.names is not None:
        return np.lib.format.dtype_to_descr(dtype)
    if dtype.isbuiltin == 2:  # of ml_dtypes
        return f"<V{dtype.itemsize}" if dtype.itemsize > 1 else "|V1"
    return dtype.str


def write_npy(tensor: Any, stream: BinaryIO) -> None:
    """Write ``tensor`` as .npy, a block at a time.

    Types that numpy lacks (bfloat16, float8 …) are written as numpy does: as bytes of that width (``<V2``).
    Raises the errors of `Tensor.blocks`.
    """
    stream.write(npy_header(tensor._known_dtype().numpy, tensor.shape))
    for part in tensor.blocks():
        stream.write(part.tobytes())


# -- numpy's descriptions of element types: ``<f4``, ``|S5``, ``>M8[25s]``, ``[('x', '<f4', (2,)), ('', '|V4')]`` ------

# They are read without numpy, and without evaluating anything (numpy/lib/format.py, `descr_to_dtype`). A structure is a
# list of ``(name, type)`` or ``(name, type, shape)``; a name may be ``(title, name)``, an empty one is padding, and a
# type may be a structure again. Its fields follow each other without a gap.
#
# Types that numpy does not have are those of ml_dtypes, and written as their kind and width: ``<V2`` is bfloat16 and
# ``<f1`` float8_e5m2, as there is one of each; ``<V1`` is any other of one byte, those below 8 bits too (ml_dtypes,
# custom_float.h, intn_numpy.h). Bytes of numpy itself are ``|V1``, and so is what `numpy.load` makes of these.

# Bytes of an element: numpy keeps the size in 32 bits.
_MOST: Final = (1 << 31) - 1
_EMPTY: Final = "its elements have no bytes, so any number of them could be claimed, and none can be read"
_SIMPLE: Final = lazy_pattern(r"([<>=|]?)([a-zA-Z?])([0-9]{0,10})(?:\[([0-9]{0,9})([a-zA-Z]{1,7})\])?")
_NUMBERS: Final = {
    "b1": "bool",
    "?": "bool",
    **{f"{kind}{size}": f"{word}{8 * size}" for kind, word in (("i", "int"), ("u", "uint")) for size in (1, 2, 4, 8)},
    **{f"f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"c{size}": f"complex{8 * size}" for size in (8, 16)},
}
# Formats of long double, of which each machine knows one at most: numpy's names, and bytes.
_LONG: Final = {"f12": ("float96", 12), "f16": ("float128", 16), "c24": ("complex192", 24), "c32": ("complex256", 32)}
# Types that numpy does not have, of which ml_dtypes has one with this description.
_FOREIGN: Final = {"<V2": "bfloat16", ">V2": "bfloat16", "<f1": "float8_e5m2", ">f1": "float8_e5m2"}
_UNITS: Final = frozenset(("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic"))
_TIMES: Final = {"M8": "datetime64", "m8": "timedelta64"}
_SWAPPED: Final = frozenset("iufcMmU")


class ObjectsError(ValueError):
    """A type of Python objects, or with them in a field: what is stored is a pickle."""


def described(descr: Any) -> tuple[DType, str]:
    """Return the element type that ``descr``, a text or a list, describes, and its byte order.

    The fields of a structure have byte orders of their own, which its type knows: then it is ``"little"``. Raises
    `ObjectsError` for Python objects, and ValueError with the reason for what is no type, or has no bytes.
    """
    if isinstance(descr, str):
        foreign = _FOREIGN.get(descr)
        return (DTYPES[foreign], "big" if descr == ">V2" else "little") if foreign else _simple(descr)
    if not isinstance(descr, list):
        raise ValueError("it is neither a text nor a list")
    size = _structure_size(descr)
    if not size:
        raise ValueError(_EMPTY)
    return DType(repr(descr), 8 * size, "other"), "little"


def type_of_text(text: str) -> DType:
    """Return the structure with this name. Raises ValueError, and `pparse.MalformedError`, which is one."""
    from pparse.kernels.python_literal import read_literal

    return described(read_literal(text))[0]


def numpy_structure(name: str) -> Any:
    """Return the numpy dtype of a structure, as `numpy.load` would make it. Raises ValueError if numpy refuses it."""
    import numpy as np

    try:
        from pparse.kernels.python_literal import read_literal

        return np.lib.format.descr_to_dtype(read_literal(name))
    except (TypeError, ValueError, SyntaxError, OverflowError) as error:
        raise ValueError(f"numpy refuses this structure: {error}") from error


def retyped(descr: str, wanted: DType) -> DType | None:
    """Return the type ``wanted`` for elements that are described as bytes of its width only; None for any other."""
    return wanted if descr[1:] == f"V{wanted.itemsize}" and descr not in _FOREIGN else None


def _simple(text: str) -> tuple[DType, str]:
    found = _SIMPLE.fullmatch(text)
    if found is None:
        known = DTYPES.get(text)  # written by others than numpy
        if known is None or known.name not in _NUMBERS.values():
            raise ValueError("it is no type of numpy")
        return known, "little"
    order, kind, digits, count, unit = found.groups()
    byteorder = "big" if order == ">" and kind in _SWAPPED else "little"
    code = kind + digits
    if kind == "O":
        raise ObjectsError("its elements are Python objects")
    if code in _TIMES:
        if unit is None or unit == "generic":
            return _other(_TIMES[code], 8), byteorder
        if unit not in _UNITS or (count and not int(count)):
            raise ValueError("its unit of time is not known")
        return _other(f"{_TIMES[code]}[{int(count) if count and int(count) > 1 else ''}{unit}]", 8), byteorder
    if unit is None and code in _NUMBERS:
        known = DTYPES[_NUMBERS[code]]
        return known, byteorder if known.bits > 8 else "little"
    if unit is None and code in _LONG:
        return _other(*_LONG[code]), byteorder
    if unit is None and kind in "SUV" and digits:
        size = int(digits) * (4 if kind == "U" else 1)
        if size > _MOST:
            raise ValueError("its elements are larger than numpy's can be")
        if not size:
            raise ValueError(_EMPTY)
        return _other(f"{'<' if kind == 'U' else '|'}{kind}{int(digits)}", size), byteorder
    raise ValueError("it is no type of numpy")


def _other(name: str, size: int) -> DType:
    return DType(name, 8 * size, "other")


def _structure_size(descr: list[Any]) -> int:
    """Return the number of bytes that a structure takes. Raises ValueError."""
    size = 0
    stack: list[tuple[list[Any], int]] = [(descr, 1)]
    while stack:
        fields, times = stack.pop()
        names: set[str] = set()
        for field in fields:
            kind, count = _field(field, names)
            if isinstance(kind, list):
                stack.append((kind, times * count))
            else:
                size += times * count * _field_size(kind)
            if size > _MOST or times * count > _MOST:
                raise ValueError("its elements are larger than numpy's can be")
    return size


def _field(field: Any, names: set[str]) -> tuple[str | list[Any], int]:
    """Return the type of a field, and how many of it there are; add its name to ``names``. Raises ValueError."""
    if not isinstance(field, tuple) or not 2 <= len(field) <= 3:
        raise ValueError("a field is not a name with a type")
    name, kind, *rest = field
    count = 1
    for length in _shape(rest[0]) if rest else ():
        count *= length
        if count > _MOST:
            raise ValueError("its elements are larger than numpy's can be")
    while isinstance(kind, tuple):  # an array of a type, as a type; it is nested only so deep
        if len(kind) != 2:
            raise ValueError("the type of a field is none")
        for length in _shape(kind[1]):
            count = min(count * length, _MOST + 1)
        kind = kind[0]
    if not isinstance(kind, str | list):
        raise ValueError("the type of a field is none")
    for word in name if isinstance(name, tuple) and len(name) == 2 else (name,):
        if not isinstance(word, str):
            raise ValueError("the name of a field is no text")
        if word in names:
            raise ValueError(f"two fields are called {word!r}")
        if word or kind == "" or not str(kind).startswith(("|V", "V")):
            names.add(word)
    return kind, count


def _shape(shape: Any) -> tuple[int, ...]:
    lengths = shape if isinstance(shape, tuple) else (shape,)
    if not all(type(length) is int and length >= 0 for length in lengths):
        raise ValueError("the shape of a field is none")
    return lengths


def _field_size(kind: str) -> int:
    """Return the number of bytes of a field of a simple type; texts and padding may have none."""
    if kind.lstrip("<>=|") in ("S0", "U0", "V0"):
        return 0
    return _simple(kind)[0].itemsize
