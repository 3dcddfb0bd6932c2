"""Blocks of bytes, for who looks into them.

`Window` has the bytes at any offset, from the block that was read last as far as it has them: for those who look at the
same bytes more than once, or at many small pieces that follow each other. `windows` is for a search from one end to the
other. Who reads on, and needs no more than each byte once, takes `pparse.data.base.blocks`.
"""

from __future__ import annotations

from pparse.errors import GapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.data.base import Data


class Window:
    """A block of ``data[:end]``, which goes where it is read.

    At least ``least`` bytes are read at a time, and ``ahead`` where reading goes on. A block is as old as its read: a
    window must not outlive one pass over a source that others write. One that reads ahead reads again what a stream
    turned out to have decoded wrongly.
    """

    __slots__ = ("_ahead", "_at", "_block", "_end", "_least", "_revision", "_unknown", "data")

    def __init__(self, data: Data, end: int, *, least: int = 0, ahead: int = 0) -> None:
        self.data = data
        """The source."""
        self._end = end
        self._least = least
        self._ahead = max(least, ahead)
        self._at = 0
        self._block = b""
        self._unknown: list[tuple[int, int]] = []
        self._revision = 0

    def read_known(self, offset: int, length: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return what `Data.read_known` does; gaps in whole, though they begin before ``offset`` or end behind."""
        length = min(length, self._end - offset)
        if length <= 0:
            return b"", []
        at, have = offset - self._at, len(self._block)
        if at < 0 or at + length > have or (self._ahead and self._revision != self.data.revision):
            size = self._ahead if have and 0 <= at <= have + length else self._least
            self._revision = self.data.revision if self._ahead else 0
            self._block, self._unknown = self.data.read_known(offset, min(max(length, size), self._end - offset))
            self._at, at = offset, 0
        found = self._block[at : at + length]
        if not self._unknown:
            return found, []
        last = offset + length
        return found, [(low, size) for low, size in self._unknown if low < last and low + size > offset]

    def known(self, offset: int, length: int) -> bytes:
        """Return what `Data.known` does."""
        found, unknown = self.read_known(offset, length)
        return found[: max(0, unknown[0][0] - offset)] if unknown else found

    def at_hand(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``, at least 4 if there are; unknown ones as zeros."""
        self.read_known(offset, 4)
        return self._block[offset - self._at :][:length]


def windows(data: Data, at: int, end: int, size: int, overlap: int) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, bytes)`` of ``data[at:end]``: ``size`` at a time, and before them the ``overlap`` bytes that the
    last ones ended with. Gaps are left out, and what follows one begins anew.
    """
    tail = b""
    while at < end:
        try:
            block = data.pread(at, min(size, end - at))
        except GapError as gap:
            if gap.length is None:
                return
            at += max(1, gap.length)
            tail = b""
            continue
        if not block:
            return
        yield at - len(tail), tail + block
        at += len(block)
        tail = (tail + block)[-overlap:] if overlap else b""
