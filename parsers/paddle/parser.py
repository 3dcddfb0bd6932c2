"""PaddlePaddle inference models (``.pdmodel``): one message, ``paddle.framework.proto.ProgramDesc``.

There is no magic number: the first field is block 0, whose first fields are its number and that of its parent, -1. The
states are those of a message (`pparse.parsers.protobuf.parser`). What the fields mean: PaddlePaddle/Paddle
paddle/fluid/framework/framework.proto; which variables are parameters: python/paddle/framework/io_utils.py.
"""

from __future__ import annotations

from pparse.display.text import shorten
from pparse.errors import FaultError, MalformedError
from pparse.findings import Status
from pparse.kernels.wire import PADDING, fields
from pparse.parsers.paddle.record import UNREADABLE, Parameter, operators_told, read_layout
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
_SIDES, _ARGUMENT = (0x0A, 0x12), 0x12  # tags of an operator, and of what these are
_MOST_BYTES: Final = 1 << 20  # of a variable, or an operator
_NAME_COST: Final = 100
_COST: Final = 400  # memory of a parameter
# Number and parent of block 0: fields 1 and 2 of a block, 0 and -1.
_FIRST_BLOCK: Final = b"\x08\x00\x10" + b"\xff" * 9 + b"\x01"
_LONGEST_HEAD: Final = 11  # of a tag and a length
_LONGEST: Final = 60  # name that is shown


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
    limitations: ClassVar[tuple[str, ...]] = ("there are no checksums: a changed byte may look like another value",)

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

    def parameters(self) -> tuple[list[Parameter], Status]:
        """Return the parameters in the order of their names, as files have them.

        TRUNCATED: there may be more; DAMAGED: their order is in doubt, since operators use a name that no variable has.
        """
        program = Message(self.make, self.root_pieces(), self.root_type)  # type: ignore[arg-type]
        found: dict[bytes, Parameter] = {}
        declared, used = set[bytes](), set[bytes]()
        whole = program.problem is None
        with self.result.extraction.session.budget.charge(0, "the parameters of a program") as charge:
            for block in self._elements(program, _BLOCKS):
                whole = whole and block.problem is None
                try:
                    for raw, at in _each(block, _VARS):
                        try:
                            parameter = _parameter(raw, at)
                        except MalformedError:
                            whole = False
                            continue
                        declared.add(_field(raw, _NAME))
                        if parameter is not None:
                            found[parameter.name.encode()] = parameter
                        charge.resize(_COST * len(found) + _NAME_COST * (len(declared) + len(used)))
                    for raw, _ in _each(block, _OPS):
                        used.update(_arguments(raw))
                except FaultError:
                    whole = False
        names = sorted(found)
        status = Status.COMPLETE if whole else Status.TRUNCATED
        return [found[name] for name in names], status if _is_sure(names, used, used - declared) else Status.DAMAGED

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield version, number of blocks, variables and operators, kinds of operators."""
        program = Message(self.make, self.root_pieces(), self.root_type)  # type: ignore[arg-type]
        blocks = variables = stored = 0
        for block in self._elements(program, _BLOCKS):
            blocks += 1
            for variable in self._elements(block, _VARS):
                variables += 1
                stored += _told(variable, _PERSISTABLE) == "True"
        try:
            version = program.message(_VERSION)
        except FaultError:
            version = None
        if version is not None:
            yield "version", _told(version, _NUMBER) or "?"
        yield "blocks", f"{blocks:,}"
        yield "variables", f"{variables:,}, of which {stored:,} persistable"
        operators = (one for block in self._elements(program, _BLOCKS) for one in self._elements(block, _OPS))
        yield from operators_told(_told(operator, _TYPE) or UNREADABLE for operator in operators)
        yield from super().details()


def _each(message: Message, number: int) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes of each message of a repeated field, and where they begin. Raises `FaultError`."""
    for scan, window, at in message.occurrences(number):
        if at.end > scan.part.end or at.end - at.start > _MOST_BYTES:
            raise MalformedError("a message is cut, or too long", offset=at.start)
        yield window.read(at.start, at.end), at.start


def _arguments(raw: bytes) -> Iterator[bytes]:
    """Yield the names of the variables that an operator reads or writes. Raises `MalformedError`."""
    for tag, pos, end in fields(raw + PADDING, 0, len(raw)):
        if tag in _SIDES:
            side = raw[pos:end]
            yield from (
                side[begin:stop] for one, begin, stop in fields(side + PADDING, 0, end - pos) if one == _ARGUMENT
            )


def _is_sure(names: list[bytes], used: set[bytes], strange: set[bytes]) -> bool:
    """Return whether the order of names is sure: each of a parameter that no operator uses may be a strange one."""
    low, high = min(strange, default=b""), max(strange, default=b"")
    for at, name in enumerate(names):
        before, behind = names[at - 1] if at else b"", names[at + 1] if at + 1 < len(names) else b"\xff"
        if strange and name not in used and not (before < low and high < behind):
            return False
    return True


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
