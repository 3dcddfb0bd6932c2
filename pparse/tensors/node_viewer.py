"""`NodeViewer`: the viewer of a format in which every tensor is described by one child of one node."""

from __future__ import annotations

from abc import abstractmethod

from pparse.errors import PparseError
from pparse.tensors.viewer import Viewer
from pparse.tree.entry import SCALAR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node


# Longer lists are not shown in the metadata of a model.
_MOST_SHOWN: Final = 64


class NodeViewer(Viewer):
    """A viewer that needs to know only which node holds the tensors, and what one of its children says of a tensor."""

    @property
    @abstractmethod
    def table(self) -> Node | None:
        """The node whose children describe the tensors, by name; None if it is lost."""

    @property
    def facts(self) -> Node | None:
        """The node whose children are what the file says about itself; None if there is none, or it is lost."""
        return None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What `facts` says, as plain data: of lists of more than 64 elements, and what cannot be read, a remark."""
        return {name: _plain(node) for name, node in _named(self.facts)}

    @abstractmethod
    def tensor_of(self, node: Node, name: str) -> Tensor | None:
        """Return the tensor that a child of `table` describes, called ``name``; None if it describes none."""

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors in file order; the second of two equal names as ``name#2``."""
        for name, node in _named(self.table):
            tensor = self.tensor_of(node, name)
            if tensor is not None:
                yield tensor

    def find(self, name: str) -> Tensor | None:
        """Return the tensor called ``name``, or None."""
        table = self.table
        if table is None:
            return None
        node = table.find(name)
        base, _, number = name.rpartition("#")
        if node is None and base and number.isdecimal() and int(number[:18]) > 1:
            node = table.find(base, int(number[:18]))
        return None if node is None else self.tensor_of(node, name)


def _named(table: Node | None) -> Iterator[tuple[str, Node]]:
    """Yield the children of ``table`` with their names; the second of two equal keys as ``key#2``."""
    if table is None:
        return
    for node in table.children():
        number = table.result.occurrence(table, node.ordinal, node.key)
        name = str(node.key)
        yield name if number == 1 else f"{name}#{number}", node


def repeated_names(table: Node | None) -> Iterator[str]:
    """Yield the names that children of ``table`` have not for the first time, once for each of these."""
    for name, node in _named(table):
        if name != str(node.key):
            yield str(node.key)


def _plain(node: Node) -> Any:
    try:
        if node.shape == SCALAR:
            return node.load()
        if len(node) > _MOST_SHOWN:
            return f"{len(node):,} elements"
        return node.to_python()
    except PparseError as error:
        return f"{node.status}: {error.reason}"
