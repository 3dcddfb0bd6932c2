"""What an extraction or a recovery should do, and where it begins."""

from __future__ import annotations

from pparse.containers.stream import StreamParser
from pparse.document.extraction import extraction_of
from pparse.errors import PASSING, FormatError, PparseError
from pparse.findings import Finding, Severity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pparse.document.extraction import Extraction
    from pparse.tree.result import Result


class ExtractionPlan:
    """What `extract` and `recover` write."""

    __slots__ = ("drain", "recursive", "salvage", "unclaimed", "wanted")

    def __init__(
        self,
        *,
        recursive: bool = False,
        unclaimed: bool = False,
        salvage: bool = False,
        drain: bool = False,
        wanted: Callable[[str], bool] | None = None,
    ) -> None:
        self.recursive = recursive
        """Whether to enter containers."""
        self.unclaimed = unclaimed
        """Whether to write bytes that lie between members."""
        self.salvage = salvage
        """Whether to write incomplete model files in a form that their library opens."""
        self.drain = drain
        """Whether to read streams to their end first, so that their checksums are compared."""
        self.wanted = wanted
        """Selects members of the outermost container by name; None for all."""


def recognise(document: Extraction) -> Result:
    """Parse a document, or a container that is found somewhere in it, with the best parser.

    Raise `FormatError` if there is none.
    """
    try:
        return document.parse()
    except FormatError:
        from pparse.document.registry import hidden_format

        name = hidden_format(document)
        if name is None:
            raise
        document.assume(name)
        result = document.parse()
        result.findings.add(
            Finding(
                "searched",
                f"no parser recognises it; something of {name} was found in it",
                severity=Severity.NOTE,
                source=base_name(document.name),
            )
        )
        return result


def base_name(path: str) -> str:
    """Return the last part of a path; "file" if it has none."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or "file"


def files_beside(document: Extraction) -> list[tuple[str, Extraction]]:
    """Return the other files that a document consists of, by their names in its folder; none if it cannot be read."""
    from pparse.document.registry import viewer_for
    from pparse.tensors.viewer import Viewer

    try:
        viewer = viewer_for(document)
        return list(viewer.files_beside()) if isinstance(viewer, Viewer) else []
    except PASSING:
        raise
    except PparseError:
        return []


def streams_around(extraction: Extraction, result: Result) -> Iterator[Result]:
    """Yield the results of the compressed streams between a member and the document in it, innermost first."""
    inner: Extraction | None = extraction_of(result)
    while inner is not None:
        for found in list(inner.results.values()):
            if isinstance(found.parser, StreamParser):
                yield found
        if inner is extraction:
            return
        inner = inner.parent
