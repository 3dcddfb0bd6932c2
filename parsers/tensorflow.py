"""TensorFlow's own protos as files: SavedModel (``saved_model.pb``), GraphDef (frozen), MetaGraphDef (``.meta``).

None has a magic number. They are recognised by their fields: all must be fields of the type, down to three levels. The
states are those of a message (`pparse.parsers.protobuf.parser`).
"""

from __future__ import annotations

from pparse.document.registry import excerpt_of
from pparse.errors import MalformedError, SourceError
from pparse.findings import Finding, Severity, Status
from pparse.kernels.wire import PADDING, VARINT, read_length, skip_payload
from pparse.limits import count_words
from pparse.parsers.cpb.parser import CpbParser
from pparse.parsers.protobuf.check import is_text
from pparse.parsers.protobuf.parser import HEAD, MessageParser, ProtobufParser
from pparse.parsers.tensorflow_text import TensorflowTextParser
from pparse.tree.parser import Confidence, Container, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import ClassVar

    from pparse.data.reader import Range
    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.parsers.protobuf.index import Piece
    from pparse.tree.entry import Entry
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

# Names of the model in a folder; TensorFlow also takes the first of these that exists.
MEMBERS = ("saved_model.cpb", "saved_model.pb", "saved_model.pbtxt")
VARIABLES = "variables"
ASSETS = "assets"
# Tags: of a name, and of a node; of the number of examples, and of a feature.
_FIRST, _COUNT, _FEATURE = b"\x0a", b"\x10", b"\x1a"


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
    limitations = ("the file alone has no variables: they are shown with the folder that it lies in",)


class GraphDefParser(_TensorflowParser):
    """A graph, most often a frozen one with its weights as constants."""

    name = "graph-def"
    description = "TensorFlow GraphDef (frozen graph)"
    extensions = (".pb",)
    message_name = "tensorflow.GraphDef"
    references = ("tensorflow/core/framework/graph.proto",)

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """Return what the fields tell; NO for statistics of features, whose first message may be too long to see."""
        found = super().match(excerpt)
        return Confidence.NO if found and _begins_with_statistics(excerpt.head(HEAD)) else found


def _begins_with_statistics(head: bytes) -> bool:
    """Say whether a message begins with a ``DatasetFeatureStatistics`` (tensorflow_metadata): a name, a number, and
    messages in field 3, where a node of a graph has a name, an operation, and texts.

    Says no of whatever else there is, as nodes that are damaged are still nodes.
    """
    block = head + PADDING
    try:
        if head[:1] != _FIRST:
            return False
        at = read_length(block, 1)[1]
        if head[at : at + 1] == _FIRST:
            size, at = read_length(block, at + 1)
            at += size
        if head[at : at + 1] == _COUNT:
            at = skip_payload(block, at + 1, VARINT)
        if head[at : at + 1] != _FEATURE:
            return False
        size, at = read_length(block, at + 1)
        return size > 0 and at < len(head) and not is_text(head[at : at + size])
    except MalformedError:
        return False


class MetaGraphParser(_TensorflowParser):
    """A graph with the data needed for training, as ``tf.train.Saver`` writes it."""

    name = "meta-graph"
    description = "TensorFlow MetaGraphDef (.meta)"
    extensions = (".meta",)
    message_name = "tensorflow.MetaGraphDef"
    references = ("tensorflow/core/protobuf/meta_graph.proto",)


class SavedModelFolderParser(CpbParser, Container):
    """A SavedModel folder: the message in it (``saved_model.cpb``, ``.pb`` or ``.pbtxt``), and what lies beside it."""

    name = "saved-model-folder"
    description = "TensorFlow SavedModel folder"
    reads = "folder"
    saved_as_a_whole = True
    viewer = "pparse.viewers.tensorflow.saved_model:SavedModelViewer"
    signatures = ()
    named_is_enough = True
    refines = ("folder",)
    extensions = ()
    message_name = "tensorflow.SavedModel"
    references = ("https://www.tensorflow.org/guide/saved_model",)
    limitations = ("assets are counted, and looked for by check; their content is not shown",)

    def __init__(self, result: Result) -> None:
        folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        name = next(name for name in MEMBERS if name in folder.members)
        self.file: Extraction = folder.sibling(name)
        """The file with the message …"""
        is_text = TensorflowTextParser.match(excerpt_of(self.file)) is not Confidence.NO
        self.member: Extraction = self.file.parsed if is_text else self.file
        """… and the message: of a text, what it says."""
        self.plain = not name.endswith(".cpb")
        super().__init__(result)

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """LIKELY for a folder with one of the files, unless that is surely another model, which then stands for it."""
        name = next((name for name in MEMBERS if name in folder.members), "")
        if not name:
            return Confidence.NO
        excerpt = excerpt_of(folder.sibling(name))
        others = (GraphDefParser, MetaGraphParser) if name.endswith(".pb") else ()
        if TensorflowTextParser.match(excerpt):
            known = TensorflowTextParser.kind(excerpt) == SavedModelParser.name
        else:
            known = bool(SavedModelParser.match(excerpt)) or not any(other.match(excerpt) for other in others)
        return Confidence.LIKELY if known else Confidence.NO

    def model_file(self) -> Extraction:
        """Return the file with the message."""
        return self.file

    def enter(self, name: str) -> Extraction | None:
        """Return a file of the folder, or of those below that belong to the model; None if there is none."""
        folder: FolderExtraction = self.result.extraction  # type: ignore[assignment]
        if name not in folder.members and not name.startswith((f"{VARIABLES}/", f"{ASSETS}/")):
            return None
        try:
            found = folder.sibling(name)
            found.find_end()  # a file is opened when it is asked
        except SourceError:
            return None
        return found

    def source(self) -> Range:
        """Return the bytes of the message."""
        return self.member.reader

    def _read_metadata(self) -> None:
        if not self.plain:
            super()._read_metadata()

    def root_entry(self) -> Entry:
        """Describe the root: the message."""
        self._note_others()
        if self.plain:
            entry = ProtobufParser.root_entry(self)
            if self.member is not self.file:
                text = self.file.own_result
                for note in self.file.notes:
                    self.result.findings.add(note)
                status = text.root.known_status
                if status not in (None, Status.COMPLETE):  # the text is not whole
                    entry.status, entry.finding = status, text.root.finding
                    self.result.findings.extend(text.findings)
            return entry
        return super().root_entry()

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the model file, its details, and the other files of the folder."""
        yield "model", f"{self.file.name}, {self.file.size or 0:,} bytes"
        yield from ProtobufParser.details(self) if self.plain else super().details()
        for label, below in (("variables", VARIABLES), ("assets", ASSETS)):
            sizes = self.sizes(below)
            if sizes:
                yield label, f"{count_words(len(sizes), 'file')}, {sum(sizes):,} bytes in {below}/"

    def sizes(self, below: str) -> list[int]:
        """Return the sizes of the files in a folder below, ``variables`` or ``assets``."""
        folder: FolderExtraction = self.result.extraction  # type: ignore[assignment]
        return list(folder.folder.sizes(below))

    def _note_others(self) -> None:
        """Say that there are other files with the message, which are not read."""
        folder: FolderExtraction = self.result.extraction  # type: ignore[assignment]
        name = self.file.name.rpartition("/")[2]
        others = [other for other in MEMBERS if other in folder.members and other != name]
        if others:
            reason = f"{' and '.join(others)} beside {name} is not read: TensorFlow takes {name}, too"
            source = self.result.extraction.name
            self.result.findings.add(Finding("other-model", reason, severity=Severity.WARNING, source=source))

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Check the message; the variables are a document of their own."""
        self._note_others()
        yield from ProtobufParser.check(self, strict=strict) if self.plain else super().check(strict=strict)

    def root_pieces(self) -> Sequence[Piece]:
        """Return what the message is made of."""
        return (self.source(),) if self.plain else super().root_pieces()
