"""The boundaries of values in a pickle: a stack machine that keeps where values begin, and no value.

A *slot* of the stack is one number, ``offset << 8 | opcode``: where the first opcode of the value stands, and the one
that made the value what it is (the last one that replaced it, so a tuple's is TUPLE, whatever it begins with). A mark
takes a slot, too. What the opcodes do: ``pickletools.py`` of CPython; PEP 307, 3154, 574.

The lowest value is the one that is looked at: what opcodes put into it is noted.
"""

from __future__ import annotations

from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

# The loop reads so many bytes behind its end: an opcode, its length, and room.
SLACK: Final = 16
# What opcodes do. 1 to 9: push a value; the number is the size of opcode and argument.
MEMO, PUT, SIZE1, SIZE4, _, OPEN, SMALL, MAKE, FILL, ADD, CALL = range(10, 21)
SIZE8, RENAME, NAME, LINE, LINES, LINE_PUT, SKIP, END, DROP, OBJECT, TOUCH, CODE, NOTHING = range(21, 34)
_ACTIONS: Final = {
    1: b"N\x88\x89]})\x8f\x97",
    2: b"Kh",
    3: b"M",
    5: b"Jj",
    9: b"G",
    MEMO: b"\x94",
    PUT: b"qr",
    SIZE1: b"\x8cCU\x8a",
    SIZE4: b"XBT\x8b",
    SIZE8: b"\x8d\x8e\x96",
    OPEN: b"(",
    SMALL: b"\x85\x86\x87",
    MAKE: b"tld\x91",
    FILL: b"eu\x90",
    ADD: b"as",
    CALL: b"R\x81\x92b",
    RENAME: b"Q",
    NAME: b"\x93",
    LINE: b"ILFSVPg",
    LINES: b"ci",
    LINE_PUT: b"p",
    SKIP: b"\x80\x95",
    END: b".",
    DROP: b"012",
    OBJECT: b"o",
    TOUCH: b"\x98",
    CODE: b"\x82\x83\x84",
}


def _table() -> bytes:
    table = bytearray([NOTHING]) * 256
    for action, opcodes in _ACTIONS.items():
        for opcode in opcodes:
            table[opcode] = action
    return bytes(table)


ACTIONS: Final = _table()
MARK: Final = 0x28
DUP: Final = 0x32
GETS: Final = frozenset(b"hjg2")
# What is put into these does not go into a value of the pickle: it names one again, or something outside.
_NOT_OWN: Final = GETS | frozenset(b"c\x93")
# Why `scan` returned: at its end, behind STOP, at an unknown opcode, at one that finds too little on the stack, at a
# line whose end is not in the block, behind a global whose name may be `Scan.watched`, behind BUILD if `Scan.asks`,
# behind FRAME if `Scan.minds_frames`.
MORE, STOPPED, UNKNOWN, UNDERFLOW, LONG_LINE, NAMED, BUILT, FRAMED = range(8)
# Opcodes of values of built-in types, which have no attributes that BUILD could set: numbers, texts, bytes, containers;
# and of states that set none: None, False, empty ones.
_BUILT_IN: Final = frozenset(b"IJKLM\x8a\x8b\x88\x89FGNSUTVX\x8c\x8dBC\x8e\x96)t\x85\x86\x87]l}d\x8f\x91")
_EMPTY: Final = frozenset(b"N\x89)]}\x8f")
# Where a text begins behind its opcode.
_TEXTS: Final = {0x8C: 2, 0x58: 5, 0x8D: 9, 0x55: 2, 0x54: 5, 0x56: 1, 0x53: 2}

Part = tuple[int, int]  # the slot of a value, and where the value ends


class Scan:
    """A stack machine, as it stands between two blocks."""

    def __init__(self, *, memo: bool = False) -> None:
        self.slots: list[int] = []
        """The stack."""
        self.marks: list[int] = []
        """Slots of the marks."""
        self.count = 0
        """Number of values memoized."""
        self.memo: array[int] | None = array("q") if memo else None
        """The slots of what is memoized, in order; None: only counted."""
        self.keeps = memo
        """Whether they are noted; else only numbers are compared, if there is a memo."""
        self.puts: array[int] = array("q")
        """Where it was memoized."""
        self.fills: array[int] = array("q")
        """Of each opcode that put something into a value, while values are memoized: where the value begins."""
        self.filled: array[int] = array("q")
        """The offset behind the opcode."""
        self.first = 0
        """The number of the first value memoized; those of others follow."""
        self.numbered = 0
        """How many of the values memoized were given a number (PUT), and not the next one (MEMOIZE)."""
        self.numbers: list[tuple[int, int]] = []
        """Of values that have other numbers: which one it was, and its number."""
        self.globals: list[Part] | None = None
        """Slots and ends of globals; None: nobody asks."""
        self.extension: int | None = None
        """The offset of the first global that is named by a code of a registry elsewhere (EXT); None: there is none."""
        self.ids: list[Part] | None = None
        """Slots and ends of persistent ids; None: nobody asks."""
        self.parts: list[Part] = []
        """What the last opcode made the lowest value of, if not of items."""
        self.items: list[int] = []
        """Slots of the items put into the lowest value since the driver emptied this."""
        self.pairs: list[int] = []
        """Slots of keys and values put into it."""
        self.cuts: list[tuple[int, int, int]] = []
        """For each opcode that put them there: numbers of items and pairs so far, and its offset."""
        self.states: list[Part] = []
        """States that were given to it (BUILD)."""
        self.stateless: int | None = None
        """The offset of a BUILD that gives a state to a value that can have none; None: there is none."""
        self.made = 0
        """How often the lowest value was replaced by one made of it."""
        self.protocol = 0
        """The highest protocol that an opcode says."""
        self.frame_end = 0
        """Where the last of the frames ends, by their lengths."""
        self.minds_frames = False
        """Whether to stop behind FRAME, for whoever minds where frames end."""
        self.floor = -1
        """Values that began before go into `big` when they end; as a slot."""
        self.big: dict[int, list[Part]] = {}
        """By offset, the last slots and the ends of large values that begin there, the inner ones first."""
        self.watched: bytes | None = None
        """The name of a class, without its module: reading stops where it is named; None: nowhere."""
        self.asks = False
        """Whether to stop behind BUILD, for whoever knows if opcodes follow there."""
        self.built = (0, 0)
        """Slots of the value that was given a state there, and of the state."""
        self.late: list[Part] = []
        """Values that are changed where they are only named again: slot, offset of the opcode."""
        self.changes_global = False
        """Whether something is put into what a global names."""

    def remake(self, parts: list[Part]) -> None:
        """Note that the lowest value was replaced by one made of ``parts``."""
        self.made += 1
        self.parts = parts
        for found in (self.items, self.pairs, self.cuts, self.states):
            found.clear()

    def note_change(self, slot: int, at: int) -> None:
        """Note that the opcode at ``at`` puts something into what is only named."""
        if slot & 0xFF in GETS:
            self.late.append((slot, at))
        else:
            self.changes_global = True

    def take(self, slots: list[int], at: int, *, as_pairs: bool) -> None:
        """Note what the opcode at ``at`` put into the lowest value."""
        (self.pairs if as_pairs else self.items).extend(slots)
        self.cuts.append((len(self.items), len(self.pairs), at))

    def takes(self) -> list[tuple[list[int], bool, int]]:
        """Return for each opcode that put something there the slots, whether they are pairs, and its offset."""
        found, before = [], (0, 0)
        for items, pairs, at in self.cuts:
            as_pairs = pairs > before[1]
            slots = self.pairs[before[1] : pairs] if as_pairs else self.items[before[0] : items]
            found.append((slots, as_pairs, at))
            before = items, pairs
        return found

    def note_number(self, number: int) -> None:
        """Note the number under which a value is memoized now."""
        if not self.count and number == 1:
            self.first = 1  # Python 2's cPickle counts from 1
        elif number != self.count + self.first:
            self.numbers.append((self.count, number))

    def note_big(self, slot: int, end: int, *, is_new: bool) -> None:
        """Note that a large value ends, as far as is known; ``is_new``: it was just made of what began there."""
        known = self.big.setdefault(slot >> 8, [])
        if known and not is_new:
            known[-1] = slot, end
        else:
            known.append((slot, end))


def ends_of(slots: Sequence[int], end: int) -> list[Part]:
    """Return each slot with the end of its value: where the next one begins; of the last, ``end``."""
    ends = [slot >> 8 for slot in slots[1:]]
    ends.append(end)
    return list(zip(slots, ends, strict=False))


def scan(buf: bytes, i: int, stop: int, base: int, state: Scan) -> tuple[int, int]:
    """Run the opcodes from ``buf[i]`` to before ``stop``; return where it stopped, and why.

    ``base`` is the offset of ``buf[0]``. `SLACK` bytes behind ``stop`` must be there. The place returned may lie behind
    the block: a value's bytes go on there. After an error it is the place of the opcode.
    """
    try:
        return _scan(buf, i, stop, base, state)
    except _StopAtError as error:
        at, why = error.args
        return at - base, why


class _StopAtError(Exception):
    """Ends the run at an offset, and says why."""


def _scan(buf: bytes, i: int, stop: int, base: int, state: Scan) -> tuple[int, int]:  # noqa: C901 -- one loop, for speed
    # A chain of comparisons, the frequent ones first: 150 ns an opcode; a table of functions takes twice that.
    actions = ACTIONS
    slots, marks, floor = state.slots, state.marks, state.floor
    memo = array("q") if state.memo is None else state.memo
    puts, fills, filled = state.puts, state.fills, state.filled
    from_bytes = int.from_bytes
    asks, keeps, compares = state.asks, state.keeps, state.memo is not None
    count = numbered = 0
    following = state.first + state.count  # the number that the next value has, if `count` is 0
    while i < stop:
        op = buf[i]
        action = actions[op]
        if action < 10:
            slots.append((base + i) << 8 | op)
            i += action
        elif action == 10:
            if compares:
                if not slots:
                    raise _StopAtError(base + i, UNDERFLOW)
                if keeps:
                    memo.append(slots[-1])
                    puts.append(base + i)
            count += 1
            i += 1
        elif action == 11:
            if compares:
                number = buf[i + 1] if op == 0x71 else from_bytes(buf[i + 1 : i + 5], "little")
                if number != following + count:
                    state.count += count
                    count = 0
                    state.note_number(number)
                    following = state.first + state.count
                if not slots:
                    raise _StopAtError(base + i, UNDERFLOW)
                if keeps:
                    memo.append(slots[-1])
                    puts.append(base + i)
            count += 1
            numbered += 1
            i += 2 if op == 0x71 else 5
        elif action == 12:
            slots.append((base + i) << 8 | op)
            i += 2 + buf[i + 1]
        elif action == 15:
            marks.append(len(slots))
            slots.append((base + i) << 8 | 0x28)
            i += 1
        elif action == 13:
            slots.append((base + i) << 8 | op)
            i += 5 + from_bytes(buf[i + 1 : i + 5], "little")
        elif action == 16:
            _combine(state, len(slots) - (op - 0x84), op, base + i)
            i += 1
            if slots[-1] < floor:
                state.note_big(slots[-1], base + i, is_new=True)
        elif action < 20:
            at = base + i
            if action == 19:  # the last item or pair
                first = len(slots) - (1 if op == 0x61 else 2)
                below = first - 1
            elif not marks:
                raise _StopAtError(at, UNDERFLOW)
            else:  # all above a mark
                below = marks.pop()
                first = below + 1
                if first > len(slots) or slots[below] & 0xFF != 0x28:
                    raise _StopAtError(at, UNDERFLOW)
                if action == 17:
                    if not below:
                        state.remake([])  # by a tuple, list, dict or frozenset of what lies above the mark
                        state.take(slots[1:], at, as_pairs=op == 0x64)
                    del slots[first:]
                    slots[below] = slots[below] ^ 0x28 | op
                    i += 1
                    if slots[below] < floor:
                        state.note_big(slots[below], base + i, is_new=True)
                    continue
                below -= 1
            if below <= 0:
                if below < 0:
                    raise _StopAtError(at, UNDERFLOW)
                state.take(slots[first:], at, as_pairs=op in b"us")
            del slots[below + 1 :]
            i += 1
            slot = slots[below]
            if keeps:
                fills.append(slot >> 8)
                filled.append(base + i)
            if slot & 0xFF in _NOT_OWN:
                state.note_change(slot, at)
            if slot < floor:
                state.note_big(slot, base + i, is_new=False)
        elif action == 20:
            if op == 0x62:
                _build(state, base + i)
            else:
                _combine(state, len(slots) - (3 if op == 0x92 else 2), op, base + i)
            i += 1
            if slots[-1] < floor:
                state.note_big(slots[-1], base + i, is_new=op != 0x62)
            if asks and op == 0x62:
                state.count += count
                state.numbered += numbered
                return i, BUILT
        else:
            state.count += count
            state.numbered += numbered
            count = numbered = 0
            i, why = _rare(buf, i, base, state, action, op)
            following = state.first + state.count
            if why:
                return i, why
    state.count += count
    state.numbered += numbered
    return i, MORE


def _combine(state: Scan, first: int, op: int, at: int, marks: int = 0) -> None:
    """Make one value of all from slot ``first`` on, but for ``marks`` that are no part of it."""
    slots = state.slots
    if first <= 0:
        if first < 0:
            raise _StopAtError(at, UNDERFLOW)
        state.remake(ends_of(slots[marks:], at))
    slot = slots[first] >> 8 << 8 | op
    del slots[first:]
    slots.append(slot)


def _build(state: Scan, at: int) -> None:
    """BUILD: give a value its state."""
    slots = state.slots
    if len(slots) < 2:
        raise _StopAtError(at, UNDERFLOW)
    given = slots.pop()
    slot = slots[-1]
    if slot & 0xFF in _BUILT_IN and given & 0xFF not in _EMPTY:
        state.stateless = at
    if state.asks:
        state.built = slot, given
    if len(slots) == 1:
        state.states.append((given, at))
    if state.keeps:
        state.fills.append(slot >> 8)
        state.filled.append(at + 1)
    if slot & 0xFF in _NOT_OWN:
        state.note_change(slot, at)


def _rare(buf: bytes, i: int, base: int, state: Scan, action: int, op: int) -> tuple[int, int]:
    """Run one of the opcodes that are rare in large pickles."""
    slots, at = state.slots, base + i
    if action == SIZE8:
        slots.append(at << 8 | op)
        return i + 9 + int.from_bytes(buf[i + 1 : i + 9], "little"), 0
    if action == SKIP:
        return _skip(buf, i, at, state, op)
    if action == END:
        return i + 1, STOPPED
    if action in (LINE, LINES, LINE_PUT):
        return _lines(buf, i, base, state, action, op)
    if action in (RENAME, NAME):
        watched = action == NAME and state.watched is not None and _may_be_watched(buf, base, state)
        return (i + 1, NAMED if watched else 0) if _rename(state, action, op, at) else (i, UNDERFLOW)
    if action == OBJECT:
        below = _above_mark(state, at)
        if below + 1 >= len(slots):
            return i, UNDERFLOW
        _close(state, below, op, at, at + 1)
        return i + 1, 0
    if action == NOTHING:
        return i, UNKNOWN
    if action == CODE:
        return _name_by_code(buf, i, at, state, op)
    if not slots:
        return i, UNDERFLOW
    _drop_or_double(state, op, at)
    return i + 1, 0


def _skip(buf: bytes, i: int, at: int, state: Scan, op: int) -> tuple[int, int]:
    """Run PROTO or FRAME."""
    if op == 0x80:
        state.protocol = max(state.protocol, buf[i + 1])
        return i + 2, 0
    state.frame_end = max(state.frame_end, at + 9 + int.from_bytes(buf[i + 1 : i + 9], "little"))
    return i + 9, FRAMED if state.minds_frames else 0


def _name_by_code(buf: bytes, i: int, at: int, state: Scan, op: int) -> tuple[int, int]:
    """Run EXT1, EXT2 or EXT4, whose code is a signed number only in the last."""
    width = 1 << (op - 0x82)
    if int.from_bytes(buf[i + 1 : i + 1 + width], "little", signed=op == 0x84) <= 0:
        return i, UNKNOWN
    state.slots.append(at << 8 | op)
    if state.extension is None:
        state.extension = at
    if state.globals is not None:
        state.globals.append((state.slots[-1], at + 1 + width))
    return i + 1 + width, 0


def _drop_or_double(state: Scan, op: int, at: int) -> None:
    """Run DUP, POP or POP_MARK."""
    slots = state.slots
    if op == DUP:
        slots.append(at << 8 | op)
    elif op == 0x30:
        if state.marks and state.marks[-1] == len(slots) - 1:
            state.marks.pop()
        slots.pop()
    elif op == 0x31:
        del slots[_above_mark(state, at) :]


def _rename(state: Scan, action: int, op: int, at: int) -> bool:
    """Make a persistent id of a value, or a global of its two names; False: there are too few."""
    slots = state.slots
    first = len(slots) - (1 if action == RENAME else 2)
    if first < 0:
        return False
    before = slots[first]
    _combine(state, first, op, at)
    if state.ids is not None and action == RENAME:
        state.ids.append((before, at))
    slot = slots[-1]
    if slot < state.floor:
        state.note_big(slot, at + 1, is_new=True)
    if state.globals is not None and action == NAME:
        state.globals.append((slot, at + 1))
    return True


def _may_be_watched(buf: bytes, base: int, state: Scan) -> bool:
    """Tell whether the uppermost value may be the text that is watched for: it may lie before the block."""
    slot = state.slots[-1] if state.slots else 0
    at = (slot >> 8) - base
    if at < 0 or slot & 0xFF not in _TEXTS:
        return True
    return buf.startswith(state.watched or b"", at + _TEXTS[slot & 0xFF])


def _above_mark(state: Scan, at: int) -> int:
    """Return the slot of the topmost mark, which is taken away."""
    below = state.marks.pop() if state.marks else -1
    if below < 0 or below >= len(state.slots) or state.slots[below] & 0xFF != MARK:
        raise _StopAtError(at, UNDERFLOW)
    return below


def _close(state: Scan, below: int, op: int, at: int, end: int) -> None:
    """Make an object of what lies above a mark; its opcode is ``[at, end)``."""
    _combine(state, below, op, at, marks=1)
    if state.slots[-1] < state.floor:
        state.note_big(state.slots[-1], end, is_new=True)


def _lines(buf: bytes, i: int, base: int, state: Scan, action: int, op: int) -> tuple[int, int]:
    """Run an opcode whose argument is a line of text, or two."""
    end = buf.find(b"\n", i + 1)
    if end >= 0 and action == LINES:
        end = buf.find(b"\n", end + 1)
    if end < 0:
        return i, LONG_LINE
    if action == LINE_PUT:
        text = buf[i + 1 : end]
        if not text.isdigit() or len(text) > 18:
            return i, UNKNOWN
        if not state.slots:
            return i, UNDERFLOW
        state.note_number(int(text))
        state.count += 1
        state.numbered += 1
        if state.memo is not None and state.keeps:
            state.memo.append(state.slots[-1])
            state.puts.append(base + i)
        return end + 1, 0
    if state.globals is not None and action == LINES:
        state.globals.append(((base + i) << 8 | op, base + end + 1))
    if op == 0x69:  # INST: names a class, whose arguments lie above a mark
        _close(state, _above_mark(state, base + i), op, base + i, base + end + 1)
    else:
        state.slots.append((base + i) << 8 | op)
        if op == 0x63 and state.watched is not None and buf.endswith(b"\n" + state.watched, i, end):
            return end + 1, NAMED
    return end + 1, 0
