"""Which nodes stay alive although nobody holds them.

The policy is chosen when a document is opened: 0 keeps nothing (children live as long as somebody holds them), a
number of bytes drops the least recently used nodes above it, infinity keeps all. ``include`` and ``exclude`` are path
patterns (``tensors.*``). The policy only drops references; it never unloads a node that somebody else holds.
"""

from __future__ import annotations

import sys
from collections import deque

from pparse.limits import parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from pparse.budget import Charge, MemoryBudget
    from pparse.tree.index import ChildIndex

    class Retained(Protocol):
        """A node that is kept."""

        @property
        def path(self) -> str:
            """Its path."""

        @property
        def index(self) -> ChildIndex | None:
            """The index of its children, if there is one now."""

        @property
        def loaded(self) -> bool:
            """Whether its value is in memory."""

        @property
        def value(self) -> object:
            """What is in memory."""


# A node, its offsets, its key and its place in the parent's table.
_NODE_COST = 400


class _Ages:
    """Nodes in order of last use, each with its estimated cost; ``size`` is the sum."""

    __slots__ = ("nodes", "size")

    def __init__(self) -> None:
        self.nodes: dict[int, tuple[Retained, int]] = {}
        self.size = 0

    def add(self, node: Retained, cost: int) -> None:
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

    def touch(self, node: Retained) -> None:
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

    def forget(self, node: Retained) -> None:
        """Drop ``node``."""
        while self._gone:
            self._kept.drop(self._gone.popleft())
        self._kept.drop(id(node))

    def note_evicted(self, node: Retained) -> None:
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

    def _wanted(self, node: Retained) -> bool:
        if not self.include and not self.exclude:
            return True
        from fnmatch import fnmatchcase

        path = node.path
        if any(fnmatchcase(path, pattern) for pattern in self.exclude):
            return False
        return not self.include or any(fnmatchcase(path, pattern) for pattern in self.include)

    @staticmethod
    def _cost(node: Retained) -> int:
        index = node.index
        if index is not None:
            return _NODE_COST + index.memory
        return _NODE_COST + (sys.getsizeof(node.value) if node.loaded else 0)
