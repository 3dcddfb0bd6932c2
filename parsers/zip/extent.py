"""Finds where the bytes of a zip member of unknown size end: by decoding them, or by the data descriptor behind them.

A member that was written to a stream has its CRC and sizes behind its bytes (APPNOTE.TXT 4.3.9). The signature is
optional, and sizes have 4 bytes, or 8 with zip64; nothing in front says which.

All takes time linear in the input. Bytes that are decoded, summed up or searched in vain are counted, and a file that
causes too much of it is given up (`Work`).
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from pparse.codecs.base import decompressor
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.lazy import lazy_pattern
from pparse.limits import KIB, MIB
from pparse.parsers.zip import attributes
from pparse.parsers.zip.attributes import CODEC_OF_METHOD, LZMA, LZMA_END
from pparse.parsers.zip.directory import DESCRIPTOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.tree.host import Session

BLOCK: Final = 256 * KIB
# Bytes read for a decoder: few at first, since most members measured are tiny; then more each time, up to `_STEP`.
_FIRST_STEP: Final = 1 * KIB
_STEP: Final = 64 * KIB
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
    head = lzma_alone(source.data.known(source.start, min(LZMA_HEAD + 5, len(source))), flags, size)
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


# -- the data descriptor behind a member's bytes ---------------------------------------------------------------------

# (length, signed, struct of crc, compressed size, size), longest first: a shorter one begins or ends a longer one.
LAYOUTS: Final = (
    (24, True, Struct("<4xIQQ")),
    (20, False, Struct("<IQQ")),
    (16, True, Struct("<4xIII")),
    (12, False, Struct("<III")),
)
_SHORT: Final = (12, 16)  # the lengths of those with sizes of 4 bytes
# How many descriptors are remembered; beyond that the oldest are searched again.
_MOST: Final = 20_000
# No member is larger: a larger size is really the next record.
_MOST_SIZE: Final = 1 << 48
# A descriptor without signature may come before one of these.
_MARKS: Final = lazy_pattern(rb"PK(?:\x07\x08|\x03\x04|\x01\x02|\x05\x06|\x06\x06|\x06\x08)")
_UNSIGNED: Final = tuple((length, layout) for length, signed, layout in LAYOUTS if not signed)
_SIGNED: Final = tuple((length, layout) for length, signed, layout in LAYOUTS if signed)


def _readings(block: bytes, at: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(length, crc, compressed size, size)`` as each layout that is possible at ``at`` has them."""
    for length, signed, layout in LAYOUTS:
        if len(block) - at >= length and not (signed and not block.startswith(DESCRIPTOR, at)):
            yield length, *layout.unpack_from(block, at)


def match_descriptor(block: bytes, at: int, crc: int | None, compressed_size: int, size: int | None) -> int:
    """Return the length of the data descriptor at ``at`` with exactly these values; 0 if none of the four layouts fits.

    ``crc`` or ``size`` None means any value. What 4 bytes are too few for is there modulo 2^32.
    """
    for length, crc_there, *there in _readings(block, at):
        if crc in (None, crc_there) and _is_there((compressed_size, size), there, length):
            return length
    return 0


def _is_there(sizes: tuple[int, int | None], there: list[int], length: int) -> bool:
    wrap = attributes.WRAP if length in _SHORT else 1 << 64
    return all(size is None or size % wrap == said for size, said in zip(sizes, there, strict=True))


def descriptor_crc(block: bytes, compressed_size: int, size: int | None) -> int | None:
    """Return the CRC-32 in a data descriptor with these sizes at the beginning of ``block``; None if there is none."""
    for length, crc, *there in _readings(block, 0):
        if _is_there((compressed_size, size), there, length):
            return crc
    return None


class Descriptors:
    """Finds the data descriptor of a member by the begin of its bytes, with a size that matches the distance.

    The data are searched once, as far as needed; descriptors found for other members are remembered.
    """

    def __init__(self, data: Data, end: int, work: Work) -> None:
        self._data = data
        self._end = end
        self._work = work
        self._from = self._to = -1  # the range that was searched
        self._found: dict[int, list[tuple[int, int, int]]] = {}  # start: (end, descriptor length, crc)
        self._count = 0

    def find(self, start: int, stop: int, *, check: bool) -> tuple[int, int, int] | None:
        """Return ``(end of the bytes, length of the descriptor, crc)`` of the member whose bytes begin at ``start``.

        With ``check`` the stored bytes are the content, so their CRC must agree; if some are unknown, the size decides.
        The descriptor must begin before ``stop``. None if there is none.
        """
        if not self._from <= start <= self._to:
            self._from = self._to = start
            self._found.clear()
            self._count = 0
        summing = Summing(self._data, start, self._work) if check else None
        done = 0
        while True:
            candidates = self._found.get(start, [])
            while done < len(candidates):
                end, length, crc = candidates[done]
                done += 1
                if end >= stop:
                    return None
                if summing is None or (found := summing.at(end)) == crc or (found is None and not summing.known):
                    return end, length, crc
            if self._to >= min(stop + 24, self._end):
                return None
            self._look_on(start)

    def _look_on(self, start: int) -> None:
        low = self._to
        count = min(BLOCK, self._end - low)
        first = max(self._from, low - 20)
        block, _ = self._data.read_known(first, low - first + min(count + 27, self._end - low))
        for match in _MARKS.finditer(block, low - first):
            at = match.start()
            if at >= low - first + count:
                break
            for length, layout in _SIGNED if match[0] == DESCRIPTOR else _UNSIGNED:
                place = at if match[0] == DESCRIPTOR else at - length
                self._note(block, place, first, length, layout, start)
        self._to = low + count
        if self._to >= self._end:  # an unsigned descriptor may come last, or the next record may be cut
            for cut in range(4):
                if block.endswith((b"PK\x03"[:cut], b"PK\x01"[:cut])):
                    for length, layout in _UNSIGNED:
                        self._note(block, len(block) - cut - length, first, length, layout, start)

    def _note(self, block: bytes, place: int, base: int, length: int, layout: Struct, start: int) -> None:
        if place < 0 or len(block) - place < length:
            return
        crc, compressed_size, size = layout.unpack_from(block, place)
        begin = base + place - compressed_size
        if begin < self._from or size >= _MOST_SIZE:
            return
        kept = self._found.setdefault(begin, [])
        if begin != start:
            self._count += 1
        # Longest first at one place: a 12-byte layout also fits the end of a 20-byte one of an empty member.
        kept.append((base + place, length, crc))
        while self._count > _MOST:
            oldest = next((key for key in self._found if key != start), None)
            if oldest is None:
                break
            self._count -= len(self._found.pop(oldest))
            self._from = max(self._from, oldest + 1)


def descriptor_before(data: Data, at: int, start: int, least: int | None = None) -> tuple[int, int, int, int] | None:
    """Return ``(end of bytes, crc, compressed size, size)`` from a descriptor that ends at ``at``; None if none does.

    The size in it must be the distance from ``start``. With ``least`` it must be at least that, and the descriptor must
    have a signature (bytes are missing before it).
    """
    for length, signed, layout in LAYOUTS:
        place = at - length
        if place < start or (least is not None and not signed):
            continue
        block, unknown = data.read_known(place, length)
        if unknown or len(block) < length or (signed and not block.startswith(DESCRIPTOR)):
            continue
        crc, compressed_size, size = layout.unpack_from(block)
        if compressed_size == place - start or (least is not None and least <= compressed_size < _MOST_SIZE):
            return place, crc, compressed_size, size
    return None
