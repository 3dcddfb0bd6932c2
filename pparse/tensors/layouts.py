"""Of which tensor another one is a part: sparse and nested tensors of PyTorch are listed as their parts."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# Parts that only some layouts have, and these layouts: with elements, and with blocks, as values.
_LAYOUTS: Final = {
    "indices": ("sparse_coo", "sparse_coo"),
    "crow_indices": ("sparse_csr", "sparse_bsr"),
    "ccol_indices": ("sparse_csc", "sparse_bsc"),
}
_PARTS: Final = frozenset((*_LAYOUTS, "col_indices", "row_indices", "values", "size"))
_NESTED: Final = ("values", "sizes", "strides", "offsets")
# Numbers that are told one by one.
_MOST: Final = 1000


def whole_of(viewer: Viewer, tensor: Tensor) -> dict[str, Any] | None:
    """Return name, layout and size of what ``tensor`` is a part of, as plain data; None if it is no part.

    Sizes that are too many, or not whole, are the name of their tensor.
    """
    name, dot, part = tensor.name.rpartition(".")
    prefix = name + dot
    if part in _PARTS and (size := viewer.find(f"{prefix}size")) is not None:
        layout = _layout(viewer, prefix, size)
        return None if layout is None else {"name": name, "layout": layout, "size": _numbers(size)}
    if part in _NESTED and all(viewer.find(prefix + other) is not None for other in _NESTED):
        return {"name": name, "layout": "nested", "size": _numbers(viewer[f"{prefix}sizes"])}
    return None


def _layout(viewer: Viewer, prefix: str, size: Tensor) -> str | None:
    values = viewer.find(f"{prefix}values")
    for part, layouts in _LAYOUTS.items():
        if values is not None and size.ndim == 1 and viewer.find(prefix + part) is not None:
            # Values are counted along one dimension in place of two; blocks have two more.
            return layouts[values.ndim > size.size]
    return None


def _numbers(sizes: Tensor) -> Any:
    return sizes.numpy().tolist() if sizes.is_complete and sizes.size <= _MOST else sizes.name
