"""`RecordReader`: reads records from a Riegeli/records file, with the names and behaviour of the reference's bindings.

Additions to the reference: sources of any kind, `RecordReader.open_record` (a record as a `Range` that is read on
demand), ``verify``, ``budget``, and a recovery that saves more (see `pparse.riegeli.salvage`).
"""

from __future__ import annotations

from functools import partial

from pparse.compressed.env import DecodeEnv
from pparse.data.base import BytesData
from pparse.errors import EndOfDataError, LimitError, PparseError
from pparse.limits import MemoryBudget
from pparse.riegeli.chunks import (
    BLOCK_HEADER_SIZE,
    METADATA,
    SIGNATURE,
    SIMPLE,
    TRANSPOSED,
    Chunk,
    ChunkData,
    ChunkError,
    ChunkReader,
    check_empty,
)
from pparse.riegeli.errors import (
    ClosedRecordsError,
    FailedPreconditionError,
    InvalidArgumentError,
    RiegeliError,
    UnimplementedError,
)
from pparse.riegeli.records import (
    RecordPosition,
    SimpleRecords,
    SkippedRegion,
    check_room,
    decode_simple,
    decoding_weight,
)
from pparse.riegeli.source import Closable, Source
from pparse.riegeli.verdicts import VERIFY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Self

    from pparse.data.base import Range
    from pparse.data.scratch import Scratch
    from pparse.limits import Limits
    from pparse.riegeli.source import Sourcelike
    from pparse.riegeli.transposed import FieldProjection

    Recovery = Callable[[SkippedRegion], object]
    Test = Callable[["RecordReader"], int | None]
    Best = tuple[RecordPosition, int]


class RecordReader(Closable):
    """Reads the records of a Riegeli file, in order or by position.

    ``src`` is a path, bytes, a `Data`, a `Reader`, or a binary file object, which is read from its current position and
    closed with the reader if ``owns_src``. A file object that is not seekable is only read forwards, and begins at
    offset 0; with ``assumed_pos``, any file object is only read forwards, and begins there. Exceptions of the file
    object are passed on unchanged. ``field_projection``: paths of field numbers to keep (`set_field_projection`).
    ``recovery(region)`` is called for each skipped region; without it the first damage ends reading with an error. With
    ``salvage`` (the default), recovery saves more than the reference: whole chunks next to damage, and a last chunk
    without its padding.

    ``verify``: "headers" checks hashes of headers only; "touched" also those of chunks that are read as a whole (not of
    a chunk above a quarter of the budget, whose records are streamed); "all" checks every chunk before any of its
    records is returned. `verified` tells what was checked for the last record. ``budget`` limits the memory held, in
    bytes.
    """

    def __init__(
        self,
        src: Sourcelike,
        *,
        owns_src: bool = True,
        assumed_pos: int | None = None,
        min_buffer_size: int = 4096,
        max_buffer_size: int = 65536,
        buffer_size: int | None = None,
        field_projection: Iterable[Iterable[int]] | None = None,
        recovery: Recovery | None = None,
        salvage: bool = True,
        verify: str = "touched",
        budget: int | str | MemoryBudget = "64MiB",
        limits: Limits | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        if verify not in VERIFY:
            raise ValueError(f"verify must be one of {', '.join(VERIFY)}, not {verify!r}")
        self._source = Source(src, owns=owns_src, assumed_pos=assumed_pos)
        self._chunks = ChunkReader(self._source)
        self._recovery = recovery
        self._salvage = salvage
        self._verify = verify
        self._budget = budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget)
        self._env = DecodeEnv(self._budget, limits, scratch)
        # `_pos` is where the next chunk begins. Inside a chunk, `_chunk` is that chunk, `_records` its `_count`
        # records, and `_index` the next of them.
        self._pos = self._source.begin
        self._chunk: Chunk | None = None
        self._records: list[bytes] | SimpleRecords | None = None
        self._index = 0
        self._count = 0
        self._last: RecordPosition | None = None
        self._error: PparseError | None = None
        self._truncated: int | None = None  # where an incomplete chunk begins
        self._stopped = False
        self._sought = False  # to a position from which no record was read yet
        self._held = self._budget.charge(0, "a chunk and its records")
        self._at_close: RecordPosition | None = None
        self.verified: bool | None = None
        """True if the hash of the chunk of the last record was checked, None if not."""
        self.closed = False
        self.enters_cut = False
        """Whether whole chunks in one that is cut are read, as if bytes had gone from it: for who can prove it."""
        self.healed: list[SkippedRegion] = []
        """The chunks that were damaged but returned whole."""
        self.set_field_projection(field_projection)

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def src(self) -> Sourcelike:
        """The source as it was given."""
        return self._source.src

    @property
    def supports_random_access(self) -> bool:
        """Whether the source can seek and its size is known."""
        return self._source.random_access

    @property
    def pos(self) -> RecordPosition:
        """Position of the next record, or of the end of the file."""
        if self._chunk is not None and self._index < self._count:
            return RecordPosition(self._chunk.begin, self._index)
        return self._at_close or RecordPosition(self._pos, 0)

    @property
    def last_pos(self) -> RecordPosition:
        """Position of the last record read. Raise `FailedPreconditionError` before the first."""
        if self._last is not None:
            return self._last
        if self._chunk is None or not self._index or self._sought:
            raise FailedPreconditionError("no record was read")
        return RecordPosition(self._chunk.begin, self._index - 1)

    def size(self) -> int:
        """Return the size of the file in bytes. Raise `UnimplementedError` without random access."""
        self._check_random_access()
        return self._source.size()

    def set_field_projection(self, field_projection: Iterable[Iterable[int]] | None) -> None:
        """Keep only these fields of records in transposed chunks (None: all), from the current record on."""
        self._projection: FieldProjection | None = None
        if field_projection is not None:
            from pparse.riegeli.transposed import FieldProjection

            self._projection = FieldProjection(field_projection)
        chunk, index, count = self._chunk, self._index, self._count
        if chunk is not None and chunk.header.chunk_type == TRANSPOSED:  # decoded with the fields of before
            self._leave(chunk.begin if index < count else chunk.end)
            if index < count:
                last = self._last
                self._enter_at(chunk.begin, index)
                self._last = last

    def check_file_format(self) -> bool:
        """Return whether this is a Riegeli file; False if it is too short to tell.

        Raise `InvalidArgumentError` if it is something else. The recovery is never called.
        """
        self._check_open()
        try:
            return self._chunks.header(self._pos) is not None
        except ChunkError as error:
            error.error.source = self._source.data.name
            raise error.error from None

    # -- records -----------------------------------------------------------------------------------------------------

    def read_record(self) -> bytes | None:
        """Return the next record, or None at the end of the file. If the file grows, later calls return more."""
        if self._error is not None:
            raise self._error
        self._sought = self._stopped = False
        while True:
            index = self._index
            if index < self._count:
                self._last = None
                records = self._records
                if type(records) is list:
                    self._index = index + 1
                    return records[index]
                found = self._read_lazily(index)
                if found is not None:
                    return found
            elif not self._next_chunk():
                return None

    def _read_lazily(self, index: int) -> bytes | None:
        """Return a record of a large chunk; None if the chunk turns out to be damaged and was skipped."""
        records, chunk = self._records, self._chunk
        try:
            record: bytes = records.read(index)  # type: ignore[union-attr]
            self._index = index + 1
            return record
        except (EndOfDataError, InvalidArgumentError) as error:
            bad = error if isinstance(error, InvalidArgumentError) else InvalidArgumentError(str(error))
            assert chunk is not None  # noqa: S101 -- it is where the records came from
            self._fail(ChunkError.of(chunk, bad), begin=chunk.begin + index)
            return None

    def open_record(self) -> Range | None:
        """Return the next record as a `Range`, whose bytes are read on demand; None at the end of the file.

        A slice of a record in an uncompressed chunk costs only that slice; of a compressed record, the stream is
        decompressed up to the slice. Bytes that are not read are not checked: `verified` is None unless the whole chunk
        was read anyway, or with ``verify="all"``. The range is valid while the reader is open.
        """
        self._check_usable()
        self._sought = self._stopped = False
        while self._index >= self._count:
            if not self._next_chunk(lazily=True):
                return None
        self._last = None
        index = self._index
        self._index = index + 1
        if isinstance(self._records, SimpleRecords):
            return self._records.range(index)
        record = self._records[index]  # type: ignore[index]
        return BytesData(record, f"record {self.last_pos}").range(0, len(record))

    def read_records(self) -> Iterator[bytes]:
        """Return an iterator over the records from here to the end.

        The iterator can be continued: after an error that leaves the reader usable it yields the next record, and after
        the end it yields records that were appended since.
        """
        return _Iteration(self.read_record)

    __iter__ = read_records

    def read_message(self, message_type: Any) -> Any:
        """Return the next record, parsed as ``message_type``; None at the end.

        A record that does not parse raises protobuf's ``DecodeError``; the next call returns the next record. With a
        recovery, only that record is skipped.
        """
        from google.protobuf.message import DecodeError

        while (record := self.read_record()) is not None:
            try:
                return message_type.FromString(record)
            except DecodeError as error:
                if not self._report(SkippedRegion(self.last_pos.numeric, self.pos.numeric, str(error))):
                    raise
            if self._stopped:
                return None
        return None

    def read_messages(self, message_type: Any) -> Iterator[Any]:
        """Return an iterator over the records from here to the end, parsed as ``message_type``, as `read_records`."""
        return _Iteration(partial(self.read_message, message_type))

    # -- metadata ----------------------------------------------------------------------------------------------------

    def read_serialized_metadata(self) -> bytes | None:
        """Return the serialized metadata of the file, ``b""`` if it has none, None at the end of the file.

        Raise `FailedPreconditionError` if the reader is not at the beginning of the file.
        """
        return self._read_metadata()[0]

    def _read_metadata(self) -> tuple[bytes | None, int]:
        """Return the metadata, and where their chunk begins."""
        self._check_usable()
        self._stopped = False
        begin = self._pos
        if begin != self._source.begin or self._chunk is not None:
            raise FailedPreconditionError("metadata can only be read at the beginning of the file")
        try:
            signature = self._pull()
            if signature is None:
                return None, begin
            begin = self._pos = signature.end
            chunk = self._chunks.header(begin)
            if chunk is None or chunk.header.chunk_type != METADATA:
                return (b"" if chunk is not None else None), begin
            self._check_room(chunk)
            data = self._data_of(chunk)
            if data is None:
                return None, begin
            if chunk.header.num_records:
                reason = "the metadata chunk says that it has records"
                raise ChunkError.of(chunk, InvalidArgumentError(reason, offset=chunk.begin))
            from pparse.riegeli.transposed import decode_transposed

            try:
                found = decode_transposed(data, 1, chunk.header.decoded_data_size)[0]
            except RiegeliError as error:
                raise ChunkError.of(chunk, error) from error
            self._pos = chunk.end
            return found, begin
        except ChunkError as error:
            self._fail(error)
            return (None if self._stopped else b""), begin

    def read_metadata(self) -> Any:
        """Return the file's metadata as a ``RecordsMetadata`` message; None at the end of the file.

        Raise `FailedPreconditionError` if the reader is not at the beginning of the file. Metadata that do not parse
        raise protobuf's ``DecodeError``, and the next call may read records; with a recovery they are skipped, and an
        empty message is returned (None if the recovery raised ``StopIteration``).
        """
        from google.protobuf.message import DecodeError

        from pparse.riegeli.metadata import RecordsMetadata

        serialized, begin = self._read_metadata()
        if serialized is None:
            return None
        try:
            return RecordsMetadata.FromString(serialized)
        except DecodeError as error:
            if not self._report(SkippedRegion(begin, self._pos, str(error))):
                raise
        return None if self._stopped else RecordsMetadata()

    # -- positions ---------------------------------------------------------------------------------------------------

    def seek(self, pos: RecordPosition) -> None:
        """Go to a position. An index beyond the records of the chunk means the next chunk.

        Raise `UnimplementedError` if the position is before the current chunk and the source has no random access.
        """
        if not isinstance(pos, RecordPosition):
            raise TypeError(f"seek takes a RecordPosition, not {pos!r}; seek_numeric takes a number")
        here = self._chunk is not None and pos.chunk_begin == self._chunk.begin
        self._check_seekable(forwards=here or pos.chunk_begin >= self._pos)
        self._sought = True
        if here:
            self._index = min(pos.record_index, self._count)
            self._last = None
            return
        beyond = not self._source.reaches(pos.chunk_begin)
        self._leave(pos.chunk_begin)
        self._last = None
        if beyond:
            self._fail_beyond(pos.chunk_begin)
        elif pos.record_index:
            self._enter_at(pos.chunk_begin, pos.record_index)

    def _fail_beyond(self, pos: int) -> None:
        size = self._source.end
        error = InvalidArgumentError(f"position {pos} exceeds the file's size of {size}", offset=size)
        self._fail(ChunkError(error, size, pos))

    def _enter_at(self, begin: int, index: int) -> None:
        """Read the chunk at ``begin`` and stand at record ``index`` of it, or at its end."""
        self._pos = begin
        try:
            chunk = self._pull()
            if chunk is None or self._enter(chunk) is None:
                self._salvage_tail()
        except ChunkError as error:
            self._fail(error)
        if self._chunk is not None and self._chunk.begin == begin:  # as before, or healed
            self._index = min(index, self._count)

    def seek_numeric(self, pos: int) -> None:
        """Go to the record at numeric position ``pos``, or else to the first chunk that begins there or after.

        Raise `InvalidArgumentError` beyond the end of the file (with a recovery: go to the end), and
        `UnimplementedError` if ``pos`` is before the current chunk and the source has no random access.
        """
        chunk = self._chunk
        self._check_seekable(forwards=pos >= (self._pos if chunk is None else chunk.begin))
        self._sought = True
        if chunk is not None and chunk.begin <= pos < chunk.begin + self._count:
            self.seek(RecordPosition(chunk.begin, pos - chunk.begin))
            return
        if not self._source.random_access:
            self._walk_to(pos)
            return
        size = self._source.size()
        if pos > size:
            self._leave(self._pos)
            self._fail_beyond(pos)
            return
        found, end = self.chunk_at(pos)
        self._leave(end)
        self._last = None
        if found is None or pos == found.begin:
            return
        if pos < size and found.holds(pos):  # at the end of the file, the chunk's padding should continue
            self._enter_at(found.begin, pos - found.begin)
        else:
            self._pos = found.end

    def seek_back(self) -> bool:
        """Go to the record before the current one; return False, at the beginning, if there is none."""
        self._check_seekable()
        self._sought = True
        if self._chunk is not None and self._index:
            self._index -= 1
            self._last = None
            return True
        pos = self._chunk.begin if self._chunk is not None else self._pos
        size = self._source.size()
        pos = min(pos, size)
        while pos > 0:
            chunk = self._last_with_records(pos)
            if chunk is None:
                break
            self._leave(chunk.begin)
            self._enter_at(chunk.begin, chunk.header.num_records - 1)
            if self._chunk is not None and self._count and self._chunk.begin == chunk.begin:
                self._last = None
                return True
            pos = chunk.begin  # it was damaged and skipped: search further back
        self._leave(0)
        self._last = None
        try:
            first = self._chunks.header(0)
        except ChunkError:
            return False
        if first is not None:
            self._pos = first.end
        return False

    def search(self, test: Test) -> int | None:
        """Search a sorted file: ``test(reader)`` reads the current record and returns <0, 0, >0, or None.

        Less than zero means that the record comes before what is wanted; None, that the record cannot be judged. The
        reader ends at the first record with 0 and returns 0; or else at the first with >0, and returns 1; or -1 if all
        are less; or None if no record can be judged. ``StopIteration`` from ``test`` ends the search, which returns
        None.
        """
        self._check_seekable()
        try:
            return self._search(test)
        except StopIteration:
            return None

    def search_for_record(self, test: Callable[[bytes], int | None]) -> int | None:
        """Search as `search` does, by the bytes of records."""
        return self.search(lambda reader: None if (record := reader.read_record()) is None else test(record))

    def search_for_message(self, message_type: Any, test: Callable[[Any], int | None]) -> int | None:
        """Search as `search` does, by records parsed as ``message_type``."""
        return self.search(
            lambda reader: None if (message := reader.read_message(message_type)) is None else test(message)
        )

    def _check_seekable(self, *, forwards: bool = False) -> None:
        self._check_usable()
        if not forwards:
            self._check_random_access()
        self._stopped = False

    def _check_random_access(self) -> None:
        self._check_open()
        if not self._source.random_access:
            raise UnimplementedError("the source is only read forwards: it cannot seek back, and its size is not known")

    # -- the way to a position: a block header says where the chunk that it interrupts begins and ends; from there on,
    # chunk headers lead to the next chunk. So it costs one small read, and one per chunk between the first of the block
    # and the one wanted.

    def _walk_to(self, pos: int) -> None:
        """Go to numeric position ``pos``, as `seek_numeric`, chunk by chunk from the current one."""
        self._leave(self._pos)
        self._last = None
        while self._pos < pos and not self._stopped:
            try:
                chunk = self._pull()
            except ChunkError as error:
                self._fail(error)
                continue
            if chunk is not None and chunk.holds(pos):
                self._enter_at(chunk.begin, pos - chunk.begin)
                return
            if chunk is None or not self._source.reaches(chunk.end):
                if not self._source.reaches(pos):
                    self._fail_beyond(pos)
                return
            self._pos = chunk.end
            self._source.forget(chunk.end)

    def chunk_at(self, pos: int) -> tuple[Chunk | None, int]:
        """Return the chunk that occupies offset ``pos``, and where it begins.

        At the end of the file the chunk is None; the offset is then where the incomplete chunk begins, or the end. With
        a recovery, damage on the way is skipped and reported; without one it raises.
        """
        end = start = self._start_before(pos)
        for chunk in self._hop(start, pos + 1):
            if chunk.begin > pos:
                return None, chunk.begin  # what lies at ``pos`` was skipped
            if pos < chunk.end and self._is_there(chunk):
                return chunk, chunk.begin
            end = chunk.end if self._is_there(chunk) else chunk.begin
        return None, max(end, self._pos) if end < pos and self._recovery is not None else end

    def _is_there(self, chunk: Chunk) -> bool:
        """Say whether a chunk is whole, or lacks only its padding and can be saved."""
        size = self._source.size()
        return chunk.end <= size or (self._recovery is not None and self._salvage and chunk.data_end <= size)

    def _hop(self, start: int, stop: int) -> Iterator[Chunk]:
        """Yield the chunks that begin in ``[start, stop)``: the first one even after damage, and one that is cut.

        With a recovery, damage is skipped and reported; without one it raises.
        """
        chunks, before = self._chunks, None
        saving, size = self._recovery is not None, self._source.size()
        while start < stop and not self._stopped:
            try:
                chunk = chunks.header(start)
                if chunk is None:
                    return
                if saving and chunk.end >= stop and chunk.end < size and not self._is_chunk(chunk.end):
                    damage = chunks.damage_of(chunk)
                    if damage is not None:
                        raise damage
            except ChunkError as error:
                # No chunk begins where the previous one ends: perhaps the previous one is damaged, and shorter.
                damage = chunks.damage_of(before) if saving else None
                before, again = None, error.begin
                if damage is not None:
                    again = damage.begin
                self._fail(damage or error)
                chunk = self._chunk  # healed, and entered
                if chunk is None:
                    start = self._pos if self._pos > again else start + 1
                    continue
                if chunk.end <= start and chunk.begin != start:
                    start = max(start, self._pos) + (self._pos <= start)
                    continue
            yield chunk
            before, start = chunk, chunk.end

    def _start_before(self, pos: int) -> int:
        """Return a chunk boundary at or before ``pos``, by the header of its block, or of an earlier one if damaged."""
        chunks, at = self._chunks, pos
        size = self._source.size()
        while at >= 0:
            first, layout = chunks.grid_at(at)
            block = layout.block_of(at)
            if block < first:
                return first  # a grid begins at a chunk
            at = block - 1
            if block and size - block < BLOCK_HEADER_SIZE:
                continue  # the last block header is cut: use the one before
            try:
                start = max(chunks.start_for(block, pos), first)
            except ChunkError as error:
                if self._recovery is None:
                    self._fail(error)
                continue
            if self._recovery is not None and block and not self._is_chunk(start):
                continue  # the block header is wrong, or the chunk that it names is damaged
            return start
        return 0

    def _is_chunk(self, pos: int) -> bool:
        try:
            return self._chunks.header(pos) is not None
        except ChunkError:
            return False

    def _last_with_records(self, pos: int) -> Chunk | None:
        """Return the last chunk with records that begins before ``pos`` and is not cut by the end of the file."""
        while pos > 0:
            start = self._start_before(pos - 1)
            found = None
            for chunk in self._hop(start, pos):
                if chunk.begin < pos and chunk.header.num_records and self._is_there(chunk):
                    found = chunk
            if found is not None:
                return found
            pos = min(start, pos - 1)
        return None

    def _search(self, test: Test) -> int | None:
        low, high = 0, self._source.size()
        less: int | None = None  # begin of the last chunk known to begin with a record that comes before
        best: Best | None = None  # the first position known to be equal or greater
        while low < high:
            middle = (low + high) // 2
            chunk, begin = self.chunk_at(middle)
            # If the middle is cut or damaged, the next chunk after it is judged instead.
            after = middle if chunk is None else chunk.end
            if chunk is not None and begin < low:
                low = max(after, low + 1)
                continue
            if chunk is None and begin >= high:
                high = middle
                continue
            verdict, pos = self._judge(begin, high, test)
            upto = middle if chunk is None else begin
            if verdict is None:
                if chunk is not None and begin <= low:
                    low = max(pos.chunk_begin, after)
                else:
                    high = upto
            elif verdict < 0:
                less = pos.chunk_begin
                low = max(after, less + 1)
            else:
                best, high = (pos, verdict), upto
        return self._finish(test, less, best)

    def _records_from(self, begin: int, stop: RecordPosition | None) -> Iterator[RecordPosition]:
        """Stand at each record from the chunk at ``begin`` on, before ``stop``; who judges it may read it, or not."""
        self.seek(RecordPosition(begin, 0))
        while self._index < self._count or self._next_chunk():
            pos = self.pos
            if stop is not None and pos >= stop:
                return
            yield pos
            if self.pos == pos:
                self.seek(RecordPosition(pos.chunk_begin, pos.record_index + 1))

    def _judge(self, begin: int, high: int, test: Test) -> tuple[int | None, RecordPosition]:
        """Return the first verdict on a record from the chunk at ``begin`` on and before ``high``, and its position."""
        for pos in self._records_from(begin, RecordPosition(high)):
            verdict = test(self)
            if verdict is not None:
                return verdict, pos
        return None, self.pos

    def _finish(self, test: Test, less: int | None, best: Best | None) -> int | None:
        """Search the chunk that begins with less: it may hold the first record wanted. Go to the result."""
        if less is not None:
            for pos in self._records_from(less, best[0] if best is not None else None):
                verdict = test(self)
                if verdict is not None and verdict >= 0:
                    self.seek(pos)
                    return 1 if verdict else 0
        if best is not None:
            self.seek(best[0])
            return 1 if best[1] else 0
        return None if less is None else -1

    # -- from chunk to chunk -----------------------------------------------------------------------------------------

    def _next_chunk(self, lazily: bool = False) -> bool:
        """Go to the next chunk with records; False at the end. Without a recovery, raise what is wrong."""
        self._check_usable()
        while not self._stopped:
            if self._chunk is not None:
                self._leave(self._chunk.end)
            if not self._source.random_access:
                self._source.forget(self._pos)
            try:
                chunk = self._pull()
                entered = None if chunk is None else self._enter(chunk, lazily=lazily)
                if entered:
                    return True
                if entered is None:
                    if self._source.grow():
                        self._chunks.forget_block()
                    elif chunk is None or not self._skip_cut(chunk):
                        return self._salvage_tail()
            except ChunkError as error:
                self._fail(error)
                if self._count:
                    return True
        return False

    def _pull(self) -> Chunk | None:
        """Read the chunk header at the position. None at the end of the file; note where an incomplete chunk begins."""
        chunk = self._chunks.header(self._pos)
        self._truncated = self._pos if chunk is None and self._source.reaches(self._pos + 1) else None
        return chunk

    def _enter(self, chunk: Chunk, *, lazily: bool = False) -> bool | None:
        """Read a chunk; say whether it has records, None if the file ends inside it. Raise `ChunkError`."""
        chunk_type = chunk.header.chunk_type
        self.verified = None
        weight = _weight(chunk)
        large = weight > self._budget.limit // 4
        if (large and chunk_type != TRANSPOSED) or (lazily and chunk_type == SIMPLE):
            return self._enter_large(chunk)
        if large:  # it cannot be decoded piece by piece
            size = self._source.known_size()
            if size is not None and size < chunk.end:
                self._truncated = chunk.begin
                return None
            self._held.resize(0)  # the charge of the chunk before
            self._check_room(chunk)
            weight = decoding_weight(chunk)
        if weight > self._held.amount:
            self._held.resize(weight)
        data = self._data_of(chunk)
        if data is None:
            return None
        self._take(chunk, data)
        return self._count > 0

    def _check_room(self, chunk: Chunk) -> None:
        """Raise `LimitError` for a chunk beyond the budget; `ChunkError` if the chunk itself is damaged."""
        try:
            if self._verify != "headers" and not self._budget.fits(decoding_weight(chunk)):
                self._chunks.verify(chunk)  # a wrong hash means damage, whatever the size
            check_room(chunk, ChunkData(self._source, chunk), self._budget)
        except (InvalidArgumentError, UnimplementedError) as error:
            raise ChunkError.of(chunk, error) from error

    def _data_of(self, chunk: Chunk) -> bytes | memoryview | None:
        """Return a chunk's data, checked; None if the file ends inside it, which is noted."""
        verify = self._verify != "headers" or chunk.header.chunk_type == SIGNATURE
        data = self._chunks.data(chunk, verify=verify)
        if data is None:
            self._truncated = chunk.begin
            return None
        self.verified = True if verify else None
        return data

    def _enter_large(self, chunk: Chunk) -> bool | None:
        """Open a chunk without holding it, as `_enter`. Its hash is checked only with ``verify="all"``."""
        if self._verify == "all":
            whole = self._chunks.verify(chunk)
            self.verified = True
        else:
            whole = self._chunks.has_padding(chunk)
        if not whole:
            self._truncated = chunk.begin
            return None
        if chunk.header.chunk_type == SIMPLE:
            self._set_lazily(chunk)
        else:
            self._take(chunk, b"")
        return self._count > 0

    def _set_lazily(self, chunk: Chunk) -> None:
        """Stand at the first record of a simple chunk that is not held in memory. Raise `ChunkError`."""
        try:
            records = SimpleRecords(ChunkData(self._source, chunk), chunk.header, self._env)
        except (InvalidArgumentError, UnimplementedError, EndOfDataError) as error:
            raise ChunkError.of(chunk, error) from error
        if records.error is not None:
            raise ChunkError.of(chunk, records.error)
        self._set(chunk, records, records.count)

    def _take(self, chunk: Chunk, data: bytes | memoryview) -> None:
        """Decode a chunk and stand at its first record. Raise `ChunkError` if the chunk is invalid."""
        check_empty(chunk)
        header = chunk.header
        try:
            if header.chunk_type == SIMPLE:
                records = decode_simple(data, header)
            elif header.chunk_type == TRANSPOSED:
                from pparse.riegeli.transposed import decode_transposed

                records = decode_transposed(data, header.num_records, header.decoded_data_size, self._projection)
            else:  # chunks of other types have no records
                self._pos = chunk.end
                return
        except (InvalidArgumentError, UnimplementedError) as error:
            raise ChunkError.of(chunk, error) from error
        self._set(chunk, records, len(records))

    def _set(self, chunk: Chunk, records: list[bytes] | SimpleRecords, count: int) -> None:
        self._chunk, self._records, self._count, self._index = chunk, records, count, 0
        self._pos = chunk.end

    def _leave(self, pos: int) -> None:
        """Leave the chunk and stand at ``pos``; remember which record was read last."""
        if self._chunk is not None and self._index and self._last is None:
            self._last = RecordPosition(self._chunk.begin, self._index - 1)
        # A range that open_record() returned keeps its data; only the reader releases them.
        self._chunk, self._records, self._count, self._index = None, None, 0, 0
        self._pos = pos

    # -- errors and recovery -----------------------------------------------------------------------------------------

    def _fail(self, error: ChunkError, *, begin: int | None = None) -> None:
        """Skip what is damaged and tell the recovery. Without a recovery, raise the error, now and at later calls."""
        if self._recovery is None:
            self._leave(error.begin)
            raise self._keep(error.error) from None
        from pparse.riegeli.salvage import resume

        outcome = resume(self._chunks, error, salvage=self._salvage)
        if outcome.healed is not None and outcome.data is not None and begin is None:
            try:
                self.verified = True
                self._leave(outcome.healed.begin)
                self._take_proven(outcome.healed, outcome.data)
                self._note_healed(SkippedRegion(error.begin, outcome.healed.end, error.error.reason))
                if outcome.layout is not None:
                    self._chunks.add_grid(outcome.healed.begin, outcome.layout)
                return
            except ChunkError:
                outcome = resume(self._chunks, error, salvage=self._salvage, heal=False)
        self._leave(outcome.pos)
        if outcome.layout is not None:
            self._chunks.add_grid(outcome.pos, outcome.layout)
        first = error.begin if begin is None else begin
        if outcome.end > first:
            self._report(SkippedRegion(first, outcome.end, outcome.message))

    def _take_proven(self, chunk: Chunk, data: bytes) -> None:
        """Stand at the first record of a chunk whose data are known to be right. Raise `ChunkError`."""
        if _weight(chunk) > self._budget.limit // 4:
            if chunk.header.chunk_type == SIMPLE:
                self._set_lazily(chunk)
                return
            try:
                check_room(chunk, ChunkData(self._source, chunk), self._budget)
            except (LimitError, InvalidArgumentError) as error:  # or its damaged header only says so
                raise ChunkError.of(chunk, InvalidArgumentError(error.reason, offset=chunk.begin)) from error
        self._take(chunk, data)

    def _note_healed(self, region: SkippedRegion) -> None:
        if region not in self.healed:
            self.healed.append(region)

    def _report(self, region: SkippedRegion) -> bool:
        """Tell the recovery of a region; False if there is none.

        StopIteration from the recovery ends the current call as the end of the file does. The next call continues after
        the region, as it would in a file that has grown.
        """
        if self._recovery is None:
            return False
        try:
            self._recovery(region)
        except StopIteration:
            self._stopped = True
        return True

    def _keep(self, error: PparseError) -> PparseError:
        """Remember ``error``: every later call raises the same."""
        error.source = error.source or self._source.data.name
        self._error = error
        return error

    def _skip_cut(self, chunk: Chunk) -> bool:
        """Go on with whole chunks in one that is cut; False if there are none, or none are wanted."""
        from pparse.riegeli.salvage import within_cut

        found = within_cut(self._chunks, chunk) if self.enters_cut else None
        if found is None:
            return False
        self._leave(found.pos)
        if found.layout is not None:
            self._chunks.add_grid(found.pos, found.layout)
        self._report(SkippedRegion(chunk.begin, found.pos, found.message))
        return True

    def _salvage_tail(self) -> bool:
        """Stand at the first record of a last chunk that lacks only its padding; False if there is none."""
        if self._recovery is None or not self._salvage or self._truncated is None:
            return False
        chunk = self._chunks.header(self._truncated)
        data = None if chunk is None else self._chunks.sound_data(chunk)
        if chunk is None or data is None:
            return False
        try:
            self._take_proven(chunk, data)
        except ChunkError:
            return False
        self.verified = True
        self._truncated = None
        self._note_healed(SkippedRegion(chunk.data_end, chunk.end, "the padding of the last chunk is cut off"))
        return self._count > 0

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedRecordsError("the reader is closed")

    def _check_usable(self) -> None:
        self._check_open()
        if self._error is not None:
            raise self._error

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the source. Raise the error that stopped reading, or one if the file ends inside a chunk."""
        if self.closed:
            return
        self._at_close = self.pos
        pos = self._pos if self._chunk is None else self._chunk.begin
        self._leave(pos)
        self.closed = True
        self._held.release()
        self._source.close(pos)
        truncated = self._truncated
        if truncated is not None and self._error is None:
            size = self._source.end
            reason = f"truncated Riegeli/records file, incomplete chunk at {truncated} with length {size - truncated}"
            if not self._report(SkippedRegion(truncated, size, reason)):
                self._keep(InvalidArgumentError(reason, offset=truncated))
        if self._error is not None:
            raise self._error

    def __repr__(self) -> str:
        return f"<RecordReader of {self._source.data.name!r} at {self.pos}>"


class _Iteration:
    """Iterator that calls ``read`` until it returns None. (A generator would be finished by the first error.)"""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        item = self._read()
        if item is None:
            raise StopIteration
        return item


def _weight(chunk: Chunk) -> int:
    """Return about how much memory a chunk and its records take, in bytes."""
    header = chunk.header
    decoded = header.decoded_data_size if header.chunk_type in (SIMPLE, TRANSPOSED) else 0
    return int(header.data_size + decoded + 64 * header.num_records)
