"""Chunked protos: a message in the chunks of a Riegeli file.

Which chunk holds which field, `pparse.parsers.cpb.metadata` tells, and ``overlay`` what they add to the message;
``parser`` is where to begin.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.cpb.parser import CpbParser
__getattr__ = lazy_names(__name__, {"CpbParser": "parser"})
__all__ = ["CpbParser"]
