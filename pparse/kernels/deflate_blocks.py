"""Finds where blocks of raw deflate (RFC 1951) begin in a stream whose beginning is lost.

Bits are numbered as in the format: bit ``b`` is bit ``b % 8`` (least significant first) of byte ``b // 8``.

A *dynamic* block begins with two descriptions of Huffman codes that must be complete; this occurs by chance about once
in hundreds of megabytes. A *stored* block has its length twice, and a block must follow it. Blocks of the *fixed* codes
have no such marks, and are not searched.
"""

from __future__ import annotations

import zlib
from functools import cache

from pparse.lazy import ByValue
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

DYNAMIC: Final = "dynamic"
STORED: Final = "stored"
FLUSH: Final = "flush"

# What of a dynamic block must be there for it to be found: 17 bits, 19 lengths of 3 bits, 316 symbols of 7 bits with 7
# more, and the first symbols of the content.
HEAD: Final = (17 + 19 * 3 + 316 * 14) // 8 + 16
# What should follow the last bit searched, so that nothing is missed or accepted too easily.
LOOKAHEAD: Final = 2 + 4 + 0xFFFF + HEAD

# Compressed bytes examined together. The temporary arrays take about 70 times as much, at worst 300 times.
_SLICE: Final = 16 * KIB
_STORED_SLICE: Final = 256 * KIB
# How far a block of fixed codes is decoded before it is accepted.
_TRIAL: Final = 256
_TRIAL_OUT: Final = 64 * KIB
_ANYTHING: Final = bytes(32 * KIB)


class BlockStart(ByValue, by=("bit", "kind", "final", "sure")):
    """A place where a block of deflate seems to begin."""

    __slots__ = ("bit", "final", "kind", "sure")

    def __init__(self, bit: int, kind: str, final: bool, sure: bool = True) -> None:
        self.bit = bit
        """Position of its three header bits."""
        self.kind = kind
        """``dynamic``, ``stored`` (with content) or ``flush`` (stored, empty: the output was flushed there)."""
        self.final = final
        """Whether it is marked as the last of its stream."""
        self.sure = sure
        """Whether more than 19 matching bits confirm it; False for a stored block that extends beyond the buffer."""


def find_blocks(buffer: bytes, first_bit: int, last_bit: int) -> Iterator[BlockStart]:
    """Yield the blocks that seem to begin at bits ``first_bit <= bit < last_bit`` of ``buffer``, in ascending order.

    Searches only as far as the caller iterates. ``buffer`` should extend `LOOKAHEAD` bytes beyond ``last_bit``, if the
    data does: a dynamic block is found only with its whole head (`HEAD` bytes at most), and a stored block that extends
    beyond the buffer cannot be confirmed, and so is not ``sure``.
    """
    from heapq import merge

    bits = find_dynamic(buffer, first_bit, last_bit)
    dynamic = (BlockStart(bit, DYNAMIC, bool(buffer[bit >> 3] >> (bit & 7) & 1)) for bit in bits)
    yield from merge(dynamic, find_stored(buffer, first_bit, last_bit), key=lambda block: block.bit)


def find_dynamic(buffer: bytes, first_bit: int, last_bit: int) -> Iterator[int]:
    """Yield the bits in ``[first_bit, last_bit)`` where a dynamic block (RFC 1951, 3.2.7) begins with a sound head.

    A head is sound if zlib accepts it, including degenerate codes (one code of one bit, no distances), and decoding
    yields a first byte, or ends the stream.
    """
    first_bit = max(first_bit, 0)
    last_bit = min(last_bit, 8 * len(buffer))
    for start in range(first_bit >> 3, (last_bit + 7) >> 3, _SLICE):
        count = min(_SLICE, ((last_bit + 7) >> 3) - start)
        low = max(first_bit - 8 * start, 0)
        high = last_bit - 8 * start
        for bit in _full_precodes(bytes(buffer[start : start + count + 16]), count):
            if low <= bit < high and _is_sound(buffer, 8 * start + bit):
                yield 8 * start + bit


@cache
def _tables() -> tuple[Any, Any, Any]:
    """Return the look-up tables of the filter.

    By 16 bits from a byte on: in which of the eight phases a block may begin there (one bit each), by type and count of
    literals. By 15 bits, five lengths: the share of the code space that they take, in 128ths. By HCLEN: a mask of the
    bits of those of the first 17 lengths that exist.
    """
    import numpy as np

    words = np.arange(1 << 16, dtype=np.uint16)
    phases = np.zeros(1 << 16, np.uint8)
    for phase in range(8):
        begins = (words >> (phase + 1) & 3 == 2) & (words >> (phase + 3) & 31 <= 29)
        phases |= begins.astype(np.uint8) << phase
    share = np.array([0, 64, 32, 16, 8, 4, 2, 1], np.uint16)
    room = sum(share[words[: 1 << 15] >> at & 7] for at in range(0, 15, 3))
    lengths = np.array([(1 << 3 * min(count + 4, 17)) - 1 for count in range(16)], np.uint64)
    return phases, room, lengths


def _full_precodes(chunk: bytes, count: int) -> list[int]:
    """Return the bits within the first ``count`` bytes at which a dynamic block has a complete code for code lengths.

    A sum over its lengths tells; of all conditions on a head, this one can be tested on whole arrays.
    """
    import numpy as np

    phases, room, present = _tables()
    chunk += bytes(count + 16 - len(chunk))
    near = np.ndarray((count,), "<u2", chunk, strides=(1,))
    bits = np.flatnonzero(np.unpackbits(phases[near], bitorder="little").view(np.bool_))
    words = np.ndarray((count + 8,), "<u8", chunk, strides=(1,)).copy()  # of each byte and the seven after it

    five = np.uint64(0x7FFF)
    window = words[(bits + 13) >> 3] >> ((bits + 13) & 7).view(np.uint64)
    more = (window & np.uint64(15)).view(np.int64)
    codes = (window >> np.uint64(4)) & present[more]
    taken = room[codes & five] + room[codes >> np.uint64(15) & five]
    keep = np.flatnonzero(taken <= 128)
    bits, more, codes, taken = bits[keep], more[keep], codes[keep], taken[keep]
    taken += room[codes >> np.uint64(30) & five] + room[codes >> np.uint64(45)]
    keep = np.flatnonzero((taken == 128) | (taken < 128) & (more >= 14))
    bits, more, taken = bits[keep], more[keep], taken[keep]
    # The 18th and 19th length, which did not fit into the window.
    late = (words[(bits + 17) >> 3] >> ((bits + 17) & 7).view(np.uint64)) >> np.uint64(51)
    late &= np.array([0] * 14 + [7, 63], np.uint64)[more]
    found: list[int] = bits[taken + room[late] == 128].tolist()
    return found


def _is_sound(buffer: bytes, bit: int, partly: bool = False) -> bool:
    """Return whether zlib accepts the head of the block at ``bit``, and yields something.

    With ``partly``, a head that the end of the buffer cuts is accepted, too.
    """
    before, low = prefix_for(bit & 7)
    at = bit >> 3
    first = buffer[at] >> (bit & 7) << (bit & 7) | low
    # Any distance is allowed: nothing is known here about the bytes before.
    trial = zlib.decompressobj(-15, zdict=_ANYTHING)
    try:
        out = trial.decompress(b"".join((before, bytes((first,)), buffer[at + 1 : at + HEAD])), 1)
    except zlib.error:
        return False
    return partly or bool(out) or trial.eof


def find_stored(buffer: bytes, first_bit: int, last_bit: int) -> Iterator[BlockStart]:
    """Yield the stored blocks that seem to begin in ``[first_bit, last_bit)``, empty ones as kind "flush".

    The length and its complement must be there, after zero bits. A block that is not final must be followed by a block:
    a stored or dynamic one with a sound head, or one of fixed codes whose first bytes decode. A final one must be
    followed by what follows streams: four or eight bytes (a check value) and the end of the buffer, a second gzip
    member, or a zip record; final empty ones are not reported. A block that extends beyond the buffer is yielded
    unconfirmed, and not ``sure``: by chance there is one in 512 KiB.

    The header bits may be anywhere among the zero bits before the length; for a block that is not final, the last
    possible place is yielded, three bits before the byte.
    """
    import numpy as np

    first = max((first_bit >> 3) - 3, 1)
    last = min((last_bit >> 3) + 3, len(buffer) - 3)  # where a length may stand, roughly
    taken = 0
    for start in range(first, last, _STORED_SLICE):
        part = np.frombuffer(buffer, np.uint8, min(_STORED_SLICE, last - start) + 3, start)
        negated = part[:-2] ^ part[2:] == 0xFF
        for at in np.flatnonzero(negated[:-1] & negated[1:]).tolist():
            found = _stored_at(buffer, start + at) if start + at >= taken else None
            if found is not None:
                taken = start + at + 4  # 00 00 FF FF 00 is two pairs
                if first_bit <= found.bit < last_bit:
                    yield found


def _stored_at(buffer: bytes, at: int) -> BlockStart | None:
    """Return the stored block with its length at byte ``at``, if there seems to be one."""
    length = int.from_bytes(buffer[at : at + 2], "little")
    end = at + 4 + length
    # Header bits and padding: ten bits, the last seven of which may be padding.
    before = int.from_bytes(buffer[max(at - 2, 0) : at], "little")
    if at < 2:
        before <<= 8
    if before >> 14:
        return None
    seems_final = before.bit_length() > 6
    more = before >> 13 == 0
    kind = STORED if length else FLUSH
    goes_on = more and end < len(buffer) and _goes_on(buffer, end)
    # A trailer may look like a block of fixed codes, so test for the end first.
    if goes_on and buffer[end] >> 1 & 3 != 1:
        return BlockStart(8 * at - 3, kind, False)
    if length and seems_final and end <= len(buffer) and _is_over(buffer, end):
        return BlockStart(8 * at - 17 + before.bit_length(), kind, True)
    if goes_on:
        return BlockStart(8 * at - 3, kind, False)
    if (more and end == len(buffer)) or end > len(buffer):
        return BlockStart(8 * at - 3, kind, not more, not length)
    return None


def _goes_on(buffer: bytes, at: int) -> bool:
    """Return whether a block seems to begin at byte ``at`` of the buffer."""
    kind = buffer[at] >> 1 & 3
    if kind == 0:
        low, high = buffer[at + 1 : at + 3], buffer[at + 3 : at + 5]
        return buffer[at] < 2 and all(one ^ other == 0xFF for one, other in zip(low, high, strict=False))
    if kind == 1:
        trial = zlib.decompressobj(-15, zdict=_ANYTHING)
        try:
            out = trial.decompress(buffer[at : at + _TRIAL], _TRIAL_OUT)
        except zlib.error:
            return False
        # A false block of fixed codes soon ends by chance; writers end a flushed stream with an empty one.
        return not trial.eof or not out or _is_over(buffer, min(at + _TRIAL, len(buffer)) - len(trial.unused_data))
    return kind == 2 and _is_sound(buffer, 8 * at, partly=True)


def _is_over(buffer: bytes, at: int) -> bool:
    """Return whether ``at`` looks like the end of a stream: a trailer and the end of the data, or the next stream."""
    left = len(buffer) - at
    return left in (0, 4, 8) or buffer[at : at + 2] == b"PK" or buffer[at + 8 : at + 10] == b"\x1f\x8b"


# An empty block of fixed codes, ten bits: not final, type 1, the end of the block.
_FIXED: Final = (0b010, 10)


@cache
def _empty_dynamic() -> tuple[int, int]:
    """Return the bits of an empty dynamic block, and their number, 95, by which odd phases can be reached.

    Its literal code is complete (symbols 255 and 256, one bit each); it has no distance code.
    """
    # Type 2; 257 literals, one distance, 18 lengths of the precode: 2 bits for 18 (0b01) and 1 (0b10), 1 bit for 0.
    fields = [(0, 1), (2, 2), (0, 5), (0, 5), (14, 4)]
    fields += [(0, 3), (0, 3), (2, 3), (1, 3), *[(0, 3)] * 13, (2, 3)]  # the lengths for 16, 17, 18, 0, ... 14, 1
    zero, one, run = (0b0, 1), (0b01, 2), (0b11, 2)  # first bit lowest
    fields += [run, (138 - 11, 7), run, (117 - 11, 7), one, one, zero, (1, 1)]
    value = at = 0
    for field, width in fields:
        value |= field << at
        at += width
    return value, at


@cache
def prefix_for(bit_phase: int) -> tuple[bytes, int]:
    """Return empty blocks that end at bit ``bit_phase`` (0 to 7) of a byte: the whole bytes, and the bits of the last.

    A decoder is fed these bytes, then a byte with those bits as its lower ``bit_phase`` bits and the upper bits of the
    first byte wanted, then the bytes after it. It then begins at exactly that bit. The prefix yields no output, and
    none of its blocks is final.
    """
    if not 0 <= bit_phase < 8:
        raise ValueError(f"a byte has no bit {bit_phase}")
    value, count = _empty_dynamic() if bit_phase & 1 else (0, 0)
    while count % 8 != bit_phase:
        value |= _FIXED[0] << count
        count += _FIXED[1]
    return (value & (1 << (count & ~7)) - 1).to_bytes(count // 8, "little"), value >> (count & ~7)
