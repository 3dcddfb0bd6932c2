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

from pparse.data.spliced import DerivedData
from pparse.errors import DataError
from pparse.findings import Status
from pparse.parsers.milblob import HEADER, SENTINEL, SIZE, TYPES
from pparse.parsers.protobuf.message import Message, Problem, problem_of
from pparse.tensors.dtype import DTYPES, dtype_named
from pparse.tensors.span import Span
from pparse.tensors.tensor import UNKNOWN_SHAPE
from pparse.viewers.tensor_proto.external import ExternalFiles, ExternalMaker, PlacedOutside
from pparse.viewers.tensor_proto.maker import NumberValues, TensorMaker, has_too_many, is_cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.data.base import Data, Range
    from pparse.document.extraction import Extraction
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.protobuf.schema import Schema
    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.tensor_proto.external import ExternalFile
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
        if bits == 8 or number != _RAW:
            return self.of_bytes(name, message, dtype, shape, dtype.name, where, label)
        size = -(-prod(shape) * bits // 8)  # codes share bytes: as stored, these are of one dimension
        packed = self.of_bytes(name, message, dtype, (size,), f"uint{bits}", where, label)
        return codes_in(self, packed, shape, bits, "big")

    def floats(self, name: str, message: Message, number: int, shape: tuple[int, ...] | None) -> ProtoTensor:
        """Return the tensor of a repeated float field; without a ``shape``, of one dimension."""
        values = NumberValues(message, message.type.fields[number], "<f4")
        shape = (values.count,) if shape is None else shape
        return self.listed(name, message, values, DTYPES["float32"], shape, "float32")

    def scales(self, tensor: Tensor, pieces: Any) -> dict[str, ProtoTensor]:
        """Return scale and bias, or the table, of the codes in ``tensor``, made of ``pieces``; none if it has none."""
        told = Message(self.make, pieces, self.type).message(_QUANTIZATION)
        if told is None or tensor.dtype not in ("uint8", "int8"):
            return {}
        linear, table = told.message(_LINEAR), told.message(_TABLE)
        if table is not None:
            return {"table": self.floats(f"{tensor.name}.table", table, _SCALE, None)}
        if linear is None:
            return {}
        bias = self.floats(f"{tensor.name}.bias", linear, _BIAS, None)
        return {"scale": self.floats(f"{tensor.name}.scale", linear, _SCALE, None)} | (
            {"bias": bias} if bias.size else {}
        )


class CodesData(DerivedData):
    """``count`` codes of ``bits`` bits each, which ``packed`` has one behind the other, as a byte each.

    ``order``: ``"big"`` if the first one begins at the highest bit of a byte, ``"little"`` if at the lowest.
    """

    copies = False

    def __init__(self, packed: Range, count: int, bits: int, order: str, name: str) -> None:
        super().__init__(name, count)
        self.sources = (packed.data,)
        self._packed, self._bits, self._order = packed, bits, order

    def pieces(self, start: int, end: int) -> list[tuple[Data, int, int]]:
        """Return where the codes stand."""
        begin = self._packed.start
        first, last = begin + start * self._bits // 8, begin - (-end * self._bits // 8)
        return [(self._packed.data, first, last)] if first < last else []

    def _how(self) -> tuple[object, ...]:
        return self._packed.start, self._bits, self._order, self.size

    def _pread(self, offset: int, length: int) -> bytes:
        import numpy as np

        skip = offset * self._bits % 8
        raw = b"".join(data.read_exact(start, end - start) for data, start, end in self.pieces(offset, offset + length))
        order: Any = self._order
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder=order)[skip : skip + length * self._bits]
        places = range(self._bits)
        weights = np.array([1 << place for place in (reversed(places) if order == "big" else places)], np.uint8)
        codes: NDArray[Any] = bits.reshape(-1, self._bits) @ weights
        return codes.astype(np.uint8).tobytes()


def codes_in(maker: TensorMaker, packed: ProtoTensor, shape: tuple[int, ...], bits: int, order: str) -> ProtoTensor:
    """Return codes as a tensor with a byte each, of the status of the one with the bytes that they share."""
    made = maker.new(packed.name, DTYPES["uint8"], shape, packed.spans, packed.stored_dtype)
    made.status, made.finding = packed._status, packed._finding
    held = packed._content or next(iter(packed.spans), None)
    if held is not None and held.data is not None:
        name = f"{maker.extraction.name}::{made.name}"
        codes = CodesData(held.data.range(held.offset, held.offset + held.length), made.size, bits, order, name)
        made._content, made.encoding = Span(codes, 0, made.size, name), "typed"
    return made


# -- The file beside an ML program that holds its weights (`pparse.parsers.milblob`) -----------------------------------

# The numbers of types in headers, by their names in MIL.
_TYPES: Final = {word: number for number, word in enumerate(TYPES, 1)}
_ROOT: Final = "@model_path/"


class BlobFiles(ExternalFiles):
    """The files with weights of one model."""

    def find(self, name: str, offset: int, type_word: str, size: int) -> PlacedOutside | Problem:
        """Return where the ``size`` bytes of a value are whose header is at ``offset`` of the file ``name``."""
        location = name.removeprefix(_ROOT)
        file = self.file(location)
        if file.content is None or offset + SIZE > file.there:
            return self.place(location, offset + SIZE, None, size)
        if not file.wanted:
            file.wanted = self._end(file)
        found = _header(file, offset)
        if isinstance(found, Problem):
            return found
        kind, length, start = found
        if kind != _TYPES.get(type_word, kind):
            return Problem(Status.DAMAGED, f"the header of its bytes in {location} says type {kind}", offset)
        placed = self.place(location, start, length, size)
        if isinstance(placed, Problem) or placed.status is not Status.COMPLETE:
            return placed
        behind = _aligned(start + length)
        if behind + SIZE <= file.there and isinstance(_header(file, behind), Problem):
            reason = f"no header follows its bytes in {location}: some may have gone there, or come in"
            return placed._replace(status=Status.DAMAGED, reason=reason)
        return placed

    def _end(self, file: ExternalFile) -> int:
        """Return where the last blob ends that is reached from header to header."""
        count = self._fields(file, 0)[0]
        at, end = SIZE, SIZE
        for number in range(min(count, file.there // SIZE)):
            if not number & 0xFF:
                self._extraction.session.check_cancelled()
            if at + SIZE > file.there or isinstance(found := _header(file, at), Problem):
                break
            end = found[2] + found[1]
            if end <= at or end > file.there:
                break
            at = _aligned(end)
        return min(end, file.there)

    @staticmethod
    def _fields(file: ExternalFile, at: int) -> Any:
        content: Any = file.content
        return HEADER.unpack(content.data.read_exact(content.start + at, HEADER.size))


def _header(file: ExternalFile, at: int) -> tuple[int, int, int] | Problem:
    """Return type, length and begin of the blob whose header is at ``at``."""
    try:
        sentinel, kind, length, start, _ = BlobFiles._fields(file, at)
    except DataError as error:
        return problem_of(error)
    if sentinel != SENTINEL or start < at + SIZE or start % SIZE:
        return Problem(Status.DAMAGED, f"there is no header of a blob at byte {at:,} of its file", at)
    return kind, length, start


def _aligned(at: int) -> int:
    return -(-at // SIZE) * SIZE


# -- Values ------------------------------------------------------------------------------------------------------------

# Types that arrays have not: their codes get a byte each.
_ODD: Final = {"UINT6": 6, "UINT3": 3}
# Fields of a Value, a TensorType, a Dimension, a TensorValue.
TYPE, IMMEDIATE, _BLOB = 2, 3, 5
TENSOR_TYPE = 1
_DATA_TYPE, _DIMENSIONS, _CONSTANT, _SIZE = 1, 3, 1, 1
_BOOLS, _STRINGS, _LONGS, _PACKED = 3, 4, 5, 7
# Which types a field of a TensorValue lists: MIL has those of fewer bits among the int32.
_LISTS: Final = {
    1: {"FLOAT32"},
    2: {"INT8", "INT16", "INT32", "UINT8", "UINT16", "UINT32"},
    _BOOLS: {"BOOL"},
    _LONGS: {"INT64", "UINT64"},
    6: {"FLOAT64"},
}


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
        word = type.type.fields[_DATA_TYPE].enum.names.get(number) if number else None  # type: ignore[union-attr]
        word = word or f"type {number}"
        kind = DTYPES["uint8"] if word in _ODD else dtype_named(word)
        wrong = message.problem or told.problem or type.problem
        shape, unknown = ((), wrong) if is_cut(wrong) else self._shape(type)
        if is_cut(unknown):
            return self.missing(name, unknown, word)
        wrong = wrong or unknown
        if wrong is None and kind is None and word != "STRING":
            wrong = Problem(Status.UNSUPPORTED, f"its type is {number}, which pparse does not know")
        if wrong is not None:
            return self.new(name, kind, shape, (), word, wrong)
        # Codes of odd widths share bytes, of which they are made then.
        odd = _ODD.get(word, 0)
        made = self._elements(name, message, word, kind, (-(-prod(shape) * odd // 8),) if odd else shape)
        return codes_in(self, made, shape, odd, "little") if odd else made

    def _elements(
        self, name: str, message: Message, word: str, kind: DType | None, shape: tuple[int, ...]
    ) -> ProtoTensor:
        """Return the tensor of the elements of a Value, in a file beside the model, as bytes, or listed."""
        blob = message.message(_BLOB)
        if blob is not None and kind is not None:
            made = self.new(name, kind, shape, (), word, blob.problem)
            if blob.problem is None:
                size, file = kind.stored_nbytes(made.size), str(blob.scalar(1))
                self.put(made, self.external.find(file, int(blob.scalar(2)), word, size), size, file)
            return made
        inner = message.message(IMMEDIATE)
        value = None if inner is None else inner.message(1)
        field = 0 if value is None else next(iter(value.fields), 0)
        listing = value.message(field) if value is not None and field in value.type.fields else None
        problem = next((one.problem for one in (inner, value) if one is not None and one.problem is not None), None)
        if problem is None and not field and 0 not in shape:
            problem = Problem(Status.DAMAGED, "it has no value")
        elif problem is None and field and listing is None:
            problem = Problem(Status.DAMAGED, f"its value is field {field}")
        if value is None or problem is not None or listing is None:
            return self.new(name, kind, shape, (), word, problem)
        if field == _STRINGS and kind is None:
            return self._text(name, listing, shape)
        if field == _PACKED and kind is not None:
            where = self.bytes_of(listing, 1, "bytes")
            if isinstance(where, Problem):
                return self.new(name, kind, shape, (), word, where)
            where = self.extraction.data.range(0, 0) if where is None else where
            return self.of_bytes(name, listing, kind, shape, word, where, "bytes")
        if word not in _LISTS.get(field, ()) or kind is None:
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
