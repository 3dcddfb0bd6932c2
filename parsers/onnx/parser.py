"""ONNX models: one message, ``onnx.ModelProto``, of any size.

There is no magic number. The states are those of a message (`pparse.parsers.protobuf.parser`): nothing but lengths is
read, so that models above 2 GiB, which protobuf's own libraries refuse, cost no more than others. What the fields
mean: onnx/onnx-ml.proto, docs/IR.md. The bytes of tensors may lie in files beside the model: docs/ExternalData.md, and
`pparse.viewers.onnx.tensors`.
"""

from __future__ import annotations

from collections import defaultdict, namedtuple
from math import prod

from pparse.errors import MalformedError
from pparse.kernels.wire import LEN, PADDING, VARINT, read_length, read_tag, read_value, scan, skip_payload
from pparse.parsers.protobuf.check import fitting_tags, is_text
from pparse.parsers.protobuf.index import accepts
from pparse.parsers.protobuf.parser import HEAD, MessageParser
from pparse.protos import schema
from pparse.tensors.dtype import DTYPES, DType
from pparse.tree.parser import Confidence, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Final

    from pparse.protobuf.schema import MessageType
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

# -- the enum TensorProto.DataType: what elements are, and how a field lists them (onnx/onnx-ml.proto) -----------------

STRING: Final = 8
# The fields of a TensorProto that list elements.
FLOAT_DATA, INT32_DATA, STRING_DATA, INT64_DATA, DOUBLE_DATA, UINT64_DATA = 4, 5, 6, 7, 10, 11


class ElementType(namedtuple("ElementType", "name dtype field code words listed")):
    """One type: its array type, and the field that lists its elements if they are not in ``raw_data``.

    ``dtype``: the type of elements; None: strings. Below 8 bits they are packed, the first in the low bits. ``code``:
    the numpy type of one listed number; a byte of it has several elements if these have 2 or 4 bits. ``words``: listed
    numbers per element, two for complex ones. ``listed``: the type of elements that are listed: those of 6 bits take a
    number each.
    """

    __slots__ = ()


def _of(name: str, dtype: str, field: int, code: str, words: int = 1, listed: DType | None = None) -> ElementType:
    return ElementType(name, DTYPES[dtype], field, code, words, listed or DTYPES[dtype])


def _six(name: str, dtype: str) -> ElementType:
    return _of(name, dtype, INT32_DATA, "u1", listed=DType(dtype, 8, DTYPES[dtype].kind))


ELEMENT_TYPES: Final[dict[int, ElementType]] = {
    1: _of("FLOAT", "float32", FLOAT_DATA, "<f4"),
    2: _of("UINT8", "uint8", INT32_DATA, "u1"),
    3: _of("INT8", "int8", INT32_DATA, "i1"),
    4: _of("UINT16", "uint16", INT32_DATA, "<u2"),
    5: _of("INT16", "int16", INT32_DATA, "<i2"),
    6: _of("INT32", "int32", INT32_DATA, "<i4"),
    7: _of("INT64", "int64", INT64_DATA, "<i8"),
    STRING: ElementType("STRING", None, STRING_DATA, "", 1, None),
    9: _of("BOOL", "bool", INT32_DATA, "u1"),
    10: _of("FLOAT16", "float16", INT32_DATA, "<u2"),
    11: _of("DOUBLE", "float64", DOUBLE_DATA, "<f8"),
    12: _of("UINT32", "uint32", UINT64_DATA, "<u4"),
    13: _of("UINT64", "uint64", UINT64_DATA, "<u8"),
    14: _of("COMPLEX64", "complex64", FLOAT_DATA, "<f4", 2),
    15: _of("COMPLEX128", "complex128", DOUBLE_DATA, "<f8", 2),
    16: _of("BFLOAT16", "bfloat16", INT32_DATA, "<u2"),
    17: _of("FLOAT8E4M3FN", "float8_e4m3fn", INT32_DATA, "u1"),
    18: _of("FLOAT8E4M3FNUZ", "float8_e4m3fnuz", INT32_DATA, "u1"),
    19: _of("FLOAT8E5M2", "float8_e5m2", INT32_DATA, "u1"),
    20: _of("FLOAT8E5M2FNUZ", "float8_e5m2fnuz", INT32_DATA, "u1"),
    21: _of("UINT4", "uint4", INT32_DATA, "u1"),
    22: _of("INT4", "int4", INT32_DATA, "u1"),
    23: _of("FLOAT4E2M1", "float4_e2m1fn", INT32_DATA, "u1"),
    24: _of("FLOAT8E8M0", "float8_e8m0fnu", INT32_DATA, "u1"),
    25: _of("UINT2", "uint2", INT32_DATA, "u1"),
    26: _of("INT2", "int2", INT32_DATA, "u1"),
    27: _six("FLOAT6E2M3", "float6_e2m3fn"),
    28: _six("FLOAT6E3M2", "float6_e3m2fn"),
}


def type_name(number: int) -> str:
    """Return the name of a type as numpy or ml_dtypes has it: ``float32``; ``string``; ``type 99`` if it is unknown."""
    known = ELEMENT_TYPES.get(number)
    if known is None:
        return f"type {number}" if number else "undefined"

    return known.dtype.name if known.dtype is not None else "string"


# -- models ------------------------------------------------------------------------------------------------------------

MODEL: Final = "onnx.ModelProto"
# The version of the format, then its producer, the graph or the operator sets.
_IR_VERSION: Final = 0x08
_NEXT: Final = tuple(number << 3 | LEN for number in (2, 3, 4, 6, 7, 8, 14, 20, 25))
_GRAPH: Final = 7 << 3 | LEN
_OPSETS: Final = 8 << 3 | LEN
_LATEST: Final = 64
# So many tags must fit, down to the leaves: an operator set and a graph with a node have them.
_FITTING: Final = 5


class OnnxParser(MessageParser):
    """An ONNX model."""

    name = "onnx"
    description = "ONNX model"
    extensions: ClassVar[tuple[str, ...]] = (".onnx",)
    media_type = "application/onnx"
    message_name = MODEL
    viewer = "pparse.viewers.onnx.viewer:OnnxViewer"
    signatures = signatures(b"\x08")
    references: ClassVar[tuple[str, ...]] = (
        "onnx/onnx onnx/onnx-ml.proto, docs/IR.md, docs/ExternalData.md, docs/ExternalDataSecurity.md",
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "there are no checksums but those of files with external data: a changed byte may look like another value",
        "the text forms (onnxtxt, textproto) are not read",
        "nothing is computed: shapes are those that the file states, and constants are not folded",
    )

    @classmethod
    def shows(cls, head: bytes, type: MessageType) -> bool:
        """Return whether a version comes first, and behind it a graph, or sets of operators."""
        begins = len(head) > 3 and head[0] == _IR_VERSION and 1 <= head[1] <= _LATEST and head[2] in _NEXT
        if not begins or fitting_tags(head, type) < _FITTING:
            return False
        found: defaultdict[int, list[int]] = defaultdict(list)
        try:
            scan(head + PADDING, 0, len(head), found, [])
        except MalformedError:
            return False
        return bool(found[_GRAPH] or found[_OPSETS])


# -- values as files: a TensorProto, SequenceProto, OptionalProto or MapProto (onnx-ml.proto, onnx-data.proto) ---------

# So the inputs and outputs of a model are kept for its tests (``test_data_set_0/input_0.pb``), and so
# `onnx.save_tensor` writes. None has a magic number, and all are called ``.pb``: one is recognised by a tensor whose
# type and shape need just the bytes that it has.

TENSOR, SEQUENCE, MAP = "onnx.TensorProto", "onnx.SequenceProto", "onnx.MapProto"
# Fields of a TensorProto: its shape, and its type; raw and external data.
_DIMS, _TYPE, _RAW, _EXTERNAL, _LOCATION = 1, 2, 9, 13, 14
# Fields of a SequenceProto and a MapProto: a name, and the kind of what it has; of a map, its values.
_NAME, _KIND, _VALUES = 1, 2, 5
# The kinds of elements that a SequenceProto has, each in the field that is two behind.
_TENSORS, _SPARSE, _SEQUENCES, _MAPS, _OPTIONALS = range(1, 6)
_KEY_TYPES: Final = frozenset((2, 3, 4, 5, 6, 7, 8, 12, 13))
_MOST_FIELDS, _MOST_DIMS, _DEEPEST = 1_000, 64, 8
# Bytes of a tensor whose number does not come about by chance.
_LEAST: Final = 4
# A length beyond this is none.
_FARTHEST: Final = 1 << 62


class OnnxDataParser(MessageParser):
    """A value of ONNX: a tensor, or a sequence, an optional value or a map of tensors."""

    name = "onnx-data"
    description = "ONNX tensor, sequence, optional value or map"
    extensions: ClassVar[tuple[str, ...]] = (".pb",)
    signatures = signatures(b"\x08", b"\n")
    media_type = "application/onnx"
    viewer = "pparse.viewers.onnx.viewer:OnnxDataViewer"
    references: ClassVar[tuple[str, ...]] = ("onnx/onnx onnx/onnx-ml.proto, onnx/onnx-data.proto",)
    limitations: ClassVar[tuple[str, ...]] = (
        "told by a tensor that has just the bytes that its type and shape need; -f onnx-data reads others",
        "as bytes, an optional value is a sequence of one, and shown as that",
        "there are no checksums: a changed byte may look like another value",
    )

    def __init__(self, result: Result) -> None:
        extraction = result.extraction
        head = extraction.data.known(extraction.start, min(HEAD, extraction.find_end() - extraction.start))
        self.message_name = kind_of(head, _LEAST) or kind_of(head) or TENSOR  # type: ignore[misc]
        super().__init__(result)

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by a tensor of some bytes, just as many as it needs; LIKELY by a smaller one and the extension."""
        head = excerpt.head(HEAD)
        if kind_of(head, _LEAST) is not None:
            return Confidence.CERTAIN
        named = excerpt.ends_with(cls.extensions)
        return Confidence.LIKELY if named and kind_of(head) is not None else Confidence.NO


def kind_of(head: bytes, least: int = 0) -> str | None:
    """Return which message begins with ``head`` by all that is seen of it: `TENSOR`, `SEQUENCE`, `MAP`; None: none.

    ``least``: how many bytes its first tensor has to have.
    """
    found = _MessageHead(head, least)
    if found.is_tensor(0, _FARTHEST):
        return TENSOR
    if found.holds_tensor(_SEQUENCES):
        return SEQUENCE
    return MAP if found.holds_tensor(_MAPS) else None


class _MessageHead:
    """The beginning of a message."""

    def __init__(self, head: bytes, least: int) -> None:
        self._least = least
        self._block = head + PADDING
        self._there = len(head)

    def _fields(self, at: int, end: int, name: str) -> dict[int, list[tuple[int, int]]]:
        """Return the values of the first 1,000 fields of a message by number: a number and -1, or a place and a length.

        None at all if one does not fit into the message, or is no field of it: unless the first tensor has some bytes,
        those before that count, since elements behind it may be damaged.
        """
        type: MessageType = schema().message(name)
        found: dict[int, list[tuple[int, int]]] = {}
        try:
            for _ in range(_MOST_FIELDS):
                if at >= min(end, self._there):
                    break
                tag, at = read_tag(self._block, at)
                field = type.fields.get(tag >> 3)
                if field is None or not accepts(field, tag & 7):
                    return found if self._least else {}
                item = at, -1
                if tag & 7 == LEN:
                    length, at = read_length(self._block, at)
                    item, at = (at, length), at + length
                elif tag & 7 == VARINT:
                    value, at = read_value(self._block, at)
                    item = value, -1
                else:
                    at = skip_payload(self._block, at, tag & 7)
                found.setdefault(tag >> 3, []).append(item)
        except MalformedError:
            return found if self._least else {}
        return found if at <= end else {}

    def is_tensor(self, at: int, end: int) -> bool:
        """Say whether a message is a TensorProto whose type and shape need just the bytes that it has."""
        found = self._fields(at, end, TENSOR)
        known = ELEMENT_TYPES.get(found[_TYPE][-1][0]) if _TYPE in found else None
        dims = self._numbers(found.get(_DIMS, []))
        if known is None or dims is None or any(length >> 40 for length in dims):
            return False
        count = prod(dims)
        if count * (1 if known.dtype is None else known.dtype.itemsize) < self._least:
            return False
        if (1, -1) in found.get(_LOCATION, ()):
            return _EXTERNAL in found
        listed = found.get(known.field, [])
        if known.dtype is None:
            return bool(dims or listed) and (len(listed) == count or len(listed) >= _MOST_FIELDS - _MOST_DIMS)
        if _RAW in found:
            size = found[_RAW][-1][1]
            return bool((dims or size) and size == known.dtype.stored_nbytes(count))
        wanted = known.words * (known.listed.stored_nbytes(count) if known.listed.packed else count)
        if len(listed) != 1 or listed[0][1] < 0:
            return bool(dims) and (len(listed) == wanted or len(listed) >= _MOST_FIELDS - _MOST_DIMS)
        least = {FLOAT_DATA: 4, DOUBLE_DATA: 8}.get(known.field, 1)
        most = least if least > 1 else 10
        return bool(wanted > 0 and least * wanted <= listed[0][1] <= most * wanted)

    def _numbers(self, items: list[tuple[int, int]]) -> list[int] | None:
        """Return the numbers of a repeated field, packed or not; None if there are too many."""
        numbers: list[int] = []
        for at, length in items:
            if length < 0:
                numbers.append(at)
            stop = min(at + length, self._there)
            while length > 0 and at < stop and len(numbers) <= _MOST_DIMS:
                value, at = read_value(self._block, at)
                numbers.append(value)
        return numbers if len(numbers) <= _MOST_DIMS else None

    def holds_tensor(self, kind: int) -> bool:
        """Say whether the message is one of this kind, down to the first tensor in it."""
        at, end = 0, _FARTHEST
        for _ in range(_DEEPEST):
            if kind == _TENSORS:
                return self.is_tensor(at, end)
            name = {_SPARSE: "onnx.SparseTensorProto", _MAPS: MAP}.get(kind, SEQUENCE)
            found = self._fields(at, end, name)
            if kind == _SPARSE:
                inner, kind = found.get(1), _TENSORS
            else:
                label = found.get(_NAME, [(0, 0)])[-1]
                told = found[_KIND][-1][0] if _KIND in found else 0
                if not is_text(self._block[label[0] : sum(label)]):
                    return False
                if kind == _MAPS:
                    inner, kind = found.get(_VALUES) if told in _KEY_TYPES else None, _SEQUENCES
                elif told > _OPTIONALS or (not self._least and set(found) - {_NAME, _KIND, told + 2}):
                    return False  # with a tensor of some bytes, the tag of another element may be damaged
                else:
                    inner, kind = found.get(told + 2) if told else None, told
            if not inner or inner[0][1] < 0:
                return False
            at, end = inner[0][0], sum(inner[0])
        return False
