"""Which tensors of a checkpoint are whole, which are suspect, and which fit a safetensors file; and their bytes."""

from __future__ import annotations

from pparse.data.spliced import HiddenData
from pparse.findings import Status
from pparse.parsers.safetensors.entry import REFERENCE_HEADER_LIMIT
from pparse.recovery.reader_rules import why_unfit
from pparse.tensors.tensor import Span, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.recovery.salvage_job import Job
    from pparse.tensors.viewer import Viewer

_STEP: Final = "1MiB"
_EVERYWHERE: Final = [(0, 1 << 62)]
TOO_LONG: Final = f"with it, the header would be longer than the {REFERENCE_HEADER_LIMIT:,} bytes that readers accept"


class TensorJudge:
    """Judges each tensor: whole, suspect, or not to be written."""

    is_copied = False
    """Whether bytes are copied as they lie in the document, in that order; else elements are read, the widest first."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.spoiled: set[int] = set()
        """Numbers of tensors that could not be read."""
        self.too_many: dict[bool, int] = {}
        """From which tensor on a file of those that are suspect, or are not, would have too long a header."""
        self._room = job.target.max_bytes - job.target.bytes

    def judge(self, number: int, tensor: Tensor) -> tuple[Status, str, bool]:
        """Return the status of a tensor, the reason, and whether its only problem is that its bytes may be wrong."""
        status = tensor.status
        reason = tensor.finding.reason if tensor.finding is not None else str(status)
        if tensor.is_text and tensor.spans and status is Status.COMPLETE:
            return status, "", False
        if status is Status.UNSUPPORTED or tensor.dtype is None or not tensor.spans:
            return (Status.UNSUPPORTED if status is Status.COMPLETE else status), reason, False
        if number in self.spoiled:
            return Status.DAMAGED, "its bytes cannot be read", False
        if status is Status.COMPLETE and not tensor.unwritten_nbytes:
            return Status.COMPLETE, "", False
        if tensor.unwritten_nbytes:
            return Status.DAMAGED, f"{tensor.unwritten_nbytes:,} bytes of it were never written (a file hole)", True
        return status, reason, status is Status.DAMAGED and _has_all_bytes(tensor)

    def rank(self, tensor: Tensor) -> int:
        """Return by what bytes are sorted in the new file: the widest elements first, as readers want them aligned."""
        return 0 if self.is_copied or tensor.dtype is None else -tensor.dtype.itemsize

    def metadata(self, viewer: Viewer) -> dict[str, str] | None:
        """Return the metadata of the new file: ``format`` is what readers go by."""
        return {"format": "pt" if viewer.format.startswith("pytorch") else "np"}

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
        if dtype.packed and not _in_order(tensor):
            return f"elements of {dtype} that do not follow each other share bytes"
        size = dtype.stored_nbytes(tensor.size)
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
    gap = span.data.next_gap(span.offset)
    return gap is None or gap.offset >= end


def _in_order(tensor: Tensor) -> bool:
    return tensor.dtype is not None and tensor.dtype.stored_nbytes(tensor.size) == tensor.stored_nbytes


def unjudged(tensor: Tensor) -> Tensor:
    """Return a damaged tensor that has all of its bytes as one that can be read, with its bytes as they are."""
    source = tensor._sources[0]
    assert source.data is not None  # noqa: S101 -- `_has_all_bytes`
    data = HiddenData(source.data, [], _EVERYWHERE)
    return tensor.over(Span(data, source.offset, source.length, source.path))


def bytes_of(tensor: Tensor) -> Iterator[bytes]:
    """Yield the elements of a tensor in C order, little-endian, as a file holds them. Raises the errors of `blocks`."""
    return tensor.array_blocks(_STEP)
