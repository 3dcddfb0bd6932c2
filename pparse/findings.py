"""The vocabulary for what is wrong with a piece of a file: `Status`, `Severity`, `Finding`."""

from __future__ import annotations

import enum

from pparse.errors import EndOfDataError, MalformedError, UnsupportedError, counts
from pparse.lazy import ByValue
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final, TypeVar

    from pparse.errors import Fault, PparseError

    E = TypeVar("E", bound=enum.Enum)


def plain_members(kind: type[E]) -> type[E]:
    """Make members of an enumeration plain attributes, as Python 3.12 does: 3.11 finds one in 100 ns, not 140.

    What is asked for every row of a list, or node of a tree, is kept under a name of a module: that takes 5 ns.
    """
    for member in kind:
        type.__setattr__(kind, member.name, member)
    return kind


@plain_members
class Status(enum.StrEnum):
    """State of a node, member, tensor or document. Equal to, and printed as, its lower-case word."""

    COMPLETE = "complete"  # all bytes exist; `verified` tells whether a checksum confirmed them
    TRUNCATED = "truncated"  # begins inside the file, ends beyond it
    MISSING = "missing"  # wholly beyond the file, or its file is missing
    DAMAGED = "damaged"  # exists, but fails a check
    UNSUPPORTED = "unsupported"  # encrypted, of unknown codec or dtype, or above one of our limits

    @classmethod
    def after(cls, error: PparseError | None) -> Status:
        """Return the status of what ended with ``error``; COMPLETE if there was none."""
        if error is None:
            return cls.COMPLETE
        if isinstance(error, EndOfDataError):
            return cls.TRUNCATED
        return cls.UNSUPPORTED if isinstance(error, UnsupportedError) else cls.DAMAGED

    @property
    def code(self) -> str:
        """Code of a finding that says no more than this."""
        return "malformed" if self is Status.DAMAGED else self.value

    @property
    def error(self) -> type[EndOfDataError | MalformedError]:
        """What to raise if it is wanted whole."""
        return EndOfDataError if self in ENDS_EARLY else MalformedError


COMPLETE: Final = Status.COMPLETE
"""The status that is asked for most, found in 5 ns."""


@plain_members
class Severity(enum.StrEnum):
    """How much a finding matters: only errors change the exit code. Equal to its word."""

    NOTE = "note"  # worth knowing
    WARNING = "warning"  # odd but harmless; fails ``--strict``
    ERROR = "error"  # something is missing, damaged or not supported


class HasStatus:
    """What has a ``status``, and can be asked for it in words."""

    __slots__ = ()

    @property
    def is_complete(self: Any) -> bool:
        """Whether all of it is there, and nothing is known to be wrong with it."""
        return self.status is COMPLETE

    @property
    def is_truncated(self: Any) -> bool:
        """Whether it begins within the data, and ends beyond them."""
        return self.status is Status.TRUNCATED


# Statuses of a document that is not whole. UNSUPPORTED says nothing against its bytes.
BROKEN: Final = (Status.TRUNCATED, Status.DAMAGED, Status.MISSING)

# Statuses of what lacks its end, or all of it.
ENDS_EARLY: Final = (Status.TRUNCATED, Status.MISSING)

# What could not be read is not known to be wrong.
_FROM_BEST: Final = (Status.COMPLETE, Status.UNSUPPORTED, Status.TRUNCATED, Status.MISSING, Status.DAMAGED)


def worst_status(*statuses: Status) -> Status:
    """Return the status of what has parts of these: DAMAGED if one is, then MISSING, TRUNCATED, UNSUPPORTED."""
    return max(statuses, key=_FROM_BEST.index, default=COMPLETE)


# The code of a finding on a value that can be read, but whose element number in its list is unknown.
UNSURE_NUMBER: Final = "unsure-number"
# Of one that can be read, but whose name is in doubt.
UNSURE_NAME: Final = "name"

# The most bytes kept of a path, and of a reason: the offset leads to the place, and a file may have 1 MiB names.
KEPT_PATH: Final = 4_096
KEPT_REASON: Final = 1_024
_LEFT_OUT: Final = " … "


def clipped(text: str, most: int = KEPT_PATH) -> str:
    """Return ``text``, with the middle left out if it takes more than ``most`` bytes of memory."""
    if len(text) <= most // 4 or (text.isascii() and len(text) <= most):
        return text
    half = most // 8 - 2  # the mark is not ASCII: the text then takes two or four bytes a character
    return f"{text[:half]}{_LEFT_OUT}{text[-half:]}"


class Finding(ByValue, by=("code", "path", "source", "offset", "length", "reason")):
    """One thing that is odd or wrong. Very long paths and reasons are kept without their middle."""

    __slots__ = ("code", "fault", "got", "length", "offset", "option", "path", "reason", "severity", "source", "wanted")

    def __init__(
        self,
        code: str,
        reason: str,
        *,
        severity: Severity = Severity.ERROR,
        path: str = "",
        source: str = "",
        offset: int | None = None,
        length: int | None = None,
        wanted: int | str | None = None,
        got: int | str | None = None,
        option: str = "",
        fault: Fault | None = None,
    ) -> None:
        self.code = code
        """Stable word for the kind of finding."""
        self.reason = clipped(reason, KEPT_REASON)
        """What is wrong, in words."""
        self.severity = severity
        """Error, warning or note."""
        self.path = clipped(path)
        """Path of the node; empty: the root."""
        self.source = source
        """Name of the data."""
        self.offset = offset
        """Where, as an offset in the data."""
        self.length = length
        """How many bytes it concerns."""
        self.wanted = wanted
        """Bytes or counts that were needed."""
        self.got = got
        """Bytes or counts found instead."""
        self.option = option
        """Option that lifts the limit in question; empty: none."""
        self.fault = fault
        """Kind of the error behind it."""

    @classmethod
    def after(cls, error: PparseError, *, path: str = "", source: str = "") -> Finding:
        """Return the finding that says why something cannot be read."""
        told: Any = {"offset": error.offset, "wanted": error.wanted, "got": error.got}
        return cls(Status.after(error).code, error.reason, path=path, source=source, **told)

    @property
    def is_fault(self) -> bool:
        """Whether it says that the file is not whole: any error except one about a limit."""
        return self.severity is Severity.ERROR and self.code != "limit"

    def is_within(self, path: str, start: int, end: int) -> bool:
        """Return whether it concerns the node at ``path`` or one below; if its path is clipped, the offset decides."""
        if not path or self.path == path or self.path.startswith((path + ".", path + "[")):
            return True
        head, mark, _ = self.path.partition(_LEFT_OUT)
        if not mark or self.offset is None or len(path) < len(head):
            return False
        return path.startswith(head) and start <= self.offset <= end

    def to_dict(self) -> dict[str, object]:
        """Return the finding as plain data, for JSON; unknown numbers are None."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "path": self.path,
            "source": self.source,
            "offset": self.offset,
            "length": self.length,
            "wanted": self.wanted,
            "got": self.got,
            "reason": self.reason,
            "option": self.option or None,
            "fault": None if self.fault is None else self.fault.value,
        }

    def _repr_html_(self) -> str:
        return findings_html([self])

    def __repr__(self) -> str:
        return f"<Finding {self.severity} {self}>"

    def __str__(self) -> str:
        return self.words(self.path)

    def words(self, path: str) -> str:
        """Return the finding as a line of text; ``path`` is what to call its place."""
        where = f" @0x{self.offset:x}" if self.offset is not None else ""
        if self.offset is not None and self.length:
            where += f"+{self.length}"
        numbers = counts(self.wanted, self.got)
        return f"{self.code}{' ' + path if path else ''}{where}: {self.reason}" + (f" {numbers}" if numbers else "")


class FindingList:
    """Findings in order, without duplicates; those beyond ``limit`` are only counted. Thread-safe."""

    __slots__ = ("_called", "_kept", "_limit", "_lock", "_order", "errors", "omitted", "omitted_errors")

    def __init__(self, limit: int = 1_000) -> None:
        self._kept: set[Finding] = set()
        self._order: list[Finding] = []
        self._limit = limit
        self._lock = RLock()
        self._called: dict[str, str] = {}
        self.omitted = 0
        """How many findings were only counted."""
        self.omitted_errors = 0
        """How many of those are errors."""
        self.errors = 0
        """How many errors there are, in all."""

    def add(self, finding: Finding) -> None:
        """Keep ``finding``, or only count it if the list is full."""
        with self._lock:
            finding.source = self._called.get(finding.source, finding.source)
            if finding in self._kept:
                return
            if finding.severity is Severity.ERROR:
                self.errors += 1
            if len(self._kept) >= self._limit:
                self.omitted += 1
                self.omitted_errors += finding.severity is Severity.ERROR
            else:
                self._kept.add(finding)
                self._order.append(finding)

    def call(self, source: str, name: str) -> None:
        """Show the source ``source``, such as the content of a file, under the ``name`` the user gave from now on."""
        with self._lock:
            if source != name:
                self._called[source] = name

    def drop(self, source: str) -> None:
        """Drop the findings of ``source``, which is about to be checked again."""
        with self._lock:
            name = self._called.get(source, source)
            self._order = [finding for finding in self._order if finding.source != name]
            self._kept = set(self._order)
            self.errors = self.omitted_errors + sum(finding.severity is Severity.ERROR for finding in self._order)

    def restart(self) -> None:
        """Forget the findings that were only counted: everything is about to be checked again."""
        with self._lock:
            self.omitted = self.omitted_errors = 0
            self.errors = sum(finding.severity is Severity.ERROR for finding in self._order)

    @property
    def full(self) -> bool:
        """Whether further findings would only be counted, so that their details need not be worked out."""
        return len(self._order) >= self._limit

    def extend(self, findings: FindingList) -> None:
        """Add all findings of another list."""
        kept = list(findings)
        with self._lock:
            for finding in kept:
                self.add(finding)
            self.omitted += findings.omitted
            self.omitted_errors += findings.omitted_errors
            self.errors += findings.errors - sum(finding.severity is Severity.ERROR for finding in kept)

    def __iter__(self) -> Iterator[Finding]:
        return iter(list(self._order))

    def __len__(self) -> int:
        return len(self._order) + self.omitted

    def __getitem__(self, index: int) -> Finding:
        return self._order[index]

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        told = self._limit, self.omitted, self.omitted_errors, self.errors
        return _restored, (list(self._order), *told)

    def _repr_html_(self) -> str:
        return findings_html(list(self), len(self))

    def __repr__(self) -> str:
        return f"<FindingList of {len(self)}>"


def _restored(order: list[Finding], limit: int, omitted: int, omitted_errors: int, errors: int) -> FindingList:
    """Return a list that was pickled."""
    found = FindingList(limit)
    found._order, found._kept = order, set(order)
    found.omitted, found.omitted_errors, found.errors = omitted, omitted_errors, errors
    return found


# The most findings of a table.
_MOST_ROWS: Final = 100


def findings_html(findings: list[Finding], count: int = 1) -> str:
    """Return a table of findings for a notebook; ``count`` is how many there are."""
    from pparse.display.text import table

    rows = [
        (
            finding.severity,
            finding.code,
            finding.path,
            "" if finding.offset is None else f"{finding.offset:,}",
            finding.reason,
            finding.source,
        )
        for finding in findings[:_MOST_ROWS]
    ]
    more = f"{count - len(rows):,} more" if count > len(rows) else ""
    heads = ("severity", "code", "path", "offset", "reason", "file")
    return table(f"{count:,} finding{'s' * (count != 1)}", heads if rows else (), rows, more)
