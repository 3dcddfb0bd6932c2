"""What a compressed stream holds, as Data: `InflatedData`."""

from __future__ import annotations

import threading
import weakref
from array import array
from bisect import bisect_right
from contextlib import suppress
from copy import copy
from functools import partial
from operator import attrgetter
from zlib import crc32

from pparse.codecs.decoding import decompressor
from pparse.codecs.output_cache import Checkpoint, OutputCache, Run, drop, reread
from pparse.codecs.table import CODECS
from pparse.data.base import Access, Data, Gap
from pparse.data.scratch import no_scratch
from pparse.errors import (
    ClosedError,
    DataChangedError,
    EndOfDataError,
    Fault,
    GapError,
    LimitError,
    MalformedError,
    PparseError,
    UnsupportedError,
)
from pparse.limits import KIB, MIB, Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.budget import MemoryBudget
    from pparse.codecs.base import Decompressor
    from pparse.data.base import IoStats
    from pparse.data.reader import Range
    from pparse.data.scratch import Scratch, Spool

# What is decoded, and read of the source, at once; what is handed to a decoder.
_BLOCK: Final = 128 * KIB
_INPUT: Final = 64 * KIB
_FIRST_INPUT: Final = 4 * KIB  # of a stream, which may be a short one among thousands
_SLICE: Final = 16 * KIB
_HEAD: Final = 6  # tells how a member begins
# The latest output that is kept (a sixteenth of a small budget).
_CACHE: Final = 4 * MIB
# Points where decoding can begin again: how many are kept, how far apart they are at first, and how many stay so near
# to each other where it was decoded last.
_POINTS: Final = 80
_SPACING: Final = 1 * MIB
# How often all may be decoded again by a codec that cannot go back, without a scratch file, for a reader that keeps
# what it comes back to, and so goes forwards but for a few times.
_MOST_AGAIN: Final = 8
_DENSE: Final = 8
_PLACES: Final = 262_144
# What contradicts a stream at its end: others ask for these reasons.


class InflatedData(Data):
    """What a compressed stream holds, readable at any offset with bounded memory. Thread-safe.

    It is decoded as far as it is read. A step back is served from the latest output (4 MiB are kept), else decoding
    begins again: at a saved state nearby (zlib family), at the start of a member (``concatenated``), or at the very
    start. A codec without saved states is spooled to ``scratch`` when it would decode half of the output a second
    time; without scratch all of it may be, and then that is a `LimitError` that names ``--scratch`` (but an output of
    known size of at most a quarter of the budget is kept in memory).

    ``size``, where it is known, is exact: more or less is damage. Else `size` is None until the end was seen.
    ``concatenated``: several streams (members, frames) one after the other are one. ``tail_is_error``: bytes behind
    the end are an `error`; what was decoded is readable all the same. ``bounded``: the source is all that the stream
    has, as somebody else knows; so one that goes on beyond it is not cut but damaged.

    ``checksum``, ``("crc32", value)``, is what all of it should give. It is compared when the last byte is decoded; if
    it does not agree, that is an `error`, and the `contradiction`.

    ``entered(budget=, size=, reread=)`` makes the decoder where the source begins in the middle of a stream.

    A damaged or truncated stream is readable as far as it goes; from there on it is a gap, and ``error`` says why:
    `EndOfDataError` where the source ends early, `MalformedError` for damage, `GapError` for a gap in the source,
    `UnsupportedError` for what cannot be read here; its ``offset`` is one of the source. The error is known once
    reading came to it; with a ``size``, checksums are checked when the last byte is decoded. `finish` goes there.

    Reading raises `LimitError` for a window above the budget (``--budget``) and for output beyond the limit
    ``inflated_bytes``.
    """

    def __init__(
        self,
        source: Range,
        codec: str,
        *,
        size: int | None = None,
        budget: MemoryBudget,
        limits: Limits | None = None,
        scratch: Scratch | None = None,
        concatenated: bool = False,
        name: str = "<inflated>",
        stats: IoStats | None = None,
        tail_is_error: bool = True,
        entered: Callable[..., Decompressor] | None = None,
        checksum: tuple[str, int] | None = None,
        bounded: bool = False,
    ) -> None:
        super().__init__(name, size, stats)
        self._entered = entered
        self._bounded = bounded
        self.checksum = checksum
        self._crc = 0  # CRC-32 of what was produced so far
        self.codec = codec
        self.error: PparseError | None = None
        self.consumed: int | None = None  # bytes of the source that the stream took; None until its end was seen
        self._source = source.data
        self._start = source.start
        self._end = source.end
        self._budget = budget
        self._limits = limits or Limits()
        self._scratch = scratch
        self._concatenated = concatenated
        self._tail_is_error = tail_is_error
        self._lock = threading.RLock()
        self._cache_limit = min(_CACHE, max(budget.limit // 16, _INPUT))
        self._most = min(_BLOCK, self._cache_limit)  # decoded at once
        self.member_start = source.start  # where the stream (member, frame) begins that reading came to last,
        self.member_out = 0  # and how much came out before it
        self.places = array("q", (source.start, 0))  # pairs of these two for every member, the first 262,144
        self._finished = False
        self._over = False  # there is more than the limit inflated_bytes
        self._furthest = 0  # output produced so far
        self._redone = 0  # output produced a second time
        self._block = b""  # the latest of the source
        self._block_at = 0
        self._ahead = _FIRST_INPUT
        self._checkpoints = [Checkpoint(0, source.start, 0)]
        self._spacing = _SPACING
        self._run = self._begin(self._checkpoints[0])  # raises UnsupportedError
        self._cache = OutputCache(budget, self._cache_limit, 0)
        self._whole: OutputCache | None = None
        self._aside: OutputCache | None = None  # what somebody wants to come back to
        self._spool: Spool | None = None
        self._codec = CODECS[codec]
        self.access = Access.CHECKPOINT if self._codec.copies else Access.RESTART

    # -- reading -------------------------------------------------------------------------------------------------

    def _pread(self, offset: int, length: int) -> bytes:
        pieces = list(self._chunks(offset, length))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        done = 0
        for chunk in self._chunks(offset, len(view)):
            view[done : done + len(chunk)] = chunk
            done += len(chunk)
        return done

    def _chunks(self, offset: int, length: int) -> Iterator[bytes]:
        first = offset
        while length:
            with self._lock:
                chunk = self._chunk(offset, length)
            if not chunk:
                if offset == first:
                    self._clip(offset, 1)  # raises if it is in a gap that was found just now
                return
            yield chunk
            offset += len(chunk)
            length -= len(chunk)

    def _chunk(self, offset: int, length: int) -> bytes:
        """Return at least one byte at ``offset``; none at the end and in a gap."""
        self._check_open()
        while True:
            held = self._held(offset, length)
            if held or (self._finished and offset >= self._furthest):
                return held
            self._check_limit(offset)
            self._go_near(offset)
            block = self._advance(self._most)
            at = len(block) - (self._run.out - offset)
            if 0 <= at < len(block):  # even if it could not be kept
                return block[at : at + length]

    def _held(self, offset: int, length: int) -> bytes:
        if self._spool is not None and offset < self._spool.size:
            return self._spool.pread(offset, min(length, _CACHE))
        for kept in (self._whole, self._aside):
            if kept is not None and (found := kept.read(offset, length)):
                return found
        return self._cache.read(offset, length)

    def keep(self, start: int, end: int) -> None:
        """Keep ``[start, end)`` at hand if it takes an eighth of the budget at most; the budget may drop it."""
        if not 0 < end - start <= self._budget.limit // 8:
            return
        with self._lock:
            kept, at = OutputCache(self._budget, end - start, start), start
            while at < end and (block := self._chunk(at, end - at)):
                kept.add(block)
                at += len(block)
            self._aside = kept

    def available(self, offset: int, count: int) -> bool:
        """Say whether there are ``count`` bytes at ``offset``; without a known size, by decoding no more than those."""
        end = offset + max(0, count)
        with self._lock:
            self._check_open()
            while self.size is None and not self._finished and self._furthest < end:
                self._go_on(end - self._furthest)
            if self.size is None:
                return end <= self._furthest
        return super().available(offset, count)

    @property
    def finished(self) -> bool:
        """Whether the end was seen, of the stream or of what can be had of it."""
        return self._finished

    @property
    def produced(self) -> int:
        """How many bytes were decoded so far, from the start on."""
        return self._furthest

    @property
    def reached(self) -> int:
        """Where in the source decoding stands."""
        return self._run.at

    def finish(self) -> None:
        """Decode to the end, so that ``size``, ``error``, ``gaps`` and ``consumed`` are final. Raises `LimitError`."""
        while not self._finished:
            with self._lock:
                self._go_on(self._most)

    def _go_on(self, limit: int) -> None:
        """Decode up to ``limit`` bytes beyond what was ever produced."""
        self._check_open()
        self._check_limit(self._furthest)
        self._go_near(self._furthest)
        while self._run.out < self._furthest and not self._finished:
            self._advance(min(self._most, self._furthest - self._run.out))
            if not self._finished:
                self._go_near(self._furthest)
        if not self._finished:
            self._advance(min(self._most, limit))

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the data is closed", source=self.name)

    def _check_limit(self, offset: int) -> None:
        most = self._limits.inflated_bytes
        if self._over and offset >= most:
            self._limits.check("inflated_bytes", most + 1, f"what {self.name} holds")

    # -- going back ----------------------------------------------------------------------------------------------

    def _go_near(self, offset: int) -> None:
        """See to it that decoding goes on before ``offset``, and not further from it than need be."""
        run = self._run
        if not all(point.alive for point in self._checkpoints):
            self._checkpoints = [point for point in self._checkpoints if point.alive]
        point = self._checkpoints[bisect_right(self._checkpoints, offset, key=attrgetter("out")) - 1]
        if run.decoder is not None and run.out <= offset:
            if point.out <= run.out or self._spool is not None or self._whole is not None:
                return
        elif run.out and self.access is Access.RESTART:
            point = self._check_restart(point, offset - point.out)
        run.drop()
        self._run = self._begin(point)
        self._cache = OutputCache(self._budget, self._cache_limit, self._run.out)

    def _check_restart(self, point: Checkpoint, skipped: int) -> Checkpoint:
        """Choose how a codec without saved states goes back, to where ``skipped`` bytes of output come first.

        Raises `LimitError` if that needs scratch.
        """
        if self._spool is not None:
            return self._checkpoints[0]  # it was interrupted; what is spooled already stays
        if self.size is not None and self.size <= self._budget.limit // 4:
            self._whole = OutputCache(self._budget, self.size, 0)
            return self._checkpoints[0]
        if self._scratch is None or self._scratch.folder is None:
            if self._redone < (1 if self._aside is None else _MOST_AGAIN) * self._furthest:
                return point
        elif self._redone + skipped <= self._furthest // 2:
            return point
        if self._scratch is None:
            raise no_scratch(f"going back in {self.codec} data again and again")
        self._spool = self._scratch.spool()
        return self._checkpoints[0]

    def _begin(self, point: Checkpoint) -> Run:
        """Return a run from ``point``. Raises `UnsupportedError` if the codec's library is missing."""
        saved = point.decoder
        decoder = None if saved is None else saved.copy()
        if decoder is None and self._entered is not None and point.start == self._start:
            again = partial(reread, self._source, point.start, self._end)
            decoder = self._entered(budget=self._budget, size=self.size, reread=again)
        if decoder is None:
            # No references to self in here: that would be a cycle.
            decoder = decompressor(
                self.codec,
                budget=self._budget,
                size=None if self.size is None else max(0, self.size - point.start_out),
                reread=partial(reread, self._source, point.start, self._end),
                scratch=self._scratch,
            )
        return Run(point, decoder)

    def _note_point(self, run: Run, decoder: Decompressor | None) -> None:
        """Remember that decoding can begin where ``decoder`` stands (or, if None, with the member of ``run``)."""
        out = run.start_out + (0 if decoder is None else decoder.total_out)
        place = bisect_right(self._checkpoints, out, key=attrgetter("out"))
        near = self._checkpoints[place - 1]
        if near.alive and out - near.out < _SPACING:
            return
        point = Checkpoint(out, run.start, run.start_out, decoder)
        try:
            point.hold(self._budget)
        except LimitError:
            return
        self._checkpoints.insert(place, point)
        if len(self._checkpoints) > _POINTS:
            self._thin_out(out)

    def _thin_out(self, here: int) -> None:
        """Drop points, but of those shortly before ``here`` none: a reader that goes back goes there most often."""
        dense = here - _DENSE * _SPACING
        while len(self._checkpoints) > _POINTS - _DENSE:
            kept = self._checkpoints[:1]
            for point in self._checkpoints[1:]:
                room = _SPACING if dense <= point.out <= here else self._spacing
                if point.alive and point.out - kept[-1].out >= room:
                    kept.append(point)
            if len(kept) > _POINTS - _DENSE:
                self._spacing *= 2
            self._checkpoints = kept

    # -- going forward -------------------------------------------------------------------------------------------

    def _advance(self, limit: int) -> bytes:
        """Decode the next block, of up to ``limit`` bytes, and keep it. An empty one: the end, or to begin again."""
        run = self._run
        decoder = run.decoder
        if decoder is None:
            return b""  # the budget took it just now, in another thread: whoever called goes near again
        try:
            decoder.resume()
        except LimitError:
            run.drop()  # it must not live uncharged
            raise
        run.decoder = decoder  # if it was dropped meanwhile: it is charged again
        try:
            return self._keep(run, self._decode(run, min(limit, self._limits.inflated_bytes - run.out + 1)))
        except BaseException as error:
            if not isinstance(error, PparseError):
                run.drop()  # somewhere in the middle
            raise
        finally:
            if run.decoder is not None and self._spool is None:
                run.decoder.park(partial(drop, weakref.ref(run)))

    def _decode(self, run: Run, most: int) -> bytes:
        pieces: list[bytes] = []
        room, begin = most, run.out
        # At the known end it goes on to what says that this is the end: a checksum, or more of it.
        while run.decoder is not None and (room > 0 or (self.size is not None and run.out >= self.size)):
            try:
                if self._step(run, run.decoder, max(1, room), pieces):
                    break
            except DataChangedError:
                raise
            except PparseError:
                if not pieces:
                    raise
                break  # comes again with the next call
            room = most - (run.out - begin)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _step(self, run: Run, decoder: Decompressor, room: int, pieces: list[bytes]) -> bool:
        """Add up to ``room`` bytes to ``pieces``. Return whether that was all."""
        try:
            data = self._next_input(run, decoder)
            piece = decoder.decompress(data, room)
        except (MalformedError, UnsupportedError, EndOfDataError) as error:
            self._stop(run, decoder, error)
            return True
        if piece:
            pieces.append(piece)
            fresh = self._count(run, len(piece))
            if fresh and self.checksum is not None:
                self._crc = crc32(piece[-fresh:] if fresh < len(piece) else piece, self._crc)
            if run.out > self._limits.inflated_bytes:
                return True
        if decoder.eof:
            self._end_member(run, decoder)
        return False

    def _next_input(self, run: Run, decoder: Decompressor) -> bytes:
        if not decoder.needs_input:
            return b""
        try:
            data = self._peek(run.at, _SLICE)
        except GapError as gap:
            run.gap, data = gap, b""
        if not data:
            decoder.finish()
        run.at += len(data)
        return data

    def _peek(self, at: int, count: int) -> bytes:
        """Return up to ``count`` bytes of the source, fewer at the end of it or of a block."""
        if not self._block_at <= at < self._block_at + len(self._block):
            self._block = self._source.pread(at, min(self._ahead, self._end - at)) if at < self._end else b""
            self._ahead = min(4 * self._ahead, _INPUT)
            self._block_at = at
        return self._block[at - self._block_at : at - self._block_at + count]

    def _count(self, run: Run, count: int) -> int:
        """Count output; return how much of it was never produced before."""
        run.out += count
        fresh = max(0, run.out - self._furthest)
        if fresh and self._finished:
            raise self._changed()
        self._furthest += fresh
        self._redone += count - fresh
        return fresh

    def _keep(self, run: Run, block: bytes) -> bytes:
        if run.out > self._limits.inflated_bytes:  # by one byte: only so it is known that there is more
            self._over = True
            run.out = self._furthest = self._limits.inflated_bytes
            block = block[:-1]
            run.drop()
        before = run.out - len(block)
        if not block:
            return block
        if self._spool is not None:
            if self._spool.size == before:
                self._append(self._spool, block)
            return block
        if self._whole is not None and (self._whole.end != before or (before and not self._whole.covers(0))):
            self._whole = None  # it had to go
        if self._whole is not None:
            self._whole.add(block)
        else:
            if self._cache.end != before:
                self._cache = OutputCache(self._budget, self._cache_limit, before)
            self._cache.add(block)
        if run.decoder is not None and self._codec.copies:
            self._save(run, run.decoder)
        return block

    def _append(self, spool: Spool, block: bytes) -> None:
        try:
            spool.append(block)
        except PparseError:
            self._spool = None
            self._run.drop()
            spool.close()
            raise

    def _save(self, run: Run, decoder: Decompressor) -> None:
        near = self._checkpoints[bisect_right(self._checkpoints, run.out, key=attrgetter("out")) - 1]
        if run.out - near.out < _SPACING and near.alive:
            return
        saved = decoder.copy()
        if saved is not None:
            self._note_point(run, saved)

    # -- the end -------------------------------------------------------------------------------------------------

    def _end_member(self, run: Run, decoder: Decompressor) -> None:
        """Go on with the member that follows, if one does."""
        end = run.start + decoder.consumed
        at = end
        head = b""
        with suppress(GapError):
            if self._concatenated and self._codec.zero_padding:  # zeros may follow a member
                while (head := self._peek(at, _INPUT)) and not head.strip(b"\0"):
                    at += len(head)
                at += len(head) - len(head.lstrip(b"\0"))
            head = self._peek(at, _HEAD)
            if 0 < len(head) < _HEAD:  # the block ends here
                self._block = b""
                head = self._peek(at, _HEAD)
        if self._concatenated and head and self._codec.begins(head):
            run.start, run.start_out, run.at = at, run.out, at
            if not self._finished and run.out >= self._furthest:
                self.member_start, self.member_out = at, run.out
                if len(self.places) < 2 * _PLACES:
                    self.places.extend((at, run.out))
            run.decoder = self._begin(Checkpoint(run.out, at, run.out)).decoder
            self._note_point(run, None)
            return
        error = None
        if self.size is not None and run.out < self.size:
            reason = "the stream ends early"
            error = MalformedError(reason, offset=end, wanted=self.size, got=run.out, fault=Fault.SHORT)
        elif head and self._tail_is_error:
            error = MalformedError(f"bytes follow the {self.codec} stream", offset=end, fault=Fault.TRAILING)
        if not self._finished:
            self.consumed = end - self._start
            if self.size is None:
                self.size = run.out
            if run.out == self.size and self.checksum is not None:
                if self._crc == self.checksum[1]:
                    self.vouch(0, run.out)
                    error = None  # what follows is none of it: its size and its checksum agree
                else:
                    reason = f"its CRC-32 is {self._crc:08x} and should be {self.checksum[1]:08x}"
                    error = MalformedError(reason, offset=end, wanted=self.checksum[1], got=self._crc)
                    self.contradiction = reason
                    self.condemn(0, run.out, reason)
        self._finish(run, error)

    def _stop(self, run: Run, decoder: Decompressor, error: PparseError) -> None:
        """Note that the stream is damaged, or cut short, here."""
        found: PparseError
        if isinstance(error, EndOfDataError):
            found = run.gap or EndOfDataError(error.reason, offset=run.at)
            if self._bounded and run.gap is None:
                found = MalformedError("the stream goes on beyond its end", offset=run.at, fault=Fault.OVERRUN)
        else:
            found = copy(error)
            found.offset = run.start + (decoder.consumed if error.offset is None else error.offset)
        self._finish(run, found)

    def _finish(self, run: Run, error: PparseError | None) -> None:
        run.drop()
        self._block = b""
        if self._finished:
            if run.out != self._furthest:
                raise self._changed()
            return
        if error is not None:
            error.source = self._source.name
            self.error = error.with_traceback(None)
            if self.size is None:
                self.gaps = (Gap(run.out, None),)
            elif run.out < self.size:
                self.gaps = (Gap(run.out, self.size - run.out),)
        self._finished = True  # last: whoever finds it so, in whatever thread, finds the rest, too

    def _changed(self) -> DataChangedError:
        return DataChangedError("the stream did not end where it did before", source=self._source.name)

    @property
    def flawed(self) -> bool:
        """Whether anything is known against this or its source."""
        return super().flawed or self._source.flawed

    def why_suspect(self, start: int, end: int) -> str | None:
        """Say whether the checksum contradicts, or the source is in doubt."""
        own = super().why_suspect(start, end)
        if own is not None or super().is_proved(start, end):
            return own
        return self._source.why_suspect(self._start, self._taken)

    def is_proved(self, start: int, end: int) -> bool:
        """Say whether a checksum of this, or of its source, confirmed the bytes."""
        return super().is_proved(start, end) or self._source.is_proved(self._start, self._taken)

    @property
    def _taken(self) -> int:
        """Where the stream ends in the source, as far as that is known."""
        return self._end if self.consumed is None else self._start + self.consumed

    def check_unchanged(self) -> None:
        """Check the source."""
        super().check_unchanged()
        self._source.check_unchanged()

    def close(self) -> None:
        """Give back memory and scratch space; the source belongs to whoever opened it."""
        with self._lock:
            super().close()
            self._run.drop()
            self._checkpoints = self._checkpoints[:1]
            self._whole = self._aside = None
            self._cache = OutputCache(self._budget, self._cache_limit, 0)
            self._block = b""
            if self._spool is not None:
                self._spool.close()
                self._spool = None
