"""safetensors files: entries of the header and bytes are judged apart, and bytes are copied as they lie in the file.

See `pparse.recovery.salvage_tensors` for how the whole tensors are written. Beside them go parts of the others, and
bytes that no tensor claims, since its entry is lost.
"""

from __future__ import annotations

import json
from functools import cached_property

from pparse.data.range_status import cut_status
from pparse.errors import EndOfDataError, GapError, MalformedError
from pparse.findings import Finding, Severity, Status
from pparse.recovery.salvage import NOTHING, SAVED, UNHARMED
from pparse.recovery.salvage_tensors import Leftovers, TensorJudge, report_suspect, save_model, save_suspect
from pparse.tree.entry import SCALAR
from pparse.viewers.safetensors.rules import REFUSED
from pparse.viewers.safetensors.viewer import SafetensorsViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pparse.recovery.salvage import Job
    from pparse.recovery.salvage_tensors import SalvagePlan
    from pparse.recovery.target import TargetFile
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer


class SafetensorsJudge(TensorJudge):
    """Judges each tensor by its entry in the header, and by its bytes."""

    is_copied = True

    def __init__(self, job: Job, viewer: SafetensorsViewer) -> None:
        super().__init__(job)
        self._viewer = viewer
        self.header_suspect = job.data.why_suspect(job.start, viewer.parser.data_start)
        """Why the header may be wrong, if it may."""
        self._cut = not job.loose or job.loose[0].length is None
        self._lost = (
            "it lies beyond the end of the data" if self._cut else "an unknown number of bytes is missing before it"
        )

    def judge(self, number: int, tensor: Tensor) -> tuple[Status, str, bool]:
        """Return the status of a tensor, the reason, and whether its only problem is that it may be wrong: its bytes,
        or its entry."""
        claimed = tensor.claimed_status
        shifted = tensor.finding.reason if tensor.finding is not None and tensor.finding.code == "shifted" else None
        if shifted is not None or _is_unread(tensor):  # present, but perhaps not original, or not supported by numpy
            claimed = Status.COMPLETE
        if claimed in (Status.UNSUPPORTED, Status.DAMAGED) or not tensor.spans or tensor.dtype is None:
            reason = tensor.finding.reason if tensor.finding is not None else "its header entry cannot be read"
            return (Status.DAMAGED if claimed is Status.COMPLETE else claimed), reason, False
        span = tensor.spans[0]
        found = self._of_bytes(span.offset, span.offset + span.length) if span.length else None
        if found is not None:
            return *found, False
        if number in self.spoiled:
            return Status.DAMAGED, "its bytes cannot be read", False
        doubt = self.header_suspect
        if span.length:
            doubt = self._job.data.why_suspect(span.offset, span.offset + span.length) or doubt or shifted
        if tensor.unwritten_nbytes:
            doubt = f"{tensor.unwritten_nbytes:,} bytes of it were never written (a file hole)"
        return Status.COMPLETE if doubt is None else Status.DAMAGED, doubt or "", doubt is not None

    def _of_bytes(self, start: int, stop: int) -> tuple[Status, str] | None:
        """Return what is lost of the bytes ``[start, stop)``; None: nothing."""
        data, solid = self._job.data, self._job.solid
        if start >= solid:
            return Status.MISSING, self._lost
        gap = data.next_gap(start)
        if gap is not None and gap.offset < min(stop, solid):
            limit = data.passed_over(max(start, gap.offset), stop)
            if limit is not None:
                return Status.UNSUPPORTED, limit
            if gap.offset <= start and gap.end is not None and gap.end >= stop:
                return Status.MISSING, "it lies in a gap"
            return Status.DAMAGED, "there is a gap in it"
        return (cut_status(damaged=not self._cut), "it ends early") if stop > solid else None

    def metadata(self, viewer: Viewer) -> dict[str, str] | None:
        """Return those of the old file that the library takes: strings."""
        kept = self.kept_metadata
        return None if kept is None else {key: value for key, value in kept.items() if isinstance(value, str)}

    @cached_property
    def kept_metadata(self) -> dict[str, object] | None:
        """The whole entries of ``__metadata__``; None if there is none."""
        node = self._viewer.parser.metadata_node()
        if node is None or node.shape == SCALAR:
            return None
        return {key: value for key, value in self._viewer.metadata.items() if _writable(value)}


def salvage_safetensors(job: Job) -> str:
    """Write the whole tensors as a safetensors file, suspect ones as a second file, and the others beside it;
    see `pparse.recovery.salvage`."""
    try:
        viewer = SafetensorsViewer(job.extraction)
        viewer.resolve_all()
        parser = viewer.parser
        parser.resolve_header()
        if not parser.is_object:
            return NOTHING
        judge = SafetensorsJudge(job, viewer)
        refused = _refused(viewer)
        opens = parser.text_status is Status.COMPLETE and parser.wrong_length is None and not refused
        plan, file = save_model(job, viewer, judge, is_suspect=False, opens=opens)
        if opens and plan.worst is Status.COMPLETE:
            return UNHARMED
        suspect, second = save_suspect(job, viewer, judge, plan)
        if file is None and second is None:  # a model without tensors
            plan, file = save_model(job, viewer, judge, is_suspect=False, empty=True)
    except (MalformedError, GapError, EndOfDataError):  # in the header; those in tensors are noted
        return NOTHING
    status: Status = Status.TRUNCATED if plan.worst is Status.COMPLETE else plan.worst
    if file is not None:
        status = _report_model(job, viewer, judge, plan, file, refused)
    if second is not None:
        report_suspect(job, suspect, second)
    path = None if second is None else second.path
    SafetensorsLeftovers(job, viewer, judge, status, file.path if file is not None else path or job.name, path).save()
    return SAVED


def _is_unread(tensor: Tensor) -> bool:
    """Say whether only pparse has no array for a tensor (too many dimensions): its entry and its bytes may be right."""
    finding = tensor.finding
    return tensor.claimed_status is Status.UNSUPPORTED and finding is not None and finding.severity is Severity.WARNING


def _writable(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _refused(viewer: SafetensorsViewer) -> list[Finding]:
    """Return why the library would refuse the file even if all its tensors were whole."""
    found = viewer.findings if len(viewer.findings) else viewer.parser.text_findings
    return [finding for finding in found if finding.code in REFUSED]


def _report_model(
    job: Job,
    viewer: SafetensorsViewer,
    judge: SafetensorsJudge,
    plan: SalvagePlan,
    file: TargetFile,
    refused: list[Finding],
) -> Status:
    """Report the new file, and return its status."""
    parser = viewer.parser
    problem = None if parser.is_plain else parser.header.root.finding
    least = "at least " if parser.text_status is not Status.COMPLETE else ""
    reason = f"{plan.count:,} of {least}{plan.total:,} tensors are whole"
    if problem is not None:
        reason += f"; its header: {problem.reason}"
    status = plan.worst
    if status is Status.COMPLETE:
        errors = any(finding.severity is Severity.ERROR for finding in refused)
        status = Status.TRUNCATED if not refused else Status.DAMAGED if errors else Status.COMPLETE
    if refused:
        first = refused[0]
        left = f" ({first.length:,} bytes, left out)" if first.code in ("trailing-bytes", "gap") else ""
        reason += f"; rewritten, since the library refuses it: {first.reason}{left}"
    if judge.header_suspect is not None or job.has_gaps or parser.text_status is Status.DAMAGED or parser.is_at_odds:
        status = Status.DAMAGED
    job.report(file, status, reason)
    return status


class SafetensorsLeftovers(Leftovers):
    """Writes the known bytes of tensors that are in neither file, of those whose entries are lost, and a list."""

    viewer: SafetensorsViewer
    _judge: SafetensorsJudge
    is_listed = False

    def metadata(self) -> dict[str, object] | None:
        """Return those of the old file."""
        return self._judge.kept_metadata

    @property
    def end(self) -> int | None:
        """Behind it, nobody knows where bytes belong."""
        return self.job.solid

    def place(self, tensor: Tensor) -> dict[str, object]:
        """Return where the header says that a tensor lies."""
        if not tensor.spans:
            return {"data_offsets": None}
        begin = tensor.spans[0].offset - self.viewer.parser.data_start
        return {"data_offsets": [begin, begin + tensor.spans[0].length]}

    def save_others(self) -> None:
        """Write the bytes of tensors whose header entries are lost, and those whose places nobody knows."""
        job, parser = self.job, self.viewer.parser
        if parser.text_status is not Status.COMPLETE:
            places = parser.all_places()
            start = parser.data_start
            last = max(0, job.solid - start)
            for begin, end in [*places.breaks, (places.end, last)]:
                if begin < min(end, last):
                    name = f"{self.name}.partial/unnamed-{start + begin}.bin"
                    reason = "bytes of tensors whose entries in the header are lost"
                    job.save_piece(name, start + begin, start + min(end, last), reason, if_known=True)
        job.save_loose(self.name)
