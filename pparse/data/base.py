"""Sources of bytes.

A `Data` owns one source and is the only code that touches it. Its one primitive, `Data.pread` (and `Data.preadinto`),
has no seek state and is thread-safe. Everything else, `Cursor` and `Range` included, is built on it.

Any number of readers, `Cursor` and `Range`, share one source. Offsets count from the start of the Data; those of a
`Reader` count from the reader's own start, and `Reader.offset` is its position in the Data.
"""

from __future__ import annotations

import _weakref as weakref
import enum
import os
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from pparse.data.range_status import Ledger, SuspectRange, joined, range_status
from pparse.errors import ClosedError, EndOfDataError, EndOfRangeError, GapError, MalformedError
from pparse.lazy import ByValue
from pparse.locking import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final, Self

    from pparse.data.range_status import RangeStatus
    from pparse.errors import PparseError

    Buffer = bytes | bytearray | memoryview


# Small reads are served from a block, small after a jump and growing while reading goes on.
_FIRST_BLOCK: Final = 4 << 10
_LAST_BLOCK: Final = 64 << 10
_PAGE: Final = 4 << 10
_LEAST: Final = 64  # worth a read of their own: a read of two pages makes Linux read eight
# The most readers of the process that keep a block: 2,000 cursors would hold 125 MiB.
_BLOCKS: Final = 64
_with_blocks: deque[tuple[weakref.ref[Reader], int]] = deque()  # with the offset of each block


def up_to_page(offset: int, size: int) -> int:
    """Return how much to read at ``offset``, where reading jumps to: about ``size`` bytes, up to the end of a page.

    Of a file that is not in the caches, a page less is read from the disk so.
    """
    if size < _PAGE:
        return size
    rest = size - (offset + size) % _PAGE
    return rest if rest >= _LEAST else rest + _PAGE


def byte_view(buffer: Buffer) -> memoryview:
    """Return a flat view of the bytes of a contiguous buffer."""
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")  # cast refuses shapes with a zero


class Reader:
    """A position in a stretch ``[start, end)`` of a Data; ``end`` is None while the size of the data is unknown."""

    __slots__ = ("__weakref__", "_block", "_block_at", "_next_block", "_pos", "data", "start")

    def __init__(self, data: Data, start: int) -> None:
        self.data = data
        """The source."""
        self.start = start
        """Where the stretch begins, as an offset of the Data."""
        self._pos = start
        self._block = b""
        self._block_at = start
        self._next_block = _FIRST_BLOCK

    @property
    def end(self) -> int | None:
        """Where the stretch ends, as an offset of the Data; None while unknown."""
        return self.data.size

    @property
    def offset(self) -> int:
        """The position as an offset of the Data."""
        return self._pos

    @property
    def size(self) -> int | None:
        """Length of the stretch in bytes; None while unknown."""
        return None if self.end is None else max(0, self.end - self.start)

    @property
    def remaining(self) -> int | None:
        """Bytes between the position and the end; None while unknown."""
        return None if self.end is None else max(0, self.end - self._pos)

    def tell(self) -> int:
        """Return the position, counted from the reader's start."""
        return self._pos - self.start

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move as ``io`` files do; a position past the end is allowed and reads as empty. Return the new position."""
        if whence == os.SEEK_SET:
            target = self.start + offset
        elif whence == os.SEEK_CUR:
            target = self._pos + offset
        elif whence == os.SEEK_END and self.end is not None:
            target = self.end + offset
        elif whence == os.SEEK_END:
            raise EndOfDataError("the size of this data is not known yet", source=self.data.name)
        else:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
        if target < self.start:
            raise ValueError(f"seek before the start: {offset}")
        self._pos = target
        return target - self.start

    def skip(self, count: int) -> int:
        """Move ``count`` bytes forward without reading them. Return the new position."""
        return self.seek(count, os.SEEK_CUR)

    def peek(self, count: int) -> bytes:
        """Return up to ``count`` bytes without moving."""
        if count < 0:
            raise ValueError(f"negative count: {count}")
        remaining = self.remaining
        if remaining is not None:
            count = min(count, remaining)
            if not count:  # do not read on: a gap may begin here
                return b""
        at, block = self._pos - self._block_at, self._block  # another reader may drop the block at any time
        if at >= 0 and at + count <= len(block):
            return block[at : at + count]
        if count >= _LAST_BLOCK:
            return self.data.pread(self._pos, count)
        sequential = 0 <= at <= len(block) and block
        self._next_block = min(self._next_block * 4, _LAST_BLOCK) if sequential else _FIRST_BLOCK
        size = max(self._next_block, count)
        block = self.data.pread(self._pos, size if remaining is None else min(size, remaining))
        self._block, self._block_at = block, self._pos
        _with_blocks.append((weakref.ref(self), self._pos))
        if len(_with_blocks) > _BLOCKS:
            self._drop_oldest_block()
        return block[:count]

    def held(self, offset: int, count: int) -> bytes:
        """Return ``count`` bytes at ``offset`` of the Data if the block that was read last has them all; else none.

        None of data whose bytes may turn out to be others.
        """
        at, block = offset - self._block_at, self._block
        return block[at : at + count] if 0 <= at <= len(block) - count and self.data.is_plain else b""

    @staticmethod
    def _drop_oldest_block() -> None:
        """Drop the block of the reader that filled one longest ago, unless it has filled another since."""
        try:
            oldest, begin = _with_blocks.popleft()
        except IndexError:  # another thread did
            return
        reader = oldest()
        if reader is not None and reader._block_at == begin:
            reader._block = b""

    def read(self, count: int = -1) -> bytes:
        """Return up to ``count`` bytes (negative: all that is left) and move past them. Empty at the end.

        Fewer bytes come only at the end or before a gap; a read that starts in a gap raises `GapError`.
        """
        if count < 0:
            if self.remaining is None:
                return self._read_to_unknown_end()
            count = self.remaining
        chunk = self.peek(count)
        self._pos += len(chunk)
        return chunk

    def _read_to_unknown_end(self) -> bytes:
        pieces: list[bytes] = []
        try:
            while chunk := self.read(_LAST_BLOCK):
                pieces.append(chunk)
        except GapError:
            if not pieces:
                raise
        return b"".join(pieces)

    def read_exact(self, count: int) -> bytes:
        """Return exactly ``count`` bytes and move past them; the position stays if it fails.

        Raises `EndOfDataError` if the source ends earlier, `EndOfRangeError` if only this range does, and `GapError` if
        a gap begins earlier.
        """
        chunk = self.peek(count)
        if len(chunk) < count:
            raise self._end_error(count, len(chunk))
        self._pos += count
        return chunk

    def _end_error(self, wanted: int, got: int) -> EndOfDataError | EndOfRangeError:
        self.data.pread(self._pos + got, 1)  # raises if a gap, not the end, cut the read
        return EndOfDataError("the data ends here", offset=self._pos, wanted=wanted, got=got, source=self.data.name)

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fill ``buffer`` and return the number of bytes written. Short only where `read` is."""
        view = byte_view(buffer)
        remaining = self.remaining
        if remaining is not None:
            view = view[: min(len(view), remaining)]
        got = self.data.preadinto(self._pos, view)
        self._pos += got
        return got

    def dup(self) -> Self:
        """Return another reader of the same stretch at the same position; the two then move independently."""
        from copy import copy

        return copy(self)

    def range(self, start: int, end: int) -> Range:
        """Return a `Range` of ``[start, end)``, counted from this reader's start and clipped to it."""
        if start < 0 or end < start:
            raise ValueError(f"not a range: [{start}, {end})")
        first, last = self.start + start, self.start + end
        if self.end is not None:
            last = min(last, self.end)
            first = min(first, last)
        return Range(self.data, first, last)

    def __repr__(self) -> str:
        end = "?" if self.end is None else self.end
        return f"<{type(self).__name__} of {self.data.name!r} [{self.start}, {end}) at {self.tell()}>"


class Cursor(Reader):
    """A reader of a whole Data."""

    __slots__ = ()

    def __init__(self, data: Data, offset: int = 0) -> None:
        if offset < 0:
            raise ValueError(f"negative offset: {offset}")
        super().__init__(data, 0)
        self._pos = offset


class Range(Reader):
    """A reader of the stretch ``[start, end)`` of a Data. Ranges of one stretch are equal, whatever their positions."""

    __slots__ = ("end",)

    def __init__(self, data: Data, start: int, end: int) -> None:
        if start < 0 or end < start:
            raise ValueError(f"not a range: [{start}, {end})")
        # Not by the method of the base: a message in a list takes a range.
        self.data = data
        self.start = self._pos = self._block_at = start
        self.end: int = end
        """Where the range ends, as an offset of the Data. If the data ends earlier, reads are short."""
        self._block = b""
        self._next_block = _FIRST_BLOCK

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Range):
            return NotImplemented
        return self.data is other.data and self.start == other.start and self.end == other.end

    def __hash__(self) -> int:
        return hash((id(self.data), self.start, self.end))

    def _end_error(self, wanted: int, got: int) -> EndOfDataError | EndOfRangeError:
        if self._pos + got >= self.end:
            return EndOfRangeError(
                "the range ends here", offset=self._pos, wanted=wanted, got=got, source=self.data.name
            )
        return super()._end_error(wanted, got)


# No source is that long: tables of gaps hold signed numbers of 64 bits.
_FAR: Final = (1 << 63) - 1
_offset_of: Final = attrgetter("offset")
# Two threads must not both create the tables that mark stretches of one Data.
_MAKING: Final = Lock()


class Access(enum.Enum):
    """What a backward seek costs."""

    FREE = "free"
    CHECKPOINT = "checkpoint"  # decode again from a saved state nearby
    RESTART = "restart"  # decode again from the start


class Distance(enum.Enum):
    """What a read costs: far data take a request over a network for each."""

    NEAR = "near"
    FAR = "far"


class Gap(ByValue, by=("offset", "length", "exact")):
    """A stretch of the source that cannot be read."""

    __slots__ = ("exact", "length", "offset")

    def __init__(self, offset: int, length: int | None, exact: bool = True) -> None:
        self.offset = offset
        """Where the gap begins."""
        self.length = length
        """Length in bytes; None: the gap reaches to the end."""
        self.exact = exact
        """False: the number of lost bytes is unknown, and offsets behind the gap assume ``length``."""

    @property
    def end(self) -> int | None:
        """Where the gap ends; None if it never does."""
        return None if self.length is None else self.offset + self.length

    def __repr__(self) -> str:
        return f"Gap({self.offset}, {self.length}{'' if self.exact else ', exact=False'})"


class GapTable(Sequence[Gap]):
    """Gaps in order; takes 17 bytes each, as there may be hundreds of thousands."""

    __slots__ = ("_exact", "_lengths", "_offsets")

    def __init__(self, gaps: Iterable[Gap] = ()) -> None:
        self._offsets = array("q")
        self._lengths = array("q")  # -1: to the end
        self._exact = bytearray()
        for gap in gaps:
            self.add(gap.offset, gap.length, gap.exact)

    def add(self, offset: int, length: int | None, exact: bool = True) -> None:
        """Add a gap after the existing ones; an empty gap is ignored."""
        if length != 0:
            self._offsets.append(min(offset, _FAR))
            self._lengths.append(-1 if length is None else min(length, _FAR))
            self._exact.append(exact)

    def add_all(self, gaps: Sequence[Gap], shift: int) -> None:
        """Add ``gaps``, each shifted by ``shift`` bytes."""
        if isinstance(gaps, GapTable):
            self._offsets.extend(array("q", (offset + shift for offset in gaps._offsets)))
            self._lengths.extend(gaps._lengths)
            self._exact += gaps._exact
            return
        for gap in gaps:
            self.add(gap.offset + shift, gap.length, gap.exact)

    def digest(self) -> bytes:
        """Return a hash that is the same for equal tables."""
        return digest((self._offsets.tobytes(), self._lengths.tobytes(), self._exact))

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self[each] for each in range(*place.indices(len(self))))
        length = self._lengths[place]
        return Gap(self._offsets[place], None if length < 0 else length, bool(self._exact[place]))

    def place(self, offset: int) -> int:
        """Return how many gaps begin at ``offset`` or before."""
        return bisect_right(self._offsets, offset)

    def loose(self, place: int) -> int | None:
        """Return which gap, from ``place`` on, is the first without a known length, or without an end; None: none."""
        found = self._exact.find(0, place)
        if found < 0 and place < len(self) and self._lengths[-1] < 0:  # behind one without an end is none
            found = len(self) - 1
        return None if found < 0 else found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class IoStats:
    """Counts what sources served; all sources of a document share one."""

    __slots__ = ("_lock", "bytes", "discoveries", "doubts", "dropped", "log", "reads")

    MAX_LOG = 10_000

    def __init__(self, *, log: bool = False) -> None:
        self._lock = Lock()
        self.reads = 0
        """Number of reads."""
        self.bytes = 0
        """Bytes read, in all."""
        self.dropped = 0
        """Ranges left out of ``log``, which holds `MAX_LOG` at most."""
        self.discoveries = 0
        """How often something, good or bad, was learned from the bytes; a cached answer is stale once this changes."""
        self.doubts = 0
        """How many of those speak against the bytes."""
        self.log: list[tuple[str, int, int]] | None = [] if log else None
        """With ``log=True``: the ranges read as (source, offset, length), adjoining ones joined."""

    def count(self, source: str, offset: int, length: int) -> None:
        """Count one read of ``length`` bytes at ``offset``."""
        with self._lock:
            self.reads += 1
            self.bytes += length
            log = self.log
            if log is not None:
                if log and log[-1][0] == source and log[-1][1] + log[-1][2] == offset:
                    log[-1] = (source, log[-1][1], log[-1][2] + length)
                elif len(log) < self.MAX_LOG:
                    log.append((source, offset, length))
                else:
                    self.dropped += 1

    def discover(self, *, good: bool = False) -> None:
        """Count one thing learned from the bytes."""
        with self._lock:
            self.discoveries += 1
            self.doubts += not good


class Data(ABC):
    """A source of bytes. Subclasses implement `_pread`."""

    name: str
    """What messages call the source."""
    size: int | None
    """Size in bytes; None until the end of a stream of unknown size was seen."""
    path: str | None = None
    """Path of the file; None if there is none."""
    is_file: bool = False
    """Whether it is a file of the system as it stands, which `path` opens again."""
    is_plain: bool = False
    """Whether bytes that were read are sure: no checksum, decoder or damage can be found to contradict them later.

    Not inherited: a subclass, which may know of damage, says it for itself."""
    identity: object | None = None
    """What is equal for the same, unchanged content only, as far as the source tells: hashable, can be pickled.

    Made when it is asked for. None if nobody can tell."""
    distance: Distance = Distance.NEAR
    """What a read costs."""
    access: Access = Access.FREE
    """What a backward seek costs."""
    gaps: Sequence[Gap] = ()
    """Stretches that cannot be read, in order, without overlaps."""
    suspect_ranges: tuple[SuspectRange, ...] = ()
    """Stretches that were decoded but may be wrong, in order."""
    error: PparseError | None = None
    """Why the data breaks off or is damaged; None until reading finds out."""
    checksum: tuple[str, int] | None = None
    """Name and value of the checksum that the decoded end is compared with."""
    contradiction: str | None = None
    """How the end contradicts its checksum or length; None if it does not."""
    revision: int = 0
    """How often bytes served earlier turned out wrong, and others are served since."""
    place: int = 0
    """Where the last read ended."""
    modified_ns: int = 0
    """When the source was written to last, in ns; 0: not known."""
    changed_ns: int = 0
    """When the system last recorded a change of the source, in ns, whoever set its other time; 0: not known."""
    ledger: Ledger | None = None
    """What was found wrong, or confirmed, of the bytes of this very data; None: nothing yet."""

    def __init_subclass__(cls) -> None:
        cls.is_plain = vars(cls).get("is_plain", False)

    def __init__(self, name: str, size: int | None, stats: IoStats | None = None) -> None:
        self.name = name
        self.size = size
        self.stats = stats if stats is not None else IoStats()
        """Counts the reads."""
        self.closed = False
        """Whether `close` was called."""

    # -- the primitive -------------------------------------------------------------------------------------------

    @abstractmethod
    def _pread(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer only at the end or before a gap."""

    def _preadinto(self, offset: int, view: memoryview) -> int:
        chunk = self._pread(offset, len(view))
        view[: len(chunk)] = chunk
        return len(chunk)

    def pread(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``; fewer only where the data ends or a gap begins.

        Never allocates more than can be served, whatever ``length`` says. Raises `GapError` if ``offset`` lies in a
        gap, `ClosedError`, `SourceError`, `DataChangedError`.
        """
        length = self._clip(offset, length)
        if length == 0:
            return b""
        chunk = self._pread(offset, length)
        self.place = offset + len(chunk)
        self.stats.count(self.name, offset, len(chunk))
        return chunk

    def preadinto(self, offset: int, buffer: Buffer) -> int:
        """Fill ``buffer`` from ``offset`` and return the number of bytes written. Short only where `pread` is."""
        view = byte_view(buffer)
        length = self._clip(offset, len(view))
        if length == 0:
            return 0
        got = self._preadinto(offset, view[:length])
        self.place = offset + got
        self.stats.count(self.name, offset, got)
        return got

    def read_unchanged(self, offset: int, buffer: Any) -> bool:
        """Fill ``buffer``, an array, as `preadinto` does, and `check_unchanged`; return False if anything else is to be
        done or said than that goes in few steps."""
        return False

    def copy_to(self, offset: int, length: int, descriptor: int, at: int) -> int:
        """Let the system write up to ``length`` bytes from ``offset`` on into an open file, from ``at`` on.

        Return how many it wrote; 0 if they must be read and written. File systems that can (XFS, Btrfs) share blocks.
        """
        return 0

    def preadv(self, offset: int, views: list[memoryview]) -> int:
        """Fill several buffers, one after the other, from ``offset`` and return the number of bytes written.

        Short only where `preadinto` is. For bytes to skip, pass a buffer that is thrown away.
        """
        done = 0
        for view in views:
            got = self.preadinto(offset + done, view)
            done += got
            if got < len(view):
                break
        return done

    def _clip(self, offset: int, length: int) -> int:
        if self.closed:
            raise ClosedError("the data is closed", source=self.name)
        if offset < 0 or length < 0:
            raise ValueError(f"negative offset or length: {offset}, {length}")
        if self.size is not None:
            length = min(length, max(0, self.size - offset))
        gap = self.next_gap(offset) if self.gaps else None
        if gap is None:
            return length
        if gap.offset <= offset:
            left = None if gap.length is None else gap.length - (offset - gap.offset)
            raise GapError(offset, left, source=self.name)
        return min(length, gap.offset - offset)

    def is_cut_at(self, offset: int) -> bool:
        """Return whether the source was cut at ``offset``, so that what is lost there is its end."""
        gap = self.next_gap(offset) if self.gaps else None
        if gap is None or gap.offset > offset or not isinstance(self.error, EndOfDataError):
            return False
        return gap.end is None or (self.size is not None and gap.end >= self.size)

    def next_gap(self, offset: int) -> Gap | None:
        """Return the gap that contains ``offset``, else the next one after it; None if there is none."""
        gaps, place = self.gaps, self._place_of_gap(offset)
        return gaps[place] if place < len(gaps) else None

    def _place_of_gap(self, offset: int) -> int:
        """Return which gap contains ``offset``, or is the next one after it."""
        gaps = self.gaps
        place = gaps.place(offset) if isinstance(gaps, GapTable) else bisect_right(gaps, offset, key=_offset_of)
        if place:
            gap = gaps[place - 1]
            if gap.length is None or offset - gap.offset < gap.length:
                return place - 1
        return place

    def gaps_in(self, start: int, end: int) -> Iterator[Gap]:
        """Yield the gaps that touch ``[start, end)``, in order."""
        gaps = self.gaps
        for place in range(self._place_of_gap(start), len(gaps)):
            gap = gaps[place]
            if gap.offset >= end:
                return
            yield gap

    def read_known(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return up to ``length`` bytes at ``offset``, zeros in place of gaps, and the gaps as (offset, length).

        Offsets are those of the data. Short only at the end of the data, at a gap without end, and before what cannot
        be read, which the next read raises.
        """
        pieces: list[bytes] = []
        unknown: list[tuple[int, int]] = []
        while length:
            try:
                chunk = self.pread(offset, length)
            except GapError as gap:
                if gap.length is None:
                    break
                count = min(gap.length, length)
                unknown.append((offset, count))
                chunk = bytes(count)
            except (MalformedError, EndOfDataError):
                if not pieces:
                    raise
                break
            if not chunk:
                break
            pieces.append(chunk)
            offset += len(chunk)
            length -= len(chunk)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), unknown

    def known(self, offset: int, length: int) -> bytes:
        """Return what `pread` does, and no bytes where a gap begins."""
        try:
            return self.pread(offset, length)
        except GapError:
            return b""

    def zeros_at(self, offset: int) -> int:
        """Return how many bytes from ``offset`` on are known, without reading, to be zeros (holes of a sparse file)."""
        return 0

    # -- what is known of its bytes ----------------------------------------------------------------------------------

    @property
    def flawed(self) -> bool:
        """Whether anything is known to be wrong with any of the bytes; never reads."""
        return bool(self.ledger or self.gaps or self.suspect_ranges)

    def resolve(self) -> None:  # noqa: B027 -- most data know all there is to know
        """If the data is known to break off or be damaged somewhere, find out where. Raises `LimitError`."""

    def verify(self) -> None:  # noqa: B027 -- most data know all there is to know
        """Decode a compressed stream to its end, so that everything wrong with it is known."""

    def range_status(self, start: int, end: int) -> RangeStatus:
        """Return whether the bytes ``[start, end)`` are there and right; see `pparse.data.range_status`."""
        return range_status(self, start, end)

    def why_suspect(self, start: int, end: int) -> str | None:
        """Return why decoded bytes in ``[start, end)`` may be wrong; None if nothing suggests that."""
        if start >= end:
            return None
        ledger = self.ledger
        reason = None if ledger is None else ledger.why_wrong(start, end)
        if reason is None:
            reasons = (one.reason for one in self.suspect_ranges if one.start < end and start < one.end)
            reason = next(reasons, None)
        return None if ledger is not None and ledger.proved.covers(start, end) else reason

    def passed_over(self, start: int, end: int) -> str | None:
        """Return which limit kept a gap in ``[start, end)`` from being decoded; None if no limit did."""
        return None

    def suspect_ranges_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches (start, end) within ``[start, end)`` that may be wrong, in order, without overlaps."""
        if self.why_suspect(start, end) is None:
            return []
        ledger = self.ledger
        found = [(one.start, one.end) for one in self.suspect_ranges]
        if ledger is not None:
            found += ledger.wrong()
        known = joined((max(low, start), min(high, end)) for low, high in found if low < end and start < high)
        known = known or [(start, end)]
        return known if ledger is None else [rest for pair in known for rest in ledger.proved.without(*pair)]

    def condemn(self, start: int, end: int, reason: str) -> None:
        """Record that a checksum contradicts the bytes ``[start, end)``: anything made of them is damaged."""
        if start < end:
            self._open_ledger().condemn(start, end, reason)
            self.stats.discover()

    def vouch(self, start: int, end: int) -> None:
        """Record that a checksum confirmed the bytes ``[start, end)``."""
        if start < end:
            self._open_ledger().vouch(start, end)
            self.stats.discover(good=True)

    def _open_ledger(self) -> Ledger:
        if self.ledger is None:
            with _MAKING:
                if self.ledger is None:
                    self.ledger = Ledger()
        return self.ledger

    @property
    def has_proofs(self) -> bool:
        """Whether a checksum confirmed any bytes; never reads."""
        return self.ledger is not None and len(self.ledger.proved) > 0

    def is_proved(self, start: int, end: int) -> bool:
        """Return whether a checksum confirmed all of the bytes ``[start, end)``."""
        return self.ledger is not None and self.ledger.proved.covers(start, end)

    def loose_gap(self, start: int = 0) -> int | None:
        """Return where the first gap from ``start`` on begins of which the length is not known exactly; else None."""
        gaps = self.gaps
        if not isinstance(gaps, GapTable):
            return next((gap.offset for gap in gaps if gap.offset >= start and not gap.exact), None)
        at = gaps._exact.find(0, bisect_left(gaps._offsets, start))
        return None if at < 0 else gaps._offsets[at]

    def inexact_gap(self, start: int, end: int) -> Gap | None:
        """Return the first gap that touches ``[start, end)`` and has no known length, or no end; None if none does."""
        gaps = self.gaps
        if isinstance(gaps, GapTable):
            at = gaps.loose(self._place_of_gap(start))
            return gaps[at] if at is not None and gaps[at].offset < end else None
        return next((gap for gap in self.gaps_in(start, end) if not gap.exact or gap.length is None), None)

    @property
    def reach(self) -> int | None:
        """Where the readable bytes end: `size`, or the start of a gap that reaches to the end; None while unknown."""
        last = self.gaps[-1] if self.gaps else None
        if last is not None and (last.end is None or (self.size is not None and last.end >= self.size)):
            return last.offset
        return self.size

    def read_exact(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at ``offset``.

        Raises `EndOfDataError`, with the numbers, if the data ends earlier, and `GapError` if a gap begins earlier.
        """
        chunk = self.pread(offset, length)
        if len(chunk) < length:
            self._clip(offset + len(chunk), 1)  # raises if a gap, not the end, cut the read
            raise EndOfDataError("the data ends here", offset=offset, wanted=length, got=len(chunk), source=self.name)
        return chunk

    def available(self, offset: int, count: int) -> bool:
        """Return whether ``count`` bytes at ``offset`` exist outside of gaps; decodes no further than that."""
        if count <= 0:
            return True
        end = offset + count
        gap = self.next_gap(offset)
        if gap is not None and gap.offset < end:
            return False
        if self.size is not None:
            return end <= self.size
        return sum(map(len, blocks(self.known, offset, end, 1 << 16))) == count

    # -- what is built on it -------------------------------------------------------------------------------------

    def open(self, offset: int = 0) -> Cursor:
        """Return a `Cursor` over the whole data, positioned at ``offset``."""
        return Cursor(self, offset)

    def range(self, start: int, end: int) -> Range:
        """Return a `Range` of the bytes ``[start, end)``."""
        return Range(self, start, end)

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Take the hint that these ranges, ``(offset, length)``, will be read soon; near data need none."""
        return

    def keep(self, start: int, end: int) -> None:
        """Keep ``[start, end)`` in memory if seeking back to it is expensive and the budget has room."""
        return

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the stretches (start, end) within ``[start, end)`` that were never written (file holes).

        They read as zeros; a preallocated, unfinished download leaves them. Sources that cannot tell yield nothing.
        """
        yield from ()

    def check_unchanged(self) -> None:
        """Raise `DataChangedError` if the source changed since it was opened; do nothing if the source cannot tell."""
        if self.closed:
            raise ClosedError("the data is closed", source=self.name)

    @property
    def stamp(self) -> list[int] | None:
        """Numbers by which a later run, perhaps after a move, knows that this is the same; None if there are none."""
        return None

    def same_source(self, path: str) -> bool:
        """Return whether these are the bytes of the file at ``path``, under any name: writing there would lose them."""
        return False

    def grown(self) -> Data | None:
        """Return the source with what was appended since it was opened; None if nothing was, or it cannot tell."""
        return None

    def locate(self, offset: int, length: int) -> list[tuple[Data, int, int]]:
        """Return where ``[offset, offset + length)`` lies in the outermost data, as (data, offset, length)."""
        return [(self, offset, length)]

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return a read-only view of the bytes without copying them, or None where that is not possible."""
        return None

    def close(self) -> None:
        """Release the source; closing twice is harmless. Reading afterwards raises `ClosedError`."""
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        size = "unknown size" if self.size is None else f"{self.size} bytes"
        return f"<{type(self).__name__} {self.name!r}, {size}{', closed' if self.closed else ''}>"


class BytesData(Data):
    """Bytes in memory (bytes, bytearray or any contiguous buffer; not copied)."""

    is_plain = True

    _identity: object | None = None

    def __init__(self, content: Buffer, name: str = "<bytes>", stats: IoStats | None = None) -> None:
        self._view = byte_view(content).toreadonly()
        super().__init__(name, len(self._view), stats)

    @property
    def identity(self) -> object:  # type: ignore[override]
        """Size and hash of the bytes. Raises `ClosedError` if they were dropped before this was first asked."""
        if self._identity is None:
            view = self._view
            self._clip(0, 0)  # raises if it is closed; the view was taken before
            self._identity = ("bytes", len(view), digest((view,)))
        return self._identity

    def _pread(self, offset: int, length: int) -> bytes:
        return self._view[offset : offset + length].tobytes()

    def _preadinto(self, offset: int, view: memoryview) -> int:
        view[:] = self._view[offset : offset + len(view)]
        return len(view)

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return a view of the bytes themselves."""
        if self._clip(offset, length) < length:
            return None
        return self._view[offset : offset + length]

    def close(self) -> None:
        """Drop the bytes (views handed out stay valid)."""
        super().close()
        self._view = memoryview(b"")


def blocks(read: Callable[[int, int], bytes], start: int, end: int, size: int) -> Iterator[bytes]:
    """Yield the bytes ``[start, end)`` in blocks of up to ``size``, each read once it is asked for, until none come.

    ``read``, called with an offset and a length, decides what ends them: `Data.read_exact` raises where bytes are
    missing, `Data.pread` where a block would begin in a gap; `Data.known` stops there.
    """
    while start < end and (block := read(start, min(size, end - start))):
        yield block
        start += len(block)


def copy_into(data: Data, offset: int, length: int, write: Callable[[bytes], object], step: int = 1 << 20) -> None:
    """Pass ``length`` bytes at ``offset`` to ``write``, ``step`` bytes at a time.

    Raises `EndOfDataError` if the data ends earlier.
    """
    for block in blocks(data.read_exact, offset, offset + length, step):
        write(block)


# -- Texts -------------------------------------------------------------------------------------------------------------

_BLOCK: Final = 128 << 10


def is_utf8(raw: bytes) -> bool:
    """Return whether ``raw`` is a text in UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def find_not_utf8(data: Data, start: int, end: int, errors: str = "strict") -> int | None:
    """Return where the text ``data[start:end]`` stops being UTF-8; None: it is UTF-8. Reads it piece by piece.

    ``errors`` is as in `bytes.decode`. Raises `EndOfDataError`, `GapError`.
    """
    decoder = getincrementaldecoder("utf-8")(errors)
    at = start
    for piece in blocks(data.read_exact, start, end, _BLOCK):
        kept = len(decoder.getstate()[0])
        try:
            decoder.decode(piece, at + len(piece) == end)
        except UnicodeDecodeError as error:
            return at - kept + error.start
        at += len(piece)
    return None


# -- Hashes of content, to tell it from other content ------------------------------------------------------------------


def digest(content: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """Return the BLAKE2b of all of ``content``, 16 bytes."""
    from hashlib import blake2b

    found = blake2b(digest_size=16)
    for piece in content:
        found.update(piece)
    return found.digest()
