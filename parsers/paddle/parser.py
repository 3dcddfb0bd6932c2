"""PaddlePaddle inference models (``.pdmodel``): one message, ``paddle.framework.proto.ProgramDesc``.

There is no magic number: the first field is block 0, whose first fields are its number and that of its parent, -1. The
states are those of a message (`pparse.parsers.protobuf.parser`). What the fields mean: PaddlePaddle/Paddle
paddle/fluid/framework/framework.proto; which variables are parameters: python/paddle/framework/io_utils.py.
"""

from __future__ import annotations

from pparse.errors import FaultError, MalformedError
from pparse.findings import Status
from pparse.kernels.wire import PADDING, within
from pparse.parsers.paddle.record import UNREADABLE, Parameter, operators_told, read_layout
from pparse.parsers.protobuf.message import Message
from pparse.parsers.protobuf.parser import MessageParser
from pparse.tree.below import kids_of, node_at, text_at
from pparse.tree.context import decode_text
from pparse.tree.parser import signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, ClassVar, Final

    from pparse.protobuf.schema import MessageType

# Fields of a program, and a block.
_BLOCKS, _VARS, _OPS = 1, 3, 4
# Tags of a variable, of its type and of what that holds; types of variables that have no values in files.
_NAME, _VAR_TYPE, _STORED = 0x0A, 0x12, 0x18
_KIND, _DENSE, _TENSOR = 0x08, 0x1A, 0x0A
_VALUELESS: Final = frozenset(b"%c" % kind for kind in (9, 10, 15, 17))  # FEED_MINIBATCH, FETCH_LIST, READER, RAW
_SIDES, _ARGUMENT = (0x0A, 0x12), 0x12  # tags of an operator, and of what its sides are
_MOST_BYTES: Final = 1 << 20  # of a variable, or an operator
_NAME_COST: Final = 100
_COST: Final = 400  # memory of a parameter
# Number and parent of block 0: fields 1 and 2 of a block, 0 and -1.
_FIRST_BLOCK: Final = b"\x08\x00\x10" + b"\xff" * 9 + b"\x01"
_LONGEST_HEAD: Final = 11  # of a tag and a length


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

    def _each(self, number: int) -> Iterator[tuple[bytes, int] | None]:
        """Yield the bytes of each variable, or operator, and where they begin; None where some are lost or too long."""
        program = Message(self.make, self.root_pieces(), self.root_type)  # type: ignore[arg-type]
        kind: Any = program.type.fields[_BLOCKS].message
        if program.problem is not None:
            yield None
        for pieces in _readable(program.elements(_BLOCKS)):
            block = Message(self.make, pieces, kind, program.near) if pieces is not None else None
            if block is None or block.problem is not None:
                yield None
            yield from _readable(self._raw(block, number) if block is not None else ())

    def _raw(self, block: Message, number: int) -> Iterator[tuple[bytes, int]]:
        for ordinal, (scan, window, at) in enumerate(block.occurrences(number)):
            if not ordinal & 0xFFF:
                self.result.extraction.session.check_cancelled()
            if at.end > scan.part.end or at.end - at.start > _MOST_BYTES:
                raise MalformedError("a message is cut, or too long", offset=at.start)
            yield window.read(at.start, at.end), at.start

    def parameters(self) -> tuple[list[Parameter], Status]:
        """Return the parameters in the order of their names, as files have them.

        TRUNCATED: there may be more; DAMAGED: their order is in doubt, since operators use a name that no variable has.
        """
        found: dict[bytes, Parameter] = {}
        declared, used = set[bytes](), set[bytes]()
        whole = True
        with self.result.extraction.session.budget.charge(0, "the parameters of a program") as charge:
            for number in (_VARS, _OPS):
                for each in self._each(number):
                    try:
                        if each is None:
                            whole = False
                        elif number == _OPS:
                            used.update(_arguments(each[0]))
                        else:
                            parameter = _parameter(*each)
                            declared.add(_field(each[0], _NAME))
                            found |= {} if parameter is None else {parameter.name.encode(): parameter}
                    except MalformedError:
                        whole = False
                    charge.resize(_COST * len(found) + _NAME_COST * (len(declared) + len(used)))
        names = sorted(found)
        status = Status.COMPLETE if whole else Status.TRUNCATED
        return [found[name] for name in names], status if _is_sure(names, used, used - declared) else Status.DAMAGED

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield version, number of blocks, variables and operators, kinds of operators."""
        root = self.result.root
        version = text_at(root, "version", "version")
        if version:
            yield "version", version
        blocks = list(kids_of(root.find("blocks")))
        yield "blocks", f"{len(blocks):,}"
        stored = [text_at(one, "persistable") == "True" for block in blocks for one in kids_of(node_at(block, "vars"))]
        yield "variables", f"{len(stored):,}, of which {sum(stored):,} persistable"
        operators = (one for block in blocks for one in kids_of(node_at(block, "ops")))
        yield from operators_told(text_at(operator, "type") or UNREADABLE for operator in operators)
        yield from super().details()


def _readable(pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield what there is up to where the file ends or breaks, and None there."""
    try:
        yield from pieces
    except FaultError:
        yield None


def _arguments(raw: bytes) -> Iterator[bytes]:
    """Yield the names of the variables that an operator reads or writes. Raises `MalformedError`."""
    places = (place for side in _SIDES for place in within(raw + PADDING, 0, len(raw), side, _ARGUMENT))
    return (raw[pos:end] for pos, end in places)


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
    if _field(raw, _STORED) in (b"", b"\0") or _field(raw, _VAR_TYPE, _KIND) in _VALUELESS:
        return None
    name = decode_text(_field(raw, _NAME), at, "the name of a variable")
    return Parameter(name, read_layout(_field(raw, _VAR_TYPE, _DENSE, _TENSOR), at))


def _field(raw: bytes, *tags: int) -> bytes:
    """Return the last field of a message that tags lead to; nothing if there is none. Raises `MalformedError`."""
    *_, place = (0, 0), *within(raw + PADDING, 0, len(raw), *tags)
    return raw[slice(*place)]
