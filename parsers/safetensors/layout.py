"""Where the tensors of a safetensors file lie in its data, and which of them contradict each other.

The reference reader (tensor.rs, ``Metadata::validate``) requires them one after the other, without gaps, from the start
of the data to the end of the file, and each name once.
"""

from __future__ import annotations

from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Final

    from pparse.budget import MemoryBudget
    from pparse.parsers.safetensors.entry import TensorInfo
    from pparse.tree.entry import Entry

# Kinds of conflicts between tensors.
SHARED: Final = 1
NAMESAKE: Final = 2
CONFLICTS: Final = {SHARED: "it shares bytes with another tensor", NAMESAKE: "its name occurs more than once"}

_MAX_BREAKS: Final = 1000
_NUMPY_FROM: Final = 50_000
_COST: Final = 24  # bytes for each tensor out of order, sorting included


class Layout:
    """The ranges of the tensors, counted from the start of the data. Tensors that come in order take no memory."""

    def __init__(self, budget: MemoryBudget, *, keep: bool = False) -> None:
        self.again = False
        """Whether only a layout with ``keep`` can tell, as an empty tensor came out of order."""
        self._keep = keep
        self.known = True
        """Whether the place of every tensor is known."""
        self.end = 0
        """Where the tensors end."""
        self.breaks: list[tuple[int, int]] = []
        """After `close`, in order: where one tensor ended, and the next began elsewhere."""
        self.overlaps = False
        """Whether tensors share bytes."""
        self._begins, self._ends = array("Q"), array("Q")
        self._charge = budget.charge(0, "the places of tensors")

    def add(self, begin: int, end: int) -> None:
        """Add the range of a tensor."""
        if begin == self.end and not self._begins and not self._keep:
            self.end = end
            return
        if begin == end and begin < self.end:
            self.again = True
            return
        self._begins.append(begin)
        self._ends.append(end)
        if not len(self._begins) & 0xFFF:
            self._charge.resize(_COST * len(self._begins))

    def close(self) -> None:
        """Find the breaks, and drop the ranges."""
        begins, ends = self._begins, self._ends
        for at in in_order(begins, ends):
            begin = begins[at]
            if begin != self.end:
                self.overlaps = self.overlaps or (begin < self.end and begin < ends[at])
                if len(self.breaks) < _MAX_BREAKS:
                    self.breaks.append((self.end, begin))
            self.end = max(self.end, ends[at])
        self._begins, self._ends = array("Q"), array("Q")
        self._charge.release()


def in_order(begins: array[int], ends: array[int]) -> Iterable[int]:
    """Return the numbers of ranges, ordered by begin, then end."""
    order: Any = range(len(begins))
    if all(begins[at] >= ends[at - 1] for at in range(1, len(begins))):
        return order  # type: ignore[no-any-return]
    if len(begins) > _NUMPY_FROM:
        import numpy as np

        return np.lexsort((np.frombuffer(ends, np.uint64), np.frombuffer(begins, np.uint64))).tolist()  # type: ignore[no-any-return]
    return sorted(order, key=lambda at: (begins[at], ends[at]))


def sharers(begins: array[int], ends: array[int]) -> list[int]:
    """Return the numbers of the ranges that share bytes with another."""
    found: list[int] = []
    last, end = -1, 0  # the range with the largest end so far
    for at in in_order(begins, ends):
        if begins[at] >= ends[at]:
            continue
        if begins[at] < end:
            found.extend((last, at))
        if ends[at] > end:
            last, end = at, ends[at]
    return found


def mark(flags: bytearray, ordinals: Iterable[int], what: int) -> None:
    """Set the flags of ``ordinals`` to ``what``."""
    for ordinal in ordinals:
        if ordinal >= len(flags):
            flags.extend(bytes(ordinal + 1 - len(flags)))
        flags[ordinal] = what


def plain_end(pairs: list[tuple[str, Any]], beside: str) -> int | None:
    """Return where the last tensor ends if no tensors conflict: they follow each other, and no name occurs twice.

    None otherwise. ``beside`` is the key that is not a tensor.
    """
    end = 0
    try:
        for name, fields in pairs:
            begin, stop = fields["data_offsets"] if name != beside else (end, end)
            if begin != end or (stop <= begin and name != beside):  # an empty one: its entry may be wrong
                return None
            end = stop
    except (KeyError, TypeError, ValueError):
        return None
    return end if len(dict(pairs)) == len(pairs) and type(end) is int else None


def place(layout: Layout, info: TensorInfo, entry: Entry | None) -> None:
    """Add a tensor to ``layout`` if its place is known."""
    if entry is not None or (info.problem is not None and info.begin == info.end):
        layout.known = False
    else:
        layout.add(info.begin, info.end)


def lay(budget: MemoryBudget, rows: Iterable[tuple[int, str | None, TensorInfo, Entry | None]]) -> Layout:
    """Return the layout of the tensors in ``rows``, holding all ranges in memory."""
    layout = Layout(budget, keep=True)
    for _, _, info, entry in rows:
        place(layout, info, entry)
    layout.close()
    return layout
