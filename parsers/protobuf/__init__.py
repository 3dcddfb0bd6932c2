"""Protocol buffer messages.

Where a field of a message is, `pparse.parsers.protobuf.index` finds in one pass, ``entries`` describes what is there;
``parser`` is where to begin. Behind damage, ``resumption`` tells where the message goes on.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.protobuf.parser import ProtobufParser
__getattr__ = lazy_names(__name__, {"ProtobufParser": "parser"})
__all__ = ["ProtobufParser"]
