"""Entries of a block of a table file (SSTable): keys that share their beginnings, and where their values are.

Layout (google/leveldb: doc/table_format.md, table/block_builder.cc): entries, then u32 offsets of *restarts*, entries
that share nothing, then the u32 number of these. An entry is three varints: how many bytes of the key before it shares,
how many follow, the length of the value; then these bytes of the key, and the value.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from struct import unpack_from

from pparse.errors import MalformedError
from pparse.kernels.varint import MAX_BYTES_32, read_varints

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZE = 4
# As far apart as restarts are in the tables that TensorFlow writes.
_EVERY = 16
_WHAT = "a length in the table"


def entries_end(block: bytes) -> int:
    """Return where the entries of a whole block end. Raises `MalformedError`."""
    size = len(block)
    if size < _SIZE:
        raise MalformedError("a block of the table has no number of restarts", wanted=_SIZE, got=size)
    (count,) = unpack_from("<I", block, size - _SIZE)
    if count > (size - _SIZE) // _SIZE:
        reason = "a block of the table has more restarts than bytes"
        raise MalformedError(reason, wanted=count * _SIZE, got=size - _SIZE)
    return int(size - _SIZE * (count + 1))


def entries(block: bytes, end: int, pos: int = 0, key: bytes = b"") -> Iterator[tuple[bytes, int, int, int, int]]:
    """Yield ``(key, begin, shared, value begin, value end)`` of the entries in ``block[pos:end]``.

    ``key`` is the one before the first. Raises `MalformedError` for an entry that does not fit.
    """
    while pos < end:
        begin = pos
        if pos + 3 <= end and (block[pos] | block[pos + 1] | block[pos + 2]) < 0x80:
            shared, unshared, length = block[pos], block[pos + 1], block[pos + 2]
            pos += 3
        else:
            (shared, unshared, length), pos = read_varints(block, pos, end, 3, MAX_BYTES_32, _WHAT)
        if shared > len(key) or unshared > end - pos or length > end - pos - unshared:
            raise MalformedError("an entry of the table does not fit into its block", offset=begin)
        key = key[:shared] + block[pos : pos + unshared]
        pos += unshared + length
        yield key, begin, shared, pos - length, pos


def stops(block: bytes, end: int) -> tuple[list[bytes], list[int]]:
    """Return where `find_entry` may begin: every 16th entry, as the key before it and where it begins.

    The block's own restarts are not used: there may be one for all entries. Raises `MalformedError`.
    """
    keys, begins = [b""], [0]
    before, number = b"", 0
    for key, begin, _, _, _ in entries(block, end):
        if number == _EVERY:
            keys.append(before)
            begins.append(begin)
            number = 0
        before = key
        number += 1
    return keys, begins


def find_entry(block: bytes, end: int, key: bytes, known: tuple[list[bytes], list[int]]) -> tuple[int, int] | None:
    """Return where the value at ``key`` begins and ends in a block whose entries end at ``end``; None if it has none.

    ``known`` is from `stops`. Entries are in order, so at most 16 are read. Raises `MalformedError` for an entry that
    does not fit.
    """
    keys, begins = known
    at = max(0, bisect_left(keys, key) - 1)
    for found, _, _, start, stop in islice(entries(block, end, begins[at], keys[at]), _EVERY):
        if found >= key:
            return (start, stop) if found == key else None
    return None


def survey(block: bytes, end: int) -> tuple[int, int, int]:
    """Return the number of entries in ``block[:end]``, the length of the longest key, and the sum of all lengths.

    No key is made: in few bytes, each may share megabytes with the one before. Raises `MalformedError`.
    """
    pos = count = longest = total = length = 0
    while pos < end:
        begin = pos
        if pos + 3 <= end and (block[pos] | block[pos + 1] | block[pos + 2]) < 0x80:
            shared, unshared, size = block[pos], block[pos + 1], block[pos + 2]
            pos += 3
        else:
            (shared, unshared, size), pos = read_varints(block, pos, end, 3, MAX_BYTES_32, _WHAT)
        if shared > length or unshared > end - pos or size > end - pos - unshared:
            raise MalformedError("an entry of the table does not fit into its block", offset=begin)
        length = shared + unshared
        pos += unshared + size
        count += 1
        total += length
        if length > longest:
            longest = length
    return count, longest, total
