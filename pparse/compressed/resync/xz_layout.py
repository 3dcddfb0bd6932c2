"""What an xz file says of its blocks: headers, footers, indexes, LZMA2 chunks. Nothing is decoded here.

Source: the .xz file format, version 1.2.0. All numbers are little-endian; a *vli* has 7 bits a byte, at most 9 bytes.
"""

from __future__ import annotations

import zlib
from array import array

from pparse.compressed.resync.blocks import LARGEST
from pparse.errors import LimitError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.budget import MemoryBudget
    from pparse.compressed.resync.blocks import Look

MAGIC: Final = b"\xfd7zXZ\0"
_FOOTER: Final = b"YZ"
HEADER: Final = 12  # bytes of the header of a stream, and of its footer
LZMA2: Final = 0x21
# Bytes of a check, by its kind.
_CHECKS: Final = (0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64)
# The least that a block takes.
_LEAST_BLOCK: Final = 9
# What a block takes in the arrays below.
_ENTRY: Final = 32
_STEP: Final = 1 * KIB
_BUFFER: Final = 64 * KIB


def check_size(check: int) -> int:
    """Return the bytes of a check of kind ``check``."""
    return _CHECKS[check]


def padded(size: int) -> int:
    """Return ``size`` rounded up to 4."""
    return size + 3 & ~3


def stream_header(check: int) -> bytes:
    """Return the header of a stream whose blocks have a check of kind ``check``."""
    flags = bytes([0, check])
    return MAGIC + flags + zlib.crc32(flags).to_bytes(4, "little")


def stream_end(check: int, unpadded: int, size: int) -> bytes:
    """Return index and footer of a stream of one block."""
    index = b"\0\1" + _vli(unpadded) + _vli(size)
    index = index.ljust(padded(len(index)), b"\0")
    index += zlib.crc32(index).to_bytes(4, "little")
    rest = (len(index) // 4 - 1).to_bytes(4, "little") + bytes([0, check])
    return index + zlib.crc32(rest).to_bytes(4, "little") + rest + _FOOTER


def _vli(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def take_vli(data: bytes, at: int) -> tuple[int, int] | None:
    """Return the number at ``data[at:]`` and where it ends; None if there is none."""
    number = shift = 0
    for place in range(at, min(at + 9, len(data))):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number, place + 1) if byte or place == at else None
    return None


def check_of_header(look: Look, at: int) -> int | None:
    """Return the kind of check that the stream header at ``at`` declares; None if there is no sound one."""
    head = look.get(at, HEADER)
    if len(head) < HEADER or head[:6] != MAGIC or head[6] or head[7] > 15:
        return None
    return head[7] if zlib.crc32(head[6:8]) == int.from_bytes(head[8:], "little") else None


def footer_at(look: Look, at: int) -> tuple[int, int] | None:
    """Return the check and the length of the index that the footer at ``at`` declares; None if it is not sound."""
    foot = look.get(at, HEADER)
    if len(foot) < HEADER or foot[10:] != _FOOTER or foot[8] or foot[9] > 15:
        return None
    if zlib.crc32(foot[4:10]) != int.from_bytes(foot[:4], "little"):
        return None
    return foot[9], 4 * (int.from_bytes(foot[4:8], "little") + 1)


class Index:
    """The index of one stream: ``unpadded`` and ``sizes`` of its blocks; it takes ``length`` bytes.

    ``extent``: the bytes that the blocks take; ``total``: what they hold.
    """

    __slots__ = ("extent", "length", "sizes", "total", "unpadded")

    def __init__(self) -> None:
        self.unpadded = array("q")
        self.sizes = array("q")
        self.length = 0
        self.extent = 0
        self.total = 0


def index_at(look: Look, at: int, extent: int | None, budget: MemoryBudget | None = None) -> Index | None:
    """Return the index that begins at ``at``; None if it is damaged.

    With ``extent``, no index for blocks of more bytes than that. The records are kept, and charged for as long as this
    runs, only with a ``budget``. Raises `LimitError`.
    """
    if look.get(at, 1) != b"\0":
        return None
    found = take_vli(look.get(at + 1, 9), 0)
    if found is None or found[0] > (look.end - at) // 2 or (extent is not None and found[0] > extent // _LEAST_BLOCK):
        return None
    index = Index()
    count, place = found[0], at + 1 + found[1]
    for number in range(count):
        if budget is not None and number % _STEP == 0 and not budget.fits(2 * _ENTRY * (number + _STEP)):
            budget.charge(2 * _ENTRY * (number + _STEP), "an index of blocks")  # raises
        pair = look.get(place, 18)
        one = take_vli(pair, 0)
        two = None if one is None else take_vli(pair, one[1])
        if one is None or two is None or one[0] < _LEAST_BLOCK - 4 or one[0] > LARGEST or two[0] > LARGEST:
            return None
        index.extent += padded(one[0])
        index.total += two[0]
        if extent is not None and index.extent > extent:
            return None
        if budget is not None:
            index.unpadded.append(one[0])
            index.sizes.append(two[0])
        place += two[1]
    end = at + padded(place - at)
    if _crc(look, at, end) != look.number(end, 4):
        return None
    index.length = end + 4 - at
    return index


def _crc(look: Look, start: int, end: int) -> int:
    crc = 0
    while start < end:
        block = look.get(start, min(_BUFFER, end - start))
        if not block:
            return -1
        crc = zlib.crc32(block, crc)
        start += len(block)
    return crc


class XzLayout:
    """The blocks of the streams that fill ``[start, end)``: where they begin, unpadded length, size, check."""

    __slots__ = ("checks", "end", "lengths", "sizes", "start", "starts")

    def __init__(self, end: int) -> None:
        self.start = self.end = end
        self.starts = array("q")
        self.lengths = array("q")
        self.sizes = array("q")
        self.checks = array("q")


def layout_from_the_end(look: Look, budget: MemoryBudget) -> XzLayout:
    """Return what the indexes say, from the end of the source back to the first place where they say nothing.

    The blocks are not looked at, nor are the headers of the streams. Raises `LimitError` for a single index that the
    budget does not hold; with many, it goes back as far as the budget allows.
    """
    layout = XzLayout(look.end)
    charge = budget.charge(_STEP * _ENTRY, "an index of blocks")
    at = look.end
    while True:
        foot_at = before_padding(look, at) - HEADER
        foot = footer_at(look, foot_at) if foot_at >= look.start + HEADER else None
        if foot is None:
            break
        check, length = foot
        room = foot_at - length - HEADER - look.start
        index = index_at(look, foot_at - length, room, budget) if room >= 0 else None
        if index is None or index.length != length:
            break
        try:
            charge.resize(charge.amount + _ENTRY * len(index.sizes))
        except LimitError:
            break
        start = foot_at - length
        for place in range(len(index.sizes) - 1, -1, -1):
            start -= padded(index.unpadded[place])
            layout.starts.append(start)
            layout.lengths.append(index.unpadded[place])
            layout.sizes.append(index.sizes[place])
            layout.checks.append(check)
        at = layout.start = start - HEADER
    for column in (layout.starts, layout.lengths, layout.sizes, layout.checks):
        column.reverse()
    charge.release()
    return layout


def before_padding(look: Look, at: int) -> int:
    """Return where the zeros, in fours, that end at ``at`` begin."""
    while at - 4 >= look.start and look.get(at - 4, 4) == bytes(4):
        first = max(look.start, at - _BUFFER // 2)
        block = look.get(first, at - first)
        zeros = len(block) - len(block.rstrip(b"\0"))
        at -= max(4, zeros & ~3)
    return at


class BlockHead:
    """The header of a block: its ``length``, the ``compressed_size`` and the ``size`` if it declares them."""

    __slots__ = ("compressed_size", "length", "size")

    def __init__(self, length: int, compressed_size: int | None, size: int | None) -> None:
        self.length = length
        self.compressed_size = compressed_size
        self.size = size


def block_head_at(look: Look, at: int) -> BlockHead | None:
    """Return the block header at ``at``; None if there is no sound one."""
    first = look.get(at, 2)
    if len(first) < 2 or not first[0] or first[1] & 0x3C:
        return None
    length = 4 * (first[0] + 1)
    head = look.get(at, length)
    if len(head) < length or zlib.crc32(head[:-4]) != int.from_bytes(head[-4:], "little"):
        return None
    place = 2
    sizes: list[int | None] = []
    for bit in (0x40, 0x80):
        found = take_vli(head, place) if first[1] & bit else None
        if first[1] & bit and found is None:
            return None
        sizes.append(None if found is None else found[0])
        place = place if found is None else found[1]
    count = (first[1] & 3) + 1
    for number in range(count):
        name = take_vli(head, place)
        props = None if name is None else take_vli(head, name[1])
        if name is None or props is None or props[1] + props[0] > length - 4:
            return None
        if (name[0] == LZMA2) != (number == count - 1):  # it comes last, and only last
            return None
        place = props[1] + props[0]
    if any(size is not None and size > LARGEST for size in sizes) or sizes[0] == 0 or head[place:-4].strip(b"\0"):
        return None
    return BlockHead(length, sizes[0], sizes[1])


class Chunks:
    """A walk over LZMA2 chunks: it came to ``end``; they hold ``size`` bytes; ``whole``: the end mark was seen.

    ``last`` is where the last chunk begins: if the walk came to grief behind it, its own length may be damaged.
    """

    __slots__ = ("end", "last", "size", "whole")

    def __init__(self, at: int) -> None:
        self.end = self.last = at
        self.size = 0
        self.whole = False


def walk_chunks(look: Look, at: int, stop: int | None = None) -> Chunks:
    """Walk the chunks that begin at ``at``, as far as they go, or to the chunk that holds the byte before ``stop``."""
    found = Chunks(at)
    while True:
        head = look.get(found.end, 6)
        if not head or (control := head[0]) == 0:
            found.whole = bool(head)
            found.end += found.whole
            return found
        if control >= 0x80:
            length = 6 if control >= 0xC0 else 5
            if len(head) < length or (length == 6 and head[5] > 224):
                return found
            compressed_size = length + 1 + int.from_bytes(head[3:5])
            count = ((control & 0x1F) << 16) + int.from_bytes(head[1:3]) + 1
        elif control < 3 and len(head) >= 3:
            count = int.from_bytes(head[1:3]) + 1
            compressed_size = 3 + count
        else:
            return found
        cut = compressed_size > look.end - found.end
        if cut or found.size > LARGEST - count or (stop is not None and found.end + compressed_size >= stop):
            return found
        found.last = found.end
        found.end += compressed_size
        found.size += count
