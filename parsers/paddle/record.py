"""A parameter as PaddlePaddle writes it: alone in a file, or with others in a ``.pdiparams``.

Layout, little-endian (paddle/phi/core/framework/dense_tensor_serialize.cc, dense_tensor_tostream.cc)::

    u32 version, 0; u64 number of levels; for each: u64 bytes, u64 offsets
    u32 version, 0; i32 bytes of what follows; VarType.TensorDesc: type, dimensions
    the elements, one after the other

Levels say how rows form sequences; parameters have none. Nothing is aligned, and there are no checksums.
"""

from __future__ import annotations

from collections import namedtuple
from math import prod
from struct import unpack

from pparse.data.window import Window
from pparse.display.text import few, shorten
from pparse.errors import EndOfDataError, MalformedError
from pparse.kernels.wire import PADDING, fields, read_value
from pparse.limits import count_words
from pparse.tensors.dtype import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

    from pparse.data.base import Data
    from pparse.tensors.dtype import DType

_FIRST_TYPES: Final = ("bool", "int16", "int32", "int64", "float16", "float32", "float64")
_LATER_TYPES: Final = ("uint64", "uint8", "int8", "bfloat16", "complex64", "complex128")
ELEMENT_TYPES: Final = {
    **dict(enumerate(_FIRST_TYPES)),
    **dict(enumerate(_LATER_TYPES, 19)),
    32: "float8_e4m3fn",
    33: "float8_e5m2",
    36: "uint16",
    37: "uint32",
    38: "uint64",
}
"""Types of elements by their numbers in VarType.Type; 19 is SIZE_T."""
PLAIN: Final = bytes(16)
"""What a record of a parameter begins with: a version, no levels, a version."""
HEAD: Final = 24
"""The fewest bytes before the elements: of a scalar it is two less."""
UNREADABLE: Final = "unreadable"
"""What an operator is called that cannot be read."""
# Kinds of operators that are told apart and named; the longest name that is shown.
_KINDS, _NAMED, _LONGEST_NAME = 10_000, 8, 60
_TYPE, _DIMS, _PACKED = 0x08, 0x10, 0x12  # tags of a TensorDesc
_MOST_DIMENSIONS, _LONGEST = 64, 1024
_MOST_LEVELS, _LARGEST_LEVEL = 16, 1 << 30
_MOST_BYTES: Final = 1 << 62
_BLOCK: Final = 64


class ParameterLayout(namedtuple("Layout", "dtype shape")):
    """What a record, or a program, says of a parameter: its `DType` (None: not known) and its shape."""

    __slots__ = ()
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * (0 if self.dtype is None else self.dtype.itemsize)

    @property
    def head_size(self) -> int:
        """Bytes before the elements, as paddle writes them for a parameter."""
        dims = sum(1 + max(1, -(-size.bit_length() // 7)) for size in self.shape)
        return len(PLAIN) + 4 + 2 + dims

    def __str__(self) -> str:
        return f"{self.dtype} {'×'.join(map(str, self.shape)) or 'scalar'}"


Parameter = namedtuple("Parameter", "name layout")
Parameter.__doc__ = """What a program says of a parameter: its name and its `ParameterLayout`."""


def operators_told(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the number of operators, and the most frequent ones."""
    kinds: dict[str, int] = {}
    count = 0
    for name in names:
        count += 1
        kind = shorten(name, _LONGEST_NAME)
        if kind in kinds or len(kinds) < _KINDS:
            kinds[kind] = kinds.get(kind, 0) + 1
    yield "operators", f"{count:,}"
    ordered = [f"{kind} {number:,}" for kind, number in sorted(kinds.items(), key=lambda one: (-one[1], one[0]))]
    if ordered:
        yield "kinds", few(ordered, _NAMED, len(ordered))


def read_layout(raw: bytes, offset: int) -> ParameterLayout:
    """Return what a TensorDesc says. Raises `MalformedError` for one that no file of parameters has."""
    padded, number = raw + PADDING, -1
    shape: list[int] = []
    for tag, pos, end in fields(padded, 0, len(raw)):
        if tag == _TYPE and number < 0:
            number, _ = read_value(padded, pos)
        elif tag in (_DIMS, _PACKED) and number >= 0:
            while pos < end and len(shape) <= _MOST_DIMENSIONS:
                size, pos = read_value(padded, pos)
                shape.append(size)
        else:
            raise MalformedError("what should describe a tensor does not", offset=offset)
    name = ELEMENT_TYPES.get(number)
    if name is None:
        raise MalformedError(f"there is no element type {number}", offset=offset)
    found = ParameterLayout(DTYPES[name], tuple(shape))
    if len(shape) > _MOST_DIMENSIONS or found.nbytes >= _MOST_BYTES or max(shape, default=0) >= _MOST_BYTES:
        raise MalformedError("a shape that no array can have", offset=offset)
    return found


def read_head(data: Data, at: int, end: int) -> tuple[int, ParameterLayout]:
    """Return where the elements of the record at ``at`` begin, and what it says of them.

    Raises `EndOfDataError` if the data have less of it, `MalformedError` if it is no record.
    """
    window = Window(data, end, least=_BLOCK)

    def take(pos: int, count: int) -> bytes:
        found = window.known(pos, count)
        if len(found) < count:
            raise EndOfDataError("the head of a record ends early", offset=min(pos + len(found), end), wanted=count)
        return found

    version, levels = unpack("<IQ", take(at, 12))
    if version or levels > _MOST_LEVELS:
        raise MalformedError(f"a record of version {version} with {count_words(levels, 'level')}", offset=at)
    pos = at + 12
    for _ in range(levels):
        (size,) = unpack("<Q", take(pos, 8))
        if size % 8 or size > _LARGEST_LEVEL:
            raise MalformedError(f"a level of {size:,} bytes", offset=pos)
        pos += 8 + size
    version, length = unpack("<Ii", take(pos, 8))
    if version or not 2 <= length <= _LONGEST:
        raise MalformedError(f"a tensor of version {version}, described in {length:,} bytes", offset=pos)
    return pos + 8 + length, read_layout(take(pos + 8, length), pos + 8)
