"""FarmHash Fingerprint64: the 64-bit fingerprint that TensorFlow uses for SavedModels and elsewhere.

`fingerprint64` hashes a buffer, `Fingerprint64` data that comes in pieces. The C extension ``pparse.kernels._farmhash``
does the work if it was built (about 10 GB/s), otherwise the pure Python below (about 30 MB/s); `NATIVE` tells which.
Setting ``PPARSE_PURE_PYTHON=1`` before the import selects Python.

The algorithm
-------------
Up to 64 bytes, one of four mixes of a few words, by length. Above, a state of seven words (x, y, z, and the pairs v
and w) takes block after block of 64 bytes; the last 1 to 64 bytes are held back, and at the end the *last 64 bytes* of
the input, which overlap the block before, are mixed in with a multiplier that depends on the state. All words are
64 bits, little-endian; all sums and products are modulo 2**64. The whole is the fingerprint function of FarmHash
(G. Pike, https://github.com/google/farmhash), which its author has frozen: it never changes its values.

In Python
---------
Sums and products modulo 2**64 do not depend on bits above the 64th, so only words that are shifted right next are
masked; the pair v, which is multiplied in every round, is masked too, or it would grow.
"""

from __future__ import annotations

import struct

from pparse.kernels import flattened, twin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    Buffer = bytes | bytearray | memoryview

__all__ = ["NATIVE", "Fingerprint64", "absorb_python", "cat64", "fingerprint64", "fingerprint64_python"]

BLOCK: Final = 64  # bytes

_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F
_CAT: Final = 0xC6A4A7935BD1E995  # the multiplier of `cat64`
_SEED: Final = 81
_WORD: Final = (1 << 64) - 1
_STATE: Final = struct.Struct("<7Q")
_WORDS: Final = struct.Struct("<8Q")


def _rotated(word: int, count: int) -> int:
    """Return a word of any width, modulo 2**64, rotated right (bits above the 64th mean nothing)."""
    word &= _WORD
    return word >> count | word << 64 - count


def _shift_mix(word: int) -> int:
    word &= _WORD
    return word ^ word >> 47


def _mix(u: int, v: int, multiplier: int) -> int:
    """Return two words as one."""
    a = _shift_mix((u ^ v) * multiplier)
    return _shift_mix((v ^ a) * multiplier) * multiplier & _WORD


def cat64(first: int, second: int) -> int:
    """Return the fingerprint of two fingerprints, in this order (TensorFlow's FingerprintCat64)."""
    result = (first ^ _CAT ^ _shift_mix(second * _CAT) * _CAT) * _CAT & _WORD
    return _shift_mix(_shift_mix(result) * _CAT)


# -- up to 64 bytes ----------------------------------------------------------------------------------------------------


def _word_at(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _hash_to_16(data: bytes) -> int:
    size = len(data)
    multiplier = _K2 + size * 2
    if size >= 8:
        a, b = _word_at(data, 0) + _K2, _word_at(data, size - 8)
        return _mix(_rotated(b, 37) * multiplier + a, (_rotated(a, 25) + b) * multiplier, multiplier)
    if size >= 4:
        return _mix(size + (_word_at(data, 0, 4) << 3), _word_at(data, size - 4, 4), multiplier)
    if size:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return _shift_mix(y * _K2 ^ z * _K0) * _K2 & _WORD
    return _K2


def _hash_to_64(data: bytes) -> int:
    """Return the hash of 17 to 64 bytes."""
    size = len(data)
    multiplier = _K2 + size * 2
    a, b = _word_at(data, 0) * (_K1 if size <= 32 else _K2), _word_at(data, 8)
    c, d = _word_at(data, size - 8) * multiplier, _word_at(data, size - 16) * _K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    z = _mix(y, a + _rotated(b + _K2, 18) + c, multiplier)
    if size <= 32:
        return z
    e, f = _word_at(data, 16) * multiplier, _word_at(data, 24)
    g, h = (y + _word_at(data, size - 32)) * multiplier, (z + _word_at(data, size - 24)) * multiplier
    return _mix(_rotated(e + f, 43) + _rotated(g, 30) + h, e + _rotated(f + a, 18) + g, multiplier)


# -- longer inputs -----------------------------------------------------------------------------------------------------

_Y: Final = _SEED * _K1 + 113 & _WORD
_START: Final = _STATE.pack(_SEED * _K2 & _WORD, _Y, _shift_mix(_Y * _K2 + 113) * _K2 & _WORD, 0, 0, 0, 0)


def absorb_python(state: bytes, data: Buffer) -> bytes:
    """Return the state after the blocks of ``data``, a flat buffer whose length is a multiple of 64.

    A state is the seven words x, y, z, v0, v1, w0, w1, little-endian. What makes the first block differ from others,
    that it is added to x once more, is left to the caller.
    """
    x, y, z, v0, v1, w0, w1 = _STATE.unpack(state)
    word, k1 = _WORD, _K1
    for a, b, c, d, e, f, g, h in _WORDS.iter_unpack(data):
        t = x + y + v0 + b & word
        x = (t >> 37 | t << 27) * k1 ^ w1
        t = y + v1 + g & word
        y = (t >> 42 | t << 22) * k1 + v0 + f
        t = z + w0 & word
        z = (t >> 33 | t << 31) * k1
        s = v1 * k1 + a
        t = s + x + w0 + d & word
        v1 = (t >> 21 | t << 43) + s
        s += b + c
        t = s & word
        v0 = t + d
        v1 = v1 + (t >> 44 | t << 20) & word
        s = z + w1 + e
        t = s + y + c + h & word
        w1 = (t >> 21 | t << 43) + s
        s += f + g
        t = s & word
        w0 = t + h
        w1 = w1 + (t >> 44 | t << 20) & word
        x, z = z, x
    return _STATE.pack(x & word, y & word, z & word, v0 & word, v1 & word, w0 & word, w1 & word)


def _pair(words: tuple[int, ...], a: int, b: int) -> tuple[int, int]:
    """Return two seeds after four words."""
    first, second, third, fourth = words
    a += first
    c = a
    b = _rotated(b + a + fourth, 21)
    a += second + third
    return a + fourth, b + _rotated(a, 44) + c


def _finish(state: bytes, last: bytes, held: int) -> int:
    """Return the hash: ``last`` are the last 64 bytes, of which ``held``, 1 to 64, were not absorbed yet."""
    x, y, z, v0, v1, w0, w1 = _STATE.unpack(state)
    words = _WORDS.unpack(last)
    multiplier = _K1 + ((z & 0xFF) << 1)
    w0 += held - 1
    v0 += w0
    w0 += v0
    x = _rotated(x + y + v0 + words[1], 37) * multiplier ^ w1 * 9
    y = _rotated(y + v1 + words[6], 42) * multiplier + v0 * 9 + words[5]
    z = _rotated(z + w0, 33) * multiplier
    v0, v1 = _pair(words[:4], v1 * multiplier, x + w0)
    w0, w1 = _pair(words[4:], z + w1, y + words[2])
    left = _mix(v0, w0, multiplier) + _shift_mix(y) * _K0 + x
    return _mix(left, _mix(v1, w1, multiplier) + z, multiplier)


def _begin(data: Buffer) -> bytes:
    """Return the state before the first block, which begins ``data``."""
    x, *rest = _STATE.unpack(_START)
    return _STATE.pack(x + int.from_bytes(data[:8], "little") & _WORD, *rest)


def fingerprint64_python(data: Buffer) -> int:
    """Return the Fingerprint64 of the bytes of a buffer, in pure Python.

    Raises TypeError for what is no buffer, BufferError for one that is not C-contiguous.
    """
    flat = flattened(data)
    size = len(flat)
    if size <= BLOCK:
        return _hash_to_16(bytes(flat)) if size <= 16 else _hash_to_64(bytes(flat))
    whole = size - 1 & -BLOCK
    return _finish(absorb_python(_begin(flat), memoryview(flat)[:whole]), bytes(flat[size - BLOCK :]), size - whole)


_TWIN: Final = twin("_farmhash")
NATIVE: Final = _TWIN is not None

if TYPE_CHECKING:
    from pparse.kernels._farmhash import absorb, fingerprint64
else:
    absorb, fingerprint64 = (_TWIN.absorb, _TWIN.fingerprint64) if NATIVE else (absorb_python, fingerprint64_python)


class Fingerprint64:
    """The Fingerprint64 of data that comes in pieces; the digest does not depend on the pieces. Not thread-safe."""

    __slots__ = ("_before", "_held", "_state", "size")

    def __init__(self) -> None:
        self.size = 0
        """Number of bytes so far."""
        self._state = b""  # none before the first block
        self._before = b""  # the last block that was absorbed
        self._held = b""  # 1 to 64 bytes that were not, unless nothing came yet

    def update(self, data: Buffer) -> Fingerprint64:
        """Add more bytes; return this object.

        Raises TypeError for anything but a buffer, BufferError for one that is not C-contiguous.
        """
        flat = flattened(data)
        held, size = self._held, len(flat)
        self.size += size
        begin = min(BLOCK - len(held), size)
        held += flat[:begin]
        if begin < size:  # more follows: what is held is a block that is not the last
            # Multiples of 64, but at least one byte stays.
            end = begin + (size - begin - 1 & -BLOCK)
            state = absorb(self._state or _begin(held), held)
            if end > begin:
                state = absorb(state, memoryview(flat)[begin:end])
                held = bytes(flat[end - BLOCK : end])
            self._state, self._before, held = state, held, bytes(flat[end:])
        self._held = held
        return self

    def digest(self) -> int:
        """Return the hash of all bytes so far; more may follow."""
        held = self._held
        if not self._state:
            return fingerprint64_python(held)
        return _finish(self._state, (self._before + held)[-BLOCK:], len(held))

    def copy(self) -> Fingerprint64:
        """Return an independent copy in the same state."""
        other = Fingerprint64()
        other.size, other._state, other._before, other._held = self.size, self._state, self._before, self._held
        return other
