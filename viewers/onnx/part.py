"""Writes models: a part of a graph as one of its own, streamed and copied unchanged; what is left of a damaged one."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque, namedtuple
from functools import cached_property

from pparse.data.base import Range, copy_into
from pparse.errors import FaultError, MalformedError
from pparse.findings import Status
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN
from pparse.parsers.onnx.parser import ELEMENT_TYPES, type_name
from pparse.parsers.protobuf.check import Checker
from pparse.parsers.protobuf.index import OverlayField, PartScan
from pparse.parsers.protobuf.message import Message
from pparse.tree.below import kids_of, text_at
from pparse.tree.entry import SCALAR
from pparse.viewers.onnx import tensors
from pparse.viewers.tensor_proto.maker import numbers
from pparse.viewers.tensor_proto.viewer import joined, wires

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final, TypeAlias

    from pparse.limits import Charge
    from pparse.protobuf.schema import MessageType
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node
    from pparse.viewers.onnx.graph import OnnxGraph
    from pparse.viewers.onnx.places import OnnxPlace
    from pparse.viewers.onnx.viewer import OnnxViewer

    Write = Callable[[bytes], object]
    # Bytes of our own, bytes of the source with the message that they are fields of, or the elements of a tensor.
    Piece: TypeAlias = "bytes | tuple[Range, MessageType | None] | Tensor"

_GRAPH: Final = 7
# Fields of a model that a part does not have: training is of the whole.
_LEFT_OUT: Final = frozenset((_GRAPH, 20))
_GRAPH_NAME, _DOC, _OUTPUT, _ANNOTATIONS, _METADATA = 2, 10, 12, 14, 16
_NAME: Final = 1


def fields_of(message: Node, keys: Iterable[int] | None = None) -> Iterator[tuple[Range, MessageType | None]]:
    """Yield the fields of a message with these numbers, neighbours as one, and the type of the message.

    Without numbers, those of a model but its graph and training.
    """
    index: Any = message.index_to(None).note
    for key in keys or [key for key in index.contributions(None) if key > 0 and key not in _LEFT_OUT]:
        for scan in index.parts:
            if isinstance(scan, PartScan) and key in scan.slots:
                data = scan.part.data
                for found in joined(data.range(field.begin, field.next) for field in scan.fields(key)):
                    yield found, scan.type


class _CopiedModel:
    """A model that is written as the source has it, but for its graph: that is gone through for its size, and again."""

    damaged = "a part of the graph is damaged"

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._root: Any = graph.root.parent
        self._checker = Checker(graph.extraction.session.check_cancelled)

    @abstractmethod
    def _pieces(self) -> Iterator[Piece]:
        """Yield the graph, piece by piece."""

    def write(self, write: Write) -> int:
        """Write the model, and return its size. Raises `MalformedError` if its graph is not whole."""
        size = sum(self._size_of(piece) for piece in self._pieces())
        done = sum(self._put(found, write) for found in fields_of(self._root))
        head = encode_varint(_GRAPH << 3 | LEN) + encode_varint(size)
        write(head)
        written = sum(self._put(piece, write) for piece in self._pieces())
        if written != size:
            raise MalformedError("the source changed while it was copied", wanted=size, got=written)
        return done + len(head) + size

    def _size_of(self, piece: Piece) -> int:
        if isinstance(piece, tuple):
            return len(piece[0])
        return len(piece) if isinstance(piece, bytes) else _stored_nbytes(piece)

    def _put(self, piece: Piece, write: Write) -> int:
        if isinstance(piece, bytes):
            write(piece)
            return len(piece)
        if isinstance(piece, tuple):
            found, type = piece
            self._certain(found, type)
            copy_into(found.data, found.start, len(found), write)
            return len(found)
        done = 0
        for chunk in piece.array_blocks("1MiB"):
            write(chunk)
            done += len(chunk)
        return done

    def _certain(self, found: Range, type: MessageType | None) -> None:
        """Raise `MalformedError` if bytes that are copied are not sound."""
        if type is not None and not self._checker.sound(found, type):
            raise MalformedError(self.damaged, offset=self._checker.stopped, source=found.data.name)

    def _copied(self, ranges: Iterable[Range]) -> Iterator[tuple[Range, MessageType | None]]:
        """Yield fields of the graph to be copied, neighbours as one."""
        type = self._graph.root.note.type
        return ((found, type) for found in joined(ranges))


class ModelPart(_CopiedModel):
    """The marked nodes, inputs and initializers of a main graph (None: all) as a model.

    ``marks`` has a byte for each node, each of `OnnxGraph.inputs` and each of `OnnxGraph.constants`. ``outputs`` name
    values, or nodes, whose outputs are meant; none: those of the graph. Operator sets, functions and properties are
    those of the model; files with external data are referred to as in the model. An output whose type the model does
    not state is written without a type. `write` raises `MalformedError` and `EndOfDataError` for what is not whole.
    """

    damaged = "a part of the graph is damaged, and the copy would be, too ('pparse check' tells more)"

    def __init__(self, graph: OnnxGraph, marks: bytes | bytearray | None, outputs: Sequence[str]) -> None:
        super().__init__(graph)
        self._marks = marks
        self._nodes = len(graph)
        self._inputs = graph.inputs()
        self._outputs = graph.output_names(outputs)

    def _pieces(self) -> Iterator[Piece]:
        """Yield the fields of the graph: ranges of the source as long as possible, and bytes of our own."""
        root = self._graph.root
        yield from fields_of(root, (_GRAPH_NAME, _DOC))
        yield from self._copied(found for number, found in whole_wires(root.find("node")) if self._is_marked(number))
        place = self._nodes + len(self._inputs)
        for key in ("initializer", "sparse_initializer"):
            elements = root.find(key)
            yield from self._copied(found for number, found in whole_wires(elements) if self._is_marked(place + number))
            place += len(elements) if elements is not None and elements.shape != SCALAR else 0
        yield from self._typed(root)
        yield from fields_of(root, (_METADATA,))

    def _typed(self, root: Node) -> Iterator[Piece]:
        """Yield inputs, outputs, and the types of values of the part."""
        wanted = {name for number, name in enumerate(self._inputs, self._nodes) if self._is_marked(number)}
        defaults = set(self._graph.all_inputs()) - set(self._inputs)
        if defaults:  # in models of IR version 3 each initializer is an input, too
            first = self._nodes + len(self._inputs)
            stored = enumerate(self._graph.constants(), first)
            wanted |= {name for number, name in stored if name in defaults and self._is_marked(number)}
        yield from self._copied(found for name, found in _named(root.find("input")) if name in wanted)
        for name in self._outputs:
            info = self._graph.type_of(name)
            yield field_of(_OUTPUT, bytes_of(info) if info is not None else field_of(_NAME, name.encode()))
        made, outputs = self._made, set(self._outputs)
        infos = ((name, found) for name, found in _named(root.find("value_info")) if name not in outputs)
        yield from self._copied(found for name, found in infos if made is None or hash(name) in made)
        yield from fields_of(root, (_ANNOTATIONS,)) if made is None else ()

    def _is_marked(self, number: int) -> bool:
        return self._marks is None or bool(self._marks[number])

    @cached_property
    def _made(self) -> set[int] | None:
        """The hashes of the names of values that the nodes of the part make; None: all."""
        if self._marks is None:
            return None
        return {hash(name) for row in self._graph.rows() if self._is_marked(row[0]) for name in row[6] or ()}


def field_of(number: int, payload: bytes) -> bytes:
    """Return a field with its tag and length."""
    return encode_varint(number << 3 | LEN) + encode_varint(len(payload)) + payload


def bytes_of(node: Node) -> bytes:
    """Return the bytes of a small message: the concatenation of its parts, which means the same."""
    return b"".join(part.data.read_exact(part.start, len(part)) for part in node.note.pieces)


def whole_wires(elements: Node | None) -> Iterator[tuple[int, Range]]:
    """Yield what `wires` does. Raises `MalformedError` for a message that is not whole."""
    for number, found in wires(elements):
        if found is None:
            reason = "a part of the graph is lost or not whole, and the copy would not be, either"
            raise MalformedError(reason, path=f"{elements.path}[{number}]" if elements is not None else None)
        yield number, found


def _named(elements: Node | None) -> Iterator[tuple[str, Range]]:
    """Yield the name of each message of a list, with its bytes, tag and length included."""
    for kid, (_, found) in zip(kids_of(elements), whole_wires(elements), strict=False):
        yield text_at(kid, "name"), found


# -- Writes a model with its graph as it is and with other initializers: what is left of a damaged one -----------------

# Nodes, inputs, outputs, types, functions and properties are copied unchanged, each of them checked before.
# Initializers that are whole lie in another file as ``external_data`` (docs/ExternalData.md), or stay in the model;
# those that are not become inputs of the graph, with the name, type and shape that they had. Everything is gone
# through twice: once for the size of the graph, and once to write it.

_INITIALIZER, _INPUT, _SPARSE = 5, 11, 15
# The lists of a graph; and all of its fields that are copied, the initializers before those behind them.
_LISTS: Final = ("node", "input", "output", "value_info", "quantization_annotation", "metadata_props")
_BEFORE: Final = (1, 2)
_BEHIND: Final = (10, 11, 12, 13, 14, 16)
_EXTERNAL_DATA: Final = 13
# Smaller tensors stay in the model, as onnx itself leaves them: shapes, whose values decide the shapes of others.
_LEAST: Final = 1 << 10
# Memory of a name that is kept.
_NAME_COST: Final = 120


class StoredField(namedtuple("StoredField", "offset length", defaults=(0, 0))):
    """Where an initializer lies in the other file; without a ``length``, it stays in the model."""

    __slots__ = ()


class RebuiltModel(_CopiedModel):
    """What is left of a model, to be written once by `write`.

    ``location`` is the name of the file with the initializers, in the same folder. ``stored`` says where in it a tensor
    lies, of those in the order of `OnnxViewer.placed`; None if it is not whole.
    """

    def __init__(self, viewer: OnnxViewer, location: str, stored: Callable[[int, Tensor], StoredField | None]) -> None:
        self._viewer = viewer
        self._places = viewer.constants
        self._location = location
        self._stored = stored
        self._type = self._places.maker.type
        super().__init__(viewer.graph.source)  # type: ignore[arg-type]
        self._charge: Charge = viewer.extraction.session.budget.charge(0, "initializers that are not whole")
        self._all_inputs = frozenset(self._graph.all_inputs())
        self._fed: dict[str, bytes] = {}
        self._cost = 0
        self.needs_file = False
        """Whether an initializer of the model is in the other file."""
        self.kept = 0
        """Number of initializers that the model has."""

    @property
    def inputs(self) -> Sequence[str]:
        """Names of the initializers that became inputs of the graph, or were inputs already."""
        return list(self._fed)

    def write(self, write: Write) -> int:
        """Write the model, and return its size. Raises `MalformedError` if its graph is not whole."""
        with self._charge:
            self._see_whole()
            return super().write(write)

    # -- whether it can be written -----------------------------------------------------------------------------------

    def _see_whole(self) -> None:
        """Raise `MalformedError` unless everything but the initializers is there."""
        viewer = self._viewer
        part = viewer.source.data.range(viewer.source.start, viewer.source.find_end())
        status = viewer.own_status()
        if status is not Status.COMPLETE:
            self._certain(part, None)
            raise MalformedError(f"the message of the model is {status}: what follows its initializers may be lost")
        root = viewer.root
        if root.find("ir_version") is None or not any(True for _ in kids_of(root.find("opset_import"))):
            raise MalformedError("the version or the operator sets of the model are lost")
        lists = [self._graph.root.find(key) for key in _LISTS]
        for elements in (*lists, *map(root.find, ("opset_import", "functions", "metadata_props"))):
            deque(whole_wires(elements), 0)
        if not len(self._graph) or not self._graph.results():
            raise MalformedError("the graph has no nodes or no outputs")
        found = next((found for found in viewer.graph.index.findings if found.code == "duplicate-name"), None)
        if found is not None:
            raise MalformedError(found.reason)

    def _see_inner(self, place: OnnxPlace, tensor: Tensor) -> None:
        """Raise `MalformedError` if a tensor in a node or a function is not whole, or not in the model."""
        if place.name.startswith("training["):
            return  # left out
        if not tensor.is_complete or tensor.unwritten_nbytes:
            raise MalformedError(f"{tensor.name!r}, which is in a node, is {tensor.status}")
        if self._is_external(self._message(place)):
            raise MalformedError(f"{tensor.name!r}, which is in a node, refers to another file")

    def _certain(self, found: Range, type: MessageType | None) -> None:
        """Raise `MalformedError` if bytes that are copied are not sound, or may be wrong."""
        super()._certain(found, type)
        why = found.data.why_suspect(found.start, found.end)
        if why is None and next(found.data.holes(found.start, found.end), None) is not None:
            why = "some were never written (a file hole), and read as zeros"
        if why is not None:
            raise MalformedError(f"bytes of the graph may be wrong: {why}", offset=found.start, source=found.data.name)

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _pieces(self) -> Iterator[Piece]:
        """Yield the graph, piece by piece."""
        self._fed.clear()
        self._cost = self.kept = 0
        yield from fields_of(self._graph.root, _BEFORE)
        yield from self._initializers()
        self._fed.update(self._lost)
        yield from fields_of(self._graph.root, _BEHIND)
        for info in self._fed.values():
            if info:
                yield field_of(_INPUT, info)

    def _initializers(self) -> Iterator[Piece]:
        """Yield the initializers that are whole, the dense and then the sparse ones."""
        for number, (place, tensor) in enumerate(self._viewer.placed()):
            scope, source, _ = place.at
            if scope or source > 1:
                self._see_inner(place, tensor)
            elif source:
                # No input can take the place of one that is not whole.
                if self._stored(number, tensor) is None or self._is_external(self._message(place)):
                    reason = f"the sparse initializer {tensor.name!r} is not whole, or refers to another file"
                    raise MalformedError(reason)
            else:
                yield from self._initializer(number, place, tensor)
        for _, found in whole_wires(self._graph.root.find("sparse_initializer")):
            self.kept += 1
            yield found, self._graph.root.note.type

    def _initializer(self, number: int, place: OnnxPlace, tensor: Tensor) -> Iterator[Piece]:
        stored = self._stored(number, tensor)
        if stored is None:
            self._feed(place, tensor)
            return
        self.kept += 1
        message = self._message(place)
        is_external = self._is_external(message)
        if stored.length and (is_external or stored.length >= _LEAST):
            self.needs_file = True
            payload = self._without_elements(message) + self._reference(stored)
            yield field_of(_INITIALIZER, payload)
        elif is_external:
            head = self._without_elements(message)
            size = _stored_nbytes(tensor)
            head += encode_varint(tensors.RAW_DATA << 3 | LEN) + encode_varint(size)
            yield encode_varint(_INITIALIZER << 3 | LEN) + encode_varint(len(head) + size) + head
            yield tensor
        else:
            parts = [part for part in self._parts(place) if isinstance(part, Range)]
            yield encode_varint(_INITIALIZER << 3 | LEN) + encode_varint(sum(map(len, parts)))
            yield from ((part, self._type) for part in parts)

    # -- messages ----------------------------------------------------------------------------------------------------

    def _parts(self, place: OnnxPlace) -> Sequence[Any]:
        return place.value if isinstance(place.value, list | tuple) else ()

    def _message(self, place: OnnxPlace) -> Message:
        return Message(self._places.make, self._parts(place), self._type, place.near)

    @staticmethod
    def _is_external(message: Message) -> bool:
        return bool(message.scalar(tensors.DATA_LOCATION) == tensors.EXTERNAL)

    def _without_elements(self, message: Message) -> bytes:
        """Return the fields of a TensorProto but those that hold or place its elements, as they are."""
        found: list[bytes] = []
        for key in sorted(message.fields):
            if key <= 0 or key in tensors.PAYLOAD:
                continue
            for item in message.fields[key]:
                if isinstance(item, OverlayField):
                    raise MalformedError("an initializer is in chunks")
                scan = item[0]
                data = scan.part.data
                for part in joined(data.range(field.begin, field.next) for field in scan.fields(key)):
                    self._certain(part, self._type)
                    found.append(data.read_exact(part.start, len(part)))
        return b"".join(found)

    def _reference(self, stored: StoredField) -> bytes:
        """Return the fields that place the elements in the other file."""
        pairs = (("location", self._location), ("offset", str(stored.offset)), ("length", str(stored.length)))
        placed = (field_of(1, key.encode()) + field_of(2, value.encode()) for key, value in pairs)
        fields = b"".join(field_of(_EXTERNAL_DATA, pair) for pair in placed)
        return fields + encode_varint(tensors.DATA_LOCATION << 3) + encode_varint(tensors.EXTERNAL)

    # -- inputs instead of initializers ------------------------------------------------------------------------------

    def _feed(self, place: OnnxPlace, tensor: Tensor) -> None:
        """Make an initializer that is not whole an input, if its name is known."""
        try:
            message = self._message(place)
            name = self._name(place, message)
        except FaultError:
            name = ""
        if not name:
            return  # what the nodes lack is found by its uses
        if name in self._all_inputs:  # as in models of IR version 3
            self._keep_input(name, b"")
            return
        info = self._stated(name)
        self._keep_input(name, self._described(name, message, tensor) if info is None else info)

    def _name(self, place: OnnxPlace, message: Message) -> str:
        """Return the name of an initializer; empty if it is lost. Raises `MalformedError` if it may be wrong."""
        for item in message.fields.get(tensors.NAME, ()):
            if isinstance(item, OverlayField):
                raise MalformedError("an initializer is in chunks")
            field = item[0].last(tensors.NAME)
            self._certain(item[0].part.data.range(field.begin, min(field.next, item[0].part.end)), None)
        name = str(message.scalar(tensors.NAME))
        return name if name == place.name else ""

    def _keep_input(self, name: str, info: bytes) -> None:
        self._fed[name] = info
        self._cost += _NAME_COST + len(name) + len(info)
        self._charge.resize(self._cost)

    def _stated(self, name: str) -> bytes | None:
        """Return the ValueInfoProto that the graph has for a name; None if it has none."""
        info = self._graph.type_of(name)
        if info is None:
            return None
        for part in info.note.pieces:
            self._certain(part, info.note.type)
        return bytes_of(info)

    def _described(self, name: str, message: Message, tensor: Tensor) -> bytes:
        """Return a ValueInfoProto as a TensorProto describes it; without sizes if these contradict its bytes.

        Raises `MalformedError` if it is the type that may be wrong.
        """
        number = int(message.scalar(tensors.DATA_TYPE))
        if number not in ELEMENT_TYPES:
            raise MalformedError(f"{name!r} is not whole, and its type is {type_name(number)}")
        found = tensor.finding
        contradicted = found is not None and found.code == "bad-entry"
        if found is not None and contradicted and found.got and found.got % max(1, tensor.size) == 0:
            raise MalformedError(f"{name!r} is not whole, and its type {type_name(number)} may be wrong, too")
        sizes = (
            field_of(1, b"" if contradicted or size < 0 else encode_varint(1 << 3) + encode_varint(size))
            for size in numbers(message, tensors.DIMS)
        )
        typed = encode_varint(1 << 3) + encode_varint(number) + field_of(2, b"".join(sizes))
        return field_of(1, name.encode()) + field_of(2, field_of(1, typed))

    @cached_property
    def _lost(self) -> dict[str, bytes]:
        """What the nodes use and nothing makes, with its ValueInfoProto. Raises `MalformedError` if it has none.

        The name of an initializer may be lost, so that it was not found by that.
        """
        index = self._viewer.graph.index
        lost: dict[str, bytes] = {}
        for row in self._graph.rows():
            for name in (*row[3], *row[5]):
                if not name or name in lost or index.ordinal(name) is not None:
                    continue
                info = self._stated(name)
                if info is None:
                    raise MalformedError(f"the node {row[1]!r} uses {name!r}, which is lost, and so is its type")
                lost[name] = info
                self._charge.resize(self._charge.amount + _NAME_COST + len(name) + len(info))
        return lost


def _stored_nbytes(tensor: Tensor) -> int:
    return tensor.dtype.stored_nbytes(tensor.size) if tensor.dtype is not None else 0
