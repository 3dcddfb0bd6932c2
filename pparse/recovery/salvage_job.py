"""One model file to save: what is read, what is written, and the list of what is lost."""

from __future__ import annotations

import json

from pparse.containers.content import GapLog
from pparse.errors import EndOfDataError, GapError, MalformedError
from pparse.findings import Status
from pparse.limits import MIB, count_words
from pparse.recovery.report import RecoveredFile
from pparse.tensors.tensor_facts import there_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.recovery.target import Target, TargetFile

    Report = Callable[[RecoveredFile], object]
    OnKept = Callable[[str, int], object]

SCHEMA: Final = 1
_STEP: Final = 1 * MIB
# What a model is called whose bytes must not be opened as one.
AS_FOUND: Final = "{}.partial/as-found.bin"


def is_model_name(name: str) -> bool:
    """Say whether a library would take a file for a model by its name."""
    from pparse.document.registry import model_extensions

    return name.lower().endswith(model_extensions())


def has_lost_bytes(extraction: Extraction) -> bool:
    """Say whether bytes in a document are lost or in doubt; not if only its end is not there."""
    data, start, end = extraction.data, extraction.start, extraction.known_end()
    gap = data.next_gap(start)
    return (gap is not None and gap.offset < end) or bool(data.suspect_ranges_in(start, end))


class Job:
    """One file to save: where it is read from, and where it is written to.

    Its bytes are ``data[start:end]``. After ``solid`` (in most files that is ``end``) the places of bytes are not
    known, since an unknown number of bytes is missing before them.
    """

    def __init__(self, extraction: Extraction, target: Target, name: str, report: Report) -> None:
        self.extraction = extraction
        """The document."""
        self.session = extraction.session
        self.data = extraction.data
        """The bytes of the document and what is around it."""
        self.start = extraction.start
        """Offset of the first byte of the document in `data`."""
        self.end = max(self.start, extraction.known_end())
        """Offset after the last known byte of the document."""
        self.target = target
        """The folder to write to."""
        self.name = name
        """Name of the new file."""
        self.kept: OnKept | None = None
        self.is_alone = True
        """Whether nothing else is written of the document: not if the caller writes it as it was found, too."""
        self.is_unharmed = False  # set if nothing is found lost: the file is to be written as it is
        self._report = report
        self._done = 0
        self.loose = [
            gap
            for gap in self.data.gaps
            if (gap.length is None or not gap.exact) and self.start <= gap.offset < self.end
        ]
        self.solid = self.loose[0].offset if self.loose else self.end

    @property
    def has_gaps(self) -> bool:
        """Whether bytes are missing anywhere but at the end."""
        gap = self.data.next_gap(self.start)
        return gap is not None and gap.offset < self.end and gap.length is not None

    def report(self, file: TargetFile, status: Status, reason: str | None, **known: object) -> None:
        """Report a file that was written."""
        known.setdefault("source", self.extraction.path)
        self._report(RecoveredFile.written(file, status, reason=reason, **known))

    def report_as(self, entry: RecoveredFile) -> None:
        """Report a file, or a part that could not be saved."""
        entry.is_part = entry.path is None
        entry.source = self.extraction.path
        self._report(entry)

    def advance(self, count: int, total: int | None) -> None:
        """Count written bytes and report the progress. Raise `CancelledError` if the caller cancels."""
        self.session.check_cancelled()
        self._done += count
        if self.session.progress is not None:
            self.session.progress(self._done, total, "saving")

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes ``[start, stop)`` of `data`; raises what `Data.pread` does."""
        while start < stop:
            chunk = self.data.pread(start, min(_STEP, stop - start))
            if not chunk:
                return
            yield chunk
            start += len(chunk)

    def copy_known(self, file: TargetFile, start: int, stop: int, data: Data | None = None) -> GapLog:
        """Write the bytes ``[start, stop)``, gaps as holes; return the gaps, with offsets in the file.

        ``data``: where they are, if not in those of the document. Ends early where nothing more can be read.
        """
        data = self.data if data is None else data
        gaps = GapLog()
        offset = start
        while offset < stop:
            self.advance(0, None)
            try:
                chunk = data.pread(offset, min(_STEP, stop - offset))
            except GapError as gap:
                if gap.length is None:
                    break
                count = min(gap.length, stop - offset)
                gaps.add(offset - start, count)
                file.skip(count)
                offset += count
                continue
            except (MalformedError, EndOfDataError):
                break
            if not chunk:
                break
            file.write(chunk)
            offset += len(chunk)
        return gaps

    def save_as_found(self) -> None:
        """Write the bytes of a model that cannot be made valid, under a name that no library takes for a model."""
        with self.target.create(AS_FOUND.format(self.name)) as file:
            gaps = self.copy_known(file, self.start, self.end)
        reason = "no tensor, record or field is whole; these are the bytes as found"
        self.report(file, Status.DAMAGED, reason, offset=self.start, gaps=gaps)

    def save_loose(self, name: str) -> int:
        """Write the byte ranges whose place in the file is not known, one file each; return their number."""
        written = 0
        for number, gap in enumerate(self.loose):
            if gap.length is None:
                break
            start = gap.offset + gap.length
            stop = self.loose[number + 1].offset if number + 1 < len(self.loose) else self.end
            if start >= stop:
                continue
            with self.target.create(f"{name}.partial/behind-{gap.offset}.bin") as file:
                gaps = self.copy_known(file, start, stop)
            reason = "its place in the file is not known: an unknown number of bytes is missing before it"
            self.report(file, Status.DAMAGED, reason, offset=start, gaps=gaps)
            written += 1
        return written


class Rest:
    """Writes ``name.rest.json``, which lists what a salvaged file lacks: ``head``, and entries in the list ``lost``.

    The file is created with the first entry, or by `write`. ``count`` is the number of entries.
    """

    def __init__(self, job: Job, name: str, head: dict[str, object]) -> None:
        self._job = job
        self._name = f"{name}.rest.json"
        self._head = head
        self._file: TargetFile | None = None
        self.count = 0

    def write(self) -> None:
        """Create the file, if it does not exist."""
        if self._file is None:
            self._file = self._job.target.create(self._name)
            head = json.dumps({"schema": SCHEMA, **self._head})
            self._file.write(f'{head[:-1]}, "lost": ['.encode())

    def add(self, entry: dict[str, object]) -> None:
        """Add an entry, which is written on a line of its own."""
        self.write()
        assert self._file is not None  # noqa: S101 -- just made
        separator = ",\n" if self.count else "\n"
        self._file.write((separator + json.dumps(entry)).encode())
        self.count += 1

    def finish(self, status: Status) -> None:
        """Finish the file, if there is one, and report it with ``status``, that of the salvaged file.

        It is never complete: whatever a report calls so is a file of the input.
        """
        file = self._file
        if file is None or file.closed:
            return
        try:
            file.write(b"\n]}\n")
            file.close()
        except BaseException:
            file.discard()
            raise
        self._job.report(file, status, f"what the saved file lacks: {count_words(self.count, 'part')}")

    def discard(self) -> None:
        """Remove the file, unless it was finished."""
        if self._file is not None:
            self._file.discard()


def part_words(there: int, length: int, why: str) -> str:
    """Return how many bytes of a tensor are there, and why not all; nothing is said twice."""
    told = f"{there:,} of {length:,} bytes are there"
    return told if why == there_words(there, length) else f"{told}: {why}"


def text_of(text: str) -> str:
    """Return ``text`` without lone surrogates, which many readers of JSON refuse, cut to the length of any name."""
    if len(text) > 4096:
        text = text[:4096] + "…"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
