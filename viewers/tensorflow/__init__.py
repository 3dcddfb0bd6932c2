"""Tensors and graphs of TensorFlow models."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.viewers.tensorflow.viewer import TensorflowViewer
__getattr__ = lazy_names(__name__, {"TensorflowViewer": "viewer"})
__all__ = ["TensorflowViewer"]
