"""The records of one chunk of any type. Each can be read by itself."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate

from pparse.data.base import Data
from pparse.data.identity import derived
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, PparseError
from pparse.locking import RLock
from pparse.riegeli.errors import InvalidArgumentError
from pparse.riegeli.layout import METADATA, SIMPLE, TRANSPOSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.data.reader import Range
    from pparse.data.scratch import Scratch
    from pparse.limits import Limits
    from pparse.riegeli.chunks import Chunk, ChunkData
    from pparse.riegeli.projection import FieldProjection
    from pparse.riegeli.source import Source
    from pparse.riegeli.verdicts import Verdicts


_STEP: Final = 256 << 10
# A chunk that declares more than so many times its own bytes is tested before it is believed: it is decoded
# up to this fraction of the budget, which takes so many bytes of memory for each.
_PLAUSIBLE: Final = 64
_TRIAL: Final = 64
_TRIAL_COST: Final = 24


class ChunkRecords:
    """Records that lie one after the other in ``values``, from offset ``values_at`` on.

    `count` is the number of records whose size is known. If the chunk is cut, that is fewer than the chunk has.
    """

    values: Data
    """The decoded records."""
    values_at: int = 0
    """Offset of the first record in `values`."""
    stored = False

    def __init__(self) -> None:
        self.error: PparseError | None = None
        """Why records are missing; None if the chunk is whole."""
        self._ends = array("Q")
        self._extent: int | None = None

    @property
    def count(self) -> int:
        """Number of records whose size is known."""
        return len(self._ends)

    @property
    def total(self) -> int:
        """Bytes of all records whose size is known, together."""
        return self._ends[-1] if self._ends else 0

    def size(self, index: int) -> int:
        """Return the size of a record, in bytes."""
        return self._ends[index] - (self._ends[index - 1] if index else 0)

    def range(self, index: int) -> Range:
        """Return the record as a `Range`, whose bytes are read on demand."""
        start = self.values_at + (self._ends[index - 1] if index else 0)
        return self.values.range(start, self.values_at + self._ends[index])

    def read(self, index: int) -> bytes:
        """Return a record as a whole.

        Raise `EndOfDataError` if the chunk is cut before the end of the record, `InvalidArgumentError` if it is
        damaged before.
        """
        part = self.range(index)
        try:
            chunk = part.data.pread(part.start, len(part)) if len(part) else b""
        except GapError:
            chunk = b""
        if len(chunk) < len(part):
            raise self._why(part.start + len(chunk), len(part), len(chunk))
        return chunk

    def _why(self, at: int, wanted: int, got: int) -> PparseError:
        error = self.values.error
        if isinstance(error, MalformedError):
            return InvalidArgumentError(f"the values are damaged: {error.reason}", wanted=wanted, got=got)
        return EndOfDataError("the chunk ends here", offset=at, wanted=wanted, got=got, source=self.values.name)

    def whole(self) -> int:
        """Return how many records are known to be complete, without decoding."""
        size = self.values.size
        return self.count if size is None else bisect_right(self._ends, size - self.values_at)

    def extent(self) -> int:
        """Return the offset in ``values`` up to which bytes can be decoded; decodes all of them, a block at a time."""
        values = self.values
        end = self._ends[-1] + self.values_at if self._ends else self.values_at
        if values.size is not None and not values.gaps and self.stored:
            return min(end, values.size)
        if self._extent is None:
            at = self.values_at
            try:
                while at < end and (piece := values.pread(at, min(_STEP, end - at))):
                    at += len(piece)
            except GapError:
                pass
            self._extent = at
        return self._extent

    def conclude(self, *, whole: bool) -> None:
        """Decode to the end. Raise `InvalidArgumentError` if the stream of values turns out to be invalid.

        ``whole`` says that all bytes of the chunk are there: a stream without its end is then invalid, too.
        """
        self.values.finish()
        error = self.values.error
        if isinstance(error, MalformedError) or (whole and isinstance(error, EndOfDataError)):
            raise InvalidArgumentError(f"the values are damaged: {error.reason}")

    def close(self) -> None:
        """Release the memory."""
        self.values.close()


class TransposedRecords(ChunkRecords):
    """The records of a transposed chunk, which is decoded as a whole.

    Raise `LimitError` if it does not fit in the budget, `InvalidArgumentError` or `UnimplementedError` if it is
    invalid.
    """

    def __init__(
        self, packed: ChunkData, chunk: Chunk, *, budget: MemoryBudget, projection: FieldProjection | None = None
    ) -> None:
        super().__init__()
        self.values = decoded = _Decoded(packed, chunk, budget, projection)
        self._ends = array("Q", accumulate(map(len, decoded.records())))
        decoded.size = self._ends[-1] if self._ends else 0
        decoded.ends = self._ends


class _Decoded(Data):
    """Decoded records as one Data. They are dropped when others need the memory, and decoded again on demand."""

    ends: array[int]

    def __init__(
        self, packed: ChunkData, chunk: Chunk, budget: MemoryBudget, projection: FieldProjection | None
    ) -> None:
        super().__init__(f"{packed.name} records", None, packed.stats)
        self._packed = packed
        self._chunk = chunk
        self._budget = budget
        self._projection = projection
        self._lock = RLock()
        self._records: list[bytes] | None = None  # the budget may drop them at any time
        self._charge: Charge | None = None

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """That of the chunk, and which fields of its records are kept."""
        kept = None if self._projection is None else repr(self._projection.root)
        return derived("riegeli records", [self._packed.range(0, self._packed.size or 0)], kept)

    def records(self) -> list[bytes]:
        with self._lock:
            records = self._records
            return self._decode() if records is None else records

    def _decode(self) -> list[bytes]:
        from pparse.riegeli.transposed import decode_transposed

        header = self._chunk.header
        check_room(self._chunk, self._packed, self._budget)
        with self._budget.charge(decoding_weight(self._chunk), "decoding a transposed chunk"):
            packed = self._packed.read_exact(0, header.data_size)
            records = decode_transposed(packed, header.num_records, header.decoded_data_size, self._projection)
        size = sum(map(len, records)) + 64 * len(records)
        self._charge = self._budget.charge(size, "the records of a chunk", self._drop)
        self._records = records
        return records

    def _drop(self) -> None:
        self._records = None

    def why_suspect(self, start: int, end: int) -> str | None:
        """Return why the chunk's data are suspect: each record may depend on any byte of them."""
        return self._packed.why_suspect(0, self._chunk.header.data_size)

    def _pread(self, offset: int, length: int) -> bytes:
        records = self.records()
        index = bisect_right(self.ends, offset)
        at = offset - (self.ends[index - 1] if index else 0)
        pieces = []
        while length > 0 and index < len(records):
            piece = records[index][at : at + length]
            pieces.append(piece)
            length -= len(piece)
            index, at = index + 1, 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        with self._lock:
            super().close()
            self._records = None
            if self._charge is not None:
                self._charge.release()


def decoding_weight(chunk: Chunk) -> int:
    """Return the memory that decoding a transposed chunk takes, in bytes: its data, the pieces, and the records."""
    header = chunk.header
    return 2 * (header.data_size + header.decoded_data_size) + 100 * header.num_records


def check_room(chunk: Chunk, packed: ChunkData, budget: MemoryBudget) -> None:
    """Raise `LimitError` if a transposed chunk cannot be decoded within the budget.

    A chunk that declares more than its bytes can hold raises `InvalidArgumentError` instead.
    """
    wanted = decoding_weight(chunk)
    if budget.fits(wanted):
        return
    header = chunk.header
    most = budget.limit // _TRIAL
    weight = 2 * header.data_size + _TRIAL_COST * most
    if max(header.decoded_data_size, header.num_records) > _PLAUSIBLE * header.data_size and budget.fits(weight):
        from pparse.riegeli.transposed import disprove

        with budget.charge(weight, "checking a transposed chunk"):
            data = packed.read_exact(0, header.data_size)
            count = 1 if header.chunk_type == METADATA else header.num_records
            error = disprove(data, count, header.decoded_data_size, most)
        if error is not None:
            error.offset = chunk.begin
            raise error
    raise LimitError(
        f"the transposed chunk at {chunk.begin} must be decoded as a whole",
        option=f"--budget {-(-wanted >> 20) + 1}MiB",
        wanted=wanted,
        got=budget.limit,
        offset=chunk.begin,
    )


def open_records(
    source: Source,
    chunk: Chunk,
    *,
    budget: MemoryBudget,
    limits: Limits | None = None,
    scratch: Scratch | None = None,
    projection: FieldProjection | None = None,
    verdicts: Verdicts | None = None,
) -> ChunkRecords | None:
    """Open the records of a chunk; None if chunks of its type have none. The hash of its data is not checked.

    The data of the records report what ``verdicts`` know, now or later (`pparse.data.base.Data.why_suspect`).
    """
    from pparse.riegeli.chunks import ChunkData

    if chunk.header.chunk_type == SIMPLE:
        from pparse.riegeli.simple import SimpleRecords

        data = ChunkData(source, chunk, verdicts)
        return SimpleRecords(data, chunk.header, budget=budget, limits=limits, scratch=scratch)
    if chunk.header.chunk_type == TRANSPOSED:
        return TransposedRecords(ChunkData(source, chunk, verdicts), chunk, budget=budget, projection=projection)
    return None
