"""A compressed stream, read on behind damage: `ResumedData`.

As long as nothing is wrong it is an `InflatedData`. Where that comes to damage, the codec's module looks for places
where decoding can begin again (see `pparse.compressed.resync`), once and to the end of the stream; what comes out there
is placed behind gaps. Where a piece belongs is known exactly if its format says so (a size, an index, a trailer counted
from the end); else the gap before it is inexact, and offsets behind it are an estimate.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from functools import partial
from itertools import pairwise
from operator import attrgetter

from pparse.compressed.inflated import DecodedData, InflatedData
from pparse.compressed.resync import BEFORE_DAMAGE, Failure, module_of, real_end
from pparse.data.base import GapTable
from pparse.data.range_status import SuspectRange
from pparse.data.zero_runs import zeros_at_end
from pparse.errors import EndOfDataError, Fault, GapError, LimitError, MalformedError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Final, Unpack

    from pparse.compressed.gzip_index import GzipIndex
    from pparse.compressed.inflated import Decoding
    from pparse.compressed.resync import Piece
    from pparse.data.base import Data, Range
    from pparse.errors import PparseError

# -- Where in the output what was decoded belongs: `Placement` ---------------------------------------------------------


class Placed:
    """``data`` at ``[start, end)`` of the whole."""

    __slots__ = ("data", "end", "start")

    def __init__(self, start: int, data: Data, size: int) -> None:
        self.start = start
        self.end = start + size
        self.data = data


class Placement:
    """What was decoded before damage, ``size`` bytes of ``head``, and the pieces behind it, with gaps between them."""

    __slots__ = ("gaps", "placed")

    def __init__(self, head: Data, size: int) -> None:
        self.placed = [Placed(0, head, size)]
        self.gaps = GapTable()

    @property
    def end(self) -> int:
        """Where the last piece ends."""
        return self.placed[-1].end

    def stretches(self, offset: int, length: int) -> Iterator[tuple[Data, int, int]]:
        """Yield what is at ``[offset, offset + length)``, up to a gap: data, offset there, length."""
        place = bisect_right(self.placed, offset, key=attrgetter("start")) - 1
        while length and 0 <= place < len(self.placed):
            placed = self.placed[place]
            if not placed.start <= offset < placed.end:
                return
            count = min(length, placed.end - offset)
            yield placed.data, offset - placed.start, count
            offset += count
            length -= count
            place += 1

    def read(self, offset: int, length: int) -> bytes:
        """Return what is there at ``offset``, up to a gap."""
        pieces: list[bytes] = []
        for data, first, count in self.stretches(offset, length):
            pieces.append(data.pread(first, count))
            if len(pieces[-1]) < count:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def place_all(self, pieces: Sequence[tuple[Piece, int]]) -> None:
        """Place pieces, each with an estimate of how many bytes are missing before it, behind the head."""
        waiting: list[tuple[Piece, int]] = []
        for piece, lost in pieces:
            waiting.append((piece, lost))
            if piece.position is not None:
                self._lay(waiting, piece.position)
                waiting = []
        self._lay(waiting, None)

    def _lay(self, pieces: Sequence[tuple[Piece, int]], position: int | None) -> None:
        """Place pieces of which the last one begins at ``position``; None: nobody knows."""
        last = self.placed[-1]
        slack = None
        if position is not None:
            if len(pieces) == 1 and position < last.end:  # what was decoded last was too much
                last.end = max(last.start, position)
            slack = position - last.end - sum(piece.data.size or 0 for piece, _ in pieces[:-1])
        rooms, exact = _rooms([0 if piece.joins and not lost else max(1, lost) for piece, lost in pieces], slack)
        for (piece, _), room in zip(pieces, rooms, strict=True):
            if room:
                self.gaps.add(self.end, room, exact)
            placed = Placed(self.end + room, piece.data, piece.data.size or 0)
            self.placed.append(placed)
            self.gaps.add_all(piece.data.gaps, placed.start)

    def close(self) -> None:
        """Close all that is placed."""
        for placed in self.placed:
            placed.data.close()
        self.placed = []


def _rooms(estimates: list[int], slack: int | None) -> tuple[list[int], bool]:
    """Return how many bytes are missing at each place, and whether that is exact, if ``slack`` are missing in all.

    If just one place lacks bytes, their number follows; else the room there is gets divided.
    """
    if slack is None:
        return estimates, False
    slack = max(0, slack)
    lacking = sum(1 for estimate in estimates if estimate)
    if lacking <= 1:
        return [slack if estimate else 0 for estimate in estimates], True
    total, left, rooms = sum(estimates), slack, []
    for estimate in estimates:
        lacking -= bool(estimate)
        room = slack * estimate // total
        if estimate and not lacking:  # the last one takes what is left
            room = max(1, left)
        left -= room
        rooms.append(room)
    return rooms, False


# Streams whose headers are looked at for the kind of their checksum.
_MOST_HEADS: Final = 1_000
# What the end of a stream says against what came out of it. A wrong length (`Fault.LENGTH`) says nothing: decoders
# compare the checksum first, so that of all that came out did agree.
_CONTRADICTIONS: Final = {Fault.CHECKSUM, Fault.SHORT, Fault.OVERRUN, Fault.SIZE}
_WRONG_SIZE: Final = "the stream does not hold as many bytes as it should"
_WRONG_END: Final = "the stream does not end where it should"
# Bytes of a member of gzip, at least; how many times better, or worse, than others one may be compressed.
_LEAST_MEMBER: Final = 20
_ALIKE: Final = 4
_SUSPECT: Final = "its compressed bytes may be wrong, and its content does not have the expected size or checksum"


# Bytes behind a stream that tell whether they are the beginning of another one: the longest magic, and some padding.
_HEAD: Final = 1024


def _lost_head(offset: int | None) -> MalformedError:
    """Return the error on bytes behind a stream that another one follows, or of which one byte is wrong."""
    return MalformedError(
        "this is neither a member nor padding: the first bytes of a member are damaged", offset=offset
    )


def is_contradiction(data: InflatedData) -> bool:
    """Say whether a stream came to an end, and its size or its checksum says that what came out is not right."""
    return data.contradiction is not None or (data.error is not None and data.error.fault in _CONTRADICTIONS)


class StreamProblem:
    """Damage of a stream: the ``reason``, and the bytes ``[at, end)`` of the source that are passed over for it."""

    __slots__ = ("at", "end", "fault", "reason")

    def __init__(self, error: PparseError, at: int, end: int) -> None:
        self.reason = error.reason
        self.fault = error.fault
        self.at, self.end = at, end

    def __repr__(self) -> str:
        return f"StreamProblem({self.reason!r}, {self.at}, {self.end})"


class ResumedData(DecodedData):
    """What a compressed stream holds, behind damage too; readable at any offset with bounded memory. Thread-safe.

    Parameters as of `InflatedData`; ``index``, of a gzip file, makes reads in its middle cheap, and knows the size;
    ``suspect``: it is known that something is wrong with the stream (its packed bytes reach beyond the end of the file,
    say), so `look` decodes it before anything in it is called complete; ``bounded``: all of the source is the stream's.
    ``gaps``, ``suspect_ranges``, ``error``, ``problems`` and ``size`` become final once
    reading came to the damage, or to the end; `verify` goes there. ``error`` is what is wrong with the end: None if the
    stream ended as it should, whatever was lost before. ``problems`` are all that was met, in source order.
    """

    def __init__(
        self,
        source: Range,
        codec: str,
        *,
        concatenated: bool = False,
        tail_is_error: bool = True,
        index: GzipIndex | None = None,
        suspect: bool = False,
        **given: Unpack[Decoding],
    ) -> None:
        if index is not None and index.complete and given.get("size") is None:
            given["size"] = index.size
        super().__init__(source, codec, ("resumed", concatenated), **given)
        self._suspect = suspect
        # Called once, when all is final; with this lock held, and perhaps those of data on top: it may take none but
        # the innermost ones (see `pparse.locking`).
        self.on_end: Callable[[], object] | None = None
        self._declared = self.size
        given |= {"limits": self._env.limits, "stats": None, "poll": None}  # a read is counted once, here
        self._inflate = partial(
            InflatedData, codec=codec, concatenated=concatenated, tail_is_error=tail_is_error, **given
        )
        if index is None:
            self._head = self._inflate(source)
        else:
            from pparse.compressed.gzip_index import IndexedData

            self._head = IndexedData(source, index=index, **self._inflate.keywords)
        self.access = self._head.access
        self._begin()
        self._passed_over: list[SuspectRange] = []  # where a limit of ours kept more from being had
        # (output before, end in the source) of stretches with damage inside
        self._candidates: list[tuple[int, int]] = []
        self._revision = 0
        self._source_revision = source.data.revision

    def _begin(self) -> None:
        """Know nothing but how to decode the first stretch, ``_head``."""
        self._placement = Placement(self._head, 0)  # nothing, before all is final
        self.problems: list[StreamProblem] = []
        self.suspect_ranges, self.gaps, self.error = (), (), None
        self.size, self._learned = self._declared, False

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:  # type: ignore[override]
        """How often other bytes than before are given, by this or by its source."""
        return self._revision + self._source.data.revision

    def _refresh(self) -> None:
        """Begin again if the source gives other bytes than it did."""
        with self._lock:
            if self._source_revision != self._source.data.revision:
                self._source_revision = self._source.data.revision
                self._head.close()
                self._placement.close()
                self._head = self._inflate(self._source)
                self._begin()

    def _pread(self, offset: int, length: int) -> bytes:
        with self._lock:
            self._refresh()
            if not self._learned:
                chunk = self._read_head(offset, length)
                if chunk or not self.finished:
                    return chunk
            # Raises if it lies in a gap that was found just now, perhaps by another thread.
            return self._placement.read(offset, self._clip(offset, length))

    def _read_head(self, offset: int, length: int) -> bytes:
        revision, chunk = self.revision, b""
        try:
            with suppress(GapError):
                chunk = self._head.pread(offset, length)
        finally:
            self._notice()
        return chunk if self.revision == revision else b""  # else it is read again, from what is known now

    def keep(self, start: int, end: int) -> None:
        """Keep ``[start, end)`` at hand, as long as nothing is known to be wrong with the stream."""
        with self._lock:
            self._refresh()
            if not self.gaps:
                with suppress(GapError, LimitError):
                    self._head.keep(start, end)
                self._notice()

    def read_known(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Read on through gaps; see `Data.read_known`. One read a piece, however many small gaps it has."""
        self._check_open()
        with self._lock:
            self._refresh()
            if self._learned:
                return self._read_placed(offset, length)
            chunk = self._read_head(offset, length) if self._clip(offset, length) else b""
            if len(chunk) == length or not self.finished:
                return chunk, []
            more, unknown = self.read_known(offset + len(chunk), length - len(chunk))
            return chunk + more, unknown

    def _read_placed(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        chunks: list[bytes] = []
        unknown = []
        end = offset + length
        while offset < end:
            came = offset
            for data, first, count in self._placement.stretches(offset, end - offset):
                chunk, missing = data.read_known(first, count)
                unknown += [(offset + start - first, size) for start, size in missing]
                chunks.append(chunk)
                offset += len(chunk)
                if len(chunk) < count:
                    break
            gap = self.next_gap(offset)
            if offset < end and gap is not None and gap.offset <= offset and gap.end is not None:
                count = min(gap.end, end) - offset
                chunks.append(bytes(count))
                unknown.append((offset, count))
                offset += count
            if offset == came:
                break
        return chunks[0] if len(chunks) == 1 else b"".join(chunks), unknown

    def available(self, offset: int, count: int) -> bool:
        """Say whether there are ``count`` bytes at ``offset``, decoding no more than those."""
        self._check_open()
        with self._lock:
            if not self._learned:
                found = self._head.available(offset, count)
                self._notice()
                if found or not self.finished:
                    return found
            return super().available(offset, count)

    def verify(self) -> None:
        """Decode to the end, so that ``size``, ``error``, ``gaps`` … are final. Raises `LimitError`."""
        self._check_open()
        with self._lock:
            self._refresh()
            if not self._learned:
                self._head.verify()
                self._notice()

    def member_places(self) -> list[tuple[int, int]]:
        """Return, for each member (frame, stream), where it begins in the source and in the output; of those before
        the first damage, and no more than 262,144."""
        places = self._head.places
        return list(zip(places[::2], places[1::2], strict=True))

    def members_end(self) -> int:
        """Return where in the source the last of `member_places` ends, or fails."""
        error = self._head.error
        failed = self._source.end if error is None or error.offset is None else error.offset
        return failed if self._head.consumed is None else self._source.start + self._head.consumed

    @property
    def left(self) -> int:
        """How many bytes of the source were not decoded yet, at most; none once its end was seen."""
        return 0 if self._learned else max(0, self._source.end - self._head.reached)

    @property
    def is_suspect(self) -> bool:
        """Whether anything but bytes behind its end is wrong with the stream."""
        return any(problem.fault is not Fault.TRAILING for problem in self.problems) or bool(self.suspect_ranges)

    @property
    def is_sound(self) -> bool:
        """Whether the end was seen, nothing was met, and a checksum says that all is right."""
        return self._head.finished and not self.is_suspect and self._known.checked and self._has_checks()

    def _has_checks(self) -> bool:
        """Say whether all streams have a checksum that their library compares; some codecs leave the choice."""
        choice = self._known.optional_check
        if choice is None:
            return True
        starts = self._head.places[::2]
        kinds = (self._source.data.read_known(start + choice[0], 1)[0] for start in starts)
        return len(starts) <= _MOST_HEADS and all(kind and kind in choice[1] for kind in kinds)

    @property
    def flawed(self) -> bool:
        """Whether anything is known against this stream or its source."""
        return self._suspect or super().flawed

    def resolve(self) -> None:
        """Decode to the end if the stream is suspect, or its source is cut or damaged. Raises `LimitError`."""
        with self._lock:
            self._refresh()
            if self._learned or not self.flawed:
                return
            source = self._source
            if self._suspect or not source.data.range_status(source.start, source.end).is_complete:
                self.verify()

    def add_suspect_range(self, start: int, end: int, reason: str) -> None:
        """Note that ``[start, end)`` may be wrong, by what was found out from what the bytes say."""
        with self._lock:
            self.suspect_ranges = tuple(
                sorted((*self.suspect_ranges, SuspectRange(start, end, reason)), key=attrgetter("start"))
            )

    @property
    def finished(self) -> bool:
        """Whether all is final."""
        return self._learned

    # -- behind damage -----------------------------------------------------------------------------------------------

    def _notice(self) -> None:
        """Once the first stretch is decoded to its end: learn what lies behind it."""
        with self._lock:
            if self._learned or not self._head.finished:
                return
            self._learn()
            self._learned = True
            self.stats.discover()
            if self.on_end is not None:
                self.on_end()

    def _learn(self) -> None:
        if self._hide_candidates():
            self._head.verify()
        head = self._head
        error = head.error
        self._begin()  # a search before may have been interrupted
        self._passed_over = []
        self._placement = Placement(head, head.produced)
        self.contradiction = head.contradiction
        if head.contradiction is not None and error is not None:
            self.problems.append(StreamProblem(error, self._source.start, self._source.end))
            self.suspect_ranges = (SuspectRange(0, head.produced, error.reason),)
            error = None
        if isinstance(error, EndOfDataError):
            error = self._judge_cut(error)
        proved = head.is_proved(0, head.produced)
        if isinstance(error, EndOfDataError | UnsupportedError) or (
            proved and error is not None and error.fault is Fault.TRAILING and not self._is_lost_head(error)
        ):
            self.problems.append(StreamProblem(error, error.offset or self._source.start, self._source.end))
            self.error = error
        elif error is not None:
            failure = self._failure(error)
            self._resume(failure)
            self._note_suspect(failure, self._placement.placed[0].end)
            self._suspect_end(error, self._placement.placed[0].end)
        self._determine_size()
        agreed = head.error is not None and head.error.fault is Fault.LENGTH
        if self.is_sound or agreed or (not self.is_suspect and head.is_proved(0, head.produced)):
            self.vouch(0, head.produced)

    def _hide_candidates(self) -> bool:
        """If decoding came to the end and is contradicted there, begin again without what is probably damaged.

        Or if it came to no end at all.
        """
        error, module = self._head.error, module_of(self.codec)
        if error is None or module is None or not (isinstance(error, EndOfDataError) or is_contradiction(self._head)):
            return False
        found = module.probable_damage(self._source, self._failure(error), self.codec)
        if not found:
            return False
        from pparse.data.spliced import HiddenData

        self._candidates = [(self._head.member_out + each.out, each.end) for each in found if not each.hidden]
        self._head.close()
        hidden = HiddenData(self._source.data, [each.gap for each in found], [(each.start, each.end) for each in found])
        self._source = hidden.range(self._source.start, self._source.end)
        self.sources = (hidden,)
        self._head = self._inflate(self._source)
        self._revision += 1
        self._source_revision = self._source.data.revision
        return True

    def _failure(self, error: PparseError) -> Failure:
        at = error.offset if error.offset is not None else self._source.end
        head = self._head
        return Failure(at, head.produced, head.member_start, error, head.member_out, head.saved_decoders)

    def _judge_cut(self, error: EndOfDataError) -> PparseError:
        """A stream that ends early may have its end all the same, or zeros where it was never written."""
        module, failure = module_of(self.codec), self._failure(error)
        found: PparseError = error if module is None else module.judge_cut(self._source, failure, self.codec)
        if found is error:
            self._note_suspect(failure, self._head.produced)
        return found

    def _resume(self, failure: Failure) -> None:
        """Find the pieces behind ``failure``, place them, and note what is wrong with them."""
        placement = self._placement
        module = module_of(self.codec)
        if module is None:
            failure.suspect_from = failure.start_out
            failure.why_suspect = (
                f"{self.codec} detects damage late, and no checksum covers what was decoded before that"
            )
            found: Iterable[Piece] = ()
        else:
            found = module.pieces(self._source, failure, self._env, codec=self.codec, size=self._declared)
        pieces, lost = self._note_problems(failure, found)
        ratio = min(max(1.0, failure.out / max(1, failure.at - self._source.start)), 1032)
        placement.place_all([(piece, int(count * ratio)) for piece, count in zip(pieces, lost, strict=True)])
        for (before, after), piece in zip(pairwise(placement.placed), pieces, strict=True):
            if piece.limit is not None:  # one of ours, which kept more from being had
                self._passed_over.append(SuspectRange(before.end, after.end, piece.limit))
        if failure.limit is not None:
            self._passed_over.append(SuspectRange(placement.end, 1 << 62, failure.limit))
        # Of stretches with damage inside, what was decoded up to the place where decoding begins again.
        ends = [failure.at, *(piece.end for piece in pieces)]
        for out, end in self._candidates:
            for placed, reached in zip(placement.placed, ends, strict=True):
                if end <= reached + 1 and out < placed.end:
                    self._suspect_within(out, placed.end, _SUSPECT, placed)
                    break
        for placed in placement.placed[1:]:
            for suspect in placed.data.suspect_ranges:  # known only after the failure behind it
                self._suspect_within(placed.start + suspect.start, placed.start + suspect.end, suspect.reason, placed)

    def _note_problems(self, failure: Failure, found: Iterable[Piece]) -> tuple[list[Piece], list[int]]:
        """Note what stands between pieces; return these, and how much of the source is passed over before each."""
        end = failure.at  # of what was decoded
        reason: PparseError = failure.error
        self.error = failure.error
        pieces, lost = [], []
        for piece in found:  # as it is now: who found it may learn more of it
            if reason.fault is Fault.TRAILING:  # so they are not trailing
                reason = _lost_head(reason.offset)
            pieces.append(piece)
            lost.append(max(0, piece.at - end))
            self.problems.append(StreamProblem(reason, end, max(piece.at, end)))
            end, self.error = piece.end, piece.error
            reason = piece.error or reason
        if self.error is not None and self._is_lost_head(self.error):
            self.error = _lost_head(self.error.offset)
        elif self.error is not None and self.error.fault is Fault.TRAILING and not self._head.produced:
            why = "the stream ends without a byte, and the file goes on"
            self.error = MalformedError(why, offset=self.error.offset)
        if self.error is not None:
            self.problems.append(StreamProblem(self.error, end, self._source.end))
            at, stop = self.error.offset, real_end(self._source)
            if self.error.fault is Fault.LENGTH and zeros_at_end(self._source.data, at or 0, stop) <= (at or 0):
                self.error = None  # only the length is wrong, and nothing but padding follows
        return pieces, lost

    def _is_lost_head(self, error: PparseError) -> bool:
        """Say whether what follows the stream is another one of it, with one wrong byte at its beginning.

        Or it ends as a member of gzip does: with a size, as large as members like those before it have.
        """
        known = self._known
        if error.fault is not Fault.TRAILING or error.offset is None or not known.joins:
            return False
        head = self._source.data.read_known(error.offset, min(_HEAD, self._source.end - error.offset))[0]
        if known.resembles(head.lstrip(b"\0") if known.zero_padding else head):
            return True
        return known.ends_with_size and self._ends_as_member(error.offset)

    def _ends_as_member(self, at: int) -> bool:
        """Say whether the last bytes of the source may be the size of a member of which nothing is known but that it
        begins at ``at``."""
        source, head = self._source, self._head
        packed = real_end(source) - at
        tail = source.data.read_known(at + packed - 4, 4)[0] if packed > _LEAST_MEMBER else b""
        wanted = packed * head.produced // max(1, at - source.start)
        return wanted // _ALIKE <= int.from_bytes(tail, "little") <= wanted * _ALIKE and any(tail)

    def _suspect_within(self, start: int, end: int, reason: str, placed: Placed) -> None:
        start, end = max(start, placed.start), min(end, placed.end)
        if start < end:
            self.suspect_ranges += (SuspectRange(start, end, reason),)

    def _note_suspect(self, failure: Failure, end: int) -> None:
        if failure.suspect_from is not None and failure.suspect_from < end:
            reason = failure.why_suspect or BEFORE_DAMAGE
            self.suspect_ranges = (SuspectRange(failure.suspect_from, end, reason), *self.suspect_ranges)

    def _suspect_end(self, error: PparseError, end: int) -> None:
        """Where a stream is not as long as it should be, packed or not, what came before its end is not right.

        A decoder may pass damage, be in step again behind it, and find every block that follows: nothing tells where
        that was. Only what has checksums of its own on the way is not in doubt.
        """
        early = error.fault is Fault.SHORT
        behind = error.fault is Fault.OVERRUN or (self._bounded and error.fault is Fault.TRAILING)
        by_block = self._known.checks_blocks and self._has_checks()
        if not early and not (behind and not by_block):
            return
        start = self._head.member_out if self._known.sure_members and not early else 0
        reason = _WRONG_SIZE if early else _WRONG_END
        kept = [suspect for suspect in self.suspect_ranges if suspect.start >= end]
        if start < end:
            kept.insert(0, SuspectRange(start, end, reason))
        self.suspect_ranges = tuple(kept)

    def _determine_size(self) -> None:
        end, gaps, fault = self._placement.end, self._placement.gaps, self.error and self.error.fault
        # It came to its proper end, and only a checksum contradicts.
        sums_up = fault is Fault.CHECKSUM and bool(self.suspect_ranges)
        if self._declared is not None:
            if end < self._declared:
                gaps.add(end, self._declared - end)
        elif self.error is None or fault is Fault.TRAILING or sums_up:
            self.size = end
        else:
            gaps.add(end, None)
        self.gaps = gaps

    # -- the rest ----------------------------------------------------------------------------------------------------

    def passed_over(self, start: int, end: int) -> str | None:
        """Say which limit of ours kept bytes of ``[start, end)`` from being had."""
        found = (stretch.reason for stretch in self._passed_over if stretch.start < end and start < stretch.end)
        return next(found, None) or super().passed_over(start, end)

    def close(self) -> None:
        """Give back memory and scratch space; the source belongs to whoever opened it."""
        with self._lock:
            super().close()
            self._head.close()
            self._placement.close()
