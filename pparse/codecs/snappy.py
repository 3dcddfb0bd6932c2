"""Raw Snappy: one block, which begins with the size of what it holds. No framing, no checksum."""

from __future__ import annotations

from pparse.codecs.base import Decompressor, package, too_much
from pparse.errors import MalformedError, UnsupportedError
from pparse.kernels.snappy import HISTORY, run
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Buffer

_ROOM: Final = 64 * KIB
# An element of 3 bytes yields at most 64.
_RATIO: Final = 22


def whole_snappy(codec: str, data: Buffer, max_size: int) -> memoryview:
    """Return what a raw Snappy block holds; see `pparse.codecs.decompress`."""
    cramjam = package("cramjam")
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_size:
            raise too_much(codec, max_size)
        if size > _RATIO * memoryview(data).nbytes:
            raise MalformedError("the snappy stream declares more than it can hold", wanted=size)
        return memoryview(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise MalformedError(f"the snappy stream is damaged ({error})") from error


class SnappyStream(Decompressor):
    """The block decoded element by element; copies may reach back 64 KiB."""

    def _start(self) -> None:
        super()._start()
        self._declared = -1  # not seen yet
        self._made = 0
        self._literal = 0
        self._window = bytearray()

    def _produce(self) -> bytes:
        if self._declared < 0 and not self._read_size():
            return b""
        if self._made == self._declared:
            if self._literal:
                raise MalformedError("the snappy stream holds more than it declares", offset=self.consumed)
            self._end()
            return b""
        window = self._window
        if len(window) > HISTORY:
            del window[: len(window) - HISTORY]
        before = len(window)
        stop = before + min(_ROOM, self._declared - self._made)
        source = bytes(self._input[: 2 * _ROOM])
        at, self._literal, offset = run(source, 0, window, stop, self._literal)
        del self._input[:at]
        count = len(window) - before
        if count > self._declared - self._made:
            count = self._declared - self._made
            del window[before + count :]
            self._literal = 1  # too much: said after these bytes
        if offset and not count:
            raise self._bad_copy(offset)
        self._made += count
        return bytes(window[before : before + count])

    def _bad_copy(self, offset: int) -> Exception:
        if 0 < offset <= self._made:
            return UnsupportedError(
                f"a copy of the snappy stream reaches back {offset} bytes: only {HISTORY} are kept when it is decoded "
                "piece by piece",
                offset=self.consumed,
            )
        return MalformedError("a copy of the snappy stream reaches back beyond its start", offset=self.consumed)

    def _read_size(self) -> bool:
        for length in range(1, 6):
            if len(self._input) < length:
                return False
            if self._input[length - 1] < 0x80:
                break
        else:
            raise MalformedError("the size of the snappy stream is no varint32", offset=0)
        declared = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(self._input[:length]))
        if declared >> 32:
            raise MalformedError("the size of the snappy stream is no varint32", offset=0)
        self._reserve(4 * HISTORY + 4 * _ROOM)
        self._declared = declared
        del self._input[:length]
        return True

    def _drop(self) -> None:
        self._window = bytearray()
        super()._drop()
