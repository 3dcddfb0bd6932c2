"""Formats whose tensors are vectors of numbers in tables: MNN's networks, CatBoost's trees."""

from __future__ import annotations

from abc import abstractmethod
from math import prod

from pparse.findings import Finding
from pparse.parsers.flatbuffers.schema import SCALAR, VECTOR
from pparse.parsers.flatbuffers.table import Table
from pparse.tensors.dtype import DTYPES
from pparse.tensors.tensor import Tensor
from pparse.viewers.flatbuffers.table_graph import TableGraph
from pparse.viewers.flatbuffers.viewer import FlatBuffersViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.graphs.source import GraphSource
    from pparse.viewers.flatbuffers.table_graph import Read


class VectorsViewer(FlatBuffersViewer):
    """A mapping of names to the vectors of some tables: ``PREFIX.FIELD``."""

    @abstractmethod
    def tables_with(self) -> Iterator[tuple[str, Table]]:
        """Yield the tables whose vectors are tensors, with what their names begin with. Raises `DataError`."""

    def described(self) -> Iterator[tuple[str, Any]]:
        """Yield the vectors that are there."""
        for prefix, table in self.tables_with():
            for field in table.type.fields:
                item = field.type.item
                if field.type.what == VECTOR and item is not None and item.what == SCALAR and table.has(field.name):
                    name = self.name_of(prefix, table, field.name, item.name)
                    if name:
                        yield name, (table.type.name, table.at, field.name)

    def tensor_of(self, name: str, what: Any) -> Tensor:
        """Return the tensor of a vector."""
        kind, at, field = what
        table = Table(self.parser, self.parser.schema.type(kind), at)
        item = table.type.field(field).type.item
        start, count = table.place(field)
        dtype = DTYPES[item.name] if item is not None and item.name in DTYPES else DTYPES["int8"]
        shape = told = self.shape_of(table, field, count)
        if min(told, default=0) < 0 or prod(told) != count:
            shape = (count,)
        length = count * dtype.itemsize
        made = self.stored(Tensor, name, dtype, shape, start, length, dtype.name, length)
        if shape != told:
            where: Any = {"path": name, "source": self.extraction.name, "offset": table.at}
            made.doubt(Finding("bad-entry", f"{count:,} numbers for a shape of {told}", **where))
        return made

    def name_of(self, prefix: str, table: Table, field: str, kind: str) -> str:
        """Return what the tensor of a vector is called; nothing if it is none."""
        return f"{prefix}.{field}" if prefix else field

    def shape_of(self, table: Table, field: str, count: int) -> tuple[int, ...]:
        """Return the shape of a vector of so many numbers."""
        return (count,)


class CatboostViewer(VectorsViewer):
    """The splits, borders and leaves of a model."""

    def tables_with(self) -> Iterator[tuple[str, Table]]:
        """Yield the table of the trees, then the features that have borders or values."""
        trees = Table.root(self.parser).table("ObliviousTrees")
        if trees is None:
            return
        yield "", trees
        for kind in ("FloatFeatures", "OneHotFeatures", "CtrFeatures", "EstimatedFeatures"):
            for number, feature in enumerate(trees.tables(kind)):
                yield f"{kind}[{number}]", feature

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yield version, number of trees, and what the model was trained with."""
        root = Table.root(self.parser)
        yield "FormatVersion", root.text("FormatVersion")
        trees = root.table("ObliviousTrees")
        if trees is not None:
            yield "trees", trees.place("TreeSizes")[1]
            yield "ApproxDimension", trees.number("ApproxDimension")
        for pair in root.tables("InfoMap"):
            yield pair.text("Key"), pair.text("Value")


# Fields of a blob by the number of its type (alibaba/MNN schema/default/Tensor.fbs, Type.fbs).
_BLOBS: Final = ("float32s", "int32s", "int8s", "uint8s", "int64s")
_WEIGHTS: Final = ("float32", "int8", "uint8", "uint16")


class MnnViewer(VectorsViewer):
    """The weights of operators, ``OPERATOR.weight``, and constants under the name of their operator."""

    def tables_with(self) -> Iterator[tuple[str, Table]]:
        """Yield the parameters of each operator, with those of its quantisation."""
        for number, op in enumerate(Table.root(self.parser).tables("oplists")):
            name, main = op.text("name") or f"operator_{number}", op.table("main")
            if main is None:
                continue
            yield name, main
            for inner in ("quanParameter", "symmetricQuan"):
                if any(field.name == inner for field in main.type.fields) and (told := main.table(inner)) is not None:
                    yield f"{name}.{inner}", told

    def name_of(self, prefix: str, table: Table, field: str, kind: str) -> str:
        """Return the operator's name for a constant, ``OPERATOR.FIELD`` for weights; other numbers are its options."""
        if table.type.name == "Blob":
            return prefix if field in _BLOBS else ""
        return f"{prefix}.{field}" if kind in _WEIGHTS else ""

    def shape_of(self, table: Table, field: str, count: int) -> tuple[int, ...]:
        """Return the shape that a blob states, or that of a convolution's weights; else that of a vector."""
        if table.type.name == "Blob":
            return tuple(table.numbers("dims"))
        common = table.table("common") if table.type.name == "Convolution2D" and field == "weight" else None
        if common is None:
            return (count,)
        made, *window = (common.number(key) for key in ("outputCount", "kernelY", "kernelX"))
        return (made, count // max(1, made * prod(window)), *window)

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yield what the network says about itself."""
        root = Table.root(self.parser)
        for key in ("bizCode", "mnn_uuid"):
            yield key, root.text(key)
        yield "sourceType", root.word("sourceType")
        yield "outputName", list(root.texts("outputName"))
        yield "operators", sorted({op.word("type") for op in root.tables("oplists")})

    def graph_source(self, number: int) -> GraphSource | None:
        """Return the operators, the only graph."""
        root = Table.root(self.parser)
        return None if number or not root.references("oplists") else MnnGraph(self, root)


class MnnGraph(TableGraph):
    """The operators of a network; values are called as its list of names has them."""

    format = "MNN"
    where = "place"
    placeholders = ("Input",)

    def __init__(self, viewer: MnnViewer, root: Table) -> None:
        super().__init__(viewer, root, "oplists", ())
        self._names = list(root.texts("tensorName"))

    def read(self, element: Table) -> Read:
        """Return what an operator says."""
        sides = (element.numbers(key) for key in ("inputIndexes", "outputIndexes"))
        names = self._names
        inputs, outputs = ([names[at] if 0 <= at < len(names) else f"tensor_{at}" for at in side] for side in sides)
        return element.text("name"), element.word("type"), inputs, "", (), outputs

    def results(self) -> Mapping[str, str]:
        """Return the outputs."""
        return {} if self.table is None else {name: name for name in self.table.texts("outputName")}
