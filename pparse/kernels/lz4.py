"""LZ4 blocks that a library cannot decode: those that refer to the block before, and incomplete ones."""

from __future__ import annotations

HISTORY = 1 << 16


def with_history(block: bytes, history: bytes) -> bytes:
    """Return a block that decodes without history to ``history`` plus the output of ``block``.

    The history becomes literals before those of the first sequence; the rest of the block is unchanged. Raises
    ValueError if the block ends inside its first literals.
    """
    token = block[0] if block else 0
    at = 1
    count = token >> 4
    if count == 15:
        at, more, _ = _length(block, at)
        count += more
    if not block or count > len(block) - at:
        raise ValueError("the block ends inside its first literals")
    count += len(history)
    if count < 15:
        head = bytes([count << 4 | token & 15])
    else:
        more, last = divmod(count - 15, 255)
        head = bytes([0xF0 | token & 15]) + b"\xff" * more + bytes([last])
    return b"".join((head, history, block[at:]))


def salvage(block: bytes, out: bytearray, limit: int, cut: bool) -> None:
    """Append to ``out`` (which holds the history) what ``block`` yields before it ends or contradicts itself.

    ``cut``: whether the block is only the beginning of one. Appends at most ``limit`` bytes.
    """
    at, end = 0, len(block)
    limit += len(out)
    while at < end:
        token = block[at]
        at += 1
        count = token >> 4
        if count == 15:
            at, more, _ = _length(block, at)
            count += more
        if not cut and count > end - at:
            return
        count = min(count, limit - len(out))
        out += block[at : at + count]
        at += count
        if at + 2 > end:
            return
        offset = block[at] | block[at + 1] << 8
        at += 2
        count = (token & 15) + 4
        if count == 19:
            at, more, whole = _length(block, at)
            if not whole:
                return
            count += more
        start = len(out) - offset
        if not offset or start < 0 or count > limit - len(out):
            return
        piece = out[start : start + count]
        out += piece if offset >= count else (piece * (count // offset + 1))[:count]


def _length(block: bytes, at: int) -> tuple[int, int, bool]:
    """Read the rest of a length at ``at``: return where it ends, its value, and whether it is complete."""
    total = 0
    while at < len(block):
        byte = block[at]
        at += 1
        total += byte
        if byte != 255:
            return at, total, True
    return at, total, False


def short_xxh32(data: bytes) -> int:
    """Return the xxHash-32 (seed 0) of fewer than 16 bytes."""
    value = 374761393 + len(data)
    at = 0
    while at + 4 <= len(data):
        value = value + int.from_bytes(data[at : at + 4], "little") * 3266489917 & 0xFFFFFFFF
        value = (value << 17 | value >> 15) * 668265263 & 0xFFFFFFFF
        at += 4
    for byte in data[at:]:
        value = value + byte * 374761393 & 0xFFFFFFFF
        value = (value << 11 | value >> 21) * 2654435761 & 0xFFFFFFFF
    value = (value ^ value >> 15) * 2246822519 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 3266489917 & 0xFFFFFFFF
    return value ^ value >> 16
