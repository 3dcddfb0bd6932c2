"""One pickle: read once from its first opcode to STOP, for where it ends, what it memoizes, and its large values."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import cached_property
from operator import attrgetter

from pparse.budget import evictor
from pparse.errors import LimitError, MalformedError
from pparse.findings import Status
from pparse.kernels.pickle_scan import GETS, MARK, SLACK, Scan, scan
from pparse.parsers.pickle.joblib import WATCHED, ArrayFinder
from pparse.parsers.pickle.reading import CHARGE_FROM, Jumps, Parts, Reading, Stop, get_number
from pparse.parsers.pickle.values import Decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, TypeVar

    from pparse.budget import Charge
    from pparse.data.base import Data
    from pparse.parsers.pickle.reading import Arrays
    from pparse.tree.host import Session

    Made = TypeVar("Made")

# What is memoized is noted per page of the pickle; pages are read again when they are needed.
PAGE: Final = 1 << 20
_PAGES_KEPT: Final = 4
# The most large values, and values with numbers of their own, that are noted.
_MOST_NOTED: Final = 200_000
# The most values changed late that are noted: one is enough to distrust the others.
_MOST_LATE: Final = 1_000
# The memory of all stacks kept, above which every second page is forgotten.
_STACKS: Final = 2 << 20
# How many pages may be read again while the pickle is read for the first time, besides a quarter of those it has.
_MOST_AGAIN: Final = 16
_INSIDE_KEPT: Final = 4
# How often an object may be given a state, as far as its parts are kept.
MOST_STATES: Final = 100
_TROUBLES: Final = {Stop.CUT: "the pickle ends before its STOP", Stop.GAP: "the pickle runs into a gap"}


class Page:
    """Where a page of the pickle begins, and the stack there; what is memoized in it, while that is kept."""

    __slots__ = ("count", "filled", "fills", "marks", "memo", "order", "pos", "puts", "slots")

    def __init__(self, pos: int, state: Scan) -> None:
        self.pos = pos
        self.count = state.count
        self.slots = array("q", state.slots)
        self.marks = array("q", state.marks)
        self.order: array[int] | None = None
        self.memo: array[int] | None = None
        self.puts: array[int] | None = None
        self.fills: array[int] = array("q")
        self.filled: array[int] = array("q")

    def take(self, state: Scan) -> None:
        """Take what was memoized in the page, and where values were filled in it."""
        self.memo, self.puts, self.fills, self.filled = state.memo, state.puts, state.fills, state.filled
        state.memo, state.puts, state.fills, state.filled = array("q"), array("q"), array("q"), array("q")

    def forget(self) -> None:
        """Drop it."""
        self.memo = self.puts = None
        self.fills, self.filled = array("q"), array("q")
        self.order = None

    def last_filled(self, start: int) -> int:
        """Return the offset behind the last opcode of the page that put something into the value at ``start``; or 0."""
        fills = self.fills
        if self.order is None:
            self.order = array("I", sorted(range(len(fills)), key=fills.__getitem__))
        place = bisect_right(self.order, start, key=fills.__getitem__) - 1
        return self.filled[self.order[place]] if place >= 0 and fills[self.order[place]] == start else 0


class Program:
    """One pickle in some data."""

    def __init__(self, session: Session, data: Data, start: int, find_end: int, origin: int | None = None) -> None:
        """``origin``: where the file begins, if it may have arrays of joblib."""
        self.session = session
        self.data = data
        self.start = start
        """Where its first opcode stands."""
        self.find_end = find_end
        """Where the data end."""
        self.end = find_end
        """Behind STOP, or where reading had to end."""
        self.state = Scan(memo=True)
        """The stack at the end: one value, if it is whole."""
        self.state.globals = []
        self.stop = Stop.END
        """Why it ended."""
        self.trouble = ""
        """What is wrong with it, in words; empty if it is whole."""
        self.arrays: Arrays | None = None
        """Arrays that stand between its opcodes; None: there are none."""
        self._finder = None if origin is None else ArrayFinder(self, origin)
        self._inside: dict[int, Program] = {}
        self._steps_left = _MOST_AGAIN * PAGE
        self._pages: list[Page] = []
        self._kept: list[Page] = []
        self.numbers: dict[int, list[int]] = {}
        """Which values, in order, were memoized by numbers that do not follow each other, by those."""
        self._others: set[int] = set()
        self._cut_slot = -1
        self.late: list[int] = []
        """Offsets of the first 1,000 opcodes, and the last one, that change a value where it is named again."""
        self._caught_up = (0, 0)
        self._late_starts: set[int] | None = set()
        self._far_ends: dict[int, int] = {}
        self._big_starts: list[int] = []
        self._parts: Parts | None = Parts(session.budget)  # of its value, until they are asked for
        self._charge: Charge | None = None
        self._made = 0
        self._run()

    @property
    def status(self) -> Status:
        """COMPLETE; TRUNCATED if the data end before STOP; DAMAGED."""
        if not self.trouble:
            return Status.COMPLETE
        if self.stop is Stop.NO_ARRAY and self._finder is not None:
            return self._finder.status
        return Status.TRUNCATED if self.stop is Stop.CUT else Status.DAMAGED

    @cached_property
    def decoder(self) -> Decoder:
        """Makes its values."""
        return Decoder(self)

    def value(self) -> Any:
        """Return the value of the pickle, which is whole. Raises what `Decoder.decode` does."""
        return self.decoder.decode(self.start, self.end - 1)

    def cuts(self, slot: int) -> bool:
        """Whether the data end inside of the opcode that makes this value."""
        return slot == self._cut_slot

    def _is_cut(self, slot: int, reading: Reading) -> bool:
        """Tell whether the last opcode, which goes beyond the data, made this value."""
        at = slot >> 8
        head = self.data.pread(at, min(SLACK, self.find_end - at)) + bytes(2 * SLACK)
        return reading.line_is_cut or at + scan(head, 0, 1, at, Scan())[0] == reading.pos

    def reading(self, pos: int, state: Scan) -> Reading:
        """Return a reading from ``pos`` on, which knows where the arrays are."""
        made = Reading(self.session, self.data, pos, state)
        made.arrays, made.at_hand = self.arrays, self.decoder.at_hand
        state.asks = self.arrays is not None
        return made

    def inner(self, begin: int) -> Program:
        """Return the pickle of an array of objects, which begins at ``begin``."""
        return latest(self._inside, begin, _INSIDE_KEPT, lambda: Program(self.session, self.data, begin, self.find_end))

    def program_at(self, pos: int) -> Program:
        """Return the pickle whose opcode stands at ``pos``: this one, or that of an array of objects in it."""
        begin = None if self.arrays is None else self.arrays.pickle_around(pos)
        return self if begin is None else self.inner(begin)

    def size_of(self, start: int, end: int) -> int:
        """Return how many bytes ``[start, end)`` has without those of arrays between opcodes."""
        return end - start - (0 if self.arrays is None else self.arrays.bytes_in(start, end))

    def next_array(self, pos: int) -> int:
        """Return where the opcodes from ``pos`` on end before an array, or the pickle does."""
        found = None if self.arrays is None else self.arrays.next_from(pos)
        return self.end if found is None else found

    def closed(self, slots: list[int]) -> list[int]:
        """Return slots, those of arrays of joblib, and of values that are filled, as ones that nothing is put into."""
        arrays = self.arrays
        owned = (lambda _: False) if arrays is None else arrays.owns
        return [slot | 0xFF if owned(slot >> 8) or self._is_filled(slot) else slot for slot in slots]

    def _is_filled(self, slot: int) -> bool:
        """Whether a value that lies on the stack at the end holds all that picklers put into it.

        They fill lists, sets and dicts a thousand at a time, and a single last one without a mark, but for protocol 0;
        objects are given their state last (pickle.py of CPython, `_batch_setitems`).
        """
        opcode = slot & 0xFF
        if opcode not in _MUTABLE:
            return False
        start = slot >> 8
        last = self._end_of_filled(slot, start)
        filler = self.data.pread(last - 1, 1) if last > start else b""
        if filler == b"b":
            return True
        if opcode not in _BATCHED or not filler:
            return False
        return filler in b"as" or self._last_batch(start, last) < _BATCH

    def _last_batch(self, start: int, last: int) -> int:
        """Return how many items or pairs the opcode that ends at ``last`` put into the value at ``start``."""
        found = [0]

        def count(reading: Reading) -> None:
            before = (0, 0)
            for items, pairs, _ in reading.state.cuts:
                found[0] = items - before[0] or (pairs - before[1]) // 2
                before = items, pairs
            forget_children(reading)

        self.reading(start, Scan()).run(last, self.find_end, self.jumps(start, last), after=count)
        return found[0]

    def _run(self) -> None:
        state = self.state
        if self._finder is not None:
            state.watched = WATCHED
        reading = Reading(self.session, self.data, self.start, state)
        reading.notes_big = True
        reading.arrays = self._finder
        self._pages.append(Page(self.start, state))
        self.stop = reading.run(None, self.find_end, after=self._after_block)
        self._keep(self._pages[-1], state)
        self.end = min(reading.pos, self.find_end)
        cut_array = self.arrays is not None and self.arrays.last_end > self.find_end
        if reading.pos > self.find_end and state.slots and (cut_array or self._is_cut(state.slots[-1], reading)):
            self._cut_slot = state.slots[-1]
        self.trouble = self._judge(reading.pos)
        if self.status is Status.DAMAGED:
            self.doubt_last_array()
        state.memo = None
        if self._parts is not None and self._parts.memory >= CHARGE_FROM:
            held, evict = self._parts.memory, evictor(self, Program._forget_parts)
            self._charge = self.session.budget.charge(held, "the parts of a pickle", evict)
        self._big_starts = sorted(state.big)
        self.catch_up()
        self._far_ends.clear()

    def doubt_last_array(self) -> None:
        """Note that the last array may not end where it seems to: what follows it cannot be read, or is too much."""
        if self.arrays is not None:
            self.arrays.is_last_sure = False

    @property
    def _is_running(self) -> bool:
        """Whether the pickle is being read for the first time."""
        return self.state.memo is not None

    def catch_up(self) -> None:
        """Take over what the reading has found since of numbers out of order, and of values changed late."""
        state = self.state
        numbers, late = self._caught_up
        for nth, number in state.numbers[numbers:] if len(state.numbers) > numbers else ():
            self.numbers.setdefault(number, []).append(nth)
            self._others.add(nth)
        if len(state.late) != late or (late and state.late[-1][1] != self.late[-1]):
            self.late = [at for _, at in state.late]
            self._note_late(state.late[late:])
        self._caught_up = len(state.numbers), len(state.late)

    def _note_late(self, late: list[tuple[int, int]]) -> None:
        """Note where the values begin that are changed late; all of them may, if there are too many."""
        starts = self._late_starts
        if len(self.late) > _MOST_LATE or starts is None:
            self._late_starts = None
            return
        for slot, _ in late:
            try:
                found = self.definition(slot)
            except MalformedError:
                found = None
            if found is None or found[0] & 0xFF in GETS:  # nobody knows which
                self._late_starts = None
                return
            starts.add(found[0] >> 8)

    def _after_block(self, reading: Reading) -> None:
        """Begin a page from time to time; check how much is kept."""
        state = self.state
        self._note_parts(state)
        forget_children(reading, states=self._parts is None)
        del state.late[_MOST_LATE:-1]
        if state.globals is not None and len(state.globals) > _MOST_NOTED:
            del state.globals[_MOST_NOTED:]
        if len(state.numbers) > _MOST_NOTED or sum(map(len, state.big.values())) > _MOST_NOTED:
            raise LimitError(
                "too many values of the pickle are large, or memoized by numbers out of order",
                option="",
                offset=reading.pos,
            )
        last = self._pages[-1]
        if reading.pos - last.pos < PAGE:
            return
        self._keep(last, state)
        self._pages.append(Page(reading.pos, state))
        if sum(len(page.slots) for page in self._pages) * 8 > _STACKS:
            self._thin_out()

    def _note_parts(self, state: Scan) -> None:
        """Keep what was put into the lowest value, which is that of the pickle: it is asked for next."""
        parts = self._parts
        if parts is None:
            return
        if state.made != self._made:
            self._made = state.made
            parts.forget()
        for slots, as_pairs, at in state.takes():
            parts.add(slots, at, as_pairs=as_pairs)
        if not parts.is_whole or len(state.states) > MOST_STATES:
            self._parts = None

    def take_parts(self, start: int, end: int) -> Parts | None:
        """Return what opcodes put into the value ``[start, end)``, once, if that is the pickle's own and all is known.

        Then `state` is that behind the value, too.
        """
        slots = self.state.slots
        if self.trouble or end != self.end - 1 or len(slots) != 1 or slots[0] >> 8 != start:
            return None
        found, self._parts, self._charge = self._parts, None, None
        return found

    def _forget_parts(self) -> None:
        self._parts = None

    def _thin_out(self) -> None:
        """Forget every second page: what is kept of the others must be read again."""
        del self._pages[1:-1:2]  # the last one is being read
        for page in self._kept:
            page.forget()
        self._kept.clear()

    def _keep(self, page: Page, state: Scan) -> None:
        """Keep what was just read of a page; of the others, the one that was not used for the longest time goes."""
        page.take(state)
        self._kept.append(page)
        if len(self._kept) > _PAGES_KEPT:
            self._kept.pop(0).forget()

    def _numbers_mixed(self) -> bool:
        """Tell whether MEMOIZE counts on from numbers that PUT chose."""
        state = self.state
        return 0 < state.numbered < state.count and (bool(state.numbers) or state.first != 0)

    def _judge(self, pos: int) -> str:
        """Say what is wrong with how the pickle ends; "" if nothing is."""
        slots = self.state.slots
        if self.stop is Stop.STOP:
            if self._numbers_mixed():
                return "its memo is numbered in two ways, which no pickler does: what is named is not known"
            if slots and slots[-1] & 0xFF != MARK:  # Unpickler.load takes the uppermost value, whatever lies below
                return ""
            self.stop = Stop.UNDERFLOW
            return "STOP finds no value on the stack"
        if self.stop in _TROUBLES:
            return _TROUBLES[self.stop]
        if self.stop is Stop.NO_ARRAY and self._finder is not None:
            return self._finder.trouble
        if self.stop is Stop.UNKNOWN:
            code = self.data.pread(pos, 1)
            return f"there is no opcode {code[0]:#04x}" if code else "an opcode is missing"
        return "an opcode finds too few values on the stack"

    # -- what is memoized --------------------------------------------------------------------------------------------

    @property
    def globals(self) -> list[tuple[int, int]]:
        """Slots and ends of the globals that are named, in order: the first 200,000."""
        return self.state.globals or []

    def is_late(self, slot: int) -> bool:
        """Whether a value may be changed behind its end: by an opcode that finds it named again."""
        return bool(self.late) and (self._late_starts is None or slot >> 8 in self._late_starts)

    def number_at(self, pos: int) -> int:
        """Return how many values were memoized before ``pos``."""
        page = self._page_before(pos)
        return page.count + bisect_left(self._content(page)[1], pos)

    def nth(self, number: int, at: int) -> int:
        """Return which memoized value, in order, the number means at ``at``. Raises `MalformedError`: none."""
        nth = number - self.state.first
        is_regular = 0 <= nth < self.state.count and nth not in self._others and self.memoized(nth)[1] < at
        others = self.numbers.get(number, [])
        before = bisect_left(others, at, key=lambda other: self.memoized(other)[1])
        if before and not (is_regular and nth > others[before - 1]):
            return others[before - 1]
        if not is_regular:
            raise MalformedError(f"nothing was memoized as number {number} before it is named", offset=at)
        return nth

    def memoized(self, nth: int) -> tuple[int, int]:
        """Return the slot of the nth value memoized, as it was then, and where that was."""
        page = self._pages[bisect_right(self._pages, nth, key=attrgetter("count")) - 1]
        memo, puts = self._content(page)
        return memo[nth - page.count], puts[nth - page.count]

    def _page_before(self, pos: int) -> Page:
        return self._pages[max(0, bisect_right(self._pages, pos, key=attrgetter("pos")) - 1)]

    def _content(self, page: Page) -> tuple[array[int], array[int]]:
        """Return what is memoized in a page, reading it again if it was not kept."""
        if self._is_running and page is self._pages[-1]:
            return self.state.memo or array("q"), self.state.puts
        if page.memo is not None and page.puts is not None:
            if self._kept[-1] is not page:
                self._kept.remove(page)
                self._kept.append(page)
            return page.memo, page.puts
        number = self._pages.index(page)
        end = self._pages[number + 1].pos if number + 1 < len(self._pages) else self.end
        state = Scan(memo=True)
        state.slots.extend(page.slots)
        state.marks.extend(page.marks)
        state.count, state.first = page.count, self.state.first
        self._spend(end - page.pos)
        self.reading(page.pos, state).run(end, self.find_end, after=forget_children)
        self._keep(page, state)
        assert page.memo is not None and page.puts is not None  # noqa: S101, PT018 -- taken just now
        return page.memo, page.puts

    def definition(self, slot: int) -> tuple[int, int, int] | None:
        """Follow a slot that only names a memoized value: return its slot, its end, and its number in order.

        None if the slot is a value itself. Raises `MalformedError` if it names nothing.
        """
        if slot & 0xFF not in GETS or slot & 0xFF == 0x32:
            return None
        at = slot >> 8
        head = self.decoder.read(at, min(at + 24, self.end))
        nth = self.nth(get_number(head, 0, at), at)
        found, put = self.memoized(nth)
        return found, self.end_of(found, put, nth), nth

    def end_of(self, slot: int, put: int, nth: int) -> int:
        """Return where a memoized value ends: where it was memoized, or where something was last put into it."""
        if slot & 0xFF not in _MUTABLE:
            return put
        known = self._far_ends.get(nth)
        if known is None:
            known = self._end_of_filled(slot, put)
            if len(self._far_ends) > 10_000:
                self._far_ends.clear()
            self._far_ends[nth] = known
        return known

    def _end_of_filled(self, slot: int, put: int) -> int:
        start = slot >> 8
        number = self._pages.index(self._page_before(put))
        end = put
        for page in self._pages[number : number + 2]:  # who is filled longer is noted as large
            self._content(page)
            end = max(end, self._last_filled(page, start))
        return max([end, *(last for large, last in self.state.big.get(start, ()) if large == slot)])

    def _last_filled(self, page: Page, start: int) -> int:
        """Return `Page.last_filled`; while the pickle is being read, without sorting: pages are soon forgotten."""
        if not self._is_running:
            return page.last_filled(start)
        fills, filled = page.fills, page.filled
        if page is self._pages[-1]:
            fills, filled = self.state.fills, self.state.filled
        number = next((nth for nth in range(len(fills) - 1, -1, -1) if fills[nth] == start), -1)
        self._spend(len(fills) - max(0, number))
        return filled[number] if number >= 0 else 0

    @property
    def is_tired(self) -> bool:
        """Whether what is memoized was looked up too far away, too often, while the pickle was read."""
        return self._steps_left + (self._pages[-1].pos - self.start) // 4 < 0

    def _spend(self, steps: int) -> None:
        """Count steps of looking back while the pickle is being read. Raises `LimitError`: too many."""
        if not self._is_running:
            return
        self._steps_left -= steps
        if self.is_tired:
            raise LimitError("arrays are described by values too far away, too often", option="")

    def jumps(self, start: int, end: int) -> Jumps:
        """Return the large values inside of the value ``[start, end)``."""
        return Jumps(self.state.big, self._big_starts, start, end)


# Lists, dicts, sets and objects: what is put into them comes behind the place where they are memoized.
_MUTABLE: Final = frozenset(b"]l}d\x8fR\x81\x92oi")
_BATCHED: Final = frozenset(b"]}\x8f")
_BATCH: Final = 1_000


def latest(kept: dict[int, Made], key: int, most: int, make: Callable[[], Made]) -> Made:
    """Return what is kept under ``key``, made if it is not there; ``most`` are kept, those that were used last."""
    found = kept.pop(key, None)
    if found is None:
        while len(kept) >= most:
            del kept[next(iter(kept))]
        found = make()
    kept[key] = found
    return found


def forget_children(reading: Reading, *, states: bool = True) -> None:
    """Forget what was noted of the children of the lowest value, and of its ``states``."""
    state = reading.state
    for found in (state.items, state.pairs, state.cuts):
        found.clear()
    if states:
        state.states.clear()
