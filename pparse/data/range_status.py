"""What is known about a stretch of bytes: whether they are there, and whether they are right.

Only here is the status of bytes decided: complete, truncated, missing or damaged. What an entry claims is its parser's
to say; `pparse.tensors.status` joins both for a tensor, `Node.status` for a node (docs/status.md). Only what was
checked is claimed. What arithmetic tells (a source that ends early, a gap) is known at once. A stream that is known to
break somewhere is decoded to that place first (`Data.resolve`). Bytes that nothing contradicts are complete, and
``verified`` only if a checksum confirmed them.
"""

from __future__ import annotations

from pparse.errors import LimitError
from pparse.findings import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
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
