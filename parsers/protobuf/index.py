"""Where the fields of a message are: what one pass over its parts leaves behind.

A message is made of *pieces*, in order: ranges of bytes, each a serialized message, and *overlay entries*, what another
source (the chunks of a ``.cpb``) adds at its place. Parsing the concatenation of the ranges merges them, the last of a
scalar wins: that is protobuf's own rule (protobuf.dev, "Encoding"). A `PartScan` says for one range where the fields of
each number begin.
"""

from __future__ import annotations

from array import array

from pparse.data.reader import Range
from pparse.errors import MalformedError
from pparse.kernels.wire import FIXED32, FIXED64, LEN, VARINT
from pparse.parsers.protobuf.window import Field, Window
from pparse.tree.index import IndexNote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final, TypeAlias

    from pparse.data.base import Data
    from pparse.errors import Fault, PparseError
    from pparse.protobuf.schema import FieldType, MessageType

    Piece: TypeAlias = "Range | OverlayEntry | Lost"
    # Contribution to a field: occurrences in a part, or what an overlay entry has for it.
    Contribution: TypeAlias = "tuple[PartScan, Occurrences] | OverlayField"

DENSE: Final = 100_000
OFTEN: Final = 4_096
STRIDE: Final = 64
# What one `Occurrences` costs beside its offsets.
_COST: Final = 400


class OverlayEntry:
    """What another source adds to a message, field by field; see `pparse.parsers.cpb.overlay`."""

    __slots__ = ()

    def numbers(self) -> Sequence[int]:
        """Return the numbers of the fields that something is added to, each once, ascending."""
        raise NotImplementedError

    def field(self, number: int) -> OverlayField:
        """Return what is added to one field."""
        raise NotImplementedError


class ChunkRange(Range):
    """A piece that is a chunk of its own: its ``index`` and ``type`` (0 unset, 1 message, 2 bytes), of a ``.cpb``."""

    __slots__ = ("index", "type")

    def __init__(self, data: Data, start: int, end: int, index: int, type: int) -> None:
        super().__init__(data, start, end)
        self.index = index
        self.type = type

    def check(self, *, message: bool) -> None:
        """Raise `MalformedError` if the chunk is said to be of another kind."""
        if self.type not in (0, 1 if message else 2):
            said = {1: "a message", 2: "bytes"}.get(self.type, f"of type {self.type}")
            wanted = "a message" if message else "a scalar"
            raise MalformedError(f"chunk {self.index} is said to be {said}, where {wanted} belongs")


class Lost:
    """A piece that cannot be had: ``reason``, what kind of ``fault`` it is, and the ``error`` if that is it."""

    __slots__ = ("error", "fault", "reason")

    def __init__(self, reason: str, error: PparseError | None, fault: Fault | None = None) -> None:
        self.reason = reason
        self.error = error
        self.fault = fault


class OverlayField:
    """What another source (``owner``) adds to one field: as a whole, by index, or by key."""

    __slots__ = ("owner",)

    owner: OverlayEntry

    def whole(self, *, scalar: bool = False) -> list[Piece]:
        """Return the pieces for the field as such (one that is not repeated).

        Of a field that is said to be a ``scalar`` these are its values, of which the last wins; a overlay, if there is
        one, comes last: something is added below the scalar, where nothing can be.
        """
        raise NotImplementedError

    def claims(self) -> int:
        """Return how many sources there are for the field as such."""
        return len(self.whole(scalar=True))

    def elements(self) -> OverlayField:
        """Return the same for a field that is known to be a list: what is by a number as key is by index there."""
        return self

    def indices(self) -> Sequence[int]:
        """Return the indices of elements that something is added to, each once, ascending."""
        raise NotImplementedError

    def at_index(self, index: int, *, scalar: bool = False) -> list[Piece]:
        """Return the pieces for one element, as `whole`."""
        raise NotImplementedError

    def keys(self) -> Sequence[Any]:
        """Return the map keys that something is added to, each once, in order of mention."""
        raise NotImplementedError

    def at_key(self, key: Any, *, scalar: bool = False) -> list[Piece]:
        """Return the pieces for the value at one key, as `whole`."""
        raise NotImplementedError


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
        if self.stride == 1:
            if base:
                self.offsets.extend([base + begin for begin in begins])
            else:
                self.offsets.extend(begins)
        else:
            self.offsets.extend([base + begin for begin in begins[-self.count % STRIDE :: STRIDE]])
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
        """Take the last one out again."""
        self.count -= 1
        if not self.count % self.stride:
            self.offsets.pop()
        self.last = self._before if self.count else -1

    def behind(self, offset: int) -> Occurrences:
        """Return those that begin behind ``offset``; of more than 100,000, which nobody merges, all."""
        if self.stride != 1:
            return self
        found = Occurrences()
        found.add(0, [begin for begin in self.offsets if begin > offset])
        return found


class _Found(dict[int, list[int]]):
    """Lists by tag. Tags that mean the same field (packed and not) share a list, so that order is kept."""

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
    """What is known of one part of a message: the fields in it.

    ``slots`` maps a *key* to `Occurrences`: the field's number, or, where a field's wire type is not the one that the
    schema wants (protobuf keeps it as an unknown field then), ``~tag``.
    """

    __slots__ = ("found", "fresh", "groups", "part", "slots", "type")

    def __init__(self, part: Range, type: MessageType | None) -> None:
        self.part = part
        self.type = type
        self.slots: dict[int, Occurrences] = {}
        self.fresh: dict[int, list[int]] = {}
        self.groups: list[int] = []
        self.found = _Found(self)

    def key_of(self, tag: int) -> int:
        """Return the key of the slot that a field of this tag goes to."""
        if self.type is None:
            return tag >> 3
        field = self.type.fields.get(tag >> 3)
        return tag >> 3 if field is None or accepts(field, tag & 7) else ~tag

    def complete(self, base: int) -> None:
        """Take over what `wire.scan` found in a block that begins at ``base``."""
        for key, begins in self.fresh.items():
            if begins:
                self.slots[key].add(base, begins)
                begins.clear()

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
        """Bytes held, about."""
        return sum(_COST + 8 * len(slot.offsets) for slot in self.slots.values())

    def thin_out(self) -> None:
        """Keep fewer offsets of fields that occur often: of others there may be some to be merged."""
        for slot in self.slots.values():
            if slot.count > OFTEN:
                slot.thin_out()

    def window(self) -> Window:
        """Return a window on the part's bytes."""
        return Window(self.part.data, self.part.end)

    def fields(
        self, key: int, first: int = 0, window: Window | None = None, slot: Occurrences | None = None
    ) -> Iterator[Field]:
        """Yield the fields of a slot (or of ``slot``, some of it) from number ``first`` on, each read at its place."""
        slot = slot or self.slots[key]
        window = window or self.window()
        if slot.stride == 1:
            offsets = slot.offsets
            for number in range(first, len(offsets)):
                yield window.field(offsets[number])
            return
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

    def groups_of(self, key: int, window: Window | None = None) -> Iterator[tuple[int, int, int, int]]:
        """Yield the fields of a slot in groups of up to 64: their first number, how many, and ``[low, high)``.

        Of the bytes only the last field is looked at; other fields may stand between those of a group.
        """
        slot = self.slots[key]
        step = STRIDE // slot.stride
        for first in range(0, slot.count, STRIDE):
            place = first // slot.stride
            ends = place + step < len(slot.offsets)
            high = slot.offsets[place + step] if ends else self.last(key, window).next
            yield first, min(STRIDE, slot.count - first), slot.offsets[place], high

    def last(self, key: int, window: Window | None = None) -> Field:
        """Return the last field of a slot."""
        return (window or self.window()).field(self.slots[key].last)


def accepts(field: FieldType, wire: int) -> bool:
    """Say whether a field of the schema is written with that wire type (packed or not, where it is repeated)."""
    if field.wire_type == wire:
        return True
    return wire == LEN and field.repeated and field.wire_type in (VARINT, FIXED32, FIXED64)


class Origin:
    """What a node is made of: its ``field`` and message ``type`` (None where no schema knows), and its bytes.

    ``pieces`` for a message, ``contributions`` (to the slot ``key``) for a list or map; ``text``: a scalar that a chunk
    holds; ``trail``: the field numbers that lead here, where no schema knows names.
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
    """What a scan of all parts of a message found, in the order of the parts."""

    __slots__ = ("_counted", "_memory", "kept", "misfits", "parts", "queue")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.queue = list(reversed(pieces))
        self.parts: list[PartScan | OverlayEntry] = []
        self._counted = self._memory = 0
        self.misfits: set[int] = set()  # numbers of fields whose wire type is not the schema's
        self.kept: tuple[Range, bytes] | None = None  # the last block, which for small messages holds all of it

    @property
    def memory(self) -> int:
        """Bytes held, about; counted part by part as they are added. All parts share what may be dense."""
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

    def contributions(self, type: MessageType | None) -> dict[int, list[Contribution]]:
        """Return what each field is made of, by the key of its slot, in order of appearance.

        Of the members of a oneof only the one that was set last is there.
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
        """Setting a member of a oneof clears the others: drop those, and what was set before the last of them."""
        order = {id(part): number for number, part in enumerate(self.parts)}

        def place(key: int, item: Contribution) -> tuple[int, int]:
            if isinstance(item, OverlayField):  # applied in the order of field numbers
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
