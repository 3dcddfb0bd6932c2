"""Feeds the bytes of a pickle to the kernel `pparse.kernels.pickle_scan`, block by block, over what need not be read."""

from __future__ import annotations

import enum

from pparse.errors import GapError, LimitError
from pparse.kernels.pickle_scan import LONG_LINE, MORE, REPLACED, SLACK, STOPPED, UNKNOWN, Scan, scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.budget import Charge
    from pparse.data.base import Data
    from pparse.tree.host import Session

FIRST_BLOCK: Final = 16 << 10
LAST_BLOCK: Final = 256 << 10
# Values this large are jumped over when what is around them is read again.
LARGE: Final = 64 << 10
# Bytes that a place on the stack takes.
_SLOT: Final = 40


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
    REPLACED = "replaced"
    """The lowest value would be replaced."""


class Jumps:
    """Large values, by offset: where each ends, as it is known from an earlier reading."""

    __slots__ = ("_at", "_ends")

    def __init__(self, big: dict[int, list[tuple[int, int]]], start: int, end: int) -> None:
        """Those inside of the value ``[start, end)``."""
        self._ends: dict[int, tuple[int, int]] = {}
        for at, known in big.items():
            if start <= at < end:
                fitting = [(slot, last) for slot, last in known if last <= end]
                if at == start and fitting:
                    fitting.pop()  # that is the value itself
                if fitting:
                    self._ends[at] = fitting[-1]
        self._at = sorted(self._ends, reverse=True)

    def next_from(self, pos: int) -> int | None:
        """Return where the next large value begins, from ``pos`` on."""
        while self._at and self._at[-1] < pos:
            self._at.pop()
        return self._at[-1] if self._at else None

    def over(self, at: int) -> tuple[int, int]:
        """Return the slot and the end of the large value that begins at ``at``."""
        return self._ends[at]


class Reading:
    """One way through opcodes: from ``pos`` on, to an end or to where they stop."""

    def __init__(self, session: Session, data: Data, pos: int, state: Scan) -> None:
        self.session = session
        self.data = data
        self.pos = pos
        """Where it stands."""
        self.state = state
        """The stack there."""
        self.big_from = pos
        """Values are noted as large if they begin from here on."""
        self.notes_big = False
        """Whether large values are noted."""
        self._size = FIRST_BLOCK

    def run(
        self, end: int | None, known_end: int, jumps: Jumps | None = None, after: Callable[[Reading], object] | None = None
    ) -> Stop:
        """Read to ``end`` (None: to STOP); ``known_end`` is where the data end. ``after`` is called after each block."""
        with self.session.budget.charge(3 * FIRST_BLOCK, "a block of a pickle") as charge:
            while end is None or self.pos < end:
                jump = None if jumps is None else jumps.next_from(self.pos)
                if jump == self.pos and jumps is not None:
                    slot, self.pos = jumps.over(jump)
                    self.state.slots.append(slot)
                    continue
                limit = known_end if end is None else min(end, known_end)
                stop = self._block(limit if jump is None else min(jump, limit), known_end, charge)
                if after is not None:
                    after(self)
                if stop is not None:
                    return stop
        return Stop.END

    def _block(self, limit: int, known_end: int, charge: Charge) -> Stop | None:
        """Read one block, and its opcodes; None: more may follow."""
        self.session.check_cancelled()
        if self.pos >= limit:
            return Stop.CUT
        wanted = min(self._size + SLACK, known_end - self.pos)
        charge.resize(2 * wanted + _SLOT * len(self.state.slots))
        try:
            block = self.data.pread(self.pos, wanted)
        except GapError:
            return Stop.GAP if not self.data.is_cut_at(self.pos) else Stop.CUT
        self._size = min(self._size * 4, LAST_BLOCK)
        have = len(block)
        stop = min(limit - self.pos, have)
        if self.pos + have >= known_end or have < wanted:
            block += bytes(SLACK)  # no opcode there: what reaches into it is cut
        else:
            stop = min(stop, have - SLACK)
        base = self.pos
        if self.notes_big:
            self.state.floor = (base - LARGE) << 8
        i, why = scan(block, 0, stop, base, self.state)
        self.pos = base + i
        if why == MORE:
            return self._cut_short(known_end)
        if why == LONG_LINE:
            return self._long_line(base + i, known_end, charge)
        if why == STOPPED:
            return Stop.STOP if self.pos <= known_end else self._cut_short(known_end)
        if why == UNKNOWN and self.pos >= base + have:
            return Stop.CUT
        return Stop.REPLACED if why == REPLACED else Stop.UNKNOWN if why == UNKNOWN else Stop.UNDERFLOW

    def _cut_short(self, known_end: int) -> Stop | None:
        """Tell whether the last opcode reaches beyond the data."""
        if self.pos > known_end:
            gap = self.data.next_gap(known_end)
            return Stop.GAP if gap is not None and not self.data.is_cut_at(known_end) else Stop.CUT
        return None

    def _long_line(self, at: int, known_end: int, charge: Charge) -> Stop | None:
        """Read an opcode whose line does not end in its block."""
        most = self.session.limits.scalar_bytes
        size = 4 * FIRST_BLOCK
        while True:
            wanted = min(size, known_end - at)
            charge.resize(3 * wanted)
            block = self.data.pread(at, wanted)
            i, why = scan(block + bytes(SLACK), 0, 1, at, self.state)
            if why != LONG_LINE:
                self.pos = at + i
                return None if why == MORE else Stop.UNKNOWN if why == UNKNOWN else Stop.UNDERFLOW
            if at + len(block) >= known_end or len(block) < wanted:
                self.state.slots.append(at << 8 | block[0])
                self.pos = known_end + 1
                return Stop.CUT
            size *= 4
            if size > most:
                raise LimitError("a line of a pickle is too long", option="scalar_bytes", wanted=size, got=most, offset=at)
