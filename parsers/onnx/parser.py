"""ONNX models: one message, ``onnx.ModelProto``, of any size.

There is no magic number. The states are those of a message (`pparse.parsers.protobuf.parser`): nothing but lengths is
read, so that models above 2 GiB, which protobuf's own libraries refuse, cost no more than others. What the fields
mean: onnx/onnx-ml.proto, docs/IR.md. The bytes of tensors may lie in files beside the model: docs/ExternalData.md, and
`pparse.viewers.onnx.external`.
"""

from __future__ import annotations

from collections import defaultdict

from pparse.errors import MalformedError
from pparse.kernels.wire import LEN, PADDING, scan
from pparse.parsers.protobuf.fits import fitting_tags
from pparse.parsers.protobuf.parser import MessageParser
from pparse.tree.parser import signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Final

    from pparse.protobuf.schema import MessageType

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
