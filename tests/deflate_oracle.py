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
            for place in range(max(at - start, 0), at - start + length):
                source = place - distance
                marks[place] = 1 if source < 0 else marks[source]
        return marks


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


FIXED = make_code([8] * 144 + [9] * 112 + [7] * 24 + [8] * 8), make_code([5] * 30)


def read_codes(bits: Bits) -> tuple[dict, dict]:
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
    return make_code(lengths[:literals]), make_code(lengths[literals:])


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
        literals, distances = FIXED if block.kind == 1 else read_codes(bits)
        while (symbol := bits.symbol(literals)) != 256:
            if symbol < 256:
                out.append(symbol)
                continue
            length = LENGTHS[symbol - 257] + bits.take(LENGTH_BITS[symbol - 257])
            code = bits.symbol(distances)
            distance = DISTANCES[code] + bits.take(DISTANCE_BITS[code])
            done.copies.append((len(out), length, distance))
            for _ in range(length):
                out.append(out[-distance])
    done.end = bits.at
    return done
