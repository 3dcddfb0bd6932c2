"""The variables of a SavedModel as its message describes them: the checkpoint, or its object graph, is lost."""

from __future__ import annotations

from collections import deque
from itertools import islice

from pparse.findings import Finding, Status
from pparse.parsers.protobuf.schema import builtin_schema
from pparse.tensors.extent import Extent
from pparse.tensors.tensor import Tensor
from pparse.tensors.viewer import Viewer
from pparse.viewers.checkpoint.object_graph import SLOT, VALUE
from pparse.viewers.tensor_proto.viewer import kids_of, node_at, value_at
from pparse.viewers.tensorflow.element_types import dtype_of
from pparse.viewers.tensorflow.meta import shape_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.budget import Charge
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


# -- The names of a SavedModel's variables by its own object graph, for when that of the checkpoint is lost ------------

# Keys of an object-based checkpoint are paths: the first way to an object from the root, breadth first, by the names
# of children; what an optimizer keeps for a variable is at the variable's path
# (tensorflow/python/checkpoint/trackable_view.py, tensorflow/python/trackable/trackable_utils.py).

# The most objects that are looked at: this is a way out, not the usual one.
_MOST: Final = 200_000
# Memory of a path, without its text.
_PATH_BYTES: Final = 100
# Memory of a variable with its node, without the text of its key.
_VARIABLE_BYTES: Final = 500


def names_by_key(meta_graph: Node, charge: Charge) -> dict[str, str]:
    """Return the names of the variables of a MetaGraphDef by their keys in the checkpoint. Raises `LimitError`."""
    named = ((key, value_at(node, "name")) for key, node in variables_by_key(meta_graph, charge).items())
    return {key: name for key, name in named if isinstance(name, str) and name}


def variables_by_key(meta_graph: Node, charge: Charge) -> dict[str, Node]:
    """Return the descriptions (SavedVariable) of the variables of a MetaGraphDef by their keys in the checkpoint.

    Raises `LimitError` if ``charge`` has no room for the paths: of a chain of objects, each has all those before in it.
    """
    objects = list(islice(kids_of(node_at(meta_graph, "object_graph_def", "nodes")), _MOST))
    paths = {0: ""} if objects else {}
    waiting = deque(paths)
    variables: dict[int, Node] = {}
    slots: list[tuple[int, int, str, int]] = []
    while waiting:
        number = waiting.popleft()
        known = objects[number]
        variable = known.find("variable")
        if variable is not None:
            variables[number] = variable
        for child in kids_of(known.find("children")):
            other = value_at(child, "node_id", default=0)
            if 0 <= other < len(objects) and other not in paths:
                local = escaped(value_at(child, "local_name", default=""))
                paths[other] = f"{paths[number]}/{local}" if paths[number] else local
                charge.resize(charge.amount + _PATH_BYTES + len(paths[other]))
                waiting.append(other)
        for slot in kids_of(known.find("slot_variables")):
            original, kept = (value_at(slot, f"{key}_variable_node_id", default=0) for key in ("original", "slot"))
            slots.append((number, original, value_at(slot, "slot_name", default=""), kept))
    found = {}
    for number, node in variables.items():
        charge.resize(charge.amount + _VARIABLE_BYTES + len(paths[number]))
        found[paths[number] + VALUE] = node
    for optimizer, original, slot_name, kept in slots:
        if original in paths and 0 <= kept < len(objects):
            variable = objects[kept].find("variable")
            if variable is not None:
                key = f"{paths[original]}{SLOT}{paths[optimizer]}/{escaped(slot_name)}{VALUE}"
                charge.resize(charge.amount + _VARIABLE_BYTES + len(key))
                found[key] = variable
    return found


def escaped(name: str) -> str:
    """Return the name of a child as it stands in a path."""
    return name.replace(".", "..").replace("/", ".S")
