"""MessagePack files for tests, written by a small encoder of our own: it can write what no library would."""

from __future__ import annotations

from struct import pack
from typing import Any


class Raw(bytes):
    """Bytes of MessagePack that are put in as they are."""


def pairs(*items: tuple[Any, Any]) -> Raw:
    """Encode a map, with keys of any type, twice the same if need be."""
    return Raw(_head(0x80, 0xDE, len(items)) + b"".join(encode(part) for item in items for part in item))


def ext(number: int, payload: bytes) -> Raw:
    """Encode an extension."""
    code = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(payload))
    head = bytes((code,)) if code else b"\xc7" + pack(">B", len(payload)) if len(payload) < 256 else b""
    return Raw((head or b"\xc9" + pack(">I", len(payload))) + pack(">b", number) + payload)


def array(dtype: str, shape: list[int], content: bytes, number: int = 1) -> Raw:
    """Encode an array as flax does."""
    return ext(number, encode([shape, dtype, content]))


def _head(fixed: int, wide: int, count: int) -> bytes:
    if count < 16:
        return bytes((fixed | count,))
    return bytes((wide,)) + pack(">H", count) if count < 1 << 16 else bytes((wide + 1,)) + pack(">I", count)


def _sized(codes: tuple[int, int, int], content: bytes) -> bytes:
    for code, layout in zip(codes, (">B", ">H", ">I"), strict=True):
        if len(content) < 1 << 8 * len(pack(layout, 0)):
            return bytes((code,)) + pack(layout, len(content)) + content
    raise ValueError("too long")


def _int(value: int) -> bytes:
    if -32 <= value < 128:
        return pack("b", value)
    for code, layout, low, high in (
        (0xCC, ">B", 0, 1 << 8),
        (0xCD, ">H", 0, 1 << 16),
        (0xCE, ">I", 0, 1 << 32),
        (0xCF, ">Q", 0, 1 << 64),
        (0xD0, ">b", -(1 << 7), 0),
        (0xD1, ">h", -(1 << 15), 0),
        (0xD2, ">i", -(1 << 31), 0),
        (0xD3, ">q", -(1 << 63), 0),
    ):
        if low <= value < high:
            return bytes((code,)) + pack(layout, value)
    raise ValueError("too large")


def encode(value: Any) -> bytes:
    """Encode a value, in the shortest form."""
    if isinstance(value, Raw):
        return value
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return _int(value)
    if isinstance(value, float):
        return b"\xcb" + pack(">d", value)
    if isinstance(value, str):
        content = value.encode()
        short = len(content) < 32
        return bytes((0xA0 | len(content),)) + content if short else _sized((0xD9, 0xDA, 0xDB), content)
    if isinstance(value, bytes):
        return _sized((0xC4, 0xC5, 0xC6), value)
    if isinstance(value, dict):
        return pairs(*value.items())
    return _head(0x90, 0xDC, len(value)) + b"".join(map(encode, value))


EVERYTHING = encode(
    {
        "name": "everything",
        "numbers": [
            0,
            127,
            128,
            255,
            256,
            65535,
            65536,
            1 << 32,
            (1 << 64) - 1,
            -1,
            -32,
            -33,
            -129,
            -40000,
            -(1 << 40),
        ],
        "floats": [1.5, Raw(b"\xca" + pack(">f", 0.25)), float("inf")],
        "constants": [None, True, False],
        "texts": ["", "é", "x" * 40, "y" * 260],
        "bytes": [b"", b"\x00\xff", b"z" * 9],
        "extensions": [ext(5, b""), ext(-7, b"abc"), ext(1, b"d"), ext(2, bytes(16)), ext(3, bytes(9))],
        "times": [
            ext(-1, pack(">I", 1)),
            ext(-1, pack(">Q", 999_999_999 << 34 | 1 << 33)),
            ext(-1, pack(">Iq", 5, -1)),
        ],
        "wide": {f"k{number}": number for number in range(16)},
        "list": list(range(16)),
        "empty": [[], {}],
        "deep": [[[[["bottom"]]]]],
        "keys": pairs((1, "int"), (b"b", "bytes"), (None, "nil"), (1.5, "float"), ([1, 2], "array"), (True, "bool")),
        "twice": pairs(("k", 1), ("k", 2)),
    }
)
NUMPY = encode(
    {
        "w": {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2, 3], b"data": bytes(24)},
        "old": {"nd": True, "type": ">i2", "shape": [2], "data": b"\0\1\0\2"},
        "step": 3,
    }
)
FLAX = encode(
    {
        "params": {
            "Dense_0": {"kernel": array("float32", [2, 3], bytes(24)), "bias": array("bfloat16", [3], bytes(6))}
        },
        "empty": array("int64", [0, 4], b""),
        "scalar": array("float32", [], pack("<f", 0.5), 3),
        "complex": ext(2, encode([1.0, -2.0])),
        "big": {
            "__msgpack_chunked_array__": True,
            "shape": {"0": 2, "1": 4},
            "chunks": {"0": array("int16", [4], bytes(8)), "1": array("int16", [4], bytes(range(8)))},
        },
        "step": 7,
    }
)
