"""ONNX models in JSON form, as ``onnx.save(model, "model.json")`` writes them.

The text is a JSON document (`pparse.parsers.json.parser` has the states), the model in it that of `onnx`; see
`pparse.parsers.protobuf.json_layer`. It is recognised by its first keys: all are fields of ``onnx.ModelProto``, and the
version of the format is among them. Source: onnx/onnx serialization.py, https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

from array import array
from math import prod

from pparse.kernels.json_fold import Carry, scan
from pparse.kernels.wire import LEN, PADDING, VARINT, fields, read_value
from pparse.lazy import lazy_pattern
from pparse.parsers.json.text import BOM, WHITESPACE
from pparse.parsers.protobuf.json_layer import MessageJsonParser
from pparse.tree.parser import Confidence, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Final

    from pparse.protobuf.schema import FieldType, MessageType
    from pparse.tree.parser import Excerpt

_HEAD: Final = 16 << 10
_KEY: Final = lazy_pattern(rb'[ \t\n\r]*+"([A-Za-z_]{1,40})"[ \t\n\r]*+:[ \t\n\r]*+(.?)')
_VERSION: Final = "ir_version"
# What a model has besides; the version alone might be that of anything.
_COMPANIONS: Final = frozenset(("graph", "producer_name", "opset_import"))
_NUMBERS: Final = tuple(bytes((byte,)) for byte in b'"0123456789')
_DIMS, _DATA_TYPE = 1 << 3 | LEN, 2 << 3 | VARINT


class OnnxJsonParser(MessageJsonParser):
    """An ONNX model in JSON form."""

    name = "onnx-json"
    description = "ONNX model in JSON form"
    extensions: ClassVar[tuple[str, ...]] = (".onnx.json", ".onnxjson", ".json")
    media_type = "application/json"
    named_is_enough = False
    signatures = signatures(b"{", b" ", b"\t", b"\n", b"\r", BOM)
    message_name = "onnx.ModelProto"
    inner_format = "onnx"

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY if the first keys are those of a model."""
        return Confidence.LIKELY if _is_model(excerpt.head(_HEAD)) else Confidence.NO

    def missing_bytes(self, type: MessageType, field: FieldType, message: bytes, there: int) -> int:
        """Return how many bytes of a tensor are missing, by its type and shape."""
        if type.full_name != "onnx.TensorProto" or field.name != "raw_data":
            return 1
        from pparse.parsers.onnx.parser import ELEMENT_TYPES

        dims, data_type = _shape(message)
        known = ELEMENT_TYPES.get(data_type)
        # Elements of 6 bits have not as many in raw_data.
        if known is None or known.dtype is None or known.dtype != known.listed or max(dims, default=0) >> 62:
            return 1
        needed: int = known.dtype.stored_nbytes(prod(dims))
        return max(1, needed - there)


def _is_model(head: bytes) -> bool:
    """Return whether a text begins with an object whose keys are fields of a model."""
    text = head.removeprefix(BOM).lstrip(WHITESPACE)
    if text[:1] != b"{" or (b'"ir_version"' not in text and b'"irVersion"' not in text):
        return False
    from pparse.protos import schema

    type = schema().message(OnnxJsonParser.message_name)
    names = {field.json_name: field.name for field in type.fields.values()} | {name: name for name in type.by_name}
    starts = array("q", [1])
    scan(text, 1, Carry(), 0, starts)
    found: set[str | None] = set()
    for number, start in enumerate(starts):
        match = _KEY.match(text, start)
        if match is None and number and number == len(starts) - 1:
            break  # it is cut
        name = names.get(match[1].decode()) if match is not None else None
        if name is None or (name == _VERSION and match is not None and match[2] not in _NUMBERS):
            return False
        found.add(name)
    return _VERSION in found and not _COMPANIONS.isdisjoint(found)


def _shape(message: bytes) -> tuple[list[int], int]:
    """Return the dimensions and the type of a TensorProto that `pparse.parsers.protobuf.json_reader` began to make."""
    dims: list[int] = []
    data_type = 0
    padded = message + PADDING
    for tag, pos, end in fields(padded, 0, len(message)):
        if tag == _DATA_TYPE:
            data_type, _ = read_value(padded, pos)
        while tag == _DIMS and pos < end:
            dim, pos = read_value(padded, pos)
            dims.append(dim)
    return dims, data_type
