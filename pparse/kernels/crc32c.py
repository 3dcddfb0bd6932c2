"""CRC-32C (Castagnoli): the checksum of TFRecord files, of TensorFlow's tables, and of much else; joined CRC-32s.

`crc32c` returns that of a buffer, or goes on from that of the bytes before it; `masked` the form in which TensorFlow
stores it. The C extension ``pparse.kernels._crc32c`` does the work if it was built (more than 10 GB/s with the
processor's instruction, 1 GB/s without), otherwise numpy below (about 200 MB/s); `NATIVE` tells which. Setting
``PPARSE_PURE_PYTHON=1`` before the import selects Python.

The algorithm
-------------
The remainder of the bytes, as a polynomial over bits, modulo 0x1EDC6F41 (RFC 3720, appendix B.4), low bit first, begun
with and ended by an exclusive or with 32 ones. But for these it is linear: the sum of two texts of one length, bit by
bit, has the sum of their remainders. So the remainder of a text is the sum of those of its words, each followed by as
many zeros as bytes follow it, and a table of four times 256 moves a remainder over any number of zeros.

In Python
---------
A short text is taken byte by byte. In a longer one, numpy finds the remainders of all words of eight bytes at once, and
joins neighbours, moved by 8, 16, 32 … bytes, until one is left.
"""

from __future__ import annotations

import functools
from functools import lru_cache

from pparse.kernels import twin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    Buffer = bytes | bytearray | memoryview

__all__ = ["NATIVE", "crc32c", "crc32c_python", "crc_of_zeros", "joined_crc", "masked", "word_tables"]

# The polynomial, its bits reversed.
_POLYNOMIAL: Final = 0x82F63B78
_ONES: Final = 0xFFFFFFFF
_MASK_DELTA: Final = 0xA282EAD8
# Below this many bytes the loop is faster than numpy.
_SHORT: Final = 256
# A power of two, in bytes: what numpy works on at a time, in temporaries of some four times that.
_PIECE: Final = 256 << 10


def masked(crc: int) -> int:
    """Return a checksum as TensorFlow stores it, so that checksums of texts with checksums in them are no worse.

    Turned right by 15 bits, plus a constant (tensorflow: tsl/lib/hash/crc32c.h).
    """
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ONES


@functools.cache
def _table() -> tuple[int, ...]:
    """Return what a byte does to the remainder."""
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        found.append(byte)
    return tuple(found)


@functools.cache
def word_tables() -> Any:
    """Return eight rows of 256: the remainder of a byte in place 0 to 7 of a word of eight bytes."""
    import numpy

    rows = numpy.empty((8, 256), numpy.uint32)
    rows[7] = _table()
    for place in range(6, -1, -1):
        rows[place] = rows[7][rows[place + 1] & 0xFF] ^ rows[place + 1] >> 8
    return rows


@functools.cache
def _over(power: int) -> Any:
    """Return four rows of 256: each byte of a remainder, moved over 8 * 2**power zero bytes."""
    import numpy

    if not power:
        return word_tables()[:4]  # a word whose last four bytes are zeros
    before = _over(power - 1)
    return numpy.stack([_moved(row, before) for row in before])


def _moved(remainders: Any, over: Any) -> Any:
    parts = remainders[..., None].astype("<u4").view("u1")
    moved = over[0][parts[..., 0]]
    for place in range(1, 4):
        moved ^= over[place][parts[..., place]]
    return moved


def _piece(remainder: int, piece: memoryview) -> int:
    """Return the remainder after ``piece``, of at least four bytes."""
    import numpy

    size = len(piece)
    room = 8
    while room < size:
        room *= 2
    padded = numpy.zeros(room, numpy.uint8)  # zeros in front change nothing, as the remainder before them is 0
    padded[room - size :] = numpy.frombuffer(piece, numpy.uint8)
    padded[room - size : room - size + 4] ^= numpy.frombuffer(remainder.to_bytes(4, "little"), numpy.uint8)
    words = padded.reshape(-1, 8)
    tables = word_tables()
    sums = tables[0][words[:, 0]]
    for place in range(1, 8):
        sums ^= tables[place][words[:, place]]
    power = 0
    while len(sums) > 1:
        sums = _moved(sums[0::2], _over(power)) ^ sums[1::2]
        power += 1
    return int(sums[0])


def crc32c_python(data: Buffer, crc: int = 0, /) -> int:
    """Return the CRC-32C of a buffer, continued from that of the bytes before it; in Python."""
    view = memoryview(data).cast("B")
    remainder = crc ^ _ONES
    at, size = 0, len(view)
    while size - at >= _SHORT:
        remainder = _piece(remainder, view[at : at + _PIECE])
        at += _PIECE
    table = _table()
    for byte in view[at:]:
        remainder = table[(remainder ^ byte) & 0xFF] ^ remainder >> 8
    return remainder ^ _ONES


_TWIN: Final = twin("_crc32c")
NATIVE: Final = _TWIN is not None

if TYPE_CHECKING:
    from pparse.kernels._crc32c import crc32c
else:
    crc32c = _TWIN.crc32c if NATIVE else crc32c_python


# -- The CRC-32 of two stretches in a row, from those of each, or of zeros: without their bytes, in a few microseconds -

# A CRC-32 is a remainder of polynomials over GF(2), modulo that of ISO 3309 (RFC 1952, section 8). With ``n`` more
# bytes behind it, the part of the first stretch is multiplied by x^(8n); the part of the second is added. Bit 31 of a
# number is the coefficient of x^0, as in the CRC itself.

_MODULUS: Final = 0xEDB88320
_ONE: Final = 1 << 31


def joined_crc(first: int, second: int, length: int) -> int:
    """Return the CRC-32 of a stretch with CRC-32 ``first`` and ``length`` bytes behind it that have ``second``."""
    return _product(first, _power(8 * length)) ^ second


def crc_of_zeros(length: int) -> int:
    """Return the CRC-32 of so many zeros."""
    return joined_crc(0xFFFFFFFF, 0xFFFFFFFF, length)


@lru_cache(maxsize=64)
def _power(exponent: int) -> int:
    """Return x to the power of ``exponent``."""
    found, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            found = _product(found, square)
        square = _product(square, square)
        exponent >>= 1
    return found


def _product(left: int, right: int) -> int:
    """Return the product of two polynomials."""
    found = 0
    while left:
        if left & _ONE:
            found ^= right
        left = left << 1 & 0xFFFFFFFF
        right = right >> 1 ^ (_MODULUS if right & 1 else 0)
    return found
