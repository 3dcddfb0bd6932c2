"""Where a damaged Zstandard stream can be entered again: at every frame.

The blocks of a frame tell their lengths, so its end is found without decoding it; what it holds is known if its header
says so, or if a table at the end of the file does (the *seekable* format: a skippable frame that lists all frames).
Within a frame nothing can be entered, as its blocks copy from what precedes them.

Where a frame's own structure is damaged the next one is looked for, by its magic. It is believed if the end of the
source, or another frame, follows it, or if it is longer than a frame could be that sits, stored, in another one (which
is cut into blocks of at most 128 KiB); else its content is in doubt.
"""

from __future__ import annotations

from pparse.codecs.base import SKIPPABLE
from pparse.codecs.zstd import MAGIC, parse_frame
from pparse.compressed.resync import CONTRADICTED, as_it_is, nowhere
from pparse.compressed.resync.blocks import CUT, LARGEST, FoundBlock, FrameWalk, Look, Opener, skip
from pparse.errors import Fault, MalformedError, UnsupportedError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.compressed.env import DecodeEnv
    from pparse.compressed.resync import Failure, Piece
    from pparse.compressed.resync.blocks import Effort
    from pparse.data.base import Range

_BLOCK: Final = 128 * KIB
# A damaged block may reach so far over the end of its frame.
_BACK: Final = _BLOCK + 16
# Longer than what is stored, uncut, in one block.
_LONG: Final = _BLOCK + 4 * KIB
_SUSPECTED: Final = 3 * _BLOCK
_TABLE: Final = b"\x5e" + SKIPPABLE
_TABLE_END: Final = b"\xb1\xea\x92\x8f"


def pieces(source: Range, failure: Failure, env: DecodeEnv, *, codec: str, size: int | None = None) -> Iterator[Piece]:
    """Yield what can be had behind ``failure``, ending a piece at each damage; sets ``failure.suspect_from``."""
    return _ZstdWalk(source, failure, env, Opener(source, env, "zstd", concatenated=True)).pieces()


judge_cut, probable_damage = as_it_is, nowhere


class _ZstdWalk(FrameWalk):
    """One pass over what lies behind the failure."""

    magic = MAGIC

    def _behind(self) -> Iterator[FoundBlock]:
        look, failure = self._look, self._failure
        if failure.error.fault is Fault.TRAILING:
            pass
        elif failure.error.fault is Fault.FRAME:
            failure.suspect_from, failure.why_suspect = failure.start_out, CONTRADICTED
        elif failure.at > failure.start and not failure.by_source:
            # A damaged header of a block makes a block of anything; not many times in a row.
            failure.suspect_from = max(failure.start_out, failure.out - _SUSPECTED)
            if failure.suspect_from >= failure.out:
                failure.suspect_from = None
        table = table_of(look)
        if table is not None:
            yield from self._by_table(table)
            return
        # The frame that failed. A block of it whose length is damaged leads anywhere, but hardly to another frame.
        start = failure.start
        self._search_from = max(start + 1, failure.at - _BACK)
        frame = _frame_at(look, start)
        if frame is not None and self._follows(frame[1]):
            yield from self._chain(frame[1], self._behind_frame(frame))
        yield from self._search()

    def _behind_frame(self, frame: tuple[int, int, int | None]) -> int | None:
        """Return where in the output the frame ends that failed, if that is known."""
        failure = self._failure
        start, _, size = frame
        before = failure.start_out
        if failure.error.fault is Fault.TRAILING or (size is not None and failure.out - size == before):
            return failure.out
        # A size that is damaged itself would have shown in the last block.
        return None if size is None or failure.at >= _last_block(self._look, start) else before + size

    def _by_table(self, table: Iterator[tuple[int, int, int]]) -> Iterator[FoundBlock]:
        position: int | None = None
        for start, end, size in table:
            if start == self._failure.start:
                position = self._failure.start_out
            if start > self._failure.start:
                found = FoundBlock(start, end, size)
                found.position = position
                yield found
            position = None if position is None else position + size

    def _chain(self, at: int, position: int | None, why_suspect: str | None = None) -> Iterator[FoundBlock]:
        """Yield the frames that follow each other from ``at`` on."""
        follows = position is not None
        for start, end, size in _frames(self._look, at):
            self._env.poll()
            found = FoundBlock(start, end, size or 0)
            found.position, found.follows, found.why_suspect = position, follows, why_suspect
            if size is None:
                self._measure(found)
            position = None if position is None or found.tag == CUT else position + found.size
            follows = found.tag != CUT
            yield found
            self._search_from = max(self._search_from, start + 1, end - _BACK)
        self._search_from = max(self._search_from, at)

    def _is_frame(self, at: int, effort: Effort) -> bool | None:
        frame = _frame_at(self._look, at, effort)
        return None if frame is None else self._follows(frame[1]) or frame[1] - at >= _LONG


def table_of(look: Look) -> Iterator[tuple[int, int, int]] | None:
    """Return the frames that a table at the end lists, as (start, end, size), if it accounts for the whole source.

    Empty frames, which hold nothing, are left out.
    """
    foot = look.get(look.end - 9, 9)
    if len(foot) < 9 or foot[5:] != _TABLE_END or foot[4] & 0x7C:
        return None
    count, width = int.from_bytes(foot[:4], "little"), 12 if foot[4] & 0x80 else 8
    first = look.end - 9 - count * width
    if first - 8 < look.start or look.get(first - 8, 8) != _TABLE + (look.end - first).to_bytes(4, "little"):
        return None
    at, total = look.start, 0
    for place in range(count):
        entry = look.get(first + place * width, 8)
        at += int.from_bytes(entry[:4], "little")
        total += int.from_bytes(entry[4:], "little")
    return _of_table(look, first, count, width) if at == first - 8 and total <= LARGEST else None


def _of_table(look: Look, first: int, count: int, width: int) -> Iterator[tuple[int, int, int]]:
    at = look.start
    entries = Look(look.data.range(look.start, look.end))  # what is read in between must not push its block out
    for place in range(count):
        entry = entries.get(first + place * width, 8)
        end = at + int.from_bytes(entry[:4], "little")
        size = int.from_bytes(entry[4:], "little")
        if size:
            yield at, end, size
        at = end


def _frames(look: Look, at: int) -> Iterator[tuple[int, int, int | None]]:
    """Yield the frames that follow each other from ``at`` on: start, end, and size if it is declared."""
    while (at := skip(look, at)) < look.end:
        frame = _frame_at(look, at)
        if frame is None:
            return
        yield frame
        at = frame[1]


def _frame_at(look: Look, at: int, effort: Effort | None = None) -> tuple[int, int, int | None] | None:
    """Return start, end and declared size of the frame at ``at``; None if none is there, or if it does not end."""
    try:
        frame = parse_frame(look.get(at, 18))
    except (MalformedError, UnsupportedError):
        return None
    if frame is None or (frame.content or 0) > LARGEST:
        return None
    end = at + frame.length
    bound = 0
    last = 0
    while not last:
        head = look.number(end, 3)
        if effort is not None:
            effort.spent += 1
        if head is None or (head >> 1 & 3) == 3:
            return None
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        if size > _BLOCK:
            return None
        bound += _BLOCK if kind == 2 else size
        end += 4 if kind == 1 else 3 + size
    end += 4 if frame.checksum else 0
    if end > look.end or (frame.content or 0) > bound:
        return None
    return at, end, frame.content


def _last_block(look: Look, at: int) -> int:
    """Return where the last block of the sound frame at ``at`` begins."""
    frame = parse_frame(look.get(at, 18))
    at += 0 if frame is None else frame.length
    while (head := look.number(at, 3)) is not None and not head & 1:
        at += 4 if head >> 1 & 3 == 1 else 3 + (head >> 3)
    return at
