"""Units of work of `extract` and `recover`: those finished in the journal are only reported again, the others are done.

A unit is a member of a container, or a document that is not a container: the files written for it, what is reported
about them, and the findings. The walk numbers the units, and is the same each time.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from operator import attrgetter

from pparse.errors import PparseError
from pparse.findings import Finding, Severity, Status
from pparse.recovery.report import RecoveredFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.findings import FindingList
    from pparse.recovery.journal import Journal
    from pparse.recovery.target import Target

    Report = Callable[[RecoveredFile], object]

_TOLD: Final = tuple(name for name in RecoveredFile.__slots__ if name not in ("gaps", "status"))
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

    def do(self, key: tuple[object, ...], lists: Sequence[FindingList], work: Callable[[], bool]) -> None:
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
        journal.put_unit(number, digest)
        before = [(len(found) - found.omitted, found.omitted, found.omitted_errors) for found in lists]
        entered = work()
        for at, (found, (count, omitted, errors)) in enumerate(zip(lists, before, strict=True)):
            for place in range(count, len(found) - found.omitted):
                journal.put("found", at, found[place].to_dict())
            if found.omitted > omitted:
                journal.put("omitted", at, found.omitted - omitted, found.omitted_errors - errors)
        journal.put_end(entered=entered)

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


# -- what run it is ----------------------------------------------------------------------------------------------------


def run_of(document: Extraction, command: str, *, stamp: str | None = None, **options: object) -> dict[str, object]:
    """Return a description of everything that changes the output; a run continues another only if theirs are equal.

    The source is identified by name, size, time and inode, not by its folder; by samples of its bytes if it is not a
    file; by ``stamp`` if that is given.
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
    data = extraction.data
    if data.stamp is not None:
        return [*data.stamp]
    if not extraction.is_folder and data.size is not None:
        from pparse.compressed.gzip_index import fingerprint

        try:
            return [data.size, fingerprint(data.range(0, data.size)).hex()]
        except PparseError:
            pass
    return [unlike_all()]


def unlike_all() -> str:
    """Return a value that no other run has, for a source that cannot be compared."""
    from os import urandom

    return urandom(16).hex()
