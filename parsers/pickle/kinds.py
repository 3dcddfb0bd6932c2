"""Kinds of nodes by the opcode that made the value, and which of them have children."""

from __future__ import annotations

from pparse.tree.entry import LIST, MAP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_KINDS: Final = {
    "none": b"N",
    "bool": b"\x88\x89",
    "int": b"IKMJL\x8a\x8b",
    "float": b"FG",
    "str": b"XV\x8c\x8dSTU",
    "bytes": b"BC\x8e",
    "bytearray": b"\x96",
    "buffer": b"\x97",
    "tuple": b")t\x85\x86\x87",
    "list": b"]l",
    "dict": b"}d",
    "set": b"\x8f",
    "frozenset": b"\x91",
    "call": b"R\x81\x92oi",
    "global": b"c\x93",
    "extension": b"\x82\x83\x84",
    "persistent": b"Q",
    "persistent-id": b"P",
    "alias": b"hjg2",
    "unfinished": b"(",
}
KIND_OF: Final = {opcode: kind for kind, opcodes in _KINDS.items() for opcode in opcodes}
SHAPES: Final = {
    "pickles": LIST,
    "tuple": LIST,
    "list": LIST,
    "dict": MAP,
    "set": LIST,
    "frozenset": LIST,
    "call": MAP,
    "items": LIST,
    "pairs": MAP,
    "persistent": MAP,
    "unfinished": LIST,
}
# Kinds whose children follow each other, so that offsets are kept instead of entries.
SEQUENCES: Final = frozenset(("tuple", "list", "dict", "set", "frozenset", "items", "pairs"))
# Kinds of calls whose result is plain data.
PLAIN_KINDS: Final = {
    "_codecs.encode": "bytes",
    "collections.OrderedDict": "dict",
    **{
        f"{module}.{name}": name for module in ("builtins", "__builtin__") for name in ("bytes", "bytearray", "complex")
    },
}
