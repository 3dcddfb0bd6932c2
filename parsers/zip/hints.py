"""What is left of the directory of a zip archive that is incomplete, or contradicts the file: where members may be."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left

from pparse.errors import LimitError
from pparse.lazy import lazy_pattern
from pparse.limits import MIB
from pparse.parsers.zip.directory import SAMPLES, TAIL, TOLERANCE, end_records, entry_at, local_at, read_end_at
from pparse.parsers.zip.records import CENTRAL, LOCAL_SIZE, CentralEntry, EndRecord, LocalHeader
from pparse.tree.key_table import KeyTable, ranked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.budget import MemoryBudget
    from pparse.data.base import Data

# By chance, so many line feeds follow a carriage return once in 2^128 times.
_LINES: Final = 16
# More parts no split zip has; a damaged end record may say so.
_MOST_DISKS: Final = 10_000
_CENTRALS: Final = lazy_pattern(re.escape(CENTRAL))


class Hints:
    """Entries of an incomplete or contradictory directory, believed only where the file agrees.

    ``shifts`` are candidates for the number to add to an offset to get a position, the likeliest first. After a gap of
    unknown length no position follows from an offset. ``whole``: the archive's own directory is complete and lies where
    its end record says, so its positions are certain, even if the local header there is destroyed.
    """

    def __init__(self, data: Data, start: int, end: int, budget: MemoryBudget) -> None:
        self._data = data
        self._start = start
        self._end = end
        self._charge = budget.charge(0, "what is left of a zip directory")
        self._offsets = array("q")  # as stored, ascending
        self._places = array("q")
        self._names = KeyTable(())
        self.shifts: list[int] = []
        loose = data.loose_gap()
        self._reach = end if loose is None else loose
        self.trusted = False  # whether local headers are where entries say, or the directory is where it should be
        self.whole = False
        self._apart = False  # no two members share bytes, according to the entries
        self._cached: dict[int, CentralEntry | None] = {}
        try:
            self._collect(budget)
        except LimitError:  # go on without them
            self._offsets, self._places, self._names = array("q"), array("q"), KeyTable(())
        if self._offsets:
            self._find_shifts()

    def __len__(self) -> int:
        return len(self._offsets)

    def _collect(self, budget: MemoryBudget) -> None:
        offsets, places, names, ends = array("q"), array("q"), array("q"), array("q")
        high, lowest = self._end, max(self._start, self._end - TAIL)
        seen = False
        while high > lowest or (high > self._start and seen):
            low = max(self._start, high - MIB)
            block, _ = self._data.read_known(low, min(high - low + 3, self._end - low))
            seen = False
            for match in _CENTRALS.finditer(block):
                at = low + match.start()
                entry = entry_at(self._data, at, self._end)
                if entry is not None and entry.is_sane() and entry.offset < 1 << 62:
                    seen = True
                    offsets.append(entry.offset)
                    places.append(at)
                    names.append(hash(entry.raw_name))
                    ends.append(entry.offset + LOCAL_SIZE + len(entry.raw_name) + min(entry.compressed_size, 1 << 61))
            self._charge.resize(64 * len(offsets))
            high = low
        offsets, places, names, ends = self._without_nested(offsets, places, names, ends)
        self._offsets, order = ranked(offsets)
        starts = iter(self._offsets[1:])
        self._apart = all(ends[ordinal] <= start + TOLERANCE for ordinal, start in zip(order, starts, strict=False))
        self._places = array("q", (places[ordinal] for ordinal in order))
        self._names = KeyTable(names[ordinal] for ordinal in order)

    def _without_nested(
        self, offsets: array[int], places: array[int], names: array[int], ends: array[int]
    ) -> tuple[array[int], array[int], array[int], array[int]]:
        """Drop entries that lie between members, in nested archives, if the archive's own directory is complete."""
        own = self._own_directory()
        if own is None:
            return offsets, places, names, ends
        begin, stop, record = own
        listed = [offset for offset, place in zip(offsets, places, strict=True) if begin <= place < stop]
        if not listed or len(listed) != record.entries:
            return offsets, places, names, ends
        first = begin - record.offset + min(listed)
        kept = [number for number, place in enumerate(places) if not first <= place < begin]
        return tuple(array("q", (column[number] for number in kept)) for column in (offsets, places, names, ends))  # type: ignore[return-value]

    def _own_directory(self) -> tuple[int, int, EndRecord] | None:
        """Return begin and end of the last directory by its end record, and the record; None if there is none."""
        for at in end_records(self._data, self._start, self._end):
            found = read_end_at(self._data, at, self._start, self._end)
            if found is not None:
                return found[1] - found[0].size, found[1], found[0]
        return None

    @property
    def first_place(self) -> int:
        """Offset of the first entry."""
        return min(self._places)

    def _find_shifts(self) -> None:
        """Find what to add to offsets, by the local headers that some entries lead to."""
        wanted = [self._start]
        exact = False  # whether a directory lies where its end record says, counted from the start
        for number, at in enumerate(end_records(self._data, self._start, self._end)):
            found = read_end_at(self._data, at, self._start, self._end)
            if found is not None:
                record, stop = found
                wanted.append(stop - record.size - record.offset)
                exact = exact or (
                    wanted[-1] == self._start and not self._data.gaps and stop - record.size in self._places
                )
            if number > 8:
                break
        step = max(1, len(self._offsets) // SAMPLES)
        scores: dict[int, int] = {}
        for shift in dict.fromkeys(wanted):
            scores[shift] = sum(self._agrees(ordinal, shift) for ordinal in range(0, len(self._offsets), step))
        self.shifts = sorted(scores, key=lambda shift: -scores[shift])
        self.trusted = scores[self.shifts[0]] > 0 or exact
        own = self._own_directory() if exact and self._apart and self.shifts[0] == self._start else None
        self.whole = own is not None and own[0] == self.first_place and own[2].entries == len(self._offsets)

    def _agrees(self, ordinal: int, shift: int) -> bool:
        entry = self.entry(ordinal)
        pos = self._offsets[ordinal] + shift
        if entry is None or not self._start <= pos < self._end:
            return False
        header = local_at(self._data, pos, self._end)
        return header is not None and header.raw_name == entry.raw_name

    def entry(self, ordinal: int) -> CentralEntry | None:
        """Return an entry by its rank among all offsets."""
        place = self._places[ordinal]
        if place not in self._cached:
            if len(self._cached) >= 256:
                self._cached.clear()
            self._cached[place] = entry_at(self._data, place, self._end)
        return self._cached[place]

    def for_header(self, pos: int, header: LocalHeader) -> CentralEntry | None:
        """Return the entry of the member whose local header is at ``pos``; None if no entry has its name.

        An entry with the right offset is preferred; then the nearest with the same name, and the same CRC or size.
        """
        for shift in self.shifts:
            for ordinal in self._at(pos - shift):
                entry = self.entry(ordinal)
                if entry is not None and entry.raw_name == header.raw_name:
                    return entry
        best: tuple[int, CentralEntry] | None = None
        for number, ordinal in enumerate(self._names.candidates(header.raw_name)):
            entry = self.entry(ordinal)
            if number >= 64 or entry is None or entry.raw_name != header.raw_name or entry.method != header.method:
                continue
            if header.crc and header.crc != entry.crc:
                continue
            if header.size and header.size != entry.size:
                continue
            distance = abs(pos - self.shifts[0] - entry.offset)
            if best is None or distance < best[0]:
                best = distance, entry
        return best[1] if best is not None else None

    def replaced(self, pos: int, header: LocalHeader) -> bool:
        """Say whether the directory names another member so, and agrees with the header of that one only; or that has
        another checksum, if its header is damaged.

        So does an archive that was changed in place: what the member at ``pos`` holds is no longer part of it.
        """
        if not self.whole or not header.whole or self.entry_for(pos) is not None:
            return False
        for number, ordinal in enumerate(self._names.candidates(header.raw_name)):
            entry = self.entry(ordinal)
            if number < 64 and entry is not None and entry.raw_name == header.raw_name:
                return self._agrees(ordinal, self.shifts[0]) or bool(header.crc and header.crc != entry.crc)
        return False

    def _at(self, offset: int) -> Iterator[int]:
        place = bisect_left(self._offsets, offset)
        while place < len(self._offsets) and self._offsets[place] == offset:
            yield place
            place += 1

    def entry_for(self, pos: int) -> CentralEntry | None:
        """Return the entry whose local header should be at ``pos``, whatever is there."""
        if self.trusted and pos < self._reach:
            for ordinal in self._at(pos - self.shifts[0]):
                return self.entry(ordinal)
        return None

    def next_position(self, pos: int) -> int | None:
        """Return the first position from ``pos`` on where a local header should be; None if none is known."""
        if not self.trusted:
            return None
        place = bisect_left(self._offsets, pos - self.shifts[0])
        if place >= len(self._offsets):
            return None
        found = self._offsets[place] + self.shifts[0]
        return found if found < self._reach else None

    def precedes(self, header: LocalHeader, entry: CentralEntry | None) -> bool:
        """Say whether the member with ``header`` is listed right before ``entry`` (None: last), in file order."""
        place = len(self._offsets) if entry is None else bisect_left(self._offsets, entry.offset)
        before = self.entry(place - 1) if place else None
        return before is not None and before.raw_name == header.raw_name


def why_scanned(data: Data, start: int, end: int, *, whole: bool) -> tuple[str, str]:
    """Return a code, and words, for why the directory of an archive is of no use; ``whole``: it is there."""
    block = data.read_known(start, min(MIB, end - start))[0]
    pairs = block.count(b"\r\n")
    # Each line feed behind a carriage return, and others without a line feed, which a text does not have.
    if pairs >= _LINES and block.count(b"\n") == pairs and block.count(b"\r") - pairs >= pairs // 4:
        reason = "its line feeds were made carriage return and line feed: fetch it again, not in text mode"
        return "text-mode", reason
    if not whole:
        return "truncated", "its directory, at the end, is missing or truncated"
    last = next(end_records(data, start, end), None)
    found = None if last is None else read_end_at(data, last, start, end)
    if found is not None and 0 < found[0].disk < _MOST_DISKS and found[0].disks_differ:
        return "split", f"its directory is that of a zip split into {found[0].disk + 1} parts ('zip -s 0' joins them)"
    return "directory", "its directory does not match its content"
