"""`Extent`: how much of a document is there, and what its tensors are like."""

from __future__ import annotations

from copy import copy
from itertools import chain

from pparse.findings import Severity, Status
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.document.opening import Resume
    from pparse.findings import Finding
    from pparse.tensors.tensor import Tensor

_COMPLETE: Final = Status.COMPLETE
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
    def status(self) -> Status:
        """The worst status among document and tensors."""
        if self.damaged or self.document_status is Status.DAMAGED:
            return Status.DAMAGED
        unread = self.document_status is Status.UNSUPPORTED
        # Of an unfinished download the size may be right, but bytes were never written.
        lacks = self.truncated or self.missing or self.missing_bytes or self.unwritten
        if lacks or not (unread or self.document_status is Status.COMPLETE):
            return Status.TRUNCATED
        return Status.UNSUPPORTED if self.unsupported or unread else Status.COMPLETE

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong: all is whole, or cannot be read for reasons that are no fault of the file."""
        status = self.status
        unread = status is Status.UNSUPPORTED and self.document_status is Status.COMPLETE
        return status is Status.COMPLETE or (unread and not self.unread_faults)

    def add(self, tensor: Tensor) -> tuple[Status, bool | None]:
        """Count one tensor; return its status and what was verified of it (`Tensor.as_listed`)."""
        known = status, verified = tensor.as_listed()
        if tensor.unwritten_nbytes:
            self.unwritten += 1
            if self.unwritten <= _HOLES:
                self._add_reason(tensor, None)
        if status is _COMPLETE:
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
        elif status is not _DAMAGED and _is_countable(tensor):
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
        if status is Status.TRUNCATED or status is Status.MISSING:
            self.truncated += status is Status.TRUNCATED
            self.missing += status is Status.MISSING
            spans = tensor.spans
            at = (spans[0].path, spans[0].offset) if spans else ("", 0)
            # The order of names may differ from the order of bytes.
            if self.first_hit is None or (spans and self._hit[0] == at[0] and at < self._hit):
                self.first_hit = tensor.name
                self._hit = at
        elif status is Status.DAMAGED:
            self.damaged += 1
        else:
            self.unsupported += 1
            finding = tensor.why_listed()
            self.unread_faults += finding is None or finding.severity is Severity.ERROR
        self._add_reason(tensor, status)

    def _add_reason(self, tensor: Tensor, status: Status | None) -> None:
        kept = self._reasons.setdefault(status, [])
        finding = tensor.why_listed() if len(kept) < _REASONS else None
        if finding is not None and not finding.path:
            finding = copy(finding)
            finding.path = tensor.name
        kept.extend(filter(None, (finding,)))

    def add_all(self, part: Extent) -> None:
        """Add the counts of another extent, that of a part, its bytes and its status."""
        self.actual = (self.actual or 0) + (part.actual or 0)
        known = self.expected is not None and part.expected is not None
        self.expected = (self.expected or 0) + (part.expected or 0) if known else None
        self.at_least |= part.at_least
        if part.document_status is not Status.COMPLETE and self.document_status is not Status.DAMAGED:
            self.document_status = part.document_status
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
            "expected_at_least": self.at_least,
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
