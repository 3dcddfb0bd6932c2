"""What is known about a stretch of bytes: whether they are there, and whether they are right.

Only here is the status of bytes decided: complete, truncated, missing or damaged. What an entry claims is its parser's
to say; `pparse.tensors.status` joins both for a tensor, `Node.status` for a node (docs/status.md). Only what was
checked is claimed. What arithmetic tells (a source that ends early, a gap) is known at once. A stream that is known to
break somewhere is decoded to that place first (`Data.look`). Bytes that nothing contradicts are complete, and
``verified`` only if a checksum confirmed them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from pparse.errors import LimitError
from pparse.findings import Status
from pparse.locking import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.reader import Range


class SuspectRange:
    """A stretch ``[start, end)`` that was decoded and may still be wrong."""

    __slots__ = ("end", "reason", "start")

    def __init__(self, start: int, end: int, reason: str) -> None:
        self.start = start
        """Where it begins."""
        self.end = end
        """Where it ends."""
        self.reason = reason
        """Why it may be wrong, in words."""

    def __repr__(self) -> str:
        return f"SuspectRange({self.start}, {self.end}, {self.reason!r})"


class Proofs:
    """Stretches that a checksum confirmed: sorted, adjoining ones joined, found by bisection. Thread-safe."""

    __slots__ = ("_ends", "_lock", "_starts")

    def __init__(self) -> None:
        self._lock = Lock()
        self._starts = array("q")
        self._ends = array("q")

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int) -> None:
        """Add ``[start, end)``."""
        with self._lock:
            if not self._ends or start > self._ends[-1]:  # the usual case: members are read in order
                self._starts.append(start)
                self._ends.append(end)
                return
            first = bisect_left(self._ends, start)
            last = bisect_right(self._starts, end)
            if first < last:
                start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
            self._starts[first:last] = array("q", (start,))
            self._ends[first:last] = array("q", (end,))

    def remove(self, start: int, end: int) -> None:
        """Remove ``[start, end)``."""
        with self._lock:
            first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
            if first >= last:
                return
            kept = [(self._starts[first], start), (end, self._ends[last - 1])]
            kept = [(low, high) for low, high in kept if low < high]
            self._starts[first:last] = array("q", (low for low, _ in kept))
            self._ends[first:last] = array("q", (high for _, high in kept))

    def covers(self, start: int, end: int) -> bool:
        """Return whether all of ``[start, end)`` was confirmed."""
        with self._lock:
            place = bisect_right(self._starts, start)
            return place > 0 and self._ends[place - 1] >= end

    def without(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches of ``[start, end)`` that were not confirmed, in order, without overlaps."""
        found: list[tuple[int, int]] = []
        with self._lock:
            place = bisect_right(self._ends, start)
            while place < len(self._starts) and self._starts[place] < end:
                if self._starts[place] > start:
                    found.append((start, self._starts[place]))
                start = self._ends[place]
                place += 1
        if start < end:
            found.append((start, end))
        return found


class Condemned:
    """Stretches that a checksum contradicts, ordered by start and found by bisection. Thread-safe."""

    __slots__ = ("_lock", "_reach", "_starts", "_suspect_ranges")

    def __init__(self) -> None:
        self._lock = Lock()
        self._starts: list[int] = []
        self._suspect_ranges: list[SuspectRange] = []
        self._reach: list[int] = []  # the furthest end of this one and all before it

    def add(self, suspect: SuspectRange) -> None:
        """Add a stretch, unless it is already there."""
        with self._lock:
            place = bisect_right(self._starts, suspect.start)
            if (
                place
                and self._starts[place - 1] == suspect.start
                and self._suspect_ranges[place - 1].end == suspect.end
            ):
                return
            self._starts.insert(place, suspect.start)
            self._suspect_ranges.insert(place, suspect)
            del self._reach[place:]
            furthest = self._reach[-1] if place else 0
            for later in self._suspect_ranges[place:]:
                furthest = max(furthest, later.end)
                self._reach.append(furthest)

    def __iter__(self) -> Iterator[SuspectRange]:
        return iter(self._suspect_ranges)

    def inside(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches (start, end) that lie in ``[start, end)`` and are not all of it, in order."""
        with self._lock:
            first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
            found = ((one.start, one.end) for one in self._suspect_ranges[first:last] if one.end <= end)
            return [one for one in found if one != (start, end)]

    def touching(self, start: int, end: int) -> SuspectRange | None:
        """Return a stretch that overlaps ``[start, end)``; None if none does."""
        with self._lock:
            place = bisect_left(self._starts, end)
            while place and self._reach[place - 1] > start:
                place -= 1
                if self._suspect_ranges[place].end > start:
                    return self._suspect_ranges[place]
            return None


def joined(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the stretches (start, end) in order, with those that touch or overlap joined."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


class RangeStatus:
    """What is known about a stretch of bytes."""

    __slots__ = ("reason", "status", "there", "verified")

    def __init__(self, status: Status, verified: bool | None, reason: str | None, there: int) -> None:
        self.status = status
        """Complete, truncated, missing, damaged or unsupported."""
        self.verified = verified
        """True: a checksum confirmed the bytes; False: something contradicts them; None: neither."""
        self.reason = reason
        """Why the status is not complete, in words; None if it is."""
        self.there = there
        """How many bytes from the start of the stretch can be read."""

    def __repr__(self) -> str:
        return f"<RangeStatus {self.status}, verified {self.verified}, {self.there} bytes there: {self.reason}>"


def cut_status(there: object = True, *, damaged: bool = False) -> Status:
    """Return the status of something that ends early, be it a tensor, a node, a member or a file.

    TRUNCATED if its beginning is ``there`` (bytes, a count, or a truth value), MISSING if nothing is; DAMAGED if more
    than its end is wrong. Where all of that can vary, this decides it; for bytes of a `Data`, `range_status` does.
    """
    if damaged:
        return Status.DAMAGED
    return Status.TRUNCATED if there else Status.MISSING


def range_status(data: Data, start: int, end: int) -> RangeStatus:
    """Return what is known about ``data[start:end]``.

    Decodes only if something is already known to be wrong. Errors of the source propagate. If a limit keeps a stream,
    or what lies behind its damage, from being looked at, the status is UNSUPPORTED.
    """
    wanted = max(0, end - start)
    if not wanted:
        return RangeStatus(Status.COMPLETE, None, None, 0)
    try:
        data.look()
    except LimitError as error:
        return RangeStatus(Status.UNSUPPORTED, None, f"it could not be checked: {error.reason}", 0)
    size = data.size
    there = wanted if size is None else max(0, min(wanted, size - start))
    gap = data.next_gap(start) if data.gaps else None
    if gap is not None and gap.offset < start + there:
        there = max(0, gap.offset - start)
    why_suspect = data.why_suspect(start, start + there)
    if why_suspect is not None:
        return RangeStatus(Status.DAMAGED, False, why_suspect, there)
    if there == wanted:
        return RangeStatus(Status.COMPLETE, True if data.is_proved(start, end) else None, None, there)
    limit = data.passed_over(start + there, end)
    if limit is not None:
        return RangeStatus(Status.UNSUPPORTED, None, limit, there)
    at_end = gap is None or gap.end is None or (size is not None and gap.end >= size)
    if gap is not None and not at_end and (there or (gap.end or 0) < end):
        return RangeStatus(Status.DAMAGED, None, _LOST, there)
    reason = _CUT if there else _BEYOND if at_end else _NOTHING
    return RangeStatus(cut_status(there), None, reason, there)


def worst_of(parts: Iterable[Range]) -> RangeStatus | None:
    """Return the worst of what is known now against the parts of one thing; None if that is nothing."""
    worst: RangeStatus | None = None
    for part in parts:
        found = part.data.range_status(part.start, part.end)
        if found.status is Status.DAMAGED:
            return found
        if found.status is not Status.COMPLETE:
            worst = found
    return worst


def status_of(parts: Iterable[Range]) -> Status:
    """Return the worst status known now among the parts of one thing."""
    worst = worst_of(parts)
    return Status.COMPLETE if worst is None else worst.status


_LOST: Final = "some of its bytes are lost"
_NOTHING: Final = "all of its bytes are lost"
_BEYOND: Final = "it lies beyond the end of the data"
_CUT: Final = "it extends beyond the end of the data"
