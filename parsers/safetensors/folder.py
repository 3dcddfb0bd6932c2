"""A folder that holds one safetensors model: an index with its shards, shards without an index, or one file.

States of the root::

    state          needs  reads                                            goes to
    expect_shards  0      nothing: the folder was listed when it was       DONE
                          opened; its shards become children
"""

from __future__ import annotations

from pparse.errors import PathError
from pparse.lazy import lazy_pattern
from pparse.parsers.safetensors.index import SUFFIX, SafetensorsIndexParser, ShardSet, template
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import Entry
from pparse.tree.recognition import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.tree.result import Result

_NUMBERED = lazy_pattern(r"(.*?)(\d+)-of-(\d+)(\.safetensors)")


class SafetensorsFolderParser(ShardSet):
    """A folder with the files of one model."""

    name = "safetensors-folder"
    description = "folder with a safetensors model (index and shards, shards alone, or one file)"
    reads = "folder"
    references = ("huggingface/transformers and huggingface_hub (sharded checkpoints)",)
    limitations = ("a folder with several models lists them and asks for one",)

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        self._index: SafetensorsIndexParser | None = None
        indexes = [name for name in folder.members if name.endswith(SUFFIX)]
        files = [name for name in folder.members if name.endswith(".safetensors")]
        groups: dict[str, list[str]] = {}
        for name in files:
            groups.setdefault(template(name), []).append(name)
        if len(indexes) > 1 or (not indexes and len(groups) > 1):
            models = indexes or [group[0] for group in groups.values()]
            shown = ", ".join(models[:8]) + (f" and {len(models) - 8} more" if len(models) > 8 else "")
            path = folder.folder.path
            raise PathError(
                f"the folder holds several models; name one of them, e.g. {path.rstrip('/')}/{models[0]}. "
                f"There are: {shown}",
                path=path,
            )
        if indexes:
            self._index = folder.sibling(indexes[0]).parse("safetensors-index").parser  # type: ignore[assignment]
        self._files = sorted(files)

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """LIKELY for a folder with safetensors files or an index of them."""
        found = any(name.endswith((".safetensors", SUFFIX)) for name in folder.members)
        return Confidence.LIKELY if found else Confidence.NO

    @property
    def index(self) -> SafetensorsIndexParser | None:
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
        matches = [_NUMBERED.fullmatch(name) for name in self._files]
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
        """Return safetensors files in the folder that the index does not name."""
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
        return Entry(None, "safetensors-folder", 0, 0, status=None)

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
