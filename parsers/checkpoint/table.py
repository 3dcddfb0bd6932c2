"""Table files (SSTables) as TensorFlow writes them: where their blocks are, and what is in one.

Layout (google/leveldb: doc/table_format.md; tensorflow/core/lib/io/table.cc): data blocks, a block of metadata, an
index block, a footer of 48 bytes. A block is followed by a byte, 0 or 1 for Snappy, and the masked CRC-32C of the block
and that byte. The index has an entry per data block: a key that is not less than any in it, and its *handle*, two
varints: offset and size without the five bytes behind it. The footer holds the handles of metadata and index, zeros up
to 40 bytes, and the magic number.
"""

from __future__ import annotations

from array import array
from struct import unpack_from

from pparse.data.base import BytesData
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError
from pparse.kernels.crc32c import crc32c, masked
from pparse.kernels.table_block import count_entries, entries, entries_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.data.base import Data
    from pparse.limits import Limits

MAGIC: Final = bytes.fromhex("57fb808b247547db")
FOOTER: Final = 48
TRAILER: Final = 5
PLAIN, SNAPPY = 0, 1
# Blocks without compression are read in place, and hashed piece by piece; these are in memory as a whole.
_PIECE: Final = 1 << 20


class Block:
    """A block whose checksum agrees: its bytes, and where they are in the file if they are not compressed."""

    __slots__ = ("at", "data", "end", "raw")

    def __init__(self, data: Data, at: int, raw: bytes) -> None:
        self.data = data
        """What holds its bytes: the file, or the decompressed block."""
        self.at = at
        """Where they begin there."""
        self.raw = raw
        self.end = entries_end(raw)
        """Where its entries end."""

    def entries(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield key, and begin and end of the value in `data`, of each entry. Raises `MalformedError`."""
        for key, _, _, start, stop in entries(self.raw, self.end):
            yield key, self.at + start, self.at + stop


class Table:
    """The blocks of one table, in order: 17 bytes each; the block read last is kept."""

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
        self.broken: list[tuple[int, str]] = []
        """Blocks that cannot be read: offset, and why."""
        self._kept: tuple[int, Block, Charge] | None = None

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
            first = next(entries(block.raw, block.end), None)
            count = count_entries(block.raw, block.end)
        except (MalformedError, EndOfDataError, GapError) as error:
            self.broken.append((offset, error.reason))
            return
        self.offsets.append(offset)
        self.sizes.append(size)
        self.firsts.append(self.count)
        before = self.first_keys[-1] if self.first_keys else b""
        self.first_keys.append(first[0] if first is not None else before)
        self.count += count

    # -- one block -----------------------------------------------------------------------------------------------------

    def block(self, offset: int, size: int) -> Block:
        """Return the block at a place, its checksum compared. Raises `MalformedError`, `EndOfDataError`, `GapError`."""
        kept = self._kept
        if kept is not None and kept[0] == offset:
            return kept[1]
        if size > self.end - offset - TRAILER or offset < self.start:
            raise EndOfDataError(
                "a block of the table ends beyond the file", offset=offset, wanted=size + TRAILER, got=self.end - offset
            )
        charge = self._budget.charge(2 * size, "a block of the table", self._forget)
        self._kept = None
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
        self._kept = offset, found, charge
        return found

    def _decompressed(self, offset: int, raw: bytes, charge: Charge) -> Block:
        from pparse.codecs import decompress

        content = decompress("snappy", raw, min(self._limits.scalar_bytes, 64 * len(raw) + 64))
        charge.resize(2 * len(raw) + 2 * len(content))
        return Block(BytesData(content, f"{self.data.name}::block at {offset}"), 0, content)

    def _forget(self) -> None:
        self._kept = None


def read_handle(raw: bytes, pos: int) -> tuple[tuple[int, int], int]:
    """Return offset and size of a block, and the position behind its handle. Raises `MalformedError`."""
    found = []
    for _ in range(2):
        value = shift = 0
        while True:
            if pos >= len(raw) or shift > 63:
                raise MalformedError("the place of a block of the table is not valid", offset=pos)
            byte = raw[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if value >> 63:
            raise MalformedError("the place of a block of the table is not valid", offset=pos)
        found.append(value)
    return (found[0], found[1]), pos


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
