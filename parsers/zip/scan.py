"""Reads a zip archive from the front, local header by local header, without trusting its directory.

`ZipParser.expect_member` and `ZipParser.resync` call `add_scanned` where the directory is missing or not trusted:
members are what `Scanner` finds. The end of a member's bytes is determined by, in this order of trust:

1. the directory, if a local header with its name is there and the next record, or the descriptor, follows;
2. the local header, if the same holds;
3. the end of the stream itself (deflate and others), perhaps with a descriptor in any of the four layouts;
4. a descriptor that gives exactly this distance and, for stored members, the CRC measured.

A member that fails every check ends at the last good byte, and the search for the next record starts there. A byte of
one member is never read as the header of another, so archives that overlap themselves are harmless.
"""

from __future__ import annotations

from collections import namedtuple

from pparse.containers.archive import ArchiveMember
from pparse.data.range_status import cut_status
from pparse.errors import EndOfDataError, GapError, LimitError, UnsupportedError
from pparse.findings import UNSURE_NAME, Finding, Severity, Status
from pparse.limits import KIB
from pparse.parsers.zip import records
from pparse.parsers.zip.members import blame, has_gap, has_wrong_size, is_refused, member_of
from pparse.parsers.zip.records import (
    CENTRAL,
    CODEC_OF_METHOD,
    DESCRIPTOR,
    ENCRYPTED,
    END,
    END64,
    END_SIZE,
    LAYOUTS,
    LENGTHS,
    LOCAL,
    LOCAL_SIZE,
    MASKED,
    SPLIT_MARKS,
    STORED,
    STREAMED,
    UTF8,
    CentralEntry,
    LocalHeader,
    cut_header,
    cut_record,
    descriptor_before,
    descriptor_crc,
    match_descriptor,
    read_end,
)
from pparse.parsers.zip.walk import SHORT, Descriptors, Measure, Summing, Walker, measure, why_scanned
from pparse.tree.context import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.data.base import Data, Gap, Range
    from pparse.document.extraction import Extraction
    from pparse.parsers.zip.members import ZipNote
    from pparse.parsers.zip.parser import ZipParser
    from pparse.tree.context import NodeContext
    from pparse.tree.host import HostSession


# -- what directory and local header say of a member's bytes, and the stretch that is taken for them -----------------


class Claim(namedtuple("Claim", "compressed_size size crc listed")):
    """Declared values of a member, None if unknown; ``listed``: by the directory."""

    __slots__ = ()


class MemberExtent:
    """The stored bytes ``[start, end)`` of a member, and where scanning continues (``next``)."""

    def __init__(self, start: int, end: int, claim: Claim | None = None, following: int | None = None) -> None:
        self.start = start
        self.end = end
        self.next = end if following is None else following
        self.size: int | None = claim.size if claim is not None else None
        """Size of the content; None if unknown."""
        self.crc: int | None = claim.crc if claim is not None else None
        """CRC-32 of the content; None if unknown."""
        self.compressed_size = end - start
        """Bytes stored, as declared or measured."""
        self.code = self.reason = ""
        """What is wrong, as a code and in words; empty if nothing is."""
        self.cut = False
        """Whether the end is missing."""
        self.missing: int | None = None
        """Number of bytes that are lost somewhere in ``[gap_start, gap_end)``; None if there is no such gap."""
        self.gap_start = self.gap_end = 0
        self.rival: int | None = None
        """A differing CRC-32 from another record."""

    def blame(self, code: str, reason: str, *, cut: bool = False) -> MemberExtent:
        """Set what is wrong, and return this extent."""
        self.code, self.reason, self.cut = code, reason, cut
        return self


def claims_of(header: LocalHeader, entry: CentralEntry | None) -> list[Claim]:
    """Return the values that directory and local header declare; zeros with a descriptor declare nothing."""
    claims = []
    if entry is not None:
        claims.append(Claim(entry.compressed_size, entry.size, entry.crc, listed=True))
    streamed = header.flags & STREAMED
    said = header.compressed_size, header.size, header.crc
    if streamed:
        said = header.compressed_size, header.size or None, header.crc or None
    if said[0] is not None and (said[0] or not streamed) and said != (claims[0][:3] if claims else ()):
        claims.append(Claim(*said, listed=False))
    return claims


def followed(have: int, compressed_size: int) -> str:
    """Return the words on a member in which another one begins."""
    return f"another member begins after {have:,} of {compressed_size:,} bytes"


def note_contradiction(extent: MemberExtent, claim: Claim, claims: list[Claim]) -> MemberExtent:
    """Record that local header and directory disagree; the one that fits the file is right."""
    for other in claims:
        if other is claim:
            continue
        if (other.compressed_size, other.size or claim.size, other.crc or claim.crc) != claim[:3]:
            who = "local header" if claim.listed else "directory"
            extent.blame("contradiction", f"the {who} has sizes or a CRC that do not fit the file")
    return extent


def note_cut(extent: MemberExtent, compressed_size: int | None) -> MemberExtent:
    """Record that the data end before the member does, if so."""
    have = extent.end - extent.start
    if compressed_size is None:
        return extent.blame("truncated", f"the archive ends inside it, after {have:,} bytes", cut=True)
    if compressed_size > have:
        extent.compressed_size = compressed_size
        reason = f"the archive ends inside it, after {have:,} of {compressed_size:,} bytes"
        return extent.blame("truncated", reason, cut=True)
    return extent


_UNSURE: Final = "its local header is lost, and no possible start of its bytes gives the right CRC-32"
STALE: Final = "members that the directory no longer names stand here: they were replaced or deleted"
# Missing bytes that are accepted without a directory: the declared length of the gap, and this many more.
_SLACK: Final = 64 << 10
_MOST_KEPT: Final = 4096
# The most members that are searched because they are not where the directory says.
_MOST_SEARCHES: Final = 16
# How late a decoder usually notices damage, in compressed bytes.
_LATE: Final = 1 << 10
# How many records after the declared end are tried as the end of a stored member.
_MOST_BEYOND: Final = 64
# The most bytes inserted into a stored member that still ends at the next record.
_MOST_INSERTED: Final = 16 << 20


class ScanStep:
    """The record at a position: a ``member`` (with ``header``, ``entry`` of the directory, ``extent``), a ``gap``, or
    the ``end``. Scanning continues at ``next``. ``notes`` are ``(code, offset, length, reason)`` of skipped bytes.
    """

    __slots__ = ("at", "closed", "entry", "extent", "header", "kind", "next", "notes")
    header: LocalHeader | None
    entry: CentralEntry | None
    extent: MemberExtent | None

    def __init__(
        self,
        kind: str,
        at: int,
        following: int,
        notes: list[tuple[str, int, int, str]],
        about: tuple[LocalHeader, CentralEntry | None, MemberExtent] | None = None,
        *,
        closed: bool = False,
    ) -> None:
        self.kind, self.at, self.next, self.notes, self.closed = kind, at, following, notes, closed
        self.header, self.entry, self.extent = about or (None, None, None)


class Scanner(Walker):
    """Scans ``data[start:end]``. The result at a position does not depend on the way there."""

    def __init__(self, data: Data, start: int, end: int, session: HostSession) -> None:
        super().__init__(data, start, end, session)
        self._descriptors = Descriptors(data, end, self.work)
        self._kept: dict[int, MemberExtent] = {}
        self._searches = 0

    # -- one step ----------------------------------------------------------------------------------------------------

    def step(self, pos: int) -> ScanStep:
        """Return what is at ``pos``: a member, a gap, or (after all records) the end."""
        at, records, closed = pos, False, False
        notes: list[tuple[str, int, int, str]] = []
        while at < self.end:
            found = self._member_at(at, meant=at == pos)
            if found is not None:
                assert found.header is not None  # noqa: S101 -- it is a member
                if not self.hints or not self.hints.replaced(found.at, found.header):
                    found.notes[:0] = notes
                    return found
                notes += [*found.notes, ("stale", found.at, found.next - found.at, STALE)]
                at = found.next
                continue
            length = self.record_length(at)
            if length:
                closed = closed or self.read(at, 4)[0] == END
                at, records = min(at + length, self.end), True
                continue
            following = self.find_next(at + 1)
            if self.start < at and following >= self.end and cut_record(self.data, at, self.end):
                break
            if at == self.start and following < self.end and not self._is_torn(at, following):
                if self.read(at, following - at if following - at == 4 else 0)[0] not in SPLIT_MARKS:
                    notes.append(("prefix", at, following - at, "other bytes precede the archive"))
            elif records:
                notes.append(("trailing", at, following - at, "bytes between or after the records of the directory"))
            else:
                return ScanStep("gap", at, following, notes)
            at = following
        return ScanStep("end", self.end, self.end, notes, closed=closed)

    def _is_torn(self, low: int, high: int) -> bool:
        """Say whether bytes are missing in ``[low, high)``, or zeros at its beginning replace a header."""
        gap = self.data.next_gap(low) if self.data.gaps else None
        return (gap is not None and gap.offset < high) or self.read(low, LOCAL_SIZE)[0] == bytes(LOCAL_SIZE)

    def _member_at(self, pos: int, *, meant: bool) -> ScanStep | None:
        header = self.header_at(pos)
        broken = header is None
        if header is None:
            header, entry = self.listed_at(pos, meant=meant) or (self.broken_at(pos) if meant else None, None)
            if header is None:
                return None
        else:
            entry = self.hints.for_header(pos, header) if self.hints else None
            if entry is None and not header.whole:
                entry = self.hints.entry_for(pos)
        if not header.whole and entry is not None:
            header.raw_name, header.whole = entry.raw_name, True
        extent = self._kept.get(pos)
        if extent is None:
            extent = self._extent(pos, header, entry)
            if broken and pos in self.unsure and not extent.code:
                extent.blame("malformed", _UNSURE)
            if entry is None and header.whole and not extent.code and self._has_other_name(pos, header):
                extent.blame(UNSURE_NAME, "the directory has a different name: one of them is wrong")
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[pos] = extent
        notes = [("local-header", pos, LOCAL_SIZE, "the local header is damaged")] if broken else []
        return ScanStep("member", pos, max(extent.next, pos + 1), notes, (header, entry, extent))

    def _has_other_name(self, pos: int, header: LocalHeader) -> bool:
        """Say whether the directory has a member at ``pos`` that differs from that of ``header`` by its name only."""
        entry = self.hints.entry_for(pos) if self.hints else None
        if entry is None or len(entry.raw_name) != len(header.raw_name):
            return False
        said = header.method, header.crc, header.compressed_size, header.size
        return said == (entry.method, entry.crc, entry.compressed_size, entry.size)

    def lost_header(self, pos: int, raw_name: bytes) -> tuple[int, LocalHeader | None]:
        """Return where the local header of a listed member is, which is not at ``pos`` as the directory says, and the
        header; if it is nowhere, ``pos`` and what can be said of it there."""
        at = self.start
        if self._searches < _MOST_SEARCHES:
            self._searches += 1
            while at < self.end:
                found = self.step(at)
                if found.header is not None and found.header.raw_name == raw_name:
                    return found.at, found.header
                at = max(found.next, at + 1)
        listed = self.listed_at(pos, meant=True)
        return pos, None if listed is None else listed[0]

    # -- where a member ends -----------------------------------------------------------------------------------------

    def _extent(self, pos: int, header: LocalHeader, entry: CentralEntry | None) -> MemberExtent:
        claims = claims_of(header, entry)
        extent = self._claimed_extent(pos + header.length, header, claims)
        said = [claim.crc for claim in claims]
        if header.flags & STREAMED and not extent.cut:
            said.append(descriptor_crc(self.read(extent.end, LAYOUTS[0][0])[0], extent.compressed_size, extent.size))
        if extent.crc is not None:
            extent.rival = next((crc for crc in said if crc not in (None, extent.crc)), None)
        return extent

    def _claimed_extent(self, start: int, header: LocalHeader, claims: list[Claim]) -> MemberExtent:
        streamed = bool(header.flags & STREAMED)
        for claim in claims:
            gap = self.data.inexact_gap(start, start + claim.compressed_size)
            if gap is not None:
                return self._over_gap(start, header, claim, gap)
            following = self._fit(start + claim.compressed_size, claim, streamed)
            if following is not None:
                extent = MemberExtent(start, start + claim.compressed_size, claim, following)
                # A writer may have known the size, but not yet the CRC, when it wrote the local header.
                if claim.crc is None and following > extent.end:
                    self._false_descriptor(extent, self.read(extent.end, 28)[0])
                return note_contradiction(extent, claim, claims)
        if streamed:  # a descriptor that does not fit
            claims = [claim for claim in claims if claim.listed]
        extent = self._search(start, header, claims)
        if extent.crc is None and claims:
            extent.crc = claims[0].crc
        return extent

    def _fit(self, end: int, claim: Claim, streamed: bool) -> int | None:
        """Return where scanning continues if the bytes of a member end at ``end``; None without evidence for that."""
        if end > self.end:
            return None
        block, _ = self.read(end, 28)
        signed = block.startswith(DESCRIPTOR)
        if (streamed or signed) and (length := match_descriptor(block, claim.crc, claim.compressed_size, claim.size)):
            return end + length
        if self.is_boundary(end):
            return end
        if streamed or signed:
            for length in LENGTHS:
                if end + length < self.end and self.is_boundary(end + length):
                    return end + length
            if 0 < self.end - end < LAYOUTS[0][0] + signed:
                return self.end  # the file ends inside or after the descriptor
        return None

    def _search(self, start: int, header: LocalHeader, claims: list[Claim]) -> MemberExtent:
        claim = claims[0] if claims else None
        if not header.flags & (ENCRYPTED | MASKED):
            if header.method in CODEC_OF_METHOD:
                return self._by_decoding(start, header, claim)
            if header.method == STORED and claim is not None:
                return self._by_sum(start, header, claim)
        return self._undecoded(start, header, claim)

    def _undecoded(self, start: int, header: LocalHeader, claim: Claim | None) -> MemberExtent:
        if claim is None:
            return self._by_descriptor(start, header)
        end = min(start + claim.compressed_size, self.end)
        return note_cut(MemberExtent(start, end, claim), claim.compressed_size)

    def _by_decoding(self, start: int, header: LocalHeader, claim: Claim | None) -> MemberExtent:
        size = claim.size if claim is not None else None
        found = measure(self.data, start, self.end, header.method, header.flags, size, self.session)
        if found.error is None:
            return self._measured(start, header, claim, found)
        if isinstance(found.error, GapError) and (gap := self.data.inexact_gap(start, found.end + 1)) is not None:
            return self._over_gap(start, header, claim, gap)
        if isinstance(found.error, LimitError | UnsupportedError):
            return self._undecoded(start, header, claim)
        end = start + claim.compressed_size if claim is not None else self.end
        if isinstance(found.error, EndOfDataError):
            extent = MemberExtent(start, self.end, claim)
            following = None if claim is None else self._successor(start, min(end, self.end), header)
            if following is not None or (claim is not None and end <= self.end):
                extent.end = extent.next = following or end
                return extent.blame("malformed", "its compressed data do not end where they should")
            return note_cut(extent, max(end, self.end + 1) - start)
        if not self.work.spend(found.end - start):
            return MemberExtent(start, self.end, claim).blame("malformed", "its end cannot be determined")
        described = self._described(start, header) if claim is None else None
        if described is None:
            following = self._next_behind(start, found.end)
            if claim is not None and following > end:
                following = min(end, self.end)
            described = MemberExtent(start, following, claim)
        return described.blame("malformed", f"its compressed data are damaged ({found.error.reason})")

    def _next_behind(self, start: int, failed: int) -> int:
        """Return where the next record begins if decoding from ``start`` failed at ``failed``.

        A decoder notices damage late, so a record slightly before that counts, too; one of a member in the directory
        counts anywhere.
        """
        low = start if self.hints.trusted else max(start, failed - _LATE)
        while True:
            low = self.find_next(low)
            if low >= failed - _LATE:
                return low
            header = self.header_at(low)
            if header is not None and self.hints.for_header(low, header) is not None:
                return low
            low += 1

    def _measured(self, start: int, header: LocalHeader, claim: Claim | None, found: Measure) -> MemberExtent:
        """Handle a stream that ended by itself: search its descriptor."""
        compressed_size = found.end - start
        extent = MemberExtent(start, found.end, claim)
        if claim is None:
            extent.size = found.size
        else:
            if found.crc != claim.crc and compressed_size != claim.compressed_size:
                # It ended at the wrong place: the bytes behind that are searched.
                most = min(start + claim.compressed_size, self.end)
                extent.end = extent.next = min(self._next_behind(start, found.end), most)
                return extent.blame("malformed", "its compressed data are damaged (they end elsewhere)")
            if found.crc != claim.crc and (following := self._successor(start, found.end, header)) is not None:
                extent.end = extent.next = following
                return extent.blame("malformed", followed(following - start, compressed_size))
            wrap = records.WRAP  # a descriptor, and the directory, may have sizes modulo that
            if found.size != claim.size:
                extent.size = found.size
            alike = compressed_size % wrap, found.size % wrap
            if alike != (claim.compressed_size % wrap, None if claim.size is None else claim.size % wrap):
                reason = f"it ends after {compressed_size:,} compressed bytes, not {claim.compressed_size:,}"
                extent.blame("contradiction", reason)
        block, _ = self.read(found.end, 28)
        if header.flags & STREAMED or block.startswith(DESCRIPTOR):
            length = match_descriptor(block, found.crc, compressed_size, found.size)
            extent.next += length
            if length:
                extent.crc = found.crc if claim is None else claim.crc
            elif not self.is_boundary(found.end):
                self._false_descriptor(extent, block)
                if claim is None and extent.crc is None and extent.next == extent.end < self.end:
                    described = self._described(start, header)
                    if described is not None:
                        return described.blame("malformed", "its compressed data are damaged (they end elsewhere)")
        return extent

    def _described(self, start: int, header: LocalHeader) -> MemberExtent | None:
        """Return the extent of a streamed member with damaged bytes, by the distance in its descriptor."""
        if not header.flags & STREAMED:
            return None
        found = self._descriptors.find(start, self.end, check=False)
        said = None if found is None else descriptor_before(self.data, found[0] + found[1], start)
        if found is None or said is None:
            return None
        end, crc, compressed_size, size = said
        claim = Claim(compressed_size, size, crc, listed=False)
        return MemberExtent(start, end, claim, found[0] + found[1])

    def _false_descriptor(self, extent: MemberExtent, block: bytes) -> None:
        """Skip a descriptor that contradicts the measured values, or was not declared.

        If one of its sizes agrees, its CRC is the expected one.
        """
        compressed_size, size = extent.end - extent.start, extent.size
        for length, signed, layout in LAYOUTS:
            behind = extent.end + length
            if signed is not block.startswith(DESCRIPTOR) or behind > self.end or not self.is_boundary(behind):
                continue
            said = layout.unpack_from(block)
            extent.next = behind
            if extent.crc is None and (said[1] == compressed_size or said[2] == size):
                extent.crc = said[0]
            return
        if 0 < self.end - extent.end < LAYOUTS[0][0]:  # the data end inside it
            extent.next = self.end

    def _by_sum(self, start: int, header: LocalHeader, claim: Claim) -> MemberExtent:
        """Handle stored bytes that are not followed by the expected record: the CRC decides where they end."""
        end = start + claim.compressed_size
        summing = Summing(self.data, start, self.work)
        low, inside, beyond = start, -1, 0
        while claim.crc is not None and summing.known and beyond < _MOST_BEYOND:
            at = self.find_next(low)
            if at >= self.end or not self.work.spend(at - low + SHORT):
                break
            inside = at if inside < 0 and at < end else inside
            beyond += at > end
            for length in (*LENGTHS, 0) if header.flags & STREAMED else (0,):
                if at - length >= start and summing.at(at - length) == claim.crc:
                    reason = f"it has {at - length - start:,} bytes, not {claim.compressed_size:,}"
                    return MemberExtent(start, at - length, following=at).blame("contradiction", reason)
            low = at + 1
        if not claim.compressed_size and summing.known and summing.at(self.end) == claim.crc:
            # The last member; no size was declared.
            reason = f"it has {self.end - start:,} bytes, not 0"
            return MemberExtent(start, self.end).blame("contradiction", reason)
        summing = Summing(self.data, start, self.work)
        whole = end <= self.end and (claim.crc is None or summing.at(end) == claim.crc or not summing.known)
        if not whole and (inside >= 0 or end > self.end):
            following = self._successor(start, min(end, self.end), header)
            if following is None and not self.read(start, 4)[0].startswith(LOCAL) and inside >= 0:
                following = inside
            if following is not None:
                reason = followed(following - start, claim.compressed_size)
                return MemberExtent(start, following, claim).blame("malformed", reason)
        if not whole and end < self.end and (following := self._late_successor(end, header)) is not None:
            reason = f"the next member begins after {following - start:,} bytes, {following - end:,} more than it has"
            return MemberExtent(start, following, claim).blame("malformed", reason)
        end = min(end, self.end)
        return note_cut(MemberExtent(start, end, claim), claim.compressed_size)

    def _successor(self, start: int, end: int, header: LocalHeader) -> int | None:
        """Return where in ``[start, end)`` the record begins that the directory lists right after the member.

        It is there if bytes of the member are missing. A stored nested archive may hold members with the same names, so
        the last one counts. None if there is none.
        """
        low, found = start, None
        while self.hints and self.work.spend(SHORT):
            low = self.find_next(low)
            if low >= end:
                break
            listed = self.header_at(low) is not None or low == self.hints.first_place
            if listed and self._follows(header, low):
                found = low
            low += 1
        return found

    def _late_successor(self, end: int, header: LocalHeader) -> int | None:
        """Return where the record listed right after the member begins, if bytes were inserted into the member.

        The inserted bytes, and those that were there before, may look like records themselves.
        """
        at = self.find_next(end)
        for _ in range(_MOST_BEYOND):
            if not self.hints or at >= self.end or at - end > _MOST_INSERTED or not self.work.spend(at - end + SHORT):
                break
            listed = self.header_at(at) is not None or at == self.hints.first_place
            if listed and self._follows(header, at):
                return at
            at = self.find_next(at + 1)
        return None

    def _by_descriptor(self, start: int, header: LocalHeader) -> MemberExtent:
        """Handle a member without a declared size: find its descriptor."""
        gap = self.data.inexact_gap(start, self.end)
        stop = gap.offset if gap is not None else self.end
        check = header.method == STORED and not header.flags & (ENCRYPTED | MASKED)
        found = self._descriptors.find(start, stop, check=check)
        if found is not None:
            end, length, crc = found
            measured = Claim(end - start, end - start, crc, listed=False) if check else None
            return MemberExtent(start, end, measured, end + length)
        if gap is not None:
            return self._over_gap(start, header, None, gap)
        own = self._next_alike(start, header)
        if own < self.end:
            return MemberExtent(start, own).blame("malformed", "its data descriptor, which has its size, is lost")
        return note_cut(MemberExtent(start, self.end), None)

    def _next_alike(self, start: int, header: LocalHeader) -> int:
        """Return where the next member begins that was written like the one with ``header``; else the end of the data.

        A stored archive holds members, too, which are not ours: headers written differently are skipped.
        """
        low = start
        if self.read(start, 4)[0].startswith(LOCAL):
            low = self._inner_end(start)
        names = header.raw_name, *self.hints.names_at(start - header.length)  # it may be damaged where it stands
        tops = {name.partition(b"/")[0] for name in names}
        while low < self.end and self.work.spend(SHORT):
            low = self.find_next(low)
            other = self.header_at(low)
            if (
                other is not None
                and other.version == header.version
                and not (other.flags ^ header.flags) & ~UTF8
                and (other.raw_name.partition(b"/")[0] in tops or b"/" not in header.raw_name)
            ):
                return low
            low += 1
        return self.end

    def _inner_end(self, start: int) -> int:
        """Return where a stored archive that begins at ``start`` ends, by its own end record."""
        low = start
        while low < self.end and self.work.spend(SHORT):
            low = self.find_next(low, members=False)
            record = read_end(self.read(low, 22)[0])
            if record is not None and start + record.offset + record.size == low:
                return low + record.length
            low += 1
        return self.end

    # -- bytes that are missing --------------------------------------------------------------------------------------

    def _over_gap(self, start: int, header: LocalHeader, claim: Claim | None, gap: Gap) -> MemberExtent:
        """Handle bytes that run into a gap of unknown length: next record and size tell how many are missing."""
        if gap.length is None:
            extent = MemberExtent(start, gap.offset, claim, self.end)
            return note_cut(extent, claim.compressed_size if claim is not None else None)
        following = self.find_next(gap.offset + gap.length)
        last = gap
        while (more := self.data.inexact_gap((last.offset + (last.length or 0)), following)) is not None:
            last = more
            if more.length is None:
                break
        resumed = last.offset + (last.length or 0)
        end = following
        gap_start = max(start, gap.offset)
        head = gap_start - start
        if header.flags & STREAMED:
            if claim is not None:
                end -= self._descriptor_before(following, claim)
            elif (said := descriptor_before(self.data, following, start, least=head)) is not None:
                end, claim = said[0], Claim(said[2], said[3], said[1], listed=False)
        extent = MemberExtent(start, max(end, gap_start), claim, following)
        extent.blame("gap", "some of its bytes are missing")
        if claim is None:
            return extent
        tail = max(0, end - resumed)
        missing = claim.compressed_size - head - tail
        believable = 2 * (resumed - gap_start) + _SLACK
        follows = self._follows(header, following)
        sure = missing >= 0 and follows is not False and (follows or missing <= believable)
        extent.compressed_size = claim.compressed_size
        extent.gap_start, extent.gap_end = gap_start, resumed
        if sure:
            extent.missing = missing
        else:  # the bytes after the gap may belong to another member
            extent.end = extent.next = extent.gap_end = gap_start
            extent.missing = 0  # the end is missing: no bytes are invented for it
        return extent

    def alone(self, pos: int) -> ScanStep | None:
        """Return the member whose local header is at ``pos``, ignoring the directory."""
        header = self.header_at(pos)
        if header is None:
            return None
        extent = self._extent(pos, header, None)
        return ScanStep("member", pos, extent.next, [], (header, None, extent))

    def _descriptor_before(self, end: int, claim: Claim) -> int:
        """Return the length of the descriptor before ``end`` that agrees with ``claim``; 0 if there is none."""
        for length in LENGTHS:
            block, unknown = self.read(end - length, length)
            if not unknown and match_descriptor(block, claim.crc, claim.compressed_size, claim.size) == length:
                return length
        return 0

    def _follows(self, header: LocalHeader, following: int) -> bool | None:
        """Say whether the record at ``following`` comes right after the member with ``header``; None if unknown."""
        if following >= self.end:
            return False
        other = self.header_at(following)
        if other is None:
            return self.hints.precedes(header, None) if self.hints else None
        entry = self.hints.for_header(following, other) if self.hints else None
        return None if entry is None else self.hints.precedes(header, entry)


# Members added at a time, as long as they are near each other.
_SCANNED: Final = 64
_NEAR: Final = 256 * KIB
_SEVERITIES: Final = {"local-header": Severity.ERROR, "prefix": Severity.NOTE, "stale": Severity.NOTE}
_NO_ZIP: Final = "it is no zip: there is neither a member nor a directory"
# The least number of bytes that are worth a file of their own.
_LEAST: Final = 32
_HEAD: Final = 64 * KIB
# Directory and descriptor bytes belong to no member.
_RECORDS: Final = (CENTRAL, END, END64, DESCRIPTOR)


def add_scanned(parser: ZipParser, ctx: NodeContext) -> tuple[int, Any, int]:
    """Add the member at the position, and more if they are near: one at a time is slow."""
    begin = pos = ctx.pos
    for _ in range(_SCANNED):
        found = parser.scanner.step(pos)
        pos = max(found.next, pos)
        for code, offset, length, reason in found.notes:
            if ctx.collected is None or code == "local-header":
                parser.note(code, reason, offset, length, severity=_SEVERITIES.get(code, Severity.WARNING))
        if found.kind == "end":
            if ctx.collected is None:
                _close(parser, ctx, whole=found.closed)
            return pos, DONE, 0
        is_gap = found.kind == "gap"
        member = _gap(parser.extraction, found) if is_gap else parser.scanned(found)
        ctx.emit(parser.entry_of(member))
        if pos - begin > _NEAR or ctx.answer is not None or (ctx.collected is not None and ctx.satisfied):
            break
    return pos, parser.expect_member, 0


def _close(parser: ZipParser, ctx: NodeContext, *, whole: bool) -> None:
    """Add a finding on why the directory is not trusted."""
    scanner, source = parser.scanner, parser.extraction.name
    start, end = scanner.start, scanner.end
    if end == start:
        finding = Finding("empty", "the archive is empty", source=source, offset=end)
        parser.result.close_node(ctx.node, Status.TRUNCATED, finding)
        return
    first = scanner.step(start)
    if first.kind == "gap" and first.next >= end and scanner.read(start, 2)[0] != b"PK":
        parser.result.close_node(ctx.node, Status.DAMAGED, Finding("magic", _NO_ZIP, source=source, offset=start))
        return
    code, reason = why_scanned(parser.extraction.data, start, end, whole=whole)
    reason = f"{reason}; its members were found by their local headers"
    finding = Finding(code, reason, source=source, offset=end)
    parser.result.close_node(ctx.node, cut_status(damaged=whole), finding)


# -- members ---------------------------------------------------------------------------------------------------------


def _gap(extraction: Extraction, found: ScanStep) -> ArchiveMember:
    """Return what stands for bytes that no member can be told from."""
    data, source = extraction.data, extraction.name
    member = ArchiveMember("", b"", "gap", found.at, found.at, found.next, found.next - found.at)
    if cut_header(data, found.at, found.next):
        blame(member, source, Status.TRUNCATED, "truncated", "the archive ends in a local header")
    else:
        blame(member, source, Status.DAMAGED, "gap", "these bytes belong to no known member")
    return member


def scanned_member(extraction: Extraction, found: ScanStep, encoding: str) -> ArchiveMember:
    """Return the member that was found by scanning; its name may be in ``encoding``."""
    header, extent, source = found.header, found.extent, extraction.name
    assert header is not None  # noqa: S101 -- it is a member
    assert extent is not None  # noqa: S101
    span = extent.start, extent.end, extent.size, extent.compressed_size
    member = member_of(header, found.entry, encoding, found.at, *span, extent.crc)
    note: ZipNote = member.extra
    note.sure, note.rival = extent.code != "contradiction", extent.rival
    note.broken = any(code == "local-header" for code, *_ in found.notes)
    if extent.missing is not None:
        member.pieces = _pieces(extraction.data, extent)
    if not is_refused(member, source, header.extra):
        has_wrong_size(member, source)
        if extent.code:
            whole = Status.DAMAGED if note.sure else Status.COMPLETE
            blame(member, source, Status.TRUNCATED if extent.cut else whole, extent.code, extent.reason)
        elif not has_gap(member, extraction) and not header.whole:
            blame(member, source, Status.DAMAGED, UNSURE_NAME, "part of its name is lost")
    return member


def _pieces(data: Data, extent: MemberExtent) -> tuple[Range, ...]:
    """Return the stored bytes of a member that lost ``extent.missing`` bytes."""
    from pparse.data.spliced import MissingData

    missing = extent.missing or 0
    head, tail = extent.gap_start - extent.start, max(0, extent.end - extent.gap_end)
    head = min(head, max(0, extent.compressed_size - tail))  # damage may have inserted bytes, too
    pieces = [data.range(extent.start, extent.start + head)]
    if missing:
        pieces.append(MissingData(missing).range(0, missing))
    if tail:
        pieces.append(data.range(extent.gap_end, extent.end))
    return tuple(pieces)


# -- bytes of no member ----------------------------------------------------------------------------------------------


def unclaimed(data: Data, start: int, end: int, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of ``data[start:end]`` that lie outside of the members at ``spans`` and are not records."""
    at = start
    for begin, stop in (*spans, (end, end)):
        if begin - at >= _LEAST:
            head = data.read_known(at, min(begin - at, _HEAD))[0]
            mark = head.find(END) if head.startswith((CENTRAL, END)) else -1
            if mark >= 0 and begin - at - mark > END_SIZE + _LEAST:
                at += mark + END_SIZE + int.from_bytes(head[mark + 20 : mark + 22], "little")
                head = data.read_known(at, max(0, min(begin - at, _HEAD)))[0]
            if head.strip(b"\0") and not head.startswith(_RECORDS):
                yield at, begin
        at = max(at, stop)
