"""The index of a file of rows: where every 64th row begins, kept in a file, so that a far row costs no pass over all.

The format, version 2 (all numbers little-endian, unsigned but for the times)::

    header     15 bytes "pparse rows idx", 1 byte version, u64 rows, u64 points, u64 size of the source, i64 its
               modification time, i64 the time of its last change (both in ns, 0: unknown), u64 where the row begins
               that makes the numbers behind it uncertain (2^64 - 1: none does), 16 bytes the source's
               `pparse.data.index_files.fingerprint`, u32 CRC-32 of the table, u32 CRC-32 of the header up to here
    table      8 bytes a point: u64 where row 0, 64, 128 … begins in the source

An index is of a source that has its size, fingerprint and times. With gzip, what is used is compared first; here, bytes
that were changed anywhere before a row change its number. A program can put the modification time back, but not that
of the last change; so a file that was copied or renamed is indexed anew. An index with right sums that was forged would
be believed; `pparse index --check` reads the source to tell.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from itertools import pairwise
from operator import eq

from pparse.data.index_files import fingerprint
from pparse.errors import MalformedError, UnsupportedError
from pparse.tree.index import STRIDE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Final

    from pparse.data.base import Data, Range
    from pparse.limits import MemoryBudget
    from pparse.tree.index import ChildIndex

NAME: Final = b"pparse rows idx"
VERSION: Final = 2
_HEADER: Final = struct.Struct("<15sBQQQqqQ16sII")
_POINT: Final = 8
_NOWHERE: Final = 2**64 - 1


class RowIndex:
    """An index file that was read and found sound; see the head of the file.

    ``rows`` and ``points``: how many; ``offsets``: where every 64th row begins; ``unsure_from``: where the row begins
    behind which numbers are uncertain, or None; ``file_size``: bytes of the file. The caller charges what it keeps of
    it. Raises `MalformedError` for what is no index, or a damaged one; `UnsupportedError` for a version that is not
    known; `LimitError`.
    """

    def __init__(self, data: Data, budget: MemoryBudget) -> None:
        size = self.file_size = data.size or 0
        if size < _HEADER.size + _POINT or data.pread(0, len(NAME)) != NAME:
            raise MalformedError("not an index of rows", source=data.name)
        header = data.read_exact(0, _HEADER.size)
        _, version, self.rows, self.points, *self._times, unsure, self._print, table_sum, own_sum = _HEADER.unpack(
            header
        )
        self.unsure_from = None if unsure == _NOWHERE else unsure
        if version != VERSION:
            raise UnsupportedError(f"{data.name}: an index of version {version}, known is version {VERSION}")
        whole = zlib.crc32(header[:-4]) == own_sum and size - _HEADER.size == _POINT * self.points
        if not whole or self.points != (self.rows + STRIDE - 1) // STRIDE:
            raise MalformedError("the index is damaged, or cut short", source=data.name)
        self.name = data.name
        self.data = data
        self.offsets = array("q")
        with budget.charge(2 * _POINT * self.points, "the index of rows"):
            table = data.read_exact(_HEADER.size, _POINT * self.points)
            self.offsets.frombytes(table)
            if sys.byteorder == "big":
                self.offsets.byteswap()
            least = 2 * STRIDE  # a row has two bytes at least
            ascending = all(one + least <= two for one, two in pairwise(self.offsets))
            inside = 0 <= self.offsets[0] <= self.offsets[-1] < self._times[0]
            if not (ascending and inside) or zlib.crc32(table) != table_sum:
                raise MalformedError("the index is damaged: its table contradicts itself", source=data.name)

    def matches(self, source: Range) -> bool:
        """Say whether this is an index of ``source``, as it is now. Raises `MalformedError` if only a time differs."""
        *same, is_unchanged = map(eq, _times_of(source), self._times)
        if not all(same) or fingerprint(source) != self._print:
            return False
        if not is_unchanged:
            reason = "the file was written to, copied or renamed since it was indexed, or has other attributes"
            raise MalformedError(f"{reason}: 'pparse index' does it anew", source=self.name)
        return True

    def close(self) -> None:
        """Close the index file."""
        self.data.close()


def _times_of(source: Range) -> tuple[int, int, int]:
    """Return size, modification time and time of the last change."""
    return source.end - source.start, source.data.modified_ns, source.data.changed_ns


def write_index(index: ChildIndex, unsure_from: int | None, source: Range, file: BinaryIO) -> tuple[int, int, int]:
    """Write what ``index``, which is complete, tells of the rows of ``source``. Return rows, points and bytes written.

    ``unsure_from``: where the row begins behind which numbers are uncertain; None: none are. Raises `MalformedError` if
    there are no rows.
    """
    if not index.count:
        raise MalformedError("no rows; no index was written", source=source.data.name)
    offsets = index.offsets[:: STRIDE // index.stride]
    points = len(offsets)
    if sys.byteorder == "big":
        offsets.byteswap()
    table = offsets.tobytes()
    unsure = _NOWHERE if unsure_from is None else unsure_from
    told = (NAME, VERSION, index.count, points, *_times_of(source), unsure, fingerprint(source), zlib.crc32(table))
    header = _HEADER.pack(*told, 0)[:-4]
    file.write(header + struct.pack("<I", zlib.crc32(header)) + table)
    return index.count, points, _HEADER.size + len(table)
