"""The layout of a Riegeli/records file; finds and reads its chunks.

A file is a sequence of chunks. A block header of 24 bytes stands at every multiple of 64 KiB; a chunk that reaches
there continues after it (google/riegeli, doc/riegeli_records_file_format.md, "Block header" and "Chunk"). So a chunk is
found

- in order: the first is the signature, at 0; each begins where the one before it ends, by its header (`Chunk.end`);
- by a position: the block header before it says how far the chunk that it interrupts reaches back (``previous_chunk``)
  and on (``next_chunk``): one of the two is a chunk boundary to begin at (`ChunkReader.start_for`), and from there it
  goes from header to header (`ChunkReader.header`) to the chunk that holds the position (`Chunk.holds`).

`ChunkData` are the data in a chunk, without the block headers; `ChunkReader.data` compares their hash.
`pparse.riegeli.lookup` finds a chunk by its position around damage, and `pparse.riegeli.salvage` tells where chunks go
on behind it. Errors in a file are raised as `ChunkError`, which also
says where reading can continue by the rules of the reference implementation:

=============================  ===================================================================
what is wrong                  where to continue
=============================  ===================================================================
hash of a block header         find a chunk after that block header
its ``previous_chunk``         at its ``next_chunk`` if that is near, else find one after the header
its ``next_chunk``             find a chunk after the block header (or the chunk header, if met in it)
hash of a chunk header         find a chunk after the chunk header
no file signature              the same
hash of the data               at the chunk's end
no chunk can begin here        find a chunk from here
=============================  ===================================================================

A file that *ends early* raises no error: it counts as the end of the file for now, and the same call works later.
"""

from __future__ import annotations

from collections import namedtuple
from operator import itemgetter
from struct import Struct

from pparse.data.base import byte_view
from pparse.data.spliced import DerivedData
from pparse.kernels.highway import Highway64, hash64
from pparse.riegeli.errors import HashMismatchError, InvalidArgumentError, RiegeliError, UnimplementedError
from pparse.riegeli.verdicts import Sightings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.data.base import Buffer, Data
    from pparse.errors import PparseError
    from pparse.riegeli.source import Source
    from pparse.riegeli.verdicts import Verdicts


BLOCK_SIZE: Final = 1 << 16
BLOCK_HEADER_SIZE: Final = 24
USABLE_SIZE: Final = BLOCK_SIZE - BLOCK_HEADER_SIZE
CHUNK_HEADER_SIZE: Final = 40

SIGNATURE: Final = 0x73  # 's'
METADATA: Final = 0x6D  # 'm'
PADDING: Final = 0x70  # 'p'
SIMPLE: Final = 0x72  # 'r'
TRANSPOSED: Final = 0x74  # 't'
TYPE_NAMES: Final = {
    SIGNATURE: "signature",
    METADATA: "metadata",
    PADDING: "padding",
    SIMPLE: "simple",
    TRANSPOSED: "transposed",
}

MAX_POSITION: Final = (1 << 64) - 1

# Chunk and block headers, behind their hash.
_CHUNK = Struct("<QQQQ")
_BLOCK = Struct("<QQ")

# Small reads are served from a block, which is small after a jump and grows while reading continues.
FIRST_BLOCK: Final = 1 << 10
LAST_BLOCK: Final = 64 << 10
# Chunks with more data than this are not healed: proving them whole would mean holding them in memory.
MAX_HEALED: Final = 32 << 20
# The most bytes that are read and hashed at a time when a chunk is verified without being held.
STREAM_BLOCK: Final = 1 << 20
NOTHING_LOST: Final = "; the chunk's data are sound, and no record is lost"
"""What is added to the reason of damage that a chunk survived."""


class Layout:
    """The arithmetic of positions, for one grid of block headers.

    Bytes lost from a damaged file, or inserted into it, move everything after them off the grid. A shift of ``s`` puts
    the block headers at offsets ``s + n * 65536``.
    """

    __slots__ = ("shift",)

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift % BLOCK_SIZE
        """Offset of the first block header, below 64 KiB; 0 in a valid file."""

    def block_of(self, pos: int) -> int:
        """Return where the block that holds offset ``pos`` begins."""
        return pos - (pos - self.shift) % BLOCK_SIZE

    def next_block(self, pos: int) -> int:
        """Return the first block boundary at or after ``pos``."""
        return pos + (self.shift - pos) % BLOCK_SIZE

    def can_begin(self, pos: int) -> bool:
        """Say whether a chunk may begin at ``pos``: neither inside nor right after a block header."""
        return (self.shift - pos) % BLOCK_SIZE < USABLE_SIZE

    def round_up(self, pos: int) -> int:
        """Return the first position at or after ``pos`` where a chunk may begin."""
        return pos + max(0, (self.shift - pos) % BLOCK_SIZE - (USABLE_SIZE - 1))

    def add(self, begin: int, length: int) -> int:
        """Return the position after the first ``length`` bytes of a chunk that begins at ``begin``."""
        within = (begin - self.shift + USABLE_SIZE - 1) % BLOCK_SIZE
        return begin + length + BLOCK_HEADER_SIZE * ((length + within) // USABLE_SIZE)

    def offset(self, begin: int, index: int) -> int:
        """Return the file offset of byte ``index`` of a chunk (header included) that begins at ``begin``."""
        return self.add(begin, index + 1) - 1

    def distance(self, begin: int, pos: int) -> int:
        """Return how many bytes of a chunk that begins at ``begin`` come before ``pos``: the inverse of `add`."""
        return (
            (pos - min((pos - self.shift) % BLOCK_SIZE, BLOCK_HEADER_SIZE))
            - (begin - min((begin - self.shift) % BLOCK_SIZE, BLOCK_HEADER_SIZE))
            - BLOCK_HEADER_SIZE * ((self.block_of(pos) - self.block_of(begin)) // BLOCK_SIZE)
        )

    def strip(self, raw: bytes | memoryview, at: int) -> bytes:
        """Return ``raw``, read at offset ``at``, without the block headers in it."""
        first = self.next_block(at) - at
        if first >= len(raw):
            return bytes(raw)
        raw = memoryview(raw)
        pieces = [raw[:first]] if first else []
        pieces += [raw[b + BLOCK_HEADER_SIZE : b + BLOCK_SIZE] for b in range(first, len(raw), BLOCK_SIZE)]
        return b"".join(pieces)


class ChunkHeader(namedtuple("ChunkHeader", "chunk_type data_size data_hash num_records decoded_data_size")):
    """The 40 bytes at the head of a chunk.

    Its type, as a byte (`SIMPLE`, `TRANSPOSED`, …); the bytes of data, without the block headers in between, and their
    hash; the number of records, and the bytes of all of them together, decoded.
    """

    __slots__ = ()

    @classmethod
    def unpack(cls, raw: bytes) -> ChunkHeader:
        """Parse a header from 40 bytes. `wrong_hash` tells whether it is valid."""
        data_size, data_hash, mixed, decoded = _CHUNK.unpack_from(raw, 8)
        return cls(mixed & 0xFF, data_size, data_hash, mixed >> 8, decoded)

    def pack(self) -> bytes:
        """Return the 40 bytes."""
        mixed = self.chunk_type | self.num_records << 8
        body = _CHUNK.pack(self.data_size, self.data_hash, mixed, self.decoded_data_size)
        return hash64(body).to_bytes(8, "little") + body

    @property
    def type_name(self) -> str:
        """The name of the type in the format."""
        return TYPE_NAMES.get(self.chunk_type, f"type 0x{self.chunk_type:02x}")


def wrong_hash(what: str, header: bytes | memoryview) -> str:
    """Return in words that the hash before the rest of a chunk or block header is not that of the rest; "" if it is."""
    return mismatch(f"{what} header", hash64(header[8:]), int.from_bytes(header[:8], "little"))


def unpack_block(raw: bytes | memoryview, at: int = 0) -> tuple[int, int]:
    """Return ``previous_chunk`` and ``next_chunk`` of the block header at ``at``."""
    previous, following = _BLOCK.unpack_from(raw, at + 8)
    return previous, following


def pack_block(previous_chunk: int, next_chunk: int) -> bytes:
    """Return the 24 bytes of a block header."""
    body = _BLOCK.pack(previous_chunk, next_chunk)
    return hash64(body).to_bytes(8, "little") + body


def block_is_sound(raw: bytes) -> bool:
    """Say whether ``raw`` begins with a whole block header with a valid hash."""
    return len(raw) >= BLOCK_HEADER_SIZE and not wrong_hash("block", raw[:BLOCK_HEADER_SIZE])


SIGNATURE_HEADER: Final = ChunkHeader(SIGNATURE, 0, hash64(b""), 0, 0)
FILE_SIGNATURE: Final = pack_block(0, 64) + SIGNATURE_HEADER.pack()


class ChunkError(Exception):
    """Says what is wrong with the chunk at ``begin`` and where reading can continue.

    With ``have``, a chunk should begin at ``resume``; without it, the next chunk has to be searched from there.
    """

    def __init__(
        self, error: RiegeliError, begin: int, resume: int, *, have: bool = False, chunk: Chunk | None = None
    ) -> None:
        super().__init__(str(error))
        self.error = error
        """What is wrong, as the error that the public interface raises."""
        self.begin = begin
        """Offset at which the chunk begins."""
        self.resume = resume
        """Offset at which to continue."""
        self.have = have
        """Whether a chunk is expected to begin at `resume`."""
        self.chunk = chunk
        """The chunk, if its header has a valid hash; else None."""

    @classmethod
    def of(cls, chunk: Chunk, error: PparseError) -> ChunkError:
        """Return what is wrong with a whole chunk, as an error of this package. The next one should follow it."""
        known = error if isinstance(error, RiegeliError) else InvalidArgumentError(error.reason)
        return cls(known, chunk.begin, chunk.end, have=True, chunk=chunk)


class Chunk:
    """A chunk whose header was read.

    It occupies ``[begin, end)`` of the file, including block headers and padding.
    """

    __slots__ = ("begin", "data_begin", "data_end", "end", "header", "layout")

    def __init__(self, begin: int, header: ChunkHeader, layout: Layout) -> None:
        self.begin = begin
        """Offset of the first byte of the chunk."""
        self.header = header
        """The chunk header."""
        self.layout = layout
        """The grid of block headers that the chunk lies on."""
        # `data_begin` is where the chunk header ends; a block header may come between it and the data.
        self.data_begin = layout.add(begin, CHUNK_HEADER_SIZE)
        """Offset at which the chunk header ends and the data begin, before a block header if one follows."""
        self.data_end = layout.add(begin, CHUNK_HEADER_SIZE + header.data_size)
        """Offset after the last byte of the data."""
        # A chunk occupies at least one byte of the file per record: padding fills it up.
        self.end = end = self.data_end
        if begin + header.num_records > end - BLOCK_HEADER_SIZE:  # else rounding up cannot pass it
            self.end = max(end, layout.round_up(begin + header.num_records))

    def holds(self, position: int) -> bool:
        """Say whether this is the numeric position of one of its records, by its header."""
        return bool(self.begin <= position < self.begin + self.header.num_records)


def header_size(begin: int, layout: Layout) -> int:
    """Return how many bytes of the file the header of a chunk at ``begin`` occupies: 40, or 64 with a block header."""
    left = (layout.shift - begin) % BLOCK_SIZE  # to the next block
    if left >= USABLE_SIZE:
        raise ChunkError(invalid(f"no chunk can begin at {begin}", begin), begin, begin)
    return CHUNK_HEADER_SIZE if left >= CHUNK_HEADER_SIZE else CHUNK_HEADER_SIZE + BLOCK_HEADER_SIZE


def parse_header(raw: bytes, begin: int, layout: Layout) -> Chunk | None:
    """Return the chunk at ``begin``, parsed from ``raw``; None if ``raw`` ends before the header does.

    Raise `ChunkError` if the header is invalid.
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
    reason = wrong_hash("chunk", packed)
    if reason:
        raise ChunkError(invalid(f"{reason}, chunk at {begin}", begin), begin, end)
    chunk = Chunk(begin, ChunkHeader.unpack(packed), layout)
    if begin == 0 and chunk.header != SIGNATURE_HEADER:
        raise ChunkError(invalid("missing file signature", 0), begin, end, chunk=chunk)
    if chunk.end > MAX_POSITION:
        raise ChunkError(invalid(f"chunk at {begin} ends beyond 2^64", begin), begin, end, chunk=chunk)
    if next_chunk is not None and next_chunk != chunk.end - boundary:
        reason = f"the block header at {boundary} says that the chunk at {begin} ends at {boundary + next_chunk}"
        raise ChunkError(invalid(f"{reason}, its own header says {chunk.end}", boundary), begin, end, chunk=chunk)
    return chunk


def check_block(raw: bytes | memoryview, at: int, boundary: int, begin: int, chunk: Chunk | None = None) -> int:
    """Check the block header at ``boundary`` within the chunk at ``begin``; return its ``next_chunk``.

    Raise `ChunkError` if it is invalid.
    """
    after = boundary + BLOCK_HEADER_SIZE
    reason = wrong_hash("block", raw[at : at + BLOCK_HEADER_SIZE])
    if reason:
        reason += f", block at {boundary}"
        if not boundary and raw[24:64] != FILE_SIGNATURE[24:]:
            reason = f"not a Riegeli/records file, or its beginning is lost: {reason}"
        raise ChunkError(invalid(reason, boundary), begin, after, chunk=chunk)
    previous_chunk, next_chunk = unpack_block(raw, at)
    if previous_chunk != boundary - begin:
        reason = f"the block header at {boundary} says that its chunk begins at {boundary - previous_chunk}"
        near = next_chunk <= BLOCK_SIZE
        resume = boundary + next_chunk if near else after
        raise ChunkError(invalid(f"{reason}, not at {begin}", boundary), begin, resume, have=near, chunk=chunk)
    return next_chunk


def mismatch(what: str, computed: int, stored: int) -> str:
    """Return in words that a hash is wrong; "" if it is right."""
    return "" if computed == stored else f"{what} hash mismatch (computed 0x{computed:016x}, stored 0x{stored:016x})"


def invalid(reason: str, offset: int | None = None) -> InvalidArgumentError:
    """Return the error for an invalid file."""
    return InvalidArgumentError(reason, offset=offset)


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


class ChunkReader:
    """Finds chunk after chunk, or one by a position, and reads them. Positions are file offsets.

    A sound file has one grid of block headers. In a damaged file the grid may change where bytes were lost or inserted;
    `layout_at` returns the one that applies at a position.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        """The bytes of the file."""
        self._grids = [(0, Layout())]  # position from which a grid applies, and the grid
        self._block = b""
        self._block_at = 0
        self._bare: tuple[int, int] | None = None
        self.sightings = Sightings()
        """Headers that searches of this file have found."""
        self._ahead = FIRST_BLOCK
        self._buffer = bytearray()

    def layout_at(self, pos: int) -> Layout:
        """Return the grid that applies at ``pos``."""
        return self._grids[0][1] if len(self._grids) == 1 else self.grid_at(pos)[1]

    def grid_at(self, pos: int) -> tuple[int, Layout]:
        """Return where the grid that applies at ``pos`` begins (0, or at a chunk), and the grid."""
        return next((grid for grid in reversed(self._grids) if grid[0] <= pos), self._grids[0])

    def add_grid(self, pos: int, layout: Layout) -> None:
        """Note that another grid applies from the chunk at ``pos`` on."""
        if self.layout_at(pos).shift != layout.shift:
            self._grids = sorted([grid for grid in self._grids if grid[0] != pos] + [(pos, layout)], key=itemgetter(0))

    def note_bare(self, pos: int, layout: Layout) -> None:
        """Note that the grid has no sound block header from ``pos`` to the end of the file."""
        if self._bare is None or self._bare[1] != layout.shift or pos < self._bare[0]:
            self._bare = pos, layout.shift

    def is_bare_from(self, pos: int, layout: Layout) -> bool:
        """Say whether `note_bare` was called for this: a damaged file is not searched to its end again and again."""
        return self._bare is not None and self._bare[0] <= pos and self._bare[1] == layout.shift

    def forget_block(self) -> None:
        """Drop the block that was read ahead: the file has grown."""
        self._block = b""
        self._bare = None
        self.sightings.forget()

    def get(self, pos: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``pos``, from the block that was read ahead if it has them.

        What it has of them is kept, since a pipe gives nothing twice. With `pparse.data.window.Window`, which does not,
        `check` of 6,000 small chunks takes 1.2% more instructions.
        """
        at = pos - self._block_at
        block = self._block
        if at >= 0 and at + length <= len(block):
            return block[at : at + length]
        sequential = 0 <= at <= len(block) and block
        head = block[at:] if sequential else b""
        if length > LAST_BLOCK:
            return head + self.source.pread(pos + len(head), length - len(head))
        self._ahead = min(self._ahead * 4, LAST_BLOCK) if sequential else FIRST_BLOCK
        self._block = head + self.source.pread(pos + len(head), max(self._ahead, length - len(head)))
        self._block_at = pos
        return self._block[:length]

    # -- headers -----------------------------------------------------------------------------------------------------

    def header(self, begin: int) -> Chunk | None:
        """Return the chunk at ``begin``; None if the file ends inside its header. Raise `ChunkError` if invalid."""
        layout = self.layout_at(begin)
        raw = self.get(begin, header_size(begin, layout))
        chunk = parse_header(raw, begin, layout)
        if chunk is None:
            self._short(begin, begin + len(raw))
        elif self.source.data.flawed:
            self._vouch(begin, chunk.data_begin)
        return chunk

    def read_header(self, begin: int, layout: Layout) -> tuple[Chunk, bool] | None:
        """Return the chunk at ``begin``, and whether the hash of its header is right. A block header in it is ignored.

        Return None if the header is not all there, or no chunk can begin there.
        """
        end = layout.add(begin, CHUNK_HEADER_SIZE)
        packed = layout.strip(self.get(begin, end - begin), begin)
        if len(packed) < CHUNK_HEADER_SIZE or not layout.can_begin(begin):
            return None
        return Chunk(begin, ChunkHeader.unpack(packed), layout), not wrong_hash("chunk", packed)

    def last_boundary(self, begin: int) -> tuple[int, Chunk | None]:
        """Return where the last whole chunk from ``begin`` on ends, and the chunk there, if the file ends in its data.

        Raise `ChunkError` at the first one that is damaged.
        """
        size = self.source.size()
        while begin < size:
            chunk = self.header(begin)
            if chunk is None or chunk.end > size:
                return begin, chunk
            begin = chunk.end
        return begin, None

    def _short(self, begin: int, at: int) -> None:
        """Raise `ChunkError` if the source has a gap at ``at``; do nothing at the end of the file."""
        resume = self.source.gap_end(at)
        if resume is not None:
            raise ChunkError(invalid("the file has a gap here", at), begin, resume)

    def _vouch(self, start: int, end: int) -> None:
        data, base = self.source.locate(0)
        if start < end and not data.is_proved(base + start, base + end):
            data.vouch(base + start, base + end)

    # -- by position -------------------------------------------------------------------------------------------------

    def start_for(self, block: int, pos: int) -> int:
        """Return the later of the two chunk boundaries that the header of a block names that is not beyond ``pos``.

        Reads once. Raise `ChunkError` if that header is damaged. Return the offset of the block if a chunk begins
        there, or if the file ends before the header does.
        """
        raw = self.get(block, BLOCK_HEADER_SIZE)
        if len(raw) < BLOCK_HEADER_SIZE:
            return block
        reason = wrong_hash("block", raw)
        if reason:
            reason += f", block at {block}"
        previous_chunk, next_chunk = unpack_block(raw)
        if previous_chunk > block:
            reason = reason or f"the block header at {block} points to a chunk before the beginning of the file"
        if reason:
            raise ChunkError(invalid(reason, block), block, block + BLOCK_HEADER_SIZE)
        if not previous_chunk or not next_chunk:
            return block
        start, following = block - previous_chunk, block + next_chunk
        if not self.layout_at(block).can_begin(start):
            raise ChunkError(invalid(f"no chunk can begin at {start}", block), block, start)
        return following if following <= pos and self.layout_at(pos).can_begin(following) else start

    # -- the data ----------------------------------------------------------------------------------------------------

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
        if len(packed) < CHUNK_HEADER_SIZE or wrong_hash("chunk", packed):
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
