"""Zeros in a tar archive: the end mark with its padding, or bytes that were never written.

A download into a file of full size that stopped leaves zeros from some byte on. If that is a boundary between two
members, or a reader stops at the members before it, nothing else in the format shows it.
"""

from __future__ import annotations

from pparse.data.base import Access
from pparse.data.range_status import cut_status
from pparse.data.zero_runs import LEAST, PAGE, unwritten, zeros_at_end
from pparse.findings import Severity, Status
from pparse.limits import KIB, count_words
from pparse.parsers.tar.headers import BLOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.containers.archive import ArchiveMember
    from pparse.findings import Finding
    from pparse.parsers.tar.mend import Body
    from pparse.parsers.tar.source import TarSource

_MARK: Final = 2 * BLOCK  # two blocks of zeros mark the end
_RECORD: Final = 20 * BLOCK  # what archives are padded to by default
# Other records that archives are padded to (tar -b): powers of two, up to that of fast tapes.
_RECORDS: Final = (_RECORD, *(BLOCK << number for number in range(1, 12)))
_EMPTY: Final = 64 * KIB  # the most that an archive without members is padded to
_STRETCHES: Final = 1_000  # of a member, reported one by one


def is_padding(source: TarSource, blank: int, end: int) -> bool:
    """Say whether the number of zeros in ``[blank, end)`` is that of an archive's end mark with padding."""
    room = end - blank - _MARK
    return room == 0 or any(0 < room < record and (end - source.start) % record == 0 for record in _RECORDS)


def judge_blank(source: TarSource, blank: int, end: int, *, at_end: bool) -> tuple[Status | None, Finding | None]:
    """Return what is wrong with zeros in ``[blank, end)`` in place of a header; ``at_end``: nothing else follows."""
    size = end - blank
    alone = at_end and blank <= source.start
    if is_padding(source, blank, end) if not alone else size <= _EMPTY:
        holes = 0 if size < _MARK + _RECORD else _holes_in(source, blank, end)
        if not holes:
            return None, None
    elif at_end and size < _MARK + _RECORD:
        return None, None
    else:
        holes = _holes_in(source, blank, end)
    if holes or alone:
        where = "the archive continues with" if not alone else "the archive consists of"
        reason = f"{where} {count_words(size, 'byte')} of zeros"
        if holes:
            reason += f", {holes:,} of them never written (a file hole): members are missing"
        else:
            reason += ": it was never written"
        status = cut_status(damaged=not at_end)
        return status, source.finding("unwritten", reason, blank, size)
    if at_end:
        reason = f"{count_words(size, 'byte')} of zeros follow the last member, more than the padding of an archive: "
        reason += "if it was not written completely, members are missing"
    else:
        reason = f"{count_words(size, 'byte')} of zeros between two members, and no end of an archive there: "
        reason += "members may be missing"
    return None, source.finding("zeros", reason, blank, size, severity=Severity.WARNING)


def _holes_in(source: TarSource, start: int, end: int) -> int:
    return sum(high - low for low, high in unwritten(source.data, start, end)) if source.has_holes else 0


def stretches_unwritten(source: TarSource, start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of a member that were never written; if there are very many, the last extends to the end."""
    found: list[tuple[int, int]] = []
    for low, high in unwritten(source.data, start, end) if source.has_holes else ():
        found.append((low, high))
        if len(found) == _STRETCHES:
            found[-1] = low, end
            break
    return found


def note_unwritten(source: TarSource, body: Body) -> None:
    """Record the ranges of a member that were never written: its end is missing, or bytes inside are lost."""
    if body.pieces is not None or not source.has_holes:
        return
    found = stretches_unwritten(source, body.start, body.end)
    if not found:
        return
    first, size = found[0][0], body.end - body.start
    lost = sum(high - low for low, high in found)
    never = "never written (a file hole): they read as zeros"
    if len(found) == 1 and found[0][1] >= body.end:
        reason = f"it ends after {first - body.start:,} of {size:,} bytes: the other {lost:,} were {never}"
        body.spoil(Status.TRUNCATED, "unwritten", reason)
    else:
        body.spoil(Status.DAMAGED, "unwritten", f"{lost:,} of its {size:,} bytes were {never}")
    if body.code == "unwritten":
        body.place = first, found[-1][1] - first


def zeros_to_the_end(source: TarSource, member: ArchiveMember) -> Finding | None:
    """Return a warning if a member ends with zeros, and only zeros follow it.

    Only for 64 KiB of zeros or more, in whole pages. For members that are read anyway.
    """
    if member.kind != "file" or member.pieces is not None or source.data.access is not Access.FREE:
        return None
    at = zeros_at_end(source.data, member.start, member.end)
    page = -(-at // PAGE) * PAGE
    if page >= member.end:
        return None
    end = source.skip_zeros(member.end + -(member.end - source.start) % BLOCK)
    if source.reach(end, end + BLOCK) - end >= BLOCK or end // PAGE * PAGE - page < LEAST:
        return None
    reason = f"its last {member.end - at:,} bytes are zeros, and so is the rest of the file: they may be lost"
    return source.finding("zeros", reason, at, member.end - at, name=member.name, severity=Severity.WARNING)
