"""Any model with a viewer: writes whole tensors to a safetensors file, suspect ones to a second.

No tensor needs its own format then, so the files are valid even if the format's library refuses what is left. Views are
written with the elements that they show, in C order and little-endian. What no safetensors file can hold lies beside
it: `pparse.recovery.salvage_leftovers`. The tensors are listed several times rather than held: once to judge them, once
to write the header, and once for each width of elements, since readers want elements aligned.
"""

from __future__ import annotations

from array import array

from pparse.data.base import Access
from pparse.errors import PASSING, LimitError, PparseError
from pparse.findings import Status
from pparse.limits import count_words
from pparse.parsers.safetensors.entry import REFERENCE_HEADER_LIMIT, word_of
from pparse.recovery.reader_rules import measured, safetensors_header
from pparse.recovery.report import doubtful_name
from pparse.recovery.salvage_leftovers import Leftovers
from pparse.recovery.tensor_judge import TensorJudge, bytes_of, unjudged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Final

    from pparse.recovery.salvage_job import Job
    from pparse.recovery.salvage_onnx import ModelWriter
    from pparse.recovery.target import TargetFile
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

_COST: Final = 72  # bytes kept of each tensor, sorting included
# Endings of names that the new name does not keep, beside the extensions of the format.
_ENDINGS: Final = (".pth.tar", ".pt.tar", ".pt", ".pth", ".ckpt", ".bin", ".ptl", ".pkl", ".pickle", ".joblib", ".pck")
BROKEN: Final = (Status.TRUNCATED, Status.DAMAGED, Status.MISSING)


class _SpoiledError(Exception):
    """A tensor that was believed to be whole turned out not to be."""


class Plan:
    """The tensors that go to a file, in the order of the listing, and their places there; 32 bytes for each.

    With ``is_suspect`` these are the ones that are whole, and perhaps wrong.
    """

    def __init__(self, judge: TensorJudge, viewer: Viewer, job: Job, *, is_suspect: bool) -> None:
        self.numbers, self.sizes = array("q"), array("q")
        self.ranks = array("q")
        """By what the bytes are sorted: where they lie in the document, or the width of the elements, negative."""
        self.is_suspect = is_suspect
        self.begin = 0
        """Where the bytes of the tensors begin in the file."""
        self.total = 0
        """Number of tensors of the model."""
        self.unfit = 0
        """Number of those that are whole, and cannot be in a safetensors file."""
        self.worst = Status.COMPLETE
        """COMPLETE if all tensors are whole and can be in it, else TRUNCATED, or DAMAGED if one is not just cut."""
        self.charge = job.session.budget.charge(0, "the places of tensors")
        for number, tensor in enumerate(viewer.tensors()):
            job.session.check_cancelled()
            self.total += 1
            status, _, suspect = judge.judge(number, tensor)
            if status is not Status.COMPLETE and self.worst is not Status.DAMAGED:
                cut = status in (Status.TRUNCATED, Status.MISSING)
                self.worst = Status.TRUNCATED if cut else Status.DAMAGED
            if suspect if is_suspect else status is Status.COMPLETE:
                if judge.why_unfit(number, tensor, suspect=suspect) is None:
                    self._add(number, tensor, judge)
                else:
                    self.unfit += 1
                    self.worst = Status.DAMAGED
        self.order: Sequence[int] = range(len(self.numbers))
        if any(self.ranks[at] < self.ranks[at - 1] for at in range(1, len(self.ranks))):
            self.order = sorted(self.order, key=self.ranks.__getitem__)
        self.places = array("q", bytes(8 * len(self.numbers)))
        self.bytes = 0
        for at in self.order:
            self.places[at] = self.bytes
            self.bytes += self.sizes[at]

    def _add(self, number: int, tensor: Tensor, judge: TensorJudge) -> None:
        assert tensor.dtype is not None  # noqa: S101 -- `TensorJudge.why_unfit`
        if not len(self.numbers) % 4096:
            self.charge.resize(_COST * (len(self.numbers) + 4096))
        self.numbers.append(number)
        self.sizes.append(tensor.dtype.stored_nbytes(tensor.size))
        self.ranks.append(tensor.spans[0].offset if judge.is_copied else -tensor.dtype.itemsize)

    def chosen(self, viewer: Viewer, rank: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """Yield place and tensor of each, or of those of a rank."""
        at = 0
        for number, tensor in enumerate(viewer.tensors()):
            if at == len(self.numbers):
                return
            if number != self.numbers[at]:
                continue
            if rank is None or self.ranks[at] == rank:
                yield at, tensor
            at += 1


def salvage_tensors(job: Job) -> bool:
    """Write the whole tensors as a safetensors file, suspect ones as a second file, and what is left beside it; see
    `pparse.recovery.salvage`."""
    from pparse.document.registry import viewer_for

    viewer = viewer_for(job.extraction)
    if viewer is None:
        return False
    viewer = viewer.alone
    if viewer.extent().status not in BROKEN and not job.extraction.findings.errors:
        job.is_unharmed = True
        return False
    old, job.name = job.name, model_name(job.name, job.extraction.parse().parser.extensions)
    judge = TensorJudge(job)
    sure = save_model(job, viewer, judge, is_suspect=False)
    doubtful = save_model(job, viewer, judge, is_suspect=True)
    if not sure[0].total and not job.is_alone:
        return False  # nothing is known that could be told
    status = _worst(viewer)
    problem = next((found.reason for found in job.extraction.findings if found.severity.value == "error"), "")
    path = None
    for plan, file in (sure, doubtful):
        if file is None:
            continue
        if plan.is_suspect:
            path = file.path
            report_suspect(job, plan, file)
        else:
            reason = f"{len(plan.numbers) + plan.unfit:,} of {plan.total:,} tensors are whole"
            if plan.unfit:
                reason += f", {len(plan.numbers):,} of them in this file, the rest beside it"
            job.report(file, status, f"{reason}; {problem}" if problem else reason)
    name = job.name if sure[1] is None else sure[1].path
    leftovers = _leftovers(viewer)(job, viewer, judge, status, name, path)
    model = _model(job, viewer, judge, sure, old)
    if model is not None:
        model.save(status)
        leftovers.is_held = model.holds
    found = leftovers.save()
    if job.is_alone and not found and sure[1] is None and path is None and (model is None or model.path is None):
        job.name = old
        job.save_as_found()
    return True


def report_suspect(job: Job, plan: Plan, file: TargetFile) -> None:
    """Report the file of suspect tensors."""
    words = count_words(len(plan.numbers), "tensor")
    job.report(file, Status.DAMAGED, f"{words} that may be wrong", doubtful=((0, file.bytes),))


def _leftovers(viewer: Viewer) -> type[Leftovers]:
    """Return what saves the rest of the model: a checkpoint has more than its tensors."""
    from pparse.viewers.pickle.viewer import PickleViewer

    if isinstance(viewer, PickleViewer):
        from pparse.recovery.salvage_checkpoint import CheckpointLeftovers

        return CheckpointLeftovers
    return Leftovers


def _model(
    job: Job, viewer: Viewer, judge: TensorJudge, sure: tuple[Plan, TargetFile | None], name: str
) -> ModelWriter | None:
    """Return what writes a model of its own format beside the tensors; None if there is no such format."""
    if viewer.format != "onnx":
        return None
    from pparse.recovery.salvage_onnx import ModelWriter

    return ModelWriter(job, viewer, judge, *sure, name)  # type: ignore[arg-type]


def _worst(viewer: Viewer) -> Status:
    status = viewer.extent().status
    return status if status in BROKEN else Status.DAMAGED


def model_name(name: str, extensions: Iterable[str] = ()) -> str:
    """Return the name of the safetensors file for a model: ``model.safetensors`` for ``model.pt``."""
    low = name.lower()
    for ending in (*_ENDINGS, *extensions):
        if low.endswith(ending) and not low.endswith("/" + ending) and low != ending:
            return f"{name[: -len(ending)]}.safetensors"
    return f"{name}.safetensors"


def save_model(
    job: Job, viewer: Viewer, judge: TensorJudge, *, is_suspect: bool, empty: bool = False, opens: bool = False
) -> tuple[Plan, TargetFile | None]:
    """Write the certain tensors, or the suspect ones; no file if there are none, unless ``empty``.

    ``opens``: none either if all tensors are whole, since the old file is as good.
    """
    while True:
        plan = Plan(judge, viewer, job, is_suspect=is_suspect)
        try:
            if opens and plan.worst is Status.COMPLETE:
                spoiled = len(judge.spoiled)
                if job.data.access is not Access.FREE:  # else all gaps are known
                    _read_all(job, viewer, judge, plan)
                if len(judge.spoiled) > spoiled:
                    continue
                return plan, None
            if not plan.numbers and not empty:
                return plan, None
            length, fitting = measured(_header(viewer, judge, plan))
            if plan.numbers and length > REFERENCE_HEADER_LIMIT:
                judge.too_many[is_suspect] = plan.numbers[fitting]
                continue
            plan.begin = 8 + length
            return plan, _write(job, viewer, judge, plan, doubtful_name(job.name) if is_suspect else job.name)
        except _SpoiledError:
            _read_all(job, viewer, judge, plan)
        finally:
            plan.charge.release()


def _write(job: Job, viewer: Viewer, judge: TensorJudge, plan: Plan, name: str) -> TargetFile:
    """Write the new file. If a tensor turns out not to be whole, remove the file and raise `_SpoiledError`."""
    total = plan.begin + plan.bytes
    with job.target.create(name) as file:
        file.write((plan.begin - 8).to_bytes(8, "little"))
        for piece in _header(viewer, judge, plan):
            file.write(piece)
        file.write(b" " * (plan.begin - file.bytes))
        job.advance(file.bytes, total)
        for at, tensor in _in_order(viewer, judge, plan):
            for chunk in _contents(job, judge, plan, at, tensor):
                file.write(chunk)
                job.advance(len(chunk), total)
    return file


def _in_order(viewer: Viewer, judge: TensorJudge, plan: Plan) -> Iterator[tuple[int, Tensor | None]]:
    """Yield places in the order of the bytes, and the tensors, if their elements are to be read."""
    if judge.is_copied:
        yield from ((at, None) for at in plan.order)
        return
    for rank in sorted(set(plan.ranks)):
        yield from plan.chosen(viewer, rank)


def _header(viewer: Viewer, judge: TensorJudge, plan: Plan) -> Iterator[bytes]:
    """Yield the new header, an entry at a time."""
    return safetensors_header(_entries(viewer, plan), judge.metadata(viewer))


def _entries(viewer: Viewer, plan: Plan) -> Iterator[tuple[str, str, Sequence[int], int, int]]:
    for at, tensor in plan.chosen(viewer):
        assert tensor.dtype is not None  # noqa: S101 -- `TensorJudge.why_unfit`
        begin = plan.places[at]
        yield tensor.name, str(word_of(tensor.dtype)), tensor.shape, begin, begin + plan.sizes[at]


def _contents(job: Job, judge: TensorJudge, plan: Plan, at: int, tensor: Tensor | None) -> Iterator[bytes]:
    """Yield the bytes of a tensor. Raise `_SpoiledError`."""
    done = 0
    try:
        if tensor is None:
            source: Iterator[bytes] = job.pieces(plan.ranks[at], plan.ranks[at] + plan.sizes[at])
        else:
            source = bytes_of(unjudged(tensor) if plan.is_suspect else tensor)
        for chunk in source:
            done += len(chunk)
            yield chunk
    except PASSING:
        raise
    except PparseError as error:
        if isinstance(error, LimitError) and error.option.startswith("--budget"):
            raise  # for want of memory no tensor can be read: that says nothing of any
        judge.spoiled.add(plan.numbers[at])
        raise _SpoiledError from error
    if done != plan.sizes[at]:
        judge.spoiled.add(plan.numbers[at])
        raise _SpoiledError


def _read_all(job: Job, viewer: Viewer, judge: TensorJudge, plan: Plan) -> None:
    """Find all tensors that cannot be read, after one was found."""
    for at, tensor in _in_order(viewer, judge, plan):
        if plan.numbers[at] in judge.spoiled:
            continue
        job.session.check_cancelled()
        try:
            for _ in _contents(job, judge, plan, at, tensor):
                pass
        except _SpoiledError:
            continue
