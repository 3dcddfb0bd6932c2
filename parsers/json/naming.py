"""Names nodes and their children for findings, without reading again what is above them."""

from __future__ import annotations

import weakref

from pparse.findings import KEPT_PATH, clipped
from pparse.paths import KeyStep, OrdinalStep, join_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.tree.entry import Key
    from pparse.tree.node import Node

# Paths are kept without their middle if they are longer than a finding keeps them. What is left is too long, too, so
# that a path below is clipped as the whole one would be.
_END: Final = KEPT_PATH // 2 + 1


class PathLine:
    """The nodes on the way from the root to the one named last, held weakly, and their paths.

    In damaged text every level may have a finding: named from the root, each would cost as many steps as it is deep.
    """

    __slots__ = ("_nodes", "_paths")

    def __init__(self) -> None:
        self._nodes: list[weakref.ref[Node]] = []  # from the first level below the root on
        self._paths: list[str] = []

    def below(self, node: Node, ordinal: int, key: Key) -> str:
        """Return the clipped path of a child of ``node``, without its number among children with the same key."""
        step: KeyStep | OrdinalStep
        if node.kind == "array":
            step = KeyStep(ordinal)
        else:
            step = KeyStep(key) if isinstance(key, str) else OrdinalStep(ordinal)
        return clipped(join_step(self.path(node), step))

    def path(self, node: Node) -> str:
        """Return the path of ``node``; of a very long one, as much as a finding keeps."""
        missing: list[tuple[Node, Node]] = []
        path = ""
        while node.parent is not None:
            level = node.depth - 1
            if level < len(self._nodes) and self._nodes[level]() is node:
                path = self._paths[level]
                break
            missing.append((node.parent, node))
            node = node.parent
        if not missing:
            return path
        nodes, paths = self._nodes, self._paths = self._nodes[: node.depth], self._paths[: node.depth]
        for parent, kid in reversed(missing):
            path = join_step(path, kid.result.parser.step_to(parent, kid.ordinal, kid.key))
            if len(path) > 2 * _END:
                path = path[:_END] + path[-_END:]
            nodes.append(weakref.ref(kid))
            paths.append(path)
        self._nodes, self._paths = nodes, paths  # a step may have read a node again, and named that
        return path
