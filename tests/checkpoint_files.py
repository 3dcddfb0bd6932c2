"""Tables and checkpoints made by hand: small blocks, Snappy, big-endian headers, hostile places."""

from __future__ import annotations

import struct

from pparse.kernels.crc32c import crc32c, masked
from pparse.viewers.checkpoint.entry import name_prefix, slice_rest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

MAGIC = bytes.fromhex("57fb808b247547db")


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def header(shards: int = 1, *, big: bool = False) -> bytes:
    return number(1, shards) + (number(2, 1) if big else b"") + message(3, number(1, 1))


def entry(
    dtype: int, shape: tuple[int, ...], offset: int, size: int, content: bytes | None = None, **more: int
) -> bytes:
    found = number(1, dtype) + message(2, b"".join(message(2, number(1, dim)) for dim in shape))
    found += number(3, more.get("shard", 0)) + number(4, offset) + number(5, size)
    return found if content is None else found + b"\x35" + struct.pack("<I", masked(crc32c(content)))


def slice_key(name: bytes, extents: list[tuple[int, int]]) -> bytes:
    """Return the key of a part of the tensor ``name``."""
    return name_prefix(name) + slice_rest(extents)


def common(one: bytes, other: bytes) -> int:
    """Return how many bytes both begin with."""
    alike, differ = 0, min(len(one), len(other)) + 1
    while differ - alike > 1:
        middle = (alike + differ) // 2
        alike, differ = (middle, differ) if one[alike:middle] == other[alike:middle] else (alike, middle)
    return alike


def block(pairs: list[tuple[bytes, bytes]], interval: int = 16) -> bytes:
    found, restarts, before = bytearray(), [], b""
    for index, (key, value) in enumerate(pairs):
        shared = 0
        if index % interval:
            shared = common(key, before)
        else:
            restarts.append(len(found))
        found += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    restarts = restarts or [0]
    return bytes(found) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def snappy(content: bytes) -> bytes:
    """Return content as one literal, or several, of a Snappy stream."""
    found = varint(len(content))
    for at in range(0, len(content), 60):
        piece = content[at : at + 60]
        found += bytes(((len(piece) - 1) << 2,)) + piece
    return found


def closed(content: bytes, kind: int = 0) -> bytes:
    """Return a block with its trailer."""
    raw = content + bytes((kind,))
    return raw + struct.pack("<I", masked(crc32c(raw)))


def footer(meta: tuple[int, int], index: tuple[int, int]) -> bytes:
    return b"".join(map(varint, (*meta, *index))).ljust(40, b"\0") + MAGIC


def table(pairs: list[tuple[bytes, bytes]], per_block: int = 3, *, packed: bool = False) -> bytes:
    found, places = b"", []
    for at in range(0, len(pairs), per_block):
        some = pairs[at : at + per_block]
        content = snappy(block(some)) if packed else block(some)
        places.append((some[-1][0], varint(len(found)) + varint(len(content))))
        found += closed(content, int(packed))
    return finished(found, places)


def finished(found: bytes, places: list[tuple[bytes, bytes]]) -> bytes:
    """Return blocks with metadata, the index of ``places``, and the footer."""
    meta = block([])
    index = block(places, 1)
    at = len(found)
    found += closed(meta)
    start = len(found)
    found += closed(index)
    return found + footer((at, len(meta)), (start, len(index)))


def write(folder: Path, count: int = 20, *, big: bool = False, **how: object) -> Path:
    """Write a checkpoint of ``count`` float32 tensors of 8 values, all equal to their number."""
    pairs, content = [(b"", header(big=big))], b""
    for index in range(count):
        raw = struct.pack((">" if big else "<") + "8f", *[index] * 8)
        pairs.append((b"layer%04d/w" % index, entry(1, (8,), len(content), 32, raw)))
        content += raw
    (folder / "m.index").write_bytes(table(pairs, **how))  # type: ignore[arg-type]
    (folder / "m.data-00000-of-00001").write_bytes(content)
    return folder / "m.index"
