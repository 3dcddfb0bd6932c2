"""Bytes: files, memory, several ranges as one, and the readers that go through them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import BytesData, Data, FileData, Gap, IoStats
    from pparse.data.reader import Cursor, Range, Reader
    from pparse.data.scratch import Scratch
    from pparse.data.spliced import SplicedData
_WHERE: Final = {
    "BytesData": "base",
    "Data": "base",
    "FileData": "base",
    "Gap": "base",
    "IoStats": "base",
    "Cursor": "reader",
    "Range": "reader",
    "Reader": "reader",
    "Scratch": "scratch",
    "SplicedData": "spliced",
}
__all__ = ["BytesData", "Cursor", "Data", "FileData", "Gap", "IoStats", "Range", "Reader", "Scratch", "SplicedData"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
