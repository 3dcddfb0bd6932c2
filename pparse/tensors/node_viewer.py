"""`NodeViewer`: the viewer of a format in which every tensor is described by one child of one node."""

from __future__ import annotations

from abc import abstractmethod

from pparse.errors import PparseError
from pparse.findings import Status
from pparse.tensors.status import Remark, last_written
from pparse.tensors.viewer import Viewer
from pparse.tree.entry import LIST, SCALAR
from pparse.tree.index import meant_by_name, name_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node


# Longer lists are not shown in the metadata of a model.
_MOST_SHOWN: Final = 64


class NodeViewer(Viewer):
    """A viewer that needs to know only which node holds the tensors, and what one of its children says of a tensor."""

    needs_name = True

    @property
    def table(self) -> Node | None:
        """The node whose children describe the tensors, by name; by itself the root. None if it is lost."""
        return self.root

    @property
    def facts(self) -> Node | None:
        """The node whose children are what the file says about itself; None if there is none, or it is lost."""
        return None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What `facts` says, as plain data: of lists of more than 64 elements, and what cannot be read, a `Remark`."""
        return {name: _plain(node) for name, node in _named(self.facts)}

    def fact_node(self, name: str) -> Node | None:
        """Return the node of a value in `metadata`; None if there is none of this name."""
        facts = self.facts
        return None if facts is None else _meant(facts, name)

    @abstractmethod
    def tensor_of(self, node: Node, name: str) -> Tensor | None:
        """Return the tensor that a child of `table` describes, called ``name``; None if it describes none."""

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors in file order; the second of two equal names as ``name#2``, or as `find` says."""
        for name, node in _named(self.table):
            tensor = self._marked(node, name)
            if tensor is not None:
                yield tensor

    def find(self, name: str) -> Tensor | None:
        """Return the tensor called ``name``, or None.

        Where one is really called ``name#2``, the second ``name`` is another of these: ``name#2#2``.
        """
        table = self.table
        node = None if table is None else _meant(table, name)
        return None if node is None else self._marked(node, name)

    def node_of(self, tensor: Tensor) -> Node | None:
        """Return the child of `table` that describes a tensor."""
        table = self.table
        return None if table is None else _meant(table, tensor.name)

    def tensor_at(self, node: Node) -> Tensor | None:
        """Return the tensor that a child of `table` describes."""
        table = node.parent
        if table is self.root:
            if type(self).table is not NodeViewer.table:  # of which asking may read on
                return None
        elif table is None or table.parent is not self.root or table is not self.table:
            return None
        return self._marked(node, name_in(table, node))

    def _marked(self, node: Node, name: str) -> Tensor | None:
        """Return the tensor of ``node``, which says how much of it was never written."""
        tensor = self.tensor_of(node, name)
        holes = self.holes if self._holes is None else self._holes  # a property is a door: four times the time
        if holes and tensor is not None and tensor.spans:
            tensor.unwritten_nbytes = self.unwritten(tensor)[1]
        return tensor

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added; a file with holes is resumed where the first one is.

        A table that is cut would name more.
        """
        kept = super().close_extent(extent)
        table = self.table
        if kept.document_status is Status.TRUNCATED and (table is None or table.status is not Status.COMPLETE):
            kept.at_least = True
        if kept.unwritten:
            inner = self.extraction.parsed
            kept.resume, kept.resume_file = [], None
            kept.resume_at = last_written(inner.data, inner.start, self.holes[0][0]) - inner.start
            kept = self.keep_extent(kept)
        return kept


def _named(table: Node | None) -> Iterator[tuple[str, Node]]:
    """Yield the children of ``table`` with their names (`pparse.tree.index`)."""
    if table is None:
        return
    index = table.index
    differ = index is not None and index.complete and index.repeated == frozenset()  # as is known from reading it
    for node in table.children():
        yield str(node.key) if differ else name_in(table, node), node


def _meant(table: Node, name: str) -> Node | None:
    """Return the child of ``table`` that `_named` calls ``name``; None if there is none."""
    return meant_by_name(name, table.find)


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
            count = f"{len(node):,} elements"
            return Remark(count if node.status is Status.COMPLETE else f"{node.status}: {count} are there", node)
        return node.to_python()
    except PparseError as error:
        return Remark(f"{node.status}: {error.reason}")


# -- Names of what lies in nested maps and lists: the keys that lead to it, joined by dots; and what has a name --------


def join(prefix: str, key: Any) -> str:
    """Return the name of what has ``key`` in what is called ``prefix``."""
    try:
        text = key if type(key) is str else str(key)
    except ValueError:  # of a number of more than 4,300 digits
        text = f"<{type(key).__name__}>"
    return f"{prefix}.{text}" if prefix else text


def node_called(root: Node, name: str) -> Node | None:
    """Return the node with that name below ``root``, through dicts and lists only; None if there is not just one.

    A key may have dots itself, and a number be written as text: so several may be called the same.
    """
    todo = [(root, name)]
    found: Node | None = None
    while todo:
        node, rest = todo.pop()
        if not rest and node is not root:
            if found is not None:
                return None
            found = node
            continue
        if node.shape == SCALAR or node.kind == "call":
            continue
        for end in [*(number for number, letter in enumerate(rest) if letter == "."), len(rest)]:
            todo.extend((kid, rest[end + 1 :]) for kid in _children_called(node, rest[:end]))
    return found


def _children_called(node: Node, key: str) -> list[Node]:
    is_number = key.isascii() and key.isdecimal() and len(key) < 19
    if node.shape == LIST:
        return [node.child(int(key))] if is_number and int(key) < len(node) else []
    keys: tuple[str | int, ...] = (key, int(key)) if is_number else (key,)
    return [kid for one in keys if (kid := node.find(one)) is not None]
