"""PaddlePaddle inference models (``.pdmodel``): one message, ``paddle.framework.proto.ProgramDesc``.

There is no magic number: the first field is block 0, whose first fields are its number and that of its parent, -1. The
states are those of a message (`pparse.parsers.protobuf.parser`). What the fields mean: PaddlePaddle/Paddle
paddle/fluid/framework/framework.proto; which variables are parameters: python/paddle/framework/io_utils.py.
"""

from __future__ import annotations

from pparse.display.text import few, shorten
from pparse.errors import FaultError, MalformedError
from pparse.kernels.wire import PADDING, fields
from pparse.parsers.paddle.record import Parameter, read_layout
from pparse.parsers.protobuf.message import Message
from pparse.parsers.protobuf.parser import MessageParser
from pparse.tree.context import decode_text
from pparse.tree.parser import signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar, Final

    from pparse.protobuf.schema import MessageType

# Fields of a program, a version, a block, a variable, an operator.
_BLOCKS, _VERSION, _NUMBER = 1, 4, 1
_VARS, _OPS, _PERSISTABLE, _TYPE = 3, 4, 3, 3
# Tags of a variable, of its type and of what that holds; types of variables that have no values in files.
_NAME, _VAR_TYPE, _STORED = 0x0A, 0x12, 0x18
_KIND, _DENSE, _TENSOR = 0x08, 0x1A, 0x0A
_VALUELESS: Final = frozenset(b"%c" % kind for kind in (9, 10, 15, 17))  # FEED_MINIBATCH, FETCH_LIST, READER, RAW
_MOST_BYTES: Final = 1 << 16  # of a variable
_COST: Final = 400  # memory of a parameter
# Number and parent of block 0: fields 1 and 2 of a block, 0 and -1.
_FIRST_BLOCK: Final = b"\x08\x00\x10" + b"\xff" * 9 + b"\x01"
_LONGEST_HEAD: Final = 11  # of a tag and a length
# Kinds of operators that are told apart and named; the longest name that is shown.
_KINDS, _NAMED, _LONGEST = 10_000, 8, 60


class PaddleParser(MessageParser):
    """A PaddlePaddle inference model."""

    name = "paddle"
    description = "PaddlePaddle inference model"
    extensions: ClassVar[tuple[str, ...]] = (".pdmodel", "__model__")
    signatures = signatures(b"\n")
    message_name = "paddle.framework.proto.ProgramDesc"
    viewer = "pparse.viewers.paddle.viewer:PaddleViewer"
    in_order = True
    references: ClassVar[tuple[str, ...]] = ("PaddlePaddle/Paddle paddle/fluid/framework/framework.proto",)
    limitations: ClassVar[tuple[str, ...]] = (
        "there are no checksums: a changed byte may look like another value",
        "parameters are those of one file beside it (.pdiparams, __params__), not of a file for each",
    )

    @classmethod
    def shows(cls, head: bytes, type: MessageType) -> bool:
        """Return whether the first field is block 0."""
        return head.find(_FIRST_BLOCK, 0, _LONGEST_HEAD + len(_FIRST_BLOCK)) > 0

    def _elements(self, message: Message, number: int) -> Iterator[Message]:
        """Yield the messages of a repeated field, up to where the file ends or breaks."""
        kind = message.type.fields[number].message
        try:
            for ordinal, pieces in enumerate(message.elements(number) if kind is not None else ()):
                if not ordinal & 0xFFF:
                    self.result.extraction.session.check_cancelled()
                yield Message(self.make, pieces, kind, message.near)  # type: ignore[arg-type]
        except FaultError:
            return

    def parameters(self) -> tuple[list[Parameter], bool]:
        """Return the parameters in the order of their names, as files have them, and whether that is all of them."""
        program = Message(self.make, self.root_pieces(), self.root_type)  # type: ignore[arg-type]
        found: dict[str, Parameter] = {}
        whole = program.problem is None
        with self.result.extraction.session.budget.charge(0, "the parameters of a program") as charge:
            for block in self._elements(program, _BLOCKS):
                whole = whole and block.problem is None
                try:
                    for scan, window, at in block.occurrences(_VARS):
                        try:
                            fits = at.end <= scan.part.end and at.end - at.start <= _MOST_BYTES
                            parameter = _parameter(window.read(at.start, at.end) if fits else b"", at.start)
                        except MalformedError:
                            fits = False
                        whole = whole and fits
                        if fits and parameter is not None:
                            found[parameter.name] = parameter
                            charge.resize(_COST * len(found))
                except FaultError:
                    whole = False
        return [found[name] for name in sorted(found)], whole

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield version, number of blocks, variables and operators, kinds of operators."""
        program = Message(self.make, self.root_pieces(), self.root_type)  # type: ignore[arg-type]
        kinds: dict[str, int] = {}
        blocks = variables = stored = operators = 0
        for block in self._elements(program, _BLOCKS):
            blocks += 1
            for variable in self._elements(block, _VARS):
                variables += 1
                stored += _told(variable, _PERSISTABLE) == "True"
            for operator in self._elements(block, _OPS):
                operators += 1
                kind = _told(operator, _TYPE) or "?"
                if kind in kinds or len(kinds) < _KINDS:
                    kinds[kind] = kinds.get(kind, 0) + 1
        try:
            version = program.message(_VERSION)
        except FaultError:
            version = None
        if version is not None:
            yield "version", _told(version, _NUMBER) or "?"
        yield "blocks", f"{blocks:,}"
        yield "variables", f"{variables:,}, of which {stored:,} persistable"
        yield "operators", f"{operators:,}"
        ordered = [f"{kind} {count:,}" for kind, count in sorted(kinds.items(), key=lambda one: (-one[1], one[0]))]
        if ordered:
            yield "kinds", few(ordered, _NAMED, len(ordered))
        yield from super().details()


def _parameter(raw: bytes, at: int) -> Parameter | None:
    """Return what a variable says if files have values of it, else None. Raises `MalformedError`."""
    type = _field(raw, _VAR_TYPE)
    if _field(raw, _STORED) in (b"", b"\0") or _field(type, _KIND) in _VALUELESS:
        return None
    name = decode_text(_field(raw, _NAME), at, "the name of a variable")
    return Parameter(name, read_layout(_field(_field(type, _DENSE), _TENSOR), at))


def _field(raw: bytes, tag: int) -> bytes:
    """Return the last field of a message with a tag; nothing if there is none."""
    found = b""
    for one, pos, end in fields(raw + PADDING, 0, len(raw)):
        if one == tag:
            found = raw[pos:end]
    return found


def _told(message: Message, number: int) -> str:
    """Return a scalar in words; of a repeated one, the last; empty if it cannot be read."""
    try:
        return shorten(str(message.scalar(number)), _LONGEST)
    except FaultError:
        return ""
