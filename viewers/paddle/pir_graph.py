"""Graphs of PaddlePaddle programs in JSON form, for `pparse.graphs`: operators, and the blocks in them.

Values have numbers: ``%`` of what an operator reads or makes, ``#`` of what a block is given; 0 is none. That of a
parameter is called as this, that of an input as the operator that feeds it says; others ``%N``. The blocks in an
operator also read values of those around it (PaddlePaddle/Paddle
paddle/fluid/pir/serialize_deserialize/src/ir_serialize.cc).
"""

from __future__ import annotations

from functools import cached_property

from pparse.graphs.source import Value
from pparse.lazy import lazy_pattern
from pparse.parsers.paddle.json_program import STORED, dtype_named, operation, read_operator
from pparse.tree.below import kids_of, node_at, text_at, value_at
from pparse.tree.entry import SCALAR
from pparse.viewers.paddle.graph import BlockGraph

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.graphs.source import Row
    from pparse.limits import Charge
    from pparse.tree.node import Node

_YIELD: Final = "cf.yield"
_FED: Final = ("pd_op.data", "pd_op.feed")
# What gives its value a name, and the attribute that has it.
_NAMED: Final[dict[str, str | int]] = {**dict.fromkeys(_FED, "name"), STORED: 3}
# What returns a value, and the attribute with the name of the result.
_RETURNED: Final = {"pd_op.fetch": "name", "builtin.shadow_output": "output_name"}
_NUMBERED: Final = lazy_pattern(r"%-?\d+\Z")
_NAME_COST: Final = 250
_MAX_NESTING: Final = 32


class PirGraph(BlockGraph):
    """The graph of a block."""

    placeholders = frozenset(_FED)
    stored = frozenset((STORED,))

    @property
    def _main(self) -> PirGraph:
        outer: Any = self.outer
        return self if outer is None else outer._main

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield a row for each operator."""
        for ordinal, operator in enumerate(kids_of(self.elements)):
            yield self._row(ordinal, operator)

    def row(self, ordinal: int) -> Row:
        """Return the row of one operator."""
        return self._row(ordinal, self.node(ordinal))

    def _row(self, ordinal: int, operator: Node) -> Row:
        told = read_operator(operator)
        op = operation(told)
        inputs, outputs = ([self._called(number) for number in _numbers(told, side)] for side in "IO")
        taken = tuple(map(self._called, _captured(operator))) if "regions" in told else ()
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
        for told in map(read_operator, kids_of(self.elements)):
            op = operation(told)
            name = _attribute(told, _NAMED[op]) if op in _NAMED else ""
            for number in _numbers(told, "O") if name and name not in taken and not _NUMBERED.match(name) else ():
                found[number] = name
                taken.add(name)
                charge.resize(_NAME_COST * len(found))
        return found, charge

    def _called(self, number: int) -> str:
        return self._main._names[0].get(number, f"%{number}") if number else ""

    def inputs(self) -> Sequence[str]:
        """Return what a block is given."""
        return [self._called(number) for number, _ in self._given()]

    def _given(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for kid in kids_of(self.root.find("args")):
            told = read_operator(kid) if kid.shape != SCALAR else {}
            if type(told.get("#")) is int:
                yield told["#"], told

    def results(self) -> Mapping[str, str]:
        """Return what is fetched, by the names of the results; of a block in an operator, what it yields."""
        found: dict[str, str] = {}
        for row in self.rows():
            if row[2] == _YIELD:
                found |= {name: name for name in row[3] if name}
            elif row[2] in _RETURNED and row[3]:
                found[_attribute(read_operator(self.node(row[0])), _RETURNED[row[2]]) or row[1]] = row[3][0]
        return found

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of a value; unknown dimensions are None."""
        told = read_operator(self.node(ordinal)) if ordinal is not None and ordinal < len(self) else {}
        for number, one in (*zip(_numbers(told, "O"), _values(told, "O"), strict=True), *self._given()):
            if self._called(number) == name:
                return _typed(name, one.get("TT"))
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
                for label, block in _blocks(operator) if "regions" in read_operator(operator) else ():
                    name = f"{around.name}/" * bool(around.name) + f"{around._row(ordinal, operator)[1]}.{label}"
                    found[name] = body = PirGraph(self._viewer, block, name, around)
                    charge.resize(_NAME_COST * len(found))
                    if depth < _MAX_NESTING:
                        waiting.append((body, depth + 1))
        return found, charge


def _values(told: dict[str, Any], side: str) -> list[dict[str, Any]]:
    """Return the values that an operator reads (``I``) or makes (``O``); a parameter is the only one."""
    found = told.get(side)
    found = [found] if isinstance(found, dict) else found if isinstance(found, list) else []
    return [one if isinstance(one, dict) else {} for one in found]


def _numbers(told: dict[str, Any], side: str) -> list[int]:
    numbers = (one.get("%") for one in _values(told, side))
    return [number if type(number) is int else 0 for number in numbers]


def _attribute(told: dict[str, Any], name: str | int) -> str:
    """Return an attribute that is a text, by its name, or of a parameter by its number; empty if there is none."""
    listed = told.get("A")
    for number, one in enumerate(listed if isinstance(listed, list) else ()):
        if number == name and isinstance(one, str):
            return one
        if isinstance(one, dict) and one.get("N") == name and isinstance(one.get("AT"), dict):
            found = one["AT"].get("D")
            return found if isinstance(found, str) else ""
    return ""


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
            told = read_operator(inner)
            used |= dict.fromkeys(_numbers(told, "I"))
            made.update(_numbers(told, "O"))
            if depth < _MAX_NESTING and "regions" in told:
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
