"""Bytes of a zip archive that no header speaks of, where there is no directory to tell whose they are."""

from __future__ import annotations

from pparse.limits import KIB
from pparse.parsers.zip.records import CENTRAL, DESCRIPTOR, END, END64, END_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

    from pparse.data.base import Data

# The least number of bytes that are worth a file of their own.
_LEAST: Final = 32
_HEAD: Final = 64 * KIB
# Directory and descriptor bytes belong to no member.
_RECORDS: Final = (CENTRAL, END, END64, DESCRIPTOR)


def unclaimed(data: Data, start: int, end: int, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of ``data[start:end]`` that lie outside of the members at ``spans`` and are not records."""
    at = start
    for begin, stop in (*spans, (end, end)):
        if begin - at >= _LEAST:
            head = data.read_known(at, min(begin - at, _HEAD))[0]
            mark = head.find(END) if head.startswith((CENTRAL, END)) else -1
            if mark >= 0 and begin - at - mark > END_SIZE + _LEAST:
                at += mark + END_SIZE + int.from_bytes(head[mark + 20 : mark + 22], "little")
                head = data.read_known(at, max(0, min(begin - at, _HEAD)))[0]
            if head.strip(b"\0") and not head.startswith(_RECORDS):
                yield at, begin
        at = max(at, stop)
