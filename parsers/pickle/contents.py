"""What lies inside of one value of a pickle: where its parts begin and end."""

from __future__ import annotations

from array import array

from pparse.data.base import find_not_utf8
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, UnsupportedError
from pparse.kernels.pickle_scan import MARK, Scan, ends_of
from pparse.parsers.pickle.reading import Parts, Stop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.program import Program
    from pparse.tree.index import ChildIndex

    Part = tuple[int, int]

# The opcodes that take all above a mark which lies before the bytes that are read again.
_TAKERS: Final = (b"e", b"u", b"\x90", b"t", b"l", b"d", b"\x91")
_PAIRS: Final = (b"u", b"d")
_WITHOUT_PAIRS: Final = frozenset(("list", "tuple", "set", "frozenset"))


class Contents:
    """The parts of the value that begins at ``start``, read to ``end``."""

    def __init__(self, program: Program, start: int, end: int, index: ChildIndex | None, kind: str = "") -> None:
        """``index`` receives the offsets of the items, or the pairs, of a sequence of the ``kind``."""
        self.state = Scan()
        """The stack at the end."""
        self.items: Part | None = None
        """From where to where items were put into it."""
        self.pairs: Part | None = None
        """The same of pairs."""
        self._index = index
        self._as_pairs = kind in ("dict", "pairs")
        self._kind = kind
        self._made = 0
        self.wrong: tuple[int, str] | None = None
        """Offset of the first opcode that put something into it that does not belong there, and what."""
        if index is not None:
            index.note = Parts(program.session.budget)
        known = program.take_parts(start, end)
        if known is not None:
            self.state = program.state
            self._note(known.takes())
            return
        reading = program.reading(start, self.state)
        reading.run(end, program.find_end, program.jumps(start, end), after=lambda _: self._take())
        self._take()

    def _take(self) -> None:
        """Note what was put into the value, and forget the slots."""
        state = self.state
        if state.made != self._made:
            self._made = state.made
            self.items = self.pairs = self.wrong = None  # all that was the first part of what it is now
            if self._index is not None:
                self._index.restart()
                self._index.note.forget()
        if state.cuts:
            self._note(state.takes())
            state.items.clear()
            state.pairs.clear()
            state.cuts.clear()

    def _note(self, takes: Iterable[tuple[list[int], bool, int]]) -> None:
        """Note slots that opcodes put into the value, up to the first that do not belong there."""
        index, found = self._index, array("q")
        for slots, as_pairs, at in takes:
            if self.wrong is None:
                self._judge(len(slots), at, as_pairs=as_pairs)
            if self.wrong is not None:
                break
            if as_pairs and slots:
                self.pairs = (self.pairs[0] if self.pairs else slots[0] >> 8), at + 1
            elif slots:
                self.items = (self.items[0] if self.items else slots[0] >> 8), at + 1
            if index is not None and as_pairs is self._as_pairs:
                index.note.add(slots, at, as_pairs=as_pairs)
                found.extend([slot >> 8 for slot in (slots[::2] if as_pairs else slots)])
        if index is not None and found:
            index.add_many(found)

    def _judge(self, count: int, at: int, *, as_pairs: bool) -> None:
        """Note what cannot be put into the value."""
        if as_pairs and count % 2:
            self.wrong = at, "a key has no value"
        elif self._kind == "dict" and count and not as_pairs:
            self.wrong = at, "items are put into a dict"
        elif as_pairs and count and self._kind in _WITHOUT_PAIRS:
            self.wrong = at, f"pairs are put into a {self._kind}"


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
        stop = reading.run(end, program.find_end, jumps)
        before = (0, 0)
        for items, pairs, offset in state.cuts:
            found += ends_of(state.pairs[before[1] : pairs] if paired else state.items[before[0] : items], offset)
            before = items, pairs
        state.items.clear()
        state.pairs.clear()
        state.cuts.clear()
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

# What can be filled, by the opcode that made it: lists and sets, dicts, objects.
FILLED: Final = frozenset(b"]l}d\x8fR\x81\x92oi")
# What cannot be a key: lists, sets, dicts, also those that are filled (`Program.closed`).
_NO_KEYS: Final = frozenset(b"]l}d\x8f\xff")
_DICTS: Final = frozenset(b"}d")
_BEGIN_CALLS: Final = frozenset(b"c\x93")
_CALLABLE: Final = frozenset(b"c\x93hjg")
# Texts may be parts of the name of a global; what is named again may be one, or its name.
NAMES: Final = frozenset(b"XV\x8c\x8dhjg")
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
        odd = next((nth for nth in range(2, len(slots), 2) if slots[nth] & 0xFF in _NO_KEYS), None)
        if odd is not None:
            return min(odd - 1, open_from(slots[:odd], paired=True))
    last = len(slots) - 1
    number = next((nth for nth, slot in enumerate(slots) if slot & 0xFF == MARK), last)
    found = len(slots)
    if number < last or (number == last and last >= 0 and _may_become_more(slots[last])):
        found = number
    # A call has its callable first, and of its arguments at most three are not yet in a tuple.
    for early in range(max(0, last - 3), number):
        if slots[early] & 0xFF in _CALLABLE:
            number = early
            found = number if _is_place(number, paired=paired) else found
            break
    # What stands before it may be what it is put into, and so on; or the first part of a name or call.
    while number > 0:
        step = _step_back(slots, number)
        if not step:
            break
        number -= step
        if _is_place(number, paired=paired):
            found = number
    return found


def _step_back(slots: Sequence[int], number: int) -> int:
    """Return how many slots before slot ``number`` the value begins that this one may be put into; 0: none."""
    before = slots[number - 1] & 0xFF
    if before in _BEGIN_CALLS or before in FILLED - _DICTS:
        return 1
    if before in _CALLABLE and slots[number] & 0xFF == MARK:
        return 1
    if number > 1 and slots[number - 2] & 0xFF in _DICTS:
        return 2
    if before in _DICTS or (before in NAMES and slots[number] & 0xFF in NAMES):
        return 1
    return 0


def _may_become_more(slot: int) -> bool:
    """Tell whether later opcodes may make something else of a value: fill it, call it, or take it for a name."""
    return slot & 0xFF in _BECOMING


def _is_place(number: int, *, paired: bool) -> bool:
    """Tell whether a value may stand there: keys are finished."""
    return not paired or number % 2 == 1


# -- Where the bytes of a counted value lie, behind its opcode and length ----------------------------------------------

# Texts up to this many bytes are decoded, with all that was loaded and dropped behind them.
_DECODED: Final = 1 << 20
# A text of Python 2, which may have any bytes.
_OLD_TEXT: Final = b"T"
# Width of the length, by opcode (pickletools.py).
_WIDTHS: Final = {
    **dict.fromkeys(b"\x8cCU", 1),
    **dict.fromkeys(b"XBT", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}


def payload(data: Data, start: int, end: int) -> tuple[int, int] | None:
    """Return begin and end of the bytes of the text or bytes whose opcode is at ``start``; None for other values."""
    head = data.pread(start, min(9, end - start))
    width = _WIDTHS.get(head[0]) if head else None
    if width is None or len(head) <= width:
        return None
    size = int.from_bytes(head[1 : 1 + width], "little")
    begin = start + 1 + width
    return (begin, begin + size) if size <= end - begin else None


def fault_in(program: Program, start: int, end: int) -> MalformedError | None:
    """Return what is wrong with the text or global ``[start, end)``; of longer ones, where a text stops being UTF-8."""
    try:
        if end - start <= _DECODED:
            program.decoder.decode(start, end)
            return None
        place = None if program.data.pread(start, 1) == _OLD_TEXT else payload(program.data, start, end)
        at = None if place is None else find_not_utf8(program.data, *place, "surrogatepass")
    except MalformedError as error:
        return error
    except (LimitError, UnsupportedError, EndOfDataError, GapError):
        return None  # what is lost is told of what lies around it
    return None if at is None else MalformedError("the text is not UTF-8", offset=at)
