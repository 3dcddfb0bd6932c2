"""The graph of a TorchScript model, for `pparse.graphs`: what its code does when ``forward`` is called.

Calls of submodules and functions are *inlined*, as torch's ``inlined_graph`` has it: the nodes of a submodule are named
by the path to it (``layers.0.conv.y``), those of other methods and functions by their name behind that. A node is
named as the first value that it makes; one whose value has no name in the code, by operation and line (``relu@12``);
one behind another of its name ``NAME#2``. Constants are the tensors of the model, by their names. An input that begins
with ``=`` is no value, but a literal. A branch or loop is a node with bodies: ``NODE.then``, ``NODE.else``,
``NODE.body``.

What the model changes itself (``self.state = x``) is read by ``prim::GetAttr`` and set by ``prim::SetAttr``; no edge
leads from the one to the other.
"""

from __future__ import annotations

from collections import ChainMap

from pparse.findings import FindingList
from pparse.graphs.source import GraphSource, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Final

    from pparse.graphs.source import Row
    from pparse.limits import Charge
    from pparse.tree.node import Node
    from pparse.viewers.pytorch.script import Script

# Types of values that are no tensors: their shape is known.
_SCALARS: Final = ("int", "float", "bool", "str", "complex", "number", "NoneType", "Device")


class ScriptGraph(GraphSource):
    """What one method does, or one body in it: its nodes, all of them made at once."""

    format = "TorchScript"
    where = "module"
    names_values = True

    def __init__(self, script: Script, kind: str, name: str, outer: ScriptGraph | None = None) -> None:
        super().__init__(script.viewer.extraction, name)
        self.kind, self.outer = kind, outer
        self.script = script
        self.listed: list[tuple[str, str, Sequence[str], str, Sequence[str], Sequence[str], str]] = []
        self.arguments: list[str] = []
        self.returned: dict[str, str] = {}
        self.types: dict[str, str] = {}
        """Types of arguments and results, as the code has them."""
        self.used: dict[str, None] = {}
        """The constants that are used."""
        self.inner: dict[str, ScriptGraph] = {}
        self.others: Mapping[str, ScriptGraph] = {}
        self.made: set[str] = set()
        self.captured: dict[str, None] = {}
        """Names of values that are used, and are not made here."""
        self.faults = FindingList(script.viewer.extraction.session.limits.findings)
        self.charge: Charge | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all of its code is there, and understood."""
        main: GraphSource | None = self
        while main is not None and main.outer is not None:
            main = main.outer
        return not (main.findings() if main is not None else ()) and not self.extraction.root.is_truncated

    def findings(self) -> FindingList:
        """Return what of the code is not there, damaged, or not understood."""
        return self.faults

    def __len__(self) -> int:
        return len(self.listed)

    def rows(self) -> Iterator[Row]:
        """Yield a row for each node."""
        return ((number, *row[:6]) for number, row in enumerate(self.listed))

    def row(self, ordinal: int) -> Row:
        """Return the row of one node."""
        return ordinal, *self.listed[ordinal][:6]

    def node(self, ordinal: int) -> Node:
        """Return the node of the source that has it."""
        return self.extraction.root.find(self.listed[ordinal][6]) or self.extraction.root

    def path_of(self, ordinal: int | None) -> str:
        """Return the name of the source that has a node."""
        return "" if ordinal is None else self.listed[ordinal][6]

    def inputs(self) -> Sequence[str]:
        """Return the arguments, without the model itself; of a loop, its number and what goes from turn to turn."""
        return self.arguments

    def constants(self) -> Iterator[str]:
        """Yield the names of the tensors that are used."""
        return iter(self.used)

    def results(self) -> Mapping[str, str]:
        """Return what is returned."""
        return self.returned

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return the type of an argument or result as the code has it, or that of a tensor."""
        kind = self.types.get(name, "")
        if kind:
            return Value(name, kind, () if kind in _SCALARS else None)
        tensor = self.script.viewer.find(name) if name in self.used else None
        return None if tensor is None else Value(name, tensor.type_name, tensor.shape)

    def producer(self, text: str) -> str | None:
        """Return the name of a value; None of a literal."""
        return None if text[:1] == "=" else text

    def bodies(self) -> Mapping[str, ScriptGraph]:
        """Return the branches and loops, and the other methods of the model, by name."""
        return ChainMap(self.inner, self.others) if self.others else self.inner  # type: ignore[arg-type]

    def functions(self) -> Mapping[str, ScriptGraph]:
        """Return the other methods of the model."""
        return self.others
