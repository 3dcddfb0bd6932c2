"""Models in several files: by an index, by a folder, or by names with numbers. Formats derive from these."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.shards.folder import ShardFolderParser
    from pparse.parsers.shards.index import ShardIndexParser
    from pparse.parsers.shards.shard_set import ShardSet
__getattr__ = lazy_names(
    __name__, {"ShardFolderParser": "folder", "ShardIndexParser": "index", "ShardSet": "shard_set"}
)
__all__ = ["ShardFolderParser", "ShardIndexParser", "ShardSet"]
