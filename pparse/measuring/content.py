"""What a tensor is, whatever file it lies in: a word for its type, its shape, and its bytes.

The bytes are those of the array in C order, little-endian; elements below 8 bits packed, the first one in the lowest
bits, and unused bits at the end zero. Quantised blocks are as the format stores them, and the word is the format's. Of
texts, each is its length as 8 bytes, little-endian, and its bytes.
"""

from __future__ import annotations

from math import isfinite

from pparse.errors import UnsupportedError
from pparse.tensors.dtype import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.tensors.tensor import Tensor

BLOCK: Final = 1 << 20
"""Bytes that are read at a time: what is made of them fits into the caches of a processor."""
TEXT: Final = "text"
"""The word for the type of texts."""


def type_word(tensor: Tensor) -> str:
    """Return the word for the type of a tensor: ``float32``, ``bfloat16``, ``text``, ``Q4_K``."""
    return TEXT if tensor.is_text else tensor.type_name


def shape_word(tensor: Tensor) -> str:
    """Return its shape as numbers with commas between them; empty for a scalar, ``?`` if it is not known."""
    return ",".join(map(str, tensor.shape)) if tensor.is_shape_known else "?"


def json_number(value: float | None) -> float | None:
    """Return a number as JSON has it: none is infinite."""
    return value if value is None or isfinite(value) else None


def content_blocks(tensor: Tensor, most: int = BLOCK) -> Iterator[memoryview]:
    """Yield the bytes of a tensor, ``most`` at a time, the last ones less.

    Each block counts until the next one is asked for. Raises the errors of `Tensor.readinto`.
    """
    if tensor.is_text:
        yield from _even(_texts(tensor), most)
        return
    stored = tensor.coded()
    if stored.dtype is None:
        raise UnsupportedError(f"elements of type {stored.type_name!r} are not known", path=tensor.name)
    dtype = DTYPES.get(stored.dtype.name, stored.dtype)  # not as TensorFlow and numpy have it, in bytes
    size = dtype.stored_nbytes(stored.size)
    unused = -stored.size * dtype.bits % 8
    if not stored.is_stored_as_array or unused or dtype.bits != stored.dtype.bits:
        for block in _even(blocks_there(tensor, most), most):
            size -= len(block)
            if unused and not size:
                block = memoryview(bytes(block[:-1]) + bytes([block[-1] & 0xFF >> unused]))
            yield block
        return
    buffer = memoryview(bytearray(min(size, most)))
    for offset in range(0, size, most):
        yield buffer[: stored.readinto_from(offset, buffer)]
    if not size:
        stored.readinto(bytearray())  # one without bytes may be damaged, too


def blocks_there(tensor: Tensor, most: int = BLOCK) -> Iterator[bytes]:
    """Yield the same bytes, about as many at a time: of a tensor that is cut those that are there, then its error."""
    stored = tensor.coded()
    dtype = stored.dtype and DTYPES.get(stored.dtype.name, stored.dtype)
    if dtype is None or not dtype.packed:
        yield from stored.array_blocks(max(most, stored.itemsize))
    elif stored.dtype is dtype:
        left = dtype.stored_nbytes(stored.size)
        for block in stored.raw_blocks(most):  # to the end: what is wrong may be found there
            yield block[:left]
            left -= len(block[:left])
    else:
        for codes in stored.blocks(most, raw=True):
            yield dtype.pack(codes).tobytes()


def _texts(tensor: Tensor) -> Iterator[bytes]:
    for text in tensor.strings():  # type: ignore[attr-defined]
        yield len(text).to_bytes(8, "little") + text


def _even(blocks: Iterator[bytes], most: int) -> Iterator[memoryview]:
    """Yield the same bytes, ``most`` at a time, the last ones less."""
    waiting = bytearray()
    for block in blocks:
        if len(block) == most and not waiting:
            yield memoryview(block)
            continue
        waiting += block
        while len(waiting) >= most:
            yield memoryview(bytes(waiting[:most]))
            del waiting[:most]
    if waiting:
        yield memoryview(waiting)
