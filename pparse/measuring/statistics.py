"""Statistics of tensors, block by block: of each in one pass, in bounded memory, and of parts that are put together.

Types of up to 16 bits are counted code by code, which makes everything exact. Of others, each block has its mean and
the sum of squared distances from it; two such are joined as Chan, Golub and LeVeque do (*Updating formulae*, 1979).
Ranges of the histogram are from one power of two to the next, with a sign: they are known before the values are, and
weights spread over many of them.

All but `Statistics.nan` and `infinite` is of finite values. Of complex numbers, real and imaginary parts count for
themselves.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from math import sqrt
from threading import local

from pparse.document.opening import refuse_unknown
from pparse.errors import DataError, UnsupportedError
from pparse.findings import Status
from pparse.lazy import Declared
from pparse.limits import parse_size
from pparse.measuring.content import BLOCK, content_blocks, is_plain, json_number
from pparse.measuring.suspicion import Suspicion, in_words, suspects_in
from pparse.tensors.dtype import DTYPES
from pparse.tensors.scales import codes_of, meant, quantisation_of
from pparse.tensors.status import refuse_expanded
from pparse.workers.parts import EVEN, PART, Part, divided, measured, why_not
from pparse.workers.results import Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.document.opening import Source
    from pparse.measuring.suspicion import Suspect
    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# Elements that are worked on at once: as float64, they fit into the caches of a processor.
_AT_ONCE: Final = 64 << 10
# Squares are summed as they are if the mean is at most so many deviations: then no digits are lost that count.
_NEAR: Final = 4
# Of a type with so many bits each code is counted.
_COUNTED: Final = 16
# Bits of sign and exponent, and of the rest, of the types that are not counted.
_FORMS: Final = {"float32": (9, 23), "float64": (12, 52)}
_PARTS: Final = {
    "complex32": "float16",
    "bcomplex32": "bfloat16",
    "complex64": "float32",
    "complex128": "float64",
}
# So many codes are sorted: there are fewer than room for the counts of all.
_FEW: Final = 4 << 10
# A tensor is sampled at so many places.
_PLACES: Final = 64

Range = tuple[float, float, int]
"""A range of values, which has the end that is nearer to zero, and how many are in it."""


class Statistics(Declared):
    """What the values of a tensor, or of several, are like."""

    count: int = 0
    """How many there are."""
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    min: float | int | None = None
    max: float | int | None = None
    mean: float | None = None
    variance: float | None = None
    """The mean of the squared distances from the mean."""
    distinct: int | None = None
    """How many different values there are, of types up to 16 bits; NaN is one."""
    histogram: tuple[Range, ...] = ()
    """Ranges of powers of two in ascending order, without empty ones; zeros are not in it."""

    @property
    def finite(self) -> int:
        """How many values are finite."""
        return self.count - self.nan - self.infinite

    @property
    def zero_share(self) -> str:
        """How many values are zero, in percent."""
        return f"{100 * self.zeros / self.count:.3g}%"

    @property
    def std(self) -> float | None:
        """The standard deviation, as ``numpy.std`` has it."""
        return None if self.variance is None else sqrt(self.variance)

    @property
    def norm(self) -> float | None:
        """The Euclidean norm: the root of the sum of squares."""
        if self.mean is None or self.variance is None:
            return None
        return sqrt(self.finite) * sqrt(self.mean * self.mean + self.variance)

    def __add__(self, other: Statistics) -> Statistics:
        """Return the statistics of both together; `distinct` is not known then."""
        told = Statistics(
            self.count + other.count, self.nan + other.nan, self.infinite + other.infinite, self.zeros + other.zeros
        )
        if self.mean is None or other.mean is None:
            known = other if self.mean is None else self
            told.min, told.max, told.mean, told.variance = known.min, known.max, known.mean, known.variance
            told.histogram = known.histogram
            return told
        mine, others = self.finite, other.finite
        total = mine + others
        step = other.mean - self.mean
        told.mean = self.mean + step * (others / total)
        spread = (self.variance or 0.0) * (mine / total) + (other.variance or 0.0) * (others / total)
        told.variance = spread + step * step * (mine / total) * (others / total)
        ranges: dict[tuple[float, float], int] = {}
        for low, high, count in (*self.histogram, *other.histogram):
            ranges[low, high] = ranges.get((low, high), 0) + count
        told.histogram = tuple((low, high, count) for (low, high), count in sorted(ranges.items()))
        told.min, told.max = min(self.min, other.min), max(self.max, other.max)  # type: ignore[type-var]
        return told

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        names = ("count", "nan", "infinite", "zeros", "min", "max", "mean", "std", "norm", "distinct")
        ranges = [
            {"from": json_number(low), "to": json_number(high), "count": count} for low, high, count in self.histogram
        ]
        return {**{name: json_number(getattr(self, name)) for name in names}, "histogram": ranges}


class TensorStatistics(Declared):
    """The statistics of a tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    statistics: Statistics | None = None
    """None if it is not whole, or not of numbers."""
    is_estimate: bool = False
    """Whether not all values were read."""
    status: Status = Status.COMPLETE
    reason: str = ""
    """Why there are none."""
    suspect: tuple[Suspect, ...] = ()
    """Stretches that do not look like the rest of it; no fault."""

    @property
    def notes(self) -> list[str]:
        """What is worth a word, for people."""
        told = self.statistics
        if told is None:
            return []
        notes = [f"{told.nan:,} NaN"] if told.nan else []
        notes += [f"{told.infinite:,} infinite"] if told.infinite else []
        if told.count and told.zeros == told.count:
            notes.append("all zero")
        elif told.count > 1 and not told.nan and not told.infinite and told.min == told.max:
            notes.append("all the same")
        elif told.zeros:
            notes.append(f"{told.zero_share} zeros")
        notes += [f"suspect: {in_words(self.suspect)}"] if self.suspect else []
        return notes + ([f"estimated of {told.count:,}"] if self.is_estimate else [])

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        shape = None if self.shape is None else list(self.shape)
        found = None if self.statistics is None else self.statistics.to_dict()
        told = {"name": self.name, "dtype": self.dtype, "shape": shape, "estimate": self.is_estimate}
        suspect = [one.to_dict() for one in self.suspect]
        told |= {"status": self.status.value, "reason": self.reason or None}
        return {**told, "statistics": found, "suspect": suspect}


# -- One tensor --------------------------------------------------------------------------------------------------------


def statistics_of(tensor: Tensor) -> tuple[Statistics, tuple[Suspect, ...]]:
    """Return the statistics of a tensor of numbers, and what in it does not look like the rest.

    Raises the errors of `Tensor.blocks`.
    """
    refuse_expanded(tensor)
    return _results(tensor, _counted(tensor))


def _results(tensor: Tensor, counted: _CodeCounts | _Moments) -> tuple[Statistics, tuple[Suspect, ...]]:
    found = counted.result()
    return found, suspects_in(tensor, counted.suspicion, found.zeros)


def _type_of(tensor: Tensor) -> tuple[DType, DType]:
    """Return the type of a tensor's elements, and that of the numbers in them. Raises `UnsupportedError`."""
    dtype = tensor.dtype
    if dtype is None or not dtype.is_number:
        raise UnsupportedError(f"its elements are {tensor.type_name}, not numbers", path=tensor.name)
    part = DTYPES[_PARTS[dtype.name]] if dtype.name in _PARTS else dtype
    if part.kind in ("other", "complex"):
        raise UnsupportedError(f"statistics of {dtype} are not made", path=tensor.name)
    return dtype, part


def _counted(
    tensor: Tensor, sample: int | None = None, start: int = 0, stop: int | None = None
) -> _CodeCounts | _Moments:
    """Return what was counted of a tensor, or of its elements from ``start`` to ``stop``."""
    import numpy as np

    dtype, part = _type_of(tensor)
    found = _kind_of(part)(part)
    is_looked_at = sample is None and part is dtype and found.suspicion.kinds and is_plain(tensor)
    at = start
    with np.errstate(all="ignore"):
        for block in _blocks(tensor, dtype, sample, start, stop):
            codes = block.view(part.raw_numpy)
            found.add(codes, at if is_looked_at else None)
            at += len(codes)
    return found


def _kind_of(part: DType) -> type[_CodeCounts | _Moments]:
    return _CodeCounts if part.bits <= _COUNTED else _Moments


def _blocks(tensor: Tensor, dtype: DType, sample: int | None, start: int, stop: int | None) -> Iterator[NDArray[Any]]:
    """Yield the raw bits of the elements, as far as they are wanted; each block counts until the next is asked for."""
    import numpy as np

    if sample is not None and sample < tensor.nbytes:
        wanted = max(8, min(tensor.size, sample // dtype.itemsize))
        places = min(_PLACES, wanted // 8)
        most = wanted // places // 8 * 8
        for number in range(places):
            first = (tensor.size - most) * number // max(1, places - 1) // 8 * 8
            yield from islice(tensor.blocks(most * dtype.itemsize, raw=True, start=max(0, first)), 1)
    elif is_plain(tensor) and not dtype.packed:
        size = dtype.itemsize
        for block in content_blocks(tensor, BLOCK, start * size, None if stop is None else stop * size):
            yield np.frombuffer(block, dtype.raw_numpy)
    else:
        left = tensor.size if stop is None else stop - start
        for codes in tensor.blocks(BLOCK, raw=True, start=start):
            yield codes[:left]
            left -= len(codes)
            if left <= 0 and stop is not None:
                break


class _Elements(Part):
    """Some elements of a tensor, counted; or of what its codes stand for."""

    needs = ("numpy",)

    def __init__(
        self, viewer: Viewer, tensor: Tensor, start: int, stop: int | None, sample: int | None, dequantize: bool
    ) -> None:
        super().__init__([(viewer, tensor)], start, stop)
        self._sample, self._dequantize = sample, dequantize
        self.what = f"stats 2 {sample} {dequantize}"

    def read(self) -> list[Tensor]:
        """Return the tensor, and the scales of its codes: they may lie in another file."""
        found = None
        with suppress(DataError):  # told when it is measured
            found = quantisation_of(self.viewers[0], self.tensors[0]) if self._dequantize else None
        return [*self.tensors, *(() if found is None else found.parts)]

    def measure(self) -> _CodeCounts | _Moments:
        """Count them."""
        tensor = meant(self.viewers[0], self.tensors[0], dequantize=self._dequantize)
        return _counted(tensor, self._sample, self.start, self.stop)

    def noted(self, result: Any) -> Any:
        """Return what was counted as plain data."""
        return result.to_plain()

    def known(self, noted: Any) -> Any:
        """Return what was counted from plain data."""
        part = _type_of(meant(self.viewers[0], self.tensors[0], dequantize=self._dequantize))[1]
        found = _kind_of(part)(part)
        found.take_plain(noted)
        return found


def _count(counts: NDArray[Any], codes: NDArray[Any]) -> None:
    """Add to ``counts`` how often each code comes.

    By `numpy.add.at`, a third faster than `numpy.bincount`, which looks for the largest code first; and in room of this
    thread that is used again: fresh memory for each block costs as much as the counting where freed memory goes back
    to the system at once, as in the workers of dask.
    """
    import numpy as np

    room = getattr(_own, "room", None)
    if room is None or len(room) < len(codes):
        room = _own.room = np.empty(len(codes), np.intp)
    indexes = room[: len(codes)]
    np.copyto(indexes, codes, casting="unsafe")
    np.add.at(counts, indexes, 1)


_own: Final = local()


class _CodeCounts:
    """Counts each code of a type."""

    def __init__(self, dtype: DType) -> None:
        self._dtype = dtype
        self._few: tuple[Any, Any] | None = None  # of few codes, those that come, and how often
        self._counts: NDArray[Any] | None = None  # of more, how often each comes
        self.suspicion = Suspicion(dtype)

    def add(self, codes: NDArray[Any], at: int | None = None) -> None:
        """Count a block of codes; ``at``: where they begin, if they are to be suspected."""
        import numpy as np

        if self._dtype.packed:
            codes = codes & ((1 << self._dtype.bits) - 1)
        kinds, half = self.suspicion.kinds, 1 << (self._dtype.bits - 1)
        if len(codes) <= _FEW and self._few is None and self._counts is None:
            found, counts = self._few = np.unique(codes, return_counts=True)
            if at is not None:
                each = np.bincount(found // (2 * half // kinds), counts, kinds).astype(np.int64)
                self.suspicion.look(at, codes, each, int(counts[found % half == 0].sum()))
            return
        counted = self._all_counts()
        if at is None:
            _count(counted, codes)
            return
        counts = np.zeros(len(counted), np.int64)
        _count(counts, codes)
        counted += counts
        each = np.add.reduceat(counts, np.arange(0, len(counts), len(counts) // kinds))
        self.suspicion.look(at, codes, each, int(counts[0] + counts[half]))

    def _all_counts(self) -> NDArray[Any]:
        """Return how often each code comes; from now on, they are counted there."""
        import numpy as np

        if self._counts is None:
            self._counts = np.zeros(1 << self._dtype.bits, np.int64)
            found, counts = self._few or ([], 0)
            self._counts[found] = counts
        return self._counts

    def _present(self) -> tuple[Any, Any]:
        """Return the codes that come, and how often."""
        import numpy as np

        if self._counts is None:
            return self._few or (np.zeros(0, np.intp),) * 2
        found = np.flatnonzero(self._counts)
        return found, self._counts[found]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_few": self._present(), "_counts": None}

    def join(self, other: _CodeCounts) -> None:
        """Add what another part has."""
        found, counts = other._present()
        self._all_counts()[found] += counts
        self.suspicion.join(other.suspicion)

    def to_plain(self) -> list[Any]:
        """Return what was counted: codes and their counts."""
        return [self.suspicion.to_plain(), *(some.tolist() for some in self._present())]

    def take_plain(self, plain: list[Any]) -> None:
        """Take what `to_plain` returned."""
        import numpy as np

        suspicion, codes, counts = plain
        self.suspicion.take_plain(suspicion)
        self._few = np.array(codes, np.intp), np.array(counts, np.int64)

    def result(self) -> Statistics:
        """Return the statistics."""
        import numpy as np

        dtype = self._dtype
        found, counts = self._present()
        found = found.astype(dtype.raw_numpy)
        with np.errstate(invalid="ignore"):  # of NaN
            values = (found != 0 if dtype.kind == "bool" else found.view(dtype.numpy)).astype(np.float64)
        nan, infinite = np.isnan(values), np.isinf(values)
        told = Statistics(int(counts.sum()), int(counts[nan].sum()), int(counts[infinite].sum()))
        told.zeros = int(counts[values == 0].sum())
        ordered = np.sort(values[~nan])
        told.distinct = int(np.count_nonzero(ordered[1:] != ordered[:-1])) + (len(ordered) > 0) + bool(nan.any())
        is_finite = ~(nan | infinite)
        values, counts = values[is_finite], counts[is_finite]
        if not len(values):
            return told
        whole = dtype.kind in ("int", "uint", "bool")
        told.min, told.max = (int(v) if whole else float(v) for v in (values.min(), values.max()))
        told.mean = float((values * counts).sum() / counts.sum())
        told.variance = float(((values - told.mean) ** 2 * counts).sum() / counts.sum())
        told.histogram = _ranges_of(values, counts)
        return told


def _to_plain(counts: NDArray[Any]) -> list[list[int]]:
    import numpy as np

    found = np.flatnonzero(counts)
    return [found.tolist(), counts[found].tolist()]


def _ranges_of(values: NDArray[Any], counts: NDArray[Any]) -> tuple[Range, ...]:
    """Return the ranges of finite values that come so many times each."""
    import numpy as np

    values, counts = values[values != 0], counts[values != 0]
    _, exponents = np.frexp(values)
    keys = np.where(values < 0, -1, 1) * (exponents + _SHIFT)
    first = int(keys.min()) if len(keys) else 0
    totals = np.bincount(keys - first, counts)  # exact: nobody has 2^53 values
    found = np.flatnonzero(totals)
    return _told_ranges(dict(zip((found + first).tolist(), totals[found].astype(np.int64).tolist(), strict=True)))


# Exponents of float64 are above this.
_SHIFT: Final = 2_000


def _told_ranges(found: dict[int, int]) -> tuple[Range, ...]:
    ranges = []
    for key, count in found.items():
        sign, exponent = (-1 if key < 0 else 1), abs(key) - _SHIFT
        ends = sorted((sign * 2.0 ** (exponent - 1), sign * _power(exponent)))
        ranges.append((ends[0], ends[1], count))
    return tuple(sorted(ranges))


def _power(exponent: int) -> float:
    return 2.0**exponent if exponent < 1024 else float("inf")


def _mean_and_squares(values: NDArray[Any], room: NDArray[Any]) -> tuple[float, float]:
    """Return the mean of values, and the sum of their squared distances from it; ``room``: as many numbers."""
    import numpy as np

    count = len(values)
    np.copyto(room, values, casting="unsafe")
    mean = float(room.sum()) / count
    np.multiply(room, room, out=room)  # not `@`: for so few numbers, its threads cost more than they do
    squares = float(room.sum()) - count * mean * mean
    if not squares * _NEAR * _NEAR > count * mean * mean:
        np.copyto(room, values, casting="unsafe")
        room -= mean
        np.multiply(room, room, out=room)
        squares = float(room.sum())
    return mean, squares


_NOTED: Final = ("count", "nan", "infinite", "zeros", "min", "max")
# Where the numbers of whole ones begin that are not negative: of those, by the bits they have.
_POSITIVE: Final = 65


class _Moments:
    """Counts ranges, and joins mean and variance of pieces."""

    def __init__(self, dtype: DType) -> None:
        import numpy as np

        self._dtype = dtype
        self._told = Statistics()
        self._mean = self._squares = 0.0
        self._form = _FORMS.get(dtype.name)
        size = 1 << self._form[0] if self._form is not None else 2 * _POSITIVE
        self._counts = np.zeros(size, np.int64)
        self.suspicion = Suspicion(dtype)

    def add(self, codes: NDArray[Any], at: int | None = None) -> None:
        """Add a block of values, as raw bits; ``at``: where they begin, if they are to be suspected."""
        import numpy as np

        counts, zeros = self._counts.copy(), self._told.zeros
        room = np.empty(min(len(codes), _AT_ONCE))
        for start in range(0, len(codes), _AT_ONCE):
            self._add_piece(codes[start : start + _AT_ONCE], room)
        if at is not None:
            self.suspicion.look(at, codes, self._counts - counts, self._told.zeros - zeros)

    def _add_piece(self, codes: NDArray[Any], room: NDArray[Any]) -> None:
        import numpy as np

        told, values = self._told, codes.view(self._dtype.numpy)
        told.count += len(values)
        if self._form is not None:
            bits, rest = self._form
            shifted = np.right_shift(codes, codes.dtype.type(rest), out=room.view(codes.dtype)[: len(codes)])
            found = np.zeros(1 << bits, np.int64)
            _count(found, shifted)
            self._counts += found
            if found[0] or found[1 << (bits - 1)]:
                told.zeros += len(values) - int(np.count_nonzero(values))
            if found[(1 << (bits - 1)) - 1] or found[-1]:
                nan = int(np.count_nonzero(np.isnan(values)))
                told.nan += nan
                told.infinite += int(found[(1 << (bits - 1)) - 1] + found[-1]) - nan
                values = values[np.isfinite(values)]
        else:
            told.zeros += len(values) - int(np.count_nonzero(values))
            self._count_whole(values)
        if not len(values):
            return
        low, high = values.min().item(), values.max().item()
        if told.min is None or told.max is None:
            told.min, told.max = low, high
        told.min, told.max = min(told.min, low), max(told.max, high)
        self._join(len(values), *_mean_and_squares(values, room[: len(values)]))

    def join(self, other: _Moments) -> None:
        """Add what another part has."""
        mine, others = self._told, other._told
        for name in ("count", "nan", "infinite", "zeros"):
            setattr(mine, name, getattr(mine, name) + getattr(others, name))
        mine.min = others.min if mine.min is None else mine.min if others.min is None else min(mine.min, others.min)
        mine.max = others.max if mine.max is None else mine.max if others.max is None else max(mine.max, others.max)
        self._counts += other._counts
        self.suspicion.join(other.suspicion)
        if others.finite:
            self._join(others.finite, other._mean, other._squares)

    def to_plain(self) -> list[Any]:
        """Return what was counted."""
        told = [getattr(self._told, name) for name in _NOTED]
        return [*told, self._mean, self._squares, self.suspicion.to_plain(), *_to_plain(self._counts)]

    def take_plain(self, plain: list[Any]) -> None:
        """Take what `to_plain` returned."""
        *told, self._mean, self._squares, suspicion, codes, counts = plain
        self.suspicion.take_plain(suspicion)
        self._told = Statistics(**dict(zip(_NOTED, told, strict=True)))
        self._counts[codes] = counts

    def _join(self, count: int, mean: float, squares: float) -> None:
        total = self._told.finite
        before = total - count
        if not before:  # infinite squares stay so: times none before they would be no number
            self._mean, self._squares = mean, squares
            return
        step = mean - self._mean
        self._mean += step * (count / total)
        self._squares += squares + step * step * (before * (count / total))

    def _count_whole(self, values: NDArray[Any]) -> None:
        """Count whole numbers by the bits they have: by sign, from the most negative on."""
        import numpy as np

        ends = np.array([1 << bit for bit in range(64)], np.uint64)
        negative = values < 0
        for sign, some in ((_POSITIVE, values[~negative]), (0, values[negative])):
            sizes = some.astype(np.uint64) if sign else (-(some + 1)).astype(np.uint64) + np.uint64(1)
            bits = np.searchsorted(ends, sizes, side="right")
            _count(self._counts, bits + sign)

    def result(self) -> Statistics:
        """Return the statistics."""
        told = self._told
        if not told.finite:
            return told
        told.mean, told.variance = self._mean, self._squares / told.finite
        found: dict[int, int] = {}
        for number, count in zip(*_to_plain(self._counts), strict=True):
            key = self._key(number)
            if key is not None:
                found[key] = found.get(key, 0) + count
        told.histogram = _told_ranges(found)
        if self._form is not None:
            told.histogram = self._with_smallest(told, 1 << (self._form[0] - 1))
        return told

    def _key(self, number: int) -> int | None:
        """Return what `_told_ranges` calls a range by its sign and exponent; None: it is none, or of subnormal ones."""
        if self._form is None:
            bits, sign = (number - _POSITIVE, 1) if number >= _POSITIVE else (number, -1)
            return sign * (bits + _SHIFT) if bits else None
        half = 1 << (self._form[0] - 1)
        exponent = number % half
        if exponent in (0, half - 1):
            return None
        return (-1 if number >= half else 1) * (exponent - half // 2 + 2 + _SHIFT)

    def _with_smallest(self, told: Statistics, half: int) -> tuple[Range, ...]:
        """Return the histogram with subnormal numbers: they are one range, around zero."""
        small = int(self._counts[0] + self._counts[half]) - told.zeros
        least = 2.0 ** (2 - half // 2)
        return tuple(sorted((*told.histogram, *([(-least, least, small)] if small else []))))


# -- All tensors of a model --------------------------------------------------------------------------------------------


def statistics_in(
    viewer: Viewer,
    chosen: Callable[[Viewer, Tensor], bool] | None = None,
    *,
    sample: int | None = None,
    dequantize: bool = True,
    workers: Workers | None = None,
) -> Iterator[TensorStatistics]:
    """Yield the statistics of each tensor, as they are made.

    ``dequantize``: of codes that the document has scales for, what they stand for, and not of the scales.
    """

    def wanted() -> Iterator[Tensor]:
        for tensor in viewer.tensors():
            if (chosen is None or chosen(viewer, tensor)) and not (dequantize and codes_of(viewer, tensor) is not None):
                yield tensor

    def parts_of(tensor: Tensor) -> list[Part]:
        places: list[tuple[int, int | None]] = [(0, None)]
        try:
            of = meant(viewer, tensor, dequantize=dequantize)
            if of.dtype is not None and (sample is None or sample >= of.nbytes):
                places = divided(tensor, of.size, max(1, PART // of.dtype.itemsize // EVEN) * EVEN)
        except DataError:
            pass  # told when it is measured
        return [_Elements(viewer, tensor, *place, sample, dequantize) for place in places]

    for tensor, parts in measured(wanted(), parts_of, workers or Workers()):
        found = TensorStatistics(tensor.name, tensor.type_name, tensor.shape if tensor.is_shape_known else None)
        try:
            counted = next(parts)()
            for part in parts:
                counted.join(part())
            found.statistics, found.suspect = _results(tensor, counted)
            found.is_estimate = sample is not None and sample < meant(viewer, tensor, dequantize=dequantize).nbytes
        except DataError as error:
            found.status, found.reason = why_not(viewer, tensor, error)
        yield found


class ModelStatistics(Declared):
    """The statistics of a model, and of its tensors."""

    tensors: list[TensorStatistics]
    whole: Statistics
    """Of all tensors together."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {"tensors": [tensor.to_dict() for tensor in self.tensors], "whole": self.whole.to_dict()}

    def to_svg(self, title: str = "statistics") -> str:
        """Return a picture of the first 100 tensors, and of all: histograms and figures, for a report."""
        from pparse.measuring.picture import to_svg

        count = sum(one.statistics is not None for one in self.tensors)
        return "".join(to_svg(title, self.tensors, self.whole, count))

    def to_frame(self) -> Any:
        """Return a table of the tensors, of pandas or polars. Raises `UnsupportedError` if there is neither."""
        from importlib import import_module

        rows = [
            {"name": one.name, "dtype": one.dtype, "shape": one.shape and list(one.shape)}
            | ({} if one.statistics is None else one.statistics.to_dict() | {"histogram": None})
            for one in self.tensors
        ]
        for library in ("pandas", "polars"):
            try:
                return import_module(library).DataFrame(rows)
            except ImportError:
                continue
        raise UnsupportedError("to_frame() needs the package pandas, or polars", package="pandas")

    def _repr_html_(self) -> str:
        from pparse.display.text import table

        heads = ("name", "dtype", "min", "max", "mean", "std", "NaN", "infinite", "zeros")
        rows = []
        for one in self.tensors:
            told = one.statistics or Statistics()
            rows.append(
                (one.name, one.dtype, told.min, told.max, told.mean, told.std, told.nan, told.infinite, told.zeros)
            )
        return table("statistics", heads, rows)


def stats(
    source: Source | Viewer,
    *,
    sample: int | str | None = None,
    dequantize: bool = True,
    executor: Any = None,
    **how: Any,
) -> ModelStatistics:
    """Return statistics of the tensors of a model, each read once in blocks.

    ``sample``: read at most so many bytes of each, and estimate. ``dequantize``: of codes that the document has scales
    for, what they stand for. ``executor``: who is to read them, a `pparse.ProcessPool` or any other executor of
    `concurrent.futures`. A `Viewer` is not closed; of any other source, ``how`` are keyword arguments of `pparse.view`.
    Raises what that does.
    """
    from pparse.tensors.viewer import Viewer, view

    refuse_unknown("stats", how)
    if not isinstance(source, Viewer):
        with view(source, **how) as viewer:
            return stats(viewer, sample=sample, dequantize=dequantize, executor=executor)
    most = None if sample is None else parse_size(sample)
    tensors = list(statistics_in(source, sample=most, dequantize=dequantize, workers=Workers(executor)))
    return ModelStatistics(tensors, together(tensors))


def together(tensors: Any) -> Statistics:
    """Return the statistics of all tensors as of one."""
    whole = Statistics()
    for one in tensors:
        whole = whole + one.statistics if one.statistics is not None else whole
    return whole
