"""Writes chunks to a file: chunk headers, the block headers in between, and padding.

A block header says where its chunk ends, so the size of a chunk must be known before its first byte is written. The
data of a chunk arrive in pieces, which may be read from a file: the chunk is never held as a whole.
"""

from __future__ import annotations

from pparse.kernels.highway import Highway64, hash64
from pparse.riegeli.layout import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    CHUNK_HEADER_SIZE,
    FILE_SIGNATURE,
    METADATA,
    PADDING,
    ChunkHeader,
    Layout,
    pack_block,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Final

    Write = Callable[[bytes], object]

_ZEROS: Final = bytes(1 << 16)


class ChunkWriter:
    """Writes chunks one after the other from position ``pos`` on, through the function ``write``."""

    def __init__(self, write: Write, pos: int) -> None:
        self._write = write
        self._layout = Layout()
        self.pos = pos
        """Offset in the file at which the next byte is written."""

    def begin_file(self) -> None:
        """Write the file signature."""
        self._write(FILE_SIGNATURE)
        self.pos += len(FILE_SIGNATURE)

    def align(self) -> None:
        """Write zeros up to the next position where a chunk can begin, if none can begin here."""
        if not self._layout.can_begin(self.pos):
            end = self._layout.next_block(self.pos)
            self._write(bytes(end - self.pos))
            self.pos = end

    def write_chunk(self, header: ChunkHeader, pieces: Iterable[bytes]) -> None:
        """Write one chunk. ``pieces`` together must hold ``header.data_size`` bytes of data."""
        begin = self.pos
        end = self._layout.chunk_end(begin, header)
        pos = begin
        for piece in self._padded(begin, end, header, pieces):
            view = memoryview(piece)
            while view:
                boundary = self._layout.next_block(pos)
                if boundary == pos:
                    self._write(pack_block(pos - begin, end - pos))
                    pos += BLOCK_HEADER_SIZE
                    boundary += BLOCK_SIZE
                take = min(len(view), boundary - pos)
                self._write(view[:take] if take < len(piece) else piece)  # type: ignore[arg-type]
                pos += take
                view = view[take:]
        self.pos = end

    def _padded(self, begin: int, end: int, header: ChunkHeader, pieces: Iterable[bytes]) -> Iterator[bytes]:
        yield header.pack()
        yield from pieces
        left = self._layout.distance(begin, end) - CHUNK_HEADER_SIZE - header.data_size
        while left > 0:
            yield _ZEROS[:left]
            left -= len(_ZEROS)

    def write_padding(self, multiple: int) -> None:
        """Write a padding chunk that ends at a multiple of ``multiple``; none if `pos` is such a multiple."""
        begin = self.pos
        if multiple <= 1 or begin % multiple == 0:
            return
        end = begin + -begin % multiple
        while not self._layout.can_begin(end) or self._layout.distance(begin, end) < CHUNK_HEADER_SIZE:
            end += multiple
        size = self._layout.distance(begin, end) - CHUNK_HEADER_SIZE
        header = ChunkHeader(PADDING, size, hash_of(_zeros(size)), 0, 0)
        self.write_chunk(header, _zeros(size))

    def write_metadata(self, serialized: bytes, data: bytes) -> None:
        """Write a metadata chunk; ``data`` is ``serialized`` in its encoded form."""
        self.write_chunk(ChunkHeader(METADATA, len(data), hash64(data), 0, len(serialized)), [data])


def hash_of(pieces: Iterable[bytes]) -> int:
    """Return the hash of ``pieces`` taken together."""
    digest = Highway64()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _ZEROS[:count]
        count -= len(_ZEROS)
