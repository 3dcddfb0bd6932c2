"""TensorProto of ONNX: from the message to a `Tensor`, without reading its elements.

The rules (onnx/onnx-ml.proto; onnx.numpy_helper.to_array; docs/ExternalData.md): with ``data_location`` EXTERNAL the
bytes are in a file beside the model. Otherwise ``raw_data`` counts if it is set: little-endian, types below 8 bits
packed with the first element in the low bits. Otherwise the field of the type lists the elements, 2- and 4-bit ones by
the byte, 16- and 8-bit floats as their bits. The number of elements must be that of the shape: nothing is repeated or
left out. Strings are never raw. Tensors in parts (``segment``) are refused by every reader, and here.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from math import prod

from pparse.data.range_status import cut_status
from pparse.display.text import shorten
from pparse.findings import Status
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN, read_length
from pparse.lazy import lazy_pattern
from pparse.parsers.onnx.parser import ELEMENT_TYPES, STRING, STRING_DATA
from pparse.parsers.protobuf.message import Message, Problem
from pparse.tensors.span import Span
from pparse.tensors.tensor import UNKNOWN_SHAPE
from pparse.viewers.tensor_proto.external import ExternalFiles, ExternalMaker, PlacedOutside
from pparse.viewers.tensor_proto.maker import NumberValues, ProtoTensor, has_too_many, is_cut, numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Mapping
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.document.extraction import Extraction
    from pparse.parsers.onnx.parser import ElementType
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.protobuf.schema import Schema
    from pparse.tensors.dtype import DType

# The keys (onnx/external_data_helper.py, ExternalDataInfo); "basepath" is what some writers leave behind, and
# onnxruntime adds "prepacked_0" and so on.
_LOCATION, _OFFSET, _LENGTH, _CHECKSUM = "location", "offset", "length", "checksum"
_KEYS: Final = (_LOCATION, _OFFSET, _LENGTH, _CHECKSUM, "basepath")
_PACKED: Final = "prepacked_"
_DIGITS: Final = 19

# -- The message -------------------------------------------------------------------------------------------------------

DIMS, DATA_TYPE, SEGMENT, NAME, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 1, 2, 3, 8, 9, 13, 14
EXTERNAL: Final = 1
"""The value of ``data_location`` for bytes in another file."""
PAYLOAD: Final = frozenset((4, 5, 6, 7, RAW_DATA, 10, 11, EXTERNAL_DATA, DATA_LOCATION))
"""The fields that hold the elements, or say where they are."""
# Dimensions, not packed, and the type, as they stand first in a TensorProto.
_KIND: Final = lazy_pattern(rb"(?:\x08[\x80-\xff]{0,6}+[\x00-\x7f])*+(?:\x10[\x80-\xff]?+[\x00-\x7f])?+")
_TAG_TYPE, _TAG_NAME, _TAG_RAW = DATA_TYPE << 3, NAME << 3 | LEN, RAW_DATA << 3 | LEN
_MOST_KINDS: Final = 1024


class OnnxMaker(ExternalMaker):
    """Makes tensors from TensorProtos of one model."""

    def __init__(self, extraction: Extraction, make: ValueEntries, schema: Schema, owner: Any) -> None:
        super().__init__(extraction, make, schema.message("onnx.TensorProto"), owner)
        self.pair_type = schema.message("onnx.StringStringEntryProto")
        self.external = ExternalFiles(extraction, owner.knows_files)
        self._most_dims = extraction.session.limits.tensor_rank
        self.kinds = TensorKinds(self._most_dims)
        """The kinds of its tensors."""

    def of_head(self, shown: str, head: tuple[TensorKind, str, int], part: Range) -> ProtoTensor | None:
        """Return the tensor of a plain TensorProto, of which ``head`` was read; None: look closer."""
        if part.data is not self.extraction.data or not self._is_sure:
            return None
        kind, _, start = head
        span = Span(part.data, part.start + start, kind.nbytes, self._path)
        made = ProtoTensor(shown, kind.dtype, kind.shape, (span,))
        # Keywords would take twice the time, and so would `new`.
        made.stored_dtype, made._owner = kind.stored, self.owner
        made._maker, made._parts, made._listing = None, (), None
        return made

    def read(self, name: str, message: Message) -> ProtoTensor:
        """Return the tensor of a TensorProto."""
        number = int(message.scalar(DATA_TYPE))
        known = ELEMENT_TYPES.get(number)
        stored = known.name if known is not None else f"type {number}"
        problem = message.problem
        if problem is not None and not number:
            return self.missing(name, problem)
        shape, wrong = self._shape(message)
        cut = wrong or (problem if DIMS not in message.fields else None)
        if is_cut(cut):
            return self.missing(name, cut, stored)  # the number of elements is unknown
        wrong = wrong or self._refused(message)
        if wrong is None and known is None:
            unknown = Problem(Status.UNSUPPORTED, f"its data_type is {number}, which onnx does not have")
            wrong = unknown if number else Problem(Status.DAMAGED, "it has no data_type")
        if wrong is not None or known is None:
            return self.new(name, known.dtype if known is not None else None, shape, (), stored, wrong)
        if message.scalar(DATA_LOCATION) in (EXTERNAL, "EXTERNAL"):
            return self._external(name, message, known, shape)
        if known.dtype is None:
            return self._text(name, message, shape)
        if RAW_DATA in message.fields:
            raw = self.bytes_of(message, RAW_DATA, "raw_data")
            if isinstance(raw, Problem):
                return self.new(name, known.dtype, shape, (), stored, raw)
            where = self.extraction.data.range(0, 0) if raw is None else raw
            made = self.of_bytes(name, message, known.dtype, shape, stored, where, "raw_data")
            if len(where) and problem is not None and made.is_complete:
                self.judge(made, problem)  # what would win over the data may be behind the cut
            return made
        return self._listed(name, message, known, shape)

    @staticmethod
    def _refused(message: Message) -> Problem | None:
        """Return why a whole TensorProto with a sound shape has no values; None if it has."""
        if SEGMENT in message.fields:
            return Problem(Status.UNSUPPORTED, "it is a segment of a larger tensor, which no reader puts together")
        location = message.scalar(DATA_LOCATION)
        if location in (0, EXTERNAL, "DEFAULT", "EXTERNAL"):
            return None
        return Problem(Status.DAMAGED, f"its data_location is {location}")

    def _shape(self, message: Message) -> tuple[tuple[int, ...], Problem | None]:
        """Return the shape, and what is wrong with it."""
        most = self._most_dims
        shape = tuple(islice(numbers(message, DIMS), most + 1))
        if len(shape) > most:
            return UNKNOWN_SHAPE, Problem(Status.UNSUPPORTED, f"the tensor has more than {most} dimensions")
        if min(shape, default=0) < 0:
            return shape, Problem(Status.DAMAGED, f"a dimension of the tensor is negative: {min(shape)}")
        if has_too_many(shape):
            return shape, Problem(Status.DAMAGED, "the shape has too many elements")
        return shape, None

    # -- elements that are listed --------------------------------------------------------------------------------------

    def _listed(self, name: str, message: Message, known: ElementType, shape: tuple[int, ...]) -> ProtoTensor:
        dtype = known.listed
        assert dtype is not None  # noqa: S101 -- of strings, `_text` makes the tensor
        values = NumberValues(message, self.type.fields[known.field], known.code, known.words)
        return self.listed(name, message, values, dtype, shape, known.name)

    def _text(self, name: str, message: Message, shape: tuple[int, ...]) -> ProtoTensor:
        spans, listed = self.text_places(message, STRING_DATA)
        made = self.new(name, None, shape, spans, ELEMENT_TYPES[STRING].name)
        self.list_texts(made, message, STRING_DATA)
        problem = message.problem
        if problem is not None:
            self.judge(made, problem, cut_status(spans, damaged=problem.is_damage))
        elif listed != made.size:
            reason = f"string_data lists {listed:,} strings; the shape needs {made.size:,}"
            self.judge(made, Problem(Status.DAMAGED, reason), None, made.size, listed)
        return made

    # -- elements in another file --------------------------------------------------------------------------------------

    def _external(self, name: str, message: Message, known: ElementType, shape: tuple[int, ...]) -> ProtoTensor:
        dtype = known.dtype
        wrong = partial(self.new, name, dtype, shape, (), known.name)
        problem = message.problem
        if problem is not None:
            return self.missing(name, problem, known.name) if is_cut(problem) else wrong(problem)
        if dtype is None:
            return wrong(Problem(Status.DAMAGED, "strings cannot be in another file"))
        pairs: dict[str, str] = {}
        for pieces in message.elements(EXTERNAL_DATA):
            pair = Message(self.make, pieces, self.pair_type, message.near)
            pairs[str(pair.scalar(1))] = str(pair.scalar(2))
        made = self.new(name, dtype, shape, (), known.name)
        size = dtype.stored_nbytes(made.size)
        self.put(made, self._found(pairs, size), size, pairs.get(_LOCATION, ""))
        return made

    def _found(self, pairs: Mapping[str, str], size: int) -> PlacedOutside | Problem:
        """Return where the ``size`` bytes of a tensor are that ``pairs`` place."""
        location = pairs.get(_LOCATION, "")
        if not location:
            return Problem(Status.DAMAGED, "its bytes are in another file, and no location is given")
        place: list[int | None] = []
        for key in (_OFFSET, _LENGTH):
            text = pairs.get(key)
            if text is not None and not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
                return Problem(Status.DAMAGED, f"the {key} of its external data is {text[:40]!r}, not a number")
            place.append(None if text is None else int(text))
        placed = self.external.place(location, place[0] or 0, place[1], size, pairs.get(_CHECKSUM))
        odd = next((key for key in pairs if key not in _KEYS and not key.startswith(_PACKED)), None)
        if isinstance(placed, Problem) or odd is None or place[0] is not None:
            return placed
        if size and placed.status is Status.COMPLETE:
            reason = f"its external data have {shorten(odd, 40)!r}, which no reader knows, and no offset"
            return PlacedOutside(placed.span, Status.DAMAGED, reason, size)
        return placed


class TensorKind:
    """What the type and the dimensions of a TensorProto mean: models have few of these."""

    __slots__ = ("dtype", "head", "nbytes", "shape", "stored")

    def __init__(self, dtype: DType, shape: tuple[int, ...], nbytes: int, stored: str) -> None:
        self.dtype = dtype
        """Type of the elements."""
        self.shape = shape
        """The dimensions."""
        self.nbytes = nbytes
        """Bytes that these elements take."""
        self.stored = stored
        """What ONNX calls the type."""
        self.head = bytes((_TAG_RAW,)) + encode_varint(nbytes)
        """Tag and length of ``raw_data`` with these bytes."""


class TensorKinds(dict[bytes, TensorKind | None]):
    """The kinds of tensors by the fields that tell them, as they stand in the file; None: these are not plain."""

    def __init__(self, most_dims: int) -> None:
        self._most_dims = most_dims

    def __missing__(self, fields: bytes) -> TensorKind | None:
        if len(self) >= _MOST_KINDS:
            self.clear()
        found = self[fields] = self._read(fields)
        return found

    def _read(self, fields: bytes) -> TensorKind | None:
        shape: list[int] = []
        number = pos = 0
        while pos < len(fields):
            tag = fields[pos]
            value, pos = read_length(fields, pos + 1)
            if tag == _TAG_TYPE:
                number = value
            else:
                shape.append(value)
        known = ELEMENT_TYPES.get(number)
        if known is None or known.dtype is None or len(shape) > self._most_dims or any(one >> 40 for one in shape):
            return None
        nbytes = known.dtype.stored_nbytes(prod(shape))
        return TensorKind(known.dtype, tuple(shape), nbytes, known.name) if nbytes else None


def read_head(raw: bytes, at: int, there: int, size: int, kinds: TensorKinds) -> tuple[TensorKind, str, int] | None:
    """Return the head of a TensorProto of ``size`` bytes at ``raw[at:]``, of which ``there`` were read (more follows).

    That is: its kind, its name, and where in the message its ``raw_data`` begin, which reach to its end. None unless it
    consists of these, in this order, as onnx writes them; `PADDING` follows what was read.
    """
    fields: re.Match[bytes] = _KIND.match(raw, at, at + there)  # type: ignore[assignment]  # it matches nothing, too
    kind, pos = kinds[fields[0]], fields.end()
    if kind is None:
        return None
    try:
        behind = pos
        if raw[pos] == _TAG_NAME:
            length = raw[pos + 1]
            pos += 2
            if length >= 0x80:
                length, pos = read_length(raw, pos - 1)
            behind = pos + length
        start = behind + len(kind.head) - at
        if start > there or start + kind.nbytes != size or not raw.startswith(kind.head, behind):
            return None
        return kind, raw[pos:behind].decode(), start
    except ValueError:  # MalformedError is one
        return None
