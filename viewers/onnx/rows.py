"""NodeProtos as rows of a graph, streamed without tree nodes, and what bodies of nodes capture."""

from __future__ import annotations

from pparse.errors import MalformedError, PparseError
from pparse.kernels.wire import LEN, PADDING, read_length, read_tag, skip_payload
from pparse.parsers.protobuf.index import OverlayField
from pparse.parsers.protobuf.message import PASSING_OR_LIMIT, Message
from pparse.parsers.protobuf.window import Window
from pparse.tree.entry import SCALAR
from pparse.viewers.tensor_proto.viewer import index_of, kids_of, text_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.graphs.source import Row
    from pparse.parsers.protobuf.index import Piece
    from pparse.tree.node import Node
    from pparse.viewers.onnx.places import OnnxPlaces

# -- NodeProtos read without tree nodes: those of a graph may be hundreds of thousands ---------------------------------

# Field numbers are those of onnx/onnx-ml.proto.

# Fields of a NodeProto …
INPUT, OUTPUT, NODE_NAME, OP_TYPE, ATTRIBUTE, DOMAIN = 1, 2, 3, 4, 5, 7
# … and of an AttributeProto: those that hold tensors and bodies.
ATTRIBUTE_NAME, TENSOR, BODY, TENSORS, BODIES, SPARSE, SPARSES = 1, 5, 6, 10, 11, 22, 23
_HOLDS: Final = {kind << 3 | LEN: kind for kind in (TENSOR, BODY, TENSORS, BODIES, SPARSE, SPARSES)}
_REPEATED: Final = frozenset((TENSORS, BODIES, SPARSES))
_TAG_NAME: Final = ATTRIBUTE_NAME << 3 | LEN
_TAG_OUTPUT, _TAG_NODE_NAME, _TAG_OP, _TAG_ATTRIBUTE, _TAG_DOMAIN = (
    number << 3 | LEN for number in (OUTPUT, NODE_NAME, OP_TYPE, ATTRIBUTE, DOMAIN)
)
CONSTANT: Final = b"Constant"
STANDARD: Final = (b"", b"ai.onnx")


class Attribute:
    """A tensor or a body in an attribute of a node."""

    __slots__ = ("at", "end", "kind", "name", "number", "output", "pieces", "start")

    def __init__(
        self,
        kind: int,
        name: str,
        at: int,
        number: int | None,
        start: int = 0,
        end: int = 0,
        pieces: Sequence[Piece] = (),
    ) -> None:
        self.kind = kind
        """The field of the attribute that holds it."""
        self.name = name
        """Name of the attribute."""
        self.at = at
        """Number of the attribute in the node."""
        self.number = number
        """Number of the element, if the attribute is a list."""
        self.start = start
        """Where it is in the bytes of the node …"""
        self.end = end
        """… and where it ends."""
        self.output: str | None = None
        """Of the value of a Constant, the output, whose name it has."""
        self.pieces = pieces
        """What it is made of."""

    @property
    def is_value(self) -> bool:
        """Whether it is the value, if the node is a Constant."""
        return (self.name, self.kind) in (("value", TENSOR), ("sparse_value", SPARSE))


def read_node(  # noqa: C901 -- hot loop: a call for each field costs a fifth
    raw: bytes, size: int
) -> tuple[str, list[Attribute]] | None:
    """Return the label of the NodeProto ``raw[:size]``, and the tensors and bodies in it (`PADDING` follows).

    The label is empty if the node has neither a name nor an output. None if it is not whole, or in parts.
    """
    name = output = ""
    op = domain = b""
    found: list[Attribute] = []
    pos = at = 0
    try:
        while pos < size:
            tag = raw[pos]
            if tag >= 0x80:
                tag, pos = read_tag(raw, pos)
            else:
                pos += 1
            if tag & 7 != LEN:
                pos = skip_payload(raw, pos, tag & 7)
                continue
            length = raw[pos]
            pos += 1
            if length >= 0x80:
                length, pos = read_length(raw, pos - 1)
            end = pos + length
            if end > size:
                return None
            if tag == _TAG_ATTRIBUTE:
                if not _read_attribute(raw, pos, end, at, found):
                    return None
                at += 1
            elif tag == _TAG_OUTPUT:
                output = output or raw[pos:end].decode()
            elif tag == _TAG_NODE_NAME:
                name = raw[pos:end].decode()
            elif tag == _TAG_OP:
                op = raw[pos:end]
            elif tag == _TAG_DOMAIN:
                domain = raw[pos:end]
            pos = end
    except (MalformedError, UnicodeDecodeError, IndexError):
        return None
    if pos != size:
        return None
    if op == CONSTANT and domain in STANDARD and output:
        for item in found:
            if item.is_value:
                item.output = output
    return name or output, found


def _read_attribute(raw: bytes, pos: int, stop: int, at: int, found: list[Attribute]) -> bool:
    """Add the tensors and bodies of the AttributeProto ``raw[pos:stop]``; return False if it is in parts."""
    name = ""
    first = len(found)
    counts: dict[int, int] = {}
    while pos < stop:
        tag = raw[pos]
        if tag >= 0x80:
            tag, pos = read_tag(raw, pos)
        else:
            pos += 1
        if tag & 7 != LEN:
            pos = skip_payload(raw, pos, tag & 7)
            continue
        length, pos = read_length(raw, pos)
        end = pos + length
        if end > stop:
            return False
        kind = _HOLDS.get(tag)
        if tag == _TAG_NAME:
            name = raw[pos:end].decode()
        elif kind is not None:
            number = None
            if kind in _REPEATED:
                number = counts.get(kind, 0)
            elif kind in counts:
                return False  # to be merged
            counts[kind] = counts.get(kind, 0) + 1
            found.append(Attribute(kind, name, at, number, pos, end))
        pos = end
    for item in found[first:]:
        item.name = name
    return pos == stop


_SMALL: Final = 16 << 10
_TAGS: Final = {number << 3 | LEN: number for number in (INPUT, OUTPUT, NODE_NAME, OP_TYPE, DOMAIN)}
_TAG_BODIES: Final = (BODY << 3 | LEN, BODIES << 3 | LEN)
_TAG_VALUE_NAME: Final = 1 << 3 | LEN
# Memory of a name while it is found out what bodies capture.
_NAME_COST: Final = 150


def rows_of(places: OnnxPlaces, nodes: Node) -> Iterator[Row]:
    """Yield a row for each NodeProto of a list."""
    index = index_of(nodes)
    if index is None:
        return
    check = places.parser.result.extraction.session.check_cancelled
    for ordinal, pieces, window in index.messages():
        if not ordinal & 0xFFF:
            check()
        yield read_row(places, nodes, ordinal, pieces, window)


def read_row(places: OnnxPlaces, nodes: Node, ordinal: int, pieces: Sequence[Piece], window: Window | None) -> Row:
    """Return the row of one NodeProto; fields that cannot be read are empty."""
    texts, has_body = _texts_of(places, pieces, window)
    outputs = texts[OUTPUT]
    name = (texts[NODE_NAME] or [""])[-1] or next(filter(None, outputs), "") or f"[{ordinal}]"
    beside: Sequence[str] = ()
    if has_body:
        beside = captured(places, nodes, ordinal)
    op, domain = ((texts[number] or [""])[-1] for number in (OP_TYPE, DOMAIN))
    return ordinal, name, op, texts[INPUT], domain, beside, outputs


def _texts_of(places: OnnxPlaces, pieces: Sequence[Piece], window: Window | None) -> tuple[dict[int, list[str]], bool]:
    """Return the texts of a NodeProto by field number, and whether it has bodies."""
    part = places.plain(pieces)
    found = None
    if part is not None and part.end - part.start <= _SMALL:
        window = window if window is not None and window.data is part.data else Window(part.data, part.end)
        window.at(part.start)
        raw = window.read(part.start, part.end)
        found = _read(raw + PADDING, len(raw))
    return found or _by_message(places, pieces)


def _read(raw: bytes, size: int) -> tuple[dict[int, list[str]], bool] | None:
    """Return the texts of a NodeProto by field number, and whether it has bodies; None: look closer."""
    texts: dict[int, list[str]] = {INPUT: [], OUTPUT: [], NODE_NAME: [], OP_TYPE: [], DOMAIN: []}
    has_body = False
    pos = 0
    try:
        while pos < size:
            tag = raw[pos]
            if tag >= 0x80:
                tag, pos = read_tag(raw, pos)
            else:
                pos += 1
            if tag & 7 != LEN:
                pos = skip_payload(raw, pos, tag & 7)
                continue
            length, pos = read_length(raw, pos)
            end = pos + length
            if end > size:
                return None
            number = _TAGS.get(tag)
            if number is not None:
                texts[number].append(raw[pos:end].decode())
            elif tag == _TAG_ATTRIBUTE and not has_body:
                has_body = _has_body(raw, pos, end)
            pos = end
    except (MalformedError, UnicodeDecodeError, IndexError):
        return None
    return (texts, has_body) if pos == size else None


def _has_body(raw: bytes, pos: int, end: int) -> bool:
    while pos < end:
        tag, pos = read_tag(raw, pos)
        if tag in _TAG_BODIES:
            return True
        pos = skip_payload(raw, pos, tag & 7)
    return False


def _by_message(places: OnnxPlaces, pieces: Sequence[Piece]) -> tuple[dict[int, list[str]], bool]:
    """Return what `_read` does, of a NodeProto that is large, in parts, or not whole."""
    message = Message(places.make, pieces, places.node_type)
    texts: dict[int, list[str]] = {}
    limits = places.parser.result.extraction.session.limits
    for number in (INPUT, OUTPUT, NODE_NAME, OP_TYPE, DOMAIN):
        texts[number] = found = []
        for item in message.fields.get(number, ()):
            if isinstance(item, OverlayField):
                continue
            window = message.window(item[0])
            try:
                for at in item[0].fields(number, 0, window):
                    limits.check("name_bytes", at.end - at.start, "a name in a node", offset=at.start)
                    found.append(window.read(at.start, at.end).decode("utf-8", "replace"))
            except PASSING_OR_LIMIT:
                raise
            except PparseError as error:
                places.note(error, "truncated" if isinstance(error, EOFError) else "malformed")
    has_body = False
    try:
        for part in message.elements(ATTRIBUTE):
            attribute = Message(places.make, part, places.attribute_type, message.near)
            has_body = has_body or BODY in attribute.fields or BODIES in attribute.fields
    except PASSING_OR_LIMIT:
        raise
    except PparseError as error:
        places.note(error, "malformed")
    return texts, has_body


# -- bodies ------------------------------------------------------------------------------------------------------------


class _RowFrame:
    """One body that is gone through: what it uses and defines so far."""

    def __init__(self) -> None:
        self.waiting: Iterator[Any] = iter(())
        self.used: set[str] = set()
        self.made: set[str] = set()


def captured(places: OnnxPlaces, nodes: Node, ordinal: int) -> list[str]:
    """Return the names that the bodies of a node use and do not define, at any depth, sorted."""
    session = places.parser.result.extraction.session
    found: set[str] = set()
    with session.budget.charge(0, "the values that bodies use") as charge:
        stack: list[_RowFrame] = []
        waiting = _bodies_of(nodes.child(ordinal))
        names = 0
        while True:
            body = next(waiting, None)
            if body is not None:
                frame = _RowFrame()
                stack.append(frame)
                frame.made.update(text_at(kid, "name") for kid in kids_of(body.find("input")))
                frame.made.update(initializer_names(places, body))
                inner: list[int] = []
                inner_nodes = body.find("node")
                for at, text_inputs, outputs, has_body in _uses(places, inner_nodes):
                    frame.used.update(text_inputs)
                    frame.made.update(outputs)
                    if has_body:
                        inner.append(at)
                names += len(frame.used) + len(frame.made)
                charge.resize(_NAME_COST * names)
                session.check_cancelled()
                frame.waiting = waiting
                waiting = _bodies_below(inner_nodes, inner)
                continue
            if not stack:
                break
            frame = stack.pop()
            used = frame.used - frame.made
            (stack[-1].used if stack else found).update(used)
            waiting = frame.waiting
    found.discard("")
    return sorted(found)


def _uses(places: OnnxPlaces, nodes: Node | None) -> Iterator[tuple[int, list[str], list[str], bool]]:
    index = index_of(nodes)
    if index is None:
        return
    for ordinal, pieces, window in index.messages():
        texts, has_body = _texts_of(places, pieces, window)
        yield ordinal, texts[INPUT], texts[OUTPUT], has_body


def _bodies_below(nodes: Node | None, numbers: Sequence[int]) -> Iterator[Node]:
    for number in numbers:
        if nodes is not None:
            yield from _bodies_of(nodes.child(number))


def _bodies_of(node: Node) -> Iterator[Node]:
    """Yield the graphs in the attributes of a node."""
    for attribute in kids_of(node.find("attribute")):
        body = attribute.find("g") if attribute.shape != SCALAR else None
        if body is not None:
            yield body
        yield from kids_of(attribute.find("graphs") if attribute.shape != SCALAR else None)


def initializer_names(places: OnnxPlaces, graph: Node) -> Iterator[str]:
    """Yield the names of the initializers of a graph, dense, then sparse."""
    for key in ("initializer", "sparse_initializer"):
        index = index_of(graph.find(key))
        if index is not None:
            for ordinal, pieces, window in index.messages():
                yield places.own_name(key, ordinal, pieces, window)


def value_names(places: OnnxPlaces, infos: Node | None) -> Iterator[str]:
    """Yield the names of the ValueInfoProtos of a list; there may be one for each value of a model."""
    index = index_of(infos)
    if infos is None or index is None:
        return
    for ordinal, pieces, window in index.messages():
        part = places.plain(pieces)
        name = None
        if part is not None and window is not None and part.data is window.data and part.end - part.start <= _SMALL:
            window.at(part.start)
            raw = window.read(part.start, part.end)
            name = _value_name(raw + PADDING, len(raw))
        yield name if name is not None else text_at(infos.child(ordinal), "name")


def _value_name(raw: bytes, size: int) -> str | None:
    """Return the name of a ValueInfoProto; None: look closer."""
    name = ""
    pos = 0
    try:
        while pos < size:
            tag, pos = read_tag(raw, pos)
            end = skip_payload(raw, pos, tag & 7)
            if tag == _TAG_VALUE_NAME:
                _, pos = read_length(raw, pos)
                name = raw[pos:end].decode()
            pos = end
    except (MalformedError, UnicodeDecodeError, IndexError):
        return None
    return name if pos == size else None
