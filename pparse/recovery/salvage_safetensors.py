"""safetensors files: writes the whole tensors to a new file, suspect ones to a second, parts of others beside it.

The header is read several times rather than held: once to judge the tensors, twice to write the new header (whose
length comes first). A few numbers are kept per tensor.
"""

from __future__ import annotations

import json
from array import array

from pparse.data.base import Access
from pparse.data.range_status import cut_status
from pparse.errors import EndOfDataError, GapError, MalformedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import MIB, count_words
from pparse.parsers.safetensors.entry import METADATA, REFERENCE_HEADER_LIMIT
from pparse.parsers.safetensors.layout import lay
from pparse.recovery.reader_rules import measured, safetensors_header, why_no_name
from pparse.recovery.report import RecoveredFile, doubtful_name
from pparse.recovery.salvage_job import Rest, part_words, text_of
from pparse.recovery.tensor_judge import TOO_LONG
from pparse.tree.entry import SCALAR
from pparse.viewers.safetensors.rules import REFUSED
from pparse.viewers.safetensors.viewer import SafetensorsViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.recovery.salvage_job import Job
    from pparse.recovery.target import TargetFile
    from pparse.tensors.tensor import Tensor

_STEP: Final = 1 * MIB
# How often tensors are judged again if gaps only show while reading.
_TRIES: Final = 4
_COST: Final = 120  # bytes kept of each tensor, sorting included
_MOST_DIMENSIONS: Final = 64


class _SpoiledError(Exception):
    """A tensor that was believed to be whole turned out not to be."""


def _is_unread(tensor: Tensor) -> bool:
    """Say whether only pparse has no array for a tensor (too many dimensions): its entry and its bytes may be right."""
    finding = tensor.finding
    return tensor.claimed_status is Status.UNSUPPORTED and finding is not None and finding.severity is Severity.WARNING


class _Judge:
    """Judges each tensor: whole, suspect, incomplete or missing."""

    def __init__(self, job: Job, viewer: SafetensorsViewer) -> None:
        self._job = job
        self.base = viewer.parser.data_start
        self.spoiled: set[int] = set()
        self.too_many: dict[bool, int] = {}  # as of `TensorJudge`
        self.is_suspect = False
        self.header_suspect = job.data.why_suspect(job.start, self.base)
        self._cut = not job.loose or job.loose[0].length is None
        self._lost = (
            "it lies beyond the end of the data" if self._cut else "an unknown number of bytes is missing before it"
        )

    def judge(self, number: int, tensor: Tensor) -> tuple[Status, str]:
        """Return the status of a tensor and the reason; COMPLETE and no reason if it is whole, and can be written.

        Sets ``is_suspect`` if the only problem is that its bytes, or its header entry, may be wrong.
        """
        status, reason = self._of_bytes(number, tensor)
        if status is Status.COMPLETE or self.is_suspect:
            why = why_no_name(tensor.name, "safetensors")
            if why is None and number >= self.too_many.get(self.is_suspect, number + 1):
                why = TOO_LONG
            if why is not None:
                self.is_suspect = False
                return Status.UNSUPPORTED, f"{reason}; {why}" if reason else why
        return status, reason

    def _of_bytes(self, number: int, tensor: Tensor) -> tuple[Status, str]:
        self.is_suspect = False
        claimed = tensor.claimed_status
        shifted = tensor.finding.reason if tensor.finding is not None and tensor.finding.code == "shifted" else None
        if shifted is not None or _is_unread(tensor):  # present, but perhaps not original, or not supported by numpy
            claimed = Status.COMPLETE
        if claimed in (Status.UNSUPPORTED, Status.DAMAGED) or not tensor.spans or tensor.dtype is None:
            reason = tensor.finding.reason if tensor.finding is not None else "its header entry cannot be read"
            return (Status.DAMAGED if claimed is Status.COMPLETE else claimed), reason
        span = tensor.spans[0]
        start, stop, data = span.offset, span.offset + span.length, self._job.data
        if start == stop:
            self.is_suspect = self.header_suspect is not None
            return (Status.DAMAGED, self.header_suspect) if self.header_suspect else (Status.COMPLETE, "")
        if start >= self._job.solid:
            return Status.MISSING, self._lost
        gap = data.next_gap(start)
        if gap is not None and gap.offset < min(stop, self._job.solid):
            limit = data.passed_over(max(start, gap.offset), stop)
            if limit is not None:
                return Status.UNSUPPORTED, limit
            if gap.offset <= start and gap.end is not None and gap.end >= stop:
                return Status.MISSING, "it lies in a gap"
            return Status.DAMAGED, "there is a gap in it"
        if stop > self._job.solid:
            return cut_status(damaged=not self._cut), "it ends early"
        if number in self.spoiled:
            return Status.DAMAGED, "its bytes cannot be read"
        why_suspect = data.why_suspect(start, stop) or self.header_suspect or shifted
        if tensor.unwritten_nbytes:
            why_suspect = f"{tensor.unwritten_nbytes:,} bytes of it were never written (a file hole)"
        self.is_suspect = why_suspect is not None
        return (Status.COMPLETE, "") if why_suspect is None else (Status.DAMAGED, why_suspect)


class _Plan:
    """The tensors that are whole (with ``is_suspect``: whole, but perhaps wrong), in header order, and their new
    places.

    ``starts`` and ``sizes`` locate their bytes, ``numbers`` are their indices among all ``total`` tensors, ``order``
    sorts them by their bytes in the old file and so in the new one, ``places`` are their offsets there.
    """

    def __init__(self, judge: _Judge, viewer: SafetensorsViewer, job: Job, *, is_suspect: bool) -> None:
        self.numbers, self.starts, self.sizes = array("q"), array("q"), array("q")
        self.total = 0
        self.opens = True  # whether the library opens the old file, as far as the tensors go
        self.whole = True  # whether there is nothing wrong with any of them
        self.worst = Status.TRUNCATED
        self.charge = job.session.budget.charge(0, "the places of tensors")
        for number, tensor in enumerate(viewer.tensors()):
            self.total += 1
            status, _ = judge.judge(number, tensor)
            if judge.is_suspect if is_suspect else status is Status.COMPLETE:
                self._add(number, tensor)
            if status is Status.COMPLETE:
                continue
            self.opens = self.whole = False
            if status in (Status.DAMAGED, Status.UNSUPPORTED):
                self.worst = Status.DAMAGED
        self.order: list[int] | range = range(len(self.numbers))
        job.session.check_cancelled()
        if any(self.starts[at] < self.starts[at - 1] for at in range(1, len(self.starts))):
            self.order = sorted(self.order, key=self.starts.__getitem__)
        self.places = array("q", bytes(8 * len(self.numbers)))
        self.bytes = 0
        for at in self.order:
            self.places[at] = self.bytes
            self.bytes += self.sizes[at]

    def _add(self, number: int, tensor: Tensor) -> None:
        span = tensor.spans[0]
        if not len(self.numbers) % 4096:
            self.charge.resize(_COST * (len(self.numbers) + 4096))
        self.numbers.append(number)
        self.starts.append(span.offset)
        self.sizes.append(span.length)


def salvage_safetensors(job: Job) -> bool:
    """Write the whole tensors as a safetensors file, suspect ones as a second file, and the others beside it;
    see `pparse.recovery.salvage`."""
    try:
        viewer = SafetensorsViewer(job.extraction)
        viewer.settle()
        if viewer.parser.header.root.kind != "object":
            return False
        judge = _Judge(job, viewer)
        metadata = _metadata(viewer)
        refused = _refused(viewer)
        sure = _save_model(job, viewer, judge, metadata, refused=bool(refused), is_suspect=False)
        if sure is None:
            return False
        doubtful = _save_model(job, viewer, judge, metadata, is_suspect=True)
    except (MalformedError, GapError, EndOfDataError):  # in the header; errors in tensors raise _SpoiledError
        return False
    plan, file = sure
    second = doubtful[1] if doubtful is not None else None
    if file is None and second is None:  # a model without tensors
        file = _write(job, viewer, judge, plan, metadata, job.name)
    path = second.path if second is not None else None
    status = plan.worst
    if file is not None:
        status = _report_model(job, viewer, judge, plan, file, refused)
    if second is not None and doubtful is not None:
        count = count_words(len(doubtful[0].numbers), "tensor")
        job.report(second, Status.DAMAGED, f"{count} that may be wrong", doubtful=((0, second.bytes),))
    _finish(job, viewer, judge, status, metadata, file.path if file is not None else path or job.name, path)
    return True


def _save_model(
    job: Job,
    viewer: SafetensorsViewer,
    judge: _Judge,
    metadata: dict[str, object] | None,
    *,
    refused: bool = False,
    is_suspect: bool,
) -> tuple[_Plan, TargetFile | None] | None:
    """Write the certain tensors, or the suspect ones; no file if there are none. None if the old file is as good."""
    for _ in range(_TRIES):
        plan = _Plan(judge, viewer, job, is_suspect=is_suspect)
        try:
            whole = viewer.parser.header.status is Status.COMPLETE and viewer.parser.wrong_length is None
            if plan.opens and whole and not refused:
                if job.data.access is not Access.FREE:  # else all gaps are known
                    for _ in _contents(job, judge, plan):
                        job.session.check_cancelled()
                job.is_unharmed = not is_suspect
                return None
            length, fitting = measured(_header(viewer, plan, metadata))
            if plan.numbers and length > REFERENCE_HEADER_LIMIT:
                judge.too_many[is_suspect] = plan.numbers[fitting]
                continue
            name = doubtful_name(job.name) if is_suspect else job.name
            return plan, _write(job, viewer, judge, plan, metadata, name) if plan.numbers else None
        except _SpoiledError:
            continue
        finally:
            plan.charge.release()
    return None


def _refused(viewer: SafetensorsViewer) -> list[Finding]:
    """Return why the library would refuse the file even if all its tensors were whole."""
    found = viewer.findings if len(viewer.findings) else viewer.parser.header.findings
    return [finding for finding in found if finding.code in REFUSED]


# -- the file ----------------------------------------------------------------------------------------------------------


def _write(
    job: Job, viewer: SafetensorsViewer, judge: _Judge, plan: _Plan, metadata: dict[str, object] | None, name: str
) -> TargetFile:
    """Write the new file. If a tensor turns out not to be whole, remove the file and raise `_SpoiledError`."""
    size, _ = measured(_header(viewer, plan, metadata))
    total = 8 + size + plan.bytes
    with job.target.create(name) as file:
        file.write(size.to_bytes(8, "little"))
        for piece in _header(viewer, plan, metadata):
            file.write(piece)
        file.write(b" " * (8 + size - file.bytes))
        job.advance(file.bytes, total)
        for chunk in _contents(job, judge, plan):
            file.write(chunk)
            job.advance(len(chunk), total)
    return file


def _contents(job: Job, judge: _Judge, plan: _Plan) -> Iterator[bytes]:
    """Yield the bytes of the whole tensors, in the order of the old file. Raise `_SpoiledError`."""
    for at in plan.order:
        start, stop = plan.starts[at], plan.starts[at] + plan.sizes[at]
        while start < stop:
            chunk = _known(job, start, min(_STEP, stop - start))
            if not chunk:
                judge.spoiled.add(plan.numbers[at])
                raise _SpoiledError
            yield chunk
            start += len(chunk)


def _known(job: Job, offset: int, length: int) -> bytes:
    try:
        return job.data.pread(offset, length)
    except (GapError, MalformedError, EndOfDataError):
        return b""


def _header(viewer: SafetensorsViewer, plan: _Plan, metadata: dict[str, object] | None) -> Iterator[bytes]:
    """Yield the new header, an entry at a time, as the library writes it."""
    kept = None
    if metadata is not None:  # the library takes only strings
        kept = {key: value for key, value in metadata.items() if isinstance(value, str)}
    return safetensors_header(_entries(viewer, plan), kept)


def _entries(viewer: SafetensorsViewer, plan: _Plan) -> Iterator[tuple[str, str, Sequence[int], int, int]]:
    at = 0
    for number, tensor in enumerate(viewer.tensors()):
        if at == len(plan.numbers):
            break
        if number != plan.numbers[at]:
            continue
        begin = plan.places[at]
        yield tensor.name, tensor.stored_dtype, tensor.shape, begin, begin + plan.sizes[at]
        at += 1


def _metadata(viewer: SafetensorsViewer) -> dict[str, object] | None:
    """Return the whole entries of ``__metadata__``; None if there is none."""
    node = viewer.parser.header.root.find(METADATA)
    if node is None or node.shape == SCALAR:
        return None
    return {key: value for key, value in viewer.metadata.items() if _writable(value)}


def _writable(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


# -- what is beside it -------------------------------------------------------------------------------------------------


def _report_model(
    job: Job, viewer: SafetensorsViewer, judge: _Judge, plan: _Plan, file: TargetFile, refused: list[Finding]
) -> Status:
    """Report the new file, and return its status."""
    status = plan.worst
    header = viewer.parser.header
    problem = header.root.finding
    least = "at least " if header.status is not Status.COMPLETE else ""
    reason = f"{len(plan.numbers):,} of {least}{plan.total:,} tensors are whole"
    if problem is not None:
        reason += f"; its header: {problem.reason}"
    if refused:
        reason += f"; rewritten, since the library refuses it: {_words(refused[0])}"
        if plan.whole:
            errors = any(finding.severity is Severity.ERROR for finding in refused)
            status = Status.DAMAGED if errors else Status.COMPLETE
    at_odds = viewer.parser.is_at_odds
    if judge.header_suspect is not None or job.has_gaps or header.status is Status.DAMAGED or at_odds:
        status = Status.DAMAGED
    job.report(file, status, reason)
    return status


def _finish(
    job: Job,
    viewer: SafetensorsViewer,
    judge: _Judge,
    status: Status,
    metadata: dict[str, object] | None,
    path: str,
    second: str | None,
) -> None:
    """Write the known bytes of tensors that are in neither file, and a list of what the first lacks."""
    rest = Rest(job, path, {"format": "safetensors", "metadata": metadata})
    try:
        if metadata:
            rest.write()
        for number, tensor in enumerate(viewer.tensors()):
            job.session.check_cancelled()
            became, why = judge.judge(number, tensor)
            if became is Status.COMPLETE:
                if job.kept is not None:
                    job.kept(tensor.name, tensor.stored_nbytes)
            else:
                rest.add(_save_part(job, path, tensor, became, why, judge, second if judge.is_suspect else None))
        if viewer.parser.header.status is not Status.COMPLETE:
            _save_unclaimed(job, viewer, path)
        job.save_loose(path)
    finally:
        rest.finish(status)


def _save_unclaimed(job: Job, viewer: SafetensorsViewer, path: str) -> None:
    """Write the bytes of tensors whose header entries are lost."""
    layout = lay(job.session.budget, viewer.parser.infos())
    start = viewer.parser.data_start
    last = max(0, job.solid - start)
    for begin, end in [*layout.breaks, (layout.end, last)]:
        stop = min(end, last)
        if begin >= stop:
            continue
        with job.target.create(f"{path}.partial/unnamed-{start + begin}.bin") as file:
            gaps = job.copy_known(file, start + begin, start + stop)
            if file.bytes == gaps.known:
                file.discard()
                continue
        reason = "bytes of tensors whose entries in the header are lost"
        job.report(file, Status.DAMAGED, reason, offset=start + begin, gaps=gaps)


def _words(finding: Finding) -> str:
    """Describe a finding about bytes that were left out."""
    left = f" ({finding.length:,} bytes, left out)" if finding.code in ("trailing-bytes", "gap") else ""
    return finding.reason + left


def _save_part(
    job: Job, folder: str, tensor: Tensor, status: Status, why: str, judge: _Judge, second: str | None
) -> dict[str, object]:
    """Write the known bytes of a tensor, report it, and return its entry in the list of what is lost.

    ``second`` is the second file, if that has the tensor.
    """
    base = judge.base
    begin, length = (tensor.spans[0].offset, tensor.spans[0].length) if tensor.spans else (0, 0)
    stop = min(begin + length, job.solid)
    shape = list(tensor.shape[:_MOST_DIMENSIONS])
    what = f"{tensor.stored_dtype or '?'} {shape}"
    entry = RecoveredFile(None, status, raw_name=text_of(tensor.name), offset=begin if length else None)
    there = 0
    if second is not None:
        there, entry.path = length, second
    else:
        if stop > begin and status is not Status.MISSING:
            there = _write_part(job, folder, tensor, stop, entry)
        entry.reason = text_of(f"{what}: {part_words(there, length, why)}")
        job.report_as(entry)
    return {
        "name": text_of(tensor.name),
        "dtype": text_of(tensor.stored_dtype) or None,
        "shape": shape,
        "data_offsets": [begin - base, begin - base + length] if tensor.spans else None,
        "status": status.value,
        "there": there,
        "path": entry.path,
        "reason": text_of(why),
    }


def _write_part(job: Job, folder: str, tensor: Tensor, stop: int, entry: RecoveredFile) -> int:
    """Write the bytes of a tensor up to ``stop``, gaps as zeros; return the number of known bytes."""
    span = tensor.spans[0]
    flat = tensor.name.replace("/", "_").replace("\\", "_")
    with job.target.create(f"{folder}.partial/{flat}.bin") as file:
        gaps = job.copy_known(file, span.offset, stop)
        there = file.bytes - gaps.known
        if not there:
            file.discard()
            entry.status = Status.MISSING
            return 0
    if file.bytes < span.length:
        gaps.add(file.bytes, span.length - file.bytes)
    entry.path, entry.bytes, entry.sha256, entry.gaps = file.path, file.bytes, file.sha256, gaps
    return there
