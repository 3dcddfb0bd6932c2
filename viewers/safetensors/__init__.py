"""Tensors of safetensors files, and of sets of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.viewers.safetensors.sharded import SafetensorsSetViewer
    from pparse.viewers.safetensors.viewer import SafetensorsViewer
_WHERE: Final = {"SafetensorsViewer": "viewer", "SafetensorsSetViewer": "sharded"}
__all__ = ["SafetensorsSetViewer", "SafetensorsViewer"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
