"""The data of chunks, without the block headers in them; compares their hashes."""

from __future__ import annotations

from pparse.data.reader import byte_view
from pparse.data.spliced import DerivedData
from pparse.kernels.highway import Highway64, hash64
from pparse.riegeli.chunks import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    CHUNK_HEADER_SIZE,
    LAST_BLOCK,
    PADDING,
    SIGNATURE,
    SIMPLE,
    TRANSPOSED,
    TYPE_NAMES,
    Chunk,
    ChunkError,
    ChunkFinder,
    block_is_sound,
    check_block,
    chunk_header_hash,
    invalid,
    mismatch,
    stored_hash,
    unpack_block,
)
from pparse.riegeli.errors import HashMismatchError, InvalidArgumentError, UnimplementedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.data.base import Buffer, Data
    from pparse.riegeli.source import Source
    from pparse.riegeli.verdicts import Verdicts

# Chunks with more data than this are not healed: proving them whole would mean holding them in memory.
MAX_HEALED: Final = 32 << 20
# The most bytes that are read and hashed at a time when a chunk is verified without being held.
STREAM_BLOCK: Final = 1 << 20


class ChunkData(DerivedData):
    """The data of a chunk without the block headers. Offsets are computed, so a slice costs only its own bytes.

    ``size`` is the number of bytes available. ``verdicts`` hold what is known about the chunk's hash, and may learn it
    later.
    """

    def __init__(self, source: Source, chunk: Chunk, verdicts: Verdicts | None = None) -> None:
        data, end = source.data, source.known_size()
        available = chunk.header.data_size
        if end is not None:
            available = max(0, min(available, chunk.layout.distance(chunk.begin, end) - CHUNK_HEADER_SIZE))
        super().__init__(f"{data.name} chunk at {chunk.begin}", available, data.stats)
        self.access = data.access
        self.sources = (data,)
        self._source = source
        self._chunk = chunk
        self._verdicts = verdicts

    def pieces(self, start: int, end: int) -> Iterator[tuple[Data, int, int]]:
        """Yield the stretches of the file that hold the bytes: one for each block that they lie in."""
        layout = self._chunk.layout
        while start < end:
            at = self._offset(start)
            take = min(end - start, layout.block_of(at) + BLOCK_SIZE - at)
            data, first = self._source.locate(at)
            yield data, first, first + take
            start += take

    def _how(self) -> tuple[object, ...]:
        return (self._chunk.layout.shift,)

    def _made_of(self) -> tuple[tuple[Data, int, int], ...]:
        data, start = self._source.locate(self._chunk.begin)
        return ((data, start, start + (self.size or 0)),)

    @property
    def flawed(self) -> bool:
        """Whether an error is known in the chunk, or in the file that it is in."""
        wrong = self._verdicts is not None and self._verdicts.error(self._chunk.begin) is not None
        return wrong or super().flawed

    def why_suspect(self, start: int, end: int) -> str | None:
        """Return why the bytes are suspect: its hash is wrong (for all of it), or the file is in doubt there."""
        begin, verdicts = self._chunk.begin, self._verdicts
        if verdicts is not None:
            error = verdicts.error(begin)
            if error is not None:
                return error.reason
            if verdicts.is_sound(begin):
                return None
        if start >= end:
            return None
        first, last = self._offset(start), self._offset(end - 1)
        data, at = self._source.locate(first)
        return data.why_suspect(at, at + last + 1 - first)

    def _offset(self, index: int) -> int:
        return self._chunk.layout.offset(self._chunk.begin, CHUNK_HEADER_SIZE + index)

    def _pread(self, offset: int, length: int) -> bytes:
        first = self._offset(offset)
        last = self._offset(offset + length - 1) + 1
        return self._chunk.layout.strip(self._source.pread(first, last - first), first)

    def pread(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``, as `Data.pread`; the underlying data count the read."""
        length = self._clip(offset, length)
        return self._pread(offset, length) if length else b""

    def preadinto(self, offset: int, buffer: Buffer) -> int:
        """Fill ``buffer``, as `Data.preadinto`. The file is read straight into it, around the block headers."""
        view = byte_view(buffer)
        view = view[: self._clip(offset, len(view))]
        at, end = self._offset(offset) if len(view) else 0, len(view)
        if not end or at + end <= self._chunk.layout.block_of(at) + BLOCK_SIZE:
            return self._source.preadinto(at, view) if end else 0
        views, done, begin = [], 0, at
        header = memoryview(bytearray(BLOCK_HEADER_SIZE))
        while done < end:
            take = min(end - done, self._chunk.layout.block_of(at) + BLOCK_SIZE - at)
            views.append(view[done : done + take])
            done += take
            at += take
            if done < end:
                views.append(header)
                at += BLOCK_HEADER_SIZE
        got = self._source.preadv(begin, views)
        return end if got == at - begin else self._chunk.layout.distance(begin, begin + got)


def check_empty(chunk: Chunk) -> None:
    """Check that a chunk of a type without records has none. Raise `ChunkError` if it is invalid or of unknown type."""
    header, reason = chunk.header, ""
    if header.chunk_type in (SIMPLE, TRANSPOSED):
        return
    if header.num_records:
        if header.chunk_type not in TYPE_NAMES:
            unknown = UnimplementedError(f"unknown chunk type {header.chunk_type}", offset=chunk.begin)
            raise ChunkError.of(chunk, unknown)
        reason = f"the {header.type_name} chunk says that it has records"
    elif header.chunk_type == SIGNATURE and header.data_size:
        reason = "the signature chunk has data"
    elif header.chunk_type in (SIGNATURE, PADDING) and header.decoded_data_size:
        reason = f"the {header.type_name} chunk says that it has decoded data"
    if reason:
        error = InvalidArgumentError(f"invalid Riegeli/records file: {reason}", offset=chunk.begin)
        raise ChunkError.of(chunk, error)


class ChunkReader(ChunkFinder):
    """Finds and reads chunks."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._buffer = bytearray()

    def get_view(self, pos: int, length: int) -> bytes | memoryview:
        """Return up to ``length`` bytes at ``pos``, as `get`, in a view that is valid until the next call."""
        if length <= LAST_BLOCK:
            return self.get(pos, length)
        at = pos - self._block_at
        head = self._block[at:] if 0 <= at <= len(self._block) else b""
        # One buffer for all chunks: allocating megabytes for each costs more in page faults than reading them. The
        # header of the next chunk comes with the same read.
        size = length + CHUNK_HEADER_SIZE + BLOCK_HEADER_SIZE
        known = self.source.known_size()
        if known is not None:
            size = min(size, max(0, known - pos))
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)
        head = head[:size]
        view[: len(head)] = head
        got = len(head) + self.source.preadinto(pos + len(head), view[len(head) : size])
        self._block, self._block_at = bytes(view[length:got]), pos + length
        return view[: min(got, length)]

    def data(self, chunk: Chunk, *, verify: bool = True) -> bytes | memoryview | None:
        """Return the chunk's data; None if the file ends before the chunk does.

        The data are valid until the next chunk is read; copy them to keep them longer. Raise `ChunkError` if the data
        do not match their hash (with ``verify``), or if a block header among them is wrong.
        """
        start, stop = chunk.data_begin, chunk.data_end
        raw = self.get_view(start, stop - start)
        if not self._check_piece(chunk, raw, start, stop):
            return None
        first = chunk.layout.next_block(start)
        if first < stop:
            raw = _close_up(raw, first - start)
        if not self.has_padding(chunk):
            return None
        if verify:
            self._compare(chunk, hash64(raw))
        return raw

    def loose_data(self, chunk: Chunk) -> bytes | None:
        """Return the data of a chunk, ignoring the block headers in them; None if they are not all there."""
        start, stop = chunk.data_begin, chunk.data_end
        size = self.source.known_size()
        if chunk.header.data_size > MAX_HEALED or (size is not None and stop > size):
            return None
        raw = self.get(start, stop - start)
        return chunk.layout.strip(raw, start) if len(raw) == stop - start else None

    def sound_data(self, chunk: Chunk) -> bytes | None:
        """Return the data of a chunk, as `loose_data`, if their hash agrees; else None."""
        data = self.loose_data(chunk)
        return data if data is not None and hash64(data) == chunk.header.data_hash else None

    def _check_piece(self, chunk: Chunk, raw: bytes | memoryview, at: int, until: int, *, blocks: bool = True) -> bool:
        """Check the block headers in ``raw``, read at ``at``; say whether it reaches to ``until``, or the file ends."""
        for boundary in range(chunk.layout.next_block(at), until if blocks else at, BLOCK_SIZE):
            if at + len(raw) < boundary + BLOCK_HEADER_SIZE:
                break
            self._check_inner_block(raw, boundary - at, boundary, chunk)
        if len(raw) < until - at:
            self._short(chunk.begin, at + len(raw))
            return False
        return True

    def _check_inner_block(self, raw: bytes | memoryview, at: int, boundary: int, chunk: Chunk) -> None:
        next_chunk = check_block(raw, at, boundary, chunk.begin, chunk)
        if next_chunk != chunk.end - boundary:
            reason = f"the block header at {boundary} says that the chunk at {chunk.begin} ends at"
            error = invalid(f"{reason} {boundary + next_chunk}, its own header {chunk.end}", boundary)
            raise ChunkError(error, chunk.begin, boundary + BLOCK_HEADER_SIZE, chunk=chunk)

    def has_padding(self, chunk: Chunk) -> bool:
        """Say whether the file extends to the end of the chunk."""
        size = self.source.known_size()
        if size is not None:
            return size >= chunk.end
        if chunk.end - chunk.begin > STREAM_BLOCK and not self.source.random_access:
            return True  # to look would be to pass over it
        return chunk.end == chunk.data_end or len(self.get(chunk.end - 1, 1)) == 1

    def verify(self, chunk: Chunk, *, blocks: bool = True, data: bool = True) -> bool:
        """Read through the chunk's data, a block at a time, and compare its hash; False if the file ends before.

        Raise `ChunkError` as `data` does. ``blocks=False`` leaves out the block headers in the data, ``data=False``
        checks nothing but them.
        """
        digest = Highway64()
        at, stop = chunk.data_begin, chunk.data_end
        if not data:
            for boundary in range(chunk.layout.next_block(at), stop, BLOCK_SIZE):
                raw = self.source.pread(boundary, BLOCK_HEADER_SIZE)
                if len(raw) < BLOCK_HEADER_SIZE:
                    return False
                self._check_inner_block(raw, 0, boundary, chunk)
            return True
        while at < stop:
            # Stop at block boundaries, so that no block header is cut in two.
            until = min(stop, chunk.layout.block_of(at) + STREAM_BLOCK)
            raw = self.source.pread(at, until - at)
            if not self._check_piece(chunk, raw, at, until, blocks=blocks):
                return False
            digest.update(chunk.layout.strip(raw, at))
            at = until
        self._compare(chunk, digest.digest())
        return self.has_padding(chunk)

    def damage_of(self, before: Chunk | None) -> ChunkError | None:
        """Return what is wrong with the chunk ``before`` one that was not found: it may be shorter than it says."""
        try:
            if before is not None:
                self.verify(before, blocks=False)
        except ChunkError as error:
            return error
        return None

    def _compare(self, chunk: Chunk, computed: int) -> None:
        reason = mismatch("chunk data", computed, chunk.header.data_hash)
        if reason:
            raise ChunkError.of(chunk, HashMismatchError(f"{reason}, chunk at {chunk.begin}", offset=chunk.begin))
        if self.source.data.flawed:
            self.vouch(chunk)

    def vouch(self, chunk: Chunk) -> None:
        """Tell the underlying data which bytes of a chunk its hashes confirm, even if the file around them is damaged.

        The hash of the chunk's data was compared before; those of its header and of the block headers in it are
        compared here. Padding has no hash and is confirmed if it is zeros.
        """
        begin, end = chunk.begin, chunk.data_end
        packed = chunk.layout.strip(self.source.pread(begin, chunk.data_begin - begin), begin)
        if len(packed) < CHUNK_HEADER_SIZE or chunk_header_hash(packed) != stored_hash(packed):
            return
        padding = self.source.pread(end, min(chunk.end - end, BLOCK_SIZE))
        if len(padding) == chunk.end - end and not any(padding):
            end = chunk.end
        start = begin
        for boundary in range(chunk.layout.next_block(begin), chunk.data_end, BLOCK_SIZE):
            raw = self.source.pread(boundary, BLOCK_HEADER_SIZE)
            if not block_is_sound(raw) or unpack_block(raw) != (boundary - begin, chunk.end - boundary):
                self._vouch(start, boundary)
                start = boundary + BLOCK_HEADER_SIZE
        self._vouch(start, end)


def _close_up(raw: bytes | memoryview, first: int) -> memoryview:
    """Remove the block headers, at ``first`` and every 64 KiB from there, from ``raw``: in place if it is a buffer."""
    view = memoryview(bytearray(raw)) if isinstance(raw, bytes) else raw
    end = first
    for at in range(first, len(view), BLOCK_SIZE):
        piece = view[at + BLOCK_HEADER_SIZE : at + BLOCK_SIZE]
        view[end : end + len(piece)] = piece
        end += len(piece)
    return view[:end]
