"""Damaged JSON text: finds the members of its containers that can still be identified.

One pass over the text, with a stack of open containers. Text that parses is taken as it is. At a fault, the pass
continues

- at the next comma of the same depth, according to brackets and quotes, if what follows parses strictly;
- else at the next key with its colon after a comma or a brace. Between two strings there is only punctuation, and
  inside a string a quote is escaped, so ``,"name":`` is unambiguous, whether a quote before it was lost or made.

The depth of that place is not known at first: brackets may have been lost. What follows *proves* it: up to the end of
the document as many brackets are closed as were open; or a member matches ``member``, the pattern of members of the
first level, if the format has one. Between two faults there may be no proof. Then the depth is taken at which values of
these kinds occurred before; if there are several, the members are DAMAGED, not COMPLETE.

The number of array elements lost in an unreadable stretch is unknown, unless it can only be one value. So everything
after it in the outermost array that was open there is in an element with an uncertain number.

The result has a record for each container with a fault in it. All others are whole, and are parsed as usual.
"""

from __future__ import annotations

import re
from array import array
from collections import deque

from pparse.errors import GapError, MalformedError
from pparse.findings import Finding
from pparse.kernels.json_fold import Carry, next_boundary
from pparse.lazy import lazy_pattern
from pparse.parsers.json.record import BELOW, Mended, Unsure, outermost
from pparse.parsers.json.text import STRING_BODY, STRING_PART, WHITESPACE, StrictDecoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.tree.result import Result


OBJECT: Final = 0x7B

_W: Final = rb"[ \t\n\r]*+"
_STR: Final = b'"' + STRING_BODY + b'"'
_NUM: Final = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_FLAT: Final = _STR + b"|" + _NUM + b"|true|false|null|NaN|-?Infinity"


def _nested(levels: int) -> bytes:
    if not levels:
        return b"(?:" + _FLAT + b")"
    inner = _nested(levels - 1) + _W
    pairs = b"(?:" + _STR + _W + b":" + _W + inner + rb"(?:," + _W + rb'(?=")|(?=\})))*+'
    items = b"(?:" + inner + rb"(?:," + _W + rb"(?!\])|(?=\])))*+"
    return b"(?:" + _FLAT + rb"|\{" + _W + pairs + rb"\}|\[" + _W + items + rb"\])"


ITEM: Final = lazy_pattern(b"(" + _nested(3) + b")" + _W)
KEY: Final = lazy_pattern(_W + b"(" + _STR + b")" + _W + b":" + _W)
KEY_THERE: Final = lazy_pattern(_W + _STR + _W + b":" + _W + rb'["\[{0-9tfnNI-]')
# What may be at the end of a cut text.
CUT: Final = lazy_pattern(
    b"(?:" + _W + _STR + _W + b"(?::" + _W + b')?+)?+(?:"' + STRING_BODY + rb"(?:\\(?:u[0-9a-fA-F]{0,3})?|\")?|"
    rb"-?[0-9]*+\.?[0-9]*+(?:[eE][+-]?[0-9]*+)?|t|tr|tru|true|f|fa|fal|fals|false|n|nu|nul|null)"
)
# Zeros are certainly damage, so a quote after them is intact.
CANDIDATE: Final = lazy_pattern(rb"[,{\[\x00](?=" + _W + _STR + _W + b":" + _W + rb'["\[{0-9tfnNI-])')
ELEMENT: Final = lazy_pattern(b",(?=" + _W + b"(?:" + _STR + _W + rb"[,\]]|\{" + _W + _STR + _W + b":))")
PLAIN_ELEMENT: Final = lazy_pattern(
    b",(?=" + _W + b"(?:" + _NUM + b"|true|false|null|NaN|-?Infinity)" + _W + rb"[,\]])"
)
# Words of other languages that writers use in JSON: certainly one value, not the damaged rest of several.
ONE_WORD: Final = lazy_pattern(
    _W
    + b"(?:"
    + _STR
    + _W
    + b":"
    + _W
    + b")?+[+-]?(?:NaN|nan|Infinity|[Ii]nf|None|NULL|True|TRUE|False|FALSE|undefined)"
    + _W
)
# Damage without quotes, brackets or commas, before a key.
GARBAGE: Final = lazy_pattern(rb'[^"{}\[\],]{0,64}+(?=' + _STR + _W + b":" + _W + rb'["\[{0-9tfnNI-])')
BLANK: Final = lazy_pattern(_W)

NOT_BLANK: Final = lazy_pattern(rb"[^ \t\n\r]")
BALANCE: Final = lazy_pattern(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)
# A value up to this long is matched at once; a longer container is entered.
AHEAD: Final = 64 << 10


class Open:
    """An open container. ``kind`` is its bracket, 0 while unknown; ``seen`` the first bytes of its values."""

    def __init__(self, kind: int, start: int, *, after: bool = False) -> None:
        self.kind = kind
        self.start = start
        self.item = start + 1  # where the member being read begins
        self.after = after  # whether a comma or bracket must follow
        self.fresh = not after
        self.end = start
        self.starts, self.ends = array("q"), array("q")
        self.bad: dict[int, str] = {}
        self.seen: set[int] = set()
        self.finding: Finding | None = None
        self.wrong: str | None = None  # what is wrong with the member being read
        self.lost: tuple[int, int] | None = None  # the first stretch of an array in which elements may be lost

    def add(self, end: int, wrong: str | None = None, first: int = 0) -> None:
        """Add the member that was just read and ends at ``end``."""
        wrong, self.wrong = self.wrong or wrong, None
        if wrong is not None:
            self.bad[len(self.starts)] = wrong
        self.starts.append(self.item)
        self.ends.append(end)
        if first:  # numbers are of one sort, and so are true and false
            self.seen.add(0x30 if first in b"-0123456789" else 0x66 if first in b"tf" else first)
        self.after, self.fresh = True, False

    def hold(self, inner: Open, end: int, wrong: str | None) -> None:
        """Add a container that was open in this one, and ends at ``end``."""
        self.add(end, wrong, inner.kind)
        self.finding = self.finding or inner.finding

    def take(self, other: Open, why_suspect: str | None) -> None:
        """Add the members of ``other``, which turned out to be a later part of this container."""
        count = len(self.starts)
        self.lost = self.lost or other.lost
        self.starts.extend(other.starts)
        self.ends.extend(other.ends)
        self.bad.update((count + at, wrong) for at, wrong in other.bad.items())
        if why_suspect is not None:
            for at in range(count, len(self.starts)):
                self.bad.setdefault(at, why_suspect)
        self.seen |= other.seen
        self.finding = self.finding or other.finding
        self.after, self.fresh, self.item, self.end = other.after, other.fresh, other.item, other.end
        self.wrong = other.wrong

    def drop(self) -> int:
        """Remove the last member, and return where it began."""
        self.bad.pop(len(self.starts) - 1, None)
        self.ends.pop()
        return self.starts.pop()


def _pairs(trunk: list[Open], levels: list[Open], depth: int) -> Iterator[tuple[Open, Open]]:
    """Return what is open at the depths of ``levels``, the first of which is at ``depth``, each with its level."""
    return zip(reversed(trunk[:depth]), levels[max(0, depth - len(trunk)) :], strict=False)


def fits(trunk: list[Open], levels: list[Open], depth: int) -> bool:
    """Return whether ``levels`` can belong to the open containers, the first of them at ``depth``."""
    return len(levels) <= depth and all(
        level.kind in (0, there.kind) or (there is trunk[-1] and len(there.bad) == len(there.starts))
        for there, level in _pairs(trunk, levels, depth)
    )


def alike(trunk: list[Open], levels: list[Open], depth: int) -> bool:
    """Return whether values of these kinds occurred at these depths before."""
    return all(not there.seen or level.seen <= there.seen for there, level in _pairs(trunk, levels, depth))


def odd_text(text: bytes) -> str | None:
    """Return what is wrong with the strings of a member that is well-formed otherwise."""
    try:
        if not text.isascii():
            text.decode()
        if b"\\u" in text:
            StrictDecoder.refuse_lone_surrogates(text, 0)
    except UnicodeDecodeError:
        return "not UTF-8"
    except MalformedError as error:
        return error.reason
    return None


def is_one_text(text: bytes) -> bool:
    """Return whether a string that is not UTF-8 is just in another encoding, rather than two joined by damage.

    Between two strings there is ``","``. Fewer bytes cannot hide that; nor do letters of Latin-1, which noise rarely
    hits.
    """
    odd = [at for at, char in enumerate(text.decode(errors="surrogateescape")) if "\udc80" <= char <= "\udcff"]
    return not odd or odd[-1] - odd[0] < 2 or not any(0x80 <= byte < 0xA0 for byte in text)


# Open containers are objects here, a few hundred bytes each.
_MAX_DEPTH: Final = 1000
_MAX_FAULTS: Final = 10_000
# Another value, if the comma before it is lost; and zeros are no bytes that came in.
_VALUE: Final = lazy_pattern(rb"[\"\[{\x00]|(?:-?\d[\d.eE+-]*|true|false|null|NaN|-?Infinity)[\s,]*\Z")

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


class JsonMender:
    """One pass over the text of a document; see the module."""

    def __init__(
        self, result: Result, kind: int, member: re.Pattern[bytes] | None, is_all_there: bool, headless: Finding | None
    ) -> None:
        self.result = result
        extraction = self.extraction = result.extraction
        start = result.root.start
        self.data = extraction.data
        self.start = start
        self.end = extraction.find_end()
        self.member = member
        self.no_member_from = self.end if member is not None else 0
        self.block = b""
        self.base = start
        self.short = False
        self.gaps: deque[tuple[int, int]] = deque(maxlen=_GAPS)
        self.went_on = -1  # where reading continued after the last fault
        self.sure = False  # whether nothing suggests another depth than before
        # A text with its full length that ends early is damaged; any other may be cut.
        self.whole = is_all_there
        self.gave_up = False
        self.findings: list[Finding] = []
        self.flaw: Finding | None = None
        self.pos = start
        self.stack = [Open(kind, start)]
        self.trunk: list[Open] | None = None  # what was open at the last fault, while the depth behind it is unknown
        self.shed: list[Open] = []  # closed since then, beyond what was opened since then
        self.mended: dict[int, Mended] = {}
        # Whether members may not be where commas and brackets say; otherwise they are found, and judged, without this.
        self.moved = member is not None
        self.closed = False  # whether bytes follow a member that is closed, before the next comma
        self.unsure: list[Unsure] = []
        self.ends_lost: list[int] = []  # faults after which no place to continue was found
        self.faults = int(headless is not None)
        self.stack[0].finding = headless
        self.members = 0
        self.charge = extraction.session.budget.charge(2 * BLOCK, "the repair of JSON text")

    def run(self) -> dict[int, Mended]:
        """Return the records of the damaged containers by their start; none if the text is whole, or cut."""
        self.pos = self.start + 1
        try:
            while self.stack and self.faults <= _MAX_FAULTS and self._step():
                pass
            if self.gave_up or (not self.faults and not (self.whole and self.stack)):
                return {}
            self._end()
            lasts = [hit.starts[-1] for hit in self.mended.values() if hit.starts]
            self.unsure = outermost(self.unsure, sorted([*lasts, *self.ends_lost]))
            if not self.moved or (self.member is None and not self.gaps and not self.closed and self._is_balanced()):
                self.flaw = self.findings[0] if self.findings else None
                return {}
            for finding in self.findings:
                self.result.findings.add(finding)
            return self.mended
        finally:
            self.charge.release()

    # -- what is expected next ---------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Read one member, bracket or comma; return False at the end of the text or document."""
        while True:
            if not self.have(self.pos, AHEAD):
                return False
            match = BLANK.match(self.block, self.pos - self.base)
            self.pos = self.base + match.end() if match is not None else self.pos
            if self.pos < self.base + len(self.block):
                break
        self.have(self.pos, AHEAD)
        top, byte = self.stack[-1], self.block[self.pos - self.base]
        if top.after:
            if byte == 0x2C:
                self.pos += 1
                top.after, top.item = False, self.pos
                return True
            if byte in b"]}":
                if top.kind and byte != top.kind + 2:
                    return self._fault(f"the container is closed by {chr(byte)!r}")
                return self._close(byte)
            return self._fault("expected ',' or the closing bracket")
        if byte in b"]}" and top.kind in (0, byte - 2):
            if not top.fresh:
                self._note(top, "a comma before the closing bracket", self.pos, 1)
                self.faults += 1
            return self._close(byte)
        return self._item(top)

    def _item(self, top: Open) -> bool:
        """Read a member, or open it if it is a container."""
        at = value_at = self.pos - self.base
        key = KEY.match(self.block, at) if top.kind != 0x5B else None
        if not top.kind:
            top.kind = OBJECT if key is not None else 0x5B
        if top.kind == OBJECT:
            if key is None:
                return self._cut_or_fault("expected a key and ':'")
            value_at = key.end()
        most = at + AHEAD
        item = ITEM.match(self.block, value_at, most)
        if item is not None and self._hides_members(at, item):
            item = None
        if item is not None and item.end(1) < min(most, len(self.block)):
            return self._member(top, at, key, item)
        byte = self.block[value_at] if value_at < len(self.block) else 0
        value = self.base + value_at
        if byte in b"{[" and value_at < len(self.block):
            if len(self.stack) + len(self.trunk or ()) >= _MAX_DEPTH:
                self.gave_up = True
                return False
            self.stack.append(Open(byte, value))
            self.pos = value + 1
            return True
        if byte == 0x22 and self._long_string(value + 1):
            top.add(self.pos, None, byte)
            return True
        return self._cut_or_fault("expected a value")

    def _hides_members(self, at: int, item: re.Match[bytes]) -> bool:
        """Return whether a value may contain members of the first level because its closing bracket is lost."""
        if self.member is None or self.block[item.start()] != OBJECT or item[0].count(b"{") < 2:
            return False
        return self.member.match(self.block, at) is None and self.member.search(item[0], 1) is not None

    def _member(self, top: Open, at: int, key: re.Match[bytes] | None, item: re.Match[bytes]) -> bool:
        wrong = odd_text(self.block[at : item.end(1)])
        where, first = self.pos, item[1][0]
        self.pos = self.base + item.end()
        if wrong is not None:
            self._note(top, wrong, where, item.end(1) - at)
            self.faults += 1
            if not is_one_text(self.block[at : item.end(1)]):
                self._unnumber(where, self.pos)
        is_member = self.member is not None and key is not None and self.member.match(self.block, at) is not None
        if is_member and self.trunk is None and len(self.stack) > 1:
            top = self._back_to_first(where)
        top.add(self.base + item.end(1), wrong, first)
        self.members += 1
        if not self.members & 0x3FFF:
            self.charge.resize(2 * BLOCK + 16 * self.members)
        if is_member and self.trunk is not None and len(self.stack) == 1:
            self._resolve(len(self.shed) + 1)
        return True

    def _back_to_first(self, where: int) -> Open:
        """Close all but the first level: one of its members is at ``where``, so a bracket before is lost."""
        self._note(self.stack[-1], "a closing bracket is lost", where, 1)
        self.faults += 1
        while len(self.stack) > 1:
            self._give_up(self.stack, where - 1)
        self.stack[0].item = where
        return self.stack[0]

    def _long_string(self, offset: int) -> bool:
        """Skip a string that is longer than one match; return False if it is shorter, or does not end."""
        begin = offset
        while (match := self.match(STRING_PART, offset)) is not None:
            stop = self.base + match.end()
            if offset == begin and stop - begin < AHEAD // 2:
                return False
            if self.block.startswith(b'"', match.end()):
                self.pos = stop + 1
                return True
            if stop == offset:
                return False
            offset = stop
        return False

    def _close(self, byte: int) -> bool:
        top = self.stack[-1]
        top.end = self.pos
        if len(self.stack) > 1:
            self.stack.pop()
            self._record(top, self.pos + 1)
            self.stack[-1].hold(top, self.pos + 1, BELOW if top.finding is not None else None)
        elif self.trunk is not None:
            self.shed.append(top)
            self.stack = [Open(0, self.pos, after=True)]
        elif self._goes_on():
            self.moved = True
            return self._fault("an unmatched closing bracket")
        else:
            self._record(top, self.pos + 1)
            self.stack = []
        self.pos += 1
        return True

    def _goes_on(self) -> bool:
        """Return whether members follow the bracket that seems to close the document."""
        after = self.search(NOT_BLANK, self.pos + 1)
        if after is None:
            return False
        if self.block[after - self.base] == 0x2C and self.have(after, AHEAD):
            return KEY_THERE.match(self.block, after + 1 - self.base) is not None or self.stack[0].kind != OBJECT
        return self.next_member(self.pos + 1) is not None

    # -- faults ------------------------------------------------------------------------------------------------------

    def _cut_or_fault(self, reason: str) -> bool:
        """Handle the end of the text inside this member, or else a fault."""
        in_block = self.end - self.pos <= len(self.block) - (self.pos - self.base)
        if not self.whole and in_block and CUT.fullmatch(self.block, self.pos - self.base) is not None:
            return False
        return self._fault(reason)

    def _note(self, top: Open, reason: str, offset: int, length: int) -> None:
        finding = self._finding(reason, offset, length)
        top.finding = top.finding or finding

    def _finding(self, reason: str, offset: int, length: int) -> Finding:
        source = self.extraction.name
        finding = Finding("malformed", reason, source=source, offset=offset, length=length or None)
        self.findings.append(finding)
        return finding

    def _fault(self, reason: str) -> bool:
        """Find where to continue after a fault at ``pos``."""
        self.faults += 1
        if self.trunk is not None:
            self._resolve(None)
        top = self.stack[-1]
        misread = self._misread_key(top)
        lost = top.item if misread or not top.after else self.pos
        place, kind, how = (misread, OBJECT, KEY_HERE) if misread else self.next_place(top, lost)
        if place is not None and place <= self.went_on:
            place, kind, how = self.far(top, max(lost, self.went_on))
        lost = lost if top.after else top.item  # the last member may have turned out to be misread
        if place is None:
            self._lose(top, lost, self.end, reason)
            if self._goes_on_by_commas(lost):
                self.ends_lost.append(self.end - 1)
            self.pos = self.end
            return False
        self._lose(top, lost, place, reason)
        self.moved = self.moved or how != MARK_HERE or not self.sure
        self.trunk, self.shed, self.went_on = self.stack, [], place
        base = Open(kind, place, after=how == MARK_HERE)
        base.item = self.pos = place
        self.stack = [base]
        if how == DOUBTFUL_KEY:
            base.wrong = "its name may be cut"
        elif how == BRACE_HERE:
            base.wrong = "its name is lost"
            self.stack.append(Open(OBJECT, place))
            self.pos += 1
        if self.is_member(place):
            self._resolve(1)
        return True

    def _misread_key(self, top: Open) -> int:
        """Return where a string begins that was taken for a value although a colon follows; 0 if there is none.

        The brackets before it are lost.
        """
        if not (top.after and top.starts and self.block[self.pos - self.base :].startswith(b":")):
            return 0
        start, end = top.starts[-1], top.ends[-1]
        if end - start > NEAR or not self.have(start, AHEAD):
            return 0
        text = self.block[start - self.base : end - self.base].rstrip(WHITESPACE)
        if not text.endswith(b'"'):
            return 0
        value = text.rfind(b'"', 0, text.rfind(b'"'))
        if KEY_THERE.match(self.block, start - self.base + value) is None:
            return 0
        top.item = top.drop()
        top.after = False
        return start + value

    def _lose(self, top: Open, lost: int, stop: int, reason: str) -> None:
        """Record that ``[lost, stop)`` is lost: the member being read, or what followed the last one."""
        gap = self.gap_in(lost, stop)
        if gap is not None:
            reason = f"a gap of {gap[1]} bytes"
        self._note(top, reason, *(gap or (lost, max(1, stop - lost))))
        one = gap is None and self._is_one_word(lost, stop)
        if not top.after:
            top.add(stop, reason)
        elif top.starts:
            at = len(top.starts) - 1
            before = top.starts[at] if self.have(top.starts[at], AHEAD) else lost
            last = self.block[before - self.base : lost - self.base].rstrip(WHITESPACE)[-1:]
            zeroed = self.block[lost - self.base : lost - self.base + 1] == b"\0"
            if last not in (b"}", b"]") and (last != b'"' or (stop - lost > 1 and not zeroed)):
                top.bad.setdefault(at, f"what follows it is damaged: {reason}")
            elif _VALUE.match(self.block[lost - self.base : stop - self.base]) is None:
                self.moved = self.closed = True  # it ends where it closes, not at the next comma
            if stop - lost > 4:
                top.item = lost
                top.add(stop, reason)
        if not one:
            self._unnumber(lost, stop if stop < self.end else lost + 1)

    def _unnumber(self, lost: int, stop: int) -> None:
        """Record in the open arrays that elements may be lost; members of objects are found by their keys."""
        for level in self.stack:
            if level.kind != OBJECT and level.lost is None:
                level.lost = lost, stop

    # -- how deep ----------------------------------------------------------------------------------------------------

    def _resolve(self, depth: int | None) -> None:
        """Join what was read since the last fault to the containers open there: its first level is at ``depth``."""
        trunk, levels = self.trunk, [*self.shed, self.stack[0]]
        assert trunk is not None  # noqa: S101 -- the callers looked
        why_suspect = None
        if depth is None:
            depth, why_suspect = self._choose(trunk, levels)
        self.moved = self.moved or depth != len(trunk)
        while len(trunk) > max(1, depth):
            self._give_up(trunk, self.went_on)
        for number, level in enumerate(levels):
            at = depth - number
            if at > len(trunk):
                continue  # the beginning of its container is lost
            if at < 1:
                break
            if number:
                stop = levels[number - 1].end + 1
                if len(trunk) > at:
                    self._give_up(trunk, stop)
                elif trunk[-1].ends:
                    trunk[-1].ends[-1] = max(trunk[-1].ends[-1], stop)
            again = None if number else self._repeats(trunk[at - 1], level)
            trunk[at - 1].take(level, why_suspect or again)
        self.stack = trunk + self.stack[1:]
        self.trunk, self.shed = None, []

    def _give_up(self, trunk: list[Open], end: int) -> None:
        """Close the innermost container, which is damaged, at ``end``."""
        top = trunk.pop()
        self._record(top, end)
        trunk[-1].hold(top, end, BELOW)

    def _repeats(self, there: Open, level: Open) -> str | None:
        """Return a doubt if members after a fault repeat names from before it, as those of another container would."""
        if there.kind != OBJECT or max(len(there.starts), len(level.starts)) > 64:
            return None
        return "a bracket before it may be lost" if self._keys(there) & self._keys(level) else None

    def _keys(self, container: Open) -> set[bytes]:
        found = set()
        for at, start in enumerate(container.starts):
            match = KEY.match(self.block, start - self.base) if self.have(start, NEAR) else None
            if match is not None and at not in container.bad:
                found.add(match[1])
        return found

    def _choose(self, trunk: list[Open], levels: list[Open]) -> tuple[int, str | None]:
        """Return the likeliest depth for the first of ``levels``, and a doubt if others are as likely."""
        most, least = len(trunk), len(levels)
        possible = [depth for depth in range(most, least - 1, -1) if fits(trunk, levels, depth)]
        fitting = [depth for depth in possible if alike(trunk, levels, depth)] or possible
        if self.sure and most in fitting:
            return most, None
        if fitting:
            return fitting[0], None if len(fitting) == 1 else "its depth of nesting is unknown"
        for depth in range(max(most + 1, least), most + least):
            if fits(trunk, levels, depth):
                return depth, None
        return max(most, least), "its depth of nesting is unknown"

    # -- the end -----------------------------------------------------------------------------------------------------

    def _record(self, top: Open, end: int) -> None:
        """Keep what is known about a container if it is damaged."""
        if top.finding is not None and top.start >= 0:
            if top.kind != OBJECT and top.lost is not None and top.lost[1] < end:
                self.unsure.append(Unsure(top.start, *top.lost, end))
            self.mended[top.start] = Mended(top.starts, top.ends, top.bad, end, top.finding)

    def _end(self) -> None:
        """Close what is open at the end of the text."""
        if not self.stack:
            return
        if self.trunk is not None:
            base, void = self.stack[0], len(self.stack) == 1 and not self.stack[0].starts and self.stack[0].after
            proved = void and self.shed and fits(self.trunk, self.shed, len(self.shed))
            end = base.start + 1
            self._resolve(len(self.shed) if proved else None)
            if proved:
                self._record(self.stack[0], end)
                return
        if not self.stack[-1].after and self.stack[-1].item < self.end:
            self.stack[-1].add(self.end, "the text ends inside it")
        finding = self._finding("the document ends early", self.end, 0)
        while len(self.stack) > 1:
            self.stack[-1].finding = self.stack[-1].finding or finding
            self._give_up(self.stack, self.end)
        self.stack[0].finding = self.stack[0].finding or finding
        self._record(self.stack[0], self.end)

    # -- the text, a block at a time ---------------------------------------------------------------------------------

    def gap_in(self, start: int, stop: int) -> tuple[int, int] | None:
        """Return offset and length of the first known gap in ``[start, stop)``."""
        for offset, end in self.gaps:
            if offset < stop and start < end:
                return offset, end - offset
        return None

    def have(self, offset: int, count: int = 1) -> bool:
        """Load ``count`` bytes from ``offset`` on, or as many as exist, into the block; False: there are none.

        `pparse.parsers.json.walk.TextWalk` ends at a gap; here it is text that is never valid, and what follows counts.
        """
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

    def match(self, pattern: re.Pattern[bytes], offset: int) -> re.Match[bytes] | None:
        """Return what ``pattern`` matches at ``offset``; None also at the end of the text."""
        return pattern.match(self.block, offset - self.base) if self.have(offset, AHEAD) else None

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

    # -- where reading can go on behind a fault ------------------------------------------------------------------------

    def next_place(self, top: Open, lost: int) -> tuple[int | None, int, int]:
        """Return where to continue after a fault, the kind of container, and what is there."""
        self.sure = True
        if not self.have(lost, AHEAD):
            return None, 0, 0
        at = begin = lost - self.base
        if not top.after:
            key = KEY.match(self.block, at) if top.kind == OBJECT else None
            begin = key.end() if key is not None else at + 1
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
        found, place = None, self.search(CANDIDATE, begin)
        while place is not None and (found := self._at_candidate(place, lost)) is None:
            place = self.search(CANDIDATE, place + 1)  # it would be an element, but no array is open
        places = [] if found is None else [found]
        stop = place if place is not None else self.end
        if top.kind == 0x5B:
            element = self.search(ELEMENT, begin, stop)
            if element is not None:
                places.append((element, 0x5B, MARK_HERE))
            quote = self.search(_QUOTE, lost, element if element is not None else stop)
            plain = self.search(PLAIN_ELEMENT, begin, quote if quote is not None else stop)
            if plain is not None:
                places.append((plain, 0x5B, MARK_HERE))
        return min((found for found in places if found[0] > lost or found[2] == ELEMENT_HERE), default=(None, 0, 0))

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
        """Return the next comma or bracket of this depth, if what follows it parses; the block begins before it."""
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

    def _is_one_word(self, lost: int, stop: int) -> bool:
        """Return whether what was lost is one value, in a word of another language."""
        match = self.match(ONE_WORD, lost)
        return match is not None and self.base + match.end() == stop

    def _goes_on_by_commas(self, lost: int) -> bool:
        """Return whether commas show members after ``lost``, though none can be proved."""
        carry = Carry()
        while self.have(lost, AHEAD):
            piece = self.block[lost - self.base :]
            at = next_boundary(piece, 0, carry)
            if at < len(piece):
                return piece[at] == 0x2C
            lost += len(piece)
        return False

    def _is_balanced(self) -> bool:
        """Return whether quotes pair up and each bracket closes one of its kind, up to the end of the document.

        If so, the structure of the document is intact, and commas separate its members, faulty or not.
        """
        pos, brackets = self.start, bytearray()
        while self.have(pos, AHEAD):
            stop = self.base + len(self.block)
            for match in BALANCE.finditer(self.block, pos - self.base):
                mark = self.block[match.start()]
                if mark == 0x22:
                    if match.end() - match.start() > 1:
                        continue
                    if self.base + match.start() == pos or self.base + len(self.block) >= self.end:
                        return False  # a string that does not end, or is not worth repairing
                    stop = self.base + match.start()
                    break
                if mark in b"[{":
                    brackets.append(mark)
                    continue
                if not brackets or mark != brackets.pop() + 2:
                    return False
                if not brackets:
                    return self.search(NOT_BLANK, self.base + match.end()) is None
            pos = stop
        return False
