"""JSON documents."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.json.parser import JsonParser
__getattr__ = lazy_names(__name__, {"JsonParser": "parser"})
__all__ = ["JsonParser"]
