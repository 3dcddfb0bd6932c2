"""Where a damaged compressed stream can be entered again: for each codec, what can be had behind damage.

A codec's module has three functions. ``judge_cut(source, failure, codec)`` returns the error that says what a stream is
that ends early. ``probable_damage(source, failure, codec)`` returns stretches of one that decodes to an end, and is
contradicted there; decoding begins again without these. ``pieces(source, failure, env, codec=…, size=…)`` yields
`Piece` after `Piece`, in the order of the source. Memory is bounded and charged to the budget; the time is linear in
the source and in what it holds, whatever false beginnings are planted in it. Errors of reading the source pass through,
and so do `LimitError` and `UnsupportedError` (a library that is missing).
"""

from __future__ import annotations

from pparse.codecs.table import CODECS
from pparse.errors import EndOfDataError, GapError
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

    from pparse.data.base import Data, Range
    from pparse.errors import PparseError


# -- What a codec's module is told of damage (`Failure`), and what it finds behind it (`Piece`) ------------------------

# Why decoded bytes may be wrong.
BEFORE_DAMAGE: Final = "decoded just before the damage was noticed"
CONTRADICTED: Final = "the checksum contradicts what was decoded"


class Failure:
    """Where decoding a stream from the front came to its end.

    ``at``: the byte of the source (an offset of its Data) where the decoder failed; it may have failed late.
    ``out``: bytes that came out; the last of them may be wrong, or too many. ``start``: the byte of the source where
    the member (stream, frame) in question begins, and ``start_out`` what had come out before it. ``error``: what the
    decoder said. ``saved`` returns decoders that were saved on the way; see `InflatedData.saved_decoders`.

    Whoever finds pieces also says from where on the output is in doubt: ``suspect_from``, an offset of the output
    (None: it is not), and ``why_suspect``, why (None: it was decoded just before the damage was noticed). ``limit``
    is as that of a `Piece`, for what comes behind the last of them.
    """

    suspect_from: int | None = None
    why_suspect: str | None = None
    limit: str | None = None

    def __init__(
        self,
        at: int,
        out: int,
        start: int,
        error: PparseError,
        start_out: int = 0,
        saved: Callable[[], Sequence[tuple[int, Any]]] = tuple,
    ) -> None:
        self.at, self.out, self.start = at, out, start
        self.start_out, self.error, self.saved = start_out, error, saved

    @property
    def by_source(self) -> bool:
        """Whether the source ends or has a gap there: that does not say that anything is wrong with what came out."""
        return isinstance(self.error, GapError | EndOfDataError)


class Piece:
    """What can be had behind damage, in one go.

    ``data`` holds it: size, gaps and suspect ranges are known, offsets are from 0, reads in any order cost bounded
    memory. ``[at, end)`` are the bytes of the source that it is made of. ``position`` says where in the whole output it
    begins, None where that is not known exactly; it may be less than what had come out before, which then was too much.
    ``joins``: no output is missing between what came before and this. ``error``: why it ends where it ends, None if
    not by damage. ``limit``: which limit of ours kept more of it, or of what precedes it, from being had; None: none.
    """

    position: int | None = None
    joins = False
    error: PparseError | None = None
    limit: str | None = None

    def __init__(self, data: Data, at: int, end: int, **known: Any) -> None:
        self.data, self.at, self.end = data, at, end
        self.__dict__.update(known)


def real_end(source: Range) -> int:
    """Return where the source ends in fact: one that is decoded on the way need not know that yet."""
    data = source.data
    if data.size is None:
        data.verify()
    if data.size is not None:
        return min(source.end, data.size)
    endless = [gap.offset for gap in data.gaps if gap.length is None]
    if endless:
        return min(source.end, *endless)
    at = source.start
    while at < source.end and (chunk := data.read_known(at, min(MIB, source.end - at))[0]):
        at += len(chunk)
    return at


def places_of(needle: bytes, data: bytes, start: int = 0) -> Iterator[int]:
    """Yield where ``needle`` stands in ``data``, from ``start`` on."""
    place = data.find(needle, start)
    while place >= 0:
        yield place
        place = data.find(needle, place + 1)


def module_of(codec: str) -> Any:
    """Return the module of ``codec``; None if streams of it cannot be entered behind damage."""
    name = CODECS[codec].resync
    if name is None:
        return None
    import importlib

    return importlib.import_module(f"pparse.compressed.resync.{name}")


def nowhere(source: Range, failure: Failure, codec: str) -> list[Any]:
    """The ``probable_damage`` of a codec whose blocks have checksums, or lengths, that tell it."""
    return []


def as_it_is(source: Range, failure: Failure, codec: str) -> PparseError:
    """The ``judge_cut`` of a codec whose streams do not tell more than that they end early."""
    return failure.error
