"""Riegeli files: copies the readable records to a new file, written with the options of the old one."""

from __future__ import annotations

from pparse.data.base import copy_into
from pparse.data.range_status import cut_status
from pparse.errors import PASSING, LimitError, PparseError
from pparse.findings import Status
from pparse.limits import KIB, MIB, count_words
from pparse.recovery.salvage_job import Rest, text_of
from pparse.riegeli.chunks import TRANSPOSED, ChunkData, ChunkError
from pparse.riegeli.parts import BROTLI, NONE, SNAPPY, ZSTD, PartCompressor
from pparse.riegeli.reader import RecordReader
from pparse.riegeli.records import open_records
from pparse.riegeli.writer import RECORD_COST, FlushType, RecordWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO, Final

    from pparse.data.reader import Range
    from pparse.recovery.salvage_job import Job
    from pparse.recovery.target import TargetFile
    from pparse.riegeli.chunks import Chunk
    from pparse.riegeli.positions import SkippedRegion
    from pparse.riegeli.records import ChunkRecords

    # called with position and size of a record; returns whether to write it
    Wanted = Callable[[int, int], bool]
    # called with the old position, the size, and the new position
    Written = Callable[[int, int, int], None]

# Larger records are held only if the budget has room for them and for their compressed form.
_LARGE: Final = 1 * MIB
_HELD: Final = 2
_WINDOW: Final = 16 * MIB  # what a decoder takes besides
_COMPRESSIONS: Final = {NONE: "uncompressed", BROTLI: "brotli", ZSTD: "zstd", SNAPPY: "snappy"}


class _Stream:
    """A `TargetFile` with the interface that the writer needs."""

    def __init__(self, file: TargetFile) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""


class RecordCopy:
    """Copies the records of a damaged file into ``file``.

    ``records`` counts the records written, ``unchecked`` those of them from a truncated chunk (its hash cannot be
    compared), ``lost`` the lost ranges. ``damaged`` says whether more is wrong than a missing end.
    """

    def __init__(
        self, job: Job, file: TargetFile, rest: Rest, *, wanted: Wanted | None = None, written: Written | None = None
    ) -> None:
        self._job = job
        self._file = file
        self._rest = rest
        self._wanted = wanted
        self._written = written
        self._writer: RecordWriter | None = None
        self._metadata = b""
        self._first: Chunk | None = None
        self._tail: tuple[ChunkRecords, int, int] | None = None
        self._size = job.end - job.start
        self.records = self.unchecked = self.lost = 0
        self.damaged = False
        self._reader = RecordReader(
            job.data.range(job.start, job.end),
            recovery=self._note,
            verify="all",
            budget=job.session.budget,
            limits=job.session.limits,
            scratch=job.session.spools,
        )

    def run(self) -> None:
        """Copy every record that can be read."""
        self._read_metadata()
        reader = self._reader
        while (record := reader.open_record()) is not None:
            self._first = self._first or reader._chunk
            self._copy(record, reader.last_pos.numeric)
        # A healed chunk has a damaged header; only the last one may just lack its padding.
        self.damaged = self.damaged or any(region.end <= self._size for region in reader.healed)
        cut = reader._truncated
        try:
            reader.close()
        except PASSING:
            raise
        except PparseError as error:
            self.damaged = True
            self._lose(reader.pos.numeric, self._size, error.reason)
        if cut is not None:
            self._copy_cut(cut)

    def finish(self, last: bytes | None = None) -> None:
        """Write the buffered records, and then the record ``last``, if given."""
        if last is not None:
            self.writer.write_record(last)
        if self._writer is not None:
            self._writer.close()

    @property
    def is_whole(self) -> bool:
        """Whether nothing was wrong with the file."""
        return not (self.lost or self.unchecked or self._reader.healed)

    @property
    def writer(self) -> RecordWriter:
        """The writer of the new file, created on first use."""
        if self._writer is None:
            stream: BinaryIO = _Stream(self._file)  # type: ignore[assignment]
            self._writer = RecordWriter(
                stream,
                owns_dest=False,
                assumed_pos=0,
                options=self._options(),
                serialized_metadata=self._metadata,
                scratch=self._job.session.spools,
            )
        return self._writer

    def write(self, record: bytes) -> int:
        """Write an additional record; return its position."""
        self.writer.write_record(record)
        return self.writer.last_pos.numeric

    def _read_metadata(self) -> None:
        try:
            self._metadata = self._reader.read_serialized_metadata() or b""
        except LimitError:
            self.damaged = True
            self._lose(0, 0, "the metadata are too large for the budget")

    def _options(self) -> str:
        """Return the options that the first chunk was written with, as far as they can be seen."""
        chunk = self._first
        if chunk is None:
            return ""
        kind = ChunkData(self._reader._source, chunk).pread(0, 1)
        header = chunk.header
        size = header.decoded_data_size + RECORD_COST * header.num_records
        words = [_COMPRESSIONS.get(kind[0] if kind else NONE, "brotli"), f"chunk_size:{min(max(size, 4 * KIB), MIB)}"]
        if header.chunk_type == TRANSPOSED:
            words.insert(0, "transpose")
        return ",".join(words)

    # -- one record ----------------------------------------------------------------------------------------------------

    def _copy(self, record: Range, position: int) -> bool:
        """Write a record; False if its bytes cannot be read, which is recorded."""
        size = len(record)
        if self._wanted is not None and not self._wanted(position, size):
            return True
        budget = self._job.session.budget
        held = size <= _LARGE or budget.fits(_HELD * size + _WINDOW)
        content = b""
        with budget.charge(_HELD * size if held else 0, "a record"):
            try:
                if not held:
                    # Read once as a test: a writer that fails inside a record cannot continue.
                    copy_into(record.data, record.start, size, lambda _piece: self._job.advance(0, None))
                elif size:
                    content = record.data.read_exact(record.start, size)
            except PASSING:
                raise
            except LimitError:
                raise
            except PparseError as error:
                self.damaged = True
                self._lose(position, position + 1, error.reason)
                return False
            if held:
                self.writer.write_record(content)
            else:
                self._write_large(record)
        self.records += 1
        if self._written is not None:
            self._written(position, size, self.writer.last_pos.numeric)
        self._job.advance(size, None)
        return True

    def _write_large(self, record: Range) -> None:
        """Write a record without holding it; uncompressed, if there is no scratch folder to compress it in."""
        writer = self.writer
        compressor = writer._compressor
        if self._job.session.spools.folder is None and compressor.kind != NONE:
            writer.flush(FlushType.FROM_OBJECT)  # the records before it are compressed as before
            writer._compressor = PartCompressor(NONE)
        try:
            writer.write_record_from(record)
        finally:
            writer._compressor = compressor

    def _copy_cut(self, begin: int) -> None:
        """Write the complete records of a chunk that is cut by the end of the file."""
        job, reader = self._job, self._reader
        try:
            chunk = reader._chunks.header(begin)
            if chunk is None:
                return
            found = open_records(
                reader._source,
                chunk,
                budget=job.session.budget,
                limits=job.session.limits,
                scratch=job.session.spools,
            )
            there = found.extent() if found is not None else 0
        except ChunkError:
            return
        except PASSING:
            raise
        except (PparseError, EOFError):
            return
        if found is None:
            return
        self._first = self._first or chunk
        for index in range(found.count):
            record = found.range(index)
            if record.end > there:
                self._tail = found, index, begin
                return
            if not self._copy(record, begin + index):
                return
            self.unchecked += 1

    def save_tail(self, folder: str) -> None:
        """Write the known bytes of the record in which the file ends, in ``folder``."""
        if self._tail is None:
            return
        found, index, begin = self._tail
        record, there = found.range(index), found.extent()
        if record.start < there:
            with self._job.target.create(f"{folder}/record-{begin + index}.bin") as file:
                copy_into(record.data, record.start, there - record.start, file.write)
            size, got = len(record), there - record.start
            reason = f"the record at position {begin + index}: {got:,} of {size:,} bytes are there"
            self._job.report(file, Status.TRUNCATED, reason, gaps=((got, size - got),))
        found.close()

    # -- what is lost --------------------------------------------------------------------------------------------------

    def _note(self, region: SkippedRegion) -> None:
        self.damaged = self.damaged or region.begin != self._reader._truncated
        self._lose(region.begin, region.end, region.message)

    def _lose(self, begin: int, end: int, reason: str) -> None:
        self.lost += 1
        self._rest.add({"begin": begin, "end": end, "reason": text_of(reason)})


def salvage_riegeli(job: Job) -> bool:
    """Write the readable records as a Riegeli file; see `pparse.recovery.salvage.salvage`."""
    with job.target.create(job.name) as file:
        rest = Rest(job, file.path, {"format": "riegeli"})
        try:
            copy = RecordCopy(job, file, rest)
            copy.run()
            copy.finish()
        except BaseException:
            rest.discard()
            raise
        if not copy.records or copy.is_whole:
            rest.discard()
            file.discard()
            job.is_unharmed = copy.is_whole and copy.records > 0
            return False
    status = cut_status(damaged=copy.damaged or job.has_gaps)
    job.report(file, status, described(copy))
    try:
        copy.save_tail(f"{file.path}.partial")
    finally:
        rest.finish(status)
    return True


def described(copy: RecordCopy) -> str:
    """Describe what was copied, and what was lost."""
    reason = f"{count_words(copy.records, 'record')} could be read"
    if copy.unchecked:
        reason += f", {copy.unchecked:,} of them without a checksum, from a truncated chunk"
    stretches = "stretch" if copy.lost == 1 else "stretches"
    return f"{reason}; {copy.lost:,} {stretches} of the file {'is' if copy.lost == 1 else 'are'} lost"
