"""The labels of nodes by number, read again when they are needed: a bounded cache, the last used stay."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.graphs.source import GraphSource, Row

_MOST: Final = 4096
_BYTES: Final = 1 << 20
_EACH: Final = 150


class Labels:
    """Labels of some nodes of a graph; the others are read from their row."""

    def __init__(self, source: GraphSource) -> None:
        self._source = source
        self._labels: dict[int, str] = {}
        self._size = 0
        self._charge = source.extraction.session.budget.charge(0, "the names of nodes")

    def add(self, row: Row) -> None:
        """Keep the label of a node that was just read, for the nodes behind it."""
        ordinal, label = row[:2]
        if ordinal not in self._labels:
            self._labels[ordinal] = label
            self._size += len(label) + _EACH
            self._drop()

    def _drop(self) -> None:
        """Forget what was not used for longest."""
        labels = self._labels
        while len(labels) > 1 and (self._size > _BYTES or len(labels) > _MOST):
            oldest = next(iter(labels))
            self._size -= len(labels.pop(oldest)) + _EACH
        if not -0x10000 < self._size - self._charge.amount <= 0:
            self._charge.resize((self._size | 0xFFFF) + 1)

    def __getitem__(self, ordinal: int) -> str:
        label = self._labels.pop(ordinal, None)
        if label is None:
            self.add(row := self._source.row(ordinal))
            return row[1]
        self._labels[ordinal] = label
        return label
