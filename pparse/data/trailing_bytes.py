"""Bytes that follow the end of what a file holds: whether they do harm."""

from __future__ import annotations

from pparse.errors import GapError
from pparse.findings import Severity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data

SHIFTED: Final = "bytes after the last tensor may have been inserted before this one, so its bytes may be wrong"
"""Why tensors are in doubt in a file that is longer than its tensors."""
LAST_BEFORE_BREAK: Final = "what follows it cannot be read: bytes may have gone from it, or come into it"
"""Why the last value before malformed bytes is in doubt, where nothing but its own length tells its end."""
# Zeros that pad a file to a block of a disk, a tar, or a page.
_DISK_BLOCK: Final = 512
_MOST_PADDING: Final = 64 << 10

# Archives, compressed streams and pickles end themselves, and tools pad or append to them: the content is the same. In
# a document of one value, more bytes mean that its end is not where it seems, or that there is a second document.
_SEVERITIES: Final = {"archive": Severity.WARNING, "stream": Severity.WARNING, "document": Severity.ERROR}


def trailing_severity(after: str, *, zeros: bool = False) -> Severity:
    """Return how severe bytes after an ``archive``, a ``stream`` or a ``document`` are; ``zeros``: all of them are 0.

    Zeros after an archive are padding to the block of a tape or disk: a note. Which codecs are padded with zeros as a
    rule, so that nothing is said of them, is in `pparse.codecs.table` (``zero_padding``).
    """
    return Severity.NOTE if zeros and after == "archive" else _SEVERITIES[after]


def has_odd_tail(data: Data, start: int, end: int, stop: int) -> bool:
    """Say whether bytes after what a file holds, in ``[end, stop)``, may have been inserted anywhere before.

    Padding with zeros up to a block does not count: if anything had moved, its end would not fit a block.
    """
    if stop <= end:
        return False
    if (stop - start) % _DISK_BLOCK or stop - end >= _MOST_PADDING:
        return True
    try:
        tail = data.pread(max(start, end - 1), stop - end + 1)
    except GapError:
        return True
    return tail[:1] == b"\0" or any(tail[1:])
