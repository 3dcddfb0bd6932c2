"""`BlockTensor`: a tensor whose elements are stored in blocks that must be decoded, as in quantised models."""

from __future__ import annotations

from math import prod

from pparse.errors import UnsupportedError
from pparse.limits import parse_size
from pparse.tensors.dtype import DTYPES, new_floats
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final, Literal

    from numpy.typing import NDArray

    from pparse.tensors.dtype import DType
    from pparse.tensors.span import Span

    Decode = Callable[[NDArray[Any], NDArray[Any]], None]

# Bytes of blocks that are decoded at once: what is made of them on the way fits into the processor's caches.
_PIECE: Final = 64 << 10
# Of rows up to this size, all is read, whatever is asked for.
_SMALL_ROW: Final = 64 << 10


class BlockTensor(Tensor):
    """A tensor of float32 whose rows consist of blocks: ``block_size`` elements in ``block_bytes`` bytes each.

    All that reads elements decodes the blocks in which they are; ``raw=True``, `raw_blocks` and `readinto` return the
    blocks as they are stored: ``numpy(raw=True)`` as ``uint8``, of which the last dimension is the bytes of a row.
    Without ``decode``, which fills ``(blocks, block_size)`` of float32 from ``(blocks, block_bytes)`` of uint8, the
    type is unknown (`dtype` is None), and only that can be read.
    """

    __slots__ = ("block_bytes", "block_order", "block_size", "decode")

    def __init__(
        self,
        *what: Any,
        block_size: int,
        block_bytes: int,
        decode: Decode | None,
        block_order: str = "little",
        **more: Any,
    ) -> None:
        name, shape, spans = what
        super().__init__(name, DTYPES["float32"] if decode is not None else None, shape, spans, **more)
        self.block_size = block_size
        """Elements of a block."""
        self.block_bytes = block_bytes
        """Bytes of a block."""
        self.decode = decode
        """What decodes blocks; None if nothing does."""
        self.block_order = block_order
        """Byte order of the numbers in the blocks: ``"little"`` or ``"big"``; elements are in that of the machine."""

    @property
    def type_name(self) -> str:
        """The format's own word for how the blocks are made."""
        return self.stored_dtype

    @property
    def is_stored_as_array(self) -> bool:
        """False: the bytes as stored are those of blocks."""
        return False

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in bytes between neighbours along each dimension; 0 for the last, whose elements share blocks."""
        if not self.shape or not self.shape[-1]:
            return (0,) * len(self.shape)
        row = self._row_bytes
        inner = (row * prod(self.shape[axis + 1 : -1]) for axis in range(len(self.shape) - 1))
        return (*inner, 0)

    def numpy(
        self,
        *,
        dtype: object = None,
        copy: bool = True,
        raw: bool = False,
        partial: Literal["prefix", "fill"] | None = None,
        fill_value: Any = 0,
    ) -> NDArray[Any]:
        """Return the elements as float32, or with ``raw=True`` the blocks; otherwise as `Tensor.numpy`."""
        if raw:
            return self.coded().numpy(dtype=dtype, raw=True, copy=copy, partial=partial, fill_value=fill_value)
        return super().numpy(dtype=dtype, copy=copy, partial=partial, fill_value=fill_value)

    def coded(self) -> Tensor:
        """Return the blocks as a tensor of uint8, of which the last dimension is the bytes of a row."""
        shape = (*self.shape[:-1], self._row_bytes)
        return Tensor(self.name, DTYPES["uint8"], shape, self.spans, **self._claims())

    def over(self, span: Span) -> BlockTensor:
        """Return the same tensor, claimed to be whole, with its blocks in ``span``."""
        how: Any = {"block_size": self.block_size, "block_bytes": self.block_bytes, "decode": self.decode}
        how["block_order"] = self.block_order
        return BlockTensor(self.name, self.shape, (span,), stored_dtype=self.stored_dtype, **how)

    def blocks(self, max_bytes: int | str = "4MiB", *, raw: bool = False, start: int = 0) -> Iterator[NDArray[Any]]:
        """Yield the elements as `Tensor.blocks` does, whole blocks at a time where ``max_bytes`` allows.

        ``raw=True`` yields the bits of the decoded elements; `raw_blocks` is for the blocks as they are stored.
        """
        size = 4 * self.block_size
        limit = parse_size(max_bytes)
        yield from super().blocks(limit // size * size or limit, raw=raw, start=start)

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects, as `Tensor` does; reads the blocks in which the elements are."""
        from pparse.tensors.selection import normalise

        self._known_dtype()
        items = normalise(index, self.shape)
        last = items[-1] if items else 0
        touched = range(last, last + 1) if isinstance(last, int) else range(*last.indices(self.shape[-1]))
        array = self._rows(items[:-1], touched)
        if isinstance(last, int):
            array = array[..., 0]
        return array[()] if not array.shape else array

    # -- how ---------------------------------------------------------------------------------------------------------

    @property
    def _row_bytes(self) -> int:
        return self.shape[-1] // self.block_size * self.block_bytes if self.shape else 0

    def _known_dtype(self) -> DType:
        if self.dtype is None:
            self._refuse_if_not_whole()
            reason = f"blocks of {self.stored_dtype} cannot be decoded; numpy(raw=True) returns them as they are"
            raise UnsupportedError(reason, path=self.name)
        return self.dtype

    def _is_contiguous(self) -> bool:
        return True

    def _whole_count(self, dtype: DType) -> int:
        return min(self.size, self.available_nbytes // self.block_bytes * self.block_size)

    def _refuse_if_short(self, dtype: DType) -> None:
        if self._whole_count(dtype) < self.size:
            raise self._truncated(self._source_nbytes)

    def _mapped(self, dtype: DType, raw: bool) -> NDArray[Any]:
        raise ValueError(f"{self.name!r} needs a copy: its blocks must be decoded")

    def _read_codes(self, first: int, count: int) -> NDArray[Any]:
        """Return the bits of ``count`` decoded elements in C order."""
        size = self.block_size
        start, stop = first // size, -(-(first + count) // size)
        self._check_unchanged()
        decoded = new_floats((stop - start) * size, self.name)
        self._decode(start, decoded.reshape(-1, size))
        self._check_read()
        before = first - start * size
        return decoded[before : before + count].view("u4")

    def _decode(self, start: int, out: NDArray[Any]) -> None:
        """Fill ``out`` with the blocks from number ``start`` on."""
        import numpy as np

        assert self.decode is not None  # noqa: S101 -- `_known_dtype`
        step = max(1, _PIECE // self.block_bytes)
        piece = np.empty((min(step, len(out)), self.block_bytes), np.uint8)
        with np.errstate(all="ignore"):  # a scale may be infinite, or no number
            for first in range(0, len(out), step):
                part = piece[: len(out) - first]
                self._read_into((start + first) * self.block_bytes, part.reshape(-1).data)
                self.decode(part, out[first : first + step])

    def _rows(self, items: list[int | slice], touched: range) -> NDArray[Any]:
        """Return the elements ``touched`` of the rows that ``items`` select."""
        import numpy as np

        from pparse.tensors.selection import select

        outer, size = self.shape[:-1], self.block_size
        selection = select(items, outer, [prod(outer[axis + 1 :]) for axis in range(len(outer))])
        shape = (*selection.shape, len(touched))
        if 0 in shape:
            return np.empty(shape, np.float32)
        low, high = min(touched[0], touched[-1]), max(touched[0], touched[-1])
        last = selection.offset + sum((count - 1) * distance for count, distance in selection.axes)
        self._refuse_rows(selection.offset, last, low // size, high // size)
        numbers = np.array(selection.offset)
        for axis, (count, distance) in enumerate(selection.axes):
            steps = np.arange(count) * distance
            numbers = numbers[..., None] + (steps[::-1] if axis in selection.flips else steps)
        rows = numbers.reshape(-1)
        blocks = range(self.shape[-1] // size)
        if self._row_bytes > _SMALL_ROW or not self.is_complete:
            blocks = blocks[low // size : high // size + 1]
        before = blocks[0] * size
        stop = touched[-1] - before + (1 if touched.step > 0 else -1)
        columns = slice(touched[0] - before, None if stop < 0 else stop, touched.step)
        out = new_floats(len(rows) * len(touched), self.name).reshape(len(rows), -1)
        self._check_unchanged()
        for first, count in self._runs(rows, blocks):
            decoded = np.empty((count * len(blocks), size), np.float32)
            self._decode(int(rows[first]) * (self.shape[-1] // size) + blocks[0], decoded)
            out[first : first + count] = decoded.reshape(count, -1)[:, columns]
        self._check_read()
        return out.reshape(shape)

    def _runs(self, rows: NDArray[Any], blocks: range) -> Iterator[tuple[int, int]]:
        """Yield which rows to read together: where they begin in ``rows``, and how many follow each other."""
        whole = len(blocks) == self.shape[-1] // self.block_size
        most = max(1, _PIECE // max(1, self._row_bytes)) if whole else 1
        first = 0
        while first < len(rows):
            count = 1
            while count < most and first + count < len(rows) and rows[first + count] == rows[first] + count:
                count += 1
            yield first, count
            first += count

    def _refuse_rows(self, low: int, high: int, first: int, last: int) -> None:
        """Raise if not all blocks between the first that is touched and the last are whole."""
        start, end = low * self._row_bytes + first * self.block_bytes, high * self._row_bytes
        end += (last + 1) * self.block_bytes
        self._refuse_stretch(start, end)
