"""What all streaming decoders have in common, and how a codec's library is imported."""

from __future__ import annotations

import io
import sys
from copy import copy

from pparse.codecs.table import codec_named
from pparse.errors import ClosedError, EndOfDataError, Fault, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, Final

    from pparse.data.base import Buffer
    from pparse.limits import Charge, MemoryBudget

    # Compressed bytes of the stream once more: called with (offset in the stream, length).
    Reread = Callable[[int, int], bytes]
    from pparse.data.scratch import Scratch

# What a checkpoint holds: the state of zlib with its window, as measured, and the objects around it.
CHECKPOINT: Final = 41 * KIB
_STEP: Final = 128 * KIB

ZSTD: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
"""The library for Zstandard: that of Python 3.14 and later, or its copy for those before."""
# A Python may have been built without these.
_STANDARD: Final = ("bz2", "lzma", "compression.zstd")


def package(name: str) -> Any:
    """Import the library ``name`` that a codec needs. Raises `UnsupportedError` naming it if that fails."""
    import importlib

    try:
        return importlib.import_module(name)
    except (ImportError, OSError, AttributeError) as error:  # not there, or broken
        standard = name in _STANDARD
        where = "this Python was built without it" if standard else str(error)
        raise UnsupportedError(f"this needs {name} ({where})", package=None if standard else name) from error


class TooMuchError(MalformedError):
    """A stream holds more bytes than it was allowed to: it is bad only if that is what it should hold."""


def checked(codec: str, out: bytes, eof: bool, left: int, max_size: int) -> bytes:
    """Return ``out`` if it is one whole stream of at most ``max_size`` bytes. Raises `MalformedError`."""
    if len(out) > max_size:
        raise too_much(codec, max_size)
    if not eof:
        raise MalformedError(f"the {codec} stream ends early", got=len(out))
    if left:
        raise MalformedError(f"{left} bytes follow the {codec} stream", fault=Fault.TRAILING)
    return out


def whole(codec: str, stream: Any, data: Buffer, max_size: int, errors: tuple[type[Exception], ...]) -> bytes:
    """Return what a library's ``stream``, which raises ``errors``, makes of the one stream in ``data``."""
    try:
        out: bytes = stream.decompress(data, max_size + 1)
    except errors as error:
        raise MalformedError(f"the {codec} stream is damaged ({error})") from error
    return checked(codec, out, stream.eof, len(stream.unused_data), max_size)


def drain(stream: Decompressor, data: Buffer, max_size: int) -> bytes:
    """Return all that ``stream`` makes of ``data``; see `pparse.codecs.decompress`."""
    view = memoryview(data)
    out = io.BytesIO()  # gives its bytes away without a copy
    at = 0
    try:
        while not stream.eof and out.tell() <= max_size:
            piece = view[at : at + _STEP] if stream.needs_input else b""
            at += len(piece)
            if not piece and stream.needs_input:
                stream.finish()
            out.write(stream.decompress(piece, min(_STEP, max_size - out.tell() + 1)))
    except EndOfDataError as error:
        raise MalformedError(error.reason, offset=error.offset, got=out.tell(), fault=error.fault) from error
    left = len(view) - at + len(stream.unused_data)
    return checked(stream.codec, out.getvalue(), stream.eof, left, max_size)


def too_much(codec: str, max_size: int) -> MalformedError:
    """Return the error that says so."""
    return TooMuchError(f"the {codec} stream holds more bytes than allowed", wanted=max_size)


class Decompressor:
    """Decodes one stream (member, frame) piece by piece, in the manner of `bz2.BZ2Decompressor`. Not thread-safe.

    Attributes: ``codec``; ``unused_data``, what was fed beyond the end of the stream; ``window``, the bytes charged
    to the budget (0 until the header of the stream was seen, and after its end); ``total_out``, the bytes delivered.

    Damage raises `MalformedError` (with the offset in the stream where it was noticed), but only after all that
    precedes it was delivered; from then on every call raises it. So it is with `UnsupportedError` for what cannot be
    read here. A `LimitError` of the budget leaves everything as it was: the call may be repeated.

    Parameters are those of `decompressor`. A subclass names its ``library``, which is imported when it is made.
    """

    library: ClassVar[str] = ""

    def __init__(
        self,
        codec: str,
        budget: MemoryBudget | None = None,
        size: int | None = None,
        reread: Reread | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        if size is not None and size < 0:
            raise ValueError(f"negative size: {size}")
        self.codec = codec
        self._budget, self._size, self._reread, self._scratch = budget, size, reread, scratch
        self._library: Any = package(self.library) if self.library else None
        self._start()

    def _start(self) -> None:
        """Set what changes while a stream is decoded to what it is at the beginning."""
        self.unused_data = b""
        self.window = 0
        self.total_out = 0
        self._charge: Charge | None = None
        self._error: PparseError | None = None
        self._input = bytearray()
        self._fed = 0
        self._ready = b""
        self._ready_at = 0
        self._over = False
        self._hungry = True
        self._ended = False
        self._closed = False

    # -- what a caller uses --------------------------------------------------------------------------------------

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        """Take ``data`` (may be empty) and return up to ``max_length`` bytes, as many as can be had without more.

        Raises `MalformedError`, `UnsupportedError` and `LimitError` as the class says; `EndOfDataError` after
        `finish`, when everything was delivered and the stream is not at its end; `ClosedError`.
        """
        if self._closed:
            raise ClosedError("the decompressor is closed")
        if max_length < 0:
            raise ValueError(f"negative length: {max_length}")
        if len(data):
            self._take(data)
        pieces: list[bytes] = []
        room = max_length if self._size is None else min(max_length, self._size - self.total_out + 1)
        while room > 0 and not self.eof:
            try:
                piece = self._more(room)
            except PparseError:
                if not pieces:
                    raise
                break  # raised again by the next call
            if not piece:
                break
            pieces.append(piece)
            room -= len(piece)
        out = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.total_out += len(out)
        return out if self._size is None or self.total_out <= self._size else self._cut(out)

    def _take(self, data: Buffer) -> None:
        if self._over:
            self.unused_data += bytes(data)
            return
        if self._ended:
            raise ValueError("more input after finish()")
        self._input += data
        self._fed += memoryview(data).nbytes
        self._hungry = False

    def _more(self, room: int) -> bytes:
        at = self._ready_at
        if at >= len(self._ready):
            if not self._refill():
                return b""
            at = 0
        piece = self._ready[at : at + room]
        self._ready_at = at + len(piece)
        return piece

    def _refill(self) -> bool:
        self._ready, self._ready_at = b"", 0
        if self._error is not None:
            raise copy(self._error)  # a new one: the old one would collect tracebacks, and hold what they hold
        try:
            self._ready = self._produce()
        except (MalformedError, UnsupportedError) as error:
            self._error = copy(error)
            self._drop()
            raise
        if self._ready:
            return True
        if not self._over:
            if self._ended:
                raise EndOfDataError(f"the {self.codec} stream is cut short", offset=self.consumed)
            self._hungry = True
        return False

    def _cut(self, out: bytes) -> bytes:
        size = self._size or 0
        reason = f"the {self.codec} stream holds more bytes than its size says"
        self._error = MalformedError(reason, offset=self.consumed, fault=Fault.SIZE)
        self._ready, self._over = b"", False
        out = out[: len(out) - (self.total_out - size)]
        self.total_out = size
        self._drop()
        if not out:
            raise copy(self._error)
        return out

    @property
    def eof(self) -> bool:
        """Whether the stream is at its end, and all of it was returned."""
        return self._over and self._ready_at >= len(self._ready)

    @property
    def needs_input(self) -> bool:
        """Whether `decompress` can return nothing more before it gets more data."""
        return self._hungry and not self._over and not self._ended and self._error is None

    @property
    def consumed(self) -> int:
        """How many bytes of the input were taken; at the end of the stream: its length."""
        return self._fed - len(self._input)

    def finish(self) -> None:
        """Say that the input ends here. What is still held back comes out of `decompress`; harmless when repeated."""
        self._ended = True

    def copy(self) -> Decompressor | None:
        """Return a checkpoint: a second decompressor that stands at a recent point of the stream.

        Its ``total_out`` and ``consumed`` say where: feed it what follows. None at the beginning, and where the
        codec's library cannot copy its states. The copy is not charged to the budget before it is used: whoever
        keeps it answers for its `CHECKPOINT` bytes.
        """
        return None

    def park(self, evict: Callable[[], None]) -> None:
        """Let the budget call ``evict`` if it needs the window's memory; ``evict`` must drop the decompressor."""
        try:
            self._recharge(evict, self.window)
        except LimitError:  # somebody was quicker
            evict()

    def resume(self) -> None:
        """End what `park` began. Raises `LimitError` if the memory was given away and is not to be had again."""
        self._recharge(None, self.window)

    def close(self) -> None:
        """Give back the window's memory; harmless when repeated."""
        self._closed = True
        self._ready = b""
        self._drop()

    # -- what a codec implements ---------------------------------------------------------------------------------

    def _produce(self) -> bytes:
        """Return the next bytes; none if more input is needed or the stream is at its end (`_end` was called)."""
        raise NotImplementedError

    def _end(self, unused: bytes = b"") -> None:
        """Note the end of the stream: ``unused``, and what was not taken of the input, lie beyond it."""
        self._over = True
        self.unused_data = unused + bytes(self._input)
        self._input = bytearray(self.unused_data)  # so that `consumed` is right
        self._drop()

    def _drop(self) -> None:
        """Let go of the library's decoder and of the memory charged for it."""
        self._reserve(0)

    def _reserve(self, window: int) -> None:
        """Charge ``window`` bytes in all. Raises `LimitError`, nothing being changed."""
        if self._charge is not None:
            self._charge.resize(window)
        elif self._budget is not None and window:
            self._recharge(None, window)
        self.window = window

    def _recharge(self, evict: Callable[[], None] | None, window: int) -> None:
        if self._budget is not None and window:
            if self._charge is not None:
                self._charge.release()
            self._charge = self._budget.charge(window, f"decoding {self.codec}", evict)


# -- What Zstandard and LZ4 have in common: frames read step by step, among them some that are to be skipped -----------

SKIPPABLE: Final = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5F


def skips(head: bytes) -> bool:
    """Say whether ``head`` begins, or may begin, a skippable frame."""
    return len(head) > 0 and head[0] & 0xF0 == 0x50 and SKIPPABLE.startswith(head[1:4])


class FrameDecompressor(Decompressor):
    """Decodes one frame; a skippable frame is an empty one.

    What a codec adds are steps. Each takes what it needs from the input, all or nothing, and names the next one.
    """

    def _start(self) -> None:
        super()._start()
        self._content: int | None = None  # declared size
        self._decoded = 0
        self._left = 0  # bytes that are still to come of what the step takes in parts
        self._step: Callable[[Any], bytes] = FrameDecompressor._first  # not bound: that would be a cycle

    def _produce(self) -> bytes:
        while not self._over:
            before = len(self._input), self._step
            out = self._step(self)
            if out:
                return out
            if (len(self._input), self._step) == before:
                break
        return b""

    def _first(self) -> bytes:
        head = bytes(self._input[:19])
        if not skips(head):
            return self._header(head)
        if len(head) >= 8:
            self._left = int.from_bytes(head[4:8], "little")
            del self._input[:8]
            self._step = FrameDecompressor._skippable
        return b""

    def _header(self, head: bytes) -> bytes:
        """Take the header of a frame that begins with ``head``."""
        raise NotImplementedError

    def _skippable(self) -> bytes:
        self._take_part()
        if not self._left:
            self._end()
        return b""

    def _take_part(self, most: int = sys.maxsize) -> bytes:
        """Take up to ``most`` bytes of what is still to come."""
        part = bytes(self._input[: min(self._left, most)])
        del self._input[: len(part)]
        self._left -= len(part)
        return part

    def _compare_size(self) -> None:
        """Hold what came out of the whole frame against what it declares. Raises `MalformedError`."""
        if self._content is not None and self._decoded != self._content:
            reason = f"the {self.codec} frame declares another size"
            raise MalformedError(reason, offset=self.consumed, wanted=self._content, got=self._decoded)


# -- Decode a compressed stream: one whole stream from memory, or piece by piece ---------------------------------------


def decompress(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what the one stream in ``data`` holds, as `decompressed` does."""
    return bytes(decompressed(codec, data, max_size))


def decompressed(codec: str, data: Buffer, max_size: int) -> bytes | memoryview:
    """Return what the one stream in ``data`` holds, in the memory of its library.

    Raises `MalformedError` if the stream is bad, ends early, yields more than ``max_size`` bytes, or if bytes follow
    it; `UnsupportedError` for a codec, or a variant of one, that cannot be read here. Not much more than ``max_size``
    bytes are ever allocated, whatever window the stream declares. zstd and lz4: exactly one frame, not a skippable one.
    """
    if max_size < 0:
        raise ValueError(f"negative size: {max_size}")
    decode: Callable[[str, Buffer, int], bytes | memoryview] = codec_named(codec).implementation("whole")
    return decode(codec, data, min(max_size, sys.maxsize >> 1))


def decompressor(
    codec: str,
    *,
    budget: MemoryBudget | None = None,
    size: int | None = None,
    reread: Reread | None = None,
    scratch: Scratch | None = None,
) -> Decompressor:
    """Return a streaming `Decompressor` for one stream (member, frame) of ``codec``.

    ``budget`` is charged for the decoder's window, as soon as the header of the stream says how wide it is.
    ``size``, where it is known, is the most that the stream may hold: more is damage, and a window wider than that is
    not made. ``reread(offset, length)`` returns bytes of the compressed stream once more: with it, what precedes
    damage is delivered to the last byte however far in it lies; without it, that is so with the zlib family, zstd,
    lz4 and snappy, and within the first 256 KiB of the others. ``scratch`` serves large-window Brotli, which can be
    decoded only whole, where that does not fit the budget. Raises `UnsupportedError` for an unknown codec, or one
    whose library is missing.
    """
    make: Callable[..., Decompressor] = codec_named(codec).implementation("stream")
    return make(codec, budget, size, reread, scratch)
