"""Decoding a stream member by member, from a checkpoint on: `DecodeLoop`."""

from __future__ import annotations

from array import array
from contextlib import suppress
from copy import copy
from functools import partial

from pparse.codecs.decoding import decompressor
from pparse.codecs.output_cache import Checkpoint, Run, reread
from pparse.codecs.table import CODECS
from pparse.compressed.checkpoints import Checkpoints
from pparse.errors import DataChangedError, EndOfDataError, GapError, MalformedError, PparseError, UnsupportedError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.codecs.base import Decompressor
    from pparse.compressed.environment import DecodeEnv
    from pparse.data.reader import Range

# What is read of the source at once; what is handed to a decoder.
_INPUT: Final = 64 * KIB
_FIRST_INPUT: Final = 4 * KIB  # of a stream, which may be a short one among thousands
_SLICE: Final = 16 * KIB
_HEAD: Final = 6  # tells how a member begins
_PLACES: Final = 262_144


class Ending:
    """Where decoding came to an end: byte ``at`` of the source. ``error``: why there, if the stream does not say so.

    ``tail``: bytes follow.
    """

    __slots__ = ("at", "error", "tail")

    def __init__(self, at: int, error: PparseError | None = None, *, tail: bool = False) -> None:
        self.at = at
        self.error = error
        self.tail = tail


class _Input:
    """The compressed bytes, through a block that grows to 64 KiB."""

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


class DecodeLoop:
    """Decodes the stream in ``source``, and the members that follow if they are ``concatenated``. Not thread-safe.

    ``run`` is the decoder at work, ``checkpoints`` are where it can begin. ``member_start`` and ``member_out``: where
    the member begins that decoding came to last, in the source and in the output; ``places``: these two for every
    member, the first 262,144. ``entered`` makes the decoder where the source begins in the middle of a stream. Raises
    `UnsupportedError` for a codec that is not there.
    """

    def __init__(
        self,
        source: Range,
        codec: str,
        env: DecodeEnv,
        size: int | None,
        *,
        concatenated: bool,
        entered: Callable[..., Decompressor] | None,
    ) -> None:
        self._source = source
        self._env = env
        self._concatenated = concatenated
        self._entered = entered
        self._input = _Input(source)
        self.member_start, self.member_out = source.start, 0
        self.places = array("q", (source.start, 0))
        start = Checkpoint(0, source.start, 0)
        self.checkpoints = Checkpoints(start, env.budget)
        self.run = Run(start, self._decoder(codec, start, size))
        self._codec = CODECS[codec]

    def begin(self, point: Checkpoint, size: int | None) -> None:
        """Go on at ``point``; ``size``: of the whole output, if known."""
        self.run.drop()
        self.run = Run(point, self._decoder(self._codec.name, point, size))

    def _decoder(self, codec: str, point: Checkpoint, size: int | None) -> Decompressor:
        saved = point.decoder
        decoder = None if saved is None else saved.copy()
        if decoder is not None:
            return decoder
        # No references to self in here: that would be a cycle.
        again = partial(reread, self._source.data, point.start, self._source.end)
        if self._entered is not None and point.start == self._source.start:
            return self._entered(budget=self._env.budget, size=size, reread=again)
        return decompressor(
            codec,
            budget=self._env.budget,
            size=None if size is None else max(0, size - point.start_out),
            reread=again,
            scratch=self._env.scratch,
        )

    def decode(self, most: int, size: int | None) -> tuple[bytes, Ending | None]:
        """Decode up to ``most`` bytes; return them, and the end if it was seen.

        Where all ``size`` bytes are out it goes on to what says that this is the end: a checksum, or more of it.
        """
        run, pieces = self.run, list[bytes]()
        ending, room, begin = None, most, run.out
        while ending is None and run.decoder is not None and (room > 0 or self._is_full(run.out, size)):
            try:
                ending = self._step(run, run.decoder, max(1, room), size, pieces)
            except DataChangedError:
                raise
            except PparseError:
                if not pieces:
                    raise
                break  # comes again with the next call
            room = most - (run.out - begin)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), ending

    def _is_full(self, out: int, size: int | None) -> bool:
        return size is not None and size <= out <= self._env.limits.inflated_bytes

    def _step(self, run: Run, decoder: Decompressor, room: int, size: int | None, pieces: list[bytes]) -> Ending | None:
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
        return self._next_member(run, decoder, size) if decoder.eof else None

    def _next_input(self, run: Run, decoder: Decompressor) -> bytes:
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

    def _next_member(self, run: Run, decoder: Decompressor, size: int | None) -> Ending | None:
        """Go on with the member that follows; return the end if none does."""
        end = at = run.start + decoder.consumed
        head = b""
        with suppress(GapError):
            if self._concatenated and self._codec.zero_padding:  # zeros may follow a member
                while (head := self._input.peek(at, _INPUT)) and not head.strip(b"\0"):
                    at += len(head)
                at += len(head) - len(head.lstrip(b"\0"))
            head = self._input.head(at)
        if not (self._concatenated and head and self._codec.begins(head)):
            return Ending(end, tail=bool(head))
        point = Checkpoint(run.out, at, run.out)
        run.decoder = self._decoder(self._codec.name, point, size)
        run.start, run.start_out, run.at = at, run.out, at
        if at > self.member_start:
            self.member_start, self.member_out = at, run.out
            if len(self.places) < 2 * _PLACES:
                self.places.extend((at, run.out))
        self.checkpoints.add(point)
        return None

    def save(self) -> None:
        """Remember that decoding can begin about here, if the decoder can be copied and there is no such place near."""
        run = self.run
        if run.decoder is None or not self._codec.copies or not self.checkpoints.wants(run.out):
            return
        saved = run.decoder.copy()
        if saved is not None:
            self.checkpoints.add(Checkpoint(run.start_out + saved.total_out, run.start, run.start_out, saved))

    def drop_input(self) -> None:
        """Give back the memory of what was read of the source."""
        self._input.drop()

    def close(self) -> None:
        """Give back the memory."""
        self.run.drop()
        self.checkpoints.close()
        self._input.drop()
