"""The elements of a repeated field: their part and offset, packed or not, and what overlay entries add to them.

A list is a sequence of *segments*. Elements encoded one by one are a `Run` (the field's `Occurrences`), packed numbers
a `_Packed`. Elements that only overlay entries make are `_New`. A `_Gone` is one element in place of those lost by
damage.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import chain, islice, product

from pparse.data.base import Range, blocks
from pparse.errors import PASSING, EndOfDataError, GapError, LimitError, MalformedError, PparseError
from pparse.findings import Status
from pparse.kernels.packed import count_varints, varint_checkpoints
from pparse.kernels.wire import LEN, read_value
from pparse.lazy import lazy_pattern
from pparse.parsers.protobuf.index import Origin, OverlayField, WireField, WireWindow, accepts
from pparse.parsers.protobuf.resumption import LostElement
from pparse.parsers.protobuf.values import decode, fixed_size, is_message, named, number_of, scalar_kind
from pparse.tree.entry import Entry
from pparse.tree.index import IndexNote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final

    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.parsers.protobuf.index import PartScan, Payload, Piece
    from pparse.protobuf.schema import FieldType

# The offset of every 1,024th packed varint is remembered.
_PACKED_STRIDE: Final = 1_024
_BLOCK: Final = 64 << 10
CONTINUED: Final = bytes(range(0x80, 0x100))
"""All bytes of a varint but its last; ten of these are too many."""
_TOO_LONG: Final = lazy_pattern(rb"(?<![\x80-\xff])[\x80-\xff]{10}")


def whole_fields(
    make: ValueEntries, scan: PartScan, key: int, first: int = 0, window: WireWindow | None = None
) -> Iterator[WireField | Entry]:
    """Yield the fields of a slot; for one that cannot be read (the last, before damage), yield its entry."""
    fields = scan.fields(key, first, window)
    while True:
        try:
            field = next(fields, None)
        except (MalformedError, EndOfDataError, GapError) as error:
            yield make.bad(None, error, scan.slots[key].last, scan.part.data)
            return
        if field is None:
            return
        yield field


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield small pieces joined, since thousands are decoded together, and large ones as they are."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        if waiting and size + len(piece) > _BLOCK:
            yield b"".join(waiting)
            waiting.clear()
            size = 0
        waiting.append(piece)
        size += len(piece)
    yield b"".join(waiting)


class ListIndex(IndexNote):
    """All elements of one repeated field: ``segments``, and ``firsts``, the number of the first element of each.

    ``problems`` lists errors: a reason, an offset (None if it has none), and whether the data are truncated there.
    """

    def __init__(self, make: ValueEntries, origin: Origin) -> None:
        self.make = make
        self.field = origin.field
        self.key = origin.key
        self.trail = origin.trail
        self.problems: list[tuple[str, int | None, bool]] = []
        self.count = 0
        self.segments: list[Run | _Packed | _New | _Gone] = []
        self.firsts: list[int] = []
        self._overlays: list[OverlayField] = []
        for contribution in origin.contributions:
            if isinstance(contribution, LostElement):
                self._add(_Gone(contribution.owner.begin, contribution.owner.end))
            elif isinstance(contribution, OverlayField):
                self._add_overlay(contribution)
            else:
                self._add_part(contribution[0])

    def _add(self, segment: Run | _Packed | _New | _Gone) -> None:
        if segment.count:
            self.segments.append(segment)
            self.firsts.append(self.count)
            self.count += segment.count

    def _add_part(self, scan: PartScan) -> None:
        field = self.field
        if field is not None and not is_message(field) and field.wire_type != LEN and scan.has_packed(self.key):
            packed = _Packed(self.make, scan, self.key, field)
            self.problems += packed.problems
            self._add(packed)
        else:
            self._add(Run(scan, self.key))

    def _add_overlay(self, overlay: OverlayField) -> None:
        if self.field is not None:
            overlay = overlay.elements()
        if overlay.keys() or overlay.whole():
            reason = "a chunk belongs to the repeated field as a whole, or to a key of it, not to an element"
            self.problems.append((reason, None, False))
        indices = overlay.indices()
        if not len(indices):
            return
        self._overlays.append(overlay)
        beyond = bisect_left(indices, self.count)
        fresh = 0
        while beyond + fresh < len(indices) and indices[beyond + fresh] == self.count + fresh:
            fresh += 1
        if beyond + fresh < len(indices):
            reason = f"a chunk belongs to element {indices[beyond + fresh]} of a list of {self.count + fresh}"
            self.problems.append((reason, None, False))
        self._add(_New(fresh))

    @property
    def memory(self) -> int:
        """Approximate memory, in bytes."""
        return sum(200 + segment.memory for segment in self.segments)

    def pieces(self, ordinal: int) -> list[Piece]:
        """Return the pieces that overlay entries add to an element."""
        found: list[Piece] = []
        scalar = self.field is not None and not is_message(self.field)
        for overlay in self._overlays:
            indices = overlay.indices()
            at = bisect_left(indices, ordinal)
            if at < len(indices) and indices[at] == ordinal:
                found += overlay.at_index(ordinal, scalar=scalar)
        return found

    def overlaid(self, ordinal: int) -> Entry:
        """Return the entry of an element that overlay entries make; on errors, one with a finding."""
        try:
            return self.make.overlaid(None, self.field, self.pieces(ordinal), self.trail)
        except MalformedError as error:
            return self.make.bad(None, error, 0)

    def entries(self, first: int, count: int) -> list[Entry]:
        """Return the entries of elements ``[first, first + count)``, or of fewer.

        An element with overlay entries is returned alone, so that the chunks of its neighbours are not opened.
        """
        found: list[Entry] = []
        stop = min(first + count, self.count)
        for overlay in self._overlays:
            indices = overlay.indices()
            at = bisect_left(indices, first)
            if at < len(indices):
                stop = min(stop, max(first + 1, indices[at]))
        while first < stop:
            number = bisect_right(self.firsts, first) - 1
            segment, begin = self.segments[number], self.firsts[number]
            take = min(stop, begin + segment.count) - first
            found += islice(segment.entries(self, first - begin, first), take)
            first += take
        return found

    def touched(self) -> list[int]:
        """Return the numbers of the elements with overlay entries, ascending."""
        return sorted({index for overlay in self._overlays for index in overlay.indices() if index < self.count})

    def message_at(self, ordinal: int, near: WireWindow | None = None) -> tuple[Sequence[Piece], WireWindow | None]:
        """Return the pieces of one message, of a cut one what exists, and a window: ``near`` if on the same bytes."""
        number = bisect_right(self.firsts, ordinal) - 1
        segment = self.segments[number]
        if isinstance(segment, Run) and not self._overlays:
            scan = segment.scan
            is_near = near is not None and near.data is scan.part.data and near.end == scan.part.end
            window = near if near is not None and is_near else scan.window()
            try:
                field = next(scan.fields(segment.key, ordinal - self.firsts[number], window))
                return (self.make.payload(scan.part, field),), window
            except (MalformedError, EndOfDataError, GapError):
                pass  # its entry tells
        return self.entries(ordinal, 1)[0].note.pieces, None

    def messages(
        self, numbered: Callable[[Run, WireWindow], Iterator[Payload]] | None = None
    ) -> Iterator[tuple[int, Sequence[Piece], WireWindow | None]]:
        """Yield the number and the pieces of each message of the list, and a window that may hold its bytes; none of
        the last one if the data end in its head.

        ``numbered`` may leave out some elements of a run: it returns those that it does not, with their numbers in it.
        """
        first = 0
        touched = set(self.touched())
        for segment in self.segments:
            if isinstance(segment, Run):
                scan = segment.scan
                window = scan.window()
                every = numbered(segment, window) if numbered else scan.payloads(segment.key, window)
                data, limit, payload = scan.part.data, scan.part.end, self.make.payload
                for number, start, end in every:
                    ordinal = first + number
                    inside = end <= limit  # nearly always: then without a call
                    own = Range(data, start, end) if inside else payload(scan.part, WireField(0, 0, start, end, end))
                    yield ordinal, (own, *self.pieces(ordinal)) if ordinal in touched else (own,), window
            else:
                for ordinal in range(first, first + segment.count):
                    yield ordinal, self.pieces(ordinal), None
            first += segment.count

    def wire(self) -> Iterator[Range | int]:
        """Yield the elements in wire format, with tags, in ranges as long as possible.

        For an element with overlay entries, its number is yielded instead.
        """
        touched = self.touched()
        for first, segment in zip(self.firsts, self.segments, strict=True):
            stop = first + segment.count
            if isinstance(segment, Run):
                yield from segment.wire(first, touched[bisect_left(touched, first) : bisect_left(touched, stop)])
            else:
                yield from range(first, stop)

    def array(self) -> Any:
        """Return the numbers of the list as a numpy array (of enums, their numbers)."""
        import numpy as np

        from pparse.kernels.packed import packed_array

        field = self.field
        if field is None or is_message(field) or field.wire_type == LEN or self._overlays:
            raise TypeError("not a list of numbers")
        stored = [segment for segment in self.segments if isinstance(segment, Run | _Packed)]
        pieces = [packed_array(raw, field.type) for segment in stored for raw in segment.raw()]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else packed_array(b"", field.type)


class Run:
    """Elements that are encoded one by one."""

    def __init__(self, scan: PartScan, key: int) -> None:
        self.scan = scan
        self.key = key
        self.count = scan.slots[key].count
        self.memory = 0  # charged with the scan

    def entries(self, owner: ListIndex, first: int, ordinal: int) -> Iterator[Entry]:
        """Yield the entries of elements from number ``first`` of the segment on, which is ``ordinal`` in the list."""
        window = self.scan.window(owner.make.extraction.session.kept_block)
        for field in whole_fields(owner.make, self.scan, self.key, first, window):
            if isinstance(field, Entry):
                yield field
                return
            try:
                extra = owner.pieces(ordinal) if owner._overlays else ()
                yield owner.make.value(None, owner.field, self.scan.part, field, window, extra, owner.trail)
            except MalformedError as error:
                yield owner.make.bad(None, error, field.begin, self.scan.part.data)
            ordinal += 1

    def wire(self, first: int, touched: list[int]) -> Iterator[Range | int]:
        """Yield the ranges between the elements in ``touched``, and the numbers of these."""
        data = self.scan.part.data
        start = stop = -1
        waiting = iter(touched)
        wanted = next(waiting, -1)
        for ordinal, field in enumerate(self.scan.fields(self.key), first):
            if field.begin != stop or ordinal == wanted:
                if stop > start:
                    yield data.range(start, stop)
                start = stop = field.begin
            if ordinal == wanted:
                yield ordinal
                start = stop = field.next
                wanted = next(waiting, -1)
            else:
                stop = field.next
        if stop > start:
            yield data.range(start, stop)

    def raw(self) -> Iterator[bytes]:
        """Yield the payloads in large pieces, in packed form."""
        window = self.scan.window()
        return _joined(window.read(found.start, found.end) for found in self.scan.fields(self.key, 0, window))


class _Packed:
    """Numbers of which some or all are packed: their blobs (a single number counts as a blob)."""

    def __init__(self, make: ValueEntries, scan: PartScan, key: int, field: FieldType) -> None:
        self.scan = scan
        self.key = key
        self.field = field
        self.size = fixed_size(field)
        self.count = 0
        self.problems: list[tuple[str, int | None, bool]] = []
        self._make = make
        self._starts = array("q")
        self._stops = array("q")
        self._ends = array("q")  # count of numbers up to and including this blob
        self._checkpoints: dict[int, array[int]] = {}
        with make.extraction.session.budget.charge(0, "the index of packed numbers") as charge:
            for number, found in enumerate(whole_fields(make, scan, key)):
                if not number & 0xFFFF:
                    charge.resize(self.memory)
                if isinstance(found, Entry):
                    cut = found.status is Status.TRUNCATED
                    self._note("the field ends early" if cut else "a number of the field is damaged", found.start, cut)
                else:
                    self._add(found)

    def _note(self, reason: str, offset: int, cut: bool = False) -> None:
        if not self.problems:
            self.problems.append((reason, offset, cut))

    def _add(self, found: WireField) -> None:
        """Append a blob: its complete numbers."""
        part = self.scan.part
        there = min(part.end, self._make.data_end(part))
        stop = min(found.end, there)  # of a truncated one, the bytes that exist
        start = min(found.start, stop)
        after = stop
        if found.tag & 7 != LEN:
            numbers = 1 if found.end <= there else 0
            after = found.end if numbers else start
        elif self.size is not None:
            numbers = (stop - start) // self.size
            after = start + numbers * self.size
        else:
            numbers, after = self._count(len(self._starts), start, stop)
        if after < stop or found.end > there:
            offset, _ = self._make.place(part.data, after, after)
            cut = found.end > there and part.end >= self._make.data_end(part)
            self._note("packed numbers end early" if cut else "a packed number is cut short, or too long", offset, cut)
        self._starts.append(start)
        self._stops.append(after)
        self.count += numbers
        self._ends.append(self.count)

    def _count(self, blob: int, start: int, stop: int) -> tuple[int, int]:
        """Count the valid varints of a blob; return count and end; remember the offset of every 1,024th."""
        if stop - start <= 4 * _PACKED_STRIDE:
            raw = b"".join(self._blocks(start, stop))
            bad = _TOO_LONG.search(raw)
            if bad is not None:
                raw = raw[: bad.start()]
            raw = raw.rstrip(CONTINUED)
            return count_varints(raw), start + len(raw)
        try:
            checkpoints, numbers = varint_checkpoints(self._blocks(start, stop), _PACKED_STRIDE)
        except MalformedError as error:
            stop = start + (error.offset or 0)
            if stop == start:
                return 0, start
            checkpoints, numbers = varint_checkpoints(self._blocks(start, stop), _PACKED_STRIDE)
        self._checkpoints[blob] = checkpoints
        return numbers, stop

    def _blocks(self, start: int, stop: int) -> Iterator[bytes]:
        return blocks(self.scan.part.data.known, start, stop, _BLOCK)

    @property
    def memory(self) -> int:
        """Bytes held, about."""
        return 24 * len(self._starts) + sum(100 + 8 * len(kept) for kept in self._checkpoints.values())

    def entries(self, owner: ListIndex, first: int, ordinal: int) -> Iterator[Entry]:
        part = self.scan.part
        window = WireWindow(part.data, part.end)
        blob = bisect_right(self._ends, first)
        kind = scalar_kind(self.field)
        origin = Origin(self.field)
        away = part.data is not owner.make.extraction.data
        while blob < len(self._starts):
            before = self._ends[blob - 1] if blob else 0
            start, stop = self._starts[blob], self._stops[blob]
            if self.size is not None:
                offset = start + (first - before) * self.size
            else:
                offset = self._seek(blob, first - before, window)
            lost: PparseError | None = None
            while first < self._ends[blob]:
                end = offset + (self.size or 0)
                try:
                    if self.size is not None:
                        value = decode(self.field, self.field.wire_type, window.read(offset, end))
                    elif lost is None:
                        at = window.at(offset)
                        raw, after = read_value(window.block, at)
                        value, end = number_of(self.field, raw), offset + after - at
                except (EndOfDataError, GapError) as error:
                    lost = error
                else:
                    lost = lost if self.size is None else None
                if lost is not None:  # a gap in the data; after it only numbers of fixed size can be located
                    yield owner.make.bad(None, lost, offset, part.data)
                    offset, first, ordinal = end, first + 1, ordinal + 1
                    continue
                extra = owner.pieces(ordinal) if owner._overlays else ()
                if extra:
                    yield owner.overlaid(ordinal)
                else:
                    where = owner.make.place(part.data, offset, end)
                    parts = (part.data.range(offset, end),) if away else None
                    yield Entry(None, kind, *where, value, parts=parts, note=origin)
                offset = end
                first += 1
                ordinal += 1
            blob += 1
            if offset > stop:
                raise MalformedError("the source changed during reading", offset=stop)

    def _seek(self, blob: int, skip: int, window: WireWindow) -> int:
        offset = self._starts[blob]
        kept = self._checkpoints.get(blob)
        if kept is not None:
            offset += kept[skip // _PACKED_STRIDE]
            skip %= _PACKED_STRIDE
        for _ in range(skip):
            at = window.at(offset)
            offset += read_value(window.block, at)[1] - at
        return offset

    def raw(self) -> Iterator[bytes]:
        """Yield the bytes of the blobs in large pieces."""
        data = self.scan.part.data
        blobs = zip(self._starts, self._stops, strict=True)
        return _joined(data.read_exact(start, stop - start) for start, stop in blobs)


class _New:
    """Elements that only overlay entries make."""

    memory = 0

    def __init__(self, count: int) -> None:
        self.count = count

    def entries(self, owner: ListIndex, first: int, ordinal: int) -> Iterator[Entry]:
        yield from map(owner.overlaid, range(ordinal, ordinal + self.count - first))


class _Gone:
    """One element in place of those in damaged bytes."""

    memory = 0
    count = 1

    def __init__(self, begin: int, end: int) -> None:
        self._begin = begin
        self._end = end

    def entries(self, owner: ListIndex, first: int, ordinal: int) -> Iterator[Entry]:
        error = MalformedError("lost in damaged bytes, perhaps with other elements", offset=self._begin)
        entry = owner.make.bad(None, error, self._begin)
        entry.end = self._end
        yield entry


# -- map fields: on the wire, a repeated message of a key (1) and a value (2); the last value of a key wins ------------

_KEY, _VALUE = 1, 2
# Approximate memory per entry while the map is read.
_COST: Final = 450


def map_entries(make: ValueEntries, origin: Origin) -> Iterable[Entry]:
    """Return the entries of a map: each key once, in order of first occurrence, with its last value."""
    found: dict[Any, Entry] = {}
    with make.extraction.session.budget.charge(0, "the keys of a map") as charge:
        for contribution in origin.contributions:
            if isinstance(contribution, OverlayField):
                _overlay(make, origin, contribution, found)
                continue
            scan = contribution[0]
            window = scan.window()
            for number, field in enumerate(whole_fields(make, scan, origin.key)):
                if isinstance(field, Entry):
                    found["damaged", len(found), number] = field
                    continue
                try:
                    key, entry = _pair(make, origin, scan, field, window)
                except (MalformedError, EndOfDataError, GapError) as error:
                    key = ("damaged", len(found), number)
                    entry = make.bad(None, error, field.begin, scan.part.data)
                found[key] = entry
                if not len(found) & 0xFF:
                    charge.resize(_COST * len(found))
    return found.values()


def _typed(key: Any) -> Any:
    # 1 and True are one key to a dict.
    return (type(key), key)


def _pair(make: ValueEntries, origin: Origin, scan: PartScan, pair: WireField, window: WireWindow) -> tuple[Any, Entry]:
    """Read one map entry: its key, and the entry of its value."""
    field = origin.field
    key_type = field.map_key if field is not None else None
    value_type = field.map_value if field is not None else None
    part = make.payload(scan.part, pair)
    inner = WireWindow(part.data, part.end) if pair.end - pair.begin > 4096 else window
    key: Any = None if key_type is None else key_type.default
    value: WireField | None = None
    values: list[Piece] = []
    pos = part.start
    known = False
    while pos < part.end:
        try:
            at = inner.field(pos)
        except (MalformedError, EndOfDataError) as error:
            if not known:
                raise
            return _typed(key), make.bad(key, error, pos, part.data)
        number, wire = at.tag >> 3, at.tag & 7
        if number == _KEY and (key_type is None or accepts(key_type, wire)):
            known = True
            key = _read_key(make, part, at, inner, key_type)
        elif number == _VALUE and (value_type is None or accepts(value_type, wire)):
            value = at
            values.append(make.payload(part, at))
        elif at.end > part.end or at.end > make.data_end(part):
            raise MalformedError("a field in a map entry extends beyond it", offset=at.begin)
        pos = at.next
    if value_type is not None and is_message(value_type):
        return _typed(key), _message_entry(make, key, value_type, part, values, value)
    if value is None:
        return _typed(key), _default(make, key, value_type, part)
    trail = make.below(origin.trail, _VALUE)
    return _typed(key), make.value(key, value_type, part, value, inner, trail=trail)


def _read_key(make: ValueEntries, part: Range, at: WireField, window: WireWindow, key_type: FieldType | None) -> Any:
    """Return the key that the field ``at`` of a pair has. Raises `EndOfDataError`, `MalformedError`, `LimitError`."""
    if at.end > make.data_end(part):
        raise EndOfDataError("the key of a map ends early", wanted=at.end - at.start)
    if at.end > part.end:
        raise MalformedError("the key of a map extends beyond its entry", wanted=at.end - at.start)
    make.extraction.session.limits.check("name_bytes", at.end - at.start, "the key of a map", offset=at.start)
    key = decode(key_type, at.tag & 7, window.read(at.start, at.end))
    return key.decode("utf-8", "replace") if key_type is None and isinstance(key, bytes) else key


def _message_entry(
    make: ValueEntries, key: Any, value_type: FieldType, part: Range, values: list[Piece], last: WireField | None
) -> Entry:
    """Return the entry of a value that is a message, merged of ``values``; the ``last`` of them may end too far."""
    problem = (None, None) if last is None else make.overshoot(part, last, value_type.type_name)
    entry = make.merged(key, Origin(value_type, value_type.message, pieces=values), *problem)
    if not values:
        entry.start, entry.end = make.place(part.data, part.start, part.end)
    return entry


def _default(make: ValueEntries, key: Any, value_type: FieldType | None, part: Range) -> Entry:
    """Return the entry of a value that is not encoded, which means the default."""
    start, end = make.place(part.data, part.start, part.end)
    if value_type is None:
        return Entry(key, "bytes", start, end, b"", parts=(), note=Origin(None))
    value = named(value_type, value_type.default)
    return Entry(key, scalar_kind(value_type), start, end, value, parts=(), note=Origin(value_type))


def _overlay(make: ValueEntries, origin: Origin, overlay: OverlayField, found: dict[Any, Entry]) -> None:
    """Add the chunks for single keys: merged into a message, or in place of a scalar."""
    from pparse.parsers.cpb.scalars import key_as

    field = origin.field
    key_type = field.map_key if field is not None else None
    value_type = field.map_value if field is not None else None
    indices = overlay.indices()
    if overlay.whole() or (field is None and len(indices)):
        error = MalformedError("a chunk belongs to a map as a whole, not to a key of it")
        found["problem", 0, 0] = make.bad(None, error, 0)
    scalar = value_type is not None and not is_message(value_type)
    numbers = () if field is None else indices
    for raw_key, pieces_at in chain(product(numbers, (overlay.at_index,)), product(overlay.keys(), (overlay.at_key,))):
        try:
            key = raw_key if key_type is None else key_as(raw_key, key_type.type)
            if key is None and key_type is not None:
                raise MalformedError(f"a chunk belongs to the key {raw_key!r} of a map with {key_type.type_name} keys")
            pieces = pieces_at(raw_key, scalar=scalar)
            before = found.get(_typed(key))
            merged = before is not None and not scalar
            if before is not None and merged:
                pieces = [*before.note.pieces, *pieces]
            entry = make.overlaid(key, value_type, pieces, make.below(origin.trail, _VALUE))
            if before is not None and merged and before.finding is not None:
                entry.status, entry.finding = before.status, before.finding
            found[_typed(key)] = entry
        except PparseError as error:
            if isinstance(error, (*PASSING, LimitError)):
                raise
            found[_typed(raw_key)] = make.bad(raw_key, error, 0)
