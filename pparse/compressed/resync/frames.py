"""What Zstandard and LZ4 have in common: frames that begin with a magic number, and frames that are to be skipped."""

from __future__ import annotations

from pparse.codecs.frames import skips
from pparse.compressed.resync.blocks import Effort, windows
from pparse.compressed.resync.walk import BlockWalk
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.compressed.resync.blocks import Look
    from pparse.compressed.resync.walk import FoundBlock

_STORED: Final = "it may be a frame that was stored in a damaged one"


class FrameWalk(BlockWalk):
    """A walk over frames that begin with ``magic``: the next one can be found wherever that stands."""

    magic = b""
    joins = True

    def _chain(self, at: int, position: int | None, why_suspect: str | None = None) -> Iterator[FoundBlock]:
        """Yield what the frames hold that follow each other from ``at`` on."""
        raise NotImplementedError

    def _is_frame(self, at: int, effort: Effort) -> bool | None:
        """Say whether the frame at ``at`` is to be believed; None: there is none."""
        raise NotImplementedError

    def _search(self) -> Iterator[FoundBlock]:
        """Yield what the frames hold that begin somewhere behind."""
        effort = Effort(self._search_from, base=4 * MIB, rate=1)
        for at in self._magics(self._search_from):
            self._env.poll()
            if at < self._search_from or not effort.allows(at):
                continue
            believed = self._is_frame(at, effort)
            if believed is not None:
                yield from self._chain(at, None, None if believed else _STORED)

    def _magics(self, at: int, end: int | None = None) -> Iterator[int]:
        latest = at - 1
        for base, data in windows(self._look, at, len(self.magic) - 1, end):
            place = data.find(self.magic)
            while place >= 0:
                if base + place > latest:
                    latest = base + place
                    yield latest
                place = data.find(self.magic, place + 1)

    def _follows(self, at: int) -> bool:
        """Say whether at ``at`` the source ends, or a frame begins."""
        look = self._look
        return at == look.end or skip(look, at) > at or look.get(at, 4) == self.magic


def skip(look: Look, at: int) -> int:
    """Return where what is no skippable frame begins, from ``at`` on."""
    while True:
        head = look.get(at, 8)
        if len(head) < 8 or not skips(head):
            return at
        at += 8 + int.from_bytes(head[4:], "little")
