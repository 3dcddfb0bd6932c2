"""Decoding from one place of a deflate stream: how far it goes, and whether another decoder was in step with it."""

from __future__ import annotations

import zlib
from array import array
from collections import namedtuple
from functools import partial
from zlib import crc32

from pparse.compressed.kept import reread
from pparse.compressed.resync import BEFORE_DAMAGE
from pparse.data.base import Access, Data, GapTable
from pparse.data.range_status import SuspectRange
from pparse.errors import EndOfDataError, GapError, MalformedError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.codecs.deflate_entry import DeflateEntry, EntryDecompressor
    from pparse.compressed.env import DecodeEnv
    from pparse.compressed.inflated import InflatedData
    from pparse.compressed.resync import Piece
    from pparse.data.reader import Range
    from pparse.errors import PparseError

# Output compared to see whether two decoders are in step, input for it, and known bytes needed for an answer.
_COMPARED: Final = 4 * KIB
_COMPARED_INPUT: Final = 8 * KIB
_PROOF: Final = 32
_STEP: Final = 64
# Stretches that depend on lost bytes, kept apart for one piece; beyond, close ones are joined.
_STRETCHES: Final = 200_000
FEED: Final = 64 * KIB


class Chain(namedtuple("Chain", "bit entry out noted place")):
    """Decoding that begins at bit ``bit`` of the source, ``entry`` saying what is known of the output before it.

    ``out`` bytes of its stretch of output precede it; of the whole output ``place`` bytes, if that is known. ``noted``
    takes the doubt about its last bytes.
    """

    __slots__ = ()

    def decoder(self) -> DeflateEntry:
        """Return a decoder that stands at its beginning."""
        from pparse.codecs.deflate_entry import DeflateEntry

        return DeflateEntry(self.bit % 8, self.entry.window, self.entry.unknown, self.entry.holes)


class EnteredAt(namedtuple("EnteredAt", "unknown window holes", defaults=(b"", ()))):
    """What is known of the output where a stream is entered: ``window`` but for its ``holes`` (start, length).

    ``unknown`` bytes before that are lost; see `pparse.codecs.deflate_entry.DeflateEntry`.
    """

    __slots__ = ()


class TailBytes(namedtuple("TailBytes", "at content edges charge")):
    """The last bytes of a block, ``content``, and of which there the stretches between ``edges`` are not known.

    They are what the source has from byte ``at`` on. ``charge``: what they cost.
    """

    __slots__ = ()


class Trial:
    """How far a chain of blocks can be decoded: ``length`` bytes, to byte ``end`` of the source."""

    __slots__ = ("by_gap", "crc", "cut", "edges", "end", "ended", "error", "length")

    def __init__(self) -> None:
        self.length = 0
        self.end = 0
        self.ended = False  # with a final block
        self.cut = False  # the source ends
        self.by_gap = False
        self.error: PparseError | None = None
        self.edges = array("q")  # where each stretch begins and ends that depends on lost bytes
        self.crc = 0  # CRC-32 of what came out, if all of it is known


def ended_at(end: int) -> Trial:
    """Return the trial of a stream that has its end at byte ``end``, and nothing before that."""
    trial = Trial()
    trial.end, trial.ended = end, True
    return trial


def try_chain(source: Range, phase: int, entry: EnteredAt, env: DecodeEnv) -> Trial:
    """Decode from bit ``phase`` of the first byte of ``source`` on, as far as that goes."""
    from pparse.codecs.deflate_entry import EntryDecompressor

    trial, data, at = Trial(), source.data, source.start
    feed = 2 * KIB  # most trials are short
    stream = EntryDecompressor(
        phase,
        entry.window,
        entry.unknown,
        entry.holes,
        budget=env.budget,
        reread=partial(reread, data, source.start, source.end),
    )
    try:
        while not stream.eof:
            env.poll()
            part = b""
            if stream.needs_input:
                try:
                    part = data.pread(at, min(feed, source.end - at)) if at < source.end else b""
                except GapError:
                    trial.by_gap = True
                feed = min(4 * feed, FEED)
                if not part:
                    stream.finish()
                at += len(part)
            out = stream.decompress(part, 4 * FEED)
            trial.length += len(out)
            _take_unknown(stream, trial)
            if not trial.edges:
                trial.crc = crc32(out, trial.crc)
            env.limits.check("inflated_bytes", trial.length, f"what {data.name} holds")
        trial.ended = True
    except EndOfDataError as error:
        trial.cut, trial.error = not trial.by_gap, error
    except MalformedError as error:
        trial.error = error
    _take_unknown(stream, trial)
    trial.end = source.start + stream.consumed
    if trial.error is not None:
        trial.error.offset = trial.end
    stream.close()
    return trial


def _take_unknown(stream: EntryDecompressor, trial: Trial) -> None:
    edges, more = trial.edges, stream.take_edges()
    if edges and more and edges[-1] >= more[0]:
        edges.pop()
        more = more[1:]
    edges.extend(more)
    apart = 16
    while len(edges) > 2 * _STRETCHES:
        trial.edges = edges = join_edges(edges, apart)
        apart *= 2


def join_edges(edges: array[int], apart: int) -> array[int]:
    """Join stretches, given by where each begins and ends, that are less than ``apart`` from each other."""
    joined = edges[:1]
    for place in range(1, len(edges) - 1, 2):
        if edges[place + 1] - edges[place] >= apart:
            joined.extend(edges[place : place + 2])
    joined.append(edges[-1])
    return joined


class EnteredData(Data):
    """What a stream that was entered in the middle holds: ``length`` bytes, those that depend on lost ones as gaps.

    ``edges`` says where each gap begins and ends. Before it come the bytes of ``tail``; without ``inner`` that is all.
    """

    def __init__(
        self, inner: InflatedData | None, name: str, length: int, edges: array[int], tail: TailBytes | None
    ) -> None:
        self._tail = b"" if tail is None else tail.content
        self._charge = None if tail is None else tail.charge
        super().__init__(name, len(self._tail) + length)
        self._inner = inner
        self.access = Access.FREE if inner is None else inner.access
        self.gaps = GapTable()
        for places, shift in (((), 0) if tail is None else (tail.edges, 0)), (edges, len(self._tail)):
            for place in range(0, len(places), 2):
                self.gaps.add(places[place] + shift, places[place + 1] - places[place])

    def _pread(self, offset: int, length: int) -> bytes:
        first = self._tail[offset : offset + length]
        if self._inner is None or len(first) == length:
            return first
        return first + self._inner.pread(max(0, offset - len(self._tail)), length - len(first))

    def read_known(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Read at once; the decoder gives zeros for what is not known."""
        if self.size is not None:
            length = max(0, min(length, self.size - offset))
        chunk = self._pread(offset, length) if length else b""
        unknown = []
        end = offset + len(chunk)
        gap = self.next_gap(offset)
        while gap is not None and gap.offset < end:
            start, stop = max(gap.offset, offset), min(gap.end or end, end)
            unknown.append((start, stop - start))
            gap = self.next_gap(stop) if stop < end else None
        return chunk, unknown

    def close(self) -> None:
        """Give back memory."""
        super().close()
        if self._inner is not None:
            self._inner.close()
        if self._charge is not None:
            self._charge.release()


class Pace:
    """A decoder that goes the way of a chain once more, and says at which blocks it was in step."""

    __slots__ = ("_at", "_core", "_data", "_end", "out")

    def __init__(self, chain: Chain, data: Data, end: int, begin: int) -> None:
        self._core = chain.decoder()
        self._data = data
        self._end = end
        self._at = chain.bit // 8
        self.out = 0
        self._go(begin)

    def _go(self, to: int) -> None:
        """Take the source as far as byte ``to``."""
        core = self._core
        try:
            while self._at < to and not core.eof:
                data = self._data.pread(self._at, min(FEED, to - self._at))
                if not data:
                    return
                self._at += len(data)
                out = core.feed(data, 4 * FEED)
                self.out += len(out)
                while not core.hungry and not core.eof:
                    self.out += len(core.feed(b"", 4 * FEED))
                core.take_unknown()
        except (zlib.error, GapError):
            self._at = self._end + 1  # it does not come any further

    def compare(self, bit: int) -> bool | None:
        """Say whether the chain passed the block at ``bit`` in step; None if that cannot be told."""
        from pparse.codecs.deflate_entry import DeflateEntry

        if bit // 8 + 1 < self._at:
            return None
        self._go(bit // 8 + 1)
        if self._at > self._end or self._core.eof:
            return None
        data = self._data.pread(self._at, min(_COMPARED_INPUT, max(0, self._end - self._at)))
        mine = _outcome(self._core.copy(), data)
        first = self._data.pread(bit // 8, 1)
        theirs = _outcome(DeflateEntry(bit % 8), first + data)
        common = min(len(mine[0]), len(theirs[0]))
        if common < _PROOF:
            return None
        known = bytearray(b"\1" * common)
        for stretches in (mine[1], theirs[1]):
            for offset, count in stretches:
                if offset < common:
                    count = min(count, common - offset)
                    known[offset : offset + count] = bytes(count)
        pairs = [a == b for a, b, sure in zip(mine[0], theirs[0], known, strict=False) if sure]
        return None if len(pairs) < _PROOF else all(pairs)


def _outcome(core: Any, data: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the first bytes that ``core`` makes of ``data``, and what is unknown of them."""
    base = core.total_out
    out = b""
    try:
        for at in range(0, len(data), _STEP):  # what comes out in front of damage counts
            out += core.feed(data[at : at + _STEP], _COMPARED)
            if len(out) >= _COMPARED:
                break
    except zlib.error:
        pass
    return out, [(offset - base, count) for offset, count in core.take_unknown() if offset >= base]


def noter(piece: Piece) -> Callable[[int], None]:
    """Return what notes that a piece is in doubt from some byte on."""

    def note(start: int) -> None:
        size = piece.data.size or 0
        if not piece.data.suspect_ranges or piece.data.suspect_ranges[0].start:
            piece.data.suspect_ranges = (SuspectRange(start, size, BEFORE_DAMAGE),)

    return note


def output_before(chain: Chain, data: Data, end: int) -> tuple[int, bytearray, bytearray] | None:
    """Return how much ``chain`` gives before byte ``end`` of the source, at least the last 64 KiB of that, and for each
    of these whether it is known (1, or 0); None if it does not come so far."""
    core = chain.decoder()
    window, known = bytearray(chain.entry.window), bytearray(b"\1" * len(chain.entry.window))
    for start, count in chain.entry.holes:
        known[start : start + count] = bytes(count)
    at, out = chain.bit // 8, 0
    try:
        while at < end and not core.eof:
            part = data.pread(at, min(FEED, end - at))
            if not part:
                return None
            at += len(part)
            hungry = False
            while not hungry:
                chunk = core.feed(part, FEED)
                window += chunk
                known += b"\1" * len(chunk)
                base = len(known) - core.total_out
                for start, count in core.take_unknown():
                    known[base + start : base + start + count] = bytes(count)
                out, part = out + len(chunk), b""
                hungry = core.hungry or core.eof
            if len(window) > 4 * FEED:
                del window[:-FEED], known[:-FEED]
    except (zlib.error, GapError):
        return None
    return None if core.eof or at < end else (out, window, known)
