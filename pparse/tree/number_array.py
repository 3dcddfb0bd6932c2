"""`NumberArray`: a list of numbers in one layout: each is found by arithmetic, so nothing is indexed."""

from __future__ import annotations

from struct import unpack_from

from pparse.tree.entry import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node


class NumberArray:
    """What a node keeps as its ``note`` whose children are numbers; `NodeContext.emit_numbers` makes such nodes."""

    __slots__ = ("count", "field")

    def __init__(self, layout: str, count: int) -> None:
        from pparse.tree.record import Field  # not for formats without such arrays

        self.field = Field("", layout)
        """The layout of a number, as `struct` writes it, its size, and the kind of its node."""
        self.count = count
        """How many there should be."""

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return self.count * self.field.size

    def index(self, node: Node, index: ChildIndex) -> None:
        """Count the numbers of ``node`` that exist."""
        end = node.start if node.end is None else node.end
        there = min(end, node.result.extraction.known_end(node)) - node.start
        index.keep(self, min(self.count, max(0, there) // self.field.size))

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries ``[first, first + count)``, made from their bytes."""
        size, layout = self.field.size, self.field.layout
        order, code = (layout[0], layout[1:]) if len(layout) > 1 else ("<", layout)
        count, start = max(0, min(count, index.count - first)), node.start + first * size
        raw = node.extraction.data.read_exact(start, count * size)
        places = range(start, start + count * size, size)
        values = unpack_from(f"{order}{count}{code}", raw)
        return [Entry(None, self.field.kind, at, at + size, value) for at, value in zip(places, values, strict=True)]
