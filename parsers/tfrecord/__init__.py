"""TFRecord files.

Where the checksums of a record lie, and where records go on behind damage, `pparse.parsers.tfrecord.frames` tells.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.tfrecord.parser import TfrecordParser
__getattr__ = lazy_names(__name__, {"TfrecordParser": "parser"})
__all__ = ["TfrecordParser"]
