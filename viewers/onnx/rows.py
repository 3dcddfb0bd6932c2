"""NodeProtos as rows of a graph, streamed without tree nodes, and what bodies of nodes capture."""

from __future__ import annotations

from pparse.errors import FaultError, MalformedError
from pparse.kernels.wire import LEN, PADDING, read_length, read_tag, skip_payload
from pparse.parsers.protobuf.index import OverlayField
from pparse.parsers.protobuf.message import Message
from pparse.parsers.protobuf.window import Window
from pparse.tree.entry import SCALAR
from pparse.viewers.tensor_proto.viewer import kids_of, messages_of, node_at, text_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

    from pparse.data.reader import Range
    from pparse.graphs.source import Row
    from pparse.parsers.protobuf.index import Piece
    from pparse.tree.node import Node
    from pparse.viewers.onnx.places import OnnxPlaces

    Texts = dict[int, list[str]]

# -- NodeProtos read without tree nodes: those of a graph may be hundreds of thousands ---------------------------------

# Field numbers are those of onnx/onnx-ml.proto.

# Fields of a NodeProto …
INPUT, OUTPUT, NODE_NAME, OP_TYPE, ATTRIBUTE, DOMAIN = 1, 2, 3, 4, 5, 7
# … and of an AttributeProto: those that hold tensors and bodies.
ATTRIBUTE_NAME, TENSOR, BODY, TENSORS, BODIES, SPARSE, SPARSES = 1, 5, 6, 10, 11, 22, 23
_HOLDS: Final = {kind << 3 | LEN: kind for kind in (TENSOR, BODY, TENSORS, BODIES, SPARSE, SPARSES)}
_REPEATED: Final = frozenset((TENSORS, BODIES, SPARSES))
_TAG_NAME: Final = ATTRIBUTE_NAME << 3 | LEN
_TAG_ATTRIBUTE: Final = ATTRIBUTE << 3 | LEN
# NodeProtos up to this size are read in one go.
SMALL: Final = 16 << 10


class Attribute:
    """A tensor or a body in an attribute of a node."""

    __slots__ = ("at", "kind", "name", "number", "output", "pieces")

    def __init__(self, kind: int, name: str, at: int, number: int | None, pieces: Sequence[Piece]) -> None:
        self.kind = kind
        """The field of the attribute that holds it."""
        self.name = name
        """Name of the attribute."""
        self.at = at
        """Number of the attribute in the node."""
        self.number = number
        """Number of the element, if the attribute is a list."""
        self.pieces = pieces
        """What it is made of."""
        self.output: str | None = None
        """Of the value of a Constant, the output, whose name it has."""

    @property
    def is_value(self) -> bool:
        """Whether it is the value, if the node is a Constant."""
        return (self.name, self.kind) in (("value", TENSOR), ("sparse_value", SPARSE))


def is_constant(texts: Texts) -> bool:
    """Return whether the tensor in a node is its output."""
    op, domain = (last_of(texts, number) for number in (OP_TYPE, DOMAIN))
    return op == "Constant" and domain in ("", "ai.onnx")


def read_node(raw: bytes) -> tuple[Texts, list[tuple[int, int]]] | None:
    """Return the texts of a NodeProto by field, and where its attributes are; `PADDING` is at the end of ``raw``.

    None if it is not whole.
    """
    texts: Texts = {INPUT: [], OUTPUT: [], NODE_NAME: [], OP_TYPE: [], DOMAIN: []}
    attributes: list[tuple[int, int]] = []
    pos, size = 0, len(raw) - len(PADDING)
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
                attributes.append((pos, end))
            else:
                found = texts.get(tag >> 3)
                if found is not None:
                    found.append(raw[pos:end].decode())
            pos = end
    except (MalformedError, UnicodeDecodeError, IndexError):
        return None
    return (texts, attributes) if pos == size else None


def held_by(part: Range, raw: bytes, attributes: Sequence[tuple[int, int]]) -> list[Attribute] | None:
    """Return the tensors and bodies in the attributes of a node at ``part``; None if one is not whole, or in parts."""
    found: list[Attribute] = []
    try:
        for at, (pos, end) in enumerate(attributes):
            if not _read_attribute(part, raw, pos, end, at, found):
                return None
    except (MalformedError, UnicodeDecodeError, IndexError):
        return None
    return found


def _read_attribute(part: Range, raw: bytes, pos: int, stop: int, at: int, found: list[Attribute]) -> bool:
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
        length = raw[pos]
        pos += 1
        if length >= 0x80:
            length, pos = read_length(raw, pos - 1)
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
            place = part.data.range(part.start + pos, part.start + end)
            found.append(Attribute(kind, name, at, number, (place,)))
        pos = end
    for item in found[first:]:
        item.name = name
    return pos == stop


_TAG_BODIES: Final = (BODY << 3 | LEN, BODIES << 3 | LEN)
_TAG_VALUE_NAME: Final = 1 << 3 | LEN
# Memory of a name while it is found out what bodies capture.
_NAME_COST: Final = 150


def rows_of(places: OnnxPlaces, nodes: Node) -> Iterator[Row]:
    """Yield a row for each NodeProto of a list."""
    check = places.parser.result.extraction.session.check_cancelled
    for ordinal, pieces, window in messages_of(nodes):
        if not ordinal & 0xFFF:
            check()
        yield read_row(places, nodes, ordinal, pieces, window)


def read_row(places: OnnxPlaces, nodes: Node, ordinal: int, pieces: Sequence[Piece], window: Window | None) -> Row:
    """Return the row of one NodeProto; fields that cannot be read are empty."""
    texts, has_body = _texts_of(places, pieces, window)
    beside = captured(places, nodes, ordinal) if has_body else ()
    op, domain = (last_of(texts, number) for number in (OP_TYPE, DOMAIN))
    return ordinal, label_of(texts) or f"[{ordinal}]", op, texts[INPUT], domain, beside, texts[OUTPUT]


def last_of(texts: Texts, number: int) -> str:
    """Return the text in a field, the last of several as everywhere in protocol buffers."""
    return texts[number][-1] if texts[number] else ""


def label_of(texts: Texts) -> str:
    """Return the name of a node, or else the first that an output has; empty if there is none."""
    return last_of(texts, NODE_NAME) or next(filter(None, texts[OUTPUT]), "")


def _texts_of(places: OnnxPlaces, pieces: Sequence[Piece], window: Window | None) -> tuple[Texts, bool]:
    """Return the texts of a NodeProto by field number, and whether it has bodies."""
    raw = small_message(places.plain(pieces), window)
    read = read_node(raw) if raw else None
    try:
        if read is not None:
            return read[0], any(_has_body(raw, pos, end) for pos, end in read[1])
    except (MalformedError, IndexError):
        pass
    return _by_message(places, pieces)


def small_message(part: Range | None, window: Window | None) -> bytes:
    """Return the bytes of a small message in one stretch, with `PADDING` behind them; nothing of any other."""
    if part is None or part.end - part.start > SMALL:
        return b""
    window = window if window is not None and window.data is part.data else Window(part.data, part.end)
    window.at(part.start)
    return window.read(part.start, part.end) + PADDING


def _has_body(raw: bytes, pos: int, end: int) -> bool:
    while pos < end:
        tag, pos = read_tag(raw, pos)
        if tag in _TAG_BODIES:
            return True
        pos = skip_payload(raw, pos, tag & 7)
    return False


def _by_message(places: OnnxPlaces, pieces: Sequence[Piece]) -> tuple[Texts, bool]:
    """Return the same of a NodeProto that is large, in parts, or not whole."""
    message = Message(places.make, pieces, places.node_type)
    texts: Texts = {}
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
            except FaultError as error:
                places.note(error, "truncated" if isinstance(error, EOFError) else "malformed")
    has_body = False
    try:
        for part in message.elements(ATTRIBUTE):
            attribute = Message(places.make, part, places.attribute_type, message.near)
            has_body = has_body or BODY in attribute.fields or BODIES in attribute.fields
    except FaultError as error:
        places.note(error, "malformed")
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
        name = _value_name(raw) if raw else None
        yield name if name is not None else text_at(node_at(infos, ordinal), "name")


def _value_name(raw: bytes) -> str | None:
    """Return the name of a ValueInfoProto; None: look closer."""
    name = ""
    pos, size = 0, len(raw) - len(PADDING)
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
