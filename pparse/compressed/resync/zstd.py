"""Where a damaged Zstandard stream can be entered again: at every frame.

The blocks of a frame tell their lengths, so its end is found without decoding it; what it holds is known if its header
says so, or if a table at the end of the file does (the *seekable* format: a skippable frame that lists all frames).
Within a frame nothing can be entered, as its blocks copy from what precedes them.

Where a frame's own structure is damaged the next one is looked for, by its magic. It is believed if the end of the
source, or another frame, follows it, or if it is longer than a frame could be that sits, stored, in another one (which
is cut into blocks of at most 128 KiB); else its content is in doubt.
"""

from __future__ import annotations

from pparse.codecs.zstd import MAGIC, parse_frame
from pparse.compressed.inflated import InflatedData
from pparse.compressed.resync.blocks import CONTRADICTED, CUT, LARGEST, Blocks, Effort, Look, windows
from pparse.compressed.resync.runs import Found, Runs
from pparse.errors import EndOfDataError, Fault, GapError, MalformedError, UnsupportedError
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.budget import MemoryBudget
    from pparse.compressed.resync.pieces import Failure, Piece
    from pparse.data.reader import Range
    from pparse.data.scratch import Scratch
    from pparse.limits import Limits

_SKIPPABLE: Final = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5F
_BLOCK: Final = 128 * KIB
# A damaged block may reach so far over the end of its frame.
_BACK: Final = _BLOCK + 16
# Longer than what is stored, uncut, in one block.
_LONG: Final = _BLOCK + 4 * KIB
_SUSPECTED: Final = 3 * _BLOCK
_TABLE: Final = b"\x5e" + _SKIPPABLE
_TABLE_END: Final = b"\xb1\xea\x92\x8f"
_STORED: Final = "it may be a frame that was stored in a damaged one"


def pieces(
    source: Range,
    failure: Failure,
    *,
    budget: MemoryBudget,
    limits: Limits,
    scratch: Scratch | None = None,
    poll: Callable[[], object] | None = None,
    **_: Any,
) -> Iterator[Piece]:
    """Yield what can be had behind ``failure``, ending a piece at each damage; sets ``failure.suspect_from``."""
    yield from _Walk(source, failure, budget, limits, scratch, poll).pieces()


def index_blocks(source: Range, *, budget: MemoryBudget, limits: Limits, scratch: Scratch | None = None) -> Blocks:
    """Return the frames in ``source`` for access at random. Nothing is decoded; damage is found by reading.

    Raises `MalformedError` where frames do not follow each other to the last byte, each declaring its size (itself, or
    in a table at the end).
    """
    look = Look(source)
    blocks = Blocks(source.data.name, _Opener(source, budget, limits, scratch), budget, joins=True)
    at = look.start
    for start, end, size in table_of(look) or _frames(look, at):
        if size is None:
            break
        blocks.add(start, end, size)
        at = end
    if _skip(look, at) < look.end:
        blocks.close()
        raise MalformedError("the zstd frames do not account for all of it", source=source.data.name, offset=at)
    return blocks


class _Opener:
    """Opens frames; see `Blocks`."""

    def __init__(self, source: Range, budget: MemoryBudget, limits: Limits, scratch: Scratch | None) -> None:
        self._data = source.data
        self._budget = budget
        self._limits = limits
        self._scratch = scratch

    def __call__(self, start: int, end: int, size: int | None, tag: int) -> InflatedData:
        return InflatedData(
            self._data.range(start, end),
            "zstd",
            size=size,
            budget=self._budget,
            limits=self._limits,
            scratch=self._scratch,
            concatenated=True,
            name=self._data.name,
        )


class _Walk:
    """One pass over what lies behind the failure."""

    def __init__(
        self,
        source: Range,
        failure: Failure,
        budget: MemoryBudget,
        limits: Limits,
        scratch: Scratch | None,
        poll: Callable[[], object] | None,
    ) -> None:
        self._look = Look(source)
        self._failure = failure
        self._poll = poll or (lambda: None)
        self._open = _Opener(source, budget, limits, scratch)
        self._runs = Runs(self._look.data.name, self._open, budget, limits, joins=True)
        self._search_from = 0

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces, in order."""
        yield from self._runs.pieces(self._behind(), self._failure.out, self._poll)

    def _behind(self) -> Iterator[Found]:
        look, failure = self._look, self._failure
        if failure.error.fault is Fault.TRAILING:
            pass
        elif failure.error.fault is Fault.FRAME:
            failure.suspect_from, failure.why_suspect = failure.start_out, CONTRADICTED
        elif failure.at > failure.start and not isinstance(failure.error, GapError | EndOfDataError):
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
        if frame is not None and _follows(look, frame[1]):
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

    def _by_table(self, table: Iterator[tuple[int, int, int]]) -> Iterator[Found]:
        position: int | None = None
        for start, end, size in table:
            if start == self._failure.start:
                position = self._failure.start_out
            if start > self._failure.start:
                found = Found(start, end, size)
                found.position = position
                yield found
            position = None if position is None else position + size

    def _chain(self, at: int, position: int | None, why_suspect: str | None = None) -> Iterator[Found]:
        """Yield the frames that follow each other from ``at`` on."""
        follows = position is not None
        for start, end, size in _frames(self._look, at):
            self._poll()
            found = Found(start, end, size or 0)
            found.position, found.follows, found.why_suspect = position, follows, why_suspect
            if size is None:
                self._measure(found)
            position = None if position is None or found.tag == CUT else position + found.size
            follows = found.tag != CUT
            yield found
            self._search_from = max(self._search_from, start + 1, end - _BACK)
        self._search_from = max(self._search_from, at)

    def _measure(self, found: Found) -> None:
        """Decode a frame that does not say what it holds."""
        data = self._open(found.start, found.end, None, 0)
        try:
            data.finish()
            found.size = data.produced
            found.proved = data.error is None
            found.tag = 0 if found.proved else CUT
        finally:
            data.close()

    def _search(self) -> Iterator[Found]:
        """Yield the frames that begin somewhere behind."""
        effort = Effort(self._search_from, base=4 * MIB, rate=1)
        for at in _magics(self._look, self._search_from):
            self._poll()
            if at < self._search_from or not effort.allows(at):
                continue
            frame = _frame_at(self._look, at, effort)
            if frame is None:
                continue
            start, end, _ = frame
            believed = _follows(self._look, end) or end - start >= _LONG
            yield from self._chain(at, None, None if believed else _STORED)


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
    own = look.data.range(look.start, look.end)
    entries = Look(own)  # what is read in between must not push its block out
    for place in range(count):
        entry = entries.get(first + place * width, 8)
        end = at + int.from_bytes(entry[:4], "little")
        size = int.from_bytes(entry[4:], "little")
        if size:
            yield at, end, size
        at = end


def _frames(look: Look, at: int) -> Iterator[tuple[int, int, int | None]]:
    """Yield the frames that follow each other from ``at`` on: start, end, and size if it is declared."""
    while (at := _skip(look, at)) < look.end:
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


def _skip(look: Look, at: int) -> int:
    """Return where what is no skippable frame begins, from ``at`` on."""
    while True:
        head = look.get(at, 8)
        if len(head) < 8 or head[0] & 0xF0 != 0x50 or head[1:4] != _SKIPPABLE:
            return at
        at += 8 + int.from_bytes(head[4:], "little")


def _follows(look: Look, at: int) -> bool:
    """Say whether at ``at`` the source ends, or a frame begins."""
    return at == look.end or _skip(look, at) > at or look.get(at, 4) == MAGIC


def _magics(look: Look, at: int) -> Iterator[int]:
    latest = at - 1
    for base, data in windows(look, at, 3):
        place = data.find(MAGIC)
        while place >= 0:
            if base + place > latest:
                latest = base + place
                yield latest
            place = data.find(MAGIC, place + 1)
