"""From the messages of Core ML that hold numbers to tensors: WeightParams of neural networks, Values of ML programs.

The rules (apple/coremltools mlmodel/format/NeuralNetwork.proto, MIL.proto; coremltools
models/neural_network/quantization_utils.py, converters/mil/frontend/milproto/load.py): weights have no shape, the layer
tells it (`pparse.viewers.coreml.places`). Quantised ones are a stream of codes of 1 to 8 bits, the first bit of which
is the highest of a byte; they mean ``code · scale + bias``, or an entry of a table. The value of a program has type and
shape; it lists its elements, has them as bytes, or says where in a file beside the model they are. There, elements
below 8 bits begin at the lowest bit.
"""

from __future__ import annotations

from math import prod

from pparse.findings import Status
from pparse.parsers.protobuf.message import Message, Problem
from pparse.tensors.dtype import DTYPES
from pparse.tensors.scales import Grid
from pparse.tensors.span import Span
from pparse.tensors.tensor import UNKNOWN_SHAPE
from pparse.viewers.coreml.blobs import BlobFiles
from pparse.viewers.coreml.codes import Codes, CodesData, LinearTensor, TableTensor
from pparse.viewers.tensor_proto.external import ExternalMaker
from pparse.viewers.tensor_proto.maker import NumberValues, TensorMaker, has_too_many, is_cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.document.extraction import Extraction
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.protobuf.schema import Schema
    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.tensor_proto.maker import ProtoTensor

# -- WeightParams ------------------------------------------------------------------------------------------------------

_FLOATS, _HALVES, _RAW, _INT8, _QUANTIZATION = 1, 2, 30, 31, 40
HOLDS_WEIGHTS: Final = frozenset((_FLOATS, _HALVES, _RAW, _INT8))
"""The fields of WeightParams that hold elements."""
# Fields of QuantizationParams, LinearQuantizationParams and LookUpTableQuantizationParams.
_BITS, _LINEAR, _TABLE, _SCALE, _BIAS = 1, 101, 102, 1, 2
_BYTES: Final = {_HALVES: "float16", _RAW: "uint8", _INT8: "int8"}


class WeightMaker(TensorMaker):
    """Makes the tensor of one WeightParams; ``shape``: as its layer tells it, None if that does not say."""

    def __init__(self, of: ValueMaker, shape: tuple[int, ...] | None) -> None:
        super().__init__(of.extraction, of.make, of.weights, of.owner)
        self._shape = shape

    def read(self, name: str, message: Message) -> ProtoTensor:
        """Return the tensor of WeightParams: of float32, float16, or codes of 8 bits."""
        strange = set(message.fields) - set(message.type.fields)
        problem = message.problem
        made = self._read(name, message)
        if problem is None and strange:
            problem = Problem(Status.DAMAGED, f"its message has a field {min(strange)}, which weights have not")
        if problem is not None and made.is_claimed_whole:
            self.judge(made, problem)
        return made

    def _read(self, name: str, message: Message) -> ProtoTensor:
        number = next((number for number in message.fields if number in _BYTES), _FLOATS)
        if number == _FLOATS:
            return self.floats(name, message, _FLOATS, self._shape)
        dtype, label = DTYPES[_BYTES[number]], message.type.fields[number].name
        where = self.bytes_of(message, number, label)
        if where is None or isinstance(where, Problem):
            return self.missing(name, where or Problem(Status.DAMAGED, f"it has no {label}"), dtype.name)
        told = message.message(_QUANTIZATION)
        if number == _RAW and is_cut(message.problem) and (told is None or _BITS not in told.fields):
            lost = Problem(Status.MISSING, "it is cut before it tells how many bits its codes have", where.end)
            return self.new(name, dtype, self._shape or UNKNOWN_SHAPE, (), "", lost)
        bits = dtype.bits if number != _RAW or told is None else int(told.scalar(_BITS))
        if not 0 < bits <= dtype.bits:
            wrong = Problem(Status.UNSUPPORTED, f"its codes have {bits} bits; Core ML has 1 to 8")
            return self.new(name, None, self._shape or UNKNOWN_SHAPE, (), f"uint{bits}", wrong)
        shape = (len(where) * 8 // bits,) if self._shape is None else self._shape
        if bits != 8 and number == _RAW:
            return self._packed(name, message, shape, where, bits)
        return self.of_bytes(name, message, dtype, shape, dtype.name, where, label)

    def _packed(self, name: str, message: Message, shape: tuple[int, ...], where: Range, bits: int) -> ProtoTensor:
        """Return the tensor of codes that share bytes: as stored, its bytes are those of one dimension."""
        count = prod(shape)
        packed = self.of_bytes(
            name, message, DTYPES["uint8"], (-(-count * bits // 8),), f"uint{bits}", where, "rawValue"
        )
        return codes_in(self, packed, shape, where, bits, "big")

    def floats(self, name: str, message: Message, number: int, shape: tuple[int, ...] | None) -> ProtoTensor:
        """Return the tensor of a repeated float field; without a ``shape``, of one dimension."""
        values = NumberValues(message, message.type.fields[number], "<f4")
        shape = (values.count,) if shape is None else shape
        return self.listed(name, message, values, DTYPES["float32"], shape, "float32")

    def quantisation(self, tensor: Tensor, pieces: Any, axis: int) -> Codes | None:
        """Return what the codes in ``tensor``, made of ``pieces``, mean; several scales are for ``axis``."""
        told = Message(self.make, pieces, self.type).message(_QUANTIZATION)
        if told is None or tensor.dtype not in ("uint8", "int8"):
            return None
        linear, table = told.message(_LINEAR), told.message(_TABLE)
        if table is not None:
            found = Codes(tensor.name, tensor, (self.floats(f"{tensor.name}.table", table, _SCALE, None),))
            found.told = {"table": found.parts[0]}
            found.meant = TableTensor(tensor.name, tensor, found.parts[0])
            return found
        if linear is None:
            return None
        scale = self.floats(f"{tensor.name}.scale", linear, _SCALE, None)
        bias = self.floats(f"{tensor.name}.bias", linear, _BIAS, None)
        found = Codes(tensor.name, tensor, (scale, bias) if bias.size else (scale,))
        found.told |= {"scale": scale} | ({"bias": bias} if bias.size else {})
        grids = []
        for part in found.parts:
            if part.size == 1:
                grids.append(Grid(part))
            elif axis < tensor.ndim and part.size == tensor.shape[axis]:
                grids.append(Grid(part, (axis,), (1,)))
                found.told["axis"] = axis
            else:
                reason = f"it has {part.size} numbers in {part.name} for dimension {axis} of {tensor.shape_text}"
                found.problem = reason
                return found
        found.meant = LinearTensor(tensor.name, tensor, grids[:1], grids[1] if len(grids) > 1 else None)
        return found


def codes_in(
    maker: TensorMaker, packed: ProtoTensor, shape: tuple[int, ...], where: Range, bits: int, order: str
) -> ProtoTensor:
    """Return codes as a tensor with a byte each, of the status of the one with the bytes that they share."""
    made = maker.new(packed.name, DTYPES["uint8"], shape, packed.spans, packed.stored_dtype)
    made.status, made.finding, made.encoding = packed._status, packed._finding, "typed"
    name = f"{maker.extraction.name}::{made.name}"
    made._content = Span(CodesData(where, made.size, bits, order, name), 0, made.size, name)
    return made


# -- Values ------------------------------------------------------------------------------------------------------------

# The types by their numbers in MIL: names, and those of arrays; a missing one is no type of tensors that are numbers.
_NUMBERS: Final = {
    1: ("BOOL", "bool"),
    10: ("FLOAT16", "float16"),
    11: ("FLOAT32", "float32"),
    12: ("FLOAT64", "float64"),
    13: ("BFLOAT16", "bfloat16"),
    40: ("FLOAT8E4M3FN", "float8_e4m3fn"),
    41: ("FLOAT8E5M2", "float8_e5m2"),
    **{20 + at: (f"INT{bits}", f"int{bits}") for at, bits in enumerate((8, 16, 32, 64, 4), 1)},
    **{30 + at: (f"UINT{bits}", f"uint{bits}") for at, bits in enumerate((8, 16, 32, 64, 4, 2, 1, 6, 3), 1)},
}
_STRING: Final = 2


def array_word(word: str) -> str:
    """Return the name of the type that arrays have for one of MIL; of any other, the word in small letters."""
    return next((dtype for known, dtype in _NUMBERS.values() if known == word), word.lower())


# Types that arrays have not: their codes get a byte each.
_ODD: Final = {38: 6, 39: 3}
# Fields of a Value, a TensorType, a Dimension, a TensorValue.
TYPE, IMMEDIATE, _BLOB = 2, 3, 5
TENSOR_TYPE = 1
_DATA_TYPE, _DIMENSIONS, _CONSTANT, _SIZE = 1, 3, 1, 1
_BOOLS, _STRINGS, _LONGS, _PACKED = 3, 4, 5, 7
# Which types a field of a TensorValue lists: MIL has those of fewer bits among the int32.
_LISTS: Final = {1: {11}, 2: {21, 22, 23, 31, 32, 33}, _BOOLS: {1}, _LONGS: {24, 34}, 6: {12}}


class ValueMaker(ExternalMaker):
    """Makes tensors of the Values of an ML program."""

    external: BlobFiles

    def __init__(self, extraction: Extraction, make: ValueEntries, schema: Schema, owner: Any) -> None:
        super().__init__(extraction, make, schema.message("CoreML.Specification.MILSpec.Value"), owner)
        self.weights = schema.message("CoreML.Specification.WeightParams")
        """The type of what `WeightMaker` reads."""
        self.external = BlobFiles(extraction, owner.knows_files)
        self._most_dims = extraction.session.limits.tensor_rank

    def read(self, name: str, message: Message) -> ProtoTensor:
        """Return the tensor of a Value."""
        told = message.message(TYPE)
        type = None if told is None else told.message(TENSOR_TYPE)
        if type is None or told is None:
            return self.missing(name, message.problem or Problem(Status.DAMAGED, "it has no type"))
        number = int(type.scalar(_DATA_TYPE))
        word, dtype = _NUMBERS.get(number, ("STRING" if number == _STRING else f"type {number}", ""))
        wrong = message.problem or told.problem or type.problem
        shape, unknown = ((), wrong) if is_cut(wrong) else self._shape(type)
        if is_cut(unknown):
            return self.missing(name, unknown, word)
        wrong = wrong or unknown
        if wrong is None and not dtype and number != _STRING:
            wrong = Problem(Status.UNSUPPORTED, f"its type is {number}, which pparse does not know")
        kind = DTYPES.get("uint8" if number in _ODD else dtype)
        if wrong is not None:
            return self.new(name, kind, shape, (), word, wrong)
        blob = message.message(_BLOB)
        if blob is not None and kind is not None:
            return self._outside(name, blob, shape, word, kind, _ODD.get(number, 0))
        inner = message.message(IMMEDIATE)
        value = None if inner is None else inner.message(1)
        problem = None if inner is None else inner.problem or (value.problem if value is not None else None)
        field = next(iter(value.fields), None) if value is not None else None
        if value is None or field is None or problem is not None:
            problem = problem or (None if 0 in shape else Problem(Status.DAMAGED, "it has no value"))
            return self.new(name, kind, shape, (), word, problem)
        listing = value.message(field) if field in value.type.fields else None
        if listing is None:
            return self.new(name, kind, shape, (), word, Problem(Status.DAMAGED, f"its value is field {field}"))
        if field == _STRINGS and number == _STRING:
            return self._text(name, listing, shape)
        if field == _PACKED and kind is not None:
            return self._raw(name, listing, shape, word, kind, _ODD.get(number, 0))
        if number not in _LISTS.get(field, ()) or kind is None:
            reason = f"it is of type {word}, and has {value.type.fields[field].name}"
            return self.new(name, kind, shape, (), word, Problem(Status.DAMAGED, reason))
        code = "u1" if field == _BOOLS else f"<{kind.kind[0]}{kind.itemsize}"
        values = NumberValues(listing, listing.type.fields[1], code)
        return self.listed(name, listing, values, kind, shape, word)

    def _shape(self, type: Message) -> tuple[tuple[int, ...], Problem | None]:
        """Return the shape of a TensorType, and what is wrong with it."""
        sizes: list[int] = []
        dimension: Any = type.type.fields[_DIMENSIONS].message
        for pieces in type.elements(_DIMENSIONS):
            if len(sizes) == self._most_dims:
                return UNKNOWN_SHAPE, Problem(
                    Status.UNSUPPORTED, f"the tensor has more than {self._most_dims} dimensions"
                )
            found = Message(self.make, pieces, dimension, type.near)
            constant = found.message(_CONSTANT)
            if found.problem is not None or constant is None or constant.problem is not None:
                return UNKNOWN_SHAPE, found.problem or Problem(Status.DAMAGED, "a dimension of a value has no size")
            sizes.append(int(constant.scalar(_SIZE)))
        if has_too_many(tuple(sizes)):
            return tuple(sizes), Problem(Status.DAMAGED, "the shape has too many elements")
        return tuple(sizes), None

    def _text(self, name: str, message: Message, shape: tuple[int, ...]) -> ProtoTensor:
        spans, count = self.text_places(message, 1)
        made = self.new(name, None, shape, spans, "STRING", message.problem)
        self.list_texts(made, message, 1)
        if count != made.size and message.problem is None:
            reason = f"it lists {count:,} strings; the shape needs {made.size:,}"
            self.judge(made, Problem(Status.DAMAGED, reason), None, made.size, count)
        return made

    def _raw(
        self, name: str, message: Message, shape: tuple[int, ...], word: str, kind: DType, odd: int
    ) -> ProtoTensor:
        where = self.bytes_of(message, 1, "bytes")
        if isinstance(where, Problem):
            return self.new(name, kind, shape, (), word, where)
        where = self.extraction.data.range(0, 0) if where is None else where
        if odd:
            packed = self.of_bytes(name, message, kind, (-(-prod(shape) * odd // 8),), word, where, "bytes")
            return codes_in(self, packed, shape, where, odd, "little")
        return self.of_bytes(name, message, kind, shape, word, where, "bytes")

    def _outside(
        self, name: str, blob: Message, shape: tuple[int, ...], word: str, kind: DType, odd: int
    ) -> ProtoTensor:
        """Return the tensor of elements in a file beside the model."""
        made = self.new(name, kind, shape, (), word)
        if blob.problem is not None:
            self.judge(made, blob.problem)
            return made
        size = -(-made.size * odd // 8) if odd else kind.stored_nbytes(made.size)
        file = str(blob.scalar(1))
        self.put(made, self.external.find(file, int(blob.scalar(2)), word, size), size, file)
        span = made.spans[0] if made.spans else None
        if not odd or span is None or span.data is None:
            return made
        where = span.data.range(span.offset, span.offset + size)
        return codes_in(self, made, shape, where, odd, "little")
