"""Chunked protos: a message in the chunks of a Riegeli file."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.parsers.cpb.parser import CpbParser
_WHERE: Final = {"CpbParser": "parser"}
__all__ = ["CpbParser"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
