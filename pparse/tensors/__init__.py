"""Tensors: element types, selections, what is read of them, and the viewers that name them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.tensors.dtype import DTYPES, DType
    from pparse.tensors.tensor import Span, Tensor
    from pparse.tensors.viewer import Extent, Viewer
_WHERE: Final = {
    "DTYPES": "dtype",
    "DType": "dtype",
    "Span": "tensor",
    "Tensor": "tensor",
    "Extent": "viewer",
    "Viewer": "viewer",
}
__all__ = ["DTYPES", "DType", "Extent", "Span", "Tensor", "Viewer"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
