"""Stretches of a tensor that do not look like the rest of it: noise, text, zeros or one value in trained weights.

Weights of a tensor are of some ten powers of two, random bytes of all that there are. So the exponents of a block (1
MiB) are counted, which statistics do anyway, and only a block with values far above its median is looked at: windows of
64 bytes are scored by how much likelier their exponents are if all are as likely (noise) than if they are drawn as in
the block. Each block is judged by its own exponents, less those of the stretch and what all of them have in common: so
it does not matter who measures which part, and nothing is read twice. A stretch that is the weights at another scale
(an outlier channel) is none: every scale is tried. It must span half of all powers of two, or be text.

By Markov's inequality, a window drawn from the weights has `_BITS` against it with a chance of 2^-60. What is left are
weights that are not drawn from one distribution: rows of zeros are the rule in embeddings, zeros in pruned weights, and
so on. So stretches of one value count only if they do not end where rows do, and if there are few of them; and nothing
counts that half of a tensor looks like.
"""

from __future__ import annotations

from math import gcd, log2, prod, sqrt

from pparse.lazy import Declared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor

NOISE, TEXT, ZEROS, ONE = "noise", "text", "zeros", "one value"
# Bits of the exponent that are looked at, and of the rest, of the types whose exponents tell.
_FORMS: Final = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (8, 55)}
# Bytes of a window.
_WINDOW: Final = 64
# Bytes of whole elements in a window that begins at any byte.
_WHOLE: Final = _WINDOW - 8
# How many bits of evidence are asked for.
_BITS: Final = 60
# The share of values that may be anything, as a power of two.
_STRAY: Final = 14
# Powers of two above the median from which on values are far from it.
_FAR: Final = 7
# A window of noise lacks the largest numbers, of so many windows one has, with a chance of e^-5.
_TOP: Final = 5
# Fewer values say nothing about what is usual.
_LEAST: Final = 512
# So many stretches of one block are looked at, so many are kept of a tensor.
_RUNS: Final = 64
_KEPT: Final = 64
# So many stretches are told in words.
_SUSPECTS: Final = 2
# The share of letters in text, with weights on both sides of it, and in the middle; and how many letters it has.
_TEXT: Final = 0.75
_CLEAR: Final = 0.9
_LETTERS: Final = 5
# Windows of one value that is not zero.
_LONG: Final = 4
# A tensor with more stretches of one value has them by nature.
_HABIT: Final = 8
_SHARE: Final = 16


class Suspect(Declared):
    """A stretch of a tensor that does not look like the rest of it."""

    start: int
    """Its first element, counted in C order."""
    stop: int
    """The element behind its last one."""
    looks: str
    """What it looks like: ``noise`` (random or compressed bytes, or those of another type), ``text``, ``zeros``,
    ``one value``."""
    file: str | None = None
    """Where its first byte lies, and `offset`; None if that is not known."""
    offset: int | None = None
    nbytes: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {name: getattr(self, name) for name in type(self).__annotations__}


def in_words(stretches: Sequence[Suspect]) -> str:
    """Return in words what in a tensor does not look like the rest of it."""
    words = []
    for one in stretches[:_SUSPECTS]:
        where = f"offset {one.offset:,}" if one.offset is not None else f"element {one.start:,}"
        words.append(f"{one.looks} at {where} ({one.nbytes:,} bytes)")
    more = len(stretches) - len(words)
    return "; ".join(words) + (f"; and {more} more" if more else "")


class Suspicion:
    """Suspicious stretches of a tensor, or of a part of it, as its blocks come; of some types only."""

    def __init__(self, dtype: DType) -> None:
        exponent, self._rest = _FORMS.get(dtype.name, (-1, 0))
        self.kinds = 2 << exponent if exponent > 0 else 0
        """How many signs and exponents are told apart; 0 if they do not tell."""
        self._window = _WINDOW // max(1, dtype.bits // 8)
        self._found: list[Suspect] = []
        self._totals: dict[str, list[int]] = {}

    def look(self, at: int, codes: NDArray[Any], counts: NDArray[Any], zeros: int) -> None:
        """Look at a block: elements from ``at`` on, how often sign, exponent and the like come, and zeros."""
        if len(codes) < self._window:
            return
        exponents = counts.reshape(self.kinds, -1).sum(1).reshape(2, -1).sum(0)
        for start, stop, looks in sorted((*self._same(codes, zeros), *self._strange(codes, exponents))):
            self._add(at + start, at + stop, looks)

    def _add(self, start: int, stop: int, looks: str) -> None:
        total = self._totals.setdefault(looks, [0, 0])
        total[0] += not self._keep(start, stop, looks)
        total[1] += stop - start

    def _keep(self, start: int, stop: int, looks: str) -> bool:
        """Keep a stretch behind all others; return whether the last one goes on with it."""
        found = self._found
        if found and found[-1].stop == start and found[-1].looks == looks:
            found[-1].stop = stop
            return True
        if len(found) < _KEPT:
            found.append(Suspect(start, stop, looks))
        return False

    def join(self, other: Suspicion) -> None:
        """Add what the part behind has."""
        for looks, (count, size) in other._totals.items():
            total = self._totals.setdefault(looks, [0, 0])
            total[0] += count
            total[1] += size
        for one in other._found:
            self._totals[one.looks][0] -= self._keep(one.start, one.stop, one.looks)

    def to_plain(self) -> list[Any]:
        """Return what was found as plain data."""
        return [[(one.start, one.stop, one.looks) for one in self._found], self._totals]

    def take_plain(self, plain: list[Any]) -> None:
        """Take what `to_plain` returned."""
        found, self._totals = plain
        self._found = [Suspect(*one) for one in found]

    # -- one value, again and again ----------------------------------------------------------------------------------

    def _same(self, codes: NDArray[Any], zeros: int) -> Iterator[tuple[int, int, str]]:
        """Yield stretches of one value, longer than chance makes them of as many zeros as there are."""
        import numpy as np

        count, size = len(codes), codes.dtype.itemsize
        share = zeros / count
        need = -(-_WHOLE // size)  # elements of a window at any byte
        if share == 1:
            yield 0, count, ZEROS
            return
        if zeros < need:
            need = _LONG * self._window
        elif share > 0.5:
            need = int(_BITS / -log2(share)) + 1
        if need > count:
            return
        sizes = self._magnitude(codes)
        # Whole eights of bytes, so far apart that two of them lie in each stretch that is looked for.
        few = codes[: count // (8 // size) * (8 // size)].view(np.uint64)[:: (need * size - 8) // 16]
        few = few & np.full(8 // size, sizes, codes.dtype).view(np.uint64)[0]
        if not (few[1:] == few[:-1]).any():
            return
        values = codes & sizes
        ends = np.flatnonzero(values[1:] != values[:-1]) + 1
        starts, stops = np.append(0, ends), np.append(ends, count)
        long = np.flatnonzero(stops - starts >= need)[:_RUNS]
        if 2 * len(ends) < count - int((stops - starts)[long].sum()):
            return  # a table or a mask: the rest repeats itself, too
        for start, stop in zip(starts[long].tolist(), stops[long].tolist(), strict=True):
            near = (values[max(0, start - _WINDOW) : start], values[stop : stop + _WINDOW])
            alike = sum(int((some[1:] == some[:-1]).sum() + (some == 0).sum()) for some in near)
            looks = ONE if values[start] else ZEROS
            if alike * 8 <= len(near[0]) + len(near[1]) and (looks == ZEROS or stop - start >= _LONG * self._window):
                yield start, stop, looks

    def _magnitude(self, codes: NDArray[Any]) -> Any:
        return codes.dtype.type((1 << (8 * codes.dtype.itemsize - 1)) - 1)

    # -- exponents that others do not have ---------------------------------------------------------------------------

    def _strange(self, codes: NDArray[Any], exponents: NDArray[Any]) -> Iterator[tuple[int, int, str]]:
        """Yield stretches of noise and text."""
        import numpy as np

        size, count = len(exponents), len(codes)
        below = np.cumsum(exponents[1:])
        median = int(np.searchsorted(below, (below[-1] + 1) // 2)) + 1
        if count < _LEAST or int(exponents[median + _FAR : -1].sum()) < self._window // 4:
            return
        every = int(np.median(exponents))
        if int(np.maximum(exponents - every - 3 * sqrt(every), 0).sum()) * _SHARE < count:
            yield 0, count, NOISE
            return
        bins = (codes >> codes.dtype.type(self._rest)).astype(np.intp) & (size - 1)
        half = self._window // 2
        halves = bins[: count // half * half].reshape(-1, half)
        printed = _is_printed(codes[: halves.size]).reshape(len(halves), -1).mean(1)
        runs = _runs(_scores(np.maximum(exponents - every - 3, 0))[halves].sum(1), printed)
        for start, stop in ((start * half, stop * half) for start, stop in runs):
            looks = self._judged(codes[start:stop], bins[start:stop], exponents)
            if looks:
                yield start, stop, looks

    def _judged(self, codes: NDArray[Any], bins: NDArray[Any], exponents: NDArray[Any]) -> str:
        """Return what a stretch looks like; nothing if it may be weights."""
        import numpy as np

        if _is_printed(codes).mean() > _TEXT and np.count_nonzero(np.bincount(codes.view(np.uint8))) > _LETTERS:
            return TEXT
        size = len(exponents)
        inside = bins[bins > 0]
        low, high = (int(inside.min()), int(inside.max())) if len(inside) else (0, 0)
        if high - low < size // 2 or (size - high) * self._window > _TOP * size:
            return ""
        mine = np.bincount(bins, minlength=size)
        others = np.maximum(exponents - mine - int(np.median(exponents - mine)), 0)
        scores = _scores(others)
        there = np.flatnonzero(mine[1:]) + 1
        shifts = np.arange(-size + 1, size)
        places = there - shifts[:, None]
        is_in = (places > 0) & (places < size)
        told = np.where(is_in, scores[np.where(is_in, places, 0)], _STRAY)
        told = (told * mine[there]).sum(1) + min(0.0, float(scores[0])) * int(mine[0])
        return NOISE if float(told.min()) > _BITS else ""


def _is_printed(codes: NDArray[Any]) -> NDArray[Any]:
    """Return for each byte whether it is a printed letter of ASCII, or ends a line."""
    import numpy as np

    letters = np.zeros(256, bool)
    letters[[9, 10, 13, *range(32, 127)]] = True
    return letters[codes.view(np.uint8)]


def _runs(scores: NDArray[Any], printed: NDArray[Any]) -> list[tuple[int, int]]:
    """Return stretches of windows, told by their halves, that each have enough against them, or are text: in order.

    Of very many, those with most against them.
    """
    import numpy as np

    bad = (scores[1:] + scores[:-1] > _BITS) | (printed[1:] + printed[:-1] > 2 * _CLEAR)
    marks = np.zeros(len(scores) + 2, np.int8)
    marks[1:-2] |= bad
    marks[2:-1] |= bad
    marks[1:-1] &= (scores > 0) | (printed > _CLEAR)
    starts, stops = (np.flatnonzero(np.diff(marks) == step) for step in (1, -1))
    if len(starts) > _RUNS:
        sums = np.add.reduceat(scores, starts)  # with what lies between: it has little
        best = np.sort(np.argsort(-sums, kind="stable")[:_RUNS])
        starts, stops = starts[best], stops[best]
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _scores(usual: NDArray[Any]) -> NDArray[Any]:
    """Return for each exponent how many bits it speaks for noise, if others come so often."""
    import numpy as np

    size, total = len(usual), max(1, int(usual.sum()))
    shares = usual / total * (1 - 2.0**-_STRAY) + 2.0**-_STRAY / size
    scores: NDArray[Any] = -np.log2(shares * size).astype(np.float32)
    scores[0] = min(scores[0], 0)  # zeros are none
    return scores


# -- all of a tensor ---------------------------------------------------------------------------------------------------


def suspects_in(tensor: Tensor, found: Suspicion, zeros: int) -> tuple[Suspect, ...]:
    """Return the stretches of a whole tensor, with ``zeros`` zeros, that remain suspicious, with their places."""
    told = []
    noise = sum(found._totals.get(looks, [0, 0])[1] for looks in (NOISE, TEXT))
    count, same = (sum(found._totals.get(looks, [0, 0])[part] for looks in (ZEROS, ONE)) for part in (0, 1))
    share = max(1, zeros - found._totals.get(ZEROS, [0, 0])[1]) / max(2, tensor.size - same)
    for one in found._found:
        length = one.stop - one.start
        if one.looks in (NOISE, TEXT):
            is_suspect = 2 * noise < tensor.size
        else:
            is_suspect = (
                count <= _HABIT
                and 2 * same < tensor.size
                and (one.looks == ONE or length * -log2(min(1.0, share)) > _BITS)
                and not _is_natural(tensor.shape, one)
            )
        if is_suspect:
            told.append(_placed(tensor, one))
    return tuple(told)


def _is_natural(shape: tuple[int, ...], one: Suspect) -> bool:
    """Return whether a stretch ends where rows do, or parts of them: or the tensor is one row."""
    if len(shape) < 2:
        return True
    for axis in range(1, len(shape)):
        row = prod(shape[axis:])
        if row >= _WINDOW and (one.start % row == 0 or one.stop % row == 0):
            return True
        common = gcd(one.start, one.stop, row)
        if row > 1 and common >= (row // 8 if row >= _WINDOW else row):
            return True
    return False


def _placed(tensor: Tensor, one: Suspect) -> Suspect:
    size = tensor.itemsize
    found = Suspect(one.start, one.stop, one.looks, nbytes=(one.stop - one.start) * size)
    at = one.start * size
    for span in tensor.spans:
        if at < span.length:
            if span.is_placed:
                found.file, found.offset = span.path, span.offset + at
            break
        at -= span.length
    return found
