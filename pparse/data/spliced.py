"""Data made of other data: `SplicedData` joins several ranges; `ZeroData` and `MissingData` fill in between.

Used for records that block headers interrupt, messages spread over chunks, files split into parts (``.001``,
``.002`` …), files with holes, and files that lost a stretch.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from pparse.data.base import Access, Data, Gap, GapTable
from pparse.data.range_status import joined
from pparse.errors import ClosedError, GapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pparse.data.base import IoStats
    from pparse.data.reader import Range


class SplicedData(Data):
    """Several ranges, one after the other, as one Data. Where a source cannot fill its part, there is a gap."""

    def __init__(self, parts: Iterable[Range], name: str = "<spliced>", stats: IoStats | None = None) -> None:
        self._parts = [part for part in parts if part.end > part.start]
        self._starts: list[int] = []
        total = 0
        for part in self._parts:
            self._starts.append(total)
            total += part.end - part.start
        super().__init__(name, total, stats)
        self._sources = tuple({id(part.data): part.data for part in self._parts}.values())
        self._known = self._discoveries()  # the count when the gaps were collected
        self.gaps = self._find_gaps()
        costs = {source.access for source in self._sources}
        if Access.RESTART in costs:
            self.access = Access.RESTART
        elif Access.CHECKPOINT in costs:
            self.access = Access.CHECKPOINT

    def _find_gaps(self) -> GapTable:
        found = (_gaps_of(part, start) for part, start in zip(self._parts, self._starts, strict=False))
        return GapTable(gap for gaps in found for gap in gaps)

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """Those of the sources, and which of their bytes these are."""
        from pparse.data.identity import derived

        self._clip(0, 0)  # raises if it is closed, and has no parts
        return derived("spliced", self._parts)

    def _pieces(self, offset: int, length: int) -> Iterator[tuple[Data, int, int]]:
        index = max(0, bisect_right(self._starts, offset) - 1)
        while length and index < len(self._parts):
            part = self._parts[index]
            within = offset - self._starts[index]
            take = min(length, part.end - part.start - within)
            if take <= 0:
                return
            yield part.data, part.start + within, take
            offset += take
            length -= take
            index += 1

    def read_known(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Read from the parts; see `Data.read_known`."""
        if self.closed:
            raise ClosedError("the data is closed", source=self.name)
        chunks: list[bytes] = []
        unknown: list[tuple[int, int]] = []
        for data, at, take in self._pieces(offset, length):
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
        for data, at, take in self._pieces(offset, length):
            try:
                chunk = data.pread(at, take)
            except GapError:
                chunk = b""
            pieces.append(chunk)
            if len(chunk) < take:
                self._note_short_part(offset, any(pieces))
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        done = 0
        for data, at, take in self._pieces(offset, len(view)):
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

    def locate(self, offset: int, length: int) -> list[tuple[Data, int, int]]:
        """Return where ``[offset, offset + length)`` lies in the outermost data, adjoining stretches joined."""
        found: list[tuple[Data, int, int]] = []
        for data, at, take in self._pieces(offset, length):
            for source, start, count in data.locate(at, take):
                if found and found[-1][0] is source and found[-1][1] + found[-1][2] == start:
                    found[-1] = (source, found[-1][1], found[-1][2] + count)
                else:
                    found.append((source, start, count))
        return found

    def zeros_at(self, offset: int) -> int:
        """Ask the part that contains ``offset``."""
        for data, at, take in self._pieces(offset, 1 << 62):
            return min(take, data.zeros_at(at))
        return 0

    @property
    def flawed(self) -> bool:
        """Whether anything is known to be wrong with this data or its sources."""
        return super().flawed or any(source.flawed for source in self._sources)

    def look(self) -> None:
        """Make the sources look, and take over the gaps they found."""
        for source in self._sources:
            source.look()
        known = self._discoveries()
        if known != self._known:
            self.gaps = self._find_gaps()
            self._known = known  # last: whoever sees this count sees the gaps, too

    @property
    def revision(self) -> int:  # type: ignore[override]
        """Sum of the sources' revisions."""
        return sum(source.revision for source in self._sources)

    def _discoveries(self) -> int:
        return sum(source.stats.discoveries for source in self._sources)

    def is_proved(self, start: int, end: int) -> bool:
        """Ask this data, then its parts."""
        if super().is_proved(start, end):
            return True
        pieces = list(self._pieces(start, max(0, end - start)))
        return bool(pieces) and all(data.is_proved(at, at + take) for data, at, take in pieces)

    def why_suspect(self, start: int, end: int) -> str | None:
        """Ask this data, then its parts."""
        own = super().why_suspect(start, end)
        if own is not None or self.is_proved(start, end):
            return own
        for data, at, take in self._pieces(start, max(0, end - start)):
            reason = data.why_suspect(at, at + take)
            if reason is not None:
                return reason
        return None

    def passed_over(self, start: int, end: int) -> str | None:
        """Ask the parts."""
        reasons = (data.passed_over(at, at + take) for data, at, take in self._pieces(start, max(0, end - start)))
        return next((reason for reason in reasons if reason is not None), None)

    def suspect_ranges_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Combine the answers of this data and its parts."""
        if self.why_suspect(start, end) is None:
            return []
        found = super().suspect_ranges_in(start, end) if super().why_suspect(start, end) is not None else []
        offset = start
        for data, at, take in self._pieces(start, max(0, end - start)):
            found += [(low - at + offset, high - at + offset) for low, high in data.suspect_ranges_in(at, at + take)]
            offset += take
        return joined(found)

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the holes of the parts, in offsets of this data."""
        offset = start
        for data, at, take in self._pieces(start, max(0, end - start)):
            for first, last in data.holes(at, at + take):
                yield offset + first - at, offset + last - at
            offset += take

    def same_source(self, path: str) -> bool:
        """Ask the sources."""
        return any(source.same_source(path) for source in self._sources)

    def check_unchanged(self) -> None:
        """Check each source once."""
        super().check_unchanged()
        for source in self._sources:
            source.check_unchanged()

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return a view if one part holds all of it."""
        pieces = list(self._pieces(offset, length))
        if self._clip(offset, length) < length or len(pieces) != 1:
            return None
        data, at, _ = pieces[0]
        return data.mapped(at, length)

    def close(self) -> None:
        """Drop the parts; their sources stay open, for they belong to whoever opened them."""
        super().close()
        self._parts = []
        self._sources = ()


class ZeroData(Data):
    """``size`` zeros: the holes of a sparse file, which nobody stored."""

    def __init__(self, size: int) -> None:
        super().__init__("<zeros>", size)
        self.identity = ("zeros", size)

    def _pread(self, offset: int, length: int) -> bytes:
        return bytes(length)

    def zeros_at(self, offset: int) -> int:
        """Return the number of bytes from ``offset`` to the end."""
        return max(0, (self.size or 0) - offset)

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield nothing: these zeros are real content."""
        yield from ()


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
    gaps = part.data.gaps
    for place in range(max(0, bisect_right(gaps, part.start, key=attrgetter("offset")) - 1), len(gaps)):
        gap = gaps[place]
        if gap.offset >= part.end:
            break
        first = max(gap.offset, part.start)
        last = part.end if gap.length is None else min(gap.offset + gap.length, part.end)
        if first < last:
            yield Gap(base + first - part.start, last - first, gap.exact)
            if gap.length is None:
                return
    size = part.data.size
    if size is not None and size < part.end:
        first = max(size, part.start)
        yield Gap(base + first - part.start, part.end - first)


class FilePart:
    """One of several files that are read as one (``x.zip.001`` …)."""

    __slots__ = ("file", "size", "there")

    def __init__(self, file: str, there: int, size: int) -> None:
        self.file = file
        """Name of the file."""
        self.there = there
        """Bytes that exist."""
        self.size = size
        """Bytes that the file should have."""

    @property
    def next_name(self) -> str:
        """Name of the part that follows."""
        base, _, number = self.file.rpartition(".")
        return f"{base}.{int(number) + 1:0{len(number)}}"
