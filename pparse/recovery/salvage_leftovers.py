"""What no safetensors file can hold of a model: parts of tensors, odd types; and a list of all that is not whole."""

from __future__ import annotations

import math

from pparse.errors import PASSING, LimitError, PparseError
from pparse.findings import Status
from pparse.recovery.report import RecoveredFile
from pparse.recovery.salvage_job import Rest, part_words, text_of
from pparse.recovery.tensor_judge import unjudged
from pparse.writers.npy import write_npy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.recovery.salvage_job import Job
    from pparse.recovery.tensor_judge import TensorJudge
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

_MOST_DIMENSIONS: Final = 64
_MOST_BITS: Final = 4096  # of an integer that is written as digits


class Leftovers:
    """Writes what is left of one model; see `save`."""

    is_listed = True
    """Whether a list is written though there is nothing in it."""

    def __init__(
        self, job: Job, viewer: Viewer, judge: TensorJudge, status: Status, name: str, second: str | None
    ) -> None:
        """``name``: the path of the saved file; ``second``: that of the file with suspect tensors, if there is one."""
        self.job = job
        self.viewer = viewer
        self._judge = judge
        self._status = status
        self.name = name
        self._second = second
        self.written = 0
        self.is_held: Callable[[int, Tensor], bool] | None = None
        """Whether a model that was written beside the tensors has one that no safetensors file can hold."""

    def save(self) -> int:
        """Write it, and the list; return the number of files beside the list."""
        metadata = self.metadata()
        rest = Rest(self.job, self.name, {"format": self.viewer.format, "metadata": metadata})
        try:
            if metadata or self.is_listed:
                rest.write()
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

    # -- tensors -----------------------------------------------------------------------------------------------------

    def _save_tensor(self, rest: Rest, number: int, tensor: Tensor) -> None:
        """Save what is there of a tensor that is not in the saved file, and list it."""
        status, why, suspect = self._judge.judge(number, tensor)
        unfit = self._judge.why_unfit(number, tensor, suspect=suspect)
        if status is Status.COMPLETE and unfit is None:
            if self.job.kept is not None:
                self.job.kept(tensor.name, tensor.stored_nbytes)
            return
        if unfit is not None and self.is_held is not None and self.is_held(number, tensor):
            return
        entry = RecoveredFile(None, status, raw_name=text_of(tensor.name))
        there = length = tensor.stored_nbytes
        if suspect and unfit is None and self._second is not None:
            entry.path = self._second
        elif status is Status.COMPLETE and tensor.is_text:
            there = self._write_known(tensor, entry, unfit or "")
            if there < length:  # it lies in several places
                entry.status = Status.UNSUPPORTED
        elif status is Status.COMPLETE or suspect:
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
        """Write a whole tensor as an array of numpy; say whether that was possible."""
        file = self.job.target.create(f"{self.name}.partial/{flat(tensor.name)}.npy")
        try:
            with file:
                write_npy(tensor, file)  # type: ignore[arg-type]
        except PASSING:
            raise
        except PparseError as error:
            if isinstance(error, LimitError) and self.job.target.is_full:
                raise
            entry.status, entry.reason = Status.UNSUPPORTED, text_of(f"{_what(tensor)}: {why}; {error.reason}")
            self.job.report_as(entry)
            return False
        self._take(file, entry, text_of(f"{_what(tensor)}: {why}"))
        return True

    def _write_known(self, tensor: Tensor, entry: RecoveredFile, why: str) -> int:
        """Write the known bytes of a tensor as they are stored, and return their number."""
        span = tensor.content_span
        length, there = tensor.stored_nbytes, 0
        if span is not None and span.data is not None and length:
            entry.offset = span.offset
        if span is not None and span.data is not None and entry.status is not Status.MISSING:
            stop = span.offset + length if span.end is None else min(span.offset + length, span.end)
            for end in (span.data.size, self.end):
                stop = stop if end is None else min(stop, end)
            with self.job.target.create(f"{self.name}.partial/{flat(tensor.name)}.bin") as file:
                gaps = self.job.copy_known(file, span.offset, stop, span.data)
                there = file.bytes - gaps.known
                if not there:
                    file.discard()
            if there:
                if file.bytes < length:
                    gaps.add(file.bytes, length - file.bytes)
                entry.gaps = gaps
                self._take(file, entry, None)
        entry.reason = text_of(f"{_what(tensor)}: {part_words(there, length, why)}")
        if not there and length and entry.status in (Status.TRUNCATED, Status.DAMAGED):
            entry.status = Status.MISSING
        self.job.report_as(entry)
        return there

    def _take(self, file: Any, entry: RecoveredFile, reason: str | None) -> None:
        self.written += 1
        entry.path, entry.bytes, entry.sha256 = file.path, file.bytes, file.sha256
        if reason is not None:
            entry.reason = reason
            self.job.report_as(entry)

    def save_others(self) -> None:
        """Save what is not of a tensor: nothing, unless a format says more."""


def flat(name: str) -> str:
    """Return a name of a tensor or a storage as that of a file without folders."""
    return name.replace("/", "_").replace("\\", "_") or "_"


def _what(tensor: Tensor) -> str:
    shape = list(tensor.shape[:_MOST_DIMENSIONS]) if tensor.is_shape_known else "of unknown shape"
    return f"{tensor.stored_dtype or '?'} {shape}"


def plain(value: Any) -> Any:
    """Return a value of the metadata as JSON has it: what it lacks as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"<integer of {value.bit_length():,} bits>"
    if isinstance(value, str):
        return text_of(value)
    return value if value is None or isinstance(value, int | float) else str(value)
