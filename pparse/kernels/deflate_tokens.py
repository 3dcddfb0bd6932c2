"""The tokens of deflate blocks (RFC 1951): where they begin, and what they output.

A decoder such as zlib returns bytes, but not its positions. Inside a block of Huffman codes these are needed: codes
resynchronize by themselves, so after damage inside a block, decoding can continue with the codes from before.

Bits are numbered as in `pparse.kernels.deflate_blocks`. A *token* is a number: a literal byte, or ``length << 16 |
distance`` (a length is at least 3), or `END`, the end of the block.
"""

from __future__ import annotations

from array import array
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

END: Final = 256
STORED, FIXED, DYNAMIC = range(3)
# The bits of the longest token: a length with 5 more, a distance with 13 more.
LONGEST: Final = 15 + 5 + 15 + 13

# RFC 1951, 3.2.5: of each code the first value, and how many bits follow.
_LENGTHS: Final = tuple(
    (3 + n, 0) if n < 8 else (3 + (4 + n % 4 << n // 4 - 1), n // 4 - 1) if n < 28 else (258, 0) for n in range(29)
)
_DISTANCES: Final = tuple((1 + n, 0) if n < 4 else (1 + (2 + n % 2 << n // 2 - 1), n // 2 - 1) for n in range(30))
_ORDER: Final = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
_IS_LENGTH: Final = 512  # added to the value of an entry


class Codes:
    """The codes of a block as tables, indexed by the next bits.

    An entry is ``value << 8 | more << 4 | bits``: the bits of the code, the number of extra bits, and the value that
    these are added to. The value in ``literals`` is a literal, `END`, or 512 plus a length. Entry 0 means no code.
    """

    __slots__ = ("distances", "end_bits", "literals")

    def __init__(self, literals: Sequence[int], distances: Sequence[int]) -> None:
        values = [(symbol, 0) for symbol in range(257)] + [(_IS_LENGTH + base, more) for base, more in _LENGTHS]
        self.literals = _table(literals, values)
        self.distances = _table(distances, _DISTANCES)
        self.end_bits = literals[END]  # number of bits of the end of a block


class DeflateHead:
    """The head of a block."""

    __slots__ = ("at", "codes", "final", "kind", "size")

    def __init__(self, kind: int, final: bool, at: int, codes: Codes | None = None, size: int = 0) -> None:
        self.kind = kind
        """Type of the block: 0 stored, 1 fixed codes, 2 dynamic codes."""
        self.final = final
        """Whether it is the last block of its stream."""
        self.at = at
        """The bit at which its content begins."""
        self.codes = codes
        """Codes of a block of Huffman codes."""
        self.size = size
        """Bytes of a stored block."""


class Tokens:
    """The tokens of a stretch."""

    __slots__ = ("at", "bits", "ended", "failed", "tokens")

    def __init__(self) -> None:
        self.bits = array("q")
        """The bit at which each token begins."""
        self.tokens = array("I")
        """The tokens, without the end of the block."""
        self.at = 0
        """The bit after the last token."""
        self.ended = False
        """Whether the last token was followed by the end of the block."""
        self.failed = False
        """Whether the bits that follow are not a token."""


def _table(lengths: Sequence[int], values: Sequence[tuple[int, int]]) -> list[int]:
    """Return the table of a canonical code; empty if it has more codes than fit."""
    longest = max(lengths, default=0)
    table = [0] * (1 << longest)
    code = 0
    for bits in range(1, longest + 1):
        code <<= 1
        for symbol, own in enumerate(lengths):
            if own != bits:
                continue
            if code >> bits:
                return []
            if symbol < len(values):  # some fixed codes are not used
                value, more = values[symbol]
                first = int(f"{code:0{bits}b}"[::-1], 2)
                table[first :: 1 << bits] = [value << 8 | more << 4 | bits] * (1 << longest - bits)
            code += 1
    return table


@cache
def _fixed() -> Codes:
    return Codes([8] * 144 + [9] * 112 + [7] * 24 + [8] * 8, [5] * 32)


def read_head(data: bytes, bit: int) -> DeflateHead | None:
    """Read the head of the block at ``bit``; None if there is none, or ``data`` does not hold all of it."""
    kind = _bits(data, bit + 1, 2)
    final = bool(_bits(data, bit, 1))
    head: DeflateHead | None = None
    if kind == STORED:
        at = bit + 10 >> 3
        size = int.from_bytes(data[at : at + 2], "little")
        if int.from_bytes(data[at + 2 : at + 4], "little") == size ^ 0xFFFF:
            head = DeflateHead(STORED, final, 8 * at + 32, size=size)
    elif kind == FIXED:
        head = DeflateHead(FIXED, final, bit + 3, _fixed())
    elif kind == DYNAMIC:
        head = _read_dynamic(data, bit, final)
    return head if head is not None and head.at <= 8 * len(data) else None


def _bits(data: bytes, bit: int, count: int) -> int:
    """Return up to 57 bits; zeros behind the end."""
    return int.from_bytes(data[bit >> 3 : (bit >> 3) + 8], "little") >> (bit & 7) & (1 << count) - 1


def _read_dynamic(data: bytes, bit: int, final: bool) -> DeflateHead | None:
    literals, distances = _bits(data, bit + 3, 5) + 257, _bits(data, bit + 8, 5) + 1
    count = _bits(data, bit + 13, 4) + 4
    if literals > 286 or distances > 30:
        return None
    bit += 17
    order = [0] * 19
    for place in range(count):
        order[_ORDER[place]] = _bits(data, bit + 3 * place, 3)
    bit += 3 * count
    table = _table(order, [(symbol, 0) for symbol in range(19)])
    lengths: list[int] = []
    while len(lengths) < literals + distances:
        entry = table[_bits(data, bit, 7) & len(table) - 1] if table else 0
        if not entry:
            return None
        bit += entry & 15
        symbol = entry >> 8
        if symbol < 16:
            lengths.append(symbol)
            continue
        if symbol == 16 and not lengths:
            return None
        width, least = {16: (2, 3), 17: (3, 3), 18: (7, 11)}[symbol]
        lengths += [lengths[-1] if symbol == 16 else 0] * (least + _bits(data, bit, width))
        bit += width
    if len(lengths) > literals + distances or not lengths[END]:
        return None
    codes = Codes(lengths[:literals], lengths[literals:])
    return DeflateHead(DYNAMIC, final, bit, codes) if codes.literals and codes.distances else None


def walk(
    data: bytes, bit: int, stop: int, codes: Codes, *, most: int = 1 << 20, passed: bytearray | None = None
) -> Tokens:
    """Go from token to token, from ``bit`` on: to the end of the block, to a bit for which ``passed`` has a nonzero
    number, for ``most`` tokens, or as far as tokens end at bit ``stop`` or earlier."""
    found = Tokens()
    literals, distances = codes.literals, codes.distances
    first, second = len(literals) - 1, len(distances) - 1
    note, keep, load = found.bits.append, found.tokens.append, int.from_bytes
    for _ in range(most):
        if passed is not None and passed[bit]:
            break
        byte = bit >> 3
        word = load(data[byte : byte + 8], "little") >> (bit & 7)  # the longest token is in it
        entry = literals[word & first]
        width = entry & 15
        token = entry >> 8
        if token >= _IS_LENGTH:
            more = entry >> 4 & 15
            length = token - _IS_LENGTH + (word >> width & (1 << more) - 1)
            width += more
            entry = distances[word >> width & second]
            if not entry:
                found.failed = bit + width + 15 <= stop
                break
            width += entry & 15
            more = entry >> 4 & 15
            token = length << 16 | (entry >> 8) + (word >> width & (1 << more) - 1)
            width += more
        elif not width:
            found.failed = bit + 15 <= stop
            break
        if bit + width > stop:
            break
        if token == END:
            found.ended = True
            bit += width
            break
        note(bit)
        keep(token)
        bit += width
    found.at = bit
    return found


def output_size(tokens: Sequence[int]) -> int:
    """Return the number of bytes that ``tokens`` output."""
    return sum(token >> 16 or 1 for token in tokens)


def evaluate(tokens: Sequence[int], window: bytearray, known: bytearray) -> bool:
    """Append the output of ``tokens`` to ``window``, and to ``known`` whether each byte is known (1 or 0).

    An unknown byte is a zero. Return False if a distance refers to bytes before the window.
    """
    for token in tokens:
        length = token >> 16
        if not length:
            window.append(token)
            known.append(1)
            continue
        start = len(window) - (token & 0xFFFF)
        if start < 0:
            return False
        for buffer in (window, known):
            part = buffer[start : start + length]
            buffer += (part * (length // len(part) + 1))[:length] if len(part) < length else part
    return True


def agrees(tokens: Sequence[int], window: bytes | bytearray, known: bytes | bytearray, enough: int) -> int | None:
    """Compare ``tokens`` with their output, the end of ``window``, from the last token backwards.

    Return how many could be compared, stopping after about ``enough``; None if one contradicts the output.
    """
    compared, at = 0, len(window)
    for token in reversed(tokens):
        length = token >> 16 or 1
        at -= length
        if at < 0 or compared >= enough:
            break
        if not known[at] or 0 in known[at : at + length]:
            continue
        if token < END:
            if window[at] != token:
                return None
            compared += 1
            continue
        start = at - (token & 0xFFFF)
        if start >= 0 and 0 not in known[start : start + length]:
            if window[start : start + length] != window[at : at + length]:
                return None
            compared += 1
    return compared


class CutShort:
    """Copies that could have been longer."""

    __slots__ = ("expected", "front", "happened")

    def __init__(self) -> None:
        self.happened = 0
        """How many there are."""
        self.expected = 0.0
        """How many there would be by chance."""
        self.front = 0
        """After how many tokens they become fewer than by chance."""


# Copies that chance would have cut short, looked at together: enough to tell a part of the tokens from another one.
_TOGETHER: Final = 8


def cut_short(tokens: Sequence[int], window: bytes | bytearray, known: bytes | bytearray, at: int) -> CutShort:
    """Count copies that could have been longer, in ``tokens`` whose output begins at ``window[at]``.

    Compressors copy as many equal bytes as possible. If the byte after a copy equals the one that would have been
    copied next, either the compressor had its reasons, which is rare, or these are not its tokens.
    """
    followers = [0] * 256
    pairs = array("I")  # which token follows a copy, the byte that would have been copied, the byte that is there
    count = distance = 0
    for place, token in enumerate(tokens):
        if distance and known[at]:
            followers[window[at]] += 1
            count += 1
            if known[at - distance]:
                pairs.extend((place, window[at - distance], window[at]))
        length = token >> 16
        distance = token & 0xFFFF if 0 < length < 258 else 0
        at += length or 1
    found = CutShort()
    happened, expected, is_front = 0, 0.0, True
    for place, wanted, there in zip(pairs[::3], pairs[1::3], pairs[2::3], strict=True):
        happened += wanted == there
        expected += followers[wanted] / count
        if expected >= _TOGETHER:
            is_front = is_front and 2 * happened > expected
            found.front = place if is_front else found.front
            found.happened, found.expected = found.happened + happened, found.expected + expected
            happened, expected = 0, 0.0
    found.happened, found.expected = found.happened + happened, found.expected + expected
    return found
