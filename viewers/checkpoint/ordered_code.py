"""OrderedCode: numbers and texts as bytes that sort as they do (tensorflow/core/lib/strings/ordered_code.cc).

The key of a part of a tensor is: the number 0, the name, the rank, and for each dimension start and length
(tensorflow/core/util/saved_tensor_slice_util.cc, EncodeTensorNameSlice).
"""

from __future__ import annotations

from pparse.errors import MalformedError
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

# A text ends with 0 and 1; zeros and 255 in it are escaped. Possessive, so that nothing is tried twice.
_NAME: Final = lazy_pattern(rb"\x00((?:[^\x00\xff]++|\x00\xff|\xff\x00)*+)\x00\x01")
_ESCAPED: Final = lazy_pattern(rb"(\x00)\xff|(\xff)\x00")


def name_prefix(name: bytes) -> bytes:
    """Return what the keys of all parts of the tensor ``name`` begin with."""
    return _number(0) + _text(name)


def slice_rest(extents: Sequence[tuple[int, int]]) -> bytes:
    """Return the rest of the key of a part: start and length in each dimension, length -1 for all of it."""
    found = [_number(len(extents))]
    for start, length in extents:
        found += _signed(start), _signed(length)
    return b"".join(found)


def prefix_in(key: bytes) -> bytes | None:
    """Return the beginning of the key of a part that `name_prefix` makes; None if it is not such a key."""
    found = _NAME.match(key)
    return None if found is None else found[0]


def name_in(key: bytes) -> bytes:
    """Return the name of the tensor in the key of a part. Raises `MalformedError`."""
    if key[:1] != b"\0":
        raise MalformedError("the key is not that of a part of a tensor")
    found = _NAME.match(key)
    if found is None:
        raise MalformedError("the name in the key of a part of a tensor does not end")
    return _ESCAPED.sub(rb"\1\2", found[1])


def _number(value: int) -> bytes:
    """Return a number ≥ 0: how many bytes it takes, and these, the highest first."""
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes((len(raw),)) + raw


def _text(value: bytes) -> bytes:
    """Return a text: two bytes end it, so zeros and 255 in it are escaped."""
    return b"\0\xff".join(piece.replace(b"\xff", b"\xff\0") for piece in value.split(b"\0")) + b"\0\1"


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
