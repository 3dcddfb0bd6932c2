"""What lies inside of one value of a pickle: where its parts begin and end."""

from __future__ import annotations

from array import array

from pparse.kernels.pickle_scan import MARK, Scan, ends_of
from pparse.parsers.pickle.reading import Stop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.parsers.pickle.program import Program
    from pparse.parsers.pickle.reading import Reading
    from pparse.tree.index import ChildIndex

    Part = tuple[int, int]

# The opcodes that take all above a mark which lies before the bytes that are read again.
_TAKERS: Final = frozenset(b"eu\x90tld\x91")
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
        reading = program.reading(start, self.state)
        self.stop = reading.run(end, program.known_end, program.jumps(start, end), after=self._after_block)
        """Why reading ended: END if all is whole."""
        self._take()

    def _after_block(self, reading: Reading) -> None:
        self._take()

    def _take(self) -> None:
        """Note what was put into the value, and forget the slots."""
        state = self.state
        if state.made != self._made:
            self._made = state.made
            self.items = self.pairs = self.wrong = None  # all that was the first part of what it is now
            if self._index is not None:
                self._index.restart()
        before = (0, 0)
        for items, pairs, at in state.cuts:
            if self.wrong is None:
                self._judge(items - before[0], pairs - before[1], at)
            if self.wrong is not None:
                del state.items[before[0] :], state.pairs[before[1] :]
                break
            if items > before[0]:
                first = state.items[before[0]] >> 8
                self.items = (self.items[0] if self.items else first, at + 1)
            if pairs > before[1]:
                first = state.pairs[before[1]] >> 8
                self.pairs = (self.pairs[0] if self.pairs else first, at + 1)
            before = items, pairs
        if self._index is not None:
            found = state.pairs[::2] if self._as_pairs else state.items
            if found:
                self._index.add_many(array("q", [slot >> 8 for slot in found]))
        state.items.clear()
        state.pairs.clear()
        state.cuts.clear()

    def _judge(self, items: int, pairs: int, at: int) -> None:
        """Note what cannot be put into the value."""
        if pairs % 2:
            self.wrong = at, "a key has no value"
        elif self._kind == "dict" and items:
            self.wrong = at, "items are put into a dict"
        elif pairs and self._kind in _WITHOUT_PAIRS:
            self.wrong = at, f"pairs are put into a {self._kind}"

    @property
    def left(self) -> list[int]:
        """The slots that no opcode took, where the pickle is cut: the value itself first."""
        return self.state.slots


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
        stop = reading.run(end, program.known_end, jumps)
        before = (0, 0)
        for items, pairs, offset in state.cuts:
            found += ends_of(state.pairs[before[1] : pairs] if paired else state.items[before[0] : items], offset)
            before = items, pairs
        state.items.clear()
        state.pairs.clear()
        state.cuts.clear()
        left = state.slots[1:]
        if stop is Stop.UNDERFLOW and not state.marks and program.data.pread(reading.pos, 1)[:1] in _TAKER_BYTES:
            if paired == (program.data.pread(reading.pos, 1) in _PAIRS):
                found += ends_of(left, reading.pos)
            del state.slots[1:]
            reading.pos += 1
            continue
        if state.marks and state.marks[0] == 1:
            left = left[1:]  # a mark whose opcode comes later
        return found + ends_of(left, min(end, reading.pos))


_TAKER_BYTES: Final = frozenset(bytes([opcode]) for opcode in _TAKERS)
