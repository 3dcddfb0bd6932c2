"""The variables of a SavedModel as its message describes them: their checkpoint cannot be read, so all are missing."""

from __future__ import annotations

from pparse.findings import Finding, Status
from pparse.parsers.protobuf.schema import builtin_schema
from pparse.tensors.extent import Extent
from pparse.tensors.tensor import Tensor
from pparse.tensors.viewer import Viewer
from pparse.viewers.checkpoint.object_graph import VALUE
from pparse.viewers.tensorflow.element_types import dtype_of
from pparse.viewers.tensorflow.meta import shape_of, value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.tree.node import Node

# Memory of a name, a key and a node, at most what is usual.
_COST: Final = 400
_REASON: Final = "the model has this variable, and the checkpoint with its value cannot be read"


class LostVariables(Viewer):
    """A mapping of names to variables that are missing, with their types and shapes."""

    has_keys = True

    def __init__(self, extraction: Extraction, described: Mapping[str, Node]) -> None:
        """``described``: the SavedVariable of each variable, by its key."""
        super().__init__(extraction)
        self._charge = extraction.session.budget.charge(_COST * len(described), "the names of the variables")
        self._known: dict[str, tuple[str, str, tuple[int, ...]]] = {}
        for key, node in described.items():
            name = value_at(node, "name", default="") or key
            shape = shape_of(node.find("shape")) or ()
            facts = key, value_at(node, "dtype", default="DT_INVALID"), shape if min(shape, default=0) >= 0 else ()
            self._known[key if name in self._known else name] = facts

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def tensors(self) -> Iterator[Tensor]:
        """Yield each variable, missing."""
        return (self._tensor(*row) for row in self._rows())

    def find(self, name: str) -> Tensor | None:
        """Return the variable with that name, or key; None if there is none."""
        found = self._known.get(name)
        if found is not None:
            return self._tensor(name, *found)
        keys = (name, name + VALUE)
        return next((self._tensor(*row) for row in self._rows() if row[1] in keys), None)

    def _rows(self) -> Iterator[tuple[str, str, str, tuple[int, ...]]]:
        return ((name, *found) for name, found in self._known.items())

    def _tensor(self, name: str, key: str, stored: str, shape: tuple[int, ...]) -> Tensor:
        number = builtin_schema().enum("tensorflow.DataType").numbers.get(stored, 0)
        finding = Finding("missing", _REASON, path=name, source=self.extraction.name)
        made = Tensor(
            name,
            dtype_of(number),
            shape,
            (),
            stored_dtype=stored,
            status=Status.MISSING,
            finding=finding,
            owner=self,
        )
        made.key = key if key != name else None
        return made

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Nothing: what the checkpoint says of itself is lost."""
        return {}

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Yield nothing: that the checkpoint is lost says it for all."""
        return iter(())

    def new_extent(self) -> Extent:
        """Return an empty extent."""
        return Extent(0, 0, self.extraction.session.stats.discoveries)

    def close_extent(self, extent: Extent) -> Extent:
        """Return the extent: nothing is known of the files."""
        return extent
