"""Tensors in parts, which may lie in files beside the document: where each part belongs, and the bytes of the whole.

A part is a box of the tensor: start and length in each dimension. Reading goes through the rows of the box that is
read: neighbouring bytes of one part are read together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from errno import ENOENT
from heapq import merge
from itertools import accumulate
from math import prod
from operator import itemgetter
from os import urandom

from pparse.data.spliced import DerivedData
from pparse.document.opening import Resume
from pparse.errors import EndOfDataError, LimitError, MalformedError, PathError, SourceError
from pparse.findings import Finding, Status
from pparse.tensors.span import Span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Final

    from pparse.data.base import Data, Range
    from pparse.document.extraction import Extraction
    from pparse.errors import PparseError
    from pparse.limits import MemoryBudget
    from pparse.tensors.status import Extent

MAX_FILES: Final = 1 << 20
"""The most files beside a document that are looked for."""
# With more data files than these, only those are opened that the folder has.
_MANY: Final = 1_000
_FILE_BYTES: Final = 1_000
_PRIME: Final = (1 << 127) - 1
# Runs of a part are read so many bytes at a time; those from that length on one by one.
_BLOCK: Final = 1 << 20
_DIRECT: Final = 32 << 10
# Stretches of parts, of a tensor that lacks some.
_MOST_STRETCHES: Final = 1 << 20
# Memory of a part of a tensor while it is put together, and more for each of its dimensions.
_PART_BYTES: Final = 1_500
_DIM_BYTES: Final = 400


class Fragment:
    """One part: its box, and its bytes."""

    __slots__ = ("content", "lengths", "starts", "there")

    def __init__(
        self, starts: tuple[int, ...], lengths: tuple[int, ...], content: Range, there: int | None = None
    ) -> None:
        self.starts = starts
        self.lengths = lengths
        self.content = content
        self.there = (content.end or 0) - content.start if there is None else there
        """How many of its bytes exist."""


def refusal(count: int, rank: int, budget: MemoryBudget) -> str | None:
    """Return why a tensor of ``rank`` dimensions is not put together: its ``count`` parts would take more memory than
    there is; None if it is.

    They are not charged afterwards: they belong to the tensor, which is its owner's.
    """
    try:
        budget.charge(count * (_PART_BYTES + _DIM_BYTES * rank), "the list of its parts").release()
    except LimitError as error:
        return error.reason
    return None


def box_of(shape: Sequence[int], extents: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return starts and lengths of a part in a tensor of that shape. Raises `MalformedError` if it does not fit."""
    if len(extents) != len(shape):
        raise MalformedError(f"a part of the tensor has {len(extents)} dimensions, the tensor {len(shape)}")
    starts, lengths = [], []
    for size, (start, length) in zip(shape, extents, strict=True):
        length = size - start if length < 0 else length
        if start < 0 or length < 0 or start > size - length:
            raise MalformedError(f"a part of the tensor reaches from {start} to {start + length} of {size}")
        starts.append(start)
        lengths.append(length)
    return tuple(starts), tuple(lengths)


def covers(shape: Sequence[int], boxes: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    """Return whether boxes that fit into a shape cover it, and no two of them overlap.

    Told in one pass, of any number of boxes and dimensions. Each place in each dimension gets a random number modulo a
    prime; a box counts as the product, over the dimensions, of the number of its end minus that of its start. As
    polynomials in these numbers, boxes add up to the whole just if they have each element once. Others do so by chance,
    with a probability of 2**-120, which no file can raise: the numbers are other ones each time.
    """
    numbers: list[dict[int, int]] = [{} for _ in shape]

    def product_of(starts: Sequence[int], lengths: Sequence[int]) -> int:
        found = 1
        for known, start, length in zip(numbers, starts, lengths, strict=True):
            found = found * (_number_of(known, start + length) - _number_of(known, start)) % _PRIME
        return found

    whole = product_of([0] * len(shape), shape)
    return sum(product_of(starts, lengths) for starts, lengths in boxes) % _PRIME == whole


def _number_of(known: dict[int, int], place: int) -> int:
    """Return the random number of a place in one dimension."""
    found = known.get(place)
    if found is None:
        found = known[place] = int.from_bytes(urandom(16)) % _PRIME
    return found


def rows_before_cut(shape: Sequence[int], parts: Sequence[Fragment]) -> int:
    """Return how many bytes of the tensor exist, from the first on, if parts are cut or missing.

    0 unless each part has whole rows: then what is there of one is not what begins the array.
    """
    if any(part.lengths[1:] != tuple(shape[1:]) for part in parts):
        return 0
    there = row = 0
    for part in sorted(parts, key=lambda part: part.starts[:1]):
        if part.starts[:1] != (row,):
            break  # one before it is not there
        there += part.there
        row += part.lengths[0]
        if part.there < (part.content.end or 0) - part.content.start:
            break
    return there


def number_of(shape: Sequence[int], places: Iterable[int]) -> int:
    """Return the number of an element in C order."""
    found = 0
    for size, place in zip(shape, places, strict=True):
        found = found * size + place
    return found


class PartsData(DerivedData):
    """The bytes of a tensor of ``shape`` with elements of ``itemsize`` bytes, made of ``parts``, which cover it."""

    copies = False

    def __init__(
        self, name: str, shape: tuple[int, ...], itemsize: int, parts: list[Fragment], there: int | None = None
    ) -> None:
        """``there``: how many bytes exist, from the first on (see `rows_before_cut`); None: all."""
        super().__init__(name, prod(shape) * itemsize if there is None else there)
        self._shape = shape
        self._itemsize = itemsize
        # In the order in which they begin in the tensor; of each and those before, the furthest end.
        self._parts = sorted(parts, key=self._begin)
        self._begins = [self._begin(part) for part in self._parts]
        self._ends = list(accumulate(map(self._end, self._parts), max))
        self.sources = list({id(part.content.data): part.content.data for part in parts}.values())

    def _begin(self, part: Fragment) -> int:
        return number_of(self._shape, part.starts) * self._itemsize

    def _end(self, part: Fragment) -> int:
        last = (start + length - 1 for start, length in zip(part.starts, part.lengths, strict=True))
        return (number_of(self._shape, last) + 1) * self._itemsize

    def pieces(self, start: int, end: int) -> Iterator[tuple[Data, int, int]]:
        """Yield all parts: if one may be wrong, all of the tensor may."""
        for part in self._parts:
            if len(part.content):
                yield part.content.data, part.content.start, part.content.start + len(part.content)

    def _how(self) -> tuple[object, ...]:
        return self._shape, self._itemsize, tuple((part.starts, part.lengths) for part in self._parts)

    def _pread(self, offset: int, length: int) -> bytes:
        found = bytearray(length)
        self._preadinto(offset, memoryview(found))
        return bytes(found)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        end = offset + len(view)
        for part in self._parts[bisect_right(self._ends, offset) : bisect_left(self._begins, end)]:
            self._fill(part, offset, end, view)
        return len(view)

    def verify(self) -> None:
        """Compare the checksums of all parts."""
        for part in self._parts:
            part.content.data.verify()

    def stretches(self) -> Iterator[tuple[int, Data, int, int]]:
        """Yield the stretches of parts that are there, in the order of the whole: its place, data, offset and length.

        Nothing if they are too many: of a part that is narrow.
        """
        parts = [(part, _Runs(self._shape, self._itemsize, part)) for part in self._parts if part.there]
        if sum(part.there // runs.length for part, runs in parts) > _MOST_STRETCHES:
            return

        def of(part: Fragment, runs: _Runs) -> Iterator[tuple[int, Data, int, int]]:
            for at in range(0, part.there, runs.length):
                length = min(runs.length, part.there - at)
                yield runs.place(at // runs.length), part.content.data, part.content.start + at, length

        yield from merge(*(of(*part) for part in parts), key=itemgetter(0))

    def _fill(self, part: Fragment, low: int, high: int, view: memoryview) -> None:
        """Put what a part has of ``[low, high)`` into ``view``: one stretch of the part, of which each byte is read
        once."""
        runs = _Runs(self._shape, self._itemsize, part)
        length = runs.length
        at_once = _BLOCK // length if 0 < length < _DIRECT else 1
        number, stop = runs.before(low - length + 1), runs.before(high) if length else 0
        while number < stop:
            at = runs.place(number)
            skip, last = max(0, low - at), min(length, high - at)
            count = min(at_once, stop - number)
            if number + count == stop and high < runs.place(stop - 1) + length:
                count -= 1  # the last run is not read to its end
            if skip or count < 2:
                self._read(part, number * length + skip, view[at + skip - low : at + last - low])
                number += 1
                continue
            block = bytearray(count * length)
            self._read(part, number * length, memoryview(block))
            runs.scatter(block, number, view, low)
            number += count

    def _read(self, part: Fragment, start: int, view: memoryview) -> None:
        got = part.content.data.preadinto(part.content.start + start, view)
        if got < len(view):
            raise EndOfDataError("a part of the tensor ends early", wanted=len(view), got=got)


class PartsSpan(Span):
    """The bytes of a tensor of which parts are lost."""

    __slots__ = ()
    data: PartsData

    def stretches(self) -> Iterator[tuple[int, Span]]:
        """Yield those of the parts that are there."""
        for place, data, offset, length in self.data.stretches():
            yield place, Span(data, offset, length, self.path)


class _Runs:
    """Where the bytes of a part belong in the tensor: as runs of one length, which both have in the same order."""

    __slots__ = ("_base", "_levels", "length")

    def __init__(self, shape: Sequence[int], itemsize: int, part: Fragment) -> None:
        self.length = itemsize
        """The bytes of a run."""
        self._base, stride = 0, itemsize
        levels: list[tuple[int, int]] = []  # how many, and how far apart; dimensions that go on like those in them join
        for size, start, count in zip(reversed(shape), reversed(part.starts), reversed(part.lengths), strict=True):
            self._base += start * stride
            if self.length == stride:
                self.length *= count
            elif levels and levels[-1][0] * levels[-1][1] == stride:
                levels[-1] = levels[-1][0] * count, levels[-1][1]
            elif count != 1:
                levels.append((count, stride))
            stride *= size
        # The outermost first, each with the runs in one of it.
        counts = [count for count, _ in levels]
        self._levels = [(*level, prod(counts[:inner])) for inner, level in enumerate(levels)][::-1]

    def before(self, place: int) -> int:
        """Return how many runs begin before a place of the tensor."""
        rest, found = place - self._base, 0
        if rest <= 0:
            return 0
        for count, stride, inner in self._levels:
            full = (rest - 1) // stride
            if full >= count:
                return found + count * inner
            found += full * inner
            rest -= full * stride
        return found + 1

    def place(self, number: int) -> int:
        """Return where a run begins in the tensor."""
        found = self._base
        for _, stride, inner in self._levels:
            full, number = divmod(number, inner)
            found += full * stride
        return found

    def scatter(self, block: bytearray, number: int, view: memoryview, low: int) -> None:
        """Put whole runs, from that ``number`` on, into what ``view`` has of the tensor from ``low`` on."""
        import numpy as np

        kind, done = f"V{self.length}", 0
        while done < len(block):
            left = len(block) // self.length - done // self.length
            # As many as lie in one box: whole rows of the outermost dimension of which one begins here.
            outer = next(at for at, (*_, inner) in enumerate(self._levels) if not number % inner and inner <= left)
            (count, _, inner), deeper = self._levels[outer], self._levels[outer + 1 :]
            rows = min(left // inner, count - number // inner % count)
            shape = (rows, *(count for count, *_ in deeper))
            strides = [stride for _, stride, _ in self._levels[outer:]]
            at = self.place(number) - low
            np.ndarray(shape, kind, view, at, strides)[...] = np.ndarray(shape, kind, block, done)
            number += rows * inner
            done += rows * inner * self.length


def put_together(
    name: str, shape: tuple[int, ...], itemsize: int, spans: Sequence[Span], parts: list[Fragment], *, is_whole: bool
) -> tuple[Status, Span | None]:
    """Return the status of a tensor, and the bytes of the whole as one stretch; ``spans`` are where its parts lie.

    If it ``is_whole``, ``parts`` are all that have bytes, else those of which some are there.
    """
    there = None if is_whole else rows_before_cut(shape, parts)
    if there == 0 and not any(span.there for span in spans):
        return Status.MISSING, None
    data = PartsData(name, shape, itemsize, parts, there)  # of which nothing is there if no row of it is whole
    place = data, 0, prod(shape) * itemsize, name
    return (Status.COMPLETE, Span(*place)) if is_whole else (Status.TRUNCATED, PartsSpan(*place))


# -- The files beside a document that tensors lie in: which there are, and where downloads go on -----------------------


def is_absent(error: PparseError) -> bool:
    """Return whether a file beside a document that could not be opened is not there, and not just unreadable."""
    return isinstance(error, SourceError) and error.errno == ENOENT


def why_absent(name: str, error: PparseError | None) -> str:
    """Return why nothing is read from a file beside a document; without an ``error``, as there is none."""
    if error is None or is_absent(error):
        return f"{name} is not there"
    return f"{name} cannot be read: {error.reason}"


class DataFiles:
    """The data files beside an index, each opened when it is first asked for."""

    def __init__(self, index: Extraction, count: Callable[[], int], name_of: Callable[[int], str]) -> None:
        """``count`` tells how many there are (0: not known), ``name_of`` how one is called, by its number."""
        self._index = index
        self._count = count
        self.name_of = name_of
        self._files: dict[int, Extraction | Finding] = {}
        self._charge = index.session.budget.charge(0, "the list of the data files")
        self._listed: frozenset[str] | None = None
        self._unreadable: set[int] = set()
        self._needed: dict[int, int] = {}

    def open(self, shard: int) -> Extraction | Finding:
        """Return a data file, or why it cannot be read."""
        found = self._files.get(shard)
        if found is not None:
            return found
        count, source = self._count(), self._index.name
        if count and shard >= count:  # not kept: each entry may name another one
            return Finding("missing", f"it is in data file {shard}, and there are {count}", source=source)
        name = self.name_of(shard)
        self._charge.resize(self._charge.amount + _FILE_BYTES)
        try:
            if len(self._files) >= _MANY and self._names_there and name not in self._names_there:
                raise SourceError("the folder does not have it", errno=ENOENT)
            found = self._index.sibling(name)
            found.find_end()  # a file is opened when it is asked
        except (SourceError, EndOfDataError, PathError) as error:
            is_gone = is_absent(error) or isinstance(error, EndOfDataError) or self._index.folder is None
            if not is_gone:
                self._unreadable.add(shard)
            found = Finding("missing", why_absent(name, None if is_gone else error), source=source)
        self._files[shard] = found
        return found

    def need(self, shard: int, end: int) -> None:
        """Note that a tensor in a data file, which is there, ends at ``end``."""
        self._needed[shard] = max(self._needed.get(shard, 0), end)

    @property
    def _names_there(self) -> frozenset[str]:
        """The names of the files in the folder, so that not each of very many is opened; none if they are not known."""
        if self._listed is None:
            folder = self._index.folder
            try:
                self._listed = frozenset((folder.names() if folder is not None else None) or ())
            except SourceError:
                self._listed = frozenset()
        return self._listed

    def there(self) -> Iterator[tuple[str, Extraction]]:
        """Yield those that are there, by name."""
        count = self._count()
        many = count > _MANY and self._names_there
        for shard in range(min(count, MAX_FILES)):
            name = self.name_of(shard)
            file = None if many and name not in self._names_there else self.open(shard)
            if file is not None and not isinstance(file, Finding):
                yield name, file

    def missing(self) -> Iterator[tuple[int, str]]:
        """Yield number, and why it cannot be read, of each that was asked for and is not there."""
        count = self._count()
        for shard, file in sorted(self._files.items()):
            if isinstance(file, Finding) and (not count or shard < count):
                yield shard, file.reason

    def _add_to(self, extent: Extent) -> None:
        """Add to an extent how large the files are and should be, and where their downloads go on."""
        extent.actual, extent.expected = extent.actual or 0, extent.expected or 0
        for shard, needed in sorted(self._needed.items()):
            file = self._files[shard]
            if not isinstance(file, Finding):
                there = file.find_end() - file.start
                extent.actual += there
                extent.expected += max(needed, there)
                if needed > there:
                    extent.cut_files += 1
                    extent.resume.append(Resume(self._index.path_beside(self.name_of(shard)), there))
        for shard, _ in self.missing():
            extent.missing_files += 1
            if shard not in self._unreadable:  # to fetch it again would not help
                extent.resume.append(Resume(self._index.path_beside(self.name_of(shard)), 0))

    def close_extent(self, extent: Extent, status: Status) -> None:
        """Complete the extent of a document of this ``status``, whose tensors were added: the files count, too."""
        extent.actual = extent.expected = extent.actual or 0
        extent.document_status = status
        if status is Status.TRUNCATED:
            extent.end_early(1)
            name = self._index.name.rpartition("/")[2]
            extent.resume.append(Resume(self._index.path_beside(name), extent.actual))
            extent.cut_files += 1
        extent.at_least = status is not Status.COMPLETE  # entries that are lost may name more data
        self._add_to(extent)
