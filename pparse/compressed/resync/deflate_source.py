"""What is looked for in the source of a damaged deflate stream: its end, where blocks may begin, probable damage."""

from __future__ import annotations

import heapq
import re
import zlib

from pparse.codecs.gzip_header import MAX_HEADER, may_go_on, parse_header
from pparse.compressed.resync.deflate_chain import FEED
from pparse.errors import Fault
from pparse.lazy import lazy_pattern
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

    from pparse.codecs.gzip_header import GzipHeader
    from pparse.compressed.resync.deflate_chain import Trial
    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.errors import PparseError


# Searched at once at most, and looked at behind that: a stored block with the header that follows it.
_SEARCH: Final = 256 * KIB
_AHEAD: Final = 72 * KIB
# Searched first, then four times as much; what of a block's head may stand before the byte it is found by.
_FIRST: Final = 1 * KIB
_BEFORE: Final = 4
# A member of a tar is filled up to a multiple of this.
_PADDING: Final = 512
_MAGIC: Final = b"\x1f\x8b\x08"
# How many times the size of a packed member its content is believed to be, if nothing else says so.
_RATIO: Final = 16
_TRAILER: Final = {"gzip": 8, "zlib": 4, "deflate": 0}


class DeflateSource:
    """What can be read of the source of a damaged stream of ``codec``, and where streams may begin and end there.

    ``trailer``: bytes behind the blocks of a stream.
    """

    __slots__ = ("codec", "data", "end", "start", "trailer")

    def __init__(self, source: Range, codec: str) -> None:
        self.data = source.data
        self.start = source.start
        self.end = real_end(source)
        self.codec = codec
        self.trailer = _TRAILER[codec]

    def peek(self, at: int, count: int) -> bytes:
        """Return what is known of the next ``count`` bytes, up to the first gap."""
        return self.data.known(at, min(count, self.end - at)) if at < self.end else b""

    def header(self, at: int, *, tolerant: bool = False, most: int = MAX_HEADER) -> GzipHeader | None:
        """Return the gzip header at ``at``; more than its first bytes are read only for one that goes on."""
        for count in (64, 1 * KIB, most):
            head = self.peek(at, count)
            header = parse_header(head, tolerant=tolerant)
            if header is not None or len(head) < count or not may_go_on(head, tolerant=tolerant):
                return header
        return None

    def header_before(self, at: int, start: int) -> int | None:
        """Return where a gzip header begins that ends at ``at``, if one does, at ``start`` or behind."""
        start = max(start, at - 4 * KIB, 0)
        head = self.peek(start, at - start)
        place = head.rfind(_MAGIC)
        while place >= 0:
            header = parse_header(head[place:])
            if header is not None and start + place + header.length == at:
                return start + place
            place = head.rfind(_MAGIC, 0, place)
        return None

    def skip_zeros(self, at: int) -> int:
        """Return where what is not zero begins, from ``at`` on."""
        count = 64
        while at < self.end:
            block = self.peek(at, count)
            rest = block.lstrip(b"\0")
            if rest or not block:
                return at + len(block) - len(rest)
            at += len(block)
            count = min(4 * count, FEED)
        return at

    def may_end(self, at: int) -> bool:
        """Say whether a stream, trailer and all, may end at ``at``."""
        if self.codec == "deflate":
            return at == self.end
        at = self.skip_zeros(at)
        return at >= self.end or (self.codec == "gzip" and self.header(at) is not None)

    def sums(self, trial: Trial) -> bool | None:
        """Say whether the checksum behind a stream of which all is known agrees; None if there is none."""
        trailer = self.peek(trial.end, self.trailer)
        if self.codec != "gzip" or len(trailer) < 8:
            return None
        size = int.from_bytes(trailer[4:], "little")
        return int.from_bytes(trailer[:4], "little") == trial.crc and size == trial.length & 0xFFFFFFFF

    def end_of_member(self, start: int, behind: int, begin: int, out: int, error: PparseError) -> int:
        """Return where the member ``[start, behind)`` should end in the output, of which ``[begin, out)`` came out.

        If its checksum is wrong, the size before ``behind`` tells it, unless that makes no sense.
        """
        if self.codec != "gzip" or error.fault is Fault.LENGTH:
            return out
        tail = self.peek(behind - 4, 4)
        made = out - begin
        size = int.from_bytes(tail, "little")
        size += (made - size + (1 << 31)) >> 32 << 32  # it is said modulo 2^32
        # Only noise over the trailer says something else, and then hardly a size that so many packed bytes may have.
        most = _RATIO * max(made, behind - start) + 64 * KIB
        return begin + size if len(tail) == 4 and tail != bytes(4) and 0 <= size <= most else out

    def is_whole(self, trial: Trial, unknown: int) -> bool:
        """Say whether all of a member was found: nothing is unknown, and its size is what the trailer says."""
        if not trial.ended or len(trial.edges):
            return False
        size = self.peek(trial.end + 4, 4) if self.codec == "gzip" else b""
        return not unknown or (len(size) == 4 and int.from_bytes(size, "little") == trial.length & 0xFFFFFFFF)


class Candidates:
    """Finds where blocks of ``data``, which ends at byte ``end``, may begin.

    A search goes no further ahead of what it has found than in proportion, and what was read for it serves the next
    one: many members that are damaged cost little each.
    """

    def __init__(self, data: Data, end: int) -> None:
        self._data = data
        self._end = end
        self._at = 0
        self._buffer = b""
        self._unknown: list[tuple[int, int]] = []

    def find(self, bit: int, *, members: bool) -> Iterator[tuple[int, bool]]:
        """Yield bits from ``bit`` on where a block may begin, or (True), with ``members``, a gzip member."""
        from pparse.kernels.deflate_blocks import find_blocks

        begin = at = bit // 8
        step = _FIRST
        while at < self._end:
            base = max(begin, at - _BEFORE)
            buffer, unknown = self._read(base, at - base + step + _AHEAD)
            last = min(at - base + step, len(buffer))
            if last <= at - base:
                return
            first = max(bit, 8 * at) - 8 * base
            blocks = ((block.bit, False) for block in find_blocks(buffer, first, 8 * last))
            headers = _headers(buffer, first // 8, last if members else 0)
            for found, is_member in heapq.merge(blocks, headers):
                place = base + found // 8
                if not any(start <= place < start + count for start, count in unknown):
                    yield 8 * base + found, is_member
            at, step = base + last, min(4 * step, _SEARCH)

    def _read(self, at: int, count: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return what is at ``at``, and which stretches there are not known."""
        count = min(count, self._end - at)
        if not self._at <= at <= at + count <= self._at + len(self._buffer):
            self._at = at
            self._buffer, unknown = self._data.read_known(at, min(_BEFORE + _SEARCH + _AHEAD, self._end - at))
            self._unknown = [(at + start, length) for start, length in unknown]
        return self._buffer[at - self._at : at - self._at + count], self._unknown


def _headers(buffer: bytes, first: int, last: int) -> Iterator[tuple[int, bool]]:
    """Yield the bits of ``buffer`` where the header of a gzip member may begin."""
    place = buffer.find(_MAGIC, first)
    while 0 <= place < last:
        if len(buffer) - place > 10 and not buffer[place + 3] & 0xE0:
            yield 8 * place, True
        place = buffer.find(_MAGIC, place + 1)


def missed_end(source: Range, zeros: int, end: int, produced: int) -> int | None:
    """Return where a gzip stream ends that was decoded beyond its end; None if none of the places has such a size.

    That is ``end``, or where few zeros begin that follow: what holds the stream may be filled up with them, and the
    size may end with one or two itself. The fewer other bytes, the nearer it must be: any bytes are some size.
    """
    wide = max(1000, min(produced // 4, MIB))
    places = [(end, wide)] if produced else []
    if produced and end - zeros < _PADDING:
        places += [(zeros, wide), (zeros + 1, 1000), (zeros + 2, 64)]
    for stop, most in places:
        begin = max(source.start, stop - 4)
        size = int.from_bytes(source.data.read_known(begin, stop - begin)[0], "little")
        if size and stop <= end and abs(size - (produced & 0xFFFFFFFF)) <= most:
            return stop
    return None


def real_end(source: Range) -> int:
    """Return where the source ends in fact: one that is decoded on the way need not know that yet."""
    data = source.data
    if data.size is None:
        data.verify()
    if data.size is not None:
        return min(source.end, data.size)
    endless = [gap.offset for gap in data.gaps if gap.length is None]
    return min(source.end, *endless) if endless else _end_by_reading(data, source.start, source.end)


def _end_by_reading(data: Data, at: int, end: int) -> int:
    while at < end:
        gap = data.next_gap(at)
        if gap is not None and gap.offset <= at and gap.end is not None:
            at = gap.end
            continue
        chunk = data.known(at, min(MIB, end - at))
        if not chunk:
            return at
        at += len(chunk)
    return end


# -- Where a deflate stream that decodes to its end, and is contradicted there, was probably damaged -------------------

# A decoder can pass damage without noticing: what is wrong decodes to other bytes, perhaps to more or fewer of them,
# and only a size or a checksum contradicts at the end. Or it passes that end, too, and the stream seems to be cut. Two
# things tell the place: what is known against the bytes of the source, and runs of one byte, which compressed data do
# not have, but sectors that were never written or erased do. Whoever decodes hides such stretches
# (`pparse.data.spliced`), so that decoding ends there and begins again behind.

# A run of one byte that is no chance in compressed data: 2^-104 at any place.
_RUN: Final = lazy_pattern(rb"(.)\1{13,}", re.DOTALL)
_BLOCK: Final = 256 << 10
# A stream of few different bytes has such runs by itself: there, each stands for at least so many times its length.
_MOST_RATIO: Final = 100
_MOST: Final = 4_096
# A run in a stored block may go on in the head of the next one.
_HEAD: Final = 8
# A shorter run in a stored block may be content: an encoder compresses a block only if that saves more than the codes
# cost. And an encoder that only stores (level 0) stores any run.
_STORED_RUN: Final = 512
# How far before its end a stream that seems cut may be damaged: what is out of step does not decode for long.
_BACK: Final = 256 << 10
# A stretch that is known to be in doubt says where the damage is only if it is a small part of the stream.
_SMALL_PART: Final = 4


class DamageCandidate:
    """A stretch ``[start, end)`` of the source that is probably damaged.

    ``hidden``: all of it is known to be wrong; else damage is somewhere in it. ``out``: how much output precedes it.
    """

    __slots__ = ("end", "hidden", "out", "start")

    def __init__(self, start: int, end: int, *, hidden: bool) -> None:
        self.start = start
        self.end = end
        self.hidden = hidden
        self.out = 0

    @property
    def gap(self) -> tuple[int, int]:
        """What is passed over: all of it, or, where only its end is known to be behind the damage, the last byte."""
        return (self.start if self.hidden else self.end - 1), self.end


def candidates(source: Range, first: int, produced: int, *, cut: bool = False) -> list[DamageCandidate]:
    """Return stretches of the source that are probably damaged, in order and apart; at most 4,096.

    ``first``: where the compressed data begin, which decode to ``produced`` bytes. ``cut``: no end of them was met, and
    nothing contradicts. Then bytes that are copied from the source as they are, those of a stored block, are none of
    these; nor are they if the stream stores all.
    """
    begin = max(first, source.end - _BACK) if cut else first
    found = [
        *(() if cut else _known(source, first)),
        *(DamageCandidate(start, end, hidden=True) for start, end in _runs(source, begin)),
    ]
    apart: list[DamageCandidate] = []
    for suspect in sorted(found, key=lambda suspect: suspect.start)[:_MOST]:
        if apart and suspect.start < apart[-1].end:
            apart[-1].end = max(apart[-1].end, suspect.end)
        else:
            apart.append(suspect)
    return _in_output(source, first, apart, stored=not (cut or _only_stores(source, first, produced))) if apart else []


def _known(source: Range, first: int) -> Iterator[DamageCandidate]:
    most = (source.end - source.start) // _SMALL_PART
    for suspect in source.data.suspect_ranges:
        start, end = max(suspect.start, first), min(suspect.end, source.end)
        if 0 < end - start <= most:
            yield DamageCandidate(start, end, hidden=False)


def _runs(source: Range, first: int) -> Iterator[tuple[int, int]]:
    """Yield runs of one byte; those at the very end are padding, perhaps, and no damage inside."""
    at, held = first, None
    while at < source.end:
        block = source.data.read_known(at, min(_BLOCK, source.end - at))[0]
        if not block:
            break
        for match in _RUN.finditer(block):
            start, end = at + match.start(), at + match.end()
            if held is not None and held[1] == start:
                held = (held[0], end)
                continue
            if held is not None:
                yield held
            held = (start, end)
        at += len(block)
    if held is not None and held[1] < source.end:
        yield held


def _in_output(source: Range, first: int, found: Sequence[DamageCandidate], *, stored: bool) -> list[DamageCandidate]:
    """Find where in the output the candidates are; leave out runs that stand for long runs of output themselves.

    And, unless ``stored``, for just as many bytes of it.
    """
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    kept: list[DamageCandidate] = []
    at, out = first, 0
    for suspect in found:
        for end in (suspect.start, suspect.end):
            before = out
            while at < end and not decoder.eof:
                block = source.data.read_known(at, min(_BLOCK, end - at))[0]
                if not block:
                    return kept
                at += len(block)
                try:
                    while block:
                        out += len(decoder.decompress(block, _BLOCK))
                        block = decoder.unconsumed_tail
                except zlib.error:  # the decoder that came to the end was another one: leave it at these
                    return kept
            if end == suspect.start:
                suspect.out = out
        count = suspect.end - suspect.start
        as_it_is = 0 <= count - (out - before) < _HEAD
        if not suspect.hidden or (
            out - before <= _MOST_RATIO * count and (not as_it_is or (stored and count >= _STORED_RUN))
        ):
            kept.append(suspect)
    return kept


def _only_stores(source: Range, first: int, produced: int) -> bool:
    """Is all of the stream stored, as far as is known? Its first block is, and no more came out than went in."""
    head = source.data.read_known(first, 1)[0]
    return bool(head) and not head[0] & 6 and produced <= source.end - first
