"""Tensors and graphs of TensorFlow."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.viewers.tensorflow.viewer import TensorflowViewer
_WHERE: Final = {"TensorflowViewer": "viewer"}
__all__ = ["TensorflowViewer"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
