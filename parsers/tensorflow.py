"""TensorFlow's own protos as files: SavedModel (``saved_model.pb``), GraphDef (frozen), MetaGraphDef (``.meta``); and
as text: ``saved_model.pbtxt``, ``graph.pbtxt`` and MetaGraphDefs (protobuf's text format).

None has a magic number. They are recognised by their fields: all must be fields of the type, down to three levels. The
states are those of a message (`pparse.parsers.protobuf.parser`).

The library protobuf reads the text, all of it at once; what it holds is written as a message in memory, which is read
as a file of its own. Fields that pparse does not know are left out.

A text that ends early, or in which something is no text of the message, is read up to there: the blocks that are open
there are left out, but for those that hold whole graphs, since a list of values that is cut would be taken for a short
one (`pparse.parsers.protobuf.text_layer`).
"""

from __future__ import annotations

from pparse.document.appearance import is_text as looks_like_text
from pparse.document.registry import excerpt_of
from pparse.errors import MalformedError, SourceError
from pparse.findings import Severity, Status
from pparse.kernels.wire import PADDING, VARINT, read_length, skip_payload
from pparse.lazy import lazy_pattern
from pparse.limits import count_words
from pparse.parsers.cpb.parser import CpbParser
from pparse.parsers.protobuf.check import is_text
from pparse.parsers.protobuf.parser import HEAD, MessageParser, ProtobufParser
from pparse.parsers.protobuf.text_layer import MessageTextParser
from pparse.tree.parser import Confidence, Container, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, ClassVar, Final

    from pparse.data.base import Range
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
    member_parts = ("/saved_model.",)
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
        self._folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        name = next(name for name in MEMBERS if name in self._folder.members)
        self.file: Extraction = self._folder.sibling(name)
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
        if name not in self._folder.members and not name.startswith((f"{VARIABLES}/", f"{ASSETS}/")):
            return None
        try:
            found = self._folder.sibling(name)
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
        return list(self._folder.folder.sizes(below))

    def _note_others(self) -> None:
        """Say that there are other files with the message, which are not read."""
        name = self.file.name.rpartition("/")[2]
        others = [other for other in MEMBERS if other in self._folder.members and other != name]
        if others:
            reason = f"{' and '.join(others)} beside {name} is not read: TensorFlow takes {name}, too"
            self.note("other-model", reason, None, severity=Severity.WARNING)

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Check the message; the variables are a document of their own."""
        self._note_others()
        yield from ProtobufParser.check(self, strict=strict) if self.plain else super().check(strict=strict)

    def root_pieces(self) -> Sequence[Piece]:
        """Return what the message is made of."""
        return (self.source(),) if self.plain else super().root_pieces()


# -- The same as text --------------------------------------------------------------------------------------------------

# How a text of each begins, the first field that tells it, and the format of the message.
_BEGINS: Final = (
    (("saved_model_schema_version", "meta_graphs"), "saved-model", "tensorflow.SavedModel"),
    (("meta_info_def", "graph_def", "saver_def"), "meta-graph", "tensorflow.MetaGraphDef"),
    (("node", "library", "versions", "version"), "graph-def", "tensorflow.GraphDef"),
)
_FIELD: Final = lazy_pattern(rb"\s*(?:#[^\n]*\n\s*)*([a-z_]+)\s*[:{]")
_TOKEN: Final = lazy_pattern(rb"""(\w+)|([{<])|[}>]|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\#[^\n]*""")
# Blocks that may be left open: what they hold is whole, or left out.
_KEPT_OPEN: Final = (b"meta_graphs", b"graph_def", b"library")
# Memory that a text takes as a message, per byte.
_FACTOR: Final = 8
# Memory of a message without content, which takes three letters.
_MESSAGE_BYTES: Final = 160
_PROBED: Final = 4 << 10
_TRIES: Final = 4
# Blocks in blocks, where the library's recursion ends. Those of real models are some ten deep.
_DEEPEST: Final = 100


class _TooDeepError(MalformedError):
    """Blocks are nested deeper than the library can read."""


class TensorflowTextParser(MessageTextParser):
    """The text form of a SavedModel, GraphDef or MetaGraphDef."""

    name = "tensorflow-text"
    description = "TensorFlow SavedModel, GraphDef or MetaGraphDef as text"
    extensions: ClassVar[tuple[str, ...]] = (".pbtxt", ".pbtxt.txt", ".pb")
    usual_names: ClassVar[tuple[str, ...]] = (".pbtxt", ".pbtxt.txt")
    named_is_enough = False
    references: ClassVar[tuple[str, ...]] = ("https://protobuf.dev/reference/protobuf/textformat-spec/",)
    memory_per_byte = _FACTOR
    text_endings, message_ending = (".pbtxt", ".pb"), ".pb"
    left_out = "what is before it is shown, but for the block that it is in"

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY by the name and the first field; called as a message in binary form, by all that is seen."""
        head = excerpt.head(_PROBED)
        is_named = excerpt.ends_with(cls.usual_names) or (excerpt.ends_with(cls.extensions) and looks_like_text(head))
        return Confidence.LIKELY if is_named and kind_of(head) is not None else Confidence.NO

    @staticmethod
    def kind(excerpt: Excerpt) -> str | None:
        """Return the format of the message that a text says; None if it says none of these."""
        found = kind_of(excerpt.head(_PROBED))
        return None if found is None else found[0]

    def message(self, raw: bytes) -> tuple[str, bytes | bytearray, MalformedError | None, bool] | None:
        """Return the format and the bytes of the message, why it is not all of it, and whether that is the end."""
        self.charge.resize(max(self.charge.amount, len(raw) + _MESSAGE_BYTES * raw.count(b"{")))
        known = kind_of(raw[:_PROBED])
        if known is None:
            return None
        content, error = message_of(raw, known[1])
        return known[0], content, error, error is not None and _is_at_end(raw, error)


def kind_of(head: bytes) -> tuple[str, str] | None:
    """Return the format and the message of a text that begins with ``head``; None if it is none of these."""
    found = _FIELD.match(head.removeprefix(b"\xef\xbb\xbf"))
    if found is None:
        return None
    word = found[1].decode()
    return next(((name, message) for words, name, message in _BEGINS if word in words), None)


def message_of(raw: bytes, name: str) -> tuple[bytes, MalformedError | None]:
    """Return the message in a text, and why it is not all of it. Raises `MalformedError` if nothing can be read."""
    from google.protobuf import text_format

    from pparse.protos import message_class

    made: Any = message_class(name)
    first: MalformedError | None = None
    text = raw
    for _ in range(_TRIES):
        try:
            message = text_format.Parse(text, made(), allow_unknown_field=True)
            return message.SerializeToString(), first
        except (text_format.ParseError, UnicodeDecodeError) as error:
            at = _offset_of(text, error)
            if first is None:
                line = text.count(b"\n", 0, at) + 1
                first = MalformedError(f"line {line:,} is not a text of the message {name}", offset=at)
        except RecursionError:
            at = _too_deep(text)
            first = first or _TooDeepError(f"blocks are nested more than {_DEEPEST} deep", offset=at)
        text = closed(text[:at])
    raise first or MalformedError("the text is not that of a message", offset=0)


def _offset_of(text: bytes, error: Exception) -> int:
    """Return where the line that is wrong begins."""
    if isinstance(error, UnicodeDecodeError):
        return text.rfind(b"\n", 0, error.start) + 1
    at = 0
    for _ in range((error.GetLine() or 1) - 1):  # type: ignore[attr-defined]
        at = text.find(b"\n", at) + 1 or at
    return at


def _is_at_end(raw: bytes, error: MalformedError) -> bool:
    """Return whether the text ends where it is wrong."""
    return not isinstance(error, _TooDeepError) and b"\n" not in raw[error.offset or 0 :].rstrip()


def _blocks(text: bytes) -> Iterator[tuple[list[tuple[bytes, int]], int]]:
    """Yield the blocks that are open, as their names and where these begin, at the end of each token but words."""
    blocks: list[tuple[bytes, int]] = []
    word = b"", 0
    for token in _TOKEN.finditer(text):
        if token[1] is not None:
            word = token[1], token.start()
            continue
        if token[2] is not None:
            blocks.append(word)
        elif token[0] in (b"}", b">") and blocks:
            blocks.pop()
        yield blocks, token.end()


def _too_deep(text: bytes) -> int:
    """Return where a block begins in which others are nested too deep."""
    return next((blocks[-1][1] for blocks, _ in _blocks(text) if len(blocks) > _DEEPEST), 0)


def closed(text: bytes) -> bytes:
    """Return a text that ends anywhere without its last open blocks, and with those ended that hold graphs."""
    blocks: list[tuple[bytes, int]] = []
    end = 0
    for blocks, end in _blocks(text):  # noqa: B007 -- the last ones count
        pass
    kept = next((nth for nth, (name, _) in enumerate(blocks) if name not in _KEPT_OPEN), len(blocks))
    # What follows the last block or text may be half a field, which is the last line.
    stop = blocks[kept][1] if kept < len(blocks) else max(end, text.rfind(b"\n") + 1)
    return text[:stop] + b"\n" + b"}" * kept
