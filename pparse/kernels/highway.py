"""HighwayHash-64 with the key of the Riegeli/records format.

`hash64` and `Highway64` come from the C extension ``pparse.kernels._highway`` if it was built (about 2 GB/s), otherwise
from the pure Python below (about 25 MB/s, 7 µs for a header of 16 or 32 bytes); `NATIVE` tells which. Setting
``PPARSE_PURE_PYTHON=1`` before the import selects Python. Both take any C-contiguous buffer and hash its bytes.

The algorithm
-------------
The state is ``v0 v1 mul0 mul1``, four lanes of 64 bits each. A packet of 32 bytes, four little-endian lanes L, makes::

    v1 += mul0 + L;  mul0 ^= low32(v1) * high32(v0)
    v0 += mul1;      mul1 ^= low32(v0) * high32(v1)
    v0 += zip(v1);   v1 += zip(v0)                      zip moves bytes within each pair of lanes

A rest of 1 to 31 bytes is mixed in with its length; at the end v0 itself, lanes and halves swapped, is fed four times.
The whole is described by J. Alakuijala, B. Cox and J. Wassenberg, "Fast keyed hash/pseudo-random function using SIMD
multiply and permute" (arXiv 1612.06257); the key by the Riegeli/records file format.

Four lanes in one integer
-------------------------
What costs in Python is the number of operations, not the width of their numbers. So each of v0, v1, mul0, mul1 is
*one* integer whose lanes stand so far apart that carries die in between: one addition adds four lanes, and nothing is
masked, since nobody looks at the bits between. Bytes are moved by ``positions.translate(table)``: the integer as 256
bytes is the table, so byte i of the result is the byte at ``positions[i]``; the last byte of every table is 0 and fills
the gaps.

Four products take one multiplication. Put low halves a and high halves b at the bytes e = 0, 9, 27, 36: a[i]·b[j] lands
at e[i] + e[j], and since no e is the mean of two others, the wanted ones at 2·e[i] lie free of all others (those are at
least 9 bytes away, the ninth being for their carry). Hence lanes are kept at 2·e = 0, 18, 54, 72.
"""

from __future__ import annotations

from _thread import allocate_lock

from pparse.kernels import flattened, twin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    Buffer = bytes | bytearray | memoryview
    State = tuple[int, int, int, int]

__all__ = ["NATIVE", "Highway64", "PythonHighway64", "hash64", "hash64_python"]

_PACKET: Final = 32  # bytes

_KEY: Final = (0x2F696C6567656952, 0x0A7364726F636572)  # "Riegeli/records\n", taken twice
_MUL0: Final = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1: Final = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_ZIP: Final = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)  # in each pair of lanes: where byte i comes from

_HALVES_AT: Final = (0, 9, 27, 36)  # bytes; see above
_LANES_AT: Final = (0, 18, 54, 72)
_TABLE: Final = 256  # bytes
_BLOCK: Final = 7 * _PACKET  # what fits in a table beside the zero at its end


def _lanes(*values: int) -> int:
    return sum(value << 8 * place for value, place in zip(values, _LANES_AT, strict=True))


def _moves(source: list[int], places: tuple[int, ...]) -> bytes:
    """Return positions that put the four fields of ``source``, bytes, at their places, and zeros between."""
    width = len(source) // 4
    positions = bytearray([_TABLE - 1]) * (places[-1] + width)
    for at, place in zip(range(0, len(source), width), places, strict=True):
        positions[place : place + width] = bytes(source[at : at + width])
    return bytes(positions)


# Where byte i of the 32 bytes of a variable stands.
_BYTE_AT: Final = [place + byte for place in _LANES_AT for byte in range(8)]
_low: Final = _moves([place + byte for place in _LANES_AT for byte in range(4)], _HALVES_AT).translate
_high: Final = _moves([place + byte for place in _LANES_AT for byte in range(4, 8)], _HALVES_AT).translate
_zip: Final = _moves([_BYTE_AT[pair + byte] for pair in (0, 16) for byte in _ZIP], _LANES_AT).translate
# v0 as the packet of a final round: lanes 2, 3, 0, 1, halves swapped.
_turn: Final = _moves([_BYTE_AT[(byte + 16) % _PACKET ^ 4] for byte in range(_PACKET)], _LANES_AT).translate
# Packet number n of a block.
_PACKETS: Final = tuple(_moves([*range(at, at + _PACKET)], _LANES_AT).translate for at in range(0, _BLOCK, _PACKET))

_LANE: Final = (1 << 64) - 1
_ONES: Final = _lanes(1, 1, 1, 1)
_MASK: Final = _ONES * _LANE
_HALF_ONES: Final = _ONES * (1 << 32 | 1)
_START: Final = (
    _lanes(*_MUL0) ^ _lanes(*_KEY, *_KEY),
    _lanes(*_MUL1) ^ _lanes(*(word >> 32 | (word << 32 & _LANE) for word in _KEY * 2)),
    _lanes(*_MUL0),
    _lanes(*_MUL1),
)


def _absorb(state: State, data: Buffer, begin: int, end: int) -> State:
    """Return the state after the whole packets ``data[begin:end]``."""
    v0, v1, mul0, mul1 = state
    number = int.from_bytes
    table0 = v0.to_bytes(_TABLE, "little")
    for at in range(begin, end, _BLOCK):
        block = bytes(data[at : at + _BLOCK]).ljust(_TABLE, b"\0")
        for packet in _PACKETS if end - at >= _BLOCK else _PACKETS[: (end - at) // _PACKET]:
            # The round; written out in `_finish` again, since a call for every packet would cost too much.
            v1 += mul0 + number(packet(block), "little")
            table1 = v1.to_bytes(_TABLE, "little")
            mul0 ^= number(_low(table1), "little") * number(_high(table0), "little") & _MASK
            v0 += mul1
            table0 = v0.to_bytes(_TABLE, "little")
            mul1 ^= number(_low(table0), "little") * number(_high(table1), "little") & _MASK
            v0 += number(_zip(table1), "little")
            table0 = v0.to_bytes(_TABLE, "little")
            v1 += number(_zip(table0), "little")
    # A packet adds less than 4 · 2**64 to a lane: the 80 bits above it would take 2**78 packets to fill.
    return v0, v1, mul0, mul1


def _finish(state: State) -> int:
    """Return the digest: four rounds that are fed v0 itself, then the sum of the first lanes."""
    v0, v1, mul0, mul1 = state
    number = int.from_bytes
    table0 = v0.to_bytes(_TABLE, "little")
    for _ in range(4):
        v1 += mul0 + number(_turn(table0), "little")
        table1 = v1.to_bytes(_TABLE, "little")
        mul0 ^= number(_low(table1), "little") * number(_high(table0), "little") & _MASK
        v0 += mul1
        table0 = v0.to_bytes(_TABLE, "little")
        mul1 ^= number(_low(table0), "little") * number(_high(table1), "little") & _MASK
        v0 += number(_zip(table1), "little")
        table0 = v0.to_bytes(_TABLE, "little")
        v1 += number(_zip(table0), "little")
    return v0 + v1 + mul0 + mul1 & _LANE


def _absorb_rest(state: State, rest: bytes) -> State:
    """Return the state after the last 1 to 31 bytes."""
    count = len(rest)
    words, odd = count & ~3, count & 3
    packet = bytearray(_PACKET)
    packet[:words] = rest[:words]
    if count >= 16:
        packet[28:] = rest[-4:]
    elif odd:
        packet[16:19] = rest[words], rest[words + (odd >> 1)], rest[-1]
    return _absorb(_with_length(state, count), packet, 0, _PACKET)


def _with_length(state: State, count: int) -> State:
    """Return the state with the length of the rest, 1 to 31, mixed in."""
    v0, v1, mul0, mul1 = state
    # Every half of v1 is rotated left by count bits: those that stay inside it, and those that come round.
    stay = v1 & _HALF_ONES * (0xFFFFFFFF >> count)
    turned = v1 >> 32 - count & _HALF_ONES * ((1 << count) - 1)
    return v0 + _HALF_ONES * count, stay << count | turned, mul0, mul1


class _Short:
    """All that the first round of an input of a known size does before it looks at the input."""

    __slots__ = ("high0", "low0", "mul0", "mul1", "packet", "v0", "v1")

    def __init__(self, state: State, packet: list[int]) -> None:
        v0, v1, self.mul0, self.mul1 = state
        self.packet: Final = _moves(packet, _LANES_AT).translate
        self.high0: Final = int.from_bytes(_high(v0.to_bytes(_TABLE, "little")), "little")
        self.v1: Final = v1 + self.mul0
        self.v0: Final = v0 + self.mul1
        self.low0: Final = int.from_bytes(_low(self.v0.to_bytes(_TABLE, "little")), "little")

    def hash64(self, data: bytes | memoryview) -> int:
        """Return the hash of an input of that size."""
        number = int.from_bytes
        v1 = self.v1 + number(self.packet(bytes(data).ljust(_TABLE, b"\0")), "little")
        table1 = v1.to_bytes(_TABLE, "little")
        mul0 = self.mul0 ^ number(_low(table1), "little") * self.high0 & _MASK
        mul1 = self.mul1 ^ self.low0 * number(_high(table1), "little") & _MASK
        v0 = self.v0 + number(_zip(table1), "little")
        v1 += number(_zip(v0.to_bytes(_TABLE, "little")), "little")
        return _finish((v0, v1, mul0, mul1))


# What is hashed in the headers of blocks (one for every 64 KiB of a file) and of chunks.
_hash16: Final = _Short(_with_length(_START, 16), [*range(16), *[_TABLE - 1] * 12, *range(12, 16)]).hash64
_hash32: Final = _Short(_START, [*range(32)]).hash64


def hash64_python(data: Buffer) -> int:
    """Return the HighwayHash-64 of the bytes of a buffer, in pure Python.

    Raises TypeError for what is no buffer, BufferError for one that is not C-contiguous.
    """
    flat = flattened(data)
    size = len(flat)
    if size == 16:
        return _hash16(flat)
    if size == 32:
        return _hash32(flat)
    whole = size & -_PACKET
    state = _absorb(_START, flat, 0, whole) if whole else _START
    if whole < size:
        state = _absorb_rest(state, bytes(flat[whole:]))
    return _finish(state)


class PythonHighway64:
    """HighwayHash-64 of data that comes in pieces, in pure Python; the digest does not depend on the pieces.

    Thread-safe: methods wait for each other.
    """

    __slots__ = ("_lock", "_rest", "_state")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._state = _START
        self._rest = b""  # what does not fill a packet yet

    def update(self, data: Buffer) -> None:
        """Add more bytes.

        Raises TypeError for anything but a buffer, BufferError for one that is not C-contiguous.
        """
        flat = flattened(data)
        with self._lock:
            state, rest, begin = self._state, self._rest, 0
            if rest:
                begin = min(_PACKET - len(rest), len(flat))
                rest += flat[:begin]
                if len(rest) < _PACKET:
                    self._rest = rest
                    return
                state = _absorb(state, rest, 0, _PACKET)
            end = begin + (len(flat) - begin & -_PACKET)
            self._state, self._rest = _absorb(state, flat, begin, end), bytes(flat[end:])

    def digest(self) -> int:
        """Return the hash of all bytes so far; more may follow."""
        with self._lock:
            state, rest = self._state, self._rest
        return _finish(_absorb_rest(state, rest) if rest else state)

    def copy(self) -> PythonHighway64:
        """Return an independent copy in the same state."""
        other = PythonHighway64()
        with self._lock:
            other._state, other._rest = self._state, self._rest
        return other


_TWIN: Final = twin("_highway")
NATIVE: Final = _TWIN is not None

if TYPE_CHECKING:
    from pparse.kernels._highway import Highway64, hash64
else:
    Highway64, hash64 = (_TWIN.Highway64, _TWIN.hash64) if NATIVE else (PythonHighway64, hash64_python)
