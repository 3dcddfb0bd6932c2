"""Decoders of libraries that take input and return output, made lossless in front of damage.

A library that meets damage raises, and what it had produced in that call is gone. So it gets its input in small
slices, and when it raises, a second decoder goes the same way again (from a saved state where the library can copy
one, else from the start) and takes the last slice byte by byte: everything that precedes the damage comes out.
"""

from __future__ import annotations

from copy import copy

from pparse.codecs.base import Decompressor
from pparse.errors import Fault, LimitError, MalformedError, PparseError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

# Input handed to a library at once: what is taken again, byte by byte, after an error.
_SLICE: Final = 16 * KIB
# Output of one call. Fixed, not the caller's, so that what comes out before an error does not depend on who asks.
_ROOM: Final = 64 * KIB
_CAREFUL_ROOM: Final = 32
# Input that waits and output that is ready.
_BUFFERS: Final = 2 * _ROOM
# Input and output that may pass before the way back is shortened by a copy; input, before it is forgotten.
_WAY_BACK: Final = 256 * KIB


class Core:
    """A decoder of a library, in one shape: by default that of zlib, bz2 and lzma."""

    __slots__ = ("_stream", "hungry", "total_out")

    asks_early = False
    """Whether it may be hungry while it holds output back."""
    copies = False
    """Whether the library's decoder can be copied."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.hungry = True
        """Whether nothing comes without more input."""
        self.total_out = 0
        """Bytes that came, where unknown ones are counted (`take_unknown`)."""

    def feed(self, data: bytes, limit: int) -> bytes:
        """Take ``data`` (empty: go on with what was taken); return ``limit`` bytes or so, fewer if hungry then."""
        raise NotImplementedError

    @property
    def eof(self) -> bool:
        """Whether the stream is at its end, and all of it was returned."""
        return bool(self._stream.eof)

    @property
    def unused(self) -> bytes:
        """What was fed beyond the end."""
        return bytes(self._stream.unused_data)

    def copy(self) -> Core | None:
        """Return a second decoder in the same state, or None where the library cannot."""
        if not self.copies:
            return None
        twin = copy(self)
        twin._stream = self._stream.copy()
        return twin

    def take_unknown(self) -> list[tuple[int, int]]:
        """Return what is not known of the output since the last call; see `pparse.codecs.deflate_entry`."""
        return []


# What zlib says, and zstd of the checksum of a frame.
_SAID: Final = (
    ("incorrect data check", Fault.CHECKSUM),
    ("incorrect length check", Fault.LENGTH),
    ("too far back", Fault.TOO_FAR),
    ("doesn't match", Fault.FRAME),
    ("checksum", Fault.FRAME),
)

_WRONG_LENGTH: Final = "ends with a wrong length, and a checksum that agrees"


def fault_of(said: str) -> Fault | None:
    """Return what kind of error a library means by its words, which are all that it gives."""
    return next((fault for words, fault in _SAID if words in said), None)


class LibraryDecompressor(Decompressor):
    """A decompressor around a library's decoder; see the head of the file for what it does about errors.

    ``reread`` gives compressed bytes once more; without it, the way back is remembered for the first 256 KiB only
    (any length with zlib, whose states can be copied).

    A codec adds `_look`, `_make` and the ``errors`` that its library raises.
    """

    errors: tuple[type[Exception], ...] = ()
    _plan: tuple[int, bytes] | None = None  # what `_look` said
    _base: Core | None = None  # where the way back ends: a copy, or (None) the start of the stream
    _base_in = _base_out = 0

    def _look(self, head: bytes) -> tuple[int, bytes] | None:
        """Return the memory that the decoder of a stream needs that begins with ``head``, and a new beginning for it.

        (A window that is larger than the output is narrowed there.) None if ``head`` is too short to say.
        """
        raise NotImplementedError

    def _make(self) -> Core:
        """Return a decoder that stands at the start of the stream; it may use ``window`` bytes."""
        raise NotImplementedError

    def _start(self) -> None:
        super()._start()
        self._core: Core | None = None
        self._core_in = 0  # bytes of the stream given to the core
        self._core_out = 0  # bytes that it returned, those of a second time not counted
        self._failed = ""  # what it complained about; it is of no use then
        self._last = 0  # bytes given to it last
        self._careful_end = -1  # as far as here it gets single bytes, and little room
        self._skip = 0  # bytes that come a second time
        self._log: list[bytes] | None = [] if self._reread is None else None  # what the core got since, if remembered

    def _produce(self) -> bytes:
        core = self._rescue() if self._failed else self._core or self._begin()
        while core is not None:
            data = b""
            last = False
            if core.hungry:
                data = self._next_slice(core)
                last = not data
                if last and not (self._ended and core.asks_early):
                    return b""
            limit = _CAREFUL_ROOM if self._core_in <= self._careful_end else _ROOM
            try:
                out = core.feed(data, limit)
            except self.errors as error:
                self._failed = str(error) or "no reason given"
                core = self._rescue()
                continue
            if self._skip:
                again = min(self._skip, len(out))
                self._skip -= again
                out = out[again:]
            self._core_out += len(out)
            if core.eof:
                self._end(core.unused)
                return out
            if out or last:
                return out
        return b""

    def _begin(self) -> Core | None:
        plan = self._plan or self._look(bytes(self._input[: 2 * KIB]))
        if plan is None:
            return None
        memory, head = plan
        self._reserve(memory + _BUFFERS + (_WAY_BACK if self._reread is None else 0))
        if self._base is not None:
            self._core = self._base.copy()
        else:
            self._input[: len(head)] = head
            self._plan = plan
            self._core = self._make()
        return self._core

    def _next_slice(self, core: Core) -> bytes:
        self._remember_way(core)
        count = 1 if self._core_in < self._careful_end else _SLICE
        data = bytes(self._input[:count])
        del self._input[:count]
        if data:
            self._last = len(data)
            self._core_in += len(data)
            if self._log is not None:
                self._log.append(data)
        return data

    def _remember_way(self, core: Core) -> None:
        passed = self._core_in - self._base_in
        if passed + self._core_out - self._base_out < _WAY_BACK or self._skip:
            return
        base = core.copy()
        if base is not None:
            self._base, self._base_in, self._base_out = base, self._core_in, self._core_out
            self._log = [] if self._reread is None else None
        elif passed >= _WAY_BACK:
            self._log = None

    def _rescue(self) -> Core:
        """After a failure, return a core that stands before the last slice. Raises what is final.

        Errors of ``reread`` pass through; the next call tries again.
        """
        fault = fault_of(self._failed)
        said = _WRONG_LENGTH if fault is Fault.LENGTH else f"is damaged ({self._failed})"
        final: PparseError = MalformedError(f"the {self.codec} stream {said}", offset=self._core_in, fault=fault)
        grown = False
        if "emory usage limit" in self._failed:  # a later block asks for more than the first did
            try:
                self._reserve(2 * self.window)
                grown = True
            except LimitError as limit:
                final = limit
        core = None
        if grown or self._core_in > self._careful_end:
            core = self._way_again(self._core_in - self._last)
        self._failed = ""
        if core is None:
            self._error = copy(final)  # there is no repeating the call
            self._drop()
            raise final
        if not grown:
            self._careful_end = self._core_in
        self._core_in -= self._last
        self._core = core
        return core

    def _way_again(self, end: int) -> Core | None:
        """Return a core that has taken the stream as far as ``end``, and put back into the input what follows.

        Sets how much of its output is to be skipped. None if there is no way back.
        """
        if self._plan is None or (self._log is None and self._reread is None):
            return None
        core = self._base.copy() if self._base is not None else self._make()
        came = 0
        last = b""
        for data in self._inputs(end):
            if not data or core is None:
                return None
            try:
                if last:
                    came += len(core.feed(last, _ROOM))
                    while not core.hungry and not core.eof:
                        came += len(core.feed(b"", _ROOM))
            except self.errors:
                return None  # it went through this before: the source has changed
            last = data
        if self._log:
            self._log.pop()
        self._input[:0] = last
        self._skip = self._core_out - self._base_out - came
        return core

    def _inputs(self, end: int) -> Iterator[bytes]:
        """Yield what the core got since the base as far as ``end``, and then, in one piece, the last slice.

        An empty piece says that it cannot be had any more.
        """
        if self._log is not None:
            yield from self._log
            return
        at = self._base_in
        head = self._plan[1] if self._plan is not None else b""
        while self._reread is not None and at < end + self._last:
            count = min(_SLICE, end - at) if at < end else self._last
            data = self._reread(at, count)
            if len(data) < count:
                yield b""
                return
            yield head[at : at + count] + data[max(0, len(head) - at) :] if at < len(head) else data
            at += count

    def copy(self) -> Decompressor | None:
        """Return a checkpoint; see `Decompressor.copy`."""
        if self._base is None:
            return None
        other = copy(self)
        other._start()
        other._core_in = other._fed = self._base_in
        other._core_out = other.total_out = self._base_out
        return other

    def saved_core(self) -> Core | None:
        """Return the decoder of a checkpoint: what its ``total_out`` and ``consumed`` say holds for it."""
        return None if self._base is None else self._base.copy()

    def _drop(self) -> None:
        self._core = self._base = None
        self._log = None
        super()._drop()
