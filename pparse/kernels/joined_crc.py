"""The CRC-32 of two stretches in a row, from those of each, or of zeros: without their bytes, in a few microseconds.

A CRC-32 is a remainder of polynomials over GF(2), modulo that of ISO 3309 (RFC 1952, section 8). With ``n`` more bytes
behind it, the part of the first stretch is multiplied by x^(8n); the part of the second is added. Bit 31 of a number is
the coefficient of x^0, as in the CRC itself.
"""

from __future__ import annotations

from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

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
