"""What a walk said to be complete before the streams that it comes from were decoded to their ends.

A stream that contradicts itself at its end says so only there; what was decoded of it before may be wrong, or other
bytes may be given now. Then the walk was misled, and has to begin again.
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


# What lies between two members at most, if nothing else does: padding, headers.
_HEADERS: Final = 2048


class Trusted:
    """The data that files come from, and the stretches of each that hold files said to be complete, and not verified.

    Neighbours are one stretch: an archive of whole files is one in all.
    """

    def __init__(self) -> None:
        # By identity: each with the revision that it had, and the stretches: start, end, start …
        self._data: dict[int, tuple[Data, int, array[int]]] = {}
        self._told = False
        self._goes_on = False  # whether the file before was one of these

    def seen_by(self, report: Callable[[RecoveredFile], object]) -> Callable[[RecoveredFile], object]:
        """Return a report that looks at each file, and passes it on to ``report``."""

        def look(file: RecoveredFile) -> None:
            self._told = self._told or (file.status is Status.COMPLETE and file.verified is not True)
            report(file)

        return look

    def watch(self, data: Data) -> None:
        """Take in data that files will come from."""
        self._goes_on = False
        self._data.setdefault(id(data), (data, data.revision, array("q")))

    def begin(self) -> None:
        """A member is about to be written, or told of."""
        self._told = False

    def end(self, data: Data, start: int, end: int) -> None:
        """It was made of ``data[start:end]``."""
        if self._told and id(data) in self._data:
            stretches = self._data[id(data)][2]
            if self._goes_on and stretches and 0 <= start - stretches[-1] <= _HEADERS:
                stretches[-1] = max(stretches[-1], end)
            else:
                stretches.extend((start, max(start, end)))
        self._goes_on = self._told

    def were_wrong(self) -> bool:
        """Say whether other bytes are given now, or something is known by now against those stretches."""
        return any(
            data.revision != revision
            or any(data.why_suspect(low, high) is not None for low, high in zip(found[::2], found[1::2], strict=True))
            for data, revision, found in self._data.values()
        )
