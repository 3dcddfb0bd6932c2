"""TensorFlow's protos as text: ``saved_model.pbtxt``, ``graph.pbtxt`` and MetaGraphDefs (protobuf's text format).

The library protobuf reads the text, all of it at once; what it holds is written as a message in memory, which is read
as a file of its own. Fields that pparse does not know are left out.

A text that ends early, or in which something is no text of the message, is read up to there: the blocks that are open
there are left out, but for those that hold whole graphs, since a list of values that is cut would be taken for a short
one. States of the root::

    state          needs  reads                                             goes to
    expect_text    0      nothing: the message is a document of its own     DONE
"""

from __future__ import annotations

from pparse.data.base import BytesData
from pparse.document.appearance import is_text
from pparse.document.extraction import extraction_of
from pparse.errors import EndOfDataError, MalformedError
from pparse.findings import Finding, Status
from pparse.lazy import lazy_pattern
from pparse.tree.context import DONE
from pparse.tree.entry import MAP
from pparse.tree.parser import Confidence, Container, Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.budget import Charge
    from pparse.document.extraction import Extraction
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

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


class TensorflowTextParser(Parser, Container):
    """The text form of a SavedModel, GraphDef or MetaGraphDef."""

    name = "tensorflow-text"
    description = "TensorFlow SavedModel, GraphDef or MetaGraphDef as text"
    extensions: ClassVar[tuple[str, ...]] = (".pbtxt", ".pbtxt.txt", ".pb")
    usual_names: ClassVar[tuple[str, ...]] = (".pbtxt", ".pbtxt.txt")
    named_is_enough = False
    root_shape = MAP
    media_type = "text/plain"
    references: ClassVar[tuple[str, ...]] = ("https://protobuf.dev/reference/protobuf/textformat-spec/",)
    limitations: ClassVar[tuple[str, ...]] = ("the whole text is read into memory, as no index of it is made",)

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._inner: Extraction | None = None
        self._charge: Charge | None = None

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY by the name and the first field; called as a message in binary form, by all that is seen."""
        head = excerpt.head(_PROBED)
        is_named = excerpt.ends_with(cls.usual_names) or (excerpt.ends_with(cls.extensions) and is_text(head))
        return Confidence.LIKELY if is_named and kind_of(head) is not None else Confidence.NO

    @staticmethod
    def kind(excerpt: Excerpt) -> str | None:
        """Return the format of the message that a text says; None if it says none of these."""
        found = kind_of(excerpt.head(_PROBED))
        return None if found is None else found[0]

    def unwrapped(self) -> Extraction | None:
        """Return the message. Raises `LimitError` if the text is too long for the budget."""
        if self._inner is None:
            extraction = extraction_of(self.result)
            size = extraction.find_end() - extraction.start
            budget = extraction.session.budget
            self._charge = budget.charge(_FACTOR * size, "the text of the model")
            raw = extraction.data.read_exact(extraction.start, size)
            self._charge.resize(max(self._charge.amount, size + _MESSAGE_BYTES * raw.count(b"{")))
            known = kind_of(raw[:_PROBED])
            if known is None:
                return None
            content, error = message_of(raw, known[1])
            self._charge.resize(len(content))
            data = BytesData(content, f"{extraction.name} (as a message)")
            extraction.session.adopt(data)
            inner = extraction.child(self.content_name(), data, 0, len(content), format=known[0])
            inner.go_deeper()
            inner.implicit = True
            self._inner = inner
            if error is not None:
                status = Status.TRUNCATED if _is_at_end(raw, error) else Status.DAMAGED
                code = "truncated" if status is Status.TRUNCATED else "malformed"
                reason = f"{error.reason}; what is before it is shown, but for the block that it is in"
                if status is Status.TRUNCATED:
                    data.error = EndOfDataError(error.reason, offset=len(content))  # the text, not what was made of it
                finding = Finding(code, reason, source=extraction.name, offset=error.offset)
                for result in (self.result, inner.parse()):
                    result.close_node(result.root, status, finding)
        return self._inner

    def content_name(self) -> str:
        """Return the name of the message: that of the file, with ``.pb``."""
        name = extraction_of(self.result).name.replace("\\", "/").rpartition("/")[2]
        return f"{name.removesuffix('.pbtxt').removesuffix('.pb')}.pb"

    def enter(self, name: str) -> Extraction | None:
        """Return the message, by its name."""
        return self.unwrapped() if name in (self.content_name(), "content") else None

    def begin(self, ctx: NodeContext) -> Step:
        """Begin the root."""
        return ctx.node.start, self.expect_text, 0

    def expect_text(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Look into the text; its content is another document."""
        self.unwrapped()
        return ctx.node.end or ctx.node.start, DONE, 0


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
    line = error.GetLine() or 1  # type: ignore[attr-defined]
    at = 0
    for _ in range(line - 1):
        following = text.find(b"\n", at)
        if following < 0:
            break
        at = following + 1
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
    kept = 0
    while kept < len(blocks) and blocks[kept][0] in _KEPT_OPEN:
        kept += 1
    # What follows the last block or text may be half a field, which is the last line.
    stop = blocks[kept][1] if kept < len(blocks) else max(end, text.rfind(b"\n") + 1)
    return text[:stop] + b"\n" + b"}" * kept
