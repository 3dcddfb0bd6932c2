"""TFRecord records as they stand in the file: heads, data and checksums, read at any place.

Layout (tensorflow/core/lib/io/record_writer.h), little-endian, records one behind the other up to the end of the file::

    0   length, u64
    8   checksum of these eight bytes, u32: their CRC-32C, masked (`pparse.kernels.crc32c.masked`)
    12  data, ``length`` bytes
        checksum of the data, u32, masked in the same way; the next record begins behind it

So a record takes `FRAME_SIZE` bytes besides its data. Where no head is, `pparse.parsers.tfrecord.mend` looks further.
"""

from __future__ import annotations

from pparse.kernels.crc32c import crc32c, masked
from pparse.kernels.tfrecord_scan import HEAD_SIZE, head_at
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.window import Window

_PIECE: Final = MIB
AHEAD: Final = 256 * KIB
_SMALL: Final = AHEAD // 4


class Frames:
    """The heads and checksums in ``data``; ``end`` tells where it ends, ``poll`` is called between blocks."""

    def __init__(self, data: Data, end: Callable[[], int], poll: Callable[[], object]) -> None:
        self.data = data
        self.end = end
        self.poll = poll
        self.ahead: Window | None = None
        """What reads `AHEAD` of small records, while records are compared one after the other."""

    def length(self, at: int) -> int | None:
        """Return the length in the head at ``at``; None if its checksum is wrong, or it is not all there."""
        return head_at(self.data.known(at, HEAD_SIZE), 0)

    def agrees(self, start: int, end: int, content: bytes = b"") -> bool | None:
        """Say whether the data ``[start, end)`` have the checksum behind them; None if some bytes are not there.

        ``content``: the first of the data, which were read already.
        """
        crc, pos = crc32c(content), start + len(content)
        while end - pos > _PIECE:
            self.poll()
            piece = self.data.known(pos, _PIECE)
            if len(piece) < _PIECE:
                return None
            crc, pos = crc32c(piece, crc), pos + _PIECE
        source = self.data if self.ahead is None or end - pos > _SMALL else self.ahead
        last = source.known(pos, end - pos + 4)
        if len(last) < end - pos + 4:
            return None
        return masked(crc32c(memoryview(last)[:-4], crc)) == int.from_bytes(last[-4:], "little")
