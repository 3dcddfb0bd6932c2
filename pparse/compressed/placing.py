"""Where in the output what was decoded belongs: `Placement`."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from pparse.data.base import GapTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pparse.compressed.resync.pieces import Piece
    from pparse.data.base import Data


class Placed:
    """``data`` at ``[start, end)`` of the whole."""

    __slots__ = ("data", "end", "start")

    def __init__(self, start: int, data: Data, size: int) -> None:
        self.start = start
        self.end = start + size
        self.data = data


class Placement:
    """What was decoded before damage, ``size`` bytes of ``head``, and the pieces behind it, with gaps between them."""

    __slots__ = ("gaps", "placed")

    def __init__(self, head: Data, size: int) -> None:
        self.placed = [Placed(0, head, size)]
        self.gaps = GapTable()

    @property
    def end(self) -> int:
        """Where the last piece ends."""
        return self.placed[-1].end

    def stretches(self, offset: int, length: int) -> Iterator[tuple[Data, int, int]]:
        """Yield what is at ``[offset, offset + length)``, up to a gap: data, offset there, length."""
        place = bisect_right(self.placed, offset, key=attrgetter("start")) - 1
        while length and 0 <= place < len(self.placed):
            placed = self.placed[place]
            if not placed.start <= offset < placed.end:
                return
            count = min(length, placed.end - offset)
            yield placed.data, offset - placed.start, count
            offset += count
            length -= count
            place += 1

    def read(self, offset: int, length: int) -> bytes:
        """Return what is there at ``offset``, up to a gap."""
        pieces: list[bytes] = []
        for data, first, count in self.stretches(offset, length):
            pieces.append(data.pread(first, count))
            if len(pieces[-1]) < count:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def place_all(self, pieces: Sequence[tuple[Piece, int]]) -> None:
        """Place pieces, each with an estimate of how many bytes are missing before it, behind the head."""
        waiting: list[tuple[Piece, int]] = []
        for piece, lost in pieces:
            waiting.append((piece, lost))
            if piece.position is not None:
                self._lay(waiting, piece.position)
                waiting = []
        self._lay(waiting, None)

    def _lay(self, pieces: Sequence[tuple[Piece, int]], position: int | None) -> None:
        """Place pieces of which the last one begins at ``position``; None: nobody knows."""
        last = self.placed[-1]
        slack = None
        if position is not None:
            if len(pieces) == 1 and position < last.end:  # what was decoded last was too much
                last.end = max(last.start, position)
            slack = position - last.end - sum(piece.data.size or 0 for piece, _ in pieces[:-1])
        rooms, exact = _rooms([0 if piece.joins and not lost else max(1, lost) for piece, lost in pieces], slack)
        for (piece, _), room in zip(pieces, rooms, strict=True):
            if room:
                self.gaps.add(self.end, room, exact)
            placed = Placed(self.end + room, piece.data, piece.data.size or 0)
            self.placed.append(placed)
            self.gaps.add_all(piece.data.gaps, placed.start)

    def close(self) -> None:
        """Close all that is placed."""
        for placed in self.placed:
            placed.data.close()
        self.placed = []


def _rooms(estimates: list[int], slack: int | None) -> tuple[list[int], bool]:
    """Return how many bytes are missing at each place, and whether that is exact, if ``slack`` are missing in all.

    If just one place lacks bytes, their number follows; else the room there is gets divided.
    """
    if slack is None:
        return estimates, False
    slack = max(0, slack)
    lacking = sum(1 for estimate in estimates if estimate)
    if lacking <= 1:
        return [slack if estimate else 0 for estimate in estimates], True
    total, left, rooms = sum(estimates), slack, []
    for estimate in estimates:
        lacking -= bool(estimate)
        room = slack * estimate // total
        if estimate and not lacking:  # the last one takes what is left
            room = max(1, left)
        left -= room
        rooms.append(room)
    return rooms, False
