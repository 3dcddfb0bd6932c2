"""SentencePiece tokenizers: one message, ``sentencepiece.ModelProto``, whose pieces come first.

There is no magic number. The states are those of a message (`pparse.parsers.protobuf.parser`). The number of a piece is
the token's id. What the fields mean: google/sentencepiece src/sentencepiece_model.proto.
"""

from __future__ import annotations

from pparse.display.text import few, shorten
from pparse.errors import FaultError
from pparse.findings import Status
from pparse.parsers.protobuf.lists import ListIndex
from pparse.parsers.protobuf.message import Message, problem_of
from pparse.parsers.protobuf.parser import MessageParser
from pparse.parsers.protobuf.values import named
from pparse.protos import schema
from pparse.tree.entry import SCALAR
from pparse.tree.parser import signatures
from pparse.tree.visit import Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.protobuf.schema import MessageType
    from pparse.tree.entry import Entry
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node

# Fields of a piece, and the tag of its score; which field of the model they are.
_PIECE, _SCORE, _TYPE = 1, 2, 3
_SCORE_TAG: Final = b"\x15"
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
    references: ClassVar[tuple[str, ...]] = ("google/sentencepiece src/sentencepiece_model.proto",)
    limitations: ClassVar[tuple[str, ...]] = (
        "there are no checksums: a changed byte may look like another piece",
        "a model that is cut between two pieces looks like one with fewer of them, but for its trainer_spec",
    )

    @classmethod
    def shows(cls, head: bytes, type: MessageType) -> bool:
        """Return whether the first field is a piece with a text and a score."""
        return head[2:3] == b"\n" and len(head) > 3 and head[4 + head[3] :][:1] == _SCORE_TAG

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries of children; the pieces are as whole as the model if that breaks right behind them."""
        found = super().entries(node, index, first, count)
        if node.parent is None and node.known_status not in (None, Status.COMPLETE) and len(index.entries or ()) == 1:
            for entry in found:
                if entry.key == _PIECES and entry.status in (None, Status.COMPLETE):
                    entry.status, entry.finding = node.known_status, node.finding
        return found

    def _pieces(self) -> Iterator[tuple[int, Message]]:
        """Yield the pieces by number."""
        node = self.result.root.find(_PIECES)
        index = None if node is None or node.shape == SCALAR else node.index_to(None).note
        if not isinstance(index, ListIndex):
            return
        kind = schema().message(_PIECE_TYPE)
        try:
            for ordinal, pieces, window in index.messages():
                if not ordinal & 0xFFF:
                    self.result.extraction.session.check_cancelled()
                yield ordinal, Message(self.make, pieces, kind, window)
        except FaultError:
            return  # the file ends in the head of a piece

    def members(self) -> Iterator[Member]:
        """Yield the pieces, each called by its number, its text, its type and its score."""
        for ordinal, message in self._pieces():
            problem = message.problem
            try:
                text, score = shorten(str(message.scalar(_PIECE)), _LONGEST), float(message.scalar(_SCORE))
                kind = named(message.type.fields[_TYPE], int(message.scalar(_TYPE) or 1))
                words = f"[{ordinal}] {text!r} {kind} {score:g}"
            except FaultError as error:
                words, problem = f"[{ordinal}]", problem or problem_of(error)
            scans = (scan.part for number in message.fields for scan, _ in message.runs(number))
            part: Any = next(scans, None)
            start, size = (0, 0) if part is None else (part.start, len(part))
            status, reason = (Status.COMPLETE, None) if problem is None else (problem.status, problem.reason)
            yield Member(words, self.member_word, start, size, status, reason=reason)

    def find_member(self, name: str) -> Node | None:
        """Return a piece by its number, ``[3]``, whatever follows that in the row of the listing."""
        number = name.removeprefix("[").partition("]")[0]
        node = self.result.root.find(_PIECES) if name.startswith("[") and number.isdecimal() else None
        if node is None or node.shape == SCALAR or len(number) > _DIGITS or int(number) >= len(node):
            return None
        return node.child(int(number))

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the number of pieces, the kind of model, the special pieces, and how text is normalised."""
        special: dict[int, list[str]] = {}
        count = 0
        for ordinal, message in self._pieces():
            count = ordinal + 1
            try:
                kind = int(message.scalar(_TYPE) or 1)
                if kind in _SPECIAL:
                    special.setdefault(kind, []).append(f"{ordinal} {shorten(str(message.scalar(_PIECE)), _LONGEST)}")
            except FaultError:
                continue
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


def _told(node: Node | None, key: str, kind: str = "sentencepiece.TrainerSpec") -> Any:
    """Return the value of a field, or its default."""
    try:
        found = None if node is None or node.shape == SCALAR else node.find(key)
        if found is not None:
            return found.load()
    except FaultError:
        pass
    field = schema().message(kind).by_name[key]
    default: Any = field.default
    return named(field, default) if field.enum is not None else default
