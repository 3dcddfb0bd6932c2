"""The conformance suite of the parsers as a default run takes it: some of the cuts and changes, all with ``--full``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pparse.testing import ParserContract
from tests import sweep

if TYPE_CHECKING:
    from collections.abc import Iterable


class SparseContract(ParserContract):
    """What every parser passes; cuts and changes move with the commit."""

    def cuts(self, size: int) -> Iterable[int]:
        """Every twentieth length, and those at either end."""
        return sweep.some(range(size), 20, ends=12)

    def gap_starts(self, size: int, step: int) -> Iterable[int]:
        """Every fourth, and those at either end."""
        return sweep.some(range(0, size, step), 4, ends=2)

    def changed(self, size: int) -> Iterable[tuple[int, int]]:
        """Two values at every twentieth byte, and at all of the first and the last."""
        places = sweep.some(range(size), 20, ends=8)
        return [(at, value) for at in places for value in sweep.values(self.changes, at)]

    def failing(self) -> Iterable[int]:
        """The first twelve reads, and every ninth of the others."""
        return sweep.faults(10_000, 9)
