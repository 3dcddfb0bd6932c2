"""Far data: `BlockCache`, blocks of it, so that many small reads take few requests; `in_parallel`, several at once.

A request over a network costs as much as reading megabytes. So what is read is kept in aligned blocks of 64 KiB; a gap
between missing blocks that is smaller than a request costs is read along; and while reading goes on in order, twice as
much is read ahead each time. What is kept is charged to the budget, the least recently used blocks go first.
"""

from __future__ import annotations

from collections import OrderedDict

from pparse.data.base import Data
from pparse.data.range_status import joined
from pparse.data.spliced import DerivedData
from pparse.errors import LimitError
from pparse.limits import KIB, MIB, evictor
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Final, TypeVar

    from pparse.data.base import Distance, Gap, IoStats
    from pparse.errors import PparseError
    from pparse.limits import Charge, MemoryBudget

    Item = TypeVar("Item")
    Found = TypeVar("Found")

BLOCK: Final = 64 * KIB
# The most that is read ahead.
_AHEAD: Final = 4 * MIB
# Gaps between ranges that are read along rather than by one more request.
_JOIN: Final = 256 * KIB
# Longer reads are not kept: nobody reads a tensor twice.
_KEPT: Final = 1 * MIB


class BlockCache(DerivedData):
    """The bytes of ``source``, kept in blocks. Thread-safe, as far as ``source`` is.

    Gaps, size and errors are those of the source. `check_unchanged` asks nothing of it: a far source says with each
    reply that it changed.
    """

    def __init__(self, source: Data, budget: MemoryBudget, stats: IoStats | None = None) -> None:
        super().__init__(source.name, source.size, stats)
        self._source = source
        self.sources = (source,)
        self._budget = budget
        self._lock = RLock()
        self._blocks: OrderedDict[int, bytes] = OrderedDict()  # by number, in order of last use
        self._most = max(4, budget.limit // 8 // BLOCK)  # blocks that are kept
        self._charge: Charge | None = None
        self._ahead = 2 * BLOCK  # what the next request reads, if reading goes on in order
        self._next = 0  # where a read that goes on in order would begin
        self.access = source.access
        self.is_plain = source.is_plain

    @property
    def distance(self) -> Distance:  # type: ignore[override]
        """That of the source: what is not kept takes a request."""
        return self._source.distance

    @property
    def error(self) -> PparseError | None:  # type: ignore[override]
        """The error of the source."""
        return self._source.error

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """The identity of the source."""
        return self._source.identity

    @property
    def gaps(self) -> Sequence[Gap]:  # type: ignore[override]
        """Gaps of the source."""
        return self._source.gaps

    # -- reading -----------------------------------------------------------------------------------------------------

    def _pread(self, offset: int, length: int) -> bytes:
        with self._lock:
            if length > min(_KEPT, self._most * BLOCK // 2):
                self._next = offset + length
                return self._source.pread(offset, length)
            if not (self._next - BLOCK <= offset <= self._next + BLOCK and self._next > 0):
                self._ahead = BLOCK  # it does not go on about where the one before it ended
            if self._fill(offset, offset + length, self._ahead):
                self._ahead = min(2 * self._ahead, _AHEAD, self._most * BLOCK // 2)
            self._next = offset + length
            return b"".join(self._kept(offset, offset + length))

    def _preadinto(self, offset: int, view: memoryview) -> int:
        if len(view) > _KEPT:
            return self._source.preadinto(offset, view)
        return super()._preadinto(offset, view)

    def _kept(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes ``[start, end)``, up to the first that is not there."""
        while start < end:
            number = start // BLOCK
            block = self._blocks.get(number)
            if block is None:  # it begins in a gap, or the budget took it
                piece = self._source.known(start, min(end, (number + 1) * BLOCK) - start)
            else:
                self._blocks.move_to_end(number)
                at = start - number * BLOCK
                piece = block[at : at + end - start]
            if not piece:
                return
            yield piece
            start += len(piece)

    def _fill(self, start: int, end: int, ahead: int) -> bool:
        """Read the blocks of ``[start, end)`` that are missing by one request; say whether any were missing."""
        first, last = start // BLOCK, -(-end // BLOCK)
        missing = [number for number in range(first, last) if number not in self._blocks]
        if not missing:
            return False
        high = missing[-1] + 1
        if high == last:  # read on only where something is read anyway
            high = max(high, -(-(missing[0] * BLOCK + ahead) // BLOCK))
        begin = missing[0] * BLOCK
        gap = self.next_gap(begin) if self.gaps else None
        length = 0 if gap is not None and gap.offset <= begin else self._clip(begin, high * BLOCK - begin)
        content = self._source.pread(begin, length) if length else b""
        for at in range(0, len(content), BLOCK):
            number = missing[0] + at // BLOCK
            block = content[at : at + BLOCK]
            if len(block) == BLOCK or begin + len(content) == self.size:
                self._blocks[number] = block
                self._blocks.move_to_end(number)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)
        if content:
            self._account()
        return True

    def _account(self) -> None:
        amount = len(self._blocks) * (BLOCK + 200)
        try:
            if self._charge is None or not self._charge.amount:
                self._charge = self._budget.charge(amount, "blocks of a far file", evictor(self, BlockCache._forget))
            else:
                self._charge.resize(amount)
        except LimitError:  # no room: what was read is handed on, and not kept
            self._blocks = OrderedDict([self._blocks.popitem()]) if self._blocks else self._blocks

    def _forget(self) -> None:
        self._blocks = OrderedDict()  # a new one: another thread may be reading

    # -- hints -------------------------------------------------------------------------------------------------------

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read the blocks of these ranges, near ones together."""
        with self._lock:
            for start, end in joined(((offset, offset + length) for offset, length in ranges), _JOIN):
                if end - start <= self._most * BLOCK // 2:
                    self._fill(start, min(end, self.size if self.size is not None else end), BLOCK)
                else:
                    self._source.prefetch([(start, end - start)])

    # -- the rest ----------------------------------------------------------------------------------------------------

    def check_unchanged(self) -> None:
        """Raise `ClosedError` if it is closed."""
        Data.check_unchanged(self)

    def close(self) -> None:
        """Give the memory back; the source belongs to whoever opened it."""
        super().close()
        with self._lock:
            self._blocks = OrderedDict()
            if self._charge is not None:
                self._charge.release()


# -- Several requests at once, for far data: each costs mostly waiting -------------------------------------------------

THREADS: Final = 16


def in_parallel(
    work: Callable[[Item], Found], items: Sequence[Item], most: int = THREADS
) -> list[tuple[Found | None, Exception | None]]:
    """Call ``work`` with each of ``items``, up to ``most`` at a time; return what each call returned, and its error.

    The caller may hold locks, and waits for all: ``work`` must take none of those.
    """
    from threading import Thread

    found: list[tuple[Found | None, Exception | None]] = [(None, None)] * len(items)
    waiting = iter(range(len(items)))  # one step of it is atomic
    stopped = False

    def run() -> None:
        for number in waiting:
            if stopped:
                return
            try:
                found[number] = work(items[number]), None
            except Exception as error:  # noqa: BLE001 -- it belongs to this item: the caller decides
                found[number] = None, error

    threads = [Thread(target=run, name=f"pparse-{number}", daemon=True) for number in range(min(most, len(items)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stopped = True  # interrupted: nothing more is begun
    return found
