"""Editing: metadata and names of a safetensors or GGUF file, without copying what the tensors hold."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.editing.editing import edit
    from pparse.editing.plan import EditResult
__getattr__ = lazy_names(__name__, {"EditResult": "plan", "edit": "editing"})
__all__ = ["EditResult", "edit"]
