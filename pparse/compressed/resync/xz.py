"""Where a damaged xz file can be entered again: at every block.

Where the blocks are, and what they hold, is known from the indexes at the ends of the streams: they are followed from
the end of the file to its front. Where they are damaged it is known from the blocks themselves: the LZMA2 chunks that a
block is made of tell their lengths, so blocks are walked through without decoding them. Positions are exact both ways.
Only where a block's own structure is damaged, and no index tells where it ends, the next block is looked for: by the
CRC of its header. What is found so is believed unless it may be an xz file that sits, stored, in this one: a stored
chunk has at most 64 KiB, so such a file is short, or comes to grief at the end of a chunk.

A block is decoded as the only one of a stream that is made up around it, so its check (CRC-32, CRC-64, SHA-256) is
verified by liblzma. Where it contradicts, the block is in doubt.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections import namedtuple

from pparse.codecs.standard import read_xz_block, take_vli
from pparse.compressed.resync import BEFORE_DAMAGE, CONTRADICTED, nowhere, places_of
from pparse.compressed.resync.blocks import CUT, LARGEST, BlockWalk, Effort, FoundBlock, Look, Opener, spliced
from pparse.errors import LimitError, MalformedError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.compressed.env import DecodeEnv
    from pparse.compressed.resync import Failure, Piece
    from pparse.data.base import Range
    from pparse.errors import PparseError
    from pparse.limits import MemoryBudget

# -- What an xz file says of its blocks: headers, footers, indexes, LZMA2 chunks. Nothing is decoded here --------------

# Source: the .xz file format, version 1.2.0. All numbers are little-endian; a *vli* has 7 bits a byte, at most 9
# bytes.

MAGIC: Final = b"\xfd7zXZ\0"
_FOOTER: Final = b"YZ"
HEADER: Final = 12  # bytes of the header of a stream, and of its footer
# Bytes of a check, by its kind.
_CHECKS: Final = (0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64)
# The least that a block takes.
_LEAST_BLOCK: Final = 9
# What a block takes in the arrays below.
_ENTRY: Final = 32
_STEP: Final = 1 * KIB
_BUFFER: Final = 64 * KIB


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


class Index(namedtuple("Index", "length total unpadded sizes")):
    """The index of one stream: ``unpadded`` and ``sizes`` of its blocks, ``total``; it takes ``length`` bytes."""

    __slots__ = ()


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
    unpadded, sizes, taken, total = array("q"), array("q"), 0, 0
    count, place = found[0], at + 1 + found[1]
    for number in range(count):
        if budget is not None and number % _STEP == 0 and not budget.fits(2 * _ENTRY * (number + _STEP)):
            budget.charge(2 * _ENTRY * (number + _STEP), "an index of blocks")  # raises
        pair = look.get(place, 18)
        one = take_vli(pair, 0)
        two = None if one is None else take_vli(pair, one[1])
        if one is None or two is None or one[0] < _LEAST_BLOCK - 4 or one[0] > LARGEST or two[0] > LARGEST:
            return None
        taken += padded(one[0])
        total += two[0]
        if extent is not None and taken > extent:
            return None
        if budget is not None:
            unpadded.append(one[0])
            sizes.append(two[0])
        place += two[1]
    end = at + padded(place - at)
    if _crc(look, at, end) != look.number(end, 4):
        return None
    return Index(end + 4 - at, total, unpadded, sizes)


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


class BlockHead(namedtuple("BlockHead", "length compressed_size size")):
    """The header of a block: its ``length``, the ``compressed_size`` and the ``size`` if it declares them."""

    __slots__ = ()


def block_head_at(look: Look, at: int) -> BlockHead | None:
    """Return the block header at ``at``; None if there is no sound one."""
    first = look.number(at, 1)
    length = 4 * ((first or 0) + 1)
    head = look.get(at, length) if first else b""
    found = read_xz_block(head) if first and len(head) == length else None
    if found is None or max(found.compressed_size or 0, found.size or 0) > LARGEST:
        return None
    return BlockHead(length, found.compressed_size, found.size)


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


# How far before a failure the damage may begin: a chunk whose length is damaged may reach over the end of its block.
_BACK: Final = 72 * KIB
# A walk that comes this far has not been through an xz file that is stored in chunks.
_LONG: Final = 72 * KIB
# A header of a block: how far before the name of the LZMA2 filter it begins, and its longest.
_BEFORE: Final = 38
_HEAD: Final = 1 * KIB


def judge_cut(source: Range, failure: Failure, codec: str) -> PparseError:
    """Return the error that says what a stream that ends early is: one whose footer is there was not cut."""
    look = Look(source)
    end = before_padding(look, look.end)
    if end - HEADER <= failure.start or footer_at(look, end - HEADER) is None:
        return failure.error
    reason = f"the end of the {codec} stream is there, and comes too early: bytes before it are lost"
    return MalformedError(reason, offset=failure.at, source=source.data.name)


def pieces(source: Range, failure: Failure, env: DecodeEnv, *, codec: str, size: int | None = None) -> Iterator[Piece]:
    """Yield what can be had behind ``failure``, ending a piece at each damage; sets ``failure.suspect_from``.

    A piece's ``position`` may be less than ``failure.out``: a damaged block may yield more than it should.
    """
    return _XzWalk(source, failure, env, _XzOpener(source, env, "xz")).pieces()


probable_damage = nowhere


class _XzOpener(Opener):
    """Opens blocks. The tag is the kind of check, or `CUT`."""

    def stream(self, start: int, end: int, size: int | None, tag: int) -> Range:
        """Return a stream of one block."""
        if tag == CUT:
            return spliced(self._data.name, stream_header(0), self._data.range(start, end))
        block = self._data.range(start, start + padded(end - start))
        return spliced(self._data.name, stream_header(tag), block, stream_end(tag, end - start, size or 0))


class _XzWalk(BlockWalk):
    """One pass over what lies behind the failure."""

    head = HEADER
    # What a walk from block to block leaves behind: where it came to grief (or to the end, if there `ended` it).
    _broken = 0
    _ended = _lost = False

    def _lose(self) -> None:
        # The place of what follows in this stream is not known any more.
        self._lost = True

    def _behind(self) -> Iterator[FoundBlock]:
        layout = layout_from_the_end(self._look, self._env.budget)
        if sum(layout.sizes) > LARGEST:
            layout = XzLayout(self._look.end)
        self._layout = layout
        failure = self._failure
        if layout.start <= failure.start < layout.end:
            first = bisect_left(layout.starts, failure.start)
            yield from self._behind_failure(self._of_layout(layout, first, failure.start_out))
            return
        yield from self._behind_failure(self._forward(failure.start, failure.start_out))
        if not self._ended:
            yield from self._search()
        if not self._ended:
            yield from self._of_layout(layout, 0, None)

    def _of_layout(self, layout: XzLayout, first: int, position: int | None) -> Iterator[FoundBlock]:
        for place in range(first, len(layout.starts)):
            start = layout.starts[place]
            block = FoundBlock(start, start + layout.lengths[place], layout.sizes[place], layout.checks[place])
            block.position = position
            block.follows = place > first
            if position is not None:
                position += block.size
            yield block

    def _behind_failure(self, blocks: Iterator[FoundBlock]) -> Iterator[FoundBlock]:
        """Leave out of ``blocks`` those that came out, and the one that failed."""
        at = self._failure.at
        failed = False
        for block in blocks:
            end = block.start + padded(block.end - block.start)
            if failed or block.start >= at:
                failed = True
                yield block
            elif end >= at or block.tag == CUT or (end > at - _BACK and not self._sound(block)):
                failed = True
                self._note_suspect(block)
                if not block.sure:
                    self._lose()

    def _sound(self, block: FoundBlock) -> bool:
        with self._open(block.start, block.end, block.size, block.tag) as data:
            data.verify()
            return data.error is None

    def _note_suspect(self, block: FoundBlock) -> None:
        """Say from where on the output of the block that failed is in doubt: from the chunk that failed, or all."""
        failure = self._failure
        if block.position is None or failure.by_source:
            return
        suspect_from = block.position
        head = block_head_at(self._look, block.start)
        end = block.end if block.tag == CUT else block.end - _CHECKS[block.tag]
        if block.tag != CUT and failure.at > end:
            failure.why_suspect = CONTRADICTED
        elif head is not None:
            # A chunk that ends badly shows a few bytes later.
            suspect_from += walk_chunks(self._look, block.start + head.length, failure.at - 8).size
            failure.why_suspect = BEFORE_DAMAGE
        if suspect_from < failure.out:
            failure.suspect_from = suspect_from

    # -- from block to block -------------------------------------------------------------------------------------

    def _forward(self, at: int, position: int | None, inside: bool = False) -> Iterator[FoundBlock]:
        """Yield the blocks of the streams from ``at`` on, as far as their structure is sound.

        ``inside``: at ``at`` a block begins, else a stream.
        """
        look = self._look
        check: int | None = None
        first = True
        follows = False
        self._ended = False
        self._broken = self._search_from = at
        while at < look.end:
            if not inside and not first and at == self._layout.start:
                yield from self._of_layout(self._layout, 0, position)
                break
            if not inside:
                check = check_of_header(look, at)
                if check is None and not first:
                    return
                at += HEADER
            inside = first = self._lost = False
            stream_out = position
            while look.get(at, 1) != b"\0":
                self._broken = at
                block = self._block_at(at, check)
                if block is None:
                    return
                block.position, block.follows = position, follows
                position = None if position is None else position + block.size
                follows = True
                end = at + padded(block.end - at)
                yield block
                if self._lost:
                    position = None
                self._broken = end
                if block.tag == CUT:
                    return
                check, at = block.tag, end
                self._search_from = max(self._search_from, block.start + 1)
                if block.sure or self._look.get(at, 1) == b"\0" or block_head_at(self._look, at) is not None:
                    self._search_from = max(self._search_from, at - _BACK)
            self._broken = at
            after = self._behind_stream(at)
            if after is None:
                return
            at = self._broken = after[0]
            position = None if stream_out is None else stream_out + after[1]
            self._search_from = max(self._search_from, at)
        self._ended = True

    def _behind_stream(self, at: int) -> tuple[int, int] | None:
        """Return where the stream ends whose index is at ``at``, padding left out, and what it holds.

        None if the index is damaged.
        """
        index = index_at(self._look, at, None)
        if index is None:
            return None
        at += index.length
        if footer_at(self._look, at) is None and check_of_header(self._look, at + HEADER) is None:
            return None
        at += HEADER
        while (block := self._look.get(at, 4 * KIB)) and block[:4] == bytes(4):
            at += max(4, (len(block) - len(block.lstrip(b"\0"))) & ~3)
        return at, index.total

    def _block_at(self, at: int, check: int | None) -> FoundBlock | None:
        """Return the block that begins at ``at``, without its end if that is not to be found; None if none begins."""
        head = block_head_at(self._look, at)
        if head is None:
            self._search_from = max(self._search_from, at + 1)
            return None
        body = at + head.length
        compressed_size, size = head.compressed_size, head.size
        sure = compressed_size is not None and size is not None
        if compressed_size is None or size is None or compressed_size > self._look.end - body:
            chunks = walk_chunks(self._look, body)
            compressed_size, size = chunks.end - body, chunks.size
            if not chunks.whole:
                # A damaged length leads to other bytes, half of which look like the head of a chunk, too.
                back = chunks.last - 4 * _BACK
                if at < self._failure.at:
                    back = min(back, self._failure.at - _BACK)
                self._search_from = max(self._search_from, at + 1, back)
                block = FoundBlock(at, chunks.end, size, CUT)
                block.sure = False
                return block
        end = padded(body + compressed_size - at) + at
        if check is None:
            check = self._guess_check(end)
        block = FoundBlock(at, body + compressed_size + _CHECKS[check], size, check)
        block.sure = sure
        return block

    def _guess_check(self, at: int) -> int:
        """Return of what kind the check at ``at`` is, going by what follows it."""
        for check in (4, 1, 10, 0):
            behind = at + _CHECKS[check]
            if block_head_at(self._look, behind) is not None or index_at(self._look, behind, None) is not None:
                return check
        return 0

    # -- looking for a block -------------------------------------------------------------------------------------

    def _search(self) -> Iterator[FoundBlock]:
        """Yield the blocks of all chains of blocks that begin somewhere behind, before what the layout tells of."""
        effort = Effort(self._search_from)
        for at, check in self._candidates(self._search_from, self._layout.start):
            self._env.poll()
            if at < self._search_from or not effort.allows(at):
                continue
            inside = check is None
            walked = 0
            for block in self._forward(at, None, inside):
                walked = block.end - at
                effort.spent += 256
            if walked and (inside or self._ended or walked >= _LONG):
                yield from self._forward(at, None, inside)
            elif not inside:
                self._search_from = max(self._search_from, self._broken)
            if self._ended:
                return

    def _candidates(self, at: int, limit: int) -> Iterator[tuple[int, int | None]]:
        """Yield where a stream may begin, with its check, and where a block may, with None."""
        latest = at - 1
        for base, data in self._look.windows(at, _HEAD + _BEFORE, limit):
            found: dict[int, int | None] = {}
            for place in places_of(MAGIC, data):
                check = check_of_header(self._look, base + place)
                if check is not None:
                    found[base + place] = check
            for place in _heads(data):
                if base + place - HEADER not in found and block_head_at(self._look, base + place) is not None:
                    found[base + place] = None
            for place in sorted(found):
                if place > latest:
                    latest = place
                    yield place, found[place]


def _heads(data: bytes) -> Iterator[int]:
    """Yield where the header of a block may begin in ``data``: its CRC matches."""
    done = -1
    for place in places_of(b"\x21\1", data):
        for first in range(max(done + 1, place - _BEFORE, 0), place - 1):
            if data[first] and not data[first + 1] & 0x3C:
                end = first + 4 * data[first]
                if end <= len(data) - 4 and zlib.crc32(data[first:end]).to_bytes(4, "little") == data[end : end + 4]:
                    yield first
        done = max(done, place - 2)
