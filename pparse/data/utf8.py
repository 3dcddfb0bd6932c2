"""Texts that are too long to be decoded at once."""

from __future__ import annotations

from codecs import getincrementaldecoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data

_BLOCK: Final = 128 << 10


def find_not_utf8(data: Data, start: int, end: int, errors: str = "strict") -> int | None:
    """Return where the text ``data[start:end]`` stops being UTF-8; None: it is UTF-8. Reads it piece by piece.

    ``errors`` is as in `bytes.decode`. Raises `EndOfDataError`, `GapError`.
    """
    decoder = getincrementaldecoder("utf-8")(errors)
    at = start
    while at < end:
        piece = data.read_exact(at, min(_BLOCK, end - at))
        kept = len(decoder.getstate()[0])
        try:
            decoder.decode(piece, at + len(piece) == end)
        except UnicodeDecodeError as error:
            return at - kept + error.start
        at += len(piece)
    return None
