"""Which files a document is read from: an output must not replace them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction


def _sources(document: Extraction) -> Iterator[Data]:
    """Yield what a document is read from: for a folder the model, for a part the whole file, too."""
    if document.is_folder:
        for member in document.children.values():
            yield member.data
    extraction: Extraction | None = document
    while extraction is not None:
        yield extraction.data
        extraction = extraction.parent


def is_read(document: Extraction, path: str) -> bool:
    """Say whether ``path`` is one of the files that a parsed document is read from, under any name."""
    return any(data.same_source(path) for data in _sources(document))
