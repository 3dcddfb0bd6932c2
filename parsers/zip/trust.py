"""What a zip archive is recognised by, whether its directory accounts for it, and from where its offsets count.

A directory is trusted if it accounts for the file: its entries follow each other to its very end, local headers with
the same names are where it says, and no other local header comes before the first of them. So the directory of a zip
stored *in* a damaged zip is not taken for that of the outer one. Programs that change an archive in place leave such
headers, too: of members that they replaced or deleted. The directory is trusted then if its offsets count from the
archive's very start and all of its entries agree with their headers. One that has as many entries as its end record
says only with those that lie in the name, extra field or comment of others has a damaged length.

Two kinds of archives have no offsets from their beginning (`Bases`):

- **A split archive, joined** (``zip -s``; APPNOTE.TXT 4.4.16, 8): each offset counts from the beginning of the part
  that the entry names. How large the parts were is known if they are files of their own; in one file, the first member
  of each part is looked for behind the one before it.
- **An archive above 4 GiB without zip64 fields**, as Archive Utility and ``ditto`` of macOS write them: offsets, sizes
  and those in descriptors are modulo 2^32. Members follow each other in the order of the directory, so an offset counts
  from the least multiple of 2^32 at which a header of that name stands; a member is larger than its entry says if more
  than 2^32 bytes lie between it and the next one. minizip-ng (#431), yauzl-promise and 7-Zip find them likewise.

Everything is read in blocks. A directory of a million entries takes no memory, unless entries overlap.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from struct import Struct

from pparse.data.base import BytesData
from pparse.data.window import Window, windows
from pparse.lazy import lazy_pattern
from pparse.limits import KIB, MIB
from pparse.parsers.zip import records
from pparse.parsers.zip.records import (
    BLOCK,
    CENTRAL,
    CENTRAL_SIZE,
    END,
    END_SIZE,
    FULL,
    LOCAL,
    LOCAL_SIZE,
    RESERVED,
    SIGNATURE,
    STREAMED,
    CentralEntry,
    central_length,
    directory_ends,
    entries,
    entry_at,
    local_at,
    local_headers,
    local_length,
    may_be_local,
    read_central,
    read_end,
    read_end_at,
)
from pparse.tree.index import ranked
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

    from pparse.data.base import Data
    from pparse.limits import Charge, MemoryBudget
    from pparse.parsers.zip.records import EndRecord

# Behind the bytes of a member: the longest extra field of its header, and its descriptor.
_BETWEEN: Final = 0xFFFF + 24
# More parts no split zip has; a hostile one may say so.
_MOST_PARTS: Final = 10_000
# How many headers may be looked for in vain.
_MOST_LOST: Final = 1_000
# By so many bytes a member may begin before the one in front of it ends, as the directory has it.
_TOLERANCE: Final = 32


class Bases:
    """From where the offsets of entries count, and which members are larger than their entries say."""

    def __init__(self) -> None:
        self._entries: list[int] = []  # the offset of the first entry that counts from …
        self._bases: list[int] = []  # … this one
        self.more: dict[int, int] = {}
        """How many stored bytes a member has besides those of its entry, by the offset of that."""

    def base(self, place: int) -> int:
        """Return from where the entry at ``place`` counts; -1 before the first one was added."""
        return self._bases[max(0, bisect_right(self._entries, place) - 1)] if self._bases else -1

    def add(self, place: int, base: int) -> None:
        """Let entries from ``place`` on count from ``base``."""
        if not self._bases or self._bases[-1] != base:
            self._entries.append(place)
            self._bases.append(base)


def find_places(
    window: Window, record: EndRecord, begin: int, end: int, start: int, parts: Sequence[int]
) -> list[Bases]:
    """Return what the offsets of the entries in ``[begin, end)`` may count from, the likelier first; mostly nothing.

    ``parts`` are the sizes of the files that the data are joined from.
    """
    if record.disk:
        known = _by_part(window, begin, end, [start + sum(parts[:part]) for part in range(len(parts))])
        return [places for places in (known, _joined(window, begin, end, start)) if places is not None]
    apart = begin - record.offset - start
    wrapped = apart > 0 and not apart % records.WRAP
    places = _wrapped(window, begin, end, start) if wrapped else None
    return [] if places is None else [places]


def _by_part(window: Window, begin: int, end: int, starts: Sequence[int]) -> Bases | None:
    places, disk = Bases(), 0
    for place, entry in entries(window, begin, end):
        if not disk <= entry.disk < len(starts):
            return None
        disk = entry.disk
        new = places.base(place) != starts[entry.disk]
        if new and not _is_headed(window, starts[entry.disk] + entry.offset, entry, lost=True):
            return None
        places.add(place, starts[entry.disk])
    return places


def _joined(window: Window, begin: int, end: int, start: int) -> Bases | None:
    """Find where each part begins by its first member; None if it does not stand behind the one before it."""
    places, disk, base, least = Bases(), 0, start, start
    for place, entry in entries(window, begin, end):
        if not disk <= entry.disk < _MOST_PARTS:
            return None
        if entry.disk != disk:
            for at in local_headers(window, least, min(least + _BETWEEN + len(LOCAL), begin), begin):
                if at - entry.offset >= start and _is_headed(window, at, entry):
                    disk, base = entry.disk, at - entry.offset
                    break
            else:
                return None
        places.add(place, base)
        least = _least_end(base + entry.offset, entry)
    return places


def _wrapped(window: Window, begin: int, end: int, start: int) -> Bases | None:
    """Find what multiple of 2^32 each offset counts from; None if members do not follow each other."""
    places, base, wrap = Bases(), start, records.WRAP
    lost = 0
    before, least = -1, start  # the entry before, and where the bytes of its member end at least
    for place, entry in entries(window, begin, end):
        pos = base + entry.offset
        if pos < least - _TOLERANCE:
            pos += -((pos - least + _TOLERANCE) // wrap) * wrap
        if pos >= begin:
            return None
        found = pos
        while found + wrap < begin and not _is_headed(window, found, entry):
            found, lost = found + wrap, lost + 1
            if lost > _MOST_LOST:
                return None
        if found != pos and _is_headed(window, found, entry):  # else its header is damaged
            pos = found
        if pos - least >= wrap:
            places.more[before] = (pos - least) // wrap * wrap
        base = pos - entry.offset
        places.add(place, base)
        before, least = place, _least_end(pos, entry)
    if begin - least >= wrap:
        places.more[before] = (begin - least) // wrap * wrap
    return places


def _least_end(pos: int, entry: CentralEntry) -> int:
    return pos + LOCAL_SIZE + len(entry.raw_name) + entry.compressed_size


def _is_headed(window: Window, pos: int, entry: CentralEntry, *, lost: bool = False) -> bool:
    """Say whether a local header of the name stands at ``pos``; ``lost``: or may stand there, since it is lost."""
    length = LOCAL_SIZE + len(entry.raw_name)
    head = window.data.known(pos, length)
    return (head.startswith(LOCAL) and head[LOCAL_SIZE:] == entry.raw_name) or (lost and len(head) < length)


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
    """A directory whose entries follow each other, from ``begin`` on; what they say, and how they are read.

    A member's local header is at its offset plus what `shift_of` says.
    """

    def __init__(self, begin: int, shift: int, places: Bases | None) -> None:
        self.begin = begin
        """Offset of the first entry."""
        self.end = begin
        """Offset after the last entry."""
        self.shift = shift
        """What to add to a stored offset to get a position, if it is the same for all of them."""
        self.places = places
        """What else there is to add to offsets, and to sizes; None: nothing."""
        self.count = 0
        """Number of entries."""
        self.lowest, self.lowest_at = 0, -1
        """The least offset, and the entry that has it; -1: none."""
        self.ordered, self.reached = True, 0
        """Whether no member begins before the one listed before it ends, and where the last one ends, as stored."""
        self.samples: list[int] = []
        """Where some entries are …"""
        self.odd: list[int] = []
        """… and some that need a look at what they are of."""
        self.finish = begin
        """Offset of the end of the archive, with its comment."""
        self.declared = 0
        """Number of entries that the end record gives."""
        self.fits = True
        """Whether its size is what the end record gives."""
        self.zip64 = False
        """Whether some entries have zip64 fields."""
        self.torn = False
        """Whether local headers are damaged."""
        self.stale = False
        """Whether the first member stands behind others, which the directory no longer names."""
        self._overlaps = array("q")
        self._charge: Charge | None = None

    @property
    def first(self) -> int:
        """Offset of the first local header."""
        return self.lowest + self.shift if self.count else self.begin

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
    for ends in directory_ends(window, start, end):
        found = _check_end(window, ends, start, end, budget, parts)
        if found is not None and not found.stale:
            return found  # before one that leaves members out: of a zip in a comment, say
        stale = stale or found
    return stale


def _check_end(
    window: Window, ends: tuple[int, EndRecord, int], start: int, end: int, budget: MemoryBudget, parts: Sequence[int]
) -> Directory | None:
    at, record, stop = ends
    near = stop - record.size
    found_places = find_places(window, record, near, stop, start, parts) if start <= near < stop else []
    ways: list[tuple[int, int, Bases | None]] = [(near, each.base(near), each) for each in found_places]
    if not record.disks_differ:
        ways += [(near, near - record.offset, None), (start + record.offset, start, None)]
    for begin, shift, places in dict.fromkeys(ways):
        if begin < start or begin > stop or shift < 0:
            continue
        if begin < stop and window.known(begin, len(CENTRAL)) not in (CENTRAL, SIGNATURE):
            continue  # before more of it is read
        window.data.keep(begin, stop)  # members are read alternately with it
        directory = Directory(begin, shift, places)
        directory.declared, directory.finish = record.entries, at + record.length
        directory.fits = record.size == stop - begin
        if not _survey(window, directory, stop) or not _accounts_for(window, directory, start, end):
            continue
        if directory.declared not in (directory.count, directory.count & 0xFFFF) and _swallows(window, directory, stop):
            continue
        overlaps = array("q") if directory.ordered or places is not None else _find_overlaps(window, directory, budget)
        if 0 < len(overlaps) <= max(2, min(directory.count // 4, _FEW)):
            continue  # more likely a wrong size or offset than a bomb
        directory.set_overlaps(overlaps, budget)
        return directory
    return None


def _survey(window: Window, directory: Directory, end: int) -> bool:
    """Walk all entries up to ``end``; return whether they follow each other to there, or to a digital signature."""
    samples, odd, at = directory.samples, directory.odd, directory.begin
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
                directory.zip64 = True
                entry = read_central(block, pos)
                if entry is not None:
                    compressed_size, offset = entry.compressed_size, entry.offset
            if offset < reached:
                ordered = lowest_at < 0  # it is the first one
                if ordered or offset < lowest:
                    lowest, lowest_at = offset, at + pos
            reached = offset + local + name + compressed_size
            pos += length
            count += 1
        if not pos:
            signed = block.startswith(SIGNATURE) and there >= 6
            if not signed or 6 + int.from_bytes(block[4:6], "little") != end - at:
                return False
            end = at
        at += pos
    directory.end, directory.count, directory.lowest, directory.lowest_at = end, count, lowest, lowest_at
    directory.ordered, directory.reached = ordered, reached if count else 0
    return True


def _swallows(window: Window, directory: Directory, stop: int) -> bool:
    """Say whether an entry holds others, by a wrong length: with these, there are as many as the end record says."""
    blocks = windows(window.data, directory.begin, stop, BLOCK, len(CENTRAL) - 1)
    count = sum(block.count(CENTRAL) for _, block in blocks)
    return count > directory.count and directory.declared in (count, count & 0xFFFF)


def _accounts_for(window: Window, directory: Directory, start: int, stop: int) -> bool:
    """Say whether ``data[start:stop]`` is as the entries of a directory say; also sets ``directory.torn``."""
    if directory.count:
        if directory.lowest_at < 0 or directory.first < start:
            return False
        firsts = islice(entries(window, directory.begin, directory.end), 8)
        samples = sorted((*directory.samples, *(place for place, _ in firsts)))
        lowest_at = directory.lowest_at if directory.places is None else directory.begin
        right, directory.torn = _compare_headers(window, directory, [lowest_at, *samples], start)
        if not right or any(_denies(window, directory, place) for place in directory.odd):
            return False
    before, behind = directory.first, directory.finish
    if _has_locals(window, behind, stop, stop):
        return False
    if _has_locals(window, start, before, before):
        directory.stale = directory.shift == start and _is_exact(window, directory)
        if not directory.stale:
            return False
    reach = directory.begin - directory.shift + TOLERANCE
    return directory.places is not None or not (directory.count and directory.ordered and directory.reached > reach)


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


# -- recognising an archive by its end, or by records anywhere in the data --------------------------------------------

# Bytes read at the end: the longest comment, and the record before it.
TAIL_READ: Final = 64 * KIB + END_SIZE
# Bytes read of a directory.
_ENTRIES_READ: Final = 4 * KIB
# The most end records in the tail that are checked.
_MOST_CHECKED: Final = 8
# Bytes searched at the front, and the most local headers checked there.
_FRONT: Final = 64 * KIB
_MOST_TRIED: Final = 64
# Longer records are not searched: reading one at each of many false signatures would take too long.
_LONGEST: Final = 8 * KIB
# The first bytes of a set of several parts (APPNOTE 8.5.4).
_SPANNED: Final = b"PK\x07\x08"
_SIGNS: Final = lazy_pattern(rb"PK(?:\x03\x04|\x01\x02)")


def match_front(head: bytes) -> Confidence:
    """Return CERTAIN if a document that begins with ``head`` begins with a plausible header or an empty directory."""
    head = head.removeprefix(_SPANNED)
    header = local_at(BytesData(head), 0, len(head))
    if header is not None and header.is_sane():
        return Confidence.CERTAIN
    record = read_end(head[:END_SIZE])
    return Confidence.CERTAIN if record is not None and not record.size else Confidence.NO


def match_zip(data: Data, start: int, end: int) -> Confidence:
    """Implement `ZipParser.probe` for ``data[start:end]``."""
    head = data.known(start, min(end - start, LOCAL_SIZE))
    if head.startswith(LOCAL):
        header = local_at(data, start, end)
        if header is not None and header.is_sane():
            return Confidence.CERTAIN
        cut = end - start < LOCAL_SIZE or (len(head) == LOCAL_SIZE and start + local_length(head) > end)
        if header is None and cut and may_be_local(head):
            return Confidence.LIKELY
        if _leads_on(data, start, end):
            return Confidence.LIKELY
        if data.size is None:
            return Confidence.NO
        by_tail = match_tail(data, start, end, TAIL_READ)
        return Confidence.POSSIBLE if not by_tail and _one_leads_on(data, start, end) else by_tail
    if end - start < END_SIZE:
        return Confidence.NO
    if data.size is None:  # do not decode a stream to its end for this
        return _match_broken(data, start, end, head)
    by_tail = match_tail(data, start, end, TAIL_READ)
    if by_tail:
        return by_tail
    if _match_broken(data, start, end, head):
        return Confidence.LIKELY
    # After a program that unpacks it, without a directory; any program may contain a signature.
    return Confidence.POSSIBLE if _one_leads_on(data, start, end) else Confidence.NO


def _one_leads_on(data: Data, start: int, end: int) -> bool:
    """Say whether one of the first local headers near the beginning leads to another record."""
    places = local_headers(data, start, min(start + _FRONT, end), end, _LONGEST)
    return any(_leads_on(data, at, end) for at, _ in zip(places, range(_MOST_TRIED), strict=False))


def _match_broken(data: Data, start: int, end: int, head: bytes) -> Confidence:
    """Look for an archive whose first signature is damaged."""
    header = local_at(data, start, end, broken=True)
    if header is None or not header.is_sane():
        return Confidence.NO
    if sum(have == meant for have, meant in zip(head, LOCAL, strict=False)) >= 2:
        return Confidence.LIKELY
    follows = next(local_headers(data, start + header.length, min(start + _FRONT, end), end, _LONGEST), None)
    return Confidence.LIKELY if follows is not None else Confidence.NO


def match_tail(data: Data, start: int, end: int, tail: int, *, at_end: bool = False) -> Confidence:
    """Return LIKELY if an end record in the last ``tail`` bytes of ``data[start:end]`` leads to a directory.

    Return POSSIBLE if its position shows that the beginning of the archive is lost. With ``at_end``, only zeros may
    follow.
    """
    low = max(start, end - tail)
    block = data.known(low, end - low)
    place, best = len(block), Confidence.NO
    for _ in range(_MOST_CHECKED):
        place = block.rfind(END, 0, place + len(END) - 1)
        if place < 0:
            break
        found = read_end_at(data, low + place, start, end)
        if found is None or found[0].disks_differ:
            continue
        record, stop = found
        if at_end and block[place + record.length :].strip(b"\0"):
            continue
        if not record.size:
            if not record.entries and record.offset in (0, stop - start) and low + place + record.length >= end:
                return Confidence.LIKELY
            continue
        for begin, first in ((stop - record.size, stop - record.size - record.offset), (start + record.offset, start)):
            if start <= begin < stop and _is_directory(data, begin, stop):
                best = max(best, Confidence.LIKELY if first >= start else Confidence.POSSIBLE)
        if best is Confidence.LIKELY:
            break
    return best


def _is_directory(data: Data, begin: int, stop: int) -> bool:
    """Say whether entries follow each other from ``begin`` on, as far as is read."""
    near = min(stop, begin + _ENTRIES_READ)
    reached, count = begin, 0
    for at, entry in entries(data, begin, near):
        reached, count = at + entry.length, count + 1
    if not count:  # one entry that is longer than that
        longer = entry_at(data, begin, stop)
        return longer is not None and begin + longer.length <= stop
    return reached >= near or data.known(reached, 4)[:2] == b"PK"


def _leads_on(data: Data, at: int, end: int) -> bool:
    """Say whether another record follows the member whose local header is at ``at``."""
    header = local_at(data, at, end)
    if header is None or header.compressed_size is None or header.flags & STREAMED:
        return False
    return data.known(at + header.length + header.compressed_size, 4) in (LOCAL, CENTRAL)


def find_record(data: Data, start: int, end: int, poll: Callable[[], object]) -> int | None:
    """Return the offset of the first plausible local header or directory entry in ``data[start:end]``."""
    for low, block in windows(data, start, end, BLOCK, len(LOCAL) - 1):
        poll()
        for match in _SIGNS.finditer(block):
            at = low + match.start()
            if match[0] == LOCAL:
                head = data.known(at, min(LOCAL_SIZE, end - at))
                likely = len(head) == LOCAL_SIZE and may_be_local(head) and local_length(head) <= _LONGEST
            else:
                head = data.known(at, min(CENTRAL_SIZE, end - at))
                likely = len(head) == CENTRAL_SIZE and central_length(head) <= _LONGEST
            if not likely:
                continue
            found = local_at(data, at, end) if match[0] == LOCAL else entry_at(data, at, end)
            if found is not None and found.is_sane():
                return at - start
    return None
