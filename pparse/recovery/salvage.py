"""Writes truncated or damaged model files such that their own libraries open what is left of them.

`salvage` has a form for safetensors, Riegeli, chunked protos (``.cpb``) and plain protocol buffer messages; of any
other model with a viewer it saves the tensors, and of ONNX a model that refers to them. Beside the file itself it may
write ``name.partial/``, a folder with the pieces that no valid file can hold, and ``name.rest.json``, which lists what
the file lacks. Everything is streamed; the same input gives the same bytes.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from pparse.data.stretches import joined
from pparse.document.extraction import Extraction, extraction_of
from pparse.errors import PASSING, EndOfDataError, GapError, LimitError, MalformedError, PparseError
from pparse.findings import Status
from pparse.recovery.report import doubtful_name
from pparse.recovery.salvage_job import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.recovery.salvage_job import OnKept, Report
    from pparse.recovery.target import Target
    from pparse.tree.result import Result

_MAX_HOLES: Final = 10_000
# Results of an attempt.
_SAVED: Final = "saved"
_UNHARMED: Final = "unharmed"
_NOTHING: Final = "nothing"
PROTOBUF: Final = ("saved-model", "graph-def", "meta-graph", "protobuf")
_OWN_FORMS: Final = ("safetensors", "riegeli", "cpb", "tfrecord", *PROTOBUF)
_TENSORS: Final = "tensors"
# Of these, each part is judged by itself, also where the whole is in doubt.
_JUDGED_APART: Final = ("safetensors", "tfrecord", _TENSORS)


def salvage(
    extraction: Extraction,
    target: Target,
    name: str,
    *,
    report: Report,
    kept: OnKept | None = None,
    is_alone: bool = True,
) -> bool:
    """Write what is left of an incomplete model file as the valid file ``name`` of ``target``, and report it.

    ``report`` is called once for each file written, the new one first, and for each part of which nothing could be
    saved; no status is COMPLETE unless the part is. ``kept`` is called with name and size of every tensor of a
    safetensors file that is in the new one; ``is_alone``: see `Job`. Return False, with nothing written or reported, if
    the format has no such form, if nothing can be saved in it, or if nothing is lost, so that the file should be
    written as it is. Raise `LimitError`; source errors propagate.
    """
    return _attempt(extraction, target, name, report, kept, is_alone=is_alone) is _SAVED


def _attempt(
    extraction: Extraction, target: Target, name: str, report: Report, kept: OnKept | None, *, is_alone: bool = True
) -> str:
    """Do what `salvage` does; distinguish files of which nothing is left from those to be written as they are."""
    try:
        result = extraction.parse()
    except PASSING:
        raise
    except LimitError:
        raise
    except PparseError:
        return _NOTHING
    form = _form_of(result)
    inner = extraction_of(result)
    if form is None:
        return _NOTHING
    start, end = inner.start, max(inner.start, inner.known_end())
    suspect_ranges = inner.data.suspect_ranges_in(start, end)
    if suspect_ranges and form in ("riegeli", "cpb"):
        suspect_ranges = _unproved(inner)
    if form in PROTOBUF:
        suspect_ranges = joined([*suspect_ranges, *islice(inner.data.holes(start, end), _MAX_HOLES)])
    if suspect_ranges and form not in _JUDGED_APART:
        return _save_apart(inner, form, suspect_ranges, target, name, report)
    if form == _TENSORS and not _has_values(inner):
        return _NOTHING
    job = Job(inner, target, name, report)
    job.kept, job.is_alone = kept, is_alone
    return _SAVED if _save(job, form) else _UNHARMED if job.is_unharmed else _NOTHING


def salvage_or_keep(extraction: Extraction, target: Target, name: str, *, report: Report) -> bool:
    """Do what `salvage` does; a model of which nothing can be saved is written as it was found, under a name that no
    library takes for a model."""
    outcome = _attempt(extraction, target, name, report, None)
    if outcome is not _NOTHING:
        return outcome is _SAVED
    result = extraction.parse()
    if _form_of(result) is None or not _is_lost(extraction_of(result)):
        return False
    if _is_sound(result):
        return False  # all its fields are whole and its library reads it: only their content is odd
    Job(extraction_of(result), target, name, report).save_as_found()
    return True


def _form_of(result: Result) -> str | None:
    """Return how what is left of a document is saved; None if it is no model, or one in several files."""
    from pparse.document.registry import viewer_for
    from pparse.tensors.viewer import Viewer

    name = result.parser.name
    if name in _OWN_FORMS:
        return name
    if result.parser.reads == "folder":
        return None
    viewer = viewer_for(extraction_of(result))
    return _TENSORS if isinstance(viewer, Viewer) and not viewer.alone.is_set else None


def _has_values(extraction: Extraction) -> bool:
    """Say whether the bytes of a model's tensors were looked for; if not, its file is all that can be saved."""
    from pparse.document.registry import viewer_for

    viewer = viewer_for(extraction)
    return viewer is not None and viewer.has_values


def _is_lost(extraction: Extraction) -> bool:
    """Say whether an error is known in a model of which nothing could be saved."""
    from pparse.document.registry import viewer_for

    viewer = viewer_for(extraction)
    whole = extraction.status is Status.COMPLETE and (viewer is None or viewer.alone.status is Status.COMPLETE)
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
    """Compare the hashes of all chunks of a Riegeli file in doubt; return the ranges that no hash proves."""
    from pparse.riegeli.lookup import RecordLookup

    session, data = extraction.session, extraction.data
    start, end = extraction.start, max(extraction.start, extraction.known_end())
    lookup = RecordLookup(
        data.range(start, end), verify="all", budget=session.budget, limits=session.limits, scratch=session.spools
    )
    lookup.survey(lambda _region: session.check_cancelled(), lambda _error: None)
    return data.suspect_ranges_in(start, end)


def _save_apart(
    extraction: Extraction, form: str, suspect_ranges: list[tuple[int, int]], target: Target, name: str, report: Report
) -> str:
    """Save the certain part of a file as ``name``, as if suspect ranges were lost, and all of it under another name.

    If nothing that matters is in a suspect range, nothing is written.
    """
    from pparse.data.spliced import HiddenData

    data = HiddenData(extraction.data, suspect_ranges)
    sure = Extraction(
        extraction.session, extraction.name, data, extraction.start, extraction.end, extraction.parent, form
    )
    start, end = extraction.start, max(extraction.start, extraction.known_end())
    job = Job(sure, target, name, report)
    if form in ("riegeli", "cpb"):
        job.end = end  # a suspect end counts as lost: there may have been more chunks than those before it
    with suppress(MalformedError, EndOfDataError, GapError):
        if not _save(job, form) and job.is_unharmed:
            return _UNHARMED
    job = Job(extraction, target, doubtful_name(name), report)
    with target.create(job.name) as file:
        gaps = job.copy_known(file, start, end)
    why = extraction.data.why_suspect(start, end) or "some were never written (a file hole), and read as zeros"
    reason = f"some of its bytes may be wrong: {why}"
    known = [(low - start, high - low) for low, high in suspect_ranges]
    job.report(file, Status.DAMAGED, reason, offset=start, gaps=gaps, doubtful=known)
    return _SAVED


def _save(job: Job, form: str) -> bool:
    if form == "safetensors":
        from pparse.recovery.salvage_safetensors import salvage_safetensors

        return salvage_safetensors(job)
    if form == "tfrecord":
        from pparse.recovery.salvage_tfrecord import salvage_tfrecord

        return salvage_tfrecord(job)
    if form == _TENSORS:
        from pparse.recovery.salvage_tensors import salvage_tensors

        return salvage_tensors(job)
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
