"""Which node of a graph is which, and which consumes which: arrays of numbers, no object per node.

Nodes are numbers: first those of the list, then the arguments, if it is a function. Names are kept as 64-bit hashes;
two different names share one with a chance of 1 in 2^64.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from pparse.errors import LimitError
from pparse.findings import Finding, FindingList
from pparse.tree.key_table import ranked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Final

    from pparse.tree.host import Host
    from pparse.viewers.tensorflow.nodes import NodeDefs

NOBODY: Final = 0xFFFFFFFF
# Operations that close the loops of TensorFlow 1, and those that wait for input.
_LOOPS: Final = ("NextIteration", "RefNextIteration")
PLACEHOLDERS: Final = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
_MANY_EDGES: Final = 50_000
_STEP: Final = 1 << 16
_MAX_CYCLES: Final = 100
_SHOWN: Final = 8


def source_name(text: str) -> str:
    """Return the name of the node in an input: of ``node``, ``node:1``, ``node:output:0``, ``^node``."""
    return text[1:] if text[:1] == "^" else text.partition(":")[0]


class GraphIndex:
    """Names, edges and operations of one graph; ``args`` are the arguments of a function.

    Raises `LimitError` above ``max_nodes``, or if the budget has no room.
    """

    def __init__(self, nodes: NodeDefs, args: Sequence[str], extraction: Host, max_nodes: int) -> None:
        self.nodes = nodes
        self.args = args
        self.extraction = extraction
        self.count = len(nodes)
        self.total = self.count + len(args)
        if self.total > max_nodes:
            raise LimitError(
                f"the graph has {self.total} nodes",
                option=f"--max-nodes {self.total} (max_nodes=)",
                wanted=self.total,
                got=max_nodes,
            )
        self.findings = FindingList(extraction.session.limits.findings)
        self.operations: dict[str, int] = {}
        self._op_bytes = 0
        self.edge_count = 0
        self.control_count = 0
        self._charge = extraction.session.budget.charge(0, "the index of a graph")
        self._starts = array("Q", [0])  # where the inputs of each node begin in _sources
        self._colocated = array("I")  # pairs of nodes, one after the other: who, with whom
        self._loops = bytearray()
        self.placeholders = bytearray(self.total)
        self.consumed = bytearray(self.total)
        self._read()

    # -- making it ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        names, edges, colocated = array("q"), array("q"), array("q")
        with_whom = array("I")
        loops: list[int] = []
        self._account(0, 40)
        for ordinal, name, op, inputs, _, beside in self.nodes.rows():
            names.append(hash(name))
            if op not in self.operations:
                self._op_bytes += 120 + len(op)
                self.operations[op] = 0
            self.operations[op] += 1
            for text in inputs:
                edges.append(hash(source_name(text)))
                self.control_count += text[:1] == "^"
            self._starts.append(len(edges))
            for text in beside:
                with_whom.append(ordinal)
                colocated.append(hash(text))
            if op in PLACEHOLDERS:
                self.placeholders[ordinal] = 1
            elif op in _LOOPS:
                loops.append(ordinal)
            if not ordinal & 0xFFF:
                self._account(12 * len(edges) + 20 * len(colocated), 40)
        names.extend(map(hash, self.args))
        self.placeholders[self.count :] = b"\1" * len(self.args)
        self._hashes, self._ordinals = ranked(names)
        del names
        self.edge_count = len(edges)
        self._sources = self._resolve(edges)
        del edges
        self._colocated = array("I")
        for who, whom in zip(with_whom, self._resolve(colocated), strict=True):
            self._colocated.extend((who, whom))
        if loops:
            self._loops = bytearray(self.total)
            for ordinal in loops:
                self._loops[ordinal] = 1
        self._mark_consumed()
        self._account(4 * len(self._sources) + 4 * len(self._colocated), 24)
        self._find_faults()

    def _account(self, edges: int, per_node: int) -> None:
        self._charge.resize(per_node * self.total + edges + self._op_bytes)

    def _resolve(self, wanted: array[int]) -> array[int]:
        """Return the nodes with names of these hashes; the last of several, as TensorFlow does."""
        found = array("I")
        if len(wanted) <= _MANY_EDGES:
            for number in wanted:
                found.append(self._last(number))
            return found
        import numpy as np

        hashes = np.frombuffer(self._hashes, np.int64)
        ordinals = np.frombuffer(self._ordinals, np.uint32)
        if not len(hashes):
            return array("I", [NOBODY]) * len(wanted)
        everything = np.frombuffer(wanted, np.int64)
        for begin in range(0, len(wanted), _STEP):
            numbers = everything[begin : begin + _STEP]
            slots = np.maximum(np.searchsorted(hashes, numbers, side="right") - 1, 0)
            answer = np.where(hashes[slots] == numbers, ordinals[slots], np.uint32(NOBODY))
            found.frombytes(answer.astype(np.uint32).tobytes())
        return found

    def _last(self, number: int) -> int:
        slot = bisect_right(self._hashes, number) - 1
        return self._ordinals[slot] if slot >= 0 and self._hashes[slot] == number else NOBODY

    def _mark_consumed(self) -> None:
        for source in self._sources:
            if source != NOBODY:
                self.consumed[source] = 1

    # -- what is wrong -----------------------------------------------------------------------------------------------

    def _find_faults(self) -> None:
        """Record missing inputs and repeated names, whose texts are read again."""
        strangers, doubles = self._find_strangers(), self._find_doubles()
        if not strangers and not doubles:
            return
        for ordinal, name, _, inputs, _, _ in self.nodes.rows():
            if ordinal in doubles:
                self.note("duplicate-name", f"another node is also named {name!r}", ordinal)
            missing = inputs if ordinal in strangers else ()
            for text in missing:
                if self.ordinal(source_name(text)) is None:
                    self.note("missing-input", f"{name!r} consumes {text!r}, which does not exist", ordinal)
        for ordinal in sorted(doubles):
            if ordinal >= self.count:
                self.note("duplicate-name", f"a node is named like the argument {self.args[ordinal - self.count]!r}")

    def _find_strangers(self) -> set[int]:
        """Count the inputs that are not there; return nodes that have some, as many as findings are kept."""
        strangers: set[int] = set()
        limit = self.extraction.session.limits.findings
        ordinal = 0
        for edge, source in enumerate(self._sources):
            if source == NOBODY:
                ordinal = bisect_right(self._starts, edge, ordinal) - 1
                if len(strangers) < limit:
                    strangers.add(ordinal)
        return strangers

    def _find_doubles(self) -> set[int]:
        """Return nodes and arguments that have the name of another one, as many as findings are kept."""
        doubles: set[int] = set()
        limit = self.extraction.session.limits.findings
        for slot in range(1, len(self._hashes)):
            if self._hashes[slot] == self._hashes[slot - 1] and len(doubles) < limit:
                doubles.add(self._ordinals[slot])
        return doubles

    def note(self, code: str, reason: str, ordinal: int | None = None) -> None:
        """Record a fault of the graph, at one of its nodes."""
        node = self.nodes.node
        path = node.path if node is not None else ""
        if ordinal is not None:
            path = f"{path}[{ordinal}]"
        self.findings.add(Finding(code, reason, path=path, source=self.extraction.name))

    def cycles(self) -> Iterator[list[int]]:
        """Yield at most 100 cycles, as lists of nodes, each consuming the next; a loop by NextIteration does not count.

        Visits every node once, so it does not find all of several cycles through one node.
        """
        if self._sorted():
            return
        state = bytearray(self.total)  # 1: on the way, 2: done
        found = 0
        with self.extraction.session.budget.charge(17 * self.total, "searching for cycles in a graph"):
            for root in range(self.count):
                if state[root]:
                    continue
                way, places = array("I", [root]), array("Q", [self._starts[root]])
                state[root] = 1
                while way:
                    node, place = way[-1], places[-1]
                    if place >= self._starts[node + 1]:
                        state[node] = 2
                        way.pop()
                        places.pop()
                        continue
                    places[-1] = place + 1
                    source = self._sources[place]
                    if source >= self.count or state[source] == 2 or (self._loops and self._loops[source]):
                        continue
                    if state[source]:
                        yield way[way.index(source) :].tolist()
                        found += 1
                        if found >= _MAX_CYCLES:
                            return
                        continue
                    state[source] = 1
                    way.append(source)
                    places.append(self._starts[source])

    def _sorted(self) -> bool:
        """Return whether all nodes come after those they consume, which rules out cycles."""
        place = 0
        for node in range(self.count):
            stop = self._starts[node + 1]
            while place < stop:
                source = self._sources[place]
                if source >= node and source < self.count:
                    return False
                place += 1
        return True

    def find_cycles(self) -> None:
        """Record the cycles of the graph."""
        for cycle in self.cycles():
            shown = [self.nodes[number].name for number in cycle[:_SHOWN]]
            more = f" and {len(cycle) - _SHOWN} more" if len(cycle) > _SHOWN else ""
            reason = f"a cycle of {len(cycle)} nodes: {' consumes '.join(map(repr, shown))}{more}"
            self.note("cycle", reason, cycle[0])

    # -- asking it ---------------------------------------------------------------------------------------------------

    def ordinal(self, name: str) -> int | None:
        """Return the number of the node with this name (the last of several)."""
        found = self._last(hash(name))
        return None if found == NOBODY else found

    def ordinals(self, name: str) -> list[int]:
        """Return the numbers of all nodes with this name, in order."""
        wanted = hash(name)
        low, high = bisect_left(self._hashes, wanted), bisect_right(self._hashes, wanted)
        return self._ordinals[low:high].tolist()

    def reach(self, targets: Iterable[int], check: Callable[[], None]) -> bytearray:
        """Return a mark for each node that a target needs: through inputs, control inputs, or colocation."""
        marks = bytearray(self.total)
        waiting = array("I", targets)
        with self.extraction.session.budget.charge(5 * self.total, "the nodes of a subgraph"):
            while waiting:
                node = waiting.pop()
                if marks[node]:
                    continue
                marks[node] = 1
                if node >= self.count:
                    continue
                for source in self._sources[self._starts[node] : self._starts[node + 1]]:
                    if source != NOBODY and not marks[source]:
                        waiting.append(source)
                for source in self._beside(node):
                    if not marks[source]:
                        waiting.append(source)
        check()
        return marks

    def _beside(self, node: int) -> Iterator[int]:
        """Yield the nodes that a node should be colocated with."""
        low, high = 0, len(self._colocated) // 2
        while low < high:
            middle = (low + high) // 2
            if self._colocated[2 * middle] < node:
                low = middle + 1
            else:
                high = middle
        while 2 * low < len(self._colocated) and self._colocated[2 * low] == node:
            if self._colocated[2 * low + 1] != NOBODY:
                yield self._colocated[2 * low + 1]
            low += 1
