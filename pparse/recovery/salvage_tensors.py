"""Any model with a viewer: writes whole tensors to a safetensors file, suspect ones to a second.

What file that is says the `TensorJudge`: those of GGUF models stay GGUF files (`pparse.recovery.salvage_gguf`).

No tensor needs its own format then, so the files are valid even if the format's library refuses what is left. Views are
written with the elements that they show, in C order and little-endian. What no safetensors file can hold lies beside
it: `Leftovers`. The tensors are listed several times rather than held: once to judge them, once to write the header,
and once for each width of elements, since readers want elements aligned.

Of a safetensors file, entries of the header and bytes are judged apart, and bytes are copied as they lie in the file.
Beside them go parts of the others, and bytes that no tensor claims, since its entry is lost.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import namedtuple
from contextlib import suppress
from functools import cached_property
from itertools import islice

from pparse.containers.content import GapLog
from pparse.conversion.forms import measured, safetensors_head, safetensors_header, why_unfit
from pparse.data.base import Access
from pparse.data.range_status import cut_status
from pparse.data.spliced import HiddenData
from pparse.document.registry import viewer_for
from pparse.errors import DataError, EndOfDataError, GapError, LimitError, MalformedError
from pparse.findings import BROKEN, ENDS_EARLY, Finding, Severity, Status, worst_status
from pparse.limits import count_words
from pparse.parsers.safetensors.header import REFERENCE_HEADER_LIMIT, word_of
from pparse.recovery.report import RecoveredFile, doubtful_name
from pparse.recovery.salvage import NOTHING, SAVED, UNHARMED, Rest, text_of
from pparse.tensors.npy import write_npy
from pparse.tensors.span import Span
from pparse.tensors.status import there_words
from pparse.tree.entry import SCALAR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

    from pparse.recovery.salvage import Job
    from pparse.recovery.salvage_onnx import ModelWriter
    from pparse.recovery.target import TargetFile
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer
    from pparse.viewers.safetensors.viewer import SafetensorsViewer

# Bytes kept of each tensor whose bytes do not come in the order of the list, sorting included.
_COST: Final = 240
# Endings of names that the new name does not keep, beside the extensions of the format.
_ENDINGS: Final = [
    ".pth.tar",
    ".pt.tar",
    ".pt",
    ".pth",
    ".ckpt",
    ".bin",
    ".ptl",
    ".pkl",
    ".pickle",
    ".joblib",
    ".dill",
    ".pck",
]
_STEP: Final = "1MiB"
_EVERYWHERE: Final = [(0, 1 << 62)]
TOO_LONG: Final = f"with it, the header would be longer than the {REFERENCE_HEADER_LIMIT:,} bytes that readers accept"
_MOST_DIMENSIONS: Final = 64
_MOST_BITS: Final = 4096  # of an integer that is written as digits


class TensorJudge:
    """Judges each tensor of ``viewer``, the model of ``job``: whole, suspect, or not to be written."""

    is_copied = False
    """Whether bytes are copied as they lie in the document, in that order; else elements are read, the widest first."""
    alignment = 1
    """Of the bytes of a tensor in the new file."""

    def __init__(self, job: Job, viewer: Viewer) -> None:
        self.job = job
        self.viewer: Any = viewer
        self.spoiled: set[int] = set()
        """Numbers of tensors that could not be read."""
        self.too_many: dict[bool, int] = {}
        """From which tensor on a file of those that are suspect, or are not, would have too long a header."""
        self._room = job.target.max_bytes - job.target.bytes

    def judge(self, number: int, tensor: Tensor) -> tuple[Status, str, bool]:
        """Return the status of a tensor, the reason, and whether its only problem is that its bytes may be wrong."""
        status, finding = tensor.status, tensor.finding
        is_whole = status is Status.COMPLETE
        if is_whole and tensor.is_text and tensor.spans:
            return status, "", False
        reason = finding.reason if finding is not None else str(status)
        if is_whole and tensor.dtype is not None and not tensor.stored_nbytes:
            return status, "", False
        if status is Status.UNSUPPORTED or self.size_of(tensor) is None or not tensor.spans:
            return (Status.UNSUPPORTED if is_whole else status), reason, False
        if number in self.spoiled:
            return Status.DAMAGED, "its bytes cannot be read", False
        if tensor.unwritten_nbytes:
            return Status.DAMAGED, f"{tensor.unwritten_nbytes:,} bytes of it were never written (a file hole)", True
        if is_whole:
            return status, "", False
        return status, reason, status is Status.DAMAGED and _has_all_bytes(tensor)

    def rank(self, tensor: Tensor) -> int:
        """Return by what bytes are sorted in the new file: the widest elements first, as readers want them aligned."""
        return 0 if self.is_copied or tensor.dtype is None else -tensor.dtype.itemsize

    def metadata(self) -> dict[str, str] | None:
        """Return the metadata of the new file: ``format`` is what readers go by."""
        return {"format": "pt" if self.viewer.format.startswith("pytorch") else "np"}

    def name_of(self, name: str, extensions: Iterable[str]) -> str:
        """Return the name of the new file for that of the old one, of a format with these extensions."""
        return model_name(name, extensions)

    def size_of(self, tensor: Tensor) -> int | None:
        """Return how many bytes of the new file a tensor takes; None if that is not known any more."""
        return None if tensor.dtype is None else tensor.dtype.stored_nbytes(tensor.size)

    def header(self, plan: SalvagePlan) -> Iterator[bytes]:
        """Yield the header of the new file, an entry at a time."""
        entries = (
            (one.tensor.name, str(word_of(one.tensor.dtype)), one.tensor.shape, one.place, one.place + one.size)
            for one in plan.listed()
        )
        return safetensors_header(entries, self.metadata())

    def measured(self, header: Iterator[bytes]) -> tuple[int, int | None]:
        """Return where the bytes of tensors begin behind a header; and how many tensors readers accept, if not all."""
        length, fitting = measured(header)
        return 8 + length, fitting if length > REFERENCE_HEADER_LIMIT else None

    def head(self, header: Iterator[bytes], begin: int) -> Iterator[bytes]:
        """Yield all ``begin`` bytes before the tensors."""
        return safetensors_head(header, begin)

    def why_unfit(self, number: int, tensor: Tensor, *, suspect: bool) -> str | None:
        """Return why a whole tensor, or a suspect one, cannot be in a safetensors file; None if it can."""
        if number >= self.too_many.get(suspect, number + 1):
            return TOO_LONG
        dtype = tensor.dtype
        if dtype is None:
            return f"safetensors has no type for {tensor.stored_dtype}"
        why = why_unfit(tensor.name, dtype, tensor.size)
        if why is not None:
            return why
        size = dtype.stored_nbytes(tensor.size)
        if dtype.packed and size != tensor.stored_nbytes:
            return f"elements of {dtype} that do not follow each other share bytes"
        if size > self._room and size > tensor.stored_nbytes:
            return f"few bytes stand for all of its {size:,}, more than may be written"
        return None


def _has_all_bytes(tensor: Tensor) -> bool:
    """Say whether all bytes of a damaged tensor exist, whatever they are worth."""
    (span, *more) = tensor._sources
    if more or span.data is None:
        return False
    end = span.offset + span.length
    if (span.end is not None and end > span.end) or (span.data.size is not None and end > span.data.size):
        return False
    return not any(span.data.gaps_in(span.offset, end))


def unjudged(tensor: Tensor) -> Tensor:
    """Return a damaged tensor that has all of its bytes as one that can be read, with its bytes as they are."""
    source = tensor._sources[0]
    assert source.data is not None  # noqa: S101 -- `_has_all_bytes`
    data = HiddenData(source.data, [], _EVERYWHERE)
    return tensor.over(Span(data, source.offset, source.length, source.path))


def bytes_of(tensor: Tensor) -> Iterator[bytes]:
    """Yield the elements of a tensor in C order, little-endian, as a file holds them. Raises the errors of `blocks`."""
    return tensor.array_blocks(_STEP)


# -- the file ----------------------------------------------------------------------------------------------------------


class _SpoiledTensorError(Exception):
    """A tensor that was believed to be whole turned out not to be."""


class Planned(namedtuple("Planned", "number tensor place size")):
    """A tensor of a file: its number in the model, and the place and size of its bytes behind the header."""

    __slots__ = ()


class SalvagePlan:
    """The tensors that go to a file, and their places there: a byte for each, since they are listed when needed.

    With ``is_suspect`` these are the ones that are whole, and perhaps wrong. Bytes of one rank (`TensorJudge.rank`)
    come together, the lowest rank first, in the order of the list. Where bytes are copied, their order is that of the
    document; if that is not the order of the list, 240 bytes a tensor are kept.
    """

    def __init__(self, judge: TensorJudge, *, is_suspect: bool) -> None:
        self.is_suspect = is_suspect
        self.begin = 0
        """Where the bytes of the tensors begin in the file."""
        self.total = 0
        """Number of tensors of the model."""
        self.suspects = 0
        """Number of those that may be wrong."""
        self.unfit = 0
        """Number of those that are whole, and cannot be in a safetensors file."""
        self.worst = Status.COMPLETE
        """COMPLETE if all tensors are whole and can be in it, else TRUNCATED, or DAMAGED if one is not just cut."""
        self._judge, self._job = judge, judge.job
        self._taken = bytearray()  # for each tensor of the model, whether it goes to the file
        self._sizes: dict[int, int] = {}  # by rank
        self._sorted: list[tuple[int, int, int, int]] = []  # offset, index in the list, number, size
        self._places = array("q")  # of tensors that were sorted, in the order of the list
        self.charge = self._job.session.budget.charge(0, "the places of tensors")
        is_in_order, last = True, -1
        for number, tensor in enumerate(judge.viewer.tensors()):
            self._job.session.check_cancelled()
            self.total += 1
            status, _, suspect = judge.judge(number, tensor)
            is_whole = status is Status.COMPLETE
            self.suspects += suspect
            if not is_whole:
                self.worst = worst_status(self.worst, cut_status(damaged=status not in ENDS_EARLY))
            is_meant = suspect if is_suspect else is_whole
            is_taken = is_meant and judge.why_unfit(number, tensor, suspect=suspect) is None
            self._taken.append(is_taken)
            if is_taken:
                rank = judge.rank(tensor)
                self._sizes[rank] = self._sizes.get(rank, 0) + self._padded(judge.size_of(tensor) or 0)
                if judge.is_copied:
                    is_in_order, last = is_in_order and tensor.spans[0].offset >= last, tensor.spans[0].offset
            elif is_meant:
                self.unfit += 1
                self.worst = Status.DAMAGED
        self.count = sum(self._taken)
        """Number of those that go to the file."""
        self.bytes = sum(self._sizes.values())
        """Bytes of the tensors that go to the file."""
        if not is_in_order:
            self._sort()

    def _padded(self, size: int) -> int:
        """Return the size of what a tensor takes with its padding."""
        return size + -size % self._judge.alignment

    def _sort(self) -> None:
        """Give the tensors their places in the order of their bytes in the document."""
        self.charge.resize(_COST * self.count)
        listed = enumerate(self.listed())
        self._sorted = sorted((one.tensor.spans[0].offset, index, one.number, one.size) for index, one in listed)
        places, at = array("q", bytes(8 * self.count)), 0
        for _, index, _, size in self._sorted:
            places[index] = at
            at += self._padded(size)
        self._places = places

    @property
    def is_whole(self) -> bool:
        """Whether all tensors are whole, and can be in a file."""
        return self.worst is Status.COMPLETE

    def has(self, number: int) -> bool:
        """Return whether a tensor goes to the file."""
        return number < self.total and bool(self._taken[number])

    def number_of(self, index: int) -> int:
        """Return the number of the tensor that is listed as ``index`` in the file."""
        return next(islice((number for number, is_taken in enumerate(self._taken) if is_taken), index, None))

    def listed(self, rank: int | None = None) -> Iterator[Planned]:
        """Yield the tensors of the file in the order of the model, or those of a rank.

        Raises `_SpoiledTensorError` if reading others showed that one is not what it was when it was judged.
        """
        places, at, index = {}, 0, 0
        for each in sorted(self._sizes):
            places[each] = at
            at += self._sizes[each]
        for number, tensor in enumerate(self._judge.viewer.tensors()):
            if not self.has(number):
                continue
            own, size = self._judge.rank(tensor), self._judge.size_of(tensor)
            if size is None or own not in places:
                self._judge.spoiled.add(number)
                raise _SpoiledTensorError
            planned = Planned(number, tensor, self._places[index] if self._places else places[own], size)
            places[own] += self._padded(size)
            index += 1
            if rank is None or rank == own:
                yield planned
                if index == self.count:
                    return

    def contents(self) -> Iterator[tuple[int, int, Iterator[bytes]]]:
        """Yield number, size and bytes of each tensor, in the order of the file."""
        for offset, _, number, size in self._sorted:
            yield number, size, self._job.pieces(offset, offset + size)
        if self._sorted:
            return
        for rank in sorted(self._sizes):
            for number, tensor, _, size in self.listed(rank):
                if self._judge.is_copied:
                    offset = tensor.spans[0].offset
                    yield number, size, self._job.pieces(offset, offset + size)
                else:
                    yield number, size, bytes_of(unjudged(tensor) if self.is_suspect else tensor)


def salvage_tensors(job: Job) -> str:
    """Write the whole tensors as a safetensors file, suspect ones as a second file, and what is left beside it; see
    `pparse.recovery.salvage`."""
    return salvage_by(TensorJudge, job)


def salvage_by(kind: Callable[[Job, Viewer], TensorJudge], job: Job) -> str:
    """Write the whole tensors as the file that a judge of this kind knows, suspect ones as a second one, and what is
    left beside it; see `pparse.recovery.salvage`."""
    viewer = viewer_for(job.extraction).alone
    if viewer.extent().status not in BROKEN and not job.extraction.findings.errors:
        return UNHARMED
    judge = kind(job, viewer)
    old, job.name = job.name, judge.name_of(job.name, job.extraction.parse().parser.extensions)
    plan, file = save_model(judge)
    suspect, second = save_suspect(judge, plan)
    if not plan.total and not job.is_alone:
        return NOTHING  # nothing is known that could be told
    status = viewer.extent().status
    status = status if status in BROKEN else Status.DAMAGED
    problem = next((found.reason for found in job.extraction.findings if found.severity.value == "error"), "")
    if file is not None:
        reason = f"{plan.count + plan.unfit:,} of {plan.total:,} tensors are whole"
        if plan.unfit:
            reason += f", {plan.count:,} of them in this file, the rest beside it"
        job.report(file, status, f"{reason}; {problem}" if problem else reason)
    path = report_suspect(job, suspect, second)
    leftovers = _kind_of_leftovers(viewer)(judge, status, job.name if file is None else file.path, path)
    model: ModelWriter | None = None
    if viewer.format == "onnx":  # beside the tensors, a model of its own format
        from pparse.recovery.salvage_onnx import ModelWriter

        model = ModelWriter(judge, plan, file, old)
        model.save(status)
        leftovers.is_held = model.holds
    found = leftovers.save()
    if job.is_alone and not found and file is None and path is None and (model is None or model.path is None):
        job.name = old
        job.save_as_found()
    return SAVED


def report_suspect(job: Job, plan: SalvagePlan, file: TargetFile | None) -> str | None:
    """Report the file of suspect tensors, if there is one; return its path."""
    if file is None:
        return None
    words = count_words(plan.count, "tensor")
    job.report(file, Status.DAMAGED, f"{words} that may be wrong", doubtful=((0, file.bytes),))
    return file.path


def _kind_of_leftovers(viewer: Viewer) -> type[Leftovers]:
    """Return what saves the rest of the model: a checkpoint has more than its tensors."""
    from pparse.viewers.pickle.viewer import PickleViewer

    if isinstance(viewer, PickleViewer):
        from pparse.recovery.salvage_checkpoint import CheckpointLeftovers

        return CheckpointLeftovers
    return Leftovers


def model_name(name: str, extensions: Iterable[str] = ()) -> str:
    """Return the name of the safetensors file for a model: ``model.safetensors`` for ``model.pt``, not a hidden one."""
    folder, slash, own = name.rpartition("/")
    name = f"{folder}{slash}{own.lstrip('.') or own}"
    low = name.lower()
    for ending in (*_ENDINGS, *extensions):
        if low.endswith(ending) and not low.endswith("/" + ending) and low != ending:
            return f"{name[: -len(ending)]}.safetensors"
    return f"{name}.safetensors"


def save_model(
    judge: TensorJudge, *, is_suspect: bool = False, empty: bool = False, opens: bool = False
) -> tuple[SalvagePlan, TargetFile | None]:
    """Write the certain tensors, or the suspect ones; no file if there are none, unless ``empty``.

    ``opens``: none either if all tensors are whole, since the old file is as good.
    """
    job = judge.job
    while True:
        plan = SalvagePlan(judge, is_suspect=is_suspect)
        try:
            if opens and plan.is_whole:
                spoiled = len(judge.spoiled)
                if job.data.access is not Access.FREE:  # else all gaps are known
                    _read_all(judge, plan)
                if len(judge.spoiled) > spoiled:
                    continue
                return plan, None
            if not plan.count and not empty:
                return plan, None
            plan.begin, fitting = judge.measured(judge.header(plan))
            if plan.count and fitting is not None:
                judge.too_many[is_suspect] = plan.number_of(fitting)
                continue
            return plan, _write(judge, plan, doubtful_name(job.name) if is_suspect else job.name)
        except _SpoiledTensorError:
            with suppress(_SpoiledTensorError):
                _read_all(judge, plan)
        finally:
            plan.charge.release()


def save_suspect(judge: TensorJudge, sure: SalvagePlan) -> tuple[SalvagePlan, TargetFile | None]:
    """Write the tensors that may be wrong, if ``sure`` counted any."""
    return save_model(judge, is_suspect=True) if sure.suspects else (sure, None)


def _write(judge: TensorJudge, plan: SalvagePlan, name: str) -> TargetFile:
    """Write the new file. If a tensor turns out not to be whole, remove the file and raise `_SpoiledTensorError`."""
    job, total = judge.job, plan.begin + plan.bytes
    with job.target.create(name) as file:
        for piece in judge.head(judge.header(plan), plan.begin):
            file.write(piece)
        job.advance(file.bytes, total)
        for number, size, source in plan.contents():
            for chunk in _whole(judge, number, size, source):
                file.write(chunk)
                job.advance(len(chunk), total)
            file.write(bytes(-size % judge.alignment))
    return file


def _whole(judge: TensorJudge, number: int, size: int, source: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the ``size`` bytes of a tensor. Raise `_SpoiledTensorError` if they cannot be read."""
    done, failed = 0, None
    try:
        for chunk in source:
            done += len(chunk)
            yield chunk
    except DataError as error:
        if isinstance(error, LimitError) and error.option.startswith("--budget"):
            raise  # for want of memory no tensor can be read: that says nothing of any
        failed = error
    if failed is not None or done != size:
        judge.spoiled.add(number)
        raise _SpoiledTensorError from failed


def _read_all(judge: TensorJudge, plan: SalvagePlan) -> None:
    """Find all tensors that cannot be read, after one was found."""
    for number, size, source in plan.contents():
        if number not in judge.spoiled:
            judge.job.session.check_cancelled()
            with suppress(_SpoiledTensorError):
                for _ in _whole(judge, number, size, source):
                    pass


# -- what is left ------------------------------------------------------------------------------------------------------


class Leftovers:
    """Writes what is left of one model; see `save`."""

    is_listed = True
    """Whether a list is written though there is nothing in it."""

    def __init__(self, judge: TensorJudge, status: Status, name: str, second: str | None) -> None:
        """``name``: the path of the saved file; ``second``: that of the file with suspect tensors, if there is one."""
        self.judge: Any = judge
        self.job = judge.job
        self.viewer: Any = judge.viewer
        self._status = status
        self.name = name
        self._second = second
        self.written = 0
        self.is_held: Callable[[int, Tensor], bool] = lambda number, tensor: False
        """Whether a model that was written beside the tensors has one that no safetensors file can hold."""

    def save(self) -> int:
        """Write it, and the list; return the number of files beside the list."""
        metadata = self.metadata()
        rest = Rest(self.job, self.name, {"format": self.viewer.format, "metadata": metadata})
        try:
            if metadata or self.is_listed:
                rest.open()
            for number, tensor in enumerate(self.viewer.tensors()):
                self.job.session.check_cancelled()
                self._save_tensor(rest, number, tensor)
            self.save_others()
        finally:
            rest.finish(self._status)
        return self.written

    def metadata(self) -> dict[str, object] | None:
        """Return what else the model says of itself."""
        return {text_of(str(key)): plain(value) for key, value in self.viewer.metadata.items()}

    @property
    def end(self) -> int | None:
        """Behind it, nobody knows where bytes of the document belong; None: there is no such place."""
        return None

    def place(self, tensor: Tensor) -> dict[str, object]:
        """Return what the list says of where a tensor lies."""
        strides = None if tensor._strides is None else list(tensor._strides[:_MOST_DIMENSIONS])
        return {"strides": strides, "length": tensor.stored_nbytes if tensor.spans else None}

    def _save_tensor(self, rest: Rest, number: int, tensor: Tensor) -> None:
        """Save what is there of a tensor that is not in the saved file, and list it."""
        status, why, suspect = self.judge.judge(number, tensor)
        is_whole = status is Status.COMPLETE
        unfit = self.judge.why_unfit(number, tensor, suspect=suspect)
        if is_whole and unfit is None:
            if self.job.kept is not None:
                self.job.kept(tensor.name, tensor.stored_nbytes)
            return
        if unfit is not None and self.is_held(number, tensor):
            return
        entry = RecoveredFile(None, status, raw_name=text_of(tensor.name))
        there = length = tensor.stored_nbytes
        if suspect and unfit is None and self._second is not None:
            entry.path = self._second
        elif is_whole and tensor.is_text:
            there = self._write_known(tensor, entry, unfit or "")
            if there < length:  # it lies in several places
                entry.status = Status.UNSUPPORTED
        elif is_whole or suspect:
            why = f"{why}; {unfit}" if why else unfit or ""
            if not self._write_array(unjudged(tensor) if suspect else tensor, entry, why):
                there = 0
        else:
            there = self._write_known(tensor, entry, why)
        rest.add(
            {
                "name": text_of(tensor.name),
                "dtype": text_of(tensor.stored_dtype) or None,
                "shape": list(tensor.shape[:_MOST_DIMENSIONS]) if tensor.is_shape_known else None,
                **self.place(tensor),
                "status": entry.status.value,
                "there": there,
                "path": entry.path,
                "reason": text_of(why),
            }
        )

    def _write_array(self, tensor: Tensor, entry: RecoveredFile, why: str) -> bool:
        """Write a whole tensor as an array of numpy, and report it; say whether that was possible."""
        file = self.job.target.create(f"{self.name}.partial/{flat(tensor.name)}.npy")
        try:
            with file:
                write_npy(tensor, file)  # type: ignore[arg-type]
            self._take(file, entry)
        except DataError as error:
            if isinstance(error, LimitError) and self.job.target.is_full:
                raise
            entry.status, why = Status.UNSUPPORTED, f"{why}; {error.reason}"
        self._report(tensor, entry, why)
        return entry.path is not None

    def _write_known(self, tensor: Tensor, entry: RecoveredFile, why: str) -> int:
        """Write the known bytes of a tensor as they are stored, and report them; return their number."""
        span, length, there = tensor.content_span, tensor.stored_nbytes, 0
        if span is not None and span.data is not None:
            entry.offset = span.offset if length else None
        if entry.status is not Status.MISSING and any(span.data is not None for span in tensor._sources):
            with self.job.target.create(f"{self.name}.partial/{flat(tensor.name)}.bin") as file:
                gaps = self._copy_spans(file, tensor._sources)
                there = file.bytes - gaps.known
                if not there:
                    file.discard()
            if there:
                if file.bytes < length:
                    gaps.add(file.bytes, length - file.bytes)
                entry.gaps = gaps
                self._take(file, entry)
        told = f"{there:,} of {length:,} bytes are there"
        self._report(tensor, entry, told if why == there_words(there, length) else f"{told}: {why}")
        return there

    def _copy_spans(self, file: TargetFile, spans: Iterable[Span]) -> GapLog:
        """Write the known bytes of stretches that follow each other, each at its place; return what is missing."""
        gaps, done = GapLog(), 0
        for span in spans:
            for place, part in span.stretches() if span.data is not None else ():
                if part.data is None:
                    continue
                ends = [end for end in (part.end, part.data.size) if end is not None]
                ends += [self.end] if self.end is not None and part.data is self.job.data else []
                stop, begin = min((part.offset + part.length, *ends)), done + place
                if part.offset < stop and file.bytes < begin:
                    gaps.add(file.bytes, begin - file.bytes)
                    file.skip(begin - file.bytes)
                for offset, count in self.job.copy_known(file, part.offset, stop, part.data):
                    gaps.add(begin + offset, count)
            done += span.length
        return gaps

    def _take(self, file: TargetFile, entry: RecoveredFile) -> None:
        self.written += 1
        entry.path, entry.bytes, entry.sha256 = file.path, file.bytes, file.sha256

    def _report(self, tensor: Tensor, entry: RecoveredFile, why: str) -> None:
        shape = list(tensor.shape[:_MOST_DIMENSIONS]) if tensor.is_shape_known else "of unknown shape"
        entry.reason = text_of(f"{tensor.stored_dtype or '?'} {shape}: {why}")
        self.job.report_as(entry)

    def save_others(self) -> None:
        """Save what is not of a tensor: nothing, unless a format says more."""


def flat(name: str) -> str:
    """Return a name of a tensor or a storage as that of a file without folders."""
    return name.replace("/", "_").replace("\\", "_") or "_"


def plain(value: Any) -> Any:
    """Return a value of the metadata as JSON has it: what it lacks as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"<integer of {value.bit_length():,} bits>"
    if isinstance(value, str):
        return text_of(value)
    return value if value is None or isinstance(value, int | float) else str(value)


# -- safetensors -------------------------------------------------------------------------------------------------------


class SafetensorsJudge(TensorJudge):
    """Judges each tensor by its entry in the header, and by its bytes."""

    is_copied = True

    def __init__(self, job: Job, viewer: SafetensorsViewer) -> None:
        super().__init__(job, viewer)
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
            finding = tensor.finding if tensor.status is found[0] else None
            return found[0], found[1] if finding is None else finding.reason, False
        if number in self.spoiled:
            return Status.DAMAGED, "its bytes cannot be read", False
        doubt = self.header_suspect
        if span.length:
            doubt = self.job.data.why_suspect(span.offset, span.offset + span.length) or doubt or shifted
        if tensor.unwritten_nbytes:
            doubt = f"{tensor.unwritten_nbytes:,} bytes of it were never written (a file hole)"
        return Status.COMPLETE if doubt is None else Status.DAMAGED, doubt or "", doubt is not None

    def _of_bytes(self, start: int, stop: int) -> tuple[Status, str] | None:
        """Return what is lost of the bytes ``[start, stop)``; None: nothing."""
        data, solid = self.job.data, self.job.solid
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

    def metadata(self) -> dict[str, str] | None:
        """Return those of the old file that the library takes: strings."""
        kept = self.kept_metadata
        return None if kept is None else {key: value for key, value in kept.items() if isinstance(value, str)}

    @cached_property
    def kept_metadata(self) -> dict[str, object] | None:
        """The whole entries of ``__metadata__``; None if there is none."""
        node = self.viewer.parser.metadata_node()
        if node is None or node.shape == SCALAR:
            return None
        return {key: value for key, value in self.viewer.metadata.items() if _writable(value)}


def salvage_safetensors(job: Job) -> str:
    """Write the whole tensors as a safetensors file, suspect ones as a second file, and the others beside it;
    see `pparse.recovery.salvage`."""
    from pparse.viewers.safetensors.rules import REFUSED
    from pparse.viewers.safetensors.viewer import SafetensorsViewer

    try:
        viewer = SafetensorsViewer(job.extraction)
        viewer.resolve_all()
        parser = viewer.parser
        parser.resolve_header()
        if not parser.is_object:
            return NOTHING
        judge = SafetensorsJudge(job, viewer)
        # Why the library would refuse the file even if all its tensors were whole.
        found = viewer.findings if len(viewer.findings) else parser.text_findings
        refused = [finding for finding in found if finding.code in REFUSED]
        opens = parser.text_status is Status.COMPLETE and parser.wrong_length is None and not refused
        plan, file = save_model(judge, opens=opens)
        if opens and plan.is_whole:
            return UNHARMED
        suspect, second = save_suspect(judge, plan)
        if file is None and second is None:  # a model without tensors
            plan, file = save_model(judge, empty=True)
    except (MalformedError, GapError, EndOfDataError):  # in the header; those in tensors are noted
        return NOTHING
    status: Status = Status.TRUNCATED if plan.is_whole else plan.worst
    if file is not None:
        status = _report_model(judge, plan, file, refused)
    path = report_suspect(job, suspect, second)
    SafetensorsLeftovers(judge, status, file.path if file is not None else path or job.name, path).save()
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


def _report_model(judge: SafetensorsJudge, plan: SalvagePlan, file: TargetFile, refused: list[Finding]) -> Status:
    """Report the new file, and return its status."""
    job, parser = judge.job, judge.viewer.parser
    problem = None if parser.is_plain else parser.header.root.finding
    least = "at least " if parser.text_status is not Status.COMPLETE else ""
    reason = f"{plan.count:,} of {least}{plan.total:,} tensors are whole"
    if problem is not None:
        reason += f"; its header: {problem.reason}"
    status = plan.worst
    if plan.is_whole:
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

    is_listed = False

    def metadata(self) -> dict[str, object] | None:
        """Return those of the old file."""
        kept: dict[str, object] | None = self.judge.kept_metadata
        return kept

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
