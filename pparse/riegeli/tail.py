"""The tail of a file that is to be appended to: whole, or cut within a chunk, and then mended on request.

What is appended behind a chunk that is not whole would be buried in it: the chunk's header says how far it goes.
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


# The most padding that is written anew: a chunk has as many bytes as records at least.
MAX_PADDING: Final = 1 << 30


class Tail:
    """``end`` is where the last whole chunk ends. ``unpadded`` is a chunk from there on that lacks its padding only."""

    __slots__ = ("end", "name", "size", "unpadded")

    def __init__(self, size: int, end: int, unpadded: Chunk | None = None, name: str | None = None) -> None:
        self.name = name
        self.size = size
        self.end = end
        self.unpadded = unpadded

    @property
    def whole(self) -> bool:
        """Whether the file ends where a chunk ends."""
        return self.end == self.size

    def refuse(self) -> None:
        """Raise `FailedPreconditionError` if something is to be mended first."""
        if self.whole:
            return
        if self.unpadded is not None:
            reason = f"the padding of the file's last chunk, at {self.end}, is cut off"
        else:
            reason = f"the file's last {self.size - self.end:,} bytes are no whole chunk"
        raise FailedPreconditionError(
            f"{reason}; what is appended would be lost behind it. repair=True mends it",
            offset=self.end,
            wanted=self.end if self.unpadded is None else self.unpadded.end,
            got=self.size,
            source=self.name,
        )

    def mend(self, stream: BinaryIO) -> None:
        """Cut a chunk that is not whole off the file, or write the padding that the last one lacks; go to the end."""
        chunk = self.unpadded
        if chunk is not None:
            stream.seek(self.size)
            for piece in _padding(chunk, self.size):
                stream.write(piece)
        elif not self.whole:
            stream.truncate(self.end)
        stream.seek(0, os.SEEK_END)


def examine_tail(src: Any) -> Tail:
    """Look at the tail of a Riegeli file: a path, or a binary file that can be read.

    Costs the header of the last block, and those of the chunks from there on. Raises `FailedPreconditionError` if it is
    no Riegeli file, or damaged (and not just cut) there.
    """
    source = Source(src, owns=False)
    try:
        tail = _examine(ChunkReader(source), source.size())
        tail.name = source.data.name
        return tail
    except ChunkError as error:
        raise FailedPreconditionError(
            f"the file is damaged at its tail, and so not to be appended to: {error.error.reason}",
            offset=error.error.offset,
            source=source.data.name,
        ) from error
    finally:
        if isinstance(src, str | os.PathLike):
            source.close(0)


def _examine(chunks: ChunkReader, size: int) -> Tail:
    head = chunks.get(0, len(FILE_SIGNATURE))
    if not FILE_SIGNATURE.startswith(head):
        raise FailedPreconditionError("this is no Riegeli file: nothing is appended to it", offset=0)
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
    """Return a chunk boundary near the end, from the last block header that is wholly there."""
    block = chunks.layout_at(size - 1).block_of(size - 1)
    if block and size - block < BLOCK_HEADER_SIZE:
        block -= BLOCK_SIZE
    return chunks.start_for(block)


def _padding(chunk: Chunk, size: int) -> Iterator[bytes]:
    """Yield what the file lacks from ``size`` on to the chunk's end: zeros, and block headers."""
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
