"""The elements of a strided array in C order, with few passes through a source in which going back is dear.

In a stream, each block of an array in Fortran order has elements near its start and near its end. So as many elements
as there is room for, a *window*, are read in one pass: all steps along one axis of which the memory budget holds at
least one. Nearly ``2 * nbytes / window`` passes are made at most, and blocks of any size are cut out of the windows.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import prod

from pparse.errors import LimitError
from pparse.tensors.selection import PIECE, read, select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

    import numpy as np
    from numpy.typing import NDArray

    from pparse.budget import MemoryBudget

# Of the budget, at first; of that, a window takes a half, as its elements are put in order in a second array.
_SHARE: Final = 2
_LEAST: Final = 64 << 10


def windows(
    start: int,
    least: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: np.dtype[Any],
    read_into: Callable[[int, memoryview], None],
    budget: MemoryBudget | None,
) -> Iterator[NDArray[Any]]:
    """Yield the elements from ``start`` on in C order, in windows of any sizes; ``read_into`` as of `read`.

    What is left of ``budget`` (None: `PIECE`) decides how large they are, but there is room for ``least`` elements.
    """
    with ExitStack() as held:
        room, charge = PIECE, None
        if budget is not None:
            room = budget.limit // _SHARE
            while room > _LEAST and not budget.fits(room + room // 2):  # a decoder needs some, too
                room //= 2
            charge = held.enter_context(budget.charge(room if budget.fits(room) else 0, "an array put in order"))
        inner = [prod(shape[axis + 1 :]) for axis in range(len(shape))]  # elements that one step along an axis takes
        first, size = start, prod(shape)
        while first < size:
            most = max(least, room // 2 // dtype.itemsize)
            axis = next(axis for axis, count in enumerate(inner) if count <= most)
            unit = inner[axis]
            step = first // unit
            box: list[int | slice] = [first // inner[before] % shape[before] for before in range(axis)]
            begin = step % shape[axis]
            count = min(most // unit, shape[axis] - begin)
            box += [slice(begin, begin + count), *(slice(None) for _ in shape[axis + 1 :])]
            try:
                part = read(select(box, shape, strides), dtype, read_into)
            except LimitError as error:
                if charge is None or not charge.amount or not (error.option or "").startswith("--budget"):
                    raise
                room = room // 2 if room > _LEAST else 0  # the decoder needs more
                charge.resize(room)
                continue
            yield part.reshape(-1)[first - step * unit :]
            first = (step + count) * unit


def recut(parts: Iterator[NDArray[Any]], step: int) -> Iterator[NDArray[Any]]:
    """Yield the elements of ``parts`` in blocks of ``step``, the last with what is left."""
    import numpy as np

    rest: NDArray[Any] | None = None
    for part in parts:
        at = 0
        if rest is not None:
            at = min(step - len(rest), len(part))
            rest = np.concatenate((rest, part[:at]))
            if len(rest) < step:
                continue
            yield rest
            rest = None
        while len(part) - at >= step:
            yield part[at : at + step]
            at += step
        if at < len(part):
            rest = part[at:].copy()
    if rest is not None:
        yield rest
