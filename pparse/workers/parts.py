"""Parts of tensors, measured by themselves: by workers if there are some, and joined in order.

A part is 64 MiB of a tensor, or all of it if others cannot begin in its middle. Whoever measures them, the parts are
the same, and so is what they add up to.
"""

from __future__ import annotations

from collections import deque
from itertools import chain, islice

from pparse.data.base import Access
from pparse.errors import SourceError, WorkerDiedError
from pparse.findings import Finding, Status
from pparse.tensors.status import expansion_of, refuse_expanded
from pparse.workers.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final, TypeVar

    from pparse.errors import DataError
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer
    from pparse.workers.results import Workers

    _Of = TypeVar("_Of")

PART: Final = 64 << 20
"""Bytes of a part, as a rule."""
EVEN: Final = 1 << 10
"""Parts begin at multiples of so many elements: where bytes, and blocks of quantised types, do."""


class Part(Task):
    """A part of tensors of the same names or of one, from ``start`` to ``stop`` (None: all): a task for workers.

    What is pickled are viewers, which are opened once in a worker, and names.
    """

    what: str = ""
    """What tells what is measured, and how, from all else."""
    most: int = PART
    """Bytes of a tensor that are one part."""

    def __init__(self, tensors: Sequence[tuple[Viewer, Tensor]], start: int = 0, stop: int | None = None) -> None:
        self.viewers = [viewer for viewer, _ in tensors]
        self._names = [tensor.name for _, tensor in tensors]
        self._tensors: list[Tensor] | None = [tensor for _, tensor in tensors]
        self.start, self.stop = start, stop

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors; in a worker, they are looked up."""
        if self._tensors is None:
            self._tensors = [viewer[name] for viewer, name in zip(self.viewers, self._names, strict=True)]
        return self._tensors

    def run(self) -> Any:
        """Measure it. Raises `LimitError` if few bytes stand for all of a tensor; else what `measure` does."""
        for tensor in self.tensors:
            refuse_expanded(tensor)
        return self.measure()

    def measure(self) -> Any:
        """Return what is wanted of the part. Raises the errors of `Tensor.blocks`."""
        raise NotImplementedError

    def read(self) -> Sequence[Tensor]:
        """Return the tensors that the result depends on."""
        return self.tensors

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """About how many bytes are read."""
        size = sum(tensor.stored_nbytes for tensor in self.tensors)
        return size if self.stop is None else min(size, self.most * len(self.tensors))

    @property
    def is_local(self) -> bool:  # type: ignore[override]
        """Whether a worker cannot read it, or would have to decode what is before it."""
        return not all(map(_can_go, self.viewers, self.tensors))

    def check_cancelled(self) -> None:
        """Ask and tell what the viewers were opened with."""
        for viewer in self.viewers:
            viewer.extraction.session.check_cancelled()

    def key(self) -> str | None:
        """Return what tells it from others; None if nothing tells its bytes from those of another file."""
        from hashlib import sha256  # costs 20 ms

        told: list[object] = [self.what, self.start, self.stop]
        for tensor in self.read():
            told += [tensor.name, tensor.type_name, tensor.shape, tensor.encoding, tensor.strides, tensor.byteorder]
            for span in (one for source in tensor.sources for one in source.spans):
                identity = None if span.data is None else span.data.identity
                if identity is None:
                    return None
                told.append((identity, span.offset, span.length))
        return sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_tensors": None}


def _can_go(viewer: Viewer, tensor: Tensor) -> bool:
    spans = (span for source in tensor.sources for span in source.spans)
    if not tensor.is_complete or any(span.data is None or span.data.access is not Access.FREE for span in spans):
        return False
    found = viewer.__dict__.get("_can_be_sent")
    if found is None:
        found = viewer.__dict__["_can_be_sent"] = _can_be_sent(viewer)
    return bool(found)


def _can_be_sent(viewer: Viewer) -> bool:
    from pparse.document.handles import handle_of

    try:
        return isinstance(handle_of(viewer.extraction.outermost).source, str)
    except SourceError:
        return False


def divided(tensor: Tensor, size: int, step: int) -> list[tuple[int, int | None]]:
    """Return where parts of ``step`` begin and end, of ``size``; just one if a checksum must be compared."""
    if size <= step or not tensor.is_complete or tensor.is_checked_by_reading or expansion_of(tensor):
        return [(0, None)]
    return [(start, min(size, start + step)) for start in range(0, size, step)]


def measured(
    items: Iterable[_Of], parts_of: Callable[[_Of], Sequence[Task]], workers: Workers
) -> Iterator[tuple[_Of, Iterator[Callable[[], Any]]]]:
    """Yield each item with what returns the results of its parts, at least one: each to be called once, in order."""
    waiting: deque[tuple[_Of, int]] = deque()

    def tasks() -> Iterator[Task]:
        for item in items:
            parts = parts_of(item)
            waiting.append((item, len(parts)))
            for part in parts:
                part.check_cancelled()
                yield part

    results = workers.results(tasks())
    for first in results:
        item, count = waiting.popleft()
        own = islice(chain((first,), results), count)
        yield item, own
        deque(own, maxlen=0)  # an error ended it


def why_not(viewer: Viewer, tensor: Tensor, error: DataError) -> tuple[Status, str]:
    """Return status and reason of a tensor that could not be measured."""
    if isinstance(error, WorkerDiedError):
        viewer.findings.add(Finding("worker-died", error.reason, path=tensor.name, source=viewer.extraction.name))
    if tensor.is_complete:
        return Status.UNSUPPORTED, error.reason
    own = "" if tensor.finding is None else tensor.finding.reason
    return tensor.status, error.reason if own in error.reason else own
