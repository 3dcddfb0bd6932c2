"""GGUF: the files of llama.cpp.

How header, key-values and table follow each other, and where the bytes of tensors begin, the states in
`pparse.parsers.gguf.parser` tell.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.gguf.parser import GgufParser
__getattr__ = lazy_names(__name__, {"GgufParser": "parser"})
__all__ = ["GgufParser"]
