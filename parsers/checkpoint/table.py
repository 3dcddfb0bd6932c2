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
from struct import pack, unpack_from

from pparse.data.base import BytesData
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError
from pparse.kernels.crc32c import crc32c, masked
from pparse.kernels.table_block import entries, entries_end, find_entry, stops, survey
from pparse.kernels.varint import MAX_BYTES_32, read_varints
from pparse.kernels.wire import PADDING, read_length
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.data.base import Data
    from pparse.limits import Charge, Limits, MemoryBudget

    # Whether a key can have a value, of which the last argument tells whether it is whole.
    Accepts = Callable[[bytes, bytes, bool], bool]


MAGIC: Final = bytes.fromhex("57fb808b247547db")
FOOTER: Final = 48
TRAILER: Final = 5
PLAIN, SNAPPY = 0, 1
# Blocks without compression are read in place, and hashed piece by piece; these are in memory as a whole.
_PIECE: Final = 256 << 10
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

    def footer(self) -> tuple[int, int]:
        """Return the handle of the index block. Raises `MalformedError`, `EndOfDataError`."""
        if self.end - self.start < FOOTER:
            raise EndOfDataError("the table has no room for its footer", wanted=FOOTER, got=self.end - self.start)
        raw = self.data.read_exact(self.end - FOOTER, FOOTER)
        if raw[-len(MAGIC) :] != MAGIC:
            raise EndOfDataError("the table does not end with its footer: it is cut", offset=self.end - FOOTER)
        _, pos = read_handle(raw, 0)  # that of the metadata
        return read_handle(raw, pos)[0]

    def read_index(self) -> None:
        """Find the blocks by the index. Raises `MalformedError`, `EndOfDataError` if index or footer are not whole."""
        offset, size = self.footer()
        if offset > self.end - self.start - FOOTER or size > self.end - self.start - FOOTER - offset:
            raise MalformedError("the footer places the index of the table beyond the file", offset=self.end - FOOTER)
        index = self.block(self.start + offset, size)
        self._check_keys(index, index.at)
        before = 0
        for _, _, _, start, _ in entries(index.raw, index.end):
            (at, length), _ = read_handle(index.raw, start)
            if at < before:  # or a short index could name one block a million times
                raise MalformedError("the blocks that the index of the table lists overlap", offset=index.at + start)
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
            found = stops(block.raw, block.end)
            charge.resize(charge.amount + sum(_STOP_BYTES + len(stop) for stop in found[0]))
            block.stops = found
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
    (offset, size), after = read_varints(raw, pos, len(raw), 2, what="the place of a block of the table")
    if (offset | size) >> 63:
        raise MalformedError("the place of a block of the table is not valid", offset=pos)
    return (offset, size), after


def proves(data: Data, offset: int, size: int, poll: Callable[[], object]) -> bool:
    """Return whether the checksum behind a block agrees, reading it piece by piece."""
    try:
        crc = crc_of(data, offset, size + 1, poll)
        return crc == int.from_bytes(data.read_exact(offset + size + 1, 4), "little")
    except (EndOfDataError, GapError, LimitError):
        return False


def crc_of(data: Data, offset: int, length: int, poll: Callable[[], object]) -> int:
    """Return the masked CRC-32C of bytes, read piece by piece. Raises `EndOfDataError`, `GapError`."""
    crc = 0
    # One buffer for all of it: a new one each time costs as much as the checksum.
    buffer = memoryview(bytearray(min(_PIECE, length)))
    for at in range(offset, offset + length, _PIECE):
        poll()
        view = buffer[: min(_PIECE, offset + length - at)]
        if data.preadinto(at, view) < len(view):
            raise EndOfDataError("the bytes that a checksum covers end early", offset=at, wanted=len(view))
        crc = crc32c(view, crc)
    return masked(crc)


# -- Without footer or index -------------------------------------------------------------------------------------------
#
# Each block proves itself by its checksum. Blocks lie one behind the other from the start of the file, so where one
# ends the next begins. What a block's content says of its end is tried, and the checksum decides. Behind damage, blocks
# are looked for at every offset where an entry that shares nothing may begin. The index block and the metadata are
# blocks, too: their values are handles, and empty.

_WINDOW: Final = 64 << 10
# The longest key of a block that is searched for, and the most entries of one: real blocks have a few thousand.
_LONGEST_KEY: Final = 64 << 10
_MOST_ENTRIES: Final = 1 << 20
_NOT_ZERO: Final = lazy_pattern(rb"[^\x00]")
# The first restart is 0, what follows it is another one, or their number. Overlapping ones count.
_FIRST_RESTART: Final = lazy_pattern(rb"(?=\x00{4}(?!\x00{4}))")
# Behind damage, entries are read in vain: so many bytes for each byte of the file.
_EFFORT: Final = 32


class _BlockFinder:
    """Goes through a table for its blocks. ``poll`` is called on the way."""

    def __init__(self, data: Data, start: int, end: int, poll: Callable[[], object]) -> None:
        self._data = data
        self._end = end
        self._poll = poll
        self._base = 0
        self._block = b""  # the known bytes from there on: no `Window`, as each entry takes a call or two
        self._read_bytes = 0
        self._room = _EFFORT * (end - start) + (1 << 20)
        self._behind = 0  # where a block may begin: behind the last restarts that were met, and the checksum after them

    def blocks(self, at: int) -> Iterator[tuple[int, int]]:
        """Yield offset and size of each block from ``at`` on whose checksum agrees."""
        lost = False
        while at + TRAILER < self._end:
            self._poll()
            size = self._block_at(at, lost=lost)
            lost = size is None
            if size is not None:
                yield at, size
                at += size + TRAILER
                continue
            if self._read_bytes > self._room:
                return
            # Whatever entry of a damaged block is met first leads to its restarts, and behind them the next block
            # begins. Without this, the whole block would be read for each of its entries.
            after = self._behind
            if after > at and self._block_at(after, lost=True) is not None:
                at = self._passed_over(at, after) or after
            else:
                at = self._next_zero(at + 1)

    def _known(self, offset: int, count: int) -> bytes:
        """Return up to ``count`` bytes; fewer at the end or before a gap."""
        index = offset - self._base
        if index < 0 or index + count > len(self._block):
            count = max(0, min(count, self._end - offset))
            self._block = self._data.known(offset, max(count, min(_WINDOW, self._end - offset))) if count else b""
            self._base, index = offset, 0
        self._read_bytes += count
        return self._block[index : index + count]

    def _next_zero(self, offset: int) -> int:
        """Return the next offset where a block may begin: an entry that shares nothing begins with 0.

        No more than two zeros begin a block, so of a run of them the last two are looked at. Holes of the file, which a
        preallocated download has, are not read.
        """
        start: int | None = None  # where the run of zeros began that is passed over
        while offset < self._end:
            if not 0 <= offset - self._base < len(self._block) and not self._known(offset, 1):
                offset, start = offset + _WINDOW, None  # a gap
                continue
            index, behind = offset - self._base, self._base + len(self._block)
            if start is None:
                found = self._block.find(0, index)
                if found < 0:
                    self._read_bytes += behind - offset
                    offset = behind
                    continue
                start, index = self._base + found, found
            other = _NOT_ZERO.search(self._block, index)
            if other is not None:
                return max(start, self._base + other.start() - 2)
            hole = next(iter(self._data.holes(behind, self._end)), None)
            offset = hole[1] if hole is not None and hole[0] == behind else behind
        return self._end

    def _passed_over(self, at: int, after: int) -> int | None:
        """Return where in ``(at, after)`` a block begins, which what was taken for entries from ``at`` on went through.

        It follows the restarts of the damaged one. None if there is none.
        """
        low = at + 1
        while low < after and self._read_bytes <= self._room:
            raw = self._known(low, min(_WINDOW, after - low))
            for match in _FIRST_RESTART.finditer(raw):
                pos, self._behind = low + match.start(), 0
                for _ in self._with_restarts(pos, pos, set()):
                    pass
                if at < (begin := self._behind) < after and self._block_at(begin, lost=True) is not None:
                    return begin
            if len(raw) < 8:
                break
            low += len(raw) - 7
        return None

    def _block_at(self, at: int, *, lost: bool) -> int | None:
        """Return the size of the block that begins at ``at``; None if none does."""
        for size in self._sizes(at):
            if self._is_trailer(PLAIN, at + size):
                if proves(self._data, at, size, self._poll):
                    return size
                self._read_bytes += size
            if self._read_bytes > self._room:
                return None
        return None if lost else self._snappy_size(at)

    def _is_trailer(self, kind: int, at: int) -> bool:
        """Return whether at ``at`` is what follows a block of this kind, a checksum of whatever value included."""
        trailer = self._known(at, TRAILER)
        return len(trailer) == TRAILER and trailer[0] == kind

    def _sizes(self, at: int) -> Iterator[int]:
        """Yield the sizes that the entries from ``at`` on allow for an uncompressed block."""
        alone: set[int] = set()
        pos, key_length = at, 0
        for number in range(_MOST_ENTRIES):
            head = self._known(pos, 20)
            if head[:4] == b"\0\0\0\0" and number:
                yield from self._with_restarts(at, pos, alone)
            try:
                shared, unshared, length, size = head_of_entry(head)
            except MalformedError:
                return
            if shared > key_length or unshared > _LONGEST_KEY or length > self._end - pos or (not number and shared):
                return
            if number and not unshared:  # no two keys of a table are equal
                return
            if not shared:
                alone.add(pos - at)
            key_length = shared + unshared
            pos += size + unshared + length
            if pos + 8 > self._end:
                return

    def _with_restarts(self, at: int, pos: int, known: set[int]) -> Iterator[int]:
        """Yield the sizes of the block if its restarts are at ``pos``: ascending offsets of entries, and their number.

        Restarts that are not those of this block are of one that began before ``at``: its end is noted.
        """
        count, before = 0, -1
        own, ended = True, False
        while own or not ended:
            raw = self._known(pos, 4)
            if len(raw) < 4:
                return
            (offset,) = unpack_from("<I", raw)
            if count and offset == count:
                if not ended:
                    self._behind, ended = pos + 4 + TRAILER, True
                if own:
                    yield pos + 4 - at
            if offset <= before:
                return
            own = own and offset in known
            before = offset
            count += 1
            pos += 4

    def _snappy_size(self, at: int) -> int | None:
        """Return the size of the compressed block that begins at ``at``: where its Snappy stream ends."""
        from pparse.codecs import decompressor

        stream, pos = decompressor("snappy"), at
        try:
            while not stream.eof:
                piece = self._known(pos, min(_WINDOW, self._end - pos))
                if not piece:
                    return None
                pos += len(piece)
                while stream.decompress(piece, _WINDOW):
                    piece = b""
                    self._poll()
        except (MalformedError, EndOfDataError):
            return None
        size = pos - at - len(stream.unused_data)
        return size if self._is_trailer(SNAPPY, at + size) and proves(self._data, at, size, self._poll) else None


def find_blocks(data: Data, start: int, end: int, poll: Callable[[], object]) -> Iterator[tuple[int, int]]:
    """Yield offset and size of each block in ``[start, end)`` whose checksum agrees, in order."""
    return _BlockFinder(data, start, end, poll).blocks(start)


def head_of_entry(head: bytes) -> tuple[int, int, int, int]:
    """Return the three numbers of an entry, and their size. Raises `MalformedError`."""
    (shared, unshared, length), size = read_varints(head, 0, len(head), 3, MAX_BYTES_32)
    return shared, unshared, length, size


# -- The block in which a table is cut: its entries before the cut -----------------------------------------------------

# Its checksum was behind the cut, so nothing confirms it: entries are taken as the beginning of any cut file is, if
# each is what it should be, in order, and what follows the last one can begin another one, or the restarts. If all of
# the block is there, it is not cut, and its checksum is wrong: then nothing of it is taken.


def entries_before_cut(raw: bytes, accepts: Accepts) -> tuple[bytes, int]:
    """Return a block of the whole entries that ``raw``, the beginning of one, holds, and their number; b"" for none."""
    ends: list[int] = []
    alone: list[int] = []  # of each entry that shares nothing, where it begins
    key = before = b""
    try:
        for found, begin, shared, start, stop in entries(raw, len(raw)):
            if (ends and found <= key) or not accepts(found, raw[start:stop], True):
                break
            before, key = key, found
            ends.append(stop)
            if not shared:
                alone.append(begin)
    except MalformedError:  # the entry that is cut
        pass
    follows = _follows(raw, ends[-1], key, alone, accepts) if ends else False
    if follows is None:
        return b"", 0
    if ends and not follows:  # damage, which may have begun in the last entry
        ends.pop()
        key = before
        alone = [begin for begin in alone if ends and begin < ends[-1]]
    return (raw[: ends[-1]] + pack(f"<{len(alone) + 1}I", *alone, len(alone)), len(ends)) if ends else (b"", 0)


def _follows(raw: bytes, pos: int, key: bytes, alone: list[int], accepts: Accepts) -> bool | None:
    """Return whether a cut block may go on with ``raw[pos:]`` behind the entry at ``key``; None if it is not cut."""
    rest = raw[pos:]
    whole = _restarts_in(rest, set(alone))
    return None if whole is None else whole or _begins_entry(rest, key, accepts)


def _restarts_in(rest: bytes, alone: set[int]) -> bool | None:
    """Return whether ``rest`` begins as restarts do; None if all of them are there, with a checksum behind them."""
    before = -1
    for number in range(len(rest) // 4):
        (offset,) = unpack_from("<I", rest, 4 * number)
        if number and offset == number:
            return None if len(rest) >= 4 * (number + 1) + 5 else True
        if offset <= before or offset not in alone:
            return False
        before = offset
    return not any(rest) if len(rest) < 4 else True


def _begins_entry(rest: bytes, key: bytes, accepts: Accepts) -> bool:
    """Return whether ``rest`` begins as an entry behind the one at ``key`` does."""
    try:
        shared, unshared, length, size = head_of_entry(rest[:20])
    except MalformedError:
        return len(rest) < 15  # the three numbers are cut
    if shared > len(key) or not unshared:
        return False
    there = rest[size : size + unshared]
    found = key[:shared] + there
    if len(there) < unshared:
        return found >= key[: len(found)]
    value = rest[size + unshared :]
    return found > key and len(value) < length and (not value or accepts(found, value, False))
