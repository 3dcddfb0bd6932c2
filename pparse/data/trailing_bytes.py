"""Bytes that follow the end of what a file holds: whether they do harm."""

from __future__ import annotations

from pparse.findings import Severity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# Archives, compressed streams and pickles end themselves, and tools pad or append to them: the content is the same. In
# a document of one value, more bytes mean that its end is not where it seems, or that there is a second document.
_SEVERITIES: Final = {"archive": Severity.WARNING, "stream": Severity.WARNING, "document": Severity.ERROR}


def trailing_severity(after: str, *, zeros: bool = False) -> Severity:
    """Return how severe bytes after an ``archive``, a ``stream`` or a ``document`` are; ``zeros``: all of them are 0.

    Zeros after an archive are padding to the block of a tape or disk: a note. Which codecs are padded with zeros as a
    rule, so that nothing is said of them, is in `pparse.codecs.table` (``zero_padding``).
    """
    return Severity.NOTE if zeros and after == "archive" else _SEVERITIES[after]
