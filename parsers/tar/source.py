"""The bytes of a tar archive as its walker needs them: single blocks, their meaning, and the positions of headers.

Damaged headers are judged by what is left of them. Nothing is guessed: an unknown byte is restored only if the checksum
proves it.

One range of the archive is kept at a time. It grows while reading is sequential, and is small after a jump, so large
members cost one small read each. `pparse.data.window.Window` keeps nothing of what came before, and costs `ls` of 4,000
members 2.5% more instructions.

Zeros are the end mark with its padding, or bytes that were never written. A download into a file of full size that
stopped leaves zeros from some byte on. If that is a boundary between two members, or a reader stops at the members
before it, nothing else in the format shows it.
"""

from __future__ import annotations

import enum
from itertools import islice

from pparse.data.base import Access
from pparse.data.range_status import cut_status
from pparse.data.zero_runs import LEAST, PAGE, unwritten, zeros_at_end
from pparse.findings import Finding, Severity, Status
from pparse.lazy import lazy_pattern
from pparse.limits import KIB, count_words
from pparse.parsers.tar.headers import (
    BLOCK,
    EXTENDED,
    LETTERS,
    LONG_NAME,
    MAGICS,
    RECORD_LENGTH,
    ZEROS,
    TarHeader,
    dialect_of,
    read_header,
    read_number,
    sum_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
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
# The form that writers use: padding, digits, an end.
_TIDY: Final = lazy_pattern(rb"[ \0]*[0-7]+[ \0]*|[ \0]+")
_INNER: Final = lazy_pattern(rb"[^0-7](?=[^0-7]*[0-7])")
# offset and length of the numbers in every dialect
_NUMBERS: Final = ((100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (148, 8))


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
        for gap in self.data.gaps_in(start, end):
            if gap.end is not None:
                lost += min(gap.end, end) - max(gap.offset, start)
                count += 1
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
            header = None if raw == ZEROS else self._with_letter(judge_header(raw), pos)
            if header is not None and not header.sound and self._is_overlapped(pos):
                header = None
            return Blank.ZERO if raw == ZEROS else header or Blank.BAD
        if self.gap_in(pos, pos + BLOCK) is not None:
            return Blank.GAP
        header = self._with_letter(judge_header(raw, unknown), pos)
        if header is not None:
            return header
        known = BLOCK - sum(length for _, length in unknown)
        return Blank.ZERO if raw == ZEROS and known >= BLOCK // 2 else Blank.BAD

    def _is_overlapped(self, pos: int) -> bool:
        """Say whether a header begins inside of the block at ``pos``, with a magic and a right checksum: it is shifted,
        and what precedes it is none, though it looks like a damaged one."""
        raw, unknown = self.read(pos, 2 * BLOCK - 1)
        place = raw.find(b"ustar", 258) if not unknown else -1
        while place >= 0:
            at = place - 257
            if raw[at] and read_header(raw[at : at + BLOCK]) is not None:
                return True
            place = raw.find(b"ustar", place + 1)
        return False

    def _with_letter(self, header: TarHeader | None, pos: int) -> TarHeader | None:
        """Return a header; that of a file if it is damaged, and what follows is no name or record for the next one."""
        if header is None or header.sound or header.letter not in EXTENDED:
            return header
        if header.letter in (b"L", b"K"):  # a name, with the zero that ends it
            last = pos + BLOCK + max(0, (header.size or 0) - 1)
            extends = header.raw_name == LONG_NAME or self.read(last, 1)[0] in (b"\0", b"")
        else:
            extends = RECORD_LENGTH.match(self.read(pos + BLOCK, 16)[0].ljust(1)) is not None
        if not extends:
            header.letter = b"0"
        return header

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
        usual = size <= _EMPTY if alone else self._is_padding(blank, end)
        if (usual or at_end) and size < _MARK + _RECORD:
            return None, None
        holes = sum(high - low for low, high in unwritten(self.data, blank, end)) if self.has_holes else 0
        if usual and not holes:
            return None, None
        zeros = f"{count_words(size, 'byte')} of zeros"
        if holes or alone:
            never = f", {holes:,} of them never written (a file hole): members are missing"
            reason = f"the archive {'consists of' if alone else 'continues with'} {zeros}"
            reason += never if holes else ": it was never written"
            return cut_status(damaged=not at_end), self.finding("unwritten", reason, blank, size)
        if at_end:
            reason = f"{zeros} follow the last member, more than the padding of an archive: "
            reason += "if it was not written completely, members are missing"
        else:
            reason = f"{zeros} between two members, and no end of an archive there: members may be missing"
        return None, self.finding("zeros", reason, blank, size, severity=Severity.WARNING)

    def unwritten_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of a member that were never written; of very many, the last extends to the end."""
        found = list(islice(unwritten(self.data, start, end), _STRETCHES)) if self.has_holes else []
        if len(found) == _STRETCHES:
            found[-1] = found[-1][0], end
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


# -- damaged headers --------------------------------------------------------------------------------------------------


def judge_header(raw: bytes, unknown: Iterable[tuple[int, int]] = (), *, aligned: bool = True) -> TarHeader | None:
    """Return the header that a block of 512 bytes is, or was before damage; None without enough evidence.

    ``unknown`` are ranges ``(offset, length)`` of the block that are not known (zeros in ``raw``). ``aligned`` says
    that a header is expected here, so that a plausible one is accepted despite a damaged checksum or magic.
    """
    holes = [at for first, count in unknown for at in range(first, first + count)]
    if holes:
        return _judge_known(raw, holes, aligned)
    header = read_header(raw)
    if header is not None:
        return header
    tidy = [bool(_TIDY.fullmatch(raw[at : at + length])) or raw[at] in (0x80, 0xFF) for at, length in _NUMBERS]
    dialect = dialect_of(raw)
    if dialect is None:
        # The magic is damaged, or the checksum of a v7 header is: all numbers must be valid.
        if not aligned or not all(tidy) or not raw[0] or not raw[148:156].strip(b"\0 ") or raw[156] not in LETTERS:
            return None
        dialect = _nearest(raw[257:265])
        return TarHeader(raw, dialect, sound=False, problem="the checksum of its header is wrong")
    if sum(tidy) < (4 if aligned else 6):
        return None
    spoilt = _spoilt(raw)
    if len(spoilt) == 1:
        mended, left = solve(raw, spoilt)
        if not left and (header := read_header(mended)) is not None:
            header.problem = "one byte of its header was damaged; restored from the checksum"
            return header
    return TarHeader(raw, dialect, sound=False, problem="the checksum of its header is wrong")


def _nearest(magic: bytes) -> str:
    for known, dialect in MAGICS.items():
        if sum(a != b for a, b in zip(magic, known, strict=True)) <= 3:
            return dialect
    return "v7"


def _spoilt(raw: bytes) -> list[int]:
    """Return the offsets of bytes in mode, size and mtime that are invalid in a number: not digits, or inner blanks."""
    found: set[int] = set()
    for at, length in ((100, 8), (124, 12), (136, 12)):
        field = raw[at : at + length]
        if not field[0] & 0x80:
            found.update(at + place for place, byte in enumerate(field) if byte not in b"01234567 \0")
            blanks = len(field) - len(field.lstrip(b" \0"))
            found.update(at + match.start() for match in _INNER.finditer(field, blanks))
    return sorted(found)


def solve(raw: bytes, holes: list[int]) -> tuple[bytes, list[int]]:
    """Restore bytes at ``holes`` as far as the checksum proves them; return the block, and the holes that remain.

    If the checksum is known, so is the sum of the unknown bytes: 0 means that all are zeros, and a single byte is the
    sum.
    """
    if any(148 <= at < 156 for at in holes):
        return raw, holes
    declared = read_number(raw[148:156])
    mended = bytearray(raw)
    for at in holes:
        mended[at] = 0
    rest = -1 if declared is None else declared - sum_of(bytes(mended))
    if rest == 0 or (len(holes) == 1 and 0 < rest < 256):
        mended[holes[0]] = rest
        return bytes(mended), []
    return raw, holes


def _judge_known(raw: bytes, holes: list[int], aligned: bool) -> TarHeader | None:
    """Judge a block with unknown bytes by its known ones."""
    if len(holes) > BLOCK - 64:
        return None
    mended, left = solve(raw, holes)
    if not left:
        header = read_header(mended)
        if header is not None:
            return header
    missing = set(left)
    legal = points = bad = 0
    for at, length in _NUMBERS:
        known = [raw[place] for place in range(at, at + length) if place not in missing]
        if known and not raw[at] & 0x80 and not all(byte in b"01234567 \0" for byte in known):
            bad += 1
        elif sum(byte in b"01234567" for byte in known) >= 3:
            points += 1
            legal += len(known)
    magic = [(raw[place], byte) for place, byte in zip(range(257, 262), b"ustar", strict=True) if place not in missing]
    if bad or any(found != byte for found, byte in magic) or not _feasible(raw, left):
        return None
    by_magic = len(magic) >= 3 and points >= (2 if aligned else 3)
    if not by_magic and not (aligned and points >= 4 and legal >= 24):
        return None
    shown = bytearray(raw)
    for at in left:
        shown[at] = 0x3F
    dialect = "gnu" if bytes(shown[262:264]) == b"  " else "ustar" if magic else "v7"
    header = TarHeader(bytes(shown), dialect, sound=False, problem="bytes of its header are lost")
    if 156 in missing:
        header.letter = b"0"
    return header


def size_that_fits(field: bytes, room: int) -> int | None:
    """Return the only size that matches the intact digits in ``field`` and fills ``room`` in blocks; else None."""
    if room % BLOCK:
        return None
    found = None
    for size in range(max(0, room - BLOCK + 1), room + 1):
        digits = b"%011o" % size
        if all(known not in b"01234567" or known == digit for known, digit in zip(field[:11], digits, strict=False)):
            if found is not None:
                return None
            found = size
    return found


def _feasible(raw: bytes, holes: list[int]) -> bool:
    """Say whether bytes at ``holes`` can make the checksum right; True if it is not known."""
    if not holes or any(148 <= at < 156 for at in holes):
        return True
    declared = read_number(raw[148:156])
    return declared is not None and 0 <= declared - sum_of(raw) <= 255 * len(holes)
