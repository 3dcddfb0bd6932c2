"""Entries of a block of a table file (SSTable): keys that share their beginnings, and where their values are.

Layout (google/leveldb: doc/table_format.md, table/block_builder.cc): entries, then u32 offsets of *restarts*, entries
that share nothing, then the u32 number of these. An entry is three varints: how many bytes of the key before it shares,
how many follow, the length of the value; then these bytes of the key, and the value.
"""

from __future__ import annotations

from struct import unpack_from

from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZE = 4
_MAX_LENGTH = (1 << 32) - 1


def entries_end(block: bytes) -> int:
    """Return where the entries of a whole block end. Raises `MalformedError`."""
    size = len(block)
    if size < _SIZE:
        raise MalformedError("a block of the table has no number of restarts", wanted=_SIZE, got=size)
    (count,) = unpack_from("<I", block, size - _SIZE)
    if count > (size - _SIZE) // _SIZE:
        raise MalformedError(
            "a block of the table has more restarts than bytes", wanted=count * _SIZE, got=size - _SIZE
        )
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
            shared, pos = _varint(block, pos, end)
            unshared, pos = _varint(block, pos, end)
            length, pos = _varint(block, pos, end)
        if shared > len(key) or unshared > end - pos or length > end - pos - unshared:
            raise MalformedError("an entry of the table does not fit into its block", offset=begin)
        key = key[:shared] + block[pos : pos + unshared]
        pos += unshared + length
        yield key, begin, shared, pos - length, pos


def find_entry(block: bytes, end: int, key: bytes) -> tuple[int, int] | None:
    """Return where the value at ``key`` begins and ends in a block whose entries end at ``end``; None if it has none.

    Begins at the last restart whose key is not greater: entries are in order, so few are read. Raises
    `MalformedError` for an entry that does not fit.
    """
    low, high = 0, (len(block) - end) // _SIZE - 1
    while high - low > 1:
        middle = (low + high) // 2
        (at,) = unpack_from("<I", block, end + _SIZE * middle)
        first = next(entries(block, end, at), None)
        if first is not None and first[0] <= key:
            low = middle
        else:
            high = middle
    (at,) = unpack_from("<I", block, end + _SIZE * low) if high else (0,)
    for found, _, _, start, stop in entries(block, end, at):
        if found >= key:
            return (start, stop) if found == key else None
    return None


def count_entries(block: bytes, end: int) -> int:
    """Return the number of entries in ``block[:end]``. Raises `MalformedError`."""
    return sum(1 for _ in entries(block, end))


def _varint(block: bytes, pos: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if pos >= end or shift > 28:
            raise MalformedError("a length in the table is not valid", offset=pos)
        byte = block[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MAX_LENGTH:
                raise MalformedError("a length in the table is not valid", offset=pos)
            return value, pos
        shift += 7
