"""pparse: look into files that are too big, too broken or too dangerous to load.

`open` gives the tree of a file, `view` its tensors::

    with pparse.view("model.safetensors") as model:
        model["encoder.weight"][0:2]        # reads two rows

Everything public is here; the rest is imported when it is first used.
"""

from __future__ import annotations

from pparse.errors import (
    CancelledError,
    ClosedError,
    DamagedTensorError,
    DataChangedError,
    EndOfDataError,
    EndOfRangeError,
    EngineError,
    FormatError,
    GapError,
    LimitError,
    MalformedError,
    MissingTensorError,
    NothingThereError,
    OptionError,
    PathError,
    PparseError,
    SourceError,
    SplitError,
    TensorError,
    TruncatedTensorError,
    UnsupportedError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pparse.budget import MemoryBudget
    from pparse.data import BytesData, Data, FileData
    from pparse.document import open, view
    from pparse.extraction import Extraction, FolderExtraction
    from pparse.findings import Finding, Severity, Status
    from pparse.inflated import InflatedData
    from pparse.limits import Limits
    from pparse.node import LIST, MAP, SCALAR, UNLOADED_VALUE, Entry, Node
    from pparse.parser import DONE, Confidence, NodeContext, Parser
    from pparse.reader import Cursor, Range, Reader
    from pparse.registry import Registry
    from pparse.spliced import SplicedData
    from pparse.tensor import DType, Tensor
    from pparse.viewer import Viewer
    from pparse.visit import Member

__version__ = "0.1.0"


def _find_rooms() -> None:
    """In a source tree, parsers, viewers and protos lie beside this folder: Python started there finds them, too."""
    from os.path import dirname, exists, join

    if len(__path__) == 1 and not exists(join(__path__[0], "parsers")):
        root = dirname(__path__[0])
        if exists(join(root, "parsers", "__init__.py")) and exists(join(root, "pyproject.toml")):
            __path__.append(root)


_find_rooms()

_WHERE = {
    "BytesData": "data", "Confidence": "parser", "Cursor": "reader", "DONE": "parser", "DType": "tensor",
    "Data": "data", "Entry": "node", "Extraction": "extraction", "FileData": "data", "Finding": "findings",
    "FolderExtraction": "extraction", "InflatedData": "inflated", "LIST": "node", "Limits": "limits", "MAP": "node",
    "Member": "visit", "MemoryBudget": "budget", "Node": "node", "NodeContext": "parser", "Parser": "parser",
    "Range": "reader", "Reader": "reader", "Registry": "registry", "SCALAR": "node", "Severity": "findings",
    "SplicedData": "spliced", "Status": "findings", "Tensor": "tensor", "UNLOADED_VALUE": "node", "Viewer": "viewer",
    "open": "document", "view": "document",
}  # fmt: skip

__all__ = [
    "BytesData", "CancelledError", "ClosedError", "Confidence", "Cursor", "DONE", "DType", "DamagedTensorError",
    "Data", "DataChangedError", "EndOfDataError", "EndOfRangeError", "EngineError", "Entry", "Extraction",
    "FileData", "Finding", "FolderExtraction", "FormatError", "GapError", "InflatedData", "LIST", "LimitError",
    "Limits", "MAP", "MalformedError", "Member", "MemoryBudget", "MissingTensorError", "Node", "NodeContext",
    "NothingThereError", "OptionError", "Parser", "PathError", "PparseError", "Range", "Reader", "Registry", "SCALAR",
    "Severity", "SourceError", "SplicedData", "SplitError", "Status", "Tensor", "TensorError", "TruncatedTensorError",
    "UNLOADED_VALUE", "UnsupportedError", "Viewer", "open", "view",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        import importlib

        value = getattr(importlib.import_module(f"pparse.{_WHERE[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'pparse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
