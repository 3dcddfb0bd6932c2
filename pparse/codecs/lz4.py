"""LZ4 frames, those of the legacy format too (``lz4 -l``).

The frame is cut into its blocks here (at most 4 MiB each) and the blocks are decoded by ``cramjam``, so output is
bounded. Checksums (xxHash-32) are computed by a compressor of the same library, which ends what it writes with one.
"""

from __future__ import annotations

from pparse.codecs.base import FrameDecompressor, drain, skips
from pparse.errors import Fault, MalformedError, UnsupportedError
from pparse.kernels.lz4 import HISTORY, salvage, short_xxh32, with_history
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import Buffer

MAGIC: Final = b"\x04\x22\x4d\x18"
_LEGACY: Final = b"\x02\x21\x4c\x18"
# A block of a legacy frame holds 8 MiB, only the last one less (LZ4 Frame Format Description 1.6.4, "Legacy frame").
_LEGACY_MOST: Final = 8 * MIB
_ROOM: Final = 64 * KIB


class Lz4Frame:
    """The header of a frame, of ``length`` bytes.

    ``code`` tells the size of its blocks (`most`), ``linked`` whether they copy from those before them, ``checksum``
    the bytes behind each. ``trailer``: bytes of the end mark and the checksum of all. ``content``: its size, if
    declared.
    """

    __slots__ = ("checksum", "code", "content", "length", "linked", "trailer")

    def __init__(self, head: bytes) -> None:
        flags = head[4]
        self.length = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
        self.linked = not flags & 0x20
        self.checksum = 4 if flags & 0x10 else 0
        self.trailer = 8 if flags & 4 else 4
        self.content = int.from_bytes(head[6:14], "little") if flags & 8 else None
        self.code = head[5] >> 4

    @property
    def most(self) -> int:
        """The size of a full block."""
        return 1 << (8 + 2 * self.code)


def parse_frame(head: bytes) -> Lz4Frame | None:
    """Return the frame that ``head`` begins; None if it is too short to say.

    Raises `MalformedError` for what is no frame, `UnsupportedError` for one that needs a dictionary.
    """
    if head[:4] != MAGIC[: len(head)]:
        raise MalformedError("not an lz4 frame", offset=0)
    if len(head) < 7:
        return None
    flags, block = head[4], head[5]
    if flags & 0xC2 != 0x40 or block & 0x8F or block >> 4 < 4:
        raise MalformedError("not a header of an lz4 frame", offset=4)
    frame = Lz4Frame(head)
    end = frame.length - 1
    if len(head) <= end:
        return None
    if short_xxh32(head[4:end]) >> 8 & 0xFF != head[end]:
        reason = "the checksum of the lz4 frame header does not match"
        raise MalformedError(reason, offset=end, fault=Fault.FRAME)
    if flags & 1:
        raise UnsupportedError("the lz4 frame needs a dictionary", offset=0)
    return frame


class _Xxh32:
    """xxHash-32 of what is fed: the checksum of a frame that is thrown away."""

    def __init__(self, lz4: Any) -> None:
        self._writer = lz4.Compressor(level=0, content_checksum=True)

    def update(self, data: Buffer) -> None:
        self._writer.compress(data)
        self._writer.flush()

    def digest(self) -> bytes:
        return bytes(self._writer.finish())[-4:]


class Lz4Stream(FrameDecompressor):
    """One frame."""

    library = "cramjam"

    def _start(self) -> None:
        super()._start()
        self._lz4 = self._library.lz4
        self._linked = False
        self._checksum = 0  # bytes behind a block
        self._most = 0  # bytes of a block
        self._hash: _Xxh32 | None = None
        self._history = b""

    def _produce(self) -> bytes:
        out = super()._produce()
        self._decoded += len(out)
        if self._content is not None and self._decoded > self._content:
            reason = f"the lz4 frame holds more than the {self._content} bytes it declares"
            raise MalformedError(reason, fault=Fault.SIZE)
        if self._hash is not None and out:
            self._hash.update(out)
        if self._linked and out:
            self._history = (self._history + out)[-HISTORY:] if len(out) < HISTORY else out[-HISTORY:]
        return out

    def _word(self, at: int) -> int:
        return int.from_bytes(self._input[at : at + 4], "little")

    def _header(self, head: bytes) -> bytes:
        if head[:4] == _LEGACY:
            self._most = _LEGACY_MOST
            self._reserve(3 * (_LEGACY_MOST if self._size is None else min(_LEGACY_MOST, self._size)))
            del self._input[:4]
            self._step = Lz4Stream._legacy_block
            return b""
        if _LEGACY.startswith(head):
            return b""
        frame = parse_frame(head)
        if frame is None:
            return b""
        most = frame.most if self._size is None else min(frame.most, self._size)
        # A block, what it becomes, and the same with its history in front.
        self._reserve(3 * most + 4 * HISTORY)
        self._most, self._linked, self._checksum = frame.most, frame.linked, frame.checksum
        self._content = frame.content
        self._hash = _Xxh32(self._lz4) if frame.trailer > 4 else None
        del self._input[: frame.length]
        self._step = Lz4Stream._block
        return b""

    def _block(self) -> bytes:
        if len(self._input) < 4:
            return b""
        word = self._word(0)
        size = word & 0x7FFFFFFF
        if not word:
            return self._end_mark()
        if size > self._most:
            reason = f"a block of {size} bytes, above the lz4 frame's {self._most}"
            raise MalformedError(reason, offset=self.consumed, fault=Fault.BLOCK_SIZE)
        trailer = self._checksum
        if word != size and not trailer:  # stored: what there is of it is delivered
            del self._input[:4]
            self._left = size
            self._step = Lz4Stream._stored
            return b""
        if len(self._input) - 4 - trailer < size:
            return self._part_of_block(size, word != size) if self._ended else b""
        data = bytes(self._input[4 : 4 + size])
        if trailer:
            self._check(data, bytes(self._input[4 + size : 8 + size]), "a block")
        out = data if word != size else self._decode(data)
        del self._input[: 4 + size + trailer]
        return out

    def _legacy_block(self) -> bytes:
        """Take a block of a legacy frame, which ends where its input does, or where another frame begins.

        There is no end mark, and no checksum. The kernel of Linux appends the size of the content.
        """
        head = bytes(self._input[:4])
        size = self._word(0)
        if len(head) < 4:
            if self._ended and not head:
                self._end()
            return b""
        if size > _LEGACY_MOST + _LEGACY_MOST // 255 + 16:  # than which no block of 8 MiB is longer
            if head in (MAGIC, _LEGACY) or skips(head) or (len(self._input) == 4 and self._ended):
                self._end()
            elif len(self._input) > 4 or self._ended:
                reason = f"a block of {size} bytes, above what 8 MiB can take in a legacy lz4 frame"
                raise MalformedError(reason, offset=self.consumed, fault=Fault.BLOCK_SIZE)
            return b""
        if self._decoded % _LEGACY_MOST:
            reason = "a block behind one of fewer than 8 MiB, which is the last one of a legacy lz4 frame"
            raise MalformedError(reason, offset=self.consumed, fault=Fault.BLOCK)
        if len(self._input) - 4 < size:
            if not self._ended:
                return b""
            self._step = Lz4Stream._cut_short
            return self._part_of_block(size, stored=False)
        out = self._decode(bytes(self._input[4 : 4 + size]))
        del self._input[: 4 + size]
        return out

    def _cut_short(self) -> bytes:
        return b""

    def _stored(self) -> bytes:
        out = self._take_part(_ROOM)
        if not self._left:
            self._step = Lz4Stream._block
        return out

    def _decode(self, block: bytes) -> bytes:
        most = min(self._most, 255 * len(block))  # a byte never yields more
        if self._size is not None:
            most = min(most, self._size - self._decoded + 1)
        history = self._history
        try:
            whole = with_history(block, history) if history else block
            target = bytearray(len(history) + most)
            count = self._lz4.decompress_block_into(whole, target)
            return bytes(memoryview(target)[len(history) : count])
        except (self._library.DecompressionError, ValueError):
            self._step = Lz4Stream._damaged
            return self._salvaged(block, cut=False) or self._damaged()

    def _salvaged(self, block: bytes, cut: bool) -> bytes:
        out = bytearray(self._history)
        salvage(block, out, self._most, cut)
        return bytes(memoryview(out)[len(self._history) :])

    def _damaged(self) -> bytes:
        raise MalformedError("a block of the lz4 frame is damaged", offset=self.consumed, fault=Fault.BLOCK)

    def _part_of_block(self, size: int, stored: bool) -> bytes:
        """Return what can be had of a block that the end of the input cuts."""
        data = bytes(self._input[4 : 4 + size])
        self._input.clear()
        return data if stored else self._salvaged(data, cut=True)

    def _end_mark(self) -> bytes:
        length = 4 if self._hash is None else 8
        if len(self._input) < length:
            return b""
        self._compare_size()
        if self._hash is not None and self._hash.digest() != self._input[4:8]:
            reason = "the checksum of the lz4 frame does not match"
            raise MalformedError(reason, offset=self.consumed + 4, fault=Fault.FRAME)
        del self._input[:length]
        self._end()
        return b""

    def _check(self, data: bytes, wanted: bytes, what: str) -> None:
        check = _Xxh32(self._lz4)
        check.update(data)
        if check.digest() != wanted:
            raise MalformedError(f"the checksum of {what} of the lz4 frame does not match", offset=self.consumed)

    def _drop(self) -> None:
        self._hash = None
        self._history = b""
        super()._drop()


def whole_lz4(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what one lz4 frame holds; see `pparse.codecs.decompress`. A skippable frame is not data."""
    if skips(bytes(memoryview(data)[:4])):
        raise MalformedError("a skippable lz4 frame where data was expected")
    return drain(Lz4Stream(codec), data, max_size)
