"""Riegeli/records files.

How a chunk is found, in order or by a position, `pparse.riegeli.chunks` tells.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.riegeli.parser import RiegeliParser
__getattr__ = lazy_names(__name__, {"RiegeliParser": "parser"})
__all__ = ["RiegeliParser"]
