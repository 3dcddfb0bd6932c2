"""The values of loaded containers: a mapping and a sequence that load children on access."""

from __future__ import annotations

from pparse.tree.key_table import key_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from pparse.tree.entry import Key
    from pparse.tree.node import Node


class NodeMap:
    """A loaded map as a mapping of keys to values: scalars as they are, containers as views.

    Made on each access: views of one node are equal, not identical. The first of several equal keys counts;
    `Node.children` has all.
    """

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __getitem__(self, key: Key) -> Any:
        return self.node[key].load()

    def get(self, key: Key, default: object = None) -> Any:
        """Return the value at ``key``, or ``default``."""
        kid = self.node.find(key)
        return default if kid is None else kid.load()

    def keys(self) -> Iterator[Key]:
        """Yield each key once, in file order."""
        return iter(self)

    def values(self) -> Iterator[Any]:
        """Yield the value of each key."""
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[Key, Any]]:
        """Yield each key with its value."""
        result, node = self.node.result, self.node
        repeated = result.repeated_keys(node)
        for kid in node.children():
            if key_hash(kid.key) not in repeated or result.occurrence(node, kid.ordinal, kid.key) == 1:
                yield kid.key, kid.load()

    def __iter__(self) -> Iterator[Key]:
        result, node = self.node.result, self.node
        repeated = result.repeated_keys(node)
        for ordinal, entry in result.entries_from(node, 0):
            if key_hash(entry.key) not in repeated or result.occurrence(node, ordinal, entry.key) == 1:
                yield entry.key

    def __contains__(self, key: object) -> bool:
        return key in self.node

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NodeMap) and other.node is self.node:
            return True
        if isinstance(other, NodeMap | dict):
            return len(self) == len(other) and all(key in other and other[key] == value for key, value in self.items())
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<NodeMap of {self.node!r}>"


class NodeList:
    """A loaded list as a sequence of values. Made on each access: views of one node are equal, not identical."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __getitem__(self, index: int | slice) -> Any:
        found = self.node[index]
        return [kid.load() for kid in found] if isinstance(index, slice) else found.load()

    def __iter__(self) -> Iterator[Any]:
        return (kid.load() for kid in self.node.children())

    def __len__(self) -> int:
        return len(self.node)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NodeList) and other.node is self.node:
            return True
        if isinstance(other, NodeList | list | tuple):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<NodeList of {self.node!r}>"


def as_dict(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return ``pairs`` as a dict; further values of a key are named ``key#2``, ``key#3`` …, skipping names in use."""
    found: dict[Any, Any] = dict(pairs)
    if len(found) == len(pairs):
        return found
    keys = found
    found = {}
    occurrences: dict[Any, int] = {}
    for key, value in pairs:
        name: Any = key
        occurrence = occurrences.get(key, 0) + 1
        while occurrence > 1 and ((name := f"{key!s}#{occurrence}") in keys or name in found):
            occurrence += 1
        occurrences[key] = occurrence
        found[name] = value
    return found
