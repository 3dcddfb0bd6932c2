"""Graphs of models: nodes, edges, inputs, outputs, functions, and the subgraph that some outputs need.

Iterating streams the nodes of a `GraphSource`; operations that need all of them make an index of about 30 bytes per
node on first use (`pparse.graphs.index`).
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, KeysView, Mapping
from functools import cached_property
from itertools import islice
from types import MappingProxyType

from pparse.display.text import few
from pparse.errors import MissingNameError, PathError, PparseError
from pparse.graphs.index import NOBODY, GraphIndex
from pparse.graphs.source import MAX_NODES, Edge
from pparse.locking import Guarded
from pparse.tree.result import near_misses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Any, Final

    from pparse.findings import FindingList
    from pparse.graphs.source import GraphSource, Row, Signature, Value
    from pparse.tree.node import Node

# -- The labels of nodes by number, read again when they are needed: a bounded cache, the last used stay ---------------

_MOST: Final = 4096
_BYTES: Final = 1 << 20
_EACH: Final = 150


class Labels:
    """Labels of some nodes of a graph; the others are read from their row."""

    def __init__(self, source: GraphSource) -> None:
        self._source = source
        self._labels: dict[int, str] = {}
        self._size = 0
        self._charge = source.extraction.session.budget.charge(0, "the names of nodes")

    def add(self, row: Row) -> None:
        """Keep the label of a node that was just read, for those behind it; forget what was not used for longest."""
        ordinal, label = row[:2]
        labels = self._labels
        if ordinal in labels:
            return
        labels[ordinal] = label
        self._size += len(label) + _EACH
        while len(labels) > 1 and (self._size > _BYTES or len(labels) > _MOST):
            oldest = next(iter(labels))
            self._size -= len(labels.pop(oldest)) + _EACH
        if not -0x10000 < self._size - self._charge.amount <= 0:
            self._charge.resize((self._size | 0xFFFF) + 1)

    def __getitem__(self, ordinal: int) -> str:
        label = self._labels.pop(ordinal, None)
        if label is None:
            self.add(row := self._source.row(ordinal))
            return row[1]
        self._labels[ordinal] = label
        return label


# -- The nodes of a graph, one by one and by name ----------------------------------------------------------------------


class GraphNode:
    """One node of a graph: name, operation, inputs and place are known, attributes are read on demand."""

    __slots__ = ("_source", "inputs", "name", "op", "ordinal", "outputs", "where")

    def __init__(self, source: GraphSource, row: Row) -> None:
        ordinal, name, op, inputs, where, _, outputs = row
        self._source = source
        self.ordinal = ordinal
        """Number of the node, from 0 on."""
        self.name = name
        """Name of the node in its graph; if values have names and the node has none, the first one it makes."""
        self.op = op
        """Name of the operation."""
        self.inputs = list(inputs)
        """Its inputs, as in the file."""
        self.where = where
        """The device that it should run on (TensorFlow), or the domain of its operation (ONNX); often empty."""
        self.outputs = None if outputs is None else list(outputs)
        """The names of the values that it makes; None if they are named after the node."""

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


# Names that are searched for ones similar to one that does not exist.
_NEAR: Final = 20_000


class _GraphPart(Guarded):
    """Base of a graph and of a part of one: streams nodes and edges."""

    wanted: Sequence[str] | None = None  #: the names that were asked for, of a subgraph; else None

    @property
    def graph(self) -> Graph:
        """The whole graph."""
        raise NotImplementedError

    def rows(self) -> Iterator[Row]:
        """Yield ``(ordinal, name, operation, inputs, where, beside, outputs)`` of each node."""
        raise NotImplementedError

    def write(self, write: Callable[[bytes], object]) -> int:
        """Write the nodes as a model of their own, for TensorFlow as ``extract_sub_graph`` does; return its size.

        Copies the bytes of nodes unchanged, damage included. Raises `UnsupportedError` if this cannot be a model of its
        own (the body of a function), `MalformedError` and `EndOfDataError` if something to be written is not whole.
        """
        raise NotImplementedError

    @property
    def edges(self) -> Edges:
        """The edges, streamed: data and control, in the order of their targets."""
        return Edges(self)

    def stream_edges(self) -> Iterator[Edge]:
        """Yield the edges: what iterating over `edges` does."""
        edges_of = self.graph.edges_of
        for row in self.rows():
            yield from edges_of(row)

    def to_dot(self, name: str = "", *, constants: bool = False) -> Iterator[str]:
        """Yield the text of a Graphviz file, a line at a time; with ``constants``, stored values are in it, too."""
        from pparse.graphs.text import to_dot

        return to_dot(self, name, constants)

    def to_svg(
        self,
        title: str = "",
        depth: int | None = None,
        *,
        constants: bool = False,
        captured: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[str]:
        """Yield a drawing, a line at a time: scopes of names as boxes, cut behind ``depth`` scopes.

        By default, as deep as about 200 boxes allow. ``captured`` names arguments that are no inputs, but stand for
        what the model holds (`Graph.called_by`). Raises `LimitError` if there would be too many boxes.
        """
        from pparse.graphs.drawing import to_svg

        return to_svg(self, title, depth, constants=constants, captured=captured)

    def _repr_svg_(self) -> str | None:
        """Return the drawing for a notebook; None, which leaves it to ``repr``, if it has too many boxes."""
        try:
            return "".join(self.to_svg()).partition("?>\n")[2]  # without the first line, for files
        except PparseError:
            return None

    def to_json(self) -> Iterator[str]:
        """Yield pieces of one JSON object: ``nodes`` and ``edges``."""
        from pparse.graphs.text import to_json

        return to_json(self)

    def to_json_lines(self) -> Iterator[str]:
        """Yield lines, each a JSON object: the nodes, then the edges."""
        from pparse.graphs.text import to_json_lines

        return to_json_lines(self)

    def save(self, path: str) -> int:
        """Write a model to a file that appears once it is complete; return its size. See `write`."""
        from pparse.writers.files import AtomicFile

        with AtomicFile(path) as file:
            return self.write(file.stream.write)


class Edges(Iterable[Edge]):
    """The edges of a graph or a part of it; can be iterated any number of times."""

    def __init__(self, part: _GraphPart) -> None:
        self._part = part

    def __iter__(self) -> Iterator[Edge]:
        return self._part.stream_edges()

    def __repr__(self) -> str:
        return f"<Edges of {self._part!r}>"


# -- what a signature runs: a graph of TensorFlow 2 has a node that calls a function, which may only call another one --

# How many functions that do nothing but call another are gone through.
_MOST_CALLS: Final = 16
# Operations that hand on what they get.
_PASSING: Final = ("Identity", "IdentityN", "NoOp")
# Operations that give what the model holds, besides those of `GraphSource.stored`.
_HELD: Final = ("Const",)


class Called(namedtuple("Called", "graph captured", defaults=(MappingProxyType({}),))):
    """The graph that a signature of a model runs.

    ``graph``: the innermost function that does more than to call another; the main graph, if there is none.
    ``captured``: its arguments that are no inputs of the signature, but what the model holds: to the names of these
    nodes.
    """

    __slots__ = ()


def _captured(caller: Called, call: Any, body: Graph) -> dict[str, str]:
    """Return which arguments of ``body`` a node that calls it fills with what the model holds."""
    source, arguments = caller.graph.source, list(body.arguments)
    given = [text for text in call[3] if not (source.control and text.startswith(source.control))]
    if len(given) != len(arguments):  # lists of arguments: which is which is not known
        return {}
    found: dict[str, str] = {}
    own = set(caller.graph.arguments)
    for argument, text in zip(arguments, given, strict=True):
        name = source.producer(text) or text
        number = caller.graph.index.ordinal(name)
        if name in own:
            if name in caller.captured:
                found[argument] = caller.captured[name]
        elif number is not None and source.row(number)[2] in (*_HELD, *source.stored):
            found[argument] = name
    return found


# -- graphs, and parts of them -----------------------------------------------------------------------------------------


class Graph(_GraphPart):
    """A graph, or the body of a function or node; ``max_nodes`` bounds the index, streaming is not bounded.

    ``outer`` is the graph around a body, if it is at hand.
    """

    def __init__(self, source: GraphSource, max_nodes: int | None = None, outer: Graph | None = None) -> None:
        self.source = source
        """What the format says of it."""
        self.extraction = source.extraction
        self.lock = source.extraction.lock
        self.max_nodes = MAX_NODES if max_nodes is None else max_nodes
        self._index: GraphIndex | None = None
        self._outer = outer

    @property
    def graph(self) -> Graph:
        """The graph itself."""
        return self

    @property
    def name(self) -> str:
        """Name of a function or body; empty for a graph."""
        return self.source.name

    @property
    def kind(self) -> str:
        """``graph``, ``function`` or ``body``."""
        return self.source.kind

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return len(self.source)

    @property
    def marks(self) -> bytes:
        """A byte for each node, then each argument, then each stored constant: 1, since all are in it."""
        return bytes([1]) * self.index.total

    def rows(self) -> Iterator[Row]:
        """Yield ``(ordinal, name, operation, inputs, where, beside, outputs)`` of each node."""
        return self.source.rows()

    @property
    def index(self) -> GraphIndex:
        """The index, made on first use. Raises `LimitError` above ``max_nodes``."""
        if self._index is None:
            self._index = GraphIndex(self.source, self.max_nodes, self._is_outside)
        return self._index

    @property
    def outer(self) -> Graph | None:
        """The graph around a body."""
        if self._outer is None and self.source.outer is not None:
            self._outer = Graph(self.source.outer, self.max_nodes)
        return self._outer

    def _is_outside(self, name: str) -> bool:
        around = self.outer
        while around is not None:
            if around.index.ordinal(name) is not None:
                return True
            around = around.outer
        return False

    # -- what is in it -----------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> GraphNodes:
        """The nodes as a mapping of names; iterating, and ``values()``, stream them."""
        return GraphNodes(self)

    @property
    def operations(self) -> dict[str, int]:
        """Number of nodes per operation, the most frequent first."""
        return dict(sorted(self.index.operations.items(), key=lambda item: (-item[1], item[0])))

    @property
    def arguments(self) -> Sequence[str]:
        """The values fed in that are no nodes: arguments of a function, inputs of a graph whose values have names."""
        return self.source.inputs()

    def constants(self) -> Iterator[str]:
        """Yield the names of stored values that are no nodes."""
        return self.source.constants()

    @property
    def inputs(self) -> GraphSelection:
        """What needs to be fed: arguments, and nodes that wait for an input (``Placeholder`` and similar)."""
        return GraphSelection(self, self.index.placeholders)

    @property
    def visible(self) -> Graph | GraphSelection:
        """The graph without what only saves and restores its variables; the graph itself if there is nothing such."""
        saving = self.index.saving
        return GraphSelection(self, saving.translate(_NOT)) if saving else self

    @property
    def hidden_count(self) -> int:
        """The number of nodes that only save and restore variables."""
        return self.index.saving.count(1)

    @property
    def outputs(self) -> Collection[str]:
        """The values that the graph returns, if it names them; else those of nodes that no other consumes."""
        return Results(self.results) if self.source.names_values else self.unconsumed

    @property
    def unconsumed(self) -> GraphSelection:
        """The nodes that no other consumes."""
        consumed = self.index.consumed
        count = self.index.count
        return GraphSelection(self, consumed[:count].translate(_NOT) + bytes(len(consumed) - count))

    @property
    def results(self) -> Mapping[str, str]:
        """What a function or graph returns: name to the value, as an input would name it."""
        return self.source.results()

    @property
    def control_results(self) -> Mapping[str, str]:
        """Nodes that must run before a function returns: name to node."""
        return self.source.control_results()

    def value(self, name: str) -> Value | None:
        """Return type and shape of an input, an output or another value; None if nothing is known."""
        node = name if self.source.names_values else self.source.producer(name) or name
        return self.source.value(name, self.index.ordinal(node))

    @property
    def bodies(self) -> Bodies:
        """The functions, and the bodies of nodes, by name; each is a graph."""
        return Bodies(self, self.source.bodies())

    @property
    def functions(self) -> Bodies:
        """The functions by name; each is a graph."""
        return Bodies(self, self.source.functions())

    @property
    def signatures(self) -> dict[str, Signature]:
        """The ways to call the model by name."""
        return self.source.signatures()

    def called_by(self, signature: str) -> Called:
        """Return the function that a signature runs. Raises `MissingNameError` for one that the model does not have."""
        signatures = self.signatures
        if signature not in signatures:
            near = tuple(signatures)[:3]
            raise MissingNameError("there is no signature of this name", path=signature, suggestions=near)
        found = Called(self)
        part: Graph | GraphSelection = self.subgraph([text for text in signatures[signature].outputs.values() if text])
        for _ in range(_MOST_CALLS):
            source = found.graph.source
            idle = {*_PASSING, *_HELD, *source.stored, *source.placeholders}
            doing = list(islice((row for row in part.rows() if row[2] not in idle), 2))
            name = source.called(doing[0][0]) if len(doing) == 1 else None
            if name is None or name not in self.functions:
                break
            body = self.bodies[name]
            found, part = Called(body, _captured(found, doing[0], body)), body
        return found

    def edges_of(self, row: Row) -> Iterator[Edge]:
        """Yield the edges that end at a node."""
        source, target, port = self.source, row[1], 0
        if not source.names_values:
            for text in row[3]:
                edge = source.edge(text, target, port)
                port += not edge.control
                yield edge
            return
        self._known_labels.add(row)
        for port, text in enumerate(row[3]):
            if source.producer(text) is not None:
                yield self._edge_from(text, target, port)
        for text in row[5]:  # what bodies of the node capture
            yield self._edge_from(text, target, None)

    @cached_property
    def _known_labels(self) -> Labels:
        return Labels(self.source)

    def _edge_from(self, text: str, target: str, port: int | None) -> Edge:
        """Return the edge for a value that has a name."""
        name = self.source.producer(text) or ""
        ordinal, output = self.index.ordinal(name), self.index.port(name)
        if ordinal is None or output is None:
            return Edge(name, None, target, port, False)
        return Edge(self._known_labels[ordinal], output, target, port, False)

    def result_edges(self) -> Iterator[tuple[str, Edge]]:
        """Yield the results of a graph whose values have names, each with an edge from the node that makes it."""
        for name, text in self.results.items():
            yield name, self._edge_from(text, name, None)

    def is_constant(self, name: str) -> bool:
        """Return whether a value is stored, and made by no node."""
        return (self.index.ordinal(name) or 0) >= self.index.first_constant

    # -- parts of it -------------------------------------------------------------------------------------------------

    def subgraph(self, outputs: Iterable[str]) -> GraphSelection:
        """Return the nodes that ``outputs`` need, as TensorFlow's ``extract_sub_graph`` does.

        An output is the name of a value or a node; a port (``name:0``) or ``^`` of TensorFlow is ignored. Raises
        `PathError` if nothing has a name, `LimitError` above ``max_nodes``.
        """
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        targets = [self._target(name) for name in names]
        return GraphSelection(self, self.index.reach(targets, self.extraction.session.check_cancelled), names)

    def _target(self, name: str) -> int:
        found = self.number_of(name)
        if found is None:
            raise PathError("there is no node with this name", path=name, suggestions=self.suggest(name))
        return found

    def number_of(self, name: str) -> int | None:
        """Return the number of the node, input or constant that an output of `subgraph` means; None if there is none.

        Results of a function, and values, come before nodes.
        """
        producer = self.source.producer
        result = self.results.get(name)
        for candidate in (name, producer(name), producer(result) if result is not None else None):
            found = self.index.ordinal(candidate) if candidate is not None else None
            if found is not None:
                return found
        named = self.index.named(name) if self.source.names_values else ()
        return named[-1] if named else None

    def write(self, write: Callable[[bytes], object]) -> int:
        """Write all nodes as a model of their own; return its size."""
        return self.source.write_part(None, (), write)

    def suggest(self, name: str) -> tuple[str, ...]:
        """Return up to three names similar to ``name``."""
        return near_misses(name, islice(self._names(), _NEAR))

    def _names(self) -> Iterator[str]:
        yield from self.results if self.source.names_values else ()
        for row in self.rows():
            yield row[1]
            if row[6] is not None:
                yield from (value for value in row[6] if value != row[1])

    @property
    def findings(self) -> FindingList:
        """What is wrong: missing inputs, repeated names; cycles only after `check`."""
        return self.index.findings

    def check(self) -> FindingList:
        """Find cycles, too, and return what is wrong. A loop closed by NextIteration is not a fault."""
        self.index.find_cycles()
        return self.index.findings

    def __repr__(self) -> str:
        return f"<Graph: {f'{self.kind} {self.name!r}' if self.name else self.kind} of {len(self.source)} nodes>"


_NOT: Final = bytes([1]) + bytes(255)


class GraphSelection(_GraphPart):
    """Some nodes of a graph, one bit each; iterating streams their names in the order of the graph."""

    def __init__(self, graph: Graph, marks: bytes | bytearray, wanted: Sequence[str] | None = None) -> None:
        self.lock = graph.lock
        self._graph = graph
        self.marks = marks
        """A byte for each node, then each argument, then each stored constant: 1 if it is selected."""
        self.wanted = wanted

    @property
    def graph(self) -> Graph:
        """The graph that the nodes belong to."""
        return self._graph

    def rows(self) -> Iterator[Row]:
        """Yield ``(ordinal, name, operation, inputs, where, beside, outputs)`` of each selected node."""
        marks = self.marks
        last = marks.rfind(1, 0, self.graph.index.count)
        for row in self.graph.rows() if last >= 0 else ():
            if row[0] > last:
                return
            if marks[row[0]]:
                yield row

    @property
    def arguments(self) -> list[str]:
        """The selected arguments of a function, or inputs of a graph whose values have names."""
        index = self.graph.index
        return [name for number, name in enumerate(index.arguments, index.count) if self.marks[number]]

    def constants(self) -> Iterator[str]:
        """Yield the names of the selected stored values that are no nodes."""
        first = self.graph.index.first_constant
        last = self.marks.rfind(1, first)
        for number, name in enumerate(self.graph.constants() if last >= 0 else (), first):
            if number > last:
                return
            if self.marks[number]:
                yield name

    @property
    def node_count(self) -> int:
        """The number of selected nodes, without arguments and constants."""
        return self.marks.count(1, 0, self.graph.index.count)

    @property
    def nodes(self) -> Iterator[GraphNode]:
        """The nodes, streamed."""
        source = self.graph.source
        return (GraphNode(source, row) for row in self.rows())

    def write(self, write: Callable[[bytes], object]) -> int:
        """Write the selected nodes as a model of their own; return its size."""
        return self.graph.source.write_part(self.marks, self.wanted or (), write)

    def only(self, marks: bytes | bytearray) -> GraphSelection:
        """Return what is selected here and has a mark in ``marks``, too."""
        both = int.from_bytes(self.marks, "little") & int.from_bytes(marks, "little")
        return GraphSelection(self.graph, both.to_bytes(len(self.marks), "little"), self.wanted)

    def __iter__(self) -> Iterator[str]:
        yield from self.arguments
        yield from (row[1] for row in self.rows())

    def __len__(self) -> int:
        return self.marks.count(1, 0, self.graph.index.first_constant)

    def __bool__(self) -> bool:
        return self.marks.find(1, 0, self.graph.index.first_constant) >= 0

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        index = self.graph.index
        return any(self.marks[number] for number in (*index.ordinals(name), *index.named(name)))

    def __repr__(self) -> str:
        try:
            names = few(self._first_names())
        except PparseError:  # of a document that is closed
            names = "closed"
        return f"<{len(self)} of {self.graph.index.first_constant} nodes: {names}>"

    def _first_names(self) -> Iterator[str]:
        """Yield the names that iterating does, without the rows between them."""
        yield from self.arguments
        at, count = -1, self.graph.index.count
        while (at := self.marks.find(1, at + 1, count)) >= 0:
            yield self.graph.source.row(at)[1]


class Results(KeysView[str]):
    """The names of the values that a graph returns."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<outputs: {few(self)}>"


class Bodies(Guarded, Mapping[str, Graph]):
    """Functions, and bodies of nodes, by name."""

    def __init__(self, graph: Graph, sources: Mapping[str, GraphSource]) -> None:
        self.lock = graph.lock
        self._graph = graph
        self._sources = sources

    def _made(self, source: GraphSource) -> Graph:
        around = self._graph if source.outer is self._graph.source else None
        return Graph(source, self._graph.max_nodes, around)

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def values(self) -> Iterator[Graph]:  # type: ignore[override]
        """Yield the graphs, in order."""
        return map(self._made, self._sources.values())

    def __getitem__(self, name: str) -> Graph:
        source = self._sources.get(name)
        if source is None:
            near = near_misses(name, islice(self, _NEAR))
            raise MissingNameError("there is no function or body with this name", path=name, suggestions=near)
        return self._made(source)

    def __repr__(self) -> str:
        return f"<{len(self)} bodies>"


__all__ = ["MAX_NODES", "NOBODY", "Bodies", "Edge", "Edges", "Graph", "GraphNode", "GraphNodes", "GraphSelection"]
