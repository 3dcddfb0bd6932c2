"""Entries of the tree for protobuf fields, once all parts of their message were scanned, and for their values:
messages made of pieces, scalars, and guesses.
"""

from __future__ import annotations

from pparse.data.base import Range
from pparse.data.range_status import cut_status
from pparse.errors import PASSING, EndOfDataError, GapError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Status
from pparse.kernels.wire import LEN, START_GROUP
from pparse.parsers.protobuf.index import ChunkRange, Lost, Origin, OverlayEntry, OverlayField
from pparse.parsers.protobuf.values import WIRE_KINDS, decode, decode_text, is_message, kind_of, scalar_kind
from pparse.tree.entry import UNLOADED_VALUE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.parsers.protobuf.index import Contribution, MessageIndex, Piece, WireField, WireWindow
    from pparse.protobuf.schema import FieldType
    from pparse.tree.entry import Key
    from pparse.tree.host import Host
    from pparse.tree.node import Node

# Scalars of at most this many bytes are decoded with their siblings.
BORN_LOADED: Final = 256
# Bytes that are read to guess the type of a field without a schema.
_GUESS_BYTES: Final = 64 << 10
# A singular message that occurs more often is not merged.
MAX_PARTS: Final = 1 << 16


class ValueEntries:
    """Makes entries for the fields and values in the messages of one extraction.

    ``types`` gives the types of fields without a schema, by the field numbers that lead to them.
    """

    def __init__(self, extraction: Host, types: Mapping[tuple[int, ...], str]) -> None:
        self.extraction = extraction
        self.types = types
        self._longest = max(map(len, types), default=0)
        # The bytes that place everything (the metadata of a `.cpb`): if they are suspect, everything is.
        self.witness: Range | None = None
        self._origins: dict[FieldType | None, Origin] = {}

    def _plain(self, field: FieldType | None) -> Origin:
        """Return the origin of scalars of a field, shared by all of them."""
        found = self._origins.get(field)
        if found is None:
            found = self._origins[field] = Origin(field)
        return found

    def why_suspect(self, parts: Iterable[Range]) -> str | None:
        """Return why these bytes may be wrong though they can be read: their checksum, or their source's, failed."""
        for part in parts if self.witness is None else (self.witness, *parts):
            reason = part.data.why_suspect(part.start, part.end)
            if reason is not None:
                return reason
        return None

    def data_end(self, part: Range) -> int:
        """Return where the bytes of the part's data really end."""
        extraction = self.extraction
        if part.data is extraction.data:
            return extraction.find_end()
        size = part.data.size
        return part.end + 1 if size is None else size

    def place(self, data: Data, start: int, end: int) -> tuple[int, int]:
        """Return where bytes of ``data``, or the bytes they were made of, are in the extraction's data."""
        if data is self.extraction.data:
            return start, end
        first = data.locate(start, 1)
        last = data.locate(end - 1, 1) if end > start else first
        if not first or not last:
            return 0, 0
        return first[0][1], last[-1][1] + last[-1][2] if end > start else first[0][1]

    def finding(self, code: str, reason: str, offset: int | None, **more: Any) -> Finding:
        """Return a finding on the file; ``more`` as in `pparse.findings.Finding`."""
        return Finding(code, reason, source=self.extraction.name, offset=offset, **more)

    def bad(self, key: Key, error: PparseError, at: int, data: Data | None = None) -> Entry:
        """Return the entry of a value that cannot be read because of ``error``; ``at`` is an offset of ``data``."""
        if data is not None:
            at, _ = self.place(data, at, at)
        status = Status.after(error)
        finding = self.finding(status.code, error.reason, at, wanted=error.wanted, got=error.got)
        return Entry(key, "bytes", at, at, status=status, finding=finding, parts=(), note=Origin(None))

    def payload(self, part: Range, found: WireField) -> Range:
        """Return the payload of a field, cut at the end of its message."""
        if found.end <= part.end:
            return Range(part.data, found.start, found.end)
        end = found.end if part.end >= self.data_end(part) else part.end
        return part.data.range(min(found.start, end), end)

    def overshoot(self, part: Range, found: WireField, kind: str) -> tuple[Status, Finding] | tuple[None, None]:
        """Return what is wrong with a field that ends beyond its part, or the data: truncated, or of a wrong length."""
        there = self.data_end(part)
        if found.end <= part.end and found.end <= there:
            return None, None
        cut = part.end >= there or found.end > there
        at, _ = self.place(part.data, found.start, found.start)
        status, words = cut_status(damaged=not cut), "ends early" if cut else "extends beyond its message"
        wanted, got = found.end - found.start, max(0, min(part.end, there) - found.start)
        return status, self.finding(status.code, f"the {kind} {words}", at, wanted=wanted, got=got)

    def below(self, trail: tuple[int, ...], number: int) -> tuple[int, ...]:
        """Return the trail of a field, no longer than needed to know that none of `types` means it."""
        return trail if len(trail) > self._longest else (*trail, number)

    def merged(
        self, key: Key, origin: Origin, status: Status | None = None, finding: Finding | None = None, kind: str = ""
    ) -> Entry:
        """Return the entry of a message."""
        ranges = tuple(piece for piece in origin.pieces if isinstance(piece, Range))
        kind = kind or (origin.type.full_name if origin.type is not None else "message")
        start = end = 0
        if ranges:
            start, end = self.place(ranges[0].data, ranges[0].start, ranges[0].end)
        alone = len(ranges) == 1 and ranges[0].data is self.extraction.data
        return Entry(
            key, kind, start, end, status=status, finding=finding, parts=None if alone else ranges, note=origin
        )

    # -- values ------------------------------------------------------------------------------------------------------

    def value(
        self,
        key: Key,
        field: FieldType | None,
        part: Range,
        found: WireField,
        window: WireWindow,
        extra: Sequence[Piece] = (),
        trail: tuple[int, ...] = (),
    ) -> Entry:
        """Return the entry of a value, from the field that holds it and the pieces of overlay entries.

        ``trail`` are the field numbers that lead to it, if there is no schema.
        """
        wire = found.tag & 7
        if field is None:
            if wire in (LEN, START_GROUP):
                return self._guessed(key, part, found, window, extra, trail)
            kind = WIRE_KINDS[wire]
        elif is_message(field):
            origin = Origin(field, field.message, pieces=(self.payload(part, found), *extra))
            return self.merged(key, origin, *self.overshoot(part, found, field.type_name))
        elif extra:
            return self.overlaid(key, field, extra)
        else:
            kind = scalar_kind(field)
        start, end = self.place(part.data, found.start, found.end)
        away = part.data is not self.extraction.data
        parts = (part.data.range(found.start, found.end),) if away else None
        value: Any = UNLOADED_VALUE
        status, finding = self.overshoot(part, found, kind)
        if finding is None and found.end - found.start <= BORN_LOADED:
            try:
                value = decode(field, wire, window.read(found.start, found.end))
            except MalformedError as error:
                status, finding = Status.DAMAGED, self.finding("malformed", error.reason, start)
            except (EndOfDataError, GapError):
                pass  # reported when it is loaded
        if finding is None and (value is not UNLOADED_VALUE or kind != "string"):
            status = Status.COMPLETE
        return Entry(key, kind, start, end, value, status, finding, parts, note=self._plain(field))

    def overlaid(
        self, key: Key, field: FieldType | None, pieces: Sequence[Piece], trail: tuple[int, ...] = ()
    ) -> Entry:
        """Return the entry of a value that only overlay entries make: a message, or a scalar in a chunk.

        Raise `MalformedError` if chunks go below a scalar.
        """
        deeper = any(isinstance(piece, OverlayEntry) for piece in pieces)
        lost = next((piece for piece in reversed(pieces) if isinstance(piece, Lost)), None)
        ranges = [piece for piece in pieces if isinstance(piece, Range)]
        if field is not None and is_message(field):
            return self.merged(key, Origin(field, field.message, pieces=pieces))
        if field is None and (deeper or len(ranges) != 1 or self._holds_message(ranges[0])):
            return self.merged(key, Origin(None, None, pieces=pieces, trail=trail))
        name = f"the {field.type_name} {field.name}" if field is not None else "a scalar"
        if deeper:
            raise MalformedError(f"chunks belong to fields below {name}, which has none")
        if lost is not None:
            if isinstance(lost.error, LimitError):
                raise lost.error
            raise MalformedError(lost.reason)
        if not ranges:
            raise MalformedError(f"no chunk holds a value of {name}")
        chunk = ranges[-1]
        if isinstance(chunk, ChunkRange) and (wrong := chunk.why_not(message=False)) is not None:
            raise MalformedError(wrong)
        start, end = self.place(chunk.data, chunk.start, chunk.end)
        kind = scalar_kind(field) if field is not None else "bytes"
        # Whether text is a valid value of the field is not known before it is read.
        status = Status.COMPLETE if kind == "bytes" else None
        return Entry(key, kind, start, end, status=status, parts=(chunk,), note=Origin(field, text=field is not None))

    def _holds_message(self, chunk: Range) -> bool:
        from pparse.kernels.wire_guess import guess

        if isinstance(chunk, ChunkRange) and chunk.type:
            return chunk.type == 1
        head = chunk.data.pread(chunk.start, min(len(chunk), _GUESS_BYTES))
        return guess(head, len(head) == len(chunk))[0] == "message"

    def _guessed(
        self,
        key: Key,
        part: Range,
        found: WireField,
        window: WireWindow,
        extra: Sequence[Piece],
        trail: tuple[int, ...],
    ) -> Entry:
        """Return the entry of a length-delimited field or a group without a schema."""
        payload = self.payload(part, found)
        status, problem = self.overshoot(part, found, "field")
        origin = Origin(None, None, pieces=(payload, *extra), trail=trail)
        if found.tag & 7 == START_GROUP:
            return self.merged(key, origin, status, problem, kind="group")
        length = found.end - found.start
        kind = "message" if extra else self.types.get(trail)
        try:
            there = min(found.end, found.start + _GUESS_BYTES, max(found.start, self.data_end(part)))
            head = window.read(found.start, there)
        except (EndOfDataError, GapError):
            head = b""
        if kind is None:
            from pparse.kernels.wire_guess import guess

            kind = guess(head, len(head) == length)[0]
        if kind == "message":
            return self.merged(key, origin, status, problem)
        value: Any = UNLOADED_VALUE
        if length <= BORN_LOADED and len(head) == length:
            try:
                value = decode_text(head) if kind == "text" else head
            except MalformedError:  # declared as text, but it is not
                kind, value = "bytes", head
        start, end = self.place(part.data, found.start, found.end)
        return Entry(
            key, kind, start, end, value, status or Status.COMPLETE, problem, parts=(payload,), note=Origin(None)
        )

    # -- fields ------------------------------------------------------------------------------------------------------

    def field(self, node: Node, index: MessageIndex, key: int, contributions: list[Contribution]) -> Entry:
        """Return the entry of a field of ``node``, a message scanned into ``index``; DAMAGED if nothing can be told."""
        origin: Origin = node.note
        number = key if key >= 0 else ~key >> 3
        field = origin.type.fields.get(number) if origin.type is not None and key >= 0 else None
        name: Key = field.name if field is not None else number
        last = contributions[-1]
        try:
            if field is None:
                return self._unknown_field(node, index, number, key, contributions)
            if field.repeated:
                return self._container(node, index, kind_of(field), Origin(field, contributions=contributions, key=key))
            if is_message(field):
                return self._submessage(index, field, contributions, key)
            if isinstance(last, OverlayField):
                check_whole(last, field.name)
                return self.overlaid(name, field, last.whole(scalar=True))
            window = index.window(last[0])
            return self.value(name, field, last[0].part, last[0].last(key, window), window)
        except PparseError as error:
            if isinstance(error, (*PASSING, LimitError)):
                raise
            if isinstance(last, OverlayField):
                return self.bad(name, error, node.start)
            return self.bad(name, error, last[1].last, last[0].part.data)

    def _container(self, node: Node, index: MessageIndex, kind: str, origin: Origin) -> Entry:
        """Return the entry of a list or a map; it extends from its first element to its last."""
        key = origin.key
        start, end = node.start, node.end
        only = origin.contributions[0]
        if len(origin.contributions) == 1 and not isinstance(only, OverlayField):
            part, slot = only
            try:
                after = min(index.window(part).field(slot.last).next, part.part.end)
            except (MalformedError, EndOfDataError):  # the last element is damaged, which is reported when it is read
                after = part.part.end
            start, end = self.place(part.part.data, slot.offsets[0], after)
        name: Key = origin.field.name if origin.field is not None else key if key >= 0 else ~key >> 3
        return Entry(name, kind, start, end, status=None, note=origin)

    def _submessage(self, index: MessageIndex, field: FieldType, contributions: list[Contribution], key: int) -> Entry:
        """Return the entry of a singular message: all its occurrences and overlay entries, in order."""
        pieces: list[Piece] = []
        problem: tuple[Status, Finding] | tuple[None, None] = None, None
        for item in contributions:
            if isinstance(item, OverlayField):
                check_whole(item, field.name)
                pieces += item.whole()
                continue
            part, slot = item
            if slot.count > MAX_PARTS:
                reason = f"the message {field.name} has {slot.count} parts, too many to merge"
                raise UnsupportedError(reason, offset=slot.last)
            for found in part.fields(key, 0, index.window(part), slot):
                pieces.append(self.payload(part.part, found))
                wrong = self.overshoot(part.part, found, field.type_name)
                if wrong[0] is not None:
                    problem = wrong
        return self.merged(field.name, Origin(field, field.message, pieces=pieces), *problem)

    def _unknown_field(
        self, node: Node, index: MessageIndex, number: int, key: int, contributions: list[Contribution]
    ) -> Entry:
        """Return the entry of a field that is not in the schema."""
        trail = self.below(node.note.trail, number)
        origin = Origin(None, contributions=contributions, key=key, trail=trail)
        overlays = [item for item in contributions if isinstance(item, OverlayField)]
        if any(overlay.keys() for overlay in overlays):
            return self._container(node, index, "map<?, ?>", origin)
        runs = [item for item in contributions if not isinstance(item, OverlayField)]
        if sum(slot.count for _, slot in runs) > 1 or any(len(overlay.indices()) for overlay in overlays):
            return self._container(node, index, "field[]", origin)
        pieces: list[Piece] = [piece for overlay in overlays for piece in overlay.whole()]
        if not runs:
            return self.overlaid(number, None, pieces, trail)
        scan = runs[0][0]
        window = index.window(scan)
        return self.value(number, None, scan.part, scan.last(key, window), window, pieces, trail)


def check_whole(overlay: OverlayField, name: str) -> None:
    """Raise `MalformedError` for chunks for elements or keys of a field that has none."""
    if len(overlay.indices()) or overlay.keys():
        raise MalformedError(f"a chunk belongs to an element of {name}, which is neither repeated nor a map")
