"""TFRecord files: records of any bytes, each with its length and two checksums (`pparse.parsers.tfrecord` has more)."""

from __future__ import annotations

import struct

from pparse.data.base import blocks
from pparse.kernels.crc32c import crc32c, masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Final

    from pparse.data.base import Buffer, Range

_PIECE: Final = 1 << 20


class TfrecordWriter:
    """Writes records to ``stream``, one after the other. What is written is a whole file after each of them."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.records = 0
        """How many records were written."""

    def write(self, record: Buffer) -> None:
        """Write one record."""
        with memoryview(record) as view:
            self._begin(view.nbytes)
        self._stream.write(record)
        self._end(crc32c(record))

    def write_from(self, record: Range) -> None:
        """Write one record of any size, which is not held in memory. Raises the errors of its data, half-way."""
        self._begin(len(record))
        crc = 0
        for piece in blocks(record.data.read_exact, record.start, record.end, _PIECE):
            crc = crc32c(piece, crc)
            self._stream.write(piece)
        self._end(crc)

    def _begin(self, length: int) -> None:
        head = struct.pack("<Q", length)
        self._stream.write(head + struct.pack("<I", masked(crc32c(head))))

    def _end(self, crc: int) -> None:
        self._stream.write(struct.pack("<I", masked(crc)))
        self.records += 1
