"""Where damaged LZ4 frames can be entered again: at every frame, and at every block that does not need its history.

A block has its length in front, so the next one is found, unless just that is damaged. Blocks of a frame are either
independent of each other, or linked: then only the next frame can be entered. Nothing says how much a block holds; but
where a frame declares its size, and that leaves room for nothing but full blocks (the last one aside), positions are
exact.

A chain of blocks behind a damaged one is believed if it leads to the end of the frame, with another frame or the end of
the source behind it, or to the end of a source that is cut. A frame that is found by its magic and its header checksum
is in doubt if something else follows it: it may be a file that sits, stored, in another one.
"""

from __future__ import annotations

from copy import copy
from itertools import islice

from pparse.codecs.lz4 import MAGIC, Lz4Frame, parse_frame
from pparse.compressed.resync import BEFORE_DAMAGE, CONTRADICTED, nowhere
from pparse.compressed.resync.blocks import LARGEST, Effort, FoundBlock, FrameWalk, Look, Opener, skip, spliced
from pparse.errors import Fault, MalformedError, UnsupportedError
from pparse.kernels.lz4 import short_xxh32
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.compressed.env import DecodeEnv
    from pparse.compressed.resync import Failure, Piece
    from pparse.data.base import Range
    from pparse.errors import PparseError

_HEADER: Final = 7  # of a frame without options
_LONGEST_HEADER: Final = 20
# Longer than what is stored, uncut, in one block.
_LONG: Final = 4 * MIB + 64
# Blocks that must follow a damaged one in a source that is cut.
_ENOUGH: Final = 2
_WHOLE: Final = 1 << 8  # in a tag: a frame, not a block
_TRAILER: Final = 8  # the end mark, and the checksum of all


def pieces(source: Range, failure: Failure, env: DecodeEnv, *, codec: str, size: int | None = None) -> Iterator[Piece]:
    """Yield what can be had behind ``failure``, ending a piece at each damage; sets ``failure.suspect_from``."""
    return _Lz4Walk(source, failure, env, _Lz4Opener(source, env, "lz4")).pieces()


def judge_cut(source: Range, failure: Failure, codec: str) -> PparseError:
    """Look at a frame that ends early: return the error that says what it is; perhaps sets ``failure.suspect_from``.

    If the source ends with what looks like an end mark and a checksum, it was perhaps not cut: its last block may have
    lost bytes, and nobody knows where. Not if it ends where a block does: its size says that all of it is there.
    """
    look = Look(source)
    frame = _frame_at(look, failure.start)
    if frame is None or frame.trailer != _TRAILER:
        return failure.error
    tail = look.get(look.end - _TRAILER, _TRAILER)
    if tail[:4] == bytes(4) and tail[4:] != bytes(4) and not _ends_with_block(look, frame):
        failure.suspect_from = max(failure.start_out, failure.out - frame.most)
        failure.why_suspect = "the file ends with what looks like the lz4 frame's end: bytes may be missing before it"
    return failure.error


def _ends_with_block(look: Look, frame: _LzFrame) -> bool:
    last = frame.body
    for _, stop in _blocks_at(look, frame, frame.body):
        last = stop
    return last == look.end


probable_damage = nowhere


class _Lz4Opener(Opener):
    """Opens blocks and frames. The tag of a block: twice its size code, plus 1 with a checksum."""

    def stream(self, start: int, end: int, size: int | None, tag: int) -> Range:
        """Return a frame of one block; or a frame as it stands."""
        whole = super().stream(start, end, size, tag)
        if tag & _WHOLE:
            return whole
        flags = bytes([0x60 | (tag & 1) << 4, (tag & 0xE) << 3])
        head = MAGIC + flags + bytes([short_xxh32(flags) >> 8 & 0xFF])
        return spliced(self._data.name, head, whole, bytes(4))


class _LzFrame(Lz4Frame):
    """The frame at ``start``, whose blocks begin at ``body``."""

    __slots__ = ("body", "start")

    def __init__(self, start: int, head: bytes) -> None:
        super().__init__(head)
        self.start, self.body = start, start + len(head)

    def entered(self, at: int) -> _LzFrame:
        """Return the same frame, as if its blocks began at ``at``."""
        other = copy(self)
        other.body = at
        return other


class _Lz4Walk(FrameWalk):
    """One pass over what lies behind the failure."""

    magic = MAGIC
    head = _HEADER
    small = True

    def _behind(self) -> Iterator[FoundBlock]:
        failure = self._failure
        frame = _frame_at(self._look, failure.start)
        if frame is not None and failure.at >= frame.body:
            self._search_from = max(frame.start + 1, failure.at - frame.most)
            failed = self._failed_block(frame)
            self._note_suspect(frame, failed)
            yield from self._rest(frame, failed)
        elif frame is None and failure.at < failure.start + _LONGEST_HEADER:
            yield from self._without_header(failure.start)
        yield from self._search()

    def _failed_block(self, frame: _LzFrame) -> int:
        """Return where the block begins that failed; or what follows the blocks, if none did."""
        at = frame.body
        for start, stop in _blocks_at(self._look, frame, at):
            if self._failure.at < stop:
                return start
            # One that came out in part is told of at its end.
            damaged = self._failure.at == stop and self._failure.error.fault in (Fault.BLOCK, Fault.BLOCK_SIZE)
            if damaged and not frame.linked and not self._measured(start, stop, frame).proved:
                return start
            at = stop
        return at

    def _rest(self, frame: _LzFrame, failed: int) -> Iterator[FoundBlock]:
        """Yield what lies behind the block at ``failed``, and the frames that follow."""
        end, count, last = self._extent(frame)
        cut = end is None and self._look.end - last <= frame.most + 8
        behind = sum(at > self._failure.at for at, _ in _blocks_at(self._look, frame, frame.body)) if cut else 0
        if (end is not None and self._follows(end)) or (cut and behind >= _ENOUGH):
            full = self._full(frame, end, count, last)
            if not frame.linked:
                yield from self._blocks(frame, self._failure.start_out if full else None, behind=failed, end=end)
            if end is not None:
                yield from self._chain(end, self._behind_frame(frame))
            return
        for place in () if frame.linked else self._reentries(frame, failed + 1):
            yield from self._entered(frame, place, None)
            return

    def _behind_frame(self, frame: _LzFrame) -> int | None:
        if self._failure.error.fault is Fault.TRAILING:
            return self._failure.out
        return None if frame.content is None else self._failure.start_out + frame.content

    def _reentries(self, frame: _LzFrame, at: int) -> Iterator[int]:
        """Yield where a chain of blocks begins that leads to the end of the frame, next to ``at``."""
        import re

        high = bytes(range(max(1, frame.most >> 16) + 1))
        words = re.compile(b"(?=..[" + re.escape(high) + b"][\\x00\\x80])", re.DOTALL)
        effort = Effort(at, base=1 * MIB, rate=1)
        end = at + frame.most + 16
        end = next((place for place in self._magics(at, end) if _frame_at(self._look, place) is not None), end)
        for base, data in self._look.windows(at, 3, end):
            self._env.poll()
            for match in words.finditer(data):
                place = base + match.start()
                if not effort.allows(place):
                    return
                again = frame.entered(place)
                stop, count, _ = self._extent(again, effort)
                if count and stop is not None and self._follows(stop):
                    first = islice(_blocks_at(self._look, again, place), _ENOUGH)
                    if all(self._measured(*block, again).proved for block in first):
                        yield place

    def _without_header(self, at: int) -> Iterator[FoundBlock]:
        """Yield the blocks of a frame with a damaged header, if some way to read them leads to its end."""
        for length in (_HEADER, _HEADER + 8):
            for frame in _made_up_frames(at, length, 7):
                end, count, _ = self._extent(frame)
                if count < _ENOUGH or end is None or not self._follows(end):
                    continue
                first = islice(_blocks_at(self._look, frame, frame.body), _ENOUGH)
                if all(self._measured(*block, frame).proved for block in first):
                    yield from self._entered(frame, frame.body, self._failure.start_out)
                    return
        for code in (4, 5, 6, 7):
            for frame in _made_up_frames(at, _HEADER, code):
                for place in self._reentries(frame, at + 4):
                    yield from self._entered(frame, place, None)
                    return

    def _entered(self, frame: _LzFrame, at: int, position: int | None) -> Iterator[FoundBlock]:
        """Yield the blocks of ``frame`` from ``at`` on, the first one at ``position``, and the frames that follow."""
        frame = frame.entered(at)
        end, _, _ = self._extent(frame)
        for found in self._blocks(frame, None, end=end):
            if found.start == at:
                found.position = position
            yield found
        if end is not None:
            yield from self._chain(end, None if frame.content is None else self._failure.start_out + frame.content)

    def _note_suspect(self, frame: _LzFrame, failed: int) -> None:
        failure = self._failure
        if failure.by_source:
            return
        if failure.error.fault is Fault.FRAME:
            failure.suspect_from, failure.why_suspect = failure.start_out, CONTRADICTED
        elif failure.error.fault is Fault.BLOCK:
            came = frame.most  # the block came out as far as it could be decoded
            for start, stop in _blocks_at(self._look, frame, failed):
                if not frame.linked:
                    came = self._measured(start, stop, frame).size
                break
            failure.suspect_from = max(failure.start_out, failure.out - came)
            failure.why_suspect = BEFORE_DAMAGE

    def _extent(self, frame: _LzFrame, effort: Effort | None = None) -> tuple[int | None, int, int]:
        """Walk the blocks; return where the frame ends (None: it does not), their number, where the last one begins."""
        at = last = frame.body
        count = 0
        for start, stop in _blocks_at(self._look, frame, at):
            at, last = stop, start
            count += 1
            if effort is not None:
                effort.spent += 1
        whole = self._look.number(at, 4) == 0 and at + frame.trailer <= self._look.end
        return (at + frame.trailer if whole else None), count, last if whole else at

    def _full(self, frame: _LzFrame, end: int | None, count: int, last: int) -> bool:
        """Say whether it is certain that all blocks but the last one are full."""
        if end is None or frame.content is None or frame.linked or not count:
            return False
        block = self._measured(last, end - frame.trailer, frame)
        return block.proved and frame.content - block.size == (count - 1) * frame.most

    # -- what is found -------------------------------------------------------------------------------------------

    def _measured(self, start: int, end: int, frame: _LzFrame) -> FoundBlock:
        """Decode the block at ``[start, end)``; or all of ``frame``, if its blocks are linked."""
        tag = _WHOLE if frame.linked else 2 * frame.code + (1 if frame.checksum else 0)
        found = FoundBlock(start, end, 0, tag)
        self._measure(found)
        return found

    def _blocks(
        self,
        frame: _LzFrame,
        base: int | None,
        behind: int = -1,
        end: int | None = None,
        why_suspect: str | None = None,
        follows: bool = False,
    ) -> Iterator[FoundBlock]:
        """Yield the blocks of ``frame`` behind a place; with ``base``, all are full, and the frame begins there."""
        for number, (at, stop) in enumerate(_blocks_at(self._look, frame, frame.body)):
            self._env.poll()
            if at > behind:
                found = self._measured(at, stop, frame)
                found.why_suspect, found.follows = why_suspect, follows
                if base is not None:
                    found.position = base + number * frame.most
                if end is not None and stop == end - frame.trailer:
                    found.reach = end
                follows = found.proved
                yield found

    def _chain(self, at: int, position: int | None, why_suspect: str | None = None) -> Iterator[FoundBlock]:
        """Yield what the frames hold that follow each other from ``at`` on."""
        follows = position is not None
        look = self._look
        while (at := skip(look, at)) < look.end and (frame := _frame_at(look, at)) is not None:
            end, count, last = self._extent(frame)
            self._search_from = max(self._search_from, at + 1)
            whole, size = True, 0
            if frame.linked:
                blocks: Iterator[FoundBlock] = iter([self._measured(at, look.end if end is None else end, frame)])
            else:
                full = position is not None and self._full(frame, end, count, last)
                blocks = self._blocks(
                    frame, position if full else None, end=end, why_suspect=why_suspect, follows=follows
                )
            for found in blocks:
                if not size and whole:  # the first one
                    found.position, found.follows, found.why_suspect = position, follows, why_suspect
                yield found
                whole = whole and found.proved
                size += found.size
            if position is not None:
                position = position + size if whole else None if frame.content is None else position + frame.content
            if end is None:
                return
            at, follows = end, whole
            self._search_from = max(self._search_from, at)

    def _is_frame(self, at: int, effort: Effort) -> bool | None:
        frame = _frame_at(self._look, at)
        if frame is None:
            return None
        end, _, last = self._extent(frame, effort)
        return last - at >= _LONG or (end is not None and self._follows(end))


def _blocks_at(look: Look, frame: _LzFrame, at: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks from ``at`` on: start and end; up to the end mark, or what cannot be a block."""
    while True:
        word = look.number(at, 4)
        if not word or (word & 0x7FFFFFFF) > frame.most:
            return
        end = at + 4 + (word & 0x7FFFFFFF) + frame.checksum
        if end > look.end:
            return
        yield at, end
        at = end


def _frame_at(look: Look, at: int) -> _LzFrame | None:
    """Return the frame at ``at``; None if there is none, or one that needs a dictionary."""
    head = look.get(at, 15)
    try:
        frame = parse_frame(head)
    except (MalformedError, UnsupportedError):
        return None
    return None if frame is None or (frame.content or 0) > LARGEST else _LzFrame(at, head[: frame.length])


def _made_up_frames(at: int, length: int, code: int) -> Iterator[_LzFrame]:
    """Yield what the frame at ``at`` may be, with a header of ``length`` bytes and blocks of size ``code``."""
    for checksum in (16, 0):
        for trailer in (4, 0):
            yield _LzFrame(at, (bytes(4) + bytes([0x20 | checksum | trailer, code << 4])).ljust(length, b"\0"))
