"""What an extraction or a recovery is to do, and what it is begun with."""

from __future__ import annotations

from pparse.errors import FormatError
from pparse.findings import Finding, Severity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pparse.document.extraction import Extraction
    from pparse.tree.result import Result


class ExtractionPlan:
    """What to write: ``recursive``, enter containers; ``unclaimed``, write what lies between members; ``salvage``,
    write model files that are not whole in a form that their library opens; ``drain``, read streams to their end first,
    so that what their checksums say is known; ``wanted``, which members of the outermost container."""

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
        self.unclaimed = unclaimed
        self.salvage = salvage
        self.drain = drain
        self.wanted = wanted


def recognise(document: Extraction) -> Result:
    """Return what the best parser makes of a document, or of a container that is somewhere in it.

    Raises `FormatError` if there is none.
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
    """Return the last part of a path, "file" if it has none."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or "file"
