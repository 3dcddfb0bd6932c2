"""Writes one output file to a stream, front to back: for whoever has no use for a journal."""

from __future__ import annotations

from itertools import cycle
from zlib import crc32

from pparse.conversion.items import PIECE
from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from pparse.conversion.plan import OutputFile


def write_file(file: OutputFile, stream: BinaryIO) -> None:
    """Write ``file`` to ``stream``; if that cannot seek, and what precedes an item has its checksum, it is read twice.

    Raises the errors of `Tensor.blocks`, and `MalformedError` for a tensor that has other bytes than it should.
    """
    buffers = cycle((memoryview(bytearray(PIECE)), memoryview(bytearray(PIECE))))
    sums, seeks = file.form.has_checksums, stream.seekable()
    for piece in file.head():
        stream.write(piece)
    for item in file.items:
        if sums and not seeks:
            for part in item.pieces(0, PIECE, buffers):
                item.crc = crc32(part, item.crc)
            item.overflowed = 0  # what does not fit is counted while it is written
        lead = file.form.lead(item)
        stream.write(lead)
        written = 0
        for part in item.pieces(0, PIECE, buffers):
            if sums and seeks:
                item.crc = crc32(part, item.crc)
            written += len(part)
            stream.write(part)
        if written != item.nbytes:
            raise MalformedError(f"it has {written:,} bytes, and not {item.nbytes:,}", path=item.tensor.name)
        if sums and seeks:
            end = stream.tell()
            stream.seek(end - item.nbytes - len(lead))
            stream.write(file.form.lead(item))
            stream.seek(end)
    for piece in file.form.tail(file.items):
        stream.write(piece)
