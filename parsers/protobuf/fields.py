"""Entries of the fields of a message, once all of its parts were scanned."""

from __future__ import annotations

from pparse.errors import PASSING, EndOfDataError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.parsers.protobuf.index import Origin, OverlayField
from pparse.parsers.protobuf.values import is_message, kind_of
from pparse.tree.entry import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.findings import Finding, Status
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.parsers.protobuf.index import Contribution, MessageIndex, PartScan, Piece
    from pparse.parsers.protobuf.window import Window
    from pparse.protobuf.schema import FieldType
    from pparse.tree.entry import Key
    from pparse.tree.node import Node

# A singular message that occurs more often is not merged.
MAX_PARTS: Final = 1 << 16


class FieldEntries:
    """Makes the entries of the fields of one message: ``node``, whose parts are in ``index``."""

    __slots__ = ("_index", "_make", "_node")

    def __init__(self, make: ValueEntries, node: Node, index: MessageIndex) -> None:
        self._make = make
        self._node = node
        self._index = index

    def entry(self, key: int, contributions: list[Contribution]) -> Entry:
        """Return the entry of the field that occurs in ``contributions``; DAMAGED if nothing can be told of it."""
        origin: Origin = self._node.note
        number = key if key >= 0 else ~key >> 3
        field = origin.type.fields.get(number) if origin.type is not None and key >= 0 else None
        try:
            if field is None:
                return self._unknown_entry(number, key, contributions)
            if field.repeated:
                return self._container_entry(kind_of(field), Origin(field, contributions=contributions, key=key))
            if is_message(field):
                return self._message_entry(field, contributions, key)
            last = contributions[-1]
            if isinstance(last, OverlayField):
                check_whole(last, field.name)
                return self._make.overlaid(field.name, field, last.whole(scalar=True))
            window = self._window(last[0])
            return self._make.value(field.name, field, last[0].part, last[0].last(key, window), window)
        except PASSING:
            raise
        except LimitError:
            raise
        except PparseError as error:
            name: Key = field.name if field is not None else number
            last = contributions[-1]
            at = self._node.start
            if not isinstance(last, OverlayField):
                at, _ = self._make.place(last[0].part.data, last[1].last, last[1].last)
            return self._make.bad(name, "bytes", at, error)

    def _window(self, part: PartScan) -> Window:
        """Return a window on a part; on the block of the scan, if that holds all of it."""
        window = part.window()
        kept = self._index.kept
        if kept is not None and kept[0] is part.part:
            window.take(part.part.start, kept[1])
        return window

    def _container_entry(self, kind: str, origin: Origin) -> Entry:
        """Return the entry of a list or a map; it extends from its first element to its last."""
        key = origin.key
        start, end = self._node.start, self._node.end
        only = origin.contributions[0]
        if len(origin.contributions) == 1 and not isinstance(only, OverlayField):
            part, slot = only
            try:
                after = min(self._window(part).field(slot.last).next, part.part.end)
            except (MalformedError, EndOfDataError):  # the last element is damaged, which is reported when it is read
                after = part.part.end
            start, end = self._make.place(part.part.data, slot.offsets[0], after)
        name: Key = origin.field.name if origin.field is not None else key if key >= 0 else ~key >> 3
        return Entry(name, kind, start, end, status=None, note=origin)

    def _message_entry(self, field: FieldType, contributions: list[Contribution], key: int) -> Entry:
        """Return the entry of a singular message: all its occurrences and overlay entries, in order."""
        pieces: list[Piece] = []
        finding: Finding | None = None
        status: Status | None = None
        for item in contributions:
            if isinstance(item, OverlayField):
                check_whole(item, field.name)
                pieces += item.whole()
                continue
            part, slot = item
            if slot.count > MAX_PARTS:
                reason = f"the message {field.name} has {slot.count} parts, too many to merge"
                raise UnsupportedError(reason, offset=slot.last)
            for found in part.fields(key, 0, self._window(part), slot):
                pieces.append(self._make.payload(part.part, found))
                if self._make.is_over(part.part, found):
                    status, finding = self._make.overshoot(part.part, found, field.type_name)
        return self._make.merged(field.name, Origin(field, field.message, pieces=pieces), status, finding)

    def _unknown_entry(self, number: int, key: int, contributions: list[Contribution]) -> Entry:
        """Return the entry of a field that is not in the schema."""
        trail = self._make.below(self._node.note.trail, number)
        origin = Origin(None, contributions=contributions, key=key, trail=trail)
        overlays = [item for item in contributions if isinstance(item, OverlayField)]
        if any(overlay.keys() for overlay in overlays):
            return self._container_entry("map<?, ?>", origin)
        count = sum(item[1].count for item in contributions if not isinstance(item, OverlayField))
        if count > 1 or any(len(overlay.indices()) for overlay in overlays):
            return self._container_entry("field[]", origin)
        pieces: list[Piece] = [piece for overlay in overlays for piece in overlay.whole()]
        parts = [item[0] for item in contributions if not isinstance(item, OverlayField)]
        if not parts:
            return self._make.overlaid(number, None, pieces, trail)
        window = self._window(parts[0])
        return self._make.value(number, None, parts[0].part, parts[0].last(key, window), window, pieces, trail)


def check_whole(overlay: OverlayField, name: str) -> None:
    """Raise `MalformedError` for chunks for elements or keys of a field that has none."""
    if len(overlay.indices()) or overlay.keys():
        raise MalformedError(f"a chunk belongs to an element of {name}, which is neither repeated nor a map")
