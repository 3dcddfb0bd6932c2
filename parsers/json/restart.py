"""The text of a damaged document, a block at a time, and where reading can go on behind a fault."""

from __future__ import annotations

from collections import deque

from pparse.errors import GapError
from pparse.kernels.json_fold import Carry, next_boundary
from pparse.lazy import lazy_pattern
from pparse.parsers.json.record import (
    AHEAD,
    BALANCE,
    BLANK,
    CANDIDATE,
    ELEMENT,
    GARBAGE,
    ITEM,
    KEY,
    NOT_BLANK,
    OBJECT,
    ONE_WORD,
    PLAIN_ELEMENT,
    Open,
)
from pparse.parsers.json.text import WHITESPACE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Final

    from pparse.tree.host import Host

BLOCK: Final = 256 << 10
# The furthest behind a fault that the next comma of the same depth is searched.
NEAR: Final = 4 << 10
# The most gaps that are remembered, so that bytes lost in a gap are reported as that.
_GAPS: Final = 16


# Where to continue: at a comma or bracket, a key, a key that may lack its beginning, an object without one, an
# element of an outer array.
MARK_HERE, KEY_HERE, DOUBTFUL_KEY, BRACE_HERE, ELEMENT_HERE = range(5)
_FOLLOWER: Final = b",]}"
_QUOTE: Final = lazy_pattern(b'"')


class PlaceFinder:
    """The part of `pparse.parsers.json.mend.Mender` that looks for places."""

    def __init__(self, extraction: Host, start: int, member: re.Pattern[bytes] | None) -> None:
        self.extraction = extraction
        self.data = extraction.data
        self.start = start
        self.end = extraction.known_end()
        self.member = member
        self.no_member_from = self.end if member is not None else 0
        self.block = b""
        self.base = start
        self.short = False
        self.gaps: deque[tuple[int, int]] = deque(maxlen=_GAPS)
        self.went_on = -1  # where reading continued after the last fault
        self.sure = False  # whether nothing suggests another depth than before

    def gap_in(self, start: int, stop: int) -> tuple[int, int] | None:
        """Return offset and length of the first known gap in ``[start, stop)``."""
        for offset, end in self.gaps:
            if offset < stop and start < end:
                return offset, end - offset
        return None

    def have(self, offset: int, count: int = 1) -> bool:
        """Load ``count`` bytes from ``offset`` on, or as many as exist, into the block; False: there are none."""
        if offset >= self.end:
            return False
        behind = self.base + len(self.block)
        # If the block ends at a gap (or is one), no more bytes follow, and those that exist were read.
        wanted = offset + 1 if self.short else offset + count
        if offset < self.base or wanted > behind < self.end:
            self.extraction.session.check_cancelled()
            try:
                self.block = self.data.pread(offset, min(BLOCK, self.end - offset))
            except GapError as gap:
                if gap.length is None or gap.offset is None:
                    self.end = offset
                    return False
                self.block = bytes(min(BLOCK, gap.offset + gap.length - offset))  # never valid in JSON
                if not self.gaps or self.gaps[-1][0] < gap.offset:
                    self.gaps.append((gap.offset, gap.offset + gap.length))
            self.base = offset
            self.short = len(self.block) < min(BLOCK, self.end - offset)
            if not self.block:
                self.end = offset
                return False
        return True

    def search(self, pattern: re.Pattern[bytes], offset: int, stop: int | None = None) -> int | None:
        """Return where ``pattern`` is found from ``offset`` on."""
        stop = self.end if stop is None else stop
        while offset < stop and self.have(offset, AHEAD):
            match = pattern.search(self.block, offset - self.base)
            if match is not None and self.base + match.start() < stop:
                return self.base + match.start()
            behind = self.base + len(self.block)
            if behind >= self.end:
                return None
            # A short block ends at a gap, and no match reaches across one.
            offset = behind if len(self.block) < BLOCK else max(offset + 1, behind - AHEAD)
        return None

    def next_place(self, top: Open, lost: int) -> tuple[int | None, int, int]:
        """Return where to continue after a fault, the kind of container, and what is there."""
        self.sure = True
        if not self.have(lost, AHEAD):
            return None, 0, 0
        at = lost - self.base
        if not top.after:
            key = KEY.match(self.block, at) if top.kind == OBJECT else None
            begin = key.end() if key is not None else at + 1
        else:
            begin = at
        garbage = GARBAGE.match(self.block, begin)
        if garbage is not None and (top.after or garbage[0].strip(WHITESPACE)):
            plain = len(garbage[0].strip(WHITESPACE)) < 2 or not garbage[0].strip(WHITESPACE + b"\0")
            return self.base + garbage.end(), OBJECT, KEY_HERE if plain else DOUBTFUL_KEY
        near = self._near(top, lost)
        if near is not None:
            return *near, MARK_HERE
        self.sure = False
        zeroed = self.block[at : at + 1] == b"\0"  # then the quote before them is intact
        there = top.after and bool(top.starts) and not zeroed and self.have(top.ends[-1] - 1, AHEAD)
        if there and self.block[top.ends[-1] - 1 - self.base] == 0x22:  # the string may have swallowed what follows
            begin = max(top.starts[-1], lost - BLOCK // 2)
            top.item, top.after = top.drop(), False
            return self.far(top, begin)
        return self.far(top, lost)

    def far(self, top: Open, lost: int) -> tuple[int | None, int, int]:
        """Return the next unambiguous place after a fault."""
        begin = lost + 1
        places: list[tuple[int, int, int]] = []
        place = self.search(CANDIDATE, begin)
        while place is not None and not places:
            found = self._at_candidate(place, lost)
            if found is None:  # it would be an element, but no array is open
                place = self.search(CANDIDATE, place + 1)
            else:
                places.append(found)
        stop = place if place is not None else self.end
        if top.kind == 0x5B:
            element = self.search(ELEMENT, begin, stop)
            if element is not None:
                places.append((element, 0x5B, MARK_HERE))
            quote = self.search(_QUOTE, lost, element if element is not None else stop)
            plain = self.search(PLAIN_ELEMENT, begin, quote if quote is not None else stop)
            if plain is not None:
                places.append((plain, 0x5B, MARK_HERE))
        places = [found for found in places if found[0] > lost or found[2] == ELEMENT_HERE]
        return min(places) if places else (None, 0, 0)

    def _at_candidate(self, place: int, lost: int) -> tuple[int, int, int] | None:
        """Return the same as `_far` for the comma, bracket or zero at ``place``, which a key follows."""
        mark = self.block[place - self.base]
        if mark == 0x2C:
            return place, OBJECT, MARK_HERE
        if mark != OBJECT:
            blank = BLANK.match(self.block, place + 1 - self.base)
            return self.base + blank.end() if blank else place + 1, OBJECT, KEY_HERE
        before = self.block[: place - self.base].rstrip(WHITESPACE)
        if not before.endswith(b","):
            return place, 0, BRACE_HERE
        comma = self.base + len(before) - 1
        if comma > lost:
            return comma, 0x5B, MARK_HERE
        return (place, 0x5B, ELEMENT_HERE) if place > self.went_on else None

    def _near(self, top: Open, lost: int) -> tuple[int, int] | None:
        """Return the next comma or bracket of this depth, if what follows it parses."""
        if not self.have(lost, AHEAD):
            return None
        block, base = self.block, self.base
        piece = block[lost - base : lost - base + NEAR]
        at = next_boundary(piece, 0, Carry())
        if at >= len(piece) or (at == 0 and not top.after and (piece[0] != 0x2C or top.kind != 0x5B)):
            return None
        begin = lost - base + at + 1
        if piece[at] != 0x2C:
            if at == 0 and top.kind and piece[at] != top.kind + 2:
                return lost, 0  # the wrong bracket, for this container or an outer one
            rest = block[begin : begin + NEAR].lstrip(WHITESPACE)
            fits = not rest or rest[0] in _FOLLOWER
            return (lost + at, 0) if fits and top.kind in (0, piece[at] - 2) else None
        if top.kind != 0x5B:
            key = KEY.match(block, begin)
            if key is None:
                return None
            begin = key.end()
        else:
            blank = BLANK.match(block, begin)
            begin = blank.end() if blank is not None else begin
        item = ITEM.match(block, begin, begin + AHEAD)
        if item is None:
            keyed = top.kind != 0x5B  # key and colon are enough: what follows is read next
            return (lost + at, top.kind) if keyed or block[begin : begin + 1] in (b"{", b"[") else None
        follower = block[item.end() : item.end() + 1]
        return (lost + at, top.kind) if not follower or follower in _FOLLOWER else None

    def is_member(self, offset: int) -> bool:
        """Return whether a member of the first level begins at ``offset``, or after the comma there."""
        if self.member is None or not self.have(offset, AHEAD):
            return False
        at = offset - self.base
        return self.member.match(self.block, at + (self.block[at] == 0x2C)) is not None

    def next_member(self, offset: int) -> int | None:
        """Return where the next member of the first level begins, if the format can tell it from others."""
        if self.member is None or offset >= self.no_member_from:
            return None
        found = self.search(self.member, offset)
        if found is None:
            self.no_member_from = min(self.no_member_from, offset)
        return found


def is_one_word(text: PlaceFinder, lost: int, stop: int) -> bool:
    """Return whether what was lost is one value, in a word of another language."""
    if not text.have(lost, AHEAD):
        return False
    match = ONE_WORD.match(text.block, lost - text.base)
    return match is not None and text.base + match.end() == stop


def goes_on_by_commas(text: PlaceFinder, lost: int) -> bool:
    """Return whether commas show members after ``lost``, though none can be proved."""
    carry = Carry()
    while text.have(lost, AHEAD):
        piece = text.block[lost - text.base :]
        at = next_boundary(piece, 0, carry)
        if at < len(piece):
            return piece[at] == 0x2C
        lost += len(piece)
    return False


def is_balanced(text: PlaceFinder) -> bool:
    """Return whether quotes pair up and each bracket closes one of its kind, up to the end of the document.

    If so, the structure of the document is intact, and commas separate its members, faulty or not.
    """
    pos, brackets = text.start, bytearray()
    while text.have(pos, AHEAD):
        stop = text.base + len(text.block)
        for match in BALANCE.finditer(text.block, pos - text.base):
            mark = text.block[match.start()]
            if mark == 0x22:
                if match.end() - match.start() > 1:
                    continue
                if text.base + match.start() == pos or text.base + len(text.block) >= text.end:
                    return False  # a string that does not end, or is not worth repairing
                stop = text.base + match.start()
                break
            if mark in b"[{":
                brackets.append(mark)
                continue
            if not brackets or mark != brackets.pop() + 2:
                return False
            if not brackets:
                return text.search(NOT_BLANK, text.base + match.end()) is None
        pos = stop
    return False
