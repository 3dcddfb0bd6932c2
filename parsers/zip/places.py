"""Where the members are whose directory has no offsets from the beginning of the archive.

- **A split archive, joined** (``zip -s``; APPNOTE.TXT 4.4.16, 8): each offset counts from the beginning of the part
  that the entry names. How large the parts were is known if they are files of their own; in one file, the first member
  of each part is looked for behind the one before it.
- **An archive above 4 GiB without zip64 fields**, as Archive Utility and ``ditto`` of macOS write them: offsets, sizes
  and those in descriptors are modulo 2^32. Members follow each other in the order of the directory, so an offset counts
  from the least multiple of 2^32 at which a header of that name stands; a member is larger than its entry says if more
  than 2^32 bytes lie between it and the next one. minizip-ng (#431), yauzl-promise and 7-Zip find them likewise.
"""

from __future__ import annotations

from bisect import bisect_right

from pparse.parsers.zip import attributes
from pparse.parsers.zip.directory import LOCAL, LOCAL_SIZE, entries, local_headers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from pparse.data.window import Window
    from pparse.parsers.zip.directory import CentralEntry, EndRecord

# Behind the bytes of a member: the longest extra field of its header, and its descriptor.
_BETWEEN: Final = 0xFFFF + 24
# More parts no split zip has; a hostile one may say so.
_MOST_PARTS: Final = 10_000
# How many headers may be looked for in vain.
_MOST_LOST: Final = 1_000
# By so many bytes a member may begin before the one in front of it ends, as the directory has it.
_TOLERANCE: Final = 32


class Places:
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
) -> list[Places]:
    """Return what the offsets of the entries in ``[begin, end)`` may count from, the likelier first; mostly nothing.

    ``parts`` are the sizes of the files that the data are joined from.
    """
    if record.disk:
        known = _by_part(window, begin, end, [start + sum(parts[:part]) for part in range(len(parts))])
        return [places for places in (known, _joined(window, begin, end, start)) if places is not None]
    apart = begin - record.offset - start
    wrapped = apart > 0 and not apart % attributes.WRAP
    places = _wrapped(window, begin, end, start) if wrapped else None
    return [] if places is None else [places]


def _by_part(window: Window, begin: int, end: int, starts: Sequence[int]) -> Places | None:
    places, disk = Places(), 0
    for place, entry in entries(window, begin, end):
        if not disk <= entry.disk < len(starts):
            return None
        disk = entry.disk
        new = places.base(place) != starts[entry.disk]
        if new and not _is_headed(window, starts[entry.disk] + entry.offset, entry, lost=True):
            return None
        places.add(place, starts[entry.disk])
    return places


def _joined(window: Window, begin: int, end: int, start: int) -> Places | None:
    """Find where each part begins by its first member; None if it does not stand behind the one before it."""
    places, disk, base, least = Places(), 0, start, start
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


def _wrapped(window: Window, begin: int, end: int, start: int) -> Places | None:
    """Find what multiple of 2^32 each offset counts from; None if members do not follow each other."""
    places, base, wrap = Places(), start, attributes.WRAP
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
