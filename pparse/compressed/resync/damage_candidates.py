"""Where a deflate stream that decodes to its end, and is contradicted there, was probably damaged.

A decoder can pass damage without noticing: what is wrong decodes to other bytes, perhaps to more or fewer of them, and
only a size or a checksum contradicts at the end. Or it passes that end, too, and the stream seems to be cut. Two things
tell the place: what is known against the bytes of the source, and runs of one byte, which compressed data do not have,
but sectors that were never written or erased do. Whoever decodes hides such stretches (`pparse.data.spliced`), so that
decoding ends there and begins again behind.
"""

from __future__ import annotations

import re
import zlib

from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

    from pparse.data.reader import Range

# A run of one byte that is no chance in compressed data: 2^-104 at any place.
_RUN: Final = lazy_pattern(rb"(.)\1{13,}", re.DOTALL)
_BLOCK: Final = 256 << 10
# A stream of few different bytes has such runs by itself: there, each stands for at least so many times its length.
_MOST_RATIO: Final = 100
_MOST: Final = 4_096
# A run in a stored block may go on in the head of the next one.
_HEAD: Final = 8
# A shorter run in a stored block may be content: an encoder compresses a block only if that saves more than the codes
# cost. And an encoder that only stores (level 0) stores any run.
_STORED_RUN: Final = 512
# How far before its end a stream that seems cut may be damaged: what is out of step does not decode for long.
_BACK: Final = 256 << 10
# A stretch that is known to be in doubt says where the damage is only if it is a small part of the stream.
_SMALL_PART: Final = 4


class DamageCandidate:
    """A stretch ``[start, end)`` of the source that is probably damaged.

    ``hidden``: all of it is known to be wrong; else damage is somewhere in it. ``out``: how much output precedes it.
    """

    __slots__ = ("end", "hidden", "out", "start")

    def __init__(self, start: int, end: int, *, hidden: bool) -> None:
        self.start = start
        self.end = end
        self.hidden = hidden
        self.out = 0

    @property
    def gap(self) -> tuple[int, int]:
        """What is passed over: all of it, or, where only its end is known to be behind the damage, the last byte."""
        return (self.start if self.hidden else self.end - 1), self.end


def candidates(source: Range, first: int, produced: int, *, cut: bool = False) -> list[DamageCandidate]:
    """Return stretches of the source that are probably damaged, in order and apart; at most 4,096.

    ``first``: where the compressed data begin, which decode to ``produced`` bytes. ``cut``: no end of them was met, and
    nothing contradicts. Then bytes that are copied from the source as they are, those of a stored block, are none of
    these; nor are they if the stream stores all.
    """
    begin = max(first, source.end - _BACK) if cut else first
    found = [
        *(() if cut else _known(source, first)),
        *(DamageCandidate(start, end, hidden=True) for start, end in _runs(source, begin)),
    ]
    apart: list[DamageCandidate] = []
    for suspect in sorted(found, key=lambda suspect: suspect.start)[:_MOST]:
        if apart and suspect.start < apart[-1].end:
            apart[-1].end = max(apart[-1].end, suspect.end)
        else:
            apart.append(suspect)
    return _in_output(source, first, apart, stored=not (cut or _only_stores(source, first, produced))) if apart else []


def _known(source: Range, first: int) -> Iterator[DamageCandidate]:
    most = (source.end - source.start) // _SMALL_PART
    for suspect in source.data.suspect_ranges:
        start, end = max(suspect.start, first), min(suspect.end, source.end)
        if 0 < end - start <= most:
            yield DamageCandidate(start, end, hidden=False)


def _runs(source: Range, first: int) -> Iterator[tuple[int, int]]:
    """Yield runs of one byte; those at the very end are padding, perhaps, and no damage inside."""
    at, held = first, None
    while at < source.end:
        block = source.data.read_known(at, min(_BLOCK, source.end - at))[0]
        if not block:
            break
        for match in _RUN.finditer(block):
            start, end = at + match.start(), at + match.end()
            if held is not None and held[1] == start:
                held = (held[0], end)
                continue
            if held is not None:
                yield held
            held = (start, end)
        at += len(block)
    if held is not None and held[1] < source.end:
        yield held


def _in_output(source: Range, first: int, found: Sequence[DamageCandidate], *, stored: bool) -> list[DamageCandidate]:
    """Find where in the output the candidates are; leave out runs that stand for long runs of output themselves.

    And, unless ``stored``, for just as many bytes of it.
    """
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    kept: list[DamageCandidate] = []
    at, out = first, 0
    for suspect in found:
        for end in (suspect.start, suspect.end):
            before = out
            while at < end and not decoder.eof:
                block = source.data.read_known(at, min(_BLOCK, end - at))[0]
                if not block:
                    return kept
                at += len(block)
                try:
                    while block:
                        out += len(decoder.decompress(block, _BLOCK))
                        block = decoder.unconsumed_tail
                except zlib.error:  # the decoder that came to the end was another one: leave it at these
                    return kept
            if end == suspect.start:
                suspect.out = out
        count = suspect.end - suspect.start
        as_it_is = 0 <= count - (out - before) < _HEAD
        if not suspect.hidden or (
            out - before <= _MOST_RATIO * count and (not as_it_is or (stored and count >= _STORED_RUN))
        ):
            kept.append(suspect)
    return kept


def _only_stores(source: Range, first: int, produced: int) -> bool:
    """Is all of the stream stored, as far as is known? Its first block is, and no more came out than went in."""
    head = source.data.read_known(first, 1)[0]
    return bool(head) and not head[0] & 6 and produced <= source.end - first
