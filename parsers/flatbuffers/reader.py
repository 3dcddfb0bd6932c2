"""How a FlatBuffer is read: bytes from a few pages that are kept, tables by their vtables, vectors.

All numbers are little-endian. An offset is relative to where it stands: ``uint32``, forward, to what it leads to; of a
table, the first four bytes are an ``int32``, which subtracted leads to its vtable: ``uint16`` size of the vtable,
``uint16`` size of the table, then for each slot where in the table the field stands, 0 if it does not
(https://flatbuffers.dev/internals). Offsets lead forward only, so no chain of them is a circle.

What belongs together lies in several places at once (a table, its vtable, its name, its shape), so some pages are kept,
not one block that moves (`pparse.data.window`). Every place is compared with the end before it is read. What cannot be
raises `MalformedError`, what lies behind the end `EndOfDataError`, what a stream around the file lost `GapError`.
"""

from __future__ import annotations

from struct import Struct, unpack_from

from pparse.data.range_status import Stretches
from pparse.errors import DataError, EndOfDataError, LimitError, MalformedError
from pparse.limits import evictor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data
    from pparse.limits import Charge, MemoryBudget

_PAGE: Final = 13  # bits: 8 KiB
_SIZE: Final = 1 << _PAGE
# The most pages, and decoded vtables, that are kept.
_PAGES: Final = 48
_VTABLES: Final = 4096
_UINT32, _UINT64, _INT32, _HEAD = (Struct(layout).unpack for layout in ("<I", "<Q", "<i", "<HH"))


class Reader:
    """One FlatBuffer, which begins at ``start`` of ``data``."""

    __slots__ = (
        "__weakref__",
        "_charge",
        "_end",
        "_lost",
        "_pages",
        "_revision",
        "_vtables",
        "budget",
        "data",
        "start",
    )

    def __init__(self, data: Data, start: int, end: int | None, budget: MemoryBudget) -> None:
        self.data = data
        """Where it lies."""
        self.start = start
        """Offset of its first byte: places are aligned as they are from there on."""
        self._end = end
        self.budget = budget
        """What the pages are charged to."""
        self._charge: Charge | None = None
        self._pages: dict[int, bytes] = {}
        self._lost: dict[int, Stretches] = {}  # of pages that have gaps: zeros stand there
        self._vtables: dict[int, tuple[int, tuple[int, ...], int]] = {}
        self._revision = data.revision

    def take(self, at: int, count: int) -> bytes:
        """Return ``count`` bytes at offset ``at`` of the data: few of them, which are kept with those around."""
        end = self._end
        if end is not None and count > end - at:
            raise EndOfDataError("the data ends here", offset=at, wanted=count, got=max(0, end - at))
        page = self._pages.get(at >> _PAGE)
        if page is None or self._revision != self.data.revision:
            page = self._load(at >> _PAGE)
        low = at & (_SIZE - 1)
        lost = self._lost.get(at >> _PAGE) if self._lost else None
        if count <= len(page) - low and (lost is None or lost.without(at, at + count) == [(at, at + count)]):
            return page[low : low + count]
        return self.data.read_exact(at, count)

    def _load(self, number: int) -> bytes:
        if self._revision != self.data.revision or len(self._pages) >= _PAGES:
            self.drop()
            self._revision = self.data.revision
        page, unknown = self.data.read_known(number << _PAGE, _SIZE)
        pages = self._pages
        if unknown:
            self._lost[number] = Stretches((at, at + length) for at, length in unknown)
        pages[number] = page
        try:
            if self._charge is None:
                self._charge = self.budget.charge(_SIZE, "pages of a FlatBuffer", evictor(self, Reader._evicted))
            self._charge.resize(_SIZE * len(pages))
        except LimitError:
            self.drop()
        return page

    def drop(self) -> None:
        """Forget the pages and vtables that are kept."""
        charge = self._charge
        self._evicted()
        if charge is not None:
            charge.release()

    def _evicted(self) -> None:
        self._charge = None
        self._pages, self._vtables, self._lost = {}, {}, {}  # new ones: another thread may be reading

    def target(self, at: int, wide: int = 0) -> int:
        """Return where the offset at ``at`` leads to; ``wide``: it has 64 bits."""
        (offset,) = _UINT64(self.take(at, 8)) if wide else _UINT32(self.take(at, 4))
        if not 4 <= offset < 1 << 62:
            raise self.leads_nowhere(at, offset)
        return self.leads(at, int(at + offset))

    def leads(self, at: int, target: int) -> int:
        """Return ``target``, if an offset that stands at ``at`` can lead to it."""
        if not self.data.is_plain:
            self.take(target, 1)  # what is lost before it is known then
            loose = self.data.loose_gap(min(at, target)) if self.data.gaps else None
            if loose is not None and loose < max(at, target):
                raise MalformedError("the offset leads over a gap of unknown length", offset=at)
        return target

    @staticmethod
    def leads_nowhere(at: int, offset: int) -> MalformedError:
        """Return the error on an offset, at ``at``, that cannot lead anywhere."""
        return MalformedError(f"the offset is {offset:,}: it leads nowhere", offset=at)

    def vector(self, at: int, size: int, wide: int = 0) -> tuple[int, int]:
        """Return where the elements of the vector at ``at`` begin, and their number; each takes ``size`` bytes.

        Whether they are there is not asked; their number is what the data could hold at most, or less.
        """
        if (at - self.start) & 3:
            raise MalformedError("a vector is not aligned", offset=at)
        width = 8 if wide > 1 else 4
        (count,) = (_UINT64 if wide > 1 else _UINT32)(self.take(at, width))
        if count * size >= 1 << 62:
            raise MalformedError(f"a vector of {count:,} elements", offset=at)
        return at + width, int(count)

    def table(self, at: int) -> tuple[int, tuple[int, ...], int]:
        """Return the size of the table at ``at``; where in it each field is by slot, 0: it has none; and its vtable."""
        if (at - self.start) & 3:
            raise MalformedError("a table is not aligned", offset=at)
        (back,) = _INT32(self.take(at, 4))
        vtable = at - back
        known = self._vtables.get(vtable)
        if known is None or self._revision != self.data.revision:
            if len(self._vtables) >= _VTABLES:
                self._vtables = {}
            known = self._vtables[vtable] = self._vtable(at, vtable)
        return known

    def vtable_of(self, at: int) -> int | None:
        """Return where the vtable of the table at ``at`` should be, within the data; None if that is not there."""
        try:
            return max(self.start, at - int(_INT32(self.take(at, 4))[0]))
        except DataError:
            return None

    def _vtable(self, at: int, vtable: int) -> tuple[int, tuple[int, ...], int]:
        if vtable < self.start + 4 or vtable & 1 != self.start & 1:
            raise MalformedError("the vtable of a table cannot be where it says", offset=at)
        length, size = _HEAD(self.take(vtable, 4))
        if length < 4 or length & 1 or size < 4:
            raise MalformedError(f"a vtable of {length} bytes for a table of {size}", offset=vtable)
        slots: tuple[int, ...] = unpack_from(f"<{length // 2 - 2}H", self.take(vtable, length), 4)
        for slot in slots:
            if slot and not 4 <= slot < size:
                raise MalformedError(f"a field at byte {slot} of a table of {size}", offset=vtable)
        return size, slots, vtable

    def there(self, start: int, end: int) -> int:
        """Return how many of the bytes ``[start, end)`` exist; of data of unknown size, decodes no further."""
        data = self.data
        stop = end if self._end is None or end <= self._end else self._end
        size = data.size if not data.gaps else data.reach
        if size is not None and stop <= size:
            return stop - start if stop > start else 0
        if size is None and stop > start and not data.available(stop - 1, 1):
            size = start
            while size < stop and (got := len(data.known(size, min(stop - size, 1 << 16)))):
                size += got
        return max(0, min(stop, stop if size is None else size) - start)
