"""The tensors of a model in several GGUF files, ``name-00001-of-00003.gguf`` etc.: any of them opens all.

As llama.cpp splits them (``tools/gguf-split``): each part is a GGUF file with its own number from 0 on in ``split.no``,
that of parts in ``split.count``, and that of all tensors in ``split.tensors.count``; the first one has the other
key-values. llama.cpp loads no model whose ``split.no`` differ from the numbers in the names, or with another number of
tensors (``src/llama-model-loader.cpp``). A file that was put in the place of a part is no part here, either: its
tensors are not the model's, which is damaged. Merging the parts sets ``split.count`` to 0.
"""

from __future__ import annotations

from pparse.document.extraction import extraction_of
from pparse.errors import FormatError, MalformedError
from pparse.findings import Severity, Status
from pparse.limits import count_words
from pparse.parsers.gguf.parser import part_names, part_of
from pparse.parsers.shards import ShardSet
from pparse.viewers.gguf.viewer import COUNT, NUMBER, TENSORS, GgufViewer
from pparse.viewers.shards import ShardSetViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.document.extraction import Extraction
    from pparse.tensors.status import Extent
    from pparse.tree.result import Result

# So many numbers of all tensors are compared; sound parts agree on one.
_MOST_PROMISES: Final = 8


class GgufParts(ShardSet):
    """The files of a split model, by the name of one of them; there is no index."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.name = result.parser.name  # type: ignore[misc]
        self._names = part_names(extraction_of(result).name)

    def shard_names(self) -> list[str]:
        """Return the names of all parts."""
        return self._names


class GgufSplitViewer(ShardSetViewer):
    """A mapping of tensor names to tensors over all parts; `metadata` is that of the first."""

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = GgufParts(extraction.parse())
        self._misplaced = False
        self._promised: dict[int, str] = {}
        """What parts say of the number of all tensors, and the first one that says it."""

    @property
    def alone(self) -> GgufViewer:
        """The viewer of the file that was opened, without the others."""
        return GgufViewer(self.extraction)

    def open_shard(self, shard: Extraction) -> GgufViewer:
        """Return the viewer of one part. Raises `FormatError` if it is none, `MalformedError` if it is another one."""
        found = shard.parse().parser.name
        if found != "gguf":
            raise FormatError(f"its format is {found}, not gguf")
        viewer = GgufViewer(shard)
        reason = self._contradiction(viewer)
        if reason is not None:
            self._misplaced = True
            raise MalformedError(reason, source=shard.name)
        promised = viewer.split_value(TENSORS)
        if promised is not None and len(self._promised) < _MOST_PROMISES:
            self._promised.setdefault(promised, shard.name)
        return viewer

    def _contradiction(self, viewer: GgufViewer) -> str | None:
        """Return why a file is not the part that its name says; None if it is, or what tells it is cut off."""
        _, place, parts = part_of(viewer.extraction.name) or ("", 0, 0)
        number, count = viewer.split_value(NUMBER), viewer.split_value(COUNT)
        if number is None and viewer.facts is not None and viewer.facts.status is Status.COMPLETE:
            return f"it is not the part that its name says: it has no number {NUMBER}"
        if number is not None and number != place - 1:
            return f"it is not the part that its name says: {NUMBER} is {number}, not {place - 1}"
        if count is not None and count != parts:
            return f"it is not the part that its name says: {COUNT} is {count}, not {parts}"
        return None

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added: compare their number with what each part says."""
        lost = extent.missing_files
        for promised, name in self._promised.items():
            if promised == extent.count or extent.at_least:
                continue
            where = f", the others in {count_words(lost, 'file')} that cannot be read" if lost else ""
            reason = f"{TENSORS} says {count_words(promised, 'tensor')}, {extent.count} are known{where}"
            severity = Severity.ERROR if promised > extent.count else Severity.WARNING
            self._note("split", reason, severity, path=name, wanted=promised, got=extent.count)
            if severity is Severity.ERROR and not lost:
                extent.document_status = Status.DAMAGED
        if self._misplaced:
            extent.document_status = Status.DAMAGED
        return super().close_extent(extent)


def is_part(viewer: GgufViewer) -> bool:
    """Say whether the file of ``viewer`` lies in a folder, as one of several parts."""
    extraction = viewer.extraction
    if len(part_names(extraction.name)) < 2 or extraction.folder is None:
        return False
    count = viewer.split_value(COUNT)
    if count is not None:
        return count > 1
    return viewer.root.status is not Status.COMPLETE  # its name is all there is to tell
