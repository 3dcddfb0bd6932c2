"""TensorFlow's graphs for `pparse.graphs`: a GraphDef (frozen, of a MetaGraphDef or SavedModel), and its functions.

Names (tensorflow/core/framework/node_def.proto, function.proto): an input is ``node`` (its output 0), ``node:1`` or
``^node`` (control: no data flow); in the body of a function ``argument`` or ``node:output:0``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property

from pparse.data.base import Range, copy_into
from pparse.errors import EndOfDataError, FaultError, MalformedError, PathError, PparseError, UnsupportedError
from pparse.findings import Finding
from pparse.graphs.graph import Graph
from pparse.graphs.source import Edge, ListedGraph, Signature, Value
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN, PADDING, read_length
from pparse.parsers.cpb.parser import CHUNKS
from pparse.parsers.protobuf.check import Checker
from pparse.parsers.protobuf.index import WireWindow
from pparse.parsers.protobuf.lists import Run
from pparse.parsers.protobuf.write import measure, operations, write
from pparse.protos import schema as builtin_schema
from pparse.tree.below import kids_of, node_at, text_at, value_at
from pparse.viewers.tensor_proto.viewer import index_of, joined, wires
from pparse.viewers.tensorflow.constants import GRAPH, META_GRAPH, SAVED_MODEL, function_name
from pparse.viewers.tensorflow.meta import shape_of
from pparse.viewers.tensorflow.tensors import dtype_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.source import Row
    from pparse.parsers.protobuf.index import PartScan, WireField
    from pparse.tree.host import Host
    from pparse.tree.node import Node
    from pparse.tree.result import Result

# -- the nodes of a graph, streamed: name, operation, inputs and device of each NodeDef, without a tree node -----------

# A GraphDef may have a million NodeDefs; a tree node would take some 50 us each, this takes 3. The bytes of the list
# are walked block by block, jumping over large attributes (constants). What the bytes of one part alone do not tell
# (elements that chunks of a ``.cpb`` add to, damage) is read through the tree. Field numbers are those of
# tensorflow/core/framework/node_def.proto.

_NAME: Final = 1 << 3 | LEN
_OP: Final = 2 << 3 | LEN
_INPUT: Final = 3 << 3 | LEN
_DEVICE: Final = 4 << 3 | LEN
_ATTR: Final = 5 << 3 | LEN
_REST: Final = (6 << 3 | LEN, 7 << 3 | LEN)
# An entry of the map ``attr`` begins with its key, as every serializer writes it.
_CLASS: Final = b"\n\x06_class"
_LOCATION: Final = "loc:@"

_FIRST_BLOCK: Final = 4 << 10
_LAST_BLOCK: Final = 256 << 10
# A NodeDef larger than this that the end of a block cuts off is read field by field, not whole.
_LARGE: Final = 16 << 10


class NodeDefs(ListedGraph):
    """A message with a list of NodeDefs (``GraphDef.node``, ``FunctionDef.node_def``), streamed in order.

    ``root`` is its node in the tree; None stands for an empty one. Unreadable fields of damaged NodeDefs are empty, and
    recorded in the findings of the document.
    """

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
        super().__init__(extraction, name)
        self.root = root
        self.elements = node_at(root, "node") or node_at(root, "node_def")

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

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield ``(ordinal, name, operation, inputs, device, colocated, None)`` of each element: values have no names.

        ``colocated`` are the names in the attribute ``_class``, without ``loc:@``. Names must be UTF-8.
        """
        index = index_of(self.elements)
        if index is None:
            return
        touched = index.touched()
        for first, segment in zip(index.firsts, index.segments, strict=True):
            if isinstance(segment, Run):
                yield from self._run(segment.scan, segment.key, first, segment.count, touched)
            else:
                yield from map(self._by_tree, range(first, first + segment.count))

    # -- elements one by one in a part ---------------------------------------------------------------------------------

    def _run(self, scan: PartScan, key: int, ordinal: int, count: int, touched: Sequence[int]) -> Iterator[Row]:
        """Yield the rows of ``count`` elements of a part, from number ``ordinal`` on."""
        stop = ordinal + count
        for found in self._blocks(scan, key, ordinal, stop):
            rows = found if isinstance(found, list) else [self._at(ordinal, found)]
            last = ordinal + len(rows)
            for number in touched[bisect_left(touched, ordinal) : bisect_left(touched, last)]:
                rows[number - ordinal] = self._by_tree(number)
            yield from rows
            ordinal = last
        yield from map(self._by_tree, range(ordinal, stop))  # what the bytes do not tell

    def _blocks(self, scan: PartScan, key: int, ordinal: int, stop: int) -> Iterator[list[Row] | Range]:
        """Yield elements up to number ``stop``: many as rows, or the bytes of one. Ends early if bytes are missing."""
        session = self.elements.extraction.session
        part = scan.part
        window = scan.window()
        tag = key << 3 | LEN
        pos, step = scan.slots[key].offsets[0], _FIRST_BLOCK
        while ordinal < stop:
            session.check_cancelled()
            try:
                block = part.data.pread(pos, min(step, part.end - pos))
            except FaultError:  # a gap, or a chunk that cannot be decompressed
                return
            if not block:
                return
            rows: list[Row] = []
            size = len(block)
            after = read_node_defs(block + PADDING, 0, size, tag, ordinal, stop, rows)
            if rows:
                yield rows
                ordinal += len(rows)
            step = min(4 * step, _LAST_BLOCK)
            if ordinal >= stop:
                return
            if after and size - after < _LARGE and pos + size < part.end:
                pos += after
                continue
            # Large, damaged, or another field: one step by the window.
            try:
                field = window.field(pos + after)
            except FaultError:
                return
            if scan.key_of(field.tag) == key:
                yield part.data.range(field.start, min(field.end, part.end))
                ordinal += 1
            pos, step = field.next, _FIRST_BLOCK

    def row(self, ordinal: int) -> Row:
        """Return the row of one element."""
        index = index_of(self.elements)
        pieces = index.message_at(ordinal)[0] if index is not None else ()
        part = pieces[0] if len(pieces) == 1 else None
        return self._at(ordinal, part) if isinstance(part, Range) else self._by_tree(ordinal)

    # -- one element -------------------------------------------------------------------------------------------------

    def _at(self, ordinal: int, part: Range) -> Row:
        """Return the row of an element in one stretch, read field by field: large ones that are not needed are skipped.

        If it is not whole, or not in the form that serializers write, it is read through the tree.
        """
        session = self.elements.extraction.session
        texts: dict[int, bytes] = {}
        inputs: list[str] = []
        colocated: tuple[str, ...] = ()
        window, pos = WireWindow(part.data, part.end), part.start
        try:
            with session.budget.charge(0, "the inputs of one node of a graph") as room:
                while pos < part.end:
                    field = window.field(pos)
                    pos = field.next
                    if pos > part.end or field.tag & 7 != LEN:
                        return self._by_tree(ordinal)
                    if field.tag == _ATTR:
                        colocated = self._colocated(field, window, colocated)
                    elif field.tag in (_NAME, _OP, _INPUT, _DEVICE):
                        size = field.end - field.start
                        session.limits.check("name_bytes", size, "a name in a NodeDef", offset=field.start)
                        text = texts[field.tag] = window.read(field.start, field.end)
                        if field.tag == _INPUT:
                            inputs.append(text.decode())
                            if not len(inputs) & 0xFFF:
                                room.resize(100 * len(inputs))
            name, op, device = (texts.get(tag, b"").decode() for tag in (_NAME, _OP, _DEVICE))
        except (FaultError, UnicodeDecodeError):
            return self._by_tree(ordinal)
        return ordinal, name, op, inputs, device, colocated, None

    def _colocated(self, field: WireField, window: WireWindow, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names in the attribute ``_class``; what is ``known`` of it if this is another one."""
        head = window.read(field.start, min(field.end, field.start + len(_CLASS)))
        found: tuple[str, ...] | None = known if head[:1] == b"\n" else None
        if head == _CLASS:
            limits = self.elements.extraction.session.limits
            limits.check("header_bytes", field.end - field.start, "the attribute _class", offset=field.start)
            entry = window.read(field.start, field.end)
            found = read_class(entry + PADDING, len(_CLASS), len(entry))
        if found is None:
            raise MalformedError("an attribute is not in the form that serializers write", offset=field.start)
        return found

    def _by_tree(self, ordinal: int) -> Row:
        """Return the row of an element from the tree; damaged fields are empty, and recorded."""
        node = self.elements.child(ordinal)
        name, op, device = (str(_load(node, key) or "") for key in ("name", "op", "device"))
        inputs = _load_all(node, "input")
        attr = node.find("attr")
        value = attr.find("_class") if attr is not None else None
        texts = _load_all(value.find("list"), "s") if value is not None else []
        return ordinal, name, op, inputs, device, tuple(text.removeprefix(_LOCATION) for text in texts), None


def read_node_defs(  # noqa: C901 -- hot loop: a call for each NodeDef costs 15 %
    block: bytes, pos: int, size: int, tag: int, ordinal: int, stop: int, rows: list[Row]
) -> int:
    """Append the rows of the NodeDefs in ``block[pos:size]``, fields with ``tag``; return where it stopped.

    ``ordinal`` is the number of the first, ``stop`` one past the last one wanted. Stops before anything that is
    not whole in the block, is another field, or needs a closer look. `PADDING` follows the block at ``size``.
    """
    while pos < size and ordinal < stop:
        begin = pos
        if block[pos] != tag:
            return begin
        length = block[pos + 1]
        pos += 2
        try:
            if length >= 0x80:
                length, pos = read_length(block, pos - 1)
            end = pos + length
            if end > size:
                return begin
            name = op = device = ""
            inputs: list[str] = []
            colocated: tuple[str, ...] = ()
            while pos < end:
                byte = block[pos]
                length = block[pos + 1]
                pos += 2
                if length >= 0x80:
                    length, pos = read_length(block, pos - 1)
                after = pos + length
                if byte == _ATTR:
                    if block[pos] != 0x0A:
                        return begin
                    if block[pos + 1] == 6 and block.startswith(_CLASS, pos):
                        found = read_class(block, pos + len(_CLASS), after)
                        if found is None or after > end:
                            return begin
                        colocated = found
                elif byte == _INPUT:
                    inputs.append(block[pos:after].decode())
                elif byte == _NAME:
                    name = block[pos:after].decode()
                elif byte == _OP:
                    op = block[pos:after].decode()
                elif byte == _DEVICE:
                    device = block[pos:after].decode()
                elif byte not in _REST:
                    return begin
                pos = after
            if pos != end:
                return begin
        except (PparseError, UnicodeDecodeError, IndexError):
            return begin
        rows.append((ordinal, name, op, inputs, device, colocated, None))
        ordinal += 1
    return pos


def read_class(block: bytes, pos: int, end: int) -> tuple[str, ...] | None:
    """Return the names in the value of an attribute ``_class`` (``list.s``), whose entry is ``block[pos:end]``.

    None if it is not in the form that serializers write: a message (2) with a message (1) with strings (2).
    """
    for tag in (0x12, 0x0A):
        if pos >= end:
            return ()
        if block[pos] != tag:
            return None
        length, pos = read_length(block, pos + 1)
        if pos + length != end:
            return None
    names = []
    while pos < end:
        if block[pos] != 0x12:
            return None
        length, pos = read_length(block, pos + 1)
        if length > end - pos:
            return None
        names.append(block[pos : pos + length].decode().removeprefix(_LOCATION))
        pos += length
    return tuple(names)


def _load(node: Node, key: str = "") -> Any:
    """Return a scalar, or one of a message; None if it is not set, or cannot be read, which is recorded."""
    try:
        found = node.find(key) if key else node
        value = found.load() if found is not None else None
        return value.decode() if isinstance(value, bytes) else value
    except (FaultError, UnicodeDecodeError) as error:
        _note(node, key, error)
        return None


def _load_all(node: Node | None, key: str) -> list[str]:
    """Return the elements of a list of strings; empty if they cannot be read, which is recorded."""
    found = node.find(key) if node is not None else None
    return [str(_load(kid) or "") for kid in found.children()] if found is not None else []


def _note(node: Node, key: str, error: Exception) -> None:
    """Record in the findings of the document what cannot be read, at ``key`` of a node or at the node itself."""
    code = "truncated" if isinstance(error, EOFError) else "malformed"
    reason = error.reason if isinstance(error, PparseError) else str(error)
    path = f"{node.path}.{key}" if key else node.path

    node.result.findings.add(Finding(code, reason, path=path, source=node.extraction.name, offset=node.start))


# -- graphs and their functions ----------------------------------------------------------------------------------------


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
            reason = f"the SavedModel has {count} meta graphs, none with number {meta_graph}"
            raise PathError(reason, path="meta_graphs")
        meta = graphs.child(meta_graph)
    elif root.kind == META_GRAPH:
        meta = root
    elif root.kind != GRAPH:
        name = root.extraction.name
        if root.kind == CHUNKS:
            reason = root.finding.reason if root.load() is not None and root.finding is not None else ""
            raise EndOfDataError(f"no graph can be read without the chunk metadata: {reason}", source=name)
        raise UnsupportedError(f"{name}: it holds no TensorFlow graph: it is of kind {root.kind}")
    return Graph(MainGraph(meta.find("graph_def") if meta is not None else root, root.extraction, meta), max_nodes)


# Functions with which TensorFlow 2 saves and restores variables.
_SAVERS: Final = ("__inference__traced_save", "__inference__traced_restore")


class MainGraph(NodeDefs):
    """A GraphDef; ``meta`` is the MetaGraphDef that it is in, if any."""

    def __init__(self, root: Node | None, extraction: Host, meta: Node | None = None) -> None:
        super().__init__(root, extraction)
        self.meta = meta

    def bodies(self) -> FunctionLibrary:
        """Return the functions of the library."""
        return FunctionLibrary(self.root, self.extraction)

    functions = bodies

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


class FunctionBody(NodeDefs):
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


class FunctionLibrary(Mapping[str, FunctionBody]):
    """The functions of a graph's library by name."""

    def __init__(self, graph: Node | None, extraction: Host) -> None:
        self._list: Any = node_at(graph, "library", "function")
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
        number = self._numbers[name]  # before all else: there may be no list
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
    marked = ((ordinal, found) for ordinal, found in wires(graph.elements) if marks is None or marks[ordinal])
    for found in joined(ordinal if found is None else found for ordinal, found in marked):
        check()
        if isinstance(found, Range):
            done += _copy(found, out, checker)
        else:
            done += _message(_NODE, graph.node(found), out)
    for number, name in ((_LIBRARY, "library"), (_VERSIONS, "versions")):
        done += _message(number, graph.root.find(name) if graph.root is not None else None, out)
    return done


def _copy(fields: Range, out: Callable[[bytes], object], checker: Checker) -> int:
    # Consecutive fields `node` form a GraphDef.
    if not checker.sound(fields, builtin_schema().message(GRAPH)):
        reason = "a node of the graph is damaged, and the copy would be, too ('pparse check' tells more)"
        raise MalformedError(reason, offset=checker.stopped, source=fields.data.name)
    copy_into(fields.data, fields.start, len(fields), out)
    return len(fields)


def _message(number: int, node: Node | None, out: Callable[[bytes], object]) -> int:
    """Write a message of the tree with its tag, or an empty one if there is no node."""
    sizes = measure(operations(node)) if node is not None else array("Q", [0])
    head = encode_varint(number << 3 | LEN) + encode_varint(sizes[0])
    out(head)
    written = write(operations(node), sizes, out) if node is not None else 0
    if written != sizes[0]:
        raise MalformedError("the source changed while it was copied", wanted=sizes[0], got=written)
    return len(head) + written
