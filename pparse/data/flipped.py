"""`FlippedData`: numbers of which the sign is another than the stored one, such as conjugated ones."""

from __future__ import annotations

from pparse.data.spliced import SplicedData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from pparse.data.reader import Range

_FLIP: Final = bytes(code ^ 0x80 for code in range(256))


class FlippedData(SplicedData):
    """The bytes of a range, with the highest bit of some bytes of each item turned over: the signs of floats."""

    def __init__(self, part: Range, item: int, places: Sequence[int], name: str) -> None:
        """``places`` are those of the bytes, in an item of ``item`` bytes; the range begins with an item."""
        super().__init__([part], name, part.data.stats)
        self._item = item
        self._places = tuple(places)

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """That of the bytes, and which are turned over."""
        from pparse.data.identity import derived

        self._clip(0, 0)
        return derived("flipped", self._parts, (self._item, self._places))

    def _turn(self, offset: int, view: memoryview | bytearray) -> None:
        for place in self._places:
            first = (place - offset) % self._item
            view[first :: self._item] = bytes(view[first :: self._item]).translate(_FLIP)

    def _pread(self, offset: int, length: int) -> bytes:
        block = bytearray(super()._pread(offset, length))
        self._turn(offset, block)
        return bytes(block)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        block = self._pread(offset, len(view))
        view[: len(block)] = block
        return len(block)

    def mapped(self, offset: int, length: int) -> memoryview | None:
        """Return None: no mapped file has these bytes."""
        return None
