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
from collections import namedtuple
from contextlib import suppress
from functools import partial

from pparse.codecs.deflate_entry import EntryDecompressor
from pparse.compressed.env import DecodeEnv
from pparse.compressed.resync import Failure, Piece, deflate_source, real_end
from pparse.compressed.resync.deflate_inside import Goal, Inside
from pparse.compressed.resync.deflate_source import (
    BACK,
    Candidates,
    Chain,
    DeflateSource,
    EnteredAt,
    EnteredData,
    Pace,
    Trial,
    missed_end,
    noter,
    try_chain,
)
from pparse.data.range_status import SuspectRange
from pparse.data.spliced import HiddenData
from pparse.data.zero_runs import zeros_at_end
from pparse.errors import TRAILER_FAULTS, EndOfDataError, Fault, GapError, LimitError, MalformedError, PparseError
from pparse.limits import KIB, MIB, MemoryBudget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Final

    from pparse.compressed.inflated import InflatedData
    from pparse.compressed.resync.deflate_inside import Before
    from pparse.compressed.resync.deflate_source import DamageCandidate
    from pparse.data.base import Range

# Compressed bytes that a chain of blocks must have, to be believed though it ends in damage; see rule 2.
_LONG: Final = 72 * KIB
_HEADER_ROOM: Final = 8 + 64  # from the last block of a member to the first of the next: a trailer, and a header
# Bytes that are lost are not compressed so many times as well as those behind them.
_RATES: Final = 2
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
_BEGINNING: Final = EnteredAt(unknown=0)
_UNKNOWN: Final = EnteredAt()
_PUT_TOGETHER: Final = "it copies from lost bytes, which were inferred from where the next block must begin"
_ANOTHERS: Final = "a gzip member before it may have another length than is known: it may have another place"
_CONTRADICTED: Final = "the checksum of the stream contradicts what was decoded"


def pieces(source: Range, failure: Failure, env: DecodeEnv, *, codec: str, size: int | None = None) -> Iterator[Piece]:
    """Yield what can be decoded behind ``failure``, in order; sets ``failure.suspect_from``."""
    return _DeflateWalk(source, failure, codec, env, size).pieces()


def judge_cut(source: Range, failure: Failure, codec: str) -> PparseError:
    """Look at a stream that ends early: return the error that says what it is; perhaps sets ``failure.suspect_from``.

    If a trailer that fits what came out is at its end, or before zeros there, damage made the decoder pass it over. If
    it ends with zeros, as a download does for which room was made in advance, they are none of the stream's.
    """
    end = real_end(source)
    chain = _DeflateWalk(source, failure, codec, DecodeEnv(MemoryBudget(64 * MIB)), None).first_position().chain
    if chain is None:
        return failure.error
    out = failure.out - failure.start_out
    zeros = zeros_at_end(source.data, chain.bit // 8, end)
    stop = missed_end(source, chain.bit // 8, zeros, end, out) if codec == "gzip" else None
    if stop is not None:
        return MalformedError("the decoder missed the end of the gzip stream", offset=stop)
    if end - zeros >= _CUT_ZEROS:
        failure.suspect_from = failure.start_out + Pace(chain, source.data, end, zeros).out
        failure.why_suspect = f"the file ends with {end - zeros:,} zeros: it was not written to its end"
    return failure.error


def probable_damage(source: Range, failure: Failure, codec: str) -> list[DamageCandidate]:
    """Return where a stream that came to its end, and is contradicted there, was probably damaged.

    Or one that came to no end: a decoder that damage has put out of step may miss it.
    """
    first = DeflateSource(source, codec).body(failure.start) or failure.start
    end = min(failure.at, source.end)
    if end <= first:
        return []
    chain = Chain(8 * first, _BEGINNING, 0, None, None, failure.saved)
    cut, produced = isinstance(failure.error, EndOfDataError), failure.out - failure.start_out
    return deflate_source.probable_damage(source.data.range(first, end), chain, produced, cut=cut)


class _Position(
    namedtuple(
        "_Position", "at member_out chain by_gap too_far sound before out", defaults=(None, False, False, None, 0, 0)
    )
):
    """Where decoding failed, and what is known there.

    ``at``: the byte of the source. ``chain``: what failed there, if it came as far as a block; ``by_gap``: the source
    has a gap there; ``too_far``: what failed was a distance. ``member_out``: where the member in question begins in the
    output, if known. Decoding was right up to byte ``sound`` of the source (None: to ``at``): ``before`` bytes of the
    member precede the chain, at least, and ``out`` came of it.
    """

    __slots__ = ()

    @property
    def least(self) -> int:
        """How many bytes of the member come before what follows, at least."""
        return int(self.before + self.out)


class _Reentry(
    namedtuple("_Reentry", "bit entry trial weak fresh tail place resolved", defaults=(False, False, None, None, None))
):
    """A place where decoding goes on: the block at bit ``bit``, what is known before it, and its trial.

    ``weak``: it may be a stream inside this one, all the same. ``fresh``: a member begins there. ``tail``: what comes
    before it of the block that is damaged. ``place``: where all that begins in the output, if that is known for sure.
    ``resolved``: up to here in the trial's output, bytes were told by what must precede it (None: none were).
    """

    __slots__ = ()


class _DeflateWalk:
    """One pass over what lies behind the first failure."""

    def __init__(self, source: Range, failure: Failure, codec: str, env: DecodeEnv, size: int | None) -> None:
        self._source = DeflateSource(source, codec)
        self._data = source.data
        self._end = self._source.end
        self._candidates = Candidates(self._data, self._end)
        self._failure, self._codec, self._env, self._size = failure, codec, env, size
        self._work = 4 * (source.end - source.start) + 64 * MIB  # source bytes that may be decoded in vain
        self._inside = Inside(self._data, self._end, self._end - source.start, env)
        self._is_unsure = False  # whether what comes may have another place: a member before it another length

    # -- the walk ----------------------------------------------------------------------------------------------------

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces, in order."""
        failure, here = self._failure, self.first_position()
        if failure.error.fault is Fault.SIZE:  # where, nobody can tell
            failure.suspect_from, failure.why_suspect = 0, "the stream holds more bytes than it should"
            return
        body_end = 0
        if here.chain is not None and failure.error.fault in TRAILER_FAULTS:
            body_end = failure.at - (8 if failure.error.fault is Fault.LENGTH else 4)
            behind = body_end + self._source.trailer
            # A decoder compares the length last: the checksum agreed, so the member did end, whatever follows it.
            if failure.error.fault is Fault.LENGTH or self._source.may_end(behind):
                self._doubt_first()
                end = self._source.end_of_member(failure.start, behind, failure.start_out, failure.out, failure.error)
                made = failure.out - failure.start_out
                self._is_unsure = failure.error.fault is not Fault.LENGTH and self._source.contradicts(behind, made)
                here = yield from self._members(_Position(behind, end), None, joins=end == failure.out)
                if here.at >= self._end:
                    return
            else:
                here = self.first_position(body_end)
        found, here = self._next(here)
        if found and body_end and not found.fresh and 0 <= found.bit // 8 - body_end <= _HEADER_ROOM:
            # The member did end there. Its trailer is damaged, and so is the header of the one that goes on here.
            self._doubt_first()
            found, here = self._next(_Position(min(body_end + self._source.trailer, found.bit // 8), failure.out))
        while found is not None:
            trial = found.trial
            if found.fresh and trial.ended:  # a whole member: those behind it may be whole, too
                here = _Position(found.bit // 8, None, too_far=here.too_far)
                here = yield from self._members(here, None, joins=False)
            else:
                piece, member_out = self._make_piece(found, here)
                piece.limit, failure.limit = failure.limit, None
                yield piece
                if trial.cut:
                    return
                if trial.ended:
                    here = _Position(trial.end + self._source.trailer, member_out, too_far=here.too_far)
                    here = yield from self._members(here, piece)
                else:
                    here = self._damaged_again(found, here, piece)
            if here.at >= self._end:
                return
            found, here = self._next(here)

    def _doubt_first(self) -> None:
        """Put the content of the member that failed in doubt, unless only its length is wrong, and not its checksum."""
        failure = self._failure
        if failure.error.fault is not Fault.LENGTH:
            failure.suspect_from, failure.why_suspect = failure.start_out, _CONTRADICTED

    def _damaged_again(self, found: _Reentry, here: _Position, piece: Piece) -> _Position:
        """Return where the chain of blocks fails that ``piece`` is made of."""
        tail = 0 if found.tail is None else len(found.tail.content)
        place = None if piece.position is None else piece.position + tail
        return _Position(
            found.trial.end,
            here.member_out,
            chain=Chain(found.bit, found.entry, tail, noter(piece), place, found.trial.points.saved),
            by_gap=found.trial.by_gap,
            sound=found.bit // 8,
            before=here.least,
        )

    def first_position(self, at: int | None = None) -> _Position:
        """Return where decoding failed at first; ``at``, if it was there and not where that showed."""
        failure = self._failure
        if failure.error.fault is Fault.TRAILING and self._codec != "deflate":
            # Another member, that cannot be read. Of raw deflate, it was a false end.
            return _Position(failure.at, failure.out)
        chain = self._first_chain()
        if chain is None and failure.error.fault is not Fault.TRAILING:
            at = failure.start  # its header is damaged
        return _Position(
            failure.at if at is None else at,
            failure.start_out,
            chain=chain,
            by_gap=isinstance(failure.error, GapError),
            too_far=failure.error.fault is Fault.TOO_FAR,
            sound=failure.start,
        )

    def _first_chain(self) -> Chain | None:
        """Return the decoding that failed; None if it did not come as far as a block."""
        failure = self._failure

        def note(start: int) -> None:
            failure.suspect_from = start

        start = self._source.body(failure.start)
        if start is None or start >= failure.at:
            return None
        return Chain(8 * start, _BEGINNING, failure.start_out, note, failure.start_out, failure.saved)

    def _members(
        self, here: _Position, piece: Piece | None, *, joins: bool = True
    ) -> Generator[Piece, None, _Position]:
        """Yield what the members hold that begin at ``here`` or behind zeros there; return where that fails.

        ``piece`` is what precedes them, and learns what follows it if that is none.
        """
        source, end = self._source, self._end
        while True:
            at = source.skip_zeros(here.at)
            here = _Position(at, here.member_out, too_far=here.too_far)
            if at >= end:
                return here
            if self._codec != "gzip" or source.header(at) is None:
                if piece is not None and piece.error is None:
                    reason = f"bytes follow the {self._codec} stream"
                    piece.error = MalformedError(reason, offset=at, fault=Fault.TRAILING)
                return here if self._codec == "gzip" else _Position(end, None)
            inner = self._env.inflate(self._data.range(at, end), "gzip", concatenated=True)
            inner.verify()
            error = inner.error
            failed_at = end if error is None or error.offset is None else error.offset
            data = EnteredData(inner, inner.name, inner.produced, array("q"), None)
            piece = Piece(data, at, failed_at, position=here.member_out, joins=joins, error=error)
            is_unsure = self._is_unsure and piece.position is not None
            if is_unsure:
                data.suspect_ranges = (SuspectRange(0, inner.produced, _ANOTHERS),)
            yield piece
            joins = True
            if error is None or isinstance(error, EndOfDataError):
                return _Position(end, None)
            agreed = error.fault is Fault.LENGTH
            if error.fault in TRAILER_FAULTS:
                failed_at -= 8 if agreed else 4
            if error.fault not in TRAILER_FAULTS or not (agreed or source.may_end(failed_at + 8)):
                return self._failed_in(inner, failed_at, error, piece, here)
            if not agreed and not is_unsure:
                data.suspect_ranges = (SuspectRange(inner.member_out, inner.produced, _CONTRADICTED),)
            member_end = source.end_of_member(
                inner.member_start, failed_at + 8, inner.member_out, inner.produced, error
            )
            made = inner.produced - inner.member_out
            self._is_unsure = self._is_unsure or (not agreed and source.contradicts(failed_at + 8, made))
            joins = member_end == inner.produced
            member_out = None if here.member_out is None else here.member_out + member_end
            here = _Position(failed_at + 8, member_out, too_far=here.too_far)

    def _failed_in(
        self, inner: InflatedData, failed_at: int, error: PparseError, piece: Piece, here: _Position
    ) -> _Position:
        """Return where the members of ``piece``, whole until then, come to damage."""
        start, chain = inner.member_start, None
        body = self._source.body(start)
        if body is not None and error.fault is not Fault.TRAILING and body < failed_at:
            place = None if piece.position is None else piece.position + inner.member_out
            chain = Chain(8 * body, _BEGINNING, inner.member_out, noter(piece), place, inner.saved_decoders)
        member_out = here.member_out
        if member_out is not None:
            member_out += inner.produced if chain is None else inner.member_out
        by_gap = isinstance(error, GapError)
        return _Position(failed_at, member_out, chain=chain, by_gap=by_gap, too_far=here.too_far, sound=start)

    # -- looking for a block -----------------------------------------------------------------------------------------

    def _next(self, here: _Position) -> tuple[_Reentry | None, _Position]:
        """Return where decoding goes on; if it failed at a gap inside a block, in that block, if possible.

        With it comes the position, with what was learned of it on the way.
        """
        limit, before, found = None, None, None
        with suppress(LimitError):
            limit = self._inside.wanting  # unless there is nothing to go on with, or it was gone on with
            before = self._before_gap(here)
            found = None if before is None else self._in_stored(before, here)
            limit = None if before is None or found is not None else limit
        if found is None:
            found, here = self._find(here)
            if before is not None:
                with suppress(LimitError):
                    inside = self._in_codes(before, found, here)
                    found, limit = (found, limit) if inside is None else (inside, None)
        self._failure.limit = limit
        return found, here

    def _before_gap(self, here: _Position) -> Before | None:
        """Return what precedes the gap that decoding came to; None if it came to none. Raises `LimitError`."""
        gap = self._data.next_gap(here.at) if here.by_gap else None
        if gap is None or here.chain is None or gap.offset > here.at or gap.end is None or gap.end >= self._end:
            return None
        if self._is_vague(gap.offset, gap.end):
            return None
        return self._inside.before(here.chain, gap.offset)

    def _is_vague(self, start: int, end: int) -> bool:
        return isinstance(self._data, HiddenData) and self._data.is_vague(start, end)

    def _in_stored(self, before: Before, here: _Position) -> _Reentry | None:
        resumed = self._inside.in_stored(before)
        if resumed is None or resumed.tail is None or before.block is None:
            return None
        end = resumed.bit // 8
        trial = Trial(end, ended=True) if before.block.final else self._try(resumed.bit, resumed.entry)
        if trial.ended:
            if not self._source.may_end(trial.end + self._source.trailer):
                return None
        elif not trial.by_gap and not trial.length:
            return None  # there is no block
        place = None if before.place is None else before.place + resumed.tail.at - before.at
        wanted = self._member_end(here, resumed.bit, trial)
        if place is not None and wanted not in (None, place + len(resumed.tail.content) + trial.length):
            return None
        return _Reentry(resumed.bit, resumed.entry, trial, tail=resumed.tail, place=place)

    def _in_codes(self, before: Before, found: _Reentry | None, here: _Position) -> _Reentry | None:
        if found is None or found.fresh:  # nothing begins behind it but, perhaps, a member: it is the last block
            limit = self._end if found is None else found.bit // 8
            if self._is_vague(before.start // 8, limit):
                return None
            alone = found is None and self._failure.start == self._source.start
            bit = 8 * (limit - self._source.trailer)
            last_place = partial(self._place_of_end, here, limit)
            resumed = self._inside.in_codes(before, Goal(bit, None, last_place, alone=alone))
            if resumed is None:
                return None
            last = Trial(resumed.bit // 8, ended=True)
            return _Reentry(resumed.bit, resumed.entry, last, tail=resumed.tail, resolved=last.length)
        trial, end = found.trial, self._member_end(here, found.bit, found.trial)
        if found.weak or end is None or self._is_vague(before.start // 8, found.bit // 8):
            return None
        resumed = self._inside.in_codes(before, Goal(found.bit, end - trial.length))
        if resumed is None:
            return None
        # What precedes decides which bytes come out, and neither how many nor where they end.
        resolved = trial.edges[-1] if trial.edges else 0
        again = self._try(found.bit, resumed.entry, until_known=True)
        trial.edges, trial.points = again.edges, again.points
        return found._replace(entry=resumed.entry, tail=resumed.tail, resolved=resolved)

    def _place_of_end(self, here: _Position, limit: int, at: int) -> int | None:
        """Return how much output there is if the stream ends at ``at``; None if it cannot end there."""
        behind = at + self._source.trailer
        if not (behind == limit or behind <= limit - _ZEROS) or not self._source.may_end(behind):
            return None  # sizes end with zeros: a few are no padding
        return self._member_end(here, 8 * at, Trial(at, ended=True))

    def _find(self, position: _Position) -> tuple[_Reentry | None, _Position]:
        """Return the first block behind the failure that is to be believed, None if there is none; and the position."""
        if position.chain is None:
            found = self._behind_header(position.at)
            if found is not None:
                return found, position
        here = position
        fallback: _Reentry | None = None
        tries = _MORE_TRIES
        for bit, is_member, passed, here in self._untried(position):
            found = self._believe(bit, is_member, here)
            if found is None:
                if self._work < 0:
                    break
                continue
            trial = found.trial
            if passed and trial.end == here.at and not trial.ended:  # it fails where that failed: it is in step
                continue
            if not trial.cut:
                return found, here
            # The source ends: that is believed only if nothing near comes to a proper end.
            fallback = fallback or found
            tries -= 1
            if not tries:
                break
        return fallback, here

    def _untried(self, here: _Position) -> Iterator[tuple[int, bool, bool, _Position]]:
        """Yield the bits where a block may begin, whether it is a member, and whether the chain passed it.

        Left out is where the chain was in step; what that says of the position comes with what is yielded next.
        """
        begin, pace = here.at, None
        if here.chain is not None and not here.by_gap:
            begin = max(here.chain.bit // 8, here.at - BACK)
            pace = Pace(here.chain, self._data, self._end, begin)
            here = self._note_sound(here, begin, pace.out)
        for bit, is_member in self._candidates.find(8 * begin, members=self._codec == "gzip"):
            self._env.poll()
            if here.chain is not None and bit <= here.chain.bit:
                continue
            passed = pace is not None and bit // 8 < here.at and not is_member
            if passed and pace is not None:
                in_step = pace.compare(bit)
                if in_step:
                    here = self._note_sound(here, bit // 8, pace.out)
                if in_step is not False:
                    # Entered here, not knowing what precedes it, a decoder might pass over the damage unseen.
                    continue
            yield bit, is_member, passed, here

    def _believe(self, bit: int, is_member: bool, here: _Position) -> _Reentry | None:
        """Try what may begin at ``bit``; return it if it is to be believed."""
        if is_member:
            return self._whole_member(bit // 8)
        start = None
        if bit % 8 == 0 and self._codec == "gzip":
            start = self._source.header_before(bit // 8, here.at if here.chain is None else here.chain.bit // 8)
        if start is not None:
            return self._whole_member(start)
        trial = self._try(bit, _UNKNOWN)
        taken = trial.end - bit // 8
        if self._believed(bit, trial):
            return _Reentry(bit, _UNKNOWN, trial)
        if not trial.ended and not trial.cut and taken >= _SHORT:
            return _Reentry(bit, _UNKNOWN, trial, weak=True)
        self._work -= taken
        return None

    def _whole_member(self, at: int) -> _Reentry | None:
        """Return the gzip member at ``at`` if its checksum agrees."""
        start = self._source.body(at, most=4 * KIB)
        self._work -= _TRIAL
        if start is None:
            return None
        trial = self._try(8 * start, _BEGINNING)
        self._work -= trial.end - at
        if not trial.ended or self._source.sums(trial) is not True:
            return None
        return _Reentry(8 * at, _BEGINNING, trial, fresh=True)

    def _note_sound(self, here: _Position, at: int, out: int) -> _Position:
        """Note that everything before byte ``at`` was decoded well: ``out`` bytes of the chain."""
        if here.chain is not None:
            # A distance that is too far says that bytes are missing, anywhere before.
            here.chain.noted(here.chain.out + (0 if here.too_far else out))
        return here._replace(sound=at, out=out)

    def _behind_header(self, at: int) -> _Reentry | None:
        """Return the first block of a member whose header is damaged, if it can be told where that ends."""
        start = self._source.body(at, tolerant=True)
        if start is None or start >= self._end or self._codec == "deflate":
            return None
        trial = self._try(8 * start, _BEGINNING)
        return _Reentry(8 * start, _BEGINNING, trial) if self._believed(8 * start, trial) else None

    def _try(self, bit: int, entry: EnteredAt, *, until_known: bool = False) -> Trial:
        """Do what `try_chain` does from ``bit`` on, and count it."""
        self._work -= _TRIAL
        return try_chain(self._data, self._end, bit, entry, self._env, until_known=until_known)

    def _believed(self, bit: int, trial: Trial) -> bool:
        """Say whether a chain of blocks is this stream's own; see rule 2 at the head of the file."""
        taken = trial.end - bit // 8
        if trial.ended:
            return self._source.may_end(trial.end + self._source.trailer)
        if trial.cut:
            return taken > 64 or trial.length > 64
        return taken >= (_ENDED_BY_GAP if trial.by_gap else _LONG)

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _make_piece(self, found: _Reentry, here: _Position) -> tuple[Piece, int | None]:
        """Return the piece that begins at ``found``, and where the next member begins in the output."""
        trial, tail, entry = found.trial, found.tail, found.entry
        start = found.bit // 8
        inner = None
        if trial.length or not trial.ended:
            entered = partial(EntryDecompressor, found.bit % 8, *entry)
            inner = self._env.inflate(self._data.range(start, self._end), "deflate", entered=entered)
            inner.take_over(trial.points, trial.length)
        data = EnteredData(inner, self._data.name, trial.length, trial.edges, tail)
        size = data.size or 0
        if found.weak:
            data.suspect_ranges = (SuspectRange(0, size, "it may belong to a compressed file inside this one"),)
        elif self._source.is_whole(trial, entry.unknown) and self._source.sums(trial) is False:
            data.suspect_ranges = (SuspectRange(0, size, _CONTRADICTED),)
        elif found.resolved is not None:
            data.suspect_ranges = (SuspectRange(0, size - trial.length + found.resolved, _PUT_TOGETHER),)
        member_end = None if found.fresh else self._member_end(here, found.bit, trial)
        if tail is None and member_end is not None and self._may_be_anothers(here, found.bit, trial, member_end):
            self._is_unsure = True
        member_out = member_end if trial.ended and not found.fresh else here.member_out
        position = found.place
        if position is None and member_end is not None:
            position = member_end - size
        whole = here.chain is None and not entry.unknown
        if whole and position is None:
            position = member_out
        end = trial.end + (self._source.trailer if trial.ended else 0)
        at = start if tail is None else tail.at
        if self._is_unsure and position is not None:
            data.suspect_ranges = (SuspectRange(0, size, _ANOTHERS),)
        return Piece(data, at, min(end, self._end), position=position, joins=whole, error=trial.error), member_out

    def _member_end(self, here: _Position, bit: int, trial: Trial) -> int | None:
        """Return where in the output the member ends of which ``trial`` is the last, if it says so and that may be."""
        if not trial.ended or here.member_out is None:
            return None
        if self._codec == "gzip":
            trailer = self._source.peek(trial.end, 8)
            if len(trailer) < 8:
                return None
            total = int.from_bytes(trailer[4:], "little")
            wanting = here.least + trial.length - total  # the size is stored modulo 2^32
            total += (max(0, wanting) + (1 << 32) - 1) >> 32 << 32
        elif self._codec == "deflate" and self._size is not None:
            total = self._size
        else:
            return None
        lost = bit // 8 - (here.at if here.sound is None else here.sound) + 1
        # No encoder makes more of it. A trailer and a header may be lost: the size is that of another member then.
        least = here.least + max(0, 8 * lost // 9 - _HEADER_ROOM)
        if not least <= total - trial.length <= here.least + 1032 * lost + 64 * KIB:
            return None  # the trailer is damaged, too, or another member's
        return int(here.member_out + total)

    def _may_be_anothers(self, here: _Position, bit: int, trial: Trial, end: int) -> bool:
        """Say whether a piece with the end of a member may be another's than the one that is damaged: its beginning,
        and the end of that, are lost, too. Then what it lacks is not much more than such bytes make of what is lost."""
        if self._codec != "gzip" or (here.chain is None and here.at == self._source.start):
            return False  # a file begins with one member, as nearly all do
        gaps = self._data.gaps_in(here.at, bit // 8) if here.by_gap else ()
        if here.by_gap and sum((gap.end or self._end) - gap.offset for gap in gaps) <= self._source.trailer:
            return False  # all else is there, and no header is in it
        lost = bit // 8 - (here.at if here.sound is None else here.sound)
        rate = max(1, trial.length / max(1, trial.end - bit // 8))
        return bool(end - here.member_out - trial.length <= _RATES * rate * lost)
