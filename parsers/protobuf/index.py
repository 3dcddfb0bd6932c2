"""Where the fields of a message are: the result of one pass over its parts.

A message is made of *pieces*, in order: ranges of bytes, each a serialized message, and *overlay entries*, which
another source (the chunks of a ``.cpb``) adds at its place. Parsing the concatenation of the ranges merges them, and
the last value of a scalar wins: that is protobuf's own rule (protobuf.dev, "Encoding"). A `PartScan` holds for one
range where the fields of each number begin.
"""

from __future__ import annotations

from array import array
from collections import namedtuple

from pparse.data.base import Range, up_to_page
from pparse.errors import EndOfDataError, GapError, MalformedError
from pparse.kernels.wire import (
    FIXED32,
    FIXED64,
    LEN,
    PADDING,
    SLACK,
    START_GROUP,
    VARINT,
    leave_groups,
    no_field,
    read_length,
    read_tag,
    scan,
    skip_varint,
)
from pparse.tree.index import IndexNote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final, TypeAlias

    from pparse.data.base import Data
    from pparse.protobuf.schema import FieldType, MessageType
    from pparse.tree.index import KeptBlock

    Piece: TypeAlias = "Range | OverlayEntry | Lost"
    # The number of a field in its list, and begin and end of its payload.
    Payload: TypeAlias = tuple[int, int, int]
    # Contribution to a field: occurrences in a part, or the data of an overlay entry.
    Contribution: TypeAlias = "tuple[PartScan, Occurrences] | OverlayField"

# -- fields read again, at the offsets that a scan found ---------------------------------------------------------------

_FIRST_WINDOW: Final = 4 << 10
_LAST_WINDOW: Final = 64 << 10
NEAR: Final = 1 << 10
"""What begins so few bytes behind a block is read as if it followed it: fields so small come by the thousands."""


class WireField:
    """One field of a part: its ``tag``, its offset ``begin``, its payload ``[start, end)``, and the ``next`` offset.

    ``end`` may lie beyond the part: the field is truncated, or its length is wrong.
    """

    __slots__ = ("begin", "end", "next", "start", "tag")

    def __init__(self, tag: int, begin: int, start: int, end: int, next: int) -> None:
        self.tag = tag
        self.begin = begin
        self.start = start
        self.end = end
        self.next = next


class WireWindow:
    """The latest bytes of a part, for mostly sequential reading; ``first`` bytes after a jump, then more.

    Fields are read at their place in the padded block. Cut out of a `pparse.data.window.Window`, each as bytes of its
    own, they cost `ls` of 6,000 initializers 11% more instructions.
    """

    __slots__ = ("base", "block", "data", "end", "first", "heads", "last", "size", "step")

    def __init__(
        self, data: Data, end: int, first: int = _FIRST_WINDOW, heads: Mapping[int, bytes] | None = None
    ) -> None:
        self.data = data
        self.end = end
        self.base = 0
        self.block = b""
        self.size = 0  # size of the block without padding
        self.last = False  # whether no bytes follow
        self.first = self.step = first
        self.heads = heads or {}  # bytes that are known, by offset

    def at(self, offset: int) -> int:
        """Return the index in ``block`` of the byte at ``offset``; at least 20 bytes follow (zeros at the end)."""
        index = offset - self.base
        if 0 <= index <= self.size - SLACK or (0 <= index < self.size and self.base + self.size >= self.end):
            return index
        if 0 < index <= self.size + NEAR:
            self.step = min(4 * self.step, _LAST_WINDOW)
            self._fill(offset, self.step)
            return 0
        self.step = self.first
        head = self.heads.get(offset)
        if head is None:
            self._fill(offset, up_to_page(offset, self.first))
        else:
            self.base, self.block, self.size, self.last = offset, head + PADDING, len(head), False
        return 0

    def take(self, base: int, block: bytes) -> None:
        """Use bytes that were already read: everything from ``base`` on."""
        self.base, self.block, self.size, self.last = base, block + PADDING, len(block), True

    def _fill(self, offset: int, length: int) -> None:
        length = min(length, self.end - offset)
        block = self.data.known(offset, length) if length > 0 else b""
        if not block:
            raise EndOfDataError("the message ends here", offset=offset, source=self.data.name)
        self.base = offset
        self.size = len(block)
        self.last = len(block) < length or offset + length >= self.end
        self.block = block + PADDING

    def field(self, offset: int) -> WireField:
        """Return the field at ``offset``. Raise `MalformedError`, `EndOfDataError`."""
        base = self.base
        at = offset - base
        if not 0 <= at <= self.size - SLACK:
            at = self.at(offset)
            base = self.base
        block = self.block
        tag, length = block[at], block[at + 1]
        # Nearly all of a large message: a tag of one byte, and a length of one or two.
        if tag & 7 == LEN and 8 <= tag < 0x80 and (length < 0x80 or block[at + 2] < 0x80) and at + 2 < self.size:
            start = offset + 2
            if length >= 0x80:
                length += (block[at + 2] << 7) - 0x80
                start += 1
            end = start + length
            return WireField(tag, offset, start, end, end)
        tag, pos = read_tag(block, at, base)
        wire = tag & 7
        if tag < 8:
            raise no_field(tag, offset)
        if wire == LEN:
            length, pos = read_length(block, pos, base)
            start = base + pos
            self._check_head(offset, pos)
            return WireField(tag, offset, start, start + length, start + length)
        start = base + pos
        self._check_head(offset, pos)
        if wire == VARINT:
            end = base + skip_varint(block, pos, base)
        elif wire == FIXED64:
            end = start + 8
        elif wire == FIXED32:
            end = start + 4
        elif wire == START_GROUP:
            return self._group(tag, offset, start)
        else:
            raise MalformedError("not a valid field", offset=offset, source=self.data.name)
        return WireField(tag, offset, start, end, end)

    def _check_head(self, offset: int, pos: int) -> None:
        """Raise `EndOfDataError` for a tag or length that ends in the padding: the bytes end inside it."""
        if pos > self.size:
            raise EndOfDataError("the head of a field is truncated", offset=offset, source=self.data.name)

    def _group(self, tag: int, offset: int, start: int) -> WireField:
        groups = [tag >> 3]
        pos = last = start
        while groups and pos < self.end:
            try:
                at = self.at(pos)
            except EndOfDataError:
                break
            stop = self.size if self.last else self.size - SLACK + 1
            if at >= stop:  # fewer bytes were read than expected
                break
            try:
                after, begin = leave_groups(self.block, at, stop, groups, self.base)
            except MalformedError as error:
                head = self.block[(error.offset or 0) - self.base : stop] if self.last else b""
                if not head or min(head) < 0x80:
                    raise
                break  # a tag that continues in the padding: the bytes end inside it
            pos, last = self.base + after, self.base + begin
        end = last if not groups else max(pos, self.end + 1)  # a group without an end is truncated
        return WireField(tag, offset, start, end, pos if not groups else end)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes ``[start, end)``. Raise `EndOfDataError`, `GapError`."""
        index = start - self.base
        if index >= 0 and end - self.base <= self.size:
            return self.block[index : end - self.base]

        return self.data.read_exact(start, end - start)


# -- what a message is made of, and the scan of its parts --------------------------------------------------------------

DENSE: Final = 100_000
OFTEN: Final = 4_096
STRIDE: Final = 64
# Parts up to so many bytes are taken out of a block that was read already.
_SMALL_PART: Final = 4096
# Memory of one `Occurrences` without its offsets.
_COST: Final = 400
# What is kept of a large field, and of how many: up to a megabyte.
_HEAD: Final = 192
_MOST_HEADS: Final = 2_000


class OverlayEntry:
    """The data that another source adds to a message, field by field; see `pparse.parsers.cpb.overlay`."""

    __slots__ = ()

    def numbers(self) -> Sequence[int]:
        """Return the numbers of the fields with added data, each once, ascending."""
        raise NotImplementedError

    def field(self, number: int) -> OverlayField:
        """Return the data added to one field."""
        raise NotImplementedError


class ChunkRange(Range):
    """A piece that is a chunk of a ``.cpb``, with its ``index`` and ``type`` (0 unset, 1 message, 2 bytes)."""

    __slots__ = ("index", "type")

    def __init__(self, data: Data, start: int, end: int, index: int, type: int) -> None:
        super().__init__(data, start, end)
        self.index = index
        self.type = type

    def why_not(self, *, message: bool) -> str | None:
        """Return why it is not what belongs in its place: the chunk is declared to be of another kind."""
        if self.type in (0, 1 if message else 2):
            return None
        said = {1: "a message", 2: "bytes"}.get(self.type, f"of type {self.type}")
        return f"chunk {self.index} is declared as {said}, but {'a message' if message else 'a scalar'} belongs here"


class Lost(namedtuple("Lost", "reason error fault", defaults=(None,))):
    """A piece that is lost: the ``reason``, the ``error`` if there is one, and the kind of ``fault``."""

    __slots__ = ()


class OverlayField:
    """The data that another source (``owner``) adds to one field: as a whole, by index, or by key; by itself, none."""

    __slots__ = ("owner",)

    def __init__(self, owner: OverlayEntry) -> None:
        self.owner = owner

    def whole(self, *, scalar: bool = False) -> list[Piece]:
        """Return the pieces for the field as a whole (one that is not repeated).

        For a ``scalar`` these are its values, of which the last wins. An overlay, if there is one, comes last: it means
        that chunks go below the scalar, which is an error.
        """
        return []

    def claims(self) -> int:
        """Return how many sources there are for the field as a whole."""
        return len(self.whole(scalar=True))

    def elements(self) -> OverlayField:
        """Return this for a field known to be a list, in which a numeric key means an index."""
        return self

    def indices(self) -> Sequence[int]:
        """Return the indices of elements with added data, each once, ascending."""
        return ()

    def at_index(self, index: int, *, scalar: bool = False) -> list[Piece]:
        """Return the pieces for one element, as `whole`."""
        return []

    def keys(self) -> Sequence[Any]:
        """Return the map keys with added data, each once, in order of occurrence."""
        return ()

    def at_key(self, key: Any, *, scalar: bool = False) -> list[Piece]:
        """Return the pieces for the value at one key, as `whole`."""
        return []


class Occurrences:
    """Where the fields of one number begin in one part: each up to 100,000, then every 64th."""

    __slots__ = ("_before", "count", "last", "offsets", "stride")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.count = 0
        self.stride = 1
        self.last = -1
        self._before = -1

    def add(self, base: int, begins: list[int]) -> None:
        """Append fields that begin at ``base`` plus each of ``begins``."""
        kept = begins if self.stride == 1 else begins[-self.count % STRIDE :: STRIDE]
        self.offsets.extend([base + begin for begin in kept] if base else kept)
        self.count += len(begins)
        self._before = base + begins[-2] if len(begins) > 1 else self.last
        self.last = base + begins[-1]
        if self.count > DENSE:
            self.thin_out()

    def thin_out(self) -> None:
        """Keep every 64th offset only."""
        if self.stride == 1:
            self.offsets = self.offsets[::STRIDE]
            self.stride = STRIDE

    def forget_last(self) -> None:
        """Remove the last one."""
        self.count -= 1
        if not self.count % self.stride:
            self.offsets.pop()
        self.last = self._before if self.count else -1

    def behind(self, offset: int) -> Occurrences:
        """Return those that begin after ``offset``; all if there are more than 100,000, since these are not merged."""
        if self.stride != 1:
            return self
        found = Occurrences()
        found.add(0, [begin for begin in self.offsets if begin > offset])
        return found


class _ListsByTag(dict[int, list[int]]):
    """Lists by tag. Tags of the same field (packed and not packed) share a list, which keeps the order."""

    __slots__ = ("scan",)

    def __init__(self, scan: PartScan) -> None:
        self.scan = scan

    def __missing__(self, tag: int) -> list[int]:
        scan = self.scan
        key = scan.key_of(tag)
        begins = scan.fresh.get(key)
        if begins is None:
            begins = scan.fresh[key] = []
            scan.slots[key] = Occurrences()
        self[tag] = begins
        return begins


class PartScan:
    """The fields of one part of a message.

    ``slots`` maps a *key* to `Occurrences`. The key is the field's number; or ``~tag`` if the wire type is not that of
    the schema (protobuf then keeps it as an unknown field).
    """

    __slots__ = ("found", "fresh", "groups", "heads", "part", "slots", "type")

    def __init__(self, part: Range, type: MessageType | None) -> None:
        self.part = part
        self.type = type
        self.slots: dict[int, Occurrences] = {}
        self.fresh: dict[int, list[int]] = {}
        self.groups: list[int] = []
        self.found = _ListsByTag(self)
        self.heads: dict[int, bytes] = {}
        """The first bytes of large fields, by offset: who asks what they are reads nothing again."""

    def keep_head(self, offset: int, block: bytes) -> None:
        """Keep the first bytes of the field that begins at ``offset`` with ``block``, unless there are many already."""
        if len(self.heads) < _MOST_HEADS:
            self.heads[offset] = block[:_HEAD]

    def key_of(self, tag: int) -> int:
        """Return the key of the slot that a field of this tag goes to."""
        if self.type is None:
            return tag >> 3
        field = self.type.fields.get(tag >> 3)
        return tag >> 3 if field is None or accepts(field, tag & 7) else ~tag

    def has_packed(self, key: int) -> bool:
        """Return whether some fields of a slot of numbers are length-delimited."""
        return any(self.key_of(tag) == key and tag & 7 == LEN for tag in self.found)

    def scan(self, block: bytes, pos: int, *, final: bool) -> int:
        """Add the fields that begin in the block at ``pos`` (``final``: nothing follows it); return where it goes on.

        Raise `MalformedError` if something is not a field.
        """
        stop = len(block) if final else len(block) - SLACK + 1
        try:
            after, _ = scan(block + PADDING if final else block, 0, stop, self.found, self.groups, pos)
        finally:
            self.complete(pos)
        return pos + after

    def complete(self, base: int) -> None:
        """Add the fields that `wire.scan` found in a block at ``base``."""
        for key, begins in self.fresh.items():
            if begins:
                self.slots[key].add(base, begins)
                begins.clear()

    def forget(self) -> None:
        """Forget the fields that were found since `complete` was called, when no group was open."""
        self.groups.clear()
        self.found.clear()
        for key, begins in list(self.fresh.items()):
            begins.clear()
            if not self.slots[key].count:
                del self.slots[key], self.fresh[key]

    def drop(self, offset: int) -> None:
        """Forget the field that begins at ``offset``, the last of all."""
        for key, slot in self.slots.items():
            if slot.last == offset:
                slot.forget_last()
                if not slot.count:
                    del self.slots[key], self.fresh[key]
                return

    @property
    def memory(self) -> int:
        """Approximate memory, in bytes."""
        heads = (_HEAD + _COST) * len(self.heads)
        return heads + sum(_COST + 8 * len(slot.offsets) for slot in self.slots.values())

    def thin_out(self) -> None:
        """Keep fewer offsets of fields that occur often; the others may have to be merged."""
        for slot in self.slots.values():
            if slot.count > OFTEN:
                slot.thin_out()

    def window(self, kept: KeptBlock | None = None) -> WireWindow:
        """Return a window on the part's bytes; on those of ``kept``, if it has all of a small part."""
        part = self.part
        window = WireWindow(part.data, part.end, heads=self.heads)
        held = kept.take(part.data, part.start) if kept is not None and len(part) <= _SMALL_PART else None
        if held is not None and part.end <= held[0] + len(held[1]):
            window.take(part.start, held[1][part.start - held[0] : part.end - held[0]])
        return window

    def fields(
        self, key: int, first: int = 0, window: WireWindow | None = None, slot: Occurrences | None = None
    ) -> Iterator[WireField]:
        """Return the fields of a slot (or of ``slot``, a part of it) from number ``first`` on, read as they come."""
        slot = slot or self.slots[key]
        window = window or self.window()
        if slot.stride == 1:
            offsets = slot.offsets
            return map(window.field, map(offsets.__getitem__, range(first, len(offsets))))
        return self._thinned(key, first, window, slot)

    def payloads(self, key: int, window: WireWindow, first: int = 0) -> Iterator[Payload]:
        """Yield what `fields` does from number ``first`` on, as far as most want to know it: number, begin and end.

        Ends before one whose own head is cut, or lost: the entry of that tells.
        """
        slot, stride = self.slots[key], self.slots[key].stride
        known, number = -1, first - first % stride
        try:
            while number < slot.count:
                offset, stop = slot.offsets[number // stride], min(number + stride, slot.count)
                while number < stop:
                    at = offset - window.base
                    if 0 <= at <= window.size - SLACK:  # as `WireWindow.field`, whose object takes as long to make
                        tag, length, more = window.block[at : at + 3]
                        if tag == known and (length < 0x80 or more < 0x80):
                            start, end = offset + 2, offset + 2 + length
                            if length >= 0x80:
                                start, end = offset + 3, end - 0x7F + (more << 7)
                            if number >= first:
                                yield number, start, end
                            number, offset = number + 1, end
                            continue
                    field = window.field(offset)
                    if stride == 1 or self.key_of(field.tag) == key:
                        known = field.tag if field.tag < 0x80 and field.tag & 7 == LEN else -1
                        if number >= first:
                            yield number, field.start, field.end
                        number += 1
                    offset = field.next
        except (MalformedError, EndOfDataError, GapError):
            return

    def _thinned(self, key: int, first: int, window: WireWindow, slot: Occurrences) -> Iterator[WireField]:
        ordinal = first - first % STRIDE
        while ordinal < slot.count:
            offset = slot.offsets[ordinal // STRIDE]
            stop = min(ordinal + STRIDE, slot.count)
            while ordinal < stop:
                field = window.field(offset)
                if self.key_of(field.tag) == key:
                    if ordinal >= first:
                        yield field
                    ordinal += 1
                offset = field.next

    def groups_of(self, key: int, window: WireWindow | None = None) -> Iterator[tuple[int, int, int, int]]:
        """Yield the fields of a slot in groups of up to 64: number of the first, count, and ``[low, high)``.

        Only the last field of a group is read; other fields may lie between those of a group.
        """
        slot = self.slots[key]
        step = STRIDE // slot.stride
        for first in range(0, slot.count, STRIDE):
            place = first // slot.stride
            ends = place + step < len(slot.offsets)
            high = slot.offsets[place + step] if ends else self._end_of_last(key, window)
            yield first, min(STRIDE, slot.count - first), slot.offsets[place], high

    def _end_of_last(self, key: int, window: WireWindow | None) -> int:
        try:
            return self.last(key, window).next
        except (EndOfDataError, GapError, MalformedError):
            return self.part.end  # its head is cut, or lost: it may be that long

    def last(self, key: int, window: WireWindow | None = None) -> WireField:
        """Return the last field of a slot."""
        return (window or self.window()).field(self.slots[key].last)


def accepts(field: FieldType, wire: int) -> bool:
    """Say whether a field of the schema may have that wire type (packed or not, if it is repeated)."""
    if field.wire_type == wire:
        return True
    return wire == LEN and field.repeated and field.wire_type in (VARINT, FIXED32, FIXED64)


class Origin:
    """The origin of a node: its ``field`` and message ``type`` (None without a schema), and its bytes.

    ``pieces`` for a message, ``contributions`` (to the slot ``key``) for a list or map. ``text``: the value is a scalar
    in a chunk. ``trail``: the field numbers that lead here, if there is no schema.
    """

    __slots__ = ("contributions", "field", "key", "pieces", "text", "trail", "type")

    def __init__(
        self,
        field: FieldType | None,
        type: MessageType | None = None,
        *,
        pieces: Sequence[Piece] = (),
        contributions: Sequence[Contribution] = (),
        key: int = 0,
        text: bool = False,
        trail: tuple[int, ...] = (),
    ) -> None:
        self.field = field
        self.type = type
        self.pieces = pieces
        self.contributions = contributions
        self.key = key
        self.text = text
        self.trail = trail


class MessageIndex(IndexNote):
    """The result of scanning all parts of a message, in the order of the parts."""

    __slots__ = ("_counted", "_memory", "kept", "misfits", "parts", "queue")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.queue = list(reversed(pieces))
        self.parts: list[PartScan | OverlayEntry] = []
        self._counted = self._memory = 0
        self.misfits: set[int] = set()  # numbers of fields whose wire type is not that of the schema
        self.kept: tuple[Range, bytes] | None = None  # the last block, which holds all of a small message

    @property
    def memory(self) -> int:
        """Approximate memory, in bytes, counted when parts are added. All parts share the limit for dense indexes."""
        parts = self.parts
        while self._counted < len(parts) - 1:
            part = parts[self._counted]
            if isinstance(part, PartScan):
                if self._memory > 8 * DENSE:
                    part.thin_out()
                self._memory += part.memory
            self._counted += 1
        last = parts[-1] if parts else None
        return self._memory + (last.memory if isinstance(last, PartScan) else 0)

    def window(self, part: PartScan) -> WireWindow:
        """Return a window on a part; on the block of the scan, if that holds all of it."""
        window = part.window()
        if self.kept is not None and self.kept[0] is part.part:
            window.take(part.part.start, self.kept[1])
        return window

    def contributions(self, type: MessageType | None) -> dict[int, list[Contribution]]:
        """Return what each field is made of, by the key of its slot, in order of occurrence.

        Of the members of a oneof, only the last one set is included.
        """
        found: dict[int, list[Contribution]] = {}
        for part in self.parts:
            if isinstance(part, PartScan):
                for key, slot in part.slots.items():
                    if key < 0:
                        self.misfits.add(~key >> 3)
                    found.setdefault(key, []).append((part, slot))
            elif isinstance(part, OverlayEntry):
                for number in part.numbers():
                    found.setdefault(number, []).append(part.field(number))
        if type is not None and len(found) > 1:
            groups: dict[str, list[int]] = {}
            for key in found:
                field = type.fields.get(key) if key >= 0 else None
                if field is not None and field.oneof is not None:
                    groups.setdefault(field.oneof, []).append(key)
            for keys in groups.values():
                if len(keys) > 1:
                    self._choose_oneof(keys, found)
        return found

    def _choose_oneof(self, keys: list[int], found: dict[int, list[Contribution]]) -> None:
        """Drop the members of a oneof that a later one clears, and earlier values of the member that is kept."""
        order = {id(part): number for number, part in enumerate(self.parts)}

        def place(key: int, item: Contribution) -> tuple[int, int]:
            if isinstance(item, OverlayField):  # overlays apply in the order of field numbers
                return order[id(item.owner)], key
            return order[id(item[0])], item[1].last

        latest = {key: place(key, found[key][-1]) for key in keys}
        winner = max(keys, key=latest.__getitem__)
        after = max(latest[key] for key in keys if key != winner)
        kept: list[Contribution] = []
        for item in found[winner]:
            if place(winner, item) > after:
                number = order[id(item[0])] if not isinstance(item, OverlayField) else -1
                kept.append((item[0], item[1].behind(after[1])) if number == after[0] else item)  # type: ignore[index]
        for key in keys:
            if key != winner:
                del found[key]
        found[winner] = kept
