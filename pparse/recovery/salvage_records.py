"""Files of records: copies those that can be read to a new file; what is left of others goes beside it.

Of a Riegeli file the new one is written with the options of the old one; of a TFRecord file it has the records whose
checksum agrees; of JSON Lines, the rows that are JSON.
"""

from __future__ import annotations

from pparse.data.base import copy_into
from pparse.data.range_status import cut_status
from pparse.errors import DataError, FaultError, LimitError
from pparse.findings import ENDS_EARLY, Status
from pparse.limits import KIB, MIB, are, count_words
from pparse.parsers.tfrecord.parser import MISMATCH
from pparse.recovery.salvage import UNHARMED, Rest, text_of
from pparse.riegeli.chunks import TRANSPOSED, ChunkData, ChunkError
from pparse.riegeli.parts import BROTLI, NONE, SNAPPY, ZSTD, PartCompressor
from pparse.riegeli.reader import RecordReader
from pparse.riegeli.records import open_records
from pparse.riegeli.writer import RECORD_COST, FlushType, RecordWriter
from pparse.tree.entry import LIST
from pparse.writers.tfrecord import TfrecordWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.data.base import Range
    from pparse.parsers.json.lines import JsonLinesParser
    from pparse.parsers.tfrecord.parser import TfrecordParser
    from pparse.recovery.salvage import Job
    from pparse.recovery.target import TargetFile
    from pparse.riegeli.chunks import Chunk
    from pparse.riegeli.records import ChunkRecords, SkippedRegion
    from pparse.tree.entry import Entry

    # called with the old position, the size, and the new position
    Written = Callable[[int, int, int], None]

# Larger records are held only if the budget has room for them and for their compressed form.
_LARGE: Final = 1 * MIB
_HELD: Final = 2
_WINDOW: Final = 16 * MIB  # what a decoder takes besides
_COMPRESSIONS: Final = {NONE: "uncompressed", BROTLI: "brotli", ZSTD: "zstd", SNAPPY: "snappy"}


class RecordCopy:
    """Copies the records of a damaged Riegeli file into ``file``.

    ``records`` counts the records written, ``unchecked`` those of them from a truncated chunk (its hash cannot be
    compared), ``lost`` the lost ranges. ``damaged`` says whether more is wrong than a missing end.
    """

    def __init__(
        self, job: Job, file: TargetFile, rest: Rest, *, skipped: int | None = None, written: Written | None = None
    ) -> None:
        """``skipped``: the position of a record that is not copied."""
        self.job = job
        self.file = file
        self.rest = rest
        self._skipped = skipped
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
        self._reader.enters_cut = skipped is not None  # the metadata, which prove that they are the file's

    def run(self) -> None:
        """Copy every record that can be read."""
        reader = self._reader
        try:
            self._metadata = reader.read_serialized_metadata() or b""
        except LimitError:
            self.damaged = True
            self._lose(0, 0, "the metadata are too large for the budget")
        while (record := reader.open_record()) is not None:
            self._first = self._first or reader._chunk
            self._copy(record, reader.last_pos.numeric)
        # A healed chunk has a damaged header; only the last one may just lack its padding.
        self.damaged = self.damaged or any(region.end <= self._size for region in reader.healed)
        cut = reader._truncated
        try:
            reader.close()
        except DataError as error:
            self.damaged = True
            self._lose(reader.pos.numeric, self._size, error.reason)
        if cut is not None:
            self._copy_cut(cut)

    def finish(self) -> None:
        """Write the buffered records."""
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
            self._writer = RecordWriter(
                self.file,  # type: ignore[arg-type]
                owns_dest=False,
                assumed_pos=0,
                options=self._options(),
                serialized_metadata=self._metadata,
                scratch=self.job.session.spools,
            )
        return self._writer

    def write(self, record: bytes) -> int:
        """Write an additional record; return its position."""
        self.writer.write_record(record)
        return self.writer.last_pos.numeric

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
        if position == self._skipped:
            return True
        budget = self.job.session.budget
        held = size <= _LARGE or budget.fits(_HELD * size + _WINDOW)
        content = b""
        with budget.charge(_HELD * size if held else 0, "a record"):
            try:
                if not held:
                    # Read once as a test: a writer that fails inside a record cannot continue.
                    copy_into(record.data, record.start, size, lambda _piece: self.job.advance(0, None))
                elif size:
                    content = record.data.read_exact(record.start, size)
            except FaultError as error:
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
        self.job.advance(size, None)
        return True

    def _write_large(self, record: Range) -> None:
        """Write a record without holding it; uncompressed, if there is no scratch folder to compress it in."""
        writer = self.writer
        compressor = writer._compressor
        if self.job.session.spools.folder is None and compressor.kind != NONE:
            writer.flush(FlushType.FROM_OBJECT)  # the records before it are compressed as before
            writer._compressor = PartCompressor(NONE)
        try:
            writer.write_record_from(record)
        finally:
            writer._compressor = compressor

    def _copy_cut(self, begin: int) -> None:
        """Write the complete records of a chunk that is cut by the end of the file."""
        job, reader = self.job, self._reader
        try:
            chunk = reader._chunks.header(begin)
            if chunk is None:
                return
            found = open_records(reader._source, chunk, job.session.env)
            there = found.extent() if found is not None else 0
        except (ChunkError, DataError, EOFError):
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
            with self.job.target.create(f"{folder}/record-{begin + index}.bin") as file:
                copy_into(record.data, record.start, there - record.start, file.write)
            size, got = len(record), there - record.start
            reason = f"the record at position {begin + index}: {got:,} of {size:,} bytes are there"
            self.job.report(file, Status.TRUNCATED, reason, gaps=((got, size - got),))

    # -- what is lost --------------------------------------------------------------------------------------------------

    def _note(self, region: SkippedRegion) -> None:
        self.damaged = self.damaged or region.begin != self._reader._truncated
        self._lose(region.begin, region.end, region.message)

    def _lose(self, begin: int, end: int, reason: str) -> None:
        self.lost += 1
        self.rest.add({"begin": begin, "end": end, "reason": text_of(reason)})


def salvage_riegeli(job: Job) -> str:
    """Write the readable records as a Riegeli file; see `pparse.recovery.salvage.salvage`."""
    with job.target.create(job.name) as file, Rest(job, file.path, {"format": "riegeli"}) as rest:
        copy = RecordCopy(job, file, rest)
        copy.run()
        copy.finish()
        if not copy.records or copy.is_whole:
            return job.give_up(file, rest, is_unharmed=copy.is_whole and copy.records > 0)
    status = cut_status(damaged=copy.damaged or job.has_gaps)
    return job.conclude(file, status, described(copy), rest, lambda: copy.save_tail(f"{file.path}.partial"))


def described(copy: RecordCopy) -> str:
    """Describe what was copied, and what was lost."""
    reason = f"{count_words(copy.records, 'record')} could be read"
    if copy.unchecked:
        reason += f", {copy.unchecked:,} of them without a checksum, from a truncated chunk"
    stretches = "stretch" if copy.lost == 1 else "stretches"
    return f"{reason}; {copy.lost:,} {stretches} of the file {are(copy.lost)} lost"


# -- TFRecord ----------------------------------------------------------------------------------------------------------


def salvage_tfrecord(job: Job) -> str:
    """Write the records whose checksum agrees as a TFRecord file; see `pparse.recovery.salvage.salvage`."""
    parser: TfrecordParser = job.extraction.parse().parser  # type: ignore[assignment]
    result = parser.result
    is_cut = True
    with job.target.create(job.name) as file, Rest(job, file.path, {"format": "tfrecord"}) as rest:
        writer = TfrecordWriter(file)  # type: ignore[arg-type]
        for number, entry in result.entries_from(result.root, 0):
            end = entry.start if entry.end is None else entry.end
            if entry.kind != "gap" and parser.frames.agrees(entry.start, end):
                writer.write_from(job.data.range(entry.start, end))
                job.advance(end - entry.start, None)
            else:
                is_cut = _lose_record(job, rest, number, entry, end) and is_cut
        # A damaged head is made anew; a file that ends inside of one loses no record, but its library refuses it.
        status = result.root.status
        is_whole = not rest.count and status is Status.COMPLETE
        if not writer.records or is_whole:
            return job.give_up(file, rest, is_unharmed=is_whole)
    lost = f"{count_words(rest.count, 'other')} could not" if rest.count else "none is lost, only a head was damaged"
    reason = f"{count_words(writer.records, 'record')} could be read; {lost}"
    return job.conclude(file, cut_status(damaged=not is_cut or status is Status.DAMAGED), reason, rest)


def _lose_record(job: Job, rest: Rest, number: int, entry: Entry, end: int) -> bool:
    """List a record that is not saved in ``rest``, with why; return whether it is just cut."""
    start = entry.start
    there = max(start, min(end, job.end))
    is_short = entry.status in ENDS_EARLY
    is_cut = is_short or (there == end and end + 4 > job.end)
    if entry.kind == "gap":
        reason = "no record could be recognised"
    elif is_short:
        reason = f"the file ends inside of the record: {there - start:,} of {end - start:,} bytes are there"
    elif is_cut:
        reason = "the file ends inside of the record's checksum: nothing proves its data"
    else:
        doubt = entry.finding is not None and entry.finding.code == "doubt"
        reason = entry.finding.reason if entry.finding is not None and doubt else MISMATCH
    place = {"record": number, "offset": start - job.start, "length": end - start, "there": there - start}
    rest.lose({**place, "reason": reason}, f"record-{number}.bin", start, there, reason, cut_status(damaged=not is_cut))
    return is_cut


# -- JSON Lines --------------------------------------------------------------------------------------------------------


def salvage_rows(job: Job) -> str:
    """Write the sound rows of a file of JSON Lines, each as it stands; see `pparse.recovery.salvage.salvage`.

    A row tells by itself whether it is whole, so one whose number is uncertain is written, too. A file without any
    sound row, or one that is not called as JSON Lines are (a log), is written as it is.
    """
    parser: JsonLinesParser = job.extraction.parse().parser  # type: ignore[assignment]
    root, rows, is_cut = parser.result.root, 0, True
    if root.shape != LIST or not job.name.lower().endswith(parser.extensions):
        return UNHARMED
    with job.target.create(job.name) as file, Rest(job, file.path, {"format": "json-lines"}) as rest:
        for number, start, end, finding in parser.judged_rows():
            job.advance(end - start, job.end - job.start)
            if finding is None:
                copy_into(job.data, start, end - start, file.write)
                file.write(b"\n")
                rows += 1
                continue
            damaged = finding.code != "truncated" or end < job.end
            is_cut = is_cut and not damaged
            told = {"row": number, "offset": start - job.start, "length": end - start, "reason": finding.reason}
            rest.lose(told, f"row-{number}.txt", start, end, finding.reason, cut_status(damaged=damaged))
        if not rows or not rest.count:
            return job.give_up(file, rest, is_unharmed=True)
    reason = f"{count_words(rows, 'row')} could be read; {count_words(rest.count, 'other')} could not"
    return job.conclude(file, cut_status(damaged=not is_cut), reason, rest)
