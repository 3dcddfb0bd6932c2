"""What is known about a stretch of bytes: whether they are there, and whether they are right; the `Ledger` keeps it, in
`Stretches`: ``[start, end)`` of something long, sorted and without overlaps.

Only here is the status of bytes decided: complete, truncated, missing or damaged. What an entry claims is its parser's
to say; `pparse.tensors.status` joins both for a tensor, `Node.status` for a node (docs/status.md). Only what was
checked is claimed. What arithmetic tells (a source that ends early, a gap) is known at once. A stream that is known to
break somewhere is decoded to that place first (`Data.resolve`). Bytes that nothing contradicts are complete, and
``verified`` only if a checksum confirmed them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from pparse.errors import LimitError
from pparse.findings import HasStatus, Status
from pparse.locking import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

    from pparse.data.base import Data, Range


class Stretches:
    """A set of offsets, as stretches: sorted, adjoining ones joined, 16 bytes each, found by bisection. Thread-safe."""

    __slots__ = ("_ends", "_lock", "_starts")

    def __init__(self, stretches: Iterable[tuple[int, int]] = ()) -> None:
        self._lock = Lock()
        self._starts = array("q")
        self._ends = array("q")
        for start, end in stretches:
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        with self._lock:
            return iter(list(zip(self._starts, self._ends, strict=True)))

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
        """Return whether all of ``[start, end)`` is in it."""
        with self._lock:
            place = bisect_right(self._starts, start)
            return place > 0 and self._ends[place - 1] >= end

    def without(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches of ``[start, end)`` that are not in it, in order."""
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


def joined(stretches: Iterable[tuple[int, int]], apart: int = 0) -> list[tuple[int, int]]:
    """Return the stretches in order; those that overlap, or are at most ``apart`` from each other, are joined."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1] + apart:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


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


class RangeStatus(HasStatus):
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
        data.resolve()
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
        if not found.is_complete:
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


# -- What was found out about stretches of bytes: which are wrong, with the reason, and which a checksum confirmed -----

# The one store of such evidence. Precedence, too, is decided here: of two checksums that disagree, that of fewer bytes
# counts. A damaged file may have been compressed, and a part of a damaged stream may be whole.

# Reasons that are kept in full; those of further stretches are told in general words.
_REASONS: Final = 1_000
_OTHER: Final = "a checksum contradicts it"


class Ledger:
    """Evidence about the bytes of one source. Takes 28 bytes for a wrong stretch, 16 for a proved one. Thread-safe."""

    __slots__ = ("_ends", "_lock", "_numbers", "_reach", "_reasons", "_starts", "_words", "proved")

    def __init__(self) -> None:
        self.proved = Stretches()
        """What a checksum confirmed, and none of fewer bytes contradicts."""
        self._lock = Lock()
        # The wrong stretches, ordered by start; they may overlap.
        self._starts = array("q")
        self._ends = array("q")
        self._reach = array("q")  # the furthest end of this one and all before it
        self._reasons = array("H")  # their places in ``_words``
        self._words = [_OTHER]
        self._numbers = {_OTHER: 0}

    def __len__(self) -> int:
        """Return how many stretches are wrong."""
        return len(self._starts)

    def condemn(self, start: int, end: int, reason: str) -> None:
        """Record that ``[start, end)`` is wrong, and why; the first reason stays."""
        if self.proved.covers(start, end):
            self.proved.remove(start, end)
        with self._lock:
            starts, ends, reach = self._starts, self._ends, self._reach
            place = bisect_right(starts, start)
            if place and starts[place - 1] == start and ends[place - 1] == end:
                return
            if reason not in self._numbers and len(self._words) <= _REASONS:
                self._numbers[reason] = len(self._words)
                self._words.append(reason)
            starts.insert(place, start)
            ends.insert(place, end)
            self._reasons.insert(place, self._numbers.get(reason, 0))
            reach.insert(place, max(end, reach[place - 1]) if place else end)
            for later in range(place + 1, len(reach)):
                if reach[later] >= end:
                    break
                reach[later] = end

    def vouch(self, start: int, end: int) -> None:
        """Record that a checksum confirmed ``[start, end)``."""
        self.proved.add(start, end)
        with self._lock:
            first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
            inside = [
                one for one in zip(self._starts[first:last], self._ends[first:last], strict=True) if one[1] <= end
            ]
        for low, high in inside:
            if (low, high) != (start, end):
                self.proved.remove(low, high)

    def why_wrong(self, start: int, end: int) -> str | None:
        """Return why bytes of ``[start, end)`` are wrong; None if nothing says so."""
        with self._lock:
            place = bisect_left(self._starts, end)
            while place and self._reach[place - 1] > start:
                place -= 1
                if self._ends[place] > start:
                    return self._words[self._reasons[place]]
            return None

    def is_wrong_at(self, start: int) -> bool:
        """Return whether a stretch that begins at ``start`` is wrong."""
        with self._lock:
            place = bisect_left(self._starts, start)
            return place < len(self._starts) and self._starts[place] == start

    def wrong(self) -> Iterator[tuple[int, int]]:
        """Return the wrong stretches ``(start, end)``, ordered by start."""
        with self._lock:
            return iter(list(zip(self._starts, self._ends, strict=True)))
