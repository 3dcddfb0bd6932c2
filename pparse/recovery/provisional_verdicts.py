"""Remembers what a walk reported as complete before the streams around it were decoded to their ends.

A stream may contradict its checksum only at its end. Bytes decoded before may then be wrong, or decode differently now.
In that case the walk was misled, and has to begin again. If the checksum agrees, it does so for all that came before.
"""

from __future__ import annotations

from array import array

from pparse.findings import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.data.base import Data
    from pparse.recovery.report import RecoveredFile


# The most that lies between two neighbouring members: padding and headers.
_HEADERS: Final = 2048


class ProvisionalVerdicts:
    """The data that files come from, with the ranges of files reported as complete but not verified.

    Neighbouring ranges are merged: an archive of whole files is one range.
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
