"""What a signature runs: a graph of TensorFlow 2 has a node that calls a function, which may only call another one."""

from __future__ import annotations

from itertools import islice

from pparse.errors import MissingNameError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.graphs.graph import Graph, GraphSelection

# How many functions that do nothing but call another are gone through.
_MOST_CALLS: Final = 16
# Operations that hand on what they get.
_PASSING: Final = ("Identity", "IdentityN", "NoOp")
# Operations that give what the model holds, besides those of `GraphSource.stored`.
_HELD: Final = ("Const",)


class Called:
    """The graph that a signature of a model runs."""

    __slots__ = ("captured", "graph")

    def __init__(self, graph: Graph, captured: dict[str, str]) -> None:
        self.graph = graph
        """The innermost function that does more than to call another; the main graph, if there is none."""
        self.captured = captured
        """Its arguments that are no inputs of the signature, but what the model holds: to the names of these nodes."""


def called_by(whole: Graph, signature: str) -> Called:
    """Return what a signature runs. Raises `MissingNameError` for one that the model does not have."""
    signatures = whole.signatures
    if signature not in signatures:
        raise MissingNameError("there is no signature of this name", path=signature, suggestions=tuple(signatures)[:3])
    found = Called(whole, {})
    part: Graph | GraphSelection = whole.subgraph([text for text in signatures[signature].outputs.values() if text])
    for _ in range(_MOST_CALLS):
        source = found.graph.source
        idle = {*_PASSING, *_HELD, *source.stored, *source.placeholders}
        doing = list(islice((row for row in part.rows() if row[2] not in idle), 2))
        name = source.called(doing[0][0]) if len(doing) == 1 else None
        if name is None or name not in whole.functions:
            break
        body = whole.bodies[name]
        found, part = Called(body, _captured(found, doing[0], body)), body
    return found


def _captured(caller: Called, call: Any, body: Graph) -> dict[str, str]:
    """Return which arguments of ``body`` a node that calls it fills with what the model holds."""
    source, arguments = caller.graph.source, list(body.arguments)
    given = [text for text in call[3] if not (source.control and text.startswith(source.control))]
    if len(given) != len(arguments):  # lists of arguments: which is which is not known
        return {}
    found: dict[str, str] = {}
    own = set(caller.graph.arguments)
    for argument, text in zip(arguments, given, strict=True):
        name = source.producer(text) or text
        number = caller.graph.index.ordinal(name)
        if name in own:
            if name in caller.captured:
                found[argument] = caller.captured[name]
        elif number is not None and source.row(number)[2] in (*_HELD, *source.stored):
            found[argument] = name
    return found
