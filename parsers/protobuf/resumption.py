"""Where a message continues after damage: at the next field from which all of the rest can be identified.

Fields follow each other by their lengths, so a damaged tag or length hides everything after it. The search is for a
field that holds a message, of the message's own type, such that

- from there, field follows field to the exact end of the message: all are in the schema, with its wire types, and in
  the order of their numbers, as serializers write them;
- it is sound down to its leaves, not empty, and everything in it is in the schema;
- it cannot be a field of a nested message. It is not known which nested message is damaged, and the rest of that one
  may come before the field. (So in a message that holds messages of its own type, reading does not continue.)

The last field before the damage is kept only if this does not contradict it: its length may be damaged. A large message
that is the only one of its number is kept in any case if its first fields fit, since all of the rest may be in it, as
the graph of a model is.
"""

from __future__ import annotations

import re
from collections import deque
from functools import cached_property

from pparse.errors import EndOfDataError, GapError, MalformedError
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN, START_GROUP
from pparse.parsers.protobuf.check import Checker, fits, fitting_tags, is_text
from pparse.parsers.protobuf.index import OverlayEntry, OverlayField, WireWindow, accepts
from pparse.parsers.protobuf.values import is_message
from pparse.protobuf.schema import TYPE_BYTES, TYPE_STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Final

    from pparse.data.base import Data
    from pparse.parsers.protobuf.index import WireField
    from pparse.protobuf.schema import FieldType, MessageType

_BLOCK: Final = 256 << 10
# Bytes of a field that are read to see whether it looks like a message; then all of it is checked.
_HEAD: Final = 16 << 10
# Shorter messages than this are given up whole, if they are not sound: what looks like one may be other bytes.
_MOST_LOST: Final = 1 << 10
# So many tags show one that is kept, although others behind them do not fit.
_FITTING: Final = 8
# A tag and a length, and the first tag of the content.
_HEADER: Final = 16
# Fields before the damage that are remembered: damaged bytes may look like so many fields before one is invalid.
_REMEMBERED: Final = 256
# Bytes read to see whether a field begins where another one ends.
_JUMP: Final = 256
# Steps of a search, plus one for so many bytes: the cost is at most the size times a constant.
_FREE_STEPS: Final = 100_000
_BYTES_PER_STEP: Final = 4
# Reading so many bytes counts as a step.
_LOOK: Final = 64
_MAX_DEAD: Final = 100_000
_MAX_TYPES: Final = 2_000


class Resumption(OverlayEntry):
    """Bytes ``[begin, end)`` of a message are lost; field ``number`` is the first one after them.

    Among the pieces of the message it stands for the lost fields: one element of the list that continues, so that most
    elements keep their numbers.
    """

    __slots__ = ("begin", "end", "number")

    def __init__(self, begin: int, end: int, number: int) -> None:
        self.begin = begin
        self.end = end
        self.number = number

    def numbers(self) -> Sequence[int]:
        """Return the number of the list."""
        return (self.number,)

    def field(self, number: int) -> OverlayField:
        """Return the stand-in for the element."""
        return LostElement(self)


class LostElement(OverlayField):
    """One or more elements that were lost."""

    __slots__ = ()
    owner: Resumption


def find_resumption(
    data: Data, start: int, end: int, type: MessageType | None, check: Callable[[], None], content: bytes | None = None
) -> Resumption | None:
    """Return what is lost of the message ``data[start:end]``, all of whose bytes exist; None if there is nothing to do.

    That is the case if field follows field to its end (whatever they hold), or to where the data were cut; and if no
    position to continue at can be proved. Behind a gap of unknown length all is lost then: the number is 0. So it is
    without a ``type``, since any field may be one of such a message, and nothing proves where the next one begins.
    ``content``: the bytes of the message, if they were read already.
    """
    search = _Search(data, start, end, type, check)
    if content is not None:
        search.window.take(start, content)
    return search.run()


class _Search:
    """One search; ``_last`` is the number of the last field before the damage."""

    def __init__(self, data: Data, start: int, end: int, type: MessageType | None, check: Callable[[], None]) -> None:
        self._data = data
        self._start = start
        self._end = end
        self._type = type
        self._fields = {} if type is None else type.fields
        self._check_cancelled = check
        self._checker = Checker(check)
        self.window = WireWindow(data, end, _JUMP)
        self._heads = WireWindow(data, end)  # of the positions that are tried, in order
        self._dead: set[int] = set()
        self._steps = _FREE_STEPS + (end - start) // _BYTES_PER_STEP  # steps left
        self._last = 0

    def run(self) -> Resumption | None:
        """Walk to the damage, and search for a position after it."""
        pos = self._start
        loose = self._data.loose_gap(pos) if self._data.gaps else None
        if loose is None and not any(is_message(field) for field in self._fields.values()):
            return None
        before: deque[WireField] = deque(maxlen=_REMEMBERED)
        while pos < self._end:
            field = self._field(pos)
            if field is None:
                break
            if loose is not None and pos <= loose < field.next < self._end:
                return self._behind(field, loose)
            before.append(field)
            pos = field.next
        if pos >= self._end or self._is_cut(pos) or self._overshoots(pos):
            return None
        dropped: WireField | None = None
        while before and not self._is_good(before[-1]):
            dropped = before.pop()
        begin = after = self._start
        if dropped is not None and self._holds_more(dropped):
            begin = after = dropped.next
            self._last = dropped.tag >> 3
        elif before:
            begin, after, self._last = before[-1].begin, before[-1].next, before[-1].tag >> 3
        at = next((at for at in self._candidates(begin + 1 if begin < after else begin) if self._reaches_end(at)), None)
        found = self._proved(at) if at is not None else None
        if found is None:
            return None
        return Resumption(after if after <= found.begin else begin, found.begin, found.tag >> 3)

    def _behind(self, field: WireField, loose: int) -> Resumption:
        """Return what is lost behind a field in which a gap of unknown length begins."""
        self._last = field.tag >> 3
        gap = self._data.next_gap(loose)
        first = loose if gap is None or gap.end is None else gap.end
        at = next((at for at in self._candidates(first) if self._reaches_end(at)), None)
        found = self._proved(at) if at is not None else None
        if found is None:
            return Resumption(field.next, self._end, 0)
        return Resumption(min(field.next, found.begin), found.begin, found.tag >> 3)

    # -- fields --------------------------------------------------------------------------------------------------------

    def _field(self, pos: int, window: WireWindow | None = None) -> WireField | None:
        """Return the field at ``pos``, if it lies within the message."""
        try:
            field = (window or self.window).field(pos)
        except (MalformedError, EndOfDataError, GapError):
            return None
        return field if field.next <= self._end else None

    def _is_cut(self, pos: int) -> bool:
        """Say whether the field at ``pos`` only lacks its end, and so does the last field in it, down to a leaf.

        With a damaged length, the message would continue with the fields of another one.
        """
        type = self._type
        last = 0
        while type is not None and pos < self._end:
            try:
                field = self.window.field(pos)
            except EndOfDataError:
                return True
            except (MalformedError, GapError):
                return False
            known = type.fields.get(field.tag >> 3)
            if known is None or not accepts(known, field.tag & 7) or field.tag >> 3 < last:
                return False
            if field.next > self._end:
                if field.tag & 7 != LEN:
                    return field.tag & 7 != START_GROUP
                pos, type, last = field.start, known.message, 0
            else:
                pos, last = field.next, field.tag >> 3
        return True

    def _known(self, field: WireField) -> FieldType | None:
        known = self._fields.get(field.tag >> 3)
        return known if known is not None and accepts(known, field.tag & 7) else None

    def _is_good(self, field: WireField) -> bool:
        """Say whether a field is in the schema, sound and not empty; random bytes look like an empty one too often."""
        known = self._known(field)
        if known is None or self._type is None or field.end <= field.start:
            return False
        if self._checker.sound(self._data.range(field.begin, field.next), self._type):
            return True
        self._steps -= (self._checker.stopped - field.begin) // _LOOK
        return False

    def _overshoots(self, pos: int) -> bool:
        """Say whether a large message that is to be kept begins here, and lost bytes: its stated end lies beyond."""
        try:
            field = self.window.field(pos)
        except (MalformedError, EndOfDataError, GapError):
            return False
        return field.next > self._end and self._holds_more(field)

    def _holds_more(self, field: WireField) -> bool:
        """Say whether a field that is not sound is a message to be kept, as the only one of its number: a whole graph.

        Reading continues inside of it, and behind its stated end.
        """
        known = self._known(field)
        there = min(field.end, self._end) - field.start
        if known is None or known.repeated or known.message is None or there < _MOST_LOST:
            return False
        return fitting_tags(self._head(field), known.message) >= _FITTING or self._looks_like(field, known.message)

    def _head(self, field: WireField) -> bytes:
        length = min(field.end - field.start, _HEAD)
        self._steps -= length // _LOOK
        return self._data.known(field.start, length)

    def _looks_like(self, field: WireField, type: MessageType) -> bool:
        head = self._head(field)
        return fits(head, type, complete=len(head) == field.end - field.start)

    # -- where it may go on --------------------------------------------------------------------------------------------

    def _candidates(self, pos: int) -> Iterator[int]:
        """Yield the offsets of possible heads of fields that hold a message, ascending."""
        from pparse.data.window import windows

        pattern = self._pattern()
        if pattern is None:
            return
        for base, block in windows(self._data, pos, self._end, _BLOCK, _HEADER):
            self._check_cancelled()
            stop = len(block) if base + len(block) >= self._end else len(block) - _HEADER
            for found in pattern.finditer(block):
                if found.start() >= stop:
                    break
                if self._steps < 0:
                    return
                yield base + found.start()

    def _pattern(self) -> re.Pattern[bytes] | None:
        """Return the pattern of a tag, a length, and a first tag in the content."""
        kinds = []
        for number, field in self._fields.items():
            if number < self._last or not is_message(field) or field.message is None or field.wire_type != LEN:
                continue
            tags = {
                encode_varint(below << 3 | wire)[:1]
                for below, inner in field.message.fields.items()
                for wire in range(6)
                if accepts(inner, wire)
            }
            if tags:
                first = b"[" + b"".join(re.escape(tag) for tag in sorted(tags)) + b"]"
                kinds.append(re.escape(encode_varint(number << 3 | LEN)) + b"[\x80-\xff]{0,8}[\x00-\x7f]" + first)
        return re.compile(b"(?=" + b"|".join(kinds) + b")", re.DOTALL) if kinds else None

    # -- proof ---------------------------------------------------------------------------------------------------------

    def _reaches_end(self, pos: int) -> bool:
        """Say whether the field at ``pos`` is sound, and field follows field from there to the end of the message."""
        self._steps -= 1
        field = self._field(pos, self._heads)
        known = self._known(field) if field is not None else None
        if field is None or known is None or known.message is None or field.end <= field.start:
            return False
        after = self._field(field.next) if field.next < self._end else None
        if field.next < self._end and (after is None or self._known(after) is None):
            return False
        if not self._looks_like(field, known.message) or not self._is_good(field):
            return False
        path: list[int] = []
        last = self._last
        while pos < self._end:
            self._steps -= 1
            field = self._field(pos) if pos not in self._dead else None
            if field is None or self._known(field) is None or field.tag >> 3 < last or self._steps < 0:
                room = _MAX_DEAD - len(self._dead)
                self._dead.update(path[-room:] if room > 0 else ())
                return False
            path.append(pos)
            last = field.tag >> 3
            pos = field.next
        return True

    def _proved(self, pos: int) -> WireField | None:
        """Return the first field from ``pos`` on that belongs to this message, and cannot belong to a nested one."""
        while pos < self._end:
            field = self._field(pos)
            known = self._known(field) if field is not None else None
            if field is None or known is None:
                return None
            if known.message is not None and self._looks_like(field, known.message) and not self._is_below(field):
                return field if self._is_good(field) else None
            pos = field.next
        return None

    def _is_below(self, field: WireField) -> bool:
        """Say whether a field may belong to a nested message."""
        for other in self._below.get(field.tag >> 3, ()):
            if not accepts(other, LEN):
                continue
            if other.message is not None:
                if self._looks_like(field, other.message):
                    return True
            elif other.type == TYPE_BYTES or (other.type == TYPE_STRING and is_text(self._head(field))):
                return True
        return False

    @cached_property
    def _below(self) -> dict[int, list[FieldType]]:
        """The fields of all messages that may lie in one of the type, by number."""
        found: dict[int, list[FieldType]] = {}
        queue = [field.message for field in self._fields.values() if field.message is not None]
        seen = {below.full_name for below in queue}
        while queue:
            for number, field in queue.pop().fields.items():
                found.setdefault(number, []).append(field)
                below = field.message
                if below is not None and below.full_name not in seen and len(seen) < _MAX_TYPES:
                    seen.add(below.full_name)
                    queue.append(below)
        return found
