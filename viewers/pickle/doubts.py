"""What makes the tensors of a pickle doubtful besides their own storages: its names, and bytes never written."""

from __future__ import annotations

from itertools import islice

from pparse.findings import Finding, Status
from pparse.tensors.status import unwritten_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.parsers.pickle.parser import PickleParser
    from pparse.tensors.tensor import Span, Tensor
    from pparse.tree.node import Node
    from pparse.viewers.pickle.viewer import PickleViewer

# Storages with holes in them are read for their checksums up to so many bytes in all: a list must not read the file.
_READ: Final = 4 << 20
_MOST_HOLES: Final = 10_000


class Doubts:
    """Marks the tensors of one viewer."""

    def __init__(
        self, viewer: PickleViewer, *, has_checksums: bool, pickled: Callable[[], Node | None] | None = None
    ) -> None:
        """``has_checksums``: of the storages, which tell whether zeros in place of them are right.

        ``pickled`` returns the value that names the tensors, if it is not that of the viewer.
        """
        self._viewer = viewer
        self._pickled = pickled or viewer.pickled
        self._has_checksums = has_checksums
        self._holes: list[tuple[int, int]] | None = None
        self._known = -1  # how much was known of the bytes when the names were judged
        self._names: str | None = None
        self._room = _READ

    def mark(self, tensor: Tensor) -> Tensor:
        """Note what is doubtful about a tensor, and return it."""
        why = self.of_names
        if why is not None and tensor.claimed_status is Status.COMPLETE:
            tensor.status = Status.DAMAGED
            reason = f"the pickle that describes it may be wrong: {why}"
            tensor.finding = Finding("doubt", reason, path=tensor.name, source=self._viewer.extraction.name)
        elif self.holes and tensor.spans and tensor.spans[0].data is self._viewer.extraction.parsed.data:
            span = tensor.spans[0]
            count = self._unwritten(span.offset, span.offset + span.length)
            if count and not (self._has_checksums and self._agrees(span)):
                tensor.unwritten_nbytes = count
        return tensor

    def _unwritten(self, start: int, end: int) -> int:
        return unwritten_in(self.holes, start, end)[1]

    def _agrees(self, span: Span) -> bool:
        from pparse.viewers.pickle.make import StoredSpan

        if not isinstance(span, StoredSpan):
            return False
        most, self._room = self._room, max(0, self._room - span.length)
        return span.agrees_with_holes(self._unwritten, most)

    @property
    def of_names(self) -> str | None:
        """Why the pickle with the names may be wrong; None if nothing suggests that."""
        discoveries = self._viewer.extraction.session.stats.discoveries
        if discoveries != self._known:
            self._known, self._names = discoveries, self._judge_names()
        return self._names

    def _judge_names(self) -> str | None:
        root = self._pickled()
        if root is None or not root.result.extraction.data.flawed:
            return None
        root.result.extraction.confirm()  # a checksum of its own may tell that it is right
        parser: PickleParser = root.result.parser  # type: ignore[assignment]
        start, end = root.result.extraction.start, parser.program(parser.starts[-1]).end
        return root.result.extraction.data.why_suspect(start, end)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Stretches of the file that were never written, in order, at most 10,000."""
        if self._holes is None:
            inner = self._viewer.extraction.parsed
            self._holes = list(islice(inner.data.holes(inner.start, inner.known_end()), _MOST_HOLES))
        return self._holes

    def finding_of(self, tensor: Tensor) -> Finding | None:
        """Return the finding on a tensor that lies in a hole of the file."""
        if not tensor.unwritten_nbytes:
            return None
        span = tensor.spans[0]
        first, length = unwritten_in(self.holes, span.offset, span.offset + span.length)
        return Finding(
            "unwritten",
            f"{length:,} of {span.length:,} bytes were never written (a file hole): they read as zeros",
            path=tensor.name,
            source=self._viewer.extraction.name,
            offset=first,
            length=length,
        )
