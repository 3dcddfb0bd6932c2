"""What a compressed stream holds, as Data: `InflatedData`."""

from __future__ import annotations

from array import array
from collections import namedtuple
from contextlib import suppress
from copy import copy
from functools import partial
from zlib import crc32

from pparse.codecs.base import decompressor
from pparse.codecs.table import codec_named
from pparse.compressed.env import DecodeEnv
from pparse.compressed.kept import Checkpoint, Checkpoints, DecoderRun, KeptOutput, OutputCache, reread
from pparse.data.base import Access, Data, Gap
from pparse.data.spliced import DerivedData
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
from pparse.limits import KIB, evictor
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final, Required, TypedDict, Unpack

    from pparse.codecs.base import Decompressor
    from pparse.data.base import IoStats, Range
    from pparse.data.scratch import Scratch
    from pparse.limits import Limits, MemoryBudget

    class Decoding(TypedDict, total=False):
        """What all decoded data may be told beside the stream: parameters of `DecodedData`."""

        budget: Required[MemoryBudget]
        limits: Limits | None
        scratch: Scratch | None
        poll: Callable[[], object] | None
        size: int | None
        name: str
        stats: IoStats | None
        checksum: tuple[str, int] | None
        bounded: bool


# -- What `InflatedData` and `ResumedData` have in common: `DecodedData` -----------------------------------------------


class DecodedData(DerivedData):
    """What the stream of ``codec`` in ``source`` holds: no better than its source, and proved with it.

    ``how``: what else decides which bytes come out, for the `identity`; None: what precedes the source does.
    """

    copies = False

    def __init__(
        self,
        source: Range,
        codec: str,
        how: tuple[object, ...] | None,
        *,
        budget: MemoryBudget,
        limits: Limits | None = None,
        scratch: Scratch | None = None,
        poll: Callable[[], object] | None = None,
        size: int | None = None,
        name: str = "<inflated>",
        stats: IoStats | None = None,
        checksum: tuple[str, int] | None = None,
        bounded: bool = False,
    ) -> None:
        super().__init__(name, size, stats)
        self._env = env = DecodeEnv(budget, limits, scratch, poll)
        self._decoding = None if how is None else (codec, size, bounded, env.limits.inflated_bytes, *how)
        self.codec = codec
        self._known = codec_named(codec)
        self.checksum, self._source = checksum, source
        self.sources = (source.data,)
        self._bounded = bounded
        self._lock = RLock()

    def pieces(self, start: int, end: int) -> tuple[tuple[Data, int, int], ...]:
        """Return all of the stream, as far as its end is known."""
        return ((self._source.data, self._source.start, self._taken),)

    def _made_of(self) -> tuple[tuple[Data, int, int], ...]:
        return ((self._source.data, self._source.start, self._source.end),)

    def _how(self) -> tuple[object, ...] | None:
        return self._decoding

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the data is closed", source=self.name)

    @property
    def is_suspect(self) -> bool:
        """Whether anything but bytes behind its end is wrong with the stream itself."""
        return False

    @property
    def _taken(self) -> int:
        """Where the stream ends in the source, as far as that is known."""
        return self._source.end

    def is_proved(self, start: int, end: int) -> bool:
        """Say whether a checksum of this, or of its source if nothing is wrong with this, confirmed the bytes."""
        return Data.is_proved(self, start, end) or (not self.is_suspect and super().is_proved(start, end))


# What is decoded at once.
_BLOCK: Final = 128 * KIB
# What is read of the source at once; what is handed to a decoder.
_INPUT: Final = 64 * KIB
_FIRST_INPUT: Final = 4 * KIB  # of a stream, which may be a short one among thousands
_SLICE: Final = 16 * KIB
_HEAD: Final = 6  # tells how a member begins
_PLACES: Final = 262_144


class Ending(namedtuple("Ending", "at error tail", defaults=(None, False))):
    """Where decoding came to an end: byte ``at`` of the source. ``error``: why there, if the stream does not say so.

    ``tail``: bytes follow.
    """

    __slots__ = ()


class _Input:
    """The compressed bytes, through a block that grows to 64 KiB.

    Unlike a `pparse.data.window.Window` it gives what the block still has, so that nothing is read twice, and raises in
    a gap, which tells why decoding ends there.
    """

    __slots__ = ("_ahead", "_at", "_block", "_source")

    def __init__(self, source: Range) -> None:
        self._source = source
        self._block = b""
        self._at = 0
        self._ahead = _FIRST_INPUT

    def peek(self, at: int, count: int) -> bytes:
        """Return up to ``count`` bytes of the source, fewer at the end of it or of a block."""
        if not self._at <= at < self._at + len(self._block):
            end = self._source.end
            self._block = self._source.data.pread(at, min(self._ahead, end - at)) if at < end else b""
            self._ahead = min(4 * self._ahead, _INPUT)
            self._at = at
        return self._block[at - self._at : at - self._at + count]

    def head(self, at: int) -> bytes:
        """Return how what is at ``at`` begins."""
        head = self.peek(at, _HEAD)
        if 0 < len(head) < _HEAD:  # the block ends here
            self.drop()
            head = self.peek(at, _HEAD)
        return head

    def drop(self) -> None:
        """Give the memory back."""
        self._block = b""


class InflatedData(DecodedData):
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
    reading came to it; with a ``size``, checksums are checked when the last byte is decoded. `verify` goes there.

    Reading raises `LimitError` for a window above the budget (``--budget``) and for output beyond the limit
    ``inflated_bytes``.
    """

    def __init__(
        self,
        source: Range,
        codec: str,
        *,
        concatenated: bool = False,
        tail_is_error: bool = True,
        entered: Callable[..., Decompressor] | None = None,
        **given: Unpack[Decoding],
    ) -> None:
        super().__init__(source, codec, ("inflated", concatenated) if entered is None else None, **given)
        self._crc = 0  # CRC-32 of what was produced so far
        self.consumed: int | None = None  # bytes of the source that the stream took; None until its end was seen
        self._tail_is_error = tail_is_error
        self._finished = False
        self._over = False  # there is more than the limit inflated_bytes
        self.produced = 0
        """How many bytes were decoded so far, from the start on."""
        self._redone = 0  # output produced a second time
        self._concatenated, self._entered = concatenated, entered
        self._input = _Input(source)
        self.member_start, self.member_out = source.start, 0
        """Where the member (stream, frame) begins that decoding came to last, in the source and in the output."""
        self.places = array("q", (source.start, 0))
        """The same for each member, the first 262,144: pairs of numbers."""
        start = Checkpoint(0, source.start, 0)
        self._checkpoints = Checkpoints(start, self._env.budget)
        self._run = DecoderRun(start, self._decoder(start))  # the decoder at work
        self._kept = KeptOutput(self._env)
        self._most = min(_BLOCK, self._kept.limit)  # decoded at once
        self.access = Access.CHECKPOINT if self._known.copies else Access.RESTART

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
            held = self._kept.read(offset, length)
            if held or (self._finished and offset >= self.produced):
                return held
            self._check_limit(offset)
            self._go_near(offset)
            block = self._advance(self._most)
            at = len(block) - (self._run.out - offset)
            if 0 <= at < len(block):  # even if it could not be kept
                return block[at : at + length]

    def keep(self, start: int, end: int) -> None:
        """Keep ``[start, end)`` at hand if it takes an eighth of the budget at most; the budget may drop it."""
        if not 0 < end - start <= self._env.budget.limit // 8:
            return
        with self._lock:
            kept, at = OutputCache(self._env.budget, end - start, start), start
            while at < end and (block := self._chunk(at, end - at)):
                kept.add(block)
                at += len(block)
            self._kept.aside = kept

    def available(self, offset: int, count: int) -> bool:
        """Say whether there are ``count`` bytes at ``offset``; without a known size, by decoding no more than those."""
        end = offset + max(0, count)
        with self._lock:
            self._check_open()
            while self.size is None and not self._finished and self.produced < end:
                self._go_on(end - self.produced)
            if self.size is None:
                return end <= self.produced
        return super().available(offset, count)

    @property
    def finished(self) -> bool:
        """Whether the end was seen, of the stream or of what can be had of it."""
        return self._finished

    @property
    def reached(self) -> int:
        """Where in the source decoding stands."""
        return self._run.at

    def verify(self) -> None:
        """Decode to the end, so that ``size``, ``error``, ``gaps`` and ``consumed`` are final. Raises `LimitError`."""
        while not self._finished:
            with self._lock:
                self._go_on(self._most)

    def _go_on(self, limit: int) -> None:
        """Decode up to ``limit`` bytes beyond what was ever produced, a block of it at a time."""
        self._check_open()
        self._check_limit(self.produced)
        self._go_near(self.produced)
        self._advance(min(self._most, self.produced - self._run.out + limit))

    def _check_limit(self, offset: int) -> None:
        limits = self._env.limits
        most = limits.inflated_bytes
        if self._over and offset >= most:
            limits.check("inflated_bytes", most + 1, f"what {self.name} holds")

    # -- going back ----------------------------------------------------------------------------------------------

    def _go_near(self, offset: int) -> None:
        """See to it that decoding goes on before ``offset``, and not further from it than need be."""
        run = self._run
        point = self._checkpoints.nearest(offset)
        if run.decoder is not None and run.out <= offset:
            if point.out <= run.out or self._kept.is_all:
                return
        elif run.out and self.access is Access.RESTART:
            skipped = offset - point.out
            if self._kept.prepare_restart(self.codec, self.size, skipped, self._redone, self.produced):
                point = self._checkpoints.start
        self._run.drop()
        self._run = DecoderRun(point, self._decoder(point))
        self._kept.begin(self._run.out)

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
            block, ending = self._decode(min(limit, self._env.limits.inflated_bytes - run.out + 1))
            self._count(run, block)
            if ending is not None:
                self._end(run, ending)
            return self._keep(run, block)
        except BaseException as error:
            if not isinstance(error, PparseError):
                run.drop()  # somewhere in the middle
            raise
        finally:
            if run.decoder is not None and self._kept.spool is None:
                run.decoder.park(evictor(run, DecoderRun.drop))

    def _count(self, run: DecoderRun, block: bytes) -> None:
        """Count output, and add to the checksum what was never produced before."""
        fresh = min(len(block), max(0, run.out - self.produced))
        if fresh and self._finished:
            raise self._changed()
        self.produced += fresh
        self._redone += len(block) - fresh
        if fresh and self.checksum is not None:
            self._crc = crc32(block[-fresh:] if fresh < len(block) else block, self._crc)

    def _keep(self, run: DecoderRun, block: bytes) -> bytes:
        most = self._env.limits.inflated_bytes
        if run.out > most:  # by one byte: only so it is known that there is more
            self._over = True
            run.out = self.produced = most
            block = block[:-1]
            run.drop()
        if block:
            try:
                self._kept.add(block, run.out - len(block))
            except PparseError:
                run.drop()
                raise
            self._save()
        return block

    # -- from member to member -------------------------------------------------------------------------------------

    def _decoder(self, point: Checkpoint) -> Decompressor:
        """Return the decoder that goes on at ``point``. Raises `UnsupportedError` for a codec that is not there."""
        saved = point.decoder
        decoder = None if saved is None else saved.copy()
        if decoder is not None:
            return decoder
        # No references to self in here: that would be a cycle.
        again = partial(reread, self._source.data, point.start, self._source.end)
        if self._entered is not None and point.start == self._source.start:
            return self._entered(budget=self._env.budget, size=self.size, reread=again)
        return decompressor(
            self.codec,
            budget=self._env.budget,
            size=None if self.size is None else max(0, self.size - point.start_out),
            reread=again,
            scratch=self._env.scratch,
        )

    def _decode(self, most: int) -> tuple[bytes, Ending | None]:
        """Decode up to ``most`` bytes; return them, and the end if it was seen.

        Where all bytes are out, by `size`, it goes on to what says that this is the end: a checksum, or more of it.
        """
        run, pieces = self._run, list[bytes]()
        ending, room, begin = None, most, run.out
        while ending is None and run.decoder is not None and (room > 0 or self._is_full(run.out)):
            try:
                ending = self._step(run, run.decoder, max(1, room), pieces)
            except DataChangedError:
                raise
            except PparseError:
                if not pieces:
                    raise
                break  # comes again with the next call
            room = most - (run.out - begin)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), ending

    def _is_full(self, out: int) -> bool:
        return self.size is not None and self.size <= out <= self._env.limits.inflated_bytes

    def _step(self, run: DecoderRun, decoder: Decompressor, room: int, pieces: list[bytes]) -> Ending | None:
        """Add up to ``room`` bytes to ``pieces``."""
        try:
            data = self._next_input(run, decoder)
            piece = decoder.decompress(data, room)
        except EndOfDataError as error:
            return Ending(run.at, run.gap or EndOfDataError(error.reason, offset=run.at))
        except (MalformedError, UnsupportedError) as error:
            found = copy(error)
            found.offset = run.start + (decoder.consumed if error.offset is None else error.offset)
            return Ending(found.offset, found)
        if piece:
            pieces.append(piece)
            run.out += len(piece)
            if run.out > self._env.limits.inflated_bytes:
                return None
        return self._next_member(run, decoder) if decoder.eof else None

    def _next_input(self, run: DecoderRun, decoder: Decompressor) -> bytes:
        if not decoder.needs_input:
            return b""
        try:
            data = self._input.peek(run.at, _SLICE)
        except GapError as gap:
            run.gap, data = gap, b""
        if not data:
            decoder.finish()
        run.at += len(data)
        return data

    def _next_member(self, run: DecoderRun, decoder: Decompressor) -> Ending | None:
        """Go on with the member that follows; return the end if none does."""
        end = at = run.start + decoder.consumed
        head = b""
        with suppress(GapError):
            if self._concatenated and self._known.zero_padding:  # zeros may follow a member
                while (head := self._input.peek(at, _INPUT)) and not head.strip(b"\0"):
                    at += len(head)
                at += len(head) - len(head.lstrip(b"\0"))
            head = self._input.head(at)
        if not (self._concatenated and head and self._known.begins(head)):
            return Ending(end, tail=bool(head))
        point = Checkpoint(run.out, at, run.out)
        run.decoder = self._decoder(point)
        run.start, run.start_out, run.at = at, run.out, at
        if at > self.member_start:
            self.member_start, self.member_out = at, run.out
            if len(self.places) < 2 * _PLACES:
                self.places.extend((at, run.out))
        self._checkpoints.add(point)
        return None

    def _save(self) -> None:
        """Remember that decoding can begin about here, if the decoder can be copied and there is no such place near."""
        run = self._run
        if run.decoder is None or not self._known.copies or not self._checkpoints.wants(run.out):
            return
        saved = run.decoder.copy()
        if saved is not None:
            self._checkpoints.add(Checkpoint(run.start_out + saved.total_out, run.start, run.start_out, saved))

    def saved_decoders(self) -> list[tuple[int, Decompressor]]:
        """Return checkpoints in the member that decoding came to last, in order, with where that begins."""
        return [found for found in self._checkpoints.saved() if found[0] == self.member_start]

    def take_over(self, points: Checkpoints, produced: int) -> None:
        """Know what who decoded all that can be had of this, ``produced`` bytes, found on the way: where it can begin
        again."""
        self._checkpoints, self.produced = points, produced

    # -- the end -------------------------------------------------------------------------------------------------

    def _end(self, run: DecoderRun, ending: Ending) -> None:
        """Note that the stream ends, is damaged, or cut short, here."""
        error = ending.error
        if error is None:
            error = self._judge_end(run.out, ending)
        elif self._bounded and isinstance(error, EndOfDataError):
            error = MalformedError("the stream continues beyond its end", offset=error.offset, fault=Fault.OVERRUN)
        run.drop()
        self._input.drop()
        if self._finished:
            if run.out != self.produced:
                raise self._changed()
            return
        if error is not None:
            error.source = self._source.data.name
            self.error = error.with_traceback(None)
            if self.size is None:
                self.gaps = (Gap(run.out, None),)
            elif run.out < self.size:
                self.gaps = (Gap(run.out, self.size - run.out),)
        self._finished = True  # last: whoever finds it so, in whatever thread, finds the rest, too

    def _judge_end(self, out: int, ending: Ending) -> PparseError | None:
        """Hold the proper end of the stream, behind ``out`` bytes, against what is known of it."""
        error = None
        if self.size is not None and out < self.size:
            reason = "the stream ends early"
            error = MalformedError(reason, offset=ending.at, wanted=self.size, got=out, fault=Fault.SHORT)
        elif ending.tail and self._tail_is_error:
            error = MalformedError(f"bytes follow the {self.codec} stream", offset=ending.at, fault=Fault.TRAILING)
        if self._finished:
            return error
        self.consumed = ending.at - self._source.start
        if self.size is None:
            self.size = out
        if out != self.size or self.checksum is None:
            return error
        if self._crc == self.checksum[1]:
            self.vouch(0, out)
            return None  # what follows is none of it: its size and its checksum agree
        self.contradiction = f"its CRC-32 is {self._crc:08x} and should be {self.checksum[1]:08x}"
        self.condemn(0, out, self.contradiction)
        return MalformedError(self.contradiction, offset=ending.at, wanted=self.checksum[1], got=self._crc)

    def _changed(self) -> DataChangedError:
        return DataChangedError("the stream did not end where it did before", source=self._source.data.name)

    @property
    def _taken(self) -> int:
        return self._source.end if self.consumed is None else self._source.start + self.consumed

    def close(self) -> None:
        """Give back memory and scratch space; the source belongs to whoever opened it."""
        with self._lock:
            super().close()
            self._run.drop()
            self._checkpoints.close()
            self._input.drop()
            self._kept.close()
