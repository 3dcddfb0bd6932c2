"""Where a Core ML model has tensors, what they are called, and which shape weights have.

Names::

    LAYER.field          weights of a neural network, by the path of the field in the layer: conv1.weights
    LAYER.field/NAME     in a network that is a field of a layer: loop.bodyNetwork/conv1.weights
    OUTPUT               the value of a const operation of an ML program, by the name of its output
    OUTPUT.attribute     other attributes and values in inputs of operations
    FUNCTION/NAME        in a function of a program that is not called main
    MODEL/NAME           in a model of a pipeline: its name there, or models[0]
"""

from __future__ import annotations

from collections import namedtuple
from functools import cached_property
from itertools import islice
from math import prod

from pparse.data.base import Range
from pparse.errors import FaultError, LimitError, MalformedError
from pparse.findings import Finding, Severity
from pparse.kernels.wire import LEN, PADDING, fields
from pparse.parsers.coreml import FIRST_KIND
from pparse.parsers.protobuf.message import Message
from pparse.protos import schema as builtin_schema
from pparse.viewers.coreml.tensors import HOLDS_WEIGHTS, IMMEDIATE, TENSOR_TYPE, TYPE, WeightMaker
from pparse.viewers.tensor_proto.maker import has_too_many, numbers
from pparse.viewers.tensor_proto.viewer import TensorPlace, TensorPlaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.parsers.protobuf.index import WireWindow
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.protobuf.schema import MessageType
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.coreml.tensors import ValueMaker

# -- shapes of weights -------------------------------------------------------------------------------------------------

# By the kind of layer and the field: the fields of the layer that tell the lengths, outermost first. ``*`` before a
# field: all of its numbers; ``/``: divided by the field behind it, if that is set (NeuralNetwork.proto).
_SHAPES: Final = {
    "convolution.weights": "outputChannels kernelChannels *kernelSize",
    "convolution.bias": "outputChannels",
    "convolution3d.weights": "outputChannels inputChannels/nGroups kernelDepth kernelHeight kernelWidth",
    "convolution3d.bias": "outputChannels",
    "innerProduct.weights": "outputChannels inputChannels",
    "innerProduct.bias": "outputChannels",
    "batchedMatmul.weights": "weightMatrixSecondDimension weightMatrixFirstDimension",
    "batchedMatmul.bias": "weightMatrixSecondDimension",
    "embedding.weights": "outputChannels inputDim",
    "embedding.bias": "outputChannels",
    "embeddingND.weights": "embeddingSize vocabSize",
    "embeddingND.bias": "embeddingSize",
    **{f"batchnorm.{field}": "channels" for field in ("gamma", "beta", "mean", "variance")},
    "loadConstant.data": "*shape",
    "loadConstantND.data": "*shape",
    "scale.scale": "*shapeScale",
    "scale.bias": "*shapeBias",
    "bias.bias": "*shape",
    "layerNormalization.gamma": "*normalizedShape",
    "layerNormalization.beta": "*normalizedShape",
}
# Of a layer that turns a convolution around.
_TURNED: Final = {
    "convolution.weights": "kernelChannels outputChannels/nGroups *kernelSize",
    "convolution3d.weights": "inputChannels outputChannels/nGroups kernelDepth kernelHeight kernelWidth",
}
# Of recurrent layers, by how the name of the field ends.
_RECURRENT: Final = {
    "eightMatrix": "outputVectorSize inputVectorSize",
    "ecursionMatrix": "outputVectorSize outputVectorSize",
    "Vector": "outputVectorSize",
}
_KERNEL: Final = (3, 3)
_MOST_LENGTHS: Final = 8


def shape_of(kind: str, path: str, layer: Message) -> tuple[int, ...] | None:
    """Return the shape of the weights at ``path`` in a layer of a ``kind``; None if the layer does not tell it."""
    key = f"{kind}.{path}"
    told = _TURNED.get(key) if is_turned(layer) else None
    told = told or _SHAPES.get(key)
    if told is None and "outputVectorSize" in layer.type.by_name:
        told = next((words for end, words in _RECURRENT.items() if path.endswith(end)), None)
    if told is None:
        return None
    shape: list[int] = []
    for word in told.split():
        name, _, divisor = word.lstrip("*").partition("/")
        field = layer.type.by_name[name]
        if word[0] == "*":
            found = list(islice(numbers(layer, field.number), _MOST_LENGTHS))
            shape += found or (_KERNEL if name == "kernelSize" else ())
        else:
            shape.append(int(layer.scalar(field.number)))
        if divisor:
            shape[-1] //= max(1, int(layer.scalar(layer.type.by_name[divisor].number)))
    found_shape = tuple(shape)
    return None if min(shape, default=0) < 0 or has_too_many(found_shape) or not prod(shape) else found_shape


def is_turned(layer: Message) -> bool:
    """Return whether a layer turns a convolution around, so that the channels of its output come second."""
    field = layer.type.by_name.get("isDeconvolution")
    return field is not None and bool(layer.scalar(field.number))


# -- places ------------------------------------------------------------------------------------------------------------

_SPEC: Final = "CoreML.Specification."
_MODEL, _LAYER, _WEIGHTS = f"{_SPEC}Model", f"{_SPEC}NeuralNetworkLayer", f"{_SPEC}WeightParams"
NETWORK: Final = f"{_SPEC}NeuralNetwork"
"""The type of a neural network, of a model or in a layer."""
# Fields of a Model: kinds that are neural networks, pipelines, pipelines in a message, and the ML program.
_NETWORKS, _PIPELINES, _PROGRAM = (303, 403, 500), {200: True, 201: True, 202: False}, 502
# The longest name that is read.
_LONGEST: Final = 1 << 10
# Fields of a Pipeline, a network, a layer; the oneof of kinds of layers begins at a number.
_MODELS, _NAMES, _LAYERS, _NAME, _KINDS = 1, 2, 1, 1, 100
# Fields of a Program, a Function, a Block.
_FUNCTIONS, _BLOCKS, _OPERATIONS = 2, 3, 3
# The types whose fields may follow those of a tensor in a model.
_AROUND: Final = (
    "WeightParams", "NeuralNetworkLayer", "NeuralNetwork", "NeuralNetworkClassifier", "NeuralNetworkRegressor", "Model",
    "Pipeline", "MILSpec.Value", "MILSpec.Operation", "MILSpec.Block", "MILSpec.Function", "MILSpec.Program",
)  # fmt: skip


class CoremlPlace(TensorPlace):
    """Where a tensor is; ``kind``: that of its layer, None for the value of a program."""

    __slots__ = ("axis", "kind", "layer", "made_by", "shape")

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        self.kind: str | None = None
        self.layer: MessageType | None = None
        """The type of the layer."""
        self.shape: tuple[int, ...] | None = None
        """As the layer tells it."""
        self.axis = 0
        """The dimension that scales are for."""
        self.made_by: Operation | None = None
        """The operation that says what it means."""


class CoremlPlaces(TensorPlaces):
    """The tensors of one model, in order."""

    layouts = "L"
    maker: ValueMaker

    def __init__(self, parser: ProtobufParser, maker: ValueMaker) -> None:
        super().__init__(parser, maker)
        self._schema = builtin_schema()
        self._strange: set[tuple[str, int]] = set()  # type and number of fields that the schema does not have

    def places(self, *, most: int | None = None, scopes: list[Any] | None = None) -> Iterator[CoremlPlace]:
        """Yield where each tensor is, with its name, which may not be unique, of the first ``most`` ones.

        Each place is appended to ``scopes``.
        """
        check = self.parser.result.extraction.session.check_cancelled
        found = (place for place in self._places() if place.__class__ is CoremlPlace)
        for ordinal, place in enumerate(islice(found, most)):
            if not ordinal & 0xFFF:
                check()
            if scopes is not None:
                scopes.append(place)
            place.at = (ordinal,)
            yield place

    def constexprs(self) -> Iterator[Operation]:
        """Yield the operations that compute constants of others."""
        return (found for found in self._places() if found.__class__ is Operation)

    def at(self, scopes: Sequence[CoremlPlace], *numbers: int) -> Iterator[CoremlPlace]:
        """Yield the place with this number."""
        return iter((scopes[numbers[0]],))

    def worth_searching(self, name: str) -> None:
        """Return None: a table costs as much as going through all layers, once."""

    def tensor(self, place: CoremlPlace, name: str | None = None) -> Tensor:
        """Return the tensor at a place, under that name."""
        shown = place.name if name is None else name
        made = self.weight_maker(place).tensor(shown, place.value) if place.kind else super().tensor(place, name)
        part = place.value[0] if len(place.value) == 1 else None
        if self._is_damaged and made.is_claimed_whole and isinstance(part, Range):
            around = [self._schema.message(_SPEC + known) for known in _AROUND]
            if self.ends_at_break(part, [*around, *([place.layer] if place.layer is not None else [])]):
                self.doubt_end(made)
        return made

    def weight_maker(self, place: CoremlPlace) -> WeightMaker:
        """Return what makes the tensor at a place in a neural network."""
        return WeightMaker(self.maker, place.shape)

    @cached_property
    def _is_damaged(self) -> bool:
        return not self.maker.owner.is_whole()

    def _places(self) -> Iterator[CoremlPlace | Operation]:
        session = self.parser.result.extraction.session
        root = self._judged(Message(self.make, self.parser.root_pieces(), self._schema.message(_MODEL)))
        waiting: list[Iterator[Any]] = [self._of_model("", root)]
        while waiting:
            try:
                found = next(waiting[-1], None)
                session.limits.check("depth", len(waiting), "the depth of models and networks in others")
            except (FaultError, LimitError) as error:  # what is before it is there
                self._note(error)
                found = None
            if found is None:
                waiting.pop()
            elif isinstance(found, CoremlPlace | Operation):
                yield found
            else:
                waiting.append(found)

    def _note(self, error: Any) -> None:
        code = "limit" if isinstance(error, LimitError) else "truncated" if isinstance(error, EOFError) else "malformed"
        known: Any = {"source": self.make.extraction.name, "offset": error.offset, "option": error.option}
        self.parser.result.findings.add(Finding(code, error.reason, **known))

    def message(self, pieces: Any, type: MessageType | str, near: WireWindow | None) -> Message:
        """Return a message of a type, or of that name, and note what is wrong with it."""
        kind = self._schema.message(_SPEC + type) if isinstance(type, str) else type
        return self._judged(Message(self.make, pieces, kind, near))

    def _judged(self, message: Message) -> Message:
        """Return a message, after noting what is wrong with it, and once each fields that its type does not have."""
        problem = message.problem
        if problem is not None and problem.is_damage and not self.parser.result.findings.full:
            self._note(MalformedError(problem.reason, offset=problem.offset))
        for key in sorted(message.fields.keys() - message.type.fields.keys()) if problem is None else ():
            if (message.type.full_name, key) not in self._strange:
                self._strange.add((message.type.full_name, key))
                name = f"field {key}" if key >= 0 else f"field {~key >> 3} of wire type {~key & 7}"
                reason = f"{message.type.full_name} has no {name}: what stands there is not read"
                if key < 0 and ~key >> 3 in message.type.fields:  # no version of a type changes that of a field
                    self._note(MalformedError(reason, offset=next(slot.offsets[0] for _, slot in message.runs(key))))
                    continue
                known: Any = {"source": self.make.extraction.name, "severity": Severity.WARNING}
                self.parser.result.findings.add(Finding("unknown-fields", reason, **known))
        return message

    def elements(self, message: Message, number: int) -> Iterator[Message]:
        """Yield the messages in a field."""
        kind: Any = message.type.fields[number].message
        for pieces in message.elements(number):
            yield self.message(pieces, kind, message.near)

    def items(self, message: Message, number: int) -> Iterator[tuple[str, Message]]:
        """Yield the entries of a map of messages, in the order of the file."""
        value: Any = message.type.fields[number].map_value
        for key, pieces in message.items(number):
            yield str(key), self.message(pieces, value.message, message.near)

    @staticmethod
    def texts(message: Message, number: int) -> list[str]:
        """Return the texts in a field; of a long one, its beginning."""
        return [
            window.read(at.start, min(at.end, scan.part.end, at.start + _LONGEST)).decode("utf-8", "replace")
            for scan, window, at in message.occurrences(number)
        ]

    def _of_model(self, prefix: str, model: Message) -> Iterator[Any]:
        """Yield the places in a model, and generators of those in models in it."""
        for number in list(model.fields):
            inner = model.message(number) if number >= FIRST_KIND and number in model.type.fields else None
            if inner is None:
                continue
            self._judged(inner)
            if number in _NETWORKS:
                yield self._of_network(prefix, inner)
            elif number == _PROGRAM:
                for name, function in self.items(inner, _FUNCTIONS):
                    scope = prefix if name == "main" else f"{prefix}{name}/"
                    for _, block in self.items(function, _BLOCKS):
                        yield self._of_block(scope, block)
            elif number in _PIPELINES:
                pipeline = inner.message(1) if _PIPELINES[number] else inner
                if pipeline is None:
                    continue
                names = self.texts(pipeline, _NAMES)
                for at, part in enumerate(self.elements(pipeline, _MODELS)):
                    name = names[at] if at < len(names) else f"models[{at}]"
                    yield self._of_model(f"{prefix}{name}/", part)

    # -- neural networks -----------------------------------------------------------------------------------------------

    def _of_network(self, prefix: str, network: Message) -> Iterator[Any]:
        for ordinal, layer in enumerate(self.elements(network, _LAYERS)):
            name = prefix + (self.text(layer, _NAME) or f"layers[{ordinal}]")
            for number in list(layer.fields):
                field = layer.type.fields.get(number)
                if number >= _KINDS and field is not None and field.message is not None:
                    found = layer.message(number)
                    if found is not None:
                        yield self._of_layer(name, field.name, found, self._judged(found), "")

    def _of_layer(self, name: str, kind: str, layer: Message, message: Message, path: str) -> Iterator[Any]:
        """Yield the weights in a message of a layer, and generators of those in messages and networks below."""
        for number in message.type.fields:
            field = message.type.fields[number]
            if number not in message.fields or field.message is None:
                continue
            for at, pieces in enumerate(message.elements(number)):
                label = f"{path}{field.name}" + (f"[{at}]" if field.repeated else "")
                inner = self.message(pieces, field.message, message.near)
                if field.type_name == NETWORK:
                    yield self._of_network(f"{name}.{label}/", inner)
                elif field.type_name != _WEIGHTS:
                    yield self._of_layer(name, kind, layer, inner, f"{label}.")
                elif not HOLDS_WEIGHTS.isdisjoint(inner.fields) or inner.problem is not None:
                    place = CoremlPlace(f"{name}.{label}", pieces)
                    place.kind, place.layer = kind, layer.type
                    place.shape = shape_of(kind, label, layer)
                    place.axis = int(is_turned(layer))
                    yield place

    # -- ML programs ---------------------------------------------------------------------------------------------------

    def _of_block(self, prefix: str, block: Message) -> Iterator[Any]:
        for pieces in block.elements(_OPERATIONS):
            operation = read_operation(self, pieces, block.near, prefix)
            made_by = operation if operation.type.startswith("constexpr_") else None
            if made_by is not None:
                yield made_by
            for key, value in operation.values:
                place = CoremlPlace(operation.name_of(key), value)
                place.made_by = made_by
                yield place
            for inner in operation.blocks:
                yield self._of_block(prefix, self.message(inner, "MILSpec.Block", block.near))

    def is_tensor(self, pieces: Any, around: Message) -> bool:
        """Return whether a Value is a tensor by its type or by what it has, or not whole: no list or dictionary."""
        value = self.message(pieces, "MILSpec.Value", around.near)
        told, has = value.message(TYPE), value.message(IMMEDIATE)
        return told is None or TENSOR_TYPE in told.fields or told.problem is not None or _is_one(has)


def _is_one(immediate: Message | None) -> bool:
    return immediate is not None and TENSOR_TYPE in immediate.fields


# -- operations (apple/coremltools mlmodel/format/MIL.proto) -----------------------------------------------------------

# An input is bound to values that others make, by name, or to values in the operation itself; of several, each has its
# number behind the name of the input: ``values[1]``. Attributes are values in the operation, too: in programs up to
# iOS 17, those of ``constexpr_`` operations are what others have as inputs.

# Fields of an Operation; of an entry of a map, a NamedValueType and a Binding; of an Argument.
_TYPE, _INPUTS, _OUTPUTS, _INNER, _ATTRIBUTES = 1, 2, 3, 4, 5
_VALUE, _ARGUMENTS = 2, 1
_TYPE_TAG, _INPUT_TAG, _OUTPUT_TAG, _BLOCK_TAG, _ATTRIBUTE_TAG = (number << 3 | LEN for number in range(1, 6))
_NAME_TAG, _VALUE_TAG = _NAME << 3 | LEN, _VALUE << 3 | LEN
# Of type and value of a Value; of a tensor, which is the first field of both.
_TYPED_TAG, _IMMEDIATE_TAG, _TENSOR_TAG = TYPE << 3 | LEN, IMMEDIATE << 3 | LEN, TENSOR_TYPE << 3 | LEN
# Operations up to this size are read in one go.
_SMALL: Final = 16 << 10


class Operation(namedtuple("Operation", "prefix type outputs inputs values blocks")):
    """What an operation says; ``prefix`` is that of the names of its tensors.

    ``outputs``: their names. ``inputs``: each with the name of its value, or ``""`` for one that is in ``values``.
    ``values``: what the tensors in inputs and attributes are made of, by the names of these. ``blocks``: what the
    blocks in it are made of.
    """

    __slots__ = ()
    prefix: str

    @property
    def label(self) -> str:
        """The name of its first output; its type, if that has none."""
        return str(next(iter(self.outputs), "") or self.type)

    def name_of(self, key: str) -> str:
        """Return what a tensor in it is called."""
        return self.prefix + (self.label if self.type == "const" and key == "val" else f"{self.label}.{key}")


def read_operation(places: CoremlPlaces, pieces: Any, near: WireWindow | None, prefix: str) -> Operation:
    """Return what an operation says; ``near`` may hold its bytes. What cannot be read is left out, and noted."""
    found = _quick(places.plain(pieces), near, prefix)
    if found is not None:
        return found
    operation = places.message(pieces, "MILSpec.Operation", near)
    outputs = [places.text(one, _NAME) for one in places.elements(operation, _OUTPUTS)]
    inputs: list[tuple[str, str]] = []
    values: list[tuple[str, Any]] = [
        (str(key), value)
        for key, value in operation.items(_ATTRIBUTES)
        if key != "name" and places.is_tensor(value, operation)
    ]
    for key, argument in places.items(operation, _INPUTS):
        bindings = list(places.elements(argument, _ARGUMENTS))
        for at, binding in enumerate(bindings):
            label = f"{key}[{at}]" if len(bindings) > 1 else key
            value = binding.pieces(_VALUE)
            if not value:
                name = places.text(binding, _NAME)
                inputs += [(label, name)] if name else []
            elif places.is_tensor(value, operation):
                inputs.append((label, ""))
                values.append((label, value))
    blocks = list(operation.elements(_INNER))
    return Operation(prefix, places.text(operation, _TYPE), outputs, inputs, values, blocks)


def _quick(part: Range | None, near: WireWindow | None, prefix: str) -> Operation | None:
    """Return the same; None for an operation that is large, in parts, unusual, or not whole."""
    if part is None or len(part) > _SMALL or near is None or near.data is not part.data:
        return None
    near.at(part.start)
    raw = near.read(part.start, part.end) + PADDING
    start, data = part.start, part.data
    type, outputs, blocks = "", [], []
    inputs: list[tuple[str, str]] = []
    values: list[tuple[str, Any]] = []
    seen: set[tuple[int, str]] = set()
    try:
        for tag, pos, end in fields(raw, 0, len(part)):
            if tag == _TYPE_TAG:
                type = raw[pos:end].decode()
            elif tag == _OUTPUT_TAG:
                outputs.append(_last(raw, pos, end, _NAME_TAG))
            elif tag == _BLOCK_TAG:
                blocks.append((data.range(start + pos, start + end),))
            elif tag in (_INPUT_TAG, _ATTRIBUTE_TAG):
                key, found = _entry(raw, tag, pos, end)
                if (tag, key) in seen:
                    return None
                seen.add((tag, key))
                values += [(label, (data.range(start + p, start + e),)) for label, name, p, e in found if not name]
                if tag == _INPUT_TAG:
                    inputs += [(label, name) for label, name, _, _ in found]
            else:  # no field of an operation
                return None
    except (MalformedError, UnicodeDecodeError):
        return None
    return Operation(prefix, type, outputs, inputs, values, blocks)


def _entry(raw: bytes, tag: int, pos: int, end: int) -> tuple[str, list[tuple[str, str, int, int]]]:
    """Return the key of an input or attribute, and its values: label, name, and where a tensor without a name is."""
    entry = {number: (p, e) for number, p, e in fields(raw, pos, end)}
    key = raw[slice(*entry.get(_NAME_TAG, (0, 0)))].decode()
    place = entry.get(_VALUE_TAG, (0, 0))
    if tag == _ATTRIBUTE_TAG:
        return key, [(key, "", *place)] if key != "name" and _holds_tensor(raw, *place) else []
    found: list[tuple[str, str, int, int]] = []
    bindings = [(p, e) for _, p, e in fields(raw, *place)]
    for at, binding in enumerate(bindings):
        label = f"{key}[{at}]" if len(bindings) > 1 else key
        bound = {number: (p, e) for number, p, e in fields(raw, *binding)}
        if _VALUE_TAG not in bound:
            name = raw[slice(*bound.get(_NAME_TAG, (0, 0)))].decode()
            found += [(label, name, 0, 0)] if name else []
        elif _holds_tensor(raw, *bound[_VALUE_TAG]):
            found.append((label, "", *bound[_VALUE_TAG]))
    return key, found


def _last(raw: bytes, pos: int, end: int, wanted: int) -> str:
    return next((raw[p:e].decode() for tag, p, e in reversed(list(fields(raw, pos, end))) if tag == wanted), "")


def _holds_tensor(raw: bytes, pos: int, end: int) -> bool:
    """Return whether a Value has the type of a tensor, or none, or is one whatever its type is."""
    told = [(tag, fields(raw, p, e)) for tag, p, e in fields(raw, pos, end) if tag in (_TYPED_TAG, _IMMEDIATE_TAG)]
    return all(tag != _TYPED_TAG for tag, _ in told) or any(first == _TENSOR_TAG for _, i in told for first, _, _ in i)
