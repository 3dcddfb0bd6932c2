"""Models in several files: by an index, by a folder, or by names with numbers. Formats derive from these."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.shards.shard_set import ShardFolderParser, ShardIndexParser, ShardSet
__getattr__ = lazy_names(
    __name__, {"ShardFolderParser": "shard_set", "ShardIndexParser": "shard_set", "ShardSet": "shard_set"}
)
__all__ = ["ShardFolderParser", "ShardIndexParser", "ShardSet"]
