"""The tensors of a sharded PyTorch model: an index with its checkpoints."""

from __future__ import annotations

from pparse.errors import FormatError
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
        return self.check_parts(strict=strict)
