"""Table files (SSTables) as TensorFlow writes them: where their blocks are, and what is in one.

Layout (google/leveldb: doc/table_format.md; tensorflow/core/lib/io/table.cc): data blocks, a block of metadata, an
index block, a footer of 48 bytes. A block is followed by a byte, 0 or 1 for Snappy, and the masked CRC-32C of the block
and that byte. The index has an entry per data block: a key that is not less than any in it, and its *handle*, two
varints: offset and size without the five bytes behind it. The footer holds the handles of metadata and index, zeros up
to 40 bytes, and the magic number.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from struct import unpack_from

from pparse.data.base import BytesData
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError
from pparse.kernels.crc32c import crc32c, masked
from pparse.kernels.table_block import entries, entries_end, find_entry, stops, survey
from pparse.kernels.varint import read_varint
from pparse.kernels.wire import PADDING, read_length

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.data.base import Data
    from pparse.limits import Limits
    from pparse.parsers.checkpoint.recovered import Accepts

MAGIC: Final = bytes.fromhex("57fb808b247547db")
FOOTER: Final = 48
TRAILER: Final = 5
PLAIN, SNAPPY = 0, 1
# Blocks without compression are read in place, and hashed piece by piece; these are in memory as a whole.
_PIECE: Final = 1 << 20
# Of the keys in a table, all in full: so many bytes for each byte of its blocks. TensorFlow writes each 16th key in
# full, so its tables never have more than 16.
_EXPANSION: Final = 32
# Memory of a block in the list of them, and of a stop within one, without keys.
_BLOCK_BYTES, _STOP_BYTES = 90, 60
# An element of Snappy of 3 bytes yields at most 64.
_SNAPPY_RATIO: Final = 22


class Block:
    """A block whose checksum agrees: its bytes, and where they are in the file if they are not compressed."""

    __slots__ = ("at", "data", "end", "raw", "stops")

    def __init__(self, data: Data, at: int, raw: bytes) -> None:
        self.data = data
        """What holds its bytes: the file, or the decompressed block."""
        self.at = at
        """Where they begin there."""
        self.raw = raw
        self.end = entries_end(raw)
        """Where its entries end."""
        self.stops: tuple[list[bytes], list[int]] | None = None
        """Where a search may begin, once there was one."""

    def entries(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield key, and begin and end of the value in `data`, of each entry. Raises `MalformedError`."""
        for key, _, _, start, stop in entries(self.raw, self.end):
            yield key, self.at + start, self.at + stop


class SortedTable:
    """The blocks of one table, in order: 24 bytes and a key each; the two blocks read last are kept.

    A key above the limit ``name_bytes`` is refused, and so are keys that share so much that all of them, in full,
    would be many times as long as the table.
    """

    def __init__(self, data: Data, start: int, end: int, budget: MemoryBudget, limits: Limits) -> None:
        self.data = data
        self.start = start
        self.end = end
        self._budget = budget
        self._limits = limits
        self.offsets = array("Q")
        self.sizes = array("Q")
        self.firsts = array("Q")
        """The number of the first entry of each block …"""
        self.first_keys: list[bytes] = []
        """The first key of each block, so that none is read to find one."""
        self.count = 0
        """… and of all entries."""
        self.key_bytes = 0
        """Length of all keys, in full."""
        self.broken: list[tuple[int, str]] = []
        """Blocks that cannot be read: offset, and why; as many as there may be findings."""
        self.broken_count = 0
        """How many there are."""
        self._content_bytes = 0
        self._cut: tuple[int, bytes] | None = None
        self._charge = budget.charge(0, "the list of the blocks of the table")
        self._kept: dict[int, tuple[Block, Charge]] = {}

    # -- places --------------------------------------------------------------------------------------------------------

    def footer(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the handles of metadata and index block. Raises `MalformedError`, `EndOfDataError`."""
        if self.end - self.start < FOOTER:
            raise EndOfDataError("the table has no room for its footer", wanted=FOOTER, got=self.end - self.start)
        raw = self.data.read_exact(self.end - FOOTER, FOOTER)
        if raw[-len(MAGIC) :] != MAGIC:
            raise EndOfDataError("the table does not end with its footer: it is cut", offset=self.end - FOOTER)
        meta, pos = read_handle(raw, 0)
        index, pos = read_handle(raw, pos)
        return meta, index

    def read_index(self) -> None:
        """Find the blocks by the index. Raises `MalformedError`, `EndOfDataError` if index or footer are not whole."""
        _, (offset, size) = self.footer()
        if offset > self.end - self.start - FOOTER or size > self.end - self.start - FOOTER - offset:
            raise MalformedError("the footer places the index of the table beyond the file", offset=self.end - FOOTER)
        index = self.block(self.start + offset, size)
        self._check_keys(index, index.at)
        before = 0
        for _, start, stop in index.entries():
            (at, length), _ = read_handle(index.raw, start - index.at)
            if stop > index.at + index.end:
                raise MalformedError("the index of the table does not fit", offset=start)
            if at < before:  # or a short index could name one block a million times
                raise MalformedError("the blocks that the index of the table lists overlap", offset=start)
            before = at + length + TRAILER
            self.add(self.start + at, length)

    def add(self, offset: int, size: int) -> None:
        """Add a block, and count its entries; one that cannot be read is noted."""
        self._limits.check("entries", len(self.offsets), "the number of blocks of the table")
        try:
            block = self.block(offset, size)
            count = self._check_keys(block, offset)
            first = next(entries(block.raw, block.end), None)
        except (MalformedError, EndOfDataError, GapError) as error:
            self.broken_count += 1
            if len(self.broken) < self._limits.findings:
                self.broken.append((offset, error.reason))
            return
        key = first[0] if first is not None else self.first_keys[-1] if self.first_keys else b""
        self._charge.resize(self._charge.amount + _BLOCK_BYTES + len(key))
        self.offsets.append(offset)
        self.sizes.append(size)
        self.firsts.append(self.count)
        self.first_keys.append(key)
        self.count += count

    def add_cut(self, offset: int, accepts: Accepts) -> int:
        """Add what is left of the block at ``offset``, in which the table is cut; return the number of its entries.

        ``accepts`` tells whether a key can have a value. Raises `LimitError` if it is too large.
        """
        from pparse.parsers.checkpoint.recovered import entries_before_cut

        size = self.end - offset
        with self._budget.charge(2 * size, "the last block of the table"):
            try:
                raw = self.data.read_exact(offset, size)
            except (EndOfDataError, GapError):
                return 0
            content, count = entries_before_cut(raw, accepts)
        if count:
            end = entries_end(content)
            self._charge.resize(self._charge.amount + len(content) - end)
            self._cut = offset, content[end:]
            self.add(offset, end)
        return count

    def _check_keys(self, block: Block, offset: int) -> int:
        """Return the number of entries of a block; raises `LimitError` if its keys are too long."""
        limits = self._limits
        count, longest, total = survey(block.raw, block.end)
        limits.check("name_bytes", longest, "the length of a key of the table", offset=offset)
        self.key_bytes += total
        self._content_bytes += len(block.raw)
        most = _EXPANSION * self._content_bytes
        if self.key_bytes > most + limits.name_bytes:
            raise LimitError(
                f"the keys of the table are {self.key_bytes:,} bytes in full, more than {_EXPANSION} times the bytes "
                f"that they are stored in, and name_bytes={limits.name_bytes}",
                option=limits.option("name_bytes", self.key_bytes - most),
                wanted=self.key_bytes,
                got=most + limits.name_bytes,
                offset=offset,
            )
        return count

    # -- one value -----------------------------------------------------------------------------------------------------

    def value_at(self, key: bytes) -> bytes | None:
        """Return the value at a key; None if there is none. Keys are in order, so one block is read, in part."""
        low = bisect_right(self.first_keys, key)  # behind the last block whose first key is not greater
        if not low:
            return None
        block, charge = self._held(self.offsets[low - 1], self.sizes[low - 1])
        if block.stops is None:
            block.stops = stops(block.raw, block.end)
            try:
                charge.resize(charge.amount + sum(_STOP_BYTES + len(stop) for stop in block.stops[0]))
            except LimitError:
                block.stops = None
                raise
        place = find_entry(block.raw, block.end, key, block.stops)
        return None if place is None else block.raw[place[0] : place[1]]

    # -- one block -----------------------------------------------------------------------------------------------------

    def block(self, offset: int, size: int) -> Block:
        """Return the block at a place, its checksum compared. Raises `MalformedError`, `EndOfDataError`, `GapError`."""
        return self._held(offset, size)[0]

    def _held(self, offset: int, size: int) -> tuple[Block, Charge]:
        kept = self._kept.get(offset)
        if kept is not None:
            return kept
        is_cut = self._cut is not None and self._cut[0] == offset
        if not is_cut and (size > self.end - offset - TRAILER or offset < self.start):
            raise EndOfDataError(
                "a block of the table ends beyond the file", offset=offset, wanted=size + TRAILER, got=self.end - offset
            )
        # Two, as the contents of a table and its values may be read in turns.
        for other in list(self._kept)[:-1]:
            self._forget(other)
        charge = self._budget.charge(2 * size, "a block of the table", lambda: self._forget(offset))
        if is_cut and self._cut is not None:
            found = Block(self.data, offset, self.data.read_exact(offset, size) + self._cut[1])
            self._kept[offset] = found, charge
            return found, charge
        raw = self.data.read_exact(offset, size + TRAILER)
        kind = raw[size]
        (stated,) = unpack_from("<I", raw, size + 1)
        if masked(crc32c(memoryview(raw)[: size + 1])) != stated:
            raise MalformedError("the checksum of a block of the table is wrong", offset=offset)
        if kind == PLAIN:
            found = Block(self.data, offset, raw[:size])
        elif kind == SNAPPY:
            found = self._decompressed(offset, raw[:size], charge)
        else:
            raise MalformedError(f"a block of the table is compressed by method {kind}", offset=offset)
        self._kept[offset] = found, charge
        return found, charge

    def _decompressed(self, offset: int, raw: bytes, charge: Charge) -> Block:
        from pparse.codecs import decompress

        most = min(self._limits.scalar_bytes, _SNAPPY_RATIO * len(raw))
        stated, _ = read_length(raw[:10] + PADDING, 0)
        charge.resize(2 * len(raw) + 2 * min(stated, most))
        content = decompress("snappy", raw, most)
        return Block(BytesData(content, f"{self.data.name}::block at {offset}"), 0, content)

    def _forget(self, offset: int) -> None:
        kept = self._kept.pop(offset, None)
        if kept is not None:
            kept[1].release()


def read_handle(raw: bytes, pos: int) -> tuple[tuple[int, int], int]:
    """Return offset and size of a block, and the position behind its handle. Raises `MalformedError`."""
    try:
        offset, after = read_varint(raw, pos, len(raw))
        size, after = read_varint(raw, after, len(raw))
    except MalformedError as error:
        raise MalformedError("the place of a block of the table is not valid", offset=error.offset) from error
    if (offset | size) >> 63:
        raise MalformedError("the place of a block of the table is not valid", offset=pos)
    return (offset, size), after


def proves(data: Data, offset: int, size: int, poll: Callable[[], object]) -> bool:
    """Return whether the checksum behind a block agrees, reading it piece by piece."""
    crc = 0
    try:
        for at in range(offset, offset + size + 1, _PIECE):
            poll()
            crc = crc32c(data.read_exact(at, min(_PIECE, offset + size + 1 - at)), crc)
        raw = data.read_exact(offset + size + 1, 4)
    except (EndOfDataError, GapError, LimitError):
        return False
    (stated,) = unpack_from("<I", raw)
    return bool(masked(crc) == stated)
