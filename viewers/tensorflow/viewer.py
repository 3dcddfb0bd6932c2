"""TensorFlow's protos as models: the constants of a SavedModel, MetaGraphDef or GraphDef, whole, in chunks or cut.

The weights of a TF2 SavedModel are in the checkpoint beside it; the proto has constants, signatures, collections and
assets. Reads only what is asked for.
"""

from __future__ import annotations

from pparse.errors import EndOfDataError, PathError, SourceError
from pparse.findings import Finding, Status
from pparse.lazy import lazy_pattern
from pparse.parsers.checkpoint.parser import INDEX_OF_VARIABLES
from pparse.parsers.cpb.parser import CHUNKS
from pparse.protos import schema as builtin_schema
from pparse.tree.below import kids_of
from pparse.viewers.tensor_proto.viewer import ProtoViewer
from pparse.viewers.tensorflow import meta
from pparse.viewers.tensorflow.constants import GRAPH, KINDS, META_GRAPH, SAVED_MODEL, Constants
from pparse.viewers.tensorflow.tensors import TensorflowMaker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Signature
    from pparse.tree.node import Node
    from pparse.viewers.tensorflow.meta import Asset, ConcreteFunction


# Names of constants by which variables are saved and restored: scopes of a Saver (tensorflow/python/training/saver.py),
# functions of an object's saver (tensorflow/python/checkpoint/functional_saver.py).
_SAVING: Final = lazy_pattern(r"save(_[0-9]+)?/|@__inference__traced_(save|restore)_")


class TensorflowViewer(ProtoViewer):
    """A mapping of names to the constants of a document; ``parser`` is its parser.

    A name that occurs again, for example in a second meta graph, becomes ``name#2``.
    """

    constants: Constants

    row_bytes = 3_200  # with the node that its bytes are in

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        misplaced = getattr(self.parser, "misplaced", lambda: None)  # a chunked proto has it
        self._maker = TensorflowMaker(self.source, self.parser.make, builtin_schema(), self, misplaced)
        self._maker.lost_content = self.root.kind == CHUNKS
        self.constants = Constants(self.parser, self._maker)

    @classmethod
    def applies(cls, parser: Any) -> bool:
        """Return whether a document of this parser holds a TensorFlow message: a ``.cpb`` may be of any type."""
        return parser.result.root.kind in KINDS

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Return the graph of meta graph ``number``."""
        from pparse.viewers.tensorflow.graph import tensorflow_graph

        return tensorflow_graph(self.root, meta_graph=number, max_nodes=max_nodes)

    def may_name(self, text: str) -> bool:
        """Return whether it has no bracket, and is no field that the message has, such as ``versions``.

        TensorFlow takes no node whose name has a bracket, and paths of nodes have them (``IsValidNodeName`` in
        tensorflow/core/framework/node_def_util.cc).
        """
        return "[" not in text and self.root.find(text) is None

    def rank(self, tensor: Tensor) -> int:
        """Return 1 for constants of the part of a graph that saves and restores variables, and for texts; else 0."""
        return int(tensor.is_text or _SAVING.match(tensor.name) is not None)

    # -- what the file says of itself --------------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the document says about itself: tags, versions, operations; for a SavedModel, per meta graph."""
        return meta.metadata_of(self.root)

    def meta_graphs(self) -> Iterator[Node]:
        """Yield the nodes of the meta graphs."""
        for node in self._roots():
            if node.kind == META_GRAPH:
                yield node
            elif node.kind == SAVED_MODEL:
                graphs = node.find("meta_graphs")
                yield from kids_of(graphs)

    def _roots(self) -> Iterator[Node]:
        """Yield the nodes of the messages that the document consists of."""
        root = self.root
        yield from root.children() if root.kind == CHUNKS else (root,)

    def graph_defs(self) -> Iterator[Node]:
        """Yield the nodes of the GraphDefs; for chunks without metadata, those that are there."""
        for base in self.constants.bases:
            if base.kind == GRAPH:
                yield self.root.at(base.path)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures by name (``name#2``: in a second meta graph), each read on demand."""
        return meta.NodeMapping(self.meta_graphs(), "signature_def", meta.signature_of)

    @property
    def functions(self) -> Mapping[str, list[ConcreteFunction]]:
        """The functions that a program may call, by name, with the ways to call each; of several meta graphs, all."""
        found: dict[str, list[ConcreteFunction]] = {}
        for graph in self.meta_graphs():
            for name, ways in meta.functions_of(graph):
                found.setdefault(name, []).extend(ways)
        return found

    def interface(self) -> list[dict[str, Any]]:
        """Return tags, signatures and functions of each meta graph."""
        return [
            {
                "tags": meta.tags_of(graph),
                "signatures": {found.name: found.to_dict() for found in meta.signatures_of(graph)},
                "functions": {name: [way.to_dict() for way in ways] for name, ways in meta.functions_of(graph)},
            }
            for graph in self.meta_graphs()
        ]

    def interface_lines(self) -> Iterator[tuple[str, str]]:
        """Yield labels and texts, a line for each input and output of signatures, and each way to call a function."""
        graphs = list(self.meta_graphs())
        for graph in graphs:
            where = f"  (tags: {', '.join(meta.tags_of(graph)) or 'none'})" if len(graphs) > 1 else ""
            for signature in meta.signatures_of(graph):
                yield "signature", f"{signature.name}{where}" + f"  {signature.method_name}".rstrip()
                yield from meta.sides_of(signature)
            for name, ways in meta.functions_of(graph):
                yield "function", f"{name}{where}"
                yield from (("  callable", str(way)) for way in ways)

    @property
    def collections(self) -> Mapping[str, Any]:
        """The collections by name, as lists of text, numbers or bytes; collections of variables as lists of dicts."""
        return meta.NodeMapping(self.meta_graphs(), "collection_def", meta.collection_of)

    @property
    def assets(self) -> list[Asset]:
        """The files that the graph needs, with the tensors that take their paths."""
        return [asset for graph in self.meta_graphs() for asset in meta.assets_of(graph)]

    def own_status(self) -> Status:
        """Return the status of the message; a SavedModel that ends before its first meta graph was cut."""
        status = super().own_status()
        if status is Status.COMPLETE and self.root.kind == SAVED_MODEL and self.root.find("meta_graphs") is None:
            reason = "the message ends before its first meta graph, and every SavedModel has one"
            self.findings.add(Finding("truncated", reason, source=self.source.name, offset=self.source.find_end()))
            return Status.TRUNCATED
        return status

    def why_unknown(self) -> str | None:
        """Return that a SavedModel was opened without its variables, though they lie beside it."""
        if all(node.kind != SAVED_MODEL for node in self._roots()):
            return None
        try:
            self.extraction.sibling(INDEX_OF_VARIABLES).find_end()
        except (SourceError, PathError, EndOfDataError):  # not there, or in a part that an archive lacks
            return None
        folder = self.extraction.path.rpartition("/")[0] or "."
        return f"the variables are in files beside {self.extraction.name}: open the folder, {folder}"

    def frames(self) -> Iterator[Node]:
        """Yield the nodes of the meta graphs and graphs."""
        yield from self.meta_graphs()
        yield from self.graph_defs()
