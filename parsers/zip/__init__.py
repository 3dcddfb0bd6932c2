"""Zip archives.

How a member is found by its name, `pparse.parsers.zip.records` tells; what the directory is worth, ``trust``. Without
one that is trusted, ``scan`` goes from local header to local header.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.zip.parser import ZipParser
__getattr__ = lazy_names(__name__, {"ZipParser": "parser"})
__all__ = ["ZipParser"]
