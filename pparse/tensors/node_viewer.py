"""`NodeViewer`: the viewer of a format in which every tensor is described by one child of one node."""

from __future__ import annotations

from abc import abstractmethod

from pparse.tensors.viewer import Viewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node


class NodeViewer(Viewer):
    """A viewer that needs to know only which node holds the tensors, and what one of its children says of a tensor."""

    @property
    @abstractmethod
    def table(self) -> Node | None:
        """The node whose children describe the tensors, by name; None if it is lost."""

    @abstractmethod
    def tensor_of(self, node: Node, name: str) -> Tensor | None:
        """Return the tensor that a child of `table` describes, called ``name``; None if it describes none."""

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors in file order; the second of two equal names as ``name#2``."""
        table = self.table
        if table is None:
            return
        for node in table.children():
            key = str(node.key)
            number = table.result.occurrence(table, node.ordinal, node.key)
            tensor = self.tensor_of(node, key if number == 1 else f"{key}#{number}")
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
