"""Names of what lies in nested maps and lists: the keys that lead to it, joined by dots; and what has a name."""

from __future__ import annotations

from pparse.tree.entry import LIST, SCALAR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pparse.tree.node import Node


def join(prefix: str, key: Any) -> str:
    """Return the name of what has ``key`` in what is called ``prefix``."""
    text = key if type(key) is str else str(key)
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
