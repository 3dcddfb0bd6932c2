"""What is known about containers of damaged JSON text, and patterns of what may be in them."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from operator import attrgetter

from pparse.errors import MalformedError
from pparse.findings import UNSURE_NUMBER, Finding
from pparse.lazy import lazy_pattern
from pparse.limits import count_words
from pparse.parsers.json.text import StrictDecoder
from pparse.tree.index import IndexNote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


OBJECT: Final = 0x7B

_W: Final = rb"[ \t\n\r]*+"
_PART: Final = rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+'
_STR: Final = b'"' + _PART + b'"'
_NUM: Final = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_FLAT: Final = _STR + b"|" + _NUM + b"|true|false|null|NaN|-?Infinity"


def _value(levels: int) -> bytes:
    if not levels:
        return b"(?:" + _FLAT + b")"
    inner = _value(levels - 1) + _W
    pairs = b"(?:" + _STR + _W + b":" + _W + inner + rb"(?:," + _W + rb'(?=")|(?=\})))*+'
    items = b"(?:" + inner + rb"(?:," + _W + rb"(?!\])|(?=\])))*+"
    return b"(?:" + _FLAT + rb"|\{" + _W + pairs + rb"\}|\[" + _W + items + rb"\])"


ITEM: Final = lazy_pattern(b"(" + _value(3) + b")" + _W)
KEY: Final = lazy_pattern(_W + b"(" + _STR + b")" + _W + b":" + _W)
KEY_THERE: Final = lazy_pattern(_W + _STR + _W + b":" + _W + rb'["\[{0-9tfnNI-]')
STRING_PART: Final = lazy_pattern(_PART)
# What may be at the end of a cut text.
CUT: Final = lazy_pattern(
    b"(?:" + _W + _STR + _W + b"(?::" + _W + b')?+)?+(?:"' + _PART + rb"(?:\\(?:u[0-9a-fA-F]{0,3})?|\")?|"
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
# The reason for a container that is sound itself, but holds something damaged.
BELOW: Final = "something inside it is damaged"
# A value up to this long is matched at once; a longer container is entered.
AHEAD: Final = 64 << 10


class Open:
    """An open container. ``kind`` is its bracket, 0 while unknown; ``seen`` the first bytes of its values."""

    __slots__ = (
        "after",
        "bad",
        "end",
        "ends",
        "finding",
        "fresh",
        "item",
        "kind",
        "lost",
        "seen",
        "start",
        "starts",
        "wrong",
    )

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
        if first:
            self.seen.add(_sort(first))
        self.after, self.fresh = True, False

    def take(self, other: Open, why_suspect: str | None) -> None:
        """Add the members of ``other``, which turned out to be a later part of this container."""
        count = len(self.starts)
        self.lost = self.lost or other.lost
        self.starts.extend(other.starts)
        self.ends.extend(other.ends)
        for at, wrong in other.bad.items():
            self.bad[count + at] = wrong
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


def _sort(byte: int) -> int:
    return 0x30 if byte in b"-0123456789" else 0x66 if byte in b"tf" else byte


def fits(trunk: list[Open], levels: list[Open], depth: int) -> bool:
    """Return whether ``levels`` can belong to the open containers, the first of them at ``depth``."""
    for number, level in enumerate(levels):
        at = depth - number
        if at > len(trunk):
            continue
        if at < 1:
            return False
        there = trunk[at - 1]
        if level.kind and level.kind != there.kind and not (at == len(trunk) and len(there.bad) == len(there.starts)):
            return False
    return True


def alike(trunk: list[Open], levels: list[Open], depth: int) -> bool:
    """Return whether values of these kinds occurred at these depths before."""
    for number, level in enumerate(levels):
        at = depth - number
        if 0 < at <= len(trunk) and level.seen and trunk[at - 1].seen and not level.seen <= trunk[at - 1].seen:
            return False
    return True


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


class Mended(IndexNote):
    """The children of a damaged container."""

    __slots__ = ("bad", "end", "ends", "finding", "starts")

    def __init__(self, starts: array[int], ends: array[int], bad: dict[int, str], end: int, finding: Finding) -> None:
        self.starts = starts
        """Where each child begins."""
        self.ends = ends
        """Where each child ends."""
        self.bad = bad
        """The damaged children: number to reason."""
        self.end = end
        """Where the container ends."""
        self.finding = finding
        """The first thing that was wrong."""

    @property
    def memory(self) -> int:
        """Approximate number of bytes held."""
        return 16 * len(self.starts) + 100 * len(self.bad)


class Unsure:
    """A stretch of an array in which the numbers of elements are uncertain, since elements may be lost before it."""

    __slots__ = ("array", "end", "lost", "size", "start")

    def __init__(self, array: int, lost: int, start: int, end: int) -> None:
        self.array = array
        """Where the array begins."""
        self.lost = lost
        """Where elements may be lost."""
        self.size = max(1, start - lost)
        """How many bytes are lost there."""
        self.start = start
        """Where the stretch begins."""
        self.end = end
        """Where the stretch ends."""

    @property
    def reason(self) -> str:
        """Why the number of a value in the stretch is uncertain."""
        lost = f"{count_words(self.size, 'byte')} at {self.lost}"
        return f"elements may be lost before it, in {lost}: its number is uncertain"

    def finding(self, source: str) -> Finding:
        """Return the finding for the array."""
        reason = f"elements of a list may be lost here: the numbers of elements up to byte {self.end} are uncertain"
        return Finding(UNSURE_NUMBER, reason, source=source, offset=self.lost, length=self.size)


start_of: Final = attrgetter("start")


def outermost(stretches: list[Unsure], lasts: list[int]) -> list[Unsure]:
    """Return the stretches in order, without those inside of another one and those that hold nothing.

    ``lasts``, in order: where the last children of all damaged containers begin.
    """
    found: list[Unsure] = []
    for stretch in sorted(stretches, key=lambda one: (one.start, -one.end)):
        place = bisect_left(lasts, stretch.start)
        if place < len(lasts) and lasts[place] < stretch.end and (not found or stretch.end > found[-1].end):
            found.append(stretch)
    return found
