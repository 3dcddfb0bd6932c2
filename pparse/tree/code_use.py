"""What a file would run if it were loaded by the library that it is for: the names of code in it, each with a grade."""

from __future__ import annotations

import enum
from collections import Counter, namedtuple

from pparse.display.text import few, shorten
from pparse.findings import Finding, Severity
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

# The most names that are listed as text, and the calls that are kept of each.
_MOST_LISTED: Final = 20
_MOST_CALLS: Final = 20
_MOST_NAMED: Final = 5
NOT_FOLLOWED: Final = "?"
"""The name of what is called where nobody can look: behind a limit, or in what is lost."""


class Grade(enum.Enum):
    """How dangerous a name is, the worst first."""

    DANGEROUS = "dangerous"
    """It can run programs or code, read or write files, reach out, or lead to what does."""
    UNKNOWN = "unknown"
    """Nothing is known of it: whoever loads the file runs code of a library that pparse does not know."""
    HARMLESS = "harmless"
    """It makes a value, or an object that is only given its attributes."""
    WEIGHTS_ONLY = "weights-only"
    """``torch.load(weights_only=True)`` takes it."""

    @property
    def order(self) -> int:
        """0 for the worst."""
        return _ORDER[self]

    def __lt__(self, other: Grade) -> bool:
        return self.order < other.order


_ORDER: Final = {grade: number for number, grade in enumerate(Grade)}


CodeCall = namedtuple("CodeCall", "offset words opcode")
CodeCall.__doc__ = """A call: where its opcode stands, in words, and the opcode; empty: it is none of a pickle."""


class CodeUse:
    """A class or function that loading the file would look up, and what it would be called with."""

    __slots__ = ("called", "calls", "count", "grade", "name", "offset", "pickle", "reason")

    def __init__(self, name: str, count: int, offset: int, grade: Grade, reason: str = "", pickle: str = "") -> None:
        self.name = name
        """Module and name."""
        self.count = count
        """How often it is named; 0 if calls lead to it that are given its name."""
        self.offset = offset
        """Where first, as an offset of the data that hold the pickle."""
        self.grade = grade
        """How dangerous it is."""
        self.reason = reason
        """Why, in words."""
        self.pickle = pickle
        """What holds the pickle, below the document; empty: the document is one."""
        self.called = 0
        """How often it is called, if the calls were followed: not if all names of the pickle are harmless."""
        self.calls: list[CodeCall] = []
        """The first 20 calls of one that is dangerous or unknown."""

    def worsen(self, grade: Grade, reason: str) -> None:
        """Take a grade that is worse."""
        if grade < self.grade:
            self.grade, self.reason = grade, reason

    def add_call(self, offset: int, words: str, opcode: str = "") -> None:
        """Note a call."""
        self.called += 1
        if len(self.calls) < _MOST_CALLS and (offset, words, opcode) not in self.calls:
            self.calls.append(CodeCall(offset, words, opcode))

    def __repr__(self) -> str:
        return f"<CodeUse {self.name}: {self.grade.value}>"

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {
            "name": self.name,
            "grade": self.grade.value,
            "reason": self.reason or None,
            "count": self.count,
            "offset": self.offset,
            "pickle": self.pickle or None,
            "called": self.called,
            "calls": [{"offset": at, "call": words, "opcode": opcode or None} for at, words, opcode in self.calls],
        }


def in_order(found: Iterable[CodeUse]) -> list[CodeUse]:
    """Return names, the worst first, then those that are named most often."""
    return sorted(found, key=lambda use: (use.grade.order, -use.count))


def code_lines(found: Iterable[CodeUse]) -> Iterator[tuple[str, str]]:
    """Yield labels and texts that say how many names there are of each grade, and list the worst 20; none: nothing."""
    known = in_order(found)
    if known:
        total = sum(use.count for use in known)
        grades = Counter(use.grade for use in known)
        words = ", ".join(f"{grades[grade]:,} {grade.value}" for grade in Grade if grades[grade])
        yield "globals", f"{len(known):,} different, named {count_words(total, 'time')}: {words}"
    for use in known[:_MOST_LISTED]:
        times = "once" if use.count == 1 else f"{use.count:,} times, first" if use.count else "by way of others"
        where = f" of {use.pickle}" if use.pickle else ""
        what = f", called as {shorten(use.calls[0].words, 80)}" if use.calls else ""
        yield "global", f"{use.grade.value}: {shorten(use.name, 80)}, {times} at offset {use.offset}{where}{what}"
    if len(known) > _MOST_LISTED:
        yield "global", f"and {len(known) - _MOST_LISTED:,} others: 'pparse info FILE --json' has all"


def code_findings(uses: Iterable[CodeUse], source: str) -> Iterator[Finding]:
    """Yield a warning for each name that is dangerous, and one note for all those of which nothing is known."""
    unknown: list[CodeUse] = []
    for use in sorted(uses, key=lambda use: (use.grade.order, use.pickle, use.offset)):
        at, what, _ = use.calls[0] if use.calls else (use.offset, use.name, "")
        if use.grade is Grade.DANGEROUS:
            more = f", and {count_words(use.called - 1, 'other call')} of it" if use.called > 1 else ""
            reason = f"loading it {'runs' if use.calls else 'looks up'} {what}{more}: {use.reason}"
            severity, code = Severity.WARNING, Grade.DANGEROUS.value
            yield Finding(code, reason, severity=severity, path=use.pickle, source=source, offset=at)
        elif use.grade is Grade.UNKNOWN:
            unknown.append(use)
    if unknown:
        names = few([use.name for use in unknown], _MOST_NAMED, len(unknown))
        reason = f"loading it runs code of which nothing is known: {names}"
        first = unknown[0]
        yield Finding(
            "unknown-code", reason, severity=Severity.NOTE, path=first.pickle, source=source, offset=first.offset
        )
