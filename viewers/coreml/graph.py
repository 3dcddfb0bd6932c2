"""Graphs of Core ML for `pparse.graphs`: layers of a neural network, operations of an ML program, models of a pipeline.

Values have names. In a program each is made once; blocks in an operation (``cond``, ``while_loop``) take values around
them by name. In a neural network the networks in a layer do, and what they make is known behind the layer: ``copy``
layers in them fill values that the layer does not list, and such of before, around a loop
(apple/coremltools mlmodel/format/NeuralNetwork.proto, MIL.proto).

Bodies are called as tensors in them are: ``LAYER.bodyNetwork``, ``OUTPUT.blocks[0]``, ``MODEL``, and with ``/`` what is
in one of these; functions by their names.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from functools import cached_property

from pparse.errors import FaultError, UnsupportedError
from pparse.graphs.source import ListedGraph, Value
from pparse.tensors.dtype import dtype_named
from pparse.tree.below import kids_of, node_at, text_at, value_at
from pparse.tree.entry import SCALAR
from pparse.viewers.coreml.places import NETWORK, read_operation
from pparse.viewers.tensor_proto.viewer import message_at, messages_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, ClassVar, Final

    from pparse.graphs.source import Row
    from pparse.limits import Charge
    from pparse.parsers.protobuf.index import WireWindow
    from pparse.tree.node import Node
    from pparse.viewers.coreml.places import CoremlPlaces

    # Name, operation, inputs, outputs, and where bodies are below the node: paths by their labels.
    Read = tuple[str, str, Sequence[str], Sequence[str], Mapping[str, str]]

# Bodies in bodies; deeper ones are not gone into.
_MAX_NESTING: Final = 32
# Memory of a name, and of that of a body.
_NAME_COST: Final = 150
_BODY_COST: Final = 400
# The oneof of a layer begins at a number.
_LAYER_NAME, _LAYER_INPUT, _LAYER_OUTPUT, _KINDS = 1, 2, 3, 100


class CoremlGraph(ListedGraph):
    """The nodes in the list ``key`` of ``root``, a node of the tree; ``prefix`` is before the names of its tensors."""

    format = "Core ML"
    where = "domain"
    names_values = True
    key: ClassVar[str]
    fills: ClassVar[bool] = False
    """Whether bodies make values for what is behind their node."""

    def __init__(
        self,
        places: CoremlPlaces,
        root: Node,
        name: str = "",
        around: CoremlGraph | None = None,
        prefix: str = "",
        of: Node | None = None,
    ) -> None:
        """``of``: the model or function that it is of; None for a body, which takes values ``around`` it."""
        super().__init__(places.parser.result.extraction, name)
        self.places, self.root, self.prefix, self.of = places, root, prefix, of
        self.outer = around if of is None else None
        self.kind = "body" if around is not None else "graph"
        self.level: int = 0 if around is None else around.level + 1
        """In how many others it is."""
        found = root.find(self.key)
        self.elements = None if found is None or found.shape == SCALAR else found

    # -- nodes -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, ordinal: int, pieces: Any, near: WireWindow | None) -> Read:
        """Return what the message of a node says. Raises `FaultError`."""

    @abstractmethod
    def inner(self, node: Node, name: str) -> CoremlGraph:
        """Return the graph of a body at a node of the tree."""

    def rows(self) -> Iterator[Row]:
        """Yield a row for each node."""
        check = self.extraction.session.check_cancelled
        for ordinal, pieces, near in messages_of(self.elements):
            if not ordinal & 0xFFF:
                check()
            yield self._row(ordinal, pieces, near)

    def row(self, ordinal: int) -> Row:
        """Return the row of one node."""
        return self._row(ordinal, *message_at(self.elements, ordinal))

    def _row(self, ordinal: int, pieces: Any, near: WireWindow | None) -> Row:
        name, op, inputs, outputs, bodies = self._read(ordinal, pieces, near)
        beside, more = self._bodied.get(ordinal, ((), ())) if bodies else ((), ())
        return ordinal, name, op, inputs, "", beside, [*outputs, *more]

    @cached_property
    def _bodied(self) -> dict[int, tuple[list[str], list[str]]]:
        """What bodies of a node take from around them, and make that none before it does, by the number of the node."""
        found: dict[int, tuple[list[str], list[str]]] = {}
        made, used = {*self.inputs()}, {*self.results()}
        self._charge: Charge = self.extraction.session.budget.charge(0, "the names of values")
        names = 0
        for ordinal, pieces, near in messages_of(self.elements):
            name, _, inputs, outputs, bodies = self._read(ordinal, pieces, near)
            used.update(inputs)
            made.update(outputs)
            if bodies:
                taken, filled = _ends(self.bodies_at(ordinal, name, bodies).values())
                more = [name for name in filled if name not in made] if self.fills else []
                made.update(more)
                used.update(taken)
                found[ordinal] = list(taken), more
                names += len(taken) + len(more)
            if not ordinal & 0xFF:
                self._charge.resize(_NAME_COST * (names + len(made) + len(used)))
        self._charge.resize(_NAME_COST * names)
        for _, more in found.values() if not self.level else ():  # else what is around it may use them
            more[:] = [name for name in more if name in used]
        return found

    def _read(self, ordinal: int, pieces: Any, near: WireWindow | None) -> Read:
        try:
            return self.read(ordinal, pieces, near)
        except FaultError:
            return f"[{ordinal}]", "unreadable", (), (), {}

    def path_of(self, ordinal: int | None) -> str:
        """Return the path of a node in the tree, or of their list."""
        return super().path_of(ordinal) if self.elements is not None else self.root.path

    # -- values ------------------------------------------------------------------------------------------------------

    def _described(self, side: str) -> dict[str, Node]:
        return {text_at(kid, "name"): kid for kid in kids_of(node_at(self.of, "description", side))}

    def inputs(self) -> Sequence[str]:
        """Return the inputs of the model; a body has none."""
        return list(self._described("input"))

    def results(self) -> Mapping[str, str]:
        """Return the outputs of the model; a body has none."""
        return {name: name for name in self._described("output")}

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of an input or output of the model, as its description has them."""
        node = self._described("input").get(name) or self._described("output").get(name)
        if node is None:
            return None
        info = self.places.maker.owner.feature(node)
        return Value(name, str(info.dtype or info.stored_dtype), info.shape)

    # -- other graphs ------------------------------------------------------------------------------------------------

    def bodies(self) -> Mapping[str, CoremlGraph]:
        """Return functions, bodies of nodes at any depth, and the graphs of models in a pipeline; of the main graph."""
        return {} if self.level else self._all_bodies

    @cached_property
    def _all_bodies(self) -> dict[str, CoremlGraph]:
        known: dict[str, CoremlGraph] = {}
        self._bodies_charge = self.extraction.session.budget.charge(0, "the bodies of a graph")
        waiting = [self.inside(), self.others()]
        while waiting:
            graph = next(waiting[-1], None)
            if graph is None:
                waiting.pop()
            elif graph.name not in known:
                known[graph.name] = graph
                self._bodies_charge.resize(_BODY_COST * len(known))
                waiting.append(graph.inside())
        return known

    def others(self) -> Iterator[CoremlGraph]:
        """Yield the functions besides this one."""
        return iter(())

    def inside(self) -> Iterator[CoremlGraph]:
        """Yield the bodies of its nodes."""
        for ordinal, pieces, near in messages_of(self.elements):
            name, *_, bodies = self._read(ordinal, pieces, near)
            yield from self.bodies_at(ordinal, name, bodies).values()

    def bodies_at(self, ordinal: int, name: str, paths: Mapping[str, str]) -> dict[str, CoremlGraph]:
        """Return the bodies of a node, by their labels."""
        if not paths or self.level == _MAX_NESTING:
            return {}
        node, around = self.node(ordinal), f"{self.name}/" if self.kind != "graph" else ""
        found: dict[str, CoremlGraph] = {}
        for label, path in paths.items():
            root = node.at(path) if path else node
            with suppress(UnsupportedError):  # a model without anything in it
                if root.shape != SCALAR:
                    found[label] = self.inner(root, around + name + (f".{label}" if label else ""))
        return found


class LayerGraph(CoremlGraph):
    """A NeuralNetwork, of a model, or in a layer."""

    key = "layers"
    fills = True
    loops = ("copy",)

    def read(self, ordinal: int, pieces: Any, near: WireWindow | None) -> Read:
        """Return what a layer says."""
        places = self.places
        layer = places.message(pieces, "NeuralNetworkLayer", near)
        name = str(places.text(layer, _LAYER_NAME) or f"layers[{ordinal}]")
        inputs, outputs = (places.texts(layer, number) for number in (_LAYER_INPUT, _LAYER_OUTPUT))
        number = next((number for number in layer.fields if number >= _KINDS), 0)
        field = layer.type.fields.get(number)
        if field is None or field.message is None:
            return name, f"layer {number}" if number else "nothing", inputs, outputs, {}
        known = [one.name for one in field.message.fields.values() if one.type_name == NETWORK]
        there = layer.message(number) if known else None
        bodies = [one for one in known if there is not None and there.type.by_name[one].number in there.fields]
        return name, field.name, inputs, outputs, {label: f"{field.name}.{label}" for label in bodies}

    def inner(self, node: Node, name: str) -> LayerGraph:
        """Return the graph of a network in a layer."""
        return LayerGraph(self.places, node, name, self, self.prefix)

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the parameters of a layer."""
        node = self.node(ordinal)
        kind = node.find(self.row(ordinal)[2])
        return {str(kid.key): kid for kid in kids_of(kind)}

    def results(self) -> Mapping[str, str]:
        """Return the outputs of the model; of a classifier, not those that it computes of what a layer makes."""
        found = {**super().results()}
        if self.root.key == "neuralNetworkClassifier" and self.of is not None:
            for key in ("predictedFeatureName", "predictedProbabilitiesName"):
                found.pop(text_at(self.of, "description", key), None)
            name = text_at(self.root, "labelProbabilityLayerName")
            if name or not found:
                last = name or next(iter(self.row(len(self) - 1)[6] or ()), "") if len(self) else ""
                found |= {last: last} if last else {}
        return found


class BlockGraph(CoremlGraph):
    """A Block: what a function of an ML program runs, or one in an operation."""

    key = "operations"

    def __init__(self, *known: Any, **more: Any) -> None:
        super().__init__(*known, **more)
        self.kind = "function" if self.of is not None and self.level else self.kind

    def _operation(self, pieces: Any, near: WireWindow | None) -> Any:
        return read_operation(self.places, pieces, near, self.prefix)

    def read(self, ordinal: int, pieces: Any, near: WireWindow | None) -> Read:
        """Return what an operation says; a value in it is called as its tensor."""
        found = self._operation(pieces, near)
        inputs = [name or found.name_of(label) for label, name in found.inputs]
        blocks = {f"blocks[{number}]": f"blocks[{number}]" for number in range(len(found.blocks))}
        return found.label, found.type, inputs, found.outputs, blocks

    def inner(self, node: Node, name: str) -> BlockGraph:
        """Return the graph of a block in an operation."""
        return BlockGraph(self.places, node, name, self, self.prefix)

    def attributes(self, ordinal: int) -> dict[str, Node]:
        """Return the attributes of an operation, and what its inputs are bound to, by their names."""
        node = self.node(ordinal)
        return {str(kid.key): kid for key in ("inputs", "attributes") for kid in kids_of(node.find(key))}

    def _named(self) -> Iterator[Node]:
        return kids_of((self.root if self.of is None else self.of).find("inputs"))

    def inputs(self) -> Sequence[str]:
        """Return the inputs of the function or block."""
        return [text_at(kid, "name") for kid in self._named()]

    def constants(self) -> Iterator[str]:
        """Yield the names of the tensors in inputs of operations."""
        for _, pieces, near in messages_of(self.elements):
            found = self._operation(pieces, near)
            yield from (found.name_of(label) for label, name in found.inputs if not name)

    def results(self) -> Mapping[str, str]:
        """Return the outputs."""
        names = map(text_at, kids_of(self.root.find("outputs")))
        return {name: name for name in names}

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of a value, as what makes it says, or of a tensor."""
        made = kids_of(self.node(ordinal).find("outputs")) if ordinal is not None and ordinal < len(self) else iter(())
        for kid in (*made, *self._named()):
            if text_at(kid, "name") == name:
                return Value(name, *_type_of(kid.find("type")))
        tensor = self.places.maker.owner.find(name) if ordinal is not None else None
        return None if tensor is None else Value(name, tensor.type_name, tensor.shape)

    def others(self) -> Iterator[CoremlGraph]:
        """Yield the functions besides this one."""
        own = self.of
        for function in kids_of(None if own is None else own.parent):
            if own is not None and function.key != own.key and (block := block_of(function)) is not None:
                name = str(function.key)
                yield BlockGraph(self.places, block, name, self, prefix_of(function), function)


class PartGraph(CoremlGraph):
    """A Pipeline: its models, one after the other."""

    key = "models"

    def read(self, ordinal: int, pieces: Any, near: WireWindow | None) -> Read:
        """Return name and kind of a model, and its inputs and outputs."""
        node = self.node(ordinal)
        kind = self.places.maker.owner.kind_of(node)
        described = (kids_of(node_at(node, "description", side)) for side in ("input", "output"))
        inputs, outputs = ([text_at(kid, "name") for kid in kids] for kids in described)
        name = text_at(self.root, "names", ordinal) or f"models[{ordinal}]"
        key = "nothing" if kind is None else str(kind.key)
        return name, key, inputs, outputs, {"": ""} if key in _WITH_GRAPHS else {}

    def inner(self, node: Node, name: str) -> CoremlGraph:
        """Return the graph of a model."""
        return graph_in(self.places, node, name, self, f"{name}/")


def block_of(function: Node) -> Node | None:
    """Return the block of a function that its operator set names, the first of several others."""
    blocks = function.find("block_specializations")
    found = None if blocks is None else blocks.find(text_at(function, "opset"))
    return found or next(kids_of(blocks), None)


def prefix_of(function: Node) -> str:
    """Return what is before the names of tensors in a function."""
    return "" if function.key == "main" else f"{function.key!s}/"


_PIPELINES: Final = ("pipeline", "pipelineClassifier", "pipelineRegressor")
_NETWORKS: Final = ("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor")
_WITH_GRAPHS: Final = ("mlProgram", *_PIPELINES, *_NETWORKS)


def graph_in(
    places: CoremlPlaces, model: Node, name: str = "", around: CoremlGraph | None = None, prefix: str = ""
) -> CoremlGraph:
    """Return the graph of a Model. Raises `UnsupportedError` if its kind has none."""
    kind: Node | None = places.maker.owner.kind_of(model)
    key = "" if kind is None or kind.shape == SCALAR else str(kind.key)
    if key in _NETWORKS and kind is not None:
        return LayerGraph(places, kind, name, around, prefix, model)
    pipeline = kind if key == "pipeline" else node_at(kind, "pipeline") if key in _PIPELINES else None
    if pipeline is not None:
        return PartGraph(places, pipeline, name, around, prefix, model)
    functions = node_at(kind, "functions") if key == "mlProgram" else None
    wanted = text_at(model, "description", "defaultFunctionName") or "main"
    function = None if functions is None else functions.find(wanted) or next(kids_of(functions), None)
    block = None if function is None else block_of(function)
    if function is not None and block is not None:
        return BlockGraph(places, block, name, around, prefix + prefix_of(function), function)
    what = "a model" if kind is None else f"a model of the kind {kind.key!s}"
    where = " in it" if key in _WITH_GRAPHS else ""
    raise UnsupportedError(f"{places.maker.extraction.name}: {what} has no graph{where}")


def _type_of(node: Node | None) -> tuple[str, tuple[int | None, ...] | None]:
    """Return the type of a ValueType in words, and its shape, of which an unknown length is None."""
    words = ""
    for _ in range(_MAX_NESTING):
        kind = next(kids_of(node), None)
        key = "" if kind is None else str(kind.key)
        if kind is None or key not in ("tensorType", "listType", "stateType"):
            return words + key.removesuffix("Type"), None
        if key == "tensorType":
            sizes = [kid.find("constant") for kid in kids_of(kind.find("dimensions"))]
            shape = tuple(None if size is None else value_at(size, "size", default=0) for size in sizes)
            word = text_at(kind, "dataType")
            return words + str(dtype_named(word) or word.lower()), shape
        words += f"{key.removesuffix('Type')} of "
        node = kind.find("type" if key == "listType" else "wrappedType")
    return words, None


def _ends(bodies: Iterable[CoremlGraph]) -> tuple[dict[str, None], dict[str, None]]:
    """Return the names that bodies take from around them, and those of what they make, in order."""
    taken: dict[str, None] = {}
    filled: dict[str, None] = {}
    for body in bodies:
        made = {*body.inputs(), *body.constants()}
        for _, _, _, inputs, _, beside, outputs in body.rows():
            taken |= {name: None for name in (*inputs, *beside) if name and name not in made}
            made.update(outputs or ())
            filled |= dict.fromkeys(outputs or ())
        taken |= {name: None for name in body.results() if name not in made}
    return taken, filled
