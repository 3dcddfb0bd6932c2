"""Which viewer shows a checkpoint: that of its version."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pparse.document.extraction import Extraction
    from pparse.tensors.viewer import Viewer


def viewer_of_version(extraction: Extraction) -> Viewer:
    """Return the viewer of a checkpoint of version 1 or 2."""
    parser: Any = extraction.parse().parser
    if parser.version == 1:
        from pparse.viewers.checkpoint.version1 import Version1Viewer

        return Version1Viewer(extraction)
    from pparse.viewers.checkpoint.viewer import CheckpointViewer

    return CheckpointViewer(extraction)
