"""Finds texts that follow each other, each behind its length, and tells whether they are UTF-8."""

from __future__ import annotations

from array import array
from itertools import repeat
from struct import Struct
from struct import error as StructError  # noqa: N812


def text_starts(block: bytes, at: int, base: int, layout: str, most: int) -> tuple[array[int], int]:
    """Return where those texts begin, with their lengths, that end in ``block``; and where the last of them ends.

    The first begins at ``block[at:]``; ``base`` is the offset of the block, and counted in what is returned. ``layout``
    is that of a length, as `struct` writes it; there are at most ``most`` texts. A loop of 0.1 µs for each.
    """
    length = Struct(layout)
    unpack, width, size = length.unpack_from, length.size, len(block)
    starts: list[int] = []
    add = starts.append
    end = at
    try:
        for _ in repeat(None, most):
            following = end + width + unpack(block, end)[0]
            if following > size:
                break
            add(end + base)
            end = following
    except StructError:  # not even its length is there
        pass
    return array("q", starts), base + end


def sound_texts(block: bytes, at: int, layout: str, most: int, longest: int) -> tuple[int, int]:
    """Pass over texts as `text_starts` does, up to one of at most ``longest`` bytes that is not UTF-8.

    Returns where the next text begins in the block, or behind it for one that is longer, and how many were passed over.
    """
    length = Struct(layout)
    unpack, width, size = length.unpack_from, length.size, len(block)
    passed = 0
    try:
        for passed in range(most):
            start = at + width
            following = start + unpack(block, at)[0]
            if following > size:
                return (at, passed) if following - start <= longest else (following, passed + 1)
            text = block[start:following]
            if not text.isascii() and following - start <= longest:
                text.decode()
            at = following
    except (StructError, UnicodeDecodeError):
        return at, passed
    return at, most
