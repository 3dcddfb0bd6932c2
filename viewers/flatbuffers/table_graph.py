"""A graph whose nodes are the tables of a vector, for `pparse.graphs`: what the formats here have in common."""

from __future__ import annotations

from abc import abstractmethod

from pparse.errors import DataError
from pparse.graphs.source import ListedGraph
from pparse.tree.below import node_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pparse.graphs.source import Row
    from pparse.parsers.flatbuffers.table import Table
    from pparse.viewers.flatbuffers.viewer import FlatBuffersViewer

    # Name (empty: it has none), operation, inputs, where, beside, outputs.
    Read = tuple[str, str, Sequence[str], str, Sequence[str], Sequence[str]]


def readable(table: Table | None, field: str, named: Callable[[Table], str] | None = None) -> Iterator[str]:
    """Yield the texts of a vector, or the names of its tables, that can be read: a cut model has some of them."""
    if table is None:
        return
    try:
        references = table.references(field)
    except DataError:
        return
    for reference in references:
        try:
            yield table.text_at(reference) if named is None else named(table.element(field, reference))
        except DataError:
            continue


class TableGraph(ListedGraph):
    """The tables in the vector ``field`` of a table, which ``path`` leads to from the root."""

    names_values = True
    in_one_piece = False

    def __init__(
        self, viewer: FlatBuffersViewer, table: Table | None, field: str, path: Sequence[str | int], name: str = ""
    ) -> None:
        super().__init__(viewer.extraction, name)
        self.viewer = viewer
        """The viewer of the model."""
        self.table = table
        """What has the vector; None if there is none."""
        self._field = field
        self._references: Sequence[int] = () if table is None else table.references(field)
        self.elements = node_at(viewer.root, *path, field)

    @abstractmethod
    def read(self, element: Table) -> Read:
        """Return what the table of a node says. Raises `DataError`."""

    def __len__(self) -> int:
        return len(self._references)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the model is cut off."""
        return self.viewer.root.is_complete

    def rows(self) -> Iterator[Row]:
        """Yield a row for each node."""
        return map(self.row, range(len(self)))

    def row(self, ordinal: int) -> Row:
        """Return the row of one node; one without a name is called as its first output, or by its number."""
        if not 0 <= ordinal < len(self) or self.table is None:
            raise IndexError(f"there are {len(self)} nodes, none with number {ordinal}")
        try:
            name, op, inputs, where, beside, outputs = self.read(
                self.table.element(self._field, self._references[ordinal])
            )
        except DataError:
            name, op, inputs, where, beside, outputs = "", "unreadable", (), "", (), ()
        label = name or next((value for value in outputs if value), f"{op};{ordinal}")
        return ordinal, label, op, inputs, where, beside, outputs
