"""TFRecord files: copies the records whose checksum agrees to a new file; what is left of others goes beside it."""

from __future__ import annotations

from pparse.data.range_status import cut_status
from pparse.findings import Status
from pparse.limits import count_words
from pparse.parsers.tfrecord.parser import MISMATCH, TfrecordParser
from pparse.recovery.salvage_job import Rest
from pparse.writers.tfrecord import TfrecordWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Final

    from pparse.recovery.salvage_job import Job
    from pparse.recovery.target import TargetFile
    from pparse.tree.entry import Entry

# How many of the lost records get a file of their own; the list has all of them.
_MOST_FILES: Final = 1_000


class _Copy:
    """Copies the sound records of a file into ``file``; lists the others in ``rest``."""

    def __init__(self, job: Job, parser: TfrecordParser, file: TargetFile, rest: Rest) -> None:
        self._job = job
        self._parser = parser
        self._rest = rest
        stream: BinaryIO = file  # type: ignore[assignment]
        self.writer = TfrecordWriter(stream)
        self.lost: list[tuple[int, int, int, Status, str]] = []  # number, bytes [from, to), status and reason
        self.damaged = False

    def run(self) -> None:
        """Copy every record whose checksum agrees."""
        job, result = self._job, self._parser.result
        for number, entry in result.entries_from(result.root, 0):
            end = entry.start if entry.end is None else entry.end
            size = end - entry.start
            if entry.kind != "gap" and self._parser.frames.agrees(entry.start, end):
                self.writer.write_from(job.data.range(entry.start, end))
                job.advance(size, None)
            else:
                self._lose(number, entry, end)
        self.damaged = self.damaged or result.root.status is Status.DAMAGED

    def _lose(self, number: int, entry: Entry, end: int) -> None:
        job = self._job
        there = max(entry.start, min(end, job.end))
        is_cut = entry.status in (Status.TRUNCATED, Status.MISSING) or (there == end and end + 4 > job.end)
        if entry.kind == "gap":
            reason = "no record could be recognised"
        elif entry.status in (Status.TRUNCATED, Status.MISSING):
            got, size = there - entry.start, end - entry.start
            reason = f"the file ends inside of the record: {got:,} of {size:,} bytes are there"
        elif is_cut:
            reason = "the file ends inside of the record's checksum: nothing proves its data"
        else:
            doubt = entry.finding is not None and entry.finding.code == "doubt"
            reason = entry.finding.reason if entry.finding is not None and doubt else MISMATCH
        self.damaged = self.damaged or not is_cut
        status = Status.TRUNCATED if is_cut else Status.DAMAGED
        self._rest.add(
            {
                "record": number,
                "offset": entry.start - job.start,
                "length": end - entry.start,
                "there": there - entry.start,
                "reason": reason,
            }
        )
        if len(self.lost) < _MOST_FILES and there > entry.start:
            self.lost.append((number, entry.start, there, status, reason))

    def save_lost(self, folder: str) -> None:
        """Write the known bytes of the lost records, in ``folder``, one file each."""
        for number, start, end, status, reason in self.lost:
            with self._job.target.create(f"{folder}/record-{number}.bin") as file:
                gaps = self._job.copy_known(file, start, end)
            self._job.report(file, status, reason, offset=start, gaps=gaps)


def salvage_tfrecord(job: Job) -> bool:
    """Write the sound records as a TFRecord file; see `pparse.recovery.salvage.salvage`."""
    parser = job.extraction.parse().parser
    if not isinstance(parser, TfrecordParser):
        return False
    with job.target.create(job.name) as file:
        rest = Rest(job, file.path, {"format": "tfrecord"})
        try:
            copy = _Copy(job, parser, file, rest)
            copy.run()
        except BaseException:
            rest.discard()
            raise
        records = copy.writer.records
        # A damaged head is made anew; a file that ends inside of one loses no record, but its library refuses it.
        is_whole = not rest.count and parser.result.root.status is Status.COMPLETE
        if not records or is_whole:
            rest.discard()
            file.discard()
            job.is_unharmed = is_whole
            return False
    status = cut_status(damaged=copy.damaged)
    lost = f"{count_words(rest.count, 'other')} could not" if rest.count else "none is lost, only a head was damaged"
    job.report(file, status, f"{count_words(records, 'record')} could be read; {lost}")
    try:
        copy.save_lost(f"{file.path}.partial")
    finally:
        rest.finish(status)
    return True
