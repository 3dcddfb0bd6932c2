"""The nodes of a graph, one by one and by name."""

from __future__ import annotations

from collections.abc import Mapping

from pparse.locking import Guarded
from pparse.tensors.viewer import MissingNameError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.graphs.source import GraphSource, Row
    from pparse.tree.node import Node


class GraphNode:
    """One node of a graph: name, operation, inputs and place are known, attributes are read on demand."""

    __slots__ = ("_row", "_source")

    def __init__(self, source: GraphSource, row: Row) -> None:
        self._source = source
        self._row = row

    @property
    def ordinal(self) -> int:
        """Number of the node, from 0 on."""
        return self._row[0]

    @property
    def name(self) -> str:
        """Name of the node in its graph; if values have names and the node has none, the first one it makes."""
        return self._row[1]

    @property
    def op(self) -> str:
        """Name of the operation."""
        return self._row[2]

    @property
    def inputs(self) -> list[str]:
        """Its inputs, as in the file."""
        return list(self._row[3])

    @property
    def where(self) -> str:
        """The device that it should run on (TensorFlow), or the domain of its operation (ONNX); often empty."""
        return self._row[4]

    @property
    def outputs(self) -> list[str] | None:
        """The names of the values that it makes; None if they are named after the node."""
        return None if self._row[6] is None else list(self._row[6])

    @property
    def node(self) -> Node:
        """The node of the tree that describes it."""
        return self._source.node(self.ordinal)

    @property
    def attr(self) -> dict[str, Node]:
        """Its attributes, by name: nodes of the tree, which are not read yet."""
        return self._source.attributes(self.ordinal)

    def __repr__(self) -> str:
        return f"<GraphNode {self.name!r}: {self.op}>"


class GraphNodes(Guarded, Mapping[str, GraphNode]):
    """The nodes of a graph by name; the second of one name is ``name#2``. Arguments of a function are not nodes."""

    def __init__(self, graph: Any) -> None:
        self.lock = graph.lock
        self._graph = graph

    def __len__(self) -> int:
        return len(self._graph.source)

    def __iter__(self) -> Iterator[str]:
        return (row[1] for row in self._graph.rows())

    def values(self) -> Iterator[GraphNode]:  # type: ignore[override]
        """Yield the nodes, in order."""
        source = self._graph.source
        return (GraphNode(source, row) for row in source.rows())

    def items(self) -> Iterator[tuple[str, GraphNode]]:  # type: ignore[override]
        """Yield names with nodes, in order."""
        return ((node.name, node) for node in self.values())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __getitem__(self, name: str) -> GraphNode:
        ordinal = self._find(name)
        if ordinal is None:
            raise MissingNameError("there is no node with this name", path=name, suggestions=self._graph.suggest(name))
        return self.at(ordinal)

    def at(self, ordinal: int) -> GraphNode:
        """Return node number ``ordinal``. Raises IndexError."""
        if not 0 <= ordinal < len(self):
            raise IndexError(f"there are {len(self)} nodes, none with number {ordinal}")
        return GraphNode(self._graph.source, self._graph.source.row(ordinal))

    def _find(self, name: str) -> int | None:
        index = self._graph.index
        found: list[int] = index.named(name)
        if found:
            return found[0]
        base, mark, number = name.rpartition("#")
        if not mark or not number.isdecimal() or len(number) > 9:
            return None
        found = index.named(base)
        return found[int(number) - 1] if 1 < int(number) <= len(found) else None

    def __repr__(self) -> str:
        return f"<GraphNodes: {len(self)}>"
