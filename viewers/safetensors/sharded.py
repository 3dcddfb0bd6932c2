"""The tensors of a sharded safetensors model: an index with its shards, or a folder of them."""

from __future__ import annotations

from pparse.document.registry import excerpt_of
from pparse.errors import FormatError
from pparse.parsers.safetensors.parser import SafetensorsParser
from pparse.tree.parser import Confidence
from pparse.viewers.safetensors.viewer import SafetensorsViewer
from pparse.viewers.shards import ShardSetViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.document.extraction import Extraction
    from pparse.findings import Finding


class SafetensorsSetViewer(ShardSetViewer):
    """A mapping of tensor names to tensors over all shards."""

    rules = "safetensors"

    def open_shard(self, shard: Extraction) -> SafetensorsViewer:
        """Return the viewer of ``shard``. Raises `FormatError` if it is not one."""
        excerpt = excerpt_of(shard)
        if shard._format is None and (SafetensorsParser.match(excerpt) is Confidence.CERTAIN or not excerpt.head(1)):
            shard._format = "safetensors"  # what detection would find, at a fifth of the cost; or the cut is at byte 0
        found = shard.parse().parser.name
        if found != "safetensors":
            raise FormatError(f"its format is {found}, not safetensors")
        return SafetensorsViewer(shard)

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check everything, and yield each finding as it is made; ``strict`` adds the rules of the reference reader."""
        from pparse.viewers.safetensors.rules import check_set

        return check_set(self, strict=strict)
