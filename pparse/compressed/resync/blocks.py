"""`Blocks`: blocks that are decoded each by itself, as one Data; and what searching has in common."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from copy import copy
from operator import attrgetter

from pparse.codecs.base import skips
from pparse.compressed.resync import BEFORE_DAMAGE, CONTRADICTED, Piece, places_of
from pparse.data.base import Access, BytesData, Data, Gap
from pparse.data.range_status import SuspectRange
from pparse.data.spliced import SplicedData
from pparse.data.window import Window, windows
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError
from pparse.limits import KIB, MIB
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.compressed.env import DecodeEnv
    from pparse.compressed.inflated import InflatedData
    from pparse.compressed.resync import Failure
    from pparse.data.base import Range
    from pparse.limits import Charge, MemoryBudget

    # Opens a block: called with (start, end, size, tag) as given to `Blocks.add`.
    OpenBlock = Callable[[int, int, int, int], InflatedData]

# Blocks that are open at a time: two serve who reads around a border.
_OPEN: Final = 2
# Entries of the index: how many, before neighbours are joined; what one takes; how many are charged at once.
_MOST: Final = 16 * KIB
_ENTRY: Final = 32
_STEP: Final = 1 * KIB
# No output is larger, whatever an index says: offsets must stay numbers that others can hold.
LARGEST: Final = 1 << 62
# In the tag of a block: of it just so much can be decoded as its size says.
CUT: Final = 1 << 16
# What is read at once: by who looks at single things, where that goes on and after a jump, and by who searches.
_BLOCK: Final = 64 * KIB
_JUMP: Final = 4 * KIB
_WINDOW: Final = 256 * KIB


class Blocks(Data):
    """Blocks that decode each by itself, in the order of their output, readable at any offset. Thread-safe.

    ``open_block(start, end, size, tag)`` opens what `add` was called with. An index of 32 bytes a block is kept, and
    charged to ``budget``; with ``joins``, neighbouring blocks decode in one go as well, and a long index is thinned
    out. ``proved``: every block was decoded and found sound before it was added; else damage is found by reading: what
    cannot be decoded becomes a gap, what precedes it in its block (or all of it, if a checksum contradicts) is in
    why_suspect, and `error` is the first error of all. ``small``: a block is decoded anew, rather than that a scratch
    file be asked for, where one reads backwards in it.
    """

    def __init__(
        self,
        name: str,
        open_block: OpenBlock,
        budget: MemoryBudget,
        *,
        joins: bool = False,
        proved: bool = False,
        small: bool = False,
    ) -> None:
        super().__init__(name, 0)
        self.access = Access.CHECKPOINT
        self._open_block, self._budget, self._joins = open_block, budget, joins
        self._proved, self._small = proved, small
        self._starts = array("q")
        self._ends = array("q")
        self._outs = array("q")
        self._tags = array("q")
        self._total = 0
        self._charge: Charge | None = None
        self._lock = RLock()
        self._opened: list[tuple[int, InflatedData]] = []  # the latest last
        self._noted: set[int] = set()  # blocks found damaged

    # -- the index -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int, size: int, tag: int = 0) -> None:
        """Add a block of ``size`` bytes of output. Raises `LimitError`, and `MalformedError` for an absurd size."""
        if size > LARGEST - self._total:
            raise MalformedError("a block declares an absurd size", offset=start, wanted=size)
        if len(self._starts) >= _MOST and self._joins:
            self._thin()
        room = len(self._starts) - len(self._starts) % _STEP + _STEP
        if self._charge is None:
            self._charge = self._budget.charge(room * _ENTRY, "an index of blocks")
        elif self._charge.amount < room * _ENTRY:
            self._charge.resize(room * _ENTRY)
        self._starts.append(start)
        self._ends.append(end)
        self._outs.append(self._total)
        self._tags.append(tag)
        self._total += size
        self.size = self._total

    def _thin(self) -> None:
        """Join every block with its neighbour, where both are of a kind."""
        starts, ends, outs, tags = array("q"), array("q"), array("q"), array("q")
        at = 0
        while at < len(self._starts):
            last = at + 1
            if last == len(self._starts) or self._ends[at] != self._starts[last] or self._tags[at] != self._tags[last]:
                last = at
            starts.append(self._starts[at])
            ends.append(self._ends[last])
            outs.append(self._outs[at])
            tags.append(self._tags[at])
            at = last + 1
        self._starts, self._ends, self._outs, self._tags = starts, ends, outs, tags
        self._let_go()
        self._noted.clear()

    def _size_of(self, number: int) -> int:
        after = self._outs[number + 1] if number + 1 < len(self._outs) else self._total
        return after - self._outs[number]

    # -- reading -------------------------------------------------------------------------------------------------

    def _pread(self, offset: int, length: int) -> bytes:
        pieces: list[bytes] = []
        at = offset
        with self._lock:
            while length:
                number = bisect_right(self._outs, at) - 1
                begin = self._outs[number]
                take = min(length, begin + self._size_of(number) - at)
                chunk = self._read(number, at - begin, take)
                pieces.append(chunk)
                at += len(chunk)
                length -= len(chunk)
                if len(chunk) < take:
                    if at == offset:
                        self._clip(at, 1)  # raises: the gap was found just now
                    break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read(self, number: int, at: int, count: int) -> bytes:
        data = self._block(number)
        try:
            chunk = data.known(at, count)
        except LimitError as error:
            if not self._small or "--scratch" not in error.option:
                raise
            self._let_go()
            data = self._block(number)
            chunk = data.known(at, count)
        if data.error is not None:
            self._note(number, data)
        return chunk

    def _block(self, number: int) -> InflatedData:
        for place, (one, data) in enumerate(self._opened):
            if one == number:
                if place < len(self._opened) - 1:
                    self._opened.append(self._opened.pop(place))
                return data
        while len(self._opened) >= _OPEN:
            self._opened.pop(0)[1].close()
        data = self._open_block(self._starts[number], self._ends[number], self._size_of(number), self._tags[number])
        self._opened.append((number, data))
        return data

    def _note(self, number: int, data: InflatedData) -> None:
        """Note damage of a block."""
        size = self._size_of(number)
        good = min(data.gaps[0].offset, size) if data.gaps else size
        if number in self._noted or (good >= size and self._proved):  # cut out of its surroundings, it has no end
            return
        self._noted.add(number)
        if self.error is None:
            self.error = data.error
        begin = self._outs[number]
        cut = isinstance(data.error, GapError) or (good >= size and isinstance(data.error, EndOfDataError))
        if good and not cut:  # a source that ends, or has a gap, does not say that anything is wrong
            reason = BEFORE_DAMAGE if good < size or self._tags[number] & CUT else CONTRADICTED
            found = SuspectRange(begin, begin + good, reason)
            place = bisect_left(self.suspect_ranges, begin, key=attrgetter("start"))
            self.suspect_ranges = (*self.suspect_ranges[:place], found, *self.suspect_ranges[place:])
        if good < size:
            gap = Gap(begin + good, size - good)
            place = bisect_left(self.gaps, begin, key=attrgetter("offset"))
            self.gaps = (*self.gaps[:place], gap, *self.gaps[place:])

    def verify_block(self, number: int) -> bool:
        """Decode block ``number``; say whether it is sound. One that the budget does not hold is a gap."""
        with self._lock:
            data = self._block(number)
            try:
                data.verify()
            except LimitError as error:
                if "--budget" not in error.option:
                    raise
                data.error = error
                data.gaps = (Gap(0, None),)
            if data.error is not None:
                self._note(number, data)
            return number not in self._noted

    def _let_go(self) -> None:
        while self._opened:
            self._opened.pop()[1].close()

    def close(self) -> None:
        """Give back the memory; the source belongs to whoever opened it."""
        with self._lock:
            super().close()
            self._let_go()
            if self._charge is not None:
                self._charge.release()


class Look(Window):
    """Looks at small things of a range, anywhere in ``[start, end)``, through a block of 64 KiB; of 4 KiB after a jump.

    Lengths that lead from place to place are believed by thousands, where one of them may be right.
    """

    __slots__ = ("end", "start")

    def __init__(self, source: Range) -> None:
        size = source.data.size
        self.start = source.start
        self.end = source.end if size is None else max(source.start, min(source.end, size))
        super().__init__(source.data, self.end, least=_JUMP, ahead=_BLOCK)

    def get(self, at: int, count: int) -> bytes:
        """Return up to ``count`` bytes (at most 64 KiB) at ``at``; fewer at the end, and where a gap begins."""
        if at < self.start:
            return b""
        if at < self._at:  # who goes back does so again
            self.read_known(max(self.start, at + count - _JUMP), 1)
        return self.known(at, count)

    def number(self, at: int, count: int) -> int | None:
        """Return a little-endian number of ``count`` bytes; None if they are not there."""
        found = self.get(at, count)
        return int.from_bytes(found, "little") if len(found) == count else None

    def windows(self, at: int, overlap: int, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield what `windows` does of ``[at, end)``, at most up to the end of the source."""
        return windows(self.data, at, self.end if end is None else min(end, self.end), _WINDOW, overlap)


class Effort:
    """What may be tried in vain: ``base``, and ``rate`` for each byte that a search has passed since ``begin``."""

    __slots__ = ("_base", "_begin", "_rate", "spent")

    def __init__(self, begin: int, base: int = 64 * MIB, rate: int = 16) -> None:
        self._begin, self._base, self._rate = begin, base, rate
        self.spent = 0

    def allows(self, at: int) -> bool:
        """Say whether the search, being at ``at``, may go on to try."""
        return self.spent <= self._base + self._rate * max(0, at - self._begin)


# -- From blocks that are found behind damage, one after the other, to pieces: each is a run that ends at damage -------


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
        self.size, self.tag = size, tag
        self.position: int | None = None
        self.follows = True
        self.why_suspect: str | None = None
        self.proved = False
        self.sure = True


class Opener:
    """Opens blocks of ``codec``; see `Blocks`. With ``concatenated``, several of them are one stream."""

    def __init__(self, source: Range, env: DecodeEnv, codec: str, *, concatenated: bool = False) -> None:
        self._data = source.data
        self._env, self._codec, self._concatenated = env, codec, concatenated

    def stream(self, start: int, end: int, size: int | None, tag: int) -> Range:
        """Return a stream that holds the block."""
        return self._data.range(start, end)

    def __call__(self, start: int, end: int, size: int | None, tag: int) -> InflatedData:
        """Open the block."""
        stream = self.stream(start, end, size, tag)
        return self._env.inflate(stream, self._codec, size=size, concatenated=self._concatenated)


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
        self._failure, self._env = failure, env
        self._open = open_block
        self._search_from = failure.start + 1  # from where on to look for what tells where it is

    def _behind(self) -> Iterator[FoundBlock]:
        """Yield the blocks behind the failure, in order; sets ``failure.suspect_from``."""
        raise NotImplementedError

    def _lose(self) -> None:
        """Note that the block found last is damaged, and that nobody knows what it should have held."""

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces that the blocks make, each block decoded once."""
        run: _BlockRun | None = None
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
                name, budget = self._look.data.name, self._env.budget
                blocks = Blocks(name, self._open, budget, joins=self.joins, proved=self.proved, small=self.small)
                run = _BlockRun(blocks, found, max(found.at, end), joins=joins)
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

    def _measure(self, found: FoundBlock) -> None:
        """Decode a block that does not say what it holds; one that is not sound gets the tag `CUT`."""
        with self._open(found.start, found.end, None, found.tag) as data:
            data.verify()
            found.size, found.proved = data.produced, data.error is None
        if not found.proved:
            found.tag |= CUT


class _BlockRun:
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
        sound = found.proved or blocks.verify_block(len(blocks) - 1)
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


# -- What Zstandard and LZ4 have in common: frames that begin with a magic number, and frames that are to be skipped

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
        for base, data in self._look.windows(at, len(self.magic) - 1, end):
            for place in places_of(self.magic, data):
                if base + place > latest:
                    latest = base + place
                    yield latest

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
