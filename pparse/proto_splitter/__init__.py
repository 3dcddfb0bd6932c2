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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pparse.errors import SplitError
    from pparse.proto_splitter.constants import debug_set_max_size, max_size, set_max_size
    from pparse.proto_splitter.fields import FieldNotFoundError, format_bytes, get_field, get_field_tag
    from pparse.proto_splitter.folders import FolderOptions, merge_folder, split_folder
    from pparse.proto_splitter.graph_def import (
        ConstantNodeDefSplitter,
        FunctionDefSplitter,
        GraphDefSplitter,
    )
    from pparse.proto_splitter.merger import Merger
    from pparse.proto_splitter.repeated import LargeMessageSplitter, RepeatedMessageSplitter
    from pparse.proto_splitter.saved_model import SavedModelSplitter
    from pparse.proto_splitter.size import SizeSplitter
    from pparse.proto_splitter.split import ComposableSplitter, Splitter
    from pparse.proto_splitter.stream_merge import merge_to_file
    from pparse.proto_splitter.stream_split import split_file

_WHERE = {
    "ComposableSplitter": "proto_splitter.split",
    "ConstantNodeDefSplitter": "proto_splitter.graph_def",
    "FieldNotFoundError": "proto_splitter.fields",
    "FolderOptions": "proto_splitter.folders",
    "FunctionDefSplitter": "proto_splitter.graph_def",
    "GraphDefSplitter": "proto_splitter.graph_def",
    "LargeMessageSplitter": "proto_splitter.repeated",
    "Merger": "proto_splitter.merger",
    "RepeatedMessageSplitter": "proto_splitter.repeated",
    "SavedModelSplitter": "proto_splitter.saved_model",
    "SizeSplitter": "proto_splitter.size",
    "SplitError": "errors",
    "Splitter": "proto_splitter.split",
    "debug_set_max_size": "proto_splitter.constants",
    "format_bytes": "proto_splitter.fields",
    "get_field": "proto_splitter.fields",
    "get_field_tag": "proto_splitter.fields",
    "max_size": "proto_splitter.constants",
    "merge_folder": "proto_splitter.folders",
    "merge_to_file": "proto_splitter.stream_merge",
    "set_max_size": "proto_splitter.constants",
    "split_file": "proto_splitter.stream_split",
    "split_folder": "proto_splitter.folders",
}

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


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"pparse.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
