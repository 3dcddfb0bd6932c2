"""A tensor on its way into the output: its new name, type and place, and its bytes piece by piece."""

from __future__ import annotations

from pparse.conversion.cast import cast
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor

# Bytes that are read, and then written, at a time: what is written then still is in the processor's cache (with 4 MiB a
# copy took half as long again). A buffer of that size is charged to the budget.
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

    __slots__ = ("at", "crc", "dtype", "is_straight", "name", "nbytes", "number", "overflowed", "tensor")

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
        self.overflowed = 0
        """How many of the finite numbers written were too large for ``dtype``."""
        self.is_straight = (
            dtype == tensor.dtype and (packed or not dtype.packed) and (not self.nbytes or tensor.is_stored_as_array)
        )
        """Whether the bytes are those of the source as they stand."""

    def pieces(self, start: int, buffer: bytearray) -> Iterator[memoryview]:
        """Yield the bytes from ``start`` on, the end of a piece before; a piece is good until the next is asked for.

        ``buffer`` is used for it. Raises the errors of `Tensor.blocks`.
        """
        if not self.is_straight:
            count = len(buffer) // _COMPUTED // 8 * 8
            if self.tensor.itemsize > _COMPUTED:  # texts and structures
                count = max(1, len(buffer) // self.tensor.itemsize)
            yield from self._computed(start, count)
            return
        whole = memoryview(buffer)
        while start < self.nbytes:
            got = self.tensor.readinto_from(start, whole[: self.nbytes - start])
            yield whole[:got]
            start += got

    def _computed(self, start: int, count: int) -> Iterator[memoryview]:
        """Yield the bytes of ``count`` elements at a time; ``start`` is a multiple of that many, or the end."""
        import numpy as np

        for block in self.tensor.blocks(count * self.tensor.itemsize, start=start // self.dtype.itemsize):
            if self.dtype != self.tensor.dtype:
                block, lost = cast(block, self.dtype)
                self.overflowed += lost
            yield memoryview(np.ascontiguousarray(block).view(np.uint8).reshape(-1).data)
