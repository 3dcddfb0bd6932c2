"""Which bytes an index into an array touches, and reading only those.

An index becomes an offset and a list of *axes*, each a number of elements and a distance in bytes. Axes that continue
each other are merged. The rest is read in pieces: runs at most a page apart together, runs farther apart separately.
"""

from __future__ import annotations

import itertools
import operator
from contextlib import ExitStack
from math import prod

from pparse.errors import LimitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final

    import numpy as np
    from numpy.typing import NDArray

    from pparse.limits import Limits, MemoryBudget

    Index = int | slice | Any

# Runs with at most this many bytes between them are read together: the system reads whole pages anyway.
MAX_GAP: Final = 4 << 10
PIECE: Final = 4 << 20


class ArraySelection:
    """What an index selects from an array."""

    __slots__ = ("axes", "flips", "offset", "shape")

    def __init__(self, offset: int, axes: list[tuple[int, int]], flips: list[int], shape: tuple[int, ...]) -> None:
        self.offset = offset
        """Where the lowest selected byte is, from the start of the array."""
        self.axes = axes
        """``(count, distance in bytes)`` of each axis."""
        self.flips = flips
        """Axes that run backwards."""
        self.shape = shape
        """Shape of the result."""

    def extent(self, itemsize: int) -> int:
        """Return how many bytes lie between the first and the last byte touched, inclusive."""
        if 0 in self.shape:
            return 0
        return sum((count - 1) * distance for count, distance in self.axes) + itemsize


def normalise(index: Index, shape: Sequence[int]) -> list[int | slice]:
    """Return ``index`` as one int or slice per axis of ``shape``. Raises IndexError and TypeError where numpy does."""
    items = list(index) if isinstance(index, tuple) else [index]
    dots = [number for number, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    given = len(items) - len(dots)
    missing = len(shape) - given
    if missing < 0:
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions, the index has {given}")
    at = dots[0] if dots else len(items)
    items[at : at + len(dots)] = [slice(None)] * missing
    result: list[int | slice] = []
    for axis, (item, size) in enumerate(zip(items, shape, strict=True)):
        if isinstance(item, slice):
            result.append(item)
            continue
        if isinstance(item, bool) or item is None or getattr(getattr(item, "dtype", None), "kind", "") == "b":
            raise TypeError("a tensor is indexed by integers, slices and '...'; call numpy() for more")
        try:
            number = operator.index(item)
        except TypeError as error:
            raise TypeError("a tensor is indexed by integers, slices and '...'; call numpy() for more") from error
        if not -size <= number < size:
            raise IndexError(f"index {number} is out of bounds for axis {axis} with size {size}")
        result.append(number % size)
    return result


def ranges(index: Sequence[int | slice], shape: Sequence[int]) -> list[range]:
    """Return the places along each axis of ``shape`` that a normalised index selects."""
    return [
        range(item, item + 1) if isinstance(item, int) else range(*item.indices(size))
        for item, size in zip(index, shape, strict=True)
    ]


def rows_around(index: Sequence[int | slice], shape: Sequence[int]) -> tuple[int, list[int], list[int | slice]]:
    """Return the rows from the first to the last that a normalised index touches, of the first dimension in which it
    touches several: their first element, their shape as far as it is not that of the array, and the index into them.
    """
    start, row = 0, prod(shape)
    block: list[int] = []
    inner: list[int | slice] = []
    for item, length, touched in zip(index, shape, ranges(index, shape), strict=True):
        low, high = min(touched[0], touched[-1]), max(touched[0], touched[-1]) + 1
        row //= length
        start += low * row
        block.append(high - low)
        places = range(touched[0] - low, touched[-1] - low + (1 if touched.step > 0 else -1), touched.step)
        inner.append(_picked(places, slice(None) if isinstance(item, slice) else 0))
        if high - low > 1:
            break
    return start, block, inner


def select(index: Sequence[int | slice], shape: Sequence[int], strides: Sequence[int]) -> ArraySelection:
    """Return what a normalised index selects from an array with these ``strides`` (bytes)."""
    offset = 0
    axes: list[tuple[int, int]] = []
    flips: list[int] = []
    result: list[int] = []
    for item, size, stride in zip(index, shape, strides, strict=True):
        if isinstance(item, int):
            offset += item * stride
            continue
        start, stop, step = item.indices(size)
        count = len(range(start, stop, step))
        distance = step * stride
        if count:
            offset += start * stride
        if distance < 0 and count:
            offset += (count - 1) * distance
            distance = -distance
            flips.append(len(axes))
        axes.append((count, distance))
        result.append(count)
    return ArraySelection(offset, axes, flips, tuple(result))


def pick(texts: Iterable[bytes], index: Sequence[int | slice], shape: Sequence[int], limits: Limits) -> Any:
    """Return what a normalised index selects of the elements of a tensor of ``shape``, which come one after the other.

    An array of objects, or one of them. Only what is selected is held; reading ends with the last of it. Raises
    `LimitError` if that is more than fits into ``limits``.
    """
    import numpy as np

    axes = ranges(index, shape)
    limits.check("scalar_bytes", 8 * prod(map(len, axes)), "the array of strings")
    numbers: Any = np.zeros((), np.int64)
    for axis, size in zip(axes, shape, strict=True):
        numbers = numbers[..., None] * size + np.arange(axis.start, axis.stop, axis.step, dtype=np.int64)
    kept = tuple(0 if isinstance(item, int) else slice(None) for item in index)
    flat = numbers.ravel()
    order = np.argsort(flat)
    found = np.empty(flat.size, object)
    rest = iter(texts)
    at = 0
    for place in order.tolist():
        number = int(flat[place])
        found[place] = next(itertools.islice(rest, number - at, None))
        at = number + 1
    return found.reshape(numbers.shape)[kept]


def boxes(first: int, stop: int, shape: Sequence[int]) -> Iterator[list[int | slice]]:
    """Yield indexes that together select the elements ``[first, stop)`` of an array in C order, in that order.

    There are at most two for each dimension.
    """
    inner = [prod(shape[axis + 1 :]) for axis in range(len(shape))]  # elements that one step along an axis takes
    while first < stop:
        axis = next((axis for axis, size in enumerate(inner) if not first % size and first + size <= stop), None)
        if axis is None:  # no dimensions
            yield []
            return
        place = [first // size % length for size, length in zip(inner, shape, strict=True)]
        count = min((stop - first) // inner[axis], shape[axis] - place[axis])
        yield [*place[:axis], slice(place[axis], place[axis] + count), *(slice(None) for _ in shape[axis + 1 :])]
        first += count * inner[axis]


def shape_of(items: Sequence[int | slice], shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of what a normalised index selects from an array of ``shape``."""
    return tuple(
        len(range(*item.indices(size))) for item, size in zip(items, shape, strict=True) if isinstance(item, slice)
    )


def parts_of(items: Sequence[int | slice], shape: Sequence[int], step: int) -> Iterator[tuple[int | slice, ...]]:
    """Yield indexes that select what a normalised index does, in C order, at most ``step`` elements at a time."""
    chosen = shape_of(items, shape)
    total = prod(chosen)
    for first in range(0, total, step):
        for box in boxes(first, min(first + step, total), chosen):
            picks = iter(box)
            yield tuple(
                _picked(range(*item.indices(size)), next(picks)) if isinstance(item, slice) else item
                for item, size in zip(items, shape, strict=True)
            )


def _picked(touched: range, pick: int | slice) -> int | slice:
    """Return which of the places ``touched`` an index selects."""
    if isinstance(pick, int):
        return touched[pick]
    places = touched[pick]
    return slice(places.start, places.stop if places.stop >= 0 else None, places.step)


def read(selection: ArraySelection, dtype: np.dtype[Any], read_into: Callable[[int, memoryview], None]) -> NDArray[Any]:
    """Return the selected elements; ``read_into(offset, view)`` fills a buffer from the tensor's bytes."""
    import numpy as np

    itemsize = dtype.itemsize
    if 0 in selection.shape:
        return np.empty(selection.shape, dtype)
    # Elements that repeat (distance 0) are read once; the axis with the largest distance comes first.
    order = sorted(range(len(selection.axes)), key=lambda axis: -selection.axes[axis][1])
    real = [axis for axis in order if selection.axes[axis][1] and selection.axes[axis][0] > 1]
    joined: list[tuple[int, int]] = []
    for axis in real:
        count, distance = selection.axes[axis]
        if joined and joined[-1][1] == count * distance:
            joined[-1] = (joined[-1][0] * count, distance)
        else:
            joined.append((count, distance))
    flat = np.empty(tuple(count for count, _ in joined), dtype)
    _read_axes(selection.offset, joined, itemsize, flat, read_into)
    array = flat.reshape([selection.axes[axis][0] for axis in real])
    # Restore the order of the index and the repeated axes.
    array = array.transpose([real.index(axis) for axis in sorted(real)])
    full = [count if axis in real else 1 for axis, (count, _) in enumerate(selection.axes)]
    array = array.reshape(full)
    if tuple(full) != selection.shape:
        array = np.broadcast_to(array, selection.shape).copy()
    if selection.flips:
        array = np.flip(array, tuple(selection.flips))
    return np.ascontiguousarray(array).reshape(selection.shape)


def _read_axes(
    offset: int,
    axes: list[tuple[int, int]],
    itemsize: int,
    out: NDArray[Any],
    read_into: Callable[[int, memoryview], None],
) -> None:
    import numpy as np

    run = 1
    inner = len(axes)
    if axes and axes[-1][1] == itemsize:
        inner -= 1
        run = axes[-1][0]
    span = run * itemsize
    # Include axes, innermost first, while their runs are close and the piece stays small.
    chunk = 0
    while inner:
        count, distance = axes[inner - 1]
        if distance - span > MAX_GAP or span > PIECE or distance < span:
            break
        whole = (count - 1) * distance + span
        if whole > PIECE:
            chunk = max(1, (PIECE - span) // distance + 1)
            break
        span = whole
        inner -= 1
    target = out.view(np.uint8).reshape(-1) if out.ndim else out.reshape(1).view(np.uint8)
    if chunk <= 1 and inner == len(axes) - (run > 1):
        # Plain runs: straight into the result.
        for number, place in enumerate(itertools.product(*(range(count) for count, _ in axes[:inner]))):
            at = offset + sum(step * axes[axis][1] for axis, step in enumerate(place))
            read_into(at, target[number * run * itemsize : (number + 1) * run * itemsize].data)
        return
    inner_axes = axes[inner:]
    for place in itertools.product(*(range(count) for count, _ in axes[: inner - 1 if chunk else inner])):
        at = offset + sum(step * axes[axis][1] for axis, step in enumerate(place))
        if not chunk:
            _read_piece(at, inner_axes, span, out[place] if place else out, read_into)
            continue
        count, distance = axes[inner - 1]
        for first in range(0, count, chunk):
            size = min(chunk, count - first)
            part = (out[place] if place else out)[first : first + size]
            piece = [(size, distance), *inner_axes]
            _read_piece(at + first * distance, piece, (size - 1) * distance + span, part, read_into)


def _read_piece(
    offset: int,
    axes: list[tuple[int, int]],
    span: int,
    out: NDArray[Any],
    read_into: Callable[[int, memoryview], None],
) -> None:
    """Read ``span`` bytes at once, and extract the selected elements."""
    import numpy as np

    raw = np.empty(span, np.uint8)
    read_into(offset, raw.data)
    shape, strides = [count for count, _ in axes], [distance for _, distance in axes]
    out[...] = np.ndarray(shape, out.dtype, raw.data, 0, strides)


# -- The elements of a strided array in C order, with few passes through a source in which going back is dear ----------

# In a stream, each block of an array in Fortran order has elements near its start and near its end. So as many
# elements as there is room for, a *window*, are read in one pass: all steps along one axis of which the memory budget
# holds at least one. Nearly ``2 * nbytes / window`` passes are made at most, and blocks of any size are cut out of the
# windows.

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
