"""`HiddenData`: data with some stretches hidden."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

from pparse.data.base import Data, GapTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class HiddenData(Data):
    """Data in which the stretches ``hidden`` are gaps; everything else, offsets included, is unchanged.

    ``handled`` (default: ``hidden``) are stretches whose doubts were dealt with: `why_suspect` reports the others only.
    Both are lists of ``(start, end)``, in order, without overlaps.
    """

    def __init__(
        self, data: Data, hidden: Sequence[tuple[int, int]], handled: Sequence[tuple[int, int]] | None = None
    ) -> None:
        super().__init__(data.name, data.size, data.stats)
        self._data = data
        self._handled = list(hidden if handled is None else handled)
        known = set(hidden)
        self._vague = [stretch for stretch in self._handled if stretch not in known]
        self.access = data.access
        gaps = [(gap.offset, gap.end, gap.exact) for gap in data.gaps]
        gaps += [(start, end, True) for start, end in hidden]
        self.gaps: GapTable = GapTable()
        reached = 0
        for offset, end, exact in sorted(gaps, key=lambda gap: gap[0]):
            start = max(offset, reached)
            if end is None:
                self.gaps.add(start, None)
                break
            if end > start:
                self.gaps.add(start, end - start, exact)
                reached = end

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """That of the data, and what is hidden."""
        from pparse.data.identity import derived

        return derived("hidden", [self._data.range(0, self.size or 0)], self.gaps.digest())

    @property
    def revision(self) -> int:  # type: ignore[override]
        """The revision of the data."""
        return self._data.revision

    def is_vague(self, start: int, end: int) -> bool:
        """Return whether ``[start, end)`` overlaps damage that was handled, but not hidden in full."""
        return any(low < end and start < high for low, high in self._vague)

    def pread(self, offset: int, length: int) -> bytes:
        """Read from the data, which counts the read."""
        length = self._clip(offset, length)
        return self._data.pread(offset, length) if length else b""

    def _pread(self, offset: int, length: int) -> bytes:
        return self._data.pread(offset, length)

    def why_suspect(self, start: int, end: int) -> str | None:
        """Ask the data about the stretches that were not handled."""
        place = bisect_right(self._handled, start, key=itemgetter(1))
        while place < len(self._handled) and self._handled[place][0] < end:
            low, high = self._handled[place]
            reason = self._data.why_suspect(start, low) if start < low else None
            if reason is not None:
                return reason
            start = max(start, high)
            place += 1
        return self._data.why_suspect(start, end) if start < end else None

    def passed_over(self, start: int, end: int) -> str | None:
        """Ask the data."""
        return self._data.passed_over(start, end)

    def same_source(self, path: str) -> bool:
        """Ask the data."""
        return self._data.same_source(path)

    def check_unchanged(self) -> None:
        """Check the data."""
        self._data.check_unchanged()
