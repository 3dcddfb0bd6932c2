"""TensorBoard's event files (``events.out.tfevents.…``): TFRecord files whose records are ``tensorflow.Event``.

The states are those of a TFRecord file (`pparse.parsers.tfrecord.parser`). The first record has the version of the
format, ``brain.Event:2``, and nothing else. Source: tensorflow/core/util/event.proto, events_writer.cc.
"""

from __future__ import annotations

from pparse.kernels.tfrecord_scan import HEAD_SIZE
from pparse.parsers.tfrecord.parser import TfrecordParser, is_event
from pparse.protos import schema
from pparse.tree.parser import Confidence, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar, Final

    from pparse.data.base import Range
    from pparse.protobuf.schema import MessageType
    from pparse.tree.parser import Excerpt

_HEAD: Final = HEAD_SIZE + 32
EVENT: Final = "tensorflow.Event"
# Where the version stands: behind the head of the record, the time, a tag and a length.
_VERSION_AT: Final = HEAD_SIZE + 11


class TfeventsParser(TfrecordParser):
    """An event file of TensorBoard."""

    name = "tfevents"
    description = "TensorBoard event file (TFRecord)"
    extensions: ClassVar[tuple[str, ...]] = (".tfevents",)
    refines: ClassVar[tuple[str, ...]] = ("tfrecord",)
    is_data_set = False
    signatures = (Signature(b"brain.Event:", _VERSION_AT),)
    viewer = "pparse.viewers.tfevents.viewer:TfeventsViewer"
    references: ClassVar[tuple[str, ...]] = (
        "tensorflow/core/util/event.proto",
        "tensorflow/core/framework/summary.proto",
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "a file that is cut between two records looks whole",
        "each file is read by itself: those of one run are not joined, and a restart's steps are not purged",
        "graphs in records are bytes",
    )
    options: ClassVar[dict[str, str]] = {"verify": TfrecordParser.options["verify"]}
    child_state: ClassVar[dict[str, str]] = {"tfevents": "expect_record"}

    def _find_root_type(self) -> MessageType | None:
        return schema().message(EVENT)

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by the first record."""
        return Confidence.CERTAIN if is_event(excerpt.head(_HEAD)[HEAD_SIZE:]) else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """NO: what is found further in is a TFRecord file."""
        return Confidence.NO

    @classmethod
    def match_further(cls, reader: Range, *, thorough: bool) -> Confidence:
        """The same in what a stream holds, whatever its name is."""
        return Confidence.CERTAIN if is_event(reader.peek(_HEAD)[HEAD_SIZE:]) else Confidence.NO

    @classmethod
    def search(cls, reader: Range, poll: Callable[[], object]) -> int | None:
        """Return None: what is found further in is a TFRecord file."""
