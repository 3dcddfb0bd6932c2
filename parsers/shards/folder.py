"""A folder that holds one model: an index with its shards, shards without an index, or one file.

The folders of each format differ in the names of their files: a format's own parser says which those are.

States of the root::

    state          needs  reads                                            goes to
    expect_shards  0      nothing: the folder was listed when it was       DONE
                          opened; its shards become children
"""

from __future__ import annotations

from pparse.document.folder import several_models
from pparse.lazy import lazy_pattern
from pparse.parsers.shards.shard_set import ShardSet, template
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import Entry
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, ClassVar

    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.parsers.shards.index import ShardIndexParser
    from pparse.tree.result import Result

NUMBERED = lazy_pattern(r"(.*?)(\d+)-of-(\d+)(\.\w+)")
"""Names of shards that say how many there are."""


class ShardFolderParser(ShardSet):
    """A folder with the files of one model: base of those of each format."""

    index_parser: ClassVar[type[ShardIndexParser]]
    """What reads an index of this format, and knows how it and its shards are named."""

    reads = "folder"
    references = ("huggingface/transformers and huggingface_hub (sharded checkpoints)",)
    limitations = ("a folder with several models lists them and asks for one",)

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        self._index: ShardIndexParser | None = None
        models = self.models_in(folder)
        if len(models) > 1:
            raise several_models(folder.folder, models)
        if models and models[0].endswith(self.index_parser.suffix):
            self._index = folder.sibling(models[0]).parse(self.index_parser.name).parser  # type: ignore[assignment]
        self._files = sorted(name for group in self.groups_in(folder) for name in group)

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """LIKELY for a folder with a model of this format."""
        return Confidence.LIKELY if cls.models_in(folder) else Confidence.NO

    @classmethod
    def models_in(cls, folder: FolderExtraction) -> list[str]:
        """Return the indexes in a folder; without any, the first file of each group."""
        indexes = [name for name in folder.members if name.endswith(cls.index_parser.suffix)]
        return indexes or [group[0] for group in cls.groups_in(folder)]

    @classmethod
    def groups_in(cls, folder: FolderExtraction) -> list[list[str]]:
        """Return the files of models in a folder, those together whose names differ in nothing but numbers."""
        return grouped(name for name in folder.members if name.endswith(cls.index_parser.endings))

    @property
    def index(self) -> ShardIndexParser | None:
        """The parser of the index, if the folder has one."""
        return self._index

    @property
    def has_map(self) -> bool:
        """Whether there is an index with a weight map."""
        return self._index is not None and self._index.has_map

    def weight_map(self) -> Iterator[tuple[str, str | None]]:
        """Yield the weight map of the index."""
        return self._index.weight_map() if self._index is not None else iter(())

    def map_lookup(self, name: str) -> str | None:
        """Return the shard that the index names for a tensor."""
        return self._index.map_lookup(name) if self._index is not None else None

    def map_size(self) -> int | None:
        """Return the number of tensors that the index names."""
        return self._index.map_size() if self._index is not None else None

    def index_metadata(self) -> dict[str, Any]:
        """Return the index's metadata."""
        return self._index.index_metadata() if self._index is not None else {}

    def shard_names(self) -> list[str]:
        """Return the shards named by the index; without one, the files there and those their numbering lacks."""
        if self._index is not None:
            return self._index.shard_names()
        return self._numbered() or self._files

    def _numbered(self) -> list[str] | None:
        """Return all names that ``…-00001-of-00007.safetensors`` implies; None if files are not numbered like that."""
        matches = [NUMBERED.fullmatch(name) for name in self._files]
        if not matches or any(match is None for match in matches):
            return None
        first = matches[0]
        total, width = int(first[3]), len(first[2])  # type: ignore[index]
        if len({match[3] for match in matches if match}) > 1 or total > 100_000 or total < len(self._files):
            return None
        head, tail = first[1], first[4]  # type: ignore[index]
        numbers = [int(match[2]) for match in matches if match]
        base = 0 if 0 in numbers else 1
        names = [f"{head}{number:0{width}d}-of-{first[3]}{tail}" for number in range(base, base + total)]  # type: ignore[index]
        return names if set(self._files) <= set(names) else None

    def extra_files(self) -> list[str]:
        """Return files of this format in the folder that the index does not name."""
        named = set(self.shard_names())
        return [name for name in self._files if name not in named]

    def shard(self, name: str) -> Extraction:
        """Return the extraction of one shard."""
        return self._index.shard(name) if self._index is not None else super().shard(name)

    @property
    def home(self) -> Extraction:
        """What the shards lie beside: the index, if there is one."""
        return self._index.home if self._index is not None else super().home

    def root_entry(self) -> Entry:
        """Describe the root."""
        return Entry(None, self.name, 0, 0, status=None)

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin the root, or its list of shards."""
        if ctx.node.kind == "shards":
            self.emit_shards(ctx)
            return 0, DONE, 0
        return 0, self.expect_shards, 0

    def expect_shards(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Emit the index's metadata and the shards."""
        for key, value in self.index_metadata().items():
            if isinstance(value, str | int | float | bool) or value is None:
                ctx.emit(Entry(key, "metadata", 0, 0, value))
        ctx.emit(Entry("shards", "shards", 0, 0))
        return 0, DONE, 0


def grouped(names: Iterable[str]) -> list[list[str]]:
    """Return names in groups of those that differ in nothing but numbers."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(template(name), []).append(name)
    return list(groups.values())
