"""Finds the heads of TFRecord records: one after the other in a sound file, or at any offset in a damaged one.

A head is a length, u64, and the masked CRC-32C of its eight bytes, u32. numpy compares many at once.
"""

from __future__ import annotations

from array import array
from struct import Struct

from pparse.kernels.crc32c import NATIVE, crc32c, masked, word_tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

HEAD_SIZE: Final = 12
"""Bytes of a head."""
FRAME_SIZE: Final = 16
"""Bytes of a record besides its data: the head, and the masked CRC-32C of the data behind them."""

_HEAD: Final = Struct("<QI")
_LENGTH: Final = Struct("<Q")
# The remainder of eight zero bytes, by which the start with ones and the end with ones differ from a linear sum.
_AFFINE: Final = crc32c(bytes(8))
# What numpy works on at a time: its temporaries stay in the processor's cache.
_PIECE: Final = 16 << 10
_FEW: Final = 256


def head_at(block: bytes, at: int) -> int | None:
    """Return the length in the head at ``at``; None if its checksum is wrong, or it is not all there."""
    if at < 0 or len(block) - at < HEAD_SIZE:
        return None
    length, stored = _HEAD.unpack_from(block, at)
    return int(length) if masked(crc32c(block[at : at + 8])) == stored else None


def chain(block: bytes, at: int, most: int) -> tuple[array[int], array[int], int]:
    """Follow records from head to head in a block, as long as heads are sound and in the block.

    Return where each begins, the length of its data, and where the next one begins. A record that ends more than
    ``most`` bytes behind the beginning of the block is left out.
    """
    starts, lengths, pos, last = array("q"), array("q"), at, len(block) - HEAD_SIZE
    unpack = _LENGTH.unpack_from
    while pos <= last:
        (length,) = unpack(block, pos)
        if length > most - pos - FRAME_SIZE:
            break
        starts.append(pos)
        lengths.append(length)
        pos += length + FRAME_SIZE
    good = _count_good(block, starts)
    if good < len(starts):
        pos = starts[good]
        del starts[good:], lengths[good:]
    return starts, lengths, pos


def _count_good(block: bytes, starts: array[int]) -> int:
    """Return at how many of ``starts``, from the first on, a head has the right checksum."""
    if NATIVE or len(starts) < _FEW:  # numpy takes long to import
        wrong = (number for number, at in enumerate(starts) if head_at(block, at) is None)
        return next(wrong, len(starts))
    import numpy

    good = _is_head(numpy.frombuffer(block, numpy.uint8), numpy.asarray(starts))
    return len(starts) if good.all() else int(good.argmin())


def heads(block: bytes, most: int) -> list[int]:
    """Return all offsets in a block at which a sound head stands, of a record no longer than ``most`` bytes."""
    import numpy

    raw = numpy.frombuffer(block, numpy.uint8)
    found: list[int] = []
    for base in range(0, len(raw) - HEAD_SIZE + 1, _PIECE):
        found += (base + int(at) for at in _heads(raw[base : base + _PIECE + HEAD_SIZE - 1], most))
    return [at for at in found if _LENGTH.unpack_from(block, at)[0] <= most]


def _heads(raw: Any, most: int) -> Any:
    import numpy

    count = len(raw) - HEAD_SIZE + 1
    # The highest bytes of a length are zeros in any file of less than 2**64 bytes.
    maybe = numpy.ones(count, numpy.bool_)
    for place in range((max(most, 1).bit_length() + 7) // 8, 8):
        maybe &= raw[place : place + count] == 0
    places = numpy.flatnonzero(maybe)
    if len(places) * 3 < count:
        return places[_is_head(raw, places)]
    places = numpy.flatnonzero(_is_head(raw, None))
    return places[maybe[places]]


def _is_head(raw: Any, places: Any) -> Any:
    """Return for each of ``places`` in ``raw`` whether the checksum of a head there is right; None: for all places."""
    import numpy

    count = len(raw) - HEAD_SIZE + 1

    def bytes_at(place: int) -> Any:
        return raw[place : place + count] if places is None else raw[places + place]

    tables = word_tables()
    crc = tables[0].take(bytes_at(0))
    for place in range(1, 8):
        crc ^= tables[place].take(bytes_at(place))
    crc ^= _AFFINE
    # Stored as `pparse.kernels.crc32c.masked` says.
    wanted = (crc >> numpy.uint32(15) | crc << numpy.uint32(17)) + numpy.uint32(masked(0))
    same = wanted.astype("<u4").view(numpy.uint8).reshape(-1, 4)
    right = same[:, 0] == bytes_at(8)
    for place in range(1, 4):
        right &= same[:, place] == bytes_at(8 + place)
    return right
