"""Decoding of transposed chunks: records taken apart by field, put together again by a state machine.

Data: ``u8 compression | varint64 h | h bytes: part "header" | buckets, each a part | transitions: a part``. Buckets
hold buffers; a buffer holds the values of one field. The encoder shares the constants of the format below. Each size
and count is compared with the bytes available before anything is allocated for it. The decompressed sizes of the parts
are bounded by the decoded size and number of records in the chunk header, with a margin for any writer.

The machine emits the chunk backwards: the last record first, and in each record the last field first. Values are read
from their buffers forwards. Implementation:

- A *block* is what happens between two explicit moves: the states from where a move arrives, through implicit moves,
  to the next explicit one. It is made when it is first reached: a tuple of readers and constants, cut into segments
  at the few actions that need Python (submessages, ends of records). Running a block appends the tuple to a list;
  values are gathered by ``map(next, ...)``, a record at a time.
- Decoding time is linear in the size of the data and the decoded size, for any machine. Every state except a no-op
  emits at least a byte, ends a record, or opens a submessage that does. Chains of implicit no-ops are walked once. A
  block has at most `_BLOCK_STATES` states, and the number of blocks cut for that is bounded by what may be emitted.
- With a projection, a block has no reader for dropped fields, and their buckets are never decompressed. What is kept
  of a state is decided when a block first reaches it, as in the reference: writers use one state per path.
"""

from __future__ import annotations

from array import array
from io import BytesIO
from itertools import chain, repeat
from operator import index

from pparse.errors import MalformedError
from pparse.kernels.riegeli import (
    PADDING,
    expand_moves,
    find_loop,
    fixed_values,
    sized_values,
    string_values,
    strings_of_stream,
    varint_values,
)
from pparse.kernels.varint import MAX_BYTES_32, MAX_BYTES_64, encode_varint, read_varint, read_varints
from pparse.kernels.wire import END_GROUP, FIXED32, FIXED64, LEN, START_GROUP, VARINT
from pparse.riegeli.errors import BoundsError, InvalidArgumentError, ResourceExhaustedError, UnimplementedError
from pparse.riegeli.parts import BeyondSize, read_part, size_hint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final, TypeAlias

    Value: TypeAlias = bytes | memoryview
    # What is kept inside a field, or a record: None for everything, else the fields kept and what inside of each.
    # Nothing at all ({}) is what EXISTENCE_ONLY leaves of a field.
    Inside: TypeAlias = "dict[int, Inside] | None"
    Readers: TypeAlias = tuple[Iterator[Value], ...]
    # What to do (one of the names below), with which tag and projection, and the readers that follow.
    Action: TypeAlias = tuple[int, bytes, Inside, Readers]
    # Readers, actions, and the base of the next move; ~state if the block was cut and continues there.
    Block: TypeAlias = tuple[Readers, tuple[Action, ...] | None, int]
    # Bytes emitted when it was opened, its tag (empty: dropped; None: a group), what is kept of its fields.
    Open: TypeAlias = tuple[int, bytes | None, Inside]

# Tags of states that are not fields.
NO_OP: Final = 0
NON_PROTO: Final = 1
START_OF_SUBMESSAGE: Final = 2
START_OF_MESSAGE: Final = 3
FIRST_FIELD: Final = 8

END_OF_SUBMESSAGE: Final = 6
SUBMESSAGE: Final = END_OF_SUBMESSAGE - LEN  # what is added to the tag of the field

# Subtypes of varint fields: 0..9 are the length - 1; these are the value itself.
INLINE: Final = 10
LAST_INLINE: Final = INLINE + 127

MAX_LENGTH: Final = (1 << 32) - 1
MAX_OFFSET: Final = 63

# Margin, in bytes, over the decompressed size of a part that follows from the chunk's size.
# The largest header that is read: a state takes some 200 bytes of memory, and at least 3 of header. (A chunk of
# 20,000 different fields has one of 150 KB.)
MAX_HEADER: Final = 1 << 20
_SLACK: Final = 1 << 16

FIXED_WIDTH: Final = {FIXED64: 8, FIXED32: 4}

# Kinds of readers of a buffer, as bits.
BY_WIDTH, BY_PREFIX, BY_LENGTH, _LENGTHS = 1, 2, 4, 8


class Header:
    """The header of a transposed chunk: lengths of buckets and buffers, and the states of the machine.

    ``following`` is the base of the next move; for an implicit state, the next state + ``states``. ``subtypes`` and
    ``buffers`` are 0 for states that have none. ``users`` tell how each buffer is read.
    """

    def __init__(self, raw: bytes) -> None:
        end = len(raw)
        num_buckets, pos = read_varint(raw, 0, end, MAX_BYTES_32, "the number of buckets")
        num_buffers, pos = read_varint(raw, pos, end, MAX_BYTES_32, "the number of buffers")
        self.bucket_lengths, pos = read_varints(raw, pos, end, num_buckets, MAX_BYTES_64, "the length of a bucket")
        self.buffer_lengths, pos = read_varints(raw, pos, end, num_buffers, MAX_BYTES_64, "the length of a buffer")
        self.states, pos = read_varint(raw, pos, end, MAX_BYTES_32, "the number of states")
        tags, pos = read_varints(raw, pos, end, self.states, MAX_BYTES_32, "the tag of a state")
        following, pos = read_varints(raw, pos, end, self.states, MAX_BYTES_32, "the state after a state")
        if self.states and max(following) >= 2 * self.states:
            raise MalformedError("a state leads to a state that does not exist")
        self.tags = array("I", tags)
        self.following = array("I", following)
        self.subtypes = bytearray(self.states)
        self.buffers = array("I", bytes(4 * self.states))
        self.users = bytearray(num_buffers)
        pos = self._read_details(raw, self._read_subtypes(raw, pos))
        self.first, pos = read_varint(raw, pos, end, MAX_BYTES_32, "the first state")
        if self.first >= self.states:
            raise MalformedError("the first state does not exist")
        if pos != end:
            raise MalformedError("the header has bytes after its end", offset=pos)
        if find_loop(self.following, self.states) >= 0:
            raise MalformedError("the states contain an implicit loop")

    def _read_subtypes(self, raw: bytes, pos: int) -> int:
        """Check the tags, and read the subtypes; return the position after them."""
        for state, tag in enumerate(self.tags):
            if tag < FIRST_FIELD:
                if tag > START_OF_MESSAGE:
                    raise MalformedError(f"a state has the invalid tag {tag}")
            elif not tag & 7:
                if pos == len(raw):
                    raise MalformedError("the header ends within the subtypes")
                if raw[pos] > LAST_INLINE:
                    raise MalformedError(f"a state has the invalid subtype {raw[pos]}")
                self.subtypes[state] = raw[pos]
                pos += 1
            elif tag & 7 > END_OF_SUBMESSAGE:
                raise MalformedError(f"a state has the invalid tag {tag}")
        return pos

    def _read_details(self, raw: bytes, pos: int) -> int:
        """Read the buffer of each state that has one; return the position after them."""
        end = len(raw)
        for state, tag in enumerate(self.tags):
            user = self._user_of(tag, state)
            if user:
                self.buffers[state], pos = read_varint(raw, pos, end, MAX_BYTES_32, "the buffer of a state")
                if self.buffers[state] >= len(self.users):
                    raise MalformedError("a state reads a buffer that does not exist", offset=pos)
                self.users[self.buffers[state]] |= user
                if user == BY_LENGTH:
                    self.users[-1] |= _LENGTHS
        return pos

    def _user_of(self, tag: int, state: int) -> int:
        """Return how the state reads its buffer; 0 if it has none."""
        if tag < FIRST_FIELD:
            return BY_LENGTH if tag == NON_PROTO else 0
        wire = tag & 7
        if wire == LEN:
            return BY_PREFIX
        if wire == VARINT:
            return BY_WIDTH if self.subtypes[state] < INLINE else 0
        return BY_WIDTH if wire in (FIXED64, FIXED32) else 0


class ChunkParts:
    """The parts of a chunk: header and transitions decompressed, buckets not yet."""

    __slots__ = ("buckets", "header", "kind", "num_records", "size", "transitions")

    def __init__(self, data: memoryview, num_records: int, size: int) -> None:
        self.num_records = num_records
        self.size = size
        # Only a bound. Records beyond the number of bytes are empty: no writer makes so many.
        self.kind, bounded = data[0] if data else -1, size + min(num_records, 1 << 24)
        if not data:
            raise InvalidArgumentError("the chunk is empty: no compression type")
        length, pos = read_varint(data, 1, len(data), MAX_BYTES_64, "the length of the header")
        if length > len(data) - pos:
            raise MalformedError("the header extends beyond the chunk", offset=pos, wanted=length, got=len(data) - pos)
        # A state takes 2 to 15 bytes, mostly below 8, and emits at least a byte or ends a record.
        self.header = Header(read_part(self.kind, data[pos : pos + length], min(8 * bounded + _SLACK, MAX_HEADER)))
        pos += length
        self.buckets = []
        for length in self.header.bucket_lengths:
            left = len(data) - pos
            if length > left:
                raise MalformedError("a bucket extends beyond the chunk", offset=pos, wanted=length, got=left)
            self.buckets.append(data[pos : pos + length])
            pos += length
        # At most one byte per emitted byte or record, and some no-ops on the way.
        self.transitions = read_part(self.kind, data[pos:], 2 * bounded + _SLACK)
        room = size + self.header.states + 64 * (len(self.transitions) + 1)
        if num_records > room:
            raise InvalidArgumentError("the chunk cannot hold as many records as it says", wanted=num_records, got=room)
        # Everything is emitted but the lengths of non-proto records, five bytes each; some bytes may be unused.
        if sum(self.header.buffer_lengths) > 2 * size + 10 * num_records + _SLACK:
            raise BeyondSize("the chunk's buffers are larger than its records can be")


class Buffers:
    """The buffers, and readers of their values.

    All buckets are decompressed at once. With ``sparse``, each is decompressed when one of its buffers is first read;
    the size hints then say which buffers are in which bucket.
    """

    def __init__(self, parts: ChunkParts, *, sparse: bool) -> None:
        header = parts.header
        self._kind = parts.kind
        self._parts = parts.buckets
        self._buckets: list[bytes | None] = [None] * len(parts.buckets)
        self._sizes: list[int] = []
        self._places: list[tuple[int, int, int]] = []  # bucket, first byte, end
        self._streams: dict[int, BytesIO] = {}
        self._readers: dict[tuple[int, int, int], Iterator[Value]] = {}
        self._users = header.users
        self._lay_out(header.buffer_lengths, sparse)

    def _lay_out(self, lengths: list[int], sparse: bool) -> None:
        """Locate each buffer: they fill the buckets one after another, and none spans two."""
        left = sum(lengths)
        last = len(self._parts) - 1
        at, size = 0, self._size_of_next(left, sparse) if self._parts else 0
        for length in lengths:
            if not self._sizes or length > size - at:
                raise MalformedError("a buffer extends beyond its bucket", wanted=length, got=size - at)
            self._places.append((len(self._sizes) - 1, at, at + length))
            at += length
            left -= length
            while at == size and len(self._sizes) <= last:
                at, size = 0, self._size_of_next(left, sparse)
        if len(self._sizes) <= last or at != size:
            raise MalformedError("the buckets are larger than their buffers together")

    def _size_of_next(self, limit: int, sparse: bool) -> int:
        """Append the size of the next bucket, which may not exceed ``limit``, and return it."""
        bucket = len(self._sizes)
        if sparse:
            size = size_hint(self._kind, self._parts[bucket])
        else:
            content = self._buckets[bucket] = read_part(self._kind, self._parts[bucket], limit)
            size = len(content)
        self._sizes.append(size)
        return size

    def _place(self, buffer: int) -> tuple[bytes, int, int]:
        """Return the bucket of a buffer, and where it begins and ends in it."""
        bucket, start, end = self._places[buffer]
        content = self._buckets[bucket]
        if content is None:
            size = self._sizes[bucket]
            content = self._buckets[bucket] = read_part(self._kind, self._parts[bucket], size)
            if len(content) != size:
                raise MalformedError("the size of a bucket is not its size hint", wanted=size, got=len(content))
        return content, start, end

    def _stream(self, buffer: int) -> BytesIO:
        stream = self._streams.get(buffer)
        if stream is None:
            content, start, end = self._place(buffer)
            # Readers of exact sizes check what they get; the others would not notice the end of the buffer.
            padding = PADDING if self._users[buffer] & BY_WIDTH else b""
            stream = self._streams[buffer] = BytesIO(content[start:end] + padding)
        return stream

    def reader(self, buffer: int, user: int, width: int = 0) -> Iterator[Value]:
        """Return the reader of the values in a buffer for states of one kind. ``width``: bytes; negative if fixed."""
        key = (buffer, user, width)
        reader = self._readers.get(key)
        if reader is None:
            if user == BY_PREFIX and self._users[buffer] == BY_PREFIX:
                reader = string_values(*self._place(buffer))
            elif user == BY_PREFIX:
                reader = strings_of_stream(self._stream(buffer).read)
            elif user == BY_LENGTH:
                reader = sized_values(self._stream(buffer).read, self._stream(len(self._users) - 1).read)
            elif width < 0:
                reader = fixed_values(self._stream(buffer).read, -width)
            else:
                reader = varint_values(self._stream(buffer).read, width)
            self._readers[key] = reader
        return reader

    def check_ends(self) -> None:
        """Raise `MalformedError` if values were read beyond the end of a buffer."""
        for buffer, stream in self._streams.items():
            _, start, end = self._places[buffer]
            if stream.tell() > end - start:
                raise MalformedError("a value extends beyond its buffer", got=end - start)


EXISTENCE_ONLY: Final = 0
"""At the end of a path: whether the field is there, without its value."""

_MAX_FIELD: Final = (1 << 29) - 1


class FieldProjection:
    """The fields of records to read: a set of paths of field numbers. The other fields need not be decompressed.

    ``[]`` is everything; ``[6, 2]`` is field 2 in the messages of field 6; ``[6, 0]`` keeps field 6 without its value
    (`EXISTENCE_ONLY`). If a longer path leads through a field that is not a message, the whole field is kept. Only
    transposed chunks are filtered, and records that are not protocol buffers never are, so a reader may get more fields
    than it asked for.

    Raise `BoundsError` for an invalid field number, `InvalidArgumentError` for a path with a 0 that is not its last
    number.
    """

    __slots__ = ("root",)

    def __init__(self, paths: Iterable[Iterable[int]] = ((),)) -> None:
        self.root: Inside = {}
        """What to keep of each field of a record, by field number; in the same form for the fields inside of it.

        None stands for everything, ``{}`` for nothing but the tag and a zero value. Fields not named are dropped.
        """
        for path in paths:
            self._add(tuple(path))

    def _add(self, path: tuple[int, ...]) -> None:
        for number in path:
            if not EXISTENCE_ONLY <= index(number) <= _MAX_FIELD:
                raise BoundsError(f"not a field number in a projection: {number!r}")
        existence = path[-1:] == (EXISTENCE_ONLY,)
        fields = path[:-1] if existence else path
        if EXISTENCE_ONLY in fields:
            raise InvalidArgumentError(f"a field projection continues after EXISTENCE_ONLY: {list(path)}")
        if not path:
            self.root = None
        inside = self.root
        for depth, number in enumerate(fields, 1):
            if inside is None:
                return  # an outer field is kept as a whole
            if depth == len(path):
                inside[number] = None
            else:
                inside = inside.setdefault(number, {})


_BLOCK_STATES: Final = 64
_STRIDE: Final = 1024  # bytes of transitions between two checks of what was emitted

_DONE, _OPEN, _CLOSE, _OPEN_GROUP, _CLOSE_GROUP = range(5)


def decode_transposed(
    data: bytes | memoryview, num_records: int, decoded_data_size: int, projection: FieldProjection | None = None
) -> list[bytes]:
    """Return the records of a transposed chunk, in order; with ``projection``, only those fields of them.

    ``data`` is the chunk's data, beginning with the compression byte. ``num_records`` and ``decoded_data_size`` (bytes
    of all records together, without a projection) are those of the chunk header. Needs about the decompressed size of
    the chunk in memory, beside the records.

    Raise `InvalidArgumentError` for invalid data, `UnimplementedError` for an unknown compression.
    """
    keep = None if projection is None else projection.root
    try:
        return _ChunkMachine(ChunkParts(memoryview(data), num_records, decoded_data_size), keep).run()
    except InvalidArgumentError:
        raise
    except MalformedError as error:
        # The offset of the error is within a part.
        reason = f"invalid transposed chunk: {error.reason}"
        raise InvalidArgumentError(reason, wanted=error.wanted, got=error.got) from error


def disprove(
    data: bytes | memoryview, num_records: int, decoded_data_size: int, most: int
) -> InvalidArgumentError | None:
    """Return why the chunk cannot hold as much as its header says; None if it decodes to more than ``most`` bytes.

    It is decoded as a chunk of ``most`` bytes and records. If that ends early, the chunk is smaller than it claims.
    """
    count, size = min(num_records, most), min(decoded_data_size, most)
    try:
        decode_transposed(data, count, size)
    except (BeyondSize, ResourceExhaustedError):
        return None
    except UnimplementedError as error:  # its content is unknown, but a claim beyond all measure is not believed
        return InvalidArgumentError(error.reason)
    except InvalidArgumentError as error:
        if error.wanted == count < num_records and error.got is None:  # more records than possible
            return None
        said = {size: decoded_data_size, count: num_records}
        wanted = said.get(error.wanted, error.wanted) if isinstance(error.wanted, int) else None
        return InvalidArgumentError(error.reason, wanted=wanted, got=error.got)
    reason = "invalid transposed chunk: it holds less than it says"
    return InvalidArgumentError(reason, wanted=decoded_data_size, got=size)


class _NewBlock:
    """A block under construction. Everything is added in the order in which it is emitted: backwards.

    ``now`` is what is kept of the fields at the current place.
    """

    __slots__ = ("_actions", "_constant", "_depth", "_keep", "_opens", "_own", "_readers", "_segments", "now")

    def __init__(self, opens: list[Open], keep: Inside) -> None:
        self._constant = b""
        self._readers: list[Iterator[Value]] = []
        self._segments: list[Readers] = []
        self._actions: list[tuple[int, bytes, Inside]] = []
        self._opens = opens
        self._depth = len(opens)
        self._keep = keep
        self._own: list[Inside] = []
        self.now = opens[-1][2] if opens else keep

    def add_constant(self, value: bytes) -> None:
        self._constant = value + self._constant

    def add_reader(self, reader: Iterator[Value]) -> None:
        if self._constant:
            self._readers.append(repeat(self._constant))
            self._constant = b""
        self._readers.append(reader)

    def add_action(self, action: int, tag: bytes = b"", inside: Inside = None) -> None:
        self._end_segment()
        self._actions.append((action, tag, inside))

    def open(self, action: int, tag: bytes, inside: Inside) -> None:
        self.add_action(action, tag, inside)
        self._own.append(self.now)
        self.now = inside

    def close(self, action: int) -> None:
        self.add_action(action)
        if self._own:
            self.now = self._own.pop()
        else:
            # Below 0 the value does not matter: running the block fails there.
            self._depth -= 1
            self.now = self._opens[self._depth - 1][2] if self._depth > 0 else self._keep

    def _end_segment(self) -> None:
        if self._constant:
            self._readers.append(repeat(self._constant))
            self._constant = b""
        self._segments.append(tuple(self._readers))
        self._readers.clear()

    def finish(self, base: int) -> Block:
        """Return the block; ``base`` is the base of the next move, or ~state if that state follows without a move."""
        self._end_segment()
        first, *rest = self._segments
        if base >= 0 and not rest:
            return first, None, base
        return first, tuple((*action, readers) for action, readers in zip(self._actions, rest, strict=True)), base


class _ChunkMachine:
    """Runs the states of a chunk. Call ``run`` once."""

    def __init__(self, parts: ChunkParts, keep: Inside) -> None:
        self._parts = parts
        self._header = parts.header
        self._keep = keep
        self._buffers = Buffers(parts, sparse=keep is not None)
        self._targets: dict[int, int] = {}  # of chains of implicit no-ops
        self._records: list[bytes] = []
        self._opens: list[Open] = []
        self._left = parts.size
        self._run: list[Readers] = []  # readers whose values are to be gathered
        self._pieces: list[Value] = []  # of the current record, last first
        self._emitted = 0  # bytes in the first `_counted` of them
        self._counted = 0

    def run(self) -> list[bytes]:
        """Return the records. Raise `MalformedError` if the chunk is invalid."""
        parts, run = self._parts, self._run
        blocks: list[Block | None] = [None] * (parts.header.states + MAX_OFFSET)
        # In a block that is cut, all states but perhaps the first emit something, cause it, or end a record.
        cuts = (parts.size + parts.num_records) // (_BLOCK_STATES - 1) + 1
        base = parts.header.first
        for moves in self._strides():
            for offset in moves:
                state = base + offset
                while True:
                    block = blocks[state]
                    if block is None:
                        block = blocks[state] = self._make(state)
                    readers, actions, base = block
                    run.append(readers)
                    if actions is None:
                        break
                    for action, tag, inside, following in actions:
                        if action == _DONE:
                            self._end_record()
                        else:
                            self._act(action, tag, inside)
                        if following:
                            run.append(following)
                    if base >= 0:
                        break
                    state = ~base
                    cuts -= 1
                    if cuts < 0:
                        raise BeyondSize("more is emitted than the chunk should hold", wanted=parts.size)
                    self._count()
            self._count()
        self._finish()
        return self._records

    def _strides(self) -> Iterator[Iterable[int]]:
        """Yield the offsets of all moves, some thousand at a time; an offset of 0 precedes the first."""
        transitions = self._parts.transitions
        yield (0,)
        for start in range(0, len(transitions), _STRIDE):
            yield expand_moves(transitions[start : start + _STRIDE])

    def _count(self) -> int:
        """Return how many bytes of this record were emitted. Raise `MalformedError` if there are too many."""
        self._pieces += map(next, chain.from_iterable(self._run))
        self._run.clear()
        if self._counted < len(self._pieces):
            self._emitted += sum(map(len, self._pieces[self._counted :]))
            self._counted = len(self._pieces)
        # Each open submessage or group will emit something.
        if self._emitted > self._left or len(self._opens) > self._parts.size:
            raise BeyondSize("more is emitted than the chunk should hold", wanted=self._parts.size)
        return self._emitted

    def _act(self, action: int, tag: bytes, inside: Inside) -> None:
        """Open or close a submessage, or, when projected, a group."""
        if action == _OPEN:
            self._opens.append((self._count() if tag else 0, tag, inside))
        elif action == _OPEN_GROUP:
            self._opens.append((0, None, inside))
        elif not self._opens:
            raise MalformedError("a submessage or group has a beginning without an end")
        else:
            start, tag_or_group, _ = self._opens.pop()
            if (tag_or_group is None) != (action == _CLOSE_GROUP):
                raise MalformedError("submessages and groups overlap")
            if tag_or_group:
                length = self._count() - start
                if length > MAX_LENGTH:
                    raise MalformedError("a submessage is too long", got=length)
                self._pieces.append(tag_or_group + encode_varint(length))

    def _end_record(self) -> None:
        pieces = self._pieces
        pieces += map(next, chain.from_iterable(self._run))
        self._run.clear()
        if self._opens:
            raise MalformedError("a record ends within a submessage")
        if len(self._records) == self._parts.num_records:
            raise MalformedError("there are more records than the chunk should hold", wanted=self._parts.num_records)
        pieces.reverse()
        record = b"".join(pieces)
        pieces.clear()
        self._emitted = self._counted = 0
        self._left -= len(record)
        if self._left < 0:
            raise BeyondSize("more is emitted than the chunk should hold", wanted=self._parts.size)
        self._records.append(record)

    def _finish(self) -> None:
        """Check that everything is complete, and reverse the order of the records."""
        expected, found = self._parts.num_records, len(self._records)
        if self._count() or self._opens:
            raise MalformedError("the first record is not complete")
        if found != expected:
            raise MalformedError("there are fewer records than the chunk should hold", wanted=expected, got=found)
        if self._left and self._keep is None:
            size = self._parts.size
            raise MalformedError("the records are smaller than the chunk says", wanted=size, got=size - self._left)
        self._buffers.check_ends()
        self._records.reverse()

    # -- making blocks (see the module docstring) --------------------------------------------------------------------

    def _make(self, state: int) -> Block:
        """Return the block that begins at ``state``, within the submessages and groups that are open."""
        header = self._header
        if state >= header.states:
            raise MalformedError("a move leads to a state that does not exist")
        block = _NewBlock(self._opens, self._keep)
        for _ in range(_BLOCK_STATES):
            tag = header.tags[state]
            if tag >= FIRST_FIELD:
                self._add_field(block, tag, state)
            elif tag == NON_PROTO:
                block.add_reader(self._buffers.reader(header.buffers[state], BY_LENGTH))
                block.add_action(_DONE)
            elif tag == START_OF_SUBMESSAGE:
                block.close(_CLOSE)
            elif tag == START_OF_MESSAGE:
                block.add_action(_DONE)
            following = header.following[state]
            if following < header.states:
                return block.finish(following)
            state = self._beyond_no_ops(following - header.states)
        return block.finish(~state)

    def _beyond_no_ops(self, state: int) -> int:
        """Return the first state from ``state`` on that is not an implicit no-op; states on the way remember it."""
        header = self._header
        target = self._targets.get(state)
        if target is not None:
            return target
        path = []
        target = state
        while not header.tags[target] and header.following[target] >= header.states:
            path.append(target)
            target = self._targets.get(target, header.following[target] - header.states)
        self._targets.update(zip(path, repeat(target)))
        return target

    def _add_field(self, block: _NewBlock, tag: int, state: int) -> None:
        wire = tag & 7
        if wire == START_GROUP and self._keep is not None:
            block.close(_CLOSE_GROUP)
        now = block.now
        exists, inside = (True, None) if now is None else (tag >> 3 in now, now.get(tag >> 3, {}))
        if wire == END_OF_SUBMESSAGE:
            block.open(_OPEN, encode_varint(tag - SUBMESSAGE) if exists else b"", inside)
            return
        if exists:
            if wire not in (START_GROUP, END_GROUP):
                self._add_value(block, wire, state, existence=inside == {})
            block.add_constant(encode_varint(tag))
        if wire == END_GROUP and self._keep is not None:
            block.open(_OPEN_GROUP, b"", inside)

    def _add_value(self, block: _NewBlock, wire: int, state: int, *, existence: bool) -> None:
        subtype, buffer = self._header.subtypes[state], self._header.buffers[state]
        if existence:
            block.add_constant(bytes(FIXED_WIDTH.get(wire, 1)))
        elif wire == LEN:
            block.add_reader(self._buffers.reader(buffer, BY_PREFIX))
        elif wire != VARINT:
            block.add_reader(self._buffers.reader(buffer, BY_WIDTH, -FIXED_WIDTH[wire]))
        elif subtype >= INLINE:
            block.add_constant(bytes((subtype - INLINE,)))
        else:
            block.add_reader(self._buffers.reader(buffer, BY_WIDTH, subtype + 1))
