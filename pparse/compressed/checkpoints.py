"""Which places of a compressed stream decoding can begin at again: `Checkpoints`."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from pparse.errors import LimitError
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.budget import MemoryBudget
    from pparse.codecs.output_cache import Checkpoint

# How many are kept, how far apart they are at first, and how many stay so near to each other where it was decoded last.
_POINTS: Final = 80
_SPACING: Final = 1 * MIB
_OUT: Final = attrgetter("out")
_DENSE: Final = 8


class Checkpoints:
    """Checkpoints in order of their output, the start of the stream first; charged to ``budget``, which may drop them.

    They are ``spacing`` bytes of output apart, but for the latest, which are nearer to each other.
    """

    __slots__ = ("_budget", "points", "spacing")

    def __init__(self, start: Checkpoint, budget: MemoryBudget) -> None:
        self._budget = budget
        self.points = [start]
        self.spacing = _SPACING

    @property
    def start(self) -> Checkpoint:
        """The start of the stream, which is never dropped."""
        return self.points[0]

    def nearest(self, out: int) -> Checkpoint:
        """Return the last one that is not behind byte ``out`` of the output."""
        if not all(point.alive for point in self.points):
            self.points = [point for point in self.points if point.alive]
        return self.points[self._place(out) - 1]

    def wants(self, out: int) -> bool:
        """Say whether there is none shortly before byte ``out`` of the output."""
        near = self.points[self._place(out) - 1]
        return not near.alive or out - near.out >= _SPACING

    def add(self, point: Checkpoint) -> None:
        """Keep ``point``, if there is none near it and the budget has room."""
        if not self.wants(point.out):
            return
        try:
            point.hold(self._budget)
        except LimitError:
            return
        self.points.insert(self._place(point.out), point)
        if len(self.points) > _POINTS:
            self._thin_out(point.out)

    def _place(self, out: int) -> int:
        return bisect_right(self.points, out, key=_OUT)

    def _thin_out(self, here: int) -> None:
        """Drop points, but of those shortly before ``here`` none: a reader that goes back goes there most often."""
        dense = here - _DENSE * _SPACING
        while len(self.points) > _POINTS - _DENSE:
            kept = self.points[:1]
            for point in self.points[1:]:
                room = _SPACING if dense <= point.out <= here else self.spacing
                if point.alive and point.out - kept[-1].out >= room:
                    kept.append(point)
            if len(kept) > _POINTS - _DENSE:
                self.spacing *= 2
            self.points = kept

    def close(self) -> None:
        """Give back the memory."""
        self.points = self.points[:1]
