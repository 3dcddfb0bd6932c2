"""NodeProtos read without tree nodes: those of a graph may be hundreds of thousands.

Field numbers are those of onnx/onnx-ml.proto.
"""

from __future__ import annotations

from pparse.errors import MalformedError
from pparse.kernels.wire import LEN, read_length, read_tag, skip_payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from pparse.parsers.protobuf.index import Piece
    from pparse.parsers.protobuf.message import Problem

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

    __slots__ = ("at", "end", "kind", "name", "number", "output", "pieces", "problem", "start")

    def __init__(self, kind: int, name: str, at: int, number: int | None, start: int, end: int) -> None:
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
        self.pieces: Sequence[Piece] = ()
        """What it is made of."""
        self.problem: Problem | None = None
        """Why it cannot be read."""


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
            if (item.name, item.kind) in (("value", TENSOR), ("sparse_value", SPARSE)):
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
