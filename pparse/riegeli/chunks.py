"""Chunks: found, checked, and read.

`ChunkReader` goes from chunk header to chunk header. What is wrong with a file comes as a `ChunkError` that also says
where reading may go on, by the reference's rules:

=============================  ===================================================================
what is wrong                  where to go on
=============================  ===================================================================
hash of a block header         find a chunk after that block header
its ``previous_chunk``         at its ``next_chunk`` if that is near, else find one after the header
its ``next_chunk``             find a chunk after the block header (or the chunk header, if met in it)
hash of a chunk header         find a chunk after the chunk header
no file signature              the same
hash of the data               at the chunk's end
no chunk can begin here        find a chunk from here
=============================  ===================================================================

Whatever is *short* is no error but the end of the file, for now: the same call made later goes on.
"""

from __future__ import annotations

from operator import itemgetter

from pparse.data.base import Data
from pparse.data.reader import byte_view
from pparse.kernels.highway import Highway64, hash64
from pparse.riegeli.errors import HashMismatchError, InvalidArgumentError
from pparse.riegeli.layout import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    CHUNK_HEADER_SIZE,
    FILE_SIGNATURE,
    MAX_POSITION,
    USABLE_SIZE,
    ChunkHeader,
    Layout,
    block_header_hash,
    block_is_sound,
    chunk_header_hash,
    stored_hash,
    unpack_block,
)
from pparse.riegeli.sightings import Sightings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.data.base import Buffer
    from pparse.riegeli.errors import RiegeliError
    from pparse.riegeli.source import Source
    from pparse.riegeli.verdicts import Verdicts

# Small reads are served from a block: small after a jump, then growing while reading goes on.
FIRST_BLOCK: Final = 1 << 10
LAST_BLOCK: Final = 64 << 10
# The most bytes that are read and hashed at a time when a chunk is verified without being held.
STREAM_BLOCK: Final = 1 << 20


class ChunkError(Exception):
    """What is wrong with the chunk at ``begin``; with ``have`` a chunk is believed to begin at ``resume``.

    Without ``have`` one is to be looked for from there on. ``chunk`` is there when its header could be believed.
    """

    def __init__(
        self, error: RiegeliError, begin: int, resume: int, *, have: bool = False, chunk: Chunk | None = None
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.begin = begin
        self.resume = resume
        self.have = have
        self.chunk = chunk


class Chunk:
    """A chunk whose header was read: it takes ``[begin, end)`` of the file, block headers and padding included.

    Its data stand in ``[data_begin, data_end)``.
    """

    __slots__ = ("begin", "data_begin", "data_end", "end", "header", "layout")

    def __init__(self, begin: int, header: ChunkHeader, layout: Layout) -> None:
        self.begin = begin
        self.header = header
        self.layout = layout
        # Where the chunk header ends (a block header may stand between it and the data), and where the data end.
        self.data_begin = layout.add(begin, CHUNK_HEADER_SIZE)
        self.data_end = layout.add(begin, CHUNK_HEADER_SIZE + header.data_size)
        # At least one byte of file per record: that is what padding is for.
        self.end = end = self.data_end
        if begin + header.num_records > end - BLOCK_HEADER_SIZE:  # else rounding up cannot pass it
            self.end = max(end, layout.round_up(begin + header.num_records))

    def available(self, size: int | None) -> int:
        """Return how many bytes of its data there are in a file of ``size`` bytes (None: all)."""
        if size is None or size >= self.data_end:
            return self.header.data_size
        if size <= self.data_begin:
            return 0
        return min(self.header.data_size, self.layout.distance(self.begin, size) - CHUNK_HEADER_SIZE)

    def __repr__(self) -> str:
        return f"<Chunk [{self.begin}, {self.end}) {self.header!r}>"


class ChunkData(Data):
    """The data of a chunk, block headers taken out: a view by arithmetic, so a slice costs only its own bytes.

    ``size`` is what there is of it; ``whole`` says whether that is all. ``verdicts`` know what the chunk's hash said,
    and may come to know it later.
    """

    def __init__(self, source: Source, chunk: Chunk, verdicts: Verdicts | None = None) -> None:
        data, _ = source.locate(0)
        available = chunk.available(source.known_size())
        super().__init__(f"{data.name} chunk at {chunk.begin}", available, data.stats)
        self.access = data.access
        self.whole = available == chunk.header.data_size
        self._source = source
        self._chunk = chunk
        self._verdicts = verdicts

    @property
    def flawed(self) -> bool:
        """Whether anything is known against the chunk, or against the file it is in."""
        wrong = self._verdicts is not None and self._verdicts.error(self._chunk.begin) is not None
        return wrong or super().flawed or self._source.data.flawed

    def why_suspect(self, start: int, end: int) -> str | None:
        """Say whether the chunk's hash contradicts, which concerns all of it; else, whether the file is in doubt."""
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
        """Return ``length`` bytes at ``offset``, as `Data.pread`; counted by the data below."""
        length = self._clip(offset, length)
        return self._pread(offset, length) if length else b""

    def preadinto(self, offset: int, buffer: Buffer) -> int:
        """Fill ``buffer``, as `Data.preadinto`: the file is read into it around the block headers, without a copy."""
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

    def locate(self, offset: int, length: int) -> list[tuple[Data, int, int]]:
        """Return the stretches of the file: one for each block that the bytes lie in."""
        layout, found = self._chunk.layout, []
        while length > 0:
            at = self._offset(offset)
            take = min(length, layout.block_of(at) + BLOCK_SIZE - at)
            data, start = self._source.locate(at)
            found += data.locate(start, take)
            offset += take
            length -= take
        return found

    def check_unchanged(self) -> None:
        """Ask the file."""
        self._source.locate(0)[0].check_unchanged()

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the file's holes in the bytes ``[start, end)``, in offsets of this data."""
        offset = start
        for data, at, take in self.locate(start, max(0, end - start)):
            for first, last in data.holes(at, at + take):
                yield offset + first - at, offset + last - at
            offset += take


def header_size(begin: int, layout: Layout) -> int:
    """Return how many bytes of file the header of a chunk at ``begin`` takes: 40, or 64 with a block header in it."""
    left = (layout.shift - begin) % BLOCK_SIZE  # to the next block
    if left >= USABLE_SIZE:
        raise ChunkError(invalid(f"no chunk can begin at {begin}", begin), begin, begin)
    return CHUNK_HEADER_SIZE if left >= CHUNK_HEADER_SIZE else CHUNK_HEADER_SIZE + BLOCK_HEADER_SIZE


def parse_header(raw: bytes, begin: int, layout: Layout) -> Chunk | None:
    """Return the chunk at ``begin`` from the bytes there; None if they end before its header does.

    Raises `ChunkError`.
    """
    size = header_size(begin, layout)
    next_chunk, boundary = None, -1
    packed = raw
    if size != CHUNK_HEADER_SIZE:
        boundary = layout.next_block(begin)
        at = boundary - begin
        if len(raw) < at + BLOCK_HEADER_SIZE:
            return None
        next_chunk = check_block(raw, at, boundary, begin)
        packed = raw[:at] + raw[at + BLOCK_HEADER_SIZE :]
    if len(raw) < size:
        return None
    end = begin + size
    computed, stored = chunk_header_hash(packed), stored_hash(packed)
    if computed != stored:
        reason = f"chunk header hash mismatch (computed 0x{computed:016x}, stored 0x{stored:016x})"
        raise ChunkError(invalid(f"{reason}, chunk at {begin}", begin), begin, end)
    chunk = Chunk(begin, ChunkHeader.unpack(packed), layout)
    if begin == 0 and not chunk.header.is_signature():
        raise ChunkError(invalid("missing file signature", 0), begin, end, chunk=chunk)
    if chunk.end > MAX_POSITION:
        raise ChunkError(invalid(f"chunk at {begin} ends beyond 2^64", begin), begin, end, chunk=chunk)
    if next_chunk is not None and next_chunk != chunk.end - boundary:
        reason = f"the block header at {boundary} says that the chunk at {begin} ends at {boundary + next_chunk}"
        raise ChunkError(invalid(f"{reason}, its own header {chunk.end}", boundary), begin, end, chunk=chunk)
    return chunk


def check_block(raw: bytes | memoryview, at: int, boundary: int, begin: int, chunk: Chunk | None = None) -> int:
    """Check the block header at ``boundary`` within the chunk at ``begin``; return its ``next_chunk``."""
    computed, stored = block_header_hash(raw, at), stored_hash(raw, at)
    after = boundary + BLOCK_HEADER_SIZE
    if computed != stored:
        reason = f"block header hash mismatch (computed 0x{computed:016x}, stored 0x{stored:016x}), block at {boundary}"
        if not boundary and raw[24:64] != FILE_SIGNATURE[24:]:
            error = InvalidArgumentError(
                f"this is no Riegeli/records file, or its beginning is lost: {reason}", offset=0
            )
            raise ChunkError(error, begin, after, chunk=chunk)
        raise ChunkError(invalid(reason, boundary), begin, after, chunk=chunk)
    previous_chunk, next_chunk = unpack_block(raw, at)
    if previous_chunk != boundary - begin:
        reason = f"the block header at {boundary} says that its chunk begins at {boundary - previous_chunk}"
        error = invalid(f"{reason}, not at {begin}", boundary)
        if next_chunk <= BLOCK_SIZE:
            raise ChunkError(error, begin, boundary + next_chunk, have=True, chunk=chunk)
        raise ChunkError(error, begin, after, chunk=chunk)
    return next_chunk


class ChunkReader:
    """Reads chunk after chunk. Positions are file offsets.

    `layout_at` says which grid of block headers is in force where: one in a sound file, another from where bytes were
    lost or came in.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._grids = [(0, Layout())]  # from which position on which grid is in force
        self._block = b""
        self._block_at = 0
        self._buffer = bytearray()
        self._bare: tuple[int, int] | None = None
        self.sightings = Sightings()
        self._ahead = FIRST_BLOCK

    def layout_at(self, pos: int) -> Layout:
        """Return the grid that is in force at ``pos``."""
        return self._grids[0][1] if len(self._grids) == 1 else self.grid_at(pos)[1]

    def grid_at(self, pos: int) -> tuple[int, Layout]:
        """Return where the grid that is in force at ``pos`` begins (0, or at a chunk), and the grid."""
        return next((grid for grid in reversed(self._grids) if grid[0] <= pos), self._grids[0])

    def add_grid(self, pos: int, layout: Layout) -> None:
        """Note that from the chunk at ``pos`` on another grid is in force."""
        if self.layout_at(pos).shift != layout.shift:
            self._grids = sorted([grid for grid in self._grids if grid[0] != pos] + [(pos, layout)], key=itemgetter(0))

    def note_bare(self, pos: int, layout: Layout) -> None:
        """Note that from ``pos`` to the end of the file no sound block header stands on the grid."""
        if self._bare is None or self._bare[1] != layout.shift or pos < self._bare[0]:
            self._bare = pos, layout.shift

    def is_bare_from(self, pos: int, layout: Layout) -> bool:
        """Say whether that is known: a damaged file is not to be searched to its end time and again."""
        return self._bare is not None and self._bare[0] <= pos and self._bare[1] == layout.shift

    def forget_block(self) -> None:
        """Drop what was read ahead: the file has grown."""
        self._block = b""
        self._bare = None
        self.sightings.forget()

    def get_view(self, pos: int, length: int) -> bytes | memoryview:
        """Return up to ``length`` bytes at ``pos``, as `get`: a view that is good until the next call."""
        if length <= LAST_BLOCK:
            return self.get(pos, length)
        at = pos - self._block_at
        head = self._block[at:] if 0 <= at <= len(self._block) else b""
        # One buffer for all chunks: fresh megabytes each time would cost more in page faults than reading them. The
        # next chunk's header comes with the same read.
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

    def get(self, pos: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``pos``, from the block read ahead where it has them."""
        at = pos - self._block_at
        block = self._block
        if at >= 0 and at + length <= len(block):
            return block[at : at + length]
        sequential = 0 <= at <= len(block) and block
        if length > LAST_BLOCK:
            head = block[at:] if sequential else b""
            return head + self.source.pread(pos + len(head), length - len(head))
        self._ahead = min(self._ahead * 4, LAST_BLOCK) if sequential else FIRST_BLOCK
        head = block[at:] if sequential else b""
        self._block = head + self.source.pread(pos + len(head), max(self._ahead, length - len(head)))
        self._block_at = pos
        return self._block[:length]

    # -- headers -----------------------------------------------------------------------------------------------------

    def header(self, begin: int) -> Chunk | None:
        """Read the header of the chunk at ``begin``; None if the file ends before its end. Raises `ChunkError`."""
        layout = self.layout_at(begin)
        raw = self.get(begin, header_size(begin, layout))
        chunk = parse_header(raw, begin, layout)
        if chunk is None:
            self._short(begin, begin + len(raw))
        elif self.source.data.flawed:
            self._prove(begin, chunk.data_begin)
        return chunk

    def _short(self, begin: int, at: int) -> None:
        """The source serves nothing at ``at``: the end of the file, or a gap. Raises `ChunkError` for a gap."""
        resume = self.source.gap_end(at)
        if resume is not None:
            raise ChunkError(invalid("the file has a gap here", at), begin, resume)

    # -- data --------------------------------------------------------------------------------------------------------

    def data(self, chunk: Chunk, *, verify: bool = True) -> bytes | memoryview | None:
        """Return the chunk's data; None if the file ends before the chunk does. Raises `ChunkError`.

        They are good until the next chunk is read: who needs them for longer copies them. ``verify`` compares their
        hash; block headers on the way are checked in any case.
        """
        start, stop = chunk.data_begin, chunk.data_end
        raw = self.get_view(start, stop - start)
        first = chunk.layout.next_block(start)
        for boundary in range(first, stop, BLOCK_SIZE):
            if start + len(raw) < boundary + BLOCK_HEADER_SIZE:
                self._short(chunk.begin, start + len(raw))
                return None
            self._check_inner_block(raw, boundary - start, boundary, chunk)
        if len(raw) < stop - start:
            self._short(chunk.begin, start + len(raw))
            return None
        if first < stop:
            raw = _close_up(raw, first - start)
        if not self.has_padding(chunk):
            return None
        if verify:
            self._compare(chunk, hash64(raw))
        return raw

    def _check_inner_block(self, raw: bytes | memoryview, at: int, boundary: int, chunk: Chunk) -> None:
        next_chunk = check_block(raw, at, boundary, chunk.begin, chunk)
        if next_chunk != chunk.end - boundary:
            reason = f"the block header at {boundary} says that the chunk at {chunk.begin} ends at"
            error = invalid(f"{reason} {boundary + next_chunk}, its own header {chunk.end}", boundary)
            raise ChunkError(error, chunk.begin, boundary + BLOCK_HEADER_SIZE, chunk=chunk)

    def has_padding(self, chunk: Chunk) -> bool:
        """Say whether the file goes on to the chunk's end."""
        size = self.source.known_size()
        if size is not None:
            return size >= chunk.end
        if chunk.end - chunk.begin > STREAM_BLOCK and not self.source.random_access:
            return True  # to look would be to pass over it
        return chunk.end == chunk.data_end or len(self.get(chunk.end - 1, 1)) == 1

    def verify(self, chunk: Chunk, *, blocks: bool = True, data: bool = True) -> bool:
        """Read through the chunk's data, a block at a time, and compare its hash; False if the file ends before.

        Raises `ChunkError` as `data` does; ``blocks=False`` does not look at the block headers on the way,
        ``data=False`` at nothing else.
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
            # Never cut a block header in two: stop at block boundaries.
            until = min(stop, chunk.layout.block_of(at) + STREAM_BLOCK)
            raw = self.source.pread(at, until - at)
            for boundary in range(chunk.layout.next_block(at), until, BLOCK_SIZE):
                if at + len(raw) < boundary + BLOCK_HEADER_SIZE:
                    self._short(chunk.begin, at + len(raw))
                    return False
                if blocks:
                    self._check_inner_block(raw, boundary - at, boundary, chunk)
            if len(raw) < until - at:
                self._short(chunk.begin, at + len(raw))
                return False
            digest.update(chunk.layout.strip(raw, at))
            at = until
        self._compare(chunk, digest.digest())
        return self.has_padding(chunk)

    def _compare(self, chunk: Chunk, computed: int) -> None:
        stored = chunk.header.data_hash
        if computed != stored:
            reason = f"chunk data hash mismatch (computed 0x{computed:016x}, stored 0x{stored:016x})"
            error = HashMismatchError(f"{reason}, chunk at {chunk.begin}", offset=chunk.begin)
            raise ChunkError(error, chunk.begin, chunk.end, have=True, chunk=chunk)
        if self.source.data.flawed:
            self.vouch(chunk)

    def vouch(self, chunk: Chunk) -> None:
        """Tell the data which bytes of a chunk its hashes confirm, whatever is known against the file around them.

        The hash of its data agrees; that of its header, and those of the block headers in it, are compared. Padding has
        no hash: zeros are taken for it.
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
                self._prove(start, boundary)
                start = boundary + BLOCK_HEADER_SIZE
        self._prove(start, end)

    def _prove(self, start: int, end: int) -> None:
        data, base = self.source.locate(0)
        if start < end and not data.is_proved(base + start, base + end):
            data.vouch(base + start, base + end)

    # -- by position -------------------------------------------------------------------------------------------------

    def start_for(self, pos: int) -> int:
        """Return the beginning of a chunk at or before ``pos``, or of the first one after its block's header.

        One read of the header of the block that ``pos`` is in. Raises `ChunkError` if that header is damaged; returns
        the block's own offset where the file ends before the header does.
        """
        layout = self.layout_at(pos)
        block = max(0, layout.block_of(pos))
        raw = self.get(block, BLOCK_HEADER_SIZE)
        if len(raw) < BLOCK_HEADER_SIZE:
            return block
        computed, stored = block_header_hash(raw), stored_hash(raw)
        if computed != stored:
            reason = f"block header hash mismatch (computed 0x{computed:016x}, stored 0x{stored:016x})"
            error = invalid(f"{reason}, block at {block}", block)
            raise ChunkError(error, block, block + BLOCK_HEADER_SIZE)
        previous_chunk, next_chunk = unpack_block(raw)
        if previous_chunk == 0:
            return block
        if previous_chunk > block:
            error = invalid(f"the block header at {block} names a chunk before the file", block)
            raise ChunkError(error, block, block + BLOCK_HEADER_SIZE)
        start = block - previous_chunk if block + next_chunk > pos else block + next_chunk
        if not layout.can_begin(start):
            raise ChunkError(invalid(f"no chunk can begin at {start}", block), block, start)
        return start


def _close_up(raw: bytes | memoryview, first: int) -> memoryview:
    """Take the block headers, at ``first`` and every 64 KiB from there, out of ``raw``, in place if it is a buffer."""
    view = memoryview(bytearray(raw)) if isinstance(raw, bytes) else raw
    end = first
    for at in range(first, len(view), BLOCK_SIZE):
        piece = view[at + BLOCK_HEADER_SIZE : at + BLOCK_SIZE]
        view[end : end + len(piece)] = piece
        end += len(piece)
    return view[:end]


def invalid(reason: str, offset: int | None = None) -> InvalidArgumentError:
    """Return the error for an invalid file."""
    return InvalidArgumentError(reason, offset=offset)
