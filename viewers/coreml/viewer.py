"""Core ML models: weights of neural networks, values of ML programs, in the message or in a file beside it."""

from __future__ import annotations

from itertools import islice

from pparse.document.opening import Resume
from pparse.errors import FaultError, PathError
from pparse.findings import Finding, Status
from pparse.protos import schema as builtin_schema
from pparse.tensors.dtype import DTYPES
from pparse.tensors.viewer import Signature, TensorInfo
from pparse.tree.below import kids_of, node_at, value_at
from pparse.tree.entry import SCALAR
from pparse.tree.index import meant_by_name
from pparse.viewers.coreml.meanings import Meanings
from pparse.viewers.coreml.places import CoremlPlaces
from pparse.viewers.coreml.tensors import ValueMaker
from pparse.viewers.tensor_proto.external import ExternalViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph
    from pparse.tensors.scales import Quantisation
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node

# The most entries of a list that `metadata` has.
_MOST: Final = 10_000
# Types of arrays that are called otherwise elsewhere (FeatureTypes.proto).
_ARRAYS: Final = {"DOUBLE": "float64"}


class CoremlViewer(ExternalViewer):
    """A mapping of names to the tensors of a model; see `pparse.viewers.coreml.places` for the names."""

    constants: CoremlPlaces

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        maker = ValueMaker(self.source, self.parser.make, builtin_schema(), self)
        self.external = maker.external
        self.constants = CoremlPlaces(self.parser, maker)
        self._meanings = Meanings(self.constants)

    def quantisation(self, tensor: Tensor) -> Quantisation | None:
        """Return how codes are meant: by scales and biases, a table, or the operation of a program that has them."""
        place = meant_by_name(tensor.name, self.constants.find)
        return None if place is None else self._meanings.of(tensor, place)

    def codes_with(self, tensor: Tensor) -> Tensor | None:
        """Return the codes of a program that a tensor belongs to, as a scale, a table or a mask."""
        place = meant_by_name(tensor.name, self.constants.find)
        name = None if place is None else self._meanings.codes_with(place)
        return None if name is None else self.find(name)

    def files_beside(self) -> Iterator[tuple[str, Extraction]]:
        """Yield the files with weights that are there, by their names in the folder of the model, or of the package."""
        folder, slash, _ = ("" if self.source is self.extraction else self.source.name).rpartition("/")
        for name, file in super().files_beside():
            yield folder + slash + name, file

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added: of a message made of a text, where that ends."""
        found = super().close_extent(extent)
        if self.source is not self.extraction and self.source.implicit:
            text: Extraction = self.parser.model_file()  # type: ignore[attr-defined]
            there = text.find_end() - text.start
            if found.document_status is Status.TRUNCATED and not self._lacking():
                found.actual, found.expected, found.resume_at, found.resume_file = there, there + 1, there, text.name
                found.resume = [Resume(self.extraction.path_beside(text.name), there)]
        return found

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Return the graph: of the network, of the first function of the program, of the models in a pipeline."""
        from pparse.graphs.graph import Graph
        from pparse.viewers.coreml.graph import graph_in

        if number:
            raise PathError(f"{self.extraction.name}: a Core ML model has one main graph", path="graph")
        return Graph(graph_in(self.constants, self.root), max_nodes)

    def is_bookkeeping(self, tensor: Tensor) -> bool:
        """Return whether it is a text: those of programs are modes of operations, such as ``valid``."""
        return tensor.is_text

    @property
    def _kind(self) -> Node | None:
        return self.kind_of(self.root)

    @staticmethod
    def kind_of(model: Node) -> Node | None:
        """Return the field of a model that says which kind of model it is."""
        known = (kid for kid in model.children() if kid.key not in ("specificationVersion", "description"))
        return next((kid for kid in known if kid.key != "isUpdatable"), None)

    def own_status(self) -> Status:
        """Return the status of the message; one without the field that is the model itself was cut before that."""
        status = super().own_status()
        kind = self._kind
        if status is not Status.COMPLETE or (kind is not None and not isinstance(kind.key, int)):
            return status
        if kind is None:
            status, code, at = Status.TRUNCATED, "truncated", self.source.find_end()
            reason = "the message ends before the field that is the model, and every model has one"
        else:
            status, code, at = Status.UNSUPPORTED, "unsupported", kind.start
            reason = f"the model is field {kind.key!s}, a kind that pparse does not know"
        self.findings.add(Finding(code, reason, source=self.source.name, offset=at))
        return status

    def frames(self) -> Iterator[Node]:
        """Yield the nodes of what the model consists of: a network, the functions and blocks of a program, models."""
        kind = self._kind
        if kind is None:
            return
        yield kind
        yield from kids_of(kind.find("layers"))
        for function in kids_of(kind.find("functions")):
            yield function
            yield from kids_of(function.find("block_specializations"))
        pipeline = kind.find("pipeline") or kind
        yield from kids_of(pipeline.find("models"))

    # -- what the file says of itself ----------------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the model says about itself: version, kind, author and the like, what its user added, class labels."""
        root = self.root
        found: dict[str, Any] = {"specificationVersion": value_at(root, "specificationVersion")}
        kind = self._kind
        found["kind"] = None if kind is None else str(kind.key)
        told = node_at(root, "description", "metadata")
        for kid in kids_of(told):
            if kid.shape == SCALAR:
                found[str(kid.key)] = value_at(kid)
        for kid in islice(kids_of(None if told is None else told.find("userDefined")), _MOST):
            found["userDefined." + str(kid.key)] = value_at(kid)
        opsets = [
            str(block.key)
            for function in kids_of(None if kind is None else kind.find("functions"))
            for block in kids_of(function.find("block_specializations"))
        ]
        if opsets:
            found["opsets"] = sorted(set(opsets))
        return {key: value for key, value in found.items() if value not in (None, "")}

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """How the model is called: its features by name, one signature for each function that the description names."""
        found: dict[str, Signature] = {}
        description = self.root.find("description")
        functions = list(islice(kids_of(None if description is None else description.find("functions")), _MOST))
        for node in functions or ([] if description is None else [description]):
            name = str(value_at(node, "name", default="") or "main")
            inputs, outputs = (self._features(node, side) for side in ("input", "output"))
            if inputs or outputs:
                found[name] = Signature(name, inputs, outputs, "")
        return found

    def _features(self, node: Node | None, side: str) -> dict[str, TensorInfo]:
        try:
            features = list(islice(kids_of(None if node is None else node.find(side)), _MOST))
            return {info.tensor: info for info in map(self.feature, features)}
        except FaultError:
            return {}

    @staticmethod
    def feature(node: Node) -> TensorInfo:
        """Return what a FeatureDescription says."""
        name = str(value_at(node, "name", default=""))
        type = node_at(node, "type")
        kind = next((kid for kid in kids_of(type) if str(kid.key).endswith("Type")), None)
        word = "" if kind is None else str(kind.key).removesuffix("Type")
        dtype, shape = None, None
        if kind is not None and word == "multiArray":
            word = str(value_at(kind, "dataType", default=""))
            dtype = DTYPES.get(_ARRAYS.get(word, word.lower()))
            shape = tuple(value_at(size, default=-1) for size in islice(kids_of(kind.find("shape")), _MOST)) or None
        elif kind is not None and word == "image":
            word = f"image {value_at(kind, 'colorSpace', default='')}".strip()
            shape = tuple(value_at(kind, side, default=0) for side in ("height", "width"))
        return TensorInfo(name, dtype, word, shape, {})
