"""A sharded safetensors model: by its index, ``*.safetensors.index.json``, or the folder that holds it.

A convention of Hugging Face's libraries (`pparse.parsers.shards`, which has the states), not part of the
safetensors specification.
"""

from __future__ import annotations

from pparse.parsers.shards import ShardFolderParser, ShardIndexParser
from pparse.tree.entry import MAP
from pparse.tree.parser import Confidence


class SafetensorsIndexParser(ShardIndexParser):
    """An index and the safetensors files that it names."""

    name = "safetensors-index"
    description = "sharded safetensors model (index and shards)"
    suffix = ".safetensors.index.json"
    extensions = (suffix,)
    endings = (".safetensors",)
    if_empty = Confidence.CERTAIN
    viewer = "pparse.viewers.safetensors.sharded:SafetensorsSetViewer"
    shapes = {**ShardIndexParser.shapes, "safetensors-index": MAP}

    def head_size(self, first: bytes) -> int:
        """Return where the header of a shard ends."""
        return header_end(first)


def header_end(first: bytes) -> int:
    """Return where the header of a safetensors file ends that begins with ``first``."""
    return 8 + int.from_bytes(first[:8], "little")


class SafetensorsFolderParser(ShardFolderParser):
    """A folder with the safetensors files of one model."""

    index_parser = SafetensorsIndexParser
    name = "safetensors-folder"
    description = "folder with a safetensors model (index and shards, shards alone, or one file)"
    member_parts = (".safetensors",)
    viewer = "pparse.viewers.safetensors.sharded:SafetensorsSetViewer"
    shapes = {**ShardFolderParser.shapes, "safetensors-folder": MAP}

    def head_size(self, first: bytes) -> int:
        """Return where the header of a shard ends."""
        return header_end(first)
