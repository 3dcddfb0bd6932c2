"""The tensors of a sharded PyTorch model: an index with its checkpoints, or a folder of them."""

from __future__ import annotations

from pparse.errors import CancelledError, ClosedError, DataChangedError, FormatError, PparseError
from pparse.viewers.pytorch.viewer import PyTorchViewer
from pparse.viewers.safetensors.sharded import SafetensorsSetViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.document.extraction import Extraction
    from pparse.findings import Finding


class PyTorchSetViewer(SafetensorsSetViewer):
    """A mapping of tensor names to tensors over all shards."""

    def open_shard(self, shard: Extraction) -> PyTorchViewer:
        """Return the viewer of ``shard``. Raises `FormatError` if it is no checkpoint."""
        found = shard.parse().parser.name
        if not found.startswith("pytorch") or found == self.format:
            raise FormatError(f"its format is {found}, not pytorch")
        return PyTorchViewer(shard)

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check all shards, and yield each finding as it is made."""
        seen = 0
        for _ in self.tensors():
            while seen < len(self.findings) - self.findings.omitted:
                yield self.findings[seen]
                seen += 1
        for name in self.parser.shard_names():
            yield from self._check_shard(name, strict=strict)
        while seen < len(self.findings) - self.findings.omitted:
            yield self.findings[seen]
            seen += 1

    def _check_shard(self, name: str, *, strict: bool) -> Iterator[Finding]:
        try:
            viewer = self.shard_viewer(name)
        except (CancelledError, ClosedError, DataChangedError):
            raise
        except PparseError:
            return  # listing the tensors told it
        for finding in viewer.check(strict=strict):
            self.findings.add(finding)
            yield finding
