"""Tensors of GGUF files, alone and split."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.viewers.gguf.viewer import GgufViewer
__getattr__ = lazy_names(__name__, {"GgufViewer": "viewer"})
__all__ = ["GgufViewer"]
