"""Tensors and graphs of ONNX models."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.viewers.onnx.viewer import OnnxViewer
__getattr__ = lazy_names(__name__, {"OnnxViewer": "viewer"})
__all__ = ["OnnxViewer"]
