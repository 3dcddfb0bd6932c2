"""Writes truncated or damaged model files such that their own libraries open what is left of them.

`salvage` has a form for safetensors, GGUF, Riegeli, chunked protos (``.cpb``) and plain protocol buffer messages; of
any other model with a viewer it saves the tensors, and of ONNX a model that refers to them. Beside the file itself it
may write ``name.partial/``, a folder with the pieces that no valid file can hold, and ``name.rest.json``, which lists
what the file lacks. Everything is streamed; the same input gives the same bytes.

What the forms have in common is here: `Job`, one model file to save, and `Rest`, the list of what is lost.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice

from pparse.containers.content import GapLog
from pparse.data.base import blocks
from pparse.data.range_status import joined
from pparse.document.extraction import Extraction, extraction_of
from pparse.document.registry import import_dotted, model_extensions, viewer_for
from pparse.errors import EndOfDataError, FaultError, GapError, MalformedError
from pparse.findings import Status
from pparse.limits import MIB, count_words
from pparse.recovery.report import RecoveredFile, doubtful_name
from pparse.tensors.viewer import Viewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.data.base import Data
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.recovery.target import Target, TargetFile
    from pparse.tree.result import Result

    Report = Callable[[RecoveredFile], object]
    OnKept = Callable[[str, int], object]
    JobOf = Callable[[Extraction, str], "Job"]

_MAX_HOLES: Final = 10_000
# What becomes of an attempt: a valid file; nothing is lost, so that the file is written as it is; nothing can be saved.
SAVED: Final = "saved"
UNHARMED: Final = "unharmed"
NOTHING: Final = "nothing"
PROTOBUF: Final = ("saved-model", "graph-def", "meta-graph", "protobuf")
_TENSORS: Final = "tensors"
# What saves each form: the names of parsers, and all others that have a viewer.
_SAVERS: Final = {
    "safetensors": "salvage_tensors:salvage_safetensors",
    "riegeli": "salvage_records:salvage_riegeli",
    **dict.fromkeys(("tfrecord", "tfevents"), "salvage_records:salvage_tfrecord"),
    "json-lines": "salvage_records:salvage_rows",
    "cpb": "salvage_cpb:salvage_cpb",
    **dict.fromkeys(PROTOBUF, "salvage_protobuf:salvage_protobuf"),
    "gguf": "salvage_gguf:salvage_gguf",
    _TENSORS: "salvage_tensors:salvage_tensors",
}
# Of these, each part is judged by itself, also where the whole is in doubt.
_JUDGED_APART: Final = ("safetensors", "tfrecord", "tfevents", "gguf", _TENSORS)
SCHEMA: Final = 1
_STEP: Final = 1 * MIB
# Gaps from this size on are left as holes, which take no room on the disk.
_HOLE: Final = 4096
# How many lost parts get a file of their own; the list has all of them.
_MOST_PIECES: Final = 1_000
# What a model is called whose bytes must not be opened as one.
AS_FOUND: Final = "{}.partial/as-found.bin"


def salvage(
    extraction: Extraction,
    target: Target,
    name: str,
    *,
    report: Report,
    kept: OnKept | None = None,
    is_alone: bool = True,
    keep: bool = False,
) -> bool:
    """Write what is left of an incomplete model file as the valid file ``name`` of ``target``, and report it.

    ``report`` is called once for each file written, the new one first, and for each part of which nothing could be
    saved; no status is COMPLETE unless the part is. ``kept`` is called with name and size of every tensor of a
    safetensors file that is in the new one; ``is_alone``: see `Job`. ``keep``: a model of which nothing can be saved is
    written as it was found, under a name that no library takes for a model. Return False, with nothing written or
    reported, if the format has no such form, if nothing can be saved in it, or if nothing is lost, so that the file
    should be written as it is. Raise `LimitError`; source errors propagate.
    """
    try:
        result = extraction.parse()
    except FaultError:
        return False
    form = _form_of(result)
    if form is None:
        return False

    def job_of(extraction: Extraction, name: str) -> Job:
        job = Job(extraction, name, target, report)
        job.kept, job.is_alone = kept, is_alone
        return job

    outcome = _attempt(result, form, name, job_of)
    if keep and outcome is NOTHING and _is_lost(extraction_of(result)) and not _is_sound(result):
        job_of(extraction_of(result), name).save_as_found()
        return True
    return outcome is SAVED


def _attempt(result: Result, form: str, name: str, job_of: JobOf) -> str:
    """Do what `salvage` does; distinguish files of which nothing is left from those to be written as they are."""
    inner = extraction_of(result)
    start, end = inner.start, max(inner.start, inner.find_end())
    suspect_ranges = inner.data.suspect_ranges_in(start, end)
    if suspect_ranges and form in ("riegeli", "cpb"):
        suspect_ranges = _unproved(inner, start, end)
    if form in PROTOBUF:
        suspect_ranges = joined([*suspect_ranges, *islice(inner.data.holes(start, end), _MAX_HOLES)])
    if suspect_ranges and form not in _JUDGED_APART:
        return _save_apart(inner, form, suspect_ranges, name, job_of)
    if form == _TENSORS and ((viewer := viewer_for(inner)) is None or not viewer.has_values):
        return NOTHING  # nobody looked for the bytes of its tensors: its file is all that can be saved
    job = job_of(inner, name)
    outcome = _save(job, form)
    # Its own format may not tell that it ends where the archive does: there are some that may end in many places.
    member = inner.origin[1] if inner.origin is not None else None
    parser = result.parser
    unlike = parser.is_generic and is_model_name(name) and not name.lower().endswith(parser.extensions)
    if outcome is UNHARMED and not unlike and member is not None and member.is_truncated:
        job.save_cut(member.size or 0)
        return SAVED
    return outcome


def _form_of(result: Result) -> str | None:
    """Return how what is left of a document is saved; None if it is no model, or one in several files."""
    name = result.parser.name
    if name in _SAVERS:
        return name
    if result.parser.reads == "folder":
        return None
    viewer = viewer_for(extraction_of(result))
    return _TENSORS if isinstance(viewer, Viewer) and not viewer.alone.is_set else None


def _is_lost(extraction: Extraction) -> bool:
    """Say whether an error is known in a model of which nothing could be saved."""
    viewer = viewer_for(extraction)
    whole = extraction.is_complete and (viewer is None or viewer.alone.status is Status.COMPLETE)
    return not whole or bool(extraction.findings.errors)


def _is_sound(result: Result) -> bool:
    """Say whether every field of a message with a schema is whole, or every chunk of one in chunks: its library reads
    it, and only the content is odd."""
    if result.parser.name == "cpb":
        return bool(import_dotted("pparse.recovery.salvage_cpb:is_whole")(result.parser))
    if result.parser.name not in PROTOBUF:
        return False
    from pparse.parsers.protobuf.check import Checker

    parser: ProtobufParser = result.parser  # type: ignore[assignment]
    extraction = result.extraction
    part = extraction.data.range(extraction.start, max(extraction.start, extraction.find_end()))
    return parser.root_type is not None and Checker(extraction.session.check_cancelled).sound(part, parser.root_type)


def _unproved(extraction: Extraction, start: int, end: int) -> list[tuple[int, int]]:
    """Compare the hashes of all chunks of a Riegeli file in doubt; return the ranges that no hash proves."""
    from pparse.riegeli.lookup import RecordLookup

    session = extraction.session
    lookup = RecordLookup(extraction.data.range(start, end), session.env, verify="all")
    lookup.survey(lambda _region: session.check_cancelled(), lambda _error: None)
    return extraction.data.suspect_ranges_in(start, end)


def _save_apart(
    extraction: Extraction, form: str, suspect_ranges: list[tuple[int, int]], name: str, job_of: JobOf
) -> str:
    """Save the certain part of a file as ``name``, as if suspect ranges were lost, and all of it under another name.

    If nothing that matters is in a suspect range, nothing is written.
    """
    from pparse.data.spliced import HiddenData

    data = HiddenData(extraction.data, suspect_ranges)
    sure = Extraction(
        extraction.session, extraction.name, data, extraction.start, extraction.end, extraction.parent, form
    )
    start, end = extraction.start, max(extraction.start, extraction.find_end())
    job = job_of(sure, name)
    if form in ("riegeli", "cpb"):
        job.end = end  # a suspect end counts as lost: there may have been more chunks than those before it
    with suppress(MalformedError, EndOfDataError, GapError):
        if _save(job, form) is UNHARMED:
            return UNHARMED
    job = job_of(extraction, doubtful_name(name))
    with job.target.create(job.name) as file:
        gaps = job.copy_known(file, start, end)
    why = extraction.data.why_suspect(start, end) or "some were never written (a file hole), and read as zeros"
    known = [(low - start, high - low) for low, high in suspect_ranges]
    reason = f"some of its bytes may be wrong: {why}"
    job.report(file, Status.DAMAGED, reason, offset=start, gaps=gaps, doubtful=known)
    return SAVED


def _save(job: Job, form: str) -> str:
    outcome: str = import_dotted(f"pparse.recovery.{_SAVERS[form]}")(job)
    return outcome


# -- what the forms have in common -------------------------------------------------------------------------------------


def is_model_name(name: str) -> bool:
    """Say whether a library would take a file for a model by its name."""
    return name.lower().endswith(model_extensions())


def has_lost_bytes(extraction: Extraction) -> bool:
    """Say whether bytes in a document are lost or in doubt; not if only its end is not there."""
    data, start, end = extraction.data, extraction.start, extraction.find_end()
    return any(data.gaps_in(start, end)) or bool(data.suspect_ranges_in(start, end))


class Job:
    """One file to save: where it is read from, and where it is written to.

    Its bytes are ``data[start:end]``. After ``solid`` (in most files that is ``end``) the places of bytes are not
    known, since an unknown number of bytes is missing before them.
    """

    kept: OnKept | None = None
    """Called with name and size of every tensor of a safetensors file that is in the new one."""
    is_alone = True
    """Whether nothing else is written of the document: not if the caller writes it as it was found, too."""

    def __init__(self, extraction: Extraction, name: str, target: Target, report: Report) -> None:
        self.extraction = extraction
        """The document."""
        self.session = extraction.session
        self.data = extraction.data
        """The bytes of the document and what is around it."""
        self.start = extraction.start
        """Offset of the first byte of the document in `data`."""
        self.end = max(self.start, extraction.find_end())
        """Offset after the last known byte of the document."""
        self.target = target
        """The folder to write to."""
        self.name = name
        """Name of the new file."""
        self._report = report
        self._done = 0
        gaps = self.data.gaps_in(self.start, self.end)
        self.loose = [gap for gap in gaps if (gap.length is None or not gap.exact) and gap.offset >= self.start]
        self.solid = self.loose[0].offset if self.loose else self.end

    @property
    def has_gaps(self) -> bool:
        """Whether bytes are missing anywhere but at the end."""
        return any(gap.length is not None for gap in self.data.gaps_in(self.start, self.end))

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
        return blocks(self.data.pread, start, stop, _STEP)

    def copy_known(self, file: TargetFile, start: int, stop: int, data: Data | None = None) -> GapLog:
        """Write the bytes ``[start, stop)``, gaps as holes; return the gaps, with offsets in the file.

        ``data``: where they are, if not in those of the document. Ends early where nothing more can be read.
        """
        data = self.data if data is None else data
        gaps = GapLog()
        offset = start
        while offset < stop:
            self.advance(0, None)
            gap = data.next_gap(offset)
            if gap is not None and gap.offset <= offset and gap.end is not None and gap.end - offset > _STEP:
                chunk, unknown = b"", [(offset, min(gap.end, stop) - offset)]  # a long hole, at once
            else:
                try:
                    chunk, unknown = data.read_known(offset, min(_STEP, stop - offset))
                except (MalformedError, EndOfDataError, GapError):
                    break
            if not chunk and not unknown:
                break
            done = offset
            for first, count in unknown:
                gaps.add(first - start, count)
                if count >= _HOLE:
                    file.write(chunk[done - offset : first - offset])
                    file.skip(count)
                    done = first + count
            file.write(chunk[done - offset :])
            offset = max(offset + len(chunk), done)
        return gaps

    def save_piece(
        self, name: str, start: int, stop: int, reason: str, status: Status = Status.DAMAGED, *, if_known: bool = False
    ) -> bool:
        """Write the bytes ``[start, stop)`` as the file ``name``, as `copy_known` does, and report it.

        ``if_known``: there is no file if not one of them is known. Return whether there is one.
        """
        with self.target.create(name) as file:
            gaps = self.copy_known(file, start, stop)
            if if_known and file.bytes == gaps.known:
                file.discard()
                return False
        self.report(file, status, reason, offset=start, gaps=gaps)
        return True

    def save_as_found(self) -> None:
        """Write the bytes of a model that cannot be made valid, under a name that no library takes for a model."""
        reason = "no tensor, record or field is whole; these are the bytes as found"
        self.save_piece(AS_FOUND.format(self.name), self.start, self.end, reason)

    def save_cut(self, size: int) -> None:
        """Write the bytes of a model of ``size`` bytes, cut where its format may end: what is there opens as it is."""
        have = self.end - self.start
        missing = max(0, size - have)
        with self.target.create(self.name) as file:
            gaps = self.copy_known(file, self.start, self.end)
        gaps.add(have, missing or None)
        reason = f"it ends after {have:,} of {have + missing:,} bytes; what is there is whole"
        self.report(file, Status.TRUNCATED, reason, offset=self.start, gaps=gaps)

    def conclude(
        self, file: TargetFile, status: Status, reason: str, rest: Rest, *saves: Callable[[], object], stem: str = ""
    ) -> str:
        """Report the saved file, write what is left of the lost parts, do ``saves``, and finish the list of the parts.

        ``stem``: of the folder for what is left, if that is not the path of the file. Return what became of it.
        """
        self.report(file, status, reason)
        try:
            rest.save_pieces(stem or file.path, status)
            for save in saves:
                save()
        finally:
            rest.finish(status)
        return SAVED

    def give_up(self, file: TargetFile, rest: Rest, *, is_unharmed: bool = False) -> str:
        """Remove what was begun, and return what became of it; ``is_unharmed``: nothing is lost."""
        rest.discard()
        file.discard()
        return UNHARMED if is_unharmed else NOTHING

    def save_loose(self, name: str) -> None:
        """Write the byte ranges whose place in the file is not known, one file each."""
        reason = "its place in the file is not known: an unknown number of bytes is missing before it"
        for number, gap in enumerate(self.loose):
            if gap.length is None:
                break
            start = gap.offset + gap.length
            stop = self.loose[number + 1].offset if number + 1 < len(self.loose) else self.end
            if start < stop:
                self.save_piece(f"{name}.partial/behind-{gap.offset}.bin", start, stop, reason)


class Rest:
    """Writes ``name.rest.json``, which lists what a salvaged file lacks: ``head``, and entries in the list ``lost``.

    The file is created with the first entry, or by `open`. ``count`` is the number of entries. As a context manager it
    is removed after an exception.
    """

    def __init__(self, job: Job, name: str, head: dict[str, object]) -> None:
        self._job = job
        self._name = f"{name}.rest.json"
        self._head = head
        self._file: TargetFile | None = None
        self._pieces: list[tuple[str, int, int, str, Status | None]] = []
        self.count = 0

    def open(self) -> TargetFile:
        """Return the file; create it, if it does not exist."""
        if self._file is None:
            self._file = self._job.target.create(self._name)
            head = json.dumps({"schema": SCHEMA, **self._head})
            self._file.write(f'{head[:-1]}, "lost": ['.encode())
        return self._file

    def add(self, entry: dict[str, object]) -> None:
        """Add an entry, which is written on a line of its own."""
        separator = ",\n" if self.count else "\n"
        self.open().write((separator + json.dumps(entry)).encode())
        self.count += 1

    def lose(
        self, entry: dict[str, object], name: str, start: int, stop: int, reason: str, status: Status | None = None
    ) -> None:
        """Add an entry, and keep ``[start, stop)`` of the document for `save_pieces`, of the first 1,000 of them.

        ``status``: of the bytes; None: that of the saved file.
        """
        self.add(entry)
        if start < stop and len(self._pieces) < _MOST_PIECES:
            self._pieces.append((name, start, stop, reason, status))

    def save_pieces(self, stem: str, status: Status) -> None:
        """Write the known bytes of lost parts beside the file ``stem``, which has ``status``, one file each."""
        for name, start, stop, reason, own in self._pieces:
            self._job.save_piece(f"{stem}.partial/{name}", start, stop, reason, own or status)

    def finish(self, status: Status) -> None:
        """Finish the file, if there is one, and report it with ``status``, that of the salvaged file.

        It is never complete: whatever a report calls so is a file of the input.
        """
        file = self._file
        if file is None or file.closed:
            return
        with file:
            file.write(b"\n]}\n")
        self._job.report(file, status, f"what the saved file lacks: {count_words(self.count, 'part')}")

    def discard(self) -> None:
        """Remove the file, unless it was finished."""
        if self._file is not None:
            self._file.discard()

    def __enter__(self) -> Rest:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.discard()


def text_of(text: str) -> str:
    """Return ``text`` without lone surrogates, which many readers of JSON refuse, cut to the length of any name."""
    if len(text) > 4096:
        text = text[:4096] + "…"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
