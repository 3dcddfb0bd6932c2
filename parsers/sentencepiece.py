"""SentencePiece tokenizers: one message, ``sentencepiece.ModelProto``, whose pieces come first.

There is no magic number. The states are those of a message (`pparse.parsers.protobuf.parser`). The number of a piece is
the token's id. What the fields mean: google/sentencepiece src/sentencepiece_model.proto.
"""

from __future__ import annotations

from struct import Struct

from pparse.data.base import Range
from pparse.display.text import few, shorten
from pparse.errors import FaultError
from pparse.findings import Status
from pparse.kernels.wire import PADDING, fields, read_value
from pparse.parsers.protobuf.index import MessageIndex, PartScan
from pparse.parsers.protobuf.lists import ListIndex
from pparse.parsers.protobuf.message import Message, problem_of
from pparse.parsers.protobuf.parser import MessageParser
from pparse.parsers.protobuf.values import named
from pparse.protos import schema
from pparse.tree.below import value_at
from pparse.tree.entry import SCALAR
from pparse.tree.parser import signatures
from pparse.tree.visit import Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.parsers.protobuf.index import WireWindow
    from pparse.parsers.protobuf.message import Problem
    from pparse.protobuf.schema import MessageType
    from pparse.tree.context import NodeContext
    from pparse.tree.entry import Entry
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node

    # Text, score and type.
    _Piece = tuple[str | None, float, int]

# Fields of a piece, and their tags; which field of the model they are.
_PIECE, _SCORE, _TYPE = 1, 2, 3
_TEXT_TAG, _SCORE_TAG, _TYPE_TAG = 0x0A, 0x15, 0x18
_FLOAT: Final = Struct("<f")
# Pieces up to this size are read in one go.
_SMALL: Final = 4 << 10
_PIECES: Final = "pieces"
_PIECE_TYPE: Final = "sentencepiece.ModelProto.SentencePiece"
_LONGEST: Final = 60
_DIGITS: Final = 12
# Pieces that are not made of text, of which so many are named.
_SPECIAL: Final = {2: "unknown", 3: "control", 4: "defined", 6: "byte"}
_NAMED: Final = 8


class SentencepieceParser(MessageParser):
    """A SentencePiece tokenizer."""

    name = "sentencepiece"
    description = "SentencePiece tokenizer"
    extensions: ClassVar[tuple[str, ...]] = (".spm", "tokenizer.model", "spiece.model")
    signatures = signatures(b"\n")
    message_name = "sentencepiece.ModelProto"
    member_word = "piece"
    in_order = True
    references: ClassVar[tuple[str, ...]] = ("google/sentencepiece src/sentencepiece_model.proto",)
    limitations: ClassVar[tuple[str, ...]] = (
        "there are no checksums: a changed byte may look like another piece",
        "a model without a trainer_spec or a normalizer_spec, as no trainer writes it, is called cut: it may be",
    )

    @classmethod
    def shows(cls, head: bytes, type: MessageType) -> bool:
        """Return whether the first field is a piece with a text and a score."""
        return head[2:3] == b"\n" and len(head) > 3 and head[4 + head[3] :][:1] == bytes((_SCORE_TAG,))

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries of children; the pieces are as whole as the model if that breaks right behind them, or the
        stream that it comes from."""
        found = super().entries(node, index, first, count)
        if node.parent is not None or len(index.entries or ()) != 1:
            return found
        status, finding, extraction = node.known_status, node.finding, self.result.extraction
        if status is Status.COMPLETE and extraction.data.is_cut_at(end := extraction.find_end()):
            status, reason = Status.TRUNCATED, "the data end behind a piece: more of them may have followed"
            finding = self.make.finding(status.code, reason, end, path=_PIECES)
        for entry in found if status not in (None, Status.COMPLETE) else ():
            if entry.key == _PIECES and entry.status in (None, Status.COMPLETE):
                entry.status, entry.finding = status, finding
        return found

    def finish(self, ctx: NodeContext) -> None:
        """Call a model truncated that lacks what it was trained with, or how text is normalised: the trainer writes
        both behind the pieces (google/sentencepiece src/trainer_interface.cc, ``Serialize``)."""
        super().finish(ctx)
        node, index = ctx.node, ctx.scratch
        if node.parent is None and node.known_status is Status.COMPLETE and isinstance(index, MessageIndex):
            tags = {key for part in index.parts if isinstance(part, PartScan) for key in part.slots}
            if tags in ({1}, {1, 2}):
                lacks = "trainer_spec behind the pieces" if 2 not in tags else "normalizer_spec behind trainer_spec"
                reason = f"there is no {lacks}: the file may be cut between two fields"
                self.damage(node, reason, node.end, cut=True)

    def _pieces(self) -> Iterator[tuple[int, _Piece, Problem | None, Range | None]]:
        """Yield the number of each piece, what it says, what is wrong with it, and where it is."""
        node = self.result.root.find(_PIECES)
        index = None if node is None or node.shape == SCALAR else node.index_to(None).note
        if not isinstance(index, ListIndex):
            return
        for ordinal, pieces, window in index.messages():
            if not ordinal & 0xFFF:
                self.result.extraction.session.check_cancelled()
            part = pieces[0] if len(pieces) == 1 and isinstance(pieces[0], Range) else None
            found = None if part is None or window is None else _quick(part, window)
            if found is not None:
                yield ordinal, found, None, part
                continue
            message = Message(self.make, pieces, schema().message(_PIECE_TYPE), window)
            scans = (scan.part for number in message.fields for scan, _ in message.runs(number))
            found, problem = _slow(message)
            part = part or next(scans, None)
            if problem is not None and problem.is_damage:
                at = None if part is None else part.start
                self.note("malformed", problem.reason, at, path=f"{_PIECES}[{ordinal}]")
            yield ordinal, found, problem, part

    def members(self) -> Iterator[Member]:
        """Yield the pieces, each called by its number, its text, its type and its score."""
        types = schema().message(_PIECE_TYPE).fields[_TYPE]
        node = self.result.root.find(_PIECES)
        stray = None if node is None else self.stray_in(node)
        for ordinal, (text, score, kind), problem, part in self._pieces():
            known = f" {shorten(text, _LONGEST)!r} {named(types, kind)} {score:g}" if text is not None else ""
            start, size = (0, 0) if part is None else (part.start, len(part))
            status, reason = (Status.COMPLETE, None) if problem is None else (problem.status, problem.reason)
            if stray is not None and start > (stray.offset or 0) and problem is None:
                status, reason = Status.DAMAGED, stray.reason
            yield Member(f"[{ordinal}]{known}", self.member_word, start, size, status, reason=reason)

    def find_member(self, name: str) -> Node | None:
        """Return a piece by its number, ``[3]``, a field of it, ``[3].score``, or a piece by its text.

        What follows the number in the row of the listing does not matter.
        """
        number, _, rest = name.removeprefix("[").partition("]")
        node = self.result.root.find(_PIECES)
        if node is None or node.shape == SCALAR or self.result.root.find(name.partition("[")[0].partition(".")[0]):
            return None
        if name.startswith("[") and number.isdecimal() and rest[:1] in ("", " ", "."):
            found = node.child(int(number)) if len(number) <= _DIGITS and int(number) < len(node) else None
            return found if found is None or rest[:1] != "." else found.find(rest[1:])
        numbers = (ordinal for ordinal, (text, *_), *_ in self._pieces() if text == name)
        ordinal = next(numbers, None)
        return None if ordinal is None else node.child(ordinal)

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the number of pieces, the kind of model, the special pieces, and how text is normalised."""
        special: dict[int, list[str]] = {}
        count = 0
        for ordinal, (text, _, kind), *_ in self._pieces():
            count = ordinal + 1
            if kind in _SPECIAL and text is not None:
                special.setdefault(kind, []).append(f"{ordinal} {shorten(text, _LONGEST)}")
        yield "vocabulary", f"{count:,} pieces"
        told = self.result.root.find("trainer_spec")
        for kind, word in _SPECIAL.items():
            if kind in special:
                found = special[kind]
                yield word, few(found, _NAMED, len(found))
        if told is not None:
            yield "model type", str(_told(told, "model_type")).lower()
            ids = (f"{name} {_told(told, f'{name}_id')}" for name in ("unk", "bos", "eos", "pad"))
            yield "ids", ", ".join(one for one in ids if not one.endswith("-1"))
        name = _told(self.result.root.find("normalizer_spec"), "name", "sentencepiece.NormalizerSpec")
        if name:
            yield "normalizer", str(name)
        yield from super().details()


def _quick(part: Range, window: WireWindow) -> _Piece | None:
    """Return text, score and type of a piece as nearly all are; None for one that is large, cut or unusual."""
    if window.data is not part.data or part.end - part.start > _SMALL:
        return None
    text, score, kind = b"", 0.0, 1
    try:
        raw = window.read(part.start, part.end) + PADDING
        for tag, pos, end in fields(raw, 0, part.end - part.start):
            if tag == _TEXT_TAG:
                text = raw[pos:end]
            elif tag == _SCORE_TAG:
                (score,) = _FLOAT.unpack_from(raw, pos)
            elif tag == _TYPE_TAG:
                kind = read_value(raw, pos)[0] or 1
            else:
                return None
        return text.decode(), score, kind
    except (FaultError, UnicodeDecodeError):
        return None


def _slow(message: Message) -> tuple[_Piece, Problem | None]:
    """Return what a piece says, None instead of a text that cannot be read, and what is wrong with it."""
    try:
        kind = int(message.scalar(_TYPE) or 1)
        return (str(message.scalar(_PIECE)), float(message.scalar(_SCORE)), kind), message.problem
    except FaultError as error:
        return (None, 0.0, 1), message.problem or problem_of(error)


def _told(node: Node | None, key: str, kind: str = "sentencepiece.TrainerSpec") -> Any:
    """Return the value of a field, or its default."""
    field = schema().message(kind).by_name[key]
    return value_at(node, key, default=named(field, field.default))
