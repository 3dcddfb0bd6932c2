"""Who serves the bytes.

A `Data` owns one source and is the only code that touches it. It has one primitive without seek state, safe from
several threads: `Data.pread` (and `Data.preadinto`). Everything else, `Cursor` and `Range` included, is built on it.

Offsets are offsets *of the Data*; a `Reader` counts from its own start, as a file does.
"""

from __future__ import annotations

import enum
import os
import threading
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Sequence

from pparse.data.reader import Cursor, Range, byte_view
from pparse.data.standing import Condemned, Proofs, SuspectRange, joined, standing
from pparse.errors import ClosedError, EndOfDataError, GapError, SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final, Self

    from pparse.data.files import DescriptorPool
    from pparse.data.standing import Standing
    from pparse.errors import PparseError

    Buffer = bytes | bytearray | memoryview

# One system call never returns more than this (Linux: 2 GiB - 4 KiB; macOS refuses more than INT_MAX).
_FAR: Final = (1 << 63) - 1  # no source is as long as that
MAX_SYSTEM_READ: Final = 1 << 30
# So that two threads do not make what notes stretches of one Data twice.
_MAKING: Final = threading.Lock()
# Buffers that one call fills (Linux: IOV_MAX is 1024).
MAX_VIEWS: Final = 1_000


class Access(enum.Enum):
    """What a backward seek costs."""

    FREE = "free"
    CHECKPOINT = "checkpoint"  # decode again from a saved state nearby
    RESTART = "restart"  # decode again from the start


class Gap:
    """A stretch of the source that cannot be had.

    ``length`` is None where nothing can be had from here to the end. ``exact`` False: bytes are missing here, and
    nobody knows how many; offsets behind the gap go on as if it were ``length`` bytes.
    """

    __slots__ = ("exact", "length", "offset")

    def __init__(self, offset: int, length: int | None, exact: bool = True) -> None:
        self.offset = offset
        self.length = length
        self.exact = exact

    @property
    def end(self) -> int | None:
        """Where the gap ends; None: nowhere."""
        return None if self.length is None else self.offset + self.length

    def __repr__(self) -> str:
        return f"Gap({self.offset}, {self.length}{'' if self.exact else ', exact=False'})"

    def __eq__(self, other: object) -> bool:
        mine = (self.offset, self.length, self.exact)
        return isinstance(other, Gap) and mine == (other.offset, other.length, other.exact)

    def __hash__(self) -> int:
        return hash((self.offset, self.length, self.exact))


class GapTable(Sequence[Gap]):
    """Gaps in order, of which there may be hundreds of thousands: 17 bytes for each."""

    __slots__ = ("_exact", "_lengths", "_offsets")

    def __init__(self, gaps: Iterable[Gap] = ()) -> None:
        self._offsets = array("q")
        self._lengths = array("q")  # -1: to the end
        self._exact = bytearray()
        for gap in gaps:
            self.add(gap.offset, gap.length, gap.exact)

    def add(self, offset: int, length: int | None, exact: bool = True) -> None:
        """Add a gap behind those that are there; one of no length is none."""
        if length != 0:
            self._offsets.append(min(offset, _FAR))
            self._lengths.append(-1 if length is None else min(length, _FAR))
            self._exact.append(exact)

    def add_all(self, gaps: Sequence[Gap], shift: int) -> None:
        """Add ``gaps``, each moved by ``shift``."""
        if isinstance(gaps, GapTable):
            self._offsets.extend(array("q", (offset + shift for offset in gaps._offsets)))
            self._lengths.extend(gaps._lengths)
            self._exact += gaps._exact
            return
        for gap in gaps:
            self.add(gap.offset + shift, gap.length, gap.exact)

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<GapTable of {len(self)}>"


class IoStats:
    """Counts what sources served; one is shared by all sources of a document.

    ``reads`` and ``bytes`` are totals. With ``log=True`` the ranges are kept too, adjoining ones joined, at most
    10,000 of them (``dropped`` counts the rest). ``discoveries`` counts what was found out of bytes, good or bad: who
    keeps an answer that may change with it compares the number.
    """

    __slots__ = ("_lock", "bytes", "discoveries", "dropped", "log", "reads")

    MAX_LOG = 10_000

    def __init__(self, *, log: bool = False) -> None:
        self._lock = threading.Lock()
        self.reads = 0
        self.bytes = 0
        self.dropped = 0
        self.discoveries = 0
        self.log: list[tuple[str, int, int]] | None = [] if log else None

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

    def discover(self) -> None:
        """Count something that was found out of bytes."""
        with self._lock:
            self.discoveries += 1


class Data(ABC):
    """A source of bytes.

    Attributes: ``name`` for people; ``size`` in bytes, None until the end of a stream of unknown size was seen;
    ``access``; ``gaps``, in order, none overlapping; ``suspect_ranges``, in order; ``error``, why it does not go on as
    it should, once reading came to that; ``checksum``, what it is held against when its end is decoded, and
    ``contradiction``, what that found if it does not agree; ``revision``, how often it turned out that what was given
    before was not right, and other bytes are given now; ``place``, where the last read ended; ``stats``.
    """

    name: str
    size: int | None
    access: Access = Access.FREE
    gaps: Sequence[Gap] = ()
    suspect_ranges: tuple[SuspectRange, ...] = ()
    error: PparseError | None = None
    checksum: tuple[str, int] | None = None
    contradiction: str | None = None
    revision: int = 0
    place: int = 0
    _condemned: Condemned | None = None
    _proofs: Proofs | None = None

    def __init__(self, name: str, size: int | None, stats: IoStats | None = None) -> None:
        self.name = name
        self.size = size
        self.stats = stats if stats is not None else IoStats()
        self.closed = False

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

        Never allocates more than there is to serve, whatever ``length`` says. Raises `GapError` if ``offset`` lies in
        a gap, `ClosedError`, `SourceError`, `DataChangedError`.
        """
        length = self._clip(offset, length)
        if length == 0:
            return b""
        chunk = self._pread(offset, length)
        self.place = offset + len(chunk)
        self.stats.count(self.name, offset, len(chunk))
        return chunk

    def preadinto(self, offset: int, buffer: Buffer) -> int:
        """Fill ``buffer`` from ``offset``; return how many bytes were written. Short only as `pread` is."""
        view = byte_view(buffer)
        length = self._clip(offset, len(view))
        if length == 0:
            return 0
        got = self._preadinto(offset, view[:length])
        self.place = offset + got
        self.stats.count(self.name, offset, got)
        return got

    def preadv(self, offset: int, views: list[memoryview]) -> int:
        """Fill several buffers, one after the other, from ``offset``; return how many bytes were written.

        Short only as `preadinto` is. Bytes between those that are wanted go into a buffer of their own.
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
        """Say whether nothing follows at ``offset`` because the source was cut: what is lost there is the end."""
        gap = self.next_gap(offset) if self.gaps else None
        if gap is None or gap.offset > offset or not isinstance(self.error, EndOfDataError):
            return False
        return gap.end is None or (self.size is not None and gap.end >= self.size)

    def next_gap(self, offset: int) -> Gap | None:
        """Return the gap that ``offset`` lies in, or else the first one behind it; None if there is none."""
        gaps = self.gaps
        place = gaps.place(offset) if isinstance(gaps, GapTable) else bisect_right(gaps, offset, key=_gap_offset)
        if place:
            gap = gaps[place - 1]
            if gap.length is None or offset - gap.offset < gap.length:
                return gap
        return gaps[place] if place < len(gaps) else None

    def read_known(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return up to ``length`` bytes at ``offset``, reading on behind gaps, and what is unknown of them.

        Unknown bytes are zeros; the stretches of them are ``(offset, length)``, in offsets of the data. Short only at
        the end of the data and at a gap without end.
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
            if not chunk:
                break
            pieces.append(chunk)
            offset += len(chunk)
            length -= len(chunk)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), unknown

    def zeros_at(self, offset: int) -> int:
        """Return how many bytes from ``offset`` on are known to be zeros without reading (holes of a sparse file)."""
        return 0

    # -- what is known of its bytes ----------------------------------------------------------------------------------

    @property
    def flawed(self) -> bool:
        """Whether anything is known against any of its bytes; cheap, and never reads."""
        return self._condemned is not None or bool(self.gaps) or bool(self.suspect_ranges)

    def look(self) -> None:  # noqa: B027 -- most data know all there is to know
        """If it is known that this breaks off or is damaged somewhere, find out where. Raises `LimitError`."""

    def finish(self) -> None:  # noqa: B027 -- most data know all there is to know
        """Read what must be read to its end before all is known of it: a compressed stream."""

    def standing(self, start: int, end: int) -> Standing:
        """Say whether the bytes ``[start, end)`` are there, and right; see `pparse.data.standing.standing`."""
        return standing(self, start, end)

    def why_suspect(self, start: int, end: int) -> str | None:
        """Say why bytes in ``[start, end)`` may be wrong though they were decoded; None where nothing says so."""
        if start >= end:
            return None
        found: SuspectRange | None = None if self._condemned is None else self._condemned.touching(start, end)
        if found is None:
            found = next(
                (suspect for suspect in self.suspect_ranges if suspect.start < end and start < suspect.end), None
            )
        if found is None or (self._proofs is not None and self._proofs.covers(start, end)):
            return None
        return found.reason

    def passed_over(self, start: int, end: int) -> str | None:
        """Say which limit of ours kept bytes in ``[start, end)`` from being had, where there is a gap; None: none."""
        return None

    def suspect_ranges_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches ``(first, last + 1)`` of ``[start, end)`` that may be wrong, in order and apart."""
        if self.why_suspect(start, end) is None:
            return []
        suspect_ranges = (*self.suspect_ranges, *(self._condemned or ()))
        known = joined(
            (max(suspect.start, start), min(suspect.end, end))
            for suspect in suspect_ranges
            if suspect.start < end and start < suspect.end
        )
        known, proofs = known or [(start, end)], self._proofs
        return known if proofs is None else [rest for pair in known for rest in proofs.without(*pair)]

    def condemn(self, start: int, end: int, reason: str) -> None:
        """Remember that a checksum contradicts the bytes ``[start, end)``: whatever is made of them is damaged."""
        if start < end:
            if self._condemned is None:
                with _MAKING:
                    self._condemned = self._condemned or Condemned()
            self._condemned.add(SuspectRange(start, end, reason))
            self.stats.discover()

    def vouch(self, start: int, end: int) -> None:
        """Remember that a checksum confirmed the bytes ``[start, end)``."""
        if start < end:
            if self._proofs is None:
                with _MAKING:
                    self._proofs = self._proofs or Proofs()
            self._proofs.add(start, end)
            self.stats.discover()

    def is_proved(self, start: int, end: int) -> bool:
        """Say whether a checksum confirmed all the bytes ``[start, end)``."""
        return self._proofs is not None and self._proofs.covers(start, end)

    @property
    def reach(self) -> int | None:
        """Where what can be had ends: `size`, or where a gap begins that goes on to the end; None while unknown."""
        last = self.gaps[-1] if self.gaps else None
        if last is not None and (last.end is None or (self.size is not None and last.end >= self.size)):
            return last.offset
        return self.size

    def read_exact(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at ``offset``.

        Raises `EndOfDataError` with the numbers where the data ends before, `GapError` where a gap begins before.
        """
        chunk = self.pread(offset, length)
        if len(chunk) < length:
            self._clip(offset + len(chunk), 1)  # raises if a gap, not the end, cut the read
            raise EndOfDataError("the data ends here", offset=offset, wanted=length, got=len(chunk), source=self.name)
        return chunk

    def available(self, offset: int, count: int) -> bool:
        """Say whether there are ``count`` bytes at ``offset``, none in a gap, without producing more than those."""
        if count <= 0:
            return True
        end = offset + count
        gap = self.next_gap(offset)
        if gap is not None and gap.offset < end:
            return False
        if self.size is not None:
            return end <= self.size
        got = 0
        while got < count:
            try:
                chunk = self.pread(offset + got, min(count - got, 1 << 16))
            except GapError:
                return False
            if not chunk:
                return False
            got += len(chunk)
        return True

    # -- what is built on it -------------------------------------------------------------------------------------

    def open(self, offset: int = 0) -> Cursor:
        """Return a `Cursor` over the whole data, standing at ``offset``."""
        return Cursor(self, offset)

    def range(self, start: int, end: int) -> Range:
        """Return a `Range` of the bytes ``[start, end)``."""
        return Range(self, start, end)

    def keep(self, start: int, end: int) -> None:
        """Keep ``[start, end)`` in memory if it is dear to go back to, and the budget has room; else do nothing."""
        return

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ``(start, end)`` stretches in ``[start, end)`` that were never written (file holes).

        They read as zeros, and are what a preallocated, unfinished download leaves. Sources that cannot know yield
        nothing.
        """
        yield from ()

    def check_unchanged(self) -> None:
        """Raise `DataChangedError` if the source changed since it was opened; sources that cannot know return."""
        if self.closed:
            raise ClosedError("the data is closed", source=self.name)

    def locate(self, offset: int, length: int) -> list[tuple[Data, int, int]]:
        """Return the stretches of outermost data that ``[offset, offset + length)`` is made of."""
        return [(self, offset, length)]

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return a read-only view of the bytes without copying them, or None where that is not possible."""
        return None

    def close(self) -> None:
        """Release the source; harmless when repeated. Reading afterwards raises `ClosedError`."""
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

    def __init__(self, content: Buffer, name: str = "<bytes>", stats: IoStats | None = None) -> None:
        self._view = byte_view(content).toreadonly()
        super().__init__(name, len(self._view), stats)

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


class FileData(Data):
    """A regular file (or block device), read by ``pread`` through a pool that keeps few descriptors open.

    The file is known by device, inode, size and modification time; when any of them changes, or it was written to and
    its time put back, reading raises `DataChangedError` rather than a wrong answer.
    """

    def __init__(self, path: str | os.PathLike[str], pool: DescriptorPool | None = None, stats: IoStats | None = None):
        from pparse.data.files import DescriptorPool, FileIdentity  # files needs nothing of ours but errors

        self.path = os.fspath(path)
        if pool is None:
            pool = DescriptorPool()
        self._pool = pool
        self._file = pool.register(self.path)
        self.identity: FileIdentity = self._file.identity
        super().__init__(self.path, self.identity.size, stats)

    def _pread(self, offset: int, length: int) -> bytes:
        pieces: list[bytes] = []
        while length:
            chunk = self._file.pread(offset, min(length, MAX_SYSTEM_READ))
            if not chunk:
                self._explain_short_read(offset)
            if len(chunk) == length and not pieces:
                return chunk
            pieces.append(chunk)
            offset += len(chunk)
            length -= len(chunk)
        return b"".join(pieces)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        done = 0
        while done < len(view):
            got = self._file.preadinto(offset + done, view[done : done + MAX_SYSTEM_READ])
            if not got:
                self._explain_short_read(offset + done)
            done += got
        return done

    def preadv(self, offset: int, views: list[memoryview]) -> int:
        """Fill several buffers with few calls to the system."""
        total = sum(map(len, views))
        if self.gaps or self._clip(offset, total) < total:
            return super().preadv(offset, views)
        done = number = 0
        while number < len(views):
            some = views[number : number + MAX_VIEWS]
            wanted = sum(map(len, some))
            got = self._file.preadv(offset + done, some) if wanted <= MAX_SYSTEM_READ else 0
            if got < wanted:  # short, or more than the system reads at once: one by one
                return done + super().preadv(offset + done, views[number:])
            done += got
            number += len(some)
            self.place = offset + done
            self.stats.count(self.name, offset + done - got, got)
        return done

    def _explain_short_read(self, offset: int) -> None:
        # Lengths were clipped to the size seen at open, so nothing less can come without a change.
        self.check_unchanged()
        raise SourceError("the system served fewer bytes than the file has", source=self.name, offset=offset)

    def check_unchanged(self) -> None:
        """Compare the file with what it was at open. Raises `DataChangedError` if it differs, `ClosedError`."""
        super().check_unchanged()
        self._file.check_unchanged()

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the file holes in ``[start, end)``, as the file system reports them (SEEK_HOLE)."""
        if self.size is not None:
            yield from self._file.holes(start, min(end, self.size))

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return a read-only memory map of the bytes (its pages are the caller's, not the budget's)."""
        if self._clip(offset, length) < length:
            return None
        return self._file.mapped(offset, length)

    def close(self) -> None:
        """Close the descriptor."""
        super().close()
        self._file.close()


def _gap_offset(gap: Gap) -> int:
    return gap.offset


def copy_into(data: Data, offset: int, length: int, write: Callable[[bytes], object], step: int = 1 << 20) -> None:
    """Stream ``length`` bytes at ``offset`` into ``write``, ``step`` at a time.

    Raises `EndOfDataError` if the data ends before.
    """
    while length:
        chunk = data.read_exact(offset, min(length, step))
        write(chunk)
        offset += len(chunk)
        length -= len(chunk)
