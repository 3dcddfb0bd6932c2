"""Graphs of PaddlePaddle programs, for `pparse.graphs`: blocks, whose operators name variables.

An operator may write a variable that has a value already: a running mean, what a loop goes on with. The first value of
a variable is called as the variable is, the second one ``NAME;2``; who reads it afterwards reads that. A variable has a
value before the block runs if it is persistable, or one of a block around it.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

from pparse.errors import FaultError
from pparse.graphs.source import ListedGraph, Value
from pparse.parsers.paddle.record import UNREADABLE
from pparse.parsers.protobuf.message import Message
from pparse.tensors.dtype import DTYPES, SHORT
from pparse.tree.below import kids_of, node_at, text_at, value_at
from pparse.tree.entry import SCALAR
from pparse.viewers.tensor_proto.viewer import message_at, messages_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.graphs.source import Row
    from pparse.limits import Charge
    from pparse.parsers.protobuf.index import Piece, WireWindow
    from pparse.tree.node import Node
    from pparse.viewers.paddle.viewer import PaddleViewer

# Fields of an operator, and of its inputs and outputs.
_INPUTS, _OUTPUTS, _TYPE, _ARGUMENTS = 1, 2, 3, 2
_FEED, _FETCH = "feed", "fetch"
_NAME_COST: Final = 250
_LONGEST: Final = 1 << 16


class BlockGraph(ListedGraph):
    """The graph of a block, ``root``, of a program in either form."""

    format = "PaddlePaddle"
    where = "domain"
    names_values = True

    def __init__(self, viewer: PaddleViewer, root: Node, name: str = "", outer: Any = None) -> None:
        super().__init__(viewer.extraction, name)
        self._viewer, self.root, self.outer = viewer, root, outer
        self.kind = "body" if name else "graph"
        found = root.find("ops")
        self.elements = None if found is None or found.shape == SCALAR else found


class PaddleGraph(BlockGraph):
    """The graph of one block."""

    placeholders = frozenset((_FEED,))

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield a row for each operator; of those whose heads are cut, one that says so."""
        count = 0
        for ordinal, pieces, window in messages_of(self.elements):
            count = ordinal + 1
            yield self._row(ordinal, pieces, window)
        for ordinal in range(count, len(self)):
            yield ordinal, f"{UNREADABLE};{ordinal}", UNREADABLE, (), "", (), ()

    def row(self, ordinal: int) -> Row:
        """Return the row of one operator."""
        return self._row(ordinal, message_at(self.elements, ordinal)[0], None)

    def _row(self, ordinal: int, pieces: Sequence[Piece], window: WireWindow | None) -> Row:
        op, inputs, outputs = self._read(pieces, window)
        inputs = [self._called(name, ordinal) for name in inputs]
        outputs = [self._called(name, ordinal, written=True) for name in outputs]
        label = next(filter(None, outputs), "") or f"{op};{ordinal}"
        return ordinal, label, op, inputs, "", (), outputs

    def _read(self, pieces: Sequence[Piece], window: WireWindow | None) -> tuple[str, list[str], list[str]]:
        """Return type, inputs and outputs of an operator; what feeds has no inputs, what fetches no outputs."""
        make = self._viewer.parser.make
        message = Message(make, pieces, self._kind, window)
        try:
            op = str(message.scalar(_TYPE))
        except FaultError:
            op = UNREADABLE
        inputs = [] if op == _FEED else list(self._arguments(message, _INPUTS))
        return op, inputs, [] if op == _FETCH else list(self._arguments(message, _OUTPUTS))

    @cached_property
    def _kind(self) -> Any:
        return self._viewer.parser.root_type.fields[1].message.fields[4].message  # type: ignore[union-attr]

    def _arguments(self, message: Message, number: int) -> Iterator[str]:
        """Yield the names of the inputs or outputs, as far as they can be read."""
        kind: Any = message.type.fields[number].message
        try:
            for pieces in message.elements(number):
                given = Message(message.make, pieces, kind, message.near)
                for scan, window, at in given.occurrences(_ARGUMENTS):
                    if at.end > scan.part.end or at.end - at.start > _LONGEST:
                        return
                    yield window.read(at.start, at.end).decode("utf-8", "replace")
        except FaultError:
            return

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the arguments of an operator by the names of its parameters, then its attributes."""
        node = self.node(ordinal)
        found: dict[str, Node] = {}
        for side in ("inputs", "outputs"):
            for kid in kids_of(node.find(side)):
                found[text_at(kid, "parameter")] = kid.find("arguments") or kid
        for kid in kids_of(node.find("attrs")):
            values = (one for one in kids_of(kid) if one.key not in ("name", "type"))
            found[text_at(kid, "name")] = next(values, kid)
        return found

    # -- values --------------------------------------------------------------------------------------------------------

    @cached_property
    def _variables(self) -> tuple[dict[str, int], dict[str, None], Charge]:
        """The numbers of the variables by name, and the names of those that have values in files."""
        numbers: dict[str, int] = {}
        stored: dict[str, None] = {}
        charge = self.extraction.session.budget.charge(0, "the names of variables")
        known = self._viewer.constants
        for number, kid in enumerate(kids_of(self.root.find("vars"))):
            name = text_at(kid, "name")
            numbers.setdefault(name, number)
            if known.find(name) is not None:
                stored[name] = None
            if not number & 0xFF:
                charge.resize(_NAME_COST * len(numbers))
        return numbers, stored, charge

    @cached_property
    def _writers(self) -> tuple[dict[str, list[int]], Charge]:
        """Numbers of the operators that write a variable which then has more than one value."""
        numbers, stored, _ = self._variables
        found: dict[str, list[int]] = {}
        charge = self.extraction.session.budget.charge(0, "the names of values")
        for ordinal, pieces, window in messages_of(self.elements):
            for name in self._read(pieces, window)[2]:
                written = found.setdefault(name, [-1] if name in stored or name not in numbers else [])
                if not written or written[-1] != ordinal:
                    written.append(ordinal)
            if not ordinal & 0xFF:
                charge.resize(_NAME_COST * len(found))
        found = {name: written for name, written in found.items() if len(written) > 1}
        charge.resize(_NAME_COST * len(found))
        return found, charge

    def _called(self, name: str, ordinal: int, *, written: bool = False) -> str:
        """Return what the value of a variable is called that an operator reads, or writes."""
        writers = self._writers[0].get(name)
        number = 0 if writers is None else bisect_left(writers, ordinal) + written
        return name if number < 2 else f"{name};{number}"

    def constants(self) -> Iterator[str]:
        """Yield the parameters."""
        yield from self._variables[1]

    def results(self) -> Mapping[str, str]:
        """Return what is fetched."""
        return {name: name for row in self.rows() if row[2] == _FETCH for name in row[3]}

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of a variable; unknown dimensions are None."""
        own, _, number = name.rpartition(";")
        numbers = self._variables[0]
        own = own if number.isdecimal() and own in numbers and name not in numbers else name
        if own not in numbers:
            return None
        tensor = node_at(self.root, "vars", numbers[own], "type", "dense_tensor", "tensor")
        word = str(value_at(tensor, "data_type", default=""))
        dims = None if tensor is None else tensor.find("dims")
        shape = None if tensor is None else tuple(None if size < 0 else size for size in _numbers(dims))
        return Value(name, str(DTYPES.get(SHORT.get(word, word.lower()), word.lower())), shape)

    # -- other graphs --------------------------------------------------------------------------------------------------

    def bodies(self) -> Mapping[str, PaddleGraph]:
        """Return the other blocks by number, of the main graph only."""
        found: dict[str, PaddleGraph] = {}
        if self.kind != "graph":
            return found
        made = [self]
        for number, block in enumerate(kids_of(node_at(self._viewer.root, "blocks"))):
            if number:
                parent = value_at(block, "parent_idx", default=0)
                outer = made[parent] if type(parent) is int and 0 <= parent < number else self
                made.append(PaddleGraph(self._viewer, block, f"block {number}", outer))
                found[made[-1].name] = made[-1]
        return found


def _numbers(node: Node | None) -> list[int]:
    try:
        return [] if node is None else node.to_python()
    except FaultError:
        return []
