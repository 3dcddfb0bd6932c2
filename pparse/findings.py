"""The one vocabulary for what is wrong with a piece of a file: `Status`, `Severity`, `Finding`."""

from __future__ import annotations

import enum
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.errors import Fault


class Status(enum.StrEnum):
    """What became of a node, member, tensor or document. People see it in lower case, and may compare it with that."""

    COMPLETE = "complete"  # all its bytes are there (whether a checksum confirmed them is `verified`)
    TRUNCATED = "truncated"  # begins inside the file, ends beyond
    MISSING = "missing"  # wholly beyond the file, or its file is not there
    DAMAGED = "damaged"  # there, but a check fails
    UNSUPPORTED = "unsupported"  # encrypted, unknown codec or dtype, or beyond a limit of ours


class Severity(enum.StrEnum):
    """How much a finding matters: only an error changes the exit code. Compares with its word, too."""

    NOTE = "note"  # worth knowing
    WARNING = "warning"  # odd, harms nothing; ``--strict`` does not let it pass
    ERROR = "error"  # something is missing, damaged or not supported


# The code of a finding on a value that can be read, while nobody knows which element of its list it is.
UNSURE_NUMBER: Final = "unsure-number"

# So much of a path, and of a reason, is kept: the offset leads to the place, and a file may have names of 1 MiB.
KEPT_PATH: Final = 4_096
KEPT_REASON: Final = 1_024
_LEFT_OUT: Final = " … "


def clipped(text: str, most: int = KEPT_PATH) -> str:
    """Return ``text`` with the middle left out where it takes more than ``most`` bytes of memory."""
    if len(text) <= most // 4 or (text.isascii() and len(text) <= most):
        return text
    half = most // 8 - 2  # the mark is no ASCII, and makes of the text one of two bytes a character, or four
    return f"{text[:half]}{_LEFT_OUT}{text[-half:]}"


class Finding:
    """One thing that is odd or wrong: a stable ``code``, where (``path``, ``offset``, ``length``), and the numbers.

    Of a very long path or reason the middle is left out. ``option`` is what lifts the limit that it is about,
    ``fault`` what kind of error it was found by.
    """

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
        self.reason = clipped(reason, KEPT_REASON)
        self.severity = severity
        self.path = clipped(path)
        self.source = source
        self.offset = offset
        self.length = length
        self.wanted = wanted
        self.got = got
        self.option = option
        self.fault = fault

    def is_within(self, path: str, start: int, end: int) -> bool:
        """Say whether the finding is on the node at ``path``, or below it; its offset counts if its path is clipped."""
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
        }

    def _identity(self) -> tuple[object, ...]:
        return (self.code, self.path, self.source, self.offset, self.length, self.reason)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Finding) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"<Finding {self.severity} {self}>"

    def __str__(self) -> str:
        where = f" @0x{self.offset:x}" if self.offset is not None else ""
        if self.offset is not None and self.length:
            where += f"+{self.length}"
        numbers = ", ".join(
            f"{word} {value}" for word, value in (("wanted", self.wanted), ("got", self.got)) if value is not None
        )
        return f"{self.code}{' ' + self.path if self.path else ''}{where}: {self.reason}" + (
            f" ({numbers})" if numbers else ""
        )


class FindingList:
    """Findings in the order they were made, each once; beyond ``limit`` they are counted, not kept. Thread-safe."""

    __slots__ = ("_called", "_kept", "_limit", "_lock", "_order", "errors", "omitted", "omitted_errors")

    def __init__(self, limit: int = 1_000) -> None:
        self._kept: set[Finding] = set()
        self._order: list[Finding] = []
        self._limit = limit
        self._lock = threading.RLock()
        self._called: dict[str, str] = {}
        self.omitted = 0
        self.omitted_errors = 0
        self.errors = 0

    def add(self, finding: Finding) -> None:
        """Keep ``finding``, or count it when the list is full."""
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
        """From now on, name the source ``source`` as the user does: the content of a file, which has no name there."""
        with self._lock:
            if source != name:
                self._called[source] = name

    def drop(self, source: str) -> None:
        """Forget what was found of ``source``, which is about to be looked at again."""
        with self._lock:
            name = self._called.get(source, source)
            self._order = [finding for finding in self._order if finding.source != name]
            self._kept = set(self._order)
            self.errors = self.omitted_errors + sum(finding.severity is Severity.ERROR for finding in self._order)

    def restart(self) -> None:
        """Forget what was only counted: everything is about to be looked at again."""
        with self._lock:
            self.omitted = self.omitted_errors = 0
            self.errors = sum(finding.severity is Severity.ERROR for finding in self._order)

    @property
    def full(self) -> bool:
        """Whether further findings would be counted only: their details need not be worked out."""
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

    def __repr__(self) -> str:
        return f"<FindingList of {len(self)}>"
