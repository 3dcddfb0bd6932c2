"""Where the tensors of a safetensors file lie in its data, and which of them contradict each other.

The reference reader (tensor.rs, ``Metadata::validate``) wants them one behind the other, from the first byte of the
data to the last of the file, and no name twice.
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

# What a tensor may be in conflict about.
SHARED: Final = 1
NAMESAKE: Final = 2
CONFLICTS: Final = {SHARED: "another tensor has bytes of its", NAMESAKE: "its name occurs more than once"}

_MAX_BREAKS: Final = 1000
_NUMPY_FROM: Final = 50_000
_COST: Final = 24  # bytes for each tensor that is not in order, sorting included


class Layout:
    """The ranges of the tensors, counted from the start of the data; nothing is kept of those that come in order.

    After `close`, ``breaks`` says where one ended and another began elsewhere, in order of offsets. ``again`` says that
    this cannot be told without all ranges: a tensor without bytes came behind those between which it belongs. Then a
    layout that will ``keep`` them tells.
    """

    def __init__(self, budget: MemoryBudget, *, keep: bool = False) -> None:
        self.again = False
        self._keep = keep
        self.known = True  # whether the place of every tensor is known
        self.end = 0
        self.breaks: list[tuple[int, int]] = []
        self.overlaps = False
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
        """Find the breaks, and forget the ranges."""
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
    """Return the numbers of ranges in the order of their beginnings, then ends."""
    order: Any = range(len(begins))
    if all(begins[at] >= ends[at - 1] for at in range(1, len(begins))):
        return order  # type: ignore[no-any-return]
    if len(begins) > _NUMPY_FROM:
        import numpy as np

        return np.lexsort((np.frombuffer(ends, np.uint64), np.frombuffer(begins, np.uint64))).tolist()  # type: ignore[no-any-return]
    return sorted(order, key=lambda at: (begins[at], ends[at]))


def sharers(begins: array[int], ends: array[int]) -> list[int]:
    """Return the numbers of the ranges that have bytes of another one."""
    found: list[int] = []
    last, end = -1, 0  # the range that reaches farthest so far
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
    """Return where the last tensor ends, if they lie one behind the other, and no name occurs twice: then nothing is in
    conflict. None if that is not so. ``beside`` is the name of what is no tensor.
    """
    end = 0
    try:
        for name, fields in pairs:
            begin, stop = fields["data_offsets"] if name != beside else (end, end)
            if begin != end:
                return None
            end = stop
    except (KeyError, TypeError, ValueError):
        return None
    return end if len(dict(pairs)) == len(pairs) and type(end) is int else None


def place(layout: Layout, info: TensorInfo, entry: Entry | None) -> None:
    """Add a tensor to ``layout``, if it says where it lies."""
    if entry is not None or (info.begin == info.end and info.problem is not None):
        layout.known = False
    else:
        layout.add(info.begin, info.end)


def lay(budget: MemoryBudget, rows: Iterable[tuple[int, str | None, TensorInfo, Entry | None]]) -> Layout:
    """Return the layout of the tensors of ``rows``, all ranges of which are held for it."""
    layout = Layout(budget, keep=True)
    for _, _, info, entry in rows:
        place(layout, info, entry)
    layout.close()
    return layout
