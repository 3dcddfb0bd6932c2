"""Bytes: files, memory, several ranges as one, and the readers that go through them."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.data.base import BytesData, Cursor, Data, Gap, IoStats, Range, Reader
    from pparse.data.files import FileData
    from pparse.data.scratch import Scratch
    from pparse.data.spliced import SplicedData
__getattr__ = lazy_names(
    __name__,
    {
        "BytesData": "base",
        "Data": "base",
        "FileData": "files",
        "Gap": "base",
        "IoStats": "base",
        "Cursor": "base",
        "Range": "base",
        "Reader": "base",
        "Scratch": "scratch",
        "SplicedData": "spliced",
    },
)
__all__ = ["BytesData", "Cursor", "Data", "FileData", "Gap", "IoStats", "Range", "Reader", "Scratch", "SplicedData"]
