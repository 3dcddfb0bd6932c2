"""Which nodes stay alive although nobody holds them.

One policy, chosen when a document is opened: 0 keeps nothing (children live as long as somebody holds them), a number
of bytes ages off what was least recently used, infinity keeps everything that was ever made. ``include`` and
``exclude`` are path patterns (``tensors.*``). The policy only drops references; it never unloads a node that somebody
else holds.
"""

from __future__ import annotations

import sys

from pparse.limits import parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pparse.budget import Charge, MemoryBudget
    from pparse.node import Node

# A node, its offsets, its key and its place in the parent's table.
_NODE_COST = 400


class Retention:
    """Keeps nodes alive, the most recently used ones, up to ``limit`` bytes."""

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
        self.include = tuple(include)
        self.exclude = tuple(exclude)
        self.held = 0
        self._budget = budget
        self._kept: dict[int, tuple[Node, int]] = {}  # in order of last use
        self._charge: Charge | None = None

    def touch(self, node: Node) -> None:
        """Note that ``node`` was made or loaded now."""
        if not self.limit or not self._wanted(node):
            return
        self.forget(node)
        cost = self._cost(node)
        if cost > self.limit:
            return
        self._kept[id(node)] = (node, cost)
        self.held += cost
        while self.held > self.limit:
            self._drop_oldest()
        self._account()

    def forget(self, node: Node) -> None:
        """Let go of ``node``."""
        kept = self._kept.pop(id(node), None)
        if kept is not None:
            self.held -= kept[1]

    def clear(self) -> None:
        """Let go of everything."""
        self._kept.clear()
        self.held = 0
        if self._charge is not None:
            self._charge.release()
            self._charge = None

    def __len__(self) -> int:
        return len(self._kept)

    def _drop_oldest(self) -> None:
        _, cost = self._kept.pop(next(iter(self._kept)))
        self.held -= cost

    def _account(self) -> None:
        if self._charge is None:
            self._charge = self._budget.charge(0, "retained nodes", self._evicted)
        if abs(self.held - self._charge.amount) > 64 << 10 or not self.held:
            # What is charged already counts as free here: it is evictable too.
            while self.held and not self._budget.fits(self.held):
                self._drop_oldest()
            self._charge.resize(self.held)

    def _evicted(self) -> None:
        self._charge = None
        self._kept.clear()
        self.held = 0

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
