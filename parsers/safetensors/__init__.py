"""Safetensors: one file, the index of several, a folder of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.parsers.safetensors.folder import SafetensorsFolderParser
    from pparse.parsers.safetensors.index import SafetensorsIndexParser
    from pparse.parsers.safetensors.parser import SafetensorsParser
_WHERE: Final = {"SafetensorsParser": "parser", "SafetensorsFolderParser": "folder", "SafetensorsIndexParser": "index"}
__all__ = ["SafetensorsFolderParser", "SafetensorsIndexParser", "SafetensorsParser"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
