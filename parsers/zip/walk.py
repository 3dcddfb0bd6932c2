"""Finds the records of a zip archive: what is at a position, and where the next record begins.

A header is judged by its known bytes. One that is broken, or lost in a gap, is found through the directory.
"""

from __future__ import annotations

import re

from pparse.lazy import lazy_pattern
from pparse.parsers.zip.descriptors import match_descriptor
from pparse.parsers.zip.directory import BLOCK
from pparse.parsers.zip.extent import Summing, Work, measure
from pparse.parsers.zip.hints import Hints
from pparse.parsers.zip.records import (
    CENTRAL,
    CENTRAL_SIZE,
    CODEC_OF_METHOD,
    DESCRIPTOR,
    ENCRYPTED,
    END,
    END64,
    EXTRA_DATA,
    LOCAL,
    LOCAL_SIZE,
    LOCATOR,
    LOCATOR_SIZE,
    MASKED,
    SIGNATURE,
    STORED,
    STREAMED,
    CentralEntry,
    LocalHeader,
    central_length,
    extra_fields,
    local_length,
    read_central,
    read_end,
    read_local,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data, Gap
    from pparse.tree.host import Session

_RECORDS: Final = lazy_pattern(rb"PK(?:\x03\x04|\x01\x02|\x05\x06|\x06\x06)")
_LOCALS: Final = lazy_pattern(re.escape(LOCAL))
_BOUNDARIES: Final = (CENTRAL, END, END64, EXTRA_DATA)
# Lengths of data descriptors, the likelier ones first.
LENGTHS: Final = (24, 16, 20, 12)
# For how many members with a lost header the begin of their bytes is remembered.
_MOST_STARTS: Final = 4096
# Bytes read for a header; beyond one that claims to be long, since others may claim as much right behind it.
_AHEAD: Final = 64 << 10
SHORT: Final = 4 << 10


class Walker:
    """Reads the records in ``data[start:end]``."""

    def __init__(self, data: Data, start: int, end: int, session: Session) -> None:
        self.data = data
        self.start = start
        self.end = end
        self.session = session
        self.hints = Hints(data, start, end, session.budget)
        self._block = b""
        self._block_at = 0
        self._unknown: list[tuple[int, int]] = []
        self.work = Work(end - start)
        self.unsure: set[int] = set()  # positions of those without an agreeing CRC
        self._starts: dict[int, int] = {}  # for members with a lost header: its position, and where the bytes begin

    def read(self, pos: int, count: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return bytes at ``pos``, unknown ones as zeros, and the unknown ranges, relative to ``pos``."""
        count = min(count, self.end - pos)
        if count <= 0:
            return b"", []
        at = pos - self._block_at
        if at < 0 or at + count > len(self._block):
            size = max(SHORT, min(4 * count, count + _AHEAD))
            self._block, self._unknown = self.data.read_known(pos, min(size, self.end - pos))
            self._block_at, at = pos, 0
        stretches = [
            (first - pos, length) for first, length in self._unknown if first < pos + count and first + length > pos
        ]
        return self._block[at : at + count], stretches

    def _at_hand(self, pos: int, count: int) -> bytes:
        """Return up to ``count`` bytes at ``pos``, no fewer than a signature has but at the end."""
        self.read(pos, 4)
        at = pos - self._block_at
        return self._block[at : at + count]

    def _entry_at(self, pos: int) -> CentralEntry | None:
        """Return the entry of a directory at ``pos``, if all of it but a comment is known."""
        head, unknown = self.read(pos, CENTRAL_SIZE)
        if len(head) == CENTRAL_SIZE and not unknown:
            head, unknown = self.read(pos, central_length(head))
        return read_central(head[: max(0, unknown[0][0])] if unknown else head)

    def header_at(self, pos: int) -> LocalHeader | None:
        """Return the local header at ``pos``, as far as it is known; None if there is none."""
        head, unknown = self.read(pos, LOCAL_SIZE)
        if len(head) < LOCAL_SIZE or not head.startswith(LOCAL) or _meets(unknown, 26, 30):
            return None
        length = local_length(head)
        block, unknown = self.read(pos, length)
        header = read_local(block)
        if header is None or (unknown and (inexact_gap(self.data, pos, pos + length) or not header.mask(unknown))):
            return None
        if not header.is_sane() and not self._leads_on(pos, header):
            return None
        if header.extra and not self._is_extra(pos + LOCAL_SIZE + len(header.raw_name), header):
            header.length -= len(header.extra)
            header.extra = b""
        return header

    def _leads_on(self, pos: int, header: LocalHeader) -> bool:
        """Say whether a record follows the member of a header with an odd name, method or flag."""
        if header.compressed_size is None or (header.flags & STREAMED and not header.compressed_size):
            return False
        end = pos + header.length + header.compressed_size
        signature, unknown = self.read(end, 4)
        return end == self.end or (not unknown and signature in (LOCAL, DESCRIPTOR, *_BOUNDARIES))

    def _is_extra(self, pos: int, header: LocalHeader) -> bool:
        """Say whether the extra field is plausible: a damaged length makes it cover the next records."""
        used = sum(4 + len(value) for _, value in extra_fields(header.extra))
        if used == len(header.extra):
            return True
        for match in _LOCALS.finditer(header.extra):
            at = match.start()
            block, _ = self.read(pos + at, min(self.end - pos - at, LOCAL_SIZE + 256))
            other = read_local(block)
            if other is not None and other.is_sane():
                return False
        return True

    def listed_header(self, pos: int) -> LocalHeader | None:
        """Return the broken local header that should be at ``pos``, if the begin of the bytes can be determined."""
        listed = self.listed_at(pos, meant=True)
        return None if listed is None else listed[0]

    def is_wrong(self, pos: int, header: LocalHeader) -> bool:
        """Return whether the lengths in the local header at ``pos`` are damaged, by what follows the member.

        They are if its bytes would run into the next member, or if those before the next record have the CRC.
        """
        found = self.listed_at(pos, meant=True)
        if found is None or found[0].length == header.length:
            return False
        listed, entry = found
        following = self.hints.next_position(pos + 1)
        if following is not None and pos + header.length > following - entry.compressed_size:
            return True
        return self._sums_up(pos + listed.length, entry)

    def listed_at(self, pos: int, *, meant: bool) -> tuple[LocalHeader, CentralEntry] | None:
        """Return the broken or unknown header that should be at ``pos``, with the values of the directory.

        ``meant``: there is other evidence for this position. Otherwise the name must be there.
        """
        entry = self.hints.entry_for(pos)
        if entry is None or not entry.is_sane():
            return None
        head, unknown = self.read(pos, LOCAL_SIZE + len(entry.raw_name))
        if not unknown and len(head) >= LOCAL_SIZE and head[LOCAL_SIZE:] == entry.raw_name:
            block, unknown = self.read(pos, local_length(head))
            header = read_local(block, broken=True)
            if header is not None and header.raw_name == entry.raw_name:
                if header.method != entry.method:  # also broken
                    header.method, header.flags = entry.method, entry.flags
                return header, entry
        start = self._start_before_next(pos, entry) if meant or unknown or self.hints.whole else None
        if start is None:
            start = self._start_by_content(pos, entry) if self.hints.whole else None
        if start is None:
            return None
        fields = (20, entry.flags, entry.method, entry.time, entry.date, entry.crc, 0, 0)
        header = LocalHeader(fields, entry.raw_name, b"")
        header.compressed_size = header.size = header.crc = None
        header.length = start - pos
        return header, entry

    def broken_at(self, pos: int) -> LocalHeader | None:
        """Return the header with a broken signature at ``pos``, if its sizes lead to the next record."""
        head, unknown = self.read(pos, LOCAL_SIZE)
        if len(head) < LOCAL_SIZE or unknown:
            return None
        block, unknown = self.read(pos, local_length(head))
        header = read_local(block, broken=True)
        if header is None or unknown or not header.is_sane() or header.compressed_size is None:
            return None
        alike = sum(have == meant for have, meant in zip(head, LOCAL, strict=False))
        fits = bool(header.compressed_size) and self.is_boundary(pos + header.length + header.compressed_size)
        return header if alike == 3 or (alike and fits) else None

    def _start_before_next(self, pos: int, entry: CentralEntry) -> int | None:
        """Return where the bytes of a member with a lost local header begin, by their end at the next record."""
        least = pos + LOCAL_SIZE + len(entry.raw_name)
        end = self.hints.next_position(pos + 1)
        if end is None:
            low = least + entry.compressed_size
            end = self.next_record(low, min(low + 0xFFFF + LENGTHS[0], self.end), members=False)
        if not self.is_boundary(end) and self.read(end, 4) != (bytes(4), [(0, 4)]):
            return None
        for length in (*(LENGTHS if entry.flags & STREAMED else ()), 0):
            start: int = end - length - entry.compressed_size
            if not least <= start <= least + 0xFFFF:
                continue
            block, _ = self.read(end - length, length)
            if not length or match_descriptor(block, 0, entry.crc, entry.compressed_size, entry.size) == length:
                return start
        return None

    def _start_by_content(self, pos: int, entry: CentralEntry) -> int | None:
        """Return where the bytes of a member begin if its local header, and perhaps the next record, is lost.

        Name and extra field may be as long as in the directory, or the bytes end where the next record begins. The CRC
        decides; if it agrees with none, the first possible offset is returned. None if there is none.
        """
        known = self._starts.get(pos)
        if known is not None:
            return known
        least = pos + LOCAL_SIZE + len(entry.raw_name)
        end = self.hints.next_position(pos + 1) or self.hints.first_place
        lengths = (*(LENGTHS if entry.flags & STREAMED else ()), 0)
        starts = dict.fromkeys(
            (*(end - length - entry.compressed_size for length in lengths), least + len(entry.extra), least)
        )
        possible = [at for at in starts if least <= at <= least + 0xFFFF and at + entry.compressed_size <= end]
        found = next((at for at in possible if self._sums_up(at, entry)), None)
        if found is None and possible:
            found = possible[0]
            if len(self.unsure) < _MOST_STARTS:
                self.unsure.add(pos)
        if found is not None and len(self._starts) < _MOST_STARTS:
            self._starts[pos] = found
        return found

    def _sums_up(self, start: int, entry: CentralEntry) -> bool:
        """Say whether a member whose bytes begin at ``start`` has the CRC in the directory."""
        end = start + entry.compressed_size
        if entry.flags & (ENCRYPTED | MASKED) or not self.work.spend(entry.compressed_size):
            return False
        if entry.method == STORED:
            return Summing(self.data, start, self.work).at(end) == entry.crc
        if entry.method not in CODEC_OF_METHOD:
            return False
        found = measure(self.data, start, end, entry.method, entry.flags, entry.size, self.session)
        return found.error is None and found.crc == entry.crc

    def find_next(self, pos: int, *, members: bool = True) -> int:
        """Return where the next record of an archive begins, from ``pos`` on; the end of the data if there is none.

        A broken local header is found if the directory is certain of it.
        """
        while True:
            listed = self.hints.next_position(pos) if members else None
            stop = self.end if listed is None else min(listed, self.end)
            found = self.next_record(pos, stop, members=members)
            if found < stop or listed is None or listed >= self.end:
                return found
            if self.header_at(listed) is not None or self.listed_at(listed, meant=False) is not None:
                return listed
            pos = listed + 1

    def next_record(self, low: int, stop: int, *, members: bool = True) -> int:
        """Return where the next record begins in ``[low, stop)``; ``stop`` if there is none."""
        size = SHORT
        while low < stop:
            self.session.check_cancelled()
            wanted = min(size, stop - low + 3, self.end - low)
            # Where one begins right behind the other, the bytes of the one before are at hand.
            block = self._at_hand(low, wanted) if size == SHORT else self.data.read_known(low, wanted)[0]
            for match in _RECORDS.finditer(block):
                at = low + match.start()
                if at >= stop:
                    break
                if (members or match[0] != LOCAL) and self._is_record(at, match[0]):
                    return at
            if len(block) < 4:
                break
            low += len(block) - 3
            size = min(4 * size, BLOCK)
        return stop

    def _is_record(self, at: int, signature: bytes) -> bool:
        if signature == LOCAL:
            return self.header_at(at) is not None
        if signature == CENTRAL:
            entry = self._entry_at(at)
            return entry is not None and entry.is_sane()
        if signature == END:
            record = read_end(self.read(at, 22)[0])
            return record is not None and (record.size <= at - self.start or record.needs_64)
        return int.from_bytes(self.read(at + 4, 8)[0], "little") < 1 << 20

    def is_boundary(self, pos: int) -> bool:
        """Say whether a member may end at ``pos``."""
        if pos >= self.end:
            return pos == self.end
        signature, unknown = self.read(pos, 4)
        if not unknown and signature in _BOUNDARIES:
            return True
        if signature == LOCAL and self.header_at(pos) is not None:
            return True
        return self.listed_at(pos, meant=False) is not None

    def record_length(self, pos: int) -> int:
        """Return the length of the directory record at ``pos``; 0 if there is none."""
        signature, unknown = self.read(pos, 4)
        if unknown or signature[:2] != b"PK":
            return 0
        if signature == CENTRAL:
            entry = self._entry_at(pos)
            return entry.length if entry is not None and entry.is_sane() else 0
        if signature == END:
            record = read_end(self.read(pos, 22)[0])
            if record is None:
                return 0
            # A damaged length must not hide what follows.
            return self.next_record(pos + 22, min(pos + record.length, self.end)) - pos
        if signature == LOCATOR:
            return LOCATOR_SIZE
        length = {
            END64: 12 + int.from_bytes(self.read(pos + 4, 8)[0], "little"),
            SIGNATURE: 6 + int.from_bytes(self.read(pos + 4, 2)[0], "little"),
            EXTRA_DATA: 8 + int.from_bytes(self.read(pos + 4, 4)[0], "little"),
        }.get(signature, 0)
        follows = self.read(pos + length, 4)[0] if length else b""
        return length if follows in (LOCATOR, END, END64, CENTRAL) else 0


def _meets(unknown: list[tuple[int, int]], low: int, high: int) -> bool:
    return any(first < high and first + count > low for first, count in unknown)


def inexact_gap(data: Data, low: int, high: int) -> Gap | None:
    """Return the first gap of unknown length in ``[low, high)``; one without an end counts."""
    gap = data.next_gap(low) if data.gaps else None
    while gap is not None and gap.offset < high:
        if not gap.exact or gap.length is None:
            return gap
        gap = data.next_gap(gap.offset + gap.length)
    return None
