"""Data made of other data. `DerivedData` is the base of all: what is known of its bytes is asked of their sources.

`SplicedData` joins several ranges; `ZeroData` and `MissingData` fill in between. Used for records that block headers
interrupt, messages spread over chunks, files split into parts (``.001``, ``.002`` …), files with holes, and files that
lost a stretch. `HiddenData` hides stretches, `FlippedData` turns signs over.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate

from pparse.data.base import Access, Data, Gap, GapTable, digest
from pparse.data.range_status import Stretches, joined
from pparse.errors import ClosedError, GapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import ClassVar, Final

    from pparse.data.base import IoStats, Range

# The end of what has no known size.
_FAR: Final = 1 << 62


class DerivedData(Data):
    """Data of which each stretch is made of stretches of other data, its sources: `pieces` tells which.

    Whether the bytes are there, wrong, proved, holes, or of a file that changed, is answered by asking those. What is
    recorded with this data itself (`condemn`, `vouch`) decides before them: it is evidence about fewer bytes.
    """

    copies: ClassVar[bool] = True
    """Whether each byte is one of a piece, in order; else it is made of its pieces in another way, such as decoding,
    so that any of it may depend on any byte of them."""

    # -- what subclasses tell ----------------------------------------------------------------------------------------

    sources: Sequence[Data] = ()
    """The other data, each once."""

    def pieces(self, start: int, end: int) -> Iterable[tuple[Data, int, int]]:
        """Yield what ``[start, end)`` is made of, in order: stretches (data, start, end), none of them empty.

        By default the same stretch of the only source.
        """
        (source,) = self.sources
        return ((source, start, end),)

    def _how(self) -> tuple[object, ...] | None:
        """Return what else decides which bytes these are, for the `identity`; None if nobody can tell."""
        return ()

    # -- what follows from that --------------------------------------------------------------------------------------

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """Those of the sources, which of their bytes these are, and what is made of them."""
        if self.closed:  # it has no sources any more
            raise ClosedError("the data is closed", source=self.name)
        how = self._how()
        if how is None:
            return None
        return derived(type(self).__name__, self._made_of(), *how)

    def _made_of(self) -> Iterable[tuple[Data, int, int]]:
        """Return all pieces, the same ones whatever was read before."""
        return self.pieces(0, _FAR if self.size is None else self.size)

    @property
    def revision(self) -> int:  # type: ignore[override]
        """Sum of the sources' revisions."""
        return sum(source.revision for source in self.sources)

    @property
    def flawed(self) -> bool:
        """Whether anything is known to be wrong with this data or its sources."""
        return super().flawed or any(source.flawed for source in self.sources)

    @property
    def has_proofs(self) -> bool:
        """Whether checksums confirmed any bytes of this data or its sources; never reads."""
        return super().has_proofs or any(source.has_proofs for source in self.sources)

    def is_proved(self, start: int, end: int) -> bool:
        """Say whether a checksum of this data, or of the pieces, confirmed all of the bytes."""
        if super().is_proved(start, end):
            return True
        proved = False
        for data, first, last in self.pieces(start, end) if start < end else ():  # may be many: the first no ends it
            proved = data.is_proved(first, last)
            if not proved:
                break
        return proved

    def why_suspect(self, start: int, end: int) -> str | None:
        """Ask this data, then the pieces."""
        if start >= end:
            return None
        own = super().why_suspect(start, end)
        if own is not None or super().is_proved(start, end):
            return own
        for data, first, last in self.pieces(start, end):
            reason = data.why_suspect(first, last)
            if reason is not None:
                return reason
        return None

    def suspect_ranges_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Combine the answers of this data and its pieces."""
        if self.why_suspect(start, end) is None:
            return []
        own = super().suspect_ranges_in(start, end) if super().why_suspect(start, end) is not None else []
        if not self.copies:
            return own or [(start, end)]
        return joined([*own, *self._mapped_back(start, end, lambda data: data.suspect_ranges_in)])

    def passed_over(self, start: int, end: int) -> str | None:
        """Ask the pieces."""
        if start >= end:
            return None
        reasons = (data.passed_over(first, last) for data, first, last in self.pieces(start, end))
        return next((reason for reason in reasons if reason is not None), None)

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the holes of the pieces, in offsets of this data."""
        return self._mapped_back(start, end, lambda data: data.holes) if self.copies else iter(())

    def locate(self, offset: int, length: int) -> list[tuple[Data, int, int]]:
        """Return where ``[offset, offset + length)`` lies in the outermost data, adjoining stretches joined."""
        if not self.copies:
            return super().locate(offset, length)
        found: list[tuple[Data, int, int]] = []
        for data, first, last in self.pieces(offset, offset + length) if length > 0 else ():
            for source, start, count in data.locate(first, last - first):
                if found and found[-1][0] is source and found[-1][1] + found[-1][2] == start:
                    found[-1] = (source, found[-1][1], found[-1][2] + count)
                else:
                    found.append((source, start, count))
        return found

    def same_source(self, path: str) -> bool:
        """Ask the sources."""
        return any(source.same_source(path) for source in self.sources)

    def check_unchanged(self) -> None:
        """Check each source once."""
        super().check_unchanged()
        for source in self.sources:
            source.check_unchanged()

    def _mapped_back(
        self, start: int, end: int, question: Callable[[Data], Callable[[int, int], Iterable[tuple[int, int]]]]
    ) -> Iterator[tuple[int, int]]:
        """Yield what the pieces answer, stretches (start, end) of theirs, in offsets of this data."""
        shift = start
        for data, first, last in self.pieces(start, end) if start < end else ():
            for low, high in question(data)(first, last):
                yield low - first + shift, high - first + shift
            shift += last - first


def derived(what: str, pieces: Iterable[tuple[Data, int, int]], *how: object) -> tuple[object, ...] | None:
    """Return the identity of what is made of ``pieces`` by ``what``, with parameters ``how``; None if one has none.

    Of many pieces only a digest is kept.
    """
    known: dict[int, int] = {}
    identities: list[object] = []
    numbers = array("q")
    for data, start, end in pieces:
        number = known.get(id(data))
        if number is None:
            identity = data.identity
            if identity is None:
                return None
            number = known[id(data)] = len(identities)
            identities.append(identity)
        numbers.extend((number, start, end))
    places: object = tuple(numbers) if len(numbers) <= 3 else digest((numbers.tobytes(),))
    return what, tuple(identities), places, *how


class SplicedData(DerivedData):
    """Several ranges, one after the other, as one Data. Where a source cannot fill its part, there is a gap."""

    def __init__(self, parts: Iterable[Range], name: str = "<spliced>", stats: IoStats | None = None) -> None:
        self._parts = [part for part in parts if part.end > part.start]
        *self._starts, total = accumulate((part.end - part.start for part in self._parts), initial=0)
        super().__init__(name, total, stats)
        self.sources = tuple({id(part.data): part.data for part in self._parts}.values())
        self._known = self._discoveries()  # the count when the gaps were collected
        self.gaps = self._find_gaps()
        self.access = max((source.access for source in self.sources), key=list(Access).index, default=Access.FREE)

    def _find_gaps(self) -> GapTable:
        found = (_gaps_of(part, start) for part, start in zip(self._parts, self._starts, strict=False))
        return GapTable(gap for gaps in found for gap in gaps)

    def pieces(self, start: int, end: int) -> Iterator[tuple[Data, int, int]]:
        """Yield the parts of parts that ``[start, end)`` is made of."""
        index = max(0, bisect_right(self._starts, start) - 1)
        while start < end and index < len(self._parts):
            part = self._parts[index]
            shift = part.start - self._starts[index]
            stop = min(end + shift, part.end)
            if stop <= start + shift:
                return
            yield part.data, start + shift, stop
            start = stop - shift
            index += 1

    def read_known(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Read from the parts; see `Data.read_known`."""
        if self.closed:
            raise ClosedError("the data is closed", source=self.name)
        chunks: list[bytes] = []
        unknown: list[tuple[int, int]] = []
        for data, at, stop in self.pieces(offset, offset + length):
            take = stop - at
            chunk, stretches = data.read_known(at, take)
            unknown += [(offset + first - at, count) for first, count in stretches]
            if len(chunk) < take:  # the part is cut: its missing bytes are a gap
                unknown.append((offset + len(chunk), take - len(chunk)))
                chunk += bytes(take - len(chunk))
            chunks.append(chunk)
            offset += take
        return chunks[0] if len(chunks) == 1 else b"".join(chunks), unknown

    def _pread(self, offset: int, length: int) -> bytes:
        pieces: list[bytes] = []
        for data, at, stop in self.pieces(offset, offset + length):
            chunk = data.known(at, stop - at)
            pieces.append(chunk)
            if len(chunk) < stop - at:
                self._note_short_part(offset, any(pieces))
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        done = 0
        for data, at, stop in self.pieces(offset, offset + len(view)):
            take = stop - at
            try:
                got = data.preadinto(at, view[done : done + take])
            except GapError:
                got = 0
            done += got
            if got < take:
                self._note_short_part(offset, done > 0)
                break
        return done

    def _note_short_part(self, offset: int, served: bool) -> None:
        """Collect the gaps again: a source that is decoded on the way may turn out shorter than declared."""
        self.gaps = self._find_gaps()
        if not served:
            self._clip(offset, 1)  # raises if it is in a gap

    def zeros_at(self, offset: int) -> int:
        """Ask the part that contains ``offset``."""
        for data, at, stop in self.pieces(offset, self.size or 0):
            return min(stop - at, data.zeros_at(at))
        return 0

    def resolve(self) -> None:
        """Make the sources look, and take over the gaps they found."""
        for source in self.sources:
            source.resolve()
        known = self._discoveries()
        if known != self._known:
            self.gaps = self._find_gaps()
            self._known = known  # last: whoever sees this count sees the gaps, too

    def _discoveries(self) -> int:
        return sum(source.stats.discoveries for source in self.sources)

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return a view if one part holds all of it."""
        pieces = list(self.pieces(offset, offset + length))
        if self._clip(offset, length) < length or len(pieces) != 1:
            return None
        data, at, _ = pieces[0]
        return data.mapped(at, length)

    def close(self) -> None:
        """Drop the parts; their sources stay open, for they belong to whoever opened them."""
        super().close()
        self._parts = []
        self.sources = ()


class ZeroData(Data):
    """``size`` zeros: the holes of a sparse file in an archive, which nobody stored; they are content, no `holes`."""

    def __init__(self, size: int) -> None:
        super().__init__("<zeros>", size)
        self.identity = ("zeros", size)

    def _pread(self, offset: int, length: int) -> bytes:
        return bytes(length)

    def zeros_at(self, offset: int) -> int:
        """Return the number of bytes from ``offset`` to the end."""
        return max(0, (self.size or 0) - offset)


class MissingData(Data):
    """``size`` lost bytes, as one gap: stands in for a stretch of known length that is gone."""

    def __init__(self, size: int) -> None:
        super().__init__("<missing>", size)
        self.identity = ("missing", size)
        self.gaps = (Gap(0, size),) if size else ()

    def _pread(self, offset: int, length: int) -> bytes:
        raise GapError(offset, None if self.size is None else self.size - offset)


def _gaps_of(part: Range, base: int) -> Iterator[Gap]:
    """Yield what ``part`` cannot serve, as offsets of spliced data in which ``part`` begins at ``base``."""
    for gap in part.data.gaps_in(part.start, part.end):
        first, last = max(gap.offset, part.start), part.end if gap.end is None else min(gap.end, part.end)
        yield Gap(base + first - part.start, last - first, gap.exact)
        if gap.end is None:
            return
    size = part.data.size
    if size is not None and size < part.end:
        first = max(size, part.start)
        yield Gap(base + first - part.start, part.end - first)


class FilePart:
    """One of several files that are read as one (``x.zip.001`` …)."""

    __slots__ = ("file", "next_name", "size", "there")

    def __init__(self, file: str, there: int, size: int, next_name: str = "") -> None:
        self.file = file
        """Name of the file."""
        self.there = there
        """Bytes that exist."""
        self.size = size
        """Bytes that the file should have."""
        self.next_name = next_name
        """Name of the part that follows; empty if none can."""


# -- `HiddenData`: data with some stretches hidden ---------------------------------------------------------------------


class HiddenData(DerivedData):
    """Data in which the stretches ``hidden`` are gaps; everything else, offsets included, is unchanged.

    ``handled`` (default: ``hidden``) are stretches whose doubts were dealt with: `why_suspect` reports the others only.
    Both are lists of ``(start, end)``, in order, without overlaps.
    """

    def __init__(
        self, data: Data, hidden: Sequence[tuple[int, int]], handled: Sequence[tuple[int, int]] | None = None
    ) -> None:
        super().__init__(data.name, data.size, data.stats)
        self._data = data
        self.sources = (data,)
        self._handled = Stretches(hidden if handled is None else handled)
        known = set(hidden)
        self._vague = [stretch for stretch in handled or () if stretch not in known]
        self.access = data.access
        gaps = [(gap.offset, gap.end, gap.exact) for gap in data.gaps]
        gaps += [(start, end, True) for start, end in hidden]
        self.gaps: GapTable = GapTable()
        reached = 0
        for offset, end, exact in sorted(gaps, key=lambda gap: gap[0]):
            start = max(offset, reached)
            if end is None:
                self.gaps.add(start, None)
                break
            if end > start:
                self.gaps.add(start, end - start, exact)
                reached = end

    def _how(self) -> tuple[object, ...]:
        return (self.gaps.digest(),)

    def is_vague(self, start: int, end: int) -> bool:
        """Return whether ``[start, end)`` overlaps damage that was handled, but not hidden in full."""
        return any(low < end and start < high for low, high in self._vague)

    def pread(self, offset: int, length: int) -> bytes:
        """Read from the data, which counts the read."""
        length = self._clip(offset, length)
        return self._data.pread(offset, length) if length else b""

    def _pread(self, offset: int, length: int) -> bytes:
        return self._data.pread(offset, length)

    def why_suspect(self, start: int, end: int) -> str | None:
        """Ask the data about the stretches that were not handled."""
        reasons = (self._data.why_suspect(*stretch) for stretch in self._handled.without(start, end))
        return next((reason for reason in reasons if reason is not None), None)

    def is_proved(self, start: int, end: int) -> bool:
        """Return False: what something is hidden of is in doubt, whatever is known of all of it."""
        return False


# -- `FlippedData`: numbers of which the sign is another than the stored one, such as conjugated ones ------------------

_FLIP: Final = bytes(code ^ 0x80 for code in range(256))


class FlippedData(SplicedData):
    """The bytes of a range, with the highest bit of some bytes of each item turned over: the signs of floats."""

    def __init__(self, part: Range, item: int, places: Sequence[int], name: str) -> None:
        """``places`` are those of the bytes, in an item of ``item`` bytes; the range begins with an item."""
        super().__init__([part], name, part.data.stats)
        self._item = item
        self._places = tuple(places)

    def _how(self) -> tuple[object, ...]:
        return self._item, self._places

    def _turn(self, offset: int, view: memoryview | bytearray) -> None:
        for place in self._places:
            first = (place - offset) % self._item
            view[first :: self._item] = bytes(view[first :: self._item]).translate(_FLIP)

    def _pread(self, offset: int, length: int) -> bytes:
        block = bytearray(super()._pread(offset, length))
        self._turn(offset, block)
        return bytes(block)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        block = self._pread(offset, len(view))
        view[: len(block)] = block
        return len(block)

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return None: no mapped file has these bytes."""
        return None
