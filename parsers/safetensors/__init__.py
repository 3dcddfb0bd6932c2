"""Safetensors: a single file, the index of a sharded model, or a folder of shards.

What an entry of the header says, `pparse.parsers.safetensors.header` tells, where its bytes lie, ``parser``; which file
has a tensor, ``index``. A length that is wrong, ``length`` finds again.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.safetensors.index import SafetensorsFolderParser, SafetensorsIndexParser
    from pparse.parsers.safetensors.parser import SafetensorsParser
__getattr__ = lazy_names(
    __name__, {"SafetensorsParser": "parser", "SafetensorsFolderParser": "folder", "SafetensorsIndexParser": "index"}
)
__all__ = ["SafetensorsFolderParser", "SafetensorsIndexParser", "SafetensorsParser"]
