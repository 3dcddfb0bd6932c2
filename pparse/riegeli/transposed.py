"""Decoding of transposed chunks: records taken apart by field, put together again by a state machine.

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

from itertools import chain, repeat

from pparse.errors import MalformedError
from pparse.kernels.transposed import expand_moves
from pparse.kernels.varint import encode_varint
from pparse.riegeli.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError
from pparse.riegeli.parts import BeyondSize
from pparse.riegeli.transposed_layout import (
    BY_LENGTH,
    BY_PREFIX,
    BY_WIDTH,
    END_GROUP,
    END_OF_SUBMESSAGE,
    FIRST_FIELD,
    FIXED_WIDTH,
    INLINE,
    LENGTH_DELIMITED,
    MAX_LENGTH,
    MAX_OFFSET,
    NON_PROTO,
    START_GROUP,
    START_OF_MESSAGE,
    START_OF_SUBMESSAGE,
    SUBMESSAGE,
    VARINT,
    Buffers,
    Parts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final, TypeAlias

    from pparse.riegeli.projection import FieldProjection, Inside
    from pparse.riegeli.transposed_layout import Header, Value

    Readers: TypeAlias = tuple[Iterator[Value], ...]
    # What to do (one of the names below), with which tag and projection, and the readers that follow.
    Action: TypeAlias = tuple[int, bytes, Inside, Readers]
    # Readers, actions, and the base of the next move; ~state if the block was cut and continues there.
    Block: TypeAlias = tuple[Readers, tuple[Action, ...] | None, int]
    # Bytes emitted when it was opened, its tag (empty: dropped; None: a group), what is kept of its fields.
    Open: TypeAlias = tuple[int, bytes | None, Inside]

_BLOCK_STATES: Final = 64
_STRIDE: Final = 1024  # bytes of transitions between two checks of what was emitted

_DONE, _OPEN, _CLOSE, _OPEN_GROUP, _CLOSE_GROUP = range(5)


def decode_transposed(
    data: bytes | memoryview,
    num_records: int,
    decoded_data_size: int,
    projection: FieldProjection | None = None,
    *,
    max_bytes: int | None = None,
) -> list[bytes]:
    """Return the records of a transposed chunk, in order; with ``projection``, only those fields of them.

    ``data`` is the chunk's data, beginning with the compression byte. ``num_records`` and ``decoded_data_size`` (bytes
    of all records together, without a projection) are those of the chunk header. Needs about the decompressed size of
    the chunk in memory, beside the records.

    Raise `InvalidArgumentError` for invalid data, `UnimplementedError` for an unknown compression, and
    `ResourceExhaustedError`, before reading anything, if the header gives more bytes or records than ``max_bytes``.
    """
    if max_bytes is not None and max(decoded_data_size, num_records) > max_bytes:
        raise ResourceExhaustedError(
            "the chunk's decoded size is above the limit", wanted=max(decoded_data_size, num_records), got=max_bytes
        )
    keep = None if projection is None else projection.root
    try:
        machine = _Machine(Parts(memoryview(data), num_records, decoded_data_size), keep)
        return machine.run()
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
    return InvalidArgumentError(
        "invalid transposed chunk: it holds less than it says", wanted=decoded_data_size, got=size
    )


class _BlockMaker:
    """Makes the blocks of a machine (see the module docstring)."""

    def __init__(self, header: Header, buffers: Buffers, keep: Inside) -> None:
        self._header = header
        self._buffers = buffers
        self._keep = keep
        self._targets: dict[int, int] = {}

    def make(self, state: int, opens: list[Open]) -> Block:
        """Return the block that begins at ``state``, within the submessages and groups ``opens``."""
        header = self._header
        if state >= header.states:
            raise MalformedError("a move leads to a state that does not exist")
        block = _Segments()
        insides = _Insides(opens, self._keep)
        for _ in range(_BLOCK_STATES):
            tag = header.tags[state]
            if tag >= FIRST_FIELD:
                self._add_field(block, insides, tag, state)
            elif tag == NON_PROTO:
                block.add_reader(self._buffers.reader(header.buffers[state], BY_LENGTH))
                block.add_action(_DONE)
            elif tag == START_OF_SUBMESSAGE:
                insides.pop()
                block.add_action(_CLOSE)
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

    def _add_field(self, block: _Segments, insides: _Insides, tag: int, state: int) -> None:
        wire = tag & 7
        if wire == START_GROUP and self._keep is not None:
            insides.pop()
            block.add_action(_CLOSE_GROUP)
        if insides.now is None:
            exists, inside = True, None
        else:
            inside = insides.now.get(tag >> 3, {})
            exists = tag >> 3 in insides.now
        if wire == END_OF_SUBMESSAGE:
            block.add_action(_OPEN, encode_varint(tag - SUBMESSAGE) if exists else b"", inside)
            insides.push(inside)
            return
        if exists:
            if wire not in (START_GROUP, END_GROUP):
                self._add_value(block, wire, state, existence=inside == {})
            block.add_constant(encode_varint(tag))
        if wire == END_GROUP and self._keep is not None:
            block.add_action(_OPEN_GROUP, b"", inside)
            insides.push(inside)

    def _add_value(self, block: _Segments, wire: int, state: int, *, existence: bool) -> None:
        subtype, buffer = self._header.subtypes[state], self._header.buffers[state]
        if existence:
            block.add_constant(bytes(FIXED_WIDTH.get(wire, 1)))
        elif wire == LENGTH_DELIMITED:
            block.add_reader(self._buffers.reader(buffer, BY_PREFIX))
        elif wire != VARINT:
            block.add_reader(self._buffers.reader(buffer, BY_WIDTH, -FIXED_WIDTH[wire]))
        elif subtype >= INLINE:
            block.add_constant(bytes((subtype - INLINE,)))
        else:
            block.add_reader(self._buffers.reader(buffer, BY_WIDTH, subtype + 1))


class _Segments:
    """A block under construction. Everything is added in the order in which it is emitted: backwards."""

    __slots__ = ("_actions", "_constant", "_readers", "_segments")

    def __init__(self) -> None:
        self._constant = b""
        self._readers: list[Iterator[Value]] = []
        self._segments: list[Readers] = []
        self._actions: list[tuple[int, bytes, Inside]] = []

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


class _Insides:
    """What is kept of the fields at the current place of a block under construction (``now``), and around it."""

    __slots__ = ("_depth", "_keep", "_opens", "_own", "now")

    def __init__(self, opens: list[Open], keep: Inside) -> None:
        self._opens = opens
        self._depth = len(opens)
        self._keep = keep
        self._own: list[Inside] = []
        self.now = opens[-1][2] if opens else keep

    def push(self, inside: Inside) -> None:
        self._own.append(self.now)
        self.now = inside

    def pop(self) -> None:
        if self._own:
            self.now = self._own.pop()
        else:
            # Below 0 the value does not matter: running the block fails there.
            self._depth -= 1
            self.now = self._opens[self._depth - 1][2] if self._depth > 0 else self._keep


class _Machine:
    """Runs the states of a chunk. Call ``run`` once."""

    def __init__(self, parts: Parts, keep: Inside) -> None:
        self._parts = parts
        self._projected = keep is not None
        self._buffers = Buffers(parts, sparse=self._projected)
        self._maker = _BlockMaker(parts.header, self._buffers, keep)
        self._records: list[bytes] = []
        self._opens: list[Open] = []
        self._left = parts.size
        self._run: list[Readers] = []  # readers whose values are to be gathered
        self._pieces: list[Value] = []  # of the current record, last first
        self._emitted = 0  # bytes in the first `_counted` of them
        self._counted = 0

    def run(self) -> list[bytes]:
        """Return the records. Raise `MalformedError` if the chunk is invalid."""
        parts, make, opens, run = self._parts, self._maker.make, self._opens, self._run
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
                        block = blocks[state] = make(state, opens)
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

    def _gather(self) -> None:
        """Read the values of the readers in `_run`."""
        self._pieces += map(next, chain.from_iterable(self._run))
        self._run.clear()

    def _count(self) -> int:
        """Return how many bytes of this record were emitted. Raise `MalformedError` if there are too many."""
        if self._run:
            self._gather()
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
        if self._left and not self._projected:
            size = self._parts.size
            raise MalformedError("the records are smaller than the chunk says", wanted=size, got=size - self._left)
        self._buffers.check_ends()
        self._records.reverse()
