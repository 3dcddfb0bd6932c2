"""Any model with a viewer: writes whole tensors to a safetensors file, suspect ones to a second.

No tensor needs its own format then, so the files are valid even if the format's library refuses what is left. Views are
written with the elements that they show, in C order and little-endian. What no safetensors file can hold lies beside
it: `pparse.recovery.salvage_leftovers`. The tensors are listed several times rather than held: once to judge them, once
to write the header, and once for each width of elements, since readers want elements aligned.
"""

from __future__ import annotations

from array import array
from contextlib import suppress
from itertools import islice

from pparse.data.base import Access
from pparse.errors import PASSING, LimitError, PparseError
from pparse.findings import Status
from pparse.limits import count_words
from pparse.parsers.safetensors.entry import REFERENCE_HEADER_LIMIT, word_of
from pparse.recovery.reader_rules import measured, safetensors_header
from pparse.recovery.report import doubtful_name
from pparse.recovery.salvage_leftovers import Leftovers
from pparse.recovery.tensor_judge import TensorJudge, bytes_of, unjudged
from pparse.tensors.places import in_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

    from pparse.recovery.salvage_job import Job
    from pparse.recovery.salvage_onnx import ModelWriter
    from pparse.recovery.target import TargetFile
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# Bytes kept of each tensor whose bytes do not come in the order of the list, sorting included.
_COST: Final = 60
# Endings of names that the new name does not keep, beside the extensions of the format.
_ENDINGS: Final = (".pth.tar", ".pt.tar", ".pt", ".pth", ".ckpt", ".bin", ".ptl", ".pkl", ".pickle", ".joblib", ".pck")
BROKEN: Final = (Status.TRUNCATED, Status.DAMAGED, Status.MISSING)


class _SpoiledError(Exception):
    """A tensor that was believed to be whole turned out not to be."""


class Planned:
    """A tensor of a file: its number in the model, and the place and size of its bytes behind the header."""

    __slots__ = ("number", "place", "size", "tensor")

    def __init__(self, number: int, tensor: Tensor, place: int) -> None:
        self.number = number
        self.tensor = tensor
        self.place = place
        self.size = nbytes_of(tensor)


def nbytes_of(tensor: Tensor) -> int:
    """Return how many bytes a safetensors file has of a tensor that `TensorJudge` found fit."""
    assert tensor.dtype is not None  # noqa: S101 -- `TensorJudge.why_unfit`
    return tensor.dtype.stored_nbytes(tensor.size)


class Plan:
    """The tensors that go to a file, and their places there: a bit for each, since they are listed when needed.

    With ``is_suspect`` these are the ones that are whole, and perhaps wrong. Bytes of one rank (`TensorJudge.rank`)
    come together, the lowest rank first, in the order of the list. Where bytes are copied, their order is that of the
    document; if that is not the order of the list, 32 bytes a tensor are kept.
    """

    def __init__(self, judge: TensorJudge, viewer: Viewer, job: Job, *, is_suspect: bool) -> None:
        self.is_suspect = is_suspect
        self.begin = 0
        """Where the bytes of the tensors begin in the file."""
        self.total = 0
        """Number of tensors of the model."""
        self.count = 0
        """Number of those that go to the file."""
        self.suspects = 0
        """Number of those that may be wrong."""
        self.unfit = 0
        """Number of those that are whole, and cannot be in a safetensors file."""
        self.worst = Status.COMPLETE
        """COMPLETE if all tensors are whole and can be in it, else TRUNCATED, or DAMAGED if one is not just cut."""
        self._viewer, self._judge, self._job = viewer, judge, job
        self._bits = bytearray()
        self._sizes: dict[int, int] = {}  # by rank
        self._sorted: tuple[array[int], array[int], array[int]] | None = None  # numbers, offsets, sizes
        self._places = array("q")  # of tensors that were sorted, in the order of the list
        self.charge = job.session.budget.charge(0, "the places of tensors")
        is_in_order, last = True, -1
        for number, tensor in enumerate(viewer.tensors()):
            job.session.check_cancelled()
            self.total += 1
            status, _, suspect = judge.judge(number, tensor)
            self.suspects += suspect
            if status is not Status.COMPLETE and self.worst is not Status.DAMAGED:
                cut = status in (Status.TRUNCATED, Status.MISSING)
                self.worst = Status.TRUNCATED if cut else Status.DAMAGED
            if suspect if is_suspect else status is Status.COMPLETE:
                if judge.why_unfit(number, tensor, suspect=suspect) is None:
                    self._add(number, tensor)
                    if judge.is_copied:
                        is_in_order, last = is_in_order and tensor.spans[0].offset >= last, tensor.spans[0].offset
                else:
                    self.unfit += 1
                    self.worst = Status.DAMAGED
        self.bytes = sum(self._sizes.values())
        """Bytes of the tensors that go to the file."""
        if not is_in_order:
            self._sort()

    def _add(self, number: int, tensor: Tensor) -> None:
        bits = self._bits
        if number >> 3 >= len(bits):
            bits.extend(bytes((number >> 3) + 1 - len(bits)))
        bits[number >> 3] |= 1 << (number & 7)
        self.count += 1
        rank = self._judge.rank(tensor)
        self._sizes[rank] = self._sizes.get(rank, 0) + nbytes_of(tensor)

    def _sort(self) -> None:
        """Give the tensors their places in the order of their bytes in the document."""
        self.charge.resize(_COST * self.count)
        numbers, offsets, sizes = array("q"), array("q"), array("q")
        for planned in self.listed():
            numbers.append(planned.number)
            offsets.append(planned.tensor.spans[0].offset)
            sizes.append(planned.size)
        places, at = array("q", bytes(8 * self.count)), 0
        order = array("q", in_order(offsets, offsets))
        for index in order:
            places[index] = at
            at += sizes[index]
        self._places = places
        self._sorted = tuple(array("q", map(found.__getitem__, order)) for found in (numbers, offsets, sizes))  # type: ignore[assignment]

    def has(self, number: int) -> bool:
        """Return whether a tensor goes to the file."""
        return number >> 3 < len(self._bits) and bool(self._bits[number >> 3] >> (number & 7) & 1)

    def number_of(self, index: int) -> int:
        """Return the number of the tensor that is listed as ``index`` in the file."""
        return next(islice((number for number in range(8 * len(self._bits)) if self.has(number)), index, None))

    def listed(self, rank: int | None = None) -> Iterator[Planned]:
        """Yield the tensors of the file in the order of the model, or those of a rank."""
        places, at, index = {}, 0, 0
        for each in sorted(self._sizes):
            places[each] = at
            at += self._sizes[each]
        for number, tensor in enumerate(self._viewer.tensors()):
            if not self.has(number):
                continue
            own = self._judge.rank(tensor)
            planned = Planned(number, tensor, self._places[index] if self._places else places[own])
            places[own] += planned.size
            index += 1
            if rank is None or rank == own:
                yield planned
                if index == self.count:
                    return

    def contents(self) -> Iterator[tuple[int, int, Iterator[bytes]]]:
        """Yield number, size and bytes of each tensor, in the order of the file."""
        if self._sorted is not None:
            for number, offset, size in zip(*self._sorted, strict=True):
                yield number, size, self._job.pieces(offset, offset + size)
            return
        for rank in sorted(self._sizes):
            for planned in self.listed(rank):
                tensor = planned.tensor
                if self._judge.is_copied:
                    offset = tensor.spans[0].offset
                    source: Iterator[bytes] = self._job.pieces(offset, offset + planned.size)
                else:
                    source = bytes_of(unjudged(tensor) if self.is_suspect else tensor)
                yield planned.number, planned.size, source

    def header(self) -> Iterator[bytes]:
        """Yield the header of the file, an entry at a time."""
        return safetensors_header(
            (
                (one.tensor.name, str(word_of(one.tensor.dtype)), one.tensor.shape, one.place, one.place + one.size)  # type: ignore[arg-type]
                for one in self.listed()
            ),
            self._judge.metadata(self._viewer),
        )


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
    doubtful = save_suspect(job, viewer, judge, sure[0])
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
            reason = f"{plan.count + plan.unfit:,} of {plan.total:,} tensors are whole"
            if plan.unfit:
                reason += f", {plan.count:,} of them in this file, the rest beside it"
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
    words = count_words(plan.count, "tensor")
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
                    _read_all(job, judge, plan)
                if len(judge.spoiled) > spoiled:
                    continue
                return plan, None
            if not plan.count and not empty:
                return plan, None
            length, fitting = measured(plan.header())
            if plan.count and length > REFERENCE_HEADER_LIMIT:
                judge.too_many[is_suspect] = plan.number_of(fitting)
                continue
            plan.begin = 8 + length
            return plan, _write(job, judge, plan, doubtful_name(job.name) if is_suspect else job.name)
        except _SpoiledError:
            _read_all(job, judge, plan)
        finally:
            plan.charge.release()


def save_suspect(job: Job, viewer: Viewer, judge: TensorJudge, sure: Plan) -> tuple[Plan, TargetFile | None]:
    """Write the tensors that may be wrong, if ``sure`` counted any."""
    return save_model(job, viewer, judge, is_suspect=True) if sure.suspects else (sure, None)


def _write(job: Job, judge: TensorJudge, plan: Plan, name: str) -> TargetFile:
    """Write the new file. If a tensor turns out not to be whole, remove the file and raise `_SpoiledError`."""
    total = plan.begin + plan.bytes
    with job.target.create(name) as file:
        file.write((plan.begin - 8).to_bytes(8, "little"))
        for piece in plan.header():
            file.write(piece)
        file.write(b" " * (plan.begin - file.bytes))
        job.advance(file.bytes, total)
        for number, size, source in plan.contents():
            for chunk in _whole(judge, number, size, source):
                file.write(chunk)
                job.advance(len(chunk), total)
    return file


def _whole(judge: TensorJudge, number: int, size: int, source: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the ``size`` bytes of a tensor. Raise `_SpoiledError` if they cannot be read."""
    done = 0
    try:
        for chunk in source:
            done += len(chunk)
            yield chunk
    except PASSING:
        raise
    except PparseError as error:
        if isinstance(error, LimitError) and error.option.startswith("--budget"):
            raise  # for want of memory no tensor can be read: that says nothing of any
        judge.spoiled.add(number)
        raise _SpoiledError from error
    if done != size:
        judge.spoiled.add(number)
        raise _SpoiledError


def _read_all(job: Job, judge: TensorJudge, plan: Plan) -> None:
    """Find all tensors that cannot be read, after one was found."""
    for number, size, source in plan.contents():
        if number in judge.spoiled:
            continue
        job.session.check_cancelled()
        with suppress(_SpoiledError):
            for _ in _whole(judge, number, size, source):
                pass
