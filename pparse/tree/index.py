"""What a container knows of its children without having a node per child.

A `ChildIndex` is one of two things. Where the children follow each other in the file, it is a row of offsets: one per
child up to 100,000 children, then one *checkpoint* per 64 (an eighth of a byte each); the entries between two
checkpoints are read again from the file when asked for. Where they do not, it is a plain list of entries.

Children are found by key with a `pparse.tree.key_table.KeyTable`, which the index keeps.
"""

from __future__ import annotations

import weakref
from array import array
from collections import deque

from pparse.errors import LimitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, Protocol

    from pparse.budget import Charge, MemoryBudget
    from pparse.tree.entry import Entry
    from pparse.tree.key_table import KeyTable

    class Indexed(Protocol):
        """What has an index: a node."""

        @property
        def index(self) -> ChildIndex | None:
            """The index, while there is one."""

        def evict(self) -> None:
            """Drop it."""


DENSE_LIMIT: Final = 100_000
STRIDE: Final = 64
# Indexes that keep the group of entries that was asked for last.
GROUPS: Final = 64
# Small indexes are charged in steps of so many bytes; one takes so many besides its offsets.
_STEP: Final = 1 << 20
_INDEX: Final = 400
# Below this an index is not worth the bookkeeping of a charge.
_CHARGE_FROM: Final = 32 << 10


class IndexNote:
    """Base of what parsers keep with an index, if that holds much memory."""

    __slots__ = ()

    @property
    def memory(self) -> int:
        """Bytes held, about."""
        return 0


class ChildIndex:
    """Offsets, checkpoints or entries of a node's children; grows while the node is parsed.

    ``count`` children are indexed so far, all of them once ``complete``. ``context`` is the parse in progress and dies
    with it. ``group`` is the last group of entries that was asked for, while it is among the session's latest.
    ``tail`` are the entries of the last children, where the input ended: no state would make them again.
    """

    __slots__ = (
        "__weakref__",
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
        "repeated",
        "stride",
        "table",
        "tail",
    )

    def __init__(self, budget: MemoryBudget, evict: Callable[[], None]) -> None:
        self.offsets = array("q")
        self.entries: list[Entry] | None = None
        self.stride = 1
        self.count = 0
        self.complete = False
        self.end = 0  # where the children end, for formats in which that is not implied by the last child
        self.context: Any = None  # a `pparse.tree.context.NodeContext`
        self.group: tuple[int, list[Entry]] | None = None
        self.tail: list[Entry] | None = None
        self.table: KeyTable | None = None
        self.repeated: frozenset[int] | None = None  # hashes of keys that occur twice, if known
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

    def add_last(self, entry: Entry) -> None:
        """Append a child that was emitted where the input ended."""
        if self.tail is None:
            self.tail = []
        self.tail.append(entry)
        self.count += 1

    def _thin_out(self) -> None:
        self.offsets = self.offsets[::STRIDE]
        self.stride = STRIDE

    @property
    def memory(self) -> int:
        """Bytes that the index holds, about."""
        size = self.offsets.itemsize * len(self.offsets)
        size += 200 * (len(self.entries or ()) + len(self.tail or ()))
        if self.table is not None:
            size += self.table.memory
        size += 100 * len(self.repeated or ())
        return size + (self.note.memory if isinstance(self.note, IndexNote) else 0)

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

    @property
    def is_charged(self) -> bool:
        """Whether the index has a charge of its own."""
        return self._charge is not None

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

    def keep_repeated(self, hashes: frozenset[int]) -> None:
        """Keep the hashes of the keys that occur twice as long as the index lives."""
        self.repeated = hashes
        self.account()

    def set_table(self, table: KeyTable) -> None:
        """Keep ``table`` as long as the index lives."""
        self.table = table
        self.account()


class IndexLedger:
    """Accounts for what all indexes of a session hold beside charges of their own.

    Of groups of entries only the latest `GROUPS` are kept. Small indexes are charged together, in steps; when room is
    needed, all of them go at once, and are made again when they are asked for.
    """

    __slots__ = ("__weakref__", "_budget", "_charge", "_groups", "_next", "_nodes", "_step", "held")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._groups: deque[tuple[weakref.ref[ChildIndex], int]] = deque()  # which index, and the id of its group
        self._nodes: list[weakref.ref[Indexed]] = []  # whose index is small; one reference serves all who have one
        self.held = 0  # bytes, about, at most
        self._step = min(_STEP, budget.limit // 16)
        self._next = self._step
        self._charge: Charge | None = None

    def keep_group(self, index: ChildIndex, group: tuple[int, list[Entry]]) -> None:
        """Note that ``index`` was given ``group`` just now; the one that got its own longest ago loses that."""
        self._groups.append((weakref.ref(index), id(group)))  # not the group: it goes with its index
        if len(self._groups) > GROUPS:
            ref, old = self._groups.popleft()
            owner = ref()
            if owner is not None and id(owner.group) == old:
                owner.group = None

    def add(self, node: Indexed, index: ChildIndex) -> None:
        """Note that ``node`` has got a whole index now."""
        if index.is_charged:
            return
        self._nodes.append(weakref.ref(node))
        self.held += _INDEX + index.memory
        if self.held >= self._next:
            self._count()

    def _count(self) -> None:
        """Leave out the nodes that are gone, and charge what the others hold."""
        nodes, held = [], 0
        for ref in self._nodes:
            node = ref()
            index = None if node is None else node.index
            if index is not None and not index.is_charged:
                nodes.append(ref)
                held += _INDEX + index.memory
        self._nodes, self.held = nodes, held
        self._next = held + max(self._step, held // 2)
        if self._charge is None:
            owner = weakref.ref(self)

            def evict() -> None:
                ledger = owner()
                if ledger is not None:
                    ledger._evict()

            self._charge = self._budget.charge(0, "small indexes", evict)
        try:
            self._charge.resize(self._next)
        except LimitError:
            self._evict()

    def _evict(self) -> None:
        # Called from any thread. What is kept is replaced, not changed: another one may be at work on it.
        nodes, self._nodes, self.held, self._next, self._charge = self._nodes, [], 0, self._step, None
        for ref in nodes:
            node = ref()
            if node is not None:
                node.evict()
