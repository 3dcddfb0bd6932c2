"""The metadata of a chunked proto: the last record of a ``.cpb``, read lazily.

``ChunkMetadata`` has the versions, one ``ChunkInfo`` (type, size, position) per chunk, and the tree of chunked fields
(tensorflow/tools/proto_splitter/chunk.proto). There may be millions of chunks and chunked fields: they stay bytes, and
are located by one scan that leaves a checkpoint per 64 of them.

The ``VersionDef`` of a file has the version of the splitter that wrote it (``splitter_version``, for information), the
least version of a merger that can merge it (``join_version``), and versions of mergers known to fail on it
(``bad_consumers``). TensorFlow's Merger ignores them all (tensorflow/tools/proto_splitter, version.py, versions.proto;
merge.cc).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import namedtuple
from itertools import groupby, islice, pairwise

from pparse.errors import MalformedError, UnsupportedError
from pparse.kernels.varint import decode_varints
from pparse.kernels.wire import LEN, PADDING, VARINT, fields, read_length, read_tag, read_value, skip_payload
from pparse.parsers.protobuf.index import PartScan
from pparse.protobuf.schema import signed
from pparse.tree.index import IndexNote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.limits import MemoryBudget
    from pparse.parsers.protobuf.index import WireField, WireWindow

    Record = tuple[int, int]  # its position, and its size


UNSET, MESSAGE, BYTES = 0, 1, 2
TYPE_NAMES: Final = {UNSET: "unset", MESSAGE: "message", BYTES: "bytes"}

# The versions that the splitter writes.
SPLITTER_VERSION: Final = 1
# The version of the readers: they cannot merge a file with a higher join_version.
JOIN_VERSION: Final = 0

_BLOCK: Final = 64 << 10
# A field, and an index or key, for each of the 100 levels that protobuf's own parsers allow.
_MAX_STEPS: Final = 200
# Larger than any real version, chunk info or tag.
_SMALL: Final = 1 << 20

# ChunkMetadata, ChunkedMessage, ChunkedField
_VERSION, _CHUNKS, _MESSAGE = 1, 2, 3
_TAGS: Final = (_VERSION << 3 | LEN, _CHUNKS << 3 | LEN, _MESSAGE << 3 | LEN)
_CHUNK_INDEX, _CHUNKED_FIELDS = 1, 2
_FIELD_TAG, _FIELD_MESSAGE = 1, 3
# Of a MapKey: boolean, ui32, ui64, i32 and i64, by the number of the field, made of a varint.
_NUMERIC_KEYS: Final[dict[int, Callable[[int], int]]] = {
    2: bool,
    3: lambda value: value & 0xFFFFFFFF,
    4: int,
    5: signed,
    6: lambda value: value - (value >> 63 << 64),
}
# Kinds of selectors in a tag.
INDEX: Final = "index"
KEY: Final = "key"

# One step of a tag: a field number, alone or with INDEX and a number, or KEY and a key.
Step = tuple[int, str | None, "Any"]


def check_versions(join_version: int, bad_consumers: Iterable[int], *, source: str | None = None) -> None:
    """Raise `UnsupportedError`, naming the version needed, if a file is not for readers of `JOIN_VERSION`.

    ``join_version`` and ``bad_consumers`` are those of the file's VersionDef (0 and none without a VersionDef);
    ``source`` is the file's name, for the error.
    """
    bad = set(bad_consumers)
    least = max(join_version, JOIN_VERSION)
    if least == JOIN_VERSION and JOIN_VERSION not in bad:
        return
    while least in bad:  # at most as many steps as versions in the set
        least += 1
    if join_version > JOIN_VERSION:
        reason = f"its chunks need a reader with join version {join_version}"
    else:
        reason = f"it excludes readers with join version {JOIN_VERSION}"
    error = UnsupportedError(f"{reason}; it needs join version {least} or later, this reader has {JOIN_VERSION}")
    error.source, error.wanted, error.got = source, least, JOIN_VERSION
    raise error


def small(window: WireWindow, field: WireField) -> bytes:
    """Return the content of a small message in the metadata. Raise `MalformedError` if it is too large."""
    if field.end - field.start > _SMALL:
        raise MalformedError(
            "a part of the chunk metadata is too large", offset=field.start, got=field.end - field.start
        )
    return window.read(field.start, field.end)


def scan_whole(part: Range, only: tuple[int, ...] = ()) -> PartScan:
    """Scan a message for which no tree is made. If ``only`` is given, other tags are an error.

    Raise `MalformedError` if it is truncated or damaged, or has another field.
    """
    found = PartScan(part, None)
    pos, end = part.start, part.end
    while pos < end:
        block = part.data.known(pos, min(_BLOCK, end - pos))
        final = pos + len(block) >= end
        if not block or (not final and len(block) < min(_BLOCK, end - pos)):
            raise MalformedError("the metadata end early", offset=pos, wanted=end - pos)
        pos = found.scan(block, pos, final=final)
        if only and not all(tag in only for tag in found.found):
            raise MalformedError("the last record is not chunk metadata", offset=part.start)
    if pos > end or found.groups:
        raise MalformedError("a field of the metadata extends beyond it", offset=end)
    return found


class ChunkInfo(namedtuple("ChunkInfo", "type size position lost", defaults=(False,))):
    """Where a chunk is.

    Its ``type`` (0 unset, 1 message, 2 bytes), ``size`` in bytes, and the ``position`` of its record; ``lost``: whether
    bytes of the file were removed or inserted, and no record is known to be this chunk.
    """

    __slots__ = ()


class ChunkMetadata:
    """The metadata of a ``.cpb``. Raise `MalformedError` if they are invalid, `UnsupportedError` for their version."""

    def __init__(self, record: Range, budget: MemoryBudget, *, any_version: bool = False) -> None:
        self.record = record
        # New positions of chunks by old position (None: lost), in a file in which bytes moved.
        self.moved: dict[int, int | None] | None = None
        self._scan = scan_whole(record, _TAGS)
        self._charge = budget.charge(self._scan.memory, "the index of the chunks")
        if len(record) and _MESSAGE not in self._scan.slots:
            raise MalformedError("the chunk metadata end before the tree of chunked fields", offset=record.start)
        chunks = self._scan.slots.get(_CHUNKS)
        self.chunk_count = chunks.count if chunks is not None else 0
        self.splitter_version, self.join_version, self.bad_consumers = self._versions()
        if not any_version:
            check_versions(self.join_version, self.bad_consumers, source=record.data.name)
        trees = self._scan.fields(_MESSAGE) if _MESSAGE in self._scan.slots else ()
        self.root = ChunkedMessage([record.data.range(field.start, field.end) for field in trees], budget)

    def verify(self, check_cancelled: Callable[[], None] = lambda: None) -> None:
        """Check the metadata down to their leaves, in one pass. Raise `MalformedError` if they are not sound."""
        from pparse.parsers.protobuf.check import Checker
        from pparse.protos import schema as builtin_schema

        checker = Checker(check_cancelled)
        type = builtin_schema().message("tensorflow.proto_splitter.ChunkMetadata")
        if not checker.sound(self.record, type):
            raise MalformedError("the chunk metadata are damaged", offset=checker.stopped)

    def _versions(self) -> tuple[int, int, list[int]]:
        splitter = join = 0
        bad: list[int] = []
        if _VERSION in self._scan.slots:
            window = self._scan.window()
            for field in self._scan.fields(_VERSION, 0, window):
                for number, value in small_fields(small(window, field)):
                    if number == 1 and isinstance(value, int):
                        splitter = signed(value)
                    elif number == 2 and isinstance(value, int):
                        join = signed(value)
                    elif number == 3:
                        bad += map(signed, [value] if isinstance(value, int) else decode_varints(value, len(value)))
        return splitter, join, bad

    def chunk(self, index: int) -> ChunkInfo:
        """Return the info of a chunk. Raise `MalformedError` if there is no chunk of that number."""
        if not 0 <= index < self.chunk_count:
            raise MalformedError(f"there is no chunk {index}: there are {self.chunk_count}", wanted=index)
        return next(self.chunks(index))

    def chunks(self, first: int = 0) -> Iterator[ChunkInfo]:
        """Yield the info of each chunk from number ``first`` on."""
        if not self.chunk_count:
            return
        window = self._scan.window()
        for field in self._scan.fields(_CHUNKS, first, window):
            numbers = [0, 0, 0]
            for number, value in small_fields(small(window, field)):
                if 1 <= number <= 3 and isinstance(value, int):
                    numbers[number - 1] = value
            info = ChunkInfo(*numbers)
            if self.moved is not None:
                now = self.moved.get(info.position)
                info = info._replace(lost=True) if now is None else info._replace(position=now)
            yield info


class ChunkedMessage:
    """A node of the tree of chunked fields: its own chunk, if any, and its ``count`` fields, read on demand."""

    __slots__ = ("_charge", "_scans", "_starts", "chunk_index", "count")

    def __init__(self, parts: list[Range], budget: MemoryBudget) -> None:
        self.chunk_index: int | None = None
        self.count = 0
        self._scans: list[PartScan] = []
        self._starts: list[int] = []
        memory = 0
        for part in parts:
            found = scan_whole(part)
            memory += found.memory
            if _CHUNK_INDEX in found.slots:
                window = found.window()
                field = found.last(_CHUNK_INDEX, window)
                if field.tag & 7 == VARINT:
                    self.chunk_index = read_value(window.block, window.at(field.start))[0]
            if _CHUNKED_FIELDS in found.slots:
                self._scans.append(found)
                self._starts.append(self.count)
                self.count += found.slots[_CHUNKED_FIELDS].count
        self._charge = budget.charge(memory, "the index of the chunked fields")

    def fields(self, ordinals: Any) -> Iterator[tuple[int, ChunkedField]]:
        """Yield ``(ordinal, field)`` for the chunked fields with these ordinals; fastest in ascending order."""
        current: Iterator[WireField] = iter(())
        scan_number = position = -1
        for ordinal in ordinals:
            number = bisect_right(self._starts, ordinal) - 1
            found, local = self._scans[number], ordinal - self._starts[number]
            if number != scan_number:
                window, scan_number, position = found.window(), number, -1
            if not 0 <= local - position < 64 or position < 0:
                current, position = found.fields(_CHUNKED_FIELDS, local, window), local
            field = next(islice(current, local - position, None))
            position = local + 1
            yield ordinal, ChunkedField(found.part, field, window)


class ChunkedField:
    """A chunked field: its tag, and the message below it."""

    __slots__ = ("_message", "_part", "_tags", "error")

    def __init__(self, part: Range, field: WireField, window: WireWindow) -> None:
        self._part = part
        self._tags: list[bytes] = []
        self._message: list[tuple[int, int]] = []
        self.error: MalformedError | None = None
        try:
            self._read(small(window, field), field)
        except MalformedError as error:
            error.offset = field.start + (error.offset or 0)
            self.error = error

    def _read(self, raw: bytes, field: WireField) -> None:
        for tag, start, end in fields(raw + PADDING, 0, len(raw)):
            if tag == _FIELD_TAG << 3 | LEN:
                if len(self._tags) >= _MAX_STEPS:
                    raise MalformedError("the tag of a chunked field has too many steps", got=_MAX_STEPS)
                self._tags.append(raw[start:end])
            elif tag == _FIELD_MESSAGE << 3 | LEN:
                self._message.append((field.start + start, field.start + end))

    def steps(self) -> list[Step]:
        """Return the steps of the tag. Raise `MalformedError` if it is invalid."""
        if self.error is not None:
            raise self.error
        steps: list[Step] = []
        for raw in self._tags:
            kind, value = _field_index(raw)
            if kind == "field":
                steps.append((value, None, None))
                continue
            if not steps:
                raise MalformedError("the tag of a chunked field begins with an index or a key, not with a field")
            number, given, _ = steps[-1]
            if given is not None:
                raise MalformedError("a field of a chunked field's tag has two indices or keys")
            steps[-1] = (number, kind, value)
        return steps

    def message(self, budget: MemoryBudget) -> ChunkedMessage:
        """Return the message below. Raise `MalformedError` if it is invalid."""
        if self.error is not None:
            raise self.error
        data = self._part.data
        return ChunkedMessage([data.range(start, end) for start, end in self._message], budget)


def _field_index(raw: bytes) -> tuple[str, Any]:
    """Parse a FieldIndex. Raise `MalformedError` if it is invalid."""
    found: tuple[str, Any] | None = None
    for number, value in small_fields(raw):
        if number == 1 and isinstance(value, int):
            found = ("field", value & 0xFFFFFFFF)
        elif number == 2 and isinstance(value, bytes):
            found = (KEY, _map_key(value))
        elif number == 3 and isinstance(value, int):
            found = (INDEX, value)
    if found is None:
        raise MalformedError("the tag of a chunked field has an empty step")
    return found


def _map_key(raw: bytes) -> Any:
    """Return the key in a MapKey: s 1, boolean 2, ui32 3, ui64 4, i32 5, i64 6. Raise `MalformedError`."""
    key: Any = None
    for number, value in small_fields(raw):
        if number == 1 and isinstance(value, bytes):
            try:
                key = value.decode()
            except UnicodeDecodeError as error:
                raise MalformedError("the key in a chunked field's tag is not UTF-8") from error
        elif isinstance(value, int) and number in _NUMERIC_KEYS:
            key = _NUMERIC_KEYS[number](value)
    if key is None:
        raise MalformedError("the tag of a chunked field has an empty map key")
    return key


def small_fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each varint, and each field with a length, of a small message.

    Raise `MalformedError`.
    """
    pos, end = 0, len(raw)
    raw += PADDING
    while pos < end:
        tag, pos = read_tag(raw, pos)
        wire = tag & 7
        value: int | bytes | None = None
        if wire == VARINT:
            value, pos = read_value(raw, pos)
        elif wire == LEN:
            length, pos = read_length(raw, pos)
            value, pos = raw[pos : pos + length], pos + length
        else:
            pos = skip_payload(raw, pos, wire)
        if pos > end or tag < 8 or wire not in (0, 1, 2, 5):
            raise MalformedError("a field of the metadata ends early")
        if value is not None:
            yield tag >> 3, value


class RecordPositions(IndexNote):
    """The positions of the records of a file without metadata."""

    __slots__ = ("positions",)

    def __init__(self, positions: array[int]) -> None:
        self.positions = positions

    @property
    def memory(self) -> int:
        """Bytes held."""
        return 8 * len(self.positions)


# -- Chunks that moved -------------------------------------------------------------------------------------------------
#
# Finds the chunks of a file from which bytes were removed, or into which bytes were inserted.
#
# The metadata give the positions of chunks, and after such a place all positions have changed. Records can be found,
# each proved whole by a hash, but they do not say which chunk they are. Their positions prove it:
#
# - The records before the first lost range are at their positions and have their sizes.
# - The records between the last such range and the metadata, which follow the last chunk, are the last chunks: all have
#   their sizes, and all moved by the same distance. The distance is smaller than any chunk, so that none is missing
#   without a lost range.
# - Records between two such ranges moved by that distance or not at all, and only one of these fits.
#
# If that proves nothing (more bytes were inserted than a chunk has, or at several places), sizes may: the records are
# chunks in their order, and a record that can only be one chunk, whatever the others are, is that chunk.

# Size of the header of a Riegeli chunk: closer positions belong to records of one chunk.
_CHUNK_HEADER: Final = 40


def check_belongs(
    positions: Callable[[], Iterable[int]], at: int, count: Callable[[], int], source: str | None = None
) -> None:
    """Raise `MalformedError` if a file has lost records that its metadata, at ``at``, name by ``positions``.

    The metadata are written last. If a chunk is not before them, and they name more chunks than there are records
    before them (``count``), they belong to another file, or the rest moved up, and other chunks are at their positions.
    """
    if max(positions(), default=-1) < at:
        return
    named, there = set(positions()), count()
    if len(named) > there:
        raise MalformedError(
            f"the chunk metadata do not belong to this file: they name {len(named):,} chunks, the last one at "
            f"{max(named)}, but stand at {at}, after only {there:,} records",
            offset=at,
            source=source,
        )


def chunks_moved(
    infos: Iterable[ChunkInfo], found: Sequence[Record], lost: Sequence[tuple[int, int]]
) -> dict[int, int | None] | None:
    """Return the new position of each chunk's record, by its old position; None for a lost chunk.

    ``found`` are the whole records before the metadata, ``lost`` the ranges of the file without any. Return None if the
    metadata are not proved to belong to the file.
    """
    sizes = {info.position: info.size for info in infos}
    expected = sorted(sizes.items())
    if not lost or not expected or not found:
        return None
    first, last = min(begin for begin, _ in lost), max(end for _, end in lost)
    before = [record for record in found if record[0] < first]
    behind = [record for record in found if record[0] >= last]
    if any(sizes.get(position) != size for position, size in before) or len(before) + len(behind) > len(expected):
        return None
    moved: dict[int, int | None] = dict.fromkeys(sizes)
    moved.update((position, position) for position, _ in before)
    distance = _distance(expected[len(expected) - len(behind) :], behind)
    if distance is None or abs(distance) >= _least_pitch(expected):
        placed = _by_sizes(expected, before, [record for record in found if record[0] >= first])
        moved.update(placed)
        return moved if placed else None
    for position, _ in behind:
        if moved[position + distance] is not None:
            return None
        moved[position + distance] = position
    limit = behind[0][0] + distance if behind else expected[-1][0] + 1
    for group in _between(found, lost, first, last):
        ways = {
            shift
            for shift in (0, distance)
            if all(
                sizes.get(position + shift) == size and moved[position + shift] is None and position + shift < limit
                for position, size in group
            )
        }
        if len(ways) == 1:
            shift = ways.pop()
            moved.update((position + shift, position) for position, _ in group)
    return moved if before or behind else None


def _distance(expected: Sequence[Record], behind: Sequence[Record]) -> int | None:
    """Return the distance by which all these records moved; None if they are not the expected ones."""
    distances = {want[0] - have[0] for want, have in zip(expected, behind, strict=True)}
    if any(want[1] != have[1] for want, have in zip(expected, behind, strict=True)) or len(distances) > 1:
        return None
    return distances.pop() if distances else 0


def _by_sizes(expected: Sequence[Record], before: Sequence[Record], rest: Sequence[Record]) -> dict[int, int]:
    """Return the positions of chunks that can only be one of the records ``rest``, none before the ones in ``before``.

    Each record is matched to the first chunk of its size that is possible, and to the last; the truth is between.
    """
    start = bisect_left(expected, before[-1]) + 1 if before else 0
    first, at = [], start
    for _, size in rest:
        while at < len(expected) and expected[at][1] != size:
            at += 1
        first.append(at)
        at += 1
    if at > len(expected):  # some record is not a chunk
        return {}
    at, placed = len(expected) - 1, {}
    for nth in range(len(rest) - 1, -1, -1):
        while expected[at][1] != rest[nth][1]:
            at -= 1
        if at == first[nth]:
            placed[expected[at][0]] = rest[nth][0]
        at -= 1
    return placed


def _least_pitch(expected: Sequence[Record]) -> int:
    """Return the least number of bytes of a chunk in the Riegeli file, as far as the positions show."""
    pitches = [after[0] - before[0] for before, after in pairwise(expected) if after[0] - before[0] >= _CHUNK_HEADER]
    return min(pitches, default=_CHUNK_HEADER)


def _between(found: Sequence[Record], lost: Sequence[tuple[int, int]], first: int, last: int) -> Iterable[list[Record]]:
    """Yield the groups of records between two lost ranges."""
    ends = sorted(end for _, end in lost)
    between = (record for record in found if first <= record[0] < last)
    for _, group in groupby(between, lambda record: bisect_right(ends, record[0])):
        yield list(group)
