"""What a container knows about its children, without a node per child.

A `ChildIndex` takes one of two forms. If the children follow each other in the file, it holds offsets: one per child
up to 100,000 children, then one *checkpoint* per 64 children (an eighth of a byte per child); entries between two
checkpoints are read again from the file when needed. Otherwise it is a list of entries.

A `KeyTable` finds children by key: sorted 64-bit hashes with ordinals, 12 bytes a child. It is made on the second
look-up in a map of more than 64 children. It consists of separately sorted slices, so building it takes little more
memory than the result, and it can cover the first children only and grow with the index. If it does not fit into the
budget there is no table, and children are found by reading.
"""

from __future__ import annotations

import _weakref as weakref
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from itertools import groupby, islice
from operator import itemgetter

from pparse.errors import LimitError
from pparse.limits import evictor, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.findings import Finding, Status
    from pparse.limits import Charge, MemoryBudget
    from pparse.tree.entry import Entry
    from pparse.tree.node import Node

    Facts = tuple[int | None, Status | None, Finding | None]  # end, status and finding of a node
    from collections.abc import Iterable, Iterator
    from typing import TypeVar

    T = TypeVar("T")

DENSE_LIMIT: Final = 100_000
STRIDE: Final = 64
# How many indexes keep the group of entries that was read last.
GROUPS: Final = 64
# Small indexes are charged in steps of so many bytes; each takes so many besides its offsets.
_STEP: Final = 1 << 20
_INDEX: Final = 400
# Below this an index, or a set of names, is not worth the bookkeeping of a charge.
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


# Children per slice, and bytes per child while a slice is built; in a table each child takes 12 bytes.
SLICE: Final = 1 << 18
MAKING: Final = 40
EACH: Final = 12
# From this many numbers on, numpy sorts; it is not imported for fewer.
_MANY: Final = 50_000
# How many hashes come into a set before they are sorted, where numpy is in use; bytes of each in the set.
_LATEST: Final = 4096
_IN_SET: Final = 80


def key_hash(key: object) -> int:
    """Return the hash by which keys of children are compared, 64 bits.

    Python's own of an integer is the number, but for two things that files hold: -1 has that of -2, and numbers that
    differ by 2**61 - 1 share one. Of texts it is salted, so that nobody can make keys that share one.
    """
    return hash(str(key)) if type(key) is int else hash(key)


class KeyTable:
    """Ordinals of children by the hash of their key: 12 bytes a child."""

    __slots__ = ("_slices", "covered")

    def __init__(self, hashes: Iterable[int] = ()) -> None:
        self._slices: list[tuple[array[int], array[int]]] = []  # ascending hashes, ordinals; in the order of ordinals
        self.covered = 0
        """How many children it covers, from the first on."""
        self.extend(hashes)

    def extend(self, hashes: Iterable[int]) -> None:
        """Cover the next children, given the hashes of their keys."""
        rest = iter(hashes)
        while chunk := array("q", islice(rest, SLICE)):
            first, self.covered = self.covered, self.covered + len(chunk)
            self._slices.append(_sorted(chunk, array("I", range(first, self.covered))))
            self._merge()

    def _merge(self) -> None:
        """Keep few slices: merge one with the next if it is at most twice as large."""
        slices = self._slices
        while len(slices) > 1:
            (one, ordinals), (other, behind) = slices[-2:]
            if len(one) > 2 * len(other) or len(one) + len(other) > SLICE:
                return
            slices[-2:] = [_sorted(one + other, ordinals + behind)]

    def _equal(self, key: object) -> Iterator[tuple[array[int], int, int]]:
        """Yield, for each slice that has the hash of ``key``, its ordinals, and the first and end of those."""
        wanted = key_hash(key)
        for hashes, ordinals in self._slices:
            low = bisect_left(hashes, wanted)
            if low < len(hashes) and hashes[low] == wanted:
                yield ordinals, low, bisect_right(hashes, wanted, low)

    def candidates(self, key: object) -> Iterator[int]:
        """Yield, in file order, the ordinals of keys with the hash of ``key``, nearly always equal to it."""
        for ordinals, low, high in self._equal(key):
            yield from map(ordinals.__getitem__, range(low, high))

    def nth(self, key: object, occurrence: int) -> int | None:
        """Return the ordinal of the n-th key with the hash of ``key``; None if there are fewer."""
        wanted = key_hash(key)
        for hashes, ordinals in self._slices:  # not by `_equal`: every look-up comes here
            low = bisect_left(hashes, wanted)
            if low < len(hashes) and hashes[low] == wanted:
                high = bisect_right(hashes, wanted, low)
                if low + occurrence <= high:
                    return ordinals[low + occurrence - 1]
                occurrence -= high - low
        return None

    def before(self, key: object, ordinal: int) -> int:
        """Return how many keys with the hash of ``key`` come before ``ordinal``."""
        return sum(bisect_left(ordinals, ordinal, low, high) - low for ordinals, low, high in self._equal(key))

    def repeated(self) -> Iterator[list[int]]:
        """Yield groups of ordinals whose keys share a hash and so may be equal."""
        for _, equal in groupby(self._in_order(), itemgetter(0)):
            group = [ordinal for _, ordinal in equal]
            if len(group) > 1:
                yield group

    def _in_order(self) -> Iterator[tuple[int, int]]:
        pairs = [zip(*one, strict=True) for one in self._slices]
        if len(pairs) == 1:
            return pairs[0]
        from heapq import merge

        return merge(*pairs)

    @property
    def memory(self) -> int:
        """Bytes held."""
        return EACH * self.covered


class SeenKeys:
    """Which keys came so far, by their hashes: 8 bytes a key above 50,000, some 80 below.

    The latest hashes are in a set. When that is full, they go to the end of an array, in ascending order, as one more
    slice of it; numpy searches the slices.
    """

    __slots__ = ("_begins", "_budget", "_charge", "_hashes", "_latest")

    def __init__(self, budget: MemoryBudget) -> None:
        self._latest: set[int] = set()
        self._hashes = array("q")
        self._begins: list[int] = []  # where slices begin; a later one is less than half as long
        self._budget = budget
        self._charge = budget.charge(0, "the names that came so far")

    def are_new(self, hashes: Sequence[int]) -> bool:
        """Return whether ``hashes`` are all different, and none of them came before; if so, they have come now.

        False as well if the budget has no room for them.
        """
        more = set(hashes)
        if len(more) < len(hashes) or not self._latest.isdisjoint(more) or (self._begins and self._have_any(more)):
            return False
        held = 9 * len(self._hashes) + _IN_SET * (len(self._latest) + len(more))  # an array grows by an eighth
        if held > max(self._charge.amount, _CHARGE_FROM) and not self._find_room(held + (_IN_SET << 10)):
            return False
        self._latest |= more
        if len(self._latest) > (_LATEST if "numpy" in sys.modules else _MANY):
            self._make_slice()
        return True

    def _find_room(self, amount: int) -> bool:
        """Charge ``amount`` if that leaves a quarter of the budget for the blocks in which keys are read."""
        if not self._budget.fits(amount - self._charge.amount + self._budget.limit // 4):
            return False
        try:
            self._charge.resize(amount)
        except LimitError:  # another thread was faster
            return False
        return True

    def release(self) -> None:
        """Give the memory back."""
        self._latest, self._hashes, self._begins = set(), array("q"), []
        self._charge.release()

    def _have_any(self, hashes: set[int]) -> bool:
        import numpy as np

        wanted = np.fromiter(hashes, np.int64, len(hashes))
        wanted.sort()
        held, end = np.frombuffer(self._hashes, np.int64), len(self._hashes)
        for begin in reversed(self._begins):
            places = held[begin:end].searchsorted(wanted)
            places += begin
            places[places == end] = begin
            if (held[places] == wanted).any():
                return True
            end = begin
        return False

    def _make_slice(self) -> None:
        import numpy as np

        begins = self._begins
        begins.append(len(self._hashes))
        self._hashes.extend(self._latest)
        self._latest = set()
        while len(begins) > 1 and begins[-1] - begins[-2] <= 2 * (len(self._hashes) - begins[-1]):
            begins.pop()
        np.frombuffer(self._hashes, np.int64)[begins[-1] :].sort()


def repeated_hashes(hashes: Iterable[int], part: int, parts: int) -> array[int]:
    """Return the repeated numbers that leave remainder ``part`` when divided by ``parts``, in ascending order.

    Takes 16 bytes for each number of that part: 8 to hold it, 8 to sort it.
    """
    mine = array("q", hashes if parts == 1 else (number for number in hashes if number % parts == part))
    if len(mine) > _MANY:
        import numpy as np

        numbers = np.frombuffer(mine, np.int64)
        numbers.sort()  # in place
        return array("q", sorted(set(numbers[1:][numbers[1:] == numbers[:-1]].tolist())))
    seen: set[int] = set()
    return array("q", sorted({number for number in mine if number in seen or seen.add(number)}))  # type: ignore[func-returns-value]


def ranked(numbers: array[int]) -> tuple[array[int], array[int]]:
    """Return ``numbers`` (64 bits) in ascending order, and their former positions; the sort is stable."""
    return _sorted(numbers, array("I", range(len(numbers))))


def _sorted(numbers: array[int], beside: array[int]) -> tuple[array[int], array[int]]:
    """Return both arrays in the order of ``numbers``; the sort is stable."""
    if len(numbers) > _MANY:
        import numpy as np

        order = np.argsort(np.frombuffer(numbers, np.int64), kind="stable")
        return (
            array("q", np.frombuffer(numbers, np.int64)[order].tobytes()),
            array("I", np.frombuffer(beside, np.uint32)[order].tobytes()),
        )
    ranks = sorted(range(len(numbers)), key=numbers.__getitem__)
    return array("q", map(numbers.__getitem__, ranks)), array("I", map(beside.__getitem__, ranks))


# -- Names of things of which several have one key: the second of two keys ``a`` is called ``a#2`` ---------------------

# If there are keys ``a#2``, that one counts as one more of them, behind the last: it is ``a#2#2`` if there is one. So
# no name is given twice, none has to be remembered, and a name tells what it means without a list of all.

# No list is so long that a number in it has more.
_DIGITS: Final = 18


def name_of_repeated(key: str, number: int, nth: Callable[[str, int], object | None]) -> str:
    """Return the name of the ``number``-th of equal keys; ``nth`` finds the n-th with a key, None: there are fewer."""
    name = key if number == 1 else f"{key}#{number}"
    while number > 1 and nth(name, 1) is not None:
        number = 2
        while nth(name, number) is not None:
            number += 1
        name = f"{name}#{number}"
    return name


def name_in(table: Any, node: Any) -> str:
    """Return the name of ``node``, a child of the node ``table``: its key, unless one before it has the same."""
    return name_of_repeated(str(node.key), table.result.occurrence(table, node.ordinal, node.key), table.find)


def meant_by_name(name: str, nth: Callable[[str, int], T | None]) -> T | None:
    """Return what `name_of_repeated` calls ``name``; None if there is no such thing."""
    found = nth(name, 1)
    while found is None:
        base, _, digits = name.rpartition("#")
        if not digits.isascii() or not digits.isdecimal() or digits[0] == "0" or digits == "1" or len(digits) > _DIGITS:
            return None
        number = int(digits)
        found = nth(base, number)
        if found is None and nth(base, number - 1) is None:
            return None
        name = base  # one more than there are keys ``base``: it is not one of them, but was to be called so
    return found
