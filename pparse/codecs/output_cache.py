"""What a reader of a compressed stream keeps in memory: decoders at work, points to begin again, the latest output.

All of it is charged to a budget as evictable. The budget may call `drop` from any thread and holds its own lock then,
so nothing here waits for a lock: what is dropped is replaced, never changed, and who uses it holds a reference.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from functools import partial
from operator import itemgetter

from pparse.codecs.base import CHECKPOINT
from pparse.errors import GapError, LimitError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.codecs.base import Decompressor
    from pparse.data.base import Data

# Blocks that are joined when they are kept.
_SMALL: Final = 4 * KIB
# A point without a saved state: the object.
_POINT: Final = 512


class Checkpoint:
    """Where decoding can begin: the start of a member, or (``decoder``) inside one.

    ``out`` counts output; ``start`` and ``start_out`` say where the member begins, in the source and in the output.
    """

    __slots__ = ("__weakref__", "_charge", "alive", "decoder", "out", "start", "start_out")

    def __init__(self, out: int, start: int, start_out: int, decoder: Decompressor | None = None) -> None:
        self.out = out
        self.start = start
        self.start_out = start_out
        self.decoder = decoder
        self.alive = True
        self._charge: Charge | None = None

    def hold(self, budget: MemoryBudget) -> None:
        """Charge what it holds, which may be had back. Raises `LimitError`."""
        amount = _POINT if self.decoder is None else _POINT + CHECKPOINT
        self._charge = budget.charge(amount, "a checkpoint", partial(drop, weakref.ref(self)))

    def drop(self) -> None:
        """Give the memory back. Called by the budget, perhaps from another thread."""
        self.alive = False
        self.decoder = None


class OutputCache:
    """Output kept in memory: blocks one after the other that end at ``end``; evictable, and then empty.

    At most ``limit`` bytes are kept, the latest.
    """

    __slots__ = ("__weakref__", "_blocks", "_budget", "_charge", "_held", "_limit", "end")

    def __init__(self, budget: MemoryBudget, limit: int, start: int) -> None:
        self._budget = budget
        self._limit = limit
        self._charge: Charge | None = None
        self._blocks: list[tuple[int, bytes]] = []
        self._held = 0
        self.end = start

    def add(self, block: bytes) -> None:
        """Keep ``block``, and of what was kept before what has room beside it."""
        blocks = self._blocks
        if self._charge is None or not self._charge.amount:
            blocks, self._held = [], 0
        first = 0
        while self._held + len(block) > self._limit and first < len(blocks):
            self._held -= len(blocks[first][1])
            first += 1
        start, kept = self.end, block
        if blocks and len(blocks[-1][1]) + len(block) <= _SMALL:
            start, kept = blocks[-1][0], blocks[-1][1] + block
        # A new list: the one before may be in the hands of a reader, or be dropped by the budget meanwhile.
        self._blocks = [*(blocks[first:] if kept is block else blocks[first:-1]), (start, kept)]
        self._held += len(block)
        self.end += len(block)
        # Blocks come and go: the allocator holds about a fifth of them in pieces that nobody has.
        cost = self._held + self._held // 4
        try:
            if self._charge is None or not self._charge.amount:
                self._charge = self._budget.charge(cost, "decoded bytes", partial(drop, weakref.ref(self)))
            elif cost > self._charge.amount:
                self._charge.resize(cost)
        except LimitError:  # only what was asked for just now
            self._blocks, self._held = [(self.end - len(block), block)], len(block)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; none if they are not here."""
        blocks = self._blocks
        if not blocks or not blocks[0][0] <= offset < self.end:
            return b""
        at, block = blocks[bisect_right(blocks, offset, key=itemgetter(0)) - 1]
        return block[offset - at : offset - at + length]

    def covers(self, offset: int) -> bool:
        """Say whether all from ``offset`` to the end is here."""
        blocks = self._blocks
        return bool(blocks) and blocks[0][0] <= offset

    def drop(self) -> None:
        """Give the memory back. Called by the budget, perhaps from another thread."""
        self._blocks = []
        charge = self._charge
        if charge is not None:
            charge.release()


class DecoderRun:
    """A decoder at work: ``point`` where its member begins, ``at`` what is read next, ``out`` what was produced."""

    __slots__ = ("__weakref__", "at", "decoder", "gap", "out", "start", "start_out")

    def __init__(self, point: Checkpoint, decoder: Decompressor) -> None:
        self.start = point.start
        self.start_out = point.start_out
        # The decoder knows where it stands: the point's own may have been dropped just before.
        self.out = point.start_out + decoder.total_out
        self.at = point.start + decoder.consumed
        self.decoder: Decompressor | None = decoder
        self.gap: GapError | None = None

    def drop(self) -> None:
        """Give the memory back. Called by the budget, perhaps from another thread."""
        self.decoder = None


def drop(holder: weakref.ref[Checkpoint] | weakref.ref[OutputCache] | weakref.ref[DecoderRun]) -> None:
    """Drop what ``holder`` refers to, if that still is."""
    found = holder()
    if found is not None:
        found.drop()


def reread(source: Data, start: int, end: int, offset: int, length: int) -> bytes:
    """Return bytes of a member once more, for its decoder."""
    try:
        return source.pread(start + offset, max(0, min(length, end - start - offset)))
    except GapError:
        return b""
