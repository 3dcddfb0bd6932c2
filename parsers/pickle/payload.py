"""Where the bytes of a counted value lie, behind its opcode and length."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data

# Width of the length, by opcode (pickletools.py).
_WIDTHS: Final = {
    **dict.fromkeys(b"\x8cCU", 1),
    **dict.fromkeys(b"XBT", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}


def payload(data: Data, start: int, end: int) -> tuple[int, int] | None:
    """Return begin and end of the bytes of the text or bytes whose opcode is at ``start``; None for other values."""
    head = data.pread(start, min(9, end - start))
    width = _WIDTHS.get(head[0]) if head else None
    if width is None or len(head) <= width:
        return None
    size = int.from_bytes(head[1 : 1 + width], "little")
    begin = start + 1 + width
    return (begin, begin + size) if size <= end - begin else None
