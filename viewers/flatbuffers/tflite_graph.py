"""The graph of a subgraph of a TFLite model, for `pparse.graphs`.

Operators name tensors by their numbers, -1 for an input that is not given. Names of tensors need not differ, and may be
empty: a value is called as its tensor is, if no tensor before it has the name; else ``NAME;NUMBER``, as is an operator
without outputs. Control flow leads to other subgraphs by their numbers in the options of an operator.
"""

from __future__ import annotations

from functools import cached_property

from pparse.errors import DataError
from pparse.graphs.source import Value
from pparse.tree.entry import SCALAR
from pparse.viewers.flatbuffers.table_graph import TableGraph
from pparse.viewers.flatbuffers.tflite import operator_name, tensor_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pparse.limits import Charge
    from pparse.parsers.flatbuffers.table import Table
    from pparse.tree.node import Node
    from pparse.viewers.flatbuffers.table_graph import Read
    from pparse.viewers.flatbuffers.tflite import TfliteViewer

_NAME_COST = 150


class TfliteGraph(TableGraph):
    """One subgraph."""

    format = "TFLite"
    where = "options"

    def __init__(self, viewer: TfliteViewer, number: int, outer: TfliteGraph | None = None) -> None:
        self._number, self._viewer = number, viewer
        model = viewer.model
        self._graph = model.element("subgraphs", model.references("subgraphs")[number])
        name = "" if outer is None else self._graph.text("name") or f"subgraph {number}"
        super().__init__(viewer, self._graph, "operators", ("subgraphs", number), name)
        self.kind = "graph" if outer is None else "body"

    @cached_property
    def _codes(self) -> list[str]:
        """Names of the operations by the number of their code."""
        return [operator_name(code) for code in self._viewer.model.tables("operator_codes")]

    @cached_property
    def _names(self) -> tuple[list[str], dict[str, int], Charge]:
        """Names of values by the number of their tensor, and the other way."""
        names: list[str] = []
        numbers: dict[str, int] = {}
        charge = self.extraction.session.budget.charge(0, "the names of values")
        size = 0
        for number, reference in enumerate(self._graph.references("tensors")):
            try:
                name = tensor_name(self._graph.element("tensors", reference), number)
            except DataError:
                name = f"tensor_{number}"
            if name in numbers:
                name = f"{name};{number}"
            numbers.setdefault(name, number)
            names.append(name)
            size += _NAME_COST + len(name)
            if not number & 0xFF:
                charge.resize(size)
        return names, numbers, charge

    def _called(self, numbers: Sequence[int]) -> list[str]:
        names = self._names[0]
        count = len(names)
        return [names[at] if 0 <= at < count else f"tensor_{at}" if at >= 0 else "" for at in numbers]

    # -- nodes -------------------------------------------------------------------------------------------------------

    def read(self, element: Table) -> Read:
        """Return what an operator says; it has no name of its own."""
        code, codes = element.number("opcode_index"), self._codes
        op = codes[code] if code < len(codes) else f"operator code {code}"
        inputs, outputs = (self._called(element.numbers(side)) for side in ("inputs", "outputs"))
        return "", op, inputs, "", (), outputs

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the options of an operator by name."""
        node = self.node(ordinal)
        found: dict[str, Node] = {}
        for key in ("builtin_options", "builtin_options_2", "custom_options"):
            options = node.find(key)
            if options is not None and options.shape == SCALAR:
                found[key] = options
            elif options is not None:
                found |= {str(kid.key): kid for kid in options.children()}
        return found

    # -- values ------------------------------------------------------------------------------------------------------

    def inputs(self) -> Sequence[str]:
        """Return the inputs."""
        return self._called(self._graph.numbers("inputs"))

    def constants(self) -> Iterator[str]:
        """Yield the values that have bytes in the model."""
        inputs = set(self.inputs())
        names = self._names[0]
        for number, reference in enumerate(self._graph.references("tensors")):
            try:
                stored = self._viewer._has_bytes(self._graph.element("tensors", reference))
            except DataError:
                stored = True
            if stored and names[number] not in inputs:
                yield names[number]

    def results(self) -> Mapping[str, str]:
        """Return the outputs."""
        return {name: name for name in self._called(self._graph.numbers("outputs"))}

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of a value, as its tensor has them; unknown dimensions are None."""
        number = self._names[1].get(name)
        if number is None:
            return None
        try:
            info = self._viewer._info(self._graph, number)
        except DataError:
            return None
        shape = None if info.shape is None else tuple(None if size < 0 else size for size in info.shape)
        return Value(name, str(info.dtype or info.stored_dtype), shape)

    # -- other graphs ------------------------------------------------------------------------------------------------

    def bodies(self) -> Mapping[str, TfliteGraph]:
        """Return the subgraphs that operators run, or signatures name, by name; of the main graph only."""
        if self.kind != "graph":
            return {}
        count = len(self._viewer.model.references("subgraphs"))
        made: dict[str, TfliteGraph] = {}
        for number in range(count):
            if number != self._number:
                graph = TfliteGraph(self._viewer, number, self)
                if graph.name in made:
                    graph.name = f"{graph.name};{number}"
                made[graph.name] = graph
        return made
