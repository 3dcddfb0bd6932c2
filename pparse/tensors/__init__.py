"""Tensors: element types, selections, reading, and the viewers that name tensors."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.tensors.dtype import DTYPES, DType
    from pparse.tensors.scales import dequantized
    from pparse.tensors.span import Span
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
    from pparse.tensors.viewer import Viewer
__getattr__ = lazy_names(
    __name__,
    {
        "DTYPES": "dtype",
        "DType": "dtype",
        "UNKNOWN_SHAPE": "tensor",
        "Span": "span",
        "Tensor": "tensor",
        "Extent": "viewer",
        "Viewer": "viewer",
        "dequantized": "scales",
    },
)
__all__ = ["DTYPES", "UNKNOWN_SHAPE", "DType", "Extent", "Span", "Tensor", "Viewer", "dequantized"]
