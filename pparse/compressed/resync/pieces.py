"""What a codec's module is told of damage (`Failure`), and what it finds behind it (`Piece`)."""

from __future__ import annotations

from pparse.errors import EndOfDataError, GapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data
    from pparse.errors import PparseError

# Why decoded bytes may be wrong.
BEFORE_DAMAGE: Final = "decoded just before the damage was noticed"
CONTRADICTED: Final = "the checksum contradicts what was decoded"


class Failure:
    """Where decoding a stream from the front came to its end.

    ``at``: the byte of the source (an offset of its Data) where the decoder failed; it may have failed late.
    ``out``: bytes that came out; the last of them may be wrong, or too many. ``start``: the byte of the source where
    the member (stream, frame) in question begins, and ``start_out`` what had come out before it. ``error``: what the
    decoder said.

    Whoever finds pieces also says from where on the output is in doubt: ``suspect_from``, an offset of the output
    (None: it is not), and ``why_suspect``, why (None: it was decoded just before the damage was noticed). ``limit``
    is as that of a `Piece`, for what comes behind the last of them.
    """

    __slots__ = ("at", "error", "limit", "out", "start", "start_out", "suspect_from", "why_suspect")

    def __init__(self, at: int, out: int, start: int, error: PparseError, start_out: int = 0) -> None:
        self.at = at
        self.out = out
        self.start = start
        self.start_out = start_out
        self.error = error
        self.suspect_from: int | None = None
        self.why_suspect: str | None = None
        self.limit: str | None = None

    @property
    def by_source(self) -> bool:
        """Whether the source ends or has a gap there: that does not say that anything is wrong with what came out."""
        return isinstance(self.error, GapError | EndOfDataError)

    def __repr__(self) -> str:
        return f"Failure(at={self.at}, out={self.out}, start={self.start}, start_out={self.start_out})"


class Piece:
    """What can be had behind damage, in one go.

    ``data`` holds it: size, gaps and suspect ranges are known, offsets are from 0, reads in any order cost bounded
    memory. ``[at, end)`` are the bytes of the source that it is made of. ``position`` says where in the whole output it
    begins, None where that is not known exactly; it may be less than what had come out before, which then was too much.
    ``joins``: no output is missing between what came before and this. ``error``: why it ends where it ends, None if
    not by damage. ``limit``: which limit of ours kept more of it, or of what precedes it, from being had; None: none.
    """

    __slots__ = ("at", "data", "end", "error", "joins", "limit", "position")

    def __init__(
        self,
        data: Data,
        at: int,
        end: int,
        *,
        position: int | None = None,
        joins: bool = False,
        error: PparseError | None = None,
    ) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.position = position
        self.joins = joins
        self.error = error
        self.limit: str | None = None

    def __repr__(self) -> str:
        return f"Piece([{self.at}, {self.end}), size={self.data.size}, position={self.position}, joins={self.joins})"
