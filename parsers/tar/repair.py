"""Decides about a member of a tar archive when something around it is wrong: its end, size and tail."""

from __future__ import annotations

from pparse.data.base import Gap
from pparse.data.spliced import MissingData
from pparse.findings import Status
from pparse.limits import KIB, MIB, count_words
from pparse.parsers.tar.headers import BLOCK, TarHeader
from pparse.parsers.tar.source import Blank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.reader import Range
    from pparse.parsers.tar.source import TarSource
    from pparse.parsers.tar.walk import TarWalker

_CHAIN: Final = 1_000  # headers followed to check a size
SEARCHED: Final = 16 * MIB  # bytes of a truncated member that are always searched for headers
# How far the length of a gap may be from what was estimated: a factor, and bytes.
_FACTOR: Final = 16
_SLACK: Final = 256 * KIB


def padded(size: int) -> int:
    """Return how many bytes ``size`` bytes take in whole blocks."""
    return size + (-size % BLOCK)


class Body:
    """The stored bytes ``[start, end)`` of a member."""

    __slots__ = ("code", "end", "next", "pieces", "place", "reason", "shifted", "size", "start", "status")

    def __init__(self, start: int, size: int | None) -> None:
        self.start = start
        """Offset of the first byte."""
        self.size = size
        """Declared size; None if it is not known."""
        self.end = start + (size or 0)
        """Offset after the last byte."""
        self.next = start + padded(size or 0)
        """Offset at which to continue."""
        self.pieces: tuple[Range, ...] | None = None
        """The parts of the content, if it is not simply ``[start, end)``."""
        self.status = Status.COMPLETE
        self.code = ""
        self.reason = ""
        self.place: tuple[int, int] | None = None
        """Offset and length of the wrong bytes, if known."""
        self.shifted = False
        """Whether bytes are missing or came in at an unknown place, so that any of them may stand at a wrong one."""

    def spoil(self, status: Status, code: str, reason: str) -> None:
        """Set what is wrong; the first reason stays."""
        if not self.reason:
            self.status, self.code, self.reason = status, code, reason

    def shift(self, code: str, reason: str) -> None:
        """Note that bytes of it are missing, or came in, at an unknown place."""
        self.spoil(Status.DAMAGED, code, reason)
        self.shifted = True


def trusts_end(source: TarSource, start: int, end: int) -> bool:
    """Say whether to search a member that ends beyond the data for headers.

    Truncated archives are common and wrong sizes are rare, so a large member is searched only if the data end as a
    complete archive does, with two blocks of zeros.
    """
    if end - start <= SEARCHED:
        return True
    raw, unknown = source.read(end - 2 * BLOCK, 2 * BLOCK)
    return not unknown and not raw.strip(b"\0")


def leads_past(source: TarSource, pos: int, end: int, data_end: int | None) -> bool:
    """Say whether the members from the header at ``pos`` on lead past ``end``, the declared end of another member.

    In a nested archive, they do not. ``data_end`` is the end of the data if that is before ``end``: then members that
    lead exactly to it, zeros included, count, too.
    """
    for _ in range(_CHAIN):
        found = source.probe(pos)
        if isinstance(found, TarHeader):
            size = 0 if found.letter in b"123456V" else found.size or 0
            pos += BLOCK + padded(size)
            if pos > end:
                return True
            if data_end is not None and pos > data_end:
                return False
            continue
        if found is Blank.ZERO:
            after = source.skip_zeros(pos)
            if data_end is not None and source.probe(after) in (Blank.END, Blank.CUT):
                return True
            if after >= end:
                return False
            pos = max(after, pos + BLOCK)
            continue
        return data_end is not None and found is Blank.END
    return True


def holds_archive(source: TarSource, pos: int, end: int) -> bool:
    """Say whether the members from the header at ``pos`` on are a whole archive: zeros follow, up to ``end``."""
    for _ in range(_CHAIN):
        found = source.probe(pos)
        if not isinstance(found, TarHeader):
            return found is Blank.ZERO and source.skip_zeros(pos) == end
        size = 0 if found.letter in b"123456V" else found.size or 0
        pos += BLOCK + padded(size)
    return True


def rejoin(walker: TarWalker, body: Body, gap: Gap) -> None:
    """Put a member together around gaps of unknown length, the first of them ``gap``.

    Its tail is the bytes before the next header, if its size leaves room for them; the number of lost bytes follows.
    """
    source, size = walker.source, body.size or 0
    after = walker.search_from(gap.offset + (gap.length or 0), None)
    if after is None:
        _to_the_end(source, body)
        return
    gaps = _gaps_between(source, gap, after)
    room = body.next - body.start  # with padding
    known = after - body.start - sum(found.length or 0 for found in gaps)
    missing = room - known
    expected = sum(found.length or 0 for found in gaps)
    fits = 0 <= missing <= _FACTOR * expected + _SLACK and missing * _FACTOR + _SLACK >= expected
    last = gaps[-1].offset + (gaps[-1].length or 0)
    padding = min(room - size, after - last)
    if not fits or source.read(after - padding, padding)[0].strip(b"\0"):
        end = gap.offset
        body.spoil(Status.DAMAGED, "gap", f"bytes are lost after the first {end - body.start:,} of its {size:,} bytes")
        body.end = body.next = end
        return
    body.pieces = _pieces(source, body, gaps, missing, after, size)
    body.end = body.next = after
    lost = f"{count_words(missing, 'byte')} lost in {count_words(len(gaps), 'gap')}"
    body.spoil(Status.DAMAGED, "gap", lost)


def _gaps_between(source: TarSource, first: Gap, end: int) -> list[Gap]:
    found = [first]
    while (gap := source.gap_in(found[-1].offset + (found[-1].length or 0), end)) is not None:
        found.append(gap)
    return found


def _pieces(source: TarSource, body: Body, gaps: list[Gap], missing: int, after: int, size: int) -> tuple[Range, ...]:
    """Return the known parts of a member, and the lost ranges between; a single one has a known length."""
    pieces: list[Range] = []
    expected = sum(gap.length or 0 for gap in gaps)
    pos, left, estimated = body.start, size, 0
    for number, gap in enumerate(gaps):
        share = missing - estimated
        if number < len(gaps) - 1:
            share = missing * (gap.length or 0) // expected if expected else 0
            estimated += share
        lost = MissingData(share)
        if len(gaps) > 1 and share:
            lost.gaps = (Gap(0, share, exact=False),)
        for data, start, end in ((source.data, pos, gap.offset), (lost, 0, share)):
            count = min(end - start, left)
            if count > 0:
                pieces.append(data.range(start, start + count))
                left -= count
        pos = gap.offset + (gap.length or 0)
    count = min(after - pos, left)
    if count > 0:
        pieces.append(source.data.range(pos, pos + count))
    return tuple(pieces)


def _to_the_end(source: TarSource, body: Body) -> None:
    """Give the rest of the data to the member, as far as its size allows, since no header follows."""
    end = source.known_end()
    tail = source.trim_zeros(body.start, end)
    body.end, body.next = min(body.end, tail), max(min(body.next, end), min(body.end, tail))
    body.spoil(Status.DAMAGED, "gap", "an unknown number of its bytes is lost")
