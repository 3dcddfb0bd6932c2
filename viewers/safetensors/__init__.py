"""Tensors of safetensors files and sharded models."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.viewers.safetensors.sharded import SafetensorsSetViewer
    from pparse.viewers.safetensors.viewer import SafetensorsViewer
__getattr__ = lazy_names(__name__, {"SafetensorsViewer": "viewer", "SafetensorsSetViewer": "sharded"})
__all__ = ["SafetensorsSetViewer", "SafetensorsViewer"]
