"""pparse: look into files that are too big, too broken or too dangerous to load.

`open` returns the tree of a file, `view` its tensors::

    with pparse.view("model.safetensors") as model:
        model["encoder.weight"][0:2]        # reads two rows

Everything public is here and is imported on first use.
"""

from __future__ import annotations

from pparse.errors import (
    CancelledError,
    ClosedError,
    DamagedTensorError,
    DataChangedError,
    DataError,
    EndOfDataError,
    EndOfRangeError,
    EngineError,
    FaultError,
    FormatError,
    GapError,
    LimitError,
    MalformedError,
    MissingNameError,
    MissingTensorError,
    NothingThereError,
    NotWholeError,
    OptionError,
    PathError,
    PparseError,
    SourceError,
    SplitError,
    TensorError,
    TruncatedTensorError,
    UnsupportedError,
    WorkerDiedError,
)
from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.compressed.inflated import InflatedData
    from pparse.containers.code_scan import scan
    from pparse.conversion.converting import convert
    from pparse.data.base import BytesData, Cursor, Data, Range, Reader
    from pparse.data.files import FileData
    from pparse.data.spliced import SplicedData
    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.document.folder import Folder
    from pparse.document.opening import open
    from pparse.document.registry import Registry
    from pparse.editing.editing import edit
    from pparse.editing.plan import EditResult
    from pparse.findings import Finding, Severity, Status
    from pparse.limits import Limits, MemoryBudget
    from pparse.measuring.difference import Difference, ModelDifference, diff
    from pparse.measuring.hashing import ModelHash, TensorHash, hash
    from pparse.measuring.statistics import ModelStatistics, Statistics, stats
    from pparse.recovery.recover import extract, recover
    from pparse.tensors.node_viewer import NodeViewer
    from pparse.tensors.tensor import DType, Tensor
    from pparse.tensors.viewer import Viewer, view
    from pparse.tree.code_use import CodeUse, Grade
    from pparse.tree.context import DONE, Field, NodeContext, Record
    from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE, Entry
    from pparse.tree.node import Node
    from pparse.tree.parser import Confidence, Container, Excerpt, Listing, Parser, Signature
    from pparse.tree.visit import Member
    from pparse.workers.pool import ProcessPool
    from pparse.writers.indexing import index

__version__ = "0.1.0"


def _find_packages() -> None:
    """Find parsers, viewers and protos in a source tree, where they lie beside this folder."""
    from os.path import dirname, exists, join

    if len(__path__) == 1 and not exists(join(__path__[0], "parsers")):
        root = dirname(__path__[0])
        if exists(join(root, "parsers", "__init__.py")) and exists(join(root, "pyproject.toml")):
            __path__.append(root)


_find_packages()

_WHERE = {
    name: module
    for module, names in {
        "compressed.inflated": "InflatedData",
        "containers.code_scan": "scan",
        "conversion.converting": "convert",
        "data.base": "BytesData Cursor Data Range Reader",
        "data.files": "FileData",
        "data.spliced": "SplicedData",
        "document.extraction": "Extraction FolderExtraction",
        "document.folder": "Folder",
        "document.opening": "open",
        "document.registry": "Registry",
        "editing.editing": "edit",
        "editing.plan": "EditResult",
        "findings": "Finding Severity Status",
        "limits": "Limits MemoryBudget",
        "measuring.difference": "Difference ModelDifference diff",
        "measuring.hashing": "ModelHash TensorHash hash",
        "measuring.statistics": "ModelStatistics Statistics stats",
        "recovery.recover": "extract recover",
        "tensors.node_viewer": "NodeViewer",
        "tensors.tensor": "DType Tensor",
        "tensors.viewer": "Viewer view",
        "tree.code_use": "CodeUse Grade",
        "workers.pool": "ProcessPool",
        "tree.context": "DONE Field NodeContext Record",
        "tree.entry": "Entry LIST MAP SCALAR UNLOADED_VALUE",
        "tree.node": "Node",
        "tree.parser": "Confidence Container Excerpt Listing Parser Signature",
        "tree.visit": "Member",
        "writers.indexing": "index",
    }.items()
    for name in names.split()
}

__all__ = [
    "BytesData",
    "CancelledError",
    "ClosedError",
    "CodeUse",
    "Confidence",
    "Container",
    "Cursor",
    "DONE",
    "DType",
    "DamagedTensorError",
    "Data",
    "DataChangedError",
    "DataError",
    "Difference",
    "EndOfDataError",
    "EndOfRangeError",
    "FaultError",
    "EditResult",
    "EngineError",
    "Entry",
    "Excerpt",
    "Extraction",
    "Field",
    "FileData",
    "Finding",
    "Folder",
    "FolderExtraction",
    "FormatError",
    "GapError",
    "Grade",
    "InflatedData",
    "LIST",
    "LimitError",
    "Limits",
    "Listing",
    "MAP",
    "MalformedError",
    "Member",
    "MemoryBudget",
    "MissingNameError",
    "MissingTensorError",
    "ModelDifference",
    "ModelHash",
    "ModelStatistics",
    "Node",
    "NodeContext",
    "NodeViewer",
    "NotWholeError",
    "NothingThereError",
    "OptionError",
    "Parser",
    "PathError",
    "PparseError",
    "ProcessPool",
    "Range",
    "Reader",
    "Record",
    "Registry",
    "SCALAR",
    "Severity",
    "Signature",
    "SourceError",
    "SplicedData",
    "SplitError",
    "Statistics",
    "Status",
    "Tensor",
    "TensorError",
    "TensorHash",
    "TruncatedTensorError",
    "UNLOADED_VALUE",
    "UnsupportedError",
    "Viewer",
    "WorkerDiedError",
    "convert",
    "diff",
    "edit",
    "extract",
    "hash",
    "index",
    "open",
    "recover",
    "scan",
    "stats",
    "view",
]


__getattr__ = lazy_names(__name__, _WHERE)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
