"""`Base64Data`: the bytes that a base64 text stands for, read at any offset; `UnescapedText`: that of a JSON string.

Four characters are three bytes (RFC 4648 §4), so where a byte comes from is arithmetic: nothing is decoded before it is
read. Both alphabets are read (§5 has ``-`` and ``_`` for ``+`` and ``/``), with padding or without. A character of
neither alphabet loses the three bytes of its group: they become a gap when they are read, and `Base64Data.on_bad` is
told.
"""

from __future__ import annotations

import binascii
from array import array
from bisect import bisect_right

from pparse.data.base import Gap, GapTable
from pparse.data.range_status import Stretches
from pparse.data.spliced import DerivedData
from pparse.errors import GapError
from pparse.lazy import lazy_pattern
from pparse.locking import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.data.base import Data, IoStats, Range

_STEP: Final = 1 << 18  # characters decoded at a time; a multiple of 4
# More bad groups in one step are one gap, and so are those of a step if there are so many gaps already.
_MOST_APART: Final = 64
_MOST_GAPS: Final = 4096
_PLAIN: Final = bytes.maketrans(b"-_", b"+/")
_BAD: Final = lazy_pattern(rb"[^A-Za-z0-9+/]")

# One unit of the text of a JSON string that has escapes.
_UNITS: Final = lazy_pattern(rb"[^\\]++|\\u[0-9a-fA-F]{4}|\\[^u]")
_ESCAPES: Final = {b'\\"': b'"', b"\\\\": b"\\", b"\\/": b"/", b"\\b": b"\b", b"\\f": b"\f"}
# Line breaks may stand between the groups of a base64 text.
_BLANKS: Final = (b"\\n", b"\\r", b"\\t")
# Decoded characters between two places where unescaping can begin again.
_STRIDE: Final = 64 << 10


class _OfText(DerivedData):
    """Data made of the range ``text`` of other data."""

    copies = False

    def __init__(self, text: Range, name: str, size: int, stats: IoStats | None) -> None:
        super().__init__(name, size, stats)
        self._text = text
        self.sources = (text.data,)
        self.access = text.data.access

    def pieces(self, start: int, end: int) -> tuple[tuple[Data, int, int], ...]:
        """Return all of the text."""
        return ((self._text.data, self._text.start, self._text.end),)


class Base64Data(_OfText):
    """The bytes of the base64 text ``text``.

    ``on_bad`` is called with the offset in the text's data of each character that is not base64, once, and may be
    called in any thread.
    """

    def __init__(self, text: Range, name: str, stats: IoStats | None = None) -> None:
        count = text.end - text.start
        tail = text.data.pread(text.end - min(count, 2), min(count, 2))
        self._count = count - (len(tail) - len(tail.rstrip(b"=")))
        super().__init__(text, name, self._count // 4 * 3 + max(0, self._count % 4 - 1), stats)
        self._lock = Lock()
        self._lost = Stretches()  # the gaps
        self.on_bad: Callable[[int], object] | None = None
        self.odd = self._count % 4 == 1
        """Whether the last character stands alone, so that it is no byte: one is missing, or too many."""

    def _pread(self, offset: int, length: int) -> bytes:
        pieces: list[bytes] = []
        done = 0
        while done < length:
            at = offset + done
            group = at // 3
            stop = min(-(-(offset + length) // 3), group + _STEP // 4)
            block = self._decoded(group, stop)
            first = at - 3 * group
            gap = self.next_gap(at) if self.gaps else None
            last = min(len(block), offset + length - 3 * group)
            if gap is not None and gap.offset < 3 * group + last:
                last = gap.offset - 3 * group
                if last > first:
                    pieces.append(block[first:last])
                elif not pieces:
                    raise GapError(at, gap.length, source=self.name)
                break
            if last <= first:
                break
            pieces.append(block[first:last])
            done += last - first
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _decoded(self, group: int, stop: int) -> bytes:
        """Return the bytes of the groups from ``group`` to before ``stop``; zeros for those that are bad."""
        source = self._text.data
        start = self._text.start + 4 * group
        end = min(self._text.start + 4 * stop, self._text.start + self._count)
        text = source.read_exact(start, max(0, end - start)).translate(_PLAIN)
        try:
            return binascii.a2b_base64(text + b"=" * (-len(text) % 4), strict_mode=True)
        except binascii.Error:
            return self._mended(text, group)

    def _mended(self, text: bytes, group: int) -> bytes:
        """Decode a text with bad characters, and take note of the groups that they are in."""
        mended = bytearray(text)
        bad: dict[int, int] = {}  # by number of the group: the first bad character
        for match in _BAD.finditer(text):
            bad.setdefault(match.start() // 4, match.start())
        for at in bad:
            mended[4 * at : 4 * at + 4] = b"AAAA"[: len(mended) - 4 * at]
        if len(mended) % 4 == 1:  # the last character stands alone
            del mended[-1]
        if bad:
            self._lose(group, bad)
        return binascii.a2b_base64(bytes(mended) + b"=" * (-len(mended) % 4))

    def _lose(self, group: int, bad: dict[int, int]) -> None:
        """Make gaps of the groups ``bad``, counted from ``group``; one of all of them if they are many."""
        places = [(3 * (group + at), 3 * (group + at) + 3, char) for at, char in bad.items()]
        size = self.size or 0
        with self._lock:
            if len(places) > _MOST_APART or len(self._lost) > _MOST_GAPS:
                places = [(places[0][0], places[-1][1], places[0][2])]
            fresh = [place for place in places if not self._lost.covers(place[0], min(place[1], size))]
            if fresh:
                for start, end, _ in fresh:
                    if start < size:
                        self._lost.add(start, min(end, size))
                self.gaps = GapTable(Gap(start, end - start) for start, end in self._lost)
                self.stats.discover()
        tell = self.on_bad
        if tell is not None:
            for _, _, char in fresh:
                tell(self._text.start + 4 * group + char)

    def locate(self, offset: int, length: int) -> list[tuple[Data, int, int]]:
        """Return where the characters of these bytes lie in the outermost data."""
        first = offset // 3 * 4
        last = min(self._count, -(-(offset + length) // 3) * 4)
        return self._text.data.locate(self._text.start + first, max(0, last - first))

    def pieces(self, start: int, end: int) -> tuple[tuple[Data, int, int], ...]:
        """Return the characters of these bytes."""
        first, last = self._text.start + start // 3 * 4, self._text.start + -(-end // 3) * 4
        return ((self._text.data, first, min(last, self._text.end)),)


class UnescapedText(_OfText):
    """The characters of a JSON string with escapes, without its quotes; one byte each, zero for those above 127.

    Escaped line breaks and tabs are left out. The text is read once to make it; what is kept of that is a place to
    begin again for each 64 KiB.
    """

    def __init__(self, text: Range, name: str, stats: IoStats | None = None) -> None:
        self._text = text
        self._places = array("q", [text.start])  # in the text's data
        self._firsts = array("q", [0])  # characters before each
        count = 0
        pos = text.start
        while pos < text.end:
            chars, pos = self._unescaped(pos, _STRIDE)
            count += len(chars)
            self._places.append(pos)
            self._firsts.append(count)
        super().__init__(text, name, count, stats)

    @property
    def memory(self) -> int:
        """Approximate memory, in bytes."""
        return 16 * len(self._places)

    def _unescaped(self, pos: int, length: int) -> tuple[bytes, int]:
        """Return the characters in some ``length`` bytes of the text from ``pos`` on, and where they end."""
        raw = self._text.data.read_exact(pos, min(length + 6, self._text.end - pos))
        units: list[bytes] = []
        at = 0
        while at < min(length, len(raw)):
            match = _UNITS.match(raw, at)
            unit = raw[at:] if match is None else match[0]  # an escape that is cut
            at += len(unit)
            if unit[:1] != b"\\":
                units.append(unit)
            elif unit[1:2] == b"u" and match is not None:
                code = int(unit[2:], 16)
                units.append(bytes((code if code < 0x80 else 0,)))
            elif match is not None and unit not in _BLANKS:
                units.append(_ESCAPES.get(unit, b"\0"))
        return b"".join(units), pos + at

    def _pread(self, offset: int, length: int) -> bytes:
        place = bisect_right(self._firsts, offset) - 1
        chars, pos = bytearray(), self._places[place]
        first = self._firsts[place]
        while len(chars) < offset + length - first and pos < self._text.end:
            more, pos = self._unescaped(pos, _STRIDE)
            chars += more
        return bytes(chars[offset - first : offset - first + length])

    def locate(self, offset: int, length: int) -> list[tuple[Data, int, int]]:
        """Return about where these characters lie in the outermost data: the stretches between two known places."""
        place = max(0, bisect_right(self._firsts, offset) - 1)
        after = min(len(self._places) - 1, bisect_right(self._firsts, offset + max(0, length - 1)))
        return self._text.data.locate(self._places[place], self._places[after] - self._places[place])
