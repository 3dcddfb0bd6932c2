"""What differs between the graphs of two models of one format: nodes that came, went, or are other ones.

Nodes that say the same under the same name are paired first. From them, and from what the graphs return, pairs are
found backwards: what one node consumes as its first input is what the other one does, if the operations are the same.
What is left is paired by its name, then, of what nobody consumes, by its operation; each time, others follow
backwards. So neither other names nor other numbers in names hide what is the same, and time is linear.

A node is another one if its operation, an attribute or an input is; an input is, if what makes it is not the partner of
what made it, or as another output. Values of tensors are no part of it: `pparse.measuring.difference` compares those.
"""

from __future__ import annotations

from hashlib import blake2b

from pparse.errors import DataError, LimitError
from pparse.graphs.index import NOBODY
from pparse.lazy import Declared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.graphs.graph import Graph
    from pparse.graphs.source import Row
    from pparse.tensors.viewer import Viewer
    from pparse.tree.node import Node

ADDED, REMOVED, RENAMED, CHANGED = "added", "removed", "renamed", "changed"
# Memory of a node of each graph, besides its index.
_HELD: Final = 64
# A node of more bytes that is a tensor is not read: tensors are compared.
_LARGE: Final = 64 << 10
# Attributes of more bytes are not shown.
_SHOWN: Final = 4 << 10
_BLOCK: Final = 1 << 20
# So many inputs and outputs of a graph are compared.
_ENDS: Final = 1_000
# So many differences of a kind are kept.
_KEPT: Final = 1_000
_MARK: Final = "…"


class Detail(Declared):
    """Something about a node, or about a graph, that is another one: an attribute, an input, the operation."""

    what: str
    """``operation``, ``input 0``, the name of an attribute; of a graph, an input or output."""
    old: Any = None
    """None: it was not there."""
    new: Any = None

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {"what": self.what, "old": self.old, "new": self.new}


class NodeDifference(Declared):
    """What became of a node."""

    verdict: str
    """``added``, ``removed``, ``renamed``, ``changed``."""
    name: str
    """Its name in the first model; of one that was added, in the second. Empty: inputs and outputs of the graph."""
    details: list[Detail]
    new_name: str = ""
    """Its name in the second model, if that is another one."""
    operation: str = ""
    body: str = ""
    """The function or body that it is in; empty: the main graph."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        told: dict[str, object] = {"verdict": self.verdict, "name": self.name, "new_name": self.new_name or None}
        told |= {"operation": self.operation, "body": self.body or None}
        return {**told, "details": [one.to_dict() for one in self.details]}


class GraphDifference(Declared):
    """What differs between the graphs of two models."""

    nodes: list[NodeDifference]
    """The first 1,000 of each verdict: of the main graph, then of functions and bodies, which go by their names."""
    counts: dict[str, int]
    """How many nodes there are of each verdict."""
    equal: int = 0
    """How many nodes are in both, and the same."""
    reason: str = ""
    """Why they cannot be compared, or not as a whole."""

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not self.counts and not self.reason

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        nodes = [one.to_dict() for one in self.nodes]
        return {"nodes": nodes, "counts": self.counts, "equal": self.equal, "reason": self.reason or None}


def graph_difference(old: Viewer, new: Viewer) -> GraphDifference | None:
    """Return what differs between the graphs of two models; None if they have none, or are of two formats."""
    told = GraphDifference([], {})
    try:
        mine, others = old.graph, new.graph
        if mine is None and others is None:
            return None
        if mine is None or others is None:
            told.reason = f"only the {'second' if mine is None else 'first'} model has a graph"
            return told if old.format == new.format else None
        if mine.source.format != others.source.format:
            return None
        for one in _in_all(mine, others, (old, new), told):
            told.counts[one.verdict] = told.counts.get(one.verdict, 0) + 1
            if told.counts[one.verdict] <= _KEPT:
                told.nodes.append(one)
    except DataError as error:
        told.reason = error.reason
    return told


def _in_all(old: Graph, new: Graph, viewers: tuple[Viewer, Viewer], told: GraphDifference) -> Iterator[NodeDifference]:
    yield from _in_one(old, new, viewers, told, "")
    mine, others = old.bodies, new.bodies
    lost = [which for which, graph in (("first", old), ("second", new)) if not _is_whole(graph)]
    for name, graph in mine.items():
        if name in others:
            yield from _in_one(graph, others[name], viewers, told, name)
        elif not lost:  # else it may be behind the cut, or its name is
            yield NodeDifference(REMOVED, name, [], operation=graph.kind)
    for name, graph in others.items():
        if name not in mine and not lost:
            yield NodeDifference(ADDED, name, [], operation=graph.kind)
    if lost:
        told.reason = (
            f"the graph of the {' and of the '.join(lost)} model is not whole, so not all that differs is told"
        )


def _is_whole(graph: Graph) -> bool:
    """Return whether no node of a graph can be missing."""
    return bool(graph.source.is_whole and not graph.extraction.root.is_truncated)


def _in_one(
    old: Graph, new: Graph, viewers: tuple[Viewer, Viewer], told: GraphDifference, body: str
) -> Iterator[NodeDifference]:
    room = _HELD * (len(old.source) + len(new.source))
    with old.extraction.session.budget.charge(room, "the nodes of two graphs"):
        pairs = _Pairs(_Side(old, viewers[0]), _Side(new, viewers[1]))
        for one in pairs.differences():
            one.body = body
            yield one
        told.equal += pairs.equal


class _Side:
    """One of two graphs: what its nodes are, as numbers."""

    def __init__(self, graph: Graph, viewer: Viewer) -> None:
        import numpy as np

        self.graph, self.source, self.viewer = graph, graph.source, viewer
        self.index = graph.index
        self.count = self.index.count
        self.is_whole = _is_whole(graph)
        # Of one that is not whole, the last node may be cut, or all may be, if they do not lie one behind the other.
        self._sure = self.count if self.is_whole else self.count - 1 if self.source.in_one_piece else 0
        self.names, self.operations, self.contents = (np.zeros(self.count, np.int64) for _ in range(3))
        self.partners = np.full(self.count, NOBODY, np.int64)
        check = graph.extraction.session.check_cancelled
        for row in self.source.rows():
            number = row[0]
            if not number & 0xFFF:
                check()
            self.names[number] = hash(row[1])
            self.operations[number] = hash((row[2], row[4]))
            self.contents[number] = hash((row[2], row[4], self._content(row), tuple(row[3])))

    def _content(self, row: Row) -> object:
        """Return what tells whether a node says the same as another one, besides its inputs."""
        try:
            if not self.source.in_one_piece:
                return repr([(name, _value(node)) for name, node in self.source.attributes(row[0]).items()])
            node = self.source.node(row[0])
            if sum(map(len, node.parts)) > _LARGE and self.is_tensor(row):
                return row[2]
            return _digest(node)
        except DataError:
            return None

    def is_tensor(self, row: Row) -> bool:
        """Return whether a node is a tensor of the model, so its values are compared as those."""
        return any(self.viewer.find(name) is not None for name in (row[1], *(row[6] or ())[:1]))

    def is_sure(self, number: int) -> bool:
        """Return whether a node is known to be whole."""
        return number < self._sure

    def inputs(self, number: int) -> Any:
        """Return the numbers of what a node consumes."""
        index = self.index
        return index.input_numbers[index.input_starts[number] : index.input_starts[number + 1]]

    def free(self) -> NDArray[Any]:
        """Return the nodes without a partner."""
        import numpy as np

        return np.flatnonzero(self.partners == NOBODY)

    def producer(self, text: str) -> tuple[int | None, object]:
        """Return the number of what makes an input, and as which output; None: it is no node."""
        source, name = self.source, self.source.producer(text)
        if name is None:
            return None, text
        number = self.index.ordinal(name)
        if number is None or number >= self.count:
            return None, name
        if source.names_values:
            return number, self.index.port(name)
        rest = text.replace(name, "", 1)
        return number, rest if rest != ":0" else ""


class _Pairs:
    """Which node of one graph is which of the other one."""

    def __init__(self, old: _Side, new: _Side) -> None:
        self._old, self._new = old, new
        self.equal = 0
        self._names = _NodeNames(old, new)
        found = self._match((old.names, old.contents), (new.names, new.contents))
        self._follow(found)
        self._follow(self._results())
        self._follow(self._match((old.names, old.operations), (new.names, new.operations)))
        self._follow(self._match((old.names,), (new.names,)))
        self._follow(self._match((old.operations,), (new.operations,), unconsumed=True))

    def _match(
        self, old: tuple[NDArray[Any], ...], new: tuple[NDArray[Any], ...], *, unconsumed: bool = False
    ) -> list[tuple[int, int]]:
        """Pair nodes without a partner whose keys are equal: the first with the first, and so on."""
        import numpy as np

        sides = []
        for side, keys in ((self._old, old), (self._new, new)):
            free = side.free()
            if unconsumed:
                free = free[np.frombuffer(side.index.consumed, np.uint8)[free] == 0]
            mixed = np.zeros(len(free), np.uint64)
            for key in keys:
                mixed = (mixed ^ key[free].view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            order = np.argsort(mixed, kind="stable")
            ranked = mixed[order]
            firsts = np.maximum.accumulate(
                np.where(np.append(True, ranked[1:] != ranked[:-1]), np.arange(len(free)), 0)
            )
            ranked = ranked + (np.arange(len(free)) - firsts).astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
            sides.append((ranked, free[order]))
        _, mine, others = np.intersect1d(sides[0][0], sides[1][0], return_indices=True)
        found = list(zip(sides[0][1][mine].tolist(), sides[1][1][others].tolist(), strict=True))
        for pair in found:
            self._pair(*pair)
        return found

    def _pair(self, mine: int, other: int) -> None:
        self._old.partners[mine], self._new.partners[other] = other, mine

    def _results(self) -> list[tuple[int, int]]:
        """Pair what makes results of the same name."""
        old, new = self._old, self._new
        mine, others = old.graph.results, new.graph.results
        found = []
        for name in mine:
            if name in others:
                one, two = old.producer(mine[name])[0], new.producer(others[name])[0]
                if one is not None and two is not None and self._may_pair(one, two):
                    self._pair(one, two)
                    found.append((one, two))
        return found

    def _may_pair(self, mine: int, other: int) -> bool:
        old, new = self._old, self._new
        return bool(
            mine < old.count
            and other < new.count
            and old.partners[mine] == NOBODY == new.partners[other]
            and old.operations[mine] == new.operations[other]
        )

    def _follow(self, waiting: list[tuple[int, int]]) -> None:
        """Pair what paired nodes consume, and so on backwards."""
        if not len(self._old.free()) or not len(self._new.free()):
            return
        while waiting:
            mine, other = waiting.pop()
            for pair in zip(self._old.inputs(mine), self._new.inputs(other), strict=False):
                if self._may_pair(*pair):
                    self._pair(*pair)
                    waiting.append(pair)

    # -- what differs ------------------------------------------------------------------------------------------------

    def differences(self) -> Iterator[NodeDifference]:
        """Yield what differs: in the order of the first graph, then what was added."""
        old, new = self._old, self._new
        yield from self._ends()
        for row in old.source.rows():
            other = int(old.partners[row[0]])
            if other == NOBODY:
                if new.is_whole and old.is_sure(row[0]):
                    yield NodeDifference(REMOVED, row[1], [], operation=row[2])
                continue
            same_name = old.names[row[0]] == new.names[other]
            if same_name and old.contents[row[0]] == new.contents[other] and self._feeds_are_partners(row[0], other):
                self.equal += 1
                continue
            found = self._compared(row, new.source.row(other))
            if found is None:
                self.equal += 1
            elif old.is_sure(row[0]) and new.is_sure(other):
                yield found
        free = set(new.free().tolist()) if old.is_whole else set()
        for row in new.source.rows() if free else ():
            if row[0] in free and new.is_sure(row[0]):
                yield NodeDifference(ADDED, row[1], [], operation=row[2])

    def _feeds_are_partners(self, mine: int, other: int) -> bool:
        """Return whether what two nodes of the same texts consume are partners, too: names may be of other nodes."""
        old, new = self._old, self._new
        for one, two in zip(old.inputs(mine), new.inputs(other), strict=False):
            if one < old.count and two < new.count and old.partners[one] != two:
                return False
        return True

    def _compared(self, mine: Row, other: Row) -> NodeDifference | None:
        details = [Detail("operation", mine[2], other[2])] if (mine[2], mine[4]) != (other[2], other[4]) else []
        details += self._inputs(mine, other)
        attributes = list(_attributes(self._old.source.attributes(mine[0]), self._new.source.attributes(other[0])))
        if attributes and not (self._old.is_tensor(mine) and self._new.is_tensor(other)):
            details += attributes
        if not details and mine[1] == other[1]:
            return None
        new_name = other[1] if other[1] != mine[1] else ""
        return NodeDifference(CHANGED if details else RENAMED, mine[1], details, new_name, mine[2])

    def _inputs(self, mine: Row, other: Row) -> Iterator[Detail]:
        for number in range(max(len(mine[3]), len(other[3]))):
            old, new = (row[3][number] if number < len(row[3]) else None for row in (mine, other))
            if old is None or new is None or not self._is_same_input(old, new):
                yield Detail(f"input {number}", old, new)

    def _is_same_input(self, old: str, new: str) -> bool:
        (one, mine), (two, others) = self._old.producer(old), self._new.producer(new)
        if one is None or two is None:
            return one is two and (mine == others or self._names.are_one(str(mine), str(others)))
        return int(self._old.partners[one]) == two and mine == others

    def _ends(self) -> Iterator[NodeDifference]:
        """Yield what differs in inputs and outputs of the graph."""
        details = []
        for what in ("inputs", "outputs"):
            mine, others = (_ends_of(side.graph, what) for side in (self._old, self._new))
            if mine is None or others is None:
                continue
            for name in dict.fromkeys((*mine, *others)):
                if mine.get(name) != others.get(name):
                    details.append(Detail(f"{what[:-1]} {name}", mine.get(name), others.get(name)))
        if details:
            yield NodeDifference(CHANGED, "", details)


class _NodeNames:
    """Values that no node makes, and that have another name in the other graph: the same one at every place."""

    def __init__(self, old: _Side, new: _Side) -> None:
        self._old, self._new = old, new
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()

    def are_one(self, mine: str, other: str) -> bool:
        """Return whether a name of the first graph, which the second does not have, stands for one that it has."""
        if mine in self._known:
            return self._known[mine] == other
        names = ((self._old, mine, other), (self._new, other, mine))
        if other in self._taken or any(
            side.index.ordinal(own) is None or side.index.ordinal(strange) is not None for side, own, strange in names
        ):
            return False
        self._known[mine] = other
        self._taken.add(other)
        return True


def _ends_of(graph: Graph, what: str) -> dict[str, str] | None:
    """Return the inputs or outputs of a graph with their types and shapes; None if there are very many."""
    if what == "outputs" and not graph.results:
        return None  # what no node consumes may be anything
    names = list(graph.results) if what == "outputs" else graph.inputs
    if len(names) > _ENDS or not _is_whole(graph):
        return None
    return {name: str(graph.value(name) or name)[len(name) :].strip() or name for name in names}


def _attributes(old: dict[str, Node], new: dict[str, Node]) -> Iterator[Detail]:
    for name in dict.fromkeys((*old, *new)):
        mine, others = (_value(side[name]) if name in side else None for side in (old, new))
        if mine != others:
            yield Detail(name, *(None if value is None else _told(value) for value in (mine, others)))


def _value(node: Node) -> object:
    """Return what an attribute says, or what tells it from others, if that is long."""
    try:
        return node.to_python(_SHOWN)
    except LimitError:
        return f"{_MARK} {sum(map(len, node.parts)):,} bytes, {_digest(node).hex()}"
    except DataError as error:
        return f"{_MARK} {error.reason}"


def _told(value: object) -> object:
    """Return a value as JSON has it."""
    return value if isinstance(value, str | int | float | bool) else repr(value)


def _digest(node: Node) -> bytes:
    made = blake2b(digest_size=8)
    for part in node.parts:
        for at in range(0, len(part), _BLOCK):
            made.update(part.data.pread(part.start + at, min(_BLOCK, len(part) - at)))
    return made.digest()
