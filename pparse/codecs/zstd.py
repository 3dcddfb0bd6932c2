"""Zstandard frames (RFC 8878).

The blocks of a frame are cut here and handed to the library one at a time: a block yields at most 128 KiB, so output
is bounded, an error costs its own block only, and the end of the frame is known to the byte. A window wider than the
output needs is narrowed in the frame header, which no checksum covers.
"""

from __future__ import annotations

from pparse.codecs.base import ZSTD, FrameDecompressor, drain, package, too_much, whole
from pparse.errors import MalformedError, UnsupportedError
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import Buffer

MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BLOCK: Final = 128 * KIB
_MAX_WINDOW: Final = 1 << 31
# Frames that may take more memory are decoded block by block: it grows with what comes, and nothing is there twice.
_AT_ONCE: Final = 2 * MIB
# Tables and buffers beside the window.
_STATE: Final = 4 * _BLOCK


class ZstdFrame:
    """The header of a frame: its ``length``, ``window``, ``content`` size (None if not declared), ``checksum``."""

    __slots__ = ("checksum", "content", "dictionary", "length", "single", "window")

    def __init__(self, head: bytes) -> None:
        flags = head[4]
        self.single = bool(flags & 0x20)
        self.checksum = bool(flags & 4)
        at = 5 if self.single else 6
        size = (0, 1, 2, 4)[flags & 3]
        self.dictionary = int.from_bytes(head[at : at + size], "little")
        at += size
        size = _content_bytes(flags)
        self.content = int.from_bytes(head[at : at + size], "little") + (256 if size == 2 else 0) if size else None
        self.length = at + size
        if self.single:
            self.window = self.content or 0
        else:
            base = 1 << (10 + (head[5] >> 3))
            self.window = base + base // 8 * (head[5] & 7)


def _content_bytes(flags: int) -> int:
    return (1 if flags & 0x20 else 0, 2, 4, 8)[flags >> 6]


def parse_frame(head: bytes) -> ZstdFrame | None:
    """Return the frame that ``head`` begins; None if it is too short to say.

    Raises `MalformedError` for what is no frame, `UnsupportedError` for one that needs a dictionary.
    """
    if head[:4] != MAGIC[: len(head)]:
        raise MalformedError("not a zstd frame", offset=0)
    if len(head) < 5:
        return None
    flags = head[4]
    if flags & 8:
        raise MalformedError("the zstd frame header has a reserved bit set", offset=4)
    if len(head) < 5 + (not flags & 0x20) + (0, 1, 2, 4)[flags & 3] + _content_bytes(flags):
        return None
    frame = ZstdFrame(head)
    if frame.dictionary:
        raise UnsupportedError(f"the zstd frame needs the dictionary {frame.dictionary}", offset=0)
    return frame


def _narrow(window: int, known: int) -> int:
    """Return the binary logarithm of the least window that holds ``known`` bytes and any block."""
    return max(17, (max(known, 1) - 1).bit_length()) if window > known else 64


def _decoder(zstd: Any) -> Any:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _MAX_WINDOW.bit_length() - 1})


def whole_zstd(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what exactly one zstd frame holds; see `pparse.codecs.decompress`. A skippable frame is not data."""
    zstd = package(ZSTD)
    view = memoryview(data)
    frame = parse_frame(bytes(view[:18]))
    if frame is None:
        raise MalformedError("the zstd stream ends early", got=len(view))
    most = len(view) * (_BLOCK // 4)  # a block that yields anything has at least four bytes
    needed = frame.content
    if needed is None:
        needed = max(frame.window, min(max_size, most))
    elif needed > max_size:
        raise too_much(codec, max_size)
    elif needed > most:
        raise MalformedError("the zstd frame declares more than it can hold", wanted=needed)
    if needed > _AT_ONCE:
        return drain(ZstdStream(codec, size=min(max_size, most) + 1), view, max_size)
    return whole(codec, _decoder(zstd), view, max_size, (zstd.ZstdError,))


class ZstdStream(FrameDecompressor):
    """One frame."""

    library = ZSTD

    def _start(self) -> None:
        super()._start()
        self._stream: Any = None
        self._checksum = False
        self._last = False  # the block in progress is the last one

    def _produce(self) -> bytes:
        try:
            return super()._produce()
        except self._library.ZstdError as error:
            raise MalformedError(f"the zstd stream is damaged ({error})", offset=self.consumed) from error

    def _give(self, count: int) -> bytes:
        """Hand the next ``count`` bytes of the input to the library; return what comes."""
        data = bytes(self._input[:count])
        out: bytes = self._stream.decompress(data)
        del self._input[:count]
        self._decoded += len(out)
        return out

    def _header(self, head: bytes) -> bytes:
        frame = parse_frame(head)
        if frame is None:
            return b""
        window = frame.window
        known = [size for size in (frame.content, self._size) if size is not None]
        if known and not frame.single and window > 1 << (log := _narrow(window, min(known))):
            self._input[5] = (log - 10) << 3
            window = 1 << log
        if window > _MAX_WINDOW:
            raise UnsupportedError(f"the zstd frame needs a window of {window} bytes, above 2 GiB", offset=0)
        self._reserve(min([window, *known]) + _STATE)
        self._checksum = frame.checksum
        self._content = frame.content
        self._stream = _decoder(self._library)
        self._step = ZstdStream._block
        return self._give(frame.length)

    def _block(self) -> bytes:
        if len(self._input) < 3:
            return b""
        header = int.from_bytes(self._input[:3], "little")
        kind, size = header >> 1 & 3, header >> 3
        if kind == 3 or (kind != 1 and size > _BLOCK):
            raise MalformedError("not a zstd block", offset=self.consumed)
        if kind == 0:  # what there is of a raw block is delivered
            self._left = size
            self._step = ZstdStream._raw
            count = 3
        else:
            count = 3 + (1 if kind == 1 else size)
            if len(self._input) < count:
                return b""
        self._last = bool(header & 1)
        out = self._give(count)
        if kind or not size:
            self._next_block()
        return out

    def _raw(self) -> bytes:
        count = min(self._left, len(self._input))
        self._left -= count
        out = self._give(count) if count else b""
        if not self._left:
            self._next_block()
        return out

    def _next_block(self) -> None:
        if not self._last:
            self._step = ZstdStream._block
        elif self._checksum:
            self._step = ZstdStream._trailer
        else:
            self._finish_frame()

    def _trailer(self) -> bytes:
        if len(self._input) >= 4:
            self._give(4)
            self._finish_frame()
        return b""

    def _finish_frame(self) -> None:
        # The library checks this itself, but not where an empty block is the last one.
        self._compare_size()
        self._end()

    def _drop(self) -> None:
        self._stream = None
        super()._drop()
