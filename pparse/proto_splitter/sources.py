"""Which files a document is read from: an output must not replace them."""

from __future__ import annotations

import os

from pparse.data.files import FileData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.document.extraction import Extraction


def files_read(document: Extraction) -> Iterator[str]:
    """Yield the paths of the files that a document is read from: for a folder the model, for a part the whole file."""
    for member in document.children.values():
        if document.is_folder and isinstance(member.data, FileData):
            yield member.data.path
    extraction: Extraction | None = document
    while extraction is not None:
        if isinstance(extraction.data, FileData):
            yield extraction.data.path
        extraction = extraction.parent


def is_read(document: Extraction, path: str) -> bool:
    """Say whether ``path`` is one of the files that a parsed document is read from, under any name."""
    return os.path.exists(path) and any(
        os.path.exists(source) and os.path.samefile(path, source) for source in files_read(document)
    )
