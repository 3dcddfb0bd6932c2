"""Finds where the bytes of a zip member of unknown size end, by decoding them; see `descriptors` for the other way.

It takes time linear in the input. Bytes that are decoded or summed up in vain are counted, and a file that causes too
much of it is given up (`Work`).
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from pparse.codecs.base import decompressor
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.limits import KIB, MIB
from pparse.parsers.zip.directory import known_bytes
from pparse.parsers.zip.records import CODEC_OF_METHOD, LZMA, LZMA_END

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.tree.host import Session

BLOCK: Final = 256 * KIB
# Bytes read for a decoder: few at first, since most members measured are tiny; then more each time, up to `_STEP`.
_FIRST_STEP: Final = 1 * KIB
_STEP: Final = 64 * KIB
_U32: Final = Struct("<I")
# In front of the properties of a zip's LZMA stream: version (2 bytes), their length (2 bytes).
LZMA_HEAD: Final = 4


class Work:
    """The number of bytes that may still be read in vain."""

    __slots__ = ("left",)

    def __init__(self, size: int) -> None:
        self.left = 8 * size + 64 * MIB

    def spend(self, count: int) -> bool:
        """Count bytes; False if the limit is exceeded."""
        self.left -= count
        return self.left > 0


class Measure:
    """The result of decoding."""

    __slots__ = ("crc", "end", "error", "size")

    def __init__(self, end: int, size: int, crc: int, error: PparseError | None) -> None:
        self.end = end
        """Where the stream ended."""
        self.size = size
        """Bytes decoded."""
        self.crc = crc
        """CRC-32 of the bytes decoded."""
        self.error = error
        """The error that ended decoding; None if there was none."""


def lzma_alone(head: bytes, flags: int, size: int | None) -> bytes | None:
    """Return the header of an .lzma file for a stream that begins with ``head`` (9 bytes); None if that is invalid."""
    if len(head) < LZMA_HEAD + 5 or head[2:4] != b"\5\0":
        return None
    open_end = flags & LZMA_END or size is None
    return head[4:9] + (b"\xff" * 8 if open_end or size is None else size.to_bytes(8, "little"))


def lzma_source(source: Range, flags: int, size: int | None, name: str) -> Range:
    """Return the stream of the member ``name`` with the header of .lzma files in place of the zip's own."""
    from pparse.data.base import BytesData
    from pparse.data.spliced import SplicedData

    begin = source.start + LZMA_HEAD + 5
    head = lzma_alone(known_bytes(source.data, source.start, min(LZMA_HEAD + 5, len(source))), flags, size)
    if head is None:
        raise MalformedError("the stream lacks LZMA properties", path=name, offset=source.start)
    rest = source.data.range(begin, source.end)
    spliced = SplicedData([BytesData(head).range(0, len(head)), rest], source.data.name)
    return spliced.range(0, spliced.size or 0)


def measure(data: Data, start: int, end: int, method: int, flags: int, size: int | None, session: Session) -> Measure:
    """Decode the stream at ``start`` up to its end, the end of the data, or damage."""
    codec = CODEC_OF_METHOD[method]
    at, crc, total = start, 0, 0
    error: PparseError | None = None
    stream = None
    base, step = start, _FIRST_STEP
    try:
        # The dictionary of LZMA may be larger than the content.
        stream = decompressor(codec, budget=session.budget, size=size if method == LZMA else None)
        if method == LZMA:
            head = lzma_alone(data.pread(start, min(LZMA_HEAD + 5, end - start)), flags, size)
            if head is None:
                raise MalformedError("the stream lacks LZMA properties", offset=start)
            at = start + LZMA_HEAD + 5
            base = at - len(head)
            stream.decompress(head, 0)
        while not stream.eof:
            piece = b""
            if stream.needs_input:
                session.check_cancelled()
                piece = data.pread(at, min(step, end - at)) if at < end else b""
                at += len(piece)
                step = min(4 * step, _STEP)
                if not piece:
                    stream.finish()
            out = stream.decompress(piece, 2 * _STEP)
            crc = crc32(out, crc)
            total += len(out)
            session.limits.check("inflated_bytes", total, "the content of the member")
    except (MalformedError, EndOfDataError, GapError, UnsupportedError, LimitError) as caught:
        error = caught
    reached = base + stream.consumed if stream is not None else start
    if stream is not None:
        stream.close()
    return Measure(max(start, min(reached, end)), total, crc, error)


class Summing:
    """CRC-32 of ``data[start:...]`` at ascending positions; each byte is read once (except the last 32)."""

    __slots__ = ("_at", "_crc", "_data", "_work", "known")

    def __init__(self, data: Data, start: int, work: Work) -> None:
        self._data = data
        self._at = start
        self._crc = 0
        self._work = work
        self.known = True  # no unknown byte so far

    def at(self, end: int) -> int | None:
        """Return the CRC of everything before ``end``; None if bytes are unknown, or too much was read in vain."""
        # Candidates may be slightly out of order: the sum stays behind by more than the longest descriptor.
        while self.known and end - self._at > 32:
            chunk = self._read(min(BLOCK, end - 32 - self._at))
            self._crc = crc32(chunk, self._crc)
            self._at += len(chunk)
        return crc32(self._read(end - self._at), self._crc) if self.known and end >= self._at else None

    def _read(self, count: int) -> bytes:
        chunk, unknown = self._data.read_known(self._at, count)
        if unknown or len(chunk) < count or not self._work.spend(count):
            self.known = False
        return chunk
