"""Core ML models: one message, ``CoreML.Specification.Model`` (``.mlmodel``), and packages, folders that hold one.

There is no magic number. The states are those of a message (`pparse.parsers.protobuf.parser`). What the fields mean:
apple/coremltools mlmodel/format/*.proto. The weights of an ML program lie in a file beside the message
(`pparse.viewers.coreml.tensors`).

A package (``.mlpackage``) has a ``Manifest.json`` that names its files below ``Data/``, and which of them is the model
(apple/coremltools modelpackage/src/ModelPackage.cpp). It is read as that.
"""

from __future__ import annotations

from collections import defaultdict
from json import loads

from pparse.errors import DataError, MalformedError, PathError, SourceError
from pparse.kernels.wire import PADDING, scan
from pparse.limits import MIB
from pparse.parsers.protobuf.parser import MessageParser
from pparse.tree.parser import Confidence, Container, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, ClassVar, Final

    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.parsers.protobuf.index import Piece
    from pparse.protobuf.schema import MessageType
    from pparse.tree.result import Result

# The first field of the oneof that says which kind of model it is; all behind it are of that.
FIRST_KIND: Final = 200
MANIFEST: Final = "Manifest.json"
# Where coremltools puts the model; for a manifest that cannot be read.
_USUAL: Final = "Data/com.apple.CoreML/model.mlmodel"


class CoremlParser(MessageParser):
    """A Core ML model."""

    name = "coreml"
    description = "Core ML model"
    extensions: ClassVar[tuple[str, ...]] = (".mlmodel",)
    media_type = "application/x-coreml"
    message_name = "CoreML.Specification.Model"
    in_order = True
    viewer = "pparse.viewers.coreml.viewer:CoremlViewer"
    signatures = signatures(b"\x08")
    references: ClassVar[tuple[str, ...]] = ("apple/coremltools mlmodel/format/*.proto, mlmodel/src/MILBlob/Blob",)
    limitations: ClassVar[tuple[str, ...]] = (
        "there are no checksums: a changed byte may look like another value",
        "tensors are those of neural networks and ML programs; of trees, SVMs and others, the fields are shown",
    )

    @classmethod
    def shows(cls, head: bytes, type: MessageType) -> bool:
        """Return whether the field that says which kind of model it is begins in the head."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        try:
            scan(head + PADDING, 0, len(head), found, [])
        except MalformedError:
            return False
        return any(tag >> 3 >= FIRST_KIND for tag, places in found.items() if places)


class CoremlPackageParser(CoremlParser, Container):
    """A Core ML package: the message in a folder, and what lies beside it."""

    name = "coreml-package"
    description = "Core ML package, a folder"
    member_parts: ClassVar[tuple[str, ...]] = (MANIFEST,)
    reads = "folder"
    saved_as_a_whole = True
    signatures = ()
    named_is_enough = True
    refines = ("folder",)
    extensions = ()
    references = ("apple/coremltools modelpackage/src/ModelPackage.cpp",)
    limitations: ClassVar[tuple[str, ...]] = ("other items of a package than its model and weights are not looked at",)

    def __init__(self, result: Result) -> None:
        self._folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        self.member: Extraction = self._find_member()
        """The file with the message."""
        super().__init__(result)

    def _find_member(self) -> Extraction:
        return self._folder.sibling(_model_name(self._folder) or _USUAL)

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """LIKELY for a folder whose manifest names a model, or that has one where a package has it."""
        if MANIFEST not in folder.members:
            return Confidence.NO
        return Confidence.LIKELY if _model_name(folder) or _found(folder, _USUAL) is not None else Confidence.NO

    def root_pieces(self) -> Sequence[Piece]:
        """Return what the message is made of."""
        return (self.member.reader,)

    def model_file(self) -> Extraction:
        """Return the file with the message."""
        return self.member

    def enter(self, name: str) -> Extraction | None:
        """Return a file of the package; None if there is none."""
        return _found(self._folder, name)

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the model file, and its details."""
        yield "model", f"{self.member.name}, {self.member.size or 0:,} bytes"
        yield from super().details()


def _model_name(folder: FolderExtraction) -> str | None:
    """Return the path of the model that the manifest of a package names; None if it names none."""
    try:
        file = folder.sibling(MANIFEST, any_content=True)
        told: Any = loads(file.data.pread(file.start, min(MIB, file.find_end() - file.start)))
        return f"Data/{told['itemInfoEntries'][told['rootModelIdentifier']]['path']}"
    except (DataError, SourceError, ValueError, TypeError, LookupError, RecursionError):
        return None


def _found(folder: FolderExtraction, name: str) -> Extraction | None:
    try:
        found = folder.sibling(name)
        found.find_end()  # a file is opened when it is asked
    except (DataError, SourceError, PathError):
        return None
    return found
