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

    from pparse.tensors.dtype import DType
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


def content_blocks(tensor: Tensor, most: int = BLOCK, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
    """Yield the bytes of a tensor, ``most`` at a time, the last ones less; of one that `lies_plain`, a part of them.

    Each block counts until the next one is asked for. Raises the errors of `Tensor.readinto`.
    """
    if tensor.is_text:
        yield from _even(_texts(tensor), most)
        return
    stored = tensor.coded()
    dtype = _packed_type(stored)
    size = dtype.stored_nbytes(stored.size)
    if not lies_plain(tensor):
        unused = -stored.size * dtype.bits % 8
        for block in _even(blocks_there(tensor, most), most):
            size -= len(block)
            if unused and not size:
                block = memoryview(bytes(block[:-1]) + bytes([block[-1] & 0xFF >> unused]))
            yield block
        return
    stop = size if stop is None else min(size, stop)
    buffer = memoryview(bytearray(max(0, min(stop - start, most))))
    for offset in range(start, stop, most):
        yield buffer[: stored.readinto_from(offset, buffer[: stop - offset])]
    if not size:
        stored.readinto(bytearray())  # one without bytes may be damaged, too


def content_size(tensor: Tensor) -> int:
    """Return how many bytes the content of a tensor of numbers has. Raises `UnsupportedError`."""
    stored = tensor.coded()
    return _packed_type(stored).stored_nbytes(stored.size)


def lies_plain(tensor: Tensor) -> bool:
    """Return whether the bytes of a tensor are its content as they are, so that reading can begin at any of them."""
    stored = tensor.coded()
    dtype = stored.dtype
    if tensor.is_text or dtype is None or dtype.bits != _packed_type(stored).bits:
        return False
    return stored.is_stored_as_array and not stored.size * dtype.bits % 8


def is_plain(tensor: Tensor) -> bool:
    """Return whether the numbers of a tensor lie as its content, and do not stand for others."""
    return tensor.coded() is tensor and lies_plain(tensor)


def _packed_type(stored: Tensor) -> DType:
    """Return the type of elements that are packed: not as TensorFlow and numpy have it, in bytes."""
    if stored.dtype is None:
        raise UnsupportedError(f"elements of type {stored.type_name!r} are not known", path=stored.name)
    return DTYPES.get(stored.dtype.name, stored.dtype)


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
