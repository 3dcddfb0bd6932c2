"""Map fields: on the wire, a repeated message of a key (1) and a value (2). The last value of a key wins."""

from __future__ import annotations

from itertools import chain, product

from pparse.errors import PASSING, EndOfDataError, GapError, LimitError, MalformedError, PparseError
from pparse.parsers.protobuf.index import Origin, OverlayField, accepts
from pparse.parsers.protobuf.lists import whole_fields
from pparse.parsers.protobuf.values import decode, is_message, named, scalar_kind
from pparse.parsers.protobuf.window import Window, WireField
from pparse.tree.entry import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Final

    from pparse.data.reader import Range
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.parsers.protobuf.index import PartScan, Piece
    from pparse.protobuf.schema import FieldType

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


def _pair(make: ValueEntries, origin: Origin, scan: PartScan, pair: WireField, window: Window) -> tuple[Any, Entry]:
    """Read one map entry: its key, and the entry of its value."""
    field = origin.field
    key_type = field.map_key if field is not None else None
    value_type = field.map_value if field is not None else None
    part = make.payload(scan.part, pair)
    inner = Window(part.data, part.end) if pair.end - pair.begin > 4096 else window
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
        elif make.is_over(part, at):
            raise MalformedError("a field in a map entry extends beyond it", offset=at.begin)
        pos = at.next
    if value_type is not None and is_message(value_type):
        return _typed(key), _message_entry(make, key, value_type, part, values, value)
    if value is None:
        return _typed(key), _default(make, key, value_type, part)
    trail = make.below(origin.trail, _VALUE)
    return _typed(key), make.value(key, value_type, part, value, inner, trail=trail)


def _read_key(make: ValueEntries, part: Range, at: WireField, window: Window, key_type: FieldType | None) -> Any:
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
    status = problem = None
    if last is not None and make.is_over(part, last):
        status, problem = make.overshoot(part, last, value_type.type_name)
    entry = make.merged(key, Origin(value_type, value_type.message, pieces=values), status, problem)
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
