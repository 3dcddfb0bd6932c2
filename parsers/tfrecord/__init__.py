"""TFRecord files.

Where the checksums of a record lie, `pparse.parsers.tfrecord.frames` tells;
where records go on behind damage, ``mend``.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.tfrecord.parser import TfrecordParser
__getattr__ = lazy_names(__name__, {"TfrecordParser": "parser"})
__all__ = ["TfrecordParser"]
