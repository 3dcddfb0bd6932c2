"""What is below a node, where it may be missing, lost or unreadable: then there is nothing, or a default."""

from __future__ import annotations

from pparse.errors import FaultError
from pparse.tree.entry import LIST, SCALAR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.tree.node import Node


def kids_of(node: Node | None) -> Iterator[Node]:
    """Yield the children of a node; none if there is no node, or it is damaged and not a container."""
    return node.children() if node is not None and node.shape != SCALAR else iter(())


def node_at(node: Node | None, *keys: str | int) -> Node | None:
    """Return the node at keys below another, numbers being positions in a list; None if there is none."""
    for key in keys:
        if node is None:
            return None
        if isinstance(key, int) and node.shape == LIST:
            node = node.child(key) if key < len(node) else None
        else:
            node = node.find(key)
    return node


def value_at(node: Node | None, *keys: str | int, default: Any = None) -> Any:
    """Return the scalar at keys below a node; ``default`` if it does not exist or cannot be read."""
    try:
        found = node_at(node, *keys)
        return default if found is None else found.load()
    except FaultError:
        return default


def text_at(node: Node | None, *keys: str | int) -> str:
    """Return the text at keys below a node; empty if it is not set, or cannot be read."""
    return str(value_at(node, *keys, default=""))
