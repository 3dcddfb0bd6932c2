"""The status of a tensor, and `Extent`: how much of a document is there, and what its tensors are like.

The status: TRUNCATED, MISSING, DAMAGED … by what its format claims, and by the bytes it is read from.

The claim is made where the tensor's entry is read (for safetensors `pparse.parsers.safetensors.parser`): sizes and
offsets are compared with each other, and here with the end of the file. What is known about a range of bytes, from
streams and checksums around it, is decided in `pparse.data.range_status`. Here both become one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import chain
from math import prod

from pparse.data.range_status import RangeStatus, Stretches, cut_status
from pparse.errors import EndOfDataError, LimitError
from pparse.findings import BROKEN, COMPLETE, ENDS_EARLY, Finding, Severity, Status, worst_status
from pparse.limits import FREE_EXPANSION, Limits, are, count_words, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.opening import Resume
    from pparse.limits import MemoryBudget
    from pparse.tensors.span import Span
    from pparse.tensors.tensor import Tensor


# Statuses of tensors whose bytes are right, as far as they are there.
WHOLE_OR_CUT: Final = (Status.COMPLETE, Status.TRUNCATED)
# What nothing that is learned later changes: its bytes may be there, and are not to be used.
SETTLED: Final = (Status.DAMAGED, Status.UNSUPPORTED)


def expansion_of(tensor: Tensor) -> int:
    """Return how many times more bytes a tensor has than stand for it, if that is beyond the limit; else 0.

    Strides of 0 make one value any number of elements.
    """
    there, wanted, owner = tensor.stored_nbytes, tensor.nbytes, tensor._owner
    limits = Limits() if owner is None else owner.extraction.session.limits
    return -(-wanted // max(1, there)) if wanted > there * limits.expansion_ratio + FREE_EXPANSION else 0


def refuse_expanded(tensor: Tensor) -> None:
    """Raise `LimitError` for a tensor that would be read for ever, though few bytes stand for it."""
    ratio = expansion_of(tensor)
    if ratio:
        reason = f"{format_size(tensor.stored_nbytes)} stand for all of its {format_size(tensor.nbytes)}"
        raise LimitError(reason, option=f"--limit expansion_ratio={ratio}", wanted=tensor.nbytes, path=tensor.name)


def status_by_place(begin: int, end: int, there: int) -> Status:
    """Return the status of a tensor whose bytes are ``[begin, end)`` where ``there`` bytes exist.

    COMPLETE if all of them exist, TRUNCATED if only the first ones do, MISSING if none does.
    """
    if end <= there or begin == end:
        return COMPLETE
    return cut_status(begin < there)


def tensor_status(claimed: Status, known: Callable[[], RangeStatus | None]) -> Status:
    """Return the status of a tensor; ``known`` tells what is known against its bytes, and may have to decode them."""
    if claimed in SETTLED:
        return claimed
    found = known()
    if found is None or (claimed is not Status.COMPLETE and found.status is not Status.DAMAGED):
        return claimed
    return found.status


def status_of_spans(spans: tuple[Span, ...]) -> RangeStatus | None:
    """Return the worst of what is known against the bytes of ``spans``; None if there is nothing."""
    worst: RangeStatus | None = None
    for span in spans:
        if span.is_open and span.data is not None and span.data.flawed:
            found = span.data.range_status(span.offset, span.offset + span.length)
            if found.status is Status.DAMAGED:
                return found
            if found.status is not Status.COMPLETE:
                worst = worst or found
    return worst


def status_behind_gaps(spans: tuple[Span, ...], start: int) -> RangeStatus | None:
    """Return that a tensor may stand elsewhere, if an unknown number of bytes is lost before it; None if not.

    Its offset counts from ``start``, where its file begins in the data.
    """
    for span in spans:
        if span.is_open and span.data is not None:
            gap = span.data.loose_gap(start)
            if gap is not None and gap < span.offset:
                reason = f"an unknown number of bytes is lost at {gap:,}, before it: it may not stand here"
                return RangeStatus(Status.DAMAGED, None, reason, span.length)
    return None


def is_beyond_arrays(shape: tuple[int, ...]) -> bool:
    """Say whether an array without elements has a shape that no array can have: the other lengths are too large.

    numpy counts bytes as if lengths of 0 were 1; the limit leaves room for elements of 16 bytes.
    """
    return 0 in shape and prod(length for length in shape if length) >= 1 << 59


COMPLETE_WORDS: Final = {True: "complete, verified", False: "complete, contradicted", None: "complete, unverified"}


def status_words(status: Status, verified: bool | None) -> str:
    """Return a status in words."""
    if status is not Status.COMPLETE:
        return str(status)
    return COMPLETE_WORDS[verified]


def finding_by_status(status: Status, reason: str, code: str = "", **told: Any) -> Finding:
    """Return the finding on a tensor of this status, a warning if it just cannot be read; ``told`` as in `Finding`.

    Unless a ``code`` says more, it is the status, or bad-entry if what is there is wrong.
    """
    code = code or ("bad-entry" if status is Status.DAMAGED else str(status))
    severity = Severity.WARNING if status is Status.UNSUPPORTED else Severity.ERROR
    return Finding(code, reason, severity=severity, **told)


def there_words(there: int, wanted: int) -> str:
    """Return how many bytes of a tensor are there, in words."""
    return f"{f'{there:,}' if there else 'none'} of its {count_words(wanted, 'byte')} {are(there)} there"


# -- Where the bytes are that are lost or in doubt: in tensors, or in what leads to them -------------------------------


def flawed_only_in(data: Data, start: int, end: int, places: Iterable[tuple[int, int]]) -> bool:
    """Return whether all bytes in ``[start, end)`` that are lost or in doubt lie in one of ``places``, ``(start, end)``
    each: then nothing else can be missing."""
    if data.loose_gap(start) is not None or isinstance(data.error, EndOfDataError):
        return False
    known = Stretches(places)
    gaps = ((gap.offset, gap.end or end) for gap in data.gaps_in(start, end))
    return all(known.covers(low, high) for low, high in (*data.suspect_ranges_in(start, end), *gaps))


# -- Tensors in holes of a file: bytes that were never written, as of a download into a preallocated file --------------


def unwritten_in(holes: list[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """Return ``(offset of the first, number)`` of the bytes in ``[start, end)`` that lie in ``holes`` (in order)."""
    if len(holes) == 1 and holes[0][0] <= start and end <= holes[0][1]:
        return start, end - start  # only the beginning of the file was written
    at = max(0, bisect_right(holes, (start, 1 << 63)) - 1)
    first = length = 0
    while at < len(holes) and holes[at][0] < end:
        low, high = max(holes[at][0], start), min(holes[at][1], end)
        if low < high:
            first = first or low
            length += high - low
        at += 1
    return first, length


def last_written(data: Data, start: int, hole: int) -> int:
    """Return where the last nonzero byte before a hole ends, looking back at most 1 MiB, and not before ``start``."""
    at, first = hole, max(start, hole - (1 << 20))
    while at > first:
        begin = max(first, at - 4096)
        kept = data.pread(begin, at - begin).rstrip(b"\0")
        if kept:
            return begin + len(kept)
        at = begin
    return at


# -- `Remark`: what stands in a model's metadata for a value that is too long to be shown there, or cannot be read -----


class Remark(str):
    """A text about a value, not the value: it is shown, and never written as if the source said it."""

    __slots__ = ("node",)
    node: Any

    def __new__(cls, text: str, node: Any = None) -> Remark:
        """``node``: where many values are that it stands for, to be gone through."""
        made = super().__new__(cls, text)
        made.node = node
        return made

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Remark, (str(self),)


# -- Where the tensors of a file lie in its data, and which of them contradict each other, as two that share bytes do --

# Some formats require them one after the other, without gaps, from the start of the data to the end of the file.

# Kinds of conflicts between tensors.
SHARED: Final = 1
NAMESAKE: Final = 2
CONFLICTS: Final = {SHARED: "it shares bytes with another tensor", NAMESAKE: "its name occurs more than once"}

_MAX_BREAKS: Final = 1000
_NUMPY_FROM: Final = 50_000
_AT_ONCE: Final = 4096
_COST: Final = 24  # bytes for each tensor out of order, sorting included


class TensorRanges:
    """The ranges of the tensors, counted from the start of the data. Tensors that come in order take no memory."""

    def __init__(self, budget: MemoryBudget, *, keep: bool = False) -> None:
        self.again = False
        """Whether only places with ``keep`` can tell, as an empty tensor came out of order."""
        self.is_in_order = not keep
        """Whether each tensor so far began where the one before ended: only the end is remembered."""
        self.known = True
        """Whether the place of every tensor is known."""
        self.end = 0
        """Where the tensors end."""
        self.breaks: list[tuple[int, int]] = []
        """After `close`, in order: where one tensor ended, and the next began elsewhere; of two that share bytes, where
        these end and begin."""
        self.overlaps = False
        """Whether tensors share bytes."""
        self._begins, self._ends = array("Q"), array("Q")
        self._charge = budget.charge(0, "the places of tensors")

    def add(self, begin: int, end: int) -> None:
        """Add the range of a tensor."""
        if begin == self.end and self.is_in_order:
            self.end = end
            return
        if begin == end and begin < self.end:
            self.again = True
            return
        self.is_in_order = False
        self._begins.append(begin)
        self._ends.append(end)
        if not len(self._begins) & 0xFFF:
            self._charge.resize(_COST * len(self._begins))

    def close(self) -> None:
        """Find the breaks, and drop the ranges."""
        begins, ends = self._begins, self._ends
        for at in in_order(begins, ends):
            begin = begins[at]
            if begin != self.end:
                self.overlaps = self.overlaps or (begin < self.end and begin < ends[at])
                if len(self.breaks) < _MAX_BREAKS:
                    shared = begin < min(self.end, ends[at])
                    self.breaks.append((min(self.end, ends[at]) if shared else self.end, begin))
            self.end = max(self.end, ends[at])
        self._begins, self._ends = array("Q"), array("Q")
        self._charge.release()


def in_order(begins: array[int], ends: array[int]) -> Iterable[int]:
    """Return the numbers of ranges, ordered by begin, then end."""
    order: Any = range(len(begins))
    if all(begins[at] >= ends[at - 1] for at in range(1, len(begins))):
        return order  # type: ignore[no-any-return]
    if len(begins) > _NUMPY_FROM:
        import numpy as np

        found = np.lexsort((np.frombuffer(ends, np.uint64), np.frombuffer(begins, np.uint64)))
        return (at for first in range(0, len(found), _AT_ONCE) for at in found[first : first + _AT_ONCE].tolist())
    return sorted(order, key=lambda at: (begins[at], ends[at]))


def sharers(budget: MemoryBudget, ranges: Iterable[tuple[int, int, int]]) -> list[int]:
    """Return the numbers of the tensors that share bytes with another, given ``(number, begin, end)`` of each."""
    numbers, begins, ends = array("q"), array("Q"), array("Q")
    with budget.charge(0, "the places of tensors") as charge:
        for number, begin, stop in ranges:
            numbers.append(number)
            begins.append(begin)
            ends.append(stop)
            if not len(numbers) & 0xFFF:
                charge.resize(2 * _COST * len(numbers))
        found: list[int] = []
        last, end = -1, 0  # the range with the largest end so far
        for at in in_order(begins, ends):
            if begins[at] >= ends[at]:
                continue
            if begins[at] < end:
                found.extend((numbers[last], numbers[at]))
            if ends[at] > end:
                last, end = at, ends[at]
        return found


def mark(flags: bytearray, ordinals: Iterable[int], what: int) -> None:
    """Set the flags of ``ordinals`` to ``what``."""
    for ordinal in ordinals:
        if ordinal >= len(flags):
            flags.extend(bytes(ordinal + 1 - len(flags)))
        flags[ordinal] = what


_DAMAGED: Final = Status.DAMAGED
# How many reasons are kept for each status, and of tensors in holes: rows of a listing, and `Tensor.finding`, have all.
_REASONS: Final = 10
_HOLES: Final = 3
# How many kinds of tensors are counted apart: models have few.
_MOST_KINDS: Final = 1000
# What is added up over the parts of a document.
_SUMS: Final = (
    *("whole", "truncated", "missing", "damaged", "unsupported", "unread_faults"),
    *("unwritten", "verified", "tensor_bytes", "listed_bytes"),
)


class Extent:
    """How large a document is, and should be; and counts of its tensors."""

    document_status = Status.COMPLETE
    """What the tensors do not show: whether the header is cut or damaged."""
    at_least = False
    """Whether the header is cut, and may name more than ``expected`` counts."""
    first_hit: str | None = None
    """The first tensor that is not whole."""
    _hit = ("", 0)
    resume_at: int | None = None
    """The byte to resume the first download at."""
    resume_file: str | None = None
    """The name of that file."""
    cut_files = 0  #: number of shards that are cut
    missing_files = 0  #: number of shards that are missing
    unlisted = 0
    """Number of tensors of the model that no file names that is there, as far as one says how many there are."""
    whole = truncated = missing = damaged = unsupported = 0
    unread_faults = 0
    """Number of the unsupported ones of which that is a fault of the file, or of a newer version of its format."""
    verified = 0
    """Number of whole tensors whose bytes a checksum confirmed."""
    unwritten = 0
    """Number of tensors that lie, wholly or in part, in holes of the file."""
    tensor_bytes = 0
    """Bytes of all tensors, as stored."""
    counts_parameters = True
    """Whether the numbers in tensors are parameters of a model; those of a log are none."""
    listed_bytes = 0
    """The sum of their sizes as lists show them (`Tensor.listed_nbytes`)."""
    last_byte = 0
    """Where the last tensor of a file ends, as an offset of its data."""

    def __init__(self, actual: int | None = None, expected: int | None = None, known: int = 0) -> None:
        self.known = known
        """How much was learned from the document's bytes when counting began."""
        self.actual = actual
        """Size in bytes; None: unknown."""
        self.expected = expected
        """Bytes that it should have; None: unknown."""
        self.resume: list[Resume] = []
        """Every file whose download should be resumed, and at which byte."""
        self._reasons: dict[Status | None, list[Finding]] = {}  # None: of tensors that were never written
        self._parameters: dict[str, int] = {}
        self._kinds: dict[object, list[Any]] = {}  # type, number of elements and count of alike tensors

    def __repr__(self) -> str:
        there = "" if self.actual is None or self.expected is None else f", {self.actual:,} of {self.expected:,} bytes"
        return f"<Extent: {count_words(self.count, 'tensor')}, {self.whole:,} whole{there}, {self.status}>"

    @property
    def reasons(self) -> Iterator[Finding]:
        """Why the first tensors of each status are not whole, and what was never written of the first ones."""
        return chain.from_iterable(self._reasons.values())

    @property
    def count(self) -> int:
        """Number of tensors."""
        return self.whole + self.truncated + self.missing + self.damaged + self.unsupported

    @property
    def all_verified(self) -> bool | None:
        """True if a checksum confirmed the bytes of every tensor; else None."""
        return True if self.count and self.verified == self.count else None

    @property
    def missing_bytes(self) -> int | None:
        """Bytes that should exist and do not."""
        if self.actual is None or self.expected is None:
            return None
        return max(0, self.expected - self.actual)

    @property
    def may_expect_more(self) -> bool:
        """Whether more bytes than `expected` may be lacking: a header is cut, or files are missing whose size nobody
        knows."""
        return self.at_least or bool(self.missing_files)

    @property
    def status(self) -> Status:
        """The worst status among document and tensors."""
        # Of an unfinished download the size may be right, but bytes were never written.
        lacks = self.truncated or self.missing or self.missing_bytes or self.unwritten or self.missing_files
        counted = ((Status.DAMAGED, self.damaged), (Status.TRUNCATED, lacks), (Status.UNSUPPORTED, self.unsupported))
        worst = worst_status(
            self.document_status, next((status for status, count in counted if count), Status.COMPLETE)
        )
        return Status.TRUNCATED if worst is Status.MISSING else worst

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong: all is whole, or cannot be read for reasons that are no fault of the file."""
        return self.document_status is Status.COMPLETE and self.status not in BROKEN and not self.unread_faults

    def worsen(self, status: Status) -> None:
        """Note that the document, apart from its tensors, has this status, if nothing worse is known of it.

        One that lacks something whole is cut.
        """
        status = Status.TRUNCATED if status is Status.MISSING else status
        self.document_status = worst_status(self.document_status, status)

    def end_early(self, lacking: int, *, at_least: bool = True) -> None:
        """Note that the document is cut at the end of the bytes that exist: ``lacking`` bytes should follow, if that is
        known, and one does in any case; ``at_least``: perhaps more."""
        there = self.actual or 0
        self.document_status, self.at_least = Status.TRUNCATED, at_least
        self.expected, self.resume_at = there + max(1, lacking), there

    def add(self, tensor: Tensor) -> tuple[Status, bool | None]:
        """Count one tensor; return its status and what was verified of it (`Tensor.as_listed`)."""
        known = status, verified = tensor.as_listed()
        if tensor.unwritten_nbytes:
            self.unwritten += 1
            if self.unwritten <= _HOLES:
                self._add_reason(tensor, None)
        if status is COMPLETE:
            self.whole += 1
            if verified:
                self.verified += 1
        else:
            self._add_hit(tensor, status)
        nbytes, end = tensor.stored_nbytes, tensor.last_byte
        if end > self.last_byte:
            self.last_byte = end
        self.tensor_bytes += nbytes
        self.listed_bytes += nbytes if tensor.encoding == "raw" else tensor.listed_nbytes
        alike = tensor.alike
        kind = self._kinds.get(alike)
        if kind is not None:
            kind[2] += status is not _DAMAGED  # else the number of elements is unknown
        elif status is not _DAMAGED and self.counts_parameters and _is_countable(tensor):
            if len(self._kinds) >= _MOST_KINDS:
                self._add_up()
            self._kinds[alike] = [tensor.type_name, tensor.size, 1]
        return known

    @property
    def parameters(self) -> dict[str, int]:
        """Number of elements by dtype; text is none."""
        self._add_up()
        return self._parameters

    def _add_up(self) -> None:
        for dtype, size, count in self._kinds.values():
            self._count_parameters(dtype, size * count)
        self._kinds.clear()

    def _count_parameters(self, dtype: str, size: int) -> None:
        parameters = self._parameters
        if len(parameters) > 200 and dtype not in parameters:
            dtype = "other"
        parameters[dtype] = parameters.get(dtype, 0) + size

    def _add_hit(self, tensor: Tensor, status: Status) -> None:
        setattr(self, status.value, getattr(self, status.value) + 1)  # truncated, missing, damaged or unsupported
        if status in ENDS_EARLY:
            spans = tensor.spans
            at = (spans[0].path, spans[0].offset) if spans else ("", 0)
            # The order of names may differ from the order of bytes.
            if self.first_hit is None or (spans and self._hit[0] == at[0] and at < self._hit):
                self.first_hit = tensor.name
                self._hit = at
        elif status is Status.UNSUPPORTED:
            finding = tensor.why_listed()
            self.unread_faults += finding is None or finding.severity is Severity.ERROR
        self._add_reason(tensor, status)

    def _add_reason(self, tensor: Tensor, status: Status | None) -> None:
        kept = self._reasons.setdefault(status, [])
        finding = tensor.why_listed() if len(kept) < _REASONS else None
        if finding is not None and not finding.path:
            from copy import copy

            finding = copy(finding)
            finding.path = tensor.name
        kept.extend(filter(None, (finding,)))

    def add_all(self, part: Extent) -> None:
        """Add the counts of another extent, that of a part, its bytes and its status."""
        self.actual = (self.actual or 0) + (part.actual or 0)
        known = self.expected is not None and part.expected is not None
        self.expected = (self.expected or 0) + (part.expected or 0) if known else None
        self.at_least |= part.at_least
        self.worsen(part.document_status)
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for status, reasons in part._reasons.items():
            kept = self._reasons.setdefault(status, [])
            kept += reasons[: _REASONS - len(kept)]
        if self.first_hit is None:
            self.first_hit, self._hit = part.first_hit, part._hit
        for dtype, count in part.parameters.items():
            self._count_parameters(dtype, count)

    def to_dict(self) -> dict[str, object]:
        """Return the extent as plain data, for JSON."""
        return {
            "actual": self.actual,
            "expected": self.expected,
            "expected_at_least": self.may_expect_more,
            "missing_bytes": self.missing_bytes,
            "first_hit": self.first_hit,
            "resume_at": self.resume_at,
            "resume_file": self.resume_file,
            "resume": [file.to_dict() for file in self.resume],
            "tensors": self.count,
            "whole": self.whole,
            "truncated": self.truncated,
            "missing": self.missing,
            "unlisted": self.unlisted,
            "damaged": self.damaged,
            "unsupported": self.unsupported,
            "unwritten": self.unwritten,
            "verified": self.verified,
            "tensor_bytes": self.tensor_bytes,
            "parameters": dict(self.parameters),
        }


def _is_countable(tensor: Tensor) -> bool:
    """Return whether it is known how many elements that are no text it has; those of an unknown type are counted."""
    return tensor.is_shape_known and not tensor.is_text and (tensor.dtype is None or tensor.dtype.is_number)


def whole_words(extent: Extent) -> str:
    """Return how many tensors are whole, and what is wrong with how many others, in words."""
    least = "at least " if extent.at_least and not extent.missing_files else ""  # a header that is cut would name more
    lacks = [
        f"{count:,} {word}"
        for count, word in (
            (extent.truncated, "truncated"),
            (extent.missing + extent.unlisted, "missing"),
            (extent.damaged, "damaged"),
            (extent.unsupported, "unsupported"),
        )
        if count
    ]
    return ", ".join((f"{extent.whole:,} of {least}{count_words(extent.count + extent.unlisted, 'tensor')}", *lacks))
