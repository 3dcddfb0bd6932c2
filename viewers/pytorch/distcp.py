"""The tensors of a shard of a distributed checkpoint: those of its items, behind their numbers."""

from __future__ import annotations

from collections import deque

from pparse.document.registry import viewer_for
from pparse.errors import DataError, PathError
from pparse.tensors.viewer import Viewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.findings import Finding
    from pparse.parsers.pytorch.distcp import DistcpParser
    from pparse.tensors.tensor import Tensor

# Items that stay open, and facts that are told.
_HELD: Final = 64
_MOST_FACTS: Final = 10_000


class DistcpViewer(Viewer):
    """A mapping of names to tensors: ``3`` if item 3 is a tensor, ``3/NAME`` if it is an object that has some."""

    may_have_had_more = True

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: DistcpParser = extraction.parse().parser  # type: ignore[assignment]
        self._held: deque[Viewer] = deque(maxlen=_HELD)

    def _viewers(self) -> Iterator[tuple[int, Viewer]]:
        """Yield the numbers of items, and their viewers."""
        for number in range(len(self.parser.items) - 1):
            viewer = self._viewer(number)
            if viewer is not None:
                yield number, viewer

    def _viewer(self, number: int) -> Viewer | None:
        """Return the viewer of an item; None if nothing is left of it that has tensors."""
        try:
            opened = self.parser.enter(str(number))
            opened.parse("pytorch")
            viewer: Viewer | None = viewer_for(opened)
        except (DataError, PathError):
            return None
        if viewer is not None:
            self._held.append(viewer)
        return viewer

    def _named(self, number: int, tensor: Tensor) -> Tensor:
        tensor.name = f"{number}/{tensor.name}" if tensor.name else str(number)
        tensor._owner = self
        return self.as_of_now(tensor)

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors of all items."""
        for number, viewer in self._viewers():
            for tensor in viewer.tensors():
                yield self._named(number, tensor)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None."""
        number, _, inner = name.partition("/")
        if not number.isdecimal() or len(number) > 18 or int(number) >= len(self.parser.items) - 1:
            return None
        viewer = self._viewer(int(number))
        tensor = None if viewer is None else viewer.find(inner)
        return None if tensor is None or str(int(number)) != number else self._named(int(number), tensor)

    @property
    def _has_news(self) -> bool:  # type: ignore[override]
        """Whether something is known against bytes of an item."""
        return self.extraction.session.stats.discoveries > 0

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was saved besides tensors, by item and name."""
        found: dict[str, Any] = {}
        for number, viewer in self._viewers():
            for name, value in viewer.metadata.items():
                found[f"{number}/{name}" if name else str(number)] = value
                if len(found) >= _MOST_FACTS:
                    return found
        return found

    def resolve_all(self) -> None:
        """From now on, let `tensors` first compare all checksums."""
        for _, viewer in self._viewers():
            viewer.resolve_all()

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Look at everything in all items, and compare their checksums."""
        for number in range(len(self.parser.items) - 1):
            finding = self.parser.item(number).finding
            if finding is not None:
                self.findings.add(finding)
                yield finding
        for number, viewer in self._viewers():
            for finding in viewer.check(strict=strict):
                finding.path = f"{number}/{finding.path}" if finding.path else str(number)
                self.findings.add(finding)
                yield finding
