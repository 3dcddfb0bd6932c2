"""PyTorch models in several files: an index with its shards (``pytorch_model.bin.index.json``), and a folder that holds
one model: such an index, shards without one, or one checkpoint.

As of safetensors (`pparse.parsers.shards`, which has the states), with other names. Since many files are
called ``.bin``, those that no index names count only if they are checkpoints.
"""

from __future__ import annotations

from pparse.errors import CancelledError, ClosedError, DataChangedError, PparseError
from pparse.parsers.pytorch.zero import ZeroFolderParser
from pparse.parsers.safetensors.index import SafetensorsIndexParser
from pparse.parsers.shards import NUMBERED, ShardFolderParser, ShardIndexParser, grouped
from pparse.tree.entry import MAP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.document.extraction import FolderExtraction

# How many groups of files are looked into, and files of a group.
_MOST_GROUPS: Final = 64
_MOST_FILES: Final = 3


class PyTorchIndexParser(ShardIndexParser):
    """An index and the checkpoints that it names."""

    name = "pytorch-index"
    description = "sharded PyTorch model (index and shards)"
    extensions = (".bin.index.json",)
    viewer = "pparse.viewers.pytorch.sharded:PyTorchSetViewer"
    suffix = ".bin.index.json"
    endings = (".bin", ".pt", ".pth")
    shapes = {**ShardIndexParser.shapes, "pytorch-index": MAP}


_CHECKPOINTS: Final = ("pytorch", "pytorch-legacy", "pytorch-tar")
_ENDINGS: Final = (*PyTorchIndexParser.endings, ".ckpt", ".tar")


class PyTorchFolderParser(ShardFolderParser):
    """A folder with the checkpoints of one model."""

    name = "pytorch-folder"
    description = "folder with a PyTorch model (index and shards, shards alone, or one checkpoint)"
    member_parts = _ENDINGS
    viewer = "pparse.viewers.pytorch.sharded:PyTorchSetViewer"
    index_parser = PyTorchIndexParser
    shapes = {**ShardFolderParser.shapes, "pytorch-folder": MAP}

    @classmethod
    def groups_in(cls, folder: FolderExtraction) -> list[list[str]]:
        """Return the checkpoints in a folder; if some are numbered as shards are, only those.

        Beside a safetensors model, or a distributed checkpoint, others (``optimizer.pt``, ``training_args.bin``) belong
        to its training.
        """
        members = [name for name in folder.members if name.endswith(_ENDINGS)]
        is_other = any(name.endswith((cls.index_parser.suffix, ".distcp")) for name in folder.members)
        if is_other or ZeroFolderParser.models_in(folder):
            return []
        numbered = [name for name in members if NUMBERED.fullmatch(name)]
        groups = cls._of_checkpoints(folder, numbered)
        if groups or any(name.endswith(SafetensorsIndexParser.endings) for name in folder.members):
            return groups
        return cls._of_checkpoints(folder, [name for name in members if name not in numbered])

    @staticmethod
    def _of_checkpoints(folder: FolderExtraction, names: list[str]) -> list[list[str]]:
        """Return names in groups, without groups in which no checkpoint is found."""
        groups = grouped(names)[:_MOST_GROUPS]
        return [group for group in groups if any(_is_checkpoint(folder, name) for name in group[:_MOST_FILES])]

    def extra_files(self) -> list[str]:
        """Return files that look like shards of the index, and that it does not name."""
        return self.index.extra_files() if self.index is not None else []


def _is_checkpoint(folder: FolderExtraction, name: str) -> bool:
    try:
        found = folder.sibling(name).parse().parser.name in _CHECKPOINTS
    except (ClosedError, DataChangedError, CancelledError):
        raise
    except PparseError:  # it cannot be opened, or is of no format
        found = False
    if not found:
        folder.children.pop(name, None)  # those are the files of the model
    return found
