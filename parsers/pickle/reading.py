"""Feeds a pickle to the kernel `pparse.kernels.pickle_scan`, block by block; what need not be read is jumped over."""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_left, bisect_right
from operator import itemgetter

from pparse.errors import GapError, LimitError, MalformedError
from pparse.kernels.pickle_scan import FRAMED, LONG_LINE, MORE, NAMED, SLACK, STOPPED, UNKNOWN, Part, Scan, scan
from pparse.tree.index import IndexNote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Final, Protocol

    from pparse.data.base import Data
    from pparse.limits import Charge, MemoryBudget
    from pparse.tree.host import HostSession

    class Knower(Protocol):
        """Knows where opcodes go on behind such an array."""

        def named(self, pos: int) -> int:
            """Take note of the global that ends at ``pos``; return where opcodes go on."""

        def behind(self, pos: int) -> int | None:
            """Return where opcodes go on behind the BUILD that ends at ``pos``; None: that is not known."""


FIRST_BLOCK: Final = 256
LAST_BLOCK: Final = 64 << 10
# Values this large are jumped over when what is around them is read again.
LARGE: Final = 64 << 10
# The most slots that are kept of the parts of a value; a slot per so many bytes of the budget, and of what is over
# what blocks take.
_MOST_PARTS: Final = 1 << 20
_SHARE: Final = 512
_SHARE_OVER: Final = 56
_BLOCKS: Final = 4 << 20
# Less is not worth a charge.
CHARGE_FROM: Final = 32 << 10
# Bytes that a place on the stack takes; and a byte of a block, which may be an opcode that fills one.
_SLOT: Final = 40
_BYTE: Final = 2 + _SLOT


class Stop(enum.Enum):
    """Why reading ended."""

    END = "end"
    """The end that was given is reached."""
    STOP = "stop"
    """Behind the opcode STOP."""
    CUT = "cut"
    """The data end inside an opcode, or before STOP."""
    GAP = "gap"
    """A gap of the data begins."""
    UNKNOWN = "unknown"
    """There is no such opcode."""
    UNDERFLOW = "underflow"
    """An opcode finds too little on the stack."""
    NO_ARRAY = "no-array"
    """Nobody knows where the bytes of an array end."""


# What the kernel's answers mean, but for too few values on the stack; None: more may follow.
_STOPS: Final = {MORE: None, STOPPED: Stop.STOP, UNKNOWN: Stop.UNKNOWN, NAMED: Stop.NO_ARRAY}


class Jumps:
    """The large values inside of one value: where each ends, as it is known from an earlier reading."""

    __slots__ = ("_big", "_end", "_next", "_start", "_starts")

    def __init__(self, big: dict[int, list[tuple[int, int]]], starts: Sequence[int], start: int, end: int) -> None:
        """Those inside of the value ``[start, end)``; ``starts`` are the offsets of ``big`` in order."""
        self._big, self._starts, self._start, self._end = big, starts, start, end
        self._next = bisect_left(starts, start)

    def next_from(self, pos: int) -> tuple[int, int] | None:
        """Return slot and end of the next large value that begins at ``pos`` or behind it."""
        starts = self._starts
        if self._next < len(starts) and starts[self._next] < pos:
            self._next = bisect_left(starts, pos, self._next)
        while self._next < len(starts) and (at := starts[self._next]) < self._end:
            known = self._big[at]  # the inner ones first; of those at the start, the last is the value itself
            fitting = bisect_right(known, self._end, key=itemgetter(1)) - (at == self._start)
            if fitting > 0:
                return known[fitting - 1]
            self._next += 1
        return None


class Reading:
    """One way through opcodes: from ``pos`` on, to an end or to where they stop."""

    def __init__(
        self, session: HostSession, data: Data, pos: int, find_end: int, state: Scan, arrays: Knower | None
    ) -> None:
        """``find_end``: where the data end; ``arrays``: knows where bytes of arrays follow a BUILD, None: nowhere."""
        self.session, self.data, self._find_end, self._arrays = session, data, find_end, arrays
        self.pos = pos
        """Where it stands."""
        self.state = state
        """The stack there."""
        self.notes_big = False
        """Whether large values are noted."""
        self.line_is_cut = False
        """Whether the data end inside of a line that makes a value."""
        self.torn_at: int | None = None
        """Where the first frame ends that does so inside of an opcode, or in which another one begins, if the state
        minds frames; None: there is none."""
        self.at_hand: Callable[[int, int], bytes] | None = None
        """Returns bytes that are in memory; none if they are not."""
        self._size = session.block_size or FIRST_BLOCK
        self._charge: Charge | None = None

    def run(
        self, end: int | None, jumps: Jumps | None = None, after: Callable[[Reading], object] | None = None
    ) -> Stop:
        """Read to ``end`` (None: to STOP). ``after`` is called after each block."""
        limit = self._find_end if end is None else min(end, self._find_end)
        try:
            while end is None or self.pos < end:
                jump = None if jumps is None else jumps.next_from(self.pos)
                if jump is not None and jump[0] >> 8 == self.pos:
                    self.state.slots.append(jump[0])
                    self.pos = jump[1]
                    continue
                stop = self._block(limit if jump is None else min(jump[0] >> 8, limit))
                if after is not None:
                    after(self)
                if stop is not None:
                    return stop
        finally:
            self._charge = None
        return Stop.END

    def _hold(self, amount: int) -> None:
        """Charge what a block takes, if that is worth it. Raises `LimitError`."""
        if self._charge is not None:
            self._charge.resize(amount)
        elif amount >= CHARGE_FROM:
            self._charge = self.session.budget.charge(amount, "a block of a pickle")

    def _block(self, limit: int) -> Stop | None:
        """Read one block, and its opcodes; None: more may follow."""
        self.session.check_cancelled()
        if self.pos >= limit:
            return Stop.CUT
        wanted = min(self._size + SLACK, self._find_end - self.pos)
        self._hold(_BYTE * wanted + _SLOT * (len(self.state.slots) + len(self.state.marks)))
        try:
            block = (self.at_hand and self.at_hand(self.pos, wanted)) or self.data.pread(self.pos, wanted)
        except GapError:
            return Stop.GAP if not self.data.is_cut_at(self.pos) else Stop.CUT
        have, base = len(block), self.pos
        is_last = base + have >= self._find_end or have < wanted
        stop = min(limit - base, have if is_last else have - SLACK)
        if is_last:
            block += bytes(SLACK)  # no opcode there: what reaches into it is cut
        if self.notes_big:
            self.state.floor = (base - LARGE) << 8
        i, why = self._scan(block, stop, base)
        self.pos = base + i
        if why != NAMED and not self.session.block_size:
            # Behind a value that was jumped over there may be another one: a large block would be read for nothing.
            self._size = min(self._size * 4, LAST_BLOCK) if i <= have else FIRST_BLOCK
        if why in (MORE, STOPPED) and self.pos > self._find_end:  # the last opcode reaches beyond the data
            gap = self.data.next_gap(self._find_end)
            return Stop.GAP if gap is not None and not self.data.is_cut_at(self._find_end) else Stop.CUT
        if why == LONG_LINE:
            return self._long_line(base + i)
        return _STOPS.get(why, Stop.UNDERFLOW)

    def _scan(self, block: bytes, stop: int, base: int) -> tuple[int, int]:
        """Run the opcodes of a block, without the bytes of arrays between them; NAMED if their end is not known."""
        i, why = self._framed(block, 0, stop, base)
        while why >= NAMED and self._arrays is not None:
            end = self._arrays.named(base + i) if why == NAMED else self._arrays.behind(base + i)
            if end is None:
                return i, NAMED
            i = end - base
            if i >= stop:
                return i, MORE
            i, why = self._framed(block, i, stop, base)
        return i, why

    def _framed(self, block: bytes, i: int, stop: int, base: int) -> tuple[int, int]:
        """Run the opcodes of a block, up to the end of each frame: it should be that of an opcode."""
        state = self.state
        if not state.minds_frames:
            return scan(block, i, stop, base, state)
        while True:
            begin, end = i, state.frame_end - base
            i, why = scan(block, i, end if begin < end < stop else stop, base, state)
            torn = begin < end < i - (9 if why == FRAMED else 0) or (why == FRAMED and i - 9 < end)
            if torn and self.torn_at is None:
                self.torn_at = base + end
            if why != FRAMED and (why != MORE or i >= stop):
                return i, why

    def _long_line(self, at: int) -> Stop | None:
        """Read an opcode whose line does not end in its block."""
        most = self.session.limits.scalar_bytes
        # Four times the block that it began in: of thousands of damaged pickles, each may have such a line.
        size = min(4 * self._size, LAST_BLOCK)
        while True:
            wanted = min(size, self._find_end - at)
            self._hold(3 * wanted + _SLOT * len(self.state.slots))
            block = self.data.pread(at, wanted)
            i, why = self._scan(block + bytes(SLACK), 1, at)
            if why != LONG_LINE:
                self.pos = at + i
                return _STOPS.get(why, Stop.UNDERFLOW)
            if at + len(block) >= self._find_end or len(block) < wanted:
                if block[:1] != b"p":  # PUT makes no value
                    self.state.slots.append(at << 8 | block[0])
                    self.line_is_cut = True
                self.pos = self._find_end + 1
                return Stop.CUT
            size *= 4
            if size > max(most, LAST_BLOCK):
                reason, option = "a line of a pickle is too long", "--limit scalar-bytes=N"
                raise LimitError(reason, option=option, wanted=size, got=most, offset=at)


# -- What opcodes put into one value -----------------------------------------------------------------------------------

# Stand for the opcode that put items, or pairs, into a value; no value has them in its slot.
ITEMS, PAIRS = 0x65, 0x75
_TAKEN: Final = (ITEMS, PAIRS)


class Parts(IndexNote):
    """The slots of what opcodes put into a value, in order, and behind those of each opcode its own offset.

    So each is described without reading its opcodes again. More than ``most`` slots are not kept: it is empty then.
    """

    __slots__ = ("_cuts", "_most", "_slots")

    def __init__(self, budget: MemoryBudget) -> None:
        self._slots = array("q")
        self._cuts = array("q")  # the offsets of the opcodes
        over = (budget.limit - _BLOCKS) // _SHARE_OVER
        self._most = min(_MOST_PARTS, max(over, budget.limit // _SHARE))

    @property
    def memory(self) -> int:
        """Bytes held."""
        return 8 * (len(self._slots) + len(self._cuts))

    def add(self, slots: list[int], at: int, *, as_pairs: bool) -> None:
        """Note what the opcode at ``at`` put there."""
        if len(self._slots) + len(slots) > self._most:
            self.forget()
            self._most = 0
        elif slots:
            self._slots.extend([*slots, at << 8 | (PAIRS if as_pairs else ITEMS)])
            self._cuts.append(at)

    def forget(self) -> None:
        """Drop all."""
        self._slots, self._cuts = array("q"), array("q")

    @property
    def is_whole(self) -> bool:
        """Whether all is kept that was noted."""
        return bool(self._most)

    def takes(self) -> Iterator[tuple[list[int], bool, int]]:
        """Yield slots, whether they are pairs, and the offset of each opcode."""
        begin = 0
        for at in self._cuts:
            end = bisect_left(self._slots, at << 8, begin)
            yield self._slots[begin:end].tolist(), self._slots[end] & 0xFF == PAIRS, at
            begin = end + 1

    def between(self, start: int, end: int) -> list[Part]:
        """Return slots and ends of the parts that begin in ``[start, end)``; nothing if they are not kept."""
        first, last = bisect_left(self._slots, start << 8), bisect_left(self._slots, end << 8)
        return [part for part in self._parts(first, last) if part[0] & 0xFF not in _TAKEN]

    def _parts(self, first: int, last: int) -> list[Part]:
        slots = self._slots
        return [(slot, end >> 8) for slot, end in zip(slots[first:last], slots[first + 1 : last + 1], strict=False)]

    def stretches(self, most: int, *, paired: bool) -> Iterator[list[Part]]:
        """Yield slots and ends of parts that follow each other, and were put there by one opcode: as many as have at
        most ``most`` bytes, or one; ``paired``: a key and its value."""
        slots, place, step = self._slots, 0, 2 if paired else 1
        for at in self._cuts:
            cut = bisect_left(slots, at << 8, place)
            while place < cut:
                last = min(cut, bisect_right(slots, (slots[place] >> 8) + most << 8, place) - 1)
                last = max(last - (last - place) % step, place + step)
                yield self._parts(place, last)
                place = last
            place = cut + 1


def get_number(buf: bytes, i: int, at: int) -> int:
    """Return the number that the opcode GET, BINGET or LONG_BINGET at ``buf[i]`` names. Raises `MalformedError`."""
    op = buf[i]
    if len(buf) - i < (5 if op == 0x6A else 2):
        raise MalformedError("GET is cut", offset=at)
    if op == 0x68:
        return buf[i + 1]
    if op == 0x6A:
        return int.from_bytes(buf[i + 1 : i + 5], "little")
    text = buf[i + 1 : buf.find(b"\n", i + 1)]
    if not text.isdigit() or len(text) > 18:
        raise MalformedError(f"GET of {text[:20]!r}", offset=at)
    return int(text)
