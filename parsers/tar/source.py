"""The bytes of a tar archive as its walker needs them: single blocks, their meaning, and the positions of headers.

One range of the archive is kept at a time. It grows while reading is sequential, and is small after a jump, so large
members cost one small read each.

Zeros are the end mark with its padding, or bytes that were never written. A download into a file of full size that
stopped leaves zeros from some byte on. If that is a boundary between two members, or a reader stops at the members
before it, nothing else in the format shows it.
"""

from __future__ import annotations

import enum

from pparse.data.base import Access
from pparse.data.range_status import cut_status
from pparse.data.zero_runs import LEAST, PAGE, unwritten, zeros_at_end
from pparse.findings import Finding, Severity, Status
from pparse.limits import KIB, count_words
from pparse.parsers.tar.headers import BLOCK, ZEROS, TarHeader
from pparse.parsers.tar.judge import judge_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.containers.archive import ArchiveMember
    from pparse.data.base import Data, Gap
    from pparse.document.extraction import Extraction

_FIRST: Final = 4 * KIB
_MOST: Final = 128 * KIB
_KEPT: Final = 8 * KIB
_REMEMBERED: Final = 64
_MARK: Final = 2 * BLOCK  # two blocks of zeros mark the end
_RECORD: Final = 20 * BLOCK  # what archives are padded to by default
# Other records that archives are padded to (tar -b): powers of two, up to that of fast tapes.
_RECORDS: Final = (_RECORD, *(BLOCK << number for number in range(1, 12)))
_EMPTY: Final = 64 * KIB  # the most that an archive without members is padded to
_STRETCHES: Final = 1_000  # of a member, reported one by one


class Blank(enum.Enum):
    """What a block is that is not a header."""

    ZERO = "zeros"
    END = "nothing: the archive ends here"
    CUT = "less than a block: the archive ends in it"
    GAP = "lost, in a gap of unknown length"
    BAD = "anything else"


class TarSource:
    """The blocks of an archive; ``data``, ``start`` and ``end`` (None: not known) are those of its extraction."""

    def __init__(self, extraction: Extraction) -> None:
        self.data: Data = extraction.data
        self.start = extraction.start
        self.end = extraction.end
        self.extraction = extraction
        self._charge = extraction.session.budget.charge(2 * _MOST, "blocks of an archive")
        self._block = b""
        self._base = self.start
        self._size = _FIRST
        self._probed: dict[int, TarHeader | Blank] = {}
        self._holes: bool | None = None

    def finding(
        self,
        code: str,
        reason: str,
        offset: int,
        length: int | None = None,
        *,
        name: str = "",
        severity: Severity = Severity.ERROR,
    ) -> Finding:
        """Return a finding on the archive, or on its member ``name``."""
        source = self.extraction.name
        return Finding(code, reason, path=name, source=source, offset=offset, length=length, severity=severity)

    @property
    def has_holes(self) -> bool:
        """Whether parts of the file were never written, by one query of the file system."""
        if self._holes is None:
            end = self.data.size if self.end is None else self.end
            self._holes = end is not None and next(self.data.holes(self.start, end), None) is not None
        return self._holes

    # -- bytes -------------------------------------------------------------------------------------------------------

    def offer(self, block: bytes, base: int) -> None:
        """Use a block that was already read."""
        if base + len(block) > self._base + len(self._block) or base < self._base:
            self._block, self._base = block, base

    def stretch(self, pos: int) -> tuple[bytes, int]:
        """Return a range of bytes and its offset. It contains the block at ``pos``, unless the data end there."""
        have = self._base + len(self._block) - pos
        if pos < self._base or have < BLOCK:
            near = self._base <= pos and -have <= len(self._block)
            self._size = min(4 * self._size, _MOST) if near else _FIRST
            # Keep a little of what came before: extended headers are read after the header that follows.
            if near and have > -_KEPT:
                end = pos + have
                kept = self._block[-_KEPT:]
                self._block, self._base = kept + self._pread(end, self._size), end - len(kept)
            if not near or pos >= self._base + len(self._block):  # a jump, or a gap in between
                self._block, self._base = self._pread(pos, self._size), pos
        return self._block, self._base

    def _pread(self, pos: int, count: int) -> bytes:
        if self.end is not None:
            count = min(count, max(0, self.end - pos))
        return self.data.known(pos, count)

    def read(self, pos: int, count: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return up to ``count`` bytes at ``pos``, zeros for unknown ones, and the unknown ranges, from ``pos``."""
        if count <= BLOCK:
            block, base = self.stretch(pos)
            found = block[pos - base : pos - base + count]
            if len(found) == count:
                return found, []
        if self.end is not None:
            count = min(count, max(0, self.end - pos))
        found, unknown = self.data.read_known(pos, count)
        return found, [(at - pos, length) for at, length in unknown]

    def reach(self, start: int, end: int) -> int:
        """Return where the bytes from ``start`` on end, at most ``end``; gaps of known length are passed."""
        if self._base <= start and end - _KEPT <= self._base + len(self._block) < end:
            self.stretch(end - BLOCK)  # so close that the bytes between are kept
        if self._block and self._base <= end <= self._base + len(self._block):
            # The bytes before it were read, or jumped over.
            return max(start, self._before_the_last_gap(start, end))
        limit = self.data.size if self.end is None else self.end
        if end <= start:
            return end
        if limit is None or self.data.access is not Access.FREE:
            # Decoded up to there, the data know their gaps and their end.
            there = self._pread(end - 1 if self.end is None else min(end, self.end) - 1, 1)
            if not there and self.data.size is None:
                gap = self.data.next_gap(end - 1)
                if gap is None or gap.offset > end - 1:
                    end = min(end, max(start, self.extraction.find_end()))
            limit = self.data.size if self.end is None else self.end
        if limit is not None:
            end = min(end, limit if self.data.size is None else min(limit, self.data.size))
        return max(start, self._before_the_last_gap(start, end))

    def _before_the_last_gap(self, start: int, end: int) -> int:
        gaps = self.data.gaps
        if gaps and gaps[-1].length is None and gaps[-1].offset < end:
            return max(start, gaps[-1].offset)
        return end

    def find_end(self) -> int:
        """Return where the bytes of the archive really end; a source of unknown size is read to its end for that."""
        return self._before_the_last_gap(self.start, self.extraction.find_end())

    def gap_in(self, start: int, end: int) -> Gap | None:
        """Return the first gap of unknown length that touches ``[start, end)``."""
        gap = self.data.inexact_gap(start, end)
        return None if gap is None or gap.length is None else gap

    def lost_in(self, start: int, end: int) -> tuple[int, int]:
        """Return the number of bytes of ``[start, end)`` in gaps of known length, and the number of these gaps."""
        lost = count = 0
        at = start
        while self.data.gaps and (gap := self.data.next_gap(at)) is not None and gap.offset < end and gap.length:
            lost += min(gap.offset + gap.length, end) - max(gap.offset, start)
            count += 1
            at = gap.offset + gap.length
        return lost, count

    # -- blocks ------------------------------------------------------------------------------------------------------

    def probe(self, pos: int) -> TarHeader | Blank:
        """Return what the block at ``pos`` is, where a header is expected."""
        found = self._probed.get(pos)
        if found is None:
            if len(self._probed) >= _REMEMBERED:
                self._probed.clear()
            found = self._probed[pos] = self._look(pos)
        return found

    def is_bad(self, pos: int) -> bool:
        """Say whether the block at ``pos`` is neither a header nor zeros."""
        return self.probe(pos) in (Blank.BAD, Blank.GAP)

    def _look(self, pos: int) -> TarHeader | Blank:
        raw, unknown = self.read(pos, BLOCK)
        if len(raw) < BLOCK:
            return Blank.CUT if raw else Blank.END
        if not unknown:
            return Blank.ZERO if raw == ZEROS else judge_header(raw) or Blank.BAD
        if self.gap_in(pos, pos + BLOCK) is not None:
            return Blank.GAP
        header = judge_header(raw, unknown)
        if header is not None:
            return header
        known = BLOCK - sum(length for _, length in unknown)
        return Blank.ZERO if raw == ZEROS and known >= BLOCK // 2 else Blank.BAD

    def skip_zeros(self, pos: int) -> int:
        """Return the first block position at or after ``pos`` that is not known to be zeros."""
        while True:
            block, base = self.stretch(pos)
            part = block[pos - base :] if pos != base else block
            rest = len(part.lstrip(b"\0"))
            if rest or len(part) < BLOCK:
                return pos + (len(part) - rest) // BLOCK * BLOCK
            pos += len(part) // BLOCK * BLOCK

    def trim_zeros(self, start: int, end: int) -> int:
        """Return the end of the last block in ``[start, end)`` that is not zeros; ``start`` if all are zeros."""
        kept = zeros_at_end(self.data, start, end, self.extraction.session.check_cancelled) - start
        return min(end, start + -(-kept // BLOCK) * BLOCK)

    # -- zeros -------------------------------------------------------------------------------------------------------

    def _is_padding(self, blank: int, end: int) -> bool:
        """Say whether the number of zeros in ``[blank, end)`` is that of an archive's end mark with padding."""
        room = end - blank - _MARK
        return room == 0 or any(0 < room < record and (end - self.start) % record == 0 for record in _RECORDS)

    def judge_blank(self, blank: int, end: int, *, at_end: bool) -> tuple[Status | None, Finding | None]:
        """Return what is wrong with zeros ``[blank, end)`` in place of a header; ``at_end``: nothing else follows."""
        size = end - blank
        alone = at_end and blank <= self.start
        if self._is_padding(blank, end) if not alone else size <= _EMPTY:
            holes = 0 if size < _MARK + _RECORD else self._holes_in(blank, end)
            if not holes:
                return None, None
        elif at_end and size < _MARK + _RECORD:
            return None, None
        else:
            holes = self._holes_in(blank, end)
        if holes or alone:
            where = "the archive continues with" if not alone else "the archive consists of"
            reason = f"{where} {count_words(size, 'byte')} of zeros"
            if holes:
                reason += f", {holes:,} of them never written (a file hole): members are missing"
            else:
                reason += ": it was never written"
            return cut_status(damaged=not at_end), self.finding("unwritten", reason, blank, size)
        if at_end:
            reason = (
                f"{count_words(size, 'byte')} of zeros follow the last member, more than the padding of an archive: "
            )
            reason += "if it was not written completely, members are missing"
        else:
            reason = f"{count_words(size, 'byte')} of zeros between two members, and no end of an archive there: "
            reason += "members may be missing"
        return None, self.finding("zeros", reason, blank, size, severity=Severity.WARNING)

    def _holes_in(self, start: int, end: int) -> int:
        return sum(high - low for low, high in unwritten(self.data, start, end)) if self.has_holes else 0

    def unwritten_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of a member that were never written; of very many, the last extends to the end."""
        found: list[tuple[int, int]] = []
        for low, high in unwritten(self.data, start, end) if self.has_holes else ():
            found.append((low, high))
            if len(found) == _STRETCHES:
                found[-1] = low, end
                break
        return found

    def zeros_to_the_end(self, member: ArchiveMember) -> Finding | None:
        """Return a warning if a member ends with zeros, and only zeros follow it.

        Only for 64 KiB of zeros or more, in whole pages. For members that are read anyway.
        """
        if member.kind != "file" or member.pieces is not None or self.data.access is not Access.FREE:
            return None
        at = zeros_at_end(self.data, member.start, member.end)
        page = -(-at // PAGE) * PAGE
        if page >= member.end:
            return None
        end = self.skip_zeros(member.end + -(member.end - self.start) % BLOCK)
        if self.reach(end, end + BLOCK) - end >= BLOCK or end // PAGE * PAGE - page < LEAST:
            return None
        reason = f"its last {member.end - at:,} bytes are zeros, and so is the rest of the file: they may be lost"
        return self.finding("zeros", reason, at, member.end - at, name=member.name, severity=Severity.WARNING)
