"""Models of ONNX Runtime: initializers, tensors among the attributes of nodes, and the graph.

Names are those of ONNX: an initializer has its own, of a sparse one ``NAME.values`` and ``NAME.indices`` are listed, a
tensor of an attribute is ``NODE.ATTRIBUTE`` (microsoft/onnxruntime core/flatbuffers/schema/ort.fbs).
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from math import prod

from pparse.errors import DataError
from pparse.findings import Status
from pparse.graphs.source import Value
from pparse.parsers.flatbuffers.table import SharedError, Table, Tally
from pparse.tensors.dtype import dtype_named
from pparse.tensors.tensor import Tensor
from pparse.tensors.text_tensor import TextTensor
from pparse.viewers.flatbuffers.table_graph import TableGraph, readable
from pparse.viewers.flatbuffers.viewer import FlatBuffersViewer, packed_size, shape_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.graphs.source import GraphSource
    from pparse.tree.node import Node
    from pparse.viewers.flatbuffers.table_graph import Read

_NAMES: Final = {"FLOAT": "float32", "DOUBLE": "float64"}
_TEXTS: Final = ("producer_name", "producer_version", "domain", "doc_string")
_NUMBERS: Final = ("ir_version", "model_version")
_TENSOR: Final = 4


class OrtViewer(FlatBuffersViewer):
    """A mapping of names to tensors."""

    def _graph(self) -> Table | None:
        return Table.root(self.parser).table("model", "graph")

    def described(self) -> Iterator[tuple[str, Any]]:
        """Yield the initializers, and the tensors of attributes."""
        graph = self._graph()
        if graph is None:
            return
        for number, reference in enumerate(graph.references("initializers")):
            try:
                tensor = graph.element("initializers", reference)
                yield tensor.text("name") or f"initializer_{number}", tensor.at
            except DataError as error:
                yield f"initializer_{number}", error
        for sparse in graph.tables("sparse_initializers"):
            for part in ("values", "indices"):
                found = sparse.table(part)
                if found is not None:
                    yield f"{_name_of_sparse(sparse)}.{part}", found.at
        tally = Tally(self.parser)
        for number, node in enumerate(graph.tables("nodes")):
            try:
                references = tally.of(node.references("attributes"))
            except SharedError as error:
                yield "attributes", error
                return
            for reference in references:
                attribute = node.element("attributes", reference)
                found = attribute.table("t") if attribute.number("type") == _TENSOR else None
                if found is not None:
                    yield f"{node.text('name') or f'node_{number}'}.{attribute.text('name')}", found.at

    def tensor_of(self, name: str, what: Any) -> Tensor:
        """Return the tensor at a place."""
        table = Table(self.parser, self.parser.schema.type("Tensor"), what)
        word, shape = table.word("data_type"), shape_of(table, "dims")
        dtype = dtype_named(word, _NAMES)
        if word == "STRING":
            start, count = table.place("string_data")
            made = self.stored(TextTensor, name, None, shape, start, 4 * count, word, 4 * prod(shape))
            made._listing = lambda: (text.encode() for text in table.texts("string_data")), None  # type: ignore[attr-defined]
            return made
        start, length = table.place("raw_data")
        if dtype is None:
            told = Status.UNSUPPORTED, "unsupported", f"elements of type {word} are none that can be read"
            return self.faulty(name, dtype, shape, word, told)
        if table.number("external_data_offset") >= 0 and not length:
            told = Status.UNSUPPORTED, "external", "its bytes are in a file beside the model"
            return self.faulty(name, dtype, shape, word, told)
        return self.stored(Tensor, name, dtype, shape, start, length, word, packed_size(dtype, shape))

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yield versions, producer, operator sets and properties."""
        root = Table.root(self.parser)
        yield "ort_version", root.text("ort_version")
        model = root.table("model")
        if model is None:
            return
        for key in _TEXTS:
            yield key, model.text(key)
        for key in _NUMBERS:
            yield key, model.number(key) or ""
        yield (
            "opset_imports",
            {one.text("domain") or "ai.onnx": one.number("version") for one in model.tables("opset_import")},
        )
        for one in model.tables("metadata_props"):
            yield f"metadata_props.{one.text('key')}", one.text("value")

    def graph_source(self, number: int) -> GraphSource | None:
        """Return the graph, the only one."""
        found = None if number else self._graph()
        return None if found is None else OrtGraph(self, found, "nodes", ("model", "graph"))


def _name_of_sparse(sparse: Table) -> str:
    values = sparse.table("values")
    return (values.text("name") if values is not None else "") or "sparse"


class OrtGraph(TableGraph):
    """The nodes of a model."""

    format = "the ORT format"
    where = "domain"

    def read(self, element: Table) -> Read:
        """Return what a node says."""
        inputs, outputs, beside = (list(element.texts(key)) for key in ("inputs", "outputs", "implicit_inputs"))
        try:
            domain = element.text("domain")
        except DataError:  # nodes share it, so a cut takes that of all
            domain = ""
        return element.text("name"), element.text("op_type"), inputs, domain, beside, outputs

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the attributes of a node by name."""
        found = self.node(ordinal).find("attributes")
        named = [] if found is None else [(kid.find("name"), kid) for kid in found.children()]
        return {str(name.load()): kid for name, kid in named if name is not None}

    def inputs(self) -> Sequence[str]:
        """Return the inputs that no initializer stands for."""
        stored = set(self.constants())
        return [name for name in readable(self.table, "inputs") if name not in stored]

    def constants(self) -> Iterator[str]:
        """Yield the names of the initializers."""
        yield from readable(self.table, "initializers", lambda tensor: tensor.text("name"))
        yield from readable(self.table, "sparse_initializers", _name_of_sparse)

    def results(self) -> Mapping[str, str]:
        """Return the outputs."""
        return {name: name for name in readable(self.table, "outputs")}

    @cached_property
    def _types(self) -> dict[str, Value]:
        """Types and shapes of values by name, as far as they can be read."""
        found: dict[str, Value] = {}
        with suppress(DataError):
            for info in () if self.table is None else self.table.tables("node_args"):
                value = info.table("type", "value")
                if value is not None and value.type.name == "TensorTypeAndShape":
                    word, shape = value.word("elem_type"), value.table("shape")
                    sizes = None if shape is None else tuple(map(_size_of, shape.tables("dim")))
                    name = info.text("name")
                    found[name] = Value(name, str(dtype_named(word, _NAMES) or word), sizes)
        return found

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of a value, as the model states them."""
        found = self._types.get(name)
        if found is None and (tensor := self.viewer.find(name)) is not None:
            found = Value(name, tensor.type_name, tensor.shape)
        return found


def _size_of(dimension: Table) -> int | str | None:
    told = dimension.table("value")
    if told is None:
        return None
    return told.number("dim_value") if told.word("dim_type") == "VALUE" else told.text("dim_param") or None
