"""Blocks of a table without its footer or index: each proves itself by its checksum; and that in which it is cut.

Blocks lie one behind the other from the start of the file, so where one ends the next begins. What a block's content
says of its end is tried, and the checksum decides. Behind damage, blocks are looked for at every offset where an entry
that shares nothing may begin. The index block and the metadata are blocks, too: their values are handles, and empty.
"""

from __future__ import annotations

from struct import pack, unpack_from

from pparse.errors import EndOfDataError, MalformedError
from pparse.kernels.table_block import entries
from pparse.kernels.varint import MAX_BYTES_32, read_varints
from pparse.lazy import lazy_pattern
from pparse.parsers.checkpoint.table import PLAIN, SNAPPY, TRAILER, proves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.data.base import Data

    # Whether a key can have a value, of which the last argument tells whether it is whole.
    Accepts = Callable[[bytes, bytes, bool], bool]

_WINDOW: Final = 64 << 10
# The longest key of a block that is searched for, and the most entries of one: real blocks have a few thousand.
_LONGEST_KEY: Final = 64 << 10
_MOST_ENTRIES: Final = 1 << 20
_NOT_ZERO: Final = lazy_pattern(rb"[^\x00]")
# The first restart is 0, what follows it is another one, or their number. Overlapping ones count.
_FIRST_RESTART: Final = lazy_pattern(rb"(?=\x00{4}(?!\x00{4}))")
# Behind damage, entries are read in vain: so many bytes for each byte of the file.
_EFFORT: Final = 32


class _Bytes:
    """Bytes of the file at any offset, a window of them at a time."""

    def __init__(self, data: Data, end: int) -> None:
        self._data = data
        self.end = end
        self._base = 0
        self._block = b""
        self.read_bytes = 0
        self.behind = 0
        """Where a block may begin: behind the last restarts that were met, and the checksum after them."""

    def at(self, offset: int, count: int) -> bytes:
        """Return up to ``count`` bytes; fewer at the end or before a gap."""
        index = offset - self._base
        if index < 0 or index + count > len(self._block):
            count = max(0, min(count, self.end - offset))
            self._block = self._data.known(offset, max(count, min(_WINDOW, self.end - offset))) if count else b""
            self._base = offset
            index = 0
        self.read_bytes += count
        return self._block[index : index + count]

    def next_zero(self, offset: int) -> int:
        """Return the next offset where a block may begin: an entry that shares nothing begins with 0.

        No more than two zeros begin a block, so of a run of them the last two are looked at. Holes of the file, which a
        preallocated download has, are not read.
        """
        start: int | None = None  # where the run of zeros began that is passed over
        while offset < self.end:
            if not 0 <= offset - self._base < len(self._block) and not self.at(offset, 1):
                offset, start = offset + _WINDOW, None  # a gap
                continue
            index, behind = offset - self._base, self._base + len(self._block)
            if start is None:
                found = self._block.find(0, index)
                if found < 0:
                    self.read_bytes += behind - offset
                    offset = behind
                    continue
                start, index = self._base + found, found
            other = _NOT_ZERO.search(self._block, index)
            if other is not None:
                return max(start, self._base + other.start() - 2)
            hole = next(iter(self._data.holes(behind, self.end)), None)
            offset = hole[1] if hole is not None and hole[0] == behind else behind
        return self.end


def find_blocks(data: Data, start: int, end: int, poll: Callable[[], object]) -> Iterator[tuple[int, int]]:
    """Yield offset and size of each block in ``[start, end)`` whose checksum agrees, in order."""
    source = _Bytes(data, end)
    at = start
    room = _EFFORT * (end - start) + (1 << 20)
    lost = False
    while at + TRAILER < end:
        poll()
        size = _block_at(source, data, at, poll, lost=lost, room=room)
        if size is not None:
            yield at, size
            at += size + TRAILER
            lost = False
            continue
        lost = True
        if source.read_bytes > room:
            return
        # Whatever entry of a damaged block is met first leads to its restarts, and behind them the next block begins.
        # Without this, the whole block would be read for each of its entries.
        after = source.behind
        if after > at and _block_at(source, data, after, poll, lost=True, room=room) is not None:
            at = _passed_over(source, data, at, after, poll, room) or after
        else:
            at = source.next_zero(at + 1)


def _passed_over(source: _Bytes, data: Data, at: int, after: int, poll: Callable[[], object], room: int) -> int | None:
    """Return where in ``(at, after)`` a block begins, which what was taken for entries from ``at`` on went through.

    It follows the restarts of the damaged one. None if there is none.
    """
    low = at + 1
    while low < after and source.read_bytes <= room:
        raw = source.at(low, min(_WINDOW, after - low))
        for match in _FIRST_RESTART.finditer(raw):
            pos, source.behind = low + match.start(), 0
            for _ in _with_restarts(source, pos, pos, set()):
                pass
            if at < source.behind < after:
                begin = source.behind
                if _block_at(source, data, begin, poll, lost=True, room=room) is not None:
                    return begin
        if len(raw) < 8:
            break
        low += len(raw) - 7
    return None


def _block_at(source: _Bytes, data: Data, at: int, poll: Callable[[], object], *, lost: bool, room: int) -> int | None:
    """Return the size of the block that begins at ``at``; None if none does."""
    for size in _sizes(source, at):
        trailer = source.at(at + size, TRAILER)
        if len(trailer) == TRAILER and trailer[0] == PLAIN:
            if proves(data, at, size, poll):
                return size
            source.read_bytes += size
        if source.read_bytes > room:
            return None
    return None if lost else _snappy_size(source, data, at, poll)


def _sizes(source: _Bytes, at: int) -> Iterator[int]:
    """Yield the sizes that the entries from ``at`` on allow for an uncompressed block."""
    alone: set[int] = set()
    pos = at
    key_length = 0
    for number in range(_MOST_ENTRIES):
        head = source.at(pos, 20)
        if head[:4] == b"\0\0\0\0" and number:
            yield from _with_restarts(source, at, pos, alone)
        try:
            shared, unshared, length, size = head_of_entry(head)
        except MalformedError:
            return
        if shared > key_length or unshared > _LONGEST_KEY or length > source.end - pos or (not number and shared):
            return
        if number and not unshared:  # no two keys of a table are equal
            return
        if not shared:
            alone.add(pos - at)
        key_length = shared + unshared
        pos += size + unshared + length
        if pos + 8 > source.end:
            return
    return


def head_of_entry(head: bytes) -> tuple[int, int, int, int]:
    """Return the three numbers of an entry, and their size. Raises `MalformedError`."""
    (shared, unshared, length), size = read_varints(head, 0, len(head), 3, MAX_BYTES_32)
    return shared, unshared, length, size


def _with_restarts(source: _Bytes, at: int, pos: int, known: set[int]) -> Iterator[int]:
    """Yield the sizes of the block if its restarts are at ``pos``: ascending offsets of entries, and their number.

    Restarts that are not those of this block are of one that began before ``at``: its end is noted.
    """
    count, before = 0, -1
    own, ended = True, False
    while own or not ended:
        raw = source.at(pos, 4)
        if len(raw) < 4:
            return
        (offset,) = unpack_from("<I", raw)
        if count and offset == count:
            if not ended:
                source.behind, ended = pos + 4 + TRAILER, True
            if own:
                yield pos + 4 - at
        if offset <= before:
            return
        own = own and offset in known
        before = offset
        count += 1
        pos += 4


def _snappy_size(source: _Bytes, data: Data, at: int, poll: Callable[[], object]) -> int | None:
    """Return the size of the compressed block that begins at ``at``: where its Snappy stream ends."""
    from pparse.codecs import decompressor

    stream = decompressor("snappy")
    pos = at
    try:
        while not stream.eof:
            piece = source.at(pos, min(_WINDOW, source.end - pos))
            if not piece:
                return None
            pos += len(piece)
            while stream.decompress(piece, _WINDOW):
                piece = b""
                poll()
    except (MalformedError, EndOfDataError):
        return None
    size = pos - at - len(stream.unused_data)
    trailer = source.at(at + size, TRAILER)
    if len(trailer) == TRAILER and trailer[0] == SNAPPY and proves(data, at, size, poll):
        return size
    return None


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
