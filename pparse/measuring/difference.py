"""What differs between two models: tensors that came, went or got another name, types, shapes, values, and metadata.

Tensors go by their names. What is left over is paired if all names of one model are those of the other behind a prefix,
or if the contents are the same. Of two tensors, the bytes are compared first: numbers are looked at only where these
differ, or if the types do. Tensors in the same place of the same file, and those that are holes of files on both sides,
are equal without being read.

A changed value is one whose bits are other ones, but for 0 and -0, and NaN and NaN. Distances are those of finite
values; where one of the two is NaN or infinite, the value counts as changed, and for nothing else.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import zip_longest
from math import inf, prod, sqrt
from operator import itemgetter

from pparse.document.opening import refuse_unknown
from pparse.errors import DataError, OptionError, UnsupportedError, told
from pparse.findings import Status
from pparse.lazy import Declared
from pparse.measuring.content import (
    BLOCK,
    blocks_there,
    content_blocks,
    is_plain,
    json_number,
    shape_word,
    type_word,
)
from pparse.measuring.hashing import hash_if_whole
from pparse.tensors.dtype import as_type
from pparse.tensors.status import Remark
from pparse.workers.parts import EVEN, PART, Part, divided, measured, why_not
from pparse.workers.results import Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.document.opening import Source
    from pparse.limits import Charge
    from pparse.measuring.graph_difference import GraphDifference
    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

    _Pair = tuple[Tensor, Tensor]
    _Result = Callable[[], "_Sums | bool"]
    _Place = tuple[int, int | None]

EQUAL, CLOSE, CAST = "equal", "close", "equal after a cast"
ADDED, REMOVED, RENAMED = "added", "removed", "renamed"
TYPE, SHAPE, VALUES, NOT_WHOLE, UNREADABLE = "type", "shape", "values", "not whole", "not comparable"
SAME: Final = frozenset((EQUAL, CLOSE))
"""The verdicts of tensors that do not differ."""
# Elements that are worked on at once.
_AT_ONCE: Final = 64 << 10
_WITH_ZERO: Final = ("float", "int", "uint", "bool")
# Memory of a tensor that is held to be paired.
_HELD: Final = 700


class ValueDistance(Declared):
    """How far the values of two tensors are from each other."""

    count: int = 0
    """How many values each has."""
    changed: int = 0
    """How many are other ones."""
    beyond: int = 0
    """How many are farther from each other than the tolerance."""
    largest: float = 0.0
    """The largest distance of two finite values."""
    mean: float = 0.0
    """The mean distance of finite values."""
    cosine: float | None = None
    """The cosine of the angle between both, as vectors; None if one of them is zero."""
    not_finite: int = 0
    """How many are NaN or infinite on just one side, or not the same."""
    after_cast: int | None = None
    """Of two types of floating numbers: how many are other ones if those of more bits are cast to the other type."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {name: json_number(getattr(self, name)) for name in type(self).__annotations__}


class Difference(Declared):
    """What became of a tensor."""

    verdict: str
    name: str
    """Its name in the first model; of one that was added, in the second."""
    new_name: str = ""
    """Its name in the second model, if that is another one."""
    dtypes: tuple[str, str] = ("", "")
    shapes: tuple[str, str] = ("", "")
    distance: ValueDistance | None = None
    reason: str = ""
    """Why it cannot be compared."""

    @property
    def is_same(self) -> bool:
        """Whether it does not differ, not even by its name."""
        return self.verdict in SAME and not self.new_name

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        found: dict[str, object] = {"verdict": self.verdict, "name": self.name, "new_name": self.new_name or None}
        found |= {"dtypes": list(self.dtypes), "shapes": list(self.shapes), "reason": self.reason or None}
        return {**found, "distance": None if self.distance is None else self.distance.to_dict()}


class Change(Declared):
    """A change of what a model says of itself."""

    name: str
    old: Any = None
    """None: it was not there."""
    new: Any = None

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {"name": self.name, "old": self.old, "new": self.new}


class Comparison:
    """Two models, compared as `tensors` is gone through; what both say of themselves, by `metadata`."""

    def __init__(
        self,
        old: Viewer,
        new: Viewer,
        *,
        tolerance: float = 0.0,
        relative: float = 0.0,
        chosen: Callable[[Viewer, Tensor], bool] | None = None,
        admitted: Callable[[Viewer, Tensor], bool] | None = None,
        identities: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
        workers: Workers | None = None,
    ) -> None:
        """Values are close if they are at most ``tolerance + relative * abs(new)`` apart. ``chosen``: which count.

        Of a pair, also the old one must be ``admitted``, of a tensor that was added, the new one. ``identities`` of
        contents by name, of the old model and the new one, are believed: such tensors are not read, if whole. Raises
        `OptionError`.
        """
        for name, value in (("tolerance", tolerance), ("relative", relative)):
            if not 0 <= value < inf:
                raise OptionError(f"{told(f'--{name}', name)} must be 0 or a larger number, not {value}")
        self._old, self._new, self._chosen, self._admitted = old, new, chosen, admitted
        self._tolerance, self._relative = tolerance, relative
        self._identities, self._workers = identities or ({}, {}), workers or Workers()

    def metadata(self) -> Iterator[Change]:
        """Yield what differs in what both say of themselves, if they are of one format."""
        if self._old.format != self._new.format:
            return
        old, new = dict(self._old.metadata), dict(self._new.metadata)
        for name in dict.fromkeys((*old, *new)):
            mine, others = old.get(name), new.get(name)
            if isinstance(mine, Remark) and isinstance(others, Remark) and mine == others:
                mine, others = _first_other(mine, others)
            if repr(mine) != repr(others):
                yield Change(name, mine, others)

    def graph(self) -> GraphDifference | None:
        """Return what differs between their graphs; None if they have none, or are of two formats."""
        from pparse.measuring.graph_difference import graph_difference

        return graph_difference(self._old, self._new)

    def are_whole(self) -> tuple[bool, bool]:
        """Return whether each of the two is whole, as far as is known by now."""
        return self._old.extent().is_sound, self._new.extent().is_sound

    # -- pairs -------------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[Difference]:
        """Yield each tensor of both models, in the order of the first one; renamed and added ones at the end."""
        gone: list[Tensor] = []
        with self._old.extraction.session.budget.charge(0, "names without a match") as charge:
            yield from self._all_compared(self._namesakes(gone, charge))
            came = []
            for tensor in self._wanted(self._new):
                if self._old.find(tensor.name) is None:
                    came.append(tensor)
                    charge.resize(_HELD * (len(gone) + len(came) + 1))
            yield from self._left_over(gone, came)

    def _namesakes(self, gone: list[Tensor], charge: Charge) -> Iterator[_Pair]:
        """Yield pairs of tensors with the same name; put others of the first model into ``gone``."""
        for tensor in filter(partial(self._admits, self._old), self._wanted(self._old)):
            other = self._new.find(tensor.name)
            if other is not None:
                yield tensor, other
                continue
            gone.append(tensor)
            charge.resize(_HELD * (len(gone) + 1))

    def _wanted(self, viewer: Viewer) -> Iterator[Tensor]:
        for tensor in viewer.tensors():
            if not viewer.is_bookkeeping(tensor) and (self._chosen is None or self._chosen(viewer, tensor)):
                yield tensor

    def _admits(self, viewer: Viewer, tensor: Tensor) -> bool:
        return self._admitted is None or self._admitted(viewer, tensor)

    def _left_over(self, gone: list[Tensor], came: list[Tensor]) -> Iterator[Difference]:
        """Yield tensors whose names are in one model only."""
        by_name = {tensor.name: tensor for tensor in came}
        strip, add = _prefixes([tensor.name for tensor in gone], by_name)
        alone, pairs = [], []
        for tensor in gone:
            other = by_name.pop(add + tensor.name.removeprefix(strip), None) if strip or add else None
            if other is None:
                alone.append(tensor)
            else:
                pairs.append((tensor, other))
        yield from self._all_compared(pairs)
        rest: dict[tuple[str, str], list[Tensor]] = {}
        for tensor in by_name.values():
            rest.setdefault((type_word(tensor), shape_word(tensor)), []).append(tensor)
        hashed: dict[tuple[str, str], dict[str | None, list[Tensor]]] = {}
        for tensor in alone:
            kind = type_word(tensor), shape_word(tensor)
            if kind in rest and kind not in hashed:
                hashed[kind] = {}
                for other in reversed(rest[kind]):
                    hashed[kind].setdefault(hash_if_whole(other), []).append(other)
            mine = hash_if_whole(tensor) if kind in rest else None
            same = hashed[kind].get(mine) if mine is not None else None
            if not same:
                told = Difference(REMOVED, tensor.name, "", (type_word(tensor), ""), (shape_word(tensor), ""))
                yield _unless_lost(told, self._new, "second")
            else:
                found = by_name.pop(same.pop().name)
                yield Difference(RENAMED, tensor.name, found.name, (kind[0],) * 2, (kind[1],) * 2)
        for tensor in filter(partial(self._admits, self._new), by_name.values()):
            told = Difference(ADDED, tensor.name, "", ("", type_word(tensor)), ("", shape_word(tensor)))
            yield _unless_lost(told, self._old, "first")

    # -- two tensors -------------------------------------------------------------------------------------------------

    def _all_compared(self, pairs: Iterable[_Pair]) -> Iterator[Difference]:
        divided_ones = ((*pair, self._parts_of(pair)) for pair in pairs)
        for (old, new, parts), results in measured(divided_ones, itemgetter(2), self._workers):
            yield self._compared(old, new, parts, results)

    def _parts_of(self, pair: _Pair) -> list[_Stretch]:
        old, new = pair
        both = [(self._old, old), (self._new, new)]
        is_same_type = type_word(old) == type_word(new)
        how = is_same_type, self._tolerance, self._relative
        told = [known.get(tensor.name) for known, tensor in zip(self._identities, pair, strict=True)]
        if is_same_type and None not in told and old.is_complete and new.is_complete:
            return [_Listed(both, told[0] == told[1])]
        if old.shape != new.shape or not _are_numbers(old, new) or (is_same_type and not all(map(is_plain, pair))):
            return [_Stretch(both, 0, None, how)]
        step = max(1, PART // max(old.itemsize, new.itemsize) // EVEN) * EVEN
        places = [divided(tensor, old.size, step) for tensor in pair]
        return [_Stretch(both, *place, how) for place in min(places, key=len)]

    def _compared(self, old: Tensor, new: Tensor, parts: list[_Stretch], results: Iterable[_Result]) -> Difference:
        dtypes, shapes = (type_word(old), type_word(new)), (shape_word(old), shape_word(new))
        told = Difference(EQUAL, old.name, new.name if new.name != old.name else "", dtypes, shapes)
        try:
            self._judge(told, old, new, parts, results)
            if told.verdict == EQUAL and told.new_name:
                told.verdict = RENAMED
        except DataError as error:
            told.verdict, told.reason = UNREADABLE, why_not(self._old, old, error)[1]
            reasons = []
            for tensor, which in ((old, "the first"), (new, "the second")):
                if not tensor.is_complete and tensor.status is not Status.UNSUPPORTED:
                    reason = tensor.finding.reason if tensor.finding is not None else error.reason
                    reasons.append(f"in {which} file it is {tensor.status}: {reason}")
            if reasons:
                told.verdict, told.reason = NOT_WHOLE, "; ".join(reasons)
                self._compare_rest(told, old, new)
        return told

    def _judge(
        self, told: Difference, old: Tensor, new: Tensor, parts: list[_Stretch], results: Iterable[_Result]
    ) -> None:
        if not (old.is_shape_known and new.is_shape_known):
            raise UnsupportedError("its shape is not known")
        if old.shape != new.shape:
            told.verdict = SHAPE
            return
        same_type = type_word(old) == type_word(new)
        found = [result() for result in results]
        if all(one is True for one in found):
            return
        if any(one is False for one in found):
            told.verdict = VALUES if same_type else TYPE
            return
        distance = told.distance = self._joined(parts, found).distance(prod(old.shape))
        if not same_type:
            told.verdict = TYPE if distance.changed and distance.after_cast != 0 else CAST
        elif not distance.changed:
            told.verdict = EQUAL
        else:
            told.verdict = VALUES if distance.beyond or not (self._tolerance or self._relative) else CLOSE

    def _joined(self, parts: list[_Stretch], found: list[_Sums | bool]) -> _Sums:
        """Return the sums of all parts; those that are equal count for the cosine."""
        equal = [one for one, sums in zip(parts, found, strict=True) if sums is True]
        for stretch in equal:
            stretch.is_measured = True
        later = Workers(*self._workers.engine).results(equal)
        joined = _Sums()
        for sums in found:
            joined.join(next(later)() if isinstance(sums, bool) else sums)
        return joined

    def _compare_rest(self, told: Difference, old: Tensor, new: Tensor) -> None:
        """Say whether what is there of two tensors agrees, of which one is not whole."""
        if type_word(old) != type_word(new) or old.shape != new.shape:
            return
        count = agree = 0
        try:
            for mine, others in zip(blocks_there(old), blocks_there(new), strict=False):
                length = min(len(mine), len(others))
                count += length
                agree += length if mine[:length] == others[:length] else 0
        except DataError:
            pass
        if count:
            what = "agrees" if count == agree else "differs"
            told.reason += f"; what is there of both {what}"


def _unless_lost(told: Difference, other: Viewer, which: str) -> Difference:
    """Return that a tensor came or went, unless names of the other model are lost: it may have it."""
    if other.names_may_be_lost and other.extent().document_status is not Status.COMPLETE:
        told.verdict, told.reason = NOT_WHOLE, f"the {which} file is not whole, and may have had it"
    return told


def _prefixes(gone: list[str], came: dict[str, Tensor]) -> tuple[str, str]:
    """Return what names of one model begin with more than those of the other, and the other way around; if most do.

    The other one may have more besides, as the states of an optimizer; of several such prefixes, the shortest counts.
    """
    for strip_first in (False, True):
        source, target = ([*came], set(gone)) if not strip_first else (gone, came.keys())
        found: dict[str, int] = {}
        for name in source:
            parts = name.split(".")
            for at in range(1, min(len(parts), 4)):
                if ".".join(parts[at:]) in target:
                    prefix = ".".join(parts[:at]) + "."
                    found[prefix] = found.get(prefix, 0) + 1
                    break
        best = max(found, key=lambda prefix: (found[prefix], -prefix.count(".")), default="")
        if best and found[best] * 2 >= min(len(source), len(target)):
            return (best, "") if strip_first else ("", best)
    return "", ""


def _is_same_place(old: Tensor, new: Tensor) -> bool:
    """Whether two tensors need not be read to be equal: they are the same bytes of a file, or holes of files."""
    if not (old.is_complete and new.is_complete) or old.byteorder != new.byteorder or old.strides != new.strides:
        return False
    pairs = list(zip_longest(old.spans, new.spans))
    if not pairs or any(one is None or other is None or one.length != other.length for one, other in pairs):
        return False
    if old.encoding != new.encoding:
        return False
    same = all(
        one.data is not None
        and other.data is not None
        and one.offset == other.offset
        and one.data.identity is not None
        and one.data.identity == other.data.identity
        for one, other in pairs
    )
    return same or (old.unwritten_nbytes == old.stored_nbytes > 0 and new.unwritten_nbytes == new.stored_nbytes)


def _equal_bytes(old: Iterable[memoryview], new: Iterable[memoryview]) -> bool:
    # Views are compared element by element, a bytearray by `memcmp`: with the copy, it takes a thirtieth of that.
    return all(
        mine is not None and others is not None and bytearray(mine) == others for mine, others in zip_longest(old, new)
    )


def _are_numbers(*tensors: Tensor) -> bool:
    return all(one.dtype is not None and one.dtype.is_number and one.dtype.bits <= 128 for one in tensors)


class _Sums(Declared):
    """What was counted of two tensors, or of a part of them."""

    changed: int = 0
    beyond: int = 0
    largest: float = 0.0
    total: float = 0.0
    """Of the distances of finite values."""
    finite: int = 0
    not_finite: int = 0
    after_cast: int | None = None
    product: float = 0.0
    mine: float = 0.0
    others: float = 0.0

    def join(self, other: _Sums) -> None:
        """Add what another part has."""
        for name in ("changed", "beyond", "total", "finite", "not_finite", "product", "mine", "others"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest = max(self.largest, other.largest)
        if other.after_cast is not None:
            self.after_cast = (self.after_cast or 0) + other.after_cast

    def distance(self, count: int) -> ValueDistance:
        """Return how far two tensors of ``count`` values are from each other."""
        told = ValueDistance(count, self.changed, self.beyond, self.largest)
        told.not_finite, told.after_cast = self.not_finite, self.after_cast
        told.mean = self.total / self.finite if self.finite else 0.0
        size = sqrt(self.mine) * sqrt(self.others)
        told.cosine = min(1.0, max(-1.0, self.product / size)) if 0 < size < inf else None
        return told


class _Stretch(Part):
    """Elements of two tensors. The result is True if their bytes are equal, False if they are others and no numbers."""

    is_measured = False
    """Whether sums are wanted even if the bytes are equal."""

    def __init__(
        self,
        tensors: list[tuple[Viewer, Tensor]],
        start: int,
        stop: int | None,
        how: tuple[bool, float, float],
    ) -> None:
        super().__init__(tensors, start, stop)
        self._is_same_type, self._tolerance, self._relative = how
        self.what = f"diff {how}"

    @property
    def is_local(self) -> bool:  # type: ignore[override]
        """Whether it is not worth sending."""
        old, new = self.tensors
        return old.shape != new.shape or self._is_same_place() or super().is_local

    def _is_same_place(self) -> bool:
        return self._is_same_type and _is_same_place(*self.tensors)

    def measure(self) -> _Sums | bool:
        """Compare them. Raises the errors of `Tensor.blocks`."""
        old, new = self.tensors
        places = _places(old, new, self.start, self.stop)
        if self._is_same_type and not self.is_measured and self._are_equal(places):
            return True
        if not _are_numbers(old, new):
            return False
        found = _sums(old, new, self._tolerance, self._relative, places)
        if places != [(self.start, self.stop)]:  # zeros on both sides
            count = (old.size if self.stop is None else self.stop) - self.start
            found.finite += count - sum((stop or 0) - start for start, stop in places)
        return found

    def _are_equal(self, places: list[_Place]) -> bool:
        """Return whether the bytes are equal."""
        if self._is_same_place():
            return True
        for start, stop in places:
            sizes = (tensor.itemsize if stop is not None else 0 for tensor in self.tensors)
            blocks = (
                content_blocks(tensor, BLOCK, start * size, None if stop is None else stop * size)
                for tensor, size in zip(self.tensors, sizes, strict=True)
            )
            if not _equal_bytes(*blocks):
                return False
        return True

    def noted(self, result: Any) -> Any:
        """Return sums as a list."""
        return result if isinstance(result, bool) else [getattr(result, name) for name in _Sums.__annotations__]

    def known(self, noted: Any) -> Any:
        """Return sums of a list."""
        return noted if isinstance(noted, bool) else _Sums(*noted)


class _Listed(_Stretch):
    """Two tensors of which their identities are known."""

    is_local = True

    def __init__(self, tensors: list[tuple[Viewer, Tensor]], are_equal: bool) -> None:
        super().__init__(tensors, 0, None, (True, 0.0, 0.0))
        self.what += f" {are_equal}"
        self._result = are_equal

    def run(self) -> bool:
        """Return whether they are equal."""
        return self._result


def _places(old: Tensor, new: Tensor, start: int, stop: int | None) -> list[_Place]:
    """Return which elements of ``[start, stop)`` are to be read: not those in holes of files on both sides."""
    if not all(is_plain(one) and one.content_span is not None and _zeros_are_zero(one) for one in (old, new)):
        return [(start, stop)]
    end = old.size if stop is None else stop
    holes = [_holes(tensor, start, end) for tensor in (old, new)]
    found: list[_Place] = []
    at = start
    while all(holes):
        first = max(some[0][0] for some in holes)
        last = min(some[0][1] for some in holes)
        if first < last:
            if at < first:
                found.append((at, first))
            at = last
        ended = holes[0] if holes[0][0][1] <= holes[1][0][1] else holes[1]
        ended.popleft()
    if at == start:
        return [(start, stop)]
    return [*found, (at, end)] if at < end else found


def _zeros_are_zero(tensor: Tensor) -> bool:
    """Return whether an element of zeros is the number 0: not of powers of two."""
    dtype = tensor.dtype
    return (
        dtype is not None and dtype.kind in ("float", "int", "uint", "bool") and not dtype.name.startswith("float8_e8")
    )


def _holes(tensor: Tensor, start: int, end: int) -> deque[tuple[int, int]]:
    """Return the elements of ``[start, end)`` that lie in holes of the file, in order."""
    span, size = tensor.content_span, tensor.itemsize
    if span is None or span.data is None:
        return deque()
    holes = span.data.holes(span.offset + start * size, span.offset + end * size)
    inside = ((-(-(first - span.offset) // size), (last - span.offset) // size) for first, last in holes)
    return deque((first, last) for first, last in inside if first < last)


def _distance(old: Tensor, new: Tensor, tolerance: float, relative: float) -> ValueDistance:
    """Return how far two tensors of one shape are from each other."""
    return _sums(old, new, tolerance, relative, [(0, None)]).distance(prod(old.shape))


def _sums(old: Tensor, new: Tensor, tolerance: float, relative: float, places: list[_Place]) -> _Sums:
    """Return what is counted of two tensors of one shape, of these elements; others are zero on both sides."""
    import numpy as np

    told = _Sums()
    narrow, wide = _narrower(old, new), _common_type(old, new)
    with np.errstate(all="ignore"):
        for first, second in _pairs(old, new, places):
            a, b = (first, second) if wide is None else (first.astype(wide), second.astype(wide))
            changed = (a != b) & ~(np.isnan(a) & np.isnan(b))
            told.changed += int(np.count_nonzero(changed))
            if narrow is not None:
                c, d = (as_type(values, narrow)[0].astype(np.float64) for values in (first, second))
                told.after_cast = (told.after_cast or 0) + int(
                    np.count_nonzero((c != d) & ~(np.isnan(c) & np.isnan(d)))
                )
            is_finite = np.isfinite(a) & np.isfinite(b)
            lost = int(np.count_nonzero(changed & ~is_finite))
            told.not_finite += lost
            if not is_finite.all():
                a, b = a[is_finite], b[is_finite]
            steps = _steps(a, b)
            a, b = a.astype(_wide(a)), b.astype(_wide(b))
            if len(steps):
                told.largest = max(told.largest, float(steps.max()))
                told.total += float(steps.sum())
                told.beyond += int(np.count_nonzero(steps > tolerance + relative * np.abs(b)))
            told.beyond += lost
            told.finite += len(steps)
            told.product += float((a * b.conj()).sum().real)
            told.mine += float((a * a.conj()).sum().real)
            told.others += float((b * b.conj()).sum().real)
    return told


def _pairs(old: Tensor, new: Tensor, places: list[_Place]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the values of both, as many of one as of the other."""
    for place in places:
        yield from zip(_pieces(old, *place), _pieces(new, *place), strict=True)


def _pieces(tensor: Tensor, start: int, stop: int | None) -> Iterator[NDArray[Any]]:
    left = tensor.size if stop is None else stop - start
    for values in tensor.blocks(min(_AT_ONCE, max(left, 8)) * tensor.itemsize, start=start):
        yield values[:left]
        left -= len(values)
        if left <= 0 and stop is not None:
            return


def _narrower(old: Tensor, new: Tensor) -> DType | None:
    """Return the type with fewer bits of two types of floating numbers; None if they are none, or the same."""
    types = [tensor.dtype for tensor in (old, new) if tensor.dtype is not None and tensor.dtype.kind == "float"]
    if len(types) < 2 or types[0] == types[1]:
        return None
    return min(types, key=lambda dtype: dtype.bits)


def _common_type(*tensors: Tensor) -> Any:
    """Return a type of numpy in which the values of both can be compared exactly; None: they are of one already."""
    import numpy as np

    types = [tensor.dtype for tensor in tensors if tensor.dtype is not None]
    if types[0] == types[1] and types[0].numpy.isbuiltin == 1:
        return None
    is_long = any(one.kind == "other" or (one.kind in ("int", "uint") and one.bits == 64) for one in types)
    if any(one.name.lstrip("b").startswith("complex") for one in types):
        return np.clongdouble if is_long else np.complex128
    return np.longdouble if is_long else np.float64


def _steps(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return the distances of values of one type."""
    import numpy as np

    if a.dtype.kind in "iu":  # exact: they wrap around, and back
        steps: NDArray[Any] = np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)
        return steps.astype(np.float64)
    wide: NDArray[Any] = np.abs(a.astype(_wide(a)) - b.astype(_wide(b)))
    return wide


def _wide(array: NDArray[Any]) -> Any:
    import numpy as np

    return array.dtype if array.dtype.itemsize >= 16 else np.complex128 if array.dtype.kind == "c" else np.float64


def _first_other(old: Remark, new: Remark) -> tuple[object, object]:
    """Return the first of many values that is another one in two lists of as many; the remarks, if there is none."""
    try:
        both = zip(old.node.values(), new.node.values(), strict=True)
        for number, (mine, others) in enumerate(both if old.node is not None and new.node is not None else ()):
            if repr(mine) != repr(others):
                words = f"{old}, number {number:,}:"
                return Remark(f"{words} {mine!r}"), Remark(f"{words} {others!r}")
    except DataError:
        pass  # `check` tells
    return old, new


# -- Two models --------------------------------------------------------------------------------------------------------


class ModelDifference(Declared):
    """What differs between two models."""

    tensors: list[Difference]
    """Those that differ."""
    equal: int
    """How many do not."""
    metadata: list[Change]
    are_whole: tuple[bool, bool] = (True, True)
    """Whether each of the two is whole, as far as it was read."""
    graph: GraphDifference | None = None
    """What differs between their graphs; None: they have none, or were not compared."""

    @property
    def is_identical(self) -> bool:
        """Whether nothing differs, and both are whole."""
        is_same = self.graph is None or self.graph.is_same
        return is_same and not self.tensors and not self.metadata and all(self.are_whole)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        told = {"identical": self.is_identical, "equal": self.equal, "whole": list(self.are_whole)}
        tensors, changes = [one.to_dict() for one in self.tensors], [one.to_dict() for one in self.metadata]
        graph = None if self.graph is None else self.graph.to_dict()
        return {**told, "tensors": tensors, "metadata": changes, "graph": graph}

    def _repr_html_(self) -> str:
        from pparse.display.text import table

        heads = ("name", "verdict", "new name", "types", "shapes", "changed", "largest", "cosine")
        rows = []
        for one in self.tensors:
            told = one.distance
            numbers = ("", "", "") if told is None else (told.changed, told.largest, told.cosine)
            rows.append((one.name, one.verdict, one.new_name, " → ".join(one.dtypes), " → ".join(one.shapes), *numbers))
        return table("identical" if self.is_identical else "differences", heads, rows, f"{self.equal:,} equal")


def diff(
    old: Source | Viewer,
    new: Source | Viewer,
    *,
    tolerance: float = 0.0,
    relative: float = 0.0,
    graph: bool = True,
    executor: Any = None,
    **how: Any,
) -> ModelDifference:
    """Return what differs between two models, of any formats.

    Values are close, and do not differ, if they are at most ``tolerance + relative * abs(new)`` apart. ``graph``:
    whether graphs are compared, of two models of one format. ``executor``: who is to read tensors, a
    `pparse.ProcessPool` or any other executor of `concurrent.futures`. A `Viewer` is not closed; of other sources,
    ``how`` are keyword arguments of `pparse.view`. Raises what that does.
    """
    from contextlib import ExitStack

    from pparse.tensors.viewer import Viewer, view

    refuse_unknown("diff", how)
    with ExitStack() as stack:
        both = [one if isinstance(one, Viewer) else stack.enter_context(view(one, **how)) for one in (old, new)]
        workers = Workers(executor)
        comparison = Comparison(*both, tolerance=tolerance, relative=relative, workers=workers)
        differing, equal = list[Difference](), 0
        for found in comparison.tensors():
            if found.is_same:
                equal += 1
            else:
                differing.append(found)
        changes = list(comparison.metadata())
        graphs = comparison.graph() if graph else None
        return ModelDifference(differing, equal, changes, comparison.are_whole(), graphs)
