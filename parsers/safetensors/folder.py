"""A folder that holds one safetensors model (`pparse.parsers.shards`, which has the states)."""

from __future__ import annotations

from pparse.parsers.safetensors.index import SafetensorsIndexParser, header_end
from pparse.parsers.shards import ShardFolderParser
from pparse.tree.entry import MAP


class SafetensorsFolderParser(ShardFolderParser):
    """A folder with the safetensors files of one model."""

    index_parser = SafetensorsIndexParser
    name = "safetensors-folder"
    description = "folder with a safetensors model (index and shards, shards alone, or one file)"
    viewer = "pparse.viewers.safetensors.sharded:SafetensorsSetViewer"
    shapes = {**ShardFolderParser.shapes, "safetensors-folder": MAP}

    def head_size(self, first: bytes) -> int:
        """Return where the header of a shard ends."""
        return header_end(first)
