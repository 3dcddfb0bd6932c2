"""The codecs of the standard library: zlib, gzip, raw deflate, bz2, xz and lzma ("alone")."""

from __future__ import annotations

import struct
import zlib
from collections import namedtuple

from pparse.codecs.base import CHECKPOINT, checked, package, whole
from pparse.codecs.library import Core, LibraryDecompressor
from pparse.errors import MalformedError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.data.base import Buffer

WBITS: Final = {"zlib": 15, "gzip": 31, "deflate": -15}


def whole_zlib(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what a zlib, gzip or deflate stream holds; see `pparse.codecs.decompress`."""
    stream = zlib.decompressobj(WBITS[codec])
    try:  # as in `whole`: archives have many small streams, and a call is a tenth of the time
        out = stream.decompress(data, max_size + 1)
    except zlib.error as error:
        raise MalformedError(f"the {codec} stream is damaged ({error})") from error
    return checked(codec, out, stream.eof, len(stream.unused_data), max_size)


def whole_bz2(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what a bz2 stream holds; see `pparse.codecs.decompress`."""
    return whole(codec, package("bz2").BZ2Decompressor(), data, max_size, (OSError, ValueError))


def whole_lzma(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what an xz or lzma stream holds; see `pparse.codecs.decompress`."""
    lzma = package("lzma")
    form, read_head = _lzma_form(lzma, codec)
    view = memoryview(data)
    found = read_head(bytes(view[: 2 * KIB]), max_size)
    if found is not None:  # a dictionary larger than the output would be allocated for nothing
        data = b"".join((found[1], view[len(found[1]) :]))
    return whole(codec, lzma.LZMADecompressor(form), data, max_size, (lzma.LZMAError, MemoryError))


class _ZlibCore(Core):
    """zlib, gzip (one member, header and trailer checked by the library) and raw deflate."""

    __slots__ = ()

    copies = True

    def feed(self, data: bytes, limit: int) -> bytes:
        tail = self._stream.unconsumed_tail
        out: bytes = self._stream.decompress(tail + data if tail else data, limit)
        # With room left it had nothing more to give.
        self.hungry = len(out) < limit
        return out


class _StandardCore(Core):
    """`bz2.BZ2Decompressor` or `lzma.LZMADecompressor`."""

    __slots__ = ()

    asks_early = True

    def feed(self, data: bytes, limit: int) -> bytes:
        out: bytes = self._stream.decompress(data, limit)
        # The needs_input of bz2 does not know of output that is held back.
        self.hungry = bool(self._stream.needs_input) and len(out) < limit
        return out


class ZlibStream(LibraryDecompressor):
    """The decompressor of ``zlib``, ``gzip`` or ``deflate``."""

    errors = (zlib.error,)

    def _look(self, head: bytes) -> tuple[int, bytes] | None:
        return 2 * CHECKPOINT, b""

    def _make(self) -> Core:
        return _ZlibCore(zlib.decompressobj(WBITS[self.codec]))


class Bz2Stream(LibraryDecompressor):
    """The decompressor of ``bz2``; its memory follows from the block size in the header (100 to 900 kB)."""

    library = "bz2"
    errors = (OSError, ValueError, EOFError)

    def _look(self, head: bytes) -> tuple[int, bytes] | None:
        if len(head) < 4 and not self._ended:
            return None
        level = head[3] - 0x30 if head[:3] == b"BZh" and len(head) > 3 else 9
        return 400_000 * min(max(level, 1), 9) + 100_000, b""

    def _make(self) -> Core:
        return _StandardCore(self._library.BZ2Decompressor())


# What liblzma needs beside the dictionary, with room to spare.
_LZMA_STATE: Final = 256 * KIB
_LZMA2: Final = 0x21  # the name of the filter


class LzmaStream(LibraryDecompressor):
    """The decompressor of ``xz`` or ``lzma`` (the "alone" format); the header names the dictionary size."""

    library = "lzma"

    def _start(self) -> None:
        super()._start()
        self.errors = (self._library.LZMAError, ValueError, EOFError)
        self._form, self._read_head = _lzma_form(self._library, self.codec)

    def _look(self, head: bytes) -> tuple[int, bytes] | None:
        found = self._read_head(head, self._size)
        if found is None and not self._ended:
            return None
        dictionary, head = found or (0, b"")
        return dictionary + _LZMA_STATE, head

    def _make(self) -> Core:
        return _StandardCore(
            self._library.LZMADecompressor(self._form, self.window if self._budget is not None else None)
        )


def _lzma_form(lzma: Any, codec: str) -> tuple[int, Callable[[bytes, int | None], tuple[int, bytes] | None]]:
    return (lzma.FORMAT_XZ, _xz_dictionary) if codec == "xz" else (lzma.FORMAT_ALONE, _lzma_dictionary)


def _lzma_dictionary(head: bytes, size: int | None) -> tuple[int, bytes] | None:
    """Return the dictionary size of an lzma-alone header, and the header with one no larger than the output."""
    if len(head) < 13:
        return None
    dictionary, declared = struct.unpack_from("<IQ", head, 1)
    known = declared if declared < 1 << 62 else None
    if size is not None:
        known = size if known is None else min(size, known)
    if known is not None and known < dictionary:
        dictionary = max(known, 4 * KIB)
    return dictionary, head[:1] + struct.pack("<I", dictionary)


def _xz_dictionary(head: bytes, size: int | None) -> tuple[int, bytes] | None:
    """Return the dictionary size of the first block of an xz stream, and a head with one no larger than the output.

    What is no sound head is left to the library to refuse.
    """
    if len(head) < 13 and b"\xfd7zXZ\0".startswith(head[:6]):
        return None
    if len(head) < 13 or head[:6] != b"\xfd7zXZ\0" or not head[12]:  # 0: the index follows, there is no block
        return 0, b""
    end = 12 + (head[12] + 1) * 4
    if len(head) < end:
        return None
    found = read_xz_block(head[12:end])
    place = 0 if found is None else 12 + found.property
    if not place or head[place] > 40:
        return 0, b""
    bits = head[place]
    if size is not None:  # the least size that holds it all
        bits = next(at for at in range(41) if at == bits or _lzma2_size(at) >= size)
    block = head[12:place] + bytes([bits]) + head[place + 1 : end - 4]
    return _lzma2_size(bits), head[:12] + block + struct.pack("<I", zlib.crc32(block))


def _lzma2_size(bits: int) -> int:
    return (1 << 32) - 1 if bits == 40 else (2 | bits & 1) << (bits // 2 + 11)


def take_vli(data: bytes, at: int) -> tuple[int, int] | None:
    """Return the number at ``data[at:]``, 7 bits a byte, 9 bytes at most, and where it ends; None if there is none."""
    number = shift = 0
    for place in range(at, min(at + 9, len(data))):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number, place + 1) if byte or place == at else None
    return None


class XzBlock(namedtuple("XzBlock", "compressed_size size property")):
    """What the header of a block of xz says: the ``compressed_size`` and the ``size`` if it declares them, and where
    in it the property of its LZMA2 filter stands, the size of the dictionary."""

    __slots__ = ()


def read_xz_block(head: bytes) -> XzBlock | None:
    """Return what ``head``, the header of a block (.xz file format 1.2.0, 3.1), says; None if it is not sound."""
    end = len(head) - 4
    if head[1] & 0x3C or zlib.crc32(head[:end]) != int.from_bytes(head[end:], "little"):
        return None
    at = 2
    sizes: list[int | None] = []
    for bit in (0x40, 0x80):
        found = take_vli(head, at) if head[1] & bit else (None, at)
        if found is None:
            return None
        sizes.append(found[0])
        at = found[1]
    place = 0
    for left in range(head[1] & 3, -1, -1):
        name = take_vli(head, at)
        props = None if name is None else take_vli(head, name[1])
        if name is None or props is None or props[0] > end - props[1] or (name[0] == _LZMA2) != (not left):
            return None  # LZMA2 comes last, and only last
        place, at = props[1], sum(props)
    return None if sizes[0] == 0 or place + 1 != at or head[at:end].strip(b"\0") else XzBlock(sizes[0], sizes[1], place)
