"""The block in which a table is cut: its entries before the cut.

Its checksum was behind the cut, so nothing confirms it: entries are taken as the beginning of any cut file is, if each
is what it should be, in order, and what follows the last one can begin another one, or the restarts. If all of the
block is there, it is not cut, and its checksum is wrong: then nothing of it is taken.
"""

from __future__ import annotations

from struct import pack, unpack_from

from pparse.errors import MalformedError
from pparse.kernels.table_block import entries
from pparse.parsers.checkpoint.recovered import head_of_entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # Whether a key can have a value, of which the last argument tells whether it is whole.
    Accepts = Callable[[bytes, bytes, bool], bool]


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
