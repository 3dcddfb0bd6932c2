"""OrderedCode: numbers and texts as bytes that sort as they do (tensorflow/core/lib/strings/ordered_code.cc).

The key of a part of a tensor is: the number 0, the name, the rank, and for each dimension start and length
(tensorflow/core/util/saved_tensor_slice_util.cc, EncodeTensorNameSlice).
"""

from __future__ import annotations

from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

_ESCAPES: Final = {0x00: b"\0\xff", 0xFF: b"\xff\0"}


def slice_key(name: bytes, extents: Sequence[tuple[int, int]]) -> bytes:
    """Return the key of a part of the tensor ``name``: start and length in each dimension, length -1 for all of it."""
    found = _number(0) + _text(name) + _number(len(extents))
    for start, length in extents:
        found += _signed(start) + _signed(length)
    return found


def name_in(key: bytes) -> bytes:
    """Return the name of the tensor in the key of a part (see `slice_key`). Raises `MalformedError`."""
    if key[:1] != b"\0":
        raise MalformedError("the key is not that of a part of a tensor")
    found, pos = bytearray(), 1
    while pos + 1 < len(key):
        two = key[pos : pos + 2]
        if two == b"\0\1":
            return bytes(found)
        if key[pos] in _ESCAPES:
            if two != _ESCAPES[key[pos]]:
                break
            pos += 1
        found.append(two[0])
        pos += 1
    raise MalformedError("the name in the key of a part of a tensor does not end")


def _number(value: int) -> bytes:
    """Return a number ≥ 0: how many bytes it takes, and these, the highest first."""
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes((len(raw),)) + raw


def _text(value: bytes) -> bytes:
    """Return a text: two bytes end it, so zeros and 255 in it are escaped."""
    return b"".join(_ESCAPES.get(byte, bytes((byte,))) for byte in value) + b"\0\1"


def _signed(value: int) -> bytes:
    """Return a number with a sign: the first bits tell its length, as many as bytes, with the sign as their value."""
    magnitude = ~value if value < 0 else value
    length = 1
    while magnitude >= 1 << (7 * length - 1):  # 6, 13, 20 … bits
        length += 1
    bits = 8 * length
    raw = value & ((1 << bits) - 1)
    header = ((1 << length) - 1) << (bits - length)
    # A positive number begins with as many ones as it has bytes, a negative one with as many zeros.
    raw = raw ^ header
    return raw.to_bytes(length, "big")
