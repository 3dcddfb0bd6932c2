"""Where a damaged compressed stream can be entered again: for each codec, what can be had behind damage.

`pieces_for` names the function of a codec. It is called as ``pieces(source, failure, env, codec=…, size=…)`` and
yields `Piece` after `Piece`, in the order of the source. Memory is bounded and charged to the budget; the time is
linear in the source and in what it holds, whatever false beginnings are planted in it. Errors of reading the source
pass through, and so do `LimitError` and `UnsupportedError` (a library that is missing).
"""

from __future__ import annotations

from pparse.codecs.table import CODECS
from pparse.compressed.resync.pieces import Failure, Piece

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from pparse.compressed.inflated import DecodeEnv
    from pparse.data.reader import Range

    class Pieces(Protocol):
        """Finds what can be had of ``source`` behind ``failure``."""

        def __call__(
            self, source: Range, failure: Failure, env: DecodeEnv, *, codec: str, size: int | None
        ) -> Iterator[Piece]:
            """Yield the pieces. ``codec``: the stream's; ``size``: of the whole output, if known."""


__all__ = ["Failure", "Piece", "pieces_for"]


def pieces_for(codec: str) -> Pieces | None:
    """Return what finds pieces in streams of ``codec``; None if they cannot be entered behind damage."""
    name = CODECS[codec].resync
    if name is None:
        return None
    import importlib

    found: Pieces = importlib.import_module(f"pparse.compressed.resync.{name}").pieces
    return found
