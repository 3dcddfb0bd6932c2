"""TensorFlow graphs: nodes, edges, inputs, outputs, functions, and the subgraph that some outputs need.

A graph is a GraphDef (of a frozen graph, a MetaGraphDef or a SavedModel) or the body of a function. Iterating streams
the NodeDefs (`pparse.viewers.tensorflow.nodes`); operations that need all nodes make an index of about 30 bytes per
node on first use (`pparse.viewers.tensorflow.graph_index`).

Names (tensorflow/core/framework/node_def.proto, function.proto): an input is ``node`` (its output 0), ``node:1`` or
``^node`` (control: no data flow); in the body of a function ``argument`` or ``node:output:0``.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping
from itertools import islice

from pparse.errors import EndOfDataError, PathError, UnsupportedError
from pparse.locking import Guarded
from pparse.viewers.tensorflow.graph_index import NOBODY, GraphIndex, source_name
from pparse.viewers.tensorflow.nodes import NodeDefs, NodeRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.findings import FindingList
    from pparse.tree.host import Host
    from pparse.tree.node import Node
    from pparse.tree.result import Result
    from pparse.viewers.tensorflow.nodes import Row

MAX_NODES: Final = 500_000

Edge = namedtuple("Edge", "source output target input control")
Edge.__doc__ = """One edge: from ``output`` of the node ``source`` to ``input`` number of the node ``target``.

``output`` is a number; in the body of a function it is name and number of an output (``"out:0"``), or None for an
argument. Control edges have neither output nor input.
"""


class GraphNode(NodeRef):
    """One node of a graph: name, operation, inputs and device are known, attributes are read on demand."""

    __slots__ = ("_row",)

    def __init__(self, node: Node, row: Row) -> None:
        super().__init__(node, row[0])
        self._row = row

    @property
    def name(self) -> str:
        """Name of the node in its graph."""
        return self._row[1]

    @property
    def op(self) -> str:
        """Name of the operation."""
        return self._row[2]

    @property
    def inputs(self) -> list[str]:
        """Its inputs: ``node``, ``node:1``, ``^node``; in functions also ``argument`` and ``node:output:0``."""
        return list(self._row[3])

    @property
    def device(self) -> str:
        """Where it should run; often empty."""
        return self._row[4]


class _Part(Guarded):
    """Base of a graph and of a part of one: streams nodes and edges."""

    @property
    def graph(self) -> Graph:
        """The whole graph."""
        raise NotImplementedError

    def rows(self) -> Iterator[Row]:
        """Yield ``(ordinal, name, operation, inputs, device, colocated)`` of each node."""
        raise NotImplementedError

    @property
    def edges(self) -> Edges:
        """The edges, streamed: data and control, in the order of their targets."""
        return Edges(self)

    def to_dot(self, name: str = "") -> Iterator[str]:
        """Yield the text of a Graphviz file, a line at a time."""
        from pparse.viewers.tensorflow.graph_text import to_dot

        return to_dot(self, name)

    def to_json(self) -> Iterator[str]:
        """Yield pieces of one JSON object: ``nodes`` and ``edges``."""
        from pparse.viewers.tensorflow.graph_text import to_json

        return to_json(self)

    def to_json_lines(self) -> Iterator[str]:
        """Yield lines, each a JSON object: the nodes, then the edges."""
        from pparse.viewers.tensorflow.graph_text import to_json_lines

        return to_json_lines(self)

    def to_graph_def(self, write: Callable[[bytes], object]) -> int:
        """Write the nodes as a GraphDef, as TensorFlow's ``extract_sub_graph`` does; return the number of bytes.

        Copies the bytes of NodeDefs unchanged (damage included), with library and versions of the graph, and inserts
        what chunks of a ``.cpb`` add. Raises `UnsupportedError` for the body of a function, `MalformedError` and
        `EndOfDataError` if something to be written is not whole.
        """
        from pparse.viewers.tensorflow.graph_write import to_graph_def

        return to_graph_def(self, write)

    def save(self, path: str) -> int:
        """Write a GraphDef to a file that appears once it is complete; return its size. See `to_graph_def`."""
        from pparse.writers.files import AtomicFile

        with AtomicFile(path) as file:
            return self.to_graph_def(file.stream.write)


class Edges(Iterable[Edge]):
    """The edges of a graph or a part of it; can be iterated any number of times."""

    def __init__(self, part: _Part) -> None:
        self._part = part

    def __iter__(self) -> Iterator[Edge]:
        in_function = self._part.graph.is_function
        for _, name, _, inputs, _, _ in self._part.rows():
            port = 0
            for text in inputs:
                edge = make_edge(text, name, port, in_function)
                port += not edge.control
                yield edge

    def __repr__(self) -> str:
        return f"<Edges of {self._part!r}>"


def make_edge(text: str, target: str, port: int, in_function: bool) -> Edge:
    """Return the edge for the input ``text`` of the node ``target``."""
    if text[:1] == "^":
        return Edge(text[1:], None, target, None, True)
    source, colon, output = text.partition(":")
    if in_function:
        return Edge(source, output if colon else None, target, port, False)
    if not colon:
        return Edge(source, 0, target, port, False)
    return Edge(source, int(output) if output.isdecimal() and len(output) < 19 else output, target, port, False)


class Graph(_Part):
    """A graph with names: see the module. ``max_nodes`` bounds the index; streaming is not bounded."""

    is_function = False

    def __init__(self, root: Node | None, extraction: Host, max_nodes: int = MAX_NODES) -> None:
        self.root = root
        self.extraction = extraction
        self.lock = extraction.lock
        self.max_nodes = max_nodes
        self.defs = NodeDefs.of(root) if root is not None else NodeDefs(None)
        self._index: GraphIndex | None = None

    @property
    def rets(self) -> dict[str, str]:
        """The results of a function, by name; a graph has none."""
        return {}

    @property
    def graph(self) -> Graph:
        """The graph itself."""
        return self

    @property
    def name(self) -> str:
        """Name of the function; empty for a graph."""
        return ""

    def rows(self) -> Iterator[Row]:
        """Yield ``(ordinal, name, operation, inputs, device, colocated)`` of each node."""
        return self.defs.rows()

    @property
    def index(self) -> GraphIndex:
        """The index, made on first use. Raises `LimitError` above ``max_nodes``."""
        if self._index is None:
            self._index = GraphIndex(self.defs, self.arguments(), self.extraction, self.max_nodes)
        return self._index

    def arguments(self) -> Sequence[str]:
        """Return the names of a function's arguments."""
        return ()

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
    def inputs(self) -> Selection:
        """The nodes that need to be fed (``Placeholder`` and similar); for a function, its arguments."""
        return Selection(self, self.index.placeholders)

    @property
    def outputs(self) -> Selection:
        """The nodes that no other node consumes."""
        consumed = self.index.consumed
        count = self.index.count
        return Selection(self, consumed[:count].translate(_NOT) + bytes(len(consumed) - count))

    def subgraph(self, outputs: Iterable[str]) -> Selection:
        """Return the nodes that ``outputs`` need, as TensorFlow's ``extract_sub_graph`` does.

        An output is the name of a node; a port (``name:0``) or ``^`` is ignored. Raises `PathError` if no node has
        a name, `LimitError` above ``max_nodes``.
        """
        targets = [self._target(name) for name in ([outputs] if isinstance(outputs, str) else outputs)]
        return Selection(self, self.index.reach(targets, self.extraction.session.check_cancelled))

    def _target(self, name: str) -> int:
        for candidate in (name, source_name(name)):
            found = self.index.ordinal(candidate)
            if found is not None:
                return found
        raise PathError("there is no node with this name", path=name, suggestions=self.suggest(name))

    def suggest(self, name: str) -> tuple[str, ...]:
        """Return up to three names similar to ``name``."""
        from pparse.tree.result import near_misses

        return near_misses(name, (row[1] for row in islice(self.rows(), 20_000)))

    @property
    def findings(self) -> FindingList:
        """What is wrong: missing inputs, repeated names; cycles only after `check`."""
        return self.index.findings

    def check(self) -> FindingList:
        """Find cycles, too, and return what is wrong. A loop closed by NextIteration is not a fault."""
        self.index.find_cycles()
        return self.index.findings

    def __repr__(self) -> str:
        what = f"function {self.name!r}" if self.is_function else "graph"
        return f"<{type(self).__name__}: {what} of {len(self.defs)} nodes>"


_NOT: Final = bytes([1]) + bytes(255)


class GraphNodes(Guarded, Mapping[str, GraphNode]):
    """The nodes of a graph by name; the second of one name is ``name#2``. Arguments of a function are not nodes."""

    def __init__(self, graph: Graph) -> None:
        self.lock = graph.lock
        self._graph = graph

    def __len__(self) -> int:
        return len(self._graph.defs)

    def __iter__(self) -> Iterator[str]:
        return (row[1] for row in self._graph.rows())

    def values(self) -> Iterator[GraphNode]:  # type: ignore[override]
        """Yield the nodes, in order."""
        node = self._graph.defs.node
        if node is not None:
            for row in self._graph.rows():
                yield GraphNode(node, row)

    def items(self) -> Iterator[tuple[str, GraphNode]]:  # type: ignore[override]
        """Yield names with nodes, in order."""
        return ((node.name, node) for node in self.values())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __getitem__(self, name: str) -> GraphNode:
        ordinal = self._find(name)
        if ordinal is None:
            from pparse.tensors.viewer import MissingNameError

            raise MissingNameError("there is no node with this name", path=name, suggestions=self._graph.suggest(name))
        return self.at(ordinal)

    def at(self, ordinal: int) -> GraphNode:
        """Return node number ``ordinal``. Raises IndexError."""
        node = self._graph.defs.node
        if node is None or not 0 <= ordinal < len(self):
            raise IndexError(f"there are {len(self)} nodes, none with number {ordinal}")
        return GraphNode(node, self._graph.defs.row(ordinal))

    def _find(self, name: str) -> int | None:
        index = self._graph.index
        found = [ordinal for ordinal in index.ordinals(name) if ordinal < index.count]
        if found:
            return found[0]
        base, mark, number = name.rpartition("#")
        if not mark or not number.isdecimal() or len(number) > 9:
            return None
        found = [ordinal for ordinal in index.ordinals(base) if ordinal < index.count]
        return found[int(number) - 1] if 1 < int(number) <= len(found) else None

    def __repr__(self) -> str:
        return f"<GraphNodes: {len(self)}>"


class Selection(_Part):
    """Some nodes of a graph, one bit each; iterating streams their names in the order of the graph."""

    def __init__(self, graph: Graph, marks: bytes | bytearray) -> None:
        self.lock = graph.lock
        self._graph = graph
        self.marks = marks

    @property
    def graph(self) -> Graph:
        """The graph that the nodes belong to."""
        return self._graph

    def rows(self) -> Iterator[Row]:
        """Yield ``(ordinal, name, operation, inputs, device, colocated)`` of each selected node."""
        marks = self.marks
        last = marks.rfind(1)
        for row in self.graph.rows() if last >= 0 else ():
            if row[0] > last:
                return
            if marks[row[0]]:
                yield row

    @property
    def arguments(self) -> list[str]:
        """The selected arguments of a function."""
        index = self.graph.index
        return [name for number, name in enumerate(index.args, index.count) if self.marks[number]]

    @property
    def nodes(self) -> Iterator[GraphNode]:
        """The nodes, streamed."""
        node = self.graph.defs.node
        return (GraphNode(node, row) for row in self.rows()) if node is not None else iter(())

    def __iter__(self) -> Iterator[str]:
        yield from self.arguments
        for row in self.rows():
            yield row[1]

    def __len__(self) -> int:
        return self.marks.count(1)

    def __bool__(self) -> bool:
        return 1 in self.marks

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(self.marks[ordinal] for ordinal in self.graph.index.ordinals(name))

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.graph.index.total} nodes>"


class FunctionGraph(Graph):
    """The body of one function of a graph's library."""

    is_function = True

    @property
    def name(self) -> str:
        """Name of the function."""
        return function_name(self.root)

    def arguments(self) -> Sequence[str]:
        """Return the names of the arguments, in order."""
        signature = self.root.find("signature") if self.root is not None else None
        found = signature.find("input_arg") if signature is not None else None
        return [_text(kid, "name") for kid in found.children()] if found is not None else []

    @property
    def args(self) -> Sequence[str]:
        """The names of the arguments, in order."""
        return self.arguments()

    @property
    def rets(self) -> dict[str, str]:
        """The results: name to the tensor they return (``argument`` or ``node:output:0``)."""
        return self._texts("ret")

    @property
    def control_rets(self) -> dict[str, str]:
        """Nodes that must run before the function returns: name to node."""
        return self._texts("control_ret")

    def _texts(self, key: str) -> dict[str, str]:
        found = self.root.find(key) if self.root is not None else None
        return {str(kid.key): str(kid.load()) for kid in found.children()} if found is not None else {}

    def _target(self, name: str) -> int:
        try:
            return super()._target(name)
        except PathError:
            found = self.index.ordinal(source_name(self.rets.get(name, "")))
            if found is None:
                raise
            return found

    @property
    def findings(self) -> FindingList:
        """What is wrong with the body; also results that nothing produces."""
        index = self.index
        for name, text in {**self.rets, **self.control_rets}.items():
            if index.ordinal(source_name(text)) is None:
                index.note("missing-input", f"the result {name!r} is {text!r}, which does not exist")
        return index.findings

    def check(self) -> FindingList:
        """Find cycles, too, and return what is wrong."""
        super().check()
        return self.findings


class Functions(Guarded, Mapping[str, FunctionGraph]):
    """The functions of a graph's library by name."""

    def __init__(self, library: Node | None, extraction: Host, max_nodes: int) -> None:
        self._list = library.find("function") if library is not None else None
        self.lock = extraction.lock
        self._extraction = extraction
        self._max_nodes = max_nodes
        self._numbers: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self._list) if self._list is not None else 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def _names(self) -> dict[str, int]:
        if self._numbers is None:
            numbers: dict[str, int] = {}
            self._charge = self._extraction.session.budget.charge(0, "the names of functions")
            room = 0
            for kid in self._list.children() if self._list is not None else ():
                name = function_name(kid)
                room += 200 + len(name)
                if not kid.ordinal & 0xFF:
                    self._charge.resize(room)
                numbers.setdefault(name, kid.ordinal)
            self._numbers = numbers
        return self._numbers

    def values(self) -> Iterator[FunctionGraph]:  # type: ignore[override]
        """Yield the functions, in order."""
        for kid in self._list.children() if self._list is not None else ():
            yield FunctionGraph(kid, self._extraction, self._max_nodes)

    def __getitem__(self, name: str) -> FunctionGraph:
        number = self._names().get(name)
        if number is None or self._list is None:
            from pparse.tensors.viewer import MissingNameError
            from pparse.tree.result import near_misses

            raise MissingNameError(
                "there is no function with this name", path=name, suggestions=near_misses(name, islice(self, 20_000))
            )
        return FunctionGraph(self._list.child(number), self._extraction, self._max_nodes)

    def __repr__(self) -> str:
        return f"<Functions: {len(self)}>"


class TensorflowGraph(Graph):
    """The graph of a SavedModel, MetaGraphDef or GraphDef, with its functions and signatures.

    ``source`` is an Extraction, a Result, or the node of such a message; ``meta_graph`` selects one of a SavedModel.
    Raises `UnsupportedError` if there is no graph.
    """

    def __init__(self, source: Extraction | Result | Node, *, meta_graph: int = 0, max_nodes: int = MAX_NODES) -> None:
        from pparse.tree.node import Node

        root = source if isinstance(source, Node) else source.root
        self.meta_graph: Node | None = None
        if root.kind == "tensorflow.SavedModel":
            graphs = root.find("meta_graphs")
            count = len(graphs) if graphs is not None else 0
            if graphs is None or not 0 <= meta_graph < count:
                raise PathError(
                    f"the SavedModel has {count} meta graphs, none with number {meta_graph}", path="meta_graphs"
                )
            self.meta_graph = graphs.child(meta_graph)
        elif root.kind == "tensorflow.MetaGraphDef":
            self.meta_graph = root
        elif root.kind != "tensorflow.GraphDef":
            if root.kind == "chunk[]":
                reason = root.finding.reason if root.load() is not None and root.finding is not None else ""
                raise EndOfDataError(
                    f"no graph can be read without the chunk metadata: {reason}", source=root.extraction.name
                )
            name = root.extraction.name
            raise UnsupportedError(f"{name}: it holds no TensorFlow graph: it is of kind {root.kind}")
        graph = self.meta_graph.find("graph_def") if self.meta_graph is not None else root
        super().__init__(graph, root.extraction, max_nodes)

    @property
    def functions(self) -> Functions:
        """The functions of the library, each of them a graph."""
        library = self.root.find("library") if self.root is not None else None
        return Functions(library, self.extraction, self.max_nodes)

    @property
    def signatures(self) -> dict[str, Signature]:
        """The signatures of a SavedModel by name."""
        found = self.meta_graph.find("signature_def") if self.meta_graph is not None else None
        return {str(kid.key): Signature(kid) for kid in found.children()} if found is not None else {}


class Signature:
    """One signature."""

    __slots__ = ("inputs", "method_name", "outputs")

    def __init__(self, node: Node) -> None:
        self.inputs = self._tensors(node.find("inputs"))
        """Names of arguments, to names of tensors (``node:0``)."""
        self.outputs = self._tensors(node.find("outputs"))
        """Names of results, to names of tensors (``node:0``)."""
        self.method_name = _text(node, "method_name")
        """The method that it describes."""

    @staticmethod
    def _tensors(found: Node | None) -> dict[str, str]:
        # A composite or sparse tensor has no single name.
        return {str(kid.key): _text(kid, "name") for kid in found.children()} if found is not None else {}

    def to_dict(self) -> dict[str, Any]:
        """Return the signature as plain data, for JSON."""
        return {"inputs": self.inputs, "outputs": self.outputs, "method_name": self.method_name}

    def __repr__(self) -> str:
        return f"<Signature {', '.join(self.inputs)} -> {', '.join(self.outputs)}>"


def function_name(function: Node | None) -> str:
    """Return the name of a function from the node of its FunctionDef."""
    signature = function.find("signature") if function is not None else None
    return _text(signature, "name") if signature is not None else ""


def _text(node: Node, key: str) -> str:
    found = node.find(key)
    return str(found.load()) if found is not None else ""


__all__ = [
    "MAX_NODES",
    "NOBODY",
    "Edge",
    "FunctionGraph",
    "Functions",
    "Graph",
    "GraphNode",
    "GraphNodes",
    "Selection",
    "Signature",
    "TensorflowGraph",
]
