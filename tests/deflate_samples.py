"""Raw deflate streams of all kinds, with what a slow inflater knows of them."""

from __future__ import annotations

import random
import struct
import zlib
from functools import cache

from tests import deflate_oracle

CONTENTS = ("text", "noise", "floats", "mixed")


class BitString:
    """Written as the format wants it: numbers with the lowest bit first, codes with the highest."""

    def __init__(self) -> None:
        self.bits: list[int] = []

    def number(self, value: int, width: int) -> None:
        self.bits += [value >> at & 1 for at in range(width)]

    def code(self, text: str) -> None:
        self.bits += map(int, text)

    def data(self) -> bytes:
        return int("".join(map(str, reversed(self.bits))) or "0", 2).to_bytes((len(self.bits) + 7) // 8, "little")


@cache
def content(kind: str, size: int = 100_000) -> bytes:
    rng = random.Random(kind)
    if kind == "text":
        words = [bytes(rng.choices(b"abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(800)]
        return b" ".join(rng.choices(words, k=size))[:size]
    if kind == "noise":
        return rng.randbytes(size)
    if kind == "floats":
        return b"".join(struct.pack("<f", rng.gauss(0, 1)) for _ in range(size // 4))
    parts = [content(one, size)[start : start + 6000] for start in range(0, size // 3, 6000) for one in CONTENTS[:3]]
    return b"".join(parts)[:size]


def deflate(
    data: bytes, level: int = 6, memory: int = 8, strategy: int = 0, flush: int = 0, every: int = 20_000
) -> bytes:
    """Compress ``data`` as zlib does; with ``flush``, that way after ``every`` bytes."""
    writer = zlib.compressobj(level, zlib.DEFLATED, -15, memory, strategy)
    if not flush:
        return writer.compress(data) + writer.flush()
    parts = []
    for start in range(0, len(data), every):
        parts += [writer.compress(data[start : start + every]), writer.flush(flush)]
    return b"".join([*parts, writer.flush()])


# name: (content, how)
STREAMS = {
    f"{kind}-{level}-{memory}": (kind, {"level": level, "memory": memory})
    for kind in CONTENTS
    for level in (1, 6, 9)
    for memory in (3, 8)
}
STREAMS |= {
    "sync": ("text", {"flush": zlib.Z_SYNC_FLUSH}),
    "full": ("mixed", {"flush": zlib.Z_FULL_FLUSH, "every": 7000}),
    "flushed noise": ("noise", {"flush": zlib.Z_SYNC_FLUSH}),
    "fixed": ("text", {"strategy": zlib.Z_FIXED, "memory": 4}),
    "flushed fixed": ("text", {"strategy": zlib.Z_FIXED, "flush": zlib.Z_SYNC_FLUSH}),
    "stored": ("text", {"level": 0}),
    "huffman only": ("text", {"strategy": zlib.Z_HUFFMAN_ONLY, "memory": 4}),
}


@cache
def sample(name: str) -> tuple[bytes, bytes, deflate_oracle.Inflated]:
    """Return the content, the stream, and what the oracle makes of that."""
    kind, how = STREAMS[name]
    stream = deflate(content(kind), **how)
    known = deflate_oracle.inflate(stream)
    assert bytes(known.out) == content(kind)
    return content(kind), stream, known
