"""FlexBuffers: values that tell their own types, read from the end of a buffer back to its beginning.

All numbers are little-endian (https://flatbuffers.dev/flexbuffers, include/flatbuffers/flexbuffers.h). A value is told
by a type byte, the kind of it times four plus the logarithm of its width (1, 2, 4 or 8 bytes), and by what stands in
its place, which is as wide as all places of its vector: the value itself (null, numbers, bool), or an unsigned offset
to it, to be subtracted from where it stands. So no chain of offsets is a circle, and what a value consists of ends
before its place begins (an empty vector may end there: its offset is 0). The last byte of the buffer is the width of
the root's place, its type byte is before that, and the place before both.

    vector          [count] places, then a type byte for each; the offset leads behind the count, which is as wide
    map             [offset to the keys] [width of their places] [count] as a vector; the keys are sorted by their bytes
    typed vector    [count] places of one type, without type bytes; of 2, 3 or 4 numbers: without a count
    text, bytes     [count] the bytes; behind those of a text a zero, which does not count
    key             bytes up to a zero
"""

from __future__ import annotations

from struct import unpack

from pparse.data.base import find_not_utf8
from pparse.errors import DataError, MalformedError
from pparse.findings import COMPLETE, Finding, Status
from pparse.limits import count_words
from pparse.tree.context import SHORT_TEXT, NumberArray, decode_text
from pparse.tree.entry import UNLOADED_VALUE, Entry
from pparse.tree.index import EACH, KeyTable, key_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.limits import Charge
    from pparse.parsers.flatbuffers.reader import Reader
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex

    # A type byte, where the value's place is, and how wide that is.
    Place = tuple[int, int, int]

# Kinds of values, as type bytes have them.
_NULL, _FLOAT, _KEY, _TEXT, _MAP, _VECTOR, _BLOB, _BOOL = 0, 3, 4, 5, 9, 10, 25, 26
_LAYOUTS: Final = {1: "bhiq", 2: "BHIQ", _FLOAT: " efd", _BOOL: "?HIQ"}  # by the logarithm of the width
_NAMES: Final = {1: "int", 2: "uint", _FLOAT: "float"}
# Of kinds with an offset to one number, to many, and to 2, 3 or 4: the kind of the numbers (and how many there are).
_INDIRECT: Final = {6: 1, 7: 2, 8: _FLOAT}
_TYPED: Final = {11: 1, 12: 2, 13: _FLOAT, 14: _KEY, 15: _KEY, 36: _BOOL}  # 15: texts, of which only the zero is known
_FIXED: Final = {16 + 3 * (count - 2) + kind - 1: (kind, count) for count in (2, 3, 4) for kind in (1, 2, 3)}
# The longest key that is looked for; what a vector takes that was seen.
_LONGEST: Final = 64 << 10
_EACH: Final = 120
_BLOCK: Final = 1024
# What a value has before it at most: of a map, three numbers.
_HEAD: Final = 24
_LOGS: Final = {1: 0, 2: 1, 4: 2, 8: 3}
_LISTS: Final = {_KEY: "[key]", _BOOL: "[bool]"}


class FlexVector:
    """The note of a node whose children are found by arithmetic: a vector or a map."""

    __slots__ = ("at", "buffer", "count", "keys", "packed", "width")

    def __init__(self, buffer: FlexBuffer, at: int, count: int, width: int, packed: int | None) -> None:
        self.buffer = buffer
        """What it is part of."""
        self.at = at
        """Offset of the first place."""
        self.count = count
        """How many elements it has."""
        self.width = width
        """Bytes of a place."""
        self.packed = packed
        """The type byte of all elements; None: each has its own, behind the places."""
        self.keys: tuple[int, int] | None = None
        """Of a map: offset of the first place of a key, and how wide such a place is."""

    @property
    def end(self) -> int:
        """Offset behind its places and type bytes."""
        return self.at + self.count * (self.width + (self.packed is None))

    def index(self, index: ChildIndex) -> None:
        """Count the children; those of a map are found by their order."""
        if self.keys is not None:
            index.table = SortedKeys(self)
        index.learns = True  # an entry is read alone: its neighbours lead elsewhere
        index.keep(self, self.count)

    def entries(self, first: int, count: int) -> list[Entry]:
        """Return the entries of elements, from number ``first`` on, some at a time."""
        count, describe = min(count, self.count - first, _BLOCK), self.buffer.describe
        at, width = self.at + first * self.width, self.width
        types = (
            bytes((self.packed,)) * count
            if self.packed is not None
            else self.buffer.reader.take(self.at + self.count * width + first, count)
        )
        places = range(at, at + count * width, width)
        if self.keys is None:
            return [describe(None, packed, place, width) for packed, place in zip(types, places, strict=True)]
        found = []
        for number, packed, place in zip(range(first, first + count), types, places, strict=True):
            try:
                key = named(self.key(number))
            except DataError as error:
                found.append(self.buffer.broken(None, place, error))
            else:
                found.append(describe(key, packed, place, width))
        return self._doubted(first, found)

    def _doubted(self, first: int, entries: list[Entry]) -> list[Entry]:
        """Return entries of a map; one whose key, or what leads to it, may be wrong is damaged: it may be another."""
        data, (start, width) = self.buffer.reader.data, self.keys or (0, 0)
        for number, entry in enumerate(entries if data.flawed else (), first):
            if entry.status is not COMPLETE or entry.key is None:
                continue
            place, key_at = self.at + number * self.width, start + number * width
            parts = [(place, self.width), (key_at, width)]
            parts += [(self.at + self.count * self.width + number, 1)] if self.packed is None else []
            parts.append((self.buffer.target(key_at, width), len(self.key(number)) + 1))
            if any(data.range_status(at, at + size).status is not COMPLETE for at, size in parts):
                error = MalformedError("its key, or what leads to it, is in doubt", offset=place)
                entry.status, entry.finding = Status.DAMAGED, self.buffer._wrong(error)
        return entries

    def key(self, number: int) -> bytes:
        """Return the key of an element of a map. Raises `DataError` if it cannot be read."""
        start, width = self.keys or (0, 0)
        place = start + number * width
        return self.buffer.text_to_zero(self.buffer.target(place, width), place)

    def keys_begin(self) -> int:
        """Return where the first of its keys, in the order of the file, begins. Raises `MalformedError` if they are not
        sorted, or cannot be read."""
        lowest, before = self.at, b""
        start, width = self.keys or (0, 0)
        for place in range(start, start + self.count * width, width):
            at = self.buffer.target(place, width)
            key = self.buffer.text_to_zero(at, place)
            if key < before:
                raise MalformedError("the keys of a map are out of order", offset=place)
            lowest, before = min(lowest, at), key
        return lowest

    def lower_bound(self, key: bytes) -> int:
        """Return the number of the first key that is not less than ``key``, if they are sorted."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low


class SortedKeys(KeyTable):
    """Finds keys of a map by halving; a table is made only if they turn out to be out of order."""

    __slots__ = ("_charge", "_ordered", "_vector")

    def __init__(self, vector: FlexVector) -> None:
        super().__init__()
        self._vector = vector
        self._ordered: bool | None = None
        self._charge: Charge | None = None
        self.covered = vector.count

    def nth(self, key: object, occurrence: int) -> int | None:
        """Return the number of the n-th of equal keys; None if there are fewer. Raises `DataError`, `LimitError`."""
        if self._ordered is not False:
            found = self._halved(key, occurrence)
            if found is not None or self._is_ordered():
                return found
        return super().nth(key, occurrence)

    def _halved(self, key: object, occurrence: int) -> int | None:
        raw = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
        vector = self._vector
        if not isinstance(raw, bytes):
            return None
        try:
            found = vector.lower_bound(raw) + occurrence - 1
            return found if found < vector.count and vector.key(found) == raw else None
        except MalformedError:  # of another key
            return None

    def _keys(self) -> Iterator[bytes]:
        for number in range(self._vector.count):
            try:
                yield self._vector.key(number)
            except MalformedError:
                yield b"\0"  # no key has one

    def _is_ordered(self) -> bool:
        """Compare each key with the next, once; if they are out of order, make the table."""
        if self._ordered is None:
            try:
                self._vector.keys_begin()
                self._ordered = True
            except MalformedError:
                count = self._vector.count
                self._charge = self._vector.buffer.reader.budget.charge(EACH * count, "a table of keys out of order")
                self.covered = 0
                self.extend(key_hash(named(key)) for key in self._keys())
                self._ordered = False
        return self._ordered

    def before(self, key: object, ordinal: int) -> int:
        """Return how many keys equal to ``key`` come before ``ordinal``."""
        first = self.nth(key, 1) if self._is_ordered() else None
        return super().before(key, ordinal) if first is None else ordinal - first

    @property
    def memory(self) -> int:
        """Bytes held, and not charged by itself."""
        return 0


class FlexBuffer:
    """The FlexBuffer in bytes ``[start, end)`` of what a reader reads."""

    __slots__ = ("end", "name", "reader", "start")

    def __init__(self, reader: Reader, start: int, end: int, name: str) -> None:
        self.reader = reader
        """Reads it."""
        self.start = start
        """Offset of its first byte."""
        self.end = end
        """Offset behind its last byte."""
        self.name = name
        """Where findings say that they are."""

    def root(self) -> Entry:
        """Describe the root. Raises `MalformedError` if the last bytes cannot be those of one.

        Writers put the root last: between the end of what it consists of, and its place, are but zeros up to the next
        multiple of its width. So the end of a file that was cut is hardly ever taken for one.
        """
        end = self.end - 2
        if end <= self.start:
            raise MalformedError("a FlexBuffer has three bytes at least", offset=self.start)
        packed, width = self.reader.take(end, 2)
        place = end - width
        if width not in _LOGS or place < self.start:
            raise MalformedError(f"the last byte is {width}, and no width of a root", offset=end + 1)
        found = self.describe(None, packed, place, width)
        if found.finding is not None:
            raise MalformedError(found.finding.reason, offset=found.finding.offset)
        note = found.note
        stop = note.end if type(note) is FlexVector else (found.end or 0) + (packed >> 2 in (_KEY, _TEXT))
        if packed >> 2 == _NULL or packed >> 2 in _LAYOUTS:
            place, stop = self.start, place  # nothing is before it
        if not 0 <= place - stop < width or any(self.reader.take(stop, place - stop)):
            raise MalformedError("what the last bytes lead to is not before them", offset=end)
        return found

    def target(self, place: int, width: int) -> int:
        """Return where the offset in a place leads to."""
        offset = int.from_bytes(self.reader.take(place, width), "little")
        if offset > place - self.start:
            raise MalformedError(f"the offset is {offset:,}: it leads nowhere", offset=place)
        return self.reader.leads(place, place - offset)

    def text_to_zero(self, at: int, stop: int) -> bytes:
        """Return the bytes up to a zero, which is before ``stop``."""
        size = 64
        while True:
            raw = self.reader.take(at, min(size, stop - at))
            end = raw.find(0)
            if end >= 0:
                return raw[:end]
            if size >= min(_LONGEST, stop - at):
                raise MalformedError("no zero ends the key", offset=at)
            size *= 32

    def describe(self, key: Key, packed: int, place: int, wide: int) -> Entry:
        """Return the entry of a value by its type byte and its place, which is ``wide`` bytes wide."""
        kind, log = packed >> 2, packed & 3
        try:
            if kind in _LAYOUTS:
                return self._number(key, kind, place, wide)
            if kind == _NULL:
                return Entry(key, "null", place, place + wide, None)
            at = self.target(place, wide)
            if kind in _INDIRECT:
                self._room(at, 1, 1 << log, place)
                return self._number(key, _INDIRECT[kind], at, 1 << log)
            if kind == _KEY:
                raw = self.text_to_zero(at, place)
                return Entry(key, "key", at, at + len(raw), decode_text(raw, at, "the key"))
            if kind in _FIXED:
                item, count = _FIXED[kind]
                return self.vector(key, at, count, 1 << log, item, place)
            count = self._count(at, 1 << log)
            if kind in _TYPED:
                return self.vector(key, at, count, 1 << log, _TYPED[kind], place)
            if kind in (_MAP, _VECTOR):
                return self.vector(key, at, count, 1 << log, None, place, is_map=kind == _MAP)
            if kind in (_TEXT, _BLOB):
                return self._bytes(key, at, count, place, is_text=kind == _TEXT)
            raise MalformedError(f"there is no type {kind}", offset=place)
        except DataError as error:
            return self.broken(key, place, error)

    def _count(self, at: int, width: int) -> int:
        """Return the number before ``at``."""
        if at - width < self.start:
            raise MalformedError("a count cannot be where it should", offset=at)
        return int.from_bytes(self.reader.take(at - width, width), "little")

    @staticmethod
    def _room(at: int, count: int, size: int, stop: int) -> None:
        """Raise `MalformedError` unless ``count`` elements at ``at`` end before ``stop``, which led to them."""
        if count > (stop - at) // size:
            told = f"{count_words(count, 'element')} of {count_words(size, 'byte')}"
            raise MalformedError(f"{told} are to be in {count_words(stop - at, 'byte')}", offset=at)

    def _number(self, key: Key, kind: int, at: int, width: int) -> Entry:
        layout = _LAYOUTS[kind][_LOGS[width]]
        if layout == " ":
            raise MalformedError("there are no floats of one byte", offset=at)
        (value,) = unpack("<" + layout, self.reader.take(at, width))
        if kind == _BOOL:
            return Entry(key, "bool", at, at + width, bool(value))
        return Entry(key, f"{_NAMES[kind]}{8 * width}", at, at + width, value)

    def _bytes(self, key: Key, at: int, count: int, place: int, *, is_text: bool) -> Entry:
        self._room(at, count, 1, place - is_text)
        entry = Entry(key, "text" if is_text else "bytes", at, at + count)
        if is_text:
            if self.reader.take(at + count, 1) != b"\0":
                raise MalformedError("no zero ends the text", offset=at + count)
            if count <= SHORT_TEXT:
                entry.value = decode_text(self.reader.take(at, count), at)
        return entry

    def vector(
        self, key: Key, at: int, count: int, width: int, item: int | None, place: int, *, is_map: bool = False
    ) -> Entry:
        """Return the entry of ``count`` elements of ``width`` bytes at ``at``, which end before ``place``.

        They are all of the kind ``item``; None: each has a type byte of its own. Raises `DataError`.
        """
        self._room(at, count, width + (item is None), place)
        if item in _LAYOUTS and (item != _BOOL or width == 1):
            layout = _LAYOUTS[item][_LOGS[width]]
            if layout == " ":
                raise MalformedError("there are no floats of one byte", offset=at)
            return Entry(key, "array", at, at + count * width, note=NumberArray("<" + layout, count))
        note = FlexVector(self, at, count, width, None if item is None else item << 2)
        if is_map:
            keys = self.target(at - 3 * width, width) if at - 3 * width >= self.start else self.start
            wide = self._count(at - width, width)
            if wide not in _LOGS or self._count(keys, wide) != count:
                raise MalformedError("a map has another number of keys than of values", offset=at)
            self._room(keys, count, wide, at - 3 * width)
            note.keys = keys, wide
        return Entry(key, "map" if is_map else _LISTS.get(item or 0, "[value]"), at, note.end, note=note)

    def flaw(self, root: Entry) -> Finding | None:
        """Return what is wrong first in the root, or that bytes before belong to nothing; None: nothing is."""
        inspection = Inspection(self)
        finding = inspection.flaw(root)
        lowest = min(inspection.lowest, inspection.lowest_key) - self.start
        if finding is None and lowest > _HEAD:
            reason = f"the first {count_words(lowest, 'byte')} belong to no value"
            return self._wrong(MalformedError(reason, offset=self.start))
        return finding

    def _wrong(self, error: DataError) -> Finding:
        return Finding(Status.after(error).code, error.reason, offset=error.offset, source=self.name)

    def broken(self, key: Key, place: int, error: DataError) -> Entry:
        """Return the entry of a value that cannot be read."""
        return Entry(key, "value", place, place, status=Status.after(error), finding=self._wrong(error))


class Inspection:
    """Goes through values, each vector once for each way to read it.

    Vectors of a good file share no bytes: more elements than there are bytes are refused, so the time is linear.
    """

    __slots__ = ("_buffer", "_left", "lowest", "lowest_key")

    def __init__(self, buffer: FlexBuffer) -> None:
        self._buffer = buffer
        self._left = buffer.end - buffer.start
        self.lowest = self.lowest_key = buffer.end
        """Where the first of the values begins, and the first of the keys, in the order of the file."""

    def flaw(self, root: Entry) -> Finding | None:
        """Return what is wrong first in a value, or below it; None: nothing is. Raises `LimitError`."""
        buffer = self._buffer
        self.lowest = root.start
        seen: set[tuple[int, int, int | None, bool]] = set()
        todo = [root]
        with buffer.reader.budget.charge(0, "the vectors that were looked at") as charge:
            while todo:
                note = todo.pop().note
                if type(note) is not FlexVector or (mark := (note.at, note.width, note.packed, not note.keys)) in seen:
                    continue
                seen.add(mark)
                charge.resize(_EACH * (len(seen) + len(todo)))
                self._left -= note.count
                if self._left < 0:
                    return buffer._wrong(MalformedError("vectors share their bytes", offset=note.at))
                self.lowest = min(self.lowest, note.at)
                try:
                    if note.keys is not None:
                        self.lowest_key = min(self.lowest_key, note.keys_begin())
                except DataError as error:
                    return buffer._wrong(error)
                for first in range(0, note.count, _BLOCK):
                    for entry in note.entries(first, _BLOCK):
                        if entry.finding is not None:
                            return entry.finding
                        self.lowest = min(self.lowest, entry.start)
                        if entry.note is not None:
                            todo.append(entry)
                        elif entry.kind == "text" and entry.value is UNLOADED_VALUE:
                            wrong = find_not_utf8(buffer.reader.data, entry.start, entry.end or 0)
                            if wrong is not None:
                                return buffer._wrong(MalformedError("the text is not UTF-8", offset=wrong))
        return None


def named(key: bytes) -> str | bytes:
    """Return a key as text, or as bytes if it is not UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def held(reader: Reader, start: int, end: int, name: str) -> Entry | None:
    """Return the root of the FlexBuffer that bytes are, if they are a map or a vector in all points; else None."""
    buffer = FlexBuffer(reader, start, end, name)
    try:
        root = buffer.root()
    except DataError:
        return None
    return root if type(root.note) is FlexVector and buffer.flaw(root) is None else None
