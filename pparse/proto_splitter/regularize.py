"""What TensorFlow removes from a graph before it computes the fingerprint, because it varies between equal models.

The rules are those of TensorFlow's ``graph_regularization::SimpleDelete``, found by experiment:

- the function library and the versions are emptied;
- a ``PartitionedCall`` or ``StatefulPartitionedCall`` loses the number at the end of the name of the function that it
  calls (``__inference_f_12`` becomes ``__inference_f_``), and the content of its ``config_proto``;
- a ``Const`` of strings loses its value.

Changes are written as parts that follow a node's own: parsing merges, and the last entry of a map wins.
"""

from __future__ import annotations

from pparse.kernels.varint import encode_varint
from pparse.lazy import lazy_pattern
from pparse.proto_splitter.canonical import Changes
from pparse.proto_splitter.pieces import last_number, last_text, span, submessage, text_map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.proto_splitter.canonical import Canonicalizer
    from pparse.proto_splitter.pieces import Item
    from pparse.protobuf.schema import MessageType

# Field numbers of GraphDef, NodeDef, AttrValue and NameAttrList.
_NODE, _LIBRARY, _VERSIONS = 1, 2, 4
_OP, _ATTR = 2, 5
_TEXT, _TYPE, _FUNCTION = 2, 6, 10
_FUNCTION_NAME: Final = 1
_DT_STRING: Final = 7

_CALLS: Final = (b"PartitionedCall", b"StatefulPartitionedCall")
# What C++ accepts as a number: blanks around it, a sign.
_NUMBER: Final = lazy_pattern(rb"[ \t\n\v\f\r]*([-+]?[0-9]{1,30})[ \t\n\v\f\r]*")


def suffix_number(name: bytes) -> int | None:
    """Return the number after the last underscore of a function's name; None if there is none, or above 64 bits."""
    match = _NUMBER.fullmatch(name.rpartition(b"_")[2])
    number = int(match[1]) if match else 1 << 63
    return number if -(1 << 63) <= number < 1 << 63 else None


def without_number(name: bytes, number: int) -> bytes:
    """Return the name without the number at its end, if it is written as C++ writes it."""
    return name.removesuffix(str(number).encode())


def graph_changes(canonicalizer: Canonicalizer, attr_value: MessageType) -> Changes:
    """Return the changes to a GraphDef; ``attr_value`` is the type ``tensorflow.AttrValue``."""

    def rewrite(node: list[Item]) -> list[Item]:
        op = last_text(node, _OP)
        if op == b"Const":
            return node + _constant_changes(node)
        return node + _call_changes(node, canonicalizer, attr_value) if op in _CALLS else node

    return Changes((_LIBRARY, _VERSIONS), _NODE, rewrite)


def _constant_changes(node: list[Item]) -> list[Item]:
    attrs = text_map(node, _ATTR)
    if b"value" not in attrs or last_number(attrs.get(b"dtype", []), _TYPE) != _DT_STRING:
        return []
    return [_entry(b"value", b"")]


def _call_changes(node: list[Item], canonicalizer: Canonicalizer, attr_value: MessageType) -> list[Item]:
    attrs = text_map(node, _ATTR)
    changes = []
    if b"config_proto" in attrs:
        changes.append(_entry(b"config_proto", _field(_TEXT, b"")))
    if b"f" in attrs:
        value = canonicalizer.run(attr_value, attrs[b"f"]).tobytes()
        name = last_text(submessage([span(value)], _FUNCTION) or [], _FUNCTION_NAME)
        number = suffix_number(name)
        if number is not None:
            new = _field(_FUNCTION, _field(_FUNCTION_NAME, without_number(name, number)))
            changes.append(_entry(b"f", value + new))
    return changes


def _field(number: int, content: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(content)) + content


def _entry(key: bytes, value: bytes) -> Item:
    """Return an entry of a node's attributes."""
    return span(_field(_ATTR, _field(1, key) + _field(2, value)))
