"""TensorFlow's graphs for `pparse.graphs`: a GraphDef (frozen, of a MetaGraphDef or SavedModel), and its functions.

Names (tensorflow/core/framework/node_def.proto, function.proto): an input is ``node`` (its output 0), ``node:1`` or
``^node`` (control: no data flow); in the body of a function ``argument`` or ``node:output:0``.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from functools import cached_property

from pparse.data.base import copy_into
from pparse.errors import (
    EndOfDataError,
    FaultError,
    MalformedError,
    PathError,
    UnsupportedError,
)
from pparse.graphs.graph import Graph
from pparse.graphs.source import Edge, GraphSource, Signature, Value
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN
from pparse.parsers.cpb.parser import CHUNKS
from pparse.parsers.protobuf.check import Checker
from pparse.parsers.protobuf.write import measure, write
from pparse.protos import schema as builtin_schema
from pparse.viewers.tensor_proto.viewer import kids_of, node_at, text_at, value_at
from pparse.viewers.tensorflow.constants import GRAPH, META_GRAPH, SAVED_MODEL, function_name
from pparse.viewers.tensorflow.element_types import dtype_of
from pparse.viewers.tensorflow.meta import shape_of
from pparse.viewers.tensorflow.nodes import NodeDefs, node_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.tree.host import Host
    from pparse.tree.node import Node
    from pparse.tree.result import Result


def tensorflow_graph(source: Extraction | Result | Node, *, meta_graph: int = 0, max_nodes: int | None = None) -> Graph:
    """Return the graph of a SavedModel, MetaGraphDef or GraphDef: a document, its result, or the node of one.

    ``meta_graph`` selects one of a SavedModel. Raises `UnsupportedError` if there is no graph.
    """
    from pparse.tree.node import Node

    root = source if isinstance(source, Node) else source.root
    meta: Node | None = None
    if root.kind == SAVED_MODEL:
        graphs = root.find("meta_graphs")
        count = len(graphs) if graphs is not None else 0
        if graphs is None or not 0 <= meta_graph < count:
            raise PathError(
                f"the SavedModel has {count} meta graphs, none with number {meta_graph}", path="meta_graphs"
            )
        meta = graphs.child(meta_graph)
    elif root.kind == META_GRAPH:
        meta = root
    elif root.kind != GRAPH:
        if root.kind == CHUNKS:
            reason = root.finding.reason if root.load() is not None and root.finding is not None else ""
            raise EndOfDataError(
                f"no graph can be read without the chunk metadata: {reason}", source=root.extraction.name
            )
        name = root.extraction.name
        raise UnsupportedError(f"{name}: it holds no TensorFlow graph: it is of kind {root.kind}")
    return Graph(MainGraph(meta.find("graph_def") if meta is not None else root, root.extraction, meta), max_nodes)


# Functions with which TensorFlow 2 saves and restores variables.
_SAVERS: Final = ("__inference__traced_save", "__inference__traced_restore")


class _Defs(NodeDefs, GraphSource):
    """A message with a list of NodeDefs; ``root`` is its node, None if there is none."""

    format = "TensorFlow"
    control = "^"
    saving = (
        "MergeV2Checkpoints",
        "Restore",
        "RestoreSlice",
        "RestoreV2",
        "Save",
        "SaveSlices",
        "SaveV2",
        "ShardedFilename",
        "ShardedFilespec",
    )
    stored = (
        "AutoReloadVariable",
        "HashTable",
        "HashTableV2",
        "MutableDenseHashTable",
        "MutableDenseHashTableV2",
        "MutableHashTable",
        "MutableHashTableV2",
        "VarHandleOp",
        "Variable",
        "VariableV2",
    )
    placeholders = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
    loops = ("NextIteration", "RefNextIteration")  # of TensorFlow 1

    def __init__(self, root: Node | None, extraction: Host, name: str = "") -> None:
        GraphSource.__init__(self, extraction, name)
        NodeDefs.__init__(self, node_list(root))
        self.root = root

    def path_of(self, ordinal: int | None) -> str:
        """Return the path of a NodeDef, or of their list."""
        path = self.elements.path if self.elements is not None else ""
        return path if ordinal is None else f"{path}[{ordinal}]"

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the AttrValues of a node by name."""
        return {str(kid.key): kid for kid in kids_of(self.node(ordinal).find("attr"))}

    def called(self, ordinal: int) -> str | None:
        """Return the function in ``f`` of a (Stateful)PartitionedCall, or that which the operation is named after."""
        op = self.row(ordinal)[2]
        if op not in ("PartitionedCall", "StatefulPartitionedCall"):
            return op
        value = self.attributes(ordinal).get("f")
        function = value.find("func") if value is not None else None
        return _text(function, "name") if function is not None else None

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape; None if nothing is known, or it cannot be read."""
        try:
            return self.described(name, ordinal)
        except FaultError:
            return None

    def described(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape. Raises what reading them raises."""
        raise NotImplementedError

    def producer(self, text: str) -> str:
        """Return the name of the node in an input: of ``node``, ``node:1``, ``node:output:0``, ``^node``."""
        return text[1:] if text[:1] == "^" else text.partition(":")[0]

    def edge(self, text: str, target: str, port: int) -> Edge:
        """Return the edge for an input."""
        if text[:1] == "^":
            return Edge(text[1:], None, target, None, True)
        source, colon, output = text.partition(":")
        return Edge(source, self.output(output, colon), target, port, False)

    def output(self, text: str, colon: str) -> int | str | None:
        """Return which output of a node the ``text`` behind a colon means; there may be no colon."""
        if not colon:
            return 0
        return int(text) if text.isdecimal() and len(text) < 19 else text


class MainGraph(_Defs):
    """A GraphDef; ``meta`` is the MetaGraphDef that it is in, if any."""

    def __init__(self, root: Node | None, extraction: Host, meta: Node | None = None) -> None:
        super().__init__(root, extraction)
        self.meta = meta

    def bodies(self) -> Library:
        """Return the functions of the library."""
        return Library(self.root, self.extraction)

    def functions(self) -> Library:
        """Return the functions of the library."""
        return self.bodies()

    def signatures(self) -> dict[str, Signature]:
        """Return the signatures of a SavedModel."""
        return {
            str(kid.key): Signature(
                _tensors(kid.find("inputs")), _tensors(kid.find("outputs")), _text(kid, "method_name")
            )
            for kid in kids_of(node_at(self.meta, "signature_def"))
        }

    def saver(self) -> Sequence[str]:
        """Return the tensors and the operation that a SaverDef names."""
        names = ("filename_tensor_name", "save_tensor_name", "restore_op_name")
        return [text for key in names if (text := text_at(self.meta, "saver_def", key))]

    def is_saver(self, name: str) -> bool:
        """Return whether a function only saves or restores."""
        return name.startswith(_SAVERS)

    def described(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape: of an output of a node, what its attributes say, or else a signature."""
        node, colon, output = name.partition(":")
        port = self.output(output, colon)
        attr = self.attributes(ordinal) if ordinal is not None and ordinal < len(self) else {}
        if "dtype" in attr and "shape" in attr and port == 0:
            return _value(name, value_at(attr["dtype"], "type"), attr["shape"].find("shape"))
        info = self._infos.get((node, port))
        if info is not None:
            return _value(name, value_at(info, "dtype"), info.find("tensor_shape"))
        made = node_at(attr.get("Tout"), "list", "type", port) if isinstance(port, int) else None
        if made is None or not isinstance(port, int):
            return None
        return _value(name, made.load(), node_at(attr.get("_output_shapes"), "list", "shape", port))

    @cached_property
    def _infos(self) -> dict[tuple[str, int | str | None], Node]:
        """The TensorInfos of all signatures by the name of the node and the number of its output."""
        found: dict[tuple[str, int | str | None], Node] = {}
        for signature in kids_of(node_at(self.meta, "signature_def")):
            for key in ("inputs", "outputs"):
                for kid in kids_of(signature.find(key)):
                    node, colon, output = text_at(kid, "name").partition(":")
                    found.setdefault((node, self.output(output, colon)), kid)
        return found

    def write_part(
        self, marks: bytes | bytearray | None, outputs: Sequence[str], write: Callable[[bytes], object]
    ) -> int:
        """Write the marked nodes as a GraphDef; return the number of bytes."""
        return write_graph_def(self, marks, write)


class FunctionBody(_Defs):
    """A FunctionDef."""

    kind = "function"

    def __init__(self, root: Node, extraction: Host) -> None:
        super().__init__(root, extraction, function_name(root))

    def inputs(self) -> Sequence[str]:
        """Return the names of the arguments, in order."""
        return self._arguments

    @cached_property
    def _arguments(self) -> list[str]:
        return [_text(kid, "name") for kid in kids_of(node_at(self.root, "signature", "input_arg"))]

    def described(self, name: str, ordinal: int | None) -> Value | None:
        """Return the type of an argument, and the shape that was noted when the function was made."""
        try:
            number = self.inputs().index(name)
        except ValueError:
            return None
        noted = node_at(self.root, "arg_attr", number, "attr", "_output_shapes", "list", "shape", 0)
        return _value(name, value_at(self.root, "signature", "input_arg", number, "type"), noted)

    def results(self) -> dict[str, str]:
        """Return the results: name to ``argument`` or ``node:output:0``."""
        return self._texts("ret")

    def control_results(self) -> dict[str, str]:
        """Return the nodes that must run before the function returns, by name."""
        return self._texts("control_ret")

    def _texts(self, key: str) -> dict[str, str]:
        return {str(kid.key): str(kid.load()) for kid in kids_of(node_at(self.root, key))}

    def output(self, text: str, colon: str) -> str | None:
        """Return the output of a node; None for an argument."""
        return text if colon else None

    def write_part(
        self, marks: bytes | bytearray | None, outputs: Sequence[str], write: Callable[[bytes], object]
    ) -> int:
        """Refuse: the edges of a function's body have another meaning in a graph."""
        raise UnsupportedError(f"the body of the function {self.name!r} cannot be written as a graph of its own")


class Library(Mapping[str, FunctionBody]):
    """The functions of a graph's library by name."""

    def __init__(self, graph: Node | None, extraction: Host) -> None:
        self._list = node_at(graph, "library", "function")
        self._extraction = extraction

    def __len__(self) -> int:
        return len(self._list) if self._list is not None else 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        numbers: dict[str, int] = {}
        self._charge = self._extraction.session.budget.charge(0, "the names of functions")
        room = 0
        for kid in kids_of(self._list):
            name = function_name(kid)
            room += 200 + len(name)
            if not kid.ordinal & 0xFF:
                self._charge.resize(room)
            numbers.setdefault(name, kid.ordinal)
        return numbers

    def values(self) -> Iterator[FunctionBody]:  # type: ignore[override]
        """Yield the functions, in order."""
        return (FunctionBody(kid, self._extraction) for kid in kids_of(self._list))

    def __getitem__(self, name: str) -> FunctionBody:
        number = self._numbers[name]
        if self._list is None:
            raise KeyError(name)
        return FunctionBody(self._list.child(number), self._extraction)


def _value(name: str, number: object, shape: Node | None) -> Value:
    """Return a value of a type in the enum DataType; without a shape, its rank is unknown."""
    stored = number if isinstance(number, str) else f"DT_{number}" if number else ""
    known = dtype_of(builtin_schema().enum("tensorflow.DataType").numbers.get(stored, 0))
    dtype = known.name if known is not None else stored.removeprefix("DT_").lower()
    sizes = shape_of(shape)
    return Value(name, dtype, None if sizes is None else tuple(size if size >= 0 else None for size in sizes))


def _tensors(found: Node | None) -> dict[str, str]:
    # A composite or sparse tensor has no single name.
    return {str(kid.key): _text(kid, "name") for kid in kids_of(found)}


def _text(node: Node, key: str) -> str:
    found = node.find(key)
    return str(found.load()) if found is not None else ""


# -- Writes a part of a graph as a GraphDef of its own, streamed; NodeDefs are copied unchanged ------------------------

_NODE: Final = 1
_LIBRARY: Final = 2
_VERSIONS: Final = 4


def write_graph_def(graph: MainGraph, marks: bytes | bytearray | None, out: Callable[[bytes], object]) -> int:
    """Write the marked nodes of a graph (None: all) as a GraphDef; return the number of bytes.

    Always sets library and versions, as TensorFlow's ``extract_sub_graph`` does; inserts what chunks of a ``.cpb`` add.
    """
    check = graph.extraction.session.check_cancelled
    checker = Checker(check)
    done = 0
    start = stop = 0
    data = None
    for ordinal, found in graph.wire():
        if marks is not None and not marks[ordinal]:
            continue
        if found is not None and found.data is data and found.start == stop:
            stop = found.end  # copy neighbours together
            continue
        check()
        done += _copy(data, start, stop, out, checker)
        data = None
        if found is None:
            done += _message(_NODE, graph.node(ordinal), out)
        else:
            data, start, stop = found.data, found.start, found.end
    done += _copy(data, start, stop, out, checker)
    for number, name in ((_LIBRARY, "library"), (_VERSIONS, "versions")):
        done += _message(number, graph.root.find(name) if graph.root is not None else None, out)
    return done


def _copy(data: Data | None, start: int, stop: int, out: Callable[[bytes], object], checker: Checker) -> int:
    if data is None:
        return 0
    # Consecutive fields `node` form a GraphDef.
    if not checker.sound(data.range(start, stop), builtin_schema().message("tensorflow.GraphDef")):
        reason = "a node of the graph is damaged, and the copy would be, too ('pparse check' tells more)"
        raise MalformedError(reason, offset=checker.stopped, source=data.name)
    copy_into(data, start, stop - start, out)
    return stop - start


def _message(number: int, node: Node | None, out: Callable[[bytes], object]) -> int:
    """Write a message of the tree with its tag, or an empty one if there is no node."""
    sizes = measure(node) if node is not None else array("Q", [0])
    head = encode_varint(number << 3 | LEN) + encode_varint(sizes[0])
    out(head)
    written = write(node, sizes, out) if node is not None else 0
    if written != sizes[0]:
        raise MalformedError("the source changed while it was copied", wanted=sizes[0], got=written)
    return len(head) + written
