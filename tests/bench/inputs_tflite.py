"""A large TFLite model that the benchmarks read; written without a library, in the order that one has: tables, then
each buffer with its bytes behind it."""

from __future__ import annotations

import os
from struct import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

# Sizes of tables, and where in them the field of each slot stands (tflite/converter/schema/schema.fbs).
_LAYOUTS = {
    "buffer": (8, 4),  # data
    "tensor": (20, 4, 16, 8, 12),  # shape, type, buffer, name
    "operator": (16, 4, 8, 12),  # code, inputs, outputs
    "code": (8, 4),
    "graph": (24, 4, 8, 12, 16, 20),  # tensors, inputs, outputs, operators, name
    "model": (24, 4, 8, 12, 16, 20),  # version, codes, graphs, description, buffers
}
_FULLY_CONNECTED = 9


class _Front:
    """What lies before the buffers; an offset is filled in when what it leads to is put."""

    def __init__(self) -> None:
        self.out = bytearray(8)
        self.vtables: dict[str, int] = {}

    def lead(self, place: int, to: int | None = None) -> None:
        """Let the offset at ``place`` lead to ``to``, by default to what comes next."""
        self.out += bytes(-len(self.out) % 4)
        self.out[place : place + 4] = pack("<I", (len(self.out) if to is None else to) - place)

    def table(self, place: int, kind: str) -> int:
        """Put a table of zeros to which the offset at ``place`` leads; return where it is."""
        size, *slots = _LAYOUTS[kind]
        self.out += bytes(-len(self.out) % 4)
        if kind not in self.vtables:
            self.vtables[kind] = len(self.out)
            self.out += pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), size, *slots)
        self.lead(place)
        at = len(self.out)
        self.out += pack("<i", at - self.vtables[kind]) + bytes(size - 4)
        return at

    def vector(self, place: int, count: int, raw: bytes) -> int:
        """Put a vector, of zeros if there are no bytes; return where its elements begin."""
        self.lead(place)
        self.out += pack("<I", count) + (raw or bytes(4 * count))
        return len(self.out) - len(raw or bytes(4 * count))


def model(path: Path, count: int, size: int) -> Path:
    """Write ``count`` operators, each with a float32 constant, of ``size`` random bytes all together."""
    front, each = _Front(), size // count // 1024 * 1024
    root = front.table(0, "model")
    front.out[4:8] = b"TFL3"
    front.out[root + 4 : root + 8] = pack("<I", 3)
    front.table(front.vector(root + 8, 1, b""), "code")
    front.out[-4:] = pack("<I", _FULLY_CONNECTED)
    graph = front.table(front.vector(root + 12, 1, b""), "graph")
    front.vector(root + 16, 15, b"made for a test\0")
    tensors = front.vector(graph + 4, 2 * count + 1, b"")
    for number in range(2 * count + 1):  # a value, then in turns a constant and a value
        at = front.table(tensors + 4 * number, "tensor")
        front.out[at + 8 : at + 12] = pack("<I", (number + 1) // 2 if number % 2 else 0)
        front.vector(at + 4, 2, pack("<2i", each // 1024, 256))
        name = f"model/layer_{number // 2}/{'weight' if number % 2 else 'MatMul'}".encode()
        front.vector(at + 12, len(name), name + b"\0")
    front.vector(graph + 8, 1, pack("<i", 0))
    front.vector(graph + 12, 1, pack("<i", 2 * count))
    steps = front.vector(graph + 16, count, b"")
    for number in range(0, 2 * count, 2):
        at = front.table(steps + 2 * number, "operator")
        front.vector(at + 8, 2, pack("<2i", number, number + 1))
        front.vector(at + 12, 1, pack("<i", number + 2))
    front.vector(graph + 20, 4, b"main\0")
    buffers = front.vector(root + 20, count + 1, b"")
    front.table(buffers, "buffer")  # the first one is empty: its offset leads to no bytes
    front.vector(len(front.out) - 4, 0, b"")
    front.out += bytes(-len(front.out) % 16)
    start = len(front.out)
    for number in range(count):  # 4 bytes before each table, so that its bytes begin at a multiple of 16
        front.lead(buffers + 4 * (number + 1), start + number * (each + 16) + 4)
    noise = os.urandom(1 << 20)
    with path.open("wb") as file:
        file.write(front.out)
        for number in range(count):
            at = start + number * (each + 16) + 4
            file.write(bytes(4) + pack("<iII", at - front.vtables["buffer"], 4, each))
            for done in range(0, each, len(noise)):
                file.write(noise[: each - done])
    return path
