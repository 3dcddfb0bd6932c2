"""JSON documents.

What ends a list, an object and each child in them, the states in `pparse.parsers.json.parser` tell. Behind a fault,
``mend`` finds the members that can still be told; ``walk`` checks every byte of the grammar.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.json.parser import JsonParser
__getattr__ = lazy_names(__name__, {"JsonParser": "parser"})
__all__ = ["JsonParser"]
