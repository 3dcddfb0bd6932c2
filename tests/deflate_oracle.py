"""A slow inflater that tells what it did: where blocks begin, and where each byte of the output came from."""

from __future__ import annotations

from dataclasses import dataclass, field

LENGTHS = [
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    13,
    15,
    17,
    19,
    23,
    27,
    31,
    35,
    43,
    51,
    59,
    67,
    83,
    99,
    115,
    131,
    163,
    195,
    227,
    258,
]
LENGTH_BITS = [0] * 8 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4 + [0]
DISTANCES = [1, 2, 3] + [(2 + n % 2 << n // 2 - 1) + 1 for n in range(3, 30)]
DISTANCE_BITS = [0, 0, 0] + [n // 2 - 1 for n in range(3, 30)]
ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]


@dataclass
class Block:
    bit: int  # of the first of its three header bits
    kind: int
    final: bool
    out: int  # bytes of output before it
    length_at: int = -1  # stored blocks: the byte where the length stands
    size: int = 0  # stored blocks: the length


@dataclass
class Inflated:
    blocks: list[Block] = field(default_factory=list)
    out: bytearray = field(default_factory=bytearray)
    copies: list[tuple[int, int, int]] = field(default_factory=list)  # (at, length, distance)
    end: int = 0  # the bit after the stream

    def unknown_after(self, start: int) -> bytearray:
        """By byte of the output from ``start`` on: whether it depends on what precedes ``start``."""
        marks = bytearray(len(self.out) - start)
        for at, length, distance in self.copies:
            first, end = max(at - start, 0), at - start + length
            if first < end:
                source = first - distance
                kept = b"\1" * min(max(-source, 0), end - first) + marks[max(source, 0) : first]
                marks[first:end] = repeated(kept, distance, end - first)
        return marks


def repeated(kept: bytes, distance: int, length: int) -> bytes:
    """Return ``length`` bytes of which each is the one ``distance`` before it; ``kept`` begins at that distance."""
    return kept[:length] if distance >= length else (kept * (length // distance + 1))[:length]


class Bits:
    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, count: int) -> int:
        byte = self.at >> 3
        value = int.from_bytes(self.data[byte : byte + 5], "little") >> (self.at & 7)
        self.at += count
        if self.at > 8 * len(self.data):
            raise EOFError
        return value & (1 << count) - 1

    def symbol(self, code: dict[tuple[int, int], int]) -> int:
        value = length = 0
        while True:
            value, length = value << 1 | self.take(1), length + 1
            if (length, value) in code:
                return code[length, value]
            if length > 15:
                raise ValueError("no such code")


def make_code(lengths: list[int]) -> dict[tuple[int, int], int]:
    code = {}
    value = 0
    for length in range(1, 16):
        value <<= 1
        for symbol, own in enumerate(lengths):
            if own == length:
                code[length, value] = symbol
                value += 1
    return code


def make_table(code: dict[tuple[int, int], int]) -> list[int]:
    """Return ``symbol << 4 | length`` by the bits that come next, as many as the longest code has; 0: no such code."""
    width = max((length for length, _ in code), default=0)
    table = [0] * (1 << width)
    for (length, value), symbol in code.items():
        first = int(f"{value:0{length}b}"[::-1], 2)
        table[first :: 1 << length] = [symbol << 4 | length] * (1 << width - length)
    return table


FIXED = (
    make_table(make_code([8] * 144 + [9] * 112 + [7] * 24 + [8] * 8)),
    make_table(make_code([5] * 30)),
)


def read_tables(bits: Bits) -> tuple[list[int], list[int]]:
    literals, distances, count = bits.take(5) + 257, bits.take(5) + 1, bits.take(4) + 4
    lengths = [0] * 19
    for symbol in ORDER[:count]:
        lengths[symbol] = bits.take(3)
    code = make_code(lengths)
    lengths = []
    while len(lengths) < literals + distances:
        symbol = bits.symbol(code)
        if symbol < 16:
            lengths.append(symbol)
        elif symbol == 16:
            lengths += [lengths[-1]] * (3 + bits.take(2))
        else:
            lengths += [0] * (3 + bits.take(3) if symbol == 17 else 11 + bits.take(7))
    return make_table(make_code(lengths[:literals])), make_table(make_code(lengths[literals:]))


def inflate(data: bytes, bit: int = 0) -> Inflated:
    """Decode one raw deflate stream that begins at ``bit``."""
    bits = Bits(data, bit)
    done = Inflated()
    out = done.out
    final = 0
    while not final:
        block = Block(bits.at, 0, False, len(out))
        final = bits.take(1)
        block.final, block.kind = bool(final), bits.take(2)
        done.blocks.append(block)
        if block.kind == 0:
            bits.at = bits.at + 7 & ~7
            block.length_at, block.size = bits.at // 8, bits.take(16)
            if bits.take(16) ^ block.size != 0xFFFF:
                raise ValueError("lengths differ")
            out += data[bits.at // 8 : bits.at // 8 + block.size]
            bits.at += 8 * block.size
            continue
        tables = FIXED if block.kind == 1 else read_tables(bits)
        bits.at = copy_out(done, data, bits.at, *tables)
    done.end = bits.at
    return done


def copy_out(done: Inflated, data: bytes, at: int, literals: list[int], distances: list[int]) -> int:
    """Decode the codes of a block, from bit ``at`` on, up to its end; return the bit behind it."""
    out, end = done.out, 8 * len(data)
    mask, far_mask = len(literals) - 1, len(distances) - 1
    while True:
        # One look for a whole copy, which has 48 bits at most.
        ahead = int.from_bytes(data[at >> 3 : (at >> 3) + 7], "little") >> (at & 7)
        entry = literals[ahead & mask]
        width, symbol = entry & 15, entry >> 4
        if symbol > 256:
            length = LENGTHS[symbol - 257] + (ahead >> width & (1 << LENGTH_BITS[symbol - 257]) - 1)
            width += LENGTH_BITS[symbol - 257]
            far = distances[ahead >> width & far_mask]
            width += far & 15
            distance = DISTANCES[far >> 4] + (ahead >> width & (1 << DISTANCE_BITS[far >> 4]) - 1)
            width += DISTANCE_BITS[far >> 4]
            entry = min(entry, far)
        at += width
        if at > end:
            raise EOFError
        if not entry:
            raise ValueError("no such code")
        if symbol < 256:
            out.append(symbol)
        elif symbol == 256:
            return at
        else:
            if distance > len(out):
                raise ValueError("a copy of what precedes the output")
            done.copies.append((len(out), length, distance))
            out += repeated(out[-distance:], distance, length)
