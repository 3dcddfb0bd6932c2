"""Conversion: any viewer's tensors into a new safetensors file, a set of them, an .npz, or a GGUF file."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.conversion.converting import convert, convert_view
    from pparse.conversion.plan import LeftOut, Options, Rename, Report
__getattr__ = lazy_names(
    __name__,
    {
        "LeftOut": "plan",
        "Options": "plan",
        "Rename": "plan",
        "Report": "plan",
        "convert": "converting",
        "convert_view": "converting",
    },
)
__all__ = ["LeftOut", "Options", "Rename", "Report", "convert", "convert_view"]
