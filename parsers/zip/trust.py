"""Whether the directory of a zip archive accounts for it.

A directory is trusted if it accounts for the file: its entries follow each other to its very end, local headers with
the same names are where it says, and no other local header comes before the first of them. So the directory of a zip
stored *in* a damaged zip is not taken for that of the outer one. Programs that change an archive in place leave such
headers, too: of members that they replaced or deleted. The directory is trusted then if its offsets count from the
archive's very start and all of its entries agree with their headers.

Everything is read in blocks. A directory of a million entries takes no memory, unless entries overlap.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import islice
from struct import Struct

from pparse.data.window import Window
from pparse.limits import MIB
from pparse.parsers.zip.attributes import FULL, RESERVED, STREAMED
from pparse.parsers.zip.directory import (
    BLOCK,
    CENTRAL,
    CENTRAL_SIZE,
    LOCAL,
    LOCAL_SIZE,
    SIGNATURE,
    CentralEntry,
    end_records,
    entries,
    entry_at,
    local_at,
    local_headers,
    read_central,
    read_end_at,
)
from pparse.parsers.zip.places import find_places
from pparse.tree.key_table import ranked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.data.base import Data
    from pparse.parsers.zip.places import Places

# So many end records are tried, each with the directory that it tells of: bytes that repeat may hold thousands.
_MOST_ENDS: Final = 16
# How many bytes before the first entry are searched for local headers that are not listed.
PREFIX: Final = 16 * MIB
# Entries may overlap by this much: some writers miscount a descriptor.
TOLERANCE: Final = 32
SAMPLES: Final = 32
# Up to so many overlapping entries may be damage of the directory.
_FEW: Final = 1_000

# signature, flags, CRC, packed, lengths of name, extra field and comment, offset
_SURVEY: Final = Struct("<4s4xH6xII4xHHH8xI").unpack_from


class Directory:
    """A directory that accounts for the archive.

    Its entries are in ``[begin, end)``. A member's local header is at its offset plus what `shift_of` says.
    """

    def __init__(self, begin: int, shift: int, survey: _Survey, places: Places | None = None) -> None:
        self.begin = begin
        """Offset of the first entry."""
        self.end = survey.end
        """Offset after the last entry."""
        self.shift = shift
        """What to add to a stored offset to get a position, if it is the same for all of them."""
        self.places = places
        """What else there is to add to offsets, and to sizes; None: nothing."""
        self.count = survey.count
        """Number of entries."""
        self.first = survey.lowest + shift if survey.count else begin
        """Offset of the first local header."""
        self.finish = survey.end
        """Offset of the end of the archive, with its comment."""
        self.declared = 0
        """Number of entries that the end record gives."""
        self.fits = True
        """Whether its size is what the end record gives."""
        self.zip64 = survey.zip64
        """Whether some entries have zip64 fields."""
        self.torn = False
        """Whether local headers are damaged."""
        self.stale = False
        """Whether the first member stands behind others, which the directory no longer names."""
        self._overlaps = array("q")
        self._charge: Charge | None = None

    def shift_of(self, place: int) -> int:
        """Return what to add to the offset in the entry at ``place`` to get a position."""
        return self.shift if self.places is None else self.places.base(place)

    @property
    def has_overlaps(self) -> bool:
        """Whether members share bytes."""
        return bool(self._overlaps)

    def overlaps(self, at: int) -> bool:
        """Say whether the entry at ``at`` claims bytes of an earlier member."""
        place = bisect_left(self._overlaps, at)
        return place < len(self._overlaps) and self._overlaps[place] == at

    def set_overlaps(self, places: array[int], budget: MemoryBudget) -> None:
        """Store the offsets (ascending) of entries that claim bytes of other members. Raise `LimitError`."""
        if places:
            self._charge = budget.charge(8 * len(places), "a list of overlapping members")
        self._overlaps = places


def find_directory(
    data: Data, start: int, end: int, budget: MemoryBudget, parts: Sequence[int] = ()
) -> Directory | None:
    """Return the directory of the archive ``data[start:end]``; None if there is none that accounts for it.

    ``parts`` are the sizes of the files that the data are joined from.
    Raise `LimitError` if a list of overlapping members exceeds the budget.
    """
    if data.loose_gap() is not None:
        return None  # offsets after such a gap have no meaning
    stale = None
    window = Window(data, end)
    for at in islice(end_records(window, start, end), _MOST_ENDS):
        found = _check_end(window, at, start, end, budget, parts)
        if found is not None and not found.stale:
            return found  # before one that leaves members out: of a zip in a comment, say
        stale = stale or found
    return stale


def _check_end(
    window: Window, at: int, start: int, end: int, budget: MemoryBudget, parts: Sequence[int]
) -> Directory | None:
    found = read_end_at(window, at, start, end)
    if found is None:
        return None
    record, stop = found
    near = stop - record.size
    found_places = find_places(window, record, near, stop, start, parts) if start <= near < stop else []
    ways: list[tuple[int, int, Places | None]] = [(near, each.base(near), each) for each in found_places]
    if not record.disks_differ:
        ways += [(near, near - record.offset, None), (start + record.offset, start, None)]
    for begin, shift, places in dict.fromkeys(ways):
        if begin < start or begin > stop or shift < 0:
            continue
        if begin < stop and window.known(begin, len(CENTRAL)) not in (CENTRAL, SIGNATURE):
            continue  # before more of it is read
        window.data.keep(begin, stop)  # members are read alternately with it
        survey = _survey(window, begin, stop)
        if survey is None:
            continue
        directory = Directory(begin, shift, survey, places)
        directory.declared, directory.finish = record.entries, at + record.length
        directory.fits = record.size == stop - begin
        if not _accounts_for(window, directory, survey, start, end):
            continue
        overlaps = array("q") if survey.ordered or places is not None else _find_overlaps(window, directory, budget)
        if 0 < len(overlaps) <= max(2, min(survey.count // 4, _FEW)):
            continue  # more likely a wrong size or offset than a bomb
        directory.set_overlaps(overlaps, budget)
        return directory
    return None


class _Survey:
    """What the entries of a directory say, one after the other.

    ``count`` of them end at ``end``. ``lowest`` is the least offset, which the entry at ``lowest_at`` has (-1: there is
    none). ``ordered``: no member begins before the one listed before it ends, and the last one ends at ``reached``.
    ``samples`` and ``odd`` are places of some entries: of any, and of those that need a look at what they are of.
    """

    __slots__ = ("count", "end", "lowest", "lowest_at", "odd", "ordered", "reached", "samples", "zip64")

    def __init__(self) -> None:
        self.end = self.count = self.lowest = self.reached = 0
        self.lowest_at = -1
        self.ordered = True
        self.zip64 = False
        self.samples: list[int] = []
        self.odd: list[int] = []


def _survey(window: Window, at: int, end: int) -> _Survey | None:
    """Walk all entries in ``[at, end)``; None if they do not follow each other to its end."""
    learned = _Survey()
    samples, odd = learned.samples, learned.odd
    lowest, lowest_at, ordered = 0, -1, True
    reached, count = 1 << 64, 0  # so that the first entry is checked
    # Locals save a tenth of the time.
    survey, central, size, reserved, full, local = _SURVEY, CENTRAL, CENTRAL_SIZE, RESERVED, FULL, LOCAL_SIZE
    while at < end:
        block = window.known(at, min(BLOCK, end - at))
        there = len(block)
        pos, last = 0, there - size
        if len(samples) < SAMPLES:
            samples.append(at)
        while pos <= last:
            signature, flags, crc, compressed_size, name, extra, comment, offset = survey(block, pos)
            length = size + name + extra + comment
            if signature != central or pos + length > there:
                break
            if (flags & reserved or (crc and not compressed_size)) and len(odd) < SAMPLES:
                odd.append(at + pos)
            if compressed_size == full or offset == full:
                learned.zip64 = True
                entry = read_central(block, pos)
                compressed_size, offset = (
                    (entry.compressed_size, entry.offset) if entry is not None else (compressed_size, offset)
                )
            if offset < reached:
                ordered = lowest_at < 0  # it is the first one
                if ordered or offset < lowest:
                    lowest, lowest_at = offset, at + pos
            reached = offset + local + name + compressed_size
            pos += length
            count += 1
        if not pos:
            if not _is_signature(block, end - at):
                return None
            end = at
        at += pos
    learned.end, learned.count, learned.lowest, learned.lowest_at = end, count, lowest, lowest_at
    learned.ordered, learned.reached = ordered, reached
    return learned


def _is_signature(block: bytes, length: int) -> bool:
    """Say whether ``block`` begins with a digital signature of a directory, which is ``length`` bytes long."""
    return block[:4] == SIGNATURE and len(block) >= 6 and 6 + int.from_bytes(block[4:6], "little") == length


def _accounts_for(window: Window, directory: Directory, survey: _Survey, start: int, stop: int) -> bool:
    """Say whether ``data[start:stop]`` is as the entries of a directory say; also sets ``directory.torn``."""
    if survey.count:
        if survey.lowest_at < 0 or directory.first < start:
            return False
        firsts = islice(entries(window, directory.begin, directory.end), 8)
        samples = sorted((*survey.samples, *(place for place, _ in firsts)))
        lowest_at = survey.lowest_at if directory.places is None else directory.begin
        right, directory.torn = _compare_headers(window, directory, [lowest_at, *samples], start)
        if not right or any(_denies(window, directory, place) for place in survey.odd):
            return False
    before, behind = directory.first, directory.finish
    if _has_locals(window, behind, stop, stop):
        return False
    if _has_locals(window, start, before, before):
        directory.stale = directory.shift == start and _is_exact(window, directory)
        if not directory.stale:
            return False
    reach = directory.begin - directory.shift + TOLERANCE
    return directory.places is not None or not (survey.count and survey.ordered and survey.reached > reach)


def _compare_headers(window: Window, directory: Directory, places: list[int], start: int) -> tuple[bool, bool]:
    """Say whether local headers of the same names stand where entries say, and whether some there are damaged."""
    right = wrong = 0
    torn = False
    for place in dict.fromkeys(places):
        block = window.known(place, min(BLOCK, directory.end - place))
        entry = read_central(block)
        if entry is None:
            continue
        pos = entry.offset + directory.shift_of(place)
        if not start <= pos < directory.begin:
            wrong += 1
            continue
        header = local_at(window, pos, directory.begin)
        if header is not None and header.raw_name == entry.raw_name:
            right += 1
        elif len(window.known(pos, 4)) == 4:
            wrong += 1
            torn = torn or header is None
        if place == places[0] and (right or (wrong and directory.first != start)):
            return bool(right), torn  # the very first one is enough
    return right >= wrong, torn


def _is_exact(window: Window, directory: Directory) -> bool:
    """Say whether the directory has as many entries as it should, and each agrees with the local header it leads to."""
    if not directory.count or directory.declared not in (directory.count, directory.count & 0xFFFF):
        return False
    return all(_leads_to(window, entry, directory) for _, entry in entries(window, directory.begin, directory.end))


def _leads_to(window: Window, entry: CentralEntry, directory: Directory) -> bool:
    """Say whether a local header with the name, and with the CRC if it has one, stands where ``entry`` says."""
    header = local_at(window, entry.offset + directory.shift, directory.begin)
    if header is None or header.raw_name != entry.raw_name:
        return False
    return bool(header.flags & STREAMED) or header.crc == entry.crc


def _denies(window: Window, directory: Directory, place: int) -> bool:
    """Say whether the file contradicts an odd entry: its flags, or a CRC of a member without bytes."""
    entry = entry_at(window, place, directory.end)
    if entry is None:
        return True
    pos = entry.offset + directory.shift_of(place)
    header = local_at(window, pos, directory.begin)
    if entry.flags & RESERVED:
        return header is None or header.flags != entry.flags
    if entry.compressed_size or not entry.crc or header is None:
        return False
    return pos + header.length != directory.begin and window.known(pos + header.length, 2) != LOCAL[:2]


def _has_locals(window: Window, low: int, high: int, end: int) -> bool:
    """Say whether there is a local header in ``[low, high)``, where the directory lists none."""
    return next(local_headers(window, low, min(high, low + PREFIX), end), None) is not None


def _find_overlaps(window: Window, directory: Directory, budget: MemoryBudget) -> array[int]:
    """Return the offsets of entries that claim bytes of an earlier member (by position, then by list order)."""
    offsets, lengths, places = array("q"), array("q"), array("q")
    with budget.charge(48 * directory.count, "comparing where members lie"):
        for at, entry in entries(window, directory.begin, directory.end):
            offsets.append(min(entry.offset, 1 << 62))
            lengths.append(min(LOCAL_SIZE + len(entry.raw_name) + entry.compressed_size, 1 << 62))
            places.append(at)
        offsets, order = ranked(offsets)
        found = array("q")
        reached, limit = 0, directory.begin - directory.shift + TOLERANCE
        for offset, ordinal in zip(offsets, order, strict=True):
            if offset < reached - TOLERANCE or offset + lengths[ordinal] > limit:
                found.append(places[ordinal])
            else:
                reached = offset + lengths[ordinal]
    return array("q", sorted(found))
