"""Formats that are FlatBuffers: a schema each, and what else their files have."""

from __future__ import annotations

from pparse.parsers.flatbuffers.parser import FlatBuffersParser
from pparse.tree.parser import Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.parsers.flatbuffers.survey import Survey

# Where buffers lie behind the FlatBuffer, a file ends with up to so many zeros, at a multiple of that.
_PADDED: Final = 64
_ALIGNED: Final = 16


class TfliteParser(FlatBuffersParser):
    """TFLite, version 3 of its schema."""

    name = "tflite"
    schema_name = "tflite"
    description = "TFLite model (LiteRT)"
    extensions = (".tflite", ".lite")
    signatures = (Signature(b"TFL3", 4),)
    limitations = (
        "there are no checksums: changed bytes show only where they contradict others",
        "sparse tensors are listed, and not decoded",
        "where a model is cut before its last tables, its buffers are without names and shapes",
    )
    references = ("google-ai-edge/LiteRT tflite/converter/schema/schema.fbs", "https://flatbuffers.dev/internals")

    viewer = "pparse.viewers.flatbuffers.tflite:TfliteViewer"
    beyond = {
        "Buffer": ("offset", "size"),
        "Operator": ("large_custom_options_offset", "large_custom_options_size"),
    }

    def own_end(self, survey: Survey) -> int:
        """Return where the file should end: behind the last buffer, and the zeros by which the converter pads it."""
        extraction = self.result.extraction
        there = extraction.find_end()
        tail = there - survey.end
        if 0 < tail < _PADDED and not (there - extraction.start) % _ALIGNED:
            padding = extraction.data.known(survey.end, tail)
            return there if not any(padding) and len(padding) == tail else survey.end
        return survey.end
