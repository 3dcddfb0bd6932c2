"""Index of a sharded PyTorch model: ``pytorch_model.bin.index.json``, as of a safetensors one, with other shards."""

from __future__ import annotations

from pparse.parsers.shards import ShardIndexParser
from pparse.tree.entry import MAP


class PyTorchIndexParser(ShardIndexParser):
    """An index and the checkpoints that it names."""

    name = "pytorch-index"
    description = "sharded PyTorch model (index and shards)"
    extensions = (".bin.index.json",)
    viewer = "pparse.viewers.pytorch.sharded:PyTorchSetViewer"
    suffix = ".bin.index.json"
    endings = (".bin", ".pt", ".pth")
    shapes = {**ShardIndexParser.shapes, "pytorch-index": MAP}
