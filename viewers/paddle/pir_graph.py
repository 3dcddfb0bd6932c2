"""Graphs of PaddlePaddle programs in JSON form, for `pparse.graphs`: operators, and the blocks in them.

Values have numbers: ``%`` of what an operator reads or makes, ``#`` of what a block is given; 0 is none. That of a
parameter is called as this, that of an input as the operator that feeds it says; others ``%N``. The blocks in an
operator also read values of those around it (PaddlePaddle/Paddle
paddle/fluid/pir/serialize_deserialize/src/ir_serialize.cc).
"""

from __future__ import annotations

from functools import cached_property

from pparse.errors import FaultError
from pparse.graphs.source import ListedGraph, Value
from pparse.lazy import lazy_pattern
from pparse.parsers.paddle.json_program import STORED, dtype_named, operation
from pparse.tree.entry import SCALAR
from pparse.viewers.tensor_proto.viewer import kids_of, node_at, text_at, value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.graphs.source import Row
    from pparse.limits import Charge
    from pparse.tree.node import Node
    from pparse.viewers.paddle.viewer import PaddleViewer

_YIELD: Final = "cf.yield"
_FED: Final = ("pd_op.data", "pd_op.feed")
# What returns a value, and the attribute with the name of the result.
_RETURNED: Final = {"pd_op.fetch": "name", "builtin.shadow_output": "output_name"}
_NUMBERED: Final = lazy_pattern(r"%-?\d+\Z")
_NAME_COST: Final = 250
_LONGEST: Final = 1 << 20  # bytes of the inputs, or outputs, of an operator
_MAX_NESTING: Final = 32


class PirGraph(ListedGraph):
    """The graph of a block, ``root``."""

    format = "PaddlePaddle"
    where = "domain"
    names_values = True
    placeholders = frozenset(_FED)
    stored = frozenset((STORED,))

    def __init__(self, viewer: PaddleViewer, root: Node, name: str = "", outer: PirGraph | None = None) -> None:
        super().__init__(viewer.extraction, name)
        self._viewer, self.root, self.outer = viewer, root, outer
        self._main: PirGraph = self if outer is None else outer._main
        self.kind = "body" if name else "graph"
        found = root.find("ops")
        self.elements = None if found is None or found.shape == SCALAR else found

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield a row for each operator."""
        for ordinal, operator in enumerate(kids_of(self.elements)):
            yield self._row(ordinal, operator)

    def row(self, ordinal: int) -> Row:
        """Return the row of one operator."""
        return self._row(ordinal, self.node(ordinal))

    def _row(self, ordinal: int, operator: Node) -> Row:
        op = operation(operator)
        inputs, outputs = ([self._called(number) for number in _numbers(operator, side)] for side in "IO")
        taken = () if operator.find("regions") is None else tuple(map(self._called, _captured(operator)))
        label = next(filter(None, outputs), f"{op};{ordinal}")
        return ordinal, label, op, inputs, "", taken, outputs

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the attributes of an operator by name."""
        kids = kids_of(self.node(ordinal).find("A"))
        return {text_at(kid, "N"): node_at(kid, "AT", "D") or kid for kid in kids if kid.shape != SCALAR}

    # -- values --------------------------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> tuple[dict[int, str], Charge]:
        """The names of parameters and of what is fed, by the numbers of their values."""
        found: dict[int, str] = {}
        taken = set[str]()
        charge = self.extraction.session.budget.charge(0, "the names of values")
        for operator in kids_of(self.elements):
            op = operation(operator)
            if op == STORED:
                name = text_at(operator, "A", 3)
            elif op in _FED:
                name = _attribute(operator, "name")
            else:
                continue
            for number in _numbers(operator, "O") if name and name not in taken and not _NUMBERED.match(name) else ():
                found[number] = name
                taken.add(name)
                charge.resize(_NAME_COST * len(found))
        return found, charge

    def _called(self, number: int) -> str:
        return self._main._names[0].get(number, f"%{number}") if number else ""

    def inputs(self) -> Sequence[str]:
        """Return what a block is given."""
        return [self._called(number) for number, _ in self._given()]

    def _given(self) -> Iterator[tuple[int, Node]]:
        for kid in kids_of(self.root.find("args")):
            number = value_at(kid, "#")
            if type(number) is int:
                yield number, kid

    def results(self) -> Mapping[str, str]:
        """Return what is fetched, by the names of the results; of a block in an operator, what it yields."""
        found: dict[str, str] = {}
        for row in self.rows():
            if row[2] == _YIELD:
                found |= {name: name for name in row[3] if name}
            elif row[2] in _RETURNED and row[3]:
                found[_attribute(self.node(row[0]), _RETURNED[row[2]]) or row[1]] = row[3][0]
        return found

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of a value; unknown dimensions are None."""
        made = self.node(ordinal).find("O") if ordinal is not None and ordinal < len(self) else None
        kids = kids_of(made) if made is None or made.find("TT") is None else iter((made,))
        for number, kid in (*((value_at(kid, "%"), kid) for kid in kids), *self._given()):
            if type(number) is int and self._called(number) == name:
                return _typed(name, _told(kid.find("TT")))
        return None

    # -- other graphs --------------------------------------------------------------------------------------------------

    def bodies(self) -> Mapping[str, PirGraph]:
        """Return the blocks in operators, at any depth, by name; of the main graph only."""
        return self._bodies[0] if self.kind == "graph" else {}

    @cached_property
    def _bodies(self) -> tuple[dict[str, PirGraph], Charge]:
        found: dict[str, PirGraph] = {}
        waiting: list[tuple[PirGraph, int]] = [(self, 0)]
        charge = self.extraction.session.budget.charge(0, "the names of bodies")
        while waiting:
            around, depth = waiting.pop()
            for ordinal, operator in enumerate(kids_of(around.elements)):
                for label, block in _blocks(operator):
                    name = f"{around.name}/" * bool(around.name) + f"{around._row(ordinal, operator)[1]}.{label}"
                    found[name] = body = PirGraph(self._viewer, block, name, around)
                    charge.resize(_NAME_COST * len(found))
                    if depth < _MAX_NESTING:
                        waiting.append((body, depth + 1))
        return found, charge


def _told(node: Node | None) -> Any:
    """Return a node as plain data; None if there is none, it cannot be read, or is longer than any that is written."""
    try:
        if node is None or sum(length for _, length in node.spans) > _LONGEST:
            return None
        return node.to_python()
    except FaultError:
        return None


def _numbers(operator: Node, side: str) -> list[int]:
    """Return the numbers of the values that an operator reads (``I``) or makes (``O``); a parameter is the only one."""
    told = _told(operator.find(side))
    found = [told] if isinstance(told, dict) else told if isinstance(told, list) else []
    numbers = (one.get("%") if isinstance(one, dict) else None for one in found)
    return [number if type(number) is int else 0 for number in numbers]


def _attribute(operator: Node, name: str) -> str:
    """Return an attribute that is a text; empty if there is none."""
    return next((text_at(kid, "AT", "D") for kid in kids_of(operator.find("A")) if text_at(kid, "N") == name), "")


def _blocks(operator: Node) -> Iterator[tuple[str, Node]]:
    """Yield the blocks in an operator, with what they are called in it."""
    for place, region in enumerate(kids_of(operator.find("regions"))):
        for number, block in enumerate(kids_of(region.find("blocks"))):
            if block.shape != SCALAR:
                yield f"regions[{place}]" + f"[{number}]" * bool(number), block


def _captured(operator: Node) -> list[int]:
    """Return the numbers of the values that the blocks in an operator read and do not make."""
    used, made = dict[int, None](), {0}
    waiting = [(block, 0) for _, block in _blocks(operator)]
    while waiting:
        block, depth = waiting.pop()
        made.update(number for kid in kids_of(block.find("args")) if type(number := value_at(kid, "#")) is int)
        for inner in kids_of(block.find("ops")):
            used |= dict.fromkeys(_numbers(inner, "I"))
            made.update(_numbers(inner, "O"))
            if depth < _MAX_NESTING:
                waiting += ((found, depth + 1) for _, found in _blocks(inner))
    return [number for number in used if number not in made]


def _typed(name: str, told: Any) -> Value | None:
    """Return what a type says of a value: ``{"#": "0.t_dtensor", "D": [element type, dims, …]}``."""
    try:
        kind, parts = told["#"], told.get("D")
        if kind != "0.t_dtensor":
            return Value(name, kind.partition(".t_")[2], None)
        return Value(name, dtype_named(parts[0]["#"]), tuple(None if size < 0 else size for size in parts[1]))
    except (AttributeError, LookupError, TypeError):
        return None
