"""Goes on where something around a member of a tar archive is wrong: its end, size, tail or header.

`TarMender.mend` settles the bytes of every member; `TarMender.lost` and `TarMender.cut_header` say what stands where no
header is, or not all of one. The rules:

- A member must be followed by a header, zeros or the end. If it is not, and a header *inside* of its declared size
  leads past the member's end, the size is wrong: the member ends at that header.
- A header a few bytes *after* the expected position, preceded by the member's padding, means that as many bytes were
  inserted into the member: it is that much longer.
- A block in place of a header that is not one counts as a destroyed header. The bytes between it and the next header
  are a ``gap`` (or a file, if extended headers before it survive that name it).
- After a gap of unknown length no position is known: the next header is searched at any offset. If the size of the
  member around the gap leaves room for it, the bytes before that header are its tail.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import namedtuple
from operator import itemgetter

from pparse.containers.archive import ArchiveMember
from pparse.data.base import Access, Gap
from pparse.data.spliced import MissingData
from pparse.data.trailing_bytes import trailing_severity
from pparse.findings import Status
from pparse.limits import KIB, MIB, count_words
from pparse.parsers.tar.headers import BLOCK, EXTENDED, TarHeader, padded, read_header, text_of
from pparse.parsers.tar.source import Blank, judge_header, size_that_fits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Range
    from pparse.parsers.tar.headers import Attributes
    from pparse.parsers.tar.source import TarSource

_FIRST: Final = 8 * KIB  # bytes searched at a time for a header: at first, and at most
_SEARCH: Final = 256 * KIB
_MAGIC: Final = b"ustar"
_UNPADDED: Final = "no padding follows it: some of its bytes are damaged, missing or inserted"
_RECORD: Final = 20 * BLOCK  # what most writers fill an archive up to
_MOST_SHIFTED: Final = 8 << 10  # how far after a member the rest of a torn header is searched
_CHAIN: Final = 1_000  # headers followed to check a size
_SEARCHED: Final = 16 * MIB  # bytes of a truncated member that are always searched for headers
# How far the length of a gap may be from what was estimated: a factor, and bytes.
_FACTOR: Final = 16
_SLACK: Final = 256 * KIB


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


class StepOutcome(namedtuple("StepOutcome", "member pos status finding blank", defaults=(None, None, (None, None)))):
    """The result of a step.

    ``member``: None if there are no more; ``pos``: where to continue, None at the end; ``status`` and ``finding``: what
    the archive gets from it, None for no change; ``blank``: the same two for zeros before the member.
    """

    __slots__ = ()


class TarMender:
    """Decides about the members of an archive, whose blocks are ``source``."""

    def __init__(self, source: TarSource) -> None:
        self.source = source
        self.unpadded: int | None = None  # the end of the data, if inside the padding of the last member
        self._found: tuple[int, int | None, int | None] | None = None  # the last search: start, grid modulo 512, result

    def search_from(self, pos: int, grid: int | None) -> int | None:
        """Return the position of the first header at or after ``pos``; None if there is none.

        A header with a magic and a right checksum counts at any offset. On the grid (any position of a block, if
        known), a header without magic (v7), or with only its checksum damaged, counts, too. The last search is not
        repeated.
        """
        rest = None if grid is None else grid % BLOCK
        known = self._found
        if known is not None and known[0] <= pos and known[1] == rest and (known[2] is None or pos <= known[2]):
            return known[2]
        found = self._search(pos, grid)
        self._found = (pos, rest, found)
        return found

    def _search(self, pos: int, grid: int | None) -> int | None:
        source, session = self.source, self.source.extraction.session
        step = _FIRST
        with session.budget.charge(2 * _SEARCH, "a search for headers"):
            while True:
                session.check_cancelled()
                raw, unknown = source.read(pos, step)
                gap = source.gap_in(pos, pos + step)  # afterwards: reading may have found it
                if gap is not None:
                    raw = raw[: max(0, gap.offset - pos)]
                found = first_header(raw, unknown, pos, grid) if len(raw) >= BLOCK else None
                if found is not None:
                    return found
                if gap is not None and gap.length is not None:
                    pos, grid = gap.offset + gap.length, None
                elif len(raw) < BLOCK:
                    return None
                else:
                    pos += len(raw) - BLOCK + 1
                    step = min(4 * step, _SEARCH)

    def outcome(self, member: ArchiveMember, body: Body) -> StepOutcome:
        """Return the outcome for a member, with what is wrong with its bytes."""
        if not body.reason:
            return StepOutcome(member, body.next)
        member.status, member.shifted = body.status, body.shifted
        place, length = body.place or (member.start, member.compressed_size)
        member.finding = self.source.finding(body.code, body.reason, place, length, name=member.name)
        return StepOutcome(member, body.next, body.status, member.finding)

    # -- the bytes of a member ---------------------------------------------------------------------------------------

    def mend(self, body: Body, header: TarHeader, pos: int) -> None:
        """Settle where the bytes of a member end, and what is wrong with them; ``header`` is at ``pos``."""
        source, start, size = self.source, body.start, body.size
        if size is None:
            self._until_header(body, pos, header)
            return
        there = source.reach(start, body.next)
        gap = source.gap_in(start, min(there, body.next))
        if gap is not None and gap.offset < body.end:
            self._rejoin(body, gap)
        elif gap is not None:
            body.next = gap.offset  # the content is whole; its padding is lost
        elif there < body.end:
            self._cut_body(body, pos, there, header.sound)
        elif there < body.next:
            body.next = self.unpadded = there
        elif not header.sound:
            self._check_suspect(body, pos)
        elif source.is_bad(body.next):
            self._check_size(body, pos)
        elif source.probe(body.next) in (Blank.ZERO, Blank.END) and size:
            self._check_last(body, pos)
        self._note_lost(body)

    def _note_lost(self, body: Body) -> None:
        """Record gaps of known length."""
        if body.pieces is None and self.source.data.gaps:
            lost, count = self.source.lost_in(body.start, body.end)
            if lost:
                reason = f"{count_words(lost, 'byte')} lost in {count_words(count, 'gap')}"
                body.spoil(Status.DAMAGED, "gap", reason)
        if body.pieces is None:
            self._note_unwritten(body)

    def _note_unwritten(self, body: Body) -> None:
        """Record the ranges of a member that were never written: its end is missing, or bytes inside are lost."""
        found = self.source.unwritten_in(body.start, body.end)
        if not found:
            return
        first, size = found[0][0], body.end - body.start
        lost = sum(high - low for low, high in found)
        never = "never written (a file hole): they read as zeros"
        if len(found) == 1 and found[0][1] >= body.end:
            reason = f"it ends after {first - body.start:,} of {size:,} bytes: the other {lost:,} were {never}"
            body.spoil(Status.TRUNCATED, "unwritten", reason)
        else:
            body.spoil(Status.DAMAGED, "unwritten", f"{lost:,} of its {size:,} bytes were {never}")
        if body.code == "unwritten":
            body.place = first, found[-1][1] - first

    def _until_header(self, body: Body, pos: int, header: TarHeader) -> None:
        """Handle a lost size: the member extends to the next header, or as the intact digits of its size say."""
        after = self.search_from(body.start, pos)
        if after is None:
            body.next = max(body.start, self.source.find_end())  # its header may be cut off
            body.end = self.source.trim_zeros(body.start, body.next)
        else:
            body.end = body.next = after
        if self.source.gap_in(body.start, body.end) is None:
            body.size = size_that_fits(header.raw[124:136], body.end - body.start)
        if body.size is not None:
            body.end = body.start + body.size
            body.spoil(Status.DAMAGED, "malformed", "its size was damaged; restored from what follows")
        else:
            body.spoil(Status.DAMAGED, "malformed", "its size cannot be read; assumed to end at the next header")

    def _cut_body(self, body: Body, pos: int, there: int, sound: bool) -> None:
        """Handle data that end inside the member, unless its size is wrong."""
        if trusts_end(self.source, body.start, there):
            after = self.search_from(body.start, pos)
            after = after if not sound or after != body.start else None
            if after is not None and leads_past(self.source, after, body.next, there):
                self._cut_at(body, after, sound=sound)
                return
        body.spoil(Status.TRUNCATED, "truncated", f"it ends after {there - body.start:,} of {body.size or 0:,} bytes")
        body.end = body.next = there

    def _check_size(self, body: Body, pos: int) -> None:
        """Handle a member without a header after it: its size is wrong, or the next header is destroyed."""
        after = self.search_from(body.start, pos)
        if after is None:
            if self._has_more(body):
                body.shift("malformed", _UNPADDED)
        elif after < body.next:
            if after > body.start or leads_past(self.source, after, body.next, None):
                self._cut_at(body, after)
            else:
                self._check_nested(body, pos)
        elif after > body.next:
            self._check_behind(body, after)

    def _check_behind(self, body: Body, after: int) -> None:
        """Handle a member whose next header comes late."""
        if not self._has_grown(body, after):
            if self._has_more(body) and (after - body.start) % BLOCK == 0:
                # Only on the grid: if bytes are missing or inserted, the sizes are right, and headers may be lost.
                self._cut_at(body, after)
            elif self._has_more(body):
                body.shift("malformed", _UNPADDED)
            elif (after - body.next) % BLOCK and not self._header_was_here(body, after):
                body.shift("malformed", "what follows it is shifted: bytes were inserted there")

    def _check_nested(self, body: Body, pos: int) -> None:
        """Handle an archive in the archive without a header after it: if bytes of it are missing, the next header lies
        before its declared end, if bytes came in, behind it. Headers of its own, which may be there, too, do not lead
        past that."""
        after = self.search_from(max(body.start + 1, body.next - _MOST_SHIFTED), pos)
        for _ in range(_MOST_SHIFTED // BLOCK):
            if after is None or after >= body.next:
                if after is not None and after > body.next:
                    self._check_behind(body, after)
                return
            if leads_past(self.source, after, body.next, None):
                self._cut_at(body, after)
                return
            after = self.search_from(after + 1, pos)

    def _has_grown(self, body: Body, after: int) -> bool:
        """Say whether bytes were inserted into the member, so that it extends beyond its size; if so, move its end.

        The header at ``after`` is then as far from its expected position as there are inserted bytes. The member's
        padding comes before it, and no other header was lost.
        """
        more = after - body.next
        padding, unknown = self.source.read(body.end + more, body.next - body.end)
        if more > _MOST_SHIFTED or unknown or padding.strip(b"\0"):
            return False
        if (more % BLOCK == 0 and not self._has_more(body)) or self._header_was_here(body, after):
            return False
        body.shift(
            "size", f"bytes were inserted: {body.size or 0:,} are declared, and it has {count_words(more, 'byte')} more"
        )
        body.end, body.next, body.size = body.end + more, after, body.end + more - body.start
        return True

    def _check_last(self, body: Body, pos: int) -> None:
        """Handle a member followed by zeros, or nothing: if bytes of it are missing, it reaches over the last headers.

        A header across its end, in place of padding, shows that; or an empty member right before the zeros, if its
        header is the only one inside. A nested archive begins with a header, and has more of them. Or the archive ends
        with less than a record, and the zeros in the member's end follow members of the archive.
        """
        source = self.source
        if source.data.access is not Access.FREE or isinstance(source.probe(body.start), TarHeader):
            return  # decoded data should not be read backwards
        tail = source.trim_zeros(max(body.start, body.next - _MOST_SHIFTED), body.next)
        is_odd = (source.find_end() - source.start) % _RECORD and body.next - body.start <= _SEARCHED
        last = source.probe(tail - BLOCK) if tail - BLOCK > body.start else None
        if body.end < body.next and self._has_more(body):
            after = self.search_from(body.start, pos)
            if after is not None and after < body.next and leads_past(source, after, body.end, None):
                self._cut_at(body, after)
        elif isinstance(last, TarHeader) and last.sound and not last.size:
            if self.search_from(body.start, pos) == tail - BLOCK:
                self._cut_at(body, tail - BLOCK)
        elif is_odd and body.next - _MOST_SHIFTED < tail <= body.end - 16:
            after = self.search_from(body.start, pos)
            if after is not None and after < tail and holds_archive(source, after, source.find_end()):
                self._cut_at(body, after)

    def _header_was_here(self, body: Body, after: int) -> bool:
        """Say whether the bytes that shift the header at ``after`` lie after the member, in the header after it.

        The magic of that header is left. Or the padding is all zeros, and a name begins right after it: if bytes had
        been inserted or lost before that, the padding would be different.
        """
        head, unknown = self.source.read(body.next, min(after - body.next, _MOST_SHIFTED))
        if unknown or not head:
            return False
        return _MAGIC in head or (body.end < body.next and head[0] != 0 and not self._has_more(body))

    def _has_more(self, body: Body) -> bool:
        """Say whether the padding of a member is not all zeros."""
        padding, _ = self.source.read(body.end, body.next - body.end)
        return bool(padding.strip(b"\0"))

    def _check_suspect(self, body: Body, pos: int) -> None:
        """Handle a damaged header, whose size may be wrong: any header before the member's end decides."""
        after = self.search_from(body.start, pos)
        if after is None:
            if self._has_more(body):
                self._cut_at(body, body.next, sound=False)
        elif after < body.next:
            if after > body.start or not holds_archive(self.source, after, body.next):
                self._cut_at(body, after, sound=False)
        elif self._has_more(body) or (after > body.next and self.source.is_bad(body.next)):
            self._cut_at(body, after, sound=False)

    def _cut_at(self, body: Body, after: int, *, sound: bool = True) -> None:
        """Handle a wrong size: the member ends where the next one begins.

        If its header is right, so is the size there, and bytes are missing or came in.
        """
        reason = (
            f"its size is wrong: {body.size or 0:,} bytes are declared, but the next header follows "
            f"after {after - body.start:,}"
        )
        if sound:
            body.shift("size", reason)
        else:
            body.spoil(Status.DAMAGED, "size", reason)
        body.end = body.next = after
        body.size = after - body.start

    def _rejoin(self, body: Body, gap: Gap) -> None:
        """Put a member together around gaps of unknown length, the first of them ``gap``.

        Its tail is the bytes before the next header, if its size leaves room for them; the number of lost bytes
        follows.
        """
        source, size = self.source, body.size or 0
        after = self.search_from(gap.offset + (gap.length or 0), None)
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
            body.spoil(
                Status.DAMAGED, "gap", f"bytes are lost after the first {end - body.start:,} of its {size:,} bytes"
            )
            body.end = body.next = end
            return
        body.pieces = _pieces(source, body, gaps, missing, after, size)
        body.end = body.next = after
        lost = f"{count_words(missing, 'byte')} lost in {count_words(len(gaps), 'gap')}"
        body.spoil(Status.DAMAGED, "gap", lost)

    # -- no header ---------------------------------------------------------------------------------------------------

    def cut_header(self, at: int, pos: int, attributes: Attributes) -> StepOutcome:
        """Handle data that end inside a header: a member without content if it is recognised, else a gap."""
        raw, unknown = self.source.read(pos, BLOCK)
        there = len(raw)
        header = judge_header(raw + bytes(BLOCK - there), [*unknown, (there, BLOCK - there)])
        name = attributes.path or (header.raw_name if header is not None else None)
        end = pos + there
        if name is None or (header is not None and header.letter in EXTENDED):
            member = ArchiveMember(f"gap {pos}", b"", "gap", at, pos, end, end - pos)
        else:
            member = ArchiveMember(text_of(name), name, "file", at, end, end, attributes.size_of(header))
        body = Body(member.start, member.size)
        body.next = end
        body.spoil(Status.TRUNCATED, "truncated", "the archive ends inside its header")
        return self.outcome(member, body)

    def lost(self, at: int, pos: int, zeros: int, attributes: Attributes) -> StepOutcome:
        """Handle a missing header: continue at the next one, and return the bytes before it."""
        source = self.source
        gap = source.gap_in(pos, pos + BLOCK)
        if gap is not None and gap.length is not None:
            after = self.search_from(gap.offset + gap.length, None)
        else:
            after = self.search_from(pos + 1, pos)
        end = after
        if end is None:
            end = source.find_end()
            if end <= pos:  # a gap extends to the end
                reason = "the bytes from here to the end of the archive are lost"
                return StepOutcome(None, None, Status.TRUNCATED, self.source.finding("truncated", reason, pos))
            body_end = source.trim_zeros(pos, end)
        else:
            body_end = end
        name = attributes.path
        body = Body(pos, None)
        body.end, body.next = body_end, end
        if name is not None and gap is None:
            body.start = min(pos + BLOCK, body.end)
            size = attributes.size
            if size is not None and size <= body.end - body.start:
                body.end, body.size = body.start + size, size
                body.next = min(end, body.start + padded(size))
            body.spoil(Status.DAMAGED, "malformed", "its header is destroyed; its name comes from an extended header")
            member = ArchiveMember(text_of(name), name, "file", at, body.start, body.end, body.size)
            return self.outcome(member, body)
        whole = source.gap_in(pos, body.end) is None
        if gap is not None and gap.offset <= pos and (gap.length or 0) >= body.end - pos:
            reason = "an unknown number of bytes is lost here, headers among them"
        elif gap is not None:
            reason = "bytes whose header is lost, up to the next header"
        else:
            reason = f"{count_words(body.end - pos, 'byte')} without a header, up to the next header or the end"
        member = ArchiveMember(f"gap {pos}", b"", "gap", at, pos, body.end, body.end - pos if whole else None)
        if after is None and zeros >= 2 and gap is None and not source.lost_in(pos, body.end)[0]:
            # After the end mark, and not an archive: foreign bytes.
            reason = f"{count_words(body.end - pos, 'byte')} follow the end of the archive"
            length, severity = member.compressed_size, trailing_severity("archive")
            member.finding = source.finding("trailing", reason, pos, length, name=member.name, severity=severity)
            return StepOutcome(member, body.next, None, member.finding)
        body.spoil(Status.DAMAGED, "header", reason)
        return self.outcome(member, body)


def first_header(raw: bytes, unknown: list[tuple[int, int]], base: int, grid: int | None) -> int | None:
    """Return the offset of the first header in ``raw``."""
    last = len(raw) - BLOCK  # offset of the last possible header
    best = last + 1
    place = raw.find(b"ustar", 257)
    while 0 <= place <= last + 257:
        at = place - 257
        aligned = grid is not None and (base + at - grid) % BLOCK == 0
        lost = _within(unknown, at)
        # It must begin with a name: after zero padding, a block without a name may have a right checksum.
        named = raw[at] or (lost and not lost[0][0])
        if named:
            block = raw[at : at + BLOCK]
            header = judge_header(block, lost, aligned=False) if lost or aligned else read_header(block)
            if header is not None:
                best = at
                break
        place = raw.find(b"ustar", place + 1)
    if grid is not None:
        for at in range((grid - base) % BLOCK, best, BLOCK):
            if raw[at] and raw[at + 155] in b"\0 " and read_header(raw[at : at + BLOCK]) is not None:
                return base + at
    return base + best if best <= last else None


def _within(unknown: list[tuple[int, int]], at: int) -> list[tuple[int, int]]:
    """Return the unknown ranges in the block at ``at``, relative to it."""
    found = []
    for first, length in unknown[max(0, bisect_right(unknown, at, key=itemgetter(0)) - 1) :] if unknown else ():
        if first >= at + BLOCK:
            break
        if first + length > at:
            begin = max(first - at, 0)
            found.append((begin, min(first + length - at, BLOCK) - begin))
    return found


def trusts_end(source: TarSource, start: int, end: int) -> bool:
    """Say whether to search a member that ends beyond the data for headers.

    Truncated archives are common and wrong sizes are rare, so a large member is searched only if the data end as a
    complete archive does, with two blocks of zeros.
    """
    if end - start <= _SEARCHED:
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
            pos += BLOCK + found.stored
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
        pos += BLOCK + found.stored
    return True


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
    end = source.find_end()
    tail = source.trim_zeros(body.start, end)
    body.end, body.next = min(body.end, tail), max(min(body.next, end), min(body.end, tail))
    body.spoil(Status.DAMAGED, "gap", "an unknown number of its bytes is lost")
