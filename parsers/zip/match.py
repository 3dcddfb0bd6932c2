"""Recognises a zip archive by its end, or by records anywhere in the data."""

from __future__ import annotations

from pparse.data.base import BytesData
from pparse.lazy import lazy_pattern
from pparse.limits import KIB
from pparse.parsers.zip.attributes import STREAMED
from pparse.parsers.zip.directory import (
    BLOCK,
    CENTRAL,
    CENTRAL_SIZE,
    END,
    END_SIZE,
    LOCAL,
    LOCAL_SIZE,
    central_length,
    entries,
    entry_at,
    local_at,
    local_headers,
    local_length,
    may_be_local,
    read_end,
    read_end_at,
)
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.data.base import Data

# Bytes read at the end: the longest comment, and the record before it.
TAIL_READ: Final = 64 * KIB + END_SIZE
# Bytes read of a directory.
_ENTRIES_READ: Final = 4 * KIB
# The most end records in the tail that are checked.
_MOST_ENDS: Final = 8
# Bytes searched at the front, and the most local headers checked there.
_HEAD: Final = 64 * KIB
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
    places = local_headers(data, start, min(start + _HEAD, end), end)
    return any(_leads_on(data, at, end) for at, _ in zip(places, range(_MOST_TRIED), strict=False))


def _match_broken(data: Data, start: int, end: int, head: bytes) -> Confidence:
    """Look for an archive whose first signature is damaged."""
    header = local_at(data, start, end, broken=True)
    if header is None or not header.is_sane():
        return Confidence.NO
    if sum(have == meant for have, meant in zip(head, LOCAL, strict=False)) >= 2:
        return Confidence.LIKELY
    follows = next(local_headers(data, start + header.length, min(start + _HEAD, end), end), None)
    return Confidence.LIKELY if follows is not None else Confidence.NO


def match_tail(data: Data, start: int, end: int, tail: int, *, at_end: bool = False) -> Confidence:
    """Return LIKELY if an end record in the last ``tail`` bytes of ``data[start:end]`` leads to a directory.

    Return POSSIBLE if its position shows that the beginning of the archive is lost. With ``at_end``, only zeros may
    follow.
    """
    low = max(start, end - tail)
    block = data.known(low, end - low)
    place, best = len(block), Confidence.NO
    for _ in range(_MOST_ENDS):
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
    low = start
    while low < end:
        poll()
        block, _ = data.read_known(low, min(BLOCK, end - low))
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
        if len(block) < len(LOCAL):
            return None
        low += len(block) - len(LOCAL) + 1
    return None
