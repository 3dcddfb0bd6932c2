"""ONNX files, written by hand: what no library writes, and numbers that it would change on the way."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Numbers of the fields; the names are those of onnx-ml.proto.
MODEL_GRAPH, MODEL_FUNCTIONS, MODEL_TRAINING = 7, 25, 20
GRAPH_NODE, GRAPH_NAME, GRAPH_INITIALIZER, GRAPH_SPARSE = 1, 2, 5, 15
NODE_INPUT, NODE_OUTPUT, NODE_NAME, NODE_OP, NODE_ATTRIBUTE = 1, 2, 3, 4, 5
ATTRIBUTE_NAME, ATTRIBUTE_TENSOR, ATTRIBUTE_GRAPH, ATTRIBUTE_TYPE = 1, 5, 6, 20
DIMS, TYPE, SEGMENT, NAME, RAW, EXTERNAL, LOCATION = 1, 2, 3, 8, 9, 13, 14
FLOATS, INT32S, STRINGS, INT64S, DOUBLES, UINT64S = 4, 5, 6, 7, 10, 11

FLOAT, UINT8, INT8, INT32, INT64, STRING, FLOAT16, DOUBLE, COMPLEX64, UINT4 = 1, 2, 3, 6, 7, 8, 10, 11, 14, 21


def varint(number: int) -> bytes:
    """Encode a number; negative ones take ten bytes."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def count(field: int, number: int) -> bytes:
    """Encode a field that is a varint."""
    return varint(field << 3) + varint(number)


def block(field: int, content: bytes | str) -> bytes:
    """Encode a field that is a text, bytes or a message."""
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def typed(field: int, items: Iterable[int | bytes], how: str = "packed") -> bytes:
    """Encode the elements of a typed field: varints, or the bytes of fixed-width ones.

    ``how`` is ``packed``, ``unpacked`` (a tag before each), or ``mixed``: three of them each way, in turn.
    """
    pieces = [varint(item) if isinstance(item, int) else item for item in items]
    if how == "packed" and field != STRINGS:
        return block(field, b"".join(pieces))
    wire = {FLOATS: 5, DOUBLES: 1, STRINGS: 2}.get(field, 0)
    single = [varint(field << 3 | wire) + (varint(len(piece)) if wire == 2 else b"") + piece for piece in pieces]
    if how == "unpacked" or field == STRINGS:
        return b"".join(single)
    out = []
    for start in range(0, len(pieces), 6):
        out += single[start : start + 3]
        out.append(block(field, b"".join(pieces[start + 3 : start + 6])))
    return b"".join(out)


def tensor(
    name: str, dims: Iterable[int], type: int, data: bytes = b"", *, raw: bytes | None = None, packed: bool = True
) -> bytes:
    """Encode a tensor; ``data`` are further fields, as encoded."""
    dims = list(dims)
    shape = block(DIMS, b"".join(map(varint, dims))) if packed and dims else b"".join(count(DIMS, n) for n in dims)
    content = b"" if raw is None else block(RAW, raw)
    return shape + count(TYPE, type) + data + (block(NAME, name) if name else b"") + content


def external(**pairs: str | int) -> bytes:
    """Encode the fields of a tensor whose data lies in another file."""
    entries = [block(EXTERNAL, block(1, key) + block(2, str(value))) for key, value in pairs.items()]
    return b"".join(entries) + count(LOCATION, 1)


def floats(name: str, *values: float) -> bytes:
    """Encode a tensor of float32 numbers, in raw_data."""
    return tensor(name, [len(values)], FLOAT, raw=pack(f"<{len(values)}f", *values))


def node(op: str = "Identity", name: str = "", outputs: Iterable[str] = (), attributes: Iterable[bytes] = ()) -> bytes:
    """Encode a node; attributes as encoded."""
    return (
        b"".join(block(NODE_OUTPUT, output) for output in outputs)
        + (block(NODE_NAME, name) if name else b"")
        + block(NODE_OP, op)
        + b"".join(block(NODE_ATTRIBUTE, attribute) for attribute in attributes)
    )


def tensor_attribute(name: str, content: bytes) -> bytes:
    return block(ATTRIBUTE_NAME, name) + block(ATTRIBUTE_TENSOR, content) + count(ATTRIBUTE_TYPE, 4)


def graph_attribute(name: str, content: bytes) -> bytes:
    return block(ATTRIBUTE_NAME, name) + block(ATTRIBUTE_GRAPH, content) + count(ATTRIBUTE_TYPE, 5)


def graph(initializers: Iterable[bytes] = (), nodes: Iterable[bytes] = ()) -> bytes:
    """Encode a graph: nodes first, as libraries do."""
    return (
        b"".join(block(GRAPH_NODE, one) for one in nodes)
        + block(GRAPH_NAME, "g")
        + b"".join(block(GRAPH_INITIALIZER, one) for one in initializers)
    )


def model(content: bytes, more: bytes = b"") -> bytes:
    """Encode a model with this graph; ``more`` are further fields."""
    opset = block(8, count(2, 21))
    return count(1, 10) + block(2, "by hand") + block(MODEL_GRAPH, content) + opset + more


def model_of(*initializers: bytes, nodes: Iterable[bytes] = (), more: bytes = b"") -> bytes:
    """Encode a model with these initializers."""
    return model(graph(initializers, nodes), more)
