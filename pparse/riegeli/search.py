"""By position: seeking to a number, going back, and binary search, for `RecordReader`.

A block header tells where the chunk that it interrupts begins and ends; from there one hops over chunk headers. So a
position costs one small read, and one for each chunk between the block's first and the one wanted.
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
    """Stand at numeric position ``pos``: its record, or the first chunk that begins there or after."""
    chunk = reader._chunk
    if chunk is not None and chunk.begin <= pos < chunk.begin + reader._count:
        reader.seek(RecordPosition(chunk.begin, pos - chunk.begin))
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
    if pos == found.begin:
        reader._pos = pos
    elif pos < found.begin + found.header.num_records:
        reader._enter_at(found.begin, pos - found.begin)
    else:
        reader._pos = found.end


def chunk_at(reader: RecordReader, pos: int) -> tuple[Chunk | None, int]:
    """Return the chunk that takes offset ``pos``; or None, and where the chunk begins that is cut there, or the end.

    With a recovery, damage on the way is passed over (and told); without one it raises.
    """
    end = start = _start_before(reader, pos)
    for chunk in _hop(reader, start, pos + 1):
        if chunk.begin > pos:
            return None, chunk.begin  # what lies at ``pos`` was skipped
        if pos < chunk.end and chunk.end <= reader._source.size():
            return chunk, chunk.begin
        end = chunk.end if chunk.end <= reader._source.size() else chunk.begin
    return None, max(end, reader._pos) if end < pos and reader._recovery is not None else end


def _hop(reader: RecordReader, start: int, stop: int) -> Iterator[Chunk]:
    """Yield the chunks that begin in ``[start, stop)``, the first one behind damage too, and one that is cut.

    With a recovery, damage is passed over (and told); without one it raises.
    """
    chunks, before = reader._chunks, None
    while start < stop:
        try:
            chunk = chunks.header(start)
        except ChunkError as error:
            reader._fail(error if reader._recovery is None else _first_damage(chunks, before) or error)
            before = None
            chunk = reader._chunk  # healed, and entered
            if chunk is None:
                start = max(reader._pos, start) if reader._pos != start else start + 1
                if reader._stopped:
                    return
                continue
        if chunk is None:
            return
        yield chunk
        before, start = chunk, chunk.end


def _first_damage(chunks: ChunkReader, before: Chunk | None) -> ChunkError | None:
    """Say what is wrong with the chunk ``before`` one that was not found: it may be shorter than it says."""
    try:
        if before is not None:
            chunks.verify(before)
    except ChunkError as error:
        return error
    return None


def _start_before(reader: RecordReader, pos: int) -> int:
    """Return a chunk boundary at or before ``pos``, from the header of its block, or of an earlier one if damaged."""
    chunks, at = reader._chunks, pos
    size = reader._source.size()
    while at >= 0:
        first, layout = chunks.grid_at(at)
        block = layout.block_of(at)
        if block < first:
            return first  # a grid begins at a chunk
        at = block - 1
        if block and size - block < BLOCK_HEADER_SIZE:
            continue  # the last block header is cut: take the one before
        try:
            start = chunks.start_for(block)
        except ChunkError as error:
            if reader._recovery is None:
                reader._fail(error)
            continue
        if size - block >= BLOCK_HEADER_SIZE:
            start = _nearest(chunks, block, start, pos, first)
        if reader._recovery is not None and block and not _is_chunk(chunks, start):
            continue  # the block header lies, or the chunk that it names is damaged
        return start
    return 0


def _is_chunk(chunks: ChunkReader, pos: int) -> bool:
    try:
        return chunks.header(pos) is not None
    except ChunkError:
        return False


def _nearest(chunks: ChunkReader, block: int, start: int, pos: int, first: int) -> int:
    """Return the later of the two chunk boundaries that a block header names, if it is not beyond ``pos``."""
    _, next_chunk = unpack_block(chunks.get(block, BLOCK_HEADER_SIZE))
    following = block + next_chunk
    if start < block and next_chunk and following <= pos and chunks.layout_at(pos).can_begin(following):
        return following
    return max(start, first)


def seek_back(reader: RecordReader) -> bool:
    """Stand at the record before the present one; False where there is none."""
    if reader._chunk is not None and reader._index:
        if reader._index > reader._count:
            reader._index = reader._count
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
        pos = chunk.begin  # it was damaged, and skipped: look further back
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
        found, size = None, reader._source.size()
        for chunk in _hop(reader, start, pos):
            cut = chunk.end > size and (reader._recovery is None or chunk.data_end > size)
            if chunk.begin < pos and chunk.header.num_records and not cut:
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
    less: Chunk | None = None  # the last chunk known to begin with a record that comes before
    best: tuple[RecordPosition, int] | None = None  # the first position known to be equal or greater
    judged = False
    while low < high:
        middle = (low + high) // 2
        chunk, end = chunk_at(reader, middle)
        if chunk is None or chunk.begin < low:
            # Cut, or skipped: nothing before it in [low, middle] was left to judge.
            if chunk is None:
                high = middle
            else:
                low = chunk.end
            continue
        verdict, pos = _judge_chunk(reader, chunk, high, test)
        if verdict is None:
            if chunk.begin <= low:
                low = max(pos.chunk_begin, chunk.end)
            else:
                high = chunk.begin
            continue
        judged = True
        if verdict < 0:
            less = Chunk(pos.chunk_begin, chunk.header, chunk.layout) if pos.chunk_begin != chunk.begin else chunk
            low = max(chunk.end, pos.chunk_begin + 1)
        else:
            best = (pos, verdict)
            high = chunk.begin
        _ = end
    return _finish(reader, test, less, best, judged)


def _judge_chunk(
    reader: RecordReader, chunk: Chunk, high: int, test: Callable[[RecordReader], int | None]
) -> tuple[int | None, RecordPosition]:
    """Return the verdict on the first record, from ``chunk`` on and before ``high``, that has one."""
    reader.seek(RecordPosition(chunk.begin, 0))
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
    less: Chunk | None,
    best: tuple[RecordPosition, int] | None,
    judged: bool,
) -> int | None:
    """Look through the chunk that begins with less: the first record wanted may be in it. Stand where it ends."""
    if less is not None:
        reader.seek(RecordPosition(less.begin, 0))
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
