"""Schemas that ``flatc --schema -b`` compiled (.bfbs files), as the lines of text that `Schema` takes."""

from __future__ import annotations

import re
from collections import Counter

from pparse.errors import MalformedError
from pparse.parsers.flatbuffers.schema import SCALARS, Schema
from pparse.parsers.flatbuffers.table import Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.parsers.flatbuffers.parser import FlatBuffersParser

# Numbers of `BaseType`; scalars are those between, in the order of `SCALARS`.
_NUMBER_OF_UNION, _BOOL, _STRING, _VECTOR, _OBJECT, _UNION, _ARRAY, _VECTOR64 = 1, 2, 13, 14, 15, 16, 17, 18
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")


def schema_of(parser: FlatBuffersParser) -> Schema:
    """Return the schema that a .bfbs file describes. Raises `DataError` if it cannot be read, or names no root."""
    if parser.schema.identifier != "BFBS":
        raise MalformedError("it does not have BFBS at byte 4", offset=parser.buffer_start)
    return _Compiled(parser).schema()


class _Compiled:
    def __init__(self, parser: FlatBuffersParser) -> None:
        self._root = Table.root(parser)
        self._left = parser.result.extraction.find_end()  # tables of a good file share no fields: so there are fewer
        self._objects = [_name(table) for table in self._tables(self._root, "objects")]
        self._enums = [_name(table) for table in self._tables(self._root, "enums")]
        last = Counter(name.rpartition(".")[2] for name in self._objects + self._enums)
        # Nodes are called without the namespace, unless that leaves one name for two.
        self._short = {
            name: short if last[short := name.rpartition(".")[2]] == 1 else name for name in self._objects + self._enums
        }

    def _tables(self, table: Table, name: str) -> Iterator[Table]:
        for found in table.tables(name):
            self._left -= 1
            if self._left < 0:
                raise MalformedError("more tables than bytes: they share their parts", offset=table.at)
            yield found

    def schema(self) -> Schema:
        root = self._root.table("root_table")
        if root is None:
            raise MalformedError("it names no root_type", offset=self._root.at)
        mark = self._root.text("file_ident")
        lines = [f"root {self._known(_name(root), root)} {mark if _NAME.fullmatch(mark) else ''}"]
        lines += [self._enum(table) for table in self._tables(self._root, "enums")]
        lines += [self._object(table) for table in self._tables(self._root, "objects")]
        found = Schema("\n".join(lines))
        for table in self._tables(self._root, "objects"):
            size = found.type(self._short[_name(table)]).size if table.number("is_struct") else 0
            if size != table.number("bytesize") and size:
                raise MalformedError(f"the struct {_name(table)} is aligned as no type of its fields", offset=table.at)
        return found

    def _enum(self, table: Table) -> str:
        kind = table.table("underlying_type")
        if kind is None:
            raise MalformedError("an enum without a type", offset=table.at)
        flags = any(each.text("key") == "bit_flags" for each in self._tables(table, "attributes"))
        values = list(self._tables(table, "values"))
        if not table.number("is_union"):
            named = [f"{_name(value)}={value.number('value')}" for value in values]
            return " ".join(
                (
                    "flags" if flags else "enum",
                    self._short[_name(table)],
                    self._one(kind, kind.number("base_type"), -1),
                    *named,
                )
            )
        members = []
        for value in (value for value in values if value.number("value")):
            of, old = value.table("union_type"), value.table("object")
            text = self._type(of) if of is not None else self._known(_name(old), old) if old is not None else "string"
            members.append(f"{_name(value)}:{text}={value.number('value')}")
        return " ".join(("union", self._short[_name(table)], *members))

    def _object(self, table: Table) -> str:
        struct = table.number("is_struct")
        words = []
        for field in sorted(
            self._tables(table, "fields"), key=lambda field: field.number("offset" if struct else "id")
        ):
            kind = field.table("type")
            if kind is None:
                raise MalformedError("a field without a type", offset=field.at)
            base, element = kind.number("base_type"), kind.number("element")
            if _NUMBER_OF_UNION in (base, element if base in (_VECTOR, _VECTOR64) else 0):
                continue  # the union behind it says so
            wide = field.number("offset64") and base != _VECTOR64
            word = f"{_name(field)}:{self._type(kind)}{'^' * wide}"
            told = {each.text("key"): each.text("value") for each in self._tables(field, "attributes")}
            holds = told.get("nested_flatbuffer", "flexbuffer" if "flexbuffer" in told else "")
            if holds and holds != "flexbuffer":  # a name without its namespace is of the same one
                around = _name(table).rpartition(".")[0]
                holds = self._known(holds if holds in self._short else f"{around}.{holds}", field)
            word += f"<{holds}>" if holds else ""
            default = field.number("default_integer") or field.number("default_real")
            words.append(f"{word}={default}" if default and not struct else word)
        return " ".join(("struct" if struct else "table", self._short[_name(table)], *words))

    def _known(self, name: str, table: Table) -> str:
        if name not in self._short:
            raise MalformedError(f"there is no type {name!r}", offset=table.at)
        return self._short[name]

    def _type(self, kind: Table) -> str:
        base, index = kind.number("base_type"), kind.number("index")
        if base not in (_VECTOR, _VECTOR64, _ARRAY):
            return self._one(kind, base, index)
        item = self._one(kind, kind.number("element"), index)
        return f"[{item}:{kind.number('fixed_length')}]" if base == _ARRAY else f"[{item}]{'^^' * (base == _VECTOR64)}"

    def _one(self, kind: Table, base: int, index: int) -> str:
        """Return the type of a field, or of an element; ``index``: which table, struct, union or enum it is."""
        scalar = _BOOL <= base < _STRING
        names = self._objects if base == _OBJECT else self._enums if base == _UNION or scalar else []
        if base == _STRING or (scalar and index < 0):
            return "string" if base == _STRING else list(SCALARS)[base - _BOOL]
        if not 0 <= index < len(names):
            raise MalformedError(f"there is no type {index} of base type {base}", offset=kind.at)
        return self._short[names[index]]


def _name(table: Table) -> str:
    """Return the name of a type, field or value. Raises `MalformedError` if it is none."""
    name = table.text("name")
    if not _NAME.fullmatch(name):
        raise MalformedError(f"{name!r} is no name of a schema", offset=table.at)
    return name
