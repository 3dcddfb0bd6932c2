"""Protocol buffer messages of any size as files of chunks (``.cpb``): TensorFlow's *proto splitter* and its merger.

::

    GraphDefSplitter(graph).write("model")        # model.pb, or model.cpb if it is above max_size()
    SizeSplitter(message, max_size="64MiB").write("message")   # any message type
    Merger.read("model", GraphDef())
    split_file("huge.pb", "model")                # from the file, with bounded memory, whatever its size
    merge_to_file("model.cpb", "huge.pb")         # and back

A splitter takes the message apart *in place*, as TensorFlow's does (``copy=True`` splits a copy instead).
Names are imported on first use.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.errors import SplitError
    from pparse.proto_splitter.fields import FieldNotFoundError, format_bytes, get_field, get_field_tag
    from pparse.proto_splitter.folders import FolderOptions, merge_folder, split_folder
    from pparse.proto_splitter.graph_def import (
        ConstantNodeDefSplitter,
        FunctionDefSplitter,
        GraphDefSplitter,
        SavedModelSplitter,
    )
    from pparse.proto_splitter.merger import Merger
    from pparse.proto_splitter.size import LargeMessageSplitter, RepeatedMessageSplitter, SizeSplitter
    from pparse.proto_splitter.split import ComposableSplitter, Splitter, debug_set_max_size, max_size, set_max_size
    from pparse.proto_splitter.stream_merge import merge_to_file
    from pparse.proto_splitter.stream_split import split_file

_NAMES = {
    "fields": "FieldNotFoundError format_bytes get_field get_field_tag",
    "folders": "FolderOptions merge_folder split_folder",
    "graph_def": "ConstantNodeDefSplitter FunctionDefSplitter GraphDefSplitter SavedModelSplitter",
    "merger": "Merger",
    "size": "LargeMessageSplitter RepeatedMessageSplitter SizeSplitter",
    "split": "ComposableSplitter SplitError Splitter debug_set_max_size max_size set_max_size",
    "stream_merge": "merge_to_file",
    "stream_split": "split_file",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "ComposableSplitter",
    "ConstantNodeDefSplitter",
    "FieldNotFoundError",
    "FolderOptions",
    "FunctionDefSplitter",
    "GraphDefSplitter",
    "LargeMessageSplitter",
    "Merger",
    "RepeatedMessageSplitter",
    "SavedModelSplitter",
    "SizeSplitter",
    "SplitError",
    "Splitter",
    "debug_set_max_size",
    "format_bytes",
    "get_field",
    "get_field_tag",
    "max_size",
    "merge_folder",
    "merge_to_file",
    "set_max_size",
    "split_file",
    "split_folder",
]

__getattr__ = lazy_names(__name__, _WHERE)


def __dir__() -> list[str]:
    return sorted(__all__)
