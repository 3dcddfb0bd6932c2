"""A tensor on its way into the output: its new name, type and place, and its bytes piece by piece."""

from __future__ import annotations

from pparse.conversion.cast import as_type
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor

# Bytes that are read at a time, and written while the next are read: what is written then still is in the processor's
# cache (with 4 MiB a copy took half as long again). Two buffers of that size are charged to the budget.
PIECE: Final = 1 * MIB
# Of elements that are computed, as many at a time as fit into the buffer with this much for each: the element, the same
# as a float32, the result, and what rounding needs.
_COMPUTED: Final = 32
# Memory of an item beside its tensor, without the name.
ITEM_BYTES: Final = 200


class Item:
    """A tensor to be written, as ``dtype`` (another one than its own: cast) and with ``nbytes`` bytes at ``at``.

    ``packed``: elements below 8 bits stay packed in bytes, as they are stored.
    """

    __slots__ = ("at", "crc", "dtype", "is_straight", "name", "nbytes", "number", "overflowed", "tensor", "wanted_crc")

    def __init__(self, tensor: Tensor, name: str, dtype: DType, number: int, *, packed: bool) -> None:
        self.tensor = tensor
        """The tensor in the source."""
        self.name = name
        """Its name in the output."""
        self.dtype = dtype
        """Its type in the output."""
        self.number = number
        """Its place among the tensors of the source, from 0."""
        self.nbytes = dtype.stored_nbytes(tensor.size) if packed else dtype.itemsize * tensor.size
        """Bytes in the output."""
        self.at = 0
        """Where its bytes begin in the output file."""
        self.crc = 0
        """CRC-32 of what was written of it."""
        self.wanted_crc: int | None = None
        """CRC-32 that its bytes must have, of a source that was not compared with it yet; else None."""
        self.overflowed = 0
        """How many of the numbers written ``dtype`` cannot hold, not even rounded."""
        self.is_straight = (
            dtype == tensor.dtype and (packed or not dtype.packed) and (not self.nbytes or tensor.is_stored_as_array)
        )
        """Whether the bytes are those of the source as they stand."""

    def pieces(self, start: int, size: int, buffers: Iterator[memoryview]) -> Iterator[memoryview]:
        """Yield the bytes from ``start`` on, the end of a piece before; a piece is good until the next but one is made.

        ``buffers``: two of ``size`` bytes by turns, from one item to the next. Raises the errors of `Tensor.blocks`.
        """
        if not self.is_straight:
            count = size // _COMPUTED // 8 * 8
            if self.tensor.itemsize > _COMPUTED:  # texts and structures
                count = max(1, size // self.tensor.itemsize)
            yield from self._computed(start, count)
            return
        while start < self.nbytes:
            piece = next(buffers)[: self.nbytes - start]
            got = self.tensor.readinto_from(start, piece)
            yield piece[:got]
            start += got

    def _computed(self, start: int, count: int) -> Iterator[memoryview]:
        """Yield the bytes of ``count`` elements at a time; ``start`` is a multiple of that many, or the end."""
        import numpy as np

        for block in self.tensor.blocks(count * self.tensor.itemsize, start=start // self.dtype.itemsize):
            if self.dtype != self.tensor.dtype:
                block, lost = as_type(block, self.dtype)
                self.overflowed += lost
            yield memoryview(np.ascontiguousarray(block).view(np.uint8).reshape(-1).data)
