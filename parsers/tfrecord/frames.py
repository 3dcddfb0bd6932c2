"""TFRecord records as they stand in the file: heads, data and checksums, read at any place, and where they continue
behind damage.

Layout (tensorflow/core/lib/io/record_writer.h), little-endian, records one behind the other up to the end of the file::

    0   length, u64
    8   checksum of these eight bytes, u32: their CRC-32C, masked (`pparse.kernels.crc32c.masked`)
    12  data, ``length`` bytes
        checksum of the data, u32, masked in the same way; the next record begins behind it

So a record takes `FRAME_SIZE` bytes besides its data. Where no head is, a place is taken for a record only if the
checksum of its length agrees, and that of its data or of the next length, too: by chance, that happens once in 2**64
places. What is found out about a place is kept, so that whoever reads the records again comes to the same ones; and
what is hashed in vain is bounded, whatever lengths a file claims.
"""

from __future__ import annotations

from itertools import combinations, islice, pairwise

from pparse.errors import GapError
from pparse.kernels.crc32c import crc32c, masked
from pparse.kernels.tfrecord_scan import FRAME_SIZE, HEAD_SIZE, head_at, heads
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
_FIRST_SCAN: Final = 4 * KIB
_LAST_SCAN: Final = MIB
# How many places are remembered at which reading stopped. Behind others, only the next length proves a record.
_KNOWN: Final = 4_096
# What may be hashed in vain: so many times the size of the file, and this.
_TIMES: Final = 4
_FREE: Final = 64 * MIB
# Where a file ends inside of a record, so many of its last bytes are searched, and so many runs of records followed.
_LOOKED_BACK: Final = 4 * MIB
_CHAINS: Final = 4
# So many carriage returns are put back into a record, and so many bytes hashed to find out where.
_RETURNS: Final = 3
_TRIED: Final = MIB


class Frames:
    """The records in ``data``, also those behind places where none begins.

    ``end`` tells where it ends, ``poll`` is called between blocks.
    """

    def __init__(self, data: Data, end: Callable[[], int], poll: Callable[[], object]) -> None:
        self.data = data
        self.end = end
        self.poll = poll
        self.ahead: Window | None = None
        """What reads `AHEAD` of small records, while records are compared one after the other."""
        self._behind: dict[int, tuple[int, bool]] = {}
        self._inside: dict[int, int | None] = {}  # by where a record ends, or where the last one begins
        self._spent = 0

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

    # -- behind damage ------------------------------------------------------------------------------------------------

    def behind(self, at: int) -> tuple[int, bool]:
        """Return where the next record begins behind ``at``, where no head is (or the end, if there is none).

        Also say whether what lies between is one record, by the checksum of its data: only its head is damaged.
        """
        known = self._behind.get(at)
        if known is None:
            remembered = len(self._behind) < _KNOWN
            end = self.find(at + 1, self.end(), hashing=remembered)
            data_end = end - 4
            known = end, data_end - at >= HEAD_SIZE and self.agrees(at + HEAD_SIZE, data_end) is True
            if remembered:
                self._behind[at] = known
        return known

    def inside(self, before: int, at: int) -> int | None:
        """Return where a record begins inside of the one at ``before``, if no head is at its end ``at``, and its data
        are wrong: bytes were lost, so that it claims others behind them. None: nowhere, or that is not known."""
        if at not in self._inside:
            size = at - before
            if not self._may_spend(size):
                return None
            self._spent += size
            found = None
            if self.agrees(before + HEAD_SIZE, at - 4) is not True:
                found = self.find(before + 1, at)
            self._inside[at] = None if found == at else found
        return self._inside[at]

    def why_lost(self, before: int, end: int) -> tuple[str, str]:
        """Return why a record that ends at ``end`` is too short, in words and as a code."""
        if self._lacks_returns(before, end):
            reason = "its carriage returns before line feeds were taken away: fetch it again, not in text mode"
            return reason, "text-mode"
        return "bytes of a record are lost, so that it claims those of others", "malformed"

    def _lacks_returns(self, before: int, end: int) -> bool:
        """Return whether the record at ``before``, which ends at ``end`` and is too short, agrees with its checksum
        with carriage returns in front of some of its line feeds: a transfer in text mode took them away."""
        length = self.length(before)
        missing = 0 if length is None else before + FRAME_SIZE + length - end
        if length is None or not 0 < missing <= min(_RETURNS, length) or length > _TRIED:
            return False
        found = self.data.known(before + HEAD_SIZE, length - missing + 4)
        content, wanted = found[:-4], int.from_bytes(found[-4:], "little")
        feeds = (at for at, byte in enumerate(content) if byte == 10)
        for places in islice(combinations(feeds, missing), _TRIED // length):
            parts = (content[low:high] for low, high in pairwise((0, *places, len(content))))
            if masked(crc32c(b"\r".join(parts))) == wanted:
                return True
        return False

    def inside_last(self, before: int) -> int | None:
        """Return where records begin inside of the one at ``before``, which claims more than there is, if they lead
        exactly to the end: then bytes of it are lost, and not the end of the file. None: it is cut."""
        end = self.end()
        if before not in self._inside:
            at, found = max(before, end - _LOOKED_BACK), None
            for _ in range(_CHAINS if self._may_spend(_LOOKED_BACK) else 0):
                at = self.find(at + 1, end)
                if at >= end:
                    break
                if self._leads_to(at, end):
                    found = at
                    break
            self._inside[before] = end if found is None and self._lacks_returns(before, end) else found
        return self._inside[before]

    def _leads_to(self, at: int, end: int) -> bool:
        while at < end:
            length = self.length(at)
            if length is None:
                return False
            at += length + FRAME_SIZE
        return at == end

    def _may_spend(self, count: int) -> bool:
        return len(self._inside) < _KNOWN and self._spent + count <= _TIMES * self.end() + _FREE

    def find(self, at: int, stop: int, *, hashing: bool = True) -> int:
        """Return where the first certain record begins in ``[at, stop)``; ``stop`` if there is none.

        Not ``hashing``: only by the length of the record behind it, not by the checksum of its data.
        """
        end, size = self.end(), _FIRST_SCAN
        while stop - at >= FRAME_SIZE:
            self.poll()
            try:
                block = self.data.pread(at, min(size, end - at))
            except GapError as gap:
                if gap.length is None or gap.offset is None:
                    break
                at = max(at + 1, gap.offset + gap.length)
                continue
            for place in heads(block, end - at - FRAME_SIZE):
                if at + place >= stop:
                    return stop
                if self._is_certain(at + place, block, place, end, hashing=hashing):
                    return at + place
            # The last bytes may begin a head, unless a gap follows.
            at += max(len(block) - HEAD_SIZE + 1, min(len(block), HEAD_SIZE), 1)
            size = min(4 * size, _LAST_SCAN)
        return stop

    def _is_certain(self, at: int, block: bytes, place: int, end: int, *, hashing: bool) -> bool:
        length = head_at(block, place) or 0
        following = at + length + FRAME_SIZE
        if following > end:
            return False
        if following < end and self.length(following) is not None:
            return True
        if not hashing or not self._may_spend(length):
            return False
        self._spent += length
        return self.agrees(at + HEAD_SIZE, following - 4) is True
