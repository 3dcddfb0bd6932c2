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
4. *What of the block that is damaged?* Behind a gap of the source, that is gone on with; see
   `pparse.compressed.resync.deflate_inside`.
"""

from __future__ import annotations

from array import array
from contextlib import suppress
from functools import partial

from pparse.budget import MemoryBudget
from pparse.codecs.gzip_header import MAX_HEADER, may_go_on, parse_header
from pparse.compressed.inflated import InflatedData
from pparse.compressed.resync.deflate_chain import FEED, Chain, EnteredData, Entry, Pace, ended_at, noter, try_chain
from pparse.compressed.resync.deflate_inside import WINDOW, Goal, Inside
from pparse.compressed.resync.deflate_source import MAGIC, Candidates, real_end, zeros_at_end
from pparse.compressed.resync.pieces import Failure, Piece
from pparse.data.hidden import HiddenData
from pparse.data.standing import SuspectRange
from pparse.errors import EndOfDataError, Fault, GapError, LimitError, MalformedError, PparseError
from pparse.limits import KIB, MIB, Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.codecs.gzip_header import GzipHeader
    from pparse.compressed.resync.deflate_chain import Tail, Trial
    from pparse.compressed.resync.deflate_inside import Before
    from pparse.data.reader import Range

# How far before a failure the damage may begin: garbage decodes until some code, or block header, is impossible.
_BACK: Final = 256 * KIB
# Compressed bytes that a chain of blocks must have, to be believed though it ends in damage; see rule 2.
_LONG: Final = 72 * KIB
_ENDED_BY_GAP: Final = 2 * KIB
# Such a chain, shorter but longer than this, is delivered in doubt.
_SHORT: Final = 2 * KIB
# Candidates that are tried behind one that goes on to the end of a source that is cut.
_MORE_TRIES: Final = 8
_TRIAL: Final = 4 * KIB  # what a trial costs, however short, in bytes decoded
# Zeros at the end of a file that are no chance.
_ZEROS: Final = 64
# Those at the end of a stream that is cut: its compressed bytes do not end with so many but once in 2^128.
_CUT_ZEROS: Final = 16
# What is known before a stream is entered: that there is nothing, or nothing.
_BEGINNING: Final = Entry(0)
_UNKNOWN: Final = Entry(WINDOW)
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
    """Yield what can be decoded behind ``failure``, in order; sets ``failure.suspect_from``."""
    return _Walk(source, failure, codec, budget, limits, size, poll).pieces()


def judge_cut(source: Range, failure: Failure, codec: str) -> PparseError:
    """Look at a stream that ends early: return the error that says what it is; perhaps sets ``failure.suspect_from``.

    If the source ends with a trailer that fits what came out, the end is there, and damage made the decoder pass it
    over. If it ends with zeros, as a download does for which room was made in advance, they are none of the stream's.
    """
    end = real_end(source)
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
    zeros = zeros_at_end(source, chain.bit // 8, end)
    if end - zeros >= _CUT_ZEROS:
        failure.suspect_from = failure.start_out + Pace(chain, source.data, end, zeros).out
        failure.why_suspect = f"the file ends with {end - zeros:,} zeros: it was not written to its end"
    return failure.error


class _Found:
    """A place where decoding goes on: the block at bit ``bit``, what is known before it, and its trial.

    ``weak``: it may be a stream inside this one, all the same. ``fresh``: a member begins there. ``tail``: what comes
    before it of the block that is damaged. ``place``: where all that begins in the output, if that is known for sure.
    ``resolved``: up to here in the trial's output, bytes were told by what must precede it (None: none were).
    """

    __slots__ = ("bit", "entry", "fresh", "place", "resolved", "tail", "trial", "weak")

    def __init__(
        self,
        bit: int,
        entry: Entry,
        trial: Trial,
        *,
        weak: bool = False,
        fresh: bool = False,
        tail: Tail | None = None,
        place: int | None = None,
        resolved: int | None = None,
    ) -> None:
        self.bit = bit
        self.entry = entry
        self.trial = trial
        self.weak = weak
        self.fresh = fresh
        self.tail = tail
        self.place = place
        self.resolved = resolved


class _Walk:
    """One pass over what lies behind the first failure."""

    def __init__(
        self,
        source: Range,
        failure: Failure,
        codec: str,
        budget: MemoryBudget,
        limits: Limits,
        size: int | None,
        poll: Callable[[], object] | None,
    ) -> None:
        self._data = source.data
        self._start = source.start
        self._end = real_end(source)
        self._candidates = Candidates(self._data, self._end)
        self._failure = failure
        self._codec = codec
        self._budget = budget
        self._limits = limits
        self._size = size
        self._poll = poll or (lambda: None)
        self._work = 4 * (source.end - source.start) + 64 * MIB  # source bytes that may be decoded in vain
        self._at = failure.at  # where decoding failed last
        self._chain: Chain | None = None  # what failed there
        self._inside = Inside(self._data, self._end, self._end - self._start, budget, self._poll)
        self._too_far = failure.error.fault is Fault.TOO_FAR
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
        if self._chain is None and failure.error.fault is not Fault.TRAILING:
            self._at = failure.start  # its header is damaged
        if failure.error.fault is Fault.SIZE:  # where, nobody can tell
            failure.suspect_from, failure.why_suspect = 0, "the stream holds more bytes than it should"
            return
        if self._chain is not None and self._contradicted(failure.error):
            body_end = failure.at - (8 if failure.error.fault is Fault.LENGTH else 4)
            behind = body_end + _TRAILER[self._codec]
            if self._may_end(behind):
                failure.suspect_from, failure.why_suspect = failure.start_out, _CONTRADICTED
                self._member_out = failure.out
                yield from self._members(behind, None)
                return
            self._at = body_end
        while (found := self._next()) is not None:
            trial = found.trial
            if found.fresh and trial.ended:  # a whole member: those behind it may be whole, too
                self._member_out = None
                yield from self._members(found.bit // 8, None, joins=False)
            else:
                piece = self._make_piece(found)
                piece.limit, failure.limit = failure.limit, None
                yield piece
                if trial.cut:
                    return
                if trial.ended:
                    yield from self._members(trial.end + _TRAILER[self._codec], piece)
                else:
                    self._at, self._by_gap = trial.end, trial.by_gap
                    tail = 0 if found.tail is None else len(found.tail.content)
                    place = None if piece.position is None else piece.position + tail
                    self._chain = Chain(found.bit, found.entry, tail, noter(piece), place)
                    self._too_far = False
                    self._sound_at, self._before = found.bit // 8, self._least
            if self._at >= self._end:
                return

    def first_chain(self) -> Chain | None:
        """Return the decoding that failed; None if it did not come as far as a block."""
        failure = self._failure

        def note(start: int) -> None:
            failure.suspect_from = start

        start = failure.start
        if failure.error.fault is Fault.TRAILING and self._codec != "deflate":
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
        return Chain(8 * start, _BEGINNING, failure.start_out, note, failure.start_out) if start < failure.at else None

    def _contradicted(self, error: PparseError) -> bool:
        return self._codec in ("gzip", "zlib") and error.fault in (Fault.CHECKSUM, Fault.LENGTH)

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
                    piece.error = MalformedError(
                        f"bytes follow the {self._codec} stream", offset=at, fault=Fault.TRAILING
                    )
                if self._codec != "gzip":
                    self._at = self._end
                return
            inner = InflatedData(
                self._data.range(at, self._end),
                "gzip",
                budget=self._budget,
                limits=self._limits,
                concatenated=True,
                name=self._data.name,
            )
            inner.finish()
            error = inner.error
            failed_at = self._end if error is None or error.offset is None else error.offset
            data = EnteredData(inner, inner.name, inner.produced, array("q"), None)
            piece = Piece(data, at, failed_at, position=self._member_out, joins=joins, error=error)
            yield piece
            self._at, joins = self._end, True
            if error is None or isinstance(error, EndOfDataError):
                return
            if not self._contradicted(error):
                self._failed_in(inner, failed_at, error, piece)
                return
            body_end = failed_at - (8 if error.fault is Fault.LENGTH else 4)
            if not self._may_end(body_end + 8):
                self._failed_in(inner, body_end, error, piece)
                return
            data.suspect_ranges = (SuspectRange(inner.member_out, inner.produced, _CONTRADICTED),)
            self._member_out = None if self._member_out is None else self._member_out + inner.produced
            at = body_end + 8

    def _failed_in(self, inner: InflatedData, failed_at: int, error: PparseError, piece: Piece) -> None:
        """Note where members that were whole until then come to damage."""
        start = inner.member_start
        header = self._header(start)
        self._at = failed_at
        self._by_gap = isinstance(error, GapError)
        if header is not None and error.fault is not Fault.TRAILING and start + header.length < failed_at:
            place = None if piece.position is None else piece.position + inner.member_out
            self._chain = Chain(8 * (start + header.length), _BEGINNING, inner.member_out, noter(piece), place)
        if self._member_out is not None:
            self._member_out += inner.produced if self._chain is None else inner.member_out
        self._sound_at = start

    # -- looking for a block -----------------------------------------------------------------------------------------

    def _next(self) -> _Found | None:
        """Return where decoding goes on; if it failed at a gap inside a block, in that block, if possible."""
        limit, before, found = None, None, None
        with suppress(LimitError):
            limit = self._inside.wanting  # unless there is nothing to go on with, or it was gone on with
            before = self._before_gap()
            found = None if before is None else self._in_stored(before)
            limit = None if before is None or found is not None else limit
        if found is None:
            found = self._find()
            if before is not None:
                with suppress(LimitError):
                    inside = self._in_codes(before, found)
                    found, limit = (found, limit) if inside is None else (inside, None)
        self._failure.limit = limit
        return found

    def _before_gap(self) -> Before | None:
        """Return what precedes the gap that decoding came to; None if it came to none. Raises `LimitError`."""
        gap = self._data.next_gap(self._at) if self._by_gap else None
        if gap is None or self._chain is None or gap.offset > self._at or gap.end is None or gap.end >= self._end:
            return None
        if self._is_vague(gap.offset, gap.end):
            return None
        return self._inside.before(self._chain, gap.offset)

    def _is_vague(self, start: int, end: int) -> bool:
        return isinstance(self._data, HiddenData) and self._data.is_vague(start, end)

    def _in_stored(self, before: Before) -> _Found | None:
        resumed = self._inside.in_stored(before)
        if resumed is None or resumed.tail is None or before.block is None:
            return None
        end = resumed.bit // 8
        trial = ended_at(end) if before.block.final else self._try(resumed.bit, resumed.entry)
        if trial.ended:
            if not self._may_end(trial.end + _TRAILER[self._codec]):
                return None
        elif not trial.by_gap and not trial.length:
            return None  # there is no block
        place = None if before.place is None else before.place + resumed.tail.at - before.at
        total = self._total(resumed.bit, trial)
        wanted = None if total is None or self._member_out is None else self._member_out + total
        if place is not None and wanted not in (None, place + len(resumed.tail.content) + trial.length):
            return None
        return _Found(resumed.bit, resumed.entry, trial, tail=resumed.tail, place=place)

    def _in_codes(self, before: Before, found: _Found | None) -> _Found | None:
        if found is None or found.fresh:  # nothing begins behind it but, perhaps, a member: it is the last block
            limit = self._end if found is None else found.bit // 8
            if self._is_vague(before.start // 8, limit):
                return None
            alone = found is None and self._failure.start == self._start
            bit = 8 * (limit - _TRAILER[self._codec])
            resumed = self._inside.in_codes(before, Goal(bit, None, partial(self._place_of_end, limit), alone=alone))
            if resumed is None:
                return None
            last = ended_at(resumed.bit // 8)
            return _Found(resumed.bit, resumed.entry, last, tail=resumed.tail, resolved=last.length)
        trial, total = found.trial, self._total(found.bit, found.trial)
        if found.weak or total is None or self._member_out is None or self._is_vague(before.start // 8, found.bit // 8):
            return None
        resumed = self._inside.in_codes(before, Goal(found.bit, self._member_out + total - trial.length))
        if resumed is None:
            return None
        again = self._try(found.bit, resumed.entry)
        if (again.length, again.end, again.ended) != (trial.length, trial.end, trial.ended):
            return None
        resolved = trial.edges[-1] if trial.edges else 0
        return _Found(found.bit, resumed.entry, again, tail=resumed.tail, resolved=resolved)

    def _place_of_end(self, limit: int, at: int) -> int | None:
        """Return how much output there is if the stream ends at ``at``; None if it cannot end there."""
        behind = at + _TRAILER[self._codec]
        if not (behind == limit or behind <= limit - _ZEROS) or not self._may_end(behind):
            return None  # sizes end with zeros: a few are no padding
        total = self._total(8 * at, ended_at(at))
        return None if total is None or self._member_out is None else self._member_out + total

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
        for bit, is_member in self._candidates.find(8 * begin, members=self._codec == "gzip"):
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
        trial = self._try(bit, _UNKNOWN)
        taken = trial.end - bit // 8
        if self._believed(bit, trial):
            return _Found(bit, _UNKNOWN, trial)
        if not trial.ended and not trial.cut and taken >= _SHORT:
            return _Found(bit, _UNKNOWN, trial, weak=True)
        self._work -= taken
        return None

    def _whole_member(self, at: int) -> _Found | None:
        """Return the gzip member at ``at`` if its checksum agrees."""
        header = self._header(at, most=4 * KIB)
        self._work -= _TRIAL
        if header is None:
            return None
        start = at + header.length
        trial = self._try(8 * start, _BEGINNING)
        self._work -= trial.end - at
        if not trial.ended or self._sums(trial) is not True:
            return None
        return _Found(8 * at, _BEGINNING, trial, fresh=True)

    def _header_before(self, at: int) -> int | None:
        """Return where a gzip header begins that ends at ``at``, if one does."""
        start = max(self._at if self._chain is None else self._chain_bit // 8, at - 4 * KIB, 0)
        head = self._peek(start, at - start)
        place = head.rfind(MAGIC)
        while place >= 0:
            header = parse_header(head[place:])
            if header is not None and start + place + header.length == at:
                return start + place
            place = head.rfind(MAGIC, 0, place)
        return None

    def _is_whole(self, found: _Found) -> bool:
        """Say whether all of a member was found: nothing is unknown, and its size is what the trailer says."""
        trial = found.trial
        if not trial.ended or len(trial.edges):
            return False
        size = self._peek(trial.end + 4, 4) if self._codec == "gzip" else b""
        return not found.entry.unknown or (
            len(size) == 4 and int.from_bytes(size, "little") == trial.length & 0xFFFFFFFF
        )

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
        trial = self._try(8 * start, _BEGINNING)
        return _Found(8 * start, _BEGINNING, trial) if self._believed(8 * start, trial) else None

    def _try(self, bit: int, entry: Entry) -> Trial:
        """Decode from ``bit`` on as far as that goes."""
        self._work -= _TRIAL
        source = self._data.range(bit // 8, self._end)
        return try_chain(source, bit % 8, entry, budget=self._budget, limits=self._limits, poll=self._poll)

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

        trial, tail, entry = found.trial, found.tail, found.entry
        start = found.bit // 8
        inner = (
            None
            if not trial.length and trial.ended
            else InflatedData(
                self._data.range(start, self._end),
                "deflate",
                budget=self._budget,
                limits=self._limits,
                name=self._data.name,
                entered=partial(entry_stream, found.bit % 8, entry.window, entry.unknown, entry.holes),
            )
        )
        data = EnteredData(inner, self._data.name, trial.length, trial.edges, tail)
        size = data.size or 0
        if found.weak:
            data.suspect_ranges = (SuspectRange(0, size, "it may belong to a compressed file inside this one"),)
        elif self._is_whole(found) and self._sums(trial) is False:
            data.suspect_ranges = (SuspectRange(0, size, _CONTRADICTED),)
        elif found.resolved is not None:
            data.suspect_ranges = (SuspectRange(0, size - trial.length + found.resolved, _PUT_TOGETHER),)
        position = None if found.fresh else self._position(found)
        if found.place is not None:
            position = found.place
        elif position is not None:
            position -= size - trial.length
        whole = self._chain is None and not entry.unknown
        if whole and position is None:
            position = self._member_out
        end = trial.end + (_TRAILER[self._codec] if trial.ended else 0)
        at = start if tail is None else tail.at
        return Piece(data, at, min(end, self._end), position=position, joins=whole, error=trial.error)

    def _position(self, found: _Found) -> int | None:
        """Return where the block begins in the output, and note where the next member does."""
        before, total = self._member_out, self._total(found.bit, found.trial)
        if found.trial.ended:
            self._member_out = None if before is None or total is None else before + total
        return None if before is None or total is None else before + total - found.trial.length

    def _total(self, bit: int, trial: Trial) -> int | None:
        """Return how long the member's output is by what it says at its end, if that agrees with what is known."""
        if not trial.ended or self._member_out is None:
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
        lost = bit // 8 - self._sound_at + 1
        if not self._least <= total - trial.length <= self._least + 1032 * lost + 64 * KIB:
            return None  # the trailer is damaged, too
        return total

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
        count = 64
        while at < self._end:
            block = self._peek(at, count)
            rest = block.lstrip(b"\0")
            if rest or not block:
                return at + len(block) - len(rest)
            at += len(block)
            count = min(4 * count, FEED)
        return at


_PUT_TOGETHER: Final = "it copies from where bytes are lost, and was put together by where the next block must begin"
_CONTRADICTED: Final = "the checksum of the stream contradicts what was decoded"
