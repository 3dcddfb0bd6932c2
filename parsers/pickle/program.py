"""One pickle: read once from its first opcode to STOP, for where it ends, what it memoizes, and its large values."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from pparse.errors import LimitError, MalformedError
from pparse.findings import Status
from pparse.kernels.pickle_scan import GETS, Scan
from pparse.parsers.pickle.reading import Jumps, Reading, Stop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data
    from pparse.tree.host import Session

# What is memoized is noted per page of the pickle; pages are read again when they are needed.
PAGE: Final = 1 << 20
_PAGES_KEPT: Final = 4
# The most large values, and values with numbers of their own, that are noted.
_MOST_NOTED: Final = 200_000
# The memory of all stacks kept, above which every second page is forgotten.
_STACKS: Final = 2 << 20


class Page:
    """Where a page of the pickle begins, and the stack there; what is memoized in it, while that is kept."""

    __slots__ = ("count", "marks", "memo", "pos", "puts", "slots")

    def __init__(self, pos: int, state: Scan) -> None:
        self.pos = pos
        self.count = state.count
        self.slots = array("q", state.slots)
        self.marks = array("q", state.marks)
        self.memo: array[int] | None = None
        self.puts: array[int] | None = None


class Program:
    """One pickle in some data."""

    def __init__(self, session: Session, data: Data, start: int, known_end: int) -> None:
        self.session = session
        self.data = data
        self.start = start
        """Where its first opcode stands."""
        self.known_end = known_end
        """Where the data end."""
        self.end = known_end
        """Behind STOP, or where reading had to end."""
        self.state = Scan(memo=True)
        """The stack at the end: one value, if it is whole."""
        self.state.globals = []
        self.stop = Stop.END
        """Why it ended."""
        self.trouble = ""
        """What is wrong with it, in words; empty if it is whole."""
        self._pages: list[Page] = []
        self._kept: list[Page] = []
        self._numbers: dict[int, list[int]] = {}
        self._others: set[int] = set()
        self._far_ends: dict[int, int] = {}
        self._run()

    @property
    def status(self) -> Status:
        """COMPLETE; TRUNCATED if the data end before STOP; DAMAGED."""
        if not self.trouble:
            return Status.COMPLETE
        return Status.TRUNCATED if self.stop is Stop.CUT else Status.DAMAGED

    def _run(self) -> None:
        state = self.state
        reading = Reading(self.session, self.data, self.start, state)
        reading.notes_big = True
        self._pages.append(Page(self.start, state))
        self.stop = reading.run(None, self.known_end, after=self._after_block)
        first = self._pages[0]
        if state.memo is not None:
            first.memo, first.puts = state.memo, state.puts
            self._kept.append(first)
        self.end = min(reading.pos, self.known_end)
        self.trouble = self._judge(reading.pos)
        state.memo, state.puts = None, array("q")
        for nth, number in state.numbers:
            self._numbers.setdefault(number, []).append(nth)
            self._others.add(nth)

    def _after_block(self, reading: Reading) -> None:
        """Begin a page from time to time; check how much is kept."""
        state = self.state
        for found in (state.items, state.pairs, state.cuts, state.states, state.late[1000:]):
            found.clear()  # of the root's children, which are not asked for here
        if state.globals is not None and len(state.globals) > _MOST_NOTED:
            del state.globals[_MOST_NOTED:]
        if len(state.numbers) > _MOST_NOTED or sum(map(len, state.big.values())) > _MOST_NOTED:
            raise LimitError("the pickle is built in too odd a way", option="none", offset=reading.pos)
        last = self._pages[-1]
        if reading.pos - last.pos < PAGE:
            return
        if state.memo is not None:
            last.memo, last.puts = state.memo, state.puts
            self._kept.append(last)
            state.memo, state.puts = None, array("q")
        self._pages.append(Page(reading.pos, state))
        if sum(len(page.slots) for page in self._pages) * 8 > _STACKS:
            self._thin_out()

    def _thin_out(self) -> None:
        """Forget every second page: what is kept of the others must be read again."""
        del self._pages[1::2]
        for page in self._kept:
            page.memo = page.puts = None
        self._kept.clear()

    def _judge(self, pos: int) -> str:
        """Say what is wrong with how the pickle ends; "" if nothing is."""
        slots, marks = self.state.slots, self.state.marks
        if self.stop is Stop.STOP:
            if len(slots) == 1 and not marks:
                return ""
            self.stop = Stop.UNDERFLOW
            return f"STOP finds {len(slots)} values on the stack, not 1"
        if self.stop is Stop.CUT:
            return "the pickle ends before its STOP"
        if self.stop is Stop.GAP:
            return "the pickle runs into a gap"
        if self.stop is Stop.UNKNOWN:
            code = self.data.pread(pos, 1)
            return f"there is no opcode {code[0]:#04x}" if code else "an opcode is missing"
        return "an opcode finds too few values on the stack"

    # -- what is memoized --------------------------------------------------------------------------------------------

    @property
    def globals(self) -> list[tuple[int, int]]:
        """Slots and ends of the globals that are named, in order: the first 200,000."""
        return self.state.globals or []

    @property
    def has_odd_numbers(self) -> bool:
        """Whether values are memoized by numbers that do not follow each other."""
        return bool(self._numbers)

    def number_at(self, pos: int) -> int:
        """Return how many values were memoized before ``pos``."""
        page = self._page_before(pos)
        _, puts = self._content(page)
        return page.count + bisect_left(puts, pos)

    def nth(self, number: int, at: int) -> int:
        """Return which memoized value, in order, the number means at ``at``. Raises `MalformedError`: none."""
        others = self._numbers.get(number)
        if others:
            before = [nth for nth in others if self.memoized(nth)[1] < at]
            if before:
                return before[-1]
        nth = number - self.state.first
        if nth < 0 or nth >= self.state.count or nth in self._others or self.memoized(nth)[1] >= at:
            raise MalformedError(f"nothing was memoized as number {number} before it is named", offset=at)
        return nth

    def memoized(self, nth: int) -> tuple[int, int]:
        """Return the slot of the nth value memoized, as it was then, and where that was."""
        page = self._pages[bisect_right(self._pages, nth, key=_count_of) - 1]
        memo, puts = self._content(page)
        return memo[nth - page.count], puts[nth - page.count]

    def _page_before(self, pos: int) -> Page:
        return self._pages[max(0, bisect_right(self._pages, pos, key=_pos_of) - 1)]

    def _content(self, page: Page) -> tuple[array[int], array[int]]:
        """Return what is memoized in a page, reading it again if it was not kept."""
        if page.memo is not None and page.puts is not None:
            return page.memo, page.puts
        number = self._pages.index(page)
        end = self._pages[number + 1].pos if number + 1 < len(self._pages) else self.end
        state = Scan(memo=True)
        state.slots.extend(page.slots)
        state.marks.extend(page.marks)
        state.count, state.first = page.count, self.state.first
        Reading(self.session, self.data, page.pos, state).run(end, self.known_end, after=_forget_children)
        page.memo, page.puts = state.memo, state.puts
        assert page.memo is not None  # noqa: S101 -- made two lines above
        self._kept.append(page)
        if len(self._kept) > _PAGES_KEPT:
            old = self._kept.pop(0)
            old.memo = old.puts = None
        return page.memo, page.puts

    def definition(self, slot: int) -> tuple[int, int, int] | None:
        """Follow a slot that only names a memoized value: return its slot, its end, and its number in order.

        None if the slot is a value itself. Raises `MalformedError` if it names nothing.
        """
        if slot & 0xFF not in GETS or slot & 0xFF == 0x32:
            return None
        at = slot >> 8
        head = self.data.read_exact(at, min(24, self.known_end - at))
        nth = self.nth(get_number(head, 0, at), at)
        found, put = self.memoized(nth)
        return found, self.end_of(found, put, nth), nth

    def end_of(self, slot: int, put: int, nth: int) -> int:
        """Return where a memoized value ends: where it was memoized, or where something was last put into it."""
        if slot & 0xFF not in _MUTABLE:
            return put
        known = self._far_ends.get(nth)
        if known is None:
            state = Scan()
            watch = _Watch(put)
            reading = Reading(self.session, self.data, slot >> 8, state)
            reading.run(put, self.known_end, self.jumps(slot >> 8, put), after=_forget_children)
            state.frozen = True
            reading.run(None, self.end, self.jumps(put, self.end), after=watch)
            known = watch.end
            if len(self._far_ends) > 10_000:
                self._far_ends.clear()
            self._far_ends[nth] = known
        return known

    def jumps(self, start: int, end: int) -> Jumps:
        """Return the large values inside of the value ``[start, end)``."""
        return Jumps(self.state.big, start, end)


# Lists, dicts, sets and objects: what is put into them comes behind the place where they are memoized.
_MUTABLE: Final = frozenset(b"]l}d\x8fR\x81\x92oi")


class _Watch:
    """Notes the last offset at which something was put into the lowest value."""

    def __init__(self, end: int) -> None:
        self.end = end

    def __call__(self, reading: Reading) -> None:
        state = reading.state
        for _, _, at in state.cuts:
            self.end = max(self.end, at + 1)
        for _, at in state.states:
            self.end = max(self.end, at + 1)
        _forget_children(reading)


def _forget_children(reading: Reading) -> None:
    state = reading.state
    for found in (state.items, state.pairs, state.cuts, state.states):
        found.clear()


def _count_of(page: Page) -> int:
    return page.count


def _pos_of(page: Page) -> int:
    return page.pos


def get_number(buf: bytes, i: int, at: int) -> int:
    """Return the number that the opcode GET, BINGET or LONG_BINGET at ``buf[i]`` names. Raises `MalformedError`."""
    op = buf[i]
    if op == 0x68:
        return buf[i + 1]
    if op == 0x6A:
        return int.from_bytes(buf[i + 1 : i + 5], "little")
    text = buf[i + 1 : buf.find(b"\n", i + 1)]
    if not text.isdigit() or len(text) > 18:
        raise MalformedError(f"GET of {text[:20]!r}", offset=at)
    return int(text)
