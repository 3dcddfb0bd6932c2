"""Truncated or damaged protocol buffer messages: writes the fields that are whole as a message that parses.

The message is walked field by field. Sound fields are copied as they are. Of a damaged field that is a message, the
whole fields are kept and its length is corrected; any other damaged field is dropped. Lengths come before the content,
so everything is read twice (as in `pparse.parsers.protobuf.write`).

A tensor that lost any field would be a different tensor, most likely of zeros: its type is removed, so that no reader
accepts it. The bytes of dropped fields are written beside the message.
"""

from __future__ import annotations

from contextlib import suppress

from pparse.data.range_status import cut_status
from pparse.errors import EndOfDataError, FaultError, MalformedError
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN, START_GROUP, read_tag
from pparse.limits import count_words
from pparse.parsers.protobuf.check import Checker
from pparse.parsers.protobuf.index import WireField, WireWindow, accepts
from pparse.parsers.protobuf.resumption import find_resumption
from pparse.parsers.protobuf.write import measure, write
from pparse.recovery.salvage import Rest, is_model_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.data.base import Range
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.parsers.protobuf.resumption import Resumption
    from pparse.protobuf.schema import MessageType
    from pparse.recovery.salvage import Job

    Op = Range | bytes | tuple[bytes] | None  # see `pparse.parsers.protobuf.write`

_GONE: Final = 7  # instead of a wire type: a range in which fields cannot be recognised
# Suffix for the whole fields of a message that may have been a model.
FIELDS: Final = "{}.partial/fields.binpb"
TENSOR: Final = "tensorflow.TensorProto"
# A TensorProto without a type: merged into another, it removes its type.
NO_TYPE: Final = b"\x08\x00"


class _MessageFrame:
    """A message being walked: ``[pos, end)`` is still to come, and everything before ``sound`` is valid.

    ``run`` is where the next range to copy begins, ``meant`` where the message should end. ``counts`` are the fields
    passed so far, by number. ``lost``: some of it is dropped; ``gone``: the next range in which fields cannot be
    recognised.
    """

    __slots__ = ("counts", "end", "gone", "lost", "meant", "path", "pos", "run", "sound", "type")

    def __init__(self, pos: int, end: int, type: MessageType | None, path: str, sound: int) -> None:
        self.pos = self.run = pos
        self.end = self.meant = end
        self.type = type
        self.path = path
        self.sound = sound
        self.counts: dict[int, int] = {}
        self.lost = False
        self.gone: Resumption | None = None

    def name(self, field: WireField) -> str:
        """Return the path of the next field."""
        known = self.type.fields.get(field.tag >> 3) if self.type is not None else None
        word = known.name if known is not None else str(field.tag >> 3)
        if known is None or known.repeated:
            word += f"[{self.counts.get(field.tag >> 3, 0)}]"
        return f"{self.path}.{word}" if self.path else word


class _MessageWalk:
    """One pass through a message, which lists everything that is dropped in ``rest``; None: it is listed already."""

    def __init__(self, job: Job, type: MessageType | None, rest: Rest | None = None) -> None:
        self._job = job
        self._data = job.data
        self._end = job.solid
        self._type = type
        self._rest = rest
        self._check_cancelled = job.session.check_cancelled
        self._checker = Checker(job.session.check_cancelled)
        self._window = WireWindow(job.data, job.solid)
        self._told = -1  # end of the range that was reported last
        self.first = ""
        """What is lost first, in words."""
        self.inside = False
        """Whether something is lost that is not at the end."""

    def ops(self) -> Iterator[Op]:
        """Yield the operations that write the message."""
        start, depth = self._job.start, self._job.session.limits.depth
        stack = [_MessageFrame(start, self._end, self._type, "", start)]
        self._look_ahead(stack[0])
        while stack:
            frame = stack[-1]
            field = self._next(frame)
            if field is None:
                yield from self._flush(frame, frame.pos)
                stack.pop()
                if frame.meant > self._end:
                    frame.lost = True
                    if self._end > self._told:
                        self._tell(frame, frame.path, self._end, frame.meant)
                if frame.lost and frame.type is not None and frame.type.full_name == TENSOR:
                    yield NO_TYPE
                elif stack:
                    stack[-1].lost = stack[-1].lost or frame.lost
                if stack:
                    yield None
                continue
            yield from self._flush(frame, field.begin)
            name = frame.name(field)
            frame.counts[field.tag >> 3] = frame.counts.get(field.tag >> 3, 0) + 1
            below = self._message_of(frame, field)
            end = min(field.next, frame.end)
            frame.pos = frame.run = end
            if below is None or len(stack) >= depth:
                self._tell(frame, name, field.begin, end, field.start if field.tag & 7 != _GONE else None)
            else:
                yield (encode_varint(field.tag),)
                stack.append(_MessageFrame(field.start, end, below, name, max(field.start, min(frame.sound, end))))
                stack[-1].meant = field.next
                self._look_ahead(stack[-1])

    def _look_ahead(self, frame: _MessageFrame) -> None:
        """Find the range in a complete message in which fields cannot be recognised."""
        if frame.type is not None and frame.meant == frame.end:
            frame.gone = find_resumption(self._data, frame.pos, frame.end, frame.type, self._check_cancelled)

    def _tell(self, frame: _MessageFrame, path: str, begin: int, end: int, payload: int | None = None) -> None:
        """List a dropped range; ``payload``: where its content begins (None: it is no field)."""
        frame.lost = True
        self._told = end
        if self._rest is not None:
            start = self._job.start
            self.first = self.first or path or f"the bytes from {begin - start} on"
            self.inside = self.inside or end < self._end
            name = path if payload is not None and path else f"behind-{begin}"
            entry: dict[str, object] = {"path": path or None, "offset": begin - start, "length": end - begin}
            reason = "bytes as found, which have no place in the saved message"
            self._rest.lose(entry, f"{name}.bin", begin if payload is None else payload, min(end, self._end), reason)

    def _flush(self, frame: _MessageFrame, end: int) -> Iterator[Op]:
        if end > frame.run:
            yield self._data.range(frame.run, end)
        frame.run = end

    def _next(self, frame: _MessageFrame) -> WireField | None:
        """Skip the sound fields, and return the next damaged one; None at the end, or if no field can be read."""
        while frame.pos < frame.end:
            if frame.sound <= frame.pos:
                frame.sound = self._sound_to(frame)
            if frame.type is not None and frame.sound == frame.end:
                frame.pos = frame.end
                return None
            gone = frame.gone if frame.gone is not None and frame.gone.begin == frame.pos else None
            field = self._field(frame.pos, frame.end) if gone is None else None
            if field is not None and field.next <= frame.end and self._is_sound(frame, field):
                frame.counts[field.tag >> 3] = frame.counts.get(field.tag >> 3, 0) + 1
                frame.pos = field.next
            elif gone is not None:
                frame.gone = None
                return WireField(gone.number << 3 | _GONE, gone.begin, gone.begin, gone.end, gone.end)
            elif field is not None and (field.next <= frame.end or frame.end >= self._end):
                return field
            else:  # the rest of the message after it cannot be found
                self._tell(frame, frame.path if field is None else frame.name(field), frame.pos, frame.end)
                frame.end = frame.pos
        return None

    def _is_sound(self, frame: _MessageFrame, field: WireField) -> bool:
        if frame.type is not None:
            return field.next <= frame.sound
        return not any(self._data.gaps_in(field.begin, field.next))

    def _sound_to(self, frame: _MessageFrame) -> int:
        """Return the end of the valid bytes from ``frame.pos`` on; within a faulty field, where the fault is."""
        if frame.type is None:
            return frame.pos
        stop = frame.end
        gap = self._data.next_gap(frame.pos)
        if gap is not None:
            stop = max(frame.pos, min(stop, gap.offset))
        if self._checker.sound(self._data.range(frame.pos, frame.end), frame.type):
            return stop
        return max(frame.pos, min(stop, self._checker.stopped))

    def _message_of(self, frame: _MessageFrame, field: WireField) -> MessageType | None:
        """Return the type of a field that is a length-delimited message, else None."""
        known = frame.type.fields.get(field.tag >> 3) if frame.type is not None else None
        if known is None or field.tag & 7 != LEN or known.message is None or not accepts(known, LEN):
            return None
        return known.message

    def _field(self, pos: int, end: int) -> WireField | None:
        """Return the field at ``pos``; None if there is none, or its tag and length are incomplete."""
        self._check_cancelled()
        if self._window.end != end:
            self._window = WireWindow(self._data, end)
        window = self._window
        with suppress(MalformedError, EndOfDataError):
            return window.field(pos)
        with suppress(MalformedError, EndOfDataError):
            at = window.at(pos)
            tag, start = read_tag(window.block, at)
            if tag & 7 == START_GROUP and tag >= 8:  # damaged inside: it is taken for one that does not end
                return WireField(tag, pos, pos + start - at, end + 1, end + 1)
        return None


def salvage_protobuf(job: Job) -> str:
    """Write the whole fields as a message; see `pparse.recovery.salvage.salvage`."""
    parser: ProtobufParser = job.extraction.parse().parser  # type: ignore[assignment]
    # Its type is only guessed, and may be the damaged part; a file with the name of a model would be read as one.
    unlike = parser.root_type is None and is_model_name(job.name)
    name = FIELDS.format(job.name) if unlike else job.name
    with job.target.create(name) as file:
        stem = job.name if unlike else file.path
        with Rest(job, stem, {"format": parser.name}) as rest:
            walk = _MessageWalk(job, parser.root_type, rest)
            try:
                sizes = measure(walk.ops(), keeps_empty=False)  # of a message that lost all, nothing is written
                if not sizes[0] or not rest.count:
                    return job.give_up(file, rest, is_unharmed=sizes[0] > 0)

                def out(block: bytes) -> None:
                    file.write(block)
                    job.advance(len(block), sizes[0])

                write(_MessageWalk(job, parser.root_type).ops(), sizes, out, keeps_empty=False)
            except FaultError:
                return job.give_up(file, rest)
    why_suspect = job.data.why_suspect(job.start, job.end)
    damaged = walk.inside or job.has_gaps or job.loose or why_suspect is not None
    lost = f"{count_words(rest.count, 'field')} lost or cut, the first of them: {walk.first}"
    reason = f"{file.bytes:,} of {job.end - job.start:,} bytes are in it; {lost}"
    reason = reason if why_suspect is None else f"{reason}; {why_suspect}"
    status = cut_status(damaged=bool(damaged))
    return job.conclude(file, status, reason, rest, lambda: job.save_loose(stem), stem=stem)
