"""The file of a command as a model: for commands that ask for nothing but tensors."""

from __future__ import annotations

from pparse.cli.common import OK, exit_code_for, open_file
from pparse.errors import MalformedError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.errors import DataError
    from pparse.tensors.viewer import Viewer


class OpenedModel:
    """Opens the file of a command as a model, for ``with``, which gives its viewer.

    At the end, other models of its folder are told. Raises `UnsupportedError` if it holds no tensors.
    """

    def __init__(self, options: Any, out: Output, *, quiet: bool = False) -> None:
        """``quiet``: other models are not told, as they are not for an output that programs read."""
        self._document = open_file(options, out)
        self._out = out
        self._quiet = quiet or _is_quiet(options)

    def __enter__(self) -> Viewer:
        from pparse.document.registry import viewer_for

        document = self._document
        try:
            viewer: Viewer | None = viewer_for(document)
            if viewer is None:
                raise no_tensors(document)
        except BaseException:
            document.close()
            raise
        return viewer

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        document = self._document
        try:
            if document.is_folder and not self._quiet and error is None:
                from pparse.cli.inventory import taken

                told = dict(taken(document, configs=False))  # type: ignore[arg-type]
                if "also here" in told:
                    self._out.error("; ".join(f"{name}: {words}" for name, words in told.items()))
        finally:
            document.close()


def no_tensors(document: Extraction) -> DataError:
    """Return the error that a document has no viewer."""
    from pparse.document.registry import why_no_viewer

    lost = why_no_viewer(document)
    if lost is not None:
        return MalformedError(lost, source=document.name)
    advice = " ('pparse ls -R' lists the models inside)" if document.parse().container is not None else ""
    return UnsupportedError(f"{document.name} is {document.format}, which holds no tensors{advice}")


def _is_quiet(options: Any) -> bool:
    return any(getattr(options, name, False) for name in ("quiet", "json", "jsonl"))


def code_of(viewer: Viewer, options: Any, out: Output, broken: bool | None = None) -> int:
    """Return the exit code of a command that looked at all tensors; if not at all, at ``broken`` ones, or at none.

    What is not whole is told, unless programs read the output.
    """
    code = exit_code_for(viewer.findings, damaged=not viewer.extent().is_sound if broken is None else broken)
    if code != OK and not _is_quiet(options):
        out.error(f"{viewer.extraction.name}: not all of it is whole ('pparse check' says more)")
    return code
