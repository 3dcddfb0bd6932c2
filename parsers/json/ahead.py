"""Text that the scan for an index has read, and that was not decoded yet: so that a listing reads a byte only once."""

from __future__ import annotations

from pparse.errors import LimitError
from pparse.tree.engine import FIRST_BLOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.budget import MemoryBudget
    from pparse.tree.index import ChildIndex

# The most text that is held; of a longer piece nothing is, and it is read again.
MOST_HELD: Final = 4 << 20


class TextAhead:
    """The text of one container behind what was decoded of it. What is not held, or no longer, is read again."""

    __slots__ = ("__weakref__", "_blocks", "_charge", "_end", "_size", "block", "index")

    def __init__(self, index: ChildIndex, budget: MemoryBudget) -> None:
        self.index = index
        """The index that is made of the text."""
        self.block = FIRST_BLOCK
        """How much to read next."""
        self._blocks: list[tuple[int, bytes]] = []  # offsets and bytes; replaced as a whole: the budget may evict it
        self._end = self._size = 0
        self._charge = budget.charge(0, "text that was read ahead", self._drop)

    def _drop(self) -> None:
        # Called from any thread, with the lock of the budget held.
        self._blocks, self._size = [], 0

    def add(self, offset: int, text: bytes) -> None:
        """Hold ``text``, which begins at ``offset``, behind what is held; if it does not follow that, alone."""
        if offset != self._end:
            self._drop()
        self._end = offset + len(text)
        size = self._size + len(text)
        if size > MOST_HELD:
            self.release()
            return
        try:
            self._charge.resize(size)
        except LimitError:
            self.release()
        else:
            self._blocks, self._size = [*self._blocks, (offset, text)], size

    def take(self, begin: int, end: int) -> bytes | None:
        """Return the text of ``[begin, end)`` and hold none before it any longer; None if it is not held."""
        blocks = [block for block in self._blocks if block[0] + len(block[1]) > begin]
        self._blocks, self._size = blocks, sum(len(text) for _, text in blocks)
        if not blocks or blocks[0][0] > begin or end > self._end:
            return None
        return b"".join([text[max(0, begin - at) : end - at] for at, text in blocks if at < end])

    def release(self) -> None:
        """Hold nothing, and give the memory back."""
        self._drop()
        self._charge.release()
