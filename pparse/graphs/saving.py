"""Which nodes of a graph only save and restore its variables: a model is easier to read without them.

They are those whose operation says so, or that the format names; what consumes one of them; and what nobody else
consumes. Variables stay, and what they hold.
"""

from __future__ import annotations

from array import array

from pparse.graphs.index import NOBODY, SAVING, STORED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.graphs.index import GraphIndex


def saving_nodes(index: GraphIndex) -> bytearray:
    """Return a mark for each node that only saves and restores; nothing if there is none."""
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
    with index.extraction.session.budget.charge(
        18 * index.total + 4 * len(sources), "the nodes of a graph that save and restore"
    ):
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
