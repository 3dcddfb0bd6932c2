"""Protocol buffer message types, without a protobuf library."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.protobuf.schema import Schema
__getattr__ = lazy_names(__name__, {"Schema": "schema"})
__all__ = ["Schema"]
