"""The one place that says no to memory.

Counted is what pparse itself keeps or buffers: scan blocks (times the kernel's factor), indexes, retained nodes,
checkpoints, decoder windows. Not counted is what the caller asked for: an array, a loaded scalar handed out.

Whoever keeps memory holds a `Charge`; when the charge is garbage, or released, its bytes are free again. A charge made
with ``evict`` may be asked to give its memory back when somebody else needs room; least recently used first.
"""

from __future__ import annotations

import threading
import weakref

from pparse.errors import LimitError
from pparse.limits import MIB, format_size, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_BUDGET = 64 * MIB


class Charge:
    """Bytes that somebody holds; give them back with `release`, or by dropping the charge."""

    __slots__ = ("__weakref__", "_budget", "_evict", "amount", "what")

    def __init__(self, budget: MemoryBudget, what: str, evict: Callable[[], None] | None) -> None:
        self._budget = budget
        self._evict = evict
        self.amount = 0
        self.what = what

    def resize(self, amount: int) -> None:
        """Hold ``amount`` bytes from now on. Raises `LimitError` (and holds what it held) if there is no room."""
        self._budget._resize(self, amount)

    def touch(self) -> None:
        """Say that this was just used: it is evicted later than others."""
        self._budget._touch(self)

    def release(self) -> None:
        """Give everything back; harmless when repeated."""
        self._budget._release(self)

    def __enter__(self) -> Charge:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __del__(self) -> None:
        if self.amount or self._evict is not None:
            self.release()


class MemoryBudget:
    """A number of bytes shared by everything that belongs to one document. Thread-safe.

    ``used`` is what is held now, ``peak`` the most that was ever held.
    """

    def __init__(self, limit: int | str = DEFAULT_BUDGET) -> None:
        self.limit = parse_size(limit)
        if self.limit < MIB:
            raise ValueError(f"a budget must be 1 MiB at least, not {limit}")
        self.used = 0
        self.peak = 0
        self._lock = threading.RLock()
        # Insertion order is the order of last use.
        self._evictable: dict[int, weakref.ref[Charge]] = {}

    def charge(self, amount: int, what: str, evict: Callable[[], None] | None = None) -> Charge:
        """Return a `Charge` of ``amount`` bytes for ``what`` (words for the error message).

        ``evict``, if given, is called when room is needed; it must drop the memory and release the charge.
        Raises `LimitError` naming ``--budget`` if there is no room even so.
        """
        charge = Charge(self, what, evict)
        self._resize(charge, amount)
        return charge

    def fits(self, amount: int) -> bool:
        """Say whether ``amount`` more bytes could be held, after eviction of all that can go."""
        with self._lock:
            # A copy: a charge may become garbage, and leave the table, meanwhile.
            held = sum(charge.amount for ref in list(self._evictable.values()) if (charge := ref()) is not None)
            return self.used - held + amount <= self.limit

    def _resize(self, charge: Charge, amount: int) -> None:
        with self._lock:
            delta = amount - charge.amount  # under the lock: it may be evicted at any time
            if delta > 0 and self.used + delta > self.limit:
                self._make_room(delta, charge)
            self.used += delta
            charge.amount += delta
            self.peak = max(self.peak, self.used)
            if charge._evict is not None:
                self._touch(charge)

    def _touch(self, charge: Charge) -> None:
        with self._lock:
            if charge._evict is not None:
                self._evictable.pop(id(charge), None)
                self._evictable[id(charge)] = weakref.ref(charge)

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

    def _release(self, charge: Charge) -> None:
        with self._lock:
            self.used -= charge.amount
            charge.amount = 0
            self._evictable.pop(id(charge), None)
