"""What a tensor is, whatever file it lies in: a word for its type, its shape, and its bytes.

The bytes are those of the array in C order, little-endian; elements below 8 bits packed, the first one in the lowest
bits, and unused bits at the end zero. Quantised blocks are as the format stores them, and the word is the format's. Of
texts, each is its length as 8 bytes, little-endian, and its bytes.
"""

from __future__ import annotations

from pparse.errors import UnsupportedError

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


def content_blocks(tensor: Tensor, most: int = BLOCK) -> Iterator[memoryview]:
    """Yield the bytes of a tensor, at most ``most`` at a time: each block counts until the next one is asked for.

    Raises the errors of `Tensor.readinto`.
    """
    if tensor.is_text:
        yield from _texts(tensor, most)
        return
    stored = tensor.coded()
    dtype = stored.dtype
    if dtype is None:
        raise UnsupportedError(f"elements of type {stored.type_name!r} are not known", path=tensor.name)
    unused = -stored.size * dtype.bits % 8
    if not stored.is_stored_as_array or unused:
        for block in stored.array_blocks(most):
            if unused and len(block) < most:
                block = block[:-1] + bytes([block[-1] & 0xFF >> unused])
            yield memoryview(block)
        return
    size = dtype.stored_nbytes(stored.size)
    buffer = memoryview(bytearray(min(size, most)))
    for offset in range(0, size, most):
        yield buffer[: stored.readinto_from(offset, buffer)]
    if not size:
        stored.readinto(bytearray())  # one without bytes may be damaged, too


def _texts(tensor: Tensor, most: int) -> Iterator[memoryview]:
    waiting = bytearray()
    for text in tensor.strings():  # type: ignore[attr-defined]
        waiting += len(text).to_bytes(8, "little") + text
        if len(waiting) >= most:
            yield memoryview(waiting)
            waiting = bytearray()
    yield memoryview(waiting)
