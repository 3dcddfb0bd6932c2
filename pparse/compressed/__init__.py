"""Compressed streams as Data: whole, indexed, or damaged and put together again."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.compressed.inflated import InflatedData
_WHERE: Final = {"InflatedData": "inflated"}
__all__ = ["InflatedData"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
