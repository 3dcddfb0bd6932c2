"""Inputs and outputs of a graph with their types and shapes, for `graph` and `info`."""

from __future__ import annotations

from itertools import islice

from pparse.display.text import safe
from pparse.errors import PASSING, PparseError
from pparse.findings import Status
from pparse.graphs.graph import Graph
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from pparse.graphs.graph import Selection
    from pparse.tensors.viewer import Viewer

# The most names that are shown.
SHOWN: Final = 20
# The most inputs or outputs that are described in JSON.
MOST: Final = 1_000
# `info` looks at the inputs and outputs of graphs up to this many nodes.
_NODES: Final = 20_000


def inputs_of(graph: Graph, part: Graph | Selection) -> Iterable[str]:
    """Return the names of the inputs that a graph, or a part of it, needs."""
    return graph.inputs if isinstance(part, Graph) else graph.inputs.only(part.marks)


def outputs_of(graph: Graph, part: Graph | Selection) -> Iterable[str]:
    """Return the names of the outputs of a graph or of what is shown of it; of a subgraph, those asked for."""
    if isinstance(part, Graph) or (part.wanted is None and graph.source.names_values):
        return graph.outputs
    return graph.unconsumed.only(part.marks) if part.wanted is None else part.wanted


def typed(graph: Graph, name: str) -> str:
    """Return a name with type and shape, as far as they are known."""
    value = graph.value(name)
    return safe(str(value) if value is not None else name)


def listed(shown: list[str], count: int) -> str:
    """Return the first of ``count`` things as text."""
    more = f" … {count - len(shown):,} more" if count > len(shown) else ""
    return (", ".join(shown) or "none") + more


def typed_names(graph: Graph, names: Iterable[str]) -> str:
    """Return names with their types as text; the first 20."""
    shown: list[str] = []
    count = 0
    for name in names:
        count += 1
        if count <= SHOWN:
            shown.append(typed(graph, name))
    return listed(shown, count)


# -- in `info` -------------------------------------------------------------------------------------------------------


def graph_words(viewer: Viewer) -> list[tuple[str, str]]:
    """Return what `info` says of the graph of a model, if it has one that can be read: labels and texts."""
    graph = _graph_of(viewer)
    if graph is None:
        return []
    facts = [("graph", count_words(graph.node_count, "node"))]
    if graph.node_count <= _NODES:
        part = graph.visible
        lost = viewer.root.status is Status.TRUNCATED
        for label, names in (("inputs", inputs_of(graph, part)), ("outputs", outputs_of(graph, part))):
            words = typed_names(graph, names)
            facts.append((label, "not known: the file is cut before them" if lost and words == "none" else words))
    return facts


def graph_facts(viewer: Viewer) -> dict[str, object] | None:
    """Return the same as plain data; inputs and outputs are None in a graph of too many nodes."""
    graph = _graph_of(viewer)
    if graph is None:
        return None
    facts: dict[str, object] = {"node_count": graph.node_count, "inputs": None, "outputs": None}
    if graph.node_count <= _NODES:
        part = graph.visible
        for label, ends_of in (("inputs", inputs_of), ("outputs", outputs_of)):
            facts[label] = [described(graph, name) for name in islice(ends_of(graph, part), MOST)]
    return facts


def _graph_of(viewer: Viewer) -> Graph | None:
    """Return the graph of a model; None if there is none, or it cannot be read (`graph` tells why)."""
    try:
        graph: Graph | None = viewer.graph
        if graph is not None and graph.node_count <= _NODES:
            _ = graph.index
    except PASSING:
        raise
    except PparseError:
        return None
    return graph


def described(graph: Graph, name: str) -> dict[str, object]:
    """Return name, type and shape as plain data."""
    value = graph.value(name)
    return value.to_dict() if value is not None else {"name": name, "dtype": None, "shape": None}
