"""TensorFlow's own protos as files: SavedModel (``saved_model.pb``), GraphDef (frozen), MetaGraphDef (``.meta``).

None has a magic number. They are recognised by their fields: all must be fields of the type, down to three levels. The
states are those of a message (`pparse.parsers.protobuf.parser`).
"""

from __future__ import annotations

from pparse.findings import Finding, Severity
from pparse.parsers.cpb.parser import CpbParser
from pparse.parsers.protobuf.message_format import MessageParser
from pparse.parsers.protobuf.parser import ProtobufParser
from pparse.tree.container import Container
from pparse.tree.recognition import Confidence, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import ClassVar

    from pparse.data.reader import Range
    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.parsers.protobuf.index import Piece
    from pparse.tree.entry import Entry
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

# Names of the model in a folder; TensorFlow also takes the first of these that exists.
MEMBERS = ("saved_model.cpb", "saved_model.pb")


class _TensorflowParser(MessageParser):
    media_type = "application/x-tensorflow"
    viewer = "pparse.viewers.tensorflow.viewer:TensorflowViewer"
    others: ClassVar[tuple[str, ...]] = MEMBERS


class SavedModelParser(_TensorflowParser):
    """The message of a SavedModel."""

    name = "saved-model"
    others = ()
    description = "TensorFlow SavedModel"
    extensions = (".pb",)
    usual_names = ("saved_model.pb",)
    signatures = signatures(b"\x08\x01\x12")
    message_name = "tensorflow.SavedModel"
    references = ("tensorflow/core/protobuf/saved_model.proto",)
    limitations = ("variables are in the checkpoint beside it (variables/), which is another format",)


class GraphDefParser(_TensorflowParser):
    """A graph, most often a frozen one with its weights as constants."""

    name = "graph-def"
    description = "TensorFlow GraphDef (frozen graph)"
    extensions = (".pb",)
    message_name = "tensorflow.GraphDef"
    references = ("tensorflow/core/framework/graph.proto",)


class MetaGraphParser(_TensorflowParser):
    """A graph with the data needed for training, as ``tf.train.Saver`` writes it."""

    name = "meta-graph"
    description = "TensorFlow MetaGraphDef (.meta)"
    extensions = (".meta",)
    message_name = "tensorflow.MetaGraphDef"
    references = ("tensorflow/core/protobuf/meta_graph.proto",)


class SavedModelFolderParser(CpbParser, Container):
    """A SavedModel folder: the message in it, from ``saved_model.cpb`` or else ``saved_model.pb``."""

    name = "saved-model-folder"
    description = "TensorFlow SavedModel folder"
    reads = "folder"
    signatures = ()
    named_is_enough = True
    refines = ("folder",)
    extensions = ()
    message_name = "tensorflow.SavedModel"
    references = ("https://www.tensorflow.org/guide/saved_model",)
    limitations = ("variables are in the checkpoint in variables/, which is another format",)

    def __init__(self, result: Result) -> None:
        folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        self.member: Extraction = folder.sibling(next(name for name in MEMBERS if name in folder.members))
        self.plain = self.member.name.endswith(".pb")
        super().__init__(result)

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """LIKELY for a folder with one of the two files."""
        return Confidence.LIKELY if any(name in folder.members for name in MEMBERS) else Confidence.NO

    def model_file(self) -> Extraction:
        """Return the file in the folder."""
        return self.member

    def source(self) -> Range:
        """Return the bytes of the file in the folder."""
        return self.member.reader

    def _read_metadata(self) -> None:
        if not self.plain:
            super()._read_metadata()

    def root_entry(self) -> Entry:
        """Describe the root: the message."""
        self._note_variables()
        if self.plain:
            return ProtobufParser.root_entry(self)
        return super().root_entry()

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the model file, its details, and the variables in the folder."""
        yield "model", f"{self.member.name}, {self.member.size or 0:,} bytes"
        yield from ProtobufParser.details(self) if self.plain else super().details()
        sizes = self._variables()
        if sizes:
            yield "variables", f"{len(sizes):,} files, {sum(sizes):,} bytes in variables/, a checkpoint"

    def _variables(self) -> list[int]:
        """Return the sizes of the files of the checkpoint beside the message."""
        folder: FolderExtraction = self.result.extraction  # type: ignore[assignment]
        return list(folder.folder.sizes("variables"))

    def _note_variables(self) -> None:
        sizes = self._variables()
        if sizes:
            self.result.findings.add(
                Finding(
                    "variables",
                    f"the variables ({sum(sizes):,} bytes in variables/) are a checkpoint: "
                    "the constants of the graph are listed here, the variables by variables/variables.index",
                    severity=Severity.NOTE,
                    source=self.result.extraction.name,
                )
            )

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Check the message; the variables belong to another document."""
        self._note_variables()
        yield from ProtobufParser.check(self, strict=strict) if self.plain else super().check(strict=strict)

    def root_pieces(self) -> Sequence[Piece]:
        """Return what the message is made of."""
        return (self.source(),) if self.plain else super().root_pieces()
