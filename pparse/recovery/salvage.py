"""Model files that are cut or damaged, written so that their own libraries open what is left of them.

`salvage` knows a form for safetensors, Riegeli, chunked protos (``.cpb``) and plain protocol buffer messages. Beside
the file itself there may be ``name.partial/``, a folder with the pieces that no valid file can hold, and
``name.rest.json``, which lists what the file does not have. All is streamed; the same input gives the same bytes.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice

from pparse.containers.content import GapLog
from pparse.data.standing import joined
from pparse.document.extraction import Extraction, extraction_of
from pparse.errors import PASSING, EndOfDataError, GapError, LimitError, MalformedError, PparseError
from pparse.findings import Status
from pparse.limits import MIB, count_words
from pparse.recovery.report import RecoveredFile, doubtful_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.recovery.target import Target, TargetFile
    from pparse.tree.result import Result

    Report = Callable[[RecoveredFile], object]
    Kept = Callable[[str, int], object]

SCHEMA: Final = 1
_MAX_HOLES: Final = 10_000
_STEP: Final = 1 * MIB
# What came of an attempt.
_SAVED: Final = "saved"
_UNHARMED: Final = "unharmed"
_NOTHING: Final = "nothing"
PROTOBUF: Final = ("saved-model", "graph-def", "meta-graph", "protobuf")
# How names of models end, and what a file of such a name is called that no library would take for one.
MODEL_NAMES: Final = (".safetensors", ".riegeli", ".cpb", ".pb")
AS_FOUND: Final = "{}.partial/as-found.bin"
MODELS: Final = ("safetensors", "riegeli", "cpb", *PROTOBUF)


def salvage(
    extraction: Extraction, target: Target, name: str, *, report: Report, kept: Kept | None = None
) -> bool:  # fmt: skip
    """Write what is left of a model file that is not whole as the valid file ``name`` of ``target``, and tell of it.

    ``report`` is called once for each file written, the new one first, and for each part of which nothing could be had;
    no status is COMPLETE that is not. ``kept`` is called with the name and the size of every tensor of a safetensors
    file that is in the new one. False if the format has no such form, if nothing can be saved in it, or if nothing is
    lost, so that the file had better be written as it is: then nothing was written, and nothing reported. Raises
    `LimitError`, and what says nothing of the data.
    """
    return _attempt(extraction, target, name, report, kept) is _SAVED


def _attempt(extraction: Extraction, target: Target, name: str, report: Report, kept: Kept | None) -> str:
    """Do what `salvage` does; tell what is lost from what had better be written as it is."""
    try:
        result = extraction.parse()
    except PASSING:
        raise
    except LimitError:
        raise
    except PparseError:
        return _NOTHING
    form = result.parser.name
    inner = extraction_of(result)
    if form not in MODELS:
        return _NOTHING
    start, end = inner.start, max(inner.start, inner.known_end())
    doubts = inner.data.doubts_in(start, end)
    if doubts and form in ("riegeli", "cpb"):
        doubts = _unproved(inner)
    if form in PROTOBUF:
        doubts = joined([*doubts, *islice(inner.data.holes(start, end), _MAX_HOLES)])
    if doubts and form != "safetensors":  # which tells its tensors apart itself
        return _save_apart(inner, form, doubts, target, name, report)
    job = Job(inner, target, name, report)
    job.kept = kept
    return _SAVED if _save(job, form) else _UNHARMED if job.is_unharmed else _NOTHING


def salvage_or_keep(extraction: Extraction, target: Target, name: str, *, report: Report) -> bool:
    """Do what `salvage` does; a model of which nothing can be saved is kept as it was found, under a name that no
    library takes for a model."""
    outcome = _attempt(extraction, target, name, report, None)
    if outcome is not _NOTHING:
        return outcome is _SAVED
    result = extraction.parse()
    if result.parser.name not in MODELS or not _is_lost(extraction_of(result)):
        return False
    if _is_sound(result):
        return False  # all its fields are whole, and its library reads it: what is odd is what they say
    Job(extraction_of(result), target, name, report).save_as_found()
    return True


def _is_lost(extraction: Extraction) -> bool:
    """Say whether something is known to be wrong with a model of which nothing could be saved."""
    from pparse.document.registry import viewer_for

    viewer = viewer_for(extraction)
    whole = extraction.status is Status.COMPLETE and (viewer is None or viewer.status is Status.COMPLETE)
    return not whole or bool(extraction.findings.errors)


def _is_sound(result: Result) -> bool:
    """Say whether every field of a message with a schema is whole, or every chunk of one in chunks."""
    from pparse.parsers.protobuf.check import Checker

    if result.parser.name == "cpb":
        from pparse.recovery.salvage_cpb import is_whole

        return is_whole(result.parser)  # type: ignore[arg-type]
    if result.parser.name not in PROTOBUF:
        return False
    parser: ProtobufParser = result.parser  # type: ignore[assignment]
    extraction = result.extraction
    part = extraction.data.range(extraction.start, max(extraction.start, extraction.known_end()))
    return parser.root_type is not None and Checker(extraction.session.check_cancelled).sound(part, parser.root_type)


def _unproved(extraction: Extraction) -> list[tuple[int, int]]:
    """Compare the hashes of all chunks of a Riegeli file that is in doubt; return what none of them proves."""
    from pparse.riegeli.lookup import RecordLookup

    session, data = extraction.session, extraction.data
    start, end = extraction.start, max(extraction.start, extraction.known_end())
    lookup = RecordLookup(
        data.range(start, end), verify="all", budget=session.budget, limits=session.limits, scratch=session.spools
    )
    lookup.survey(lambda _region: session.check_cancelled(), lambda _error: None)
    return data.doubts_in(start, end)


def _save_apart(
    extraction: Extraction, form: str, doubts: list[tuple[int, int]], target: Target, name: str, report: Report
) -> str:
    """Save what is sure of a file as ``name``, as if what is in doubt were lost; and all of it under another name.

    If nothing that matters is in doubt, nothing is written.
    """
    from pparse.data.hidden import HiddenData

    data = HiddenData(extraction.data, doubts)
    sure = Extraction(
        extraction.session, extraction.name, data, extraction.start, extraction.end, extraction.parent, form
    )
    start, end = extraction.start, max(extraction.start, extraction.known_end())
    job = Job(sure, target, name, report)
    if form in ("riegeli", "cpb"):
        job.end = end  # an end that is in doubt is lost: the chunks before it are not all that there were
    with suppress(MalformedError, EndOfDataError, GapError):
        if not _save(job, form) and job.is_unharmed:
            return _UNHARMED
    job = Job(extraction, target, doubtful_name(name), report)
    with target.create(job.name) as file:
        gaps = job.copy_known(file, start, end)
    why = extraction.data.doubtful(start, end) or "some were never written (a file hole), and read as zeros"
    reason = f"bytes of it may be wrong: {why}"
    known = [(low - start, high - low) for low, high in doubts]
    job.report(file, Status.DAMAGED, reason, offset=start, gaps=gaps, doubtful=known)
    return _SAVED


def _save(job: Job, form: str) -> bool:
    if form == "safetensors":
        from pparse.recovery.salvage_safetensors import salvage_safetensors

        return salvage_safetensors(job)
    if form == "riegeli":
        from pparse.recovery.salvage_riegeli import salvage_riegeli

        return salvage_riegeli(job)
    if form == "cpb":
        from pparse.recovery.salvage_cpb import salvage_cpb

        return salvage_cpb(job)
    if form in PROTOBUF:
        from pparse.recovery.salvage_protobuf import salvage_protobuf

        return salvage_protobuf(job)
    return False


class Job:
    """One file to be saved: where it is read, and where it goes.

    Its bytes are ``data[start:end]``; behind ``solid`` (which is ``end`` in most files) the places of bytes are not
    known, since bytes are missing before them and nobody knows how many.
    """

    def __init__(self, extraction: Extraction, target: Target, name: str, report: Report) -> None:
        self.extraction = extraction
        self.session = extraction.session
        self.data = extraction.data
        self.start = extraction.start
        self.end = max(self.start, extraction.known_end())
        self.target = target
        self.name = name
        self.kept: Kept | None = None
        self.is_unharmed = False  # set by who finds nothing lost: it is to be written as it is
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

    def report(self, file: TargetFile, status: Status, reason: str, **known: object) -> None:
        """Tell of a file that was written."""
        known.setdefault("source", self.extraction.path)
        self._report(RecoveredFile.written(file, status, reason=reason, **known))

    def report_as(self, entry: RecoveredFile) -> None:
        """Tell of a file, or of what could not be had."""
        entry.source = self.extraction.path
        self._report(entry)

    def advance(self, count: int, total: int | None) -> None:
        """Count bytes that were written, tell the progress, and stop if the caller wants that."""
        self.session.check_cancelled()
        self._done += count
        if self.session.progress is not None:
            self.session.progress(self._done, total, "saving")

    def copy_known(self, file: TargetFile, start: int, stop: int) -> GapLog:
        """Write the bytes ``[start, stop)``, gaps as holes; return those, with offsets in the file.

        It ends early where nothing more can be had.
        """
        gaps = GapLog()
        offset = start
        while offset < stop:
            self.advance(0, None)
            try:
                chunk = self.data.pread(offset, min(_STEP, stop - offset))
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
        """Write the bytes of a model of which no valid file can be made, under a name that no library takes for one."""
        with self.target.create(AS_FOUND.format(self.name)) as file:
            gaps = self.copy_known(file, self.start, self.end)
        reason = "no tensor, record or field of it is whole: these are its bytes as they were found"
        self.report(file, Status.DAMAGED, reason, offset=self.start, gaps=gaps)

    def save_loose(self, name: str) -> int:
        """Write the stretches whose place in the file is not known, one file each; return how many there are."""
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
            reason = "its place in the file is not known: before it bytes are missing, and nobody knows how many"
            self.report(file, Status.DAMAGED, reason, offset=start, gaps=gaps)
            written += 1
        return written


class Rest:
    """Writes ``name.rest.json``, what a salvaged file does not have: ``head``, and entries in the list ``lost``.

    The file is made with the first entry, or by `write`. ``count`` counts entries.
    """

    def __init__(self, job: Job, name: str, head: dict[str, object]) -> None:
        self._job = job
        self._name = f"{name}.rest.json"
        self._head = head
        self._file: TargetFile | None = None
        self.count = 0

    def write(self) -> None:
        """Make the file, if it is not there."""
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
        """End the file, if there is one, and report it with the status of what it belongs to."""
        file = self._file
        if file is None or file.closed:
            return
        try:
            file.write(b"\n]}\n")
            file.close()
        except BaseException:
            file.discard()
            raise
        self._job.report(file, status, f"what the saved file does not have: {count_words(self.count, 'part')}")

    def discard(self) -> None:
        """Remove the file, unless it was finished."""
        if self._file is not None:
            self._file.discard()


def text_of(text: str) -> str:
    """Return ``text`` without half characters, which many readers of JSON refuse, and cut where no name is so long."""
    if len(text) > 4096:
        text = text[:4096] + "…"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
