"""Metadata of TensorFlow's protos: signatures, collections, assets."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from pparse.errors import PparseError
from pparse.parsers.protobuf.message import PASSING_OR_LIMIT
from pparse.protos import schema as builtin_schema
from pparse.viewers.tensor_proto.viewer import kids_of, node_at, value_at
from pparse.viewers.tensorflow.constants import GRAPH, META_GRAPH, SAVED_MODEL, count_of, functions_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final

    from pparse.tensors.dtype import DType
    from pparse.tree.node import Node

# The most elements of a list that are shown.
_MOST: Final = 10_000
# Lists of a MetaGraphDef of which the length is told, and as what.
_COUNTED: Final = {"signature_def": "signatures", "collection_def": "collections", "asset_file_def": "assets"}
# Collections whose bytes are VariableDefs (tensorflow/python/framework/ops.py, GraphKeys).
_VARIABLES: Final = frozenset(
    (
        "variables",
        "trainable_variables",
        "local_variables",
        "model_variables",
        "moving_average_variables",
        "global_step",
        "metric_variables",
        "saveable_objects",
        "concatenated_variables",
    )
)


def _scalars(node: Node | None, keys: Sequence[str]) -> dict[str, Any]:
    """Return the scalars at keys of a node, as far as they exist and can be read."""
    found = {key: value_at(node, key) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def _list_at(node: Node | None, *keys: str) -> list[Any]:
    """Return the scalars of a list, at most 10,000, as far as they can be read."""
    found: list[Any] = []
    try:
        for kid in islice(kids_of(node_at(node, *keys)), _MOST):
            found.append(kid.load())
    except PASSING_OR_LIMIT:
        raise
    except PparseError:
        pass
    return found


def metadata_of(root: Node) -> dict[str, Any]:
    """Return the metadata of a document as plain data."""
    if root.kind == SAVED_MODEL:
        found = _scalars(root, ("saved_model_schema_version",))
        found["meta_graphs"] = [_of_meta_graph(graph) for graph in kids_of(root.find("meta_graphs"))]
        return found
    if root.kind == META_GRAPH:
        return _of_meta_graph(root)
    return _of_graph(root) if root.kind == GRAPH else {}


def _of_meta_graph(graph: Node) -> dict[str, Any]:
    info = graph.find("meta_info_def")
    found: dict[str, Any] = {"tags": _list_at(info, "tags")}
    keys = ("meta_graph_version", "tensorflow_version", "tensorflow_git_version", "stripped_default_attrs")
    found.update(_scalars(info, keys))
    saver = graph.find("saver_def")
    if saver is not None:
        found["saver"] = _scalars(saver, ("version", "max_to_keep", "sharded"))
    ops = node_at(info, "stripped_op_list", "op")
    if ops is not None:
        found["stripped_ops"] = [value_at(op, "name", default="") for op in islice(kids_of(ops), _MOST)]
    inner = graph.find("graph_def")
    if inner is not None:
        found.update(_of_graph(inner))
    for key, label in _COUNTED.items():
        kids = graph.find(key)
        if kids is not None:
            found[label] = count_of(kids)
    return found


def _of_graph(graph: Node) -> dict[str, Any]:
    found = _scalars(graph.find("versions"), ("producer", "min_consumer"))
    bad = _list_at(graph, "versions", "bad_consumers")
    if bad:
        found["bad_consumers"] = bad
    found["nodes"] = count_of(graph.find("node"))
    functions = functions_of(graph)
    if functions is not None:
        found["functions"] = count_of(functions)
    return found


# -- signatures ------------------------------------------------------------------------------------------------------


class TensorInfo:
    """One argument or result of a signature."""

    __slots__ = ("dtype", "parts", "shape", "stored_dtype", "tensor")

    def __init__(
        self,
        tensor: str,
        dtype: DType | None,
        stored_dtype: str,
        shape: tuple[int, ...] | None,
        parts: dict[str, str],
    ) -> None:
        self.tensor = tensor
        """Name of the tensor (``node:output``)."""
        self.dtype = dtype
        """Element type; None if it is not a number."""
        self.stored_dtype = stored_dtype
        """The format's word for the type, such as DT_STRING."""
        self.shape = shape
        """Shape, with -1 for unknown dimensions; None if the rank is unknown."""
        self.parts = parts
        """Names of the tensors of a sparse or composite one."""

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        found: dict[str, object] = {
            "tensor": self.tensor,
            "dtype": self.dtype.name if self.dtype is not None else None,
            "stored_dtype": self.stored_dtype,
            "shape": list(self.shape) if self.shape is not None else None,
        }
        return {**found, "parts": self.parts} if self.parts else found

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape)) or "scalar" if self.shape is not None else "of unknown rank"
        return f"<TensorInfo {self.tensor!r} {self.dtype or self.stored_dtype} {shape}>"


class Signature:
    """How a model is called."""

    __slots__ = ("inputs", "method_name", "name", "outputs")

    def __init__(
        self, name: str, inputs: dict[str, TensorInfo], outputs: dict[str, TensorInfo], method_name: str
    ) -> None:
        self.name = name
        """Name of the signature."""
        self.inputs = inputs
        """Arguments by name."""
        self.outputs = outputs
        """Results by name."""
        self.method_name = method_name
        """The method that it describes."""

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        return {
            "inputs": {name: info.to_dict() for name, info in self.inputs.items()},
            "outputs": {name: info.to_dict() for name, info in self.outputs.items()},
            "method_name": self.method_name,
        }

    def __repr__(self) -> str:
        return f"<Signature {self.name!r}: {', '.join(self.inputs) or 'nothing'} -> {', '.join(self.outputs)}>"


def shape_of(node: Node | None) -> tuple[int, ...] | None:
    """Return the shape in a TensorShapeProto; None if the rank is unknown, or there is no shape."""
    if node is None or value_at(node, "unknown_rank", default=False):
        return None
    return tuple(int(value_at(dim, "size", default=0)) for dim in kids_of(node.find("dim")))


def tensor_info_of(node: Node) -> TensorInfo:
    """Return the content of a TensorInfo."""
    from pparse.viewers.tensorflow.element_types import dtype_of

    stored = value_at(node, "dtype", default="DT_INVALID")
    numbers = builtin_schema().enum("tensorflow.DataType").numbers
    number = stored if isinstance(stored, int) else numbers.get(stored, 0)
    parts: dict[str, str] = {}
    sparse = node.find("coo_sparse")
    if sparse is not None:
        for key in ("values", "indices", "dense_shape"):
            parts[key] = value_at(sparse, f"{key}_tensor_name", default="")
    for kid in islice(kids_of(node_at(node, "composite_tensor", "components")), _MOST):
        parts[str(kid.ordinal)] = value_at(kid, "name", default="")
    return TensorInfo(
        value_at(node, "name", default=""),
        dtype_of(number),
        stored if isinstance(stored, str) else f"DT_{stored}",
        shape_of(node.find("tensor_shape")),
        parts,
    )


def signature_of(name: str, node: Node) -> Signature:
    """Return the content of a SignatureDef."""
    sides = []
    for key in ("inputs", "outputs"):
        sides.append({str(kid.key): tensor_info_of(kid) for kid in kids_of(node.find(key))})
    return Signature(name, sides[0], sides[1], value_at(node, "method_name", default=""))


# -- collections and assets ------------------------------------------------------------------------------------------


def collection_of(name: str, node: Node) -> list[Any]:
    """Return the values of a CollectionDef; those that are VariableDefs as dicts."""
    for kid in kids_of(node):
        values = kid.find("value")
        if values is None:
            return []
        if kid.key == "any_list":
            return [value.to_python() for value in kids_of(values)]
        found = [value.load() for value in kids_of(values)]
        return [_variable(value, node) for value in found] if name in _VARIABLES and kid.key == "bytes_list" else found
    return []


def _variable(value: Any, node: Node) -> Any:
    """Return a serialized VariableDef as a dict; any other value unchanged."""
    from pparse.document.opening import open as open_document

    if not isinstance(value, bytes):
        return value
    try:
        options = {"message": "tensorflow.VariableDef"}
        with open_document(value, format="protobuf", options=options) as document:
            found = document.root.to_python()
            known = all(isinstance(key, str) for key in found)
            return found if known and "variable_name" in found else value
    except PASSING_OR_LIMIT:
        raise
    except PparseError:
        return value


class Asset:
    """A file that the graph needs."""

    __slots__ = ("filename", "tensor")

    def __init__(self, filename: str, tensor: str) -> None:
        self.filename = filename
        """Name of the file, in the folder ``assets``."""
        self.tensor = tensor
        """Name of the tensor that takes its path."""

    def __repr__(self) -> str:
        return f"<Asset {self.filename!r} for {self.tensor!r}>"


def assets_of(graph: Node) -> Iterator[Asset]:
    """Yield the assets of a meta graph."""
    for kid in kids_of(graph.find("asset_file_def")):
        yield Asset(value_at(kid, "filename", default=""), value_at(kid, "tensor_info", "name", default=""))


class NodeMapping(Mapping[str, "Any"]):
    """A map field of all meta graphs as a mapping; makes each value from its node on demand."""

    def __init__(self, graphs: Iterable[Node], field: str, make: Callable[[str, Node], Any]) -> None:
        self._make = make
        self._nodes: dict[str, Node] = {}
        for graph in graphs:
            for kid in kids_of(graph.find(field)):
                name, number = str(kid.key), 1
                shown = name
                while shown in self._nodes:
                    number += 1
                    shown = f"{name}#{number}"
                self._nodes[shown] = kid

    def __getitem__(self, name: str) -> Any:
        node = self._nodes[name]
        return self._make(str(node.key), node)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<{', '.join(self._nodes) or 'nothing'}>"
