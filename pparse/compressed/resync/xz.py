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
from bisect import bisect_left

from pparse.compressed.resync.blocks import CUT, LARGEST, Effort, Look, windows
from pparse.compressed.resync.pieces import BEFORE_DAMAGE, CONTRADICTED
from pparse.compressed.resync.walk import BlockWalk, FoundBlock, Opener, spliced
from pparse.compressed.resync.xz_layout import (
    HEADER,
    MAGIC,
    XzLayout,
    before_padding,
    block_head_at,
    check_of_header,
    check_size,
    footer_at,
    index_at,
    layout_from_the_end,
    padded,
    stream_end,
    stream_header,
    walk_chunks,
)
from pparse.errors import MalformedError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.compressed.inflated import DecodeEnv
    from pparse.compressed.resync.pieces import Failure, Piece
    from pparse.data.reader import Range
    from pparse.errors import PparseError

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
    return _XzWalk(source, failure, env, _XzOpener(source, env)).pieces()


class _XzOpener(Opener):
    """Opens blocks. The tag is the kind of check, or `CUT`."""

    codec = "xz"

    def stream(self, start: int, end: int, size: int | None, tag: int) -> Range:
        """Return a stream of one block."""
        if tag == CUT:
            return spliced(self._data.name, stream_header(0), self._data.range(start, end))
        block = self._data.range(start, start + padded(end - start))
        return spliced(self._data.name, stream_header(tag), block, stream_end(tag, end - start, size or 0))


class _XzWalk(BlockWalk):
    """One pass over what lies behind the failure."""

    head = HEADER

    def __init__(self, source: Range, failure: Failure, env: DecodeEnv, open_block: Opener) -> None:
        super().__init__(source, failure, env, open_block)
        # What a walk from block to block leaves behind: where it came to grief (or to the end, if there `ended` it).
        self._broken = 0
        self._ended = False
        self._lost = False
        self._layout = XzLayout(self._look.end)

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
        yield from self._behind_failure(self._forward(failure.start, None, failure.start_out))
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
            data.finish()
            return data.error is None

    def _note_suspect(self, block: FoundBlock) -> None:
        """Say from where on the output of the block that failed is in doubt: from the chunk that failed, or all."""
        failure = self._failure
        if block.position is None or failure.by_source:
            return
        suspect_from = block.position
        head = block_head_at(self._look, block.start)
        end = block.end if block.tag == CUT else block.end - check_size(block.tag)
        if block.tag != CUT and failure.at > end:
            failure.why_suspect = CONTRADICTED
        elif head is not None:
            # A chunk that ends badly shows a few bytes later.
            suspect_from += walk_chunks(self._look, block.start + head.length, failure.at - 8).size
            failure.why_suspect = BEFORE_DAMAGE
        if suspect_from < failure.out:
            failure.suspect_from = suspect_from

    # -- from block to block -------------------------------------------------------------------------------------

    def _forward(self, at: int, check: int | None, position: int | None, inside: bool = False) -> Iterator[FoundBlock]:
        """Yield the blocks of the streams from ``at`` on, as far as their structure is sound.

        ``inside``: at ``at`` a block begins, else a stream.
        """
        look = self._look
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
        block = FoundBlock(at, body + compressed_size + check_size(check), size, check)
        block.sure = sure
        return block

    def _guess_check(self, at: int) -> int:
        """Return of what kind the check at ``at`` is, going by what follows it."""
        for check in (4, 1, 10, 0):
            behind = at + check_size(check)
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
            for block in self._forward(at, None, None, inside):
                walked = block.end - at
                effort.spent += 256
            if walked and (inside or self._ended or walked >= _LONG):
                yield from self._forward(at, None, None, inside)
            elif not inside:
                self._search_from = max(self._search_from, self._broken)
            if self._ended:
                return

    def _candidates(self, at: int, limit: int) -> Iterator[tuple[int, int | None]]:
        """Yield where a stream may begin, with its check, and where a block may, with None."""
        latest = at - 1
        for base, data in windows(self._look, at, _HEAD + _BEFORE, limit):
            found: dict[int, int | None] = {}
            place = data.find(MAGIC)
            while place >= 0:
                check = check_of_header(self._look, base + place)
                if check is not None:
                    found[base + place] = check
                place = data.find(MAGIC, place + 1)
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
    place = data.find(b"\x21\1")
    while place >= 0:
        for first in range(max(done + 1, place - _BEFORE, 0), place - 1):
            if data[first] and not data[first + 1] & 0x3C:
                end = first + 4 * data[first]
                if end <= len(data) - 4 and zlib.crc32(data[first:end]).to_bytes(4, "little") == data[end : end + 4]:
                    yield first
        done = max(done, place - 2)
        place = data.find(b"\x21\1", place + 1)
