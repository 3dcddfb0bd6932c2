"""Stretches of items that are computed, for workers: each writes its own into the unfinished file.

Of the same elements come the same bytes, whoever writes them: so a run that is stopped, and then continued, does no
harm to what a worker of the one before may still be writing.
"""

from __future__ import annotations

from copy import copy
from itertools import cycle
from zlib import crc32

from pparse.conversion.forms import PIECE
from pparse.errors import refused
from pparse.tensors.scales import meant
from pparse.workers.parts import PART, Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.conversion.forms import Item
    from pparse.tensors.viewer import Viewer

# Stretches begin where pieces do, of any size that a worker may make them.
_ELEMENTS: Final = PIECE


class Stretch(Part):
    """Elements ``start`` to ``stop`` of an item, computed and written into the file ``path``.

    The result: how many bytes, their CRC-32 (0 without ``has_crc``), and how many numbers were too large.
    """

    def __init__(
        self, viewer: Viewer, item: Item, start: int, stop: int, path: str, *, dequantize: bool, has_crc: bool
    ) -> None:
        super().__init__([(viewer, item.given)], start, stop)
        self._item, self._path, self._dequantize, self._has_crc = item, path, dequantize, has_crc

    def __getstate__(self) -> dict[str, object]:
        item = copy(self._item)
        item.tensor = item.given = None  # type: ignore[assignment]
        return {**super().__getstate__(), "_item": item}

    def measure(self) -> tuple[int, int, int]:
        """Write them. Raises the errors of `Tensor.blocks`, and `SourceError` if the disk refuses."""
        item = copy(self._item)
        item.tensor = meant(self.viewers[0], self.tensors[0], dequantize=self._dequantize)
        item.overflowed = 0
        start, left = item.size_of(self.start), item.size_of(self.stop or 0) - item.size_of(self.start)
        size, crc = left, 0
        with refused("cannot write", self._path), open(self._path, "r+b", buffering=0) as file:
            file.seek(item.at + start)
            for piece in item.pieces(start, PIECE, cycle((memoryview(bytearray(PIECE)),))):
                view = piece[:left]
                left -= len(view)
                crc = crc32(view, crc) if self._has_crc else 0
                while view:
                    view = view[file.write(view) :]
                if not left:
                    break
        return size - left, crc, item.overflowed


def stretches(viewer: Viewer, item: Item, done: int, path: str, **how: Any) -> list[Stretch]:
    """Return the stretches of an item from byte ``done`` on; nothing if it is as well copied here."""
    if item.is_straight or item.dtype.packed or item.wanted_crc is not None or not item.dtype.is_number:
        return []
    size, first = item.tensor.size, item.elements_in(done)
    step = max(1, PART // 8 // _ELEMENTS) * _ELEMENTS
    found = [Stretch(viewer, item, start, min(size, start + step), path, **how) for start in range(first, size, step)]
    return [] if found and found[0].is_local else found  # what holds for one holds for all
