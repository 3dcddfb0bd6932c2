"""Fields parsed by the library protobuf: what its parser in C accepts, nobody has to walk over.

The library gets types of its own, made of those of the schema: flat, without enums, defaults and maps, in proto3, where
texts must be UTF-8. So it accepts nothing that the walk over the fields (`pparse.parsers.protobuf.check`) does not;
where it refuses, the walk tells where and why.
"""

from __future__ import annotations

from collections import defaultdict

from pparse.errors import LimitError, MalformedError
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import scan
from pparse.protobuf.schema import TYPE_ENUM, TYPE_GROUP, TYPE_INT32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Final

    from pparse.limits import MemoryBudget
    from pparse.protobuf.schema import MessageType

# What the library may take for the fields that it is given at a time; these are so many bytes at most, and at least.
_MEMORY: Final = 8 << 20
_MOST: Final = 64 << 10
_LEAST: Final = 1 << 10
# What a message, which may be one of two bytes, takes in the library; and what each field of its type adds.
_MESSAGE, _FIELD = 64, 16
_MOST_TYPES: Final = 1_000


class Library:
    """The library's parsers of a type and of all types in it; none if it is not the one in C, or cannot have them."""

    __slots__ = ("_budget", "_error", "_most", "_parsers")

    def __init__(self, root: MessageType, budget: MemoryBudget) -> None:
        self._budget = budget
        self._error: type[Exception] = MalformedError
        self._most = _MOST
        try:
            self._parsers = self._made(root)
        except (ImportError, MalformedError, TypeError):  # of the schema, or of what the library makes of it
            self._parsers = {}

    def _made(self, root: MessageType) -> dict[str, Callable[[bytes], Any]]:
        from google.protobuf import descriptor_pool, message_factory
        from google.protobuf.internal import api_implementation
        from google.protobuf.message import DecodeError

        if api_implementation.Type() != "upb":
            return {}
        self._error = DecodeError
        names = {root.full_name: b"m0"}
        types, file = [root], [(0x0A, b"types"), (0x62, b"proto3")]  # FileDescriptorProto: name, syntax
        for type in types:
            body = [(0x0A, names[type.full_name])]  # DescriptorProto: name
            for field in type.fields.values():
                kind = TYPE_INT32 if field.type == TYPE_ENUM else field.type
                # FieldDescriptorProto: name, number, label, type, type_name
                own: list[tuple[int, int | bytes]] = [(0x0A, b"f%d" % field.number), (0x18, field.number)]
                own += [(0x20, 3 if field.repeated else 1), (0x28, kind)]
                if (inner := field.message) is not None:
                    if inner.full_name not in names:
                        names[inner.full_name] = b"m%d" % len(types)
                        types.append(inner)
                    own.append((0x32, b"." + names[inner.full_name]))
                if kind == TYPE_GROUP or len(types) > _MOST_TYPES:
                    return {}
                body.append((0x12, _encoded(own)))
            file.append((0x22, _encoded(body)))
            self._most = min(self._most, 2 * _MEMORY // (_MESSAGE + _FIELD * len(body)))
        if self._most < _LEAST:
            return {}
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(_encoded(file))
        make, find = message_factory.GetMessageClass, pool.FindMessageTypeByName
        return {name: make(find(short.decode())).FromString for name, short in names.items()}

    def parsed(self, type: MessageType, block: bytes, at: int, stop: int) -> tuple[int, int]:
        """Return where the first of the fields of a message in ``block[at:stop]`` begins that must be walked over.

        All before it are sound. And return where to ask again at the earliest. `pparse.kernels.wire.SLACK` bytes follow
        in ``block``.
        """
        parse = self._parsers.get(type.full_name)
        until = stop
        if parse is None:
            return at, until
        try:
            with self._budget.charge(_MEMORY, "what the library protobuf parses"):
                while stop - at >= _LEAST:
                    until = min(stop, at + self._most)
                    groups: list[int] = []
                    pos, last = scan(block, at, until, defaultdict(list), groups)
                    pos = last if pos > until or groups else pos
                    if pos - at < _LEAST:
                        break
                    parse(block[at:pos])
                    at = pos
        except LimitError:
            self._parsers = {}
        except (MalformedError, self._error):
            return at, until
        return at, at + 1


def _encoded(fields: Iterable[tuple[int, int | bytes]]) -> bytes:
    """Return the message with these fields, by tag."""
    return b"".join(
        bytes((tag,)) + (encode_varint(value) if isinstance(value, int) else encode_varint(len(value)) + value)
        for tag, value in fields
    )
