"""Large ONNX models that the benchmarks read; written without the package onnx, field by field as it does."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _fields(count: int, size: int) -> Iterator[tuple[bytes, int]]:
    """Yield what comes before the bytes of each initializer, in the graph, and their number."""
    each = size // count // 512 * 512
    for number in range(count):
        name = _field(8, f"model.layers.{number}.weight".encode())
        head = b"\x08" + _varint(each // 512) + b"\x08\x80\x01\x10\x01" + name + b"\x4a" + _varint(each)
        yield b"\x2a" + _varint(len(head) + each) + head, each


def model(path: Path, count: int, size: int) -> Path:
    """Write ``count`` initializers of float32 in ``size`` random bytes, each used by a node."""
    nodes = b"".join(
        _field(
            1,
            _field(1, b"x" if not number else f"h{number - 1}".encode())
            + _field(1, f"model.layers.{number}.weight".encode())
            + _field(2, f"h{number}".encode())
            + _field(4, b"MatMul"),
        )
        for number in range(count)
    )
    typed = _field(2, _field(1, b"\x08\x01\x12\x00"))
    ends = _field(11, _field(1, b"x") + typed) + _field(12, _field(1, f"h{count - 1}".encode()) + typed)
    length = len(nodes) + 3 + len(ends) + sum(len(head) + each for head, each in _fields(count, size))
    with path.open("wb") as file:
        file.write(b"\x08\x08\x3a" + _varint(length) + nodes + _field(2, b"g"))
        for head, each in _fields(count, size):
            file.write(head)
            file.write(os.urandom(each))
        file.write(ends + _field(8, b"\x10\x11"))
        file.flush()
        os.fsync(file.fileno())  # what is not on the disk cannot be dropped from the caches
    return path
