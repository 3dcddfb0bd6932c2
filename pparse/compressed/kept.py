"""What is kept of a compressed stream to go back in it: places where decoding can begin again, and output."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter, itemgetter

from pparse.codecs.base import CHECKPOINT
from pparse.data.scratch import no_scratch
from pparse.errors import GapError, LimitError, PparseError
from pparse.limits import KIB, MIB, evictor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.codecs.base import Decompressor
    from pparse.compressed.env import DecodeEnv
    from pparse.data.base import Data
    from pparse.data.scratch import Spool
    from pparse.limits import Charge, MemoryBudget

# -- What a reader of a compressed stream keeps in memory: decoders at work, points to begin again, the latest output

# All of it is charged to a budget as evictable. The budget may call `drop` from any thread and holds its own lock
# then, so nothing here waits for a lock: what is dropped is replaced, never changed, and who uses it holds a
# reference.

# Blocks that are joined when they are kept.
_SMALL: Final = 4 * KIB
# A point without a saved state: the object.
_POINT: Final = 512


class Checkpoint:
    """Where decoding can begin: the start of a member, or (``decoder``) inside one.

    ``out`` counts output; ``start`` and ``start_out`` say where the member begins, in the source and in the output.
    """

    __slots__ = ("__weakref__", "_charge", "alive", "decoder", "out", "start", "start_out")

    def __init__(self, out: int, start: int, start_out: int, decoder: Decompressor | None = None) -> None:
        self.out, self.start, self.start_out, self.decoder = out, start, start_out, decoder
        self.alive = True
        self._charge: Charge | None = None

    def hold(self, budget: MemoryBudget) -> None:
        """Charge what it holds, which may be had back. Raises `LimitError`."""
        amount = _POINT if self.decoder is None else _POINT + CHECKPOINT
        self._charge = budget.charge(amount, "a checkpoint", evictor(self, Checkpoint.drop))

    def drop(self) -> None:
        """Give the memory back. Called by the budget, perhaps from another thread."""
        self.alive = False
        self.decoder = None


class OutputCache:
    """Output kept in memory: blocks one after the other that end at ``end``; evictable, and then empty.

    At most ``limit`` bytes are kept, the latest.
    """

    __slots__ = ("__weakref__", "_blocks", "_budget", "_charge", "_held", "_limit", "end")

    def __init__(self, budget: MemoryBudget, limit: int, start: int) -> None:
        self._budget, self._limit = budget, limit
        self._charge: Charge | None = None
        self._blocks: list[tuple[int, bytes]] = []
        self._held = 0
        self.end = start

    def add(self, block: bytes) -> None:
        """Keep ``block``, and of what was kept before what has room beside it."""
        blocks = self._blocks
        if self._charge is None or not self._charge.amount:
            blocks, self._held = [], 0
        first = 0
        while self._held + len(block) > self._limit and first < len(blocks):
            self._held -= len(blocks[first][1])
            first += 1
        start, kept = self.end, block
        if blocks and len(blocks[-1][1]) + len(block) <= _SMALL:
            start, kept = blocks[-1][0], blocks[-1][1] + block
        # A new list: the one before may be in the hands of a reader, or be dropped by the budget meanwhile.
        self._blocks = [*(blocks[first:] if kept is block else blocks[first:-1]), (start, kept)]
        self._held += len(block)
        self.end += len(block)
        # Blocks come and go: the allocator holds about a fifth of them in pieces that nobody has.
        cost = self._held + self._held // 4
        try:
            if self._charge is None or not self._charge.amount:
                self._charge = self._budget.charge(cost, "decoded bytes", evictor(self, OutputCache.drop))
            elif cost > self._charge.amount:
                self._charge.resize(cost)
        except LimitError:  # only what was asked for just now
            self._blocks, self._held = [(self.end - len(block), block)], len(block)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; none if they are not here."""
        blocks = self._blocks
        if not blocks or not blocks[0][0] <= offset < self.end:
            return b""
        at, block = blocks[bisect_right(blocks, offset, key=itemgetter(0)) - 1]
        return block[offset - at : offset - at + length]

    def covers(self, offset: int) -> bool:
        """Say whether all from ``offset`` to the end is here."""
        blocks = self._blocks
        return bool(blocks) and blocks[0][0] <= offset

    def drop(self) -> None:
        """Give the memory back. Called by the budget, perhaps from another thread."""
        self._blocks = []
        charge = self._charge
        if charge is not None:
            charge.release()


class DecoderRun:
    """A decoder at work: ``point`` where its member begins, ``at`` what is read next, ``out`` what was produced."""

    __slots__ = ("__weakref__", "at", "decoder", "gap", "out", "start", "start_out")

    def __init__(self, point: Checkpoint, decoder: Decompressor) -> None:
        self.start = point.start
        self.start_out = point.start_out
        # The decoder knows where it stands: the point's own may have been dropped just before.
        self.out = point.start_out + decoder.total_out
        self.at = point.start + decoder.consumed
        self.decoder: Decompressor | None = decoder
        self.gap: GapError | None = None

    def drop(self) -> None:
        """Give the memory back. Called by the budget, perhaps from another thread."""
        self.decoder = None


def reread(source: Data, start: int, end: int, offset: int, length: int) -> bytes:
    """Return bytes of a member once more, for its decoder."""
    return source.known(start + offset, max(0, min(length, end - start - offset)))


# -- Which places of a compressed stream decoding can begin at again: `Checkpoints` ------------------------------------

# How many are kept, how far apart they are at first, and how many stay so near to each other where it was decoded last.
_POINTS: Final = 80
_SPACING: Final = 1 * MIB
_OUT: Final = attrgetter("out")
_DENSE: Final = 8


class Checkpoints:
    """Checkpoints in order of their output, the start of the stream first; charged to ``budget``, which may drop them.

    They are ``spacing`` bytes of output apart, but for the latest, which are nearer to each other.
    """

    __slots__ = ("_budget", "points", "spacing")

    def __init__(self, start: Checkpoint, budget: MemoryBudget) -> None:
        self._budget = budget
        self.points = [start]
        self.spacing = _SPACING

    @property
    def start(self) -> Checkpoint:
        """The start of the stream, which is never dropped."""
        return self.points[0]

    def nearest(self, out: int) -> Checkpoint:
        """Return the last one that is not behind byte ``out`` of the output."""
        if not all(point.alive for point in self.points):
            self.points = [point for point in self.points if point.alive]
        return self.points[self._place(out) - 1]

    def wants(self, out: int) -> bool:
        """Say whether there is none shortly before byte ``out`` of the output."""
        near = self.points[self._place(out) - 1]
        return not near.alive or out - near.out >= _SPACING

    def add(self, point: Checkpoint) -> None:
        """Keep ``point``, if there is none near it and the budget has room."""
        if not self.wants(point.out):
            return
        try:
            point.hold(self._budget)
        except LimitError:
            return
        self.points.insert(self._place(point.out), point)
        if len(self.points) > _POINTS:
            self._thin_out(point.out)

    def _place(self, out: int) -> int:
        return bisect_right(self.points, out, key=_OUT)

    def _thin_out(self, here: int) -> None:
        """Drop points, but of those shortly before ``here`` none: a reader that goes back goes there most often."""
        dense = here - _DENSE * _SPACING
        while len(self.points) > _POINTS - _DENSE:
            kept = self.points[:1]
            for point in self.points[1:]:
                room = _SPACING if dense <= point.out <= here else self.spacing
                if point.alive and point.out - kept[-1].out >= room:
                    kept.append(point)
            if len(kept) > _POINTS - _DENSE:
                self.spacing *= 2
            self.points = kept

    def saved(self) -> list[tuple[int, Decompressor]]:
        """Return the decoders that were saved, in order, with where their members begin."""
        points = [(point.start, point.decoder) for point in self.points]
        return [(start, decoder) for start, decoder in points if decoder is not None]

    def close(self) -> None:
        """Give back the memory."""
        self.points = self.points[:1]


# -- Which output of a compressed stream is kept, so that it need not be decoded again: `KeptOutput` -------------------

# The latest output that is kept (a sixteenth of a small budget).
_CACHE: Final = 4 * MIB
_LEAST_CACHE: Final = 64 * KIB
# How often all may be decoded again by a codec that cannot go back, without a scratch file, for a reader that keeps
# what it comes back to, and so goes forwards but for a few times.
_MOST_AGAIN: Final = 8


class KeptOutput:
    """The latest output, and what somebody wants to come back to; or all of it, in memory or in a scratch file.

    Whether it is all is the restart policy: see `prepare_restart`.
    """

    __slots__ = ("_env", "_latest", "_whole", "aside", "limit", "spool")

    def __init__(self, env: DecodeEnv) -> None:
        self._env = env
        self.limit = min(_CACHE, max(env.budget.limit // 16, _LEAST_CACHE))  # bytes of the latest that are kept
        self._latest = OutputCache(env.budget, self.limit, 0)
        self._whole: OutputCache | None = None
        self.aside: OutputCache | None = None
        """What somebody wants to come back to."""
        self.spool: Spool | None = None

    @property
    def is_all(self) -> bool:
        """Whether all output is kept, from the very start on."""
        return self.spool is not None or self._whole is not None

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; none if they are not here."""
        if self.spool is not None and offset < self.spool.size:
            return self.spool.pread(offset, min(length, _CACHE))
        for kept in (self._whole, self.aside):
            if kept is not None and (found := kept.read(offset, length)):
                return found
        return self._latest.read(offset, length)

    def begin(self, out: int) -> None:
        """Forget the latest: what comes next begins at byte ``out``."""
        self._latest = OutputCache(self._env.budget, self.limit, out)

    def add(self, block: bytes, before: int) -> None:
        """Keep ``block``, which ``before`` bytes precede. Raises what writing to the scratch file raises."""
        if self.spool is not None:
            if self.spool.size == before:
                self._append(self.spool, block)
            return
        if self._whole is not None and (self._whole.end != before or (before and not self._whole.covers(0))):
            self._whole = None  # it had to go
        if self._whole is not None:
            self._whole.add(block)
        else:
            if self._latest.end != before:
                self.begin(before)
            self._latest.add(block)

    def _append(self, spool: Spool, block: bytes) -> None:
        try:
            spool.append(block)
        except PparseError:
            self.spool = None
            spool.close()
            raise

    def prepare_restart(self, codec: str, size: int | None, skipped: int, redone: int, furthest: int) -> bool:
        """Choose how a codec without saved states goes back: return whether that must be to the very start.

        ``skipped`` bytes would be decoded in vain, ``redone`` of ``furthest`` bytes were already. An output of a known
        ``size`` that is small is kept whole from now on; else, what would be decoded too often goes to a scratch file.
        Raises `LimitError` if there is none.
        """
        env = self._env
        if self.spool is not None:
            return True  # it was interrupted; what is spooled already stays
        if size is not None and size <= env.budget.limit // 4:
            self._whole = OutputCache(env.budget, size, 0)
            return True
        if env.scratch is None or env.scratch.folder is None:
            if redone < (1 if self.aside is None else _MOST_AGAIN) * furthest:
                return False
        elif redone + skipped <= furthest // 2:
            return False
        if env.scratch is None:
            raise no_scratch(f"seeking back repeatedly in {codec} data")
        self.spool = env.scratch.spool()
        return True

    def close(self) -> None:
        """Give back memory and scratch space."""
        self._whole = self.aside = None
        self.begin(0)
        if self.spool is not None:
            self.spool.close()
            self.spool = None
