"""GGUF files, written by hand: any version and byte order, and what no library writes."""

from __future__ import annotations

from math import prod
from struct import calcsize, pack, unpack_from

TYPES = {
    "uint8": (0, "B"),
    "int8": (1, "b"),
    "uint16": (2, "H"),
    "int16": (3, "h"),
    "uint32": (4, "I"),
    "int32": (5, "i"),
    "float32": (6, "f"),
    "bool": (7, "?"),
    "uint64": (10, "Q"),
    "int64": (11, "q"),
    "float64": (12, "d"),
}
TEXT, ARRAY = 8, 9


class Writer:
    """Encodes the parts of a file of one version and byte order."""

    def __init__(self, version: int = 3, order: str = "<") -> None:
        self.version, self.order = version, order
        self.length = "I" if version == 1 else "Q"

    def pack(self, layout: str, *values: object) -> bytes:
        return pack(self.order + layout, *values)

    def text(self, text: str | bytes) -> bytes:
        raw = text.encode() if isinstance(text, str) else text
        return self.pack(self.length, len(raw)) + raw

    def value(self, value: object) -> bytes:
        """Encode a type and a value: ``("uint8", 1)``, a text, a list of texts or lists, ``("uint8", [1, 2])``."""
        kind, body = self._typed(value)
        return self.pack("I", kind) + body

    def _typed(self, value: object) -> tuple[int, bytes]:
        if isinstance(value, str | bytes):
            return TEXT, self.text(value)
        if isinstance(value, list):
            inner = [self._typed(item) for item in value]
            kind = inner[0][0] if inner else TEXT
            return ARRAY, self.pack("I" + self.length, kind, len(inner)) + b"".join(body for _, body in inner)
        name, plain = value
        kind, layout = TYPES[name]
        if isinstance(plain, list):
            return ARRAY, self.pack(f"I{self.length}{len(plain)}{layout}", kind, len(plain), *plain)
        return kind, self.pack(layout, plain)

    def tensor(self, name: str | bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
        """Encode an entry of the table; ``shape`` has the outermost dimension first."""
        dimensions = self.pack(f"I{len(shape)}{self.length}", len(shape), *reversed(shape))
        return self.text(name) + dimensions + self.pack("IQ", kind, offset)

    def file(self, pairs: list, tensors: list, data: bytes = b"", alignment: int = 32, counts=None) -> bytes:
        tensor_count, pair_count = counts or (len(tensors), len(pairs))
        parts = [b"GGUF", self.pack("I" + 2 * self.length, self.version, tensor_count, pair_count)]
        parts += [self.text(key) + self.value(value) for key, value in pairs]
        parts += [self.tensor(*tensor) for tensor in tensors]
        head = b"".join(parts)
        return head + bytes(-len(head) % alignment if tensors else 0) + data


F32, Q4_0, Q8_0 = 0, 2, 8


def plain(count: int = 3, size: int = 8, **how: object) -> bytes:
    """Encode a file with tensors of float32, ``t0`` and so on, each filled with its number."""
    writer = Writer(**how)
    room = -(-4 * size // 32) * 32
    tensors = [(f"t{number}", (size,), F32, number * room) for number in range(count)]
    data = b"".join(writer.pack(f"{size}f", *[number] * size).ljust(room, b"\0") for number in range(count))
    return writer.file([("general.architecture", "llama")], tensors, data)


def read_tensors(content: bytes, sizes: dict[int, int]) -> dict[str, bytes]:
    """Return the bytes of each tensor of a little-endian file, of version 2 or 3; ``sizes``: of elements, by type.

    Believes what the file says; raises `ValueError` and `struct.error` where that cannot be.
    """
    if content[:8] not in (b"GGUF\2\0\0\0", b"GGUF\3\0\0\0"):
        raise ValueError("not a GGUF file")
    at = 8

    def take(layout: str) -> tuple:
        nonlocal at
        found = unpack_from("<" + layout, content, at)
        at += calcsize("<" + layout)
        return found

    def text() -> bytes:
        nonlocal at
        (length,) = take("Q")
        at += length
        if at > len(content):
            raise ValueError("a text ends behind the file")
        return content[at - length : at]

    layouts = dict(TYPES.values())
    tensor_count, pair_count = take("QQ")
    alignment = 32
    for _ in range(pair_count):
        key = text()
        (kind,) = take("I")
        kind, count = take("IQ") if kind == ARRAY else (kind, 1)
        for _ in range(count):
            value = text() if kind == TEXT else take(layouts[kind])[0]
        alignment = value if key == b"general.alignment" else alignment
    table = [(text().decode(), take(f"{take('I')[0]}Q"), *take("IQ")) for _ in range(tensor_count)]
    start = at + -at % alignment
    found = {}
    for name, shape, kind, offset in table:
        end = start + offset + prod(shape) * sizes[kind]
        if name in found or end > len(content):
            raise ValueError(f"{name} is there twice, or ends behind the file")
        found[name] = content[start + offset : end]
    return found
