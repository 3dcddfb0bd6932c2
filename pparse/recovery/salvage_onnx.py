"""An ONNX model whose graph survived: beside its whole tensors, a model that finds them in the safetensors file.

So there is one copy of the weights, and onnx and its runtimes read both as one model (external data).
"""

from __future__ import annotations

from pparse.errors import DataError, LimitError
from pparse.findings import Status
from pparse.limits import count_words
from pparse.recovery.report import RecoveredFile
from pparse.recovery.salvage import text_of
from pparse.recovery.salvage_tensors import bytes_of
from pparse.viewers.onnx.part import RebuiltModel, StoredField

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.recovery.salvage_tensors import SalvagePlan, TensorJudge
    from pparse.recovery.target import TargetFile
    from pparse.tensors.tensor import Tensor

_EXTENSION: Final = ".onnx"
_MOST_NAMES: Final = 5


class ModelWriter:
    """Writes the model beside the safetensors ``file`` (None: no tensor is in one), which was written as ``plan`` says.

    ``name`` is that of the damaged model.
    """

    def __init__(self, judge: TensorJudge, plan: SalvagePlan, file: TargetFile | None, name: str) -> None:
        self._judge = judge
        self._plan = plan
        self._location = "" if file is None else file.path.rpartition("/")[2]
        self._name = name if name.lower().endswith(_EXTENSION) else name + _EXTENSION
        self._places = {one.number: StoredField(plan.begin + one.place, one.size) for one in plan.listed()}
        self._seen: set[int] = set()
        self.path: str | None = None
        """The path of the model; None if none could be written."""

    def holds(self, number: int, tensor: Tensor) -> bool:
        """Say whether the model has a tensor that no safetensors file can hold."""
        outside = tensor.name.startswith("training[")
        return self.path is not None and not outside and self._stored(number, tensor) is not None

    def save(self, status: Status) -> None:
        """Write the model and report it with ``status``, or report why there is none."""
        job = self._judge.job
        try:
            model = RebuiltModel(self._judge.viewer, self._location, self._stored)
            with job.target.create(self._name) as file:
                model.write(file.write)
        except DataError as error:
            if isinstance(error, LimitError) and job.target.is_full:
                raise
            reason = f"no model can be written with what is left: {error.reason}"
            job.report_as(RecoveredFile(None, Status.MISSING, raw_name=self._name, reason=text_of(reason)))
            return
        self.path = file.path
        reason = "the graph with " + (count_words(model.kept, "whole initializer") if model.kept else "no initializer")
        if model.needs_file:
            reason += f", most of whose bytes are in {self._location}: keep both in one folder"
        if lost := model.inputs:
            shown = ", ".join(lost[:_MOST_NAMES]) + (" …" if len(lost) > _MOST_NAMES else "")
            reason += f"; to be fed as inputs, since they are lost: {shown}"
        job.report(file, status, text_of(reason))

    def _stored(self, number: int, tensor: Tensor) -> StoredField | None:
        """Return where a tensor is in the safetensors file; without a length, if it is whole and not there."""
        if self._plan.has(number):
            return self._places[number]
        if number in self._judge.spoiled or not tensor.is_complete or tensor.unwritten_nbytes:
            return None
        if tensor.dtype is not None and number not in self._seen:  # it is read once
            try:
                for _ in bytes_of(tensor):
                    pass
            except DataError:
                self._judge.spoiled.add(number)
                return None
            self._seen.add(number)
        return StoredField()
