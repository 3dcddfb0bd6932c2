"""`NodeContext`: the state of a parse in progress, of which states take their bytes; `Record`s; the types of steps."""

from __future__ import annotations

from struct import Struct, unpack_from

from pparse.data.range_status import Stretches, cut_status
from pparse.errors import MalformedError
from pparse.findings import Finding, Status
from pparse.tree.entry import UNLOADED_VALUE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterator
    from typing import Any, Final, overload

    from pparse.data.base import Data, Range
    from pparse.tree.entry import Key
    from pparse.tree.host import Services
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node

    State = Callable[["NodeContext", bytes, int], "Step"]
    Step = tuple[int, State | "Done", int]

MAX_JUMPS_BACK: Final = 1_000_000
# Bytes that are read to see how many there are, in data of unknown size.
_LOOK: Final = 64 << 10
# The most entries that are kept while they are indexed.
MOST_FRESH: Final = 256
SHORT_TEXT: Final = 256
"""Texts of so many bytes are decoded with what is around them."""


class Done:
    """Type of `DONE`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DONE"


DONE: Final = Done()
"""The state after the last one: the node is read."""


class NeedMoreError(Exception):
    """A state asked for bytes behind the block: the engine reads ``need`` of them from ``pos`` and enters it again."""

    def __init__(self, pos: int, need: int) -> None:
        super().__init__(pos, need)
        self.pos = pos
        self.need = need


_structs: Final[dict[str, Struct]] = {}
_MOST_STRUCTS: Final = 1_000  # a layout may have a number from a file in it


def struct_of(layout: str) -> Struct:
    """Return what packs and unpacks a layout as `struct` writes it; each is made once."""
    found = _structs.get(layout)
    if found is None:
        if len(_structs) >= _MOST_STRUCTS:
            _structs.clear()
        found = _structs[layout] = Struct(layout)
    return found


class NodeContext:
    """The state of a parse in progress, as the engine and the states of a parser see it.

    The states set ``stack`` and ``scratch`` as they like, read the rest, and call the methods.

    A state may take its bytes with `take`, `take_bytes` and `skip`, which move ``pos`` on. If the block does not hold
    them, they end the state; it is entered again, with more bytes, where it began or last emitted a child. So a state
    that takes its bytes changes nothing but by `emit` before it has all of them.
    """

    entered = False
    """Whether a state entered another part in this step."""
    resumable = False
    """Whether the last run ended between two steps, with an error of the source."""
    closed = False
    """Whether the node was closed: nothing follows."""
    state: State | Done = DONE
    """The state to run next."""
    need = 1
    """How many bytes it needs at least."""
    at_end = False
    """Whether the block ends where the input ends."""
    scratch: Any = None
    """Anything else than the ``stack``, for the parser."""
    emitted = 0
    """How many children were emitted so far."""
    jumps = 0
    """How often a state moved backwards."""
    _jump_allowed = False
    _block = b""  # what the engine read …
    _base = 0  # … from here on
    _last: Entry | None = None  # the child emitted last
    pending: tuple[int, Entry] | None = None
    """The child behind which to continue, once it is known where it ends."""
    pending_known = False
    """Whether all is known of that child that can be."""
    fresh: list[Entry] | None = None
    """Receives the entries of the children that are indexed; None: they are not kept."""
    wanted_count: int | None = None
    """Stop after this many children; None: do not stop for that."""
    wanted_key: Key = None
    """Stop at the child with this key …"""
    wanted_occurrence = 0
    """… when it occurs for the n-th time; 0: do not look for a key."""
    answer: int | None = None
    """Number of the child found by key."""
    collected: list[Entry] | None = None
    """Entries that are read again, from child ``collect_from`` to before ``collect_to``; None while indexing."""
    collect_from = collect_to = 0

    def __init__(self, node: Node, index: ChildIndex) -> None:
        self.node = node
        """The node that is parsed."""
        self.result: Services = node.result
        """The tree that the node belongs to."""
        self.data: Data = node.extraction.data
        """What is read: the extraction's data, unless a state entered another part."""
        self.keeps_entries = self.result.parser.state_of_children(node.kind) is None
        """Whether entries of children are kept, not offsets."""
        self.entries_limit = self.result.extraction.session.limits.entries
        """The limit on the number of children."""
        self.index = index
        """Receives the children that are indexed."""
        self.pos = self._mark = node.start  # a state that needs more bytes is entered again at the mark
        """Where the state begins, as an offset of ``data``."""
        around = bounded_by(node)
        self.end = around.end if around.end is not None else node.extraction.end
        """Where the node's bytes end, or those of what holds it while that is unknown; None: with the data."""
        self.stack: list[Any] = []
        """Nesting, for the parser."""
        # What is asked for at each step is found faster in the object than in its class.
        self.entered = self._jump_allowed = False
        self.emitted = self.wanted_occurrence = 0
        self.pending = self.fresh = self.wanted_count = self.answer = self.collected = None

    def enter(self, part: Range) -> int:
        """Continue in another stretch of bytes, of this or other data; return its start, the position for the step."""
        self.data, self.end = part.data, part.end
        self.entered = True
        return part.start

    @property
    def remaining(self) -> int | None:
        """Bytes from ``pos`` to the end of the node or of the data, whichever comes first; None while unknown."""
        size = self.data.size
        end = self.end if size is None else size if self.end is None else min(self.end, size)
        return None if end is None else max(0, end - self.pos)

    def emit(self, entry: Entry) -> None:
        """Make a child visible. Raises `LimitError` above the limit ``entries``."""
        ordinal = self.emitted
        self.emitted += 1
        self._mark, self._last = self.pos, entry
        if self.collected is not None:
            if ordinal >= self.collect_from:
                self.collected.append(entry)
            return
        index = self.index
        if index.count >= self.entries_limit:
            self.result.extraction.session.limits.check(
                "entries", index.count + 1, "the number of children", path=self.node.path
            )
        if self.fresh is not None and len(self.fresh) < MOST_FRESH:
            self.fresh.append(entry)
        if self.keeps_entries:
            index.add_entry(entry)
        elif index.tail is not None:
            index.add_last(entry)
        else:
            index.add(entry.at)
        if self.wanted_occurrence and entry.key == self.wanted_key and type(entry.key) is type(self.wanted_key):
            self.wanted_occurrence -= 1
            if not self.wanted_occurrence:
                self.answer = ordinal

    def emit_many(self, starts: array[int]) -> None:
        """Make the children that begin at ``starts`` visible at once: for kernels that find where many begin.

        Only while children are indexed, by offsets. Raises `LimitError` above the limit ``entries``.
        """
        index = self.index
        assert self.is_indexing and not self.keeps_entries  # noqa: S101, PT018 -- a parser's promise
        if index.count + len(starts) > self.entries_limit:
            count = index.count + len(starts)
            self.result.extraction.session.limits.check("entries", count, "the number of children", path=self.node.path)
        self.emitted += len(starts)
        index.add_many(starts)

    @property
    def is_indexing(self) -> bool:
        """Whether children are indexed now, in contrast to entries that are read again."""
        return self.collected is None and self.index.tail is None

    # -- taking bytes ------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:

        @overload
        def take(self, layout: str) -> tuple[Any, ...]: ...
        @overload
        def take(self, layout: Record) -> Values: ...

    def take(self, layout: str | Record) -> Any:
        """Return the fields of ``layout`` (as `struct` writes it, or a `Record`) at ``pos``, and move behind them.

        Ends the state if the block does not hold them all: it is entered again with them, or the node is cut.
        """
        struct = _structs.get(layout)  # type: ignore[arg-type]
        if struct is None:
            if not isinstance(layout, str):
                at = self._here(layout.size)
                return layout.read(self._block, at, self.pos - layout.size)
            struct = struct_of(layout)
        # `_here`, written out: a tenth of the time of a short state.
        at, size = self.pos - self._base, struct.size
        if at < 0 or size > len(self._block) - at:
            raise NeedMoreError(self._mark, self.pos - self._mark + size)
        self.pos += size
        return struct.unpack_from(self._block, at)

    def take_bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes, and move behind them; ends the state as `take` does.

        Nothing is read for a ``count`` that the node or the data cannot have.
        """
        at = self._here(count)
        return self._block[at : at + count]

    def take_text(self, count: int, what: str = "the text") -> str:
        """Return the next ``count`` bytes as UTF-8. Raises `MalformedError` if they are not."""
        start = self.pos
        return decode_text(self.take_bytes(count), start, what)

    def skip(self, count: int) -> None:
        """Move over ``count`` bytes without reading them; ends the node as cut if it does not have them."""
        self._move(count, self.there(count))

    def _move(self, count: int, got: int) -> None:
        """Move over ``count`` bytes, of which ``got`` exist."""
        if got < count:
            raise NeedMoreError(self.pos + count, 1)
        self.pos += count

    @property
    def is_at_end(self) -> bool:
        """Whether no byte of the node follows. Ends the state, as `take` does, if only the next block can tell.

        To be asked before a state takes anything.
        """
        if self.pos < self._base + len(self._block):
            return False
        if not self.at_end and (self._block or self.pos != self._mark):
            raise NeedMoreError(self._mark, self.pos - self._mark)
        return self.at_end

    def there(self, count: int) -> int:
        """Return how many of the next ``count`` bytes exist in the node, by arithmetic where the size is known."""
        left = self.remaining
        if left is not None:
            return min(count, left)
        got = 0
        while got < count and self.data.available(self.pos + got, min(count - got, _LOOK)):
            got += min(count - got, _LOOK)
        if got < count:
            got += len(self.data.known(self.pos + got, min(count - got, _LOOK)))
        return got

    def emit_record(self, record: Record) -> Values:
        """Emit each field of ``record`` at ``pos`` as a child, and return the values.

        If the input ends inside of the record, the fields before that are emitted, and the node is cut.
        """
        start, got = self.pos, self.there(record.size)
        values = record.read(self.take_bytes(got) + bytes(record.size - got), 0, start)
        for entry in values.entries():
            if entry.end is not None and entry.end <= start + got:
                self.emit(entry)
        self._move(record.size - got, 0)
        return values

    def emit_next(
        self,
        key: Key,
        kind: str,
        count: int,
        value: Any = UNLOADED_VALUE,
        status: Status | None = Status.COMPLETE,
        at: int | None = None,
        note: Any = None,
    ) -> None:
        """Emit a child that is the next ``count`` bytes, and move behind them without reading them.

        If the input ends before, the child is TRUNCATED or MISSING, and the node is cut. Raises `MalformedError` if the
        child would leave the node, though the input goes on. The other arguments are those of `Entry`.
        """
        start, got = self.pos, self.there(count)
        entry = Entry(key, kind, start, start + count, value, status, at=at, note=note)
        if got < count:
            if self._goes_on_behind():
                begin = start if at is None else at
                reason = f"the {kind} node leaves the {self.node.kind} around it"
                raise MalformedError(reason, offset=begin, wanted=count, got=got)
            reason, entry.status = f"the file ends inside the {kind}", cut_status(got)
            entry.finding = Finding("truncated", reason, offset=start, wanted=count, got=got)
        self.emit(entry)
        self._move(count, got)
        self._mark = self.pos

    def _here(self, count: int) -> int:
        """Return where the next ``count`` bytes are in the block, and move behind them."""
        at = self.pos - self._base
        if at < 0 or count > len(self._block) - at:
            raise NeedMoreError(self._mark, self.pos - self._mark + count)
        self.pos += count
        return at

    def emit_text(
        self,
        key: Key,
        count: int,
        at: int | None = None,
        kind: str = "text",
        most: int = SHORT_TEXT,
        is_bytes: Callable[[], bool] | None = None,
    ) -> None:
        """Emit a text, the next ``count`` bytes: decoded if there are at most ``most``, else passed over.

        A text that is not UTF-8 is DAMAGED, and nothing around it; unless ``is_bytes``, asked then, says that it is
        bytes.
        """
        if count > most or self.there(count) < count:
            self.emit_next(key, kind, count, at=at)
            return
        start = self.pos
        raw = self.take_bytes(count)
        entry = Entry(key, kind, start, start + count, at=at)
        try:
            entry.value = decode_text(raw, start)
        except MalformedError as error:
            if is_bytes is not None and is_bytes():
                entry.value = raw
            else:
                entry.status, entry.finding = Status.DAMAGED, Finding("malformed", error.reason, offset=error.offset)
        self.emit(entry)

    def _goes_on_behind(self) -> bool:
        """Say whether the input goes on behind the node: what does not fit into it contradicts it, and is not cut."""
        node, size = bounded_by(self.node), self.data.size
        if node.parent is None or node.end is None or node.known_status is Status.TRUNCATED:
            return False
        return size is None or node.end <= size

    def emit_numbers(self, key: Key, layout: str, count: int, at: int | None = None, kind: str = "array") -> None:
        """Emit a list of ``count`` numbers, the next bytes, and move behind it; ``layout`` as `struct` writes it.

        Its children are found by arithmetic, whatever their number: nothing of it is read, or indexed.
        """
        numbers = NumberArray(layout, count)
        self.emit_next(key, kind, numbers.nbytes, at=at, note=numbers)

    def behind_child(self, state: State) -> Step:
        """Return the step behind the child emitted last, whose end is unknown: the child is read to find it.

        The engine does that once it must, with the child's own states, and keeps what it learns for the child.
        """
        self.index.learns = True
        if self._last is not None:
            self.pending, self.pending_known = (self.emitted - 1, self._last), self._last.end is not None
        return self.pos, state, 0

    def jump_back(self) -> None:
        """Declare that the next position returned lies before ``pos``. Raises `MalformedError` after too many."""
        self.jumps += 1
        if self.jumps > MAX_JUMPS_BACK:
            raise MalformedError("too many backward jumps", offset=self.pos)
        self._jump_allowed = True

    @property
    def satisfied(self) -> bool:
        """Whether the parse has found what was asked for."""
        if self.answer is not None:
            return True
        if self.collected is not None:
            return self.emitted >= self.collect_to
        return self.wanted_count is not None and self.index.count >= self.wanted_count


def decode_text(raw: bytes, start: int, what: str = "the text") -> str:
    """Return ``raw``, which begins at offset ``start``, as UTF-8. Raises `MalformedError` if it is not."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"{what} is not UTF-8", offset=start + error.start) from error


def bounded_by(node: Node) -> Node:
    """Return the nearest node, ``node`` itself or one around it, that is known to end somewhere; else the root."""
    while node.end is None and node.parent is not None:
        node = node.parent
    return node


# -- `Record`: fixed fields, one behind the other, declared once: taken with `NodeContext.take`, shown as entries ------

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
        self.size = struct_of("<" + layout.lstrip(_ORDERS)).size
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
        self._struct = struct_of(order + "".join(field.layout.lstrip(_ORDERS) for field in fields))
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
        """Return the entries ``[first, first + count)``, made from their bytes; of those in a gap, their place."""
        size, layout = self.field.size, self.field.layout
        order, code = (layout[0], layout[1:]) if len(layout) > 1 else ("<", layout)
        count, start = max(0, min(count, index.count - first)), node.start + first * size
        raw, unknown = node.extraction.data.read_known(start, count * size)
        lost = Stretches((at, at + length) for at, length in unknown)
        if len(raw) < count * size:  # a gap without end
            lost.add(start + len(raw), start + count * size)
            raw += bytes(count * size - len(raw))
        values = unpack_from(f"{order}{count}{code}", raw)
        places = range(start, start + count * size, size)
        found = [Entry(None, self.field.kind, at, at + size, value) for at, value in zip(places, values, strict=True)]
        for entry in found if len(lost) else ():
            known = lost.without(entry.start, entry.start + size)
            if known != [(entry.start, entry.start + size)]:
                entry.value, entry.status = UNLOADED_VALUE, cut_status(False, damaged=bool(known))
        return found
