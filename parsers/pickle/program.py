"""One pickle: read once from its first opcode to STOP, for where it ends, what it memoizes, and its large values; and
what lies inside of one value of it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from operator import attrgetter

from pparse.data.base import find_not_utf8
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Status
from pparse.kernels.pickle_scan import DUP, GETS, MARK, SLACK, Scan, ends_of, scan
from pparse.limits import evictor
from pparse.parsers.pickle.joblib import WATCHED, ArrayFinder, Arrays
from pparse.parsers.pickle.reading import CHARGE_FROM, Jumps, Parts, Reading, Stop, get_number
from pparse.parsers.pickle.values import KIND_OF, WIDTHS, Decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final, TypeVar

    from pparse.data.base import Data
    from pparse.limits import Charge
    from pparse.tree.host import HostSession
    from pparse.tree.index import ChildIndex

    Made = TypeVar("Made")
    Part = tuple[int, int]

# What is memoized is noted per page of the pickle: of the first ones, while it is read; others are read again when they
# are needed.
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
_NEWEST: Final = 5
# How often an object may be given a state, as far as its parts are kept.
MOST_STATES: Final = 100
_TROUBLES: Final = {Stop.CUT: "the pickle ends before its STOP", Stop.GAP: "the pickle runs into a gap"}


class Page:
    """Where a page of the pickle begins, and the stack there; what is memoized in it, while that is kept."""

    __slots__ = ("count", "filled", "fills", "marks", "memo", "order", "pos", "puts", "slots")

    def __init__(self, pos: int, state: Scan) -> None:
        self.pos, self.count = pos, state.count
        self.slots, self.marks = array("q", state.slots), array("q", state.marks)
        self.forget()

    def forget(self) -> None:
        """Drop it."""
        self.memo: array[int] | None = None
        self.puts: array[int] = array("q")
        self.fills: array[int] = array("q")
        self.filled: array[int] = array("q")
        self.order: array[int] | None = None

    def take(self, state: Scan) -> None:
        """Take what was memoized in the page, and where values were filled in it."""
        self.memo, self.puts, self.fills, self.filled = state.memo, state.puts, state.fills, state.filled
        state.memo, state.puts, state.fills, state.filled = array("q"), array("q"), array("q"), array("q")

    def last_filled(self, start: int) -> int:
        """Return the offset behind the last opcode of the page that put something into the value at ``start``; or 0."""
        fills = self.fills
        if self.order is None:
            self.order = array("I", sorted(range(len(fills)), key=fills.__getitem__))
        place = bisect_right(self.order, start, key=fills.__getitem__) - 1
        last = self.order[place] if place >= 0 else -1
        return self.filled[last] if last >= 0 and fills[last] == start else 0


class Program:
    """One pickle in some data."""

    def __init__(self, session: HostSession, data: Data, start: int, find_end: int, origin: int | None = None) -> None:
        """``origin``: where the file begins, if it may have arrays of joblib."""
        self.session = session
        self.data = data
        self.decoder = Decoder(self)
        """Makes its values."""
        self.start = start
        """Where its first opcode stands."""
        self.find_end = find_end
        """Where the data end."""
        self.end = find_end
        """Behind STOP, or where reading had to end."""
        self.state = Scan(memo=True)
        """The stack at the end: one value, if it is whole."""
        self.globals: list[Part] = []
        """Slots and ends of the globals that are named, in order: the first 200,000."""
        self.state.globals = self.globals
        self.status = Status.COMPLETE
        """COMPLETE; TRUNCATED if the data end before STOP; DAMAGED."""
        self.trouble = ""
        """What is wrong with it, in words; empty if it is whole."""
        self.torn_at: int | None = None
        """Where a frame ends inside of an opcode: others read other opcodes from there on; None: nowhere."""
        self.arrays = Arrays(session, data, find_end)
        """Arrays that stand between its opcodes."""
        self._inside: dict[int, Program] = {}
        self._steps_left = _MOST_AGAIN * PAGE
        self._is_running = True  # whether the pickle is being read for the first time
        self.here = start
        """Where that stands, if somebody looks back from there."""
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
        self._run(None if origin is None else ArrayFinder(self, origin))

    def refusals(self) -> Iterator[tuple[str, str]]:
        """Yield code and words of what Python refuses in a pickle that is whole (CPython, Modules/_pickle.c)."""
        if self.state.protocol > _NEWEST:
            yield "protocol", f"protocol {self.state.protocol} is not known: Python reads 0 to {_NEWEST}"
        if self.state.frame_end > self.find_end:
            yield "frame", f"a frame ends at offset {self.state.frame_end:,} by its length, behind the data"
        if self.torn_at is not None:
            yield "frame", f"a frame ends at offset {self.torn_at:,}, inside of an opcode or another frame"
        if self.state.stateless is not None:
            yield "malformed", f"the opcode BUILD at offset {self.state.stateless:,} is for a value that has no state"

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
        made = Reading(self.session, self.data, pos, self.find_end, state, self.arrays)
        made.at_hand = self.decoder.at_hand
        state.asks = bool(self.arrays)
        return made

    def inner(self, begin: int) -> Program:
        """Return the pickle of an array of objects, which begins at ``begin``."""
        return latest(self._inside, begin, _INSIDE_KEPT, lambda: Program(self.session, self.data, begin, self.find_end))

    def program_at(self, pos: int) -> Program:
        """Return the pickle whose opcode stands at ``pos``: this one, or that of an array of objects in it."""
        begin = self.arrays.pickle_around(pos)
        return self if begin is None else self.inner(begin)

    def size_of(self, start: int, end: int) -> int:
        """Return how many bytes ``[start, end)`` has without those of arrays between opcodes."""
        return end - start - self.arrays.bytes_in(start, end)

    @property
    def is_plain(self) -> bool:
        """Whether it has no arrays between its opcodes, and changes no value where it names it again."""
        return not self.late and not self.arrays

    @property
    def is_regular(self) -> bool:
        """Whether all readers look up the names in `globals`, and no others: values are memoized by numbers in order,
        and frames end where opcodes do."""
        return (
            not self.trouble
            and self.torn_at is None
            and not self.numbers
            and self.is_plain
            and not self.state.changes_global
            and len(self.globals) < _MOST_NOTED
        )

    def closed(self, slots: list[int]) -> list[int]:
        """Return slots, those of arrays of joblib, and of values that are filled, as ones that nothing is put into."""
        return [self._closed(slot) for slot in slots]

    def _closed(self, slot: int) -> int:
        if self.arrays.owns(slot >> 8):
            return slot | _CLOSED
        if not self._is_filled(slot):
            return slot
        return slot | _CLOSED if slot & 0xFF in _BATCHED else slot & ~0xFF | _CLOSED_OBJECT

    def _is_filled(self, slot: int) -> bool:
        """Whether a value that lies on the stack at the end holds all that picklers put into it.

        They fill lists, sets and dicts a thousand at a time, and a single last one without a mark, but for protocol 0;
        objects are given their state last (pickle.py of CPython, `_batch_setitems`).
        """
        opcode = slot & 0xFF
        if opcode not in FILLED:
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
        found = 0

        def count(reading: Reading) -> None:
            nonlocal found
            for slots, as_pairs, _ in reading.state.takes():
                found = len(slots) // (2 if as_pairs else 1)
            forget_children(reading)

        self.reading(start, Scan()).run(last, self.jumps(start, last), after=count)
        return found

    def _run(self, finder: ArrayFinder | None) -> None:
        state = self.state
        state.watched = None if finder is None else WATCHED
        reading = Reading(self.session, self.data, self.start, self.find_end, state, finder)
        reading.notes_big = state.minds_frames = True
        self._pages.append(Page(self.start, state))
        stop = reading.run(None, after=self._after_block)
        self._keep(self._pages[-1], state)
        self.end, self.torn_at = min(reading.pos, self.find_end), reading.torn_at
        if reading.pos > self.find_end and state.slots:
            last = state.slots[-1]
            self._cut_slot = last if self.arrays.last_end > self.find_end or self._is_cut(last, reading) else -1
        self.trouble = self._judge(stop, reading.pos)
        if finder is not None and finder.trouble:
            self.trouble, self.status = finder.trouble, finder.status
        elif self.trouble:
            self.status = Status.TRUNCATED if stop is Stop.CUT else Status.DAMAGED
        if self.status is Status.DAMAGED:
            self.arrays.doubt_last()
        self._is_running, state.memo, state.keeps = False, None, False
        if self._parts is not None and self._parts.memory >= CHARGE_FROM:
            held, evict = self._parts.memory, evictor(self, Program._forget_parts)
            self._charge = self.session.budget.charge(held, "the parts of a pickle", evict)
        self._big_starts = sorted(state.big)
        self.catch_up()
        self._far_ends.clear()

    def catch_up(self) -> None:
        """Take over what the reading has found since of numbers out of order, and of values changed late."""
        state = self.state
        numbers, late = self._caught_up
        for nth, number in state.numbers[numbers:]:
            self.numbers.setdefault(number, []).append(nth)
            self._others.add(nth)
        if len(state.late) != late or (late and state.late[-1][1] != self.late[-1]):
            self.late = [at for _, at in state.late]
            self._note_late(state.late[late:])
        self._caught_up = len(state.numbers), len(state.late)

    def _note_late(self, late: list[tuple[int, int]]) -> None:
        """Note where the values begin that are changed late; all of them may, if there are too many."""
        starts = self._late_starts
        for slot, _ in late if starts is not None else ():
            try:
                found = self.definition(slot)
            except MalformedError:
                found = None
            if starts is None or found is None or found & 0xFF in GETS or len(self.late) > _MOST_LATE:
                self._late_starts = None  # nobody knows which
                return
            starts.add(found >> 8)

    def _after_block(self, reading: Reading) -> None:
        """Begin a page from time to time; check how much is kept."""
        state = self.state
        self._note_parts(state)
        forget_children(reading, states=self._parts is None)
        del state.late[_MOST_LATE:-1]
        del self.globals[_MOST_NOTED:]
        if len(state.numbers) > _MOST_NOTED or sum(map(len, state.big.values())) > _MOST_NOTED:
            reason = "too many values of the pickle are large, or memoized by numbers out of order"
            raise LimitError(reason, option="", offset=reading.pos)
        last = self._pages[-1]
        if reading.pos - last.pos < PAGE:
            return
        self._keep(last, state)
        self._pages.append(Page(reading.pos, state))
        # Later pages are soon forgotten: not before somebody looks back are they worth noting.
        state.keeps = len(self._pages) <= _PAGES_KEPT or self.here > self.start
        if sum(len(page.slots) for page in self._pages) * 8 > _STACKS:  # what is kept of some must be read again
            del self._pages[1:-1:2]  # the last one is being read
            for page in self._kept:
                page.forget()
            self._kept.clear()

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

    def _keep(self, page: Page, state: Scan) -> None:
        """Keep what was just read of a page; of the others, the one that was not used for the longest time goes."""
        if not state.keeps:
            return
        page.take(state)
        self._kept.append(page)
        if len(self._kept) > _PAGES_KEPT:
            self._kept.pop(0).forget()

    def _judge(self, stop: Stop, pos: int) -> str:
        """Say what is wrong with how the pickle ends; "" if nothing is."""
        state, slots = self.state, self.state.slots
        if stop is Stop.STOP:
            if 0 < state.numbered < state.count and (state.numbers or state.first):  # MEMOIZE counts on from PUT's
                return "its memo is numbered in two ways, which no pickler does: what is named is not known"
            if any(at >= len(slots) or slots[at] & 0xFF != MARK for at in state.marks):
                return "an opcode takes a mark for a value"
            if slots and slots[-1] & 0xFF != MARK:  # Unpickler.load takes the uppermost value, whatever lies below
                return ""
            return "STOP finds no value on the stack"
        if stop is Stop.UNKNOWN:
            code = self.data.pread(pos, 1)
            if KIND_OF.get(code[0] if code else -1) == "extension":
                return "the code of an extension is not positive"
            return f"there is no opcode {code[0]:#04x}" if code else "an opcode is missing"
        return _TROUBLES.get(stop, "an opcode finds too few values on the stack")

    # -- what is memoized --------------------------------------------------------------------------------------------

    def is_late(self, slot: int) -> bool:
        """Whether a value may be changed behind its end: by an opcode that finds it named again."""
        return bool(self.late) and (self._late_starts is None or slot >> 8 in self._late_starts)

    def number_at(self, pos: int) -> int:
        """Return how many values were memoized before ``pos``."""
        page = self._pages[self._page_before(pos)]
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

    def _page_before(self, pos: int) -> int:
        return max(0, bisect_right(self._pages, pos, key=attrgetter("pos")) - 1)

    def _content(self, page: Page) -> tuple[array[int], array[int]]:
        """Return what is memoized in a page, reading it again if it was not kept."""
        running = self.state
        is_last = self._is_running and page is self._pages[-1]
        if is_last and running.keeps:
            return running.memo or array("q"), running.puts
        if page.memo is not None:
            if self._kept[-1] is not page:
                self._kept.remove(page)
                self._kept.append(page)
            return page.memo, page.puts
        number = self._pages.index(page)
        end = self._pages[number + 1].pos if number + 1 < len(self._pages) else self.here if is_last else self.end
        state = Scan(memo=True)
        state.slots[:], state.marks[:] = page.slots, page.marks
        state.count, state.first = page.count, running.first
        self._spend(end - page.pos)
        self.reading(page.pos, state).run(end, after=forget_children)
        if not is_last:
            self._keep(page, state)
            return page.memo or array("q"), page.puts
        running.memo, running.puts, running.fills, running.filled = state.memo, state.puts, state.fills, state.filled
        running.keeps = True
        return running.memo or array("q"), running.puts

    def definition(self, slot: int) -> int | None:
        """Return the slot of the memoized value that a slot names; None: it doubles the one before.

        Raises `MalformedError` if it names nothing.
        """
        if slot & 0xFF == DUP:
            return None
        at = slot >> 8
        head = self.decoder.read(at, min(at + 24, self.end))
        return self.memoized(self.nth(get_number(head, 0, at), at))[0]

    def end_of(self, slot: int, put: int, nth: int) -> int:
        """Return where a memoized value ends: where it was memoized, or where something was last put into it."""
        if slot & 0xFF not in FILLED:
            return put
        known = self._far_ends.get(nth)
        if known is None:
            known = self._end_of_filled(slot, put)
            if len(self._far_ends) > 10_000:
                self._far_ends.clear()
            self._far_ends[nth] = known
        return known

    def _end_of_filled(self, slot: int, put: int) -> int:
        start, number = slot >> 8, self._page_before(put)
        ends = [put, *(last for large, last in self.state.big.get(start, ()) if large == slot)]
        for page in self._pages[number : number + 2]:  # who is filled longer is noted as large
            self._content(page)
            ends.append(self._last_filled(page, start))
        return max(ends)

    def _last_filled(self, page: Page, start: int) -> int:
        """Return `Page.last_filled`; while the pickle is being read, without sorting: pages are soon forgotten."""
        if not self._is_running:
            return page.last_filled(start)
        holder = self.state if page is self._pages[-1] else page
        fills, filled = holder.fills, holder.filled
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


# What picklers fill in several steps, of so many items or pairs.
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


# -- What lies inside of one value: where its parts begin and end ------------------------------------------------------

# The opcodes that take all above a mark which lies before the bytes that are read again.
_TAKERS: Final = (b"e", b"u", b"\x90", b"t", b"l", b"d", b"\x91")
_PAIRS: Final = (b"u", b"d")
_OF_PAIRS: Final = ("dict", "pairs")
_WITHOUT_PAIRS: Final = frozenset(("list", "tuple", "set", "frozenset"))


class Contents:
    """The parts of the value that begins at ``start``, read to ``end``."""

    def __init__(self, program: Program, start: int, end: int, index: ChildIndex | None, kind: str = "") -> None:
        """``index`` receives the offsets of the items, or the pairs, of a sequence of the ``kind``."""
        self.state = Scan()
        """The stack at the end."""
        self.wrong: tuple[int, str] | None = None
        """Offset of the first opcode that put something into it that does not belong there, and what."""
        self.items: Part | None = None
        """From where to where items were put into it."""
        self.pairs: Part | None = None
        """The same of pairs."""
        self._index, self._kind, self._made = index, kind, 0
        if index is not None:
            index.note = Parts(program.session.budget)
        known = program.take_parts(start, end)
        if known is not None:
            self.state = program.state
            self._note(known.takes())
            return
        reading = program.reading(start, self.state)
        reading.run(end, program.jumps(start, end), after=self._take)
        self._take(reading)

    def _take(self, reading: Reading) -> None:
        """Note what was put into the value, and forget the slots."""
        state = reading.state
        if state.made != self._made:
            self._made = state.made
            self.items = self.pairs = self.wrong = None  # all that was the first part of what it is now
            if self._index is not None:
                self._index.restart()
                self._index.note.forget()
        if state.cuts:
            self._note(state.takes())
            forget_children(reading, states=False)

    def _note(self, takes: Iterable[tuple[list[int], bool, int]]) -> None:
        """Note slots that opcodes put into the value, up to the first that do not belong there."""
        index, kind, found = self._index, self._kind, array("q")
        for slots, as_pairs, at in takes if self.wrong is None else ():
            if as_pairs and len(slots) % 2:
                self.wrong = at, "a key has no value"
            elif slots and ((kind == "dict" and not as_pairs) or (kind in _WITHOUT_PAIRS and as_pairs)):
                self.wrong = at, f"{'pairs' if as_pairs else 'items'} are put into a {kind}"
            if self.wrong is not None:
                break
            if as_pairs and slots:
                self.pairs = (self.pairs[0] if self.pairs else slots[0] >> 8), at + 1
            elif slots:
                self.items = (self.items[0] if self.items else slots[0] >> 8), at + 1
            if index is not None and as_pairs is (kind in _OF_PAIRS):
                index.note.add(slots, at, as_pairs=as_pairs)
                found.extend([slot >> 8 for slot in (slots[::2] if as_pairs else slots)])
        if index is not None and found:
            index.add_many(found)


def group(program: Program, start: int, end: int, *, paired: bool) -> list[Part]:
    """Return the slots and ends of the values ``[start, end)`` of one sequence: items, or keys and values by turns.

    They may have been put into it by several opcodes, some of which belong to marks before ``start``.
    """
    state = Scan()
    state.slots.append(start << 8 | MARK)  # stands for the sequence
    reading = program.reading(start, state)
    jumps = program.jumps(start, end)
    found: list[Part] = []
    while True:
        stop = reading.run(end, jumps)
        for slots, as_pairs, offset in state.takes():
            if as_pairs is paired:
                found += ends_of(slots, offset)
        forget_children(reading, states=False)
        left = state.slots[1:]
        taker = program.data.pread(reading.pos, 1) if stop is Stop.UNDERFLOW and not state.marks else b""
        if taker in _TAKERS:
            if paired == (taker in _PAIRS):
                found += ends_of(left, reading.pos)
            del state.slots[1:]
            reading.pos += 1
            continue
        if state.marks and state.marks[0] == 1:
            left = left[1:]  # a mark whose opcode comes later
        return found + ends_of(left, min(end, reading.pos))


# -- What becomes of the stack of a pickle that is cut: which values on it were about to be put into which -------------

# Above the value itself lie values and marks, in the order of the pickle. Of those that are next to each other, the
# opcodes behind the cut would have told whether the second goes into the first. What picklers write is assumed: a
# value that can be filled, and is not yet (`Program.closed`), is filled with one value at once, or with those above a
# mark.

# What can be filled, by the opcode that made it: lists and sets, dicts, objects. What is put into them comes behind the
# place where they are memoized.
FILLED: Final = frozenset(b"]l}d\x8fR\x81\x92oi")
# What cannot be a key: lists, sets, dicts, also those that are filled (`Program.closed`).
_CLOSED: Final = 0xFF
_NO_KEYS: Final = frozenset(b"]l}d\x8f\xff")
# A filled object is one if the first key is one: else it is probably a part of a tuple.
_CLOSED_OBJECT: Final = 0xFE
_DICTS: Final = frozenset(b"}d")
_BEGIN_CALLS: Final = frozenset(b"c\x93")
_CALLABLE: Final = frozenset(b"c\x93hjg")
# Texts may be parts of the name of a global; what is named again may be one, or its name.
NAMES: Final = frozenset(b"XV\x8c\x8dhjg")
# Of what later opcodes may make something else: fill it, call it, or take it for a name.
_BECOMING: Final = FILLED | _BEGIN_CALLS | NAMES | {MARK}


def contents(slots: list[int]) -> list[int]:
    """Return what lies on the stack above the value itself, if the value can be filled; else all."""
    if not slots or slots[0] & 0xFF not in FILLED:
        return slots
    above = slots[1:]
    return above[1:] if above and above[0] & 0xFF == MARK else above


def open_from(slots: Sequence[int], *, paired: bool) -> int:
    """Return the number of the slot that begins the one value that is not finished; how many slots there are, if all
    are. ``paired``: keys and values by turns; a key is finished."""
    if paired:  # what cannot be a key is a further part of the value before it: of a tuple
        no_keys = _NO_KEYS if slots and slots[0] & 0xFF == _CLOSED_OBJECT else _NO_KEYS | {_CLOSED_OBJECT}
        odd = next((nth for nth in range(2, len(slots), 2) if slots[nth] & 0xFF in no_keys), None)
        if odd is not None:
            return min(odd - 1, open_from(slots[:odd], paired=True))
    last = len(slots) - 1
    number = next((nth for nth, slot in enumerate(slots) if slot & 0xFF == MARK), last)
    found = len(slots)
    if number < last or (number == last and last >= 0 and slots[last] & 0xFF in _BECOMING):
        found = number
    # A call has its callable first, and of its arguments at most three are not yet in a tuple.
    for early in range(max(0, last - 3), number):
        if slots[early] & 0xFF in _CALLABLE:
            number = early
            found = number if _is_place(number, paired=paired) else found
            break
    # What stands before it may be what it is put into, and so on; or the first part of a name or call.
    while number > 0 and (step := _step_back(slots, number)):
        number -= step
        if _is_place(number, paired=paired):
            found = number
    return found


def _step_back(slots: Sequence[int], number: int) -> int:
    """Return how many slots before slot ``number`` the value begins that this one may be put into; 0: none."""
    before, this = slots[number - 1] & 0xFF, slots[number] & 0xFF
    if before in _BEGIN_CALLS or before in FILLED - _DICTS or (before in _CALLABLE and this == MARK):
        return 1
    if number > 1 and slots[number - 2] & 0xFF in _DICTS:
        return 2
    return int(before in _DICTS or (before in NAMES and this in NAMES))


def _is_place(number: int, *, paired: bool) -> bool:
    """Tell whether a value may stand there: keys are finished."""
    return not paired or number % 2 == 1


# -- Where the bytes of a counted value lie, behind its opcode and length ----------------------------------------------

# Texts up to this many bytes are decoded, with all that was loaded and dropped behind them.
_DECODED: Final = 1 << 20
# A text of Python 2, which may have any bytes.
_OLD_TEXT: Final = b"T"


def payload(data: Data, start: int, end: int) -> tuple[int, int] | None:
    """Return begin and end of the bytes of a value with a length, whose opcode is at ``start``; None for others."""
    head = data.pread(start, min(9, end - start))
    width = WIDTHS.get(head[0]) if head else None
    if width is None or len(head) <= width:
        return None
    size = int.from_bytes(head[1 : 1 + width], "little")
    begin = start + 1 + width
    return (begin, begin + size) if size <= end - begin else None


def fault_in(program: Program, start: int, end: int, kind: str) -> MalformedError | None:
    """Return what is wrong with the text, global or bytes ``[start, end)``; of longer texts, where they stop being
    UTF-8. Bytes that stand there as a text, as protocols 0 to 2 have them, are decoded."""
    try:
        if kind == "bytes" and KIND_OF.get(program.data.pread(start, 1)[0]) == kind:
            return None
        program.session.limits.check("scalar_bytes", end - start if kind == "bytes" else 0, "the text")
        if end - start <= _DECODED or kind == "bytes":
            program.decoder.decode(start, end)
            return None
        place = None if program.data.pread(start, 1) == _OLD_TEXT else payload(program.data, start, end)
        at = None if place is None else find_not_utf8(program.data, *place, "surrogatepass")
    except MalformedError as error:
        return error
    except (LimitError, UnsupportedError, EndOfDataError, GapError):
        return None  # what is lost is told of what lies around it
    return None if at is None else MalformedError("the text is not UTF-8", offset=at)
