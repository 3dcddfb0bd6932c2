"""Tar archives.

What a header says of its member, its size above all, `pparse.parsers.tar.headers` tells; ``parser`` goes from one to
the next. Behind damage, ``source`` tells what a header was, and ``mend`` where a member ends.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.tar.parser import TarParser
__getattr__ = lazy_names(__name__, {"TarParser": "parser"})
__all__ = ["TarParser"]
