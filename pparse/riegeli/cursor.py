"""`ChunkCursor`: a position at a record, moved from chunk to chunk and past damage. Base of `RecordReader`."""

from __future__ import annotations

from pparse.errors import EndOfDataError, LimitError, PparseError
from pparse.riegeli.chunks import Chunk, ChunkData, ChunkError, ChunkReader
from pparse.riegeli.errors import ClosedRecordsError, InvalidArgumentError, RiegeliError, UnimplementedError
from pparse.riegeli.layout import METADATA, PADDING, SIGNATURE, SIMPLE, TRANSPOSED
from pparse.riegeli.positions import RecordPosition, SkippedRegion
from pparse.riegeli.records import check_room, decoding_weight
from pparse.riegeli.simple import SimpleRecords, decode_simple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pparse.budget import MemoryBudget
    from pparse.data.scratch import Scratch
    from pparse.limits import Limits
    from pparse.riegeli.projection import FieldProjection
    from pparse.riegeli.source import Source

    Recovery = Callable[[SkippedRegion], object]


class ChunkCursor:
    """A position in a file, by chunk and record.

    ``_pos`` is where the next chunk begins. Inside a chunk, ``_chunk`` is that chunk, ``_records`` its ``_count``
    records, and ``_index`` the next of them.
    """

    def __init__(
        self,
        source: Source,
        *,
        recovery: Recovery | None,
        salvage: bool,
        verify: str,
        budget: MemoryBudget,
        limits: Limits,
        scratch: Scratch | None,
    ) -> None:
        self._source = source
        self._chunks = ChunkReader(source)
        self._recovery = recovery
        self._salvage = salvage
        self._verify = verify
        self._budget = budget
        self._limits = limits
        self._scratch = scratch
        self._projection: FieldProjection | None = None
        self._pos = source.begin
        self._chunk: Chunk | None = None
        self._records: list[bytes] | SimpleRecords | None = None
        self._verified: bool | None = None
        self._index = 0
        self._count = 0
        self._last: RecordPosition | None = None
        self._error: PparseError | None = None
        self._truncated: int | None = None  # where an incomplete chunk begins
        self._stopped = False
        self._sought = False  # to a position from which no record was read yet
        self._held = budget.charge(0, "a chunk and its records")
        self.closed = False
        self.healed: list[SkippedRegion] = []

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
                    if not self._source.grow():
                        return self._salvage_tail()
                    self._chunks.forget_block()
            except ChunkError as error:
                self._fail(error)
                if self._count:
                    return True
        return False

    def _next_or_here(self) -> bool:
        """Stand at a record: the current one, or else the next. False at the end."""
        return self._index < self._count or self._next_chunk()

    def _pull(self) -> Chunk | None:
        """Read the chunk header at the position. None at the end of the file; note where an incomplete chunk begins."""
        chunk = self._chunks.header(self._pos)
        self._truncated = None
        if chunk is None:
            size = self._source.known_size()
            if (size is None and self._chunks.get(self._pos, 1)) or (size is not None and size > self._pos):
                self._truncated = self._pos
        return chunk

    def _enter(self, chunk: Chunk, *, lazily: bool = False) -> bool | None:
        """Read a chunk; say whether it has records, None if the file ends inside it. Raise `ChunkError`."""
        chunk_type = chunk.header.chunk_type
        self._verified = None
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
            raise ChunkError(error, chunk.begin, chunk.end, have=True, chunk=chunk) from error

    def _data_of(self, chunk: Chunk) -> bytes | memoryview | None:
        """Return a chunk's data, checked; None if the file ends inside it, which is noted."""
        verify = self._verify != "headers" or chunk.header.chunk_type == SIGNATURE
        data = self._chunks.data(chunk, verify=verify)
        if data is None:
            self._truncated = chunk.begin
            return None
        self._verified = True if verify else None
        return data

    def _enter_large(self, chunk: Chunk) -> bool | None:
        """Open a chunk without holding it, as `_enter`. Its hash is checked only with ``verify="all"``."""
        if self._verify == "all":
            whole = self._chunks.verify(chunk)
            self._verified = True
        else:
            whole = self._chunks.has_padding(chunk)
        if not whole:
            self._truncated = chunk.begin
            return None
        if chunk.header.chunk_type != SIMPLE:
            check_empty(chunk)
            self._pos = chunk.end
            return False
        self._set_lazily(chunk)
        return self._count > 0

    def _set_lazily(self, chunk: Chunk) -> None:
        """Stand at the first record of a simple chunk that is not held in memory. Raise `ChunkError`."""
        records = self._open_simple(chunk)
        if records.error is not None:
            error = records.error
            bad = error if isinstance(error, RiegeliError) else InvalidArgumentError(error.reason)
            raise ChunkError(bad, chunk.begin, chunk.end, have=True, chunk=chunk)
        self._set(chunk, records, records.count)

    def _open_simple(self, chunk: Chunk) -> SimpleRecords:
        try:
            return SimpleRecords(
                ChunkData(self._source, chunk),
                chunk.header,
                budget=self._budget,
                limits=self._limits,
                scratch=self._scratch,
            )
        except (InvalidArgumentError, UnimplementedError, EndOfDataError) as error:
            bad = error if isinstance(error, RiegeliError) else InvalidArgumentError(error.reason)
            raise ChunkError(bad, chunk.begin, chunk.end, have=True, chunk=chunk) from error

    def _take(self, chunk: Chunk, data: bytes | memoryview) -> None:
        """Decode a chunk and stand at its first record. Raise `ChunkError` if the chunk is invalid."""
        check_empty(chunk)
        try:
            records = self._decode(chunk, data)
        except (InvalidArgumentError, UnimplementedError) as error:
            raise ChunkError(error, chunk.begin, chunk.end, have=True, chunk=chunk) from error
        if records is None:
            self._pos = chunk.end
        else:
            self._set(chunk, records, len(records))

    def _decode(self, chunk: Chunk, data: bytes | memoryview) -> list[bytes] | None:
        """Return the records of a chunk; None if chunks of its type have none."""
        header = chunk.header
        if header.chunk_type == SIMPLE:
            return decode_simple(data, header)
        if header.chunk_type == TRANSPOSED:
            from pparse.riegeli.transposed import decode_transposed

            return decode_transposed(data, header.num_records, header.decoded_data_size, self._projection)
        return None

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
            region = SkippedRegion(error.begin, outcome.healed.end, error.error.reason)
            try:
                self._verified = True
                self._leave(outcome.healed.begin)
                self._take_proven(outcome.healed, outcome.data)
                self._note_healed(region)
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
                bad = InvalidArgumentError(error.reason, offset=chunk.begin)
                raise ChunkError(bad, chunk.begin, chunk.end, have=True, chunk=chunk) from error
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

    def _salvage_tail(self) -> bool:
        """Stand at the first record of a last chunk that lacks only its padding; False if there is none."""
        if self._recovery is None or not self._salvage or self._truncated is None:
            return False
        from pparse.riegeli.salvage import unpadded

        found = unpadded(self._chunks, self._truncated)
        if found is None:
            return False
        chunk, data = found
        try:
            self._take_proven(chunk, data)
        except ChunkError:
            return False
        self._verified = True
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


def _weight(chunk: Chunk) -> int:
    """Return about how much memory a chunk and its records take, in bytes."""
    header = chunk.header
    decoded = header.decoded_data_size if header.chunk_type in (SIMPLE, TRANSPOSED) else 0
    return header.data_size + decoded + 64 * header.num_records


def check_empty(chunk: Chunk) -> None:
    """Check that a chunk of a type without records has none. Raise `ChunkError` if it is invalid or of unknown type."""
    header, reason = chunk.header, ""
    if header.chunk_type in (SIMPLE, TRANSPOSED):
        return
    if header.num_records:
        if header.chunk_type not in (SIGNATURE, PADDING, METADATA):
            unknown = UnimplementedError(f"unknown chunk type {header.chunk_type}", offset=chunk.begin)
            raise ChunkError(unknown, chunk.begin, chunk.end, have=True, chunk=chunk)
        reason = f"the {header.type_name} chunk says that it has records"
    elif header.chunk_type == SIGNATURE and header.data_size:
        reason = "the signature chunk has data"
    elif header.chunk_type in (SIGNATURE, PADDING) and header.decoded_data_size:
        reason = f"the {header.type_name} chunk says that it has decoded data"
    if reason:
        error = InvalidArgumentError(f"invalid Riegeli/records file: {reason}", offset=chunk.begin)
        raise ChunkError(error, chunk.begin, chunk.end, have=True, chunk=chunk)
