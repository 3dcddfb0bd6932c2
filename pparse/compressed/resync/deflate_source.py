"""A damaged deflate stream: where blocks may begin in its source, how far decoding goes from there, probable damage."""

from __future__ import annotations

import heapq
import re
import zlib
from array import array
from collections import namedtuple
from functools import partial

from pparse.codecs.deflate_entry import WINDOW, DeflateEntry, EntryDecompressor, stretches
from pparse.codecs.gzip_header import MAX_HEADER, begins_header, parse_header
from pparse.compressed.kept import Checkpoint, Checkpoints, reread
from pparse.compressed.resync import BEFORE_DAMAGE, places_of, real_end
from pparse.data.base import Access, Data, GapTable
from pparse.data.range_status import SuspectRange
from pparse.data.window import Window
from pparse.errors import EndOfDataError, Fault, GapError, MalformedError
from pparse.kernels.deflate_blocks import find_blocks
from pparse.lazy import lazy_pattern
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

    from pparse.codecs.gzip_header import GzipHeader
    from pparse.codecs.library import Core
    from pparse.compressed.env import DecodeEnv
    from pparse.compressed.inflated import InflatedData
    from pparse.compressed.resync import Piece
    from pparse.data.base import Range
    from pparse.errors import PparseError

# Output compared to see whether two decoders are in step, input for it, and known bytes needed for an answer.
_COMPARED: Final = 4 * KIB
_COMPARED_INPUT: Final = 8 * KIB
_PROOF: Final = 32
_STEP: Final = 64
# Stretches that depend on lost bytes, kept apart for one piece; beyond, close ones are joined.
_STRETCHES: Final = 200_000
FEED: Final = 64 * KIB
# How far before a failure the damage may begin: garbage decodes until some code, or block header, is impossible.
BACK: Final = 256 * KIB


# -- Decoding from one place: how far it goes, and whether another decoder was in step with it -------------------------


class Chain(namedtuple("Chain", "bit entry out noted place saved")):
    """Decoding that begins at bit ``bit`` of the source, ``entry`` saying what is known of the output before it.

    ``out`` bytes of its stretch of output precede it; of the whole output ``place`` bytes, if that is known. ``noted``
    takes the doubt about its last bytes. ``saved`` returns decoders of it that were saved on the way, in order, each
    with the byte of the source where it began.
    """

    __slots__ = ()

    def decoder(self, at: int) -> tuple[Core, int, int]:
        """Return a decoder of it that came to byte ``at`` of the source, or not so far: with its place, and with how
        much it put out."""
        for start, saved in reversed(self.saved()):
            core = saved.saved_core() if start + saved.consumed <= at else None
            if core is not None:
                return core, start + saved.consumed, saved.total_out
        return DeflateEntry(self.bit % 8, *self.entry), self.bit // 8, 0


class EnteredAt(namedtuple("EnteredAt", "window unknown holes", defaults=(b"", WINDOW, ()))):
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

    length = 0
    cut = False  # the source ends
    by_gap = False
    error: PparseError | None = None
    crc = 0  # CRC-32 of what came out, if all of it is known

    def __init__(self, end: int, *, ended: bool = False, points: Checkpoints | None = None) -> None:
        self.end = end
        self.ended = ended  # with a final block
        self.edges = array("q")  # where each stretch begins and ends that depends on lost bytes
        self.points = points  # where decoding can begin again


def try_chain(data: Data, end: int, bit: int, entry: EnteredAt, env: DecodeEnv, *, until_known: bool = False) -> Trial:
    """Decode ``data[:end]`` from bit ``bit`` on, as far as that goes; or ``until_known``: until all that comes is."""
    at = start = bit // 8
    points = Checkpoints(Checkpoint(0, start, 0), env.budget)
    trial = Trial(start, points=points)
    feed = 2 * KIB  # most trials are short
    stream = EntryDecompressor(bit % 8, *entry, budget=env.budget, reread=partial(reread, data, start, end))
    try:
        while not (stream.eof or (until_known and stream.needs_input and stream.resolved)):
            env.poll()
            part = b""
            if stream.needs_input:
                try:
                    part = data.pread(at, min(feed, end - at)) if at < end else b""
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
                trial.crc = zlib.crc32(out, trial.crc)
            env.limits.check("inflated_bytes", trial.length, f"what {data.name} holds")
            if points.wants(trial.length) and (saved := stream.copy()) is not None:
                points.add(Checkpoint(saved.total_out, start, 0, saved))
        trial.ended = stream.eof
    except EndOfDataError as error:
        trial.cut, trial.error = not trial.by_gap, error
    except MalformedError as error:
        trial.error = error
    _take_unknown(stream, trial)
    trial.end = start + stream.consumed
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
    import numpy as np

    places = np.frombuffer(edges, np.int64)
    between = places[1:-1].reshape(-1, 2)
    far = between[between[:, 1] - between[:, 0] >= apart]
    return array("q", np.concatenate((places[:1], far.ravel(), places[-1:])).tobytes())


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
        for places, shift in (() if tail is None else tail.edges, 0), (edges, len(self._tail)):
            for start, count in stretches(places):
                self.gaps.add(start + shift, count)

    def _pread(self, offset: int, length: int) -> bytes:
        first = self._tail[offset : offset + length]
        if self._inner is None or len(first) == length:
            return first
        return first + self._inner.pread(max(0, offset - len(self._tail)), length - len(first))

    def read_known(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Read at once. The decoder gives zeros for what is not known, but gaps may have been joined around bytes."""
        if self.size is not None:
            length = max(0, min(length, self.size - offset))
        chunk = bytearray(self._pread(offset, length)) if length else bytearray()
        end, unknown = offset + len(chunk), []
        for gap in self.gaps_in(offset, end):
            start, stop = max(gap.offset, offset), min(gap.end or end, end)
            chunk[start - offset : stop - offset] = bytes(stop - start)
            unknown.append((start, stop - start))
        return bytes(chunk), unknown

    def close(self) -> None:
        """Give back memory."""
        super().close()
        if self._inner is not None:
            self._inner.close()
        if self._charge is not None:
            self._charge.release()


class Pace:
    """A decoder that goes the way of a chain once more, from byte ``begin`` of the source on or shortly before, and
    says at which blocks it was in step."""

    __slots__ = ("_data", "_end", "at", "core", "out")

    def __init__(self, chain: Chain, data: Data, end: int, begin: int) -> None:
        self.core, self.at, self.out = chain.decoder(begin)
        self._data, self._end = data, end
        self.go(begin)

    def steps(self, to: int) -> Iterator[bytes]:
        """Take the source as far as byte ``to``; yield what comes out. Raises zlib.error, `GapError`."""
        core = self.core
        while self.at < to and not core.eof and (part := self._data.pread(self.at, min(FEED, to - self.at))):
            self.at += len(part)
            hungry = False
            while not hungry:
                out = core.feed(part, FEED)
                self.out += len(out)
                yield out
                part, hungry = b"", core.hungry or core.eof

    def go(self, to: int) -> bool:
        """Take the source as far as byte ``to``; return whether it came there, or to the end of the stream."""
        try:
            for _ in self.steps(to):
                self.core.take_unknown()
        except (zlib.error, GapError):
            self.at = self._end + 1  # it does not come any further
        return self.core.eof or to <= self.at <= self._end

    def compare(self, bit: int) -> bool | None:
        """Say whether the chain passed the block at ``bit`` in step; None if that cannot be told."""
        if bit // 8 + 1 < self.at:
            return None
        self.go(bit // 8 + 1)
        if self.at > self._end or self.core.eof:
            return None
        data = self._data.pread(self.at, min(_COMPARED_INPUT, max(0, self._end - self.at)))
        mine = _outcome(self.core.copy(), data)
        first = self._data.pread(bit // 8, 1)
        theirs = _outcome(DeflateEntry(bit % 8), first + data)
        common = min(len(mine[0]), len(theirs[0]))
        if common < _PROOF:
            return None
        known = bytearray(b"\1" * common)
        for offset, count in (*mine[1], *theirs[1]):
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
    pace = Pace(chain, data, end, end - BACK)
    window = bytearray(b"" if pace.out else chain.entry.window)
    known = bytearray(b"\1" * len(window))
    for start, count in () if pace.out else chain.entry.holes:
        known[start : start + count] = bytes(count)
    try:
        for chunk in pace.steps(end):
            window += chunk
            known += b"\1" * len(chunk)
            base = len(known) - pace.core.total_out
            for start, count in pace.core.take_unknown():
                known[base + start : base + start + count] = bytes(count)
            if len(window) > 4 * FEED:
                del window[:-FEED], known[:-FEED]
    except (zlib.error, GapError):
        return None
    return None if pace.core.eof or pace.at != end else (pace.out, window, known)


# -- What can be read of the source, and where streams and blocks may begin and end there ------------------------------

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
            if header is not None or len(head) < count or not begins_header(head, tolerant=tolerant):
                return header
        return None

    def body(self, at: int, *, tolerant: bool = False, most: int = MAX_HEADER) -> int | None:
        """Return where the blocks begin of the stream, or member, at ``at``; None if it has no gzip header."""
        if self.codec != "gzip":
            return at + (2 if self.codec == "zlib" else 0)
        header = self.header(at, tolerant=tolerant, most=most)
        return None if header is None else at + header.length

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

    def contradicts(self, behind: int, made: int) -> bool:
        """Say whether the size before ``behind``, where a gzip member ends, is not that of the ``made`` bytes."""
        return self.codec == "gzip" and int.from_bytes(self.peek(behind - 4, 4), "little") != made & 0xFFFFFFFF

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
        self._end = end
        self._window = Window(data, end, least=_BEFORE + _SEARCH + _AHEAD)

    def find(self, bit: int, *, members: bool) -> Iterator[tuple[int, bool]]:
        """Yield bits from ``bit`` on where a block may begin, or (True), with ``members``, a gzip member."""
        begin = at = bit // 8
        step = _FIRST
        while at < self._end:
            base = max(begin, at - _BEFORE)
            buffer, unknown = self._window.read_known(base, at - base + step + _AHEAD)
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


def _headers(buffer: bytes, first: int, last: int) -> Iterator[tuple[int, bool]]:
    """Yield the bits of ``buffer`` where the header of a gzip member may begin."""
    for place in places_of(_MAGIC, buffer[: max(last, 0) + 2], first):
        if len(buffer) - place > 10 and not buffer[place + 3] & 0xE0:
            yield 8 * place, True


def missed_end(source: Range, first: int, zeros: int, end: int, produced: int) -> int | None:
    """Return where a gzip stream ends that was decoded beyond its end; None if none of the places has such a size.

    That is ``end``, or where few zeros begin that follow: what holds the stream may be filled up with them, and the
    size may end with one or two itself. The fewer other bytes, the nearer it must be: any bytes are some size, those of
    content often a small one. A stream from ``first`` on that only stores is hardly ever out of step, and then by what
    its trailer was taken for.
    """
    wide = 64 if _only_stores(source, first, produced) else max(1000, min(produced // 4, MIB))
    places = [(end, wide)] if produced else []
    if produced and end - zeros < _PADDING:
        places += [(zeros, wide), (zeros + 1, min(wide, 1000)), (zeros + 2, 64)]
    for stop, most in places:
        begin = max(source.start, stop - 4)
        size = int.from_bytes(source.data.read_known(begin, stop - begin)[0], "little")
        if size and stop <= end and abs(size - (produced & 0xFFFFFFFF)) <= most:
            return stop
    return None


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
# A stretch that is known to be in doubt says where the damage is only if it is a small part of the stream.
_SMALL_PART: Final = 4


class DamageCandidate:
    """A stretch ``[start, end)`` of the source that is probably damaged.

    ``hidden``: all of it is known to be wrong; else damage is somewhere in it. ``out``: how much output precedes it.
    """

    __slots__ = ("end", "hidden", "out", "start")

    def __init__(self, start: int, end: int, *, hidden: bool) -> None:
        self.start, self.end, self.hidden = start, end, hidden
        self.out = 0

    @property
    def gap(self) -> tuple[int, int]:
        """What is passed over: all of it, or, where only its end is known to be behind the damage, the last byte."""
        return (self.start if self.hidden else self.end - 1), self.end


def probable_damage(source: Range, chain: Chain, produced: int, *, cut: bool) -> list[DamageCandidate]:
    """Return stretches of the source that are probably damaged, in order and apart; at most 4,096.

    ``chain`` is the decoding of it that came to its end with ``produced`` bytes. ``cut``: no end of them was met, and
    nothing contradicts. Then bytes that are copied from the source as they are, those of a stored block, are none of
    these; nor are they if the stream stores all.
    """
    first = chain.bit // 8
    found = [] if cut else list(_known(source, first))
    runs = _runs(source, max(first, source.end - BACK) if cut else first)
    found += [DamageCandidate(start, end, hidden=True) for start, end in runs]
    apart: list[DamageCandidate] = []
    for suspect in sorted(found, key=lambda suspect: suspect.start)[:_MOST]:
        if apart and suspect.start < apart[-1].end:
            apart[-1].end = max(apart[-1].end, suspect.end)
        else:
            apart.append(suspect)
    if not apart:
        return []
    return list(_in_output(source, chain, apart, stored=not (cut or _only_stores(source, first, produced))))


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


def _in_output(
    source: Range, chain: Chain, found: Sequence[DamageCandidate], *, stored: bool
) -> Iterator[DamageCandidate]:
    """Find where in the output the candidates are; leave out runs that stand for long runs of output themselves.

    And, unless ``stored``, for just as many bytes of it.
    """
    pace = Pace(chain, source.data, source.end, found[0].start)
    for suspect in found:
        pace.go(suspect.start)
        suspect.out = pace.out
        if not pace.go(suspect.end):  # the decoder that came to the end was another one: leave it at these
            return
        count, made = suspect.end - suspect.start, pace.out - suspect.out
        as_it_is = 0 <= count - made < _HEAD
        if not suspect.hidden or (made <= _MOST_RATIO * count and (not as_it_is or (stored and count >= _STORED_RUN))):
            yield suspect


def _only_stores(source: Range, first: int, produced: int) -> bool:
    """Is all of the stream stored, as far as is known? Its first block is, and no more came out than went in."""
    head = source.data.read_known(first, 1)[0]
    return bool(head) and not head[0] & 6 and produced <= source.end - first
