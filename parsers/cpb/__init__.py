"""Chunked protos: a message in the chunks of a Riegeli file."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.cpb.parser import CpbParser
__getattr__ = lazy_names(__name__, {"CpbParser": "parser"})
__all__ = ["CpbParser"]
