"""Tensors of models in several files."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.viewers.shards.viewer import ShardSetViewer
__getattr__ = lazy_names(__name__, {"ShardSetViewer": "viewer"})
__all__ = ["ShardSetViewer"]
