"""The one place that accounts for memory, and refuses it.

Counted is what pparse itself keeps or buffers: scan blocks (times the kernel's factor), indexes, retained nodes,
checkpoints, decoder windows. Not counted is what the caller asked for: an array, a loaded scalar handed out.

Code that keeps memory holds a `Charge`; once the charge is released or collected, its bytes are free again. A charge
with ``evict`` may be asked to give its memory back when others need room, the least recently used one first.
"""

from __future__ import annotations

import weakref

from pparse.errors import LimitError
from pparse.limits import MIB, format_size, parse_size
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

DEFAULT_BUDGET = 64 * MIB


class Charge:
    """Bytes held by some part of a document; freed by `release`, or when the charge is collected."""

    __slots__ = ("__weakref__", "_budget", "_evict", "amount", "what")

    def __init__(self, budget: MemoryBudget, what: str, evict: Callable[[], None] | None) -> None:
        self.amount = 0
        """Bytes held now."""
        self._budget = budget
        self._evict = evict
        self.what = what
        """What holds them, in words for the error message."""

    def resize(self, amount: int) -> None:
        """Hold ``amount`` bytes from now on. Raises `LimitError`, and keeps the old amount, if there is no room."""
        budget = self._budget
        with budget._lock:
            delta = amount - self.amount  # under the lock: it may be evicted at any time
            if delta > 0 and budget.used + delta > budget.limit:
                budget._make_room(delta, self)
            budget.used += delta
            self.amount += delta
            budget.peak = max(budget.peak, budget.used)
            self.touch()

    def touch(self) -> None:
        """Record a use just now, so that others are evicted first."""
        if self._evict is not None:
            with self._budget._lock:
                self._budget._evictable.pop(id(self), None)
                self._budget._evictable[id(self)] = weakref.ref(self)

    def release(self) -> None:
        """Give everything back; releasing twice is harmless."""
        with self._budget._lock:
            self._budget.used -= self.amount
            self.amount = 0
            self._budget._evictable.pop(id(self), None)

    def __enter__(self) -> Charge:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __del__(self) -> None:
        if self.amount or getattr(self, "_evict", None) is not None:  # an interrupt may come while it is made
            self.release()


def evictor(owner: T, evict: Callable[[T], object]) -> Callable[[], None]:
    """Return what a charge may call to have the memory of ``owner`` back; it does not keep that alive."""
    ref = weakref.ref(owner)

    def call() -> None:
        found = ref()
        if found is not None:
            evict(found)

    return call


class MemoryBudget:
    """A number of bytes shared by everything that belongs to one document. Thread-safe."""

    def __init__(self, limit: int | str = DEFAULT_BUDGET) -> None:
        self.limit = parse_size(limit)
        """The most bytes that may be held."""
        if self.limit < MIB:
            raise ValueError(f"a budget must be 1 MiB at least, not {limit}")
        self.used = 0
        """Bytes held now."""
        self.peak = 0
        """The most bytes ever held."""
        self._lock = RLock()
        # In order of last use.
        self._evictable: dict[int, weakref.ref[Charge]] = {}

    def charge(self, amount: int, what: str, evict: Callable[[], None] | None = None) -> Charge:
        """Return a `Charge` of ``amount`` bytes for ``what`` (words for the error message).

        When room is needed, ``evict``, if given, is called; it must drop the memory and release the charge. Raises
        `LimitError` naming ``--budget`` if there is still no room.
        """
        charge = Charge(self, what, evict)
        charge.resize(amount)
        return charge

    def fits(self, amount: int) -> bool:
        """Return whether ``amount`` more bytes could be held after evicting everything that can go."""
        with self._lock:
            # A copy: meanwhile a charge may be collected and leave the table.
            held = sum(charge.amount for ref in list(self._evictable.values()) if (charge := ref()) is not None)
            return self.used - held + amount <= self.limit

    def _make_room(self, delta: int, for_whom: Charge) -> None:
        for key in list(self._evictable):
            if self.used + delta <= self.limit:
                return
            ref = self._evictable.get(key)
            victim = ref() if ref is not None else None
            if victim is None:
                self._evictable.pop(key, None)
            elif victim is not for_whom and victim.amount and victim._evict is not None:
                self._evictable.pop(key, None)
                victim._evict()
                victim.release()
        if self.used + delta > self.limit:
            raise LimitError(
                f"{for_whom.what} needs {format_size(for_whom.amount + delta)}, more than is left of the memory "
                f"budget of {format_size(self.limit)}",
                option=f"--budget {-(-(self.used + delta) // MIB)}MiB",
                wanted=for_whom.amount + delta,
                got=self.limit - self.used,
            )
