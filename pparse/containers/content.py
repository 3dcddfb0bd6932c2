"""Reads content from front to end, even behind gaps: the bytes, and a `Verdict` on them.

The one place that decides about a file from an archive or stream: complete, truncated, damaged or unsupported.
"""

from __future__ import annotations

from array import array
from zlib import crc32

from pparse.data.range_status import cut_status
from pparse.errors import EndOfDataError, Fault, GapError, MalformedError, PathError, UnsupportedError
from pparse.findings import COMPLETE, UNSURE_NAME, Finding, HasStatus, Status, worst_status
from pparse.limits import MIB, count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final, Protocol

    from pparse.containers.archive import ArchiveMember
    from pparse.data.base import Data, Gap
    from pparse.document.extraction import Session
    from pparse.errors import PparseError

    class ContentSink(Protocol):
        """Receives content piece by piece."""

        def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]], /) -> object:
            """Receive ``chunk`` at ``offset``; the ranges ``unknown``, (offset in it, length), are lost."""

        def restart(self) -> None:
            """Forget everything: the data turned out to be damaged at their end, and are sent again."""

    # called with the number of zeros that need not be read
    Skip = Callable[[int], object]

# Bytes read at a time.
_STEP: Final = 1 * MIB
# The most ranges of one content that are kept separate; beyond that, close ones are joined.
_MOST_GAPS: Final = 65_536
# The longest range that a size in a damaged header may say.
_LONGEST: Final = 1 << 62


class Verdict(HasStatus):
    """The result of reading content."""

    def __init__(self) -> None:
        self.status = COMPLETE
        """Status of the content."""
        self.verified: bool | None = None
        """True if a checksum agrees; None if there is none."""
        self.code = ""
        """Code of the finding; empty if nothing is wrong."""
        self.reason: str | None = None
        """What is wrong, in words; None if nothing is."""
        self.offset: int | None = None
        self.size = 0
        """Bytes of the content as far as known, with gaps of known length."""
        self.gaps = GapLog()
        """``(offset, length)`` of missing bytes; the length is None if it is not known."""
        self.suspect: tuple[tuple[int, int], ...] = ()
        """``(offset, length)`` of bytes that may be wrong."""
        self.parts = (0, 0)
        """How many parts it has, as its own format says, and for how many of them a checksum agrees."""
        self.passed: list[tuple[int, int]] = []  # gaps of unknown length: offset, and the bytes skipped so far
        self.source: tuple[Data, int] | None = None  # the data that were read, and the offset of the content in them

    def worsen(self, status: Status, code: str, reason: str) -> None:
        """Add a problem: reasons are joined, the worst status is kept."""
        if self.reason is None:
            self.code, self.reason = code, reason
        elif reason not in self.reason:
            self.reason += f"; {reason}"
        self.status = worst_status(self.status, status)

    @property
    def holds_all(self) -> bool:
        """Whether all of the content is there and nothing contradicts it: its name may be in doubt."""
        return self.is_complete or (self.code == UNSURE_NAME and not self.gaps)

    def place(self, size: int) -> None:
        """Mark all of the content, ``size`` bytes, as suspect if it is damaged at an unknown place."""
        if self.status is Status.DAMAGED and size and not self.gaps and not self.suspect:
            self.suspect = ((0, size),)

    def finding(self, path: str, source: str) -> Finding | None:
        """Return the verdict as a finding; None if nothing is wrong."""
        if self.reason is None:
            return None
        return Finding(self.code, self.reason, path=path, source=source, offset=self.offset)

    def error(self, path: str, source: str) -> PparseError:
        """Return the error that says why the content, which is not whole, is not returned."""
        return self.status.error(f"{self.reason}; 'pparse extract' writes what can be read", path=path, source=source)


class GapLog:
    """Missing ranges, in order. Their number is bounded: beyond some thousands, close ones are joined."""

    __slots__ = ("_apart", "_lengths", "_offsets")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._lengths = array("q")  # -1: unknown
        self._apart = 0

    def add(self, offset: int, length: int | None) -> None:
        """Add a range, which must come after the ones before; one that no file has is of unknown length."""
        if length is not None and length > _LONGEST:
            length = None
        offsets, lengths = self._offsets, self._lengths
        if offsets and length is not None and lengths[-1] >= 0 and offset - offsets[-1] - lengths[-1] <= self._apart:
            lengths[-1] = offset + length - offsets[-1]
        elif len(offsets) >= _MOST_GAPS and not self._join():
            self._lengths[-1] = -1  # they can no longer be kept apart
        else:
            self._offsets.append(offset)
            self._lengths.append(-1 if length is None else length)

    def _join(self) -> bool:
        """Join ranges that are close, until their number is a quarter less; False if that is not possible."""
        while self._apart < 1 << 40:
            self._apart = max(16, 4 * self._apart)
            kept = zip(self._offsets, self._lengths, strict=True)
            self._offsets, self._lengths = array("q"), array("q")
            for offset, length in kept:
                self.add(offset, None if length < 0 else length)
            if len(self) <= _MOST_GAPS * 3 // 4:
                return True
        return False

    @property
    def known(self) -> int:
        """Number of missing bytes, as far as known."""
        return sum(length for length in self._lengths if length > 0)

    @property
    def exact(self) -> bool:
        """Whether the length of every range is known."""
        return -1 not in self._lengths

    def __iter__(self) -> Iterator[tuple[int, int | None]]:
        for offset, length in zip(self._offsets, self._lengths, strict=True):
            yield offset, None if length < 0 else length

    def __len__(self) -> int:
        return len(self._offsets)


def read_through(
    session: Session,
    data: Data,
    start: int,
    end: int | None,
    *,
    size: int | None = None,
    checksum: tuple[str, int] | None = None,
    sink: ContentSink | None = None,
    skip: Skip | None = None,
) -> Verdict:
    """Read ``data[start:end]`` from front to end, even behind gaps, and return a verdict.

    ``end`` None means the end of the data. ``size`` is the expected size of the content, ``checksum`` the expected
    checksum. ``sink`` gets everything, in order, with offsets counted from ``start``. After a gap of unknown length the
    following bytes are sent as if none were missing. ``skip``, if given, gets the holes of a sparse file instead.
    Source errors and `LimitError` propagate.
    """
    while True:
        revision = data.revision
        verdict = _ContentPass(session, data, start, end, size, checksum, sink, skip).verdict()
        if data.revision == revision:
            return verdict
        if sink is not None:
            sink.restart()


class Collector:
    """A sink that keeps the bytes. ``check`` is called with the new total before bytes are kept, and may raise."""

    def __init__(self, check: Callable[[int], object]) -> None:
        self._check = check
        self._chunks: list[bytes] = []

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]], /) -> None:
        """Keep ``chunk``."""
        self._check(offset + len(chunk))
        self._chunks.append(chunk)

    def restart(self) -> None:
        """Forget everything."""
        self._chunks = []

    def content(self) -> bytes:
        """Return all bytes."""
        return b"".join(self._chunks)


class _ContentPass:
    """One pass over a content, see `read_through`: the bytes are counted, summed up and passed on, then judged."""

    def __init__(
        self,
        session: Session,
        data: Data,
        start: int,
        end: int | None,
        size: int | None,
        checksum: tuple[str, int] | None,
        sink: ContentSink | None,
        skip: Skip | None,
    ) -> None:
        self._session, self._data = session, data
        self._start, self._end, self._size = start, end, size
        self._sink, self._skip = sink, skip
        # Whether the data are all of it, and hold themselves against its checksum when they are decoded.
        self._own = (
            checksum is not None and data.checksum == checksum and not start and data.size == size and bool(size)
        )
        self._meant = checksum[1] if checksum is not None and checksum[0] == "crc32" else None
        self._crc = None if self._meant is None or self._own else 0  # of what was read; None: not added up
        self._verdict = Verdict()

    def verdict(self) -> Verdict:
        """Read everything, and return the verdict."""
        verdict, data, end = self._verdict, self._data, self._end
        offset = self._start
        held = 0  # lost bytes that may be the last ones
        skips = self._crc is None and (self._sink is None or self._skip is not None)
        try:
            while end is None or offset < end:
                self._session.check_cancelled()
                step = _STEP if end is None else min(_STEP, end - offset)
                gap = self._inexact_gap(offset, offset + step)
                if gap is not None and gap.length is not None:
                    if gap.offset <= offset:
                        self._give(bytes(held), [(offset - held, held)], offset - held)
                        held = 0
                        verdict.gaps.add(verdict.size, None)
                        offset = gap.offset + gap.length
                        verdict.passed.append((offset, offset - self._start - verdict.size))
                        continue
                    step = min(step, gap.offset - offset)
                zeros = data.zeros_at(offset) if skips else 0
                if zeros >= _STEP and not held and (end is None or zeros <= end - offset):
                    if self._skip is not None:
                        self._skip(zeros)
                    verdict.size += zeros
                    offset += zeros
                    continue
                chunk, unknown = data.read_known(offset, step)
                if not chunk:
                    break
                found = self._inexact_gap(offset, offset + len(chunk))
                if found is not None:  # found while reading: the position of what follows is uncertain
                    chunk = chunk[: found.offset - offset]
                    unknown = [(first, count) for first, count in unknown if first < found.offset]
                    if not chunk:
                        continue
                offset += len(chunk)
                lost = _lost_at_end(unknown, offset)
                if lost == len(chunk):  # if nothing follows, the content is truncated here
                    held += lost
                    continue
                before = offset - len(chunk) - held
                self._give(bytes(held), [(before, held)], before)
                chunk = chunk[: len(chunk) - lost]
                self._give(chunk, unknown, offset - lost - len(chunk))
                held = lost
        except (MalformedError, GapError, EndOfDataError) as error:
            verdict.worsen(Status.DAMAGED, "malformed", error.reason)
            verdict.offset = error.offset
        if not (self._own and self._judge_own()):
            self._judge(offset - held, held)
        return verdict

    def _inexact_gap(self, start: int, end: int) -> Gap | None:
        """Return the first gap in ``[start, end)`` of which the length is an estimate."""
        gap = self._data.inexact_gap(start, end)
        return None if gap is None or gap.length is None else gap

    def _give(self, chunk: bytes, unknown: list[tuple[int, int]], at: int) -> None:
        """Count ``chunk``, which is at ``at`` in the data, and pass it on."""
        if not chunk:
            return
        verdict = self._verdict
        shift = verdict.size - at
        unknown = [(first + shift, count) for first, count in unknown]
        for first, count in unknown:
            verdict.gaps.add(first, count)
        if self._crc is not None:
            self._crc = crc32(chunk, self._crc)
        if self._sink is not None:
            self._sink(verdict.size, chunk, unknown)
        verdict.size += len(chunk)

    def _judge_own(self) -> bool:
        """Take over what a checksum said of the data, decoded to their end; False if that is nothing, or not of all."""
        verdict, data, size = self._verdict, self._data, self._data.size or 0
        if verdict.size != self._size or verdict.gaps:
            return False
        if data.is_proved(0, size):
            verdict.verified, verdict.status, verdict.reason, verdict.code = True, Status.COMPLETE, None, ""
        elif (reason := data.contradiction) is not None:
            verdict.verified = False
            verdict.suspect = ((0, size),)
            verdict.worsen(Status.DAMAGED, "checksum", reason)
        return verdict.verified is not None

    def _judge(self, came: int, held: int) -> None:
        """Say what became of the content that was read up to offset ``came`` of the data; ``held``: bytes that are lost
        at its end."""
        verdict, data, size, crc = self._verdict, self._data, self._size, self._crc
        there = came + held if self._end is None else self._end
        short = max(held, there - came if size is None else size - verdict.size, 0)
        wanted = verdict.size + short if size is None else size
        if size is not None and not verdict.gaps.exact:
            short = 0  # number of bytes missing somewhere in the middle
        if crc is not None and not verdict.gaps and not short and verdict.size == wanted:
            verdict.verified = crc == self._meant
            if verdict.verified:
                verdict.reason, verdict.code, verdict.status = None, "", Status.COMPLETE
                return
        if data.flawed or verdict.gaps:
            self._judge_bytes(came)
        error = data.error if data.error is not None and data.error.fault is not Fault.TRAILING else None
        if short:
            _judge_short(verdict, short, wanted, error)
        elif error is not None and verdict.verified is not True and size is None and self._end is None:
            _judge_end(verdict, data, error)
        if size is not None and verdict.size > size:
            verdict.suspect = ((0, verdict.size),)  # bytes were inserted somewhere
            verdict.worsen(Status.DAMAGED, "malformed", f"it holds {verdict.size:,} bytes and should hold {size:,}")
        if verdict.verified is False and crc is not None:
            verdict.suspect = verdict.suspect or ((0, verdict.size),)
            verdict.worsen(Status.DAMAGED, "checksum", f"its CRC-32 is {crc:08x} and should be {self._meant:08x}")
        if verdict.verified is None and verdict.reason is None and data.is_proved(self._start, came):
            verdict.verified = True  # by the checksum of the stream around it, for example

    def _judge_bytes(self, came: int) -> None:
        """Take over what is known against the bytes that came, and name the gaps between them."""
        verdict, data, start = self._verdict, self._data, self._start
        why_suspect = data.why_suspect(start, came) if verdict.verified is not True else None
        if why_suspect is not None:
            verdict.worsen(Status.DAMAGED, "doubt", why_suspect)
            verdict.suspect = tuple(_placed(verdict, data.suspect_ranges_in(start, came), start))
        if verdict.gaps:
            lost = count_words(verdict.gaps.known, "byte") if verdict.gaps.exact else "an unknown number of bytes"
            limit = data.passed_over(start, came)
            why = "" if limit is None else f"; {limit}"
            verdict.worsen(Status.DAMAGED, "gap", f"{lost} of it lost in {count_words(len(verdict.gaps), 'gap')}{why}")


def _lost_at_end(unknown: list[tuple[int, int]], end: int) -> int:
    """Return how many of the last bytes before ``end`` are lost; remove them from ``unknown``."""
    lost = 0
    while unknown and sum(unknown[-1]) == end - lost:
        lost += unknown.pop()[1]
    return lost


def _judge_short(verdict: Verdict, short: int, wanted: int, error: PparseError | None) -> None:
    """Note that the last ``short`` of ``wanted`` bytes are missing; ``error`` is what the data ended with."""
    verdict.gaps.add(verdict.size, short)
    status = cut_status(damaged=error is not None and not isinstance(error, EndOfDataError))
    why = f" ({error.reason})" if error is not None else ""
    verdict.worsen(status, status.code, f"it ends after {verdict.size:,} of {wanted:,} bytes{why}")


def _judge_end(verdict: Verdict, data: Data, error: PparseError) -> None:
    """Note the ``error`` that ends data of which nobody said how long they are."""
    is_unread = isinstance(error, UnsupportedError)
    if data.size is None and not is_unread:
        verdict.gaps.add(verdict.size, None)
    verdict.worsen(Status.after(error), "unsupported" if is_unread else "truncated", error.reason)


def _placed(verdict: Verdict, stretches: list[tuple[int, int]], start: int) -> Iterator[tuple[int, int]]:
    """Yield ``(offset, length)`` in the content of ranges of the data; the content begins at ``start``."""
    for low, high in stretches[:_MOST_GAPS]:
        shift = max((passed for at, passed in verdict.passed if at <= low), default=0)
        yield low - start - shift, high - low


def refuse_without_content(member: ArchiveMember, name: str, archive: str) -> None:
    """Raise `PathError` for a member without content of its own, which must not be read as an empty file."""
    if member.kind in ("file", "other", "gap") or member.size:
        return
    if member.kind != "folder":
        target = f" to {member.link!r}" if member.link else ""
        raise PathError(f"it is a {member.kind}{target} in the archive, and has no content of its own", path=name)
    from shlex import quote

    folder = member.name.rstrip("/")
    pattern = folder if set(folder) & set("*?[") else f"{folder}/*"
    raise PathError(f"it is a folder in the archive; pparse ls {quote(archive)} {quote(pattern)} lists it", path=name)
