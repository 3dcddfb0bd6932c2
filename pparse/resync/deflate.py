"""Where a damaged deflate stream (raw, zlib or gzip) can be entered again.

A deflate block can be decoded from its first bit on without what precedes it, but for the bytes that it copies out of
the last 32 KiB, and it is known which ones those are (`pparse.codecs.deflate_entry`). So behind damage:

1. *Where does the damage begin?* A decoder fails late: what is wrong decodes to garbage for a while. Blocks are looked
   for before the failure, too. One that the failed decoder passed in step (the same bytes came out) proves what
   precedes it; from the last of these on, its output is in doubt.
2. *Where does a block begin?* Candidates are plausible block headers (`pparse.kernels.deflate_blocks`). Each is decoded
   as far as it goes. It is believed if its stream ends where a trailer and the end of the file, or another member,
   follow; or if it goes on for so long that it cannot be a compressed file which sits, stored, in this one: a block
   that is stored has at most 64 KiB, so a false chain comes to grief at its end.
3. *Where does it belong?* The trailer of gzip has the size: counted from the end, the last piece has its exact place.
"""

from __future__ import annotations

import heapq
from array import array
from functools import partial
from zlib import crc32

from pparse.budget import MemoryBudget
from pparse.codecs.gzip_header import MAX_HEADER, may_go_on, parse_header
from pparse.codecs.kept import reread
from pparse.errors import EndOfDataError, GapError, MalformedError, PparseError
from pparse.inflated import InflatedData
from pparse.limits import KIB, MIB, Limits
from pparse.resync.deflate_chain import FEED, Chain, EnteredData, Pace, Trial, noter
from pparse.resync.pieces import Failure, Piece
from pparse.standing import Doubt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.codecs.deflate_entry import EntryDecompressor
    from pparse.codecs.gzip_header import GzipHeader
    from pparse.data import Data
    from pparse.reader import Range

# How far before a failure the damage may begin: garbage decodes until some code, or block header, is impossible.
_BACK: Final = 256 * KIB
# Searched at once, and looked at behind that: a stored block with the header that follows it.
_SEARCH: Final = 256 * KIB
_AHEAD: Final = 72 * KIB
# Compressed bytes that a chain of blocks must have, to be believed though it ends in damage; see rule 2.
_LONG: Final = 72 * KIB
_ENDED_BY_GAP: Final = 2 * KIB
# Such a chain, shorter but longer than this, is delivered in doubt.
_SHORT: Final = 2 * KIB
# Candidates that are tried behind one that goes on to the end of a source that is cut.
_MORE_TRIES: Final = 8
_TRIAL: Final = 4 * KIB  # what a trial costs, however short, in bytes decoded
_MAGIC: Final = b"\x1f\x8b\x08"
# Stretches that depend on lost bytes, kept apart for one piece; beyond, close ones are joined.
_STRETCHES: Final = 200_000
_WINDOW: Final = 32 * KIB
# Zeros at the end of a file that are no chance.
_ZEROS: Final = 64
_TRAILER: Final = {"gzip": 8, "zlib": 4, "deflate": 0}


def pieces(
    source: Range,
    failure: Failure,
    *,
    codec: str,
    budget: MemoryBudget,
    limits: Limits,
    size: int | None = None,
    poll: Callable[[], object] | None = None,
    **_: Any,
) -> Iterator[Piece]:
    """Yield what can be decoded behind ``failure``, in order; sets ``failure.doubt_from``."""
    return _Walk(source, failure, codec, budget, limits, size, poll).pieces()


def judge_cut(source: Range, failure: Failure, codec: str) -> PparseError:
    """Look at a stream that ends early: return the error that says what it is; perhaps sets ``failure.doubt_from``.

    If the source ends with a trailer that fits what came out, the end is there, and damage made the decoder pass it
    over. If it ends with zeros, as a download does for which room was made in advance, they are none of the stream's.
    """
    end = _real_end(source)
    walk = _Walk(source, failure, codec, MemoryBudget(64 * MIB), Limits(), None, None)
    chain = walk.first_chain()
    if chain is None:
        return failure.error
    out = failure.out - failure.start_out
    tail = source.data.read_known(max(source.start, end - 4), min(4, end - source.start))[0]
    if codec == "gzip" and len(tail) == 4 and out and tail != bytes(4):
        size = int.from_bytes(tail, "little")
        if abs(size - (out & 0xFFFFFFFF)) <= max(1000, out // 4):
            return MalformedError("the end of the gzip stream was passed over", offset=end)
    zeros = _zeros_at_end(source, chain.bit // 8, end)
    if end - zeros >= _ZEROS:
        failure.doubt_from = failure.start_out + Pace(chain, source.data, end, zeros).out
        failure.doubt = f"the file ends with {end - zeros:,} zeros: it was not written to its end"
    return failure.error


def _zeros_at_end(source: Range, start: int, end: int) -> int:
    """Return where the zeros begin with which the source ends."""
    while end > start:
        count = min(FEED, end - start)
        block = source.data.read_known(end - count, count)[0]
        rest = len(block.rstrip(b"\0"))
        if rest:
            return end - count + rest
        end -= count
    return start


class _Found:
    """A place where decoding goes on: the block at bit ``bit``, ``unknown`` bytes lost before it, and its trial.

    ``weak``: it may be a stream inside this one, all the same. ``fresh``: a member begins there.
    """

    __slots__ = ("bit", "fresh", "trial", "unknown", "weak")

    def __init__(self, bit: int, unknown: int, trial: Trial, *, weak: bool = False, fresh: bool = False) -> None:
        self.bit = bit
        self.unknown = unknown
        self.trial = trial
        self.weak = weak
        self.fresh = fresh


class _Walk:
    """One pass over what lies behind the first failure."""

    def __init__(
        self, source: Range, failure: Failure, codec: str, budget: MemoryBudget, limits: Limits, size: int | None,
        poll: Callable[[], object] | None,
    ) -> None:  # fmt: skip
        self._data = source.data
        self._start = source.start
        self._end = _real_end(source)
        self._failure = failure
        self._codec = codec
        self._budget = budget
        self._limits = limits
        self._size = size
        self._poll = poll or (lambda: None)
        self._work = 4 * (source.end - source.start) + 64 * MIB  # source bytes that may be decoded in vain
        self._at = failure.at  # where decoding failed last
        self._chain: Chain | None = None  # what failed there
        self._too_far = "too far back" in failure.error.reason
        self._by_gap = isinstance(failure.error, GapError)  # the source has a gap there
        self._member_out: int | None = failure.start_out  # where the member in question begins, in the output
        self._sound_at = failure.start  # as far as here in the source decoding was right, and so many bytes of the
        self._least = 0  # member come before what follows, at least:
        self._before = 0  # these before the chain, and what the chain gave

    # -- the walk ----------------------------------------------------------------------------------------------------

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces, in order."""
        failure = self._failure
        self._chain = self.first_chain()
        if self._chain is None and not failure.error.reason.startswith("bytes follow"):
            self._at = failure.start  # its header is damaged
        if " bytes" in failure.error.reason and "holds more than" in failure.error.reason:  # where, nobody can tell
            failure.doubt_from, failure.doubt = 0, "the stream holds more bytes than it should"
            return
        if self._chain is not None and self._contradicted(failure.error):
            body_end = failure.at - (8 if "length check" in failure.error.reason else 4)
            behind = body_end + _TRAILER[self._codec]
            if self._may_end(behind):
                failure.doubt_from, failure.doubt = failure.start_out, _CONTRADICTED
                self._member_out = failure.out
                yield from self._members(behind, None)
                return
            self._at = body_end
        while (found := self._find()) is not None:
            trial = found.trial
            if found.fresh and trial.ended:  # a whole member: those behind it may be whole, too
                self._member_out = None
                yield from self._members(found.bit // 8, None, joins=False)
            else:
                piece = self._make_piece(found)
                yield piece
                if trial.cut:
                    return
                if trial.ended:
                    yield from self._members(trial.end + _TRAILER[self._codec], piece)
                else:
                    self._at, self._by_gap = trial.end, trial.by_gap
                    self._chain = Chain(found.bit, found.unknown, 0, noter(piece))
                    self._too_far = False
                    self._sound_at, self._before = found.bit // 8, self._least
            if self._at >= self._end:
                return

    def first_chain(self) -> Chain | None:
        """Return the decoding that failed; None if it did not come as far as a block."""
        failure = self._failure

        def note(start: int) -> None:
            failure.doubt_from = start

        start = failure.start
        if failure.error.reason.startswith("bytes follow") and self._codec != "deflate":
            # Another member, that cannot be read. Of raw deflate, it was a false end.
            self._member_out, self._sound_at = failure.out, failure.at
            return None
        if self._codec == "gzip":
            header = self._header(start)
            if header is None:
                return None
            start += header.length
        elif self._codec == "zlib":
            start += 2
        return Chain(8 * start, 0, failure.start_out, note) if start < failure.at else None

    def _contradicted(self, error: PparseError) -> bool:
        return self._codec in ("gzip", "zlib") and any(f"incorrect {what} check" in error.reason for what in _CHECKS)

    def _members(self, at: int, piece: Piece | None, *, joins: bool = True) -> Iterator[Piece]:
        """Yield what the members hold that begin at ``at`` or behind zeros there; sets where that fails."""
        while True:
            at = self._skip_zeros(at)
            self._at, self._chain, self._by_gap = at, None, False
            self._sound_at, self._before, self._least = at, 0, 0
            if at >= self._end:
                return
            if self._codec != "gzip" or self._header(at) is None:
                if piece is not None and piece.error is None:
                    piece.error = MalformedError(f"bytes follow the {self._codec} stream", offset=at)
                if self._codec != "gzip":
                    self._at = self._end
                return
            inner = InflatedData(
                self._data.range(at, self._end), "gzip", budget=self._budget, limits=self._limits, concatenated=True,
                name=self._data.name,
            )  # fmt: skip
            inner.finish()
            error = inner.error
            failed_at = self._end if error is None or error.offset is None else error.offset
            data = EnteredData(inner, inner.produced, array("q"))
            piece = Piece(data, at, failed_at, position=self._member_out, joins=joins, error=error)
            yield piece
            self._at, joins = self._end, True
            if error is None or isinstance(error, EndOfDataError):
                return
            if not self._contradicted(error):
                self._failed_in(inner, failed_at, error, piece)
                return
            body_end = failed_at - (8 if "length check" in error.reason else 4)
            if not self._may_end(body_end + 8):
                self._failed_in(inner, body_end, error, piece)
                return
            data.doubts = (Doubt(inner.member_out, inner.produced, _CONTRADICTED),)
            self._member_out = None if self._member_out is None else self._member_out + inner.produced
            at = body_end + 8

    def _failed_in(self, inner: InflatedData, failed_at: int, error: PparseError, piece: Piece) -> None:
        """Note where members that were whole until then come to damage."""
        start = inner.member_start
        header = self._header(start)
        self._at = failed_at
        self._by_gap = isinstance(error, GapError)
        if header is not None and not error.reason.startswith("bytes follow") and start + header.length < failed_at:
            self._chain = Chain(8 * (start + header.length), 0, inner.member_out, noter(piece))
        if self._member_out is not None:
            self._member_out += inner.produced if self._chain is None else inner.member_out
        self._sound_at = start

    # -- looking for a block -----------------------------------------------------------------------------------------

    def _find(self) -> _Found | None:
        """Return the first block behind the failure that is to be believed; None if there is none."""
        begin = self._at
        if self._chain is None:
            found = self._behind_header()
            if found is not None:
                return found
        elif not self._by_gap:
            begin = max(self._chain.bit // 8, self._at - _BACK)
        pace = None if self._chain is None or self._by_gap else Pace(self._chain, self._data, self._end, begin)
        if pace is not None and self._chain is not None:
            self._note_sound(begin, pace.out)
        fallback: _Found | None = None
        tries = _MORE_TRIES
        for bit, is_member in self._candidates(8 * begin):
            self._poll()
            if bit <= self._chain_bit:
                continue
            passed = pace is not None and bit // 8 < self._at and not is_member
            if passed and pace is not None:
                in_step = pace.compare(bit)
                if in_step:
                    self._note_sound(bit // 8, pace.out)
                if in_step is not False:
                    # Entered here, not knowing what precedes it, a decoder might pass over the damage unseen.
                    continue
            found = self._believe(bit, is_member)
            if found is None:
                if self._work < 0:
                    return fallback
                continue
            trial = found.trial
            if passed and trial.end == self._at and not trial.ended:  # it fails where that failed: it is in step
                continue
            if not trial.cut:
                return found
            # The source ends: that is believed only if nothing near comes to a proper end.
            fallback = fallback or found
            tries -= 1
            if not tries:
                return fallback
        return fallback

    def _believe(self, bit: int, is_member: bool) -> _Found | None:
        """Try what may begin at ``bit``; return it if it is to be believed."""
        if is_member:
            return self._whole_member(bit // 8)
        start = self._header_before(bit // 8) if bit % 8 == 0 and self._codec == "gzip" else None
        if start is not None:
            return self._whole_member(start)
        trial = self._try(bit, _WINDOW)
        taken = trial.end - bit // 8
        if self._believed(bit, trial):
            return _Found(bit, _WINDOW, trial)
        if not trial.ended and not trial.cut and taken >= _SHORT:
            return _Found(bit, _WINDOW, trial, weak=True)
        self._work -= taken
        return None

    def _whole_member(self, at: int) -> _Found | None:
        """Return the gzip member at ``at`` if its checksum agrees."""
        header = self._header(at, most=4 * KIB)
        self._work -= _TRIAL
        if header is None:
            return None
        start = at + header.length
        trial = self._try(8 * start, 0)
        self._work -= trial.end - at
        if not trial.ended or self._sums(trial) is not True:
            return None
        return _Found(8 * at, 0, trial, fresh=True)

    def _header_before(self, at: int) -> int | None:
        """Return where a gzip header begins that ends at ``at``, if one does."""
        start = max(self._at if self._chain is None else self._chain_bit // 8, at - 4 * KIB, 0)
        head = self._peek(start, at - start)
        place = head.rfind(_MAGIC)
        while place >= 0:
            header = parse_header(head[place:])
            if header is not None and start + place + header.length == at:
                return start + place
            place = head.rfind(_MAGIC, 0, place)
        return None

    def _is_whole(self, found: _Found) -> bool:
        """Say whether all of a member was found: nothing is unknown, and its size is what the trailer says."""
        trial = found.trial
        if not trial.ended or len(trial.edges):
            return False
        size = self._peek(trial.end + 4, 4) if self._codec == "gzip" else b""
        return not found.unknown or (len(size) == 4 and int.from_bytes(size, "little") == trial.length & 0xFFFFFFFF)

    def _sums(self, trial: Trial) -> bool | None:
        """Say whether the checksum behind a stream of which all is known agrees; None if there is none."""
        trailer = self._peek(trial.end, _TRAILER[self._codec])
        if self._codec != "gzip" or len(trailer) < 8:
            return None
        size = int.from_bytes(trailer[4:], "little")
        return int.from_bytes(trailer[:4], "little") == trial.crc and size == trial.length & 0xFFFFFFFF

    @property
    def _chain_bit(self) -> int:
        return -1 if self._chain is None else self._chain.bit

    def _note_sound(self, at: int, out: int) -> None:
        """Everything before byte ``at`` was decoded well: ``out`` bytes of the chain."""
        if self._chain is not None:
            self._sound_at, self._least = at, self._before + out
            # A distance that is too far says that bytes are missing, anywhere before.
            self._chain.noted(self._chain.out + (0 if self._too_far else out))

    def _behind_header(self) -> _Found | None:
        """Return the first block of a member whose header is damaged, if it can be told where that ends."""
        if self._codec == "gzip":
            header = self._header(self._at, tolerant=True)
            start = None if header is None else self._at + header.length
        else:
            start = self._at + 2 if self._codec == "zlib" else None
        if start is None or start >= self._end:
            return None
        trial = self._try(8 * start, 0)
        return _Found(8 * start, 0, trial) if self._believed(8 * start, trial) else None

    def _candidates(self, bit: int) -> Iterator[tuple[int, bool]]:
        """Yield bits from ``bit`` on where a block may begin, or (True) a gzip member."""
        from pparse.kernels.deflate_blocks import find_blocks

        at = bit // 8
        while at < self._end:
            buffer, unknown = self._data.read_known(at, min(_SEARCH + _AHEAD, self._end - at))
            if not buffer:
                return
            last = min(_SEARCH, len(buffer))
            blocks = ((block.bit, False) for block in find_blocks(buffer, max(0, bit - 8 * at), 8 * last))
            for found, is_member in heapq.merge(blocks, self._headers(buffer, max(0, bit // 8 - at), last)):
                first = found // 8
                if not any(start <= at + first < start + count for start, count in unknown):
                    yield 8 * at + found, is_member
            at += last

    def _headers(self, buffer: bytes, first: int, last: int) -> Iterator[tuple[int, bool]]:
        """Yield the bits of ``buffer`` where the header of a gzip member may begin."""
        place = buffer.find(_MAGIC, first) if self._codec == "gzip" else -1
        while 0 <= place < last:
            if len(buffer) - place > 10 and not buffer[place + 3] & 0xE0:
                yield 8 * place, True
            place = buffer.find(_MAGIC, place + 1)

    def _try(self, bit: int, unknown: int) -> Trial:
        """Decode from ``bit`` on as far as that goes."""
        from pparse.codecs.deflate_entry import entry_stream

        trial = Trial()
        self._work -= _TRIAL
        start = at = bit // 8
        feed = 2 * KIB  # most trials are short
        stream = entry_stream(
            bit % 8, unknown=unknown, budget=self._budget, reread=partial(reread, self._data, start, self._end)
        )
        try:
            while not stream.eof:
                self._poll()
                data = b""
                if stream.needs_input:
                    try:
                        data = self._data.pread(at, min(feed, self._end - at)) if at < self._end else b""
                    except GapError:
                        trial.by_gap = True
                    feed = min(4 * feed, FEED)
                    if not data:
                        stream.finish()
                    at += len(data)
                out = stream.decompress(data, 4 * FEED)
                trial.length += len(out)
                self._take_unknown(stream, trial)
                if not trial.edges:
                    trial.crc = crc32(out, trial.crc)
                self._limits.check("inflated_bytes", trial.length, f"what {self._data.name} holds")
            trial.ended = True
        except EndOfDataError as error:
            trial.cut, trial.error = not trial.by_gap, error
        except MalformedError as error:
            trial.error = error
        self._take_unknown(stream, trial)
        trial.end = start + stream.consumed
        if trial.error is not None:
            trial.error.offset = trial.end
        stream.close()
        return trial

    @staticmethod
    def _take_unknown(stream: EntryDecompressor, trial: Trial) -> None:
        edges, more = trial.edges, stream.take_edges()
        if edges and more and edges[-1] >= more[0]:
            edges.pop()
            more = more[1:]
        edges.extend(more)
        apart = 16
        while len(edges) > 2 * _STRETCHES:
            joined = edges[:1]
            for place in range(1, len(edges) - 1, 2):
                if edges[place + 1] - edges[place] >= apart:
                    joined.extend(edges[place : place + 2])
            joined.append(edges[-1])
            trial.edges = edges = joined
            apart *= 2

    def _believed(self, bit: int, trial: Trial) -> bool:
        """Say whether a chain of blocks is this stream's own; see rule 2 at the head of the file."""
        taken = trial.end - bit // 8
        if trial.ended:
            return self._may_end(trial.end + _TRAILER[self._codec])
        if trial.cut:
            return taken > 64 or trial.length > 64
        return taken >= (_ENDED_BY_GAP if trial.by_gap else _LONG)

    def _may_end(self, at: int) -> bool:
        """Say whether the stream, trailer and all, may end at ``at``."""
        if self._codec == "deflate":
            return at == self._end
        if at >= self._end:
            return True
        at = self._skip_zeros(at)
        if at >= self._end:
            return True
        return self._codec == "gzip" and self._header(at) is not None

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _make_piece(self, found: _Found) -> Piece:
        from pparse.codecs.deflate_entry import entry_stream

        trial = found.trial
        start = found.bit // 8
        inner = InflatedData(
            self._data.range(start, self._end), "deflate", budget=self._budget, limits=self._limits,
            name=self._data.name, entered=partial(entry_stream, found.bit % 8, unknown=found.unknown),
        )  # fmt: skip
        data = EnteredData(inner, trial.length, trial.edges)
        if found.weak:
            data.doubts = (Doubt(0, trial.length, "it may belong to a compressed file inside this one"),)
        elif self._is_whole(found) and self._sums(trial) is False:
            data.doubts = (Doubt(0, trial.length, _CONTRADICTED),)
        position = None if found.fresh else self._position(found)
        whole = self._chain is None and not found.unknown
        if whole and position is None:
            position = self._member_out
        end = trial.end + (_TRAILER[self._codec] if trial.ended else 0)
        return Piece(data, start, min(end, self._end), position=position, joins=whole, error=trial.error)

    def _position(self, found: _Found) -> int | None:
        """Return where the piece begins in the output, counted back from the size that the stream says it has."""
        trial, before = found.trial, self._member_out
        if not trial.ended:
            return None
        self._member_out = None
        if before is None:
            return None
        if self._codec == "gzip":
            trailer = self._peek(trial.end, 8)
            if len(trailer) < 8:
                return None
            total = int.from_bytes(trailer[4:], "little")
            wanting = self._least + trial.length - total  # the size is stored modulo 2^32
            total += (max(0, wanting) + (1 << 32) - 1) >> 32 << 32
        elif self._codec == "deflate" and self._size is not None:
            total = self._size
        else:
            return None
        lost = found.bit // 8 - self._sound_at + 1
        if not self._least <= total - trial.length <= self._least + 1032 * lost + 64 * KIB:
            return None  # the trailer is damaged, too
        self._member_out = before + total
        return before + total - trial.length

    # -- the source --------------------------------------------------------------------------------------------------

    def _peek(self, at: int, count: int) -> bytes:
        """Return what is known of the next ``count`` bytes, up to the first gap."""
        try:
            return self._data.pread(at, max(0, min(count, self._end - at))) if at < self._end else b""
        except GapError:
            return b""

    def _header(self, at: int, *, tolerant: bool = False, most: int = MAX_HEADER) -> GzipHeader | None:
        """Return the gzip header at ``at``; more than its first bytes are read only for one that goes on."""
        for count in (64, 1 * KIB, most):
            head = self._peek(at, count)
            header = parse_header(head, tolerant=tolerant)
            if header is not None or len(head) < count or not may_go_on(head, tolerant=tolerant):
                return header
        return None

    def _skip_zeros(self, at: int) -> int:
        while at < self._end:
            block = self._peek(at, FEED)
            rest = block.lstrip(b"\0")
            if rest or not block:
                return at + len(block) - len(rest)
            at += len(block)
        return at


_CHECKS: Final = ("data", "length")
_CONTRADICTED: Final = "the checksum of the stream contradicts what was decoded"


def _end_by_reading(data: Data, at: int, end: int) -> int:
    while at < end:
        gap = data.next_gap(at)
        if gap is not None and gap.offset <= at and gap.end is not None:
            at = gap.end
            continue
        try:
            chunk = data.pread(at, min(MIB, end - at))
        except GapError:
            return at
        if not chunk:
            return at
        at += len(chunk)
    return end


def _real_end(source: Range) -> int:
    """Return where the source ends in fact: one that is decoded on the way need not know that yet."""
    data = source.data
    finish = getattr(data, "finish", None)
    if data.size is None and finish is not None:
        finish()
    if data.size is not None:
        return min(source.end, data.size)
    endless = [gap.offset for gap in data.gaps if gap.length is None]
    return min(source.end, *endless) if endless else _end_by_reading(data, source.start, source.end)
