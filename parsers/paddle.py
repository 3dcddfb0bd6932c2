"""PaddlePaddle inference models (``.pdmodel``): one message, ``paddle.framework.proto.ProgramDesc``.

There is no magic number: the first field is block 0, whose first fields are its number and that of its parent, -1. The
states are those of a message (`pparse.parsers.protobuf.parser`). What the fields mean: PaddlePaddle/Paddle
paddle/fluid/framework/framework.proto; what is fed in and fetched: python/paddle/static/io.py.
"""

from __future__ import annotations

from pparse.display.text import few, shorten
from pparse.errors import FaultError
from pparse.parsers.protobuf.message import Message
from pparse.parsers.protobuf.parser import MessageParser
from pparse.tree.parser import signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar, Final

    from pparse.protobuf.schema import MessageType

# Fields of a program, a version, a block, a variable, an operator, and of one of its inputs or outputs.
_BLOCKS, _VERSION, _NUMBER = 1, 4, 1
_VARS, _OPS, _PERSISTABLE = 3, 4, 3
_INPUTS, _OUTPUTS, _TYPE, _ARGUMENTS = 1, 2, 3, 2
# Number and parent of block 0: fields 1 and 2 of a block, 0 and -1.
_FIRST_BLOCK: Final = b"\x08\x00\x10" + b"\xff" * 9 + b"\x01"
_LONGEST_HEAD: Final = 11  # of a tag and a length
# Kinds of operators that are told apart and named; the longest name that is shown.
_KINDS, _NAMED, _LONGEST = 10_000, 8, 60
# Operators that stand for inputs and outputs of the program, by the field with the name of the value.
_ENDS: Final = {"feed": ("inputs", _OUTPUTS), "fetch": ("outputs", _INPUTS)}


class PaddleParser(MessageParser):
    """A PaddlePaddle inference model."""

    name = "paddle"
    description = "PaddlePaddle inference model"
    extensions: ClassVar[tuple[str, ...]] = (".pdmodel",)
    signatures = signatures(b"\n")
    message_name = "paddle.framework.proto.ProgramDesc"
    in_order = True
    references: ClassVar[tuple[str, ...]] = ("PaddlePaddle/Paddle paddle/fluid/framework/framework.proto",)
    limitations: ClassVar[tuple[str, ...]] = (
        "there are no checksums: a changed byte may look like another value",
        "the parameters in the .pdiparams file beside it are not read: variables are shown with type and dims only",
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

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield version, number of blocks, variables and operators, kinds of operators, inputs and outputs."""
        program = Message(self.make, self.root_pieces(), self.root_type)  # type: ignore[arg-type]
        kinds: dict[str, int] = {}
        ends: dict[str, list[str]] = {"inputs": [], "outputs": []}
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
                if kind in _ENDS:
                    side, field = _ENDS[kind]
                    for given in self._elements(operator, field):
                        if len(ends[side]) < _KINDS:
                            ends[side].append(_told(given, _ARGUMENTS))
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
        for label, found in (("kinds", ordered), *ends.items()):
            if found:
                yield label, few(found, _NAMED, len(found))
        yield from super().details()


def _told(message: Message, number: int) -> str:
    """Return a scalar in words; of a repeated one, the last; empty if it cannot be read."""
    try:
        return shorten(str(message.scalar(number)), _LONGEST)
    except FaultError:
        return ""
