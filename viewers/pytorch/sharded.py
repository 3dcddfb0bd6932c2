"""The tensors of a sharded PyTorch model: an index with its checkpoints, or a folder of them."""

from __future__ import annotations

from array import array

from pparse.errors import FormatError, PparseError
from pparse.viewers.pytorch.viewer import PyTorchViewer
from pparse.viewers.shards import ShardSetViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pparse.document.extraction import Extraction
    from pparse.tensors.tensor import Tensor


class PyTorchSetViewer(ShardSetViewer):
    """A mapping of tensor names to tensors over all shards."""

    resolves_late = True

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self._sound: set[str] = set()  # shards whose checksums were compared, and all agree

    def resolve_shard(self, name: str, viewer: PyTorchViewer) -> None:
        """Compare the checksums of one shard; of a sound one only the first time."""
        if name not in self._sound and viewer.is_sound():
            self._sound.add(name)

    def resolve_all_but(self, tensors: Sequence[Tensor]) -> Sequence[int] | None:
        """Compare the checksums that are not just of one of ``tensors``, shard by shard; return those that are."""
        found = array("q", [-1]) * len(tensors)
        places: dict[int, list[int]] = {}
        for number, tensor in enumerate(tensors):
            for span in tensor.spans[:1]:
                places.setdefault(id(span.data), []).append(number)
        for name in self.parser.shard_names():
            try:
                viewer: PyTorchViewer = self.shard_viewer(name)
            except PparseError:
                continue  # listing the tensors told it
            numbers = places.get(id(viewer.extraction.parsed.data), [])
            left = viewer.resolve_all_but([tensors[number] for number in numbers])
            if left is None:
                return None
            for number, crc in zip(numbers, left, strict=True):
                found[number] = crc
        for tensor in tensors:  # of viewers that listed them, and may not be those that were asked just now
            tensor._owner.is_resolved = True
        return found

    def open_shard(self, shard: Extraction) -> PyTorchViewer:
        """Return the viewer of ``shard``. Raises `FormatError` if it is no checkpoint."""
        found = shard.parse().parser.name
        if not found.startswith("pytorch") or found == self.format:
            raise FormatError(f"its format is {found}, not pytorch")
        return PyTorchViewer(shard)
