"""Which node of a graph is which, and which consumes which: arrays of numbers, no object per node.

Nodes are numbers: first those of the list, then the inputs that are no nodes, then the stored constants. Names are
kept as 64-bit hashes, 12 to 16 bytes each; two different names share one with a chance of 1 in 2^64.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import chain

from pparse.errors import LimitError
from pparse.findings import Finding, FindingList
from pparse.tree.index import ranked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Final

    from pparse.graphs.source import GraphSource

NOBODY: Final = 0xFFFFFFFF
_MANY_EDGES: Final = 50_000
_STEP: Final = 1 << 16
_MAX_CYCLES: Final = 100
_SHOWN: Final = 8
# What the operation of a node says of it.
PLACEHOLDER: Final = 1
LOOP: Final = 2
SAVING: Final = 3
STORED: Final = 4
# Bytes of a name while the index is made, and in it, with what is kept for a node.
_MAKING: Final = 40
_EACH: Final = 24


def _roles_of(source: GraphSource) -> dict[str, int]:
    kinds = (PLACEHOLDER, source.placeholders), (LOOP, source.loops), (SAVING, source.saving), (STORED, source.stored)
    return {op: role for role, ops in kinds for op in ops}


class NameTable:
    """Hashes of names in ascending order, each with the number of the node that has it; equal ones in their order.

    ``owners`` are the nodes that make values of these names, ``ports`` say which of its outputs each is.
    """

    __slots__ = ("_hashes", "_numbers", "_ports")

    def __init__(self, hashes: array[int], owners: array[int] | None = None, ports: array[int] | None = None) -> None:
        self._hashes, self._numbers = ranked(hashes)
        self._ports = ports
        if owners is not None and ports is not None:  # else the first name is that of node 0, and so on
            self._ports = array("I", map(ports.__getitem__, self._numbers))
            self._numbers = array("I", map(owners.__getitem__, self._numbers))

    def __len__(self) -> int:
        return len(self._hashes)

    def last(self, name: int) -> int:
        """Return the number for a hash, the last of several as TensorFlow does; `NOBODY` if there is none."""
        slot = bisect_right(self._hashes, name) - 1
        return self._numbers[slot] if slot >= 0 and self._hashes[slot] == name else NOBODY

    def port(self, name: int) -> int:
        """Return which output of its node a value is; `last` found it."""
        return self._ports[bisect_right(self._hashes, name) - 1] if self._ports is not None else 0

    def all(self, name: int) -> list[int]:
        """Return all numbers for a hash, in order."""
        low, high = bisect_left(self._hashes, name), bisect_right(self._hashes, name)
        return self._numbers[low:high].tolist()

    def resolve(self, wanted: array[int]) -> array[int]:
        """Return what `last` returns for each of many hashes."""
        found = array("I")
        if len(wanted) <= _MANY_EDGES:
            found.extend(map(self.last, wanted))
            return found
        import numpy as np

        hashes = np.frombuffer(self._hashes, np.int64)
        numbers = np.frombuffer(self._numbers, np.uint32)
        if not len(hashes):
            return array("I", [NOBODY]) * len(wanted)
        everything = np.frombuffer(wanted, np.int64)
        for begin in range(0, len(wanted), _STEP):
            names = everything[begin : begin + _STEP]
            slots = np.maximum(np.searchsorted(hashes, names, side="right") - 1, 0)
            answer = np.where(hashes[slots] == names, numbers[slots], np.uint32(NOBODY))
            found.frombytes(answer.astype(np.uint32).tobytes())
        return found

    def repeated(self) -> Iterator[int]:
        """Yield the numbers that come after another one with the same name."""
        for slot in range(1, len(self._hashes)):
            if self._hashes[slot] == self._hashes[slot - 1]:
                yield self._numbers[slot]


class GraphIndex:
    """Names, edges and operations of one graph.

    ``outside`` says whether a name is one of an enclosing graph. Raises `LimitError` above ``max_nodes``, or if the
    budget has no room.
    """

    def __init__(self, source: GraphSource, max_nodes: int, outside: Callable[[str], bool]) -> None:
        self.source = source
        self.extraction = source.extraction
        self.max_nodes = max_nodes
        self.count = len(source)
        self.arguments = source.inputs()
        self.edge_count = 0
        self.control_count = 0
        self.operations: dict[str, int] = {}
        session = self.extraction.session
        self.findings = FindingList(session.limits.findings)
        self._op_bytes = 0
        self._charge = session.budget.charge(0, "the index of a graph")
        self.input_starts = array("Q", [0])
        """Where the inputs of each node begin in `input_numbers`, and where the last ones end."""
        self._beside = array("I"), array("I")  # who, in ascending order, and whom it needs besides
        self.first_constant = self.total = self.count + len(self.arguments)
        """The number of the first constant, and how many nodes, arguments and constants there are."""
        self._check_count()
        self._roles = bytearray(self.count)
        self._read(outside)

    # -- making it ---------------------------------------------------------------------------------------------------

    def _check_count(self) -> None:
        if self.total > self.max_nodes:
            what = "nodes, inputs and stored values" if self.source.names_values else "nodes"
            option = f"--max-nodes {self.total}"
            raise LimitError(f"the graph has {self.total} {what}", option=option, wanted=self.total, got=self.max_nodes)

    def _read(self, outside: Callable[[str], bool]) -> None:  # noqa: C901 -- hot loop: calls would cost a third
        self._account(self.total, 0, _MAKING)
        source, starts, operations = self.source, self.input_starts, self.operations
        names, edges, needed = array("q"), array("q"), array("q")  # hashes; the last: of what is needed besides inputs
        owners, ports, needing = array("I"), array("I"), array("I")  # who makes a value, as which output; who needs it
        producer, mark, special = source.producer, source.control, _roles_of(source)
        by_value = source.names_values
        for ordinal, name, op, inputs, _, beside, outputs in source.rows():
            if by_value:
                for port, value in enumerate(outputs or ()):
                    if value:  # or it is omitted
                        names.append(hash(value))
                        owners.append(ordinal)
                        ports.append(port)
            else:
                names.append(hash(name))
            for text in inputs:
                wanted = producer(text)
                if wanted is not None:
                    edges.append(hash(wanted))
            if mark:
                self.control_count += sum(text.startswith(mark) for text in inputs)
            starts.append(len(edges))
            for text in beside:
                needing.append(ordinal)
                needed.append(hash(text))
            if op not in operations:
                self._op_bytes += 120 + len(op)
                operations[op] = 0
            operations[op] += 1
            if op in special:
                self._roles[ordinal] = special[op]
            if not ordinal & 0xFFF:
                edge_bytes = 12 * len(edges) + 20 * len(needed)  # with room to look them up
                self._account(max(self.total, len(names)), edge_bytes, _MAKING)
        self._add_values(names)
        if by_value:
            owners.extend(range(self.count, self.total))
            ports.extend(array("I", bytes(4 * (self.total - self.count))))
            self._table = NameTable(names, owners, ports)
        else:
            self._table = NameTable(names)
        self.edge_count = len(edges) + (len(needed) if by_value else 0)
        self.input_numbers = self._table.resolve(edges)
        """The numbers of what the nodes consume, one node after the other; `NOBODY` for what does not exist."""
        del names, owners, ports, edges
        for who, whom in zip(needing, self._table.resolve(needed), strict=True):
            if whom != NOBODY:
                self._beside[0].append(who)
                self._beside[1].append(whom)
        self.consumed = bytearray(self.total)
        captured = self._beside[1] if by_value else ()  # by bodies
        for number in chain(self.input_numbers, captured):
            if number != NOBODY:
                self.consumed[number] = 1
        self._account(max(self.total, len(self._table)), 4 * len(self.input_numbers) + 8 * len(self._beside[0]), _EACH)
        self._find_faults(outside)

    def _add_values(self, names: array[int]) -> None:
        """Number the inputs and constants, which are no nodes."""
        names.extend(map(hash, self.arguments))
        for name in self.source.constants():
            names.append(hash(name))
            self.total += 1
            if not self.total & 0xFFF:
                self._check_count()
                self._account(max(self.total, len(names)), 12 * self.input_starts[-1], _MAKING)
        self._check_count()
        self._roles += bytes([PLACEHOLDER]) * len(self.arguments)
        self._roles += bytes(self.total - len(self._roles))

    def _account(self, names: int, edges: int, per_name: int) -> None:
        self._charge.resize(per_name * names + edges + self._op_bytes)

    # -- what is wrong -----------------------------------------------------------------------------------------------

    def _find_faults(self, outside: Callable[[str], bool]) -> None:
        """Record missing inputs and results, and repeated names, whose texts are read again."""
        for finding in self.source.findings():
            self.findings.add(finding)
        limit = self.extraction.session.limits.findings
        doubles = {number for number, _ in zip(self._table.repeated(), range(limit), strict=False)}
        strangers = self._find_strangers() if self.source.is_whole else bytearray()
        if doubles or strangers:
            self._describe(doubles, strangers, outside)
        for name, text in {**self.source.results(), **self.source.control_results()}.items():
            wanted = self.source.producer(text)
            if wanted is None or (self.ordinal(wanted) is None and not outside(wanted)):
                self.note("missing-input", f"the result {name!r} is {text!r}, which does not exist")

    def _describe(self, doubles: set[int], strangers: bytearray, outside: Callable[[str], bool]) -> None:
        producer = self.source.producer
        for ordinal, name, _, inputs, _, _, outputs in self.source.rows():
            if ordinal in doubles:
                self._note_double(ordinal, name, outputs)
            for text in inputs if strangers and strangers[ordinal] else ():
                wanted = producer(text)
                if wanted is not None and self.ordinal(wanted) is None and not outside(wanted):
                    self.note("missing-input", f"{name!r} consumes {text!r}, which does not exist", ordinal)
        for ordinal in sorted(doubles):
            if self.count <= ordinal < self.first_constant:
                named = self.arguments[ordinal - self.count]
                what = "a node makes" if self.source.names_values else "a node is named like"
                argument = "argument" if self.source.kind == "function" else "input"
                self.note("duplicate-name", f"{what} the {argument} {named!r}")
        if doubles and max(doubles) >= self.first_constant:
            for ordinal, named in enumerate(self.source.constants(), self.first_constant):
                if ordinal in doubles:
                    self.note("duplicate-name", f"the constant {named!r} is also something else")

    def _note_double(self, ordinal: int, name: str, outputs: Sequence[str] | None) -> None:
        """Record that a node has the name of another one, or makes values that exist already."""
        if outputs is None:
            self.note("duplicate-name", f"another node is also named {name!r}", ordinal)
        for value in outputs or ():
            found = self._table.all(hash(value)) if value else []
            if len(found) > 1 and (found[0] != ordinal or found[1] == ordinal):
                self.note("duplicate-name", f"{name!r} makes {value!r}, which exists already", ordinal)

    def _find_strangers(self) -> bytearray:
        """Mark the nodes that consume what is not there; empty if there is none."""
        strangers = bytearray()
        ordinal = 0
        for edge, source in enumerate(self.input_numbers):
            if source == NOBODY:
                strangers = strangers or bytearray(self.count)
                ordinal = bisect_right(self.input_starts, edge, ordinal) - 1
                strangers[ordinal] = 1
        return strangers

    def note(self, code: str, reason: str, ordinal: int | None = None) -> None:
        """Record a fault of the graph, at one of its nodes."""
        self.findings.add(Finding(code, reason, path=self.source.path_of(ordinal), source=self.extraction.name))

    def cycles(self) -> Iterator[list[int]]:
        """Yield at most 100 cycles, as lists of nodes, each consuming the next; those that close a loop do not count.

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
                way, places = array("I", [root]), array("Q", [self.input_starts[root]])
                state[root] = 1
                while way:
                    node, place = way[-1], places[-1]
                    if place >= self.input_starts[node + 1]:
                        state[node] = 2
                        way.pop()
                        places.pop()
                        continue
                    places[-1] = place + 1
                    source = self.input_numbers[place]
                    if source >= self.count or state[source] == 2 or self._roles[source] == LOOP:
                        continue
                    if state[source]:
                        yield way[way.index(source) :].tolist()
                        found += 1
                        if found >= _MAX_CYCLES:
                            return
                        continue
                    state[source] = 1
                    way.append(source)
                    places.append(self.input_starts[source])

    def _sorted(self) -> bool:
        """Return whether all nodes come after those they consume, which rules out cycles."""
        starts, numbers, count = self.input_starts, self.input_numbers, self.count
        return not any(at <= source < count for at in range(count) for source in numbers[starts[at] : starts[at + 1]])

    def find_cycles(self) -> None:
        """Record the cycles of the graph."""
        for cycle in self.cycles():
            shown = [self.source.row(number)[1] for number in cycle[:_SHOWN]]
            more = f" and {len(cycle) - _SHOWN} more" if len(cycle) > _SHOWN else ""
            reason = f"a cycle of {len(cycle)} nodes: {' consumes '.join(map(repr, shown))}{more}"
            self.note("cycle", reason, cycle[0])

    # -- asking it ---------------------------------------------------------------------------------------------------

    @cached_property
    def labels(self) -> NameTable:
        """The names of nodes; a table of its own, made on first use, if values have names, too."""
        if not self.source.names_values:
            return self._table
        self._label_charge = self.extraction.session.budget.charge(_MAKING * self.count, "the names of nodes")
        labels = NameTable(array("q", (hash(row[1]) for row in self.source.rows())))
        self._label_charge.resize(12 * self.count)
        return labels

    def with_role(self, role: int) -> bytes:
        """Return a mark for each node whose operation says ``role`` of it."""
        return bytes(self._roles.translate(bytes(number == role for number in range(256))))

    @property
    def placeholders(self) -> bytes:
        """A mark for each input, and each node that waits for one."""
        return self.with_role(PLACEHOLDER)

    @cached_property
    def saving(self) -> bytearray:
        """A mark for each node that only saves and restores values; found on first use. Empty if there is none."""
        return _saving_nodes(self)

    def ordinal(self, name: str) -> int | None:
        """Return the number of the node that has this name, or makes the value of this name (the last of several)."""
        found = self._table.last(hash(name))
        return None if found == NOBODY else found

    def port(self, name: str) -> int | None:
        """Return which output of its node the value ``name`` is; None if it is that of no node."""
        return self._table.port(hash(name)) if self._table.last(hash(name)) < self.count else None

    def ordinals(self, name: str) -> list[int]:
        """Return the numbers of all nodes with this name, or that make a value of this name, in order."""
        return self._table.all(hash(name))

    def named(self, name: str) -> list[int]:
        """Return the numbers of the nodes with this name, in order; not those of inputs and constants."""
        return [number for number in self.labels.all(hash(name)) if number < self.count]

    def reach(self, targets: Iterable[int], check: Callable[[], None]) -> bytearray:
        """Return a mark for each node that a target needs: through inputs, control inputs, or what it needs beside."""
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
                inputs = self.input_numbers[self.input_starts[node] : self.input_starts[node + 1]]
                for number in chain(inputs, self.beside(node)):
                    if number != NOBODY and not marks[number]:
                        waiting.append(number)
        check()
        return marks

    def beside(self, node: int) -> Iterator[int]:
        """Yield the nodes that a node needs besides its inputs."""
        who, whom = self._beside
        yield from whom[bisect_left(who, node) : bisect_right(who, node)]


# -- what only saves and restores: a model is easier to read without it -----------------------------------------------


def _saving_nodes(index: GraphIndex) -> bytearray:
    """Return a mark for each node that only saves and restores variables; nothing if there is none.

    They are those whose operation says so, or that the format names; what consumes one of them; and what nobody else
    consumes. Variables stay, and what they hold.
    """
    marks = bytearray(index.with_role(SAVING))
    for text in index.source.saver():
        name = index.source.producer(text)
        number = index.ordinal(name) if name else None
        if number is not None and number < index.count:
            marks[number] = 1
    if 1 not in marks:
        return bytearray()
    stored = index.with_role(STORED)
    sources = index.input_numbers
    room = 18 * index.total + 4 * len(sources)
    with index.extraction.session.budget.charge(room, "the nodes of a graph that save and restore"):
        consumers, firsts = _consumers(index)
        waiting = array("I", (number for number in range(index.count) if marks[number]))
        while waiting:
            node = waiting.pop()
            for consumer in consumers[firsts[node] : firsts[node + 1]]:
                if not marks[consumer] and not stored[consumer]:
                    marks[consumer] = 1
                    waiting.append(consumer)
        index.extraction.session.check_cancelled()
        left = array("I", (firsts[node + 1] - firsts[node] for node in range(index.count)))
        waiting = array("I", (number for number in range(index.count) if marks[number]))
        while waiting:
            node = waiting.pop()
            for source in sources[index.input_starts[node] : index.input_starts[node + 1]]:
                if source >= index.count:
                    continue
                left[source] -= 1
                if not left[source] and not marks[source] and not stored[source]:
                    marks[source] = 1
                    waiting.append(source)
    return marks


def _consumers(index: GraphIndex) -> tuple[array[int], array[int]]:
    """Return the consumers of all nodes, one node after the other, and where those of each begin."""
    firsts = array("I", bytes(4 * (index.total + 1)))
    sources, starts = index.input_numbers, index.input_starts
    for source in sources:
        if source != NOBODY:
            firsts[source + 1] += 1
    for number in range(index.total):
        firsts[number + 1] += firsts[number]
    places = array("I", firsts)
    consumers = array("I", bytes(4 * firsts[-1]))
    for node in range(index.count):
        for source in sources[starts[node] : starts[node + 1]]:
            if source != NOBODY:
                consumers[places[source]] = node
                places[source] += 1
    return consumers, firsts
