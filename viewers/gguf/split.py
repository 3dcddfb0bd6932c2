"""The tensors of a model in several GGUF files, ``name-00001-of-00003.gguf`` etc.: any of them opens all.

As llama.cpp splits them (``tools/gguf-split``): each part is a GGUF file with the number of parts in ``split.count``
and that of all tensors in ``split.tensors.count``; the first one has the key-values.
"""

from __future__ import annotations

from pparse.document.extraction import extraction_of
from pparse.errors import FormatError
from pparse.findings import Severity, Status
from pparse.lazy import lazy_pattern
from pparse.limits import count_words
from pparse.parsers.safetensors.index import ShardSet
from pparse.viewers.gguf.viewer import GgufViewer
from pparse.viewers.safetensors.sharded import SafetensorsSetViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.document.extraction import Extraction
    from pparse.findings import Finding
    from pparse.tensors.viewer import Extent
    from pparse.tree.result import Result

COUNT: Final = "split.count"
_TENSORS: Final = "split.tensors.count"
_NAME: Final = lazy_pattern(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf")


class GgufParts(ShardSet):
    """The files of a split model, by the name of one of them; there is no index."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.name = result.parser.name  # type: ignore[misc]
        self._names = part_names(extraction_of(result).name)

    def shard_names(self) -> list[str]:
        """Return the names of all parts."""
        return self._names


class GgufSplitViewer(SafetensorsSetViewer):
    """A mapping of tensor names to tensors over all parts; `metadata` is that of the first."""

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = GgufParts(extraction.parse())

    @property
    def alone(self) -> GgufViewer:
        """The viewer of the file that was opened, without the others."""
        return GgufViewer(self.extraction)

    def open_shard(self, shard: Extraction) -> GgufViewer:
        """Return the viewer of one part. Raises `FormatError` if it is none."""
        found = shard.parse().parser.name
        if found != "gguf":
            raise FormatError(f"its format is {found}, not gguf")
        return GgufViewer(shard)

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check all parts, and yield each finding as it is made."""
        return self.check_parts(strict=strict)

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added: compare the number of tensors, and of files."""
        facts = self.alone.facts
        for key, got, what in (
            (_TENSORS, extent.count, "tensor"),
            (COUNT, len(self.parser.shard_names()), "file"),
        ):
            node = facts.find(key) if facts is not None else None
            promised = node.value if node is not None else None
            if type(promised) is int and promised != got and (what == "file" or not extent.at_least):
                lost = extent.missing_files if what == "tensor" else 0
                where = f", the others in {count_words(lost, 'file')} that cannot be read" if lost else ""
                reason = f"{key} says {count_words(promised, what)}, {got} are known{where}"
                severity = Severity.ERROR if lost else Severity.WARNING
                self._note("split", reason, severity, wanted=promised, got=got)
        return super().close_extent(extent)


def part_names(name: str) -> list[str]:
    """Return the names of all parts of the model that the file ``name`` is one of; none if it is not named like one."""
    found = _NAME.fullmatch(name.rpartition("/")[2].rpartition("\\")[2])
    if found is None or not 0 < int(found[2]) <= int(found[3]):
        return []
    return [f"{found[1]}-{number:05}-of-{found[3]}.gguf" for number in range(1, int(found[3]) + 1)]


def is_part(viewer: GgufViewer) -> bool:
    """Say whether the file of ``viewer`` lies in a folder, as one of several parts."""
    extraction = viewer.extraction
    if len(part_names(extraction.name)) < 2 or extraction.folder is None:
        return False
    facts = viewer.facts
    node = facts.find(COUNT) if facts is not None else None
    if node is not None and type(node.value) is int:
        return node.value > 1
    return viewer.root.status is not Status.COMPLETE  # its name is all there is to tell
