"""`KeptBlock`: the block of bytes that the engine read last, kept for what is read next."""

from __future__ import annotations

import weakref

from pparse.errors import LimitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pparse.budget import Charge, MemoryBudget
    from pparse.data.base import Data


class KeptBlock:
    """The block that was read last in a session: what is read next often begins in it. Charged, and evictable."""

    __slots__ = ("__weakref__", "_budget", "_charge", "_held")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._charge: Charge | None = None
        self._held: tuple[weakref.ref[Data], int, int, bytes] | None = None

    def keep(self, data: Data, base: int, block: bytes) -> None:
        """Keep ``block``, which begins at offset ``base`` of ``data``, instead of the one before."""
        held = self._held
        if held is not None and held[3] is block and held[0]() is data:
            return
        self._held = None
        try:
            if self._charge is None:
                self._charge = self._budget.charge(len(block), "the block read last", _evictor(self))
            else:
                self._charge.resize(len(block))
        except LimitError:
            return
        self._held = (weakref.ref(data), data.revision, base, block)

    def take(self, data: Data, pos: int) -> tuple[int, bytes] | None:
        """Return the block and where it begins, if it is of ``data`` and holds offset ``pos``."""
        held = self._held  # read once: the budget may evict it at any time
        if held is None or held[0]() is not data or held[1] != data.revision:
            return None
        _, _, base, block = held
        return (base, block) if base <= pos < base + len(block) else None

    def drop(self) -> None:
        """Forget the block."""
        self._held = None
        charge, self._charge = self._charge, None
        if charge is not None:
            charge.release()

    def evicted(self) -> None:
        """Forget the block, whose charge is gone."""
        self._held = self._charge = None


def _evictor(kept: KeptBlock) -> Callable[[], None]:
    owner = weakref.ref(kept)

    def evict() -> None:
        found = owner()
        if found is not None:
            found.evicted()

    return evict
