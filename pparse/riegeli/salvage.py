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
5. *A last chunk that lacks only its padding* (`unpadded`).
"""

from __future__ import annotations

from collections import namedtuple

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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.riegeli.chunk_data import ChunkReader

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
    outcome = by_block_headers(chunks, error)
    if not salvage or not chunks.source.random_access:
        return outcome
    if heal and error.begin + CHUNK_HEADER_SIZE < max(outcome.end, end_of_file(chunks, outcome.end)):
        healed = _heal(chunks, error)
        if healed is not None:
            return healed
    saved = _saved(chunks, error, outcome)
    return saved if saved.pos > error.begin else outcome


def by_block_headers(chunks: ChunkReader, error: ChunkError) -> SalvageOutcome:
    """Find where the reference continues after ``error``."""
    layout, pos, message = chunks.layout_at(error.begin), error.resume, error.error.reason
    begin, first, searching = error.begin, 0, True
    if error.have and pos > begin:
        if pos > MAX_POSITION:
            pos = begin + 1
        elif pos > (size := end_of_file(chunks, pos)):
            return SalvageOutcome(pos, size, message)
        if layout.can_begin(pos):
            return SalvageOutcome(pos, pos, message)
    while True:
        block = layout.next_block(max(pos, begin + 1))
        first = first or block
        if chunks.is_bare_from(block, layout):
            return SalvageOutcome(block, end_of_file(chunks, block), message, lost=True)
        raw = chunks.get(block, BLOCK_HEADER_SIZE)
        if len(raw) < BLOCK_HEADER_SIZE:
            gap = chunks.source.gap_end(block + len(raw))
            if gap is not None:
                pos = gap
                continue
            if searching:  # only if nothing was skipped
                chunks.note_bare(first, layout)
            return SalvageOutcome(block, min(block, end_of_file(chunks, block)), message, lost=True)
        if not block_is_sound(raw):
            message = f"block header hash mismatch, block at {block}"
            pos = block + BLOCK_HEADER_SIZE
            continue
        outcome = _named_by(chunks, raw, block, begin, message)
        if outcome is not None:
            return outcome
        pos = block + unpack_block(raw)[1]
        message, searching = f"the block header at {block} points to no position where a chunk can begin", False
        pos = block + BLOCK_HEADER_SIZE if pos > MAX_POSITION else max(pos, block + BLOCK_HEADER_SIZE)


def _named_by(chunks: ChunkReader, raw: bytes, block: int, begin: int, message: str) -> SalvageOutcome | None:
    """Return the place behind ``begin`` that the sound block header ``raw`` at ``block`` names; None if it is none."""
    previous_chunk, next_chunk = unpack_block(raw)
    if previous_chunk == 0 and block > begin:
        return SalvageOutcome(block, block, message)
    pos = block + next_chunk
    if begin < pos <= MAX_POSITION and chunks.layout_at(begin).can_begin(pos):
        return SalvageOutcome(pos, min(pos, end_of_file(chunks, pos)), message, crossing=block - previous_chunk)
    return None


def end_of_file(chunks: ChunkReader, pos: int) -> int:
    """Return the size of the file; for one that is only read forwards, how far it extends, up to ``pos``."""
    size = chunks.source.known_size()
    if size is not None:
        return size
    low = max(0, getattr(chunks.source.data, "position", 0))
    while low < pos and (got := chunks.get(low, min(pos - low, BLOCK_SIZE))):
        low += len(got)
    return low


def unpadded(chunks: ChunkReader, begin: int) -> tuple[Chunk, bytes] | None:
    """Return the chunk at ``begin`` and its data if only its padding is missing and the data's hash agrees."""
    try:
        chunk = chunks.header(begin)
    except ChunkError:
        return None
    data = chunks.sound_data(chunk) if chunk is not None else None
    return (chunk, data) if chunk is not None and data is not None else None


# -- the damaged chunk itself ----------------------------------------------------------------------------------------


def _heal(chunks: ChunkReader, error: ChunkError) -> SalvageOutcome | None:
    """Return the current chunk if the hash of its data proves it whole: on the grid, or on one that moved."""
    layout = chunks.layout_at(error.begin)
    if not (error.have and error.chunk is not None and error.resume == error.chunk.end):
        healed = _proven(chunks, error, layout)  # else the data are wrong, on this grid
        if healed is not None:
            return healed
    whole_header = layout.can_begin(error.begin) and layout.next_block(error.begin) - error.begin >= CHUNK_HEADER_SIZE
    if chunks.get(error.begin, len(FILE_SIGNATURE)) == FILE_SIGNATURE:  # another file, appended as it is
        return _proven(chunks, error, Layout(error.begin), Layout(error.begin))
    if error.chunk is None and whole_header and error.begin:
        return None  # its header is not interrupted, here or on nearly any grid: it is damaged
    # A header of the moved grid would interrupt this very chunk.
    stop = max(error.begin + 2 * BLOCK_SIZE, error.chunk.data_end + BLOCK_SIZE if error.chunk is not None else 0)
    size = end_of_file(chunks, stop)
    moved = _moved_grid(chunks, error, min(stop, size))
    if moved is None and size - error.begin <= BLOCK_SIZE:
        moved = (Layout(size), size, size)  # no block header is left: the grid that has none here
    if moved is not None and error.begin < moved[1] <= error.begin + BLOCK_HEADER_SIZE:
        # What looked like a block header here is none: the chunk begins after it.
        return SalvageOutcome(moved[1], moved[1], error.error.reason, layout=moved[0])
    return _proven(chunks, error, moved[0], moved[0]) if moved is not None else None


def _proven(
    chunks: ChunkReader, error: ChunkError, layout: Layout, moved: Layout | None = None
) -> SalvageOutcome | None:
    found = chunks.read_header(error.begin, layout)
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
    return SalvageOutcome(chunk.end, chunk.end, error.error.reason, healed=chunk, data=data, layout=moved)


# -- what comes after it ---------------------------------------------------------------------------------------------


def _saved(chunks: ChunkReader, error: ChunkError, outcome: SalvageOutcome) -> SalvageOutcome:
    """Return a better outcome than the reference's if there is one, else that of the reference."""
    begin, message = error.begin, error.error.reason
    size = end_of_file(chunks, outcome.pos)
    if begin >= size:
        return outcome
    layout = chunks.layout_at(begin)
    if begin == 0 and _is_sound(chunks, len(FILE_SIGNATURE), layout):
        return SalvageOutcome(len(FILE_SIGNATURE), len(FILE_SIGNATURE), message)  # only the signature is damaged
    claimed, sure = _claimed_end(chunks, error, size)
    if sure and claimed is not None:
        return outcome if claimed >= outcome.pos else SalvageOutcome(claimed, claimed, message)
    own_end = error.chunk.end if error.chunk is not None else None
    if outcome.crossing == begin or outcome.pos == own_end:
        # A sound block header, or the chunk's own, says where it ends.
        if outcome.pos >= size or _is_sound(chunks, outcome.pos, layout):
            return outcome
        # But no chunk begins there: bytes were lost or inserted. Search the whole way.
        outcome = by_block_headers(chunks, ChunkError(error.error, begin, outcome.pos))
    stop = size if outcome.lost else min(outcome.pos, size)
    if outcome.crossing is not None:
        if outcome.crossing < begin:
            return outcome
        stop = outcome.crossing
    return _searched(chunks, error, outcome, claimed, stop, size)


def _searched(
    chunks: ChunkReader, error: ChunkError, outcome: SalvageOutcome, claimed: int | None, stop: int, size: int
) -> SalvageOutcome:
    """Return the first place up to ``stop`` at which a chunk begins, on the grid or beside it; else ``outcome``."""
    begin, message, layout = error.begin, error.error.reason, chunks.layout_at(error.begin)
    found, proven = _first_chunk(chunks, begin, stop, layout, error)
    if claimed is not None and not proven:
        return outcome if claimed >= outcome.pos else SalvageOutcome(claimed, claimed, message)
    if not proven and (outcome.lost or stop - begin > 2 * BLOCK_SIZE):
        moved, proven = _on_moved_grid(chunks, error, found, stop, size)
        if moved is not None:
            return moved
    if not proven and outcome.lost and size - _where_it_moved(error) <= 4 * BLOCK_SIZE:
        free = _without_grid(chunks, error, size if found is None else found, size)
        if free is not None:
            return free
    if found is not None:
        return SalvageOutcome(found, found, message)
    return (
        SalvageOutcome(stop, stop, message)
        if begin < stop < outcome.pos and _is_sound(chunks, stop, layout)
        else outcome
    )


def _on_moved_grid(
    chunks: ChunkReader, error: ChunkError, found: int | None, stop: int, size: int
) -> tuple[SalvageOutcome | None, bool]:
    """Return the first place on a grid that moved, if it is before ``found``, and whether a chunk proves that grid."""
    moved = _moved_grid(chunks, error, stop)
    if moved is None:
        return None, False
    layout, crossing, behind = moved
    first, proven = _first_chunk(chunks, error.begin, crossing, layout, error)
    where = first if first is not None else crossing
    if where <= error.begin:
        where = behind
    if found is not None and where >= found:
        return None, proven
    return SalvageOutcome(where, min(where, size), error.error.reason, layout=layout), proven


def _without_grid(chunks: ChunkReader, error: ChunkError, stop: int, size: int) -> SalvageOutcome | None:
    """Return the first chunk whose hashes agree if no block header is left to show the grid.

    For each candidate, a grid without block headers after it is tried.
    """
    for tried, chunk in enumerate(_candidates(chunks, error.begin, stop, Layout(size))):
        pos = chunk.begin
        free = Layout(pos - CHUNK_HEADER_SIZE)
        if tried > MAX_ENDS:
            break
        if _data_agrees(chunks, Chunk(pos, chunk.header, free)) and _leads_on(chunks, pos, size, free):
            return SalvageOutcome(pos, pos, error.error.reason, layout=free)
    return None


def _is_sound(chunks: ChunkReader, pos: int, layout: Layout) -> bool:
    found = chunks.read_header(pos, layout)
    return found is not None and found[1]


def _claimed_end(chunks: ChunkReader, error: ChunkError, size: int) -> tuple[int | None, bool]:
    """Return where the damaged chunk ends by its header, if another chunk begins there or the file ends.

    Also return whether that is certain: the header is sound, or its size is confirmed by the hash of the data.
    """
    found = chunks.read_header(error.begin, chunks.layout_at(error.begin))
    if found is None:
        return None, False
    chunk, sound = found
    if not sound:
        if chunk.data_end <= size and chunk.header.data_size and chunks.sound_data(chunk) is not None:
            return chunk.data_end, True
        end = _body_end(chunks, error.begin or len(FILE_SIGNATURE), size, chunk.layout)
        if end is not None:
            return end, True
    for end in [chunk.end] if sound else [chunk.data_end, chunk.end]:
        if error.begin < end <= size and (end == size or _is_sound(chunks, end, chunk.layout)):
            return end, sound
    return None, False


def _body_end(chunks: ChunkReader, begin: int, size: int, layout: Layout) -> int | None:
    """Return where a chunk whose header is lost ends by its data: only for an uncompressed simple chunk.

    The data begin with the sizes of the records. Only uncompressed records can contain chunks of another file, which
    must be skipped; so this is tried when nothing else gives the end.
    """
    start = layout.add(begin, CHUNK_HEADER_SIZE)
    head = layout.strip(chunks.get(start, 64), start)
    if head[:1] != b"\0":
        return None
    try:
        length, at = read_varint(head, 1, len(head))
        if length > MAX_SIZES:
            return None
        stop = layout.add(begin, CHUNK_HEADER_SIZE + at + length)
        sizes = decode_varints(layout.strip(chunks.get(start, stop - start), start)[at : at + length], length)
    except MalformedError:
        return None
    end = layout.add(begin, CHUNK_HEADER_SIZE + at + length + sum(sizes))
    return end if sizes and end <= size and (end == size or _is_sound(chunks, end, layout)) else None


def _candidates(chunks: ChunkReader, begin: int, stop: int, layout: Layout) -> Iterator[Chunk]:
    """Yield the chunk of each chunk header in ``(begin, stop)`` with a valid hash."""
    size = end_of_file(chunks, stop)

    def look(at: int, until: int) -> tuple[int, list[int] | None]:
        wanted = until - at + CHUNK_HEADER_SIZE + BLOCK_HEADER_SIZE
        raw = chunks.source.pread(at, wanted)
        if not raw:
            return chunks.source.gap_end(at) or at, None
        if len(raw) < wanted:  # up to a gap, or the end
            until = min(until, at + len(raw))
        places = {at + found for found in chunk_headers(raw, MAX_POSITION)}
        # A header that a block header cuts in two is found by looking at each offset where it may begin.
        for boundary in range(layout.next_block(at), until + CHUNK_HEADER_SIZE, BLOCK_SIZE):
            cut = range(max(at, boundary - CHUNK_HEADER_SIZE + 1), min(until, boundary + 1))
            places.update(pos for pos in cut if _is_sound(chunks, pos, layout))
        return until, sorted(pos for pos in places if at <= pos < until)

    for pos in chunks.sightings.chunks(layout.shift).find(begin + 1, stop, look):
        place = pos - BLOCK_HEADER_SIZE if not layout.can_begin(pos) else pos
        if place <= begin:
            continue
        found = chunks.read_header(place, layout)
        if found is not None and found[1] and found[0].header.data_size <= size:
            yield found[0]


def _first_chunk(
    chunks: ChunkReader, begin: int, stop: int, layout: Layout, error: ChunkError
) -> tuple[int | None, bool]:
    """Return the first chunk in ``(begin, stop)`` that belongs to the file; None if there is none.

    It is whole, and chunks follow it up to a known one (`_leads_on`). Or the hash of the damaged chunk's data proves
    that the damaged chunk ends there; then the second value is True.
    """
    size = end_of_file(chunks, stop)
    ends: list[int] = []
    first = None
    for tried, chunk in enumerate(_candidates(chunks, begin, stop, layout)):
        if tried >= MAX_TRIED or len(ends) >= MAX_ENDS:
            break
        if chunk.data_end <= size and not _data_agrees(chunks, chunk):
            continue
        ends.append(chunk.begin)
        if first is None and _leads_on(chunks, chunk.begin, stop, layout):
            first = chunk.begin
            if error.chunk is not None:
                break
    proven = _true_end(chunks, error, ends + [stop], layout) if ends else None
    return (first, False) if proven is None else (proven, True)


def _has_partner(chunks: ChunkReader, block: int) -> bool:
    """Say whether one of the next blocks on the same grid also has a sound header.

    Block headers of a file within a record are not a multiple of 64 KiB apart: those of the outer file come between.
    """
    return any(block_is_sound(chunks.get(block + nth * BLOCK_SIZE, BLOCK_HEADER_SIZE)) for nth in range(1, 5))


def _leads_on(chunks: ChunkReader, pos: int, stop: int, layout: Layout, boundaries: int = 1) -> bool:
    """Say whether chunk follows chunk from ``pos`` to ``stop``, to the end of the file, or over block headers.

    This is true for the file's own chunks. Those of a file within a record end within that record, and an outer block
    header that interrupts them names the chunk around them. A grid that is only assumed needs two ``boundaries``: a
    file within a record never reaches over two of its own block headers without one of the outer file.
    """
    size = end_of_file(chunks, stop)
    while pos != stop:
        if pos >= size:
            return True
        found = chunks.read_header(pos, layout)
        if pos > stop or found is None or not found[1]:
            if found is None and size - pos < CHUNK_HEADER_SIZE + BLOCK_HEADER_SIZE:
                return True
            # A tar archive with wrong sizes adds the zeros that follow the file.
            return size - pos < PADDING and not any(chunks.get(pos, size - pos))
        chunk = found[0]
        for block in range(layout.next_block(pos), min(chunk.end, size - BLOCK_HEADER_SIZE), BLOCK_SIZE):
            raw = chunks.get(block, BLOCK_HEADER_SIZE)
            if not block_is_sound(raw) or unpack_block(raw) != (block - pos, chunk.end - block):
                return False
            boundaries -= 1
            if not boundaries:
                return True
        pos = chunk.end
    return True


def _data_agrees(chunks: ChunkReader, chunk: Chunk) -> bool:
    known = chunks.sightings.agrees(chunk.begin, chunk.layout.shift)
    if known is not None:
        return known
    data = chunks.loose_data(chunk)
    if data is not None:
        agrees = hash64(data) == chunk.header.data_hash
    else:
        try:
            chunks.verify(chunk)
            agrees = True
        except ChunkError:
            agrees = False
    chunks.sightings.note_data(chunk.begin, chunk.layout.shift, agrees)
    return agrees


def _true_end(chunks: ChunkReader, error: ChunkError, ends: list[int], layout: Layout) -> int | None:
    """Return which of ``ends`` is the end of the damaged chunk, by the hash of the data up to there; None if none fits.

    Earlier ones would lie inside it.
    """
    found = chunks.read_header(error.begin, chunks.layout_at(error.begin))
    if found is None or error.chunk is not None:
        return None
    wanted, digest = found[0].header.data_hash, Highway64()
    at = chunks.layout_at(error.begin).add(error.begin, CHUNK_HEADER_SIZE)
    for end in ends:
        if not 0 <= end - at <= MAX_COMPARED:
            return None
        digest.update(layout.strip(chunks.get(at, end - at), at))
        if digest.digest() == wanted:
            return end
        at = end
    return None


def _moved_grid(chunks: ChunkReader, error: ChunkError, stop: int) -> tuple[Layout, int, int] | None:
    """Look for a block header off the grid, up to ``stop``, from which chunk follows chunk.

    Return the new grid, where the chunk begins that the header interrupts, and where reading can continue after it.
    """
    begin, shift = error.begin, chunks.layout_at(error.begin).shift
    start = _where_it_moved(error)
    stop = min(stop, start + MAX_MOVED)

    def look(at: int, until: int) -> tuple[int, list[int] | None]:
        wanted = until - at + BLOCK_HEADER_SIZE - 1
        raw = chunks.source.pread(at, wanted)
        if not raw:
            return chunks.source.gap_end(at) or at, None
        if len(raw) < wanted:  # up to a gap, or the end
            until = min(until, at + len(raw))
        return until, sorted({at + found for found in block_headers(raw) if at + found < until})

    for block in chunks.sightings.blocks.find(start, stop, look):
        if Layout(block).shift == shift:
            continue
        size = end_of_file(chunks, block + MAX_MOVED)
        found = _grid_from(chunks.get(block, BLOCK_HEADER_SIZE), block, begin, size)
        if found is None:
            continue
        layout, crossing, behind = found
        whole = chunks.read_header(crossing, layout) if crossing > begin or not begin else None
        from_here = crossing if whole is not None and whole[1] else behind
        if _has_partner(chunks, block) or _leads_on(chunks, from_here, size, layout, boundaries=2):
            return found
    return None


def _where_it_moved(error: ChunkError) -> int:
    """Return from where on block headers may be off the grid: after the last one that was in its place."""
    chunk, offset = error.chunk, error.error.offset
    if chunk is None:
        return error.begin
    if offset is not None and offset > error.begin:
        return max(error.begin, offset - BLOCK_SIZE)
    return max(error.begin, chunk.layout.block_of(chunk.data_end))


def _grid_from(raw: bytes, block: int, begin: int, size: int) -> tuple[Layout, int, int] | None:
    """Return the grid of the sound block header ``raw``, as `_moved_grid` does."""
    previous_chunk, next_chunk = unpack_block(raw)
    if next_chunk > size:
        return None
    crossing = block - previous_chunk
    if crossing < begin:  # the damaged chunk itself, or one whose beginning is lost
        return Layout(block), block + next_chunk, block + next_chunk
    return Layout(block), crossing, crossing if not previous_chunk else block + next_chunk
