"""`Record`: fixed fields, one behind the other, declared once: taken with `NodeContext.take`, shown as entries."""

from __future__ import annotations

from struct import Struct, unpack_from

from pparse.tree.entry import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node

# What nodes of a field are called, by the character of `struct`.
_KINDS: Final = {
    "b": "int8",
    "B": "uint8",
    "h": "int16",
    "H": "uint16",
    "i": "int32",
    "I": "uint32",
    "q": "int64",
    "Q": "uint64",
    "e": "float16",
    "f": "float32",
    "d": "float64",
    "?": "bool",
    "s": "bytes",
}
_ORDERS: Final = "<>=!@"


class Field:
    """One field: its name, its layout as `struct` writes it (``"<Q"``, ``"4s"``), and the kind of its node."""

    __slots__ = ("kind", "layout", "name", "size")

    def __init__(self, name: str, layout: str, kind: str = "") -> None:
        self.name = name
        """Its name, and the key of its node."""
        self.layout = layout
        """Its layout, one value of `struct`."""
        self.kind = kind or _KINDS[layout[-1]]
        """The kind of its node."""
        self.size = Struct("<" + layout.lstrip(_ORDERS)).size
        """Bytes that it takes."""

    def __repr__(self) -> str:
        return f"Field({self.name!r}, {self.layout!r})"


class Record:
    """Fields that always follow each other in this order, without padding, in one byte order."""

    __slots__ = ("_struct", "fields", "numbers", "size", "unpack")

    def __init__(self, *fields: Field) -> None:
        orders = {field.layout[0] if field.layout[0] in _ORDERS else "" for field in fields}
        if len(orders - {""}) > 1:
            raise ValueError(f"fields of one record have one byte order, not {' and '.join(sorted(orders - {''}))}")
        order = next(iter(orders - {""}), "<")
        self.fields = fields
        """The fields, in order."""
        self.numbers = {field.name: number for number, field in enumerate(fields)}
        """Number of each field by its name."""
        self._struct = Struct(order + "".join(field.layout.lstrip(_ORDERS) for field in fields))
        self.size = self._struct.size
        """Bytes of the whole record."""
        self.unpack = self._struct.unpack_from
        """Returns the bare values of a record in a block, at an offset: for what is read by the million."""

    @classmethod
    def of(cls, fields: str) -> Record:
        """Return a record of ``"name:layout name:layout …"``, little-endian."""
        return cls(*(Field(*field.split(":")) for field in fields.split()))

    def read(self, block: bytes, at: int, start: int) -> Values:
        """Return the values of a record at ``block[at:]``, which begins at offset ``start`` of the document."""
        return Values(self, start, self._struct.unpack_from(block, at))


class Values:
    """The values of one record: by number, by name, and as attributes where no method is in the way."""

    __slots__ = ("_values", "record", "start")

    def __init__(self, record: Record, start: int, values: tuple[Any, ...]) -> None:
        self.record = record
        """What the values are of."""
        self.start = start
        """Offset of the first byte."""
        self._values = values

    def __getitem__(self, field: int | str) -> Any:
        return self._values[self.record.numbers[field] if isinstance(field, str) else field]

    def __getattr__(self, name: str) -> Any:
        number = self.record.numbers.get(name)
        if number is None:
            raise AttributeError(f"the record has no field {name!r}")
        return self._values[number]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def entries(self) -> Iterator[Entry]:
        """Yield an entry for each field, with its key, kind, place and value."""
        at = self.start
        for field, value in zip(self.record.fields, self._values, strict=True):
            yield Entry(field.name, field.kind, at, at + field.size, value)
            at += field.size


# -- `NumberArray`: a list of numbers in one layout: each is found by arithmetic, so nothing is indexed ----------------


class NumberArray:
    """What a node keeps as its ``note`` whose children are numbers; `NodeContext.emit_numbers` makes such nodes."""

    __slots__ = ("count", "field")

    def __init__(self, layout: str, count: int) -> None:

        self.field = Field("", layout)
        """The layout of a number, as `struct` writes it, its size, and the kind of its node."""
        self.count = count
        """How many there should be."""

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return self.count * self.field.size

    def index(self, node: Node, index: ChildIndex) -> None:
        """Count the numbers of ``node`` that exist."""
        end = node.start if node.end is None else node.end
        there = min(end, node.result.extraction.find_end(node)) - node.start
        index.keep(self, min(self.count, max(0, there) // self.field.size))

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries ``[first, first + count)``, made from their bytes."""
        size, layout = self.field.size, self.field.layout
        order, code = (layout[0], layout[1:]) if len(layout) > 1 else ("<", layout)
        count, start = max(0, min(count, index.count - first)), node.start + first * size
        raw = node.extraction.data.read_exact(start, count * size)
        places = range(start, start + count * size, size)
        values = unpack_from(f"{order}{count}{code}", raw)
        return [Entry(None, self.field.kind, at, at + size, value) for at, value in zip(places, values, strict=True)]
