"""Access by position, for `RecordReader`: seeking to a number, going back, and binary search.

A block header says where the chunk that it interrupts begins and ends; from there on, chunk headers lead to the next
chunk. So a position costs one small read, and one per chunk between the first of the block and the one wanted.
"""

from __future__ import annotations

from pparse.riegeli.chunks import Chunk, ChunkError
from pparse.riegeli.layout import BLOCK_HEADER_SIZE, unpack_block
from pparse.riegeli.positions import RecordPosition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pparse.riegeli.chunks import ChunkReader
    from pparse.riegeli.reader import RecordReader


def seek_numeric(reader: RecordReader, pos: int) -> None:
    """Go to numeric position ``pos``: its record, or the first chunk that begins there or after."""
    chunk = reader._chunk
    if chunk is not None and chunk.begin <= pos < chunk.begin + reader._count:
        reader.seek(RecordPosition(chunk.begin, pos - chunk.begin))
        return
    if not reader._source.random_access:
        _walk_to(reader, pos)
        return
    size = reader._source.size()
    if pos > size:
        reader._leave(reader._pos)
        reader._fail_beyond(pos)
        return
    found, end = chunk_at(reader, pos)
    reader._leave(end)
    reader._last = None
    if found is None:
        return
    if pos == size and found.end > size:  # the end of the file, though the chunk's padding should continue
        reader._pos = found.end
    elif pos == found.begin:
        reader._pos = pos
    elif pos < found.begin + found.header.num_records:
        reader._enter_at(found.begin, pos - found.begin)
    else:
        reader._pos = found.end


def _walk_to(reader: RecordReader, pos: int) -> None:
    """Go to numeric position ``pos``, as `seek_numeric`, chunk by chunk from the current one."""
    reader._leave(reader._pos)
    reader._last = None
    while reader._pos < pos and not reader._stopped:
        try:
            chunk = reader._pull()
        except ChunkError as error:
            reader._fail(error)
            continue
        if chunk is not None and pos < chunk.begin + chunk.header.num_records:
            reader._enter_at(chunk.begin, pos - chunk.begin)
            return
        if chunk is None or not reader._source.reaches(chunk.end):
            if not reader._source.reaches(pos):
                reader._fail_beyond(pos)
            return
        reader._pos = chunk.end
        reader._source.forget(chunk.end)


def chunk_at(reader: RecordReader, pos: int) -> tuple[Chunk | None, int]:
    """Return the chunk that occupies offset ``pos``, and where it begins.

    At the end of the file the chunk is None; the offset is then where the incomplete chunk begins, or the end. With a
    recovery, damage on the way is skipped and reported; without one it raises.
    """
    end = start = _start_before(reader, pos)
    for chunk in _hop(reader, start, pos + 1):
        if chunk.begin > pos:
            return None, chunk.begin  # what lies at ``pos`` was skipped
        if pos < chunk.end and _is_there(reader, chunk):
            return chunk, chunk.begin
        end = chunk.end if _is_there(reader, chunk) else chunk.begin
    return None, max(end, reader._pos) if end < pos and reader._recovery is not None else end


def _is_there(reader: RecordReader, chunk: Chunk) -> bool:
    """Say whether a chunk is whole, or lacks only its padding and can be saved."""
    size = reader._source.size()
    return chunk.end <= size or (reader._recovery is not None and reader._salvage and chunk.data_end <= size)


def _hop(reader: RecordReader, start: int, stop: int) -> Iterator[Chunk]:
    """Yield the chunks that begin in ``[start, stop)``: the first one even after damage, and one that is cut.

    With a recovery, damage is skipped and reported; without one it raises.
    """
    chunks, before = reader._chunks, None
    saving, size = reader._recovery is not None, reader._source.size()
    while start < stop and not reader._stopped:
        try:
            chunk = chunks.header(start)
            if chunk is None:
                return
            if saving and chunk.end >= stop and chunk.end < size and not _is_chunk(chunks, chunk.end):
                damage = first_damage(chunks, chunk)
                if damage is not None:
                    raise damage
        except ChunkError as error:
            # No chunk begins where the previous one ends: perhaps the previous one is damaged, and shorter.
            damage = first_damage(chunks, before) if saving else None
            before, again = None, error.begin
            if damage is not None:
                again = damage.begin
            reader._fail(damage or error)
            chunk = reader._chunk  # healed, and entered
            if chunk is None:
                start = reader._pos if reader._pos > again else start + 1
                continue
            if chunk.end <= start and chunk.begin != start:
                start = max(start, reader._pos) + (reader._pos <= start)
                continue
        yield chunk
        before, start = chunk, chunk.end


def first_damage(chunks: ChunkReader, before: Chunk | None) -> ChunkError | None:
    """Return what is wrong with the chunk ``before`` one that was not found: it may be shorter than its header says."""
    try:
        if before is not None:
            chunks.verify(before, blocks=False)
    except ChunkError as error:
        return error
    return None


def _start_before(reader: RecordReader, pos: int) -> int:
    """Return a chunk boundary at or before ``pos``, from the header of its block, or of an earlier block if damaged."""
    chunks, at = reader._chunks, pos
    size = reader._source.size()
    while at >= 0:
        first, layout = chunks.grid_at(at)
        block = layout.block_of(at)
        if block < first:
            return first  # a grid begins at a chunk
        at = block - 1
        if block and size - block < BLOCK_HEADER_SIZE:
            continue  # the last block header is cut: use the one before
        try:
            start = chunks.start_for(block)
        except ChunkError as error:
            if reader._recovery is None:
                reader._fail(error)
            continue
        if size - block >= BLOCK_HEADER_SIZE:
            start = _nearest(chunks, block, start, pos, first)
        if reader._recovery is not None and block and not _is_chunk(chunks, start):
            continue  # the block header is wrong, or the chunk that it names is damaged
        return start
    return 0


def _is_chunk(chunks: ChunkReader, pos: int) -> bool:
    try:
        return chunks.header(pos) is not None
    except ChunkError:
        return False


def _nearest(chunks: ChunkReader, block: int, start: int, pos: int, first: int) -> int:
    """Return the later of the two chunk boundaries that a block header names, if it is not beyond ``pos``."""
    raw = chunks.get(block, BLOCK_HEADER_SIZE)
    if len(raw) < BLOCK_HEADER_SIZE:  # a gap of the data
        return max(start, first)
    _, next_chunk = unpack_block(raw)
    following = block + next_chunk
    if start < block and next_chunk and following <= pos and chunks.layout_at(pos).can_begin(following):
        return following
    return max(start, first)


def seek_back(reader: RecordReader) -> bool:
    """Go to the record before the current one; False if there is none."""
    if reader._chunk is not None and reader._index:
        reader._index -= 1
        reader._last = None
        return True
    pos = reader._chunk.begin if reader._chunk is not None else reader._pos
    size = reader._source.size()
    pos = min(pos, size)
    while pos > 0:
        chunk = _last_with_records(reader, pos)
        if chunk is None:
            break
        reader._leave(chunk.begin)
        reader._enter_at(chunk.begin, chunk.header.num_records - 1)
        if reader._chunk is not None and reader._count and reader._chunk.begin == chunk.begin:
            reader._last = None
            return True
        pos = chunk.begin  # it was damaged and skipped: search further back
    reader._leave(0)
    reader._last = None
    try:
        first = reader._chunks.header(0)
    except ChunkError:
        return False
    if first is not None:
        reader._pos = first.end
    return False


def _last_with_records(reader: RecordReader, pos: int) -> Chunk | None:
    """Return the last chunk with records that begins before ``pos`` and is not cut by the end of the file."""
    while pos > 0:
        start = _start_before(reader, pos - 1)
        found = None
        for chunk in _hop(reader, start, pos):
            if chunk.begin < pos and chunk.header.num_records and _is_there(reader, chunk):
                found = chunk
        if found is not None:
            return found
        pos = min(start, pos - 1)
    return None


def search(reader: RecordReader, test: Callable[[RecordReader], int | None]) -> int | None:
    """Binary search; see `RecordReader.search`."""
    try:
        return _search(reader, test)
    except StopIteration:
        return None


def _search(reader: RecordReader, test: Callable[[RecordReader], int | None]) -> int | None:
    low, high = 0, reader._source.size()
    less: int | None = None  # begin of the last chunk known to begin with a record that comes before
    best: tuple[RecordPosition, int] | None = None  # the first position known to be equal or greater
    judged = False
    while low < high:
        middle = (low + high) // 2
        chunk, begin = chunk_at(reader, middle)
        # If the middle is cut or damaged, the next chunk after it is judged instead.
        after = middle if chunk is None else chunk.end
        if chunk is not None and begin < low:
            low = max(after, low + 1)
            continue
        if chunk is None and begin >= high:
            high = middle
            continue
        verdict, pos = _judge(reader, begin, high, test)
        if verdict is None:
            if chunk is not None and begin <= low:
                low = max(pos.chunk_begin, after)
            else:
                high = middle if chunk is None else begin
            continue
        judged = True
        if verdict < 0:
            less = pos.chunk_begin
            low = max(after, pos.chunk_begin + 1)
        else:
            best = (pos, verdict)
            high = middle if chunk is None else begin
    return _finish(reader, test, less, best, judged)


def _judge(
    reader: RecordReader, begin: int, high: int, test: Callable[[RecordReader], int | None]
) -> tuple[int | None, RecordPosition]:
    """Return the first verdict on a record from the chunk at ``begin`` on and before ``high``, and its position."""
    reader.seek(RecordPosition(begin, 0))
    while True:
        if not reader._next_or_here() or reader.pos.chunk_begin >= high:
            return None, reader.pos
        pos = reader.pos
        verdict = test(reader)
        if verdict is not None:
            return verdict, pos
        if reader.pos == pos:
            reader.seek(RecordPosition(pos.chunk_begin, pos.record_index + 1))


def _finish(
    reader: RecordReader,
    test: Callable[[RecordReader], int | None],
    less: int | None,
    best: tuple[RecordPosition, int] | None,
    judged: bool,
) -> int | None:
    """Search the chunk that begins with less: it may hold the first record wanted. Go to the result."""
    if less is not None:
        reader.seek(RecordPosition(less, 0))
        while reader._next_or_here():
            pos = reader.pos
            if best is not None and pos >= best[0]:
                break
            verdict = test(reader)
            if verdict is not None and verdict >= 0:
                reader.seek(pos)
                return 1 if verdict else 0
            if reader.pos == pos:
                reader.seek(RecordPosition(pos.chunk_begin, pos.record_index + 1))
    if best is not None:
        reader.seek(best[0])
        return 1 if best[1] else 0
    return -1 if judged else None
