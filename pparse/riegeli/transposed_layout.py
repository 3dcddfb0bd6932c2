"""The structure of transposed chunks: header, transitions, and buckets with buffers of values.

Data: ``u8 compression | varint64 h | h bytes: part "header" | buckets, each a part | transitions: a part``. Buckets
hold buffers; a buffer holds the values of one field. Decoder and encoder share the constants of the format below.

Each size and count is compared with the bytes available before anything is allocated for it. The decompressed sizes of
the parts are bounded by the decoded size and number of records in the chunk header, with a margin for any writer.
"""

from __future__ import annotations

from array import array
from io import BytesIO

from pparse.errors import MalformedError
from pparse.kernels.transposed import (
    PADDING,
    find_loop,
    fixed_values,
    sized_values,
    string_values,
    strings_of_stream,
    varint_values,
)
from pparse.kernels.varint import MAX_BYTES_32, MAX_BYTES_64, read_varint, read_varints
from pparse.riegeli.errors import InvalidArgumentError
from pparse.riegeli.parts import BeyondSize, read_part, size_hint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final, TypeAlias

    Value: TypeAlias = bytes | memoryview

# Tags of states that are not fields.
NO_OP: Final = 0
NON_PROTO: Final = 1
START_OF_SUBMESSAGE: Final = 2
START_OF_MESSAGE: Final = 3
FIRST_FIELD: Final = 8

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5
END_OF_SUBMESSAGE: Final = 6
SUBMESSAGE: Final = END_OF_SUBMESSAGE - LENGTH_DELIMITED  # what is added to the tag of the field

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
    ``buffers`` are 0 for states that have none.
    """

    __slots__ = ("bucket_lengths", "buffer_lengths", "buffers", "first", "following", "states", "subtypes", "tags")

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
        end, count = len(raw), len(self.buffer_lengths)
        for state, tag in enumerate(self.tags):
            if self.user_of(tag, state):
                self.buffers[state], pos = read_varint(raw, pos, end, MAX_BYTES_32, "the buffer of a state")
                if self.buffers[state] >= count:
                    raise MalformedError("a state reads a buffer that does not exist", offset=pos)
        return pos

    def user_of(self, tag: int, state: int) -> int:
        """Return how the state reads its buffer; 0 if it has none."""
        if tag < FIRST_FIELD:
            return BY_LENGTH if tag == NON_PROTO else 0
        wire = tag & 7
        if wire == LENGTH_DELIMITED:
            return BY_PREFIX
        if wire == VARINT:
            return BY_WIDTH if self.subtypes[state] < INLINE else 0
        return BY_WIDTH if wire in (FIXED64, FIXED32) else 0


class Parts:
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
            if length > len(data) - pos:
                raise MalformedError(
                    "a bucket extends beyond the chunk", offset=pos, wanted=length, got=len(data) - pos
                )
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

    def __init__(self, parts: Parts, *, sparse: bool) -> None:
        header = parts.header
        self._kind = parts.kind
        self._parts = parts.buckets
        self._buckets: list[bytes | None] = [None] * len(parts.buckets)
        self._sizes: list[int] = []
        self._places: list[tuple[int, int, int]] = []  # bucket, first byte, end
        self._streams: dict[int, BytesIO] = {}
        self._readers: dict[tuple[int, int, int], Iterator[Value]] = {}
        self._users = bytearray(len(header.buffer_lengths))
        for state, tag in enumerate(header.tags):
            user = header.user_of(tag, state)
            if user:
                self._users[header.buffers[state]] |= user
                if user == BY_LENGTH:
                    self._users[-1] |= _LENGTHS
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
