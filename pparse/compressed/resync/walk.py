"""From blocks that are found behind damage, one after the other, to pieces: each is a run that ends at damage."""

from __future__ import annotations

from copy import copy

from pparse.compressed.inflated import InflatedData
from pparse.compressed.resync.blocks import CUT, Blocks, Look
from pparse.compressed.resync.pieces import Piece
from pparse.data.base import BytesData
from pparse.data.range_status import SuspectRange
from pparse.data.spliced import SplicedData
from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.compressed.inflated import DecodeEnv
    from pparse.compressed.resync.pieces import Failure
    from pparse.data.reader import Range


class FoundBlock:
    """A block at ``[start, end)`` of the source, of ``size`` bytes; ``tag`` is for who opens it.

    ``position``: where it begins in the output, if known. ``follows``: nothing is missing between the one found before
    and this. ``why_suspect``: why it may not belong here. ``at`` and ``reach``: where what is used of the source for it
    begins, and where the source goes on behind it, if not at ``start`` and ``end``. ``proved``: it was decoded, and is
    sound. ``sure``: its size is right even if it turns out to be damaged.
    """

    __slots__ = ("at", "end", "follows", "position", "proved", "reach", "size", "start", "sure", "tag", "why_suspect")

    def __init__(self, start: int, end: int, size: int, tag: int = 0) -> None:
        self.start = self.at = start
        self.end = self.reach = end
        self.size = size
        self.tag = tag
        self.position: int | None = None
        self.follows = True
        self.why_suspect: str | None = None
        self.proved = False
        self.sure = True


class Opener:
    """Opens blocks of ``codec``; see `Blocks`. With ``concatenated``, several of them are one stream."""

    codec = ""
    concatenated = False

    def __init__(self, source: Range, env: DecodeEnv) -> None:
        self._data = source.data
        self._env = env

    def stream(self, start: int, end: int, size: int | None, tag: int) -> Range:
        """Return a stream that holds the block."""
        return self._data.range(start, end)

    def __call__(self, start: int, end: int, size: int | None, tag: int) -> InflatedData:
        """Open the block."""
        env = self._env
        return InflatedData(
            self.stream(start, end, size, tag),
            self.codec,
            size=size,
            budget=env.budget,
            limits=env.limits,
            scratch=env.scratch,
            concatenated=self.concatenated,
            name=self._data.name,
        )


def spliced(name: str, *parts: Range | bytes) -> Range:
    """Return ``parts`` one after the other."""
    ranges = [BytesData(part).range(0, len(part)) if isinstance(part, bytes) else part for part in parts]
    data = SplicedData(ranges, name=name)
    return data.range(0, data.size or 0)


class BlockWalk:
    """One pass over what lies behind ``failure`` in a stream whose blocks decode each by itself.

    What a codec adds is `_behind`, which yields the blocks. ``head``: bytes that its ``open_block`` puts in front of
    one; ``joins``, ``proved`` and ``small`` as of `Blocks`.
    """

    head = 0
    joins = proved = small = False

    def __init__(self, source: Range, failure: Failure, env: DecodeEnv, open_block: Opener) -> None:
        self._look = Look(source)
        self._failure = failure
        self._env = env
        self._open = open_block
        self._search_from = failure.start + 1  # from where on to look for what tells where it is

    def _behind(self) -> Iterator[FoundBlock]:
        """Yield the blocks behind the failure, in order; sets ``failure.suspect_from``."""
        raise NotImplementedError

    def _lose(self) -> None:
        """Note that the block found last is damaged, and that nobody knows what it should have held."""

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces that the blocks make, each block decoded once."""
        run: _TokenRun | None = None
        out: int | None = self._failure.out  # output before what follows, if known
        total = end = 0
        complete = False  # nothing is missing of the block before
        for found in self._behind():
            self._env.poll()
            if not found.size and not found.tag & CUT:
                continue
            if run is not None and not (found.size and found.follows):
                yield run.piece
                end, run = run.piece.end, None
            if not found.size:  # nothing came of it, and there should be something
                complete = False
                continue
            if run is None:
                joins = (found.position is not None and found.position == out) or (complete and found.follows)
                run = _TokenRun(self._new_blocks(), found, max(found.at, end), joins=joins)
            sound = run.add(found)
            complete, out = not run.blocks.gaps, run.out
            if sound:  # what is only declared is not there yet
                total += found.size
                self._env.limits.check("inflated_bytes", total, f"what {self._look.data.name} holds")
                continue
            if not found.sure:
                self._lose()
            end = run.break_off(found, self._look.data.name, self.head)
            if not run.is_empty:
                yield run.piece
            run = None
        if run is not None:
            yield run.piece

    def _new_blocks(self) -> Blocks:
        return Blocks(
            self._look.data.name,
            self._open,
            self._env.budget,
            joins=self.joins,
            proved=self.proved,
            small=self.small,
        )

    def _measure(self, found: FoundBlock) -> None:
        """Decode a block that does not say what it holds; one that is not sound gets the tag `CUT`."""
        with self._open(found.start, found.end, None, found.tag) as data:
            data.finish()
            found.size, found.proved = data.produced, data.error is None
        if not found.proved:
            found.tag |= CUT


class _TokenRun:
    """Blocks that follow each other, and the piece that they make."""

    __slots__ = ("blocks", "piece")

    def __init__(self, blocks: Blocks, first: FoundBlock, at: int, *, joins: bool) -> None:
        self.blocks = blocks
        # A damaged block may seem to reach into the next one.
        self.piece = Piece(blocks, at, first.reach, position=first.position, joins=joins)

    @property
    def out(self) -> int | None:
        """Where it ends in the output, if that is known."""
        lost = self.blocks.gaps or self.piece.position is None
        return None if lost else (self.piece.position or 0) + (self.blocks.size or 0)

    @property
    def is_empty(self) -> bool:
        """Whether there is no byte in it but those of one block that is not there."""
        return len(self.blocks) == 1 and bool(self.blocks.gaps) and not self.blocks.gaps[0].offset

    def add(self, found: FoundBlock) -> bool:
        """Add a block; return whether it is sound."""
        blocks = self.blocks
        begin = blocks.size or 0
        blocks.add(found.start, found.end, found.size, found.tag)
        self.piece.end = max(self.piece.at, found.reach)
        sound = found.proved or blocks.prove(len(blocks) - 1)
        if sound and found.why_suspect is not None:
            suspect = SuspectRange(begin, blocks.size or 0, found.why_suspect)
            blocks.suspect_ranges = (*blocks.suspect_ranges, suspect)
        return sound

    def break_off(self, found: FoundBlock, name: str, head: int) -> int:
        """End the piece where ``found``, its last block, is damaged; return that."""
        error = self.blocks.error
        error = copy(error) if error is not None else MalformedError("a block is damaged")
        error.offset = found.start + max(0, (error.offset or 0) - head)
        error.source = name
        self.piece.error = error
        self.piece.end = max(self.piece.at, min(found.reach, error.offset))
        return self.piece.end
