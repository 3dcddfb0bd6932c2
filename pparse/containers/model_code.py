"""Code that models name besides pickles: operators that reach out of a graph, or that a library must be loaded for, and
the classes in the configuration of a Keras model.

keras/src/saving/serialization_lib.py: an object is told by ``module`` and ``class_name``, a function by its ``config``;
both are imported. onnx.proto: operators outside of ONNX's own domains are those of whoever runs the model.
"""

from __future__ import annotations

from pparse.errors import DataError, PparseError
from pparse.tree.code_names import graded
from pparse.tree.code_use import CodeUse, Grade

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph

# Domains of ONNX itself, and of the operators that onnxruntime brings along.
_DOMAINS: Final = frozenset(
    (
        *("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft"),
        *("com.microsoft.nchwc", "com.ms.internal.nhwc", "com.microsoft.experimental"),
    )
)
# The most graphs of a model that are looked into, and bytes of a configuration.
_MOST_GRAPHS: Final = 64
_MOST_BYTES: Final = 64 << 20
_KERAS: Final = ("config.json", "model_config.json")


def code_of_graphs(document: Extraction) -> Iterator[CodeUse]:
    """Yield the operators of a model's graphs that are dangerous, or that nobody knows."""
    from pparse.document.registry import viewer_for

    found: dict[str, CodeUse] = {}
    try:
        viewer = viewer_for(document)
        if viewer is None or viewer.graph is None:
            return
        for number in range(_MOST_GRAPHS):
            graph = viewer.graph_of(number)
            for part in (graph, *graph.bodies.values()):
                _note_operators(part, found)
    except PparseError:  # there are no more, or the graph is not whole: `check` says why
        pass
    yield from found.values()


def _note_operators(graph: Graph, found: dict[str, CodeUse]) -> None:
    in_domains = graph.source.where == "domain"
    for ordinal, _, op, _, where, *_ in graph.rows():
        name = f"{where}.{op}" if in_domains and where not in _DOMAINS else f"graph.{op}"
        use = found.get(name)
        if use is None:
            if name.startswith("graph."):
                known = graded(name)
                if known.grade is not Grade.DANGEROUS:
                    continue
                use = CodeUse(op, 0, graph.nodes.at(ordinal).node.start, Grade.DANGEROUS, known.reason)
            else:
                reason = "an operator that is not ONNX's: a library must be loaded for it"
                use = CodeUse(name, 0, graph.nodes.at(ordinal).node.start, Grade.UNKNOWN, reason)
            found[name] = use
        use.count += 1


def code_of_configuration(name: str, document: Extraction) -> Iterator[CodeUse]:
    """Yield the classes and functions that the configuration of a Keras model names, which lies at ``name``."""
    if name.rpartition("::")[2].rpartition("/")[2] not in _KERAS or document.format != "json":
        return
    if document.find_end() - document.start > _MOST_BYTES:
        return
    try:
        config = document.root.to_python()
    except DataError:
        return
    found: dict[str, CodeUse] = {}
    waiting: list[Any] = [config]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
            _note_object(item, document, found)
        elif isinstance(item, list):
            waiting += item
    yield from found.values()


def _note_object(item: dict[str, Any], document: Extraction, found: dict[str, CodeUse]) -> None:
    module, kind, config = item.get("module"), item.get("class_name"), item.get("config")
    if not isinstance(kind, str) or "config" not in item:
        return
    is_function = kind == "function" and isinstance(config, str)
    words = str(config) if is_function else kind
    name = f"{module if isinstance(module, str) else 'keras'}.{words}"
    if kind == "__lambda__":
        name = "keras.Lambda"
    use = found.get(name)
    if use is None:
        known = graded(name, words)
        use = found[name] = CodeUse(name, 0, document.start, known.grade or Grade.UNKNOWN, known.reason)
    use.count += 1
