"""Sparse tensors of TFLite: values, and for each dimension which of its places they stand at.

The dimensions are gone through in ``traversal_order``: one that is dense has all its places, of a sparse one a list of
segments (from the second on: of what is around) tells which. Numbers from the rank on are of the blocks that the
dimensions in ``block_map`` are cut into (tflite/kernels/internal/utils/sparsity_format_converter.cc).
"""

from __future__ import annotations

from itertools import pairwise

from pparse.errors import MalformedError
from pparse.tensors.scales import ComputedTensor
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray

    from pparse.parsers.flatbuffers.table import Table
    from pparse.tensors.dtype import DType

_DENSE = 0


class SparseTensor(ComputedTensor):
    """The elements of a sparse tensor, zeros included; ``values`` are those that are stored."""

    __slots__ = ("_sparsity",)

    def __init__(self, name: str, dtype: DType, shape: tuple[int, ...], values: Tensor, sparsity: Table) -> None:
        super().__init__(name, shape, (values,))
        self.dtype = dtype
        self._sparsity = sparsity

    __reduce__ = Tensor.__reduce__  # it has a name in its model, so a handle leads to it

    def _whole(self) -> NDArray[Any]:
        """Return all elements. Raises `MalformedError` if the places are not those of as many values."""
        import numpy as np

        values, dtype, shape = self.sources[0], self._known_dtype(), self.shape
        limits = self._owner.extraction.session.limits
        limits.check("scalar_bytes", self.size * dtype.itemsize, "the tensor with its zeros", path=self.name)
        limits.check("scalar_bytes", 8 * values.size * max(1, self.ndim), "the places of its elements", path=self.name)
        found = np.zeros(shape, dtype.numpy)
        with self._owner.lock:  # what tables are read from is shared
            places = self._places(values.size)
        try:
            found[tuple(places)] = values.numpy()
        except (IndexError, ValueError) as error:
            raise self._wrong(str(error)) from error
        return found

    def _wrong(self, why: str) -> MalformedError:
        return MalformedError(
            f"its sparse places do not fit its shape: {why}", path=self.name, offset=self._sparsity.at
        )

    def _places(self, most: int) -> list[NDArray[Any]]:
        """Return for each dimension the places of the values in it."""
        import numpy as np

        told, rank = self._sparsity, self.ndim
        order, blocked = told.numbers("traversal_order"), told.numbers("block_map")
        levels = list(told.tables("dim_metadata"))
        if sorted(order) != list(range(len(levels))) or len(levels) != rank + len(blocked):
            raise self._wrong(f"{len(levels)} dimensions in the order {order}")
        found = [np.zeros(1, np.int64) for _ in levels]
        at = np.zeros(1, np.int64)  # where what was gone through so far stands among its like
        sizes = [1] * len(levels)
        for number, level in zip(order, levels, strict=True):
            if level.number("format") == _DENSE:
                sizes[number] = size = level.number("dense_size")
                if size < 0 or len(at) * size > max(1, most):
                    raise self._wrong(f"{len(at) * size:,} places for {most:,} values")
                owner, own = np.divmod(np.arange(len(at) * size), max(1, size))
                at = at[owner] * size + own
            else:
                segments, indices = (self._numbers(level, name) for name in ("array_segments", "array_indices"))
                if not len(segments) or at.max(initial=0) >= len(segments) - 1:
                    raise self._wrong("segments that are not there")
                begins, ends = segments[at], segments[at + 1]
                if (ends < begins).any() or (begins < 0).any() or (ends > len(indices)).any():
                    raise self._wrong("segments that end before they begin, or where no places are")
                if (ends - begins).sum() > max(1, most):
                    raise self._wrong("segments that overlap")
                owner = np.repeat(np.arange(len(at)), ends - begins)
                starts = np.concatenate([[0], np.cumsum(ends - begins)[:-1]]) if len(at) else ends
                at = np.arange(len(owner)) - starts[owner] + begins[owner]
                own = indices[at]
            found = [each[owner] for each in found]
            found[number] = own
        if len(at) != most or not np.array_equal(np.sort(at), np.arange(most)):
            raise self._wrong(f"{len(at):,} places for {most:,} values")
        places = found[:rank]
        for number, axis in enumerate(blocked):
            if not 0 <= axis < rank:
                raise self._wrong(f"blocks of dimension {axis}")
            places[axis] = places[axis] * sizes[rank + number] + found[rank + number]
        order_of_values = np.argsort(at, kind="stable")
        if any(((place < 0) | (place >= length)).any() for place, length in zip(places, self.shape, strict=True)):
            raise self._wrong("places outside")
        return [place[order_of_values] for place in places]

    def _numbers(self, level: Table, name: str) -> NDArray[Any]:
        """Return the numbers of one of the lists, which are of several types, and as many as there are values."""
        import numpy as np

        told = level.table(name)
        start, count = (0, 0) if told is None else told.place("values")
        if told is None or not count:
            return np.zeros(0, np.int64)
        item = told.type.field("values").type.item
        size = 4 if item is None else item.size
        self._owner.extraction.session.limits.check("scalar_bytes", 8 * count, f"its {name}", path=self.name)
        raw = self._owner.extraction.data.read_exact(start, count * size)
        return np.frombuffer(raw, "<i4" if item is None else f"<{item.code}").astype(np.int64)

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects, as `Tensor` does; reads all that is stored."""
        self._refuse_if_not_whole()
        return self._whole()[index]

    def _decoded(self, start: int, step: int) -> Iterator[NDArray[Any]]:
        flat = self._whole().reshape(-1)
        edges = [*range(start, len(flat), step), len(flat)]
        yield from (flat[low:high] for low, high in pairwise(edges))

    def _read_codes(self, first: int, count: int) -> NDArray[Any]:
        found = self._whole().reshape(-1)[first : first + count]
        return found.view(f"u{found.dtype.itemsize}")
