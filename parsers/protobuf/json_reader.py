"""A message in JSON form, put together in wire format: one pass over the text.

The walk over the JSON document (`pparse.parsers.json.walk`) tells what is where. Small values become wire format in
memory; long texts, and the bytes of long base64 texts, stay ranges of the JSON data (`pparse.data.base64_data`).

Open brackets, by what the schema says of them::

    bracket   holds                          children
    message   the fields of a message        by name; an object, for a repeated field an array
    any       a message of any type          ``@type`` first, then as message
    list      the elements of a field        scalars, of numbers packed; or messages
    map       the keys of a map field        scalars or messages
    skipped   what the schema does not have  nothing is made of them

A value that does not fit its field is left out, and its message condemned: what is read of it is damaged. So is one
that the walk finds a fault in. Source: https://protobuf.dev/programming-guides/json/.

In wire format, lengths come before what they count, so a message is put together when it is closed (`WireMaker`). Small
values are collected in memory and charged to the budget; large ones stay where they are.
"""

from __future__ import annotations

from pparse.data.base import BytesData, blocks
from pparse.data.base64_data import Base64Data, UnescapedText
from pparse.data.spliced import SplicedData
from pparse.errors import EndOfDataError, MalformedError
from pparse.findings import UNSURE_NUMBER, Finding, Severity, Status
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import END_GROUP, LEN, START_GROUP
from pparse.parsers.json.text import BORN_LOADED
from pparse.parsers.json.walk import TextWalk, following_scalars, tokens
from pparse.parsers.protobuf.json_form import ANY, OWN_FORMS, WRAPPERS, key_of, packed_at_once, value_of
from pparse.parsers.protobuf.values import encode, is_message
from pparse.protobuf.schema import TYPE_BYTES, TYPE_GROUP, TYPE_STRING, MessageType
from pparse.tree.entry import SCALAR, UNLOADED_VALUE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.data.base import Data, IoStats, Range
    from pparse.limits import Charge, MemoryBudget
    from pparse.parsers.json.parser import JsonParser
    from pparse.protobuf.schema import FieldType
    from pparse.tree.visit import Visit

    Missing = Callable[[MessageType, FieldType, bytes, int], int]

_MESSAGE, _ANY, _LIST, _MAP, _SKIPPED = range(5)
# Texts above this size stay where they are.
_LARGE: Final = 4 << 10
_BLOCK: Final = 1 << 20
# Fields that the schema does not have: how much a name is like that of a field if it is thought to be damaged.
_ALIKE: Final = 0.75
_LONGEST_NAME: Final = 80
_MOST_UNKNOWN: Final = 1000
# Bytes of a message that are moved when it is closed; what is more stays where it is.
_FLUSH: Final = 64 << 10
# Memory that a range takes, about.
_PART_COST: Final = 400
# Damaged stretches that are told one by one; if there are more, everything is in doubt.
_MOST_MARKS: Final = 1000
# A tag that goes on: what ends with it is cut.
_BROKEN_TAG: Final = b"\x80"
# Messages inside of one in doubt that are told apart from it.
_MOST_INSIDE: Final = 64


class _JsonLevel:
    """An open bracket."""

    __slots__ = ("field", "frames", "kind", "seen", "tail", "type")

    def __init__(self, kind: int, type: MessageType | None = None, field: FieldType | None = None, frames: int = 0):
        self.kind = kind
        self.type = type
        self.field = field
        self.frames = frames  # to be closed with it
        self.seen: set[object] = set()  # numbers of fields and names of oneofs
        self.tail = b""  # bytes that follow the frames


class JsonReader:
    """Makes a message of type ``type`` of the document of a JSON parser.

    ``missing(type, field, message, there)`` returns how many bytes a cut value of a field lacks at least: ``message``
    is what came before it, ``there`` the bytes that are there.
    """

    def __init__(self, parser: JsonParser, type: MessageType, missing: Missing) -> None:
        self.parser = parser
        self.type = type
        self._missing = missing
        self._extraction = parser.result.extraction
        self._findings = parser.result.findings
        self._unknown: dict[tuple[MessageType, str], str] = {}  # and how similar fields are called
        self._names: dict[MessageType, dict[str, FieldType]] = {}
        self._walk: TextWalk | None = None
        self._lacking = 1

    def make(self) -> tuple[Data, Charge]:
        """Return the message, and the charge for its memory. Raise `LimitError`."""
        parser, root = self.parser, self.parser.result.root
        root.index_to(None)  # finds the end, and what follows it
        if not parser.damage.is_mended:
            maker = self._start()
            walk = self._walk = TextWalk(parser, root)
            walk.push(walk.data.pread(root.start, 1)[0])
            walk.pos += 1
            walk.on_close, walk.on_note = self._close_brackets, self._note_fault
            try:
                self._run(tokens(walk, detail=True))
            finally:
                walk.charge.release()
                self._walk = walk.on_close = walk.on_note = None
            fault = walk.fault
            if fault is None or fault.code != "malformed" or not parser.damage.mended():
                if walk.brackets:
                    maker.cut(self._lacking)
                made = self._finished(maker)
                if walk.brackets:
                    made.error = EndOfDataError("the JSON text ends early", offset=walk.end, source=made.name)
                return made, maker.charge
            maker.charge.release()
        maker = self._start()
        self._run(parser.walk(root))
        while len(self._stack) > 1:
            self._close()
        maker.mark(f"the JSON text is damaged: {root.finding.reason if root.finding is not None else 'see above'}")
        return self._finished(maker), maker.charge

    def _start(self) -> WireMaker:
        self._maker = WireMaker(self._extraction.session.budget)
        self._stack = [_JsonLevel(_MESSAGE, self.type)]
        return self._maker

    def _finished(self, maker: WireMaker) -> Data:
        return maker.finish(f"{self._extraction.path} (as {self.type.full_name})", self._extraction.session.stats)

    # -- the walk ----------------------------------------------------------------------------------------------------

    def _run(self, visits: Iterator[Visit]) -> None:
        """Make a message of what the walk tells."""
        stack, told = self._stack, len(self._findings)
        for visit in visits:
            if self._walk is None and visit.depth and len(self._findings) != told:
                self._mark_fault(told)
            while len(stack) > max(1, visit.depth):
                self._close()
            if self._walk is None and visit.depth and len(self._findings) != told:
                self._mark_fault(told)
            if 0 < visit.depth <= len(stack):  # otherwise it is the root, or below something that is not read
                self._take(stack[-1], visit)
            told = len(self._findings)
        if self._walk is None and len(self._findings) != told:
            self._mark_fault(told)

    def _take(self, level: _JsonLevel, visit: Visit) -> None:
        if visit.shape == SCALAR:
            if level.kind != _SKIPPED:
                self._take_scalar(level, visit)
            return
        try:
            self._open(level, visit)
        except MalformedError as error:
            self._refuse(visit, error.reason)
            self._stack.append(_JsonLevel(_SKIPPED))

    def _close_brackets(self) -> None:
        """Close what the text closed."""
        walk = self._walk
        while walk is not None and len(self._stack) > max(1, len(walk.brackets)):
            self._close()

    def _note_fault(self, finding: Finding) -> None:
        """Condemn the message in which the walk found something wrong, unless it is left out in any case."""
        if finding.code == "malformed" or self._stack[-1].kind != _SKIPPED:
            self._maker.mark(f"{finding.reason}, at offset {finding.offset} of the JSON text")

    def _mark_fault(self, told: int) -> None:
        """Condemn the innermost message for what a walk over nodes found wrong, after ``told`` findings."""
        findings = self._findings
        kept = len(findings) - findings.omitted
        found = findings[min(told, kept - 1)]
        if found.code != "truncated":
            self._maker.mark(f"{found.reason}, at offset {found.offset} of the JSON text")

    def _close(self) -> None:
        level = self._stack.pop()
        for _ in range(level.frames):
            self._maker.close()
        if level.tail:
            self._maker.add(level.tail)

    def _refuse(self, visit: Visit, reason: str, offset: int | None = None) -> None:
        """Leave a value out, and condemn the message around it."""
        findings = self._findings
        at = visit.start if offset is None else offset
        path = "" if findings.full else visit.path
        findings.add(Finding("malformed", reason, path=path, source=self._extraction.name, offset=at))
        self._maker.mark(f"{reason}, at offset {at} of the JSON text")

    # -- fields ------------------------------------------------------------------------------------------------------

    def _field(self, level: _JsonLevel, visit: Visit) -> FieldType | None:
        """Return the field that a value belongs to, with the key of a map written; None if it is to be skipped."""
        if level.kind == _LIST:
            return level.field
        if level.kind == _MAP:
            return level.field.map_value if level.field is not None else None
        assert level.type is not None  # noqa: S101 -- messages have a type
        name = visit.key
        if not isinstance(name, str):
            return None  # its key is damaged, which is reported
        field = self._named(level.type, name)
        if field is None:
            self._note_unknown(level.type, name, visit)
            return None
        if visit.kind != "null":
            for said in (field.number, field.oneof):
                if said in level.seen:
                    what = "it" if said == field.number else f"another member of the oneof {said}"
                    self._refuse(visit, f"{field.name}: {what} was set before")
                if said is not None:
                    level.seen.add(said)
        return field

    def _named(self, type: MessageType, name: str) -> FieldType | None:
        """Return the field with that name, as in the ``.proto`` file or as in JSON."""
        names = self._names.get(type)
        if names is None:
            names = self._names[type] = {field.json_name: field for field in type.fields.values()} | type.by_name
        return names.get(name)

    def _note_unknown(self, type: MessageType, name: str, visit: Visit) -> None:
        """Warn of a field that the schema does not have; if it is almost called as another, its name is damaged."""
        known = self._unknown.get((type, name))
        if known is None and len(self._unknown) < _MOST_UNKNOWN:
            from difflib import get_close_matches

            names = [field.json_name for field in type.fields.values()]
            close = get_close_matches(name, [*type.by_name, *names], 1, _ALIKE) if len(name) <= _LONGEST_NAME else []
            known = self._unknown[type, name] = close[0] if close else ""
            if not known:
                reason = f"{type.full_name} has no field {name[:_LONGEST_NAME]!r}: left out"
                warning = Finding("unknown-field", reason, severity=Severity.WARNING, offset=visit.start)
                warning.source = self._extraction.name
                self._findings.add(warning)
        if known:
            self._refuse(visit, f"{type.full_name} has no field {name!r}, but one called {known!r}")

    def _enter(self, level: _JsonLevel, visit: Visit, field: FieldType) -> int:
        """Open the entry of a map, with its key; return how many frames were opened."""
        if level.kind != _MAP or level.field is None or level.field.map_key is None:
            return 0
        key = key_of(level.field.map_key, str(visit.key))
        self._maker.open(_tag(level.field))
        self._maker.add(_encoded(level.field.map_key, key))
        return 1

    # -- objects and arrays ------------------------------------------------------------------------------------------

    def _open(self, level: _JsonLevel, visit: Visit) -> None:
        """Open a container. Raise `MalformedError` if its field has none of this kind."""
        if level.kind == _ANY:
            raise MalformedError("the type of the message in it, '@type', does not come first")
        field = self._field(level, visit) if level.kind != _SKIPPED else None
        if field is None:
            self._stack.append(_JsonLevel(_SKIPPED))
            return
        is_object = visit.kind == "object"
        single = level.kind in (_LIST, _MAP) or not field.repeated
        if not single and not field.is_map:
            if is_object:
                raise MalformedError(f"an object for the repeated field {field.name}")
            self._stack.append(_JsonLevel(_LIST, field=field))
        elif not single:
            if not is_object:
                raise MalformedError(f"an array for the map {field.name}")
            self._stack.append(_JsonLevel(_MAP, field=field))
        elif not is_object or not is_message(field) or field.message is None:
            raise MalformedError(f"an {visit.kind} for {field.name}, a {field.type_name}")
        else:
            self._open_message(level, visit, field, field.message)

    def _open_message(self, level: _JsonLevel, visit: Visit, field: FieldType, type: MessageType) -> None:
        if type.full_name in OWN_FORMS:
            raise MalformedError(f"{type.full_name} has a JSON form of its own, which is not read")
        if type.full_name in WRAPPERS:
            raise MalformedError(f"an object for {field.name}, a {type.full_name}")
        frames = self._enter(level, visit, field)
        made = _JsonLevel(_ANY if type.full_name == ANY else _MESSAGE, type, field, frames + 1)
        if field.type == TYPE_GROUP:
            self._maker.add(encode_varint(field.number << 3 | START_GROUP))
            made.frames, made.tail = frames, encode_varint(field.number << 3 | END_GROUP)
        else:
            self._maker.open(_tag(field))
        self._stack.append(made)

    def _take_type(self, level: _JsonLevel, visit: Visit) -> None:
        """Take the type of the message in an Any."""
        url = self._value(visit)
        type = self.type.schema.find(url.rpartition("/")[2]) if isinstance(url, str) else None
        assert level.type is not None  # noqa: S101 -- messages have a type
        if visit.key != "@type" or not isinstance(url, str):
            raise MalformedError("the type of the message in it, '@type', does not come first")
        if not isinstance(type, MessageType) or type.full_name in OWN_FORMS or type.full_name == ANY:
            raise MalformedError(f"it holds a message of type {url[:200]!r}, which is not known")
        self._maker.add(_encoded(level.type.fields[1], url))
        self._maker.open(_tag(level.type.fields[2]))
        level.kind, level.type = _MESSAGE, type
        level.frames += 1

    # -- scalars -----------------------------------------------------------------------------------------------------

    def _take_scalar(self, level: _JsonLevel, visit: Visit) -> None:
        """Make a field of a scalar."""
        status, finding = visit.status, visit.finding
        if status is Status.TRUNCATED:
            self._take_cut(level, visit)
            return
        unsure = finding is not None and finding.code == UNSURE_NUMBER
        if unsure or status not in (None, Status.COMPLETE):
            reason = finding.reason if finding is not None else "it cannot be read"
            self._maker.mark(f"{reason}, at offset {visit.start} of the JSON text")
            if not unsure:
                return
        try:
            if level.kind == _ANY:
                self._take_type(level, visit)
                return
            field = self._field(level, visit)
            if field is not None:
                self._take_value(level, visit, field)
        except MalformedError as error:
            self._refuse(visit, error.reason, error.offset)
            if level.kind == _ANY:
                level.kind = _SKIPPED

    def _take_value(self, level: _JsonLevel, visit: Visit, field: FieldType) -> None:
        if visit.kind == "null" and level.kind == _MESSAGE:
            return  # not set
        if level.kind == _MESSAGE and field.repeated:
            raise MalformedError(f"a {visit.kind} for the repeated field {field.name}")
        message = field.message
        if message is not None and (message.full_name not in WRAPPERS or visit.kind == "null"):
            raise MalformedError(f"a {visit.kind} for {field.name}, a {message.full_name}")
        if level.kind == _LIST and message is None and field.wire_type != LEN:
            self._take_numbers(level, visit, field)
            return
        size = (visit.end or visit.start) - visit.start
        is_large = visit.kind == "string" and size > _LARGE and visit.value is UNLOADED_VALUE
        value = None
        if not is_large:
            inner = field if message is None else message.by_name["value"]
            value = value_of(inner, self._value(visit))
        frames = self._enter(level, visit, field)
        if message is not None:
            self._maker.open(_tag(field))
            frames += 1
            field = message.by_name["value"]
        try:
            if is_large:
                self._add_large(visit, field)
            else:
                self._maker.add(_encoded(field, value))
        finally:
            for _ in range(frames):
                self._maker.close()

    def _value(self, visit: Visit) -> Any:
        """Return the value of a scalar."""
        if visit.value is not UNLOADED_VALUE:
            return visit.value
        start, end = visit.start, visit.end or visit.start
        if end - start > BORN_LOADED:
            self._extraction.session.limits.check("scalar_bytes", end - start, "the text", offset=start)
        return self.parser.decoder.decode(self._extraction.data.read_exact(start, end - start), start)

    def _take_numbers(self, level: _JsonLevel, visit: Visit, field: FieldType) -> None:
        """Add an element of a packed list, and those that follow it in the block."""
        if not level.frames:
            level.frames = 1
            self._maker.open(encode_varint(field.number << 3 | LEN), is_list=True)
        self._maker.add(encode(field, value_of(field, self._value(visit))))
        if self._walk is None:
            return
        at = self._walk.pos
        values = following_scalars(self._walk)
        if values:
            self._maker.add(self._packed(field, values, at))

    def _packed(self, field: FieldType, values: list[Any], at: int) -> bytes:
        """Return numbers in wire format; ``at`` is where they begin in the text."""
        quick = packed_at_once(field, values)
        if quick is not None:
            return quick
        made = bytearray()
        for value in values:
            try:
                made += encode(field, value_of(field, value))
            except MalformedError as error:
                reason = f"an element of {field.name} is left out: {error.reason}"
                self._findings.add(Finding("malformed", reason, source=self._extraction.name, offset=at))
                self._maker.mark(f"{reason}, behind offset {at} of the JSON text")
        return bytes(made)

    # -- long texts --------------------------------------------------------------------------------------------------

    def _add_large(self, visit: Visit, field: FieldType) -> None:
        """Add a long text, which stays where it is if it has no escapes; or the bytes of a base64 text."""
        text = self._extraction.data.range(visit.start + 1, (visit.end or 0) - 1)
        if field.type == TYPE_BYTES:
            bytes_ = self._base64(text, visit)
            if bytes_.odd:
                self._refuse(visit, "the base64 text has one character too many, or lacks some")
            size = bytes_.size or 0
            self._maker.add(_tag(field) + encode_varint(size))
            self._maker.add_range(bytes_.range(0, size))
        elif field.type == TYPE_STRING and not self._has_escapes(text):
            self._maker.add(_tag(field) + encode_varint(len(text)))
            self._maker.add_range(text)
        else:
            self._maker.add(_encoded(field, value_of(field, self._value(visit))))

    def _base64(self, text: Range, visit: Visit) -> Base64Data:
        stats = self._extraction.session.stats
        path = "" if self._findings.full else visit.path
        if self._has_escapes(text):
            plain = UnescapedText(text, self._extraction.name, stats)
            self._maker.hold(plain.memory)
            text = plain.range(0, plain.size or 0)
        made = Base64Data(text, self._extraction.name, stats)
        findings, source, start = self._findings, self._extraction.name, visit.start

        def tell(offset: int) -> None:
            places = text.data.locate(offset, 1)
            at = places[0][1] if places else start
            findings.add(Finding("malformed", "a character that is not base64", path=path, source=source, offset=at))

        made.on_bad = tell
        return made

    def _has_escapes(self, text: Range) -> bool:
        return any(b"\\" in block for block in blocks(text.data.pread, text.start, text.end, _BLOCK))

    def _take_cut(self, level: _JsonLevel, visit: Visit) -> None:
        """Add what there is of a text that the end of the document cuts; its frames stay open."""
        if visit.kind != "string" or level.kind == _ANY:
            return
        field = self._field(level, visit)
        if field is None or field.type not in (TYPE_BYTES, TYPE_STRING) or (level.kind == _MESSAGE and field.repeated):
            return
        end = self._extraction.find_end()
        text = self._extraction.data.range(min(visit.start + 1, end), end)
        try:
            self._enter(level, visit, field)
        except MalformedError as error:
            self._refuse(visit, error.reason)
            return
        before = self._maker.so_far()
        self._maker.open(_tag(field), is_list=True)
        if field.type == TYPE_STRING:
            if not self._has_escapes(text):
                self._maker.add_range(text)
            return
        there = self._base64(text, visit)
        if level.type is not None:
            self._lacking = max(1, self._missing(level.type, field, before or b"", there.size or 0))
        self._maker.add_range(there.range(0, there.size or 0))


def _tag(field: FieldType) -> bytes:
    """Return the tag of one element of a field."""
    return encode_varint(field.number << 3 | field.wire_type)


def _encoded(field: FieldType, value: Any) -> bytes:
    return _tag(field) + encode(field, value)


# -- wire format -------------------------------------------------------------------------------------------------------


class _JsonFrame:
    """A message, or a packed list, that is still open."""

    __slots__ = ("buffer", "inside", "is_list", "marks", "parts", "reason", "size", "tag")

    def __init__(self, tag: bytes, *, is_list: bool = False) -> None:
        self.tag = tag
        self.is_list = is_list
        self.inside: list[tuple[int, int]] = []  # the messages in it, which are not in doubt if it is
        self.buffer = bytearray()  # the bytes behind all parts
        self.parts: list[bytes | Range] = []
        self.size = 0  # of the parts
        self.marks: list[tuple[int, int, str]] = []  # what is in doubt below it, by offsets of its content
        self.reason: str | None = None  # why it is in doubt itself

    def doubts(self, head: int) -> list[tuple[int, int, str]]:
        """Return what is in doubt: of a frame that is itself, all but the messages in it, with its ``head`` bytes."""
        if self.reason is None:
            return self.marks
        if len(self.inside) > _MOST_INSIDE:
            return [(-head, 1, self.reason), *self.marks]
        found = []
        last = -head
        for first, end in self.inside:
            found.append((last, first, self.reason))
            last = end
        found.append((last, self.size + len(self.buffer), self.reason))
        return found + self.marks


class WireMaker:
    """Makes one message. Frames are opened and closed like brackets; the outermost is the message itself."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.charge = budget.charge(0, "the small fields of a message in JSON form")
        """The memory of what was made."""
        self._frames = [_JsonFrame(b"")]
        self._held = 0  # bytes in memory, and the cost of parts
        self._asked = 0

    # -- making ------------------------------------------------------------------------------------------------------

    def open(self, tag: bytes, *, is_list: bool = False) -> None:
        """Begin a message, or a packed list or another long value."""
        self._frames.append(_JsonFrame(tag, is_list=is_list))

    def add(self, content: bytes) -> None:
        """Add bytes in wire format. Raise `LimitError` if the budget has no room for them."""
        frame = self._frames[-1]
        frame.buffer += content
        self.hold(len(content))
        if len(frame.buffer) > _FLUSH:
            self._flush(frame)

    def add_range(self, part: Range) -> None:
        """Add a range of other data."""
        frame = self._frames[-1]
        self._flush(frame)
        frame.parts.append(part)
        frame.size += part.end - part.start
        self.hold(_PART_COST)

    def mark(self, reason: str) -> None:
        """Take note that the innermost message may not be what was meant, nor a list in it that is open."""
        for frame in reversed(self._frames):
            frame.reason = frame.reason or reason
            if not frame.is_list:
                return

    def so_far(self) -> bytes | None:
        """Return what the innermost message consists of, if all of it is in memory; else None."""
        frame = self._frames[-1]
        return None if frame.parts else bytes(frame.buffer)

    def close(self, missing: int = 0) -> None:
        """End the innermost message or list; it claims ``missing`` bytes that do not follow."""
        frame = self._frames.pop()
        around = self._frames[-1]
        size = frame.size + len(frame.buffer)
        head = frame.tag + encode_varint(size + missing)
        around.buffer += head
        self.hold(len(head))
        start = around.size + len(around.buffer)
        around.marks += ((start + first, start + last, reason) for first, last, reason in frame.doubts(len(head)))
        if not frame.is_list and len(around.inside) <= _MOST_INSIDE:
            around.inside.append((start, start + size))
        if len(around.marks) > _MOST_MARKS:
            first = min(mark[0] for mark in around.marks)
            last = max(mark[1] for mark in around.marks)
            around.marks = [(first, last, around.marks[0][2])]
        if frame.parts:
            self._flush(around)
            around.parts += frame.parts
            around.size += frame.size
        around.buffer += frame.buffer
        if len(around.buffer) > _FLUSH:
            self._flush(around)

    def _flush(self, frame: _JsonFrame) -> None:
        if frame.buffer:
            frame.parts.append(bytes(frame.buffer))
            frame.size += len(frame.buffer)
            frame.buffer = bytearray()
            self.hold(_PART_COST)

    def hold(self, count: int) -> None:
        """Charge memory: of bytes, or what ranges take besides. Raise `LimitError` if the budget has no room for it."""
        self._held += count
        if self._held - self._asked > _FLUSH:
            self._asked = self._held
            self.charge.resize(2 * self._held)  # twice for a moment, when all is joined

    # -- the end -----------------------------------------------------------------------------------------------------

    def cut(self, missing: int = 1) -> None:
        """End the message inside of the frames that are open: each claims ``missing`` bytes more than there are."""
        if len(self._frames) == 1:
            self.add(_BROKEN_TAG)
        while len(self._frames) > 1:
            self.close(missing)

    def finish(self, name: str, stats: IoStats | None) -> Data:
        """Return the message, with what is in doubt condemned."""
        while len(self._frames) > 1:
            self.close()
        root = self._frames.pop()
        self._flush(root)
        doubts = root.doubts(0)
        memory = b"".join(part for part in root.parts if isinstance(part, bytes))
        held = BytesData(memory, name, stats)
        parts: list[Range] = []
        at = 0
        for part in root.parts:
            if isinstance(part, bytes):
                parts.append(held.range(at, at + len(part)))
                at += len(part)
            else:
                parts.append(part)
        made = SplicedData(parts, name, stats)
        for first, last, reason in doubts:
            made.condemn(first, last, reason)
        self.charge.resize(self._held)
        return made
