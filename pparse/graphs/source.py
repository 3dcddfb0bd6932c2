"""What a format says of a graph: `GraphSource`; everything else of `pparse.graphs` follows from it.

A graph is a list of nodes. A node is a *row*, streamed; nothing is kept per node but numbers
(`pparse.graphs.index`). Formats name what flows between nodes in one of two ways:

- after the node, with the number of the output: TensorFlow's ``conv:1``; the outputs of a row are None;
- with a name of its own, which the node that makes it lists among its outputs: ONNX. A source of this kind sets
  `GraphSource.names_values`, and each node has a label to be shown by.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import namedtuple

from pparse.errors import UnsupportedError
from pparse.findings import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.findings import Finding
    from pparse.tree.host import Host
    from pparse.tree.node import Node

    # ordinal, name, operation, inputs, where, beside, outputs (None: values are named after the node). The name is
    # never empty if values have names. Where it runs or is defined: a device, a domain. Beside: names that it needs
    # besides its inputs: nodes that it is colocated with, values that its bodies capture.
    Row = tuple[int, str, str, Sequence[str], str, Sequence[str], Sequence[str] | None]

MAX_NODES: Final = 500_000

Edge = namedtuple("Edge", "source output target input control")
Edge.__doc__ = """One edge: from ``output`` of the node ``source`` to ``input`` number of the node ``target``.

``output`` is a number; in the body of a function of TensorFlow it is name and number of an output (``"out:0"``). It is
None if ``source`` is no node: an argument, an input of the graph, a stored value, a value of an enclosing graph.
Control edges have neither output nor input. If only ``input`` is None, a body of ``target`` captures the value.
"""


class Value(namedtuple("Value", "name dtype shape")):
    """What is known of an input or output: name, element type, and shape.

    ``dtype`` is a name as tensors have it (``float32``) or the format's own word; empty if unknown. ``shape`` holds a
    number, a name, or None (unknown) for each dimension; it is None itself if the rank is unknown.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        return {
            "name": self.name,
            "dtype": self.dtype or None,
            "shape": None if self.shape is None else list(self.shape),
        }

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name} {self.dtype}[…]" if self.dtype else self.name
        return f"{self.name} {self.dtype}[{','.join('?' if size is None else str(size) for size in self.shape)}]"


class Signature(namedtuple("Signature", "inputs outputs method_name", defaults=("",))):
    """A way to call a model, and the ``method_name`` that it describes.

    ``inputs`` are names of arguments, to names of values in the graph (in TensorFlow ``node:0``), ``outputs`` names of
    results.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the signature as plain data, for JSON."""
        return {"inputs": self.inputs, "outputs": self.outputs, "method_name": self.method_name}

    def __repr__(self) -> str:
        return f"<Signature {', '.join(self.inputs)} -> {', '.join(self.outputs)}>"


class GraphSource(ABC):
    """One graph of a document, or one body: a function, a branch, a loop."""

    kind = "graph"  #: ``graph`` (the main one), ``function``, or ``body`` (of a node)
    format = "its format"  #: what a part of it is written as, for messages and help
    where = "device"  #: what the fifth field of a row is: ``device``, ``domain``
    names_values = False  #: whether nodes list the names of the values that they make
    in_one_piece = False  #: whether the bytes of a node in the tree are all that is said of it
    control = ""  #: what an input begins with that only makes its node wait: no data flow
    placeholders: Collection[str] = ()  #: operations that wait for an input
    loops: Collection[str] = ()  #: operations whose outputs go back to the beginning of a loop: no fault in a cycle

    outer: GraphSource | None = None  #: the graph around a body, where a name is looked up that the body does not have

    saving: Collection[str] = ()  #: operations that only save values to files, or restore them
    stored: Collection[str] = ()  #: operations that stand for stored values: variables, tables

    def __init__(self, extraction: Host, name: str = "") -> None:
        self.extraction = extraction
        """The document."""
        self.name = name
        """Name of a function or body; empty for the main graph."""

    @property
    def is_whole(self) -> bool:
        """Whether all of it is there: else what nothing makes may be behind the cut, and is no fault."""
        return True

    def findings(self) -> Iterable[Finding]:
        """Return what is wrong with what the graph was made of; that names do not fit is found out from the rows."""
        return ()

    # -- nodes -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of nodes."""

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """Yield a row for each node, in the order of the file; each is read again every time."""

    @abstractmethod
    def row(self, ordinal: int) -> Row:
        """Return the row of one node; ``ordinal`` is one of them."""

    @abstractmethod
    def node(self, ordinal: int) -> Node:
        """Return the node of the tree that describes one node."""

    def path_of(self, ordinal: int | None) -> str:
        """Return the path of a node in the tree, for findings; of None, that of the graph."""
        return self.node(ordinal).path if ordinal is not None else ""

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the attributes of a node by name, unread."""
        return {}

    # -- values that no node makes -----------------------------------------------------------------------------------

    def inputs(self) -> Sequence[str]:
        """Return the names of values that are fed in and are no nodes: arguments of a function, inputs of a graph."""
        return ()

    def constants(self) -> Iterator[str]:
        """Yield the names of values that are stored and are no nodes; none that `inputs` has, too."""
        yield from ()

    def results(self) -> Mapping[str, str]:
        """Return what the graph or body returns: names of results, each with the text of its value, as in an input."""
        return {}

    def control_results(self) -> Mapping[str, str]:
        """Return nodes that must run before a function returns, by name."""
        return {}

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of an input, output or other value; None if nothing is known.

        ``ordinal`` is the node that makes it, or has that name; None if there is none.
        """
        return None

    # -- edges -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def producer(self, text: str) -> str | None:
        """Return the name by which what gives the input ``text`` is found; None if the input is omitted: no edge.

        Of a source that names values, that of a value; else, of a node or one of `inputs`.
        """

    def edge(self, text: str, target: str, port: int) -> Edge:
        """Return the edge for the input ``text``, number ``port``, of the node ``target``.

        Not asked of a source that names values: the node that makes one is looked up.
        """
        raise NotImplementedError

    # -- other graphs ------------------------------------------------------------------------------------------------

    def bodies(self) -> Mapping[str, GraphSource]:
        """Return functions and bodies of nodes by name; made on demand. ``values()`` should stream."""
        return {}

    def functions(self) -> Mapping[str, GraphSource]:
        """Return those of `bodies` that are functions."""
        return {name: body for name, body in self.bodies().items() if body.kind == "function"}

    def signatures(self) -> dict[str, Signature]:
        """Return the ways to call the model, by name."""
        return {}

    def called(self, ordinal: int) -> str | None:
        """Return the function that a node calls, if that is what it does."""
        return None

    # -- what only saves and restores --------------------------------------------------------------------------------

    def saver(self) -> Sequence[str]:
        """Return inputs, as in a row, that name nodes which only save and restore, besides those of `saving`."""
        return ()

    def is_saver(self, name: str) -> bool:
        """Return whether the function ``name`` only saves or restores."""
        return False

    # -- writing -----------------------------------------------------------------------------------------------------

    def notes_on_part(self, outputs: Sequence[str]) -> Iterator[str]:
        """Yield what a person should know of a part with these outputs that was written."""
        yield from ()

    def write_part(
        self, marks: bytes | bytearray | None, outputs: Sequence[str], write: Callable[[bytes], object]
    ) -> int:
        """Write the marked nodes as a model of their own; return the number of bytes.

        ``marks`` has a byte for each node, then each of `inputs`, then each of `constants`: 1 if it is wanted; None
        means all. ``outputs`` are the names that were asked for; none for a whole graph.
        """
        raise UnsupportedError(f"a graph of {self.format} cannot be written as a file of its own")


class ListedGraph(GraphSource):
    """A graph whose nodes are described by a list of the tree, ``elements``; None if there is none.

    ``root`` is the message that has the list. Inputs are names of values, empty for one that is omitted.
    """

    in_one_piece = True
    elements: Any = None
    root: Any = None

    @property
    def is_whole(self) -> bool:
        """Whether the message of the graph is not cut."""
        return self.root is None or self.root.status is not Status.TRUNCATED

    def __len__(self) -> int:
        return len(self.elements) if self.elements is not None else 0

    def node(self, ordinal: int) -> Node:
        """Return the node of the tree that describes one node. Raises IndexError."""
        if not 0 <= ordinal < len(self):
            raise IndexError(f"there are {len(self)} nodes, none with number {ordinal}")
        node: Node = self.elements.child(ordinal)
        return node

    def path_of(self, ordinal: int | None) -> str:
        """Return the path of a node in the tree, or of their list."""
        path: str = self.elements.path if self.elements is not None else ""
        return path if ordinal is None else f"{path}[{ordinal}]"

    def producer(self, text: str) -> str | None:
        """Return the name of the value; None if the input is omitted."""
        return text or None
