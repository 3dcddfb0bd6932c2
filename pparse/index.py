"""What a container knows of its children without having a node per child.

A `ChildIndex` is one of two things. Where the children follow each other in the file, it is a row of offsets: one per
child up to 100,000 children, then one *checkpoint* per 64 (an eighth of a byte each); the entries between two
checkpoints are read again from the file when asked for. Where they do not, it is a plain list of entries.

A `KeyTable` finds children by key: sorted 64-bit hashes beside ordinals, 12 bytes a child, made on the second lookup
in a map of more than 64 children.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.node import Entry
    from pparse.parser import NodeContext

DENSE_LIMIT: Final = 100_000
STRIDE: Final = 64
# Below this an index is not worth the bookkeeping of a charge.
_CHARGE_FROM: Final = 32 << 10


class ChildIndex:
    """Offsets, checkpoints or entries of a node's children; grows while the node is parsed.

    ``count`` children are indexed so far, all of them once ``complete``. ``context`` is the parse in progress and dies
    with it. ``group`` is the last group of entries that was asked for.
    """

    __slots__ = (
        "_budget",
        "_charge",
        "_evict",
        "complete",
        "context",
        "count",
        "end",
        "entries",
        "group",
        "lookups",
        "note",
        "offsets",
        "stride",
        "table",
    )

    def __init__(self, budget: MemoryBudget, evict: Callable[[], None]) -> None:
        self.offsets = array("q")
        self.entries: list[Entry] | None = None
        self.stride = 1
        self.count = 0
        self.complete = False
        self.end = 0  # where the children end, for formats in which that is not implied by the last child
        self.context: NodeContext | None = None
        self.group: tuple[int, list[Entry]] | None = None
        self.table: KeyTable | None = None
        self.lookups = 0
        self.note: Any = None  # for the parser; what has `memory` is charged with the index
        self._budget = budget
        self._evict = evict
        self._charge: Charge | None = None

    def add(self, offset: int) -> None:
        """Append a child that begins at ``offset``."""
        if not self.count % self.stride:
            self.offsets.append(offset)
        self.count += 1
        if self.count > DENSE_LIMIT and self.stride == 1:
            self._thin_out()
        if not len(self.offsets) & 0xFFF:
            self.account()

    def add_many(self, offsets: array[int]) -> None:
        """Append children that begin at ``offsets``."""
        if self.stride == 1:
            self.offsets.extend(offsets)
        else:
            self.offsets.extend(offsets[-self.count % self.stride :: self.stride])
        self.count += len(offsets)
        if self.count > DENSE_LIMIT and self.stride == 1:
            self._thin_out()
        self.account()

    def add_entry(self, entry: Entry) -> None:
        """Append a child whose entry is kept as it is. Not to be mixed with `add`."""
        if self.entries is None:
            self.entries = []
        self.entries.append(entry)
        self.count += 1
        if not self.count & 0xFF:
            self.account()

    def _thin_out(self) -> None:
        self.offsets = self.offsets[::STRIDE]
        self.stride = STRIDE

    @property
    def memory(self) -> int:
        """Bytes that the index holds, about."""
        size = self.offsets.itemsize * len(self.offsets)
        if self.entries is not None:
            size += 200 * len(self.entries)
        if self.table is not None:
            size += self.table.memory
        return size + (self.note.memory if hasattr(self.note, "memory") else 0)

    def keep(self, note: Any, count: int) -> None:
        """Take over what the parser knows of its ``count`` children (`Parser.entries` makes them of it)."""
        self.note = note
        self.count = count
        self.account()

    def account(self) -> None:
        """Charge what the index holds to the budget. Raises `LimitError`."""
        size = self.memory
        if self._charge is not None:
            self._charge.resize(size)
        elif size >= _CHARGE_FROM:
            self._charge = self._budget.charge(size, "the index of a node's children", self._evict)

    def touch(self) -> None:
        """Say that the index was just used: it is evicted later than others."""
        if self._charge is not None:
            self._charge.touch()

    def checkpoint(self, ordinal: int) -> tuple[int, int]:
        """Return ``(ordinal, offset)`` of the last known child at or before ``ordinal``."""
        slot = ordinal // self.stride
        return slot * self.stride, self.offsets[slot]

    def finish(self) -> None:
        """All children are known: let the parse context go."""
        self.complete = True
        self.context = None
        if self._charge is not None:
            self.account()

    def set_table(self, table: KeyTable) -> None:
        """Keep ``table`` as long as the index lives."""
        self.table = table
        self.account()


class KeyTable:
    """Ordinals of children by the hash of their key: 12 bytes a child."""

    __slots__ = ("_hashes", "_ordinals")

    def __init__(self, hashes: Iterable[int]) -> None:
        self._hashes, self._ordinals = ranked(array("q", hashes))

    def candidates(self, key: object) -> Iterator[int]:
        """Yield, in file order, the ordinals whose key has the hash of ``key``; nearly always its own."""
        wanted = hash(key)
        slot = bisect_left(self._hashes, wanted)
        while slot < len(self._hashes) and self._hashes[slot] == wanted:
            yield self._ordinals[slot]
            slot += 1

    def _run(self, key: object) -> tuple[int, int]:
        wanted = hash(key)
        return bisect_left(self._hashes, wanted), bisect_right(self._hashes, wanted)

    def nth(self, key: object, occurrence: int) -> int | None:
        """Return the ordinal of the n-th key with the hash of ``key``; None if there are fewer."""
        low, high = self._run(key)
        return self._ordinals[low + occurrence - 1] if low + occurrence <= high else None

    def before(self, key: object, ordinal: int) -> int:
        """Return how many keys with the hash of ``key`` come before ``ordinal``."""
        low, high = self._run(key)
        return bisect_left(self._ordinals, ordinal, low, high) - low

    def repeated(self) -> Iterator[list[int]]:
        """Yield groups of ordinals that share a hash, so may share a key."""
        hashes = self._hashes
        slot = 0
        while slot + 1 < len(hashes):
            last = slot
            while last + 1 < len(hashes) and hashes[last + 1] == hashes[slot]:
                last += 1
            if last > slot:
                yield list(self._ordinals[slot : last + 1])
            slot = last + 1

    @property
    def memory(self) -> int:
        """Bytes held."""
        return 12 * len(self._hashes)


def has_repeats(hashes: Iterable[int]) -> bool:
    """Say whether a number occurs twice, in 8 bytes a number."""
    numbers = array("q", hashes)
    if len(numbers) <= 50_000:
        return len(set(numbers)) != len(numbers)
    import numpy as np

    ranked = np.frombuffer(numbers, np.int64)
    ranked.sort()
    return bool((ranked[1:] == ranked[:-1]).any())


def ranked(numbers: array[int]) -> tuple[array[int], array[int]]:
    """Return ``numbers`` (64 bits) in ascending order, and where each of them was; equal ones stay in order."""
    ordinals = array("I")
    if len(numbers) > 50_000:
        import numpy as np

        order = np.argsort(np.frombuffer(numbers, np.int64), kind="stable")
        ascending = array("q")
        ascending.frombytes(np.frombuffer(numbers, np.int64)[order].tobytes())
        ordinals.frombytes(order.astype(np.uint32).tobytes())
        return ascending, ordinals
    ordinals.extend(sorted(range(len(numbers)), key=numbers.__getitem__))
    return array("q", (numbers[ordinal] for ordinal in ordinals)), ordinals
