"""Tar archives."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.tar.parser import TarParser
__getattr__ = lazy_names(__name__, {"TarParser": "parser"})
__all__ = ["TarParser"]
