"""Writes a part of a graph as a model of its own, streamed: nodes, initializers and types are copied unchanged."""

from __future__ import annotations

from pparse.data.base import copy_into
from pparse.errors import MalformedError
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN
from pparse.parsers.protobuf.check import Checker
from pparse.parsers.protobuf.index import PartScan
from pparse.parsers.protobuf.lists import ListIndex, Run
from pparse.tree.entry import SCALAR
from pparse.viewers.onnx.rows import text_of
from pparse.viewers.tensor_proto.viewer import kids_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Final

    from pparse.data.reader import Range
    from pparse.protobuf.schema import MessageType
    from pparse.tree.node import Node
    from pparse.viewers.onnx.graph import OnnxGraph

    Write = Callable[[bytes], object]

_GRAPH: Final = 7
# Fields of a model that a part does not have: training is of the whole.
_LEFT_OUT: Final = frozenset((_GRAPH, 20))
_GRAPH_NAME, _DOC, _OUTPUT = 2, 10, 12
_NAME: Final = 1


def write_model(graph: OnnxGraph, marks: bytes | bytearray | None, outputs: Sequence[str], write: Write) -> int:
    """Write the marked nodes, inputs and initializers of a main graph (None: all) as a model; return its size.

    ``marks`` has a byte for each node, each of `OnnxGraph.inputs` and each of `OnnxGraph.constants`. ``outputs`` name
    values, or nodes, whose outputs are meant; none: those of the graph. Operator sets, functions and properties are
    those of the model; files with external data are referred to as in the model. An output whose type the model does
    not state is written without a type. Raises `MalformedError` and `EndOfDataError` for what is not whole.
    """
    part = _ModelPart(graph, marks, outputs)
    size = part.graph_size()
    written = sum(part.copy(found, type, write) for found, type in model_fields(graph))
    head = encode_varint(_GRAPH << 3 | LEN) + encode_varint(size)
    write(head)
    done = part.write(write)
    if done != size:
        raise MalformedError("the source changed while it was copied", wanted=size, got=done)
    return written + len(head) + size


def model_fields(graph: OnnxGraph) -> Iterator[tuple[Range, MessageType | None]]:
    """Yield the fields of the model but its graph and training, and the type of the message that they are of."""
    root = graph.root.parent
    index = root.index_to(None).note if root is not None else None
    for scan in index.parts if index is not None else ():
        if not isinstance(scan, PartScan):
            continue
        for key in scan.slots:
            if key not in _LEFT_OUT and key > 0:
                for field in scan.fields(key):
                    if field.next > scan.part.end:
                        raise MalformedError("the model is not whole", offset=field.begin, source=scan.part.data.name)
                    yield scan.part.data.range(field.begin, field.next), scan.type


class _ModelPart:
    """The graph of a part: what is copied, in order; gone through once for its size, and once to write it."""

    def __init__(self, graph: OnnxGraph, marks: bytes | bytearray | None, outputs: Sequence[str]) -> None:
        self._graph = graph
        self._marks = marks
        self._nodes = len(graph)
        self._inputs = graph.inputs()
        self._checker = Checker(graph.extraction.session.check_cancelled)
        self._outputs = graph.output_names(outputs)
        self._kept: set[int] | None = None

    def graph_size(self) -> int:
        """Return the size of the graph."""
        return sum(len(found) for found in self._pieces())

    def write(self, write: Write) -> int:
        """Write the graph; return its size."""
        type = self._graph.root.note.type
        done = 0
        for found in self._pieces():
            if isinstance(found, bytes):
                write(found)
                done += len(found)
            else:
                done += self.copy(found, type, write)
        return done

    def copy(self, found: Range, type: MessageType | None, write: Write) -> int:
        """Copy fields of a message of ``type`` if they are sound; return their size."""
        if type is not None and not self._checker.sound(found, type):
            raise MalformedError(
                "a part of the graph is damaged, and the copy would be, too ('pparse check' tells more)",
                offset=self._checker.stopped,
                source=found.data.name,
            )
        copy_into(found.data, found.start, len(found), write)
        return len(found)

    # -- what is in it -------------------------------------------------------------------------------------------------

    def _pieces(self) -> Iterator[bytes | Range]:
        """Yield the fields of the graph: ranges of the source as long as possible, and bytes of our own."""
        root, marks = self._graph.root, self._marks
        for name in ("name", "doc_string"):
            text = text_of(root, name)
            if text:
                yield field_of(_GRAPH_NAME if name == "name" else _DOC, text.encode())
        yield from joined(found for number, found in wires(root.find("node")) if marks is None or marks[number])
        place = self._nodes + len(self._inputs)
        for key in ("initializer", "sparse_initializer"):
            elements = root.find(key)
            yield from joined(found for number, found in wires(elements) if marks is None or marks[place + number])
            place += len(elements) if elements is not None and elements.shape != SCALAR else 0
        yield from self._typed(root)
        yield from joined(found for _, found in wires(root.find("metadata_props")))

    def _typed(self, root: Node) -> Iterator[bytes | Range]:
        """Yield inputs, outputs, and the types of values of the part."""
        marks = self._marks
        fed = (
            self._inputs
            if marks is None
            else [name for number, name in enumerate(self._inputs, self._nodes) if marks[number]]
        )
        wanted = set(fed)
        defaults = set(self._graph.all_inputs()) - set(self._inputs)
        if defaults:  # in models of IR version 3 each initializer is an input, too
            first = self._nodes + len(self._inputs)
            stored = enumerate(self._graph.constants(), first)
            wanted |= {name for number, name in stored if name in defaults and (marks is None or marks[number])}
        yield from joined(found for name, found in _named(root.find("input")) if name in wanted)
        for name in self._outputs:
            info = self._graph.type_of(name)
            yield field_of(_OUTPUT, bytes_of(info) if info is not None else field_of(_NAME, name.encode()))
        made = self._made()
        outputs = set(self._outputs)
        yield from joined(
            found
            for name, found in _named(root.find("value_info"))
            if (made is None or hash(name) in made) and name not in outputs
        )
        annotations = wires(root.find("quantization_annotation"))
        yield from joined(found for _, found in annotations) if marks is None else ()

    def _made(self) -> set[int] | None:
        """Return the hashes of the names of values that the nodes of the part make; None: all."""
        if self._marks is None:
            return None
        if self._kept is None:
            marks = self._marks
            self._kept = {hash(name) for row in self._graph.rows() if marks[row[0]] for name in row[6] or ()}
        return self._kept


def field_of(number: int, payload: bytes) -> bytes:
    """Return a field with its tag and length."""
    return encode_varint(number << 3 | LEN) + encode_varint(len(payload)) + payload


def bytes_of(node: Node) -> bytes:
    """Return the bytes of a small message: the concatenation of its parts, which means the same."""
    return b"".join(part.data.read_exact(part.start, len(part)) for part in node.note.pieces)


def wires(elements: Node | None) -> Iterator[tuple[int, Range]]:
    """Yield the number of each message of a list, with its bytes, tag and length included."""
    index = elements.index_to(None).note if elements is not None and elements.shape != SCALAR else None
    if elements is None or not isinstance(index, ListIndex):
        return
    for first, segment in zip(index.firsts, index.segments, strict=True):
        if not isinstance(segment, Run):
            raise MalformedError("a part of the graph was lost", offset=elements.start, path=elements.path)
        part = segment.scan.part
        for number, field in enumerate(segment.scan.fields(segment.key), first):
            if field.next > part.end:
                reason = "a part of the graph is not whole, and the copy would not be, either"
                raise MalformedError(reason, offset=field.begin, path=f"{elements.path}[{number}]")
            yield number, part.data.range(field.begin, field.next)


def _named(elements: Node | None) -> Iterator[tuple[str, Range]]:
    """Yield the name of each message of a list, with its bytes, tag and length included."""
    for kid, (_, found) in zip(kids_of(elements), wires(elements), strict=False):
        yield text_of(kid, "name"), found


def joined(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield the ranges, neighbours as one."""
    last: Range | None = None
    for found in ranges:
        if last is not None and last.data is found.data and last.end == found.start:
            last = last.data.range(last.start, found.end)
            continue
        if last is not None:
            yield last
        last = found
    if last is not None:
        yield last
