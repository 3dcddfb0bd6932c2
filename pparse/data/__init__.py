"""Bytes: files, memory, several ranges as one, and the readers that go through them."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.data.base import BytesData, Data, Gap, IoStats
    from pparse.data.files import FileData
    from pparse.data.reader import Cursor, Range, Reader
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
        "Cursor": "reader",
        "Range": "reader",
        "Reader": "reader",
        "Scratch": "scratch",
        "SplicedData": "spliced",
    },
)
__all__ = ["BytesData", "Cursor", "Data", "FileData", "Gap", "IoStats", "Range", "Reader", "Scratch", "SplicedData"]
