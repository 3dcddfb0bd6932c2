"""Types of FlatBuffers, read lazily from a compact schema.

A schema is lines of text, one for each type; a line that begins with a space goes on with the one before, one that
begins with ``#`` is a comment::

    root Model TFL3
    enum TensorType int8 FLOAT32 FLOAT16 INT32 INT4=17
    flags Mode uint8 READ WRITE
    union Options Conv2DOptions text:string
    struct EdgeEnd node_index:uint32 src_arg_index:int32
    table Tensor shape:[int32] type:TensorType name:string body:[uint8]<Inner> big:[uint8]^^ axis:int32=-1

The root comes with the identifier of its files, if they have one. Fields stand in the order of their slots; a union
takes two of them, the first for the number of its type. ``[x]`` is a vector, ``[x:4]`` an array in a struct; ``^``
marks an offset of 64 bits, ``^^`` a length of 64 bits, too; ``<Inner>`` bytes that are another FlatBuffer,
``<flexbuffer>`` a FlexBuffer; ``=`` a default that is not 0. ``tests/make_flatbuffers_schema.py`` makes such lines of
.fbs files, and `pparse.parsers.flatbuffers.reflection` of a .bfbs, which ``flatc --schema -b`` writes.

Types refer to each other by name and are made on their first use, so recursive types work.
"""

from __future__ import annotations

from functools import partial
from struct import calcsize

from pparse.data import files
from pparse.errors import MalformedError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

# What a type can be.
SCALAR, TEXT, TABLE, STRUCT, VECTOR, ARRAY, UNION = range(7)

_NAMES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
SCALARS: Final = dict(zip(_NAMES, "?bBhHiIqQfd", strict=True))
"""Names of scalars, and their layouts as `struct` writes them."""
# Structs may lie in structs; deeper ones are not known of.
_DEEPEST: Final = 32


class Type:
    """The type of a field, an element, or the root."""

    __slots__ = (
        "_by_name",
        "_fields",
        "align",
        "code",
        "holds",
        "item",
        "length",
        "name",
        "names",
        "size",
        "what",
        "wide",
    )

    def __init__(self, what: int, name: str, *, code: str = "", size: int = 4, item: Type | None = None) -> None:
        self.what = what
        """SCALAR, TEXT, TABLE, STRUCT, VECTOR, ARRAY or UNION."""
        self.name = name
        """What nodes of the type are called."""
        self.code = code
        """Layout of a scalar, as `struct` writes it."""
        self.size = self.align = size
        """Bytes that a value takes where it stands: those of an offset for texts, tables, vectors and unions."""
        self.item = item
        """Type of the elements of a vector or array."""
        self.length = 0
        """Number of elements of an array."""
        self.names: dict[int, str] = {}
        """Names of the values of an enum; of the members of a union."""
        self._by_name: dict[str, Field] | None = None
        self._fields: Callable[[], tuple[Field, ...]] | tuple[Field, ...] = ()
        self.wide = 0
        """1: the offset to it has 64 bits; 2: the length at its beginning, too."""
        self.holds = ""
        """What the bytes of a vector hold: the root of another FlatBuffer, or ``flexbuffer``; empty: just bytes."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of a table by slot, or of a struct by place. Raises `MalformedError` for types that do not exist."""
        found = self._fields
        if not isinstance(found, tuple):
            found = self._fields = found()
        return found

    def field(self, name: str) -> Field:
        """Return the field of that name. Raises `KeyError`."""
        found = self._by_name
        if found is None:
            found = self._by_name = {field.name: field for field in self.fields}
        return found[name]

    def __repr__(self) -> str:
        return f"<Type {self.name}>"


def no_member(union: Type, number: int, at: int) -> MalformedError | UnsupportedError:
    """Return the error on a value of a union of type ``number``, which the schema does not have.

    Readers pass over such values, as those of newer versions (flatbuffers/verifier.h); no writer leaves a value of
    type 0.
    """
    if not number:
        return MalformedError(f"a value of {union.name} has no type", offset=at)
    reason = f"{union.name} has no type {number} in the schema: the file is newer, or damaged"
    return UnsupportedError(reason, offset=at)


class Field:
    """A field of a table or struct."""

    __slots__ = ("default", "name", "place", "type")

    def __init__(self, name: str, type: Type, place: int, default: int | float | str) -> None:
        self.name = name
        """Its name, and the key of its node."""
        self.type = type
        """Its type."""
        self.place = place
        """Slot in the vtable, from 0 on; in a struct, offset of its first byte."""
        self.default = default
        """What a table that does not have it means."""


class Schema:
    """The types of a format."""

    @staticmethod
    def named(name: str) -> Schema:
        """Return one of our own, in the folder ``schemas``."""
        return Schema(files.read_beside(__spec__, "schemas", f"{name}.txt").decode())

    def __init__(self, text: str) -> None:
        self._lines: dict[str, list[str]] = {}
        self._types: dict[str, Type] = {}
        self._depth = 0
        self.root = self.identifier = ""
        for line in text.replace("\n ", " ").splitlines():
            words = line.split()
            if words[:1] == ["root"]:
                self.root, self.identifier = words[1], words[2] if len(words) > 2 else ""
            elif len(words) > 1 and words[0] != "#":
                self._lines[words[1]] = words

    @property
    def root_type(self) -> Type:
        """The type of the root table."""
        return self.type(self.root)

    def is_map(self, kind: str) -> bool:
        """Say whether nodes of a kind are tables or structs."""
        return self._lines.get(kind, ("",))[0] in ("table", "struct")

    def type(self, text: str) -> Type:
        """Return the type that ``text`` names, as in a field. Raises `MalformedError` if there is none."""
        found = self._types.get(text)
        if found is None:
            found = self._types[text] = self._made(text)
        return found

    def member(self, union: Type, number: int) -> Type | None:
        """Return the type of a union's value by its number; None if it is not known."""
        text = union.names.get(number)
        return None if text is None else self.type(text.rpartition(":")[2])

    def _made(self, text: str) -> Type:
        inner, mark, holds = text.partition("<")
        wide = inner.count("^")
        name = inner.rstrip("^")
        if name[:1] == "[":
            found = self._list(name[1:-1])
            found.wide, found.holds = wide, holds.rstrip(">") if mark else ""
            found.size = 8 if wide and found.what == VECTOR else found.size
            return found
        if name in SCALARS:
            code = SCALARS[name]
            return Type(SCALAR, name, code=code, size=calcsize(f"<{code}"))
        if name == "string":
            found = Type(TEXT, "text", size=8 if wide else 4)
            found.wide = wide
            return found
        words = self._lines.get(name)
        if words is None:
            raise MalformedError(f"the schema has no type {name!r}")
        if words[0] == "table":
            found = Type(TABLE, name)
            found._fields = partial(self._slots, words[2:])
            return found
        if words[0] == "struct":
            return self._struct(name, words[2:])
        if words[0] == "union":
            found = Type(UNION, name)
            found.names = _numbered(words[2:], 1, 1)
            return found
        found = Type(SCALAR, f"enum<{name}>", code=SCALARS[words[2]])
        found.size = found.align = calcsize(f"<{found.code}")
        found.names = _numbered(words[3:], 0, 1) if words[0] == "enum" else {}
        return found

    def _list(self, inside: str) -> Type:
        item, _, length = inside.rpartition(":")
        if not item or not length.isdecimal():
            of = self.type(inside)
            return Type(VECTOR, f"[{of.name}]", item=of)
        of = self.type(item)
        found = Type(ARRAY, f"[{of.name}]", size=int(length) * of.size, item=of)
        found.length, found.align = int(length), of.align
        return found

    def _struct(self, name: str, words: list[str]) -> Type:
        found, fields, at = Type(STRUCT, name), [], 0
        self._depth += 1
        if self._depth > _DEEPEST:
            raise MalformedError(f"the struct {name} holds itself, or more than {_DEEPEST} others in each other")
        for word in words:
            key, _, text = word.partition(":")
            of = self.type(text)
            at += -at % of.align
            fields.append(Field(key, of, at, 0))
            at += of.size
        self._depth -= 1
        found.align = max((field.type.align for field in fields), default=1)
        found.size = at + -at % found.align
        found._fields = tuple(fields)
        return found

    def _slots(self, words: list[str]) -> tuple[Field, ...]:
        fields: list[Field] = []
        for word in words:
            name, _, rest = word.partition(":")
            text, _, default = rest.partition("=")
            of = self.type(text)
            union = of.item if of.what == VECTOR and of.item is not None else of
            if union.what == UNION:  # the numbers of its types come first
                told = self._number_type(union)
                numbers = told if of is union else Type(VECTOR, f"[{told.name}]", item=told)
                fields.append(Field(f"{name}_type", numbers, len(fields), 0))
            fields.append(Field(name, of, len(fields), _value(default)))
        return tuple(fields)

    def _number_type(self, union: Type) -> Type:
        found = self._types.get(key := f"{union.name} number")
        if found is None:
            found = self._types[key] = Type(SCALAR, f"enum<{union.name}>", code="B", size=1)
            found.names = {0: "NONE"} | {number: text.partition(":")[0] for number, text in union.names.items()}
        return found


def _numbered(words: list[str], following: int, step: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for word in words:
        name, _, number = word.partition("=")
        following = int(number) if number else following
        found.setdefault(following, name)
        following += step
    return found


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": 1}.get(text, text or 0)
