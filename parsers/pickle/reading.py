"""Feeds a pickle to the kernel `pparse.kernels.pickle_scan`, block by block; what need not be read is jumped over."""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import itemgetter, sub

from pparse.data.trailing_bytes import LAST_BEFORE_BREAK
from pparse.errors import GapError, LimitError, MalformedError
from pparse.kernels.pickle_scan import LONG_LINE, MORE, NAMED, REPLACED, SLACK, STOPPED, UNKNOWN, Part, Scan, scan
from pparse.tree.index import IndexNote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Final, Protocol

    from pparse.budget import Charge, MemoryBudget
    from pparse.data.base import Data
    from pparse.tree.host import Session

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
# The most slots that are kept of the parts of a value; of small budgets, a slot per so many bytes.
_MOST_PARTS: Final = 1 << 17
_SHARE: Final = 512
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
    REPLACED = "replaced"
    """The lowest value would be replaced."""


class Jumps:
    """The large values inside of one value: where each ends, as it is known from an earlier reading."""

    __slots__ = ("_big", "_end", "_next", "_start", "_starts")

    def __init__(self, big: dict[int, list[tuple[int, int]]], starts: Sequence[int], start: int, end: int) -> None:
        """Those inside of the value ``[start, end)``; ``starts`` are the offsets of ``big`` in order."""
        self._big = big
        self._starts = starts
        self._start, self._end = start, end
        self._next = bisect_left(starts, start)

    def next_from(self, pos: int) -> tuple[int, int] | None:
        """Return slot and end of the next large value that begins at ``pos`` or behind it."""
        starts = self._starts
        if self._next < len(starts) and starts[self._next] < pos:
            self._next = bisect_left(starts, pos, self._next)
        while self._next < len(starts) and starts[self._next] < self._end:
            found = self._fitting(starts[self._next])
            if found is not None:
                return found
            self._next += 1
        return None

    def _fitting(self, at: int) -> tuple[int, int] | None:
        """Return the largest value at ``at`` that ends inside, and is not all."""
        known = self._big[at]
        number = bisect_right(known, self._end, key=itemgetter(1))
        if number and at == self._start:
            number -= 1  # the last one is the value itself
        return known[number - 1] if number else None


class Reading:
    """One way through opcodes: from ``pos`` on, to an end or to where they stop."""

    def __init__(self, session: Session, data: Data, pos: int, state: Scan) -> None:
        self.session = session
        self.data = data
        self.pos = pos
        """Where it stands."""
        self.state = state
        """The stack there."""
        self.notes_big = False
        """Whether large values are noted."""
        self.arrays: Knower | None = None
        """Knows where the bytes of an array follow a BUILD; None: nowhere."""
        self.line_is_cut = False
        """Whether the data end inside of a line that makes a value."""
        self.at_hand: Callable[[int, int], bytes] | None = None
        """Returns bytes that are in memory; none if they are not."""
        self._size = session.block_size or FIRST_BLOCK
        self._charge: Charge | None = None

    def run(
        self,
        end: int | None,
        find_end: int,
        jumps: Jumps | None = None,
        after: Callable[[Reading], object] | None = None,
    ) -> Stop:
        """Read to ``end`` (None: to STOP); ``find_end``: where the data end. ``after`` is called after each block."""
        try:
            while end is None or self.pos < end:
                jump = None if jumps is None else jumps.next_from(self.pos)
                if jump is not None and jump[0] >> 8 == self.pos:
                    self.state.slots.append(jump[0])
                    self.pos = jump[1]
                    continue
                limit = find_end if end is None else min(end, find_end)
                stop = self._block(limit if jump is None else min(jump[0] >> 8, limit), find_end)
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

    def _block(self, limit: int, find_end: int) -> Stop | None:
        """Read one block, and its opcodes; None: more may follow."""
        self.session.check_cancelled()
        if self.pos >= limit:
            return Stop.CUT
        wanted = min(self._size + SLACK, find_end - self.pos)
        self._hold(_BYTE * wanted + _SLOT * (len(self.state.slots) + len(self.state.marks)))
        try:
            block = (self.at_hand and self.at_hand(self.pos, wanted)) or self.data.pread(self.pos, wanted)
        except GapError:
            return Stop.GAP if not self.data.is_cut_at(self.pos) else Stop.CUT
        have = len(block)
        stop = min(limit - self.pos, have)
        if self.pos + have >= find_end or have < wanted:
            block += bytes(SLACK)  # no opcode there: what reaches into it is cut
        else:
            stop = min(stop, have - SLACK)
        base = self.pos
        if self.notes_big:
            self.state.floor = (base - LARGE) << 8
        i, why = self._scan(block, stop, base)
        self.pos = base + i
        if why == NAMED:
            return Stop.NO_ARRAY
        if not self.session.block_size:
            # Behind a value that was jumped over there may be another one: a large block would be read for nothing.
            self._size = min(self._size * 4, LAST_BLOCK) if i <= have else FIRST_BLOCK
        if why == MORE:
            return self._cut_short(find_end)
        if why == LONG_LINE:
            return self._long_line(base + i, find_end)
        if why == STOPPED:
            return Stop.STOP if self.pos <= find_end else self._cut_short(find_end)
        if why == UNKNOWN and self.pos >= base + have:
            return Stop.CUT
        return Stop.REPLACED if why == REPLACED else Stop.UNKNOWN if why == UNKNOWN else Stop.UNDERFLOW

    def _scan(self, block: bytes, stop: int, base: int) -> tuple[int, int]:
        """Run the opcodes of a block, without the bytes of arrays between them; NAMED if their end is not known."""
        i, why = scan(block, 0, stop, base, self.state)
        while why >= NAMED and self.arrays is not None:
            end = self.arrays.named(base + i) if why == NAMED else self.arrays.behind(base + i)
            if end is None:
                return i, NAMED
            i = end - base
            if i >= stop:
                return i, MORE
            i, why = scan(block, i, stop, base, self.state)
        return i, why

    def _cut_short(self, find_end: int) -> Stop | None:
        """Tell whether the last opcode reaches beyond the data."""
        if self.pos > find_end:
            gap = self.data.next_gap(find_end)
            return Stop.GAP if gap is not None and not self.data.is_cut_at(find_end) else Stop.CUT
        return None

    def _long_line(self, at: int, find_end: int) -> Stop | None:
        """Read an opcode whose line does not end in its block."""
        most = self.session.limits.scalar_bytes
        # Four times the block that it began in: of thousands of damaged pickles, each may have such a line.
        size = min(4 * self._size, LAST_BLOCK)
        while True:
            wanted = min(size, find_end - at)
            self._hold(3 * wanted + _SLOT * len(self.state.slots))
            block = self.data.pread(at, wanted)
            i, why = self._scan(block + bytes(SLACK), 1, at)
            if why != LONG_LINE:
                self.pos = at + i
                return None if why == MORE else Stop.UNKNOWN if why == UNKNOWN else Stop.UNDERFLOW
            if at + len(block) >= find_end or len(block) < wanted:
                if block[:1] != b"p":  # PUT makes no value
                    self.state.slots.append(at << 8 | block[0])
                    self.line_is_cut = True
                self.pos = find_end + 1
                return Stop.CUT
            size *= 4
            if size > max(most, LAST_BLOCK):
                raise LimitError(
                    "a line of a pickle is too long", option="--limit scalar-bytes=N", wanted=size, got=most, offset=at
                )


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
        self._most = min(_MOST_PARTS, budget.limit // _SHARE)

    @property
    def memory(self) -> int:
        """Bytes held."""
        return 8 * (len(self._slots) + len(self._cuts))

    def add(self, slots: list[int], at: int, *, as_pairs: bool) -> None:
        """Note what the opcode at ``at`` put there."""
        if not self._most or not slots:
            return
        if len(self._slots) + len(slots) > self._most:
            self.forget()
            self._most = 0
            return
        self._slots.extend(slots)
        self._slots.append(at << 8 | (PAIRS if as_pairs else ITEMS))
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
        slots = self._slots
        first = bisect_left(slots, start << 8)
        last = bisect_left(slots, end << 8, first)
        found = zip(slots[first:last], slots[first + 1 : last + 1], strict=False)
        return [(slot, following >> 8) for slot, following in found if slot & 0xFF not in _TAKEN]

    def are_within(self, most: int) -> bool:
        """Whether all parts are kept, and none has more than ``most`` bytes with what follows it."""
        slots = self._slots
        return bool(slots) and (max(map(sub, islice(slots, 1, None), slots), default=0) >> 8) < most

    def stretches(self, most: int, *, paired: bool) -> Iterator[list[Part]]:
        """Yield slots and ends of parts that follow each other, and were put there by one opcode: as many as have at
        most ``most`` bytes, or one; ``paired``: a key and its value."""
        slots, place, step = self._slots, 0, 2 if paired else 1
        for at in self._cuts:
            cut = bisect_left(slots, at << 8, place)
            while place < cut:
                last = min(cut, bisect_right(slots, (slots[place] >> 8) + most << 8, place) - 1)
                last = max(last - (last - place) % step, place + step)
                yield [
                    (slot, end >> 8) for slot, end in zip(slots[place:last], slots[place + 1 : last + 1], strict=True)
                ]
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


# -- Where arrays stand between the opcodes of a pickle, and which opcodes belong to them ------------------------------

# What is known of an array, as bits: it is a pickle; its padding is wrong; it is not aligned from the file's begin on.
_PICKLED, _DOUBTFUL, _SHIFTED = 1, 2, 4
# Bytes that the place of an array takes, and its object in a set; for so many at once.
_PLACE: Final = 128
_STEP: Final = 1024


class RawArray:
    """The place of an array between opcodes."""

    __slots__ = ("begin", "data", "doubt", "end", "is_pickle")

    def __init__(self, data: Data, begin: int, end: int, doubt: tuple[str, str] | None, *, is_pickle: bool) -> None:
        self.data = data
        """What holds the bytes."""
        self.begin = begin
        """Where they begin."""
        self.end = end
        """Where they end, or would."""
        self.doubt = doubt
        """Code and words why the place may be wrong; None: nothing suggests that."""
        self.is_pickle = is_pickle
        """Whether it has objects: a pickle stands there."""


class Arrays:
    """The places of the arrays in one pickle."""

    def __init__(self, session: Session, data: Data, find_end: int) -> None:
        self._session = session
        self._charge = session.budget.charge(0, "the places of arrays")
        self._data = data
        self._known_end = find_end
        self._owners = array("q")
        self._behind = array("q")
        self._begins = array("q")
        self._ends = array("q")
        self._facts = bytearray()
        self._totals = array("q", [0])  # of the bytes of arrays, before each
        self._owned: frozenset[int] | None = None
        self._aligned: set[int] = set()  # the remainders that places leave, two at most
        self._aligned_count = 0
        self.is_last_sure = True
        """Whether opcodes that can be read follow the last one, to an end with nothing behind it."""

    def __len__(self) -> int:
        return len(self._behind)

    def add(self, owner: int, behind: int, begin: int, end: int, *, pickled: bool = False, doubtful: bool) -> None:
        """Note an array: of the object that begins at ``owner``, and whose BUILD ends at ``behind``."""
        self._session.limits.check("entries", len(self) + 1, "the number of arrays", offset=behind)
        if not len(self) % _STEP:
            self._charge.resize(_PLACE * (len(self) + _STEP))
        self._owners.append(owner)
        self._behind.append(behind)
        self._begins.append(begin)
        self._ends.append(end)
        self._facts.append(_PICKLED * pickled | _DOUBTFUL * doubtful)
        self._totals.append(self._totals[-1] + (0 if pickled else end - behind))

    def note_alignment(self, remainder: int) -> None:
        """Note what remains when the place of the array added last is divided by the alignment."""
        if remainder:
            self._facts[-1] |= _SHIFTED
        if len(self._aligned) < 2:
            self._aligned.add(remainder)
        self._aligned_count += 1

    def named(self, pos: int) -> int:
        """Return where opcodes go on behind a global: there."""
        return pos

    def behind(self, pos: int) -> int | None:
        """Return where opcodes go on behind the BUILD that ends at ``pos``."""
        number = self.number_behind(pos)
        return pos if number is None else self._ends[number]

    def number_behind(self, pos: int) -> int | None:
        """Return the number of the array whose BUILD ends at ``pos``; None: there is none."""
        number = bisect_left(self._behind, pos)
        return number if number < len(self) and self._behind[number] == pos else None

    def number_of(self, start: int, end: int) -> int | None:
        """Return the number of the array that the value ``[start, end)`` is; None: it is none.

        Opcodes that make no value, as those of frames, may stand between its end and ``end``.
        """
        number = bisect_right(self._behind, end) - 1
        is_there = number >= 0 and self._owners[number] == start and min(self._ends[number], self._known_end) <= end
        return number if is_there else None

    def owns(self, start: int) -> bool:
        """Whether the object that begins at ``start`` has an array."""
        if self._owned is None or len(self._owned) < len(self):
            self._owned = frozenset(self._owners)
        return start in self._owned

    def end_of_maker(self, number: int) -> int:
        """Return where the opcodes end that describe an array."""
        return self._behind[number]

    def bytes_in(self, start: int, end: int) -> int:
        """Return how many bytes of arrays stand in ``[start, end)``, besides those of objects."""
        first, last = bisect_left(self._behind, start), bisect_right(self._ends, end)
        found = self._totals[last] - self._totals[first] if last > first else 0
        if first <= last < len(self) and self._behind[last] < end and not self._facts[last] & _PICKLED:
            found += end - self._behind[last]  # it is cut
        return found

    def stretches(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches of opcodes in ``[start, end)``."""
        found = []
        number = bisect_left(self._behind, start)
        while number < len(self) and self._behind[number] < end:
            found.append((start, self._behind[number]))
            start = self._ends[number]
            number += 1
        if start < end:
            found.append((start, end))
        return found

    def array(self, number: int) -> RawArray:
        """Return the place of an array."""
        begin, end = self._begins[number], self._ends[number]
        return RawArray(self._data, begin, end, self._doubt(number), is_pickle=self.is_pickle(number))

    def is_pickle(self, number: int) -> bool:
        """Whether an array is a pickle of objects."""
        return bool(self._facts[number] & _PICKLED)

    def _doubt(self, number: int) -> tuple[str, str] | None:
        facts = self._facts[number]
        if facts & _DOUBTFUL:
            return "bad-padding", "the padding before its bytes is not as joblib writes it"
        if facts & _SHIFTED and (len(self._aligned) > 1 or self._aligned_count < 2):
            return "bad-padding", "its bytes are not aligned as those of joblib are"
        if not self.is_last_sure and number == len(self) - 1:
            return "shifted", LAST_BEFORE_BREAK
        return None

    def pickles(self) -> Iterator[int]:
        """Yield where the pickles of arrays of objects begin."""
        for number, facts in enumerate(self._facts):
            if facts & _PICKLED:
                yield self._begins[number]

    def pickle_around(self, pos: int) -> int | None:
        """Return where the pickle of an array of objects begins that ``pos`` is in; None: it is in none."""
        number = bisect_right(self._begins, pos) - 1
        inside = number >= 0 and self.is_pickle(number) and pos < self._ends[number]
        return self._begins[number] if inside else None

    @property
    def last_end(self) -> int:
        """Where the last one ends, or would; 0: there is none."""
        return self._ends[-1] if self._ends else 0

    def next_from(self, pos: int) -> int | None:
        """Return where the opcodes end from ``pos`` on, before the next array; None: there is none."""
        number = bisect_left(self._behind, pos)
        return self._behind[number] if number < len(self) else None
