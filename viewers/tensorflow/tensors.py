"""TensorProto: from the message to a `Tensor`, without reading its elements.

The rules (tensorflow/core/framework/tensor.cc, Tensor::FromProto; tensor_util.MakeNdarray): a ``tensor_content`` that
is not empty counts, and must have exactly the bytes for type and shape, in little-endian order; types below 8 bits take
a byte each. Otherwise the field of the type lists elements. If there are too few, the last one repeats to the end; if
there are none, all are zeros (here too, with the warning ``no-values``, since the values may have been lost). If there
are too many, MakeNdarray refuses them, while FromProto, which runs graphs, takes the first ones; so do we, with the
warning ``extra-values``. A tensor without a type is DAMAGED: nothing reads its values.

Strings (DT_STRING) are not numbers: their dtype is None, and `ProtoTensor.strings` yields them.
"""

from __future__ import annotations

from functools import partial

from pparse.data.base import Range
from pparse.data.range_status import cut_status
from pparse.errors import MalformedError
from pparse.findings import Status
from pparse.kernels.wire import PADDING, read_length, read_value
from pparse.parsers.protobuf.index import ChunkRange
from pparse.parsers.protobuf.message import Message, Problem
from pparse.tensors.dtype import DTYPES, in_bytes
from pparse.tensors.tensor import UNKNOWN_SHAPE
from pparse.viewers.tensor_proto.maker import NumberValues, TensorMaker, has_too_many, is_cut, string_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.findings import Finding
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.parsers.protobuf.index import Piece, WireWindow
    from pparse.protobuf.schema import Schema
    from pparse.tensors.dtype import DType
    from pparse.viewers.tensor_proto.maker import ProtoTensor

# -- the enum DataType: what elements are, and which field of a TensorProto lists them ---------------------------------

REFERENCE: Final = 100  # added to the number of a type, for a reference to one
TEXT_TYPES: Final = (7, 7 + REFERENCE)
# Fields of a TensorProto, and of the messages of its shape.
STRING_FIELD: Final = 8
_FLOAT8: Final = 18


# Per number of the enum DataType: the type, the field that lists its elements, the numpy type of one listed number in
# the array, and the number of these per element.
ELEMENT_TYPES: Final[dict[int, tuple[DType, int, str, int]]] = {
    1: (DTYPES["float32"], 5, "<f4", 1),
    2: (DTYPES["float64"], 6, "<f8", 1),
    3: (DTYPES["int32"], 7, "<i4", 1),
    4: (DTYPES["uint8"], 7, "u1", 1),
    5: (DTYPES["int16"], 7, "<i2", 1),
    6: (DTYPES["int8"], 7, "i1", 1),
    8: (DTYPES["complex64"], 9, "<f4", 2),
    9: (DTYPES["int64"], 10, "<i8", 1),
    10: (DTYPES["bool"], 11, "u1", 1),
    11: (DTYPES["int8"], 7, "i1", 1),
    12: (DTYPES["uint8"], 7, "u1", 1),
    13: (DTYPES["int32"], 7, "<i4", 1),
    14: (DTYPES["bfloat16"], 13, "<u2", 1),
    15: (DTYPES["int16"], 7, "<i2", 1),
    16: (DTYPES["uint16"], 7, "<u2", 1),
    17: (DTYPES["uint16"], 7, "<u2", 1),
    18: (DTYPES["complex128"], 12, "<f8", 2),
    19: (DTYPES["float16"], 13, "<u2", 1),
    22: (DTYPES["uint32"], 16, "<u4", 1),
    23: (DTYPES["uint64"], 17, "<u8", 1),
    24: (DTYPES["float8_e5m2"], _FLOAT8, "u1", 1),
    25: (DTYPES["float8_e4m3fn"], _FLOAT8, "u1", 1),
    26: (DTYPES["float8_e4m3fnuz"], _FLOAT8, "u1", 1),
    27: (DTYPES["float8_e4m3b11fnuz"], _FLOAT8, "u1", 1),
    28: (DTYPES["float8_e5m2fnuz"], _FLOAT8, "u1", 1),
    29: (in_bytes("int4"), 7, "i1", 1),
    30: (in_bytes("uint4"), 7, "u1", 1),
    31: (in_bytes("int2"), 7, "i1", 1),
    32: (in_bytes("uint2"), 7, "u1", 1),
    33: (in_bytes("float4_e2m1fn"), _FLOAT8, "u1", 1),
}


def element_type(number: int) -> tuple[DType, int, str, int] | None:
    """Return what `ELEMENT_TYPES` has on a number ; a reference type counts as the type it refers to; None: nothing."""
    return ELEMENT_TYPES.get(number - REFERENCE if number > REFERENCE else number)


def dtype_of(number: int) -> DType | None:
    """Return the element type of a number of the enum DataType; None for texts, and for what has no numbers."""
    found = element_type(number)

    return found[0] if found is not None else None


# -- the message -------------------------------------------------------------------------------------------------------

_SMALL: Final = 16 << 10
_MAX_RANK: Final = 254

# Fields of a TensorProto, and of the messages of its shape.
_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
_DIM, _UNKNOWN_RANK, _SIZE = 2, 3, 1


class TensorflowMaker(TensorMaker):
    """Makes tensors from TensorProtos of one document.

    ``lost_content``: chunks exist, but no metadata to assign them, so the values of an empty constant are elsewhere.
    ``misplaced`` tells what is wrong with the places of chunks, if anything: such a constant may then be damaged.
    """

    def __init__(
        self,
        extraction: Extraction,
        make: ValueEntries,
        schema: Schema,
        owner: Any,
        misplaced: Callable[[], str | None] = lambda: None,
    ) -> None:
        super().__init__(extraction, make, schema.message("tensorflow.TensorProto"), owner)
        self.shape_type = schema.message("tensorflow.TensorShapeProto")
        self.names = schema.enum("tensorflow.DataType").names
        self.lost_content = False
        self._misplaced = misplaced

    # -- the message ---------------------------------------------------------------------------------------------------

    def quick(self, name: str, pieces: Sequence[Piece], near: WireWindow) -> ProtoTensor | None:
        """Return the tensor of a small TensorProto with ``tensor_content``, if that is all."""
        part = pieces[0]
        if not isinstance(part, Range) or isinstance(part, ChunkRange) or part.data is not near.data:
            return None
        size = part.end - part.start
        if size > _SMALL or part.end > self.make.data_end(part):
            return None
        found = content_tensor(near.read(part.start, part.end) + PADDING, size)
        known = ELEMENT_TYPES.get(found[0]) if found is not None else None
        if found is None or known is None:
            return None
        number, shape, start, length = found
        spans = self.spans(part.data.range(part.start + start, part.start + start + length))
        made = self.new(name, known[0], shape, spans, self.names[number])
        # What is odd is looked at again, and gets its words there.
        return made if made.nbytes == length and len(made.spans) == 1 else None

    def read(self, name: str, message: Message) -> ProtoTensor:
        """Return the tensor of a TensorProto."""
        number = int(message.scalar(_DTYPE))
        stored = self.names.get(number, f"DT_{number}")
        problem = message.problem
        if not number and problem is not None:
            return self.missing(name, problem)
        shape, wrong = self._shape(message)
        known = element_type(number)
        cut = wrong or (problem if _SHAPE not in message.fields else None)
        if is_cut(cut):
            return self.missing(name, cut, stored)  # the number of elements is unknown
        content = wrong or self.bytes_of(message, _CONTENT, "tensor_content")
        if isinstance(content, Problem):
            return self.new(name, known[0] if known is not None else None, shape, (), stored, content)
        content = content if content is not None and len(content) else None
        if number in TEXT_TYPES:
            return self._text(name, message, shape, stored, content)
        if known is None:
            problem = Problem(Status.UNSUPPORTED, f"elements of type {stored} are not numbers")
            if not number and content is None and message.fields:
                problem = Problem(Status.DAMAGED, "it has no type and no values: they were lost or never written")
            return self.new(name, None, shape, self.spans(content) if content is not None else (), stored, problem)
        if content is not None:
            return self.of_bytes(name, message, known[0], shape, stored, content, "tensor_content")
        return self._from_values(name, message, known, shape, stored)

    # -- type and shape ----------------------------------------------------------------------------------------------

    def _shape(self, message: Message) -> tuple[tuple[int, ...], Problem | None]:
        """Return the shape, with -1 for unknown dimensions, and what is wrong with it for a constant."""
        shape = message.message(_SHAPE)
        if shape is None:
            return (), None
        if shape.problem is not None:
            return UNKNOWN_SHAPE, shape.problem
        sizes: list[int] = []
        dim_type = self.shape_type.fields[_DIM].message
        for pieces in shape.elements(_DIM):
            if len(sizes) >= _MAX_RANK:
                return UNKNOWN_SHAPE, Problem(Status.DAMAGED, f"the tensor has more than {_MAX_RANK} dimensions")
            assert dim_type is not None  # noqa: S101 -- the schema is ours
            dim = Message(self.make, pieces, dim_type, shape.near)
            if dim.problem is not None:
                return tuple(sizes), dim.problem
            sizes.append(int(dim.scalar(_SIZE)))
        found = tuple(sizes)
        if found and shape.scalar(_UNKNOWN_RANK):  # without dimensions, TensorFlow reads a scalar anyway
            return found, Problem(Status.DAMAGED, "the tensor has dimensions, but its rank is marked as unknown")
        if min(sizes, default=0) < 0:
            return found, Problem(Status.DAMAGED, "a dimension of the tensor is unknown")
        if has_too_many(found):
            return found, Problem(Status.DAMAGED, "the shape has too many elements")
        return found, None

    # -- elements ----------------------------------------------------------------------------------------------------

    def _from_values(
        self, name: str, message: Message, known: tuple[DType, int, str, int], shape: tuple[int, ...], stored: str
    ) -> ProtoTensor:
        dtype, number, code, words = known
        values = NumberValues(message, self.type.fields[number], code, words)
        made = self.new(name, dtype, shape, (), stored)
        count = made.size
        problem = message.problem
        if not self.as_stored(made, values, count):
            listed = values.count if values.counted or values.cut else None
            cut = problem is not None or values.cut
            self.list_values(made, dtype, values, dtype.itemsize, whole=not cut)
            if listed is not None:
                repeats = "zeros" if not listed else "splat" if listed == 1 else "repeat"
                made.encoding = "typed" if listed >= count else repeats
            if listed is not None and not values.cut and (listed > count or values.extra_words):
                made.finding = self._extra(name, count, listed)
            if cut:
                self._judge_cut(made, values, problem)
            elif listed == 0 and count:
                self._no_values(made, "zeros")
        if not made.spans and made.size and self.lost_content and problem is None:
            reason = "its values are in a chunk that cannot be identified without the metadata"
            self.judge(made, Problem(Status.MISSING, reason))
        self._check_empty(made)
        return made

    def _extra(self, name: str, count: int, listed: int) -> Finding:
        reason = f"{listed} values for {count} elements: only the first ones are used"
        return self.warning("extra-values", reason, name, count, listed)

    def _no_values(self, made: ProtoTensor, what: str) -> None:
        """Warn of a tensor without values: this is valid, but may also be what is left of lost values."""
        reason = f"it has no values: all {made.size:,} elements read as {what}"
        made.finding = self.warning("no-values", reason, made.name, made.size, 0)

    def _check_empty(self, made: ProtoTensor) -> None:
        """Do not let a constant without values read as zeros if its chunk may have gone elsewhere."""
        if made.spans or not made.size or not made.is_complete:
            return
        if (reason := self._misplaced()) is not None:
            why = f"it has no values, and chunks are in wrong places: {reason}"
            self.judge(made, Problem(Status.DAMAGED, why))

    def _judge_cut(self, made: ProtoTensor, values: NumberValues, problem: Problem | None) -> None:
        """Set the status of a tensor whose message ends early: its last values may be missing, so nothing repeats."""
        if problem is not None and problem.is_damage:
            self.judge(made, problem)
            return
        if not made.size:
            return
        there = values.count
        made.encoding = "typed"
        problem = problem or Problem(cut_status(there), "the file ends inside its values")
        self.judge(made, problem, cut_status(there), made.size, there)

    def _text(
        self, name: str, message: Message, shape: tuple[int, ...], stored: str, content: Range | None
    ) -> ProtoTensor:
        spans, listed = self.text_places(message, STRING_FIELD) if content is None else (self.spans(content), 0)
        made = self.new(name, None, shape, spans, stored)
        if content is not None:
            made._listing = partial(string_list, content, made.size), content
        else:
            self.list_texts(made, message, STRING_FIELD)
            if listed > made.size:
                made.finding = self._extra(name, made.size, listed)
        problem = message.problem
        if problem is not None or (content is not None and content.end > self.make.data_end(content)):
            problem = problem or Problem(Status.TRUNCATED, "the file ends inside its strings")
            self.judge(made, problem, cut_status(made.spans, damaged=problem.is_damage))
        elif self.lost_content and not made.spans and made.size:
            reason = "its strings are in a chunk that cannot be identified without the metadata"
            self.judge(made, Problem(Status.MISSING, reason))
        elif not made.spans and made.size:
            self._no_values(made, "empty strings")
        self._check_empty(made)
        return made


def content_tensor(raw: bytes, size: int) -> tuple[int, tuple[int, ...], int, int] | None:
    """Return type, shape, and begin and length of the content of the TensorProto ``raw[:size]`` (`PADDING` follows it).

    None unless it consists of just a type, a shape of small dimensions, perhaps a version, and a content.
    """
    number = start = length = 0
    shape: list[int] = []
    pos = 0
    order = 0
    try:
        while pos < size:
            tag = raw[pos]
            if tag <= order:
                return None  # a repeated field, or another order
            order = tag
            pos += 1
            if tag in (0x08, 0x18):
                value, pos = read_value(raw, pos)
                number = value if tag == 0x08 else number
                continue
            length, pos = read_length(raw, pos)
            end = pos + length
            if tag == 0x22:
                start = pos
            elif tag == 0x12 and end <= size:
                while pos < end:
                    if raw[pos] != 0x12 or raw[pos + 2] != 0x08:
                        return None
                    after = pos + 2 + raw[pos + 1]
                    value, pos = read_value(raw, pos + 3)
                    if pos != after or after > end or value >> 40:
                        return None
                    shape.append(value)
            else:
                return None
            pos = end
    except (MalformedError, IndexError):
        return None
    is_plain = pos == size and order == 0x22 and length and len(shape) < 8
    return (number, tuple(shape), start, length) if is_plain else None
