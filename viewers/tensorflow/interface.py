"""How a model is called, for `pparse info`: signatures and functions, as ``saved_model_cli show --all`` tells them."""

from __future__ import annotations

from itertools import islice

from pparse.display.text import shape_words
from pparse.viewers.tensor_proto.viewer import kids_of
from pparse.viewers.tensorflow.functions import functions_of
from pparse.viewers.tensorflow.meta import signature_of, value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

    from pparse.tree.node import Node
    from pparse.viewers.tensorflow.meta import Signature, TensorInfo

# The most signatures of a meta graph.
_MOST: Final = 10_000


def interface_of(meta_graphs: Iterable[Node]) -> list[dict[str, Any]]:
    """Return, for each meta graph, its tags, signatures and functions as plain data."""
    return [
        {
            "tags": tags_of(graph),
            "signatures": {found.name: found.to_dict() for found in signatures_of(graph)},
            "functions": {name: [way.to_dict() for way in ways] for name, ways in functions_of(graph)},
        }
        for graph in meta_graphs
    ]


def interface_lines(meta_graphs: Iterable[Node]) -> Iterator[tuple[str, str]]:
    """Yield the lines of `pparse info`: labels and texts, a line for each input, output, and way to call."""
    graphs = list(meta_graphs)
    for graph in graphs:
        where = f"  (tags: {', '.join(tags_of(graph)) or 'none'})" if len(graphs) > 1 else ""
        for signature in signatures_of(graph):
            yield "signature", f"{signature.name}{where}" + f"  {signature.method_name}".rstrip()
            yield from _sides(signature)
        for name, ways in functions_of(graph):
            yield "function", f"{name}{where}"
            for way in ways:
                yield "  callable", str(way)


def signatures_of(graph: Node) -> Iterator[Signature]:
    """Yield the signatures of a meta graph, in the order of names."""
    found = list(islice(kids_of(graph.find("signature_def")), _MOST))
    for node in sorted(found, key=lambda node: str(node.key)):
        yield signature_of(str(node.key), node)


def tags_of(graph: Node) -> list[str]:
    """Return the tags of a meta graph."""
    info = graph.find("meta_info_def")
    return [str(value_at(kid, default="")) for kid in kids_of(info.find("tags") if info is not None else None)]


def _sides(signature: Signature) -> Iterator[tuple[str, str]]:
    for label, side in (("  input", signature.inputs), ("  output", signature.outputs)):
        for name, info in sorted(side.items()):
            yield label, f"{name}  {_type(info)}  {info.tensor or ', '.join(info.parts.values())}"


def _type(info: TensorInfo) -> str:
    dtype = info.dtype.name if info.dtype is not None else info.stored_dtype
    if info.shape is None:
        return f"{dtype} of unknown rank"
    return f"{dtype} {shape_words(['?' if size == -1 else size for size in info.shape])}"
