"""The tail of a file to append to: whole, or cut inside a chunk and repaired on request.

Records appended after an incomplete chunk would be lost: the header of that chunk counts them as part of it.
"""

from __future__ import annotations

import os

from pparse.kernels.highway import hash64
from pparse.riegeli.chunks import Chunk, ChunkError, ChunkReader
from pparse.riegeli.errors import FailedPreconditionError
from pparse.riegeli.layout import BLOCK_HEADER_SIZE, BLOCK_SIZE, FILE_SIGNATURE, pack_block
from pparse.riegeli.salvage import chunk_data
from pparse.riegeli.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO, Final


# The most padding that is rewritten: a chunk has at least as many bytes as records.
MAX_PADDING: Final = 1 << 30


class Tail:
    """The state of the end of a file."""

    __slots__ = ("end", "name", "size", "unpadded")

    def __init__(self, size: int, end: int, unpadded: Chunk | None = None, name: str | None = None) -> None:
        self.name = name
        """Name of the file."""
        self.size = size
        """Size of the file, in bytes."""
        self.end = end
        """Offset at which the last whole chunk ends."""
        self.unpadded = unpadded
        """The chunk at `end`, if it lacks only its padding."""

    @property
    def whole(self) -> bool:
        """Whether the file ends where a chunk ends."""
        return self.end == self.size

    def refuse(self) -> None:
        """Raise `FailedPreconditionError` if the tail needs repair."""
        if self.whole:
            return
        if self.unpadded is not None:
            reason = f"the padding of the file's last chunk, at {self.end}, is cut off"
        else:
            reason = f"the file's last {self.size - self.end:,} bytes are not a whole chunk"
        raise FailedPreconditionError(
            f"{reason}; records appended after it would be lost. repair=True repairs it",
            offset=self.end,
            wanted=self.end if self.unpadded is None else self.unpadded.end,
            got=self.size,
            source=self.name,
        )

    def mend(self, stream: BinaryIO) -> None:
        """Cut an incomplete chunk off the file, or write the padding that the last chunk lacks; seek to the end."""
        chunk = self.unpadded
        if chunk is not None:
            stream.seek(self.size)
            for piece in _padding(chunk, self.size):
                stream.write(piece)
        elif not self.whole:
            stream.truncate(self.end)
        stream.seek(0, os.SEEK_END)


def examine_tail(src: Any) -> Tail:
    """Examine the tail of a Riegeli file: a path, or a binary file that can be read.

    Reads the header of the last block, and the chunk headers from there on. Raise `FailedPreconditionError` if it is
    not a Riegeli file, or damaged (not just cut) there.
    """
    source = Source(src, owns=False)
    try:
        tail = _examine(ChunkReader(source), source.size())
        tail.name = source.data.name
        return tail
    except ChunkError as error:
        raise FailedPreconditionError(
            f"cannot append to a file that is damaged at its end: {error.error.reason}",
            offset=error.error.offset,
            source=source.data.name,
        ) from error
    finally:
        if isinstance(src, str | os.PathLike):
            source.close(0)


def _examine(chunks: ChunkReader, size: int) -> Tail:
    head = chunks.get(0, len(FILE_SIGNATURE))
    if not FILE_SIGNATURE.startswith(head):
        raise FailedPreconditionError("not a Riegeli file: cannot append to it", offset=0)
    if len(head) < len(FILE_SIGNATURE):
        return Tail(size, 0)
    pos = _start(chunks, size)
    while pos < size:
        chunk = chunks.header(pos)
        if chunk is None:
            return Tail(size, pos)
        if chunk.end > size:
            data = chunk_data(chunks, chunk) if chunk.end - chunk.data_end <= MAX_PADDING else None
            sound = data is not None and hash64(data) == chunk.header.data_hash
            return Tail(size, pos, chunk if sound else None)
        pos = chunk.end
    return Tail(size, pos)


def _start(chunks: ChunkReader, size: int) -> int:
    """Return a chunk boundary near the end, from the last complete block header."""
    block = chunks.layout_at(size - 1).block_of(size - 1)
    if block and size - block < BLOCK_HEADER_SIZE:
        block -= BLOCK_SIZE
    return chunks.start_for(block)


def _padding(chunk: Chunk, size: int) -> Iterator[bytes]:
    """Yield the bytes that the file lacks from ``size`` to the end of the chunk: zeros and block headers."""
    at = chunk.data_end
    while at < chunk.end:
        boundary = chunk.layout.next_block(at)
        if boundary == at:
            piece = pack_block(at - chunk.begin, chunk.end - at)
        else:
            piece = bytes(min(boundary, chunk.end) - at)
        at += len(piece)
        if at > size:
            yield piece[max(0, size - (at - len(piece))) :]
