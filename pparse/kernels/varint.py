"""Base-128 varints: low group first, bit 7 set on all bytes but the last.

Rules (those of the Riegeli reference, and of protobuf for canonical data): a 64-bit varint has at most ten bytes, the
tenth 0 or 1; a 32-bit one at most five, the fifth at most 15. Forms longer than needed (``83 00`` for 3) are accepted.
Anything else, and a varint cut by the end of the data, is a `MalformedError`.
"""

from __future__ import annotations

from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

MAX_BYTES_32: Final = 5
MAX_BYTES_64: Final = 10

# The first value too large for the last byte that a varint of that many bytes may have.
_LAST: Final = {MAX_BYTES_32: 0x10, MAX_BYTES_64: 0x02}
_CONTINUED: Final = bytes(range(0x80, 0x100))
_TWO_BYTES: Final = 1 << 14


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL: Final = tuple(_encode(value) for value in range(0x400))


def encode_varint(value: int) -> bytes:
    """Return the canonical varint of ``value`` >= 0 (of any size; the caller keeps to 32 or 64 bits)."""
    if value < 0x400:
        if value < 0:
            raise ValueError(f"a varint cannot be negative: {value}")
        return _SMALL[value]
    if value < _TWO_BYTES:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return _encode(value)


def encode_varints(values: Iterable[int]) -> bytes:
    """Return the canonical varints of ``values``, one after another."""
    return b"".join(map(encode_varint, values))


def read_varint(
    buffer: bytes | memoryview, pos: int, end: int, max_bytes: int = MAX_BYTES_64, what: str = "varint"
) -> tuple[int, int]:
    """Return the value of the varint at ``buffer[pos:end]`` and the position after it.

    ``max_bytes`` is 10 (64 bits) or 5 (32 bits). Raises `MalformedError`, offset ``pos``, if it is cut short or too
    large; ``what`` is the subject of the message.
    """
    if pos < end and (byte := buffer[pos]) < 0x80:
        return byte, pos + 1
    value = shift = 0
    for at in range(pos, min(end, pos + max_bytes)):
        byte = buffer[at]
        if byte < 0x80:
            if at - pos == max_bytes - 1 and byte >= _LAST[max_bytes]:
                break
            return value | byte << shift, at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    else:
        if end - pos < max_bytes:
            raise MalformedError(f"{what} is cut short", offset=pos, got=max(end - pos, 0))
    raise MalformedError(f"{what} does not fit into {32 if max_bytes == MAX_BYTES_32 else 64} bits", offset=pos)


def read_varints(
    buffer: bytes, pos: int, end: int, count: int, max_bytes: int = MAX_BYTES_64, what: str = "varint"
) -> tuple[list[int], int]:
    """Return the ``count`` varints that begin at ``buffer[pos:end]`` and the position after them.

    Raises `MalformedError` as `read_varint` does, and before anything is made if the bytes cannot hold ``count``.
    """
    if count > end - pos:
        raise MalformedError("more values than there are bytes", offset=pos, wanted=count, got=max(end - pos, 0))
    head = buffer[pos : pos + count]
    if head.isascii():
        return list(head), pos + count
    values: list[int] = []
    append = values.append
    for _ in range(count):
        if pos < end and (byte := buffer[pos]) < 0x80:
            append(byte)
            pos += 1
        else:
            value, pos = read_varint(buffer, pos, end, max_bytes, what)
            append(value)
    return values, pos


def decode_varints(data: bytes, limit: int, max_bytes: int = MAX_BYTES_64, what: str = "varint") -> list[int]:
    """Return all varints in ``data``, which must hold nothing else.

    Raises `MalformedError` for an invalid or incomplete varint, and, before anything is made, if there are more than
    ``limit``.
    """
    if len(data) <= limit and data.isascii():
        return list(data)
    # Each varint has exactly one byte without bit 7.
    count = len(data.translate(None, _CONTINUED))
    if count > limit:
        raise MalformedError("more values than expected", wanted=limit, got=count)
    if data and data[-1] >= 0x80:
        raise MalformedError(f"{what} is cut short", offset=len(data.rstrip(_CONTINUED)))
    return list(data) if count == len(data) else _decode(data, max_bytes, what)


def _decode(data: bytes, max_bytes: int, what: str) -> list[int]:
    """Decode ``data``, whose last byte is known to end a varint."""
    values: list[int] = []
    append = values.append
    stream = iter(data)
    for byte in stream:
        if byte < 0x80:
            append(byte)
            continue
        following = next(stream)
        if following < 0x80:
            append(byte & 0x7F | following << 7)
        else:
            append(_decode_long(stream, byte & 0x7F | (following & 0x7F) << 7, max_bytes, what))
    return values


def _decode_long(stream: Iterator[int], value: int, max_bytes: int, what: str) -> int:
    """Return the varint whose first two bytes gave ``value`` and whose others come from ``stream``."""
    for index, byte in enumerate(stream, 2):
        value |= (byte & 0x7F) << 7 * index
        if index == max_bytes - 1 and byte >= _LAST[max_bytes]:
            break
        if byte < 0x80:
            return value
    raise MalformedError(f"{what} does not fit into {32 if max_bytes == MAX_BYTES_32 else 64} bits")
