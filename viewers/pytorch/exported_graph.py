"""Graphs of exported programs for `pparse.graphs` (torch/_export/serde/schema.py, ``Graph``).

Nodes name the values they make. A parameter, buffer or constant is called as its tensor is, ``conv.weight``, where the
program says ``p_conv_weight``, unless another value has that name. The graphs of branches and loops are arguments of
their nodes, and take all that they use as inputs of their own: ``cond.true_graph_0``.
"""

from __future__ import annotations

from functools import cached_property

from pparse.errors import DataError, FaultError
from pparse.findings import Status
from pparse.graphs.source import ListedGraph, Signature, Value
from pparse.lazy import lazy_pattern
from pparse.tree.below import kids_of, node_at, text_at
from pparse.tree.entry import MAP, SCALAR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.graphs.source import Row
    from pparse.limits import Charge
    from pparse.tree.node import Node
    from pparse.viewers.pytorch.exported import ExportedProgramViewer

_UNREADABLE: Final = "unreadable"
# Inputs of a program that are tensors of the file, and the key with their name (``InputSpec``).
_STORED: Final = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
    "custom_obj": "custom_obj_name",
}
_GRAPH: Final = "as_graph"
# How sympy writes a symbol or a number (``srepr``).
_SYMPY: Final = lazy_pattern(r"Symbol\('([^']{1,99})'[^()]{0,99}\)|Integer\((-?\d{1,99})\)")
# Lists of values that are numbers, and what those are.
_SYMBOLS: Final = {"sym_int_values": "int64", "sym_float_values": "float64", "sym_bool_values": "bool"}
_NAME_COST: Final = 250
# Larger parts of a node are read part by part, so many levels down.
_LARGE, _LEVELS = 1 << 16, 5
_MAX_NESTING: Final = 32


class ExportedGraph(ListedGraph):
    """The graph of a program, or one in it; ``root`` is its node."""

    format = "torch.export"
    where = "domain"
    names_values = True

    def __init__(
        self,
        viewer: ExportedProgramViewer,
        root: Node,
        signature: Node | None,
        name: str = "",
        *,
        prefix: str = "",
        model: str = "",
    ) -> None:
        super().__init__(viewer.extraction, name)
        self._viewer, self.root, self._signature, self._prefix, self._model = viewer, root, signature, prefix, model
        self.kind = "body" if name else "graph"
        found = root.find("nodes")
        self.elements = None if found is None or found.shape == SCALAR else found

    @property
    def is_whole(self) -> bool:
        """Whether the JSON of the graph is not cut."""
        return self.root.status is not Status.TRUNCATED

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield a row for each node."""
        for ordinal, node in enumerate(kids_of(self.elements)):
            yield self._row(ordinal, node)

    def row(self, ordinal: int) -> Row:
        """Return the row of one node."""
        return self._row(ordinal, self.node(ordinal))

    def _row(self, ordinal: int, node: Node) -> Row:
        try:
            told = _read(node, _LEVELS)
        except DataError:
            told = None
        if not isinstance(told, dict) or not isinstance(told.get("target"), str):
            return ordinal, f"{_UNREADABLE};{ordinal}", _UNREADABLE, (), "", (), ()
        inputs = [name for one in _list(told.get("inputs")) for name in _names(_get(one, "arg"))]
        outputs = [name for one in _list(told.get("outputs")) for name in _names(one)]
        own = told.get("name")
        label = own if isinstance(own, str) and own else next(iter(outputs), f"{told['target']};{ordinal}")
        return ordinal, label, told["target"], [self._stored.get(name, name) for name in inputs], "", (), outputs

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the arguments of a node by name; of what has no name, by number."""
        found: dict[str, Node] = {}
        for number, kid in enumerate(kids_of(self.node(ordinal).find("inputs"))):
            found[text_at(kid, "name") or str(number)] = kid.find("arg") or kid
        return found

    # -- values --------------------------------------------------------------------------------------------------------

    @cached_property
    def _specs(self) -> tuple[dict[str, str], Charge]:
        """What inputs are called that are tensors of the file, by their own names."""
        found: dict[str, str] = {}
        charge = self.extraction.session.budget.charge(0, "the names of parameters")
        for number, spec in enumerate(kids_of(node_at(self._signature, "input_specs"))):
            for kid in kids_of(spec):
                key = _STORED.get(str(kid.key))
                name, own = text_at(kid, key or ""), text_at(kid, "arg", "name")
                if key is not None and name and own:
                    is_taken = node_at(self.root, "tensor_values", name) is not None
                    found[own] = own if is_taken else self._prefix + name
            if not number & 0xFF:
                charge.resize(_NAME_COST * len(found))
        return found, charge

    @property
    def _stored(self) -> dict[str, str]:
        return self._specs[0]

    @cached_property
    def _own(self) -> dict[str, str]:
        return {name: own for own, name in self._stored.items()}

    def inputs(self) -> Sequence[str]:
        """Return what the program is given besides its parameters, or all that a body is given."""
        return [name for name in self._arguments("inputs") if name not in self._stored]

    def constants(self) -> Iterator[str]:
        """Yield parameters, buffers and constants."""
        yield from self._own

    def results(self) -> Mapping[str, str]:
        """Return what it returns: new values of buffers, too."""
        return {name: name for name in (self._stored.get(one, one) for one in self._arguments("outputs"))}

    def signatures(self) -> dict[str, Signature]:
        """Return how the program is called, under its name."""
        told = Signature({name: name for name in self.inputs()}, dict(self.results()), "forward")
        return {} if self.name else {self._model: told}

    def _arguments(self, side: str) -> list[str]:
        return [name for kid in kids_of(self.root.find(side)) for name in _names(_told(kid))]

    def producer(self, text: str) -> str | None:
        """Return the name of the value."""
        return text or None

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of a value; of a dimension that is not fixed, its expression."""
        from pparse.viewers.pytorch.exported import TYPES

        own = self._own.get(name, name)
        meta = _told(node_at(self.root, "tensor_values", own))
        if isinstance(meta, dict):
            kind = meta.get("dtype")
            dtype = TYPES.get(kind, "") if type(kind) is int else ""
            return Value(name, dtype, tuple(map(_size, _list(meta.get("sizes")))))
        word = next((word for key, word in _SYMBOLS.items() if node_at(self.root, key, own) is not None), "")
        return Value(name, word, ()) if word else None

    # -- other graphs --------------------------------------------------------------------------------------------------

    def bodies(self) -> Mapping[str, ExportedGraph]:
        """Return the graphs that are arguments of nodes, at any depth, by name; of the main graph only."""
        return self._bodies[0] if self.kind == "graph" else {}

    @cached_property
    def _bodies(self) -> tuple[dict[str, ExportedGraph], Charge]:
        found: dict[str, ExportedGraph] = {}
        waiting: list[tuple[ExportedGraph, int]] = [(self, 0)]
        charge = self.extraction.session.budget.charge(0, "the names of bodies")
        while waiting:
            around, depth = waiting.pop()
            for label, body in around._inner():
                name = f"{around.name}/{label}" if around.name else label
                found[name] = made = ExportedGraph(self._viewer, body, None, name)
                charge.resize(_NAME_COST * len(found))
                if depth < _MAX_NESTING:
                    waiting.append((made, depth + 1))
        return found, charge

    def _inner(self) -> Iterator[tuple[str, Node]]:
        """Yield the graphs that are arguments of its own nodes."""
        for node in kids_of(self.elements):
            for kid in kids_of(node.find("inputs")) if "higher_order" in text_at(node, "target") else ():
                body = node_at(kid, "arg", _GRAPH)
                root = None if body is None else body.find("graph")
                if body is not None and root is not None and root.shape != SCALAR:
                    label = text_at(node, "name") or next(_names(_told(node_at(node, "outputs", 0))), "")
                    yield f"{label}.{text_at(body, 'name')}", root


def _told(node: Node | None) -> Any:
    """Return what a node says; None if it cannot be read, or there is none."""
    try:
        return None if node is None else _read(node, _LEVELS)
    except FaultError:
        return None


def _read(node: Node, levels: int) -> Any:
    """Return a node as plain data; None for a graph in it that is large."""
    if node.shape == SCALAR:
        return node.load()
    if sum(length for _, length in node.spans) <= _LARGE:
        return node.to_python()
    if node.key == _GRAPH or not levels:
        return None
    if node.shape == MAP:
        return {kid.key: _read(kid, levels - 1) for kid in node.children()}
    return [_read(kid, levels - 1) for kid in node.children()]


def _list(told: Any) -> list[Any]:
    return told if isinstance(told, list) else []


def _get(told: Any, key: str) -> Any:
    return told.get(key) if isinstance(told, dict) else None


def _names(argument: Any) -> Iterator[str]:
    """Yield the values that an ``Argument`` names, alone or in lists; none of a graph in it."""
    waiting = [argument]
    while waiting:
        told = waiting.pop()
        if isinstance(told, list):
            waiting.extend(reversed(told))
        elif isinstance(told, dict):
            yield from (told[key] for key in ("name", "as_name") if isinstance(told.get(key), str))
            waiting.extend(kid for key, kid in reversed(told.items()) if key != _GRAPH)


def _size(told: Any) -> int | str | None:
    """Return the number that a ``SymInt`` is, or the expression; None if it says neither."""
    number, symbol = _get(told, "as_int"), _get(_get(told, "as_expr"), "expr_str")
    if type(number) is int:
        return number
    return _SYMPY.sub(r"\1\2", symbol) if isinstance(symbol, str) else None
