"""Messages read without nodes: what viewers need from hundreds of thousands of small messages.

A `Message` scans its pieces like the parser (see `pparse.parsers.protobuf.index`), overlay entries of a ``.cpb``
included, but makes neither nodes nor a lasting index.
"""

from __future__ import annotations

from collections import namedtuple

from pparse.data.base import Range
from pparse.data.range_status import cut_status
from pparse.errors import EndOfDataError, GapError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Status
from pparse.kernels.wire import PADDING, SLACK
from pparse.parsers.protobuf.index import ChunkRange, Lost, MessageIndex, Origin, OverlayField, PartScan, WireWindow
from pparse.parsers.protobuf.values import decode, is_message
from pparse.riegeli.errors import HashMismatchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.parsers.protobuf.index import Contribution, Occurrences, Piece, WireField
    from pparse.protobuf.schema import FieldType, MessageType

_SMALL: Final = 32 << 10
_FIRST_BLOCK: Final = 1 << 10
# If this much of a window is left, start with it.
_ENOUGH: Final = 256
_LARGEST_BLOCK: Final = 64 << 10
_TEXT_LIMIT: Final = 1 << 20
# Lists and maps with more entries are refused here.
MAX_ELEMENTS: Final = 1 << 20


class Problem(namedtuple("Problem", "status reason offset contradicted", defaults=(None, False))):
    """Why a message is not whole: damaged, truncated, missing or unsupported (``status``), and a ``reason`` in words.

    ``offset`` tells where, None if unknown; ``contradicted`` that a checksum contradicts the bytes.
    """

    __slots__ = ()

    @property
    def is_damage(self) -> bool:
        """Whether bytes that are there are wrong."""
        return bool(self.status is Status.DAMAGED)


def problem_of(error: PparseError) -> Problem:
    """Return the problem that an error describes."""
    return problem_of_lost(Lost(error.reason, error))._replace(offset=error.offset)


def problem_of_lost(lost: Lost) -> Problem:
    """Return the problem for a lost piece."""
    missing = isinstance(lost.error, EndOfDataError)
    contradicted = isinstance(lost.error, HashMismatchError)
    return Problem(Status.MISSING if missing else Status.DAMAGED, lost.reason, contradicted=contradicted)


class Message:
    """The fields of one message that is made of ``pieces``; ``near`` is a window that may hold its bytes already."""

    __slots__ = ("_windows", "fields", "make", "problem", "type")

    def __init__(
        self, make: ValueEntries, pieces: Sequence[Piece], type: MessageType, near: WireWindow | None = None
    ) -> None:
        self.make = make
        self.type = type
        self.problem: Problem | None = None
        """What is wrong with the message as a whole, if anything; the fields found are there in any case."""
        self._windows: dict[int, WireWindow] = {}
        index = MessageIndex(())
        for piece in pieces:
            if isinstance(piece, Lost):
                self.problem = problem_of_lost(piece)
            elif not isinstance(piece, Range):
                index.parts.append(piece)
            elif isinstance(piece, ChunkRange) and (wrong := piece.why_not(message=True)) is not None:
                self.problem = Problem(Status.DAMAGED, wrong)
            elif piece.end > piece.start:
                index.parts.append(self._scan(piece, near))
        self.fields: dict[int, list[Contribution]] = index.contributions(type)

    # -- the scan ----------------------------------------------------------------------------------------------------

    def _scan(self, part: Range, near: WireWindow | None) -> PartScan:
        found = PartScan(part, self.type)
        data_end = self.make.data_end(part)
        there = min(part.end, data_end)
        scan = self._scan_small if there - part.start <= _SMALL else self._scan_large
        try:
            cut = scan(part, there, near, found) or there < part.end
        except MalformedError as error:
            self.problem = Problem(Status.DAMAGED, error.reason, error.offset)
            return found
        except (EndOfDataError, GapError):
            cut = True
        if cut:
            # A field that extends to the end of the data was cut there; in any other message a length is wrong.
            at_end = part.end >= data_end
            reason = "the message ends early" if at_end else "a field ends beyond its message"
            self.problem = Problem(cut_status(damaged=not at_end), reason, there)
        return found

    def _scan_small(self, part: Range, there: int, near: WireWindow | None, found: PartScan) -> bool:
        block = b""
        try:
            if there > part.start and near is not None and near.data is part.data:
                block = near.read(part.start, there)
            elif there > part.start:
                block = part.data.pread(part.start, there - part.start)
        except (EndOfDataError, GapError):
            pass
        if len(block) < there - part.start:
            return self._scan_large(part, there, None, found)  # a gap in a payload does not matter
        window = self._windows[id(found)] = WireWindow(part.data, part.end)
        window.base, window.block, window.size = part.start, block + PADDING, len(block)
        return found.scan(block, part.start, final=True) > part.end or bool(found.groups)

    def _scan_large(self, part: Range, there: int, near: WireWindow | None, found: PartScan) -> bool:
        """Scan a part block by block, jumping over payloads; return whether it ends inside a field."""
        window = self._windows[id(found)] = WireWindow(part.data, part.end)
        if near is not None and near.data is part.data and 0 <= part.start - near.base < near.size - _ENOUGH:
            window.base, window.block, window.size = near.base, near.block, near.size
        else:
            head = _readable(part.data, part.start, min(_FIRST_BLOCK, there - part.start))
            window.base, window.block, window.size = part.start, head + PADDING, len(head)
        pos, size = part.start, _FIRST_BLOCK
        block = window.block[pos - window.base : window.size]
        while pos < there:
            block = block or _readable(part.data, pos, min(size, there - pos))
            end = pos + len(block)
            pos = found.scan(block, pos, final=end >= there)
            size = min(4 * size, _LARGEST_BLOCK) if pos <= end else _FIRST_BLOCK
            block = b""
        return pos > part.end or bool(found.groups)

    # -- fields ------------------------------------------------------------------------------------------------------

    def window(self, part: PartScan) -> WireWindow:
        """Return a window on a part, with its bytes if they were read."""
        return self._windows.get(id(part)) or part.window()

    def last(self, number: int) -> tuple[PartScan, WireField] | OverlayField | None:
        """Return where the last value of a singular field is: in a part, or in chunks; None if it is not set.

        Raises `MalformedError`, `EndOfDataError`.
        """
        found = self.fields.get(number)
        item = found[-1] if found else None
        if item is None or isinstance(item, OverlayField):
            return item
        return item[0], item[0].last(number, self.window(item[0]))

    def scalar(self, number: int) -> Any:
        """Return the value of a singular scalar, or its default. Raises `MalformedError`, `EndOfDataError`."""
        field = self.type.fields[number]
        found = self.last(number)
        if found is None:
            return field.default
        if isinstance(found, OverlayField):
            return self._chunk_scalar(found, field)
        part, at = found
        if at.end > part.part.end:
            raise EndOfDataError(f"the {field.name} ends early", offset=at.start)
        if at.end - at.start > _TEXT_LIMIT:
            raise MalformedError(f"the {field.name} has {at.end - at.start} bytes", offset=at.start)
        raw = self.window(part).read(at.start, at.end)
        return decode(None if field.enum is not None else field, at.tag & 7, raw)

    def _chunk_scalar(self, overlay: OverlayField, field: FieldType) -> Any:
        from pparse.parsers.cpb.scalars import decode_scalar

        chunk = next(reversed(overlay.whole(scalar=True)), None)
        if isinstance(chunk, Lost):
            raise MalformedError(chunk.reason)
        if not isinstance(chunk, Range) or len(chunk) > _TEXT_LIMIT:
            raise MalformedError(f"a chunk is not a valid {field.name}")
        return decode_scalar(chunk.data.read_exact(chunk.start, len(chunk)), field)

    def runs(self, number: int, refused: str = "") -> Iterator[tuple[PartScan, Occurrences]]:
        """Yield where the fields of a number are in each part; what chunks add is left out.

        Or it is ``refused``, with a reason: then raise `UnsupportedError`.
        """
        for item in self.fields.get(number, ()):
            if not isinstance(item, OverlayField):
                yield item
            elif refused:
                raise UnsupportedError(refused)

    def occurrences(self, number: int, refused: str = "") -> Iterator[tuple[PartScan, WireWindow, WireField]]:
        """Yield each field of a number in the parts, with a window on its part; of chunks as `runs`.

        Raises `MalformedError`, `EndOfDataError`.
        """
        for scan, _ in self.runs(number, refused):
            window = self.window(scan)
            for at in scan.fields(number, 0, window):
                yield scan, window, at

    def pieces(self, number: int) -> list[Piece] | None:
        """Return the pieces of a singular message field; None if it is not set."""
        found = self.fields.get(number)
        if not found:
            return None
        pieces: list[Piece] = []
        for item in found:
            if isinstance(item, OverlayField):
                pieces += item.whole()
                continue
            part = item[0]
            for at in part.fields(number, 0, self.window(part)):
                pieces.append(self.make.payload(part.part, at))
                if len(pieces) > MAX_ELEMENTS:
                    raise MalformedError("a message is in too many parts")
        return pieces

    def message(self, number: int) -> Message | None:
        """Return a singular message; None if it is not set. Raises `MalformedError`, `EndOfDataError`."""
        pieces, kind = self.pieces(number), self.type.fields[number].message
        return None if pieces is None or kind is None else Message(self.make, pieces, kind, self.near)

    @property
    def near(self) -> WireWindow | None:
        """A window that holds this message's bytes, if there is one."""
        return next(iter(self._windows.values()), None)

    def elements(self, number: int) -> Iterator[list[Piece]]:
        """Yield the pieces of each element of a repeated message field."""
        found = self.fields.get(number)
        if not found:
            return
        field = self.type.fields[number]
        if any(isinstance(item, OverlayField) for item in found):
            from pparse.parsers.protobuf.lists import ListIndex

            index = ListIndex(self.make, Origin(field, contributions=found, key=number))
            for first in range(0, index.count, 64):
                for entry in index.entries(first, 64):
                    yield list(entry.note.pieces)
            return
        for scan, _, at in self.occurrences(number):
            yield [self.make.payload(scan.part, at)]

    def items(self, number: int) -> Iterator[tuple[Any, list[Piece]]]:
        """Yield each key of a map of messages once, with the pieces of its value.

        Raises `MalformedError` for a map with more than 2^20 pairs.
        """
        found, field = self.fields.get(number), self.type.fields[number]
        if not found or field.map_value is None or not is_message(field.map_value):
            return
        count = sum(slot.count for _, slot in self.runs(number))
        if count > MAX_ELEMENTS:
            raise MalformedError(f"the map {field.name} has {count} pairs, more than are read")
        from pparse.parsers.protobuf.lists import map_entries

        for entry in map_entries(self.make, Origin(field, contributions=found, key=number)):
            if entry.key is not None or entry.status is None:
                yield entry.key, list(entry.note.pieces)


def _readable(data: Data, pos: int, length: int) -> bytes:
    """Return bytes at ``pos``: ``length``, or those before a gap. Raise `GapError` if these do not hold a field."""
    block = data.pread(pos, length)
    return block if len(block) == length or len(block) >= SLACK else data.read_exact(pos, length)
