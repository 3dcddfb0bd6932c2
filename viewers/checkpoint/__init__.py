"""Tensors of TensorFlow's checkpoints."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.viewers.checkpoint.viewer import CheckpointViewer
__getattr__ = lazy_names(__name__, {"CheckpointViewer": "viewer"})
__all__ = ["CheckpointViewer"]
