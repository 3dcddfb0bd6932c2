"""What a container knows about its children, without a node per child.

A `ChildIndex` takes one of two forms. If the children follow each other in the file, it holds offsets: one per child
up to 100,000 children, then one *checkpoint* per 64 children (an eighth of a byte per child); entries between two
checkpoints are read again from the file when needed. Otherwise it is a list of entries.

A `pparse.tree.key_table.KeyTable`, kept by the index, finds children by key.
"""

from __future__ import annotations

import sys
import weakref
from array import array
from collections import deque

from pparse.budget import evictor
from pparse.errors import LimitError
from pparse.limits import parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.data.base import Data
    from pparse.findings import Finding, Status
    from pparse.tree.entry import Entry
    from pparse.tree.key_table import KeyTable
    from pparse.tree.node import Node

    Facts = tuple[int | None, Status | None, Finding | None]  # end, status and finding of a node


DENSE_LIMIT: Final = 100_000
STRIDE: Final = 64
# How many indexes keep the group of entries that was read last.
GROUPS: Final = 64
# Small indexes are charged in steps of so many bytes; each takes so many besides its offsets.
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
        raise NotImplementedError


class ChildIndex:
    """Offsets, checkpoints or entries of a node's children; grows while the node is parsed."""

    entries: list[Entry] | None = None
    """All entries, if these are kept instead of offsets."""
    stride = 1
    """Children per offset: 1, or 64."""
    count = 0
    """Children indexed so far."""
    complete = False
    """Whether all children are indexed."""
    end = 0
    """Where the children end, for formats in which the last child does not tell."""
    context: Any = None
    """The parse in progress (a `pparse.tree.context.NodeContext`); None once it ended."""
    group: tuple[int, list[Entry]] | None = None
    """Number of the first entry, and the entries, of the group read last, while the session keeps it."""
    tail: list[Entry] | None = None
    """Entries of the last children where the input ended, which no state would produce again."""
    table: KeyTable | None = None
    """Finds children by key; made when needed."""
    repeated: frozenset[int] | None = None
    """Hashes of the keys that occur more than once; None while unknown."""
    lookups = 0
    """How often a child was looked up by key."""
    learns = False
    """Whether children are read to find their ends, and what is learned is kept here."""
    _kept = 0  # bytes of their indexes
    note: Any = None
    """Anything the parser keeps with the index; charged with it if it has a ``memory``."""
    _charge: Charge | None = None

    def __init__(self, budget: MemoryBudget, evict: Callable[[], None]) -> None:
        self.offsets = array("q")
        """Where children begin: each of them, or every ``stride``-th."""
        self.children: dict[int, tuple[ChildIndex, Facts | None]] = {}
        """By number, the index of a child that is being read, or was and is large; and facts once they are known."""
        self._budget = budget
        self._evict = evict
        # What is asked for with each child is found faster in the object than in its class.
        self.stride, self.count, self.complete, self.learns = 1, 0, False, False
        self.entries = self.group = self.tail = self.note = self._charge = None

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
        """Append a child by its entry, which is kept. Do not mix with `add`."""
        if self.entries is None:
            self.entries = []
        self.entries.append(entry)
        self.count += 1
        if not self.count & 0xFF:
            self.account()

    def add_last(self, entry: Entry) -> None:
        """Append the entry of a child that was emitted where the input ended."""
        if self.tail is None:
            self.tail = []
        self.tail.append(entry)
        self.count += 1

    def restart(self) -> None:
        """Forget all children: what was indexed turned out to be inside of a child."""
        self.offsets = array("q")
        self.entries = None
        self.stride, self.count = 1, 0

    def restore(self, checkpoints: array[int]) -> None:
        """Begin with every 64th child of an earlier reading: all before the last of them are indexed."""
        self.offsets, self.stride = checkpoints[:-1], STRIDE
        self.count = STRIDE * len(self.offsets)
        self.account()

    def _thin_out(self) -> None:
        self.offsets, self.stride = self.offsets[::STRIDE], STRIDE

    @property
    def memory(self) -> int:
        """Approximate size of the index in bytes."""
        size = self.offsets.itemsize * len(self.offsets)
        size += 200 * (len(self.entries or ()) + len(self.tail or ()))
        if self.table is not None:
            size += self.table.memory
        size += 100 * len(self.repeated or ()) + self._kept
        return size + (self.note.memory if isinstance(self.note, IndexNote) else 0)

    def keep(self, note: Any, count: int) -> None:
        """Keep ``note``, from which `Parser.entries` makes the ``count`` children."""
        self.note = note
        self.count = count
        self.account()

    def keep_child(self, ordinal: int, index: ChildIndex, facts: Facts) -> None:
        """Keep the complete index of a child, whoever holds the child, if there is room: it need not be made again."""
        if self.children.get(ordinal, (None, None))[1] is not None:
            return
        if index._charge is not None:
            index._charge.release()
            index._charge = None
        self.children[ordinal] = (index, facts)
        self._kept += index.memory + _INDEX
        try:
            self.account()
        except LimitError:
            self.children, self._kept = {}, 0
            self.account()

    def belong_to(self, node: Node) -> None:
        """Be the index of ``node`` from now on."""
        self._evict = evictor(node, type(node).evict)

    def account(self) -> None:
        """Charge what the index holds to the budget. Raises `LimitError`."""
        size = self.memory
        if self._charge is not None:
            self._charge.resize(size)
        elif size >= _CHARGE_FROM:
            self._charge = self._budget.charge(size, "the index of a node's children", self._evict)

    def touch(self) -> None:
        """Record a use just now, so that other indexes are evicted first."""
        if self._charge is not None:
            self._charge.touch()

    def checkpoint(self, ordinal: int) -> tuple[int, int]:
        """Return ``(ordinal, offset)`` of the last recorded child at or before ``ordinal``."""
        slot = ordinal // self.stride
        return slot * self.stride, self.offsets[slot]

    def finish(self) -> None:
        """Mark the index as complete, and drop the parse context."""
        self.complete = True
        self.context = None
        if self._charge is not None:
            self.account()

    def keep_repeated(self, hashes: frozenset[int]) -> None:
        """Keep the hashes of the keys that occur more than once, as long as the index lives."""
        self.repeated = hashes
        self.account()


class IndexLedger:
    """Charges what all indexes of a session hold besides charges of their own.

    Keeps only the latest `GROUPS` groups of entries. Small indexes are charged together, in steps; when room is
    needed, all of them are evicted at once, and rebuilt when needed.
    """

    __slots__ = ("__weakref__", "_budget", "_charge", "_groups", "_next", "_nodes", "_step", "held")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._groups: deque[tuple[weakref.ref[ChildIndex], int]] = deque()  # which index, and the id of its group
        self._nodes: list[weakref.ref[Node]] = []  # those with a small index; one reference serves all that hold one
        self.held = 0
        """Upper estimate of the bytes held."""
        self._step = min(_STEP, budget.limit // 16)
        self._next = self._step
        self._charge: Charge | None = None

    def keep_group(self, index: ChildIndex, group: tuple[int, list[Entry]]) -> None:
        """Record that ``group`` was just read for ``index``; the index whose group is the oldest loses it."""
        self._groups.append((weakref.ref(index), id(group)))  # not the group: it goes with its index
        if len(self._groups) > GROUPS:
            ref, old = self._groups.popleft()
            owner = ref()
            if owner is not None and id(owner.group) == old:
                owner.group = None

    def add(self, node: Node, index: ChildIndex) -> None:
        """Record that the index of ``node`` is complete."""
        if index._charge is not None:
            return
        self._nodes.append(weakref.ref(node))
        self.held += _INDEX + index.memory
        if self.held >= self._next:
            self._count()

    def _count(self) -> None:
        """Forget collected nodes, and charge what the others hold."""
        nodes, held = [], 0
        for ref in self._nodes:
            node = ref()
            index = None if node is None else node.index
            if index is not None and index._charge is None:
                nodes.append(ref)
                held += _INDEX + index.memory
        self._nodes, self.held = nodes, held
        self._next = held + max(self._step, held // 2)
        if self._charge is None:
            self._charge = self._budget.charge(0, "small indexes", evictor(self, IndexLedger._evict))
        try:
            self._charge.resize(self._next)
        except LimitError:
            self._evict()

    def _evict(self) -> None:
        # Called from any thread. The list is replaced, not changed: another thread may be using it.
        nodes, self._nodes, self.held, self._next, self._charge = self._nodes, [], 0, self._step, None
        for ref in nodes:
            node = ref()
            if node is not None:
                node.evict()


# -- `KeptBlock`: the block of bytes that the engine read last, kept for what is read next -----------------------------


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
                self._charge = self._budget.charge(len(block), "the block read last", evictor(self, KeptBlock.evicted))
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


# -- Which nodes stay alive although nobody holds them -----------------------------------------------------------------

# The policy is chosen when a document is opened: 0 keeps nothing (children live as long as somebody holds them), a
# number of bytes drops the least recently used nodes above it, infinity keeps all. ``include`` and ``exclude`` are
# path patterns (``tensors.*``). The policy only drops references; it never unloads a node that somebody else holds.

# A node, its offsets, its key and its place in the parent's table.
_NODE_COST = 400


class _Ages:
    """Nodes in order of last use, each with its estimated cost; ``size`` is the sum."""

    __slots__ = ("nodes", "size")

    def __init__(self) -> None:
        self.nodes: dict[int, tuple[Node, int]] = {}
        self.size = 0

    def add(self, node: Node, cost: int) -> None:
        self.nodes[id(node)] = (node, cost)
        self.size += cost

    def drop(self, number: int) -> None:
        found = self.nodes.pop(number, None)
        if found is not None:
            self.size -= found[1]

    def drop_oldest(self) -> None:
        self.drop(next(iter(self.nodes)))


class Retention:
    """Keeps the most recently used nodes alive, up to ``limit`` bytes."""

    def __init__(
        self,
        budget: MemoryBudget,
        limit: float | str = 0,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> None:
        if isinstance(limit, str):
            limit = float("inf") if limit in ("inf", "all") else parse_size(limit)
        if limit < 0:
            raise ValueError(f"retain cannot be negative: {limit}")
        self.limit = limit
        """The most bytes kept; infinity: no limit."""
        self.include = tuple(include)
        """Path patterns of the nodes to keep; empty: all."""
        self.exclude = tuple(exclude)
        """Path patterns of nodes not to keep."""
        self._budget = budget
        self._kept = _Ages()
        self._gone: deque[int] = deque()  # nodes that the budget evicted since the last use
        self._charge: Charge | None = None

    @property
    def held(self) -> int:
        """Approximate number of bytes kept."""
        return self._kept.size

    def touch(self, node: Node) -> None:
        """Record that ``node`` was just made or loaded."""
        if not self.limit or not self._wanted(node):
            return
        self.forget(node)
        cost = self._cost(node)
        if cost > self.limit:
            return
        kept = self._kept
        kept.add(node, cost)
        while kept.size > self.limit:
            kept.drop_oldest()
        self._account(kept)

    def forget(self, node: Node) -> None:
        """Drop ``node``."""
        while self._gone:
            self._kept.drop(self._gone.popleft())
        self._kept.drop(id(node))

    def note_evicted(self, node: Node) -> None:
        """Drop ``node`` on the next use. The budget calls this from any thread, with its own lock held."""
        if self.limit:
            self._gone.append(id(node))

    def clear(self) -> None:
        """Drop all nodes."""
        self._kept = _Ages()
        charge, self._charge = self._charge, None
        if charge is not None:
            charge.release()

    def __len__(self) -> int:
        return len(self._kept.nodes)

    def _account(self, kept: _Ages) -> None:
        charge = self._charge
        if charge is None:
            charge = self._charge = self._budget.charge(0, "retained nodes", self._evicted)
        if abs(kept.size - charge.amount) > 64 << 10 or not kept.size:
            # What is already charged counts as free here, since it is evictable.
            while kept.size and not self._budget.fits(kept.size):
                kept.drop_oldest()
            charge.resize(kept.size)

    def _evicted(self) -> None:
        # Called from any thread. The collection is replaced, not changed: another thread may be using it.
        self._charge = None
        self._kept = _Ages()

    def _wanted(self, node: Node) -> bool:
        if not self.include and not self.exclude:
            return True
        from fnmatch import fnmatchcase

        path = node.path
        if any(fnmatchcase(path, pattern) for pattern in self.exclude):
            return False
        return not self.include or any(fnmatchcase(path, pattern) for pattern in self.include)

    @staticmethod
    def _cost(node: Node) -> int:
        index = node.index
        if index is not None:
            return _NODE_COST + index.memory
        return _NODE_COST + (sys.getsizeof(node.value) if node.loaded else 0)
