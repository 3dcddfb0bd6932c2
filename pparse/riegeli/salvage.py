"""Where to continue after damage: the rules of the reference, and what can be saved beyond them.

The reference continues at the next block header that points to a chunk. It loses every whole chunk between the damage
and there. This module also finds:

1. *The damaged chunk itself*, if its data prove whole: the hash of the data agrees, and only a block header in it or
   another field of its header is damaged. Such a chunk is *healed*: nothing is lost.
2. *The chunk after it*, at the offset that the damaged chunk's header gives.
3. *Whole chunks in between*, by the hashes of their headers and of their data, at any offset. Records may contain
   chunks themselves (a Riegeli file within a record). So the search skips every chunk whose extent is known from its
   header, the hash of its data or a block header, and everything after a file signature off the grid.
4. *A grid that moved*: lost or inserted bytes move everything after them off the multiples of 64 KiB. A block header
   off the grid sets a new grid if no more block headers are on the old one. So does a file without its beginning.
5. *A last chunk that lacks only its padding* (`pparse.riegeli.reader.RecordReader` looks for it).
"""

from __future__ import annotations

from collections import namedtuple
from itertools import islice

from pparse.errors import MalformedError
from pparse.kernels.highway import Highway64, hash64
from pparse.kernels.riegeli import block_headers, chunk_headers
from pparse.kernels.varint import decode_varints, read_varint
from pparse.riegeli.chunks import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    CHUNK_HEADER_SIZE,
    FILE_SIGNATURE,
    MAX_POSITION,
    SIMPLE,
    TRANSPOSED,
    Chunk,
    ChunkError,
    Layout,
    block_is_sound,
    unpack_block,
)
from pparse.riegeli.errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.riegeli.chunks import ChunkReader

# How many possible ends are tried for a damaged chunk whose data hash may be right.
MAX_ENDS: Final = 64
# How many chunks between the damage and the next known chunk have their data checked.
MAX_TRIED: Final = 256
# The longest list of sizes that is accepted without a chunk header.
MAX_SIZES: Final = 1 << 16
# The most data that is hashed to find where the damaged chunk ends.
MAX_COMPARED: Final = 4 << 20
# How far the search for a new grid goes.
MAX_MOVED: Final = 16 << 20
# Zeros allowed after the last chunk: less than a record of a tar archive.
PADDING: Final = 512


class SalvageOutcome(
    namedtuple(
        "SalvageOutcome", "pos end message layout crossing lost healed data", defaults=(None, None, False, None, None)
    )
):
    """Where reading continues after damage.

    ``pos`` is the offset at which to continue, ``end`` that at which the skipped region ends, ``message`` says what is
    wrong. ``layout`` is the grid from ``pos`` on, None if it is the same as before. ``crossing`` is the offset of the
    chunk that the next sound block header interrupts, if there is one; ``lost`` tells that there is none up to the end
    of the file. ``healed`` is the damaged chunk itself, if its ``data`` prove whole.
    """

    __slots__ = ()


def resume(chunks: ChunkReader, error: ChunkError, *, salvage: bool = True, heal: bool = True) -> SalvageOutcome:
    """Find where to continue after ``error``; with ``salvage=False``, by the reference's rules alone.

    The result lies after the failed chunk unless that is healed, so reading always makes progress.
    """
    damage = _DamagedChunk(chunks, error)
    outcome = damage.by_reference()
    if not salvage or not chunks.source.random_access:
        return outcome
    if heal and error.begin + CHUNK_HEADER_SIZE < max(outcome.end, damage.size(outcome.end)):
        healed = damage.heal()
        if healed is not None:
            return healed
    saved = damage.saved(outcome)
    return saved if saved.pos > error.begin else outcome


def within_cut(chunks: ChunkReader, chunk: Chunk) -> SalvageOutcome | None:
    """Find whole chunks inside of ``chunk``, which the end of the file cuts, that reach just to that end: bytes went
    from it, and what followed moved up. Return None if there are none, or if more than 4 MiB of it are there.

    It may as well hold the chunks of another file, cut at the end of that: only what is in them can tell.
    """
    size, message = chunks.source.known_size(), f"bytes of the chunk at {chunk.begin} are lost: whole ones follow in it"
    if size is None or chunk.data_end <= size or size - chunk.begin > MAX_COMPARED:
        return None
    lost = SalvageOutcome(size, size, message, lost=True)
    damage = _DamagedChunk(chunks, ChunkError.of(chunk, InvalidArgumentError(message, offset=chunk.begin)))
    found = damage._searched(lost, None, size, size)
    return found if chunk.begin < found.pos < size else None


class _DamagedChunk:
    """The chunk at ``begin`` that could not be read, on the grid ``layout``: looks for where reading continues."""

    def __init__(self, chunks: ChunkReader, error: ChunkError) -> None:
        self._chunks = chunks
        self._error = error
        self._begin = error.begin
        self._message = error.error.reason
        self._layout = chunks.layout_at(error.begin)

    def _at(self, pos: int, layout: Layout | None = None) -> SalvageOutcome:
        """Return the outcome that reading continues at ``pos``."""
        return SalvageOutcome(pos, pos, self._message, layout)

    def size(self, pos: int) -> int:
        """Return the size of the file; for one that is only read forwards, how far it extends, up to ``pos``."""
        chunks = self._chunks
        size = chunks.source.known_size()
        if size is not None:
            return size
        low = max(0, getattr(chunks.source.data, "position", 0))
        while low < pos and (got := chunks.get(low, min(pos - low, BLOCK_SIZE))):
            low += len(got)
        return low

    def by_reference(self) -> SalvageOutcome:
        """Find where the reference continues."""
        pos = self._error.resume
        if self._error.have and pos > self._begin:
            if pos > (size := self.size(pos)):
                return SalvageOutcome(pos, size, self._message)
            if self._layout.can_begin(pos):
                return self._at(pos)
        return self._by_block_headers(pos)

    def _by_block_headers(self, pos: int) -> SalvageOutcome:
        """Find where the first block header from ``pos`` on leads that is sound, and names a chunk behind this one."""
        chunks, layout, begin, message = self._chunks, self._layout, self._begin, self._message
        first, searching = 0, True
        while True:
            block = layout.next_block(max(pos, begin + 1))
            first = first or block
            if chunks.is_bare_from(block, layout):
                return SalvageOutcome(block, self.size(block), message, lost=True)
            raw = chunks.get(block, BLOCK_HEADER_SIZE)
            if len(raw) < BLOCK_HEADER_SIZE:
                gap = chunks.source.gap_end(block + len(raw))
                if gap is not None:
                    pos = gap
                    continue
                if searching:  # only if nothing was skipped
                    chunks.note_bare(first, layout)
                return SalvageOutcome(block, min(block, self.size(block)), message, lost=True)
            pos = block + BLOCK_HEADER_SIZE
            if not block_is_sound(raw):
                message = f"block header hash mismatch, block at {block}"
                continue
            previous_chunk, next_chunk = unpack_block(raw)
            if previous_chunk == 0 and block > begin:
                return SalvageOutcome(block, block, message)
            named = block + next_chunk
            if begin < named <= MAX_POSITION and layout.can_begin(named):
                end = min(named, self.size(named))
                return SalvageOutcome(named, end, message, crossing=block - previous_chunk)
            message, searching = f"the block header at {block} points to no position where a chunk can begin", False
            pos = max(pos, named) if named <= MAX_POSITION else pos

    # -- the damaged chunk itself ------------------------------------------------------------------------------------

    def heal(self) -> SalvageOutcome | None:
        """Return the current chunk if the hash of its data proves it whole: on the grid, or on one that moved."""
        error, begin, layout = self._error, self._begin, self._layout
        chunk = error.chunk
        if not (error.have and chunk is not None and error.resume == chunk.end):
            healed = self._proven(layout)  # else the data are wrong, on this grid
            if healed is not None:
                return healed
        if self._chunks.get(begin, len(FILE_SIGNATURE)) == FILE_SIGNATURE:  # another file, appended as it is
            return self._proven(Layout(begin), moved=True)
        whole_header = layout.can_begin(begin) and layout.next_block(begin) - begin >= CHUNK_HEADER_SIZE
        if chunk is None and whole_header and begin:
            return None  # its header is not interrupted, here or on nearly any grid: it is damaged
        # A header of the moved grid would interrupt this very chunk.
        stop = max(begin + 2 * BLOCK_SIZE, chunk.data_end + BLOCK_SIZE if chunk is not None else 0)
        size = self.size(stop)
        moved = self._moved_grid(min(stop, size))
        if moved is None and size - begin <= BLOCK_SIZE:
            moved = (Layout(size), size, size)  # no block header is left: the grid that has none here
        if moved is not None and begin < moved[1] <= begin + BLOCK_HEADER_SIZE:
            # What looked like a block header here is none: the chunk begins after it.
            return self._at(moved[1], moved[0])
        return self._proven(moved[0], moved=True) if moved is not None else None

    def _proven(self, layout: Layout, *, moved: bool = False) -> SalvageOutcome | None:
        chunks = self._chunks
        found = chunks.read_header(self._begin, layout)
        if found is None:
            return None
        chunk, sound = found
        if not sound and chunk.header.chunk_type not in (SIMPLE, TRANSPOSED):
            return None
        data = chunks.sound_data(chunk)
        if data is None:
            return None
        if sound and chunks.source.data.flawed:
            chunks.vouch(chunk)
        return self._at(chunk.end, layout if moved else None)._replace(healed=chunk, data=data)

    # -- what comes after it -----------------------------------------------------------------------------------------

    def saved(self, outcome: SalvageOutcome) -> SalvageOutcome:
        """Return a better outcome than the reference's if there is one, else that of the reference."""
        begin, layout, chunk = self._begin, self._layout, self._error.chunk
        size = self.size(outcome.pos)
        if begin >= size:
            return outcome
        if begin == 0 and self._is_sound(len(FILE_SIGNATURE), layout):
            return self._at(len(FILE_SIGNATURE))  # only the signature is damaged
        claimed, sure = self._claimed_end(size)
        if sure and claimed is not None:
            return outcome if claimed >= outcome.pos else self._at(claimed)
        if outcome.crossing == begin or outcome.pos == (chunk.end if chunk is not None else None):
            # A sound block header, or the chunk's own, says where it ends.
            if outcome.pos >= size or self._is_sound(outcome.pos, layout):
                return outcome
            # But no chunk begins there: bytes were lost or inserted. Search the whole way.
            outcome = self._by_block_headers(outcome.pos)
        stop = size if outcome.lost else min(outcome.pos, size)
        if outcome.crossing is not None:
            if outcome.crossing < begin:
                return outcome
            stop = outcome.crossing
        return self._searched(outcome, claimed, stop, size)

    def _searched(self, outcome: SalvageOutcome, claimed: int | None, stop: int, size: int) -> SalvageOutcome:
        """Return the first place up to ``stop`` at which a chunk begins, on the grid or beside it; else ``outcome``."""
        begin, layout = self._begin, self._layout
        found, proven = self._first_chunk(stop, layout)
        if claimed is not None and not proven:
            return outcome if claimed >= outcome.pos else self._at(claimed)
        if not proven and (outcome.lost or stop - begin > 2 * BLOCK_SIZE):
            moved, proven = self._on_moved_grid(found, stop, size)
            if moved is not None:
                return moved
        if not proven and outcome.lost and size - self._where_it_moved() <= 4 * BLOCK_SIZE:
            free = self._without_grid(size if found is None else found, size)
            if free is not None:
                return free
        if found is not None:
            return self._at(found)
        return self._at(stop) if begin < stop < outcome.pos and self._is_sound(stop, layout) else outcome

    def _on_moved_grid(self, found: int | None, stop: int, size: int) -> tuple[SalvageOutcome | None, bool]:
        """Return the first place on a grid that moved, if it is before ``found``, and whether a chunk proves it."""
        moved = self._moved_grid(stop)
        if moved is None:
            return None, False
        layout, crossing, behind = moved
        first, proven = self._first_chunk(crossing, layout)
        where = first if first is not None else crossing
        if where <= self._begin:
            where = behind
        if found is not None and where >= found:
            return None, proven
        return SalvageOutcome(where, min(where, size), self._message, layout), proven

    def _without_grid(self, stop: int, size: int) -> SalvageOutcome | None:
        """Return the first chunk whose hashes agree if no block header is left to show the grid.

        For each candidate, a grid without block headers after it is tried.
        """
        for chunk in islice(self._candidates(stop, Layout(size)), MAX_ENDS + 1):
            pos, free = chunk.begin, Layout(chunk.begin - CHUNK_HEADER_SIZE)
            if self._data_agrees(Chunk(pos, chunk.header, free)) and self._leads_on(pos, size, free):
                return self._at(pos, free)
        return None

    def _is_sound(self, pos: int, layout: Layout) -> bool:
        found = self._chunks.read_header(pos, layout)
        return found is not None and found[1]

    def _claimed_end(self, size: int) -> tuple[int | None, bool]:
        """Return where the damaged chunk ends by its header, if another chunk begins there or the file ends.

        Also return whether that is certain: the header is sound, or its size is confirmed by the hash of the data.
        """
        begin = self._begin
        found = self._chunks.read_header(begin, self._layout)
        if found is None:
            return None, False
        chunk, sound = found
        if not sound:
            if chunk.data_end <= size and chunk.header.data_size and self._chunks.sound_data(chunk) is not None:
                return chunk.data_end, True
            end = self._body_end(begin or len(FILE_SIGNATURE), size)
            if end is not None:
                return end, True
        for end in [chunk.end] if sound else [chunk.data_end, chunk.end]:
            if begin < end <= size and (end == size or self._is_sound(end, chunk.layout)):
                return end, sound
        return None, False

    def _body_end(self, begin: int, size: int) -> int | None:
        """Return where a chunk whose header is lost ends by its data: only for an uncompressed simple chunk.

        The data begin with the sizes of the records. Only uncompressed records can contain chunks of another file,
        which must be skipped; so this is tried when nothing else gives the end.
        """
        layout, get = self._layout, self._chunks.get
        start = layout.add(begin, CHUNK_HEADER_SIZE)
        head = layout.strip(get(start, 64), start)
        if head[:1] != b"\0":
            return None
        try:
            length, at = read_varint(head, 1, len(head))
            if length > MAX_SIZES:
                return None
            stop = layout.add(begin, CHUNK_HEADER_SIZE + at + length)
            sizes = decode_varints(layout.strip(get(start, stop - start), start)[at : at + length], length)
        except MalformedError:
            return None
        end = layout.add(begin, CHUNK_HEADER_SIZE + at + length + sum(sizes))
        return end if sizes and end <= size and (end == size or self._is_sound(end, layout)) else None

    def _read(self, at: int, until: int, more: int) -> tuple[bytes, int]:
        """Return the bytes of ``[at, until)`` and ``more``, and how far they reach: up to a gap, or the end.

        There are none in a gap; then it is where that ends.
        """
        source, wanted = self._chunks.source, until - at + more
        raw = source.pread(at, wanted)
        if not raw:
            return raw, source.gap_end(at) or at
        return raw, until if len(raw) == wanted else min(until, at + len(raw))

    def _candidates(self, stop: int, layout: Layout) -> Iterator[Chunk]:
        """Yield the chunk of each chunk header between the damaged chunk and ``stop`` with a valid hash."""
        chunks, begin, size = self._chunks, self._begin, self.size(stop)

        def look(at: int, until: int) -> tuple[int, list[int] | None]:
            raw, until = self._read(at, until, CHUNK_HEADER_SIZE + BLOCK_HEADER_SIZE)
            if not raw:
                return until, None
            places = {at + found for found in chunk_headers(raw, MAX_POSITION)}
            # A header that a block header cuts in two is found by looking at each offset where it may begin.
            for boundary in range(layout.next_block(at), until + CHUNK_HEADER_SIZE, BLOCK_SIZE):
                cut = range(max(at, boundary - CHUNK_HEADER_SIZE + 1), min(until, boundary + 1))
                places.update(pos for pos in cut if self._is_sound(pos, layout))
            return until, sorted(pos for pos in places if at <= pos < until)

        for pos in chunks.sightings.chunks(layout.shift).find(begin + 1, stop, look):
            place = pos - BLOCK_HEADER_SIZE if not layout.can_begin(pos) else pos
            found = chunks.read_header(place, layout) if place > begin else None
            if found is not None and found[1] and found[0].header.data_size <= size:
                yield found[0]

    def _first_chunk(self, stop: int, layout: Layout) -> tuple[int | None, bool]:
        """Return the first chunk before ``stop`` that belongs to the file; None if there is none.

        It is whole, and chunks follow it up to a known one (`_leads_on`). Or the hash of the damaged chunk's data
        proves that the damaged chunk ends there; then the second value is True.
        """
        size = self.size(stop)
        ends: list[int] = []
        first = None
        for chunk in islice(self._candidates(stop, layout), MAX_TRIED):
            if len(ends) >= MAX_ENDS:
                break
            if chunk.data_end <= size and not self._data_agrees(chunk):
                continue
            ends.append(chunk.begin)
            if first is None and self._leads_on(chunk.begin, stop, layout):
                first = chunk.begin
                if self._error.chunk is not None:
                    break
        proven = self._true_end([*ends, stop], layout) if ends else None
        return (first, False) if proven is None else (proven, True)

    def _leads_on(self, pos: int, stop: int, layout: Layout, boundaries: int = 1) -> bool:
        """Say whether chunk follows chunk from ``pos`` to ``stop``, to the end of the file, or over block headers.

        This is true for the file's own chunks. Those of a file within a record end within that record, and an outer
        block header that interrupts them names the chunk around them. A grid that is only assumed needs two
        ``boundaries``: a file within a record never reaches over two of its own block headers without one of the outer
        file.
        """
        chunks, size = self._chunks, self.size(stop)
        while pos != stop:
            if pos >= size:
                return True
            found = chunks.read_header(pos, layout)
            if pos > stop or found is None or not found[1]:
                if found is None and size - pos < CHUNK_HEADER_SIZE + BLOCK_HEADER_SIZE:
                    return True
                # A tar archive with wrong sizes adds the zeros that follow the file.
                return size - pos < PADDING and not any(chunks.get(pos, size - pos))
            end = found[0].end
            for block in range(layout.next_block(pos), min(end, size - BLOCK_HEADER_SIZE), BLOCK_SIZE):
                raw = chunks.get(block, BLOCK_HEADER_SIZE)
                if not block_is_sound(raw) or unpack_block(raw) != (block - pos, end - block):
                    return False
                boundaries -= 1
                if not boundaries:
                    return True
            pos = end
        return True

    def _data_agrees(self, chunk: Chunk) -> bool:
        chunks = self._chunks
        known = chunks.sightings.agrees(chunk.begin, chunk.layout.shift)
        if known is not None:
            return known
        data = chunks.loose_data(chunk)
        if data is not None:
            agrees = bool(hash64(data) == chunk.header.data_hash)
        else:
            try:
                chunks.verify(chunk)
                agrees = True
            except ChunkError:
                agrees = False
        chunks.sightings.note_data(chunk.begin, chunk.layout.shift, agrees)
        return agrees

    def _true_end(self, ends: list[int], layout: Layout) -> int | None:
        """Return which of ``ends`` is the end of the damaged chunk, by the hash of the data up to there; None: none is.

        Earlier ones would lie inside it.
        """
        found = self._chunks.read_header(self._begin, self._layout)
        if found is None or self._error.chunk is not None:
            return None
        wanted, digest = found[0].header.data_hash, Highway64()
        at = self._layout.add(self._begin, CHUNK_HEADER_SIZE)
        for end in ends:
            if not 0 <= end - at <= MAX_COMPARED:
                return None
            digest.update(layout.strip(self._chunks.get(at, end - at), at))
            if digest.digest() == wanted:
                return end
            at = end
        return None

    # -- a grid that moved -------------------------------------------------------------------------------------------

    def _moved_grid(self, stop: int) -> tuple[Layout, int, int] | None:
        """Look for a block header off the grid, up to ``stop``, from which chunk follows chunk.

        Return the new grid, where the chunk begins that the header interrupts, and where reading can continue after it.
        """
        chunks, begin, start = self._chunks, self._begin, self._where_it_moved()

        def look(at: int, until: int) -> tuple[int, list[int] | None]:
            raw, until = self._read(at, until, BLOCK_HEADER_SIZE - 1)
            return until, sorted({at + found for found in block_headers(raw) if at + found < until}) if raw else None

        for block in chunks.sightings.blocks.find(start, min(stop, start + MAX_MOVED), look):
            layout = Layout(block)
            if layout.shift == self._layout.shift:
                continue
            size = self.size(block + MAX_MOVED)
            previous_chunk, next_chunk = unpack_block(chunks.get(block, BLOCK_HEADER_SIZE))
            if next_chunk > size:
                continue
            crossing, behind = block - previous_chunk, block + next_chunk
            if crossing < begin:  # the damaged chunk itself, or one whose beginning is lost
                crossing = behind
            elif not previous_chunk:
                behind = crossing
            whole = (crossing > begin or not begin) and self._is_sound(crossing, layout)
            if self._has_partner(block) or self._leads_on(crossing if whole else behind, size, layout, boundaries=2):
                return layout, crossing, behind
        return None

    def _has_partner(self, block: int) -> bool:
        """Say whether one of the next blocks on the same grid also has a sound header.

        Block headers of a file within a record are not a multiple of 64 KiB apart: those of the outer file come
        between.
        """
        get = self._chunks.get
        return any(block_is_sound(get(block + nth * BLOCK_SIZE, BLOCK_HEADER_SIZE)) for nth in range(1, 5))

    def _where_it_moved(self) -> int:
        """Return from where on block headers may be off the grid: after the last one that was in its place."""
        chunk, offset = self._error.chunk, self._error.error.offset
        if chunk is None:
            return self._begin
        if offset is not None and offset > self._begin:
            return max(self._begin, offset - BLOCK_SIZE)
        return max(self._begin, chunk.layout.block_of(chunk.data_end))
