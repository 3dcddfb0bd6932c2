"""`Listing`: what the commands ask of a parser: rows, names, facts, checksums."""

from __future__ import annotations

from pparse.data.range_status import worst_of
from pparse.display.text import shorten
from pparse.errors import EndOfDataError, LimitError, MalformedError
from pparse.findings import Status
from pparse.limits import count_words
from pparse.locking import Doored
from pparse.tree.entry import SCALAR
from pparse.tree.visit import Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import ClassVar, Final

    from pparse.findings import Finding
    from pparse.tree.entry import Entry
    from pparse.tree.node import Node
    from pparse.tree.result import Result


# The most globals that are listed as text.
_MOST_LISTED: Final = 20


class GlobalUse:
    """A class or function of Python that a pickle names."""

    __slots__ = ("count", "name", "offset", "pickle", "rank")

    def __init__(self, name: str, count: int, offset: int, rank: int, pickle: str = "") -> None:
        self.name = name
        """Module and name."""
        self.count = count
        """How often it is named."""
        self.offset = offset
        """Where first, as an offset of the data that hold the pickle."""
        self.rank = rank
        """0: it could run something; 1: it is odd in a file of data; 2: it is ordinary."""
        self.pickle = pickle
        """What holds the pickle, below the document; empty: the document is one."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        found = {"name": self.name, "count": self.count, "offset": self.offset}
        return {**found, "pickle": self.pickle or None}


def in_order(found: Iterable[GlobalUse]) -> list[GlobalUse]:
    """Return globals, the odd ones first, then those that are named most often."""
    return sorted(found, key=lambda use: (use.rank, -use.count))


def global_lines(found: Iterable[GlobalUse]) -> Iterator[tuple[str, str]]:
    """Yield labels and texts that say how many globals there are, and name the first 20 in order; nothing if none."""
    known = in_order(found)
    if known:
        total = sum(use.count for use in known)
        yield "globals", f"{len(known):,} different, named {count_words(total, 'time')}"
    for use in known[:_MOST_LISTED]:
        times = "once" if use.count == 1 else f"{use.count:,} times, first"
        where = f" of {use.pickle}" if use.pickle else ""
        yield "global", f"{shorten(use.name, 80)}: {times} at offset {use.offset}{where}"
    if len(known) > _MOST_LISTED:
        yield "global", f"and {len(known) - _MOST_LISTED:,} others: 'pparse info FILE --json' has all"


# Why a row is not complete if nothing else is known of it.
_JUST_CUT: Final = {Status.TRUNCATED: "the data end inside it", Status.MISSING: "the data end before it"}


class Listing(Doored):
    """What a document is to those who list it: by default, the children of its root.

    A parser whose rows, names or facts are others derives from this and from `Parser`; for any other,
    `Result.listing` is one of these.
    """

    member_word: ClassVar[str] = "member"
    """The word for one of `members`."""
    checked_word: ClassVar[str] = ""
    """The word for what has a checksum of its own, such as a record; empty: the format has none."""
    _compared: Sequence[int] = (0, 0)
    """How many of these the last `check` read, and for how many the checksum agrees."""

    doors = frozenset(("details", "find_member", "globals", "header_size", "members", "metadata", "missing"))

    result: Result
    """The tree that is listed."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.lock = result.lock

    def members(self) -> Iterator[Member]:
        """Yield the rows of `pparse ls`: by default, the children of the root."""
        root = self.result.root
        if root.shape == SCALAR:
            return
        end = self.result.extraction.find_end()
        for ordinal, entry in self.result.entries_from(root, 0):
            yield self._member(root, ordinal, entry, end)

    def _member(self, root: Node, ordinal: int, entry: Entry, end: int) -> Member:
        """Return the row of a child of the root; ``end``: that of the document."""
        stop, status, finding = entry.end, entry.status, entry.finding
        if stop is None and self.result.parser.shape(entry.kind) != SCALAR:
            # Only reading it tells where it ends, and whether it is whole.
            stop, status, finding = _read_to_end(root.child(ordinal))
        if entry.parts is not None:
            size = sum(len(part) for part in entry.parts)
        else:
            size = (end if stop is None else stop) - entry.start
        reason = None if finding is None else finding.reason
        data = self.result.extraction.data
        if data.flawed and (status in (None, Status.COMPLETE) or reason is None):  # the bytes may be doubted, too
            parts = entry.parts or (data.range(entry.start, max(entry.start, end if stop is None else stop)),)
            if (known := worst_of(parts)) is not None:
                reason = reason or known.reason
                status = known.status if status in (None, Status.COMPLETE) else status
        if reason is None and status not in (None, Status.COMPLETE):
            below = (finding.reason for finding in root.child(ordinal).findings)
            reason = next(below, None) or _JUST_CUT.get(status)
        name = f"[{ordinal}]" if entry.key is None else str(entry.key)
        return Member(name, entry.kind, entry.start, size, status or Status.COMPLETE, reason=reason)

    def find_member(self, name: str) -> Node | None:
        """Return the node that `members` calls ``name``, if that is not its path; None if there is none."""
        return None

    def metadata(self) -> dict[str, object]:
        """Return what the file says about itself, as plain data for JSON."""
        return {}

    def missing(self) -> int | None:
        """Return the least number of bytes that a cut file lacks, if the format tells; else None."""
        return None

    @property
    def header_size(self) -> int | None:
        """Bytes of a header that tells of all that follows it; None where the format has none. Raises `ValueError`."""
        return None

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the labels and values that `pparse info` shows for this format."""
        yield from ()

    def globals(self) -> Iterator[GlobalUse]:
        """Yield the classes and functions that pickles in it name, each once per pickle; `in_order` sorts them."""
        yield from ()

    def checksums(self) -> tuple[int, int, str] | None:
        """Return what the last `check` verified: number of things, how many match their checksum, and the word for one.

        None if the format has no checksums of its own.
        """
        count, agreed = self._compared
        return (count, agreed, self.checked_word) if self.checked_word else None


def _read_to_end(node: Node) -> tuple[int | None, Status, Finding | None]:
    """Return where a container ends, its status and why, by reading it; what hinders that is its status."""
    try:
        node.index_to(None)
    except (LimitError, MalformedError, EndOfDataError):
        pass
    return node.end, node.status, node.finding
