"""From blocks that were found, one after the other, to pieces: each is a run of blocks that ends at damage."""

from __future__ import annotations

from copy import copy

from pparse.compressed.resync.blocks import CUT, Blocks
from pparse.compressed.resync.pieces import Piece
from pparse.data.standing import SuspectRange
from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pparse.budget import MemoryBudget
    from pparse.compressed.resync.blocks import OpenBlock
    from pparse.errors import PparseError
    from pparse.limits import Limits


class Found:
    """A block at ``[start, end)`` of the source, of ``size`` bytes; ``tag`` is for who opens it.

    ``position``: where it begins in the output, if known. ``follows``: nothing is missing between the one found before
    and this. ``why_suspect``: why it may not belong here. ``reach``: where the source goes on behind it, if not at
    ``end``. ``proved``: it was decoded, and is sound. ``sure``: its size is right even if it turns out to be damaged.
    """

    __slots__ = ("end", "follows", "position", "proved", "reach", "size", "start", "sure", "tag", "why_suspect")

    def __init__(self, start: int, end: int, size: int, tag: int = 0) -> None:
        self.start = start
        self.end = end
        self.size = size
        self.tag = tag
        self.position: int | None = None
        self.follows = True
        self.why_suspect: str | None = None
        self.reach = end
        self.proved = False
        self.sure = True


class Runs:
    """Makes pieces. ``open_block`` as of `Blocks`; ``head``: bytes that it puts in front of a block."""

    def __init__(
        self,
        name: str,
        open_block: OpenBlock,
        budget: MemoryBudget,
        limits: Limits,
        *,
        head: int = 0,
        joins: bool = False,
        small: bool = False,
    ) -> None:
        self._name = name
        self._open_block = open_block
        self._budget = budget
        self._limits = limits
        self._head = head
        self._joins = joins
        self._small = small

    def pieces(
        self,
        blocks: Iterable[Found],
        out: int | None,
        poll: Callable[[], object],
        lost: Callable[[], object] = lambda: None,
    ) -> Iterator[Piece]:
        """Yield the pieces that ``blocks`` make, each block decoded once; ``out`` bytes of output precede, if known.

        ``lost`` is called after a block that is damaged, and of which nobody knows what it should have held.
        """
        piece: Piece | None = None
        run: Blocks | None = None
        total = end = 0
        complete = False  # nothing is missing of the block before
        for block in blocks:
            poll()
            if not block.size:
                if block.tag & CUT:  # nothing came of it, and there should be something
                    complete = False
                    if piece is not None:
                        yield piece
                        end = piece.end
                    piece = run = None
                continue
            if piece is None or run is None or not block.follows:
                if piece is not None:
                    yield piece
                    end = piece.end
                joins = (block.position is not None and block.position == out) or (complete and block.follows)
                run = Blocks(self._name, self._open_block, self._budget, joins=self._joins, small=self._small)
                # A damaged block may seem to reach into the next one.
                piece = Piece(run, max(block.start, end), block.reach, position=block.position, joins=joins)
            begin = run.size or 0
            run.add(block.start, block.end, block.size, block.tag)
            piece.end = max(piece.at, block.reach)
            sound = block.proved or run.prove(len(run) - 1)
            complete = not run.gaps
            if sound:  # what is only declared is not there yet
                total += block.size
                self._limits.check("inflated_bytes", total, f"what {self._name} holds")
            out = None if run.gaps or piece.position is None else piece.position + (run.size or 0)
            if sound and block.why_suspect is not None:
                run.suspect_ranges = (*run.suspect_ranges, SuspectRange(begin, run.size or 0, block.why_suspect))
            if not sound:
                if not block.sure:
                    lost()
                piece.error = self._placed(run.error, block)
                piece.end = max(piece.at, min(block.reach, piece.error.offset or 0))
                end = piece.end
                if len(run) > 1 or not run.gaps or run.gaps[0].offset:
                    yield piece
                piece = run = None
        if piece is not None:
            yield piece

    def _placed(self, error: PparseError | None, block: Found) -> PparseError:
        """Return an error of decoding a block with an offset of the source."""
        found = copy(error) if error is not None else MalformedError("a block is damaged")
        found.offset = block.start + max(0, (found.offset or 0) - self._head)
        found.source = self._name
        return found
