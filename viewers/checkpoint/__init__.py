"""Tensors of TensorFlow's checkpoints."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.viewers.checkpoint.version1 import Version1Viewer
    from pparse.viewers.checkpoint.viewer import CheckpointViewer, viewer_of_version
__getattr__ = lazy_names(
    __name__, {"CheckpointViewer": "viewer", "Version1Viewer": "version1", "viewer_of_version": "viewer"}
)
__all__ = ["CheckpointViewer", "Version1Viewer", "viewer_of_version"]
