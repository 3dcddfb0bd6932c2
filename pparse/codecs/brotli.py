"""Brotli (RFC 7932), and its large-window variant.

The large-window variant (first byte 0x11, windows of up to 1 GiB) is refused by the ``brotli`` library. ``cramjam``
reads it, but only whole and without saying how much it took or wrote, so such a stream is collected, decoded at once
into memory (or into a scratch file) of limited size, and served from there. It is rare: nothing but Riegeli files with
a ``window_log`` above 24 is known to use it.
"""

from __future__ import annotations

import sys

from pparse.codecs.base import checked, drain, package
from pparse.codecs.library import Core, LibraryDecompressor
from pparse.errors import LimitError, MalformedError
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from typing import Final

    from pparse.data.base import Buffer
    from pparse.data.scratch import Spool

LARGE: Final = 0x11
# Tables and buffers beside the window.
_STATE: Final = 128 * KIB
_ROOM: Final = 64 * KIB
# The first attempt at an output of unknown size; then eight times as much, and so on.
_FIRST_TRY: Final = 4 * MIB
# The library writes some KiB at a time, or nothing if there is no room for them.
_SLACK: Final = 64 * KIB


def window_log(head: bytes) -> int | None:
    """Return the binary logarithm of the window that the first two bytes declare; None if they are too few."""
    if not head:
        return None
    first = head[0]
    if first == LARGE:
        return head[1] & 63 if len(head) > 1 else None
    if not first & 1:
        return 16
    if first >> 1 & 7:
        return 17 + (first >> 1 & 7)
    return 8 + (first >> 4 & 7) if first >> 4 & 7 else 17


def narrowed(head: bytes, room: int) -> bytes:
    """Return the first two bytes of a stream with a window no wider than ``room`` bytes of output need, if possible.

    Both libraries fill their window before they hand anything out: a few bytes may hold a gigabyte.
    """
    log = window_log(head) or 0
    needed = (room + 15).bit_length()  # a window reaches back 16 bytes less than its size
    if needed >= log:
        return head
    if head[0] == LARGE:
        return bytes([LARGE, head[1] & 0xC0 | max(needed, 10)]) + head[2:]
    if log >= 18:  # these share one shape of header
        return bytes([head[0] & 0xF1 | max(needed, 18) - 17 << 1]) + head[1:]
    return head


def whole_brotli(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what a Brotli stream holds; see `pparse.codecs.decompress`."""
    if memoryview(data).nbytes and memoryview(data)[0] == LARGE:
        return drain(BrotliStream(codec, size=max_size + 1), data, max_size)
    brotli = package("brotli")
    stream = brotli.Decompressor()
    view = memoryview(data)
    try:
        stream.process(narrowed(bytes(view[:1]), max_size))
        out: bytes = stream.process(view[1:], output_buffer_limit=max_size + 1)
        return checked(codec, out, stream.is_finished(), 0, max_size)
    except brotli.error as error:
        raise MalformedError(f"the {codec} stream is damaged, or bytes follow it ({error})") from error


class _BrotliCore(Core):
    """The decoder of the ``brotli`` library; it returns up to 32 KiB more than it is asked for."""

    __slots__ = ()

    def feed(self, data: bytes, limit: int) -> bytes:
        out: bytes = self._stream.process(data, output_buffer_limit=limit)
        # It may hold back output although it could take more input: only an empty answer says that there is none.
        self.hungry = not out
        return out

    @property
    def eof(self) -> bool:
        return bool(self._stream.is_finished())

    @property
    def unused(self) -> bytes:
        return b""  # bytes behind the end are an error to it: they are found byte by byte


class BrotliStream(LibraryDecompressor):
    """Either kind of Brotli; which one, the first byte tells."""

    library = "brotli"

    def _start(self) -> None:
        super()._start()
        self.errors = (self._library.error,)
        self._large: _Large | None = None
        self._spool: Spool | None = None

    def _look(self, head: bytes) -> tuple[int, bytes] | None:
        if window_log(head) is None and not self._ended:
            return None
        head = head[:1] if self._size is None else narrowed(head[:1], self._size)
        return (1 << (window_log(head) or 10)) + _STATE, head

    def _make(self) -> Core:
        return _BrotliCore(self._library.Decompressor())

    def _produce(self) -> bytes:
        if self._large is None and (self._core is not None or self._input[:1] != bytes([LARGE])):
            return super()._produce()
        if self._large is None:  # collected in the input, and charged as it grows
            if len(self._input) > self.window:
                self._reserve(2 * len(self._input))
            if not self._ended:
                return b""
            self._large = self._decode_large()
        out = self._large.take(_ROOM)
        if not out:
            if self._large.error is not None:
                raise self._large.error
            self._end()
        return out

    def _decode_large(self) -> _Large:
        most = sys.maxsize if self._size is None else self._size + 1
        room = max(_FIRST_TRY, 2 * len(self._input))
        while True:
            room = min(room, most)
            output = self._memory(room)
            large = _Large(self.codec, narrowed(bytes(self._input[:2]), room) + self._input[2:], output)
            if large.size <= room or room == most:
                del self._input[: large.taken]
                return large
            large.close()
            room *= 8

    def _memory(self, room: int) -> mmap.mmap:
        """Return memory for ``room`` bytes of output: of the budget's, or of a scratch file. Raises `LimitError`."""
        window = 1 << (window_log(narrowed(bytes(self._input[:2]), room)) or 10)
        held = min(window, room) + _STATE + 3 * len(self._input)
        size = room + _SLACK
        try:
            self._reserve(held + size)
            return _anonymous(size)
        except LimitError:
            if self._scratch is None:
                raise
        self._reserve(held)
        if self._spool is not None:  # the one before was too small
            self._spool.close()
        self._spool = self._scratch.spool()
        return self._spool.memory(size)

    def _drop(self) -> None:
        if self._large is not None:
            self._large.close()
        if self._spool is not None:
            self._spool.close()
        super()._drop()


class _Large:
    """A large-window stream, decoded into ``output``: ``size`` bytes of it; ``taken`` of ``data``; ``error``, if any.

    Where ``output`` is too small, ``size`` is more than its length less `_SLACK`.
    """

    def __init__(self, codec: str, data: bytes, output: mmap.mmap) -> None:
        self._cramjam = package("cramjam")
        self._output = output
        self._at = 0
        self.taken = len(data)
        self.error: MalformedError | None = None
        self.size, words = self._decode(data)
        if words:
            self.error = MalformedError(f"the {codec} stream is damaged or cut short ({words})", offset=len(data))
        elif not self._decode(memoryview(data)[:-1])[1]:
            # The library does not say how much it took: of a whole stream the last byte is needed.
            self.taken = self._find_end(data)

    def _decode(self, data: Buffer) -> tuple[int, str]:
        """Return how many bytes came, and what the library had to complain about."""
        # A view of the memory, not a copy: its position says how far the decoder came before an error.
        target = self._cramjam.Buffer(self._output, copy=False)
        try:
            self._cramjam.brotli.decompress_into(data, target)
        except self._cramjam.DecompressionError as error:
            return int(target.tell()), str(error)
        return int(target.tell()), ""

    def _find_end(self, data: bytes) -> int:
        least, most = 2, len(data) - 1
        while least < most:
            middle = (least + most) // 2
            if self._decode(memoryview(data)[:middle])[1]:
                least = middle + 1
            else:
                most = middle
        return least

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes, fewer at the end."""
        out = self._output[self._at : min(self.size, self._at + count)]
        self._at += len(out)
        return out

    def close(self) -> None:
        """Let go of the memory."""
        self._output.close()
        self.size = 0


def _anonymous(size: int) -> mmap.mmap:
    """Return memory that costs nothing until it is written to. Raises `LimitError` if the system refuses."""
    import mmap

    try:
        if sys.platform == "win32":
            return mmap.mmap(-1, size)
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError) as error:
        raise LimitError(f"the system has no {size} bytes of memory ({error})", option="--scratch DIR") from error
