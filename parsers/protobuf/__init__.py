"""Protocol buffer messages."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.protobuf.parser import ProtobufParser
__getattr__ = lazy_names(__name__, {"ProtobufParser": "parser"})
__all__ = ["ProtobufParser"]
