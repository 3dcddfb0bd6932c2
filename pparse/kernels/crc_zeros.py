"""CRC-32 of zeros, however many, without making them.

A CRC is linear: what one more zero bit does to it is a matrix over GF(2), and that of 2n bits is its square
(zlib, crc32.c, ``crc32_combine``).
"""

from __future__ import annotations

from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_POLYNOMIAL: Final = 0xEDB88320
_ONES: Final = 0xFFFFFFFF


def _times(matrix: tuple[int, ...], vector: int) -> int:
    found = 0
    for column in matrix:
        if not vector:
            break
        if vector & 1:
            found ^= column
        vector >>= 1
    return found


@cache
def _power(number: int) -> tuple[int, ...]:
    """Return the matrix of ``1 << number`` zero bytes, as its columns."""
    if not number:
        matrix = (_POLYNOMIAL, *(1 << bit for bit in range(31)))
        for _ in range(3):
            matrix = tuple(_times(matrix, column) for column in matrix)
        return matrix
    half = _power(number - 1)
    return tuple(_times(half, column) for column in half)


def crc32_of_zeros(count: int) -> int:
    """Return the CRC-32 of ``count`` zeros, below 2 to the power of 63."""
    found, number = _ONES, 0
    while count:
        if count & 1:
            found = _times(_power(number), found)
        count, number = count >> 1, number + 1
    return found ^ _ONES
