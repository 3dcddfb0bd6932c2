"""Units of work of `extract` and `recover`: those finished in the journal are only reported again, the others are done.

A unit is a member of a container, or a document that is not a container: the files written for it, what is reported
about them, and the findings. The walk numbers the units, and is the same each time.
"""

from __future__ import annotations

import json
from array import array
from hashlib import blake2b
from itertools import takewhile
from operator import attrgetter

from pparse.document.extraction import FolderExtraction
from pparse.document.folder import FILE
from pparse.errors import PparseError
from pparse.findings import Finding, Severity, Status
from pparse.recovery.report import RecoveredFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.document.folder import FolderItem
    from pparse.findings import FindingList
    from pparse.recovery.journal import Journal
    from pparse.recovery.target import Target

    Report = Callable[[RecoveredFile], object]

_TOLD: Final = sorted({"path", *RecoveredFile.__annotations__} - {"gaps"})
_told_of: Final = attrgetter(*_TOLD)


class Steps:
    """Does the units of one run into ``target``, and reports each file, written now or before, to ``report``."""

    def __init__(self, target: Target, report: Report) -> None:
        self._target = target
        self._journal = target.journal
        self._report = report
        self._number = 0
        self.resumed = 0
        """Number of units that were done by an earlier run."""

    def tell(self, file: RecoveredFile) -> None:
        """Report a file of the current unit."""
        if self._journal is not None:
            if iter(file.gaps) is file.gaps:
                file.gaps = tuple(file.gaps)  # they are read twice
            self._journal.put("told", file.status.value, list(file.gaps), _told_of(file))
        self._report(file)

    def do(self, key: tuple[object, ...], lists: Sequence[FindingList], work: Callable[[], bool | None]) -> None:
        """Do one unit, identified by ``key``, unless it was done before.

        ``lists`` are all lists that may receive findings. ``work`` returns True if the unit turned out to be a
        container, for which nothing was written yet.
        """
        journal = self._journal
        if journal is None:
            work()
            return
        number, digest = self._number, _digest(key)
        self._number += 1
        offset = journal.unit(number)
        if offset is not None:
            done = self._was_done(journal, offset, digest)
            if done == "entered":
                work()
                return
            if done == "done":
                self._tell_again(journal, offset, lists)
                self.resumed += 1
                return
            self._target.withdraw(offset)  # remove what is left of it
        journal.put("unit", number, digest)
        before = [(len(found) - found.omitted, found.omitted, found.omitted_errors) for found in lists]
        entered = work()
        for at, (found, (count, omitted, errors)) in enumerate(zip(lists, before, strict=True)):
            for place in range(count, len(found) - found.omitted):
                journal.put("found", at, found[place].to_dict())
            if found.omitted > omitted:
                journal.put("omitted", at, found.omitted - omitted, found.omitted_errors - errors)
        journal.put("entered" if entered else "done", flush=True)

    def _was_done(self, journal: Journal, offset: int, digest: str) -> str:
        """Return how the unit ended; "" if its files have changed, or if it is a different unit."""
        try:
            for at, _, entry in journal.entries(offset):
                if at == offset and entry[2] != digest:
                    return ""
                if entry[0] == "file" and entry[2] is not None and not self._target.is_intact(entry[2], entry[3]):
                    return ""
                if entry[0] == "told":
                    _told(*entry[1:])
                elif entry[0] == "found":
                    _finding(entry[2])
                elif entry[0] in ("done", "entered"):
                    return str(entry[0])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            pass  # not a line of a journal
        return ""

    def _tell_again(self, journal: Journal, offset: int, lists: Sequence[FindingList]) -> None:
        for _, _, entry in journal.entries(offset):
            if entry[0] == "file":
                parts, path, _, output, skipped = entry[1:]
                self._target.adopt(tuple(parts), path, output, skipped)
            elif entry[0] == "told":
                self._report(_told(*entry[1:]))
            elif entry[0] == "found":
                lists[entry[1]].add(_finding(entry[2]))
            elif entry[0] == "omitted":
                found = lists[entry[1]]
                found.omitted += entry[2]
                found.omitted_errors += entry[3]
                found.errors += entry[3]
            elif entry[0] == "done":
                return


def _told(status: str, gaps: list[Any], known: list[Any]) -> RecoveredFile:
    named = dict(zip(_TOLD, known, strict=True))
    return RecoveredFile(named.pop("path"), Status(status), gaps=gaps, **named)


def _finding(known: dict[str, Any]) -> Finding:
    return Finding(**{**known, "severity": Severity(known["severity"])})


def _digest(key: tuple[object, ...]) -> str:
    return blake2b(repr(key).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


# -- what was told too early -------------------------------------------------------------------------------------------

# The most that lies between two neighbouring members: padding and headers.
_HEADERS: Final = 2048


class ProvisionalVerdicts:
    """What a walk reported as complete before the streams around it were decoded to their ends.

    A stream may contradict its checksum only at its end. Bytes decoded before may then be wrong, or decode differently
    now. In that case the walk was misled, and has to begin again. If the checksum agrees, it does so for all that came
    before.

    Kept are the data that files come from, with the ranges of files reported so but not verified. Neighbouring ranges
    are merged: an archive of whole files is one range.
    """

    def __init__(self) -> None:
        # By identity: the data, its revision at the time, and the ranges: start, end, start …
        self._data: dict[int, tuple[Data, int, array[int]]] = {}
        self._files: dict[int, dict[str | None, int]] = {}  # of each of them: the files reported so, by container
        self._told: list[str | None] = []  # the containers of those of this member
        self._goes_on = False  # whether the file before was one of these

    def seen_by(self, report: Callable[[RecoveredFile], object]) -> Callable[[RecoveredFile], object]:
        """Return a report function that looks at each file and passes it on to ``report``."""

        def look(file: RecoveredFile) -> None:
            if file.status is Status.COMPLETE and file.verified is not True:
                self._told.append(file.source)
            report(file)

        return look

    def watch(self, data: Data) -> None:
        """Register data that files will come from."""
        self._goes_on = False
        self._data.setdefault(id(data), (data, data.revision, array("q")))

    def begin(self) -> None:
        """Call before a member is written or reported."""
        self._told = []

    def end(self, data: Data, start: int, end: int) -> None:
        """Call after it was written; it came from ``data[start:end]``."""
        if self._told and id(data) in self._data:
            stretches = self._data[id(data)][2]
            if self._goes_on and stretches and 0 <= start - stretches[-1] <= _HEADERS:
                stretches[-1] = max(stretches[-1], end)
            else:
                stretches.extend((start, max(start, end)))
            files = self._files.setdefault(id(data), {})
            for source in self._told:
                files[source] = files.get(source, 0) + 1
        self._goes_on = bool(self._told)

    def were_wrong(self) -> bool:
        """Say whether the data decode differently now, or an error is now known in one of the ranges."""
        return any(
            data.revision != revision
            or any(data.why_suspect(low, high) is not None for low, high in zip(found[::2], found[1::2], strict=True))
            for data, revision, found in self._data.values()
        )

    def confirmed(self) -> dict[str | None, int]:
        """Return the containers of which a checksum has confirmed all these files by now, with their number."""
        found: dict[str | None, int] = {}
        lost: set[str | None] = set()
        for key, files in self._files.items():
            data, revision, stretches = self._data[key]
            if data.revision == revision and all(map(data.is_proved, stretches[::2], stretches[1::2])):
                found |= {source: found.get(source, 0) + count for source, count in files.items()}
            else:
                lost |= files.keys()
        return {source: count for source, count in found.items() if source not in lost}


# -- what run it is ----------------------------------------------------------------------------------------------------


def run_of(document: Extraction, command: str, *, stamp: str | None = None, **options: object) -> dict[str, object]:
    """Return a description of everything that changes the output; a run continues another only if theirs are equal.

    The source is identified by name, size, time and inode (a folder by those of its files), not by its folder; by
    samples of its bytes if it is not a file; by ``stamp`` if that is given.
    """
    import pparse
    from pparse.recovery.report import SCHEMA

    session = document.session
    outermost = document.topmost
    run = {
        "command": command,
        "of": outermost.name.replace("\\", "/").rstrip("/").rpartition("/")[2],
        "inside": document.path.partition("::")[2],
        "source": [stamp] if stamp is not None else _identity(outermost),
        "format": document._format,
        "options": {name: repr(value) for name, value in sorted(session.options.items())},
        "limits": {name: getattr(session.limits, name) for name in session.limits.DEFAULTS},
        "budget": session.budget.limit,
        "scratch": session.scratch is not None,
        "version": pparse.__version__,
        "schema": SCHEMA,
        **options,
    }
    loaded: dict[str, object] = json.loads(json.dumps(run))  # as it will be read back
    return loaded


def _identity(extraction: Extraction) -> list[object]:
    if isinstance(extraction, FolderExtraction):
        # What lies in folders below belongs to no set of shards, and may be what this run writes.
        stamp = stamp_of(takewhile(lambda item: "/" not in item.path, extraction.folder.tree()))
        return [unlike_all() if stamp is None else stamp]
    data = extraction.data
    if data.stamp is not None:
        return [*data.stamp]
    if data.size is not None:
        from pparse.data.index_files import fingerprint

        try:
            return [data.size, fingerprint(data.range(0, data.size)).hex()]
        except PparseError:
            pass
    return [unlike_all()]


def stamp_of(items: Iterable[FolderItem]) -> str | None:
    """Return what is equal for the same files only, while none of them changes; None if that is not known."""
    digest = blake2b(digest_size=16)
    for item in items:
        if item.kind == FILE and not item.stamp:
            return None
        digest.update(repr((item.path, item.kind, item.stamp)).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def unlike_all() -> str:
    """Return a value that no other run has, for a source that cannot be compared."""
    from os import urandom

    return urandom(16).hex()
