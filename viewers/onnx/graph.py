"""ONNX graphs for `pparse.graphs`: the main graph, bodies of nodes, functions, graphs of training (docs/IR.md).

Values have names. An input of a node is the name of a value: an output of another node, an input of the graph, an
initializer, or in a body a value of a graph around it, which the node with the body then *captures*. An empty name is
an optional input that is not given.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import islice

from pparse.display.text import few
from pparse.errors import UnsupportedError
from pparse.graphs.source import ListedGraph, Value
from pparse.parsers.onnx.parser import type_name
from pparse.tree.below import kids_of, text_at
from pparse.tree.index import KeyTable, key_hash
from pparse.viewers.onnx.places import initializer_names, read_row, rows_of, value_names
from pparse.viewers.tensor_proto.viewer import message_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Final

    from pparse.graphs.source import Row
    from pparse.limits import Charge
    from pparse.tree.node import Node
    from pparse.viewers.onnx.places import OnnxPlaces

# Lists of a graph whose elements give types of values.
_TYPED: Final = ("input", "output", "value_info")
# Memory of a name in a table of bodies.
_NAME_COST: Final = 250
_MAX_NESTING: Final = 32


class OnnxGraph(ListedGraph):
    """A GraphProto or FunctionProto; ``root`` is its node."""

    format = "ONNX"
    where = "domain"
    names_values = True

    def __init__(self, places: OnnxPlaces, root: Node, name: str = "", outer: OnnxGraph | None = None) -> None:
        super().__init__(places.parser.result.extraction, name)
        self.root = root
        self._places = places
        self.outer = outer
        self._is_function = root.kind == "onnx.FunctionProto"
        self.kind = "function" if self._is_function else "body" if name else "graph"
        self.elements = root.find("node")

    # -- nodes -------------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield a row for each NodeProto."""
        return rows_of(self._places, self.elements) if self.elements is not None else iter(())

    def row(self, ordinal: int) -> Row:
        """Return the row of one NodeProto."""
        return read_row(self._places, self.elements, ordinal, message_at(self.elements, ordinal)[0], None)

    def path_of(self, ordinal: int | None) -> str:
        """Return the path of a NodeProto, or of their list."""
        return super().path_of(ordinal) if self.elements is not None else self.root.path

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the AttributeProtos of a node by name."""
        return {text_at(kid, "name"): kid for kid in kids_of(self.node(ordinal).find("attribute"))}

    # -- values ------------------------------------------------------------------------------------------------------

    def inputs(self) -> Sequence[str]:
        """Return the inputs that have no initializer: in models of IR version 3 each initializer is an input, too."""
        return self._inputs

    @cached_property
    def _inputs(self) -> list[str]:
        names = self._names("input")
        wanted = set(names)
        stored = {name for name in initializer_names(self._places, self.root) if name in wanted} if names else ()
        return [name for name in names if name not in stored]

    def all_inputs(self) -> list[str]:
        """Return all inputs, those with initializers too."""
        return self._names("input")

    def constants(self) -> Iterator[str]:
        """Yield the names of the initializers, dense and sparse."""
        return initializer_names(self._places, self.root)

    def results(self) -> Mapping[str, str]:
        """Return the outputs."""
        return {name: name for name in self._names("output")}

    def _names(self, key: str) -> list[str]:
        keys = () if self._is_function else ("name",)  # those of a function are a list of texts
        return [text_at(kid, *keys) for kid in kids_of(self.root.find(key))]

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of a value: those of a ValueInfoProto, or of an initializer."""
        info = self.type_of(name)
        if info is not None:
            dtype, shape = _type_of(info.find("type"))
            return Value(name, dtype, shape)
        if self.kind != "graph" or ordinal is None or ordinal < len(self) + len(self.inputs()):
            return None
        tensor = self._places.maker.owner.find(name)
        return Value(name, tensor.type_name, tensor.shape) if tensor is not None else None

    def type_of(self, name: str) -> Node | None:
        """Return the node of the ValueInfoProto of a value; None if it has none."""
        for number in self._types[0].candidates(name):
            for kids in self._typed():
                if number < len(kids):
                    kid = kids.child(number)
                    if text_at(kid, "name") == name:
                        return kid
                    break
                number -= len(kids)
        return None

    @cached_property
    def _types(self) -> tuple[KeyTable, Charge]:
        """The ValueInfoProtos by the hash of their name."""
        table = KeyTable(key_hash(name) for kids in self._typed() for name in value_names(self._places, kids))
        return table, self.extraction.session.budget.charge(12 * table.covered, "the types of values")

    def _typed(self) -> Iterator[Node]:
        keys = ("value_info",) if self._is_function else _TYPED
        return (kids for key in keys if (kids := self.root.find(key)) is not None)

    # -- other graphs ------------------------------------------------------------------------------------------------

    def bodies(self) -> Mapping[str, OnnxGraph]:
        """Return functions, bodies of nodes at any depth, and graphs of training, by name; of the main graph only."""
        return OnnxBodies(self._places, self) if self.kind == "graph" else {}

    def functions(self) -> Mapping[str, OnnxGraph]:
        """Return the functions."""
        return OnnxBodies(self._places, self, functions=True) if self.kind == "graph" else {}

    # -- writing -----------------------------------------------------------------------------------------------------

    def notes_on_part(self, outputs: Sequence[str]) -> Iterator[str]:
        """Yield which outputs have no type, and where else the bytes of tensors are."""
        unknown = [name for name in self.output_names(outputs) if self.type_of(name) is None]
        if unknown:
            yield (
                f"the model states no type for {few(unknown)}: onnxruntime finds it out, onnx.checker refuses the file "
                "(run onnx.shape_inference on the model first)"
            )
        external = self._places.maker.external
        any(external for _ in self._places.maker.owner.tensors())  # up to the first that is in another file
        files = [name for name, _ in external]
        if files:
            yield f"bytes of tensors may be in {few(files)}: keep the part beside them"

    def output_names(self, outputs: Sequence[str]) -> list[str]:
        """Return the values that outputs mean: values, or the outputs of nodes; none: those of the graph."""
        if not outputs:
            return list(self.results())
        wanted = dict.fromkeys(outputs)
        labels = {
            row[1]: [name for name in row[6] or () if name]
            for row in self.rows()
            if row[1] in wanted and row[1] not in (row[6] or ())
        }
        return [name for output in outputs for name in labels.get(output, [output])]

    def write_part(
        self, marks: bytes | bytearray | None, outputs: Sequence[str], write: Callable[[bytes], object]
    ) -> int:
        """Write the marked nodes with what they need as a model; return the number of bytes."""
        if self.kind != "graph":
            raise UnsupportedError(f"the {self.kind} {self.name!r} cannot be written as a model of its own")
        from pparse.viewers.onnx.part import ModelPart

        return ModelPart(self, marks, outputs).write(write)


class OnnxBodies(Mapping[str, OnnxGraph]):
    """The functions and bodies of a model by name.

    ``domain.function``, ``LABEL.then_branch``, ``LABEL.body/INNER.body``, ``training[0].algorithm``.
    """

    def __init__(self, places: OnnxPlaces, main: OnnxGraph, *, functions: bool = False) -> None:
        self._places = places
        self._main = main
        self._functions = functions

    @cached_property
    def _paths(self) -> dict[str, str]:
        """The path of each, by name."""
        known: dict[str, str] = {}
        self._charge = self._main.extraction.session.budget.charge(0, "the names of bodies")
        room = 0
        for scope in self._places.roots() if self._functions else self._places.scopes():
            if scope.prefix and (not self._functions or scope.prefix[0] == "@"):
                name = scope.prefix.removeprefix("@").removesuffix("/")
                room += _NAME_COST + len(name) + len(scope.path)
                if not len(known) & 0xFF:
                    self._charge.resize(room)
                known.setdefault(name, scope.path)
        return known

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __getitem__(self, name: str) -> OnnxGraph:
        return self._at(name, self._paths[name])

    def _at(self, name: str, path: str) -> OnnxGraph:
        """Return the graph at a path, with the graphs around it."""
        outer: OnnxGraph | None = None
        around = ".attribute["
        cut = path.rfind(around)
        chain: list[str] = []
        while cut > 0:
            inner = path[:cut].rpartition(".node[")[0]
            chain.append(inner)
            cut = inner.rfind(around)
        for number, inner in enumerate(reversed(chain)):
            label = "" if inner == "graph" else name if number else inner
            outer = OnnxGraph(self._places, self._places.parser.result.root.at(inner), label, outer)
        return OnnxGraph(self._places, self._places.parser.result.root.at(path), name, outer)


def _type_of(node: Node | None) -> tuple[str, tuple[int | str | None, ...] | None]:
    """Return the element type of a TypeProto in words, and its shape; None: the rank is unknown."""
    words = ""
    for _ in range(_MAX_NESTING):
        if node is None:
            return words, None
        kind = next((kid for kid in node.children() if str(kid.key).endswith("_type")), None)
        if kind is None:
            return words, None
        key = str(kind.key)
        if key in ("tensor_type", "sparse_tensor_type"):
            word = _type_at(kind, "elem_type")
            sparse = "sparse " if key == "sparse_tensor_type" else ""
            return f"{words}{sparse}{word}", _shape_of(kind.find("shape"))
        if key == "map_type":
            words += f"map from {_type_at(kind, 'key_type')} to "
            node = kind.find("value_type")
        elif key == "opaque_type":
            return f"{words}opaque {text_at(kind, 'name')}", None
        else:
            words += f"{key.removesuffix('_type')} of "
            node = kind.find("elem_type")
    return words, None


def _type_at(node: Node, key: str) -> str:
    number = node.find(key)
    return type_name(int(number.load()) if number is not None else 0)


def _shape_of(node: Node | None) -> tuple[int | str | None, ...] | None:
    if node is None:
        return None
    sizes: list[int | str | None] = []
    for dim in islice(kids_of(node.find("dim")), 255):
        size, name = dim.find("dim_value"), dim.find("dim_param")
        sizes.append(int(size.load()) if size is not None else (str(name.load()) or None) if name is not None else None)
    return tuple(sizes)
