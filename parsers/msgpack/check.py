"""Checking all texts and times of a MessagePack document in one pass, without making nodes."""

from __future__ import annotations

from pparse.data.utf8 import find_not_utf8
from pparse.errors import EndOfDataError, GapError, MalformedError
from pparse.kernels.msgpack_skip import sound
from pparse.parsers.msgpack.values import decode, head, is_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.tree.node import Node

_BLOCK: Final = 128 << 10
# The longest head of a value, and a timestamp in full.
_LONGEST: Final = 32


def is_sound(root: Node) -> bool:
    """Say whether all texts below ``root``, which is whole, are UTF-8, and all timestamps are good; reads everything.

    False also where a gap hinders it.
    """
    session, data = root.extraction.session, root.extraction.data
    at, end = root.start, root.end or 0
    pending = 1 << 62 if root.kind == "stream" else 1
    with session.budget.charge(2 * _BLOCK, "checking texts"):
        while pending and at < end:
            session.check_cancelled()
            try:
                block = data.pread(at, min(_BLOCK, end - at))
                pos, pending = _look_at(root, block, at, pending)
            except (MalformedError, EndOfDataError, GapError):
                return False
            if not pos:
                return False  # a gap is in the way
            at += pos
    return True


def _look_at(root: Node, block: bytes, base: int, pending: int) -> tuple[int, int]:
    """Look at the values in ``block``, which begins at offset ``base``; return where the next one begins in it, and how
    many are left. Raises `MalformedError` if one is not sound."""
    pos = 0
    while True:
        pos, pending = sound(block, pos, pending)
        if not pending or pos >= len(block) or (pos and len(block) - pos < _LONGEST):
            return pos, pending
        if not is_text(block[pos]):
            pos = decode(block, pos)[1]
        else:
            count, start = head(block, pos)
            if find_not_utf8(root.extraction.data, base + start, base + start + count) is not None:
                raise MalformedError("the text is not UTF-8", offset=base + start)
            pos = start + count
        pending -= 1
