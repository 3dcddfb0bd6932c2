"""Where an ONNX model has tensors, and what they are called.

Initializers, dense and sparse, come first, then attributes of nodes, and what is in bodies of nodes (If, Loop, Scan),
all of them streamed: a node without a tensor costs a look at a few bytes, and nothing is kept. The same for functions
and training graphs. Names::

    NAME                     an initializer; of a sparse one NAME.values and NAME.indices
    OUTPUT                   the value of a Constant, by the name of its output; OUTPUT.values … of a sparse one
    LABEL.attr, LABEL.attr[3] other attributes; LABEL: the node's name, or else its first output
    LABEL.attr/NAME          in the body that is an attribute of a node
    @domain.function.attr    the default of an attribute of a function
    @domain.function/NAME    in a function (of the domain "" without a dot; an overload follows a colon)
    training[0].algorithm/NAME
"""

from __future__ import annotations

from collections import namedtuple
from functools import cached_property

from pparse.data.base import Range
from pparse.errors import FaultError, LimitError, MalformedError, PparseError
from pparse.findings import Finding, Status
from pparse.kernels.wire import LEN, PADDING, SLACK, read_length, read_tag, skip_payload
from pparse.parsers.protobuf.index import WireWindow
from pparse.parsers.protobuf.message import Message, Problem, problem_of
from pparse.tree.below import kids_of, text_at
from pparse.tree.entry import SCALAR
from pparse.viewers.onnx.tensors import NAME, read_head
from pparse.viewers.tensor_proto.viewer import TensorPlace, TensorPlaces, index_of, messages_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.graphs.source import Row
    from pparse.parsers.protobuf.index import Payload, Piece
    from pparse.parsers.protobuf.lists import Run
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.protobuf.schema import Schema
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node
    from pparse.viewers.onnx.tensors import OnnxMaker

    Value = Sequence[Piece] | Problem
    Texts = dict[int, list[str]]
    Field = tuple[int, int, int]

# -- NodeProtos read without tree nodes: those of a graph may be hundreds of thousands ---------------------------------

# Field numbers are those of onnx/onnx-ml.proto.

# Fields of a NodeProto …
INPUT, OUTPUT, NODE_NAME, OP_TYPE, ATTRIBUTE, DOMAIN = 1, 2, 3, 4, 5, 7
_TEXTS: Final = (INPUT, OUTPUT, NODE_NAME, OP_TYPE, DOMAIN)
# … and of an AttributeProto: those that hold tensors and bodies.
ATTRIBUTE_NAME, TENSOR, BODY, TENSORS, BODIES, SPARSE, SPARSES = 1, 5, 6, 10, 11, 22, 23
_HOLDS: Final = {kind << 3 | LEN: kind for kind in (TENSOR, BODY, TENSORS, BODIES, SPARSE, SPARSES)}
_REPEATED: Final = frozenset((TENSORS, BODIES, SPARSES))
_TAG_ATTRIBUTE: Final = ATTRIBUTE << 3 | LEN
# NodeProtos up to this size are read in one go.
SMALL: Final = 16 << 10


class Attribute(namedtuple("Attribute", "kind name at number pieces")):
    """A tensor or a body in an attribute of a node, and what it is made of (``pieces``).

    ``kind``: the field of the attribute that holds it; ``name`` of the attribute; ``at``: its number in the node;
    ``number`` of the element, if the attribute is a list, else None.
    """

    __slots__ = ()

    @property
    def is_value(self) -> bool:
        """Whether it is the value, if the node is a Constant."""
        return (self.name, self.kind) in (("value", TENSOR), ("sparse_value", SPARSE))


def is_constant(op: str, domain: str) -> bool:
    """Return whether the tensor in a node of this operation is its output."""
    return op == "Constant" and domain in ("", "ai.onnx")


def fields_in(raw: bytes, pos: int, stop: int) -> list[Field] | None:
    """Return tag, begin and end of the length-delimited fields of the message ``raw[pos:stop]``; `PADDING` follows.

    None if it is not whole. (A list, since a generator costs hundreds of thousands of nodes more.)
    """
    found = []
    try:
        while pos < stop:
            tag = raw[pos]
            pos += 1
            if tag >= 0x80:
                tag, pos = read_tag(raw, pos - 1)
            if tag & 7 != LEN:
                pos = skip_payload(raw, pos, tag & 7)
                continue
            length = raw[pos]
            pos += 1
            if length >= 0x80:
                length, pos = read_length(raw, pos - 1)
            found.append((tag, pos, pos + length))
            pos += length
    except MalformedError:
        return None
    return found if pos == stop else None


def is_bare(raw: bytes, pos: int, stop: int) -> bool:
    """Say whether the NodeProto ``raw[pos:stop]`` is whole and has short texts only, no attributes."""
    while pos < stop:
        tag, length = raw[pos], raw[pos + 1]
        if tag >= 0x80 or tag & 7 != LEN or tag == _TAG_ATTRIBUTE or tag < 8 or length >= 0x80:
            return False
        pos += length + 2
    return pos == stop


def texts_in(raw: bytes, fields: Sequence[Field], *numbers: int) -> Texts | None:
    """Return the texts in those of the fields that have these ``numbers``, by number; None if one is no text."""
    texts: Texts = {number: [] for number in numbers}
    try:
        for tag, pos, end in fields:
            if (found := texts.get(tag >> 3)) is not None:
                found.append(raw[pos:end].decode())
    except UnicodeDecodeError:
        return None
    return texts


def held_by(part: Range, raw: bytes, fields: Sequence[Field]) -> list[Attribute] | None:
    """Return the tensors and bodies in the attributes of a node at ``part``; None if one is not whole, or in parts."""
    held: list[Attribute] = []
    attributes = [(begin, stop) for tag, begin, stop in fields if tag == _TAG_ATTRIBUTE]
    for at, (begin, stop) in enumerate(attributes):
        inner = fields_in(raw, begin, stop)
        if inner is None:
            return None
        places: dict[int, list[Range]] = {}
        for tag, pos, end in inner:
            if (kind := _HOLDS.get(tag)) is not None:
                places.setdefault(kind, []).append(part.data.range(part.start + pos, part.start + end))
        texts = texts_in(raw, inner, ATTRIBUTE_NAME) if places else {}
        if texts is None:
            return None
        for kind, found in places.items():
            if kind not in _REPEATED and len(found) > 1:
                return None  # to be merged
            for number, place in enumerate(found):
                name, nth = last_of(texts, ATTRIBUTE_NAME), number if kind in _REPEATED else None
                held.append(Attribute(kind, name, at, nth, (place,)))
    return held


_TAG_BODIES: Final = (BODY << 3 | LEN, BODIES << 3 | LEN)
_VALUE_NAME: Final = 1
# Memory of a name while it is found out what bodies capture.
_NAME_COST: Final = 150


def rows_of(places: OnnxPlaces, nodes: Node) -> Iterator[Row]:
    """Yield a row for each NodeProto of a list."""
    check = places.parser.result.extraction.session.check_cancelled
    for ordinal, pieces, window in messages_of(nodes):
        if not ordinal & 0xFFF:
            check()
        yield read_row(places, nodes, ordinal, pieces, window)


def read_row(places: OnnxPlaces, nodes: Node, ordinal: int, pieces: Sequence[Piece], window: WireWindow | None) -> Row:
    """Return the row of one NodeProto; fields that cannot be read are empty."""
    texts, has_body = _texts_of(places, pieces, window)
    beside = captured(places, nodes, ordinal) if has_body else ()
    op, domain = last_of(texts, OP_TYPE), last_of(texts, DOMAIN)
    return ordinal, label_of(texts) or f"[{ordinal}]", op, texts[INPUT], domain, beside, texts[OUTPUT]


def last_of(texts: Texts, number: int) -> str:
    """Return the text in a field, the last of several as everywhere in protocol buffers."""
    return texts[number][-1] if texts[number] else ""


def label_of(texts: Texts) -> str:
    """Return the name of a node, or else the first that an output has; empty if there is none."""
    return last_of(texts, NODE_NAME) or next(filter(None, texts[OUTPUT]), "")


def _texts_of(places: OnnxPlaces, pieces: Sequence[Piece], window: WireWindow | None) -> tuple[Texts, bool]:
    """Return the texts of a NodeProto by field number, and whether it has bodies."""
    raw = small_message(places.plain(pieces), window)
    fields = fields_in(raw, 0, len(raw) - len(PADDING)) if raw else None
    texts = None if fields is None else texts_in(raw, fields, *_TEXTS)
    if fields is not None and texts is not None:
        inner = [fields_in(raw, pos, end) for tag, pos, end in fields if tag == _TAG_ATTRIBUTE]
        if None not in inner:
            return texts, any(tag in _TAG_BODIES for found in inner for tag, _, _ in found or ())
    return _by_message(places, pieces)


def small_message(part: Range | None, window: WireWindow | None) -> bytes:
    """Return the bytes of a small message in one stretch, with `PADDING` behind them; nothing of any other."""
    if part is None or part.end - part.start > SMALL:
        return b""
    window = window if window is not None and window.data is part.data else WireWindow(part.data, part.end)
    window.at(part.start)
    return window.read(part.start, part.end) + PADDING


def _by_message(places: OnnxPlaces, pieces: Sequence[Piece]) -> tuple[Texts, bool]:
    """Return the same of a NodeProto that is large, in parts, or not whole."""
    message = Message(places.make, pieces, places.node_type)
    texts: Texts = {}
    limits = places.parser.result.extraction.session.limits
    for number in _TEXTS:
        texts[number] = found = []
        try:
            for _, window, at in message.occurrences(number):
                limits.check("name_bytes", at.end - at.start, "a name in a node", offset=at.start)
                found.append(window.read(at.start, at.end).decode("utf-8", "replace"))
        except FaultError as error:
            places.note(error)
    has_body = False
    try:
        for part in message.elements(ATTRIBUTE):
            attribute = Message(places.make, part, places.attribute_type, message.near)
            has_body = has_body or BODY in attribute.fields or BODIES in attribute.fields
    except FaultError as error:
        places.note(error)
    return texts, has_body


# -- bodies ------------------------------------------------------------------------------------------------------------


def captured(places: OnnxPlaces, nodes: Node, ordinal: int) -> list[str]:
    """Return the names that the bodies of a node use and do not define, at any depth, sorted."""
    session = places.parser.result.extraction.session
    found: set[str] = set()
    names = 0
    # The bodies that are being gone through: those below that wait, and what each uses and defines so far.
    stack: list[tuple[Iterator[Node], set[str], set[str]]] = [(_bodies_of(nodes.child(ordinal)), found, set())]
    with session.budget.charge(0, "the values that bodies use") as charge:
        while stack:
            waiting, used, made = stack[-1]
            body = next(waiting, None)
            if body is None:
                stack.pop()
                if stack:
                    stack[-1][1].update(used - made)
                continue
            used, made = set(), {text_at(kid, "name") for kid in kids_of(body.find("input"))}
            made.update(initializer_names(places, body))
            inner: list[int] = []
            inner_nodes = body.find("node")
            for at, pieces, window in messages_of(inner_nodes):
                texts, has_body = _texts_of(places, pieces, window)
                used.update(texts[INPUT])
                made.update(texts[OUTPUT])
                if has_body:
                    inner.append(at)
            names += len(used) + len(made)
            charge.resize(_NAME_COST * names)
            session.check_cancelled()
            stack.append((_bodies_below(inner_nodes, inner), used, made))
    found.discard("")
    return sorted(found)


def _bodies_below(nodes: Node | None, numbers: Sequence[int]) -> Iterator[Node]:
    for number in numbers:
        if nodes is not None:
            yield from _bodies_of(nodes.child(number))


def _bodies_of(node: Node) -> Iterator[Node]:
    """Yield the graphs in the attributes of a node."""
    for attribute in kids_of(node.find("attribute")):
        if attribute.shape != SCALAR:
            if (body := attribute.find("g")) is not None:
                yield body
            yield from kids_of(attribute.find("graphs"))


def initializer_names(places: OnnxPlaces, graph: Node) -> Iterator[str]:
    """Yield the names of the initializers of a graph, dense, then sparse."""
    for key in ("initializer", "sparse_initializer"):
        for ordinal, pieces, window in messages_of(graph.find(key)):
            yield places.own_name(key, ordinal, pieces, window)


def value_names(places: OnnxPlaces, infos: Node | None) -> Iterator[str]:
    """Yield the names of the ValueInfoProtos of a list; there may be one for each value of a model."""
    for ordinal, pieces, window in messages_of(infos):
        part = places.plain(pieces)
        raw = small_message(part, window) if window is not None else b""
        fields = fields_in(raw, 0, len(raw) - len(PADDING)) if raw else None
        texts = None if fields is None else texts_in(raw, fields, _VALUE_NAME)
        yield text_at(infos, ordinal, "name") if texts is None else last_of(texts, _VALUE_NAME)


# -- where tensors are -------------------------------------------------------------------------------------------------

# The lists of a graph, or of a function, that have tensors in them, in the order in which they are listed.
_LISTS: Final = ("initializer", "sparse_initializer", "node", "attribute_proto")
# Fields of a SparseTensorProto.
_VALUES, _INDICES = 1, 2
_TENSORS: Final = (TENSOR, TENSORS)
# NodeProtos up to this size are read in one go, TensorProtos up to their data.
_HEAD: Final = 512


class OnnxPlace(TensorPlace):
    """Where a tensor is; its numbers are those of the scope, of the list in it, and of the element in that."""

    __slots__ = ("head",)

    def __init__(self, name: str, value: Value, near: WireWindow | None = None, head: Any = None) -> None:
        # Not by the method of the base: there may be hundreds of thousands of places.
        self.name, self.value, self.near, self.at = name, value, near, (0, 0, 0)
        self.head = head
        """What `read_head` returned for it, if it was read."""


class GraphScope:
    """A graph or a function: the ``path`` of its node in the tree, and the ``prefix`` of names in it.

    ``around`` is the list of the nodes that it was found in, as long as it was not entered: from there it is near,
    while the path leads through all the graphs around it.
    """

    __slots__ = ("around", "path", "prefix")

    def __init__(self, path: str, prefix: str, around: Node | None = None) -> None:
        self.path = path
        self.prefix = prefix
        self.around = around


class OnnxPlaces(TensorPlaces):
    """The tensors of one model, in order; `find` looks one up by name."""

    layouts = "IBI"
    maker: OnnxMaker

    def __init__(self, parser: ProtobufParser, maker: OnnxMaker, schema: Schema) -> None:
        super().__init__(parser, maker)
        self._sparse_type = schema.message("onnx.SparseTensorProto")
        self.node_type = schema.message("onnx.NodeProto")
        self.attribute_type = schema.message("onnx.AttributeProto")
        graphs = (schema.message(f"onnx.{name}Proto") for name in ("Graph", "Model", "TrainingInfo", "Function"))
        self._around = (*graphs, self.attribute_type, self.node_type)
        self._searched = False
        self._held: tuple[str, Node] | None = None
        self._near: WireWindow | None = None  # the last one in which an element was looked up

    # -- everything --------------------------------------------------------------------------------------------------

    def roots(self) -> Iterator[GraphScope]:
        """Yield the graph, the functions, and the graphs of training."""
        root = self.parser.result.root
        if root.find("graph") is not None:
            yield GraphScope("graph", "")
        functions = root.find("functions")
        for function in kids_of(functions):
            yield GraphScope(function.path, f"@{function_name(function)}/")
        for number, training in enumerate(kids_of(root.find("training_info"))):
            for key in ("initialization", "algorithm"):
                graph = training.find(key)
                if graph is not None:
                    yield GraphScope(graph.path, f"training[{number}].{key}/")

    def scopes(self) -> Iterator[GraphScope]:
        """Yield all graphs, bodies and functions: the main graph first, each before those in it."""
        known: list[GraphScope] = []
        told = 0
        for _ in self.places(scopes=known):
            yield from known[told:]
            told = len(known)
        yield from known[told:]

    def places(self, *, most: int | None = None, scopes: list[GraphScope] | None = None) -> Iterator[OnnxPlace]:
        """Yield where each tensor is, with its name, which may not be unique, of at most ``most`` elements of lists.

        The scopes that were gone through are appended to ``scopes``.
        """
        known: list[GraphScope] = scopes if scopes is not None else []
        left = -1 if most is None else most
        check = self.parser.result.extraction.session.check_cancelled
        for root in self.roots():
            waiting = [self._elements(root, known, every=most is not None)]
            while waiting:
                try:
                    for found in waiting[-1]:
                        if found.__class__ is OnnxPlace:
                            yield found
                            if found.at[1]:  # of an initializer there is but one: no number follows it
                                continue
                        elif isinstance(found, GraphScope):
                            waiting.append(self._elements(found, known, every=most is not None))
                            break
                        left -= 1
                        if not left & 0xFFF:
                            check()
                        if not left:
                            return
                    else:
                        waiting.pop()
                except LimitError as error:
                    self.note(error)
                    waiting.pop()

    def _elements(
        self, scope: GraphScope, known: list[GraphScope], *, every: bool
    ) -> Iterator[OnnxPlace | GraphScope | int]:
        """Yield the places in a scope, the scopes below it, and after each element of its other lists a number.

        If not after ``every`` one, nodes that have nothing are left out.
        """
        number = len(known)
        known.append(scope)
        node: Node | None = None
        for source, key in enumerate(_LISTS):
            try:
                node = node or self._entered(scope)
                elements = node.find(key)
                if elements is None or elements.shape == SCALAR:
                    continue
                for ordinal, pieces, window in messages_of(
                    elements, None if every or key != "node" else self._not_bare
                ):
                    if not source:
                        place = self._initializer(scope.prefix, ordinal, pieces, window)
                        place.at = number, source, ordinal
                        yield place
                        continue
                    for found in self._of_element(scope, elements, key, ordinal, pieces, window):
                        if isinstance(found, OnnxPlace):
                            found.at = number, source, ordinal
                        yield found
                    yield ordinal
            except FaultError as error:  # of one list: the others may be whole
                self.note(error, scope.path)

    def _not_bare(self, run: Run, window: WireWindow) -> Iterator[Payload]:
        """Yield the nodes of a run with their numbers, except those in the window that have no attributes."""
        check, part = self.parser.result.extraction.session.check_cancelled, run.scan.part
        limit = min(part.end, self.make.data_end(part))
        for found in run.scan.payloads(run.key, window):
            number, start, end = found
            if not number & 0xFFF:
                check()
            base = window.base
            if end > limit or end - base > window.size or not is_bare(window.block, start - base, end - base):
                yield found

    def _entered(self, scope: GraphScope) -> Node:
        """Return the node of a scope that was just found."""
        around, scope.around = scope.around, None
        if around is None:
            return self._node(scope.path)
        found = around.at(scope.path.removeprefix(around.path))
        self._held = scope.path, found
        return found

    def _node(self, path: str) -> Node:
        """Return the node of a scope; the last one is held, as it is asked for again soon."""
        held = self._held
        if held is None or held[0] != path:
            self._held = held = path, self.parser.result.root.at(path)
        return held[1]

    def _of_element(
        self,
        scope: GraphScope,
        elements: Node,
        key: str,
        ordinal: int,
        pieces: Sequence[Piece],
        window: WireWindow | None,
    ) -> Iterator[OnnxPlace | GraphScope]:
        if key == "initializer":
            return iter((self._initializer(scope.prefix, ordinal, pieces, window),))
        if key == "sparse_initializer":
            return self._sparse(f"{scope.prefix}[{ordinal}]", pieces, window, scope.prefix)
        if key == "node":
            return self._of_node(scope, elements, ordinal, pieces, window)
        return self._of_default(scope, elements, ordinal, pieces)

    def note(self, error: PparseError, path: str = "") -> None:
        """Record what cannot be read."""
        cut, beyond = isinstance(error, EOFError), isinstance(error, LimitError)
        code = "truncated" if cut else "limit" if beyond else "malformed"
        known: Any = {"source": self.make.extraction.name, "offset": error.offset, "option": error.option}
        self.parser.result.findings.add(Finding(code, error.reason, path=path or error.path or "", **known))

    # -- initializers ------------------------------------------------------------------------------------------------

    def own_name(self, key: str, ordinal: int, pieces: Sequence[Piece], window: WireWindow | None) -> str:
        """Return the name of an initializer of the list ``key``."""
        if key == "initializer":
            return self._initializer("", ordinal, pieces, window).name
        place = next(self._sparse(f"[{ordinal}]", pieces, window, ""))
        return place.name.removesuffix(".values")

    def _initializer(self, prefix: str, ordinal: int, pieces: Sequence[Piece], window: WireWindow | None) -> OnnxPlace:
        part = self.plain(pieces)
        if part is not None and window is not None and part.data is window.data:
            start = part.start
            size, at = part.end - start, start - window.base
            if not 0 <= at <= window.size - SLACK:
                at = window.at(start)
            head = read_head(window.block, at, min(size, window.size - at, _HEAD), size, self.maker.kinds)
            if head is not None and head[1]:
                return OnnxPlace(prefix + head[1], pieces, window, head)
        name = self.text(Message(self.make, pieces, self.maker.type, window), NAME)
        return OnnxPlace(prefix + (name or f"[{ordinal}]"), pieces, window)

    def _ends_at_break(self, place: OnnxPlace) -> bool:
        """Say whether what follows an initializer is no field of its graph, so that it may not end where it seems to.

        Asked of models that are damaged only: it reads.
        """
        part = place.value[0] if not isinstance(place.value, Problem) and len(place.value) == 1 else None
        if place.at[1] != _LISTS.index("initializer") or not isinstance(part, Range):
            return False
        # The last field of a graph is followed by those of what it is in.
        return self.ends_at_break(part, self._around if place.at[0] else self._around[:2])

    def _sparse(
        self, name: str, pieces: Sequence[Piece], window: WireWindow | None, prefix: str | None = None
    ) -> Iterator[OnnxPlace]:
        """Yield the two tensors of a sparse one; with a ``prefix``, it has a name of its own, which follows that."""
        try:
            message = Message(self.make, pieces, self._sparse_type, window)
            found = [message.pieces(number) for number in (_VALUES, _INDICES)]
            if prefix is not None and found[0] is not None:
                own = self.text(Message(self.make, found[0], self.maker.type, message.near), NAME)
                name = prefix + own if own else name
            for label, parts in zip(("values", "indices"), found, strict=True):
                lost = message.problem or Problem(Status.DAMAGED, "the sparse tensor has no " + label)
                yield OnnxPlace(f"{name}.{label}", parts if parts is not None else lost, message.near)
        except FaultError as error:
            yield OnnxPlace(f"{name}.values", problem_of(error))

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _of_node(
        self, scope: GraphScope, elements: Node, ordinal: int, pieces: Sequence[Piece], window: WireWindow | None
    ) -> Iterator[OnnxPlace | GraphScope]:
        part = self.plain(pieces)
        raw = small_message(part, window)
        fields = fields_in(raw, 0, len(raw) - len(PADDING)) if raw else None
        found = held_by(part, raw, fields) if part is not None and fields is not None else None
        if found == []:
            return
        texts = texts_in(raw, fields, *_TEXTS) if found is not None and fields is not None else None
        if found is None or texts is None:
            part = None
            label, output, found, window = self._by_messages(elements.path, ordinal, pieces, window)
        else:
            label, output = label_of(texts), next(filter(None, texts[OUTPUT]), "")
            output = output if is_constant(last_of(texts, OP_TYPE), last_of(texts, DOMAIN)) else ""
        for item in found:
            name = scope.prefix + (output if output and item.is_value else f"{label or f'[{ordinal}]'}.{item.name}")
            head, inner = None, item.pieces[0] if item.kind in _TENSORS else None
            if part is not None and isinstance(inner, Range):
                at, size = inner.start - part.start, len(inner)
                head = read_head(raw, at, min(size, _HEAD), size, self.maker.kinds)
            yield from self._of_attribute(name, f"[{ordinal}].attribute[{item.at}]", elements, item, window, head)

    def _of_attribute(
        self, name: str, inside: str, elements: Node, item: Attribute, window: WireWindow | None, head: Any = None
    ) -> Iterator[OnnxPlace | GraphScope]:
        """Yield what an attribute called ``name`` holds; ``inside`` leads to it from ``elements``, a list.

        ``head`` is what `read_head` returned for a tensor.
        """
        if item.number is not None:
            name = f"{name}[{item.number}]"
        if item.kind in _TENSORS:
            yield OnnxPlace(name, item.pieces, window, head)
        elif item.kind in (SPARSE, SPARSES):
            yield from self._sparse(name, item.pieces, window)
        else:
            key = "g" if item.kind == BODY else f"graphs[{item.number}]"
            yield GraphScope(f"{elements.path}{inside}.{key}", f"{name}/", elements)

    def _of_default(
        self, scope: GraphScope, elements: Node, ordinal: int, pieces: Sequence[Piece]
    ) -> Iterator[OnnxPlace | GraphScope]:
        """Yield what the default value of an attribute of a function holds."""
        attribute = Message(self.make, pieces, self.attribute_type)
        label = scope.prefix.removesuffix("/")
        for item in self._held_by(attribute, ordinal):
            yield from self._of_attribute(f"{label}.{item.name}", f"[{ordinal}]", elements, item, attribute.near)

    def _held_by(self, attribute: Message, at: int) -> Iterator[Attribute]:
        """Yield the tensors and bodies of attribute number ``at`` of a node."""
        name = self.text(attribute, ATTRIBUTE_NAME)
        for kind in (TENSOR, BODY, SPARSE):
            inner = attribute.pieces(kind)
            if inner is not None:
                yield Attribute(kind, name, at, None, inner)
        for kind in (TENSORS, BODIES, SPARSES):
            for number, inner in enumerate(attribute.elements(kind)):
                yield Attribute(kind, name, at, number, inner)

    def _by_messages(
        self, path: str, ordinal: int, pieces: Sequence[Piece], window: WireWindow | None
    ) -> tuple[str, str, list[Attribute], WireWindow | None]:
        """Return the label, the output if it is constant, and the attributes of a node that is not read at once."""
        message = Message(self.make, pieces, self.node_type, window)
        problem = message.problem
        # Of thousands of them, the tree counts each when it is checked.
        if problem is not None and problem.is_damage and not self.parser.result.findings.full:
            self.note(MalformedError(problem.reason, offset=problem.offset), f"{path}[{ordinal}]")
        output = self._output(message)
        found: list[Attribute] = []
        try:
            for at, part in enumerate(message.elements(ATTRIBUTE)):
                found += self._held_by(Message(self.make, part, self.attribute_type, message.near), at)
        except FaultError as error:
            self.note(error)
        constant = is_constant(self.text(message, OP_TYPE), self.text(message, DOMAIN))
        return self.text(message, NODE_NAME) or output, output if constant else "", found, message.near

    def _output(self, message: Message) -> str:
        """Return the first output that has a name; empty if there is none."""
        for scan, window, at in message.occurrences(OUTPUT):
            if at.start < at.end <= scan.part.end:
                return window.read(at.start, min(at.end, at.start + SMALL)).decode("utf-8", "replace")
        return ""

    def tensor(self, place: OnnxPlace, name: str | None = None) -> Tensor:
        """Return the tensor at a place, under that name."""
        made: Tensor | None = None
        if place.head is not None and not self._has_holes:
            part: Any = place.value[0]  # the one stretch in which the head was read
            made = self.maker.of_head(place.name if name is None else name, place.head, part)
        if made is None:
            made = super().tensor(place, name)
        if self._is_damaged and made.is_claimed_whole and self._ends_at_break(place):
            self.doubt_end(made)
        return made

    @cached_property
    def _is_damaged(self) -> bool:
        """Whether the fields of the model or of a graph are not whole; they were read to find any tensor."""
        strays = any(finding.code == "stray-field" for finding in self.parser.result.findings)
        return strays or not self.maker.owner.is_whole()

    @cached_property
    def _has_holes(self) -> bool:
        return bool(self.maker.owner.holes)

    # -- by name -----------------------------------------------------------------------------------------------------

    def worth_searching(self, name: str) -> Iterator[OnnxPlace] | None:
        """Return all places the first time."""
        if self._searched:
            return None
        self._searched = True
        return self.places()

    def at(self, scopes: Sequence[GraphScope], *numbers: int) -> Iterator[OnnxPlace]:
        """Yield the places of one element of a list."""
        number, source, ordinal = numbers
        scope = scopes[number]
        elements = self._node(scope.path).find(_LISTS[source])
        index = index_of(elements)
        if elements is not None and index is not None:
            pieces, self._near = index.message_at(ordinal, self._near)
            for found in self._of_element(scope, elements, _LISTS[source], ordinal, pieces, self._near):
                if isinstance(found, OnnxPlace):
                    found.at = number, source, ordinal
                    yield found


def function_name(function: Node) -> str:
    """Return ``domain.name:overload`` of a function; ``[3]`` if its name cannot be read."""
    domain, name, overload = (text_at(function, key) for key in ("domain", "name", "overload"))
    shown = f"{domain}.{name}" if domain and name else name or f"[{function.ordinal}]"
    return f"{shown}:{overload}" if overload else shown
